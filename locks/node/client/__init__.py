"""The side of the program: the agent's actor, owners, checks, and refusals."""
