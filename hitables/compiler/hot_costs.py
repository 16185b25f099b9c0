"""What a chain costs its packets with some hot rules in front of it, cache misses included.

Idea: one table holds the compiled chain, and besides it a chain for each choice of hot rules, which goes on
like the compiled one.  So the table is read once for all choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..analyse.boxes import Axis, Words
from ..costs.packet_cost import TableCosts, program_of
from ..costs.profile import Costs
from ..emit.chain_writer import WrittenChains
from ..ir.fields import STATES, TCP, Family, Field, Fragment
from ..ir.packet import Backend
from ..ir.program import Chain, Program, Table
from ..ir.rule import Rule
from ..simulate.batch import HALF, PACKET, PacketBatch
from ..simulate.five_tuple import L4_BYTES

Floats = npt.NDArray[np.float64]

# The share of the model's cache misses that packets have which come in bursts: the model lets flows take
# turns.  On `edge`, measured: 0.39 (fw1_10K, legacy), 0.38 (fw1_10K, nft), 0.7 (acl1_10K, both).  With 1, hot
# rules that should have saved fw1_10K a quarter cost it 5 %.
MISSES = 0.4

# Fields that each packet has.
_ALWAYS = (Field.SRC, Field.DST, Field.PROTO, Field.FRAG, Field.IIF, Field.OIF, Field.STATE)


class HotCosts:
    """A compiled chain and the packets that enter it.

    table    that the chain is in; its other chains as they are before compiling
    written  the compiled chain
    fixed    rules of it that stay in front of hot rules
    """

    def __init__(
        self,
        table: Table,
        chain: str,
        written: WrittenChains,
        fixed: int,
        costs: Costs,
        backends: Sequence[Backend],
        family: Family,
    ) -> None:
        self.table, self.chain, self.written, self.fixed = table, chain, written, fixed
        self.costs, self.backends, self.family = costs, backends, family

    def of(self, hot: Sequence[Sequence[Rule]], batch: PacketBatch) -> Floats:
        """Nanoseconds of a packet of *batch*, [choices, backends], with each of the *hot* rules."""
        rules, fixed = self.written.rules, self.fixed
        taken = {each.name for each in (*self.table.chains, *self.written.chains)}
        names = [f"hot {number}" for number in range(len(hot))]
        assert not taken & set(names), "no chain has a blank in its name"
        choices = [
            Chain(name, None, (*rules[:fixed], *each, *rules[fixed:]))
            for name, each in zip(names, hot, strict=True)
        ]
        # Chains that enter the compiled one need it, but no packet comes by them: chains jump in no circle.
        others = (each.with_rules(()) if each.name == self.chain else each for each in self.table.chains)
        table = replace(self.table, chains=(*others, *self.written.chains, *choices))
        program = Program(self.family, (table,), self.table.name)
        inside = [each.name for each in table.chains if each.name not in names]
        spent = np.zeros((len(hot), len(self.backends)))
        for at, backend in enumerate(self.backends):
            read = program_of(program, table.name, backend)
            costs = TableCosts(read, table.name, self.costs.of(backend), backend)
            for number, name in enumerate(names):
                found = costs.spent(name, batch, [*inside, name])
                spent[number, at] = found.cached + MISSES * found.cache_miss
        return spent


def batch_of(points: Words, axes: Sequence[Axis], family: Family) -> PacketBatch:
    """*points* as packets; fields that are no axes are those of a new connection by TCP.

    What else a match may ask, as a mark or a limit, is not known of them.
    """
    rows = np.zeros(len(points), PACKET)
    low, high = rows["low"], rows["high"]
    low[:, Field.PROTO], low[:, Field.FRAG], low[:, Field.STATE] = (
        TCP,
        int(Fragment.WHOLE),
        STATES.index("NEW"),
    )
    rows["present"] = sum(1 << field for field in _ALWAYS)
    for at, axis in enumerate(axes):
        words, field = points[:, at], axis.field
        assert isinstance(field, Field), "no mark is recorded of packets"
        has: npt.NDArray[np.bool_] = np.ones(len(points), bool)
        if axis.optional:
            has = np.any(words, axis=1)
            rows["present"] &= ~np.where(has, 0, 1 << field).astype(np.uint16)
            rows["present"] |= np.where(has, 1 << field, 0).astype(np.uint16)
        low[has, field] = words[has, 1] - np.uint64(axis.optional)
        if field in HALF:
            high[:, HALF[field]] = words[:, 0]
    rows["l4_bytes"] = L4_BYTES
    return PacketBatch(family, rows, seeded=False)
