/* The rules of long chains by the packets that they may match.
 *
 * Idea: a run on few packets (a rule of a lint, a called chain in a region) leaves few rules of a chain.
 * A tree over the rules finds them: each node has the hull of the tests of its rules, in the dimensions in
 * which the chain's rules differ most, and is split at the median of the one that the fewest rules span.
 * Cost: n log n to build, once a chain was read OFTEN times in a class; a search visits the nodes whose hull
 * meets the region, and gives up where it finds more than a part of the chain.
 * Invariant: a rule that is not found has a test that fails in all of the region, and that nothing blocks.
 * Memory: from the budget of the residual, until the class ends.
 * Threading: none; a residual belongs to one prover.
 */
#include "chain_index.h"

#include <stdlib.h>
#include <string.h>

#include "search.h"
#include "sort.h"

enum { LONG = 128, OFTEN = 8, AXES = 4, LEAF = 8, DEEPEST = 200 };
enum { MOST_FOUND = 8 }; /* one in so many rules: with more, reading all takes no longer */

struct span {
    uint32_t low, high;
};

struct index_node {
    struct span hull[AXES];
    uint32_t first, count; /* of a leaf: its rules, in index.rule; count 0: a node behind it and *right* */
    uint32_t right;
};

struct chain_index {
    uint32_t uses, room, rules, nodes, axes;
    uint32_t axis[AXES];
    size_t node_room;
    uint32_t *rule; /* [rules] in the order of the leaves: all that do something in the class */
    struct span *hull; /* [room * AXES] by rule of the chain */
    uint64_t *centre; /* [room] scratch */
    struct index_node *node;
};

static uint64_t centre_of(struct span span)
{
    return (uint64_t)span.low + span.high;
}

/* ---- the hulls of rules ---- */

/* The hull of the tests of the rule that read dim; all of it when none does. */
static struct span hull_of(const struct residual *r, uint32_t rule, uint32_t dim)
{
    struct span hull = {0, UINT32_MAX};
    uint32_t number = r->rule_guarded[rule];
    if (number == NONE) /* left out for this run only */
        return hull;
    const struct guarded_action *guarded = &r->guarded[number];
    for (uint32_t t = 0; t < guarded->n; t++) {
        uint32_t test = r->tests[guarded->first + t];
        if ((test & EITHER) || r->in.test_dim[test] != dim)
            continue;
        uint32_t first = r->in.test_start[test], last = r->in.test_start[test + 1] - 1;
        uint32_t low = r->in.set_ends[2 * (size_t)first], high = r->in.set_ends[2 * (size_t)last + 1];
        hull.low = low > hull.low ? low : hull.low;
        hull.high = high < hull.high ? high : hull.high;
    }
    return hull;
}

/* Whether the values of a dimension can tell many rules apart: not if they are the two of a truth. */
static bool may_be_axis(const struct residual *r, uint32_t dim)
{
    return dim < FIELDS || r->in.dim_size[dim] > 2;
}

/* Choose the fields and attributes whose tests leave least; *score: [dims] scratch. */
static void choose_axes(const struct residual *r, uint32_t chain, struct chain_index *index, double *score)
{
    memset(score, 0, r->in.dims * sizeof *score);
    for (uint32_t rule = r->in.chain_start[chain]; rule < r->in.chain_end[chain]; rule++) {
        if (r->rule_guarded[rule] == NONE)
            continue;
        const struct guarded_action *guarded = &r->guarded[r->rule_guarded[rule]];
        for (uint32_t t = 0; t < guarded->n; t++) {
            uint32_t test = r->tests[guarded->first + t];
            if ((test & EITHER) || !may_be_axis(r, r->in.test_dim[test]))
                continue;
            uint32_t dim = r->in.test_dim[test];
            struct span hull = hull_of(r, rule, dim);
            double width = hull.low <= hull.high ? (double)hull.high - hull.low + 1 : 0;
            score[dim] += 1 - width / r->in.dim_size[dim];
        }
    }
    for (index->axes = 0; index->axes < AXES; index->axes++) {
        uint32_t best = 0;
        for (uint32_t dim = 1; dim < r->in.dims; dim++)
            if (score[dim] > score[best])
                best = dim;
        if (score[best] <= 0)
            return;
        index->axis[index->axes] = best;
        score[best] = 0;
    }
}

/* ---- building ---- */

/* The value of rank n / 2 of n, in linear time on the mean. */
static uint64_t median(uint64_t *value, size_t n)
{
    size_t low = 0, high = n - 1, rank = n / 2;
    while (low < high) {
        uint64_t pivot = value[low + (high - low) / 2];
        size_t i = low, j = high;
        for (;;) {
            while (value[i] < pivot)
                i++;
            while (value[j] > pivot)
                j--;
            if (i >= j)
                break;
            uint64_t kept = value[i];
            value[i++] = value[j], value[j--] = kept;
        }
        if (rank <= j)
            high = j;
        else
            low = j + 1;
    }
    return value[rank];
}

/* A split of rules: those whose centre on the axis is below *at* go left. */
struct split {
    uint32_t axis;
    uint64_t at;
};

/* The split that the fewest rules span; false when no field tells the rules apart. */
static bool choose_split(struct chain_index *index, const uint32_t *rule, uint32_t count, struct split *best)
{
    uint32_t fewest = NONE;
    for (uint32_t axis = 0; axis < index->axes; axis++) {
        uint64_t lowest = UINT64_MAX;
        for (uint32_t i = 0; i < count; i++) {
            index->centre[i] = centre_of(index->hull[(size_t)rule[i] * AXES + axis]);
            lowest = index->centre[i] < lowest ? index->centre[i] : lowest;
        }
        uint64_t at = median(index->centre, count), above = UINT64_MAX;
        if (at == lowest) { /* the next value splits */
            for (uint32_t i = 0; i < count; i++)
                if (index->centre[i] > at && index->centre[i] < above)
                    above = index->centre[i];
            if (above == UINT64_MAX)
                continue;
            at = above;
        }
        uint32_t spanning = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct span hull = index->hull[(size_t)rule[i] * AXES + axis];
            spanning += 2 * (uint64_t)hull.low < at && 2 * (uint64_t)hull.high >= at;
        }
        if (spanning < fewest)
            fewest = spanning, *best = (struct split){axis, at};
    }
    return fewest != NONE;
}

static uint32_t new_node(struct residual *r, struct chain_index *index, const uint32_t *rule, uint32_t count)
{
    if (index->nodes == index->node_room) {
        size_t room = index->node_room * 2 + 64;
        struct index_node *node = budget_resize(r->budget, index->node, index->node_room * sizeof *node,
                                                room * sizeof *node);
        if (!node)
            return NONE;
        index->node = node, index->node_room = room;
    }
    struct index_node *node = &index->node[index->nodes];
    *node = (struct index_node){.first = (uint32_t)(rule - index->rule), .count = count};
    for (uint32_t axis = 0; axis < index->axes; axis++) {
        struct span hull = {UINT32_MAX, 0};
        for (uint32_t i = 0; i < count; i++) {
            struct span own = index->hull[(size_t)rule[i] * AXES + axis];
            hull.low = own.low < hull.low ? own.low : hull.low;
            hull.high = own.high > hull.high ? own.high : hull.high;
        }
        node->hull[axis] = hull;
    }
    return index->nodes++;
}

/* The number of the tree over the rules; NONE when memory is exhausted. */
static uint32_t build(struct residual *r, struct chain_index *index, uint32_t *rule, uint32_t count, int deep)
{
    uint32_t number = new_node(r, index, rule, count);
    struct split split;
    if (number == NONE || count <= LEAF || deep == DEEPEST || !choose_split(index, rule, count, &split))
        return number;
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (centre_of(index->hull[(size_t)rule[i] * AXES + split.axis]) >= split.at)
            continue;
        uint32_t kept = rule[left];
        rule[left++] = rule[i], rule[i] = kept;
    }
    if (build(r, index, rule, left, deep + 1) == NONE)
        return NONE;
    uint32_t right = build(r, index, rule + left, count - left, deep + 1);
    if (right == NONE)
        return NONE;
    index->node[number].count = 0;
    index->node[number].right = right;
    return number;
}

static void free_arrays(struct residual *r, struct chain_index *index)
{
    size_t room = index->room;
    budget_give(r->budget, index->rule, room * sizeof *index->rule);
    budget_give(r->budget, index->hull, room * AXES * sizeof *index->hull);
    budget_give(r->budget, index->centre, room * sizeof *index->centre);
    budget_give(r->budget, index->node, index->node_room * sizeof *index->node);
    *index = (struct chain_index){.uses = index->uses};
}

/* Build the tree over a chain's rules; it stays empty without memory for it, or fields to split by. */
static void build_index(struct residual *r, uint32_t chain, struct chain_index *index)
{
    uint32_t start = r->in.chain_start[chain], room = r->in.chain_end[chain] - start;
    double *score = budget_take(r->budget, r->in.dims * sizeof *score);
    if (score)
        choose_axes(r, chain, index, score);
    budget_give(r->budget, score, r->in.dims * sizeof *score);
    if (!index->axes)
        return;
    index->room = room;
    index->rule = budget_take(r->budget, room * sizeof *index->rule);
    index->hull = budget_take(r->budget, room * (size_t)AXES * sizeof *index->hull);
    index->centre = budget_take(r->budget, room * sizeof *index->centre);
    bool fits = index->rule && index->hull && index->centre;
    for (uint32_t i = 0; fits && i < room; i++) {
        if (r->rule_guarded[start + i] == NONE && r->left_out != start + i)
            continue;
        index->rule[index->rules++] = i;
        for (uint32_t axis = 0; axis < index->axes; axis++)
            index->hull[(size_t)i * AXES + axis] = hull_of(r, start + i, index->axis[axis]);
    }
    if (!fits || !index->rules || build(r, index, index->rule, index->rules, 0) == NONE)
        free_arrays(r, index);
}

/* ---- searching ---- */

/* The region in each field of the index; NULL: all values, or what is left of them is not known. */
struct sought {
    const struct set *set[AXES];
};

static bool meets(const struct span *hull, const struct sought *sought, uint32_t axes)
{
    for (uint32_t axis = 0; axis < axes; axis++) {
        const struct set *set = sought->set[axis];
        if (!set)
            continue;
        uint32_t at = lower_bound(set->ends + 1, 2, set->n, hull[axis].low);
        if (at == set->n || set->ends[2 * (size_t)at] > hull[axis].high)
            return false;
    }
    return true;
}

/* What to search for; false when the region restricts no field by half. */
static bool sought_of(const struct residual *r, const struct chain_index *index, uint32_t blocked,
                      struct sought *sought)
{
    bool narrow = false;
    for (uint32_t axis = 0; axis < index->axes; axis++) {
        uint32_t dim = index->axis[axis];
        const struct set *set = r->region[dim];
        sought->set[axis] = NULL;
        if (!set->n || (r->in.dim_states[dim] & blocked))
            continue;
        sought->set[axis] = set;
        uint64_t size = 0;
        for (size_t i = 0; i < set->n; i++)
            size += set->ends[2 * i + 1] - set->ends[2 * i] + 1;
        narrow |= size <= r->in.dim_size[dim] / 2;
    }
    return narrow;
}

static uint32_t search(const struct chain_index *index, const struct sought *sought, uint32_t start,
                       uint32_t *rules)
{
    uint32_t waiting[DEEPEST + 2], n = 0, found = 0, most = index->room / MOST_FOUND;
    waiting[n++] = 0;
    while (n) {
        uint32_t number = waiting[--n];
        const struct index_node *node = &index->node[number];
        if (!meets(node->hull, sought, index->axes))
            continue;
        if (!node->count) {
            waiting[n++] = node->right;
            waiting[n++] = number + 1;
            continue;
        }
        for (uint32_t i = 0; i < node->count; i++) {
            uint32_t rule = index->rule[node->first + i];
            if (!meets(index->hull + (size_t)rule * AXES, sought, index->axes))
                continue;
            if (found == most)
                return NONE;
            rules[found++] = start + rule;
        }
    }
    qsort(rules, found, sizeof *rules, compare_u32);
    return found;
}

uint32_t chain_index_find(struct residual *r, uint32_t chain, uint32_t blocked, uint32_t *rules)
{
    uint32_t start = r->in.chain_start[chain];
    if (r->in.chain_end[chain] - start < LONG)
        return NONE;
    size_t bytes = r->in.chains * sizeof *r->index;
    if (!r->index && !(r->index = budget_take(r->budget, bytes)))
        return NONE;
    struct chain_index *index = r->index[chain];
    if (!index && !(index = r->index[chain] = budget_take(r->budget, sizeof *index)))
        return NONE;
    if (index->uses < OFTEN && ++index->uses == OFTEN)
        build_index(r, chain, index);
    struct sought sought;
    if (!index->nodes || !sought_of(r, index, blocked, &sought))
        return NONE;
    return search(index, &sought, start, rules);
}

void chain_indexes_clear(struct residual *r)
{
    if (!r->index)
        return;
    for (uint32_t chain = 0; chain < r->in.chains; chain++) {
        if (!r->index[chain])
            continue;
        free_arrays(r, r->index[chain]);
        budget_give(r->budget, r->index[chain], sizeof *r->index[chain]);
    }
    budget_give(r->budget, r->index, r->in.chains * sizeof *r->index);
    r->index = NULL;
}
