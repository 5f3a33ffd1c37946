"""A dictionary that several processes share; after `gdict`, the example of the original.

Each process has a copy. It reads there, and asks the leader to write; the leader tells all others. A key
that was written through a process can be read there at once, and in the others soon. Functions can't be
sent to other nodes, so the change is named: `update("visits", "add", 1)`.

How copies are merged: each knows the leaders whose writes it has seen, and how many of each (a version
vector). If one of two copies has seen everything that the other has, it counts. If each has seen
something that the other has not, because the network was cut in two, the new leader adds the keys that
it does not have, and keeps its own value where both have one. A key that was erased in one part comes
back if the other has it.

Run as a program it starts three processes, kills the leader's, lets a new one join, and cuts the
network in two parts, which write on and meet again.
"""

from __future__ import annotations

import argparse
import json
import operator
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import locks
import locks_leader
from locks_leader import Caller, ElectionState, OnlyNew

Vector = dict[tuple[str, int], int]  # (a leader's node, its term) -> how many of its writes

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "multiply": operator.mul,
    "max": max,
    "min": min,
}
"""The functions that `update` can apply to a value and arguments; the same in all processes."""


# --- Writes: each takes a dictionary and changes it, or raises an exception and leaves it. --------


def store(content: dict[Any, Any], key: Any, value: Any) -> None:
    content[key] = value


def erase(content: dict[Any, Any], key: Any) -> None:
    content.pop(key, None)


def append_list(content: dict[Any, Any], key: Any, values: list[Any]) -> None:
    content[key] = [*content.get(key, []), *values]


def update(content: dict[Any, Any], key: Any, name: str, *args: Any) -> None:
    content[key] = FUNCTIONS[name](content[key], *args)


def update_or_store(content: dict[Any, Any], key: Any, initial: Any, name: str, *args: Any) -> None:
    content[key] = FUNCTIONS[name](content[key], *args) if key in content else initial


def update_counter(content: dict[Any, Any], key: Any, increment: Any) -> None:
    content[key] = content.get(key, 0) + increment


WRITES: dict[str, Callable[..., None]] = {
    write.__name__: write
    for write in (store, erase, append_list, update, update_or_store, update_counter)
}


class Copy(locks_leader.Behaviour):
    """The copy of one process."""

    def init(self) -> None:
        self.content: dict[Any, Any] = {}
        self.seen: Vector = {}
        self.leader = ("", 0)

    def elected(self, election: ElectionState, newcomer: Any) -> Any:
        before = dict(self.seen)
        if newcomer is None:
            asked = election.ask_candidates(("copy",))
        else:
            asked = election.ask_candidates(("copy",), of=[newcomer])
        for _, (content, seen) in asked.replies:
            self.merge(content, seen)
        self.leader = (election.leader_node or "", election.term)
        copy = ("copy", dict(self.content), dict(self.seen), self.leader)
        return OnlyNew(copy) if self.seen == before else copy

    def merge(self, content: dict[Any, Any], seen: Vector) -> None:
        if all(self.seen.get(leader, 0) >= count for leader, count in seen.items()):
            return
        if all(seen.get(leader, 0) >= count for leader, count in self.seen.items()):
            self.content = content
        else:
            self.content = {**content, **self.content}
        self.seen = {
            leader: max(self.seen.get(leader, 0), seen.get(leader, 0))
            for leader in {**self.seen, **seen}
        }

    def surrendered(self, message: Any, election: ElectionState) -> None:
        self.from_leader(message, election)

    def from_leader(self, message: Any, election: ElectionState) -> None:
        what, *details = message
        if what == "copy":
            content, seen, leader = details
            self.content, self.seen, self.leader = dict(content), dict(seen), leader
        else:
            self.write(*details)

    def handle_leader_call(self, request: Any, caller: Caller, election: ElectionState) -> None:
        self.write(*request)
        election.broadcast(("write", *request))

    def write(self, name: str, *args: Any) -> None:
        WRITES[name](self.content, *args)
        self.seen[self.leader] = self.seen.get(self.leader, 0) + 1

    def handle_call(self, request: Any, caller: Caller, election: ElectionState) -> Any:
        what, *args = request
        if what == "copy":
            return dict(self.content), dict(self.seen)
        if what == "find":
            return [self.content[key] for key in args if key in self.content]
        raise ValueError(f"a copy is asked for copy or find, not for {what!r}")


class GDict:
    """The dictionary, used through one of its copies: of this process, or of another one.

    A write waits for a leader. If the leader dies before it answers, `locks_leader.LeaderDied` is
    raised: it may have written or not.
    """

    def __init__(self, copy: Any = None) -> None:
        self.copy = locks_leader.start(Copy, resource="gdict") if copy is None else copy

    def store(self, key: Any, value: Any) -> None:
        self._write("store", key, value)

    def erase(self, key: Any) -> None:
        self._write("erase", key)

    def append(self, key: Any, value: Any) -> None:
        self._write("append_list", key, [value])

    def append_list(self, key: Any, values: Iterable[Any]) -> None:
        self._write("append_list", key, list(values))

    def update(self, key: Any, name: str, *args: Any) -> None:
        self._write("update", key, name, *args)

    def update_or_store(self, key: Any, initial: Any, name: str, *args: Any) -> None:
        self._write("update_or_store", key, initial, name, *args)

    def update_counter(self, key: Any, increment: float) -> None:
        self._write("update_counter", key, increment)

    def _write(self, *request: Any) -> None:
        locks_leader.leader_call(self.copy, request)

    def find(self, key: Any, default: Any = None) -> Any:
        found = locks_leader.call(self.copy, ("find", key))
        return found[0] if found else default

    def fetch(self, key: Any) -> Any:
        found = locks_leader.call(self.copy, ("find", key))
        if not found:
            raise KeyError(key)
        return found[0]

    def is_key(self, key: Any) -> bool:
        return bool(locks_leader.call(self.copy, ("find", key)))

    def to_dict(self) -> dict[Any, Any]:
        content: dict[Any, Any] = locks_leader.call(self.copy, ("copy",))[0]
        return content

    def to_list(self) -> list[tuple[Any, Any]]:
        return list(self.to_dict().items())

    def fetch_keys(self) -> list[Any]:
        return list(self.to_dict())

    # These functions run here, on the copy, and write nothing.

    def filter(self, function: Callable[[Any, Any], bool]) -> dict[Any, Any]:
        return {key: value for key, value in self.to_list() if function(key, value)}

    def map(self, function: Callable[[Any, Any], Any]) -> dict[Any, Any]:
        return {key: function(key, value) for key, value in self.to_list()}

    def fold(self, function: Callable[[Any, Any, Any], Any], first: Any) -> Any:
        for key, value in self.to_list():
            first = function(key, value, first)
        return first


# --- A process with a copy, which takes commands from its standard input. -------------------------


def serve(name: str, peers: list[str]) -> None:
    cookie = json.loads(sys.stdin.readline())
    node = locks.start(name, cookie=cookie, peers=peers)
    assert node.address is not None
    assert node.await_nodes([peer.rpartition(":")[0] for peer in peers], timeout=10)
    shared = GDict()
    commands: dict[str, Callable[..., Any]] = {
        "leader": lambda: locks_leader.info(shared.copy).leader_node,
        "connect": lambda peer: node.connect(peer, timeout=0),
        "disconnect": node.disconnect,
    }
    print(json.dumps(f"{name}:{node.address[1]}"), flush=True)
    for line in sys.stdin:  # until the other side closes it
        what, *args = json.loads(line)
        do = commands[what] if what in commands else getattr(shared, what)
        print(json.dumps(do(*args)), flush=True)
    locks.stop()


class Process:
    """Such a process, seen from the program that started it."""

    def __init__(self, name: str, cookie: str, others: Iterable[Process] = ()) -> None:
        self.name = name
        command = [sys.executable, __file__, name, *(other.peer for other in others)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.peer: str = self._tell(cookie)

    def _tell(self, line: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(line), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def do(self, what: str, *args: Any) -> Any:
        return self._tell([what, *args])

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def agree(processes: Iterable[Process]) -> str:
    """Wait until all processes of a part of the network follow the same one of them."""
    names = {process.name for process in processes}
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        leaders = {process.do("leader") for process in processes}
        if len(leaders) == 1 and leaders <= names:
            return str(leaders.pop())
        time.sleep(0.01)
    raise TimeoutError(f"{names} do not agree on a leader")


def show(processes: Iterable[Process]) -> None:
    for process in processes:
        print(f"  {process.name} has {json.dumps(process.do('to_dict'), sort_keys=True)}")


def main() -> None:
    cookie = secrets.token_hex()
    processes: dict[str, Process] = {}
    try:
        for letter in "abc":
            name = f"{letter}@127.0.0.1"
            processes[name] = Process(name, cookie, processes.values())
        tell(processes, cookie)
    finally:
        for process in processes.values():
            process.end()


def tell(processes: dict[str, Process], cookie: str) -> None:
    leader = agree(processes.values())
    a, b, c = processes.values()
    a.do("store", "greeting", "hello")
    b.do("append_list", "guests", ["ann", "bob"])
    c.do("append", "guests", "eve")
    c.do("update_counter", "visits", 3)
    c.do("update", "visits", "multiply", 2)
    print("Three processes; each has written something through its copy, and the last one reads:")
    show([c])

    processes.pop(leader).end()
    agree(processes.values())
    one = next(iter(processes.values()))
    one.do("update_counter", "visits", 1)
    print("The leader was killed, another one leads with all that there was; visits is one more:")
    show([one])

    name = "d@127.0.0.1"
    processes[name] = Process(name, cookie, processes.values())
    leader = agree(processes.values())
    print("A new process joins, and has it, too:")
    show([processes[name]])

    alone = processes[leader]
    rest = [process for process in processes.values() if process is not alone]
    for other in rest:
        alone.do("disconnect", other.name)
        other.do("disconnect", alone.name)
    for part, value in ([alone], "good day"), (rest, "good night"):
        agree(part)
        part[0].do("store", "greeting", value)
        part[0].do("append", f"written by {len(part)}", value)
    print("The network is cut in two; each part has a leader, and writes:")
    show([alone, rest[0]])

    for other in rest:  # both sides have to want it
        alone.do("connect", other.peer)
        other.do("connect", alone.peer)
    agree(processes.values())
    print("It is whole again; all have what both parts wrote, and one of the two greetings:")
    show(processes.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("process", nargs="*", help=argparse.SUPPRESS)  # one of those that it starts
    if process := parser.parse_args().process:
        serve(process[0], process[1:])
    else:
        main()
