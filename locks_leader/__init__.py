"""Leader election with state hand-over."""
