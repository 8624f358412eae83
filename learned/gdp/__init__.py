"""GDP: a graph network and segment-recurrent attention that place the whole graph at once."""
