"""Rules that ask a list of recent addresses into which no rule puts one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.small_namespace import Namespace

import hitables
from hitables.cli.main import main
from hitables.ir.fields import Family
from hitables.ir.foreign import hide
from hitables.ir.packet import Backend
from hitables.ir.unfilled_lists import unfilled_lists
from hitables.kernel.load_save import load

UPDATE = "-A INPUT -p tcp -m tcp --dport 22 -m recent --update --seconds 60 --hitcount 2{} -j DROP"


def text_of(*lines: str) -> str:
    return "\n".join(["*filter", ":INPUT ACCEPT [0:0]", ":f2b-ssh - [0:0]", *lines, "COMMIT", ""])


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ([UPDATE.format("")], "DEFAULT"),
        ([UPDATE.format(" --name ssh")], "ssh"),
        ([UPDATE.format(" --name ssh"), "-A INPUT -m recent --set --name sssh"], "ssh"),
        ([UPDATE.format(" --name ssh"), "-A INPUT -m recent --set --name ssh"], ""),
        ([UPDATE.format(""), "-A f2b-ssh -m recent --set"], ""),
        (["-A INPUT -m recent --rcheck -j DROP"], "DEFAULT"),
        (["-A INPUT -m recent --remove -j DROP"], "DEFAULT"),
        (["-A INPUT -m recent ! --rcheck -j DROP"], ""),  # matches each packet
    ],
)
def test_a_list_without_a_rule_that_fills_it_is_named(lines: list[str], name: str) -> None:
    found = list(unfilled_lists(hitables.read(text_of(*lines))))
    assert [each.line for each in found] == [4] * bool(name)
    assert all(f"no rule puts an address into list {name} (" in each.why for each in found)


def test_another_table_may_fill_it() -> None:
    fills = "*mangle\n-A PREROUTING -m recent --set --name ssh\nCOMMIT\n"
    assert not list(unfilled_lists(hitables.read(text_of(UPDATE.format(" --name ssh")) + fills)))


def test_nothing_is_known_of_rules_of_other_programs() -> None:
    program = hitables.read(text_of(UPDATE.format(""), "-A INPUT -j f2b-ssh"))
    assert list(unfilled_lists(program)) and not list(unfilled_lists(hide(program, ("f2b-*",))))


def test_lint_tells_it_as_a_note(tmp_path: Path) -> None:
    path = tmp_path / "host.rules"
    path.write_text("*filter\n:INPUT ACCEPT [0:0]\n" + UPDATE.format("") + "\nCOMMIT\n")
    done = CliRunner().invoke(main, ["lint", str(path)])
    assert done.exit_code == 0
    assert (
        "note: line 3 (table filter, chain INPUT) matches no packet: no rule puts an address" in done.stdout
    )


def send_five() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(5):
            sender.sendto(b"", ("127.0.0.1", 9999))


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend, ids=lambda backend: backend.value)
def test_the_kernel_matches_no_packet_by_it(backend: Backend) -> None:
    """The rule matches none of five packets; with one of --set behind it, it matches some."""
    ask = "-A INPUT -p udp -m recent --update --hitcount 2 --name mine"
    counts = []
    for fill in ([], ["-A INPUT -p udp -m recent --set --name mine"]):
        with Namespace() as namespace:
            namespace.run(["ip", "link", "set", "lo", "up"])
            load("\n".join(["*filter", ask, *fill, "COMMIT", ""]), Family.IPV4, backend, namespace)
            namespace.call(send_five)
            saved = namespace.run([f"iptables-{backend.value}-save", "-c"])
            line = next(line for line in saved.splitlines() if "--update" in line)
            counts.append(int(line.removeprefix("[").partition(":")[0]))
    assert counts[0] == 0 and counts[1] > 0, counts
