"""What lock servers tell observers: times, names, pages, and the wait-for graph that follows from them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

import locks
from locks.cli.ids import near, parse_id
from locks.core.facts import (
    MOST_CLIENTS,
    AskClients,
    AskDeadlocks,
    AskMembers,
    AskNode,
    AskRequests,
    Break,
    Broken,
    ClientPage,
    DeadlockFact,
    DeadlockPage,
    Question,
    RequestFact,
    RequestPage,
    Untold,
    node_of,
)
from locks.core.messages import Release, Remove, Request, ServerMessage, Surrender
from locks.core.server.machine import FEW, ServerMachine
from locks.core.server.tree import Entry
from locks.facts.around import group_name
from locks.facts.graph import WaitReport, waits_of
from locks.facts.pictures import FORMATS
from locks.facts.stories import why
from locks.lock_ids import check_lock_id
from locks.model import AgentId, Deadlock, Edge, LockId, RequestRecord, blocks, related, show
from locks.net.messages import Call, Reply, decode, encode
from locks.node.history import begin, replay
from locks.node.observing.record import Record
from locks.node.observing.statistics import Counters
from locks.node.observing.times import Times
from locks.ranges import LONGEST_NAME, LONGEST_TEXT, MOST_EDGES, replace
from tests.helpers import SEED

ME = AgentId(1 << 40, "a@x", 0)
HOLDER, NEXT, LAST = (AgentId((1 << 40) + (n << 12), f"{n}@x", 0) for n in (1, 2, 3))


# --- Times --------------------------------------------------------------------------------------


def test_times_of_turns_that_are_done_and_undone() -> None:
    """Of each request is known when it was asked for, granted and surrendered, and of none that is gone; what is over is
    counted; whatever is undone, made anew and put down twice."""
    rng = random.Random(SEED)
    clock = 0.0
    times = Times(lambda: clock)
    machine = ServerMachine("a@x", 1)
    history = begin(machine)
    known: dict[int, tuple[bool, float]] = {}
    waits, holds, given_up = [0.0], [0.0], [0.0]
    for _ in range(2_000):
        clock += rng.random()
        changed: list[Entry] = []
        kept = len(history)
        for _ in range(rng.randint(1, 2)):
            message = any_message(rng)
            history.append((machine.handle, (message,)))
            machine.handle(message)
            changed += machine.changed
        if rng.random() < 0.2:
            del history[kept:]
            replay(history)
            continue
        for _ in range(rng.randint(1, 2)):
            times.note(changed)
        if rng.random() < 0.1:
            history = begin(machine)
            replay(history)
        numbers = list(machine.numbers(()))
        assert numbers == sorted(numbers) == list(machine.numbers((), 0))
        present = {n: entry.granted for n in numbers if (entry := machine.table.entry(n))}
        for number in known.keys() - present.keys():
            granted, at = known.pop(number)
            (holds if granted else given_up).append(clock - at)
        for number, granted in present.items():
            before, at = known.get(number, (granted, clock))
            if before is not granted:
                (waits if granted else holds).append(clock - at)
                at = clock
            known[number] = granted, at
        assert times.got == {n: at for n, (granted, at) in known.items() if granted}
        waiting = {n: at for n, (granted, at) in known.items() if not granted}
        assert waiting.items() <= times.asked.items()
        assert times.asked.keys() <= known.keys()
    counted = times.all.statistics()
    for durations, seconds in zip(astuple(counted), (waits, given_up, holds), strict=True):
        assert durations.total == len(seconds) - 1 > 0
        assert durations.seconds == pytest.approx(sum(seconds))


@pytest.mark.parametrize("is_loaded", [False, True])
def test_requests_by_their_numbers(is_loaded: bool) -> None:
    """Those related to an id, few or many, after any number; also in a table that was saved and loaded."""
    machine = ServerMachine("a@h", 1)
    agents = [AgentId(n, "a@h", n) for n in range(7)]
    for n in range(3 * FEW):
        lock_id = ("a", n) if n % 3 else ("b", n % 50, n)
        machine.handle(Request(agents[n % 7], "c", lock_id, "write"))
    machine.handle(Request(agents[0], "c", ("a",), "read"))
    if is_loaded:
        saved, machine = machine.save(), machine.another()
        machine.load(saved)
    every = {number: entry.slot.lock_id for number, entry in machine.table._entries.items()}
    for lock_id in ((), ("a",), ("b",), ("b", 3), ("b", 3, 3), ("a", 4), ("e",)):
        right = sorted(n for n, its in every.items() if related(its, lock_id))
        middle = right[len(right) // 2] if right else 1
        for after in (0, middle, max(every)):
            assert list(machine.numbers(lock_id, after)) == [n for n in right if n > after]


def any_message(rng: random.Random) -> ServerMessage:
    """A request, or less of one."""
    agent = rng.choice((HOLDER, NEXT, LAST))
    lock_id = tuple(rng.choice("ab") for _ in range(rng.randint(1, 2)))
    return rng.choice(
        (
            Request(agent, "c", lock_id, rng.choice(("read", "write"))),
            Release(agent, lock_id),
            Surrender(agent, lock_id),
            Remove(agent),
        )
    )


def recording(
    machine: ServerMachine,
    wall: Callable[[], int] = lambda: 10**15,
    clock: Callable[[], float] = lambda: 7.0,
) -> Record:
    """A record of a machine."""
    return Record(machine, Times(clock), wall, Counters())


def handle(recorded: Record, message: ServerMessage) -> None:
    """Have a message taken in, in a turn of its own."""
    machine = recorded._machine
    machine.handle(message)
    recorded._times.note(machine.changed)


# --- Names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lock_id",
    [
        *[("a",), ("a", "b"), ("a/b",), ("", "b"), ("(", 1), ("x", 17), ("-x",), ("[a",)],
        *[
            ("a\nb",),
            ("\x1b[2J",),
            ("agent-1@x",),
            ("für", b"\xff"),
            ("a", ("b'", 1.5)),
            ("$election", "chief"),
            ("$election merge", "chief of all"),
            ("$election", 'a "b" merge'),
            ("$election", "two\nlines"),
            ("$election", ("jobs", "x", 17)),
            ("$election", 17),
            ("$election", "chief", "below it"),
            ('election "chief"',),
        ],
    ],
)
def test_ids_as_one_types_them(lock_id: LockId) -> None:
    """What a command prints of an id, a command takes for it."""
    assert parse_id(show(lock_id)) == lock_id
    assert show(lock_id).isprintable(), "what a terminal would obey stays text"


ELEMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(max_size=5)
    | st.from_regex(r"[-+_0-9.exb'\"(\[*/ ]{1,6}", fullmatch=True),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple),
    max_leaves=4,
)


@given(elements=st.lists(ELEMENTS, min_size=1, max_size=4), units=st.integers(0, 3))
def test_every_id_is_read_as_it_is_written(elements: list[Any], units: int) -> None:
    """Whatever plain values it has: the id of logs, errors, spans and pages is what commands take, in its types, too."""
    lock_id = check_lock_id((*elements, ("$units", units)) if units else tuple(elements))
    text = show(lock_id)
    assert text.isprintable()
    assert repr(parse_id(text)) == repr(lock_id)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("basket/17", ("basket", 17)),
        ("nightly/2026-11-25", ("nightly", "2026-11-25")),
        ("v/1.50/007/1_000", ("v", "1.50", "007", "1_000")),
        ("v/1.5", ("v", 1.5)),
        ('("basket", 17)', ("basket", 17)),
        ("licences/5*3", ("licences", 5, ("$units", 3))),
        ("it's/a b", ("it's", "a b")),
    ],
)
def test_what_one_types(typed: str, meant: LockId) -> None:
    """A number is one, and what only looks like one is text."""
    assert parse_id(typed) == meant
    assert list(map(type, parse_id(typed))) == list(map(type, meant))


def test_a_near_miss_is_answered_with_what_is_there() -> None:
    """Another type, other letters, a letter too few."""
    there = [("basket", 17), ("Accounts", "ann"), ("other",)]
    assert near(("basket", "17"), there) == ["basket/17"]
    assert near(("accounts", "an"), there) == ["Accounts/ann"]
    assert near(("nothing", "like", "it"), there) == []


def test_the_locks_of_elections_have_names() -> None:
    """Also without quotes, as one may type them; what names none is refused."""
    lock_id = ("$election", "chief")
    assert show(lock_id) == 'election "chief"'
    assert parse_id("election chief") == lock_id
    assert show(parse_id("election chief merge")) == 'election "chief" merge'
    assert group_name(lock_id) == 'candidates of election "chief"'
    for wrong in ("election ", "election 'a", 'election "a", "b"'):
        with pytest.raises(locks.errors.InvalidLockId, match=r"is not an election"):
            parse_id(wrong)


# --- Messages -----------------------------------------------------------------------------------


def record(
    number: int, lock_id: LockId, agent: AgentId = ME, state: Any = "granted"
) -> RequestRecord:
    """A request."""
    return RequestRecord(
        "a@x", number, agent, "ann", lock_id, "write", state, number, number, True, number
    )


LARGE: LockId = tuple("x" * 200 for _ in range(256))
QUESTIONS: list[Question] = [
    AskRequests(None, 0),
    AskRequests(LARGE, (1 << 63) - 1),
    AskDeadlocks(7),
    AskNode("a@x"),
    AskClients("n" * LONGEST_NAME),
    AskMembers("n" * LONGEST_NAME, (1 << 63) - 1),
    Break(ME, "r" * LONGEST_TEXT, "b" * LONGEST_TEXT),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: type(question).__name__)
def test_questions(question: Question) -> None:
    """Each arrives as it was sent."""
    assert decode(encode(Call(1, question))) == Call(1, question)


def test_the_largest_pages() -> None:
    """They can be sent; each has at least one part, and says whether there is more."""
    machine = ServerMachine("a@x", 1)
    recorded = recording(machine)
    for number in range(150):
        machine.handle(Request(ME, "c" * LONGEST_TEXT, (number, *LARGE[:3]), "write"))
    machine.handle(Request(ME, "c", LARGE, "write"))
    after = count = 0
    more = True
    while more:
        page = recorded.requests(None, after, lambda _: "127.0.0.1:1")
        assert decode(encode(Reply(1, page))) == Reply(1, page)
        assert page.requests
        after, more = page.requests[-1].request.number, page.more
        count += len(page.requests)
    assert count == 151
    edge = Edge(record(1, LARGE[:100]), record(2, LARGE[:100]))
    report = Deadlock(ME, ("a",), "a@x", "aborted", (edge,) * MOST_EDGES, "the youngest")
    deadlocks = DeadlockPage((DeadlockFact(1, 2, 3, report),), True)
    clients = ClientPage(("n" * LONGEST_NAME,) * MOST_CLIENTS, True)
    why = "w" * LONGEST_TEXT
    for answer in (deadlocks, clients, Broken(False, why), Untold(why)):
        assert decode(encode(Reply(1, answer))) == Reply(1, answer)


def test_whom_a_question_is_for() -> None:
    """Only what is for a certain node is passed on to another one."""
    assert [node_of(each) for each in QUESTIONS] == [
        *(None, None, None, "a@x", None),
        *("n" * LONGEST_NAME, ME.node),
    ]


# --- The graph ----------------------------------------------------------------------------------


def table_of(*requests: tuple[AgentId, LockId, Any]) -> WaitReport:
    """The graph of a lock table that was asked for these."""
    machine = ServerMachine("a@x", 1)
    recorded = recording(machine)
    for agent, lock_id, mode in requests:
        machine.handle(Request(agent, f"c{agent.created >> 12 & 7}", lock_id, mode))
    page: RequestPage = recorded.requests(None, 0, lambda _: "")
    return waits_of(page.requests)


def test_roots() -> None:
    """The one who waits for nobody, and for whom all others wait; and who waits behind whom."""
    waits = table_of(
        (HOLDER, ("a",), "read"),
        (NEXT, ("b", 1), "write"),
        (NEXT, ("a", 1), "write"),
        (LAST, ("b",), "read"),
    )
    assert waits.roots == (HOLDER,)
    assert waits.behind(HOLDER) == (NEXT, LAST)
    assert [edge.holder.request.agent for edge in waits.blockers(LAST)] == [NEXT]
    told = why(waits, [LAST])
    assert "is not waiting for any lock" in told[2]
    assert "2 others wait for it" in told[4]
    for draw in FORMATS.values():
        assert draw(waits)
        assert not why(waits_of(()), [])


def test_a_circle_has_no_root() -> None:
    """It is told as what it is."""
    waits = table_of(
        (HOLDER, ("a",), "write"),
        (NEXT, ("b",), "write"),
        (HOLDER, ("b",), "write"),
        (NEXT, ("a",), "write"),
    )
    assert waits.roots == ()
    assert why(waits, [NEXT])[-1].startswith("They wait for each other")
    assert FORMATS["text"](waits).count("see above") == 1


def test_names_in_pictures() -> None:
    """Whatever a label has in it, the picture is one."""
    fact = RequestFact(record(1, ("a",), HOLDER), 1, 1, 2, 'x"\\]<b>`#', "", 0, "")
    waiting = replace(fact, request=record(2, ("a",), NEXT, "waiting"))
    waits = waits_of((fact, waiting))
    assert '"]<' not in FORMATS["mermaid"](waits)
    assert 'x\\"\\\\]<b>' in FORMATS["dot"](waits)


def test_a_drawing() -> None:
    """It is XML whatever a label has in it; each agent has a place of its own, each pair an arrow, also in a circle."""
    agents = [AgentId((1 << 40) + (n << 12), "n@x", 0) for n in range(4)]
    requests: list[tuple[AgentId, LockId, Any]] = [(agents[0], ("a",), "write")]
    requests += [(agent, ("a",), "write") for agent in agents[1:]]
    requests += [(agents[3], ("b",), "write"), (agents[2], ("b",), "write")]
    fact = RequestFact(record(1, ("z",), HOLDER), 1, 1, 2, 'x"\\]<b>&\0\ud800', "", 0, "")
    waiting = replace(fact, request=record(2, ("z",), NEXT, "waiting"))
    for waits in (table_of(*requests), waits_of((fact, waiting)), waits_of(())):
        drawing = ElementTree.fromstring(FORMATS["svg"](waits))
        inner = drawing.findall("{http://www.w3.org/2000/svg}g")
        boxes = [box.attrib for g in inner for box in g.findall("{http://www.w3.org/2000/svg}rect")]
        concerned = {end.request.agent for edge in waits.edges for end in edge}
        assert len({(box["x"], box["y"]) for box in boxes}) == len(boxes) == len(concerned)
        pairs = {(waiter.request.agent, holder.request.agent) for waiter, holder in waits.edges}
        assert len(inner) - len(boxes) == len(pairs)


def test_edges_lead_where_all_edges_lead() -> None:
    """Of a long line not each pair is kept, but who waits behind whom, over others, is what it is with all pairs."""
    rng = random.Random(SEED)
    for _ in range(60):
        machine = ServerMachine("a@x", 1)
        recorded = recording(machine)
        for _ in range(9):
            agent = AgentId((1 << 40) + (rng.randrange(6) << 12), "n@x", 0)
            lock_id = tuple(rng.choice("ab") for _ in range(rng.randint(1, 2)))
            machine.handle(Request(agent, "c", lock_id, rng.choice(("read", "write"))))
        facts = recorded.requests(None, 0, lambda _: "").requests
        waits = waits_of(facts)
        every = [(w, h) for w in facts for h in facts if blocks(h.request, w.request)]
        assert set(waits.edges) <= set(every)
        for agent in waits.agents:
            assert set(waits.behind(agent)) == _behind(every, agent)


def _behind(edges: Any, agent: AgentId) -> set[AgentId]:
    found: set[AgentId] = set()
    todo = [agent]
    for each in todo:
        for waiter, holder in edges:
            name = waiter.request.agent
            if holder.request.agent == each and name not in found and name != agent:
                found.add(name)
                todo.append(name)
    return found


# --- In one program -----------------------------------------------------------------------------


@pytest.fixture
def program() -> Iterator[None]:
    """Its node is stopped afterwards."""
    yield
    locks.stop()


@pytest.mark.usefixtures("program")
def test_a_transaction_is_ended_from_outside() -> None:
    """Its lock is free, its client is told at its next call by whom and why, and `tx.lost` is open."""
    agent, _ = locks.original.begin_transaction([(("broken", 1), "write")])
    locks.facts.break_transaction(agent, reason="it sleeps", by="an operator")
    assert agent.lost.is_open
    assert not locks.holders(("broken",))
    with pytest.raises(locks.errors.TransactionBroken) as caught:
        locks.original.lock(agent, ("broken", 2))
    assert (caught.value.reason, caught.value.by) == ("it sleeps", "an operator")
    assert caught.value.agent == agent.id
    with pytest.raises(locks.errors.NodeNotRunning, match="had already ended"):
        locks.facts.break_transaction(agent.id, reason="again")


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("reason", ["", " ", "two\nlines", "x" * 301, None, 7])
def test_a_reason_is_needed(reason: Any) -> None:
    """Nothing is ended without one."""
    with locks.transaction() as tx:
        tx.write_lock(("kept",))
        with pytest.raises(locks.errors.InvalidOption):
            locks.facts.break_transaction(tx.agent, reason=reason)
        tx.ensure_held()
