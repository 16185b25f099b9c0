"""Targets that change marks, classes, labels, sets and the connection of a packet."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ...ir.fields import Family
from .. import numbers as make
from .. import values as spelt
from .. import writers as write
from ..canonical import NOTHING, Form, Options, OptionUse
from ..extension import LEAVING, Uses, scope, target

_CT_EVENTS = (
    "new", "related", "destroy", "reply", "assured", "protoinfo", "helper", "mark", "natseqinfo", "secmark",
)  # fmt: skip


def _class(words: tuple[str, ...], family: Family) -> str:
    major, minor = words[0].split(":")
    if not all(re.fullmatch(r"(0[xX])?[0-9a-fA-F]{1,16}", each) for each in (major, minor)):
        raise ValueError(f"not a class: {words[0]!r}")
    return f"{int(major, 16) & 0xFFFF:04x}:{int(minor, 16) & 0xFFFF:04x}"


def _zone(words: tuple[str, ...], family: Family) -> str:
    return "mark" if words[0].lower() == "mark" else str(spelt.number(words[0], 0, 65535))


def _canonical_ct(options: Options, family: Family) -> None:
    """Of several zones the last counts, or the one by mark; both directions are any; 0 is what all have."""
    if "--notrack" in options:  # the kernel looks at nothing else then
        options.clear()
        options["--notrack"] = False, NOTHING
    zones = {option: options.pop(option)[1] for option in list(options) if option.startswith("--zone")}
    if not zones:
        return
    directions = set(zones) - {"--zone"}
    zone = "mark" if "mark" in zones.values() else list(zones.values())[-1]
    if zone != "0":
        options[min(directions) if len(directions) == 1 else "--zone"] = False, zone


# Value and mask as --set-xmark has them.
_SET_MARKS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "--set-xmark": lambda value, mask: (value, mask),
    "--set-mark": lambda value, mask: (value, value | mask),
    "--and-mark": lambda value, mask: (0, ~value & 0xFFFFFFFF),
    "--or-mark": lambda value, mask: (value, value),
    "--xor-mark": lambda value, mask: (value, 0),
}


def _canonical_mark(options: Options, family: Family) -> None:
    """--set-mark, --and-mark, --or-mark, --xor-mark as the --set-xmark that they are."""
    (option,) = set(_SET_MARKS) & set(options)
    value, mask = _SET_MARKS[option](*write.value_and_mask(options.pop(option)[1]))
    options["--set-xmark"] = False, f"{value:#x}/{mask:#x}"


def _canonical_connmark(options: Options, family: Family) -> None:
    """As MARK; a mask behind the value replaces the mask of the value, a mask before it is ignored."""
    order = list(options)
    masks = [option for option in order if option in ("--mask", "--nfmask", "--ctmask")]
    if "--mask" in masks and len(masks) > 1:
        raise ValueError("two masks")
    if setting := set(_SET_MARKS) & set(options):
        place = order.index(next(iter(setting)))
        mask_texts = {option: options.pop(option)[1] for option in masks}
        _canonical_mark(options, family)
        for option, text in mask_texts.items():
            if option != "--nfmask" and order.index(option) > place:
                value = options["--set-xmark"][1].partition("/")[0]
                options["--set-xmark"] = False, f"{value}/{text}"
    elif "--mask" in options:
        options["--nfmask"] = options["--ctmask"] = options.pop("--mask")
    else:
        options.setdefault("--nfmask", (False, "0xffffffff"))
        options.setdefault("--ctmask", (False, "0xffffffff"))
    if {"--left-shift-mark", "--right-shift-mark"} <= set(options):
        raise ValueError("two shifts")
    if options.get("--left-shift-mark", (False, ""))[1] == "0":
        del options["--left-shift-mark"]


def _of_hmark_tuple(word: str, family: Family) -> tuple[str, str]:
    """The option for which this word of --hmark-tuple stands, and its value."""
    masks = {
        "ct": ("--hmark-tuple", "ct"), "src": ("--hmark-src-prefix", str(write.address_bits(family))),
        "dst": ("--hmark-dst-prefix", str(write.address_bits(family))), "sport": ("--hmark-sport-mask", "0xffff"),
        "dport": ("--hmark-dport-mask", "0xffff"), "proto": ("--hmark-proto-mask", "0xffff"),
        "spi": ("--hmark-spi-mask", "0xffffffff"),
    }  # fmt: skip
    return masks[write.begun_name(masks, word)]


def _canonical_hmark(options: Options, family: Family) -> None:
    if "--hmark-tuple" not in options:
        return
    for word in options.pop("--hmark-tuple")[1].split(","):
        option, value = _of_hmark_tuple(word, family)
        if options.setdefault(option, (False, value)) != (False, value):
            raise ValueError(f"{option} and --hmark-tuple exclude each other")


def _canonical_notrack(uses: Sequence[OptionUse], family: Family) -> str:
    if uses:
        raise ValueError("NOTRACK has no options")
    return "--notrack"


_HASHED = (
    "src-prefix", "dst-prefix", "sport-mask", "dport-mask", "spi-mask", "sport", "dport", "spi", "proto-mask", "tuple",
)  # fmt: skip


def _check_hmark(uses: Sequence[OptionUse], family: Family) -> None:
    by_tuple: set[str] = set()
    for use in uses:
        if use.option in by_tuple:
            raise ValueError(f"{use.option} is what --hmark-tuple sets already")
        if use.option == "--hmark-tuple":
            by_tuple |= {_of_hmark_tuple(word, family)[0] for word in use.values[0].split(",") if word}
    given = by_tuple | {use.option for use in uses}
    if "--hmark-spi-mask" in given and not given.isdisjoint(("--hmark-sport-mask", "--hmark-dport-mask")):
        raise ValueError("the SPI and ports exclude each other in --hmark-tuple and in masks")
    if given.isdisjoint(f"--hmark-{name}" for name in _HASHED):
        raise ValueError("HMARK needs --hmark-tuple")


def _check_set_target(uses: Uses, family: Family) -> None:
    if "--exist" in uses and "--add-set" not in uses:
        raise ValueError("--exist needs --add-set")
    if "--timeout" in uses and "--add-set" not in uses:
        raise ValueError("--timeout needs --add-set")
    if any(name in uses for name in ("--map-mark", "--map-prio", "--map-queue")) and "--map-set" not in uses:
        raise ValueError("--map-mark, --map-prio and --map-queue need --map-set")
    if "--map-set" in uses and not any(name in uses for name in ("--map-mark", "--map-prio", "--map-queue")):
        raise ValueError("--map-set needs --map-mark, --map-prio or --map-queue")


TARGETS = (
    target(
        "CLASSIFY",
        "--set-class:class",
        need="--set-class",
        scope=LEAVING,
        writes="CLASS",
        source="netfilter/xt_CLASSIFY.c",
        form=Form({"--set-class": _class}),
    ),
    target(
        "CONNMARK",
        "--set-mark:mark --set-xmark:mark --save-mark --restore-mark --and-mark:u32 "
        "--or-mark:u32 --xor-mark:u32 --left-shift-mark:u8(0,32) --right-shift-mark:u8(0,32) "
        "--mask:u32 --nfmask:u32 --ctmask:u32",
        one=(
            "--set-mark --set-xmark --and-mark --or-mark --xor-mark --save-mark --restore-mark | "
            "--mask --nfmask | --mask --ctmask"
        ),
        need=("--set-mark --set-xmark --and-mark --or-mark --xor-mark --save-mark --restore-mark"),
        writes="",
        writes_with={
            "--restore-mark": "MARK",
            **dict.fromkeys((*_SET_MARKS, "--save-mark"), "CONNMARK"),
        },
        makes={"--set-xmark": make.flipped("connmark")},
        source="netfilter/xt_connmark.c",
        form=Form(
            {
                "--set-mark": write.mark_and_mask,
                "--set-xmark": write.mark_and_mask,
                "--and-mark": write.hex32,
                "--or-mark": write.hex32,
                "--xor-mark": write.hex32,
                "--mask": write.hex32,
                "--nfmask": write.hex32,
                "--ctmask": write.hex32,
                "--left-shift-mark": write.u8,
                "--right-shift-mark": write.u8,
            },
            whole=_canonical_connmark,
        ),
        tracks=True,
    ),
    target(
        "CONNSECMARK",
        "--save --restore",
        one="--save --restore",
        need="--save --restore",
        scope=scope("mangle security"),
        tracks=True,
    ),
    target(
        "CT",
        "--notrack --helper:any --timeout:any --ctevents:ctevents --expevents:expevents "
        "--zone:zone --zone-orig:zone --zone-reply:zone",
        scope=scope("raw"),
        writes="CT CONNMARK LABELS",
        source="netfilter/xt_CT.c",
        form=Form(
            {
                "--zone": _zone,
                "--zone-orig": _zone,
                "--zone-reply": _zone,
                "--ctevents": write.names_of(_CT_EVENTS, whole=True),
                "--expevents": write.names_of(("new",), whole=True),
            },
            whole=_canonical_ct,
        ),
        tracks=True,
    ),
    target(
        "HMARK",
        "--hmark-tuple:tuple --hmark-mod:u32(1,4294967295) --hmark-offset:u32 "
        "--hmark-src-prefix:mask --hmark-dst-prefix:mask --hmark-sport-mask:u16 "
        "--hmark-dport-mask:u16 --hmark-sport:u16 --hmark-dport:u16 --hmark-spi-mask:u32 "
        "--hmark-spi:u32 --hmark-rnd:u32 --hmark-proto-mask:u16",
        need="--hmark-mod | --hmark-rnd",
        check_in_order=_check_hmark,
        writes="MARK",
        source="netfilter/xt_HMARK.c",
        form=Form(
            {
                "--hmark-mod": write.u32,
                "--hmark-offset": write.hex32,
                "--hmark-rnd": write.hex32,
                "--hmark-src-prefix": write.prefix_mask,
                "--hmark-dst-prefix": write.prefix_mask,
                "--hmark-sport-mask": write.hex16,
                "--hmark-dport-mask": write.hex16,
                "--hmark-sport": write.hex16,
                "--hmark-dport": write.hex16,
                "--hmark-spi-mask": write.hex32,
                "--hmark-spi": write.hex32,
                "--hmark-proto-mask": write.hex16,
            },
            whole=_canonical_hmark,
        ),
    ),
    target(
        "MARK",
        "--set-mark:mark --set-xmark:mark --and-mark:u32 --or-mark:u32 --xor-mark:u32",
        one="--set-mark --set-xmark --and-mark --or-mark --xor-mark",
        need="--set-mark --set-xmark --and-mark --or-mark --xor-mark",
        writes="MARK",
        makes={"--set-xmark": make.flipped("mark")},
        source="netfilter/xt_mark.c",
        form=Form(
            {
                "--set-mark": write.mark_and_mask,
                "--set-xmark": write.mark_and_mask,
                "--and-mark": write.hex32,
                "--or-mark": write.hex32,
                "--xor-mark": write.hex32,
            },
            whole=_canonical_mark,
        ),
    ),
    target(
        "NOTRACK",
        scope=scope("raw"),
        writes="CT CONNMARK LABELS",
        source="netfilter/xt_CT.c",
        form=Form(alone=_canonical_notrack, same_as="CT"),
    ),
    target(
        "SECMARK",
        "--selctx:any",
        need="--selctx",
    ),
    target(
        "SET",
        "--add-set:setname:directions! --del-set:setname:directions! "
        "--map-set:setname:directions! --timeout:u32(0,4294967294)! --exist! --map-mark!* "
        "--map-prio!* --map-queue!*",
        need="--add-set --del-set --map-set",
        check=_check_set_target,
        writes="MARK SETS CLASS",
        source="netfilter/xt_set.c",
        form=Form(
            {
                "--add-set": write.set_directions,
                "--del-set": write.set_directions,
                "--map-set": write.set_directions,
                "--timeout": write.u32,
            },
            signs=False,
        ),
    ),
)
