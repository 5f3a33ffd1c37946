"""The options that locks and transactions share: each is described, named and checked here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from locks.errors import LockLost
from locks.model import Require, check_timeout
from locks.node.client.clients import checked_label
from locks.node.client.owner import Owner, checked_owner
from locks.node.client.scope import Nodes, checked_where
from locks.runtime.callables import check_callable

__all__ = [
    "ClientOptions",
    "LockOptions",
    "OnLost",
    "TransactionOptions",
    "check_names",
    "check_options",
]

OnLost = Callable[[LockLost], object]


class ClientOptions(TypedDict, total=False):
    """Who waits, and how long.

    Attributes:
        timeout: Default time limit of each wait, in seconds; `None` waits for ever. A `with` statement that times out
            raises `LockTimeout`.
        owner: The owner of the lock; by default the owner that the caller acts for, or else the caller.
        label: The client's name as shown to others, such as "nightly import"; by default the name of its thread,
            greenlet or actor. Of all `Lock`s that a client holds, the label of the first one counts.
    """

    timeout: float | None
    owner: Owner | None
    label: str | None


class LockOptions(ClientOptions, total=False):
    """Also where to lock.

    Attributes:
        nodes: Names of the nodes on which to lock, or `locks.HERE`; by default the `servers` of `locks.start`, or this
            program's own node.
        require: How many of them must grant a lock: `"all"`, `"any"`, `"majority"`, `"all_alive"`,
            `"majority_alive"`. By default a majority of several servers, or all of `nodes`.
    """

    nodes: Nodes | None
    require: Require | None


class TransactionOptions(LockOptions, total=False):
    """Also what a transaction does when nodes go down. Each lock of the transaction may have its own `nodes`, `require` and `timeout`.

    Attributes:
        await_nodes: What happens if too few nodes are up for a lock that is requested or held: `False`, the default,
            ends the transaction (`CannotServe`, `LockLost`); `True` waits until they are back, and then locks again.
        on_lost: Called with a `LockLost` when locks that you know the transaction holds are lost with a node. It runs
            in another thread, and may block; in coroutines, it runs in the event loop.
    """

    await_nodes: bool
    on_lost: OnLost | None


def check_names(caller: str, options: Mapping[str, Any], kind: Any, *others: str) -> None:
    """Refuse options that do not exist, as Python does.

    Args:
        caller: The function that was called.
        options: The options that it was given.
        kind: The typed dictionary of those that it has.
        others: Further options that it has.

    Raises:
        TypeError: There is no option of this name.
    """
    if options and not options.keys() <= kind.__optional_keys__:
        unknown = next(name for name in options if name not in kind.__optional_keys__)
        raise TypeError(
            f"{caller}() got an unexpected keyword argument {unknown!r}; "
            f"it has {', '.join([*others, *kind.__annotations__])}"
        )


def check_options(options: Any) -> None:
    """Check the values of options, in a dictionary of one of these types; a label becomes plain text.

    Raises:
        InvalidOption: One of them is wrong.
    """
    for name, value in options.items():
        if name == "timeout":
            check_timeout(value)
        elif value is None or name == "await_nodes":
            continue
        elif name == "owner":
            checked_owner(value)
        elif name == "label":
            options[name] = checked_label(value)
        elif name == "on_lost":
            check_callable(value, "on_lost")
        elif name == "nodes":
            checked_where(value, None)
        else:
            checked_where(None, value)
