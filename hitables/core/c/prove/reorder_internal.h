#ifndef HITABLES_REORDER_INTERNAL_H
#define HITABLES_REORDER_INTERNAL_H

#include "reorder.h"
#include "residual.h"

/* Whether the order decides as the list does; a status of prove.h.  The rules are read by now. */
int reorder_holds(struct residual *r, const struct order *order, const volatile int *stopped);

#endif
