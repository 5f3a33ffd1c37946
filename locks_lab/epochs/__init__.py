"""A list of servers that changes while programs run: machines, and a model of them (decision 0128)."""
