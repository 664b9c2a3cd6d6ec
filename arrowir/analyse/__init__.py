"""What can be found out about batches: how two of them differ."""
