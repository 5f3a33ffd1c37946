"""A simulator and model checker for elections, on the network of `locks_lab.worlds`.

It runs the same code as the actors: lock servers, agents, and the core of instances
(`locks_leader.core.instance_core`). Its modules, from the bottom up:

    A world       parties      the parties, and their messages besides those of the election
                  rules        `RULES`: the machines of a world, ours and wrong ones
                  application  a set that only grows, as the instances' state
                  member       a simulated instance: carries out the effects of its core
                  node         a simulated node; the actions of users, and the eager events
                  checks       the invariants, and the checks when all is quiet
                  world        `ElectionWorld`, `ElectionPlan`: all of the above together
    At random     schedule     `run`: a random schedule; `settle`: until all is quiet
                  plan         `draw`: the world of a seed
                  runs         the worlds of many seeds; `storm`: random splits, joins and checks
    Every order   explore      `explore`: depth first; `ExploredElections`, `TooManyStates`

Import from the modules: `from locks_lab.leader.explore import explore`.
`python -m locks_lab.leader --help` runs worlds of many seeds, and storms.
"""

__all__: list[str] = []
