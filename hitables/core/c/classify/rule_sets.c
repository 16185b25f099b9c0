/* Sets of rules, each once.
 *
 * Idea: bitmaps without their zero words, one behind the other, and an open hash table.
 * Cost: O(words of the set).
 * Invariant: different numbers are different sets; equal hashes only select the sets to compare.
 * Threading: none; all memory is the scope's.
 */
#include "rule_sets.h"

#include <string.h>

#include "budget.h"
#include "scope.h"

enum { FIRST_ROOM = 64 };

int rule_sets_start(struct rule_sets *sets, struct scope *scope)
{
    *sets = (struct rule_sets){
        .scope = scope, .room = FIRST_ROOM, .word_room = FIRST_ROOM, .mask = 2 * FIRST_ROOM - 1};
    sets->first = scope_take(scope, (FIRST_ROOM + 1) * sizeof *sets->first);
    sets->hash = scope_take(scope, FIRST_ROOM * sizeof *sets->hash);
    sets->slot = scope_take(scope, 2 * FIRST_ROOM * sizeof *sets->slot);
    sets->at = scope_take(scope, FIRST_ROOM * sizeof *sets->at);
    sets->bits = scope_take(scope, FIRST_ROOM * sizeof *sets->bits);
    return sets->first && sets->hash && sets->slot && sets->at && sets->bits ? 0 : -1;
}

static int grow(struct scope *scope, void **array, size_t size)
{
    void *moved = scope_resize(scope, *array, size);
    if (moved)
        *array = moved;
    return moved ? 0 : -1;
}

static int more_sets(struct rule_sets *c)
{
    uint32_t room = 2 * c->room;
    if (room > UINT32_C(1) << 30 || grow(c->scope, (void **)&c->first, (room + 1) * sizeof *c->first) ||
        grow(c->scope, (void **)&c->hash, room * sizeof *c->hash))
        return -1;
    uint32_t *slot = scope_take(c->scope, 2 * (size_t)room * sizeof *slot);
    if (!slot)
        return -1;
    scope_drop(c->scope, c->slot);
    c->slot = slot;
    c->room = room;
    c->mask = 2 * room - 1;
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t at = (uint32_t)(c->hash[i] >> 16) & c->mask;
        while (slot[at])
            at = (at + 1) & c->mask;
        slot[at] = i + 1;
    }
    return 0;
}

static int more_words(struct rule_sets *c, size_t wanted)
{
    size_t room = c->word_room;
    while (room < wanted)
        room *= 2;
    if (grow(c->scope, (void **)&c->at, room * sizeof *c->at) ||
        grow(c->scope, (void **)&c->bits, room * sizeof *c->bits))
        return -1;
    c->word_room = room;
    return 0;
}

uint32_t rule_sets_number(struct rule_sets *c, const uint32_t *at, const uint64_t *bits, uint32_t words,
                          uint64_t hash)
{
    if (budget_stopped(c->scope->budget)) /* sets met again take no memory */
        return RULE_SETS_NO_MEMORY;
    uint32_t slot = (uint32_t)(hash >> 16) & c->mask;
    for (; c->slot[slot]; slot = (slot + 1) & c->mask) {
        uint32_t i = c->slot[slot] - 1;
        if (c->hash[i] == hash && c->first[i + 1] - c->first[i] == words &&
            !memcmp(c->bits + c->first[i], bits, words * sizeof *bits) &&
            !memcmp(c->at + c->first[i], at, words * sizeof *at))
            return i;
    }
    if (c->count == c->room) {
        if (more_sets(c))
            return RULE_SETS_NO_MEMORY;
        slot = (uint32_t)(hash >> 16) & c->mask;
        while (c->slot[slot])
            slot = (slot + 1) & c->mask;
    }
    size_t from = c->first[c->count];
    if (from + words > c->word_room && more_words(c, from + words))
        return RULE_SETS_NO_MEMORY;
    memcpy(c->at + from, at, words * sizeof *at);
    memcpy(c->bits + from, bits, words * sizeof *bits);
    c->hash[c->count] = hash;
    c->first[c->count + 1] = from + words;
    c->slot[slot] = c->count + 1;
    return c->count++;
}
