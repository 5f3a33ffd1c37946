"""A program whose test freezes the time can start and use locks, with whatever library it does so."""

from __future__ import annotations

import pytest

from tests.cluster.servers import Machine

PROGRAM = """
import contextlib, sys
{imports}
with {frozen}:
    import datetime
    assert datetime.datetime.now().year == 2020
    import locks
    locks.start(servers="local")
    lock = locks.Lock(("a",))
    print(lock.acquire(timeout=30), repr(lock))
    with locks.Owner("other"):
        print(lock.acquire(timeout=0.1))
    lock.release()
print(locks.Lock(("a",)).acquire(timeout=30))
"""
FROZEN = {
    "freezegun": 'freezegun.freeze_time("2020-01-01")',
    "time_machine": 'time_machine.travel("2020-01-01", tick=False)',
}


@pytest.mark.parametrize("library", FROZEN)
@pytest.mark.parametrize("before", ["", "import locks"])
def test_locks_work_while_the_time_stands_still(library: str, before: str) -> None:
    """Imported before or within the block: waits end, and the lock server's clock and the program's agree."""
    pytest.importorskip(library)
    with Machine() as machine:
        code = PROGRAM.format(imports=f"import {library}\n{before}", frozen=FROZEN[library])
        assert machine.run(code).splitlines() == ["True <Lock write a>", "False", "True"]
