"""Each function that the original exports has a counterpart here that does the same.

The lists are the original's exports at commit ed69e18, by name and arity.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import locks
import locks_leader
from locks.runtime.monitor import current_client
from tests.helpers import eventually

A = ("a",)


def named(text: str) -> list[str]:
    """The names in a text."""
    return text.split()


EXPORTS: dict[str, list[str]] = {
    "locks": named("""begin_transaction/0 begin_transaction/1 begin_transaction/2 end_transaction/1 spawn_agent/0
        spawn_agent/1 lock/2 lock/3 lock/4 lock/5 lock_nowait/2 lock_nowait/3 lock_nowait/4 lock_objects/2
        await_all_locks/1 transaction_status/1 watch/2 unwatch/2 watchers/1 change_flag/3"""),
    "locks_agent": named("""start/0,1 start_link/0,1 spawn_agent/1 begin_transaction/1,2 lock/2,3,4,5 lock_nowait/2,3,4,5
        lock_objects/2 surrender_nowait/4 await_all_locks/1 async_await_all_locks/1 monitor_nodes/2 change_flag/3
        lock_info/1 transaction_status/1 end_transaction/1"""),
    "locks_server": named("""lock/2,3,4 surrender/3,4 watch/2 unwatch/2 remove_agent/1,2 clients/1 agents/1
        watchers/1"""),
    "locks_leader": named("""start_link/2,3,4 call/2,3 cast/2 leader_call/2,3 leader_reply/2 leader_cast/2 info/1,2
        candidates/1 new_candidates/1 alive/1 workers/1 leader/1 leader_node/1 reply/2 broadcast/2,3
        broadcast_to_candidates/2 ask_candidates/2"""),
}  # fmt: skip
CALLBACKS = named("""init/1 elected/3 surrendered/3 handle_DOWN/3 handle_leader_call/4 handle_leader_cast/3 from_leader/3
    handle_call/4 handle_cast/3 handle_info/3""")  # of a leader's module
CASES: dict[tuple[str, str], Callable[[], None]] = {}


def case(module: str, *exports: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Say of which exports a function shows what they do."""

    def keep(function: Callable[[], None]) -> Callable[[], None]:
        CASES.update({(module, export): function for export in exports})
        return function

    return keep


@pytest.fixture(autouse=True)
def instances() -> Iterator[None]:
    """Instances of elections end with the test."""
    yield
    while STARTED:
        STARTED.pop().stop()


# --- locks ----------------------------------------------------------------------------------------


def held(agent: locks.actors.Agent) -> list[tuple[Any, str]]:
    """What an agent holds."""
    return [(info.lock_id, info.mode) for info in locks.original.lock_info(agent) if info.held]


@case("locks", "begin_transaction/0", "end_transaction/1")
def begin_and_end() -> None:
    """A transaction with no locks; only its client ends it."""
    agent, result = locks.original.begin_transaction()
    assert result == locks.values.LockResult("no_locks", ())
    errors = elsewhere(lambda: locks.original.end_transaction(agent))
    assert isinstance(errors[0], locks.errors.NotClient)
    locks.original.end_transaction(agent)
    assert not agent.is_alive()
    with pytest.raises(locks.TransactionEnded):
        locks.original.end_transaction(agent)


@case("locks", "begin_transaction/1")
@case("locks_agent", "begin_transaction/1,2")
def begin_with_objects() -> None:
    """It waits for them."""
    agent, result = locks.original.begin_transaction([(A, "write"), (("b",), "read")])
    assert result == locks.values.LockResult("have_all_locks", ())
    assert held(agent) == [(A, "write"), (("b",), "read")]
    locks.original.end_transaction(agent)


@case("locks", "begin_transaction/2")
def begin_with_options() -> None:
    """Options are checked before anything begins."""
    agent, _ = locks.original.begin_transaction(
        [(A, "write")], abort_on_deadlock=True, await_nodes=True
    )
    locks.original.end_transaction(agent)
    with pytest.raises(locks.errors.InvalidOption):
        locks.original.begin_transaction([(A, "write")], await_nodes="yes")  # type: ignore[arg-type]
    assert locks.holders(A) == ()


@case("locks", "spawn_agent/0", "spawn_agent/1")
@case("locks_agent", "spawn_agent/1", "start/0,1")
def spawn() -> None:
    """For the caller, or another client."""
    agent = locks.original.spawn_agent()
    assert agent.client is threading.current_thread()
    locks.original.end_transaction(agent)
    owner = locks.Owner("somebody")
    agent = locks.original.spawn_agent(client=owner, abort_on_deadlock=True)
    assert agent.client is owner
    owner.end()
    eventually(lambda: not agent.is_alive())


@case("locks_agent", "start_link/0,1")
def spawn_linked() -> None:
    """What can be stopped is; a thread is refused."""
    with pytest.raises(locks.errors.InvalidOption, match="can't link"):
        locks.original.spawn_agent(link=True)

    class Client(locks.actors.GeventActor):
        pass

    client = Client.start()
    agent = locks.original.spawn_agent(client=client, link=True)
    locks.start().turn.post(agent.stop_inline, "a failure")
    eventually(lambda: not agent.is_alive())
    client.stop(block=False)


@case("locks", "lock/2", "lock/3", "lock/4", "lock/5")
def lock() -> None:
    """By all of its arities."""
    node = locks.start().name
    agent = locks.original.spawn_agent()
    assert locks.original.lock(agent, A) == locks.values.LockResult("have_all_locks", ())
    locks.original.lock(agent, ("b",), "read")
    locks.original.lock(agent, ("c",), "read", [node])
    locks.original.lock(agent, ("d",), "write", [node], "majority")
    assert len(held(agent)) == 4
    with pytest.raises(locks.errors.InvalidOption):
        locks.original.lock(agent, ("e",), "shared")  # type: ignore[arg-type]
    assert len(held(agent)) == 4
    locks.original.end_transaction(agent)


@case("locks", "lock_nowait/2", "lock_nowait/3", "lock_nowait/4", "await_all_locks/1")
def lock_nowait() -> None:
    """It waits for nothing; awaiting does. With nothing asked for there is nothing to wait for."""
    node = locks.start().name
    agent = locks.original.spawn_agent()
    assert locks.original.await_all_locks(agent).status == "no_locks"
    locks.original.lock_nowait(agent, A)
    locks.original.lock_nowait(agent, ("b",), "read")
    locks.original.lock_nowait(agent, ("c",), "read", [node])
    locks.original.lock_nowait(agent, ("d",), "read", [node], "any")
    for lock_id, mode in ((("e",), "shared"), ("e", "write"), ([], "write")):
        with pytest.raises(locks.MisuseError):
            locks.original.lock_nowait(agent, lock_id, mode)  # type: ignore[arg-type]
    assert locks.original.await_all_locks(agent).status == "have_all_locks"
    assert len(held(agent)) == 4
    locks.original.end_transaction(agent)


@case("locks", "lock_objects/2")
def lock_objects() -> None:
    """The requirement counts, and a wrong object changes nothing."""
    node = locks.start().name
    agent = locks.original.spawn_agent()
    with pytest.raises(locks.MisuseError):
        locks.original.lock_objects(agent, [(A, "write"), (("b",), "bogus")])
    assert locks.original.lock_info(agent) == []
    locks.original.lock_objects(
        agent, [(A, "write"), (("b",), "read", [node]), (("c",), "read", [node], "any")]
    )
    assert [info.require for info in locks.original.lock_info(agent)] == ["all", "all", "any"]
    locks.original.end_transaction(agent)


@case("locks", "transaction_status/1")
def transaction_status() -> None:
    """Of nothing, of what is there, and of what waits."""
    agent, rival = locks.original.spawn_agent(), locks.original.spawn_agent()
    assert locks.original.transaction_status(agent).status == "no_locks"
    locks.original.lock(agent, A)
    assert locks.original.transaction_status(agent).status == "have_all_locks"
    locks.original.lock_nowait(rival, A)
    assert locks.original.transaction_status(rival).status == "waiting"
    locks.original.end_transaction(agent)
    locks.original.end_transaction(rival)


@case("locks", "watch/2", "unwatch/2", "watchers/1")
def watch() -> None:
    """The present view, and later ones, until it is ended."""
    node = locks.start().name
    views: list[locks.values.View] = []
    locks.watch(A, [node], watcher=views.append)
    agent, _ = locks.original.begin_transaction([(A, "write")])
    eventually(lambda: len(views) == 2)
    assert [len(view.holders) for view in views] == [0, 1]
    assert locks.original.watchers(A) == [views.append]
    locks.unwatch(A, [node], watcher=views.append)
    assert locks.original.watchers(A) == []
    locks.original.end_transaction(agent)


@case("locks", "change_flag/3")
def change_flag() -> None:
    """Switching `notify` on tells the present status."""
    agent, _ = locks.original.begin_transaction([(A, "write")])
    news: list[locks.values.Notification] = []
    locks.original.change_flag(agent, "notify", news.append)
    eventually(lambda: [each.kind for each in news] == ["have_all_locks"])
    locks.original.change_flag(agent, "await_nodes", True)
    with pytest.raises(locks.errors.InvalidOption):
        locks.original.change_flag(agent, "bogus", True)  # type: ignore[arg-type]
    locks.original.end_transaction(agent)


# --- locks_agent: the same by its actor -------------------------------------------------------------


@case("locks_agent", "lock/2,3,4,5", "end_transaction/1")
def agent_lock() -> None:
    """Answered when it is granted, also by a message; `unlock` withdraws it."""
    one, two = locks.original.spawn_agent(), locks.original.spawn_agent()
    first, second = one.proxy(), two.proxy()
    assert first.lock(A, "read", [one.node.name], "all").get(timeout=60).status == "have_all_locks"
    wanted, again = second.lock(A), two.ask(("lock", A), block=False)
    assert second.transaction_status().get().status == "waiting"
    first.end_transaction().get()
    assert (
        wanted.get(timeout=60)
        == again.get(timeout=60)
        == locks.values.LockResult("have_all_locks", ())
    )
    three = locks.original.spawn_agent()
    three.proxy().lock(A)
    three.proxy().unlock(A).get()
    two.proxy().end_transaction().get()
    assert locks.holders(A) == ()
    locks.original.end_transaction(three)


@case("locks_agent", "lock_nowait/2,3,4,5", "lock_objects/2", "await_all_locks/1", "lock_info/1")
def agent_asks() -> None:
    """Asked for now, awaited later."""
    agent = locks.original.spawn_agent()
    proxy = agent.proxy()
    agent.tell(("lock_nowait", A, "read"))
    assert proxy.lock_objects([(("b",), "write"), (("c",), "read")]).get() is None
    assert proxy.await_all_locks().get(timeout=60).status == "have_all_locks"
    infos = proxy.lock_info().get()
    assert [(info.lock_id, info.mode) for info in infos] == held(agent)
    assert len(infos) == 3
    locks.original.end_transaction(agent)


@case("locks_agent", "surrender_nowait/4")
def agent_surrenders() -> None:
    """To one that waits; to nobody else."""
    one, two = locks.original.spawn_agent(), locks.original.spawn_agent()
    locks.original.lock(one, A)
    with pytest.raises(locks.errors.NotHeld, match="is not waiting"):
        one.proxy().surrender_nowait(A, two).get()
    assert one.is_alive()
    wanted = two.proxy().lock(A)
    one.proxy().surrender_nowait(A, two, [one.node.name]).get()
    assert wanted.get(timeout=60).status == "have_all_locks"
    assert [info.held for info in locks.original.lock_info(one)] == [False]
    locks.original.end_transaction(two)
    locks.original.end_transaction(one)


@case("locks_agent", "async_await_all_locks/1")
def agent_notifies() -> None:
    """The client, an actor, is told; a thread has no inbox."""
    told: list[Any] = []

    class Client(locks.actors.GeventActor):
        def on_receive(self, message: Any) -> None:
            if message == "go":
                self.agent = locks.original.spawn_agent()
                self.agent.proxy().lock(A)
                self.agent.ask(("async_await_all_locks",))
            else:
                told.append(message)

    client: Any = []
    locks.start().executor.call(lambda: client.append(Client.start()))
    client[0].tell("go")
    eventually(lambda: told)
    assert told[0].kind == "have_all_locks"
    client[0].stop()
    eventually(lambda: locks.holders(A) == ())
    agent = locks.original.spawn_agent()
    with pytest.raises(locks.errors.InvalidOption, match="no inbox"):
        agent.ask(("async_await_all_locks",))
    locks.original.end_transaction(agent)


@case("locks_agent", "monitor_nodes/2", "change_flag/3", "transaction_status/1")
def agent_flags() -> None:
    """Changed while it runs; the answer is what it was before."""
    agent = locks.original.spawn_agent(notify=[].append)
    proxy = agent.proxy()
    assert proxy.monitor_nodes(True).get() is False
    assert proxy.monitor_nodes(False).get() is True
    proxy.change_flag("abort_on_deadlock", True).get()
    assert proxy.transaction_status().get() == locks.values.LockResult("no_locks", ())
    locks.original.end_transaction(agent)


# --- locks_server -----------------------------------------------------------------------------------


@case("locks_server", "lock/2,3,4", "remove_agent/1,2", "clients/1", "agents/1")
def server_locks() -> None:
    """For the caller, without a transaction; two callers take turns."""
    server = locks.start().server.proxy()
    assert server.lock(A, "write").get(timeout=60).status == "have_all_locks"
    me = threading.current_thread()
    assert server.clients(A).get() == [me]
    (mine,) = server.agents(A).get()
    assert isinstance(mine, locks.actors.Agent)

    def want() -> None:
        who.append(current_client())  # where threads are patched, it is their greenlet
        wanted = server.lock(A)
        waits.set()
        assert wanted.get(timeout=60).status == "have_all_locks"
        assert server.clients(A).get() == who

    who: list[Any] = []
    waits = threading.Event()
    rival = threading.Thread(target=want)
    rival.start()
    waits.wait(60)
    assert server.clients(A).get() == [me, *who]
    assert server.remove_agent().get() is True
    rival.join(60)
    eventually(lambda: server.agents(A).get() == [])  # with its client
    assert server.remove_agent().get() is False


@case("locks_server", "surrender/3,4")
def server_surrenders() -> None:
    """To the first that waits; if nobody does, it is kept."""
    ref = locks.start().server
    server = ref.proxy()
    with pytest.raises(locks.MisuseError, match="has no locks from"):
        server.surrender(A).get()
    server.lock(A).get(timeout=60)
    with pytest.raises(locks.errors.NotHeld, match="no transaction is waiting"):
        server.surrender(A).get()
    agent = locks.original.spawn_agent()
    locks.original.lock_nowait(agent, A)
    view = ref.ask(("surrender", A))
    assert [each.agent for each in view.holders] == [agent.id]
    assert len(view.waiting) == 1
    locks.original.end_transaction(agent)
    server.remove_agent().get()


@case("locks_server", "watch/2", "unwatch/2", "watchers/1")
def server_watches() -> None:
    """As `locks.watch`."""
    server = locks.start().server.proxy()
    views: list[locks.values.View] = []
    server.watch(A, views.append).get()
    eventually(lambda: len(views) == 1)
    assert server.watchers(A).get() == [views.append]
    server.unwatch(A, views.append).get()
    assert server.watchers(A).get() == []
    with pytest.raises(locks.errors.InvalidOption, match="as a watcher"):
        server.watch(A).get()  # a thread has no inbox


# --- locks_leader -----------------------------------------------------------------------------------

STARTED: list[Any] = []


class Notes(locks_leader.Behaviour):
    """It writes down what happens to it."""

    def init(self, *args: Any) -> None:
        """Begin."""
        self.told: list[Any] = [("init", args)]
        self.election: Any = None

    def elected(self, election: Any, newcomer: Any) -> Any:
        """Ask all, if there are any."""
        self.told.append(("elected", newcomer, election.new_candidates))
        self.election = election
        if newcomer is None:
            self.told.append(("asked", election.ask_candidates("state", timeout=60)))
        return "hello"

    def surrendered(self, message: Any, election: Any) -> None:
        """Follow."""
        self.election = election
        self.told.append(("surrendered", message))

    def handle_down(self, member: Any, election: Any) -> None:
        """Somebody is gone."""
        self.told.append(("down", member))

    def from_leader(self, message: Any, election: Any) -> None:
        """A broadcast."""
        self.told.append(("from_leader", message))

    def handle_leader_call(self, request: Any, caller: Any, election: Any) -> Any:
        """Answer at once, later, by an exception, or by what is known of the election."""
        if request == "later":
            locks_leader.leader_reply(caller, "late")
            return locks_leader.NO_REPLY
        if request == "fail":
            raise ValueError(request)
        if isinstance(request, tuple) and request[0] == "broadcast":
            election.broadcast(request[1])
            election.broadcast(request[1], to=election.alive)
            election.broadcast_to_candidates("candidates")
            return None
        return ("leader", request)

    def handle_leader_cast(self, message: Any, election: Any) -> None:
        """Note it."""
        self.told.append(("leader_cast", message))

    def handle_call(self, request: Any, caller: Any, election: Any) -> Any:
        """Answer, at once or later."""
        if request == "later":
            locks_leader.reply(caller, "late")
            return locks_leader.NO_REPLY
        return ("me", request)

    def handle_cast(self, message: Any, election: Any) -> None:
        """Note it."""
        self.told.append(("cast", message))

    def handle_info(self, message: Any, election: Any) -> None:
        """Note it."""
        self.told.append(("info", message))

    def known(self, name: str) -> Any:
        """An item of the election as it is seen here."""
        return getattr(self.election, name)


def election() -> tuple[Any, Any, Any]:
    """A leader, another candidate, and a worker."""
    leader, other = (locks_leader.start(Notes, 1, resource="exports") for _ in range(2))
    STARTED.append(leader)
    STARTED.append(other)
    worker = locks_leader.start(Notes, 1, resource="exports", role="worker")
    STARTED.append(worker)
    for each in (leader, other, worker):
        eventually(lambda each=each: locks_leader.info(each).leader == leader)  # type: ignore[misc]
    eventually(lambda: len(leader.proxy().known("alive").get(timeout=60)) == 2)
    return leader, other, worker


@case(
    "locks_leader",
    *("start_link/2,3,4", "info/1,2", "candidates/1", "new_candidates/1", "alive/1", "workers/1"),
    *("leader/1", "leader_node/1", "init/1", "elected/3", "surrendered/3", "handle_DOWN/3"),
    "ask_candidates/2",
)
def leader_knows() -> None:
    """Who leads, who follows, and that one is gone."""
    leader, other, worker = election()
    told = leader.proxy().told.get()
    assert told[0] == ("init", (1,))
    assert told[1][0] == "elected"
    assert [note[0] for note in told].count("asked") == 1
    assert ("surrendered", "hello") in other.proxy().told.get()
    info = locks_leader.info(leader)
    assert (info.role, info.leader_node) == ("leader", locks.start().name)
    proxy = leader.proxy()
    assert proxy.known("candidates").get() == [other] == info.candidates
    assert proxy.known("workers").get() == [worker] == info.workers
    assert proxy.known("new_candidates").get() == info.new_candidates == []
    assert set(proxy.known("alive").get()) == {other, worker}
    assert other.proxy().known("leader").get() == leader
    assert other.proxy().known("leader_node").get() == locks.start().name
    errors = []
    try:
        proxy.known("ask_candidates").get()("now", timeout=1)
    except locks.MisuseError as error:
        errors.append(error)
    assert "only in elected()" in str(errors)
    other.stop()
    eventually(lambda: ("down", other) in proxy.told.get())


@case(
    "locks_leader",
    *("call/2,3", "cast/2", "leader_call/2,3", "leader_reply/2", "leader_cast/2", "reply/2"),
    *("broadcast/2,3", "broadcast_to_candidates/2", "handle_leader_call/4", "handle_leader_cast/3"),
    *("from_leader/3", "handle_call/4", "handle_cast/3", "handle_info/3"),
)
def leader_is_called() -> None:
    """By whatever instance; an exception goes to the caller."""
    leader, other, worker = election()
    for each in (leader, other, worker):
        assert locks_leader.leader_call(each, 1, timeout=60) == ("leader", 1)
        assert locks_leader.leader_call(each, "later", timeout=60) == "late"
        with pytest.raises(ValueError, match="fail"):
            locks_leader.leader_call(each, "fail", timeout=60)
        assert locks_leader.call(each, 2, timeout=60) == ("me", 2)
        assert locks_leader.call(each, "later", timeout=60) == "late"
        locks_leader.leader_cast(each, 3)
        locks_leader.cast(each, 4)
        each.tell("mail")
    locks_leader.leader_call(leader, ("broadcast", 5), timeout=60)
    notes = {each: each.proxy().told for each in (leader, other, worker)}
    assert notes[leader].get().count(("leader_cast", 3)) == 3
    for each in (leader, other, worker):
        eventually(lambda each=each: ("info", "mail") in each.proxy().told.get())  # type: ignore[misc]
        assert ("cast", 4) in each.proxy().told.get()
    eventually(lambda: other.proxy().told.get().count(("from_leader", 5)) == 2)
    eventually(lambda: ("from_leader", "candidates") in other.proxy().told.get())
    assert worker.proxy().told.get().count(("from_leader", 5)) == 2
    assert ("from_leader", "candidates") not in worker.proxy().told.get()


def elsewhere(do: Callable[[], object]) -> list[BaseException]:
    """What a function raises in another thread."""
    errors: list[BaseException] = []

    def body() -> None:
        try:
            do()
        except locks.LocksError as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(60)
    return errors


def test_each_export_has_a_case() -> None:
    """No function of the original is forgotten."""
    exports = {(module, name) for module, names in EXPORTS.items() for name in names}
    assert exports | {("locks_leader", name) for name in CALLBACKS} == set(CASES)


@pytest.mark.parametrize("show", dict.fromkeys(CASES.values()), ids=lambda show: show.__name__)
@pytest.mark.usefixtures("here")
def test_what_the_exports_do(show: Callable[[], None]) -> None:
    """Each case, once."""
    show()
