"""Tables and rows: a lock on an id covers everything below it.

Four people work on one database, each with a transaction of their own. Each line says who asks for
what, and whether it is granted, or which locks are in the way.
"""

from __future__ import annotations

import argparse
from typing import Literal

import pykka

import locks

USERS = ("db", "users")
ORDERS = ("db", "orders")
Mode = Literal["read", "write"]


class Person(pykka.ThreadingActor):
    """A person with a transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.agent: locks.actors.Agent = locks.original.spawn_agent(client=self.actor_ref)

    def ask(self, lock_id: locks.values.LockId, mode: Mode) -> str:
        """Ask for a lock; if it isn't granted at once, go on without it."""
        try:
            locks.original.lock(self.agent, lock_id, mode, timeout=0)
        except locks.LockTimeout as late:
            held = {"/".join(map(str, holder.lock_id)) for holder in late.about["holders"]}
            return f"has to wait for {', '.join(sorted(held))}"
        return "granted"

    def release(self, lock_id: locks.values.LockId) -> None:
        """Release one lock, and keep the others."""
        locks.original.unlock(self.agent, lock_id)


def main() -> None:
    """Show which requests conflict."""
    locks.start("db@localhost")
    people = {name: Person.start().proxy() for name in ("alice", "bob", "carol", "dave")}

    def ask(name: str, mode: Mode, *lock_id: str | int) -> None:
        answer = people[name].ask(lock_id, mode).get()
        print(f"  {name:5} {mode:5} {'/'.join(map(str, lock_id)):18} {answer}")

    print("Rows of one table don't get in each other's way:")
    ask("alice", "write", *USERS, 1)
    ask("bob", "write", *USERS, 2)
    print("The table is not free while its rows are written, other tables are:")
    ask("carol", "read", *USERS)
    ask("carol", "read", *ORDERS)
    print("A lock on the table covers its rows. Readers share it:")
    ask("dave", "read", *ORDERS, 7)
    ask("dave", "write", *ORDERS, 7)
    print("Carol may upgrade only when she is the last reader:")
    ask("carol", "write", *ORDERS)
    people["dave"].release((*ORDERS, 7)).get()
    ask("carol", "write", *ORDERS)
    ask("dave", "read", *ORDERS, 7)
    print("What one has covers what one asks for next:")
    ask("carol", "write", *ORDERS, 7, "price")
    print("The whole database, at last, when all the others are done:")
    for name in ("alice", "bob", "carol"):
        people[name].stop().get()  # a transaction ends with its client
    ask("dave", "write", "db")

    pykka.ActorRegistry.stop_all()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
