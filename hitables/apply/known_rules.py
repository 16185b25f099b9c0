"""Rules that other programs put directly into built-in chains, known by their comments, ipsets or forms.

calico and kube-router (a part of k3s) accept there what their policies have marked, and earlier versions of
flannel what is of its network; crowdsec, and some actions of fail2ban, drop there what an ipset has;
NetworkManager masquerades there what comes from its shared connections; all rules of LXD, Incus and lxc-net
for a network are there, and those of wg-quick and strongSwan for a tunnel; ocserv-fw accepts and rejects
there what its clients send; opensnitch and suricata get packets from there by a queue.  --leave keeps chains
and the rules that enter them, and no others: a rule set that has the table removes these rules, unless it has
them itself.
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

_NO_OTHERS = "--leave {program} keeps its chains and the jumps to them, and no other rules"
_OF_PRESET = f"{_NO_OTHERS}; have these in {{file}}"
_ACCEPTING = f"{_OF_PRESET}, in front of what drops all other packets"
_FIRST = f"{_OF_PRESET}, in front of all other rules of the chain"
_MASQUERADING = f"{_FIRST}, or leave table {{table}} out of it"
_OF_TUNNELS = (
    "no --leave keeps them; leave table {table} out of {file}, or have rules of your own there that do the "
    "same, without the comment"
)
_OF_IPSEC = (
    "no --leave keeps them; have rules in {file} that do the same without --reqid, as for all tunnels "
    "-m policy --dir in --pol ipsec"
)
_OF_CLIENTS = (
    f"{_NO_OTHERS}; ocserv-fw makes these for each client that connects, so let those that are connected now "
    "do so anew: until then they may reach what it rejected"
)
_QUEUEING = (
    "a program that reads the queue gets no packets by them any more; restart it if it makes them itself, as "
    "opensnitch does, or have them in {file}"
)
_OF_NETWORKS = (
    "no --leave keeps them; have rules of your own for its networks in {file}, or restart {program}, which "
    "makes its rules again"
)


class _Marks(NamedTuple):
    """How rules of a program are known.

    advice    what to do if a rule set removes them; the program, the table and the file go into it
    comments  patterns for their comments
    sets      patterns for the ipsets that they match
    forms     patterns for their texts
    words     words of matches or targets, of which each rule of these forms has one: others need no text
    called    what the warning calls them: users, too, may write rules of these forms
    """

    advice: str
    comments: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    called: str = "of {program}"


# Of its bridge and its network, as they are called by default.
_OF_LXC_NET = (
    "-A INPUT -i lxcbr0 -p udp -m udp --dport 67 -j ACCEPT",
    "-A INPUT -i lxcbr0 -p tcp -m tcp --dport 67 -j ACCEPT",
    "-A INPUT -i lxcbr0 -p udp -m udp --dport 53 -j ACCEPT",
    "-A INPUT -i lxcbr0 -p tcp -m tcp --dport 53 -j ACCEPT",
    "-A FORWARD -i lxcbr0 -j ACCEPT",
    "-A FORWARD -o lxcbr0 -j ACCEPT",
    "-A POSTROUTING -s 10.0.3.0/24 ! -d 10.0.3.0/24 -j MASQUERADE",
    "-A POSTROUTING -o lxcbr0 -p udp -m udp --dport 68 -j CHECKSUM --checksum-fill",
)

# By program, a preset of --leave or one that has none; NFQUEUE: any program that reads a queue.
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
    "lxc-net": _Marks(
        _OF_NETWORKS,
        forms=_OF_LXC_NET,
        words=("lxcbr0", "10.0.3.0/24"),
        called="of the kind that {program} makes",
    ),
    "ocserv": _Marks(_OF_CLIENTS, comments=("ocserv-fw",)),
    # Its script _updown; the number is that of the connection.
    "strongSwan": _Marks(
        _OF_IPSEC,
        forms=("-A * -m policy --dir * --pol ipsec --reqid * --proto * -j ACCEPT",),
        words=("--reqid",),
        called="of the kind that {program} makes",
    ),
    "NFQUEUE": _Marks(_QUEUEING, forms=("-A * -j NFQUEUE*",), words=("NFQUEUE",), called="with -j {program}"),
}
_WORDS = {word for marks in _MARKS.values() for word in marks.words}


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
        if (program := _program_of(rule, chain.name)) and not is_foreign(rule.enters or "", patterns)
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
            yield KnownRule(program, table.name, chain, _text(rule, chain))


def _program_of(rule: Rule, chain: str) -> str:
    """The program that is known to have written the rule; "" if none is."""
    for match in rule.matches:
        if match.name in ("comment", "set"):
            name = _name_in(match)
            for program, marks in _MARKS.items():
                patterns = marks.comments if match.name == "comment" else marks.sets
                if any(fnmatchcase(name, pattern) for pattern in patterns):
                    return program
    has_word = rule.target is not None and rule.target.name in _WORDS
    if has_word or any(word in _WORDS for match in rule.matches for word in match.words):
        text = _text(rule, chain)
        for program, marks in _MARKS.items():
            if any(fnmatchcase(text, form) for form in marks.forms):
                return program
    return ""


def _text(rule: Rule, chain: str) -> str:
    return rule_text(rule._replace(counters=None), chain)


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
        called = _MARKS[program].called.format(program=program)
        advice = _MARKS[program].advice.format(program=program, table=table, file=file)
        yield (
            f"warning: {by} removes {counted(len(own), 'rule')} {called} from table {table} "
            f"({', '.join(chains)}), as '{own[0].text}': {advice}"
        )
