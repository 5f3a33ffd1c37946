"""This program's node: how it is started, and its settings outside of the program."""

from locks.program.default import default_node, is_at_hand, preset, stand_in, start, stop

__all__ = ["default_node", "is_at_hand", "preset", "stand_in", "start", "stop"]
