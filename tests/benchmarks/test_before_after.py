"""The table of what packets read before and after, and that it sees a wrong verdict."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import hitables
from benchmarks.before_after import gains, main
from hitables.compiler.compile import compile_rules
from hitables.ir.packet import Backend

LONG = "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n" + "".join(
    f"-A INPUT -s 10.{number}.0.0/16 -p tcp -m tcp --dport {number + 20} -j ACCEPT\n" for number in range(200)
)
LONG += "COMMIT\n"


@pytest.mark.parametrize("backend", list(Backend))
def test_a_compiled_list_reads_less_and_decides_alike(backend: Backend) -> None:
    program = hitables.read(LONG)
    (line,) = gains(program, compile_rules(program).program, 5000, backend)
    assert line.chain == "filter INPUT"
    assert line.differing == 0
    assert line.mean[1] < line.mean[0] / 4
    assert line.longest[1] < line.longest[0] / 4


@pytest.mark.parametrize(
    ("change", "status"), [((" --dport 30 ", " --dport 30 "), 0), ((" --dport 30 ", " --dport 31 "), 1)]
)
def test_one_changed_port_among_two_hundred_rules_is_seen(
    change: tuple[str, str], status: int, tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_text(LONG)
    after.write_text(LONG.replace(*change))
    done = CliRunner().invoke(main, [str(before), str(after)])
    assert done.exit_code == status, done.output
    assert "Size: 200 rules before, 200 after." in done.output
