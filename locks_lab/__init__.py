"""The laboratory: a simulator and model checker for the algorithm. `docs/simulator.md` is its manual.

It runs the same machines as the actors. Its packages, from the bottom up:

    worlds        a world of lock servers, agents and clients; the caller chooses the schedule
                    script     the steps of a client, and their notation
                    network    links between parties, connections between nodes
                    rules      `RULES`: the machines of a world: ours and others
                    study      the parts of a machine that simulators read
                    host       simulated agents; `Violation`
                    client     their clients
                    events     the possible events, and those of a trace
                    checks     the invariants
                    world      `World`, `Faults`: all of the above together
                    trace      the parties of a trace, and when messages arrive
    schedules     random worlds
                    schedule   `run`: a schedule by a policy; `finish`: the remaining events in
                               order; `carry_on`: the loop of both, for any world
                    plan       `plan`: the world of a seed and a `Shape`
                    runs       the worlds of many seeds, and statistics of them
    explorer      every order of events
                    search     `Model`: states and moves; `DepthFirst`: a search of any model
                    explore    `explore`: depth first; returns `Explored`, or `TooManyStates`
                    shortest   breadth first: a shortest failing schedule, of any model
                    space      the states of a world, and which orders need not be tried
                    outages    the states of its network
                    reactions  each step of each party, run once
                    freezing   which states are equivalent
                    small_worlds  all worlds of a `Kind`, rings
    cases         failures
                    case       `Case`: a world and its schedule as text; `replay`
                    shrink     `shrink`: the smallest case that fails in the same way
    stories       traces as sentences and pictures
                    story      `act`: clients in turn; `tell`: a trace as sentences
                    formatter  messages as sentences, and as labels
                    diagrams   a trace as a Mermaid sequence diagram; wait-for graphs
    original      a model of the Erlang application, in its own world
    applications  functions of a program as clients, for `locks.testing`
                    strategies   when each client is due, drawn from a seed
                    agenda       the next event: the earliest one, or a chosen one
                    places       where in the user's code something happens
                    greenlets    clients, and their notes
                    application  all of the above together
    leader        elections in simulated worlds
    play          worlds that are played step by step, on a page and in a terminal
                    board      `play`: the board after some moves; `Game`: what it needs of a world
                    situations the list of them, and their commands
                    requests   `respond`: what the page asks
                    stepping   a terminal
    commands      the commands `locks sim`, `locks demo` and `locks play`

Programs load none of it. In `locks`, only `locks.testing` uses it, and the command line loads a
command when it is run (decision 0003). The laboratory reaches into the product by one port
(`locks.runtime.port`). Import from the modules: `from locks_lab.explorer.explore import explore`.
Nothing is exported here, so a program that needs one module does not load the others.
"""

__all__: list[str] = []
