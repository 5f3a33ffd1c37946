"""What can happen in a world, and what has happened in it.

A choice is a pair:

    ("deliver", link)   the first message on a link arrives
    ("settle", number)  a client's agents look at what they know; at any time, for messages can be on
                        their way for as long as they like
    ("step", number)    a client takes its next step
    ("time out", n)     a client gives up waiting
    ("die", number)     a client dies, or its agent crashes
    ("notice", pair)    a node notices that its connection to another one is gone, or is there
    ("connect", pair)   two nodes are connected again
    ("cut", pair), ("mend", pair), ("crash", node), ("restart", node)

The last four are *faults*, and their ends. They never need to happen.
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
    """One thing that happened, for traces.

    Attributes:
        number: Its number, from 1.
        time: Seconds of virtual time.
        choice: What happened.
        party: Where: a lock server, an agent, or nobody.
        step: The step that a client takes; None if it ends.
        message: The message that has arrived.
        fate: How a client dies.
        there: Whether a node that is noticed is there.
        sent: The messages sent.
        found: What an agent found when it looked at what it knows.
        told: Whether the client was told that it has all its locks.
        ended: The clients, by number, that have ended.
        lost: The clients, by number, that have lost what they were told they have, and what.
        token: The lock of which the client has got the fencing token, and the token.
    """

    number: int
    time: float
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
