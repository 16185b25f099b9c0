#!/usr/bin/env python3
"""Keeps a compiled rule set up to date; made to be run by a configuration manager.

    refresh_rules.py [--source FILE] [--backend any|legacy|nft] [--family 4|6] DESTINATION

Reads the rules from FILE, or, without it, those that the host runs, as `hitables save` does; compiles
them; proves the result equal to them; and writes DESTINATION if that changes it, in one step.  It loads
nothing: run `iptables-restore DESTINATION` when the exit status says that DESTINATION is new.

Exit status: 0 nothing to do, 10 DESTINATION is new, 2 trouble, 130 interrupted (DESTINATION is as it was).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hitables import interrupts

if TYPE_CHECKING:
    import hitables

UNCHANGED, TROUBLE, CHANGED = 0, 2, 10


def main() -> int:
    # Imported here, where an interrupt ends the script without a traceback.
    import hitables
    from hitables.files import check_outputs, read_text, write_texts

    parser = argparse.ArgumentParser(description="Keep a compiled rule set up to date.")
    parser.add_argument("destination")
    parser.add_argument("--source", help="rules to compile; those of the host when left out")
    parser.add_argument("--backend", choices=["any", "legacy", "nft"], default="any")
    parser.add_argument("--family", choices=["4", "6"], default="4")
    args = parser.parse_args()
    family = hitables.Family(int(args.family))
    try:
        check_outputs({"DESTINATION": args.destination}, {"--source": args.source})
        if args.source:
            rules = hitables.read_file(args.source, family=family)
        else:
            rules = hitables.read(rules_of_host(family, args.backend), family=family, name="the host's rules")
        # Counters change all the time; the destination must change only when the rules do.
        output = hitables.compile(rules, backend=args.backend, uniform=True)
        old = read_text(args.destination) if Path(args.destination).exists() else None
        if output.text == old:
            return UNCHANGED
        # The message first: when it cannot be written, neither is the destination.
        message = f"{args.destination}: {output.program.rule_count()} rules\n"
        write_texts([("-", message), (args.destination, output.text)])
    except hitables.HitablesError as error:
        return trouble(str(error))
    except BrokenPipeError:
        return trouble("the reader of the output closed it")
    return CHANGED


def trouble(message: str) -> int:
    print(f"refresh_rules: {message}", file=sys.stderr)
    if sys.stdout is not None:  # buffered output must not fail again at exit, with another status
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return TROUBLE


def rules_of_host(family: hitables.Family, backend: str) -> str:
    """The output of iptables-save, checked against the kernel, with the counters of policies set to 0.

    LiveError where iptables-save does not print the rules that the kernel holds.
    """
    import hitables
    from hitables.kernel.checked_save import KernelReader, also_present

    tool = "iptables" if family is hitables.Family.IPV4 else "ip6tables"
    reader = KernelReader(family, tool if backend == "any" else f"{tool}-{backend}")
    warning = also_present(family, reader.backend)
    if warning:
        print(f"refresh_rules: {warning}", file=sys.stderr)
    saved = reader.read().text
    if re.search(r"^:(ht|sf)_*\d+ -", saved, flags=re.MULTILINE):
        raise hitables.HitablesError("the host runs compiled rules; give --source, what they were made from")
    return re.sub(r"^(:\S+ \S+) \[\d+:\d+\]", r"\1 [0:0]", saved, flags=re.MULTILINE)


if __name__ == "__main__":
    interrupts.run("refresh_rules", lambda: lambda: sys.exit(main()))
