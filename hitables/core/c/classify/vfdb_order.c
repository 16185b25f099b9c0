/* Positions of rules, by an order-maintenance list over their priorities.
 *
 * Idea (Bender, Cole, Demaine, Farach-Colton and Zito, "Two simplified algorithms for maintaining order in a
 * list"): priorities are labels.  A rule that goes in between two others takes the label in the middle; where
 * none is free, the rules of the smallest surrounding range of labels that is sparse enough are spread evenly
 * over it.  A range of 2^j labels is sparse enough with 2^(26j/31) of them used.
 * Cost: an insertion moves O(log n) labels, amortised, and O(n) words of the sorted array; the position of a
 * label takes O(log n), that of a list numbered from 0 O(1).
 * Invariant: the array rises strictly.
 * Threading: none of its own.
 *
 * At an end, labels are taken a step apart, so that rules which are added one after another seldom use up the
 * labels there are.
 */
#include "vfdb_order.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "search.h"
#include "vfdb_list.h"

enum { BITS = 31, RULE_BITS = 26, STEP = 1024 };

struct vfdb_order {
    struct budget *budget;
    uint32_t count, room;
    uint32_t *priority; /* [room] */
};

struct vfdb_order *vfdb_order_new(struct budget *budget, const struct vfdb_list *list)
{
    uint32_t *at, boxes = vfdb_list_boxes(list);
    struct vfdb_order *order = budget_take(budget, sizeof *order);
    if (!order)
        return NULL;
    *order = (struct vfdb_order){.budget = budget, .room = vfdb_list_count(list) + 16};
    order->priority = budget_take(budget, order->room * sizeof *order->priority);
    if (!order->priority || vfdb_list_sorted(list, budget, &at)) {
        vfdb_order_free(order);
        return NULL;
    }
    for (uint32_t i = 0; i < boxes; i++) {
        uint32_t priority = vfdb_list_priority(list, at[i]);
        if (!order->count || order->priority[order->count - 1] != priority)
            order->priority[order->count++] = priority;
    }
    budget_give(budget, at, boxes * sizeof *at);
    return order;
}

void vfdb_order_free(struct vfdb_order *order)
{
    if (!order)
        return;
    budget_give(order->budget, order->priority, order->room * sizeof *order->priority);
    budget_give(order->budget, order, sizeof *order);
}

bool vfdb_order_reserve(struct vfdb_order *order)
{
    if (order->count < order->room)
        return true;
    size_t bytes = order->room * sizeof *order->priority;
    uint32_t *wider = budget_resize(order->budget, order->priority, bytes, 2 * bytes);
    if (!wider)
        return false;
    order->priority = wider;
    order->room *= 2;
    return true;
}

static uint32_t place_of(const struct vfdb_order *order, uint32_t priority)
{
    return lower_bound(order->priority, 1, order->count, priority);
}

void vfdb_order_insert(struct vfdb_order *order, uint32_t priority)
{
    uint32_t at = place_of(order, priority);
    memmove(order->priority + at + 1, order->priority + at, (order->count - at) * sizeof *order->priority);
    order->priority[at] = priority;
    order->count++;
}

void vfdb_order_remove(struct vfdb_order *order, uint32_t priority)
{
    uint32_t at = place_of(order, priority);
    assert(at < order->count && order->priority[at] == priority);
    order->count--;
    memmove(order->priority + at, order->priority + at + 1, (order->count - at) * sizeof *order->priority);
}

void vfdb_order_rename(struct vfdb_order *order, uint32_t position, uint32_t priority)
{
    order->priority[position] = priority;
}

uint32_t vfdb_order_count(const struct vfdb_order *order)
{
    return order->count;
}

uint32_t vfdb_order_priority(const struct vfdb_order *order, uint32_t position)
{
    return order->priority[position];
}

uint32_t vfdb_order_position(const struct vfdb_order *order, uint32_t priority)
{
    if (priority < order->count && order->priority[priority] == priority)
        return priority;
    return place_of(order, priority);
}

/* ---- Labels ---- */

bool vfdb_order_between(const struct vfdb_order *order, uint32_t position, uint32_t *priority)
{
    int64_t low = position ? (int64_t)order->priority[position - 1] : -1;
    int64_t high = position < order->count ? (int64_t)order->priority[position] : ORDER_TOP;
    high = high < ORDER_TOP ? high : ORDER_TOP;
    int64_t half = (high - low) / 2;
    if (half < 1)
        return false;
    if (!order->count || (position && position < order->count) || half <= STEP)
        *priority = (uint32_t)(low + half);
    else
        *priority = (uint32_t)(position ? low + STEP : high - STEP);
    return true;
}

bool vfdb_order_spread(const struct vfdb_order *order, uint32_t position, bool whole,
                       struct order_spread *spread)
{
    uint32_t anchor = order->priority[position < order->count ? position : position - 1];
    for (uint32_t bits = whole || anchor >= ORDER_TOP ? BITS : 1; bits < BITS; bits++) {
        uint32_t low = anchor >> bits << bits, end = low + (1U << bits);
        end = end < ORDER_TOP ? end : ORDER_TOP;
        uint32_t first = place_of(order, low), after = place_of(order, end), count = after - first;
        if (count + 1 > exp2((double)RULE_BITS / BITS * bits) || count + 1 > end - low)
            continue;
        assert(first <= position && position <= after);
        *spread = (struct order_spread){first, count, position, low, end - low};
        return true;
    }
    *spread = (struct order_spread){0, order->count, position, 0, ORDER_TOP};
    return order->count < 1U << RULE_BITS;
}

uint32_t vfdb_order_spread_priority(const struct order_spread *spread, uint32_t position)
{
    uint64_t slot = position - spread->first + (position >= spread->gap), slots = spread->count + UINT64_C(1);
    return (uint32_t)(spread->low + (2 * slot + 1) * spread->size / (2 * slots));
}
