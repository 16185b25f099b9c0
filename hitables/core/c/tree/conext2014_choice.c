/* Where the trees of "Trees in the List" are cut: the axis, and the ends of the parts along it.
 *
 * Idea: max-dist, least-max, equal and unequal cuts, as the head of conext2014.c describes them.
 * Cost: max-dist sorts the boxes of a part for each axis; least-max lists the parts of each axis.
 * Invariant: what is chosen can be tested by single rules, and separates rules.
 * Threading: none.
 */
#include "conext2014.h"

#include <math.h>
#include <string.h>

#include "sort.h"

/* Ends of the parts of *cuts* equal cuts, into end[]; their number. */
static uint32_t equal_ends(const struct range *along, uint32_t cuts, u128 *end)
{
    uint32_t ends = 0;
    u128 parts = (u128)cuts + 1, each = (along->high - along->low) / parts,
         over = (along->high - along->low) % parts + 1, last = along->low;
    for (uint32_t i = 1; i <= cuts; i++) {
        /* Floor of i / parts of all values. */
        u128 next = along->low + i * each + i * over / parts;
        if (next > last)
            end[ends++] = next - 1;
        last = next;
    }
    end[ends++] = along->high;
    return ends;
}

/* The number of equal cuts: the first of doubling numbers whose parts hold enough. */
static uint32_t equal_cuts(struct cutter *c, const struct part *part, uint32_t axis)
{
    const struct range *along = &part->region[axis];
    uint32_t cuts = (uint32_t)sqrt(part->boxes);
    struct range region[TREE_AXES];
    memcpy(region, part->region, c->space->in->axes * sizeof *region);
    if (cuts < c->options->first_cuts)
        cuts = c->options->first_cuts;
    for (; 2 * cuts < c->room; cuts *= 2) {
        double space = cuts + 1, enough = c->options->spfac * part->boxes;
        uint32_t ends = equal_ends(along, cuts, c->end);
        for (uint32_t i = 0; i < ends && space < enough; i++) {
            conext2014_part_range(c->space, part->region, axis, c->end, ends, i, &region[axis]);
            space += conext2014_list_part(c->space, part->box, part->boxes, axis, region, c->listed);
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

/* The values that boxes name, ascending, into end[]; their number. */
static uint32_t named_values(struct cutter *c, const struct part *part, uint32_t axis, u128 *end)
{
    uint32_t keys = 0, count = 0;
    for (uint32_t i = 0; i < part->boxes; i++)
        if (conext2014_names_value(c->space, part->box[i], axis))
            c->key[keys++] = box_ranks(c->space, part->box[i], axis).low;
    sort_keys(c->key, c->spare, keys, 0);
    for (uint32_t i = 0; i < keys; i++)
        if (!i || c->key[i] != c->key[i - 1])
            end[count++] = c->space->line[axis].edge[c->key[i]];
    return count;
}

/* Whether cutting the axis can separate rules. */
static bool separates(const struct cutter *c, const struct part *part, uint32_t axis)
{
    const struct range *along = &part->region[axis];
    if (c->space->in->axis[axis].cut == TREE_CUT_NONE || along->low >= along->high)
        return false;
    for (uint32_t i = 0; i < part->boxes; i++) {
        struct rank_range ranks = box_ranks(c->space, part->box[i], axis);
        if (conext2014_by_values(c, axis) ? conext2014_names_value(c->space, part->box[i], axis)
                               : ranks.low > along->ranks.low || ranks.high < along->ranks.high)
            return true;
    }
    return false;
}

/* The axis that must be cut so that *axis* can be tested: itself, unless the region does not tell what it
 * needs. */
static uint32_t cut_first(const struct cutter *c, const struct part *part, uint32_t axis)
{
    return axis_usable(c->space, part->region, axis) ? axis : (uint32_t)c->space->in->axis[axis].needs;
}

/* Whether the axis may be cut here, or once the one that it needs is cut. */
static bool cuttable(const struct cutter *c, const struct part *part, uint32_t axis)
{
    if (!separates(c, part, axis))
        return false;
    uint32_t first = cut_first(c, part, axis);
    return first == axis || separates(c, part, first);
}

/* The axis with most boxes that lie apart, of equal ones the widest; what is counted there. */
static uint32_t most_apart(struct cutter *c, const struct part *part, uint32_t *axis)
{
    uint32_t most = 0;
    u128 widest = 0;
    for (uint32_t a = 0; a < c->space->in->axes; a++) {
        if (!cuttable(c, part, a))
            continue;
        uint32_t count = apart(c, part, a, NULL, NULL);
        u128 wide = part->region[a].high - part->region[a].low;
        if (count > most || (count && count == most && wide > widest)) {
            most = count;
            *axis = a;
            widest = wide;
        }
    }
    return most;
}

/* The first axis with most distinct ends; their number. */
static uint32_t most_ends(struct cutter *c, const struct part *part, uint32_t *axis)
{
    uint32_t most = 0;
    for (uint32_t a = 0; a < c->space->in->axes; a++) {
        uint32_t count = cuttable(c, part, a) ? distinct_ends(c, part, a, NULL, NULL) : 0;
        if (count > most) {
            most = count;
            *axis = a;
        }
    }
    return most;
}

/* Boxes in the largest of the parts that equal cuts along the axis make. */
static uint32_t largest_part(struct cutter *c, const struct part *part, uint32_t axis)
{
    struct range region[TREE_AXES];
    memcpy(region, part->region, c->space->in->axes * sizeof *region);
    uint32_t most = 0, ends;
    if (conext2014_by_values(c, axis)) {
        ends = named_values(c, part, axis, c->end);
        most = conext2014_list_rest(c->space, part, axis, c->listed);
    } else {
        ends = equal_ends(&part->region[axis], equal_cuts(c, part, axis), c->end);
    }
    for (uint32_t i = 0; i < ends; i++) {
        conext2014_part_range(c->space, part->region, axis, c->end, ends, i, &region[axis]);
        if (conext2014_by_values(c, axis))
            region[axis] = conext2014_value_range(c->space, axis, c->end[i]);
        uint32_t boxes = conext2014_list_part(c->space, part->box, part->boxes, axis, region, c->listed);
        most = boxes > most ? boxes : most;
    }
    return most;
}

/* The first axis whose largest part has the fewest boxes; false when none can be cut. */
static bool least_max(struct cutter *c, const struct part *part, uint32_t *axis)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t a = 0; a < c->space->in->axes; a++) {
        uint32_t most = cuttable(c, part, a) ? largest_part(c, part, a) : UINT32_MAX;
        if (most < least) {
            least = most;
            *axis = a;
        }
    }
    return least < UINT32_MAX;
}

/* Ends of the parts of unequal cuts, into c->end, but for the last; their number, and the axis: where less
 * than two rules lie apart along the given one, that of most ends. */
static uint32_t unequal_ends(struct cutter *c, const struct part *part, uint32_t *axis)
{
    uint32_t ends = 0;
    apart(c, part, *axis, c->end, &ends);
    if (ends >= 2)
        return ends;
    ends = 0;
    most_ends(c, part, axis);
    if (cut_first(c, part, *axis) == *axis)
        distinct_ends(c, part, *axis, c->end, &ends);
    return ends;
}

/* The axis to cut, and the ends of its parts in c->end, or the values that get a part of their own; 0: it
 * cannot be cut. */
uint32_t conext2014_choose_cut(struct cutter *c, const struct part *part, uint32_t *axis)
{
    bool found = c->options->least_max ? least_max(c, part, axis)
                                       : most_apart(c, part, axis) || most_ends(c, part, axis);
    if (!found)
        return 0;
    if (c->options->unequal && !conext2014_by_values(c, *axis) && cut_first(c, part, *axis) == *axis) {
        uint32_t ends = unequal_ends(c, part, axis);
        if (ends >= 2 && !conext2014_by_values(c, *axis)) {
            c->end[ends++] = part->region[*axis].high;
            return ends;
        }
    }
    *axis = cut_first(c, part, *axis);
    if (conext2014_by_values(c, *axis))
        return named_values(c, part, *axis, c->end);
    uint32_t cuts = equal_cuts(c, part, *axis);
    return equal_ends(&part->region[*axis], cuts, c->end);
}

