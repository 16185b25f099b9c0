"""The machine on which a measurement runs."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import date
from pathlib import Path


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(tool: str) -> str:
    if shutil.which(tool) is None:
        return ""
    return subprocess.run([tool, "--version"], capture_output=True, text=True, check=False).stdout.strip()


def machine() -> dict[str, object]:
    """The day, CPU, cores, kernel, Python and iptables, for the head of a results file."""
    return {
        "date": date.today().isoformat(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "iptables": _version("iptables"),
    }
