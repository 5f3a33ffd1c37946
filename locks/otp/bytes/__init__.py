"""Erlang's terms and the messages between nodes, as Python values and as bytes."""
