/* Search of a finished tree, and what it costs.
 *
 * Idea: the search reads what the kernel would read of the printed tree, so that reads and costs can be
 * compared.
 * Cost: one edge per decision, and the boxes of each rule that it meets in a leaf.
 * Invariant: calls nest less than CALLS deep, since a group's tree calls trees of later groups only.
 * Threading: nothing shared is written; any number of threads may search one tree.
 */
#include "cost.h"

#include <assert.h>

/* Calls within calls, at most: a group's tree calls trees of later groups only. */
enum { CALLS = 8 };

static bool rule_matches(const struct tree_boxes *in, uint32_t box, uint32_t end, const uint64_t *point)
{
    for (; box < end; box++) {
        const uint64_t *low = in->low + (size_t)box * in->axes * 2,
                       *high = in->high + (size_t)box * in->axes * 2;
        uint32_t a = 0;
        while (a < in->axes && words_hold(low + 2 * a, high + 2 * a, point + 2 * a))
            a++;
        if (a == in->axes)
            return true;
    }
    return false;
}

/* The edge of CUTS that holds the word: halving, one rule read per step. */
static const struct tree_edge *cut_find(const struct tree_edge *edge, uint32_t edges, const uint64_t *word,
                                        uint32_t *reads)
{
    while (edges > 1) {
        uint32_t half = edges / 2;
        ++*reads;
        if (words_hold(edge[0].low, edge[half - 1].high, word)) {
            edges = half;
        } else {
            edge += half;
            edges -= half;
        }
    }
    return edge;
}

/* The edge of LOOKUPS that holds the word.  A comparison with one edge reads one rule; *lone*: as in
 * LONE_LOOKUPS. */
static const struct tree_edge *lookup_find(const struct tree_edge *edge, uint32_t edges, const uint64_t *word,
                                           bool lone, uint32_t *reads)
{
    for (bool chain = true;; chain = lone || edges > 1) {
        if (!chain)
            return edge;
        uint32_t middle = (edges - 1) / 2;
        ++*reads;
        if (edges == 1 || words_hold(edge[middle].low, edge[middle].high, word))
            return edge + middle;
        if (middle) {
            ++*reads;
            if (words_hold(edge[0].low, edge[middle - 1].high, word)) {
                edges = middle;
                continue;
            }
        }
        ++*reads;
        edge += middle + 1;
        edges -= middle + 1;
    }
}

/* Whether an entry is printed with the tests of its rule. */
static bool has_tests(enum tree_step step)
{
    return step <= TREE_ASK || step == TREE_MEET;
}

/* What an entry costs at the point; *matches*: the point lies in one of the rule's boxes. */
static double entry_cost(const struct tree_boxes *in, enum tree_step step, uint32_t rule, uint32_t box,
                         const uint64_t *point, bool matches)
{
    const struct tree_costs *costs = in->costs;
    if (!costs)
        return 1;
    double tests = has_tests(step) ? cost_at(in, rule, box, point, matches) : 0;
    if (!matches)
        return tests;
    switch (step) {
    case TREE_RULE:
        return tests + costs->taken[rule];
    case TREE_ASK:
    case TREE_CALL:
        return tests + costs->jump;
    case TREE_SEND:
    case TREE_GO:
    case TREE_MEET:
        return tests + costs->go;
    case TREE_ACT:
        return costs->act;
    }
    return tests;
}

/* What the tests of CUTS and LOOKUPS cost: each as much as that of the edge found. */
static double edges_cost(const struct tree_boxes *in, const struct tree_node *node,
                         const struct tree_edge *edge, uint32_t reads)
{
    return reads * cost_of_test(in, node->axis, wide_of(edge->low), wide_of(edge->high), false).taken;
}

/* A search on its way: its node, the next entry there, and where calls return. */
struct tree_walk {
    const struct tree *tree;
    const struct tree_boxes *in;
    const uint32_t *first; /* [rules + 1] first box of each rule */
    const uint64_t *point;
    const struct tree_node *node, *back[CALLS];
    uint32_t entry, back_entry[CALLS], calls;
    uint32_t reads;
    double cost;
};

/* Read the node's entries up to the rule that decides (returned; else -1) or the one that leads to another
 * node (*next, else NULL). */
static int32_t read_entries(struct tree_walk *w, const struct tree_node **next)
{
    const struct tree *tree = w->tree;
    *next = NULL;
    while (w->entry < w->node->entries) {
        uint32_t e = w->node->entry + w->entry++;
        int32_t rule = tree->entry[e];
        enum tree_step step = tree->step[e];
        w->reads++;
        bool matches = !has_tests(step) || rule_matches(w->in, w->first[rule], w->first[rule + 1], w->point);
        w->cost += entry_cost(w->in, step, (uint32_t)rule, rule < 0 ? 0 : w->first[rule], w->point, matches);
        if (!matches || (step <= TREE_SEND && w->in->free[rule] & TREE_PASSED))
            continue;
        if (step == TREE_RULE || step == TREE_ACT)
            return rule;
        *next = &tree->node[tree->link[e]];
        if (step == TREE_ASK || step == TREE_CALL) {
            assert(w->calls < CALLS);
            w->back[w->calls] = w->node;
            w->back_entry[w->calls++] = w->entry;
        }
        return -1;
    }
    return -1;
}

/* The node to which the decision of an inner node leads. */
static const struct tree_node *follow_edge(struct tree_walk *w)
{
    const struct tree_node *node = w->node;
    const struct tree_edge *edge = &w->tree->edge[node->edge];
    const uint64_t *word = w->point + 2 * node->axis;
    uint32_t before = w->reads;
    if (node->kind == TREE_TEST) {
        bool taken = words_hold(edge->low, edge->high, word) != node->negated;
        struct tree_cost test =
            cost_of_test(w->in, node->axis, wide_of(edge->low), wide_of(edge->high), node->negated);
        w->reads++;
        w->cost += taken ? test.taken : test.missed;
        return &w->tree->node[edge[!taken].to];
    }
    if (node->kind == TREE_CUTS)
        edge = cut_find(edge, node->edges, word, &w->reads);
    else
        edge = lookup_find(edge, node->edges, word, node->kind == TREE_LONE_LOOKUPS, &w->reads);
    w->cost += edges_cost(w->in, node, edge, w->reads - before);
    return &w->tree->node[edge->to];
}

/* The first matching rule, or -1. */
static int32_t search_point(struct tree_walk *w)
{
    w->node = &w->tree->node[w->tree->root];
    w->entry = w->calls = w->reads = 0;
    w->cost = 0;
    for (;;) {
        const struct tree_node *next;
        int32_t rule = read_entries(w, &next);
        if (rule >= 0)
            return rule;
        if (!next && w->node->kind == TREE_LEAF) {
            if (!w->calls)
                return -1;
            w->node = w->back[--w->calls];
            w->entry = w->back_entry[w->calls];
            continue;
        }
        w->node = next ? next : follow_edge(w);
        w->entry = 0;
    }
}

enum tree_status tree_search(const struct tree *tree, const struct tree_boxes *in, const uint64_t *points,
                             size_t count, int32_t *rule, uint32_t *reads, double *spent)
{
    struct arena *arena = arena_new(0);
    uint32_t *first = arena ? arena_take(arena, ((size_t)in->rules + 1) * sizeof *first) : NULL;
    if (!first) {
        arena_free(arena);
        return TREE_NO_MEMORY;
    }
    for (uint32_t box = 0; box < in->boxes; box++)
        first[in->rule[box] + 1]++;
    for (uint32_t r = 0; r < in->rules; r++)
        first[r + 1] += first[r];
    struct tree_walk walk = {.tree = tree, .in = in, .first = first};
    for (size_t p = 0; p < count; p++) {
        walk.point = points + p * in->axes * 2;
        rule[p] = search_point(&walk);
        reads[p] = walk.reads;
        if (spent)
            spent[p] = walk.cost;
    }
    arena_free(arena);
    return TREE_OK;
}
