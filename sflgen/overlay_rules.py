"""The rules that an overlay must hold: those that concern its region, without those that change no answer.

A rule before the one that decides about the whole region is left out if its packets would get the same
target there, and no rule in between may have another effect on one of them.  In a list whose rules mostly
accept, the overlay of one more accepting rule is that rule.

Invariant: the overlay has the effect of all rules that concern the region.  The number of rules before
two equal rules is the same only if no rule between them has another effect on their packets, so it tells
them apart where they differ (deletion.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from hitables.analyse.redundancy import acting
from hitables.emit.chain_writer import goto
from hitables.ir.choices import Malformed
from hitables.ir.program import Chain
from hitables.ir.rule import Ends, Kind, Match, Metadata, Role, Rule, Target

from .region import Region

# A rule is left out if it meets none of the rules with other effects behind it.  With more of those it is
# kept: to compare all pairs takes longer than to load the rule.
MOST_OTHERS = 8

# If more of the rules kept have the target of the last one, the boxes of all are compared
# (analyse/redundancy.py), which takes 15 microseconds a rule where nft takes 80 to load one.  In fw1_10K, a
# third of whose rules log and drop, overlays of 700 rules keep 2 to 430, those of 4,000 half of that share.
MANY_ALIKE = 16

# In the place of no target, which is no effect to redundancy.py: a rule that only counts must count the same
# packets as in the list.
_COUNTS = Target("counts", Kind.VERDICT, "counts", ends=Ends.NEVER)

Writes = Callable[[Rule], frozenset[Metadata]]


def needed(
    region: Region,
    rules: Sequence[Rule],
    decided: bool,
    writes: Writes,
    exact: bool,
    deciding: Container[str] = (),
) -> list[int]:
    """The indices of the rules to keep, of all *rules* that concern *region*, in order.

    *decided*: the last one decides about the whole region.  *writes*: what a rule may write.  *exact*: a
    malformed packet must be dropped where the list drops it, so all are kept.  *deciding*: the user chains
    that surely decide.
    """
    if exact or not decided or any(map(writes, rules)):
        return list(range(len(rules)))
    last = rules[-1]
    kept = [len(rules) - 1]
    others: list[Callable[[Rule], bool]] = []  # of each: whether a rule shares no packet with it
    is_plain: dict[int, bool] = {}  # by id of a match
    alike = 0  # rules with the target of the last one that are kept

    def plain(match: Match) -> bool:
        """Whether the match does nothing but hold or not."""
        known = is_plain.get(id(match))
        if known is None:
            is_constant = match.role in (Role.SPACE, Role.CONSTANT)
            known = is_plain[id(match)] = is_constant and not region.may_be_dropped_by((match,))
        return known

    for at in range(len(rules) - 2, -1, -1):
        rule = rules[at]
        is_alike = (
            rule.target is not None
            and last.target is not None
            and (rule.leaves or rule.enters in deciding)
            and rule.target.key == last.target.key
            and rule.target.kind is last.target.kind
        )
        if is_alike and all(map(plain, rule.matches)):
            if len(others) <= MOST_OTHERS and all(escapes(rule) for escapes in others):
                continue
            alike += 1
        elif len(others) <= MOST_OTHERS:
            # It may ask its memory about packets that its later matches do not fit.
            reached = rule._replace(matches=(*region.matches, *rule.matches))
            reach = Region.of(reached, frozenset(), False, region.family, region.backends)
            others.append(reach.escaping())
        kept.append(at)
    kept.reverse()
    if alike > MANY_ALIKE:
        kept = [kept[at] for at in _acting(region, [rules[at] for at in kept], deciding)]
    return kept


def _acting(region: Region, rules: Sequence[Rule], deciding: Container[str]) -> list[int]:
    """The indices of the rules that change an answer for packets of *region*, and of the last one.

    No packet comes back from a chain that surely decides, so a rule might as well enter it by -g.
    """
    inside = [
        rule._replace(
            matches=(*region.matches, *rule.matches),
            target=goto(rule.enters) if rule.enters and rule.enters in deciding else rule.target or _COUNTS,
        )
        for rule in rules
    ]
    chain = Chain("overlay", None, tuple(inside))
    return acting(chain, region.family, region.backends, Malformed.STRICTER, len(rules) - 1)
