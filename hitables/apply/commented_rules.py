"""Rules that other programs put directly into built-in chains, known by their comments.

calico and kube-router (a part of k3s) accept there what their policies have marked, and earlier versions of
flannel what is of its network; all rules of LXD and Incus for a network are there.  --leave keeps chains and
the rules that enter them, and no others: a rule set that has the table removes these rules, unless it has
them itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from ..emit.text import rule_text
from ..ir.foreign import PRESETS, is_foreign
from ..ir.program import Chain, Program
from ..ir.rule import Rule
from ..nouns import counted
from .same_rules import rule_key

# By program, a preset of --leave or one that has none: patterns for the comments of its rules.
COMMENTS = {
    "calico": ("cali:*",),
    "kube": ("KUBE-ROUTER rule *",),
    "flannel": ("flanneld *",),
    "LXD": ("generated for LXD *",),
    "Incus": ("generated for Incus *",),
}


class CommentedRule(NamedTuple):
    """A rule of *program*, with its text."""

    program: str
    table: str
    chain: str
    text: str


def removed(kernel: Program, wanted: Program, patterns: Sequence[str]) -> list[CommentedRule]:
    """Such rules in *kernel* that are not there any more when *wanted* is loaded.

    *patterns*: of --leave.  Presets that it does not name are told of by precautions.tell_of_presets.
    """
    programs = [
        each for each in COMMENTS if each not in PRESETS or not set(patterns).isdisjoint(PRESETS[each])
    ]
    chains = {(table.name, chain.name): chain.rules for table in wanted for chain in table.chains}
    return [
        each
        for table in (kernel if programs else ())
        for chain in table.chains
        if chain.policy is not None and (table.name, chain.name) in chains
        for each in _removed_from(table.name, chain, chains[table.name, chain.name], programs, patterns)
    ]


def _removed_from(
    table: str, chain: Chain, wanted: Sequence[Rule], programs: Sequence[str], patterns: Sequence[str]
) -> Iterator[CommentedRule]:
    of_programs = [
        (program, rule)
        for rule in chain.rules
        if not is_foreign(rule.enters or "", patterns) and (program := _program_of(rule, programs))
    ]
    stay = set(map(rule_key, wanted)) if of_programs else set()
    for program, rule in of_programs:
        if rule_key(rule) not in stay:
            text = rule_text(rule._replace(counters=None), chain.name)
            yield CommentedRule(program, table, chain.name, text)


def _program_of(rule: Rule, programs: Iterable[str]) -> str:
    """Which of *programs* has written the rule by its comments; "" if none has."""
    comments = [match.words[-1] for match in rule.matches if match.name == "comment"]
    return next(
        (
            program
            for program in programs
            if any(fnmatchcase(comment, pattern) for comment in comments for pattern in COMMENTS[program])
        ),
        "",
    )


def warnings(rules: Sequence[CommentedRule], by: str, file: str) -> Iterator[str]:
    """One for each program and table.  *rules*: as of `removed`; *by*: what removes them."""
    for program, table in dict.fromkeys((each.program, each.table) for each in rules):
        own = [each for each in rules if (each.program, each.table) == (program, table)]
        chains = dict.fromkeys(each.chain for each in own)
        if program in PRESETS:
            advice = (
                f"--leave {program} keeps its chains and the jumps to them, and no other rules; have these "
                f"in {file}, in front of what drops all other packets"
            )
        else:
            advice = (
                f"no --leave keeps them; have rules of your own for its networks in {file}, or restart "
                f"{program}, which makes its rules again"
            )
        yield (
            f"warning: {by} removes {counted(len(own), 'rule')} of {program} from table {table} "
            f"({', '.join(chains)}), as '{own[0].text}': {advice}"
        )
