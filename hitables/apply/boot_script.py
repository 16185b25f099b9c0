"""The shell script that loads the rules at boot: a head of values, and `boot.sh`, which is always the same.

It needs no Python, so a broken installation of this program does not leave the host open.  It climbs down a
ladder until a step can be loaded: the compiled rules, their source, the rules that were confirmed before, and
rules that let in nothing but ssh.

Invariant: whatever part of the script is missing at its end, it does nothing, and does not end with one of
the exit statuses of `LOADED`; the unit then closes the host itself (boot_command.py).
"""

from __future__ import annotations

import ipaddress
import shlex
import shutil
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ..errors import HitablesError
from ..ir.fields import Family
from ..ir.packet import Backend

# The steps of the ladder, from the top.  The last two are in the script itself.
STEPS = ("compiled", "source", "last", "closed", "bare")
LOADED = range(101, 106)  # the exit status: 100 and the number of the lowest step that a family has reached
OPEN_ENOUGH = range(101, 104)  # the steps that are rules of the user

_HEAD = """\
#!/bin/sh
# Loads the firewall at boot.  Written by "hitables persist", and again whenever rules are confirmed.
# Exit status: 101 compiled rules, 102 their source, 103 rules confirmed before, 104 and 105 closed but ssh.
# {load} --try says which steps can be loaded, and changes nothing.
FOLDER={folder}
HERE=$FOLDER/boot
FAMILIES={families}
FILTERED={filtered}
BACKEND4={backend4}
BACKEND6={backend6}
TABLES={tables}
PATH={path}
LC_ALL=C
export PATH LC_ALL
umask 077

# The checksum and the size of each file.
sum_of() {{
    case $1 in
{sums}        *) ;;
    esac
}}

# The ipsets that rules name: file, name, and how an empty one is created.
sets() {{
    :
{sets}}}
"""


@dataclass(frozen=True, slots=True)
class SshAccess:
    """Who is let in by the closed rules: ssh to *ports* from addresses of *sources* (none: from any)."""

    ports: tuple[int, ...] = (22,)
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for source in self.sources:
            try:
                ipaddress.ip_network(source, strict=False)
            except ValueError:
                raise HitablesError(f"{source!r} is no address or network, such as 192.0.2.0/24") from None

    def matches(self, family: Family) -> list[str]:
        """The matches of the rules that let ssh in, as texts."""
        networks = [ipaddress.ip_network(source, strict=False) for source in self.sources]
        places = [f"-s {network} " for network in networks if network.version == int(family)]
        return [
            f"{place}-p tcp --dport {port}"
            for place in (places if self.sources else [""])
            for port in self.ports
        ]


def closed_rules(family: Family, access: SshAccess, with_state: bool) -> list[str]:
    """Rules of INPUT that let in ssh and what a host cannot do without.

    *with_state*: with the match conntrack, which a kernel may lack; so answers to this host are let in too.
    """
    rules = ["-i lo -j ACCEPT"]
    if with_state:
        rules.append("-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
    if family is Family.IPV6:
        # Without neighbour discovery (router solicitation to redirect) no address is reachable.
        rules += [f"-p ipv6-icmp --icmpv6-type {kind} -j ACCEPT" for kind in range(133, 138)]
    return [*rules, *(f"{match} -j ACCEPT" for match in access.matches(family))]


def script(
    folder: Path,
    backends: Mapping[Family, Backend],
    filtered: Sequence[Family],
    tables: Sequence[str],
    sums: Mapping[str, str],
    sets: Sequence[tuple[str, str, Sequence[str]]],
    access: SshAccess,
) -> str:
    """The text of the script in the state directory *folder*.

    backends  by family, of the families that are loaded
    filtered  the families whose rules have a table filter
    tables    those that a step may have
    sums      by file: what `cksum` prints for it
    sets      file, name, and the words that create it
    """
    head = _HEAD.format(
        load=shlex.quote(str(folder / "boot" / "load")),
        folder=shlex.quote(str(folder)),
        families=shlex.quote(" ".join(str(int(family)) for family in backends)),
        filtered=shlex.quote(" ".join(str(int(family)) for family in filtered)),
        backend4=backends.get(Family.IPV4, Backend.NFT).value,
        backend6=backends.get(Family.IPV6, Backend.NFT).value,
        tables=shlex.quote(" ".join(tables)),
        path=shlex.quote(search_path(backends.values())),
        sums="".join(f"        {name}) echo {shlex.quote(value)} ;;\n" for name, value in sums.items()),
        sets="".join(f"    set_of {shlex.join([file, name, *words])}\n" for file, name, words in sets),
    )
    closed = "".join(
        f"\n{name}{int(family)}() {{\n    cat <<'END'\n{_closed(family, access, with_state)}END\n}}\n"
        for family in backends
        for name, with_state in (("closed", True), ("bare", False))
    )
    return f"{head}{closed}\n{(files(__package__) / 'boot.sh').read_text()}"


def _closed(family: Family, access: SshAccess, with_state: bool) -> str:
    heads = "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n"
    rules = closed_rules(family, access, with_state)
    return heads + "".join(f"-A INPUT {rule}\n" for rule in rules) + "COMMIT\n"


def search_path(backends: Iterable[Backend]) -> str:
    """The folders of the tools now, and the usual ones."""
    tools = [*(f"iptables-{backend.value}-restore" for backend in backends), "ipset", "unshare"]
    found = [str(Path(path).parent) for tool in tools if (path := shutil.which(tool)) is not None]
    usual = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return ":".join(dict.fromkeys([*usual, *(folder for folder in found if folder not in usual)]))


def checksum(data: bytes) -> str:
    """What the command `cksum` of POSIX prints for *data*: a checksum of 32 bits, and the number of bytes.

    Its polynomial is that of zlib, with the bits of each byte, and of the result, in the other order.
    """
    size, length = b"", len(data)
    while length:
        size += bytes([length & 0xFF])
        length >>= 8
    state = zlib.crc32((data + size).translate(_TURNED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return f"{int(f'{state:032b}'[::-1], 2) ^ 0xFFFFFFFF} {len(data)}"


_TURNED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
