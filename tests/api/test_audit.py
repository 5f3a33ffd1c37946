"""The audit log of a lock server: who held what from when to when; its file, which never holds the server up."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import locks
from benchmarks.calls import count
from locks.__main__ import main
from locks.cli import history
from locks.errors import InvalidOption, OperatingError
from locks.program.audit_log import AuditLog, files_of
from locks.program.default import default_node
from tests.api.test_logs import deadlock
from tests.cluster.commands import validator
from tests.helpers import eventually

Line = dict[str, Any]


@contextmanager
def audited(path: Path, **options: Any) -> Iterator[AuditLog]:
    """While the node of this program has an audit log."""
    log = AuditLog(path, **options)
    node = default_node()
    log.begin(node)
    try:
        yield log
    finally:
        log.close()
        node.server.audit = None


def read(path: Path) -> list[Line]:
    """The lines of a file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_who_held_what(tmp_path: Path) -> None:
    """Each lock has a line when it is released, with the client and both times; one that is still held has one at the end."""
    path = tmp_path / "audit.log"
    with audited(path):
        with locks.transaction(label="first") as tx:
            tx.write_lock(("a",))
            tx.read_lock(("b", 17))
            tx.unlock(("b", 17))
        agent, _ = locks.begin_transaction([(("c",), "write")], label="second")
    locks.end_transaction(agent)
    started, *held, holds, stopped = read(path)
    assert (started["event"], stopped["event"]) == ("started", "stopped")
    assert [(each["event"], each["lock"], each["mode"], each["ended"]) for each in held] == [
        ("held", "b/17", "read", "released"),
        ("held", "a", "write", "released"),
    ]
    assert (holds["event"], holds["lock"], holds["agent"]) == ("holds", "c", str(agent.id))
    assert [each["client"].split(" (")[0] for each in (*held, holds)] == [
        "first",
        "first",
        "second",
    ]
    assert all(each["seconds"] >= 0 for each in held)
    assert all(each["since"] <= each["until"] <= stopped["time"] for each in held)
    assert {each["node"] for each in read(path)} == {default_node().name}


def test_what_happens_to_transactions(tmp_path: Path) -> None:
    """Deadlocks, with the lock that was surrendered or released; and who broke a transaction, whatever levels the loggers have."""
    path = tmp_path / "audit.log"
    logging.getLogger("locks.losses").setLevel(logging.CRITICAL)
    try:
        with audited(path):
            deadlock()
            agent, _ = locks.begin_transaction([(("a",), "write")])
            locks.facts.break_transaction(agent, reason="it sleeps", by="an operator")
            eventually(lambda: '"broken"' in path.read_text())
    finally:
        logging.getLogger("locks.losses").setLevel(logging.NOTSET)
    lines = read(path)
    (resolved,) = [each for each in lines if each["event"] == "deadlock"]
    assert resolved["action"] in ("surrendered", "aborted")
    (broken,) = [each for each in lines if each["event"] == "broken"]
    assert (broken["agent"], broken["by"], broken["reason"]) == (
        *(str(agent.id), "an operator", "it sleeps"),
    )
    assert [each["ended"] for each in lines if each.get("lock") == "a"] == ["released"]


def test_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once and stops nothing; when there is room again, the file and the log say how many lines are missing."""
    path = tmp_path / "audit.log"
    with audited(path) as log:
        room = os.dup(log._file)
        full = os.open("/dev/full", os.O_WRONLY)
        eventually(lambda: read(path))
        os.dup2(full, log._file)
        for _ in range(3):
            missing = log._left_out
            locks.run_transaction(lambda tx: tx.write_lock(("a",)))
            eventually(lambda missing=missing: log._left_out > missing)
        os.dup2(room, log._file)
        locks.run_transaction(lambda tx: tx.write_lock(("b",)))
        eventually(lambda: "left_out" in path.read_text())
    os.close(room)
    os.close(full)
    text = [each.getMessage() for each in caplog.records if each.name == "locks.audit"]
    assert [each.split(": ")[0] for each in text] == [
        f"{default_node().name} can't write the audit log {path}",
        f"{default_node().name} left out 3 lines of the audit log",
    ]
    assert [each["lines"] for each in read(path) if each["event"] == "left_out"] == [3]
    assert {each.get("lock") for each in read(path)} == {None, "b"}


def test_too_many_lines(tmp_path: Path) -> None:
    """If the file can't be written as fast as locks are taken, lines are left out, not kept."""
    with audited(tmp_path / "audit.log", most=0) as log:
        locks.run_transaction(lambda tx: tx.write_lock(("a",)))
        assert log._left_out == 2  # that it has started, too
    assert [each["event"] for each in read(tmp_path / "audit.log")] == ["stopped", "left_out"]


def test_rotation(tmp_path: Path) -> None:
    """The files have a size in total; the oldest one is removed; what is read is in its order."""
    path = tmp_path / "audit.log"
    size = 20_000
    with audited(path, size=size / 2**20) as log:
        for number in range(100):
            locks.run_transaction(lambda tx, number=number: tx.write_lock(("a", number)))
            eventually(lambda: log._records.empty())
    files = [each for each in files_of(path) if each.exists()]
    assert len(files) == 10
    assert sum(each.stat().st_size for each in files) <= size * 1.5
    numbers = [each["lock"] for file in files for each in read(file) if "lock" in each]
    assert numbers == [f"a/{number}" for number in range(100 - len(numbers), 100)]
    assert len(numbers) > 20


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """If no new file can be begun, lines are left out, and written when it can; none goes anywhere else."""
    path = tmp_path / "audit.log"
    with audited(path, size=1000 / 2**20) as log:
        eventually(lambda: read(path))
        log._path = tmp_path / "gone" / "audit.log"
        for _ in range(2):
            missing = log._left_out
            locks.run_transaction(lambda tx: tx.write_lock(("a",)))
            eventually(lambda missing=missing: log._left_out > missing)
        assert log._file < 0
        log._path = path
        locks.run_transaction(lambda tx: tx.write_lock(("b",)))
        eventually(lambda: log._told)  # its file may just be getting another name
    lines = [line for each in files_of(path) if each.exists() for line in read(each)]
    assert {"started", "held", "left_out"} <= {each["event"] for each in lines}
    assert {each["lock"] for each in lines if "lock" in each} == {"b"}


def test_files_that_cannot_be(tmp_path: Path) -> None:
    """They are refused before the server starts."""
    with pytest.raises(OperatingError, match="can't write the audit log"):
        AuditLog(tmp_path / "none" / "audit.log")
    with pytest.raises(InvalidOption, match="is not a size"):
        AuditLog(tmp_path / "audit.log", size=0)


def test_what_it_costs(tmp_path: Path) -> None:
    """A lock on a server with an audit log takes some calls more; without one, none."""
    lock = locks.Lock(("a",))

    def pair() -> None:
        lock.acquire()
        lock.release()

    locks.start().thin.usable = False  # a server has no thin locks
    pair()
    without, _ = count(pair)
    with audited(tmp_path / "audit.log"):
        python, _ = count(pair)
    assert python - without <= 15
    assert count(pair)[0] == without


# --- Reading it ---------------------------------------------------------------------------------


def line(time: str, event: str, **fields: Any) -> str:
    """A line of a log of 25 November."""
    said = {"time": f"2026-11-25T{time}+00:00", "node": "a@x", "event": event, **fields}
    return json.dumps(said) + "\n"


def hold(time: str, since: str, lock: str, until: str | None = None, number: int = 1) -> str:
    """A line of a lock."""
    more = {"until": f"2026-11-25T{until}+00:00", "ended": "released"} if until else {}
    since = f"2026-11-25T{since}+00:00"
    who = {"agent": f"agent-{number}@b", "client": f"client {number}", "address": "127.0.0.1:9"}
    event = "held" if until else "holds"
    return line(time, event, lock=lock, mode="write", number=number, since=since, **who, **more)


def holders(path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The clients that `locks history` names, and how their locks ended."""
    status = main(["history", "--audit", str(path), *arguments, "--json"])
    said = json.loads(capsys.readouterr().out)
    validator("history").validate(said)
    assert (status == 0) == bool(said["holds"])
    return [f"{each['client']} {each['ended']}".strip() for each in said["holds"]]


def test_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who had it at that time: also who still has it, and whose server was killed; of the lock, above and below it."""
    path = tmp_path / "audit.log"
    (tmp_path / "audit.log.1").write_text(
        line("02:00:00", "started")
        + hold("02:00:10", "02:00:05", "a/b", number=1)
        + hold("03:00:00", "02:30:00", "c", "03:00:00", number=2)
        + hold("03:10:00", "03:09:00", "a", "03:10:00", number=3)
        + "{broken by a kill\n"
    )
    path.write_text(
        line("04:00:00", "started")
        + hold("04:10:00", "04:05:00", "a/b", number=4)
        + line("04:20:00", "broken", by="ann", reason="why", agent="agent-4@b", address="x:1")
        + hold("05:10:00", "05:00:00", "c", number=5)
    )
    assert holders(path, capsys, "a/b") == [
        *("client 1 with the server", "client 3 released", "client 4"),
    ]
    at = "--at=2026-11-25T{}+00:00".format
    assert holders(path, capsys, "a/b", at("03:09:30")) == [
        *("client 1 with the server", "client 3 released"),
    ]
    assert holders(path, capsys, "a", at("04:03:00")) == []
    assert holders(path, capsys, "a", at("23:00:00")) == ["client 4"]
    assert holders(path, capsys, "nothing") == []
    assert main(["history", "--audit", str(path), "a"]) == 0
    out, error = capsys.readouterr()
    assert "or later" in out
    assert "a@x: ann from x:1 ended agent-4@b: why" in out
    assert error == f"{path}: 1 lines can't be read\n"
    for wrong, status in ((["a//b"], 2), (["a", "--at", "noon"], 2)):
        assert main(["history", "--audit", str(path), *wrong]) == status
    assert main(["history", "--audit", str(tmp_path / "none"), "a"]) == 3


def test_times_of_a_night() -> None:
    """A time without a date is the last one that was."""
    now = datetime.fromisoformat("2026-11-25T02:00:00+01:00")
    assert history._moment("01:30", now).isoformat() == "2026-11-25T01:30:00+01:00"
    assert history._moment("03:12:05", now).isoformat() == "2026-11-24T03:12:05+01:00"
    for wrong in ("25:00", "3", "a:b", "2026-11-99T00:00"):
        with pytest.raises(InvalidOption, match="is not a time"):
            history._moment(wrong, now)
