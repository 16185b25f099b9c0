/* Exact stack distances of keys that were used not long ago, for any number of keys.
 *
 * Idea: a stack of last uses (stack_distance.c) with room for RECENT_KEYS keys; a new key takes the number of
 * the one at the bottom.
 * Cost: a probe and a use of the stack; its memory fits into a second-level cache or nearly.
 * Invariant: the keys are those used last, so a distance below RECENT_KEYS is exact, and a key that is not
 * found has a larger one, or was never used.  Keys are told apart by 64 bits of hash.
 * Threading: one thread at a time.
 */
#include "recent_keys.h"

bool recent_open(struct recent_keys *recent, struct scope *scope)
{
    recent->stack.scope = scope;
    recent->hash = scope_take(scope, RECENT_KEYS * sizeof *recent->hash);
    recent->place = scope_take(scope, RECENT_KEYS * sizeof *recent->place);
    recent->slot = scope_take(scope, RECENT_SLOTS * sizeof *recent->slot);
    return recent->hash && recent->place && recent->slot;
}

static uint32_t home(uint64_t hash)
{
    return (uint32_t)(hash >> 4) % RECENT_SLOTS;
}

/* The slot of the key, or the empty one where it belongs. */
static uint32_t slot_of(const struct recent_keys *recent, uint64_t hash)
{
    uint32_t at = home(hash);
    while (recent->slot[at] && recent->hash[recent->slot[at] - 1] != hash)
        at = (at + 1) % RECENT_SLOTS;
    return at;
}

/* Empty a slot, and move keys behind it that a search would no longer find. */
static void empty_slot(struct recent_keys *recent, uint32_t gap)
{
    for (uint32_t at = (gap + 1) % RECENT_SLOTS; recent->slot[at]; at = (at + 1) % RECENT_SLOTS) {
        uint32_t wanted = home(recent->hash[recent->slot[at] - 1]);
        if ((at - wanted) % RECENT_SLOTS >= (at - gap) % RECENT_SLOTS) {
            recent->slot[gap] = recent->slot[at];
            gap = at;
        }
    }
    recent->slot[gap] = 0;
}

bool recent_use(struct recent_keys *recent, uint64_t hash, uint32_t *distance)
{
    uint32_t at = slot_of(recent, hash), number;
    *distance = STACK_NONE;
    if (recent->slot[at])
        return stack_use(&recent->stack, recent->slot[at] - 1, recent->place, distance);
    if (recent->keys < RECENT_KEYS) {
        number = recent->keys++;
    } else {
        number = stack_drop_oldest(&recent->stack);
        empty_slot(recent, slot_of(recent, recent->hash[number]));
        at = slot_of(recent, hash);
    }
    recent->hash[number] = hash;
    recent->place[number] = STACK_NONE;
    recent->slot[at] = number + 1;
    return stack_use(&recent->stack, number, recent->place, distance);
}
