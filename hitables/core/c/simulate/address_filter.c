/* Over rules whose addresses cannot match, many at a time.
 *
 * Idea: a linear chain is mostly rules that miss on an address, and header tests come
 * before anything that could be noticed.  The first 32 bits of both addresses stand
 * apart, by rule number, so the compiler compares a block of rules at once.
 * Cost: half a nanosecond a rule.  Invariant: a rule that is passed over would have said
 * no at its address; the caller counts it as read.  Only for packets whose addresses
 * were not rewritten.  Any number of threads may search.
 */
#include "address_filter.h"

#include "arena.h"
#include "interp.h"

enum { BLOCK = 16 };

/* The addresses that the rule at *code* tests first, if it does. */
static void read_addresses(struct skip *skip, uint32_t number, const uint32_t *code)
{
    for (code += 2;;) {
        uint32_t slot = *code >> 8 & 255, low, high;
        if (slot > 1)
            return;
        if ((*code & 255) == INTERP_RANGE) {
            low = code[1];
            high = code[1] + code[2];
            code += 3;
        } else if ((*code & 255) == INTERP_WIDE && code[1] == 1) {
            low = code[5];
            high = code[9];
            code += 10;
            skip->wide = 1;
        } else {
            return;
        }
        skip->low[slot][number] = low;
        skip->size[slot][number] = high - low;
    }
}

static void close_run(struct skip *skip, uint32_t first, uint32_t behind)
{
    for (uint32_t number = first; number < behind; number++)
        skip->end[number] = behind;
}

int skip_build(struct skip *skip, struct arena *arena, const uint32_t *code, const uint32_t *starts,
               size_t chains, size_t rules)
{
    uint32_t **array[] = {&skip->low[0], &skip->low[1], &skip->size[0], &skip->size[1], &skip->code, &skip->end};
    for (size_t i = 0; i < sizeof array / sizeof *array; i++)
        if (!(*array[i] = arena_take(arena, (rules + BLOCK) * sizeof **array[i])))
            return 0;
    for (size_t chain = 0; chain < chains; chain++) {
        uint32_t first = code[starts[chain]] ? code[starts[chain] + 1] : 0, behind = first;
        for (size_t at = starts[chain]; code[at]; at += code[at], behind++) {
            uint32_t number = code[at + 1];
            if (number != behind) { /* not in a row: what stood in a row ends here */
                close_run(skip, first, behind);
                first = behind = number;
            }
            skip->code[number] = (uint32_t)at;
            skip->size[0][number] = skip->size[1][number] = UINT32_MAX;
            read_addresses(skip, number, code + at);
        }
        close_run(skip, first, behind);
    }
    return 1;
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("avx2", "default")))
#endif
uint32_t skip_to(const struct skip *skip, uint32_t at, uint32_t source, uint32_t destination)
{
    const uint32_t *low = skip->low[0], *size = skip->size[0];
    const uint32_t *to_low = skip->low[1], *to_size = skip->size[1];
    uint32_t end = skip->end[at];
    for (; at < end; at += BLOCK) {
        /* Behind the chain's end the block reads what belongs to others; that is sorted out below. */
        uint32_t found = 0;
        for (uint32_t i = 0; i < BLOCK; i++)
            found |= (uint32_t)(source - low[at + i] <= size[at + i]) &
                     (uint32_t)(destination - to_low[at + i] <= to_size[at + i]);
        if (!found)
            continue;
        for (uint32_t i = 0; i < BLOCK && at + i < end; i++)
            if (source - low[at + i] <= size[at + i] && destination - to_low[at + i] <= to_size[at + i])
                return at + i;
    }
    return end;
}
