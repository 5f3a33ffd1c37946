"""The pure core of an election: the decisions of one instance, and the messages between instances.

    messages        the messages between instances
    events          the events and effects of an instance
    membership, contest, merge, calls
                    its state for each of these
    machine         its role
    instance_core   its mailbox, and when it looks at what; driven by the actor and the simulator

Nothing here has a clock, threads, sockets or actors; of `locks` only the errors are imported.
"""
