#ifndef HITABLES_REORDER_INTERNAL_H
#define HITABLES_REORDER_INTERNAL_H

#include "reorder.h"
#include "residual.h"

/* Whether the grouped lists decide every packet of the class as the one list does: PROVE_EQUAL,
 * PROVE_DIFFER (not shown), PROVE_STOPPED or PROVE_NO_MEMORY.  The class has read all rules already.
 * *stopped may be set from any thread. */
enum prove_status reorder_holds(struct residual *r, const struct order *order, const volatile bool *stopped);

#endif
