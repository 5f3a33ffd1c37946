"""Proxies of actors of other nodes: a message calls a method, which is checked on the actor's node.

The actor's methods are not known here, so a proxy of a `RemoteRef` has a method for every public
name, and no attributes. On the actor's node, a call may name any method of its class that is
neither private nor one of Pykka's hooks. An Erlang process does not understand such a message.
"""

from __future__ import annotations

from typing import Any

import pykka
from pykka.messages import ProxyCall

from locks.errors import MisuseError
from locks.otp.bytes.terms import Atom
from locks.runtime.addressed import TurnActor

__all__ = ["RemoteActor", "RemoteProxy", "call_of", "is_call", "term_of"]

CALLED = Atom("$proxy_call")


class RemoteActor(TurnActor):
    """Stands for a process of another node where Pykka needs an actor class."""

    _begun_by = "a process on another node starts there"


class RemoteProxy(pykka.ActorProxy[Any]):
    """A proxy of an actor of another node."""

    def __getattr__(self, name: str) -> Any:
        """A method of that name, whether or not the actor has one."""
        if name.startswith("_"):
            raise AttributeError(f"{self} has no attribute {name!r}")
        return pykka.CallableProxy(actor_ref=self.actor_ref, attr_path=(name,))

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse: attributes of actors of other nodes are not accessible."""
        if name != "actor_ref" and not name.startswith("_"):
            raise MisuseError(
                f"{name} is an attribute of {self.actor_ref}, on another node; call a method"
            )
        super().__setattr__(name, value)


def term_of(call: ProxyCall) -> tuple[Any, ...]:
    """The message that calls a method on another node."""
    return (CALLED, ".".join(call.attr_path), list(call.args), dict(call.kwargs))


def is_call(message: Any) -> bool:
    """Whether a message calls a method."""
    return type(message) is tuple and len(message) == 4 and message[0] == CALLED


def call_of(actor: pykka.ActorRef[Any], message: Any) -> Any:
    """The call that a message from another node's proxy makes; other messages unchanged. Not in a turn.

    Raises:
        MisuseError: The actor has no such method, or it must not be called.
    """
    if not is_call(message):
        return message
    _, name, args, kwargs = message
    good = type(name) is str and type(args) is list and type(kwargs) is dict
    if not (good and all(type(each) is str for each in kwargs)):
        raise MisuseError("a call by a proxy must have a method's name, a list and a dictionary")
    found = actor._actor_weakref()
    is_hook = name != "stop" and hasattr(pykka.Actor, name)
    if name.startswith("_") or is_hook or not callable(getattr(type(found), name, None)):
        raise MisuseError(
            f"{actor} has no method {name!r:.100} that can be called from another node"
        )
    return ProxyCall((name,), tuple(args), kwargs)
