"""The examples for Salt and Puppet: their commands load rules once, and take back those that cut the host off."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from support import command_clients
from support.firewall import Firewall, plain
from support.small_namespace import Namespace

from hitables.ir.packet import Backend

pytestmark = pytest.mark.needs_kernel
EXAMPLES = Path(__file__).parents[2] / "examples"
SERVERS: list[socket.socket] = []


def serve(port: int) -> None:
    """The port of a master, on this host."""
    SERVERS.append(socket.create_server(("127.0.0.1", port)))


def of_salt(folder: Path) -> tuple[str, str]:
    """The commands of the state: to load, and to ask whether to; the script that it writes is in *folder*."""
    text = (EXAMPLES / "salt/firewall/init.sls").read_text()
    text = re.sub(
        r"{{ opts.get\(.(\w+).*?\) }}", lambda name: {"master": "127.0.0.1"}.get(name[1], "4505"), text
    )
    states = YAML(typ="safe", pure=True).load(text.replace("/etc/hitables", str(folder)))
    script = folder / "reaches-master"
    (written,) = (each["contents"] for each in states[str(script)]["file.managed"] if "contents" in each)
    script.write_text(written)
    script.chmod(0o700)
    run = {key: value for each in states["load the firewall"]["cmd.run"] for key, value in each.items()}
    return run["name"], run["unless"]


def of_puppet(folder: Path) -> tuple[str, str]:
    """The commands of the class."""
    text = (EXAMPLES / "puppet/firewall.pp").read_text()
    values = {"${folder}": str(folder), "${server}": "127.0.0.1", "${port}": "8140", '\\"': '"'}
    for name, value in values.items():
        text = text.replace(name, value)
    (command,) = re.findall(r"^ *command +=> \"(hitables apply.*)\",$", text, flags=re.MULTILINE)
    (unless,) = re.findall(r"^ *unless +=> \"(.*)\",$", text, flags=re.MULTILINE)
    return command, unless


@pytest.fixture
def firewall(tmp_path: Path) -> Iterator[Firewall]:
    with Namespace() as namespace:
        yield Firewall(namespace, tmp_path, Backend.NFT)


def run(firewall: Firewall, command: str) -> int:
    """Run a command line of an example; its exit status.  An unreachable master is waited for a second."""
    script = command.replace("timeout 10", "timeout 1")
    path = f"{command_clients.folder()}:{Path(sys.executable).parent}"
    done = f"export PATH={path}:$PATH HITABLES_STATE={firewall.state}; ( {script} ) >/dev/null 2>&1; echo $?"
    return int(firewall.namespace.run(["/bin/bash", "-c", done]))


@pytest.mark.parametrize(("commands", "port"), [(of_salt, 4505), (of_puppet, 8140)], ids=["salt", "puppet"])
def test_rules_are_loaded_once_and_taken_back_if_the_master_is_lost(
    firewall: Firewall, tmp_path: Path, commands: object, port: int
) -> None:
    assert callable(commands)
    firewall.namespace.call(serve, port)
    apply, unless = commands(tmp_path)
    rules = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 192.0.2.0/24 -j DROP\nCOMMIT\n"
    firewall.file(rules)
    assert run(firewall, unless) == 1
    assert run(firewall, apply) == 0
    assert run(firewall, unless) == 0
    loaded = plain(firewall.save())
    assert "192.0.2.0/24" in loaded
    firewall.file(rules.replace("COMMIT", "-A INPUT -i lo -j DROP\nCOMMIT"))
    script = tmp_path / "reaches-master"
    if script.exists():
        script.write_text(script.read_text().replace("timeout 10", "timeout 1"))
    assert run(firewall, unless) == 1
    assert run(firewall, apply) == 2
    assert plain(firewall.save()) == loaded
    assert "taken back, because the check failed" in firewall.log()
