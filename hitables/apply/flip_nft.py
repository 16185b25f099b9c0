"""The visible step in nf_tables: one transaction for all tables of both families.

iptables-nft-restore commits table by table, and each family by a process of its own; in between, packets
meet the new rules of one table and the old ones of another.  So the tool loads the new rules into chains that
no packet reaches, *bodies*, and this module copies the rules of each body into its visible chain, as bytes,
in one batch of netlink messages.

A batch names the number of commits so far, and the kernel refuses it if there were others.  So no change of
another program is overwritten unseen.

iptables-nft 1.8.9 loads the counters of IPv6 rules as zeros; the copies have the counters that they should.
"""

from __future__ import annotations

import contextlib
import errno
import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..errors import LiveError
from ..ir.fields import Family
from ..ir.packet_text import PROTOCOLS
from ..kernel.netlink import (
    NFTABLES,
    NLM_F_APPEND,
    NLM_F_CREATE,
    NLM_F_DUMP,
    Netfilter,
    attribute,
    attribute_list,
    attributes,
    message,
    nested,
    number,
    text,
)
from .texts import NO_COUNT, Count, TextChain

_NEWCHAIN, _NEWRULE, _GETRULE, _DELRULE = 3, 6, 7, 8
_NLM_F_REPLACE = 0x100
_TABLE, _CHAIN, _HANDLE, _EXPRESSIONS, _COMPAT, _USERDATA = 1, 2, 3, 4, 5, 7
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_POLICY, _CHAIN_COUNTERS = 1, 3, 5, 8
_COMPAT_PROTOCOL, _COMPAT_FLAGS, _INVERTED = 1, 2, 2
_EXPRESSION_NAME, _EXPRESSION_DATA, _LIST_ELEMENT = 1, 2, 1
_COUNTER_BYTES, _COUNTER_PACKETS = 1, 2
_KINDS = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_POLICIES = {"DROP": 0, "ACCEPT": 1}
_PROTOCOL = re.compile(r"(?:^| )(! )?-p (\S+)")
_MATCH_OR_TARGET = re.compile(r"(?:^| )-[mjg] ")


ChainPlace = tuple[Family, str, str]  # family, table, chain


class Changed(LiveError):
    """Another program has changed rules since they were read."""


@dataclass(frozen=True, slots=True)
class Flip:
    """One visible chain: *content* with its counters, and the chain that holds its rules already.

    kept  by rule of *content*: its place in the visible chain, if that has it; *body* has the other rules
    """

    family: Family
    table: str
    chain: str
    content: TextChain
    body: str
    kept: tuple[int | None, ...]


def generation() -> int:
    """The number of commits to nf_tables in this namespace."""
    with contextlib.closing(Netfilter()) as netfilter:
        return netfilter.generation()


def flip(
    flips: Sequence[Flip],
    policies: Mapping[ChainPlace, str],
    policy_counts: Mapping[ChainPlace, Count],
    counted: Sequence[tuple[Family, str, Mapping[str, TextChain]]],
    expected: int,
) -> None:
    """Give all chains their new rules, and *policies* to base chains, in one commit.

    *policy_counts*: counters of policies to set; others go on by themselves.

    *counted*: by family and table, chains whose counters have to be set, because packets were counted since
    they were staged.

    Changed if *expected*, the number of commits, is not the present one; LiveError if the kernel refuses the
    batch for another reason.  Then nothing has changed.
    """
    with contextlib.closing(Netfilter()) as netfilter:
        messages = [
            _base_message(place, number(_CHAIN_POLICY, _POLICIES[policy]))
            for place, policy in policies.items()
        ]
        messages += [
            _base_message(place, nested(_CHAIN_COUNTERS, _counter(count)))
            for place, count in policy_counts.items()
        ]
        for family, table, chains in counted:
            messages += _count_messages(netfilter, family, table, chains)
        for each in flips:
            messages += _chain_messages(netfilter, each)
        try:
            if messages:
                netfilter.commit(messages, expected)
        except LiveError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ERESTART:
                raise Changed("the rules have changed since they were read") from error
            raise


def _base_message(place: ChainPlace, change: bytes) -> bytes:
    """The message that changes the base chain at *place*."""
    family, table, chain = place
    return message(
        NFTABLES, _NEWCHAIN, 0, _KINDS[family], text(_CHAIN_TABLE, table) + text(_CHAIN_NAME, chain) + change
    )


def _counter(count: Count) -> bytes:
    return attribute(_COUNTER_BYTES, struct.pack(">Q", count[1])) + attribute(
        _COUNTER_PACKETS, struct.pack(">Q", count[0])
    )


def _chain_messages(netfilter: Netfilter, each: Flip) -> Iterator[bytes]:
    kind = _KINDS[each.family]
    where = text(_TABLE, each.table) + text(_CHAIN, each.chain)
    yield message(NFTABLES, _DELRULE, 0, kind, where)
    staged = list(_rules(netfilter, each.family, each.table, each.body)) if each.body else []
    count = each.kept.count(None)
    if len(staged) != count:
        raise LiveError(
            f"table {each.table}, chain {each.chain}: {len(staged)} rules are staged, not {count}"
        )
    visible = (
        list(_rules(netfilter, each.family, each.table, each.chain))
        if each.kept.count(None) < len(each.kept)
        else []
    )
    if any(place is not None and place >= len(visible) for place in each.kept):
        raise Changed(f"table {each.table}, chain {each.chain}: has fewer rules than it had")
    rest = iter(staged)
    rules = [next(rest) if place is None else visible[place] for place in each.kept]
    for (_, expressions, userdata), rule in zip(rules, each.content.rules, strict=True):
        parts = [where, nested(_EXPRESSIONS, _with_count(expressions, rule.count)), *_compat(rule.body)]
        if userdata:
            parts.append(attribute(_USERDATA, userdata))
        yield message(NFTABLES, _NEWRULE, NLM_F_CREATE | NLM_F_APPEND, kind, b"".join(parts))


def set_counts(family: Family, table: str, chains: Mapping[str, TextChain]) -> None:
    """Set the counters of rules in *chains*, which no packet reaches yet."""
    with contextlib.closing(Netfilter()) as netfilter:
        messages = list(_count_messages(netfilter, family, table, chains))
        if messages:
            netfilter.commit(messages)


def _count_messages(
    netfilter: Netfilter, family: Family, table: str, chains: Mapping[str, TextChain]
) -> Iterator[bytes]:
    """Messages that replace each rule with a count by itself with that count."""
    for name, chain in chains.items():
        if all(rule.count == NO_COUNT for rule in chain.rules):
            continue
        rules = list(_rules(netfilter, family, table, name))
        for (handle, expressions, userdata), rule in zip(rules, chain.rules, strict=True):
            if rule.count == NO_COUNT:
                continue
            parts = [
                *(text(_TABLE, table), text(_CHAIN, name), attribute(_HANDLE, handle)),
                nested(_EXPRESSIONS, _with_count(expressions, rule.count)),
                *_compat(rule.body),
            ]
            if userdata:
                parts.append(attribute(_USERDATA, userdata))
            yield message(NFTABLES, _NEWRULE, _NLM_F_REPLACE, _KINDS[family], b"".join(parts))


def _rules(
    netfilter: Netfilter, family: Family, table: str, chain: str
) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Handle, expressions and user data of each rule."""
    body = text(_TABLE, table) + text(_CHAIN, chain)
    for answer in netfilter.dump(message(NFTABLES, _GETRULE, NLM_F_DUMP, _KINDS[family], body)):
        attrs = attributes(answer)
        if attrs[_CHAIN].rstrip(b"\0") == chain.encode("utf-8", "surrogateescape"):
            yield attrs[_HANDLE], attrs.get(_EXPRESSIONS, b""), attrs.get(_USERDATA, b"")


def _with_count(expressions: bytes, count: Count) -> bytes:
    """*expressions* with *count* in their counter."""
    parts = []
    for kind, expression in attribute_list(expressions):
        attrs = attributes(expression)
        if attrs[_EXPRESSION_NAME].rstrip(b"\0") == b"counter":
            data = nested(_EXPRESSION_DATA, _counter(count))
            expression = attribute(_EXPRESSION_NAME, b"counter\0") + data
        parts.append(nested(kind, expression))
    return b"".join(parts)


def _compat(body: str) -> list[bytes]:
    """The protocol that the rule tests, which extensions ask for and the kernel does not return."""
    # The tools print -p before matches and targets, whose words may be any text (comments, prefixes of logs).
    protocol = _PROTOCOL.search(_MATCH_OR_TARGET.split(body, 1)[0])
    if protocol is None:
        return []
    inverted, name = protocol.groups()
    value = int(name) if name.isdecimal() else PROTOCOLS.get(name)
    if value is None:
        try:
            value = socket.getprotobyname(name)
        except OSError:
            raise LiveError(f"unknown protocol {name}") from None
    return [
        nested(_COMPAT, number(_COMPAT_PROTOCOL, value), number(_COMPAT_FLAGS, _INVERTED if inverted else 0))
    ]
