"""The messages of an election as Erlang terms: ours, and those of the original's candidates."""
