"""Nodes that run the original, in elections: its messages, its candidates, and what stands between them and ours."""
