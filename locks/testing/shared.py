"""Shared state that clients access without a common lock.

Each access to a wrapped object is recorded with the locks that its client holds, as in Eraser
(Savage, Burrows, Nelson, Sobalvarro, Anderson: Eraser: A Dynamic Data Race Detector for
Multithreaded Programs, 1997). If two clients access the same item, and one of them writes, they
need locks that exclude each other: ids of which one covers the other, and not both read; or one
lock of `threading` that both hold; or the same group of an `Ownership`. Otherwise it is a
violation, under any schedule: the two accesses need not come at the same time.

Eraser keeps one set of locks for each item, and every access makes it smaller. Here, ids are a
tree, and a common lock is a relation between two accesses. So each kind of access is kept, and
compared with those of others. Accesses before a client was added are not compared with those of
this client; accesses outside of clients are not compared at all.
"""

from __future__ import annotations

import types
from collections.abc import Hashable, Iterator, MutableMapping, MutableSequence, MutableSet
from typing import Any, NamedTuple

from locks.errors import MisuseError
from locks.model import Mode, related, show
from locks.runtime.identity import client_key
from locks.runtime.monitor import current_client
from locks.testing.nodes import SimulatedNodes
from locks.testing.owning import GroupAtHand, at_hand
from locks_lab.applications.places import Place
from locks_lab.worlds.host import Violation

__all__ = ["Shared", "Unguarded", "share"]

WHOLE = object()  # the item of accesses that concern all items
CONTAINERS = (MutableMapping, MutableSequence, MutableSet)
OF_ITEM = {"get": False, "pop": True, "setdefault": True}  # and whether they write
READS = frozenset(
    (
        *("copy", "count", "difference", "index", "intersection", "isdisjoint", "issubset"),
        *("issuperset", "items", "keys", "symmetric_difference", "union", "values"),
    )
)


class Unguarded(Violation):
    """Two clients have accessed the same item, and no lock has excluded this."""


class _Access(NamedTuple):
    """An access of a client, and its locks.

    Attributes:
        client: The client's number.
        name: Its name.
        writes: Whether it wrote.
        held: The ids that it held, with nodes and modes.
        guards: The locks of `threading` that it held, and the groups of resources on which it
            worked.
        place: The place in the user's code.
        before: How many clients there were; clients that were added later come after it.
    """

    client: int
    name: str
    writes: bool
    held: frozenset[tuple[str, Any, Mode]]
    guards: frozenset[Hashable]
    place: Place | None
    before: int

    def is_kept_from(self, other: _Access) -> bool:
        """Whether the two accesses can't happen at the same time."""
        if not (self.writes or other.writes) or self.client == other.client:
            return True
        if other.before < self.client or self.guards & other.guards:
            return True
        return any(
            node == its_node and related(one, two) and "write" in (mode, its_mode)
            for node, one, mode in self.held
            for its_node, two, its_mode in other.held
        )

    def __str__(self) -> str:
        held = sorted({(lock_id, mode) for _, lock_id, mode in self.held}, key=repr)
        locks = [f"{mode} {show(lock_id)}" for lock_id, mode in held]
        locks += sorted(
            {
                str(each) if isinstance(each, GroupAtHand) else "a lock of threading"
                for each in self.guards
            }
        )
        where = "" if self.place is None else f" at {self.place}"
        done = "written" if self.writes else "read"
        return f"{done} by {self.name}{where} with {' and '.join(locks) or 'no lock'}"


class _Record:
    """The accesses to one object."""

    def __init__(self, nodes: SimulatedNodes, name: str) -> None:
        self._nodes = nodes
        self._name = name
        self._seen: dict[Any, dict[Any, _Access]] = {}

    def note(self, what: Any, writes: bool) -> None:
        """A client accesses something; others may go first.

        Raises:
            Unguarded: Another one has done so, and they have no lock in common.
        """
        application = self._nodes.application
        application.pause()
        client = None if application.leaving else application.running
        if client is None:
            return
        if self._nodes.is_at_work:
            raise MisuseError(
                f"{self._name} is shared with tasks of asyncio, whose locks simulation.shared() does not see: use it for clients that "
                "are functions"
            )
        own = {
            client_key(each): each for each in (client, current_client())
        }.values()  # it may act for an owner
        held = frozenset(
            (where, lock_id, mode)
            for each in own
            for agent in self._nodes.agents_of(each)
            for (where, lock_id), mode in agent.host.told.items()
        )
        workers = self._nodes.by_name[client.node].counters.workers
        guards = frozenset((*application.guards.get(client, ()), *at_hand(workers, client)))
        place = application.place(client)
        access = _Access(client.number, client.name, writes, held, guards, place, application.made)
        places = list(self._seen) if what is WHOLE else [what, WHOLE]
        for each in places:
            for other in self._seen.get(each, {}).values():
                if not access.is_kept_from(other):
                    error = Unguarded(
                        f"{self._name}{'' if what is WHOLE else what} is {access}; it was {other}: no lock keeps the two apart"
                    )
                    application.fail(error)
                    raise error
        key = (client.number, writes, held, guards)
        self._seen.setdefault(what, {})[key] = access


class Shared:
    """A thing that clients share, wrapped. It is used like the thing itself."""

    __slots__ = ("_record", "_thing")

    def __init__(self, thing: Any, record: _Record) -> None:
        object.__setattr__(self, "_thing", thing)
        object.__setattr__(self, "_record", record)

    def _read(self, what: Any = WHOLE) -> Any:
        self._record.note(what, False)
        return self._thing

    def _write(self, what: Any = WHOLE) -> Any:
        self._record.note(what, True)
        return self._thing

    def __getattr__(self, name: str) -> Any:
        thing = object.__getattribute__(self, "_thing")
        if isinstance(thing, CONTAINERS):
            return self._method(name)
        found = getattr(type(thing), name, None)
        if isinstance(found, types.FunctionType):
            return types.MethodType(found, self)  # so that its accesses are seen
        return getattr(self._read(f".{name}"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._write(f".{name}"), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._write(f".{name}"), name)

    def _method(self, name: str) -> Any:
        method = getattr(self._thing, name)

        def call(*args: Any, **options: Any) -> Any:
            of_item = isinstance(self._thing, MutableMapping) and name in OF_ITEM
            writes = OF_ITEM[name] if of_item else name not in READS
            self._record.note(f"[{args[0]!r}]" if of_item and args else WHOLE, writes)
            found = method(*args, **options)
            return list(found) if name in ("items", "keys", "values") else found

        return call

    def __getitem__(self, key: Any) -> Any:
        return self._read(f"[{key!r}]")[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._write(f"[{key!r}]")[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._write(f"[{key!r}]")[key]

    def __contains__(self, key: Any) -> bool:
        is_map = isinstance(self._thing, MutableMapping)
        return key in self._read(f"[{key!r}]" if is_map else WHOLE)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._read()))

    def __len__(self) -> int:
        return len(self._read())

    def __bool__(self) -> bool:
        return bool(self._read())

    def __eq__(self, other: object) -> bool:
        return bool(self._read() == (other._thing if isinstance(other, Shared) else other))

    def __hash__(self) -> int:
        return hash(self._read())

    def __repr__(self) -> str:
        return repr(self._thing)


def share(nodes: SimulatedNodes, thing: Any, name: str) -> Any:
    """Wrap a thing."""
    return Shared(thing, _Record(nodes, name or type(thing).__name__))
