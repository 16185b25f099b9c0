#ifndef HITABLES_POOL_H
#define HITABLES_POOL_H
#include <stddef.h>
#include <stdint.h>

#include "budget.h"

/* Pieces of one size out of a ledger, which come and go one by one. */
struct pool;

struct pool *pool_new(struct ledger *ledger, size_t size);
void pool_free(struct pool *pool);
void *pool_take(struct pool *pool, uint32_t *number);
void pool_give(struct pool *pool, uint32_t number);

#endif
