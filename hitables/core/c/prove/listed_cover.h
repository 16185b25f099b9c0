#ifndef HITABLES_LISTED_COVER_H
#define HITABLES_LISTED_COVER_H

#include "reorder.h"
#include "residual.h"

/* Whether the form of *rule* lists *which*. */
bool order_lists(const struct order *order, uint32_t rule, uint32_t which);
/* Whether the rules that the form of *rule* lists and that precede w decide, one or another, each packet that
 * matches both *rule* and w.  tests_of_rule, tests_of_w: guarded actions whose tests such packets pass; the
 * listed rules are deciders (reorder.c). */
bool listed_decide(const struct residual *r, const struct order *order, uint32_t rule, uint32_t w,
                   uint32_t tests_of_rule, uint32_t tests_of_w);

#endif
