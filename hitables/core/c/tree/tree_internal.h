#ifndef HITABLES_TREE_INTERNAL_H
#define HITABLES_TREE_INTERNAL_H
#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "tree.h"

/* What all tree builders share: coordinates as ranks, regions, lists, and the
 * tree while it grows.
 *
 * The ends of all boxes cut an axis into elementary intervals; a box is a pair
 * of their numbers (ranks) per axis, so comparisons are of 32 bits whatever the
 * axis holds. */

__extension__ typedef unsigned __int128 u128;

enum { TREE_AXES = 16 };

/* Elementary intervals low..high, both included. */
struct rank_range {
    uint32_t low, high;
};

/* edge[i] starts elementary interval i; the last one ends at top. */
struct line {
    u128 *edge;
    uint32_t edges;
    u128 top;
};

struct space {
    struct arena *arena;
    const struct tree_boxes *in;
    struct line line[TREE_AXES];
    struct rank_range *ranks; /* [boxes][axes] */
    const struct printed_entry *form; /* [rules], or NULL: every rule as it is */
};

/* A region along one axis: low..high, perhaps "none" besides.  (Outside an inner
 * interval: the hull.)  *side* holds the ranks of all that it touches. */
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
    struct rank_range inner; /* a box within these ranks does not leave it, in the region */
    bool none;         /* the region holds "none" */
};

/* An interval, inside of its axis, that a test took away: regions keep its hull. */
struct hole {
    const struct hole *next;
    uint32_t axis;
    u128 low, high;
};

/* The tree while it grows.  Entries are rules; edges point to other nodes. */
struct build_node;

/* How a rule is printed in lists, or an entry that stands for no rule (then *rule* is -1). */
struct printed_entry {
    enum tree_step step;
    int32_t rule;
    struct build_node *to;
};
struct branch {
    u128 low, high;
    struct build_node *to;
};
struct build_node {
    enum tree_kind kind;
    uint32_t axis;
    bool negated;
    uint32_t entries, branches;
    uint32_t *entry;
    struct branch *branch;
    uint32_t number; /* in the finished tree; 0: not numbered yet */
    uint32_t items;    /* read before the entries */
    struct printed_entry *item;
    struct build_node *then; /* where a leaf goes on, or NULL */
    bool closed;       /* its list ends with a rule that covers the region (bisect) */
    /* What it was as a leaf (bisect): its rules, its traffic, that of its own rules, cost. */
    uint32_t listed, *list;
    double share, hits, work;
    /* Costs of a packet (bisect): its test, the entries before it, and the list on the taken side read
     * in front of the other one by who is not taken. */
    struct tree_cost test;
    double front, beside;
    struct node_plan *plan; /* of the builder auto */
};

/* Where bisect grows a tree: over *box* (ascending, so rules are in list order) in the region.
 * Guests are boxes whose traffic comes by and matches none of these. */
struct subproblem {
    const uint32_t *box, *background;
    const float *background_share;
    uint32_t boxes, background_boxes;
    const struct range *region;
};

/* One C file per builder; *root is set on success.  Everything comes from space->arena.
 * Whoever is listed in tree.c, and bounded, is offered by `hitables compile --algorithm`. */
struct tree_builder {
    const char *name;
    bool bounded; /* keeps budget, nesting, and what axes allow */
    enum tree_status (*grow)(struct space *space, const struct tree_options *options, struct build_node **root);
};
extern const struct tree_builder tree_shape_groups, tree_bisect, tree_hicuts, tree_hypercuts, tree_conext2014;

static inline struct rank_range box_ranks(const struct space *space, uint32_t box, uint32_t axis)
{
    return space->ranks[(size_t)box * space->in->axes + axis];
}

/* The value that ends elementary interval *rank*. */
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
    return (alive && ranks.low <= range->ranks.high && ranks.high >= range->ranks.low) || (range->none && !ranks.low);
}

/* The flat form of what hangs on *root*, in *tree*; numbers all nodes anew. */
enum tree_status nodes_write(struct space *space, struct build_node *root, struct tree *tree);
enum tree_status space_draw(struct space *space);
uint32_t line_rank(const struct line *line, u128 value);
void region_all(const struct space *space, struct range *region);
struct probe probe_of(const struct space *space, const struct range *region, uint32_t axis, u128 low, u128 high);
void region_inside(const struct space *space, const struct range *from, const struct probe *probe, struct range *to);
void region_outside(const struct space *space, const struct range *from, const struct probe *probe, struct range *to);
const struct hole *hole_new(struct space *space, const struct hole *next, const struct probe *probe);
bool range_trim(const struct space *space, const struct hole *holes, uint32_t axis, struct range *along);
bool box_covers(const struct space *space, uint32_t box, const struct range *region);
uint32_t list_cut(const struct space *space, const uint32_t *box, uint32_t boxes, const struct range *region);
bool axis_usable(const struct space *space, const struct range *region, uint32_t axis);
bool axis_can_test(const struct tree_axis *axis, u128 low, u128 high);
struct build_node *bisect_over(struct space *space, const struct tree_options *options, const struct subproblem *plot);
struct build_node *node_new(struct space *space);
bool node_lists(struct space *space, struct build_node *node, const uint32_t *box, uint32_t boxes);

#endif
