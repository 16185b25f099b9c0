"""Matches that look at arbitrary bytes of a packet: programs, strings, words."""

from __future__ import annotations

import re

from ...ir.fields import Family
from ...ir.rule import Role
from .. import values as spelt
from .. import writers as write
from ..canonical import Form, Options, quoted
from ..extension import match

_INSTRUCTION = (0xFFFF, 0xFF, 0xFF, 0xFFFFFFFF)


def _bytecode(words: tuple[str, ...], family: Family) -> str:
    count, *instructions = words[0].rstrip(",").split(",")
    read = []
    for instruction in instructions:
        numbers = [write.decimal(each, 0xFFFFFFFF) for each in instruction.split()]
        if len(numbers) != 4 or len(instruction.split()) != 4:
            raise ValueError(f"not an instruction: {instruction!r}")
        # The code has 16 bits, the two jumps have 8: iptables cuts off the others.
        read.append(" ".join(str(n & mask) for n, mask in zip(numbers, _INSTRUCTION, strict=True)))
    if not count.isdigit() or int(count) != len(read):
        raise ValueError("another number of instructions")
    return quoted(",".join([str(len(read)), *read]))


def _u32(words: tuple[str, ...], family: Family) -> str:
    """Tests, as iptables-save prints them."""
    at, text = 0, words[0]
    space, number = re.compile(r"\s*"), re.compile(r"0[xX][0-9a-fA-F]+|[0-9]+")

    def skip() -> None:
        nonlocal at
        blanks = space.match(text, at)
        assert blanks is not None, "none is some white space, too"
        at = blanks.end()

    def read() -> str:
        nonlocal at
        skip()
        digits = number.match(text, at)
        if digits is None:
            raise ValueError(f"no number at character {at} of {text!r}")
        at = digits.end()
        return f"{spelt.number(digits[0], 0, 0xFFFFFFFF):#x}"

    def take(*signs: str) -> str:
        nonlocal at
        skip()
        for sign in signs:
            if text.startswith(sign, at):
                at += len(sign)
                return sign
        return ""

    tests = []
    while True:
        test = read()
        while sign := take("&", "<<", ">>", "@"):
            test += sign + read()
        if not take("="):
            raise ValueError(f"no = at character {at} of {text!r}")
        ranges = []
        while True:
            low = read()
            high = read() if take(":") else low
            ranges.append(low if low == high else f"{low}:{high}")
            if not take(","):
                break
        tests.append(f"{test}={','.join(ranges)}")
        if not take("&&"):
            break
    if at != len(text):
        raise ValueError(f"unexpected {text[at:]!r}")
    return "&&".join(tests)


def _canonical_string(options: Options, family: Family) -> None:
    write.renamed(options, "--hex-string", "--string")


def _text(words: tuple[str, ...], family: Family) -> str:
    return _pattern(words[0].encode("utf-8", "surrogateescape"))


def _hex_text(words: tuple[str, ...], family: Family) -> str:
    return _pattern(spelt.hex_pattern(words[0]))


def _pattern(pattern: bytes) -> str:
    if not 0 < len(pattern) <= 128:
        raise ValueError("a pattern of no or too many bytes")
    if all(32 <= byte < 127 for byte in pattern):
        return '"' + pattern.decode().replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"|{pattern.hex()}|"


MATCHES = (
    # A program may ask for a random number or, pinned, keep and read maps.
    match(
        "bpf",
        "--bytecode:bytecode --object-pinned:any",
        role=Role.NAMED,
        one="--bytecode --object-pinned",
        need="--bytecode --object-pinned",
        reads="*",
        source="netfilter/xt_bpf.c",
        form=Form({"--bytecode": _bytecode}),
    ),
    match(
        "string",
        "--from:u16 --to:u16 --algo:algo --string:string(1,128)! --hex-string:hex! --icase",
        one="--string --hex-string",
        need="--algo | --string --hex-string",
        reads="*",
        complements="--string --hex-string",
        bystanders="--algo --from --to --icase",
        source="netfilter/xt_string.c",
        form=Form(
            {"--string": _text, "--hex-string": _hex_text, "--from": write.u16, "--to": write.u16},
            {"--from": "0", "--to": "65535"},
            whole=_canonical_string,
        ),
    ),
    match(
        "u32",
        "--u32:tests!",
        need="--u32",
        reads="*",
        complements="--u32",
        source="netfilter/xt_u32.c",
        form=Form({"--u32": _u32}),
    ),
)
