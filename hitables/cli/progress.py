"""The progress bar of a command that takes more than a second: the stage that runs, and its completed share.

It is shown on a terminal only.  Functions that report their stages take a `Progress` as a callback.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

DELAY = 1.0  # seconds before the bar appears: a shorter command prints nothing


class Progress:
    """Receives the stages of a command, and shows nothing."""

    def __call__(self, stage: str) -> None:
        """*stage* begins."""

    def done(self, share: float) -> None:
        """This share of the stage, from 0 to 1, is completed."""


class _Bar(Progress):
    """Shows stage, share and time."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
        )
        self.bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task("starting", total=None)
        self.began = time.monotonic()

    def __call__(self, stage: str) -> None:
        self.bar.reset(self.task, start=False, total=None, description=stage)
        self.bar.start_task(self.task)
        self._show()

    def done(self, share: float) -> None:
        self.bar.update(self.task, total=1.0, completed=share)
        self._show()

    def _show(self) -> None:
        if not self.bar.live.is_started and time.monotonic() - self.began > DELAY:
            self.bar.start()


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Progress]:
    """A progress bar, if standard error is a terminal and the command is not *quiet*."""
    if quiet or not sys.stderr.isatty():
        yield Progress()
        return
    bar = _Bar()
    try:
        yield bar
    finally:
        bar.bar.stop()
