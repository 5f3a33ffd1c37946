"""A dead lock server is replaced by another one under the same name: a new machine, with an empty folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, NAMES, Servers, locks, remember
from tests.cluster.test_run import run
from tests.cluster.test_servers import STAYS
from tests.helpers import eventually, free_port

A, B, C = NAMES


class Machines(Servers):
    """Lock servers, each with a folder of its own.

    Args:
        world: What ends them.
        folder: Where these folders are.
        keeping: Whether the servers have state files.
    """

    def __init__(self, world: World, folder: Path, keeping: bool) -> None:
        self.folder = folder
        self.keeping = keeping
        self.machines = dict.fromkeys(NAMES, 0)
        super().__init__(world)

    def options(self, name: str) -> list[str]:
        """The state file of a server, if it has one."""
        place = self.folder / f"{name[0]}{self.machines[name]}"
        place.mkdir(exist_ok=True)
        return [f"--state={place / 'state'}"] if self.keeping else []

    def replace(self, index: int) -> None:
        """Start another one in the place of a server that is dead, under its name, with an empty folder."""
        self.machines[NAMES[index]] += 1
        self.start_again(index)


@pytest.fixture(params=[True, False], ids=["files", "memory"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    """Three lock servers, with state files or without."""
    with World() as world:
        yield Machines(world, tmp_path, request.param)


def restart(servers: Servers, name: str) -> tuple[int, dict[str, Any], list[str]]:
    """What `locks status --before-restart` says: its exit status, of the restart, and which servers have no memory."""
    asked = ("status", "--before-restart", name, "--timeout", "0.5", "--json")
    status, out, _ = locks(servers, *asked)
    said = json.loads(out)
    return status, said["restart"], said["forgetful"]


@pytest.mark.slow
def test_one_server_after_the_other_is_replaced(servers: Machines) -> None:
    """Holders keep their locks, tokens rise, and what is done stays done, though in the end no server is left of the first ones."""
    eventually(lambda: remember(servers), limit=LIMIT)
    assert run(servers, "--once", "before", "--", "true")[0] == 0
    holder = servers.program(STAYS, arguments=NAMES)
    assert holder.stdout.readline() == "has it\n"
    for index, name in enumerate(NAMES):
        servers.processes[index].kill()
        other = NAMES[index - 1]
        eventually(
            lambda name=name, other=other: (
                (told := restart(servers, other))[0] == 1 and told[1]["missing"] == [name]
            ),
            limit=LIMIT,
        )
        assert run(servers, "--once", f"without/{name}", "--", "true")[0] == 0
        servers.replace(index)
        eventually(lambda: remember(servers), limit=LIMIT)
        print(name, file=holder.stdin, flush=True)
        assert holder.stdout.readline() == f"has it on {name}\n"
        eventually(lambda other=other: restart(servers, other)[0] == 0, limit=LIMIT)
    out, error = holder.communicate(timeout=LIMIT)
    assert (out, error) == ("True\n", "")
    for job in ("before", *(f"without/{name}" for name in NAMES)):
        assert run(servers, "--once", job, "--", "echo", "never")[:2] == (122, "")


@pytest.mark.slow
def test_a_replaced_server_does_not_count_before_the_others_have_told_it(
    servers: Machines,
) -> None:
    """It grants locks at once. What is done needs both others: while one of them is down, nobody is told that the work was not done."""
    eventually(lambda: remember(servers), limit=LIMIT)
    assert run(servers, "--once", "job", "--", "true")[0] == 0
    for index in (0, 1):
        servers.processes[index].kill()
    servers.replace(0)
    assert run(servers, "job", "--", "echo", "a lock")[:2] == (0, "a lock\n")

    def told() -> tuple[int, list[str], list[str]]:
        status, said, forgetful = restart(servers, C)
        return status, said["missing"], forgetful

    eventually(lambda: told() == (1, [A, B], [A]), limit=LIMIT)
    assert (
        f"Nothing can be done once (locks.once): {A} has begun without"
        in locks(servers, "status").out
    )
    status, out, error = run(servers, "--once", "--timeout", "3", "job", "--", "echo", "never")
    assert (status, out) == (125, "")
    assert f"{A} has begun without a memory" in error
    servers.start_again(1)  # its own folder
    if servers.keeping:
        eventually(lambda: remember(servers), limit=LIMIT)
        assert run(servers, "--once", "job", "--", "echo", "never")[:2] == (122, "")
    else:
        # A majority has lost its memory at one time.
        eventually(lambda: restart(servers, C)[2] == [A, B], limit=LIMIT)


@pytest.mark.slow
def test_more_servers_after_all_have_ended(tmp_path: Path) -> None:
    """With their state files, the servers remember what is done when they are started with a longer list. A program with the old list is refused."""
    with World() as world:
        servers = Machines(world, tmp_path, keeping=True)
        eventually(lambda: remember(servers), limit=LIMIT)
        assert run(servers, "--once", "job", "--", "true")[0] == 0
        before = list(servers.addresses)
        for server in servers.processes:
            server.process.terminate()
            assert server.process.wait(LIMIT) == 0
        servers.addresses += [f"{name}@127.0.0.1:{free_port()}" for name in "de"]
        servers.machines |= dict.fromkeys(("d@127.0.0.1", "e@127.0.0.1"), 0)
        servers.processes = [servers._start(address) for address in servers.addresses]
        assert all(server.address for server in servers.processes)
        eventually(lambda: remember(servers), limit=LIMIT)
        assert run(servers, "--once", "job", "--", "echo", "never")[:2] == (122, "")
        said = servers.run("import locks; locks.Lock(('x',)).acquire(timeout=1)", before)
        assert "Start all programs with the same" in said
