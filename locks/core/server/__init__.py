"""A lock server as a pure state machine."""
