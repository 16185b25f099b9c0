"""Make a package for Debian and Ubuntu: `make deb`, or `python tools/deb.py WHEEL FOLDER`.

The package holds what the wheel installs, manual pages, and what lets shells complete.  The libraries that
it needs are packages of the distribution.  The engine uses the stable interface of Python, so that one
package serves every release whose C library is not older than that of the host that made the wheel.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

import man_pages
from click.shell_completion import get_completion_class

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = "usr/lib/python3/dist-packages"

# Packages of libraries that are not called python3-NAME, and epochs of their versions.
LIBRARIES = {"cffi": "python3-cffi-backend"}
EPOCHS = {"numpy": "1:"}

SCRIPT = """\
#!/usr/bin/python3
from hitables.start import {program}

{program}()
"""

# Byte code is made where it is used, and removed with the package.
POSTINST = """\
#!/bin/sh
set -e
if [ "$1" = configure ] && command -v py3compile >/dev/null; then
    py3compile -p hitables
fi
"""
PRERM = """\
#!/bin/sh
set -e
if command -v py3clean >/dev/null; then
    py3clean -p hitables
fi
"""

# The file of each shell that completes a program's commands, options and files.
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/{program}",
    "zsh": "usr/share/zsh/vendor-completions/_{program}",
    "fish": "usr/share/fish/vendor_completions.d/{program}.fish",
}


def requirements(engine: bytes) -> list[str]:
    """The packages that it depends on, each with its oldest version."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = [f"python3 (>= {project['requires-python'].removeprefix('>=')})"]
    for each in project["dependencies"]:
        library, version = each.split(">=")
        package = LIBRARIES.get(library, f"python3-{library}")
        needed.append(f"{package} (>= {EPOCHS.get(library, '')}{version})")
    used = {tuple(map(int, found.split(b"."))) for found in re.findall(rb"GLIBC_([0-9.]+)\0", engine)}
    return [*needed, f"libc6 (>= {'.'.join(map(str, max(used)))})"]


def control(root: Path, version: str, architecture: str) -> str:
    """The description of the package, whose files are in *root*."""
    (engine,) = (root / PACKAGES / "hitables" / "core").glob("_engine*.so")
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return f"""\
Package: hitables
Version: {version}
Architecture: {architecture}
Maintainer: {project["authors"][0]["name"]}
Installed-Size: {-(-size // 1024)}
Depends: {", ".join(requirements(engine.read_bytes()))}
Recommends: iptables, nftables
Suggests: ipset, python3-matplotlib
Section: net
Priority: optional
Description: {project["description"][0].lower()}{project["description"][1:]}
 The kernel reads a chain of iptables rule by rule, for every packet.  hitables
 rewrites long chains as decision trees, made of ordinary chains and jumps, and
 proves the result equal before it prints it.  It also compares rule sets, finds
 useless rules, and loads rules so that they can be taken back; sflgen updates
 a compiled rule set by small patches.
"""


def fill(root: Path, wheel: Path) -> None:
    """Write the files of the package into *root*."""
    packages = root / PACKAGES
    packages.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        # Byte code that Python left in the checkout is not of the Python of a host.
        archive.extractall(packages, [name for name in archive.namelist() if "__pycache__" not in name])
    for record in packages.glob("*.dist-info/RECORD"):
        record.unlink()  # by which pip would remove files that dpkg has installed
    for installer in packages.glob("*.dist-info"):
        (installer / "INSTALLER").write_text("dpkg\n")
    for program in ("hitables", "sflgen"):
        script = root / "usr/bin" / program
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(SCRIPT.format(program=program))
        script.chmod(0o755)
        for shell, place in COMPLETIONS.items():
            path = root / place.format(program=program)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(completion(program, shell))
    for page in man_pages.write(root / "usr/share/man/man1"):
        compress(page)
    documents = root / "usr/share/doc/hitables"
    documents.mkdir(parents=True)
    (documents / "copyright").write_text(f"License of hitables\n\n{(REPOSITORY / 'LICENSE').read_text()}")
    (documents / "changelog").write_text((REPOSITORY / "CHANGELOG.md").read_text())
    compress(documents / "changelog")
    for page in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))):
        copy = documents / page.relative_to(REPOSITORY)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(page.read_text())


def completion(program: str, shell: str) -> str:
    """What *shell* reads to complete the words of *program*."""
    complete = get_completion_class(shell)
    assert complete is not None, "click knows the shells of COMPLETIONS"
    return complete(man_pages.PROGRAMS[program], {}, program, f"_{program.upper()}_COMPLETE").source()


def compress(path: Path) -> None:
    """Put a file of gzip in the place of *path*."""
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()


def build(wheel: Path, folder: Path) -> Path:
    """Make the package of *wheel* in *folder*; its path."""
    version = wheel.name.split("-")[1]
    architecture = subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    ).stdout.strip()
    package = folder / f"hitables_{version}_{architecture}.deb"
    with tempfile.TemporaryDirectory() as work:
        root = Path(work) / "root"
        fill(root, wheel)
        files = sorted(path for path in root.rglob("*") if path.is_file())
        sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n" for path in files]
        described = root / "DEBIAN"
        described.mkdir()
        (described / "control").write_text(control(root, version, architecture))
        (described / "md5sums").write_text("".join(sums))
        for name, text in (("postinst", POSTINST), ("prerm", PRERM)):
            (described / name).write_text(text)
            (described / name).chmod(0o755)
        for path in (root, *root.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, package], check=True)
    return package


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
