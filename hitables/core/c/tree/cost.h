#ifndef HITABLES_COST_H
#define HITABLES_COST_H
#include "tree_internal.h"

/* What a test of low..high costs a packet that it lets by, and one that it takes. */
struct tree_cost cost_of_test(const struct tree_boxes *in, uint32_t axis, u128 low, u128 high, bool negated);

/* Whether low..high is to be tested by two rules, one for each half, as that costs less: nft loads a
 * prefix of 24 bits so slowly that two of 25 are read in a quarter of the time. */
bool cost_is_halved(const struct tree_boxes *in, uint32_t axis, u128 low, u128 high, bool negated);

/* What the rule of *box* costs a packet of the region that does not match it. */
double cost_missed(const struct space *space, uint32_t box, const struct range *region);

/* What the tests of a rule, whose first box is *box*, cost at the point; *taken*: all of them hold. */
double cost_at(const struct tree_boxes *in, uint32_t rule, uint32_t box, const uint64_t *point, bool taken);

static inline bool words_hold(const uint64_t *low, const uint64_t *high, const uint64_t *word)
{
    return (word[0] > low[0] || (word[0] == low[0] && word[1] >= low[1])) &&
           (word[0] < high[0] || (word[0] == high[0] && word[1] <= high[1]));
}

#endif
