"""A command leaves large values to the end of its process, which does not free them either."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
from hitables import interrupts
from hitables.cli.terminal import keep

class Value:
    def __del__(self):
        print("freed")

{watch}
keep(Value())
print("end")
"""


@pytest.mark.parametrize(
    ("watch", "said"),
    [("interrupts.watch()", ["end"]), ("", ["freed", "end"])],
    ids=["a command", "a library"],
)
def test_a_kept_value_is_never_freed_in_the_process_of_a_command(watch: str, said: list[str]) -> None:
    program = PROGRAM.format(watch=watch)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == said and not done.stderr
