"""Writes the rule sets of this folder: python rulesets/make.py [FOLDER]

With --services N it prints a host of N cluster services instead, in the manner of containers.rules.

Every set comes from a seed of its own, so the same text comes out each time.  README.md tells what
is in them; nothing here was copied from anywhere.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import campus
import containers
import filters
import ipv6

from hitables.generate import seed as seeds
from hitables.parse import classbench

SETS: dict[str, tuple[int, Callable[[Random], str]]] = {
    "campus.rules.gz": (1, campus.text),
    "containers.rules": (2, containers.text),
    "campus6.rules": (3, ipv6.text),
}
FILTERS = {"acl_100": 11, "acl_1k": 12, "fw_100": 13, "fw_1k": 14}


def contents() -> dict[str, str]:
    """The text of every set, by the name of its file; what ends in .gz is to be packed."""
    texts = {name: make(Random(seed)) for name, (seed, make) in SETS.items()}
    for name, seed in FILTERS.items():
        random = Random(seed)
        rules = filters.make(name, random)
        texts[f"classbench/{name}.gz"] = filters.filter_text(rules)
        texts[f"classbench/{name}_trace.gz"] = filters.trace_text(rules, 10 * len(rules), random)
        if name.endswith("_1k"):
            learnt = seeds.learn(classbench.parse(texts[f"classbench/{name}.gz"]))
            texts[f"seeds/{name[:-3]}.seed"] = seeds.to_text(learnt)
    return texts


def main() -> None:
    if sys.argv[1:2] == ["--services"]:
        if len(sys.argv) != 3 or not sys.argv[2].isdecimal():
            sys.exit("usage: make.py --services N")
        print(containers.text(Random(2), int(sys.argv[2])), end="")
        return
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, text in contents().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode()
        path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
        print(f"{path.stat().st_size:8} {path}")


if __name__ == "__main__":
    main()
