#ifndef HITABLES_SLAB_H
#define HITABLES_SLAB_H
#include <stddef.h>
#include <stdint.h>

#include "budget.h"

/* Pieces of one size out of a budget, which come and go one by one. */
struct slab;

struct slab *slab_new(struct budget *budget, size_t size);
void slab_free(struct slab *slab);
void *slab_take(struct slab *slab, uint32_t *number);
void slab_give(struct slab *slab, uint32_t number);

#endif
