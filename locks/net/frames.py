"""Frames: four bytes of length, and the body. Bytes in, bodies out.

An empty body is a heartbeat: it only shows that its sender lives.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

__all__ = ["HEARTBEAT", "Frames", "frame"]

_LENGTH: Final = Struct(">I")
HEARTBEAT: Final = _LENGTH.pack(0)


def frame(body: bytes) -> bytes:
    """The frame that has this body."""
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Divides the bytes that one side sends into frames.

    Args:
        limit: The longest allowed body, in bytes.

    Attributes:
        missing: How many bytes the present frame lacks, as far as known.
        too_long: The error text after a longer frame: nothing behind its beginning is taken in.
    """

    __slots__ = ("_begun", "_limit", "missing", "too_long")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun = bytearray()  # the beginning of a frame
        self.missing = _LENGTH.size
        self.too_long: str | None = None

    def add(self, data: bytes) -> list[bytes]:
        """Add received bytes; return the bodies that are complete now, without heartbeats."""
        found: list[bytes] = []
        if self.too_long is not None:
            return found
        begun = self._begun
        if begun:
            begun += data
            if len(data) < self.missing:
                self.missing -= len(data)
                return found
            data = bytes(begun)
            begun.clear()
        at, left = 0, len(data)
        missing = _LENGTH.size
        while left >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, at)
            if length > self._limit:
                self.too_long = f"it sent a frame of {length} bytes; the limit is {self._limit}"
                return found
            missing += length
            if missing > left:
                break
            if length:
                found.append(data[at + _LENGTH.size : at + missing])
            at += missing
            left -= missing
            missing = _LENGTH.size
        if left:
            begun += data[at:]
        self.missing = missing - left
        return found
