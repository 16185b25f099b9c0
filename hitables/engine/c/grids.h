#ifndef HITABLES_GRIDS_H
#define HITABLES_GRIDS_H
#include "tree.h"

/* Trees of grids (HiCuts, HyperCuts) to be searched in memory.
 *
 * A node cuts its region along some axes into parts of 2^shift values each, the first of
 * which starts at *low*; the parts of several axes are told apart at once.  A point beyond
 * the parts of its node matches nothing below it.  Rules that all parts of a node
 * have in common stand in the node itself, so a search reads the entries of every node on
 * its way and keeps the first rule in list order. */

enum { GRIDS_NOTHING = 0xffffffff }; /* a child that lists nothing */

struct grids_options {
    uint32_t leaf_size; /* a list of so many rules is not split */
    double spfac;       /* space factor */
    size_t memory;      /* bytes that building may take; 0: any */
};

/* Along one axis: parts low + i * 2^shift. */
struct grids_side {
    uint64_t low[2];
    uint32_t parts;
    uint8_t axis, shift;
    uint16_t unused;
};

/* sides 0: a leaf.  The child of a point stands at *child* plus its parts as digits, those
 * of the last side running fastest. */
struct grids_node {
    uint32_t entry, entries;
    uint32_t side, sides;
    uint32_t child;
};

struct grids {
    uint32_t nodes, sides, children, entries; /* the root is node 0 */
    struct grids_node *node;
    struct grids_side *side;
    uint32_t *child; /* nodes, or GRIDS_NOTHING; equal lists are one node */
    int32_t *entry;  /* rules, ascending within a node */
    size_t bytes;    /* of the tree, and */
    size_t peak;     /* while it was built */
    struct arena *arena;
};

/* Build with "hicuts" or "hypercuts".  Axes: TREE_CUT_RANGE or TREE_CUT_PREFIX, none of them
 * optional or in need of another.  NULL on failure, *status then tells why. */
struct grids *grids_grow(const char *builder, const struct tree_boxes *boxes, const struct grids_options *options,
                         enum tree_status *status);
void grids_free(struct grids *grids);

/* For each of *count* points the first matching rule (-1: none), and the nodes and entries read. */
enum tree_status grids_search(const struct grids *grids, const struct tree_boxes *boxes, const uint64_t *points,
                              size_t count, int32_t *rule, uint32_t *reads);

#endif
