"""A pool of processes that share out tasks: the leader assigns them, and any process may be killed.

Each process is a candidate, has a copy of the pool's state (the tasks, the process that each is
assigned to, the results), and does one task at a time. The leader makes all changes, and tells the
others. Its successor takes the newest copy that is left, takes back the tasks of processes that are
gone, and goes on.

What "once" means: each task has exactly one result. It is *carried out* at least once: a task that
a killed process had in hand is done again by another one, because it is unknown how far it had come.
Each assignment has a ticket, larger than all before it: the leader's term and a number. A report counts
only with the ticket of the present assignment. A process that was cut off, and whose task was given to
another one, reports too late. A report that is made twice, because the leader died before it answered,
counts once.

A leader needs a majority of the processes: two parts of a network that was cut in two never hand out
tasks at the same time.

Run as a program it starts five processes, and kills the leader's, twice. The program itself takes
part as a follower: it hands in the tasks and has a copy of the results, but never leads.
"""

from __future__ import annotations

import argparse
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import locks
import locks_leader
from locks_leader import Caller, ElectionState, LeaderDied, OnlyNew

NAMES = [f"{letter}@127.0.0.1" for letter in "abcde"]
TASKS = {number: number**2 for number in range(1, 61)}

Ticket = tuple[int, int]  # the leader's term, and the number of the change within it
Todo = queue.SimpleQueue[tuple[int, Any, Ticket]]


class Pool(locks_leader.Behaviour):
    """One process's copy of the state of the pool.

    Args:
        name: The process's node.
        todo: Where the tasks of this process are put, with their tickets.

    Attributes:
        tasks: What is to be done, by task number.
        assigned: Tasks that a process has in hand.
        results: For each task, the process that has done it, and the result.
        version: The last change.
        taken: The last ticket of this process.
    """

    def init(self, name: str, todo: Todo) -> None:
        self.name = name
        self.todo = todo
        self.tasks: dict[int, Any] = {}
        self.assigned: dict[int, tuple[str, Ticket]] = {}
        self.results: dict[int, tuple[str, Any]] = {}
        self.version: Ticket = (0, 0)
        self.taken: Ticket = (0, 0)

    # --- The state ------------------------------------------------------------------------------

    def change(self, version: Ticket, what: str, *args: Any) -> None:
        """Make a change: the leader first, then all others, in the same order."""
        self.version = version
        if what == "add":
            (tasks,) = args
            self.tasks.update(tasks)
        elif what == "assign":
            task, name = args
            self.assigned[task] = (name, version)
        elif what == "take back":
            (task,) = args
            del self.assigned[task]
        elif what == "done":
            task, name, result = args
            del self.assigned[task]
            self.results[task] = (name, result)
        self.take()

    def take(self) -> None:
        """Hand the worker its task, unless it has it already."""
        for task, (name, ticket) in self.assigned.items():
            if name == self.name and ticket > self.taken:
                self.taken = ticket
                self.todo.put((task, self.tasks[task], ticket))

    def copy(self) -> tuple[Any, ...]:
        return (self.version, dict(self.tasks), dict(self.assigned), dict(self.results))

    def replace(self, copy: tuple[Any, ...]) -> None:
        self.version, tasks, assigned, results = copy
        self.tasks, self.assigned, self.results = dict(tasks), dict(assigned), dict(results)
        self.take()

    # --- The leader -----------------------------------------------------------------------------

    def elected(self, election: ElectionState, newcomer: Any) -> Any:
        if newcomer is None:
            copies = [copy for _, copy in election.ask_candidates("copy").replies]
            newest = max(copies, key=lambda copy: copy[0], default=self.copy())
            if newest[0] > self.version:
                self.replace(newest)
            self.version = (election.term, 0)
        self.assign(election)
        return OnlyNew(self.copy())

    def assign(self, election: ElectionState) -> None:
        """Take back the tasks of processes that are gone, and give one to each that has none."""
        others = [each for each in election.candidates if isinstance(each, locks.node.RemoteRef)]
        there = {self.name, *(each.node for each in others)}
        for task, (name, _) in list(self.assigned.items()):
            if name not in there:
                self.lead(election, "take back", task)
        led = {*election.alive, *election.new_candidates}
        busy = {name for name, _ in self.assigned.values()}
        ready = [self.name, *(each.node for each in others if each in led)]
        idle = [name for name in ready if name not in busy]
        waiting = [t for t in self.tasks if t not in self.assigned and t not in self.results]
        for name, task in zip(idle, waiting, strict=False):
            self.lead(election, "assign", task, name)

    def lead(self, election: ElectionState, what: str, *args: Any) -> None:
        """Make a change, and tell the others."""
        version = (self.version[0], self.version[1] + 1)
        self.change(version, what, *args)
        election.broadcast((version, what, *args))

    def handle_down(self, member: Any, election: ElectionState) -> None:
        if election.role == "leader":
            self.assign(election)

    def handle_leader_call(self, request: Any, caller: Caller, election: ElectionState) -> str:
        what, *args = request
        if what == "add":
            (tasks,) = args
            self.lead(election, "add", {t: v for t, v in tasks.items() if t not in self.tasks})
            verdict = "added"
        else:
            verdict = self.report(election, *args)
        self.assign(election)
        return verdict

    def report(
        self, election: ElectionState, task: int, name: str, ticket: Ticket, result: Any
    ) -> str:
        """A process reports a result."""
        if self.assigned.get(task) == (name, ticket):
            self.lead(election, "done", task, name, result)
            return "recorded"
        return "known" if self.results.get(task) == (name, result) else "too late"

    # --- The others -----------------------------------------------------------------------------

    def surrendered(self, message: Any, election: ElectionState) -> None:
        self.replace(message)

    def from_leader(self, message: Any, election: ElectionState) -> None:
        self.change(*message)

    def handle_call(self, request: Any, caller: Caller, election: ElectionState) -> Any:
        return self.copy()


# --- A process of the pool ------------------------------------------------------------------------


def take_part(name: str, todo: Todo, role: Literal["candidate", "worker"]) -> Any:
    return locks_leader.start(
        Pool, name, todo, resource="pool", name="pool", role=role, policy="majority", nodes=NAMES
    )


def work(pool: Any, name: str, todo: Todo) -> None:
    """Do one task after the other."""
    while True:
        task, number, ticket = todo.get()
        print(task, flush=True)
        time.sleep(0.02)  # real work, say
        result = number + 1
        reported = False
        while not reported and pool.is_alive():
            try:
                locks_leader.leader_call(pool, ("done", task, name, ticket, result), timeout=None)
                reported = True
            except LeaderDied:
                pass  # it may have counted or not: report it again, to the next leader


def serve(name: str, peer: str) -> None:
    locks.start(name, cookie=sys.stdin.readline().strip(), peers=[peer])
    todo: Todo = queue.SimpleQueue()
    pool = take_part(name, todo, "candidate")
    threading.Thread(target=work, args=(pool, name, todo), daemon=True).start()
    sys.stdin.read()  # until the other side closes it
    locks.stop()


# --- The program ----------------------------------------------------------------------------------


def start_process(name: str, peer: str, cookie: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, __file__, name, peer],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    print(cookie, file=process.stdin, flush=True)
    return process


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within 30 s: {what}")
        time.sleep(0.005)


def main() -> None:
    name, cookie = "client@127.0.0.1", secrets.token_hex()
    node = locks.start(name, cookie=cookie)
    assert node.address is not None
    peer = f"{name}:{node.address[1]}"
    processes = {each: start_process(each, peer, cookie) for each in NAMES}
    try:
        assert node.await_nodes(NAMES, timeout=30)
        pool = take_part(name, queue.SimpleQueue(), "worker")
        killed = use(node, pool, processes)
        carried_out: list[str] = []
        for process in processes.values():
            carried_out += process.communicate(timeout=10)[0].split()
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
        locks.stop()
    again = sorted(int(task) for task, times in Counter(carried_out).items() if times > 1)
    print(f"carried out again, as a killed process had them in hand: {again or 'none'}")
    assert len(again) <= len(killed)


def use(node: locks.node.Node, pool: Any, processes: dict[str, subprocess.Popen[str]]) -> list[str]:
    """Hand in the tasks, kill two leaders, wait for the results; return the names of the killed."""

    def results(copy: Any = pool) -> dict[int, tuple[str, int]]:
        found: dict[int, tuple[str, int]] = locks_leader.call(copy, "copy")[3]
        return found

    killed: list[str] = []

    def kill_leader(enough: int) -> None:
        wait_for(lambda: len(results()) >= enough, f"{enough} results")
        wait_for(lambda: locks_leader.info(pool).leader_node not in (None, *killed), "a leader")
        leader = locks_leader.info(pool).leader_node
        assert leader is not None
        processes[leader].kill()
        killed.append(leader)
        print(f"the leader was killed: {leader}")

    locks_leader.leader_call(pool, ("add", TASKS), timeout=30)
    print(f"{len(TASKS)} tasks were handed in to a pool of {len(processes)} processes")
    kill_leader(len(TASKS) // 3)
    kill_leader(len(TASKS) * 2 // 3)
    wait_for(lambda: len(results()) == len(TASKS), "all results")
    left = [node.remote("pool", name) for name in processes if name not in killed]
    wait_for(lambda: all(results(copy) == results() for copy in left), "the same everywhere")
    print(f"{len(results())} results, one of each task: {sorted(results()) == sorted(TASKS)}")
    print("all are right:", all(results()[t][1] == TASKS[t] + 1 for t in TASKS))
    for name, count in sorted(Counter(name for name, _ in results().values()).items()):
        print(f"  by {name}: {'some, before it was killed' if name in killed else count}")
    return killed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("process", nargs="*", help=argparse.SUPPRESS)  # one of those that it starts
    if process := parser.parse_args().process:
        serve(*process)
    else:
        main()
