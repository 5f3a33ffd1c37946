"""The received frames of one link that were not taken in yet: bytes in, frames out.

In a crowd, hundreds of requests of one link may wait here, and behind them the release that other
clients wait for. So some frames are *urgent*, and overtake others. The order that receivers rely on
stays: a frame never overtakes an earlier one of the same sender, and no frame overtakes one of an
unknown sender, or the other way round.

The owner of the links provides a function that returns the sender of a frame and whether it is
urgent (`KindOf`). It is called only for frames that have to wait.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["LARGE", "NOBODY", "Backlog", "Kind", "KindOf"]

LARGE: Final = 4096  # bytes; a larger frame is taken in in several parts, and never urgent
AHEAD: Final = 2**20  # bytes that are read ahead while other frames wait
EACH: Final = 128  # bytes of overhead of a frame
AT_ONCE: Final = 32  # frames that are checked for urgency in one step
_LENGTH: Final = struct.Struct(">I")
Kind = tuple[bytes, bool]
"""The sender of a frame, and whether it is urgent."""
KindOf = Callable[[bytes], Kind | None]
"""Returns the kind of a frame; `None` if it must keep its order with all others."""
NOBODY: Final = b""  # the sender of a frame that any urgent one may overtake


class Backlog:
    """The frames of one link.

    Args:
        limit: The size of the largest allowed frame, in bytes.
        kind_of: Returns their kinds.

    Attributes:
        too_long: The error text if a frame was longer: frames before it can be taken in, and none
            behind it.
    """

    __slots__ = (
        *("_at", "_data", "_fixed", "_kind_of", "_limit", "_partial", "_rest", "_senders"),
        *("_size", "_urgent", "too_long"),
    )

    def __init__(self, limit: int, kind_of: KindOf) -> None:
        self._limit = limit
        self._kind_of = kind_of
        self._urgent: deque[bytes] = deque()
        self._rest: deque[tuple[bytes, bytes | None]] = deque()  # with their senders
        # Of the frames in `_rest`: how many there are of each sender, and how many no frame
        # overtakes.
        self._senders: dict[bytes, int] = {}
        self._fixed = 0
        self._size = 0  # of the frames in both
        self._data = b""  # the data behind them, from `_at`, not divided into frames yet
        self._at = 0
        self._partial = bytearray()  # the beginning of a frame, behind that
        self.too_long: str | None = None

    @property
    def waits(self) -> bool:
        """Whether there may be a frame."""
        return self._size > 0 or self._at < len(self._data)

    @property
    def room(self) -> bool:
        """Whether more may be added while frames wait: all data was looked at, and it is not too much."""
        return self._at == len(self._data) and self._size + len(self._partial) < AHEAD

    def add(self, data: bytes) -> bool:
        """Add received data; only if there is room, or nothing waits.

        Returns:
            Whether the data completed a large frame, which was put together.
        """
        gathered = len(self._partial)
        if gathered:
            data = self._complete(data)
        self._data, self._at = data, 0
        return gathered > LARGE and not self._partial

    def next(self) -> bytes | None:
        """Take out the next frame, perhaps an empty one; `None` if there is none."""
        if self._size:
            if self._urgent:
                frame = self._urgent.popleft()
            else:
                frame, sender = self._rest.popleft()
                self._count(sender, -1)
            self._size -= len(frame) + EACH
            return frame
        return self._next_of_data()

    def look_ahead(self) -> bool:
        """Check which of the next frames are urgent; return whether there are more."""
        for _ in range(AT_ONCE):
            frame = self._next_of_data()
            if frame is None:
                return False
            self._keep(frame)
        return self._at < len(self._data)

    def _next_of_data(self) -> bytes | None:
        data, at = self._data, self._at
        left = len(data) - at - 4
        if left >= 0:
            (length,) = _LENGTH.unpack_from(data, at)
            if length <= left and length <= self._limit:
                self._at = at + 4 + length
                return data[at + 4 : at + 4 + length]
            self._check(length)
        if left > -4:
            if self.too_long is None:
                self._partial += data[at:]
            self._data, self._at = b"", 0
        return None

    def _check(self, length: int) -> None:
        if length > self._limit:
            self.too_long = f"it sent a frame of {length} bytes; the limit is {self._limit}"
            self._partial.clear()

    def _complete(self, data: bytes) -> bytes:
        """Put together a frame that came in parts; return the data behind it."""
        whole = self._partial
        whole += data
        if len(whole) < 4:
            return b""
        (length,) = _LENGTH.unpack_from(whole)
        self._check(length)
        if self.too_long is not None or len(whole) < 4 + length:
            return b""
        with memoryview(whole) as view, view[4 : 4 + length] as frame, view[4 + length :] as rest:
            self._keep(bytes(frame))
            data = bytes(rest)
        whole.clear()
        return data

    def _keep(self, frame: bytes) -> None:
        if not frame:
            return
        self._size += len(frame) + EACH
        kind = self._kind_of(frame)
        sender = None if kind is None else kind[0]
        overtakes = kind is not None and kind[1] and len(frame) <= LARGE
        if overtakes and not self._fixed and sender not in self._senders:
            self._urgent.append(frame)
        else:
            self._rest.append((frame, sender))
            self._count(sender, 1)

    def _count(self, sender: bytes | None, more: int) -> None:
        if sender is None:
            self._fixed += more
        elif sender:
            there = self._senders.get(sender, 0) + more
            if there:
                self._senders[sender] = there
            else:
                del self._senders[sender]
