/* How deep the chains of a finished tree nest, and how many rules a packet reads in it at most.
 *
 * Idea: the worst path below each node, after those of the nodes that it leads to.
 * Cost: a few steps per node, edge and entry.
 * Invariant: no step of a tree leads into a circle, so every node has a worst path.
 * Threading: none; the scratch memory is the caller's.
 */
#include "tree_internal.h"

/* Numbers are capped here: a tree of groups that call each other may read more rules than fit 64 bits. */
static const uint64_t MOST = INT64_MAX;

/* What is summed over a path: rules read, or the chains that it enters. */
struct depth_walk {
    const struct tree *tree;
    bool reads;
    uint64_t *worst; /* [nodes] plus 1; 0 while unknown */
    uint32_t *stack; /* nodes that wait; each once per step to it */
    uint32_t waiting;
};

static uint64_t plus(uint64_t one, uint64_t two)
{
    return one > MOST - two ? MOST : one + two;
}

/* The tests taken, or rules read, from a node's entries to edge *at* of *edges* that are halved. */
static uint64_t by_halving(uint32_t at, uint32_t edges, bool reads)
{
    uint64_t taken = 0, read = 0;
    while (edges > 1) {
        uint32_t half = edges / 2;
        read++;
        if (at < half) {
            taken++;
            edges = half;
        } else {
            at -= half;
            edges -= half;
        }
    }
    return reads ? read : taken;
}

/* The same where they are looked up. */
static uint64_t by_lookup(uint32_t at, uint32_t edges, bool lone, bool reads)
{
    uint64_t taken = 1, read = 1;
    uint32_t middle;
    while (edges > 1 && at != (middle = (edges - 1) / 2)) {
        if (at < middle) {
            read++;
            edges = middle;
        } else {
            read += 1 + (middle > 0);
            at -= middle + 1;
            edges -= middle + 1;
        }
        if (edges > 1 || lone) {
            taken++;
            read++;
        }
    }
    return reads ? read : taken;
}

static uint64_t to_edge(const struct tree_node *node, uint32_t at, bool reads)
{
    if (node->kind == TREE_LOOKUPS || node->kind == TREE_LONE_LOOKUPS)
        return by_lookup(at, node->edges, node->kind == TREE_LONE_LOOKUPS, reads);
    return by_halving(at, node->edges, reads);
}

/* Whether the worst path below node *to* is known; else the node is put on the stack. */
static bool is_known(struct depth_walk *w, uint32_t to)
{
    if (!w->worst[to])
        w->stack[w->waiting++] = to;
    return w->worst[to];
}

/* The worst path over the edges and entries of a node, if those of all that it leads to are known; else these
 * are put on the stack. */
static void visit(struct depth_walk *w, uint32_t number)
{
    const struct tree *tree = w->tree;
    const struct tree_node *node = &tree->node[number];
    uint64_t by_edge = 0, by_entry = 0, called = 0;
    bool known = true;
    for (uint32_t i = 0; i < node->edges; i++) {
        uint32_t to = tree->edge[node->edge + i].to;
        known &= is_known(w, to);
        uint64_t path = known ? plus(w->worst[to] - 1, to_edge(node, i, w->reads)) : 0;
        by_edge = path > by_edge ? path : by_edge;
    }
    for (uint32_t i = 0; i < node->entries; i++) {
        enum tree_step step = tree->step[node->entry + i];
        uint32_t to = tree->link[node->entry + i];
        if (step == TREE_RULE || step == TREE_ACT)
            continue;
        known &= is_known(w, to);
        uint64_t below = known ? w->worst[to] - 1 : 0;
        /* A call adds the rules of the called tree to those read; a packet that is sent away stays there. */
        if (w->reads && (step == TREE_ASK || step == TREE_CALL)) {
            called = plus(called, below);
            continue;
        }
        uint64_t path = plus(below, w->reads ? plus(i + 1, called) : 1);
        by_entry = path > by_entry ? path : by_entry;
    }
    if (!known)
        return;
    if (w->reads)
        by_edge = plus(by_edge, plus(node->entries, called));
    w->worst[number] = (by_entry > by_edge ? by_entry : by_edge) + 1;
}

uint64_t tree_worst(const struct tree *tree, bool reads, struct scope *scratch)
{
    struct depth_walk w = {.tree = tree, .reads = reads};
    uint64_t worst = UINT64_MAX;
    w.worst = scope_take(scratch, tree->nodes * sizeof *w.worst);
    w.stack = scope_take(scratch, (tree->edges + (size_t)tree->entries + 1) * sizeof *w.stack);
    if (w.worst && w.stack) {
        w.stack[w.waiting++] = tree->root;
        while (w.waiting) {
            uint32_t at = w.waiting - 1;
            if (!w.worst[w.stack[at]])
                visit(&w, w.stack[at]);
            if (w.worst[w.stack[at]])
                w.waiting = at;
        }
        worst = w.worst[tree->root] - 1;
    }
    scope_drop(scratch, w.worst);
    scope_drop(scratch, w.stack);
    return worst;
}

enum tree_status tree_depths(const struct tree *tree, uint64_t *nesting, uint64_t *longest)
{
    struct scope scratch = {.budget = budget_new(0)};
    enum tree_status status = TREE_NO_MEMORY;
    if (scratch.budget) {
        *nesting = tree_worst(tree, false, &scratch);
        *longest = tree_worst(tree, true, &scratch);
        if (*nesting != UINT64_MAX && *longest != UINT64_MAX)
            status = TREE_OK;
        scope_empty(&scratch);
    }
    budget_free(scratch.budget);
    return status;
}
