/* The tables of a cross product, made from a split product.
 *
 * Idea: each list of the split product is followed to its end for every kind of packet, and the answers are
 * written down as lines; addresses become three steps of tables.  All tables grow apart and are then copied
 * into one piece.
 * Cost: a step per pair of classes, and per kind and rule of each list.
 * Bounds: those of cross_product.c.
 * Invariant: tables grow within *most* bytes, else the build is VFDB_TOO_LARGE.
 * Threading: none; all belongs to one build.
 */
#include "cross_product_internal.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RULES = 254, LINE = 64 }; /* LINE: bytes of a cache line */
enum { MANY = 1 << 18 };              /* cells of a product, which then have 16 bits where that does */

int cross_product_more(struct cross_product_builder *b, struct growing_table *table, size_t size,
                       size_t entries, size_t *place)
{
    size_t wanted = table->used + entries;
    table->size = size;
    if (wanted * size > b->most)
        return VFDB_TOO_LARGE;
    if (wanted > table->room) {
        size_t room = wanted + table->room / 2;
        char *moved =
            table->at ? scope_resize(&b->scope, table->at, room * size) : scope_take(&b->scope, room * size);
        if (!moved)
            return VFDB_NO_MEMORY;
        table->at = moved;
        table->room = room;
    }
    *place = table->used;
    table->used = wanted;
    return VFDB_OK;
}

/* Whether the values from *base* on, with *bits* free bits, lead to one place; not all of the root's at once.
 */
static bool lead_to_one(const struct address_map *map, uint32_t base, uint32_t bits)
{
    uint32_t entry = map->root[base >> map->shift];
    if ((entry & 63) == SPLIT_TABLE && bits < map->shift)
        entry = map->pool[(entry >> 6) + (base >> bits & ((1U << (map->shift - bits)) - 1))];
    else if (bits < map->shift)
        return address_map_leaf(map, base) == address_map_leaf(map, base + (1U << bits) - 1);
    return !(entry & 63);
}

/* Blocks that lead to one pair alone, remembered so that they are written once. */
struct written_block {
    const uint32_t *pair;
    size_t at;
};
enum { WRITTEN = 1024 };

static struct written_block *written_slot(struct written_block *written, const uint32_t *pair)
{
    return &written[(pair[0] * 31 + pair[1]) % WRITTEN];
}

static bool is_written(const struct written_block *written, const uint32_t *pair)
{
    return written->pair && !memcmp(written->pair, pair, 2 * sizeof *pair);
}

/* One block of the last step: the classes of the product, then those of the second. */
static int lay_leaf(struct cross_product_builder *b, uint32_t k, uint32_t base, struct written_block *written,
                    size_t *at)
{
    const struct address_map *map = &b->from->map[k];
    uint32_t size = 1U << b->db->bits[k][2], columns[2] = {1, 1};
    const uint32_t *first = address_map_leaf(map, base);
    bool one = lead_to_one(map, base, b->db->bits[k][2]);
    struct written_block *same = written_slot(written, first);
    if (one && is_written(same, first)) {
        *at = same->at;
        return VFDB_OK;
    }
    int status = cross_product_more(b, &b->leaf[k], sizeof(uint16_t), (size_t)size * b->db->products, at);
    if (status)
        return status;
    for (uint32_t p = 0; p < b->db->products && !k; p++)
        columns[p] = b->from->product[p].columns;
    uint16_t *leaf = (uint16_t *)b->leaf[k].at + *at;
    for (uint32_t i = 0; i < size; i++) {
        const uint32_t *pair = address_map_leaf(map, base + i);
        leaf[i] = (uint16_t)(pair[1] / columns[0]);
        if (b->db->products == 2)
            leaf[size + i] = (uint16_t)(pair[0] / columns[1]);
    }
    if (one)
        *same = (struct written_block){first, *at};
    return VFDB_OK;
}

/* Root and middle hold places in middle and leaf, until the piece is put together. */
static int lay_steps(struct cross_product_builder *b, uint32_t k)
{
    const struct address_map *map = &b->from->map[k];
    uint32_t *bits = b->db->bits[k], all = b->rules->bits[k];
    bits[0] = all < 16 ? all : 16;
    bits[1] = all - bits[0] < 8 ? all - bits[0] : 8;
    bits[2] = all - bits[0] - bits[1];
    uint32_t below = bits[1] + bits[2], blocks = 1U << bits[1];
    struct written_block *leaves = scope_take(&b->scope, WRITTEN * sizeof *leaves),
                         *middles = scope_take(&b->scope, WRITTEN * sizeof *middles);
    size_t root, at, leaf = 0;
    if (!leaves || !middles)
        return VFDB_NO_MEMORY;
    int status = cross_product_more(b, &b->root[k], sizeof(uint32_t), (size_t)1 << bits[0], &root);
    for (uint32_t i = 0; status == VFDB_OK && i < 1U << bits[0]; i++) {
        uint32_t base = i << below;
        const uint32_t *first = address_map_leaf(map, base);
        bool one = lead_to_one(map, base, below);
        struct written_block *same = written_slot(middles, first);
        at = same->at;
        if (!one || !is_written(same, first)) {
            status = cross_product_more(b, &b->middle[k], sizeof(uint32_t), blocks, &at);
            for (uint32_t j = 0; j < blocks && status == VFDB_OK; j++) {
                status = lay_leaf(b, k, base + (j << bits[2]), leaves, &leaf);
                ((uint32_t *)b->middle[k].at)[at + j] = (uint32_t)leaf;
            }
            if (one)
                *same = (struct written_block){first, at};
        }
        ((uint32_t *)b->root[k].at)[i] = (uint32_t)at;
    }
    return status;
}

/* False if there are more than *most* ranges. */
static bool lay_ranges(struct port_ranges *ranges, const uint16_t *share, size_t values, uint32_t most)
{
    uint32_t count = 0;
    for (size_t v = 0; v < values; v++) {
        if (v && share[v] == share[v - 1])
            continue;
        if (count == most)
            return false;
        ranges->start[count] = (uint16_t)v;
        ranges->share[count++] = share[v];
    }
    for (; count < RANGES; count++) {
        ranges->start[count] = UINT16_MAX;
        ranges->share[count] = share[values - 1];
    }
    return true;
}

int cross_product_lay_kinds(struct cross_product_builder *b)
{
    const struct split_product *from = b->from;
    struct cross_product *db = b->db;
    uint32_t stride = from->combinations;
    size_t at;
    db->sources = !db->plain || from->class[0].classes > 1;
    for (uint32_t d = 0; d < 3; d++) {
        const struct value_classes *class = &from->class[d];
        bool one = class->classes == 1;
        size_t entries = db->plain && (d || db->sources) ? (size_t)1 << b->rules->bits[d + 2]
                         : one                           ? 1
                                                         : class->bytes;
        stride /= class->classes;
        int status = cross_product_more(b, &b->share[d], sizeof(uint16_t), entries, &at);
        if (status)
            return status;
        uint16_t *share = (uint16_t *)b->share[d].at;
        for (size_t i = 0; i < entries && !one; i++)
            share[i] = (uint16_t)(class->of[db->plain ? i >> class->shift : i] * stride);
        db->port[d] =
            (struct port_table){.shift = db->plain ? 0 : class->shift, .mask = (uint32_t)entries - 1};
        db->vector = db->vector && lay_ranges(&db->ranges[d], share, entries, d == 1 ? RANGES : FEW);
    }
    db->kinds = from->kinds;
    int status = cross_product_more(b, &b->kind, sizeof(uint16_t), from->combinations, &at);
    if (!status)
        memcpy(b->kind.at, from->kind, from->combinations * sizeof *from->kind);
    return status;
}

/* Lists of the first product come first in the pool, where narrow cells reach them. */
static int by_services(const void *a, const void *b)
{
    const struct product_list *one = *(struct product_list *const *)a,
                              *other = *(struct product_list *const *)b;
    if (one->second != other->second)
        return one->second ? 1 : -1;
    if (one->rules != other->rules)
        return one->rules < other->rules ? -1 : 1;
    return memcmp(one->service, other->service, one->rules * sizeof *one->service);
}

static struct product_list read_list(const struct split_product *from, uint32_t reference)
{
    const uint32_t *at = from->pool + (reference >> 6);
    uint32_t rules = reference & 63;
    if (rules == SPLIT_LONG)
        rules = *at++;
    return (struct product_list){
        .rules = rules, .service = (const uint16_t *)at, .box = at + (rules + 1) / 2};
}

/* Which kinds each service matches. */
static uint64_t *transposed(struct cross_product_builder *b, uint32_t words)
{
    const struct split_product *from = b->from;
    uint64_t *kinds = scope_take(&b->scope, (size_t)SPLIT_SERVICES * words * sizeof *kinds);
    for (uint32_t kind = 0; kind < from->kinds && kinds; kind++)
        for (uint32_t w = 0; w < SPLIT_ROW; w++)
            for (uint32_t row = from->row[(size_t)kind * SPLIT_ROW + w]; row; row &= row - 1)
                kinds[(size_t)(w * 32 + (uint32_t)__builtin_ctz(row)) * words + kind / 64] |= UINT64_C(1)
                                                                                              << kind % 64;
    return kinds;
}

/* For each kind the index, from 1, of the first service in the list that matches it; behind the last if
 * none does. */
static int lay_line(struct cross_product_builder *b, const struct product_list *list, const uint64_t *matches,
                    uint64_t *left, size_t *at)
{
    uint32_t kinds = b->from->kinds, words = (kinds + 63) / 64;
    int status = cross_product_more(b, &b->line, 1, kinds, at);
    if (status)
        return status;
    uint8_t *line = (uint8_t *)b->line.at + *at;
    memset(line, (int)list->rules + 1, kinds);
    memset(left, 0xFF, words * sizeof *left);
    for (uint32_t i = 0; i < list->rules; i++)
        for (uint32_t w = 0; w < words; w++) {
            uint64_t hit = left[w] & matches[(size_t)list->service[i] * words + w];
            left[w] ^= hit;
            for (; hit; hit &= hit - 1)
                line[w * 64 + (uint32_t)__builtin_ctzll(hit)] = (uint8_t)(i + 1);
        }
    return VFDB_OK;
}

int cross_product_lay_lists(struct cross_product_builder *b, struct product_list **list, uint32_t lists)
{
    uint32_t words = (b->from->kinds + 63) / 64;
    const uint64_t *matches = transposed(b, words);
    uint64_t *left = scope_take(&b->scope, words * sizeof *left);
    size_t line = 0, at;
    if (!matches || !left)
        return VFDB_NO_MEMORY;
    qsort(list, lists, sizeof *list, by_services);
    for (uint32_t i = 0; i < lists; i++) {
        uint32_t rules = list[i]->rules;
        int status = rules > MOST_RULES ? VFDB_TOO_LARGE : VFDB_OK;
        if (!status && (!i || by_services(&list[i - 1], &list[i])))
            status = lay_line(b, list[i], matches, left, &line);
        if (!status)
            status = cross_product_more(b, &b->pool, sizeof(uint32_t), rules + (size_t)2, &at);
        if (status)
            return status;
        uint32_t *word = (uint32_t *)b->pool.at + at;
        list[i]->at = (uint32_t)at;
        list[i]->line = (uint32_t)(line / b->from->kinds);
        *word++ = (uint32_t)line;
        for (uint32_t k = 0; k < rules; k++)
            *word++ = b->rules->priority[list[i]->box[k]];
        *word = VFDB_NONE;
    }
    return VFDB_OK;
}

static uint32_t bits_of(size_t most)
{
    uint32_t bits = 1;
    while (most >> bits)
        bits++;
    return bits;
}

static int lay_cells(struct cross_product_builder *b, uint32_t p, const struct product_list *list,
                     const uint32_t *number)
{
    const struct product_table *from = &b->from->product[p];
    uint32_t places = 0, lines = 0;
    size_t at;
    for (size_t i = 0; i < from->cells; i++) {
        const struct product_list *there = &list[number[from->list[i] >> 6] - 1];
        places = there->at > places ? there->at : places;
        lines = there->line > lines ? there->line : lines;
    }
    bool narrow = !p && from->cells > MANY && places < 65536;
    uint32_t shift = narrow ? 0 : bits_of(places);
    if (!narrow && shift + bits_of(lines) > 32)
        return VFDB_TOO_LARGE;
    size_t size = narrow ? sizeof(uint16_t) : sizeof(uint32_t);
    int status = cross_product_more(b, &b->cell[p], size, from->cells, &at);
    if (status)
        return status;
    b->db->product[p].columns = from->columns;
    b->db->product[p].shift = shift;
    for (size_t i = 0; i < from->cells; i++) {
        const struct product_list *there = &list[number[from->list[i] >> 6] - 1];
        if (narrow)
            ((uint16_t *)b->cell[p].at)[i] = (uint16_t)there->at;
        else
            ((uint32_t *)b->cell[p].at)[i] = there->line << shift | there->at;
    }
    return VFDB_OK;
}

/* All products at once, for they may share lists. */
static int lay_products(struct cross_product_builder *b)
{
    const struct split_product *from = b->from;
    uint32_t *number = scope_take(&b->scope, from->used * sizeof *number), lists = 0;
    for (uint32_t p = 0; p < b->db->products && number; p++)
        for (size_t i = 0; i < from->product[p].cells; i++)
            if (!number[from->product[p].list[i] >> 6])
                number[from->product[p].list[i] >> 6] = ++lists;
    struct product_list *list = scope_take(&b->scope, lists * sizeof *list),
                        **sorted = scope_take(&b->scope, lists * sizeof *sorted);
    if (!number || !list || !sorted)
        return VFDB_NO_MEMORY;
    for (uint32_t p = 0; p < b->db->products; p++)
        for (size_t i = 0; i < from->product[p].cells; i++) {
            uint32_t reference = from->product[p].list[i], n = number[reference >> 6] - 1;
            if (!sorted[n]) {
                list[n] = read_list(from, reference);
                list[n].second = p;
                sorted[n] = &list[n];
            }
        }
    int status = cross_product_lay_lists(b, sorted, lists);
    for (uint32_t p = 0; p < b->db->products && !status; p++)
        status = lay_cells(b, p, list, number);
    return status;
}

static void *copied(const struct cross_product_builder *b, const struct growing_table *table, size_t *at)
{
    char *to = b->db->piece + *at;
    if (table->used)
        memcpy(to, table->at, table->used * table->size);
    *at += (table->used * table->size + LINE - 1) / LINE * LINE;
    return to;
}

/* Copy all tables into one piece; indices become offsets in it. */
static int put_together(struct cross_product_builder *b)
{
    struct cross_product *db = b->db;
    const struct growing_table *all = &b->root[0];
    size_t at = 0, tables = (size_t)(&b->line - all) + 1;
    for (size_t i = 0; i < tables; i++)
        at += (all[i].used * all[i].size + LINE - 1) / LINE * LINE;
    if (at > b->most)
        return VFDB_TOO_LARGE;
    db->bytes = at;
    db->piece = budget_take(db->budget, at);
    if (!db->piece)
        return VFDB_NO_MEMORY;
    uint32_t *root[2], *middle[2];
    at = 0;
    for (uint32_t k = 0; k < 2; k++)
        db->root[k] = root[k] = copied(b, &b->root[k], &at);
    for (uint32_t d = 1; d <= 3; d++) /* in the order of enum parts */
        db->port[d % 3].share = copied(b, &b->share[d % 3], &at);
    for (uint32_t k = 0; k < 2; k++) {
        middle[k] = copied(b, &b->middle[k], &at);
        for (size_t i = 0; i < b->root[k].used; i++)
            root[k][i] += (uint32_t)(middle[k] - (uint32_t *)db->piece);
    }
    for (uint32_t k = 0; k < 2; k++) {
        uint16_t *leaf = copied(b, &b->leaf[k], &at);
        for (size_t i = 0; i < b->middle[k].used; i++)
            middle[k][i] += (uint32_t)(leaf - (uint16_t *)db->piece);
    }
    db->kind = copied(b, &b->kind, &at);
    for (uint32_t p = 0; p < 2; p++)
        db->product[p].cell = copied(b, &b->cell[p], &at);
    db->pool = copied(b, &b->pool, &at);
    db->line = copied(b, &b->line, &at);
    return VFDB_OK;
}

int cross_product_fill(struct cross_product_builder *b)
{
    int status = cross_product_lay_kinds(b);
    for (uint32_t p = 0; p < b->db->products; p++)
        if (b->from->product[p].columns > 65536 ||
            b->from->product[p].cells / b->from->product[p].columns > 65536)
            status = VFDB_TOO_LARGE;
    for (uint32_t k = 0; k < 2 && !status; k++)
        status = lay_steps(b, k);
    if (!status)
        status = lay_products(b);
    return status ? status : put_together(b);
}
