"""From the rule set in a kernel to another one in three steps, of which packets see one.

    stage  new chains under new names, which no packet reaches
    flip   the built-in chains, and user chains that change, get their new rules: in nf_tables in one commit
           for all tables (flip_nft.py), else in one for each
    clean  chains that no packet reaches any more are removed

Generated chains (those of trees) may have any name, so they never change: a chain with other rules is another
chain.  One that the kernel has already, with all that it enters, is used again.

Invariant: after stage, and after flip, every packet is treated by one rule set as a whole.  A process that is
killed between two steps leaves the old rule set or the new one, and chains that no packet reaches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from ..ir.program import BUILT_IN
from ..parse.lines import quote
from .counts import returned_by_policy
from .texts import NO_COUNT, Chains, Count, fresh_names, head_line, renamed, rule_line


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The steps of one table.

    target   the chains afterwards, with their final names; without those of others
    names    the final name of each generated chain
    staged   chains that are new
    changed  chains that exist and change
    removed  chains that are not needed any more
    """

    table: str
    target: Chains
    names: dict[str, str] = field(default_factory=dict)
    staged: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.staged or self.changed or self.removed)


def plan(
    table: str, present: Chains, wanted: Chains, generated: Collection[str], left: Collection[str]
) -> TablePlan:
    """The steps from *present* to *wanted*.

    *generated*: the chains of *wanted* that may have any name.  *left*: the chains of others, which stay.
    """
    generated = dict.fromkeys(generated)  # in their order, and found at once
    own = {name: chain for name, chain in wanted.items() if name not in left}
    names = _reusable(present, own, generated, left)
    fresh = fresh_names({*present, *own})
    names |= {name: next(fresh) for name in own if name in generated and name not in names}
    target = renamed(own, names)
    return TablePlan(
        table,
        target,
        names,
        tuple(name for name in target if name not in present),
        tuple(
            name for name, chain in target.items() if name in present and present[name].differs_from(chain)
        ),
        tuple(name for name in present if name not in target and name not in left),
    )


def _reusable(
    present: Chains, wanted: Chains, generated: Collection[str], left: Collection[str]
) -> dict[str, str]:
    """By generated chain: the chain of *present* with the same rules, and with the same chains below.

    Each chain of *present* stands for one chain, because rules may have memory.
    """
    generated = {name: None for name in generated if name in wanted}
    spare = {
        name
        for name, chain in present.items()
        if name not in left and chain.policy == "-" and (name not in wanted or name in generated)
    }
    old, new = _contents(present, spare), _contents(wanted, generated)
    reused: dict[str, str] = {}
    taken: set[str] = set()

    def reuse(name: str, other: str) -> bool:
        if name in reused or other in taken or name not in new or new[name] != old.get(other):
            return False
        reused[name] = other
        taken.add(other)
        return True

    # First where the same rule enters both; so of equal chains each keeps its place.
    waiting = [(name, name) for name in wanted if name in present and name not in generated]
    while waiting:
        one, other = waiting.pop()
        for rule, same in zip(wanted[one].rules, present[other].rules, strict=False):
            if rule.enters and reuse(rule.enters, same.enters):
                waiting.append((rule.enters, same.enters))
    by_content: dict[str, list[str]] = {}
    for name in sorted(spare - taken, reverse=True):
        by_content.setdefault(old[name], []).append(name)
    for name in generated:
        if name not in reused and by_content.get(new[name]):
            reuse(name, by_content[new[name]].pop())
    return _consistent(reused, present, wanted)


def _contents(chains: Chains, nameless: Collection[str]) -> dict[str, str]:
    """A text for each chain of *nameless* that two chains share if they differ only in such names."""
    contents: dict[str, str] = {}
    entered: list[str] = []

    def content(name: str) -> str:
        if name not in contents:
            if name in entered:
                return f"circle {name}"
            entered.append(name)
            digest = hashlib.sha256()
            for rule in chains[name].rules:
                callee = rule.enters
                if callee in nameless and callee in chains:
                    body = rule.with_names({callee: content(callee)}).body
                else:
                    body = rule.body
                digest.update(body.encode("utf-8", "surrogateescape") + b"\n")
            entered.pop()
            contents[name] = digest.hexdigest()
        return contents[name]

    for name in nameless:
        if name in chains:
            content(name)
    return contents


def _consistent(reused: dict[str, str], present: Chains, wanted: Chains) -> dict[str, str]:
    """Those of *reused* whose rules, with the new names, are those of the chain that is used again."""
    while wrong := [
        name
        for name, old in reused.items()
        if [rule.with_names(reused).body for rule in wanted[name].rules] != present[old].bodies
    ]:
        for name in wrong:
            del reused[name]
    return reused


# The text of each step, for iptables-restore --noflush --counters.


def _heads(chains: Chains, table: str, policies: bool) -> str:
    """Lines that set the counters of policies, which legacy tools reset with every change of the table."""
    return "".join(head_line(name, chains[name]) for name in BUILT_IN[table] if policies and name in chains)


def stage_text(plan: TablePlan, present: Chains, resets: bool) -> str:
    """The text that loads the new chains, which no packet reaches yet; "" if there are none.

    *resets*: whether the tools reset the counters of policies.
    """
    if not plan.staged:
        return ""
    chains = {name: plan.target[name] for name in plan.staged}
    return new_chains_text(plan.table, chains, _heads(present, plan.table, resets))


def new_chains_text(table: str, chains: Chains, heads: str = "") -> str:
    """*chains* and their rules; *heads*: lines that come first."""
    if not chains and not heads:
        return ""
    heads += "".join(head_line(name, chain) for name, chain in chains.items())
    rules = "".join(rule_line(name, rule) for name, chain in chains.items() for rule in chain.rules)
    return f"*{table}\n{heads}{rules}COMMIT\n"


def flip_text(plan: TablePlan, present: Chains, resets: bool) -> str:
    """The text that gives all chains that change their new rules, in one commit; "" if none changes."""
    if not plan.changed:
        return ""
    counts = policy_counts(plan, present)
    policies = {
        name: replace(plan.target[name], count=counts.get(name, NO_COUNT))
        for name in BUILT_IN[plan.table]
        if name in plan.target and (resets or name in plan.changed)
    }
    lines = [f"*{plan.table}\n", *(head_line(name, chain) for name, chain in policies.items())]
    for name in plan.changed:
        if name in present and present[name].rules:
            lines.append(f"-F {quote(name)}\n")
        lines += [rule_line(name, rule) for rule in plan.target[name].rules]
    return "".join([*lines, "COMMIT\n"])


def policy_counts(plan: TablePlan, present: Chains) -> dict[str, Count]:
    """The counters of the policies after the change; rules may be printed as a policy before or after it."""
    before = returned_by_policy(present, {*plan.changed, *plan.removed})
    after = returned_by_policy(plan.target, {*plan.changed, *plan.staged})
    counts = {}
    for name in BUILT_IN[plan.table]:
        if name in present:
            counted = zip(
                present[name].count, before.get(name, NO_COUNT), after.get(name, NO_COUNT), strict=True
            )
            packets, size = (max(0, of_policy + was - now) for of_policy, was, now in counted)
            counts[name] = packets, size
    return counts


def unused(names: Collection[str], present: Chains) -> list[str]:
    """The chains *names* of *present*, without those that rules of its other chains enter, and all below."""
    waiting = [chain for name, chain in present.items() if name not in names]
    used: set[str] = set()
    while waiting:
        for rule in waiting.pop().rules:
            if rule.enters in names and rule.enters not in used and rule.enters in present:
                used.add(rule.enters)
                waiting.append(present[rule.enters])
    return [name for name in present if name in names and name not in used]


def clean_text(table: str, removed: Iterable[str], present: Chains, resets: bool) -> str:
    """The text that removes the chains *removed*, which no packet reaches any more; "" if there are none."""
    names = [quote(name) for name in removed]
    if not names:
        return ""
    lines = [f"-F {name}\n" for name in names] + [f"-X {name}\n" for name in names]
    return f"*{table}\n{_heads(present, table, resets)}{''.join(lines)}COMMIT\n"
