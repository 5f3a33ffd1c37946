"""The demo: one election with state hand-over, told by the candidates themselves.

Three candidates share a guest list. Whoever leads writes it and tells the others. Then the leader
is killed, and another one goes on with the list.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pykka

import locks
from locks.cli.alone import alone
from locks.errors import OperatingError
from locks.runtime.clock import monotonic
from locks_leader.api import call, info, leader_call, start
from locks_leader.behaviour import Behaviour, OnlyNew
from locks_leader.state import Caller, ElectionState

__all__ = ["GuestList", "add_command", "tell_story"]

LIMIT = 10.0  # seconds that a step may take; it takes milliseconds

Ref = pykka.ActorRef[Any]


class GuestList(Behaviour):
    """One candidate with its copy of the list.

    A copy's version is its leader's term, and how much that has written: the newest copy is the
    one with the largest.
    """

    def init(self, name: str, say: Callable[[str], object]) -> None:
        """Begin with an empty list.

        Args:
            name: The candidate's name.
            say: Takes what it has to say.
        """
        self.name = name
        self.say = say
        self.guests: list[str] = []
        self.version = (0, 0)

    def elected(self, election: ElectionState, newcomer: Ref | None) -> OnlyNew:
        """Take over the newest list there is, or hand it to a newcomer."""
        if newcomer is None:
            for _, (version, guests) in election.ask_candidates("copy").replies:
                if version > self.version:
                    self.version, self.guests = version, list(guests)
            self.version = (election.term, 0)
            self.say(f"{self.name} is elected. The list: {self._list()}.")
        return OnlyNew((self.name, self.version, list(self.guests)))

    def surrendered(self, message: Any, election: ElectionState) -> None:
        """Take over the leader's list."""
        leader, self.version, guests = message
        self.guests = list(guests)
        self.say(f"{self.name} follows {leader} and gets the list: {self._list()}.")

    def handle_leader_call(self, guest: str, caller: Caller, election: ElectionState) -> None:
        """Write a guest down, and tell the others."""
        self._write(guest)
        self.say(f"{self.name} leads, writes {guest} down and tells the others.")
        election.broadcast((self.name, guest))

    def from_leader(self, message: Any, election: ElectionState) -> None:
        """Write down what the leader has."""
        leader, guest = message
        self._write(guest)
        self.say(f"{self.name} gets it from {leader}. The list: {self._list()}.")

    def handle_call(self, request: str, caller: Caller, election: ElectionState) -> Any:
        """Show the copy."""
        return self.version, list(self.guests)

    def _write(self, guest: str) -> None:
        term, number = self.version
        self.version = (term, number + 1)
        self.guests.append(guest)

    def _list(self) -> str:
        return ", ".join(self.guests) or "nobody"


def tell_story() -> Iterator[str]:
    """Let three candidates elect a leader, kill it, and see the next one take over.

    The calling program must live in a gevent hub.

    Yields:
        The lines of the story; those that candidates have said are indented.

    Raises:
        OperatingError: It does not come about.
    """
    said: list[str] = []
    candidates: dict[str, Ref] = {}

    def hear(sentences: int) -> Iterator[str]:
        """Wait until so many sentences were said."""
        deadline = monotonic() + LIMIT
        while len(said) < sentences:
            if monotonic() > deadline:
                raise OperatingError(f"timed out after {LIMIT:g} s with {said}; this may be a bug")
            gevent.sleep(0.001)
        yield from (f"  {line}" for line in said)
        said.clear()

    def ask(name: str, guest: str) -> Iterator[str]:
        yield f"\nA client asks {name} to write {guest} down; {name} forwards it to the leader."
        leader_call(candidates[name], guest)
        yield from hear(len(candidates))

    with alone("election@localhost"):
        yield "One election, with its state passed on"
        yield "Three candidates share a guest list. One of them leads and writes; all have a copy."
        for name in ("Alice", "Bob", "Carol"):
            yield f"\n{name} stands for election."
            candidates[name] = start(GuestList, name, said.append, resource="guests")
            yield from hear(1)
        leader = info(candidates["Carol"]).leader
        (first,) = (name for name, ref in candidates.items() if ref == leader)
        other, another = (name for name in candidates if name != first)
        yield from ask(another, "Dave")
        yield f"\n{first} is killed while it leads."
        locks.actors.kill(candidates.pop(first))
        yield from hear(2)
        follower = next(name for name, ref in candidates.items() if info(ref).role != "leader")
        yield from ask(follower, "Erin")
        lists = [call(ref, "copy")[1] for ref in candidates.values()]
        if lists != [["Dave", "Erin"]] * 2:
            raise OperatingError(f"{other} and {another} have {lists}; this is a bug")
        yield f"\nNothing is lost: {other} and {another} also have the names that {first} wrote down."


def add_command(commands: Any) -> None:
    """Add `demo` to the command line."""
    parser = commands.add_parser(
        "demo", help="three candidates, and a killed leader", description=__doc__
    )
    parser.set_defaults(run=_run_command)


def _run_command(options: argparse.Namespace) -> int:
    slowly = sys.stdout.isatty()
    for line in tell_story():
        print(line, flush=True)
        if slowly:
            gevent.sleep(0.4)
    return 0
