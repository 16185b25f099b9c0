"""Matches that remember packets, or read what the kernel has counted: rates, quotas, lists, sets, chance."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ...ir.fields import Family
from ...ir.rule import Role
from .. import number_checks as numeric
from .. import values as spelt
from .. import writers as write
from ..canonical import ABSENT, NOTHING, Form, Options, OptionUse
from ..extension import Uses, match


def _usual(words: tuple[str, ...], family: Family) -> str:
    """An option for the default, which is omitted; with ! before it, it is not the default."""
    return ABSENT


def _probability(words: tuple[str, ...], family: Family) -> str:
    """The kernel holds 31 bits of it."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", words[0]):
        share = float(int(words[0], 16))
    elif re.fullmatch(r"(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", words[0]):
        share = float(words[0])
    else:
        raise ValueError(f"not a probability: {words[0]!r}")
    if share > 1:
        raise ValueError("a probability above 1")
    return f"{math.floor(0x80000000 * share + 0.5) / 0x80000000:.11f}"


_BITS_PER_SECOND = {
    "bit": 1.0, "kibit": 1024.0, "kbit": 1000.0, "mibit": 1024.0**2, "mbit": 1e6, "gibit": 1024.0**3,
    "gbit": 1e9, "tibit": 1024.0**4, "tbit": 1e12, "bps": 8.0, "kibps": 8 * 1024.0, "kbps": 8e3,
    "mibps": 8 * 1024.0**2, "mbps": 8e6, "gibps": 8 * 1024.0**3, "gbps": 8e9, "tibps": 8 * 1024.0**4,
    "tbps": 8e12, "": 1.0,
}  # fmt: skip


def _bytes_per_second(words: tuple[str, ...], family: Family) -> str:
    if not words:
        return NOTHING
    number = write.DECIMAL.fullmatch(words[0])
    if number is None or number[2].lower() not in _BITS_PER_SECOND:
        raise ValueError(f"not a rate: {words[0]!r}")
    rate = int(float(number[1]) * _BITS_PER_SECOND[number[2].lower()] / 8)
    if rate > 0xFFFFFFFF:
        raise ValueError(f"too high a rate: {words[0]!r}")
    return f"{rate}"


def _packets_per_second(words: tuple[str, ...], family: Family) -> str:
    return write.number(32)(words, family) if words else NOTHING


def _recent_in_force(uses: Sequence[OptionUse]) -> Sequence[OptionUse]:
    """The last of --rsource and --rdest decides which address is meant."""
    addresses = [use.option for use in uses if use.option in ("--rsource", "--rdest")]
    return [use for use in uses if use.option not in addresses[:-1] or use.option == addresses[-1]]


def _canonical_recent(options: Options, family: Family) -> None:
    options.setdefault("--mask", (False, write.address_text((1 << write.address_bits(family)) - 1, family)))
    if "--rdest" in options:  # --rsource may have come from the defaults
        options.pop("--rsource", None)


def _canonical_limit(options: Options, family: Family) -> None:
    options["--limit"] = False, _rate(options["--limit"][1], 10_000)


_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def _cost(text: str, scale: int) -> tuple[int, int]:
    """What N/UNIT costs per packet, of *scale* credits in a second, and the seconds of the unit."""
    count, slash, unit = text.partition("/")
    named = [seconds for name, seconds in _UNITS.items() if name.startswith(unit.lower())] if unit else []
    digits = re.match("[0-9]{1,9}(?![0-9])", count)  # iptables ignores the text behind the digits
    if digits is None or int(digits[0]) == 0 or (slash and not named):
        raise ValueError(f"not a rate: {text!r}")
    seconds = named[0] if slash else 1
    cost = scale * seconds // int(digits[0])
    if cost == 0:
        raise ValueError(f"too fast: {text!r}")
    return cost, seconds


def _rate(text: str, scale: int) -> str:
    """N/UNIT in the shortest unit that gives the same cost."""
    return _rate_of(_cost(text, scale)[0], scale)


def _rate_of(cost: int, scale: int) -> str:
    for unit, seconds in _UNITS.items():
        count = scale * seconds // cost
        if count and scale * seconds // count == cost:
            return f"{count}/{unit[:3] if seconds < 3600 else unit}"
    return f"cost {cost}"


def _hashlimit_rate(options: Options, family: Family) -> None:
    """The kernel's figures: see hashlimit_mt_check of iptables 1.8.9."""
    write.renamed(options, "--hashlimit", "--hashlimit-upto")
    option = "--hashlimit-upto" if "--hashlimit-upto" in options else "--hashlimit-above"
    inverted, text = options.pop(option)
    above = (option == "--hashlimit-above") != inverted
    options["--hashlimit-above" if above else "--hashlimit-upto"] = False, text
    name = "--hashlimit-above" if above else "--hashlimit-upto"
    burst = options.pop("--hashlimit-burst", (False, ""))[1]
    expire = options.pop("--hashlimit-htable-expire", (False, ""))[1]
    matching, interval = (
        "--hashlimit-rate-match" in options,
        options.pop("--hashlimit-rate-interval", (False, "0"))[1],
    )
    if interval != "0" and not matching:
        raise ValueError("an interval without rate matching")
    at = text.find("b/s")
    if at > 0:
        digits = re.match("[0-9]{1,10}(?![0-9])", text)
        size = int(digits[0] if digits else 0) * {"k": 1024, "m": 1024**2}.get(text[at - 1], 1)
        cost = 0xFFFFFFFF // ((size >> 4) + 1)
        each = (0xFFFFFFFF // cost - 1) << 4 if cost else 0
        if each <= 0 or not size:
            raise ValueError(f"too slow or too fast: {text!r}")
        count = _burst(burst) if burst else 0
        options[name] = False, f"{each}b/s"
        options["--hashlimit-burst"] = False, str(-(-count // each))
        options["--hashlimit-htable-expire"] = False, expire or ("60000" if burst else "15000")
        if matching:
            options["--hashlimit-rate-interval"] = False, interval if interval != "0" else "1"
        return
    cost, seconds = _cost(text, 1_000_000)
    options["--hashlimit-burst"] = False, str(_burst(burst)) if burst else "5"
    options["--hashlimit-htable-expire"] = False, expire or str(1000 * seconds)
    if matching:
        cost //= seconds
        options["--hashlimit-rate-interval"] = False, interval if interval != "0" else str(seconds)
    options[name] = False, _rate_of(cost, 1_000_000)


def _burst(text: str) -> int:
    number = re.fullmatch(r"(.*?)([km]?)b?", text)
    assert number is not None, "any text is of that form"
    return spelt.number(number[1], 1, 1 << 40) * {"": 1, "k": 1024, "m": 1024**2}[number[2]]


def _canonical_hashlimit(options: Options, family: Family) -> None:
    for option in ("--hashlimit-srcmask", "--hashlimit-dstmask"):
        options.setdefault(option, (False, str(write.address_bits(family))))
    _hashlimit_rate(options, family)


def _canonical_rateest(options: Options, family: Family) -> None:
    for old, new in (
        ("--rateest", "--rateest1"),
        ("--rateest-bps", "--rateest-bps2"),
        ("--rateest-pps", "--rateest-pps2"),
    ):
        write.renamed(options, old, new)
    modes = [option for option in options if option in ("--rateest-lt", "--rateest-gt", "--rateest-eq")]
    if len(modes) > 1:  # the last counts, and a ! of any
        inverted = any(options.pop(mode)[0] for mode in modes)
        options[modes[-1]] = inverted, NOTHING


def _check_statistic(uses: Uses, family: Family) -> None:
    mode = uses["--mode"][0][1][0]
    if mode == "random" and "--probability" not in uses:
        raise ValueError("--mode random needs --probability")
    if mode == "nth" and "--every" not in uses:
        raise ValueError("--mode nth needs --every and --packet")
    if "--every" in uses and "--packet" in uses:
        every, packet = (numeric.integer(uses[name][0][1][0])[0] or 0 for name in ("--every", "--packet"))
        if packet > every - 1:
            raise ValueError(f"--packet must be below --every, so at most {every - 1}")


def _check_recent(uses: Uses, family: Family) -> None:
    hits = numeric.integer(uses["--hitcount"][0][1][0])[0] if "--hitcount" in uses else 0
    for name in ("--set", "--remove"):
        if name in uses and ("--seconds" in uses or hits):
            raise ValueError(f"{name} cannot be combined with --seconds or --hitcount")
    if (hits or 0) > 0xFFFF:
        raise ValueError("--hitcount is above 65535")


def _check_set_match(uses: Uses, family: Family) -> None:
    for kind in ("--packets", "--bytes"):
        for name in (f"{kind}-lt", f"{kind}-gt"):
            if any(inverted for inverted, _ in uses.get(name, ())):
                raise ValueError(f"{name} cannot be negated")


MATCHES = (
    match(
        "hashlimit",
        "--hashlimit=--hashlimit-upto:hashrate! --hashlimit-above:hashrate! "
        "--hashlimit-burst:burst --hashlimit-mode:hashmodes --hashlimit-srcmask:prefix "
        "--hashlimit-dstmask:prefix --hashlimit-name:file --hashlimit-htable-size:u32 "
        "--hashlimit-htable-max:u32 --hashlimit-htable-expire:u32(1,4294967295) "
        "--hashlimit-htable-gcinterval:u32(1,4294967295) --hashlimit-rate-match "
        "--hashlimit-rate-interval:positive",
        role=Role.NAMED,
        one="--hashlimit --hashlimit-above",
        need="--hashlimit-name | --hashlimit --hashlimit-above",
        reads="*",
        source="netfilter/xt_hashlimit.c",
        form=Form(
            {
                "--hashlimit-mode": write.names_of(("srcip", "srcport", "dstip", "dstport"), whole=True),
                "--hashlimit-srcmask": write.prefix_length,
                "--hashlimit-dstmask": write.prefix_length,
                "--hashlimit-htable-size": write.u32,
                "--hashlimit-htable-max": write.u32,
                "--hashlimit-htable-expire": write.u32,
                "--hashlimit-htable-gcinterval": write.u32,
                "--hashlimit-rate-interval": write.u32,
            },
            {
                "--hashlimit-htable-size": "0",
                "--hashlimit-htable-max": "0",
                "--hashlimit-htable-gcinterval": "1000",
            },
            whole=_canonical_hashlimit,
        ),
    ),
    match(
        "limit",
        "--limit:rate --limit-burst:u32(0,10000)",
        role=Role.ONCE,
        defaults={"--limit": "3/hour", "--limit-burst": "5"},
        reads="",
        source="netfilter/xt_limit.c",
        form=Form({"--limit-burst": write.u32}, whole=_canonical_limit),
    ),
    match(
        "nfacct",
        "--nfacct-name:nonempty",
        role=Role.NAMED,
        need="--nfacct-name",
        reads="LENGTH",
        source="netfilter/xt_nfacct.c",
    ),
    match(
        "quota",
        "--quota:u64!",
        role=Role.ONCE,
        need="--quota",
        reads="LENGTH",
        source="netfilter/xt_quota.c",
        form=Form({"--quota": write.u64}),
    ),
    match(
        "quota2",
        "--name:any!* --grow!* --no-change!* --packets!* --quota:any!*",
        role=Role.ONCE,
    ),
    # iptables-save prints the relation twice, which iptables-restore refuses.
    match(
        "rateest",
        "--rateest-delta --rateest:any --rateest1:any --rateest2:any --rateest-lt!* "
        "--rateest-gt!* --rateest-eq!* --rateest-bps:bits? --rateest-bps1:bits? "
        "--rateest-bps2:bits? --rateest-pps:u32? --rateest-pps1:u32? --rateest-pps2:u32?",
        role=Role.NAMED,
        one=("--rateest --rateest1 | --rateest-bps --rateest-bps2 | --rateest-pps --rateest-pps2"),
        reads="RATES",
        source="netfilter/xt_rateest.c",
        form=Form(
            {
                **{f"--rateest-bps{which}": _bytes_per_second for which in ("", "1", "2")},
                **{f"--rateest-pps{which}": _packets_per_second for which in ("", "1", "2")},
            },
            whole=_canonical_rateest,
        ),
    ),
    match(
        "recent",
        "--set! --rcheck! --update! --remove! --seconds:u32(1,4294967295) --reap --hitcount:u32 "
        "--rttl --name:file --rsource --rdest --mask:host",
        role=Role.NAMED,
        defaults={"--name": "DEFAULT", "--rsource": ""},
        one="--set --rcheck --update --remove | --rttl --set | --rttl --remove",
        need="--set --rcheck --update --remove",
        beside="--reap>--seconds",
        check=_check_recent,
        reads="*",
        source="netfilter/xt_recent.c",
        form=Form(
            {"--seconds": write.u32, "--hitcount": write.u32, "--mask": write.address},
            {"--hitcount": "0"},
            whole=_canonical_recent,
            in_force=_recent_in_force,
        ),
    ),
    # A set may hold ports, marks, macs and interfaces; the rule does not name which.
    match(
        "set",
        "--match-set=--set:setname:directions! --return-nomatch --update-counters! "
        "--update-subcounters! --packets-eq:u64! --packets-lt:u64 --packets-gt:u64 "
        "--bytes-eq:u64! --bytes-lt:u64 --bytes-gt:u64",
        counting=(
            "--update-counters --update-subcounters --packets-eq --packets-lt --packets-gt "
            "--bytes-eq --bytes-lt --bytes-gt"
        ),
        one="--packets-eq --packets-lt --packets-gt | --bytes-eq --bytes-lt --bytes-gt",
        need="--match-set",
        check=_check_set_match,
        reads="MARK SETS ADDRESSES PAYLOAD META",
        complements="--match-set",
        bystanders="--return-nomatch",
        source="netfilter/xt_set.c, netfilter/ipset/",
        form=Form(
            {
                "--match-set": write.set_directions,
                "--update-counters": _usual,
                "--update-subcounters": _usual,
                **{
                    f"--{what}-{how}": write.u64
                    for what in ("packets", "bytes")
                    for how in ("eq", "lt", "gt")
                },
            }
        ),
    ),
    match(
        "statistic",
        "--mode:statistic --probability:chance! --every:u32(1,4294967295)! --packet:u32",
        role=Role.ONCE,
        defaults={"--packet": "0"},
        one="--probability --every | --probability --packet",
        need="--mode",
        beside="--every>--packet --packet>--every",
        check=_check_statistic,
        reads="",
        source="netfilter/xt_statistic.c",
        form=Form({"--probability": _probability, "--every": write.u32, "--packet": write.u32}),
    ),
)
