"""The processes that can be reached from other nodes, and monitors and links between nodes.

Processes of other nodes reach ours by pid or registered name. Ours reach theirs by a `RemoteRef`
(`locks.otp.process.remote`). All their interactions are messages of the distribution protocol:
send, monitor, link, exit. When a connection is lost, all monitors and links over it get the reason
`noconnection`. A call is like Erlang's `gen_server:call`: a request with a reference, a monitor
until the answer arrives, and an answer with the same reference.

Everything happens in the node's turn. Foreign code (an actor's inbox, callbacks) is passed to the
node's executor.

Source: "Distribution Protocol", "Protocol Between Connected Nodes", in the ERTS user's guide.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from locks.errors import assert_never
from locks.net.budgets import MOST_LINKS, MOST_MONITORS, OverBudget, check_budget
from locks.net.relay import AnyLink
from locks.otp.bytes import control, etf
from locks.otp.bytes.behaviours import CALL, CAST, parse_call, parse_cast
from locks.otp.bytes.control import BadMessage, brief, check_ends, check_speaker
from locks.otp.bytes.etf_decode import DecodeError
from locks.otp.bytes.frames import Reader, pack_reg_send, pack_send
from locks.otp.bytes.terms import Atom, Pid, Reference
from locks.otp.process.local import Local
from locks.otp.process.reasons import reason_term, reason_value
from locks.ranges import plain
from locks.runtime.exits import exit_client
from locks.runtime.identity import ByClient
from locks.runtime.monitor import Client, Down, Monitor, watch_end
from locks.runtime.waiter import Waiter

if TYPE_CHECKING:
    from locks.otp.distribution import Distribution
    from locks.runtime.executor import Executor
    from locks.runtime.inline import Turn

__all__ = [
    "CALL",
    "CAST",
    "NOCONNECTION",
    "Local",
    "Processes",
    "Target",
    "parse_call",
    "parse_cast",
]

NOCONNECTION: Final = "noconnection"
NOPROC: Final = "noproc"
NOBODY: Final = Atom("$locks_nobody")
Target = Pid | str
OnDown = Callable[[Any], object]


class Processes:
    """The processes that one node shows to others, and its monitors, links and calls with theirs.

    Args:
        distribution: The node's connections.
        turn: The node's turn.
        executor: Runs foreign code.
        new_number: Makes the number of a pid.
        find: Finds processes that were not added here, by their number.
        number_of: Returns the number of such a process; `None` for any other client.

    Attributes:
        me: The pid of the node itself: the sender of calls and monitors.
        speaker: The node whose message is being taken in.
    """

    def __init__(
        self,
        distribution: Distribution,
        turn: Turn,
        executor: Executor,
        *,
        new_number: Callable[[], int],
        find: Callable[[int], Local | None],
        number_of: Callable[[Client], int | None],
    ) -> None:
        self._distribution = distribution
        self._turn = turn
        self._executor = executor
        self._new_number = new_number
        self._find_elsewhere = find
        self._number_elsewhere = number_of
        self._serial = itertools.count(1)
        self._names: dict[str, Local] = {}
        self._locals: dict[int, Local] = {}
        self._numbers: ByClient[int] = ByClient()
        # Our monitors on other nodes: the node, the target (`None`: only the connection), and the
        # callback.
        self._monitors: dict[Reference, tuple[str, Target | None, OnDown]] = {}
        # Monitors of other nodes here, by node.
        self._monitored: dict[str, dict[Reference, Monitor | None]] = {}
        # Calls that wait for an answer: their monitor, and the callback.
        self._calls: dict[Reference, tuple[Reference, Callable[[bool, Any], object]]] = {}
        self._readers: dict[str, Reader] = {}  # of the frames of links, by the other node
        self._heads: dict[str, bytes] = {}  # of frames to registered names, sent by the node itself
        # Links, by the other node; our process is first.
        self._links: dict[str, dict[tuple[Pid, Pid], Monitor | None]] = {}
        self.speaker = ""
        self.me = Pid(new_number(), distribution.name, distribution.creation)
        self.add(self.me.number, Local(self._take_answer))

    # --- The processes --------------------------------------------------------------------------

    def register(self, name: str, local: Local) -> None:
        """Register a process under a name."""
        self._names[name] = local

    def unregister(self, name: str) -> None:
        """Free a name."""
        self._names.pop(name, None)

    def registered(self, name: str) -> Local | None:
        """The process that has a name, or `None`."""
        return self._names.get(name)

    def add(self, number: int, local: Local) -> Pid:
        """Give a process a pid."""
        self._locals[number] = local
        return Pid(number, self._distribution.name, self._distribution.creation)

    def remove(self, number: int) -> None:
        """Forget a pid."""
        self._locals.pop(number, None)

    def pid_of(self, subject: Client, deliver: Callable[[Any, Pid | None], object]) -> Pid:
        """The pid of an actor, a greenlet or a thread; assigned on first use."""
        number = self._number_elsewhere(subject)
        if number is None:
            number = self._numbers.get(subject)
        if number is None:
            number = self._new_number()
            self._numbers[subject] = number
            self.add(number, Local(deliver, subject))
            watch_end(subject, lambda _: self._turn.post(self._forget, subject))
        return Pid(number, self._distribution.name, self._distribution.creation)

    def _forget(self, subject: Client) -> None:
        number = self._numbers.pop(subject)
        if number is not None:
            self.remove(number)

    def subject_of(self, pid: Pid) -> Client | None:
        """The actor, greenlet or thread of this node that has a pid, or `None`."""
        local = self._find(pid)
        return None if local is None else local.subject

    def _find(self, target: Pid | Atom) -> Local | None:
        if isinstance(target, Atom):
            return self._names.get(target.name)
        if target.creation != self._distribution.creation:
            return None  # of an earlier incarnation of this node
        return self._locals.get(target.number) or self._find_elsewhere(target.number)

    # --- From this node to others, in the turn --------------------------------------------------

    def send(self, to: Pid, encoded: bytes) -> bool:
        """Send an encoded message to a pid; return whether there is a connection."""
        link = self._distribution.link_to(to.node)
        if link is None:
            return False
        link.send(pack_send(to, encoded))
        return True

    def send_named(self, node: str, name: str, encoded: bytes, sender: Pid | None = None) -> bool:
        """Send an encoded message to a registered name on a node."""
        link = self._distribution.link_to(node)
        if link is None:
            return False
        if sender is None:
            head = self._heads.get(name)
            if head is None:
                head = self._heads[name] = pack_reg_send(self.me, Atom(name), b"")
            link.send(head + encoded)
        else:
            link.send(pack_reg_send(sender, Atom(name), encoded))
        return True

    def room(self, node: str) -> Waiter | None:
        """A waiter that is woken when a node has read most of our output; `None` if it has."""
        link = self._distribution.link_to(node)
        if link is None or not link.is_full:
            return None
        waiter = Waiter()
        link.drained[waiter.wake] = None
        return waiter

    def monitor(self, node: str, target: Target | None, told: OnDown) -> Reference:
        """Call `told(reason)` once, in the turn, when a process of another node, or its link, is down."""
        reference = self.new_reference()
        link = self._distribution.link_to(node)
        if link is None:
            self._turn.post(told, NOCONNECTION)
        else:
            self._monitors[reference] = (node, target, told)
            if target is not None:
                link.send(control.MonitorP(self.me, _target(target), reference).pack())
        return reference

    def demonitor(self, reference: Reference, soon: bool = True) -> None:
        """End a monitor; on its node soon, or with the next message to that node."""
        found = self._monitors.pop(reference, None)
        if found is not None:
            node, target, _ = found
            link = self._distribution.link_to(node)
            if link is not None and target is not None:
                body = control.DemonitorP(self.me, _target(target), reference).pack()
                link.send(body) if soon else link.send_along(body)

    def call(
        self,
        node: str,
        target: Target,
        request: Any,
        told: Callable[[bool, Any], object],
        stays: bool = False,
    ) -> Reference:
        """Call a process of another node, as `gen_server:call` does.

        Args:
            node: Its node.
            target: Its pid, or its name.
            request: The request.
            told: Called with `True` and the answer, or with `False` and the reason why there is
                none.
            stays: Whether the process lives as long as the connection, so that it needs no monitor.

        Returns:
            The call's reference, for `give_up`.

        Raises:
            EncodeError: Something in the request has no term.
        """
        reference = self.new_reference()
        encoded = etf.encode((CALL, (self.me, reference), request))

        def down(reason: Any) -> None:
            if self._calls.pop(reference, None) is not None:
                told(False, reason)

        self._calls[reference] = (self.monitor(node, None if stays else target, down), told)
        if isinstance(target, Pid):
            self.send(target, encoded)
        else:
            self.send_named(node, target, encoded)
        return reference

    def give_up(self, reference: Reference) -> None:
        """Forget a call whose answer is no longer needed."""
        self._finish_call(reference)

    def _finish_call(self, reference: Reference) -> Callable[[bool, Any], object] | None:
        """End a call; return its callback, or `None` if it was over before."""
        monitored, told = self._calls.pop(reference, (None, None))
        if monitored is not None:
            self.demonitor(monitored, soon=False)
        return told

    def answer(self, caller: Pid, tag: Any, answer: Any) -> None:
        """Answer a call from another node."""
        self.send(caller, etf.encode((tag, answer)))

    def link(self, ours: Client, pid: Pid, theirs: Pid) -> None:
        """Link a process of this node with one of another."""
        if (pid, theirs) in self._links.get(theirs.node, ()):
            return
        link = self._distribution.link_to(theirs.node)
        if link is None:
            self._executor.run_soon(exit_client, ours, NOCONNECTION)
            return
        self._hold(ours, pid, theirs)
        link.send(control.Link(pid, theirs).pack())

    def exit(self, theirs: Pid, reason: Any) -> None:
        """Make a process of another node exit."""
        link = self._distribution.link_to(theirs.node)
        if link is not None:
            link.send(control.Exit2(self.me, theirs, reason_term(reason)).pack())

    def prod(self, link: AnyLink) -> None:
        """Request a sign of life: every node answers at once that this process does not exist."""
        link.send(control.MonitorP(self.me, NOBODY, self.new_reference()).pack())

    def new_reference(self) -> Reference:
        """Make a new, unique reference."""
        n = next(self._serial)
        words = (n & 0x3FFFF, n >> 18 & 0xFFFFFFFF, n >> 50)
        return Reference(self._distribution.name, self._distribution.creation, words)

    # --- From others to this node, in the turn --------------------------------------------------

    def receive(self, link: AnyLink, frame: bytes) -> None:
        """Take in a frame of a node; if it can't be decoded, the link is lost."""
        reader = self._readers.get(link.peer.name)
        if reader is None:
            reader = self._readers[link.peer.name] = Reader(self._distribution.name)
        try:
            message = reader.parse(frame)
        except DecodeError as error:
            self.refuse(link, "unreadable", f"it sent unreadable data: {error}")
        else:
            self.take_in(link, message)

    def take_in(self, link: AnyLink, message: control.Message) -> None:
        """Take in a message from a node; if it is wrong, the link is lost."""
        self.speaker = link.peer.name
        try:
            self._take(link, message)
        except BadMessage as error:
            self.refuse(link, "wrong message", f"it sent an invalid message: {error}")
        except OverBudget as error:
            self.refuse(link, "budget", str(error))
        except Exception as failure:  # a part of it may have been carried out
            name, text = link.peer.name, "failed to carry out a message of %s: %s"
            self._distribution.notices.warn(
                "failed", name, text, name, brief(message), level=logging.ERROR, error=failure
            )
            link.lose(plain(f"failed to carry out a message of it: {failure!r}"))

    def refuse(self, link: AnyLink, cause: str, reason: str) -> None:
        """Close a link because of a fault of the other node."""
        name, text = link.peer.name, "%s closed the connection to %s: %s"
        self._distribution.notices.warn(cause, name, text, self._distribution.name, name, reason)
        link.lose(plain(reason))

    def _take(self, link: AnyLink, message: control.Message) -> None:
        if isinstance(message, control.RegSend):  # the most frequent ones first
            check_speaker(message.sender, link.peer.name)
            self._reg_send(message)
            return
        check_ends(message, link.peer.name, self._distribution.name)
        match message:
            case control.Send() | control.SendSender():
                self._send(message)
            case control.MonitorP():
                self._monitor_p(link, message)
            case control.DemonitorP():
                self._demonitor_p(link, message)
            case control.MonitorPExit():
                self._monitor_p_exit(link, message)
            case control.Link():
                self._link(link, message)
            case control.UnlinkId():
                self._drop(message.to, message.sender)
                link.send(control.UnlinkIdAck(message.id, message.to, message.sender).pack())
            case control.Exit():
                self._exited(message.to, message.sender, reason_value(message.reason))
            case control.Exit2():
                self._exit2(message)
            case control.UnlinkIdAck():
                pass
            case control.Unsupported():
                name, text = link.peer.name, "%s requested the operation %s, which is not supported"
                self._distribution.notices.warn(
                    "unsupported", name, text, name, message.operation, level=logging.INFO
                )
            case _:
                assert_never(message)

    def lost(self, node: str) -> None:
        """Forget the link to a node, and notify monitors, links and calls over it."""
        self._readers.pop(node, None)
        for reference, (where, _, told) in list(self._monitors.items()):
            if where == node:
                del self._monitors[reference]
                told(NOCONNECTION)
        for reference in list(self._monitored.get(node, ())):
            self._forget_monitor(node, reference)
        for ours, theirs in list(self._links.get(node, ())):
            self._exited(ours, theirs, NOCONNECTION)

    def _reg_send(self, message: control.RegSend) -> None:
        local = self._names.get(message.name.name)
        if local is not None:
            local.deliver(message.message, message.sender)

    def _send(self, message: control.Send | control.SendSender) -> None:
        local = self._find(message.to)
        if local is not None:
            sender = message.sender if isinstance(message, control.SendSender) else None
            local.deliver(message.message, sender)

    def _monitor_p(self, link: AnyLink, message: control.MonitorP) -> None:
        local = self._find(message.target)
        if local is None:
            self._tell_down(link, message, NOPROC)
            return
        ref = message.ref
        monitored = self._monitored.setdefault(link.peer.name, {})
        if ref in monitored:
            raise BadMessage(f"{ref} is already the reference of another monitor")
        check_budget(len(monitored) + 1, MOST_MONITORS, "monitors")
        monitored[ref] = None
        if local.subject is not None:

            def ended(down: Down) -> None:
                self._turn.post(self._monitored_down, link, message, down.reason)

            watching = watch_end(local.subject, ended)
            if ref in monitored:
                monitored[ref] = watching

    def _monitored_down(self, link: AnyLink, message: control.MonitorP, reason: Any) -> None:
        name = link.peer.name
        if message.ref in self._monitored.get(name, ()) and link.closed is None:
            self._forget_monitor(name, message.ref)
            self._tell_down(link, message, reason)

    def _tell_down(self, link: AnyLink, message: control.MonitorP, reason: Any) -> None:
        exit_message = control.MonitorPExit(
            message.target, message.sender, message.ref, reason_term(reason)
        )
        link.send(exit_message.pack())

    def _demonitor_p(self, link: AnyLink, message: control.DemonitorP) -> None:
        self._forget_monitor(link.peer.name, message.ref)

    def _forget_monitor(self, node: str, reference: Reference) -> None:
        monitored = self._monitored.get(node, {})
        watching = monitored.pop(reference, None)
        if not monitored:
            self._monitored.pop(node, None)
        if watching is not None:
            watching.cancel()

    def _monitor_p_exit(self, link: AnyLink, message: control.MonitorPExit) -> None:
        found = self._monitors.get(message.ref)
        if found is not None and found[0] == link.peer.name:
            del self._monitors[message.ref]
            found[2](reason_value(message.reason))

    def _link(self, link: AnyLink, message: control.Link) -> None:
        local = self._find(message.to)
        if local is None:
            link.send(control.Exit(message.to, message.sender, Atom(NOPROC)).pack())
        elif local.subject is not None:
            self._check_exits(local)
            check_budget(len(self._links.get(link.peer.name, ())) + 1, MOST_LINKS, "links")
            self._hold(local.subject, message.to, message.sender)

    def _hold(self, ours: Client, pid: Pid, theirs: Pid) -> None:
        """Remember a link, and notify the other side when our process ends."""
        links = self._links.setdefault(theirs.node, {})
        if (pid, theirs) in links:
            return
        links[pid, theirs] = None

        def ended(down: Down) -> None:
            self._turn.post(self._linked_ended, pid, theirs, down.reason)

        watching = watch_end(ours, ended)
        if (pid, theirs) in links:
            links[pid, theirs] = watching

    def _drop(self, pid: Pid, theirs: Pid) -> bool:
        links = self._links.get(theirs.node, {})
        if (pid, theirs) not in links:
            return False
        watching = links.pop((pid, theirs))
        if not links:
            self._links.pop(theirs.node, None)
        if watching is not None:
            watching.cancel()
        return True

    def _linked_ended(self, pid: Pid, theirs: Pid, reason: Any) -> None:
        link = self._distribution.link_to(theirs.node)
        if self._drop(pid, theirs) and link is not None:
            link.send(control.Exit(pid, theirs, reason_term(reason)).pack())

    def _exited(self, pid: Pid, theirs: Pid, reason: Any) -> None:
        """Make our process exit, because a linked process of another node has ended."""
        subject = self.subject_of(pid)
        if self._drop(pid, theirs) and subject is not None and reason != "normal":
            self._executor.run_soon(exit_client, subject, reason)

    def _exit2(self, message: control.Exit2) -> None:
        local = self._find(message.to)
        if local is not None and local.subject is not None:
            self._check_exits(local)
            self._executor.run_soon(exit_client, local.subject, reason_value(message.reason))

    def _check_exits(self, local: Local) -> None:
        if not local.can_exit:
            raise BadMessage(f"{local.subject} belongs to a client of its own node")

    def _take_answer(self, message: Any, sender: Pid | None) -> None:
        if isinstance(message, tuple) and len(message) == 2 and isinstance(message[0], Reference):
            call = self._calls.get(message[0])
            asked = None if call is None else self._monitors.get(call[0])
            if asked is not None and asked[0] != self.speaker:
                raise BadMessage(f"it answered a call to {asked[0]}")
            told = self._finish_call(message[0])
            if told is not None:
                told(True, message[1])


def _target(target: Target) -> Pid | Atom:
    return target if isinstance(target, Pid) else Atom(target)
