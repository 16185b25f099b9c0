/* Pieces of a text, each from a start to an end: numbered so that equal ones share a number, and read as IPv4
 * addresses.
 *
 * Idea: an open hash table of numbers; what a Python program does for each piece, it then does once for
 * each number.
 * Cost: one pass over the pieces; a table of at least twice their number is searched in about one step.
 * Invariant: numbers follow the order of first occurrence.
 * Threading: the arrays are the caller's; nothing else is written.
 */
#include "text_pieces.h"

#include <string.h>

static uint64_t mixed(uint64_t value)
{
    value *= 0x9E3779B97F4A7C15u;
    return value ^ value >> 32;
}

static uint64_t hash_of(const char *at, size_t size)
{
    uint64_t hash = size, word;
    for (; size >= sizeof word; at += sizeof word, size -= sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = mixed(hash ^ word);
    }
    word = 0;
    memcpy(&word, at, size);
    return mixed(mixed(hash ^ word));
}

size_t number_pieces(const char *text, const uint32_t *start, const uint32_t *end, size_t count,
                     uint32_t *slot, size_t slots, uint32_t *number, uint32_t *first)
{
    size_t numbers = 0;
    for (size_t i = 0; i < count; i++) {
        size_t size = end[i] - start[i], at = hash_of(text + start[i], size) & (slots - 1);
        for (;; at = (at + 1) & (slots - 1)) {
            if (!slot[at]) {
                first[numbers] = (uint32_t)i;
                slot[at] = (uint32_t)++numbers;
                break;
            }
            uint32_t other = first[slot[at] - 1];
            if (end[other] - start[other] == size && !memcmp(text + start[other], text + start[i], size))
                break;
        }
        number[i] = slot[at] - 1;
    }
    return numbers;
}

/* A decimal number of at most *top*, without leading zeros, at *at*; where it ends, NULL for another. */
static const char *decimal(const char *at, const char *end, uint32_t top, uint32_t *value)
{
    const char *next = at;
    for (*value = 0; next < end && next < at + 3 && *next >= '0' && *next <= '9'; next++)
        *value = *value * 10 + (uint32_t)(*next - '0');
    return next > at && *value <= top && (*at != '0' || next == at + 1) ? next : NULL;
}

static int is_prefix(const char *at, const char *end, uint32_t *low, uint32_t *high)
{
    uint32_t address = 0, part, length = 32;
    for (unsigned i = 0; i < 4; i++) {
        if (i && (at == end || *at++ != '.'))
            return 0;
        at = decimal(at, end, 255, &part);
        if (!at)
            return 0;
        address = address << 8 | part;
    }
    if (at < end) {
        if (*at++ != '/')
            return 0;
        at = decimal(at, end, 32, &length);
        if (at != end)
            return 0;
    }
    uint32_t open = length == 32 ? 0 : UINT32_MAX >> length;
    *low = address & ~open;
    *high = address | open;
    return 1;
}

void read_ipv4(const char *text, const uint32_t *start, const uint32_t *end, size_t count, uint8_t *known,
               uint32_t *low, uint32_t *high)
{
    for (size_t i = 0; i < count; i++) {
        low[i] = high[i] = 0;
        known[i] = (uint8_t)is_prefix(text + start[i], text + end[i], &low[i], &high[i]);
    }
}
