"""The contents of nf_tables in the tables of iptables, read by netlink.

`nft list` is not sufficient: for an expression that calls xtables it prints `xt match "set"`, without the
arguments.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import LiveError
from ..ir.fields import Family
from .contents import TABLES, ChainContents, ChainId, Contents, used
from .netlink import NFTABLES, NLM_F_DUMP, Netfilter, attributes, message, text
from .retries import retries

_GETTABLE, _GETCHAIN, _GETRULE = 1, 4, 7
_TABLE_NAME, _TABLE_FLAGS = 1, 2
_TABLE_WORDS = ("dormant", "owner", "persist")  # by bit
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_POLICY, _CHAIN_USE = 1, 3, 4, 5, 6
_CHAIN_TYPE, _CHAIN_FLAGS = 7, 10
_HOOK_NUMBER, _HOOK_PRIORITY = 1, 2
_RULE_TABLE, _RULE_CHAIN, _RULE_HANDLE, _RULE_EXPRESSIONS, _RULE_USERDATA = 1, 2, 3, 4, 7
_EXPRESSION_DATA = 2
_NAME, _REVISION, _INFO = 1, 2, 3  # of a match or a target
_CMP_REGISTER, _CMP_OP, _CMP_DATA, _RANGE_TO, _DATA_VALUE = 1, 2, 3, 4, 1  # the same for range
_LOG_GROUP, _LIMIT_TYPE, _LIMIT_FLAGS = 1, 4, 5
_EQ, _NEQ, _LT, _LTE, _GT, _GTE = range(6)
_ORDER = 31  # the byte of a cmp that has its operator
_COMMENT = 0  # the kind of user data that is a comment
_ACCEPT = 1
_FAMILIES = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_INET = 1
# Of an expression: its length and kind, and those of its first attribute, the name.
_LEADING = struct.Struct("=HHHH")

# The name of an expression, as an attribute; the heads of its data and of their first attribute follow.
_PAYLOAD = struct.pack("=HH", 12, 1) + b"payload\0"
_PAYLOAD_SOURCE = 5

# The expressions that iptables-nft reads, besides some `limit` and `log`; it calls a table with
# another one incompatible.
_READ = frozenset(b"match target payload meta cmp bitwise counter immediate lookup range".split())

# The kernel answers with some dozens of rules at a time, and for each answer it counts from the first rule of
# the dump.  So the rules of a table are read chain by chain if there are more chains than these.
_CHAINS_OF_ONE_DUMP = 1_000

# The base chains of iptables: priority by table; of nat and the type of mangle's OUTPUT see `_is_base_of`.
_HOOKS = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
_PRIORITIES = {"raw": -300, "mangle": -150, "filter": 0, "security": 50}


@dataclass(frozen=True, slots=True)
class _Dumped:
    chain: str
    handle: int
    expressions: bytes
    userdata: bytes


def read_contents(family: Family) -> Contents:
    """The contents of the namespace of the caller, all at one moment.

    LiveError if they change faster than they can be read.
    """
    kind = _FAMILIES[family]
    with contextlib.closing(Netfilter()) as netfilter:
        for _ in retries():
            # Nothing is unpacked before all has been read: on a host where others change rules ten times a
            # second, reading must take less than a tenth of a second.
            before = netfilter.generation()
            tables = _answers(netfilter, kind, _GETTABLE)
            chains = _answers(netfilter, kind, _GETCHAIN)
            rules = {name: _rules(netfilter, kind, name, chains) for name, _ in _of_iptables(tables)}
            if before == netfilter.generation():
                return _contents(tables, chains, rules, family)
    raise LiveError("nf_tables is changed faster than it can be read; try again when fewer changes are made")


def table_flags(family: Family) -> dict[str, list[str]]:
    """The flags of the tables of iptables in the namespace of the caller, with nft's names: `dormant`."""
    with contextlib.closing(Netfilter()) as netfilter:
        tables = _of_iptables(_answers(netfilter, _FAMILIES[family], _GETTABLE))
    return {name: [word for at, word in enumerate(_TABLE_WORDS) if flags >> at & 1] for name, flags in tables}


def expressions_of(family: Family, table: str) -> list[list[bytes]]:
    """The expressions of each rule of *table*, as the kernel holds them, without counters."""
    kind = _FAMILIES[family]
    with contextlib.closing(Netfilter()) as netfilter:
        rules = list(map(_rule, _rules(netfilter, kind, table, _answers(netfilter, kind, _GETCHAIN))))
    return [[one for name, one in _expressions(rule.expressions) if name != b"counter"] for rule in rules]


def _answers(netfilter: Netfilter, kind: int, command: int, request: bytes = b"") -> list[bytes]:
    """All answers to *command*."""
    return list(netfilter.dump(message(NFTABLES, command, NLM_F_DUMP, kind, request)))


def _rules(netfilter: Netfilter, kind: int, table: str, chains: list[bytes]) -> list[bytes]:
    """The rules of *table*; *chains*: the answers about the chains of all tables."""
    of_table = text(_RULE_TABLE, table)
    if len(chains) <= _CHAINS_OF_ONE_DUMP:
        return _answers(netfilter, kind, _GETRULE, of_table)
    rules = []
    for (table_of_chain, name), _, rules_and_jumps in _chains(chains):
        if table_of_chain == table and rules_and_jumps:
            rules += _answers(netfilter, kind, _GETRULE, of_table + text(_RULE_CHAIN, name))
    return rules


def _contents(
    of_tables: list[bytes], of_chains: list[bytes], of_rules: dict[str, list[bytes]], family: Family
) -> Contents:
    """The contents of the tables of iptables, from the answers of the kernel."""
    tables = [name for name, _ in _of_iptables(of_tables)]
    heads = {chain_id: head for chain_id, head, _ in _chains(of_chains) if chain_id[0] in tables}
    rules: dict[ChainId, list[bytes]] = {chain_id: [] for chain_id in heads}
    handles: dict[ChainId, list[int]] = {chain_id: [] for chain_id in heads}
    for table in tables:
        for rule in map(_rule, of_rules[table]):
            chain_id = table, rule.chain
            rules[chain_id].append(_canonical(rule.expressions, rule.userdata, family))
            handles[chain_id].append(rule.handle)
    chains = {
        chain_id: ChainContents(head, tuple(rules[chain_id]), tuple(handles[chain_id]))
        for chain_id, head in heads.items()
    }
    return Contents(tables, chains)


def _tables(answers: list[bytes]) -> Iterator[tuple[str, int]]:
    """Name and flags of each table."""
    for body in answers:
        attrs = attributes(body)
        yield _name(attrs[_TABLE_NAME]), int.from_bytes(attrs.get(_TABLE_FLAGS, b""), "big")


def _of_iptables(answers: list[bytes]) -> list[tuple[str, int]]:
    return [(name, flags) for name, flags in _tables(answers) if name in TABLES]


def _chains(answers: list[bytes]) -> Iterator[tuple[ChainId, bytes, int]]:
    """The id and head of each chain, and the number of its rules and of jumps to it."""
    for body in answers:
        attrs = attributes(body)
        head = b""
        if _CHAIN_HOOK in attrs:
            hook = attributes(attrs[_CHAIN_HOOK])
            parts = (hook[_HOOK_NUMBER], hook[_HOOK_PRIORITY], attrs.get(_CHAIN_POLICY, bytes(4)))
            head = b"".join(parts) + attrs.get(_CHAIN_FLAGS, bytes(4)) + attrs.get(_CHAIN_TYPE, b"")
        chain_id = _name(attrs[_CHAIN_TABLE]), _name(attrs[_CHAIN_NAME])
        yield chain_id, head, int.from_bytes(attrs.get(_CHAIN_USE, b""), "big")


def _rule(body: bytes) -> _Dumped:
    attrs = attributes(body)
    return _Dumped(
        _name(attrs[_RULE_CHAIN]),
        int.from_bytes(attrs[_RULE_HANDLE], "big"),
        attrs.get(_RULE_EXPRESSIONS, b""),
        attrs.get(_RULE_USERDATA, b""),
    )


def _name(value: bytes) -> str:
    return value.rstrip(b"\0").decode("utf-8", "surrogateescape")


def _expressions(data: bytes) -> list[tuple[bytes, bytes]]:
    """Name and bytes, as one attribute, of each expression of a rule."""
    expressions, at, read = [], 0, _LEADING.unpack_from
    while at < len(data):
        length, _, size, _ = read(data, at)
        expressions.append((data[at + 8 : at + 3 + size], data[at : at + length]))
        at += length + 3 & ~3
    return expressions


def _canonical(expressions: bytes, userdata: bytes, family: Family) -> bytes:
    """The bytes of a rule without counters; comments, which are a match or user data, are at the end."""
    parts, comments = [], []
    for name, one in _expressions(expressions):
        if name == b"counter":
            continue
        if name in (b"match", b"target"):
            attrs = attributes(attributes(one[4:])[_EXPRESSION_DATA])
            extension, info = attrs[_NAME].rstrip(b"\0"), attrs[_INFO]
            if extension == b"comment":
                comments.append(info.partition(b"\0")[0])
                continue
            one = one.replace(info, used(extension, int.from_bytes(attrs[_REVISION], "big"), info, family))
        elif name == b"range" or (name == b"cmp" and one[_ORDER] > _NEQ):
            one = _interval(name, one)
        parts.append(one)
    at = 0
    while at + 2 <= len(userdata):
        end = at + 2 + userdata[at + 1]
        if userdata[at] == _COMMENT:
            comments.append(userdata[at + 2 : end].partition(b"\0")[0])
        else:
            parts.append(userdata[at:end])
        at = end
    return b"".join(parts) + b"\0" + b"\0".join(comments)


def writes_payload(rule: bytes) -> bool:
    """Whether a rule, as in `ChainContents`, has a statement of nft that sets bytes of the packet.

    The first attribute of such an expression is the register that has the new bytes.
    """
    at = rule.find(_PAYLOAD)
    while at >= 0:
        kind = rule[at + len(_PAYLOAD) + 6 : at + len(_PAYLOAD) + 8]
        if int.from_bytes(kind, sys.byteorder) == _PAYLOAD_SOURCE:
            return True
        at = rule.find(_PAYLOAD, at + 1)
    return False


def _interval(name: bytes, one: bytes) -> bytes:
    """A comparison by size in one form, an interval or its complement; iptables writes it in several forms.

    1024 and above is "> 1023" if the rule has `! --sport 0:1023`, else a range up to 65535.
    """
    attrs = attributes(attributes(one[4:])[_EXPRESSION_DATA])
    order = int.from_bytes(attrs[_CMP_OP], "big")
    first = attributes(attrs[_CMP_DATA])[_DATA_VALUE]
    top = (1 << 8 * len(first)) - 1
    low = int.from_bytes(first, "big")
    if name == b"range":
        high, inside = int.from_bytes(attributes(attrs[_RANGE_TO])[_DATA_VALUE], "big"), order == _EQ
        if not inside and low == 0 and high < top:
            low, high, inside = high + 1, top, True
        elif not inside and high == top and low > 0:
            low, high, inside = 0, low - 1, True
    elif (order == _LT and low == 0) or (order == _GT and low == top):
        return one  # never
    else:
        bounds = {_LT: (0, low - 1), _LTE: (0, low), _GT: (low + 1, top), _GTE: (low, top)}
        (low, high), inside = bounds[order], True
    prefix = b"in " if inside else b"not in "
    return prefix + attrs[_CMP_REGISTER] + low.to_bytes(len(first), "big") + high.to_bytes(len(first), "big")


def culprits(family: Family) -> Iterator[tuple[ChainId, int, str]]:
    """Why iptables does not read a table: chain, rule (from 1; 0: the chain itself), and the reason."""
    kind = _FAMILIES[family]
    with contextlib.closing(Netfilter()) as netfilter:
        chains = _answers(netfilter, kind, _GETCHAIN)
        for chain_id, head, _ in _chains(chains):
            if chain_id[0] in TABLES and head and not _is_base_of(chain_id, head):
                hook, priority = struct.unpack_from(">Ii", head)
                yield (
                    chain_id,
                    0,
                    f"a base chain of its own (hook {_HOOKS[hook].lower()}, priority {priority})",
                )
        for table in TABLES:
            numbers: dict[str, int] = {}
            with contextlib.suppress(LiveError):  # no such table
                for rule in map(_rule, _rules(netfilter, kind, table, chains)):
                    number = numbers[rule.chain] = numbers.get(rule.chain, 0) + 1
                    more = {name for name, one in _expressions(rule.expressions) if not _is_read(name, one)}
                    if more:
                        names = ", ".join(sorted(name.decode() for name in more))
                        yield (table, rule.chain), number, f"iptables reads no such {names}"


def _is_read(name: bytes, one: bytes) -> bool:
    attrs = attributes(one[4:]).get(_EXPRESSION_DATA, b"")
    if name == b"log":  # of NFLOG
        return _LOG_GROUP in attributes(attrs)
    if name == b"limit":  # a limit of packets, not inverted
        limit = attributes(attrs)
        return not any(limit.get(_LIMIT_TYPE, b"")) and not any(limit.get(_LIMIT_FLAGS, b""))
    return name in _READ


def _is_base_of(chain_id: ChainId, head: bytes) -> bool:
    """Whether iptables has this base chain."""
    table, chain = chain_id
    hook, priority = struct.unpack_from(">Ii", head)
    expected = _PRIORITIES.get(table, -100 if chain in ("PREROUTING", "OUTPUT") else 100)
    kind = "nat" if table == "nat" else "route" if chain_id == ("mangle", "OUTPUT") else "filter"
    return (chain, priority, head[16:].rstrip(b"\0")) == (_HOOKS[hook], expected, kind.encode())


def tables_present(family: Family) -> list[tuple[str, bool]]:
    """The tables of this family, and of both families, in the namespace of the caller, as `ip filter`.

    With each, whether it may affect a packet: it has rules, or a policy other than ACCEPT.
    """
    tables: dict[str, bool] = {}
    with contextlib.closing(Netfilter()) as netfilter:
        for kind, called in ((_FAMILIES[family], "ip" if family is Family.IPV4 else "ip6"), (_INET, "inet")):
            for name, _ in _tables(_answers(netfilter, kind, _GETTABLE)):
                tables[f"{called} {name}"] = False
            for (table, _), head, uses in _chains(_answers(netfilter, kind, _GETCHAIN)):
                if uses or (head and int.from_bytes(head[8:12], "big") != _ACCEPT):
                    tables[f"{called} {table}"] = True
    return list(tables.items())
