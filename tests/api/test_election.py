"""The simple face of elections, and one behaviour in one program, with callers of every kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pykka
import pytest

import locks
import locks_leader
from locks.runtime.waiter import Event
from locks_leader import Behaviour, Election, Leadership, OnlyNew, SurrenderTo
from locks_leader.election import _Part
from locks_leader.state import ElectionState
from tests.api.clients import PATCHED, AnswerWait, Client, Run
from tests.helpers import LIMIT, eventually

pytestmark = pytest.mark.usefixtures("here")


class Failure(Exception):
    """What goes wrong on purpose."""


def lead(client: Client, election: Election) -> AnswerWait:
    """Let a client lead until the leadership is lost; it does when this returns."""
    begun = threading.Event()

    def work(leadership: Leadership) -> bool:
        begun.set()
        return leadership.lost.wait()

    answer = client.do(election.run, work)
    eventually(begun.is_set)
    return answer


# --- Election -----------------------------------------------------------------------------------


@pytest.mark.every_kind
def test_run_leads_and_gives_back(run: Run) -> None:
    """The function runs while leading, with a term; its value is returned, and the next one leads."""
    clients = [run.client() for _ in range(4)]
    leading: list[Leadership] = []
    most = 0

    def work(leadership: Leadership, number: int) -> int:
        nonlocal most
        leading.append(leadership)
        most = max(most, sum(not each.lost.is_open for each in leading))
        leadership.ensure_leading()
        run.pause()
        return number

    answers = [c.do(Election("report").run, work, number) for number, c in enumerate(clients)]
    assert [answer.get() for answer in answers] == [0, 1, 2, 3]
    terms = [each.term for each in leading]
    assert terms == sorted(set(terms))
    eventually(lambda: all(each.lost.is_open for each in leading))


def test_an_exception_steps_down(run: Run) -> None:
    """It goes to the caller of `run`, and the next one leads."""
    one, two = run.client(), run.client()

    def fail(_: Leadership) -> None:
        raise Failure

    with pytest.raises(Failure):
        one.call(Election("report").run, fail)
    assert two.call(Election("report").run, lambda _: "done") == "done"


def test_as_a_decorator(run: Run) -> None:
    """To call the function is to run it, with the leadership before its arguments."""

    @Election("report")
    def report(leadership: Leadership, day: str) -> tuple[int, str]:
        return leadership.term, day

    term, day = run.client().call(report, "monday")
    assert term > 0
    assert day == "monday"


def test_stop_while_waiting(run: Run) -> None:
    """Who waits for the leadership gets nothing, and takes part no longer."""
    one, two = run.client(), run.client()
    first, second = Election("report"), Election("report")
    until_lost = lead(one, first)
    waiting = two.do(second.run, lambda _: "led")
    eventually(lambda: locks.statistics().agents >= 4)
    second.stop()
    assert waiting.get() is None
    assert not until_lost.ready
    first.stop()
    assert until_lost.get() is True


def test_stop_while_leading(run: Run) -> None:
    """The function is told; the leadership is given back when it has returned, and not before."""
    one, two = run.client(), run.client()
    first, second = Election("report"), Election("report")
    begun, told = threading.Event(), threading.Event()
    go = Event()

    def work(leadership: Leadership) -> str:
        begun.set()
        leadership.lost.wait()
        told.set()
        go.wait()
        return "done"

    ending = one.do(first.run, work)
    eventually(begun.is_set)
    leadership = first.leadership
    assert leadership is not None
    next_one = two.do(second.run, lambda _: "led")
    first.stop()
    eventually(told.is_set)
    with pytest.raises(locks_leader.LeadershipLost, match="has ended"):
        leadership.ensure_leading()
    run.pause()
    assert not next_one.ready
    go.open()
    assert ending.get() == "done"
    assert next_one.get() == "led"


def test_a_time_limit(run: Run) -> None:
    """Who is not elected in time takes part no longer."""
    one, two = run.client(), run.client()
    first = Election("report")
    ending = lead(one, first)
    with pytest.raises(locks_leader.LeaderTimeout, match=r"0.05 s waiting .*report"):
        two.call(Election("report").run, lambda _: None, timeout=0.05)
    first.stop()
    ending.get()


def test_callbacks_tell_of_elections() -> None:
    """`on_elected` and `on_lost` get the same leadership, and take turns."""
    log: list[tuple[str, Leadership]] = []

    def candidate(name: str) -> Election:
        return Election(
            "report",
            on_elected=lambda leadership: log.append((f"{name} leads", leadership)),
            on_lost=lambda leadership: log.append((f"{name} has led", leadership)),
        )

    one, two = candidate("one"), candidate("two")
    one.start()
    eventually(lambda: log)
    two.start()
    one.stop()
    eventually(lambda: len(log) == 3)
    two.stop()
    eventually(lambda: len(log) == 4)
    told = [text for text, _ in log]
    assert sorted(told[1:3]) == ["one has led", "two leads"]
    assert (told[0], told[3]) == ("one leads", "two has led")
    assert {id(leadership) for _, leadership in log} == {id(one_s) for _, one_s in (log[0], log[3])}


def test_misuse() -> None:
    """What is wrong is said, and nothing is begun."""
    election = Election("report")
    election.start()
    with pytest.raises(locks.MisuseError, match=r"already takes part"):
        election.run(lambda _: None)
    election.stop()
    with pytest.raises(locks.errors.InvalidOption, match="needs nodes="):
        Election("report", policy="majority").run(lambda _: None)
    with pytest.raises(locks.errors.InvalidOption, match="name=None"):
        Election(None)  # else all that have no name would take part in the same one
    with pytest.raises(locks.errors.InvalidOption, match="nodes='a@b'"):
        Election("report", nodes="a@b")
    with pytest.raises(locks.errors.InvalidOption, match="node='a@b' is not a node"):
        Election("report", node="a@b")  # type: ignore[arg-type]
    with pytest.raises(locks.errors.InvalidOption, match="caller=17"):
        locks_leader.reply(17, "answer")  # type: ignore[arg-type]
    with pytest.raises(locks.errors.InvalidOption, match="a quorum must be"):
        locks_leader.quorum(0)
    with pytest.raises(locks.errors.InvalidOption, match="Behaviour"):
        locks_leader.start(object)  # type: ignore[arg-type]
    with pytest.raises(locks.errors.InvalidOption, match="role='boss'"):
        locks_leader.start(Behaviour, role="boss")  # type: ignore[arg-type]


FORK = """
    {prelude}
    import os, locks, locks_leader

    locks.start(servers=locks.HERE)
    leads = locks.runtime.waiter.Event()
    elected = locks_leader.Election("report", on_elected=lambda leadership: leads.open())
    elected.start()
    leads.wait()
    leadership = elected.leadership
    other = locks_leader.start(locks_leader.Behaviour, resource="other")
    child = os.fork()
    if not child:
        assert leadership.lost.is_open, "the parent leads"
        assert elected.leadership is None
        assert not other.is_alive()
        assert locks_leader.Election("report").run(lambda leadership: "afresh", timeout=5) == "afresh"
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    leadership.ensure_leading()
    elected.stop()
    locks.stop()
    print("parent")
"""


@pytest.mark.skipif(PATCHED, reason="has its own processes")
@pytest.mark.parametrize("prelude", ["pass", "import gevent; gevent.get_hub()"])
def test_in_a_forked_child_nobody_takes_part(run_script: Callable[..., str], prelude: str) -> None:
    """What the parent leads, the child does not; it can take part afresh."""
    assert run_script(FORK.format(prelude=prelude)) == "parent\n"


# --- A behaviour --------------------------------------------------------------------------------


class Notes(Behaviour):
    """Keeps notes, in the leader and in all that follow."""

    def init(self, name: str) -> None:
        self.name = name
        self.notes: list[str] = []
        self.log: list[str] = []
        self.later: list[locks_leader.Caller] = []

    def elected(self, election: locks_leader.ElectionState, newcomer: Any) -> Any:
        self.log.append("elected" if newcomer is None else "newcomer")
        of = None if newcomer is None else [newcomer]
        for _, notes in election.ask_candidates("notes", of).replies:
            self.notes += [note for note in notes if note not in self.notes]
        return OnlyNew(tuple(self.notes))

    def surrendered(self, message: Any, election: locks_leader.ElectionState) -> None:
        self.log.append("surrendered")
        self.notes = list(message)

    def stepped_down(self, election: locks_leader.ElectionState) -> None:
        self.log.append("stepped down")

    def handle_leader_call(
        self, request: Any, caller: locks_leader.Caller, election: locks_leader.ElectionState
    ) -> Any:
        if request == "fail":
            raise Failure("on purpose")
        if request == "time is over":
            raise pykka.Timeout("the database is late")
        if request == "later":
            self.later.append(caller)
            return locks_leader.NO_REPLY
        self.notes.append(request)
        election.broadcast(request)
        return self.name

    def handle_leader_cast(self, message: Any, election: locks_leader.ElectionState) -> None:
        if message == "answer":
            locks_leader.leader_reply(self.later.pop(), "at last")
        else:
            raise Failure(message)

    def from_leader(self, message: Any, election: locks_leader.ElectionState) -> None:
        self.notes.append(message)

    def handle_call(
        self, request: Any, caller: locks_leader.Caller, election: locks_leader.ElectionState
    ) -> Any:
        if request == "broadcast":
            election.broadcast("x")
        if request == "ask":
            election.ask_candidates("notes")
        if request == "unanswered":
            return len(self.later)
        if request == "followers":
            return election.alive
        return list(self.log if request == "log" else self.notes)

    def handle_cast(self, message: Any, election: locks_leader.ElectionState) -> None:
        self.notes.append(f"cast {message}")

    def handle_info(self, message: Any, election: locks_leader.ElectionState) -> None:
        self.notes.append(f"info {message}")


@contextmanager
def three_candidates() -> Iterator[list[pykka.ActorRef[Any]]]:
    """Three candidates in one program; the first one leads."""
    refs = [locks_leader.start(Notes, name) for name in ("one", "two", "three")]
    settled(refs)
    assert locks_leader.info(refs[0]).role == "leader"
    try:
        yield refs
    finally:
        for ref in refs:
            ref.stop()


def settled(refs: list[pykka.ActorRef[Any]]) -> pykka.ActorRef[Any]:
    """Wait until all of them agree on a leader, and return it."""

    def leader() -> Any:
        known = [locks_leader.info(ref) for ref in refs]
        agreed = len({(each.leader, each.term) for each in known}) == 1
        return agreed and known[0].leader in refs and known[0].leader

    return eventually(leader)


def test_three_candidates_in_one_node(run: Run) -> None:
    """The original's first case: they agree, and what one writes all of them have."""
    with three_candidates() as three:
        client = run.client()
        assert client.call(locks_leader.leader_call, three[2], "hello") == "one"
        eventually(lambda: [locks_leader.call(ref, "notes") for ref in three] == [["hello"]] * 3)
        info = client.call(locks_leader.info, three[1])
        assert info.leader == three[0]
        assert info.role == "following"
        assert set(info.candidates) == {three[0], three[2]}


@pytest.mark.every_kind
def test_the_next_leader_has_the_state(run: Run) -> None:
    """Whether the leader stops or crashes; calls through any instance go on."""
    with three_candidates() as three:
        client = run.client()
        client.call(locks_leader.leader_call, three[1], "first")
        three.pop(0).stop()
        assert client.call(locks_leader.leader_call, three[1], "second") in ("two", "three")
        leader = settled(three)
        locks_leader.leader_cast(three[0], "crash")
        three.remove(leader)
        # Until it is told of the leader's end, it passes calls on to it, which fail.
        eventually(lambda: locks_leader.info(three[0]).leader != leader)
        assert client.call(locks_leader.leader_call, three[0], "third") in ("two", "three")
        assert locks_leader.call(three[0], "notes") == ["first", "second", "third"]
        log = locks_leader.call(three[0], "log")
        assert log[-1] == "elected"
        assert "stepped down" not in log


def test_workers_follow_and_do_not_lead(run: Run) -> None:
    """A worker learns of each leader, passes calls on, and waits while there is none."""
    client = run.client()
    worker = locks_leader.start(Notes, "worker", role="worker")
    waiting = client.do(locks_leader.leader_call, worker, "early")
    assert locks_leader.info(worker).leader is None
    one = locks_leader.start(Notes, "one")
    assert waiting.get() == "one"
    two = locks_leader.start(Notes, "two")
    settled([one, two, worker])
    assert locks_leader.info(one).workers == [worker]
    one.stop()
    settled([two, worker])
    assert client.call(locks_leader.leader_call, worker, "late") == "two"
    assert locks_leader.call(worker, "notes") == ["early", "late"]
    for ref in (two, worker):
        ref.stop()


class Asks(Behaviour):
    """Asks the other candidates when it is elected, and keeps what became of it."""

    def init(self, answer: Callable[[], Any]) -> None:
        self.answer = answer
        self.errors: list[str] = []

    def elected(self, election: ElectionState, newcomer: Any) -> None:
        if newcomer is None and election.candidates:
            asked = election.ask_candidates("?", timeout=0.05 if self.answer is silent else None)
            self.errors = [str(error) for _, error in asked.errors]

    def handle_call(self, request: Any, caller: locks_leader.Caller, election: Any) -> Any:
        return self.errors if request == "errors" else self.answer()


def silent() -> Any:
    """Give no answer."""
    return locks_leader.NO_REPLY


def late() -> Any:
    """Fail as one does who has waited for somebody else."""
    raise pykka.Timeout("the database is late")


@pytest.mark.parametrize(
    ("answer", "says"), [(silent, "timed out waiting for"), (late, "the database is late")]
)
def test_a_candidate_that_does_not_answer(answer: Callable[[], Any], says: str) -> None:
    """The new leader learns why: its own time was over, or the candidate's was, which ends the wait at once."""
    refs = [locks_leader.start(Asks, answer, resource="asks") for _ in range(3)]
    eventually(lambda: [len(locks_leader.info(ref).candidates) for ref in refs] == [2, 2, 2])
    eventually(lambda: all(locks_leader.info(ref).leader for ref in refs))
    leader = locks_leader.info(refs[0]).leader
    assert leader is not None
    leader.stop()
    left = [ref for ref in refs if ref != leader]

    def errors() -> list[list[str]]:
        return [locks_leader.call(ref, "errors") for ref in left]

    eventually(lambda: any(errors()))
    assert all(says in error for each in errors() for error in each)
    for ref in left:
        ref.stop()


def test_the_leader_dies_before_it_answers(run: Run) -> None:
    """The caller gets `LeaderDied`, whether it called the leader itself or through another one."""
    with three_candidates() as three:
        clients = [run.client(), run.client()]
        waiting = [
            client.do(locks_leader.leader_call, through, "later", timeout=None)
            for client, through in zip(clients, three, strict=False)
        ]
        eventually(lambda: locks_leader.call(three[0], "unanswered") == 2)
        three.pop(0).stop()
        for answer in waiting:
            with pytest.raises(locks_leader.LeaderDied, match="it is unknown whether"):
                answer.get()


class Broken(Notes):
    """Fails when it steps down."""

    def stepped_down(self, election: locks_leader.ElectionState) -> None:
        raise Failure("broken")


def test_a_callback_that_fails_ends_the_instance() -> None:
    """The locks are given back, and another candidate leads."""
    broken = locks_leader.start(Broken, "broken", resource="r")
    other = locks_leader.start(Notes, "other", resource="r")
    assert settled([broken, other]) == broken
    (agent,) = [
        agent
        for agent in list(locks.program.default.default_node().agents_by_id.values())
        if agent.client == broken and not agent.machine.empty
    ]
    agent.stop()
    eventually(lambda: not broken.is_alive())
    with pytest.raises(pykka.ActorDeadError):
        locks_leader.call(broken, "notes")
    eventually(lambda: locks_leader.info(other).role == "leader")
    other.stop()


class Modest(Notes):
    """Gives the leadership to the first that comes."""

    def elected(self, election: locks_leader.ElectionState, newcomer: Any) -> Any:
        super().elected(election, newcomer)
        return "state" if newcomer is None else SurrenderTo(newcomer)


def test_surrender_to_a_named_candidate() -> None:
    """It leads next, before others that have waited for longer; who surrendered follows it."""
    modest = locks_leader.start(Modest, "modest", resource="r")
    eventually(lambda: locks_leader.info(modest).role == "leader")
    heir = locks_leader.start(Notes, "heir", resource="r")
    assert settled([modest, heir]) == heir
    eventually(
        lambda: (
            locks_leader.call(modest, "log")
            == ["elected", "newcomer", "stepped down", "surrendered"]
        )
    )
    for ref in (modest, heir):
        ref.stop()


# --- Labels -------------------------------------------------------------------------------------


class Contended:
    """A lock that says how many have come to it."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.came = lock, 0

    def __enter__(self) -> None:
        self.came += 1
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@pytest.mark.skipif(PATCHED, reason="there, greenlets take turns in one thread")
def test_one_of_two_threads_begins() -> None:
    """One looks whether this program takes part already, and then the other one: only one of them takes part."""
    election = Election("report")
    beginning = Contended(election._beginning)
    second = ThreadPoolExecutor(1)
    begun: list[Future[None]] = []

    class Over(_Part):
        """A part that is over, as long as it takes the other one to come."""

        ending = property(lambda self: self.look(), lambda self, value: None)  # type: ignore[assignment]

        def look(self) -> bool:
            if not begun:
                begun.append(second.submit(election.start))
                eventually(lambda: beginning.came == 2 or begun[0].done())
            return True

    election._beginning = beginning
    election._part = Over(election, once=False)
    election.start()
    with pytest.raises(locks.MisuseError, match="already takes part in 'report'"):
        begun[0].result(LIMIT)
    second.shutdown()
    election.stop()


def test_a_term_stays_the_same() -> None:
    """As long as the program leads, also if it takes over further nodes, for which the instance's own term rises."""

    class State:
        term = 17

    state: Any = State()
    leadership = Leadership(state)
    state.term = 18
    assert leadership.term == 17
