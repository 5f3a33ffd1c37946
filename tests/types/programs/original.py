"""The functions of the original, actors with Pykka, notifications, monitors, and looking."""

from __future__ import annotations

from typing import Any

import pykka
from typing_extensions import assert_type

import locks


class Worker(locks.actors.GeventActor):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def on_receive(self, message: Any) -> Any:
        match message:
            case locks.values.Notification(agent, "aborted" | "ended", why):
                assert_type(agent, locks.values.AgentId)
                print(why)
            case locks.actors.Down(_, reason):
                print(reason)
        return None


class Threaded(pykka.ThreadingActor):
    def work(self) -> int:
        with locks.transaction() as tx:
            return tx.write_lock(("a",))


worker = Worker.start("ann")
assert_type(worker, pykka.ActorRef[Worker])
agent, result = locks.original.begin_transaction(
    [(("a",), "write")], notify=print, label="importer"
)
assert_type(agent, locks.actors.Agent)
assert_type(result.deadlocks, tuple[locks.values.Deadlock, ...])
locks.original.begin_transaction(notfy=True)  # E
locks.original.begin_transaction(abort_on_deadlock="yes")  # E
locks.original.spawn_agent(client=worker, notify=True, abort_on_deadlock=True)
assert_type(locks.original.lock(agent, ("b",), "read", timeout=0), locks.values.LockResult)
locks.original.lock("agent", ("b",))  # E
locks.original.lock_nowait(agent, ("c",), nodes=["a@127.0.0.1"], require="all")
assert_type(locks.original.await_all_locks(agent), locks.values.LockResult)
locks.original.change_flag(agent, "notify", print)
locks.original.change_flag(agent, "notfy", True)  # E
assert_type(locks.original.fencing_token(agent, ("b",)), int)
for info in locks.original.lock_info(agent):
    assert_type(info.lock_id, locks.values.LockId)
for holder in locks.holders(("a",)):
    assert_type(holder, locks.values.Contender)
    assert_type(holder.version, int)
view = locks.queue(("a",), node="a@127.0.0.1")
assert_type(view.waiting, tuple[locks.values.Contender, ...])
locks.watch(("a",), watcher=worker)
locks.watch(("a",), watcher=17)  # E
assert_type(locks.actors.monitor(worker, print), locks.actors.Monitor)
assert_type(locks.statistics().name, str)
locks.original.end_transaction(agent)
