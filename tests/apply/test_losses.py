"""What the kernel has lost of a record, and what was only added to it."""

from __future__ import annotations

from hitables.apply import texts
from hitables.apply.drift import differences, losses
from hitables.apply.records import Half

LOADED = """*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:ht1 - [0:0]
:ht2 - [0:0]
-A INPUT -p tcp -g ht1
-A ht1 -s 10.0.0.1/32 -j DROP
-A ht2 -s 10.0.0.2/32 -j DROP
COMMIT
"""


def lost(kernel: str) -> list[str]:
    half = Half(texts.parse(LOADED), {"filter": ("ht1", "ht2")})
    return losses(texts.parse(kernel), half, ())


def test_a_chain_of_a_tree_that_no_packet_reaches_is_no_loss() -> None:
    assert lost(LOADED) == []
    added = LOADED.replace("-A INPUT", "-A INPUT -s 192.0.2.1/32 -j DROP\n-A INPUT")
    assert lost(added) == []
    half = Half(texts.parse(LOADED), {"filter": ("ht1", "ht2")})
    assert len(list(differences(texts.parse(added), half, ()))) == 1


def test_a_rule_of_a_tree_that_is_gone_is_a_loss() -> None:
    assert lost(LOADED.replace("-A ht1 -s 10.0.0.1/32 -j DROP\n", "")) != []


def test_the_jumps_of_others_count_in_the_number_of_a_rule() -> None:
    half = Half(texts.parse(LOADED), {"filter": ("ht1", "ht2")})
    others = ":f2b-sshd - [0:0]\n-A INPUT -j f2b-sshd\n-A INPUT -s 192.0.2.1/32 -j DROP\n"
    kernel = LOADED.replace("-A INPUT -p tcp -g ht1\n", others)
    assert losses(texts.parse(kernel), half, ("f2b-*",))[0] == (
        "table filter, chain INPUT: rule 2 is now '-s 192.0.2.1/32 -j DROP', was '-p tcp -g ht1'"
    )


def test_a_jump_to_another_chain_is_added_and_a_tree_may_have_another_name() -> None:
    chains = LOADED.replace(":ht1", ":a - [0:0]\n:b - [0:0]\n:ht1")
    own = chains.replace("-A INPUT", "-A INPUT -j a\n-A FORWARD -j b\n-A INPUT")
    half = Half(texts.parse(own), {"filter": ("ht1", "ht2")})
    added = own.replace("-A INPUT -j a", "-A INPUT -j b\n-A INPUT -j a")
    for kernel in (added, added.replace("ht1", "ht7")):
        assert losses(texts.parse(kernel), half, ()) == []
    assert losses(texts.parse(own.replace("-A INPUT -j a", "-A INPUT -j b")), half, ()) != []
