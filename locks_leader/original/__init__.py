"""Elections together with nodes that run the original: its messages, its candidates, and the bridge."""
