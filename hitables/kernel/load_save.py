"""Rule sets into and out of a kernel: iptables-restore and iptables-save of either backend."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ..errors import LiveError
from ..ir.fields import Family
from ..ir.packet import Backend
from ..ir.program import BUILT_IN
from ..parse.lines import split, unquote
from ..rule_lines import lines_of, with_ends
from .legacy_lock import legacy_lock
from .namespace import Namespace, run

_COUNTED = re.compile(r"^\s*\[\d+:\d+\]\s*-|^:\S+\s+\S+\s+\[(?!0:0\])", re.MULTILINE)
# EMSGSIZE, in the words of the tools.
_TOO_LONG = "Message too long"
# Types of sets by the number of directions in a rule; each type also accepts the members of narrower types.
_SET_TYPES = {1: "hash:net", 2: "hash:net,port", 3: "hash:ip,port,net"}


def load(text: str, family: Family, backend: Backend, namespace: Namespace, noflush: bool = False) -> None:
    """Load *text* as iptables-restore does; LiveError with the tool's message if it is refused.

    Sets that the rules name are created first, empty.  Counters are loaded if *text* has any.  Without real
    root, iptables-nft sends no more at once than net.core.wmem_default bytes: a longer text is loaded in
    parts one after the other, which nothing in a scratch namespace depends on.  With *noflush* it is
    refused: the tables before the one that is too long are loaded then, and would get their rules twice.
    """
    make_ip_sets(ip_sets_named(text), family, namespace)
    command = [f"{family.tool}-{backend.value}-restore"]
    if backend is Backend.LEGACY:
        command.append("-w")
    if _COUNTED.search(text):
        command.append("-c")
    if noflush:
        command.append("--noflush")
    try:
        namespace.run(command, text)
    except LiveError as error:
        if noflush or backend is not Backend.NFT or _TOO_LONG not in str(error):
            raise
        for table in _tables(text):
            _load_in_parts(table, command, namespace)


def _tables(text: str) -> Iterator[list[str]]:
    """The lines of each table, without its COMMIT."""
    lines: list[str] = []
    for line in lines_of(text):
        if line == "COMMIT":
            yield lines
            lines = []
        elif line and not line.startswith("#"):
            lines.append(line)


def _load_in_parts(table: list[str], command: list[str], namespace: Namespace) -> None:
    """Load the lines of *table* in order, as many at a time as the socket takes."""
    head, *left = table
    size = max(1, len(left))
    added = [*command, "--noflush"]
    is_first = True
    while left or is_first:
        try:
            namespace.run(command if is_first else added, "\n".join([head, *left[:size], "COMMIT", ""]))
        except LiveError as error:
            if size == 1 or _TOO_LONG not in str(error):
                raise
            size = (size + 1) // 2
        else:
            left, is_first = left[size:], False


def save(family: Family, backend: Backend, namespace: Namespace, counters: bool = False) -> str:
    """The rules of the kernel in iptables-save format, without the comments, which have the date."""
    command = [f"{family.tool}-{backend.value}-save"]
    if counters:
        command.append("-c")
    text = namespace.call(_saved, command, counters and backend is Backend.LEGACY)
    return "".join(line for line in with_ends(text) if not line.startswith("#"))


def _saved(command: list[str], takes_lock: bool) -> str:
    with legacy_lock(takes_lock):
        return run(command)


def clear(family: Family, backend: Backend, namespace: Namespace) -> None:
    """Remove every rule, chain and table."""
    if backend is Backend.NFT:
        # iptables-nft finds its tables by their names; -F and -X would leave them hooked.
        kind = "ip" if family is Family.IPV4 else "ip6"
        lines = namespace.run(["nft", "list", "tables", kind]).split("\n")
        ours = [line for line in lines if line.split()[-1:] and line.split()[-1] in _EMPTY]
        namespace.run(["nft", "-f", "-"], "".join(f"delete {line}\n" for line in ours))
        return
    names = Path(f"/proc/net/{family.tool.replace('tables', '_tables')}_names")
    tables = namespace.call(names.read_text).split()
    load("".join(f"*{name}\n{_EMPTY[name]}COMMIT\n" for name in tables), family, backend, namespace)


_EMPTY = {name: "".join(f":{chain} ACCEPT [0:0]\n" for chain in chains) for name, chains in BUILT_IN.items()}


def ip_sets_named(text: str) -> dict[str, str]:
    """Sets that rules of *text* name, each with a type that fits how it is used."""
    types: dict[str, str] = {}
    for line in lines_of(text):
        if "-set" not in line or line.startswith("#"):
            continue
        words = [unquote(word) for word, _ in split(line)]
        for at, word in enumerate(words[:-2]):
            if word in ("--match-set", "--add-set", "--del-set", "--map-set"):
                types.setdefault(words[at + 1], _SET_TYPES.get(words[at + 2].count(",") + 1, "hash:net"))
    return types


def make_ip_sets(
    types: Mapping[str, str],
    family: Family,
    namespace: Namespace,
    members: Mapping[str, Iterable[str]] | None = None,
) -> None:
    """Create sets of the given *types* unless they exist; *members* replace their members."""
    if not types:
        return
    kind = "inet" if family is Family.IPV4 else "inet6"
    lines = [f'create "{name}" {type_} family {kind} counters' for name, type_ in types.items()]
    if members is not None:
        lines += [f'flush "{name}"' for name in types]
        lines += [f'add "{name}" {entry}' for name, entries in members.items() for entry in entries]
    namespace.run(["ipset", "-exist", "restore"], "\n".join(lines) + "\n")


def read_by_iptc(table: str, family: Family, namespace: Namespace) -> dict[str, list[dict[str, object]]]:
    """The rules of *table* in the legacy kernel, read by python-iptables: chain -> rules.

    This reader shares no code with ours; it reads the legacy tables only.
    """
    return namespace.call(_read_by_iptc, table, family)


def _read_by_iptc(table: str, family: Family) -> dict[str, list[dict[str, object]]]:
    try:
        import iptc
    except ImportError as error:
        raise LiveError("python-iptables is not installed; pip install 'hitables[live]'") from error
    chains = iptc.easy.dump_table(table, ipv6=family is Family.IPV6)
    return {chain: [dict(rule) for rule in rules] for chain, rules in chains.items()}
