"""Where nodes are: addresses, discovery, port mappers, and dialling."""
