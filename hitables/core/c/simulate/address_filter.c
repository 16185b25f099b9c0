/* A filter that skips rules whose addresses cannot match, many at a time.
 *
 * Idea: a linear chain is mostly rules that fail at an address, and header tests come before anything with an
 * effect.  The first 32 bits of both addresses are kept in arrays by rule number, so the compiler compares a
 * block of rules at once.
 * Cost: half a nanosecond a rule.
 * Invariant: a skipped rule would have failed at its address; the caller counts it as read.  Only for packets
 * whose addresses were not rewritten.
 * Threading: any number of threads may search.
 */
#include "address_filter.h"

#include "arena.h"
#include "interp.h"

enum { BLOCK = 16 };

/* The addresses that the rule at *code* tests first, if it does. */
static void read_addresses(struct address_filter *filter, uint32_t number, const uint32_t *code)
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
            filter->wide = true;
        } else {
            return;
        }
        filter->low[slot][number] = low;
        filter->size[slot][number] = high - low;
    }
}

static void close_run(struct address_filter *filter, uint32_t first, uint32_t behind)
{
    for (uint32_t number = first; number < behind; number++)
        filter->end[number] = behind;
}

bool address_filter_build(struct address_filter *filter, struct arena *arena, const uint32_t *code,
                          const uint32_t *starts, size_t chains, size_t rules)
{
    uint32_t **array[] = {&filter->low[0],  &filter->low[1], &filter->size[0],
                          &filter->size[1], &filter->code,   &filter->end};
    for (size_t i = 0; i < sizeof array / sizeof *array; i++)
        if (!(*array[i] = arena_take(arena, (rules + BLOCK) * sizeof **array[i])))
            return false;
    for (size_t chain = 0; chain < chains; chain++) {
        uint32_t first = code[starts[chain]] ? code[starts[chain] + 1] : 0, behind = first;
        for (size_t at = starts[chain]; code[at]; at += code[at], behind++) {
            uint32_t number = code[at + 1];
            if (number != behind) { /* the numbers have a gap: the run ends here */
                close_run(filter, first, behind);
                first = behind = number;
            }
            filter->code[number] = (uint32_t)at;
            filter->size[0][number] = filter->size[1][number] = UINT32_MAX;
            read_addresses(filter, number, code + at);
        }
        close_run(filter, first, behind);
    }
    return true;
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("avx2", "default")))
#endif
uint32_t
address_filter_next(const struct address_filter *filter, uint32_t at, uint32_t source, uint32_t destination)
{
    const uint32_t *low = filter->low[0], *size = filter->size[0];
    const uint32_t *to_low = filter->low[1], *to_size = filter->size[1];
    uint32_t end = filter->end[at];
    for (; at < end; at += BLOCK) {
        /* Behind the chain's end the block reads rules of other chains, which are excluded below. */
        uint32_t hit = 0;
        for (uint32_t i = 0; i < BLOCK; i++)
            hit |= (uint32_t)(source - low[at + i] <= size[at + i]) &
                   (uint32_t)(destination - to_low[at + i] <= to_size[at + i]);
        if (!hit)
            continue;
        for (uint32_t i = 0; i < BLOCK && at + i < end; i++)
            if (source - low[at + i] <= size[at + i] && destination - to_low[at + i] <= to_size[at + i])
                return at + i;
    }
    return end;
}
