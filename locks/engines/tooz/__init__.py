"""A driver for tooz, OpenStack's library for coordination: `tooz.coordination.get_coordinator("locks://...", member_id)`.

* `groups.py`: the locks that make up a group; pure.
* `lock.py`: a lock.
* `driver.py`: the coordinator.
"""

from locks.engines.tooz.driver import LocalDriver, LocksDriver
from locks.engines.tooz.lock import Lock

__all__ = ["LocalDriver", "Lock", "LocksDriver"]
