"""Texts that are no packet in words but are often given for one, each with the words that say the same.

What a text does not tell stands in the proposal as a word in capitals (proto=PROTOCOL, dst=ADDRESS).
"""

from __future__ import annotations

import ipaddress
import re
from itertools import pairwise

from ..errors import ParseError

_MONITORED = re.compile(r"^\s*PACKET: \d+ [0-9a-f]+ .*", re.MULTILINE)
_TRACED = re.compile(r"^\s*TRACE: \d+ [0-9a-f]+ \w+:.*", re.MULTILINE)
_CAPTURED = re.compile(
    r"^.*?(?:(\S+)\s+(In|Out)\s+)?(?:IP6? |: |^\s*)([\w.:%-]+) > ([\w.:%-]+): (.*)", re.MULTILINE
)
_RULE = re.compile(r"\s*(?:sudo )?(?:(?:\S*/)?ip6?tables\S*\s|!?\s*--?[A-Za-z])")

_FLAG_LETTERS = {"S": "SYN", "F": "FIN", "R": "RST", "P": "PSH", "U": "URG", ".": "ACK"}
_FLAG_WORDS = re.compile(r"(?<!\S)(?:SYN|ACK|FIN|RST|PSH|URG)(?!\S)")
_WITH_PORTS = ("tcp", "udp", "sctp")
_ORDER = (
    "table", "chain", "in", "out", "src", "dst", "proto", "sport", "dport", "flags", "icmp", "mac", "state",
)  # fmt: skip
# Of IPv4 and of IPv6.
ICMP_NUMBERS = {
    "echo-request": ("8/0", "128/0"), "ping": ("8/0", "128/0"), "echo-reply": ("0/0", "129/0"),
    "pong": ("0/0", "129/0"), "network-unreachable": ("3/0", ""), "host-unreachable": ("3/1", ""),
    "port-unreachable": ("3/3", "1/4"), "fragmentation-needed": ("3/4", ""), "packet-too-big": ("", "2/0"),
    "time-exceeded": ("11/0", "3/0"), "ttl-exceeded": ("11/0", "3/0"),
    "router-solicitation": ("10/0", "133/0"), "router-advertisement": ("9/0", "134/0"),
    "neighbour-solicitation": ("", "135/0"), "neighbour-advertisement": ("", "136/0"),
    "neighbor-solicitation": ("", "135/0"), "neighbor-advertisement": ("", "136/0"),
}  # fmt: skip
# By the option of a rule: the word of a packet.
_WORDS = {
    "-A": "chain", "--append": "chain", "-I": "chain", "--insert": "chain", "-C": "chain", "--check": "chain",
    "-t": "table", "--table": "table", "-s": "src", "--source": "src", "--src": "src", "-d": "dst",
    "--destination": "dst", "--dst": "dst", "-p": "proto", "--protocol": "proto", "--proto": "proto",
    "-i": "in", "--in-interface": "in", "-o": "out", "--out-interface": "out", "--sport": "sport",
    "--source-port": "sport", "--dport": "dport", "--destination-port": "dport", "--ctstate": "state",
    "--state": "state", "--mac-source": "mac", "--icmp-type": "icmp", "--icmpv6-type": "icmp",
}  # fmt: skip


def refuse_other_formats(text: str) -> None:
    """ParseError for a line of xtables-monitor, one of tcpdump, and options of iptables."""
    if re.match(r"\s*[a-z]+=", text):
        return
    chain = "with the chain that the packet enters"
    if found := _MONITORED.search(text):
        raise _other(found[0], "this is a line of xtables-monitor", f"write {_monitored(found[0])}, {chain}")
    if found := _TRACED.search(text):
        hint = (
            "the line PACKET: before it has the packet; write it as chain=INPUT src=ADDRESS dst=ADDRESS ..."
        )
        raise _other(found[0], "this is a line of xtables-monitor about a rule", hint)
    if _RULE.match(text):
        raise _other(text, "these are options of iptables", f"write one packet: {_ruled(text)}")
    if found := _CAPTURED.search(text):
        raise _other(found[0], "this is a line of tcpdump", f"write {_captured(found)}, {chain}")


def _other(line: str, what: str, hint: str) -> ParseError:
    shown = line.strip()
    reason = f"{what}, not a packet in words"
    return ParseError(reason, source="packet", line=1, column=1, text=shown, length=len(shown), hint=hint)


def _show(words: dict[str, str]) -> str:
    """The words of a packet, in their usual order, with those that are required and not known."""
    words = {"src": "ADDRESS", "dst": "ADDRESS", "proto": "PROTOCOL"} | words
    words.setdefault("chain", "OUTPUT" if "out" in words and "in" not in words else "INPUT")
    if words["proto"] in _WITH_PORTS or "sport" in words or "dport" in words:
        words = {"sport": "PORT", "dport": "PORT"} | words
    elif words["proto"] in ("icmp", "icmpv6", "ipv6-icmp"):
        words.setdefault("icmp", "TYPE/CODE")
    return " ".join(f"{name}={words[name]}" for name in _ORDER if name in words)


def _monitored(line: str) -> str:
    values = dict(re.findall(r" ([A-Z]+)=(\S+)", line))
    names = {"IN": "in", "OUT": "out", "SRC": "src", "DST": "dst", "SPORT": "sport", "DPORT": "dport"}
    words = {name: values[key] for key, name in names.items() if key in values}
    flags = _FLAG_WORDS.findall(line)
    if "sport" in words:
        words["proto"] = "tcp" if flags else "udp"
    return _show(words | ({"flags": ",".join(flags)} if flags else {}))


def _captured(found: re.Match[str]) -> str:
    interface, direction, *ends, rest = found.groups()
    words = {direction.lower(): interface} if interface else {}
    flags = re.match(r"Flags \[([^\]]*)\]", rest)
    icmp = re.match(r"ICMP(6)?\b", rest)
    words["proto"] = "tcp" if flags else f"icmp{'v6' * bool(icmp[1])}" if icmp else "udp"
    for (host_name, port_name), end in zip((("src", "sport"), ("dst", "dport")), ends, strict=True):
        host, _, port = (end, "", "") if icmp else end.rpartition(".")
        words[host_name] = host if _is_address(host) else "ADDRESS"
        words |= {port_name: port} if port else {}
    if flags:
        names = [_FLAG_LETTERS[letter] for letter in flags[1] if letter in _FLAG_LETTERS]
        words["flags"] = ",".join(names) or "none"
    if icmp:
        asked = re.search(r"echo (request|reply)", rest)
        words |= {"icmp": ICMP_NUMBERS[f"echo-{asked[1]}"][bool(icmp[1])]} if asked else {}
    return _show(words)


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _ruled(text: str) -> str:
    """The words of a packet that a rule of these options matches; a value that is several is left out."""
    words: dict[str, str] = {}
    parts = text.replace("=", " ").split()
    for option, value in pairwise(parts):
        name = _WORDS.get(option)
        if name in ("src", "dst"):
            value = value.removesuffix("/32")
            words |= {name: value} if _is_address(value) else {}
        elif name == "icmp":
            named = ICMP_NUMBERS.get(value, ("", ""))["icmpv6" in option]
            numbers = value if "/" in value else f"{value}/0" if value.isdecimal() else named
            words |= {name: numbers} if numbers else {}
        elif name and re.fullmatch(r"[\w.-]+" if name != "mac" else r"[\w:]+", value):
            words[name] = value
    return _show(words | ({"flags": "SYN"} if "--syn" in parts else {}))
