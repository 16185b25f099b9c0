/* Rules apart by the addresses that they leave open.
 *
 * Idea: firewalls have many rules for one host and any peer.  A rule that leaves the destination open is
 * found by its source alone, one that leaves the source open by its destination; those that limit both are in
 * a product table, which is small and mostly empty; those that limit neither are a table by the *kind* of
 * packet that ports and protocol make.  As in cross_product.c, lists are followed to their ends in advance:
 * lists of the same services share a *line*, a byte per kind, the index within the list of the rule that such
 * a packet matches.  So rules of one host are never copied against those of another, and a search is a fixed
 * sequence of reads.
 * Cost: a root and a block of bounds per address, a kind, a cell, and three lists, of two reads each.  The
 * bounds of a block are compared at once, a block of one to four is a cache line, and the root has about as
 * many entries as there are ranges, so thousands of hosts stay in a second-level cache.
 * Bounds: five dimensions, 65,536 boxes, 2^16 combinations of classes of ports and protocol, 254 rules in a
 * list, 65,536 lists of rules that limit both addresses, *bytes* in all.
 * Invariant: no value of a header leads out of the tables.
 * Threading: searches change nothing.
 */
#include "wildcards_internal.h"

#include <string.h>

#include "port_vectors.h"

enum { AHEAD = 640, /* words of headers to prefetch ahead */ BATCH = 64, MOST_BOXES = 65536 };

static void wildcards_free(void *built)
{
    struct wildcards *db = built;
    struct budget *budget = db->kept.budget;
    scope_empty(&db->kept);
    budget_give(budget, db, sizeof *db);
}

enum { BYTES, SIMD };

static int wildcards_build(struct budget *budget, const struct vfdb_plan *plan,
                           const struct vfdb_rules *rules, void **built)
{
    static const uint8_t bits[] = {32, 32, 16, 16, 8};
    struct vfdb_plan with = {.ops = &vfdb_split_product, .value = {SPLIT_OPEN_SIDES, [SPLIT_TABULAR] = 1}};
    void *split;
    if (rules->count > MOST_BOXES)
        return VFDB_TOO_LARGE;
    int status = vfdb_split_product.build(budget, &with, rules, &split);
    if (status)
        return status;
    struct cross_product_builder b = {
        .from = split, .rules = rules, .scope.budget = budget, .most = (size_t)plan->value[BYTES]};
    struct wildcards *db = budget_take(budget, sizeof *db);
    status = db ? VFDB_OK : VFDB_NO_MEMORY;
    if (db) {
        db->kept.budget = budget;
        b.db = &db->tables;
        db->tables.plain = !memcmp(rules->bits, bits, sizeof bits);
        db->vectors = have_port_vectors(plan->value[SIMD]);
        db->tables.vector = db->vectors && db->tables.plain;
        status = wildcards_fill(db, &b);
    }
    scope_empty(&b.scope);
    vfdb_split_product.free(split);
    if (!status)
        *built = db;
    else if (db)
        wildcards_free(db);
    return status;
}

/* -- search ----------------------------------------------------------------------------------- */

/* The state of headers that take their steps together. */
struct located_batch {
    uint32_t entry[2][BATCH], list[2][BATCH], cell[BATCH];
    uint16_t kind[BATCH], sum[BATCH]; /* sum: of the shares of ports and protocol */
};

#define INLINE inline __attribute__((always_inline))

/* The kinds of headers, with tables. */
static void read_kinds(const struct wildcards *db, const uint32_t *headers, uint32_t count,
                       struct located_batch *batch)
{
    const struct port_table *port = db->tables.port;
    for (uint32_t i = 0; i < count; i++, headers += 5) {
        uint32_t sum = 0;
        for (uint32_t d = 0; d < 3; d++)
            sum += port[d].share[headers[d + 2] >> port[d].shift & port[d].mask];
        batch->kind[i] = db->tables.kind[sum];
    }
}

/* The entry of a block for an address.  An entry that is no table's is kept in all further steps, without a
 * branch, which would often be mispredicted. */
static INLINE uint32_t entry_of(const struct range_blocks *map, uint32_t value)
{
    uint32_t left = map->shift, entry = map->root[value >> left & map->mask];
    for (uint32_t step = 0; step < map->depth; step++) {
        uint32_t taken = left < 8 ? left : 8, is_table = -(uint32_t)((entry & 31) == WILDCARDS_TABLE);
        left -= taken;
        uint32_t next = map->pool[(entry >> 5) + (value >> left & ((1U << taken) - 1) & is_table)];
        entry = (next & is_table) | (entry & ~is_table);
    }
    __builtin_prefetch(map->pool + (entry >> 5));
    return entry;
}

static INLINE const uint32_t *leaf_plain(const struct range_blocks *map, uint32_t entry, uint32_t value)
{
    const uint32_t *bound = map->pool + (entry >> 5);
    uint32_t bounds = entry & 31, rank = 0;
    for (uint32_t i = 0; i < bounds; i++)
        rank += bound[i] <= value;
    return bound + bounds + 2 * (size_t)rank;
}

/* What the addresses lead to. */
static INLINE void read_leaves(const struct wildcards *db, const uint32_t *from, const uint32_t *to,
                               struct located_batch *batch, uint32_t i)
{
    batch->list[0][i] = from[0];
    batch->list[1][i] = to[0];
    batch->cell[i] = from[1] + to[1];
    __builtin_prefetch(db->cell + batch->cell[i]);
}

/* The priority of the first rule of a list that matches a kind. */
static INLINE uint32_t follow(const uint32_t *pool, const uint8_t *line, uint32_t list, uint32_t shift,
                              uint32_t place, uint32_t kinds, uint32_t kind)
{
    return pool[(list & place) + line[(size_t)(list >> shift) * kinds + kind]];
}

static INLINE void read_lists(const struct wildcards *db, uint32_t count, const struct located_batch *batch,
                              uint32_t *answers)
{
    const uint32_t *pool = db->tables.pool, shift = db->shift, place = db->place, kinds = db->tables.kinds;
    const uint8_t *line = db->tables.line;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t kind = batch->kind[i], best = db->neither[kind];
        uint32_t found = follow(pool, line, batch->list[0][i], shift, place, kinds, kind);
        best = found < best ? found : best;
        found = follow(pool, line, batch->list[1][i], shift, place, kinds, kind);
        best = found < best ? found : best;
        found = follow(pool, line, db->list[db->cell[batch->cell[i]]], shift, place, kinds, kind);
        answers[i] = found < best ? found : best;
    }
}

static INLINE void read_entries(const struct wildcards *db, const uint32_t *headers, uint32_t count,
                                struct located_batch *batch)
{
    const struct range_blocks *from = &db->map[0], *to = &db->map[1];
    for (uint32_t i = 0; i < count; i++, headers += 5) {
        batch->entry[0][i] = entry_of(from, headers[0]);
        batch->entry[1][i] = entry_of(to, headers[1]);
        __builtin_prefetch(headers + AHEAD);
    }
}

static void search_plain(const struct wildcards *db, const uint32_t *headers, uint32_t count,
                         struct located_batch *batch, uint32_t *answers)
{
    const uint32_t *header = headers;
    read_kinds(db, headers, count, batch);
    read_entries(db, headers, count, batch);
    for (uint32_t i = 0; i < count; i++, header += 5)
        read_leaves(db, leaf_plain(&db->map[0], batch->entry[0][i], header[0]),
                    leaf_plain(&db->map[1], batch->entry[1][i], header[1]), batch, i);
    read_lists(db, count, batch, answers);
}

#ifdef HAVE_X86
static PORTS_INLINE const uint32_t *leaf_vector(const struct range_blocks *map, uint32_t entry,
                                                uint32_t value)
{
    const uint32_t *bound = map->pool + (entry >> 5);
    uint32_t bounds = entry & 31;
    __mmask16 there = (__mmask16)_bzhi_u32(0xFFFF, bounds);
    uint32_t rank = (uint32_t)__builtin_popcount(_mm512_mask_cmple_epu32_mask(
        there, _mm512_maskz_loadu_epi32(there, bound), _mm512_set1_epi32((int)value)));
    return bound + bounds + 2 * (size_t)rank;
}

/* The same, the bounds of a block at once. */
static PORTS_TARGET void search_vector(const struct wildcards *db, const uint32_t *headers, uint32_t count,
                                       struct located_batch *batch, uint32_t *answers)
{
    const uint16_t *kinds = db->tables.kind;
    const uint32_t *header = headers;
    if (db->tables.vector && count == BATCH) {
        for (uint32_t i = 0; i < BATCH; i += PORTS_GROUP)
            sum_ports(db->tables.ranges, headers + 5 * i, batch->sum + i, db->tables.sources);
        for (uint32_t i = 0; i < BATCH; i++)
            batch->kind[i] = kinds[batch->sum[i]];
    } else {
        read_kinds(db, headers, count, batch);
    }
    read_entries(db, headers, count, batch);
    for (uint32_t i = 0; i < count; i++, header += 5)
        read_leaves(db, leaf_vector(&db->map[0], batch->entry[0][i], header[0]),
                    leaf_vector(&db->map[1], batch->entry[1][i], header[1]), batch, i);
    read_lists(db, count, batch, answers);
}
#endif

static int wildcards_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    const struct wildcards *db = built;
    struct located_batch batch;
    for (size_t start = 0; start < count; start += BATCH, headers += 5 * BATCH, answers += BATCH) {
        uint32_t some = count - start < BATCH ? (uint32_t)(count - start) : BATCH;
#ifdef HAVE_X86
        if (db->vectors) {
            search_vector(db, headers, some, &batch, answers);
            continue;
        }
#endif
        search_plain(db, headers, some, &batch, answers);
    }
    return VFDB_OK;
}

/* Every search reads the same: a root and a block per address, a share per other field, the kind, a cell, the
 * answer by kind, and three lists. */
static int wildcards_search_counted(const void *built, const uint32_t *headers, size_t count,
                                    uint32_t *answers, struct vfdb_work *work)
{
    for (size_t i = 0; i < count; i++) {
        work[i].nodes += 2 * 2 + 3 + 1 + 1 + 1;
        work[i].lists += 3;
    }
    return wildcards_search(built, headers, count, answers);
}

const struct vfdb_ops vfdb_wildcards = {
    .name = "wildcards",
    .title = "every answer written down, rules apart by the addresses that they leave open",
    .least_dims = 5,
    .most_dims = 5,
    .param = {{"bytes", "bytes that the tables may take", 1 << 25, 1, UINT32_MAX},
              {"simd", "bits of the widest vectors that a search may use: 0, 512", 512, 0, 512}},
    .build = wildcards_build,
    .search = wildcards_search,
    .search_counted = wildcards_search_counted,
    .free = wildcards_free,
};
