"""What CI systems read from the project: the action, the hook, the GitLab job.  Their commands are run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import pytest
from check_jsonschema.builtin_schemas import get_builtin_schema
from pre_commit.clientlib import load_manifest
from ruamel.yaml import YAML
from support import command_clients

from hitables.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/ci.md").read_text()
OFFICE = (ROOT / "docs/example/office.rules").read_text()
FILES = {"same": OFFICE, "changed": OFFICE.replace("--dport 22 ", "--dport 23 "), "bad": "*filter\n-A\n"}


def yaml(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def pages_yaml(word: str) -> Any:
    """The YAML block of docs/ci.md that has *word* in it."""
    (block,) = (b for b in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if word in b)
    return yaml(block)


def bash(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run as GitHub does: bash, which stops at the first error."""
    path = f"{command_clients.folder()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path} | variables
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where reviewed.rules is; the tests put a firewall.rules beside it."""
    (tmp_path / "reviewed.rules").write_text(OFFICE)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "schema"), [("action.yml", "github-actions"), ("examples/gitlab-ci.yml", "gitlab-ci")]
)
def test_it_fits_the_schema_of_the_system_that_reads_it(file: str, schema: str) -> None:
    jsonschema.validate(yaml((ROOT / file).read_text()), get_builtin_schema(f"vendor.{schema}"))


def test_the_workflow_of_the_page_fits_and_gives_what_the_action_takes() -> None:
    workflow = pages_yaml("runs-on")
    jsonschema.validate({"on": "push", **workflow}, get_builtin_schema("vendor.github-workflows"))
    action = yaml((ROOT / "action.yml").read_text())
    (step,) = (step for step in workflow["jobs"]["firewall"]["steps"] if "hitables" in step["uses"])
    assert set(step["with"]) <= set(action["inputs"])
    assert {name for name, each in action["inputs"].items() if each.get("required")} <= set(step["with"])
    sarif = action["inputs"]["report"]["default"]
    assert sarif in PAGE and workflow["jobs"]["firewall"]["steps"][-1]["with"]["sarif_file"] == sarif


def check_step(folder: Path, **given: str) -> tuple[subprocess.CompletedProcess[str], str, Path]:
    """Run the step of the action that compares; how it ended, its answer, and where the report is."""
    action = yaml((ROOT / "action.yml").read_text())
    (step,) = (step for step in action["runs"]["steps"] if step.get("id") == "check")
    inputs = {name: given.get(name, each.get("default", "")) for name, each in action["inputs"].items()}
    env = {
        name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda result: inputs[result[1]], value)
        for name, value in step["env"].items()
    }
    (folder / "output").touch()
    commands = folder / "runner temp/hitables/bin"
    commands.mkdir(parents=True)
    (commands / "hitables").symlink_to(Path(sys.executable).parent / "hitables")
    variables = {"GITHUB_OUTPUT": "output", "RUNNER_TEMP": str(folder / "runner temp")}
    done = bash(step["run"], folder, **variables, **env)
    answer = re.fullmatch(r"(?:answer=(\w+)\n)?", (folder / "output").read_text())
    default = re.fullmatch(
        r"\$\{\{ steps\.check\.outputs\.answer \|\| '(\w+)' \}\}", action["outputs"]["answer"]["value"]
    )
    assert answer is not None and default is not None
    return done, answer[1] or default[1], folder / inputs["report"]


@pytest.mark.parametrize(
    ("kind", "status", "answer"), [("same", 0, "equal"), ("changed", 1, "different"), ("bad", 2, "undecided")]
)
def test_the_action_answers(folder: Path, kind: str, status: int, answer: str) -> None:
    after = "fire wall; touch oops.rules"  # a name that is no command
    (folder / after).write_text(FILES[kind])
    arguments = "\n--backend nft\n  --timeout 100 --chain FORWARD\n"
    (folder / "hitables-check.sarif").write_text("of an earlier run")
    done, found, report = check_step(folder, before="reviewed.rules", after=after, arguments=arguments)
    assert done.returncode == status, done.stderr
    assert found == answer
    assert report.exists() == (status < 2) and not (folder / "oops.rules").exists()
    if kind == "changed":
        assert "packet: table=filter chain=FORWARD" in done.stderr
    if status < 2:
        assert "backend nft" in done.stderr or '"nft"' in report.read_text()


@pytest.mark.parametrize("arguments", ["--help", "-h"])
def test_the_action_has_no_answer_without_a_report(folder: Path, arguments: str) -> None:
    """Arguments may end hitables with exit status 0 before it compares anything."""
    (folder / "firewall.rules").write_text(FILES["changed"])
    done, answer, report = check_step(
        folder, before="reviewed.rules", after="firewall.rules", arguments=arguments
    )
    assert done.returncode == 2 and answer == "undecided" and not report.exists()
    assert "no answer without the report hitables-check.sarif" in done.stderr


@pytest.mark.parametrize("report", ["reviewed.rules", "./firewall.rules", "other.rules"])
def test_a_report_of_the_action_replaces_no_rule_set(folder: Path, report: str) -> None:
    for name in ("firewall.rules", "other.rules"):
        (folder / name).write_text(OFFICE)
    given = {"before": "reviewed.rules", "after": "firewall.rules", "arguments": "--against other.rules"}
    done, answer, path = check_step(folder, **given, report=report)
    assert done.returncode == 2 and answer == "undecided" and path.read_text() == OFFICE


@pytest.mark.parametrize("report", ["-", "", "link", "folder", "pipe", "/dev/stdout", "/dev/null"])
def test_a_report_of_the_action_is_a_regular_file(folder: Path, report: str) -> None:
    (folder / "firewall.rules").write_text(OFFICE)
    (folder / "link").symlink_to("reviewed.rules.sarif")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    given = {"before": "reviewed.rules", "after": "firewall.rules", "report": report}
    done, answer, path = check_step(folder, **given)
    assert done.returncode == 2 and answer == "undecided"
    assert f"the report '{report}' is no regular file" in done.stderr and not done.stdout
    assert report == "-" or os.path.lexists(path)


def test_the_steps_of_the_action_use_no_input_but_by_a_variable() -> None:
    for step in yaml((ROOT / "action.yml").read_text())["runs"]["steps"]:
        assert "${{" not in step["run"]


def test_the_action_installs_the_project_itself_and_leaves_the_path_alone(tmp_path: Path) -> None:
    """Nothing is built here: a stand-in for python3 makes a venv whose pip tells its arguments."""
    (install,) = (s for s in yaml((ROOT / "action.yml").read_text())["runs"]["steps"] if "pip" in s["run"])
    stand_in = tmp_path / "path/python3"
    stand_in.parent.mkdir()
    stand_in.write_text(
        '#!/bin/sh\n[ "$1 $2" = "-m venv" ] && mkdir -p "$3/bin" && cd "$3/bin" || exit\n'
        "printf '#!/bin/sh\\nfor each; do echo \"$each\"; done >arguments\\n' >pip && chmod +x pip\n"
    )
    stand_in.chmod(0o755)
    variables = {
        "PATH": f"{stand_in.parent}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path / "runner temp"),
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_PATH": str(tmp_path / "paths"),
    }
    done = bash(install["run"], tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "arguments").read_text().splitlines()[-1] == str(ROOT)
    assert (ROOT / "pyproject.toml").exists() and not (tmp_path / "paths").exists()


def test_the_action_takes_no_path_from_a_context() -> None:
    """In a job with container: these are paths of the host, which the container does not have."""
    assert not re.search(r"\$\{\{ *(github|runner)\.", (ROOT / "action.yml").read_text())


@pytest.mark.parametrize(("kind", "status"), [("same", 0), ("changed", 1), ("bad", 2)])
def test_the_hook_runs_what_the_page_configures(folder: Path, kind: str, status: int) -> None:
    (hook,) = load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))
    (used,) = pages_yaml("repos:")["repos"][0]["hooks"]
    assert used["id"] == hook["id"] and not hook["pass_filenames"]
    before, after, *_ = used["args"]
    (folder / before).write_text(OFFICE)
    (folder / after).write_text(FILES[kind])
    program, command = hook["entry"].split()
    assert program == "hitables" and command in main.commands
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), command, *used["args"]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr


# What a commit does to the two rule sets that the hook compares, and whether the hook lets it pass.
COMMITS = {
    "echo word > README": True,
    "git rm -q office.compiled": False,
    "git mv office.compiled office.old": False,
    "sed 's/--dport 22 /--dport 23 /' office.rules > other; ln -sf other office.compiled": False,
    "sed -i 's/--dport 22 /--dport 23 /' office.rules": False,
    "sed -i 's/--dport 22 /--dport 23 /' office.rules office.compiled": True,
}


@pytest.mark.parametrize("change", COMMITS)
def test_pre_commit_stops_each_commit_after_which_the_rule_sets_differ(tmp_path: Path, change: str) -> None:
    """By pre-commit itself, which need not build the hook here."""
    (hook,) = YAML(typ="safe", pure=True).load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (used,) = pages_yaml("repos:")["repos"][0]["hooks"]
    local = {"repo": "local", "hooks": [{**hook, "language": "system", "args": used["args"]}]}
    (tmp_path / ".pre-commit-config.yaml").write_text(json.dumps({"repos": [local]}))
    for name in used["args"][:2]:
        (tmp_path / name).write_text(OFFICE)
    git = "git -c user.name=x -c user.email=x@example.org"
    home = {"HOME": str(tmp_path), "PRE_COMMIT_HOME": str(tmp_path / "cache")}
    prepare = f"git init -q; echo cache > .gitignore; git add .; {git} commit -qm rules; pre-commit install"
    assert bash(prepare, tmp_path, **home).returncode == 0
    done = bash(f"{change}; git add .; {git} commit -m change", tmp_path, **home)
    assert (done.returncode == 0) == COMMITS[change], done.stdout + done.stderr


@pytest.mark.parametrize(("kind", "status"), [("same", 0), ("changed", 1), ("bad", 2)])
def test_the_gitlab_job_leaves_a_report(folder: Path, kind: str, status: int) -> None:
    (job,) = yaml((ROOT / "examples/gitlab-ci.yml").read_text()).values()
    (folder / "firewall.rules").write_text(FILES[kind])
    done = bash("\n".join(job["script"]), folder)
    assert done.returncode == status, done.stderr
    report = folder / job["artifacts"]["reports"]["junit"]
    if status == 2:
        assert not report.exists()
        return
    suites = junitparser.JUnitXml.fromfile(str(report))
    assert suites.tests == 6 and suites.failures == 2 * status
