#ifndef HITABLES_BUDGET_H
#define HITABLES_BUDGET_H
#include <stdbool.h>
#include <stddef.h>

/* Counted memory that is given back piece by piece, for structures that change.  Any thread may take and
 * give back at any time. */
struct budget;

/* An empty budget of at most *limit* bytes (0: any number), or NULL. */
struct budget *budget_new(size_t limit);
/* A budget whose pieces also count in *above*, which must outlive it; or NULL. */
struct budget *budget_under(struct budget *above);
/* From now on this budget, and each under it, take nothing while *stop is not 0, so that a build ends soon.
 * NULL: from now on it takes again. */
void budget_stops(struct budget *budget, const volatile int *stop);
/* Whether it takes nothing now; for loops that run long and take nothing. */
bool budget_stopped(const struct budget *budget);
/* All pieces must have been given back.  NULL is no budget. */
void budget_free(struct budget *budget);
/* size zeroed bytes, aligned to a cache line if they fill one, else for any type.  NULL when memory or the
 * limit is exhausted, the budget is stopped, or size is 0. */
void *budget_take(struct budget *budget, size_t size);
/* Give a piece back; *size* is the size that was taken, and NULL is no piece. */
void budget_give(struct budget *budget, void *piece, size_t size);
/* The piece in another size, added bytes zeroed; NULL leaves the piece as it was.  A NULL of size 0 is an
 * empty piece. */
void *budget_resize(struct budget *budget, void *piece, size_t from, size_t to);
/* Bytes taken now, and at most so far. */
size_t budget_bytes(const struct budget *budget);
size_t budget_peak(const struct budget *budget);

#endif
