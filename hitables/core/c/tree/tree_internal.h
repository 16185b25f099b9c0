#ifndef HITABLES_TREE_INTERNAL_H
#define HITABLES_TREE_INTERNAL_H
#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "budget.h"
#include "scope.h"
#include "tree.h"

/* What all tree builders share: coordinates as ranks, regions, lists of boxes, and the tree while it
 * grows.
 *
 * Functions that return a pointer return NULL when memory is exhausted; those that return bool and
 * allocate return false then. */

__extension__ typedef unsigned __int128 u128;

enum { TREE_AXES = 16 };

/* Numbers (ranks) of elementary intervals, both ends included. */
struct rank_range {
    uint32_t low, high;
};

/* An axis cut at the ends of all boxes: edge[i] is the first value of elementary interval i; the last
 * interval ends at top. */
struct line {
    u128 *edge;
    uint32_t edges;
    u128 top;
};

/* The input of a build, ranked, and its memory. */
struct space {
    struct arena *arena;  /* what lives until the tree is written; limited, and stopped by tree_stop */
    struct scope scratch; /* what is freed earlier */
    const struct tree_boxes *in;
    struct line line[TREE_AXES];
    struct rank_range *ranks;         /* [boxes][axes] */
    const struct printed_entry *form; /* [rules] how rules are printed; NULL: every rule as itself */
};

/* A region along one axis: low..high, and perhaps "none" besides.  Where holes (below) were cut out of the
 * region it is the hull of the rest.  *ranks* are those of all elementary intervals that it touches. */
struct range {
    u128 low, high;
    struct rank_range ranks;
    bool none;
};

/* A test of an axis for low..high, seen from a region. */
struct probe {
    uint32_t axis;
    u128 low, high;
    struct rank_range touch; /* a box that has one of these ranks meets the interval */
    struct rank_range inner; /* a box within these ranks does not leave the interval, in the region */
    bool none;               /* the region holds "none" */
};

/* An interval inside an axis that a failed test cut out of a region. */
struct hole {
    const struct hole *next;
    uint32_t axis;
    u128 low, high;
};

struct build_node;

/* How a rule is printed in lists; or, where *rule* is -1, an entry without a rule. */
struct printed_entry {
    enum tree_step step;
    int32_t rule;
    struct build_node *to;
};

struct branch {
    u128 low, high;
    struct build_node *to;
};

/* A node of the tree while it grows.  Entries are rules; branches lead to other nodes. */
struct build_node {
    enum tree_kind kind;
    uint32_t axis;
    bool negated;
    uint32_t entries, branches;
    uint32_t *entry;
    struct branch *branch;
    uint32_t number; /* in the finished tree; 0: not numbered yet */
    uint32_t items;  /* read before the entries */
    struct printed_entry *item;
    struct build_node *then; /* the node that follows a leaf, or NULL */
    /* Of bisect alone: what the node was as a leaf.  closed: its list ends with a rule that covers the
     * region. */
    bool closed;
    uint32_t listed, *list;   /* its rules */
    double share, hits, work; /* its traffic, the part of it that its own rules match, the expected cost */
    /* Of bisect alone: costs of a packet.  front: the entries before the test; beside: the list of the
     * taken branch, read in front of the other branch by a packet that is not taken. */
    struct tree_cost test;
    double front, beside;
    struct node_plan *plan; /* of shape_groups alone */
};

/* Where bisect grows a tree: over box[] (ascending, so rules are in list order) in the region.  The
 * background are boxes whose traffic passes the tree and matches none of its rules. */
struct subproblem {
    const uint32_t *box, *background;
    const float *background_share;
    uint32_t boxes, background_boxes;
    const struct range *region;
};

/* One C file per builder.  grow sets *root on success.  Builders listed in tree.c and bounded are offered
 * by `hitables compile --algorithm`. */
struct tree_builder {
    const char *name;
    bool bounded; /* keeps the budget, the nesting, and what axes allow */
    enum tree_status (*grow)(struct space *space, const struct tree_options *options,
                             struct build_node **root);
};
extern const struct tree_builder tree_shape_groups, tree_bisect, tree_hicuts, tree_hypercuts, tree_conext2014;

/* A coordinate of the interface: a pair of words, the high one first. */
static inline u128 wide_of(const uint64_t *words)
{
    return (u128)words[0] << 64 | words[1];
}

static inline struct rank_range box_ranks(const struct space *space, uint32_t box, uint32_t axis)
{
    return space->ranks[(size_t)box * space->in->axes + axis];
}

/* The same, for what the box's rule matches or, if it is TREE_KEPT, drops besides. */
static inline struct rank_range kept_ranks(const struct space *space, uint32_t box, uint32_t axis)
{
    uint8_t free = space->in->free[space->in->rule[box]];
    const struct tree_axis *along = &space->in->axis[axis];
    if (free & TREE_KEPT && (along->cut == TREE_CUT_NONE || (free & TREE_DROPS && along->optional)))
        return (struct rank_range){0, space->line[axis].edges - 1};
    return box_ranks(space, box, axis);
}

/* The last value of elementary interval *rank*. */
static inline u128 line_end(const struct line *line, uint32_t rank)
{
    return rank + 1 < line->edges ? line->edge[rank + 1] - 1 : line->top;
}

static inline bool probe_meets(const struct probe *probe, struct rank_range ranks)
{
    return ranks.low <= probe->touch.high && ranks.high >= probe->touch.low;
}

static inline bool probe_is_left(const struct probe *probe, struct rank_range ranks)
{
    return ranks.low < probe->inner.low || ranks.high > probe->inner.high || (probe->none && ranks.low == 0);
}

/* Whether a box reaches into the range; not *alive*: the range has no values left but, perhaps, "none". */
static inline bool range_meets(const struct range *range, bool alive, struct rank_range ranks)
{
    return (alive && ranks.low <= range->ranks.high && ranks.high >= range->ranks.low) ||
           (range->none && !ranks.low);
}

/* regions.c */

/* Check the input and rank its boxes. */
enum tree_status space_rank(struct space *space);
/* The rank of the elementary interval that holds *value*. */
uint32_t line_rank(const struct line *line, u128 value);
/* region[axes] becomes all of space. */
void region_all(const struct space *space, struct range *region);
struct probe probe_of(const struct space *space, const struct range *region, uint32_t axis, u128 low,
                      u128 high);
/* The part of a region inside, or outside, the probe's interval; *to* may be *from*. */
void region_inside(const struct space *space, const struct range *from, const struct probe *probe,
                   struct range *to);
void region_outside(const struct space *space, const struct range *from, const struct probe *probe,
                    struct range *to);
/* The interval of a failed test, in front of *next*. */
const struct hole *hole_new(struct space *space, const struct hole *next, const struct probe *probe);
/* Move the ends of a range past holes.  False: no value is left in it. */
bool range_trim(const struct space *space, const struct hole *holes, uint32_t axis, struct range *along);
bool box_covers(const struct space *space, uint32_t box, const struct range *region);
/* How many boxes of the list precede, or belong to, the first final rule that covers the region. */
uint32_t list_cut(const struct space *space, const uint32_t *box, uint32_t boxes, const struct range *region);
/* Whether the axis may be tested in the region; whether one rule can test it for low..high (not asked of
 * TREE_CUT_PREFIX, whose tests are made as prefixes). */
bool axis_usable(const struct space *space, const struct range *region, uint32_t axis);
bool axis_can_test(const struct tree_axis *axis, u128 low, u128 high);

/* flatten.c */

struct build_node *node_new(struct space *space);
/* Make the rules of the boxes the node's entries. */
bool node_lists(struct space *space, struct build_node *node, const uint32_t *box, uint32_t boxes);
/* Write all nodes reachable from *root* into *tree*, whose arena is set. */
enum tree_status nodes_write(struct space *space, struct build_node *root, struct tree *tree);

/* tree_depth.c: how many chains nest at most in a tree, or, with *reads*, an upper bound of the rules that a
 * packet reads; UINT64_MAX when memory is exhausted. */
uint64_t tree_worst(const struct tree *tree, bool reads, struct scope *scratch);

/* bisect.c: the tree over a subproblem, which shape_groups grows for each group. */
struct build_node *bisect_over(struct space *space, const struct tree_options *options,
                               const struct subproblem *problem);

#endif
