"""A transaction's agent as a pure state machine."""
