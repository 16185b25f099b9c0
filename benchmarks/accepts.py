"""Which texts iptables accepts, compared with ours: `python -m benchmarks.accepts`.

Thousands of texts (accepts_texts.py: valid, borderline and invalid values, options missing and doubled,
wrong protocols, families, tables and chains, odd lines) are loaded in a scratch network namespace by
iptables-legacy-restore and iptables-nft-restore (ip6tables for IPv6 texts), and read by `hitables.read`.
Two kinds of disagreement count:

- lenient: both tools refuse the text, and we read it;
- strict: a tool loads the text, and we refuse it.

If a tool refuses a text only because the kernel lacks a module, the text counts as accepted, provided that
the tool accepts its words.  The figures by class are in docs/evaluation/accepts.json.  The exit status is 1
if a class of disagreements has no reason in EXPLAINED.
"""

# ruff: noqa: E501  (tables read better unbroken)
from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import click

from hitables.api import read
from hitables.errors import HitablesError, LiveError, ParseError
from hitables.ir.fields import Family
from hitables.kernel.machine import machine
from hitables.kernel.namespace import Namespace

from . import command_line
from .accepts_texts import V4, V6, Text, texts
from .doc_tables import DOCS

FIGURES = DOCS / "evaluation" / "accepts.json"

# The answers of the tools.

TOOLS = {
    (V4, "legacy"): "iptables-legacy-restore", (V4, "nft"): "iptables-nft-restore",
    (V6, "legacy"): "ip6tables-legacy-restore", (V6, "nft"): "ip6tables-nft-restore",
}  # fmt: skip
LOADED = "loaded"
# Objects of the kernel that outlive a rule and exclude another of their name.
_STAYS = re.compile(r"RATEEST|IDLETIMER|LED|CLUSTERIP")


def answer(batch: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """Per (family, backend, text): "loaded", or the tool's last message, and whether it is the kernel's.

    Called in a scratch namespace.
    """
    answers = []
    for tool, text, clear in batch:
        data = text.encode("utf-8", "surrogateescape")
        try:
            process = subprocess.run(
                [tool], input=data, capture_output=True, timeout=20, close_fds=False, check=False
            )
            status, words = process.returncode, process.stderr.decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            status, words = 124, "it does not end"
        if status == 0:
            answers.append((LOADED, ""))
            if clear:
                subprocess.run([tool], input=clear.encode(), capture_output=True, check=False)
            continue
        lines = [line.strip() for line in words.splitlines() if line.strip()]
        # iptables-nft prints the kernel's error on a line of its own.
        lines = [
            line
            for line in lines
            if not line.endswith("):")
            and "Try `" not in line
            and "Error occurred" not in line
            and "# Warning" not in line
        ]
        shown = (
            next((line for line in lines if "arning" not in line), "")
            or (lines or [f"exit status {status}"])[-1]
        )
        kernel = bool(
            re.search(r"line \d+ failed(: \w|\.?$)|\w+ failed \(|RULE_\w+ failed|CHAIN_\w+ failed", words)
        )
        answers.append((shown, "kernel" if kernel else "words"))
    return answers


def ask(all_texts: list[Text], answers: dict[str, Any], progress: Any) -> None:
    """Add to *answers* (key: tool and text) the missing answers of the tools."""
    missing: list[tuple[str, str, str]] = []
    for text in all_texts:
        for backend in ("legacy", "nft"):
            tool = TOOLS[text.family, backend]
            if f"{tool} {text.text}" not in answers:
                tables = re.findall(r"^\*(\w+)", text.text, re.M) if _STAYS.search(text.text) else []
                missing.append((tool, text.text, "".join(f"*{name}\nCOMMIT\n" for name in tables)))
    step = 200
    with Namespace() as namespace:
        for command in (
            "ipset create tried hash:ip", "ip link set lo up",
        ):  # fmt: skip
            try:
                namespace.run(command.split())
            except LiveError as error:
                progress(f"omitted: {error}")
        for first in range(0, len(missing), step):
            progress(f"{first} of {len(missing)} answers")
            batch = missing[first : first + step]
            for (tool, words, _), reply in zip(batch, namespace.call(answer, batch), strict=True):
                answers[f"{tool} {words}"] = reply


# Our answer.


def ours(text: Text) -> str:
    """LOADED, or the reason of the refusal."""
    try:
        read(text.text, family=text.family)
    except ParseError as error:
        return error.reason
    except HitablesError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # a crash of ours is a class of its own
        return f"fault: {type(error).__name__}: {error}"
    return LOADED


# Judging.

BACKENDS = ("legacy", "nft")

# The reasons of disagreements: kind, pattern in the tool's message (lenient) or in ours (strict), reason.
EXPLAINED = (
    ("lenient", r"Couldn't load (match|target)|unknown option \"--(to|nodst|random)\b",
     "an extension that iptables 1.8.9 does not bring: other packages do (quota2, MIRROR, SAME, any name)"),
    ("lenient", r"getaddrinfo|bad address: [a-zx0]|resolve",
     "a name of a host, which another system may resolve"),
    ("lenient", r"could not map name|label '|-owner|Set nosuch|get bpf object|protocol family of set|port/service",
     "a name that another system may know: a user, a group, a label, a realm, an ipset, a service"),
    ("lenient", r"line \d+ failed|RULE_APPEND|CHAIN_", "the kernel refuses what its state or modules do not allow"),
    ("lenient", r"Invalid target name|unable to initialize|Bad argument `COMMIT|Bad policy name",
     "lines that end as in Windows are read without that end"),
    ("lenient", r"unknown option|Illegal option|ambiguous",
     "a shortened option that iptables completes to another one, as it has more options than the table"),
    ("lenient", r"addrtype: bad type|Unknown event type|hmark-tuple|Bad ctstatus",
     "an empty word of a list; it is printed back as it stands"),
    ("lenient", r"--(hmark-src-prefix|connlimit-mask|hashlimit-srcmask|hashlimit-dstmask)",
     "the number 4294967295, which one option takes for a prefix length and another does not"),
    ("lenient", r"(dst|hbh): |PAD0|would overflow", "numbers of IPv6 options in odd spellings; printed back as they stand"),
    ("lenient", r"ewmalog value|--hashlimit-burst|no command specified|The -t option",
     "a value or line on the edge of what is read; it is printed back as it stands"),
    ("lenient", r"lt/gt/eq twice",
     "iptables-save prints --rateest-lt twice where bps and pps are compared, which iptables-restore refuses"),
    ("strict", r"quote that is never closed",
     "iptables reads an unclosed quote to the end of the line and takes the line break into the value"),
    ("strict", r"unknown option --dport|-m tcp needs -p tcp",
     "iptables-nft loads -m tcp behind ! -p tcp and tests the ports of other protocols; iptables-legacy refuses it"),
    ("strict", r"-h|-V", "iptables prints its help or version and ends: nothing is loaded"),
    ("strict", r"no table in this text", "nothing is loaded"),
    ("strict", r"TCPMSS, with these options",
     "of --clamp-mss-to-pmtu and --set-mss the last counts; a rule with both is held to the places of the first"),
    ("strict", r"-F behind rules", "iptables-legacy empties the chains, iptables-nft keeps the rules"),
    ("strict", r"is number 262", "-p mptcp: iptables-nft stores it as 6, which is tcp, and legacy as no packet's protocol"),
    ("strict", r"binary data|COMMIT|this belongs to no option", "control characters: the text is no text"),
)  # fmt: skip


def _explained(kind: str, words: str) -> str:
    """The reason of EXPLAINED for a disagreement, "" if there is none."""
    return next((why for each, pattern, why in EXPLAINED if each == kind and re.search(pattern, words)), "")


def _absent(all_texts: list[Text], answers: dict[str, Any]) -> set[tuple[str, Family, str]]:
    """The extensions whose valid rule this kernel refuses, because it lacks the module."""
    return {
        (text.extension, text.family, backend)
        for text in all_texts
        for backend in BACKENDS
        if text.group == "base" and answers[f"{TOOLS[text.family, backend]} {text.text}"][1] == "kernel"
    }


def _general(words: str) -> str:
    """A message without the parts that are specific to one text."""
    words = re.sub(r"^ip6?tables(-nft)?-restore( v1\.\d+\.\d+ \(\w+\))?:? ?", "", words)
    words = re.sub(r"line \d+", "line N", words)
    return re.sub(r"`[^']*'|\"[^\"-][^\"]*\"|'[^']*'|\"\"", "X", words)[:120]


def judge(all_texts: list[Text], answers: dict[str, Any]) -> dict[str, Any]:
    """The counts of agreement, the classes of disagreement, and the differences of the backends."""
    absent = _absent(all_texts, answers)
    counts: Counter[str] = Counter()
    classes: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    backend_differences: dict[tuple[str, str, str], dict[str, Any]] = {}
    for text in all_texts:
        replies = [answers[f"{TOOLS[text.family, backend]} {text.text}"] for backend in BACKENDS]
        accepted = [
            words == LOADED or (speaker == "kernel" and (text.extension, text.family, backend) in absent)
            for (words, speaker), backend in zip(replies, BACKENDS, strict=True)
        ]
        our_reply = ours(text)
        kind = (
            "both"
            if our_reply == LOADED and any(accepted)
            else "lenient"
            if our_reply == LOADED
            else "strict"
        )
        kind = "neither" if our_reply != LOADED and not any(accepted) else kind
        counts[kind] += 1
        if kind in ("lenient", "strict"):
            words = str(replies[0][0]) if kind == "lenient" else our_reply
            key = kind, text.group, text.extension, _general(words)
            if key not in classes:
                classes[key] = {
                    "kind": kind, "group": text.group, "extension": text.extension, "said": key[3], "texts": 0,
                    "example": text.text[:200], "reason": _explained(kind, words),
                }  # fmt: skip
            classes[key]["texts"] += 1
        if accepted[0] != accepted[1]:
            one = 1 - accepted.index(True)
            difference = text.group, text.extension, _general(str(replies[one][0]))
            entry = backend_differences.setdefault(
                difference, {"refused by": BACKENDS[one], "group": text.group, "extension": text.extension,
                        "said": difference[2], "texts": 0, "example": text.text[:200]},
            )  # fmt: skip
            entry["texts"] += 1
    return {
        "texts": len(all_texts), **{name: counts[name] for name in ("both", "neither", "lenient", "strict")},
        "modules that this kernel has not got": sorted({name for name, _, _ in absent}),
        "classes": sorted(classes.values(), key=lambda each: (each["kind"], -each["texts"], each["said"])),
        "backends differ": sorted(backend_differences.values(), key=lambda each: (-each["texts"], each["said"])),
    }  # fmt: skip


@click.command()
@click.option(
    "--answers",
    type=click.Path(path_type=Path),
    help="Store the tools' answers in this file, and reuse them.",
)
@click.option(
    "--json",
    "output",
    type=click.Path(path_type=Path),
    help=f"Write the figures to this file ({FIGURES.name}).",
)
@click.option("--every", default=1, show_default=True, help="Use only every N-th text.")
def main(answers: Path | None, output: Path | None, every: int) -> None:
    """Give thousands of texts to iptables and to hitables, and report the disagreements."""
    all_texts = (
        texts()[::every]
        if every == 1
        else [text for at, text in enumerate(texts()) if not at % every or text.group == "base"]
    )
    known: dict[str, Any] = json.loads(answers.read_text()) if answers and answers.exists() else {}
    ask(all_texts, known, lambda stage: click.echo(stage, err=True))
    if answers:
        answers.write_text(json.dumps(known))
    result = judge(all_texts, known)
    before = json.loads(FIGURES.read_text()).get("before") if FIGURES.exists() else None
    if output:
        figures = {"machine": machine(), "before": before, **result}
        output.write_text(json.dumps(figures, indent=1) + "\n")
    click.echo(
        f"{result['texts']} texts: {result['both']} accepted and {result['neither']} refused by both sides; "
        f"lenient {result['lenient']}, strict {result['strict']}"
    )
    open_classes = [each for each in result["classes"] if not each["reason"]]
    for each in open_classes:
        click.echo(f"unexplained, {each['kind']}, {each['texts']}: {each['said']}\n  {each['example']!r}")
    raise SystemExit(1 if open_classes else 0)


if __name__ == "__main__":
    command_line.run(main)
