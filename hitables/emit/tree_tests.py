"""One test of a tree as matches of a rule.

The words of a test are read by the parser of users' rules, so a generated match means what its printed form
means.
"""

from __future__ import annotations

import ipaddress
from functools import cache

from ..analyse.mark_bits import EVERY_BIT, Dimension, MarkBits
from ..ir.fields import DCCP, ICMP, ICMPV6, SCTP, TCP, UDP, Family, Field, interface_name, top
from ..ir.rule import Match
from ..parse.part_meaning import extension_match, header_match, plain_address
from ..parse.rule_parts import cut

PROTOCOL_NAMES = {TCP: "tcp", UDP: "udp", SCTP: "sctp", DCCP: "dccp", ICMP: "icmp", ICMPV6: "ipv6-icmp"}
PORT_MATCH = {TCP: "tcp", UDP: "udp", SCTP: "sctp", DCCP: "dccp"}
_FLAG = {
    Field.SRC: "-s",
    Field.DST: "-d",
    Field.PROTO: "-p",
    Field.IIF: "-i",
    Field.OIF: "-o",
}


@cache
def matches(words: tuple[str, ...], family: Family) -> tuple[Match, ...]:
    """The matches that *words* mean."""
    if family is Family.IPV4 and len(words) == 2 and words[0] in ("-s", "-d"):
        plain = plain_address(*words)  # as header_match does; most tests of large trees are of this kind
        if plain is not None:
            return (plain,)
    listed = list(words)
    layout = cut(listed, 0)
    return tuple(
        header_match(part, listed, family) if part.kind == "header" else extension_match(part, listed, family)
        for part in layout.matches
    )


def joined(match: Match, test: Match, family: Family) -> Match:
    """*match* and *test*, both of the ports of one protocol, as one: iptables-nft prints two as one anyhow.

    *test* decides whatever *match* asks about the same port, and takes its place.
    """
    words = list(match.words)
    if test.words[0] in words:
        at = words.index(test.words[0])
        del words[at - (words[at - 1 : at] == ["!"]) : at + 2]
    return matches(("-p", match.name, "-m", match.name, *words, *test.words), family)[-1]


def prefix(low: int, high: int, family: Family) -> str:
    """The prefix that is exactly low..high, which must be aligned."""
    width = 32 if family is Family.IPV4 else 128
    length = width - (high - low).bit_length()
    assert low & (high - low) == 0 and (high - low) & (high - low + 1) == 0, "a cut that is not a prefix"
    if family is Family.IPV4:
        return f"{low >> 24}.{low >> 16 & 255}.{low >> 8 & 255}.{low & 255}/{length}"
    return f"{ipaddress.IPv6Address(low)}/{length}"


def _interface(low: int, high: int) -> str:
    """One name, or the beginning of names low..high and a "+": 15 bytes at most, as iptables reads."""
    stem = interface_name(low)
    size = len(stem.encode("utf-8", "surrogateescape"))
    if low == high:
        assert 0 < size <= 15 and not stem.endswith("+"), "a cut at an interface that no rule can name"
        return stem
    assert high - low == (1 << 8 * (16 - size)) - 1 and size <= 14, "a cut of interfaces that is no beginning"
    return stem + "+"


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}:{high}"


def _icmp(low: int, high: int, family: Family) -> str:
    if low == high:
        return f"{low >> 8}/{low & 255}"
    if (low, high) == (0, 0xFFFF) and family is Family.IPV4:
        return "any"
    assert low & 255 == 0 and high == low | 255, "an ICMP cut that is not one type"
    return str(low >> 8)


def _mark(bits: MarkBits, low: int, high: int) -> str:
    """VALUE/MASK, as iptables-save prints it."""
    assert low & (high - low) == 0 and (high - low) & (high - low + 1) == 0, "a cut that is not a prefix"
    mask = bits.spread((1 << bits.bits) - 1 & ~(high - low))
    if bits.attribute == "tos":  # its words have two digits
        return f"0x{bits.spread(low):02x}/0x{mask:02x}"
    return f"{bits.spread(low):#x}" + ("" if mask == EVERY_BIT else f"/{mask:#x}")


def test_words(
    field: Dimension, low: int, high: int, negated: bool, protocol: int | None, family: Family
) -> tuple[str, ...]:
    """The words of the test "*field* is in low..high" (or, *negated*, is not).

    *protocol* is the packet's, known from the path; ports and ICMP types need it.
    """
    bang = ("!",) if negated else ()
    if isinstance(field, MarkBits):
        option = "--tos" if field.attribute == "tos" else "--mark"
        return ("-m", field.attribute, *bang, option, _mark(field, low, high))
    if field in (Field.SRC, Field.DST):
        return (*bang, _FLAG[field], prefix(low, high, family))
    if field is Field.PROTO:
        assert low == high, "a cut of several protocols"
        return (*bang, "-p", PROTOCOL_NAMES.get(low, str(low)))
    if field in (Field.IIF, Field.OIF):
        return (*bang, _FLAG[field], _interface(low, high))
    if field is Field.PHYSIN:
        return ("-m", "physdev", *bang, "--physdev-in", _interface(low, high))
    if field is Field.PHYSOUT:
        assert not negated, "a negated test of --physdev-out, which means another thing"
        # In OUTPUT the kernel takes the one option only beside the other.
        return ("-m", "physdev", "--physdev-out", _interface(low, high), "--physdev-is-bridged")
    assert protocol is not None, "a cut of ports where the protocol is not known"
    behind = ("-p", PROTOCOL_NAMES.get(protocol, str(protocol)))
    if field is Field.ICMP:
        name, option = ("icmp", "--icmp-type") if family is Family.IPV4 else ("icmp6", "--icmpv6-type")
        return (*behind, "-m", name, *bang, option, _icmp(low, high, family))
    option = "--sport" if field is Field.SPORT else "--dport"
    if protocol in PORT_MATCH:
        return (*behind, "-m", PORT_MATCH[protocol], *bang, option, _range(low, high))
    return (*behind, "-m", "multiport", *bang, option + "s", _range(low, high))


def guard(protocol: int, family: Family) -> tuple[Match, ...]:
    """Matches that never hold, and drop a packet whose header is cut off, in nf_tables as in legacy.

    nf_tables evaluates a bare `-m tcp` through xtables.  No port is outside of 0:65535, so the rule never
    counts.
    """
    name = PROTOCOL_NAMES[protocol]
    words = ("-p", name, "-m", name, "-m", "multiport", "!", "--ports", f"0:{top(Field.SPORT, family)}")
    return matches(words, family)
