"""Crowds in virtual time: the real machines behind queues, on busy processors.

`World` (`locks_lab.worlds.world`) simulates possible orders of events. This package simulates
durations: each link is a first-in-first-out queue, each message costs processor time, and a server
does one thing at a time. So it shows faults that appear only when many clients want the same lock:
a scheduler that leaves a processor idle, a step whose cost grows with the queue, a release that
waits behind the requests of others, messages that grow with the crowd. (Decision 0078.)

    shape      the parameters of a crowd
    prices     the cost of a step
    links      queues, and which is read next
    machines   processors, lock servers, programs
    clients    the transactions of a client
    measures   measurements and checks
    rules      our rules, and wrong ones that must be caught
    crowd      all of the above, run once
"""
