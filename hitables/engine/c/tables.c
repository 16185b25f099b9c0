/* Tables and nothing else: for small sets of rules, where every answer can be written down.
 *
 * Idea: what `sides` finds with one or two product tables, with each list replaced by a row of answers, one per
 * kind of packet (the last phase of recursive flow classification, over its first two steps for
 * addresses: 16, 8 and 8 bits).  So a search is a fixed row of reads, without a branch and without a comparison.
 * Cost: 17 reads per search with the header's own, 21 with two products; two bytes for each list and kind.
 * Bounds: five dimensions, 4,096 boxes, 2^22 answers, 2^16 combinations of classes of ports and protocol.
 * Invariant: entries are multiplied out already, so that all that is left to do is to add.
 * Threading: searches change nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "ledger.h"
#include "sides.h"
#include "vfdb.h"

enum { AHEAD = 640 }; /* words of headers: the hardware alone asks for them too late */
enum { BATCH = 128 };
enum { MOST_ANSWERS = 1 << 22, MOST_BOXES = 4096 };

/* An address: three steps, the last of them once for each product. */
struct steps {
    uint32_t bits[3];
    uint32_t *root, *middle, *leaf, *other;
    size_t roots, middles, leaves, others; /* words */
};

struct answers {
    uint32_t *list;  /* [rows * columns] the first answer of the list */
    int16_t *number; /* [lists][kinds] a box, or -1 */
    size_t cells, numbers;
};

struct tables {
    struct ledger *ledger;
    uint32_t products;
    bool plain, numbered; /* addresses of 32 bits; priorities are the numbers of the boxes */
    struct steps steps[2];
    uint32_t shift[3];
    uint16_t *share[3]; /* what each of the other dimensions adds to the place in *kind* */
    size_t shares[3];
    uint16_t *kind;
    size_t kinds; /* entries */
    struct answers answers[2];
    uint32_t *priority;
    size_t count;
};

static void tables_free(void *built)
{
    struct tables *db = built;
    for (uint32_t k = 0; k < 2; k++) {
        ledger_give(db->ledger, db->steps[k].root, db->steps[k].roots * sizeof(uint32_t));
        ledger_give(db->ledger, db->steps[k].middle, db->steps[k].middles * sizeof(uint32_t));
        ledger_give(db->ledger, db->steps[k].leaf, db->steps[k].leaves * sizeof(uint32_t));
        ledger_give(db->ledger, db->steps[k].other, db->steps[k].others * sizeof(uint32_t));
        ledger_give(db->ledger, db->answers[k].list, db->answers[k].cells * sizeof(uint32_t));
        ledger_give(db->ledger, db->answers[k].number, db->answers[k].numbers * sizeof(int16_t));
    }
    for (uint32_t d = 0; d < 3; d++)
        ledger_give(db->ledger, db->share[d], db->shares[d] * sizeof(uint16_t));
    ledger_give(db->ledger, db->kind, db->kinds * sizeof *db->kind);
    ledger_give(db->ledger, db->priority, db->count * sizeof *db->priority);
    ledger_give(db->ledger, db, sizeof *db);
}

/* A growing table of words. */
static uint32_t *more(struct ledger *ledger, uint32_t **table, size_t *room, size_t *used, size_t words)
{
    if (*used + words > *room) {
        size_t larger = *used + words + *room / 2;
        uint32_t *moved = ledger_resize(ledger, *table, *room * sizeof **table, larger * sizeof **table);
        if (!moved)
            return NULL;
        *table = moved;
        *room = larger;
    }
    *used += words;
    return *table + *used - words;
}

static int trim(struct ledger *ledger, uint32_t **table, size_t *room, size_t used)
{
    uint32_t *moved = ledger_resize(ledger, *table, *room * sizeof **table, used * sizeof **table);
    if (!moved)
        return VFDB_NO_MEMORY;
    *table = moved;
    *room = used;
    return VFDB_OK;
}

/* Blocks that lead to one place alone are shared: the one that was written last is remembered. */
struct last {
    const uint32_t *leaf;
    uint32_t at;
};

/* Do all values from base on, of that many bits below, lead to one place?  Less than all below the root. */
static bool lead_to_one(const struct sides_map *map, uint32_t base, uint32_t bits)
{
    uint32_t entry = map->root[base >> map->shift];
    if ((entry & 63) == SIDES_TABLE && bits < map->shift)
        entry = map->pool[(entry >> 6) + (base >> bits & ((1U << (map->shift - bits)) - 1))];
    else if (bits < map->shift)
        return sides_leaf(map, base) == sides_leaf(map, base + (1U << bits) - 1);
    return !(entry & 63);
}

static int lay_leaf(struct tables *db, const struct sides_map *map, uint32_t k, uint32_t base, size_t *used, struct last *same,
                    uint32_t *at)
{
    struct steps *steps = &db->steps[k];
    uint32_t size = 1U << steps->bits[2];
    const uint32_t *first = sides_leaf(map, base);
    bool one = lead_to_one(map, base, steps->bits[2]);
    if (one && same->leaf == first) {
        *at = same->at;
        return VFDB_OK;
    }
    *at = (uint32_t)*used;
    size_t there = *used;
    uint32_t *leaf = more(db->ledger, &steps->leaf, &steps->leaves, used, size), *other = leaf;
    if (leaf && db->products == 2)
        other = more(db->ledger, &steps->other, &steps->others, &there, size);
    if (!leaf || !other)
        return VFDB_NO_MEMORY;
    for (uint32_t i = 0; i < size; i++) {
        const uint32_t *pair = sides_leaf(map, base + i);
        other[i] = pair[0];
        leaf[i] = pair[1];
    }
    if (one)
        *same = (struct last){first, *at};
    return VFDB_OK;
}

static int lay_steps(struct tables *db, const struct sides *from, uint32_t k, uint32_t bits)
{
    struct steps *steps = &db->steps[k];
    const struct sides_map *map = &from->map[k];
    steps->bits[0] = bits < 16 ? bits : 16;
    steps->bits[1] = bits - steps->bits[0] < 8 ? bits - steps->bits[0] : 8;
    steps->bits[2] = bits - steps->bits[0] - steps->bits[1];
    uint32_t below = steps->bits[1] + steps->bits[2], blocks = 1U << steps->bits[1];
    size_t middles = 0, leaves = 0;
    struct last same_leaf = {0}, same_middle = {0};
    steps->roots = (size_t)1 << steps->bits[0];
    steps->root = ledger_take(db->ledger, steps->roots * sizeof *steps->root);
    if (!steps->root)
        return VFDB_NO_MEMORY;
    for (uint32_t i = 0; i < steps->roots; i++) {
        uint32_t base = i << below;
        const uint32_t *first = sides_leaf(map, base);
        bool one = lead_to_one(map, base, below);
        if (one && same_middle.leaf == first) {
            steps->root[i] = same_middle.at;
            continue;
        }
        steps->root[i] = (uint32_t)middles;
        if (!more(db->ledger, &steps->middle, &steps->middles, &middles, blocks))
            return VFDB_NO_MEMORY;
        for (uint32_t j = 0; j < blocks; j++) {
            uint32_t at;
            if (lay_leaf(db, map, k, base + (j << steps->bits[2]), &leaves, &same_leaf, &at))
                return VFDB_NO_MEMORY;
            steps->middle[steps->root[i] + j] = at;
        }
        if (one)
            same_middle = (struct last){first, steps->root[i]};
    }
    if (trim(db->ledger, &steps->middle, &steps->middles, middles) ||
        trim(db->ledger, &steps->leaf, &steps->leaves, leaves) ||
        (db->products == 2 && trim(db->ledger, &steps->other, &steps->others, leaves)))
        return VFDB_NO_MEMORY;
    return VFDB_OK;
}

static bool matches(const struct sides *from, uint32_t service, uint32_t kind)
{
    return from->row[(size_t)kind * SIDES_ROW + service / 32] >> service % 32 & 1;
}

/* The answers of a list, for every kind. */
static void write_answers(const struct sides *from, uint32_t reference, int16_t *number)
{
    const uint32_t *at = from->pool + (reference >> 6);
    uint32_t rules = reference & 63;
    if (rules == SIDES_LONG)
        rules = *at++;
    const uint16_t *service = (const uint16_t *)at;
    const uint32_t *box = at + (rules + 1) / 2;
    for (uint32_t kind = 0; kind < from->kinds; kind++) {
        uint32_t i = 0;
        while (i < rules && !matches(from, service[i], kind))
            i++;
        number[kind] = i < rules ? (int16_t)box[i] : -1;
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int lay_answers(struct tables *db, const struct sides *from, uint32_t product)
{
    const struct sides_product *cells = &from->product[product];
    struct answers *answers = &db->answers[product];
    uint32_t *list = ledger_take(db->ledger, cells->cells * sizeof *list), lists = 0;
    if (!list)
        return VFDB_NO_MEMORY;
    answers->list = list;
    answers->cells = cells->cells;
    uint32_t *known = ledger_take(db->ledger, cells->cells * sizeof *known);
    if (!known)
        return VFDB_NO_MEMORY;
    memcpy(known, cells->list, cells->cells * sizeof *known);
    qsort(known, cells->cells, sizeof *known, compare);
    for (size_t i = 0; i < cells->cells; i++)
        if (!i || known[i] != known[i - 1])
            known[lists++] = known[i];
    size_t numbers = (size_t)lists * from->kinds;
    int status = numbers > MOST_ANSWERS ? VFDB_TOO_LARGE : VFDB_OK;
    if (status == VFDB_OK) {
        answers->number = ledger_take(db->ledger, (numbers + 1) * sizeof *answers->number);
        answers->numbers = numbers + 1;
        status = answers->number ? VFDB_OK : VFDB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < lists && status == VFDB_OK; i++)
        write_answers(from, known[i], answers->number + (size_t)i * from->kinds);
    for (size_t i = 0; i < cells->cells && status == VFDB_OK; i++) {
        uint32_t low = 0, high = lists;
        while (high - low > 1) {
            uint32_t middle = (low + high) / 2;
            if (known[middle] <= cells->list[i])
                low = middle;
            else
                high = middle;
        }
        list[i] = low * from->kinds;
    }
    ledger_give(db->ledger, known, cells->cells * sizeof *known);
    return status;
}

static int lay_kinds(struct tables *db, const struct sides *from)
{
    uint32_t stride = from->combinations;
    for (uint32_t d = 0; d < 3; d++) {
        stride /= from->class[d].classes;
        db->shift[d] = from->class[d].shift;
        db->shares[d] = from->class[d].bytes;
        db->share[d] = ledger_take(db->ledger, db->shares[d] * sizeof(uint16_t));
        if (!db->share[d])
            return VFDB_NO_MEMORY;
        for (size_t i = 0; i < db->shares[d]; i++)
            db->share[d][i] = (uint16_t)(from->class[d].of[i] * stride);
    }
    db->kinds = from->combinations;
    db->kind = ledger_take(db->ledger, db->kinds * sizeof *db->kind);
    if (!db->kind)
        return VFDB_NO_MEMORY;
    memcpy(db->kind, from->kind, db->kinds * sizeof *db->kind);
    return VFDB_OK;
}

enum { PRODUCTS, NARROW };

static int tables_build(struct ledger *ledger, const struct vfdb_plan *plan, const struct vfdb_rules *rules, void **built)
{
    struct vfdb_plan with = {.ops = &vfdb_sides, .value = {plan->value[PRODUCTS], plan->value[NARROW], 0, 0}};
    void *sides;
    if (rules->count > MOST_BOXES)
        return VFDB_TOO_LARGE;
    int status = vfdb_sides.build(ledger, &with, rules, &sides);
    if (status)
        return status;
    const struct sides *from = sides;
    struct tables *db = ledger_take(ledger, sizeof *db);
    if (!db) {
        vfdb_sides.free(sides);
        return VFDB_NO_MEMORY;
    }
    db->ledger = ledger;
    db->products = 1 + from->products;
    db->numbered = from->numbered;
    db->plain = rules->bits[0] == 32 && rules->bits[1] == 32;
    status = from->checks || from->combinations > 65536 ? VFDB_TOO_LARGE : lay_kinds(db, from);
    for (uint32_t k = 0; k < 2 && status == VFDB_OK; k++)
        status = lay_steps(db, from, k, rules->bits[k]);
    for (uint32_t k = 0; k < db->products && status == VFDB_OK; k++)
        status = lay_answers(db, from, k);
    if (status == VFDB_OK && !db->numbered) {
        db->priority = ledger_take(ledger, rules->count * sizeof *db->priority);
        db->count = rules->count;
        if (db->priority)
            memcpy(db->priority, rules->priority, rules->count * sizeof *db->priority);
        else
            status = VFDB_NO_MEMORY;
    }
    vfdb_sides.free(sides);
    if (status)
        tables_free(db);
    else
        *built = db;
    return status;
}

/* What does not change within a search is a constant to the compiler in each of the callers below.  A batch takes
 * the first two steps before the rest: each read waits for the one before it, so short rows of reads let the
 * processor have more of them under way. */
static inline __attribute__((always_inline)) void search(const struct tables *db, const uint32_t *headers, size_t count,
                                                         uint32_t *restrict found, bool plain, bool two)
{
    const struct steps source = db->steps[0], destination = db->steps[1];
    const uint16_t *share0 = db->share[0], *share1 = db->share[1], *share2 = db->share[2];
    uint32_t shift0 = db->shift[0], shift1 = db->shift[1], shift2 = db->shift[2];
    uint32_t low[2], middle[2];
    for (uint32_t k = 0; k < 2; k++) {
        low[k] = plain ? 8 : db->steps[k].bits[2];
        middle[k] = plain ? 8 : db->steps[k].bits[1];
    }
    for (size_t start = 0; start < count; start += BATCH, found += BATCH) {
        uint32_t batch = count - start < BATCH ? (uint32_t)(count - start) : BATCH;
        uint32_t from[BATCH], to[BATCH], kind[BATCH];
        for (uint32_t i = 0; i < batch; i++, headers += 5) {
            uint32_t a = headers[0], b = headers[1];
            from[i] = source.middle[source.root[a >> (low[0] + middle[0])] + (a >> low[0] & ((1U << middle[0]) - 1))] +
                      (a & ((1U << low[0]) - 1));
            to[i] = destination.middle[destination.root[b >> (low[1] + middle[1])] +
                                       (b >> low[1] & ((1U << middle[1]) - 1))] +
                    (b & ((1U << low[1]) - 1));
            kind[i] = (uint32_t)share0[headers[2] >> shift0] + share1[headers[3] >> shift1] + share2[headers[4] >> shift2];
            __builtin_prefetch(headers + AHEAD);
        }
        const uint32_t *list = db->answers[0].list;
        const int16_t *number = db->answers[0].number;
        const uint16_t *kinds = db->kind;
        for (uint32_t i = 0; i < batch; i++) {
            uint32_t place = source.leaf[from[i]] + destination.leaf[to[i]];
            found[i] = (uint32_t)(int32_t)number[list[place] + kinds[kind[i]]];
        }
        if (!two)
            continue;
        list = db->answers[1].list;
        number = db->answers[1].number;
        for (uint32_t i = 0; i < batch; i++) {
            uint32_t place = source.other[from[i]] + destination.other[to[i]];
            uint32_t other = (uint32_t)(int32_t)number[list[place] + kinds[kind[i]]];
            found[i] = other < found[i] ? other : found[i];
        }
    }
}

static int tables_search(const void *built, const uint32_t *headers, size_t count, uint32_t *found)
{
    const struct tables *db = built;
    bool two = db->products == 2;
    if (!db->plain)
        search(db, headers, count, found, false, two);
    else if (two)
        search(db, headers, count, found, true, true);
    else
        search(db, headers, count, found, true, false);
    for (size_t i = 0; i < count && !db->numbered; i++)
        if (found[i] != VFDB_NONE)
            found[i] = db->priority[found[i]];
    return VFDB_OK;
}

const struct vfdb_ops vfdb_tables = {
    .name = "tables",
    .title = "every answer written down: one or two product tables, for small sets",
    .least_dims = 5,
    .most_dims = 5,
    .param = {{"products", "1, or 2: narrow sources apart", 1, 1, 2},
              {"narrow", "bits that a narrow source fixes", 8, 0, 32}},
    .build = tables_build,
    .search = tables_search,
    .free = tables_free,
};
