/* Tuple space search behind tries (Sahasranaman and Buddhikot, section 2.3; the tuple pruning of Srinivasan,
 * Suri and Varghese, 1999).
 *
 * Idea: a trie per dimension, and at each node a bitmap of the tuples that have a rule with that prefix.  A
 * header's descent in each trie gives the tuples that may hold its rule in that dimension; those in all of
 * them are looked up in their hash tables.
 * Cost: a search takes one descent per dimension, the words of the bitmaps met, and a lookup per tuple left;
 * an update one descent per dimension, for each of up to 2^(stride - 1) nodes that a prefix becomes.  Counts
 * are kept only for tuples whose bit is set, so they are found by counting ones.
 * Invariant: a node's bit is set if a rule of that tuple has that prefix; the count beside it is the number
 * of such rules.  (A bit whose count is 0 may remain where memory did not allow to remove it.)
 * Threading: searches change nothing.
 *
 * Where we differ: there may be any number of dimensions, each with its trie; a range is stored under the
 * smallest prefix that encloses it, and the rule is compared as a whole.  Each tuple has a hash table of its
 * own, and a tuple whose best rule cannot beat the rule found so far is skipped; with table=1 there is the
 * paper's one table, keyed by the tuple's number and its bits, in which every tuple left is looked up.
 */
#include <string.h>

#include "trie.h"
#include "tuple_table.h"
#include "tuples.h"
#include "vfdb_work.h"

/* Headers that descend side by side, so that their cache misses overlap. */
enum { BLOCK = 16, LEVELS = 33 };

/* The payload of a node: *block* has words of bits, then ones counts. */
struct length_mark {
    uint64_t *block;
    uint32_t words, ones;
};

struct tss_tries {
    struct tuples tuples;
    struct tuple_table table; /* of all tuples, if they are bare */
    struct trie *trie[VFDB_DIMS];
};

/* -- marks ------------------------------------------------------------------------------------ */

static size_t mark_bytes(uint32_t words, uint32_t ones)
{
    return words * sizeof(uint64_t) + ones * sizeof(uint32_t);
}

static uint32_t *counts(const struct length_mark *mark)
{
    return (uint32_t *)(mark->block + mark->words);
}

static bool has(const struct length_mark *mark, uint32_t number)
{
    return number / 64 < mark->words && mark->block[number / 64] >> number % 64 & 1;
}

/* Ones before that bit. */
static uint32_t rank(const struct length_mark *mark, uint32_t number)
{
    uint32_t before = 0;
    for (uint32_t w = 0; w < number / 64 && w < mark->words; w++)
        before += trie_ones(mark->block[w], TRIE_BITMAP);
    if (number / 64 < mark->words)
        before += trie_ones(mark->block[number / 64] & ((UINT64_C(1) << number % 64) - 1), TRIE_BITMAP);
    return before;
}

static bool count_in(struct budget *budget, struct length_mark *mark, uint32_t number)
{
    uint32_t at = rank(mark, number);
    if (!has(mark, number)) {
        uint32_t words = number / 64 < mark->words ? mark->words : number / 64 + 1;
        struct length_mark more = {budget_take(budget, mark_bytes(words, mark->ones + 1)), words,
                                   mark->ones + 1};
        if (!more.block)
            return false;
        if (mark->block) {
            memcpy(more.block, mark->block, mark->words * sizeof *mark->block);
            memcpy(counts(&more), counts(mark), at * sizeof(uint32_t));
            memcpy(counts(&more) + at + 1, counts(mark) + at, (mark->ones - at) * sizeof(uint32_t));
        }
        more.block[number / 64] |= UINT64_C(1) << number % 64;
        budget_give(budget, mark->block, mark_bytes(mark->words, mark->ones));
        *mark = more;
    }
    counts(mark)[at]++;
    return true;
}

static void count_out(struct budget *budget, struct length_mark *mark, uint32_t number)
{
    uint32_t at = rank(mark, number), words = mark->words;
    if (--counts(mark)[at])
        return;
    if (mark->ones == 1) {
        budget_give(budget, mark->block, mark_bytes(mark->words, mark->ones));
        *mark = (struct length_mark){0};
        return;
    }
    uint64_t last = mark->block[words - 1];
    if (number / 64 == words - 1)
        last &= ~(UINT64_C(1) << number % 64);
    while (!last)
        last = mark->block[--words - 1];
    struct length_mark less = {budget_take(budget, mark_bytes(words, mark->ones - 1)), words, mark->ones - 1};
    if (!less.block)
        return;
    memcpy(less.block, mark->block, words * sizeof *mark->block);
    if (number / 64 < words)
        less.block[number / 64] &= ~(UINT64_C(1) << number % 64);
    memcpy(counts(&less), counts(mark), at * sizeof(uint32_t));
    memcpy(counts(&less) + at, counts(mark) + at + 1, (less.ones - at) * sizeof(uint32_t));
    budget_give(budget, mark->block, mark_bytes(mark->words, mark->ones));
    *mark = less;
}

/* The box leaves the marks of dimensions before *dims*, and *some* of the nodes of that one. */
static void unmark(struct tss_tries *db, const uint32_t *box, const uint8_t *length, uint32_t number,
                   uint32_t dims, uint32_t some)
{
    for (uint32_t d = 0; d < db->tuples.dims && d <= dims; d++) {
        struct trie_span span = trie_span(db->trie[d], box[2 * d], length[d]);
        for (uint32_t i = 0; i < span.count && (d < dims || i < some); i++) {
            uint64_t key = span.first + i * span.step;
            count_out(db->tuples.budget, trie_reach(db->trie[d], key, span.level, false), number);
            trie_prune(db->trie[d], key, span.level);
        }
    }
}

static bool mark(struct tss_tries *db, const uint32_t *box, const uint8_t *length, uint32_t number)
{
    for (uint32_t d = 0; d < db->tuples.dims; d++) {
        struct trie_span span = trie_span(db->trie[d], box[2 * d], length[d]);
        for (uint32_t i = 0; i < span.count; i++) {
            uint64_t key = span.first + i * span.step;
            struct length_mark *node = trie_reach(db->trie[d], key, span.level, true);
            if (!node || !count_in(db->tuples.budget, node, number)) {
                trie_prune(db->trie[d], key, span.level);
                unmark(db, box, length, number, d, i);
                return false;
            }
        }
    }
    return true;
}

/* -- build ------------------------------------------------------------------------------------ */

static int tss_tries_insert(void *built, const uint32_t *box, uint32_t priority);

static void drop_mark(void *owner, void *payload)
{
    struct length_mark *node = payload;
    budget_give(owner, node->block, mark_bytes(node->words, node->ones));
}

static void tss_tries_free(void *built)
{
    struct tss_tries *db = built;
    for (uint32_t d = 0; d < db->tuples.dims; d++)
        trie_free(db->trie[d], drop_mark, db->tuples.budget);
    tuple_table_close(&db->table, db->tuples.budget);
    tuples_close(&db->tuples);
    budget_give(db->tuples.budget, db, sizeof *db);
}

static int tss_tries_build(struct budget *budget, const struct vfdb_plan *plan,
                           const struct vfdb_rules *rules, void **built)
{
    struct tss_tries *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    int status = tuples_open(&db->tuples, budget, rules);
    if (status) {
        budget_give(budget, db, sizeof *db);
        return status;
    }
    uint32_t stride = (uint32_t)plan->value[0];
    db->tuples.bare = plan->value[2];
    if (db->tuples.bare && !tuple_table_open(&db->table, budget))
        status = VFDB_NO_MEMORY;
    for (uint32_t d = 0; d < rules->dims && status == VFDB_OK; d++) {
        db->trie[d] = trie_new(budget, rules->bits[d], stride, (enum trie_form)plan->value[1],
                               sizeof(struct length_mark));
        status = db->trie[d] ? VFDB_OK : VFDB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < rules->count && status == VFDB_OK; i++)
        status = tss_tries_insert(db, rules->box + (size_t)i * 2 * rules->dims, rules->priority[i]);
    if (status)
        tss_tries_free(db);
    else
        *built = db;
    return status;
}

/* -- updates ---------------------------------------------------------------------------------- */

static bool put(struct tss_tries *db, struct tuple *tuple, const uint32_t *key, const uint32_t *box,
                uint32_t priority)
{
    return db->tuples.bare ? tuple_table_put(&db->table, &db->tuples, tuple, key, box, priority)
                           : tuple_put(&db->tuples, tuple, key, box, priority);
}

static bool drop(struct tss_tries *db, struct tuple *tuple, const uint32_t *key, const uint32_t *box,
                 uint32_t priority)
{
    return db->tuples.bare ? tuple_table_drop(&db->table, &db->tuples, tuple, key, box, priority)
                           : tuple_drop(&db->tuples, tuple, key, box, priority);
}

static int tss_tries_insert(void *built, const uint32_t *box, uint32_t priority)
{
    struct tss_tries *db = built;
    uint8_t length[VFDB_DIMS];
    uint32_t key[VFDB_DIMS];
    tuples_lengths(&db->tuples, box, length);
    tuples_key(&db->tuples, box, 2, key);
    struct tuple *tuple = tuples_have(&db->tuples, length);
    if (!tuple)
        return VFDB_NO_MEMORY;
    uint32_t number = tuple->number;
    if (!put(db, tuple, key, box, priority))
        return VFDB_NO_MEMORY;
    if (mark(db, box, length, number))
        return VFDB_OK;
    drop(db, tuple, key, box, priority);
    return VFDB_NO_MEMORY;
}

static int tss_tries_remove(void *built, const uint32_t *box, uint32_t priority)
{
    struct tss_tries *db = built;
    uint8_t length[VFDB_DIMS];
    uint32_t key[VFDB_DIMS];
    tuples_lengths(&db->tuples, box, length);
    tuples_key(&db->tuples, box, 2, key);
    struct tuple *tuple = tuples_find(&db->tuples, length);
    if (!tuple)
        return VFDB_ABSENT;
    uint32_t number = tuple->number;
    if (!drop(db, tuple, key, box, priority))
        return VFDB_ABSENT;
    unmark(db, box, length, number, db->tuples.dims, 0);
    return VFDB_OK;
}

/* -- search ----------------------------------------------------------------------------------- */

/* The marks that each header meets on its ways down. */
struct ways {
    uint32_t count[VFDB_DIMS][BLOCK];
    const struct length_mark *mark[VFDB_DIMS][BLOCK][LEVELS];
};

VFDB_BODY void go_down(const struct tss_tries *db, const uint32_t *headers, uint32_t count, struct ways *ways,
                       struct vfdb_work *work, bool counted)
{
    uint32_t dims = db->tuples.dims;
    for (uint32_t d = 0; d < dims; d++) {
        const struct trie *trie = db->trie[d];
        const void *node[BLOCK];
        uint32_t on = count;
        for (uint32_t i = 0; i < count; i++) {
            node[i] = trie->root;
            ways->count[d][i] = 0;
        }
        for (uint32_t level = 0; on; level++) {
            on = 0;
            for (uint32_t i = 0; i < count; i++) {
                if (!node[i])
                    continue;
                if (counted)
                    work[i].nodes++;
                const struct length_mark *met = trie_payload(trie, node[i]);
                ways->mark[d][i][ways->count[d][i]] = met;
                ways->count[d][i] += met->block != NULL;
                uint64_t key = trie_key(trie, headers[i * dims + d]);
                node[i] =
                    level < trie->levels ? trie_child(trie, node[i], trie_digit(trie, key, level)) : NULL;
                on += node[i] != NULL;
            }
        }
    }
}

/* The tuples from 64 * word on that all dimensions have met. */
static uint64_t candidates(const struct ways *ways, uint32_t dims, uint32_t i, uint32_t word)
{
    uint64_t all = UINT64_MAX;
    for (uint32_t d = 0; d < dims && all; d++) {
        uint64_t any = 0;
        for (uint32_t m = 0; m < ways->count[d][i]; m++) {
            const struct length_mark *met = ways->mark[d][i][m];
            any |= word < met->words ? met->block[word] : 0;
        }
        all &= any;
    }
    return all;
}

/* *work* NULL: not counted. */
VFDB_BODY uint32_t look_up(const struct tuples *tuples, const struct tuple *tuple, const uint32_t *key,
                           const uint32_t *header, uint32_t best, struct vfdb_work *work)
{
    uint32_t hash = tuple_hash(tuple, key), slot = tuple_slot(tuple, hash);
    if (work) {
        work->tuples++;
        work->hashes++;
    }
    if (!tuple_may(tuple->filter[slot], hash))
        return best;
    if (work)
        work->lists++;
    for (const struct tuple_rule *rule = tuple->head[slot]; rule && rule->priority < best;
         rule = rule->next) {
        if (work)
            work->rules++;
        if (rule_matches(rule, header, tuples->dims))
            return rule->priority;
    }
    return best;
}

/* The same in the one table of all tuples. */
VFDB_BODY uint32_t look_up_shared(const struct tss_tries *db, const struct tuple *tuple, const uint32_t *key,
                                  const uint32_t *header, uint32_t best, struct vfdb_work *work)
{
    uint32_t hash = tuple_table_hash(tuple, key);
    const struct tuple_rule *rule = db->table.head[hash >> db->table.shift];
    if (work) {
        work->tuples++;
        work->hashes++;
        work->lists += rule != NULL;
    }
    for (; rule && rule->priority < best; rule = rule->next) {
        if (rule->hash != hash)
            continue;
        if (work)
            work->rules++;
        if (rule_matches(rule, header, db->tuples.dims))
            return rule->priority;
    }
    return best;
}

VFDB_BODY int search_blocks(const struct tss_tries *db, const uint32_t *headers, size_t count,
                            uint32_t *answers, struct vfdb_work *work, bool counted)
{
    const struct tuples *tuples = &db->tuples;
    struct ways ways;
    uint32_t key[VFDB_DIMS];
    for (size_t first = 0; first < count; first += BLOCK) {
        uint32_t some = count - first < BLOCK ? (uint32_t)(count - first) : BLOCK;
        go_down(db, headers + first * tuples->dims, some, &ways, counted ? work + first : NULL, counted);
        for (uint32_t i = 0; i < some; i++) {
            const uint32_t *header = headers + (first + i) * tuples->dims;
            uint32_t best = VFDB_NONE;
            tuples_key(tuples, header, 1, key);
            for (uint32_t word = 0; word < (tuples->room + 63) / 64; word++)
                for (uint64_t left = candidates(&ways, tuples->dims, i, word); left; left &= left - 1) {
                    uint32_t number = word * 64 + (uint32_t)__builtin_ctzll(left);
                    const struct tuple *tuple = number < tuples->room ? tuples->number[number] : NULL;
                    if (tuple && tuples->bare)
                        best = look_up_shared(db, tuple, key, header, best,
                                              counted ? work + first + i : NULL);
                    else if (tuple && tuple->bound < best)
                        best = look_up(tuples, tuple, key, header, best, counted ? work + first + i : NULL);
                }
            answers[first + i] = best;
        }
    }
    return VFDB_OK;
}

static int tss_tries_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    return search_blocks(built, headers, count, answers, NULL, false);
}

static int tss_tries_search_counted(const void *built, const uint32_t *headers, size_t count,
                                    uint32_t *answers, struct vfdb_work *work)
{
    return search_blocks(built, headers, count, answers, work, true);
}

static int tss_tries_walk(const void *built, const uint32_t *headers, size_t count, uint32_t *steps)
{
    const struct tss_tries *db = built;
    uint32_t dims = db->tuples.dims;
    memset(steps, 0, count * sizeof *steps);
    for (size_t i = 0; i < count; i += BLOCK) {
        uint64_t key[BLOCK];
        uint32_t some = count - i < BLOCK ? (uint32_t)(count - i) : BLOCK;
        for (uint32_t d = 0; d < dims; d++) {
            for (uint32_t j = 0; j < some; j++)
                key[j] = trie_key(db->trie[d], headers[(i + j) * dims + d]);
            trie_walk(db->trie[d], key, some, steps + i);
        }
    }
    return VFDB_OK;
}

const struct vfdb_ops vfdb_tss_tries = {
    .name = "tss_tries",
    .title = "tuple space search among the tuples that a trie per dimension leaves",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {{"stride", "bits of a key per level of its trie (the compression factor)", 4, 1, 8},
              {"form", "of its nodes: 0 plain, 1 bitmaps, 2 bitmaps counted by the CPU's instruction", 0, 0,
               2},
              {"table", "1: one hash table for all tuples, as the paper has it", 0, 0, 1}},
    .build = tss_tries_build,
    .insert = tss_tries_insert,
    .remove = tss_tries_remove,
    .search = tss_tries_search,
    .search_counted = tss_tries_search_counted,
    .walk = tss_tries_walk,
    .free = tss_tries_free,
};
