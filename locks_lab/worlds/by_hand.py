"""Methods to control a world by hand."""

from __future__ import annotations

from typing import Any

from locks_lab.worlds.client import SERIALS
from locks_lab.worlds.network import Link, Network, Party

__all__ = ["ByHand"]


class ByHand:
    """The methods of a world for callers that control it by hand."""

    network: Network
    unsettled: dict[int, None]

    def do(self, choice: Any) -> None:
        """Make one of the choices happen."""
        raise NotImplementedError

    def step(self, *numbers: int) -> None:
        """Let clients take their next steps."""
        for number in numbers:
            self.do(("step", number))

    def deliver(self, *parties: int | str) -> None:
        """Deliver messages, the oldest first, as long as there are any to these parties.

        Parties are nodes, or numbers of clients. Without parties, deliver all messages; agents
        settle when all have arrived.
        """
        while True:
            links = [link for link in self.network.deliverable() if self._is_one(link[1], parties)]
            settling = [n for n in self.unsettled if not parties or n in parties]
            if links:
                self.do(("deliver", self.network.oldest(links)))
            elif settling:
                self.do(("settle", settling[0]))
            else:
                return

    def deliver_one(self, sender: int | str, receiver: int | str) -> None:
        """Deliver the next message of one party to another; parties as for `deliver`."""
        (link,) = self._between(sender, receiver)
        self.do(("deliver", link))

    def deliver_between(self, sender: int | str, receiver: int | str) -> None:
        """Deliver all that is on its way from one party to another; parties as for `deliver`."""
        while self._between(sender, receiver):
            self.deliver_one(sender, receiver)

    def _between(self, sender: int | str, receiver: int | str) -> list[Link]:
        return [
            link
            for link in self.network.deliverable()
            if self._is_one(link[0], (sender,)) and self._is_one(link[1], (receiver,))
        ]

    def _is_one(self, party: Party, parties: tuple[int | str, ...]) -> bool:
        number = party if isinstance(party, str) else party.serial % SERIALS
        return not parties or number in parties
