#ifndef HITABLES_RULE_SETS_H
#define HITABLES_RULE_SETS_H
#include <stddef.h>
#include <stdint.h>

struct scope;

/* Sets of rules, each with a number.  Set i has words first[i] to first[i + 1] - 1 of at[] and bits[]:
 * word at[w] of its bitmap is bits[w], all others are zero. */
struct rule_sets {
    struct scope *scope;
    uint32_t count, room;
    size_t word_room;
    size_t *first;
    uint32_t *at;
    uint64_t *bits;
    uint64_t *hash;
    uint32_t *slot; /* [mask + 1] number + 1, 0: empty */
    uint32_t mask;
};

enum rule_sets_none { RULE_SETS_NO_MEMORY = 0xFFFFFFFF };

/* Start without sets; -1 when memory is exhausted. */
int rule_sets_start(struct rule_sets *sets, struct scope *scope);
/* The number of that set, a new one if it is new; RULE_SETS_NO_MEMORY when memory is exhausted. */
uint32_t rule_sets_number(struct rule_sets *sets, const uint32_t *at, const uint64_t *bits, uint32_t words,
                          uint64_t hash);

/* A set's hash is the sum of this over its words. */
static inline uint64_t rule_sets_mix(uint32_t at, uint64_t bits)
{
    uint64_t x = (bits ^ at * UINT64_C(0x9E3779B97F4A7C15)) * UINT64_C(0xD6E8FEB86659FD93);
    x ^= x >> 32;
    return x * UINT64_C(0xD6E8FEB86659FD93);
}

#endif
