#ifndef HITABLES_SEARCH_H
#define HITABLES_SEARCH_H
#include <stddef.h>
#include <stdint.h>

/* The first i below *count* with key[i * stride] >= limit, or *count*.  The keys ascend. */
static inline uint32_t lower_bound(const uint32_t *key, size_t stride, uint32_t count, uint32_t limit)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (key[middle * stride] < limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#endif
