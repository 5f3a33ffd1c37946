"""Whether a lock id can be sent to other nodes."""

from __future__ import annotations

from locks.errors import InvalidLockId
from locks.lock_ids import LockId, shown

__all__ = ["check_sendable"]


def check_sendable(lock_id: LockId) -> LockId:
    """Return a lock id if it can be sent to other nodes: a deadlock may involve them.

    Raises:
        InvalidLockId: It can't.
    """
    for element in lock_id:
        if type(element) is str:
            if element.isascii():
                continue
        elif type(element) is int and abs(element) < 1 << 63:
            continue
        _encode(lock_id)
        break
    return lock_id


def _encode(lock_id: LockId) -> None:
    from locks.otp.bytes.etf import EncodeError, encode  # is there: other nodes may be

    try:
        encode(list(lock_id))
    except EncodeError as error:
        raise InvalidLockId(
            f"can't send lock id {shown(lock_id)} to other nodes: {error}. Use text, "
            "numbers, bytes and tuples of these",
            lock_id=shown(lock_id),
        ) from error
