"""This boot of the machine: its name, and the time since it began.

Nobody sets this clock, as NTP and `date -s` set that of the day, and it goes on while the machine sleeps.  So
what shall happen after a minute is noted as a time of it, with the name of the boot.
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
