"""What starts the script of the boot: written, enabled, called, and removed."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest
from support.boots import execute, rules
from support.firewall import BACKENDS, Firewall, plain
from support.small_namespace import Namespace

from hitables.apply.guard import SYSTEMD
from hitables.ir.fields import Family
from hitables.ir.packet import Backend

pytestmark = [pytest.mark.needs_kernel, BACKENDS]

# What openrc-run does with a service: it reads it, and calls one of its functions.
OPENRC_RUN = """\
#!/bin/sh
ebegin() { echo "$*"; }
eend() { return "$1"; }
einfo() { echo "$*"; }
. "$1"
"$2"
"""
# Writes what it is called with to a file.
RECORDER = """\
#!/bin/sh
echo "${{0##*/}} $*" >>{record}
"""


def confirmed(folder: Path, backend: Backend) -> str:
    """A state directory with confirmed rules, and what the kernel has of them."""
    with Namespace() as namespace:
        firewall = Firewall(namespace, folder, backend)
        firewall.apply(firewall.file(rules(Family.IPV4, 3000)))
        return plain(firewall.save())


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose programs are found before others."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.parametrize("init", ["openrc", "sysvinit"])
def test_an_init_script_loads_the_rules_or_closes_the_host(
    init: str, tools: Path, backend: Backend, tmp_path: Path
) -> None:
    held = confirmed(tmp_path, backend)
    if init == "openrc":
        program(tools / "openrc-run", OPENRC_RUN)
    script = tmp_path / "init.d" / "hitables"
    script.parent.mkdir()
    with Namespace() as fresh:
        firewall = Firewall(fresh, tmp_path, backend)
        firewall.hitables("persist", "--init-script", "--unit-folder", script.parent)
        assert fresh.call(execute, [str(script), "start"])[0] == 0
        assert plain(firewall.save()) == held
        assert fresh.call(execute, [str(script), "stop"])[0] == 0
        assert plain(firewall.save()) == held
        (firewall.state / "boot" / "load").unlink()
        firewall.load("*filter\nCOMMIT\n")
        status, said = fresh.call(execute, [str(script), "start"])
        assert status == 1 and "the host is closed but for ssh" in said
        assert ":INPUT DROP" in firewall.save()
        firewall.hitables("persist", "--remove", "--unit-folder", script.parent)
    assert not script.exists()


@pytest.mark.either_backend
def test_a_script_of_sysvinit_starts_before_the_network(backend: Backend, tmp_path: Path) -> None:
    confirmed(tmp_path, backend)
    with Namespace() as fresh:
        Firewall(fresh, tmp_path, backend).hitables("persist", "--init-script", "--unit-folder", tmp_path)
        script = (tmp_path / "hitables").read_text()
        assert "# X-Start-Before:    networking" in script and "# Default-Start:     S\n" in script
        status, said = fresh.call(execute, [str(tmp_path / "hitables"), "begin"])
        assert status == 1 and "Usage: " in said


@pytest.mark.either_backend
def test_a_file_that_has_the_name_of_the_init_script_is_not_removed(backend: Backend, tmp_path: Path) -> None:
    confirmed(tmp_path, backend)
    other = tmp_path / "hitables"
    other.write_text("#!/bin/sh\necho a program of somebody\n")
    with Namespace() as fresh:
        firewall = Firewall(fresh, tmp_path, backend)
        firewall.hitables("persist", "--unit-folder", tmp_path)
        said = firewall.hitables("persist", "--remove", "--unit-folder", tmp_path).stdout
    assert "hitables.service" in said and other.exists()


@pytest.mark.either_backend
@pytest.mark.parametrize(
    ("words", "programs", "folder", "commands"),
    [
        (
            "",
            ["systemctl"],
            "/etc/systemd/system",
            ["systemctl enable hitables.service", "systemctl disable hitables.service"],
        ),
        (
            "--init-script",
            ["rc-update", "update-rc.d"],
            "/etc/init.d",
            ["rc-update add hitables boot", "rc-update del hitables boot"],
        ),
        (
            "--init-script",
            ["update-rc.d"],
            "/etc/init.d",
            ["update-rc.d hitables defaults", "update-rc.d -f hitables remove"],
        ),
    ],
    ids=["systemd", "openrc", "sysvinit"],
)
def test_the_init_system_is_told(
    words: str,
    programs: list[str],
    folder: str,
    commands: list[str],
    tools: Path,
    backend: Backend,
    tmp_path: Path,
) -> None:
    """The folders of the host are covered by empty ones."""
    confirmed(tmp_path, backend)
    record = tmp_path / "record"
    for name in programs:
        program(tools / name, RECORDER.format(record=shlex.quote(str(record))))
    hitables = str(Path(sys.executable).with_name("hitables"))
    state = ["--state", str(tmp_path / "state")]
    script = "; ".join(
        [
            "set -e",
            f"mkdir -p {folder}",
            f"mount -t tmpfs tmpfs {folder}",
            f"{shlex.join([hitables, 'persist', *words.split(), *state])} 2>&1",
            f"ls {folder}",
            shlex.join([hitables, "persist", "--remove", *state]),
            f"ls {folder}",
        ]
    )
    with Namespace() as fresh:
        said = fresh.run(["unshare", "-m", "sh", "-c", script])
    name = "hitables.service" if not words else "hitables"
    assert f"started by {folder}/{name}\n{name}\nremoved {folder}/{name}\n" in said
    assert said.endswith("boots load nothing from here any more\n")
    assert ("systemd does not run here" in said) == (not words and not SYSTEMD.is_dir())
    told = [line for line in record.read_text().splitlines() if "daemon-reload" not in line]
    assert told == commands


@pytest.mark.either_backend
def test_one_starter_is_asked_for(backend: Backend, tmp_path: Path) -> None:
    confirmed(tmp_path, backend)
    with Namespace() as fresh:
        said = Firewall(fresh, tmp_path, backend).hitables(
            "persist", "--init-script", "--netfilter-persistent", status=2
        )
    assert "give one of --netfilter-persistent and --init-script" in said.stderr


@pytest.mark.either_backend
@pytest.mark.parametrize("words", ["", "--init-script"])
def test_what_starts_the_script_can_be_removed_when_the_state_directory_is_gone(
    words: str, backend: Backend, tmp_path: Path
) -> None:
    """Else each boot closes the host.  What starts the script of another directory stays."""
    folder = tmp_path / 'a "state" of $100%'
    folder.mkdir()
    confirmed(folder, backend)
    with Namespace() as fresh:
        firewall = Firewall(fresh, folder, backend)
        firewall.hitables("persist", *words.split(), "--unit-folder", tmp_path)
        (path,) = tmp_path.glob("hitables*")
        remove = ["persist", "--remove", "--unit-folder", tmp_path]
        state, firewall.state = firewall.state, folder / "mistyped"
        assert (
            "there is no such state directory; hitables apply" in firewall.hitables(*remove, status=2).stderr
        )
        assert path.exists()
        firewall.state = state
        shutil.rmtree(state)
        done = firewall.hitables(*remove)
        assert f"removed {path}\nboots load nothing from here any more" in done.stdout and not path.exists()
        told = done.stderr.replace("\n", " ")
        assert "there is no such state directory, so only what starts its script was removed" in told
        assert (
            "there is no such state directory; hitables apply" in firewall.hitables(*remove, status=2).stderr
        )
