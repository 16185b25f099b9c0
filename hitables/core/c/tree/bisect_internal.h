#ifndef HITABLES_BISECT_INTERNAL_H
#define HITABLES_BISECT_INTERNAL_H
#include "cost.h"

#include <math.h>

/* The state of a bisection, shared by its growth (bisect.c), its choice of tests (bisect_tests.c,
 * bisect_names.c) and its estimates of work (bisect_work.c). */

enum {
    STEPS = 8, /* sizes per doubling in a table of work */
    SIZES = 28 * STEPS,
    NESTINGS = 33,
    TABLES = 4 /* addresses share one, and so do ports */
};

/* A test, and the work that is expected if it is taken. */
struct test_choice {
    double work; /* per packet; HUGE_VAL: no test */
    uint32_t axis;
    u128 low, high;
    bool negated;
    uint32_t copies; /* rules that meet both sides */
};

/* A leaf that may yet be split.  share[] is the traffic that meets each rule here, kept with the rule's
 * first box. */
struct open_leaf {
    struct build_node *node;
    uint32_t nesting, boxes, rules;
    uint32_t front; /* boxes at the head of the list that are read before any test */
    uint32_t *box;
    float *share;
    uint32_t background_boxes, *background; /* see struct subproblem */
    float *background_share;
    struct range *region;
    const struct hole *holes;
    struct test_choice choice;
    uint32_t table; /* of work */
    double scale; /* cost of a rule here, over its cost in the table of work */
    double rank; /* the greatest is split first: see leaf_judge */
    uint32_t order; /* of creation, to break ties */
};

/* A rule, or a background box, along one axis: the hull of its boxes in the region. */
struct rule_span {
    struct rank_range ranks;
    float share;
    bool background;
};

/* A span that a prefix may cut in two, with its ends as values. */
struct crossing_span {
    u128 low, high;
    struct rule_span span;
};

/* The hulls of a leaf's rules along an axis, in bisection.span: *rules* of them, then those of the background
 * up to *all*.  Hulls that span the region are only counted. */
struct axis_spans {
    uint32_t axis, rules, all;
    uint32_t wide;     /* rules that span the region */
    double wide_share; /* traffic of all that span it */
    double share;      /* traffic of the leaf */
};

/* What a test's interval does to the leaf. */
struct side_counts {
    uint32_t in, out; /* rules that meet the interval, rules that leave it */
    double share;     /* of the traffic, in the interval */
};

struct name_scratch;

struct bisection {
    struct space *space;
    const struct tree_options *options;
    /* Tables of work: the cost of a packet in a list of 2^(size / STEPS) rules, by the number of tests that
     * may still be taken, if the best fractions could be split off freely.  There is one table for each
     * axis that tests may bisect, for lists that differ along it: a list that cheap tests cannot split is
     * not estimated by them (in nft, a test of one port costs half as much as a test of a range, but
     * separates only one port). */
    double *work[TABLES]; /* [nestings][sizes]; most lists are short, so that a table is small */
    uint32_t nestings, sizes;
    uint32_t tables, table[TREE_AXES]; /* of each axis; TABLES: no test bisects it */
    struct tree_cost filled[TABLES]; /* cost of the test of each table */
    double rule; /* cost of a rule in those tables */
    struct rule_span *span, *inside; /* scratch, one slot per box */
    struct crossing_span *crossing; /* scratch, one slot per box */
    uint64_t *key, *spare; /* scratch, two slots per box */
    struct name_scratch *names; /* of bisect_names.c; NULL: no axis has names */
    struct open_leaf **heap;
    uint32_t leaves, room, created;
    uint64_t printed; /* rules so far */
    uint64_t boxes_read, work_limit; /* boxes read to choose tests, so far and at most */
};

/* The expected cost in a list of 2^(size / STEPS) rules, between the sizes of the table. */
static inline double work_of_size(const struct bisection *g, const double *work, double size)
{
    if (size <= 0)
        return g->rule;
    uint32_t below = (uint32_t)size;
    if (below + 1 >= g->sizes)
        return work[g->sizes - 1] * exp2((size - (g->sizes - 1)) / STEPS);
    return work[below] + (size - below) * (work[below + 1] - work[below]);
}

/* The expected cost in a list of *rules* rules, by the table, with *nesting* tests left to take. */
static inline double work_at(const struct bisection *g, uint32_t table, uint32_t nesting, double rules)
{
    if (rules <= 1)
        return rules > 0 ? g->rule : 0;
    return work_of_size(g, g->work[table] + (size_t)nesting * g->sizes, log2(rules) * STEPS);
}

static inline uint32_t nesting_left(const struct bisection *g, const struct open_leaf *leaf)
{
    uint32_t left = g->options->max_nesting - leaf->nesting;
    return left < g->nestings ? left : g->nestings - 1;
}

/* bisect_work.c */

/* Fill the tables; axes whose tests cost alike share one.  False when memory is exhausted. */
bool work_tables_fill(struct bisection *g, const struct subproblem *problem);
/* The table of the cheapest axis along which the leaf's rules begin at many places, if axes of that table
 * tell most rules apart; if there is none, of the axis with most places. */
uint32_t work_table_for(const struct bisection *g, const struct open_leaf *leaf);

/* bisect_tests.c */

/* The best test of the leaf, whose traffic is *share*.  A test that an axis does not allow yet asks for a
 * test of what the axis needs first, which must be worth the extra decision. */
struct test_choice choose_test(struct bisection *g, const struct open_leaf *leaf, double share);
/* The share, of the traffic of a box with these ranks, that the probe's interval holds. */
double probe_part(const struct bisection *g, const struct range *along, const struct probe *probe,
                  struct rank_range ranks);
/* Keep the test of low..high if it is better than what *best* holds. */
void weigh(const struct bisection *g, const struct open_leaf *leaf, const struct side_counts *counts,
           double share, uint32_t axis, u128 low, u128 high, struct test_choice *best);

/* bisect_names.c */

/* Take scratch for this many spans, if some axis has names; false when memory is exhausted. */
bool names_prepare(struct bisection *g, size_t spans);
/* Weigh tests of an axis of names, whose spans are in g->span. */
void try_names(struct bisection *g, const struct open_leaf *leaf, const struct axis_spans *spans,
               struct test_choice *best);

#endif
