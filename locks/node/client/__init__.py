"""What programs hold and wait with: the agent's actor, owners, checks, and refusals."""
