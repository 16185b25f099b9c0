"""Rules of nat whose connections table filter lets nowhere pass."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.scale import examples

import hitables
from hitables.cli.main import main
from hitables.ir.fields import Family
from hitables.ir.foreign import hide
from hitables.verify import unforwarded as module
from hitables.verify.question import Question
from hitables.verify.unforwarded import unforwarded

ESTABLISHED = "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
WEB = "-A PREROUTING -i eth0 -p tcp --dport 8080 -j DNAT --to-destination 10.0.0.5:80"


def text_of(nat: list[str], filters: list[str]) -> str:
    """With a user chain in each table: nat1, own."""
    heads = ["*filter", ":INPUT DROP", ":FORWARD DROP", ":OUTPUT ACCEPT", ":own -"]
    return "\n".join(["*nat", ":nat1 -", *nat, "COMMIT", *heads, *filters, "COMMIT", ""])


def found(text: str, family: Family = Family.IPV4, question: Question | None = None) -> list[str]:
    program = hitables.read(text, family=family)
    return [
        f"{each.chain} {each.rule.target.key if each.rule.target else ''}"
        for each in unforwarded(program, question or Question(), lambda step: None)
    ]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [ESTABLISHED],
        ["-A FORWARD -d 10.0.0.5 -p tcp --dport 8080 -j ACCEPT"],
        ["-A FORWARD -d 10.0.0.6 -j ACCEPT", "-A FORWARD -p udp -j ACCEPT"],
        ["-A FORWARD -i eth1 -j ACCEPT"],
        ["-A FORWARD -m conntrack --ctstate SNAT -j ACCEPT"],
        ["-A FORWARD -d 10.0.0.0/8 -j REJECT", "-A FORWARD -j ACCEPT"],
        ["-A FORWARD -j own", "-A own -d 10.0.0.5 -p tcp --dport 80 -j RETURN"],
        ["-A INPUT -p tcp --dport 8080 -j ACCEPT"],
    ],
)
def test_a_rule_is_named_whose_connections_pass_nowhere(lines: list[str]) -> None:
    assert found(text_of([WEB], lines)) == ["PREROUTING DNAT --to-destination 10.0.0.5:80"]
    assert found(text_of([WEB], [*lines, "-A FORWARD -j DROP", "-A INPUT -j DROP"]))


@pytest.mark.parametrize(
    "lines",
    [
        ["-A FORWARD -d 10.0.0.5 -p tcp --dport 80 -j ACCEPT"],
        ["-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT"],
        ["-A FORWARD -i eth+ -m limit --limit 5/s -j ACCEPT"],
        ["-A FORWARD -m physdev --physdev-in port7 -j ACCEPT"],
        ["-A FORWARD -s 192.0.2.0/24 -j own", "-A own -p tcp -j ACCEPT"],
        ["-A FORWARD -m conntrack --ctorigdst 192.0.2.1 -j ACCEPT"],
        ["-A INPUT -p tcp --dport 80 -j ACCEPT"],  # the address may be one of this host
        ["-A FORWARD -j QUEUE"],
    ],
)
def test_nothing_is_said_if_some_connection_passes_or_may(lines: list[str]) -> None:
    assert not found(text_of([WEB], lines))


def test_packets_of_the_host_itself_meet_no_rule_of_prerouting() -> None:
    """Their connections have met OUTPUT, and the kernel asks table nat once."""
    own = "-A INPUT -i lo -j ACCEPT"
    anywhere = WEB.replace(" -i eth0", "")
    assert found(text_of([anywhere], [own]))
    assert not found(text_of([anywhere], [own, "-A FORWARD -d 10.0.0.5 -p tcp --dport 80 -j ACCEPT"]))
    assert not found(text_of([WEB.replace("eth0", "lo")], [])), "it never applies"
    assert found(text_of([WEB.replace("-i eth0", "! -i eth1")], [own]))


@pytest.mark.parametrize(
    ("nat", "rule", "is_named"),
    [
        ("-j DNAT --to-destination 10.0.0.5", "FORWARD", False),
        ("-d 192.0.2.1 -j DNAT --to-destination 10.0.0.5", "FORWARD", True),
        ("-p tcp -m multiport --dports 80,8080 -j DNAT --to-destination 10.0.0.5:80", "FORWARD", False),
        ("-p tcp --dport 8080 -j DNAT --to-destination 10.0.0.5:80", "FORWARD", True),
        ("-p tcp --dport 80 -j REDIRECT --to-ports 80", "INPUT", False),
        ("-p tcp --dport 8080 -j REDIRECT --to-ports 80", "INPUT", True),
    ],
)
def test_a_connection_that_the_target_does_not_change_has_no_state_of_dnat(
    nat: str, rule: str, is_named: bool
) -> None:
    lines = [f"-A {rule} -p tcp --dport 80 -m conntrack ! --ctstate DNAT -j ACCEPT"]
    assert bool(found(text_of([f"-A PREROUTING {nat}"], lines))) == is_named
    assert not found(text_of([f"-A PREROUTING {nat}"], [lines[0].replace("! ", "")]))


def test_only_rules_that_incoming_packets_meet_are_asked_for() -> None:
    to = "-j DNAT --to-destination 10.0.0.5"
    assert not found(text_of([f"-A OUTPUT -p tcp {to}", f"-A nat1 -p tcp {to}", "-A OUTPUT -j nat1"], []))
    called = text_of([f"-A nat1 -p tcp {to}", "-A OUTPUT -j nat1", "-A PREROUTING -j nat1"], [])
    assert found(called) == ["nat1 DNAT --to-destination 10.0.0.5"]
    assert not found(called, question=Question(tables=frozenset({"filter"})))
    assert not found(called, question=Question(chains=frozenset({"PREROUTING"})))
    assert found(called, question=Question(tables=frozenset({"nat"}), chains=frozenset({"nat1"})))


@pytest.mark.parametrize(
    ("rule", "chain", "passing", "not_passing"),
    [
        ("-p tcp --dport 3128 -j REDIRECT --to-ports 8080", "INPUT", "-p tcp --dport 8080", "-p tcp --dport 3128"),
        ("-p tcp --dport 3128 -j REDIRECT", "INPUT", "-p tcp --dport 3128", "-p tcp --dport 8080"),
        ("-d 192.0.2.1 -j DNAT --to-destination 10.0.0.5-10.0.0.9", "FORWARD", "-d 10.0.0.9", "-d 10.0.0.10"),
        ("-p udp --dport 99 -j DNAT --to-destination 10.0.0.5:70-90", "FORWARD", "-p udp --dport 90",
         "-p udp --dport 99"),
        ("-p udp --dport 70:90 -j DNAT --to-destination 10.0.0.5:70-90/70", "FORWARD", "-p udp --dport 80",
         "-p udp --dport 91"),
        ("-d 192.0.2.1 -p udp --dport 99 -j DNAT --to-destination :53", "FORWARD",
         "-d 192.0.2.1 -p udp --dport 53", "-d 192.0.2.2 -p udp --dport 53"),
        ("-p tcp -m multiport --dports 25,80 -j DNAT --to-destination 10.0.0.5", "FORWARD", "-p tcp --dport 25",
         "-p tcp --dport 26"),
        ("-s 198.51.100.0/24 -j DNAT --to-destination 10.0.0.5", "FORWARD", "-s 198.51.100.7", "-s 198.51.101.7"),
    ],
)  # fmt: skip
def test_packets_have_the_address_and_the_port_that_the_target_gives(
    rule: str, chain: str, passing: str, not_passing: str
) -> None:
    for tests, count in ((passing, 0), (not_passing, 1)):
        assert len(found(text_of([f"-A PREROUTING {rule}"], [f"-A {chain} {tests} -j ACCEPT"]))) == count


def test_what_is_redirected_does_not_pass_by_a_rule_of_forward() -> None:
    redirected = ["-A PREROUTING -p tcp --dport 3128 -j REDIRECT --to-ports 8080"]
    assert found(text_of(redirected, ["-A FORWARD -j ACCEPT"]))


def test_of_ipv6_too() -> None:
    rule = "-A PREROUTING -p tcp --dport 8080 -j DNAT --to-destination [2001:db8::5]:80"
    for port, count in (("80", 0), ("8080", 1)):
        lines = [f"-A FORWARD -d 2001:db8::5 -p tcp --dport {port} -j ACCEPT"]
        assert len(found(text_of([rule], lines), Family.IPV6)) == count


def test_a_rule_set_that_does_not_tell_is_not_asked() -> None:
    assert not found(f"*nat\n{WEB}\nCOMMIT\n")
    assert not found(f"*nat\n{WEB}\nCOMMIT\n*filter\n:INPUT DROP\nCOMMIT\n"), "FORWARD is not in the file"
    hidden = hide(hitables.read(text_of([WEB], ["-A FORWARD -j own"])), ("own",))
    assert not list(unforwarded(hidden, Question(), lambda step: None))


def test_of_more_regions_than_are_looked_at_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [f"-A FORWARD -d 10.0.0.5 -s 192.0.2.{n} -p tcp --dport {n} -j ACCEPT" for n in range(1, 70, 2)]
    assert found(text_of([WEB], rules))
    both = [WEB, WEB.replace("80", "81").replace(":81", ":1-99")]
    assert len(found(text_of(both, rules))) == 1
    monkeypatch.setattr(module, "MOST_REGIONS", 5)
    assert found(text_of(both, rules)) == []
    monkeypatch.setattr(module, "MOST_REGIONS", 2000)
    monkeypatch.setattr(module, "MOST_RULES", 1)
    assert len(found(text_of(both, rules))) == 1


SIDES = {"-s": ("192.0.2.1", "192.0.2.2"), "-i": ("eth0", "eth1"), "--dport": ("80", "81")}


def drawn(rng: random.Random, chain: str, target: str) -> str:
    tests = {option: rng.choice(values) for option, values in SIDES.items() if rng.random() < 0.4}
    if chain != "PREROUTING" and rng.random() < 0.6:
        tests["-d"] = f"10.0.0.{rng.randint(1, 2)}"
    words = " ".join(f"{option} {value}" for option, value in tests.items() if option != "--dport")
    port = f" --dport {tests['--dport']}" if "--dport" in tests else ""
    state = rng.choice(["", "", "NEW", "DNAT", "ESTABLISHED"]) if chain != "PREROUTING" else ""
    states = f" -m conntrack --ctstate {state}" if state else ""
    return f"-A {chain} {words} -p tcp{port}{states} -j {target}"


def test_a_rule_is_named_just_if_no_packet_passes_of_those_that_it_translates() -> None:
    named = 0
    for seed in range(examples(50)):
        rng = random.Random(seed)
        to = [
            f"DNAT --to-destination 10.0.0.{rng.randint(1, 2)}{rng.choice(['', ':80', ':81'])}"
            for _ in range(3)
        ]
        nat = [drawn(rng, "PREROUTING", each) for each in to]
        verdicts = ("ACCEPT", "ACCEPT", "DROP")
        filters = [
            drawn(rng, rng.choice(["FORWARD", "FORWARD", "INPUT"]), rng.choice(verdicts)) for _ in range(4)
        ]
        text = text_of(nat, filters)
        lines = {each.line for each in unforwarded(hitables.read(text), Question(), lambda step: None)}
        for line, rule, target in zip(itertools.count(3), nat, to, strict=False):
            assert (line in lines) == (not any(passes(text, rule, target))), (
                f"seed {seed}, line {line}:\n{text}"
            )
        named += len(lines)
    assert named > 2


def passes(text: str, rule: str, target: str) -> list[bool]:
    """Whether the first packets of connections pass that *rule* translates: one for each combination that rules test."""
    words = rule.split()
    given = {option: words[words.index(option) + 1] for option in SIDES if option in words}
    address, _, port = target.split()[-1].partition(":")
    values = [[given[option]] if option in given else [*both, other] for (option, both), other in
              zip(SIDES.items(), ("192.0.2.3", "eth2", "82"), strict=True)]  # fmt: skip
    if port:
        values[2] = [port]
    return [
        hitables.trace(
            text, f"chain={chain} in={into} src={source} dst={address} proto=tcp sport=9 dport={to} state=NEW+DNAT"
        ).verdict == "ACCEPT"
        for chain in ("FORWARD", "INPUT")
        for source, into, to in itertools.product(*values)
    ]  # fmt: skip


def test_lint_notes_it_and_its_status_is_0(tmp_path: Path) -> None:
    path = tmp_path / "web.rules"
    text = text_of([WEB], ["-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"])
    path.write_text(text.replace(":nat1 -\n", "").replace(":own -\n", ""))
    done = CliRunner().invoke(main, ["lint", str(path)])
    assert (
        "note: line 2 (table nat, chain PREROUTING) leads to where no new connection passes: neither chain FORWARD nor "
        "chain INPUT (table filter) lets one through (DNAT --to-destination 10.0.0.5:80)" in done.output
    )
    assert done.exit_code == 0
