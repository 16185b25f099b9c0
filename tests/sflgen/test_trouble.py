"""Errors: a clear message, exit status 2, and neither state nor kernel changed."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from support.planned_updates import prefixes
from support.powerless import powerless, public_folder
from support.sflgen_command import SFLGEN, forked, sflgen
from support.small_namespace import Namespace

import hitables
from hitables.kernel.namespace import run
from sflgen.planner import Plan
from sflgen.refused import Refused
from sflgen.store import Store


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A state with a ban in its journal."""
    rules, folder = tmp_path / "plain.rules", str(tmp_path / "st")
    rules.write_text(hitables.write(prefixes(20)))
    assert sflgen("init", str(rules), "--state", folder).exit_code == 0
    for host in (7, 8):
        assert (
            sflgen("insert", "--state", folder, "INPUT", "5", "-s", f"192.0.2.{host}", "-j", "DROP").exit_code
            == 0
        )
    return folder


def files(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.name != "lock"}


def test_a_state_of_a_newer_format_is_left_alone(folder: str) -> None:
    path = Path(folder, "state")
    path.write_text(path.read_text().replace("sflgen-state 2", "sflgen-state 9"))
    before = files(folder)
    done = sflgen("insert", "--state", folder, "INPUT", "1", "-j", "DROP")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "has format 9, this sflgen reads formats 2 to 4; use the sflgen that wrote it" in done.stderr
    assert files(folder) == before


@pytest.mark.parametrize(("name", "old", "new", "message"), [
    ("journal.1", "192.0.2.7", "192.0.2.9", "all before it, to version 1, is whole"),
    ("loaded.1.rules", "DROP", "ACCEPT", "whole: master.1.rules, map.1"),
    ("master.1.rules", "DROP", "ACCEPT", "whole: loaded.1.rules, map.1"),
    ("map.1", "tree", "list", "whole: master.1.rules, loaded.1.rules"),
    ("state", "delta 32", "delta 33", "the master list is in master.1.rules"),
    ("state", "sflgen-state", "something", "is no state of sflgen; the master list is in master.1.rules"),
])  # fmt: skip
def test_an_error_of_a_damaged_state_names_the_intact_parts(
    folder: str, name: str, old: str, new: str, message: str
) -> None:
    (path,) = [each for each in Path(folder).iterdir() if each.name.split(".")[0] == name.split(".")[0]]
    (master,) = Path(folder).glob("master.*")
    generation = master.name.split(".")[1]
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    before = files(folder)
    for command in (("insert", "INPUT", "1", "-j", "DROP"), ("status",), ("print",)):
        done = sflgen(*command, "--state", folder)
        assert (done.exit_code, done.stdout) == (2, "")
        assert message in done.stderr.replace(f".{generation}", ".1")
    assert files(folder) == before


def test_the_command_that_makes_a_state_can_be_pasted(tmp_path: Path) -> None:
    path = str(tmp_path / "it's $HOME")
    error = sflgen("status", "--state", path).stderr
    assert shlex.split(error.partition("create one with ")[2])[-2:] == ["--state", path]


@pytest.fixture
def public() -> Iterator[Path]:
    with public_folder() as path:
        yield path


def test_missing_permissions_on_the_state_are_an_error(folder: str, public: Path) -> None:
    folder = shutil.copytree(folder, str(public / "st"))
    before = files(folder)
    for mode, command, message in [
        (0o700, ("status",), "Permission denied; run it as root"),
        (0o700, ("insert", "INPUT", "1", "-j", "DROP"), "Permission denied; run it as root"),
        (0o755, ("insert", "INPUT", "1", "-j", "DROP"), "lock: Permission denied; run it as root"),
    ]:
        os.chmod(folder, mode)
        done = powerless("sflgen", *command, "--state", folder)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert message in done.stderr and "a fault of sflgen" not in done.stderr
    assert files(folder) == before


def test_a_journal_that_cannot_be_written_is_an_error_after_which_nothing_is_changed(
    folder: str, public: Path
) -> None:
    folder = shutil.copytree(folder, str(public / "st"))
    for path in (Path(folder), Path(folder, "lock")):
        path.chmod(0o777)
    for path in (*Path(folder).glob("*.*"), Path(folder, "state")):
        path.chmod(0o644)
    before = files(folder)
    done = powerless("sflgen", "insert", "INPUT", "1", "-j", "DROP", "--state", folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("/journal.2: Permission denied; nothing is changed\n")
    assert files(folder) == before


FULL = """
set -e
mount -t tmpfs -o size=256k none "$1"
"$2" init "$3" --state "$1/st" >"$1/out" 2>&1
dd if=/dev/zero of="$1/filler" bs=1k 2>"$1/out" || true
status=0
while test $status = 0; do  # until the last block of the journal is full
    "$2" print --loaded --state "$1/st" | cksum >/dev/shm/$$
    "$2" insert --strategy overlay --state "$1/st" INPUT 9 -s 10.0.0.0/8 -p udp -j DROP >/dev/shm/$$.out || status=$?
done
echo "status $status, $(wc -c </dev/shm/$$.out) bytes"
"$2" print --loaded --state "$1/st" | cksum | cmp - /dev/shm/$$
rm "$1/filler" /dev/shm/$$ /dev/shm/$$.out
"$2" insert --state "$1/st" INPUT 9 -s 10.0.0.0/8 -p udp -j DROP
"$2" verify --state "$1/st"
"""


@pytest.mark.needs_kernel
def test_a_full_disk_loses_nothing(folder: str, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", FULL, "sh", tmp_path / "disk", SFLGEN, tmp_path / "plain.rules"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "No space left on device; nothing is changed" in done.stderr
    assert done.stdout.startswith("status 2, 0 bytes\n*filter\n")
    assert done.stdout.endswith("proved: the loaded rule set is equal to the rule list\n")


# A disk that is full once the kernel has the patch; $4: the name of the tool.
FULL_AFTER_LOAD = """
set -e
mount -t tmpfs -o size=1m none "$1"
iptables-$4-restore <"$3"
mkdir "$1/bin"
cat >"$1/bin/iptables-$4-restore" <<END
#!/bin/sh
$(command -v iptables-$4-restore) "\\$@" || exit
case "\\$*" in *--noflush*) dd if=/dev/zero of="$1/filler" bs=1k 2>/dev/null || true; esac
END
chmod +x "$1/bin/iptables-$4-restore"
PATH="$1/bin:$PATH" "$2" init --live --backend $4 --state "$1/st"
rm "$1/filler"
"$2" status --live --state "$1/st"
"""


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_a_disk_that_is_full_after_the_load_is_no_error_of_init(backend: str, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "plain.rules").write_text(hitables.write(prefixes(20)))
    done = subprocess.run(
        ["unshare", "-nm", "sh", "-c", FULL_AFTER_LOAD, "sh", tmp_path / "disk", SFLGEN,
         tmp_path / "plain.rules", backend],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("the kernel holds the rule set of the state\n")


UNHEARD = [
    'exec "$@" >/dev/full',
    'exec "$@" >&-',
    '{ "$@"; echo $? >status; } | sleep 0; exit $(cat status)',
]


@pytest.mark.parametrize("shell", UNHEARD)
@pytest.mark.parametrize("command", ["insert INPUT 2 -s 192.0.2.9 -j DROP", "fold", "sync"])
def test_a_patch_that_cannot_be_printed_changes_nothing(
    folder: str, tmp_path: Path, shell: str, command: str
) -> None:
    before = files(folder)
    words = [*command.split(), "--state", folder, *(["plain.rules"] if command == "sync" else [])]
    done = unheard(shell, tmp_path, *words)
    assert done.returncode == 2 and "output" in done.stderr
    assert files(folder) == before
    assert sflgen("verify", "--state", folder).exit_code == 0


def test_a_stream_with_a_closed_standard_output_performs_nothing(folder: str, tmp_path: Path) -> None:
    before = files(folder)
    (tmp_path / "commands").write_text("-I INPUT 2 -s 192.0.2.9 -j DROP\n")
    done = unheard('exec "$@" <commands >&-', tmp_path, "stream", "--state", folder)
    assert done.returncode == 2 and done.stderr == "sflgen: standard output: it is closed\n"
    assert files(folder) == before


def unheard(shell: str, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    # The reader closes the pipe before anything is written.
    shell = shell.replace('"$@"', 'sleep 0.3; "$@"') if "|" in shell else shell
    return subprocess.run(
        ["sh", "-c", shell, "sh", SFLGEN, *command], cwd=folder, capture_output=True, text=True, check=False
    )


UNREAD = [
    'exec "$@" 2>/dev/full',
    '{ "$@"; echo $? >status; } 2>&1 >patch | sleep 0; cat patch; exit $(cat status)',
]


@pytest.mark.parametrize("shell", UNREAD)
def test_messages_that_cannot_be_written_do_not_make_an_update_fail(
    folder: str, tmp_path: Path, shell: str
) -> None:
    """After an error the user would repeat the update."""
    done = unheard(
        shell, tmp_path, "insert", "INPUT", "2", "-s", "192.0.2.9", "-j", "DROP", "--state", folder
    )
    assert done.returncode == 0
    assert done.stdout.startswith("*filter\n") and done.stdout.endswith("COMMIT\n")
    assert "192.0.2.9" in sflgen("print", "--state", folder).stdout


@pytest.mark.parametrize("shell", UNHEARD)
def test_a_state_whose_first_patch_cannot_be_printed_is_not_begun(tmp_path: Path, shell: str) -> None:
    (tmp_path / "plain.rules").write_text(hitables.write(prefixes(20)))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "notes").write_text("mine")
    for name in ("st", "kept"):
        done = unheard(shell, tmp_path, "init", "plain.rules", "--state", name)
        assert done.returncode == 2 and "output" in done.stderr
    assert not (tmp_path / "st").exists()
    assert os.listdir(tmp_path / "kept") == ["notes"]
    assert sflgen("init", str(tmp_path / "plain.rules"), "--state", str(tmp_path / "st")).exit_code == 0


@pytest.mark.parametrize("value", ["nan", "inf", "1e308", "0.5"])
def test_a_value_that_is_no_number_is_an_error(folder: str, tmp_path: Path, value: str) -> None:
    begin = ("init", str(tmp_path / "plain.rules"), "--state", str(tmp_path / "new"))
    done = sflgen(*begin, "--max-expansion", value)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Error: Invalid value for '--max-expansion': " in done.stderr
    assert not (tmp_path / "new").exists()
    if value != "0.5":
        done = sflgen("verify", "--state", folder, "--timeout", value)
        assert done.exit_code == 2 and "Error: Invalid value for '--timeout': " in done.stderr


# The kernel refuses this rule: it has no such estimator.
NO_ESTIMATOR = "-m rateest --rateest none --rateest-gt --rateest-pps 5 -j DROP"


def kernel_refuses(folder: str, rules: str, backend: str) -> None:
    run([f"iptables-{backend}-restore"], Path(rules).read_text())
    state = ["--live", "--state", folder]
    run([forked(), "init", "--backend", backend, *state])
    saved, before = run([f"iptables-{backend}-save"]), files(folder)
    command = ["insert", *state, "INPUT", "3", *NO_ESTIMATOR.split()]
    done = subprocess.run([forked(), *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the kernel refuses the patch; nothing is changed" in done.stderr
    *_, last = done.stderr.splitlines()  # iptables-legacy names COMMIT alone
    assert last.startswith("  line ") and " of the patch: -" in last and last.endswith(NO_ESTIMATOR)
    now = run([f"iptables-{backend}-save"])
    assert [line for line in now.splitlines() if line[0] != "#"] == [
        line for line in saved.splitlines() if line[0] != "#"
    ]
    assert files(folder) == before
    commands = f"-I INPUT 3 {NO_ESTIMATOR}\n-I INPUT 1 -s 192.0.2.1 -j DROP\n"
    done = subprocess.run(
        [forked(), "stream", *state], input=commands, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("error the kernel refuses the patch") and done.stdout.endswith("ok 2\n")


def test_a_refused_line_of_a_patch_is_shown() -> None:
    """The user does not see the patch."""
    patch = f"*filter\n-N sf1\n-A sf1 {NO_ESTIMATOR}\nCOMMIT\n"
    refusal = str(Refused("iptables-restore", "exit status 2: Error occurred at line: 3\nTry -h", patch))
    assert refusal.endswith(f"Try -h\n  line 3 of the patch: -A sf1 {NO_ESTIMATOR}")
    for message in ("line 4 failed", "line 5 failed", "no message"):
        assert str(Refused("tool", message, patch)) == f"tool: {message}"


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_a_rule_that_the_kernel_refuses_changes_nothing(backend: str, tmp_path: Path) -> None:
    rules = tmp_path / "plain.rules"
    rules.write_text(hitables.write(prefixes(20)))
    forked()  # one server for all namespaces
    with Namespace() as namespace:
        namespace.call(kernel_refuses, str(tmp_path / "st"), str(rules), backend)


def holds_one_family(folder: str, backend: str) -> None:
    run([f"ip6tables-{backend}-restore"], "*filter\n-A INPUT -s 2001:db8::/32 -j DROP\nCOMMIT\n")
    begin = [forked(), "init", "--live", "--backend", backend, "--state", folder]
    for family, message in (([], "IPv4 rules; --family 6?"), (["--family", "4"], "IPv4 rules")):
        done = subprocess.run([*begin, *family], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.endswith(f"sflgen: the kernel holds no {message}\n")
    run([*begin, "--family", "6"])


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_a_kernel_of_the_other_family_is_an_error(backend: str, tmp_path: Path) -> None:
    forked()  # one server for all namespaces
    with Namespace() as namespace:
        namespace.call(holds_one_family, str(tmp_path / "st"), backend)


# Waits before it starts the tool; a shell handles a signal only when its child has ended.
SLOW = """#!/bin/sh
case "$*" in *--noflush*)
    touch "$0.began"
    sleep 1 &
    wait
esac
exec %s "$@"
"""


def is_interrupted(folder: str, rules: str, backend: str) -> None:
    """Interrupt a load as a terminal does, by SIGINT to the process group in the foreground."""
    run([f"iptables-{backend}-restore"], Path(rules).read_text())
    state = ["--live", "--state", folder]
    run([forked(), "init", "--backend", backend, *state])
    name = f"iptables-{backend}-restore"
    slow = Path(rules).with_name(name)
    slow.write_text(SLOW % shutil.which(name))
    slow.chmod(0o755)
    with subprocess.Popen(
        [
            "env",
            "--default-signal=INT",
            SFLGEN,
            "insert",
            *state,
            "INPUT",
            "3",
            "-s",
            "192.0.2.1",
            "-j",
            "DROP",
        ],
        env={**os.environ, "PATH": f"{slow.parent}:{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as command:
        while not Path(f"{slow}.began").exists() and command.poll() is None:
            time.sleep(0.01)
        os.killpg(command.pid, signal.SIGINT)
        stderr = command.communicate()[1]
    assert (command.returncode, stderr) == (130, "sflgen: interrupted\n")
    (journal,) = Path(folder).glob("journal.*")
    assert journal.read_text().endswith("\nsettled 2\n")
    assert "the kernel holds the rule set of the state" in run([forked(), "status", *state])
    assert "-s 192.0.2.1/32 " in run([f"iptables-{backend}-save"])


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_an_interrupt_during_a_load_is_answered_after_it(backend: str, tmp_path: Path) -> None:
    rules = tmp_path / "plain.rules"
    rules.write_text(hitables.write(prefixes(20)))
    forked()  # one server for all namespaces
    with Namespace() as namespace:
        namespace.call(is_interrupted, str(tmp_path / "st"), str(rules), backend)


def begins_and_is_interrupted(folder: str) -> list[int]:
    """The exit status of init, interrupted when the kernel has the patch, and of the next command."""
    commit = Store.commit

    def interrupted(store: Store, plan: Plan, load: Callable[[str], None]) -> None:
        def load_and_stop(patch: str) -> None:
            load(patch)
            raise KeyboardInterrupt

        commit(store, plan, load_and_stop)

    run(["iptables-nft-restore"], hitables.write(prefixes(20)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "commit", interrupted)
        begun = sflgen("init", "--live", "--backend", "nft", "--state", folder)
    return [begun.exit_code, sflgen("status", "--live", "--state", folder).exit_code]


@pytest.mark.needs_kernel
def test_a_state_whose_first_load_is_interrupted_stays(tmp_path: Path) -> None:
    """The kernel has compiled rules then, and the state alone has their source."""
    with Namespace() as namespace:
        statuses = namespace.call(begins_and_is_interrupted, str(tmp_path / "st"))
    assert statuses == [130, 0]
    assert sflgen("print", "--state", str(tmp_path / "st")).stdout.count("-A INPUT") == 20


@pytest.mark.needs_kernel
def test_missing_permission_to_read_the_kernel_is_an_error(public: Path) -> None:
    os.chmod(public, 0o777)
    done = powerless("sflgen", "init", "--live", "--backend", "nft", "--state", str(public / "st"))
    assert done.returncode == 2 and "run it as root" in done.stderr and "a fault of sflgen" not in done.stderr
    assert not (public / "st" / "state").exists()


def test_a_rule_set_that_lacks_rules_is_refused(folder: str, tmp_path: Path) -> None:
    compiled = subprocess.run(
        [
            str(Path(SFLGEN).with_name("hitables")),
            "compile",
            "--equivalence",
            "verdict",
            tmp_path / "plain.rules",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    (tmp_path / "less.rules").write_text(compiled.stdout)
    before = files(folder)
    for command in (("sync", "--state", folder), ("init", "--state", str(tmp_path / "new"))):
        done = sflgen(command[0], str(tmp_path / "less.rules"), *command[1:])
        assert (done.exit_code, done.stdout) == (2, "")
        assert "less.rules: was compiled with --equivalence verdict" in done.stderr
    assert files(folder) == before


@pytest.mark.parametrize(
    ("fault", "status"),
    [(KeyboardInterrupt(), 130), (click.Abort(), 130), (MemoryError(), 2), (OSError(28, "full"), 2)],
)
def test_a_fault_never_has_the_status_of_a_difference(
    folder: str, monkeypatch: pytest.MonkeyPatch, fault: BaseException, status: int
) -> None:
    """Status 1 means that loaded rule set and rule list differ, and must have no other cause."""

    def fail(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr("sflgen.proof.verify", fail)
    done = sflgen("verify", "--state", folder)
    assert done.exit_code == status and done.stderr.startswith("sflgen: ")


def test_a_compiled_rule_set_does_not_become_the_rule_list(tmp_path: Path) -> None:
    """Its rules are copies: an update of one would leave the others."""
    rules = "".join(f"-A INPUT -s 10.0.{n}.0/24 -p tcp -m tcp --dport {n + 1} -j DROP\n" for n in range(40))
    source, compiled = tmp_path / "office.rules", tmp_path / "compiled.rules"
    source.write_text(f"*filter\n:INPUT ACCEPT [0:0]\n{rules}COMMIT\n")
    state = ("--state", str(tmp_path / "st"))

    def refused(*arguments: str) -> bool:
        done = sflgen(*arguments)
        return done.exit_code == 2 and "is compiled, and no source" in done.stderr

    compiled.write_text(hitables.compile(source.read_text()).text)
    assert refused("init", str(compiled), *state)
    assert sflgen("init", str(source), *state).exit_code == 0
    assert refused("sync", str(compiled), *state)
    compiled.write_text(sflgen("print", "--loaded", *state).stdout)
    assert refused("init", str(compiled), "--state", str(tmp_path / "new"))


@pytest.mark.parametrize("words", [("-t", "filter -F INPUT\n-t filter", "INPUT"), ("INPUT\n-F INPUT",)])
def test_an_argument_with_a_line_end_is_no_second_update(folder: str, words: tuple[str, ...]) -> None:
    before = files(folder)
    done = sflgen("insert", "--state", folder, *words, "1", "-j", "DROP")
    assert done.exit_code == 2 and "is more than one line; an update is one line" in done.stderr
    assert files(folder) == before
