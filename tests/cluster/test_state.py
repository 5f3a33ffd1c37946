"""`locks node --state`: what is done survives the end of all servers; a file that is torn or damaged is refused, never taken for less."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import locks
from locks.core.facts import Mark
from locks.errors import InvalidOption
from locks.node.marks import memory_of
from locks.node.state import TABLES, State
from locks.shapes import once as shapes
from tests.cluster.harness import COOKIE, World
from tests.cluster.servers import LIMIT, Servers, remember
from tests.cluster.servers import locks as command
from tests.cluster.test_run import run
from tests.helpers import EXPLORE, SEED, eventually, free_port
from tests.warm import Program, run_program

sqlite3 = pytest.importorskip("sqlite3", reason="this Python has no sqlite3")

NAME = "a@127.0.0.1"
SERVERS = (NAME, "b@127.0.0.1", "c@127.0.0.1")
LATER = 1 << 60


def mark(number: int, until: int = LATER) -> Mark:
    """A mark with an id of several kinds."""
    return Mark(("job", number, (1.5, b"x")), number + 1, 7, until, "ann")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state file with some marks, and small pages: it has fewer bytes to try."""
    monkeypatch.setattr("locks.node.state.TABLES", f"pragma page_size = 512; {TABLES}")
    path = tmp_path / "a.state"
    state = State(path, NAME)
    state.write([mark(number) for number in range(20)], SERVERS, 0)
    state.close()
    return path


def found(path: Path, name: str = NAME) -> tuple[list[Mark], tuple[str, ...]]:
    """What is in a file."""
    state = State(path, name)
    state.close()
    return state.marks, state.servers


# --- The file -----------------------------------------------------------------------------------


def test_what_is_written_is_there_again(file: Path) -> None:
    """With its order; what is over is forgotten; only the owner may read the file; nothing else is left in the folder."""
    assert found(file) == ([mark(number) for number in range(20)], SERVERS)
    state = State(file, NAME)
    state.write([mark(20, until=30)], (), 10)
    state.write([mark(21)], SERVERS, 30)
    state.close()
    assert found(file) == ([mark(number) for number in (*range(20), 21)], SERVERS)
    assert file.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in file.parent.iterdir()} == {"a.state"}


def test_one_server_at_a_time(file: Path) -> None:
    """A second one is refused, in this process or another, and one of another name at any time."""
    state = State(file, NAME)
    with pytest.raises(InvalidOption, match="it is in use by another server"):
        State(file, NAME)
    code = f"from locks.node.state import State; State(__import__('pathlib').Path({str(file)!r}), {NAME!r})"
    done = run_program([sys.executable, "-c", code])
    assert "it is in use by another server" in done.stderr
    state.close()
    with pytest.raises(InvalidOption, match=rf"belongs to {NAME}: b@127.0.0.1 needs a file of"):
        State(file, "b@127.0.0.1")
    assert len(found(file)[0]) == 20


def test_files_that_are_none(tmp_path: Path) -> None:
    """Each is refused with a sentence, and left as it is."""
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("something else\n" * 100)
    other = sqlite3.connect(tmp_path / "other")
    other.execute("create table x (y)")
    other.close()
    for name, says in (
        ("empty", "is damaged: it is empty"),
        ("text", "is damaged: file is not a database"),
        ("other", "is damaged: it is no state file of this version of locks"),
        ("gone/file", "can't use the state file .*No such file"),
        (".", "can't use the state file"),
    ):
        before = (tmp_path / name).read_bytes() if (tmp_path / name).is_file() else b""
        with pytest.raises(InvalidOption, match=says):
            State(tmp_path / name, NAME)
        assert not before or (tmp_path / name).read_bytes() == before


def test_a_file_that_is_cut_at_any_byte_is_refused(file: Path) -> None:
    """None is taken for one with fewer marks."""
    whole = file.read_bytes()
    for size in range(0, len(whole), 1 if EXPLORE else 97):
        file.write_bytes(whole[:size])
        with pytest.raises(InvalidOption, match="state file"):
            State(file, NAME)


def test_a_file_with_a_wrong_byte_is_refused_or_has_all(file: Path) -> None:
    """A byte that means nothing may change. Otherwise the file is refused."""
    whole, wanted = file.read_bytes(), found(file)
    rng = random.Random(SEED)
    refused = 0
    places = range(len(whole)) if EXPLORE else rng.sample(range(len(whole)), 400)
    for place in (*places, *range(100)):
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.randrange(8)
        file.write_bytes(changed)
        try:
            assert found(file) == wanted, place
        except InvalidOption:
            refused += 1
        for path in file.parent.iterdir():  # a journal of what was tried
            path.unlink()
    assert refused > 20


def test_a_torn_journal(file: Path) -> None:
    """A write that was cut at any byte of the journal leaves what was there before, or the file is refused."""
    before = found(file)
    pid = os.fork()
    if not pid:  # it dies in the middle of a transaction, whose pages are in the file already
        connection = sqlite3.connect(file, isolation_level=None)
        connection.execute("pragma cache_size = 1")
        connection.execute("begin immediate")
        connection.executemany(
            "insert into marks values (?, ?, ?, 0)",
            ((number, LATER, b"x" * 3000) for number in range(100, 200)),
        )
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    journal = file.with_name("a.state-journal")
    torn, written = journal.read_bytes(), file.read_bytes()
    assert torn
    assert len(written) > 100_000, "pages are in the file"
    for size in itertools.chain(range(0, len(torn), 1 if EXPLORE else 203), [len(torn)]):
        file.write_bytes(written)
        journal.write_bytes(torn[:size])
        try:
            assert found(file) == before, size
        except InvalidOption:
            assert size < len(torn)


# --- Servers ------------------------------------------------------------------------------------


class Keeping(Servers):
    """Lock servers, each with a state file.

    Args:
        world: What ends them.
        folder: Where the files are.
    """

    def __init__(self, world: World, folder: Path) -> None:
        self.folder = folder
        super().__init__(world)

    def options(self, name: str) -> list[str]:
        """The file of a server."""
        return [f"--state={self.file(name)}"]

    def file(self, name: str) -> Path:
        """The file of a server."""
        return self.folder / f"{name[0]}.state"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Keeping]:
    """Three lock servers with state files."""
    with World() as world:
        yield Keeping(world, tmp_path)


@pytest.mark.slow
def test_all_servers_are_killed_at_once(servers: Keeping) -> None:
    """What is done stays done, other work can be done at once, and `locks status` shows that it is kept; without one file, too."""
    eventually(lambda: remember(servers), limit=LIMIT)
    assert run(servers, "--once", "job", "--", "true")[0] == 0
    for number in range(2):
        for server in servers.processes:
            server.kill()
        if number:
            servers.file("b").unlink()
        for index in range(3):
            servers.start_again(index)
        assert run(servers, "--once", "job", "--", "echo", "never")[:2] == (122, "")
        assert run(servers, "--once", f"other/{number}", "--", "true")[0] == 0
        eventually(lambda: remember(servers), limit=LIMIT)
        said = command(servers, "status").out
        assert "a@127.0.0.1, b@127.0.0.1, c@127.0.0.1: what is done once is kept in a file." in said
    for server in servers.processes:
        server.kill()
    for index in (1, 2):
        servers.start_again(index)
    assert run(servers, "--once", "job", "--", "echo", "never")[:2] == (122, ""), "b learned it"
    assert run(servers, "--once", "other/0", "--", "echo", "never")[:2] == (122, "")


@pytest.mark.slow
def test_no_room_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that can't write sets no mark: it says so, before work and after it; locks go on; with room again, so does work."""
    own = [f"{NAME}:{free_port()}"]
    locks.start(NAME, cookie=COOKIE, servers=own, state=tmp_path / "a.state")
    try:
        with locks.once(("job",)):
            pass
        node = locks.start()
        state = memory_of(node)._state
        assert state is not None
        pages = state._connection
        (most,) = pages.execute("pragma max_page_count").fetchone()
        pages.execute("pragma max_page_count = 1")  # as many as there are
        long = ("x" * 50_000,)
        with monkeypatch.context() as in_vain:
            in_vain.setattr(shapes.MarkAsker.set, "__defaults__", (1.0,))
            in_vain.setattr(shapes, "SET", 1.0)
            in_vain.setattr(shapes, "READ", 1.0)
            with (
                pytest.raises(
                    locks.errors.NotMarked, match=f"{NAME} can't write its state file: .*full"
                ),
                locks.once(long),
            ):
                pass
            with (
                pytest.raises(locks.CannotServe, match="can't write its state file"),
                locks.once(long),
            ):
                raise AssertionError("it ran")
        with locks.transaction() as tx:
            tx.write_lock(long)
        pages.execute(f"pragma max_page_count = {most}")
        with pytest.raises(locks.AlreadyDone), locks.once(("job",)):
            raise AssertionError("it ran")
        with pytest.raises(locks.AlreadyDone, match="x is already done"), locks.once(long):
            raise AssertionError("it was done, and is remembered now")
    finally:
        locks.stop()
    assert [each.lock_id for each in found(tmp_path / "a.state")[0]] == [("job",), long]


@pytest.mark.slow
def test_a_server_with_a_damaged_file_does_not_start(servers: Keeping, tmp_path: Path) -> None:
    """It says what to do, with status 2; a client has no such file."""
    servers.processes[0].kill()
    shutil.copy(servers.file("b"), tmp_path / "other")
    servers.file("a").write_bytes(servers.file("a").read_bytes()[:5000])
    for file, says in ((servers.file("a"), "is damaged"), (tmp_path / "other", "belongs to b@")):
        command = [sys.executable, "-m", "locks", "node", "--name", NAME, f"--state={file}"]
        done = run_program(command, env=servers.environment())
        assert done.returncode == 2
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1
    code = f"import locks; locks.start(state={str(tmp_path / 'x')!r})"
    assert "is for lock servers, and this node is only a client" in servers.run(code)


WRITER = """
import sys
from pathlib import Path
from locks.node.state import State
from locks.core.facts import Mark
state = State(Path(sys.argv[1]), "a@127.0.0.1")
for number in range(len(state.marks), 1 << 30):
    mark = Mark(("job", number, (1.5, b"x")), number + 1, 7, 1 << 60, "ann")
    state.write([mark], ("a@127.0.0.1", "b@127.0.0.1", "c@127.0.0.1"), 0)
    print(number, flush=True)
"""


def test_what_was_said_to_be_written_survives_kill_9(tmp_path: Path) -> None:
    """At random moments, also while the file is made: all that was answered is there, in order, and the next one goes on."""
    rng = random.Random(SEED)
    file = tmp_path / "a.state"
    last = -1
    for _ in range(60 if EXPLORE else 6):
        command = [sys.executable, "-c", WRITER, str(file)]
        with Program(command) as writer:
            for _ in range(rng.randrange(1, 30)):
                last = int(writer.stdout.readline())
            writer.kill()
            said = writer.stdout.read().split()
        last = int(said[-1]) if said else last
        marks, servers = found(file)
        assert marks == [mark(number) for number in range(len(marks))]
        assert len(marks) in (last + 1, last + 2), "the last one may be there, and not be answered"
        assert servers == SERVERS
        last = len(marks) - 1
