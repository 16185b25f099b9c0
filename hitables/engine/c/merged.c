/* Tuple space search with few tables, for rules that change.
 *
 * Idea (after TupleMerge): a table is a hash of buckets over some leading bits of the first two dimensions.  A rule
 * goes into the table of at most half of the bits of each, in steps of a quarter; if its bucket there is full, into
 * that of up to all bits.  So there are few tables, and long buckets, 16 rules of which are compared at once.  Batches
 * let the memory accesses of many headers overlap.
 * Cost: a search probes every table that may hold a better rule; an update one or two, and writes one lane.
 * Where we differ from TupleMerge: two lengths that are known beforehand in place of tables that come
 * about by the order of insertion, so a removal knows where to look; ranges are not cut into prefixes.
 * Invariant: a rule is in a bucket only if it agrees with the bucket's key in all bits that the table looks at, so
 * every header that it matches comes by.  Keys are not kept: two with the same hash share a bucket, as all
 * rules are compared in full.  No priority in a table is below its *least*.
 * Threading: searches change nothing.
 */
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#endif

#include "ledger.h"
#include "merged.h"
#include "vfdb.h"

/* The hash of what the table looks at; 0 is kept free. */
static inline uint32_t hashed(const struct merged_table *table, uint32_t first, uint32_t second)
{
    uint64_t hash = (first & table->mask[0]) * UINT64_C(0x9E3779B97F4A7C15) +
                    (second & table->mask[1]) * UINT64_C(0xC2B2AE3D27D4EB4F);
    hash ^= hash >> 32;
    hash *= UINT64_C(0x85EBCA77C2B2AE63);
    return (uint32_t)(hash >> 32) | 1;
}

/* What an empty place leads to: a vector read that is masked out still wants an address. */
static const uint32_t nothing[2 * MERGED_LANES];

#define LEVEL 0
#define TARGET
#define NAME(x) x##_plain
#include "merged_search.h"
#undef LEVEL
#undef TARGET
#undef NAME

#ifdef HAVE_X86
#define LEVEL 256
#define TARGET __attribute__((target("avx2,popcnt,bmi,bmi2")))
#define NAME(x) x##_avx2
#include "merged_search.h"
#undef LEVEL
#undef TARGET
#undef NAME

#define LEVEL 512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,popcnt,bmi,bmi2")))
#define NAME(x) x##_avx512
#include "merged_search.h"
#undef LEVEL
#undef TARGET
#undef NAME
#endif

enum { STEPS = 2 };      /* tables that a rule may stand in */
enum { LEAST_BITS = 4 }; /* places of a new table, as a power of two */

static int merged_search(const void *built, const uint32_t *headers, size_t count, uint32_t *found)
{
    const struct merged *db = built;
#ifdef HAVE_X86
    if (db->level == 512)
        search_avx512(db, headers, count, found);
    else if (db->level == 256)
        search_avx2(db, headers, count, found);
    else
#endif
        search_plain(db, headers, count, found);
    return VFDB_OK;
}

static uint32_t level_of(int64_t most)
{
#ifdef HAVE_X86
    if (most >= 512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return 512;
    if (most >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"))
        return 256;
#endif
    (void)most;
    return 0;
}

static size_t places(const struct merged_table *table)
{
    return (size_t)1 << (32 - table->shift);
}

static size_t lane_bytes(const struct merged *db, uint32_t room)
{
    return (2 * (size_t)db->dims + 1) * room * sizeof(uint32_t);
}

static void drop_table(struct merged *db, struct merged_table *table)
{
    for (size_t i = 0; i < places(table); i++)
        ledger_give(db->ledger, table->bucket[i].lane, lane_bytes(db, table->bucket[i].room));
    ledger_give(db->ledger, table->bucket, places(table) * sizeof *table->bucket);
    memmove(table, table + 1, (size_t)(db->table + db->tables - table - 1) * sizeof *table);
    db->tables--;
}

static void merged_free(void *built)
{
    struct merged *db = built;
    while (db->tables)
        drop_table(db, &db->table[db->tables - 1]);
    ledger_give(db->ledger, db->table, db->room * sizeof *db->table);
    ledger_give(db->ledger, db, sizeof *db);
}

/* The leading bits that all values of a side share. */
static uint32_t fixed(const struct merged *db, const uint32_t *box, uint32_t d)
{
    uint32_t differ = box[2 * d] ^ box[2 * d + 1];
    return db->bits[d] - (differ ? 32 - (uint32_t)__builtin_clz(differ) : 0);
}

/* The lengths of the rule's table of that step, in eighths of the width. */
static uint32_t tuple_of(const struct merged *db, const uint32_t *box, uint32_t step)
{
    static const uint32_t most[STEPS] = {4, 8};
    uint32_t tuple = 0;
    for (uint32_t d = 0; d < 2 && d < db->dims; d++) {
        uint32_t eighths = 8 * fixed(db, box, d) / db->bits[d] / 2 * 2;
        tuple |= (eighths < most[step] ? eighths : most[step]) << 4 * d;
    }
    return tuple;
}

static void mask_of(const struct merged *db, uint32_t tuple, uint32_t *mask)
{
    for (uint32_t d = 0; d < 2 && d < db->dims; d++) {
        uint32_t length = (tuple >> 4 * d & 15) * db->bits[d] / 8;
        uint64_t all = (UINT64_C(1) << db->bits[d]) - 1, rest = (UINT64_C(1) << (db->bits[d] - length)) - 1;
        mask[d] = (uint32_t)(all & ~rest);
    }
}

static struct merged_table *find_table(const struct merged *db, uint32_t tuple)
{
    for (uint32_t i = 0; i < db->tables; i++)
        if (db->table[i].tuple == tuple)
            return &db->table[i];
    return NULL;
}

static uint32_t tag_of(const struct merged *db, const struct merged_table *table, const uint32_t *box)
{
    return hashed(table, box[0], db->dims > 1 ? box[2] : 0);
}

/* The bucket of that tag, or the place for it. */
static struct merged_bucket *place_of(const struct merged_table *table, uint32_t tag)
{
    size_t at = tag >> table->shift;
    while (table->bucket[at].tag && table->bucket[at].tag != tag)
        at = (at + 1) & (places(table) - 1);
    return &table->bucket[at];
}

static struct merged_table *new_table(struct merged *db, uint32_t tuple)
{
    if (db->tables == db->room) {
        uint32_t room = db->room ? 2 * db->room : 8;
        struct merged_table *moved =
            ledger_resize(db->ledger, db->table, db->room * sizeof *moved, room * sizeof *moved);
        if (!moved)
            return NULL;
        db->table = moved;
        db->room = room;
    }
    struct merged_table *table = &db->table[db->tables];
    *table = (struct merged_table){.tuple = tuple, .least = VFDB_NONE, .shift = 32 - LEAST_BITS};
    mask_of(db, tuple, table->mask);
    table->bucket = ledger_take(db->ledger, places(table) * sizeof *table->bucket);
    if (!table->bucket)
        return NULL;
    db->tables++;
    return table;
}

static bool widen(struct merged *db, struct merged_table *table)
{
    struct merged_table wider = *table;
    if (!table->shift)
        return true;
    wider.shift--;
    wider.bucket = ledger_take(db->ledger, places(&wider) * sizeof *wider.bucket);
    if (!wider.bucket)
        return false;
    for (size_t i = 0; i < places(table); i++)
        if (table->bucket[i].tag)
            *place_of(&wider, table->bucket[i].tag) = table->bucket[i];
    ledger_give(db->ledger, table->bucket, places(table) * sizeof *table->bucket);
    *table = wider;
    return true;
}

/* Where the words of a rule start, and in *group* how far apart they are. */
static uint32_t *lane_of(const struct merged *db, const struct merged_bucket *bucket, uint32_t rule, uint32_t *group)
{
    *group = bucket->room < MERGED_LANES ? bucket->room : MERGED_LANES;
    return bucket->lane + (size_t)(rule / *group) * *group * (2 * db->dims + 1) + rule % *group;
}

static void copy_lane(const struct merged *db, const struct merged_bucket *from, uint32_t rule,
                      const struct merged_bucket *to, uint32_t place)
{
    uint32_t step, onto;
    const uint32_t *read = lane_of(db, from, rule, &step);
    uint32_t *write = lane_of(db, to, place, &onto);
    for (uint32_t k = 0; k <= 2 * db->dims; k++)
        write[k * onto] = read[k * step];
}

static bool room_in(struct merged *db, struct merged_bucket *bucket)
{
    struct merged_bucket larger = *bucket;
    if (bucket->count < bucket->room)
        return true;
    larger.room = !bucket->room ? 1 : bucket->room < MERGED_LANES ? 2 * bucket->room : bucket->room / 16 * 24;
    larger.room = larger.room > MERGED_LANES ? (larger.room + 15) / 16 * 16 : larger.room;
    larger.lane = ledger_take(db->ledger, lane_bytes(db, larger.room));
    if (!larger.lane)
        return false;
    for (uint32_t i = 0; i < bucket->count; i++)
        copy_lane(db, bucket, i, &larger, i);
    ledger_give(db->ledger, bucket->lane, lane_bytes(db, bucket->room));
    *bucket = larger;
    return true;
}

/* Tables that may hold better rules come first, so that the later ones are read less. */
static void note_least(struct merged *db, struct merged_table *table, uint32_t priority)
{
    if (priority >= table->least)
        return;
    table->least = priority;
    for (; table > db->table && table[-1].least > table->least; table--) {
        struct merged_table better = *table;
        *table = table[-1];
        table[-1] = better;
    }
}

static int merged_insert(void *built, const uint32_t *box, uint32_t priority)
{
    struct merged *db = built;
    struct merged_table *table = NULL;
    struct merged_bucket *bucket;
    uint32_t tag = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t tuple = tuple_of(db, box, step);
        table = find_table(db, tuple);
        if (!table && !(table = new_table(db, tuple)))
            return VFDB_NO_MEMORY;
        tag = tag_of(db, table, box);
        if (place_of(table, tag)->count < db->limit)
            break;
    }
    if (2 * ((size_t)table->buckets + 1) > places(table) && !widen(db, table))
        goto full;
    bucket = place_of(table, tag);
    if (!room_in(db, bucket))
        goto full;
    if (!bucket->tag) {
        bucket->tag = tag;
        table->buckets++;
    }
    uint32_t group, *lane = lane_of(db, bucket, bucket->count, &group);
    for (uint32_t d = 0; d < db->dims; d++, lane += 2 * (size_t)group) {
        lane[0] = box[2 * d];
        lane[group] = box[2 * d + 1] - box[2 * d];
    }
    *lane = priority;
    bucket->count++;
    table->rules++;
    note_least(db, table, priority);
    return VFDB_OK;
full:
    if (!table->rules)
        drop_table(db, table);
    return VFDB_NO_MEMORY;
}

static void drop_bucket(struct merged *db, struct merged_table *table, struct merged_bucket *bucket)
{
    size_t last = places(table) - 1, hole = (size_t)(bucket - table->bucket);
    ledger_give(db->ledger, bucket->lane, lane_bytes(db, bucket->room));
    *bucket = (struct merged_bucket){0};
    table->buckets--;
    /* Move what was put behind the hole because of it. */
    for (size_t at = (hole + 1) & last; table->bucket[at].tag; at = (at + 1) & last) {
        size_t wanted = table->bucket[at].tag >> table->shift;
        if (((at - wanted) & last) >= ((at - hole) & last)) {
            table->bucket[hole] = table->bucket[at];
            table->bucket[at] = (struct merged_bucket){0};
            hole = at;
        }
    }
}

static bool is_rule(const struct merged *db, const struct merged_bucket *bucket, uint32_t rule, const uint32_t *box,
                    uint32_t priority)
{
    uint32_t group;
    const uint32_t *lane = lane_of(db, bucket, rule, &group);
    if (lane[2 * (size_t)db->dims * group] != priority)
        return false;
    for (uint32_t d = 0; d < db->dims; d++, lane += 2 * (size_t)group)
        if (lane[0] != box[2 * d] || lane[group] != box[2 * d + 1] - box[2 * d])
            return false;
    return true;
}

static int merged_remove(void *built, const uint32_t *box, uint32_t priority)
{
    struct merged *db = built;
    for (uint32_t step = 0; step < STEPS; step++) {
        struct merged_table *table = find_table(db, tuple_of(db, box, step));
        if (!table)
            continue;
        struct merged_bucket *bucket = place_of(table, tag_of(db, table, box));
        for (uint32_t i = 0; i < bucket->count; i++) {
            if (!is_rule(db, bucket, i, box, priority))
                continue;
            bucket->count--;
            copy_lane(db, bucket, bucket->count, bucket, i);
            table->rules--;
            if (!bucket->count)
                drop_bucket(db, table, bucket);
            if (!table->rules)
                drop_table(db, table);
            return VFDB_OK;
        }
    }
    return VFDB_ABSENT;
}

enum { LIMIT, SIMD };

static int merged_build(struct ledger *ledger, const struct vfdb_plan *plan, const struct vfdb_rules *rules, void **built)
{
    struct merged *db = ledger_take(ledger, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    db->ledger = ledger;
    db->dims = rules->dims;
    db->limit = (uint32_t)plan->value[LIMIT];
    db->level = level_of(plan->value[SIMD]);
    memcpy(db->bits, rules->bits, rules->dims);
    for (uint32_t i = 0; i < rules->count; i++) {
        int status = merged_insert(db, rules->box + (size_t)i * 2 * rules->dims, rules->priority[i]);
        if (status) {
            merged_free(db);
            return status;
        }
    }
    *built = db;
    return VFDB_OK;
}

const struct vfdb_ops vfdb_merged = {
    .name = "merged",
    .title = "tuple space search with few tables, long buckets: fast updates",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {{"limit", "rules of a bucket from which on longer lengths are tried", 128, 1, 1024},
              {"simd", "bits of the widest vectors that a search may use: 0, 256, 512", 512, 0, 512}},
    .build = merged_build,
    .insert = merged_insert,
    .remove = merged_remove,
    .search = merged_search,
    .free = merged_free,
};
