"""The laboratory: a simulator and model checker for the algorithm. `docs/simulator.md` is its manual.

It runs the very machines that the actors run. Its rooms, from the bottom up:

    worlds        a world of lock servers, agents and clients, under a schedule that is chosen from outside
                    script     what a client does: steps, and how they are written
                    network    links between parties, connections between nodes
                    rules      `RULES`: which machines a world is made of, ours and others
                    study      what is read of a machine
                    host       simulated agents; `Violation`
                    client     their clients
                    events     what can happen, and what has happened
                    checks     what must always be true
                    world      `World`, `Faults`: all of that
                    trace      who occurs in a trace, and when messages arrive
    schedules     worlds at random
                    schedule   `run`: a schedule by a policy; `finish`: what is left, in order;
                               `carry_on`: the loop of both, for any world
                    plan       `plan`: the world of a seed and a `Shape`
                    runs       the worlds of many seeds, and what was seen in them
    explorer      every order of events
                    search     `Model`: states and moves; `DepthFirst`: a search of any model
                    explore    `explore`: depth first, with what was `Explored`, or `TooManyStates`
                    shortest   breadth first: a shortest schedule that goes wrong, of any model
                    space      the states of a world, and which orders need not be tried
                    outages    the states of its network
                    reactions  each step of each party, run once
                    freezing   which states are the same
                    small_worlds  all worlds of a `Kind`, rings
    cases         failures
                    case       `Case`: a world and its schedule as text; `replay`
                    shrink     `shrink`: the smallest case that goes wrong in the same way
    stories       what happened, in sentences and pictures
                    story      `act`: clients in turn; `tell`: a trace as sentences
                    formatter  messages as sentences, and as labels
                    diagrams   a trace as a Mermaid sequence diagram; wait-for graphs
    crowd         crowds of clients in virtual time, with queues and busy servers
    original      a model of the Erlang application, in a world of its own
    applications  functions of a program as clients, for `locks.testing`
                    strategies   which client is due when, drawn from a seed
                    agenda       what happens next, or whoever is chosen
                    places       where in the user's code something happens
                    greenlets    clients, and what is put down of them
                    application  all of that
    leader        elections in simulated worlds
    commands      the commands `locks sim` and `locks demo`

Programs load none of it: in `locks` only `locks.testing` stands on it, and the command line loads the commands when they are used
(decision 0080), and it reaches into them by one port (`locks.runtime.port`). Import from the modules: `from locks_lab.explorer.explore import explore`. Nothing is exported here: a program that needs
one module does not load the others.
"""

__all__: list[str] = []
