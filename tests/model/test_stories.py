"""Stories and diagrams of traces: what they say, in which order, and that Mermaid can read it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from locks_lab.schedules.plan import Shape, plan
from locks_lab.schedules.schedule import run
from locks_lab.stories.diagrams import escape, sequence_diagram, wait_for_graph
from locks_lab.stories.story import act, tell
from locks_lab.worlds.world import Faults, World

RING = ["write a; write b", "write b; write c", "write c; write a"]
TWO = ("n1", "n2")


def told(world: World) -> list[str]:
    """The story of a world, without indentation."""
    assert world.events is not None
    return [line.strip() for line in tell(world.events)]


def diagram(world: World) -> str:
    """The sequence diagram of a world."""
    assert world.events is not None
    return sequence_diagram(world.events)


def traced(*scripts: str, **options: object) -> World:
    """A world that keeps what happens."""
    return World(scripts, trace=True, **options)  # type: ignore[arg-type]


def random_world(seed: int) -> World:
    """A world in which much goes wrong, after all of it has happened."""
    made = plan(seed, Shape(agents=4, nodes=1 + seed % 3, faults=seed % 2 == 0))
    world = made.world(trace=True)
    run(world, random.Random(seed), made.policy)
    return world


# --- A ring of three ----------------------------------------------------------------------------


def test_the_ring_of_three_says_what_the_algorithm_does() -> None:
    """Locks, waits, who is told what, why it is passed on, who yields, who gets what: in order."""
    lines = told(act(RING))
    expected = [
        "By age, the oldest first: client 1, client 2, client 3.",
        "Client 1 asks for a.",
        "The lock server grants a to client 1.",
        "Client 3 asks for a.",
        "The lock server lets client 3 wait for a. Client 1 has it.",
        "The lock server tells client 3: client 2 waits for c, client 1 has a and waits.",
        "The lock server tells client 1: client 2 has b and waits, client 3 waits for a.",
        "Client 1 sees that client 3 waits for it, and that it waits for client 2. Both are younger."
        " The older one of them, client 2, is told of the other.",
        "Client 1 tells client 2 what it knows: client 3 waits for a, client 1 has a and waits,"
        " client 1 waits for b.",
        "Client 2 sees that client 3 waits for it (through client 1), and that it waits for"
        " client 3. That is a circle. Client 3 is the youngest in it: it is told.",
        "Client 3 sees the whole circle: client 2 waits for c, which client 3 has; client 3 waits"
        " for a, which client 1 has; client 1 waits for b, which client 2 has.",
        "Client 3 yields, because the youngest transaction of the cycle gives way: it surrenders"
        " c, because client 2 waits for it.",
        "The lock server finds it as it was: client 2 waits for c, which client 3 has. It takes c"
        " from client 3, who stands last for c now.",
        "Client 2, client 3 and client 1 are told how the deadlock is resolved, and forget what they"
        " knew of others.",
        "The lock server grants c to client 2.",
        "The lock server lets client 3 wait for c again. Client 2 has it.",
        "Client 2 lets client 1 know that it has forgotten what it was told.",
        "Client 2 has all that it asked for.",
        "Client 2 is done and lets go of everything.",
        "The lock server grants b to client 1.",
        "Client 1 is done and lets go of everything.",
        "The lock server grants a to client 3.",
        "Client 3 is done and lets go of everything.",
    ]
    assert [line for line in lines if line in expected] == expected


# --- Each kind of event -------------------------------------------------------------------------


def ends_early(fate: str) -> World:
    """A client dies."""
    world = traced("write a", faults=Faults(mortal=((1, fate),)))  # type: ignore[arg-type]
    world.step(1)
    world.deliver()
    world.do(("die", 1))
    return world


def torn_and_healed() -> World:
    """Two nodes lose their connection, find each other again, and one of them crashes."""
    world = traced(
        "write a on n1,n2 any",
        "write b on n2; write d on n1",
        "write c on n2",
        nodes=TWO,
        homes=("n1", "n2", "n1"),
        faults=Faults(cuts=1, crashes=1, nodes=TWO),
    )
    world.step(1, 2)
    world.deliver()
    world.step(2)
    world.deliver()
    world.do(("cut", TWO))
    world.do(("notice", TWO))
    world.step(3)
    world.do(("notice", TWO[::-1]))
    world.do(("mend", TWO))
    world.do(("connect", TWO))
    world.do(("notice", TWO))
    world.do(("notice", TWO[::-1]))
    world.do(("crash", "n2"))
    world.do(("restart", "n2"))
    return world


def refused() -> World:
    """The one for whom a lock is to be surrendered gives up waiting before it arrives."""
    world = traced("write a; try write b", "write b; write a")
    world.step(1, 2)
    world.deliver()
    world.step(1)
    world.deliver()
    world.step(2)
    world.deliver("n1")
    world.deliver(2)
    world.do(("time out", 1))
    world.deliver_between(1, "n1")
    world.deliver()
    return world


def gives_up_elsewhere() -> World:
    """A client with a lock on one node waits on another one, for a while."""
    world = traced("write b on n2", "write a on n1; try write b on n2", nodes=TWO)
    world.step(1, 2)
    world.deliver()
    world.step(2)
    world.deliver()
    world.do(("time out", 2))
    world.deliver()
    return world


def confirmed() -> World:
    """A client gets a fencing token of a lock on two nodes; then the lock is lost with one of them."""
    world = traced(
        "ask write b; write a on n1,n2; token a; token c",
        nodes=TWO,
        faults=Faults(crashes=1, nodes=TWO),
        await_nodes=True,
    )
    for _ in range(4):
        world.step(1)
        world.deliver()
    world.do(("crash", "n2"))
    world.do(("notice", TWO))
    return world


CASES: list[tuple[Callable[[], World], list[str]]] = [
    (
        lambda: act(["write a; write a; unlock a; unlock b"]),
        [
            "Client 1 asks for a, and has asked for that before.",
            "Client 1 releases a.",
            "Client 1 has nothing to release: it has not asked for b.",
        ],
    ),
    (
        lambda: act(["surrender a; write a; surrender a"]),
        [
            "Client 1 has nothing to surrender: it does not have all of a.",
            "Client 1 gives up a on its own wish, and stands last for it.",
        ],
    ),
    (
        lambda: ends_early("crashes"),
        ["Client 1 crashes: lock servers take out what it had, and nobody else is told."],
    ),
    (
        torn_and_healed,
        [
            "By age, the oldest first: client 1 (on n1), client 2 (on n2), client 3 (on n1).",
            "Client 1 asks for a on n1 and n2. One of n1 and n2 is enough.",
            "The lock server of n2 grants b to client 2.",
            "Client 2 asks for d on n1, and says that it has requests elsewhere, too.",
            "The connection of n1 and n2 breaks.",
            "n1 notices that n2 is gone, and takes out what was locked from there.",
            "Client 3 asks for c on n2. Too few nodes are up, so it ends.",
            "n2 notices that n1 is gone.",
            "Client 2 ends, for too few of its nodes are up, and lets go of everything.",
            "The connection of n1 and n2 can be made again.",
            "The connection of n1 and n2 is there again.",
            "n1 sees n2 again.",
            "n2 sees n1 again.",
            "n2 crashes: its lock table is lost.",
            "n2 is started again; its lock table is empty.",
        ],
    ),
    (
        gives_up_elsewhere,
        [
            "Client 2 lets the lock server of n1 know that it waits elsewhere, too.",
            "Client 2 lets the lock server of n1 know that it no longer waits elsewhere.",
        ],
    ),
    (
        confirmed,
        [
            "Client 1 asks the lock server of n2 to confirm the fencing token 2 of a.",
            "The lock server of n2 confirms the fencing token 2 of a.",
            "Client 1 has the fencing token 2 of a.",
            "Client 1 does not get a fencing token of c.",
            "n2 crashes: its lock table is lost.",
            "n1 notices that n2 is gone.",
            "Client 1 is told that it has lost a.",
        ],
    ),
    (
        lambda: act(["write a; write b", "write b; write a"], abort_on_deadlock=True),
        [
            "Client 2 yields, because the youngest transaction of the cycle gives way; "
            "it was aborted because its program had already been given the lock.",
            "The lock server finds it as it was: client 1 waits for b, which client 2 has. "
            "It takes out all that client 2 has and asks for.",
            "Client 2 is aborted and lets go of everything.",
            "Client 2 begins again, as client 2 (2nd try): a new transaction, so the youngest. (run_transaction keeps its age instead.)",
            "Client 2 (2nd try) asks for b.",
        ],
    ),
    (
        refused,
        [
            "Client 2 yields, because the youngest transaction of the cycle gives way: "
            "it surrenders b, because client 1 waits for it.",
            "Client 1 gives up waiting.",
            "Client 1 withdraws its request for b.",
            "The lock server refuses: client 1 does not wait for b as it did then.",
        ],
    ),
]


@pytest.mark.parametrize(("make", "expected"), CASES)
def test_each_kind_of_event_is_told(make: Callable[[], World], expected: list[str]) -> None:
    """What happens is told, in this order."""
    lines = told(make())
    assert [line for line in lines if line in expected] == expected, "\n".join(lines)


# --- Acting -------------------------------------------------------------------------------------


# --- Diagrams -----------------------------------------------------------------------------------

TEXT = r"(?:[^;#<>\"\n]|#\d+;|<br/>)+"
LINES = [
    re.compile(pattern)
    for pattern in (
        rf"    participant (?P<new>\w+) as {TEXT}",
        rf"    (?P<one>\w+)(?:->>|-x)(?P<other>\w+): {TEXT}",
        rf"    Note over (?P<one>\w+)(?:,(?P<other>\w+))?: {TEXT}",
    )
]


def check_sequence(text: str) -> set[str]:
    """Check each line of a sequence diagram, and return its participants."""
    first, *lines = text.split("\n")
    assert first == "sequenceDiagram"
    known: set[str] = set()
    for line in lines:
        (found,) = (f for pattern in LINES if (f := pattern.fullmatch(line)))
        names = found.groupdict()
        if "new" in names:
            assert names["new"] not in known
            known.add(names["new"])
        else:
            assert {name for name in names.values() if name is not None} <= known, line
    return known


@pytest.mark.parametrize("seed", range(30))
def test_sequence_diagrams_are_well_formed(seed: int) -> None:
    """Each line is one that Mermaid knows, and all participants are declared, once and before."""
    assert check_sequence(diagram(random_world(seed)))


@pytest.mark.parametrize(
    "bad",
    [
        "sequenceDiagram\n    A1->>S: wants a",
        "sequenceDiagram\n    participant A1 as client 1\n    Note over A1: a; b",
        'sequenceDiagram\n    participant A1 as client "1"',
        "sequenceDiagram\n    participant A1 as a\n    participant A1 as b",
        "flowchart LR",
    ],
)
def test_check_of_diagrams_can_fail(bad: str) -> None:
    """What is not well-formed is found."""
    with pytest.raises((AssertionError, ValueError)):
        check_sequence(bad)


def test_sequence_diagram_of_the_ring() -> None:
    """Messages stand where they arrive, notes say what agents find, in the algorithm's order."""
    text = diagram(act(RING))
    assert check_sequence(text) == {"S", "A1", "A2", "A3"}
    expected = [
        "participant S as lock server",
        "participant A3 as client 3",
        "A3->>S: wants a",
        "S->>A1: client 2 has b and waits,<br/>client 3 waits for a",
        "Note over A1: client 3 waits for me,<br/>I wait for client 2",
        "A1->>A2: client 3 waits for a, I have a and wait,<br/>I wait for b",
        "Note over A2: client 3 waits for me,<br/>I wait for client 3",
        "Note over A3: a circle, and I am the youngest",
        "A3->>S: surrenders c",
        "Note over S: as it was: client 2 waits for c,<br/>which client 3 has",
        "S->>A2: the deadlock is resolved, you have c",
        "S->>A3: done, you wait for c, client 2 has c",
    ]
    lines = [line.strip() for line in text.split("\n")]
    assert [line for line in lines if line in expected] == expected


def test_strange_names_are_escaped() -> None:
    """Whatever a lock id is made of, the diagrams are well-formed and say it, a line break as Python does."""
    strange = ('a";b', "<x>#1\nend")
    world = World([[("lock", strange)], [("lock", strange)]], trace=True)
    world.step(1, 2)
    world.deliver()
    text = diagram(world)
    check_sequence(text)
    assert "wants a#34;#59;b/'#60;x#62;#35;1#92;nend'" in text
    graph = wait_for_graph(world.edges())
    assert "-- \"wants a#34;#59;b/'#60;x#62;#35;1#92;nend'\" -->" in graph
    assert escape("client 2 (2nd try)") == "client 2 (2nd try)"


def test_wait_for_graph_marks_cycles() -> None:
    """The arrows of a cycle are thick, those that lead there are not; each pair has one arrow."""
    world = traced("write a; write b", "write b; write a", "ask write a; ask write b")
    world.step(1, 2)
    world.deliver("n1")
    world.deliver(1, 2)
    world.step(1, 2, 3, 3)
    world.deliver("n1")
    lines = wait_for_graph(world.edges()).split("\n")
    assert lines[0] == "flowchart LR"
    assert set(lines[1:4]) == {f'    A{n}(["client {n}"])' for n in (1, 2, 3)}
    assert set(lines[4:]) == {
        '    A1 == "wants b" ==> A2',
        '    A2 == "wants a" ==> A1',
        '    A3 -- "wants a<br/>wants b" --> A1',
        '    A3 -- "wants a<br/>wants b" --> A2',
    }
