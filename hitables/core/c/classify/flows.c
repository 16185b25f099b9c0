/* flows(A): a table of flow states in front of any classifier (figure 1 of the paper).
 *
 * Idea: the answer for a header is stored under its key, and the next packet of the flow takes it from there;
 * what is missing goes to A, in batches.
 * Cost: a hit takes a hash and a key or two, whatever A costs; a miss takes that and a search of A.
 * Invariant: a stored answer has the version of the rules that gave it.  An update raises the version, so a
 * flow of older rules never answers: its next packet is classified anew.  Versions start again after VERSIONS
 * updates, and the table is cleared then.
 * Threading: flow_table.c; updates run alone.
 *
 * Where memory is exhausted a flow is not kept, and an update for which A has none is tried again after the
 * flows were dropped.  A header with a word that is wider than its dimension has no key, and goes to A.
 */
#include "flow_table.h"

/* Few enough that a test can use them up, and enough that to clear the table then costs nothing. */
enum { VERSIONS = 1 << 20 };
enum { SCHEME, BUCKETS, HASH, PURGE_AT, PURGE, SEED };

struct flow_front {
    struct budget *budget;
    struct vfdb *inner;
    struct flow_table *table;
    uint32_t version;
};

static void flows_free(void *built)
{
    struct flow_front *db = built;
    if (db->table)
        flow_table_free(db->table);
    vfdb_close(db->inner);
    budget_give(db->budget, db, sizeof *db);
}

static int flows_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                       void **built)
{
    const int64_t *value = plan->value;
    struct flow_options options = {.scheme = (uint32_t)value[SCHEME],
                                   .hash = (uint32_t)value[HASH],
                                   .buckets = (uint32_t)value[BUCKETS],
                                   .purge_at = (uint32_t)value[PURGE_AT],
                                   .purge = (uint32_t)value[PURGE],
                                   .seed = {(uint64_t)value[SEED], 0},
                                   .dims = rules->dims,
                                   .bits = rules->bits};
    if (options.purge >= options.purge_at)
        options.purge = options.purge_at - 1;
    if (options.hash == FLOW_ZOBEL && !options.seed[0])
        options.seed[0] = FLOW_ZOBEL_SEED;
    struct flow_front *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    db->budget = budget;
    db->version = 1;
    int status = vfdb_open_under(budget, plan->inner, rules, &db->inner);
    if (status == VFDB_OK)
        status = flow_table_new(budget, &options, &db->table);
    if (status)
        flows_free(db);
    else
        *built = db;
    return status;
}

static int flows_change(struct flow_front *db, int (*change)(struct vfdb *, const uint32_t *, uint32_t),
                        const uint32_t *box, uint32_t priority)
{
    int status = change(db->inner, box, priority);
    if (status == VFDB_NO_MEMORY) {
        flow_table_clear(db->table);
        status = change(db->inner, box, priority);
    }
    if (status == VFDB_OK && ++db->version == VERSIONS) {
        flow_table_clear(db->table);
        db->version = 1;
    }
    return status;
}

static int flows_insert(void *built, const uint32_t *box, uint32_t priority)
{
    return flows_change(built, vfdb_put, box, priority);
}

static int flows_remove(void *built, const uint32_t *box, uint32_t priority)
{
    return flows_change(built, vfdb_take, box, priority);
}

static int flows_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    const struct flow_front *db = built;
    return flow_search(db->table, headers, count, db->inner, NULL, db->version, 0, false, answers, NULL);
}

static int flows_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                                struct vfdb_work *work)
{
    const struct flow_front *db = built;
    return flow_search(db->table, headers, count, db->inner, NULL, db->version, 0, true, answers, work);
}

static void flows_stats(const void *built, struct flow_stats *stats)
{
    flow_table_stats(((const struct flow_front *)built)->table, stats);
}

static bool flows_ready(void *built, bool wait)
{
    return vfdb_ready(((struct flow_front *)built)->inner, wait);
}

static int flows_settle(void *built)
{
    return vfdb_settle(((struct flow_front *)built)->inner);
}

static uint64_t flows_rebuilds(const void *built)
{
    return vfdb_rebuilds(((const struct flow_front *)built)->inner);
}

const struct vfdb_ops vfdb_flows = {
    .name = "flows",
    .title = "another algorithm behind a table of flow states, which answers for packets of known flows",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .wraps = true,
    .param = {{"scheme", "0: normal, 1: move to front, 2: circular, 3: insert and move to front, 4: ring", 3,
               0, FLOW_SCHEMES - 1},
              {"buckets", "of the hash table", 65536, 1, UINT32_MAX},
              {"hash", "0: Zobel, 1: CRC32C, 2: multiply-shift, 3: SipHash, 4: folded product", FLOW_FOLDED,
               0, FLOW_HASHES - 1},
              {"purge_at", "the length at which a chain loses its last flows", 10, 2, 65535},
              {"purge", "how many it loses, all but one at most; 0: none", 5, 0, 65534},
              {"seed", "of the hash function; 0: the usual one", 0, 0, INT64_MAX}},
    .build = flows_build,
    .insert = flows_insert,
    .remove = flows_remove,
    .search = flows_search,
    .search_counted = flows_search_counted,
    .ready = flows_ready,
    .settle = flows_settle,
    .rebuilds = flows_rebuilds,
    .flow_stats = flows_stats,
    .free = flows_free,
};
