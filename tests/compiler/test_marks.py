"""Lists that tell packets apart by their marks, or by those of their connections, are cut bit by bit."""

from __future__ import annotations

import random
import re
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.firewall import Firewall
from support.scale import examples

import hitables
from hitables.compiler.pipeline import Output
from hitables.compiler.result import ChainReport
from hitables.ir.choices import backend_choice, backends_of
from hitables.ir.packet import Backend
from hitables.kernel import Namespace
from hitables.parse.iptables import read
from hitables.verify import bdd, exact
from hitables.verify.question import Difference, Equal, Question

pytestmark = pytest.mark.engine

HEADS = ":INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
SO_MARK = 36


def text(lines: list[str]) -> str:
    return f"*mangle\n{HEADS}:own - [0:0]\n" + "\n".join(lines) + "\n-A own -j MARK --or-mark 0x1\nCOMMIT\n"


def compiled(
    lines: list[str], backend: str = "any", malformed: str = "stricter"
) -> tuple[Output, ChainReport]:
    output = hitables.compile(text(lines), backend=backend, malformed=malformed)
    return output, next(each for each in output.reports if each.chain == "FORWARD")


def marks(test: str, count: int = 200, target: str = "ACCEPT") -> list[str]:
    return [f"-A FORWARD {test.format(n=n, high=n << 16)} -j {target}" for n in range(count)]


@pytest.mark.parametrize("malformed", ["exact", "stricter"])
@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
@pytest.mark.parametrize(
    "test",
    ["-m mark --mark {n}", "-m mark --mark {high:#x}/0xff0000", "-m connmark --mark {n}",
     "-p udp -m mark --mark {n}", "-s 10.0.0.0/8 -m mark --mark {n}"],
)  # fmt: skip
def test_a_packet_reads_few_of_many_marks(test: str, backend: str, malformed: str) -> None:
    output, report = compiled(marks(test), backend=backend, malformed=malformed)
    assert not report.why and not output.faults and not output.by_regions
    assert report.read_after < 14 and report.longest <= 20 and report.after < 300


SERVICES = [f"-A FORWARD -m dscp --dscp {n:#04x} -j DROP" for n in range(1, 60)]
BYTES = [
    f"-A FORWARD -m tos --tos {n:#04x}/0xff -j CLASSIFY --set-class 1:{n + 1:x}" for n in range(0, 256, 2)
]


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize(
    ("lines", "most"), [(SERVICES, 8), (BYTES, 10), (["-A FORWARD -j TOS --set-tos 0x10/0x3f", *BYTES], 11)]
)
def test_classes_of_service_are_cut_bit_by_bit(
    lines: list[str], most: float, family: int, backend: str
) -> None:
    source = f"*mangle\n{HEADS}" + "\n".join(lines) + "\nCOMMIT\n"
    output = hitables.compile(source, backend=backend, family=family)
    assert not output.faults and output.proved
    (report,) = (each for each in output.reports if each.chain == "FORWARD")
    assert report.why == "" and report.read_after <= most
    before, after = hitables.read(source, family=family), hitables.read(output.text, family=family)
    assert hitables.check(before, after, engine="diagrams")
    spoilt = output.text.replace("-m tos --tos 0x80/0x80 -g", "-m tos --tos 0x00/0x80 -g")
    assert spoilt != output.text
    assert not hitables.check(before, hitables.read(spoilt, family=family))


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
def test_marks_and_then_classes_of_service_are_read_one_after_the_other(backend: str) -> None:
    marked = [
        f"-A FORWARD -o eth0 -m mark --mark {n:#x}/0xff -j CLASSIFY --set-class 1:{n:x}" for n in range(250)
    ]
    served = [
        f"-A FORWARD -o eth0 -m dscp --dscp {n:#04x} -j CLASSIFY --set-class 2:{n:x}" for n in range(64)
    ]
    output, report = compiled([*marked, *served], backend=backend)
    assert output.proved and not output.faults
    assert report.why == "" and report.read_after < 25


def test_a_list_behind_a_rule_that_restores_marks_tests_those() -> None:
    restore = "-A FORWARD -j CONNMARK --restore-mark"
    output, report = compiled([restore, *marks("-m mark --mark {n}"), "-A FORWARD -j CONNMARK --save-mark"])
    assert not report.why and report.read_after < 16
    assert output.text.index(restore) < output.text.index("-A FORWARD -m mark")


def test_marks_behind_a_rule_that_changes_them_are_not_tested_before_it() -> None:
    changing = ["-A FORWARD -s 10.1.0.0/16 -j MARK --set-xmark 0x5/0xff", *marks("-m mark --mark {n}", 100)]
    lines = [*marks("-s 10.2.0.0/16 -m mark --mark {n}", 100), *changing]
    output, report = compiled(lines)
    assert not output.faults and report.read_after < 110
    wrong = output.text.replace("--set-xmark 0x5/0xff", "--set-xmark 0x6/0xff")
    assert isinstance(exact.check(read(text(lines)), read(wrong), Question()), Difference)


def test_a_match_that_drops_packets_keeps_marks_behind_it() -> None:
    """`-m udp` drops what is cut off in legacy, so a tree may not test a mark that stands behind it."""
    output, _ = compiled(marks("-p udp -m udp --dport 53 -m mark --mark {n}"), backend="legacy")
    assert not re.search(r"^-A \S+ -m mark \S+ \S+ -g", output.text, re.MULTILINE)


def drawn(rng: random.Random, rules: int = 60) -> list[str]:
    """Marks of several masks beside addresses, with rules that change marks and rules that do not end."""
    masks = rng.choice([(0xFFFFFFFF,), (0xFF00,), (0xFFFFFFFF, 0xFF000000, 0xFFFF), (0x100FC0, 0xFFFFFFFF)])

    def test() -> str:
        mask = rng.choice(masks)
        bang = "! " if rng.random() < 0.1 else ""
        return f"-m {rng.choice(names)} {bang}--mark {rng.getrandbits(32) & mask & 0x1C1CFCC:#x}/{mask:#x}"

    names = rng.choice([("mark",), ("connmark",), ("mark", "connmark")])
    few, many = ("", ""), ("-s 10.0.0.0/9", "-p tcp -m tcp --dport 22", "-i eth0", "-m limit --limit 5/sec")
    targets = (
        "ACCEPT",
        "DROP",
        "RETURN",
        "LOG",
        "own",
        "CONNMARK --restore-mark",
        "MARK --set-xmark 0x4/0xc",
    )
    weights = (30, 30, 10, 10, 5, 2, 3)
    return [
        " ".join(
            f"-A FORWARD {rng.choice((*few, *many))} {test() if rng.random() < 0.9 else ''} -j "
            f"{rng.choices(targets, weights)[0]}".split()
        )
        for _ in range(rules)
    ]


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_lists_of_marks_are_proved_by_both_engines_and_mutants_are_not(backend: str, seed: int) -> None:
    rng = random.Random(seed)
    lines = drawn(rng)
    output, _ = compiled(lines, backend=backend)
    assert not output.faults
    question = Question(backends=backends_of(backend_choice(backend)))
    before, after = read(text(lines)), read(output.text)
    for check in (exact.check, bdd.check):
        answer = check(before, after, question)
        assert isinstance(answer, Equal) and answer.proved, answer
    tests = [at for at, line in enumerate(output.text.splitlines()) if re.search(r" --mark .* -g ", line)]
    for at in rng.sample(tests, min(2, len(tests))):
        mutant = output.text.splitlines()
        mutant[at] = re.sub(r"--mark 0x([0-9a-f]+)", lambda found: f"--mark 0x1{found[1]}", mutant[at])
        answers = [
            check(before, read("\n".join(mutant) + "\n"), question) for check in (exact.check, bdd.check)
        ]
        assert isinstance(answers[0], Difference) == isinstance(answers[1], Difference)


def _send_service(service: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, service)
        sender.sendto(b"x", ("127.0.0.1", 53))


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", list(Backend))
def test_the_kernel_counts_each_class_of_service_as_in_the_list(backend: Backend, tmp_path: Path) -> None:
    lines = [f"-A OUTPUT -p udp -m dscp --dscp {n:#04x} -j ACCEPT" for n in range(1, 60)]
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        path = firewall.file(f"*filter\n{HEADS}" + "\n".join(lines) + "\nCOMMIT\n")
        firewall.apply(path)
        assert firewall.counted("-g ht") == 0 and "-m tos" in firewall.save()
        for service in (0x28, 0x28, 0x00, 0xB8, 0xFC, 0x04):
            namespace.call(_send_service, service)
        counted = firewall.hitables("counters").stdout
    found = re.findall(r"^\[([1-9]\d*):\d+\] -A OUTPUT -p udp -m dscp --dscp (\S+)", counted, re.MULTILINE)
    assert found == [("1", "0x01"), ("2", "0x0a"), ("1", "0x2e")]


def _send(mark: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, SO_MARK, mark.to_bytes(4, sys.byteorder))
        sender.sendto(b"x", ("127.0.0.1", 53))


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", list(Backend))
def test_the_kernel_counts_each_mark_as_in_the_list(backend: Backend, tmp_path: Path) -> None:
    lines = [f"-A OUTPUT -m mark --mark {n << 8:#x}/0xff00 -j ACCEPT" for n in range(1, 100)]
    sent = (0x1, 0x500, 0x5FF, 0x16300, 0x6400, 0xFF006300)
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        path = firewall.file(f"*filter\n{HEADS}" + "\n".join(lines) + "\nCOMMIT\n")
        firewall.apply(path)
        assert firewall.counted("-g ht") == 0 and "-m mark" in firewall.save()
        for mark in sent:
            namespace.call(_send, mark)
        counted = firewall.hitables("counters").stdout
    found = re.findall(r"^\[([1-9]\d*):\d+\] -A OUTPUT -m mark --mark (\S+)/0xff00", counted, re.MULTILINE)
    assert found == [("2", "0x500"), ("2", "0x6300")]
