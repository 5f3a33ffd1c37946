"""Where nodes are: addresses and dialling."""
