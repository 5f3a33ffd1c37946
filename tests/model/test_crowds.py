"""Crowds in virtual time (`locks_lab.crowd`): what must be true of them, and wrong rules that must be caught."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

import pytest

from locks import retries
from locks.__main__ import main
from locks.core.messages import Release, Remove, Request, ServerEffect, ServerMessage, Surrender
from locks.core.server.machine import ServerMachine
from locks.core.server.table import LockTable
from locks.core.server.tree import Entry
from locks.model import AgentId
from locks.otp.links import budgets
from locks_lab.crowd.clients import ATTEMPTS
from locks_lab.crowd.crowd import Crowd, run_crowd
from locks_lab.crowd.links import Fair, Link, Mail, RoundRobin, Scheduler
from locks_lab.crowd.machines import Processor, Time
from locks_lab.crowd.measures import Report
from locks_lab.crowd.rules import CROWD, CROWD_RULES, CrowdRule, Pausing
from locks_lab.crowd.shape import Fault, Shape
from locks_lab.worlds.host import Violation
from locks_lab.worlds.rules import OURS, OtherServer, Rule
from tests.helpers import SEED

RIGHT = [rule for rule in CROWD_RULES.values() if rule.right]
READERS = Shape(clients=12, reads=0.5, rounds=10)
OPPOSITE = Shape(clients=40, servers=1, locks=2, pick=2, order="opposite", hold=0, between=0.005)


def ran(shape: Shape, rule: str | CrowdRule = CROWD, seed: int = SEED) -> Report:
    """What is measured of a crowd."""
    rule = CROWD_RULES[rule] if isinstance(rule, str) else rule
    return run_crowd(shape, seed, rule)


# --- What is true by our rules --------------------------------------------------------------------


def test_a_seed_decides_everything() -> None:
    """The same crowd with the same seed measures the same, and with another one something else."""
    shape = Shape(clients=20, servers=1, locks=5, pick=3, order="random", between=0.002)
    first, again, other = (ran(shape, seed=seed) for seed in (1, 1, 2))
    assert str(first) == str(again) != str(other)


@pytest.mark.parametrize("rule", RIGHT, ids=lambda rule: rule.name)
@pytest.mark.parametrize("servers", [1, 3, 5])
def test_everybody_gets_it_with_a_bounded_number_of_messages(servers: int, rule: CrowdRule) -> None:
    """10 and 100 clients: none is left, no property is violated, and messages do not grow with the crowd."""
    for clients in (10, 100):
        report = ran(Shape(clients=clients, servers=servers), rule)
        assert report.grants == clients
        assert report.violations() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "most"),
    [
        ("ours", 300),
        ("gate-only", 1000),
        pytest.param("ours", 1000, marks=pytest.mark.explore),
    ],
)
def test_a_hand_over_takes_as_long_however_many_wait(rule: str, most: int) -> None:
    """10, 100 and up to 1,000 clients in three programs want one lock of three servers: flat within 1.3.

    Of few clients one run says little: how often the lock stays within a program is chance. So as many runs are measured.
    """
    reports = [
        [ran(Shape(clients=clients), rule, SEED + run) for run in range(runs)]
        for clients, runs in ((10, 20), (100, 2), (most, 1))
    ]
    assert [report.violations() for runs in reports for report in runs] == [[]] * 23
    for times in (
        [mean(report.hand_over for report in runs) for runs in reports],
        [mean(report.each - report.shape.hold for report in runs) for runs in reports],
    ):
        assert max(times) < 1.3 * min(times), times


def test_who_came_first_is_served_first() -> None:
    """No request is overtaken at the gate; no program waits longer than others, and nobody twice as long as the mean."""
    report = ran(Shape(clients=60, rounds=4), "gate-only")
    assert report.overtaken == 0
    assert report.fairness < 2
    assert report.slowest_client < 1.3
    assert max(report.programs.values()) < 1.1 * min(report.programs.values())


class Favouring:
    """Reads one program's messages before those of the others."""

    def next(self, ready: Sequence[Link], now: float) -> Link | float:
        return min(ready, key=lambda link: link.source)

    def served(self, link: Link, took: float, now: float) -> None:
        pass


def test_a_program_that_is_favoured_is_caught() -> None:
    """If servers read the messages of one program first, it waits far less than others."""
    shape = Shape(clients=60, rounds=4, faults=(Fault("slow", "n1", 0, 1000, 60),))
    fair = ran(shape, "gate-only").programs
    wrong = ran(shape, CROWD_RULES["gate-only"]._replace(scheduler=lambda clock: Favouring()))
    assert max(fair.values()) < 1.1 * min(fair.values())
    assert max(wrong.programs.values()) > 1.3 * min(wrong.programs.values())


@pytest.mark.parametrize("rule", ["ours", "gate-only"])
@pytest.mark.parametrize("reads", [0.1, 0.5, 0.9])
def test_neither_readers_nor_writers_are_starved(reads: float, rule: str) -> None:
    """Readers and writers that come again and again: nobody is overtaken at the gate."""
    report = ran(READERS._replace(clients=20, reads=reads), rule)
    assert report.grants == 200
    assert report.overtaken == 0


@pytest.mark.explore
def test_to_ask_all_servers_costs_messages_among_readers_and_writers() -> None:
    """Where agents ask all servers although their program waits already, a crowd of mostly readers exceeds the bound."""
    shape = READERS._replace(clients=60, reads=0.9)
    (said,) = ran(shape, "ask-all").violations()
    assert "messages" in said
    assert ran(shape, "gate-only").violations() == []


def test_to_ask_the_gate_alone_saves_messages() -> None:
    """Agents whose program waits already ask the gate alone: nearly half of the messages are saved, and the long first gap."""
    ours, saving = ran(Shape(clients=100)), ran(Shape(clients=100), "gate-only")
    assert saving.per_transaction < 0.6 * ours.per_transaction
    assert saving.gap < 0.5 * ours.gap


# --- Deadlocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 3])
def test_what_was_aborted_and_learns_is_aborted_once(servers: int) -> None:
    """Opposite order: who first locks what it wanted before, one by one and sorted, is not in a circle again."""
    report = ran(OPPOSITE._replace(servers=servers, learn="one-by-one"))
    assert report.most_runs == 2
    assert report.aborts < OPPOSITE.clients


def test_what_runs_again_at_once_is_caught() -> None:
    """Opposite order: what runs again as it was meets the same rivals, many times."""
    sorted_order = ran(OPPOSITE._replace(order="sorted"))
    learns, forgets = ran(OPPOSITE._replace(learn="one-by-one")), ran(OPPOSITE)
    assert learns.makespan < 2 * sorted_order.makespan
    assert forgets.most_runs > 10
    assert forgets.makespan > 3 * learns.makespan


class _AnswersLast(ServerMachine):
    """A lock server that notifies all others before it answers a surrender that aborts."""

    def handle(self, message: ServerMessage) -> list[ServerEffect]:
        effects = super().handle(message)
        late = isinstance(message, Surrender) and message.aborts
        return effects[1:] + effects[:1] if late else effects


@pytest.mark.explore
def test_locks_in_any_order_cost_few_messages() -> None:
    """3 of 20 ids, in the order in which they were drawn, as `run_transaction` takes them when it runs again.

    It costs more if servers answer last to who is aborted, and if each agent asks all servers.
    """
    shape = Shape(
        clients=60,
        programs=1,
        locks=20,
        pick=3,
        order="random",
        between=0.002,
        hold=0,
        learn="free",
    )
    ours = CROWD_RULES["gate-only"]
    late = ours._replace(machines=Rule("late", "", server=_AnswersLast))
    few, more, most = [
        mean(ran(shape, rule, SEED + run).per_transaction for run in range(2))
        for rule in (ours, late, CROWD)
    ]
    assert few < 90
    assert more > 1.08 * few
    assert most > 1.5 * few


def test_the_model_makes_as_many_attempts_as_programs() -> None:
    """The simulator has the number of its own."""
    assert ATTEMPTS == retries.ATTEMPTS


# --- Servers in trouble -----------------------------------------------------------------------------


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_a_server_that_runs_again(node: str) -> None:
    """One of three servers is restarted while a crowd waits: everybody gets the lock, and nobody waits for that server."""
    fault = Fault("restart", node, 0.05, 0.1)
    report = ran(Shape(clients=30, rounds=4, faults=(fault,)))
    assert report.grants - report.losses <= 120 <= report.grants
    assert report.gap < fault.lasts


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_a_server_that_is_silent_for_a_while(node: str) -> None:
    """Everybody gets the lock; only the silence of the gate is a gap without grants (decision 0040 says so)."""
    fault = Fault("silent", node, 0.05, 0.3)
    report = ran(Shape(clients=30, rounds=4, faults=(fault,)))
    assert report.grants == 120
    assert (report.gap >= fault.lasts) == (node == "n1")


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_a_server_that_is_five_times_slower(node: str) -> None:
    """It costs less than five times as much, and processors are never idle with input."""
    shape = Shape(clients=60, locks=6)
    slow = shape._replace(faults=(Fault("slow", node, 0, 1000, 5),))
    usual, slowed = ran(shape), ran(slow)
    assert slowed.makespan < 5 * usual.makespan
    assert slowed.violations() == []


def test_programs_may_go_by_a_rule_for_silent_servers() -> None:
    """A rule is told of a silent server after its patience, and when that speaks again."""
    told: list[tuple[float, str, bool]] = []

    def silence(crowd: Any, node: str, silent: bool) -> None:
        told.append((round(crowd.time.now, 3), node, silent))

    rule = CROWD._replace(silence=silence, patience=0.02)
    ran(Shape(clients=10, faults=(Fault("silent", "n1", 0.01, 0.1),)), rule)
    assert told == [(0.03, "n1", True), (0.11, "n1", False)]


# --- Wrong rules are caught -------------------------------------------------------------------------


class NoExclusionTable(LockTable):
    """Grants whatever is asked for."""

    def _blocker_of(self, entry: Entry, slot: Any) -> Any:
        return None


class NoExclusionServer(OtherServer):
    table_class = NoExclusionTable


class ForgetfulServer(ServerMachine):
    """Does not take out what an agent has that ends."""

    def handle(self, message: Any) -> Any:
        return [] if isinstance(message, Remove) else super().handle(message)


def test_two_holders_are_caught() -> None:
    """A lock server that grants whatever is asked for."""
    wrong = CROWD._replace(machines=Rule("wrong", "", server=NoExclusionServer))
    with pytest.raises(Violation, match="both hold lock1"):
        ran(Shape(clients=10), wrong)


def test_who_waits_for_ever_is_caught() -> None:
    """A lock server that does not notice the end of a transaction."""
    wrong = CROWD._replace(machines=Rule("wrong", "", server=ForgetfulServer))
    with pytest.raises(Violation, match="stuck: clients"):
        ran(Shape(clients=10, servers=1), wrong)


def test_steps_that_grow_with_the_queue_are_caught() -> None:
    """If each step looks at all that wait, a hand-over takes the longer, the more wait."""
    small, large = (ran(Shape(clients=clients), "growing") for clients in (10, 300))
    assert large.each - large.shape.hold > 3 * (small.each - small.shape.hold)


@pytest.mark.slow
def test_messages_that_grow_with_the_crowd_are_caught() -> None:
    """If all who want the same are told each change."""
    for servers in (1, 3):
        said = ran(Shape(clients=20, servers=servers), "tell-all").violations()
        assert any("messages" in each for each in said)


def test_readers_that_overtake_are_caught() -> None:
    """If readers do not wait for a writer that waits, it is overtaken again and again."""
    (said,) = ran(READERS, "barging").violations()
    assert "overtaken" in said


def test_releases_behind_requests_are_caught() -> None:
    """If a link is read in its order, a release waits for hundreds of requests of its own program."""
    shape = Shape(clients=100, faults=(Fault("slow", "n1", 0, 1000, 20),))
    (said,) = ran(shape, "in-order").violations()
    assert "behind" in said
    assert ran(shape).violations() == []


def test_pauses_with_idle_processors_are_caught() -> None:
    """If links pause because others have had something lately: most of the time the processor is idle."""
    shape = Shape(clients=100, faults=(Fault("slow", "n1", 0, 1000, 150),))
    (said,) = ran(shape, "pausing").violations()
    assert "not work-conserving" in said
    assert ran(shape, "pausing").makespan > 1.3 * ran(shape).makespan


# --- Schedulers -------------------------------------------------------------------------------------


class Paced:
    """The product's own pace as a scheduler, with the virtual clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.pace = budgets.Pace(clock)
        self.due: dict[Link, float] = {}

    def next(self, ready: Sequence[Link], now: float) -> Link | float:
        for link in sorted(ready, key=lambda link: self.due.get(link, 0.0)):
            pause = self.pace.pause(self.pace.share(link.source))
            if pause <= 1e-6:
                return link
            self.due[link] = now + pause
        return min(self.due[link] for link in ready)

    def served(self, link: Link, took: float, now: float) -> None:
        self.pace.served(self.pace.share(link.source), took)
        self.due[link] = now


class Reader:
    """Reads links; each message takes as long as it says."""

    def __init__(self, scheduler: Scheduler, links: list[Link]) -> None:
        self.scheduler = scheduler
        self.links = links
        self.read: list[str] = []

    def ready(self) -> list[Link]:
        return [link for link in self.links if len(link)]

    def begin(self, mail: Mail) -> float:
        took: float = mail.message
        return took

    def finish(self, link: Link) -> None:
        self.read.append(link.source)


def processor_of(
    make: Callable[[Callable[[], float]], Scheduler], frames: dict[str, list[float]]
) -> tuple[Time, Processor, Reader]:
    """A processor that has read all frames of some links, which were there from the beginning."""
    time = Time()
    links = [Link(name) for name in frames]
    for link in links:
        for took in frames[link.source]:
            link.arrive(Mail(None, took))
    reader = Reader(make(lambda: time.now), links)
    processor = Processor(time)
    processor.stations.append(reader)
    processor.kick()
    time.run()
    assert len(reader.read) == sum(map(len, frames.values()))
    return time, processor, reader


PACED = pytest.param(
    Paced,
    id="pace",
    marks=pytest.mark.skipif(
        not hasattr(budgets.Pace, "is_ahead"),
        reason="this is the former pace, which is not work-conserving",
    ),
)
CONSERVING = [
    pytest.param(lambda clock: Fair(), id="fair"),
    pytest.param(lambda clock: RoundRobin(), id="in turn"),
    PACED,
]


@pytest.mark.parametrize("make", CONSERVING)
def test_a_processor_is_never_idle_while_there_is_input(make: Any) -> None:
    """Several links with frames of any cost: all are read in as long as they take."""
    chance = random.Random(SEED)
    for _ in range(50):
        frames = {
            f"p{number}": [
                chance.choice((0.0005, 0.008, 0.02)) for _ in range(chance.randrange(1, 40))
            ]
            for number in range(chance.randrange(1, 6))
        }
        time, processor, _ = processor_of(make, frames)
        assert processor.withheld == 0
        assert time.now == pytest.approx(sum(map(sum, frames.values())))


def test_a_pause_for_all_is_caught() -> None:
    """Three links with 200 frames of 8 ms each: the former rule needs twice the time that they take, and more."""
    frames = {f"p{number}": [0.008] * 200 for number in range(3)}
    time, processor, _ = processor_of(lambda clock: Pausing(), frames)
    assert processor.withheld > 0.5 * time.now


def test_links_share_the_time_and_not_the_messages() -> None:
    """Of two links with input, one has dear messages: both get the same time, whoever has had nothing before."""
    _, _, reader = processor_of(lambda clock: Fair(), {"dear": [0.01] * 10, "cheap": [0.001] * 200})
    first = reader.read[:110]
    assert 9 <= first.count("dear") <= 11


# --- Links ------------------------------------------------------------------------------------------


def test_what_gives_something_up_overtakes_other_agents_only() -> None:
    """Releases and ends are read first; messages of one agent keep their order, and none is lost."""
    chance = random.Random(SEED)
    agents = [AgentId(number, "p1", number) for number in range(1, 6)]
    link = Link("p1", urgent_first=True)
    sent: list[Mail] = []
    read: list[Mail] = []
    for _ in range(500):
        if chance.random() < 0.6:
            agent = chance.choice(agents)
            message = chance.choice(
                (Request(agent, "c", ("a",), "write"), Release(agent, ("a",)), Remove(agent))
            )
            sent.append(Mail(agent, message))
            link.arrive(sent[-1])
        elif len(link):
            read.append(link.take())
    while len(link):
        read.append(link.take())
    for agent in agents:
        assert [m for m in read if m.agent == agent] == [m for m in sent if m.agent == agent]
    assert link.passed == 0


def test_a_release_is_read_before_five_hundred_requests() -> None:
    """The end of a holder overtakes what its program's other agents have asked for."""
    link, former = Link("p1", urgent_first=True), Link("p1")
    for each in (link, former):
        for number in range(1, 501):
            agent = AgentId(number, "p1", number)
            each.arrive(Mail(agent, Request(agent, "c", ("a",), "write")))
        each.arrive(Mail(AgentId(0, "p1", 0), Remove(AgentId(0, "p1", 0))))
    assert isinstance(link.take().message, Remove)
    while len(former):
        former.take()
    assert (link.passed, former.passed) == (0, 500)


# --- The command ------------------------------------------------------------------------------------


def test_the_command_prints_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """The status is 0 if all is well, and 1 if a property is violated, which is said then."""
    assert main(["sim", "crowd", "--clients", "20", "--locks", "2", "--runs", "2"]) == 0
    said = capsys.readouterr().out
    assert "seed 1" in said
    assert "20 grants" in said
    assert main(["sim", "crowd", "--clients", "20", "--servers", "1", "--rule", "tell-all"]) == 1
    assert "violated      a transaction took" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [
        ("--fault", "silent:n9:0:1"),
        ("--fault", "broken:n1:0:1"),
        ("--fault", "silent:n1"),
        ("--hold", "-1"),
        ("--reads", "2"),
        ("--clients", "0"),
        ("--rule", "nobody's"),
    ],
)
def test_what_a_crowd_can_not_be(
    wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What can't be meant is refused, with status 2 and a line that says what is wrong."""
    try:
        status = main(["sim", "crowd", *wrong])
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert "error: " in capsys.readouterr().err


# --- Any crowd --------------------------------------------------------------------------------------


def any_shape(chance: random.Random) -> Shape:
    """A crowd, drawn."""
    locks = chance.choice((1, 1, 2, 6))
    servers = chance.choice((1, 2, 3, 5))
    faults = []
    if chance.random() < 0.4:
        for _ in range(chance.randrange(1, 3)):
            kind: Any = chance.choice(("silent", "slow", "restart"))
            node = f"n{chance.randrange(1, servers + 1)}"
            begins = 0.2 * len(faults) + chance.random() * 0.1
            faults.append(Fault(kind, node, begins, chance.random() * 0.1))
    pick = chance.randrange(1, locks + 1)
    require: Any = chance.choice(("majority", "majority", "all"))
    few = pick > 1 or (
        require == "all" and servers > 1
    )  # where there are deadlocks, messages are many
    return Shape(
        clients=chance.randrange(1, 12 if few else 40),
        servers=servers,
        programs=chance.randrange(1, 5),
        processors=chance.randrange(0, servers + 1),
        locks=locks,
        pick=pick,
        order=chance.choice(("sorted", "opposite", "random", "together")),
        reads=chance.choice((0.0, 0.0, 0.3, 0.8)),
        rounds=chance.randrange(1, 4),
        hold=chance.choice((0.0, 0.001, 0.01)),
        between=chance.choice((0.0, 0.002)),
        think=chance.choice((0.0, 0.005)),
        arrive=chance.choice((0.0, 0.05)),
        require=require,
        on_deadlock=chance.choice(("abort", "surrender")),
        learn=chance.choice(("no", "one-by-one", "free")),
        faults=tuple(faults),
    )


def check_any(seeds: Sequence[int]) -> None:
    """Run drawn crowds: nobody is stuck, nothing is held twice, and no property is violated."""
    for seed in seeds:
        chance = random.Random(seed)
        shape = any_shape(chance)
        rule = chance.choice(RIGHT)
        try:
            report = Crowd(shape, seed, rule, limit=300_000).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}, rule {rule.name}: {shape}") from error
        grow = rule.machines is OURS and shape.reads > 0  # see `ask-all`
        said = [each for each in report.violations() if not (grow and "messages" in each)]
        assert said == [], (seed, rule.name, shape)


@pytest.mark.slow
def test_any_crowd() -> None:
    """Small crowds of any kind, with servers in trouble."""
    check_any(range(SEED, SEED + 15))


@pytest.mark.explore
def test_many_crowds_of_any_kind() -> None:
    """The same, many of them."""
    check_any(range(SEED, SEED + 300))


@pytest.mark.explore
@pytest.mark.parametrize("servers", [1, 3, 5])
def test_a_thousand_clients(servers: int) -> None:
    """1,000 clients on 1, 3 and 5 servers: the messages are as few, and nobody is overtaken."""
    for rule in ("ours", "gate-only", "in-turn"):
        report = ran(Shape(clients=1000, servers=servers), rule)
        assert report.grants == 1000
        assert report.violations() == []


@pytest.mark.explore
def test_the_former_rules_together_are_caught() -> None:
    """1,000 clients on three servers: a gap of seconds without a grant, idle processors, and releases behind hundreds."""
    report = ran(Shape(clients=1000), "former")
    assert len(report.violations()) == 2
    assert report.gap > 3
    assert report.makespan > 8 * ran(Shape(clients=1000)).makespan
