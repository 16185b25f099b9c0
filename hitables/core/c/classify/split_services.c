/* Services of a split product: the distinct intervals of rules beyond the addresses.
 *
 * Idea: the values of each dimension that are no address fall into classes, and their combinations into
 * kinds; a row of bits per kind has the services that match it.  The most used services get a bit of their
 * own; rules of the others must be read in full.
 * Cost: a step per value and class, and per combination of classes.
 * Invariant: bit SPLIT_SERVICES - 1 is set in every row: it represents all services without a bit of their
 * own.
 * Threading: none; all belongs to one build.
 */
#include "split_product_internal.h"

#include <string.h>

#include "sort.h"

static const uint32_t *rest_of(const struct vfdb_rules *rules, uint32_t rule)
{
    return rules->box + ((size_t)rule * rules->dims + 2) * 2;
}

struct service_list {
    uint32_t count, kept;
    uint32_t *rule, *uses; /* [count] one rule of each, and how many there are */
    uint32_t *of;          /* [rules] */
};

static void find_services(struct split_product_builder *b, struct service_list *s)
{
    const struct vfdb_rules *rules = b->rules;
    size_t bytes = rules->dims > 2 ? (rules->dims - 2) * 2 * sizeof(uint32_t) : 0;
    uint32_t mask = 1;
    while (mask < 2 * rules->count)
        mask = 2 * mask + 1;
    s->rule = borrow(&b->memory, rules->count * sizeof *s->rule);
    s->uses = borrow(&b->memory, rules->count * sizeof *s->uses);
    s->of = borrow(&b->memory, rules->count * sizeof *s->of);
    uint32_t *slot = borrow(&b->memory, ((size_t)mask + 1) * sizeof *slot);
    for (uint32_t i = 0; i < rules->count && !b->memory.status; i++) {
        uint64_t hash = 0;
        for (uint32_t k = 0; k < bytes / sizeof(uint32_t); k++)
            hash = mix_bits(hash ^ rest_of(rules, i)[k]);
        uint32_t at = (uint32_t)hash & mask;
        while (slot[at] && bytes && memcmp(rest_of(rules, s->rule[slot[at] - 1]), rest_of(rules, i), bytes))
            at = (at + 1) & mask;
        if (!slot[at]) {
            s->rule[s->count] = i;
            slot[at] = ++s->count;
        }
        s->of[i] = slot[at] - 1;
        s->uses[slot[at] - 1]++;
    }
}

/* May a service that has its own bit limit dimension d of the rest? */
static bool in_table(const struct vfdb_rules *rules, uint32_t d)
{
    return rules->bits[d + 2] <= 16;
}

static bool tabular(const struct vfdb_rules *rules, uint32_t rule)
{
    for (uint32_t d = 2; d < rules->dims; d++)
        if (!in_table(rules, d - 2) &&
            (side(rules, rule, d, 0) ||
             side(rules, rule, d, 1) != (uint32_t)((UINT64_C(1) << rules->bits[d]) - 1)))
            return false;
    return true;
}

/* Which values of dimension d are of one class for *kept* services, most used first; false if there are
 * too many. */
static bool cut_class(struct split_product_builder *b, const uint32_t *chosen, uint32_t kept, uint32_t d,
                      uint32_t **bits)
{
    const struct vfdb_rules *rules = b->rules;
    struct value_classes *class = &b->db->class[d - 2];
    uint32_t values = in_table(rules, d - 2) ? 1U << rules->bits[d] : 1;
    uint32_t starts[2 * SPLIT_SERVICES + 1], count = 0, union_of = values;
    starts[count++] = 0;
    for (uint32_t k = 0; k < kept && values > 1; k++)
        for (uint32_t end = 0; end < 2; end++) {
            uint32_t start = side(rules, chosen[k], d, end) + end, place = count;
            if (start >= values)
                continue;
            while (place && starts[place - 1] > start)
                place--;
            if (place && starts[place - 1] == start)
                continue;
            memmove(starts + place + 1, starts + place, (count - place) * sizeof *starts);
            starts[place] = start;
            count++;
            union_of |= start;
        }
    class->shift = (uint32_t)__builtin_ctz(union_of);
    class->classes = 0;
    if (values == 1)
        class->shift = 31; /* of up to 32 bits; the table has two entries */
    uint32_t entries = values == 1 ? 2 : values >> class->shift;
    uint8_t *of = borrow(&b->memory, entries);
    uint32_t *rows = borrow(&b->memory, 256 * SPLIT_ROW * sizeof *rows);
    if (b->memory.status)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row[SPLIT_ROW] = {0}, c = 0;
        row[SPLIT_ROW - 1] = UINT32_C(1) << 31;
        for (uint32_t k = 0; k < kept; k++)
            if (values == 1 ||
                (side(rules, chosen[k], d, 0) <= starts[i] && starts[i] <= side(rules, chosen[k], d, 1)))
                row[k / 32] |= UINT32_C(1) << k % 32;
        while (c < class->classes && memcmp(rows + c * SPLIT_ROW, row, sizeof row))
            c++;
        if (c == 256)
            return false;
        if (c == class->classes)
            memcpy(rows + class->classes++ * SPLIT_ROW, row, sizeof row);
        uint32_t end = i + 1 < count ? starts[i + 1] >> class->shift : entries;
        memset(of + (values == 1 ? 0 : starts[i] >> class->shift), (int)c,
               end - (values == 1 ? 0 : starts[i] >> class->shift));
    }
    class->of = of;
    class->bytes = entries;
    class->mask = entries - 1;
    *bits = rows;
    return true;
}

/* The table of kinds, and the row of each; false if there are too many. */
static bool cross_kinds(struct split_product_builder *b, uint32_t **bits)
{
    struct split_product *db = b->db;
    uint32_t dims = db->dims > 2 ? db->dims - 2 : 0;
    uint64_t combinations = 1;
    for (uint32_t d = 0; d < dims; d++)
        if ((combinations *= db->class[d].classes) > 1U << 18)
            return false;
    uint32_t mask = 1, room = combinations < 65536 ? (uint32_t)combinations : 65536;
    while (mask < 2 * room)
        mask = 2 * mask + 1;
    uint16_t *kind = borrow(&b->memory, combinations * sizeof *kind);
    uint32_t *row = borrow(&b->memory, (size_t)room * SPLIT_ROW * sizeof *row), kinds = 0;
    uint32_t *slot = borrow(&b->memory, ((size_t)mask + 1) * sizeof *slot);
    if (b->memory.status)
        return false;
    for (uint32_t i = 0; i < combinations; i++) {
        uint32_t all[SPLIT_ROW], left = i;
        memset(all, 0xFF, sizeof all);
        for (uint32_t d = dims; d-- > 0;) {
            const uint32_t *one = bits[d] + left % db->class[d].classes * SPLIT_ROW;
            left /= db->class[d].classes;
            for (uint32_t k = 0; k < SPLIT_ROW; k++)
                all[k] &= one[k];
        }
        uint64_t hash = 0;
        for (uint32_t k = 0; k < SPLIT_ROW; k++)
            hash = (hash ^ all[k]) * UINT64_C(0x9E3779B97F4A7C15) ^ hash >> 29;
        uint32_t at = (uint32_t)(hash >> 32) & mask;
        while (slot[at] && memcmp(row + (size_t)(slot[at] - 1) * SPLIT_ROW, all, sizeof all))
            at = (at + 1) & mask;
        if (!slot[at]) {
            if (kinds == room)
                return false;
            memcpy(row + (size_t)kinds * SPLIT_ROW, all, sizeof all);
            slot[at] = ++kinds;
        }
        kind[i] = (uint16_t)(slot[at] - 1);
    }
    db->kind = kind;
    db->row = row;
    db->kinds = kinds;
    db->combinations = (uint32_t)combinations;
    return true;
}

void open_write(struct split_product_builder *b)
{
    struct split_product *db = b->db;
    db->open = budget_take(b->memory.scope.budget, db->kinds * sizeof *db->open);
    if (!db->open) {
        b->memory.status = VFDB_NO_MEMORY;
        return;
    }
    memset(db->open, 0xFF, db->kinds * sizeof *db->open);
    for (uint32_t i = b->rules->count; i-- > 0;) { /* the best is written last */
        uint32_t service = b->service[i];
        if (b->part[i] != OPEN)
            continue;
        if (service == SPLIT_SERVICES - 1)
            b->part[i] = CROSS;
        for (uint32_t kind = 0; kind < db->kinds && b->part[i] == OPEN; kind++)
            if (db->row[(size_t)kind * SPLIT_ROW + service / 32] >> service % 32 & 1)
                db->open[kind] = i;
    }
}

void *split_keep(struct split_product_builder *b, const void *from, size_t size)
{
    void *kept = b->memory.status ? NULL : budget_take(b->memory.scope.budget, size);
    if (kept)
        memcpy(kept, from, size);
    else if (!b->memory.status)
        b->memory.status = VFDB_NO_MEMORY;
    return kept;
}

void services_cut(struct split_product_builder *b)
{
    const struct vfdb_rules *rules = b->rules;
    struct split_product *db = b->db;
    struct service_list s = {0};
    uint32_t dims = rules->dims > 2 ? rules->dims - 2 : 0, kept = 0, *chosen, *number, *bits[VFDB_DIMS];
    find_services(b, &s);
    chosen = borrow(&b->memory, SPLIT_SERVICES * sizeof *chosen);
    number = borrow(&b->memory, s.count * sizeof *number);
    if (b->memory.status)
        return;
    for (uint32_t i = 0; i < s.count; i++)
        b->key[i] = (uint64_t)~s.uses[i] << 32 | i;
    sort_keys(b->key, b->spare, s.count, 32);
    for (uint32_t i = 0; i < s.count; i++) {
        uint32_t service = (uint32_t)b->key[i];
        number[service] = SPLIT_SERVICES - 1;
        if (kept < SPLIT_SERVICES - 1 && tabular(rules, s.rule[service])) {
            number[service] = kept;
            chosen[kept++] = s.rule[service];
        }
    }
    size_t pieces = b->memory.scope.pieces;
    for (;; kept /= 2) {
        bool good = true;
        for (uint32_t d = 0; d < dims && good; d++)
            good = cut_class(b, chosen, kept, d + 2, &bits[d]);
        if ((good && cross_kinds(b, bits)) || b->memory.status)
            break;
        give_back(&b->memory, pieces);
    }
    for (uint32_t d = 0; d < dims; d++)
        db->class[d].of = split_keep(b, db->class[d].of, db->class[d].bytes);
    db->kind = split_keep(b, db->kind, db->combinations * sizeof *db->kind);
    db->row = split_keep(b, db->row, (size_t)db->kinds * SPLIT_ROW * sizeof *db->row);
    give_back(&b->memory, pieces);
    b->service = borrow(&b->memory, rules->count * sizeof *b->service);
    b->covers = borrow(&b->memory, SPLIT_SERVICES * SPLIT_ROW * sizeof *b->covers);
    if (b->memory.status)
        return;
    for (uint32_t i = 0; i < rules->count; i++) {
        uint32_t service = number[s.of[i]];
        b->service[i] = (uint16_t)(service < kept ? service : SPLIT_SERVICES - 1);
        db->checks |= b->service[i] == SPLIT_SERVICES - 1;
    }
    for (uint32_t k = 0; k < kept; k++)
        for (uint32_t j = 0; j < kept; j++) {
            bool covers = true;
            for (uint32_t d = 2; d < rules->dims; d++)
                covers &= side(rules, chosen[k], d, 0) <= side(rules, chosen[j], d, 0) &&
                          side(rules, chosen[k], d, 1) >= side(rules, chosen[j], d, 1);
            if (covers)
                b->covers[k * SPLIT_ROW + j / 32] |= UINT32_C(1) << j % 32;
        }
    if (db->checks && dims) {
        db->rest = budget_take(b->memory.scope.budget, (size_t)rules->count * dims * 2 * sizeof *db->rest);
        if (!db->rest)
            b->memory.status = VFDB_NO_MEMORY;
        for (uint32_t i = 0; i < rules->count && db->rest; i++)
            memcpy(db->rest + (size_t)i * dims * 2, rest_of(rules, i), dims * 2 * sizeof *db->rest);
    }
}
