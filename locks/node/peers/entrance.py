"""The entrance for messages of nodes that may not do everything: which right each message needs, and what happens without it.

The cookie of a node decides what it may do (`locks.otp.admission.rights`). Such a node is always a client. All its messages pass
here before they have any effect; those of other nodes need no look. A refused call is answered, so nobody waits in vain. A refused
message to the lock server, or about links and exits, ends the connection: its sender is an older version, or ill-willed, because
nodes know their right from the greeting, and don't send such messages. For messages to other processes there seems to be nobody.

A lock server passes a question on in its own name. That is why it is looked at here, and not where it is answered.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from locks.core.facts import (
    AskClients,
    AskDeadlocks,
    AskMark,
    AskMarks,
    AskMembers,
    AskNode,
    AskRequests,
    Break,
    Broken,
    Question,
    Untold,
)
from locks.core.messages import (
    Inquire,
    RaiseVersion,
    Release,
    Remove,
    Request,
    ServerMessage,
    StandingElsewhere,
    Surrender,
    Unwatch,
    Watch,
)
from locks.errors import NotAllowed, assert_never
from locks.node.peers.agreement import PLACEMENT, SERVERS
from locks.node.peers.greeting import GREETING
from locks.node.peers.local_node import Connections
from locks.otp.admission.rights import Right
from locks.otp.admission.strangers import plain
from locks.otp.bytes import control
from locks.otp.bytes.control import StrangeMessage, check_speaker
from locks.otp.bytes.terms import Atom
from locks.otp.links.link import Link
from locks.otp.process.processes import parse_call, parse_cast
from locks.runtime.logs import Sparing, log_event
from locks.wire import pages
from locks.wire.facts import is_question, pack_answer, unpack_question
from locks.wire.forms import LOCK_SERVER, is_ours
from locks.wire.messages import NOT_UNDERSTOOD, unpack_to_server
from locks.wire.values import ABOUT, VIEW

__all__ = ["Entrance", "right_of", "right_to_ask"]

MOST = 100  # lines about refused messages in a minute
CALLS = dict.fromkeys((GREETING, VIEW, ABOUT, SERVERS, PLACEMENT), Right.LOOK)
TO_PROCESSES = (control.RegSend, control.Send, control.SendSender)


def right_of(message: ServerMessage) -> Right:
    """The right that a message to a lock server needs."""
    match message:
        case Watch() | Unwatch():
            return Right.LOOK
        case Request() | Release() | Surrender() | Remove():
            return Right.USE  # each node speaks for its own agents only
        case StandingElsewhere() | Inquire() | RaiseVersion():
            return Right.USE
        case _:
            assert_never(message)


def right_to_ask(question: Question) -> Right:
    """The right that a question needs."""
    match question:
        case AskRequests() | AskDeadlocks() | AskNode() | AskClients() | AskMembers() | AskMarks():
            return Right.LOOK
            return Right.LOOK
        case AskMark():
            return Right.USE  # it may set a mark
        case Break():
            return Right.BREAK
        case _:
            assert_never(question)


class Entrance:
    """Refuses what other nodes may not do. In the turn.

    Args:
        cluster: The node's relations with others.
    """

    def __init__(self, cluster: Connections) -> None:
        self._cluster = cluster
        self._sparing = Sparing(MOST)

    def admits(self, link: Link, message: control.Message) -> bool:
        """Whether a node may send this; else it is refused.

        Raises:
            BadMessage: It is wrong.
        """
        right, what = self._needed(link.peer.name, message)
        if right <= link.peer.right:
            return True
        self._refuse(link, message, right, what)
        return False

    def _needed(self, name: str, message: control.Message) -> tuple[Right, str]:
        """The right that a message needs, and what it is."""
        what = type(message).__name__
        match message:
            case control.RegSend():
                return self._of_process(name, message.name.name, message.message)
            case control.Send() | control.SendSender():
                if message.to == self._cluster.processes.me:
                    return Right.LOOK, what  # the answer to a call
                return Right.USE, "a message to a process"
            case control.Link() | control.Exit() | control.Exit2() | control.SpawnRequest():
                return Right.USE, what
            case control.MonitorP() | control.DemonitorP() | control.MonitorPExit():
                return Right.LOOK, what
            case control.UnlinkId() | control.UnlinkIdAck():
                return Right.LOOK, what
            case control.SpawnReply() | control.Unsupported():
                return Right.LOOK, what
            case _:
                assert_never(message)

    def _of_process(self, name: str, process: str, message: Any) -> tuple[Right, str]:
        """The same for a message to a registered process."""
        if process == "net_kernel":
            return Right.LOOK, "a ping"
        if process != LOCK_SERVER:
            return Right.USE, f"a message to {process}"
        call, term = parse_call(message), parse_cast(message)
        if call is not None:
            request = call[2]
            if is_question(request):
                question = unpack_question(request)
                return right_to_ask(question), type(question).__name__
            tag = request[1] if is_ours(request) else None
            return CALLS.get(tag, Right.USE) if type(tag) is Atom else Right.USE, "a call"
        if not is_ours(term):
            return Right.USE, "a message"  # of the Erlang original
        if term[1] is NOT_UNDERSTOOD or term[1] is pages.TAKEN:
            return Right.LOOK, "a message"
        try:
            told = unpack_to_server(term, name)
        except StrangeMessage:  # it is not carried out
            return Right.LOOK, "a message"
        return right_of(told), type(told).__name__

    def _refuse(self, link: Link, message: control.Message, right: Right, what: str) -> None:
        cluster, name = self._cluster, link.peer.name
        node, may = cluster.node.name, link.peer.right.word
        why = f"the cookie of {name} may only {may} at {node}, and {what} needs the right to {right.word}"
        if self._sparing.admit(time.monotonic()):
            left = self._sparing.take_left_out()
            text = (
                f"{node}: refused {what} of {name} ({cluster.distribution.address_of(name)}): {why}"
            )
            text += f" ({left} similar lines before it are not shown)" * bool(left)
            about = {"peer": name, "address": cluster.distribution.address_of(name) or ""}
            about |= {"what": what, "right": may}
            cluster.executor.run_soon(partial(log_event, "refused", "%s", text, node=node, **about))
        payload = message.message if isinstance(message, TO_PROCESSES) else None
        call = parse_call(payload)
        if call is not None:
            caller, tag, request = call
            check_speaker(caller, name)
            cluster.remotes.answer_term(caller, tag, self._answer(message, request, why))
        elif not isinstance(message, TO_PROCESSES) or (
            isinstance(message, control.RegSend) and message.name.name == LOCK_SERVER
        ):
            link.lose(plain(why))

    def _answer(self, message: control.Message, request: Any, why: str) -> Any:
        """The answer to a call that is refused, in a form that every version reads."""
        if not (isinstance(message, control.RegSend) and message.name.name == LOCK_SERVER):
            return NotAllowed(why, nodes=(self._cluster.node.name,))
        if not is_question(request):
            return (Atom("error"), Atom("unknown_request"))
        is_break = isinstance(unpack_question(request), Break)
        return pack_answer(Broken(False, why) if is_break else Untold(why))
