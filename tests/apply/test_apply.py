"""A rule set that is applied is the one in the file, and can be taken back whatever happens."""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from pathlib import Path

import pytest
from support.command_clients import folder
from support.firewall import BACKENDS, Firewall, office, plain
from support.rule_texts import make_text
from support.small_namespace import Namespace

import hitables
from hitables.apply.request import ApplyRequest, Reporter
from hitables.apply.run import apply
from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import namespace as namespaces
from hitables.kernel.prerequisites import furnish
from hitables.verify.question import Equal

pytestmark = pytest.mark.needs_kernel
TOOLS = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}


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
    firewall.apply(firewall.file(office(30)))
    before = firewall.save()
    done = firewall.hitables("apply", firewall.file(office(30, port=2000)), "--dry-run", status=1)
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


def test_missing_accounting_objects_are_named_with_their_lines(firewall: Firewall) -> None:
    """The trial creates them, so a load would fail: "No chain/target/match by that name"."""
    rules = "".join(
        f"-A INPUT -p {name} -m nfacct --nfacct-name {name} -j ACCEPT\n" for name in ("tcp", "udp")
    )
    path = firewall.file(office(more=rules))
    furnish(firewall.namespace, "-m nfacct --nfacct-name udp")
    error = firewall.apply(path, status=2).stderr
    assert f"{path}:6: nfacct tcp\nCreate them first: nfacct add tcp" in error
    assert plain(firewall.save()) == ""
    furnish(firewall.namespace, "-m nfacct --nfacct-name tcp")
    firewall.apply(path)


def test_a_rule_that_the_kernel_refuses_is_named_with_its_line(firewall: Firewall) -> None:
    path = firewall.file(office(more="-A INPUT -m nosuchmatch --foo 1 -j ACCEPT\n"))
    error = firewall.apply(path, status=2).stderr
    assert "the kernel refuses its rules; nothing is loaded" in error
    assert f"{path}:6: -A INPUT -m nosuchmatch --foo 1 -j ACCEPT" in error
    assert plain(firewall.save()) == ""


def test_a_rule_that_the_kernel_refuses_at_the_commit_is_named_with_its_line(firewall: Firewall) -> None:
    """iptables-legacy names the line of COMMIT alone."""
    path = firewall.file(office(more="-A OUTPUT -m cgroup --path /nosuch -j DROP\n-A OUTPUT -j ACCEPT\n"))
    error = firewall.apply(path, status=2).stderr
    assert "the kernel refuses its rules; nothing is loaded" in error
    assert error.endswith(f"\n  {path}:6: -A OUTPUT -m cgroup --path /nosuch -j DROP\n")
    assert plain(firewall.save()) == ""


def error_without_a_helper(path: str, folder: str, backend: Backend) -> str:
    """The error of an apply whose scratch namespace ends before the rules are tried in it."""

    def ended(self: namespaces.Namespace, *arguments: object) -> str:
        raise LiveError("the helper in the scratch namespace has died")

    request = ApplyRequest({Family.IPV4: (path, Path(path).read_text())}, folder, backend, confirm=600)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(LiveError) as raised:
        patch.setattr(namespaces.Namespace, "run", ended)
        apply(request, Reporter())
    return str(raised.value)


def test_a_trial_that_cannot_be_made_is_no_refusal_of_the_rules(firewall: Firewall) -> None:
    path, state = str(firewall.file(office())), str(firewall.state)
    error = firewall.namespace.call(error_without_a_helper, path, state, firewall.backend)
    assert error == "the helper in the scratch namespace has died"
    assert plain(firewall.save()) == ""


def test_mistakes_in_options_and_files_are_named_before_anything_is_read(firewall: Firewall) -> None:
    path = firewall.file(office())
    error = firewall.apply(path, "--must", "chain=INPUT src", status=2).stderr
    assert "--must: packet:1:13: a word is missing its =" in error
    error = firewall.apply(path, path, status=2).stderr
    assert f"both files are of IPv4\n{path} cannot be read as IPv6:\n{path}:6:" in error
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
    error = firewall.apply(one, "--dry-run", status=2).stderr
    assert "it has -p ipv6-icmp; give --family 4 or --family 6" in error
    told = firewall.apply(one, "--dry-run", "--family", 6, status=1)
    assert told.stdout.startswith("IPv6") and "warning" not in told.stderr
    assert firewall.apply(one, "--dry-run", "--family", 4, status=1).stdout.startswith("IPv4")
    assert "warning" not in firewall.apply(two, "--dry-run", status=1).stderr
    firewall.apply(one, two)  # in either order, and without --family
    assert "-p ipv6-icmp" in firewall.save(Family.IPV6) and "-p icmp" in firewall.save()


def test_a_file_that_gives_a_table_again_is_refused_before_anything_is_loaded(firewall: Firewall) -> None:
    """iptables-restore, and so the kernel, would have the last one alone."""
    one = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p {} -j ACCEPT\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n"
    twice = firewall.file(one.format("udp") + "*nat\nCOMMIT\n" + one.format("tcp"), "twice")
    plainly = firewall.file(one.format("icmp"), "plainly")
    lost = f"{twice}, line 8: *filter comes again, so iptables-restore drops that of line 1, with 2 rules\n"
    for files in ((twice,), (plainly, twice), (twice, "--no-compile")):
        error = firewall.apply(*files, status=2).stderr
        assert f"hitables: {lost}Nothing is changed; join the two, or, if one is of IPv4" in error
    assert plain(firewall.save()) == plain(firewall.save(Family.IPV6)) == ""
    firewall.apply(firewall.file("*filter\nCOMMIT\n" + one.format("tcp")))  # nothing is lost


def test_a_text_of_both_families_is_refused_with_the_advice_to_split_it(firewall: Firewall) -> None:
    head, table = "# Generated by {}tables-save v1.8.9\n", "*filter\n-A INPUT -p tcp -j ACCEPT\nCOMMIT\n"
    path = firewall.file("".join(head.format(ip) + table for ip in ("ip", "ip6")))
    for words in ((), ("--family", 4), ("--family", 6)):
        error = firewall.apply(path, *words, status=2).stderr
        assert "split the text into a file for each family" in error and "give --family" not in error


def test_of_two_files_the_one_that_says_so_is_of_ipv4(firewall: Firewall) -> None:
    rule = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p {} -j ACCEPT\nCOMMIT\n"
    stated = firewall.file(f"# Generated by iptables-save v1.8.9\n{rule.format('udp')}", "stated")
    other = firewall.file(rule.format("tcp"), "other")
    error = firewall.apply(stated, stated, status=2).stderr
    assert f"both files are of IPv4\n{stated} has the first line of iptables-save" in error
    for files in ((other, stated), (stated, other)):
        firewall.apply(*files)
        assert "-p udp" in firewall.save() and "-p tcp" in firewall.save(Family.IPV6)
    first, second = firewall.file(rule.format("icmp"), "first"), firewall.file(rule.format("esp"), "second")
    firewall.apply(second, first)
    assert "-p icmp" in firewall.save() and "-p esp" in firewall.save(Family.IPV6)


def test_what_save_has_read_of_ipv6_is_loaded_as_ipv6(firewall: Firewall) -> None:
    """Also where no rule has an address; else the rules would take the place of those of IPv4."""
    text = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n"
    path = firewall.file(text, "office6.rules")
    error = firewall.apply(path, status=2).stderr
    assert "its name has a 6; give --family 4 or --family 6" in error
    firewall.apply(path, "--family", 6)
    words = [f"{folder()}/hitables", "save", "--family", "6", "--backend", firewall.backend.value]
    saved = firewall.namespace.run(words)
    assert saved.startswith("# Generated by ip6tables-save\n*filter")
    assert "nothing to load" in firewall.apply(firewall.file(saved, "saved")).stdout
    assert firewall.save() == ""


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
