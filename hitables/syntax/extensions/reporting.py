"""Targets that report a packet, copy it, or count it."""

from __future__ import annotations

import math
import socket
from functools import partial

from ...ir.fields import Family
from .. import number_checks as numeric
from .. import values as spelt
from .. import writers as write
from ..canonical import ABSENT, Form, Options
from ..extension import Uses, target


def _nothing(words: tuple[str, ...], family: Family) -> str:
    """A value that the kernel never looks at."""
    write.u32(words, family)
    return ABSENT


_LEVELS = {
    "alert": 1, "crit": 2, "debug": 7, "emerg": 0, "error": 3, "info": 6, "notice": 5, "panic": 0, "warning": 4,
}  # fmt: skip


def _level(words: tuple[str, ...], family: Family) -> str:
    return str(_LEVELS[words[0]] if words[0] in _LEVELS else spelt.number(words[0], 0, 7))


_UNIT_MICROSECONDS = {
    "": 1.0, "s": 1e6, "sec": 1e6, "secs": 1e6, "ms": 1e3, "msec": 1e3, "msecs": 1e3, "us": 1.0, "usec": 1.0,
    "usecs": 1.0,
}  # fmt: skip


def _canonical_estimator(options: Options, family: Family) -> None:
    """Interval and time constant as powers of 2, which is what the kernel gets of them."""
    interval, constant = (
        _time_units(options.pop(f"--rateest-{name}")[1]) for name in ("interval", "ewmalog")
    )
    step = next((step for step in range(6) if interval <= (1 << step) * 250_000), None)
    if step is None:
        raise ValueError("too long an interval")
    power = 1
    while power < 32 and interval / -math.log(1.0 - 1.0 / (1 << power)) <= constant:
        power += 1
    power -= 1
    if not 0 < power < 31:
        raise ValueError("a time constant out of range")
    options["--rateest-interval"] = False, f"{250 << step}ms"
    options["--rateest-ewmalog"] = False, f"{(250 << step) << power}ms"


def _time_units(text: str) -> int:
    duration = write.DECIMAL.fullmatch(text)
    if duration is None or duration[2].lower() not in _UNIT_MICROSECONDS:
        raise ValueError(f"not a time: {text!r}")
    return int(float(duration[1]) * _UNIT_MICROSECONDS[duration[2].lower()])


# By the first letter of the unit.
_MICROSECONDS = {"s": 1_000_000, "m": 1_000, "u": 1, "": 1}


def _microseconds(text: str) -> int:
    duration = numeric.DURATION.fullmatch(text)
    assert duration is not None
    value = float(int(duration[1], 16)) if "x" in duration[1].lower() else float(duration[1])
    return int(value * _MICROSECONDS[(duration[2] or "")[:1].lower()])


def _check_rate_estimator(uses: Uses, family: Family) -> None:
    """The kernel has six intervals, from 250 ms to 8 s, and thirty weights."""
    interval = _microseconds(uses["--rateest-interval"][0][1][0])
    if interval > 8_000_000:
        raise ValueError("--rateest-interval is longer than 8s")
    weight = _microseconds(uses["--rateest-ewmalog"][0][1][0])
    steps = 1
    while steps < 32 and interval / -math.log(1 - 1 / (1 << steps)) <= weight:
        steps += 1
    if weight >= 0 and not 0 < steps - 1 < 31:
        raise ValueError("--rateest-ewmalog is out of range for --rateest-interval")


def _check_gateway(uses: Uses, family: Family) -> None:
    try:
        zero = not any((socket.inet_aton if family is Family.IPV4 else partial(socket.inet_pton, socket.AF_INET6))(
            uses["--gateway"][0][1][0]))  # fmt: skip
    except (OSError, UnicodeError):
        return
    if zero:
        raise ValueError("--gateway is the address 0")


TARGETS = (
    target(
        "AUDIT",
        "--type:audit",
        need="--type",
        source="netfilter/xt_AUDIT.c",
        form=Form({"--type": write.one_of({name: name for name in ("accept", "drop", "reject")})}),
    ),
    target(
        "IDLETIMER",
        "--timeout:u32(1,2147483) --label:file --alarm",
        need="--timeout | --label",
        source="netfilter/xt_IDLETIMER.c",
        form=Form({"--timeout": write.u32}),
    ),
    target(
        "LED",
        "--led-trigger-id:string(0,16) --led-delay:delay --led-always-blink",
        need="--led-trigger-id",
    ),
    target(
        "LOG",
        "--log-level:level --log-prefix:nonempty --log-tcp-sequence --log-tcp-options "
        "--log-ip-options --log-uid --log-macdecode",
        defaults={"--log-level": "4"},
        source="netfilter/xt_LOG.c",
        form=Form({"--log-level": _level, "--log-prefix": write.first_bytes(29)}),
    ),
    target(
        "NFLOG",
        "--nflog-group:u16 --nflog-prefix:nonempty --nflog-range:u32 --nflog-size:u32 --nflog-threshold:u16",
        defaults={"--nflog-group": "0"},
        one="--nflog-range --nflog-size",
        source="netfilter/xt_NFLOG.c",
        form=Form(
            {
                "--nflog-group": write.u16,
                "--nflog-range": _nothing,
                "--nflog-size": write.u32,
                "--nflog-threshold": write.u16,
            },
            {"--nflog-threshold": "0"},
        ),
    ),
    target(
        "RATEEST",
        "--rateest-name:any --rateest-interval:estimate --rateest-ewmalog:estimate",
        need="--rateest-name | --rateest-interval | --rateest-ewmalog",
        check=_check_rate_estimator,
        writes="RATES",
        source="netfilter/xt_RATEEST.c",
        form=Form(whole=_canonical_estimator),
    ),
    target(
        "TEE",
        "--gateway:host --oif:any",
        need="--gateway",
        check=_check_gateway,
        # The copy goes through OUTPUT before the next rule is read: a rule there may change a set.
        writes="SETS",
        source="netfilter/xt_TEE.c",
        form=Form({"--gateway": write.address}),
    ),
    target(
        "TRACE",
        source="netfilter/xt_TRACE.c",
    ),
    target(
        "ULOG",
        "--ulog-nlgroup:u8(1,32) --ulog-prefix:nonempty --ulog-cprange:u64 --ulog-qthreshold:u32(1,50)",
        family=Family.IPV4,
    ),
)
