/* The most frequent keys of any number, in bounded memory (Misra and Gries 1982; Anderson and others 2017).
 *
 * Idea: a count for each of HEAVY_KEYS keys at most.  When there is no room for another, the median of the
 * counts is subtracted from all, and those that are left with nothing are dropped.
 * Cost: a probe for a packet, and now and then a sort; at least half of the keys go each time.
 * Invariant: a key has between its count and its count + *missed* packets, a key without a count 0 as its
 * count; *missed* is at most 2 / HEAVY_KEYS of all packets.  Keys are told apart by 64 bits of hash.
 * Threading: one thread at a time.
 */
#include "heavy_keys.h"

#include <string.h>

#include "sort.h"

bool heavy_open(struct heavy_keys *heavy, struct scope *scope)
{
    heavy->hash = scope_take(scope, HEAVY_SLOTS * sizeof *heavy->hash);
    heavy->packets = scope_take(scope, HEAVY_SLOTS * sizeof *heavy->packets);
    heavy->spare = scope_take(scope, 4 * HEAVY_KEYS * sizeof *heavy->spare);
    return heavy->hash && heavy->packets && heavy->spare;
}

/* The slot of the key, or the empty one where it belongs. */
static uint32_t slot_of(const struct heavy_keys *heavy, uint64_t hash)
{
    uint32_t at = (uint32_t)(hash >> 8) % HEAVY_SLOTS;
    while (heavy->packets[at] && heavy->hash[at] != hash)
        at = (at + 1) % HEAVY_SLOTS;
    return at;
}

static void put(struct heavy_keys *heavy, uint64_t hash, uint64_t packets)
{
    uint32_t at = slot_of(heavy, hash);
    heavy->hash[at] = hash;
    heavy->packets[at] = packets;
}

static void drop_half(struct heavy_keys *heavy)
{
    uint64_t *hash = heavy->spare, *packets = hash + HEAVY_KEYS, *sorted = packets + HEAVY_KEYS;
    uint32_t keys = 0, kept = 0;
    for (uint32_t at = 0; at < HEAVY_SLOTS; at++)
        if (heavy->packets[at]) {
            hash[keys] = heavy->hash[at];
            sorted[keys] = packets[keys] = heavy->packets[at];
            keys++;
        }
    sort_keys(sorted, sorted + HEAVY_KEYS, keys, 0);
    uint64_t median = sorted[keys / 2];
    memset(heavy->packets, 0, HEAVY_SLOTS * sizeof *heavy->packets);
    for (uint32_t i = 0; i < keys; i++)
        if (packets[i] > median) {
            put(heavy, hash[i], packets[i] - median);
            kept++;
        }
    heavy->keys = kept;
    heavy->missed += median;
}

void heavy_add(struct heavy_keys *heavy, uint64_t hash, uint64_t packets)
{
    uint32_t at = slot_of(heavy, hash);
    if (heavy->packets[at]) {
        heavy->packets[at] += packets;
        return;
    }
    if (heavy->keys == HEAVY_KEYS)
        drop_half(heavy);
    put(heavy, hash, packets);
    heavy->keys++;
}
