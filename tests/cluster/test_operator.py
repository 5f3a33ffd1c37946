"""An operator at three in the morning: real lock servers, real programs, and the commands that look.

The transcript in `docs/commands.md` is of what happens here; the test compares them. After a change, this prints it:

    python -m tests.cluster.test_operator
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest
from jsonschema import ValidationError

from locks.__main__ import COMMANDS
from locks.cli.parser import Parser
from locks_leader.command import COMMANDS as ELECTIONS
from tests.cluster.harness import ROOT, World
from tests.cluster.pages import RING
from tests.cluster.servers import LIMIT, NAMES, SCHEMA, Servers, locks, process, running, validator
from tests.helpers import eventually
from tests.warm import Program

PAGE = ROOT / "docs" / "commands.md"
SLEEPER = """
import sys, threading, locks
sys.argv[0] = "report.py"
{patch}
def work():
    try:
        with locks.transaction(label="monthly report") as tx:
            tx.read_lock(("accounts",))
            print("ready", flush=True)
            sys.stdin.readline()  # it sleeps
            tx.read_lock(("accounts", "bob"))
    except locks.errors.TransactionBroken as error:
        print(error.reason, "/", error.by, flush=True)
thread = threading.Thread(target=work)
thread.start()
thread.join()  # Python 3.12.0 to 3.12.2 start no threads after the main one has ended
"""
WAITER = """
import sys, locks
sys.argv[0] = {program!r}
with locks.transaction(label={label!r}) as tx:
    {first}
    print("ready", flush=True)
    tx.write_lock({wanted!r})
"""
WAITERS = (
    ("payroll.py", "salaries", 'tx.write_lock(("ledger", "june"))', ("accounts", "ann")),
    ("audit.py", "audit", "pass", ("ledger", "june")),
    ("import.py", "nightly import", "pass", ("ledger",)),
)
NOBODY = ["--servers", "x@127.0.0.1:1", "--timeout", "1"]
FILTERS: list[tuple[list[str], list[str]]] = [
    (["--program", "audit.py"], ["audit"]),
    (["--label", "*import"], ["nightly import"]),
    (["--held"], ["monthly report", "salaries"]),
    (["--waiting", "--program", "[!a]*"], ["salaries", "nightly import"]),
    (["--older", "1h"], []),
    (["--older", "0s", "--limit", "1"], ["monthly report"]),
]
REASON = "sleeps since midnight, ticket 17"


def ps(servers: Servers, *arguments: str) -> list[dict[str, Any]]:
    """What `locks ps` tells."""
    status, out, error = locks(servers, "ps", "--json", *arguments)
    assert (status, error) == (0, "")
    found: list[dict[str, Any]] = json.loads(out)["locks"]
    return found


@contextmanager
def night(servers: Servers) -> Iterator[list[Program]]:
    """Four programs: one sleeps, and three wait behind it, in this order."""
    with running(servers, SLEEPER.format(patch="")) as programs:
        for program, label, first, wanted in WAITERS:
            code = WAITER.format(program=program, label=label, first=first, wanted=wanted)
            waiter = servers.program(code)
            programs.append(waiter)
            at = len(programs) - 1
            eventually(lambda at=at: sum(row["state"] == "waiting" for row in ps(servers)) == at)
        yield programs


def transcript(servers: Servers) -> str:
    """From `locks why` to `locks break` in three commands; what the operator sees."""
    with night(servers) as programs:
        lines = []

        def run(*arguments: str) -> str:
            quoted = [f'"{each}"' if " " in each else each for each in arguments]
            _, out, error = process(servers, *arguments)
            lines.append(f"$ locks {' '.join(quoted)}\n{out}{error}")
            return out

        hint = re.search(r"locks break (\S+)", run("why", "ledger"))
        assert hint is not None
        run("break", hint[1], "--reason", REASON)
        for program in programs[1:]:
            assert program.wait(LIMIT) == 0
        run("why", "ledger")
        sleeper = programs[0]
        out, error = sleeper.communicate("wake up\n", timeout=LIMIT)
        assert out.startswith(f"{REASON} / ")
        assert re.search(rf"transaction {hint[1]} was ended by .*, pid \d+\): {REASON}", error)
        said = [server.errors() for server in servers.processes]
        assert any(f"requests the end of transaction {hint[1]}: {REASON}" in each for each in said)
        return "".join(lines)


def anonymous(text: str) -> str:
    """A transcript without what differs from run to run."""
    text = re.sub(r"(\d+ min )?\d+(\.\d)? s\b", "TIME", text)
    text = re.sub(r"agent-\d+@client-[\w-]+@[\w.-]*\w", "AGENT", text)
    return re.sub(r"pid \d+|127\.0\.0\.1:\d+", "NUMBER", text)


def test_from_why_to_break_in_three_commands(processes: Servers) -> None:
    """One program sleeps over a lock, and three wait in a line: the page shows what an operator sees and does."""
    happened = transcript(processes)
    page = PAGE.read_text(encoding="utf-8")
    shown = re.search(r"```console\n(\$ locks why ledger\n.*?)```", page, re.DOTALL)
    assert shown is not None
    assert anonymous(shown[1]) == anonymous(happened), happened


def test_what_ps_tells(processes: Servers) -> None:
    """Who, since when, and behind whom; the labels, programs and processes are right, and so are the times."""
    before = time.time()
    with night(processes) as programs:
        rows = ps(processes)
        after = time.time()
        pids = {row["label"]: row["pid"] for row in rows}
        labels = ["monthly report", *[label for _, label, _, _ in WAITERS]]
        assert pids == {label: p.pid for label, p in zip(labels, programs, strict=True)}
        assert all(row["address"].startswith("127.0.0.1:") for row in rows)
        assert all(before - 0.1 <= row["asked"] <= (row["since"] or after) <= after for row in rows)
        assert [row["seconds"] for row in rows] == sorted(
            (r["seconds"] for r in rows), reverse=True
        )
        agents = {row["agent"]: row["label"] for row in rows}
        waits = {
            (row["label"], row["typed"]): [agents[each] for each in row["behind"]]
            for row in rows
            if row["state"] == "waiting"
        }
        assert waits == {
            ("salaries", "accounts/ann"): ["monthly report"],
            ("audit", "ledger/june"): ["salaries"],
            ("nightly import", "ledger"): ["salaries", "audit"],
        }
        assert {row["typed"] for row in ps(processes, "accounts")} == {"accounts", "accounts/ann"}
        for arguments, wanted in FILTERS:
            assert [row["label"] for row in ps(processes, *arguments)] == wanted, arguments
        few = locks(processes, "ps", "--limit", "2").out.splitlines()
        assert (len(few), few[-1]) == (4, "3 more are not shown.")
        tree = locks(processes, "graph").out.splitlines()
        assert [len(line) - len(line.lstrip()) for line in tree] == [0, 2, 4, 6, 4]
        assert locks(processes, "graph", "--format", "dot").out.count(" -> ") == 4
        root = json.loads(locks(processes, "why", "ledger", "--json").out)["roots"]
        assert [agents[each] for each in root] == ["monthly report"]


def test_deadlocks_are_remembered(processes: Servers) -> None:
    """The lock server that has broken one reports it, in the same steps as the command."""
    assert "DeadlockAborted" in processes.run(RING)
    found = json.loads(locks(processes, "deadlocks", "--last", "9", "--json").out)["deadlocks"]
    # At a server that both reach late, another cycle of the two may be broken by a surrender.
    told = next(each for each in found if each["action"] == "aborted")
    assert {edge["waiter"]["client"].split(" (")[0] for edge in told["cycle"]} == {
        "wants x",
        "wants y",
    }
    first, closing, done = told["steps"]
    assert re.match(
        r"wants [xy] waits for write ring/[xy]: wants [xy] holds write ring/[xy].$", first
    )
    assert closing.endswith(" This closes the cycle.")
    assert done == f"{told['yields']} is aborted: {told['rule']}. The others continue."
    text = locks(processes, "deadlocks").out
    assert re.search(r"^  1\. wants [xy] \(-c, pid \d+\) waits for write ring/", text, re.MULTILINE)
    assert f"is aborted: {told['rule']}. The others continue." in text


FORGED = "x\n2026-11-26 03:00:00 WARNING locks.nodes forged \x1b[31m"


def test_a_name_that_looks_like_a_line_of_the_log(processes: Servers) -> None:
    """It is shown in one line, without what is for terminals; and servers log none of it as their own."""
    code = f"""
import sys, threading, locks
sys.argv[0] = "forger.py"
def work():
    tx = locks.original.begin_transaction([(("forged",), "write")])
    print("ready", flush=True)
    sys.stdin.readline()
thread = threading.Thread(name={FORGED!r}, target=work)
thread.start()
thread.join()
"""
    with running(processes, code) as (forger,):
        said = locks(processes, "ps", "--program", "forger.py").out
        assert "\x1b" not in said
        assert not any(line.startswith("2026-11-26 03:00:00") for line in said.splitlines())
        assert str(forger.pid) in said
    for server in processes.processes:
        assert "\n2026-11-26 03:00:00" not in server.errors()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["why", "nothing/here"], 1, "No transaction holds or requests nothing/here."),
        (["why", "a//b"], 2, "has an empty element"),
        (
            ["break", "agent-1@nowhere", "--reason", "why not"],
            1,
            "neither holds nor requests a lock",
        ),
        (["break", "agent-1@nowhere"], 2, "--reason"),
        (["ps", "--servers", "here"], 2, "no lock servers configured"),
        (["ps", *NOBODY], 3, "no answer from x@127.0.0.1"),
        (["ps", *NOBODY], 3, "at 127.0.0.1:1: "),
        (["ps", "--older", "soon"], 2, "--older soon is not a time"),
        (["ps", "--limit", "0"], 2, "use 1 or more"),
        (["deadlocks", "--last", "0"], 2, "use 1 or more"),
        (["break", "agent-1@x", "--reason", "x", *NOBODY], 3, "no answer from x@127.0.0.1"),
        (["status"], 0, "3 of 3 lock servers answer"),
        (["status", "--with", NAMES[1]], 0, "3 of 3 lock servers answer"),
        (["status", "--with", "x@127.0.0.1"], 1, "x@127.0.0.1 does not answer"),
    ],
)
def test_exit_statuses(processes: Servers, arguments: list[str], status: int, said: str) -> None:
    """One sentence, in JSON too, and a status that scripts can tell apart."""
    done = locks(processes, *arguments)
    assert done.status == status
    assert said in done.out + done.error
    assert "Traceback" not in done.error
    if status and not done.error.startswith("usage:"):
        in_json = locks(processes, *arguments, "--json")
        assert in_json.status == status
        assert said in json.loads(in_json.out)["error"]


def test_status_when_too_few_are_there() -> None:
    """It is a probe: exit status 1; and says who is missing."""
    with World() as world:
        servers = Servers(world)
        servers.processes[0].kill()
        servers.processes[1].kill()
        done = locks(servers, "status", "--json")
        told = json.loads(done.out)
        assert done.status == 1
        assert (told["enough"], told["answered"], told["needed"]) == (False, 1, 2)
        assert set(told["silent"]) == set(NAMES[:2])
        for command in ("ps", "graph", "deadlocks", "groups", "leaders"):
            assert locks(servers, command).status == 0, "one has answered, and there is nothing"
        for command in (["groups"], ["leaders"], ["why", "nothing"]):
            assert "on the servers that answered" in locks(servers, *command).out
        assert locks(servers, "why", "nothing").status == 1


@pytest.mark.slow
def test_every_json_document_is_described(processes: Servers) -> None:
    """`docs/commands.schema.json` has each command that can print JSON, and allows just the fields that it prints."""
    parser = Parser()
    commands = parser.add_subparsers()
    for command in {**COMMANDS, **ELECTIONS}.values():
        if command.module.startswith("locks_lab"):  # asks no servers
            continue
        import_module(command.module).add_command(commands, command.about)
    printing = {name for name, each in commands.choices.items() if "--json" in each.format_help()}
    printing -= {"demo"}  # for its own tests
    assert printing <= SCHEMA["$defs"].keys()
    processes.run(RING)
    needed = {"why": ["accounts"], "break": ["x", "--reason", "x"]}
    with night(processes):
        for name in printing:
            assert locks(processes, name, *needed.get(name, []), "--json").out
    with pytest.raises(ValidationError, match="'new': 1"):
        validator("config").validate({"name": {"value": "a@b", "source": "here", "new": 1}})


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["ps"], ["status"]])
def test_no_standard_output(processes: Servers, arguments: list[str]) -> None:
    """A command that was started without one does its work, without a traceback."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "locks", *arguments],
        env=processes.environment(),
        stderr=subprocess.PIPE,
        text=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stderr) == (0, "")


if __name__ == "__main__":
    with World() as _world:
        print(transcript(Servers(_world)))
