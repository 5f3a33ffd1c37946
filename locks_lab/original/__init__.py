"""A model of the original: its lock table, its agents and its messages, in a simulated world.

It was derived from the behaviour and the source of the Erlang application. It is not our algorithm
with a changed rule: it has whole queues, one for each lock id, with copies in the queues above and
below. `docs/differences.md` shows where it fails.

    queues    the queue of one lock: groups of entries, copies
    table     rows of queues with their versions; requests, surrenders, watchers
    messages  the messages of its lock servers and agents
    server    a lock server: handles one message, sends whole queues
    circles   the circle that an agent finds, and who must give up what
    variants  `VARIANTS`: other rules that its README discusses
    agent     an agent
    world     lock servers, clients and messages in flight
    explore   a shortest failing schedule
    runs      rings in each order of requests, random schedules
    story     traces as sentences and drawings
"""

__all__: list[str] = []
