/* Bit vectors (Lakshman and Stiliadis, SIGCOMM 1998; "Lucent"), with aggregated bits (Baboescu and Varghese,
 * SIGCOMM 2001).
 *
 * Idea: each value of a dimension has the bitmap of the rules that hold it; the first bit that the bitmaps of
 * all dimensions share is the rule.  An aggregated bit is set if a word of the bitmap is not zero, so that
 * only words are read in which all dimensions have some rule.
 * Cost: a search finds a run of values per dimension (a table by the upper 16 bits, then halving), and reads
 * n/64 words per dimension, or n/4096 aggregated ones and few others.  Memory is quadratic: bitmaps of n bits
 * for up to 2n + 1 runs per dimension; more than *mb* megabytes are VFDB_TOO_LARGE.
 * Invariant: rules are sorted by rising priority, so the first common bit is the best rule.
 * Threading: searches change nothing.
 *
 * Where we differ from the papers: runs with the same rules share one bitmap.  With aggregated bits only the
 * words that are not zero are kept, and their places are counted from the aggregated bits; the second paper
 * keeps whole bitmaps.  It also sorts rules anew to have fewer false hits: not here.
 */
#include <stdlib.h>
#include <string.h>

#include "scope.h"
#include "rule_sets.h"
#include "endpoints.h"
#include "budget.h"
#include "vfdb.h"

enum {
    TABLE_BITS = 16,
    BLOCK = 16 /* headers whose bitmaps are found, and fetched, before the first is read */
};

/* One dimension.  *some* and *before* have a row of *tops* per class, with aggregated bits only. */
struct dimension_bitmaps {
    uint32_t shift;   /* of a value, to its place in the table */
    uint32_t mask;    /* places, less one: no value of a header leads out of the table */
    uint32_t *run;    /* [places + 1] the run that holds the first value of each place */
    uint32_t *start;  /* [runs] first value */
    uint32_t *class;  /* [runs] */
    uint64_t *word;   /* bitmaps; without aggregated bits [classes][words] */
    uint64_t *some;   /* [classes][tops] a bit for each word that is kept */
    size_t *before;   /* [classes][tops] words kept before those of this aggregated word */
};

struct bit_vector {
    struct budget *budget;
    struct scope scope;
    uint32_t dims, rules, words, tops;
    bool aggregated;
    struct dimension_bitmaps bitmaps[VFDB_DIMS];
    uint32_t *priority;
};

struct dimension_sweep {
    struct scope scope;
    struct rule_sets sets;
    uint32_t runs, *start, *class;
};

static void bit_vector_free(void *built)
{
    struct bit_vector *db = built;
    struct budget *budget = db->budget;
    scope_empty(&db->scope);
    budget_give(budget, db, sizeof *db);
}

/* The runs of values with the same rules. */
static int sweep(const struct vfdb_rules *rules, uint32_t dim, size_t most_words,
                 struct dimension_sweep *sweep)
{
    uint64_t *endpoint;
    uint32_t endpoints, all = rules->count / 64 + 1;
    int status = endpoints_sorted(&sweep->scope, rules, dim, &endpoint, &endpoints);
    if (status)
        return status;
    uint64_t *dense = scope_take(&sweep->scope, all * sizeof *dense),
             *bits = scope_take(&sweep->scope, all * sizeof *bits);
    uint32_t *at = scope_take(&sweep->scope, all * sizeof *at);
    sweep->start = scope_take(&sweep->scope, (endpoints + (size_t)1) * sizeof *sweep->start);
    sweep->class = scope_take(&sweep->scope, (endpoints + (size_t)1) * sizeof *sweep->class);
    if (!dense || !bits || !at || !sweep->start || !sweep->class ||
        rule_sets_start(&sweep->sets, &sweep->scope))
        return VFDB_NO_MEMORY;
    for (uint32_t i = 0, value = 0;; value = endpoint_value(endpoint[i])) {
        for (; i < endpoints && endpoint_value(endpoint[i]) == value; i++)
            dense[endpoint_box(endpoint[i]) / 64] ^= UINT64_C(1) << endpoint_box(endpoint[i]) % 64;
        uint32_t words = 0;
        uint64_t hash = 0;
        for (uint32_t w = 0; w < all; w++)
            if (dense[w]) {
                at[words] = w;
                bits[words++] = dense[w];
                hash += rule_sets_mix(w, dense[w]);
            }
        sweep->start[sweep->runs] = value;
        sweep->class[sweep->runs] = rule_sets_number(&sweep->sets, at, bits, words, hash);
        if (sweep->class[sweep->runs++] == RULE_SETS_NO_MEMORY)
            return VFDB_NO_MEMORY;
        if (sweep->sets.first[sweep->sets.count] > most_words)
            return VFDB_TOO_LARGE;
        if (i == endpoints)
            return VFDB_OK;
    }
}

/* The bitmaps, one behind the other. */
static int lay_bitmaps(struct bit_vector *db, const struct rule_sets *sets, size_t most_words,
                       struct dimension_bitmaps *bitmaps)
{
    size_t rows = sets->count, words = db->aggregated ? sets->first[rows] : rows * db->words;
    if (words + db->tops * rows * db->aggregated > most_words)
        return VFDB_TOO_LARGE;
    bitmaps->word = scope_take(&db->scope, words * sizeof *bitmaps->word);
    if (db->aggregated) {
        bitmaps->some = scope_take(&db->scope, rows * db->tops * sizeof *bitmaps->some);
        bitmaps->before = scope_take(&db->scope, rows * db->tops * sizeof *bitmaps->before);
    }
    if (!bitmaps->word || (db->aggregated && (!bitmaps->some || !bitmaps->before)))
        return VFDB_NO_MEMORY;
    if (db->aggregated && words)
        memcpy(bitmaps->word, sets->bits, words * sizeof *bitmaps->word);
    for (uint32_t i = 0; i < rows; i++) {
        size_t w = sets->first[i], end = sets->first[i + 1];
        if (!db->aggregated)
            for (; w < end; w++)
                bitmaps->word[i * (size_t)db->words + sets->at[w]] = sets->bits[w];
        else
            for (uint32_t top = 0; top < db->tops; top++) {
                bitmaps->before[i * (size_t)db->tops + top] = w;
                for (; w < end && sets->at[w] / 64 == top; w++)
                    bitmaps->some[i * (size_t)db->tops + top] |= UINT64_C(1) << sets->at[w] % 64;
            }
    }
    return VFDB_OK;
}

static int bitmaps_build(struct bit_vector *db, const struct vfdb_rules *rules, uint32_t dim,
                         size_t most_words)
{
    struct dimension_bitmaps *bitmaps = &db->bitmaps[dim];
    struct dimension_sweep sweep_result = {.scope.budget = db->budget};
    uint32_t bits = rules->bits[dim], places = 1U << (bits < TABLE_BITS ? bits : TABLE_BITS);
    int status = sweep(rules, dim, most_words, &sweep_result);
    bitmaps->shift = bits < TABLE_BITS ? 0 : bits - TABLE_BITS;
    bitmaps->mask = places - 1;
    if (!status) {
        bitmaps->run = scope_take(&db->scope, (places + (size_t)1) * sizeof *bitmaps->run);
        bitmaps->start = scope_take(&db->scope, sweep_result.runs * sizeof *bitmaps->start);
        bitmaps->class = scope_take(&db->scope, sweep_result.runs * sizeof *bitmaps->class);
        status = bitmaps->run && bitmaps->start && bitmaps->class ? lay_bitmaps(db, &sweep_result.sets,
                                                                                most_words, bitmaps)
                                                                  : VFDB_NO_MEMORY;
    }
    if (!status) {
        memcpy(bitmaps->start, sweep_result.start, sweep_result.runs * sizeof *bitmaps->start);
        memcpy(bitmaps->class, sweep_result.class, sweep_result.runs * sizeof *bitmaps->class);
        for (uint32_t place = 0, run = 0; place < places; place++) {
            while (run + 1 < sweep_result.runs && sweep_result.start[run + 1] <= place << bitmaps->shift)
                run++;
            bitmaps->run[place] = run;
        }
        bitmaps->run[places] = sweep_result.runs - 1;
    }
    scope_empty(&sweep_result.scope);
    return status;
}

static int bit_vector_build(struct budget *budget, const struct vfdb_plan *plan,
                            const struct vfdb_rules *rules, void **built)
{
    struct bit_vector *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    *db = (struct bit_vector){.budget = budget,
                              .scope.budget = budget,
                              .dims = rules->dims,
                              .rules = rules->count,
                              .words = (rules->count + 63) / 64,
                              .aggregated = plan->value[0]};
    db->tops = (db->words + 63) / 64;
    db->priority = scope_take(&db->scope, rules->count * sizeof *db->priority);
    int status = db->priority ? VFDB_OK : VFDB_NO_MEMORY;
    for (uint32_t d = 0; status == VFDB_OK && d < db->dims; d++)
        status = bitmaps_build(db, rules, d, ((size_t)plan->value[1] << 20) / sizeof(uint64_t) / db->dims);
    if (status) {
        bit_vector_free(db);
        return status;
    }
    if (rules->count)
        memcpy(db->priority, rules->priority, rules->count * sizeof *db->priority);
    *built = db;
    return VFDB_OK;
}

static inline uint32_t class_of(const struct dimension_bitmaps *bitmaps, uint32_t value)
{
    uint32_t place = value >> bitmaps->shift & bitmaps->mask, low = bitmaps->run[place],
             high = bitmaps->run[place + 1];
    while (low < high) {
        uint32_t middle = high - (high - low) / 2;
        if (bitmaps->start[middle] <= value)
            low = middle;
        else
            high = middle - 1;
    }
    return bitmaps->class[low];
}

/* The first rule that the bitmaps of all dimensions have, or the number of rules. */
static inline __attribute__((always_inline)) uint32_t
first_plain(const struct bit_vector *db, const uint32_t *class, struct vfdb_work *work)
{
    for (uint32_t w = 0; w < db->words; w++) {
        uint64_t all = UINT64_MAX;
        if (work)
            work->lists++;
        for (uint32_t d = 0; all && d < db->dims; d++)
            all &= db->bitmaps[d].word[class[d] * (size_t)db->words + w];
        if (all)
            return w * 64 + (uint32_t)__builtin_ctzll(all);
    }
    return db->rules;
}

static inline __attribute__((always_inline)) uint32_t
first_aggregated(const struct bit_vector *db, const uint32_t *class, struct vfdb_work *work)
{
    for (uint32_t top = 0; top < db->tops; top++) {
        uint64_t some = UINT64_MAX;
        if (work)
            work->nodes++;
        for (uint32_t d = 0; d < db->dims; d++)
            some &= db->bitmaps[d].some[class[d] * (size_t)db->tops + top];
        for (; some; some &= some - 1) {
            uint64_t below = (some & -some) - 1, all = UINT64_MAX;
            if (work)
                work->lists++;
            for (uint32_t d = 0; all && d < db->dims; d++) {
                size_t row = class[d] * (size_t)db->tops + top;
                uint32_t passed = (uint32_t)__builtin_popcountll(db->bitmaps[d].some[row] & below);
                all &= db->bitmaps[d].word[db->bitmaps[d].before[row] + passed];
            }
            if (all)
                return (top * 64 + (uint32_t)__builtin_ctzll(some)) * 64 + (uint32_t)__builtin_ctzll(all);
        }
    }
    return db->rules;
}

static inline __attribute__((always_inline)) void search_blocks(const struct bit_vector *db,
                                                                const uint32_t *headers, size_t count,
                                                                uint32_t *answers, struct vfdb_work *work)
{
    uint32_t class[BLOCK][VFDB_DIMS];
    for (size_t done = 0; done < count; done += BLOCK) {
        uint32_t some = count - done < BLOCK ? (uint32_t)(count - done) : BLOCK;
        for (uint32_t i = 0; i < some; i++)
            for (uint32_t d = 0; d < db->dims; d++) {
                const struct dimension_bitmaps *bitmaps = &db->bitmaps[d];
                class[i][d] = class_of(bitmaps, headers[(done + i) * db->dims + d]);
                if (db->aggregated) {
                    __builtin_prefetch(bitmaps->some + class[i][d] * (size_t)db->tops);
                    __builtin_prefetch(bitmaps->before + class[i][d] * (size_t)db->tops);
                } else {
                    __builtin_prefetch(bitmaps->word + class[i][d] * (size_t)db->words);
                }
            }
        for (uint32_t i = 0; i < some; i++) {
            struct vfdb_work *mine = work ? work + done + i : NULL;
            uint32_t rule =
                db->aggregated ? first_aggregated(db, class[i], mine) : first_plain(db, class[i], mine);
            answers[done + i] = rule < db->rules ? db->priority[rule] : VFDB_NONE;
        }
    }
}

#ifdef __x86_64__
/* Counting bits takes one instruction where the processor has it. */
static __attribute__((target("popcnt"))) void search_popcnt(const struct bit_vector *db,
                                                            const uint32_t *headers, size_t count,
                                                            uint32_t *answers)
{
    search_blocks(db, headers, count, answers, NULL);
}
#endif

static int bit_vector_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("popcnt")) {
        search_popcnt(built, headers, count, answers);
        return VFDB_OK;
    }
#endif
    search_blocks(built, headers, count, answers, NULL);
    return VFDB_OK;
}

/* Lists are words of 64 rules that all dimensions are asked for, nodes are words of aggregated bits. */
static int bit_vector_search_counted(const void *built, const uint32_t *headers, size_t count,
                                     uint32_t *answers, struct vfdb_work *work)
{
    search_blocks(built, headers, count, answers, work);
    return VFDB_OK;
}

const struct vfdb_ops vfdb_bit_vector = {
    .name = "bit_vector",
    .title = "bitmaps of rules per dimension, with aggregated bits (Lucent)",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {{"aggregated", "1: words of zeros are not kept; 0: whole bitmaps", 1, 0, 1},
              {"mb", "megabytes of bitmaps at most", 1024, 1, 1 << 20}},
    .build = bit_vector_build,
    .search = bit_vector_search,
    .search_counted = bit_vector_search_counted,
    .free = bit_vector_free,
};
