"""The rules that an overlay must hold: those that concern its region, without those that change no answer.

A rule before the one that decides about the whole region is left out if its packets would get the same
target there, and no rule in between may have another effect on one of them.  In a list whose rules mostly
accept, the overlay of one more accepting rule is that rule.

Invariant: the overlay has the effect of all rules that concern the region.  The number of rules before
two equal rules is the same only if no rule between them has another effect on their packets, so it tells
them apart where they differ (deletion.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hitables.ir.rule import Metadata, Role, Rule

from .region import Region

# A rule is left out only if it meets none of the rules with other effects behind it.  With more of those
# it is kept: to compare all pairs takes longer than to load the rule.
MOST_OTHERS = 8

Writes = Callable[[Rule], frozenset[Metadata]]


def needed(region: Region, rules: Sequence[Rule], decided: bool, writes: Writes, exact: bool) -> list[int]:
    """The indices of the rules to keep, of all *rules* that concern *region*, in order.

    *decided*: the last one decides about the whole region.  *writes*: what a rule may write.  *exact*: a
    malformed packet must be dropped where the list drops it, so all are kept.
    """
    if exact or not decided or any(map(writes, rules)):
        return list(range(len(rules)))
    last = rules[-1]
    kept = [len(rules) - 1]
    others: list[Callable[[Rule], bool]] = []  # of each: whether a rule shares no packet with it
    is_plain: dict[int, bool] = {}  # by id of a match
    for at in range(len(rules) - 2, -1, -1):
        rule = rules[at]
        is_alike = (
            rule.target is not None
            and last.target is not None
            and rule.leaves
            and rule.target.key == last.target.key
            and rule.target.kind is last.target.kind
        )
        if is_alike:
            for match in rule.matches:
                plain = is_plain.get(id(match))
                if plain is None:
                    plain = is_plain[id(match)] = match.role in (
                        Role.SPACE,
                        Role.CONSTANT,
                    ) and not region.may_be_dropped_by((match,))
                if not plain:
                    break
            else:
                if len(others) <= MOST_OTHERS and all(escapes(rule) for escapes in others):
                    continue
        elif len(others) <= MOST_OTHERS:
            others.append(Region((*region.matches, *rule.matches), region.family, region.backends).escaping())
        kept.append(at)
    return kept[::-1]
