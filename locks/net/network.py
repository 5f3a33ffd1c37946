"""A node's connections to other nodes: those that it knows, dials, admits and has lost.

Theory of operation
-------------------
The known nodes are in a book (`locks.net.book`), and one greenlet dials those that are due. Another
one keeps the *door* (`locks.net.door`), where strangers prove themselves. Each attempt to connect,
from either side, has its own greenlet with a time limit. After the hello there is a `Link`, which
needs no greenlet.

Of several connections with nodes of one name, one is kept. This is decided after they have proven
themselves (`locks.net.admission`). Decisions of hellos, and all work of links, happen in
the node's turn. Dials and the door run in the hub of the node's executor.

Heartbeats: a native thread sends them over each link, so they continue while the program computes. A
node that was silent for `net_ticktime` is down. The hub judges this by the number of successive
checks that found no input. So a program that was held up reads its input before it judges others.

A program that is stopped for a while, or whose machine sleeps, sends no heartbeats, and others count
it as lost. So it drops its own connections when it goes on, before it reads anything from them. It
knows the time from a clock that counts the sleep of the machine (`look_awake`).
"""

from __future__ import annotations

import errno
import logging
import math
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Set

import gevent
from gevent import socket as gevent_socket

from locks.errors import InvalidOption
from locks.net.addresses import Address, HostAndPort, Locator, UnixAddress, place
from locks.net.admission import Admission
from locks.net.book import Book, Dialling, Finder
from locks.net.door import Door
from locks.net.hello import Peer, Refused, Settled
from locks.net.link import Link, Traffic
from locks.net.messages import LARGEST_FRAME, News
from locks.net.notices import Notices
from locks.net.relay import AnyLink, RelayedLink
from locks.net.secrets import Cookie
from locks.net.stream import Stream, listen
from locks.net.tls import TLS, Keys, Tls
from locks.runtime.clock import monotonic
from locks.runtime.executor import Executor
from locks.runtime.inline import Turn
from locks.runtime.native import native_lock, start_new_thread

__all__ = ["Network"]

CLOCK = getattr(time, "CLOCK_BOOTTIME", None)  # counts the sleep of the machine; Linux has it
CONNECT_TIME = 5.0  # seconds, for TCP
FRAME_LIMIT = LARGEST_FRAME  # bytes
SEND_LIMIT = 16 * 2**20  # bytes
KEYS = ("cookie", "certificate")  # causes of refusals that new files may mend
BEAT = (
    1 / 6
)  # of net_ticktime, from one heartbeat to the next; see also `locks.net.admission.SIGNS`
LOOK = BEAT / 4  # of net_ticktime, between looks: whether a heartbeat is due, and who is silent
MISSED = 5 * BEAT  # of net_ticktime, without a look: after that others may count this node as lost


class Network:
    """A node's connections.

    Args:
        name: The node's name.
        turn: Its turn.
        executor: Runs its greenlets.
        listens: Where it accepts connections; `None` if it does not.
        peers: The nodes that the program has named, with their addresses.
        locator: Knows where servers are that may move.
        keys: What new connections are made with.
        ticktime: After how many seconds a silent node counts as down.
        is_client: Whether it is a client node.
        check_address: Raises `InvalidOption` if it must not connect to an address.
        on_up: Called with each new link, in the turn.
        on_down: Called with a link that is gone and the reason, in the turn.
        on_frame: Called with the link and the body of each frame, in the turn.
        may_be_thin: See `Link`.
        on_thin: Likewise.
        on_doubt: Called with a link that must be asked for a sign of life, in the turn.
        refusals: Filled with the reasons for which running nodes can't be connected, by their
            names.
        notices: Logs warnings about others.

    Attributes:
        incarnation: A random number, another one after each start.
        address: Where it listens, host and port; `None` if it does not, or only for programs of its
            machine.
        links: The links, by node.
        relayed: The links through servers, by node.
        named: The nodes that the program has named.
        book: The known nodes.
        keys: What new connections are made with.
        slowest: The longest time that it took to connect to a node, in seconds.
        unsent: The links to flush at the end of the turn.
    """

    def __init__(
        self,
        name: str,
        turn: Turn,
        executor: Executor,
        *,
        listens: Address | None,
        peers: Mapping[str, Address],
        locator: Locator | None,
        keys: Keys,
        ticktime: float,
        is_client: bool,
        check_address: Callable[[Address, str], None],
        on_up: Callable[[Link], object],
        on_down: Callable[[Link, str], object],
        on_frame: Callable[[Link, bytes], object],
        may_be_thin: Callable[[], bool],
        on_thin: Callable[[Link, bytes], bool],
        on_doubt: Callable[[Link], object],
        refusals: dict[str, str],
        notices: Notices,
    ) -> None:
        self.name = name
        self.incarnation = secrets.randbelow(2**63 - 1) + 1
        self.is_client = is_client
        self._ticktime = ticktime
        self._check_address = check_address
        self._listens = listens
        self._peers = peers
        self.address: HostAndPort | None = None
        self.links: dict[str, Link] = {}
        self.relayed: dict[str, RelayedLink] = {}
        self.named = set(peers)
        self.refusals = refusals
        self.unsent: dict[Link, None] = {}
        self.notices = notices
        self.slowest = 0.0
        self.traffic = Traffic()
        self._turn = turn
        self._executor = executor
        self._on_up = on_up
        self._on_down = on_down
        self._on_frame = on_frame
        self._may_be_thin = may_be_thin
        self._on_thin = on_thin
        self.is_running = True
        self.keys = keys
        self._shunned: set[str] = set()  # disconnected on purpose
        self._kept: Set[str] | None = None  # nodes that are not turned away; None if nobody is
        self._listener: socket.socket | None = None
        self._finder: Finder | None = None
        if locator is not None:
            self._finder = Finder(name, locator, peers, notices)
        self.book = Book(name, self.links, refusals)
        self._dialling = Dialling(name, self.book, turn, executor, notices, self._dial)
        # Only in the hub:
        self._admission = Admission(
            Peer(name, self.incarnation, is_client, max(0.1, self._ticktime)),
            self.links,
            turn,
            keys=lambda: self.keys,
            object_to=self._object_to,
            ask=on_doubt,
            establish=self._establish,
        )
        self._door: Door | None = None
        self._hub_ran_at = monotonic()  # when the hub last ran a round
        self._awake_at = clock()  # when it last sent heartbeats, or could have
        self._overdue_at = math.inf  # when it has sent none for too long; each question looks at it
        # The thread that sends heartbeats waits for its release.
        self._nudge = native_lock()

    @property
    def is_deserted(self) -> bool:
        """Whether no node is connected, or about to connect."""
        return not self.links and (self._door is None or not self._door.strangers)

    # --- Start and stop -------------------------------------------------------------------------

    def open(self) -> None:
        """Listen.

        Raises:
            InvalidOption: The address can't be listened on.
        """
        if self._listens is not None:
            self._listener = listen(self._listens)
            if not isinstance(self._listens, UnixAddress):
                self.address = self._listener.getsockname()[:2]

    def start(self) -> None:
        """Admit others, and dial the peers."""
        self._nudge.acquire()
        self._turn.run(self.ask_for, self._peers)
        self._executor.run_soon(self._start_greenlets)
        # Native: a patched `Thread.start` would let other greenlets run while the node is started.
        start_new_thread(self._keep_beating, ())

    def _start_greenlets(self) -> None:
        if not self.is_running:  # it was stopped meanwhile
            if self._listener is not None:
                self._listener.close()
            return
        if self._listener is not None:
            listener = gevent_socket.socket(fileno=self._listener.detach())
            self._door = Door(
                self.name, listener, self._admission.accept, self.notices, self._executor.spawn
            )
            self._executor.spawn(self._door.keep)
        self._dialling.start()
        self._executor.spawn(self._keep_judging)

    def stop(self, reason: str = "the node was stopped") -> None:
        """Stop listening, and close all links. In the turn."""
        if not self.is_running:
            return
        self.is_running = False
        self.pace_changed()
        links = list(self.links.values())
        for link in links:
            link.flush()
            link.lose(reason)
        # In the executor's worker: its hub may be gone after that has ended.
        self._executor.run_soon(self._stop_greenlets, links)

    def _stop_greenlets(self, links: list[Link]) -> None:
        for link in links:
            link.dispose()
        self._dialling.stop()
        for stream in list(self._admission.streams):
            stream.close()
        if self._door is not None:
            self._door.close()
        gevent.sleep(0)  # gevent closes sockets in the next round of its loop

    def leave_to_parent(self) -> None:
        """In a forked child: release all sockets, which belong to the parent."""
        self.is_running = False
        for link in self.links.values():
            link.leave_to_parent()
        for stream in list(self._admission.streams):
            stream.leave_to_parent()
        if self._listener is not None:
            self._listener.close()
        if self._door is not None:
            self._door.leave_to_parent()

    # --- Known nodes, in the turn ---------------------------------------------------------------

    def ask_for(self, peers: Mapping[str, Address]) -> None:
        """Connect to these nodes, and keep them connected."""
        if self.is_running:
            for name, address in peers.items():
                self.book.ask_for(name, address, monotonic())
            self._dialling.look_soon()

    def connect(self, name: str, address: Address | None) -> None:
        """Connect to a node, and keep it connected.

        Args:
            name: The node.
            address: Its address; `None` if it is known, or to be reached through a server.
        """
        self._shunned.discard(name)
        if address is None and name in self.book.known:
            address = self.book.known[name].address
        if address is not None or self.is_client:
            self.named.add(name)
        if address is not None:
            self.ask_for({name: address})

    def link_to(self, name: str) -> AnyLink | None:
        """The link to a node, perhaps through a server; `None` if there is none."""
        return self.links.get(name) or self.relayed.get(name)

    def address_of(self, name: str) -> str | None:
        """The address from which a node is connected; `None` if it is not."""
        link = self.links.get(name)
        return None if link is None else place(link.address)[:255]

    def disconnect(self, name: str) -> bool:
        """Close the link to a node, and stay disconnected until `connect` is called."""
        self._shunned.add(name)
        self.named.discard(name)
        self.book.forget(name)
        link = self.link_to(name)
        if name in self.links:
            self.links[name].flush()
        if link is not None:
            link.lose("disconnected on purpose")
        return link is not None

    def turn_away(self, keep: Set[str]) -> None:
        """Disconnect all nodes but these, and connect with no others from now on, because this node is about to end."""
        self._kept = keep
        for name in (self.links.keys() | self.relayed.keys()) - keep:
            self.disconnect(name)

    def may_meet(self, name: str) -> bool:
        """Whether a node that is not connected may be in touch with this one through a server."""
        is_wanted = self._kept is None or name in self._kept
        is_known = name == self.name or name in self.links or name in self._shunned
        return self.is_running and is_wanted and not is_known

    @property
    def is_about_to_end(self) -> bool:
        """Whether it turns others away."""
        return self._kept is not None

    def hear(self, source: str, news: list[News]) -> int:
        """Take in nodes that another node names; return how many too many were dropped."""
        if not self.is_running:
            return 0
        news = [each for each in news if each.name not in self._shunned]
        dropped = self.book.hear(source, news, monotonic())
        self._dialling.look_soon()
        return dropped

    def flush(self) -> None:
        """Write the output of links."""
        for link in list(self.unsent):
            link.flush()
            self.unsent.pop(link, None)

    # --- Dialling, in the hub -------------------------------------------------------------------

    def read_keys(self, cookie: Cookie | None = None, tls: TLS | None = None) -> bool:
        """Read the files with cookies and certificates again, for new connections; connections that stand stay.

        Args:
            cookie: Where the cookies are now, if that has changed.
            tls: Where the certificates are now, likewise.

        Returns:
            Whether they say something else now.

        Raises:
            InvalidOption: A file is wrong; what was in force stays in force.
        """
        before, self.keys = self.keys, self.keys.again(cookie, tls)
        return not self.keys.are_same(before)

    def _dial(self, name: str) -> None:
        """Connect to a node; if it does not accept our keys, read them again, because they may have been changed everywhere."""
        try:
            self._try(name)
        except Refused as error:
            if error.cause not in KEYS or not self._has_new_keys():
                raise
            self._try(name)

    def _has_new_keys(self) -> bool:
        try:
            return self.read_keys()
        except InvalidOption as error:
            text = (
                "%s can't read its cookie and certificates again, and keeps those that it had: %s"
            )
            self.notices.warn("keys", "", text, self.name, error, level=logging.ERROR)
            return False

    def _try(self, name: str) -> None:
        begun = monotonic()
        with gevent.Timeout(
            CONNECT_TIME, OSError(errno.ETIMEDOUT, "the connection attempt timed out")
        ):
            stream = self._begin_connection(name)
        self._admission.dial(name, stream)
        self.slowest = max(self.slowest, monotonic() - begun)

    def _begin_connection(self, name: str) -> Stream:
        known = self.book.known.get(name)
        if known is None:
            raise Settled("it was forgotten")
        moved = None if self._finder is None else self._finder.address_of(name)
        address = moved or known.address
        self._check_address(address, "connects to")  # it may be from a locator
        return Stream.connect(address)

    # --- Connections that are admitted, in the hub ----------------------------------------------

    def _object_to(self, name: str) -> None:
        """Raise `Refused` if no node of this name may connect now."""
        if self._kept is not None and name not in self._kept:
            raise Refused(
                f"{self.name} is about to end, and takes nothing new; use the other servers",
                cause="ending",
            )
        if not self.is_running or name in self._shunned:
            said = f"{self.name} was told by disconnect() to stay disconnected from {name}"
            raise Refused(said, cause="not wanted")

    def _establish(
        self, stream: Stream, peer: Peer, address: HostAndPort, replaced: Link | None
    ) -> None:
        self._turn.run(self._connected, peer, *stream.release(), address, replaced)

    def _connected(
        self,
        peer: Peer,
        sock: socket.socket,
        tls: Tls | None,
        rest: bytes,
        address: HostAndPort,
        replaced: Link | None,
    ) -> None:
        old = self.links.get(peer.name)
        if old is not None and old is replaced:
            old.lose("its node has connected again")
        elif old is not None or not self.is_running or peer.name in self._shunned:
            sock.close()
            return
        link = Link(
            peer,
            sock,
            address=address,
            hub=self._executor.hub,
            turn=self._turn,
            tls=tls,
            ticktime=self._ticktime,
            frame_limit=FRAME_LIMIT,
            send_limit=SEND_LIMIT,
            on_frame=self._on_frame,
            may_be_thin=self._may_be_thin,
            on_thin=self._on_thin,
            on_lost=self._lost,
            unsent=self.unsent,
            traffic=self.traffic,
        )
        self.links[peer.name] = link
        self.book.connected(peer.name, monotonic())
        self.pace_changed()
        self._on_up(link)
        link.start(rest)

    def _lost(self, link: Link, reason: str) -> None:
        name = link.peer.name
        del self.links[name]
        self.book.lost(name, monotonic())
        self._on_down(link, reason)
        if self.is_running:
            self._dialling.look_soon()

    # --- Heartbeats -----------------------------------------------------------------------------

    def pace_changed(self) -> None:
        """Note that a link needs heartbeats at another pace, or none any more. In the turn."""
        if self._nudge.locked():
            self._nudge.release()

    def _shortest(self) -> float:
        """The shortest `net_ticktime` of this node and those that it is connected with."""
        return min([self._ticktime, *(link.wanted for link in list(self.links.values()))])

    def _keep_beating(self) -> None:
        """In its own thread: send heartbeats, so that other nodes do not take this one for dead.

        The hub of a program may be busy: the program computes, and its locks are fine. But a hub that
        only does the node's work is stuck if it does not run for `net_ticktime`: then no node that asks
        this one gets an answer. So it sends no signs of life, and the others count it as lost, as if it
        were stopped.
        """
        while self.is_running:
            self._nudge.acquire(timeout=self._shortest() * LOOK)
            while self._turn.thin(self._beat):  # which leaves what is thin as it is
                self._turn.run(self.look_awake)

    @property
    def may_have_slept(self) -> bool:
        """Whether no heartbeats were sent for so long that `look_awake` may find lost connections."""
        return clock() >= self._overdue_at

    def look_awake(self) -> None:
        """Lose the connections whose other side may have lost this node, as it sent no heartbeats for long. In the turn."""
        now = clock()
        slept = now - self._awake_at
        for link in list(self.links.values()):
            if slept >= link.wanted * MISSED:
                link.lose(f"this program did not run for {slept:.1f} s")
        self._is_awake(now)

    def _is_awake(self, now: float) -> None:
        self._awake_at = now
        self._overdue_at = now + self._shortest() * MISSED

    def _beat(self) -> bool:
        """Send the heartbeats that are due; returns whether `look_awake` must come first."""
        if self.may_have_slept:
            return True
        self._is_awake(clock())
        own = self._ticktime
        now = monotonic()
        if now - self._hub_ran_at > own and self._executor.is_own_thread:
            return False
        for link in list(self.links.values()):
            if now >= link.beat_due:
                link.beat_due = now + 0.9 * min(own, link.wanted) * BEAT
                link.beat()
        return False

    def _keep_judging(self) -> None:
        while self.is_running:
            interval = self._shortest() * LOOK
            gevent.sleep(interval, ref=False)
            self._hub_ran_at = monotonic()
            if self._turn.thin(self._has_silent, interval):
                self._turn.run(self._judge_silence)

    def _has_silent(self, interval: float) -> bool:
        """Whether a link was silent for too long, after so many more seconds."""
        links = list(self.links.values())
        for link in links:
            link.silent += interval
        return any(link.silent >= link.ticktime for link in links)

    def _judge_silence(self) -> None:
        for link in list(self.links.values()):
            if link.silent >= link.ticktime:
                link.lose(f"it was silent for {link.ticktime:g} s")


def clock() -> float:
    """Seconds, by a clock that goes on while the program is stopped, and while the machine sleeps if that can be known."""
    return monotonic() if CLOCK is None else time.clock_gettime(CLOCK)
