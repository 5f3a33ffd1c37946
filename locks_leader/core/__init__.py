"""The pure core of an election: what one instance does, and what instances say to each other.

    messages        what instances say to each other
    events          what happens to an instance, and what it wants done
    membership, contest, merge, calls
                    what it knows of each
    machine         its role
    instance_core   its mailbox, and what it looks at when: all that the actor and the simulator drive

Nothing here has a clock, threads, sockets or actors; of `locks` only the errors are imported.
"""
