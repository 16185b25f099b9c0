/* The leaves of a cut tree that a box meets.
 *
 * Idea: the walk goes down with the part of the box that lies in the node's region; bits of its ends give the
 * range of parts along each cut dimension.
 * Cost: a step per part in that range, and a frame of 80 bytes per level.
 * Invariant: every leaf that holds a header of the box is visited, or its node was left out by *limit*.  A
 * node that neighbouring parts share is visited once: its rules reach through all of them, so the part of
 * the box in the first one meets the same leaves.
 * Threading: a walk changes nothing but itself.
 */
#include <string.h>

#include "cut_tree_nodes.h"

static bool same_node(const struct cut_tree_node *one, const struct cut_tree_node *two)
{
    return one->first == two->first && one->how == two->how;
}

/* Enter an inner node, with the box as it is clipped to its region. */
static void enter(struct cut_tree_walk *walk, const struct cut_tree_node *node)
{
    struct cut_tree_frame *f = &walk->frame[walk->depth++];
    f->first = node->first;
    for (uint32_t i = 0; i < CUT_TREE_DIMS; i++) {
        uint32_t how = i ? node->how : node->how >> ONE_BITS;
        f->bits[i] = width_of(how);
        f->shift[i] = how >> WIDTH_BITS & ((1 << SHIFT_BITS) - 1);
        f->dim[i] = how >> (WIDTH_BITS + SHIFT_BITS) & ((1 << DIM_BITS) - 1);
        const uint32_t *side = walk->box + 2 * f->dim[i];
        memcpy(f->side[i], side, sizeof f->side[i]);
        uint32_t mask = (1U << f->bits[i]) - 1;
        f->low[i] = f->at[i] = side[0] >> f->shift[i] & mask;
        f->high[i] = side[1] >> f->shift[i] & mask;
    }
}

/* Clip the box to part *number* along cut dimension *i*. */
static void clip(struct cut_tree_walk *walk, const struct cut_tree_frame *f, uint32_t i, uint32_t number)
{
    uint32_t *side = walk->box + 2 * f->dim[i], whole = f->shift[i] + f->bits[i];
    uint64_t region = (uint64_t)f->side[i][0] >> whole << whole;
    uint64_t low = region + ((uint64_t)number << f->shift[i]), high = low + (UINT64_C(1) << f->shift[i]) - 1;
    side[0] = low > f->side[i][0] ? (uint32_t)low : f->side[i][0];
    side[1] = high < f->side[i][1] ? (uint32_t)high : f->side[i][1];
}

static void leave(struct cut_tree_walk *walk)
{
    const struct cut_tree_frame *f = &walk->frame[--walk->depth];
    for (uint32_t i = 0; i < CUT_TREE_DIMS; i++)
        if (f->bits[i])
            memcpy(walk->box + 2 * f->dim[i], f->side[i], sizeof f->side[i]);
}

void cut_tree_walk_start(struct cut_tree_walk *walk, const struct cut_tree *tree, const uint32_t *least,
                         const uint32_t *box)
{
    walk->tree = tree;
    walk->least = least;
    walk->depth = 0;
    memcpy(walk->box, box, 2 * tree->leaves.dims * sizeof *box);
    walk->at_root = tree->node[0].how & IS_LEAF;
    if (!walk->at_root)
        enter(walk, &tree->node[0]);
}

static bool is_wanted(const struct cut_tree_walk *walk, uint32_t number, uint32_t limit)
{
    const struct cut_tree_node *node = &walk->tree->node[number];
    return node->how != IS_LEAF && !(walk->least && walk->least[number] > limit);
}

static bool give_leaf(const struct cut_tree_walk *walk, const struct cut_tree_node *node,
                      struct cut_tree_leaf *leaf)
{
    leaf->entry = walk->tree->leaves.entry + node->first;
    leaf->count = node->how & ~(uint32_t)IS_LEAF;
    return true;
}

bool cut_tree_walk_next(struct cut_tree_walk *walk, uint32_t limit, struct cut_tree_leaf *leaf)
{
    if (walk->at_root) {
        walk->at_root = false;
        return is_wanted(walk, 0, limit) && give_leaf(walk, &walk->tree->node[0], leaf);
    }
    while (walk->depth) {
        struct cut_tree_frame *f = &walk->frame[walk->depth - 1];
        uint32_t at[CUT_TREE_DIMS] = {f->at[0], f->at[1]}, row = 1U << f->bits[1];
        if (at[0] > f->high[0]) {
            leave(walk);
            continue;
        }
        uint32_t number = f->first + (at[0] << f->bits[1]) + at[1];
        const struct cut_tree_node *node = &walk->tree->node[number];
        if (f->at[1]++ == f->high[1]) {
            f->at[1] = f->low[1];
            f->at[0]++;
        }
        if ((at[1] > f->low[1] && same_node(node, node - 1)) ||
            (at[0] > f->low[0] && same_node(node, node - row)) || !is_wanted(walk, number, limit))
            continue;
        if (node->how & IS_LEAF)
            return give_leaf(walk, node, leaf);
        for (uint32_t i = 0; i < CUT_TREE_DIMS; i++)
            if (f->bits[i])
                clip(walk, f, i, at[i]);
        enter(walk, node);
    }
    return false;
}

/* Nodes stand before those below them, shared ones included. */
void cut_tree_least(const struct cut_tree *tree, uint32_t *least)
{
    for (uint32_t n = tree->nodes; n--;) {
        const struct cut_tree_node *node = &tree->node[n];
        least[n] = VFDB_NONE;
        if (node->how == IS_LEAF)
            continue;
        if (node->how & IS_LEAF) {
            least[n] = tree->leaves.priority[tree->leaves.entry[node->first] & ~(uint32_t)LEAF_COVERS];
            continue;
        }
        uint32_t parts = 1U << (width_of(node->how >> ONE_BITS) + width_of(node->how));
        for (uint32_t i = 0; i < parts; i++)
            if (least[node->first + i] < least[n])
                least[n] = least[node->first + i];
    }
}

uint32_t cut_tree_nodes(const struct cut_tree *tree)
{
    return tree->nodes;
}

const struct leaves *cut_tree_leaves(const struct cut_tree *tree)
{
    return &tree->leaves;
}

bool cut_tree_root(const struct cut_tree *tree, struct node_cut *cut)
{
    uint32_t how = tree->node[0].how;
    if (how & IS_LEAF)
        return false;
    for (uint32_t i = 0; i < CUT_TREE_DIMS; i++) {
        uint32_t one = i ? how : how >> ONE_BITS;
        cut->dim[i] = one >> (WIDTH_BITS + SHIFT_BITS) & ((1 << DIM_BITS) - 1);
        cut->bits[i] = width_of(one);
    }
    return true;
}
