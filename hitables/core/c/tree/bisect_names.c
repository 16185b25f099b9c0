/* Tests of an axis of names (interfaces): one name, or all names that begin alike.
 *
 * Idea: the hulls of the rules, sorted, are the leaves of a trie of bytes.  Every fork of that trie, and
 * every leaf, is a candidate: the least prefix that holds the hulls below it, or the one name.  A test
 * separates one branch of a fork from all others, so names of 16 digits take 8 tests per digit on the mean,
 * where tests of whole names take half as many as there are names.
 * Cost: O(n log n) per axis, n the boxes of the leaf; equal hulls count as one after the first sort.
 * Invariant: every candidate can be written as one interface of a rule (axis_can_test).
 * Threading: none; scratch belongs to one bisection.
 */
#include "bisect_internal.h"

#include "sort.h"

/* The number, and the traffic, of hulls up to one of them in some order; *rank* is what they are sorted by.
 */
struct hull_count {
    uint32_t rank, rules;
    double share;
};

/* Equal hulls of rules and background boxes as one, clipped to the region. */
struct name_hull {
    struct rank_range ranks;
    u128 low, high;
    uint32_t rules;
    double share;
};

struct name_scratch {
    struct name_hull *hull;          /* by first, then by last name */
    struct hull_count *begun, *ended; /* by first name; by last name */
};

/* The search for a leaf's best test of one axis. */
struct name_search {
    struct bisection *g;
    const struct open_leaf *leaf;
    const struct axis_spans *spans;
    uint32_t hulls;
    struct test_choice *best;
};

bool names_prepare(struct bisection *g, size_t spans)
{
    struct arena *arena = g->space->arena;
    bool named = false;
    for (uint32_t a = 0; a < g->space->in->axes; a++)
        named |= g->space->in->axis[a].cut == TREE_CUT_NAME;
    if (!named)
        return true;
    struct name_scratch *names = g->names = arena_take(arena, sizeof *names);
    if (!names)
        return false;
    names->hull = arena_take(arena, spans * sizeof *names->hull);
    names->begun = arena_take(arena, spans * sizeof *names->begun);
    names->ended = arena_take(arena, spans * sizeof *names->ended);
    return names->hull && names->begun && names->ended;
}

/* Sort the leaf's spans into distinct hulls; how many. */
static uint32_t hulls_read(struct bisection *g, const struct open_leaf *leaf, const struct axis_spans *spans)
{
    const struct line *line = &g->space->line[spans->axis];
    const struct range *along = &leaf->region[spans->axis];
    uint64_t *key = g->key;
    uint32_t hulls = 0;
    for (uint32_t i = 0; i < spans->all; i++)
        key[i] = (uint64_t)g->span[i].ranks.high << 32 | i;
    sort_keys(key, g->spare, spans->all, 32);
    for (uint32_t i = 0; i < spans->all; i++) {
        uint32_t span = (uint32_t)key[i];
        key[i] = (uint64_t)g->span[span].ranks.low << 32 | span;
    }
    sort_keys(key, g->spare, spans->all, 32);
    struct name_hull *hull = NULL;
    for (uint32_t i = 0; i < spans->all; i++) {
        const struct rule_span *span = &g->span[(uint32_t)key[i]];
        struct rank_range ranks = span->ranks;
        if (!hull || ranks.low != hull->ranks.low || ranks.high != hull->ranks.high) {
            u128 low = line->edge[ranks.low], high = line_end(line, ranks.high);
            hull = &g->names->hull[hulls++];
            *hull = (struct name_hull){.ranks = ranks,
                                       .low = low > along->low ? low : along->low,
                                       .high = high < along->high ? high : along->high};
        }
        hull->rules += !span->background;
        hull->share += span->share;
    }
    return hulls;
}

/* Add up the hulls in the order of g->key, whose upper halves are ranks. */
static void hulls_add_up(const struct bisection *g, uint32_t hulls, struct hull_count *count)
{
    struct hull_count sum = {0, 0, 0};
    for (uint32_t i = 0; i < hulls; i++) {
        const struct name_hull *hull = &g->names->hull[(uint32_t)g->key[i]];
        sum.rank = (uint32_t)(g->key[i] >> 32);
        sum.rules += hull->rules;
        sum.share += hull->share;
        count[i] = sum;
    }
}

static void hulls_count(struct bisection *g, uint32_t hulls)
{
    for (uint32_t i = 0; i < hulls; i++)
        g->key[i] = (uint64_t)g->names->hull[i].ranks.low << 32 | i;
    hulls_add_up(g, hulls, g->names->begun);
    for (uint32_t i = 0; i < hulls; i++)
        g->key[i] = (uint64_t)g->names->hull[i].ranks.high << 32 | i;
    sort_keys(g->key, g->spare, hulls, 32);
    hulls_add_up(g, hulls, g->names->ended);
}

/* Of the hulls in *count*, those up to *rank* (not *before*: and at it). */
static struct hull_count counted(const struct hull_count *count, uint32_t hulls, uint32_t rank, bool before)
{
    uint32_t low = 0, high = hulls;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (before ? count[middle].rank < rank : count[middle].rank <= rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? count[low - 1] : (struct hull_count){0, 0, 0};
}

/* Weigh a test of low..high; *within*: the hulls inside. */
static void try_name(const struct name_search *s, u128 low, u128 high, struct hull_count within)
{
    const struct axis_spans *spans = s->spans;
    const struct space *space = s->g->space;
    const struct range *along = &s->leaf->region[spans->axis];
    if (!axis_can_test(&space->in->axis[spans->axis], low, high))
        return;
    const struct line *line = &space->line[spans->axis];
    struct hull_count begun = counted(s->g->names->begun, s->hulls, line_rank(line, high), false);
    struct hull_count ended = counted(s->g->names->ended, s->hulls, line_rank(line, low), true);
    bool whole = low <= along->low && high >= along->high;
    double crossing = begun.share - ended.share - within.share;
    struct side_counts counts = {spans->wide + begun.rules - ended.rules,
                                 spans->wide + spans->rules - within.rules,
                                 within.share + crossing / 2 + spans->wide_share * (whole ? 1 : 0.5)};
    weigh(s->g, s->leaf, &counts, spans->share, spans->axis, low, high, s->best);
}

/* The free bits of the least prefix of whole bytes that holds low..high. */
static u128 free_bytes(u128 low, u128 high)
{
    u128 free = 0;
    while (free < (low ^ high))
        free = free << 8 | 0xff;
    return free;
}

/* Weigh the tests at and below one branch of the trie: the hulls from number *from* up to *to*, which begin
 * in it, except those that end above *last*. */
static void try_branch(const struct name_search *s, uint32_t from, uint32_t to, u128 last)
{
    const struct name_hull *hull = s->g->names->hull;
    struct hull_count within = {0, 0, 0};
    u128 low = 0, high = 0;
    uint32_t held = 0;
    for (uint32_t i = from; i < to; i++) {
        if (hull[i].high > last)
            continue;
        low = held ? low : hull[i].low;
        high = held && high > hull[i].high ? high : hull[i].high;
        within.rules += hull[i].rules;
        within.share += hull[i].share;
        held++;
    }
    if (!held)
        return;
    u128 free = free_bytes(low, high), below = free >> 8;
    low &= ~free;
    high = low | free;
    try_name(s, low, high, within);
    if (!free || held == 1)
        return;
    /* Branches: the next byte.  Hulls that begin before the narrowed prefix end above *last*. */
    while (from < to && hull[from].low < low)
        from++;
    while (from < to && hull[from].low <= high) {
        u128 end = hull[from].low | below;
        uint32_t next = from;
        while (next < to && hull[next].low <= end)
            next++;
        try_branch(s, from, next, end);
        from = next;
    }
}

void try_names(struct bisection *g, const struct open_leaf *leaf, const struct axis_spans *spans,
               struct test_choice *best)
{
    struct name_search search = {g, leaf, spans, hulls_read(g, leaf, spans), best};
    hulls_count(g, search.hulls);
    try_branch(&search, 0, search.hulls, g->space->line[spans->axis].top);
}
