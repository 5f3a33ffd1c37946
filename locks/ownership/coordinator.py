"""The coordinator, which decides which worker owns which groups: a pure state machine.

Whenever a worker joins or is gone, the coordinator requests an *agreement*: a number larger than
that of every earlier agreement, under any coordinator. (The shells take a lock for it, and the
number is its fencing token.) With the agreement, it makes a plan (`spread`):

* A group without an owner is granted, with the number as its token.
* A group that must move is revoked from its owner, and granted when the owner has released it.
* Every other group stays where it is, and keeps its token.

An agreement that is under way also covers workers that join or leave meanwhile. So there is at most
one agreement for each worker that joins or leaves, however many groups there are.

Why do tokens rise? A group is granted only when it is free. Either its owner was gone: then the
next agreement covers this. Or it was revoked under a newer agreement than the one under which it
was granted. In both cases the last agreement is newer than the group's earlier token.

If a coordinator takes over from another one, each worker that joins reports the groups that it
owns. After a network split, two workers may own the same group. Then the group is revoked from the
one with the smaller token. Moreover, a worker that is unknown here may have owned a group
meanwhile, with a larger token, so that the token of the present owner would be refused. So a
reported group gets the number of the next agreement as its token, even if it stays.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from locks.errors import OperatingError
from locks.ownership.messages import Agree, Effect, Grant, Renew, Revoke
from locks.ownership.spread import spread

__all__ = ["Coordinator"]

W = TypeVar("W", bound=Hashable)


class Coordinator(Generic[W]):
    """Decides which worker owns which groups. Each method returns effects, in order.

    Args:
        groups: How many groups there are.

    Attributes:
        token: The number of the last agreement; 0 before the first.
        newest: The largest token that it knows of.
        agreements: How many there were.
        moves: How many groups were granted.
    """

    def __init__(self, groups: int) -> None:
        self.groups = groups
        self.token = 0
        self.newest = 0
        self.agreements = 0
        self.moves = 0
        self._workers: dict[W, None] = {}
        self._leaving: set[W] = set()
        self._owners: dict[int, W] = {}
        self._tokens: dict[
            int, int
        ] = {}  # the largest known token of each group, free ones included
        # Workers that may have a task of a group: the owner, and former owners that have not
        # released it yet.
        self._holders: dict[int, set[W]] = {}
        self._revoked: set[int] = set()  # revoked, and not released yet
        self._reported: set[int] = set()  # reported by joining workers since the last agreement
        self._plan: dict[int, W] = {}
        self._agreeing = False

    @property
    def workers(self) -> tuple[W, ...]:
        """The workers, in the order in which they have joined."""
        return tuple(self._workers)

    @property
    def owners(self) -> dict[int, W]:
        """The owner of each group that has one."""
        return dict(self._owners)

    @property
    def settled(self) -> bool:
        """Whether all groups have their planned owners."""
        return not self._agreeing and self._owners == self._plan and not self._revoked

    def joined(self, worker: W, owned: Mapping[int, int] | None = None) -> list[Effect]:
        """Take in a worker that joins.

        Args:
            worker: The worker.
            owned: The groups that it owns already, under another coordinator, with their tokens.
        """
        self._workers[worker] = None
        lost: dict[W, list[int]] = {}
        for group, token in (owned or {}).items():
            owner = self._owners.get(group)
            if token > self._tokens.get(group, 0) or (
                owner is None and token == self._tokens[group]
            ):
                self._owners[group] = worker
                self._tokens[group] = token
                self.newest = max(self.newest, token)
                self._revoked.discard(group)
                if owner is not None:
                    lost.setdefault(owner, []).append(group)
            else:
                lost.setdefault(worker, []).append(group)
            self._holders.setdefault(group, set()).add(worker)
            self._reported.add(group)
        revokes = [Revoke(loser, tuple(sorted(groups))) for loser, groups in lost.items()]
        return [*revokes, *self._agree()]

    def leaving(self, worker: W) -> list[Effect]:
        """Take in that a worker will leave after its present tasks; revoke its other groups."""
        if worker not in self._workers or worker in self._leaving:
            return []
        self._leaving.add(worker)
        return self._agree()

    def gone(self, worker: W) -> list[Effect]:
        """Take in that a worker has left, has ended, or can't be reached any more."""
        if worker not in self._workers:
            return []
        del self._workers[worker]
        held = [group for group, holders in self._holders.items() if worker in holders]
        for group in held:
            self._let_go(worker, group)
        if worker in self._leaving:
            self._leaving.remove(worker)
            if not held:
                return []  # the shares of the workers do not change
        return self._agree()

    def released(self, worker: W, groups: Iterable[int]) -> list[Effect]:
        """Take in that a worker has released revoked groups."""
        free = []
        for group in groups:
            if group in self._revoked or self._owners.get(group) != worker:
                self._let_go(worker, group)
                if group not in self._holders:
                    free.append(group)
        return self._grant(free)

    def agreed(self, token: int) -> list[Effect]:
        """Take in an agreement.

        Raises:
            OperatingError: Its number is not larger than earlier ones.
        """
        self._check_newer(token)
        self.token = self.newest = token
        self.agreements += 1
        self._agreeing = False
        staying = {g: owner for g, owner in self._owners.items() if g not in self._revoked}
        self._plan = spread(self.groups, staying, self._staying_workers())
        revokes = self._ask_back(staying)
        renewals = self._renew(staying)
        free = [group for group in self._plan if group not in self._holders]
        return [*revokes, *renewals, *self._grant(free)]

    def _check_newer(self, token: int) -> None:
        if token <= self.newest:
            raise OperatingError(
                f"an agreement has the number {token}, but there was {self.newest} before: the clock "
                "was set back, or the lock that agreements are made with is not the same everywhere",
                token=token,
                newest=self.newest,
            )

    def _ask_back(self, staying: Mapping[int, W]) -> list[Revoke]:
        """Revoke the groups that must move."""
        revokes: dict[W, list[int]] = {}
        for group, owner in sorted(staying.items()):
            if self._plan.get(group, owner) != owner:
                revokes.setdefault(owner, []).append(group)
                self._revoked.add(group)
        return [Revoke(owner, tuple(asked)) for owner, asked in revokes.items()]

    def _renew(self, staying: Mapping[int, W]) -> list[Renew]:
        """Raise the tokens of groups that were reported by joining workers, and stay where they are."""
        renewed: dict[W, list[int]] = {}
        for group in sorted(self._reported & staying.keys() - self._revoked):
            renewed.setdefault(staying[group], []).append(group)
            self._tokens[group] = self.token
        self._reported.clear()
        return [Renew(owner, tuple(kept), self.token) for owner, kept in renewed.items()]

    def _agree(self) -> list[Effect]:
        """Ask for an agreement, unless one is under way, which covers whatever has changed."""
        if self._agreeing or not self._staying_workers():
            return []
        self._agreeing = True
        return [Agree()]

    def _staying_workers(self) -> list[W]:
        return [worker for worker in self._workers if worker not in self._leaving]

    def _grant(self, free: Iterable[int]) -> list[Effect]:
        """Grant groups by the plan, except those that need the next agreement."""
        grants: dict[W, list[int]] = {}
        heirs = set(self._staying_workers())
        for group in sorted(free):
            worker = self._plan.get(group)
            newer = self._tokens.get(group, 0) < self.token
            if newer and worker is not None and worker in heirs:
                self._owners[group] = worker
                self._tokens[group] = self.token
                self._holders[group] = {worker}
                self.moves += 1
                grants.setdefault(worker, []).append(group)
        return [Grant(worker, tuple(granted), self.token) for worker, granted in grants.items()]

    def _let_go(self, worker: W, group: int) -> None:
        holders = self._holders.get(group, set())
        holders.discard(worker)
        if not holders:
            self._holders.pop(group, None)
        if self._owners.get(group) == worker:
            del self._owners[group]
            self._revoked.discard(group)
