/* Counted memory that can be given back piece by piece.
 *
 * Cost: one call of the system's allocator each; pieces of a cache line and more start on
 * one.  Invariant: bytes is the sum of the sizes that were taken and not
 * given back, and never exceeds the limit; what a budget under another holds is
 * counted, and limited, there too.  Threading: any thread may take and give
 * back at any time, so a structure may be built beside one that is searched.
 */
#define _GNU_SOURCE
#include "budget.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64 };

struct budget {
    atomic_size_t bytes, peak;
    size_t limit;
    struct budget *above;
};

/* An empty budget that will not hold more than limit bytes (0: no limit), or NULL. */
struct budget *budget_new(size_t limit)
{
    struct budget *budget = calloc(1, sizeof *budget);
    if (budget)
        budget->limit = limit;
    return budget;
}

/* A budget of its own whose pieces count in *above* as well, which outlives it. */
struct budget *budget_under(struct budget *above)
{
    struct budget *budget = budget_new(0);
    if (budget)
        budget->above = above;
    return budget;
}

/* Everything must have been given back. */
void budget_free(struct budget *budget)
{
    assert(!budget || !atomic_load(&budget->bytes)); /* else its owner forgot a piece */
    free(budget);
}

static void refund(struct budget *budget, size_t size)
{
    for (; budget; budget = budget->above)
        atomic_fetch_sub(&budget->bytes, size);
}

static int charge(struct budget *budget, size_t size)
{
    if (budget->above && !charge(budget->above, size))
        return 0;
    /* Not added and taken back: another thread would see too much, and be refused what fits. */
    size_t held = atomic_load(&budget->bytes), bytes;
    do {
        bytes = held + size;
        if (bytes < size || (budget->limit && bytes > budget->limit)) {
            if (budget->above)
                refund(budget->above, size);
            return 0;
        }
    } while (!atomic_compare_exchange_weak(&budget->bytes, &held, bytes));
    size_t peak = atomic_load(&budget->peak);
    while (peak < bytes && !atomic_compare_exchange_weak(&budget->peak, &peak, bytes))
        ;
    return 1;
}

/* size zeroed bytes, aligned to a cache line if they fill one, else for any type; NULL when memory or
 * the limit is exhausted, or nothing is asked for. */
void *budget_take(struct budget *budget, size_t size)
{
    if (!size || size > SIZE_MAX / 2 || !charge(budget, size))
        return NULL;
    void *taken = NULL;
    if (size < LINE)
        taken = calloc(1, size);
    else if (posix_memalign(&taken, LINE, size))
        taken = NULL;
    else
        memset(taken, 0, size);
    if (!taken)
        refund(budget, size);
    return taken;
}

/* *size* is what was asked for; NULL is no piece. */
void budget_give(struct budget *budget, void *taken, size_t size)
{
    if (!taken)
        return;
    refund(budget, size);
    free(taken);
}

/* The piece in another size, what is new zeroed; NULL leaves the piece as it was.  NULL of size 0 is
 * a piece to begin with. */
void *budget_resize(struct budget *budget, void *taken, size_t from, size_t to)
{
    void *moved = budget_take(budget, to);
    if (moved && taken)
        memcpy(moved, taken, from < to ? from : to);
    if (moved)
        budget_give(budget, taken, from);
    return moved;
}

size_t budget_bytes(const struct budget *budget)
{
    return atomic_load(&budget->bytes);
}

/* The most bytes that were held at a time. */
size_t budget_peak(const struct budget *budget)
{
    return atomic_load(&budget->peak);
}
