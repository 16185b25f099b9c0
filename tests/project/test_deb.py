"""`make deb`: the package has the commands, their manual pages and what shells read, and its commands work."""

from __future__ import annotations

import gzip
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import click
import pytest

from hitables.cli.main import main as hitables
from sflgen.cli import main as sflgen

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a package of this installation; DEBIAN/ has its description."""
    work = tmp_path_factory.mktemp("deb")
    wheel = work / "hitables-0.1.0-cp311-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for top in ("hitables", "sflgen"):
            for path in (ROOT / top).rglob("*"):
                if path.is_file() and path.suffix not in (".c", ".h"):
                    archive.write(path, path.relative_to(ROOT))
        engine = importlib.util.find_spec("hitables.core._engine")
        assert engine is not None and engine.origin is not None
        archive.write(engine.origin, "hitables/core/_engine.abi3.so")
        archive.writestr(
            "hitables-0.1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: hitables\nVersion: 0.1.0\n"
        )
        archive.writestr("hitables-0.1.0.dist-info/RECORD", "")
    quickly = {**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "none"}
    command = [sys.executable, "tools/deb.py", wheel, work]
    subprocess.run(command, cwd=ROOT, env=quickly, check=True, capture_output=True)
    (package,) = work.glob("*.deb")
    root = work / "root"
    subprocess.run(["dpkg-deb", "--raw-extract", package, root], check=True)
    return root


def test_its_commands_run_with_the_libraries_of_the_system(unpacked: Path, tmp_path: Path) -> None:
    libraries = {
        str(Path(str(metadata.distribution(name).locate_file(""))).resolve()) for name in ("click", "cffi")
    }
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(unpacked / "usr/lib/python3/dist-packages"), *libraries]),
        "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode"),  # the other tests look for what the package has
    }
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # each command would compile all modules
    rules = ROOT / "docs/example/office.rules"

    def run(command: str, *arguments: str | Path) -> str:
        # -S: the editable installation is not seen.
        script = unpacked / "usr/bin" / command
        given = [sys.executable, "-S", script, *arguments]
        done = subprocess.run(given, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    compiled = tmp_path / "compiled.rules"
    run("hitables", "compile", rules, "-o", compiled)
    assert "proved equal" in run("hitables", "check", rules, compiled)
    run("sflgen", "init", rules, "--state", "state")
    assert "-s 192.0.2.7 -j DROP" in run("sflgen", "insert", "--state", "state", "--", "FORWARD", "1", "-s", "192.0.2.7", "-j", "DROP")  # fmt: skip


def test_it_needs_what_the_project_needs_and_says_what_it_is(unpacked: Path) -> None:
    control = (unpacked / "DEBIAN/control").read_text()
    (depends,) = re.findall("^Depends: (.*)$", control, re.MULTILINE)
    assert re.fullmatch(
        r"python3 \(>= 3\.11\), python3-cffi-backend \(>= [\d.]+\), python3-click \(>= [\d.]+\), python3-lark \(>= [\d.]+\), "
        r"python3-networkx \(>= [\d.]+\), python3-numpy \(>= 1:[\d.]+\), python3-rich \(>= [\d.]+\), libc6 \(>= 2\.\d+\)",
        depends,
    )
    assert "Version: 0.1.0\n" in control
    assert not list(unpacked.rglob("RECORD"))  # pip must not remove what dpkg has installed
    assert not list(unpacked.rglob("__pycache__"))  # which the host makes for its own Python


def test_every_file_is_readable_and_the_commands_can_be_run(unpacked: Path) -> None:
    for path in unpacked.rglob("*"):
        executable = path.is_dir() or path.parent.name == "bin" or path.name in ("postinst", "prerm")
        assert path.stat().st_mode & 0o777 == (0o755 if executable else 0o644), path


def contexts(command: click.Command, parent: click.Context | None = None) -> list[click.Context]:
    context = click.Context(command, parent, info_name=command.name if parent else PROGRAMS[command])
    below = (
        [each for each in command.commands.values() if not each.hidden]
        if isinstance(command, click.Group)
        else []
    )
    return [context, *(found for each in below for found in contexts(each, context))]


PROGRAMS: dict[click.Command, str] = {hitables: "hitables", sflgen: "sflgen"}
PAGES = {
    context.command_path.replace(" ", "-"): context for program in PROGRAMS for context in contexts(program)
}


def test_each_command_has_a_page_with_all_that_its_help_says(unpacked: Path) -> None:
    pages = {path.name: path for path in (unpacked / "usr/share/man/man1").iterdir()}
    assert set(pages) == {f"{name}.1.gz" for name in PAGES}
    for name, context in PAGES.items():
        printed = plain(pages[f"{name}.1.gz"])
        for paragraph in (context.command.help or "").split("\n\n"):
            assert words(paragraph) in printed, name
        for parameter in context.command.get_params(context):
            record = parameter.get_help_record(context)
            if isinstance(parameter, click.Option) and record is not None and not parameter.is_eager:
                assert words(" ".join(record)) in printed, name
        for purpose, line in getattr(context.command, "examples", ()):
            assert words(f"{purpose}: {line}") in printed, name


def plain(page: Path) -> str:
    """The words of a page, read as roff reads it: requests begin a line, and escapes are characters."""
    text = gzip.decompress(page.read_bytes()).decode()
    lines = [line.removeprefix(".B ") for line in text.split("\n") if not re.match(r"\.(?!B )", line)]
    escapes = {"e": "\\", "-": "-", "(aq": "'", "(ha": "^", "(ti": "~", "(ga": "`", "(dq": '"', "&": ""}
    return words(re.sub(r"\\(\(..|.)", lambda found: escapes[found[1]], "\n".join(lines)))


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_roff_finds_no_fault_in_a_page(unpacked: Path) -> None:
    alone = {**os.environ, "LD_PRELOAD": ""}  # without the sanitizers of tools/sanitize
    for page in (unpacked / "usr/share/man/man1").iterdir():
        printed = gzip.decompress(page.read_bytes())
        command = ["groff", "-man", "-Tutf8", "-ww"]
        done = subprocess.run(command, input=printed, env=alone, check=False, capture_output=True)
        assert done.stderr == b"", page.name


@pytest.mark.parametrize(
    "shell",
    ["bash-completion/completions/{}", "zsh/vendor-completions/_{}", "fish/vendor_completions.d/{}.fish"],
)
def test_a_shell_finds_what_completes_a_command(unpacked: Path, shell: str) -> None:
    for program in ("hitables", "sflgen"):
        text = (unpacked / "usr/share" / shell.format(program)).read_text()
        assert f"_{program.upper()}_COMPLETE=" in text.replace("env ", "")
