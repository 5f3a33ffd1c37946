"""How many messages our rules take, and others: `python -m benchmarks.messages [--write]`.

Messages are counted in the simulator (`locks_lab`), not timed: the same on each machine.
`docs/algorithm.md` and `docs/differences.md` say what is counted; with `--write` the tables there,
between comments that name them, and the plots are made anew.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from benchmarks.plot import Line, plot
from locks_lab.explorer.small_worlds import ring, rings, start
from locks_lab.original import runs as original
from locks_lab.original.world import World as OriginalWorld
from locks_lab.schedules.plan import Plan
from locks_lab.schedules.schedule import calm, run
from locks_lab.worlds.host import Violation
from locks_lab.worlds.rules import RULES, Rule
from locks_lab.worlds.script import Script
from locks_lab.worlds.world import World

__all__ = ["PAGES", "TABLES", "columns", "markdown", "plots", "rewritten"]

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {"together": DOCS / "algorithm.md", "left stuck": DOCS / "differences.md"}
RINGS = (2, 3, 4, 6, 10, 20, 50)
WAITERS = (1, 2, 5, 10, 20, 50, 100, 200)
SMALL_RINGS = (2, 3, 4, 5, 6)
ORDERS = 10  # of each ring, at random
SCHEDULES = 10  # of each order of a small ring


# --- Counting -----------------------------------------------------------------------------------


class Resolution(NamedTuple):
    """The messages that resolved one deadlock.

    Attributes:
        found: Messages between agents until the lock is given up.
        between: Messages between agents, in all.
        others: Messages from and to the lock server.
    """

    found: int
    between: int
    others: int


def agents_alone(name: str) -> Rule:
    """A rule of agents, without what our lock servers do about long circles of their own."""
    return RULES[name]._replace(server=RULES["piecewise"].server)


def resolution(rule: Rule, order: Sequence[int], seed: int | None = None) -> Resolution:
    """Let a ring form, and resolve itself; count from the request that closes it.

    Args:
        rule: The rule that agents and lock server follow.
        order: The agents in the order in which each waits for the next one.
        seed: Deliver at random; otherwise agents look when all messages have arrived.
    """
    world = start(Plan(ring(order), rule=rule), held=True)
    for number in range(1, len(order)):
        world.step(number)
        world.deliver()
    before = world.sent.copy()
    world.step(len(order))
    if seed is None:
        world.deliver()
    else:
        calm(world, random.Random(seed))
    (report,) = world.carried_out
    assert len(report.cycle) == len(order)
    assert world.before_surrender is not None
    sent = world.sent - before
    found = world.before_surrender - before
    between = _between(sent)
    return Resolution(_between(found), between, sent.total() - between)


def _between(sent: Counter[str]) -> int:
    """Messages between agents."""
    return sent["Knowledge"]


def handing_on(rule: Rule, waiters: int) -> tuple[int, int]:
    """Messages until the next waiter has a lock, and until all have had it."""
    world = World(["write a"] * (waiters + 1), rule=rule)
    for client in world.clients:
        world.step(client.number)
        world.deliver("n1")
    counts = []
    for client in world.clients[:waiters]:
        world.deliver_between("n1", client.number)
        before = world.sent.total()
        world.step(client.number)  # ends
        world.deliver("n1")
        counts.append(world.sent.total() - before)
    return counts[0], sum(counts)


def stuck(scripts: tuple[Script, ...]) -> int:
    """In how many of some random schedules a ring stays deadlocked, when all ask at once."""
    found = 0
    for seed in range(SCHEDULES):
        try:
            run(start(Plan(scripts), held=True), random.Random(seed))
        except Violation:
            found += 1
    return found


def original_stuck(scripts: tuple[Script, ...]) -> int:
    """The same in the model of the original."""
    worlds = (original.held(OriginalWorld(scripts)) for _ in range(SCHEDULES))
    return sum(original.outcome(w, seed).kind == "stuck" for seed, w in enumerate(worlds))


# --- Tables -------------------------------------------------------------------------------------


def together(sizes: Iterable[int]) -> Iterator[Sequence[str]]:
    """Rings, when agents look after all that was on its way has arrived."""
    yield _HEAD
    for size in sizes:
        yield _row(size, lambda rule, order, _: resolution(rule, order))


def at_random(sizes: Iterable[int]) -> Iterator[Sequence[str]]:
    """Rings, when each message takes its own time, and agents look at any time."""
    yield _HEAD
    for size in sizes:
        yield _row(size, resolution)


_HEAD = ("agents", "ours, until found", "ours", "larger", "everyone", "with the lock server")


def _row(size: int, count: Callable[[Rule, Sequence[int], int], Resolution]) -> Sequence[str]:
    ours, larger, everyone = (
        [count(agents_alone(name), _order(size, seed), seed) for seed in range(ORDERS)]
        for name in ("ours", "larger", "everyone")
    )
    return (
        str(size),
        _cell(each.found for each in ours),
        *(_cell(each.between for each in found) for found in (ours, larger, everyone)),
        _cell(each.others for found in (ours, larger, everyone) for each in found),
    )


def _order(size: int, seed: int) -> list[int]:
    order = list(range(size))
    random.Random(seed).shuffle(order)
    return order


def handed_on(waiters: Iterable[int]) -> Iterator[Sequence[str]]:
    """A contended lock."""
    yield ("waiters", "ours", "tell-all", "ours, all in turn", "tell-all, all in turn")
    for count in waiters:
        ours, others = (handing_on(RULES[name], count) for name in ("ours", "tell-all"))
        yield [str(n) for n in (count, ours[0], others[0], ours[1], others[1])]


def left_stuck(sizes: Iterable[int]) -> Iterator[Sequence[str]]:
    """Rings that stay deadlocked."""
    yield ("agents", "orders", "never", "sometimes", "always", "runs", "ours: runs")
    for size in sizes:
        found = [original_stuck(scripts) for scripts in rings(size)]
        ours = sum(map(stuck, rings(size)))
        times = Counter("never" if n == 0 else "always" if n == SCHEDULES else "" for n in found)
        runs = len(found) * SCHEDULES
        yield (
            *(str(n) for n in (size, len(found), times["never"], times[""], times["always"])),
            f"{100 * sum(found) / runs:.0f} %",
            f"{100 * ours / runs:.0f} %",
        )


def _cell(numbers: Iterable[int]) -> str:
    """The mean, and the largest in brackets if it differs."""
    found = list(numbers)
    if min(found) == max(found):
        return str(found[0])
    return f"{mean(found):.1f} ({max(found)})"


# For each table on the page how its rows are made, and for what sizes.
TABLES: dict[str, tuple[Callable[[Iterable[int]], Iterator[Sequence[str]]], Sequence[int]]] = {
    "together": (together, RINGS),
    "at random": (at_random, RINGS),
    "handed on": (handed_on, WAITERS),
    "left stuck": (left_stuck, SMALL_RINGS),
}


# --- The pages ----------------------------------------------------------------------------------


def markdown(rows: Iterable[Sequence[str]], words: Collection[int] = ()) -> str:
    """A table as Markdown; all columns are numbers, but those that are words."""
    head, *others = rows
    rule = ["---" if column in words else "---:" for column in range(len(head))]
    lines = [head, rule, *others]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def rewritten(page: str, tables: dict[str, str]) -> str:
    """The page with these tables in their places."""
    for name, text in tables.items():
        before, begin, rest = page.partition(f"<!-- table: {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise ValueError(f"there is no place for the table {name!r} on the page")
        page = f"{before}{begin}\n{text}\n\n{end}{after}"
    return page


def columns(table: str) -> dict[str, list[float]]:
    """The numbers in a table, by column."""
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    return {head: [float(row[i].split()[0]) for row in rows[2:]] for i, head in enumerate(rows[0])}


def plots(tables: dict[str, str]) -> dict[str, str]:
    """The plots of the tables, by file name."""
    lines = []
    for kind, name in enumerate(("ours", "larger", "everyone")):
        for table, dashed in (("together", False), ("at random", True)):
            found = columns(tables[table])
            points = [point for point in zip(found["agents"], found[name], strict=True) if point[1]]
            label = name if not dashed else f"{name}, at random"
            lines.append(Line(label, points, kind, dashed))
    found = columns(tables["handed on"])
    handed = [
        Line(name, list(zip(found["waiters"], found[name], strict=True)), kind)
        for name, kind in (("ours", 0), ("tell-all", 2))
    ]
    return {
        "messages-rings.svg": plot(
            lines,
            "agents in the ring",
            "messages between agents",
            "Messages between agents for one deadlock, against the size of the ring",
        ),
        "messages-handing-on.svg": plot(
            handed,
            "agents that wait for the lock",
            "messages",
            "Messages for handing a lock on, against the number of agents that wait for it",
        ),
    }


def main() -> None:
    """Print the tables, or write them into the pages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.messages", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write them into the pages")
    write = parser.parse_args().write
    tables = {}
    for name, (rows, sizes) in TABLES.items():
        tables[name] = markdown(rows(sizes))
        print(f"\n{name}\n\n{tables[name]}", flush=True)
    if write:
        for name, page in PAGES.items():
            text = rewritten(page.read_text(encoding="utf-8"), {name: tables[name]})
            page.write_text(text, encoding="utf-8")
        for name, text in plots(tables).items():
            (DOCS / "img" / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
