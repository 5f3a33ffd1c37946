"""Decodes the frames of links: small frames at once, large ones in several parts.

A frame may take 20 ms and more to decode. Other links must not wait that long. So a large frame is
decoded in small parts, and other links are served in between (`locks.otp.links.budgets.Pace`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from locks.net.relay import AnyLink
from locks.otp.bytes.control import Message, parse_slowly
from locks.otp.bytes.etf_decode import DecodeError
from locks.otp.bytes.frames import Reader
from locks.otp.links.backlog import LARGE
from locks.otp.links.link import GoOn

__all__ = ["Reading"]


class Reading:
    """Reads the frames of one node's links. In the turn.

    Args:
        node: The node.
        take: Called with a link and each message.
        refuse: Called with a link, a cause and a reason if a frame can't be read.
    """

    def __init__(
        self,
        node: str,
        take: Callable[[AnyLink, Message], object],
        refuse: Callable[[AnyLink, str, str], object],
    ) -> None:
        self._node = node
        self._take = take
        self._refuse = refuse
        self._readers: dict[str, Reader] = {}

    def receive(self, link: AnyLink, frame: bytes) -> GoOn | None:
        """Take in a frame of a link; if it can't be decoded, the link is lost.

        Returns:
            How to continue with a large frame; `None` if it is taken in.
        """
        if len(frame) > LARGE:
            return partial(self._go_on, link, parse_slowly(frame))
        reader = self._readers.get(link.peer.name)
        if reader is None:
            reader = self._readers[link.peer.name] = Reader(self._node)
        try:
            message = reader.parse(frame)
        except DecodeError as error:
            self._unreadable(link, error)
        else:
            self._take(link, message)
        return None

    def _go_on(self, link: AnyLink, parsing: Iterator[None]) -> GoOn | None:
        """Decode another part of a large frame; take it in at its end."""
        try:
            next(parsing)
        except StopIteration as end:
            self._take(link, end.value)
        except DecodeError as error:
            self._unreadable(link, error)
        else:
            return partial(self._go_on, link, parsing)
        return None

    def _unreadable(self, link: AnyLink, error: DecodeError) -> None:
        self._refuse(link, "unreadable", f"it sent unreadable data: {error}")

    def lost(self, node: str) -> None:
        """Forget the link to a node."""
        self._readers.pop(node, None)
