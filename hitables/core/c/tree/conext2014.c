/* The trees of "Trees in the List" (Hager, Selent, Scheuermann; CoNEXT 2014), as published.
 *
 * Idea: HiCuts with any interval for a cut.  A node of more than leaf_size rules is cut along the axis on
 * which most rules lie apart from all others (if none does: the axis with most distinct ends); least_max:
 * along the axis whose largest part has the fewest rules.  Equal cuts: their number starts at
 * max(first_cuts, sqrt(n)) and doubles until the parts hold spfac times the rules of the node; parts differ
 * by one value at most.  Unequal cuts: between rules that lie apart, or at all ends of rules.  A rule that an
 * earlier final rule hides within a part is left out of the part, and so is a part without rules.
 * An axis of which single values alone can be tested (the protocol) is cut into a part for each value that a
 * rule names, and the rest, by TEST nodes in line.  If the axis that was chosen needs a value of another one
 * that the region does not tell, that other axis is cut first.
 * Cost: per part, the square of its rules; least_max: for each axis.
 * Invariant: points in no part of a cut, "none" included, belong to the last part.  The root's region is the
 * hull of its boxes.  Neither budget nor nesting is bounded.
 * Differs from the 2014 tool: of equally good axes it took one at random, we take the first; all its parts
 * but the last were a value longer than an even share, so parts beyond the node's own end were printed as
 * empty intervals; "none" was forgotten.
 * Threading: none; memory is that of the space (tree.c).
 */
#include "conext2014.h"

#include <string.h>

static struct part *part_new(struct cutter *c, uint32_t boxes)
{
    struct part *part = arena_take(c->space->arena, sizeof *part);
    if (!part)
        return NULL;
    part->node = node_new(c->space);
    part->region = arena_take(c->space->arena, c->space->in->axes * sizeof *part->region);
    part->box = arena_take(c->space->arena, boxes * sizeof *part->box);
    return part->node && part->region && part->box ? part : NULL;
}

/* A new part of the boxes in c->listed, waiting in parts[]. */
static struct part *part_of_list(struct cutter *c, const struct range *region, uint32_t boxes,
                                 struct part **parts, uint32_t *count)
{
    struct part *child = part_new(c, boxes);
    if (!child)
        return NULL;
    memcpy(child->region, region, c->space->in->axes * sizeof *region);
    memcpy(child->box, c->listed, boxes * sizeof *child->box);
    child->boxes = boxes;
    parts[(*count)++] = child;
    return child;
}

/* Cut off the values in c->end: a test for each, in line, and the rest behind the last. */
static enum tree_status cut_values(struct cutter *c, struct part *part, uint32_t axis, uint32_t values,
                                   struct part **parts, uint32_t *count)
{
    struct space *space = c->space;
    struct range region[TREE_AXES];
    memcpy(region, part->region, space->in->axes * sizeof *region);
    struct build_node *node = part->node;
    for (uint32_t i = 0; i < values; i++) {
        region[axis] = conext2014_value_range(space, axis, c->end[i]);
        uint32_t boxes = conext2014_list_part(space, part->box, part->boxes, axis, region, c->listed);
        struct part *one = part_of_list(c, region, boxes, parts, count), *rest = NULL;
        if (i + 1 == values)
            rest = part_of_list(c, part->region, conext2014_list_rest(space, part, axis, c->listed), parts,
                                count);
        struct build_node *next = i + 1 < values ? node_new(space) : rest ? rest->node : NULL;
        node->branch = arena_take(space->arena, 2 * sizeof *node->branch);
        if (!one || !next || !node->branch)
            return TREE_NO_MEMORY;
        node->kind = TREE_TEST;
        node->axis = axis;
        node->branches = 2;
        node->branch[0] = (struct branch){c->end[i], c->end[i], one->node};
        node->branch[1] = (struct branch){part->region[axis].low, part->region[axis].high, next};
        node = next;
    }
    return TREE_OK;
}

/* Cut the part at the ends in c->end. */
static enum tree_status cut_ends(struct cutter *c, struct part *part, uint32_t axis, uint32_t ends,
                                 struct part **parts, uint32_t *count)
{
    struct space *space = c->space;
    struct build_node *node = part->node;
    node->kind = c->options->lone_chains ? TREE_LONE_LOOKUPS : TREE_LOOKUPS;
    node->axis = axis;
    node->branch = arena_take(space->arena, ends * sizeof *node->branch);
    struct range region[TREE_AXES];
    memcpy(region, part->region, space->in->axes * sizeof *region);
    for (uint32_t i = 0; node->branch && i < ends; i++) {
        conext2014_part_range(space, part->region, axis, c->end, ends, i, &region[axis]);
        uint32_t boxes = conext2014_list_part(space, part->box, part->boxes, axis, region, c->listed);
        if (!boxes)
            continue;
        struct part *child = part_of_list(c, region, boxes, parts, count);
        if (!child)
            return TREE_NO_MEMORY;
        node->branch[node->branches++] = (struct branch){region[axis].low, region[axis].high, child->node};
    }
    return node->branch ? TREE_OK : TREE_NO_MEMORY;
}

/* Cut the part, if it must and can be; its own parts go to parts[], which has room for them. */
static enum tree_status part_cut(struct cutter *c, struct part *part, struct part **parts, uint32_t *count)
{
    uint32_t axis = 0, ends = 0;
    *count = 0;
    if (part->boxes > c->options->leaf_size)
        ends = conext2014_choose_cut(c, part, &axis);
    if (ends && conext2014_by_values(c, axis))
        return cut_values(c, part, axis, ends, parts, count);
    if (ends >= 2)
        return cut_ends(c, part, axis, ends, parts, count);
    return node_lists(c->space, part->node, part->box, part->boxes) ? TREE_OK : TREE_NO_MEMORY;
}

/* Cut the part and its parts, from a stack of those that are not cut yet. */
static enum tree_status cut_all(struct cutter *c, struct part *first)
{
    struct scope *scratch = &c->space->scratch;
    size_t waiting = 0, room = 0;
    struct part **stack = NULL;
    enum tree_status status = TREE_OK;
    for (bool more = true; status == TREE_OK && more; more = waiting > 0) {
        struct part *part = waiting ? stack[--waiting] : first;
        if (waiting + c->room > room) {
            room = 2 * (waiting + c->room);
            struct part **moved = scope_resize(scratch, stack, room * sizeof *stack);
            if (!moved)
                return TREE_NO_MEMORY;
            stack = moved;
        }
        uint32_t parts;
        status = part_cut(c, part, stack + waiting, &parts);
        waiting += parts;
    }
    scope_drop(scratch, stack);
    return status;
}

static enum tree_status conext2014_grow(struct space *space, const struct tree_options *options,
                                        struct build_node **root)
{
    uint32_t boxes = space->in->boxes, axes = space->in->axes;
    struct cutter cutter = {.space = space, .options = options}, *c = &cutter;
    double room = options->spfac * boxes * 2 + 64;
    c->room = room > 1 << 28 ? 1 << 28 : (uint32_t)room;
    if (c->room < 2 * boxes + 2)
        c->room = 2 * boxes + 2;
    c->key = arena_take(space->arena, (2 * (size_t)boxes + 1) * sizeof *c->key);
    c->spare = arena_take(space->arena, (2 * (size_t)boxes + 1) * sizeof *c->spare);
    c->listed = arena_take(space->arena, (boxes + 1) * sizeof *c->listed);
    c->end = arena_take(space->arena, ((size_t)c->room + 1) * sizeof *c->end);
    struct part *first = part_new(c, boxes);
    if (!c->key || !c->spare || !c->listed || !c->end || !first)
        return TREE_NO_MEMORY;
    region_all(space, first->region);
    for (uint32_t a = 0; boxes && a < axes; a++) {
        const struct line *line = &space->line[a];
        struct range *along = &first->region[a];
        struct rank_range hull = box_ranks(space, 0, a);
        for (uint32_t i = 1; i < boxes; i++) {
            struct rank_range ranks = box_ranks(space, i, a);
            hull.low = ranks.low < hull.low ? ranks.low : hull.low;
            hull.high = ranks.high > hull.high ? ranks.high : hull.high;
        }
        if (line->edge[hull.low] > along->low)
            along->low = line->edge[hull.low];
        along->high = line_end(line, hull.high);
        along->ranks = (struct rank_range){line_rank(line, along->low), hull.high};
    }
    for (uint32_t i = 0; i < boxes; i++)
        c->listed[i] = i;
    uint32_t *all = arena_take(space->arena, boxes * sizeof *all);
    if (!all)
        return TREE_NO_MEMORY;
    memcpy(all, c->listed, boxes * sizeof *all);
    first->boxes = conext2014_list_part(space, all, boxes, 0, first->region, first->box);
    *root = first->node;
    return cut_all(c, first);
}

const struct tree_builder tree_conext2014 = {.name = "paper", .grow = conext2014_grow};
