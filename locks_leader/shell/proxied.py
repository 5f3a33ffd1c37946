"""A Pykka proxy of an instance shows the user's object, with its methods and attributes.

It does not show the instance's own machinery, and callbacks can't be called: only the election
calls them.
"""

from __future__ import annotations

import weakref
from functools import reduce
from typing import Any

import pykka
from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr

from locks import MisuseError
from locks_leader.behaviour import Behaviour

__all__ = ["OF_PROXY", "carry_out", "show"]

OF_PROXY = (ProxyCall, ProxyGetAttr, ProxySetAttr)


def show(ref: pykka.ActorRef[Any], behaviour: Behaviour) -> Behaviour:
    """Make proxies show the user's object; return that object."""
    ref._actor_weakref = weakref.ref(behaviour)
    return behaviour


def carry_out(behaviour: Behaviour, message: ProxyCall | ProxyGetAttr | ProxySetAttr) -> Any:
    """Carry out a proxy's access to the user's object; in the instance's actor.

    Raises:
        MisuseError: It calls a callback.
    """
    *path, name = message.attr_path
    if not path and hasattr(Behaviour, name):
        raise MisuseError(
            f"can't call {name}, which only the election calls; call a method of your own, or use "
            "locks_leader.call, leader_call and so on"
        )
    owner: Any = reduce(getattr, path, behaviour)
    if isinstance(message, ProxySetAttr):
        return setattr(owner, name, message.value)
    found = getattr(owner, name)
    return found if isinstance(message, ProxyGetAttr) else found(*message.args, **message.kwargs)
