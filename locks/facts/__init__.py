"""Which transactions hold locks, which are waiting, since when and for whom, on all lock servers of a program.

* `look.py`: the answers of the lock servers at one time; pure.
* `gather.py`: asks the lock servers, and through them other nodes.
* `around.py`: elections and process groups; pure.
* `graph.py`: the wait-for graph of all answers; pure.
* `stories.py`: the graph in sentences; pure.
* `pictures.py`: the graph as a picture; pure.
"""

from typing import TYPE_CHECKING

from locks.runtime.first_use import at_first_use

if TYPE_CHECKING:
    from locks.core.facts import RequestFact
    from locks.core.statistics import NodeStatistics
    from locks.facts.gather import break_transaction, waits
    from locks.facts.graph import WaitEdge, WaitReport

__all__ = [
    "NodeStatistics",
    "RequestFact",
    "WaitEdge",
    "WaitReport",
    "break_transaction",
    "waits",
]

_get, __dir__ = at_first_use(
    "locks.facts",
    __all__,
    apart={
        "NodeStatistics": "locks.core.statistics",
        "RequestFact": "locks.core.facts",
        "WaitEdge": "locks.facts.graph",
        "WaitReport": "locks.facts.graph",
        "break_transaction": "locks.facts.gather",
        "waits": "locks.facts.gather",
    },
)

if not TYPE_CHECKING:
    __getattr__ = _get
