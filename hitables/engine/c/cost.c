/* What reading a rule costs, and a test.
 *
 * Idea: a rule is read up to its first test that fails.  Which one that is follows from the
 * region in which the rule is read: a test that holds all over the region lets every packet by,
 * and the first one that does not is taken to fail.  At a point it is known.
 * Cost: one step per axis.
 * Invariant: without figures (NULL) every rule and every test costs 1.
 * Threading: none is needed; nothing is written.
 */
#include "cost.h"

struct tree_cost cost_of_test(const struct tree_boxes *in, uint32_t axis, u128 low, u128 high)
{
    static const struct tree_cost one = {1, 1};
    if (!in->costs)
        return one;
    uint32_t length = low < high;
    if (in->axis[axis].cut == TREE_CUT_PREFIX) {
        u128 free = low ^ high;
        uint64_t upper = (uint64_t)(free >> 64), lower = (uint64_t)free;
        unsigned free_bits = upper ? 128 - (unsigned)__builtin_clzll(upper) : lower ? 64 - (unsigned)__builtin_clzll(lower) : 0;
        length = in->axis[axis].bits - free_bits;
    }
    return in->costs->test[axis * TREE_LENGTHS + length];
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
        struct side side = box_side(space, box, a), along = region[a].side;
        if (side.low > along.low || side.high < along.high || (region[a].none && side.low))
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
    const float *missed = costs->missed + (size_t)rule * in->axes, *holds = costs->holds + (size_t)rule * in->axes;
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
