"""Matches of the host rather than the packet: sockets and their owners, processor, clock, policy; comments."""

from __future__ import annotations

import calendar
import grp
import pwd
import re
from collections.abc import Callable, Mapping, Sequence

from ...ir.fields import Family
from ...ir.rule import Role
from .. import numbers as compare
from .. import values as spelt
from .. import writers as write
from ..canonical import Form, Options, OptionUse, Write, quoted
from ..extension import ENTERING, LEAVING, Uses, match, scope
from ..numbers import Missing


def _id(names: Callable[[str], int]) -> Write:
    """A user or group: a name of the system first, then N, LOW-HIGH or LOW:HIGH."""

    def write(words: tuple[str, ...], family: Family) -> str:
        try:
            return str(names(words[0]))
        except KeyError:
            low, dash, high = words[0].replace(":", "-", 1).partition("-")
            first = spelt.number(low, 0, 0xFFFFFFFE)
            last = spelt.number(high, 0, 0xFFFFFFFE) if dash else first
            return f"{first}" if first == last else f"{first}-{last}"

    return write


_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _weekdays(words: tuple[str, ...], family: Family) -> str:
    days = set()
    for word in words[0].split(","):
        day = word[:3]  # iptables reads three characters of each, and compares two of a name
        named = {at for at, name in enumerate(_WEEKDAYS, 1) if name[:2] == day[:2]}
        days |= named or {spelt.number(day, 1, 999) % 32}
    days -= set(range(8, 32))  # bits of a byte
    if not days or 0 in days:
        raise ValueError(f"no day of a week: {words[0]!r}")
    return ",".join(map(str, sorted(days)))


def _monthdays(words: tuple[str, ...], family: Family) -> str:
    # iptables reads two characters of each.
    return ",".join(map(str, sorted({spelt.number(word[:2], 1, 31) for word in words[0].split(",")})))


def _daytime(words: tuple[str, ...], family: Family) -> str:
    fields = re.fullmatch(r"(\d{0,2}):(\d{0,2})(?::(\d{0,2}))?", words[0])
    hour, minute, second = (int(text or 0) for text in fields.groups()) if fields else (24, 0, 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"not a time: {words[0]!r}")
    return f"{hour:02}:{minute:02}:{second:02}"


_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:T(\d{0,2})(?::(\d{0,2})(?::(\d{0,2}))?)?)?)?)?")


_LAST_DATE = 0x7FFFFFFF


def _date(words: tuple[str, ...], family: Family) -> str:
    """Seconds since 1970."""
    fields = _DATE.fullmatch(words[0])
    if fields is None:
        raise ValueError(f"not a date: {words[0]!r}")
    year, month, day, hour, minute, second = (
        int(text) if text else default
        for text, default in zip(fields.groups(), (0, 1, 1, 0, 0, 0), strict=True)
    )
    if not (
        1970 <= year <= 2038
        and 1 <= month <= 12
        and 1 <= day <= 31
        and hour < 24
        and minute < 60
        and second < 60
    ):
        raise ValueError(f"not a date: {words[0]!r}")
    seconds = calendar.timegm((year, month, day, hour, minute, second))
    if seconds > _LAST_DATE:
        raise ValueError(f"too late a date: {words[0]!r}")
    return str(seconds)


def _canonical_time(options: Options, family: Family) -> None:
    for option, all_days in (("--weekdays", range(1, 8)), ("--monthdays", range(1, 32))):
        if option not in options:
            continue
        inverted, text = options.pop(option)
        days = set(map(int, text.split(",")))
        wanted = sorted(set(all_days) - days if inverted else days)
        if wanted != list(all_days):
            options[option] = False, ",".join(map(str, wanted)) or "none"
    for option, nothing in (
        ("--timestart", "00:00:00"), ("--timestop", "23:59:59"),
        ("--datestart", "0"), ("--datestop", str(_LAST_DATE)),
    ):  # fmt: skip
        if options.get(option) == (False, nothing):
            del options[option]
    options.pop("--utc", None)
    write.renamed(options, "--localtz", "--kerneltz")


_POLICY_VALUES: Mapping[str, Write] = {
    "--reqid": write.number(32), "--spi": write.number(32, "#x"), "--proto": write.protocol,
    "--tunnel-src": write.network, "--tunnel-dst": write.network,
}  # fmt: skip


def _canonical_policy(uses: Sequence[OptionUse], family: Family) -> str:
    """What holds for all, then the elements in their order; inside of one, any order will do."""
    common: list[str] = []
    elements: list[list[str]] = [[]]
    policy = False
    for use in uses:
        if use.option == "--next":
            elements.append([])
            continue
        write = _POLICY_VALUES.get(use.option)
        value = write(use.values, family) if write else " ".join(map(quoted, use.values))
        text = f"{'! ' if use.inverted else ''}{use.option} {value}".rstrip()
        policy = policy or use.option == "--pol"
        into = common if use.option in ("--dir", "--pol", "--strict") else elements[-1]
        if any(other.split()[-2:][:1] == [use.option] for other in into):
            raise ValueError(f"{use.option} is given twice")
        into.append(text)
    common += [] if policy else ["--pol ipsec"]
    return " ".join(
        [*sorted(common), " --next ".join(" ".join(sorted(element)) for element in elements)]
    ).rstrip()


def _check_contiguous(uses: Uses, family: Family) -> None:
    def seconds(name: str, absent: int) -> int:
        if name not in uses:
            return absent
        parts = [int(part or 0) for part in uses[name][0][1][0].split(":")]
        return parts[0] * 3600 + parts[1] * 60 + sum(parts[2:])

    if "--contiguous" in uses and seconds("--timestart", 0) < seconds("--timestop", 86399):
        raise ValueError("--contiguous needs a --timestop that is earlier than --timestart")


_OF_ELEMENT = ("--reqid", "--spi", "--proto", "--mode", "--tunnel-src", "--tunnel-dst")
_MOST_ELEMENTS = 4


def _check_policy(uses: Sequence[OptionUse], family: Family) -> None:
    named = {use.option for use in uses}
    if any(use.option == "--pol" and use.values[0] == "none" for use in uses):
        for option in ("--strict", "--next"):
            if option in named:
                raise ValueError(f"--pol none and {option} exclude each other")
    elements: list[dict[str, OptionUse]] = [{}]
    for use in uses:
        if use.option == "--next":
            elements.append({})
        elif use.option in _OF_ELEMENT:
            if use.option in elements[-1]:
                raise ValueError(f"a second {use.option} without --next between them")
            elements[-1][use.option] = use
    if len(elements) > _MOST_ELEMENTS:
        raise ValueError(f"{len(elements)} elements; {_MOST_ELEMENTS} is the most")
    for number, element in enumerate(elements, 1):
        which = f"element {number}: " if len(elements) > 1 else ""
        if "--strict" in named and not element:
            raise ValueError(
                f"{which}--strict needs --reqid, --spi, --tunnel-src, --tunnel-dst, --proto or --mode"
            )
        if "--proto" in element and spelt.protocol(element["--proto"].values[0]) not in (50, 51, 108):
            raise ValueError(f"{which}--proto is esp, ah or ipcomp")
        if "--tunnel-src" in element or "--tunnel-dst" in element:
            mode = element.get("--mode")
            if mode is None or mode.inverted == (mode.values[0] == "tunnel"):
                raise ValueError(f"{which}--tunnel-src and --tunnel-dst need --mode tunnel")


def _check_owner(uses: Sequence[OptionUse], family: Family) -> None:
    options = [use.option for use in uses]
    if "--suppl-groups" in options and "--gid-owner" not in options[: options.index("--suppl-groups")]:
        raise ValueError("--suppl-groups needs --gid-owner in front of it")


MATCHES = (
    match(
        "cgroup",
        "--cgroup:u32! --path:any!",
        one="--cgroup --path",
        need="--cgroup --path",
        scope=scope("", "INPUT OUTPUT POSTROUTING"),
        reads="META",
        source="netfilter/xt_cgroup.c",
        form=Form({"--cgroup": write.u32}),
    ),
    match(
        "comment",
        "--comment:any",
        role=Role.SPACE,
        required="--comment",
        reads="",
        source="netfilter/xt_comment.c",
    ),
    match(
        "cpu",
        "--cpu:u32!",
        need="--cpu",
        reads="META",
        source="netfilter/xt_cpu.c",
        form=Form({"--cpu": write.u32}),
    ),
    match(
        "mark",
        "--mark:mark!",
        need="--mark",
        reads="MARK",
        complements="--mark",
        numbers={"--mark": compare.masked("mark")},
        source="netfilter/xt_mark.c",
        form=Form({"--mark": write.mark}),
    ),
    match(
        "owner",
        "--uid-owner:user! --gid-owner:user! --socket-exists! --suppl-groups",
        need="--uid-owner --gid-owner --socket-exists",
        check_in_order=_check_owner,
        scope=scope("", "OUTPUT POSTROUTING"),
        reads="META",
        # With --suppl-groups neither matches a packet without a socket.
        complements="--uid-owner --gid-owner --socket-exists",
        # The kernel maps both ends of a range: in a user namespace it may hold others than those between.
        numbers={
            "--uid-owner": compare.single("uid", 32, Missing.NEGATED),
            "--gid-owner": compare.single("gid", 32, Missing.NEGATED),
        },
        source="netfilter/xt_owner.c",
        form=Form(
            {
                "--uid-owner": _id(lambda name: pwd.getpwnam(name).pw_uid),
                "--gid-owner": _id(lambda name: grp.getgrnam(name).gr_gid),
            }
        ),
    ),
    match(
        "policy",
        "--dir:inout --pol:pol --strict --reqid:u32!* --spi:u32!* --proto:protocol!* "
        "--mode:tunnel!* --tunnel-src:net!* --tunnel-dst:net!* --next*",
        need="--dir",
        beside="--next>--strict",
        option_scopes={"--dir in": ENTERING, "--dir out": LEAVING},
        check_in_order=_check_policy,
        reads="META",
        source="netfilter/xt_policy.c",
        form=Form(alone=_canonical_policy),
    ),
    match(
        "socket",
        "--transparent --nowildcard --restore-skmark",
        counting="--restore-skmark",
        scope=scope("", "PREROUTING INPUT"),
        reads="CT ADDRESSES PAYLOAD META",
        writes_with={"--restore-skmark": "MARK"},
        source="netfilter/xt_socket.c",
    ),
    match(
        "time",
        "--datestart:date --datestop:date --timestart:time --timestop:time --contiguous "
        "--monthdays:monthdays! --weekdays:weekdays! --kerneltz --utc --localtz",
        one="--utc --localtz | --utc --kerneltz",
        check=_check_contiguous,
        reads="META",
        source="netfilter/xt_time.c",
        form=Form(
            {
                "--weekdays": _weekdays,
                "--monthdays": _monthdays,
                "--timestart": _daytime,
                "--timestop": _daytime,
                "--datestart": _date,
                "--datestop": _date,
            },
            whole=_canonical_time,
        ),
    ),
)
