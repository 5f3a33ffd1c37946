"""The examples, and the demo of an election, are programs that run."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.warm import run_program

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ARGUMENTS = {"three_ways.py": ("--tasks", "300")}  # the whole of it takes a quarter of a minute


def check(*command: str | Path) -> str:
    """Run the program in a process of its own; fail unless it ends well and says something."""
    done = run_program(
        [sys.executable, *map(str, command)],
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), f"{command} printed nothing"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    """What the examples that have run have printed."""
    return {}


def output(outputs: dict[str, str], name: str) -> str:
    """What an example prints; it is run once."""
    if name not in outputs:
        outputs[name] = check(ROOT / "examples" / name, *ARGUMENTS.get(name, ()))
    return outputs[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.name for path in EXAMPLES])
def test_example_runs(name: str, outputs: dict[str, str]) -> None:
    """Each example ends with exit status 0, prints something, and no traceback."""
    output(outputs, name)


@pytest.mark.slow
def test_ingest_applies_each_task_once(outputs: dict[str, str]) -> None:
    """One process is killed and one paused; each task counts once, with few agreements."""
    said = output(outputs, "ingest.py")
    assert "each task was applied exactly once: True" in said
    assert sum(map(int, re.findall(r"(\d+) tasks were applied by", said))) == 1000
    assert int(re.findall(r"who owns what: (\d+)", said)[0]) <= 12


def test_help_names_all_examples() -> None:
    """`make run ARGS=--help` says what there is to run, and all of it is there."""
    said = check("-m", "locks", "demo", "--help")
    packages = {path.parent for path in (ROOT / "examples").glob("*/__main__.py")}
    names = {path.stem for path in [*EXAMPLES, *packages]}
    assert set(re.findall(r"^  examples\.(\w+) ", said, re.M)) == names


PROGRAMS = [*EXAMPLES, *sorted((ROOT / "examples").glob("*/__main__.py"))]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_help_of_an_example(path: Path) -> None:
    """`--help` says what an example shows, and does not run it."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    said = check("-m", module, "--help")
    assert said.startswith("usage:")
    assert len(said.splitlines()) > 5


@pytest.mark.parametrize("program", ["print('hello'); raise SystemExit(1)", "pass"])
def test_check_can_fail(program: str, tmp_path: Path) -> None:
    """A program that fails, and one that says nothing, are found."""
    path = tmp_path / "example.py"
    path.write_text(program, encoding="utf-8")
    with pytest.raises(AssertionError):
        check(path)


# --- The shared dictionary ------------------------------------------------------------------------


@pytest.mark.slow
def test_gdict_survives_its_leader_and_a_split(outputs: dict[str, str]) -> None:
    """Nothing written is lost with the leader; after a split all have what both parts wrote."""
    copies = [json.loads(line) for line in re.findall(r" has ({.*)", output(outputs, "gdict.py"))]
    written = {"greeting": "hello", "guests": ["ann", "bob", "eve"], "visits": 6}
    assert copies[0] == written
    assert copies[1] == copies[2] == {**written, "visits": 7}
    one, other, *whole = copies[3:]
    assert (one["greeting"], other["greeting"]) == ("good day", "good night")
    assert "written by 2" not in one
    assert "written by 1" not in other
    assert len(whole) == 3
    assert all(copy == whole[0] for copy in whole)
    assert whole[0] | {"greeting": ""} == {**one, **other, "greeting": ""}
    assert whole[0]["greeting"] in ("good day", "good night")


# --- The pool of workers --------------------------------------------------------------------------


@pytest.mark.slow
def test_workers_have_one_result_for_each_task(outputs: dict[str, str]) -> None:
    """Two leaders are killed at work; each task has its result, and only theirs were done again."""
    said = output(outputs, "workers.py")
    killed = re.findall(r"the leader was killed: (\S+)", said)
    assert len(set(killed)) == 2
    assert "60 results, one of each task: True" in said
    assert "all are right: True" in said
    again = re.findall(r"had them in hand: (.*)", said)
    assert len(again) == 1
    assert len(re.findall(r"\d+", again[0])) <= 2


# --- The demo -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_demo_of_an_election_hands_the_state_over() -> None:
    """Three candidates, the leader is killed, and the next one takes over with what it wrote."""
    said = check("-m", "locks_leader", "demo")
    assert said.count("stands for election.") == 3
    assert said.count(" is elected.") == 2
    (killed,) = re.findall(r"(\w+) is killed", said)
    assert re.findall(r"(\w+) leads, writes Dave", said) == [killed]
    after = said[said.index("is killed") :]
    (heir,) = re.findall(r"(\w+) is elected. The list: Dave\.", after)
    assert heir != killed
    assert f"{heir} leads, writes Erin" in after
    assert "The list: Dave, Erin." in after
    assert "Nothing is lost" in after


@pytest.mark.parametrize("arguments", [[], ["dance"], ["demo", "--loud"]])
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    """A wrong argument is an error of usage (status 2), not a traceback."""
    done = run_program([sys.executable, "-m", "locks_leader", *arguments], timeout=300)
    assert done.returncode == 2
    assert "usage:" in done.stderr
    assert "Traceback" not in done.stderr
