"""A client without `locks` beside programs with it: it waits for a lock, holds it, and loses it with two of three servers.

The client (`client.py`) imports nothing of `locks`. It has 150 lines, and `docs/protocol.md` explains them. The lock servers, and the
programs that use `locks`, are processes of their own. It needs `pip install msgpack`. Two servers are killed while the client holds the lock.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from examples.plain_client.client import Client

USES = """
import sys, locks
try:
    with locks.Lock(("accounts", "ann"), timeout=float(sys.argv[1])):
        print("the program with locks holds it", flush=True)
        sys.stdin.readline()
except locks.LockTimeout as error:
    print("the program with locks:", error, flush=True)
"""


def start(command: list[str], **options: Any) -> Any:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cookie"
        file.touch(mode=0o600)
        file.write_text(secrets.token_hex())
        command = [sys.executable, "-m", "locks", "node", "--cookie-file", str(file), "--name"]
        servers = {
            name: start([*command, name]) for name in ("a@127.0.0.1", "b@127.0.0.1", "c@127.0.0.1")
        }
        try:
            ports = {
                name: json.loads(each.stdout.readline())["port"] for name, each in servers.items()
            }
            show(list(servers.values()), ports, file)
        finally:
            for each in servers.values():
                each.kill()
                each.communicate()


def show(servers: list[Any], ports: dict[str, int], file: Path) -> None:
    addresses = ",".join(f"{name}:{port}" for name, port in ports.items())
    where = {**os.environ, "LOCKS_SERVERS": addresses, "LOCKS_COOKIE_FILE": str(file)}
    uses = [sys.executable, "-c", USES]
    program = start([*uses, "10"], stdin=subprocess.PIPE, env=where)
    print(program.stdout.readline(), end="")
    client = Client({name: ("127.0.0.1", port) for name, port in ports.items()}, file.read_text())
    print(
        "this client without waiting longer than 0.3 s:",
        client.acquire("accounts", "ann", timeout=0.3),
    )
    threading.Timer(0.5, program.communicate, ("\n",)).start()
    print(
        "this client, waiting until the program ends:",
        client.acquire("accounts", "ann", timeout=10),
    )
    with client.changed:
        client.changed.wait_for(lambda: client.token, 10)
    print("it has a fencing token:", client.token > 0)
    print(start([*uses, "0.3"], stdin=subprocess.DEVNULL, env=where).communicate()[0], end="")
    for server in servers[:2]:
        server.kill()
        server.wait()
        with client.changed:
            print(
                "a server was killed; it is still held:",
                not client.changed.wait_for(lambda: not client.held, 1),
            )


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    main()
