"""Several machines: a running Dask cluster, links and costs measured on its nodes, and stages run on them."""
