/* How a node may be split: into equal parts, or by a test that comes before them.
 *
 * Idea: builders of grids (hicuts.c, hypercuts.c) choose among these.  Values that are no intervals for a
 * grid (protocols, interfaces), and values that another axis requires to be known, are tested one by one
 * first.
 * Cost: a sort of the node's boxes per axis.
 * Invariant: the parts of a cut hold all of the region along its axis.
 * Threading: none; scratch belongs to the growth.
 */
#include "cut_grid.h"

#include "sort.h"

uint32_t floor_log2(uint32_t value)
{
    return value ? 31 - (uint32_t)__builtin_clz(value) : 0;
}

/* At most *parts* (a power of two) equal parts that hold the region; fewer where it has fewer values. */
struct cut cut_into(const struct space *space, const struct range *region, uint32_t axis, uint32_t parts)
{
    const struct range *along = &region[axis];
    struct cut cut = {axis, 1, along->low, 127};
    if (parts < 2)
        return cut;
    cut.shift = 0;
    if (space->in->axis[axis].cut == TREE_CUT_PREFIX) {
        u128 below = prefix_below(along->low, along->high);
        uint32_t bits = 0, wanted = floor_log2(parts);
        while (bits < 128 && below >> bits)
            bits++;
        wanted = wanted < bits ? wanted : bits;
        cut.low = along->low & ~below;
        cut.shift = bits - wanted;
        cut.parts = 1u << wanted;
    } else {
        u128 extent = along->high - along->low;
        while (cut.shift < 127 && extent >> cut.shift >= parts)
            cut.shift++;
        cut.parts = (uint32_t)(extent >> cut.shift) + 1;
    }
    return cut;
}

/* The first and the last part that a box of the region with this side meets; "none" is in the last. */
struct rank_range cut_span(const struct space *space, const struct cut *cut, const struct range *along,
                           struct rank_range ranks)
{
    const struct line *line = &space->line[cut->axis];
    u128 low = line->edge[ranks.low], high = line_end(line, ranks.high);
    bool none = along->none && !ranks.low;
    if (low < along->low)
        low = along->low;
    if (high > along->high)
        high = along->high;
    struct rank_range span = {cut->parts - 1, cut->parts - 1};
    if (low <= high && cut->parts > 1) {
        span.low = (uint32_t)((low - cut->low) >> cut->shift);
        if (!none)
            span.high = (uint32_t)((high - cut->low) >> cut->shift);
    }
    return span;
}

static bool spans(struct rank_range ranks, const struct range *along)
{
    return ranks.low <= along->ranks.low && ranks.high >= along->ranks.high && !(along->none && ranks.low);
}

/* How many intervals the boxes have along the axis, spanning ones not counted. */
uint32_t count_distinct(struct grid_growth *p, const struct grid_node *node, uint32_t axis)
{
    const struct range *along = &node->region[axis];
    uint32_t keys = 0, count = 0;
    for (uint32_t i = 0; i < node->boxes; i++) {
        struct rank_range ranks = box_ranks(p->space, node->box[i], axis);
        if (!spans(ranks, along))
            p->key[keys++] = (uint64_t)ranks.low << 32 | ranks.high;
    }
    sort_keys(p->key, p->spare, keys, 0);
    for (uint32_t i = 0; i < keys; i++)
        count += !i || p->key[i] != p->key[i - 1];
    return count;
}

/* Tests. */

/* Whether some box lies inside the interval alone, so that the list of packets that fail the test is shorter,
 * and the list of those that pass it is not empty. */
static bool helps(const struct space *space, const struct grid_node *node, const struct probe *probe)
{
    uint32_t in = 0, out = 0;
    for (uint32_t i = 0; i < node->boxes; i++) {
        struct rank_range ranks = box_ranks(space, node->box[i], probe->axis);
        in += probe_meets(probe, ranks);
        out += probe_is_left(probe, ranks);
    }
    return out < node->boxes && in > 0;
}

/* The most frequent interval that boxes spell along the axis and a test can spell. */
static bool most_spelt(struct grid_growth *p, const struct grid_node *node, uint32_t axis,
                       struct probe *probe)
{
    const struct line *line = &p->space->line[axis];
    uint32_t keys = 0, most = 0;
    for (uint32_t i = 0; i < node->boxes; i++) {
        struct rank_range ranks = box_ranks(p->space, node->box[i], axis);
        if (!spans(ranks, &node->region[axis]))
            p->key[keys++] = (uint64_t)ranks.low << 32 | ranks.high;
    }
    sort_keys(p->key, p->spare, keys, 0);
    for (uint32_t i = 0, next; i < keys; i = next) {
        for (next = i; next < keys && p->key[next] == p->key[i];)
            next++;
        u128 low = line->edge[p->key[i] >> 32], high = line_end(line, (uint32_t)p->key[i]);
        if (next - i <= most || !axis_can_test(&p->space->in->axis[axis], low, high))
            continue;
        struct probe tried = probe_of(p->space, node->region, axis, low, high);
        if (helps(p->space, node, &tried)) {
            most = next - i;
            *probe = tried;
        }
    }
    return most > 0;
}

/* What the axis needs to be known, tested for the value that most boxes ask for. */
static bool most_needed(const struct space *space, const struct grid_node *node, uint32_t axis,
                        struct probe *probe)
{
    const struct tree_axis *wanted = &space->in->axis[axis];
    uint32_t needs = (uint32_t)wanted->needs, most = 0;
    if (space->in->axis[needs].cut == TREE_CUT_NONE)
        return false;
    for (uint32_t v = 0; v < wanted->needed_count; v++) {
        u128 value = wanted->needed[v];
        const struct range *along = &node->region[needs];
        if (value < along->low || value > along->high)
            continue;
        struct probe tried = probe_of(space, node->region, needs, value, value);
        uint32_t only = 0;
        for (uint32_t i = 0; i < node->boxes; i++)
            only += !probe_is_left(&tried, box_ranks(space, node->box[i], needs));
        if (only > most) {
            most = only;
            *probe = tried;
        }
    }
    return most > 0;
}

bool can_grid(const struct grid_growth *p, const struct grid_node *node, uint32_t axis)
{
    enum tree_cut cut = p->space->in->axis[axis].cut;
    return (cut == TREE_CUT_PREFIX || cut == TREE_CUT_RANGE) && axis_usable(p->space, node->region, axis);
}

/* Plan one test, which takes all points outside the least prefix that holds the boxes narrower than the
 * region. */
bool plan_narrows(const struct grid_growth *p, const struct grid_node *node, uint32_t axis,
                  struct grid_plan *plan)
{
    const struct line *line = &p->space->line[axis];
    const struct range *along = &node->region[axis];
    struct rank_range hull = {UINT32_MAX, 0};
    if (p->space->in->axis[axis].cut != TREE_CUT_PREFIX)
        return false;
    for (uint32_t i = 0; i < node->boxes; i++) {
        struct rank_range ranks = box_ranks(p->space, node->box[i], axis);
        if (spans(ranks, along))
            continue;
        hull.low = ranks.low < hull.low ? ranks.low : hull.low;
        hull.high = ranks.high > hull.high ? ranks.high : hull.high;
    }
    u128 low = line->edge[hull.low], high = line_end(line, hull.high);
    low = low > along->low ? low : along->low;
    high = high < along->high ? high : along->high;
    u128 below = prefix_below(low, high);
    low &= ~below;
    if (low <= along->low && (low | below) >= along->high)
        return false;
    plan->kind = PLAN_TEST;
    plan->probe = probe_of(p->space, node->region, axis, low, low | below);
    return true;
}

/* Where the axis cannot be cut into parts: the test that comes first. */
bool plan_test(struct grid_growth *p, const struct grid_node *node, uint32_t axis, struct grid_plan *plan)
{
    bool usable = axis_usable(p->space, node->region, axis);
    bool chosen =
        usable ? most_spelt(p, node, axis, &plan->probe) : most_needed(p->space, node, axis, &plan->probe);
    if (chosen)
        plan->kind = PLAN_TEST;
    return chosen;
}
