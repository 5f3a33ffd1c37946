"""Shortest failures of the model of the original, stories of them, and the variants of its rules."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from locks.__main__ import main
from locks.errors import InvalidOption
from locks_lab.explorer.search import TooManyStates
from locks_lab.original.explore import kind_of, shortest_failure
from locks_lab.original.runs import asked, contended, held, is_resolved, outcome, rings
from locks_lab.original.story import finish, sequence, tell
from locks_lab.original.variants import VARIANTS, variant_of
from locks_lab.original.world import Choice, World
from locks_lab.worlds.host import Violation

RING = ["write a; write b", "write b; write c", "write c; write a"]


def replay(world: World, schedule: Sequence[Choice]) -> None:
    """Let happen what a search has found."""
    for choice in schedule:
        world.do(choice)
    world.check_quiet()


def failure(
    scripts: list[str], wanted: tuple[str, ...] = ("stuck", "exclusion"), **more: Any
) -> str:
    """What goes wrong in a world, and after how many events."""
    found = shortest_failure(World(scripts, **more), wanted, who=None)
    world = World(scripts, **more)
    assert found.violation is not None
    with pytest.raises(Violation) as caught:
        replay(world, found.schedule)
    assert str(caught.value) == str(found.violation)
    return f"{len(found.schedule)} {str(found.violation).splitlines()[0]}"


def test_the_smallest_failures() -> None:
    """Each kind, in the smallest world that we know of."""
    assert failure(["write a; write b"], delays=True, late=True) == "8 stuck: clients [1]"
    assert failure(["write a; write a"]) == "4 stuck: clients [1]"
    assert failure(["write a/1; write a", "read a/2"]) == (
        "9 broken exclusion: client 1 has write a and client 2 has read a/2; both were told so"
    )
    assert failure(["read a; write a"] * 2) == (
        "11 broken exclusion: client 1 has read a and client 2 has write a; both were told so"
    )


def test_a_stuck_ring_of_three() -> None:
    """Client 2 sees the circle first, forgets what client 3 has, and tells nobody."""
    found = shortest_failure(held(World(RING)), who=None)
    assert len(found.schedule) == 13
    assert kind_of(found.violation or Violation()) == "stuck"


@pytest.mark.explore
def test_larger_failures() -> None:
    """A lock that was surrendered counts as held; a request that is lost."""
    wanted = ["write a; write b", "write b; write a", "write b"]
    assert failure(wanted, ("exclusion",)) == (
        "27 broken exclusion: client 2 has write b and client 3 has write b; both were told so"
    )
    wanted = ["read a; write a", "read a; write a", "read a"]
    assert failure(wanted, ("stuck",)) == "26 stuck: clients [2]"


def test_a_world_without_failure_is_searched_whole() -> None:
    """Two clients with locks in opposite order come to an end in every order of events."""
    found = shortest_failure(World(["write a; write b", "write b; write a"]))
    assert found.violation is None
    assert found.states == 433
    with pytest.raises(TooManyStates):
        shortest_failure(World(RING), limit=100)


def test_two_changes_mend_rings_of_three() -> None:
    """Whoever sees that another one must yield passes it on: all 12 rings are resolved."""
    assert [sum(o.kind == "fine" for o in rings(3, variant_of(name))) for name in (
        "original", "keeps", "mended")] == [8, 12, 12]  # fmt: skip


def test_what_is_surrendered_is_awaited_again() -> None:
    """Under `reopens` the client is not told that it has what another one has."""
    scripts = ["write a; write b", "write b; write a", "write b"]
    for seed in range(60):
        world = World(scripts, variant=VARIANTS["reopens"])
        assert outcome(world, seed).kind == "fine"
    broken = [outcome(World(scripts), seed).kind for seed in range(60)]
    assert "exclusion" in broken


def test_swapping_places_can_go_on_for_ever() -> None:
    """Three clients, two locks: those who swap do so again and again."""
    kinds = set()
    for seed in range(12):
        rng = random.Random(seed)
        scripts = ["; ".join(f"write {i}" for i in rng.sample("abc", 3)) for _ in range(4)]
        world = World(scripts, variant=variant_of("mended+swap"))
        kinds.add(outcome(world, seed).kind)
    assert kinds == {"fine", "no end"}


def test_a_surrender_that_names_no_version_is_always_carried_out() -> None:
    """`heeded` and `ignored` resolve the ring of two as well."""
    for name in ("heeded", "ignored", "place", "all"):
        assert is_resolved(asked((1, 2), VARIANTS[name])), name


def test_an_ignored_acknowledgement_breaks_exclusion() -> None:
    """What crosses a surrender that names no version is taken for its answer: seldom, but it happens."""
    found = {
        name: outcome(contended(177, variant_of(f"mended+{name}"), 6, 4), 177).kind
        for name in ("ignored", "heeded")
    }
    assert found == {"ignored": "exclusion", "heeded": "fine"}


def test_several_variants_at_once() -> None:
    """Their changes add up; an unknown one is refused."""
    both = variant_of("mended+swap")
    assert (both.gives, both.keeps, both.reopens, both.name) == ("swap", True, True, "mended+swap")
    with pytest.raises(InvalidOption, match="rule 'nonsense': of the original there is original, "):
        variant_of("nonsense")


# --- Stories and the command line ---------------------------------------------------------------


def test_a_story_of_several_nodes_and_an_abort() -> None:
    """Nodes are named; a copy is said to be one; who aborts begins again."""
    world = World(
        ["write a on n1; write b on n2", "write b on n2; read a on n1"],
        ("n1", "n2"),
        ("n1", "n2"),
        trace=True,
        abort_on_deadlock=True,
    )
    finish(world)
    lines = [*tell(world)]
    assert lines[0] == "By age, the oldest first: client 1 (on n1), client 2 (on n2)."
    assert (
        "  Client 2 begins again, as client 2 (2nd try): a new transaction, so the youngest."
        in lines
    )
    assert any("the queue of b on n2: client 1 writes it" in line for line in lines)
    drawn = sequence(world)
    assert "participant S2 as lock server of n2" in drawn
    assert "I abort" in drawn
    assert "wants to write a" in drawn


def test_a_late_message_is_told() -> None:
    """Its receiver has looked since it was sent."""
    world = World(["write a", "write a"], trace=True)
    world.step(1)
    world.deliver_one("n1", 1)
    world.step(2)
    world.do(("settle", 1))
    world.deliver()
    told = "  Only now client 1 gets to know the queue of a: client 1 has it, then client 2."
    assert told in [*tell(world)]


def test_story(capsys: pytest.CaptureFixture[str]) -> None:
    """One world twice: the original's, then ours."""
    clients = [arg for script in RING for arg in ("--client", script)]
    assert main(["sim", "story", "--model", "both", *clients]) == 0
    first, second = capsys.readouterr().out.split("\nOurs:\n")
    assert first.startswith("The original:\n")
    assert "passes on to client 3 the queue of b" in first
    assert "Client 3 yields" in second
    story = ["sim", "story", "--model", "original", *clients, "--format"]
    assert main([*story, "sequence"]) == 0
    assert "sequenceDiagram" in capsys.readouterr().out
    assert main([*story, "waits"]) == 2
    assert "--format waits is not for the original" in capsys.readouterr().err


def test_explore_and_replay(capsys: pytest.CaptureFixture[str]) -> None:
    """What exploring finds is told, with a command that does it again."""
    kind = "--agents 2 --locks 1 --modes rw --find exclusion"
    assert main(["sim", "explore", "--model", "original", *kind.split(), "-v"]) == 1
    out = capsys.readouterr().out
    assert "broken exclusion: client 1 has read a and client 2 has write a" in out
    schedule = out.rpartition('--schedule "')[2].rstrip().rstrip('"')
    clients = ["--client", "read a; write a"] * 2
    replay = ["sim", "replay", "--model", "original", *clients, "--schedule", schedule]
    assert main(replay) == 1
    assert "broken exclusion" in capsys.readouterr().out
    assert main(["sim", "replay", "--model", "original", "--client", "write a",
                 "--schedule", "1>n1 1"]) == 0  # fmt: skip
    assert "skipped 1 of 2 moves, which were not possible: 1>n1" in capsys.readouterr().err
    assert main(["sim", "explore", "--model", "original"]) == 0
    assert "no violation" in capsys.readouterr().out
    assert main(["sim", "explore", "--model", "original", "--limit", "10"]) == 1
    assert "nothing is proven" in capsys.readouterr().out
    kind = "--rule smallest --full --locks 1 --find stuck"
    assert (
        main(
            ["sim", "explore", "--model", "original", *kind.split(), "--client", "write a; write a"]
        )
        == 1
    )
    assert "--rule smallest" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            "explore --model original --crash n1",
            "--crash can't be used with the model of the original",
        ),
        (
            "explore --model original --with try",
            "--with can't be used with the model of the original",
        ),
        ("explore --model original --find nonsense", "there is no kind 'nonsense'"),
        ("explore --find stuck", "--find needs --model original"),
        ("explore --rule original", "unknown rule 'original'; the rules are ours"),
        ("explore --model original --rule few", "rule 'few': of the original there is"),
        ("story --model both --rule ours --client x", "each model has its own rules"),
        ("story --model original --client again --options await_nodes", "abort_on_deadlock"),
        ("story --model original --client again --homes c1", "clients of the original live on"),
        ("replay --client again --full", "--full needs --model original"),
    ],
)
def test_what_there_is_not_is_refused(
    arguments: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With status 2, and what there is."""
    assert main(["sim", *arguments.split()]) == 2
    assert says in capsys.readouterr().err


# --- The table of the page ----------------------------------------------------------------------
