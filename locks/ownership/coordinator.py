"""Which worker owns which groups, as the coordinator sees and decides it: a pure state machine.

A worker joins, and is gone. Whenever that happens the coordinator asks for an *agreement*: a number
larger than that of every agreement before, under any coordinator. (The shells take a lock for
it, and the number is its fencing token.) When it has one, it makes a plan (`spread`) with it:

* a group without an owner is granted, with the number as its token;
* a group that is to move is asked back from its owner, and granted when that one has released it;
* every other group stays where it is, with the token that it has.

Workers that come and go while an agreement is under way are covered by it. So there is at most one
agreement for each worker that comes or goes, however many groups there are.

Why tokens rise: a group is granted only when it is free. It got free because its owner was gone, so
that the next agreement covers it; or because it was asked back under an agreement that is newer than
the one under which it was granted. Either way the last agreement is newer than the token before.

A coordinator that takes over from another one is told by each worker what it owns when it joins. Two
workers that own the same group, after a network was parted, are told apart by their tokens: the one
with the smaller token is asked for it. A worker unknown here may have had a group meanwhile, with a
larger token, and the present owner would be refused. So a group that was told at joining gets the
number of the next agreement as its token, even where it stays.
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
    """Decides which worker owns which groups. Each method returns what is to be done, in order.

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
        self._tokens: dict[int, int] = {}  # the largest known, also of groups that are free
        # Workers that may have a task at hand: the owner, and losers that have not released it yet.
        self._holders: dict[int, set[W]] = {}
        self._revoked: set[int] = set()  # asked back from their owners
        self._reported: set[int] = set()  # told at joining since the last agreement
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
        """Whether all groups are where they are to be."""
        return not self._agreeing and self._owners == self._plan and not self._revoked

    def joined(self, worker: W, owned: Mapping[int, int] | None = None) -> list[Effect]:
        """A worker has come.

        Args:
            worker: The worker.
            owned: What it owns already, under another coordinator: tokens by group.
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
        """A worker will be gone after the tasks at hand: what it has besides is asked back."""
        if worker not in self._workers or worker in self._leaving:
            return []
        self._leaving.add(worker)
        return self._agree()

    def gone(self, worker: W) -> list[Effect]:
        """A worker has left, has ended, or can't be reached any more."""
        if worker not in self._workers:
            return []
        del self._workers[worker]
        held = [group for group, holders in self._holders.items() if worker in holders]
        for group in held:
            self._let_go(worker, group)
        if worker in self._leaving:
            self._leaving.remove(worker)
            if not held:
                return []  # no worker is to have more or less than before
        return self._agree()

    def released(self, worker: W, groups: Iterable[int]) -> list[Effect]:
        """A worker has released groups that were asked back."""
        free = []
        for group in groups:
            if group in self._revoked or self._owners.get(group) != worker:
                self._let_go(worker, group)
                if group not in self._holders:
                    free.append(group)
        return self._grant(free)

    def agreed(self, token: int) -> list[Effect]:
        """There is an agreement.

        Raises:
            OperatingError: Its number is not larger than those before.
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
        """Ask for the groups that are to move."""
        revokes: dict[W, list[int]] = {}
        for group, owner in sorted(staying.items()):
            if self._plan.get(group, owner) != owner:
                revokes.setdefault(owner, []).append(group)
                self._revoked.add(group)
        return [Revoke(owner, tuple(asked)) for owner, asked in revokes.items()]

    def _renew(self, staying: Mapping[int, W]) -> list[Renew]:
        """Raise the tokens of groups that were told at joining, and stay where they are."""
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
        """Grant groups as the plan says; not if the next agreement is needed for them."""
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
