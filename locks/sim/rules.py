"""The rules that the machines play by, and wrong ones.

`OURS` is what `locks` does. The others are not used by the product: they are there to show that the
simulator finds what is wrong with them, and what each part of our rules is for.
"""

from __future__ import annotations

from typing import NamedTuple

from locks.agent_machine import AgentMachine
from locks.server_machine import ServerMachine

__all__ = ["OURS", "RULES", "Rule"]


class Rule(NamedTuple):
    """Which machines a world is made of.

    Attributes:
        name: Its name on the command line.
        about: What is different, in one line.
        agent: The agents' machine.
        server: The lock servers' machine.
    """

    name: str
    about: str
    agent: type[AgentMachine] = AgentMachine
    server: type[ServerMachine] = ServerMachine


OURS = Rule("ours", "the rules of locks")

RULES: dict[str, Rule] = {rule.name: rule for rule in (OURS,)}
