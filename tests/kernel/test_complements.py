"""What the table says of a "!": the match with it and the match without it count exactly the other packets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain as row
from itertools import product

import pytest
from support.kernel_packets import HOOKS as FILTER_HOOKS
from support.kernel_packets import counts, varied_trials
from support.small_namespace import Namespace

import hitables
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.rule import Match
from hitables.kernel.experiment import furnish, prepare, send_trials
from hitables.kernel.namespace import run
from hitables.syntax.extensions import MATCHES

BOTH = (Family.IPV4, Family.IPV6)
HOOKS = (*FILTER_HOOKS, "POSTROUTING")  # of table mangle

# By family and chains: the words before the sign, and behind it.
MATCHED = [
    *((BOTH, HOOKS, "mark", f"--mark {mark}") for mark in ("5", "0x4/0x4", "0/0", "5/3")),
    *((BOTH, HOOKS, "length", f"--length {length}") for length in ("0:80", "84", "100:65535")),
    *((BOTH, HOOKS, "addrtype", f"--{side}-type {type_}") for side, type_ in product(("src", "dst"), (
        "LOCAL", "UNICAST", "LOCAL,MULTICAST"))),
    (BOTH, ("INPUT", "FORWARD"), "addrtype --limit-iface-in", "--dst-type LOCAL"),
    (BOTH, ("OUTPUT", "FORWARD"), "addrtype --limit-iface-out", "--dst-type LOCAL"),
    *((BOTH, HOOKS, "pkttype", f"--pkt-type {type_}") for type_ in ("unicast", "multicast", "broadcast")),
    *((BOTH, HOOKS, "tos", f"--tos {tos}") for tos in ("0x10", "0x10/0x10", "0")),
    *((BOTH, HOOKS, "dscp", f"--dscp {dscp}") for dscp in ("0", "4")),
    (BOTH, HOOKS, "dscp", "--dscp-class EF"),
    *((BOTH, HOOKS, "helper", f"--helper {helper}") for helper in ("ftp", '""')),
    *((BOTH, HOOKS, "set", f"--match-set a {side}") for side in ("src", "dst")),
    (BOTH, HOOKS, "set --return-nomatch", "--match-set a src"),
    (BOTH, HOOKS, "string --algo bm", "--string AB"),
    (BOTH, HOOKS, "string --algo kmp --from 4 --to 30 --icase", '--hex-string "|00|"'),
    (BOTH, HOOKS, "u32", '--u32 "0>>16&0xFF=0x10"'),
    (BOTH, HOOKS, "u32", '--u32 "400=0"'),
    (BOTH, ("OUTPUT", "POSTROUTING"), "owner", "--uid-owner 1234"),
    (BOTH, ("OUTPUT", "POSTROUTING"), "owner", "--gid-owner 0"),
    (BOTH, ("OUTPUT", "POSTROUTING"), "owner", "--socket-exists"),
    ((Family.IPV4,), HOOKS, "realm", "--realm 0"),
    ((Family.IPV4,), HOOKS, "realm", "--realm 1/3"),
    *(((Family.IPV4,), HOOKS, "ttl", f"--ttl-eq {ttl}") for ttl in (3, 64)),
    *(((Family.IPV6,), HOOKS, "hl", f"--hl-eq {ttl}") for ttl in (3, 64)),
]  # fmt: skip


def texts(family: Family, chain: str) -> list[str]:
    """The pairs of matches, without a "!" and with it."""
    pairs = [
        (f"-m {lead} {option}", f"-m {lead} ! {option}")
        for families, chains, lead, option in MATCHED
        if family in families and chain in chains
    ]
    return list(row.from_iterable(pairs))


def parsed(family: Family, chain: str) -> Iterator[Match]:
    rules = "".join(f"-A {chain} {text}\n" for text in texts(family, chain))
    program = hitables.read(f"*mangle\n{rules}COMMIT\n", family=family)
    return (rule.matches[0] for rule in program.table("mangle")[chain].rules)


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("chain", HOOKS)
def test_a_negated_match_names_the_match_that_it_negates(family: Family, chain: str) -> None:
    matches = list(parsed(family, chain))
    for plain, negated in zip(matches[::2], matches[1::2], strict=True):
        assert plain.negates == "" and negated.negates == plain.key != negated.key


def test_every_option_that_the_table_names_is_tried() -> None:
    tried = {(lead.split()[0], option.split()[0]) for _, _, lead, option in MATCHED}
    said = {(name, option) for name, extension in MATCHES.items() for option in extension.complements}
    assert tried == said


def sets(version: str) -> None:
    run(["ipset", "create", "a", "hash:net", "family", version])
    run(["ipset", "create", "ap", "hash:ip,port", "family", version])
    nets = ("10.0.0.0/25", "10.0.0.0/30") if version == "inet" else ("2001::/127", "2001::4/126")
    run(["ipset", "add", "a", nets[0]])
    run(["ipset", "add", "a", nets[1], "nomatch"])


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("chain", HOOKS)
def test_a_negated_match_counts_the_other_packets(chain: str, family: Family, backend: Backend) -> None:
    pairs, sent = texts(family, chain), varied_trials(family, chain)
    # These are no complements: no conntrack entry, no match; and the other one, no socket, no match.
    groups = (
        "-m owner ! --gid-owner 99 --suppl-groups" if chain == "POSTROUTING" else "-m connmark ! --mark 7"
    )
    rules = ["", *pairs, groups.replace("! ", ""), groups]
    with Namespace() as namespace:
        namespace.call(sets, "inet" if family is Family.IPV4 else "inet6")
        text = "*mangle\n" + "".join(f"-A {chain} {rule}\n" for rule in rules) + "COMMIT\n"
        tool = "iptables" if family is Family.IPV4 else "ip6tables"
        namespace.call(run, [f"{tool}-{backend.value}-restore"], text)
        furnish(namespace, family, ("eth0", "eth1"))
        prepare(namespace, "mangle", chain, sent, True)
        assert all(result.arrived for result in send_trials(namespace))
        whole, *counted = counts(family, backend, namespace)
    assert whole == len(sent)
    *counted, without_sign, with_sign = counted
    for text, plain, negated in zip(pairs[::2], counted[::2], counted[1::2], strict=True):
        assert plain + negated == whole, text
    assert without_sign + with_sign < whole, "so this test can fail"
    assert sum(0 < plain < whole for plain in counted[::2]) > 10, "the packets differ in what is asked"
