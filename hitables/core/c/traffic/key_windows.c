/* The most popular keys of each window of packets.
 *
 * Idea: a small hash table, whose slots are empty again when a window ends, since they name the window.
 * Cost: one probe a packet; a window's keys are sorted by counting.
 * Invariant: all keys of a window are counted, by 64 bits of hash: two that share them count as one.
 * Threading: a window belongs to one thread at a time.
 */
#include "key_windows.h"

#include <string.h>

static const uint32_t tops[LOCALITY_TOPS] = {1, 5, 20, 100};

static void end_window(struct key_window *w, struct locality_totals *totals)
{
    uint16_t keys_of[LOCALITY_WINDOW + 1]; /* by their packets */
    memset(keys_of, 0, sizeof keys_of);
    for (uint32_t i = 0; i < w->keys; i++)
        keys_of[w->packets[w->slot[i]]]++;
    uint32_t seen = 0;
    for (uint32_t packets = LOCALITY_WINDOW; packets; packets--) {
        uint32_t until = seen + keys_of[packets];
        for (uint32_t i = 0; i < LOCALITY_TOPS && seen < until; i++)
            if (seen < tops[i])
                totals->window_top[i] += (uint64_t)packets * ((until < tops[i] ? until : tops[i]) - seen);
        seen = until;
    }
    totals->window_keys += w->keys;
    totals->windows++;
}

void window_add(struct key_window *w, uint64_t hash, struct locality_totals *totals)
{
    enum { SLOTS = 2 * LOCALITY_WINDOW };
    if (!w->added)
        w->now++;
    uint32_t at = (uint32_t)(hash >> 20) % SLOTS;
    while (w->window[at] == w->now && w->hash[at] != hash)
        at = (at + 1) % SLOTS;
    if (w->window[at] != w->now) {
        w->window[at] = w->now;
        w->hash[at] = hash;
        w->packets[at] = 0;
        w->slot[w->keys++] = (uint16_t)at;
    }
    w->packets[at]++;
    if (++w->added == LOCALITY_WINDOW) {
        end_window(w, totals);
        w->added = w->keys = 0;
    }
}
