"""The Ansible collection: its options are those of the commands, its modules run, its playbooks do what they say.

What the modules state about themselves is compared without Ansible.  The rest needs ansible-core, an extra of
the tests: without it these tests are skipped with the reason, and fail in CI.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from ruamel.yaml import YAML
from support import command_clients
from support.firewall import Firewall, plain
from support.small_namespace import Namespace

from hitables.cli.main import main
from hitables.ir.packet import Backend

ROOT = Path(__file__).parents[2]
INTEGRATIONS = ROOT / "integrations"
COLLECTION = INTEGRATIONS / "ansible_collections/hitables/firewall"
MODULES = {path.stem: path for path in (COLLECTION / "plugins/modules").glob("*.py")}
HERE = Path(__file__).parent
BIN = Path(sys.executable).parent

# Options of a module that become no option of the command of its name.
OWN = {
    "apply": {"src", "rules", "src6", "rules6", "compile", "reconnect", "executable"},
    "compile": {"src", "rules", "dest", "executable"},
    "check": {"before", "before_rules", "after", "after_rules", "differ", "executable"},
    "confirm": {"number", "state_dir", "executable"},
}
each_module = pytest.mark.parametrize("name", sorted(MODULES))


@pytest.fixture(scope="module")
def needs_ansible() -> None:
    if importlib.util.find_spec("ansible") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("needs ansible-core (make setup)", pytrace=False)
        pytest.skip("needs ansible-core (make setup)")


def shared_code() -> ModuleType:
    """plugins/module_utils/command.py, which needs no Ansible."""
    path = COLLECTION / "plugins/module_utils/command.py"
    spec = importlib.util.spec_from_file_location("command", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COMMAND = shared_code()


def documented(name: str) -> dict[str, Any]:
    """The options in the documentation of a module."""
    tree = ast.parse(MODULES[name].read_text())
    (text,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DOCUMENTATION"
    )
    options: dict[str, Any] = YAML(typ="safe", pure=True).load(text)["options"]
    return options


def arguments(name: str) -> dict[str, dict[str, Any]]:
    """The argument specification of a module, evaluated with the names of command.py."""
    tree = ast.parse(MODULES[name].read_text())
    (node,) = (
        node
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ARGUMENTS"
    )
    code = compile(ast.Expression(node.value), name, "eval")
    specification: dict[str, dict[str, Any]] = eval(code, vars(COMMAND) | {"dict": dict})
    return specification


@each_module
def test_the_documentation_of_a_module_is_its_argument_specification(name: str) -> None:
    options, specification = documented(name), arguments(name)
    assert options.keys() == specification.keys()
    for option, spec in specification.items():
        told = {key: options[option][key] for key in options[option] if key != "description"}
        assert told == spec, option


@pytest.mark.parametrize("name", ["apply", "compile", "check"])
def test_the_options_of_a_module_are_those_of_the_command(name: str) -> None:
    table, specification = getattr(COMMAND, name.upper()), arguments(name)
    assert specification.keys() - OWN[name] == table.keys()
    options = {
        word: each
        for each in main.commands[name].params
        if isinstance(each, click.Option)
        for word in each.opts
    }
    for argument, word in table.items():
        option, spec = options[word], specification[argument]
        assert (spec["type"] == "list") == option.multiple, word
        assert (spec["type"] == "bool") == option.is_flag, word
        if isinstance(option.type, click.Choice):
            assert spec["choices"] == list(option.type.choices), word
        if "default" in spec and not option.multiple and not option.is_flag:
            assert spec["default"] == option.default, word


def test_the_unit_tests_of_the_collection_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", COLLECTION]
    done = subprocess.run(
        [*command, "-c", os.devnull, COLLECTION / "tests/unit"],
        env=os.environ | {"PYTHONPATH": str(INTEGRATIONS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "10 passed" in done.stdout, done.stdout + done.stderr


# ---- with Ansible ----

RULES = "*filter\n:INPUT DROP [0:0]\n" + "".join(
    f"-A INPUT -s 10.{n}.0.0/16 -p tcp -m tcp --dport {n} -j ACCEPT\n" for n in range(1, 41)
) + "-A INPUT -i lo -p tcp -m tcp --dport 2222 -j ACCEPT\n-A INPUT -i lo -p tcp -m tcp --sport 2222 -j ACCEPT\nCOMMIT\n"  # fmt: skip


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "PATH": f"{command_clients.folder()}:{BIN}:{os.environ['PATH']}",
        "PYTHONPATH": str(INTEGRATIONS),
        "ANSIBLE_COLLECTIONS_PATH": str(INTEGRATIONS),
        "ANSIBLE_CONNECTION_PLUGINS": str(HERE / "connection_plugins"),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "ansible/tmp"),
        "ANSIBLE_REMOTE_TEMP": str(folder / "ansible/remote"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
        "LC_ALL": "C.UTF-8",
    }


@each_module
def test_a_module_runs_as_a_plain_script(needs_ansible: None, name: str, tmp_path: Path) -> None:
    """Without what it needs it says so, as JSON; the check of two files has an answer."""
    (tmp_path / "a.rules").write_text(RULES)
    (tmp_path / "b.rules").write_text(RULES.replace("--dport 7 ", "--dport 77 "))
    given: dict[str, Any] = {
        "check": {
            "before": str(tmp_path / "a.rules"),
            "after": str(tmp_path / "b.rules"),
            "differ": "report",
        },
        "compile": {"src": str(tmp_path / "a.rules"), "dest": str(tmp_path / "compiled")},
        "confirm": {"state_dir": str(tmp_path / "none")},
        "apply": {"src": "/a", "rules": "b"},
    }[name]
    result = run_module(name, tmp_path, **given)
    if name == "check":
        assert not result["equal"] and "dport=7" in result["findings"][0]["packet"], result
    elif name == "compile":
        assert result["changed"] and result["rules"] == (tmp_path / "compiled").read_text().count("\n-A ")
    elif name == "confirm":
        assert "there is no such state directory" in result["msg"]
    else:
        assert "mutually exclusive" in result["msg"]


def run_module(name: str, folder: Path, **given: Any) -> dict[str, Any]:
    """The result of a module, run as a plain script."""
    (folder / "arguments").write_text(json.dumps({"ANSIBLE_MODULE_ARGS": given}))
    done = subprocess.run(
        [sys.executable, MODULES[name], folder / "arguments"],
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_in_check_mode_nothing_waits_on_a_new_host(needs_ansible: None, tmp_path: Path) -> None:
    """There apply makes no state directory; a rule set of a certain number is missed nevertheless."""
    state = str(tmp_path / "state")
    result = run_module("confirm", tmp_path, state_dir=state, _ansible_check_mode=True)
    assert (result["changed"], result["confirmed"]) == (False, 0), result
    result = run_module("confirm", tmp_path, state_dir=state, number=3, _ansible_check_mode=True)
    assert result["msg"] == "rule set 3 cannot be confirmed: there is none"


def test_line_ends_of_windows_are_a_change_of_the_compiled_file(needs_ansible: None, tmp_path: Path) -> None:
    """And what is written goes through a link, as hitables compile -o writes it."""
    (tmp_path / "a.rules").write_text(RULES)
    dest, link = tmp_path / "compiled", tmp_path / "link"
    link.symlink_to("compiled")
    given = {"src": str(tmp_path / "a.rules"), "dest": str(link), "mode": "0600"}
    assert run_module("compile", tmp_path, **given)["changed"]
    compiled = dest.read_bytes()
    dest.write_bytes(compiled.replace(b"\n", b"\r\n"))
    assert [run_module("compile", tmp_path, **given)["changed"] for _ in range(2)] == [True, False]
    assert dest.read_bytes() == compiled and link.is_symlink()
    assert dest.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("dest", ["", "device"])
def test_a_folder_or_a_device_is_not_replaced_by_a_file(
    needs_ansible: None, tmp_path: Path, dest: str
) -> None:
    os.mkfifo(tmp_path / "device")
    result = run_module("compile", tmp_path, rules=RULES, dest=str(tmp_path / dest))
    assert "dest is a folder or a device" in result["msg"]


@pytest.fixture(params=list(Backend), ids=lambda backend: backend.value)
def firewall(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Firewall]:
    request.getfixturevalue("needs_kernel")
    command_clients.folder()  # one server for all namespaces
    with Namespace() as namespace:
        yield Firewall(namespace, tmp_path, request.param)


def play(playbook: str, folder: str, backend: str, connection: str, tags: str = "all") -> str:
    """Run the tasks of a playbook with *tags* on this host; what it printed, after its exit status."""
    variables = {
        "folder": folder,
        "backend": backend,
        "ansible_connection": connection,
        "ansible_python_interpreter": sys.executable,
    }
    command = [str(BIN / "ansible-playbook"), "-i", "here,", "-t", tags, "-e", json.dumps(variables)]
    command.append(str(HERE / playbook))
    done = subprocess.run(
        command, env=environment(Path(folder)), capture_output=True, text=True, check=False, cwd=folder
    )
    return f"{done.returncode}\n{done.stdout}{done.stderr}"


LISTENING: list[socket.socket] = []


def listen() -> None:
    LISTENING.append(socket.create_server(("127.0.0.1", 2222)))


@pytest.mark.needs_kernel
def test_a_playbook_lives_with_a_firewall(needs_ansible: None, firewall: Firewall) -> None:
    """All tasks in nf_tables; in legacy those that load rules."""
    firewall.file(RULES)
    firewall.file(RULES.replace("--dport 2222", "--dport 2223"), "newer.rules")
    tasks = (HERE / "firewall.yml").read_text()
    tags, count = ("all", "- name: ") if firewall.backend is Backend.NFT else ("load", "tags: load")
    printed = firewall.namespace.call(
        play, "firewall.yml", str(firewall.folder), firewall.backend.value, "local", tags
    )
    assert printed.startswith("0\n"), printed
    assert f"ok={tasks.count(count)} " in printed
    port = 2223 if tags == "all" else 2222
    assert f"--dport {port} -j ACCEPT" in firewall.save()


@pytest.mark.needs_kernel
@pytest.mark.parametrize("family", [{}, {"family": "4"}])
def test_rules6_alone_are_of_ipv6(needs_ansible: None, tmp_path: Path, family: dict[str, str]) -> None:
    """Their text does not tell."""
    with Namespace() as namespace:
        rules6 = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp --dport 81 -j DROP\nCOMMIT\n"
        given: dict[str, Any] = {"rules6": rules6, "state_dir": str(tmp_path / "state"), **family}
        result = namespace.call(run_module, "apply", tmp_path, _ansible_check_mode=True, **given)
    assert [each["family"] for each in result["families"]] == [6], result


@pytest.mark.needs_kernel
def test_rules_that_lock_the_controller_out_are_taken_back(needs_ansible: None, tmp_path: Path) -> None:
    command_clients.folder()
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        namespace.call(listen)
        firewall.load(RULES)
        before = plain(firewall.save())
        firewall.file(RULES.replace("2222", "2223"), "closed.rules")
        printed = namespace.call(play, "locked_out.yml", str(tmp_path), "nft", "gated")
        assert printed.startswith("0\n"), printed
        firewall.until(lambda: "taken back, because it was not confirmed in time" in firewall.log())
        assert plain(firewall.save()) == before


def test_the_collection_is_built(needs_ansible: None, tmp_path: Path) -> None:
    copy = tmp_path / "collection"
    shutil.copytree(COLLECTION, copy, ignore=shutil.ignore_patterns("__pycache__", "output"))
    done = subprocess.run(
        [BIN / "ansible-galaxy", "collection", "build", copy, "--output-path", tmp_path],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "hitables-firewall-0.1.0.tar.gz").exists()
