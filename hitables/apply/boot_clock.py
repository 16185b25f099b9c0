"""This boot of the machine: its name, and the time since it began.

NTP and `date -s` set the clock of the day, but not this one, which also goes on while the machine sleeps.  A
deadline is therefore recorded as a time of this clock, with the name of the boot.
"""

from __future__ import annotations

import time
from pathlib import Path


def boot_id() -> str:
    """The kernel's name for the time since the machine was started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def since_boot() -> float:
    """Seconds since the machine was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
