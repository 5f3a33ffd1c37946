"""Participants of workers in a world without threads, clocks and sockets: what is sent arrives when it may.

Each participant is real; elections, nodes and links are played. Between two participants messages keep their order.
Whoever is elected has a larger term than all before, and announces itself to all whom it sees. A leader
that has been replaced does not know that at once: it goes on, and takes agreements as well. That is
less than what elections promise.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import pykka

from locks.ownership.part import Part, Task
from locks.runtime.monitor import current_client
from locks_leader.ownership import Participant
from locks_leader.shell.agreements import Agreed
from tests.leader.members import Diary

__all__ = ["GROUPS", "World"]

GROUPS = 5


class Name(str, pykka.ActorRef[Any]):
    """The name of a participant, which passes for its reference."""

    def __init__(self, name: str) -> None:
        pass


class Agreements:
    """Takes agreements when the world says so."""

    def __init__(self) -> None:
        self.wanted: list[tuple[Any, int]] = []

    def take_agreement(self, id: Any, newest: int, participant: Any) -> None:
        """See `locks_leader.shell.agreements.Agreements`."""
        self.wanted.append((id, newest))

    def ignored(self, participant: Any, error: Exception) -> None:
        """Likewise."""
        logging.getLogger("locks").warning("%s ignored a message: %s", participant, error)

    def cancel(self) -> None:
        """Likewise."""
        self.wanted.clear()


class Election:
    """The election as one participant sees it."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def term(self) -> int:
        """See `ElectionState`."""
        return self._place.term

    @property
    def leader(self) -> Any:
        """Likewise."""
        return self._place.leader

    @property
    def leader_node(self) -> str:
        """Likewise."""
        return str(self._place.leader)

    @property
    def candidates(self) -> list[Any]:
        """Likewise."""
        return [name for name in self._place.sees if name != self._place.name]

    def stop(self) -> None:
        """Likewise."""
        self._place.stopping = True


class PlayedParticipant(Participant):
    """A participant whose messages go through the world."""

    def send(self, participant: Any, message: Any) -> None:
        """Put it on its way."""
        self.world.send(self.me, participant, ("cast", message))

    world: World


class Place:
    """One participant, and what an instance of an election knows.

    Attributes:
        sees: The other participants that it takes for alive.
        led: Those to which it has announced itself, being the leader.
    """

    def __init__(self, world: World, name: Name, number: int, groups: int) -> None:
        self.name = name
        self.term = 0
        self.leader: Any = None
        self.sees: set[str] = set()
        self.led: set[str] = set()
        self.stopping = False
        self.inbox: deque[Any] = deque()
        self.hands: list[int] = []
        self.tasks: list[Task] = []
        self.part = Part("x", current_client(), **world.diary.callbacks(number))
        self.agreements = Agreements()
        self.election: Any = Election(self)
        participant = self.participant = PlayedParticipant()
        participant.world = world
        participant.take_part(name, self.part, groups, self.agreements)  # type: ignore[arg-type]
        self.part.took_part(self.inbox.append)

    @property
    def leads(self) -> bool:
        """Whether it believes so."""
        return bool(self.leader == self.name)


class World:
    """Participants, links and elections.

    Attributes:
        places: The participants that are alive, by name.
        diary: What the callbacks were told.
        cuts: Pairs of participants that are cut off from each other.
        owners: Who has begun tasks of each group with each token.
        term: The last term.
        tokens: Numbers of agreements.
    """

    def __init__(self, groups: int = GROUPS) -> None:
        self.groups = groups
        self.places: dict[str, Place] = {}
        self.diary = Diary()
        self.cuts: set[frozenset[str]] = set()
        self.has_cuts = False  # there were some
        self.owners: dict[tuple[int, int], str] = {}  # of each group and token
        self._links: dict[tuple[str, str], deque[Any]] = {}
        self.term = 0
        self.tokens = itertools.count(100)
        self._names = itertools.count(0)

    # --- What may happen

    def steps(self, cuts: bool) -> list[Callable[[], object]]:
        """All that may happen next."""
        found: list[Callable[[], object]] = list(self.deliveries())
        names = list(self.places)
        if len(names) < 4:
            found.append(self.join)
        for name in names:
            place = self.places[name]
            if not place.leads:
                found.append(lambda name=name: self.elect(name))  # type: ignore[misc]
            elif place.term < self.term:
                found.append(lambda place=place: self.step_down(place))  # type: ignore[misc]
            if len(names) > 1:
                found.append(lambda name=name: self.kill(name))  # type: ignore[misc]
                found.append(lambda place=place: place.part.stop(now=False))  # type: ignore[misc]
            for group in range(self.groups):
                found.append(lambda n=name, g=group: self.begin(n, g))  # type: ignore[misc]
            for group in place.hands:
                found.append(lambda p=place, g=group: self.end(p, g))  # type: ignore[misc]
        if cuts:
            for one, other in itertools.combinations(names, 2):
                change = self.heal if frozenset((one, other)) in self.cuts else self.cut
                found.append(lambda c=change, a=one, b=other: c(a, b))  # type: ignore[misc]
        return found

    def deliveries(self) -> list[Callable[[], object]]:
        """Messages that may arrive now, agreements that may be taken, newcomers that may be led."""
        found: list[Callable[[], object]] = []
        for (sender, receiver), link in self._links.items():
            if link and receiver in self.places:
                found.append(lambda s=sender, r=receiver: self.deliver(s, r))  # type: ignore[misc]
        for place in self.places.values():
            if place.inbox:
                found.append(lambda p=place: self.take_in(p))  # type: ignore[misc]
            # Where links are cut a majority tells: who was replaced gets no agreement.
            if place.agreements.wanted and (place.term == self.term or not self.has_cuts):
                found.append(lambda p=place: self.agree(p))  # type: ignore[misc]
            if place.leads:
                for other in sorted(place.sees - place.led):
                    found.append(lambda p=place, o=other: self.lead(p, o))  # type: ignore[misc]
        return found

    def settle(self) -> None:
        """Heal all, end all tasks, and let everything happen that is to happen."""
        for pair in list(self.cuts):
            self.heal(*pair)
        for _ in range(10_000):
            if not self.places:
                self.join()
            for place in list(self.places.values()):
                for group in list(place.hands):
                    self.end(place, group)
            waiting = self.deliveries()
            if waiting:
                waiting[0]()
                continue
            leaders = [place for place in self.places.values() if place.leads]
            old = [place for place in leaders if place.term < self.term]
            if old:
                self.step_down(old[0])
            elif len(leaders) == 1:
                return
            else:
                self.elect(min(self.places))
        raise AssertionError("it does not come to an end")

    # --- Events

    def join(self, groups: int | None = None) -> str:
        """A worker comes; everybody knows of it."""
        number = next(self._names)
        name = Name(f"w{number}")
        place = Place(self, name, number, groups or self.groups)
        for other, known in self.places.items():
            known.sees.add(name)
            place.sees.add(other)
        self.places[name] = place
        return name

    def elect(self, name: str) -> None:
        """Somebody is elected, and announces itself to all whom it sees."""
        place = self.places[name]
        self.term += 1
        place.term, place.leader = self.term, place.name
        payload = place.participant.elected(place.election, None).message
        place.led = set(place.sees)
        for other in sorted(place.led):
            self.send(name, other, ("announce", place.term, payload))

    def lead(self, place: Place, newcomer: str) -> None:
        """A leader leads somebody who has come later."""
        payload = place.participant.elected(place.election, newcomer).message  # type: ignore[arg-type]
        place.led.add(newcomer)
        self.send(place.name, newcomer, ("announce", place.term, payload))

    def step_down(self, place: Place) -> None:
        """A leader has lost its place, and knows it."""
        place.leader = None
        place.led = set()
        place.participant.stepped_down(place.election)

    def kill(self, name: str) -> None:
        """A worker dies; the others will know."""
        place = self.places.pop(name)
        self._gone(place)

    def _gone(self, place: Place) -> None:
        for group in place.part.report():
            place.part.tell_lost([group])
        for other in self.places:
            self.send(place.name, other, ("down",), always=True)

    def cut(self, one: str, other: str) -> None:
        """Two can't reach each other any more; what was on its way is lost."""
        self.has_cuts = True
        self.cuts.add(frozenset((one, other)))
        for sender, receiver in ((one, other), (other, one)):
            self._links[sender, receiver] = deque([("down",)])

    def heal(self, one: str, other: str) -> None:
        """They can again, after both have seen that they could not."""
        self.cuts.discard(frozenset((one, other)))
        if one in self.places and other in self.places:
            for sender, receiver in ((one, other), (other, one)):
                self.send(sender, receiver, ("up",))

    def agree(self, place: Place) -> None:
        """An agreement is taken."""
        id, newest = place.agreements.wanted.pop(0)
        place.inbox.append(Agreed(id, next(self.tokens), newest))

    def begin(self, name: str, group: int) -> bool:
        """A worker begins a task, if it may; returns whether it did."""
        place = self.places[name]
        task = place.part.task(group)
        token = task.begin()
        if token is not None:
            place.hands.append(group)
            place.tasks.append(task)
            owner = self.owners.setdefault((group, token), name)
            assert owner == name, f"{owner} and {name} have token {token} of group {group}"
        return token is not None

    def end(self, place: Place, group: int) -> None:
        """A task is over."""
        number = place.hands.index(group)
        del place.hands[number]
        place.tasks.pop(number).end()

    # --- Messages

    def send(self, sender: Any, receiver: Any, item: Any, always: bool = False) -> None:
        """Put something on its way."""
        if always or frozenset((sender, receiver)) not in self.cuts:
            self._links.setdefault((sender, receiver), deque()).append(item)

    def deliver(self, sender: str, receiver: str) -> None:
        """The first one arrives."""
        what, *args = self._links[sender, receiver].popleft()
        place = self.places[receiver]
        if what == "cast":
            place.participant.handle_cast(args[0], place.election)
        elif what == "up":
            place.sees.add(sender)
        elif what == "down":
            if sender in place.sees:
                self._down(place, sender)
        else:
            self._announced(place, sender, *args)
        self._stop(place)

    def _down(self, place: Place, other: str) -> None:
        place.sees.discard(other)
        place.led.discard(other)
        if place.leader == other:
            place.leader = None
        place.participant.handle_down(other, place.election)  # type: ignore[arg-type]

    def _announced(self, place: Place, sender: str, term: int, payload: Any) -> None:
        if term < place.term:
            return
        place.sees.add(sender)
        if place.leads:
            self.step_down(place)
        place.term, place.leader = term, sender
        place.participant.surrendered(payload, place.election)

    def take_in(self, place: Place) -> None:
        """The worker, or the lock, says something to its participant."""
        place.participant.handle_info(place.inbox.popleft(), place.election)
        self._stop(place)

    def _stop(self, place: Place) -> None:
        if place.stopping and place.name in self.places:
            del self.places[place.name]
            self._gone(place)

    # --- Questions

    def on_the_way(self, sender: str, receiver: str) -> list[Any]:
        """What has not arrived."""
        return list(self._links[sender, receiver])

    def at_hand(self) -> dict[int, list[str]]:
        """Who has a task of each group at hand."""
        found: dict[int, list[str]] = {}
        for place in self.places.values():
            for group in set(place.hands):
                found.setdefault(group, []).append(place.name)
        return found

    def owned(self) -> dict[str, list[int]]:
        """The groups of each worker."""
        return {n: sorted(place.part.member.owned) for n, place in self.places.items()}

    def check_settled(self) -> None:
        """All groups are owned, evenly, and nobody but those who leave is suspended."""
        owned = [place.part.member.owned for place in self.places.values()]
        counts = [len(each) for each in owned]
        assert sorted(group for each in owned for group in each) == list(range(self.groups))
        assert max(counts) - min(counts) <= 1, counts
        for each in owned:
            for group, token in each.items():
                assert all(t <= token for g, t in self.owners if g == group), "it would be refused"
        (leader,) = [place for place in self.places.values() if place.leads]
        assert leader.participant.session is not None
        assert leader.participant.session.coordinator.settled
