/* Counted memory that can be given back piece by piece.
 *
 * Cost: one call of the system's allocator each; pieces of a cache line and more start on
 * one.  Invariant: bytes is the sum of the sizes that were taken and not
 * given back, and never exceeds the limit; what a ledger under another holds is
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

struct ledger {
    atomic_size_t bytes, peak;
    size_t limit;
    struct ledger *above;
};

/* An empty ledger that will not hold more than limit bytes (0: no limit), or NULL. */
struct ledger *ledger_new(size_t limit)
{
    struct ledger *ledger = calloc(1, sizeof *ledger);
    if (ledger)
        ledger->limit = limit;
    return ledger;
}

/* A ledger of its own whose pieces count in *above* as well, which outlives it. */
struct ledger *ledger_under(struct ledger *above)
{
    struct ledger *ledger = ledger_new(0);
    if (ledger)
        ledger->above = above;
    return ledger;
}

/* Everything must have been given back. */
void ledger_free(struct ledger *ledger)
{
    assert(!ledger || !atomic_load(&ledger->bytes)); /* else its owner forgot a piece */
    free(ledger);
}

static void refund(struct ledger *ledger, size_t size)
{
    for (; ledger; ledger = ledger->above)
        atomic_fetch_sub(&ledger->bytes, size);
}

static int charge(struct ledger *ledger, size_t size)
{
    if (ledger->above && !charge(ledger->above, size))
        return 0;
    /* Not added and taken back: another thread would see too much, and be refused what fits. */
    size_t held = atomic_load(&ledger->bytes), bytes;
    do {
        bytes = held + size;
        if (bytes < size || (ledger->limit && bytes > ledger->limit)) {
            if (ledger->above)
                refund(ledger->above, size);
            return 0;
        }
    } while (!atomic_compare_exchange_weak(&ledger->bytes, &held, bytes));
    size_t peak = atomic_load(&ledger->peak);
    while (peak < bytes && !atomic_compare_exchange_weak(&ledger->peak, &peak, bytes))
        ;
    return 1;
}

/* size zeroed bytes, aligned to a cache line if they fill one, else for any type; NULL when memory or
 * the limit is exhausted, or nothing is asked for. */
void *ledger_take(struct ledger *ledger, size_t size)
{
    if (!size || size > SIZE_MAX / 2 || !charge(ledger, size))
        return NULL;
    void *taken = NULL;
    if (size < LINE)
        taken = calloc(1, size);
    else if (posix_memalign(&taken, LINE, size))
        taken = NULL;
    else
        memset(taken, 0, size);
    if (!taken)
        refund(ledger, size);
    return taken;
}

/* *size* is what was asked for; NULL is no piece. */
void ledger_give(struct ledger *ledger, void *taken, size_t size)
{
    if (!taken)
        return;
    refund(ledger, size);
    free(taken);
}

/* The piece in another size, what is new zeroed; NULL leaves the piece as it was.  NULL of size 0 is
 * a piece to begin with. */
void *ledger_resize(struct ledger *ledger, void *taken, size_t from, size_t to)
{
    void *moved = ledger_take(ledger, to);
    if (moved && taken)
        memcpy(moved, taken, from < to ? from : to);
    if (moved)
        ledger_give(ledger, taken, from);
    return moved;
}

size_t ledger_bytes(const struct ledger *ledger)
{
    return atomic_load(&ledger->bytes);
}

/* The most bytes that were held at a time. */
size_t ledger_peak(const struct ledger *ledger)
{
    return atomic_load(&ledger->peak);
}
