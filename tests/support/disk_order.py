"""What reaches the disk, in order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is flushed and renamed from now on: "flushed NAME" and "renamed NAME"."""
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flush(handle: int) -> None:
        events.append(f"flushed {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
        fsync(handle)

    def rename(old: Any, new: Any) -> None:
        events.append(f"renamed {Path(new).name}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", rename)
    return events
