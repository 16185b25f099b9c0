#ifndef HITABLES_VFDB_ORDER_H
#define HITABLES_VFDB_ORDER_H
#include "budget.h"
#include "vfdb.h"

/* The priorities of all rules in order, so that a rule has a position, counted from 0. */
struct vfdb_order;
struct vfdb_list;

/* A priority below which all priorities stay: answers are signed numbers to some callers. */
enum order_bounds { ORDER_TOP = 0x7FFFFFFF };

/* Rules *first* to *first + count* (excluded) get new priorities, evenly spread, as if one rule more stood
 * before rule *gap*. */
struct order_spread {
    uint32_t first, count, gap;
    uint64_t low, size; /* the range of priorities over which they are spread */
};

/* The order of the rules in the list, or NULL without memory. */
struct vfdb_order *vfdb_order_new(struct budget *budget, const struct vfdb_list *list);
void vfdb_order_free(struct vfdb_order *order);
/* Room for one more; false without memory. */
bool vfdb_order_reserve(struct vfdb_order *order);
/* A priority that is not there (there is room), one that is there, one that becomes another between the same
 * neighbours. */
void vfdb_order_insert(struct vfdb_order *order, uint32_t priority);
void vfdb_order_remove(struct vfdb_order *order, uint32_t priority);
void vfdb_order_rename(struct vfdb_order *order, uint32_t position, uint32_t priority);

uint32_t vfdb_order_count(const struct vfdb_order *order);
uint32_t vfdb_order_priority(const struct vfdb_order *order, uint32_t position);
/* The position of a priority that is there. */
uint32_t vfdb_order_position(const struct vfdb_order *order, uint32_t priority);

/* A priority between those of rules position - 1 and position; false: there is none. */
bool vfdb_order_between(const struct vfdb_order *order, uint32_t position, uint32_t *priority);
/* The fewest rules around a position to be spread so that a gap is there, or (*whole*) all rules; false:
 * there are too many rules. */
bool vfdb_order_spread(const struct vfdb_order *order, uint32_t position, bool whole,
                       struct order_spread *spread);
/* The new priority of rule *position* of a spread. */
uint32_t vfdb_order_spread_priority(const struct order_spread *spread, uint32_t position);

#endif
