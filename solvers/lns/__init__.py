"""Large-neighbourhood search: which neighbourhoods compete, and what a learned policy frees."""
