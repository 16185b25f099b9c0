"""Lists whose kinds are told apart: the chains that stand for them, and wrong ones that prove nothing."""

from __future__ import annotations

import random
import re

import pytest

import hitables
from hitables.ir.fields import Family
from hitables.parse.iptables import read
from hitables.verify import exact
from hitables.verify.called_parts import with_called_parts
from hitables.verify.question import Difference, Equal, Question

pytestmark = pytest.mark.engine

RNG = random.Random(1)
HOSTS = [f"{RNG.randrange(1, 224)}.{RNG.randrange(256)}.{RNG.randrange(256)}.7" for _ in range(200)]


@pytest.fixture(autouse=True)
def _short_lists_are_told_apart_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hitables.compiler.run_trees.RunTrees.FEW_READ", 0)


USER = "-A logdrop -j LOG\n-A logdrop -j DROP\n-A mark -p tcp -j MARK --set-mark 1\n"


def text(targets: str, *, chain: str = "FORWARD", front: str = "", behind: str = "") -> str:
    """The hosts as sources and destinations by turns, with the targets in turn."""
    words = targets.split()
    rules = [f"-{side} {host}" for host in HOSTS for side in "sd"]
    own = [f"{rule} -{words[at % len(words)]}".replace(",", " ") for at, rule in enumerate(rules)]
    heads = ":INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n:logdrop -\n:mark -\n:list -\n"
    jump = "" if chain == "FORWARD" else f"-A FORWARD -j {chain}\n"
    lines = [*front.splitlines(), *own, *behind.splitlines()]
    return f"*mangle\n{heads}{jump}" + "".join(f"-A {chain} {line}\n" for line in lines) + f"{USER}COMMIT\n"


def of_three_kinds(*targets: str) -> str:
    kinds = ("-s {}", "-d {}", "-p udp -m udp --dport {}", "-i ppp{}")[: len(targets)]
    rows = [
        f"{kind.format(host if at < 2 else 7 * n + 1)} -j {target}"
        for n, host in enumerate(HOSTS)
        for at, (kind, target) in enumerate(zip(kinds, targets, strict=True))
    ]
    lines = "".join(f"-A FORWARD {row}\n" for row in ["-p icmp -j ACCEPT", *rows, "-j DROP"])
    return f"*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n{lines}COMMIT\n"


@pytest.mark.parametrize("targets", [("DROP", "ACCEPT", "DROP"), ("DROP", "LOG", "ACCEPT"), ("DROP",) * 4])
def test_three_and_four_kinds_are_proved_without_the_product_of_their_fields(
    targets: tuple[str, ...],
) -> None:
    output = hitables.compile(of_three_kinds(*targets), backend="nft", max_expansion=6)
    assert not output.by_regions and not output.faults
    first, second = output.before.table("filter"), output.program.table("filter")
    cut = with_called_parts(first, second, Family.IPV4, exact=False)
    assert cut is not None and len(cut.chains) >= len(first.chains) + 2 * len(targets)
    answer = exact.check(output.before, output.program, Question())
    assert isinstance(answer, Equal) and answer.looked_at < 60 * len(HOSTS)
    host = HOSTS[70]
    for wrong in (f"-s {host} -j DROP", f"-d {host} -j {targets[1]}"):
        other = read(output.text.replace(wrong, wrong.replace(wrong.split()[-1], "REJECT"), 1))
        assert isinstance(exact.check(output.before, other, Question()), Difference)


CASES = {
    "verdicts": text("j,DROP j,DROP j,ACCEPT"),
    "a chain that decides": text("j,logdrop j,DROP"),
    "a chain that returns": text("j,mark j,DROP"),
    "effects": text("j,LOG j,MARK,--set-mark,1"),
    "RETURN at the end": text("j,RETURN j,DROP", chain="list"),
    "RETURN, and more behind": text(
        "j,RETURN j,DROP j,mark", chain="list", behind="-p tcp -j ACCEPT\n-j DROP"
    ),
    "-g, and more behind": text("g,mark j,LOG", chain="list", behind="-p tcp -j ACCEPT\n-j DROP"),
    "RETURN of a built-in chain": text("j,RETURN j,DROP", behind="-j DROP"),
    "between other rules": text("j,DROP", front="-p icmp -j ACCEPT\n-p tcp -j LOG", behind="-p udp -j DROP"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_each_list_is_proved_without_the_product_of_its_fields(case: str, backend: str) -> None:
    output = hitables.compile(CASES[case], backend=backend)
    assert not output.by_regions and not output.faults
    first, second = output.before.table("mangle"), output.program.table("mangle")
    cut = with_called_parts(first, second, Family.IPV4, exact=False)
    assert cut is not None
    added = [chain for chain in cut.chains if chain.name not in first]
    assert sum(len(chain.rules) for chain in added) >= 3 * len(HOSTS)
    answer = exact.check(output.before, output.program, Question())
    assert isinstance(answer, Equal) and answer.looked_at < 30 * len(HOSTS)
    assert isinstance(exact.check(output.program, output.before, Question()), Equal)


def edited(lines: list[str], change: str) -> list[str]:
    """*lines* of a compiled list of DROP, with a fault."""
    lines = list(lines)
    listed = [at for at, line in enumerate(lines) if re.match(r"-A \S+ -[sd] \S+ -j DROP", line)]
    tells = [at for at, line in enumerate(lines) if re.match(r"-A ht\d+ -[sd] [\d.]+(/32)? -[jg] ht", line)]
    ends = [at for at, line in enumerate(lines) if re.match(r"-A \S+ -g ht\d+$", line)]
    if change == "a rule is lost":
        del lines[listed[5]]
    elif change == "a verdict is changed":
        lines[listed[7]] = lines[listed[7]].replace("DROP", "ACCEPT")
    elif change == "every copy of a rule is changed":
        host = lines[listed[7]].split()[3]
        lines = [line.replace("DROP", "ACCEPT") if f" {host} -j" in line else line for line in lines]
    elif change == "others go nowhere":
        del lines[ends[len(ends) // 2]]
    else:
        lines[tells[3]] = re.sub(r"ht\d+$", lines[ends[0]].split()[-1], lines[tells[3]])
    return lines


@pytest.mark.parametrize(
    "change",
    [
        "a rule is lost",
        "a verdict is changed",
        "every copy of a rule is changed",
        "others go nowhere",
        "packets of both kinds go elsewhere",
    ],
)
def test_a_fault_is_found_in_any_part(change: str) -> None:
    output = hitables.compile(text("j,ACCEPT j,DROP"))
    lines = edited(output.text.splitlines(keepends=True), change)
    lines = [line if line.endswith("\n") else f"{line}\n" for line in lines]
    after = read("".join(lines))
    answer = exact.check(output.before, after, Question())
    assert isinstance(answer, Difference), change


def test_the_order_of_the_list_counts_for_packets_of_both_kinds() -> None:
    """Of the two verdicts, that of the rule which the list reads first."""
    output = hitables.compile(text("j,ACCEPT j,DROP"))
    other = output.text.replace("ACCEPT", "x").replace("DROP", "ACCEPT").replace("x", "DROP")
    swapped = read(text("j,DROP j,ACCEPT"))
    heads = {
        ":INPUT DROP": ":INPUT ACCEPT",
        ":FORWARD DROP": ":FORWARD ACCEPT",
        ":OUTPUT DROP": ":OUTPUT ACCEPT",
    }
    for wrong, right in heads.items():
        other = other.replace(wrong, right)
    other = other.replace("-A logdrop -j ACCEPT", "-A logdrop -j DROP")
    assert isinstance(exact.check(swapped, read(other), Question()), Equal)
    first, second = (line for line in text("j,ACCEPT j,DROP").splitlines(keepends=True) if HOSTS[3] in line)
    moved = read(text("j,ACCEPT j,DROP").replace(first + second, second + first))
    answer = exact.check(moved, output.program, Question())
    assert isinstance(answer, Difference) and answer.packet is not None
