/* Tables and nothing else: for sets of rules where every answer can be written down.
 *
 * Idea: what `split` finds with one or two product tables, with each list of rules followed to its end.  An address
 * leads in three steps (16, 8 and 8 bits) to its class, two classes to a list, and ports and protocol to a *kind* of
 * packet.  Lists of the same services share a *line*: a byte for each kind, which says the how-manyeth of the
 * list it is that such a packet finds.  So a search is a fixed row of reads, without a branch and without a comparison.
 * Cost: 18 reads per search with the header's own, 5 more with two products; two or four bytes for each pair of
 * classes, one for each line and kind.  Time goes into the number of reads and writes, of which a core does four a
 * cycle, and into the cache lines that they move.  So values are packed, and entries are narrow; headers take a few
 * steps at a time, for a read that waits for others keeps later ones from being begun; and where the CPU has
 * AVX-512 and the ports few ranges, ports and protocol are not looked up but searched for in registers, 32 at a time.
 * Bounds: five dimensions, 16,384 boxes, 2^16 classes of an address, 2^16 combinations of classes of
 * ports and protocol, 254 rules in a list, *bytes* in all.
 * Invariant: whatever a header holds does not lead out of the tables.
 * Threading: searches change nothing.
 */
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#endif

#include "scope.h"
#include "budget.h"
#include "split_product.h"
#include "vfdb.h"

enum { AHEAD = 640 }; /* words of headers: the hardware alone asks for them too late */
enum { BATCH = 64, GROUP = 32 };
enum { MOST_BOXES = 16384, MOST_RULES = 254, LINE = 64 };
enum { MANY = 1 << 18 }; /* cells of a product, which then have 16 bits where that does */

/* What a dimension that is no address adds to the place in *kind*. */
struct port_table {
    uint32_t shift, mask;
    const uint16_t *share;
};

/* The same as ranges: the first value of each, rising, and what it adds; then the last over and over. */
enum { RANGES = 128, FEW = 64 };
struct port_ranges {
    uint16_t start[RANGES], share[RANGES];
};

struct product_cells {
    uint32_t columns;
    uint32_t shift;   /* of the line in a cell, 0 for narrow ones */
    const void *cell; /* [rows][columns] line and place of a list in *pool*; narrow ones, of 16 bits, have the place alone */
};

struct cross_product {
    struct budget *budget;
    uint32_t products;
    bool plain; /* addresses of 32 bits, ports of 16, a protocol of 8 */
    uint32_t bits[2][3]; /* the steps of addresses */
    const uint32_t *root[2];
    struct port_table port[3];
    bool vector, sources; /* sources: some rules tell the third dimension */
    struct port_ranges ranges[3]; /* of ports, if vector; RANGES of destination ports, else FEW */
    const uint16_t *kind;
    uint32_t kinds;
    struct product_cells product[2];
    const uint32_t *pool; /* lists: the place of their line, priorities, VFDB_NONE */
    const uint8_t *line;  /* [lines][kinds] place in the list */
    char *piece;
    size_t bytes;
};

/* -- build ------------------------------------------------------------------------------------ */

/* A table that grows. */
struct growing_table {
    char *at;
    size_t size, used, room; /* of an entry; entries */
};

struct cross_product_builder {
    struct cross_product *db;
    const struct split_product *from;
    const struct vfdb_rules *rules;
    struct scope scope;
    size_t most;
    struct growing_table root[2], share[3], middle[2], leaf[2], kind, cell[2], pool, line; /* in the order of the piece */
};

static void cross_product_free(void *built)
{
    struct cross_product *db = built;
    budget_give(db->budget, db->piece, db->bytes);
    budget_give(db->budget, db, sizeof *db);
}

/* So many entries more, zeroed; the place of the first in *place. */
static int more(struct cross_product_builder *b, struct growing_table *table, size_t size, size_t entries, size_t *place)
{
    size_t wanted = table->used + entries;
    table->size = size;
    if (wanted * size > b->most)
        return VFDB_TOO_LARGE;
    if (wanted > table->room) {
        size_t room = wanted + table->room / 2;
        char *moved = table->at ? scope_resize(&b->scope, table->at, room * size) : scope_take(&b->scope, room * size);
        if (!moved)
            return VFDB_NO_MEMORY;
        table->at = moved;
        table->room = room;
    }
    *place = table->used;
    table->used = wanted;
    return VFDB_OK;
}

/* Do all values from base on, of that many bits below, lead to one place?  Less than all below the root. */
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
static int lay_leaf(struct cross_product_builder *b, uint32_t k, uint32_t base, struct written_block *written, size_t *at)
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
    int status = more(b, &b->leaf[k], sizeof(uint16_t), (size_t)size * b->db->products, at);
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
    struct written_block *leaves = scope_take(&b->scope, WRITTEN * sizeof *leaves), *middles = scope_take(&b->scope, WRITTEN * sizeof *middles);
    size_t root, at, leaf = 0;
    if (!leaves || !middles)
        return VFDB_NO_MEMORY;
    int status = more(b, &b->root[k], sizeof(uint32_t), (size_t)1 << bits[0], &root);
    for (uint32_t i = 0; status == VFDB_OK && i < 1U << bits[0]; i++) {
        uint32_t base = i << below;
        const uint32_t *first = address_map_leaf(map, base);
        bool one = lead_to_one(map, base, below);
        struct written_block *same = written_slot(middles, first);
        at = same->at;
        if (!one || !is_written(same, first)) {
            status = more(b, &b->middle[k], sizeof(uint32_t), blocks, &at);
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

/* False if there are more ranges than so many. */
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

/* What is no address leads to a kind. */
static int lay_kinds(struct cross_product_builder *b)
{
    const struct split_product *from = b->from;
    struct cross_product *db = b->db;
    uint32_t stride = from->combinations;
    size_t at;
    db->sources = !db->plain || from->class[0].classes > 1;
    for (uint32_t d = 0; d < 3; d++) {
        const struct value_classes *class = &from->class[d];
        bool one = class->classes == 1;
        size_t entries = db->plain && (d || db->sources) ? (size_t)1 << b->rules->bits[d + 2] : one ? 1 : class->bytes;
        stride /= class->classes;
        int status = more(b, &b->share[d], sizeof(uint16_t), entries, &at);
        if (status)
            return status;
        uint16_t *share = (uint16_t *)b->share[d].at;
        for (size_t i = 0; i < entries && !one; i++)
            share[i] = (uint16_t)(class->of[db->plain ? i >> class->shift : i] * stride);
        db->port[d] = (struct port_table){.shift = db->plain ? 0 : class->shift, .mask = (uint32_t)entries - 1};
        db->vector = db->vector && lay_ranges(&db->ranges[d], share, entries, d == 1 ? RANGES : FEW);
    }
    db->kinds = from->kinds;
    int status = more(b, &b->kind, sizeof(uint16_t), from->combinations, &at);
    if (!status)
        memcpy(b->kind.at, from->kind, from->combinations * sizeof *from->kind);
    return status;
}

struct product_list {
    uint32_t rules, at, line; /* at: its place in the pool */
    bool second;              /* the first product does not have it */
    const uint16_t *service;
    const uint32_t *box;
};

/* Those of the first product stand first in the pool, where narrow cells reach them. */
static int by_services(const void *a, const void *b)
{
    const struct product_list *one = *(struct product_list *const *)a, *other = *(struct product_list *const *)b;
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
    return (struct product_list){.rules = rules, .service = (const uint16_t *)at, .box = at + (rules + 1) / 2};
}

/* Which kinds each service matches. */
static uint64_t *transposed(struct cross_product_builder *b, uint32_t words)
{
    const struct split_product *from = b->from;
    uint64_t *kinds = scope_take(&b->scope, (size_t)SPLIT_SERVICES * words * sizeof *kinds);
    for (uint32_t kind = 0; kind < from->kinds && kinds; kind++)
        for (uint32_t w = 0; w < SPLIT_ROW; w++)
            for (uint32_t row = from->row[(size_t)kind * SPLIT_ROW + w]; row; row &= row - 1)
                kinds[(size_t)(w * 32 + (uint32_t)__builtin_ctz(row)) * words + kind / 64] |= UINT64_C(1) << kind % 64;
    return kinds;
}

/* For each kind where in the list the first service stands that matches it, counted from 1; behind the last for none. */
static int lay_line(struct cross_product_builder *b, const struct product_list *list, const uint64_t *matches, uint64_t *left, size_t *at)
{
    uint32_t kinds = b->from->kinds, words = (kinds + 63) / 64;
    int status = more(b, &b->line, 1, kinds, at);
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

static int lay_lists(struct cross_product_builder *b, struct product_list **list, uint32_t lists)
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
            status = more(b, &b->pool, sizeof(uint32_t), rules + (size_t)2, &at);
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

static int lay_cells(struct cross_product_builder *b, uint32_t p, const struct product_list *list, const uint32_t *number)
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
    int status = more(b, &b->cell[p], narrow ? sizeof(uint16_t) : sizeof(uint32_t), from->cells, &at);
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

/* All products, for their lists may be the same. */
static int lay_products(struct cross_product_builder *b)
{
    const struct split_product *from = b->from;
    uint32_t *number = scope_take(&b->scope, from->used * sizeof *number), lists = 0;
    for (uint32_t p = 0; p < b->db->products && number; p++)
        for (size_t i = 0; i < from->product[p].cells; i++)
            if (!number[from->product[p].list[i] >> 6])
                number[from->product[p].list[i] >> 6] = ++lists;
    struct product_list *list = scope_take(&b->scope, lists * sizeof *list), **sorted = scope_take(&b->scope, lists * sizeof *sorted);
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
    int status = lay_lists(b, sorted, lists);
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

/* Everything in one piece, with places in it. */
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

static bool are_plain(const struct vfdb_rules *rules)
{
    static const uint8_t bits[] = {32, 32, 16, 16, 8};
    return !memcmp(rules->bits, bits, sizeof bits);
}

static int build_all(struct cross_product_builder *b)
{
    int status = b->from->checks || b->from->combinations > 65536 ? VFDB_TOO_LARGE : lay_kinds(b);
    for (uint32_t p = 0; p < b->db->products; p++)
        if (b->from->product[p].columns > 65536 || b->from->product[p].cells / b->from->product[p].columns > 65536)
            status = VFDB_TOO_LARGE;
    for (uint32_t k = 0; k < 2 && !status; k++)
        status = lay_steps(b, k);
    if (!status)
        status = lay_products(b);
    return status ? status : put_together(b);
}

enum { PRODUCTS, NARROW, BYTES, SIMD };

static bool has_vectors(int64_t most)
{
#ifdef HAVE_X86
    return most >= 512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
#else
    (void)most;
    return false;
#endif
}

static int cross_product_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules, void **built)
{
    struct vfdb_plan with = {.ops = &vfdb_split_product, .value = {plan->value[PRODUCTS], plan->value[NARROW], 0, 0}};
    void *split;
    if (rules->count > MOST_BOXES)
        return VFDB_TOO_LARGE;
    int status = vfdb_split_product.build(budget, &with, rules, &split);
    if (status)
        return status;
    struct cross_product_builder b = {.from = split, .rules = rules, .scope.budget = budget, .most = (size_t)plan->value[BYTES]};
    struct cross_product *db = b.db = budget_take(budget, sizeof *db);
    status = db ? VFDB_OK : VFDB_NO_MEMORY;
    if (db) {
        db->budget = budget;
        db->products = 1 + b.from->products;
        db->plain = are_plain(rules);
        db->vector = db->plain && has_vectors(plan->value[SIMD]);
        status = build_all(&b);
    }
    scope_empty(&b.scope);
    vfdb_split_product.free(split);
    if (!status)
        *built = db;
    else if (db)
        cross_product_free(db);
    return status;
}

/* -- search ----------------------------------------------------------------------------------- */

/* Where plain tables begin: in words the roots, in halves of words those of ports; so they take no registers. */
enum parts { SECOND = 1 << 16, TO_PORT = 1 << 18, PROTOCOL = TO_PORT + (1 << 16), FROM_PORT = PROTOCOL + (1 << 8) };

/* What headers that take their steps together have come to. */
struct header_batch {
    uint32_t from[BATCH], to[BATCH], kind[BATCH], list[BATCH];
    uint16_t sum[BATCH]; /* of the shares of ports and protocol */
};

#define INLINE inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")

/* Two words in one read. */
static INLINE uint64_t two_words(const uint32_t *at)
{
    uint64_t read;
    memcpy(&read, at, sizeof read);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    read = read << 32 | read >> 32;
#endif
    return read;
}

/* The place of the class that an address leads to, in halves of words. */
static INLINE uint32_t place(const uint32_t *words, const uint32_t *root, const uint32_t *bits, uint32_t value)
{
    uint32_t at = root[value >> bits[2] >> bits[1] & ((1U << bits[0]) - 1)];
    return words[at + (value >> bits[2] & ((1U << bits[1]) - 1))] + (value & ((1U << bits[2]) - 1));
}

static void read_fields(const struct cross_product *db, const uint32_t *headers, uint32_t count, struct header_batch *batch)
{
    const uint32_t *words = (const uint32_t *)db->piece;
    for (uint32_t i = 0; i < count; i++, headers += 5) {
        uint32_t sum = 0;
        for (uint32_t d = 0; d < 3; d++)
            sum += db->port[d].share[headers[d + 2] >> db->port[d].shift & db->port[d].mask];
        batch->from[i] = place(words, db->root[0], db->bits[0], headers[0]);
        batch->to[i] = place(words, db->root[1], db->bits[1], headers[1]);
        batch->kind[i] = db->kind[sum];
    }
}

/* The same for plain headers; *summed*: the ports have been read. */
static INLINE void read_plain(const struct cross_product *db, const uint32_t *headers, uint32_t count, struct header_batch *batch,
                              bool sources, bool summed)
{
    const uint32_t *words = (const uint32_t *)db->piece;
    const uint16_t *halves = (const uint16_t *)db->piece, *kinds = db->kind;
    for (uint32_t i = 0; i < count; i++, headers += 5) {
        uint64_t both = two_words(headers);
        uint32_t from = (uint32_t)both, to = both >> 32;
        batch->from[i] = words[words[from >> 16] + (uint8_t)(from >> 8)] + (uint8_t)from;
        batch->to[i] = words[words[SECOND + (to >> 16)] + (uint8_t)(to >> 8)] + (uint8_t)to;
        uint32_t sum;
        if (summed) {
            sum = batch->sum[i];
        } else {
            both = two_words(headers + 2);
            sum = (uint32_t)halves[TO_PORT + (uint16_t)(both >> 32)] + halves[PROTOCOL + (uint8_t)headers[4]];
            if (sources)
                sum += halves[FROM_PORT + (uint16_t)both];
        }
        batch->kind[i] = kinds[sum];
        __builtin_prefetch(headers + AHEAD);
    }
}

static INLINE void read_cells(const struct cross_product *db, uint32_t p, uint32_t count, struct header_batch *batch, bool narrow)
{
    const uint16_t *from = (const uint16_t *)db->piece, *to = from, *halves = db->product[p].cell;
    const uint32_t *words = db->product[p].cell;
    const uint32_t columns = db->product[p].columns;
    if (p) { /* its classes stand behind those of the first, block by block */
        from += (size_t)1 << db->bits[0][2];
        to += (size_t)1 << db->bits[1][2];
    }
    UNROLL
    for (uint32_t i = 0; i < count; i++) {
        size_t cell = (size_t)from[batch->from[i]] * columns + to[batch->to[i]];
        batch->list[i] = narrow ? halves[cell] : words[cell];
    }
}

static INLINE void read_lists(const struct cross_product *db, uint32_t p, uint32_t count, const struct header_batch *batch,
                              uint32_t *found, bool narrow)
{
    const uint32_t *pool = db->pool;
    const uint8_t *line = db->line;
    const uint32_t shift = db->product[p].shift, kinds = db->kinds;
    UNROLL
    for (uint32_t i = 0; i < count; i++) {
        uint32_t list = batch->list[i], start = narrow ? pool[list] : (list >> shift) * kinds;
        if (!narrow)
            list &= (1U << shift) - 1;
        uint32_t answer = pool[list + line[start + batch->kind[i]]];
        found[i] = p && found[i] < answer ? found[i] : answer;
    }
}

#ifdef HAVE_X86
#define TARGET __attribute__((target("avx512f,avx512bw,bmi,bmi2")))

/* Word *number* of 32 headers, its lower half; *row*: where the first words of 16 headers lie, in halves of words. */
static INLINE TARGET __m512i field(const __m512i *read, __m512i row, uint32_t number)
{
    __mmask32 middle = 0, last = 0; /* which of 16 headers have it in the third or fourth vector, or in the fifth */
    for (uint32_t i = 0; i < 16; i++) {
        middle |= (__mmask32)((5 * i + number) / 32 == 1) << i;
        last |= (__mmask32)((5 * i + number) / 32 == 2) << i;
    }
    __m512i at = _mm512_add_epi16(row, _mm512_set1_epi16((short)(2 * number)));
    __m512i all = _mm512_permutex2var_epi16(read[0], at, read[1]);
    all = _mm512_mask_mov_epi16(all, middle, _mm512_permutex2var_epi16(read[2], at, read[3]));
    all = _mm512_mask_permutexvar_epi16(all, last, at, read[4]);
    all = _mm512_mask_mov_epi16(all, 0xFFFF0000, _mm512_permutex2var_epi16(read[5], at, read[6]));
    all = _mm512_mask_mov_epi16(all, middle << 16, _mm512_permutex2var_epi16(read[7], at, read[8]));
    return _mm512_mask_permutexvar_epi16(all, last << 16, at, read[9]);
}

/* The entries of a table of 64, or of 128: of those of its second half where *upper* says so. */
static INLINE TARGET __m512i entries(const uint16_t *table, __m512i at, __mmask32 upper, bool large)
{
    __m512i all = _mm512_permutex2var_epi16(_mm512_loadu_si512(table), at, _mm512_loadu_si512(table + 32));
    if (!large)
        return all;
    table += 64;
    return _mm512_mask_mov_epi16(all, upper, _mm512_permutex2var_epi16(_mm512_loadu_si512(table), at, _mm512_loadu_si512(table + 32)));
}

/* What values add: a binary search. */
static INLINE TARGET __m512i shares(const struct port_ranges *ranges, __m512i value, bool large)
{
    __m512i at = _mm512_setzero_si512();
    __mmask32 upper = large ? _mm512_cmpge_epu16_mask(value, _mm512_set1_epi16((short)ranges->start[64])) : 0;
    _Pragma("GCC unroll 6")
    for (short step = 32; step; step /= 2) {
        __m512i next = _mm512_or_si512(at, _mm512_set1_epi16(step));
        at = _mm512_mask_mov_epi16(at, _mm512_cmpge_epu16_mask(value, entries(ranges->start, next, upper, large)), next);
    }
    return entries(ranges->share, at, upper, large);
}

static INLINE TARGET void sum_ports(const struct cross_product *db, const uint32_t *headers, struct header_batch *batch, bool sources)
{
    uint16_t row[GROUP];
    for (uint32_t i = 0; i < GROUP; i++)
        row[i] = (uint16_t)(2 * 5 * (i % 16));
    const __m512i rows = _mm512_loadu_si512(row);
    for (uint32_t done = 0; done < BATCH; done += GROUP) {
        __m512i read[10];
        for (uint32_t i = 0; i < 10; i++, headers += 16)
            read[i] = _mm512_loadu_si512(headers);
        __m512i sum = shares(&db->ranges[1], field(read, rows, 3), true);
        sum = _mm512_add_epi16(sum, shares(&db->ranges[2], field(read, rows, 4), false));
        if (sources)
            sum = _mm512_add_epi16(sum, shares(&db->ranges[0], field(read, rows, 2), false));
        _mm512_storeu_si512(batch->sum + done, sum);
    }
}

static TARGET void read_whole(const struct cross_product *db, const uint32_t *headers, struct header_batch *batch)
{
    if (db->sources)
        sum_ports(db, headers, batch, true);
    else
        sum_ports(db, headers, batch, false);
    read_plain(db, headers, BATCH, batch, db->sources, true);
}
#endif

static void read_headers(const struct cross_product *db, const uint32_t *headers, uint32_t count, struct header_batch *batch)
{
#ifdef HAVE_X86
    if (db->vector && count == BATCH) {
        read_whole(db, headers, batch);
        return;
    }
#endif
    if (!db->plain)
        read_fields(db, headers, count, batch);
    else if (db->sources)
        read_plain(db, headers, count, batch, true, false);
    else
        read_plain(db, headers, count, batch, false, false);
}

static int cross_product_search(const void *built, const uint32_t *headers, size_t count, uint32_t *found)
{
    const struct cross_product *db = built;
    struct header_batch batch;
    for (size_t start = 0; start < count; start += BATCH, headers += 5 * BATCH, found += BATCH) {
        uint32_t some = count - start < BATCH ? (uint32_t)(count - start) : BATCH;
        read_headers(db, headers, some, &batch);
        if (db->product[0].shift) {
            read_cells(db, 0, some, &batch, false);
            read_lists(db, 0, some, &batch, found, false);
        } else {
            read_cells(db, 0, some, &batch, true);
            read_lists(db, 0, some, &batch, found, true);
        }
        if (db->products == 2) {
            read_cells(db, 1, some, &batch, false);
            read_lists(db, 1, some, &batch, found, false);
        }
    }
    return VFDB_OK;
}

const struct vfdb_ops vfdb_cross_product = {
    .name = "tables",
    .title = "every answer written down: one or two product tables, for small sets",
    .least_dims = 5,
    .most_dims = 5,
    .param = {{"products", "1, or 2: narrow sources apart", 1, 1, 2},
              {"narrow", "bits that a narrow source fixes", 8, 0, 32},
              {"bytes", "bytes that the tables may take", 1 << 25, 1, UINT32_MAX},
              {"simd", "bits of the widest vectors that a search may use: 0, 512", 512, 0, 512}},
    .build = cross_product_build,
    .search = cross_product_search,
    .free = cross_product_free,
};
