"""Rules that cross, as text."""

from __future__ import annotations

import random


def crossing(count: int, seed: int) -> str:
    """Rules wide in one address, the other, or neither, with ports of two protocols."""
    rng = random.Random(seed)

    def prefix() -> str:
        bits = rng.choice([16, 20, 24, 24, 32])
        value = (10 << 24 | rng.getrandbits(14) << 10) >> 32 - bits << 32 - bits
        return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0)) + f"/{bits}"

    lines = []
    for _ in range(count):
        sides = rng.choice([("-s",), ("-d",), ("-s", "-d")])
        words = [f"{side} {prefix()}" for side in sides]
        protocol = rng.choice(["tcp", "udp", "icmp", ""])
        if protocol:
            words.append(f"-p {protocol}")
        if protocol in ("tcp", "udp"):
            low = rng.randrange(2000)
            words.append(f"-m {protocol} --dport {rng.choice([str(low), f'{low}:{low + 500}'])}")
        words.append(f"-j {rng.choice(['ACCEPT', 'DROP', 'LOG', 'RETURN'])}")
        lines.append(" ".join(["-A FORWARD", *words]))
    return "\n".join(
        [
            "*filter",
            ":INPUT ACCEPT [0:0]",
            ":FORWARD DROP [0:0]",
            ":OUTPUT ACCEPT [0:0]",
            *lines,
            "COMMIT",
            "",
        ]
    )
