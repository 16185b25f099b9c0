"""The kernel against the interpreter: what can be sent, what is known of it, and that differences show."""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import benchmarks.agreement as agreement
import benchmarks.corpus as corpus
from hitables import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.result import Compiled
from hitables.emit.text import write
from hitables.ir.fields import Family, Field
from hitables.ir.packet import Backend
from hitables.ir.program import BUILT_IN, Program
from hitables.ir.rule import Match, Role
from hitables.kernel import Namespace, load, make_ip_sets
from hitables.kernel.agreement import Prediction, predict
from hitables.kernel.craft import Trim
from hitables.kernel.experiment import Trial, furnish, prepare, send_trials, why_not
from hitables.kernel.make_sendable import interfaces_of, make_sendable
from hitables.kernel.match_truth import Traits, arrange, options, predicates_known, truth
from hitables.kernel.stateful_truth import answer
from hitables.kernel.testbed import local_address
from hitables.simulate.batch import NOT_GIVEN, PacketBatch
from hitables.simulate.boundary_packets import BoundarySampler
from hitables.simulate.interpreter import Interpreter

pytestmark = pytest.mark.usefixtures("small_namespaces")

GATEWAY = """\
*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:dmz - [0:0]
-A INPUT -i lo -j ACCEPT
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -m conntrack --ctstate INVALID -j DROP
-A INPUT -p tcp -m multiport --dports 22,80,443 -m conntrack --ctstate NEW -j ACCEPT
-A INPUT -p udp -m udp --dport 53 -s 10.0.0.0/8 -j ACCEPT
-A INPUT -p icmp -m icmp --icmp-type 8 -m limit --limit 5/sec -j ACCEPT
-A INPUT -m mark --mark 0x1/0xf -j REJECT
-A INPUT -m addrtype --dst-type BROADCAST -j DROP
-A INPUT -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -m recent --update --seconds 60 --name s --rsource -j DROP
-A FORWARD -i eth0 -o eth1 -j dmz
-A FORWARD -i eth1 -m mac --mac-source 02:00:00:00:00:07 -j ACCEPT
-A FORWARD -s 172.16.0.0/12 ! -d 172.16.0.0/12 -p tcp -m tcp --sport 1024:65535 -j ACCEPT
-A OUTPUT -m owner --uid-owner 1000 -j REJECT
-A dmz -d 192.0.2.1/32 -p tcp -m tcp --dport 25 -j ACCEPT
-A dmz -d 192.0.2.2/32 -p udp -m udp --dport 123 -j RETURN
-A dmz -d 192.0.2.0/24 -j DROP
COMMIT
*mangle
-A PREROUTING -i eth0 -p tcp -m tcp --dport 80 -j MARK --set-xmark 0x2/0xffffffff
-A PREROUTING -m mark --mark 0x2 -j ACCEPT
-A PREROUTING -m ttl --ttl-lt 5 -j DROP
COMMIT
*nat
-A PREROUTING -i eth0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 192.0.2.1:80
-A POSTROUTING -o eth0 -j MASQUERADE
COMMIT
*raw
-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack
COMMIT
"""
GATEWAY6 = """\
*filter
:INPUT DROP [0:0]
-A INPUT -s fe80::/10 -p ipv6-icmp -j ACCEPT
-A INPUT -m state --state ESTABLISHED,RELATED -j ACCEPT
-A INPUT -p tcp -m tcp --dport 22 -m hl --hl-gt 10 -j ACCEPT
-A FORWARD -i eth+ -d 2001:db8::/32 -p udp -m udp ! --dport 1:1023 -j ACCEPT
-A FORWARD -p ipv6-icmp -m icmp6 --icmpv6-type 1 -j DROP
-A FORWARD -p tcp -m tcp --syn -j DROP
COMMIT
"""


FILTER = GATEWAY.split("*mangle")[0]


def drawn(program: Program, table: str, chain: str, count: int = 400) -> PacketBatch:
    return BoundarySampler(Interpreter(program, Backend.LEGACY), table, chain, seed=3).draw(count)


@pytest.mark.parametrize("text", [GATEWAY, GATEWAY6])
def test_what_is_realised_can_be_sent(text: str) -> None:
    program = read(text)
    for table in program:
        for chain in BUILT_IN[table.name]:
            batch = drawn(program, table.name, chain)
            names = interfaces_of([batch])
            assert any(why_not(packet, chain, names.values()) for packet in batch) or not len(batch)
            for packet in make_sendable(batch, chain, names):
                assert not why_not(packet, chain, names.values())


def test_options_are_told_apart_with_their_inversions() -> None:
    match = Match("x", ("--a", "1", "2", "!", "--b", "3", "--c"), Role.CONSTANT, "x")
    assert options(match) == [("--a", False, ("1", "2")), ("--b", True, ("3",)), ("--c", False, ())]


def test_facts_are_told_of_matches_that_there_are() -> None:
    from hitables.syntax.extensions import MATCHES

    assert predicates_known() <= set(MATCHES)


# Rules of one match each, with no header fields and no memory, by the chain they are tried in.
FACTS = {
    (Family.IPV4, "OUTPUT"): [
        "-m mark --mark 0x5",
        "-m mark ! --mark 0x4/0xc",
        "-m tos --tos 0x10/0x3f",
        "-m tos ! --tos 0x08/0xff",
        "-m dscp --dscp 0x0a",
        "-m ttl --ttl-eq 9",
        "-m ttl --ttl-gt 63",
        "-m ttl ! --ttl-eq 9",
        "-m length --length 40:60",
        "-m length ! --length 84",
        "-m owner --uid-owner 77",
        "-m owner ! --uid-owner 70-80",
        "-m owner --gid-owner 12",
        "-m ecn --ecn-ip-ect 1",
        "-m addrtype --dst-type LOCAL",
        "-m addrtype ! --dst-type MULTICAST,UNICAST",
        "-m addrtype --src-type BROADCAST",
        "-m policy --dir out --pol none",
        "-m policy --dir out --pol ipsec",
        "-m pkttype --pkt-type unicast",
        "-m pkttype ! --pkt-type broadcast",
        "-m realm --realm 0x1",
        "-m realm ! --realm 0x1",
        "-m physdev ! --physdev-is-in",
        "-m connmark --mark 0x3/0x3",
        "-m helper --helper ftp",
        '-m string --string "hello" --algo bm',
        "-m set --match-set some src",
        "-m set ! --match-set some dst",
        "-m time --datestop 2001-02-03T04:05:06",
        "-m time --datestart 2001-02-03T04:05:06",
    ],
    (Family.IPV4, "FORWARD"): [
        "-m ttl --ttl-lt 9",
        "-m addrtype --src-type LOCAL",
        "-m physdev --physdev-is-in",
    ],
    (Family.IPV6, "OUTPUT"): [
        "-m hl --hl-eq 9",
        "-m hl ! --hl-eq 64",
        "-m mark --mark 0x5",
        "-m length --length 40:110",
        "-m tos --tos 0x10/0x3f",
        "-m addrtype --dst-type LOCAL",
        "-m addrtype --dst-type MULTICAST",
        "-m owner --uid-owner 77",
    ],
    (Family.IPV6, "FORWARD"): ["-m hl --hl-gt 8", "-m dscp --dscp 0x0a"],
}


def one_match(family: Family, chain: str, rule: str) -> tuple[Program, Match]:
    program = read(f"*filter\n-A {chain} {rule} -j DROP\nCOMMIT\n", family=family)
    (match,) = program.table("filter")[chain].rules[0].matches
    assert match.role is not Role.SPACE
    return program, match


@pytest.mark.needs_kernel
@pytest.mark.parametrize(("family", "chain"), FACTS)
def test_what_the_facts_say_holds_in_the_kernel(family: Family, chain: str) -> None:
    names = ("eth0", "eth1")
    own = frozenset(local_address(family, at) for at in range(len(names)))
    plain = read("*filter\n-A FORWARD -i eth0 -o eth1\n-A OUTPUT -o eth1\nCOMMIT\n", family=family)
    drawn_once = drawn(plain, "filter", chain, 300)
    interfaces = dict.fromkeys(interfaces_of([drawn_once]), "eth0")
    rng = np.random.default_rng(4)
    with Namespace() as namespace:
        furnish(namespace, family, names)
        for rule in FACTS[family, chain]:
            program, match = one_match(family, chain, rule)
            batch = make_sendable(drawn_once, chain, interfaces, fragments=False)
            traits = Traits(batch, chain, own)
            arrange(traits, match, rng.integers(2, size=len(batch)).astype(bool))
            trials = [
                Trial(packet, mark, ctmark, (uid, gid), Trim(tos, ttl))
                for packet, mark, ctmark, uid, gid, tos, ttl in zip(
                    batch,
                    *(
                        column.tolist()
                        for column in (
                            traits.mark,
                            traits.connection_mark,
                            traits.uid,
                            traits.gid,
                            traits.tos,
                            traits.ttl,
                        )
                    ),
                    strict=True,
                )
            ]
            if "--match-set" in rule:
                members = {
                    name: [dotted(one) for one in members_] for name, members_ in traits.members.items()
                }
                make_ip_sets({"some": "hash:net"}, family, namespace, members)
            prepare(namespace, "filter", chain, trials, "connmark" in rule or "helper" in rule)
            for backend in Backend:
                load(write(program), family, backend, namespace)
                results = send_trials(namespace)
                load("*filter\nCOMMIT\n", family, backend, namespace)
                batch.rows["low"][:, Field.STATE] = [result.state for result in results]
                truths = truth(traits, match)
                assert not (truths == NOT_GIVEN).any(), rule
                assert [result.arrived for result in results] == [True] * len(batch)
                wrong = [at for at, result in enumerate(results) if result.passed == truths[at]]
                assert not wrong, (rule, backend, trials[wrong[0]])


def told_at(moment: str, rule: str) -> set[int]:
    _, match = one_match(Family.IPV4, "OUTPUT", f"-m time {rule}")
    began = calendar.timegm(time.strptime(moment, "%Y-%m-%d %H:%M:%S"))
    batch = drawn(read("*filter\n-A OUTPUT -o eth1\nCOMMIT\n"), "filter", "OUTPUT", 3)
    return set(truth(Traits(batch, "OUTPUT", frozenset(), began=began), match).tolist())


@pytest.mark.parametrize(
    ("moment", "rule", "holds"),
    [
        ("2026-11-22 00:05:00", "--datestop 2001-02-03T04:05:06", 0),  # a Sunday; midnight is no edge of that
        ("2026-11-22 00:05:00", "--datestart 2001-02-03T04:05:06", 1),
        ("2026-11-22 00:05:00", "--datestop 2026-11-22T00:10:00", NOT_GIVEN),
        ("2026-11-22 00:05:00", "--weekdays Sun", NOT_GIVEN),
        ("2026-11-22 23:50:00", "--weekdays Sun", NOT_GIVEN),
        ("2026-11-22 12:00:00", "--weekdays Sun,Mon", 1),
        ("2026-11-22 12:00:00", "! --monthdays 21,22", 0),
        ("2026-11-22 12:00:00", "--datestart 2001-02-03", NOT_GIVEN),
        ("2026-11-22 12:00:00", "--timestart 09:00 --timestop 17:00", 1),
        ("2026-11-22 12:00:00", "--timestart 17:00 --timestop 09:00", 0),
        ("2026-11-22 00:05:00", "--timestart 17:00 --timestop 09:00", 1),
        ("2026-11-22 00:05:00", "--timestop 23:59:30", NOT_GIVEN),
        ("2026-11-22 16:50:00", "--timestart 17:00", NOT_GIVEN),
    ],
)
def test_what_the_clock_may_change_soon_is_not_known(moment: str, rule: str, holds: int) -> None:
    assert told_at(moment, rule) == {int(holds)}


def dotted(address: int) -> str:
    return ".".join(str(byte) for byte in address.to_bytes(4, "big"))


@pytest.mark.needs_kernel
@pytest.mark.parametrize(
    "rule",
    [
        "-m recent --set --name a --rsource", "-m recent --rcheck --name b --rsource",
        "-m hashlimit --hashlimit-upto 1/hour --hashlimit-burst 5 --hashlimit-mode srcip --hashlimit-name c",
        "-m hashlimit --hashlimit-above 1/hour --hashlimit-burst 2 --hashlimit-mode dstip --hashlimit-name d",
        "-m hashlimit ! --hashlimit-upto 1/hour --hashlimit-burst 2 --hashlimit-mode dstip --hashlimit-name e",
        "-m quota --quota 0", "-m quota --quota 18446744073709551615",
    ],
)  # fmt: skip
def test_what_follows_from_the_packets_alone_holds_in_the_kernel(rule: str) -> None:
    family, chain, names = Family.IPV4, "OUTPUT", ("eth0",)
    plain = read("*filter\n-A OUTPUT -s 10.0.0.0/8 -o eth0\nCOMMIT\n", family=family)
    batch = drawn(plain, "filter", chain, 300)
    batch = make_sendable(batch, chain, dict.fromkeys(interfaces_of([batch]), "eth0"), fragments=False)
    program, match = one_match(family, chain, rule)
    truths = answer(match, batch, {match: 1})
    assert (truths != NOT_GIVEN).any()
    with Namespace() as namespace:
        furnish(namespace, family, names)
        prepare(namespace, "filter", chain, [Trial(packet) for packet in batch], False)
        load(write(program), family, Backend.LEGACY, namespace)
        results = send_trials(namespace)
    wrong = [
        at for at, result in enumerate(results) if truths[at] != NOT_GIVEN and result.passed == truths[at]
    ]
    assert not wrong, (rule, batch.packet(wrong[0]))


@pytest.mark.needs_kernel
@pytest.mark.parametrize("text", [GATEWAY, GATEWAY6])
def test_the_kernel_and_the_interpreter_agree_on_a_small_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(agreement, "LEAST", 300)
    path = tmp_path / "gateway.rules"
    path.write_text(text)
    line = corpus.try_set(path, 1500)
    assert line.failures == []
    assert line.reached > 0.9 * line.reachable
    assert line.open < 0.05 * line.packets


def with_first(program: Program, change: Callable[[str], str]) -> Program:
    """*program*, printed, changed once and read again."""
    text = write(program)
    changed = change(text)
    assert changed != text
    return read(changed, family=program.family)


# What a faulty compiler might print.
FAULTS = {
    "a verdict": lambda text: text.replace("-j ACCEPT", "-j DROP", 1),
    "a port": lambda text: text.replace("--dport 53 ", "--dport 54 ", 1),
    "a policy": lambda text: text.replace(":FORWARD DROP", ":FORWARD ACCEPT", 1),
    "a lost rule": lambda text: text.replace("-A dmz -d 192.0.2.0/24 -j DROP\n", "", 1),
}


@pytest.mark.needs_kernel
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_compiler_is_found_out(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(program: Program, *options: object) -> Compiled:
        return Compiled(with_first(compile_rules(program).program, FAULTS[fault]))

    monkeypatch.setattr(corpus, "compile_rules", faulty)
    monkeypatch.setattr(agreement, "LEAST", 200)
    path = tmp_path / "gateway.rules"
    path.write_text(FILTER)
    failures = "\n".join(corpus.try_set(path, 600).failures)
    assert "changed their verdict in the kernel" in failures


SHARED = "-m hashlimit --hashlimit-name one --hashlimit-upto 1/hour --hashlimit-mode"


@pytest.mark.needs_kernel
@pytest.mark.parametrize(
    "rules",
    [
        # The second rule has the settings of the first.
        [f"FORWARD {SHARED} dstip --hashlimit-burst 2", f"FORWARD {SHARED} srcip --hashlimit-burst 200"],
        # A rule that a packet reads twice charges it twice.
        [
            "FORWARD -p tcp -j twice", "FORWARD -j twice", "FORWARD",
            f"twice {SHARED} srcip --hashlimit-srcmask 6 --hashlimit-burst 6 -j RETURN", "twice -j DROP",
        ],
    ],
    ids=["other settings", "a chain entered twice"],
)  # fmt: skip
def test_rules_that_share_a_hashlimit_are_predicted_together(
    rules: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "LEAST", 200)
    path = tmp_path / "shared.rules"
    spread = "-A FORWARD -s 10.0.0.0/8 -d 10.0.0.0/8 -j LOG\n"
    written = "".join(f"-A {rule}{'' if '-j' in rule else ' -j ACCEPT'}\n" for rule in rules)
    path.write_text(f"*filter\n:FORWARD DROP [0:0]\n:twice - [0:0]\n{spread}{written}COMMIT\n")
    assert not corpus.try_set(path, 20).failures


@pytest.mark.needs_kernel
def test_a_faulty_interpreter_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(machine: Interpreter, *rest: Any) -> Prediction:
        program = with_first(machine.program, lambda text: text.replace("22,80,443", "22,80"))
        return predict(Interpreter(program, machine.backend), *rest)

    monkeypatch.setattr(agreement, "predict", faulty)
    path = tmp_path / "gateway.rules"
    path.write_text("*filter\n-A INPUT -p tcp -m multiport --dports 22,80,443 -j DROP\nCOMMIT\n")
    failures = "\n".join(corpus.try_set(path, 600).failures)
    assert "verdicts differ" in failures
    assert "the counters of 1 of 1 rules differ" in failures
