"""A driver for tooz, OpenStack's library for coordination: `tooz.coordination.get_coordinator("locks://...", member_id)`.

* `groups.py`: which locks a group is made of, and what they say; pure.
* `lock.py`: a lock.
* `driver.py`: the coordinator.
"""

from locks.engines.tooz.driver import LocalDriver, LocksDriver
from locks.engines.tooz.lock import Lock

__all__ = ["LocalDriver", "Lock", "LocksDriver"]
