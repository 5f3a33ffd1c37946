"""Where nodes are: addresses, port mappers, and dialling."""
