"""What a Pykka proxy of an instance shows: the user's object, with its methods and attributes.

The instance's own machinery is none of it, and the callbacks can't be called: that is for the election to do.
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
    """Have proxies look at the user's object for what there is; returns that object."""
    ref._actor_weakref = weakref.ref(behaviour)
    return behaviour


def carry_out(behaviour: Behaviour, message: ProxyCall | ProxyGetAttr | ProxySetAttr) -> Any:
    """Do what a proxy wants of the user's object; in the instance's actor.

    Raises:
        MisuseError: It wants a callback.
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
