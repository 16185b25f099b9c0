#ifndef HITABLES_SLAB_H
#define HITABLES_SLAB_H
#include <stddef.h>
#include <stdint.h>

#include "budget.h"

/* Pieces of one size from a budget, taken and given back one by one. */
struct slab;

/* A slab of pieces of *size* bytes, or NULL.  A piece of a cache line or less never lies across two if
 * size divides the line. */
struct slab *slab_new(struct budget *budget, size_t size);
/* Free the slab and all its pieces.  NULL is no slab. */
void slab_free(struct slab *slab);
/* A piece, with the content that its last owner left, and its number; NULL when memory is exhausted. */
void *slab_take(struct slab *slab, uint32_t *number);
void slab_give(struct slab *slab, uint32_t number);

#endif
