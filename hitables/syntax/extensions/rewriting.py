"""Targets that change header fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.fields import Family
from ...ir.rule import Ends
from .. import number_checks as numeric
from .. import numbers as make
from .. import values as spelt
from .. import writers as write
from ..canonical import NOTHING, Form, Options, OptionUse
from ..extension import LEAVING, MANGLE, Uses, target

_TCP_OPTIONS = {"wscale": 3, "mss": 2, "sack-permitted": 4, "sack": 5, "timestamp": 8, "md5": 19}


def _tcp_options(words: tuple[str, ...], family: Family) -> str:
    read = (_TCP_OPTIONS[w] if w in _TCP_OPTIONS else spelt.number(w, 2, 255) for w in words[0].split(","))
    return ",".join(map(str, sorted(read)))


def _canonical_dscp(options: Options, family: Family) -> None:
    write.renamed(options, "--set-dscp-class", "--set-dscp")


def _canonical_tcpmss(options: Options, family: Family) -> None:
    """The last of the two options counts; the greatest size means clamping."""
    if {"--set-mss", "--clamp-mss-to-pmtu"} <= set(options):
        del options[next(iter(options))]
    if options.get("--set-mss") == (False, "65535"):
        del options["--set-mss"]
        options["--clamp-mss-to-pmtu"] = False, NOTHING


def _canonical_tos(options: Options, family: Family) -> None:
    operations: dict[str, Callable[[int], tuple[int, int]]] = {
        "--and-tos": lambda value: (0, ~value & 0xFF),
        "--or-tos": lambda value: (value, value),
        "--xor-tos": lambda value: (value, 0),
    }
    for option, change in operations.items():
        if option in options:
            if "--set-tos" in options:
                raise ValueError("two ways to set it")
            value, mask = change(int(options.pop(option)[1]))
            options["--set-tos"] = False, f"{value:#04x}/{mask:#04x}"


def _check_segment_size(uses: Uses, family: Family) -> None:
    if "--set-mss" in uses and family is Family.IPV6:
        numeric.number(uses["--set-mss"][0][1][0], family, 0, 65495)


def _ecn_in_force(uses: Sequence[OptionUse]) -> Sequence[OptionUse]:
    """--ecn-tcp-remove cancels the options before it."""
    places = [place for place, use in enumerate(uses) if use.option == "--ecn-tcp-remove"]
    return uses[places[-1] :] if places else uses


TARGETS = (
    target(
        "CHECKSUM",
        "--checksum-fill",
        ends=Ends.MAYBE,
        need="--checksum-fill",
        scope=MANGLE,
        writes="CHECKSUM",
        source="netfilter/xt_CHECKSUM.c",
    ),
    target(
        "DSCP",
        "--set-dscp:u8(0,63) --set-dscp-class:dscp",
        ends=Ends.MAYBE,
        one="--set-dscp --set-dscp-class",
        need="--set-dscp --set-dscp-class",
        scope=MANGLE,
        writes="TOS CHECKSUM",
        makes={"--set-dscp": make.replaced("tos", 8, 2)},
        source="netfilter/xt_DSCP.c",
        form=Form({"--set-dscp": write.dscp, "--set-dscp-class": write.dscp_class}, whole=_canonical_dscp),
    ),
    target(
        "ECN",
        "--ecn-tcp-remove --ecn-tcp-cwr:u8(0,1) --ecn-tcp-ece:u8(0,1) --ecn-ip-ect:u8(0,3)",
        ends=Ends.MAYBE,
        one="--ecn-tcp-remove --ecn-tcp-cwr | --ecn-tcp-remove --ecn-tcp-ece",
        need="--ecn-tcp-remove --ecn-tcp-cwr --ecn-tcp-ece --ecn-ip-ect",
        family=Family.IPV4,
        scope=MANGLE,
        option_protocols={"--ecn-tcp-remove": (6,), "--ecn-tcp-cwr": (6,), "--ecn-tcp-ece": (6,)},
        writes="TOS TCP CHECKSUM",
        source="ipv4/netfilter/ipt_ECN.c",
        form=Form(
            {"--ecn-tcp-cwr": write.u8, "--ecn-tcp-ece": write.u8, "--ecn-ip-ect": write.u8},
            in_force=_ecn_in_force,
        ),
    ),
    target(
        "HL",
        "--hl-set:u8 --hl-dec:u8(1,255) --hl-inc:u8(1,255)",
        ends=Ends.MAYBE,
        one="--hl-set --hl-dec --hl-inc",
        need="--hl-set --hl-dec --hl-inc",
        family=Family.IPV6,
        scope=MANGLE,
        writes="TTL",
        makes={"--hl-set": make.replaced("hl", 8)},
        source="netfilter/xt_HL.c",
        form=Form(write.TTL_VALUES),
    ),
    target(
        "TCPMSS",
        "--set-mss:u16(0,65515) --clamp-mss-to-pmtu",
        ends=Ends.MAYBE,
        need="--set-mss --clamp-mss-to-pmtu",
        option_scopes={"--clamp-mss-to-pmtu": LEAVING},
        option_protocols={"": (6,)},
        check=_check_segment_size,
        writes="TCP LENGTH CHECKSUM",
        source="netfilter/xt_TCPMSS.c",
        form=Form({"--set-mss": write.u16}, whole=_canonical_tcpmss),
    ),
    target(
        "TCPOPTSTRIP",
        "--strip-options:strip",
        ends=Ends.MAYBE,
        scope=MANGLE,
        option_protocols={"": (6,)},
        writes="TCP CHECKSUM",
        source="netfilter/xt_TCPOPTSTRIP.c",
        form=Form({"--strip-options": _tcp_options}),
    ),
    target(
        "TOS",
        "--set-tos:tos --and-tos:u8 --or-tos:u8 --xor-tos:u8",
        ends=Ends.MAYBE,
        one="--set-tos --and-tos --or-tos --xor-tos",
        need="--set-tos --and-tos --or-tos --xor-tos",
        scope=MANGLE,
        writes="TOS CHECKSUM",
        makes={"--set-tos": make.flipped("tos")},
        source="netfilter/xt_DSCP.c",
        form=Form(
            {
                "--set-tos": write.tos_byte(0x3F),
                "--and-tos": write.u8,
                "--or-tos": write.u8,
                "--xor-tos": write.u8,
            },
            whole=_canonical_tos,
        ),
    ),
    target(
        "TTL",
        "--ttl-set:u8 --ttl-dec:u8(1,255) --ttl-inc:u8(1,255)",
        ends=Ends.MAYBE,
        one="--ttl-set --ttl-dec --ttl-inc",
        need="--ttl-set --ttl-dec --ttl-inc",
        family=Family.IPV4,
        scope=MANGLE,
        writes="TTL CHECKSUM",
        makes={"--ttl-set": make.replaced("ttl", 8)},
        source="netfilter/xt_HL.c",
        form=Form(write.TTL_VALUES),
    ),
)
