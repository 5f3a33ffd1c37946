"""The Erlang distribution protocol: how nodes talk to each other, and with Erlang/OTP.

Bytes in and out, without sockets, clock or randomness:

* `terms.py`: atoms, pids, references and other terms that Python has no type for.
* `etf.py`, `etf_decode.py`: the external term format.
* `handshake.py`: how two nodes get to know each other and prove that they share a cookie.
* `secret.py`, `certificates.py`: the cookie, hidden; for which hosts a certificate is.
* `control.py`: the messages between connected nodes.
* `epmd.py`: the messages to and from Erlang's port mapper.
"""

from __future__ import annotations

from locks.otp.etf import DecodeError, EncodeError, Limits, decode, encode
from locks.otp.terms import Atom, ImproperList, Pid, Reference, Term

__all__ = [
    "Atom",
    "DecodeError",
    "EncodeError",
    "ImproperList",
    "Limits",
    "Pid",
    "Reference",
    "Term",
    "decode",
    "encode",
]
