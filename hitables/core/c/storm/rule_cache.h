#ifndef HITABLES_RULE_CACHE_H
#define HITABLES_RULE_CACHE_H
#include <stdatomic.h>

#include "box_soa.h"
#include "evolving.h"

/* The rule cache (Storm, sections 3.2.1 and 4): the evolving rules of most weight, searched one after the
 * other, while the next ones are published. */

enum { CACHE_COPIES = 3, CACHE_READERS = 64, CACHE_NO_SLOT = -1 };

struct cache_link {
    struct cache_link *next;
    uint32_t place, box[]; /* [dims][2] low and width */
};

/* The entries in one form: the others are NULL. */
struct cache_copy {
    uint32_t count;
    uint32_t *action; /* [entries] */
    struct box_soa columns;
    uint32_t *row; /* [entries][dims][2] low and width */
    char *links;   /* [entries] struct cache_link */
    struct cache_link *first;
    uint64_t retired; /* the epoch that began when another copy became the current one */
};

/* The slot of a reader: the epoch in which it entered, or 0 of a vacant slot. */
struct cache_reader {
    _Alignas(64) _Atomic uint64_t epoch;
};

struct rule_cache {
    struct budget *budget;
    uint32_t dims, entries, form, copies;
    struct cache_copy copy[CACHE_COPIES];
    struct cache_reader *reader; /* [CACHE_READERS] */
    _Alignas(64) _Atomic uint64_t epoch;
    atomic_uint current, locked;
    _Alignas(64) uint64_t published, deferred; /* deferred: no copy was free */
};

/* *copies*: 1 under a spin lock, 2 or 3 with a pointer that switches. */
int rule_cache_new(struct budget *budget, uint32_t dims, uint32_t entries, uint32_t form, uint32_t copies,
                   struct rule_cache **made);
void rule_cache_free(struct rule_cache *cache);

/* Begin to read: the copy, and a slot to leave with; NULL when all slots are taken.  *hint*: the slot to
 * try first. */
const struct cache_copy *rule_cache_enter(struct rule_cache *cache, uint32_t hint, int *slot);
void rule_cache_leave(struct rule_cache *cache, int slot);
/* The entry of each header, or the number of entries. */
void rule_cache_first(const struct rule_cache *cache, const struct cache_copy *copy, const uint32_t *headers,
                      uint32_t count, uint32_t *place);

/* Publish the first rules; false, and nothing has changed: readers still have all other copies. */
bool rule_cache_publish(struct rule_cache *cache, struct evolve *e);

/* Whether the first rules are not as they were published. */
static inline bool rule_cache_is_stale(const struct rule_cache *cache, const struct evolve *e)
{
    return e->changed < cache->entries;
}

#endif
