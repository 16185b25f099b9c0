"""Lists of hardware addresses in the kernel: `make bench-macs` (needs root).

A frame from one of MACS addresses meets a rule for each (`-m mac --mac-source ... -j DROP`), in legacy and in
nft, or one set of nft that holds them all.  Nanoseconds per frame above a chain that only drops, the median
of interleaved rounds.  ipset hash:mac is measured where the kernel has it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import statistics
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from hitables.errors import LiveError
from hitables.kernel.machine import machine
from hitables.kernel.namespace import Namespace, run

from . import command_line
from .doc_tables import fill, markdown

OUTPUT = Path("docs/evaluation/macs.json")
PAGE = Path("docs/trees.md")
MACS, FRAMES, ROUNDS = 1000, 4000, 9
OWN = "02:aa:00:00:00:01"
EMPTY = "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j DROP\nCOMMIT\n"
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x2, 0x1000

Commands = tuple[tuple[tuple[str, ...], str], ...]


def mac(number: int) -> str:
    return "02:" + number.to_bytes(5, "big").hex(":")


def listed() -> str:
    """A rule for each address."""
    rules = "".join(f"-A PREROUTING -m mac --mac-source {mac(n)} -j DROP\n" for n in range(MACS))
    return EMPTY.replace("-A", f"{rules}-A", 1)


def nft_set() -> str:
    members = ", ".join(map(mac, range(MACS)))
    chain = "chain c {\ntype filter hook prerouting priority -300;\nether saddr @macs drop\ndrop\n}\n"
    return f"table ip t {{\nset macs {{\ntype ether_addr\nelements = {{ {members} }}\n}}\n{chain}}}\n"


def ip_set() -> str:
    return "create macs hash:mac\n" + "".join(f"add macs {mac(n)}\n" for n in range(MACS))


LOADS: Mapping[str, Commands] = {
    "nothing, legacy": ((("iptables-legacy-restore",), EMPTY),),
    "nothing, nft": ((("iptables-nft-restore",), EMPTY),),
    "list, legacy": ((("iptables-legacy-restore",), listed()),),
    "list, nft": ((("iptables-nft-restore",), listed()),),
    "set of nft": ((("nft", "-f", "-"), nft_set()),),
    "ipset hash:mac, legacy": (
        (("ipset", "restore"), ip_set()),
        (("iptables-legacy-restore",), EMPTY.replace("-j", "-m set --match-set macs src -j", 1)),
    ),
}


def frame(number: int) -> bytes:
    """An Ethernet frame of one UDP packet from address *number*."""
    head = struct.pack("!BBHHHBBHII", 0x45, 0, 28, 0, 0, 64, 17, 0, 0x0A000005, 0x0A000006)
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + struct.pack("!H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + head[12:]
    ends = bytes.fromhex(OWN.replace(":", "")) + bytes.fromhex(mac(number).replace(":", ""))
    return ends + b"\x08\x00" + head + struct.pack("!HHHH", 1, 2, 8, 0)


def measure(loads: Mapping[str, Commands]) -> dict[str, float | str]:
    """Run inside a namespace: the median nanoseconds of a frame under each, or why it cannot be loaded."""
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH14x", b"tap0", IFF_TAP | IFF_NO_PI))
    run(("ip", "link", "set", "tap0", "address", OWN, "up"))
    frames = [frame(number) for number in range(MACS)]
    times: dict[str, list[float]] = {name: [] for name in loads}
    refused: dict[str, str] = {}
    for _ in range(ROUNDS):
        for name, commands in loads.items():
            run(("iptables-legacy-restore",), EMPTY.replace("-A PREROUTING -j DROP\n", ""))
            run(("nft", "flush", "ruleset"))
            try:
                for command, text in commands if name not in refused else ():
                    run(command, text)
            except LiveError as error:
                refused[name] = str(error)
            if name in refused:
                continue
            for each in frames[: MACS // 4]:
                os.write(tap, each)
            started = time.thread_time_ns()
            for at in range(FRAMES):
                os.write(tap, frames[at % MACS])
            times[name].append((time.thread_time_ns() - started) / FRAMES)
            if "ipset" in name:
                run(("iptables-legacy-restore",), EMPTY)
                run(("ipset", "destroy"))
    os.close(tap)
    return {name: refused.get(name) or statistics.median(each) for name, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help=f"write the figures there; {OUTPUT} fills {PAGE}")
    args = parser.parse_args()
    with Namespace() as namespace:
        found = namespace.call(measure, LOADS)
    rows: dict[str, float | str] = {}
    for name, ns in found.items():
        empty = found["nothing, legacy" if "legacy" in name else "nothing, nft"]
        assert isinstance(empty, float), empty
        rows[name] = (
            ns if isinstance(ns, str) else round(ns - (0 if name.startswith("nothing") else empty), 1)
        )
        print(f"{name:<24}{ns if isinstance(ns, str) else f'{rows[name]:>10} ns'}")
    if args.output:
        data = {"machine": machine(), "macs": MACS, "frames": FRAMES, "rounds": ROUNDS, "ns": rows}
        args.output.write_text(json.dumps(data) + "\n")
        if args.output == OUTPUT:
            lines = [
                [name, f"{ns:,.0f}" if isinstance(ns, float) else "not in this kernel"]
                for name, ns in rows.items()
                if not name.startswith("nothing")
            ]
            fill(PAGE, "macs", markdown([f"{MACS:,} addresses", "ns"], lines))


if __name__ == "__main__":
    command_line.run(main)
