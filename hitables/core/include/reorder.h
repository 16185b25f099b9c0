#ifndef HITABLES_ORDER_H
#define HITABLES_ORDER_H
#include <stdint.h>

/* A list of rules in another order: see order.c.
 *
 * Rules are numbered by group and, in each group, as they stand in the list. */
struct order {
    uint32_t groups, rules;
    const uint32_t *group_start; /* groups + 1 of them */
    const uint32_t *place;       /* in the list, by rule: ascending in each group */
    const uint32_t *form;        /* rules + 1: rule r is form[r + 1] - 1 of the input; what stands before it, for it, from form[r] on */
    const uint32_t *asked;       /* rules times groups: of each group so many rules are asked before the rule */
    const uint32_t *listed_start, *listed; /* rules that its forms list, ascending */
};

#endif
