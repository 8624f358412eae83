"""HSDAG: a graph is parsed into groups, and every group is placed (Duan et al., NeurIPS 2024, arXiv 2405.14185)."""
