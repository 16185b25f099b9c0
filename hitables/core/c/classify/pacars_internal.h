#ifndef HITABLES_PACARS_INTERNAL_H
#define HITABLES_PACARS_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slab.h"
#include "trie.h"
#include "vfdb.h"

/* The squares of PACARS and their lists, shared by updates and searches (pacars.c) and what keeps the
 * squares (pacars_squares.c). */

/* WORTH: among 8, 16 and 64 the fastest on random and routed filters (`make papers-layer4`). */
enum { WORTH = 64, SAMPLE = 4, LEAST_ROOM = 2 };
enum { LEVELS = 33 };
/* A list along each of the two dimensions; its prefixes span the square in the other. */
enum { SIDES = 2 };

struct pacars_rule {
    struct pacars_rule *next; /* by rising priority */
    uint32_t priority, number;
    uint32_t box[];
};

/* A prefix of a list; the start is apart, beside those of its neighbours. */
struct prefix {
    uint32_t high, parent; /* parent: its place in the list, 0: none, 1: the first */
    struct pacars_rule *rule; /* NULL only while it is inserted */
};

/* One piece of memory: [room] starts, then [room] prefixes. */
struct crossing_list {
    uint32_t count, room;
    uint32_t *low;
};

/* A list and its children's, woven: records of a key, its place in the list, and its place in each child's
 * woven list.  Place p: the number of keys that are at most the header's. */
struct woven {
    uint32_t count;
    uint32_t record[];
};

struct square {
    struct crossing_list list[SIDES];
    struct woven *woven[SIDES];
    uint32_t changes;
};

struct pacars {
    struct budget *budget;
    struct trie *trie; /* over both keys, stride bits of the one, stride bits of the other, and so on */
    struct slab *rules;
    uint32_t dims, stride, bits[SIDES];
    bool cascade;
};

static inline struct prefix *prefixes(const struct crossing_list *list)
{
    return (struct prefix *)(void *)(list->low + list->room);
}

/* room is even. */
static inline size_t list_bytes(uint32_t room)
{
    return room * (sizeof(uint32_t) + sizeof(struct prefix));
}

/* How many keys, *apart* words from one another, are at most *value*, looked for from *hint* on. */
static inline uint32_t place_from(const uint32_t *key, uint32_t apart, uint32_t count, uint32_t value,
                                  uint32_t hint)
{
    uint32_t low, high, step = 1;
    hint = hint < count ? hint : count;
    if (hint < count && key[(size_t)hint * apart] <= value) {
        low = hint + 1;
        while (low + step <= count && key[(size_t)(low + step - 1) * apart] <= value) {
            low += step;
            step *= 2;
        }
        high = low + step - 1 < count ? low + step - 1 : count;
    } else {
        high = hint;
        while (high >= step && key[(size_t)(high - step) * apart] > value) {
            high -= step;
            step *= 2;
        }
        low = high >= step ? high - step + 1 : 0;
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (key[(size_t)middle * apart] <= value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static inline uint32_t place_in(const uint32_t *key, uint32_t count, uint32_t value)
{
    const uint32_t *base = key;
    if (!count)
        return 0;
    for (uint32_t left = count; left > 1; left -= left / 2)
        base += base[left / 2] <= value ? left / 2 : 0;
    return (uint32_t)(base - key) + (*base <= value);
}

/* The place of the smallest prefix, from *place* back, that holds low to high; 0: none. */
static inline uint32_t holder(const struct crossing_list *list, uint32_t place, uint32_t low, uint32_t high)
{
    while (place && (list->low[place - 1] > low || prefixes(list)[place - 1].high < high))
        place = prefixes(list)[place - 1].parent;
    return place;
}

/* Two keys of 32 bits, *stride* bits of the one, *stride* of the other, and so on. */
static inline uint64_t spread(uint32_t key, uint32_t stride)
{
    static const uint64_t mask[] = {0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F,
                                    0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF};
    uint64_t spread = key;
    for (uint32_t step = 5; step-- > 0 && 1u << step >= stride;)
        spread = (spread | spread << (1u << step)) & mask[step];
    return spread;
}

static inline uint64_t key_of(const struct pacars *db, uint32_t x, uint32_t y)
{
    return spread(x, db->stride) << db->stride | spread(y, db->stride);
}

static inline uint32_t slot_of(const struct pacars *db, uint32_t key, uint32_t level)
{
    return key << level * db->stride >> (32 - db->stride);
}

/* Words of a record. */
static inline uint32_t record(const struct pacars *db)
{
    return 2 + (1u << db->stride);
}

static inline uint32_t woven_count(const struct square *square, uint32_t side)
{
    return square && square->woven[side] ? square->woven[side]->count : 0;
}

/* pacars_squares.c */

/* The list's prefix low to high, or a new one; NULL when memory is exhausted. */
struct prefix *crossing_list_have(struct budget *budget, struct crossing_list *list, uint32_t low,
                                  uint32_t high);
/* The place of that prefix, 0: the list does not have it. */
uint32_t crossing_list_place(const struct crossing_list *list, uint32_t low, uint32_t high);
/* Remove the prefix at a place. */
void crossing_list_drop(struct budget *budget, struct crossing_list *list, uint32_t place);
/* Whether a square has neither rules nor woven lists, so that it can be freed. */
bool square_is_idle(const struct square *square);
void square_drop(const struct pacars *db, struct square **at);
void square_unweave(const struct pacars *db, struct square *square, uint32_t side);
/* Weave the squares below a node, and its own. */
void squares_weave(const struct pacars *db, void *node, uint32_t level);
/* A list at *level* on the path of *key* has changed: weave again what needs it. */
void squares_changed(const struct pacars *db, uint64_t key, uint32_t level);

#endif
