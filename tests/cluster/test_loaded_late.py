"""What knows of the Erlang original is loaded when the first node that runs it shows up, and not before."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import locks, locks_leader

def loaded():
    return sorted(name for name in sys.modules if ".original" in name.removeprefix("locks.original") or name.startswith("locks_lab"))

node = locks.start("a@127.0.0.1", cookie="a-cookie-of-this-test", listen=("127.0.0.1", 0), servers=locks.HERE)
with locks.Lock(("a",)):
    pass
print(locks_leader.Election("e").run(lambda leadership: loaded(), timeout=60))
assert node.cluster.guard is None
node.turn.run(lambda: node.cluster.original_peers)
assert node.cluster.guard is node.cluster.original_peers
print("locks.node.original.peers" in loaded())
locks.stop()
"""


def test_the_original_is_loaded_when_it_shows_up() -> None:
    """A node that meets others, with a lock and an election, has loaded nothing of it, and nothing of the laboratory."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines() == ["[]", "True"], done.stdout + done.stderr
