#ifndef HITABLES_PACARS_INTERNAL_H
#define HITABLES_PACARS_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "slab.h"
#include "trie.h"
#include "vfdb.h"
#include "vfdb_work.h"

/* The squares of PACARS and their lists, shared by updates and searches (pacars.c), what keeps the squares
 * (pacars_squares.c), and the three forms of lists (pacars_arrays.c, pacars_skip.c, pacars_buckets.c). */

/* WORTH: among 8, 16 and 64 the fastest on random and routed filters (`make papers-layer4`). */
enum { WORTH = 64, SAMPLE = 4, LEAST_ROOM = 2 };
enum { LEVELS = 33 };
/* Prefixes at most that hold the same value. */
enum { DEPTH = 33 };
/* A list along each of the two dimensions; its prefixes span the square in the other. */
enum { SIDES = 2 };

/* How the prefixes of a list are kept. */
enum list_form {
    LIST_ARRAY,  /* a sorted array (pacars_arrays.c) */
    LIST_SKIP,   /* a skip list (pacars_skip.c) */
    LIST_BUCKETS /* sqrt n buckets of sqrt n (pacars_buckets.c) */
};

struct pacars_rule {
    struct pacars_rule *next; /* by rising priority */
    uint32_t priority, number;
    uint32_t box[];
};

/* A prefix of an array; the start is apart, beside those of its neighbours. */
struct prefix {
    uint32_t high, parent; /* parent: its place in the list, 0: none, 1: the first */
    struct pacars_rule *rule; /* NULL only while it is inserted */
};

/* A prefix of a skip list or of a bucket, which stays where it is in memory. */
struct linked_prefix {
    uint32_t low, high;
    struct linked_prefix *parent; /* the smallest other of the list, or of its bucket, that holds it */
    struct bucket *home;          /* NULL in a skip list */
    struct pacars_rule *rule;
    uint32_t height;              /* of next; 0 in a bucket */
    struct linked_prefix *next[];
};

struct bucket {
    struct bucket *next;
    struct linked_prefix **cover; /* [DEPTH] those of the buckets before that hold the first start, the
                                   * smallest first; NULL in the first bucket */
    uint32_t covers, count, room;
    uint32_t *low; /* one piece of memory: [room] starts, then [room] prefixes */
};

struct partition {
    uint32_t count, room;
    uint32_t planned; /* prefixes when they were last dealt to buckets */
    uint32_t *low;    /* one piece of memory: [room] first starts, then [room] buckets */
};

struct crossing_list {
    uint32_t count, room;            /* room: of the array; levels of the skip list */
    union {
        uint32_t *low;               /* one piece of memory: [room] starts, then [room] prefixes */
        struct linked_prefix **first; /* [room] */
        struct partition *partition;
    };
};

/* A list and its children's, woven: records of a key, its place in the list, its place in each child's woven
 * list, and in two words the prefix or bucket of that place where lists are no arrays.  Place p: the number
 * of keys that are at most the header's; in a bucket, of those of the bucket. */
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
    const struct list_ops *lists;
    uint32_t dims, stride, bits[SIDES], random;
    enum list_form form;
    bool cascade;
};

/* What one form of lists does. */
struct list_ops {
    /* The rules of the list's prefix low to high, or of a new one; NULL when memory is exhausted. */
    struct pacars_rule **(*have)(struct pacars *db, struct square *square, uint32_t side, uint32_t low,
                                 uint32_t high);
    /* The rules of that prefix, NULL: the list does not have it. */
    struct pacars_rule **(*find)(const struct crossing_list *list, uint32_t low, uint32_t high);
    /* Remove that prefix, which is there. */
    void (*drop)(struct pacars *db, struct square *square, uint32_t side, uint32_t low, uint32_t high);
    /* All starts, rising. */
    void (*starts)(const struct crossing_list *list, uint32_t *start);
    /* The places of all woven keys in their own list. */
    void (*places)(const struct pacars *db, const struct crossing_list *list, struct woven *woven);
    void (*free)(const struct pacars *db, struct crossing_list *list);
};

extern const struct list_ops pacars_arrays, pacars_skip_lists, pacars_buckets;

static inline struct prefix *prefixes(const struct crossing_list *list)
{
    return (struct prefix *)(void *)(list->low + list->room);
}

static inline struct linked_prefix **bucket_prefixes(const struct bucket *bucket)
{
    return (struct linked_prefix **)(void *)(bucket->low + bucket->room);
}

static inline struct bucket **buckets_of(const struct partition *partition)
{
    return (struct bucket **)(void *)(partition->low + partition->room);
}

/* One more key compared, where *keys* counts them; NULL: not counted. */
VFDB_BODY bool at_most(uint32_t key, uint32_t value, uint32_t *keys)
{
    if (keys)
        ++*keys;
    return key <= value;
}

/* How many keys, *apart* words from one another, are at most *value*, looked for from *hint* on. */
VFDB_BODY uint32_t place_from(const uint32_t *key, uint32_t apart, uint32_t count, uint32_t value,
                              uint32_t hint, uint32_t *keys)
{
    uint32_t low, high, step = 1;
    hint = hint < count ? hint : count;
    if (hint < count && at_most(key[(size_t)hint * apart], value, keys)) {
        low = hint + 1;
        while (low + step <= count && at_most(key[(size_t)(low + step - 1) * apart], value, keys)) {
            low += step;
            step *= 2;
        }
        high = low + step - 1 < count ? low + step - 1 : count;
    } else {
        high = hint;
        while (high >= step && !at_most(key[(size_t)(high - step) * apart], value, keys)) {
            high -= step;
            step *= 2;
        }
        low = high >= step ? high - step + 1 : 0;
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (at_most(key[(size_t)middle * apart], value, keys))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

VFDB_BODY uint32_t place_in(const uint32_t *key, uint32_t count, uint32_t value, uint32_t *keys)
{
    const uint32_t *base = key;
    if (!count)
        return 0;
    for (uint32_t left = count; left > 1; left -= left / 2)
        base += at_most(base[left / 2], value, keys) ? left / 2 : 0;
    return (uint32_t)(base - key) + at_most(*base, value, keys);
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
    return (db->form == LIST_ARRAY ? 2 : 4) + (1u << db->stride);
}

/* The prefix or bucket at a record's place, for lists that are no arrays. */
static inline void *spot_of(const struct pacars *db, const uint32_t *record)
{
    void *spot;
    memcpy(&spot, record + 2 + (1u << db->stride), sizeof spot);
    return spot;
}

static inline void set_spot(const struct pacars *db, uint32_t *record, const void *spot)
{
    memcpy(record + 2 + (1u << db->stride), &spot, sizeof spot);
}

static inline uint32_t woven_count(const struct square *square, uint32_t side)
{
    return square && square->woven[side] ? square->woven[side]->count : 0;
}

/* The last prefix of a skip list whose start is at most *value*; NULL: none. */
VFDB_BODY struct linked_prefix *skip_last(const struct crossing_list *list, uint32_t value, uint32_t *keys)
{
    struct linked_prefix *last = NULL, *const *next = list->first;
    for (uint32_t level = list->room; level-- > 0;)
        while (next[level] && at_most(next[level]->low, value, keys)) {
            last = next[level];
            next = last->next;
        }
    return last;
}

/* The same, looked for from a prefix on whose start is at most *value*. */
VFDB_BODY struct linked_prefix *skip_from(struct linked_prefix *last, uint32_t value, uint32_t *keys)
{
    if (!last->next[0] || !at_most(last->next[0]->low, value, keys))
        return last;
    for (struct linked_prefix *far;
         (far = last->next[last->height - 1]) && at_most(far->low, value, keys);)
        last = far;
    for (uint32_t level = last->height; level-- > 0;)
        while (last->next[level] && at_most(last->next[level]->low, value, keys))
            last = last->next[level];
    return last;
}

/* The last prefix of the buckets whose start is at most *value*; NULL: none. */
VFDB_BODY struct linked_prefix *buckets_last(const struct crossing_list *list, uint32_t value, uint32_t *keys)
{
    const struct partition *partition = list->partition;
    uint32_t number = partition ? place_in(partition->low, partition->count, value, keys) : 0;
    if (!number)
        return NULL;
    const struct bucket *bucket = buckets_of(partition)[number - 1];
    return bucket_prefixes(bucket)[place_in(bucket->low, bucket->count, value, keys) - 1];
}

/* The same, looked for from a place in a bucket on whose first start was at most *value*. */
VFDB_BODY struct linked_prefix *buckets_from(const struct crossing_list *list, const struct bucket *bucket,
                                             uint32_t hint, uint32_t value, uint32_t *keys)
{
    if (bucket->next && at_most(bucket->next->low[0], value, keys))
        return buckets_last(list, value, keys);
    uint32_t place = place_from(bucket->low, 1, bucket->count, value, hint, keys);
    return place ? bucket_prefixes(bucket)[place - 1] : buckets_last(list, value, keys);
}

/* pacars_squares.c */

/* Whether a square has neither rules nor woven lists, so that it can be freed. */
bool square_is_idle(const struct square *square);
void square_drop(const struct pacars *db, struct square **at);
void square_unweave(const struct pacars *db, struct square *square, uint32_t side);
/* Weave the squares below a node, and its own. */
void squares_weave(const struct pacars *db, void *node, uint32_t level);
/* A list at *level* on the path of *key* has changed: weave again what needs it. */
void squares_changed(const struct pacars *db, uint64_t key, uint32_t level);

#endif
