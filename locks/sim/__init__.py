"""A simulator and model checker for the algorithm: `docs/simulator.md` is its manual.

It runs the very machines that the actors run. Its modules, from the bottom up:

    A world       script       what a client does: steps, and how they are written
                  network      links between parties, connections between nodes
                  rules        `RULES`: which machines a world is made of, ours and others
                  host         simulated agents; `Violation`
                  client       their clients
                  events       what can happen, and what has happened
                  checks       what must always be true
                  world        `World`, `Faults`: all of that, under a schedule chosen from outside
    At random     schedule     `run`: a schedule by a policy; `finish`: what is left, in order;
                               `carry_on`: the loop of both, for any world
                  plan         `plan`: the world of a seed and a `Shape`
                  runs         the worlds of many seeds, and what was seen in them
    Every order   search       `Model`: states and moves; `DepthFirst`: a search of any model
                  explore      `explore`: depth first, with what was `Explored`, or `TooManyStates`
                  shortest     breadth first: a shortest schedule that goes wrong, of any model
                  space        the states of a world, and which orders need not be tried
                  outages      the states of its network
                  reactions    each step of each party, run once
                  freezing     which states are the same
                  small_worlds all worlds of a `Kind`, rings
    Failures      case         `Case`: a world and its schedule as text; `replay`
                  shrink       `shrink`: the smallest case that goes wrong in the same way
    Stories       story        `act`: clients in turn; `tell`: a trace as sentences
                  formatter    messages as sentences, and as labels
                  diagrams     a trace as a Mermaid sequence diagram; wait-for graphs
                  trace        who occurs in a trace, and when messages arrive
    The original  original     a model of the Erlang application, in a world of its own
    Applications  strategies   which client is due when, drawn from a seed
                  agenda       what happens next, or whoever is chosen
                  places       where in the user's code something happens
                  greenlets    clients, and what is put down of them
                  application  functions of a program as clients, for `locks.testing`

The command line is in `locks.cli`.
Import from the modules: `from locks.sim.explore import explore`. Some of them are named after their
main function, so nothing is exported here; and who needs one module does not load the others.
"""

__all__: list[str] = []
