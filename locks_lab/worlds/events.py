"""The possible events of a world, and those of a trace.

A choice is a pair:

    ("deliver", link)   the first message on a link arrives
    ("settle", number)  a client's agents examine what they know; this is possible at any time,
                        because messages can take any time
    ("step", number)    a client takes its next step
    ("time out", n)     a client gives up waiting
    ("die", number)     a client dies, or its agent crashes
    ("notice", pair)    a node notices that its connection to another one is lost, or is back
    ("connect", pair)   two nodes are connected again
    ("cut", pair), ("mend", pair), ("crash", node), ("restart", node)

The last four are *faults*, and their repairs. They never need to happen.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from locks.core.agent.wait_graph import Exploration
from locks.model import LockId
from locks_lab.worlds.client import Fate
from locks_lab.worlds.host import Mail, Message
from locks_lab.worlds.network import Change, Link, Party
from locks_lab.worlds.script import Step

__all__ = ["FAULTS", "Act", "Choice", "Event"]

Act = tuple[Literal["settle", "step", "time out", "die"], int]
Choice = tuple[Literal["deliver"], Link] | Act | Change
FAULTS = ("cut", "mend", "crash", "restart")  # with their ends; none of them needs to happen


class Event(NamedTuple):
    """An event, for traces.

    Attributes:
        number: Its number, from 1.
        choice: The choice.
        party: The lock server or the agent of the event; None if there is none.
        step: The step that a client takes; None if it ends.
        message: The message that has arrived.
        fate: How a client dies.
        there: Whether the noticed node is up.
        sent: The messages sent.
        found: The finding of an agent that has examined what it knows.
        told: Whether the client was notified that it holds all its locks.
        ended: The clients, by number, that have ended.
        lost: The clients, by number, that have lost locks of whose grants they were notified, and
            these locks.
        token: The lock whose fencing token the client has got, and the token.
    """

    number: int
    choice: Choice
    party: Party | None = None
    step: Step | None = None
    message: Message | None = None
    fate: Fate | None = None
    there: bool = False
    sent: tuple[Mail, ...] = ()
    found: Exploration | None = None
    told: bool = False
    ended: tuple[int, ...] = ()
    lost: tuple[tuple[int, tuple[LockId, ...]], ...] = ()
    token: tuple[LockId, int] | None = None
