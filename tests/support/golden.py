"""Cases as folders of text: tests/cases/NAME holds `rules` and what `hitables compile` makes of it.

    rules      the input
    options    more arguments of the command, if any
    compiled   what it prints, or
    error      what it says when it refuses

`python tests/support/golden.py` (make golden) records all anew.  Compile proves what it prints equal to its
source, so an output that is not equivalent is never recorded; nor is a case that turns the proof off.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from click.testing import CliRunner

from hitables.cli.main import main

CASES = sorted(path.parent for path in (Path(__file__).parents[1] / "cases").glob("*/rules"))


def outcome(case: Path) -> tuple[str, str]:
    """The name of the file that holds what became of *case*, and its text."""
    more = case / "options"
    options = shlex.split(more.read_text()) if more.exists() else []
    if any(option.startswith(("--no-p", "--no-v")) for option in options):  # --no-prove and its alias
        raise ValueError(f"{case.name}: a case may not turn the proof off")
    done = CliRunner().invoke(main, ["compile", "-", *options], input=(case / "rules").read_bytes())
    faulty = "fault of hitables" in done.stderr
    if done.exit_code == 0 and not faulty:
        return "compiled", done.stdout
    if done.exit_code != 2 or faulty:
        raise ValueError(f"{case.name}: exit {done.exit_code}\n{done.stderr}")
    return "error", done.stderr


def record(case: Path) -> bool:
    """Write what becomes of *case*; whether that is new."""
    name, text = outcome(case)
    (case / {"compiled": "error", "error": "compiled"}[name]).unlink(missing_ok=True)
    old = (case / name).read_text() if (case / name).exists() else None
    (case / name).write_text(text)
    return old != text


if __name__ == "__main__":
    for case in CASES:
        try:
            print(f"{'new ' if record(case) else 'same'} {case.name}")
        except ValueError as error:
            sys.exit(str(error))
