"""A program with a node and instances of elections, for the tests (see `tests.cluster.worker`)."""

from __future__ import annotations

import fcntl
import logging
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import locks
import locks_leader
from locks.node.observing.elections import LOCKS_LEADER
from locks.otp.links.link import Link
from tests.cluster.worker import Client, main
from tests.leader.gdict import GDict, Journal

_ups: list[float] = []  # when nodes were connected
_elections: list[locks_leader.Election] = []
_led: list[tuple[float, int]] = []
_frames = [0]  # how many were sent to other nodes, but for those that only say "I am there"


class Instance(NamedTuple):
    """An instance of an election, and what has happened to it."""

    ref: Any
    journal: Journal


_instances: dict[str, Instance] = {}

__all__ = ["Candidate", "Fence"]


def _count_frames() -> None:
    send = Link.send

    def counting(link: Link, body: bytes) -> None:
        _frames[0] += 1
        send(link, body)

    Link.send = counting  # type: ignore[method-assign, assignment]


class Candidate(Client):
    """A client that can stand for election, and use it. `key` says which instance is meant."""

    def watch(self) -> None:
        """Note when nodes are connected."""
        self._node().monitor_nodes(self._seen)

    @staticmethod
    def _seen(news: Any) -> None:
        if isinstance(news, locks.node.NodeUp):
            _ups.append(time.monotonic())

    def meet(self, peers: list[str]) -> None:
        """Connect to these nodes, and stay connected."""
        for peer in peers:
            self._node().connect(peer, timeout=0)

    def part(self, names: list[str]) -> None:
        """Disconnect from these nodes, and stay apart."""
        for name in names:
            self._node().disconnect(name)

    def nothing(self) -> None:
        """Do nothing, after all else that this client was told to do."""

    def stand(
        self, key: str = "a", quorum: int | None = None, pause: float = 0, **options: Any
    ) -> None:
        journal = Journal()
        if quorum is not None:
            options["policy"] = locks_leader.quorum(quorum)
        ref = locks_leader.start(GDict, journal, pause, **options)
        _instances[key] = Instance(ref, journal)

    def run_for(self, name: str, nodes: list[str] | None = None) -> None:
        """Take part in an election with `Election`, by a majority of nodes if there are some; when it leads, and no more, is noted."""

        def elected(leadership: locks_leader.Leadership) -> None:
            _led.append((time.monotonic(), leadership.term))

        def lost(leadership: locks_leader.Leadership) -> None:
            _led.append((time.monotonic(), 0))

        _elections.append(
            locks_leader.Election(
                name, on_elected=elected, on_lost=lost, policy=nodes and "majority", nodes=nodes
            )
        )
        _elections[-1].start()

    def standing(self, name: str, nodes: list[str]) -> int:
        """How many stand in an election, as that lock server sees it that all of them ask first."""
        lock_id = (LOCKS_LEADER, name)
        return max(len(locks.queue(lock_id, node=node).requests) for node in nodes)

    def led(self) -> list[tuple[float, int]]:
        """When it has led: the time and the term; 0 when it led no more."""
        return _led

    def info(self, key: str = "a") -> dict[str, Any]:
        info = locks_leader.info(_instances[key].ref, timeout=60)
        return {
            "role": info.role,
            "leader_node": info.leader_node,
            "term": info.term,
            "candidates": len(info.candidates),
            "workers": len(info.workers),
        }

    def content(self, key: str = "a") -> dict[str, Any]:
        found: dict[str, Any] = locks_leader.call(_instances[key].ref, ("content",))
        return found

    def leader_call(self, request: list[Any], key: str = "a", timeout: float = 10) -> Any:
        return locks_leader.leader_call(_instances[key].ref, tuple(request), timeout=timeout)

    def leader_cast(self, message: list[Any], key: str = "a") -> None:
        locks_leader.leader_cast(_instances[key].ref, tuple(message))

    def journal(self, key: str = "a") -> dict[str, Any]:
        journal = _instances[key].journal
        journal.check()
        return {
            "events": journal.events,
            "executed": journal.executed,
            "downs": journal.downs,
            "errors": journal.errors,
        }

    def crash(self, key: str = "a") -> None:
        """Let a callback raise an exception."""
        logging.getLogger("pykka").setLevel(logging.CRITICAL)  # which logs it, as it should
        locks_leader.cast(_instances[key].ref, "crash")

    def kill(self, key: str = "a") -> None:
        locks.actors.kill(_instances[key].ref)

    def end_instance(self, key: str = "a") -> None:
        _instances.pop(key).ref.stop()

    def end_all(self) -> None:
        """End all instances, as well as they let themselves."""
        for key in list(_instances):
            ref = _instances.pop(key).ref
            if ref.is_alive():
                ref.stop()

    def up(self) -> float:
        """When a node was connected last."""
        return max(_ups, default=0.0)

    def frames(self) -> int:
        return _frames[0]

    def stop_node(self) -> None:
        locks.stop()

    def write(self, path: str, key: str = "a") -> None:
        """While the instance leads, write its term into a file, which fences; from now on."""
        threading.Thread(target=_write, args=(path, key, self._node().name), daemon=True).start()


class Fence:
    """A file that takes writes in the order of their terms only.

    Each line is a term and a node. A write with a smaller term than that of the last line is refused;
    so is one of another node with the same term, which there must not be.
    """

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a+")  # noqa: SIM115

    def write(self, term: int, node: str) -> str:
        """Write, if it is allowed; returns `written`, `late` or `double`."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            self._file.seek(0)
            lines = self._file.read().splitlines()
            last, by = lines[-1].split() if lines else ("0", node)
            if term < int(last):
                return "late"
            if term == int(last) and node != by:
                return "double"
            self._file.write(f"{term} {node}\n")
            self._file.flush()
            return "written"
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def _write(path: str, key: str, name: str) -> None:
    fence = Fence(path)
    refused = Path(path + ".refused").open("a", buffering=1)  # noqa: SIM115
    instance = _instances[key]
    while key in _instances:
        events = instance.journal.events
        if instance.journal.leads():
            term = events[-1][2]
            outcome = fence.write(term, name)
            if outcome != "written":
                refused.write(f"{outcome} {term} {name}\n")
        time.sleep(0.002)


if __name__ == "__main__":
    _count_frames()
    main(Candidate)
