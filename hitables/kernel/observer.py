"""Chains of our own around the chain under test: the state of a packet before it, and whether it passed.

Every packet has a number in a field that no rule tests (the IPv4 id, the IPv6 flow label).  Directly before
the table under test, our chain sets the packet's addresses and mark (until then it has addresses that
routing accepts), and records its number and connection state.  Directly after the table, our chain records
the numbers of the packets that arrive, and drops them, so that none reaches a socket or a wire.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence

from ..ir.fields import Family
from . import netlink
from .netlink import NFTABLES, Netfilter, attribute, nested, number, text

TABLE, SILENCE = "hitables-observer", "hitables-silence"
HOOKS = {"PREROUTING": 0, "INPUT": 1, "FORWARD": 2, "OUTPUT": 3, "POSTROUTING": 4}
PRIORITY = {"raw": -300, "mangle": -150, "filter": 0, "security": 50}
_CONNTRACK_DEFRAG, _CONNTRACK = -400, -200
_NF = {Family.IPV4: 2, Family.IPV6: 10}
_DROP, _ACCEPT = 0, 1

_NEWTABLE, _DELTABLE, _NEWCHAIN, _NEWRULE, _DELRULE, _NEWSET, _DELSET = 0, 2, 3, 6, 8, 9, 11
_NEWSETELEM, _GETSETELEM = 12, 13
_SET_MAP, _SET_EVAL = 0x8, 0x20
# The kernel allocates a set of this size at once.  (It keeps 16 bits of the number, and a set that grows in
# the background is not dumped in full.)
_SET_SIZE = 0xFFFF
_REGISTER = 8  # the first of the registers of four bytes
_CT_STATE, _CT_STATUS, _CT_MARK = 0, 2, 3
_META_MARK, _META_SKUID = 3, 10
_STATUS_SNAT, _STATUS_DNAT = 1 << 4, 1 << 5
# Bits of the kernel's `ct state`.
INVALID, ESTABLISHED, RELATED, NEW, UNTRACKED = 1, 2, 4, 8, 64


def priority(table: str, chain: str) -> int:
    """The priority of *chain* of *table* at its hook."""
    if table == "nat":
        return 100 if chain in ("INPUT", "POSTROUTING") else -100
    return PRIORITY[table]


class Observer:
    """Our chains in one network namespace; *tracked*: connections are tracked there."""

    def __init__(self, family: Family, table: str, chain: str, tracked: bool) -> None:
        self.family, self.tracked = family, tracked
        self._netfilter = Netfilter()
        self._hook, self._priority = chain, priority(table, chain)
        self._width = 4 if family is Family.IPV4 else 16
        self._netfilter.commit(self._set_up())

    def close(self) -> None:
        """Remove our chains."""
        self._netfilter.commit([self._message(_DELTABLE, text(1, TABLE))])
        self._netfilter.close()

    def fill(
        self,
        addresses: Mapping[int, tuple[int, int]],
        marks: Mapping[int, int],
        connection_marks: Mapping[int, int],
        untracked: Iterable[int],
    ) -> None:
        """Set the properties that packets get before the rules, by their numbers."""
        width = self._width
        sources = {n: source.to_bytes(width, "big") for n, (source, _) in addresses.items()}
        targets = {n: target.to_bytes(width, "big") for n, (_, target) in addresses.items()}
        in_host_order = {
            name: {n: struct.pack("=I", v) for n, v in values.items()}
            for name, values in (("marks", marks), ("ctmarks", connection_marks))
        }
        self._add("sources", sources)
        self._add("targets", targets)
        self._add("marks", in_host_order["marks"])
        if self.tracked:
            self._add("ctmarks", in_host_order["ctmarks"])
        self._add("untracked", dict.fromkeys(untracked, b""))

    def forget(self) -> None:
        """Clear the records.

        The sets are created again, not emptied: the kernel shrinks an emptied set in the background.
        """
        names = ("seen", "passed", *(("snat", "dnat") if self.tracked else ()))
        out = [self._message(_DELRULE, text(1, TABLE), text(2, chain)) for chain in ("before", "behind")]
        out += [self._message(_DELSET, text(1, TABLE), text(2, name)) for name in names]
        self._netfilter.commit(out + self._written())

    def seen(self) -> dict[int, int]:
        """Number -> `ct state` of the packets that reached the table under test."""
        keys = self._keys("seen", 8 if self.tracked else 2)
        if not self.tracked:
            untracked = set(self.numbers("untracked"))
            return {n: UNTRACKED if n in untracked else INVALID for n in map(_number, keys)}
        return {_number(key): struct.unpack_from("=I", key, 4)[0] for key in keys}

    def numbers(self, name: str) -> set[int]:
        """The packets in the set *name*: passed, snat, dnat, untracked."""
        if name in ("snat", "dnat") and not self.tracked:
            return set()
        return {_number(key) for key in self._keys(name, 2)}

    # The chains, rules and sets in the kernel.

    def _set_up(self) -> list[bytes]:
        """The table: the properties of packets, and the records."""
        hook = self._hook
        out = [self._message(_NEWTABLE, text(1, TABLE))]
        names = ["sources", "targets", "marks", "untracked", *(["ctmarks"] if self.tracked else [])]
        out += [self._new_set(name, 2, self._data_width(name), name == "untracked") for name in names]
        entry = hook
        if self._priority > _CONNTRACK:
            entry = "PREROUTING" if hook in ("PREROUTING", "INPUT", "FORWARD") else "OUTPUT"
        self._chain(out, "untrack", entry, _CONNTRACK_DEFRAG - 50)
        out.append(self._rule("untrack", self._load_number(), _lookup("untracked"), _expression("notrack")))
        self._chain(out, "before", hook, self._priority - 5)
        self._chain(out, "behind", hook, self._priority + 5)
        return out + self._written()

    def _written(self) -> list[bytes]:
        """The sets that record packets, and the rules that fill them."""
        out = [self._new_set("passed", 2, 0, True), self._new_set("seen", 8 if self.tracked else 2, 0, True)]
        width = self._width
        for name, offset in (("sources", 12 if width == 4 else 8), ("targets", 16 if width == 4 else 24)):
            out.append(self._rule("before", self._load_number(), _lookup(name, 4), _store(offset, width, 4)))
        out.append(self._rule("before", self._load_number(), _lookup("marks", 4), _set_meta(_META_MARK, 4)))
        state: list[bytes] = []
        if self.tracked:
            mark = _set_ct(_CT_MARK, 4)
            out.append(self._rule("before", self._load_number(), _lookup("ctmarks", 4), mark))
            at = _REGISTER + 4
            for name, bit in (("snat", _STATUS_SNAT), ("dnat", _STATUS_DNAT)):
                tested = (_ct(_CT_STATUS, at), _and(at, bit), _nonzero(at))
                out.append(self._new_set(name, 2, 0, True))
                out.append(self._rule("before", *tested, self._load_number(), _add_to(name)))
            state = [_ct(_CT_STATE, _REGISTER + 1)]
        out.append(self._rule("before", self._load_number(), *state, _add_to("seen")))
        out.append(self._rule("behind", self._load_number(), _add_to("passed")))
        out.append(self._rule("behind", _verdict(_DROP)))
        return out

    def _message(self, kind: int, *parts: bytes, flags: int = 0) -> bytes:
        return netlink.message(NFTABLES, kind, flags, _NF[self.family], b"".join(parts))

    def _chain(self, out: list[bytes], name: str, hook: str, at: int) -> None:
        out.append(_new_chain(self.family, TABLE, name, hook, at))

    def _rule(self, chain: str, *expressions: bytes) -> bytes:
        return _new_rule(self.family, TABLE, chain, *expressions)

    def _new_set(self, name: str, key: int, data: int, written: bool) -> bytes:
        flags = (_SET_EVAL if written else 0) | (_SET_MAP if data else 0)
        parts = [
            text(1, TABLE), text(2, name), number(3, flags), number(4, 0), number(5, key),
            nested(9, number(1, _SET_SIZE)), number(10, 1),
        ]  # fmt: skip
        if data:
            parts += [number(6, 0), number(7, data)]
        return self._message(_NEWSET, *parts, flags=netlink.NLM_F_CREATE)

    def _load_number(self) -> bytes:
        at = 4 if self.family is Family.IPV4 else 2
        return _expression("payload", number(1, _REGISTER), number(2, 1), number(3, at), number(4, 2))

    def _add(self, name: str, elements: Mapping[int, bytes]) -> None:
        if not elements:
            return
        # All elements of a set are equal except for their number and their data.
        data = nested(2, attribute(1, bytes(self._data_width(name)))) if self._data_width(name) else b""
        sample = nested(1, nested(1, attribute(1, bytes(2))), data)
        head, tail = sample[:12], sample[14 : len(sample) - self._data_width(name)]
        packed = [b"".join((head, n.to_bytes(2, "big"), tail, value)) for n, value in elements.items()]
        step = 60000 // len(sample)  # a list of elements is one attribute, whose length has 16 bits
        self._netfilter.commit(
            self._message(
                _NEWSETELEM,
                text(1, TABLE),
                text(2, name),
                nested(3, *packed[at : at + step]),
                flags=netlink.NLM_F_CREATE,
            )
            for at in range(0, len(packed), step)
        )

    def _data_width(self, name: str) -> int:
        return {"sources": self._width, "targets": self._width, "marks": 4, "ctmarks": 4}.get(name, 0)

    def _keys(self, name: str, width: int) -> list[bytes]:
        """All keys of a set.  Each element starts with its key: nested, then data of *width* bytes."""
        ask = self._message(_GETSETELEM, text(1, TABLE), text(2, name), flags=netlink.NLM_F_DUMP)
        padded = width + 3 & ~3
        opening = struct.pack("=HHHH", 8 + padded, 1, 4 + width, 1)
        pattern = re.compile(re.escape(opening) + b"(.{%d})" % width, re.DOTALL)
        keys: list[bytes] = []
        for body in self._netfilter.dump(ask):
            keys += pattern.findall(netlink.attributes(body).get(3, b""))
        return keys


def silence(family: Family) -> None:
    """Drop all packets that the kernel sends by itself.

    Answers of REJECT and neighbour discovery belong to no socket with an owner; rules for packets that
    leave the host must not count them.
    """
    netfilter = Netfilter()
    netfilter.commit(
        [
            netlink.message(NFTABLES, _NEWTABLE, 0, _NF[family], text(1, SILENCE)),
            _new_chain(family, SILENCE, "out", "OUTPUT", _CONNTRACK_DEFRAG - 60),
            _new_rule(family, SILENCE, "out", _meta(_META_SKUID, _REGISTER), _verdict(_ACCEPT)),
            _new_rule(family, SILENCE, "out", _verdict(_DROP)),
        ]
    )
    netfilter.close()


def _new_chain(family: Family, table: str, name: str, hook: str, at: int) -> bytes:
    where = nested(4, number(1, HOOKS[hook]), number(2, at & 0xFFFFFFFF))
    body = text(1, table) + text(3, name) + where + text(7, "filter")
    return netlink.message(NFTABLES, _NEWCHAIN, netlink.NLM_F_CREATE, _NF[family], body)


def _new_rule(family: Family, table: str, chain: str, *expressions: bytes) -> bytes:
    listed = nested(4, *(nested(1, expression) for expression in expressions))
    flags = netlink.NLM_F_CREATE | netlink.NLM_F_APPEND
    return netlink.message(NFTABLES, _NEWRULE, flags, _NF[family], text(1, table) + text(2, chain) + listed)


def _number(key: bytes) -> int:
    return key[0] << 8 | key[1]


def _expression(name: str, *parts: bytes) -> bytes:
    return text(1, name) + nested(2, *parts)


def _lookup(name: str, data_register: int = 0) -> bytes:
    into: Sequence[bytes] = (number(3, _REGISTER + data_register),) if data_register else ()
    return _expression("lookup", text(1, name), number(2, _REGISTER), *into)


def _store(offset: int, width: int, register: int) -> bytes:
    return _expression(
        "payload",
        number(5, _REGISTER + register),
        number(2, 1),
        number(3, offset),
        number(4, width),
        number(6, 1 if width == 4 else 0),
        number(7, 10 if width == 4 else 0),
    )


def _add_to(name: str) -> bytes:
    return _expression("dynset", text(1, name), number(3, 0), number(4, _REGISTER))


def _meta(key: int, register: int) -> bytes:
    return _expression("meta", number(1, register), number(2, key))


def _set_meta(key: int, register: int) -> bytes:
    return _expression("meta", number(2, key), number(3, _REGISTER + register))


def _ct(key: int, register: int) -> bytes:
    return _expression("ct", number(1, register), number(2, key))


def _set_ct(key: int, register: int) -> bytes:
    return _expression("ct", number(2, key), number(4, _REGISTER + register))


def _and(register: int, mask: int) -> bytes:
    word = struct.pack("=I", mask)
    return _expression(
        "bitwise",
        number(1, register),
        number(2, register),
        number(3, 4),
        nested(4, attribute(1, word)),
        nested(5, attribute(1, bytes(4))),
    )


def _nonzero(register: int) -> bytes:
    return _expression("cmp", number(1, register), number(2, 1), nested(3, attribute(1, bytes(4))))


def _verdict(code: int) -> bytes:
    return _expression("immediate", number(1, 0), nested(2, nested(2, number(1, code))))
