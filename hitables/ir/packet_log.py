"""Lines that -j LOG writes to the kernel's log, as packets in the words of packet_text.py.

    lab drop IN=eth0 OUT=eth1 MAC=... SRC=10.0.0.1 DST=10.0.0.2 LEN=60 ... PROTO=TCP SPT=40000 DPT=22 ... SYN

A line does not say in which chain the rule stands, nor the state of the connection.  The interfaces tell
which of INPUT, FORWARD and OUTPUT the packet passes, and what --log-prefix put before may tell more
(log_prefix.py); words behind the line (chain=, table=, state= ...) add to it and go before it.  Follows
nf_log_syslog.c of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..errors import ParseError
from .fact import Fact
from .fields import Family
from .headers import FIELD_BYTES
from .packet_reader import ANSWER_WORDS, NAMES
from .packet_text import FLAGS, show_numbers
from .program import Table

# A prefix may end with a letter: DROPIN=eth0.
_LINE = re.compile(r"(?:(?<!\w)IN=|IN=(?=\S* OUT=.* SRC=))(\S*) OUT=(\S*)(?= |$)(.*)", re.DOTALL)
_OWN_WORD = re.compile(rf'\s((?:{"|".join(NAMES)})=(?:"(?:[^"\\]|\\.)*"|[^\s"]*))')
_PROTOCOLS = {name: name.lower() for name in ("TCP", "UDP", "UDPLITE", "SCTP", "ICMP", "ICMPv6", "AH", "ESP")}
_MAC_BYTES = 14  # destination, source, type
_ECN_BIT = 0x01  # of tos, which lines of IPv4 lack


@dataclass(frozen=True, slots=True)
class LogLine:
    """
    before   the text in front of the line, at the end of which is the prefix of the rule
    told     the words of the packet by name, but for numbers and answers
    own      those of them that stood behind the line
    rest     numbers and answers, as words
    assumed  what the line does not say, and what was taken; the place where the packet enters, and its state,
             come last
    numbers  attributes that the line tells; *rest* has them, too
    unsaid   by attribute of these: the bits that the line does not tell; they are 0 in *numbers*
    """

    before: str
    told: Mapping[str, str]
    own: frozenset[str]
    rest: str
    assumed: tuple[str, ...]
    numbers: Mapping[str, int]
    unsaid: Mapping[str, int]

    @property
    def words(self) -> str:
        """The packet for `read_packet`."""
        return " ".join([*(f"{name}={value}" for name, value in self.told.items()), self.rest]).strip()

    def with_words(self, **words: str) -> LogLine:
        """The same line with these words, too, but for those that stood behind it."""
        more = {name: value for name, value in words.items() if name not in self.own}
        return replace(self, told={**self.told, **more})


def is_log_line(text: str) -> bool:
    """Whether *text* has a line of -j LOG."""
    return _LINE.search(text) is not None


def read_log_line(text: str, family: Family) -> LogLine:
    """The packet of a log line; ParseError if the line has no addresses of *family*."""
    line_match = _LINE.search(text)
    if line_match is None:
        raise ParseError("no line of -j LOG: IN= and OUT= are missing", source="packet", line=1, text=text)
    words_behind = [word.split("=", 1) for word in _OWN_WORD.findall(line_match[3])]
    own = {name: value for name, value in words_behind if name not in ANSWER_WORDS}
    answers = [f"{name}={value}" for name, value in words_behind if name in ANSWER_WORDS]
    logged = _OWN_WORD.sub("", line_match[3])
    # An ICMP error quotes the header of another packet in brackets.
    header = logged.partition(" [SRC=")[0]
    values = {name: value for name, value in reversed(re.findall(r" ([A-Z]+)=(\S*)", header))}
    for name in ("SRC", "DST"):
        if name not in values:
            raise ParseError(
                f"the log line has no {name}=: it is of no IP packet, or cut off",
                source="packet", line=1, column=1, text=text,
            )  # fmt: skip
    words: dict[str, str] = {}
    assumed: list[str] = []
    iif, oif = line_match[1], line_match[2]
    words["chain"] = "FORWARD" if iif and oif else "OUTPUT" if oif else "INPUT"
    words |= {name: value for name, value in (("in", iif), ("out", oif)) if value}
    words |= {name.lower(): values[name] for name in ("PHYSIN", "PHYSOUT") if values.get(name)}
    mac = values.get("MAC", "").split(":")
    if len(mac) == _MAC_BYTES and iif:
        words["mac"] = ":".join(mac[6:12])
    words |= {"src": values["SRC"], "dst": values["DST"]}
    words |= _transport(values, header, family, assumed)
    numbers = _numbers(values, logged, family)
    rest = " ".join([*show_numbers(numbers), *answers])  # *answers* win
    has_tos = any(re.match('number="?tos=', word) for word in answers)
    unsaid = {"tos": _ECN_BIT} if "tos" in numbers and family is Family.IPV4 and not has_tos else {}
    before = text[: line_match.start()]
    return LogLine(before, words | own, frozenset(own), rest, tuple(assumed), numbers, unsaid)


def assumed_of_bits(line: LogLine, table: Table) -> tuple[str, ...]:
    """What was taken for numbers of which a match of *table* asks for bits that the line does not tell."""
    asked = {match.number for chain in table.chains for rule in chain.rules for match in rule.matches}
    return tuple(
        f"{name}={line.numbers[name]:#x}; a log line does not say bit {bit:#x} of it"
        for name, bit in line.unsaid.items()
        if any(
            fact is not None and fact.attribute == name and _depends_on(fact, line.numbers[name], bit)
            for fact in asked
        )
    )


def _depends_on(fact: Fact, number: int, bit: int) -> bool:
    return fact.holds(number) != fact.holds(number | bit)


def _numbers(values: dict[str, str], logged: str, family: Family) -> dict[str, int]:
    """The attributes (ir/fact.py) that a line tells, of which IPv4 lacks a bit of ECN in tos."""
    names = {"LEN": "length", "UID": "uid", "GID": "gid"} | (
        {"TTL": "ttl"} if family is Family.IPV4 else {"HOPLIMIT": "hl", "TC": "tos"}
    )
    numbers = {name: int(values[word]) for word, name in names.items() if values.get(word, "").isdecimal()}
    bits = [values.get(word, "") for word in ("TOS", "PREC")]
    if family is Family.IPV4 and all(re.fullmatch(r"0x[0-9A-Fa-f]+", each) for each in bits):
        numbers["tos"] = int(bits[0], 16) | int(bits[1], 16)
    mark = re.search(r" MARK=0x([0-9A-Fa-f]+)", logged)
    numbers["mark"] = int(mark[1], 16) if mark else 0  # which is not logged
    return numbers


def _transport(values: dict[str, str], header: str, family: Family, assumed: list[str]) -> dict[str, str]:
    """The words for what follows the IP header."""
    protocol = values.get("PROTO", "")
    words = {"proto": _PROTOCOLS.get(protocol, protocol)} if protocol else {}
    fragment = re.search(r" FRAG:(\d+)", header)
    if fragment and int(fragment[1]):
        assumed.append("sport=0 dport=0 flags=none, the bytes of a later fragment, which are not logged")
        # Of IPv6 no match drops such a fragment, and the line tells bytes.
        at_one = {"offset": "1"} if fragment[1] == "1" and family is Family.IPV4 else {}
        return {**words, "frag": "later", **at_one, "sport": "0", "dport": "0", "flags": "none"}
    if re.search(r" MF\b", header) or (fragment and family is Family.IPV6):
        words["frag"] = "first"
    cut = re.search(r"INCOMPLETE \[(\d+) bytes\]", header)
    if cut:
        words["bytes"] = cut[1]
    if "SPT" in values and "DPT" in values:
        words |= {"sport": values["SPT"], "dport": values["DPT"]}
    if protocol == "TCP" and not (cut and int(cut[1]) < max(FIELD_BYTES.values())):
        names = [name for name in FLAGS if re.search(rf" {name}(?= |$)", header)]
        words["flags"] = ",".join(names) or "none"
    if "TYPE" in values and "CODE" in values and protocol in ("ICMP", "ICMPv6"):
        words["icmp"] = f"{values['TYPE']}/{values['CODE']}"
    return words
