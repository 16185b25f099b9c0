"""`hitables filters`: what it cannot do is said in one message, with what to do; answers and events as text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.hitables_command import run

HITABLES = Path(sys.executable).parent / "hitables"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mode", "99"], "'99' is no mode of a file; write it as 0600 or 0660"),
        (["--mode", "u+x"], "'u+x' is no mode of a file"),
        (["--group", "no-such-group"], "--group no-such-group: there is no such group"),
        (["--algorithm", "hypersplat"], "no algorithm is called hypersplat; did you mean hypersplit?"),
        (["--room", "0"], "0 is not in the range"),
        (["--max-memory", "1M"], "do not fit into the memory"),
        (["--capture", "no-such-wire"], "no-such-wire: "),
        (["none.filters"], "none.filters: No such file or directory"),
        (["--socket", "folder/none/socket"], "folder/none/socket: No such file or directory"),
        (["--socket", "x" * 200], "AF_UNIX path too long"),
        (["--socket", "a-file"], "a-file: there is a file of this name, and it is no socket"),
        (["--socket", "folder"], "folder: there is a file of this name, and it is no socket"),
    ],
)  # fmt: skip
def test_what_a_server_cannot_do_is_said_and_leaves_no_socket(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "a-file").write_text("kept")
    options = words if "--socket" in words else ["--socket", "socket", *words]
    said = run("filters", "serve", *options, status=2).stderr
    assert message in said
    assert not (tmp_path / "socket").exists()
    assert (tmp_path / "a-file").read_text() == "kept"


def test_mistakes_in_a_file_of_filters_are_shown_with_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "office.filters"
    path.write_text("10 allow dport 80\n20 deny sprot 9\n")
    said = run("filters", "serve", "--socket", tmp_path / "socket", path, status=2).stderr
    assert said.splitlines() == [
        f"hitables: {path}:2:9: no field is called sprot; did you mean sport?",
        "  20 deny sprot 9",
        "          ^^^^^",
    ]


def test_commands_are_answered_and_events_are_printed(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with subprocess.Popen(
        [HITABLES, "filters", "serve", "--socket", path, "--family", "6"], stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None and "listening" in server.stderr.readline()
            send = ("filters", "send", "--socket", path)
            assert run(*send, "insert", "7", "add_event", "dst", "2001:db8::/32").stdout == "ok\n"
            assert run(*send, text="\n# none\nlist\nclassify dst 2001:db8::1\nquit\nlist\n").stdout == (
                "filter 0 7 add_event dst 2001:db8::/32\nok 1\nok drop 7\n"
            )
            refused = run(*send, text="delete 8\ndelete 7\nlist\n", status=2)
            assert refused.stdout == "ok\nok 0\n"
            assert refused.stderr.splitlines() == [
                "error column 8: no filter of priority 8 is there",
                f"hitables: {path}: refused 1 command",
            ]
            two_lines = run(*send, "classify", "dst", "::1\ninsert 8 allow", status=2)
            assert two_lines.stderr == (
                "hitables: 'classify dst ::1\\ninsert 8 allow' is more than one line; a command is one line\n"
            )
            assert run(*send, "list").stdout == "ok 0\n"
            assert "events are for" in run(*send, "monitor", status=2).stderr
            run(*send, "insert", "9", "allow_event", "proto", "17")
            watch = [HITABLES, "filters", "monitor", "--socket", path, "--count", "2"]
            with subprocess.Popen(watch, stdout=subprocess.PIPE, text=True) as monitor:
                while "monitors 1" not in run(*send, "status").stdout:
                    pass
                run(*send, text="classify proto udp src ::7\n" * 3)
                assert monitor.stdout is not None
                lines = monitor.stdout.read().splitlines()
                assert monitor.wait() == 0
            words = [line.split() for line in lines]
            assert [each[0] for each in words] == ["1", "2"]
            assert {" ".join(each[2:]) for each in words} == {
                "9 allow_event src ::7 dst :: sport 0 dport 0 proto udp tcp other"
            }
            server.terminate()
            assert server.wait() == 0
        finally:
            server.kill()
    assert "listens there" in run(*send, "list", status=2).stderr
