"""The rule sets for proofs and mutants: real ones, and the filters of WUSTL.

They are in the folder `shared` beside the project, because neither may be redistributed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from hitables.errors import HitablesError
from hitables.files import read_text
from hitables.parse.classbench import parse, to_text

SHARED = Path(__file__).resolve().parents[1].parent / "shared"
VERDICT_SEED = 3
WUSTL = tuple(f"{kind}_{size}" for kind in ("acl1", "fw1", "ipc1") for size in ("100", "1K", "5K", "10K"))


def dumps(shared: Path = SHARED) -> Iterator[tuple[str, str]]:
    """Name and text of every real rule set."""
    folder = shared / "corpus" / "dumps"
    if not folder.is_dir():
        raise HitablesError(f"{folder}: no such folder; the rule sets are in a folder beside the project")
    for path in sorted(folder.iterdir()):
        yield path.name, path.read_text("utf-8", "surrogateescape")


def filters(shared: Path = SHARED) -> Iterator[tuple[str, str]]:
    """Name and text of the twelve filters of WUSTL, as rules of FORWARD."""
    for name in WUSTL:
        yield name, to_text(parse(read_text(str(shared / "rulesets" / "wustl" / f"{name}.gz")), name))


def refused(shared: Path = SHARED) -> Iterator[tuple[str, str]]:
    """Name and text of what iptables-restore does not take, and we must not."""
    for path in sorted((shared / "corpus" / "refused").iterdir()):
        if path.suffix != ".tsv":
            yield path.name, path.read_text("utf-8", "surrogateescape")


def raw_tables(count: int = 4, rules: int = 40) -> Iterator[tuple[str, str]]:
    """Tables raw that stop tracking in mid-chain, and test the connection state before and behind.

    No real set that we have does that, and compilers must not mistake the one for the other.
    """
    for number in range(count):
        rng = random.Random(number)
        lines = ["*raw", ":PREROUTING ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]"]
        for at in range(rules):
            where = f"-A PREROUTING -d 10.{number}.{rng.randrange(64) * 4}.0/{rng.randrange(20, 25)}"
            protocol = rng.choice(("tcp", "udp"))
            asked = rng.choice(("INVALID", "UNTRACKED", "INVALID,UNTRACKED"))
            lines.append(
                (
                    f"{where} -p {protocol} -m {protocol} --dport {rng.randrange(1, 1024)} -j ACCEPT",
                    f"{where} -p {protocol} -j CT --notrack",
                    f"{where} -m conntrack --ctstate {asked} -j {rng.choice(('DROP', 'ACCEPT'))}",
                    f"{where} -j DROP",
                )[at % 4]
            )
        yield f"raw table {number}", "\n".join([*lines, "COMMIT"]) + "\n"


def verdicts_drawn(name: str, shared: Path = SHARED) -> list[str]:
    """The rules of FORWARD of the set *name* (as wustl/fw1_10K), each with ACCEPT or DROP, without `-A`."""
    rng = random.Random(VERDICT_SEED)
    lines = to_text(parse(read_text(str(shared / "rulesets" / f"{name}.gz")), name)).splitlines()
    bodies = [line.removeprefix("-A FORWARD ") for line in lines if line.startswith("-A FORWARD ")]
    return [body.replace("-j ACCEPT", f"-j {rng.choice(('ACCEPT', 'DROP'))}") for body in bodies]
