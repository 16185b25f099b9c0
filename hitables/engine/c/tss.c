/* Tuple space search (Srinivasan, Suri and Varghese, SIGCOMM 1999).
 *
 * Idea: a tuple is a combination of prefix lengths, one per dimension; its rules stand in a hash
 * table under the bits that the lengths leave.  A range has the length of the smallest prefix that
 * encloses it, and every rule found is compared as a whole.
 * Cost: a search follows the number of tuples, not of rules; an update is O(1) and O(tuples) moved
 * pointers at worst.  Memory is linear.
 * Invariant: a tuple's bound is at most its best priority, and tuples stand by rising bound, so a
 * search stops once no tuple can beat its rule.  A chain's priorities rise.
 * Threading: searches change nothing.
 *
 * Where we differ from the paper: with step above 1, lengths of wide dimensions are rounded down to
 * a multiple of it and narrow ones to all or nothing, which leaves a quarter of the tuples (as
 * TupleMerge does); a rule goes to the tuple of its own lengths all the same where its chain has
 * CROWD rules already.  Before its chains, a table has a word of 32 bits per slot, a Bloom filter of
 * two bits per rule; a block of headers is tried against it tuple by tuple, 16 at a time where the
 * CPU has AVX-512, and what passes is fetched together.
 */
#include <stdbool.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "ledger.h"
#include "pool.h"
#include "vfdb.h"

/* A longer chain of one key costs more than another tuple. */
enum { CROWD = 8 };
enum { LEAST_SLOTS = 4, LEAST_TUPLES = 16 };
/* Headers at a time: their keys and answers stay in the first-level cache. */
enum { BLOCK = 256, LANES = 16 };

struct rule {
    struct rule *next;
    uint32_t priority, hash, number; /* number: the pool's */
    uint32_t box[];                  /* [dims][2]: with five dimensions a rule fills a cache line */
};

struct tuple {
    struct tuple *next; /* of the same place in the table of tuples */
    uint32_t bound, place;
    uint32_t count, slots, shift, words;
    uint32_t debt; /* updates since the bound became loose, 0: it is the best priority */
    uint32_t *filter;   /* [slots] */
    struct rule **head; /* [slots] */
    uint8_t length[VFDB_DIMS], word[VFDB_DIMS];
    uint32_t mask[VFDB_DIMS]; /* [words] of the key's word */
};

struct tss {
    struct ledger *ledger;
    struct pool *rules;
    uint32_t dims, words, step;
    bool vector;
    uint8_t bits[VFDB_DIMS], word[VFDB_DIMS], up[VFDB_DIMS]; /* where a dimension lies in the key */
    struct tuple **order;                                    /* [room], by rising bound */
    struct tuple **table;                                    /* [places], by lengths */
    uint32_t tuples, room, places;
};

/* -- keys ------------------------------------------------------------------------------------- */

/* One odd number per word of the key.  They are fixed, so whoever knows them can write rules that
 * share a chain. */
static const uint32_t ODD[VFDB_DIMS] = {
    0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1, 0xD6E8FEB9, 0xA0761D65,
    0xE7037ED1, 0x8EBC6AF1, 0x589965CD, 0x1D8E4E27, 0xEB44ACCB, 0xCB1AB31F, 0xD1342543,
    0x2545F491, 0x94D049BB, 0xBF58476D, 0x369DEA0F, 0x31415927, 0x27182819,
};
#define AGAIN 0x2C1B3C6Du

/* Dimensions share words of 32 bits, first come first served. */
static void pack(struct tss *db, const uint8_t *bits)
{
    uint32_t free = 0;
    for (uint32_t d = 0; d < db->dims; d++) {
        db->bits[d] = bits[d];
        if (free < bits[d]) {
            free = 32;
            db->words++;
        }
        free -= bits[d];
        db->word[d] = (uint8_t)(db->words - 1);
        db->up[d] = (uint8_t)free;
    }
}

static void key_of(const struct tss *db, const uint32_t *sides, uint32_t stride, uint32_t *key)
{
    memset(key, 0, db->words * sizeof *key);
    for (uint32_t d = 0; d < db->dims; d++)
        key[db->word[d]] |= sides[d * stride] << db->up[d];
}

static uint32_t hash_of(const struct tuple *tuple, const uint32_t *key)
{
    uint32_t hash = 0;
    for (uint32_t w = 0; w < tuple->words; w++)
        hash += (key[tuple->word[w]] & tuple->mask[w]) * ODD[w];
    return (hash ^ hash >> 15) * AGAIN;
}

static uint32_t slot_of(const struct tuple *tuple, uint32_t hash)
{
    return hash >> tuple->shift;
}

static uint32_t signs_of(uint32_t hash)
{
    return 1u << (hash & 31) | 1u << (hash >> 5 & 31);
}

/* The lengths of the prefixes that enclose a box, and those rounded to the step. */
static void lengths_of(const struct tss *db, const uint32_t *box, uint8_t *exact, uint8_t *rounded)
{
    for (uint32_t d = 0; d < db->dims; d++) {
        uint32_t differ = box[2 * d] ^ box[2 * d + 1], width = db->bits[d];
        uint32_t length = width - (differ ? 32 - (uint32_t)__builtin_clz(differ) : 0);
        exact[d] = rounded[d] = (uint8_t)length;
        if (db->step > 1 && length < width)
            rounded[d] = (uint8_t)(width > 16 ? length - length % db->step : 0);
    }
}

/* -- tuples ----------------------------------------------------------------------------------- */

static struct tuple **place_in_table(const struct tss *db, const uint8_t *length)
{
    uint32_t hash = 0;
    for (uint32_t d = 0; d < db->dims; d++)
        hash = (hash + length[d] + 1) * AGAIN;
    struct tuple **at = db->table + ((hash ^ hash >> 16) & (db->places - 1));
    while (*at && memcmp((*at)->length, length, db->dims))
        at = &(*at)->next;
    return at;
}

static bool widen_table(struct tss *db)
{
    struct tuple **old = db->table;
    uint32_t places = db->places;
    struct tuple **table = ledger_take(db->ledger, 2 * places * sizeof *table);
    if (!table)
        return false;
    db->table = table;
    db->places = 2 * places;
    for (uint32_t i = 0; i < places; i++)
        for (struct tuple *tuple = old[i], *next; tuple; tuple = next) {
            next = tuple->next;
            tuple->next = NULL;
            *place_in_table(db, tuple->length) = tuple;
        }
    ledger_give(db->ledger, old, places * sizeof *old);
    return true;
}

/* Moves a tuple to where its bound belongs. */
static void settle_place(struct tss *db, struct tuple *tuple)
{
    uint32_t at = tuple->place;
    for (; at && db->order[at - 1]->bound > tuple->bound; at--) {
        db->order[at] = db->order[at - 1];
        db->order[at]->place = at;
    }
    for (; at + 1 < db->tuples && db->order[at + 1]->bound < tuple->bound; at++) {
        db->order[at] = db->order[at + 1];
        db->order[at]->place = at;
    }
    db->order[at] = tuple;
    tuple->place = at;
}

static void table_bytes(uint32_t slots, size_t *filter, size_t *head)
{
    *filter = slots * sizeof(uint32_t);
    *head = slots * sizeof(struct rule *);
}

static void drop_tuple(struct tss *db, struct tuple *tuple)
{
    size_t filter, head;
    *place_in_table(db, tuple->length) = tuple->next;
    db->tuples--;
    for (uint32_t at = tuple->place; at < db->tuples; at++) {
        db->order[at] = db->order[at + 1];
        db->order[at]->place = at;
    }
    table_bytes(tuple->slots, &filter, &head);
    ledger_give(db->ledger, tuple->filter, filter);
    ledger_give(db->ledger, tuple->head, head);
    ledger_give(db->ledger, tuple, sizeof *tuple);
}

/* Another number of slots: the chains are dealt out anew, in order. */
static bool resize(struct tss *db, struct tuple *tuple, uint32_t slots)
{
    size_t filter_bytes, head_bytes;
    table_bytes(slots, &filter_bytes, &head_bytes);
    uint32_t *filter = ledger_take(db->ledger, filter_bytes);
    struct rule **head = filter ? ledger_take(db->ledger, head_bytes) : NULL;
    if (!head) {
        ledger_give(db->ledger, filter, filter_bytes);
        return false;
    }
    uint32_t old = tuple->slots;
    struct rule **chains = tuple->head;
    tuple->shift = 32 - (uint32_t)__builtin_ctz(slots);
    for (uint32_t i = 0; i < old; i++)
        for (struct rule *rule = chains[i], *next; rule; rule = next) {
            next = rule->next;
            struct rule **at = head + slot_of(tuple, rule->hash);
            filter[slot_of(tuple, rule->hash)] |= signs_of(rule->hash);
            while (*at && (*at)->priority < rule->priority)
                at = &(*at)->next;
            rule->next = *at;
            *at = rule;
        }
    table_bytes(old, &filter_bytes, &head_bytes);
    ledger_give(db->ledger, tuple->filter, filter_bytes);
    ledger_give(db->ledger, chains, head_bytes);
    tuple->filter = filter;
    tuple->head = head;
    tuple->slots = slots;
    return true;
}

static struct tuple *add_tuple(struct tss *db, const uint8_t *length)
{
    if (db->tuples == db->places && !widen_table(db))
        return NULL;
    if (db->tuples == db->room) {
        size_t bytes = db->room * sizeof *db->order;
        struct tuple **order = ledger_resize(db->ledger, db->order, bytes, 2 * bytes);
        if (!order)
            return NULL;
        db->order = order;
        db->room *= 2;
    }
    struct tuple *tuple = ledger_take(db->ledger, sizeof *tuple);
    if (!tuple)
        return NULL;
    if (!resize(db, tuple, LEAST_SLOTS)) {
        ledger_give(db->ledger, tuple, sizeof *tuple);
        return NULL;
    }
    uint32_t mask[VFDB_DIMS] = {0};
    for (uint32_t d = 0; d < db->dims; d++) {
        uint32_t ones = length[d] ? UINT32_MAX >> (32 - length[d]) : 0;
        mask[db->word[d]] |= ones << (db->bits[d] - length[d]) % 32 << db->up[d];
    }
    for (uint32_t w = 0; w < db->words; w++)
        if (mask[w]) {
            tuple->word[tuple->words] = (uint8_t)w;
            tuple->mask[tuple->words++] = mask[w];
        }
    memcpy(tuple->length, length, db->dims);
    *place_in_table(db, length) = tuple;
    tuple->bound = VFDB_NONE;
    tuple->place = db->tuples;
    db->order[db->tuples++] = tuple;
    return tuple;
}

static struct tuple *tuple_of(struct tss *db, const uint8_t *length)
{
    struct tuple *found = *place_in_table(db, length);
    return found ? found : add_tuple(db, length);
}

/* A tuple that lost its best rule looks for the next one when as many updates have passed as looking
 * costs, so an update stays O(1). */
static void tighten(struct tss *db, struct tuple *tuple)
{
    if (!tuple->debt || ++tuple->debt <= tuple->slots / 4)
        return;
    uint32_t bound = VFDB_NONE;
    for (uint32_t i = 0; i < tuple->slots; i++)
        if (tuple->head[i] && tuple->head[i]->priority < bound)
            bound = tuple->head[i]->priority;
    tuple->debt = 0;
    tuple->bound = bound;
    settle_place(db, tuple);
}

/* -- build ------------------------------------------------------------------------------------ */

static int tss_insert(void *built, const uint32_t *box, uint32_t priority);

static void tss_free(void *built)
{
    struct tss *db = built;
    while (db->tuples)
        drop_tuple(db, db->order[db->tuples - 1]);
    pool_free(db->rules);
    ledger_give(db->ledger, db->order, db->room * sizeof *db->order);
    ledger_give(db->ledger, db->table, db->places * sizeof *db->table);
    ledger_give(db->ledger, db, sizeof *db);
}

static int tss_build(struct ledger *ledger, const struct vfdb_plan *plan, const struct vfdb_rules *rules, void **built)
{
    struct tss *db = ledger_take(ledger, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    db->ledger = ledger;
    db->dims = rules->dims;
    db->step = (uint32_t)plan->value[0];
#ifdef __x86_64__
    db->vector = plan->value[1] && __builtin_cpu_supports("avx512f");
#endif
    pack(db, rules->bits);
    size_t size = sizeof(struct rule) + 2 * db->dims * sizeof(uint32_t);
    db->rules = pool_new(ledger, (size + 7) / 8 * 8);
    db->order = ledger_take(ledger, LEAST_TUPLES * sizeof *db->order);
    db->room = db->order ? LEAST_TUPLES : 0;
    db->table = ledger_take(ledger, LEAST_TUPLES * sizeof *db->table);
    db->places = db->table ? LEAST_TUPLES : 0;
    int status = db->rules && db->order && db->table ? VFDB_OK : VFDB_NO_MEMORY;
    for (uint32_t i = 0; i < rules->count && status == VFDB_OK; i++)
        status = tss_insert(db, rules->box + (size_t)i * 2 * db->dims, rules->priority[i]);
    if (status)
        tss_free(db);
    else
        *built = db;
    return status;
}

/* -- updates ---------------------------------------------------------------------------------- */

static bool crowded(const struct tuple *tuple, uint32_t hash)
{
    uint32_t same = 0;
    for (const struct rule *rule = tuple->head[slot_of(tuple, hash)]; rule; rule = rule->next)
        same += rule->hash == hash;
    return same >= CROWD;
}

static int tss_insert(void *built, const uint32_t *box, uint32_t priority)
{
    struct tss *db = built;
    uint8_t exact[VFDB_DIMS], rounded[VFDB_DIMS];
    uint32_t key[VFDB_DIMS], number;
    lengths_of(db, box, exact, rounded);
    key_of(db, box, 2, key);
    struct tuple *tuple = tuple_of(db, rounded);
    if (tuple && memcmp(exact, rounded, db->dims) && crowded(tuple, hash_of(tuple, key)))
        tuple = tuple_of(db, exact);
    if (!tuple)
        return VFDB_NO_MEMORY;
    /* A table too full is slower and right still, so that it cannot grow is no failure. */
    if (tuple->count >= tuple->slots && tuple->slots < 1u << 30)
        resize(db, tuple, 2 * tuple->slots);
    struct rule *rule = pool_take(db->rules, &number);
    if (!rule) {
        if (!tuple->count)
            drop_tuple(db, tuple);
        return VFDB_NO_MEMORY;
    }
    uint32_t hash = hash_of(tuple, key), slot = slot_of(tuple, hash);
    struct rule **at = tuple->head + slot;
    while (*at && (*at)->priority < priority)
        at = &(*at)->next;
    *rule = (struct rule){.next = *at, .priority = priority, .hash = hash, .number = number};
    memcpy(rule->box, box, 2 * db->dims * sizeof *box);
    *at = rule;
    tuple->filter[slot] |= signs_of(hash);
    tuple->count++;
    if (priority <= tuple->bound) {
        tuple->bound = priority;
        tuple->debt = 0;
        settle_place(db, tuple);
    } else {
        tighten(db, tuple);
    }
    return VFDB_OK;
}

static bool remove_from(struct tss *db, const uint8_t *length, const uint32_t *key, const uint32_t *box,
                        uint32_t priority)
{
    struct tuple *tuple = *place_in_table(db, length);
    if (!tuple)
        return false;
    uint32_t slot = slot_of(tuple, hash_of(tuple, key)), signs = 0;
    struct rule **at = tuple->head + slot;
    while (*at && ((*at)->priority != priority || memcmp((*at)->box, box, 2 * db->dims * sizeof *box)))
        at = &(*at)->next;
    if (!*at)
        return false;
    uint32_t number = (*at)->number;
    *at = (*at)->next;
    pool_give(db->rules, number);
    for (const struct rule *rule = tuple->head[slot]; rule; rule = rule->next)
        signs |= signs_of(rule->hash);
    tuple->filter[slot] = signs;
    if (!--tuple->count) {
        drop_tuple(db, tuple);
        return true;
    }
    if (tuple->slots > LEAST_SLOTS && tuple->count < tuple->slots / 8)
        resize(db, tuple, tuple->slots / 2);
    if (priority == tuple->bound)
        tuple->debt++;
    tighten(db, tuple);
    return true;
}

static int tss_remove(void *built, const uint32_t *box, uint32_t priority)
{
    struct tss *db = built;
    uint8_t exact[VFDB_DIMS], rounded[VFDB_DIMS];
    uint32_t key[VFDB_DIMS];
    lengths_of(db, box, exact, rounded);
    key_of(db, box, 2, key);
    bool found = remove_from(db, rounded, key, box, priority) || remove_from(db, exact, key, box, priority);
    return found ? VFDB_OK : VFDB_ABSENT;
}

/* -- search ----------------------------------------------------------------------------------- */

/* Headers that are still looking, and what one tuple's filter lets through. */
struct block {
    uint32_t count, words;
    uint32_t best[BLOCK + LANES], header[BLOCK + LANES]; /* header: its number in the batch */
    uint32_t key[VFDB_DIMS][BLOCK + LANES];
    uint32_t passed, lane[BLOCK + LANES], slot[BLOCK + LANES];
};

static void load(const struct tss *db, struct block *block, const uint32_t *headers, uint32_t first, uint32_t count)
{
    block->count = count;
    block->words = db->words;
    for (uint32_t d = 0, filled = 0; d < db->dims; d++) {
        uint32_t *key = block->key[db->word[d]], up = db->up[d];
        const uint32_t *side = headers + (size_t)first * db->dims + d;
        bool fresh = filled <= db->word[d];
        filled = db->word[d] + 1u;
        for (uint32_t i = 0; i < count; i++)
            key[i] = (fresh ? 0 : key[i]) | side[(size_t)i * db->dims] << up;
    }
    for (uint32_t i = 0; i < count; i++) {
        block->best[i] = VFDB_NONE;
        block->header[i] = first + i;
    }
}

/* Tries the filter; gives the number of headers that the tuple may still serve. */
static uint32_t sift(const struct tuple *tuple, struct block *block)
{
    uint32_t alive = 0;
    block->passed = 0;
    for (uint32_t i = 0; i < block->count; i++) {
        if (block->best[i] <= tuple->bound)
            continue;
        alive++;
        uint32_t hash = 0;
        for (uint32_t w = 0; w < tuple->words; w++)
            hash += (block->key[tuple->word[w]][i] & tuple->mask[w]) * ODD[w];
        hash = (hash ^ hash >> 15) * AGAIN;
        uint32_t slot = slot_of(tuple, hash), filter = tuple->filter[slot];
        block->lane[block->passed] = i;
        block->slot[block->passed] = slot;
        block->passed += filter >> (hash & 31) & filter >> (hash >> 5 & 31) & 1;
    }
    return alive;
}

/* Drops the headers that neither this tuple nor a later one can serve. */
static void close_ranks(struct block *block, uint32_t bound)
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
__attribute__((target("avx512f"))) static __mmask16 lanes_from(uint32_t at, uint32_t count)
{
    return count - at >= LANES ? 0xFFFF : (__mmask16)((1u << (count - at)) - 1);
}

__attribute__((target("avx512f"))) static uint32_t sift_512(const struct tuple *tuple, struct block *block)
{
    const __m512i bound = _mm512_set1_epi32((int)tuple->bound), again = _mm512_set1_epi32((int)AGAIN);
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
            hash = _mm512_add_epi32(hash, _mm512_mullo_epi32(key, _mm512_set1_epi32((int)ODD[w])));
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

__attribute__((target("avx512f"))) static void close_ranks_512(struct block *block, uint32_t bound)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < block->count; i += LANES) {
        __m512i best = _mm512_loadu_si512(block->best + i), header = _mm512_loadu_si512(block->header + i);
        __mmask16 on = _mm512_mask_cmpgt_epu32_mask(lanes_from(i, block->count), best,
                                                    _mm512_set1_epi32((int)bound));
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

static bool matches(const uint32_t *box, const uint32_t *header, uint32_t dims)
{
    uint32_t outside = 0;
    for (uint32_t d = 0; d < dims; d++)
        outside |= (header[d] < box[2 * d]) | (header[d] > box[2 * d + 1]);
    return !outside;
}

/* Compares what passed: first all chains are fetched, then read. */
static void compare(const struct tss *db, const struct tuple *tuple, struct block *block, const uint32_t *headers,
                    uint32_t *found)
{
    const struct rule *chain[BLOCK];
    for (uint32_t i = 0; i < block->passed; i++)
        __builtin_prefetch(tuple->head + block->slot[i]);
    for (uint32_t i = 0; i < block->passed; i++) {
        chain[i] = tuple->head[block->slot[i]];
        __builtin_prefetch(chain[i]);
    }
    for (uint32_t i = 0; i < block->passed; i++) {
        uint32_t lane = block->lane[i], at = block->header[lane];
        const uint32_t *header = headers + (size_t)at * db->dims;
        for (const struct rule *rule = chain[i]; rule && rule->priority < block->best[lane]; rule = rule->next)
            if (matches(rule->box, header, db->dims)) {
                block->best[lane] = found[at] = rule->priority;
                break;
            }
    }
}

static void search_block(const struct tss *db, const uint32_t *headers, uint32_t count, uint32_t *found)
{
    struct block block;
    load(db, &block, headers, 0, count);
    for (uint32_t i = 0; i < count; i++)
        found[i] = VFDB_NONE;
    for (uint32_t t = 0; t < db->tuples; t++) {
        const struct tuple *tuple = db->order[t];
        uint32_t alive;
#ifdef __x86_64__
        alive = db->vector ? sift_512(tuple, &block) : sift(tuple, &block);
#else
        alive = sift(tuple, &block);
#endif
        if (!alive)
            return;
        if (block.passed)
            compare(db, tuple, &block, headers, found);
        if (alive <= block.count * 3 / 4) {
#ifdef __x86_64__
            db->vector ? close_ranks_512(&block, tuple->bound) : close_ranks(&block, tuple->bound);
#else
            close_ranks(&block, tuple->bound);
#endif
        }
    }
}

static int tss_search(const void *built, const uint32_t *headers, size_t count, uint32_t *found)
{
    const struct tss *db = built;
    for (size_t at = 0; at < count; at += BLOCK) {
        uint32_t some = count - at < BLOCK ? (uint32_t)(count - at) : BLOCK;
        search_block(db, headers + at * db->dims, some, found + at);
    }
    return VFDB_OK;
}

const struct vfdb_ops vfdb_tss = {
    .name = "tss",
    .title = "tuple space search: a hash table per combination of prefix lengths",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {{"step", "lengths of wide dimensions are rounded down to a multiple; 1: as in the paper", 8, 1, 32},
              {"vector", "0: not with AVX-512, even where the CPU has it", 1, 0, 1}},
    .build = tss_build,
    .insert = tss_insert,
    .remove = tss_remove,
    .search = tss_search,
    .free = tss_free,
};
