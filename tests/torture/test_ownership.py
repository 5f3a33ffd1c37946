"""Ownership: a task is at hand for as long as its block, at whatever instruction it is disturbed.

A tracer strikes at each instruction (`tracing`).
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

import pykka
import pytest

import locks
from locks.ownership import Backlog, NotOwner, Ownership, OwnershipEnded
from locks.ownership.messages import FromWorker, Gone, Grant, Idle, Revoke
from locks.ownership.part import Part
from tests.helpers import EXPLORE, SEED, eventually
from tests.torture.tracing import Tracer, trace

GROUP, TOKEN = 0, 7
LIMIT = 60.0


class Injected(BaseException):
    """What is raised at a position."""


def inject() -> None:
    """Raise it."""
    raise Injected


def in_thread(function: Callable[[], object]) -> None:
    """Call a function in another thread, and wait for it: if it hangs, that is told."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10 * LIMIT)  # it tries hundreds of positions
    assert not thread.is_alive(), "it hangs"
    if errors:
        raise errors[0]


class Stage:
    """A worker that has one group, and a participant that is played by the test.

    Attributes:
        worker: The worker.
        part: Its part.
        told: What it has told its participant.
        early: How many tasks were at hand when it said that it was gone, each time.
    """

    def __init__(self) -> None:
        stage = self

        class Played(Ownership):
            def _start(self, part: Part) -> None:
                stage.part = part
                part.took_part(stage.tell)
                part.told(Grant("me", (GROUP,), TOKEN))

        self.told: list[FromWorker] = []
        self.early: list[int] = []
        self.worker = Played("ingest", 1)
        self.worker.join()

    def tell(self, message: FromWorker) -> None:
        """Its participant is told something."""
        if isinstance(message, Gone):
            self.early.append(self.part.member.at_hand)
            self.part.over.open()
        self.told.append(message)

    def ask_back(self) -> None:
        """The coordinator asks the group back, in the background: there is no tracer."""
        tracer = sys.gettrace()
        sys.settrace(None)
        self.part.told(Revoke("me", (GROUP,)))
        sys.settrace(tracer)


def hold(stage: Stage) -> None:
    """A task as programs do it."""
    with stage.worker.hold("a") as token:
        assert token == TOKEN


def hold_asked_back(stage: Stage) -> None:
    """The group is asked back meanwhile."""
    with stage.worker.hold("a"):
        stage.ask_back()


def hold_by_a_stack(stage: Stage) -> None:
    """Without a `with` statement of its own; what is torn between the two calls is lost with the stack."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(stage.worker.hold("a"))


def run(stage: Stage) -> None:
    """A backlog, as `run` works it off: a first task, a next one, and its end."""
    assert stage.worker.run(Backlog([1, 2], groups=1), lambda task, token: None) == 2


every = pytest.mark.parametrize(
    "step", [3, pytest.param(1, marks=pytest.mark.explore)], ids=["some", "all"]
)


def positions(act: Callable[[Stage], None], step: int) -> Iterator[tuple[int, Stage]]:
    """Positions of a call, each with a stage of its own: every third one, or all."""
    for _ in range(2):  # what is done once in a program does not count
        stage, tracer = Stage(), Tracer()
        trace(tracer, lambda stage=stage: act(stage))  # type: ignore[misc]
    assert tracer.count > 30
    for at in range(0, tracer.count, step):
        yield at, Stage()


@every
@pytest.mark.parametrize("act", [hold, hold_asked_back, run])
def test_a_task_that_is_torn_is_over(act: Callable[[Stage], None], step: int) -> None:
    """An exception at instructions: it arrives, nothing is at hand, and what was asked back can be let go."""

    def play() -> None:
        for at, stage in positions(act, step):
            tracer = Tracer(at, inject)
            seen = False
            try:
                trace(tracer, lambda stage=stage: act(stage))  # type: ignore[misc]
            except Injected:
                seen = True
            where = f"{at}: {tracer.struck.where if tracer.struck else None}"
            assert seen, where
            assert stage.part.member.at_hand == 0, where
            if not stage.part.member.leaving:
                act(stage)
            else:
                assert any(isinstance(message, Idle) for message in stage.told), where
                assert stage.part.settle() == [GROUP], where
            stage.worker.stop()
            assert stage.early == [0], where

    in_thread(play)


@pytest.mark.slow
@every
@pytest.mark.parametrize("act", [hold, hold_asked_back, hold_by_a_stack, run])
def test_a_worker_is_stopped_in_the_middle(act: Callable[[Stage], None], step: int) -> None:
    """By a signal handler, at instructions: it is gone when the task is over, and not before."""

    def play() -> None:
        for at, stage in positions(act, step):
            with contextlib.suppress(NotOwner, OwnershipEnded, AssertionError):
                trace(Tracer(at, stage.worker.stop), lambda stage=stage: act(stage))  # type: ignore[misc]
            assert stage.part.stopping, at
            assert stage.early, at
            assert not any(stage.early), at

    in_thread(play)


@pytest.mark.slow
@every
@pytest.mark.parametrize("act", [hold, hold_asked_back, hold_by_a_stack, run])
def test_a_task_in_the_middle_of_another_one(act: Callable[[Stage], None], step: int) -> None:
    """Of a signal handler or a finaliser, at instructions: it never waits, and both are over in the end."""

    def play() -> None:
        for at, stage in positions(act, step):

            def strike(stage: Stage = stage) -> None:
                with contextlib.suppress(NotOwner):
                    hold(stage)

            trace(Tracer(at, strike), lambda stage=stage: act(stage))  # type: ignore[misc]
            assert stage.part.member.at_hand == 0, at
            if act is hold_asked_back:
                assert stage.part.settle() == [GROUP]

    in_thread(play)


@pytest.fixture
def node() -> Iterator[locks.node.Node]:
    """A node."""
    yield locks.start()
    locks.stop()


# --- Joining and leaving ----------------------------------------------------------------------------


def participants() -> list[object]:
    """Who takes part."""
    found = pykka.ActorRegistry.get_by_class_name("_Participant")
    return [each for each in found if each.is_alive()]


def judge(tries: int | None) -> None:
    """A worker whose block is torn at each position, or at some."""
    workers: list[Ownership] = []

    def act() -> None:
        workers[:] = [Ownership("ingest", 1)]
        with workers[0]:
            pass

    tracer = Tracer()
    trace(tracer, act)
    stride = 1 if tries is None else max(1, tracer.count // tries)
    for at in range(SEED % stride, tracer.count, stride):
        tracer = Tracer(at, inject)
        with contextlib.suppress(Injected):
            trace(tracer, act)
        where = "" if tracer.struck is None else f"{at}: {tracer.struck.where}"
        eventually(lambda: not participants(), 5)
        eventually(lambda: not any(worker.joined for worker in workers), 5)
        mine = Ownership("ingest", 1)
        with mine:
            eventually(mine.owned)
        assert not mine.joined, where


def test_a_worker_whose_block_is_torn_has_left(node: locks.node.Node) -> None:
    """At a few positions of joining and leaving: nobody takes part, and the next one gets the groups."""
    in_thread(lambda: judge(None if EXPLORE else 150))
