"""Process groups that span nodes, after OTP's `pg`.

Actors of any node join a group by its name, and every node knows the members. A group exists while it
has members. A member leaves when it ends, and when its node is lost. The view of other nodes may
be slightly outdated.

    from locks import groups

    groups.join("printers", actor_ref)
    for printer in groups.members("printers"):
        printer.tell("a page")

The name of a group is a plain value, like an element of a lock id: text, a number, or a tuple of such.
Groups of different *scopes* have nothing to do with each other. The default scope is that of the
original's `locks_pg`. Nodes see each other's groups of a scope once both have used it.

* `table.py`: which actors are members of which groups; pure.
* `names.py`: the names of groups.
* `scope.py`: one scope of one node.
* `api.py`: what programs call.

Source: module `pg` of OTP's application `kernel`, and `locks_pg` of the original.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locks.runtime.first_use import at_first_use

if TYPE_CHECKING:
    from locks.groups.api import SCOPE, join, leave, local_members, members, monitor, which_groups
    from locks.groups.scope import GroupMonitor, Joined, Left

__all__ = [
    "SCOPE",
    "GroupMonitor",
    "Joined",
    "Left",
    "join",
    "leave",
    "local_members",
    "members",
    "monitor",
    "which_groups",
]

_get, __dir__ = at_first_use(
    "locks.groups",
    __all__,
    together=("locks.groups.scope", "locks.groups.api"),
)

if not TYPE_CHECKING:
    __getattr__ = _get
