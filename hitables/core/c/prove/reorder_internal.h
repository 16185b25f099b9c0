#ifndef HITABLES_ORDER_CORE_H
#define HITABLES_ORDER_CORE_H

#include "reorder.h"
#include "residual.h"

/* Whether the order decides as the list does; a status of prove.h.  The rules are read by now. */
int order_holds(struct residue *r, const struct order *order, const volatile int *stopped);

#endif
