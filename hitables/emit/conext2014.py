"""Trees in jumps as "Trees in the List" prints them (CoNEXT 2014, section 5.3).

A run of rules has a tree.  Each node has a chain, and so has each step of the binary search over a node's
children (Figure 4); a side of one child needs no step, unless the tree asks for the form of the 2014 tool
(LONE_LOOKUPS).  Protocols are told apart in line, one rule each: iptables tests no range of them.  A leaf
lists its rules; then its exit rule goes to the chain of the rules after the run.  A built-in chain ends with
a rule for its policy.

Differs from the 2014 tool: that entered all chains by `-j`, so RETURN in the rules after a run, or their end,
came back into the tree.  Here all chains are entered by `-g`; the numbers of rules and of rules read are
equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..analyse.boxes import Axis
from ..build.tree import NodeKind, Tree
from ..ir.fields import Family, Field
from ..ir.rule import Ends, Kind, Match, Rule, Target
from .chain_writer import ChainWriter, FreshNames, OpenChain, WrittenChains, goto
from .tree_tests import matches, test_words


@dataclass(frozen=True, slots=True)
class ProtocolRun:
    """Consecutive rules with a tree over them: of one *protocol*, or of any (None)."""

    rules: Sequence[Rule]
    tree: Tree
    protocol: int | None


@dataclass(frozen=True, slots=True)
class _Search:
    """The binary search of one node: over *children*, whose edges in the tree begin at *first_edge*."""

    tree: Tree
    axis_at: int
    first_edge: int
    children: list[OpenChain]
    protocol: int | None
    lone_chains: bool

    @property
    def axis(self) -> Axis:
        return self.tree.boxes.axes[self.axis_at]

    def values(self, first: int, last: int) -> tuple[int, int]:
        """The least and the greatest value of the children *first* to *last*."""
        edge = self.tree.edge
        low, high = edge["low"][self.first_edge + first], edge["high"][self.first_edge + last]
        optional = self.axis.optional
        return (int(low[0]) << 64 | int(low[1])) - optional, (int(high[0]) << 64 | int(high[1])) - optional


def write_runs(
    pieces: Sequence[ProtocolRun | Sequence[Rule]], policy: str | None, family: Family, names: FreshNames
) -> WrittenChains:
    """Write a chain of *pieces*, in order: runs as trees, other rules one by one.

    *policy*: that of a built-in chain; None for a user chain.
    """
    return _RunWriter(family, names).write_pieces(pieces, policy)


class _RunWriter(ChainWriter):
    def write_pieces(
        self, pieces: Sequence[ProtocolRun | Sequence[Rule]], policy: str | None
    ) -> WrittenChains:
        here: OpenChain | None = self.open()
        assert here is not None
        first = (_go((), here),)
        for at, piece in enumerate(pieces):
            assert here is not None, "a piece follows the last piece"
            if not isinstance(piece, ProtocolRun):
                here.rules += [self.copy(rule) for rule in piece]
                continue
            root = here if piece.protocol is None else self.open()
            after = self.open() if policy is not None or at + 1 < len(pieces) else None
            if piece.protocol is not None:
                here.rules.append(_go(self.protocol_test(piece.protocol), root))
                if after is not None:
                    here.rules.append(_go((), after))
            self.write(piece, root, after)
            here = after
        if here is not None and policy is not None:
            here.rules.append(Rule((), Target(policy, Kind.VERDICT, policy, ends=Ends.SURELY)))
        return self.written(first)

    def write(self, run: ProtocolRun, root: OpenChain, after: OpenChain | None) -> None:
        tree = run.tree
        node, entry, to = tree.node.tolist(), tree.entry.tolist(), tree.edge["to"].tolist()
        todo = [(tree.root, root, run.protocol)]
        while todo:
            at, here, protocol = todo.pop()
            first, entries, first_edge, edges, kind, axis_at = node[at][:6]
            here.rules += [self.copy(run.rules[number]) for number in entry[first : first + entries]]
            if kind == NodeKind.LEAF:
                if after is not None:
                    here.rules.append(_go((), after))
                continue
            children = [self.open() for _ in range(1 if kind == NodeKind.TEST else edges)]
            if kind == NodeKind.TEST:
                value, rest = tree[at].edges
                here.rules.append(_go(self.protocol_test(value.low), children[0]))
                todo += [(rest.to, here, protocol), (value.to, children[0], value.low)]
                continue
            assert kind in (NodeKind.LOOKUPS, NodeKind.LONE_LOOKUPS)
            search = _Search(tree, axis_at, first_edge, children, protocol, kind == NodeKind.LONE_LOOKUPS)
            self.search(search, here)
            todo += [
                (number, child, protocol)
                for number, child in zip(to[first_edge : first_edge + edges], children, strict=True)
            ]

    def search(self, search: _Search, here: OpenChain) -> None:
        """Write the binary search over a node's children, from chain *here* on."""
        children = search.children
        todo = [(0, len(children) - 1, here)]

        def test(low_edge: int, high_edge: int) -> tuple[Match, ...]:
            assert isinstance(search.axis.field, Field), "the paper knows no marks"
            return self.test(search.axis.field, *search.values(low_edge, high_edge), search.protocol)

        def side(start: int, end: int) -> OpenChain:
            """Where packets of these children go: to the only one, or on with the search."""
            if start == end and not search.lone_chains:
                return children[start]
            chain = self.open()
            todo.append((start, end, chain))
            return chain

        while todo:
            start, end, chain = todo.pop()
            if start == end:
                chain.rules.append(_go((), children[start]))
                continue
            middle = (start + end) // 2
            chain.rules.append(_go(test(middle, middle), children[middle]))
            if start < middle:
                chain.rules.append(_go(test(start, middle - 1), side(start, middle - 1)))
            chain.rules.append(_go((), side(middle + 1, end)))

    def protocol_test(self, protocol: int) -> tuple[Match, ...]:
        return matches(test_words(Field.PROTO, protocol, protocol, False, None, self.family), self.family)

    def test(self, field: Field, low: int, high: int, protocol: int | None) -> tuple[Match, ...]:
        if field in (Field.SRC, Field.DST):
            option = "--src-range" if field is Field.SRC else "--dst-range"
            words: tuple[str, ...] = ("-m", "iprange", option, address_range(low, high, self.family))
        else:
            words = test_words(field, low, high, False, protocol, self.family)
        return matches(words, self.family)


def address_range(low: int, high: int, family: Family) -> str:
    """The range as `-m iprange` prints it."""
    import ipaddress

    address = ipaddress.IPv4Address if family is Family.IPV4 else ipaddress.IPv6Address
    return f"{address(low)}-{address(high)}"


def _go(tests: tuple[Match, ...], chain: OpenChain) -> Rule:
    return Rule(tests, goto(chain.name))
