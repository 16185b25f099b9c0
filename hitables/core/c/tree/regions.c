/* Coordinates as ranks, regions of space, and the lists of boxes that meet them.
 *
 * Idea: the ends of all boxes cut an axis into elementary intervals, and a box becomes a pair of their
 * numbers (ranks) per axis.  So builders compare 32-bit numbers, and 128-bit values appear only where a test
 * is written.
 * Cost: ranking sorts the ends of all boxes, per axis; other functions take a step per axis, box or hole.
 * Invariant: a region's ranks are those of all elementary intervals that it touches.
 * Threading: none; a space belongs to the thread that builds in it.
 */
#include "tree_internal.h"

#include <stdlib.h>
#include <string.h>

#include "sort.h"

static u128 axis_top(const struct tree_axis *axis)
{
    u128 top = axis->bits == 128 ? ~(u128)0 : ((u128)1 << axis->bits) - 1;
    return axis->optional ? top + 1 : top;
}

/* Ranks. */

static int by_value(const void *a, const void *b)
{
    u128 x = *(const u128 *)a, y = *(const u128 *)b;
    return (x > y) - (x < y);
}

/* The elementary interval that holds *value*. */
uint32_t line_rank(const struct line *line, u128 value)
{
    uint32_t low = 0, high = line->edges;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (line->edge[middle] <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Sort end[] and drop duplicates; the number of values left, 0 when memory is exhausted.  *narrow*: all of
 * them fit into 64 bits. */
static uint32_t distinct(struct scope *scratch, u128 *end, uint32_t count, bool narrow)
{
    if (narrow) {
        uint64_t *key = scope_take(scratch, 2 * (size_t)count * sizeof *key);
        if (!key)
            return 0;
        for (uint32_t i = 0; i < count; i++)
            key[i] = (uint64_t)end[i];
        sort_keys(key, key + count, count, 0);
        for (uint32_t i = 0; i < count; i++)
            end[i] = key[i];
        scope_drop(scratch, key);
    } else {
        qsort(end, count, sizeof *end, by_value);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!kept || end[i] != end[kept - 1])
            end[kept++] = end[i];
    return kept;
}

static enum tree_status line_rank_boxes(struct space *space, uint32_t axis)
{
    const struct tree_boxes *in = space->in;
    struct line *line = &space->line[axis];
    size_t room = 2 * (size_t)in->boxes + 2;
    u128 *end = room < UINT32_MAX ? arena_take(space->arena, room * sizeof *end) : NULL;
    if (!end)
        return TREE_NO_MEMORY;
    line->top = axis_top(&in->axis[axis]);
    uint32_t ends = 0;
    end[ends++] = 0;
    if (in->axis[axis].optional)
        end[ends++] = 1;
    u128 last_low = 0, last_high = line->top;
    for (uint32_t box = 0; box < in->boxes; box++) {
        size_t at = ((size_t)box * in->axes + axis) * 2;
        u128 low = wide_of(in->low + at), high = wide_of(in->high + at);
        if (low > high || high > line->top)
            return TREE_BAD_BOX;
        if (low == last_low && high == last_high)
            continue;
        last_low = low;
        last_high = high;
        end[ends++] = low;
        if (high < line->top)
            end[ends++] = high + 1;
    }
    line->edge = end;
    line->edges = distinct(&space->scratch, end, ends, line->top >> 64 == 0);
    if (!line->edges)
        return TREE_NO_MEMORY;
    struct rank_range ranks = {0, line->edges - 1};
    last_low = 0;
    last_high = line->top;
    for (uint32_t box = 0; box < in->boxes; box++) {
        size_t at = ((size_t)box * in->axes + axis) * 2;
        u128 low = wide_of(in->low + at), high = wide_of(in->high + at);
        if (low != last_low || high != last_high)
            ranks = (struct rank_range){line_rank(line, low), line_rank(line, high)};
        last_low = low;
        last_high = high;
        space->ranks[(size_t)box * in->axes + axis] = ranks;
    }
    return TREE_OK;
}

/* Check the input and rank its boxes: see tree_internal.h. */
enum tree_status space_rank(struct space *space)
{
    const struct tree_boxes *in = space->in;
    if (!in->axes || in->axes > TREE_AXES)
        return TREE_BAD_AXIS;
    for (uint32_t a = 0; a < in->axes; a++) {
        const struct tree_axis *axis = &in->axis[a];
        if (!axis->bits || axis->bits > 128 || axis->cut > TREE_CUT_SPELT_NAME)
            return TREE_BAD_AXIS;
        bool named = axis->cut == TREE_CUT_NAME || axis->cut == TREE_CUT_SPELT_NAME;
        if (named && (axis->optional || axis->bits % 8 || axis->bits < 16))
            return TREE_BAD_AXIS;
        if (axis->optional && (axis->bits == 128 || axis->cut == TREE_CUT_PREFIX))
            return TREE_BAD_AXIS;
        if (axis->needs >= (int)in->axes || axis->needs == (int)a)
            return TREE_BAD_AXIS;
    }
    for (uint32_t box = 0; box < in->boxes; box++)
        if (in->rule[box] < 0 || (uint32_t)in->rule[box] >= in->rules ||
            (box && in->rule[box] < in->rule[box - 1]))
            return TREE_BAD_BOX;
    space->ranks = arena_take(space->arena, (size_t)in->boxes * in->axes * sizeof *space->ranks);
    if (!space->ranks)
        return TREE_NO_MEMORY;
    for (uint32_t a = 0; a < in->axes; a++) {
        enum tree_status status = line_rank_boxes(space, a);
        if (status != TREE_OK)
            return status;
    }
    return TREE_OK;
}

/* Regions. */

void region_all(const struct space *space, struct range *region)
{
    for (uint32_t a = 0; a < space->in->axes; a++) {
        const struct line *line = &space->line[a];
        bool optional = space->in->axis[a].optional;
        region[a] = (struct range){optional, line->top, {optional, line->edges - 1}, optional};
    }
}

struct probe probe_of(const struct space *space, const struct range *region, uint32_t axis, u128 low,
                      u128 high)
{
    const struct line *line = &space->line[axis];
    const struct range *along = &region[axis];
    struct probe probe = {
        axis, low, high, {line_rank(line, low), line_rank(line, high)}, {0, UINT32_MAX}, along->none};
    if (low > along->low)
        probe.inner.low = probe.touch.low + (line->edge[probe.touch.low] < low);
    if (high < along->high) {
        /* An interval that ends above high is not inner; where it is the first of all, none is. */
        if (line_end(line, probe.touch.high) <= high)
            probe.inner.high = probe.touch.high;
        else if (probe.touch.high > 0)
            probe.inner.high = probe.touch.high - 1;
        else
            probe.inner = (struct rank_range){1, 0};
    }
    return probe;
}

static void range_rank(const struct space *space, uint32_t axis, struct range *range)
{
    range->ranks = (struct rank_range){line_rank(&space->line[axis], range->low),
                                       line_rank(&space->line[axis], range->high)};
}

void region_inside(const struct space *space, const struct range *from, const struct probe *probe,
                   struct range *to)
{
    if (to != from)
        memcpy(to, from, space->in->axes * sizeof *to);
    struct range *along = &to[probe->axis];
    if (probe->low > along->low)
        along->low = probe->low;
    if (probe->high < along->high)
        along->high = probe->high;
    along->none = false;
    range_rank(space, probe->axis, along);
}

void region_outside(const struct space *space, const struct range *from, const struct probe *probe,
                    struct range *to)
{
    if (to != from)
        memcpy(to, from, space->in->axes * sizeof *to);
    struct range *along = &to[probe->axis];
    if (probe->low <= along->low && probe->high < along->high)
        along->low = probe->high + 1;
    else if (probe->high >= along->high && probe->low > along->low)
        along->high = probe->low - 1;
    range_rank(space, probe->axis, along);
}

/* The interval that a test removes from the region of the packets that fail it; NULL when memory is
 * exhausted. */
const struct hole *hole_new(struct space *space, const struct hole *next, const struct probe *probe)
{
    struct hole *hole = arena_take(space->arena, sizeof *hole);
    if (hole)
        *hole = (struct hole){next, probe->axis, probe->low, probe->high};
    return hole;
}

/* Move the ends of a range past holes.  False: no value is left in it. */
bool range_trim(const struct space *space, const struct hole *holes, uint32_t axis, struct range *along)
{
    bool again = true;
    while (again) {
        again = false;
        for (const struct hole *hole = holes; hole; hole = hole->next) {
            if (hole->axis != axis)
                continue;
            bool low = hole->low <= along->low && hole->high >= along->low;
            bool high = hole->low <= along->high && hole->high >= along->high;
            if (low && high)
                return false;
            if (low)
                along->low = hole->high + 1;
            if (high)
                along->high = hole->low - 1;
            again |= low || high;
        }
    }
    range_rank(space, axis, along);
    return true;
}

bool box_covers(const struct space *space, uint32_t box, const struct range *region)
{
    for (uint32_t a = 0; a < space->in->axes; a++) {
        struct rank_range ranks = box_ranks(space, box, a);
        if (ranks.low > region[a].ranks.low || ranks.high < region[a].ranks.high ||
            (region[a].none && ranks.low))
            return false;
    }
    return true;
}

/* The boxes of the list up to the end of the first final rule that covers the region: no rule behind it is
 * read. */
uint32_t list_cut(const struct space *space, const uint32_t *box, uint32_t boxes, const struct range *region)
{
    const struct tree_boxes *in = space->in;
    for (uint32_t i = 0; i < boxes; i++) {
        int32_t rule = in->rule[box[i]];
        if (in->final[rule] && box_covers(space, box[i], region)) {
            while (i < boxes && in->rule[box[i]] == rule)
                i++;
            return i;
        }
    }
    return boxes;
}

/* Whether the axis may be tested in the region. */
bool axis_usable(const struct space *space, const struct range *region, uint32_t a)
{
    const struct tree_axis *axis = &space->in->axis[a];
    if (axis->cut == TREE_CUT_NONE)
        return false;
    if (axis->needs < 0)
        return true;
    const struct range *needs = &region[axis->needs];
    if (needs->none || needs->low != needs->high)
        return false;
    for (uint32_t i = 0; i < axis->needed_count; i++)
        if (needs->low == axis->needed[i])
            return true;
    return false;
}

/* Whether one rule can test an axis of names for low..high: one name, or a prefix of names and "+".  A name
 * leaves the last byte to the 0 that ends it, and "+" takes one byte more.  A name that ends with "+" would
 * be read as a prefix. */
static bool names_can_test(const struct tree_axis *axis, u128 low, u128 high)
{
    unsigned bytes = axis->bits / 8, least = low == high ? 1 : 2, padding = 0;
    while (padding < bytes && !(low >> 8 * padding & 0xff))
        padding++;
    if (padding < least || padding == bytes)
        return false;
    for (unsigned at = padding; at < bytes; at++)
        if (!(low >> 8 * at & 0xff))
            return false;
    if (low == high)
        return (low >> 8 * padding & 0xff) != '+';
    return high - low == ((u128)1 << 8 * padding) - 1;
}

/* Whether one rule can test the axis for low..high; of TREE_CUT_PREFIX callers do not ask. */
bool axis_can_test(const struct tree_axis *axis, u128 low, u128 high)
{
    u128 size = high - low, left = size;
    /* All values: only a packet that lacks the field fails that test.  nf_tables reads a later fragment's
     * ports natively, but `--dport 0:65535` through xtables, which differs from the rules of the list. */
    if (axis->optional && (!low || (low == 1 && high == axis_top(axis))))
        return false;
    if (axis->cut == TREE_CUT_POINT)
        return !size && low > axis->optional;
    if (axis->cut == TREE_CUT_NAME || axis->cut == TREE_CUT_SPELT_NAME)
        return names_can_test(axis, low, high);
    if (axis->cut != TREE_CUT_SPELT)
        return true;
    while ((left & 0xff) == 0xff)
        left >>= 8;
    return !left && !((low - axis->optional) & size);
}
