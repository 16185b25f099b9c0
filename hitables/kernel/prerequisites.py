"""The objects to which rules refer, created in a scratch namespace so that the rules can be loaded there.

Sets of ipset get the index that they have here, because a rule stores the index; they stay empty.  Rules
refer to accounting objects and to timeouts of connections by name.
"""

from __future__ import annotations

import contextlib
import socket
import struct

from ..errors import LiveError
from ..parse.lines import split, unquote
from ..rule_lines import lines_of
from .contents_legacy import option
from .ipset_text import created_sets
from .load_save import ip_sets_named
from .namespace import Namespace, run
from .netlink import NLM_F_CREATE, NLM_F_DUMP, Netfilter, attribute, attributes, message, text

_SO_IP_SET, _GET_BY_NAME, _VERSION = 83, 6, 0x100
_SET = struct.Struct("=II32s")  # the request, the version of the protocol, name or index
_ACCOUNTING, _ACCOUNTING_NEW, _ACCOUNTING_GET, _ACCOUNTING_NAME = 7, 0, 1, 1
_TIMEOUT, _TIMEOUT_NEW, _TIMEOUT_GET, _TIMEOUT_USE = 8, 0, 1, 5
_FILLER = "hitables-filler-{}"


def furnish(namespace: Namespace, rules: str) -> None:
    """Create in *namespace* the objects to which *rules* refer, like those in the namespace of the caller."""
    named = ip_sets_named(rules)
    if named:
        _copy_sets(set(named), namespace)
    named_accounts = accounts_named(rules)
    if named_accounts:
        namespace.call(make_accounts, sorted(named_accounts))
    if "--timeout" in rules and "-j CT" in rules:
        namespace.call(_make_timeouts, timeouts())


def accounts_named(rules: str) -> set[str]:
    """The accounting objects (nfacct) that *rules* name."""
    return {word for line in lines_of(rules) for word in _behind(line, "--nfacct-name")}


def _behind(line: str, option_name: str) -> list[str]:
    if option_name not in line:
        return []
    words = [unquote(word) for word, _ in split(line)]
    return [words[at + 1] for at, word in enumerate(words[:-1]) if word == option_name]


def _copy_sets(names: set[str], namespace: Namespace) -> None:
    """Create the sets, empty, each with its index here: a new set gets the lowest free index."""
    # ipset 7.17 prints members, too, in spite of -terse.
    created = created_sets(run(["ipset", "list", "-terse", "-output", "save"]))
    by_index = {index: name for name in names & set(created) if (index := set_index(name)) is not None}
    lines = []
    for index in range(max(by_index, default=-1) + 1):
        if index in by_index:
            like = created[by_index[index]]
            lines.append(" ".join(("create", f'"{like.name}"', like.type, *like.options)))
        else:
            lines.append(f"create {_FILLER.format(index)} hash:ip")
    namespace.run(["ipset", "restore"], "".join(f"{line}\n" for line in lines))


def set_index(name: str) -> int | None:
    """The index of an ipset in the namespace of the caller; None if there is no such set."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw_socket:
        for protocol in (7, 6):  # the kernel refuses a version that it does not know
            with contextlib.suppress(OSError):
                request = _SET.pack(_GET_BY_NAME, protocol, name.encode("utf-8", "surrogateescape"))
                answer = option(raw_socket, socket.IPPROTO_IP, _SO_IP_SET, request, 0)
                (index,) = struct.unpack_from("=H", answer, 8)
                return None if index == 0xFFFF else index
    raise LiveError(f"the kernel does not return the index of the set {name}")


def accounts() -> set[str]:
    """The accounting objects of the namespace of the caller."""
    with contextlib.closing(Netfilter()) as netfilter:
        return {
            attributes(body)[_ACCOUNTING_NAME].rstrip(b"\0").decode("utf-8", "surrogateescape")
            for body in netfilter.dump(message(_ACCOUNTING, _ACCOUNTING_GET, NLM_F_DUMP, 0, b""))
        }


def make_accounts(names: list[str]) -> None:
    """Create accounting objects in the namespace of the caller."""
    with contextlib.closing(Netfilter()) as netfilter:
        bodies = (text(_ACCOUNTING_NAME, name) for name in names)
        refused = netfilter.each(
            message(_ACCOUNTING, _ACCOUNTING_NEW, NLM_F_CREATE, 0, body) for body in bodies
        )
    if refused:
        raise LiveError(f"{refused} accounting objects (nfacct) cannot be created")


def timeouts() -> list[bytes]:
    """The timeout policies of the namespace of the caller, as the attributes that create them."""
    policies = []
    with contextlib.closing(Netfilter()) as netfilter:
        for body in netfilter.dump(message(_TIMEOUT, _TIMEOUT_GET, NLM_F_DUMP, 0, b"")):
            policies.append(
                b"".join(
                    attribute(kind, value) for kind, value in _parts(body) if kind & 0x3FFF != _TIMEOUT_USE
                )
            )
    return policies


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """Attributes with the flags of their kinds."""
    parts, at = [], 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        parts.append((kind, data[at + 4 : at + length]))
        at += length + 3 & ~3
    return parts


def _make_timeouts(bodies: list[bytes]) -> None:
    with contextlib.closing(Netfilter()) as netfilter:
        refused = netfilter.each(message(_TIMEOUT, _TIMEOUT_NEW, NLM_F_CREATE, 0, body) for body in bodies)
    if refused:
        raise LiveError(f"{refused} timeout policies cannot be created in a scratch namespace")
