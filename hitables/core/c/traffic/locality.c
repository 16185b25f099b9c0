/* How a sequence of keys repeats itself: counts, stack distances, popular keys, runs in hash tables.
 *
 * Idea: a hash table of keys, each with its packets, times and place in a stack of last uses
 * (stack_distance.c).  Beyond the limit, keys are sampled by their hash (SHARDS: Waldspurger and others, FAST
 * 2015): half of those followed are dropped, by one more bit, whenever the limit is met; a distance among
 * 1 of 2^level keys counts for 2^level as long.  Short distances, which a sample cannot tell apart, are then
 * those among the keys used last (recent_keys.c).
 * Cost: some cache misses a packet; memory for *limit* keys at most.
 * Invariant: at level 0 every key is followed and all figures are exact.  At any level a key is followed from
 * its first packet, or not at all, so the keys followed are a random sample of all.  Windows, runs and, from
 * level 1 on, popular keys (heavy_keys.c) count every packet; they tell keys apart by 64 bits of hash.
 * Threading: a locality belongs to one thread at a time.
 */
#include "locality.h"

#include <stdbool.h>
#include <string.h>

#include "budget.h"
#include "heavy_keys.h"
#include "key_windows.h"
#include "recent_keys.h"
#include "scope.h"
#include "stack_distance.h"

enum { FIRST_ROOM = 1 << 10 };

/* A followed key; its words are in locality->word. */
struct followed {
    uint64_t hash, packets;
    int64_t first, last;
};

struct locality {
    struct scope scope;
    struct locality_totals totals;
    uint32_t words, limit, keys, room, slots;
    uint32_t *word;        /* [room][words] */
    uint32_t *place;       /* [room]: in the stack */
    struct followed *key;  /* [room] */
    uint32_t *slot;        /* [slots]: number of a key, counted from 1; 0: empty */
    struct use_stack stack;
    struct key_window window;
    struct heavy_keys heavy;   /* from level 1 on */
    struct recent_keys recent; /* from level 1 on */
    uint64_t *bucket[LOCALITY_TABLES]; /* the hash of the last packet; no hash is 0 */
};

struct locality *locality_new(uint32_t words, uint32_t limit)
{
    struct budget *budget = budget_new(0);
    struct locality *l = budget ? budget_take(budget, sizeof *l) : NULL;
    if (!l) {
        budget_free(budget);
        return NULL;
    }
    l->scope.budget = budget;
    l->stack.scope = &l->scope;
    l->words = words;
    l->limit = limit;
    bool whole = true;
    for (unsigned i = 0; i < LOCALITY_TABLES; i++) {
        size_t buckets = (size_t)1 << (LOCALITY_FIRST_TABLE + i * LOCALITY_TABLE_STEP);
        l->bucket[i] = scope_take(&l->scope, buckets * sizeof *l->bucket[i]);
        whole = whole && l->bucket[i];
    }
    if (!whole) {
        locality_free(l);
        return NULL;
    }
    return l;
}

void locality_free(struct locality *l)
{
    if (!l)
        return;
    struct budget *budget = l->scope.budget;
    scope_empty(&l->scope);
    budget_give(budget, l, sizeof *l);
    budget_free(budget);
}

static uint64_t hash_of(const uint32_t *word, uint32_t words)
{
    uint64_t hash = words;
    for (uint32_t i = 0; i < words; i++) {
        hash = (hash ^ word[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
    hash ^= hash >> 31;
    return hash ? hash : 1;
}

static void put_in_slot(struct locality *l, uint32_t number)
{
    uint32_t at = (uint32_t)l->key[number].hash & (l->slots - 1);
    while (l->slot[at])
        at = (at + 1) & (l->slots - 1);
    l->slot[at] = number + 1;
}

static void fill_slots(struct locality *l)
{
    memset(l->slot, 0, l->slots * sizeof *l->slot);
    for (uint32_t number = 0; number < l->keys; number++)
        put_in_slot(l, number);
}

static bool grow(struct locality *l)
{
    uint32_t room = l->room ? 2 * l->room : FIRST_ROOM;
    size_t key_bytes = (size_t)l->words * sizeof *l->word;
    void *piece;
    if (room > l->limit)
        room = l->limit;
    if (!(piece = scope_resize(&l->scope, l->word, room * key_bytes)))
        return false;
    l->word = piece;
    if (!(piece = scope_resize(&l->scope, l->place, room * sizeof *l->place)))
        return false;
    l->place = piece;
    if (!(piece = scope_resize(&l->scope, l->key, room * sizeof *l->key)))
        return false;
    l->key = piece;
    l->room = room;
    uint32_t slots = l->slots ? l->slots : 2 * FIRST_ROOM;
    while (slots < 2 * (uint64_t)room)
        slots *= 2;
    if (slots != l->slots) {
        if (!(piece = scope_resize(&l->scope, l->slot, slots * sizeof *l->slot)))
            return false;
        l->slot = piece;
        l->slots = slots;
        fill_slots(l);
    }
    return true;
}

static bool use_recent(void *locality, uint32_t key)
{
    struct locality *l = locality;
    uint32_t distance;
    return recent_use(&l->recent, l->key[key].hash, &distance);
}

/* From now on count popular keys and short distances apart. */
static bool begin_sample(struct locality *l)
{
    if (!heavy_open(&l->heavy, &l->scope) || !recent_open(&l->recent, &l->scope))
        return false;
    for (uint32_t i = 0; i < l->keys; i++)
        heavy_add(&l->heavy, l->key[i].hash, l->key[i].packets);
    return stack_visit(&l->stack, RECENT_KEYS, use_recent, l);
}

/* Drop half of the followed keys. */
static bool thin(struct locality *l)
{
    if (!l->totals.level && !begin_sample(l))
        return false;
    uint32_t *number = scope_take(&l->scope, l->keys * sizeof *number), kept = 0;
    if (!number)
        return false;
    l->totals.level++;
    l->totals.first /= 2;
    for (unsigned i = LOCALITY_RECENT_BINS; i < LOCALITY_DISTANCES; i++)
        l->totals.distance[i] /= 2;
    for (uint32_t i = 0; i < l->keys; i++) {
        number[i] = STACK_NONE;
        if (l->key[i].hash >> (64 - l->totals.level))
            continue;
        number[i] = kept;
        l->key[kept] = l->key[i];
        memmove(l->word + (size_t)kept * l->words, l->word + (size_t)i * l->words,
                l->words * sizeof *l->word);
        kept++;
    }
    l->keys = kept;
    stack_renumber(&l->stack, number, l->place);
    scope_drop(&l->scope, number);
    fill_slots(l);
    return true;
}

static bool is_followed(const struct locality *l, uint64_t hash)
{
    return !l->totals.level || !(hash >> (64 - l->totals.level));
}

/* The number of the key, which is added if it is new; STACK_NONE if it is not followed.  False when memory
 * is exhausted. */
static bool find(struct locality *l, const uint32_t *word, uint64_t hash, int64_t time, uint32_t *number)
{
    *number = STACK_NONE;
    if (!is_followed(l, hash))
        return true;
    for (uint32_t at = (uint32_t)hash & (l->slots - 1); l->slots && l->slot[at];
         at = (at + 1) & (l->slots - 1)) {
        uint32_t key = l->slot[at] - 1;
        if (l->key[key].hash == hash &&
            !memcmp(l->word + (size_t)key * l->words, word, l->words * sizeof *word)) {
            *number = key;
            return true;
        }
    }
    while (l->keys == l->limit)
        if (!thin(l))
            return false;
    if (!is_followed(l, hash))
        return true;
    if (l->keys == l->room && !grow(l))
        return false;
    *number = l->keys++;
    l->key[*number] = (struct followed){hash, 0, time, time};
    l->place[*number] = STACK_NONE;
    memcpy(l->word + (size_t)*number * l->words, word, l->words * sizeof *word);
    put_in_slot(l, *number);
    return true;
}

static unsigned bin_of(uint64_t distance)
{
    return distance ? 64 - (unsigned)__builtin_clzll(distance) : 0;
}

/* Record a use of the key.  *distance* is among the followed keys; *near*: it is counted already. */
static void count(struct locality *l, struct followed *key, uint32_t distance, bool near, int64_t time)
{
    unsigned bin = bin_of((uint64_t)distance << l->totals.level);
    if (l->totals.level && bin < LOCALITY_RECENT_BINS)
        bin = LOCALITY_RECENT_BINS;
    if (!key->packets++)
        l->totals.first += !near;
    else if (!near)
        l->totals.distance[bin]++;
    key->first = time < key->first ? time : key->first;
    key->last = time > key->last ? time : key->last;
}

enum locality_status locality_add(struct locality *l, const uint32_t *word, const int64_t *time,
                                  size_t packets)
{
    for (size_t i = 0; i < packets; i++, word += l->words) {
        uint64_t hash = hash_of(word, l->words);
        int64_t now = time ? time[i] : (int64_t)l->totals.packets;
        uint32_t number, distance = 0, recent = STACK_NONE;
        if (!find(l, word, hash, now, &number))
            return LOCALITY_NO_MEMORY;
        if (l->totals.level && !recent_use(&l->recent, hash, &recent))
            return LOCALITY_NO_MEMORY;
        if (recent != STACK_NONE)
            l->totals.distance[bin_of(recent)]++;
        if (number != STACK_NONE) {
            if (!stack_use(&l->stack, number, l->place, &distance))
                return LOCALITY_NO_MEMORY;
            count(l, &l->key[number], distance, recent != STACK_NONE, now);
        }
        for (unsigned table = 0; table < LOCALITY_TABLES; table++) {
            unsigned bits = LOCALITY_FIRST_TABLE + table * LOCALITY_TABLE_STEP;
            uint64_t *last = &l->bucket[table][hash & (((uint64_t)1 << bits) - 1)];
            l->totals.runs[table] += *last != hash;
            *last = hash;
        }
        window_add(&l->window, hash, &l->totals);
        if (l->totals.level)
            heavy_add(&l->heavy, hash, 1);
        l->totals.packets++;
    }
    return LOCALITY_OK;
}

const struct locality_totals *locality_totals(struct locality *l)
{
    l->totals.keys = l->keys;
    l->totals.popular_missed = l->heavy.missed;
    l->totals.bytes = budget_bytes(l->scope.budget);
    return &l->totals;
}

void locality_keys(const struct locality *l, uint64_t *packets, int64_t *first, int64_t *last)
{
    for (uint32_t i = 0; i < l->keys; i++) {
        packets[i] = l->key[i].packets;
        first[i] = l->key[i].first;
        last[i] = l->key[i].last;
    }
}

uint32_t locality_popular(const struct locality *l, uint64_t *packets, uint32_t room)
{
    uint32_t count = 0;
    if (!l->totals.level)
        for (; count < l->keys && count < room; count++)
            packets[count] = l->key[count].packets;
    for (uint32_t at = 0; l->totals.level && at < HEAVY_SLOTS && count < room; at++)
        if (l->heavy.packets[at])
            packets[count++] = l->heavy.packets[at];
    return count;
}
