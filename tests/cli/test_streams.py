"""Messages of commands whose standard streams are closed or full, and outputs that they refuse to write."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from support import command_clients, forked

from hitables.cli import terminal
from hitables.cli.main import main as hitables_main
from hitables.errors import HitablesError
from hitables.files import check_outputs, write_texts
from sflgen.cli import main as sflgen_main

BIN = Path(sys.executable).parent
RULES = "*filter\n:INPUT DROP [0:0]\n-A INPUT -s 10.1.0.0/16 -j ACCEPT\n-A INPUT -s 10.0.0.0/8 -j ACCEPT\nCOMMIT\n"
FILTERS = "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t22 : 22\t0x06/0xFF\t0x0000/0x0000\n" * 3
TRACE = "167772161\t1\t1\t22\t6\n" * 3

# Command lines, by command, that print to standard output; {} is a folder with the files below.
PRINTING = {
    "hitables compile": "compile {}/a.rules",
    "hitables check": "check {}/a.rules {}/a.rules",
    "hitables diff": "diff {}/a.rules {}/a.rules",
    "hitables lint": "lint {}/a.rules",
    "hitables trace": "trace {}/a.rules --packet chain=INPUT_src=10.1.0.1_dst=1.1.1.1_proto=99",
    "hitables reach": "reach {}/a.rules",
    "hitables counters": "counters {}/compiled --map {}/map",
    "hitables source": "source {}/compiled --map {}/map",
    "hitables stats": "stats {}/a.rules",
    "hitables convert": "convert {}/filters --from classbench --to iptables",
    "hitables graph": "graph {}/a.rules",
    "hitables algorithms": "algorithms",
    "hitables classify": "classify {}/filters {}/trace",
    "hitables generate": "generate {}/seed -n 3",
    "hitables seed": "seed {}/filters",
    "hitables traffic": "traffic {}/trace",
    "hitables bench classify": "bench classify {}/filters {}/trace --algorithms linear",
    "sflgen init": "init {}/big.rules --state {}/new",
    "sflgen insert": "insert --state {}/state INPUT -s 192.0.2.1 -j DROP",
    "sflgen delete": "delete --state {}/state INPUT 1",
    "sflgen apply-commands": "apply-commands --state {}/state {}/commands",
    "sflgen sync": "sync --state {}/state {}/b.rules",
    "sflgen fold": "fold --state {}/pending",
    "sflgen status": "status --state {}/state",
    "sflgen verify": "verify --state {}/state",
    "sflgen print": "print --state {}/state",
    "sflgen stream": "stream --state {}/state",
}
# They measure in the kernel for a minute before they print, or use the one at hand, or a socket, or print nothing
# where nothing changes; their help stands for them.
MEASURING = (
    "hitables filters serve", "hitables filters send", "hitables filters monitor", "hitables calibrate", "hitables bench kernel", "hitables save", "hitables apply", "hitables confirm",
    "hitables rollback", "hitables release", "hitables status", "hitables history", "hitables persist", "sflgen hot", "sflgen repair",
)  # fmt: skip

CLOSED = ("<&-", ">&-", "2>&-")
STARTED = ("compile", "init")


def commands(group: click.Group, name: str) -> list[str]:
    """Every command below *group*, with the names of its groups."""
    paths = []
    for word, command in group.commands.items():
        below = f"{name} {word}"
        paths += commands(command, below) if isinstance(command, click.Group) else [below]
    return paths


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the commands read, written once."""
    tmp_path = tmp_path_factory.mktemp("streams")
    (tmp_path / "a.rules").write_text(RULES)
    (tmp_path / "b.rules").write_text(RULES.replace("10.1", "10.2"))
    (tmp_path / "filters").write_text(FILTERS)
    (tmp_path / "trace").write_text(TRACE)
    (tmp_path / "commands").write_text("-I INPUT -s 192.0.2.9 -j DROP\n")
    run(tmp_path, "hitables", "seed {}/filters -o {}/seed", "")
    run(tmp_path, "hitables", "compile {}/a.rules -o {}/compiled --map {}/map", "")
    run(tmp_path, "sflgen", "init {}/a.rules --state {}/state", "")
    many = "".join(f"-A INPUT -s 11.{n}.0.0/24 -p tcp -m tcp --dport {n} -j ACCEPT\n" for n in range(60))
    (tmp_path / "big.rules").write_text(RULES.replace("COMMIT\n", many + "COMMIT\n"))
    run(tmp_path, "sflgen", "init {}/big.rules --state {}/pending", "")
    run(tmp_path, "sflgen", "insert --state {}/pending --strategy overlay INPUT -s 192.0.2.1 -j DROP", "")
    return tmp_path


@pytest.fixture
def folder(inputs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(inputs, tmp_path / "files"))


def run(folder: Path, program: str, words: str, streams: str) -> subprocess.CompletedProcess[str]:
    """Run a command with shell redirections; a "_" in its words is a blank.

    Where several streams are closed, or one comes from the shell, it is a process that starts; so are the
    commands STARTED.
    """
    given = [word.replace("{}", str(folder)).replace("_", " ") for word in words.split()]
    if "_" in str(folder):
        given = [word.replace("{}", str(folder)) for word in words.split()]
        given = [word.replace("_", " ") if word.startswith("chain=") else word for word in given]
    text = "-I INPUT -s 192.0.2.3 -j DROP\n" if "stream" in words else ""
    if streams in ("", ">/dev/full"):
        return forked.run([program, *given], text, output=streams[1:])
    if streams in CLOSED and words.split()[0] not in STARTED:
        return forked.run([program, *given], text, closed=[CLOSED.index(streams)])
    script = f'"$0" "$@" {streams}'
    return subprocess.run(
        ["bash", "-c", script, str(BIN / program), *given],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_every_command_is_tried() -> None:
    every = commands(hitables_main, "hitables") + commands(sflgen_main, "sflgen")
    assert sorted(every) == sorted([*PRINTING, *MEASURING])


@pytest.mark.parametrize(
    ("streams", "message"), [(">/dev/full", "No space left on device"), (">&-", "closed")]
)
@pytest.mark.parametrize("command", PRINTING)
def test_a_full_or_closed_standard_output_gives_one_line(
    command: str, streams: str, message: str, folder: Path
) -> None:
    program = command.split()[0]
    done = run(folder, program, PRINTING[command], streams)
    lines = [line for line in done.stderr.splitlines() if "standard output" in line]
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert len(lines) == 1 and message in lines[0] and lines[0].startswith(f"{program}: ")
    assert "fault" not in done.stderr and "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("lint {}/a.rules", 141, ""),
        ("stats {}/a.rules", 141, ""),
        ("algorithms", 141, ""),
        ("compile {}/a.rules", 2, "hitables: the reader of the output closed it\n"),
    ],
)
def test_a_reader_that_closes_a_pipe_is_told_of_where_more_than_words_is_lost(
    words: str, status: int, message: str, folder: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [BIN / "hitables", *(word.format(folder) for word in words.split())]
    with open(writing, "wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, message)


def test_a_closed_pipe_is_told_where_status_has_something_to_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "discard", lambda stream: None)

    def closed(repair: bool) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe", "standard output")

    option = click.Option(["--repair"], is_flag=True)
    command = terminal.Printer("status", params=[option], callback=closed)
    for words, error in ((["--repair"], BrokenPipeError), ([], SystemExit)):
        with pytest.raises(error):
            command.invoke(command.make_context("status", words))


@pytest.mark.parametrize("command", [*MEASURING, "hitables", "hitables compile", "sflgen"])
@pytest.mark.parametrize(("streams", "message"), [(">/dev/full", "No space left"), (">&-", "closed")])
def test_help_that_cannot_be_printed_is_told(
    command: str, streams: str, message: str, tmp_path: Path
) -> None:
    program, *words = command.split()
    done = run(tmp_path, program, " ".join([*words, "--help"]), streams)
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    ["compile", "lint", "stats", "graph", "check - {}/a.rules", "diff {}/a.rules -", "seed -",
     "convert - --from classbench --to iptables", "classify - {}/trace", "generate - -n 3",
     "trace --packet chain=INPUT_src=10.1.0.1_dst=1.1.1.1_proto=99"],
)  # fmt: skip
def test_a_closed_standard_input_gives_one_line(words: str, folder: Path) -> None:
    done = run(folder, "hitables", words, "<&-")
    assert (
        done.returncode == 2
        and done.stderr == "hitables: standard input: it is closed; name a file instead\n"
    )


@pytest.mark.parametrize(
    "words", ["init - --state {}/new", "sync - --state {}/state", "apply-commands --state {}/state -"]
)
def test_a_closed_standard_input_gives_a_line_in_sflgen_too(words: str, folder: Path) -> None:
    done = run(folder, "sflgen", words, "<&-")
    assert (
        done.returncode == 2
        and "standard input: it is closed" in done.stderr
        and done.stderr.count("\n") == 1
    )


@pytest.mark.parametrize("command", [each for each in PRINTING if each != "sflgen stream"])
def test_a_closed_standard_error_changes_neither_result_nor_status(command: str, folder: Path) -> None:
    program = command.split()[0]
    other = folder / "other"
    other.mkdir()
    done = run(folder, program, PRINTING[command], "2>&-")
    assert done.returncode == (1 if command == "hitables lint" and done.returncode == 1 else 0), done.stdout
    assert done.stdout.strip()


def test_no_file_gets_a_closed_standard_descriptor(folder: Path) -> None:
    """The rule file would become descriptor 1 or 2, and the command would write to it."""
    for streams in (">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
        run(folder, "hitables", "compile {}/a.rules --summary", streams)
        assert (folder / "a.rules").read_text() == RULES


@pytest.mark.parametrize("option", ["-o", "--map", "--report"])
def test_a_full_disk_is_an_error_and_leaves_every_old_file(option: str, folder: Path) -> None:
    if os.geteuid():
        pytest.skip("only root mounts a file system")
    words = {
        "-o": "-o $d/out",
        "--map": "--map $d/out -o $d/../rules",
        "--report": "--report $d/out.html -o $d/../rules",
    }
    script = (
        f"set -e; d={folder}/small; mkdir $d; mount -t tmpfs -o size=4k,nr_inodes=8 none $d; echo old >{folder}/rules\n"
        f"{BIN}/hitables compile {folder}/many.rules {words[option]}"
    )
    many = "".join(f"-A INPUT -s 10.{n // 256}.{n % 256}.0/24 -j ACCEPT\n" for n in range(400))
    (folder / "many.rules").write_text(RULES.replace("COMMIT\n", many + "COMMIT\n"))
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "No space left on device" in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and "fault" not in done.stderr
    assert (folder / "rules").read_text() == "old\n"


# Outputs that would overwrite something.


def test_outputs_that_are_one_file_are_refused_and_nothing_is_written(folder: Path) -> None:
    (folder / "there").write_text("old\n")
    (folder / "soft").symlink_to(folder / "there")
    (folder / "hard").hardlink_to(folder / "there")
    (folder / "dangling").symlink_to(folder / "new")
    for one, other in (
        ("new", "new"),
        ("there", "soft"),
        ("there", "hard"),
        ("new", "dangling"),
        ("new", "./new"),
    ):
        done = run(folder, "hitables", f"compile {{}}/a.rules -o {{}}/{one} --map {{}}/{other}", "")
        assert done.returncode == 2 and "the same file" in done.stderr, (one, other, done.stderr)
        assert (folder / "there").read_text() == "old\n" and not (folder / "new").exists()


@pytest.mark.parametrize(
    "words",
    ["compile {}/a.rules -o {}/a.rules", "compile {}/a.rules --map {}/soft -o {}/x", "compile {}/hard -o {}/a.rules",
     "check {}/b.rules {}/a.rules -o {}/a.rules", "diff {}/a.rules {}/b.rules -o {}/soft", "lint {}/a.rules -o {}/a.rules",
     "graph {}/a.rules -o {}/hard", "compile - -o {}/a.rules <", "compile {}/a.rules >>"],
)  # fmt: skip
def test_an_output_that_would_overwrite_an_input_is_refused(words: str, folder: Path) -> None:
    (folder / "soft").symlink_to(folder / "a.rules")
    (folder / "hard").hardlink_to(folder / "a.rules")
    streams = f"{words[-2:].strip()} {folder}/a.rules" if words[-1] in "<>" else ""
    done = run(folder, "hitables", words.rstrip("<> "), streams)
    assert done.returncode == 2 and "would overwrite" in done.stderr, done.stderr
    assert (folder / "a.rules").read_text() == RULES and not (folder / "x").exists()


def test_two_results_on_standard_output_are_refused(folder: Path) -> None:
    done = run(folder, "hitables", "compile {}/a.rules --map -", "")
    assert done.returncode == 2 and done.stdout == "" and "the same file" in done.stderr


def test_devices_take_several_outputs(folder: Path) -> None:
    check_outputs({"--output": "/dev/null", "--map": "/dev/null"}, {"FILE": "/dev/null"})
    assert run(folder, "hitables", "compile {}/a.rules -o /dev/null --map /dev/null", "").returncode == 0


def test_of_several_files_all_are_written_or_none(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("old")
    with pytest.raises(HitablesError):
        write_texts([(str(old), "new"), (str(tmp_path / "missing" / "file"), "new")])
    assert old.read_text() == "old" and sorted(path.name for path in tmp_path.iterdir()) == ["old"]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "{}/link"])
@pytest.mark.parametrize("option", ["-o", "--map"])
def test_an_open_file_is_written_where_it_stands(name: str, option: str, folder: Path) -> None:
    """A shell opened it: what is in it stays, and what is written later comes behind."""
    (folder / "link").symlink_to("/dev/stdout")
    path = name.format(folder)
    rest = "" if option == "-o" else f"-o {folder}/x"
    command = f"{command_clients.folder()}/hitables compile {folder}/a.rules {rest} {option} {path}"
    script = f"(echo first; {command}; echo last) >{folder}/all && (echo more; {command}) >>{folder}/all"
    subprocess.run(["bash", "-c", script], check=True)
    lines = (folder / "all").read_text().splitlines()
    assert lines[0] == "first" and lines.count("last") == lines.count("more") == 1
    assert len(lines) == 2 * lines.index("last") + 1
    piped = subprocess.run(["bash", "-c", f"{command} | cat"], check=True, capture_output=True, text=True)
    assert piped.stdout.splitlines() == lines[1 : lines.index("last")]


def test_a_pipe_of_the_shell_gets_the_output(folder: Path) -> None:
    script = f"{BIN}/hitables compile {folder}/a.rules -o >(cat >{folder}/got; touch {folder}/done)"
    subprocess.run(["bash", "-c", f"{script}; until [ -e {folder}/done ]; do sleep 0.05; done"], check=True)
    assert (folder / "got").read_text().endswith("COMMIT\n")


def test_standard_output_by_two_names_is_one_file(folder: Path) -> None:
    done = run(folder, "hitables", "compile {}/a.rules -o - --map /dev/stdout", "")
    assert done.returncode == 2 and done.stdout == "" and "the same file" in done.stderr


@pytest.mark.parametrize(
    "words",
    ["check {}/a.rules {}/a.rules --leave", "reach {}/a.rules --to", "lint {}/a.rules --chain",
     "compile {}/a.rules -o", "diff {}/a.rules {}/b.rules --leave docker --leave"],
)  # fmt: skip
def test_an_empty_value_of_an_option_is_refused(words: str, folder: Path) -> None:
    """A variable of a script that is not set."""
    done = subprocess.run(
        [f"{BIN}/hitables", *words.format(*[folder] * 2).split(), ""],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and "an empty value" in done.stderr and not done.stdout


@pytest.mark.parametrize(
    "words",
    ["compile a.rules -o --map a.map", "apply a.rules --check --state .", "diff a.rules b.rules --chain -o"],
)  # fmt: skip
def test_an_option_as_the_value_of_another_is_refused(words: str, folder: Path) -> None:
    """The rest of the line would be read as something else: a file named --map."""
    done = subprocess.run(
        [f"{BIN}/hitables", *words.split()], check=False, cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and "its value is missing" in done.stderr and not done.stdout
    assert not (folder / "--map").exists()


@pytest.mark.parametrize("address", ["::1", "::22", "[2001:db8::7]:22", "2001:db8::/32", "::"])
def test_an_address_of_ipv6_is_no_port_of_ipv4(address: str, folder: Path) -> None:
    done = run(folder, "hitables", f"reach {{}}/a.rules --to {address}", "")
    assert done.returncode == 2 and "an address of IPv6, where the rules are of IPv4" in done.stderr
