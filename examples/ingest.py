"""Processes that ingest tasks from a table, each on an account, without a lock around any of them.

Five processes share out groups of accounts (`locks_leader.Ownership`). Each takes only tasks of
accounts that it owns, so no two ever work on the same account, and no process asks another one before a
task. They agree only when a process comes or goes: the program counts how often that was.

What "once" means: a task is *carried out* at least once, because a process may be killed in the middle
of it. It is *applied* exactly once: the transaction that changes the account also marks the task as
done, and carries the token of the account's group. The table refuses a token that is smaller than
one it has seen. So a process that was only paused, and whose accounts another one owns by now, can
do no harm when it goes on.

Run as a program it starts the processes, kills one, and pauses another one until its tasks are done.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import locks
import locks_leader
from locks.ownership import NotOwner

NAMES = [f"{letter}@127.0.0.1" for letter in "abcde"]
GROUPS = 20
ACCOUNTS = [f"account {number}" for number in range(50)]
TASKS = 1000
FIRST_TASKS = 800  # the others come when a process is paused: so none has finished before
PAUSE = 0.003  # seconds that a task takes

SCHEMA = """
CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER, token INTEGER);
CREATE TABLE tasks (number INTEGER PRIMARY KEY, account TEXT, team INTEGER, amount INTEGER,
                    done_by TEXT);
CREATE INDEX to_do ON tasks (team, number) WHERE done_by IS NULL;
"""


def ownership() -> locks_leader.Ownership:
    return locks_leader.Ownership("ingest", GROUPS, policy="majority", nodes=NAMES)


# --- The table ------------------------------------------------------------------------------------


def connect(path: str | Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")  # it need not survive a crash of the machine
    return connection


def fill(database: sqlite3.Connection) -> None:
    database.executescript(SCHEMA)
    for account in ACCOUNTS:
        database.execute("INSERT INTO accounts VALUES (?, 0, 0)", (account,))
    add_tasks(database, range(FIRST_TASKS))


def add_tasks(database: sqlite3.Connection, numbers: range) -> None:
    """Nine of ten tasks are on a few accounts; the table has the group of each."""
    mine = ownership()
    database.execute("BEGIN")
    for number in numbers:
        account = ACCOUNTS[number % (50 if number % 10 == 0 else 15)]
        row = (number, account, mine.group_for(account), number % 7 + 1)
        database.execute("INSERT INTO tasks VALUES (?, ?, ?, ?, NULL)", row)
    database.execute("COMMIT")


def to_do(database: sqlite3.Connection, group: int) -> list[tuple[int, str, int]]:
    """The next tasks of a group."""
    return database.execute(
        "SELECT number, account, amount FROM tasks WHERE team = ? AND done_by IS NULL"
        " ORDER BY number LIMIT 5",
        (group,),
    ).fetchall()


def count_done(database: sqlite3.Connection) -> int:
    (count,) = database.execute("SELECT count(*) FROM tasks WHERE done_by IS NOT NULL").fetchone()
    return int(count)


def apply(
    database: sqlite3.Connection, name: str, number: int, account: str, amount: int, token: int
) -> str:
    """Apply a task, unless a larger token was seen, or it is done already."""
    database.execute("BEGIN IMMEDIATE")
    fenced = database.execute(
        "UPDATE accounts SET token = ? WHERE name = ? AND token <= ?", (token, account, token)
    )
    marked = database.execute(
        "UPDATE tasks SET done_by = ? WHERE number = ? AND done_by IS NULL", (name, number)
    )
    if not fenced.rowcount or not marked.rowcount:
        database.execute("ROLLBACK")
        return "known" if fenced.rowcount else "refused"
    database.execute("UPDATE accounts SET balance = balance + ? WHERE name = ?", (amount, account))
    database.execute("COMMIT")
    return "applied"


# --- A process ------------------------------------------------------------------------------------


def serve(name: str, path: str, *peers: str) -> None:
    cookie = sys.stdin.readline().strip()
    node = locks.start(name, cookie=cookie, peers=peers, net_ticktime=1)
    assert node.address is not None
    print(f"{name}:{node.address[1]}", flush=True)
    mine = ownership()
    threading.Thread(target=stop_with_parent, args=(mine,), daemon=True).start()
    outcomes = work(name, connect(path), mine)
    print(json.dumps([outcomes, mine.statistics()._asdict()]), flush=True)
    locks.stop()


def stop_with_parent(mine: locks_leader.Ownership) -> None:
    sys.stdin.read()
    mine.stop()


def work(name: str, database: sqlite3.Connection, mine: locks_leader.Ownership) -> dict[str, int]:
    """Do tasks of the accounts that it owns, until all tasks are done."""
    outcomes: Counter[str] = Counter()
    with mine:
        while mine.joined and count_done(database) < TASKS:
            for group in mine.owned():
                for number, account, amount in to_do(database, group):
                    try:
                        with mine.hold(account) as token:
                            time.sleep(PAUSE)  # real work, say
                            outcomes[apply(database, name, number, account, amount, token)] += 1
                    except NotOwner:
                        break  # the group was handed over
            time.sleep(0.001)
    return dict(outcomes)


# --- The program ----------------------------------------------------------------------------------


def start_process(
    name: str, path: Path, peers: list[str], cookie: str
) -> tuple[subprocess.Popen[str], str]:
    """Start a process; return it, and its address."""
    process = subprocess.Popen(
        [sys.executable, __file__, name, str(path), *peers],
        env={**os.environ, "PYTHONPATH": str(Path(locks.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    print(cookie, file=process.stdin, flush=True)
    peer = process.stdout.readline().strip()
    assert peer, f"{name} did not start"
    return process, peer


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within 90 s: {what}")
        time.sleep(0.002)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tasks.db")
        database = connect(path)
        fill(database)
        print(f"{TASKS} tasks on {len(ACCOUNTS)} accounts, in {GROUPS} groups, for 5 processes")
        cookie, peers = secrets.token_hex(), list[str]()
        processes: dict[str, subprocess.Popen[str]] = {}
        try:
            for name in NAMES:
                processes[name], peer = start_process(name, path, peers, cookie)
                peers.append(peer)
            killed, paused = disturb(database, processes)
            reports = {
                name: json.loads(process.communicate(timeout=20)[0])
                for name, process in processes.items()
                if name != killed
            }
        finally:
            for process in processes.values():
                process.kill()
                process.wait()
        tell(database, reports, killed, paused)
        database.close()


def disturb(
    database: sqlite3.Connection, processes: dict[str, subprocess.Popen[str]]
) -> tuple[str, str]:
    """Kill a process, and pause another one until all tasks are done; return their names."""
    killed, paused = NAMES[1], NAMES[3]
    wait_for(lambda: count_done(database) >= TASKS // 5, "a fifth of the tasks")
    processes[killed].kill()
    print(f"{killed} was killed")
    wait_for(lambda: count_done(database) >= TASKS // 2, "half of the tasks")
    pause(database, processes[paused])
    print(f"{paused} was paused")
    add_tasks(database, range(FIRST_TASKS, TASKS))
    wait_for(lambda: count_done(database) == TASKS, "all tasks")
    processes[paused].send_signal(signal.SIGCONT)
    return killed, paused


def pause(database: sqlite3.Connection, process: subprocess.Popen[str]) -> None:
    """Stop a process, but not in the middle of a transaction: no other one could write."""
    database.execute("BEGIN IMMEDIATE")
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    database.execute("ROLLBACK")


def tell(database: sqlite3.Connection, reports: dict[str, Any], killed: str, paused: str) -> None:
    done = dict(
        database.execute("SELECT done_by, count(*) FROM tasks GROUP BY done_by ORDER BY done_by")
    )
    for name, count in done.items():
        note = {killed: ", before it was killed", paused: ", before it was paused"}.get(name, "")
        print(f"  {count} tasks were applied by {name}{note}")
    refused = {name: outcomes.get("refused", 0) for name, (outcomes, _) in reports.items()}
    print(f"writes of {paused} that were refused when it went on: {refused.pop(paused)}")
    assert not any(refused.values()), refused
    agreements = max(statistics["agreements"] for _, statistics in reports.values())
    print(f"agreements on who owns what: {agreements}, for {TASKS} tasks")
    wrong = database.execute(
        "SELECT name FROM accounts WHERE balance !="
        " (SELECT sum(amount) FROM tasks WHERE account = name AND done_by IS NOT NULL)"
    ).fetchall()
    print("each task was applied exactly once:", not wrong and count_done(database) == TASKS)
    assert not wrong, wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("process", nargs="*", help=argparse.SUPPRESS)  # one of those that it starts
    if process := parser.parse_args().process:
        serve(*process)
    else:
        main()
