"""What is counted of other nodes, and how links take turns."""

from __future__ import annotations

import random

import pytest

from locks.net.budgets import (
    ALONE,
    LONG,
    LONGEST_PAUSE,
    SAVED,
    SLICE,
    TOGETHER,
    OverBudget,
    Pace,
    Share,
    Tally,
)
from locks.otp.links import budgets


def test_a_tally_knows_what_is_gone() -> None:
    """Things may come and go for ever, as long as there are never too many at once."""
    there: set[int] = set()
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return len(there)

    tally = Tally(10, "things", count)
    for number in range(1000):
        tally.add()
        there.add(number)
        there.discard(number - 5)
    assert counted <= 1000 / 4
    assert len(there) == 5
    text = ""
    while not text:
        try:
            tally.add()
        except OverBudget as error:
            text = str(error)
        else:
            there.add(len(there) + 9000)
    assert "more than 10 things" in text
    assert 10 <= len(there) <= 11


class Clock:
    """Time that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """What shares grow by."""
    return Clock()


def two(pace: Pace) -> tuple[Share, Share]:
    """The shares of two nodes that both bring something."""
    one, other = pace.share("one"), pace.share("other")
    pace.served(one, 0.0)
    pace.served(other, 0.0)
    return one, other


# --- The line -----------------------------------------------------------------------------------


class Links:
    """Links of one node, and what the node does: it takes the next one of the line, and serves it for a slice.

    Attributes:
        left: What is to be read of each, in seconds of work for each frame.
        used: The processor time of each.
        waited: For how long each has stood in the line at most, before a slice.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.pace = Pace(clock.monotonic)
        self.left: dict[str, list[float]] = {}
        self.used: dict[str, float] = {}
        self.waited: dict[str, float] = {}
        self._since: dict[str, float] = {}

    def comes(self, name: str, frames: list[float]) -> None:
        """Frames of a link can be read."""
        there = self.left.setdefault(name, [])
        self.used.setdefault(name, 0.0)
        there += frames
        self._enter(name)

    def _enter(self, name: str) -> None:
        self._since.setdefault(name, self.clock.now)
        self.pace.enter(name, self.pace.share(name), lambda: self._serve(name))

    def _serve(self, name: str) -> None:
        waited = self.clock.now - self._since.pop(name)
        self.waited[name] = max(waited, self.waited.get(name, 0.0))
        there, took = self.left[name], 0.0
        while there and took <= SLICE:
            took += there.pop(0)
        self.clock.now += took
        self.used[name] += took
        self.pace.served(self.pace.share(name), took)
        if there:
            self._enter(name)

    def serve(self) -> bool:
        """Serve the next one; return whether there was one that need not pause."""
        go = self.pace.next()
        if go is not None:
            go()
        return go is not None and not any(map(self.pace.pause, map(self.pace.share, self.left)))


@pytest.mark.parametrize("seed", range(30))
def test_somebody_is_served_as_long_as_anybody_has_input(clock: Clock, seed: int) -> None:
    """Whatever the frames of however many links cost, and whenever they come and go: the node is never idle, nobody pauses."""
    draw = random.Random(seed)
    links = Links(clock)
    names = [f"n{number}" for number in range(draw.randrange(2, 12))]
    cost = {name: 10 ** draw.uniform(-5, -1) for name in names}
    work, begin = 0.0, clock.now
    for _ in range(100):
        for name in draw.sample(names, draw.randrange(1, len(names) + 1)):
            frames = [cost[name] * draw.uniform(0.1, 2) for _ in range(draw.randrange(20))]
            work += sum(frames)
            links.comes(name, frames)
        for _ in range(draw.randrange(40)):
            there = any(links.left.values())
            assert links.serve() or not there, f"seed {seed}"
    while any(links.left.values()):
        assert links.serve(), f"seed {seed}"
    assert clock.now - begin == pytest.approx(work), f"seed {seed}"


@pytest.mark.parametrize("seed", range(20))
def test_links_with_endless_input_get_equal_time(clock: Clock, seed: int) -> None:
    """Whatever the size of their frames: two of them never differ by more than a turn of each."""
    draw = random.Random(seed)
    links = Links(clock)
    longest = {f"n{number}": 10 ** draw.uniform(-5, -2) for number in range(draw.randrange(2, 6))}
    for _ in range(1000):
        for name, most in longest.items():
            if len(links.left.get(name, ())) < 100:
                links.comes(name, [most * draw.uniform(0.1, 1) for _ in range(200)])
        links.serve()
        used = links.used.values()
        assert max(used) - min(used) <= 2 * (max(longest.values()) + SLICE), f"seed {seed}"


@pytest.mark.parametrize("others", [1, 5, 40])
def test_who_has_little_input_waits_for_one_slice_of_each_other_one(
    clock: Clock, others: int
) -> None:
    """However long the others have been served before, and however often it comes."""
    links = Links(clock)
    for _ in range(20):
        for number in range(others):
            links.comes(f"n{number}", [SLICE / 4] * 500)
        for _ in range(100):
            links.serve()
        links.comes("little", [SLICE / 10])
        for _ in range(others + 1):
            links.serve()
        assert not links.left["little"]
    assert links.waited["little"] <= others * 1.5 * SLICE


# --- What can't be divided ----------------------------------------------------------------------


@pytest.mark.parametrize("took", [0.001, 0.004, 0.008, 0.02, 0.05])
def test_what_can_not_be_divided_costs_more(clock: Clock, took: float) -> None:
    """Who comes while large frames of any length flood in waits for half a millisecond on average; who sends them, for some seconds."""
    pace = Pace(clock.monotonic)
    one, other = two(pace)
    begin, used = clock.now, 0.0
    while used < 500 * took:
        pace.served(one, took, whole=took)
        pace.served(other, 0.0)
        used += took
        pause = pace.pause(one)
        assert pause <= LONGEST_PAUSE
        clock.now += max(took, pause)
        assert not pace.pause(other)
    part = used / (clock.now - begin + SAVED)
    assert part * took / 2 <= 1.01 * LONG / 2


def test_who_is_alone_never_pauses(clock: Clock) -> None:
    """There is nobody to be protected; also if somebody comes later."""
    pace = Pace(clock.monotonic)
    one = pace.share("one")
    for _ in range(100):
        pace.served(one, 1.0, whole=1.0)
        clock.now += 1.0
        assert not pace.pause(one)
        assert pace.slice(one) == ALONE
    pace.served(pace.share("other"), 0.0)
    assert pace.slice(one) == SLICE
    assert not pace.pause(one)
    pace.served(one, 1.0, whole=1.0)
    pace.served(one, 1.0, whole=1.0)
    assert pace.pause(one)
    clock.now += TOGETHER + LONGEST_PAUSE
    assert not pace.pause(one)


def test_a_share_outlives_connections(clock: Clock) -> None:
    """Who connects again has to go on pausing; who has used nothing for long is forgotten."""
    pace = Pace(clock.monotonic)
    one, _ = two(pace)
    pace.served(one, 1.0, whole=1.0)
    pace.served(one, 1.0, whole=1.0)
    assert pace.share("one") is one
    for number in range(budgets.KEPT):
        pace.share(f"n{number}")
    assert pace.share("one") is one
    assert len(pace._shares) < budgets.KEPT
