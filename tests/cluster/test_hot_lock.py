"""Many programs that want one lock of three servers, all the time (decision 0014)."""

from __future__ import annotations

import pytest

from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, Servers

PROGRAM = """
import sys, threading, locks
threads, each = {threads}, {each}
tokens = []
def work():
    for _ in range(each):
        with locks.transaction(timeout={limit}) as tx:
            tokens.append(tx.write_lock(("invoices",)))
locks.start()
print("ready", flush=True)
input()
workers = [threading.Thread(target=work) for _ in range(threads)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
print(*tokens)
"""


@pytest.mark.explore
@pytest.mark.parametrize(("programs", "threads", "each"), [(2, 8, 5), (16, 1, 5), (2, 30, 2)])
def test_all_get_their_turns(programs: int, threads: int, each: int) -> None:
    """However many wait for a lock of a majority, each transaction is done, with a token of its own."""
    with World() as world:
        servers = Servers(world, net_ticktime=10)
        code = PROGRAM.format(threads=threads, each=each, limit=LIMIT)
        running = [servers.program(code) for _ in range(programs)]
        try:
            for program in running:
                assert program.stdout.readline() == "ready\n"
            for program in running:
                program.stdin.write("\n")
                program.stdin.flush()
            tokens = []
            for program in running:
                out, error = program.communicate(timeout=LIMIT)
                assert not error
                tokens += [int(token) for token in out.split()]
        finally:
            for program in running:
                program.kill()
                program.communicate()
        assert len(set(tokens)) == programs * threads * each
