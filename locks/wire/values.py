"""Terms beside the messages: views for watchers on other nodes."""

from __future__ import annotations

from typing import Any

from locks.model import View
from locks.otp.bytes.etf_decode import constant
from locks.otp.bytes.fields import BadMessage, brief
from locks.wire.forms import FORMS, OURS

__all__ = ["VIEW", "pack_view", "unpack_view"]

VIEW = constant("view")
_VIEW = FORMS.message(View, OURS, VIEW)


def pack_view(view: View) -> Any:
    """The term of a view, for a watcher of another node."""
    return _VIEW.pack(view)


def unpack_view(term: Any) -> View:
    """The view that a term stands for."""
    view: View = _VIEW.unpack(term)
    if term[:2] != (OURS, VIEW):
        raise BadMessage(f"{brief(term)} should be a view")
    return view
