"""A rule set that is applied is the one in the file, and can be taken back whatever happens."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from support.firewall import BACKENDS, Firewall, plain
from support.rule_texts import make_text
from support.small_namespace import Namespace

import hitables
from hitables.apply.translation import Ends, may_lead_to
from hitables.ir.fields import TCP, Family
from hitables.ir.packet import Backend
from hitables.kernel.conntrack import Flow, Tuple, make_flows
from hitables.kernel.netlink import Netfilter
from hitables.verify.question import Equal

pytestmark = pytest.mark.needs_kernel
TOOLS = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}


@pytest.fixture(params=list(Backend), ids=lambda backend: backend.value)
def firewall(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Firewall]:
    with Namespace() as namespace:
        yield Firewall(namespace, tmp_path, request.param)


def office(count: int = 30, port: int = 1000, policy: str = "DROP", more: str = "") -> str:
    rules = "".join(
        f"-A INPUT -s 10.{n}.0.0/16 -p udp -m udp --dport {port + n} -j ACCEPT\n" for n in range(count)
    )
    return (
        f"*filter\n:INPUT {policy} [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:audit - [0:0]\n{more}"
        f"{rules}-A INPUT -s 127.0.0.0/8 -p udp -m udp --dport 53 -j audit\n-A audit -j ACCEPT\nCOMMIT\n"
    )


def random_rules(seed: int, family: Family) -> str:
    """Rules that the tools print as they are."""
    lines = make_text(random.Random(seed), family, rules=35, memory=0.1).splitlines(keepends=True)
    return "".join(line for line in lines if not re.search(r" -m mac| -m ttl|! --[sd]port 0:65535", line))


# Laws.


@BACKENDS
@pytest.mark.parametrize("seed", range(2))
def test_both_families_are_equal_to_the_files_and_a_rollback_restores_what_was_there(
    backend: Backend, seed: int, tmp_path: Path
) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        before = {family: random_rules(seed, family) for family in Family}
        after = {family: random_rules(seed + 100, family) for family in Family}
        files = []
        for family in Family:
            firewall.load(before[family], family)
            files.append(firewall.file(after[family], f"{family.name}.rules"))
        found = {family: plain(firewall.save(family)) for family in Family}
        done = firewall.apply(*files)
        if backend is Backend.NFT:
            assert "all tables changed in one commit" in done.stderr
        for family in Family:
            text = after[family]
            compared = hitables.check(text, firewall.save(family), backend=backend, family=family)
            assert all(isinstance(case.answer, Equal) for case in compared.cases)
        firewall.hitables("rollback")
        assert {family: plain(firewall.save(family)) for family in Family} == found


def test_applying_what_is_loaded_does_nothing(firewall: Firewall) -> None:
    path = firewall.file(office())
    firewall.apply(path)
    before = firewall.save()
    assert "nothing to do" in firewall.apply(path).stdout
    assert firewall.save() == before
    assert len(firewall.hitables("history").stdout.splitlines()) == 2


def test_a_dry_run_says_what_would_change_and_changes_nothing(firewall: Firewall) -> None:
    firewall.apply(firewall.file(office()))
    before = firewall.save()
    done = firewall.hitables("apply", firewall.file(office(port=2000)), "--dry-run", status=1)
    assert "was ACCEPT by lines 6, 7, 8 and 27 more, now DROP by policy" in done.stdout
    assert firewall.save() == before
    assert "*    2" in firewall.hitables("history").stdout


def test_counters_go_on_when_rules_are_compiled_changed_and_rolled_back(firewall: Firewall) -> None:
    firewall.load(office())
    firewall.send(7, 53)
    path = firewall.file(office())
    firewall.apply(path)
    assert firewall.counted("-j audit") == firewall.counted("-A audit") == 7
    firewall.send(5, 53)
    firewall.apply(firewall.file(office(port=3000)))
    assert firewall.counted("-j audit") == 12
    firewall.hitables("rollback")
    firewall.send(1, 53)
    assert firewall.counted("-j audit") == firewall.counted("-A audit") == 13


@pytest.mark.parametrize("family", list(Family))
def test_counters_of_trees_go_on_in_both_families(firewall: Firewall, family: Family) -> None:
    """iptables-nft 1.8.9 itself loads those of IPv6 as zeros."""
    source, other = ("::1/128", "fd00:{}::/32") if family is Family.IPV6 else ("127.0.0.1/32", "10.{}.0.0/16")
    rules = "".join(
        f"-A INPUT -s {other.format(n)} -p udp -m udp --dport {n} -j DROP\n" for n in range(1, 31)
    )
    rules += f"-A INPUT -s {source} -p udp -m udp --dport 53 -j ACCEPT\n"
    text = f"*filter\n:INPUT ACCEPT [0:0]\n{rules}COMMIT\n"
    firewall.load(text, family)
    firewall.send(7, 53, family)
    firewall.apply(firewall.file(text))
    assert firewall.counted("--dport 53 ", family) == 7
    firewall.send(2, 53, family)
    firewall.apply(firewall.file(text.replace("--dport 9 ", "--dport 99 ")))
    firewall.send(1, 53, family)
    assert firewall.counted("--dport 53 ", family) == 10
    firewall.apply(firewall.file(text), "--no-compile")
    assert firewall.counted("--dport 53 ", family) == 10


def test_the_counter_of_a_policy_goes_on_where_rules_return(firewall: Firewall) -> None:
    """Trees of groups print RETURN as the policy, whose counter in the kernel then lacks these packets."""
    rng = random.Random(1)
    rules = "".join(
        f"-A INPUT -{rng.choice('sd')} 10.{rng.randrange(200)}.0.0/16 -p udp -m udp --dport {n} "
        f"-j {rng.choice(['DROP', 'ACCEPT', 'RETURN'])}\n"
        for n in range(1000, 1060)
    )
    text = (
        f"*filter\n:INPUT ACCEPT [0:0]\n{rules}-A INPUT -s 127.0.0.1/32 -p udp --dport 53 -j RETURN\nCOMMIT\n"
    )
    firewall.load(text)
    firewall.send(7, 53)
    counted = _policy_in_kernel(firewall)
    assert counted >= firewall.counted("--dport 53 ") == 7
    firewall.apply(firewall.file(text))
    assert not firewall.counted("--dport 53 -j RETURN") and firewall.counted("--dport 53 -j ACCEPT") == 7
    assert _policy_in_kernel(firewall) == counted - 7 and _policy(firewall) == counted
    firewall.send(2, 53)
    sent = _policy(firewall) - counted
    assert sent >= 2
    firewall.apply(firewall.file(text.replace("--dport 1001 ", "--dport 99 ")))
    assert _policy(firewall) == counted + sent and firewall.counted("--dport 53 ") == 9
    firewall.apply(firewall.file(text), "--no-compile")
    assert _policy_in_kernel(firewall) == _policy(firewall) == counted + sent


def _policy_in_kernel(firewall: Firewall) -> int:
    (count,) = re.findall(r"^:INPUT ACCEPT \[(\d+):", firewall.save(counters=True), flags=re.MULTILINE)
    return int(count)


def _policy(firewall: Firewall) -> int:
    """What the policy of INPUT has counted, by the state of apply."""
    policies = json.loads(firewall.hitables("counters", "--format", "json").stdout)["policies"]
    (count,) = (each["packets"] for each in policies if each["chain"] == "INPUT")
    return int(count)


def test_a_change_in_nf_tables_is_one_commit_of_both_families(tmp_path: Path) -> None:
    """Between two commits of the whole apply, packets meet one rule set; there is one in which it changes."""
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        nat = "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -o eth{} -j MASQUERADE\nCOMMIT\n"
        old = [firewall.file(office(port=1000) + nat.format(1)), firewall.file(six(1000), "six.rules")]
        firewall.apply(*old)
        new = [firewall.file(office(port=2000) + nat.format(2)), firewall.file(six(2000), "six.rules")]
        process = namespace.call(watch_commits, tmp_path)
        firewall.apply(*new)
        namespace.run(["kill", str(process)])
        commits = (tmp_path / "commits").read_text().split("# new generation")
        visible = [part for part in commits if re.search(r"add rule ip6? \w+ (INPUT|POSTROUTING) ", part)]
        assert len(visible) == 1
        for words in ("ip filter INPUT", "ip nat POSTROUTING", "ip6 filter INPUT"):
            assert f"add rule {words}" in visible[0]


WORDS_LIKE_A_PROTOCOL = [
    '-m comment --comment "blocked -p foo" -j ACCEPT',
    '-j LOG --log-prefix "drop -p foo "',
]


@pytest.mark.parametrize("rule", WORDS_LIKE_A_PROTOCOL)
@pytest.mark.parametrize("family", list(Family))
def test_words_in_comments_and_prefixes_are_no_protocol_of_a_rule(
    tmp_path: Path, family: Family, rule: str
) -> None:
    """The rule is copied in the one commit, and goes on counting."""
    network = "fd00:{}::/32" if family is Family.IPV6 else "10.{}.0.0/16"
    text = f"*filter\n:INPUT ACCEPT [0:0]\n-A INPUT {rule}\n-A INPUT -s {network} -j DROP\nCOMMIT\n"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        firewall.load(text.format(1), family)
        firewall.send(7, 53, family)
        counted = firewall.counted(rule, family)
        assert counted >= 7
        done = firewall.apply(firewall.file(text.format(2)))
        assert "all tables changed in one commit" in done.stderr
        assert network.format(2) in firewall.save(family)
        assert firewall.counted(rule, family) == counted


def six(port: int) -> str:
    rules = "".join(
        f"-A INPUT -s fd00:{n}::/32 -p udp -m udp --dport {port + n} -j ACCEPT\n" for n in range(1, 31)
    )
    return f"*filter\n:INPUT DROP [0:0]\n{rules}COMMIT\n"


def watch_commits(folder: Path) -> int:
    """Start `nft monitor`, which prints each commit, and wait until it listens; its process."""
    with (folder / "commits").open("w") as out:
        process = subprocess.Popen(["nft", "monitor"], stdout=out, start_new_session=True)
    while (folder / "commits").stat().st_size == 0:
        subprocess.run(["nft", "add table ip probe; delete table ip probe"], check=True)
        time.sleep(0.05)
    return process.pid


def test_tables_that_did_not_exist_are_empty_after_a_rollback(firewall: Firewall) -> None:
    nat = "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -o eth1 -j MASQUERADE\nCOMMIT\n"
    firewall.apply(firewall.file(nat + office()))
    assert "MASQUERADE" in firewall.save()
    firewall.hitables("rollback")
    assert plain(firewall.save()) == ""


def test_tables_that_the_file_lacks_stay_as_they_are(firewall: Firewall) -> None:
    nat = "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -o eth1 -j MASQUERADE\nCOMMIT\n"
    firewall.load(nat)
    firewall.apply(firewall.file(office()))
    assert "MASQUERADE" in firewall.save()


def test_any_rule_set_of_the_history_can_be_loaded_again(firewall: Firewall) -> None:
    for port in (1000, 2000, 3000):
        firewall.apply(firewall.file(office(port=port)))
    firewall.hitables("rollback", 2)
    assert "--dport 1001" in firewall.save()
    assert "holds rule set 2" in firewall.hitables("status").stdout
    assert "there is no rule set 9" in firewall.hitables("rollback", 9, status=2).stderr


def test_trees_that_do_not_change_stay_with_their_counters(firewall: Firewall) -> None:
    rules = office(40)
    more = rules.replace(":audit -", ":web -\n:audit -").replace("COMMIT\n", "")
    more += "".join(f"-A web -s 10.{n}.0.0/16 -p tcp -m tcp --dport {n} -j ACCEPT\n" for n in range(1, 41))
    firewall.apply(firewall.file(more + "-A FORWARD -j web\nCOMMIT\n"))
    trees = re.findall(r"^-A INPUT .*-g (ht\d+)$", firewall.save(), re.MULTILINE)
    assert trees
    firewall.send(3, 53)
    firewall.apply(
        firewall.file(more.replace("--dport 20 -j", "--dport 99 -j") + "-A FORWARD -j web\nCOMMIT\n")
    )
    assert "--dport 99 " in firewall.save()
    assert re.findall(r"^-A INPUT .*-g (ht\d+)$", firewall.save(), re.MULTILINE) == trees
    assert firewall.counted("-j audit") == 3


# Refusals: before anything is loaded.


def test_missing_ipsets_are_named_with_their_lines(firewall: Firewall) -> None:
    path = firewall.file(office(more="-A INPUT -m set --match-set friends src -j ACCEPT\n"))
    error = firewall.apply(path, status=2).stderr
    assert f"{path}:6: ipset friends" in error
    assert plain(firewall.save()) == ""
    firewall.namespace.run(["ipset", "create", "friends", "hash:ip"])
    firewall.apply(path)


def test_a_rule_that_the_kernel_refuses_is_named_with_its_line(firewall: Firewall) -> None:
    path = firewall.file(office(more="-A INPUT -m nosuchmatch --foo 1 -j ACCEPT\n"))
    error = firewall.apply(path, status=2).stderr
    assert "the kernel refuses its rules; nothing is loaded" in error
    assert f"{path}:6: -A INPUT -m nosuchmatch --foo 1 -j ACCEPT" in error
    assert plain(firewall.save()) == ""


def test_mistakes_in_options_and_files_are_named_before_anything_is_read(firewall: Firewall) -> None:
    path = firewall.file(office())
    error = firewall.apply(path, "--must", "chain=INPUT src", status=2).stderr
    assert "--must: packet:1:13: a word is missing its =" in error
    error = firewall.apply(path, path, status=2).stderr
    assert f"{path} and {path} are not of two families: {path}:6:" in error
    firewall.state = path / "state"
    error = firewall.apply(path, status=2).stderr
    assert f"state directory {path}/state: Not a directory; nothing is changed" in error
    firewall.state = firewall.folder / "state"
    firewall.apply(path)
    (firewall.state / "state.json").write_text("{")
    error = firewall.hitables("status", status=2).stderr
    assert "state.json: damaged (" in error and "apply the rules again" in error


def test_the_family_of_a_file_can_be_given(firewall: Firewall) -> None:
    text = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p {} -j ACCEPT\nCOMMIT\n"
    one, two = firewall.file(text.format("ipv6-icmp"), "one"), firewall.file(text.format("icmp"), "two")
    told = firewall.apply(one, "--dry-run", status=1)
    assert (
        told.stdout.startswith("IPv4") and "it has -p ipv6-icmp: --family 6 reads it as IPv6" in told.stderr
    )
    told = firewall.apply(one, "--dry-run", "--family", 6, status=1)
    assert told.stdout.startswith("IPv6") and "warning" not in told.stderr
    assert "warning" not in firewall.apply(two, "--dry-run", status=1).stderr
    firewall.apply(one, two, "--family", 6)
    assert "-p ipv6-icmp" in firewall.save(Family.IPV6) and "-p icmp" in firewall.save()


def test_a_compiled_rule_set_is_no_source(firewall: Firewall) -> None:
    firewall.apply(firewall.file(office()))
    error = firewall.apply(firewall.file(firewall.save()), status=2).stderr
    assert "is compiled, and no source" in error
    assert "hitables history" in error


def test_rules_that_the_kernel_refuses_change_nothing(firewall: Firewall) -> None:
    firewall.apply(firewall.file(office()))
    before = firewall.save()
    path = firewall.file(
        office(more="-A INPUT -m rateest --rateest none --rateest-gt --rateest-pps 5 -j DROP\n")
    )
    assert "nothing is loaded" in firewall.apply(path, status=2).stderr
    assert firewall.save() == before


HITABLES = Path(sys.executable).parent / "hitables"
SSH = {"SSH_CONNECTION": "10.3.0.1 40000 127.0.0.1 22"}


def test_rules_that_would_end_this_session_are_refused_with_the_line_that_decides(firewall: Firewall) -> None:
    more = "-A INPUT -p tcp -m tcp --dport 22 -j DROP\n"
    path = firewall.file(office(more=more))
    error = firewall.apply(path, status=2, environment=SSH).stderr
    assert "the session (src=10.3.0.1 dst=127.0.0.1 proto=tcp dport=22" in error
    assert f"{path}:6: -A INPUT -p tcp -m tcp --dport 22 -j DROP" in error
    assert plain(firewall.save()) == ""
    warned = firewall.apply(path, "--force", environment=SSH).stderr
    assert "warning: would not pass" in warned


def test_a_link_local_session_comes_in_by_the_interface_of_its_zone(firewall: Firewall) -> None:
    for name in ("e0", "e1"):
        firewall.namespace.run(["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"])
        firewall.namespace.run(["ip", "link", "set", name, "up"])
        firewall.namespace.run(["ip", "address", "add", "fe80::2/64", "dev", name, "nodad"])
    ssh = {"SSH_CONNECTION": "fe80::1%e1 50000 fe80::2%e1 22"}
    text = (
        "*filter\n:INPUT DROP [0:0]\n-A INPUT -i {} -s fe80::/10 -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n"
    )
    firewall.apply(firewall.file(text.format("e1")), "--dry-run", status=1, environment=ssh)
    error = firewall.apply(firewall.file(text.format("e0")), "--dry-run", status=2, environment=ssh).stderr
    assert "dport=22 in=e1" in error


def test_the_session_of_who_called_sudo_is_known(firewall: Firewall) -> None:
    """sudo takes SSH_CONNECTION away; the shell above it still has it."""
    path = firewall.file(office(more="-A INPUT -p tcp -m tcp --dport 22 -j DROP\n"))
    apply = f"{HITABLES} apply {path} --backend {firewall.backend.value} --state {firewall.state} --dry-run"
    for user, status in (("SUDO_USER", 2), ("DOAS_USER", 2), ("USER", 1)):
        script = f"env -u SSH_CONNECTION {user}=joe {apply}; echo status $?"
        shell = ["env", "SSH_CONNECTION=10.3.0.1 40000 127.0.0.1 22", "sh", "-c", script]
        assert f"status {status}\n" in firewall.namespace.run(shell)


def test_rules_that_let_no_new_session_in_are_refused(firewall: Firewall) -> None:
    more = "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n"
    error = firewall.apply(firewall.file(office(more=more)), status=2, environment=SSH).stderr
    assert "a new connection (" in error
    assert "DROP by the policy of chain INPUT" in error
    assert "the session (" not in error
    allowed = more + "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n"
    firewall.apply(firewall.file(office(more=allowed)), environment=SSH)


MARKS_SSH = "-A PREROUTING -p tcp -m tcp --dport 22 -j MARK --set-xmark 0x1/0xffffffff\n"
NOT_TRACKED = "*raw\n-A PREROUTING -p tcp -m tcp --dport 22 -j CT --notrack\nCOMMIT\n"
TRACKED_ONLY = "-A INPUT -m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT\n"
FROM_CONNECTION = (
    "*mangle\n-A PREROUTING -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff\n"
    "-A PREROUTING -m conntrack --ctstate NEW -j CONNMARK --set-xmark 0x1/0xffffffff\n"
    "-A OUTPUT -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff\nCOMMIT\n"
)


@pytest.mark.parametrize(
    ("tables", "rule", "decides"),
    [
        (
            f"*mangle\n{MARKS_SSH}COMMIT\n",
            "-A INPUT -m mark --mark 0x1 -j DROP\n-A INPUT -j ACCEPT\n",
            "--mark 0x1 -j DROP",
        ),
        (
            f"*mangle\n{MARKS_SSH}COMMIT\n",
            "-A INPUT -m mark ! --mark 0x1 -j ACCEPT\n",
            "policy of chain INPUT",
        ),
        (NOT_TRACKED, TRACKED_ONLY, "policy of chain INPUT"),
        (
            FROM_CONNECTION,
            "-A INPUT -j ACCEPT\n-A OUTPUT -m mark --mark 0x1 -j DROP\n",
            "-A OUTPUT -m mark --mark 0x1",
        ),
    ],
    ids=["mark", "no mark", "not tracked", "mark of the connection"],
)
@pytest.mark.parametrize("where", ["file", "kernel"])
def test_what_other_tables_write_is_known_where_a_session_is_traced(
    firewall: Firewall, tables: str, rule: str, decides: str, where: str
) -> None:
    text = "*filter\n:INPUT DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n" + rule + "COMMIT\n"
    if where == "kernel":
        firewall.load(tables)
    path = firewall.file(tables + text if where == "file" else text)
    error = firewall.apply(path, status=2, environment=SSH).stderr
    assert decides in error and "these packets would not pass" in error
    must = "chain=INPUT src=10.3.0.1 dst=127.0.0.1 proto=tcp sport=9 dport=22"
    if "OUTPUT -m" not in rule:
        assert decides in firewall.apply(path, "--must", must, status=2).stderr
    assert "-A INPUT" not in firewall.save()


NEW_SSH = "-p tcp -m tcp --dport 22 -m conntrack --ctstate NEW"
SYN_IS_NOT_TRACKED = "*raw\n-A PREROUTING -p tcp -m tcp --dport 22 --syn -j CT --notrack\nCOMMIT\n"
ANSWERS_ARE_NOT_TRACKED = "*raw\n-A OUTPUT -p tcp -m tcp --sport 22 -j CT --notrack\nCOMMIT\n"


@pytest.mark.parametrize(
    "rule",
    [
        f"{NEW_SSH} -m recent --set --name SSH -j ACCEPT",
        f"{NEW_SSH} -m recent ! --rcheck --seconds 60 --hitcount 4 --name SSH -j ACCEPT",
        f"{NEW_SSH} -m recent ! --update --seconds 60 --name SSH -j ACCEPT",
        f"{NEW_SSH} -m connlimit --connlimit-upto 3 -j ACCEPT",
        f"{NEW_SSH} -m connlimit ! --connlimit-above 3 -j ACCEPT",
        f"{NEW_SSH} -m hashlimit --hashlimit-upto 3/min --hashlimit-name ssh -j ACCEPT",
        f"{NEW_SSH} -m hashlimit ! --hashlimit-above 3/min --hashlimit-name ssh -j ACCEPT",
        f"{NEW_SSH} -m limit --limit 3/min -j ACCEPT",
        f"{NEW_SSH} -m quota --quota 1000000 -j ACCEPT",
        f"{NEW_SSH} -m addrtype --dst-type LOCAL -j ACCEPT",
        f"{NEW_SSH} -m addrtype ! --dst-type MULTICAST,BROADCAST -j ACCEPT",
        f"{NEW_SSH} -m addrtype --src-type UNICAST --dst-type LOCAL -j ACCEPT",
        f"{NEW_SSH} -m pkttype --pkt-type unicast -j ACCEPT",
    ],
)
def test_a_first_connection_to_this_host_passes_what_asks_for_one(tmp_path: Path, rule: str) -> None:
    text = "*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        path = firewall.file(f"{text}-A INPUT {rule}\nCOMMIT\n")
        said = firewall.apply(path, "--dry-run", status=1, environment=SSH).stderr
        assert "only if" not in said
        path = firewall.file(f"{text}-A INPUT {rule.replace('ACCEPT', 'DROP')}\n-A INPUT -j ACCEPT\nCOMMIT\n")
        assert "a new connection (" in firewall.apply(path, "--dry-run", status=2, environment=SSH).stderr


@pytest.mark.parametrize(
    ("tables", "what"),
    [
        (
            f"{SYN_IS_NOT_TRACKED}*filter\n:INPUT DROP [0:0]\n"
            "-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n"
            "-A INPUT -p tcp -m tcp --dport 22 -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --mss 1460\n"
            f"-A INPUT {NEW_SSH} -j ACCEPT\n-A INPUT -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n",
            "",
        ),
        (
            f"{NOT_TRACKED}*filter\n:OUTPUT DROP [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n"
            "-A OUTPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\nCOMMIT\n",
            "the answers to a new connection",
        ),
        (
            f"{ANSWERS_ARE_NOT_TRACKED}*filter\n:INPUT DROP [0:0]\n"
            f"-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n-A INPUT {NEW_SSH} -j ACCEPT\nCOMMIT\n",
            "a new connection, once answered",
        ),
        ("*mangle\n-A PREROUTING -j CONNMARK --restore-mark --mask 010\nCOMMIT\n", ""),
    ],
    ids=["SYNPROXY", "requests are not tracked", "answers are not tracked", "an octal mask"],
)
def test_a_session_of_which_a_half_is_not_tracked(tmp_path: Path, tables: str, what: str) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        status = 2 if what else 1
        done = firewall.apply(firewall.file(tables), "--dry-run", status=status, environment=SSH)
        assert what in done.stderr and ("would not pass" in done.stderr) == bool(what)


TRANSLATED = (
    "*mangle\n-A PREROUTING -d 10.0.0.1 -p tcp -m tcp --dport 22 -j DROP\nCOMMIT\n"
    "*nat\n-A PREROUTING -d 192.0.2.5 -p tcp -m tcp --dport 22 -j DNAT --to-destination 10.0.0.1\nCOMMIT\n"
    "*filter\n:INPUT DROP [0:0]\n-A INPUT -d 10.0.0.1 -p tcp -m tcp --dport 22 -m conntrack --ctstate DNAT -j ACCEPT\n"
    "COMMIT\n"
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("", ""), ""),
        (("*nat\n", "*nat\n-A OUTPUT -j ACCEPT\n"), ""),
        (
            ("-A PREROUTING -d 192.0.2.5", "-A OUTPUT -d 192.0.2.5"),
            "ACCEPT by the policy of chain PREROUTING, table nat",
        ),
        (
            ("--to-destination 10.0.0.1", "--to-destination 10.0.0.2"),
            "DNAT --to-destination 10.0.0.2 (table nat)",
        ),
        (("--to-destination 10.0.0.1", "--to-destination :2222"), "DNAT --to-destination :2222 (table nat)"),
        (("-A PREROUTING -d 10.0.0.1", "-A PREROUTING -d 192.0.2.5"), "-d 192.0.2.5"),
        (
            ("-A INPUT -d 10.0.0.1", "-A INPUT -d 192.0.2.5"),
            "state=ESTABLISHED+DNAT): DROP by the policy of chain INPUT",
        ),
    ],
)
def test_a_session_through_nat_is_traced_as_it_was_sent_and_as_it_arrives(
    firewall: Firewall, change: tuple[str, str], message: str
) -> None:
    client, sent_to, server = (int(ip_address(each)) for each in ("10.3.0.1", "192.0.2.5", "10.0.0.1"))
    flow = Flow(Tuple(client, sent_to, TCP, 50000, 22), replied=True, dnat=server)
    assert firewall.namespace.call(make_flow, flow) == 0
    ssh = {"SSH_CONNECTION": "10.3.0.1 50000 10.0.0.1 22"}
    path = firewall.file(TRANSLATED.replace(*change))
    done = firewall.apply(path, "--dry-run", status=2 if message else 1, environment=ssh)
    assert message in done.stderr and ("would not pass" in done.stderr) == bool(message)


@pytest.mark.parametrize(
    ("dropped", "message"),
    [("10.9.9.9", ""), ("10.3.0.1", "-s 10.3.0.1")],
    ids=["the source that the server has", "the source that filter has"],
)
def test_a_session_of_which_only_the_source_is_translated_needs_no_rule_in_prerouting(
    firewall: Firewall, dropped: str, message: str
) -> None:
    client, server, seen = (int(ip_address(each)) for each in ("10.3.0.1", "10.0.0.1", "10.9.9.9"))
    flow = Flow(Tuple(client, server, TCP, 50000, 22), replied=True, snat=seen)
    assert firewall.namespace.call(make_flow, flow) == 0
    path = firewall.file(
        f"*filter\n:INPUT DROP [0:0]\n-A INPUT -s {dropped}/32 -j DROP\n"
        "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n"
        "*nat\n-A PREROUTING -p udp -j ACCEPT\n-A INPUT -s 10.3.0.1 -p tcp -j SNAT --to-source 10.9.9.9\nCOMMIT\n"
    )
    ssh = {"SSH_CONNECTION": "10.9.9.9 50000 10.0.0.1 22"}
    done = firewall.apply(path, "--dry-run", status=2 if message else 1, environment=ssh)
    assert message in done.stderr and ("would not pass" in done.stderr) == bool(message)


@pytest.mark.parametrize("state", ["DNAT", "SNAT"])
def test_a_session_to_an_own_address_through_nat_needs_no_rule_in_prerouting(
    firewall: Firewall, state: str
) -> None:
    """It comes in translated; nat is not asked again."""
    firewall.namespace.run(["ip", "address", "add", "10.0.0.1/32", "dev", "lo"])
    client, sent_to, server = (int(ip_address(each)) for each in ("10.0.0.1", "192.0.2.5", "10.0.0.1"))
    flow = Flow(Tuple(client, sent_to, TCP, 50000, 22), replied=True, dnat=server)
    assert firewall.namespace.call(make_flow, flow) == 0
    path = firewall.file(
        "*nat\n-A PREROUTING -p udp -j ACCEPT\n"
        "-A OUTPUT -d 192.0.2.5 -p tcp -m tcp --dport 22 -j DNAT --to-destination 10.0.0.1\nCOMMIT\n"
        "*filter\n:INPUT DROP [0:0]\n"
        f"-A INPUT -d 10.0.0.1 -i lo -p tcp -m tcp --dport 22 -m conntrack --ctstate {state} -j ACCEPT\nCOMMIT\n"
    )
    ssh = {"SSH_CONNECTION": "10.0.0.1 50000 10.0.0.1 22"}
    done = firewall.apply(path, "--dry-run", status=1 if state == "DNAT" else 2, environment=ssh)
    assert ("state=NEW+DNAT): DROP by the policy of chain INPUT" in done.stderr) == (state != "DNAT")
    assert "is not translated" not in done.stderr


def make_flow(flow: Flow) -> int:
    netfilter = Netfilter()
    try:
        return make_flows(netfilter, Family.IPV4, [flow])
    finally:
        netfilter.close()


@pytest.mark.parametrize(
    ("target", "may"),
    [
        ("REDIRECT --to-ports 22", True), ("REDIRECT --to-ports 20-30", True), ("REDIRECT --to-ports 23", False),
        ("REDIRECT", False), ("DNAT --to-destination 10.0.0.1:22", True), ("DNAT --to-destination 10.0.0.1", False),
        ("DNAT --to-destination :22", False), ("DNAT --to-destination 10.0.0.1-10.0.0.9:22 --random", True),
        ("DNAT --to-destination 10.0.0.9:22", False), ("NETMAP --to 10.0.0.0/24", True), ("ACCEPT", False),
    ],
)  # fmt: skip
def test_which_targets_may_translate_to_a_server(target: str, may: bool) -> None:
    text = f"*nat\n:PREROUTING ACCEPT\n-A PREROUTING -p tcp -j {target}\nCOMMIT\n"
    (rule,) = hitables.read(text).table("nat")["PREROUTING"].rules
    assert rule.target is not None
    sent, arrived = Ends("10.3.0.1", 5000, "192.0.2.5", 2222), Ends("10.3.0.1", 5000, "10.0.0.1", 22)
    assert may_lead_to(rule.target, sent, arrived) is may


def test_marks_that_nothing_sets_are_none(firewall: Firewall) -> None:
    text = "*filter\n:INPUT DROP [0:0]\n-A INPUT -m mark ! --mark 0x1 -j ACCEPT\nCOMMIT\n"
    assert "only if" not in firewall.apply(firewall.file(text), environment=SSH).stderr


def test_a_table_that_stays_decides_nothing_about_new_rules(firewall: Firewall) -> None:
    firewall.load("*mangle\n-A PREROUTING -s 10.0.0.0/8 -j DROP\nCOMMIT\n")
    firewall.apply(firewall.file("*filter\n-A INPUT -j ACCEPT\nCOMMIT\n"), environment=SSH)


def test_a_condition_on_which_the_session_depends_is_named(firewall: Firewall) -> None:
    rules = "-A INPUT -m time --timestart 10:00 --timestop 11:00 -j {}\n-A INPUT -j ACCEPT\n"
    text = "*filter\n:INPUT DROP [0:0]\n" + rules + "COMMIT\n"
    said = firewall.apply(firewall.file(text.format("DROP")), "--dry-run", status=1, environment=SSH).stderr
    assert "passes table filter, chain INPUT, only if this does not hold: time --timestart 10:00" in said
    said = firewall.apply(firewall.file(text.format("ACCEPT")), "--dry-run", status=1, environment=SSH).stderr
    assert "only if" not in said


def test_packets_that_must_pass_are_tried(firewall: Firewall) -> None:
    packet = "chain=INPUT in=lo src=10.{}.0.9 dst=127.0.0.1 proto=udp sport=9 dport=1005"
    path = firewall.file(office())
    assert "10.6.0.9" in firewall.apply(path, "--must", packet.format(6), status=2).stderr
    firewall.apply(path, "--must", packet.format(5))
    assert "10.6.0.9" in firewall.apply(path, "--must", packet.format(6), status=2).stderr  # loaded already
    for place, message in (
        ("chain=INPTU", "table filter has no chain INPTU; did you mean INPUT?"),
        ("table=filtr chain=INPUT", "there is no table filtr"),
        ("table=nat chain=FORWARD", "table nat has no chain FORWARD"),
    ):
        assert (
            message
            in firewall.apply(path, "--must", packet.format(5).replace("chain=INPUT", place), status=2).stderr
        )


def test_a_packet_of_a_family_that_is_not_applied_is_refused(firewall: Firewall) -> None:
    packet = "chain=INPUT src=2001:db8::1 dst=2001:db8::2 proto=tcp dport=22 sport=9"
    error = firewall.apply(firewall.file(office()), "--must", packet, status=2).stderr
    assert "no rules of that family are applied" in error


def test_an_answer_that_no_match_asks_for_is_told(firewall: Firewall) -> None:
    packet = "chain=INPUT in=lo src=10.5.0.9 dst=127.0.0.1 proto=udp sport=9 dport=1005 number={}=5"
    path = firewall.file(office(more="-A INPUT -m mark --mark 7 -j ACCEPT\n"))
    told = firewall.apply(path, "--must", packet.format("mrak")).stderr
    assert "no match of table filter asks for number=mrak (did you mean mark?)" in told
    assert "asks for" not in firewall.apply(path, "--must", packet.format("mark")).stderr


def test_the_members_of_ipsets_are_let_in(firewall: Firewall) -> None:
    """The trace asks the kernel whether the session's addresses and ports are in the sets."""
    firewall.namespace.run(["ipset", "create", "admins", "hash:net"])
    firewall.namespace.run(["ipset", "create", "doors", "hash:ip,port"])
    more = (
        "-A INPUT -m set --match-set admins src -m set --match-set doors dst,dst -j ACCEPT\n"
        "-A INPUT -m limit --limit 1/sec -j LOG\n"
    )
    path = firewall.file(office(more=more))
    error = firewall.apply(path, status=2, environment=SSH).stderr
    assert "DROP by the policy of chain INPUT" in error
    assert "assumed not to hold" not in error
    firewall.namespace.run(["ipset", "add", "admins", "10.3.0.0/24"])
    firewall.namespace.run(["ipset", "add", "doors", "127.0.0.1,tcp:2222"])
    firewall.apply(path, status=2, environment=SSH)
    firewall.namespace.run(["ipset", "add", "doors", "127.0.0.1,tcp:22"])
    firewall.apply(path, environment=SSH)


def test_a_limited_accept_lets_a_new_session_in(firewall: Firewall) -> None:
    more = "-A INPUT -p tcp -m tcp --dport 22 -m limit --limit 3/min -j ACCEPT\n"
    allowed = "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n"
    firewall.apply(firewall.file(office(more=allowed + more)), environment=SSH)


def test_rules_of_the_other_backend_are_named_and_not_mixed_by_a_rollback(tmp_path: Path) -> None:
    """Packets would pass the rules of both."""
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        firewall.apply(firewall.file(office()))
        firewall.backend = Backend.LEGACY
        warned = firewall.apply(firewall.file(office(port=2000))).stderr
        assert "warning: packets pass tables of nf_tables, too, which are not read: ip filter" in warned
        error = firewall.hitables("rollback", 2, status=2).stderr
        assert "rule set 2 was loaded by iptables-nft, and 4 by iptables-legacy" in error
        assert "--dport 2005 " in firewall.save()
