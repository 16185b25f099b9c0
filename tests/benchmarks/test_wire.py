"""Packets over veth: each is counted once, whatever the rules decide."""

from __future__ import annotations

import random
import struct

import pytest

from benchmarks import wire
from benchmarks.kernel import random_rules, rules_text
from benchmarks.wire import Sent, Wire, frames, processors, total
from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load

both = pytest.mark.parametrize("backend", Backend)


def drawn(rules: int, seed: int = 1) -> tuple[str, bytes, int]:
    """Rules of INPUT, and frames that match them, one each."""
    rng = random.Random(seed)
    found = random_rules(rules, [24], rng)
    packets = b"".join(rule.packet(rng) for rule in found)
    return rules_text(found).replace("OUTPUT", "INPUT"), frames(packets, rules), rules


@pytest.mark.parametrize("seed", range(5))
def test_a_frame_is_its_packet_with_a_head_and_the_right_sum(seed: int) -> None:
    rng = random.Random(seed)
    packets = [rule.packet(rng) for rule in random_rules(30, [16, 24, 32], rng)]
    data = frames(b"".join(packets), 30)
    size = len(data) // 30
    for number, packet in enumerate(packets):
        frame = data[number * size : (number + 1) * size]
        assert frame[:14] == wire.HEAD
        head, words = frame[14:34], sum(struct.unpack("!10H", frame[14:34]))
        while words >> 16:
            words = (words & 0xFFFF) + (words >> 16)
        assert words == 0xFFFF, "a head and its sum add up to ones"
        assert head[:10] + head[12:] == packet[:10] + packet[12:20] and frame[34:] == packet[20:]


@pytest.mark.needs_kernel
@both
def test_packets_that_rules_drop_are_received_and_not_delivered(backend: Backend) -> None:
    text, data, count = drawn(64)
    cpu, _ = processors()
    lines = text.replace(":INPUT ACCEPT", ":INPUT DROP").splitlines(keepends=True)
    half = "".join(line for number, line in enumerate(lines) if number % 2 or not line.startswith("-A"))
    delivered = []
    for rules in (text, half):
        with Wire("INPUT") as veth:
            load(rules, Family.IPV4, backend, veth.receiver)
            sent = veth.send(data, count, 0.25, cpu)
        assert sent.received == sent.sent > 0 and sent.seconds >= 0.25
        assert sum(sent.ticks) <= sent.received and len(sent.ticks) >= 2
        delivered.append(sent.delivered / sent.received)
    assert delivered[0] == 1 and 0 < delivered[1] < 1


@pytest.mark.needs_kernel
def test_forwarded_packets_pass_the_rules_of_forward_and_no_others() -> None:
    text, data, count = drawn(64)
    with Wire("FORWARD") as veth:
        load(text.replace("INPUT", "FORWARD"), Family.IPV4, Backend.NFT, veth.receiver)
        sent = veth.send(data, count, 0.1, processors()[0])
        saved = veth.receiver.run(["iptables-nft-save", "-c"])
    assert sent.received == sent.sent and sent.delivered == 0
    rules = [line for line in saved.splitlines() if line.startswith("[")]
    assert sum(int(line[1:].split(":")[0]) for line in rules) == sent.sent


@pytest.mark.needs_kernel
def test_packets_that_do_not_arrive_are_an_error() -> None:
    _, data, count = drawn(8)
    with Wire("INPUT") as veth:
        # Frames for another host end before IP.
        veth.receiver.run(["ip", "link", "set", wire.RECEIVED, "address", "02:00:00:00:00:07"])
        with pytest.raises(LiveError, match=r"none of .* packets came through"):
            veth.send(data, count, 0.05, processors()[0])


def test_slices_add_up() -> None:
    one, other = Sent(1.0, 10, 8, 4, 0.5, (3, 5)), Sent(3.0, 30, 24, 12, 1.5, (24,))
    both_of_them = total([one, other])
    assert both_of_them == Sent(4.0, 40, 32, 16, 2.0, (3, 5, 24))
    assert both_of_them.per_second == 8 and both_of_them.ns == pytest.approx(4e9 / 32)
    assert both_of_them.cpu_ns == pytest.approx(2e9 / 32)
