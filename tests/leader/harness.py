"""Elections, and workers that share out groups, over nodes that are processes.

A `Cluster` has a pool of processes, started when they are first needed and used by one test after the
other. `Cluster.meet` gives a test so many of them, connected with each other and with nobody else.
They are parted by disconnecting them on both sides, and stay apart until they are connected again.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.harness import Answer, Worker, World
from tests.cluster.ledger import Ledger
from tests.helpers import LIMIT, eventually

GROUPS = 12
Info = dict[str, Any]


class Member(Worker):
    """A process with a node, instances of elections, and workers."""

    program = "tests.leader.worker"


def error_of(answer: Answer, kind: str) -> str:
    """The text of the error that was raised, which must be of this kind."""
    message = answer.message()
    assert "error" in message, f"no {kind}, but {message}"
    found, text, _ = message["error"]
    assert found == kind, f"no {kind}, but {found}: {text}"
    return str(text)


class Cluster:
    """Processes that can be connected and parted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._members: list[Member] = []
        self._resources = itertools.count(1)
        self._pairs: set[frozenset[str]] = set()  # those that are connected

    # --- Nodes

    def meet(self, number: int) -> list[Member]:
        """So many members, each connected with all others, and no instance on any node."""
        for member in self._members:
            if member.process.poll() is not None:
                self.restart(member)
        while len(self._members) < number:
            self._members.append(self._start(f"n{len(self._members)}@127.0.0.1"))
        for member in self._members:
            member.address  # noqa: B018  (it is there)
        everybody(self._members, "end_all")
        self.part(self._members[:number], *([member] for member in self._members[number:]))
        self.join(self._members[:number])
        return self._members[:number]

    def _start(self, name: str) -> Member:
        member = Member(name, peers=[], mesh=False, net_ticktime=2)
        self.world.processes.append(member)
        return member

    def restart(self, member: Member) -> Member:
        """Start a process anew, in the place of one that has ended; it is connected with nobody."""
        member.process.wait()
        new = self._start(member.name)
        self._members[self._members.index(member)] = new
        self._pairs = {pair for pair in self._pairs if member.name not in pair}
        return new

    def part(self, *parts: Sequence[Member]) -> None:
        """Cut all links between these parts."""
        links: dict[Member, list[str]] = {}
        for one, other in itertools.combinations(parts, 2):
            for here, there in itertools.product(one, other):
                if frozenset((here.name, there.name)) in self._pairs:
                    links.setdefault(here, []).append(there.name)
                    links.setdefault(there, []).append(here.name)
                    self._pairs.remove(frozenset((here.name, there.name)))
        _all([member.ask("part", client="net", names=names) for member, names in links.items()])
        self._until_connected(links)

    def join(self, *parts: Iterable[Member]) -> None:
        """Connect everybody with everybody, and wait for it."""
        members = list(itertools.chain(*parts))
        links: dict[Member, list[str]] = {}
        for here, there in itertools.combinations(members, 2):
            if frozenset((here.name, there.name)) not in self._pairs:
                self._pairs.add(frozenset((here.name, there.name)))
                links.setdefault(here, []).append(there.peer)
                links.setdefault(there, []).append(here.peer)
        _all([member.ask("meet", client="net", peers=peers) for member, peers in links.items()])
        _all(
            [member.ask("nothing", client="net") for member in members]
        )  # what `flap` began is done
        self._until_connected(members)

    def flap(self, one: Sequence[Member], other: Sequence[Member]) -> None:
        """Cut the links between two parts, and connect them again at once; `join` waits for it."""
        for here, there in ((one, other), (other, one)):
            for member in here:
                member.ask("part", client="net", names=[each.name for each in there])
                member.ask("meet", client="net", peers=[each.peer for each in there])

    def forget(self, member: Member) -> None:
        """Its process has ended."""
        self._pairs = {pair for pair in self._pairs if member.name not in pair}

    def _until_connected(self, members: Iterable[Member]) -> None:
        for member in members:
            wanted = sorted(
                other.name
                for other in self._members
                if other is member or frozenset((member.name, other.name)) in self._pairs
            )
            eventually(lambda m=member, w=wanted: m.do("alive", client="looks") == w)  # type: ignore[misc]

    # --- Elections

    def resource(self) -> str:
        """What an election is about that there was not before."""
        return f"dict {next(self._resources)}"

    def stand(self, members: Iterable[Member], resource: str | None = None, **options: Any) -> str:
        """Start an instance on each node, at the same time."""
        resource = resource or self.resource()
        _all([member.ask("stand", resource=resource, **options) for member in members])
        return resource

    def hire(self, members: Sequence[Member], folder: Path, **options: Any) -> None:
        """Two workers on each, which have shared out all groups when this returns."""
        _all([member.ask("hire", path=str(folder), **options) for member in members])
        even(members, 2 * len(members))


def everybody(members: Iterable[Member], do: str, **arguments: Any) -> list[Any]:
    """Let all do the same at the same time."""
    return _all([member.ask(do, client="looks", **arguments) for member in members])


def _all(answers: Iterable[Answer]) -> list[Any]:
    return [answer.get() for answer in list(answers)]


def agreed(
    members: Sequence[Member], limit: float = LIMIT, *, workers: Sequence[Member] = ()
) -> Info:
    """Wait until one member leads all; returns what the leader knows.

    Args:
        members: Candidates, one on each node, that are connected with each other.
        limit: Seconds to wait at most.
        workers: Those of them that do not stand.
    """
    seen: list[list[Info]] = []

    def agree() -> Info | None:
        infos = everybody(members, "info")
        seen[:] = [infos]
        return leader_of(members, infos)

    try:
        found = eventually(agree, limit)
    except AssertionError:
        raise AssertionError(f"no agreement within {limit} s: {show(members, seen[0])}") from None
    assert found is not None
    assert found["leader_node"] not in [worker.name for worker in workers]
    return found


def leader_of(members: Sequence[Member], infos: Sequence[Info]) -> Info | None:
    """What the leader knows, if exactly one leads, and all others follow it in its term."""
    leaders = [info for info in infos if info["role"] == "leader"]
    said = {(info["leader_node"], info["term"]) for info in infos}
    followers = [info for info in infos if info["role"] == "following"]
    if len(leaders) != 1 or len(said) != 1 or len(followers) != len(members) - 1:
        return None
    names = [member.name for member, info in zip(members, infos, strict=True) if info is leaders[0]]
    return leaders[0] if leaders[0]["leader_node"] == names[0] else None


def nobody_leads(members: Sequence[Member], limit: float = LIMIT) -> None:
    """Wait until none of these members leads, or knows of a leader."""
    eventually(
        lambda: all(
            info["role"] == "candidate" and info["leader_node"] is None
            for info in everybody(members, "info")
        ),
        limit,
    )


def the_leader(members: Sequence[Member], **options: Any) -> tuple[Member, list[Member]]:
    """The leader, on which all agree, and the others."""
    name = agreed(members, **options)["leader_node"]
    (leader,) = [member for member in members if member.name == name]
    return leader, [member for member in members if member is not leader]


def have(members: Sequence[Member], limit: float = LIMIT, **content: Any) -> None:
    """Wait until the dictionaries of all have exactly this content."""
    try:
        eventually(lambda: all(c == content for c in everybody(members, "content")), limit)
    except AssertionError:
        found = everybody(members, "content")
        raise AssertionError(f"not {content}, but {show(members, found)}") from None


def store(member: Member, key: str, value: Any = 1, timeout: float = 30) -> None:
    """Write through a member."""
    assert member.do("leader_call", request=["store", key, value], timeout=timeout) == "ok"


def show(members: Sequence[Member], values: Sequence[Any]) -> str:
    """What each one says."""
    each = {member.name: value for member, value in zip(members, values, strict=True)}
    return json.dumps(each, indent=1)


# --- Workers that share out groups ------------------------------------------------------------


def even(
    members: Iterable[Member], workers: int | None = None, limit: float = LIMIT
) -> dict[str, dict[str, int]]:
    """Wait until the workers of these, so many, own all groups evenly; returns who owns what."""
    members = list(members)
    found: dict[str, dict[str, int]] = {}

    def shared() -> bool:
        found.clear()
        for each in everybody(members, "owned"):
            found.update(each)
        groups = sorted(int(group) for owned in found.values() for group in owned)
        counts = [len(owned) for owned in found.values()]
        return (
            groups == list(range(GROUPS))
            and max(counts) - min(counts) <= 1
            and workers in (None, len(found))
        )

    try:
        eventually(shared, limit)
    except AssertionError:
        raise AssertionError(f"not even within {limit} s: {found}") from None
    return found


def leading(members: Sequence[Member]) -> tuple[Member, list[Member]]:
    """The process in which the leader is, and the others."""

    def find() -> Member | None:
        leads = everybody(members, "leads")
        return members[leads.index(True)] if leads.count(True) == 1 else None

    leader = eventually(find)
    assert leader is not None
    return leader, [member for member in members if member is not leader]


def written(members: Sequence[Member]) -> dict[str, Any]:
    """What all workers of these processes have done."""
    return {name: done for each in everybody(members, "done") for name, done in each.items()}


def counted(done: dict[str, Any]) -> dict[str, int]:
    """How writes went, all in all."""
    found: dict[str, int] = {}
    for _, counts in done.values():
        for what, number in counts.items():
            found[what] = found.get(what, 0) + number
    return found


def overlaps(done: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Pairs of workers that had a task of the same group at hand at the same time."""
    tasks = sorted(
        (begun, ended, group, name)
        for name, (own, _) in done.items()
        for begun, ended, group in own
    )
    found = []
    last: dict[int, tuple[float, str]] = {}
    for begun, ended, group, name in tasks:
        until, other = last.get(group, (0.0, name))
        if begun < until and other != name:
            found.append((other, name, group))
        if ended >= until:
            last[group] = (ended, name)
    return found


def check_files(folder: Path) -> int:
    """No write was lost, and tokens rise; returns how many writes there were."""
    return sum(Ledger(folder / str(group)).check() for group in range(GROUPS))
