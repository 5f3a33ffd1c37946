"""The coordinator: a driver of tooz."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import tooz
from tooz import coordination, utils
from tooz.coordination import Characteristics, CoordinatorResult

import locks
from locks.engines.tooz.groups import Group, GroupIds, Member, groups_of
from locks.engines.tooz.lock import Lock, ask_servers, in_words_of_tooz
from locks.facts.gather import lock_servers, requests
from locks.model import AgentId, LockId
from locks.program.default import check_shared
from locks.runtime.clock import monotonic

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["LocalDriver", "LocksDriver"]

T = TypeVar("T")

TIMEOUT = 10.0
LARGEST = 60_000  # bytes of capabilities: these are in a lock id
LONGEST_NAME = 200
NONE = Group(frozenset(), {}, None)


class LocksDriver(
    coordination.CoordinationDriverCachedRunWatchers, coordination.CoordinationDriverWithExecutor
):
    """A coordinator whose locks, groups and leaders are locks on lock servers.

    The URL is `locks://[SERVER[,SERVER...]][/NAMESPACE][?timeout=SECONDS]`, with each server as `name@host:port`. Without
    servers, the program's own are used, from `locks.start`, the environment or `locks.toml`. The cookie and the
    certificates come from there, too: a URL must not contain secrets. Namespaces do not see each other; `timeout` limits
    an operation on a group.

    The death of a coordinator is noticed by its connection: its locks are released, and it leaves its groups, immediately. When lost
    lock servers come back, members become members again automatically; locks and leaders do not. A group lasts
    as long as a coordinator runs that has created it, or was in it.
    """

    CHARACTERISTICS: tuple[Characteristics, ...] = (
        Characteristics.NON_TIMEOUT_BASED,
        Characteristics.DISTRIBUTED_ACROSS_THREADS,
        Characteristics.DISTRIBUTED_ACROSS_PROCESSES,
        Characteristics.DISTRIBUTED_ACROSS_HOSTS,
    )

    def __init__(self, member_id: bytes | str, parsed_url: Any, options: dict[str, Any]) -> None:
        super().__init__(_bytes(member_id), parsed_url, options)
        namespace = parsed_url.path.strip("/") or "default"
        self._base: LockId = ("tooz", namespace)
        self._servers = self._servers_of(parsed_url.netloc)
        try:
            self._timeout = float(self._options.get("timeout", TIMEOUT))
        except ValueError as error:
            raise tooz.ToozError(f"timeout is not a number of seconds: {error}") from error
        text = self._member_id.decode("utf-8", "backslashreplace")
        self._label = (text if text.isprintable() and text.strip() else ascii(text))[:LONGEST_NAME]
        self._owner = locks.Owner(self._label)
        self._owner.end()  # until `start`
        self._kept: dict[bytes, locks.actors.Agent] = {}
        self._joined: dict[bytes, locks.actors.Agent] = {}
        self._leads: dict[bytes, locks.actors.Agent] = {}

    @staticmethod
    def _servers_of(netloc: str) -> str | list[str] | None:
        """The `servers` for `locks.start`."""
        return [each for each in netloc.split(",") if each] or None

    def _start(self) -> None:
        super()._start()
        try:
            if self._servers is None:
                check_shared(
                    "other programs would not see this coordinator; use locks+local:// or locks://name@host:port,...",
                    among_peers=True,
                )
            locks.start(servers=self._servers)
            self._owner = locks.Owner(self._label)
            self.heartbeat()
        except locks.LocksError as error:
            raise coordination.ToozConnectionError(str(error)) from error

    def _stop(self) -> None:
        self._owner.end()
        for begun in (self._kept, self._joined, self._leads):
            begun.clear()
        super()._stop()

    def heartbeat(self) -> float:
        """Check that the lock servers answer. It is optional: it only reports problems early.

        Raises:
            ToozConnectionError: Too few of them answered.
        """
        with in_words_of_tooz():
            ask_servers(lambda: lock_servers(timeout=self._timeout))
        return self._timeout

    # --- Locks ----------------------------------------------------------------------------------

    def get_lock(self, name: bytes | str) -> Lock:
        """Create a lock; see `Lock`."""
        lock_id = (*self._base, "locks", _bytes(name))
        return Lock(name, lock_id, lambda: self._owner, self._label, self._timeout)  # type: ignore[arg-type, unused-ignore]

    # --- Groups ---------------------------------------------------------------------------------

    def _ids(self, group: bytes) -> GroupIds:
        return GroupIds((*self._base, "groups", group))

    def _look(self, group: bytes) -> Group:
        """The current state of a group; empty if it does not exist."""
        return self._look_at((*self._base, "groups", group)).get(group, NONE)

    def _look_at(self, prefix: LockId) -> dict[bytes, Group]:
        told = ask_servers(lambda: requests(prefix, timeout=self._timeout))
        return groups_of(told.facts, len(self._base) + 1)

    def _existing(self, group: bytes) -> Group:
        found = self._look(group)
        if not found.keepers:
            raise coordination.GroupNotCreated(group)
        return found

    @contextmanager
    def _changing(self, group: bytes) -> Iterator[Group]:
        """Keep others from changing the group during this block; gives its state."""
        with locks.transaction(timeout=self._timeout, owner=self._owner) as alone:
            alone.lock_all(write=[self._ids(group).change])
            yield self._look(group)

    def _begin(self, *wanted: tuple[LockId, locks.values.Mode]) -> locks.actors.Agent:
        """Lock something for as long as the coordinator runs; locks again when lost lock servers are back."""
        agent, _ = locks.original.begin_transaction(
            wanted, client=self._owner, timeout=self._timeout, await_nodes=True
        )
        return agent

    def _end(self, agent: AgentId, own: locks.actors.Agent | None, why: str) -> None:
        """End a transaction, also of another coordinator; `_await` waits until it is gone."""
        if own is not None and own.id == agent:
            own.let_go()
        else:
            with suppress(locks.errors.NodeNotRunning):  # it may already have ended
                reason = f"{self._label} {why}"
                locks.facts.break_transaction(agent, reason=reason, timeout=self._timeout)

    def _await(self, group: bytes, is_so: Callable[[Group], bool]) -> None:
        """Wait until releases have taken effect: a question that arrives together with a release is answered before it."""
        deadline = monotonic() + self._timeout
        while not is_so(self._look(group)):
            if monotonic() > deadline:
                raise coordination.OperationTimedOut(
                    f"timed out after {self._timeout:g} s waiting for group {group!r} to change on all lock servers"
                )

    def _keep(self, group: bytes) -> None:
        kept = self._kept.get(group)
        if kept is None or kept.is_over:
            self._kept[group] = self._begin((self._ids(group).kept, "read"))

    def _soon(self, do: Callable[[Unpack[Ts]], T], *args: Unpack[Ts]) -> CoordinatorResult[T]:
        """Run it in the background."""
        return CoordinatorResult(self._executor.submit(do, *args), in_words_of_tooz)

    def create_group(self, group_id: bytes | str) -> CoordinatorResult[None]:
        """Create a group."""

        def create(group: bytes) -> None:
            with self._changing(group) as found:
                if found.keepers:
                    raise coordination.GroupAlreadyExist(group)
                self._keep(group)

        return self._soon(create, _bytes(group_id))

    def delete_group(self, group_id: bytes | str) -> CoordinatorResult[None]:
        """Delete an empty group."""

        def delete(group: bytes) -> None:
            with self._changing(group) as found:
                if not found.keepers:
                    raise coordination.GroupNotCreated(group)
                if found.members:
                    raise coordination.GroupNotEmpty(group)
                for agent in found.keepers:
                    self._end(agent, self._kept.get(group), "deletes this group")
                self._kept.pop(group, None)
                self._await(group, lambda now: not now.keepers)

        return self._soon(delete, _bytes(group_id))

    def get_groups(self) -> CoordinatorResult[list[bytes]]:
        """The ids of all groups."""

        def find() -> list[bytes]:
            found = self._look_at((*self._base, "groups"))
            return sorted(group for group, each in found.items() if each.keepers)

        return self._soon(find)

    def join_group(
        self, group_id: bytes | str, capabilities: dict[str, Any] | None = None
    ) -> CoordinatorResult[None]:
        """Join a group."""

        def join(group: bytes) -> None:
            said = _dumped(capabilities)
            with self._changing(group) as found:
                if not found.keepers:
                    raise coordination.GroupNotCreated(group)
                if self._member_id in found.members:
                    raise coordination.MemberAlreadyExist(group, self._member_id)
                self._keep(group)
                ids = self._ids(group)
                self._joined[group] = self._begin(
                    (ids.member(self._member_id), "write"),
                    (ids.capabilities(self._member_id, 0, said), "write"),
                )
                self._joined_groups.add(group_id)  # type: ignore[arg-type, unused-ignore]

        return self._soon(join, _bytes(group_id))

    def leave_group(self, group_id: bytes | str) -> CoordinatorResult[None]:
        """Leave a group, together with other coordinators of the same id."""

        def leave(group: bytes) -> None:
            with self._changing(group) as found:
                member = self._member(found, group, self._member_id)
                self._end(member.agent, self._joined.get(group), "leaves this group")
                self._joined.pop(group, None)
                self._joined_groups.discard(group_id)  # type: ignore[arg-type, unused-ignore]
                self._await(group, lambda now: self._member_id not in now.members)

        return self._soon(leave, _bytes(group_id))

    def _member(self, found: Group, group: bytes, member: bytes) -> Member:
        if not found.keepers:
            raise coordination.GroupNotCreated(group)
        if member not in found.members:
            raise coordination.MemberNotJoined(group, member)
        return found.members[member]

    def update_capabilities(
        self, group_id: bytes | str, capabilities: dict[str, Any] | None
    ) -> CoordinatorResult[None]:
        """Change the capabilities of this member."""

        def update(group: bytes) -> None:
            said = _dumped(capabilities)
            with self._changing(group) as found:
                known = self._member(found, group, self._member_id)
                own = self._joined.get(group)
                if own is None or own.id != known.agent:  # another coordinator with the same id
                    raise coordination.MemberNotJoined(group, self._member_id)
                ids = partial(self._ids(group).capabilities, self._member_id)
                # The new lock first, so that it is always a member.
                new = ids(known.number + 1, said)
                locks.original.lock(own, new, timeout=self._timeout)
                locks.original.unlock(own, ids(known.number, known.capabilities))

        return self._soon(update, _bytes(group_id))

    def get_members(self, group_id: bytes | str) -> CoordinatorResult[set[bytes]]:
        """The ids of a group's members."""
        return self._soon(lambda group: set(self._existing(group).members), _bytes(group_id))

    def get_members_with_capabilities(
        self, group_id: bytes | str
    ) -> CoordinatorResult[dict[bytes, Any]]:
        """The ids of a group's members, with their capabilities."""

        def find(group: bytes) -> dict[bytes, Any]:
            found = self._existing(group).members
            return {name: utils.loads(each.capabilities) for name, each in found.items()}

        return self._soon(find, _bytes(group_id))

    def get_member_capabilities(
        self, group_id: bytes | str, member_id: bytes | str
    ) -> CoordinatorResult[Any]:
        """The capabilities of a member."""

        def find(group: bytes, member: bytes) -> Any:
            return utils.loads(self._member(self._look(group), group, member).capabilities)

        return self._soon(find, _bytes(group_id), _bytes(member_id))

    def get_member_info(
        self, group_id: bytes | str, member_id: bytes | str
    ) -> CoordinatorResult[dict[str, Any]]:
        """The capabilities of a member, when it joined, and when it last changed them."""

        def find(group: bytes, member: bytes) -> dict[str, Any]:
            found = self._member(self._look(group), group, member)
            return {
                "capabilities": utils.loads(found.capabilities),
                "created_at": utils.millis_to_datetime(found.joined / 1000),
                "updated_at": utils.millis_to_datetime(found.updated / 1000),
            }

        return self._soon(find, _bytes(group_id), _bytes(member_id))

    # --- Leaders --------------------------------------------------------------------------------

    def run_watchers(self, timeout: float | None = None) -> list[Any]:
        """Call the watchers of groups and of elections."""
        results: list[Any] = super().run_watchers(timeout)
        self.run_elect_coordinator()
        return results

    def run_elect_coordinator(self) -> None:
        """Become the leader of each group in which this coordinator is a candidate and there is no leader."""
        for group_id in list(self._hooks_elected_leader):
            group = _bytes(group_id)
            if self._is_leader(group):
                continue
            ids = self._ids(group)
            with in_words_of_tooz():
                try:
                    self._leads[group], _ = locks.original.begin_transaction(
                        [(ids.leader, "write"), (ids.leader_is(self._member_id), "read")],
                        client=self._owner,
                        timeout=0,
                    )
                except locks.LockTimeout:
                    continue
            event = coordination.LeaderElected(group, self._member_id)
            self._hooks_elected_leader[group_id].run(event)

    def _is_leader(self, group: bytes) -> bool:
        agent = self._leads.get(group)
        try:
            if agent is not None:
                agent.ensure_held()
        except locks.LocksError:
            agent = None  # it was lost or broken
        return agent is not None

    def stand_down_group_leader(self, group_id: bytes | str) -> bool:
        """Stop leading a group; return whether this coordinator led it."""
        group = _bytes(group_id)
        leads = self._is_leader(group)
        agent = self._leads.pop(group, None)
        if agent is not None:
            agent.let_go()
        return leads

    def get_leader(self, group_id: bytes | str) -> CoordinatorResult[Any]:
        """The leader of a group; `None` if there is none."""
        return self._soon(lambda group: self._look(group).leader, _bytes(group_id))


class LocalDriver(LocksDriver):
    """The driver for programs of one user on one machine: `locks+local://[DOMAIN][/NAMESPACE]`.

    The first program starts the lock server.
    """

    CHARACTERISTICS = LocksDriver.CHARACTERISTICS[:-1]

    @staticmethod
    def _servers_of(netloc: str) -> str:
        return f"local:{netloc}" if netloc else "local"


def _bytes(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _dumped(capabilities: Any) -> bytes:
    said: bytes = utils.dumps(capabilities)
    if len(said) > LARGEST:
        raise tooz.ToozError(
            f"these capabilities have {len(said)} bytes, more than {LARGEST}; make them smaller"
        )
    return said
