"""What is recorded of other people's test suites, and the tables of it in `docs/others.md`.

`python -m tests.others.record` runs all of them and records the results; with names, only these.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.others.accepted import ACCEPTED, SOMETIMES, Difference
from tests.others.running import Outcome, Unavailable, run
from tests.others.suites import SUITES, Suite

__all__ = ["Result", "compared", "describe_differences", "describe_suites", "recorded", "result_of"]

RESULTS = Path(__file__).with_name("results.json")


class Result(NamedTuple):
    """What is recorded of a suite.

    Attributes:
        version: Of which version.
        ran: How many tests it has, without those that its authors skip.
        passed: How many of them pass.
    """

    version: str
    ran: int
    passed: int


def recorded() -> dict[str, Result]:
    """What is recorded, by the suite's name."""
    found: dict[str, list[object]] = json.loads(RESULTS.read_text("utf-8"))
    return {name: Result(*each) for name, each in found.items()}  # type: ignore[arg-type]


def accepted(suite: str) -> set[str]:
    """The tests that may fail."""
    return {test for tests in ACCEPTED[suite].values() for test in tests}


def result_of(suite: str, version: str, found: Mapping[str, Outcome]) -> Result:
    """What there is to record: what passes by chance counts as a difference."""
    ran = {name for name, each in found.items() if each.outcome != "skipped"}
    passed = {name for name in ran if found[name].outcome == "passed"}
    return Result(version, len(ran), len(passed - (SOMETIMES & accepted(suite))))


def compared(
    suite: str, version: str, found: Mapping[str, Outcome], before: Mapping[str, Result]
) -> list[str]:
    """What is not as it is accepted and recorded, a line each; in another version, tests may be missing."""
    may = accepted(suite)
    lines = [
        f"{name} fails, which is not accepted: {each.why}"
        for name, each in found.items()
        if each.outcome == "failed" and name not in may
    ]
    lines += [
        f"{name} passes: it is no difference any more"
        for name in sorted(may - SOMETIMES)
        if name in found and found[name].outcome == "passed"
    ]
    was, now = before.get(suite), result_of(suite, version, found)
    if was is None or (was.version == version and was != now):
        lines.append(
            f"there is recorded {was}, and found {now}: python -m tests.others.record {suite}"
        )
    return lines


def describe_suites() -> str:
    """The suites, as a table."""
    results = recorded()
    rows = [
        (suite.whose, suite.against, *map(str, results[suite.name]), _numbers(suite))
        for suite in SUITES
    ]
    return _table(("Suite", "Against", "Version", "Ran", "Passed", "Differences"), rows)


def _numbers(suite: Suite) -> str:
    kinds = _kinds()
    return (
        ", ".join(f"{kinds.index(each) + 1}" for each in kinds if each in ACCEPTED[suite.name])
        or "none"
    )


def describe_differences() -> str:
    """The differences that are accepted, by kinds, as a table."""
    rows = [
        (str(number), kind.what, kind.why, ", ".join(_tests(kind)))
        for number, kind in enumerate(_kinds(), 1)
    ]
    return _table(("", "What `locks` does", "Why", "Tests"), rows)


def _kinds() -> list[Difference]:
    return list(dict.fromkeys(kind for suite in SUITES for kind in ACCEPTED[suite.name]))


def _tests(kind: Difference) -> list[str]:
    """The tests of a kind, each name once, as its authors call it."""
    tests = (test for suite in SUITES for test in ACCEPTED[suite.name].get(kind, ()))
    return [f"`{test}`" for test in dict.fromkeys(_name(test) for test in tests)]


def _name(test: str) -> str:
    *where, name = test.split("::")
    of = [part.removeprefix("Test") for part in where if not part.startswith("test_")]
    return ".".join([*of, name.partition("[")[0]])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(names: Sequence[str]) -> int:
    """Run suites, and record them."""
    results = recorded() if RESULTS.exists() else {}
    for suite in SUITES:
        if names and suite.name not in names:
            continue
        try:
            found = run(suite)
        except Unavailable as error:
            print(f"{suite.name}: {error}")
            continue
        version = suite.source.version()
        results[suite.name] = result_of(suite.name, version, found)
        print(f"{suite.name}: {results[suite.name]}")
        for line in compared(suite.name, version, found, results):
            print(f"  {line}")
    lines = (f"  {json.dumps(name)}: {json.dumps(results[name])}" for name in sorted(results))
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
