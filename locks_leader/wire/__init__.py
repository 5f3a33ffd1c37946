"""The messages of an election as Erlang terms."""
