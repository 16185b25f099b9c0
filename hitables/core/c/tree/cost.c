/* What reading a rule costs, and a test.
 *
 * Idea: a rule is read up to its first test that fails.  Which one that is follows from the region in which
 * the rule is read: a test that holds all over the region lets every packet by, and the first one that does
 * not is taken to fail.  At a point it is known.
 * Cost: one step per axis.
 * Invariant: without figures (NULL) every rule and every test costs 1.
 * Threading: none is needed; nothing is written.
 */
#include "cost.h"

static const struct tree_cost *test_at(const struct tree_boxes *in, uint32_t axis, u128 low, u128 high)
{
    uint32_t length = low < high;
    if (in->axis[axis].cut == TREE_CUT_PREFIX) {
        u128 free = low ^ high;
        uint64_t upper = (uint64_t)(free >> 64), lower = (uint64_t)free;
        length = in->axis[axis].bits;
        if (upper)
            length -= 128 - (unsigned)__builtin_clzll(upper);
        else if (lower)
            length -= 64 - (unsigned)__builtin_clzll(lower);
    }
    return &in->costs->test[axis * TREE_LENGTHS + length];
}

bool cost_is_halved(const struct tree_boxes *in, uint32_t axis, u128 low, u128 high, bool negated)
{
    if (!in->costs || !in->costs->halves || in->axis[axis].cut != TREE_CUT_PREFIX || negated || low == high)
        return false;
    const struct tree_cost *whole = test_at(in, axis, low, high), *half = whole + 1;
    return 2 * half->missed < whole->missed && half->missed + 2 * half->taken < 2 * whole->taken;
}

struct tree_cost cost_of_test(const struct tree_boxes *in, uint32_t axis, u128 low, u128 high, bool negated)
{
    static const struct tree_cost one = {1, 1};
    if (!in->costs)
        return one;
    const struct tree_cost *test = test_at(in, axis, low, high);
    if (!cost_is_halved(in, axis, low, high, negated))
        return *test;
    /* Half of the packets that are taken are so by the second rule. */
    return (struct tree_cost){2 * test[1].missed, test[1].taken + test[1].missed / 2};
}

double cost_missed(const struct space *space, uint32_t box, const struct range *region)
{
    const struct tree_boxes *in = space->in;
    const struct tree_costs *costs = in->costs;
    if (!costs)
        return 1;
    size_t rule = (size_t)in->rule[box];
    const float *missed = costs->missed + rule * in->axes, *holds = costs->holds + rule * in->axes;
    double spent = 0;
    for (uint32_t i = 0; i < in->axes; i++) {
        uint32_t a = costs->order[i];
        if (missed[a] <= 0)
            continue;
        struct rank_range ranks = box_ranks(space, box, a), along = region[a].ranks;
        if (ranks.low > along.low || ranks.high < along.high || (region[a].none && ranks.low))
            return spent + missed[a];
        spent += holds[a];
    }
    return spent + costs->taken[rule];
}

double cost_at(const struct tree_boxes *in, uint32_t rule, uint32_t box, const uint64_t *point, bool taken)
{
    const struct tree_costs *costs = in->costs;
    if (!costs)
        return 1;
    const float *missed = costs->missed + (size_t)rule * in->axes,
                *holds = costs->holds + (size_t)rule * in->axes;
    const uint64_t *low = in->low + (size_t)box * in->axes * 2, *high = in->high + (size_t)box * in->axes * 2;
    double spent = 0;
    for (uint32_t i = 0; i < in->axes; i++) {
        uint32_t a = costs->order[i];
        if (missed[a] <= 0)
            continue;
        if (!taken && !words_hold(low + 2 * a, high + 2 * a, point + 2 * a))
            return spent + missed[a];
        spent += holds[a];
    }
    return spent;
}
