"""Crowds in virtual time: the real machines behind queues, on processors that are busy.

`World` (`locks_lab.worlds.world`) asks what can happen in some order. Here the question is how long it takes: each link is
a first-in-first-out queue, each message costs processor time, a server does one thing at a time. So what shows only
when many want the same shows here: a scheduler that leaves a processor idle, a step that gets dearer with the queue, a
release behind the requests of others, messages that grow with the crowd. (Decision 0078.)

    shape      what a crowd is and does
    prices     what a step costs
    links      queues, and who is read next
    machines   processors, lock servers, programs
    clients    what a client does
    measures   what is measured and checked
    rules      our rules, and wrong ones that must be caught
    crowd      all of it, run once
"""

from locks.form import require_interpreted

require_interpreted("the simulator")
