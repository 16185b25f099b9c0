/* The keys that were ever in a flow table.
 *
 * Idea: a hash table of keys with open addressing, which doubles when it is two thirds full.
 * Cost: O(1) per key, and up to 3 times the bytes of its keys; only tables that are asked for it have one.
 * Invariant: a place is taken if its byte before the key is not 0; the keys of one run of taken places have
 * their home there or before.
 * Threading: the table's statistics lock.
 */
#include <string.h>

#include "flow_table.h"

struct flow_history {
    struct budget *budget;
    struct flow_hasher hasher;
    uint32_t key_bytes;
    size_t count, room; /* room: a power of two */
    uint8_t *place;     /* [room][1 + key_bytes] */
};

static const uint64_t history_seed[2] = {0x68697374, 0x6f7279};

static uint8_t *home_of(const struct flow_history *history, const uint8_t *key)
{
    size_t at = flow_hash_of(FLOW_FOLDED, history_seed, key, history->key_bytes);
    size_t row = 1 + history->key_bytes;
    for (;; at++) {
        uint8_t *place = history->place + (at & (history->room - 1)) * row;
        if (!*place || !memcmp(place + 1, key, history->key_bytes))
            return place;
    }
}

static bool grow(struct flow_history *history)
{
    size_t row = 1 + history->key_bytes;
    struct flow_history wider = *history;
    wider.room = history->room ? 2 * history->room : 1024;
    wider.place = budget_take(history->budget, wider.room * row);
    if (!wider.place)
        return false;
    for (size_t i = 0; i < history->room; i++)
        if (history->place[i * row])
            memcpy(home_of(&wider, history->place + i * row + 1), history->place + i * row, row);
    budget_give(history->budget, history->place, history->room * row);
    *history = wider;
    return true;
}

struct flow_history *flow_history_new(struct budget *budget, uint32_t key_bytes)
{
    struct flow_history *history = budget_take(budget, sizeof *history);
    if (history) {
        history->budget = budget;
        history->key_bytes = key_bytes;
        if (!grow(history)) {
            budget_give(budget, history, sizeof *history);
            return NULL;
        }
    }
    return history;
}

void flow_history_free(struct flow_history *history)
{
    if (!history)
        return;
    budget_give(history->budget, history->place, history->room * (1 + history->key_bytes));
    budget_give(history->budget, history, sizeof *history);
}

bool flow_history_add(struct flow_history *history, const uint8_t *key, bool *full)
{
    if (3 * (history->count + 1) > 2 * history->room && !grow(history)) {
        *full = true;
        return false;
    }
    uint8_t *place = home_of(history, key);
    if (*place)
        return false;
    *place = 1;
    memcpy(place + 1, key, history->key_bytes);
    history->count++;
    return true;
}
