"""Scratch namespaces, and rule sets in and out of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.iptables_version import iptables_is

from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import Namespace, ip_sets_named, load, save
from hitables.kernel.load_save import clear, read_by_iptc
from hitables.kernel.namespace import run

pytestmark = pytest.mark.needs_kernel

RULES = """\
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:web - [0:0]
-A INPUT -s {net} -p tcp -m tcp --dport 80 -g web
-A web -m set --match-set known src,dst -j DROP
COMMIT
"""
ROOT = Path(__file__).parents[2]
NET = {Family.IPV4: "10.0.0.0/8", Family.IPV6: "fd00::/8"}
EVERYWHERE = [(family, backend) for family in Family for backend in Backend]


def links_and_rules() -> str:
    commands = (["ip", "link"], ["ip", "rule"], ["iptables-legacy-save"], ["nft", "list", "ruleset"])
    outputs = (subprocess.run(command, capture_output=True, text=True, check=True) for command in commands)
    return "".join(output.stdout for output in outputs)


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_what_is_loaded_is_what_is_saved(family: Family, backend: Backend) -> None:
    text = RULES.format(net=NET[family])
    with Namespace() as namespace:
        load(text, family, backend, namespace)
        assert save(family, backend, namespace).strip() == text.strip()


def long_text() -> str:
    """More than the buffer of a user namespace takes at once."""
    rules = [
        f"-A c{at % 200} -s 10.0.{at // 250}.{at % 250}/32 -p udp -m udp --dport {at + 1}"
        for at in range(2000)
    ]
    chains = "".join(f":c{at} - [0:0]\n" for at in range(200))
    text = f"*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{chains}"
    text += "-A INPUT -j c0\n" + "".join(f"{rule}\n" for rule in sorted(rules)) + "COMMIT\n"
    return "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j ACCEPT\nCOMMIT\n" + text


def in_a_user_namespace(script: str, text: str) -> str:
    command = ["unshare", "-Urn", sys.executable, "-c", script]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def test_a_text_beyond_the_buffer_of_a_user_namespace_is_loaded_in_parts() -> None:
    """Only real root may raise the buffer: iptables-nft sends at most net.core.wmem_default bytes at once."""
    text = long_text()
    for saved in in_a_user_namespace(LOAD_TWICE, text).split("end\n")[:2]:
        assert sorted(line for line in saved.split("\n") if line[:1] in ("-", ":") and "c" in line) == sorted(
            line for line in text.split("\n") if line[:1] in ("-", ":") and "c" in line
        )
        assert ":INPUT DROP" in saved


LOAD_TWICE = """
import sys
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import Namespace, load, save
text = sys.stdin.read()
with Namespace() as namespace:
    for _ in range(2):
        load(text, Family.IPV4, Backend.NFT, namespace)
        print(save(Family.IPV4, Backend.NFT, namespace) + "end")
"""


def test_a_long_text_that_is_added_is_refused_and_adds_no_rule_twice() -> None:
    saved = in_a_user_namespace(LOAD_NO_FLUSH, long_text())
    assert "Message too long" in saved and saved.count("-A OUTPUT -j ACCEPT") == 1


LOAD_NO_FLUSH = """
import sys
from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import Namespace, load, save
with Namespace() as namespace:
    try:
        load(sys.stdin.read(), Family.IPV4, Backend.NFT, namespace, noflush=True)
    except LiveError as error:
        print(error)
    print(save(Family.IPV4, Backend.NFT, namespace))
"""


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_counters_survive_a_round_trip(family: Family, backend: Backend) -> None:
    text = RULES.format(net=NET[family]).replace("-A web", "[7:420] -A web")
    with Namespace() as namespace:
        load(text, family, backend, namespace)
        saved = save(family, backend, namespace, counters=True)
    # ip6tables-nft-restore takes -c and loads the counters as zeros before 1.8.10.
    kept = (family, backend) != (Family.IPV6, Backend.NFT) or iptables_is((1, 8, 10))
    assert ("[7:420] -A web" if kept else "[0:0] -A web") in saved


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_after_clear_no_rule_is_left(family: Family, backend: Backend) -> None:
    with Namespace() as namespace:
        load(RULES.format(net=NET[family]), family, backend, namespace)
        clear(family, backend, namespace)
        assert "-A" not in save(family, backend, namespace)


@pytest.mark.parametrize("backend", Backend)
def test_a_refusal_tells_the_tools_words(backend: Backend) -> None:
    with Namespace() as namespace, pytest.raises(LiveError, match=r"NO_SUCH_TARGET|line 2 failed"):
        load("*filter\n-A INPUT -j NO_SUCH_TARGET\nCOMMIT\n", Family.IPV4, backend, namespace)


def test_a_tool_that_fails_is_told_by_its_last_words_and_one_that_cannot_run_by_why(tmp_path: Path) -> None:
    with pytest.raises(LiveError, match=r"exit status 3: 996\n997\n998\n999\n1000$"):
        run(["sh", "-c", "seq 1000; exit 3"])
    with pytest.raises(LiveError, match=r"exit status 3: why$"):
        run(["sh", "-c", "seq 1000; echo why >&2; exit 3"])
    with pytest.raises(LiveError, match="Permission denied"):
        run([str(tmp_path)])


def test_nothing_is_seen_outside_and_nothing_stays_behind() -> None:
    before = links_and_rules()
    with Namespace({"ipv4.ip_forward": "1"}) as namespace:
        load(RULES.format(net=NET[Family.IPV4]), Family.IPV4, Backend.LEGACY, namespace)
        namespace.run(["ip", "link", "add", "hit0", "type", "veth", "peer", "name", "hit1"])
        assert links_and_rules() == before
        assert "hit0" in namespace.run(["ip", "link"])
    assert links_and_rules() == before


def test_a_call_runs_inside_and_its_exception_comes_out() -> None:
    with Namespace() as namespace:
        assert namespace.call(os.getpid) != os.getpid()
        with pytest.raises(FileNotFoundError):
            namespace.call(os.stat, "/nonexistent")
        assert namespace.call(os.path.basename, "/a/b") == "b"


def test_a_namespace_whose_helper_died_says_so() -> None:
    with Namespace() as namespace:
        with pytest.raises(LiveError, match="has died"):
            namespace.call(os._exit, 1)
        with pytest.raises(LiveError, match="not open"):
            namespace.call(os.getpid)


def test_python_iptables_reads_what_was_loaded() -> None:
    with Namespace() as namespace:
        load(RULES.format(net=NET[Family.IPV4]), Family.IPV4, Backend.LEGACY, namespace)
        held = read_by_iptc("filter", Family.IPV4, namespace)
    assert held["INPUT"][0]["src"] == "10.0.0.0/8"
    assert held["INPUT"][0]["target"] == {"goto": "web"}
    assert held["web"][0]["target"] == "DROP"


def test_sets_are_created_with_a_type_that_fits_their_use() -> None:
    text = """-A a -m set ! --match-set one src -m comment --comment "--match-set no src"
-A a -j SET --add-set two src,dst
"""
    assert ip_sets_named(text) == {"one": "hash:net", "two": "hash:net,port"}


# The code is read as root and run as nobody, who may not be let into the folder it is in.
# (prctl 4, "dumpable": else /proc/self stays root's.)
IN_A_USER_NAMESPACE = """\
import ctypes, os
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import Namespace, load, save
os.setgroups([]); os.setgid(65534); os.setuid(65534); ctypes.CDLL(None).prctl(4, 1)
with Namespace() as namespace:
    load("*filter\\n-A INPUT -s 10.0.0.0/8 -j DROP\\nCOMMIT\\n", Family.IPV4, Backend.NFT, namespace)
    print(save(Family.IPV4, Backend.NFT, namespace))
"""


def test_without_root_a_small_set_loads_in_a_user_namespace() -> None:
    command = [sys.executable, "-c", IN_A_USER_NAMESPACE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "cannot open a network namespace" in done.stderr:
        pytest.skip("this kernel lets root alone open a namespace")
    assert "-A INPUT -s 10.0.0.0/8 -j DROP" in done.stdout, done.stderr
