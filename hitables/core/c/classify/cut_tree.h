#ifndef HITABLES_CUT_TREE_H
#define HITABLES_CUT_TREE_H
#include <stdbool.h>
#include <stdint.h>

#include "budget.h"
#include "split_stack.h"
#include "vfdb.h"

/* Trees of equal cuts, searched in memory: HiCuts and HyperCuts differ in how they cut a node. */

enum {
    CUT_TREE_DIMS = 2, /* dimensions that one node cuts */
    CUT_TREE_BITS = 12 /* a node has at most 2^12 parts */
};

/* 2^bits[i] parts of dimension dim[i]; bits[1] is 0 when only one dimension is cut. */
struct node_cut {
    uint32_t dim[CUT_TREE_DIMS], bits[CUT_TREE_DIMS];
};

/* The node to be cut: its rules and region, and *key*, scratch of two numbers per rule. */
struct cut_tree_region {
    const struct leaves *leaves;
    const uint32_t *list, *region;
    uint32_t count;
    double spfac;
    uint64_t *key;
};

/* Choose how to cut a node; false: no cut separates its rules. */
typedef bool cut_tree_choose(const struct cut_tree_region *node, struct node_cut *cut);

int cut_tree_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                   cut_tree_choose *choose, void **built);
int cut_tree_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers);
int cut_tree_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                            struct vfdb_work *work);
void cut_tree_free(void *built);

/* The nodes that a box meets, without recursion (cut_tree_overlap.c). */
struct cut_tree;
struct cut_tree_node;

/* A node that is walked: its parts that the box meets, the one that is next, and the sides of the box. */
struct cut_tree_frame {
    uint32_t first, dim[CUT_TREE_DIMS], shift[CUT_TREE_DIMS], bits[CUT_TREE_DIMS];
    uint32_t low[CUT_TREE_DIMS], high[CUT_TREE_DIMS], at[CUT_TREE_DIMS], side[CUT_TREE_DIMS][2];
};

/* Each level cuts a bit at least. */
enum { CUT_TREE_DEPTH = 32 * VFDB_DIMS };

struct cut_tree_walk {
    const struct cut_tree *tree;
    const uint32_t *least; /* of cut_tree_least, or NULL: nothing is left out */
    bool at_root;          /* the root is a leaf, and was not given yet */
    uint32_t box[2 * VFDB_DIMS];
    uint32_t depth;
    struct cut_tree_frame frame[CUT_TREE_DEPTH];
};

/* The entries of a leaf. */
struct cut_tree_leaf {
    const uint32_t *entry;
    uint32_t count;
};

void cut_tree_walk_start(struct cut_tree_walk *walk, const struct cut_tree *tree, const uint32_t *least,
                         const uint32_t *box);
/* The next leaf with rules that the box meets, false: none is left.  Parts that share a node are visited
 * once; nodes whose rules all have a priority above *limit* are left out. */
bool cut_tree_walk_next(struct cut_tree_walk *walk, uint32_t limit, struct cut_tree_leaf *leaf);
/* Of each node the least priority below it, VFDB_NONE if there is none; *least* has room for all nodes. */
void cut_tree_least(const struct cut_tree *tree, uint32_t *least);
uint32_t cut_tree_nodes(const struct cut_tree *tree);
const struct leaves *cut_tree_leaves(const struct cut_tree *tree);
/* How the root is cut; false: it is a leaf. */
bool cut_tree_root(const struct cut_tree *tree, struct node_cut *cut);

/* How many different intervals the node's rules have along a dimension, within the region. */
uint32_t cut_tree_distinct(const struct cut_tree_region *node, uint32_t dim);
/* The parts of dimension *i* of a cut that a rule meets. */
struct cut_tree_range {
    uint32_t low, high;
};
struct cut_tree_range cut_tree_range(const struct cut_tree_region *node, uint32_t rule,
                                     const struct node_cut *cut, uint32_t i);
/* The rules of all parts of a cut, counted. */
uint64_t cut_tree_copies(const struct cut_tree_region *node, const struct node_cut *cut);
/* The bits of a dimension that are not cut yet. */
uint32_t cut_tree_bits_left(const struct cut_tree_region *node, uint32_t dim);

/* The parameters of both, in the order in which cut_tree_build reads them. */
/* clang-format off */
#define CUT_TREE_PARAMS                                              \
    {"leaf", "rules in a leaf at most (binth)", 16, 1, 1000},        \
    {"spfac", "space factor: how far a node may be cut", 4, 1, 100}, \
    {"mb", "megabytes of tree at most", 1024, 1, 1 << 20}
/* clang-format on */

#endif
