#ifndef HITABLES_CUT_TREE_H
#define HITABLES_CUT_TREE_H
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

/* How many different intervals the node's rules have along a dimension, within the region. */
uint32_t cut_tree_distinct(const struct cut_tree_region *node, uint32_t dim);
/* The rules of all parts of a cut, counted. */
uint64_t cut_tree_copies(const struct cut_tree_region *node, const struct node_cut *cut);
/* The bits of a dimension that are not cut yet. */
uint32_t cut_tree_bits_left(const struct cut_tree_region *node, uint32_t dim);

/* The parameters of both, in the order in which cut_tree_build reads them. */
#define CUT_TREE_PARAMS                                                      \
    {                                                                        \
        {"leaf", "rules in a leaf at most (binth)", 16, 1, 1000},            \
            {"spfac", "space factor: how far a node may be cut", 4, 1, 100}, \
        {                                                                    \
            "mb", "megabytes of tree at most", 1024, 1, 1 << 20              \
        }                                                                    \
    }

#endif
