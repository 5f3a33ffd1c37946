"""The figure of ten candidates, each in a process of its own, which start at once: until one leads and all agree.

The yardstick is the start of the processes themselves: as many processes at once, each of which imports what a candidate does.
"""

from __future__ import annotations

import socket
import statistics
import sys
import time
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.cluster import on_linux
from benchmarks.crowd_servers import Program, servers, told
from benchmarks.harness import Figure, Report
from benchmarks.lab import COOKIE, HOST, LIMIT, Lab

__all__ = ["FIGURES"]

CANDIDATES = 10
BUSY = 8
TARGET = 5.0
LOOK = 0.1  # seconds between two looks whether all agree


def starts(report: Report, busy: int) -> None:
    """Candidates that start at once, over three servers and in a mesh."""
    if not on_linux(report):
        return
    number = 3 if report.quick else CANDIDATES
    rounds = 1 if report.quick or busy else 2
    if report.quick:
        busy = min(busy, 1)
    beside = f"{busy} busy beside" if busy else "quiet"
    worlds: dict[str, list[tuple[float, float]]] = {"over three servers": [], "in a mesh": []}
    bare = []
    with Lab(report, False) as lab:
        for _ in range(busy):
            lab.start(sys.executable, "-c", "while True: pass")
        for _ in range(rounds):
            begun = time.monotonic()
            told([Program(lab, "bare") for _ in range(number)])
            bare.append(time.monotonic() - begun)
            for world, found in worlds.items():
                found.append(_start(report, number, mesh=world == "in a mesh"))
    for world, found in worlds.items():
        ratios = [whole / alone for (whole, _), alone in zip(found, bare, strict=True)]
        agreed = [whole - imported for whole, imported in found]
        report.add(
            f"{number} candidates {world}, {beside}: until all agree",
            statistics.median(whole for whole, _ in found), "s",
            yardstick="their processes alone", yardstick_value=statistics.median(bare),
            ratio=statistics.median(ratios), target=report.limit(TARGET),
            note=f"{statistics.median(agreed):.2f} s after the last one was imported, at most {max(agreed):.2f} s",
        )  # fmt: skip


def _start(report: Report, number: int, mesh: bool) -> tuple[float, float]:
    """Start candidates; the seconds until all agree, and until the last one had imported what it needs."""
    with TemporaryDirectory() as folder, Lab(report, False) as lab:
        given = _mesh(number) if mesh else [
            {"name": f"candidate{n}@{HOST}", **given}
            for given in [servers(lab, 3, folder).given]
            for n in range(number)
        ]  # fmt: skip
        begun = time.monotonic()
        programs = [Program(lab, "candidate", **each) for each in given]
        imported = max(program.end() for program in programs)
        until = time.monotonic() + 2 * LIMIT
        while (agreed := _agreed(programs)) is None:
            if time.monotonic() > until:
                raise TimeoutError(f"{number} candidates don't agree within {2 * LIMIT:g} s")
            time.sleep(LOOK)
        return agreed - begun, imported - begun


def _mesh(number: int) -> list[dict[str, Any]]:
    """What nodes are given that listen, and know each other beforehand."""
    sockets = [socket.socket() for _ in range(number)]
    for sock in sockets:
        sock.bind((HOST, 0))
    names = [f"candidate{n}@{HOST}" for n in range(number)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    addresses = [f"{name}:{port}" for name, port in zip(names, ports, strict=True)]
    return [
        {
            "name": name,
            "listen": port,
            "cookie": COOKIE,
            "peers": [each for each in addresses if not each.startswith(f"{name}:")],
        }
        for name, port in zip(names, ports, strict=True)
    ]


def _agreed(programs: list[Program]) -> float | None:
    """When the last one knew the leader; nothing while not all do."""
    for program in programs:
        program.begin()
    told_last = [notes[-1] for program in programs if (notes := program.end())]
    if len(told_last) < len(programs) or sum(leads for _, leads in told_last) != 1:
        return None
    return max(float(at) for at, _ in told_last)


FIGURES = [
    Figure(
        "crowd_starts",
        "candidates in processes of their own, which start at once",
        {"quiet": partial(starts, busy=0), "busy": partial(starts, busy=BUSY)},
    ),
]
