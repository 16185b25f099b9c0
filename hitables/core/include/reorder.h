#ifndef HITABLES_REORDER_H
#define HITABLES_REORDER_H
#include <stdint.h>

/* A list of rules that is read in another order, by groups: the input of prover_ordered.  See reorder.c.
 *
 * Rules are numbered by group and, within each group, in list order.  A *form* is what is read in front of
 * a rule, at least for the packets that it matches. */
enum order_place {
    ORDER_ONCE, /* read once, in the chain that packets enter or behind it by -g */
    ORDER_CALLED, /* read once, in a chain that is entered by -j */
    ORDER_SEARCHED, /* read in chains that forms enter by -j, too */
};
struct order {
    uint32_t groups, rules, proved_chains;
    const uint32_t *group_start;           /* [groups + 1] first rule of each group */
    const uint32_t *place;                 /* [rules] place in the list; ascending in each group */
    const uint32_t *own, *form; /* [rules] rule r is own[r] of the input, its form the rules from form[r]
                                 * up to it */
    const uint32_t *read_in; /* [rules] enum order_place */
    const uint32_t *asked; /* [rules][groups] how many rules of each group its form searches */
    const uint32_t *proved; /* [proved_chains] chains that must be proved equal to their partners */
    const uint32_t *listed_start, *listed; /* [rules + 1] into listed: rules that its form lists, ascending */
};

#endif
