/* The tables of wildcards.c, made from a split product.
 *
 * Idea: the split product has buckets of the rules that limit one address, a product of those that limit
 * both, and the answers of those that limit neither.  Its buckets become lists by service alone, since their
 * rules leave the other address open; cross_product_build.c follows all lists to their ends.
 * Cost: a step per range of an address, per cell of the product, and per kind and rule of each list.
 * Bounds: those of wildcards.c.
 * Invariant: tables grow within *most* bytes, else the build is VFDB_TOO_LARGE.
 * Threading: none; all belongs to one build.
 */
#include "wildcards_internal.h"

#include <string.h>

enum { LINE = 16, WRITTEN = 256, MOST_CELLS = 1 << 24 }; /* LINE: words of a cache line */

struct address_range {
    uint32_t start, pair[2]; /* what the split product's map leads to, then the words of the leaf */
};

struct placed_block {
    uint32_t entry, pair[2];
};

struct wildcards_builder {
    struct cross_product_builder *b;
    struct wildcards *db;
    uint32_t *number;            /* by place in the split product's pool: list + 1, or 0 */
    struct product_list *list;   /* [lists] */
    struct product_list **sorted;
    uint32_t lists;
    uint16_t *service; /* of buckets, without the interval of their other address */
    uint32_t *box;
    size_t copied;
    struct growing_table ranges[2]; /* of each address */
    size_t bytes;                   /* of the tables that stay */
    int status;                     /* of taking room for those */
};

/* A zeroed table that stays with the database, with a copy of *from*, unless that is NULL; NULL and a status
 * where there is no room. */
static void *keep(struct wildcards_builder *w, const void *from, size_t size)
{
    void *table = NULL;
    w->bytes += size;
    if (w->bytes > w->b->most)
        w->status = w->status ? w->status : VFDB_TOO_LARGE;
    if (w->status)
        return NULL;
    table = scope_take(&w->db->kept, size);
    if (!table)
        w->status = VFDB_NO_MEMORY;
    else if (from && size)
        memcpy(table, from, size);
    return table;
}

/* -- ranges of an address --------------------------------------------------------------------- */

/* The ranges below one entry of a split product's map, behind those before. */
static int read_entry(struct wildcards_builder *w, uint32_t k, uint32_t entry, uint64_t base, uint32_t bits)
{
    const struct address_map *map = &w->b->from->map[k];
    uint32_t bounds = entry & 63;
    const uint32_t *at = map->pool + (entry >> 6);
    if (bounds == SPLIT_TABLE) {
        uint32_t taken = bits < 8 ? bits : 8;
        int status = VFDB_OK;
        for (uint32_t i = 0; i < 1U << taken && !status; i++)
            status = read_entry(w, k, at[i], base + ((uint64_t)i << (bits - taken)), bits - taken);
        return status;
    }
    const uint16_t *bound = (const uint16_t *)at;
    const uint32_t *leaf = at + (bounds + 1) / 2;
    for (uint32_t i = 0; i <= bounds; i++, leaf += 2) {
        const struct address_range *before = (struct address_range *)w->ranges[k].at;
        size_t used = w->ranges[k].used, place;
        if (used && !memcmp(before[used - 1].pair, leaf, sizeof before->pair))
            continue;
        int status = cross_product_more(w->b, &w->ranges[k], sizeof *before, 1, &place);
        if (status)
            return status;
        struct address_range *range = (struct address_range *)w->ranges[k].at + place;
        range->start = (uint32_t)(base + (i ? bound[i - 1] : 0));
        memcpy(range->pair, leaf, sizeof range->pair);
    }
    return VFDB_OK;
}

static int read_ranges(struct wildcards_builder *w, uint32_t k)
{
    const struct address_map *map = &w->b->from->map[k];
    int status = VFDB_OK;
    for (uint32_t i = 0; i < map->roots && !status; i++)
        status = read_entry(w, k, map->root[i], (uint64_t)i << map->shift, map->shift);
    return status;
}

/* The map of an address, while it is written. */
struct blocks_writer {
    struct wildcards_builder *w;
    const struct address_range *range;
    size_t ranges, at; /* at: the range that the next value lies in */
    struct growing_table pool;
    struct placed_block written[WRITTEN]; /* blocks of one range, so that they are written once */
    int status;
};

/* *words* more in the pool, within one cache line if they fit into one. */
static size_t extend(struct blocks_writer *out, size_t words)
{
    size_t place = 0, used = out->pool.used, skipped = words <= LINE && used % LINE + words > LINE;
    if (!out->status)
        out->status = cross_product_more(out->w->b, &out->pool, sizeof(uint32_t),
                                         words + (skipped ? LINE - used % LINE : 0), &place);
    if (!out->status && out->pool.used >> 27)
        out->status = VFDB_TOO_LARGE;
    return out->pool.used - words;
}

static uint32_t write_block(struct blocks_writer *out, uint32_t bounds)
{
    const struct address_range *first = out->range + out->at;
    struct placed_block *same = &out->written[(first->pair[0] * 31 + first->pair[1]) % WRITTEN];
    if (!bounds && same->entry && !memcmp(same->pair, first->pair, sizeof same->pair))
        return same->entry;
    size_t block = extend(out, 3 * (size_t)bounds + 2);
    if (out->status)
        return 0;
    uint32_t *word = (uint32_t *)out->pool.at + block, entry = (uint32_t)block << 5 | bounds;
    for (uint32_t i = 0; i <= bounds; i++) {
        if (i)
            word[i - 1] = first[i].start;
        memcpy(word + bounds + 2 * (size_t)i, first[i].pair, sizeof first->pair);
    }
    if (!bounds) {
        *same = (struct placed_block){.entry = entry};
        memcpy(same->pair, first->pair, sizeof same->pair);
    }
    return entry;
}

/* The entry for the values from *base* on, with *bits* free bits. */
static uint32_t write_entry(struct blocks_writer *out, uint64_t base, uint32_t bits)
{
    uint64_t end = base + (UINT64_C(1) << bits);
    while (out->at + 1 < out->ranges && out->range[out->at + 1].start <= base)
        out->at++;
    uint32_t bounds = 0;
    while (out->at + bounds + 1 < out->ranges && out->range[out->at + bounds + 1].start < end &&
           bounds <= WILDCARDS_BOUNDS)
        bounds++;
    if (bounds <= WILDCARDS_BOUNDS)
        return write_block(out, bounds);
    uint32_t taken = bits < 8 ? bits : 8;
    size_t table = extend(out, (size_t)1 << taken);
    for (uint32_t i = 0; i < 1U << taken && !out->status; i++) {
        uint32_t entry = write_entry(out, base + ((uint64_t)i << (bits - taken)), bits - taken);
        ((uint32_t *)out->pool.at)[table + i] = entry;
    }
    return (uint32_t)table << 5 | WILDCARDS_TABLE;
}

/* The tables on the longest way below a root that leaves *shift* bits. */
static uint32_t depth_below(const struct blocks_writer *out, uint32_t shift)
{
    uint32_t depth = 0;
    for (size_t i = 1; i + WILDCARDS_BOUNDS < out->ranges; i++) {
        uint32_t first = out->range[i].start, last = out->range[i + WILDCARDS_BOUNDS].start;
        /* As long as both, and the ranges between, bound one block. */
        while (shift && first >> shift == last >> shift && first & ((1U << shift) - 1)) {
            shift -= shift < 8 ? shift : 8;
            depth++;
        }
    }
    return depth;
}

/* A root has an entry or two per range, up to 2^16; more where that saves a table on the way. */
static uint32_t root_bits(const struct blocks_writer *out, uint32_t bits)
{
    uint32_t rooted = 6, most = bits < 16 ? bits : 16;
    while (rooted < most && (size_t)1 << rooted < out->ranges)
        rooted++;
    rooted = rooted < most ? rooted : most;
    uint32_t chosen = rooted, least = depth_below(out, bits - rooted);
    for (; rooted <= most; rooted++) {
        uint32_t depth = depth_below(out, bits - rooted);
        if (depth < least) {
            least = depth;
            chosen = rooted;
        }
    }
    return chosen;
}

static int write_map(struct wildcards_builder *w, uint32_t k)
{
    struct blocks_writer out = {
        .w = w, .range = (struct address_range *)w->ranges[k].at, .ranges = w->ranges[k].used};
    struct range_blocks *map = &w->db->map[k];
    uint32_t rooted = root_bits(&out, w->b->rules->bits[k]);
    map->shift = w->b->rules->bits[k] - rooted;
    map->mask = (1U << rooted) - 1;
    map->depth = depth_below(&out, map->shift);
    uint32_t *root = keep(w, NULL, sizeof *root << rooted);
    if (!root)
        return w->status;
    extend(&out, 1); /* no entry is 0 */
    for (uint32_t i = 0; i < 1U << rooted && !out.status; i++)
        root[i] = write_entry(&out, (uint64_t)i << map->shift, map->shift);
    if (out.status)
        return out.status;
    map->root = root;
    map->pool = keep(w, out.pool.at, out.pool.used * sizeof(uint32_t));
    return w->status;
}

/* -- lists ------------------------------------------------------------------------------------ */

/* Note a list or bucket that there is a reference to. */
static void note(struct wildcards_builder *w, uint32_t reference, bool bucket)
{
    if (w->number[reference >> 6])
        return;
    const uint32_t *at = w->b->from->pool + (reference >> 6);
    uint32_t rules = reference & 63;
    if (rules == SPLIT_LONG)
        rules = *at++;
    struct product_list *list = &w->list[w->lists];
    w->sorted[w->lists] = list;
    w->number[reference >> 6] = ++w->lists;
    *list = (struct product_list){
        .rules = rules, .second = bucket, .service = (const uint16_t *)at, .box = at + (rules + 1) / 2};
    if (!bucket)
        return;
    list->service = w->service + w->copied;
    list->box = w->box + w->copied;
    for (uint32_t now; rules; rules -= now) { /* parts of lows, highs, services, numbers, and one word */
        now = rules < 16 ? rules : 16;
        memcpy(w->service + w->copied, at + 2 * now, now * sizeof *w->service);
        memcpy(w->box + w->copied, at + 2 * now + (now + 1) / 2, now * sizeof *w->box);
        w->copied += now;
        at += 3 * now + (now + 1) / 2 + 1;
    }
}

static const struct product_list *noted(const struct wildcards_builder *w, uint32_t reference)
{
    return &w->list[w->number[reference >> 6] - 1];
}

static int note_lists(struct wildcards_builder *w)
{
    const struct split_product *from = w->b->from;
    w->number = scope_take(&w->b->scope, from->used * sizeof *w->number);
    w->list = scope_take(&w->b->scope, from->used * sizeof *w->list);
    w->sorted = scope_take(&w->b->scope, from->used * sizeof *w->sorted);
    w->service = scope_take(&w->b->scope, from->used * sizeof *w->service);
    w->box = scope_take(&w->b->scope, from->used * sizeof *w->box);
    if (!w->number || !w->list || !w->sorted || !w->service || !w->box)
        return VFDB_NO_MEMORY;
    for (size_t i = 0; i < from->product[0].cells; i++)
        note(w, from->product[0].list[i], false);
    for (uint32_t k = 0; k < 2; k++)
        for (size_t i = 0; i < w->ranges[k].used; i++)
            note(w, ((struct address_range *)w->ranges[k].at)[i].pair[0], true);
    return VFDB_OK;
}

static uint32_t word_of(const struct wildcards *db, const struct product_list *list)
{
    return list->line << db->shift | list->at;
}

/* The cells of the product, and the lists that they refer to. */
static int write_cells(struct wildcards_builder *w)
{
    const struct product_table *product = &w->b->from->product[0];
    uint32_t *list = scope_take(&w->b->scope, w->lists * sizeof *list), lists = 0;
    uint32_t *place = scope_take(&w->b->scope, w->lists * sizeof *place);
    uint16_t *cell = keep(w, NULL, product->cells * sizeof *cell);
    if (!list || !place || !cell)
        return w->status ? w->status : VFDB_NO_MEMORY;
    for (size_t i = 0; i < product->cells; i++) {
        uint32_t number = w->number[product->list[i] >> 6] - 1;
        if (!place[number]) {
            if (lists == 65536)
                return VFDB_TOO_LARGE;
            list[lists++] = word_of(w->db, &w->list[number]);
            place[number] = lists;
        }
        cell[i] = (uint16_t)(place[number] - 1);
    }
    w->db->cell = cell;
    w->db->list = keep(w, list, lists * sizeof *list);
    return w->status;
}

static int keep_kinds(struct wildcards_builder *w)
{
    struct cross_product *tables = &w->db->tables;
    for (uint32_t d = 0; d < 3; d++)
        tables->port[d].share = keep(w, w->b->share[d].at, w->b->share[d].used * sizeof(uint16_t));
    tables->kind = keep(w, w->b->kind.at, w->b->kind.used * sizeof *tables->kind);
    tables->pool = keep(w, w->b->pool.at, w->b->pool.used * sizeof *tables->pool);
    tables->line = keep(w, w->b->line.at, w->b->line.used);
    return w->status;
}

/* The best rule of each kind that limits neither address. */
static int write_neither(struct wildcards_builder *w)
{
    const struct cross_product *tables = &w->db->tables;
    const struct split_product *from = w->b->from;
    uint32_t *neither = keep(w, NULL, tables->kinds * sizeof *neither);
    if (!neither)
        return w->status;
    for (uint32_t kind = 0; kind < tables->kinds; kind++)
        neither[kind] = from->open[kind] == VFDB_NONE ? VFDB_NONE : w->b->rules->priority[from->open[kind]];
    w->db->neither = neither;
    return VFDB_OK;
}

/* Room in a word for the line and the place of every list. */
static int choose_shift(struct wildcards_builder *w)
{
    size_t lines = w->b->line.used / w->b->from->kinds;
    w->db->shift = 1;
    while (w->b->pool.used >> w->db->shift && w->db->shift < 31)
        w->db->shift++;
    w->db->place = (1U << w->db->shift) - 1;
    return lines >> (32 - w->db->shift) || w->b->pool.used >> w->db->shift ? VFDB_TOO_LARGE : VFDB_OK;
}

int wildcards_fill(struct wildcards *db, struct cross_product_builder *b)
{
    struct wildcards_builder w = {.b = b, .db = db};
    int status = b->from->product[0].cells > MOST_CELLS ? VFDB_TOO_LARGE : cross_product_lay_kinds(b);
    for (uint32_t k = 0; k < 2 && !status; k++)
        status = read_ranges(&w, k);
    if (!status)
        status = note_lists(&w);
    if (!status)
        status = cross_product_lay_lists(b, w.sorted, w.lists);
    if (!status)
        status = choose_shift(&w);
    if (!status)
        status = keep_kinds(&w);
    if (!status)
        status = write_cells(&w);
    if (!status)
        status = write_neither(&w);
    for (uint32_t k = 0; k < 2 && !status; k++) {
        struct address_range *range = (struct address_range *)w.ranges[k].at;
        for (size_t i = 0; i < w.ranges[k].used; i++)
            range[i].pair[0] = word_of(db, noted(&w, range[i].pair[0]));
        status = write_map(&w, k);
    }
    return status;
}
