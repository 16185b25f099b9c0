/* Grid-of-Tries, built (grid_of_tries.c).
 *
 * Idea: rules are sorted by their groups, in these by the length of their destination, so that a source trie
 * is written when those of all shorter destinations are complete, and its missing branches are copied from
 * the nearest of these.
 * Cost: a sort, and a pass over the nodes of the source tries.
 * Invariant: a node that was written does not change.
 * Threading: none.
 */
#define _GNU_SOURCE
#include "grid_of_tries.h"

#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "sort.h"

enum { GROUPS = 1 << 16, LEAST_WORDS = 1024 };

static bool reserve(struct grid_of_tries *db, size_t words)
{
    if (db->words + words <= db->room)
        return true;
    size_t room = db->room ? 2 * db->room : LEAST_WORDS;
    uint32_t *word = budget_resize(db->budget, db->word, db->room * sizeof *word, room * sizeof *word);
    if (!word)
        return false;
    db->word = word;
    db->room = room;
    return true;
}

/* Write the node of a source trie and all below it; *at: its place.  up: the node of the same bits in the
 * nearest shorter destination prefix's trie, or 0.  best: the best priority on the path to it. */
static int write_node(struct grid_of_tries *db, const struct trie *trie, const void *node, uint32_t up,
                      uint32_t best, uint32_t *at)
{
    uint32_t digits = 1u << db->stride, entries[256], present = 0;
    uint64_t own = *(const uint64_t *)trie_payload(trie, node);
    if (own && own - 1 < best)
        best = (uint32_t)(own - 1);
    if (up && db->word[up] < best)
        best = db->word[up];
    for (uint32_t digit = 0; digit < digits; digit++) {
        const void *child = trie_child(trie, node, digit);
        entries[digit] = up ? grid_entry(db, up, digit) : 0;
        if (child) {
            int status = write_node(db, trie, child, entries[digit], best, &entries[digit]);
            if (status)
                return status;
        }
        present += entries[digit] != 0;
    }
    uint32_t masks = grid_mask_words(db), size = 1 + (db->form == TRIE_PLAIN ? digits : masks + present);
    if (db->words + size > UINT32_MAX)
        return VFDB_TOO_LARGE;
    if (!reserve(db, size))
        return VFDB_NO_MEMORY;
    *at = (uint32_t)db->words;
    db->words += size;
    uint32_t *written = db->word + *at, *next = written + 1 + masks;
    written[0] = best;
    for (uint32_t digit = 0; digit < digits; digit++) {
        if (db->form != TRIE_PLAIN && !entries[digit])
            continue;
        if (masks)
            written[1 + digit / 32] |= 1u << digit % 32;
        *next++ = entries[digit];
    }
    return VFDB_OK;
}

static void nothing(void *owner, void *payload)
{
    (void)owner;
    (void)payload;
}

void grid_free(void *built)
{
    struct grid_of_tries *db = built;
    for (uint32_t g = 0; g < db->groups; g++)
        trie_free(db->group[g].dst, nothing, NULL);
    budget_give(db->budget, db->group, db->groups * sizeof *db->group);
    for (uint32_t d = 0; d < db->dims; d++) {
        struct other_dimension *other = db->other + d;
        budget_give(db->budget, other->member,
                    (size_t)other->edges * db->group_words * sizeof *other->member);
        budget_give(db->budget, other->edge, other->edges * sizeof *other->edge);
    }
    budget_give(db->budget, db->word, db->room * sizeof *db->word);
    budget_give(db->budget, db, sizeof *db);
}

static const uint32_t *side(const struct vfdb_rules *rules, uint32_t rule, uint32_t dim)
{
    return rules->box + ((size_t)rule * rules->dims + dim) * 2;
}

static uint32_t length(const struct vfdb_rules *rules, uint32_t rule, uint32_t dim)
{
    uint32_t differ = side(rules, rule, dim)[0] ^ side(rules, rule, dim)[1];
    return rules->bits[dim] - (differ ? 32 - (uint32_t)__builtin_clz(differ) : 0);
}

static bool same_group(const struct vfdb_rules *rules, uint32_t a, uint32_t b)
{
    return !memcmp(side(rules, a, 2), side(rules, b, 2), 2 * (rules->dims - 2) * sizeof *rules->box);
}

/* Group by group, in it from short destinations to long. */
static int by_group(const void *first, const void *second, void *context)
{
    const struct vfdb_rules *rules = context;
    uint32_t a = *(const uint32_t *)first, b = *(const uint32_t *)second;
    int order = memcmp(side(rules, a, 2), side(rules, b, 2), 2 * (rules->dims - 2) * sizeof *rules->box);
    if (order)
        return order;
    uint64_t x = (uint64_t)length(rules, a, GRID_DST) << 32 | side(rules, a, GRID_DST)[0];
    uint64_t y = (uint64_t)length(rules, b, GRID_DST) << 32 | side(rules, b, GRID_DST)[0];
    return (x > y) - (x < y);
}

static int by_bound(const void *a, const void *b)
{
    uint32_t x = ((const struct grid_group *)a)->bound, y = ((const struct grid_group *)b)->bound;
    return (x > y) - (x < y);
}

/* The source trie of rules that share their destination, written behind the others; *up*: the root of the
 * next shorter destination's. */
static int write_sources(struct grid_of_tries *db, const struct vfdb_rules *rules, const uint32_t *rule,
                         uint32_t count, uint32_t up, uint32_t *root)
{
    int status = VFDB_NO_MEMORY;
    struct trie *trie = trie_new(db->budget, db->src_width, db->stride, TRIE_PLAIN, sizeof(uint64_t));
    if (!trie)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        struct trie_span span =
            trie_span(trie, side(rules, rule[i], GRID_SRC)[0], length(rules, rule[i], GRID_SRC));
        for (uint32_t s = 0; s < span.count; s++) {
            uint64_t *best = trie_reach(trie, span.first + s * span.step, span.level, true);
            if (!best)
                goto out;
            if (!*best || *best - 1 > rules->priority[rule[i]])
                *best = (uint64_t)rules->priority[rule[i]] + 1;
        }
    }
    status = write_node(db, trie, trie->root, up, VFDB_NONE, root);
out:
    trie_free(trie, nothing, NULL);
    return status;
}

/* The longest destination on the path of *key*, down to that level. */
static const struct source_root *longest(const struct trie *trie, uint64_t key, uint32_t level)
{
    const struct source_root *longest_root = NULL;
    const void *node = trie->root;
    for (uint32_t l = 0; node; l++) {
        const struct source_root *target = trie_payload(trie, node);
        if (target->root)
            longest_root = target;
        node = l < level ? trie_child(trie, node, trie_digit(trie, key, l)) : NULL;
    }
    return longest_root;
}

static int build_group(struct grid_of_tries *db, struct grid_group *group, const struct vfdb_rules *rules,
                       const uint32_t *rule, uint32_t count)
{
    group->rule = rule[0];
    group->bound = VFDB_NONE;
    for (uint32_t i = 0; i < count; i++)
        if (rules->priority[rule[i]] < group->bound)
            group->bound = rules->priority[rule[i]];
    group->dst =
        trie_new(db->budget, rules->bits[GRID_DST], db->stride, db->form, sizeof(struct source_root));
    if (!group->dst)
        return VFDB_NO_MEMORY;
    for (uint32_t i = 0, end; i < count; i = end) {
        const uint32_t *dst = side(rules, rule[i], GRID_DST);
        for (end = i + 1;
             end < count && !memcmp(side(rules, rule[end], GRID_DST), dst, 2 * sizeof *dst); end++)
            ;
        struct source_root root = {0, length(rules, rule[i], GRID_DST)};
        struct trie_span span = trie_span(group->dst, dst[0], root.length);
        const struct source_root *shorter = longest(group->dst, span.first, span.level);
        int status = write_sources(db, rules, rule + i, end - i, shorter ? shorter->root : 0, &root.root);
        if (status)
            return status;
        for (uint32_t s = 0; s < span.count; s++) {
            struct source_root *at = trie_reach(group->dst, span.first + s * span.step, span.level, true);
            if (!at)
                return VFDB_NO_MEMORY;
            *at = root;
        }
    }
    return VFDB_OK;
}

/* Which groups hold which interval of that dimension. */
static int build_other(struct grid_of_tries *db, const struct vfdb_rules *rules, uint32_t dim)
{
    struct other_dimension *other = db->other + dim;
    uint32_t most = 2 * db->groups + 1, edges = 1;
    uint32_t *edge = budget_take(db->budget, most * sizeof *edge);
    if (!edge)
        return VFDB_NO_MEMORY;
    for (uint32_t g = 0; g < db->groups; g++) {
        const uint32_t *range = side(rules, db->group[g].rule, dim);
        edge[edges++] = range[0];
        if (range[1] != UINT32_MAX)
            edge[edges++] = range[1] + 1;
    }
    qsort(edge, edges, sizeof *edge, compare_u32);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < edges; i++)
        if (edge[i] != edge[kept - 1])
            edge[kept++] = edge[i];
    other->edge = budget_resize(db->budget, edge, most * sizeof *edge, kept * sizeof *edge);
    if (!other->edge) {
        budget_give(db->budget, edge, most * sizeof *edge);
        return VFDB_NO_MEMORY;
    }
    other->edges = kept;
    other->member = budget_take(db->budget, (size_t)kept * db->group_words * sizeof *other->member);
    if (!other->member)
        return VFDB_NO_MEMORY;
    for (uint32_t g = 0; g < db->groups; g++) {
        const uint32_t *range = side(rules, db->group[g].rule, dim);
        const uint32_t *from = bsearch(range, other->edge, kept, sizeof *range, compare_u32);
        for (uint32_t i = (uint32_t)(from - other->edge); i < kept && other->edge[i] <= range[1]; i++)
            other->member[(size_t)i * db->group_words + g / 64] |= UINT64_C(1) << g % 64;
    }
    return VFDB_OK;
}

static int build_groups(struct grid_of_tries *db, const struct vfdb_rules *rules, const uint32_t *rule)
{
    uint32_t groups = 0;
    for (uint32_t i = 0; i < rules->count; i++)
        groups += !i || !same_group(rules, rule[i - 1], rule[i]);
    if (groups > GROUPS)
        return VFDB_TOO_LARGE;
    db->group_words = (groups + 63) / 64;
    db->group = budget_take(db->budget, groups * sizeof *db->group);
    if (!db->group)
        return VFDB_NO_MEMORY;
    db->groups = groups;
    struct grid_group *group = db->group;
    for (uint32_t i = 0, end; i < rules->count; i = end) {
        for (end = i + 1; end < rules->count && same_group(rules, rule[i], rule[end]); end++)
            ;
        int status = build_group(db, group++, rules, rule + i, end - i);
        if (status)
            return status;
    }
    qsort(db->group, groups, sizeof *db->group, by_bound);
    for (uint32_t d = 2; d < db->dims; d++) {
        int status = build_other(db, rules, d);
        if (status)
            return status;
    }
    size_t bytes = db->words * sizeof *db->word;
    uint32_t *word = budget_resize(db->budget, db->word, db->room * sizeof *word, bytes);
    if (!word)
        return VFDB_NO_MEMORY;
    db->word = word;
    db->room = db->words;
    return VFDB_OK;
}

int grid_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
               void **built)
{
    struct grid_of_tries *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    *db = (struct grid_of_tries){.budget = budget,
                                 .dims = rules->dims,
                                 .stride = (uint32_t)plan->value[0],
                                 .form = (enum trie_form)plan->value[1],
                                 .src_width = rules->bits[GRID_SRC],
                                 .dst_width = rules->bits[GRID_DST],
                                 .words = 1};
#ifdef __x86_64__
    if (db->form == TRIE_POPCNT && !__builtin_cpu_supports("popcnt"))
        db->form = TRIE_BITMAP;
#endif
    int status = VFDB_OK;
    if (rules->count) {
        size_t bytes = rules->count * sizeof(uint32_t);
        uint32_t *rule = budget_take(budget, bytes);
        for (uint32_t i = 0; rule && i < rules->count; i++)
            rule[i] = i;
        if (rule)
            qsort_r(rule, rules->count, sizeof *rule, by_group, (void *)(uintptr_t)rules);
        status = rule ? build_groups(db, rules, rule) : VFDB_NO_MEMORY;
        budget_give(budget, rule, bytes);
    }
    if (status)
        grid_free(db);
    else
        *built = db;
    return status;
}
