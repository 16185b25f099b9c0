"""Rules that would cut off the session that applies them are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.firewall import Firewall, office, plain
from support.small_namespace import Namespace

from hitables.ir.packet import Backend

pytestmark = [pytest.mark.needs_kernel, pytest.mark.either_backend]
SSH = {"SSH_CONNECTION": "10.3.0.1 40000 127.0.0.1 22"}
ONE = pytest.mark.parametrize("firewall", [Backend.NFT], ids=["nft"], indirect=True)


def test_rules_that_would_end_this_session_are_refused_with_the_line_that_decides(firewall: Firewall) -> None:
    more = "-A INPUT -p tcp -m tcp --dport 22 -j DROP\n"
    path = firewall.file(office(more=more))
    error = firewall.apply(path, status=2, environment=SSH).stderr
    assert "the session (src=10.3.0.1 dst=127.0.0.1 proto=tcp dport=22" in error
    assert f"{path}:6: -A INPUT -p tcp -m tcp --dport 22 -j DROP" in error
    assert plain(firewall.save()) == ""
    warned = firewall.apply(path, "--force", environment=SSH).stderr
    assert "warning: would not pass" in warned


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


def test_every_packet_of_table_raw_is_invalid_where_a_session_is_traced(firewall: Firewall) -> None:
    raw = "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m conntrack --ctstate {} -j DROP\nCOMMIT\n"
    error = firewall.apply(firewall.file(raw.format("INVALID")), status=2, environment=SSH).stderr
    assert "these packets would not pass" in error and "--ctstate INVALID -j DROP" in error
    firewall.apply(firewall.file(raw.format("NEW,ESTABLISHED")), environment=SSH)


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
        f"{NEW_SSH} -s 0.0.0.1/0.0.0.3 -j ACCEPT",
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


def test_marks_that_nothing_sets_are_none(firewall: Firewall) -> None:
    text = "*filter\n:INPUT DROP [0:0]\n-A INPUT -m mark ! --mark 0x1 -j ACCEPT\nCOMMIT\n"
    assert "only if" not in firewall.apply(firewall.file(text), environment=SSH).stderr


@ONE
def test_rules_of_the_other_family_cannot_end_a_session(firewall: Firewall) -> None:
    six = firewall.file("*filter\n:INPUT DROP [0:0]\n-A INPUT -s 2001:db8::/32 -j ACCEPT\nCOMMIT\n")
    assert "session" not in firewall.apply(six, "--dry-run", status=1, environment=SSH).stderr


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


SETS = (
    "create bans hash:ip counters", "create guests hash:ip", "add guests 10.3.0.1", "create seen hash:ip counters",
    "add seen 10.3.0.1 packets 10", "create nets hash:net", "add nets 10.0.0.0/8", "create doors hash:ip,port",
    "add doors 10.3.0.1,tcp:22",
)  # fmt: skip
UNSURE = {
    "--match-set bans src": "-A INPUT -j SET --add-set bans src\n-A INPUT -m set --match-set bans src -j DROP",
    "--match-set guests src": "-A INPUT -j SET --del-set guests src\n"
    "-A INPUT -m set ! --match-set guests src -j DROP",
    "--packets-lt 5": "-A INPUT -m set --match-set seen src --packets-lt 5 -j DROP",
    "--return-nomatch": "-A INPUT -m set --match-set nets src --return-nomatch -j DROP",
    "statistic": "-A INPUT -m statistic --mode nth --every 1 --packet 0 -j DROP",
    "bpf": '-A INPUT -m bpf --bytecode "1,6 0 0 65535" -j DROP',
    "quota": "-A INPUT -m quota ! --quota 0x10 -j DROP",
    "recent .*--rcheck": "-A INPUT -m recent --set --name r\n-A INPUT -m recent --rcheck --name r -j DROP",
    "mac --mac-source": "-A INPUT -m mac --mac-source 02:00:00:00:00:09 -j DROP",
}


@ONE
def test_what_nobody_can_tell_of_a_packet_is_named(firewall: Firewall) -> None:
    """Each of these rules may drop the session: because of others before it, by chance, by a memory."""
    for command in SETS:
        firewall.namespace.run(["ipset", *command.split()])
    for words, rules in UNSURE.items():
        path = firewall.file(f"*filter\n:INPUT DROP [0:0]\n{rules}\n-A INPUT -j ACCEPT\nCOMMIT\n")
        said = firewall.apply(path, "--dry-run", status=1, environment=SSH).stderr
        assert re.search(f"chain INPUT, only if this (does not hold|holds): .*{words}", said), (words, said)
    sure = "-A INPUT -m recent --set --name r\n-A INPUT -m recent --update --hitcount 4 --name r -j DROP\n"
    sure += "-A INPUT -m set --match-set doors src -j DROP\n"  # fewer directions than an element has
    path = firewall.file(f"*filter\n:INPUT DROP [0:0]\n{sure}-A INPUT -j ACCEPT\nCOMMIT\n")
    assert "only if" not in firewall.apply(path, "--dry-run", status=1, environment=SSH).stderr
    first = "-A INPUT -p tcp -m connlimit --connlimit-above 0 --connlimit-mask 32 --connlimit-saddr -j DROP"
    path = firewall.file(f"*filter\n:INPUT DROP [0:0]\n{first}\n-A INPUT -j ACCEPT\nCOMMIT\n")
    assert first in firewall.apply(path, "--dry-run", status=2, environment=SSH).stderr


WRITES = "-A INPUT -p tcp -m tcp --dport 22 -j SET --add-set bans src"
ANSWERS_WRITE = "-A OUTPUT -p tcp -m tcp --sport 22 -j SET --del-set guests dst"


@ONE
@pytest.mark.parametrize(
    ("rules", "named"),
    [
        (
            f"-A INPUT -m set --match-set bans src -j DROP\n{WRITES}\n-A INPUT -j ACCEPT",
            "does not hold: set --match-set bans src",
        ),
        (
            f"-A INPUT -m set --match-set guests src -j ACCEPT\n{ANSWERS_WRITE}",
            "holds: set --match-set guests src",
        ),
        (
            "-A INPUT -m recent --name r --rcheck -j DROP\n-A INPUT -m recent --name r --set -j ACCEPT",
            "does not hold: recent .*--rcheck",
        ),
        (f"-A INPUT -m set --match-set guests src -j ACCEPT\n{WRITES}", ""),
        (
            "-A INPUT -m recent --name r --update --seconds 60 --hitcount 9 -j DROP\n"
            "-A INPUT -m recent --name r --set -j ACCEPT",
            "",
        ),
    ],
    ids=["added", "removed", "a list of addresses", "of no matter", "counted"],
)
def test_what_packets_of_the_session_write_is_known_to_those_behind_them(
    firewall: Firewall, rules: str, named: str
) -> None:
    for command in SETS:
        firewall.namespace.run(["ipset", *command.split()])
    path = firewall.file(f"*filter\n:INPUT DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n{rules}\nCOMMIT\n")
    said = firewall.apply(path, "--dry-run", status=1, environment=SSH).stderr
    for what in ("the session (", "a new connection (") if named else ():
        begin = re.escape(f"warning: once packets of the session have passed, {what}")
        assert re.search(f"{begin}.* chain INPUT, only if this {named}", said), said
    assert ("only if" in said) == bool(named)


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


LISTS = (
    "create allow hash:ip", "add allow 10.3.0.1", "create six hash:ip family inet6", "create none hash:ip",
    "create doors hash:ip,port", "create all list:set", "add all six", "add all doors", "add all none",
    "add all allow", "create few list:set", "add few six", "add few none", "create rings bitmap:ip,mac range 10.3.0.0/24",
    "create odd list:set", "add odd rings",
)  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "decides"),
    [
        ("-A INPUT -p tcp -m set --match-set all src -j ACCEPT", ""),
        ("-A INPUT -m set ! --match-set few src -j ACCEPT", ""),
        ("-A INPUT -m set --match-set all src -j DROP\n-A INPUT -j ACCEPT", "--match-set all src -j DROP"),
        ("-A INPUT -m set --match-set few src -j ACCEPT", "by the policy of chain INPUT, table filter\n"),
        ("-A INPUT -m set --match-set odd src -j ACCEPT", "by the policy of chain INPUT, table filter\n"),
    ],
    ids=["let in", "not a member", "shut out", "no member", "too few directions"],
)
@ONE
def test_the_members_of_sets_in_a_list_are_members(firewall: Firewall, rules: str, decides: str) -> None:
    for command in LISTS:
        firewall.namespace.run(["ipset", *command.split()])
    path = firewall.file(f"*filter\n:INPUT DROP [0:0]\n{rules}\nCOMMIT\n")
    status = 2 if decides else 1
    said = firewall.apply(path, "--dry-run", status=status, environment=SSH).stderr
    assert decides in said and "only if" not in said


@ONE
def test_a_rule_that_writes_into_a_list_or_its_member_may_change_what_it_has(firewall: Firewall) -> None:
    for command in LISTS:
        firewall.namespace.run(["ipset", *command.split()])
    for added, asked in (("none", "few"), ("few", "none")):
        rules = f"-A INPUT -j SET --add-set {added} src\n-A INPUT -m set --match-set {asked} src -j DROP\n"
        path = firewall.file(f"*filter\n:INPUT DROP [0:0]\n{rules}-A INPUT -j ACCEPT\nCOMMIT\n")
        said = firewall.apply(path, "--dry-run", status=1, environment=SSH).stderr
        assert f"only if this does not hold: set --match-set {asked} src" in said


def test_the_members_of_sets_of_interfaces_are_let_in(firewall: Firewall) -> None:
    for command in ("create ports hash:net,iface", "add ports 10.3.0.0/24,eth0"):
        firewall.namespace.run(["ipset", *command.split()])
    rules = "-A INPUT -m set --match-set ports src,src -j ACCEPT\n"
    rules += "-A OUTPUT -m set --match-set ports dst,dst -j ACCEPT\n"
    path = firewall.file(f"*filter\n:INPUT DROP [0:0]\n:OUTPUT DROP [0:0]\n{rules}COMMIT\n")
    came = "chain=INPUT src=10.3.0.1 dst=10.3.0.2 proto=tcp sport=9 dport=22"
    went = "chain=OUTPUT src=10.3.0.2 dst=10.3.0.1 proto=tcp sport=22 dport=9"
    let_in = firewall.apply(
        path, "--dry-run", "--must", f"{came} in=eth0", "--must", f"{went} out=eth0", status=1
    )
    assert "only if" not in let_in.stderr
    assert "assumed" not in firewall.apply(path, "--must", f"{came} in=eth1", status=2).stderr
    drops = "-A INPUT -m set --match-set ports src,src -j DROP\n"
    path = firewall.file(f"*filter\n:INPUT ACCEPT [0:0]\n{drops}COMMIT\n")
    unknown = firewall.apply(path, "--dry-run", "--must", came, status=1).stderr
    assert "only if this does not hold: set --match-set ports src,src" in unknown


@ONE
def test_a_refusal_names_what_was_taken_not_to_hold(firewall: Firewall) -> None:
    for command in LISTS:
        firewall.namespace.run(["ipset", *command.split()])
    for asked in ("set --match-set rings src,src", "set --match-set odd src,src", "statistic --mode random"):
        match = asked.replace("random", "random --probability 0.5")
        path = firewall.file(f"*filter\n:INPUT DROP [0:0]\n-A INPUT -m {match} -j ACCEPT\nCOMMIT\n")
        error = firewall.apply(path, status=2, environment=SSH).stderr
        assert f"DROP by the policy of chain INPUT, table filter; assumed not to hold: {asked}" in error


def test_a_limited_accept_lets_a_new_session_in(firewall: Firewall) -> None:
    more = "-A INPUT -p tcp -m tcp --dport 22 -m limit --limit 3/min -j ACCEPT\n"
    allowed = "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n"
    firewall.apply(firewall.file(office(more=allowed + more)), environment=SSH)
