"""What one link has received and was not taken in yet: bytes in, frames out.

In a crowd hundreds of requests of a link may wait here, and behind them the release that others wait for. So
some frames are *urgent*: they overtake others. The order that somebody relies on stays: a frame is never taken in before an
earlier one of the same sender, nor before or after one whose sender is not known.

Who sends a frame, and whether it is urgent, is said by whoever makes the links (`KindOf`). It is asked only for frames
that have to wait.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["LARGE", "NOBODY", "Backlog", "Kind", "KindOf"]

LARGE: Final = 4096  # bytes of a frame that is taken in in several parts, and never urgent
AHEAD: Final = 2**20  # bytes that are read while others wait to be taken in
EACH: Final = 128  # bytes that a frame takes up besides its own
AT_ONCE: Final = 32  # frames that are looked at in one step, whether they are urgent
_LENGTH: Final = struct.Struct(">I")
Kind = tuple[bytes, bool]
"""Who has sent a frame, and whether it is urgent."""
KindOf = Callable[[bytes], Kind | None]
"""Returns the kind of a frame; `None` if it has to keep its order with all others."""
NOBODY: Final = b""  # of a frame that any urgent one may overtake


class Backlog:
    """The frames of one link.

    Args:
        limit: The largest frame that is taken in, in bytes.
        kind_of: Tells their kinds.

    Attributes:
        too_long: Which frame was longer, in words: all before it can be taken in, and nothing behind it.
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
        # What is in `_rest`: how many frames of each sender, and how many that nothing overtakes.
        self._senders: dict[bytes, int] = {}
        self._fixed = 0
        self._size = 0  # of the frames in both
        self._data = b""  # what is behind them and was not divided into frames, from `_at`
        self._at = 0
        self._partial = bytearray()  # the beginning of a frame, behind that
        self.too_long: str | None = None

    @property
    def waits(self) -> bool:
        """Whether there may be a frame."""
        return self._size > 0 or self._at < len(self._data)

    @property
    def room(self) -> bool:
        """Whether more may be added while frames wait: all was looked at, and it is not too much."""
        return self._at == len(self._data) and self._size + len(self._partial) < AHEAD

    def add(self, data: bytes) -> bool:
        """Something has come, when there was room, or nothing waited.

        Returns:
            Whether that was the end of a large frame, which was put together.
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

    def look(self) -> bool:
        """Look which of the next frames are urgent; return whether there are more."""
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
        """Put together a frame that came in parts; return what follows it."""
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
