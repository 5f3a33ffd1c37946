"""Changes the list of lock servers, as a client of them: asks them step by step (`locks.core.rosters.Changer`).

Whoever does this may die at any point. The next one finishes what it finds; if that takes too long, it undoes it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from locks.core.facts import AcceptRoster, AskRoster, LearnRoster, PrepareRoster, Question
from locks.core.rosters import Changer, Roster, RosterFact, name_of
from locks.errors import CannotServe, InvalidOption, OperatingError
from locks.model import majority
from locks.node.node import Node
from locks.node.observing.inquiries import ask_all
from locks.node.peers.rosters import Rosters
from locks.otp.options import parse_peer

__all__ = ["Known", "added", "change", "known", "removed", "replaced"]

ANSWER = 5.0  # seconds to wait for the answers of one step
PAUSE = 0.1  # seconds until a step is repeated
UNDO = 10.0  # seconds to undo a change
SALTS = 1000


class Known(NamedTuple):
    """What the servers know of their list.

    Attributes:
        roster: The newest.
        facts: Their answers, by place.
        silent: Those that gave none, and why.
    """

    roster: Roster
    facts: dict[str, RosterFact]
    silent: dict[str, str]


# --- What is wanted -----------------------------------------------------------------------------


def added(place: str) -> Callable[[Roster], tuple[str, ...]]:
    """A list with one more server."""
    name, _ = parse_peer(place, epmd=False)

    def wanted(roster: Roster) -> tuple[str, ...]:
        if name in map(name_of, roster.servers):
            raise InvalidOption(f"{name} is already one of the servers", name=name)
        return (*roster.servers, place)

    return wanted


def removed(name: str) -> Callable[[Roster], tuple[str, ...]]:
    """A list without a server."""

    def wanted(roster: Roster) -> tuple[str, ...]:
        gone = _found(roster, name)
        left = tuple([each for each in roster.servers if each != gone])
        if len(left) < max(1, roster.copies):
            raise InvalidOption(
                f"can't remove {name}: {len(left)} servers would be left"
                + (f", and each lock id is on {roster.copies}" if roster.copies else "")
                + "; replace it, or add another one first",
                name=name,
            )
        return left

    return wanted


def replaced(name: str, place: str) -> Callable[[Roster], tuple[str, ...]]:
    """A list with one server in the place of another."""
    add = added(place)

    def wanted(roster: Roster) -> tuple[str, ...]:
        gone = _found(roster, name)
        return tuple([each for each in add(roster) if each != gone])

    return wanted


def _found(roster: Roster, name: str) -> str:
    """The place of a server, by its name or place."""
    found = [each for each in roster.servers if name_of(each) == name_of(name)]
    if not found:
        names = ", ".join(map(name_of, roster.servers))
        raise InvalidOption(f"{name} is not one of the servers {names}", name=name)
    return found[0]


# --- Questions ----------------------------------------------------------------------------------


def _ask(
    node: Node, questions: Mapping[str, Question]
) -> tuple[dict[str, RosterFact], dict[str, str]]:
    """Ask servers, by place; return the answers, and why others gave none."""
    places = {name_of(place): place for place in questions}
    said, silent = ask_all(
        node, {name_of(place): each for place, each in questions.items()}, ANSWER
    )
    facts = {places[name]: fact for name, fact in said.items() if isinstance(fact, RosterFact)}
    why = {places[name]: text for name, text in silent.items()}
    return facts, why


def known(node: Node) -> Known:
    """What the servers know of their list now.

    Raises:
        CannotServe: Too few of them answer.
        InvalidOption: They were started with different lists, or with what is no list.
    """
    rosters = _rosters(node)
    if not rosters.can_change:
        raise InvalidOption(
            'only a list of servers with require="majority" can be changed: pass all of them, as name@host:port'
        )
    for _ in range(3):  # what they know may have more servers
        mine = rosters.roster
        facts, silent = _ask(node, dict.fromkeys(mine.places, AskRoster()))
        newest = max((fact.roster for fact in facts.values()), default=mine, key=_number)
        if newest.number <= mine.number:
            break
        node.turn.run(rosters.learn, newest)
    for place, fact in facts.items():
        there = fact.roster
        same = _names(there) == _names(mine) and there.copies == mine.copies
        if there.number == mine.number == 0 and not same:
            raise InvalidOption(
                f"{name_of(place)} has the servers {_all(there)}, but this command was started with {_all(mine)}; use the same list",
                name=place,
            )
    answered = sum(place in facts for place in mine.servers)
    if answered < majority(len(mine.servers)):
        reasons = "; ".join(f"{name_of(place)}: {why}" for place, why in silent.items())
        raise CannotServe(
            f"only {answered} of {len(mine.servers)} servers answer: {reasons}",
            nodes=tuple(map(name_of, silent)),
        )
    return Known(mine, facts, silent)


def _number(roster: Roster) -> int:
    return roster.number


def _all(roster: Roster) -> str:
    copies = f" (copies={roster.copies})" if roster.copies else ""
    return f"{', '.join(sorted(_names(roster)))}{copies}"


def _names(roster: Roster) -> set[str]:
    return {*map(name_of, roster.servers)}


# --- Changes ------------------------------------------------------------------------------------


def change(
    node: Node,
    wish: Callable[[Roster], tuple[str, ...]],
    timeout: float,
    say: Callable[[str], object] = lambda _: None,
) -> Roster:
    """Change the list; first finish a change that was begun by another one, or undo it.

    Args:
        node: This program's node, a client of the servers.
        wish: Returns the list that is wanted, from the present one.
        timeout: Seconds to wait at most until programs have released what they have by the old list.
        say: Called with a line of text when something has happened.

    Returns:
        The roster with the new list.

    Raises:
        InvalidOption: The change is not possible.
        CannotServe: Too few servers answer.
        OperatingError: The change was not carried out; it was undone, or another one will finish it.
    """
    found, facts, _ = known(node)
    able = [place for place in found.servers if place in facts and not facts[place].why]
    if len(able) < majority(len(found.servers)):
        why = next(fact.why for fact in facts.values() if fact.why)
        raise OperatingError(f"can't change the list of servers: {why}")
    if found.is_changing:
        say(f"a change to {_shown(found.wanted)} is under way: it is finished first")
        found = _run(node, Changer(found.wanted, found, salt=_salt()), timeout, say)
    wanted = wish(found)
    for place in {*wanted} - {*found.servers}:
        say(f"connecting with {name_of(place)}, for at most {ANSWER:g} seconds")
    _check_new(node, found, wanted)
    roster = _run(node, Changer(wanted, found, salt=_salt()), timeout, say)
    if {*roster.servers} != {*wanted}:
        raise OperatingError(f"another change came first: the servers are {_shown(roster.servers)}")
    gone = tuple([place for place in found.servers if place not in wanted])
    missing = _until_joined(node, roster, node.clock() + timeout) if gone else ()
    if missing:
        say(
            f"Keep {_shown(gone)} running while `locks servers` lists programs that still have locks there: {', '.join(missing)}"
        )
    elif gone:
        say(f"{_shown(gone)} is in no list any more and can be stopped now")
    return roster


def _until_joined(node: Node, roster: Roster, deadline: float) -> tuple[str, ...]:
    """Wait until no program has locks on servers that are not in the list any more; return those that have."""
    while True:
        facts, _ = _ask(node, dict.fromkeys(roster.servers, AskRoster()))
        missing = {name for fact in facts.values() for name in fact.missing}
        if not missing or node.clock() >= deadline:
            return tuple(sorted(missing))
        time.sleep(PAUSE)


def _salt() -> int:
    return 1 + secrets.randbelow(SALTS)


def _shown(places: tuple[str, ...]) -> str:
    return ", ".join(map(name_of, places))


def _check_new(node: Node, roster: Roster, wanted: tuple[str, ...]) -> None:
    """Check that a server which is to be added is there, and can take part."""
    for place in (*roster.servers, *wanted):
        parse_peer(place, epmd=False)
    for place in {*wanted} - {*roster.servers}:
        name = name_of(place)
        node.connect(place, timeout=ANSWER)
        facts, silent = _ask(node, {place: AskRoster()})
        if place not in facts:
            raise CannotServe(
                f"the new server {name} does not answer: {silent.get(place, 'it gives another answer')}. Start it with the present "
                "list of servers, which it is not in, and with --state FILE",
                nodes=(name,),
            )
        if facts[place].why:
            raise InvalidOption(f"can't add {name}: {facts[place].why}", name=name)


def _run(node: Node, changer: Changer, timeout: float, say: Callable[[str], object]) -> Roster:
    """Ask servers until the list is as it is wanted, or the change is undone."""
    deadline = node.clock() + timeout
    wanted, base = changer.wants, changer.roster
    why: dict[str, str] = {}
    missing: tuple[str, ...] = ()
    is_undone, reason = False, ""
    while changer.phase != "over":
        place = changer.phase, changer.roster.number, changer.ballot
        facts, silent = _ask(node, {each: _question(changer) for each in changer.asked})
        why, missing = dict(silent), ()
        for each, fact in facts.items():
            missing = tuple(sorted({*missing, *fact.missing}))
            if fact.why and not fact.good:
                why[each] = fact.why
                if changer.phase == "prepare" and not changer.roster.is_changing:
                    raise OperatingError(f"can't change the list of servers: {fact.why}")
            changer = changer.heard(each, fact)
            if place != (changer.phase, changer.roster.number, changer.ballot):
                break
        roster = changer.roster
        if roster.number != place[1]:
            node.turn.run(_rosters(node).learn, roster)
            if roster.is_changing:
                say(f"both lists are in force: {_shown(roster.places)}")
            elif changer.phase != "over" and {*roster.servers} not in ({*wanted}, {*base.servers}):
                return roster  # somebody else has changed it
        elif place == (changer.phase, roster.number, changer.ballot):
            time.sleep(PAUSE)
        if node.clock() >= deadline and changer.phase != "over":
            if is_undone or not roster.is_changing:
                raise OperatingError(
                    _over(
                        why, missing, "run the command again: it finishes the change, or undoes it"
                    )
                )
            is_undone, reason = True, _over(why, missing, "the change was undone")
            deadline = node.clock() + UNDO
            changer = changer.undoing()
    if is_undone and {*changer.roster.servers} != {*wanted}:
        raise OperatingError(reason)
    return changer.roster


def _rosters(node: Node) -> Rosters:
    assert node.cluster is not None
    return node.cluster.rosters


def _over(why: Mapping[str, str], missing: tuple[str, ...], then: str) -> str:
    reasons = [f"{name_of(place)}: {text}" for place, text in why.items()]
    if missing:
        reasons.append(
            "these programs still have locks or requests by the old list, or elections with nodes=[...], or run an older version: "
            + ", ".join(missing)
        )
    return f"timed out: {'; '.join(reasons) or 'too few servers agreed'}; {then}"


def _question(changer: Changer) -> Question:
    roster = changer.roster
    if changer.phase in ("tell", "collect"):
        return LearnRoster(roster, changer.phase == "collect") if roster.number else AskRoster()
    if changer.phase == "prepare":
        return PrepareRoster(roster.number, changer.ballot, changer.seals)
    assert changer.best is not None
    return AcceptRoster(changer.ballot, changer.best)
