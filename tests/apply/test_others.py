"""Chains of other programs stay as they are now, and what they may do is not relied on."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from support.firewall import Firewall, plain
from support.small_namespace import Namespace

import hitables
from hitables.apply.others import merge
from hitables.apply.texts import parse
from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text
from hitables.errors import InvalidOption, LiveError
from hitables.ir.foreign import PRESETS, is_foreign, patterns_of, recognised
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load
from hitables.verify.question import Equal

BANS = "-A f2b-sshd -s 192.0.2.{}/32 -j REJECT --reject-with icmp-port-unreachable\n"


def rules(count: int = 40, jump: str = "-A INPUT -p tcp -m multiport --dports 22 -j f2b-sshd\n") -> str:
    own = "".join(
        f"-A INPUT -s 10.{n}.0.0/16 -p tcp -m tcp --dport {n + 1} -j ACCEPT\n" for n in range(count)
    )
    return (
        "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:f2b-sshd - [0:0]\n"
        f"{jump}{own}{BANS.format(1)}-A f2b-sshd -j RETURN\nCOMMIT\n"
    )


# Compiling.


def test_a_jump_to_a_chain_that_is_left_stays_in_its_chain_and_trees_stand_behind_it() -> None:
    text = hitables.compile(rules(), leave="fail2ban").text
    jumps = [line for line in text.splitlines() if line.endswith("-j f2b-sshd")]
    assert jumps == ["-A INPUT -p tcp -m multiport --dports 22 -j f2b-sshd"]
    assert " -g ht" in text
    assert BANS.format(1) in text


def test_a_compiled_set_is_right_whatever_a_chain_that_is_left_holds() -> None:
    """The proof says so; here are some contents of the chain, each compared as a whole."""
    source = rules()
    compiled = hitables.compile(source, leave="fail2ban").text
    contents = ["", "-A f2b-sshd -j DROP\n", "-A f2b-sshd -s 10.3.0.0/16 -j MARK --set-mark 1\n"]
    for content in contents:
        both = [re.sub(r"(-A f2b-sshd .*\n)+", content, text) for text in (source, compiled)]
        compared = hitables.check(*both)
        assert all(isinstance(case.answer, Equal) for case in compared.cases)


def test_chains_that_a_chain_that_is_left_enters_are_not_compiled() -> None:
    """A proof about hidden chains does not see how they are entered from there."""
    mine = "".join(f"-A mine -s 10.{n}.0.0/16 -p tcp -m tcp --dport {n + 1} -j DROP\n" for n in range(40))
    source = rules().replace(":f2b-sshd -", ":mine -\n:f2b-sshd -").replace("COMMIT\n", "")
    output = hitables.compile(f"{source}-A f2b-sshd -j mine\n{mine}COMMIT\n", leave="f2b-*")
    whys = {report.chain: report.why for report in output.reports}
    assert whys["mine"] == "entered from f2b-sshd, which is left to another program (--leave)"
    assert whys["f2b-sshd"] == "left to another program (--leave)"
    assert whys["INPUT"] == ""


def test_a_chain_with_few_rules_around_its_jumps_stays_and_the_reason_is_given() -> None:
    source = rules(count=6).replace(
        "COMMIT\n", "-A INPUT -j f2b-sshd\n-A INPUT -s 10.99.0.1 -j DROP\nCOMMIT\n"
    )
    output = hitables.compile(source, leave=["f2b-*"])
    (why,) = (report.why for report in output.reports if report.chain == "INPUT")
    assert "(f2b-sshd) leave too few rules before, between and behind them" in why


def test_apply_leaves_the_rules_before_the_last_jump_and_gives_the_reason() -> None:
    """Their texts show where a jump stands that is in the kernel only."""
    source = rules(jump="").replace("COMMIT\n", "-A INPUT -j f2b-sshd\n-A INPUT -p tcp -j DROP\nCOMMIT\n")
    output = compile_text(source, Options(leave=("f2b-*",), before_jumps=False))
    (why,) = (report.why for report in output.reports if report.chain == "INPUT")
    assert "(f2b-sshd) has too few rules behind it; those before it stay in the chain" in why


@pytest.mark.parametrize("at", [None, 0, 100])
def test_apply_has_a_list_in_parts_behind_the_last_jump(at: int | None) -> None:
    """As many rules are read as `compile` reads; those before the jump stay as they are, in their order."""
    hosts = [
        f"-A INPUT -{side} 10.0.{host // 200}.{host % 200 + 1}/32" for host in range(300) for side in "sd"
    ]
    verdicts = [f"-A INPUT -p tcp -m tcp --dport {port} -j DROP" for port in range(1, 60)]
    lines = (
        [*hosts, *verdicts] if at is None else [*hosts[:at], "-A INPUT -j f2b-sshd", *hosts[at:], *verdicts]
    )
    head = ["*filter", ":INPUT ACCEPT [0:0]", ":f2b-sshd - [0:0]"]
    text = "\n".join([*head, *lines, "COMMIT", ""])
    output = compile_text(text, Options(backend="nft", leave=("f2b-*",), before_jumps=False))
    chain = [line for line in output.text.splitlines() if line.startswith("-A INPUT")]
    kept = 0 if at is None else at + 1
    assert chain[:kept] == lines[:kept]
    (report,) = (report for report in output.reports if report.chain == "INPUT")
    assert report.read_after < kept + 50


def test_trees_stand_before_between_and_behind_jumps() -> None:
    """The jumps stay in their chain, and in their order; before the last one trees are called."""
    more = "".join(f"-A INPUT -d 10.{n}.0.0/16 -p udp -m udp --dport {n} -j DROP\n" for n in range(40))
    second = "-A INPUT -p udp -m multiport --dports 53 -j f2b-sshd\n"
    first = "-A INPUT -p tcp -m multiport --dports 22 -j f2b-sshd\n"
    source = rules(jump="").replace("COMMIT\n", f"{first}{more}{second}{more.replace('udp', 'tcp')}COMMIT\n")
    output = hitables.compile(source, leave="fail2ban")
    chain = [line for line in output.text.splitlines() if line.startswith("-A INPUT ")]
    at = [chain.index(jump.strip()) for jump in (first, second)]
    assert at == [1, 3]
    assert all(re.fullmatch(r"-A INPUT -j ht\d+", chain[number]) for number in (0, 2))
    assert any(" -g ht" in line for line in chain[4:])
    (report,) = (report for report in output.reports if report.chain == "INPUT")
    assert report.read_after < report.read_before / 3


def test_a_rule_that_leaves_the_chain_stays_in_it_before_a_jump() -> None:
    """A RETURN in a tree that is called would come back to the chain."""
    leaving = "-A mine -s 10.20.0.0/16 -j RETURN\n"
    own = rules(jump="").replace("INPUT -s", "mine -s").replace(":f2b-sshd -", ":mine -\n:f2b-sshd -")
    own = own.replace("-A mine -s 10.20.0.0/16 -p", f"{leaving}-A mine -s 10.20.0.0/16 -p")
    source = own.replace("COMMIT\n", "-A mine -j f2b-sshd\n-A INPUT -j mine\nCOMMIT\n")
    lines = hitables.compile(source, leave="fail2ban").text.splitlines()
    chain = [line for line in lines if line.startswith("-A mine ")]
    assert [bool(re.fullmatch(r"-A mine -j ht\d+", line)) for line in chain] == [True, False, True, False]
    assert chain[1] == leaving.strip()


def test_jumps_that_no_packet_reaches_stay_where_verdicts_are_kept() -> None:
    rule = "-A INPUT -j f2b-sshd\n"
    text = rules(jump="").replace("COMMIT\n", f"-A INPUT -j DROP\n{rule}COMMIT\n")
    output = hitables.compile(text, leave="fail2ban", equivalence="verdict")
    assert not output.faults and rule in output.text


def test_scheme_paper_does_not_leave_chains() -> None:
    with pytest.raises(InvalidOption, match="leave needs scheme tree"):
        hitables.compile(rules(), leave="fail2ban", scheme="paper")


def test_a_chain_that_is_left_cannot_be_asked_for() -> None:
    text = rules()
    for command in (hitables.check, hitables.diff):
        with pytest.raises(InvalidOption, match="chain f2b-sshd is left to another program"):
            command(text, text, leave="fail2ban", chains="f2b-sshd")
    with pytest.raises(InvalidOption, match="chain f2b-sshd is left to another program"):
        hitables.lint(text, leave="fail2ban", chains="f2b-sshd")


def test_other_chains_are_not_compared_if_they_are_left() -> None:
    now = (
        rules().replace(BANS.format(1), BANS.format(2) + BANS.format(3)).replace("--dports 22", "--dports 23")
    )
    assert hitables.check(rules(), now).cases[0].answer.__class__.__name__ == "Difference"
    assert all(
        isinstance(case.answer, Equal) for case in hitables.check(rules(), now, leave="fail2ban").cases
    )
    assert not hitables.diff(rules(), now, leave="fail2ban").regions
    changed = now.replace("--dport 7 ", "--dport 70 ")
    assert hitables.diff(rules(), changed, leave="fail2ban").regions


def test_lint_says_nothing_of_chains_that_are_left() -> None:
    text = rules().replace("COMMIT\n", "-A f2b-sshd -s 1.2.3.4/32 -j DROP\n:f2b-old -\nCOMMIT\n")
    named = {flaw.chain for flaw in hitables.lint(text).flaws}
    assert {"f2b-sshd", "f2b-old"} <= named
    assert not hitables.lint(text, leave="fail2ban").flaws


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("DOCKER", "docker"), ("DOCKER-ISOLATION-STAGE-1", "docker"), ("f2b-sshd", "fail2ban"),
        ("KUBE-SVC-ERIFXISQEP7F7OF4", "kube"), ("cali-FORWARD", "calico"), ("LIBVIRT_INP", "libvirt"),
        ("LIBVIRT_FWI", "libvirt"), ("libvirt-in-post", "libvirt"), ("libvirt-host-in", "libvirt"),
        ("FI-vnet0", "libvirt"), ("HJ-vnet12", "libvirt"),
        ("CNI-FORWARD", "cni"), ("CNI-DN-1abb70b64f54bf384ceeb", "cni"), ("CNI-HOSTPORT-MASQ", "cni"),
        ("NETAVARK_FORWARD", "podman"), ("NETAVARK_ISOLATION_3", "podman"), ("NETAVARK-HOSTPORT-DNAT", "podman"),
        ("NETAVARK-DN-1D8721804F16F", "podman"), ("NETAVARK-1D8721804F16F", "podman"),
        ("ufw-user-input", "ufw"), ("INPUT_ZONES", "firewalld"), ("CROWDSEC_CHAIN", "crowdsec"),
        ("nm-sh-in-eth1", "networkmanager"), ("nm-sh-fwYnIgMQ==", "networkmanager"),
        ("MINIUPNPD", "miniupnpd"), ("MINIUPNPD-POSTROUTING", "miniupnpd"), ("sshguard", "sshguard"),
        ("ts-input", "tailscale"), ("ts-postrouting", "tailscale"), ("PSAD_BLOCK_INPUT", "psad"),
        ("FWKNOP_MASQUERADE", "fwknop"), ("FLANNEL-POSTRTG", "flannel"),
        ("sshuttle-12300", "sshuttle"), ("neutron-openvswi-sg-chain", "neutron"),
        ("opensnitch-filter-OUTPUT", "opensnitch"), ("FORWARD-ocserv-fw-vpns0", "ocserv"),
        ("INPUT-ocserv-fw-vpns0", "ocserv"),
        ("PVEFW-HOST-IN", "proxmox"), ("CILIUM_POST_nat", "cilium"), ("OLD_CILIUM_FORWARD", "cilium"),
    ],
)  # fmt: skip
def test_presets_know_the_chains_of_their_programs(name: str, preset: str) -> None:
    assert is_foreign(name, patterns_of([preset]))
    program = hitables.read(f"*filter\n:INPUT ACCEPT [0:0]\n:{name} - [0:0]\n-A INPUT -j {name}\nCOMMIT\n")
    assert recognised(program) == [preset]
    assert recognised(program, patterns_of([preset])) == []
    for chain in ("INPUT", "web", "docker_web", "LOGDROP", "FI-web", "libvirt-web"):
        assert not is_foreign(chain, patterns_of(PRESETS))


def test_podman_has_the_chains_of_cni_too_which_tell_of_cni_alone() -> None:
    assert is_foreign("CNI-HOSTPORT-DNAT", patterns_of(["podman"]))
    both = ":CNI-FORWARD - [0:0]\n:NETAVARK_FORWARD - [0:0]\n"
    program = hitables.read(f"*filter\n:INPUT ACCEPT [0:0]\n{both}COMMIT\n")
    assert recognised(program) == ["cni", "podman"] and not recognised(program, patterns_of(["podman"]))
    assert recognised(program, patterns_of(["cni"])) == ["podman"]


@pytest.mark.parametrize("name", ["tap100i0-IN", "veth101i1-OUT", "fwbr100v3-FW", "GROUP-web-servers-IN"])
def test_chains_of_guests_and_groups_are_those_of_proxmox(name: str) -> None:
    assert is_foreign(name, patterns_of(["proxmox"]))


def test_chains_of_groups_alone_are_not_taken_for_those_of_proxmox() -> None:
    lone = "*filter\n:INPUT ACCEPT [0:0]\n:GROUP-A-IN - [0:0]\nCOMMIT\n"
    assert recognised(hitables.read(lone)) == []


def test_chains_by_zone_alone_are_not_taken_for_those_of_firewalld() -> None:
    """arno-iptables-firewall and apf call chains so, too."""
    lone = "*filter\n:INPUT ACCEPT [0:0]\n:POST_INPUT - [0:0]\n:IN_SANITY - [0:0]\nCOMMIT\n"
    assert recognised(hitables.read(lone)) == []
    assert recognised(hitables.read(lone.replace("COMMIT", ":INPUT_direct - [0:0]\nCOMMIT"))) == ["firewalld"]
    assert is_foreign("IN_public_allow", patterns_of(["firewalld"]))


MODULES = "integrations/ansible_collections/hitables/firewall/plugins/modules"


@pytest.mark.parametrize(
    "page",
    [
        *("hitables/cli/options.py", "sflgen/cli/state.py", "docs/operations.md"),
        *(f"{MODULES}/{module}.py" for module in ("apply", "check", "compile")),
    ],
)
def test_every_preset_is_named_where_the_option_is_explained(page: str) -> None:
    words = (Path(__file__).parents[2] / page).read_text().replace("`", "").replace('"', "").split()
    *others, last = PRESETS
    listed = f"{', '.join(others)}(,| and| or) {last}"
    missing = [name for name in PRESETS if not {name, f"{name},", f"{name}.", f"{name};"} & set(words)]
    assert re.search(listed, " ".join(words)), (
        f"{page} must name the presets of hitables/ir/foreign.py in its order: {', '.join(PRESETS)}"
        f" (it does not name {missing})"
    )


# What firewalld 2.3 makes with FirewallBackend=iptables, for one zone; StrictForwardPorts=yes adds *_dnat, and
# versions before 2.0 have _pre and _post behind *_POLICIES.  Version 2.5 has *_dispatch in their place; what these
# enter has a random name if its own is longer than 28 letters.
FIREWALLD = (
    "*filter\n-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -j INPUT_dnat\n"
    "-A INPUT -j INPUT_direct\n-A INPUT -j INPUT_POLICIES\n"
    "-A FORWARD -j FORWARD_direct\n-A FORWARD -j RFC3964_IPv4\n-A FORWARD -j FORWARD_POLICIES_pre\n"
    "-A OUTPUT -j OUTPUT_direct\n-A OUTPUT -j OUTPUT_POLICIES\n-A OUTPUT -j OUTPUT_POLICIES_post\n"
    "-A INPUT_POLICIES -j IN_public\n-A IN_public -j IN_public_allow\n"
    "-A OUTPUT_POLICIES -j OUT_public\n-A OUT_public -j OUT_public_post\nCOMMIT\n"
    "*nat\n-A PREROUTING -j PREROUTING_POLICIES\n-A POSTROUTING -j POSTROUTING_POLICIES\nCOMMIT\n"
)
FIREWALLD_2_5 = (
    "*filter\n-A INPUT -j INPUT_dispatch\n-A FORWARD -j FORWARD_dispatch\n-A OUTPUT -j OUTPUT_dispatch\n"
    "-A INPUT_dispatch -j IN_public_to_HOST\n-A FORWARD_dispatch -j FWD_public_dispatch_stage2\n"
    "-A FWD_public_dispatch_stage2 -j FWD_public_to_public\n-A OUTPUT_dispatch -j OUT_HOST_to_public\nCOMMIT\n"
    "*nat\n-A PREROUTING -j PREROUTING_dispatch\n-A PREROUTING_dispatch -j PRE_public_dispatch\n"
    "-A POSTROUTING -j POSTROUTING_dispatch\n-A POSTROUTING_dispatch -j POST_public_dispatch_stage2\nCOMMIT\n"
)


@pytest.mark.parametrize("made", [FIREWALLD, FIREWALLD_2_5], ids=["2.3", "2.5"])
def test_the_preset_of_firewalld_has_every_chain_of_its_iptables_backend(made: str) -> None:
    entered = set(re.findall(r"-j (\S+)", made)) - {"ACCEPT"}
    assert {name for name in entered if not is_foreign(name, patterns_of(["firewalld"]))} == set()


def test_chains_of_firewalld_with_random_names_stay_because_its_dispatch_enters_them() -> None:
    kernel = (
        "*filter\n:INPUT ACCEPT [0:0]\n:INPUT_dispatch - [0:0]\n:n8bJmfvLU3BspRKw42dKCYsjuOw8 - [0:0]\n"
        "-A INPUT -j INPUT_dispatch\n-A INPUT_dispatch -j n8bJmfvLU3BspRKw42dKCYsjuOw8\nCOMMIT\n"
    )
    patterns = patterns_of(["firewalld"])
    wanted = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p icmp -j DROP\nCOMMIT\n"
    result = merge(parse(wanted), parse(kernel), lambda name: is_foreign(name, patterns))
    assert result.tables["filter"]["INPUT"].bodies == ["-j INPUT_dispatch", "-p icmp -j DROP"]
    assert result.left["filter"] == {"INPUT_dispatch", "n8bJmfvLU3BspRKw42dKCYsjuOw8"}


@pytest.mark.parametrize("bridge", ["docker0", "br-dae8ec04885c"])
def test_the_rules_of_the_page_let_containers_through_where_docker_uses_nftables(bridge: str) -> None:
    page = (Path(__file__).parents[2] / "docs/faq.md").read_text()
    section = page[page.index("## Does it work beside docker") : page.index("## Beside fail2ban")]
    accepts = re.findall(r"^-A FORWARD .* -j ACCEPT\n", section, flags=re.MULTILINE)
    text = f"*filter\n:FORWARD DROP [0:0]\n{''.join(accepts)}COMMIT\n"
    out, into = f"in={bridge} out=eth0", f"in=eth0 out={bridge}"
    for packet, verdict in (
        (f"{out} state=NEW", "ACCEPT"),
        (f"{into} state=ESTABLISHED", "ACCEPT"),
        (f"{into} state=NEW+DNAT", "ACCEPT"),
        (f"{into} state=NEW", "DROP"),
    ):
        ends = "src=192.0.2.1 dst=192.0.2.2 proto=tcp sport=999 dport=80"
        assert hitables.trace(text, f"chain=FORWARD {packet} {ends}").verdict == verdict, packet


# What the bound on table filter relies on.

REWRITING = (
    "-p tcp -j DNAT --to-destination 10.0.0.1", "-j SNAT --to-source 10.0.0.1", "-j MASQUERADE",
    "-p tcp -j REDIRECT --to-ports 80", "-j NETMAP --to 10.1.0.0/16", "-j CT --notrack",
    "-p tcp -j TPROXY --on-port 80",
)  # fmt: skip


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", list(Backend))
@pytest.mark.parametrize("rule", REWRITING)
def test_the_kernel_refuses_targets_in_table_filter_that_change_addresses_or_connections(
    rule: str, backend: Backend
) -> None:
    from hitables.ir.fields import Family

    with Namespace() as namespace, pytest.raises(LiveError):
        text = f"*filter\n:INPUT ACCEPT [0:0]\n:f2b-x - [0:0]\n-A INPUT -j f2b-x\n-A f2b-x {rule}\nCOMMIT\n"
        load(text, Family.IPV4, backend, namespace)


# Merging.


def merged(wanted: str, kernel: str) -> tuple[list[str], list[str]]:
    """The rules of INPUT, and the notes."""
    result = merge(parse(wanted), parse(kernel), lambda name: name.startswith("f2b"))
    return result.tables["filter"]["INPUT"].bodies, result.notes


def test_jumps_to_chains_of_others_are_those_of_the_kernel() -> None:
    head = "*filter\n:INPUT ACCEPT [0:0]\n"
    own = "-A INPUT -s 10.0.0.1/32 -j DROP\n-A INPUT -s 10.0.0.2/32 -j DROP\n"
    chain = ":f2b-a - [0:0]\n"
    one, two = "-s 10.0.0.1/32 -j DROP", "-s 10.0.0.2/32 -j DROP"
    # Inserted in front, or behind a rule that both have; or behind all rules.
    front = f"{head}{chain}-A INPUT -j f2b-a\n{own}COMMIT\n"
    assert merged(f"{head}{own}COMMIT\n", front)[0] == ["-j f2b-a", one, two]
    behind = f"{head}{chain}-A INPUT -s 10.0.0.1/32 -j DROP\n-A INPUT -j f2b-a\n"
    assert merged(f"{head}{own}COMMIT\n", f"{behind}-A INPUT -j DROP\nCOMMIT\n")[0] == [one, "-j f2b-a", two]
    assert merged(f"{head}{own}COMMIT\n", f"{behind}COMMIT\n")[0] == [one, two, "-j f2b-a"]
    # One that both have stays where the file has it; one to a chain that is gone is left out.
    both = f"{head}{chain}{own}-A INPUT -j f2b-a\nCOMMIT\n"
    assert merged(both, front)[0] == [one, two, "-j f2b-a"]
    bodies, notes = merged(both, f"{head}{own}COMMIT\n")
    assert bodies == [one, two]
    assert "does not exist now" in notes[0]
    # The note names a chain once.
    twice = f"{head}{chain}-A INPUT -p tcp -j f2b-a\n-A INPUT -p udp -j f2b-a\n{own}COMMIT\n"
    _, notes = merged(f"{head}{own}COMMIT\n", twice)
    assert notes == ["table filter, chain INPUT: kept, the jumps of others to f2b-a"]


def test_random_changes_of_others_lose_nothing_of_either() -> None:
    """The own rules keep their order, and the jumps of others keep theirs."""
    for seed in range(200):
        rng = random.Random(seed)
        own = [f"-s 10.0.0.{n}/32 -j DROP" for n in range(rng.randrange(6))]
        jumps = [f"-s 10.9.0.{n}/32 -j f2b-a" for n in range(rng.randrange(4))]
        kernel = list(own)
        for jump in jumps:
            kernel.insert(rng.randint(0, len(kernel)), jump)
        wanted = [rule for rule in own if rng.random() < 0.7] + ["-j ACCEPT"] * rng.randrange(2)

        def text(bodies: list[str]) -> str:
            lines = "".join(f"-A INPUT {body}\n" for body in bodies)
            return f"*filter\n:INPUT ACCEPT [0:0]\n:f2b-a - [0:0]\n{lines}COMMIT\n"

        bodies, _ = merged(text(wanted), text(kernel))
        assert [body for body in bodies if "f2b" not in body] == wanted
        assert sorted(body for body in bodies if "f2b" in body) == sorted(jumps)


# Applying.


def own_of(text: str) -> str:
    return plain("".join(line for line in text.splitlines(keepends=True) if "f2b" not in line))


@pytest.mark.needs_kernel
def test_a_ban_program_works_beside_applies_and_rollbacks(firewall: Firewall) -> None:
    """The commands of fail2ban: start, ban, unban, stop; each succeeds whatever is applied meanwhile."""
    plain_rules = re.sub(r".*f2b.*\n", "", rules())
    path = firewall.file(plain_rules)
    firewall.apply(path, "--leave", "fail2ban")
    firewall.iptables("-N", "f2b-sshd")
    firewall.iptables("-A", "f2b-sshd", "-j", "RETURN")
    jump = ("INPUT", "-p", "tcp", "-m", "multiport", "--dports", "22", "-j", "f2b-sshd")
    firewall.iptables("-I", *jump)
    firewall.iptables("-I", "f2b-sshd", "1", "-s", "192.0.2.1", "-j", "DROP")
    changed = firewall.file(plain_rules.replace("--dport 7 ", "--dport 70 "))
    done = firewall.apply(changed, "--leave", "fail2ban")
    assert "kept, the jumps of others to f2b-sshd" in done.stderr
    firewall.iptables("-C", *jump)
    firewall.iptables("-I", "f2b-sshd", "1", "-s", "192.0.2.2", "-j", "DROP")
    firewall.hitables("rollback")  # to rules from before that ban
    assert "--dport 7 " in firewall.save()
    for address in ("192.0.2.1", "192.0.2.2"):
        firewall.iptables("-D", "f2b-sshd", "-s", address, "-j", "DROP")
    assert "holds rule set" in firewall.hitables("status").stdout
    firewall.iptables("-D", *jump)
    firewall.iptables("-F", "f2b-sshd")
    firewall.iptables("-X", "f2b-sshd")
    firewall.hitables("rollback", 3)
    assert "f2b" not in firewall.save()
    assert "--dport 70 " in firewall.save()


@pytest.mark.needs_kernel
def test_jumps_in_other_spellings_are_the_jumps_of_the_kernel(firewall: Firewall) -> None:
    """With a second one a chain could not be deleted when its program ends."""
    spellings = [
        "-p tcp --dport ssh",
        "-p 6 -m tcp --dport 23",
        "-m tcp -p tcp --syn --dport 24",
        "-s 10.0.0.5/255.255.255.255 -m limit --limit 120/hour",
    ]
    jumps = [f"{words} -j f2b-{number}" for number, words in enumerate(spellings)]
    for number, jump in enumerate(jumps):
        firewall.iptables("-N", f"f2b-{number}")
        firewall.iptables("-A", "INPUT", *jump.split())
    chains = "".join(f":f2b-{number} -\n" for number in range(len(jumps)))
    rules = "".join(f"-A INPUT {jump}\n" for jump in jumps)
    text = f"*filter\n:INPUT ACCEPT [0:0]\n{chains}{rules}-A INPUT -s 10.0.0.1 -j DROP\nCOMMIT\n"
    firewall.apply(firewall.file(text), "--leave", "fail2ban")
    assert firewall.save().count("-j f2b-") == len(jumps)
    firewall.hitables("status")
    for number, jump in enumerate(jumps):
        firewall.iptables("-D", "INPUT", *jump.split())
        firewall.iptables("-X", f"f2b-{number}")


@pytest.mark.needs_kernel
def test_a_rollback_to_a_rule_set_from_before_a_program_came_leaves_its_chains_for_good(
    firewall: Firewall,
) -> None:
    plain_rules = re.sub(r".*f2b.*\n", "", rules())
    firewall.apply(firewall.file(plain_rules))
    firewall.iptables("-N", "f2b-sshd")
    firewall.iptables("-I", "INPUT", "-j", "f2b-sshd")
    done = firewall.apply(firewall.file(plain_rules.replace("DROP", "ACCEPT")), "--leave", "fail2ban")
    assert "now by" not in done.stdout  # the jump is in both rule sets, so it changes no packet's way
    firewall.hitables("rollback")
    assert "the kernel holds rule set 2" in firewall.hitables("status").stdout
    firewall.iptables("-P", "FORWARD", "ACCEPT")
    firewall.hitables("status", status=1)
    firewall.hitables("status", "--repair")
    firewall.iptables("-C", "INPUT", "-j", "f2b-sshd")
    assert "the kernel holds rule set 2" in firewall.hitables("status").stdout


@pytest.mark.needs_kernel
def test_without_leave_the_chains_of_others_are_replaced_and_the_change_is_shown(firewall: Firewall) -> None:
    firewall.load(rules())
    path = firewall.file(re.sub(r".*f2b.*\n", "", rules()))
    assert "--leave fail2ban keeps them" in firewall.apply(path).stderr
    assert "f2b" not in firewall.save()


@pytest.mark.needs_kernel
def test_an_apply_that_only_leaves_more_chains_is_remembered(firewall: Firewall) -> None:
    """Nothing is loaded, and status and the repair know these chains from then on."""
    short = firewall.file("*filter\n:INPUT DROP [0:0]\n-A INPUT -s 10.0.0.0/8 -j ACCEPT\nCOMMIT\n")
    firewall.apply(short)
    firewall.iptables("-N", "f2b-sshd")
    firewall.iptables("-I", "INPUT", "-j", "f2b-sshd")
    assert "chains of fail2ban" in firewall.hitables("status", status=1).stdout
    would = firewall.apply(short, "--leave", "fail2ban", "--dry-run", status=1)
    assert "nothing to load" in would.stdout and "apply would record" in would.stdout
    shown = firewall.apply(short, "--leave", "fail2ban")
    assert (
        "nothing to load" in shown.stdout
        and "rule set 2 leaves chains f2b-* fail2ban-* alone" in shown.stderr
    )
    firewall.apply(short, "--leave", "fail2ban", "--dry-run", status=0)
    assert "the kernel holds rule set 2" in firewall.hitables("status").stdout
    firewall.hitables("status", "--repair")
    assert "-A INPUT -j f2b-sshd" in firewall.save()


@pytest.mark.needs_kernel
def test_apply_and_history_count_the_rules_that_are_not_of_others(tmp_path: Path) -> None:
    """The kernel has four rules of others: two jumps, and one rule of a chain that theirs enters."""
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        firewall.load(
            "*filter\n:KUBE-SERVICES - [0:0]\n:cali-INPUT - [0:0]\n:helper - [0:0]\n-A INPUT -j KUBE-SERVICES\n"
            "-A INPUT -j cali-INPUT\n-A KUBE-SERVICES -j helper\n-A helper -s 10.0.0.4/32 -j DROP\nCOMMIT\n"
        )
        path = firewall.file("*filter\n-A INPUT -s 10.9.9.9/32 -j DROP\nCOMMIT\n")
        said = firewall.apply(path, "--leave", "kube", "--leave", "calico").stdout
        assert "\n1 rule, 1 as loaded; chains: 0 new, 1 changed, 0 removed" in said
        assert re.findall(r"(\d+) rules?  ", firewall.hitables("history").stdout) == ["0", "1"]


# Of the plugins portmap and firewall of CNI, for a container with a published port; netavark does the same.
CNI = """\
*nat
:PREROUTING ACCEPT [0:0]
:CNI-DN-1abb70b64f54bf384ceeb - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 8080 -j CNI-DN-1abb70b64f54bf384ceeb
-A CNI-DN-1abb70b64f54bf384ceeb -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.88.0.2:80
COMMIT
*filter
:FORWARD ACCEPT [0:0]
:CNI-FORWARD - [0:0]
-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
-A CNI-FORWARD -d 10.88.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A CNI-FORWARD -s 10.88.0.2/32 -j ACCEPT
COMMIT
"""


@pytest.mark.needs_kernel
def test_published_ports_of_cni_need_a_rule_for_dnat_where_the_policy_is_drop(tmp_path: Path) -> None:
    to_port = "chain=FORWARD in=eth0 out=cni0 src=192.0.2.9 dst=10.88.0.2 proto=tcp sport=9 dport=80"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        firewall.load(CNI)
        for rule, verdict in (("", "DROP"), ("-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT\n", "ACCEPT")):
            path = firewall.file(f"*filter\n:FORWARD DROP [0:0]\n{rule}COMMIT\n")
            firewall.apply(path, "--leave", "cni")
            loaded = firewall.file(firewall.save(), "loaded.rules")
            traced = firewall.hitables("trace", loaded, "--packet", f"{to_port} state=NEW+DNAT").stdout
            assert f"verdict: {verdict}" in traced


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
def test_chains_that_an_apply_removes_are_named_unless_they_are_its_own(
    tmp_path: Path, backend: Backend
) -> None:
    own = "*filter\n:web - [0:0]\n:INPUT ACCEPT [0:0]\n-A INPUT -j web\n" + "".join(
        f"-A web -s 10.{n % 7}.{n}.0/24 -j DROP\n" for n in range(60)
    )
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.load(
            "*filter\n:guard - [0:0]\n:ports - [0:0]\n:f2b-sshd - [0:0]\n-A INPUT -j guard\nCOMMIT\n"
        )
        first = firewall.file(own + "COMMIT\n", "first.rules")
        said = firewall.apply(first, "--leave", "ports").stderr
        assert (
            f"table filter: chains of the kernel that {first} lacks are removed: guard.  --leave NAME" in said
        )
        assert "the kernel has chains of fail2ban" in said
        second = firewall.file("*filter\n-A INPUT -s 10.0.0.2/32 -j DROP\nCOMMIT\n", "second.rules")
        assert "lacks are removed" not in firewall.apply(second, "--leave", "ports").stderr


@pytest.mark.needs_kernel
def test_chains_of_docker_are_named_if_the_rules_replace_them_and_only_then(tmp_path: Path) -> None:
    warning = "warning: the kernel has chains of docker, which these rules replace; --leave docker keeps them"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        firewall.load("*filter\n:DOCKER - [0:0]\n-A DOCKER -s 10.0.0.1/32 -j ACCEPT\nCOMMIT\n")
        with_docker, nat = firewall.file(firewall.save(), "with.rules"), "*nat\n-A OUTPUT -j ACCEPT\nCOMMIT\n"
        assert warning not in firewall.apply(with_docker).stderr
        assert warning not in firewall.apply(firewall.file(nat, "nat.rules")).stderr
        without = firewall.file("*filter\n-A INPUT -s 10.0.0.2/32 -j DROP\nCOMMIT\n", "without.rules")
        assert warning in firewall.hitables("apply", without, "--dry-run", status=1).stderr
