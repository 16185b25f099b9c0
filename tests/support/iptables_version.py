"""The version of the iptables that tests call: what one version does wrong, a later one may do right."""

from __future__ import annotations

import functools
import re
import subprocess


@functools.cache
def version() -> tuple[int, ...]:
    """As 1, 8, 9."""
    said = subprocess.run(["iptables", "--version"], capture_output=True, text=True, check=True).stdout
    (numbers,) = re.findall(r"v([\d.]+)", said)
    return tuple(map(int, numbers.split(".")))


def iptables_is(least: tuple[int, int, int]) -> bool:
    """Whether it is version *least* or a later one."""
    return version() >= least
