/* Buckets, lists and product tables of a split product.
 *
 * Idea: a bucket holds the rules of one class of an address by the other address and the service; a list
 * holds those of a pair of classes by service alone.  Equal lists are written once.
 * Cost: a sweep over the columns for each row of a product, and the square of short buckets and lists.
 * Bounds: comparisons of rules for lists, beyond which the rules are too interwoven.
 * Invariant: rules of a bucket or list are in order, best first, without those that an earlier one covers
 * (of a bucket, if it is one of the first 64).
 * Threading: none; all belongs to one build.
 */
#include "split_product_internal.h"

#include <stdlib.h>
#include <string.h>

#include "sort.h"

/* Pairs of rules that the lists of a build may compare, about a nanosecond each.  Public sets take up to 13 %
 * of it; some hundred rules that all cross would take seconds, and lists of tens of megabytes. */
enum { COMPARED = 50000000, COMPARED_PER_RULE = 300000 };

static bool covered(const struct split_product_builder *b, uint32_t by, uint32_t rule)
{
    uint32_t service = b->service[rule];
    return b->covers[(size_t)b->service[by] * SPLIT_ROW + service / 32] >> service % 32 & 1;
}

/* Buckets: one part per 16 rules, in each lows, highs, services, numbers, and VFDB_NONE. */
static uint32_t write_bucket(struct split_product_builder *b, const uint32_t *rule, uint32_t rules,
                             uint32_t other, uint32_t *left)
{
    struct split_product *db = b->db;
    const struct axis_ranges *axis = &b->axis[other];
    uint32_t count = 0;
    for (uint32_t i = 0; i < rules; i++) {
        bool needed = true;
        for (uint32_t k = 0; k < count && k < 64 && needed; k++)
            needed = !(axis->first[left[k]] <= axis->first[rule[i]] &&
                       axis->last[left[k]] >= axis->last[rule[i]] && covered(b, left[k], rule[i]));
        if (needed)
            left[count++] = rule[i];
    }
    if (!count)
        return 0;
    size_t words = count >= SPLIT_LONG;
    for (uint32_t from = 0; from < count; from += 16) {
        uint32_t now = count - from < 16 ? count - from : 16;
        words += 3 * now + (now + 1) / 2 + 1;
    }
    size_t start = pool_extend(b, &db->pool, &db->used, &db->room, words);
    if (b->memory.status)
        return 0;
    uint32_t *at = db->pool + start;
    if (count >= SPLIT_LONG)
        *at++ = count;
    for (uint32_t from = 0; from < count; from += 16) {
        uint32_t now = count - from < 16 ? count - from : 16;
        uint32_t *number = at + 2 * now + (now + 1) / 2;
        for (uint32_t i = 0; i < now; i++) {
            uint32_t kept = left[from + i];
            at[i] = side(b->rules, kept, other, 0);
            at[now + i] = side(b->rules, kept, other, 1);
            ((uint16_t *)(at + 2 * now))[i] = b->service[kept];
            number[i] = kept;
        }
        number[now] = VFDB_NONE;
        at = number + now + 1;
    }
    return (uint32_t)start << 6 | (count < SPLIT_LONG ? count : SPLIT_LONG);
}

static uint32_t find_list(const struct split_product_builder *b, const uint32_t *word, uint32_t words,
                          uint32_t *at)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < words; i++)
        hash = (hash ^ word[i]) * UINT64_C(0x9E3779B97F4A7C15) ^ hash >> 32;
    *at = (uint32_t)(hash >> 32) & b->mask;
    for (; b->slot[*at]; *at = (*at + 1) & b->mask) {
        uint32_t reference = b->list[b->slot[*at] - 1];
        const uint32_t *there = b->db->pool + (reference >> 6);
        uint32_t size = reference & 63, in_front = size == SPLIT_LONG;
        if (in_front)
            size = *there;
        size_t spans = in_front + (size + 1) / 2 + (size_t)size + 1;
        if (spans == words && !memcmp(there, word, words * sizeof *word))
            return reference;
    }
    return 0;
}

/* Lists: services, then numbers, then VFDB_NONE.  *left* has room for two words more per rule. */
static uint32_t write_list(struct split_product_builder *b, const uint32_t *rule, uint32_t rules,
                           uint32_t *left)
{
    struct split_product *db = b->db;
    uint32_t count = 0, at;
    for (uint32_t i = 0; i < rules; i++) {
        uint32_t k = 0;
        while (k < count && !covered(b, left[k], rule[i]))
            k++;
        b->compared += k;
        if (k == count)
            left[count++] = rule[i];
    }
    if (b->compared > COMPARED + (uint64_t)COMPARED_PER_RULE * b->rules->count && !b->memory.status)
        b->memory.status = VFDB_TOO_LARGE;
    if (b->memory.status)
        return 0;
    if (!count)
        return 0;
    uint32_t *word = left + count, words = 0;
    if (count >= SPLIT_LONG)
        word[words++] = count;
    word[words + count / 2] = 0;
    for (uint32_t i = 0; i < count; i++)
        ((uint16_t *)(word + words))[i] = b->service[left[i]];
    words += (count + 1) / 2;
    memcpy(word + words, left, count * sizeof *left);
    words += count;
    word[words++] = VFDB_NONE;
    uint32_t reference = find_list(b, word, words, &at);
    if (reference)
        return reference;
    if (2 * b->lists >= b->mask) {
        uint32_t mask = 2 * b->mask + 1;
        uint32_t *slot = borrow(&b->memory, ((size_t)mask + 1) * sizeof *slot);
        uint32_t *list = borrow(&b->memory, ((size_t)mask + 1) * sizeof *list), *old = b->list;
        if (b->memory.status)
            return 0;
        memcpy(list, old, b->lists * sizeof *list);
        b->slot = slot;
        b->list = list;
        b->mask = mask;
        for (uint32_t i = 0; i < b->lists; i++) {
            const uint32_t *there = db->pool + (list[i] >> 6);
            uint32_t size = list[i] & 63, in_front = size == SPLIT_LONG;
            if (in_front)
                size = *there;
            uint32_t place;
            uint32_t span = in_front + (size + 1) / 2 + size + 1;
            (void)find_list(b, there, span, &place);
            b->slot[place] = i + 1;
        }
        find_list(b, word, words, &at);
    }
    size_t start = pool_extend(b, &db->pool, &db->used, &db->room, words);
    if (b->memory.status)
        return 0;
    memcpy(db->pool + start, word, words * sizeof *word);
    reference = (uint32_t)start << 6 | (count < SPLIT_LONG ? count : SPLIT_LONG);
    b->list[b->lists++] = reference;
    b->slot[at] = b->lists;
    return reference;
}

/* One row of a product: sweep over the columns, with the rules of the row. */
struct row_sweep {
    uint32_t columns;
    uint32_t *event;            /* [columns + 1] first rule that begins or ends there, + 1 */
    uint32_t *next[2];          /* [rules] */
    uint32_t *column;           /* [2 * rules] where something happens */
    uint64_t *active;           /* [rules / 64] */
    uint32_t *matching, *left;
};

static void write_row(struct split_product_builder *b, struct row_sweep *w, const uint32_t *rule,
                      uint32_t rules, const struct axis_ranges *axis, const struct range_classes *columns,
                      uint32_t *cell)
{
    uint32_t places = 0;
    for (uint32_t i = 0; i < rules; i++)
        for (uint32_t end = 0; end < 2; end++) {
            uint32_t c = columns->below[end ? axis->last[rule[i]] + 1 : axis->first[rule[i]]];
            if (!w->event[c])
                w->column[places++] = c;
            w->next[end][i] = w->event[c];
            w->event[c] = 2 * i + end + 1;
        }
    qsort(w->column, places, sizeof *w->column, compare_u32);
    memset(w->active, 0, (rules / 64 + 1) * sizeof *w->active);
    uint32_t reference = 0, from = 0;
    for (uint32_t p = 0; p < places && !b->memory.status; p++) {
        uint32_t c = w->column[p], matches = 0;
        for (; from < c; from++)
            cell[from] = reference;
        for (uint32_t e = w->event[c]; e;) {
            uint32_t i = (e - 1) / 2;
            w->active[i / 64] ^= UINT64_C(1) << i % 64;
            e = w->next[(e - 1) % 2][i];
        }
        w->event[c] = 0;
        if (c == w->columns)
            continue;
        for (uint32_t k = 0; k <= rules / 64; k++)
            for (uint64_t bits = w->active[k]; bits; bits &= bits - 1)
                w->matching[matches++] = rule[k * 64 + (uint32_t)__builtin_ctzll(bits)];
        reference = write_list(b, w->matching, matches, w->left);
    }
    for (; from < w->columns; from++)
        cell[from] = reference;
}

static void write_product(struct split_product_builder *b, const struct range_classes *rows,
                          const struct range_classes *columns, uint32_t part, struct product_table *product)
{
    struct class_members members;
    uint32_t most = 0;
    classes_gather(b, &b->axis[0], rows, part, &members);
    if (b->memory.status)
        return;
    for (uint32_t c = 0; c < rows->count; c++)
        if (members.from[c + 1] - members.from[c] > most)
            most = members.from[c + 1] - members.from[c];
    struct row_sweep w = {.columns = columns->count};
    w.event = borrow(&b->memory, (w.columns + 1) * sizeof *w.event);
    w.next[0] = borrow(&b->memory, most * sizeof *w.next[0]);
    w.next[1] = borrow(&b->memory, most * sizeof *w.next[1]);
    w.column = borrow(&b->memory, 2 * (size_t)most * sizeof *w.column);
    w.active = borrow(&b->memory, (most / 64 + 1) * sizeof *w.active);
    w.matching = borrow(&b->memory, most * sizeof *w.matching);
    w.left = borrow(&b->memory, (3 * (size_t)most + 4) * sizeof *w.left);
    uint64_t cells = (uint64_t)rows->count * columns->count;
    if (!b->memory.status && cells >> 30)
        b->memory.status = VFDB_TOO_LARGE;
    if (!b->memory.status) {
        product->cells = cells;
        product->columns = columns->count;
        product->list = budget_take(b->memory.scope.budget, cells * sizeof *product->list);
        if (!product->list)
            b->memory.status = VFDB_NO_MEMORY;
    }
    for (uint32_t c = 0; c < rows->count && !b->memory.status; c++)
        write_row(b, &w, members.member + members.from[c], members.from[c + 1] - members.from[c], &b->axis[1],
                  columns, product->list + (size_t)c * columns->count);
    /* What was borrowed stays: the table of known lists may have grown, and lies behind it. */
}

/* The buckets of one side, and in pair[range][0] what each range leads to. */
static void write_buckets(struct split_product_builder *b, const struct range_classes *classes, uint32_t key,
                          uint32_t part, uint32_t (*pair)[2])
{
    struct class_members members;
    const struct axis_ranges *axis = &b->axis[key];
    size_t pieces = b->memory.scope.pieces;
    uint32_t most = 0;
    classes_gather(b, axis, classes, part, &members);
    for (uint32_t c = 0; c < classes->count && !b->memory.status; c++)
        if (members.from[c + 1] - members.from[c] > most)
            most = members.from[c + 1] - members.from[c];
    uint32_t *bucket = borrow(&b->memory, classes->count * sizeof *bucket);
    uint32_t *left = borrow(&b->memory, most * sizeof *left);
    for (uint32_t c = 0; c < classes->count && !b->memory.status; c++)
        bucket[c] = write_bucket(b, members.member + members.from[c], members.from[c + 1] - members.from[c],
                                 1 - key, left);
    for (uint32_t i = 0; i < axis->ranges && !b->memory.status; i++)
        pair[i][0] = bucket[classes->of[i]];
    give_back(&b->memory, pieces);
}

void parts_write(struct split_product_builder *b)
{
    struct split_product *db = b->db;
    uint32_t(*pair[2])[2];
    struct range_classes classes[2] = {0};
    b->mask = 1023;
    b->slot = borrow(&b->memory, (b->mask + 1) * sizeof *b->slot);
    b->list = borrow(&b->memory, (b->mask + 1) * sizeof *b->list);
    for (uint32_t k = 0; k < 2; k++)
        pair[k] = borrow(&b->memory, b->axis[k].ranges * sizeof *pair[k]);
    size_t none = pool_extend(b, &db->pool, &db->used, &db->room, 16);
    if (b->memory.status)
        return;
    db->pool[none] = VFDB_NONE; /* reference 0: no rules */
    uint32_t here = 0;
    for (uint32_t i = 0; i < b->rules->count; i++)
        here |= 1U << b->part[i];
    db->by_source = here >> BY_SOURCE & 1;
    db->by_destination = here >> BY_DESTINATION & 1;
    db->products = here >> CROSS_TOO & 1;
    for (uint32_t part = CROSS; part <= CROSS_TOO && !b->memory.status; part++) {
        if (part == CROSS_TOO && !db->products)
            continue;
        for (uint32_t k = 0; k < 2; k++)
            axis_classify(b, &b->axis[k], 1U << part, &classes[k]);
        write_product(b, &classes[0], &classes[1], part, &db->product[part - CROSS]);
        for (uint32_t k = 0; k < 2; k++)
            for (uint32_t i = 0; i < b->axis[k].ranges && !b->memory.status; i++)
                pair[k][i][part == CROSS] = k ? classes[k].of[i] : classes[k].of[i] * classes[1].count;
    }
    for (uint32_t k = 0; k < 2; k++)
        if (k ? db->by_destination : db->by_source) {
            axis_classify(b, &b->axis[k], 1U << (k ? BY_DESTINATION : BY_SOURCE), &classes[k]);
            if (!b->memory.status)
                write_buckets(b, &classes[k], k, k ? BY_DESTINATION : BY_SOURCE, pair[k]);
        }
    pool_trim(b, &db->pool, &db->used, &db->room);
    for (uint32_t k = 0; k < 2; k++)
        address_map_write(b, &b->axis[k], &db->map[k], pair[k]);
}
