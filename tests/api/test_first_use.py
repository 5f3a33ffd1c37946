"""What a program loads, and when: modules are counted, not seconds."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import locks
import locks_leader

# What a program needs that meets other nodes, or that examines, serves or elects; by the first part of a module's name.
NOT_ALONE = {
    *("aio", "cli", "engines", "facts", "groups", "metrics", "mvcc", "net", "ownership"),
    *("testing", "tracing", "web"),
}
OF_NODES = ("locks.node.peers", "locks.node.views", "locks.program.meeting")
HEAVY = {"asyncio", "concurrent", "dataclasses", "inspect", "json", "socket", "ssl", "tomllib"}
ROOT = Path(__file__).parents[2]
LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)), flush=True)\n"


def loaded(program: str) -> list[set[str]]:
    """The modules that are loaded at each `LOADED` of a program."""
    environment = {key: value for key, value in os.environ.items() if "LOCKS_" not in key}
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        env=environment,
        timeout=60,
    )
    return [set(json.loads(line)) for line in done.stdout.splitlines()]


def parts(modules: set[str]) -> set[str]:
    """The parts of `locks` that are among some modules: `net` of `locks.net.link`."""
    return {each.split(".")[1] for each in modules if each.startswith("locks.")}


def test_import_loads_next_to_nothing() -> None:
    """Neither the package's own modules, nor what it stands on; nor does `locks_leader`. Nearly all programs have `logging`."""
    program = f"import logging\n{LOADED}import locks\n{LOADED}import locks_leader\n{LOADED}"
    before, after, leader = loaded(program)
    assert {each for each in after if each.startswith("locks.")} == {
        *("locks.runtime", "locks.runtime.first_use", "locks.runtime.forked", "locks.version")
    }
    assert not {"gevent", "pykka"} & after
    assert {each for each in leader - after if each.startswith("locks")} == {
        "locks_leader",
        "locks_leader.whose",
    }
    assert len(after - before) < 20


@pytest.mark.parametrize(
    "use",
    [
        "with locks.Lock(('a',)): pass",
        "with locks.RLock(('a',)): pass",
        "with locks.transaction() as tx: tx.write_lock(('a', 1))",
        "agent, _ = locks.original.begin_transaction([(('a',), 'read')]); locks.original.end_transaction(agent)",
    ],
)
def test_a_program_that_is_alone_loads_nothing_that_meets_others(use: str) -> None:
    """All that it needs is loaded with the first name: its first lock loads nothing more, and no turn or handler does."""
    hub = "import gevent, gevent.lock, pykka; gevent.get_hub()\n"
    base, named, used = loaded(f"{hub}{LOADED}import locks; locks.Lock\n{LOADED}{use}\n{LOADED}")
    assert not parts(used) & NOT_ALONE
    assert not {"locks_lab", "locks_leader"} & used
    assert not {each for each in used if each.startswith(OF_NODES)}
    assert not HEAVY & (named - base)
    assert {each for each in used - named if each.startswith("locks")} == set()


def test_what_meets_others_is_loaded_before_the_node_begins() -> None:
    """Of a node with servers, a question and a lock load no module of `locks` any more."""
    start = "locks.start('a@127.0.0.1', cookie='x' * 20, listen='127.0.0.1:0')"
    use = "with locks.Lock(('a',)): pass\nlocks.queue(('a',))"
    started, used = loaded(f"import locks; {start}\n{LOADED}{use}\n{LOADED}")
    assert {"net"} <= parts(started)
    assert {each for each in used - started if each.startswith("locks")} == set()


def imported(package: ModuleType) -> dict[str, object]:
    """What the block for type checkers imports: each name, and the object."""
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text("utf-8"))
    found: dict[str, object] = {}
    for block in tree.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for line in block.body:
                assert isinstance(line, ast.ImportFrom)
                assert line.module is not None
                for alias in line.names:
                    there = import_module(line.module)
                    if not hasattr(there, alias.name):
                        import_module(f"{line.module}.{alias.name}")
                    found[alias.asname or alias.name] = getattr(there, alias.name)
    return found


@pytest.mark.parametrize("package", [locks, locks_leader], ids=lambda each: str(each.__name__))
def test_names_are_what_type_checkers_see(package: ModuleType) -> None:
    """Each name is the very object that the block for type checkers imports; `__all__` and `dir` have them all."""
    seen = imported(package)
    assert set(package.__all__) <= seen.keys()
    for name, value in seen.items():
        assert getattr(package, name) is value, name
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_the_functions_of_the_original_are_a_module_of_their_own() -> None:
    """`locks.original` has exactly these, and four more; only the two of watching are in `locks`, too."""
    assert set(locks.original.__all__) & set(locks.__all__) == {"unwatch", "watch"}
    page = (ROOT / "docs" / "upstream_map.md").read_text("utf-8")
    rows = {
        *re.findall(r"^\| `[^|]*\| `locks\.original\.(\w+)`", page, re.M),
        "lock_info",
        "surrender_nowait",
    }
    more = {"ensure_held", "fencing_token", "fencing_token_nowait", "unlock"}
    assert set(locks.original.__all__) == rows | more


def test_threads_that_use_a_name_first_at_the_same_time() -> None:
    """All of them get it."""
    program = """
import threading
import locks
begin, failed = threading.Barrier(8), []
def use(name):
    begin.wait()
    try:
        getattr(locks, name)
    except BaseException as error:
        failed.append(error)
names = ["Lock", "node", "facts", "TLS", "transaction", "RLock", "Semaphore", "Lock"]
threads = [threading.Thread(target=use, args=(name,)) for name in names]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not failed, failed
"""
    assert loaded(program) == []


def test_ctrl_c_in_the_first_use_leaves_it_to_the_next_one() -> None:
    """A program that catches it goes on: what was half loaded is loaded with the next use."""
    program = """
import sys, locks
class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == stop:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder)
for stop in ("locks.words", "locks.runtime.monitor", "locks.core.agent.ledger", "locks.node.server", "locks.program.settings"):
    try:
        locks.Lock
    except KeyboardInterrupt:
        continue
    raise AssertionError(stop)
stop = ""
with locks.Lock(("a",)):
    pass
for stop in ("locks.node.peers.cluster", "locks.net.link", "locks.program.local"):
    try:
        locks.stop()
        locks.start("a@127.0.0.1", cookie="x" * 20)
    except KeyboardInterrupt:
        continue
    raise AssertionError(stop)
stop = ""
with locks.Lock(("a",)):
    assert locks.start().cluster is None  # no node was begun with what was half loaded
locks.stop()
assert locks.start("a@127.0.0.1", cookie="x" * 20).cluster is not None
"""
    assert loaded(program) == []


@pytest.mark.parametrize("package", ["locks", "locks_leader"])
def test_windows_is_not_supported(package: str) -> None:
    """There the import says so in one sentence, and nothing else."""
    program = f"import sys; sys.platform = 'win32'; import {package}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    said = "ImportError: locks runs on Linux and macOS; Windows is not supported"
    assert done.stderr.splitlines()[-1] == said


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_an_answer_of_the_command_line_loads_no_command(option: str) -> None:
    """Neither gevent and Pykka, nor any command."""
    program = f"import atexit\natexit.register(lambda: exec({LOADED!r}))\nimport sys\n"
    program += f"sys.argv = ['locks', {option!r}]\nfrom locks_leader.command import main\n"
    program += "import io; out, sys.stdout = sys.stdout, io.StringIO()\n"
    program += "try: main()\nfinally: sys.stdout = out\n"
    (found,) = loaded(program)
    assert not {"gevent", "pykka", "locks_leader.elect"} & found
    assert parts(found) <= {
        "__main__",
        "cli",
        "errors",
        "ranges",
        "runtime",
        "version",
        "words",
    }
    assert {each for each in found if each.startswith("locks.cli.")} == {"locks.cli.parser"}


@pytest.mark.parametrize(
    "stop", ["locks.cli.parser", "locks.node.peers.cluster", "locks.facts.gather"]
)
def test_ctrl_c_while_modules_are_loaded(stop: str, tmp_path: Path) -> None:
    """Ctrl-C is silent, and the status is 130, whichever module it meets."""
    waits = f"""
import os, sys, time
class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == {stop!r}:
            print("there", flush=True)
            while True:
                time.sleep(0.01)
sys.meta_path.insert(0, Finder)
sys.argv = ["locks", "status", "--servers", "a@127.0.0.1:1"]
from locks_leader.command import main
sys.exit(main())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", waits], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"there\n"
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert (out, error, process.returncode) == (b"", b"", 130)


def test_who_was_forked_before_the_first_use_is_told_so() -> None:
    """A child that was forked when `locks` was imported, and nothing of it used, would have a lock table of its own: it is refused."""
    program = """
import os
import locks
child = os.fork()
if child == 0:
    try:
        locks.start()
    except locks.MisuseError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, text=True, timeout=60
    )
    assert "it was forked from process" in done.stdout


FORKS = """
import os, signal, sys, threading, time
import locks

class Slow:
    def find_spec(name, path, target=None):
        if name == "locks.api" and not begun.is_set():
            begun.set()
            time.sleep(0.3)

def use():
    with locks.Lock(("a",)):
        pass

begun = threading.Event()
sys.meta_path.insert(0, Slow)
threading.Thread(target=use).start()
begun.wait()
if not os.fork():
    signal.alarm(20)
    use()
    os._exit(0)
assert os.wait()[1] == 0
"""


def test_a_fork_while_another_thread_loads_what_it_needs() -> None:
    """It waits for that: the child, in which that thread does not exist, would wait for it for ever."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS],
        env={**os.environ, "LOCKS_SERVERS": "here"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
