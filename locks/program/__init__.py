"""This program's node: how it is started, and its settings outside of the program."""

from locks.program.default import default_node, is_at_hand, preset, stand_in, start, stop
from locks.program.origin import Movable

__all__ = ["Movable", "default_node", "is_at_hand", "preset", "stand_in", "start", "stop"]
