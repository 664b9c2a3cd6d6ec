"""Parts of the pass `constant_propagate`."""
