"""One candidate of an election in a process of its own, for `benchmarks.leader`.

    python -m benchmarks.candidate NAME COOKIE [PEER ...] [--servers SERVER ...] [--client]

It starts a node that is connected with its peers and with lock servers, on which the election is held if there are
some. With `--client` it is a client node. It prints the address for other processes
(`NAME:PORT`), and does what each line of its input says; each answer is a line of JSON.

What happens in the election is noted with the time (`time.monotonic_ns`, one clock for all processes
of a machine) and printed on request: printing it at once would take time from the election.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pykka

import locks
import locks_leader
from locks.net.link import Link
from locks.node.node import Node
from locks.node.server import Server

__all__ = ["Dictionary", "Note", "Notes"]

now = time.monotonic_ns


class Note(NamedTuple):
    """What happened.

    Attributes:
        what: `"begun"`, `"ends"`, `"elected"`, `"surrendered"`, `"noticed"` (the leader is gone).
        at: When, in nanoseconds.
        term: In which term.
        who: Which candidate.
    """

    what: str
    at: int
    term: int = 0
    who: str = ""


class Notes(list[Note]):
    """What happened, in the order of time."""

    def add(self, what: str, term: int = 0, who: str = "") -> None:
        """Something happens now."""
        self.append(Note(what, now(), term, who))


class Dictionary(locks_leader.Behaviour):
    """The behaviour that is measured: a dictionary that the leader brings together and hands over.

    As in the original's test, the leader asks its followers-to-be for what they have.
    """

    def init(self, notes: Notes, who: str) -> None:
        """Take part."""
        self.values: dict[str, int] = {who: len(who)}
        self.notes = notes
        self.who = who

    def elected(
        self, election: locks_leader.ElectionState, newcomer: pykka.ActorRef[Any] | None
    ) -> Any:
        """Bring the dictionaries together."""
        of = None if newcomer is None else [newcomer]
        for _, values in election.ask_candidates("values", of=of).replies:
            self.values |= values
        if newcomer is None:
            self.notes.add("elected", election.term, self.who)
        return self.values

    def surrendered(self, message: Any, election: locks_leader.ElectionState) -> None:
        """Have what the leader has."""
        self.values = dict(message)
        self.notes.add("surrendered", election.term, self.who)

    def from_leader(self, message: Any, election: locks_leader.ElectionState) -> None:
        """There is a newcomer."""
        self.values = dict(message)

    def handle_down(
        self, member: pykka.ActorRef[Any], election: locks_leader.ElectionState
    ) -> None:
        """Another one is gone."""
        self.notes.add("noticed", election.term, self.who)

    def handle_call(
        self, request: Any, caller: locks_leader.Caller, election: locks_leader.ElectionState
    ) -> Any:
        """The new leader asks."""
        return self.values

    def handle_cast(self, message: Any, election: locks_leader.ElectionState) -> None:
        """Die."""
        self.notes.add("ends", election.term, self.who)
        locks.actors.kill(election.me)


class Counts:
    """Counts what a node sends.

    Args:
        node: The node.
    """

    def __init__(self, node: Node) -> None:
        self.found: Counter[str] = Counter()
        node.trace = self._trace

    def _trace(self, sender: Any, receiver: Any, message: Any) -> None:
        if isinstance(receiver, (Server, str)):  # a server of another node is only a name here
            self.found["requests"] += 1

    def count_frames(self) -> None:
        """Count what goes to other nodes, too."""
        found, send = self.found, Link.send

        def counting(link: Link, body: bytes) -> None:
            found["frames"] += 1
            found["bytes"] += len(body) + 4
            send(link, body)

        Link.send = counting  # type: ignore[method-assign, assignment]


class Candidate:
    """The process: its node, and one candidate at a time."""

    def __init__(
        self, name: str, cookie: str, peers: Sequence[str], servers: Sequence[str], client: bool
    ) -> None:
        self.notes = Notes()
        self.node = locks.start(name, cookie=cookie, peers=[*peers, *servers], mesh=not client)
        self._policy: dict[str, Any] = {}
        if servers:
            nodes = [server.split(":")[0] for server in servers]
            self._policy = {"policy": "majority", "nodes": nodes}
        self.node.monitor_nodes(self._connection)
        self.counts = Counts(self.node)
        self.counts.count_frames()
        self._instance: pykka.ActorRef[Any] | None = None
        self._worked = 0.0

    def _connection(self, news: Any) -> None:
        if isinstance(news, locks.node.NodeDown):
            self.notes.add("noticed", who=self.node.name)

    def start(self, resource: str) -> None:
        """Stand for election."""
        self.notes.add("begun")
        self._instance = locks_leader.start(
            Dictionary, self.notes, self.node.name, resource=resource, **self._policy
        )

    def stop(self) -> None:
        """End the candidate in good order."""
        assert self._instance is not None
        self.notes.add("ends")
        self._instance.stop()

    def kill(self) -> None:
        """Let the candidate die, wherever it is."""
        assert self._instance is not None
        locks_leader.cast(self._instance, "die")

    def forget(self) -> None:
        """Forget all notes and counts before a measurement."""
        self.notes.clear()
        self.counts.found.clear()
        gc.collect()
        gc.disable()
        self._worked = time.process_time()

    def tell(self) -> Any:
        """What has happened, what was sent, and how many seconds the processor has worked."""
        worked = time.process_time() - self._worked
        return [*self.notes], {**self.counts.found, "work": worked}

    def alive(self) -> int:
        """How many nodes there are."""
        return len(self.node.alive)

    def connections(self) -> list[int]:
        """How many connections it has, and how many links over a server."""
        assert self.node.cluster is not None
        network = self.node.cluster.network
        return [len(network.links), len(network.relayed)]


def main() -> None:
    """Do what each line says, until there are no more."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("cookie")
    parser.add_argument("peers", nargs="*")
    parser.add_argument("--servers", nargs="*", default=[])
    parser.add_argument("--client", action="store_true")
    given = parser.parse_args()
    candidate = Candidate(given.name, given.cookie, given.peers, given.servers, given.client)
    address = candidate.node.address
    print(f"{given.name}:{0 if address is None else address[1]}", flush=True)
    for line in sys.stdin:
        do, *arguments = json.loads(line)
        print(json.dumps(getattr(candidate, do)(*arguments)), flush=True)
    locks.stop()


if __name__ == "__main__":
    main()
