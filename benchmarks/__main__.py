"""The command line: `python -m benchmarks [--only NAME ...] [--quick] [--json FILE]`.

Each figure runs in processes of its own, one for each context, so that none of them finds a hub,
garbage or threads left by another one, and none can take all the memory.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gevent

from benchmarks import (
    bank,
    beam,
    cluster,
    contention,
    crowd,
    crowd_hot,
    crowd_silent,
    crowd_starts,
    deadlocks,
    engines,
    facts,
    imports,
    leader,
    machine,
    memory,
    mvcc,
    ownership,
    page,
    placed,
    spokes,
    starts,
    table_lock,
    takeover,
    tasks,
    transactions,
)
from benchmarks.harness import Figure, Report, Row, table

MODULES: list[Any] = [
    *(transactions, contention, deadlocks, table_lock, memory, bank, cluster, leader, takeover),
    *(ownership, mvcc, spokes, placed, machine, tasks, facts, page, beam, starts, imports),
    *(crowd, crowd_hot, crowd_silent, crowd_starts, engines),
]
FIGURES: dict[str, Figure] = {
    figure.name: figure for module in MODULES for figure in module.FIGURES
}
CROWD = [name for name in FIGURES if name.startswith("crowd_")]
GROUPS = {"crowd": CROWD}
"""Names for several figures."""
ROOT = Path(__file__).parents[1]
MEMORY_LIMIT = 2 << 30
TIME_LIMIT = 240  # seconds for one process; a figure takes a fraction of that


def main() -> int:
    """Run what the command line says; 1 when a figure could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=[*FIGURES, *GROUPS], default=list(FIGURES),
        help=f"measure only these: {', '.join(FIGURES)}; crowd is all that begin with it",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="small sizes: a smoke test")
    parser.add_argument(
        "--json", metavar="FILE",
        help="write JSON, too; - writes it to the standard output and the tables to the other one",
    )  # fmt: skip
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(
            json.dumps(_work(arguments.worker[0], arguments.worker[1], arguments.quick).as_json())
        )
        return 0
    return _run_all(arguments)


def _run_all(arguments: argparse.Namespace) -> int:
    begun = time.monotonic()
    out = sys.stderr if arguments.json == "-" else sys.stdout
    results: dict[str, Any] = {}
    failed = []
    for name in [each for given in arguments.only for each in GROUPS.get(given, [given])]:
        figure = FIGURES[name]
        contexts: dict[str, Any] = {}
        rows: list[Row] = []
        skipped: dict[str, None] = {}
        for context in figure.contexts:
            found = _run_worker(name, context, arguments.quick)
            contexts[context] = found
            if "failed" in found:
                failed.append(f"{name} ({context}): {found['failed']}")
                continue
            for row in found["rows"]:
                if len(figure.contexts) > 1:
                    row["case"] = f"{context}: {row['case']}"
                rows.append(Row(**row))
            skipped |= dict.fromkeys(found["skipped"])
        results[name] = {"title": figure.title, "contexts": contexts}
        print(table(f"{name}: {figure.title}", rows, skipped), file=out, flush=True)
    took = time.monotonic() - begun
    print(f"{took:.0f} s", *failed, sep="\n", file=out)
    if arguments.json:
        text = json.dumps(
            {"about": _about(arguments.quick, took), "figures": results}, indent=2, default=str
        )
        if arguments.json == "-":
            print(text)
        else:
            Path(arguments.json).write_text(text + "\n", encoding="utf-8")
    return 1 if failed else 0


def _run_worker(name: str, context: str, quick: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks", "--worker", name, context]
    command += ["--quick"] if quick else []
    begun = time.monotonic()
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, timeout=TIME_LIMIT, check=False, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {TIME_LIMIT} s"}
    if done.returncode:
        return {"failed": f"ended with {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["seconds"] = round(time.monotonic() - begun, 1)
    return found


def _work(name: str, context: str, quick: bool) -> Report:
    """Measure one figure in one context, in this process."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    logging.getLogger("locks").addHandler(logging.NullHandler())  # deadlocks are no news here
    report = Report(quick)
    function = FIGURES[name].contexts[context]
    if context == "hub":
        gevent.spawn(function, report).get()
    else:
        _in_thread(function, report)
    return report


def _in_thread(function: Callable[[Report], None], report: Report) -> None:
    """Run it in a thread other than the main one, like most threads of a program."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            function(report)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _processors() -> int | None:
    """How many processors this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _about(quick: bool, took: float) -> dict[str, Any]:
    return {
        "quick": quick,
        "seconds": round(took, 1),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("gevent", "greenlet", "pykka")},
        "processors": _processors(),
        "machine": platform.platform(),
    }


if __name__ == "__main__":
    sys.exit(main())
