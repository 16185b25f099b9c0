#ifndef HITABLES_RECENT_KEYS_H
#define HITABLES_RECENT_KEYS_H
#include <stdbool.h>
#include <stdint.h>

#include "locality.h"
#include "scope.h"
#include "stack_distance.h"

/* The RECENT_KEYS keys that were used last: see recent_keys.c.  Zeroed: not open. */
enum { RECENT_KEYS = LOCALITY_RECENT, RECENT_SLOTS = 2 * RECENT_KEYS };

struct recent_keys {
    uint64_t *hash;  /* [RECENT_KEYS] */
    uint32_t *place; /* [RECENT_KEYS]: in the stack */
    uint32_t *slot;  /* [RECENT_SLOTS]: number of a key, counted from 1; 0: empty */
    uint32_t keys;
    struct use_stack stack;
};

/* False when memory is exhausted. */
bool recent_open(struct recent_keys *recent, struct scope *scope);
/* Use a key.  *distance: how many keys were used since, or STACK_NONE if it is not among the recent ones.
 * False when memory is exhausted. */
bool recent_use(struct recent_keys *recent, uint64_t hash, uint32_t *distance);

#endif
