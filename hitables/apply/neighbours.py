"""Programs of this host whose start undoes rules of others, as their settings say.

ufw and firewalld start at boot behind the rules that `hitables persist` loads, and are reloaded at any time.
Their settings are read, not their rules: direct rules of firewalld that are in no file are not known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..ir.foreign import is_foreign

ETC = Path("/etc")
_PROC = Path("/proc")


def flushers() -> list[str]:
    """A warning for each program that deletes all rules of iptables when it starts or is reloaded."""
    found = []
    if _ufw_is_enabled() and _ufw_flushes():
        found.append(_flushes("ufw", f"set MANAGE_BUILTINS=no in {ETC / 'default/ufw'}"))
    if _firewalld_is_used():
        settings, direct = ETC / "firewalld/firewalld.conf", ETC / "firewalld/direct.xml"
        if _value("firewalld/firewalld.conf", "FirewallBackend") == "iptables":
            found.append(_flushes("firewalld", f"set FirewallBackend=nftables in {settings}"))
        elif _has_direct_rules(_text("firewalld/direct.xml")):
            found.append(_flushes("firewalld", f"remove the direct rules of {direct}"))
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


def _flushes(program: str, remedy: str) -> str:
    return (
        f"warning: {program} deletes all rules of iptables, these too, when it starts and when it is "
        f"reloaded: {remedy}, or disable {program}"
    )


def _ufw_is_enabled() -> bool:
    return _value("ufw/ufw.conf", "ENABLED") == "yes"


def _ufw_flushes() -> bool:
    return _value("default/ufw", "MANAGE_BUILTINS") == "yes"


def _firewalld_is_used() -> bool:
    """Whether it runs, or starts at boot."""
    wanted = ETC / "systemd/system/multi-user.target.wants/firewalld.service"
    return wanted.is_symlink() or any(_is_firewalld(path) for path in _PROC.glob("[0-9]*/comm"))


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
