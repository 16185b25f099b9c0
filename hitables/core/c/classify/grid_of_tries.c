/* Grid-of-Tries (Srinivasan, Varghese, Suri and Waldvogel, SIGCOMM 1998).
 *
 * Idea: a trie over destination prefixes; each prefix that rules have points to a trie over the sources of
 * these rules.  A header descends to the longest of its destination prefixes, then bit by bit through that
 * source trie.  Where a branch is missing, a switch pointer leads to the node of the same source bits in the
 * source trie of the nearest shorter destination prefix that has it.  A node stores the best of all rules
 * that match the bits on the path to it, whichever source trie they are in.
 * Cost: a search takes 2 W / stride steps, however many rules; space is linear in the rules' nodes.  An
 * update may change every switch pointer, so there is none.
 * Invariant: the entry of node s for digit x is the node s x of its own trie, else that of the nearest
 * shorter destination prefix that has one, else nothing.
 * Threading: searches change nothing.
 *
 * Built from the shorter destination prefix to the longer: a missing branch switches to the entry of the
 * shorter prefix's node, which is already complete.  With strides above 1 the paths are those of expanded
 * prefixes; a source trie belongs to its destination prefix as it was, so none is copied.
 *
 * More than two dimensions: rules of equal ranges in the others form a group with a grid of its own.  The
 * paper finds the groups by hashing ports that are given or any; here they may be ranges, so a bitmap per
 * elementary interval of each dimension marks the groups that hold it, and those in all bitmaps are searched,
 * best first.
 * Bound: GROUPS groups.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "sort.h"
#include "trie.h"
#include "vfdb.h"
#include "vfdb_work.h"

enum { GROUPS = 1 << 16, LEAST_WORDS = 1024 };
/* Headers that go down side by side, so that their cache misses overlap. */
enum { BLOCK = 16 };
enum { SRC, DST };

/* The payload of the destination trie: the root of a source trie, 0: none. */
struct source_root {
    uint32_t root, length;
};

struct grid_group {
    struct trie *dst;
    uint32_t bound; /* its best priority */
    uint32_t rule;  /* one of its rules, while building */
};

/* One of the other dimensions. */
struct other_dimension {
    uint32_t edges;
    uint32_t *edge;   /* [edges] rising: where intervals start */
    uint64_t *member; /* [edges][groups / 64]: the groups that hold that interval */
};

struct grid_of_tries {
    struct budget *budget;
    uint32_t dims, groups, group_words, stride;
    uint32_t src_width, dst_width;
    enum trie_form form;
    struct grid_group *group; /* [groups] by rising bound */
    struct other_dimension other[VFDB_DIMS];
    /* Nodes of source tries: the best priority; in bitmap form 2^stride bits; then an entry for each
     * digit, or for each bit.  Entries and roots are places in here, 0: none. */
    uint32_t *word;
    size_t words, room;
};

/* -- nodes ------------------------------------------------------------------------------------ */

static uint32_t mask_words(const struct grid_of_tries *db)
{
    return db->form == TRIE_PLAIN ? 0 : ((1u << db->stride) + 31) / 32;
}

static uint32_t entry(const struct grid_of_tries *db, uint32_t node, uint32_t digit)
{
    const uint32_t *at = db->word + node + 1;
    if (db->form == TRIE_PLAIN)
        return at[digit];
    if (!(at[digit / 32] >> digit % 32 & 1))
        return 0;
    uint32_t before = trie_ones(at[digit / 32] & ((1u << digit % 32) - 1), db->form);
    for (uint32_t w = 0; w < digit / 32; w++)
        before += trie_ones(at[w], db->form);
    return at[mask_words(db) + before];
}

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
        entries[digit] = up ? entry(db, up, digit) : 0;
        if (child) {
            int status = write_node(db, trie, child, entries[digit], best, &entries[digit]);
            if (status)
                return status;
        }
        present += entries[digit] != 0;
    }
    uint32_t masks = mask_words(db), size = 1 + (db->form == TRIE_PLAIN ? digits : masks + present);
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

/* -- build ------------------------------------------------------------------------------------ */

static void nothing(void *owner, void *payload)
{
    (void)owner;
    (void)payload;
}

static void grid_free(void *built)
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
    uint64_t x = (uint64_t)length(rules, a, DST) << 32 | side(rules, a, DST)[0];
    uint64_t y = (uint64_t)length(rules, b, DST) << 32 | side(rules, b, DST)[0];
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
        struct trie_span span = trie_span(trie, side(rules, rule[i], SRC)[0], length(rules, rule[i], SRC));
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
    group->dst = trie_new(db->budget, rules->bits[DST], db->stride, db->form, sizeof(struct source_root));
    if (!group->dst)
        return VFDB_NO_MEMORY;
    for (uint32_t i = 0, end; i < count; i = end) {
        const uint32_t *dst = side(rules, rule[i], DST);
        for (end = i + 1; end < count && !memcmp(side(rules, rule[end], DST), dst, 2 * sizeof *dst); end++)
            ;
        struct source_root root = {0, length(rules, rule[i], DST)};
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

static int grid_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                      void **built)
{
    struct grid_of_tries *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    *db = (struct grid_of_tries){.budget = budget,
                                 .dims = rules->dims,
                                 .stride = (uint32_t)plan->value[0],
                                 .form = (enum trie_form)plan->value[1],
                                 .src_width = rules->bits[SRC],
                                 .dst_width = rules->bits[DST],
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

/* -- search ----------------------------------------------------------------------------------- */

/* A header on its way: the groups that may match and were not searched, and the nodes that it is at. */
struct grid_walk {
    const uint64_t *member[VFDB_DIMS];
    uint64_t left; /* of the 64 groups from 64 * word on */
    uint32_t word, best;
    const struct trie *trie;
    const void *node;
    uint64_t src, dst;
    uint32_t root;
};

static void begin(const struct grid_of_tries *db, const uint32_t *header, struct grid_walk *walk)
{
    walk->best = VFDB_NONE;
    walk->left = 0;
    bool beyond = (uint64_t)header[SRC] >> db->src_width || (uint64_t)header[DST] >> db->dst_width;
    walk->word = beyond ? db->group_words - 1 : UINT32_MAX; /* the next is behind all groups, or 0 */
    walk->src = (uint64_t)header[SRC] << (64 - db->src_width);
    for (uint32_t d = 2; d < db->dims; d++) {
        const struct other_dimension *other = db->other + d;
        const uint32_t *edge = other->edge;
        for (uint32_t count = other->edges; count > 1; count -= count / 2)
            edge += edge[count / 2] <= header[d] ? count / 2 : 0;
        walk->member[d] = other->member + (size_t)(edge - other->edge) * db->group_words;
    }
}

/* The next group that may have a better rule; false when there is none. */
static bool next_group(const struct grid_of_tries *db, const uint32_t *header, struct grid_walk *walk)
{
    while (!walk->left) {
        if (++walk->word >= db->group_words)
            return false;
        uint32_t rest = db->groups - walk->word * 64;
        walk->left = rest < 64 ? (UINT64_C(1) << rest) - 1 : UINT64_MAX;
        for (uint32_t d = 2; d < db->dims; d++)
            walk->left &= walk->member[d][walk->word];
    }
    const struct grid_group *group = db->group + walk->word * 64 + (uint32_t)__builtin_ctzll(walk->left);
    walk->left &= walk->left - 1;
    if (group->bound >= walk->best)
        return false;
    walk->trie = group->dst;
    walk->node = group->dst->root;
    walk->dst = trie_key(group->dst, header[DST]);
    walk->root = 0;
    return true;
}

/* All walks through their groups, level by level. */
VFDB_BODY void go(const struct grid_of_tries *db, struct grid_walk **walk, uint32_t count,
                  const struct grid_walk *first, struct vfdb_work *work, bool counted)
{
    uint32_t on = count;
    for (uint32_t level = 0; on; level++) {
        on = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct grid_walk *w = walk[i];
            if (!w->node)
                continue;
            if (counted)
                work[w - first].nodes++;
            const struct source_root *target = trie_payload(w->trie, w->node);
            w->root = target->root ? target->root : w->root;
            bool last = level == w->trie->levels;
            w->node = last ? NULL : trie_child(w->trie, w->node, trie_digit(w->trie, w->dst, level));
            on += w->node != NULL;
        }
    }
    uint32_t levels = (db->src_width + db->stride - 1) / db->stride;
    on = count;
    for (uint32_t level = 0; on; level++) {
        on = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct grid_walk *w = walk[i];
            if (!w->root)
                continue;
            if (counted)
                work[w - first].nodes++;
            if (db->word[w->root] < w->best)
                w->best = db->word[w->root];
            uint32_t digit = (uint32_t)(w->src << level % levels * db->stride >> (64 - db->stride));
            w->root = level < levels ? entry(db, w->root, digit) : 0;
            on += w->root != 0;
        }
    }
}

VFDB_BODY int search_blocks(const struct grid_of_tries *db, const uint32_t *headers, size_t count,
                            uint32_t *answers, struct vfdb_work *work, bool counted)
{
    struct grid_walk walk[BLOCK], *going[BLOCK];
    for (size_t first = 0; first < count; first += BLOCK, headers += (size_t)BLOCK * db->dims) {
        uint32_t some = count - first < BLOCK ? (uint32_t)(count - first) : BLOCK, on = some;
        for (uint32_t i = 0; i < some; i++) {
            going[i] = walk + i;
            if (db->groups)
                begin(db, headers + (size_t)i * db->dims, walk + i);
            else
                walk[i].best = VFDB_NONE;
        }
        while (on && db->groups) {
            uint32_t kept = 0;
            for (uint32_t i = 0; i < on; i++)
                if (next_group(db, headers + (size_t)(going[i] - walk) * db->dims, going[i]))
                    going[kept++] = going[i];
            on = kept;
            for (uint32_t i = 0; counted && i < on; i++)
                work[first + (size_t)(going[i] - walk)].lists++;
            go(db, going, on, walk, counted ? work + first : NULL, counted);
        }
        for (uint32_t i = 0; i < some; i++)
            answers[first + i] = walk[i].best;
    }
    return VFDB_OK;
}

static int grid_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    return search_blocks(built, headers, count, answers, NULL, false);
}

/* Lists are the groups of rules whose tries are walked. */
static int grid_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                               struct vfdb_work *work)
{
    return search_blocks(built, headers, count, answers, work, true);
}

const struct vfdb_ops vfdb_grid_of_tries = {
    .name = "grid_of_tries",
    .title = "a trie of destinations, tries of sources below it, and switch pointers between these",
    .least_dims = 2,
    .most_dims = VFDB_DIMS,
    .prefix_dims = 2,
    .param = {{"stride", "bits of a key per level of its trie (the compression factor)", 4, 1, 8},
              {"form", "of its nodes: 0 plain, 1 bitmaps, 2 bitmaps counted by the CPU's instruction", 0, 0,
               2}},
    .build = grid_build,
    .search = grid_search,
    .search_counted = grid_search_counted,
    .free = grid_free,
};
