"""Rules that other programs put directly into built-in chains, known by their comments or their ipsets.

calico and kube-router (a part of k3s) accept there what their policies have marked, and earlier versions of
flannel what is of its network; crowdsec, and some actions of fail2ban, drop there what an ipset has;
NetworkManager masquerades there what comes from its shared connections; all rules of LXD and Incus for a
network are there, and those of wg-quick for a tunnel.  --leave keeps chains and the rules that enter them,
and no others: a rule set that has the table removes these rules, unless it has them itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from ..emit.text import rule_text
from ..ir.foreign import is_foreign, recognised
from ..ir.program import Program, Table
from ..ir.rule import Match, Rule
from ..nouns import counted
from .same_rules import rule_key

_OF_PRESET = (
    "--leave {program} keeps its chains and the jumps to them, and no other rules; have these in {file}"
)
_ACCEPTING = f"{_OF_PRESET}, in front of what drops all other packets"
_FIRST = f"{_OF_PRESET}, in front of all other rules of the chain"
_MASQUERADING = f"{_FIRST}, or leave table {{table}} out of it"
_OF_TUNNELS = (
    "no --leave keeps them; leave table {table} out of {file}, or have rules of your own there that do the "
    "same, without the comment"
)
_OF_NETWORKS = (
    "no --leave keeps them; have rules of your own for its networks in {file}, or restart {program}, which "
    "makes its rules again"
)


class _Marks(NamedTuple):
    """How rules of a program are known: by patterns for their comments, and for the ipsets that they match.

    advice  what to do if a rule set removes them; the program, the table and the file go into it
    """

    advice: str
    comments: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()


# By program, a preset of --leave or one that has none.
_MARKS = {
    "calico": _Marks(_ACCEPTING, comments=("cali:*",)),
    "kube": _Marks(_ACCEPTING, comments=("KUBE-ROUTER rule *",)),
    "flannel": _Marks(_ACCEPTING, comments=("flanneld *",)),
    "networkmanager": _Marks(_MASQUERADING, comments=("nm-shared*",)),
    # Its firewall bouncer, before version 0.0.30: later ones have these rules in CROWDSEC_CHAIN.
    "crowdsec": _Marks(_FIRST, sets=("crowdsec-blacklists*", "crowdsec6-blacklists*")),
    # Its actions iptables-ipset-*.
    "fail2ban": _Marks(_FIRST, sets=("f2b-*", "fail2ban-*")),
    "wg-quick": _Marks(_OF_TUNNELS, comments=("wg-quick(8) rule for *",)),
    "LXD": _Marks(_OF_NETWORKS, comments=("generated for LXD *",)),
    "Incus": _Marks(_OF_NETWORKS, comments=("generated for Incus *",)),
}


class KnownRule(NamedTuple):
    """A rule of *program*, with its text."""

    program: str
    table: str
    chain: str
    text: str


def removed(kernel: Program, wanted: Program, patterns: Sequence[str]) -> list[KnownRule]:
    """Such rules in *kernel* of which nothing in their chains does the same when *wanted* is loaded.

    *patterns*: of --leave.  Where a program has chains in the same table that they do not match, its rules
    are not among them: precautions.tell_of_presets tells of this program.
    """
    return [each for table in kernel for each in _removed_from(table, wanted, kernel, patterns)]


def _removed_from(
    table: Table, wanted: Program, kernel: Program, patterns: Sequence[str]
) -> Iterator[KnownRule]:
    of_programs = [
        (program, chain.name, rule)
        for chain in table.chains
        if chain.policy is not None and wanted.find_chain(table.name, chain.name) is not None
        for rule in chain.rules
        if (program := _program_of(rule)) and not is_foreign(rule.enters or "", patterns)
    ]
    if not of_programs:
        return
    told_of = recognised(replace(kernel, tables=(table,)), patterns)
    stay = {
        (chain, _key(rule))
        for chain in {chain for _, chain, _ in of_programs}
        for rule in wanted.rules_of(table.name, chain)
    }
    for program, chain, rule in of_programs:
        if program not in told_of and (chain, _key(rule)) not in stay:
            yield KnownRule(program, table.name, chain, rule_text(rule._replace(counters=None), chain))


def _program_of(rule: Rule) -> str:
    """The program that is known to have written the rule; "" if none is."""
    for match in rule.matches:
        if match.name in ("comment", "set"):
            name = _name_in(match)
            for program, marks in _MARKS.items():
                patterns = marks.comments if match.name == "comment" else marks.sets
                if any(fnmatchcase(name, pattern) for pattern in patterns):
                    return program
    return ""


def _key(rule: Rule) -> object:
    """The same for all spellings of a rule, with whatever comments."""
    return rule_key(rule._replace(matches=tuple(each for each in rule.matches if each.name != "comment")))


def _name_in(match: Match) -> str:
    """The name of the ipset that is matched, or the comment."""
    return match.words[-1 if match.name == "comment" else match.words.index("--match-set") + 1]


def warnings(rules: Sequence[KnownRule], by: str, file: str) -> Iterator[str]:
    """One for each program and table.  *rules*: as of `removed`; *by*: what removes them."""
    for program, table in dict.fromkeys((each.program, each.table) for each in rules):
        own = [each for each in rules if (each.program, each.table) == (program, table)]
        chains = dict.fromkeys(each.chain for each in own)
        advice = _MARKS[program].advice.format(program=program, table=table, file=file)
        yield (
            f"warning: {by} removes {counted(len(own), 'rule')} of {program} from table {table} "
            f"({', '.join(chains)}), as '{own[0].text}': {advice}"
        )
