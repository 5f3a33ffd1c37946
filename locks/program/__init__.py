"""This program's node: how it is started, and its settings outside of the program."""
