"""A driver for tooz, OpenStack's library for coordination: `tooz.coordination.get_coordinator("locks://...", member_id)`.

* `groups.py`: the locks that make up a group; pure.
* `lock.py`: a lock.
* `driver.py`: the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locks.runtime.first_use import at_first_use

if TYPE_CHECKING:
    from locks.engines.tooz.driver import LocalDriver, LocksDriver
    from locks.engines.tooz.lock import Lock

__all__ = ["LocalDriver", "Lock", "LocksDriver"]

_get, __dir__ = at_first_use(
    "locks.engines.tooz",
    __all__,
    together=(
        "locks.engines.tooz.driver",
        "locks.engines.tooz.lock",
    ),
)

if not TYPE_CHECKING:
    __getattr__ = _get
