"""Many programs that want one lock of three servers, all the time (decision 0014)."""

from __future__ import annotations

import pytest

from tests.cluster.servers import LIMIT, Servers, hear, running, tell

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
def test_all_get_their_turns(servers: Servers) -> None:
    """However many wait for a lock of a majority, each transaction is done, with a token of its own."""
    with running(servers, *[PROGRAM.format(threads=8, each=3, limit=LIMIT)] * 4) as programs:
        for program in programs:
            tell(program)
        tokens = [token for program in programs for token in hear(program).split()]
        assert len(set(tokens)) == 4 * 8 * 3
