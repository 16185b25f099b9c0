"""Lists whose kinds are told apart: the chains that stand for them, and wrong ones that prove nothing."""

from __future__ import annotations

import functools
import random
import re

import pytest

import hitables
from hitables.ir.choices import Malformed
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.parse.iptables import read
from hitables.verify import bdd, exact
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


@functools.cache
def accepted_or_dropped(backend: str = "any") -> hitables.Output:
    """The hosts with two verdicts by turns, compiled once for all tests, each of which tells its lists apart."""
    return hitables.compile(text("j,ACCEPT j,DROP"), backend=backend)


def of_three_kinds(*targets: str) -> str:
    kinds = ("-s {}", "-d {}", "-p udp -m udp --dport {}", "-i ppp{}")[: len(targets)]
    rows = [
        f"{kind.format(host if at < 2 else 7 * n + 1)} -j {target}"
        for n, host in enumerate(HOSTS[: 240 // len(targets)])
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
    assert isinstance(answer, Equal) and answer.looked_at < len(HOSTS)
    host = HOSTS[50]
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
    output = accepted_or_dropped()
    lines = edited(output.text.splitlines(keepends=True), change)
    lines = [line if line.endswith("\n") else f"{line}\n" for line in lines]
    after = read("".join(lines))
    answer = exact.check(output.before, after, Question())
    assert isinstance(answer, Difference), change


def test_the_order_of_the_list_counts_for_packets_of_both_kinds() -> None:
    """Of the two verdicts, that of the rule which the list reads first."""
    output = accepted_or_dropped()
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


# ---- second programs that have chains where the law wants them, and do something else ----

ONE = [f"-s 10.0.0.{n} -j ACCEPT" for n in range(40)]
TWO = [f"-d 10.0.1.{n} -j DROP" for n in range(40)]
BY_TURNS = [rule for pair in zip(ONE, TWO, strict=True) for rule in pair]


def of_chains(**chains: list[str]) -> Program:
    """A program of these chains; INPUT enters *list* if there is one."""
    entered = ["-j list", "-j LOG", "-j ACCEPT"] if "list" in chains else chains.pop("INPUT")
    heads = "".join(f":{name} -\n" for name in chains)
    rows = [("INPUT", entered), *chains.items()]
    lines = "".join(f"-A {name} {rule}\n" for name, rules in rows for rule in rules)
    return read(f"*filter\n:INPUT ACCEPT\n{heads}{lines}COMMIT\n")


def differ(first: Program, second: Program) -> bool:
    """Whether both directions are found to differ, as they are by diagrams."""
    found = [
        engine.check(*pair, Question())
        for engine in (exact, bdd)
        for pair in ((first, second), (second, first))
    ]
    return all(isinstance(each, Difference) for each in found)


def test_one_chain_does_not_stand_for_two_parts() -> None:
    tests = [rule.rsplit(" ", 2)[0] for rule in ONE]
    told = of_chains(
        INPUT=[*(f"{test} -g tells" for test in tests), "-g tells"],
        tells=[*TWO, "-d 10.0.1.0 -g whole", "-g r1"],
        whole=BY_TURNS,
        r1=[],
    )
    asked = of_chains(
        INPUT=[
            *(each for test, rule in zip(tests, ONE, strict=True) for each in (f"{test} -j asks", rule)),
            "-g asks",
        ],
        asks=[*TWO, "-d 10.0.1.0 -g whole"],
        whole=BY_TURNS,
    )
    assert differ(of_chains(INPUT=BY_TURNS), told) and differ(of_chains(INPUT=BY_TURNS), asked)


@pytest.mark.parametrize("leaves", ["-j RETURN", "-g user"])
def test_a_list_whose_rules_leave_it_is_not_asked(leaves: str) -> None:
    """From there packets would come back to the rule that asks."""
    two = [rule.replace("-j DROP", leaves) for rule in TWO]
    one = [rule.replace("ACCEPT", "DROP") for rule in ONE]
    by_turns = [rule for pair in zip(two, one, strict=True) for rule in pair]
    tests = [rule.rsplit(" ", 2)[0] for rule in one]
    asking = [each for test, rule in zip(tests, one, strict=True) for each in (f"{test} -j asks", rule)]
    user = ["-p udp -j LOG"]
    second = of_chains(
        list=[*asking, "-g r2"],
        asks=[f"{rule.rsplit(' ', 2)[0]} -g whole" for rule in two],
        whole=by_turns,
        r2=two,
        user=user,
    )
    assert differ(of_chains(list=by_turns, user=user), second)


@pytest.mark.parametrize("leaves", ["-j RETURN", "-g user"])
def test_a_rule_that_leaves_its_chain_is_in_no_tree_that_is_called(leaves: str) -> None:
    sources = [f"-s 10.0.0.{n} -j {'DROP' if n != 20 else leaves[3:]}" for n in range(40)]
    sources[20] = f"-s 10.0.0.20 {leaves}"
    ports = [f"-p udp -m udp --dport {n} -j ACCEPT" for n in range(1, 41)]
    rest = [*ports, "-j DROP"]
    user = ["-p icmp -j LOG"]
    called = of_chains(
        list=["-j c1", "-j c2", "-j c3", "-j c4", *rest],
        c1=sources[:20],
        c2=sources[20:21],
        c3=sources[21:],
        c4=TWO,
        user=user,
    )
    assert differ(of_chains(list=[*sources, *TWO, *rest], user=user), called)


def test_what_is_told_apart_may_drop_broken_headers_only_as_the_second_program() -> None:
    ports = [f"-p udp -m udp --sport {n} -j DROP" for n in range(1, 41)]
    by_turns = of_chains(INPUT=[rule for pair in zip(ONE, ports, strict=True) for rule in pair])
    told = of_chains(
        INPUT=[*(f"{rule.rsplit(' ', 2)[0]} -g tells" for rule in ports), "-g r2"],
        tells=[*(f"{rule.rsplit(' ', 2)[0]} -g whole" for rule in ONE), "-g r1"],
        whole=[rule for pair in zip(ONE, ports, strict=True) for rule in pair],
        r1=ports,
        r2=ONE,
    )
    for engine in (exact, bdd):
        assert isinstance(engine.check(by_turns, told, Question()), Equal)
        assert isinstance(engine.check(told, by_turns, Question()), Difference)
        assert isinstance(engine.check(by_turns, told, Question(malformed=Malformed.EXACT)), Difference)


def test_many_parts_are_proved_with_the_printed_one_first() -> None:
    kinds = ("-s {}", "-p udp -m udp --dport {}", "-i ppp{}", "-d {}")
    values = (HOSTS, range(1, 201), range(200), HOSTS)
    rules = [kind.format(value) for kind, of_kind in zip(kinds, values, strict=True) for value in of_kind]
    lines = "".join(f"-A FORWARD {rule} -j {'DROP' if n % 3 else 'ACCEPT'}\n" for n, rule in enumerate(rules))
    output = hitables.compile(f"*filter\n:FORWARD ACCEPT\n{lines}COMMIT\n", backend="nft")
    first, second = output.before.table("filter"), output.program.table("filter")
    assert with_called_parts(first, second, Family.IPV4, exact=True) is not None
    for pair in ((output.before, output.program), (output.program, output.before)):
        answer = exact.check(*pair, Question())
        assert isinstance(answer, Equal) and answer.looked_at < 30 * len(rules)


def in_halves(output: hitables.Output) -> tuple[list[str], int]:
    """The lines of a compiled list, and where the chain is that calls a tree and goes to the second half."""
    lines = output.text.splitlines(keepends=True)
    calls = re.compile(r"-A (ht\d+) -j ht\d+\n-A \1 -g ht\d+\n$")
    (at,) = [
        at
        for at in range(len(lines) - 1)
        if calls.match(lines[at] + lines[at + 1])
        and sum(line.startswith(f"-A {lines[at].split()[1]} ") for line in lines) == 2
    ]
    return lines, at


@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_packets_of_two_kinds_read_half_of_the_list(backend: str) -> None:
    output = accepted_or_dropped(backend)
    lines, at = in_halves(output)
    rest = lines[at + 1].split()[-1]
    own = [line for line in lines if line.startswith(f"-A {rest} ")]
    assert len(own) == len(HOSTS) and not output.by_regions
    assert (
        f"-A {rest} -s {HOSTS[100]}/32 -j ACCEPT\n" in own or f"-A {rest} -s {HOSTS[100]} -j ACCEPT\n" in own
    )
    answer = exact.check(output.before, output.program, Question())
    assert isinstance(answer, Equal) and answer.looked_at < 30 * len(HOSTS)


@pytest.mark.parametrize("change", ["no call", "no rest", "the whole list", "a rule less", "another order"])
def test_a_half_that_is_wrong_proves_nothing(change: str) -> None:
    output = accepted_or_dropped("nft")
    lines, at = in_halves(output)
    later, early, rest = lines[at].split()[1], lines[at].split()[-1], lines[at + 1].split()[-1]
    if change == "no call":  # a source of the first half is not looked at
        del lines[at]
    elif change == "no rest":
        del lines[at + 1]
    elif change == "another order":  # a destination of the first half goes where only the second is read
        whole = next(line.split()[1] for line in lines if re.match(rf"-A ht\d+ -g {rest}$", line))
        tells = [number for number, line in enumerate(lines) if line.endswith(f"-g {whole}\n")]
        lines[tells[3]] = lines[tells[3]].replace(f"-g {whole}\n", f"-g {later}\n")
    elif change == "the whole list":  # right, but longer
        whole = next(line.split()[1] for line in lines if re.match(rf"-A ht\d+ -g {rest}$", line))
        lines = [line.replace(f"-g {later}\n", f"-g {whole}\n") for line in lines]
    else:
        reached, waiting = {early}, [early]
        while waiting:
            name = waiting.pop()
            more = {line.split()[-1] for line in lines if line.startswith(f"-A {name} ") and " -g " in line}
            waiting += more - reached
            reached |= more
        own = [
            number for number, line in enumerate(lines) if line.split()[1:2] and line.split()[1] in reached
        ]
        verdicts = [number for number in own if lines[number].endswith("-j ACCEPT\n")]
        del lines[verdicts[5]]
    after = read("".join(lines))
    question = Question(backends=(Backend.NFT,))
    answers = [check(output.before, after, question) for check in (exact.check, bdd.check)]
    right = change == "the whole list"
    assert [isinstance(answer, Equal) for answer in answers] == [right, right], answers
