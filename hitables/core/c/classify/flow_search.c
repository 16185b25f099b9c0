/* The search of a flow table.
 *
 * Idea: headers are taken in parts of PART.  The keys of a group are hashed first and the chains are fetched
 * from memory side by side; then the headers are searched one after another, so that the result is that of
 * the paper's loop.  A flow that is missing is inserted at once and marked with the number of this search
 * (FLOW_PENDING); at the end of the part all missing headers are classified in one batch, and the answers
 * are written into those flows that still have the mark.
 * Cost: per header a hash, two reads of memory that overlap with those of other headers, and the keys before
 * the right one.  The code exists once for each scheme, with and without statistics, for keys of 13 bytes and
 * for others.
 * Invariant: an answer is stored only under the version of the rules that gave it; rules do not change while
 * a search runs.
 * Threading: flow_table.c.  A search that meets the mark of another classifies the header itself.
 */
#define _GNU_SOURCE
#include "flow_schemes.h"
#include "vfdb_work.h"

enum {
    PART = 512,  /* headers: 26 misses at 95 % hits, enough for a classifier that works in batches */
    GROUP = 128, /* headers that are fetched side by side; 64 to 256 make no difference */
    DEPTH = 10   /* flows of a chain that are fetched in advance */
};
/* Chains are fetched flow by flow where the table does not fit into a second-level cache and the last
 * searches compared 1.6 keys each, or more: with four active flows in a bucket, searches are then 1.5 to 3
 * times as fast, from 9 MB on.  Where nearly all hits are at the first place, it costs a third. */
enum { DEEP_BYTES = 1 << 20, DEEP_TENTHS = 16 };

#define NO_KEY UINT32_MAX

struct flow_run {
    struct flow_table *table;
    struct vfdb *rules;
    const uint32_t *given;
    struct vfdb_work *work; /* of the part's headers; NULL: not counted one by one */
    uint32_t version, group;
    bool deep;
    struct flow_stats stats;
    int status;
};

struct flow_miss {
    struct flow *flow; /* NULL: it is not kept */
    uint32_t header, bucket;
};

/* A part of the headers, and what is known of it. */
struct flow_part {
    _Alignas(64) uint8_t key[(size_t)PART * FLOW_KEY];
    uint32_t bucket[PART];
    const uint32_t *headers;
    uint32_t *answers;
    uint32_t count, ticket, misses, followers;
    uint32_t compared; /* keys */
    bool alone;
    struct flow_miss miss[PART];
    struct {
        uint32_t header, miss;
    } follower[PART]; /* headers whose answer is that of a miss */
    uint32_t missed[PART * VFDB_DIMS], found[PART];
    struct vfdb_work work[PART]; /* of classifying the misses */
};

/* -- keys ------------------------------------------------------------------------------------- */

/* The 13 bytes of flow_table_key for the five-tuple, as two words. */
FLOW_INLINE bool key_of_five(const uint32_t *header, uint8_t *key)
{
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        __builtin_trap(); /* flow_table_key serves there */
    uint32_t source = __builtin_bswap32(header[0]), destination = __builtin_bswap32(header[1]);
    uint64_t low =
        source | (uint64_t)__builtin_bswap16((uint16_t)header[2]) << 32 | (uint64_t)destination << 48;
    uint64_t high = destination >> 16 | (uint64_t)__builtin_bswap16((uint16_t)header[3]) << 16 |
                    (uint64_t)(header[4] & 0xFF) << 32;
    memcpy(key, &low, 8);
    memcpy(key + 8, &high, 8);
    return !((header[2] | header[3]) >> 16 | header[4] >> 8);
}

static void make_keys(const struct flow_table *table, struct flow_part *part, uint32_t from, uint32_t to)
{
    uint64_t unkeyed = 0;
    uint32_t stride = table->key_stride;
    uint8_t *key = part->key + (size_t)from * stride;
    const uint32_t *header = part->headers + (size_t)from * table->dims;
    bool keyed[GROUP];
    if (table->five_tuple && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
        for (uint32_t i = from; i < to; i++, header += 5, key += 16)
            unkeyed += !(keyed[i - from] = key_of_five(header, key));
    else
        for (uint32_t i = from; i < to; i++, header += table->dims, key += stride)
            unkeyed += !(keyed[i - from] = flow_table_key(table, header, key));
    flow_hash_keys(&table->hasher, part->key + (size_t)from * stride, stride, table->key_bytes, to - from,
                   part->bucket + from);
    for (uint32_t i = from; unkeyed && i < to; i++)
        if (!keyed[i - from])
            part->bucket[i] = NO_KEY;
}

/* -- fetching --------------------------------------------------------------------------------- */

/* The buckets, the first flows of their chains, and with *deep* the flows that searches will read. */
FLOW_INLINE void fetch(const struct flow_table *table, const struct flow_part *part, uint32_t from,
                       uint32_t to, uint32_t scheme, uint32_t bytes, bool deep)
{
    const struct flow *flow[GROUP];
    uint32_t header[GROUP], live = 0;
    if (scheme == FLOW_RING) {
        for (uint32_t i = from; i < to; i++)
            if (part->bucket[i] != NO_KEY)
                __builtin_prefetch(&table->ring[part->bucket[i]]);
        for (uint32_t i = from; part->alone && i < to; i++)
            if (part->bucket[i] != NO_KEY) {
                struct flow_ring ring = table->ring[part->bucket[i]];
                __builtin_prefetch(flow_ring_slot(table, part->bucket[i], ring.at));
                for (uint32_t slot = ring.low; deep && slot < table->purge_at; slot += 2)
                    __builtin_prefetch(flow_ring_slot(table, part->bucket[i], slot));
            }
        return;
    }
    for (uint32_t i = from; i < to; i++)
        if (part->bucket[i] != NO_KEY)
            __builtin_prefetch(&table->bucket[part->bucket[i]]);
    for (uint32_t i = from; i < to; i++) {
        if (part->bucket[i] == NO_KEY)
            continue;
        flow[live] = __atomic_load_n(&table->bucket[part->bucket[i]], __ATOMIC_RELAXED);
        __builtin_prefetch(flow[live]);
        header[live] = i;
        live += flow[live] != NULL;
    }
    /* Other threads may change the chains, unless this search is alone. */
    for (uint32_t depth = 1; deep && part->alone && live && depth < DEPTH; depth++) {
        uint32_t still = 0;
        for (uint32_t i = 0; i < live; i++) {
            const uint8_t *key = part->key + (size_t)header[i] * (bytes == 13 ? 16 : table->key_stride);
            const struct flow *next = flow[i]->next;
            if (flow_same(flow[i]->key, key, bytes) || !next)
                continue;
            __builtin_prefetch(next);
            header[still] = header[i];
            flow[still++] = next;
        }
        live = still;
    }
}

/* -- one header after another ----------------------------------------------------------------- */

/* The header is to be classified with the others of its part; *flow* will have the answer. */
static void defer(struct flow_run *run, struct flow_part *part, uint32_t header, struct flow *flow)
{
    if (!part->misses)
        part->ticket = FLOW_PENDING | atomic_fetch_add_explicit(&run->table->ticket, 1, memory_order_relaxed);
    if (flow) {
        flow->version = part->ticket;
        flow->value = part->misses;
    }
    memcpy(part->missed + (size_t)part->misses * run->table->dims,
           part->headers + (size_t)header * run->table->dims, run->table->dims * sizeof *part->headers);
    part->miss[part->misses++] = (struct flow_miss){flow, header, part->bucket[header]};
}

FLOW_INLINE void settle_answer(struct flow_run *run, struct flow_part *part, uint32_t header,
                               struct flow *flow, const uint32_t *given)
{
    if (run->rules) {
        defer(run, part, header, flow);
        return;
    }
    uint32_t value = given ? given[header] : 0;
    if (flow) {
        flow->value = value;
        flow->version = run->version;
    }
    part->answers[header] = value;
}

/* Insert the key where *at* ended; NULL when memory is exhausted. */
FLOW_INLINE struct flow *insert(struct flow_run *run, struct flow_stripe *stripe, const struct flow_at *at,
                                const uint8_t *key, uint32_t scheme, uint32_t bytes, bool counted)
{
    struct flow_table *table = run->table;
    struct flow *flow;
    uint32_t length = at->compared + 1, writes = 1;
    if (scheme == FLOW_RING) {
        bool purged;
        flow = flow_overwrite(table, at, &purged);
        run->stats.purged += purged;
        length -= purged;
    } else {
        flow = flow_take(table, stripe);
        if (!flow)
            return NULL;
        writes = flow_link(table, scheme, at, flow);
    }
    memcpy(flow->key, key, bytes);
    if (table->history) {
        bool full = false;
        pthread_mutex_lock(&table->stats_lock);
        run->stats.returned += !flow_history_add(table->history, key, &full);
        pthread_mutex_unlock(&table->stats_lock);
        if (full)
            run->status = VFDB_NO_MEMORY;
    }
    if (counted) {
        run->stats.insert_writes += writes;
        run->stats.longest = length > run->stats.longest ? length : run->stats.longest;
    }
    return flow;
}

FLOW_INLINE void search_one(struct flow_run *run, struct flow_part *part, uint32_t header,
                            const uint32_t *given, uint32_t scheme, uint32_t bytes, bool counted)
{
    struct flow_table *table = run->table;
    struct flow_stats *stats = &run->stats;
    struct flow_at at = {.bucket = part->bucket[header]};
    if (at.bucket == NO_KEY) {
        stats->passed++;
        settle_answer(run, part, header, NULL, given);
        return;
    }
    const uint8_t *key = part->key + (size_t)header * (bytes == 13 ? 16 : table->key_stride);
    struct flow_stripe *stripe = &table->stripe[at.bucket / FLOW_STRIPE];
    if (!part->alone)
        spin_lock(&stripe->locked);
    if (scheme == FLOW_RING)
        flow_find_in_ring(table, &at, key, bytes);
    else
        flow_find_in_list(table, &at, key, bytes, scheme == FLOW_CIRCULAR);
    part->compared += at.compared;
    if (counted && run->work) {
        run->work[header].hashes++;
        run->work[header].flows += at.compared;
    }
    if (at.flow) {
        uint32_t writes = flow_hit(table, scheme, &at);
        if (counted) {
            stats->hit_comparisons += at.compared;
            stats->moves += writes > 0;
            stats->move_writes += writes;
            stats->place[at.compared <= FLOW_PLACES ? at.compared - 1 : FLOW_PLACES]++;
        }
        if (__builtin_expect(at.flow->version == run->version, true)) {
            stats->hits++;
            part->answers[header] = at.flow->value;
        } else if (part->misses && at.flow->version == part->ticket) {
            stats->hits++;
            part->follower[part->followers].header = header;
            part->follower[part->followers++].miss = at.flow->value;
        } else {
            stats->renewed++;
            settle_answer(run, part, header, at.flow, given);
        }
    } else {
        if (counted)
            stats->miss_comparisons += at.compared;
        struct flow *flow = insert(run, stripe, &at, key, scheme, bytes, counted);
        stats->inserts += flow != NULL;
        stats->unkept += flow == NULL;
        settle_answer(run, part, header, flow, given);
        if (flow && scheme != FLOW_RING && table->purge && at.compared + 1 >= table->purge_at)
            stats->purged += flow_purge(table, stripe, at.bucket);
    }
    if (!part->alone)
        spin_unlock(&stripe->locked);
}

FLOW_INLINE void search_groups(struct flow_run *run, struct flow_part *part, const uint32_t *given,
                               uint32_t scheme, uint32_t bytes, bool counted)
{
    const struct flow_table *table = run->table;
    for (uint32_t from = 0, to; from < part->count; from = to) {
        to = part->count - from < run->group ? part->count : from + run->group;
        make_keys(table, part, from, to);
        if (run->group > 1)
            fetch(table, part, from, to, scheme, bytes, run->deep);
        for (uint32_t i = from; i < to; i++)
            search_one(run, part, i, given, scheme, bytes, counted);
    }
}

/* The code for each scheme, size of keys, and with or without statistics. */
#define SEARCH(name, scheme)                                                                            \
    static void name(struct flow_run *run, struct flow_part *part, const uint32_t *given, bool counted) \
    {                                                                                                   \
        if (run->table->key_bytes == 13)                                                                \
            counted ? search_groups(run, part, given, scheme, 13, true)                                 \
                    : search_groups(run, part, given, scheme, 13, false);                               \
        else                                                                                            \
            counted ? search_groups(run, part, given, scheme, run->table->key_bytes, true)              \
                    : search_groups(run, part, given, scheme, run->table->key_bytes, false);            \
    }
SEARCH(search_normal, FLOW_NORMAL)
SEARCH(search_move_front, FLOW_MOVE_FRONT)
SEARCH(search_circular, FLOW_CIRCULAR)
SEARCH(search_insert_move_front, FLOW_INSERT_MOVE_FRONT)
SEARCH(search_ring, FLOW_RING)
#undef SEARCH

static void (*const search_by[])(struct flow_run *, struct flow_part *, const uint32_t *, bool) = {
    [FLOW_NORMAL] = search_normal,     [FLOW_MOVE_FRONT] = search_move_front,
    [FLOW_CIRCULAR] = search_circular, [FLOW_INSERT_MOVE_FRONT] = search_insert_move_front,
    [FLOW_RING] = search_ring,
};

/* -- a call ----------------------------------------------------------------------------------- */

/* Classify the missing headers of a part, and hand out the answers. */
static void classify(struct flow_run *run, struct flow_part *part)
{
    struct flow_table *table = run->table;
    int status;
    if (run->work) {
        memset(part->work, 0, part->misses * sizeof *part->work);
        status = vfdb_search_counted(run->rules, part->missed, part->misses, part->found, part->work);
    } else {
        status = vfdb_search(run->rules, part->missed, part->misses, part->found);
    }
    part->alone = flow_gate_enter(&table->gate);
    for (uint32_t m = 0; m < part->misses; m++) {
        struct flow_miss *miss = &part->miss[m];
        struct flow_stripe *stripe = &table->stripe[miss->bucket / FLOW_STRIPE];
        part->answers[miss->header] = part->found[m];
        if (run->work)
            vfdb_work_add(&run->work[miss->header], &part->work[m]);
        if (!miss->flow)
            continue;
        if (!part->alone)
            spin_lock(&stripe->locked);
        /* Else it was purged since, or another search has taken it over. */
        if (miss->flow->version == part->ticket && miss->flow->value == m) {
            miss->flow->value = part->found[m];
            miss->flow->version = status ? 0 : run->version;
        }
        if (!part->alone)
            spin_unlock(&stripe->locked);
    }
    flow_gate_leave(&table->gate, part->alone);
    for (uint32_t f = 0; f < part->followers; f++)
        part->answers[part->follower[f].header] = part->found[part->follower[f].miss];
    run->status = run->status ? run->status : status;
}

static void add_stats(struct flow_table *table, const struct flow_stats *more, bool counted)
{
    struct flow_stats *sum = &table->stats;
    pthread_mutex_lock(&table->stats_lock);
    sum->packets += more->packets;
    sum->hits += more->hits;
    sum->inserts += more->inserts;
    sum->renewed += more->renewed;
    sum->passed += more->passed;
    sum->unkept += more->unkept;
    sum->purged += more->purged;
    sum->returned += more->returned;
    if (counted) {
        sum->hit_comparisons += more->hit_comparisons;
        sum->miss_comparisons += more->miss_comparisons;
        sum->moves += more->moves;
        sum->move_writes += more->move_writes;
        sum->insert_writes += more->insert_writes;
        sum->longest = more->longest > sum->longest ? more->longest : sum->longest;
        for (uint32_t i = 0; i <= FLOW_PLACES; i++)
            sum->place[i] += more->place[i];
    }
    pthread_mutex_unlock(&table->stats_lock);
}

int flow_search(struct flow_table *table, const uint32_t *headers, size_t count, struct vfdb *rules,
                const uint32_t *given, uint32_t version, uint32_t group, bool counted, uint32_t *answers,
                struct vfdb_work *work)
{
    struct flow_run run = {.table = table,
                           .rules = rules,
                           .version = version,
                           .group = group && group < GROUP ? group : GROUP,
                           .stats.packets = count};
    struct flow_part part;
    uint32_t unread[PART];
    atomic_fetch_add_explicit(&table->gate.searches, 1, memory_order_relaxed);
    for (size_t done = 0; done < count && !run.status; done += part.count) {
        part.headers = headers + done * table->dims;
        part.answers = answers ? answers + done : unread;
        part.count = count - done < PART ? (uint32_t)(count - done) : PART;
        part.misses = part.followers = part.compared = 0;
        run.deep = atomic_load_explicit(&table->long_searches, memory_order_relaxed) &&
                   budget_bytes(table->budget) > DEEP_BYTES;
        run.work = work ? work + done : NULL;
        part.alone = flow_gate_enter(&table->gate);
        search_by[table->scheme](&run, &part, given ? given + done : NULL, counted);
        flow_gate_leave(&table->gate, part.alone);
        atomic_store_explicit(&table->long_searches, part.compared > part.count * DEEP_TENTHS / 10,
                              memory_order_relaxed);
        if (part.misses)
            classify(&run, &part);
    }
    atomic_fetch_sub_explicit(&table->gate.searches, 1, memory_order_relaxed);
    add_stats(table, &run.stats, counted);
    if (!run.status && table->own && run.stats.unkept)
        run.status = VFDB_NO_MEMORY;
    return run.status;
}
