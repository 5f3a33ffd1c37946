"""The messages of lock servers and agents, for programs that talk to them as to any Pykka actor.

Most programs never do: the functions of `locks` send them. Each field of a program's message is checked, and
the program gets an error if one is wrong (`locks.core.checked`).
"""

from locks.core.messages import *  # noqa: F403
from locks.core.messages import __all__ as __all__
