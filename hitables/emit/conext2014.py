"""Trees in jumps as "Trees in the List" prints them (CoNEXT 2014, section 5.3).

A run of rules has a tree.  Each node has a chain, and so has each step of the binary search over a node's
children (Figure 4).  A leaf lists its rules; then its exit rule goes to the chain of the rules after the run.
A built-in chain ends with a rule for its policy.

Differs from the 2014 tool: that entered all chains by `-j`, so RETURN in the rules after a run, or their end,
came back into the tree.  Here all chains are entered by `-g`; the numbers of rules and of rules read are
equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..build.tree import NodeKind, Tree
from ..ir.fields import Family, Field
from ..ir.rule import Ends, Kind, Match, Rule, Target
from .chain_writer import ChainWriter, Names, OpenChain, WrittenChains, goto
from .tree_tests import matches, test_words


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rules of one protocol, with a tree over them."""

    rules: Sequence[Rule]
    tree: Tree
    protocol: int


def write_runs(
    pieces: Sequence[Run | Sequence[Rule]], policy: str | None, family: Family, names: Names
) -> WrittenChains:
    """Write a chain of *pieces*, in order: runs as trees, other rules one by one.

    *policy*: that of a built-in chain; None for a user chain.
    """
    return _RunWriter(family, names).write_pieces(pieces, policy)


class _RunWriter(ChainWriter):
    def write_pieces(self, pieces: Sequence[Run | Sequence[Rule]], policy: str | None) -> WrittenChains:
        here: OpenChain | None = self.open()
        assert here is not None
        first = (_go((), here),)
        for at, piece in enumerate(pieces):
            assert here is not None, "a piece follows the last piece"
            if not isinstance(piece, Run):
                here.rules += [self.copy(rule) for rule in piece]
                continue
            root = self.open()
            after = self.open() if policy is not None or at + 1 < len(pieces) else None
            words = test_words(Field.PROTO, piece.protocol, piece.protocol, False, None, self.family)
            here.rules.append(_go(matches(words, self.family), root))
            if after is not None:
                here.rules.append(_go((), after))
            self.write(piece, root, after)
            here = after
        if here is not None and policy is not None:
            here.rules.append(Rule((), Target(policy, Kind.VERDICT, policy, ends=Ends.SURELY)))
        return self.written(first)

    def write(self, run: Run, root: OpenChain, after: OpenChain | None) -> None:
        tree = run.tree
        node, entry, to = tree.node.tolist(), tree.entry.tolist(), tree.edge["to"].tolist()
        todo = [(tree.root, root)]
        while todo:
            at, here = todo.pop()
            first, entries, first_edge, edges, kind = node[at][:5]
            here.rules += [self.copy(run.rules[number]) for number in entry[first : first + entries]]
            if kind == NodeKind.LEAF:
                if after is not None:
                    here.rules.append(_go((), after))
                continue
            assert kind == NodeKind.LOOKUPS
            children = [self.open() for _ in range(edges)]
            self.search(run, node[at][5], first_edge, children, here)
            todo += zip(to[first_edge : first_edge + edges], children, strict=True)

    def search(
        self, run: Run, axis_at: int, first_edge: int, children: list[OpenChain], here: OpenChain
    ) -> None:
        """Write the binary search over a node's children, from chain *here* on."""
        axis = run.tree.boxes.axes[axis_at]
        edge = run.tree.edge
        todo = [(0, len(children) - 1, here)]

        def test(low_edge: int, high_edge: int) -> tuple[Match, ...]:
            low, high = (
                (int(words[0]) << 64 | int(words[1])) - axis.optional
                for words in (edge["low"][first_edge + low_edge], edge["high"][first_edge + high_edge])
            )
            return self.test(axis.field, low, high, run.protocol)

        while todo:
            start, end, chain = todo.pop()
            if start == end:
                chain.rules.append(_go((), children[start]))
                continue
            middle = (start + end) // 2
            chain.rules.append(_go(test(middle, middle), children[middle]))
            if start < middle:
                left = self.open()
                chain.rules.append(_go(test(start, middle - 1), left))
                todo.append((start, middle - 1, left))
            right = self.open()
            chain.rules.append(_go((), right))
            todo.append((middle + 1, end, right))

    def test(self, field: Field, low: int, high: int, protocol: int) -> tuple[Match, ...]:
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
