#ifndef HITABLES_CUT_TREE_NODES_H
#define HITABLES_CUT_TREE_NODES_H
#include "cut_tree.h"

/* The nodes of cut_tree.c, for those that walk them. */

/* Which bits of a header choose the part: *first* is its node.  Packed, for one node is what a level of a
 * search reads: dimension (5 bits), shift (5), bits (4), twice.  Of a leaf, *how* is IS_LEAF and the
 * number of its entries, the first of which is *first*. */
struct cut_tree_node {
    uint32_t first, how;
};
enum {
    IS_LEAF = 1U << 31,
    DIM_BITS = 5,
    SHIFT_BITS = 5,
    WIDTH_BITS = 4,
    ONE_BITS = DIM_BITS + SHIFT_BITS + WIDTH_BITS
};

struct cut_tree {
    struct budget *budget;
    struct scope scope;
    struct leaves leaves;
    struct cut_tree_node *node;
    uint32_t nodes, room;
};

static inline uint32_t part_of(uint32_t how, const uint32_t *header)
{
    uint32_t bits = how & ((1 << WIDTH_BITS) - 1), shift = how >> WIDTH_BITS & ((1 << SHIFT_BITS) - 1);
    uint32_t dim = how >> (WIDTH_BITS + SHIFT_BITS) & ((1 << DIM_BITS) - 1);
    return header[dim] >> shift & ((1U << bits) - 1);
}

static inline uint32_t width_of(uint32_t how)
{
    return how & ((1 << WIDTH_BITS) - 1);
}

#endif
