/* The parts of a cut in the trees of "Trees in the List": their regions, and which boxes they list.
 *
 * Idea: a part lists the boxes that meet it, in list order, but for those that an earlier final box hides
 * there.
 * Cost: the square of the boxes that a part lists.
 * Invariant: the parts of a cut tile its region; of equal ends only the last part keeps "none".
 * Threading: none.
 */
#include "conext2014.h"

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

/* Add the box to listed[count], unless it is hidden in the region; the new number. */
static uint32_t list_box(const struct space *space, uint32_t box, const struct range *region,
                         uint32_t *listed, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (hides(space, listed[i], box, region))
            return count;
    listed[count] = box;
    return count + 1;
}

/* The boxes that meet the region and are not hidden there, into listed[]; their number. */
uint32_t conext2014_list_part(const struct space *space, const uint32_t *box, uint32_t boxes, uint32_t axis,
                              const struct range *region, uint32_t *listed)
{
    uint32_t count = 0;
    const struct range *along = &region[axis];
    for (uint32_t i = 0; i < boxes; i++) {
        struct rank_range ranks = box_ranks(space, box[i], axis);
        if ((ranks.low > along->ranks.high || ranks.high < along->ranks.low) && !(along->none && !ranks.low))
            continue;
        count = list_box(space, box[i], region, listed, count);
    }
    return count;
}

/* Whether the box names one value of the axis that a rule can test; 0 is read as any value. */
bool conext2014_names_value(const struct space *space, uint32_t box, uint32_t axis)
{
    const struct line *line = &space->line[axis];
    struct rank_range ranks = box_ranks(space, box, axis);
    return ranks.low == ranks.high && line->edge[ranks.low] == line_end(line, ranks.low) &&
           line->edge[ranks.low] > space->in->axis[axis].optional;
}

/* The boxes of the rest, where values that boxes name are cut off: those that name none, into listed[]. */
uint32_t conext2014_list_rest(const struct space *space, const struct part *part, uint32_t axis,
                              uint32_t *listed)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < part->boxes; i++)
        if (!conext2014_names_value(space, part->box[i], axis))
            count = list_box(space, part->box[i], part->region, listed, count);
    return count;
}

/* The region's part number *i* along the axis; only the last one keeps "none". */
void conext2014_part_range(const struct space *space, const struct range *from, uint32_t axis,
                           const u128 *end, uint32_t ends, uint32_t i, struct range *along)
{
    along->low = i ? end[i - 1] + 1 : from[axis].low;
    along->high = end[i];
    along->ranks = (struct rank_range){line_rank(&space->line[axis], along->low),
                                       line_rank(&space->line[axis], along->high)};
    along->none = from[axis].none && i + 1 == ends;
}

/* One value. */
struct range conext2014_value_range(const struct space *space, uint32_t axis, u128 value)
{
    uint32_t rank = line_rank(&space->line[axis], value);
    return (struct range){value, value, {rank, rank}, false};
}

