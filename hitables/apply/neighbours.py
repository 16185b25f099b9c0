"""Programs of this host whose start undoes rules of others, as their settings say.

ufw and firewalld start at boot behind the rules that `hitables persist` loads, and are reloaded at any time.
Their settings are read, not their rules: direct rules of firewalld that are in no file are not known.  The
version of firewalld is that of its Python package on this host.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..ir.foreign import is_foreign

ETC = Path("/etc")
PROC = Path("/proc")
# Where packages of distributions have modules of Python, and `make install` puts those of firewalld.
PYTHON_FOLDERS = tuple(map(Path, ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64")))
_FIREWALLD_CONFIG = "python3*/*-packages/firewall/config/__init__.py"
# Earlier versions of firewalld delete the rules of iptables, too, whatever FirewallBackend says; from this
# one on (commit b7faa74d) those with FirewallBackend=nftables do so only if there are direct rules.
_SPARES_IPTABLES = (2, 0)


def flushers() -> list[str]:
    """A warning for each program that deletes all rules of iptables when it starts or is reloaded."""
    found = []
    if _ufw_is_enabled() and _ufw_flushes():
        remedy = f"set MANAGE_BUILTINS=no in {ETC / 'default/ufw'}"
        found.append(_flushes("ufw", "when it starts and when it is reloaded", remedy, "ufw"))
    if _firewalld_is_used():
        version = _firewalld_version()
        name = f"firewalld {'.'.join(map(str, version)) or 'of unknown version'}"
        if remedy := _remedy_of_firewalld(version):
            found.append(_flushes(name, "when it starts, stops or is reloaded", remedy, "firewalld"))
    return found


def appenders(patterns: Sequence[str]) -> list[str]:
    """A warning for ufw, which appends its rules at boot unless its chains are left (boot_texts.py).

    There is no warning if ufw deletes all rules first, which `flushers` tells.
    """
    if not _ufw_is_enabled() or _ufw_flushes() or is_foreign("ufw-before-input", patterns):
        return []
    return [
        "warning: ufw is enabled: at boot it adds its rules behind these and sets its policies; "
        "hitables apply --leave ufw keeps its rules where they are, ufw disable ends them"
    ]


def _flushes(name: str, when: str, remedy: str, program: str) -> str:
    return f"warning: {name} deletes all rules of iptables, these too, {when}: {remedy}, or disable {program}"


def _ufw_is_enabled() -> bool:
    return _value("ufw/ufw.conf", "ENABLED") == "yes"


def _ufw_flushes() -> bool:
    return _value("default/ufw", "MANAGE_BUILTINS") == "yes"


def _firewalld_is_used() -> bool:
    """Whether it runs, or starts at boot."""
    wanted = ETC / "systemd/system/multi-user.target.wants/firewalld.service"
    return wanted.is_symlink() or any(_is_firewalld(path) for path in PROC.glob("[0-9]*/comm"))


def _remedy_of_firewalld(version: tuple[int, ...]) -> str:
    """What keeps firewalld of *version* from deleting rules of iptables; "" if it does not delete them."""
    remedies = []
    if version < _SPARES_IPTABLES:
        remedies.append(f"have version {'.'.join(map(str, _SPARES_IPTABLES))} or later")
    if _value("firewalld/firewalld.conf", "FirewallBackend") == "iptables":
        remedies.append(f"set FirewallBackend=nftables in {ETC / 'firewalld/firewalld.conf'}")
    if _has_direct_rules(_text("firewalld/direct.xml")):
        remedies.append(f"remove the direct rules of {ETC / 'firewalld/direct.xml'}")
    return " and ".join(remedies)


def _firewalld_version() -> tuple[int, ...]:
    """The earliest that a Python package of it on this host says; () if there is none, or one says none."""
    modules = (path for folder in PYTHON_FOLDERS for path in folder.glob(_FIREWALLD_CONFIG))
    return min(map(_version_in, modules), default=())


def _version_in(module: Path) -> tuple[int, ...]:
    with suppress(OSError):
        said = re.search(
            r"^VERSION\s*=\s*[\"'](\d+(?:\.\d+)*)", module.read_text(errors="replace"), re.MULTILINE
        )
        if said:
            return tuple(map(int, said[1].split(".")))
    return ()


def _has_direct_rules(xml: str) -> bool:
    elements = re.sub("<!--.*?-->", "", xml, flags=re.DOTALL)
    return re.search(r"<(rule|chain|passthrough)[\s>]", elements) is not None


def _is_firewalld(comm: Path) -> bool:
    with suppress(OSError):  # the process has ended
        return comm.read_bytes() == b"firewalld\n"
    return False


def _value(file: str, name: str) -> str:
    """What the last line NAME=VALUE of a file of /etc says, in small letters; "" if there is none."""
    values = re.findall(rf"^\s*{name}\s*=\s*[\"']?([^\"'\s]*)", _text(file), flags=re.MULTILINE)
    return values[-1].lower() if values else ""


def _text(file: str) -> str:
    with suppress(OSError):
        return (ETC / file).read_text(errors="replace")
    return ""
