/* Rules found by the side that tells most.
 *
 * Idea: a rule whose source is narrow stands in the buckets of those source addresses; else, if its
 * destination is narrow, in the buckets of its destination; what is wide in both is found in a
 * product table of source classes by destination classes, each cell of which refers to a list.
 * So rules wide in one address are never copied against rules wide in the other (DESIGN.md,
 * shape groups), and each of the three parts is small.  All that is no address becomes one
 * *kind* of packet, found in a product of small tables, and a row of bits says which *services*
 * (distinct sides of rules beyond the addresses) match that kind.  Buckets and lists hold rules
 * best first, 16 or 32 of which are compared at a time with AVX-512.  Where it is cheaper,
 * all rules stand in one product table, or in two.
 *
 * Cost: a search reads about four cache lines per address and part, whatever the number of rules, as long as
 * narrow sides overlap little; a build is a sweep over the sides of the rules and the
 * writing of the buckets.  The split is chosen by counting what each would write.
 * Bounds: the pool of lists, and of each address, holds 2^26 words.
 * Invariant: rules of a bucket or list that an earlier one covers are left out; boxes are
 * numbered by rising priority, so the least number found is the answer.
 * Threading: searches change nothing.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#endif

#include "budget.h"
#include "scope.h"
#include "sort.h"
#include "split_product.h"
#include "vfdb.h"

static bool fits(const struct split_product *db, uint32_t number, const uint32_t *header)
{
    uint32_t dims = db->dims - 2;
    const uint32_t *side = db->rest + (size_t)number * 2 * dims;
    for (uint32_t d = 0; d < dims; d++)
        if (header[d + 2] < side[2 * d] || header[d + 2] > side[2 * d + 1])
            return false;
    return true;
}

#define LEVEL 0
#define TARGET
#define NAME(x) x##_plain
#include "split_product_search.h"
#undef LEVEL
#undef TARGET
#undef NAME

#ifdef HAVE_X86
#define LEVEL 256
#define TARGET __attribute__((target("avx2,popcnt,bmi,bmi2")))
#define NAME(x) x##_avx2
#include "split_product_search.h"
#undef LEVEL
#undef TARGET
#undef NAME

#define LEVEL 512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,popcnt,bmi,bmi2")))
#define NAME(x) x##_avx512
#include "split_product_search.h"
#undef LEVEL
#undef TARGET
#undef NAME
#endif

const uint32_t *address_map_leaf(const struct address_map *map, uint32_t value)
{
    return leaf_plain(map, map->root[value >> map->shift], value);
}

static int split_product_find(const void *built, const uint32_t *headers, size_t count, uint32_t *found)
{
    const struct split_product *db = built;
#ifdef HAVE_X86
    if (db->level == 512)
        search_avx512(db, headers, count, found);
    else if (db->level == 256)
        search_avx2(db, headers, count, found);
    else
#endif
        search_plain(db, headers, count, found);
    return VFDB_OK;
}

static uint32_t level_of(int64_t most)
{
#ifdef HAVE_X86
    if (most >= 512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return 512;
    if (most >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"))
        return 256;
#endif
    (void)most;
    return 0;
}

/* Where a rule may stand. */
enum part { BY_SOURCE, BY_DESTINATION, CROSS, CROSS_TOO, PARTS };

enum { PADDING = 16 }; /* words behind a pool that a vector may read */

/* Memory of a build, given back at its end, and its status: once that is not VFDB_OK nothing more is taken. */
struct build_memory {
    struct scope scope;
    int status;
};

static void *borrow(struct build_memory *memory, size_t size)
{
    void *piece = memory->status ? NULL : scope_take(&memory->scope, size);
    if (!piece && !memory->status)
        memory->status = VFDB_NO_MEMORY;
    return piece;
}

/* Give back all that was borrowed since there were *pieces* pieces. */
static void give_back(struct build_memory *memory, size_t pieces)
{
    scope_shrink(&memory->scope, pieces);
}

/* A set of rules is known by the exclusive or of 128 random bits per rule. */
struct rule_set_hash {
    uint64_t a, b;
};

static uint64_t mixed(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static void toggle(struct rule_set_hash *mark, uint32_t rule)
{
    mark->a ^= mixed(2 * (uint64_t)rule);
    mark->b ^= mixed(2 * (uint64_t)rule + 1);
}

/* One address, cut at every end of a side into ranges, which have numbers. */
struct axis_ranges {
    uint32_t bits, ranges;
    uint32_t *start;        /* [ranges] rising, the first 0 */
    uint32_t *first, *last; /* [count] the ranges of each rule */
    struct rule_set_hash *mark;      /* [ranges + 1] */
};

/* The classes of an axis for some of the rules: ranges in which the same of them are. */
struct range_classes {
    uint32_t count;
    uint32_t *of;        /* [ranges] */
    uint32_t *stands_in; /* [count] one range of each class, rising */
    uint32_t *below;     /* [ranges + 1] how many of those are less */
    uint64_t pairs;      /* of a class and a rule in it */
    uint64_t squares;    /* the sum of the squares of their rules */
};

struct split_product_builder {
    struct build_memory memory;
    const struct vfdb_rules *rules;
    struct split_product *db;
    struct axis_ranges axis[2];
    uint8_t *part;      /* [count] */
    uint16_t *service;  /* [count] */
    uint32_t *covers;   /* [SPLIT_SERVICES][SPLIT_ROW] which services each covers */
    uint64_t *key;      /* room for sorting */
    uint64_t *spare;
    uint32_t *slot;     /* [mask + 1] lists that are there already: hash table of place + 1 */
    uint32_t *known;    /* [known_room] references */
    uint32_t mask, knowns;
};

static uint32_t side(const struct vfdb_rules *rules, uint32_t rule, uint32_t d, uint32_t end)
{
    return d < rules->dims ? rules->box[((size_t)rule * rules->dims + d) * 2 + end] : 0;
}

static void lay_axis(struct split_product_builder *b, struct axis_ranges *axis, uint32_t d)
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

/* The classes that the rules of the parts in *wanted* make. */
static void classify(struct split_product_builder *b, const struct axis_ranges *axis, uint32_t wanted, struct range_classes *classes)
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
        if (wanted >> b->part[i] & 1) {
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

/* Which rules are in which class: those of class c are member[from[c]] up to from[c + 1]. */
struct class_members {
    uint32_t *from, *member;
};

static void gather(struct split_product_builder *b, const struct axis_ranges *axis, const struct range_classes *classes, uint32_t part,
                   struct class_members *members)
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

/* *words* more in the pool, in one cache line if they fit into one; their offset. */
static size_t more(struct split_product_builder *b, uint32_t **pool, size_t *used, size_t *room, size_t words)
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
        uint32_t *moved = budget_resize(b->memory.scope.budget, *pool, *room * sizeof **pool, larger * sizeof **pool);
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

static void trim(struct split_product_builder *b, uint32_t **pool, size_t *used, size_t *room)
{
    size_t wanted = *used + PADDING;
    if (b->memory.status || *room == wanted)
        return;
    uint32_t *moved = budget_resize(b->memory.scope.budget, *pool, *room * sizeof **pool, wanted * sizeof **pool);
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
    } known[256]; /* entries without bounds, for as good as all of which few pairs come */
    uint32_t next; /* the first range that starts behind what is drawn */
};

static uint32_t draw(struct map_writer *w, uint64_t base, uint32_t bits, uint32_t depth)
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
        size_t table = more(w->b, &map->pool, &map->used, &map->room, (size_t)1 << taken);
        map->depth = depth + 1 > map->depth ? depth + 1 : map->depth;
        for (uint32_t i = 0; i < 1U << taken && !w->b->memory.status; i++) {
            uint32_t entry = draw(w, base + ((uint64_t)i << (bits - taken)), bits - taken, depth + 1);
            map->pool[table + i] = entry;
        }
        return (uint32_t)table << 6 | SPLIT_TABLE;
    }
    w->next = end;
    uint32_t hash = (pair[at - 1][0] * 31 + pair[at - 1][1]) % 256;
    if (!bounds && w->known[hash].entry && !memcmp(w->known[hash].pair, pair[at - 1], sizeof *pair))
        return w->known[hash].entry;
    size_t block = more(w->b, &map->pool, &map->used, &map->room, (bounds + 1) / 2 + 2 * ((size_t)bounds + 1));
    if (w->b->memory.status)
        return 0;
    uint16_t *bound = (uint16_t *)(map->pool + block);
    uint32_t *leaf = map->pool + block + (bounds + 1) / 2, written = 0;
    memcpy(leaf, pair[at - 1], sizeof *pair);
    for (; at < end; at++)
        if (memcmp(pair[at], pair[at - 1], sizeof *pair)) {
            bound[written++] = (uint16_t)(w->axis->start[at] - base);
            memcpy(leaf + 2 * (size_t)written, pair[at], sizeof *pair);
        }
    uint32_t entry = (uint32_t)block << 6 | bounds;
    if (!bounds) {
        memcpy(w->known[hash].pair, pair[at - 1], sizeof *pair);
        w->known[hash].entry = entry;
    }
    return entry;
}

static void draw_map(struct split_product_builder *b, const struct axis_ranges *axis, struct address_map *map, uint32_t (*pair)[2])
{
    struct map_writer w = {.b = b, .axis = axis, .map = map, .pair = pair};
    uint32_t rooted = axis->bits < 16 ? axis->bits : 16;
    map->shift = axis->bits - rooted;
    map->roots = 1U << rooted;
    if (b->memory.status)
        return;
    map->root = budget_take(b->memory.scope.budget, map->roots * sizeof *map->root);
    if (!map->root) {
        b->memory.status = VFDB_NO_MEMORY;
        return;
    }
    more(b, &map->pool, &map->used, &map->room, 16); /* no entry is 0 */
    for (uint32_t i = 0; i < map->roots && !b->memory.status; i++)
        map->root[i] = draw(&w, (uint64_t)i << map->shift, map->shift, 0);
    trim(b, &map->pool, &map->used, &map->room);
}

/* Services: the distinct sides of the rules beyond the addresses. */

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
            hash = mixed(hash ^ rest_of(rules, i)[k]);
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
        if (!in_table(rules, d - 2) && (side(rules, rule, d, 0) || side(rules, rule, d, 1) != (uint32_t)((UINT64_C(1) << rules->bits[d]) - 1)))
            return false;
    return true;
}

/* Which values of dimension d are of one class for *kept* services, most used first; false if there are too many. */
static bool cut_class(struct split_product_builder *b, const uint32_t *chosen, uint32_t kept, uint32_t d, uint32_t **bits)
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
            if (values == 1 || (side(rules, chosen[k], d, 0) <= starts[i] && starts[i] <= side(rules, chosen[k], d, 1)))
                row[k / 32] |= UINT32_C(1) << k % 32;
        while (c < class->classes && memcmp(rows + c * SPLIT_ROW, row, sizeof row))
            c++;
        if (c == 256)
            return false;
        if (c == class->classes)
            memcpy(rows + class->classes++ * SPLIT_ROW, row, sizeof row);
        uint32_t end = i + 1 < count ? starts[i + 1] >> class->shift : entries;
        memset(of + (values == 1 ? 0 : starts[i] >> class->shift), (int)c, end - (values == 1 ? 0 : starts[i] >> class->shift));
    }
    class->of = of;
    class->bytes = entries;
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

static void *keep(struct split_product_builder *b, const void *from, size_t size)
{
    void *kept = b->memory.status ? NULL : budget_take(b->memory.scope.budget, size);
    if (kept)
        memcpy(kept, from, size);
    else if (!b->memory.status)
        b->memory.status = VFDB_NO_MEMORY;
    return kept;
}

/* Gives the most used services a bit each, as many as tables bear, and all others the last one. */
static void cut_services(struct split_product_builder *b)
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
        db->class[d].of = keep(b, db->class[d].of, db->class[d].bytes);
    db->kind = keep(b, db->kind, db->combinations * sizeof *db->kind);
    db->row = keep(b, db->row, (size_t)db->kinds * SPLIT_ROW * sizeof *db->row);
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

static bool covered(const struct split_product_builder *b, uint32_t by, uint32_t rule)
{
    uint32_t service = b->service[rule];
    return b->covers[(size_t)b->service[by] * SPLIT_ROW + service / 32] >> service % 32 & 1;
}

/* Buckets: one part per 16 rules, in each lows, highs, services, numbers, and VFDB_NONE. */
static uint32_t write_bucket(struct split_product_builder *b, const uint32_t *rule, uint32_t rules, uint32_t other, uint32_t *left)
{
    struct split_product *db = b->db;
    const struct axis_ranges *axis = &b->axis[other];
    uint32_t count = 0;
    for (uint32_t i = 0; i < rules; i++) {
        bool needed = true;
        for (uint32_t k = 0; k < count && k < 64 && needed; k++)
            needed = !(axis->first[left[k]] <= axis->first[rule[i]] && axis->last[left[k]] >= axis->last[rule[i]] &&
                       covered(b, left[k], rule[i]));
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
    size_t start = more(b, &db->pool, &db->used, &db->room, words);
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

static uint32_t known_list(const struct split_product_builder *b, const uint32_t *word, uint32_t words, uint32_t *at)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < words; i++)
        hash = (hash ^ word[i]) * UINT64_C(0x9E3779B97F4A7C15) ^ hash >> 32;
    *at = (uint32_t)(hash >> 32) & b->mask;
    for (; b->slot[*at]; *at = (*at + 1) & b->mask) {
        uint32_t reference = b->known[b->slot[*at] - 1];
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
static uint32_t write_list(struct split_product_builder *b, const uint32_t *rule, uint32_t rules, uint32_t *left)
{
    struct split_product *db = b->db;
    uint32_t count = 0, at;
    for (uint32_t i = 0; i < rules; i++) {
        bool needed = true;
        for (uint32_t k = 0; k < count && needed; k++)
            needed = !covered(b, left[k], rule[i]);
        if (needed)
            left[count++] = rule[i];
    }
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
    uint32_t reference = known_list(b, word, words, &at);
    if (reference)
        return reference;
    if (2 * b->knowns >= b->mask) {
        uint32_t mask = 2 * b->mask + 1;
        uint32_t *slot = borrow(&b->memory, ((size_t)mask + 1) * sizeof *slot);
        uint32_t *known = borrow(&b->memory, ((size_t)mask + 1) * sizeof *known), *old = b->known;
        if (b->memory.status)
            return 0;
        memcpy(known, old, b->knowns * sizeof *known);
        b->slot = slot;
        b->known = known;
        b->mask = mask;
        for (uint32_t i = 0; i < b->knowns; i++) {
            const uint32_t *there = db->pool + (known[i] >> 6);
            uint32_t size = known[i] & 63, in_front = size == SPLIT_LONG;
            if (in_front)
                size = *there;
            uint32_t place;
            uint32_t span = in_front + (size + 1) / 2 + size + 1;
            (void)known_list(b, there, span, &place);
            b->slot[place] = i + 1;
        }
        known_list(b, word, words, &at);
    }
    size_t start = more(b, &db->pool, &db->used, &db->room, words);
    if (b->memory.status)
        return 0;
    memcpy(db->pool + start, word, words * sizeof *word);
    reference = (uint32_t)start << 6 | (count < SPLIT_LONG ? count : SPLIT_LONG);
    b->known[b->knowns++] = reference;
    b->slot[at] = b->knowns;
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

static void write_row(struct split_product_builder *b, struct row_sweep *w, const uint32_t *rule, uint32_t rules,
                      const struct axis_ranges *axis, const struct range_classes *columns, uint32_t *cell)
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
    for (uint32_t p = 0; p < places; p++) {
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

static void write_product(struct split_product_builder *b, const struct range_classes *rows, const struct range_classes *columns, uint32_t part,
                          struct product_table *product)
{
    struct class_members members;
    uint32_t most = 0;
    gather(b, &b->axis[0], rows, part, &members);
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
static void write_buckets(struct split_product_builder *b, const struct range_classes *classes, uint32_t key, uint32_t part,
                          uint32_t (*pair)[2])
{
    struct class_members members;
    const struct axis_ranges *axis = &b->axis[key];
    size_t pieces = b->memory.scope.pieces;
    uint32_t most = 0;
    gather(b, axis, classes, part, &members);
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

static void write_parts(struct split_product_builder *b)
{
    struct split_product *db = b->db;
    uint32_t (*pair[2])[2];
    struct range_classes classes[2] = {0};
    b->mask = 1023;
    b->slot = borrow(&b->memory, (b->mask + 1) * sizeof *b->slot);
    b->known = borrow(&b->memory, (b->mask + 1) * sizeof *b->known);
    for (uint32_t k = 0; k < 2; k++)
        pair[k] = borrow(&b->memory, b->axis[k].ranges * sizeof *pair[k]);
    size_t none = more(b, &db->pool, &db->used, &db->room, 16);
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
            classify(b, &b->axis[k], 1U << part, &classes[k]);
        write_product(b, &classes[0], &classes[1], part, &db->product[part - CROSS]);
        for (uint32_t k = 0; k < 2; k++)
            for (uint32_t i = 0; i < b->axis[k].ranges && !b->memory.status; i++)
                pair[k][i][part == CROSS] = k ? classes[k].of[i] : classes[k].of[i] * classes[1].count;
    }
    for (uint32_t k = 0; k < 2; k++)
        if (k ? db->by_destination : db->by_source) {
            classify(b, &b->axis[k], 1U << (k ? BY_DESTINATION : BY_SOURCE), &classes[k]);
            if (!b->memory.status)
                write_buckets(b, &classes[k], k, k ? BY_DESTINATION : BY_SOURCE, pair[k]);
        }
    trim(b, &db->pool, &db->used, &db->room);
    for (uint32_t k = 0; k < 2; k++)
        draw_map(b, &b->axis[k], &db->map[k], pair[k]);
}

enum { SPLIT, NARROW, SIMD, MEMORY };

/* How the rules are shared out. */
enum split {
    BY_COST,             /* the cheapest of those that follow */
    ONE_PRODUCT,
    TWO_PRODUCTS,        /* narrow sources, the others */
    SOURCES,             /* buckets for narrow sources, a product for the others */
    DESTINATIONS,
    SOURCES_FIRST,       /* buckets for narrow sources, for narrow destinations, a product */
    DESTINATIONS_FIRST,
    SPLITS
};

/* How narrow a side is: the bits that it leaves free, less than there are, as if of 32. */
static uint32_t narrowness(const struct split_product_builder *b, uint32_t rule, uint32_t d)
{
    if (d >= b->rules->dims)
        return 0;
    uint32_t spread = side(b->rules, rule, d, 1) - side(b->rules, rule, d, 0);
    uint32_t open = spread ? 32 - (uint32_t)__builtin_clz(spread) : 0;
    return (b->rules->bits[d] - open) * 32 / b->rules->bits[d];
}

static void share_out(struct split_product_builder *b, enum split how, uint32_t narrow)
{
    for (uint32_t i = 0; i < b->rules->count; i++) {
        bool source = narrowness(b, i, 0) >= narrow, destination = narrowness(b, i, 1) >= narrow;
        enum part part = CROSS;
        if (how == TWO_PRODUCTS)
            part = source ? CROSS : CROSS_TOO;
        else if (destination && (how == DESTINATIONS || how == DESTINATIONS_FIRST))
            part = BY_DESTINATION;
        else if (source && (how == SOURCES || how == SOURCES_FIRST || how == DESTINATIONS_FIRST))
            part = BY_SOURCE;
        else if (destination && how == SOURCES_FIRST)
            part = BY_DESTINATION;
        b->part[i] = (uint8_t)part;
    }
}

/* The rules of the class that a packet meets which is made from a rule: long ones as often as they are long. */
static double usual_length(const struct range_classes *classes)
{
    return classes->pairs ? (double)classes->squares / (double)classes->pairs : 0;
}

/* Nanoseconds of a search, about, as the rules are shared out now; measured in `make bench-engine`'s
 * first runs, where a list or bucket of 16 took 4 and a line from beyond the second-level cache 3.
 * Infinite where the build would take too long, or more than so many bytes. */
static double estimate(struct split_product_builder *b, double memory)
{
    uint32_t rules[PARTS] = {0};
    double bytes = 4 * 65536 * 2, cost = 10, left = 1e8 + 1e4 * b->rules->count; /* nanoseconds of a build that there may be */
    for (uint32_t i = 0; i < b->rules->count; i++)
        rules[b->part[i]]++;
    for (uint32_t part = 0; part < PARTS && !b->memory.status; part++) {
        size_t pieces = b->memory.scope.pieces;
        struct range_classes classes[2];
        if (!rules[part])
            continue;
        bool bucket = part == BY_SOURCE || part == BY_DESTINATION;
        for (uint32_t k = 0; k < 2; k++)
            if (!bucket || k == (part == BY_DESTINATION))
                classify(b, &b->axis[k], 1U << part, &classes[bucket ? 0 : k]);
        if (bucket) {
            cost += 4 + usual_length(&classes[0]) / 4 + (classes[0].pairs > 100000 ? 3 : 0);
            left -= 30 * (double)classes[0].pairs;
            bytes += 16 * (double)classes[0].pairs + 20 * (double)classes[0].count;
        } else {
            /* A list is as long as two independent classes have rules in common. */
            double cells = (double)classes[0].count * classes[1].count;
            double length = rules[part] ? usual_length(&classes[0]) * usual_length(&classes[1]) / rules[part] : 0;
            cost += (part == CROSS_TOO) * 2 + length / 16 + (cells > 2.5e5) + (cells > 2e6 ? 2 : 0) + (cells > 8e6 ? 6 : 0);
            left -= 2 * cells + (200 + 4 * length) * (double)classes[0].pairs;
            bytes += 4 * cells + 6 * length * (double)classes[0].pairs;
        }
        give_back(&b->memory, pieces);
    }
    return left < 0 || (memory > 0 && bytes > memory) ? INFINITY : cost;
}

static void choose_split(struct split_product_builder *b, enum split how, uint32_t narrow, double memory)
{
    static const uint8_t narrows[] = {16, 8, 12, 20, 24};
    /* Each estimate takes a few sweeps; large sets are not that different. */
    uint32_t tried = b->rules->count < 20000 ? sizeof narrows : 2;
    double least = INFINITY;
    enum split best = SPLITS;
    uint32_t best_narrow = narrow;
    if (how != BY_COST) {
        share_out(b, how, narrow);
        if (isinf(estimate(b, memory)) && !b->memory.status)
            b->memory.status = VFDB_TOO_LARGE;
        return;
    }
    for (how = ONE_PRODUCT; how < SPLITS; how++)
        for (uint32_t i = 0; i < (how == ONE_PRODUCT ? 1 : tried) && !b->memory.status; i++) {
            share_out(b, how, narrows[i]);
            double cost = estimate(b, memory);
            if (cost < least) {
                least = cost;
                best = how;
                best_narrow = narrows[i];
            }
        }
    if (best == SPLITS && !b->memory.status)
        b->memory.status = VFDB_TOO_LARGE;
    else
        share_out(b, best, best_narrow);
}

static void split_product_free(void *built)
{
    struct split_product *db = built;
    for (uint32_t k = 0; k < 2; k++) {
        budget_give(db->budget, db->map[k].root, db->map[k].roots * sizeof *db->map[k].root);
        budget_give(db->budget, db->map[k].pool, db->map[k].room * sizeof *db->map[k].pool);
        budget_give(db->budget, db->product[k].list, db->product[k].cells * sizeof *db->product[k].list);
    }
    for (uint32_t d = 0; d + 2 < db->dims; d++)
        budget_give(db->budget, db->class[d].of, db->class[d].bytes);
    budget_give(db->budget, db->kind, db->combinations * sizeof *db->kind);
    budget_give(db->budget, db->row, (size_t)db->kinds * SPLIT_ROW * sizeof *db->row);
    budget_give(db->budget, db->pool, db->room * sizeof *db->pool);
    budget_give(db->budget, db->priority, db->count * sizeof *db->priority);
    budget_give(db->budget, db->rest, (size_t)db->count * (db->dims - 2) * 2 * sizeof *db->rest);
    budget_give(db->budget, db, sizeof *db);
}

static int split_product_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules, void **built)
{
    struct split_product_builder b = {.memory.scope.budget = budget, .rules = rules};
    struct split_product *db = b.db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    *db = (struct split_product){.budget = budget, .dims = rules->dims, .count = rules->count, .numbered = true};
    db->level = level_of(plan->value[SIMD]);
    if (rules->count >> 30)
        b.memory.status = VFDB_TOO_LARGE;
    b.part = borrow(&b.memory, rules->count);
    b.key = borrow(&b.memory, 2 * (size_t)rules->count * sizeof *b.key);
    b.spare = borrow(&b.memory, 2 * (size_t)rules->count * sizeof *b.spare);
    for (uint32_t k = 0; k < 2; k++)
        if (!b.memory.status)
            lay_axis(&b, &b.axis[k], k);
    if (!b.memory.status)
        choose_split(&b, (enum split)plan->value[SPLIT], (uint32_t)plan->value[NARROW],
                     (double)plan->value[MEMORY]);
    if (!b.memory.status)
        cut_services(&b);
    if (!b.memory.status)
        write_parts(&b);
    for (uint32_t i = 0; i < rules->count; i++)
        db->numbered &= rules->priority[i] == i;
    if (!db->numbered && rules->count)
        db->priority = keep(&b, rules->priority, rules->count * sizeof *db->priority);
    scope_empty(&b.memory.scope);
    if (b.memory.status) {
        split_product_free(db);
        return b.memory.status;
    }
    *built = db;
    return VFDB_OK;
}

const struct vfdb_ops vfdb_split_product = {
    .name = "sides",
    .title = "buckets by the narrow side, a product table for what is wide in both",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {{"split", "0 by cost; 1, 2 products; 3, 4 buckets of sources, of destinations; 5, 6 of both", 0, 0, 6},
              {"narrow", "bits that a narrow side fixes, where split is not by cost", 16, 0, 32},
              {"simd", "bits of the widest vectors that a search may use: 0, 256, 512", 512, 0, 512},
              {"memory", "bytes, about, within which the split by cost keeps; 0: any number", 0, 0, INT64_MAX}},
    .build = split_product_build,
    .search = split_product_find,
    .free = split_product_free,
};
