"""Chains that other programs manage: their names, and what their rules may do to a packet.

docker, fail2ban or kube-proxy change their own chains at any time.  So a rule set is compiled and compared
without the rules of these chains: each holds one rule of unknown effect instead (`hide`).

Invariant: two programs that are equal with hidden chains stay equal whatever these chains hold, as long as
their rules are rules of iptables.  No such rule changes an interface.  In table filter none changes an
address, a port or the state of a connection, because the kernel accepts those targets in other tables only;
in table nat, those that do end the packet's path there.  They are taken to share no memory with the program:
counters of ipsets, lists of `recent`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from ..errors import InvalidOption
from .program import BUILT_IN, Chain, Program, Table
from .rule import EVERYTHING, Ends, Kind, Metadata, Rule, Target

# Chains of firewalld by zone, and of groups of rules of Proxmox.  Other programs call chains so, too.
_BY_ZONE = ("IN_*", "OUT_*", "FWD_*", "FWDI_*", "FWDO_*", "PRE_*", "POST_*")
_GROUPS = ("GROUP-*-IN", "GROUP-*-OUT")
# Of the CNI plugins, for containerd, nerdctl, k3s and kubeadm; podman used them, too, before netavark.
_CNI = ("CNI-*",)
# By program: patterns for the names of its chains.
PRESETS: dict[str, tuple[str, ...]] = {
    "docker": ("DOCKER", "DOCKER-*"),
    "fail2ban": ("f2b-*", "fail2ban-*"),
    "kube": ("KUBE-*",),
    "calico": ("cali-*",),
    "cilium": ("CILIUM_*", "OLD_CILIUM_*"),
    "flannel": ("FLANNEL-*",),
    "cni": _CNI,
    "podman": ("NETAVARK_*", "NETAVARK-*", *_CNI),
    # FI and so on are chains by the interface of a guest; FJ, FP and HJ are theirs while they are written.
    # Interfaces that are not called vnet0 and so on have chains whose names could be anybody's.
    "libvirt": (
        *("LIBVIRT_*", "libvirt-in", "libvirt-out", "libvirt-in-post", "libvirt-host-in"),
        *("FI-vnet*", "FO-vnet*", "HI-vnet*", "FJ-vnet*", "FP-vnet*", "HJ-vnet*"),
    ),
    # pve-firewall: its own chains, those of guests by interface and by bridge, and those of groups of rules.
    "proxmox": (
        *("PVEFW-*", "tap*i*-IN", "tap*i*-OUT", "veth*i*-IN", "veth*i*-OUT"),
        *("fwbr*-FW", "fwbr*-IN", "fwbr*-OUT", "fwbr*-IPS", *_GROUPS),
    ),
    "ufw": ("ufw-*", "ufw6-*"),
    "firewalld": (
        *(*_BY_ZONE, "RFC3964_IPv4"),
        *("INPUT_ZONES*", "FORWARD_*ZONES*", "PREROUTING_ZONES*", "POSTROUTING_ZONES*"),
        *("INPUT_POLICIES*", "FORWARD_POLICIES*", "OUTPUT_POLICIES*"),
        *("PREROUTING_POLICIES*", "POSTROUTING_POLICIES*"),
        # From 2.5 on in place of these.  Chains whose names would be longer than 28 letters have random ones;
        # they are entered from these, and so left, too.
        *("INPUT_dispatch", "FORWARD_dispatch", "OUTPUT_dispatch"),
        *("PREROUTING_dispatch", "POSTROUTING_dispatch"),
        *("INPUT_direct", "FORWARD_direct", "OUTPUT_direct", "PREROUTING_direct", "POSTROUTING_direct"),
        *("INPUT_dnat", "FORWARD_dnat", "OUTPUT_dnat"),
    ),
    # Of shared connections, two for each interface.
    "networkmanager": ("nm-sh-*",),
    "crowdsec": ("CROWDSEC_*", "crowdsec-*"),
    "miniupnpd": ("MINIUPNPD", "MINIUPNPD-*"),
    "sshguard": ("sshguard",),
    "tailscale": ("ts-input", "ts-forward", "ts-postrouting"),
    "psad": ("PSAD_*",),
    "fwknop": ("FWKNOP_*",),
    "sshuttle": ("sshuttle-*",),
    "neutron": ("neutron-*",),
    "opensnitch": ("opensnitch-*",),
    # Of ocserv-fw, by the interface of a client; earlier versions make those for INPUT, too.
    "ocserv": ("FORWARD-ocserv-fw-*", "INPUT-ocserv-fw-*"),
}

# Chains that a program fills, but does not make: the user declares them, and writes the jumps to them.
MADE_BY_USER = ("sshguard",)


class _Appended(NamedTuple):
    """Jumps that a program appends, behind all rules; most programs insert them in front of all.

    entered   a pattern for the chains that are entered so
    names     some of them
    chains    the built-in chains that enter them
    at_start  whether the program appends it anew whenever it starts, after a boot at the latest
    """

    entered: str
    names: tuple[str, ...]
    table: str
    chains: tuple[str, ...]
    at_start: bool


_APPENDED = (
    _Appended("DOCKER", ("DOCKER",), "nat", ("PREROUTING", "OUTPUT"), True),
    _Appended(
        "NETAVARK-*",
        ("NETAVARK-HOSTPORT-DNAT", "NETAVARK-1D8721804F16F"),
        "nat",
        ("PREROUTING", "OUTPUT", "POSTROUTING"),
        True,
    ),
    # portmap appends this one if it is missing, as after a boot; bridge appends one with a hash for each
    # container.
    _Appended("CNI-HOSTPORT-DNAT", ("CNI-HOSTPORT-DNAT",), "nat", ("PREROUTING", "OUTPUT"), True),
    _Appended("CNI-[0-9a-f]*", ("CNI-1abb70b64f54bf384ceebd70",), "nat", ("POSTROUTING",), True),
    _Appended("FLANNEL-*", ("FLANNEL-POSTRTG",), "nat", ("POSTROUTING",), True),
    _Appended("FLANNEL-*", ("FLANNEL-FWD",), "filter", ("FORWARD",), True),
    # For each client that connects.
    *(
        _Appended(f"{chain}-ocserv-fw-*", (f"{chain}-ocserv-fw-vpns0",), "filter", (chain,), True)
        for chain in ("FORWARD", "INPUT")
    ),
    # The boot makes the chains of ufw and the jumps (apply/boot_texts.py), which ufw then leaves as they are.
    _Appended("ufw*-*", ("ufw-before-input",), "filter", ("INPUT", "OUTPUT", "FORWARD"), False),
    *(
        _Appended(f"PVEFW-{chain}", (f"PVEFW-{chain}",), table, (chain,), True)
        for table, chains in (("filter", ("INPUT", "OUTPUT", "FORWARD")), ("raw", ("PREROUTING",)))
        for chain in chains
    ),
)

_BUILT_IN = dict.fromkeys(name for names in BUILT_IN.values() for name in names)

# What no rule of iptables changes, and what none in tables filter and nat changes of packets that go on.
_NEVER_CHANGED = frozenset({Metadata.META})
_NOT_CHANGED = _NEVER_CHANGED | {Metadata.CT, Metadata.ADDRESSES, Metadata.PAYLOAD}


def patterns_of(words: Iterable[str]) -> tuple[str, ...]:
    """The patterns that *words* of --leave stand for: a preset for its own, other words for themselves.

    InvalidOption for several in one word, and for a word with * or ? that means built-in chains, too.
    """
    words = tuple(words)
    for word in words:
        if not isinstance(word, str):
            raise InvalidOption(f"--leave {word!r}: not a name of chains")
        if not word:
            raise InvalidOption("--leave: an empty name; name a program or chains, or leave the option out")
        built_in = next((name for name in _BUILT_IN if fnmatchcase(name, word)), "")
        if built_in and word != built_in:
            raise InvalidOption(
                f"--leave {word}: it matches the built-in chain {built_in}, which is no other program's"
            )
        parts = word.split(",")
        if len(parts) > 1 and any(part in PRESETS or set(part) & set("*?") for part in parts):
            each = " ".join(f"--leave {part}" for part in parts)
            raise InvalidOption(f"--leave {word}: name one program or pattern at a time: {each}")
    return tuple(dict.fromkeys(pattern for word in words for pattern in PRESETS.get(word, (word,))))


def unmatched(words: Iterable[str], programs: Iterable[Program]) -> list[tuple[str, str]]:
    """The names among *words* of --leave that no chain has; with each the preset that it resembles, or "".

    A pattern with *, ? or [ may wait for chains that come later, and so may a preset.
    """
    names = {chain.name for program in programs for table in program for chain in table.chains}
    lone = [
        word for word in words if word not in PRESETS and word not in names and not set(word) & set("*?[")
    ]
    return [(word, next(iter(difflib.get_close_matches(word, PRESETS, 1)), "")) for word in lone]


def is_foreign(name: str, patterns: Sequence[str]) -> bool:
    """Whether the chain *name* matches one of *patterns*, as fnmatch.fnmatchcase does."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def preset_of(name: str) -> str:
    """The word for --leave that means the chain *name*: the program that is known to have it, or the name."""
    return next((word for word, patterns in PRESETS.items() if is_foreign(name, patterns)), name)


def appended(table: str, chain: Chain, patterns: Sequence[str]) -> str:
    """A foreign chain whose program may append its jump to *chain* of *table*; "" if none is known to.

    So each packet that no rule of the chain decides must reach its end.
    """
    for each in _APPENDED:
        if each.table != table or chain.name not in each.chains:
            continue
        # A pattern without * and ? is a name.
        names = (name for name in (*each.names, *patterns) if is_foreign(name, (each.entered,)))
        name = next((name for name in names if is_foreign(name, patterns)), "")
        entered = (rule.enters or "" for rule in chain.rules)
        if name and (each.at_start or not any(is_foreign(other, (each.entered,)) for other in entered)):
            return name
    return ""


def goes_last(table: str, chain: str, entered: str) -> bool:
    """Whether the program of chain *entered* puts its jump behind all rules of *chain* at each start."""
    return any(
        each.at_start
        and each.table == table
        and chain in each.chains
        and is_foreign(entered, (each.entered,))
        for each in _APPENDED
    )


def recognised(program: Program, patterns: Sequence[str] = ()) -> list[str]:
    """The presets that match user chains of *program* which *patterns* do not match.

    A chain of a pattern that several presets have tells of the first of them alone.
    """
    names = {chain.name for table in program for chain in table.chains if chain.policy is None}
    unmatched = [name for name in names if not is_foreign(name, patterns)]
    seen = {*_BY_ZONE, *_GROUPS}
    found = []
    for preset, own in PRESETS.items():
        telling = [pattern for pattern in own if pattern not in seen]
        seen.update(own)
        if any(is_foreign(name, telling) for name in unmatched):
            found.append(preset)
    return found


def unknown_rule(table: str, chain: str) -> Rule:
    """The rule in place of those of *chain*: it may end a packet's path, and write what rules there can."""
    writes = EVERYTHING - (_NOT_CHANGED if table in ("filter", "nat") else _NEVER_CHANGED)
    name = _rules_of(chain)
    return Rule((), Target(name, Kind.VERDICT, name, ends=Ends.MAYBE, writes=writes))


def _rules_of(chain: str) -> str:
    """The name of the target of `unknown_rule`; no text has a target with spaces."""
    return f"the rules of chain {chain}"


def is_hidden(rule: Rule, chain: str) -> bool:
    """Whether *rule* stands for the rules of a foreign *chain*."""
    return rule.target is not None and rule.target.name == _rules_of(chain)


def is_unknown(target: Target) -> bool:
    """Whether *target* may do anything to a packet: a hidden chain's rules, or an extension without a row.

    Extensions that are known drop the packet if they end its path only sometimes (TCPMSS, SYNPROXY).
    """
    return target.ends is Ends.MAYBE and target.writes >= EVERYTHING - _NOT_CHANGED


def hide_in_table(table: Table, patterns: Sequence[str]) -> Table:
    """*table* with one rule of unknown effect in each foreign chain."""
    names = {chain.name for chain in table.chains if is_foreign(chain.name, patterns)}
    if not names:
        return table
    chains = (
        chain.with_rules((unknown_rule(table.name, chain.name),)) if chain.name in names else chain
        for chain in table.chains
    )
    return replace(table, chains=tuple(chains))


def hide(program: Program, patterns: Sequence[str]) -> Program:
    """*program* with one rule of unknown effect in each foreign chain."""
    if not patterns:
        return program
    return replace(program, tables=tuple(hide_in_table(table, patterns) for table in program))


def with_appended(program: Program, patterns: Sequence[str]) -> Program:
    """*program*, hidden, with the jumps that others append where there are none yet.

    Programs that are equal so stay equal when the jumps come.
    """
    if not patterns:
        return program
    tables = []
    for table in program:
        jumps = {
            chain.name: name
            for chain in table.chains
            if (name := appended(table.name, chain, patterns))
            and not (chain.rules and is_foreign(chain.rules[-1].enters or "", patterns))
        }
        chains = [
            chain.with_rules((*chain.rules, _jump(jumps[chain.name]))) if chain.name in jumps else chain
            for chain in table.chains
        ]
        for name in dict.fromkeys(jumps.values()):
            if name not in table:
                chains.append(Chain(name, None, (unknown_rule(table.name, name),)))
        tables.append(replace(table, chains=tuple(chains)))
    return replace(program, tables=tuple(tables))


def _jump(name: str) -> Rule:
    return Rule((), Target(name, Kind.JUMP, f"-j {name}"))


def aside(program: Program, patterns: Sequence[str]) -> Program:
    """*program* without the rules of foreign chains and without the rules that enter them."""
    if not patterns:
        return program
    tables = []
    for table in program:
        chains = (
            chain.with_rules(
                ()
                if is_foreign(chain.name, patterns)
                else tuple(rule for rule in chain.rules if not is_foreign(rule.enters or "", patterns))
            )
            for chain in table.chains
        )
        tables.append(replace(table, chains=tuple(chains)))
    return replace(program, tables=tuple(tables))


def show(hidden: Program, original: Program, patterns: Sequence[str]) -> Program:
    """*hidden* with the rules that the foreign chains have in *original*."""
    if not patterns:
        return hidden
    tables = []
    for table in hidden:
        own = original.table(table.name)
        chains = (
            own[chain.name] if chain.name in own and is_foreign(chain.name, patterns) else chain
            for chain in table.chains
        )
        tables.append(replace(table, chains=tuple(chains)))
    return replace(hidden, tables=tuple(tables))


def entered_by_foreign(program: Program, patterns: Sequence[str]) -> frozenset[tuple[str, str]]:
    """Table and name of each other chain that a rule of a foreign chain enters."""
    return frozenset(
        (table.name, callee)
        for table in (program if patterns else ())
        for chain in table.chains
        if is_foreign(chain.name, patterns)
        for callee in chain.callees()
        if not is_foreign(callee, patterns)
    )


def entered_from(program: Program, patterns: Sequence[str]) -> dict[tuple[str, str], str]:
    """Table and name of each other chain that foreign chains reach, with a foreign chain that leads there.

    A proof about hidden chains says nothing of these chains as they are entered from there.
    """
    reached: dict[tuple[str, str], str] = {}
    for table in program if patterns else ():
        waiting = [(chain.name, chain.name) for chain in table.chains if is_foreign(chain.name, patterns)]
        while waiting:
            name, origin = waiting.pop()
            for callee in table[name].callees() if name in table else ():
                if not is_foreign(callee, patterns) and (table.name, callee) not in reached:
                    reached[table.name, callee] = origin
                    waiting.append((callee, origin))
    return reached
