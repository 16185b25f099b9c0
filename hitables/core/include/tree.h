#ifndef HITABLES_TREE_H
#define HITABLES_TREE_H
#include <stddef.h>
#include <stdint.h>

/* Decision trees over a list of boxes: built once, then both searched and printed.  See tree.c.
 *
 * A point has one coordinate per axis.  On an axis whose field a packet may lack, coordinate 0 means
 * "none" and v + 1 the value v; the outside of a tested interval then includes "none", and no test
 * includes 0.  Coordinates are 128 bits wide: pairs of words, the high one first. */

/* Which intervals of an axis may be tested. */
enum tree_cut {
    TREE_CUT_NONE,   /* none: the axis only separates rules that cannot match together */
    TREE_CUT_PREFIX, /* aligned powers of two; not on optional axes */
    TREE_CUT_RANGE,  /* all */
    TREE_CUT_POINT,  /* single values but 0, which -p reads as any */
    TREE_CUT_SPELT, /* intervals of boxes that are whole bytes: 256^n values from a multiple of 256^n */
    TREE_CUT_NAME, /* names, padded with at least one byte of 0: one name, or all that begin alike, by one
                    * byte at least and two less than the axis has (`-i br-+`); not on optional axes */
    TREE_CUT_SPELT_NAME /* of those, what a box spells: 0, no name, is none of them */
};

enum tree_kind { TREE_LEAF, TREE_TEST, TREE_CUTS, TREE_LOOKUPS, TREE_LONE_LOOKUPS };

enum tree_status {
    TREE_OK,
    TREE_NO_MEMORY, /* of the machine, or of tree_options.memory */
    TREE_BAD_AXIS,
    TREE_BAD_BOX,
    TREE_BAD_OPTION, /* no builder has that name */
    TREE_STOPPED /* by tree_stop */
};

/* An axis of *bits* bits ("none" not counted). */
struct tree_axis {
    uint8_t bits, optional, cut; /* optional: not 0 if packets may lack it; cut: enum tree_cut */
    uint8_t unnegatable; /* not 0 if the negation of a test of it has no words */
    int8_t needs; /* the axis may be tested only where coordinate *needs* is known; -1: anywhere */
    uint32_t needed_count;
    const uint64_t *needed; /* [needed_count] values that coordinate may then have */
};

/* What a tree may do with a rule: a mask. */
enum tree_free {
    TREE_MOVABLE = 1, /* it may be evaluated late and more than once: in a group behind the first */
    TREE_SENDABLE = 2, /* a packet that it matches may be sent to a chain that ends with its action */
    TREE_PASSED = 4, /* a search does not end at it */
    TREE_DROPS =
        8, /* it also drops packets that lack an optional field, even one that its boxes require */
    TREE_LATE = 16, /* not MOVABLE, but it may be in the last group: a packet that no earlier rule decides
                     * meets it there once, behind the earlier rules of that group */
    TREE_KEPT = 32 /* it drops packets outside of its boxes, too: along axes never cut, and (TREE_DROPS)
                    * along optional ones.  No rule hides it that lets these by, and they meet it before later
                    * rules of other groups */
};

/* Cost of a test for a packet that it does not take, and for one that it takes. */
struct tree_cost {
    double missed, taken;
};

/* Kinds of tests of an axis: prefixes of 0 to 128 bits; of other axes, 0 for one value and 1 for several. */
enum { TREE_LENGTHS = 129 };

/* Costs, where a rule read costs 1 by default.  A rule's tests are tried in *order*, up to the first that
 * fails. */
struct tree_costs {
    const struct tree_cost *test; /* [axes][TREE_LENGTHS] */
    const uint32_t *order; /* [axes] */
    const float *missed,
        *holds; /* [rules][axes] a rule's test along the axis, failing and holding; 0: it has none */
    const float *taken; /* [rules] the rest of a rule, its target included, once all those hold */
    uint8_t halves; /* not 0: an expensive prefix may be tested by its two halves: see cost_is_halved */
    double jump, go, act; /* entering a chain and returning; entering without returning; a verdict */
};

/* The input.  Boxes are in the order of their rules; a rule may have several. */
struct tree_boxes {
    uint32_t boxes, axes, rules;
    const struct tree_axis *axis; /* [axes] */
    const uint64_t *low, *high; /* [boxes][axes][2] both ends included */
    const int32_t *rule; /* [boxes] ascending */
    const uint8_t *final; /* [rules] not 0: the rule surely ends every packet in its boxes */
    const double *weight; /* [rules] traffic that the rule matches */
    const uint8_t *free; /* [rules] mask of enum tree_free */
    const struct tree_costs *costs; /* NULL: every rule read costs 1, and every test */
};

struct tree_options {
    uint32_t leaf_size; /* a list of at most this many rules is not split */
    uint32_t max_nesting; /* taken tests on a path */
    uint32_t longest; /* bisect: a longer list is split even if that saves nothing; 0: none is */
    uint64_t budget; /* rules printed: entries and decisions */
    double copy_penalty; /* bisect: list entries that a copied rule counts for */
    double size_penalty; /* auto: cost, for a packet of each rule, that a printed rule must save */
    uint32_t grouping; /* auto: 0 the cheapest; else the one with this number, from 1; one tree beyond */
    double spfac; /* hicuts, paper: rules that the parts may hold, over those of the node; hypercuts: parts,
                   * over the root of the node's rules */
    uint8_t unequal; /* paper: cut between rules, not in equal parts */
    uint8_t least_max; /* paper: cut the axis whose largest part has the fewest rules, not that of most rules
                        * apart */
    uint8_t lone_chains; /* paper: LONE_LOOKUPS in place of LOOKUPS */
    uint32_t first_cuts; /* paper: equal cuts that are tried first, if the root of the rules is not more */
    size_t memory; /* bytes that the arena of a build, and the lists of grids, may take; 0: any.  Scratch and
                    * flattened trees are not counted */
    uint32_t work_limit; /* how often each box is read, on average, in one tree, before no list is split any
                          * more; 0: any */
    uint32_t grouping_effort; /* auto: 0 build the grouping that is cheapest on a small sample; 1 on a larger
                               * sample, and single trees that are near it; 2 on the largest, and all
                               * groupings that are near it: the cheapest of those built is taken */
};

/* What an entry of a node does with a packet.  All but ACT, CALL and GO first try the matches of their rule.
 */
enum tree_step {
    TREE_RULE, /* the target of its rule */
    TREE_SEND, /* go to node *link* */
    TREE_ASK, /* go there and return; if the rule is not SENDABLE, packets that it does not match may go there
                 too */
    TREE_CALL, /* every packet goes there and returns */
    TREE_GO, /* every packet goes there */
    TREE_ACT, /* the target of its rule, for every packet */
    TREE_MEET /* go to node *link*, as SEND does, though the rule is read again there */
};

/* A node: entries, read in list order, then its decision.  TEST has two edges: the one that its rule
 * takes, and the other; if negated, the rule takes packets outside the interval of the first edge.  CUTS
 * has ascending edges, searched by halving; a packet in none of them takes the last.  LOOKUPS has ascending
 * edges too, searched as in figure 4 of "Trees in the List": one rule for the middle edge, one for the hull
 * of the edges before it, one for all the rest; a side of one edge leads to its node.  LONE_LOOKUPS: as the
 * paper's tool prints it, where a side of one edge is a chain of one rule, too. */
struct tree_node {
    uint32_t entry, entries;
    uint32_t edge, edges;
    uint8_t kind, axis, negated, unused;
};

struct tree_edge {
    uint64_t low[2], high[2];
    uint32_t to, unused;
};

struct arena;

struct tree {
    uint32_t nodes, edges, entries, root;
    struct tree_node *node; /* [nodes] */
    struct tree_edge *edge; /* [edges] */
    int32_t *entry; /* [entries] rules; -1 for steps without a rule */
    uint8_t *step; /* [entries] enum tree_step */
    uint32_t *link; /* [entries] nodes */
    size_t bytes; /* of the arenas of the build and of the tree; scratch is not counted */
    struct arena *arena; /* owns the arrays */
};

/* Build with the builder of that name.  The caller frees the tree with tree_free.  NULL on failure, and
 * *status is then the reason. */
struct tree *tree_grow(const char *algorithm, const struct tree_boxes *boxes,
                       const struct tree_options *options, enum tree_status *status);
void tree_free(struct tree *tree);

/* 1: every build in progress, and every later one, ends soon with TREE_STOPPED; 0: builds go on again.
 * From any thread. */
void tree_stop(int stop);

/* The name of builder number *index*; NULL behind the last. */
const char *tree_algorithm(uint32_t index);

/* Whether builder number *index* keeps the budget, the nesting, and what axes allow, so that its trees can
 * be printed. */
int tree_is_bounded(uint32_t index);

/* For each of *count* points ([count][axes][2]) the first matching rule (-1: none), the rules read, and,
 * unless *spent* is NULL, their cost.  Any number of threads may search one tree. */
enum tree_status tree_search(const struct tree *tree, const struct tree_boxes *boxes, const uint64_t *points,
                             size_t count, int32_t *rule, uint32_t *reads, double *spent);

/* Over all paths from the root: how many chains nest at most (taken tests, and entries that lead to a node),
 * and an upper bound of the rules that a packet reads, in which those of all called trees are added up. */
enum tree_status tree_depths(const struct tree *tree, uint64_t *nesting, uint64_t *longest);

#endif
