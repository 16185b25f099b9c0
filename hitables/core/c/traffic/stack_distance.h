#ifndef HITABLES_STACK_DISTANCE_H
#define HITABLES_STACK_DISTANCE_H
#include <stdbool.h>
#include <stdint.h>

#include "scope.h"

/* Keys in the order of their last use: see stack_distance.c.  A zeroed stack with scope set is empty. */
struct use_stack {
    struct scope *scope;
    uint64_t *bit;      /* [room / 64]: places that are some key's */
    uint32_t *key;      /* [room]: by place */
    uint32_t *sum;      /* [room / PLACES + 1]: Fenwick tree of the bits of a block */
    uint32_t room, next, keys;
    uint32_t oldest; /* no word of bits before this one has a mark */
};

enum { STACK_NONE = UINT32_MAX };

/* Put *key* on top.  *place: where it was (STACK_NONE: nowhere), set to where it is.  *distance: how many
 * keys were above it.  When places run out, all keys are given new ones: place_of [keys] is indexed by key.
 * False when memory is exhausted. */
bool stack_use(struct use_stack *stack, uint32_t key, uint32_t *place_of, uint32_t *distance);

/* Remove the key that was used longest ago, of at least one; its number. */
uint32_t stack_drop_oldest(struct use_stack *stack);

/* Call *visit* for the keys that were used last, at most *most*, the oldest of them first; false, and no more
 * calls, when it returns false. */
bool stack_visit(const struct use_stack *stack, uint32_t most, bool (*visit)(void *context, uint32_t key),
                 void *context);

/* Give keys new numbers: the number of *key* becomes new_number[key], STACK_NONE removes it.  place_of is
 * indexed by the new numbers, and set. */
void stack_renumber(struct use_stack *stack, const uint32_t *new_number, uint32_t *place_of);

#endif
