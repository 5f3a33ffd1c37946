"""The behaviour of these tests: a replicated dictionary, like `gdict` of the original.

The leader carries out what changes it, tells all followers, and replies. Who is elected asks the
candidates that it is about to lead for theirs, and hands on all of it. What happens to an instance
is written into its journal.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import gevent
import pykka

import locks_leader
from locks_leader import NO_REPLY, Behaviour, Caller, ElectionState

__all__ = ["Crash", "GDict", "Journal"]

Ref = pykka.ActorRef[Any]


class Crash(Exception):
    """What a callback raises because a test wants it to."""


class Journal:
    """What has happened to one instance.

    Attributes:
        events: When (by `time.monotonic()`), what, and in which term.
        executed: How often each request was carried out.
        downs: How many instances were reported as down.
        reason: Why it has ended, once it has.
        errors: Why candidates that were asked for their state did not answer.
        seen: What a test wants to know of each `elected`.
    """

    def __init__(self) -> None:
        self.events: list[tuple[float, str, int]] = []
        self.executed: Counter[str] = Counter()
        self.downs = 0
        self.reason: object = None
        self.errors: list[str] = []
        self.seen: list[tuple[Any, ...]] = []

    def add(self, what: str, term: int) -> None:
        """Something has happened."""
        self.events.append((time.monotonic(), what, term))

    @property
    def brief(self) -> list[str]:
        """What has happened, in order."""
        return [what for _, what, _ in self.events]

    def leads(self) -> bool:
        """Whether the instance believes that it leads."""
        return bool(self.events) and self.events[-1][1] in ("elected", "led another")

    def check(self) -> None:
        """`elected`, `surrendered` and `stepped_down` come in the order in which they may."""
        leads = False
        for what in self.brief:
            if what in ("elected", "surrendered"):
                assert not leads, f"{what} while it leads: {self.brief}"
                leads = what == "elected"
            else:
                assert leads, f"{what} while it does not lead: {self.brief}"
                leads = what != "stepped_down"


class GDict(Behaviour):
    """A replicated dictionary.

    Args of `init`:
        journal: Where to write what happens.
        pause: How many seconds `elected` takes.
    """

    def init(self, journal: Journal, pause: float = 0) -> None:
        self.journal = journal
        self.pause = pause
        self.data: dict[Any, Any] = {}
        self.held: list[Caller] = []

    def elected(self, election: ElectionState, newcomer: Ref | None) -> Any:
        self.journal.add("elected" if newcomer is None else "led another", election.term)
        asked = None if newcomer is None else [newcomer]
        answers = election.ask_candidates(("content",), of=asked)
        self.journal.errors += [repr(error) for _, error in answers.errors]
        for _, content in answers.replies:
            self.data = {**content, **self.data}
        if self.pause:
            gevent.sleep(self.pause)
        return ("content", self.data)

    def surrendered(self, message: Any, election: ElectionState) -> None:
        self.journal.add("surrendered", election.term)
        self.data = dict(message[1])

    def stepped_down(self, election: ElectionState) -> None:
        self.journal.add("stepped_down", election.term)

    def handle_down(self, member: Ref, election: ElectionState) -> None:
        self.journal.downs += 1

    def handle_leader_call(self, request: Any, caller: Caller, election: ElectionState) -> Any:
        what, *arguments = request
        self.journal.executed[str(arguments[0]) if arguments else what] += 1
        if what == "store":
            key, value = arguments
            self.data[key] = value
            election.broadcast(("store", key, value))
            return "ok"
        if what == "fail":
            raise ValueError("as it was asked to")
        assert what == "hold"
        self.held.append(caller)
        return NO_REPLY

    def handle_leader_cast(self, message: Any, election: ElectionState) -> None:
        if message[0] == "release":
            while self.held:
                locks_leader.leader_reply(self.held.pop(), message[1])
        elif message[0] == "store":
            self.handle_leader_call(message, Caller(lambda _: None), election)

    def from_leader(self, message: Any, election: ElectionState) -> None:
        if message[0] == "content":
            self.data = dict(message[1])
        else:
            _, key, value = message
            self.data[key] = value

    def handle_call(self, request: Any, caller: Caller, election: ElectionState) -> Any:
        if request[0] == "fail":
            raise ValueError("as it was asked to")
        return dict(self.data)

    def handle_cast(self, message: Any, election: ElectionState) -> None:
        raise Crash(str(message))

    def terminate(self, reason: object, election: ElectionState) -> None:
        self.journal.reason = reason
