/* Split product: rules found by their narrower address, or by both.
 *
 * Idea: a rule whose source is narrow is in the buckets of those source addresses; else, if its
 * destination is narrow, in the buckets of its destination; a rule that is wide in both is found in a product
 * table of source classes by destination classes, each cell of which refers to a list.  So rules wide in one
 * address are never copied against rules wide in the other, and each of the three parts is small.  All other
 * dimensions become one *kind* of packet, found in a product of small tables, and a row of bits lists which
 * *services* (distinct intervals of rules beyond the addresses) match that kind.  Buckets and lists hold
 * rules best first, 16 or 32 of which are compared at a time with AVX-512.  Rules that leave both addresses
 * open are in none of these: each kind has the best of them.  Where it is cheaper, all rules are in one
 * product table, or in two.
 * Cost: a search reads about four cache lines per address and part, whatever the number of rules, as long as
 * narrow intervals overlap little; a build sweeps over the ends of the rules and writes the buckets.  The
 * split is chosen by counting what each would write.
 * Bounds: the pool of lists, and of each address, holds 2^26 words.
 * Invariant: rules of a bucket or list that an earlier one covers are left out; boxes are numbered by rising
 * priority, so the least number found is the answer.
 * Threading: searches change nothing.
 */
#include "split_product_internal.h"

#include <math.h>
#include <string.h>

#include "endpoints.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#endif

static bool fits(const struct split_product *db, uint32_t number, const uint32_t *header)
{
    uint32_t dims = db->dims - 2;
    const uint32_t *side = db->rest + (size_t)number * 2 * dims;
    for (uint32_t d = 0; d < dims; d++)
        if (header[d + 2] < side[2 * d] || header[d + 2] > side[2 * d + 1])
            return false;
    return true;
}

#define LEVEL 0
#define TARGET
#define NAME(x) x##_plain
#include "split_product_search.h"
#undef LEVEL
#undef TARGET
#undef NAME

#ifdef HAVE_X86
#define LEVEL 256
#define TARGET __attribute__((target("avx2,popcnt,bmi,bmi2")))
#define NAME(x) x##_avx2
#include "split_product_search.h"
#undef LEVEL
#undef TARGET
#undef NAME

#define LEVEL 512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,popcnt,bmi,bmi2")))
#define NAME(x) x##_avx512
#include "split_product_search.h"
#undef LEVEL
#undef TARGET
#undef NAME
#endif

const uint32_t *address_map_leaf(const struct address_map *map, uint32_t value)
{
    return leaf_plain(map, address_map_root(map, value), value);
}

static int split_product_find(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    const struct split_product *db = built;
#ifdef HAVE_X86
    if (db->level == 512)
        search_avx512(db, headers, count, answers);
    else if (db->level == 256)
        search_avx2(db, headers, count, answers);
    else
#endif
        search_plain(db, headers, count, answers);
    return VFDB_OK;
}

/* How many rules of a list are read until rule *found*, or to its end. */
static uint32_t read_of_list(const struct split_product *db, uint32_t reference, uint32_t found)
{
    const uint32_t *at = db->pool + (reference >> 6);
    uint32_t rules = reference & 63;
    if (rules == SPLIT_LONG)
        rules = *at++;
    const uint32_t *number = at + (rules + 1) / 2;
    for (uint32_t lane = 0; lane < rules; lane++)
        if (number[lane] == found)
            return lane + 1;
    return rules;
}

/* The same of a bucket, which is parts of 16 rules. */
static uint32_t read_of_bucket(const struct split_product *db, uint32_t reference, uint32_t found)
{
    const uint32_t *at = db->pool + (reference >> 6);
    uint32_t rules = reference & 63, read = 0;
    if (rules == SPLIT_LONG)
        rules = *at++;
    for (uint32_t now; rules; rules -= now) {
        now = rules < 16 ? rules : 16;
        const uint32_t *number = at + 2 * now + (now + 1) / 2;
        for (uint32_t lane = 0; lane < now; lane++, read++)
            if (number[lane] == found)
                return read + 1;
        at += 3 * now + (now + 1) / 2 + 1;
    }
    return read;
}

/* One header: what a search reads without vectors, which read up to 32 rules at once. */
static uint32_t find_counted(const struct split_product *db, const uint32_t *header, struct vfdb_work *work)
{
    uint32_t dims = db->dims, destination = dims > 1 ? header[1] : 0, best = VFDB_NONE;
    const uint32_t *x = address_map_leaf(&db->map[0], header[0]);
    const uint32_t *y = address_map_leaf(&db->map[1], destination);
    size_t kind = 0;
    for (uint32_t d = 2; d < dims; d++)
        kind = kind * db->class[d - 2].classes + value_class(&db->class[d - 2], header[d]);
    kind = db->kind[kind];
    best = db->open[kind];
    const uint32_t *row = db->row + (size_t)SPLIT_ROW * kind;
    /* maps, classes, kind, row, answer by kind, cells */
    work->nodes += 5 + dims - (dims > 2 ? 2 : dims) + db->products;
    for (uint32_t source = 0; source < 2; source++) {
        if (source ? !db->by_destination : !db->by_source)
            continue;
        uint32_t reference = source ? y[0] : x[0], other = source ? header[0] : destination;
        uint32_t found = bucket_plain(db, reference, other, row, header, db->checks);
        work->lists++;
        work->rules += read_of_bucket(db, reference, found);
        best = found < best ? found : best;
    }
    for (uint32_t product = 0; product < 1U + db->products; product++) {
        if (db->answer) {
            uint32_t found = db->answer[db->cell[(size_t)x[1] + y[1]] + kind];
            work->nodes++;
            best = found < best ? found : best;
            continue;
        }
        uint32_t side = !product;
        uint32_t reference = db->product[product].list[(size_t)x[side] + y[side]];
        uint32_t found = list_plain(db, reference, row, header, db->checks);
        work->lists++;
        work->rules += read_of_list(db, reference, found);
        best = found < best ? found : best;
    }
    return db->numbered || best == VFDB_NONE ? best : db->priority[best];
}

static int split_product_find_counted(const void *built, const uint32_t *headers, size_t count,
                                      uint32_t *answers, struct vfdb_work *work)
{
    const struct split_product *db = built;
    for (size_t i = 0; i < count; i++)
        answers[i] = find_counted(db, headers + i * db->dims, work + i);
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

enum { SPLIT, NARROW, SIMD, MEMORY, TABULAR = SPLIT_TABULAR };

/* How the rules are shared out. */
enum split {
    BY_COST,             /* the cheapest of those that follow */
    ONE_PRODUCT,
    TWO_PRODUCTS,        /* narrow sources, the others */
    SOURCES,             /* buckets for narrow sources, a product for the others */
    DESTINATIONS,
    SOURCES_FIRST,       /* buckets for narrow sources, for narrow destinations, a product */
    DESTINATIONS_FIRST,
    SPLITS,
    OPEN_SIDES = SPLIT_OPEN_SIDES
};

/* Whether a rule leaves dimension d open. */
static bool is_open(const struct split_product_builder *b, uint32_t rule, uint32_t d)
{
    return d >= b->rules->dims ||
           (!side(b->rules, rule, d, 0) && side(b->rules, rule, d, 1) == dim_top(b->rules, d));
}

/* How narrow a side is: the bits that it leaves free, less than there are, as if of 32. */
static uint32_t narrowness(const struct split_product_builder *b, uint32_t rule, uint32_t d)
{
    if (d >= b->rules->dims)
        return 0;
    uint32_t spread = side(b->rules, rule, d, 1) - side(b->rules, rule, d, 0);
    uint32_t open = spread ? 32 - (uint32_t)__builtin_clz(spread) : 0;
    return (b->rules->bits[d] - open) * 32 / b->rules->bits[d];
}

static void share_out_open(struct split_product_builder *b)
{
    static const enum part parts[2][2] = {{CROSS, BY_SOURCE}, {BY_DESTINATION, OPEN}};
    for (uint32_t i = 0; i < b->rules->count; i++)
        b->part[i] = (uint8_t)parts[is_open(b, i, 0)][is_open(b, i, 1)];
}

static void share_out(struct split_product_builder *b, enum split how, uint32_t narrow)
{
    if (how == OPEN_SIDES) {
        share_out_open(b);
        return;
    }
    for (uint32_t i = 0; i < b->rules->count; i++) {
        bool source = narrowness(b, i, 0) >= narrow, destination = narrowness(b, i, 1) >= narrow;
        enum part part = CROSS;
        if (how == TWO_PRODUCTS)
            part = source ? CROSS : CROSS_TOO;
        else if (destination && (how == DESTINATIONS || how == DESTINATIONS_FIRST))
            part = BY_DESTINATION;
        else if (source && (how == SOURCES || how == SOURCES_FIRST || how == DESTINATIONS_FIRST))
            part = BY_SOURCE;
        else if (destination && how == SOURCES_FIRST)
            part = BY_DESTINATION;
        else if (how >= SOURCES && is_open(b, i, 0) && is_open(b, i, 1))
            part = OPEN;
        b->part[i] = (uint8_t)part;
    }
}

/* The rules of the class that a packet meets which is made from a rule: long ones as often as they are long.
 */
static double usual_length(const struct range_classes *classes)
{
    return classes->pairs ? (double)classes->squares / (double)classes->pairs : 0;
}

/* Nanoseconds of a search, about, as the rules are shared out now; measured in `make bench-engine`'s first
 * runs, where a list or bucket of 16 took 4 and a line from beyond the second-level cache 3.  Infinite
 * where the build would take too long, or more than *memory* bytes. */
static double estimate(struct split_product_builder *b, double memory)
{
    uint32_t rules[PARTS] = {0};
    double bytes = 4 * 65536 * 2, cost = 10,
           left = 1e8 + 1e4 * b->rules->count; /* nanoseconds of a build that there may be */
    for (uint32_t i = 0; i < b->rules->count; i++)
        rules[b->part[i]]++;
    for (uint32_t part = 0; part < PARTS && !b->memory.status; part++) {
        size_t pieces = b->memory.scope.pieces;
        struct range_classes classes[2];
        if (!rules[part] || part == OPEN)
            continue;
        bool bucket = part == BY_SOURCE || part == BY_DESTINATION;
        for (uint32_t k = 0; k < 2; k++)
            if (!bucket || k == (part == BY_DESTINATION))
                axis_classify(b, &b->axis[k], 1U << part, &classes[bucket ? 0 : k]);
        if (bucket) {
            cost += 4 + usual_length(&classes[0]) / 4 + (classes[0].pairs > 100000 ? 3 : 0);
            left -= 30 * (double)classes[0].pairs;
            bytes += 16 * (double)classes[0].pairs + 20 * (double)classes[0].count;
        } else {
            /* A list is as long as two independent classes have rules in common. */
            double cells = (double)classes[0].count * classes[1].count;
            double length =
                rules[part] ? usual_length(&classes[0]) * usual_length(&classes[1]) / rules[part] : 0;
            cost += (part == CROSS_TOO) * 2 + length / 16 + (cells > 2.5e5) + (cells > 2e6 ? 2 : 0) +
                    (cells > 8e6 ? 6 : 0);
            left -= 2 * cells + (200 + 4 * length) * (double)classes[0].pairs;
            bytes += 4 * cells + 6 * length * (double)classes[0].pairs;
        }
        give_back(&b->memory, pieces);
    }
    return left < 0 || (memory > 0 && bytes > memory) ? INFINITY : cost;
}

static void choose_split(struct split_product_builder *b, enum split how, uint32_t narrow, double memory)
{
    static const uint8_t narrows[] = {16, 8, 12, 20, 24};
    /* Each estimate takes a few sweeps; large sets are not that different. */
    uint32_t tried = b->rules->count < 20000 ? sizeof narrows : 2;
    double least = INFINITY;
    enum split best = SPLITS;
    uint32_t best_narrow = narrow;
    if (how != BY_COST) {
        share_out(b, how, narrow);
        if (isinf(estimate(b, memory)) && !b->memory.status)
            b->memory.status = VFDB_TOO_LARGE;
        return;
    }
    for (how = ONE_PRODUCT; how < SPLITS; how++)
        for (uint32_t i = 0; i < (how == ONE_PRODUCT ? 1 : tried) && !b->memory.status; i++) {
            share_out(b, how, narrows[i]);
            double cost = estimate(b, memory);
            if (cost < least) {
                least = cost;
                best = how;
                best_narrow = narrows[i];
            }
        }
    if (best == SPLITS && !b->memory.status)
        b->memory.status = VFDB_TOO_LARGE;
    else
        share_out(b, best, best_narrow);
}

static void split_product_free(void *built)
{
    struct split_product *db = built;
    for (uint32_t k = 0; k < 2; k++) {
        budget_give(db->budget, db->map[k].root, db->map[k].roots * sizeof *db->map[k].root);
        budget_give(db->budget, db->map[k].pool, db->map[k].room * sizeof *db->map[k].pool);
        budget_give(db->budget, db->product[k].list, db->product[k].cells * sizeof *db->product[k].list);
    }
    for (uint32_t d = 0; d + 2 < db->dims; d++)
        budget_give(db->budget, db->class[d].of, db->class[d].bytes);
    budget_give(db->budget, db->kind, db->combinations * sizeof *db->kind);
    budget_give(db->budget, db->row, (size_t)db->kinds * SPLIT_ROW * sizeof *db->row);
    budget_give(db->budget, db->open, db->kinds * sizeof *db->open);
    budget_give(db->budget, db->answer, db->answers * sizeof *db->answer);
    budget_give(db->budget, db->cell, db->product[0].cells * sizeof *db->cell);
    budget_give(db->budget, db->pool, db->room * sizeof *db->pool);
    budget_give(db->budget, db->priority, db->count * sizeof *db->priority);
    budget_give(db->budget, db->rest, (size_t)db->count * (db->dims - 2) * 2 * sizeof *db->rest);
    budget_give(db->budget, db, sizeof *db);
}

static bool are_plain(const struct vfdb_rules *rules)
{
    static const uint8_t bits[] = {32, 32, 16, 16, 8};
    return rules->dims == 5 && !memcmp(rules->bits, bits, sizeof bits);
}

static int split_product_build(struct budget *budget, const struct vfdb_plan *plan,
                               const struct vfdb_rules *rules, void **built)
{
    struct split_product_builder b = {.memory.scope.budget = budget, .rules = rules};
    struct split_product *db = b.db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    *db = (struct split_product){
        .budget = budget, .dims = rules->dims, .count = rules->count, .numbered = true};
    db->plain = are_plain(rules);
    db->level = level_of(plan->value[SIMD]);
    if (rules->count >> 30)
        b.memory.status = VFDB_TOO_LARGE;
    b.part = borrow(&b.memory, rules->count);
    b.key = borrow(&b.memory, 2 * (size_t)rules->count * sizeof *b.key);
    b.spare = borrow(&b.memory, 2 * (size_t)rules->count * sizeof *b.spare);
    for (uint32_t k = 0; k < 2; k++)
        if (!b.memory.status)
            axis_lay(&b, &b.axis[k], k);
    if (!b.memory.status)
        choose_split(&b, (enum split)plan->value[SPLIT], (uint32_t)plan->value[NARROW],
                     (double)plan->value[MEMORY]);
    if (!b.memory.status)
        services_cut(&b);
    if (!b.memory.status && plan->value[TABULAR] && (db->checks || db->combinations > 65536))
        b.memory.status = VFDB_TOO_LARGE;
    if (!b.memory.status)
        open_write(&b);
    if (!b.memory.status)
        parts_write(&b);
    if (!b.memory.status && (db->by_source || db->by_destination) && plan->value[SPLIT] != SPLIT_OPEN_SIDES)
        answers_write(&b);
    for (uint32_t i = 0; i < rules->count; i++)
        db->numbered &= rules->priority[i] == i;
    if (!db->numbered && rules->count)
        db->priority = split_keep(&b, rules->priority, rules->count * sizeof *db->priority);
    scope_empty(&b.memory.scope);
    if (b.memory.status) {
        split_product_free(db);
        return b.memory.status;
    }
    *built = db;
    return VFDB_OK;
}

const struct vfdb_ops vfdb_split_product = {
    .name = "sides",
    .title = "buckets by the narrow side, a product table for what is wide in both",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {{"split", "0 by cost; 1, 2 products; 3, 4 buckets of sources, of destinations; 5, 6 of both", 0,
               0, 6},
              {"narrow", "bits that a narrow side fixes, where split is not by cost", 16, 0, 32},
              {"simd", "bits of the widest vectors that a search may use: 0, 256, 512", 512, 0, 512},
              {"memory", "bytes, about, within which the split by cost keeps; 0: any number", 0, 0,
               INT64_MAX}},
    .build = split_product_build,
    .search = split_product_find,
    .search_counted = split_product_find_counted,
    .free = split_product_free,
};
