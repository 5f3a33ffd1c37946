"""Run the cautionary tale: the drafts and how each fails, what else goes wrong, and what does not.

python -m examples.cautionary_tale             all of it
python -m examples.cautionary_tale --draft 2   one draft
python -m examples.cautionary_tale --tell "unclean write"
python -m examples.cautionary_tale --draft 3 --n-val 5 --pr one --pw all    in a store of your choice
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from locks.errors import InvalidOption
from locks_lab.explorer.explore import TooManyStates

from .drafts import DRAFTS
from .findings import (
    ANSWERS,
    OTHERS,
    RIGHT,
    STORES,
    WITH_OUTAGES,
    Property,
    Question,
    answer,
    quorums,
    table,
)
from .majority import MORE, PARTS, Part, at_random, cut_off, explore_part, minority
from .model import Setting

__all__ = ["main"]

RANDOM = 300  # random worlds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it.

    Args:
        arguments: The arguments of the command line.

    Returns:
        The exit status: 0, or 1 if a random schedule went wrong with `locks`.
    """
    parser = argparse.ArgumentParser(
        prog="python -m examples.cautionary_tale",
        description="Locks on an eventually consistent store: how each draft fails, told as stories.",
        epilog="WHAT is one of: " + "; ".join([*_SECTIONS, *_TOLD]),
    )
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--draft", choices=[draft.name for draft in DRAFTS], help="this one only")
    alone.add_argument(
        "--tell", metavar="WHAT", choices=[*_SECTIONS, *_TOLD], help="only this (below)"
    )
    parser.add_argument(
        "--thorough", action="store_true", help="more, in minutes: outages, and more with locks"
    )
    store = parser.add_argument_group("the store and the workers, with --draft")
    store.add_argument("--n-val", type=int, metavar="N", help="primary servers; 3")
    for what, name in (("read", "pr"), ("write", "pw")):
        store.add_argument(
            f"--{name}",
            metavar="N",
            help=f"how many answer a {what}: a number, one, quorum, or all",
        )
    store.add_argument("--workers", type=int, metavar="N", help="2")
    store.add_argument(
        "--outages", type=int, metavar="N", help="how often a server becomes unreachable; 0"
    )
    store.add_argument("--wrong-clocks", action="store_true", help="timestamps say nothing")
    store.add_argument("--data-sets", type=int, metavar="N", help="1")
    store.add_argument("--spread", action="store_true", help="workers begin with different ones")
    options = parser.parse_args(arguments)
    given = {name: getattr(options, name) for name in _STORE}
    chosen = {
        name: value for name, value in given.items() if value is not None and value is not False
    }
    if chosen and options.draft is None:
        parser.error(f"--{next(iter(chosen)).replace('_', '-')} goes with --draft")
    if chosen:
        return _own(parser, options.draft, chosen)
    if options.draft is not None:
        return _draft(options.draft)
    if options.tell in _TOLD:
        print(answer(_TOLD[options.tell]))
        return 0
    if options.tell is not None:
        return _SECTIONS[options.tell]()
    return _everything(options.thorough)


def _everything(thorough: bool) -> int:
    began = time.perf_counter()
    for draft in DRAFTS:
        _title(f"Draft {draft.name}: {draft.about}")
        _draft(draft.name)
        print()
    _title("What else goes wrong")
    for question in OTHERS.values():
        print(f"{answer(question)}\n")
    _title("Other stores, wrong clocks, more data sets")
    for question in STORES.values():
        print(f"{answer(question)}\n")
    _quorums()
    print()
    _title("A store that looks and writes in one step, on one server")
    _register()
    print()
    if thorough:
        _title("The drafts with one outage, at any moment")
        for question in WITH_OUTAGES.values():
            print(f"{answer(question, 2_000_000)}\n")
    _title("The same with locks: a majority of three nodes")
    status = _majority(PARTS + MORE if thorough else PARTS)
    print()
    _title("What it costs: a minority can't lock")
    _minority()
    print()
    _title("What a fencing token is for: cut off with the lock in hand")
    _cut_off()
    print()
    _title("The drafts, with two workers, while nothing fails")
    _table()
    print(f"\n{time.perf_counter() - began:.0f} s")
    return status


def _title(text: str) -> None:
    print(f"{text}\n{'=' * len(text)}\n")


def _draft(name: str) -> int:
    """A draft: its failure, and what it has."""
    (draft,) = (draft for draft in DRAFTS if draft.name == name)
    found = sorted(map(answer, ANSWERS[draft]), key=lambda each: each.moves is None)
    print("\n\n".join(map(str, found)))
    return 0


_STORE = ("n_val", "pr", "pw", "workers", "outages", "wrong_clocks", "data_sets", "spread")


def _own(parser: argparse.ArgumentParser, name: str, chosen: dict[str, Any]) -> int:
    """A draft in a store of the user's choice."""
    (draft,) = (draft for draft in DRAFTS if draft.name == name)
    servers = chosen.pop("n_val", 3)
    named = {"one": 1, "quorum": servers // 2 + 1, "all": servers}
    for which in {"pr", "pw"} & set(chosen):
        given = chosen[which]
        if given not in named and not given.isdecimal():
            parser.error(f"--{which} {given}: give a number, one, quorum, or all")
        chosen[which] = named[given] if given in named else int(given)
    setting = Setting(draft, servers=servers, **chosen)
    wanted: list[Property] = ["safe", "live", "free"]
    wanted += ["some"] if setting.data_sets > 1 else []
    try:
        for each in wanted:
            print(f"{answer(Question(f'Draft {name}: {_ASKED[each]}', setting, each))}\n")
    except (InvalidOption, TooManyStates) as error:
        parser.error(str(error))
    return 0


_ASKED: dict[Property, str] = {
    "safe": "two workers on one data set?",
    "live": "a data set that nobody processes?",
    "free": "a lock that stays?",
    "some": "no data set is processed at all?",
}


def _quorums() -> int:
    print(quorums())
    return 0


def _register() -> int:
    for wanted, question in RIGHT.items():
        found = answer(question)
        verdict = "no schedule goes wrong" if found.moves is None else str(found.found.violation)
        print(f"{wanted}: {verdict}, {found.found.states:,} states")
    return 0


def _majority(parts: Iterable[Part] = PARTS) -> int:
    """The parts that are explored, and random schedules."""
    print("Two workers, three nodes; every order of messages:\n")
    for part in parts:
        found = explore_part(part)
        print(f"{part.about:48} {found.states:8,} states  no violation", flush=True)
    tally, failure = at_random(RANDOM)
    seen, events = tally.seen, tally.events
    verdict = "no violation" if failure is None else f"seed {failure.seed}: {failure.error}"
    print(
        f"\n{seen['worlds']} worlds at random, {events['cut']} cuts, {events['crash']} crashes, "
        f"{seen['tokens']} tokens: {verdict}"
    )
    return 0 if failure is None else 1


def _minority() -> int:
    return _print_story(minority())


def _cut_off() -> int:
    return _print_story(cut_off())


def _print_story(lines: Iterable[str]) -> int:
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        print(textwrap.fill(line, 80, subsequent_indent=indent))
    return 0


def _table() -> int:
    print(table())
    return 0


_TOLD = {**OTHERS, **STORES}
_SECTIONS: dict[str, Callable[[], int]] = {
    "table": _table,
    "quorums": _quorums,
    "register": _register,
    "majority": _majority,
    "minority": _minority,
    "cut off": _cut_off,
}


if __name__ == "__main__":
    sys.exit(main())
