"""Matches of the connection to which a packet belongs, and of its marks and labels."""

from __future__ import annotations

from ...ir.fields import Family
from ...ir.rule import Role
from .. import numbers as compare
from .. import readers as read
from .. import values as spelt
from .. import writers as write
from ..canonical import NOTHING, Form, Options
from ..extension import match
from ..numbers import Missing

_PORTS = "--sport=--source-port:any! --dport=--destination-port:any!"


def _label(words: tuple[str, ...], family: Family) -> str:
    name = write.numbers_in_file("/etc/xtables/connlabel.conf").get(words[0])
    return write.number(16)(words, family) if name is None else str(name)


_CT_STATES = ("INVALID", "NEW", "ESTABLISHED", "RELATED", "UNTRACKED", "SNAT", "DNAT")


_CT_STATUS = ("NONE", "EXPECTED", "SEEN_REPLY", "ASSURED", "CONFIRMED")


def _canonical_connlimit(options: Options, family: Family) -> None:
    for option, other in (
        ("--connlimit-above", "--connlimit-upto"),
        ("--connlimit-upto", "--connlimit-above"),
    ):
        if options.get(option, (False, ""))[0]:
            options[other] = False, options.pop(option)[1]
            break
    options.setdefault("--connlimit-mask", (False, str(write.address_bits(family))))
    if "--connlimit-daddr" not in options:
        options["--connlimit-saddr"] = False, NOTHING


def _canonical_connbytes(options: Options, family: Family) -> None:
    inverted, text = options["--connbytes"]
    if inverted and ":" not in text:  # not between N and N is written as between N and N
        options["--connbytes"] = False, text


_CT_PORTS = {
    f"--ct{which}port": write.ports(spelt.decimal_port)
    for which in ("origsrc", "origdst", "replsrc", "repldst")
}


_CT_HOSTS = {f"--ct{which}": write.network for which in ("origsrc", "origdst", "replsrc", "repldst")}


MATCHES = (
    match(
        "connbytes",
        "--connbytes:ordered64! --connbytes-dir:bytesdir --connbytes-mode:bytesmode",
        need="--connbytes | --connbytes-dir | --connbytes-mode",
        reads="CT",
        source="netfilter/xt_connbytes.c",
        form=Form({"--connbytes": write.span(64, open_ended=True)}, whole=_canonical_connbytes),
        tracks=True,
    ),
    match(
        "connlabel",
        "--label:label! --set",
        counting="--set",
        need="--label",
        reads="CT LABELS",
        writes_with={"--set": "LABELS"},
        source="netfilter/xt_connlabel.c",
        form=Form({"--label": _label}),
        tracks=True,
    ),
    match(
        "connlimit",
        "--connlimit-upto:u32! --connlimit-above:u32! --connlimit-mask:mask --connlimit-saddr "
        "--connlimit-daddr",
        role=Role.ONCE,
        one="--connlimit-upto --connlimit-above | --connlimit-saddr --connlimit-daddr",
        need="--connlimit-upto --connlimit-above",
        reads="*",
        source="netfilter/xt_connlimit.c",
        form=Form(
            {
                "--connlimit-upto": write.u32,
                "--connlimit-above": write.u32,
                "--connlimit-mask": write.prefix_mask,
            },
            whole=_canonical_connlimit,
        ),
        tracks=True,
    ),
    match(
        "connmark",
        "--mark:mark!",
        need="--mark",
        reads="CT CONNMARK",
        source="netfilter/xt_connmark.c",
        form=Form({"--mark": write.mark}),
        tracks=True,
        # Without a conntrack entry --mark and ! --mark both fail.
        numbers={"--mark": compare.masked("connmark", missing=Missing.FAILS)},
    ),
    match(
        "conntrack",
        "--ctstate:any! --ctproto:protocol! --ctorigsrc:net! --ctorigdst:net! --ctreplsrc:net! "
        "--ctrepldst:net! --ctorigsrcport:ports! --ctorigdstport:ports! --ctreplsrcport:ports! "
        "--ctrepldstport:ports! --ctstatus:status! --ctexpire:range32! --ctdir:ctdir",
        role=Role.SPACE,
        readers={"--ctstate": read.state_test("SNAT", "DNAT")},
        need=(
            "--ctstate --ctproto --ctorigsrc --ctorigdst --ctreplsrc --ctrepldst --ctorigsrcport "
            "--ctorigdstport --ctreplsrcport --ctrepldstport --ctstatus --ctexpire --ctdir"
        ),
        reads="CT",
        source="netfilter/xt_conntrack.c",
        form=Form(
            {
                "--ctstate": write.names_of(_CT_STATES),
                "--ctproto": write.protocol,
                "--ctstatus": write.names_of(_CT_STATUS, no_more="NONE"),
                "--ctexpire": write.span(32),
                "--ctdir": write.upper_case("ORIGINAL", "REPLY"),
                **_CT_HOSTS,
                **_CT_PORTS,
            }
        ),
        tracks=True,
    ),
    match(
        "helper",
        "--helper:any!",
        need="--helper",
        reads="CT",
        complements="--helper",
        source="netfilter/xt_helper.c",
    ),
    match(
        "ipvs",
        "--ipvs! --vproto:protocol! --vaddr:net! --vport:port! --vdir:vdir --vmethod:vmethod! "
        "--vportctl:port!",
        need="--ipvs --vproto --vaddr --vport --vdir --vmethod --vportctl",
    ),
    match(
        "state",
        "--state:any!",
        role=Role.SPACE,
        required="--state",
        readers={"--state": read.state_test()},
        reads="CT",
        source="netfilter/xt_conntrack.c",
        tracks=True,
    ),
)
