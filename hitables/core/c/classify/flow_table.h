#ifndef HITABLES_FLOW_TABLE_H
#define HITABLES_FLOW_TABLE_H
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "budget.h"
#include "flow_hash.h"
#include "flows.h"
#include "spin.h"
#include "vfdb.h"

/* A flow: 32 bytes with a key of 13 bytes, 56 with one of 37.  *version* is that of the rules that gave the
 * value, 0 of a vacant flow, or FLOW_PENDING with the number of the search that will give it. */
struct flow {
    struct flow *next;
    uint32_t value, version;
    uint8_t key[]; /* [key_bytes] */
};

#define FLOW_PENDING UINT32_C(0x80000000)

/* How many buckets share a lock and a list of vacant flows. */
enum { FLOW_STRIPE = 64 };

struct flow_stripe {
    atomic_uint locked;
    struct flow *vacant;
};

/* The searches in progress: one that is alone needs no locks of stripes. */
struct flow_gate {
    atomic_uint searches; /* calls that have begun and not ended */
    atomic_uint word;     /* FLOW_ALONE, or the number of parts that are searched under locks */
};
#define FLOW_ALONE UINT32_C(0x80000000)

/* The bucket of FLOW_RING: flows from *low* on are in use, a search begins at *at*. */
struct flow_ring {
    uint16_t at, low;
};

struct flow_pool_part;
struct flow_history;

struct flow_table {
    struct budget *budget, *own; /* own: the budget where the table is not a part of something else */
    uint32_t scheme, buckets, purge_at, purge;
    struct flow_hasher hasher;
    uint32_t dims, key_bytes, key_stride; /* stride: a key in the scratch of a search, a multiple of 8 */
    bool five_tuple;                      /* dimensions of 32, 32, 16, 16 and 8 bits */
    uint8_t order[VFDB_DIMS];             /* dimensions in the order of the key */
    uint8_t bits[VFDB_DIMS];
    size_t flow_bytes;

    struct flow **bucket;     /* [buckets] the first flow of a search; not FLOW_RING */
    struct flow_ring *ring;   /* [buckets] FLOW_RING */
    char *ring_flows;         /* [buckets][purge_at], FLOW_RING */
    struct flow_stripe *stripe; /* [stripes] */
    uint32_t stripes;

    atomic_uint pool_locked;
    struct flow_pool_part *part; /* the newest first */
    char *fresh;                 /* the flows of that part that were never taken */
    size_t fresh_left, allocated;

    struct flow_gate gate;
    atomic_bool long_searches; /* the last ones compared several keys each; a hint */
    atomic_uint ticket; /* of the last search that has misses to classify */
    pthread_mutex_t stats_lock;
    struct flow_stats stats;
    struct flow_history *history;
};

int flow_table_new(struct budget *budget, const struct flow_options *options, struct flow_table **made);
void flow_table_free(struct flow_table *table);

/* A flow that is in no chain, under the lock of its stripe; NULL when memory is exhausted. */
struct flow *flow_take(struct flow_table *table, struct flow_stripe *stripe);

/* Search in the order of headers.  The answers of missing flows come from *rules* or from *given*, and are
 * stored under *version* (not 0, below FLOW_PENDING); flows of another version are misses.
 * *work*, if any, with *counted* only: what each header took is added to its entry. */
int flow_search(struct flow_table *table, const uint32_t *headers, size_t count, struct vfdb *rules,
                const uint32_t *given, uint32_t version, uint32_t group, bool counted, uint32_t *answers,
                struct vfdb_work *work);

/* The set of keys that were ever in the table (flow_history.c): whether the key is new; *full*: no memory. */
struct flow_history *flow_history_new(struct budget *budget, uint32_t key_bytes);
void flow_history_free(struct flow_history *history);
bool flow_history_add(struct flow_history *history, const uint8_t *key, bool *full);

static inline struct flow *flow_ring_slot(const struct flow_table *table, uint32_t bucket, uint32_t place)
{
    size_t number = (size_t)bucket * table->purge_at + place;
    return (struct flow *)(table->ring_flows + number * table->flow_bytes);
}

/* Begin a part of a search; true: it is alone, and needs no locks. */
static inline bool flow_gate_enter(struct flow_gate *gate)
{
    uint32_t none = 0;
    unsigned tries = 0;
    if (atomic_load_explicit(&gate->searches, memory_order_relaxed) == 1 &&
        atomic_compare_exchange_strong_explicit(&gate->word, &none, FLOW_ALONE, memory_order_acquire,
                                                memory_order_relaxed))
        return true;
    for (uint32_t word;; spin_pause(&tries)) {
        word = atomic_load_explicit(&gate->word, memory_order_relaxed);
        if (word != FLOW_ALONE &&
            atomic_compare_exchange_weak_explicit(&gate->word, &word, word + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return false;
    }
}

static inline void flow_gate_leave(struct flow_gate *gate, bool alone)
{
    if (alone)
        atomic_store_explicit(&gate->word, 0, memory_order_release);
    else
        atomic_fetch_sub_explicit(&gate->word, 1, memory_order_release);
}

#endif
