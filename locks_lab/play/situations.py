"""Situations: worlds before anything has happened, as text; and those of the list.

A situation can be opened from the command that a failure of the simulator prints (`locks sim replay ...`), and can be
written as one.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, NoReturn, get_args

from locks.errors import InvalidOption, assert_never
from locks_lab.cases.case import Case, listed, nodes_from, parse_case
from locks_lab.leader.rules import RULES as ELECTION_RULES
from locks_lab.original.variants import VARIANTS, variant_of
from locks_lab.original.world import World as OriginalWorld
from locks_lab.play.board import Game
from locks_lab.play.elections import ElectionGame
from locks_lab.play.erlang import OriginalGame
from locks_lab.play.ours import OurGame
from locks_lab.worlds.rules import OURS
from locks_lab.worlds.script import parse_script

__all__ = [
    "KINDS",
    "RING",
    "SITUATIONS",
    "WEIGHED",
    "Kind",
    "Situation",
    "command_of",
    "from_command",
    "game_of",
    "situation_from",
]

Kind = Literal["ours", "original", "elections"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MOST_CLIENTS, MOST_STEPS, MOST_NODES = 12, 40, 7
FLAGS = (
    "abort_on_deadlock",
    "full",
)  # options of the original; with `full`, messages to lock servers take time


class Situation(NamedTuple):
    """A world before anything has happened, as text.

    Attributes:
        kind: Which machines it has.
        clients: The scripts of the clients; an election has none.
        nodes: How many nodes, or their names.
        homes: The nodes of the clients, in turn; all on the first node by default.
        options: Options of the agents.
        rule: The rule of the machines; empty for the usual one.
        moves: What has happened already.
        name: Its name in the list.
        about: What to look at.
    """

    kind: Kind = "ours"
    clients: tuple[str, ...] = ()
    nodes: str = "1"
    homes: str = ""
    options: str = ""
    rule: str = ""
    moves: tuple[str, ...] = ()
    name: str = ""
    about: str = ""


RING = ("write a; write b", "write b; write c", "write c; write a")
SWAPPED = ("write c; write b", "write b; write c", "write b; write c")
QUEUED = ("write a; write b", "write b; write a", "write b")
# Rules that the README of the original weighs, in the words of Thomas Arts: where to look at each, and what to look at.
WEIGHED: dict[str, tuple[tuple[str, ...], str]] = {
    "mended+swap": (SWAPPED, "Not safe, he says. Play it: does it come to an end?"),
    "place": (QUEUED, "In general unsafe, he says. Compare the queue of b with the original's."),
    "all": (RING, "Safe but inefficient, he says. Which lock is given up for nothing?"),
    "smallest": (RING, "Possible, he says. But who tells the smallest one of the circle?"),
    "mirror": (RING, "The same, and now agents tell only smaller ones. Is it enough?"),
    "smaller": (RING, "Possible, he says. Does the one that must yield see the circle?"),
    "everyone": (RING, "The most naive way, he says. Count the messages between clients."),
    "forward": (RING, "Efficient, he says. Which client is told first?"),
    "back": (RING, "Analogous, he says. Does somebody see the circle?"),
    "heeded": (QUEUED, "Necessary, he says. Which news does client 2 ignore after its surrender?"),
    "ignored": (
        QUEUED,
        "Unsafe, he says: an older message may arrive after the surrender. Find an order.",
    ),
}
SITUATIONS = (
    Situation(
        clients=("write a; write b", "write b; write a"),
        name="Two clients",
        about="Each one takes a lock and then wants the other one's. Who gives way?",
    ),
    Situation(
        clients=RING,
        name="A ring of three",
        about="Nobody sees the whole circle at first. Which message makes the youngest one see it?",
    ),
    Situation(
        clients=("read a; write a", "read a; write a"),
        name="Two upgrades",
        about="Both read, and both want to write. Neither can, as long as the other one reads.",
    ),
    Situation(
        clients=("write disk; write desk", "write desk/1; write disk/2", "read disk/2"),
        name="A tree",
        about="A lock on `disk` is in the way of each lock below it.",
    ),
    Situation(
        clients=("write a on n1,n2,n3 majority", "write a on n1,n2,n3 majority"),
        nodes="3",
        homes="n1,n3",
        name="A majority of three, with a split",
        about="Two of three lock servers are enough. Cut n1 off from both others, and look who holds the lock.",
    ),
    Situation(
        clients=("ask write a; write b", "write b; write a; unlock a"),
        options="abort_on_deadlock",
        name="Abort instead of surrender",
        about="The one that gives way ends its transaction, and begins a new one, the youngest of all. (locks.run_transaction keeps its age instead.)",
    ),
    Situation(
        clients=("write a; again; write b; write a", "write b; write a"),
        name="Two transactions of one client",
        about="A client's next transaction is younger than all that there are.",
    ),
    Situation(
        kind="original",
        clients=RING,
        name="The original: a ring of three",
        about="The same circle with the rules of the Erlang application.",
    ),
    Situation(
        kind="original",
        clients=RING,
        moves=(
            "1",
            "n1>1",
            "s1",
            "2",
            "n1>2",
            "s2",
            "3",
            "n1>3",
            "s3",
            "2",
            "n1>2",
            "n1>3",
            "3",
            "n1>3",
            "s3",
            "n1>1",
            "1",
            "n1>1",
            "s1",
            "n1>2",
            "1>2",
            "s2",
        ),
        name="The original gets stuck",
        about="One message comes late, and nobody sees the circle any more. Does ours get stuck in this order, too?",
    ),
    Situation(
        kind="original",
        clients=("read a; write a", "read a; write a"),
        moves=("1", "n1>1", "s1", "2", "n1>2", "s2", "2", "n1>2", "1", "n1>2", "s2"),
        name="The original breaks exclusion",
        about="Two clients are told that they may write the same thing.",
    ),
    Situation(
        clients=QUEUED,
        name="Property 1: mutual exclusion",
        about="Never are two clients told that they hold b. Try to break it; then look at the original, asked alike.",
    ),
    Situation(
        clients=(
            "write a on n1 all; write b on n2 all",
            "write b on n2 all; write c on n3 all",
            "write c on n3 all; write a on n1 all",
        ),
        nodes="3",
        homes="n1,n2,n3",
        name="Property 2: no deadlock stays",
        about="All three wait for each other. Hold messages back as you like: is there an order without an end?",
    ),
    Situation(
        clients=("read a; again; read a; again; read a",) * 2 + ("write a",),
        name="Property 3: nobody starves",
        about="Two readers come again and again. Can they keep the writer out for ever?",
    ),
    *(
        Situation(
            kind="original",
            clients=clients,
            rule=rule,
            name=f"Weighed by Arts: {VARIANTS[rule.split('+')[-1]].about}",
            about=about,
        )
        for rule, (clients, about) in WEIGHED.items()
    ),
    Situation(
        kind="elections",
        nodes="3",
        name="An election",
        about="Three candidates, one lock. Call the leader, crash its node, and look what its successor knows.",
    ),
)


def situation_from(data: Mapping[str, Any]) -> Situation:
    """A situation from values of JSON.

    Raises:
        InvalidOption: Something in it is not what it should be.
    """
    found: dict[str, Any] = {}
    for key, value in data.items():
        default = Situation._field_defaults.get(key)
        if default is None:
            raise InvalidOption(
                f"a situation has no {key!r}; it has {', '.join(Situation._fields)}", situation=key
            )
        if isinstance(default, tuple):
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise InvalidOption(f"{key} must be a list of texts, not {value!r}", situation=key)
            value = tuple(value)
        elif not isinstance(value, str):
            raise InvalidOption(f"{key} must be a text, not {value!r}", situation=key)
        found[key] = value
    if found.get("kind", "ours") not in KINDS:
        raise InvalidOption(
            f"kind {found['kind']!r} is none of {', '.join(KINDS)}", kind=found["kind"]
        )
    return Situation(**found)


def game_of(situation: Situation) -> Game:
    """The world of a situation; its moves are not played.

    Raises:
        InvalidOption: Something can't be read, does not exist, or is too large to play with.
    """
    names = nodes_from(situation.nodes)
    if len(names) > MOST_NODES or len(situation.clients) > MOST_CLIENTS:
        raise InvalidOption(
            f"{len(situation.clients)} clients on {len(names)} nodes are too many to look at; "
            f"{MOST_CLIENTS} clients on {MOST_NODES} nodes are possible"
        )
    if any(len(parse_script(each)) > MOST_STEPS for each in situation.clients):
        raise InvalidOption(f"a client has more than {MOST_STEPS} steps")
    if situation.kind != "elections" and not any(each.strip() for each in situation.clients):
        raise InvalidOption(
            "nobody wants anything: give at least one client a step, such as write a"
        )
    situation = situation._replace(moves=())
    match situation.kind:
        case "ours":
            return OurGame(_case(situation))
        case "original":
            flags = listed("option", situation.options, FLAGS)
            homes = _case(situation._replace(rule="", options="")).homes  # and checks the nodes
            world = OriginalWorld(
                situation.clients,
                names,
                homes,
                variant_of(situation.rule or "original"),
                delays="full" in flags,
                late="full" in flags,
                trace=True,
                abort_on_deadlock="abort_on_deadlock" in flags,
            )
            return OriginalGame(world)
        case "elections":
            rule = situation.rule or "ours"
            if rule not in ELECTION_RULES:
                raise InvalidOption(
                    f"there is no rule {rule!r}; use {', '.join(ELECTION_RULES)}", rule=rule
                )
            return ElectionGame(names, rule)
        case _:
            assert_never(situation.kind)


def _case(situation: Situation) -> Case:
    return parse_case(
        situation.clients,
        situation.nodes,
        situation.homes,
        situation.options,
        situation.rule or OURS.name,
        " ".join(situation.moves),
    )


# --- Commands -----------------------------------------------------------------------------------


def command_of(situation: Situation) -> str:
    """The command that replays it in a terminal; empty for an election, which has none."""
    match situation.kind:
        case "ours":
            return f"locks sim replay {_case(situation)}"
        case "original":
            flags = [flag for flag in situation.options.split(",") if flag and flag != "full"]
            full = " --full" if "full" in situation.options else ""
            rule = f" --rule {situation.rule}" if situation.rule else ""
            case = _case(situation._replace(rule="", options=",".join(flags)))
            return f"locks sim replay --model original{full}{rule} {case}"
        case "elections":
            return ""
        case _:
            assert_never(situation.kind)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """It is not at the command line that the mistake was made."""
        raise InvalidOption(f"this command can't be opened: {message}")


def from_command(text: str) -> Situation:
    """The situation of a command that a failure of the simulator prints.

    Args:
        text: `locks sim replay ...`, or `python -m locks sim replay ...`.

    Raises:
        InvalidOption: It is no such command.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidOption(f"this command can't be opened: {error}") from None
    if "replay" not in words:
        raise InvalidOption(
            f"this is not a command that replays a case: {text[:80]!r}; it begins with locks sim replay"
        )
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--client", action="append", required=True)
    parser.add_argument("--model", default="ours", choices=["ours", "original"])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--format")  # it makes no difference here
    for name in ("nodes", "homes", "options", "rule", "schedule"):
        parser.add_argument(f"--{name}", default="1" if name == "nodes" else "")
    found = parser.parse_args(words[words.index("replay") + 1 :])
    options = [found.options] if found.options else []
    return Situation(
        found.model,
        tuple(found.client),
        found.nodes,
        found.homes,
        ",".join([*options, "full"] if found.full else options),
        found.rule,
        tuple(found.schedule.split()),
    )
