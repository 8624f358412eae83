"""Large-neighbourhood search: the loop, which neighbourhoods compete in it, and what a learned policy frees."""
