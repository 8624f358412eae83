"""The report: rows in, one HTML page and one Markdown page out. Made from rows only, never edited by hand."""
