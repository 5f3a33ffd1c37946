"""One lock on three nodes: what a majority survives, and how a program learns that it is lost.

Three lock servers run as processes of their own. This program locks an account on a majority of them,
writes with a fencing token, and goes on when one of them is killed. When a second one is killed, the lock
is lost, and the program is told at once.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import locks


def start_server(name: str, cookie_file: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a lock server on a free port; return its process and its address."""
    command = [sys.executable, "-m", "locks", "node", "--name", name]
    command += ["--cookie-file", str(cookie_file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    return process, f"{name}:{ready['port']}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        cookie_file = Path(folder) / "cookie"
        cookie_file.touch(mode=0o600)
        cookie_file.write_text(secrets.token_hex())
        names = [f"{letter}@127.0.0.1" for letter in "abc"]
        servers = dict(zip(names, (start_server(n, cookie_file) for n in names), strict=True))
        node = locks.start(
            "client@127.0.0.1",
            cookie=cookie_file.read_text(),
            peers=[peer for _, peer in servers.values()],
        )
        try:
            use(node, names, {name: process for name, (process, _) in servers.items()})
        finally:
            locks.stop()
            for process, _ in servers.values():
                process.kill()
                process.wait()


def use(node: locks.node.Node, names: list[str], servers: dict[str, subprocess.Popen[str]]) -> None:
    assert node.await_nodes(names, timeout=10)
    print("connected with", ", ".join(node.nodes()))
    account = ("accounts", "ann")
    try:
        with locks.transaction(timeout=5) as tx:
            tx.lock(account, nodes=names, require="majority")
            first = tx.token(account)
            print("locked on a majority, with a fencing token")

        with locks.transaction(timeout=5) as tx:
            tx.lock(account, nodes=names, require="majority")
            print("locked again; the token is larger:", tx.token(account) > first)

            while len(held_on(tx)) < len(names):  # the third one answers, too
                time.sleep(0.01)
            servers[names[0]].kill()
            assert not tx.lost.wait(0.5)
            tx.ensure_held(account)
            print(f"{names[0]} was killed; the lock is still held on", ", ".join(held_on(tx)))

            servers[names[1]].kill()
            assert tx.lost.wait(5)
            print(f"{names[1]} was killed, too")
            tx.ensure_held(account)
    except locks.LockLost as lost:
        print("LockLost:", *lost.lock_ids, "with", ", ".join(lost.nodes))


def held_on(tx: locks.Transaction) -> tuple[str, ...]:
    (info,) = locks.original.lock_info(tx.agent)
    return info.granted


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
