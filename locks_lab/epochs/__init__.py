"""A list of servers that changes while programs run: a model of the product's machines (decision 0129)."""
