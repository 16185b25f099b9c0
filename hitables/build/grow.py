"""Growing trees: the builders of the C engine by name, and their options.

A builder is bounded by work that is counted, never by time, so a tree is the same on every machine.  Building
takes seconds for 10,000 rules and can be interrupted.
"""

from __future__ import annotations

from hitables.analyse.boxes import Boxes
from hitables.core import trees

from .tree import Tree

NO_BUDGET = 2**63

# Cost (a rule read is 1) that one more printed rule must save, summed over one packet of each rule.  2.95
# keeps acl1 at the growth and the reads of its goals (make bench-trees); 1 reads a fiftieth less and prints a
# tenth more.
SIZE_PENALTY = 2.95

# Grouping effort (`grouping_effort` of struct tree_options), and work limit: how often a builder examines
# each box, on the mean, before it stops splitting.  Common are 10 to 90 times: acl1_10K 13, ipc1_10K 16,
# fw1_10K 79, ipc1_100k 88.
EFFORTS = {"fast": (0, 24), "normal": (1, 500), "best": (2, 5000)}

# The builder of the CoNEXT 2014 paper: any interval for a cut, and neither budget nor nesting kept.
PAPER = "paper"

# Bytes that building may take: what a tree over so many boxes needs, and some to spare.  A million rules of
# ClassBench's acl1 take 4 GB; a tree that would take the rest of the machine is not worth its printed rules.
MEMORY, MEMORY_PER_BOX = 2**31, 8 * 1024

# Builders that keep all constraints, in the engine's order.
ALGORITHMS = tuple(name for name, is_bounded in trees.BUILDERS.items() if is_bounded)


def grow(
    boxes: Boxes,
    *,
    algorithm: str = "bisect",
    leaf_size: int = 8,
    max_nesting: int = 12,
    budget: int = NO_BUDGET,
    copy_penalty: float = 0.3,
    size_penalty: float = SIZE_PENALTY,
    grouping: int = 0,
    spfac: float = 4.0,
    unequal: bool = False,
    least_max: bool = False,
    lone_chains: bool = False,
    first_cuts: int = 4,
    memory: int | None = None,
    effort: str = "normal",
) -> Tree:
    """Build a tree with one of ALGORITHMS, or PAPER.

    leaf_size     do not split a list of at most this many rules (auto chooses by itself)
    max_nesting   most taken tests on a path
    budget        most printed rules (raised to the length of the list if it is below)
    copy_penalty  bisect: entries that a copied rule counts for
    size_penalty  auto: cost, by one packet of each rule, that printing another rule must save
    grouping      auto: 0 the cheapest grouping; n only the n-th of those that it would try
    spfac         hicuts, paper: rules that the parts of a node may hold, over those of the node;
                  hypercuts: parts of a node, over the root of its rules
    unequal       paper: cut between rules instead of in equal parts
    least_max     paper: cut the axis whose largest part has the fewest rules, instead of the one on which
                  most rules lie apart
    lone_chains   paper: LONE_LOOKUPS in place of LOOKUPS (tree.py)
    first_cuts    paper: equal cuts that are tried first, unless the root of a node's rules is more
    memory        most bytes that building may take, scratch aside (0: no limit; None: MEMORY, and
                  MEMORY_PER_BOX for each box); MemoryError beyond
    effort        auto, bisect: one of EFFORTS

    A KeyboardInterrupt in the main thread ends the building.
    """
    if memory is None:
        memory = MEMORY + MEMORY_PER_BOX * len(boxes.rule)
    if algorithm not in (*ALGORITHMS, PAPER):
        raise ValueError(f"no tree builder is called {algorithm!r}; use one of {', '.join(ALGORITHMS)}")
    if effort not in EFFORTS:
        raise ValueError(f"there is no effort {effort!r}; use one of {', '.join(EFFORTS)}")
    if (
        min(leaf_size, max_nesting, budget, memory, first_cuts - 1) < 0
        or not copy_penalty >= 0
        or not spfac >= 1
    ):
        raise ValueError("a tree's option is out of range")
    grouping_effort, work_limit = EFFORTS[effort]
    arrays = trees.grow(
        algorithm,
        boxes.tree_input(),
        leaf_size=min(leaf_size, 2**31),
        max_nesting=min(max_nesting, 2**31),
        budget=min(budget, NO_BUDGET),
        copy_penalty=copy_penalty,
        size_penalty=size_penalty,
        grouping=grouping,
        spfac=spfac,
        unequal=unequal,
        least_max=least_max,
        lone_chains=lone_chains,
        first_cuts=first_cuts,
        memory=memory,
        work_limit=work_limit,
        grouping_effort=grouping_effort,
    )
    return Tree(boxes, *arrays)
