"""Parts of a problem: segments in series and cases, each bounded or solved alone."""
