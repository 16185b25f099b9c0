/* The trees of "Trees in the List" (Hager, Selent, Scheuermann; CoNEXT 2014), as published.
 *
 * Idea: HiCuts with any interval for a cut.  A node of more than leaf_size rules is cut along the axis on
 * which most rules lie apart from all others (if none does: the axis with most distinct ends).  Equal cuts:
 * their number starts at max(4, sqrt(n)) and doubles until the parts hold spfac times the rules of the node.
 * Unequal cuts: between rules that lie apart, or at all ends of rules.  A rule that an earlier final rule
 * hides within a part is left out of the part, and so is a part without rules.
 * Cost: per part, the square of its rules.
 * Invariant: points in no part of a cut, "none" included, belong to the last part.  The root's region is the
 * hull of its boxes.  Neither budget nor nesting is bounded, and what an axis requires of others is ignored:
 * the caller has one tree per protocol.
 * Differs from the 2014 tool: of equally good axes it took one at random, we take the first; parts beyond the
 * node's own end (rounding, or more cuts than values) were printed as empty intervals, here there are none;
 * "none" was forgotten.
 * Threading: none; everything lives in the space's arena.
 */
#include "tree_internal.h"

#include <math.h>
#include <string.h>

#include "sort.h"

struct part {
    struct build_node *node;
    struct range *region;
    uint32_t boxes;
    uint32_t *box;
};

struct cutter {
    struct space *space;
    const struct tree_options *options;
    uint64_t *key, *spare;
    uint32_t *listed; /* scratch of a part's boxes */
    u128 *end;        /* ends of the parts of a cut */
    uint32_t room;
};

static bool hides(const struct space *space, uint32_t earlier, uint32_t later, const struct range *region)
{
    if (!space->in->final[space->in->rule[earlier]])
        return false;
    for (uint32_t a = 0; a < space->in->axes; a++) {
        struct rank_range x = box_ranks(space, earlier, a), y = box_ranks(space, later, a);
        uint32_t low = y.low > region[a].ranks.low ? y.low : region[a].ranks.low;
        uint32_t high = y.high < region[a].ranks.high ? y.high : region[a].ranks.high;
        if (x.low > low || x.high < high || (region[a].none && x.low && !y.low))
            return false;
    }
    return true;
}

/* The boxes that meet the region and are not hidden there, into listed[]; their number. */
static uint32_t list_part(const struct space *space, const uint32_t *box, uint32_t boxes, uint32_t axis,
                          const struct range *region, uint32_t *listed)
{
    uint32_t count = 0;
    const struct range *along = &region[axis];
    for (uint32_t i = 0; i < boxes; i++) {
        struct rank_range ranks = box_ranks(space, box[i], axis);
        if ((ranks.low > along->ranks.high || ranks.high < along->ranks.low) && !(along->none && !ranks.low))
            continue;
        uint32_t j = 0;
        while (j < count && !hides(space, listed[j], box[i], region))
            j++;
        if (j == count)
            listed[count++] = box[i];
    }
    return count;
}

/* Ends of the parts of *cuts* equal cuts, into end[]; their number. */
static uint32_t equal_ends(const struct range *along, uint32_t cuts, u128 *end)
{
    u128 length = (along->high - along->low) / (cuts + 1) + 1, at = along->low;
    uint32_t ends = 0;
    while (ends < cuts && along->high - at >= length) {
        end[ends++] = at + length - 1;
        at += length;
    }
    end[ends++] = along->high;
    return ends;
}

/* The region's part number *i* along the axis; only the last one keeps "none". */
static void part_range(const struct space *space, const struct range *from, uint32_t axis, const u128 *end,
                       uint32_t ends, uint32_t i, struct range *along)
{
    along->low = i ? end[i - 1] + 1 : from[axis].low;
    along->high = end[i];
    along->ranks = (struct rank_range){line_rank(&space->line[axis], along->low),
                                       line_rank(&space->line[axis], along->high)};
    along->none = from[axis].none && i + 1 == ends;
}

/* The number of equal cuts: the first of doubling numbers whose parts hold enough. */
static uint32_t equal_cuts(struct cutter *c, const struct part *part, uint32_t axis)
{
    const struct range *along = &part->region[axis];
    uint32_t cuts = (uint32_t)sqrt(part->boxes);
    struct range region[TREE_AXES];
    memcpy(region, part->region, c->space->in->axes * sizeof *region);
    for (cuts = cuts < 4 ? 4 : cuts; 2 * cuts < c->room; cuts *= 2) {
        double space = cuts + 1, enough = c->options->spfac * part->boxes;
        uint32_t ends = equal_ends(along, cuts, c->end);
        for (uint32_t i = 0; i < ends && space < enough; i++) {
            part_range(c->space, part->region, axis, c->end, ends, i, &region[axis]);
            space += list_part(c->space, part->box, part->boxes, axis, region, c->listed);
        }
        if (space >= enough)
            break;
    }
    return along->high - along->low < cuts ? (uint32_t)(along->high - along->low) : cuts;
}

/* How many boxes lie apart from all others along the axis; where to cut them off, into end[], when that is
 * asked for. */
static uint32_t apart(struct cutter *c, const struct part *part, uint32_t axis, u128 *end, uint32_t *ends)
{
    const struct line *line = &c->space->line[axis];
    uint32_t count = 0, highest = 0;
    bool any = false;
    for (uint32_t i = 0; i < part->boxes; i++) {
        struct rank_range ranks = box_ranks(c->space, part->box[i], axis);
        c->key[i] = (uint64_t)ranks.low << 32 | ranks.high;
    }
    sort_keys(c->key, c->spare, part->boxes, 0);
    for (uint32_t i = 0; i < part->boxes; i++) {
        uint32_t low = (uint32_t)(c->key[i] >> 32), high = (uint32_t)c->key[i];
        bool before = !any || low > highest;
        bool behind = i + 1 == part->boxes || high < (uint32_t)(c->key[i + 1] >> 32);
        highest = !any || high > highest ? high : highest;
        any = true;
        if (!before || !behind)
            continue;
        count++;
        u128 cut = line_end(line, high);
        if (end && cut < part->region[axis].high)
            end[(*ends)++] = cut;
    }
    return count;
}

/* The distinct ends of boxes within the region, into end[] when asked for. */
static uint32_t distinct_ends(struct cutter *c, const struct part *part, uint32_t axis, u128 *end,
                              uint32_t *ends)
{
    const struct line *line = &c->space->line[axis];
    const struct range *along = &part->region[axis];
    uint32_t keys = 0, count = 0;
    /* A value as start or as end: 2 * rank, and one more for the end of its interval, which is the same
     * value when the interval has one value only. */
    for (uint32_t i = 0; i < part->boxes; i++) {
        struct rank_range ranks = box_ranks(c->space, part->box[i], axis);
        if (line->edge[ranks.low] >= along->low)
            c->key[keys++] = 2 * (uint64_t)ranks.low;
        if (line_end(line, ranks.high) <= along->high)
            c->key[keys++] = 2 * (uint64_t)ranks.high + (line_end(line, ranks.high) > line->edge[ranks.high]);
    }
    sort_keys(c->key, c->spare, keys, 0);
    for (uint32_t i = 0; i < keys; i++) {
        if (i && c->key[i] == c->key[i - 1])
            continue;
        count++;
        uint32_t rank = (uint32_t)(c->key[i] / 2);
        u128 cut = c->key[i] & 1 ? line_end(line, rank) : line->edge[rank];
        if (end && cut < along->high)
            end[(*ends)++] = cut;
    }
    return count;
}

/* Whether the axis may be cut, and cutting it can separate rules. */
static bool cuttable(const struct cutter *c, const struct part *part, uint32_t axis)
{
    const struct range *along = &part->region[axis];
    if (c->space->in->axis[axis].cut == TREE_CUT_NONE || along->low >= along->high)
        return false;
    for (uint32_t i = 0; i < part->boxes; i++) {
        struct rank_range ranks = box_ranks(c->space, part->box[i], axis);
        if (ranks.low > along->ranks.low || ranks.high < along->ranks.high)
            return true;
    }
    return false;
}

/* The axis to cut, and the ends of its parts in c->end; 0 parts: it cannot be cut. */
static uint32_t choose_cut(struct cutter *c, const struct part *part, uint32_t *axis)
{
    uint32_t most = 0, ends = 0;
    u128 widest = 0;
    bool unequal = c->options->unequal;
    for (int round = 0; round < 2 && !most; round++)
        for (uint32_t a = 0; a < c->space->in->axes; a++) {
            const struct range *along = &part->region[a];
            if (!cuttable(c, part, a))
                continue;
            uint32_t count = round ? distinct_ends(c, part, a, NULL, NULL) : apart(c, part, a, NULL, NULL);
            /* Boxes that lie apart: of equal axes the widest; ends: the first. */
            if (count > most || (count && count == most && !round && along->high - along->low > widest)) {
                most = count;
                *axis = a;
                widest = along->high - along->low;
            }
        }
    if (!most)
        return 0;
    if (unequal) {
        apart(c, part, *axis, c->end, &ends);
        if (ends < 2) {
            ends = 0;
            most = 0;
            for (uint32_t a = 0; a < c->space->in->axes; a++) {
                if (!cuttable(c, part, a))
                    continue;
                uint32_t count = distinct_ends(c, part, a, NULL, NULL);
                if (count > most) {
                    most = count;
                    *axis = a;
                }
            }
            distinct_ends(c, part, *axis, c->end, &ends);
        }
        if (ends >= 2) {
            c->end[ends++] = part->region[*axis].high;
            return ends;
        }
    }
    uint32_t cuts = equal_cuts(c, part, *axis);
    return equal_ends(&part->region[*axis], cuts, c->end);
}

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

/* Cut the part, if it must and can be; its own parts go to parts[], which has room for them. */
static enum tree_status part_cut(struct cutter *c, struct part *part, struct part **parts, uint32_t *count)
{
    struct space *space = c->space;
    uint32_t axis = 0, ends = 0;
    *count = 0;
    if (part->boxes > c->options->leaf_size)
        ends = choose_cut(c, part, &axis);
    if (ends < 2)
        return node_lists(space, part->node, part->box, part->boxes) ? TREE_OK : TREE_NO_MEMORY;
    struct build_node *node = part->node;
    node->kind = TREE_LOOKUPS;
    node->axis = axis;
    node->branch = arena_take(space->arena, ends * sizeof *node->branch);
    struct range region[TREE_AXES];
    memcpy(region, part->region, space->in->axes * sizeof *region);
    for (uint32_t i = 0; node->branch && i < ends; i++) {
        part_range(space, part->region, axis, c->end, ends, i, &region[axis]);
        uint32_t boxes = list_part(space, part->box, part->boxes, axis, region, c->listed);
        if (!boxes)
            continue;
        struct part *child = part_new(c, boxes);
        if (!child)
            return TREE_NO_MEMORY;
        memcpy(child->region, region, space->in->axes * sizeof *region);
        memcpy(child->box, c->listed, boxes * sizeof *child->box);
        child->boxes = boxes;
        node->branch[node->branches++] = (struct branch){region[axis].low, region[axis].high, child->node};
        parts[(*count)++] = child;
    }
    return node->branch ? TREE_OK : TREE_NO_MEMORY;
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
    first->boxes = list_part(space, all, boxes, 0, first->region, first->box);
    *root = first->node;
    return cut_all(c, first);
}

const struct tree_builder tree_conext2014 = {.name = "paper", .grow = conext2014_grow};
