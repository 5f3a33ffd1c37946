"""The commands of the laboratory: `locks sim` and `locks demo`."""
