"""What is read of a kernel is what is loaded there; or it is refused, and the rule is named."""

from __future__ import annotations

import os
import random
import re
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.iptables_version import iptables_is
from support.kernel_rules import EVERYWHERE, NET, native, rules, tool
from support.rule_texts import make_text
from support.small_namespace import Namespace

from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import checked_save, contents, contents_legacy, contents_nft
from hitables.kernel.checked_save import KernelReader, Misread, Reading, also_present
from hitables.kernel.load_save import load, save
from hitables.kernel.namespace import run
from hitables.kernel.netlink import Netfilter
from hitables.kernel.retries import retries

pytestmark = pytest.mark.needs_kernel


PRINTED = KernelReader._saved


def read(family: Family, backend: Backend, leave: str = "") -> Reading:
    """In the namespace that this runs in."""
    return KernelReader(family, tool(family, backend), lambda name: name == leave).read()


# Laws.


@EVERYWHERE
@pytest.mark.parametrize("seed", range(3))
def test_whatever_iptables_loaded_is_read_and_is_what_iptables_save_prints(
    family: Family, backend: Backend, seed: int
) -> None:
    # The legacy tools print a rule that never matches as one that always does: see below.
    unprinted = r" -m mac| -m ttl|! --[sd]port 0:65535"
    lines = make_text(random.Random(seed), family, rules=80, memory=0.2).splitlines(keepends=True)
    with Namespace() as namespace:
        load("".join(line for line in lines if not re.search(unprinted, line)), family, backend, namespace)
        assert namespace.call(read, family, backend).text == save(family, backend, namespace)


def test_real_rule_sets_are_read(shared: Path) -> None:
    names = sorted((shared / "corpus" / "dumps").iterdir())[::9]
    result = 0
    for path in names:
        for backend in Backend:
            with Namespace() as namespace:
                try:
                    load(path.read_text(errors="surrogateescape"), Family.IPV4, backend, namespace)
                except LiveError:
                    continue  # of another family, or not for this kernel
                result += bool(namespace.call(read, Family.IPV4, backend).text)
    assert result >= len(names)


# Native rules that iptables-nft 1.8.9 prints as others.
LIES = {
    "tcp dport { 22, 80 } counter accept": "-A INPUT -p tcp -j ACCEPT",
    "tcp dport != { 1, 2 } accept": "-A INPUT -p tcp -j ACCEPT",
    "{addr} saddr @known accept": "-A INPUT -j ACCEPT",
    "tcp dport vmap {{ 22 : accept, 23 : drop }}": "-A INPUT -p tcp",
    "tcp dport vmap @ports": "-A INPUT -p tcp",
}
SETS = {
    Family.IPV4: " set known { type ipv4_addr; }\n map ports { type inet_service : verdict; }\n",
    Family.IPV6: " set known { type ipv6_addr; }\n map ports { type inet_service : verdict; }\n",
}


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("rule", LIES)
def test_a_native_rule_that_is_printed_as_another_is_named_as_nft_prints_it(
    rule: str, family: Family
) -> None:
    message = (
        rule.replace("{addr}", "ip" if family is Family.IPV4 else "ip6").replace("{{", "{").replace("}}", "}")
    )
    with Namespace() as namespace:
        table = native(
            "tcp dport 1 counter accept",
            message,
            "tcp dport 9 counter drop",
            family=family,
            more=SETS[family],
        )
        namespace.run(["nft", "-f", "-"], table)
        printed = save(family, Backend.NFT, namespace)
        with pytest.raises(Misread) as error:
            namespace.call(read, family, Backend.NFT)
        assert f"table filter, chain INPUT, rule 2: {message}" in str(error.value)
        assert LIES[rule] + "\n" in printed and f"it prints: {LIES[rule]}\n" in str(error.value) + "\n"
        assert "rule 1:" not in str(error.value) and "rule 3:" not in str(error.value)
        left = namespace.call(read, family, Backend.NFT, "INPUT")
    assert left.left_out == (("filter", "INPUT"),)
    assert "-A" not in left.text and ":web - [0:0]\n" in left.text


def test_native_rules_that_are_printed_as_they_are_can_be_read() -> None:
    honest = (
        "ip saddr 1.2.3.4 drop", "ip saddr 1.2.3.4 tcp dport 22 accept", "udp dport 22-25 accept", "goto web",
        'iifname "eth*" counter accept', 'ip saddr 1.2.3.5 accept comment "counter {known}"',
    )  # fmt: skip
    with Namespace() as namespace:
        namespace.run(["nft", "-f", "-"], native(*honest))
        text = namespace.call(read, Family.IPV4, Backend.NFT).text
    assert text.count("-A INPUT") == len(honest)
    assert '-A INPUT -s 1.2.3.5/32 -m comment --comment "counter {known}" -j ACCEPT\n' in text


@pytest.mark.parametrize(("table", "named"), [
    (native("tcp dport 1 accept", 'log prefix "x"'), 'chain INPUT, rule 2: log prefix "x"'),
    (native("ct state established accept"), r"chain INPUT, rule 1: ct state established accept \(iptables reads no such ct\)"),
    (native("tcp dport 1 accept", "ip dscp 3 accept", "drop"), r"chain INPUT, rule 2: ip dscp 0x03 accept"),
    (native(more=" chain own { type filter hook input priority 5; }\n"),
     r"chain own: a base chain of its own \(hook input, priority 5\)"),
    (native("accept").replace("priority 0", "priority -7"), r"chain INPUT: a base chain of its own"),
    (native("drop", more=" flags dormant;\n"), "table filter: the table has flags, .*: dormant"),
])  # fmt: skip
def test_a_table_that_iptables_cannot_read_is_refused_with_the_reason(table: str, named: str) -> None:
    with Namespace() as namespace:
        namespace.run(["nft", "-f", "-"], table)
        before = namespace.run(["nft", "list", "table", "ip", "filter"])
        with pytest.raises(Misread, match=named):
            namespace.call(read, Family.IPV4, Backend.NFT)
        assert "dormant" not in before or namespace.run(["nft", "list", "table", "ip", "filter"]) == before


def test_tables_of_other_names_are_no_business_of_iptables() -> None:
    other = (
        "table ip mine {\n chain INPUT { type filter hook input priority 0; tcp dport { 1, 2 } drop; }\n}\n"
    )
    with Namespace() as namespace:
        namespace.run(["nft", "-f", "-"], other)
        load(rules(Family.IPV4, 3), Family.IPV4, Backend.NFT, namespace)
        assert namespace.call(read, Family.IPV4, Backend.NFT).text.count("-A") == 3


@pytest.mark.parametrize("family", Family)
def test_a_rule_that_never_matches_is_not_read_as_one_that_always_does(family: Family) -> None:
    with Namespace() as namespace:
        text = "*filter\n-A INPUT -p tcp\n-A INPUT -p tcp ! --dport 0:65535 -j ACCEPT\nCOMMIT\n"
        load(text, family, Backend.LEGACY, namespace)
        if iptables_is((1, 8, 11)):  # which prints it as it is
            printed = namespace.call(read, family, Backend.LEGACY).text
            assert "-A INPUT -p tcp\n-A INPUT -p tcp -m tcp ! --dport 0:65535 -j ACCEPT\n" in printed
            return
        assert "-A INPUT -p tcp -m tcp -j ACCEPT\n" in save(family, Backend.LEGACY, namespace)
        with pytest.raises(Misread, match="table filter, chain INPUT, rule 2: the kernel has another rule"):
            namespace.call(read, family, Backend.LEGACY)


def test_the_protocol_all_of_ip6tables_is_named_as_what_is_not_printed() -> None:
    """It makes the kernel search for the protocol, so it is no test that holds always."""
    with Namespace() as namespace:
        for words in ("-p tcp", "-p all -s fd00::1"):
            namespace.run(["ip6tables-legacy", "-A", "INPUT", *words.split(), "-j", "DROP"])
        with pytest.raises(Misread, match="rule 2: the kernel has another rule; it has `-p all`") as caught:
            namespace.call(read, Family.IPV6, Backend.LEGACY)
        assert "rule 1" not in str(caught.value)


# What rules refer to.


@EVERYWHERE
def test_rules_that_name_sets_are_read_wherever_the_sets_stand(family: Family, backend: Backend) -> None:
    kind = "inet" if family is Family.IPV4 else "inet6"
    sets = (
        f"create one hash:ip family {kind}\ncreate two hash:net,port family {kind} hashsize 4096 timeout 9\n"
    )
    text = (
        "*filter\n-A INPUT -m set --match-set two src,dst -j SET --add-set three src\n"
        "-A INPUT -m set ! --match-set four src -j DROP\nCOMMIT\n"
    )
    with Namespace() as namespace:
        many = f"create gone hash:ip\ncreate three hash:ip family {kind}\ncreate four list:set\n"
        namespace.run(["ipset", "restore"], sets + many + "destroy one\ndestroy gone\n")
        namespace.run([f"{tool(family, backend)}-restore"], text)
        assert "--match-set two src,dst" in namespace.call(read, family, backend).text
        namespace.run(["ipset", "restore"], f"create five hash:ip family {kind}\nswap five three\n")
        assert namespace.call(read, family, backend).text.count("-A") == 2


def make_timeout_policy(name: str) -> None:
    """Timeout policy *name* of tcp over IPv4, by netlink: there is no tool for it here."""
    import contextlib

    from hitables.kernel.netlink import NLM_F_CREATE, Netfilter, message, nested, number, text

    attributes = (
        text(1, name) + b"\x06\0\x02\0\0\x02\0\0" + b"\x05\0\x03\0\x06\0\0\0" + nested(4, number(1, 7))
    )
    with contextlib.closing(Netfilter()) as asked:
        assert asked.each([message(8, 0, NLM_F_CREATE, 0, attributes)]) == 0


def make_account() -> None:
    import contextlib

    from hitables.kernel.netlink import NLM_F_CREATE, Netfilter, message, text

    with contextlib.closing(Netfilter()) as asked:
        assert asked.each([message(7, 0, NLM_F_CREATE, 0, text(1, "web"))]) == 0


@pytest.mark.parametrize("backend", Backend)
def test_rules_that_name_objects_of_the_kernel_are_read(backend: Backend) -> None:
    tables = (
        "*mangle\n-A FORWARD -j RATEEST --rateest-name RE1 --rateest-interval 250.0ms --rateest-ewma 500.0ms\nCOMMIT\n",
        "*raw\n-A PREROUTING -p tcp -j CT --timeout syn\n-A PREROUTING -p udp -j CT --helper amanda\nCOMMIT\n",
        "*filter\n-A FORWARD -m nfacct --nfacct-name web\n"
        "-A FORWARD -m rateest --rateest RE1 --rateest-lt --rateest-bps 1000bit -j DROP\nCOMMIT\n",
    )
    with Namespace() as namespace:
        namespace.call(make_timeout_policy, "syn")
        namespace.call(make_account)
        for text in tables:
            try:
                namespace.run([f"iptables-{backend.value}-restore", "--noflush"], text)
            except LiveError as error:
                pytest.skip(f"not to be had here: {error}")
        assert namespace.call(read, Family.IPV4, backend).text.count("-A") == 5


def test_a_timeout_of_which_the_kernel_tells_the_beginning_is_not_read() -> None:
    with Namespace() as namespace:
        for name in ("brief", "brie"):
            namespace.call(make_timeout_policy, name)
        try:
            load(
                "*raw\n-A PREROUTING -p tcp -j CT --timeout brief\nCOMMIT\n",
                Family.IPV4,
                Backend.NFT,
                namespace,
            )
        except LiveError as error:
            pytest.skip(f"not to be had here: {error}")
        if "--timeout brief" in save(Family.IPV4, Backend.NFT, namespace):
            pytest.skip("this kernel tells all of it")
        with pytest.raises(Misread, match=r"table raw, chain PREROUTING, rule 1: .*four letters"):
            namespace.call(read, Family.IPV4, Backend.NFT)


def test_reading_begins_no_idle_timer_anew() -> None:
    shown = Path("/sys/class/xt_idletimer/timers/hitables-test")
    with Namespace() as namespace:
        try:
            load(
                f"*mangle\n-A FORWARD -j IDLETIMER --timeout 600 --label {shown.name}\nCOMMIT\n",
                Family.IPV4,
                Backend.NFT,
                namespace,
            )
        except LiveError as error:
            pytest.skip(f"not to be had here: {error}")
        time.sleep(1.2)
        before = int(shown.read_text())
        assert f"--label {shown.name}" in namespace.call(read, Family.IPV4, Backend.NFT).text
        assert int(shown.read_text()) <= before < 600


# A rule, and three spellings of its option: the first two mean the same and are printed alike, but iptables gives the
# kernel other bytes for them; the third means something else.
SAME_MEANING = [
    ("-m conntrack --ctorigsrc {}", "10.1.1.1/32", "10.1.1.1", "10.1.1.1/31"),
    (
        "-m policy --dir in --pol ipsec --mode tunnel --tunnel-src {}",
        "10.0.0.1/32",
        "10.0.0.1",
        "10.0.0.1/24",
    ),
    ("-m recent --name a --rcheck {}", "--mask 255.255.255.255", "", "--mask 255.255.255.0"),
    ("-m connlimit --connlimit-upto 3 {}", "--connlimit-mask 32", "", "--connlimit-mask 24"),
    (
        "-j HMARK --hmark-mod 7 --hmark-rnd 1 {}",
        "--hmark-tuple src",
        "--hmark-src-prefix 32",
        "--hmark-src-prefix 24",
    ),
    ("-p icmp -m icmp --icmp-type {} -j ACCEPT", "255/0", "any", "8/0"),
    ("-p icmp -m icmp ! --icmp-type {} -j ACCEPT", "255/3", "any", "8/3"),
    ("-j CT --notrack {}", "--zone-orig 0", "", "--zone-orig 3"),
    ("-m frag {} -j ACCEPT", "--fragid :", "", "--fragid :5"),
    ("-m rt --rt-type 0 {} -j ACCEPT", "--rt-segsleft :", "", "--rt-segsleft :5"),
]


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize(("rule", "spelling", "same", "other"), SAME_MEANING)
def test_spellings_that_are_printed_alike_count_as_equal_and_others_do_not(
    rule: str, spelling: str, same: str, other: str, backend: Backend
) -> None:
    held = []
    family = Family.IPV6 if rule.startswith(("-m frag", "-m rt")) else Family.IPV4
    table = "raw" if "-j CT" in rule else "mangle"
    with Namespace() as namespace:
        for words in (spelling, same, other):
            text = f"*{table}\n-A PREROUTING {rule.format(words)}\nCOMMIT\n"
            load(text, family, backend, namespace)
            assert "-A PREROUTING" in namespace.call(read, family, backend).text
            read_contents = (contents_nft if backend is Backend.NFT else contents_legacy).read_contents
            held.append(namespace.call(read_contents, family).chains[table, "PREROUTING"].rules)
    assert held[0] == held[1] != held[2]


def test_of_a_mask_of_ipvs_in_ipv4_the_first_word_counts() -> None:
    # As the kernels of many machines have no IPVS: its data is an address and a mask, each of four words.
    host, same, net = (
        bytes(16) + mask for mask in (b"\xff" * 16, b"\xff" * 4 + bytes(12), b"\xff" * 3 + bytes(13))
    )
    held = [contents.used(b"ipvs", 0, data + b"rest", Family.IPV4) for data in (host, same, net)]
    assert held[0] == held[1] != held[2] and held[0].endswith(b"rest")
    assert contents.used(b"ipvs", 0, host, Family.IPV6) == host


@EVERYWHERE
def test_a_test_of_any_interface_is_read(family: Family, backend: Backend) -> None:
    with Namespace() as namespace:
        load("*mangle\n-A PREROUTING -i + -j ACCEPT\nCOMMIT\n", family, backend, namespace)
        assert "-A PREROUTING -j ACCEPT" in namespace.call(read, family, backend).text
        # `! -i +` never matches.  iptables-legacy-save 1.8.9 leaves it out, so the text it prints must be refused.
        load("*mangle\n-A PREROUTING ! -i + -j ACCEPT\nCOMMIT\n", family, backend, namespace)
        if "! -i +" in save(family, backend, namespace):
            assert "-A PREROUTING ! -i + -j ACCEPT" in namespace.call(read, family, backend).text
        else:
            with pytest.raises(Misread):
                namespace.call(read, family, backend)


def read_of_unknown_revision(backend: Backend, leave: str = "") -> Reading:
    """What is read where the tool knows another revision of the target DNAT than the rules have."""

    def as_an_older_one(self: KernelReader, counters: bool) -> tuple[str, str]:
        text, failed = PRINTED(self, counters)
        return re.sub(r"-j DNAT .*", "-j DNAT [unsupported revision]", text), failed

    KernelReader._saved = as_an_older_one  # type: ignore[method-assign]
    return read(Family.IPV4, backend, leave)


@pytest.mark.parametrize("backend", Backend)
def test_a_rule_of_an_unknown_revision_is_refused_with_a_preset_that_leaves_it(backend: Backend) -> None:
    rule = "-A MINIUPNPD -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:80\n"
    comment = '-A INPUT -m comment --comment "[unsupported revision]" -j ACCEPT\n'
    text = f"*nat\n:MINIUPNPD -\n{comment}-A MINIUPNPD -j RETURN\n{rule}COMMIT\n"
    with Namespace() as namespace:
        load(text, Family.IPV4, backend, namespace)
        with pytest.raises(Misread) as error:
            namespace.call(read_of_unknown_revision, backend)
        left = namespace.call(read_of_unknown_revision, backend, "MINIUPNPD")
    assert "chain MINIUPNPD, rule 2: " in str(error.value) and "revision of DNAT" in str(error.value)
    assert "--leave miniupnpd of hitables save" in str(error.value) and "INPUT" not in str(error.value)
    assert left.left_out == (("nat", "MINIUPNPD"),) and comment in left.text and "-j RETURN" not in left.text


def test_no_chain_is_left_whose_rules_change_packets_that_go_on() -> None:
    """As rules of nft can; trees beside a call of the chain may test what it is taken not to change."""
    text = (
        "*filter\n:left - [0:0]\n-A FORWARD -j left\n-A left -m comment --comment payload -j DROP\nCOMMIT\n"
    )
    with Namespace() as namespace:
        load(text, Family.IPV4, Backend.NFT, namespace)
        namespace.run(["nft", "add rule ip filter left ip daddr 10.0.0.1 tcp dport 80 counter"])
        assert namespace.call(read, Family.IPV4, Backend.NFT, "left").text
        for change in ("ip daddr set 10.0.0.2", "tcp dport set 81"):
            namespace.run(["nft", "flush chain ip filter left"])
            namespace.run(["nft", f"add rule ip filter left tcp dport 80 {change}"])
            with pytest.raises(
                Misread, match=f"chain left, rule 1: .*{change} .it changes packets that go on"
            ):
                namespace.call(read, Family.IPV4, Backend.NFT, "left")


@pytest.mark.parametrize("backend", Backend)
def test_a_rule_that_cannot_be_loaded_again_is_refused_with_the_words_of_the_tool(backend: Backend) -> None:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    roots = [words[1] for words in mounts if words[2] == "cgroup2"]
    if not roots:
        pytest.skip("no control groups of version 2 here")
    folder = Path(roots[0]) / f"hitables-test-{os.getpid()}"
    folder.mkdir()
    with Namespace() as namespace:
        rule = f"-A OUTPUT -m cgroup --path {folder.name} -j ACCEPT"
        try:
            load(f"*filter\n{rule}\nCOMMIT\n", Family.IPV4, backend, namespace)
            assert rule in namespace.call(read, Family.IPV4, backend).text
        finally:
            folder.rmdir()
        with pytest.raises(Misread, match=r"table filter.*: the output cannot be loaded: iptables-") as error:
            namespace.call(read, Family.IPV4, backend)
        # The legacy tool blames the line with COMMIT.
        assert backend is Backend.LEGACY or "chain OUTPUT: the output" in str(error.value)
        assert backend is Backend.LEGACY or f"it prints: {rule}\n" in str(error.value)
        left = namespace.call(read, Family.IPV4, backend, "OUTPUT")
    assert left.left_out == (("filter", "OUTPUT"),) and "-A" not in left.text


@EVERYWHERE
def test_rules_that_name_sets_with_members_are_read(family: Family, backend: Backend) -> None:
    """ipset 7.17 lists the members of a set in spite of -terse."""
    with Namespace() as namespace:
        text = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m set --match-set admins src -j ACCEPT\nCOMMIT\n"
        load(text, family, backend, namespace)  # which creates the set
        namespace.run(["ipset", "add", "admins", NET[family].format(1)])
        assert "--match-set admins src" in namespace.call(read, family, backend).text


# Changes while it is read.


def change_if_allowed(family: Family, backend: Backend, command: str, number: int) -> None:
    """Add or remove a rule; without effect while another holds the lock of iptables-legacy for a second."""
    rule = ["INPUT", "-s", NET[family].format(number), "-j", "DROP"]
    subprocess.run([tool(family, backend), "-w", "1", command, *rule], capture_output=True, check=False)


def read_printed_by(
    print_rules: Callable[[KernelReader, bool], tuple[str, str]], family: Family, backend: Backend
) -> str:
    """What the reader reads when *print_rules* does the printing."""
    KernelReader._saved = print_rules  # type: ignore[method-assign]
    try:
        return read(family, backend).text
    finally:
        KernelReader._saved = PRINTED  # type: ignore[method-assign]


def read_while_it_changes(family: Family, backend: Backend, times: int, tries: int = 0) -> str:
    """The rules are changed behind the printing of them, *times* times; at most *tries* are made, if not 0."""
    if tries:
        checked_save.retries = partial(retries, tries, 0.0)
    changes = iter(range(times))

    def and_then(self: KernelReader, counters: bool) -> tuple[str, str]:
        message = PRINTED(self, counters)
        number = next(changes, None)
        if number is not None:
            change_if_allowed(family, backend, "-A", number)
        return message

    return read_printed_by(and_then, family, backend)


@EVERYWHERE
def test_a_change_between_printing_and_comparing_is_read_too(family: Family, backend: Backend) -> None:
    with Namespace() as namespace:
        load(rules(family, 3), family, backend, namespace)
        text = namespace.call(read_while_it_changes, family, backend, 2)
        changes = 2 if backend is Backend.NFT else 1
        assert text.count("-A INPUT") == 3 + changes and text == save(family, backend, namespace)
        if (
            backend is Backend.LEGACY
        ):  # from its second reading on, the reader holds the lock: no change works
            text = namespace.call(read_while_it_changes, family, backend, 50, tries=10)
            assert text.count("-A INPUT") == 5 and text == save(family, backend, namespace)
            return
        with pytest.raises(LiveError, match="changed faster"):
            namespace.call(read_while_it_changes, family, backend, 50, tries=10)


def read_while_it_changes_and_back(
    family: Family, backend: Backend, times: int, ways: tuple[str, str]
) -> str:
    """The first of *ways* changes a rule before the rules are printed, *times* times, and the second one undoes
    that before they are compared.
    """
    left = times

    def without(self: KernelReader, counters: bool) -> tuple[str, str]:
        nonlocal left
        left -= 1
        if left < 0:
            return PRINTED(self, counters)
        change_if_allowed(family, backend, ways[0], 99)
        message = PRINTED(self, counters)
        change_if_allowed(family, backend, ways[1], 99)
        return message

    if ways[0] == "-D":
        change_if_allowed(family, backend, "-A", 99)
    return read_printed_by(without, family, backend)


@EVERYWHERE
@pytest.mark.parametrize(("ways", "rest"), [(("-D", "-A"), 4), (("-A", "-D"), 3)])
def test_a_change_that_is_undone_in_between_is_no_misprint(
    ways: tuple[str, str], rest: int, family: Family, backend: Backend
) -> None:
    """What a program like docker does at the same moment of two readings looked like a misprint."""
    with Namespace() as namespace:
        load(rules(family, 3), family, backend, namespace)
        text = namespace.call(read_while_it_changes_and_back, family, backend, 4, ways)
        assert text.count("-A INPUT") == rest and text == save(family, backend, namespace)


def contents_while_others_change(rules: str) -> int:
    """The rules change as often as a rule is unpacked."""
    run(["iptables-nft-restore"], rules)
    unpack, changes = contents_nft._rule, 0

    def and_change(body: bytes) -> contents_nft._Dumped:
        nonlocal changes
        changes += 1
        return unpack(body)

    contents_nft._rule = and_change
    contents_nft.Netfilter.generation = lambda netfilter: changes  # type: ignore[method-assign]
    return len(contents_nft.read_contents(Family.IPV4).chains["filter", "INPUT"].rules)


def test_rules_are_unpacked_when_all_have_been_read() -> None:
    """Unpacking takes five times as long as reading; others may change rules ten times a second."""
    lines = "".join(f"-A INPUT -s 10.0.0.{n}/32 -j ACCEPT\n" for n in range(100))
    text = f"*filter\n:INPUT ACCEPT [0:0]\n{lines}COMMIT\n"
    with Namespace() as namespace:
        assert namespace.call(contents_while_others_change, text) == 100


def contents_in_both_ways(
    text: str, family: Family
) -> tuple[contents.Contents, contents.Contents, list[bytes]]:
    """Read table by table and chain by chain; with them the requests of the second reading for rules."""
    run([f"{tool(family, Backend.NFT)}-restore"], text)
    by_table = contents_nft.read_contents(family)
    asked: list[bytes] = []
    answers = contents_nft._answers

    def noted(netfilter: Netfilter, kind: int, command: int, request: bytes = b"") -> list[bytes]:
        if command == contents_nft._GETRULE:
            asked.append(request)
        return answers(netfilter, kind, command, request)

    contents_nft._answers, contents_nft._CHAINS_OF_ONE_DUMP = noted, 0
    return by_table, contents_nft.read_contents(family), asked


@pytest.mark.parametrize("family", Family)
def test_chain_by_chain_the_same_is_read_as_table_by_table(family: Family) -> None:
    """For each answer the kernel counts from the first rule of the table: 130,000 rules took it 11 seconds."""
    jumps = "".join(f"-A web -s {NET[family].format(number)} -g web{number}\n" for number in range(3))
    chains = ":web -\n:web0 -\n:web1 -\n:web2 -\n:empty -\n"
    table = f"{chains}-A OUTPUT -j web\n{jumps}-A web2 -j ACCEPT\n-A web2 -j DROP\nCOMMIT\n"
    text = f"*filter\n{table}*mangle\n{table.replace('-j DROP', '-j MARK --set-mark 1')}"
    with Namespace() as namespace:
        by_table, by_chain, asked = namespace.call(contents_in_both_ways, text, family)
    assert by_chain == by_table
    assert len(by_table.chains["mangle", "web2"].rules) == 2
    assert len(asked) == len(set(asked)) == 10  # of five chains of each table: `empty` has no rules


def read_twice(seen: Path) -> list[str]:
    reader = KernelReader(Family.IPV4, "iptables-nft")
    message = [reader.read().text]
    opened = checked_save.Namespace

    def none(*args: object) -> None:
        seen.touch()
        raise AssertionError("everything was compared before")

    checked_save.Namespace = none  # type: ignore[assignment,misc]
    message.append(reader.read().text)
    checked_save.Namespace = opened  # type: ignore[misc]
    run(["iptables-nft", "-A", "INPUT", "-s", "10.9.9.9", "-j", "web"])
    message.append(reader.read().text)
    run(["nft", "insert", "rule", "ip", "filter", "INPUT", "tcp", "dport", "{ 1, 2 }", "drop"])
    try:
        message.append(reader.read().text)
    except Misread as error:
        message.append(str(error))
    return message


def test_a_reader_that_is_kept_compares_what_is_new_and_nothing_else(tmp_path: Path) -> None:
    with Namespace() as namespace:
        load(
            rules(Family.IPV4, 5).replace("*filter\n", "*filter\n:web -\n"),
            Family.IPV4,
            Backend.NFT,
            namespace,
        )
        first, second, third, fourth = namespace.call(read_twice, tmp_path / "seen")
    assert first == second and third == first.replace("COMMIT", "-A INPUT -s 10.9.9.9/32 -j web\nCOMMIT")
    assert "chain INPUT, rule 1: tcp dport { 1, 2 } drop" in fourth and "rule 2" not in fourth
    assert not (tmp_path / "seen").exists()


# Both backends at once.


def present(family: Family, backend: Backend) -> tuple[str, list[str], str]:
    message = also_present(family, backend)
    return message, contents_legacy.table_names(family), run(["nft", "list", "tables"])


@pytest.mark.parametrize("family", Family)
def test_tables_of_the_other_backend_are_named_and_none_is_made(family: Family) -> None:
    kind = "ip" if family is Family.IPV4 else "ip6"
    with Namespace() as namespace:
        for backend in Backend:
            assert namespace.call(present, family, backend) == ("", [], "")
        load(rules(family, 2), family, Backend.NFT, namespace)
        namespace.run(["nft", "add", "table", "inet", "firewalld"])
        message, legacy, _ = namespace.call(present, family, Backend.LEGACY)
        assert message.endswith(f": {kind} filter, inet firewalld (empty)") and legacy == []
        assert namespace.call(present, family, Backend.NFT)[0] == ""
        namespace.run([f"{tool(family, Backend.LEGACY)}-restore"], "*nat\nCOMMIT\n" + rules(family, 2))
        message, legacy, _ = namespace.call(present, family, Backend.NFT)
        assert (
            "iptables-legacy" in message
            and "filter" in message
            and "nat (empty)" in message
            and "filter (" not in message
        )
        assert sorted(legacy) == ["filter", "nat"]
