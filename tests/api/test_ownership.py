"""Ownership among the workers of one process: shares, callbacks, who may share a backlog, and calls that are broken off."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import locks
import locks_leader
from locks.ownership import Backlog, NotOwner, Ownership, OwnershipEnded, StaleToken
from locks.ownership.part import Part
from tests.api.clients import AnswerWait, Client, Run, many
from tests.cluster.nodes import Nodes
from tests.helpers import eventually


class Failure(Exception):
    """What goes wrong on purpose."""


def first(task: tuple[Any, ...]) -> Any:
    """A task's resource."""
    return task[0]


def join(client: Client, groups: int = 4, **options: Any) -> Ownership:
    """Let a client join "ingest"."""
    mine = Ownership("ingest", groups, group_for=int, **options)
    client.call(mine.join)
    return mine


def owners_of(*workers: Ownership) -> dict[int, list[int]]:
    """The groups of each worker, by number of the worker."""
    return {number: sorted(worker.owned()) for number, worker in enumerate(workers)}


def shared(*workers: Ownership) -> bool:
    """Whether all groups have one owner, and no worker has many more than another."""
    owned = [group for worker in workers for group in worker.owned()]
    counts = [len(worker.owned()) for worker in workers]
    return sorted(owned) == list(range(workers[0].groups)) and max(counts) - min(counts) <= 1


class Hand:
    """A handler that stops in the middle of a task, until it is let go on."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.token = 0

    def hold(self, mine: Ownership, resource: Any) -> None:
        """Do a task on a resource."""
        with mine.hold(resource) as token:
            self.token = token
            self.begun.set()
            eventually(self.go_on.is_set)


def hold(client: Client, mine: Ownership, resource: Any) -> tuple[Hand, AnswerWait]:
    """Let a client begin a task; it has when this returns."""
    hand = Hand()
    answer = client.do(hand.hold, mine, resource)
    eventually(hand.begun.is_set)
    return hand, answer


# --- Working --------------------------------------------------------------------------------------


@pytest.mark.every_kind
def test_each_task_is_done_once_and_no_two_of_a_resource_at_once(run: Run) -> None:
    """Four workers do all tasks, in order for each resource; groups are shared out meanwhile."""
    size = many(2000, 20_000)
    backlog = Backlog([(number % 37, number) for number in range(size)], first)
    done: Counter[int] = Counter()
    order: dict[int, list[int]] = {}
    at_hand: set[int] = set()

    def handle(task: tuple[int, int], token: int) -> None:
        resource, number = task
        assert resource not in at_hand
        at_hand.add(resource)
        run.pause()
        done[number] += 1
        order.setdefault(resource, []).append(number)
        at_hand.remove(resource)

    answers = [run.client().do(Ownership("ingest").run, backlog, handle) for _ in range(4)]
    assert sum(answer.get(60) for answer in answers) == size
    assert sorted(done) == list(range(size))
    assert set(done.values()) == {1}
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert backlog.finished


def test_a_newcomer_gets_a_group_after_the_task_at_hand(run: Run) -> None:
    """Until the end of the task nobody else has its group; then the newcomer has, with a larger token."""
    one, two = run.client(), run.client()
    old = join(one, 2)
    eventually(lambda: shared(old))
    hand, answer = hold(one, old, 1)
    new = join(two, 2)
    eventually(lambda: not old.owns(1))
    assert not new.owns(1)
    hand.go_on.set()
    answer.get()
    eventually(lambda: new.owns(1))
    assert owners_of(old, new) == {0: [0], 1: [1]}
    assert new.owned()[1] > hand.token
    old.stop()
    new.stop()


def test_leaving_waits_for_the_task_at_hand(run: Run) -> None:
    """A worker that leaves begins nothing more, and its groups are handed on after its task."""
    one, two = run.client(), run.client()
    old, new = join(one, 2), join(two, 2)
    eventually(lambda: shared(old, new))
    (group,) = old.owned()
    hand, answer = hold(one, old, group)
    old.stop()
    assert not old.owned()
    assert old.joined
    assert not new.owns(group)
    hand.go_on.set()
    answer.get()
    eventually(lambda: shared(new))
    assert not old.joined
    new.stop()


def test_a_dead_workers_groups_are_taken_over(run: Run) -> None:
    """It ends without leaving: its groups go to the others at once, with a larger token."""
    one, two = run.client(), run.client()
    old, new = join(one, 2), join(two, 2)
    eventually(lambda: shared(old, new))
    ((group, token),) = old.owned().items()
    run.stop(one)
    eventually(lambda: shared(new))
    assert new.owned()[group] > token
    assert not old.joined
    new.stop()


def test_who_was_left_behind_takes_out_nothing(run: Run) -> None:
    """A task that hung in one worker was done by another one: it takes out no task of that one's."""
    one, two = run.client(), run.client()
    backlog = Backlog([0] * 3, int, groups=1, group_for=int, more=True)
    hand = Hand()

    def hang(task: int, token: int) -> None:
        hand.begun.set()
        eventually(hand.go_on.is_set)

    mine = join(one, 1)
    answer = one.do(mine.run, backlog, hang)
    eventually(hand.begun.is_set)
    mine.stop(now=True)
    other = Ownership("ingest", 1, group_for=int)
    done: list[int] = []
    paused = threading.Event()

    def handle(task: int, token: int) -> None:
        done.append(task)
        if len(done) == 1:
            paused.set()
            eventually(lambda: not mine.statistics().at_hand)

    another = two.do(other.run, backlog, handle)
    eventually(paused.is_set)
    hand.go_on.set()
    assert answer.get() == 1
    backlog.close()
    assert another.get() == 3
    assert done == [0] * 3


def test_tasks_are_added_while_workers_run(run: Run) -> None:
    """Idle workers wait for more, until the backlog is closed."""
    backlog: Backlog[int] = Backlog((), int, groups=4, group_for=lambda r: r % 4, more=True)
    done: list[int] = []
    group_for = backlog.grouping.group_for
    workers = [Ownership("ingest", 4, group_for=group_for) for _ in range(2)]
    answers = [
        run.client().do(worker.run, backlog, lambda task, token: done.append(task))
        for worker in workers
    ]
    for number in range(40):
        backlog.add(number)
        if number % 10 == 0:
            eventually(lambda: not len(backlog))
    backlog.close()
    assert sum(answer.get() for answer in answers) == 40
    assert sorted(done) == list(range(40))
    with pytest.raises(locks.MisuseError, match="closed"):
        backlog.add(1)


def test_a_worker_that_is_stopped_returns_what_it_has_done(run: Run) -> None:
    """`stop` from within a handler ends `run` after the task; the rest is there for others."""
    mine = Ownership("ingest", 1)
    backlog = Backlog(range(5), groups=1)

    def handle(task: int, token: int) -> None:
        if task == 2:
            mine.stop()

    assert run.client().call(mine.run, backlog, handle) == 3
    assert len(backlog) == 2
    assert not mine.joined


# --- Callbacks ------------------------------------------------------------------------------------


@pytest.mark.every_kind
def test_callbacks_frame_the_ownership(run: Run) -> None:
    """Gained before a task may begin; lost after the last task, before the next owner has gained."""
    story: list[tuple[Any, ...]] = []
    one, two = run.client(), run.client()

    def told(who: str) -> dict[str, Callable[..., object]]:
        return {
            "on_gained": lambda group, token: story.append((who, "gained", group, token)),
            "on_lost": lambda group: story.append((who, "lost", group)),
        }

    old = join(one, 1, **told("old"))
    eventually(lambda: shared(old))
    hand, answer = hold(one, old, 0)
    new = join(two, 1, **told("new"))
    old.stop()
    story.append(("old", "still busy"))
    hand.go_on.set()
    answer.get()
    eventually(lambda: shared(new))
    new.stop()
    eventually(lambda: not new.joined)
    tokens = [each[3] for each in story if each[1] == "gained"]
    assert tokens == sorted(tokens)
    assert [each[:2] for each in story] == [
        ("old", "gained"),
        ("old", "still busy"),
        ("old", "lost"),
        ("new", "gained"),
        ("new", "lost"),
    ]


@pytest.mark.parametrize("callback", ["on_gained", "on_lost"])
def test_a_callback_that_fails_ends_the_worker(run: Run, callback: str) -> None:
    """Its groups go to others; `run` and `hold` say why."""

    def fail(*args: Any) -> None:
        raise Failure

    one, two = run.client(), run.client()
    bad = join(one, 2, **{callback: fail})
    if callback == "on_lost":
        eventually(lambda: shared(bad))  # or the first agreement would be about both
    good = join(two, 2)
    eventually(lambda: shared(good))
    eventually(lambda: not bad.joined)
    with pytest.raises(OwnershipEnded, match="Failure"), bad.hold(0):
        pass
    good.stop()


# --- Misuse ---------------------------------------------------------------------------------------


def test_only_what_is_its_own_is_held(run: Run) -> None:
    """`hold` refuses what others own, and everything when one takes no part."""
    one = run.client()
    mine = Ownership("ingest", 2, group_for=int)
    with pytest.raises(OwnershipEnded, match="join"), mine.hold(0):
        pass
    one.call(mine.join)
    other = join(run.client(), 2)
    eventually(lambda: shared(mine, other))
    (theirs,) = other.owned()
    with pytest.raises(NotOwner, match=f"group {theirs} of 'ingest'") as caught, mine.hold(theirs):
        pass
    assert caught.value.__dict__["resource"] == theirs
    with pytest.raises(locks.MisuseError, match="already"):
        one.call(mine.join)
    mine.stop()
    other.stop()


def test_all_must_have_the_same_groups(run: Run) -> None:
    """Another number of groups, or another function, would put a resource into two of them."""
    mine = join(run.client(), 2)
    for other in (Ownership("ingest", 3, group_for=int), Ownership("ingest", 2)):
        with pytest.raises(locks.errors.InvalidOption, match="groups"):
            run.client().call(other.join)
        assert not other.joined
    with pytest.raises(locks.errors.InvalidOption, match="give both the same"):
        run.client().call(mine.run, Backlog(groups=3), print)
    with pytest.raises(locks.errors.InvalidOption, match="not a Backlog"):
        run.client().call(mine.run, [1, 2], print)
    mine.stop()
    eventually(lambda: not mine.joined)
    alone = Ownership("ingest", 3)
    run.client().call(alone.join)
    eventually(lambda: shared(alone))
    alone.stop()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Ownership("x", node="n@h"), "node='n@h' is not a node"),  # type: ignore[arg-type]
        (lambda: Ownership("x").run(Backlog(), None), "handler=None"),  # type: ignore[arg-type]
        (lambda: Backlog(None), "tasks=None"),  # type: ignore[arg-type]
        (lambda: Backlog([1], resource=1), "resource=1"),  # type: ignore[arg-type,call-overload]
    ],
)
def test_wrong_types(make: Callable[[], object], text: str) -> None:
    """What can't be used is refused where it is given."""
    with pytest.raises(locks.errors.InvalidOption, match=text):
        make()


# --- Ends -----------------------------------------------------------------------------------------


def test_the_node_is_stopped_under_a_worker(run: Run) -> None:
    """`run` does not return as if all were done."""
    backlog: Backlog[int] = Backlog(more=True)
    mine = Ownership("ingest")
    answer = run.client().do(mine.run, backlog, print)
    eventually(lambda: mine.owned())
    locks.stop()
    with pytest.raises(OwnershipEnded, match="node was stopped"):
        answer.get()


def test_old_tokens_get_no_tasks() -> None:
    """The line of a group is given only to who has the newest token."""
    backlog = Backlog(["a", "b"], lambda task: 0, groups=1)
    line = backlog.line(0, 7)
    assert backlog.line(0, 7) is line
    newer = backlog.line(0, 8)
    line.popleft()
    assert list(newer) == ["a", "b"]
    with pytest.raises(StaleToken, match="token 7 of group 0 is older than 8"):
        backlog.line(0, 7)


def test_a_fork_takes_no_part(run_script: Callable[..., str]) -> None:
    """In a forked child nobody is a worker, and it can join for itself."""
    script = """
        import os, time
        import locks
        from locks.ownership import Ownership

        def wait_for_groups():
            while len(mine.owned()) < 2:
                time.sleep(0.001)

        locks.start(servers=locks.HERE)
        mine = Ownership("ingest", 2)
        mine.join()
        wait_for_groups()
        child = os.fork()
        if not child:
            print("joined:", mine.joined)
            mine.join()
            wait_for_groups()
            print("groups:", len(mine.owned()), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print("groups of the parent:", len(mine.owned()))
    """
    assert run_script(script).splitlines() == [
        "joined: False",
        "groups: 2",
        "groups of the parent: 2",
    ]


# --- Who may share a backlog, and who may run within whom: what can't be safe, or can't end, is refused at the start. ---


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Nodes of this process, which are ended."""
    found = Nodes()
    yield found
    found.stop()


def nothing(task: Any, token: int) -> None:
    """Do a task."""


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.usefixtures("here")
def test_workers_of_both_classes_share_no_backlog(run: Run, first: int) -> None:
    """Their coordinators know nothing of each other: each task would be done by both."""
    kinds: list[Any] = [Ownership, locks_leader.Ownership]
    tasks = Backlog(range(100), groups=4, more=True)
    done: Counter[int] = Counter()

    def handle(task: int, token: int) -> None:
        done[task] += 1
        run.pause()

    one, two = kinds[first]("x", 4), kinds[1 - first]("x", 4)
    answer = run.client().do(one.run, tasks, handle)
    eventually(lambda: done)
    with pytest.raises(locks.errors.InvalidOption, match="know nothing of those of"):
        run.client().call(two.run, tasks, handle)
    assert not two.joined
    tasks.close()
    assert answer.get() == 100
    assert set(done.values()) == {1}


@pytest.mark.parametrize("kind", [Ownership, locks_leader.Ownership])
def test_workers_of_two_nodes_share_no_backlog(kind: Any, nodes: Nodes) -> None:
    """Whoever is on another node has another backlog; those of one node share, also once it was stopped and started again."""
    one, two = nodes.start("n1@127.0.0.1"), nodes.start("n2@127.0.0.1")
    tasks = Backlog(range(10), groups=2)
    assert kind("x", 2, node=one).run(tasks, nothing) == 10
    assert kind("x", 2, node=one).run(tasks, nothing) == 0
    for other in (kind("x", 2, node=two), kind("x", 2)):
        with pytest.raises(locks.errors.InvalidOption, match="n1@127"):
            other.run(tasks, nothing)
        assert not other.joined
    one.stop()
    again = nodes.start("n1@127.0.0.1")
    assert kind("x", 2, node=again).run(tasks, nothing) == 0


# --- Within a handler -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Ownership, locks_leader.Ownership])
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.usefixtures("here")
def test_a_handler_runs_no_worker_of_the_same_name(run: Run, kind: Any, same: bool) -> None:
    """It would wait for the tasks in the groups of its own worker, which waits for it. The task fails by that, and says so."""
    tasks = Backlog([1], groups=2)
    others = tasks if same else Backlog(range(9), groups=2)

    def handle(task: int, token: int) -> None:
        kind("x", 2).run(others, nothing)

    with pytest.raises(locks.MisuseError, match="was called by the handler of a task"):
        run.client().call(kind("x", 2).run, tasks, handle)
    assert len(tasks) == 1


# --- Ownership: calls that meet in the middle of each other, and calls that are broken off. ---


def group_for(task: int) -> int:
    """The group of a task."""
    return task % 2


def own(**options: Any) -> Ownership:
    """A worker of "ingest", which has two groups."""
    return Ownership("ingest", 2, group_for=group_for, **options)


def backlog_of(tasks: Any) -> Backlog[Any]:
    """A backlog with the same groups."""
    return Backlog(tasks, groups=2, group_for=group_for)


# --- Joining --------------------------------------------------------------------------------------


@pytest.mark.every_kind
def test_a_join_that_is_broken_off_keeps_no_groups(run: Run) -> None:
    """`KeyboardInterrupt`, or a kill, when the coordinator knows of the worker already."""

    class Interrupted(Ownership):
        def _start(self, part: Part) -> None:
            super()._start(part)
            raise KeyboardInterrupt

    mine, other = Interrupted("ingest", 2), Ownership("ingest", 2)
    with pytest.raises(KeyboardInterrupt):
        mine.join()
    assert not mine.joined
    run.client().call(other.join)
    eventually(lambda: len(other.owned()) == 2)
    other.stop()


def test_a_join_that_is_broken_off_before_it_arrives(run: Run) -> None:
    """The coordinator hears of a worker whose `join` was left long ago: it is shown out again."""
    mine = own()
    late: list[Part] = []

    class Slow(Ownership):
        def _start(self, part: Part) -> None:
            late.append(part)
            raise Failure

    with pytest.raises(Failure):
        run.client().call(Slow("ingest", 2, group_for=group_for).join)
    mine._start(late[0])
    run.client().call(mine.join)
    eventually(lambda: len(mine.owned()) == 2)
    mine.stop()


def test_a_stop_before_join_is_through_counts(run: Run) -> None:
    """`on_gained` stops the worker, and `join` has not returned yet."""
    told = threading.Event()

    class Slow(Ownership):
        def _start(self, part: Part) -> None:
            super()._start(part)
            eventually(told.is_set)

    def stop(group: int, token: int) -> None:
        mine.stop()
        told.set()

    mine = Slow("ingest", 2, on_gained=stop)
    client = run.client()
    client.call(mine.join)
    eventually(lambda: not mine.joined)


# --- Running --------------------------------------------------------------------------------------


def test_a_worker_runs_one_backlog_at_a_time(run: Run) -> None:
    """Two loops of one worker would do a task twice and take out another one: that is refused."""
    mine = own()
    backlog = backlog_of(range(10))
    done: list[int] = []

    def handle(task: int, token: int) -> None:
        with pytest.raises(locks.MisuseError, match="its own Ownership"):
            mine.run(backlog, handle)
        done.append(task)

    assert run.client().call(mine.run, backlog, handle) == 10
    assert sorted(done) == list(range(10))


def test_a_run_that_is_broken_off_after_the_last_task_tells_the_others(run: Run) -> None:
    """It is killed, or timed out, when all is done: who is idle does not wait for ever."""

    class Torn(deque[int]):
        def popleft(self) -> int:
            super().popleft()
            raise Failure

    one, two = run.client(), run.client()
    mine, other = own(), own()
    one.call(mine.join)
    two.call(other.join)
    eventually(lambda: len(mine.owned()) == len(other.owned()) == 1)
    backlog = backlog_of(mine.owned())
    (group,) = mine.owned()
    backlog.line(group, mine.owned()[group])
    backlog._lines[group].tasks = Torn(backlog._lines[group].tasks)
    waiting = two.do(other.run, backlog, print)
    eventually(lambda: any(run._waiter for run in backlog._runs))  # type: ignore[attr-defined]
    with pytest.raises(Failure):
        one.call(mine.run, backlog, lambda task, token: None)
    assert waiting.get() == 0
    mine.stop()
    other.stop()


# --- Stopping in the middle -----------------------------------------------------------------------


def test_control_c_leaves_nothing_at_hand(run_script: Callable[..., str]) -> None:
    """It comes when a task is being entered, as begun or ended: the worker can leave all the same."""
    script = """
        import signal, time
        import locks
        from locks.ownership import Ownership
        from locks.ownership.member import Member

        class Interrupted(Member):
            when = "begin"

            def begin_task(self, group, task):
                self.interrupt("begin")
                return super().begin_task(group, task)

            def end_task(self, task):
                self.interrupt("end")
                return super().end_task(task)

            def interrupt(self, what):
                if what == self.when:
                    Interrupted.when = ""  # once: the background may do it again
                    signal.raise_signal(signal.SIGINT)  # in this thread: it comes right here

        locks.start()
        for when in ("begin", "end"):
            mine = Ownership("ingest", 1)
            try:
                with mine:
                    while not mine.owned():
                        time.sleep(0.001)
                    Interrupted.when = when
                    mine._part.member.__class__ = Interrupted
                    with mine.hold("a"):
                        pass
            except KeyboardInterrupt:
                print(when, mine.joined, mine.statistics().at_hand)
    """
    assert run_script(script).splitlines() == ["begin False 0", "end False 0"]
