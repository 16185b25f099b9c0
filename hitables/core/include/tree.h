#ifndef HITABLES_TREE_H
#define HITABLES_TREE_H
#include <stddef.h>
#include <stdint.h>

/* Decision trees over a list of boxes: built once, both searched and printed.
 *
 * A point has one coordinate per axis.  On an axis whose field a packet may
 * lack, coordinate 0 stands for "none" and v+1 for the value v; what leaves a
 * tested interval then includes "none", and no test includes 0.  Coordinates are
 * 128 bits wide, as pairs of words, the high one first. */

/* Which intervals of an axis may be tested. */
enum tree_cut {
    TREE_CUT_NONE,   /* none: the axis only tells which rules can match together */
    TREE_CUT_PREFIX, /* aligned powers of two */
    TREE_CUT_RANGE,  /* all */
    TREE_CUT_POINT,  /* single values but 0, which -p takes for any */
    TREE_CUT_SPELT   /* what a box spells, if it is whole bytes: 256^n values from a multiple of 256^n */
};

enum tree_kind { TREE_LEAF, TREE_TEST, TREE_CUTS, TREE_LOOKUPS };

enum tree_status { TREE_OK, TREE_NO_MEMORY, TREE_BAD_AXIS, TREE_BAD_BOX, TREE_BAD_OPTION, TREE_BAD_POINT, TREE_STOPPED };

/* An axis of *bits* bits (its values, "none" apart).  It may be tested only where
 * coordinate axis *needs* (-1: no such thing) is known to be one of needed[]. */
struct tree_axis {
    uint8_t bits, optional, cut;
    int8_t needs;
    uint32_t needed_count;
    const uint64_t *needed;
};

/* What may be done with a rule: when rules are kept in groups (auto), and in a search. */
enum tree_free {
    TREE_MOVABLE = 1,  /* it may be asked late and more than once: in a group behind the first */
    TREE_SENDABLE = 2, /* a packet that it matches may be sent to a chain that ends with its action */
    TREE_PASSED = 4,   /* a search does not end at it */
    TREE_DROPS = 8     /* it drops packets that lack an optional field, too, whatever its boxes ask of that field */
};

/* What a test costs a packet that it lets by, and one that it takes. */
struct tree_cost {
    double missed, taken;
};

/* Prefixes of 0..128 bits; tests of other axes: 0 of one value, 1 of several. */
enum { TREE_LENGTHS = 129 };

/* What reading costs, where a rule read costs 1 by default.  A rule's tests are tried in *order*, up to
 * the first that fails. */
struct tree_costs {
    const struct tree_cost *test; /* [axes][TREE_LENGTHS] */
    const uint32_t *order;        /* [axes] */
    const float *missed, *holds;  /* [rules][axes]: a rule's test along the axis, failing and holding; 0: none */
    const float *taken;           /* [rules]: what is left of a rule, its target too, when all those hold */
    uint8_t halves;               /* a dear prefix may be tested by its two halves: see cost_is_halved */
    double jump, go, act;         /* entering a chain and coming back; not coming back; a verdict */
};

/* The input.  Boxes stand in the order of their rules; a rule may have several.
 * A final rule surely ends the way of every packet in its boxes. */
struct tree_boxes {
    uint32_t boxes, axes, rules;
    const struct tree_axis *axis;
    const uint64_t *low, *high; /* [boxes][axes][2] */
    const int32_t *rule;        /* [boxes] */
    const uint8_t *final;       /* [rules] */
    const double *weight;       /* [rules] */
    const uint8_t *free;        /* [rules], of enum tree_free */
    const struct tree_costs *costs; /* NULL: every rule read costs 1, and every test */
};

struct tree_options {
    uint32_t leaf_size;    /* a list of so many rules is not split */
    uint32_t max_nesting;  /* taken tests on a path */
    uint32_t longest;      /* bisect: a longer list is split though that saves nothing; 0: none is */
    uint64_t budget;       /* rules printed: entries and decisions */
    double copy_penalty;   /* bisect: list entries that a copied rule counts for */
    double size_penalty;         /* auto: cost, for a packet of each rule, that a printed rule must save */
    uint32_t grouping;     /* auto: 0 the cheapest; else this one alone of those that are tried, from 1 */
    double spfac;          /* hicuts, paper: rules that the parts may hold, over those of the node; hypercuts:
                            * parts, over the root of the node's rules */
    uint8_t unequal;       /* paper: cut between rules, not in equal parts */
    size_t memory;         /* bytes that building may take; 0: any */
    uint32_t work_limit;        /* at each box, on the mean, in one tree; then no list is split any more; 0: any */
    uint32_t grouping_effort;        /* auto: 0 the grouping by a small sample, 1 by a larger one, 2 all of them in full */
};

/* entries: rules read before the decision, in list order.  A TEST has two edges,
 * the side that its rule takes and the side that stays; when negated, the rule
 * takes what lies outside the interval of its first edge.  The edges of CUTS ascend;
 * they are told apart by halving, and what lies in none of them belongs to the last.
 * Those of LOOKUPS likewise, but as Figure 4 of "Trees in the List" has it: a rule for
 * the middle edge, one for the hull of the edges before it, one for all the rest. */
/* What an entry does.  Its rule's matches are tried (but ACT, CALL, GO), then:
 * RULE its own target; SEND go to the node *link*; ASK go there and come back (of a rule
 * that is not SENDABLE, more packets may go there than it matches); CALL likewise, whatever the packet; GO go there; ACT the rule's target. */
enum tree_step { TREE_RULE, TREE_SEND, TREE_ASK, TREE_CALL, TREE_GO, TREE_ACT };

struct tree_node {
    uint32_t entry, entries;
    uint32_t edge, edges;
    uint8_t kind, axis, negated, unused;
};

struct tree_edge {
    uint64_t low[2], high[2];
    uint32_t to, unused;
};

struct tree {
    uint32_t nodes, edges, entries, root;
    struct tree_node *node;
    struct tree_edge *edge;
    int32_t *entry; /* rules; -1 where a step has none */
    uint8_t *step;  /* [entries] */
    uint32_t *link; /* [entries] */
    size_t bytes; /* the peak while it was built */
    struct arena *arena;
};

/* Build with the builder of that name.  NULL on failure, *status then tells why. */
struct tree *tree_grow(const char *algorithm, const struct tree_boxes *boxes,
                       const struct tree_options *options, enum tree_status *status);
void tree_free(struct tree *tree);

/* Make all building of trees end soon, with TREE_STOPPED (1), or let it go on again (0).  From any thread. */
void tree_stop(int stop);

/* The name of builder number *index*; NULL behind the last. */
const char *tree_algorithm(uint32_t index);

/* Whether builder number *index* keeps budget, nesting, and what axes allow: its trees can be printed. */
int tree_is_bounded(uint32_t index);

/* For each of *count* points the first matching rule (-1: none), the rules read, and (unless NULL) their cost. */
enum tree_status tree_search(const struct tree *tree, const struct tree_boxes *boxes, const uint64_t *points,
                             size_t count, int32_t *rule, uint32_t *reads, double *spent);

#endif
