"""A simulator and model checker for elections, on the network of `locks_lab.worlds`.

It runs what the actors run: lock servers, agents, and the core of instances
(`locks_leader.core.instance_core`). Its modules, from the bottom up:

    A world       parties      who there is, and what they say besides the election's messages
                  rules        `RULES`: which machines a world is made of, ours and wrong ones
                  application  a set that only grows, as the instances' state
                  member       a simulated instance: carries out what its core wants done
                  node         a simulated node; what users do there, and what is done as soon as it can be
                  checks       what must always be true, and what when all is quiet
                  world        `ElectionWorld`, `ElectionPlan`: all of that, under a schedule chosen from outside
    At random     schedule     `run`: a schedule at random; `settle`: until all is quiet
                  plan         `draw`: the world of a seed
                  runs         the worlds of many seeds; `storm`: random splits, joins and checks
    Every order   explore      `explore`: depth first, with an `ExploredElections`, or `TooManyStates`

Import from the modules: `from locks_lab.leader.explore import explore`.
`python -m locks_lab.leader --help` runs worlds of many seeds, and storms.
"""

__all__: list[str] = []
