"""An option that changes what a match or a target does makes it another one to the proof."""

from __future__ import annotations

import pytest
from support.exact_answers import differ

from hitables import read
from hitables.ir.program import Program

# Table and chain, a rule, and the same with another option or value.
OTHERS = [
    ("filter INPUT", "-m limit --limit 3/hour", "-m limit --limit 3/hour --limit-burst 4"),
    ("filter INPUT", "-m limit --limit 3/hour", "-m limit --limit 4/hour"),
    ("filter INPUT", "-m recent --rcheck", "-m recent --rcheck --name a"),
    ("filter INPUT", "-m recent --rcheck", "-m recent --rcheck --rdest"),
    ("filter INPUT", "-m recent --rcheck", "-m recent --rcheck --rttl"),
    ("filter INPUT", "-m recent --rcheck", "-m recent --rcheck --mask 255.255.255.0"),
    ("filter INPUT", "-m recent --rcheck --seconds 9", "-m recent --rcheck --seconds 9 --reap"),
    ("filter INPUT", "-m hashlimit --hashlimit-name a --hashlimit-upto 5/sec",
     "-m hashlimit --hashlimit-name a --hashlimit-upto 5/sec --hashlimit-mode srcip"),
    ("filter INPUT", "-m set --match-set a src", "-m set --match-set a src --return-nomatch"),
    ("filter INPUT", "-m set --match-set a src", "-m set --match-set a dst"),
    ("filter INPUT", "-m string --algo bm --string a", "-m string --algo bm --string a --icase"),
    ("filter INPUT", "-m string --algo bm --string a", "-m string --algo bm --string a --to 9"),
    ("filter INPUT", "-m time --timestop 12:00", "-m time --timestop 12:00 --kerneltz"),
    ("filter INPUT", "-m time --weekdays Mon", "-m time ! --weekdays Mon"),
    ("filter INPUT", "-m connbytes --connbytes 5 --connbytes-dir both --connbytes-mode bytes",
     "-m connbytes --connbytes 5:5 --connbytes-dir both --connbytes-mode bytes"),
    ("filter INPUT", "-m conntrack --ctproto 6", "-m conntrack --ctstate NEW --ctproto 6"),
    ("filter INPUT", "-m conntrack --ctstate NEW --ctdir ORIGINAL",
     "-m conntrack --ctstate NEW --ctdir REPLY"),
    ("filter INPUT", "-m physdev --physdev-is-in", "-m physdev ! --physdev-out a"),
    ("filter OUTPUT", "-m owner --gid-owner 5", "-m owner --gid-owner 5 --suppl-groups"),
    ("filter INPUT", f"-j LOG --log-prefix {'a' * 28}1", f"-j LOG --log-prefix {'a' * 28}2"),
    ("filter INPUT", "-j NFQUEUE --queue-balance 0:3", "-j NFQUEUE --queue-balance 0:3 --queue-cpu-fanout"),
    ("filter INPUT", "-j NFQUEUE", "-j NFQUEUE --queue-bypass"),
    ("filter INPUT", "-j REJECT", "-j REJECT --reject-with icmp-host-prohibited"),
    ("mangle INPUT", "-j CONNMARK --set-mark 1", "-j CONNMARK --set-mark 1 --left-shift-mark 3"),
    ("mangle INPUT", "-j CONNMARK --save-mark", "-j CONNMARK --save-mark --nfmask 0xff"),
    ("mangle INPUT", "-j MARK --set-mark 1/1", "-j MARK --or-mark 3"),
    ("mangle INPUT", "-j TOS --set-tos 0x10/0xff", "-j TOS --set-tos Minimize-Delay"),
    ("mangle INPUT", "-j SET --add-set a src", "-j SET --add-set a src --exist"),
    ("raw PREROUTING", "-j CT --zone 1", "-j CT --zone-orig 1"),
    ("raw PREROUTING", "-j CT --notrack", "-j CT --zone 1"),
    ("raw PREROUTING", "-j NOTRACK", "-j CT"),
    ("nat POSTROUTING", "-j MASQUERADE", "-j MASQUERADE --random"),
    ("nat POSTROUTING", "-j SNAT --to-source 10.0.0.1", "-j SNAT --to-source 10.0.0.1-10.0.0.2"),
]  # fmt: skip


def program(place: str, rule: str) -> Program:
    table, chain = place.split()
    target = "" if " -j " in f" {rule}" else " -j ACCEPT"
    return read(
        f"*{table}\n:{chain} {'DROP' if table == 'filter' else 'ACCEPT'}\n-A {chain} {rule}{target}\nCOMMIT\n"
    )


@pytest.mark.parametrize(("place", "one", "other"), OTHERS)
def test_another_option_or_value_is_a_difference(place: str, one: str, other: str) -> None:
    first, second = program(place, one), program(place, other)
    assert differ(first, first) is None and differ(second, second) is None
    assert differ(first, second) is not None
