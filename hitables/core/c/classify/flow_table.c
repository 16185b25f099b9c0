/* A table of flow states: its memory, keys and statistics.  flow_search.c searches it.
 *
 * Idea: a hash table of chains.  A bucket is a pointer to the flow at which a search begins; a chain is never
 * more than a pass over it, so neither its length nor its end is stored.
 * Cost: 32 bytes per flow of IPv4 (56 of IPv6) and up to a sixteenth more for flows that are not in use yet,
 * 9 bytes per bucket.
 * Invariant: once taken, a flow belongs to the stripe of its bucket until the table is cleared, so a thread
 * that holds the lock of that stripe may read it.
 * Threading: any number of threads may search at a time.  A flow, its bucket and the vacant flows of its
 * stripe are read and written under the stripe's lock, or by a search that is alone.  To clear or to free the
 * table, nothing else may run.
 */
#define _GNU_SOURCE
#include "flow_table.h"

#include <unistd.h>

/* Flows that are added to the pool at a time: a sixteenth of what there is, within these bounds. */
enum { PART_LEAST = 64, PART_MOST = 1 << 16, PART_SHARE = 16 };

struct flow_pool_part {
    struct flow_pool_part *next;
    size_t flows;
    _Alignas(64) char flow[]; /* [flows][flow_bytes] */
};

/* The order of the paper's key: source, its port, destination, its port, protocol; else that of the
 * dimensions. */
static void lay_out_key(struct flow_table *table, const struct flow_options *options)
{
    static const uint8_t tuple4[] = {32, 32, 16, 16, 8}, order4[] = {0, 2, 1, 3, 4};
    static const uint8_t tuple6[] = {32, 32, 32, 32, 32, 32, 32, 32, 16, 16, 8},
                         order6[] = {0, 1, 2, 3, 8, 4, 5, 6, 7, 9, 10};
    table->dims = options->dims;
    memcpy(table->bits, options->bits, options->dims);
    for (uint32_t d = 0; d < options->dims; d++) {
        table->order[d] = (uint8_t)d;
        table->key_bytes += (options->bits[d] + 7U) / 8;
    }
    table->five_tuple = options->dims == sizeof tuple4 && !memcmp(tuple4, options->bits, sizeof tuple4);
    if (table->five_tuple)
        memcpy(table->order, order4, sizeof order4);
    else if (options->dims == sizeof tuple6 && !memcmp(tuple6, options->bits, sizeof tuple6))
        memcpy(table->order, order6, sizeof order6);
    table->key_stride = (table->key_bytes + 7) / 8 * 8;
    table->flow_bytes = (sizeof(struct flow) + table->key_bytes + 7) / 8 * 8;
}

/* Whether the machine has memory for the buckets.  Linux grants more than that, and ends the process when it
 * is written to. */
static bool fits_machine(const struct flow_table *table)
{
    double bucket = sizeof *table->stripe / (double)FLOW_STRIPE;
    if (table->scheme == FLOW_RING)
        bucket += sizeof *table->ring + (double)table->purge_at * (double)table->flow_bytes;
    else
        bucket += sizeof *table->bucket;
    return bucket * table->buckets < (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* The buckets, all empty; false when memory is exhausted. */
static bool take_buckets(struct flow_table *table)
{
    struct budget *budget = table->budget;
    if (!fits_machine(table))
        return false;
    table->stripe = budget_take(budget, table->stripes * sizeof *table->stripe);
    if (table->stripe && table->scheme == FLOW_RING) {
        table->ring = budget_take(budget, table->buckets * sizeof *table->ring);
        if (table->ring)
            table->ring_flows =
                budget_take(budget, (size_t)table->buckets * table->purge_at * table->flow_bytes);
        return table->ring_flows;
    }
    if (table->stripe)
        table->bucket = budget_take(budget, table->buckets * sizeof *table->bucket);
    return table->bucket;
}

int flow_table_new(struct budget *budget, const struct flow_options *options, struct flow_table **made)
{
    struct flow_table *table = budget_take(budget, sizeof *table);
    if (!table)
        return VFDB_NO_MEMORY;
    table->budget = budget;
    table->scheme = options->scheme;
    table->buckets = options->buckets;
    table->purge_at = options->purge_at;
    table->purge = options->purge;
    lay_out_key(table, options);
    flow_hasher_init(&table->hasher, options->hash, options->seed, options->buckets);
    pthread_mutex_init(&table->stats_lock, NULL);
    table->stripes = (table->buckets - 1) / FLOW_STRIPE + 1;
    bool whole = take_buckets(table);
    if (whole && options->history)
        table->history = flow_history_new(budget, table->key_bytes);
    if (!whole || (options->history && !table->history)) {
        flow_table_free(table);
        return VFDB_NO_MEMORY;
    }
    flow_table_clear(table);
    *made = table;
    return VFDB_OK;
}

static void drop_pool(struct flow_table *table)
{
    while (table->part) {
        struct flow_pool_part *part = table->part;
        table->part = part->next;
        budget_give(table->budget, part, sizeof *part + part->flows * table->flow_bytes);
    }
    table->fresh = NULL;
    table->fresh_left = table->allocated = 0;
}

void flow_table_free(struct flow_table *table)
{
    struct budget *budget = table->budget;
    drop_pool(table);
    flow_history_free(table->history);
    budget_give(budget, table->bucket, table->buckets * sizeof *table->bucket);
    budget_give(budget, table->ring, table->buckets * sizeof *table->ring);
    budget_give(budget, table->ring_flows, (size_t)table->buckets * table->purge_at * table->flow_bytes);
    budget_give(budget, table->stripe, table->stripes * sizeof *table->stripe);
    pthread_mutex_destroy(&table->stats_lock);
    budget_give(budget, table, sizeof *table);
}

void flow_table_clear(struct flow_table *table)
{
    drop_pool(table);
    for (uint32_t i = 0; i < table->stripes; i++)
        table->stripe[i].vacant = NULL;
    if (table->bucket)
        memset(table->bucket, 0, table->buckets * sizeof *table->bucket);
    for (uint32_t i = 0; table->ring && i < table->buckets; i++)
        table->ring[i] = (struct flow_ring){0, (uint16_t)table->purge_at};
}

int flow_table_open(const struct flow_options *options, size_t limit, struct flow_table **opened)
{
    struct budget *budget = budget_new(limit);
    *opened = NULL;
    int status = budget ? flow_table_new(budget, options, opened) : VFDB_NO_MEMORY;
    if (status)
        budget_free(budget);
    else
        (*opened)->own = budget;
    return status;
}

void flow_table_close(struct flow_table *table)
{
    struct budget *own = table->own;
    flow_table_free(table);
    budget_free(own);
}

static struct flow *take_fresh(struct flow_table *table)
{
    if (!table->fresh_left) {
        size_t flows = table->allocated / PART_SHARE;
        flows = flows < PART_LEAST ? PART_LEAST : flows > PART_MOST ? PART_MOST : flows;
        struct flow_pool_part *part = budget_take(table->budget, sizeof *part + flows * table->flow_bytes);
        if (!part)
            return NULL;
        *part = (struct flow_pool_part){.next = table->part, .flows = flows};
        table->part = part;
        table->fresh = part->flow;
        table->fresh_left = flows;
        table->allocated += flows;
    }
    struct flow *flow = (struct flow *)table->fresh;
    table->fresh += table->flow_bytes;
    table->fresh_left--;
    return flow;
}

struct flow *flow_take(struct flow_table *table, struct flow_stripe *stripe)
{
    struct flow *flow = stripe->vacant;
    if (flow) {
        stripe->vacant = flow->next;
        return flow;
    }
    spin_lock(&table->pool_locked);
    flow = take_fresh(table);
    spin_unlock(&table->pool_locked);
    return flow;
}

bool flow_table_key(const struct flow_table *table, const uint32_t *header, uint8_t *key)
{
    for (uint32_t i = 0; i < table->dims; i++) {
        uint32_t d = table->order[i], bits = table->bits[d], word = header[d];
        if (bits < 32 && word >> bits)
            return false;
        for (uint32_t bytes = (bits + 7) / 8; bytes--;)
            *key++ = (uint8_t)(word >> 8 * bytes);
    }
    return true;
}

uint32_t flow_table_bucket(const struct flow_table *table, const uint8_t *key)
{
    uint8_t aligned[FLOW_KEY] = {0};
    uint32_t bucket;
    memcpy(aligned, key, table->key_bytes);
    flow_hash_keys(&table->hasher, aligned, table->key_stride, table->key_bytes, 1, &bucket);
    return bucket;
}

uint32_t flow_table_key_bytes(const struct flow_table *table)
{
    return table->key_bytes;
}

size_t flow_table_bytes(const struct flow_table *table)
{
    return budget_bytes(table->budget);
}

int flow_table_replay(struct flow_table *table, const uint32_t *headers, size_t count, struct vfdb *rules,
                      const uint32_t *given, uint32_t *answers, uint32_t group, bool counted)
{
    return flow_search(table, headers, count, rules, given, 1, group, counted, answers, NULL);
}

void flow_table_stats(struct flow_table *table, struct flow_stats *stats)
{
    pthread_mutex_lock(&table->stats_lock);
    *stats = table->stats;
    pthread_mutex_unlock(&table->stats_lock);
}

size_t flow_table_chain(struct flow_table *table, uint32_t bucket, uint8_t *keys, size_t room)
{
    struct flow_stripe *stripe = &table->stripe[bucket / FLOW_STRIPE];
    size_t length = 0;
    atomic_fetch_add(&table->gate.searches, 1);
    bool alone = flow_gate_enter(&table->gate);
    spin_lock(&stripe->locked);
    if (table->ring) {
        struct flow_ring ring = table->ring[bucket];
        for (uint32_t place = ring.at; length < table->purge_at - ring.low; length++) {
            if (length < room)
                memcpy(keys + length * table->key_bytes, flow_ring_slot(table, bucket, place)->key,
                       table->key_bytes);
            place = place + 1 < table->purge_at ? place + 1 : ring.low;
        }
    } else {
        for (struct flow *first = table->bucket[bucket], *flow = first; flow; length++) {
            if (length < room)
                memcpy(keys + length * table->key_bytes, flow->key, table->key_bytes);
            flow = flow->next == first ? NULL : flow->next;
        }
    }
    spin_unlock(&stripe->locked);
    flow_gate_leave(&table->gate, alone);
    atomic_fetch_sub(&table->gate.searches, 1);
    return length;
}

void flow_table_chains(struct flow_table *table, struct flow_chains *chains)
{
    *chains = (struct flow_chains){0};
    for (uint32_t bucket = 0; bucket < table->buckets; bucket++) {
        size_t length = flow_table_chain(table, bucket, NULL, 0);
        chains->flows += length;
        chains->used += length > 0;
        chains->longest = length > chains->longest ? length : chains->longest;
        chains->length[length < FLOW_PLACES ? length : FLOW_PLACES]++;
    }
}
