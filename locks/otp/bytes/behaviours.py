"""The wrapping of messages by OTP's behaviours: calls and casts, as of `gen_server`."""

from __future__ import annotations

from typing import Any, Final

from locks.otp.bytes.etf_decode import constant
from locks.otp.bytes.terms import Pid

__all__ = ["CALL", "CAST", "parse_call", "parse_cast"]

CALL: Final = constant("$gen_call")
CAST: Final = constant("$gen_cast")


def parse_call(message: Any) -> tuple[Pid, Any, Any] | None:
    """Split a call into caller, tag and request; `None` if it is not a call."""
    if isinstance(message, tuple) and len(message) == 3 and message[0] is CALL:
        caller = message[1]
        if isinstance(caller, tuple) and len(caller) == 2 and isinstance(caller[0], Pid):
            return caller[0], caller[1], message[2]
    return None


def parse_cast(message: Any) -> Any:
    """The content of a cast, as of `gen_server:cast`; or the message itself."""
    if isinstance(message, tuple) and len(message) == 2 and message[0] is CAST:
        return message[1]
    return message
