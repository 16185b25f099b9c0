"""RETURN of a built-in chain, printed as the chain's policy.

RETURN ends a packet's way through a built-in chain as the policy does, so such a rule decides its packets.
In a chain of a tree that is entered by `-j` it would come back to the tree; ACCEPT or DROP does not.  So the
trees of groups, trees that are called, and trees over rules with memory print the policy in place of RETURN,
and may hold such rules where they hold verdicts.  Elsewhere RETURN stays.

A policy that is changed later, in the kernel alone, would not reach what is printed so.  Where other programs
are known to work on the rule set (--leave) RETURN stays, as it does for updates (as_written), which may
change the policy.
"""

from __future__ import annotations

from ..ir.program import Chain
from ..ir.rule import Ends, Kind, Rule, Target
from .options import Options


def by_policy(chain: Chain, options: Options) -> tuple[Rule, ...]:
    """The rules of *chain*, with the policy in place of RETURN where that is the same.

    A rule that is not changed is the same object.
    """
    end = chain.end
    if end is None or options.as_written or options.leave:
        return chain.rules
    policy = Target(end, Kind.VERDICT, end, ends=Ends.SURELY)
    return tuple(rule._replace(target=policy) if rule.returns else rule for rule in chain.rules)
