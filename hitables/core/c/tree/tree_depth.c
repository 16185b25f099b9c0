/* How deep the chains of a finished tree nest.
 *
 * Idea: the deepest path below each node, those of the nodes that it leads to first.
 * Cost: a few steps per node, edge and entry.
 * Invariant: no step of a tree leads into a circle, so every node has a depth.
 * Threading: none; the scratch memory is the caller's.
 */
#include "tree_internal.h"

/* The deepest path over the edges and entries of a node whose successors are known; else false, and the
 * unknown ones are put on the stack. */
static bool node_depth(const struct tree *tree, uint32_t number, uint32_t *depth, uint32_t *stack,
                       uint32_t *waiting)
{
    const struct tree_node *node = &tree->node[number];
    uint32_t deepest = 0, before = *waiting;
    for (uint32_t i = 0; i < node->edges; i++) {
        uint32_t to = tree->edge[node->edge + i].to;
        /* The last edge continues in line. */
        uint32_t below = depth[to] - 1 + (i + 1 < node->edges);
        if (!depth[to])
            stack[(*waiting)++] = to;
        else if (below > deepest)
            deepest = below;
    }
    for (uint32_t i = 0; i < node->entries; i++) {
        enum tree_step step = tree->step[node->entry + i];
        uint32_t to = tree->link[node->entry + i];
        if (step == TREE_RULE || step == TREE_ACT)
            continue;
        if (!depth[to])
            stack[(*waiting)++] = to;
        else if (depth[to] > deepest)
            deepest = depth[to];
    }
    if (*waiting > before)
        return false;
    depth[number] = deepest + 1;
    return true;
}

uint32_t tree_nesting(const struct tree *tree, struct scope *scratch)
{
    /* depth: of the chains below each node, plus 1; 0 while unknown.  A node waits once per step to it. */
    uint32_t *depth = scope_take(scratch, tree->nodes * sizeof *depth);
    uint32_t *stack = scope_take(scratch, (tree->edges + (size_t)tree->entries + 1) * sizeof *stack);
    uint32_t waiting = 0, deepest = UINT32_MAX;
    if (depth && stack) {
        stack[waiting++] = tree->root;
        while (waiting) {
            uint32_t at = waiting - 1;
            if (depth[stack[at]] || node_depth(tree, stack[at], depth, stack, &waiting))
                waiting = at;
        }
        deepest = depth[tree->root] - 1;
    }
    scope_drop(scratch, depth);
    scope_drop(scratch, stack);
    return deepest;
}
