/* Axes, classes and address maps of a split product.
 *
 * Idea: an address is cut at every end of a rule into ranges, and ranges that the same rules meet are one
 * class.  A map leads from an address, in steps of 16 and 8 bits, to the ranges between a few bounds.
 * Cost: a sort of the ends per address; classes take a step per range, members a step per class and rule.
 * Bounds: a pool holds 2^26 words.
 * Invariant: hashes of sets have 128 random bits, so classes of different rules have different hashes (but
 * for a chance of 2^-60 or so).
 * Threading: none; all belongs to one build.
 */
#include "split_product_internal.h"

#include <string.h>

#include "sort.h"

enum { PADDING = 16 }; /* words behind a pool that a vector may read */

static void toggle(struct rule_set_hash *mark, uint32_t rule)
{
    mark->a ^= mix_bits(2 * (uint64_t)rule);
    mark->b ^= mix_bits(2 * (uint64_t)rule + 1);
}

void axis_lay(struct split_product_builder *b, struct axis_ranges *axis, uint32_t d)
{
    const struct vfdb_rules *rules = b->rules;
    uint32_t ends = 0;
    axis->bits = d < rules->dims ? rules->bits[d] : 1;
    axis->start = borrow(&b->memory, (2 * (size_t)rules->count + 1) * sizeof *axis->start);
    axis->first = borrow(&b->memory, rules->count * sizeof *axis->first);
    axis->last = borrow(&b->memory, rules->count * sizeof *axis->last);
    axis->mark = borrow(&b->memory, (2 * (size_t)rules->count + 2) * sizeof *axis->mark);
    if (b->memory.status)
        return;
    uint32_t top = (uint32_t)((UINT64_C(1) << axis->bits) - 1);
    for (uint32_t i = 0; i < rules->count; i++) {
        uint32_t low = side(rules, i, d, 0), high = d < rules->dims ? side(rules, i, d, 1) : top;
        b->key[ends++] = (uint64_t)low << 32 | 2 * i;
        if (high < top)
            b->key[ends++] = (uint64_t)(high + 1) << 32 | (2 * i + 1);
        axis->last[i] = VFDB_NONE;
    }
    sort_keys(b->key, b->spare, ends, 32);
    axis->ranges = 1;
    for (uint32_t i = 0; i < ends; i++) {
        uint32_t start = (uint32_t)(b->key[i] >> 32), which = (uint32_t)b->key[i];
        if (start != axis->start[axis->ranges - 1])
            axis->start[axis->ranges++] = start;
        if (which % 2)
            axis->last[which / 2] = axis->ranges - 2;
        else
            axis->first[which / 2] = axis->ranges - 1;
    }
    for (uint32_t i = 0; i < rules->count; i++)
        if (axis->last[i] == VFDB_NONE)
            axis->last[i] = axis->ranges - 1;
}

void axis_classify(struct split_product_builder *b, const struct axis_ranges *axis, uint32_t parts,
                   struct range_classes *classes)
{
    uint32_t ranges = axis->ranges, mask = 1;
    while (mask < 2 * ranges)
        mask = 2 * mask + 1;
    classes->of = borrow(&b->memory, ranges * sizeof *classes->of);
    classes->stands_in = borrow(&b->memory, ranges * sizeof *classes->stands_in);
    classes->below = borrow(&b->memory, (ranges + 1) * sizeof *classes->below);
    size_t kept = b->memory.scope.pieces;
    uint32_t *slot = borrow(&b->memory, ((size_t)mask + 1) * sizeof *slot);
    uint32_t *rules = borrow(&b->memory, (ranges + 1) * sizeof *rules);
    if (b->memory.status)
        return;
    memset(axis->mark, 0, (ranges + 1) * sizeof *axis->mark);
    for (uint32_t i = 0; i < b->rules->count; i++)
        if (parts >> b->part[i] & 1) {
            toggle(&axis->mark[axis->first[i]], i);
            toggle(&axis->mark[axis->last[i] + 1], i);
            rules[axis->first[i]]++;
            rules[axis->last[i] + 1]--;
        }
    classes->count = 0;
    classes->pairs = classes->squares = 0;
    for (uint32_t i = 0; i < ranges; i++) {
        if (i) {
            axis->mark[i].a ^= axis->mark[i - 1].a;
            axis->mark[i].b ^= axis->mark[i - 1].b;
            rules[i] += rules[i - 1];
        }
        const struct rule_set_hash *mark = &axis->mark[i];
        uint32_t at = (uint32_t)mark->a & mask;
        while (slot[at]) {
            const struct rule_set_hash *other = &axis->mark[classes->stands_in[slot[at] - 1]];
            if (other->a == mark->a && other->b == mark->b)
                break;
            at = (at + 1) & mask;
        }
        classes->below[i] = classes->count;
        if (!slot[at]) {
            classes->stands_in[classes->count] = i;
            classes->pairs += rules[i];
            classes->squares += (uint64_t)rules[i] * rules[i];
            slot[at] = ++classes->count;
        }
        classes->of[i] = slot[at] - 1;
    }
    classes->below[ranges] = classes->count;
    give_back(&b->memory, kept);
}

void classes_gather(struct split_product_builder *b, const struct axis_ranges *axis,
                    const struct range_classes *classes, uint32_t part, struct class_members *members)
{
    if (classes->pairs >> 28)
        b->memory.status = b->memory.status ? b->memory.status : VFDB_TOO_LARGE;
    members->from = borrow(&b->memory, (classes->count + 2) * sizeof *members->from);
    members->member = borrow(&b->memory, classes->pairs * sizeof *members->member);
    if (b->memory.status)
        return;
    uint32_t *from = members->from + 1;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < b->rules->count; i++) {
            if (b->part[i] != part)
                continue;
            uint32_t end = classes->below[axis->last[i] + 1];
            for (uint32_t c = classes->below[axis->first[i]]; c < end; c++)
                if (pass)
                    members->member[from[c]++] = i;
                else
                    from[c + 1]++;
        }
        if (!pass)
            for (uint32_t c = 0; c < classes->count; c++)
                from[c + 1] += from[c];
    }
}

size_t pool_extend(struct split_product_builder *b, uint32_t **pool, size_t *used, size_t *room, size_t words)
{
    size_t at = *used;
    if (words <= 16 && at % 16 + words > 16)
        at = (at + 15) / 16 * 16;
    if (b->memory.status)
        return 0;
    if (at + words > (1U << 26)) {
        b->memory.status = VFDB_TOO_LARGE;
        return 0;
    }
    if (at + words + PADDING > *room) {
        size_t larger = at + words + PADDING + *room / 2;
        uint32_t *moved =
            budget_resize(b->memory.scope.budget, *pool, *room * sizeof **pool, larger * sizeof **pool);
        if (!moved) {
            b->memory.status = VFDB_NO_MEMORY;
            return 0;
        }
        *pool = moved;
        *room = larger;
    }
    *used = at + words;
    return at;
}

void pool_trim(struct split_product_builder *b, uint32_t **pool, size_t *used, size_t *room)
{
    size_t wanted = *used + PADDING;
    if (b->memory.status || *room == wanted)
        return;
    uint32_t *moved =
        budget_resize(b->memory.scope.budget, *pool, *room * sizeof **pool, wanted * sizeof **pool);
    if (!moved) {
        b->memory.status = VFDB_NO_MEMORY;
        return;
    }
    *pool = moved;
    *room = wanted;
}

/* The map of an axis: pair[i] is what range i leads to. */
struct map_writer {
    struct split_product_builder *b;
    const struct axis_ranges *axis;
    struct address_map *map;
    uint32_t (*pair)[2];
    struct {
        uint32_t pair[2], entry;
    } written[256]; /* entries without bounds, which are mostly of few pairs */
    uint32_t next; /* the first range that starts behind the entries written */
};

static uint32_t write_entry(struct map_writer *w, uint64_t base, uint32_t bits, uint32_t depth)
{
    struct address_map *map = w->map;
    uint32_t at = w->next, end = at, (*pair)[2] = w->pair;
    uint64_t behind = base + (UINT64_C(1) << bits);
    uint32_t bounds = 0;
    /* Ranges that lead where their neighbour leads need no bound. */
    for (; end < w->axis->ranges && w->axis->start[end] < behind; end++)
        bounds += w->axis->start[end] != base && memcmp(pair[end], pair[end - 1], sizeof *pair);
    if (at < end && w->axis->start[at] == base)
        w->next = ++at;
    if (bounds > 32) {
        uint32_t taken = bits < 8 ? bits : 8;
        size_t table = pool_extend(w->b, &map->pool, &map->used, &map->room, (size_t)1 << taken);
        map->depth = depth + 1 > map->depth ? depth + 1 : map->depth;
        for (uint32_t i = 0; i < 1U << taken && !w->b->memory.status; i++) {
            uint32_t entry = write_entry(w, base + ((uint64_t)i << (bits - taken)), bits - taken, depth + 1);
            map->pool[table + i] = entry;
        }
        return (uint32_t)table << 6 | SPLIT_TABLE;
    }
    w->next = end;
    uint32_t hash = (pair[at - 1][0] * 31 + pair[at - 1][1]) % 256;
    if (!bounds && w->written[hash].entry && !memcmp(w->written[hash].pair, pair[at - 1], sizeof *pair))
        return w->written[hash].entry;
    size_t block =
        pool_extend(w->b, &map->pool, &map->used, &map->room, (bounds + 1) / 2 + 2 * ((size_t)bounds + 1));
    if (w->b->memory.status)
        return 0;
    uint16_t *bound = (uint16_t *)(map->pool + block);
    uint32_t *leaf = map->pool + block + (bounds + 1) / 2, written_bounds = 0;
    memcpy(leaf, pair[at - 1], sizeof *pair);
    for (; at < end; at++)
        if (memcmp(pair[at], pair[at - 1], sizeof *pair)) {
            bound[written_bounds++] = (uint16_t)(w->axis->start[at] - base);
            memcpy(leaf + 2 * (size_t)written_bounds, pair[at], sizeof *pair);
        }
    uint32_t entry = (uint32_t)block << 6 | bounds;
    if (!bounds) {
        memcpy(w->written[hash].pair, pair[at - 1], sizeof *pair);
        w->written[hash].entry = entry;
    }
    return entry;
}

void address_map_write(struct split_product_builder *b, const struct axis_ranges *axis,
                       struct address_map *map, uint32_t (*pair)[2])
{
    struct map_writer w = {.b = b, .axis = axis, .map = map, .pair = pair};
    uint32_t rooted = axis->bits < 16 ? axis->bits : 16;
    map->shift = axis->bits - rooted;
    map->roots = 1U << rooted;
    map->mask = map->roots - 1;
    if (b->memory.status)
        return;
    map->root = budget_take(b->memory.scope.budget, map->roots * sizeof *map->root);
    if (!map->root) {
        b->memory.status = VFDB_NO_MEMORY;
        return;
    }
    pool_extend(b, &map->pool, &map->used, &map->room, 16); /* no entry is 0 */
    for (uint32_t i = 0; i < map->roots && !b->memory.status; i++)
        map->root[i] = write_entry(&w, (uint64_t)i << map->shift, map->shift, 0);
    pool_trim(b, &map->pool, &map->used, &map->room);
}
