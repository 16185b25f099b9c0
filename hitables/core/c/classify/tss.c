/* Tuple space search (Srinivasan, Suri and Varghese, SIGCOMM 1999).
 *
 * Idea: a tuple is a combination of prefix lengths, one per dimension; a hash table holds its rules under the
 * bits that these lengths keep.  A range has the length of the smallest prefix that encloses it, and every
 * candidate rule is compared as a whole.
 * Cost: a search follows the number of tuples, not of rules; an update is O(1) and O(tuples) moved pointers
 * at worst.  Memory is linear.
 * Invariant: a tuple's bound is at most its best priority, and tuples are sorted by rising bound, so a search
 * stops once no tuple can beat its rule.  A chain's priorities rise.
 * Threading: searches change nothing.
 *
 * Where we differ from the paper: with step above 1, lengths of wide dimensions are rounded down to a
 * multiple of it and narrow ones to all or nothing, which leaves a quarter of the tuples or fewer (as
 * TupleMerge does; 16 is a tenth faster than 8 on the WUSTL sets, but half as fast where routes of /24 share
 * their /16); where a chain has CROWD rules already, a rule is stored in the tuple of its own lengths
 * instead.  Before its chains, a table has a word of 32 bits per slot, a Bloom filter of two bits per rule; a
 * block of headers is tried against it tuple by tuple, 16 at a time where the CPU has AVX-512, and what
 * passes is fetched together.
 */
#include <stdbool.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "tss.h"

/* A longer chain of one key costs more than another tuple; 4 to 16 make no difference on the WUSTL sets. */
enum { CROWD = 8 };
/* Headers at a time: their keys and answers stay in the first-level cache. */
enum { BLOCK = 256, LANES = 16 };

/* -- build ------------------------------------------------------------------------------------ */

static int tss_insert(void *built, const uint32_t *box, uint32_t priority);

static void tss_free(void *built)
{
    struct tss *db = built;
    tuples_close(&db->tuples);
    budget_give(db->tuples.budget, db, sizeof *db);
}

static int tss_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                     void **built)
{
    struct tss *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    db->step = (uint32_t)plan->value[0];
#ifdef __x86_64__
    db->vector = plan->value[1] && __builtin_cpu_supports("avx512f");
#endif
    int status = tuples_open(&db->tuples, budget, rules);
    if (status) {
        budget_give(budget, db, sizeof *db);
        return status;
    }
    for (uint32_t i = 0; i < rules->count && status == VFDB_OK; i++)
        status = tss_insert(db, rules->box + (size_t)i * 2 * rules->dims, rules->priority[i]);
    if (status)
        tss_free(db);
    else
        *built = db;
    return status;
}

/* -- updates ---------------------------------------------------------------------------------- */

/* The tuples of a box: by its own lengths, and by rounded ones. */
struct tuple_place {
    uint8_t exact[VFDB_DIMS], rounded[VFDB_DIMS];
    uint32_t key[VFDB_DIMS];
    bool differ;
};

static void place_of(const struct tss *db, const uint32_t *box, struct tuple_place *place)
{
    const struct tuples *tuples = &db->tuples;
    tuples_key(tuples, box, 2, place->key);
    tuples_lengths(tuples, box, place->exact);
    place->differ = false;
    for (uint32_t d = 0; d < tuples->dims; d++) {
        uint8_t length = place->exact[d];
        if (db->step > 1 && length < tuples->bits[d])
            length = (uint8_t)(tuples->bits[d] > 16 ? length - length % db->step : 0);
        place->differ |= length != place->exact[d];
        place->rounded[d] = length;
    }
}

static bool crowded(const struct tuple *tuple, const uint32_t *key)
{
    uint32_t hash = tuple_hash(tuple, key), same = 0;
    for (const struct tuple_rule *rule = tuple->head[tuple_slot(tuple, hash)]; rule && same < CROWD;
         rule = rule->next)
        same += rule->hash == hash;
    return same >= CROWD;
}

static int tss_insert(void *built, const uint32_t *box, uint32_t priority)
{
    struct tss *db = built;
    struct tuple_place place;
    place_of(db, box, &place);
    struct tuple *tuple = tuples_have(&db->tuples, place.rounded);
    if (tuple && place.differ && crowded(tuple, place.key))
        tuple = tuples_have(&db->tuples, place.exact);
    return tuple && tuple_put(&db->tuples, tuple, place.key, box, priority) ? VFDB_OK : VFDB_NO_MEMORY;
}

static int tss_remove(void *built, const uint32_t *box, uint32_t priority)
{
    struct tss *db = built;
    struct tuple_place place;
    place_of(db, box, &place);
    struct tuple *tuple = tuples_find(&db->tuples, place.rounded);
    if (tuple && tuple_drop(&db->tuples, tuple, place.key, box, priority))
        return VFDB_OK;
    tuple = tuples_find(&db->tuples, place.exact);
    return tuple && tuple_drop(&db->tuples, tuple, place.key, box, priority) ? VFDB_OK : VFDB_ABSENT;
}

/* -- search ----------------------------------------------------------------------------------- */

/* Headers whose search is not finished, and those that the filter of one tuple passes. */
struct header_block {
    uint32_t count, words;
    uint32_t best[BLOCK + LANES], header[BLOCK + LANES]; /* header: its index in the batch */
    uint32_t key[VFDB_DIMS][BLOCK + LANES];
    uint32_t passed, lane[BLOCK + LANES], slot[BLOCK + LANES];
};

static void load(const struct tuples *db, struct header_block *block, const uint32_t *headers, uint32_t from,
                 uint32_t count)
{
    block->count = count;
    block->words = db->words;
    for (uint32_t i = from; i < count; i++) {
        uint32_t key = 0;
        for (uint32_t d = 0; d < db->dims; d++) {
            key |= headers[(size_t)i * db->dims + d] << db->up[d];
            if (d + 1 < db->dims && db->word[d + 1] == db->word[d])
                continue;
            block->key[db->word[d]][i] = key;
            key = 0;
        }
        block->best[i] = VFDB_NONE;
        block->header[i] = i;
    }
}

/* Tries the filter; gives the number of headers that the tuple may still serve. */
static uint32_t sift(const struct tuple *tuple, struct header_block *block)
{
    uint32_t alive = 0;
    block->passed = 0;
    for (uint32_t i = 0; i < block->count; i++) {
        if (block->best[i] <= tuple->bound)
            continue;
        alive++;
        uint32_t hash = 0;
        for (uint32_t w = 0; w < tuple->words; w++)
            hash += (block->key[tuple->word[w]][i] & tuple->mask[w]) * tuple_odd[w];
        hash = (hash ^ hash >> 15) * TUPLE_AGAIN;
        uint32_t slot = tuple_slot(tuple, hash), filter = tuple->filter[slot];
        block->lane[block->passed] = i;
        block->slot[block->passed] = slot;
        block->passed += tuple_may(filter, hash);
    }
    return alive;
}

/* Drops the headers that neither this tuple nor a later one can serve. */
static void close_ranks(struct header_block *block, uint32_t bound)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < block->count; i++) {
        if (block->best[i] <= bound)
            continue;
        block->best[kept] = block->best[i];
        block->header[kept] = block->header[i];
        for (uint32_t w = 0; w < block->words; w++)
            block->key[w][kept] = block->key[w][i];
        kept++;
    }
    block->count = kept;
}

#ifdef __x86_64__
/* The same as load: sixteen headers at a time, as far as they go; those left over one by one. */
__attribute__((target("avx512f"))) static void load_512(const struct tuples *db, struct header_block *block,
                                                        const uint32_t *headers, uint32_t count)
{
    const __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i row = _mm512_mullo_epi32(number, _mm512_set1_epi32((int)db->dims));
    uint32_t whole = count / LANES * LANES;
    load(db, block, headers, whole, count);
    for (uint32_t i = 0; i < whole; i += LANES) {
        __m512i key = _mm512_setzero_si512();
        for (uint32_t d = 0; d < db->dims; d++) {
            __m512i side = _mm512_i32gather_epi32(row, headers + (size_t)i * db->dims + d, 4);
            key = _mm512_or_si512(key, _mm512_sll_epi32(side, _mm_cvtsi32_si128(db->up[d])));
            if (d + 1 < db->dims && db->word[d + 1] == db->word[d])
                continue;
            _mm512_storeu_si512(block->key[db->word[d]] + i, key);
            key = _mm512_setzero_si512();
        }
        _mm512_storeu_si512(block->best + i, _mm512_set1_epi32(-1));
        _mm512_storeu_si512(block->header + i, _mm512_add_epi32(number, _mm512_set1_epi32((int)i)));
    }
}

__attribute__((target("avx512f"))) static __mmask16 lanes_from(uint32_t at, uint32_t count)
{
    return count - at >= LANES ? 0xFFFF : (__mmask16)((1u << (count - at)) - 1);
}

__attribute__((target("avx512f"))) static uint32_t sift_512(const struct tuple *tuple,
                                                            struct header_block *block)
{
    const __m512i bound = _mm512_set1_epi32((int)tuple->bound), again = _mm512_set1_epi32((int)TUPLE_AGAIN);
    const __m512i low = _mm512_set1_epi32(31), one = _mm512_set1_epi32(1);
    const __m128i shift = _mm_cvtsi32_si128((int)tuple->shift);
    __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    uint32_t alive = 0, passed = 0;
    for (uint32_t i = 0; i < block->count; i += LANES) {
        __m512i best = _mm512_loadu_si512(block->best + i);
        __mmask16 on = _mm512_mask_cmpgt_epu32_mask(lanes_from(i, block->count), best, bound);
        __m512i hash = _mm512_setzero_si512();
        alive += (uint32_t)__builtin_popcount(on);
        for (uint32_t w = 0; w < tuple->words; w++) {
            __m512i key = _mm512_loadu_si512(block->key[tuple->word[w]] + i);
            key = _mm512_and_si512(key, _mm512_set1_epi32((int)tuple->mask[w]));
            hash = _mm512_add_epi32(hash, _mm512_mullo_epi32(key, _mm512_set1_epi32((int)tuple_odd[w])));
        }
        hash = _mm512_mullo_epi32(_mm512_xor_si512(hash, _mm512_srli_epi32(hash, 15)), again);
        __m512i slot = _mm512_srl_epi32(hash, shift);
        __m512i filter = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), on, slot, tuple->filter, 4);
        __m512i first = _mm512_srlv_epi32(filter, _mm512_and_si512(hash, low));
        __m512i second = _mm512_srlv_epi32(filter, _mm512_and_si512(_mm512_srli_epi32(hash, 5), low));
        __mmask16 pass = _mm512_test_epi32_mask(_mm512_and_si512(first, second), one);
        if (pass) {
            _mm512_storeu_si512(block->lane + passed, _mm512_maskz_compress_epi32(pass, number));
            _mm512_storeu_si512(block->slot + passed, _mm512_maskz_compress_epi32(pass, slot));
            passed += (uint32_t)__builtin_popcount(pass);
        }
        number = _mm512_add_epi32(number, _mm512_set1_epi32(LANES));
    }
    block->passed = passed;
    return alive;
}

__attribute__((target("avx512f"))) static void close_ranks_512(struct header_block *block, uint32_t bound)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < block->count; i += LANES) {
        __m512i best = _mm512_loadu_si512(block->best + i), header = _mm512_loadu_si512(block->header + i);
        __mmask16 on =
            _mm512_mask_cmpgt_epu32_mask(lanes_from(i, block->count), best, _mm512_set1_epi32((int)bound));
        _mm512_storeu_si512(block->best + kept, _mm512_maskz_compress_epi32(on, best));
        _mm512_storeu_si512(block->header + kept, _mm512_maskz_compress_epi32(on, header));
        for (uint32_t w = 0; w < block->words; w++) {
            __m512i key = _mm512_loadu_si512(block->key[w] + i);
            _mm512_storeu_si512(block->key[w] + kept, _mm512_maskz_compress_epi32(on, key));
        }
        kept += (uint32_t)__builtin_popcount(on);
    }
    block->count = kept;
}
#endif

/* Compares what passed: first all chains are fetched, then read. */
static void compare(const struct tuples *db, const struct tuple *tuple, struct header_block *block,
                    const uint32_t *headers, uint32_t *answers)
{
    const struct tuple_rule *chain[BLOCK];
    for (uint32_t i = 0; i < block->passed; i++)
        __builtin_prefetch(tuple->head + block->slot[i]);
    for (uint32_t i = 0; i < block->passed; i++) {
        chain[i] = tuple->head[block->slot[i]];
        __builtin_prefetch(chain[i]);
    }
    for (uint32_t i = 0; i < block->passed; i++) {
        uint32_t lane = block->lane[i], at = block->header[lane];
        const uint32_t *header = headers + (size_t)at * db->dims;
        for (const struct tuple_rule *rule = chain[i]; rule && rule->priority < block->best[lane];
             rule = rule->next)
            if (rule_matches(rule, header, db->dims)) {
                block->best[lane] = answers[at] = rule->priority;
                break;
            }
    }
}

static void search_block(const struct tss *db, const uint32_t *headers, uint32_t count, uint32_t *answers)
{
    struct header_block block;
#ifdef __x86_64__
    if (db->vector)
        load_512(&db->tuples, &block, headers, count);
    else
#endif
        load(&db->tuples, &block, headers, 0, count);
    for (uint32_t i = 0; i < count; i++)
        answers[i] = VFDB_NONE;
    for (uint32_t t = 0; t < db->tuples.count; t++) {
        const struct tuple *tuple = db->tuples.order[t];
        uint32_t alive;
#ifdef __x86_64__
        alive = db->vector ? sift_512(tuple, &block) : sift(tuple, &block);
#else
        alive = sift(tuple, &block);
#endif
        if (!alive)
            return;
        if (block.passed)
            compare(&db->tuples, tuple, &block, headers, answers);
        if (alive <= block.count * 3 / 4) {
#ifdef __x86_64__
            db->vector ? close_ranks_512(&block, tuple->bound) : close_ranks(&block, tuple->bound);
#else
            close_ranks(&block, tuple->bound);
#endif
        }
    }
}

static int tss_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    const struct tss *db = built;
    for (size_t at = 0; at < count; at += BLOCK) {
        uint32_t some = count - at < BLOCK ? (uint32_t)(count - at) : BLOCK;
        search_block(db, headers + at * db->tuples.dims, some, answers + at);
    }
    return VFDB_OK;
}

/* One header, tuple by tuple: what a lane of search_block does. */
static uint32_t search_one(const struct tss *db, const uint32_t *header, struct vfdb_work *work)
{
    uint32_t key[VFDB_DIMS], best = VFDB_NONE;
    tuples_key(&db->tuples, header, 1, key);
    for (uint32_t t = 0; t < db->tuples.count && best > db->tuples.order[t]->bound; t++) {
        const struct tuple *tuple = db->tuples.order[t];
        uint32_t hash = tuple_hash(tuple, key), slot = tuple_slot(tuple, hash);
        work->tuples++;
        work->hashes++;
        if (!tuple_may(tuple->filter[slot], hash))
            continue;
        work->lists++;
        for (const struct tuple_rule *rule = tuple->head[slot]; rule && rule->priority < best;
             rule = rule->next) {
            work->rules++;
            if (rule_matches(rule, header, db->tuples.dims))
                best = rule->priority;
        }
    }
    return best;
}

static int tss_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                              struct vfdb_work *work)
{
    const struct tss *db = built;
    for (size_t i = 0; i < count; i++)
        answers[i] = search_one(db, headers + i * db->tuples.dims, work + i);
    return VFDB_OK;
}

const struct vfdb_ops vfdb_tss = {
    .name = "tss",
    .title = "tuple space search: a hash table per combination of prefix lengths",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {{"step", "lengths of wide dimensions are rounded down to a multiple; 1: as in the paper", 8, 1,
               32},
              {"vector", "0: not with AVX-512, even where the CPU has it", 1, 0, 1}},
    .build = tss_build,
    .insert = tss_insert,
    .remove = tss_remove,
    .search = tss_search,
    .search_counted = tss_search_counted,
    .free = tss_free,
};
