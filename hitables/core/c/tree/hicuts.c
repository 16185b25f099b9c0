/* HiCuts (Gupta and McKeown, 1999).
 *
 * Idea: a node of too many rules is cut into equal parts along the one axis on which its rules have most
 * distinct intervals.  The number of parts starts at max(4, sqrt(n)) and doubles while the rules of all
 * parts, and the parts, are at most spfac times the rules of the node.  In a search a node's region is its
 * part of its parent's, as published; printed it is the hull of the node's rules, which costs nothing there
 * (cut_grid.c).
 * Cost: O(n log n) per node and axis, and the rules of all parts.
 * Invariant: that of cut_grid.c.
 * Threading: none.
 */
#include "cut_grid.h"

#include <math.h>

enum { MOST_PARTS = 256 };

/* The parts, and the boxes that they list. */
static double cut_space(const struct grid_growth *p, const struct grid_node *node, const struct cut *cut)
{
    double space = cut->parts;
    for (uint32_t i = 0; i < node->boxes; i++) {
        struct rank_range ranks = box_ranks(p->space, node->box[i], cut->axis);
        struct rank_range span = cut_span(p->space, cut, &node->region[cut->axis], ranks);
        space += span.high - span.low + 1.0;
    }
    return space;
}

static bool cut_equally(const struct grid_growth *p, const struct grid_node *node, uint32_t axis,
                        struct grid_plan *plan)
{
    double enough = p->spfac * node->boxes, start = fmax(4, sqrt(node->boxes));
    uint32_t left = p->max_nesting - node->nesting;
    plan->cuts = 0;
    if (plan_narrows(p, node, axis, plan))
        return true;
    for (uint32_t parts = 2; parts <= MOST_PARTS && floor_log2(parts) <= left; parts *= 2) {
        struct cut cut = cut_into(p->space, node->region, axis, parts);
        if (cut.parts < 2 || (parts > start && cut_space(p, node, &cut) > enough))
            break;
        plan->cut[0] = cut;
        plan->cuts = 1;
    }
    plan->kind = plan->cuts ? PLAN_GRID : PLAN_LEAF;
    return plan->cuts;
}

static void hicuts_choose(struct grid_growth *p, const struct grid_node *node, struct grid_plan *plan)
{
    uint32_t count[TREE_AXES], axes = p->space->in->axes;
    for (uint32_t a = 0; a < axes; a++)
        count[a] = p->space->in->axis[a].cut == TREE_CUT_NONE ? 0 : count_distinct(p, node, a);
    for (;;) {
        uint32_t axis = 0;
        for (uint32_t a = 1; a < axes; a++)
            if (count[a] > count[axis])
                axis = a;
        if (!count[axis])
            return;
        count[axis] = 0;
        if (can_grid(p, node, axis) ? cut_equally(p, node, axis, plan) : plan_test(p, node, axis, plan))
            return;
    }
}

static enum tree_status hicuts_grow(struct space *space, const struct tree_options *options,
                                    struct build_node **root)
{
    return cut_grid_print(space, options, &grid_hicuts, root);
}

const struct grid_builder grid_hicuts = {.choose = hicuts_choose};
const struct tree_builder tree_hicuts = {.name = "hicuts", .bounded = true, .grow = hicuts_grow};
