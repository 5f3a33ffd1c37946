"""Clients whose locks are thin: they hold them without an agent's machine, by the product's rule (`locks.core.thin`).

A world with one node has them under the rule `thin`. A client takes a step without its agent if the rule allows it: locks that are
free, and the end. Any other event *inflates* what is thin first. Each transaction after the first one is thin before it locks, too.

Besides the checks of any world: a lock that is inflated is granted under the token that its client was given.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from locks.core.server.machine import ServerMachine
from locks.core.thin import Granted, Thin
from locks.model import AgentId, LockId, RequestRecord
from locks_lab.worlds.client import ScriptedClient, TokenKey
from locks_lab.worlds.host import Had, Host, Violation

__all__ = ["Holder", "ThinClients"]


class _World(Protocol):
    """The part of a world that is needed here."""

    servers: dict[str, ServerMachine]

    def _check_tokens(self, node: str, new: Collection[int]) -> None:
        """Check that fencing tokens rise."""

    def _drop_agents(self, client: ScriptedClient) -> None:
        """A client may have another agent now."""

    def _after(self, client: ScriptedClient) -> None:
        """Something has happened to a client."""


class Holder:
    """A client's thin transaction, for the rules."""

    def __init__(self, client: ScriptedClient) -> None:
        self.client = client
        self.id = client.ref
        self.name = client.agent.client
        self.thin_ids: dict[LockId, None] = {}


class ThinClients:
    """The thin locks of a world.

    Args:
        world: The world.
        rule: The rule.

    Attributes:
        usable: Whether there may be any; a watcher ends that.
        whole: The agents that are not thin, and never will be.
        holders: The thin transactions, by the numbers of their clients.
    """

    def __init__(self, world: _World, rule: type[Thin]) -> None:
        self.world = world
        (self.server,) = world.servers.values()
        self.rule = rule(self.server)
        self.usable = True
        self.whole: set[AgentId] = set()
        self.holders: dict[int, Holder] = {}

    @property
    def is_due(self) -> bool:
        """Whether there is something to inflate."""
        return bool(self.holders or self.rule.changes)

    def may_step(self, client: ScriptedClient) -> bool:
        """Whether its next step may need no agent."""
        step, holds = client.next_step, self.holds(client)
        if not self.usable or not client.ready or client.ref in self.whole:
            return False
        return holds if step is None or step.kind == "again" else step.kind in ("lock", "try")

    def holds(self, client: ScriptedClient) -> bool:
        """Whether a client's transaction is thin now."""
        return client.number in self.holders

    def step(self, client: ScriptedClient) -> bool:
        """A client takes its next step without an agent; returns whether it has."""
        rule, step = self.rule, client.next_step
        if not self.may_step(client):
            return False
        if step is None or step.kind == "again":
            holder = self.holders.pop(client.number)
            for lock_id in list(holder.thin_ids):
                rule.release(rule.held[lock_id])
            client.step()
            if not client.finished:
                self.holders[client.number] = Holder(client)
            return True
        holder = self.holders.get(client.number) or Holder(client)
        token = rule.give(holder, (step.lock_id, step.mode, (client.home,), "all"), 0, None)
        if token is None:
            return False
        self.holders[client.number] = holder
        self.world._check_tokens(client.home, {token})
        here = (client.home,)
        client.tokens[TokenKey(step.lock_id, here, step.mode, client.ref, here)] = token
        client.at += 1
        client.host.had[step.lock_id] = Had(step.mode, here, "all")
        client.host.told = {**client.told, (client.home, step.lock_id): step.mode}
        return True

    def inflate(self) -> None:
        """Give the holders their agents; then all is as if there had been no thin locks."""
        if not self.is_due:
            return
        holders, granted = list(self.holders.values()), []
        for event, args, lock in self.rule.steps():
            answer = event(*args)
            if lock is not None:
                granted.append((lock, answer[0]))
        self.server.changed = ()
        self.rule.conclude()
        self.holders.clear()
        for holder in holders:
            own = [each for each in granted if each[0].holder is holder]
            self._make(holder.client, own)

    def _make(
        self, client: ScriptedClient, granted: list[tuple[Granted, tuple[RequestRecord, ...]]]
    ) -> None:
        """Give a client's agent what the lock server has said of its locks."""
        before, options = client.host, client.options
        self.whole.add(client.ref)
        machine = client.rule.agent(client.ref, client.agent.client, client.alive, **options)
        client.host = Host(machine, client._effect)
        client.host.told, client.host.had = before.told, before.had
        self.world._drop_agents(client)
        held = dict(before.told)
        for lock, told in granted:
            if [(each.state, each.since) for each in told] != [("granted", lock.token)]:
                raise Violation(
                    f"{client.agent.client} was given token {lock.token}, and has {told}"
                )
            client.waiting = "yes"
            client.host.perform(client.agent.ask_told(lock.wanted, told, client.number))
        if client.told != held or len(granted) != len(held):
            raise Violation(f"{client.agent.client} had {held}, and has {client.told}")
        self.world._after(client)
