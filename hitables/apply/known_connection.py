"""What the match conntrack asks of a connection besides its state, where both directions of it are known."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from ..ir.fields import TCP, Field
from ..ir.packet import Packet
from ..ir.rule import Match
from ..ir.tracked_walk import INVALID, UNTRACKED
from .translation import ConnectionEnds


class KnownConnection(NamedTuple):
    """The TCP connection of a packet.

    sent       its first direction, as the client has sent it
    arrived    as its server has it; None: nat has not translated it yet
    is_answer  whether the packet is of the other direction
    """

    sent: ConnectionEnds
    arrived: ConnectionEnds | None
    is_answer: bool = False

    def holds(self, match: Match, packet: Packet) -> bool | None:
        """Whether a match conntrack, of which the states have been compared, holds for *packet*.

        None: it asks for something else, too.
        """
        if packet.values.get(Field.STATE) in (INVALID, UNTRACKED):
            return "--ctstate" in match.words  # there is no connection to ask for the rest (xt_conntrack.c)
        answers = set()
        words = iter(match.key.split(" ")[1:])
        for word in words:
            is_inverted = word == "!"
            option = next(words) if is_inverted else word
            value = next(words)
            if option != "--ctstate":
                held = self._has(option, value)
                answers.add(None if held is None else held != is_inverted)
        return False if False in answers else None if None in answers else True

    def _has(self, option: str, value: str) -> bool | None:
        """Whether the connection has the value of an option; None: that is not known."""
        if option == "--ctdir":
            return (value == "REPLY") == self.is_answer
        if option == "--ctproto":
            return value == str(TCP)
        address = self._address(option.removesuffix("port"))
        if address is None:
            return None
        host, port = address
        if not option.endswith("port"):
            try:
                return ipaddress.ip_address(host) in ipaddress.ip_network(value)
            except ValueError:  # a mask with gaps
                return None
        low, _, high = value.partition(":")
        return int(low) <= port <= int(high or low)

    def _address(self, option: str) -> tuple[str, int] | None:
        sent, arrived = self.sent, self.arrived
        if option == "--ctorigsrc":
            return sent.client, sent.client_port
        if option == "--ctorigdst":
            return sent.server, sent.server_port
        if option == "--ctreplsrc" and arrived is not None:
            return arrived.server, arrived.server_port
        if option == "--ctrepldst" and arrived is not None:
            return arrived.client, arrived.client_port
        return None
