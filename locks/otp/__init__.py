"""The Erlang distribution protocol, by which nodes communicate with each other and with Erlang/OTP.

Its rooms:

* `bytes`: Erlang's terms and the messages between nodes, as Python values and as bytes.
* `admission`: which nodes may connect: the handshake, cookies, certificates, and strangers at the
  door.
* `process`: processes that other nodes can reach: references, calls, monitors, and links.

`distribution.py` puts them together, `options.py` has the options of a node, `keys.py` what it proves
itself with, `notices.py` its warnings about others.
"""
