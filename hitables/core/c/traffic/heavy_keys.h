#ifndef HITABLES_HEAVY_KEYS_H
#define HITABLES_HEAVY_KEYS_H
#include <stdbool.h>
#include <stdint.h>

#include "locality.h"
#include "scope.h"

/* The most frequent keys of any number, in bounded memory: see heavy_keys.c. */
enum { HEAVY_KEYS = LOCALITY_POPULAR, HEAVY_SLOTS = 2 * HEAVY_KEYS };

struct heavy_keys {
    uint64_t *hash, *packets; /* [HEAVY_SLOTS]; packets 0: an empty slot */
    uint64_t *spare;          /* [4 * HEAVY_KEYS] */
    uint32_t keys;
    uint64_t missed; /* at most so many packets of a key are not in its count */
};

/* False when memory is exhausted. */
bool heavy_open(struct heavy_keys *heavy, struct scope *scope);
/* Add packets (at least one) of the key with this hash. */
void heavy_add(struct heavy_keys *heavy, uint64_t hash, uint64_t packets);

#endif
