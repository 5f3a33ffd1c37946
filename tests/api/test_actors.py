"""Lock servers and agents as Pykka finds them: registry, proxies, messages, stop and death."""

from __future__ import annotations

import logging
import threading
from typing import Any

import gevent
import pykka
import pytest
from pykka import ActorRegistry

import locks
import locks_leader
from locks.core.messages import Knowledge, Remove
from locks.model import AgentId
from locks.mvcc import LockTable
from tests.helpers import eventually

A = ("a",)


def test_a_lock_server_is_in_the_registry_while_its_node_runs() -> None:
    """By its class and its name; stopping either ends both."""
    server = locks.start().server
    assert ActorRegistry.get_by_class(locks.actors.LockServer) == [server]
    assert ActorRegistry.get_by_class_name("LockServer") == [server]
    assert ActorRegistry.get_by_urn(server.actor_urn) is server
    locks.stop()
    assert ActorRegistry.get_all() == []
    node = locks.start()
    assert node.server.stop() is True
    assert not node.running
    assert ActorRegistry.get_all() == []
    assert node.server.stop() is False
    assert locks.start() is not node


def test_agents_are_found_by_their_node() -> None:
    """Not in the registry, unless that is wanted."""
    node = locks.start()
    agent, _ = locks.original.begin_transaction()
    assert node.agents() == [agent]
    assert ActorRegistry.get_by_class(locks.actors.LockAgent) == []
    locks.original.end_transaction(agent)
    assert node.agents() == []


def test_an_option_registers_agents() -> None:
    """As long as they live, however they end."""
    locks.start(register_agents=True)
    one, two = locks.original.spawn_agent(), locks.original.spawn_agent()
    assert ActorRegistry.get_by_class(locks.actors.LockAgent) == [one, two]
    locks.original.end_transaction(one)
    two.stop()
    eventually(lambda: ActorRegistry.get_by_class(locks.actors.LockAgent) == [])


def test_stop_all_stops_the_lock_server_last() -> None:
    """Also if it was started after those that use it: what they still do finds their locks as they are."""
    runs: list[bool] = []

    class Holder(pykka.ThreadingActor):
        def begin(self) -> None:
            self.agent, _ = locks.original.begin_transaction([(A, "write")])

        def on_stop(self) -> None:
            runs.append(self.agent.node.running)

    for _ in range(2):
        Holder.start().proxy().begin().get(timeout=60)
        ActorRegistry.stop_all(timeout=60)
        assert ActorRegistry.get_all() == []
    assert runs == [True, True]


@pytest.mark.parametrize("name", ["server", "agent", "table"])
def test_an_actor_is_not_started_by_its_class(name: str) -> None:
    """It says how it begins."""
    refs = {
        "server": locks.start().server,
        "agent": locks.original.spawn_agent(),
        "table": LockTable(),
    }
    kind = refs[name].actor_class
    assert issubclass(kind, pykka.Actor)
    with pytest.raises(locks.MisuseError, match=r"locks\.(start|original\.begin|mvcc)"):
        kind.start()
    locks.stop()


def test_proxies() -> None:
    """Equal for the same actor; they show operations and attributes, and nothing else."""
    agent = locks.original.spawn_agent()
    proxy: Any = agent.proxy()
    assert proxy == agent.proxy()
    assert proxy != locks.start().server.proxy()
    assert proxy.id.get() == agent.id
    assert proxy.client.get() is threading.current_thread()
    assert proxy.deadlocks.get() == ()
    assert proxy.actor_urn.get() == agent.actor_urn
    with pytest.raises(AttributeError):
        proxy.machine  # noqa: B018
    with pytest.raises(locks.MisuseError, match="can't set"):
        proxy.id = 1
    proxy.stop().get()
    assert not agent.is_alive()
    with pytest.raises(pykka.ActorDeadError):
        agent.proxy()
    with pytest.raises(pykka.ActorDeadError):
        proxy.lock_info().get()


BAD: list[tuple[Any, str]] = [
    (("nothing",), "no operation 'nothing'"),
    (("_carry_out",), "no operation"),
    (("on_stop",), "no operation"),
    (("start",), "no operation"),
    (("actor_ref",), "no operation"),
    (("watch",), "missing a required argument"),
    (("lock", A, "write", 1, 2, 3), "too many positional"),
    (("lock_nowait", A, "bogus"), "bogus"),
    (("lock", "a"), "plain str"),
    ((), "not a message"),
    (Remove(AgentId(1 << 12, "a@b", 0)), "not a message"),
    (Knowledge(AgentId(1 << 12, "a@b", 0), ()), "not a message"),
    ("lock it", "not a message"),
    (None, "not a message"),
    (pykka.messages.ProxyCall(("lock", "a"), (), {}), "no operation 'lock.a'"),
    (pykka.messages.ProxyCall(("lock",), (A,), {"when": 1}), "unexpected keyword"),
    (pykka.messages.ProxyGetAttr(("node",)), "no attribute"),
    (pykka.messages.ProxyGetAttr(("_actor_ref",)), "no attribute"),
    (pykka.messages.ProxySetAttr(("client",), 1), "can't set"),
]


@pytest.mark.parametrize(("message", "why"), BAD, ids=lambda each: repr(each)[:40])
def test_what_is_wrong_is_refused(message: Any, why: str, caplog: pytest.LogCaptureFixture) -> None:
    """To who asks; what is told is logged. Both go on with their work."""
    agent = locks.original.spawn_agent()
    for ref in (agent, locks.start().server):
        if ref is agent and message == ("watch",):
            continue  # an agent has no such operation
        if ref is not agent and isinstance(message, tuple) and message[:1] == ("lock_nowait",):
            continue
        with pytest.raises(locks.MisuseError, match=why):
            ref.ask(message, timeout=60)
        with caplog.at_level(logging.ERROR, "locks"):
            ref.tell(message)
            eventually(lambda: "failed to handle" in caplog.text)
        caplog.clear()
        assert ref.is_alive()
    assert locks.original.lock_info(agent) == []
    locks.original.end_transaction(agent)


def test_only_the_client_has_an_agent_do_something() -> None:
    """Whoever sends the message is who wants it. All may look."""
    agent, _ = locks.original.begin_transaction([(A, "write")])
    refused: list[str] = []

    def stranger() -> None:
        for message in (
            ("lock", A),
            ("lock_nowait", A),
            ("lock_objects", [(A, "read")]),
            ("await_all_locks",),
            ("unlock", A),
            ("end_transaction",),
            ("change_flag", "notify", False),
            ("monitor_nodes", True),
            ("fencing_token", A),
        ):
            try:
                agent.ask(message, timeout=60)
            except locks.errors.NotClient:
                refused.append(message[0])
        assert agent.ask(("transaction_status",)).status == "have_all_locks"
        assert len(agent.ask(("lock_info",))) == 1

    thread = threading.Thread(target=stranger)
    thread.start()
    thread.join(60)
    assert len(refused) == 9
    locks.original.end_transaction(agent)


def test_greenlets_wait_for_answers_without_blocking_others() -> None:
    """Each is a client of its own."""
    order: list[int] = []

    def client(number: int) -> None:
        agent = locks.original.spawn_agent()
        agent.proxy().lock(A).get(timeout=60)
        order.append(number)
        gevent.sleep(0)
        agent.proxy().end_transaction().get()

    gevent.joinall([gevent.spawn(client, number) for number in range(5)], raise_error=True)
    assert order == [0, 1, 2, 3, 4]


class Tally(locks_leader.Behaviour):
    """It counts."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, number: int) -> int:
        """Count on; it must not be less than 0."""
        if number < 0:
            raise ValueError(number)
        self.count += number
        return self.count


@pytest.mark.usefixtures("here")
def test_a_proxy_of_an_instance_shows_the_users_object() -> None:
    """And none of its machinery; an exception goes to who asks, and ends the instance of who tells."""
    instance = locks_leader.start(Tally)
    proxy: Any = instance.proxy()
    assert proxy.add(2).get(timeout=60) == 2
    proxy.count = 5
    assert proxy.count.get(timeout=60) == 5
    with pytest.raises(ValueError, match="-1"):
        proxy.add(-1).get(timeout=60)
    for name in ("machine", "core", "node", "transactions", "_feed"):
        assert not hasattr(proxy, name)
    with pytest.raises(locks.MisuseError, match="which only the election calls"):
        proxy.terminate("normal", None).get(timeout=60)
    assert instance.is_alive()
    proxy.add.defer(-1)
    eventually(lambda: not instance.is_alive())


def test_a_forked_child_has_no_actor_of_its_parent(run_script: Any) -> None:
    """Its registry is empty until it uses locks itself, and no answer comes that it waits for."""
    out = run_script(
        """
        import os
        import locks, pykka
        locks.start(register_agents=True)
        agent = locks.original.spawn_agent()
        other, _ = locks.original.begin_transaction([(("a",), "write")])
        wanted = agent.proxy().lock(("a",))
        if os.fork() == 0:
            print(pykka.ActorRegistry.get_all(), flush=True)
            try:
                wanted.get(timeout=60)
            except locks.TransactionEnded:
                print("lives in the parent", flush=True)
            os._exit(0)
        os.wait()
        locks.original.end_transaction(other)
        print(wanted.get(timeout=60).status)
        """
    )
    assert out.splitlines() == ["[]", "lives in the parent", "have_all_locks"]
