"""The original, as a model: its lock table, its agents and its messages, in a simulated world.

It is derived anew from how the Erlang application behaves and from its source, and it is not ours with a rule
changed: whole queues, one for each lock id, with copies in those above and below. `docs/original_explained.md` shows where it goes
wrong.

    queues    the queue of one lock: groups of entries, copies
    table     rows of queues with their versions; requests, surrenders, watchers
    messages  what its lock servers and agents say
    server    a lock server: takes in one message, tells whole queues
    circles   which circle an agent finds, and who is to give up what
    variants  `VARIANTS`: other rules that its README weighs
    agent     an agent
    world     lock servers, clients and messages on their way
    explore   a shortest schedule that goes wrong
    runs      rings in each order of asking, random schedules
    story     what happens, told and drawn
"""

__all__: list[str] = []
