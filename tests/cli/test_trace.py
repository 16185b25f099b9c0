"""`hitables trace`: what it knows of a packet that its words do not say, and what it says of impossible words."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hitables_command import run

PACKET = "chain=PREROUTING src=10.0.0.1 dst=10.0.0.2 proto=udp sport=1 dport=53"


def rules_of(tmp_path: Path, table: str, rules: str) -> Path:
    path = tmp_path / "x.rules"
    chains = "".join(f":{chain} ACCEPT [0:0]\n" for chain in ("PREROUTING", "OUTPUT"))
    path.write_text(f"*{table}\n{chains}{rules}COMMIT\n")
    return path


@pytest.mark.parametrize(
    ("words", "verdict", "told"),
    [
        ("", "ACCEPT", False),
        ("in=lo", "DROP", False),
        ("state=INVALID", "ACCEPT", False),
        ("state=NEW", "DROP", True),
        ("in=lo state=NEW", "DROP", False),
    ],
)
def test_a_packet_of_table_raw_has_no_connection_yet(
    words: str, verdict: str, told: bool, tmp_path: Path
) -> None:
    rules = rules_of(tmp_path, "raw", "-A PREROUTING -m conntrack --ctstate NEW -j DROP\n")
    done = run("trace", rules, "--packet", f"{PACKET} table=raw {words}")
    assert f"verdict: {verdict} " in done.stdout
    assert ("state=NEW: packets of table raw have no connection yet" in done.stderr) == told
    line = "IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.2 LEN=60 PROTO=UDP SPT=1 DPT=53 chain=PREROUTING table=raw"
    assert "state=INVALID, which a log line does not say" in run("trace", rules, "--packet", line).stdout


@pytest.mark.parametrize("state", ["ESTABLISHED", "INVALID", "UNTRACKED", "NEW", "RELATED"])
def test_a_packet_that_does_not_enter_table_nat_is_told(state: str, tmp_path: Path) -> None:
    rules = rules_of(tmp_path, "nat", "-A PREROUTING -p udp -j REDIRECT --to-ports 5353\n")
    done = run("trace", rules, "--packet", f"{PACKET} table=nat state={state}")
    message = f"hitables: state={state}: table nat sees the first packet of a connection only"
    assert (message in done.stderr) == (state not in ("NEW", "RELATED"))


@pytest.mark.parametrize(
    ("interface", "table", "is_told"), [("lo", "nat", True), ("eth0", "nat", False), ("lo", "mangle", False)]
)
def test_a_packet_of_lo_that_does_not_enter_prerouting_of_nat_is_told(
    interface: str, table: str, is_told: bool, tmp_path: Path
) -> None:
    rules = rules_of(tmp_path, table, "-A PREROUTING -p udp -j ACCEPT\n")
    done = run("trace", rules, "--packet", f"{PACKET} table={table} in={interface}")
    assert ("packets of PREROUTING have no in=lo in table nat" in done.stderr) == is_told


@pytest.mark.parametrize("target", ["CT --notrack", "NOTRACK"])
def test_a_packet_that_is_not_tracked_is_untracked_for_the_rules_behind(target: str, tmp_path: Path) -> None:
    untracked = "-A PREROUTING -m conntrack --ctstate UNTRACKED -j DROP\n"
    rules = rules_of(tmp_path, "raw", f"-A PREROUTING -j {target}\n{untracked}")
    for words, verdict in (("", "DROP"), ("in=lo", "ACCEPT"), ("rewrite=state=INVALID@1", "ACCEPT")):
        done = run("trace", rules, "--packet", f"{PACKET} table=raw {words}")
        assert f"verdict: {verdict} " in done.stdout, words


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("", "SYNPROXY --mss 1460 after 1 rule, by line 3"),
        ("state=ESTABLISHED", "SYNPROXY"),
        ("flags=RST", "ACCEPT"),
    ],
)
def test_a_packet_that_synproxy_takes_ends_there(words: str, verdict: str, tmp_path: Path) -> None:
    path = tmp_path / "x.rules"
    path.write_text(
        "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -j SYNPROXY --mss 1460\n-A INPUT\nCOMMIT\n"
    )
    packet = f"chain=INPUT src=10.0.0.1 dst=10.0.0.2 proto=tcp sport=1 dport=22 {words}"
    assert f"verdict: {verdict}" in run("trace", path, "--packet", packet).stdout


@pytest.mark.parametrize("asked", ["set {}--match-set S src", "mark {}--mark 0x5"])
@pytest.mark.parametrize("first", [("", "! "), ("! ", "")])
def test_of_two_complements_one_holds(asked: str, first: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "x.rules"
    rules = "".join(f"-A INPUT -m {asked.format(sign)} -j DROP\n" for sign in first)
    path.write_text(f"*filter\n:INPUT ACCEPT [0:0]\n{rules}COMMIT\n")
    packet = "chain=INPUT src=10.0.0.1 dst=10.0.0.2 proto=udp sport=1 dport=2"
    done = run("trace", path, "--packet", packet)
    assert "verdict: DROP after 2 rules, by line 4" in done.stdout
    keys = [asked.format(""), asked.format("! ")]
    open_, holds = keys if not first[0] else keys[::-1]
    assert done.stderr.endswith(f"assumed not to hold:\n  {open_}\nthese conditions hold then:\n  {holds}\n")
    done = run("trace", path, "--packet", f'{packet} fact="{keys[0]}=yes"')
    assert done.stderr == "" and f"by line {3 if not first[0] else 4}" in done.stdout


def test_a_logged_fragment_of_offset_1_is_dropped_where_tcp_is_matched(tmp_path: Path) -> None:
    path = tmp_path / "x.rules"
    path.write_text("*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p tcp -m tcp --dport 22 -j REJECT\nCOMMIT\n")
    line = (
        "IN=eth0 OUT=eth1 SRC=10.0.0.1 DST=10.0.0.2 LEN=60 TOS=0x00 PREC=0x00 TTL=64 ID=1 FRAG:{} PROTO=TCP"
    )
    for offset, verdict in ((1, "DROP"), (2, "ACCEPT")):
        assert f"verdict: {verdict} " in run("trace", path, "--packet", line.format(offset)).stdout


def test_the_bit_of_tos_that_a_log_line_lacks_is_told_where_it_decides(tmp_path: Path) -> None:
    path = tmp_path / "x.rules"
    line = "IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.2 LEN=60 TOS=0x10 PREC=0x00 TTL=64 ID=1 PROTO=UDP SPT=1 DPT=2 LEN=9"
    message = "tos=0x10; a log line does not say bit 0x1 of it"
    cases = (("0x01/0x01", "", True), ("0x11", "", True), ("0x10/0x10", "", False), ("0x20", "", False),
             ("0x01/0x01", " number=tos=0x11", False))  # fmt: skip
    for tos, words, told in cases:
        path.write_text(f"*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m tos --tos {tos} -j DROP\nCOMMIT\n")
        assert (message in run("trace", path, "--packet", line + words).stdout) == told, tos


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("-s 0.0.0.1/0.0.0.3", "DROP"),
        ("-s 0.0.0.2/0.0.0.3", "ACCEPT"),
        ("! -d 0.0.0.2/0.0.0.3", "ACCEPT"),
        ("! -d 0.0.0.1/0.0.0.3", "DROP"),
    ],
)
def test_the_addresses_of_a_packet_answer_masks_with_gaps(rule: str, verdict: str, tmp_path: Path) -> None:
    rules = rules_of(tmp_path, "mangle", f"-A PREROUTING {rule} -j DROP\n")
    done = run("trace", rules, "--packet", f"{PACKET} table=mangle")
    assert f"verdict: {verdict} " in done.stdout and not done.stderr


HOST = """*mangle
:PREROUTING ACCEPT [0:0]
-A PREROUTING -i eth0 -p tcp -m tcp --dport 80 -j LOG --log-prefix "PRE"
COMMIT
*filter
:INPUT DROP [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -m conntrack --ctstate INVALID -m limit --limit 5/min -j LOG --log-prefix "BAD "
-A INPUT -m conntrack --ctstate INVALID -j DROP
-A INPUT -p tcp -m multiport --dports 22,80,443 -j ACCEPT
-A INPUT -m mark --mark 7 -j LOG --log-prefix "SEVEN "
-A OUTPUT -m owner --uid-owner 1000 -j REJECT
COMMIT
"""
LINE = "{}IN=eth0 OUT= SRC=192.0.2.7 DST=10.0.0.1 LEN=40 TTL=50 ID=0 PROTO=TCP SPT=50000 DPT={} WINDOW=1 RES=0x00 {} URGP=0"


@pytest.mark.parametrize(
    ("line", "assumed", "verdict"),
    [
        (LINE.format("kernel: BAD ", 443, "ACK FIN"), "chain=INPUT state=INVALID; so the packet comes to line 9", "DROP after 3 rules, by line 10"),
        (LINE.format("kernel: BAD ", 443, "SYN"), "chain=INPUT state=INVALID; so the packet comes to line 9", "DROP after 3 rules, by line 10"),
        (LINE.format("kernel: ", 443, "SYN"), "chain=INPUT, by the interfaces; state=NEW, which a log line does not say", "ACCEPT after 4 rules, by line 11"),
        (LINE.format("PRE", 80, "SYN"), "table=mangle chain=PREROUTING state=NEW; so the packet comes to line 3", "ACCEPT after 1 rule, by the policy of PREROUTING"),
        (LINE.format("TRACE: mangle:PREROUTING:rule:1 ", 80, "SYN"), "table=mangle chain=PREROUTING state=NEW; so the packet comes to line 3", "ACCEPT after 1 rule, by the policy of PREROUTING"),
        (LINE.format("TRACE: mangle:PREROUTING:policy:2 ", 81, "SYN"), "table=mangle, which TRACE names", "ACCEPT after 1 rule, by the policy of PREROUTING"),
        (LINE.format("", 22, "SYN").replace("IN=eth0 OUT=", "IN= OUT=eth0") + " UID=1000 GID=1000", "chain=OUTPUT, by the interfaces", "REJECT --reject-with icmp-port-unreachable after 1 rule, by line 13"),
    ],
)  # fmt: skip
def test_what_stands_in_front_of_a_log_line_tells_where_its_packet_is(
    line: str, assumed: str, verdict: str, tmp_path: Path
) -> None:
    path = tmp_path / "host.rules"
    path.write_text(HOST)
    done = run("trace", path, "--packet", line)
    assert f"assumed: {assumed}" in done.stdout and f"verdict: {verdict}" in done.stdout and not done.stderr


@pytest.mark.parametrize(
    ("front", "note"),
    [
        (
            "SEVEN ",
            "line 12 (table filter) writes this prefix, but the packet does not come there in any state",
        ),
        ("TRACE: raw:PREROUTING:rule:1 ", "the line is of table raw, which the file does not have"),
    ],
)
def test_a_line_that_no_rule_can_have_written_is_told(front: str, note: str, tmp_path: Path) -> None:
    path = tmp_path / "host.rules"
    path.write_text(HOST)
    done = run("trace", path, "--packet", LINE.format(front, 99, "SYN"))
    assert f"hitables: {note}" in done.stderr
    own = f"{LINE.format(front, 99, 'SYN')} number=mark=7"
    assert (note in run("trace", path, "--packet", own).stderr) == front.startswith("TRACE")


def test_words_left_out_that_every_packet_has_are_told_where_a_rule_asks_for_them(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path,
        "filter",
        "-A INPUT ! -i eth0 -j DROP\n-A INPUT -m mac --mac-source 02:00:00:00:00:01 -j DROP\n",
    )
    words = "chain=INPUT src=192.0.2.7 dst=10.0.0.1 proto=tcp sport=1 dport=2"
    told = run("trace", rules, "--packet", words).stderr
    assert "in= is missing, which all packets of INPUT have: it is asked for in line" in told
    told = run("trace", rules, "--packet", f"{words} in=eth0").stderr
    assert "mac= is missing, which packets of INPUT have" in told and "in= is" not in told
    assert not run("trace", rules, "--packet", f"{words} in=eth0 mac=02:00:00:00:00:02").stderr


@pytest.mark.parametrize(
    ("words", "state", "why"),
    [
        ("proto=icmp icmp=3/4", "RELATED", "an error of ICMP begins no connection"),
        ("proto=icmp icmp=0/0", "INVALID", "an answer of ICMP begins no connection"),
        (
            "proto=tcp sport=1 dport=2 flags=SYN,ACK",
            "INVALID",
            "a packet of tcp with these flags begins no connection",
        ),
        (
            "proto=tcp sport=1 dport=2 flags=FIN,PSH,URG",
            "INVALID",
            "no packet of a connection has these flags",
        ),
        ("proto=tcp sport=1 dport=2 flags=ACK", "NEW", ""),
        ("proto=icmp icmp=8/0", "NEW", ""),
    ],
)
def test_a_packet_that_begins_no_connection_is_not_taken_for_a_new_one(
    words: str, state: str, why: str, tmp_path: Path
) -> None:
    rules = rules_of(tmp_path, "filter", f"-A INPUT -m conntrack --ctstate {state} -j DROP\n")
    packet = f"chain=INPUT in=eth0 src=192.0.2.7 dst=10.0.0.1 {words}"
    done = run("trace", rules, "--packet", packet)
    assert "verdict: DROP" in done.stdout
    assert done.stderr == (f"hitables: assumed: state={state}, as {why}\n" if why else "")
    told = run("trace", rules, "--packet", f"{packet} state=NEW").stderr
    assert told.startswith(f"hitables: state=NEW: {why}: it is {state}" if why else "")


@pytest.mark.parametrize("rule", ["-j CT --notrack", "-j NOTRACK", "-j CT --zone 5"])
def test_a_packet_that_table_raw_leaves_untracked_is_told(rule: str, tmp_path: Path) -> None:
    path = tmp_path / "raw.rules"
    raw = f"*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -m udp --dport 53 {rule}\nCOMMIT\n"
    path.write_text(
        f"{raw}*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrack --ctstate NEW -j ACCEPT\nCOMMIT\n"
    )
    words = "chain=INPUT in=eth0 src=192.0.2.7 dst=10.0.0.1 proto=udp sport=1 dport={}"
    note = "line 3 (table raw) leaves this packet untracked: add state=UNTRACKED"
    assert (note in run("trace", path, "--packet", words.format(53)).stderr) == ("--zone" not in rule)
    for others in (words.format(54), f"{words.format(53)} state=UNTRACKED", f"{words.format(53)} state=NEW"):
        assert not run("trace", path, "--packet", others).stderr
