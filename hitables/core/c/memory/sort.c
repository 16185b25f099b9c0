/* Sorting of 64-bit keys.
 *
 * Idea: short arrays by insertion; longer ones by radix, a byte at a time from the lowest, and bytes in which
 * all keys agree are skipped.  So keys that differ in few bytes take few passes.
 * Cost: O(n) for each byte that differs, and n further keys of room.
 * Invariant: the sort is stable.
 * Threading: the arrays are the caller's; nothing else is written.
 */
#include "sort.h"

#include <string.h>

enum { INSERTION = 48 }; /* keys below which insertion is faster than two passes of 256 counters */

static void sort_by_insertion(uint64_t *key, uint32_t count, unsigned first_bit)
{
    for (uint32_t i = 1; i < count; i++) {
        uint64_t moving = key[i];
        uint32_t j = i;
        for (; j && key[j - 1] >> first_bit > moving >> first_bit; j--)
            key[j] = key[j - 1];
        key[j] = moving;
    }
}

void sort_keys(uint64_t *key, uint64_t *spare, uint32_t count, unsigned first_bit)
{
    if (count < INSERTION) {
        sort_by_insertion(key, count, first_bit);
        return;
    }
    uint64_t all = ~(uint64_t)0, any = 0;
    for (uint32_t i = 0; i < count; i++) {
        all &= key[i];
        any |= key[i];
    }
    uint64_t *from = key, *to = spare;
    for (unsigned shift = first_bit; shift < 64; shift += 8) {
        if (((all ^ any) >> shift & 255) == 0)
            continue;
        uint32_t start[257] = {0};
        for (uint32_t i = 0; i < count; i++)
            start[(from[i] >> shift & 255) + 1]++;
        for (unsigned b = 0; b < 256; b++)
            start[b + 1] += start[b];
        for (uint32_t i = 0; i < count; i++)
            to[start[from[i] >> shift & 255]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != key)
        memcpy(key, from, count * sizeof *key);
}

int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}
