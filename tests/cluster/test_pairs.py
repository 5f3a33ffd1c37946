"""What `tests/api/test_pairs.py` has within one program, over three servers, of which each is restarted in turn in the middle of it.

A file that is made only if it is not there judges who had the lock: it knows nothing of `locks`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.servers import LIMIT, NAMES, Servers, hear, locks, remember, running, said, tell
from tests.helpers import SEED, eventually

HEAD = """
import os, sys, threading, locks
FILE = sys.argv[1]

def alone():
    os.close(os.open(FILE, os.O_CREAT | os.O_EXCL))

def over():
    os.unlink(FILE)

def in_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]

def next_one():
    with locks.transaction(timeout=60, await_nodes=True) as tx:
        token = tx.write_lock(("it",))
        alone()
        over()
        return token

def ready():
    print("ready", flush=True)
    sys.stdin.readline()
"""
OWNER = """
owner = locks.Owner("both threads")
held = locks.Lock(("it",), timeout=60, owner=owner)

def begin():
    held.acquire()
    alone()

in_thread(begin)
ready()
token = in_thread(held.token)
assert not locks.Lock(("it",)).acquire(timeout=0.2)  # another client
over()
in_thread(held.release)
owner.end()
print(token)
"""
GENERATOR = """
def block():
    with locks.Lock(("it",), timeout=60) as held:
        alone()
        yield
        token = held.token()
        over()
        yield token

begun = block()
next(begun)
ready()
token = in_thread(lambda: next(begun))
in_thread(begun.close)
assert not locks.Lock(("it",)).owned()
print(token)
"""
FORK = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, of forks where there are threads
with locks.Lock(("it",), timeout=60) as held:
    alone()
    reader, writer = os.pipe()
    if not (child := os.fork()):
        try:
            os.write(writer, str(next_one()).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    ready()
    token = held.token()
    over()
os.close(writer)
childs = os.read(reader, 1000).decode()
os.waitpid(child, 0)
assert int(childs) > token, childs
print(token)
"""
NEXT = """
ready()
print(next_one(), flush=True)
"""


def rows(servers: Servers, state: str) -> list[int]:
    """On how many servers each request for the lock is."""
    status, out, _ = locks(servers, "ps", "--json")
    found = json.loads(out)["locks"] if status == 0 else []
    return [len(row["servers"]) for row in found if row["state"] == state]


@pytest.mark.slow
@pytest.mark.parametrize("code", [OWNER, GENERATOR, FORK], ids=["owner", "generator", "fork"])
def test_each_server_is_restarted_within(servers: Servers, tmp_path: Path, code: str) -> None:
    """The lock is held throughout, and another program gets it afterwards with a larger token."""
    waiting = 2 if code is FORK else 1
    with running(servers, HEAD + code, HEAD + NEXT, arguments=[str(tmp_path / "it")]) as programs:
        holder, other = programs
        tell(other)
        for index in range(len(NAMES)):
            eventually(lambda: rows(servers, "granted") == [len(NAMES)], limit=LIMIT)
            eventually(lambda: len(rows(servers, "waiting")) == waiting, limit=LIMIT)
            servers.restart(index)
        tell(holder)
        assert int(hear(holder)) < int(hear(other))
        assert said(holder) == said(other) == ""


STOPS = """
import json, random, time
chance = random.Random(int(sys.argv[1]))
results = {"held": 0, "refused": 0}
finished = False

def work():
    while not finished:
        try:
            with locks.Lock(("it",), timeout=20):
                results["held"] += 1
        except locks.LocksError:  # the node or a server has gone
            results["refused"] += 1

def stop():
    while not finished:
        time.sleep(chance.random() * 0.05)
        begun = time.monotonic()
        locks.stop()
        assert time.monotonic() - begun < 20

threads = [threading.Thread(target=each, daemon=True) for each in (work, stop)]
for each in threads:
    each.start()
ready()
finished = True
for each in threads:
    each.join(60)
    assert not each.is_alive()
with locks.Lock(("it",), timeout=60) as held:
    held.token()
print(json.dumps(results))
"""


@pytest.mark.slow
def test_the_node_stops_while_servers_restart(servers: Servers) -> None:
    """Each call is done or refused, `stop` returns, and nothing is left on the servers."""
    with running(servers, HEAD + STOPS, arguments=[str(SEED)]) as (program,):
        for index in range(len(NAMES)):
            servers.restart(index)
            eventually(lambda: remember(servers), limit=LIMIT)
        tell(program)
        results = json.loads(hear(program))
        assert results["held"] > 0
        # A node that has just begun may have the lock on two servers, of which one is stopped.
        assert all(" lost the lock it: " in line for line in said(program).splitlines())
    eventually(lambda: not json.loads(locks(servers, "ps", "--json").out)["locks"], limit=LIMIT)
