"""One policy for every platform and objective, trained on proven optima: data, network, training, method."""
