#ifndef HITABLES_CUT_GRID_H
#define HITABLES_CUT_GRID_H
#include "tree_internal.h"

/* What the builders of grids share: nodes, their growth, and how they are printed. */

enum { CUT_GRID_CELLS = 4096 }; /* parts of a node, at most */

/* Parts of 2^shift values each, from *low* on, which hold all of a region along the axis. */
struct cut {
    uint32_t axis, parts;
    u128 low;
    unsigned shift;
};

enum plan_kind { PLAN_LEAF, PLAN_TEST, PLAN_GRID };

/* How a node will be split.  A node stores only the first *cuts* entries of *cut*. */
struct grid_plan {
    enum plan_kind kind;
    uint32_t cuts;
    struct probe probe;
    struct cut cut[TREE_AXES];
};

/* A node while the tree grows: the boxes that meet its region, ascending. */
struct grid_node {
    struct grid_node *next; /* in order of birth */
    uint32_t boxes, *box, rules;
    struct range *region; /* this and *box* until its parts are made */
    const struct hole *holes;
    uint32_t nesting;      /* tests taken on the path, at most */
    uint32_t refs;         /* tests of its parent's that lead here, and branches in line */
    uint32_t entries, *entry; /* rules of a leaf, or that all parts have in common */
    struct grid_plan *plan;
    uint32_t cells;
    struct grid_node **part; /* [cells]; of a test what it takes, what it leaves */
    uint32_t number;     /* once it is in the queue: not 0 */
    struct build_node *output;
};

struct grid_growth {
    struct space *space;
    const struct grid_builder *builder;
    uint32_t leaf_size;
    double spfac;
    uint64_t budget, printed;
    uint32_t max_nesting;
    size_t memory;
    uint64_t *key, *spare; /* scratch: one slot per box */
    uint32_t *listed;
    struct grid_plan plan;           /* of the node being split */
    struct arena *list, *later; /* lists of the nodes being split, and of their parts */
    struct grid_node *empty, *first, *last;
};

/* One C file per builder.  *choose* decides what becomes of a node of too many rules. */
struct grid_builder {
    bool shares; /* rules that all parts have in common are kept above them */
    void (*choose)(struct grid_growth *growth, const struct grid_node *node, struct grid_plan *plan);
};
extern const struct grid_builder grid_hicuts, grid_hypercuts;

/* What printed trees ask for first; true if *plan* is made. */
bool plan_test(struct grid_growth *growth, const struct grid_node *node, uint32_t axis,
               struct grid_plan *plan);
bool plan_narrows(const struct grid_growth *growth, const struct grid_node *node, uint32_t axis,
                  struct grid_plan *plan);
bool can_grid(const struct grid_growth *growth, const struct grid_node *node, uint32_t axis);
struct cut cut_into(const struct space *space, const struct range *region, uint32_t axis, uint32_t parts);
struct rank_range cut_span(const struct space *space, const struct cut *cut, const struct range *along,
                           struct rank_range ranks);
uint32_t count_distinct(struct grid_growth *growth, const struct grid_node *node, uint32_t axis);
uint32_t floor_log2(uint32_t value);
enum tree_status cut_grid_print(struct space *space, const struct tree_options *options,
                                const struct grid_builder *builder, struct build_node **root);

/* The free bits of the least prefix that holds low..high: ones from the lowest bit up. */
static inline u128 prefix_below(u128 low, u128 high)
{
    u128 below = 0;
    while (below < (low ^ high))
        below = below << 1 | 1;
    return below;
}

/* grid_cells.c */

struct grid_node *grid_node_new(struct grid_growth *growth, const struct range *region);
/* Give the node its boxes. */
bool grid_node_list(struct grid_growth *growth, struct grid_node *node, const uint32_t *box, uint32_t boxes);
/* Drop boxes that an earlier final rule hides in the region; the number left. */
uint32_t list_shown(const struct space *space, uint32_t *box, uint32_t boxes, const struct range *region);
/* Shrink the region to the hull of its boxes along the axes that grids may cut. */
void grid_node_compact(const struct space *space, struct grid_node *node);
/* Make the parts of a node that its plan cuts into a grid; false when memory is exhausted. */
bool grid_node_cut(struct grid_growth *growth, struct grid_node *node);

#endif
