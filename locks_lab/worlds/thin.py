"""Clients whose first lock is thin: they hold it without an agent, by the product's rule (`locks.core.thin`).

A world with one node has them under the rule `thin`. A client takes a step without its agent if the rule allows it: its first
lock, and the end. Any other event *inflates* what is thin first. Each transaction after the first one is thin before it locks,
too, if nothing else is.

Besides the checks of any world: a lock that is inflated is granted under the token that its client was given, and its agent
has the age of the transaction.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from locks.core.server.machine import ServerMachine
from locks.core.thin import Granted, Made, Thin
from locks.model import AgentId
from locks_lab.worlds.client import ScriptedClient, TokenKey
from locks_lab.worlds.host import Had, Host, Violation

__all__ = ["ThinClients"]


class _World(Protocol):
    """The part of a world that is needed here."""

    servers: dict[str, ServerMachine]

    def _check_tokens(self, node: str, new: Collection[int]) -> None:
        """Check that fencing tokens rise."""

    def _drop_agents(self, client: ScriptedClient) -> None:
        """A client may have another agent now."""

    def _after(self, client: ScriptedClient) -> None:
        """Something has happened to a client."""


class _Holder:
    """What a client has instead of an agent."""

    def __init__(self, client: ScriptedClient) -> None:
        self.client = client
        self.made: Made = client.ref.created, client.agent.client, client.agent.abort_on_deadlock
        self.granted: Granted | None = None


class ThinClients:
    """The thin locks of a world.

    Args:
        world: The world.
        rule: The rule.

    Attributes:
        usable: Whether there may be any; a watcher ends that.
        whole: The agents that are not thin, and never will be.
    """

    def __init__(self, world: _World, rule: type[Thin]) -> None:
        self.world = world
        (self.server,) = world.servers.values()
        self.rule = rule(self.server)
        self.usable = True
        self.whole: set[AgentId] = set()

    def may_step(self, client: ScriptedClient) -> bool:
        """Whether its next step may need no agent."""
        step, holds = client.next_step, self.holds(client)
        if not self.usable or not client.ready or client.ref in self.whole:
            return False
        return holds if step is None or step.kind == "again" else step.kind in ("lock", "try")

    def holds(self, client: ScriptedClient) -> bool:
        """Whether a client holds what is thin now."""
        return self.rule.held is not None and self.rule.held.client is client

    def step(self, client: ScriptedClient) -> bool:
        """A client takes its next step without an agent; returns whether it has."""
        rule, step = self.rule, client.next_step
        if not self.may_step(client):
            return False
        if step is None or step.kind == "again":
            rule.held = None
            client.step()
            if not client.finished and rule.held is None:
                rule.held = _Holder(client)
            return True
        holder: _Holder = rule.held if self.holds(client) else _Holder(client)
        if not rule.give(holder, (step.lock_id, step.mode, (client.home,), "all"), 0):
            return False
        rule.held = holder
        assert holder.granted is not None
        token = holder.granted[1]
        self.world._check_tokens(client.home, {token})
        here = (client.home,)
        client.tokens[TokenKey(step.lock_id, here, step.mode, client.ref, here)] = token
        client.at += 1
        client.host.had[step.lock_id] = Had(step.mode, here, "all")
        client.host.told = {**client.told, (client.home, step.lock_id): step.mode}
        return True

    def inflate(self) -> None:
        """Give the holder its agent; then all is as if there had been no thin locks."""
        rule, holder = self.rule, self.rule.held
        if holder is None and not rule.taken:
            return
        ref = None if holder is None else rule.reference(holder)
        steps = rule.steps()
        answers = [event(*args) for event, args in steps]
        self.server.changed = ()
        rule.conclude()
        if ref is None:
            return
        client: ScriptedClient = holder.client
        due, before = client.ref, client.host
        self.whole.add(ref)
        client.host = Host(
            client.rule.agent(ref, client.agent.client, client.alive, **client.options),
            client._effect,
        )
        client.host.told, client.host.had = before.told, before.had
        self.world._drop_agents(client)
        if holder.granted is not None:
            wanted, token, *_ = holder.granted
            told, _ = answers[-1]
            if [(each.state, each.since) for each in told] != [("granted", token)]:
                raise Violation(f"{client.agent.client} was given token {token}, and has {told}")
            held = dict(before.told)
            client.waiting = "yes"
            client.host.perform(client.agent.ask_told(wanted, told, client.number))
            if client.told != held:
                raise Violation(f"{client.agent.client} had {held}, and has {client.told}")
        if ref != due:
            raise Violation(f"{client.agent.client} has another age than its transaction: {ref}")
        self.world._after(client)
