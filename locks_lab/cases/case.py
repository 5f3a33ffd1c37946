"""Cases: a world and its schedule, written down so that a run can be repeated.

A seed determines a run, but only as long as worlds are drawn from seeds in the same way. A case
needs no seed. Its schedule is a list of *moves*: the choices of `locks_lab.worlds.events`, with the
numbers of clients instead of agents. So a move still makes sense when something else in the world
is changed:

    1            client 1 takes its next step
    1>n1  n1>1   a message arrives: from the agent of client 1 at the lock server of n1, or back
    1>2          a message arrives from the agent of client 1 at the one of client 2
    1.2>n1       from the second agent of client 1, which has begun again
    s1           the agent of client 1 examines what it knows (it settles)
    t1           client 1 gives up waiting (it times out)
    d1  x1       client 1 dies: its agent ends, or crashes
    notice:n1,n2     n1 notices that its connection to n2 is lost, or is back
    connect:n1,n2    the two are connected again
    cut:n1,n2  mend:n1,n2  crash:n1  restart:n1

A replay leaves out moves that are not possible. After the moves, the run continues until nothing
can happen any more, always in the same order (`locks_lab.schedules.schedule.finish`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Literal, NamedTuple

from locks.errors import InvalidOption, assert_never
from locks_lab.applications.breaking import read_change, write_change
from locks_lab.schedules.plan import Plan, node_names
from locks_lab.schedules.schedule import endless, finish
from locks_lab.worlds.client import SERIALS, Fate
from locks_lab.worlds.events import Choice
from locks_lab.worlds.network import Link, NodeChange, Pair, PairChange, Party
from locks_lab.worlds.rules import OURS, RULES, Rule
from locks_lab.worlds.script import Script, parse_script, write_script
from locks_lab.worlds.world import Faults, World

__all__ = [
    "OPTIONS",
    "Case",
    "Move",
    "MoveKind",
    "Replay",
    "case_of",
    "kind_of",
    "listed",
    "pairs_from",
    "parse_case",
    "replay",
]

MoveKind = Literal["deliver", "step", "settle", "time out"] | Fate | PairChange | NodeChange
LETTERS: dict[str, MoveKind] = {"s": "settle", "t": "time out", "d": "ends", "x": "crashes"}
OPTIONS = ("abort_on_deadlock", "await_nodes")

_LINK = re.compile(r"([^\s>:]+)>([^\s>:]+)")
_CLIENT = re.compile(rf"([{''.join(LETTERS)}]?)(\d+)")
_CLIENT_NODE = re.compile(r"c\d+")
_AGENT = re.compile(r"(\d+)(?:\.(\d+))?")


class Move(NamedTuple):
    """Something that happens, in terms of clients' numbers and nodes.

    Attributes:
        kind: As for a choice; `"ends"` and `"crashes"` instead of `"die"`.
        parties: Numbers of clients and names of nodes; `"1.2"` is the second agent of client 1.
    """

    kind: MoveKind
    parties: tuple[str, ...]

    def __str__(self) -> str:
        match self.kind:
            case "deliver":
                return ">".join(self.parties)
            case "step":
                return self.parties[0]
            case "settle" | "time out" | "ends" | "crashes":
                (letter,) = (letter for letter, kind in LETTERS.items() if kind == self.kind)
                return letter + self.parties[0]
            case "notice" | "connect" | "cut" | "mend" as kind:
                one, other = self.parties
                return write_change((kind, (one, other)))
            case "crash" | "restart" as kind:
                return write_change((kind, self.parties[0]))
            case _:
                assert_never(self.kind)


class Case(NamedTuple):
    """A world and its schedule.

    Attributes:
        scripts: The scripts of the clients.
        nodes: The nodes.
        homes: The node of each client; if empty, all clients are on the first node. Homes that are
            not among the nodes are client nodes, which are connected only with the nodes.
        options: Options of the agents.
        moves: The schedule.
        rule: The machines of the world.
        unlinked: Pairs of nodes that are never connected.
    """

    scripts: tuple[Script, ...]
    nodes: tuple[str, ...] = ("n1",)
    homes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    rule: Rule = OURS
    unlinked: tuple[Pair, ...] = ()

    @property
    def faults(self) -> Faults:
        """The faults that occur in its moves."""
        kinds = [move.kind for move in self.moves]
        fates: dict[int, Fate] = {
            int(move.parties[0]): move.kind
            for move in self.moves
            if move.kind in ("ends", "crashes") and int(move.parties[0]) <= len(self.scripts)
        }
        fragile = tuple(dict.fromkeys((*self.nodes, *self.homes)))
        return Faults(tuple(fates.items()), kinds.count("cut"), kinds.count("crash"), fragile)

    @property
    def plan(self) -> Plan:
        """The world before anything has happened, as a plan."""
        return Plan(
            self.scripts,
            self.nodes,
            self.homes,
            self.faults,
            self.options,
            rule=self.rule,
            unlinked=self.unlinked,
        )

    def world(self, trace: bool = False) -> World:
        """The world before anything has happened."""
        return self.plan.world(trace)

    def __str__(self) -> str:
        """The arguments of `python -m locks sim replay` that describe it."""
        words: list[str] = []
        for steps in self.scripts:
            words += ["--client", write_script(steps)]
        if self.nodes != ("n1",):
            count = str(len(self.nodes))
            words += ["--nodes", count if nodes_from(count) == self.nodes else ",".join(self.nodes)]
        if self.homes:
            words += ["--homes", ",".join(self.homes)]
        if self.unlinked:
            words += ["--unlinked", ",".join("-".join(pair) for pair in self.unlinked)]
        if self.options:
            words += ["--options", ",".join(self.options)]
        if self.rule is not OURS:
            words += ["--rule", self.rule.name]
        if self.moves:
            words += ["--schedule", " ".join(map(str, self.moves))]
        return " ".join(_quoted(word) for word in words)


class Replay(NamedTuple):
    """The result of a case.

    Attributes:
        world: The world.
        moves: The moves that happened.
        events: The number of events.
        error: The failure, if there was one.
        left_out: The moves that were not possible.
    """

    world: World
    moves: tuple[Move, ...]
    events: int
    error: Exception | None
    left_out: tuple[Move, ...] = ()

    @property
    def kind(self) -> str | None:
        """The kind of the failure."""
        return None if self.error is None else kind_of(self.error)


def replay(case: Case, trace: bool = False, limit: int = 100_000) -> Replay:
    """Make the moves of a case happen, as far as they are possible, and finish.

    Args:
        case: The case.
        trace: Whether its world keeps all events.
        limit: The most events.
    """
    world = case.world(trace)
    made: list[Move] = []
    left_out: list[Move] = []
    rest: list[Choice] = []
    failure = None
    try:
        for move in case.moves:
            choice = possible(world, move)
            if choice is None:
                left_out.append(move)
                continue
            if len(made) == limit:
                endless(limit)
            made.append(move)
            world.do(choice)
        finish(world, limit - len(made), rest)
    except Exception as error:  # a bug in a machine shows as any exception
        failure = error
    return Replay(world, tuple(made), len(made) + len(rest), failure, tuple(left_out))


def kind_of(error: Exception) -> str:
    """The kind of a failure: the exception's type, and where it was raised."""
    trace = error.__traceback__
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame
    module = str(code.f_globals["__name__"]).rpartition(".")[2]
    return f"{type(error).__name__} in {module}.{code.f_code.co_name}"


# --- Moves and choices --------------------------------------------------------------------------


def move_of(choice: Choice, mortal: dict[int, Fate]) -> Move:
    """A choice as a move.

    Args:
        choice: The choice.
        mortal: How clients die.
    """
    match choice:
        case ("deliver", (sender, receiver)):
            return Move("deliver", (_name(sender), _name(receiver)))
        case ("die", number):
            return Move(mortal[number], (str(number),))
        case ("step" | "settle" | "time out" as kind, number):
            return Move(kind, (str(number),))
        case ("notice" | "connect" | "cut" | "mend" as change, pair):
            return Move(change, pair)
        case ("crash" | "restart" as change, node):
            return Move(change, (node,))
        case _:
            assert_never(choice)


def possible(world: World, move: Move) -> Choice | None:
    """The choice that a move stands for, if the world has it now.

    It may belong to another generation of the same client's agents.
    """
    first, *rest = move.parties
    choice: Choice
    match move.kind:
        case "deliver":
            return _arrival(world, move.parties)
        case "step" | "settle" | "time out" as kind:
            choice = (kind, int(first))
        case "ends" | "crashes":
            choice = ("die", int(first))
        case "notice" | "connect" | "cut" | "mend" as change:
            choice = (change, (first, rest[0]))
        case "crash" | "restart" as change:
            choice = (change, first)
        case _:
            assert_never(move.kind)
    return choice if choice in world.choices() else None


def _arrival(world: World, parties: tuple[str, ...]) -> Choice | None:
    """A message that may arrive on such a link, if there is one."""
    links = [link for link in world.network.deliverable() if _is_like(link, parties)]
    exact = [link for link in links if (_name(link[0]), _name(link[1])) == parties]
    found = exact or sorted(links, key=lambda link: world.links[link][0][0])
    return ("deliver", found[0]) if found else None


def _is_like(link: Link, parties: tuple[str, ...]) -> bool:
    return all(
        _whose(_name(end)) == _whose(party) for end, party in zip(link, parties, strict=True)
    )


def _whose(party: str) -> str:
    """A node, or a client whichever of its agents is meant."""
    return party.partition(".")[0] if _AGENT.fullmatch(party) else party


@lru_cache(maxsize=4096)
def _name(party: Party) -> str:
    if isinstance(party, str):
        return party
    generation, number = divmod(party.serial, SERIALS)
    return f"{number}.{generation + 1}" if generation else str(number)


def case_of(plan: Plan, schedule: Iterable[Choice]) -> Case:
    """The case of a plan and the schedule of its run."""
    mortal = dict(plan.faults.mortal)
    homes: tuple[str, ...] = ()
    if plan.homes:
        homes = tuple(plan.homes[i % len(plan.homes)] for i in range(len(plan.scripts)))
    moves = tuple(move_of(choice, mortal) for choice in schedule)
    return Case(plan.scripts, plan.nodes, homes, plan.options, moves, plan.rule, plan.unlinked)


# --- Text ---------------------------------------------------------------------------------------


def parse_move(text: str) -> Move:
    """A move from its text.

    Raises:
        InvalidOption: It can't be read.
    """
    if found := _LINK.fullmatch(text):
        return Move("deliver", (found[1], found[2]))
    if found := _CLIENT.fullmatch(text):
        return Move(LETTERS.get(found[1], "step"), (found[2],))
    with suppress(ValueError):
        change, where = read_change(text)
        return Move(change, (where,) if isinstance(where, str) else where)
    raise InvalidOption(
        f'move {text!r} can\'t be read; moves are "1", "1>n1", "n1>1", "1>2", "s1", "t1", "d1", '
        '"x1", "notice:n1,n2", "connect:n1,n2", "cut:n1,n2", "mend:n1,n2", "crash:n1" and '
        '"restart:n1"',
        move=text,
    )


def parse_case(
    clients: Iterable[str],
    nodes: str = "1",
    homes: str = "",
    options: str = "",
    rule: str = OURS.name,
    schedule: str = "",
    unlinked: str = "",
) -> Case:
    """A case from its parts as text.

    Args:
        clients: The clients' scripts.
        nodes: How many nodes, or their names.
        homes: Where the clients live, in turn; all on the first node by default. `c1`, `c2` and so
            on are client nodes.
        options: For the agents.
        rule: The name of a rule.
        schedule: The moves.
        unlinked: Pairs of nodes that are never connected, such as `c1-n2`.

    Raises:
        InvalidOption: Something can't be read, or does not exist.
    """
    scripts = tuple(map(parse_script, clients))
    names = nodes_from(nodes)
    asked = {node: None for steps in scripts for step in steps for node in step.nodes}
    moves = tuple(map(parse_move, schedule.split()))
    there = (*names, *[home for home in homes.split(",") if _CLIENT_NODE.fullmatch(home)])
    live = listed("node", homes, there)
    live = tuple(live[i % len(live)] for i in range(len(scripts))) if live else ()
    flags = listed("option", options, OPTIONS)
    _check("node", list(asked), names)
    _check("rule", [rule], list(RULES))
    for move in moves:
        for party in move.parties:
            number = _AGENT.fullmatch(party)
            if number is None:
                _check("node", [party], there)
            elif not 0 < int(number[1]) <= len(scripts):
                raise InvalidOption(
                    f"move {str(move)!r}: there is no client {number[1]}, only {len(scripts)}",
                    move=str(move),
                )
    return Case(scripts, names, live, flags, moves, RULES[rule], pairs_from(unlinked, there))


def pairs_from(text: str, nodes: Sequence[str]) -> tuple[Pair, ...]:
    """Pairs of nodes, such as `c1-n2,n1-n3`.

    Raises:
        InvalidOption: One of the nodes does not exist.
    """
    found = []
    for each in text.split(",") if text else ():
        one, _, other = each.partition("-")
        _check("node", (one, other), nodes)
        found.append((one, other))
    return tuple(found)


def nodes_from(text: str) -> tuple[str, ...]:
    """Nodes from their names, or from their number.

    Raises:
        InvalidOption: There are none.
    """
    names = node_names(int(text)) if text.isdigit() else tuple(text.split(","))
    if not names or not all(names):
        raise InvalidOption(
            f"nodes {text!r} are none: say how many, such as 2, or name them, such as n1,n2",
            nodes=text,
        )
    return names


def listed(what: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The parts of a list that is separated by commas.

    Raises:
        InvalidOption: One of them does not exist.
    """
    found = tuple(text.split(",")) if text else ()
    _check(what, found, known)
    return found


def _check(what: str, used: Sequence[str], known: Sequence[str]) -> None:
    for each in used:
        if each not in known:
            raise InvalidOption(
                f"there is no {what} {each!r}; use {', '.join(known)}", **{what: each}
            )


def _quoted(word: str) -> str:
    """A word for the shell, in double quotes if it needs any."""
    if re.fullmatch(r"[\w,.=-]+", word):
        return word
    return f'"{word}"' if not re.search(r'["$`\\!]', word) else shlex.quote(word)
