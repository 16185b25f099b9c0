/* Bisection: one test per node, chosen by what reading the printed tree would cost (cost.h).
 *
 * Idea: of the tests that the axes allow (prefixes on the heavier path of the
 * address trie, edges of ranges, what boxes spell) take the one that leaves the
 * least expected work, where copies of rules count extra.  The work that a list of
 * n rules will cause is estimated under the nesting that is left: only the taken
 * side of a test nests, so when nesting gets scarce the estimate itself asks for
 * small taken sides.  The tree grows best first, the split with the largest saving
 * per printed rule next, until no split saves or the budget is used up.
 * A rule's traffic is spread evenly over its box, along addresses and ports; along
 * other axes half of it is taken to pass a test that the rule does not answer.
 * Guests are boxes whose traffic comes by and matches no rule here.
 * Rules that cover a whole region and stand first are read before its test, once.
 * Cost: O(n log n) per node and axis, n the boxes of the node.
 * Invariant: entries and decisions never exceed the budget, nor taken tests on a
 * path max_nesting.  Same input, same tree.
 * Threading: none; everything lives in the space's arena.
 */
#include "cost.h"

#include <math.h>
#include <string.h>

#include "sort.h"

enum {
    BESIDE = 16,     /* rules that may stand in front of another list, at most */
    SPELT_TRIED = 8, /* most frequent spellings tried per axis */
    STEPS = 8,       /* sizes per doubling in the table of work */
    SIZES = 28 * STEPS,
    NESTINGS = 33,
    TABLES = 4, /* addresses, and ports, are alike */
    PLACES = 64
};

/* A wider prefix must cost so much less. */
static const double WIDER = 0.7;
/* Tests that cost so much more still count as alike.  With 1.2 legacy trees avoid ports for nothing: the
 * set fw1_10k of ClassBench grows by a seventh. */
static const double ALIKE = 1.5;

/* A test with what it would do: rules on each side, and their shares of the traffic. */
struct test_choice {
    double work; /* expected, per packet; HUGE_VAL: no test */
    uint32_t axis;
    u128 low, high;
    bool negated;
    uint32_t copies; /* rules that meet both sides */
};

/* A leaf that may yet be split.  *share* is the traffic that meets each rule here,
 * kept with the rule's first box, and of each guest. */
struct open_leaf {
    struct build_node *node;
    uint32_t nesting, boxes, rules;
    uint32_t front; /* boxes at the head of the list that are read before any test */
    uint32_t *box;
    float *share;
    uint32_t background_boxes, *background;
    float *background_share;
    struct range *region;
    const struct hole *holes;
    struct test_choice choice;
    uint32_t table; /* of work */
    double scale;   /* of the table of work: what a rule costs here, over what it costs there */
    double rank;    /* saving per printed rule: the greatest is split first */
    uint32_t order; /* of birth, to break ties */
};

/* A rule along one axis: the hull of its boxes, in the region.  Or a guest. */
struct rule_span {
    struct rank_range ranks;
    float share;
    bool background;
};

/* A span that a prefix may cut in two, with its ends as values. */
struct crossing_span {
    u128 low, high;
    struct rule_span span;
};

struct bisection {
    struct space *space;
    const struct tree_options *options;
    double work[TABLES][NESTINGS][SIZES];
    uint32_t tables, table[TREE_AXES]; /* of each axis; TABLES: no test bisects it */
    struct tree_cost filled[TABLES];
    double rule;               /* what a rule costs in those tables */
    struct rule_span *span, *inside;            /* scratch, one slot per box */
    struct crossing_span *crossing;           /* likewise */
    uint64_t *key, *spare;               /* scratch, two slots per box */
    struct open_leaf **heap;
    uint32_t leaves, room, born;
    uint64_t printed, boxes_read, work_limit; /* boxes looked at to choose tests, so far and at most */
};

/* Tables of work: the cost of a packet in a list of 2^(size/STEPS) rules when so many tests
 * may still be taken, if the best fractions could be split off freely.  One for each axis that
 * tests may bisect, for lists that differ along it: what cheap tests cannot part is not
 * estimated by them (in nft single ports are told apart at half the price of a range, but one
 * after the other). */

static double work_of_size(const struct bisection *g, const double *work, double size)
{
    if (size <= 0)
        return g->rule;
    uint32_t below = (uint32_t)size;
    if (below + 1 >= SIZES)
        return work[SIZES - 1] * exp2((size - (SIZES - 1)) / STEPS);
    return work[below] + (size - below) * (work[below + 1] - work[below]);
}

static double work_at(const struct bisection *g, uint32_t table, uint32_t nesting, double rules)
{
    if (rules <= 1)
        return rules > 0 ? g->rule : 0;
    return work_of_size(g, g->work[table][nesting], log2(rules) * STEPS);
}

static void work_fill(struct bisection *g, double work[NESTINGS][SIZES], struct tree_cost test)
{
    static const double taken[] = {0.5, 0.4, 0.3, 0.2, 0.15, 0.1};
    enum { FRACTIONS = sizeof taken / sizeof *taken };
    double in[FRACTIONS], out[FRACTIONS];
    for (uint32_t t = 0; t < FRACTIONS; t++) {
        in[t] = log2(taken[t]) * STEPS;
        out[t] = log2(1 - taken[t]) * STEPS;
    }
    for (uint32_t nesting = 0; nesting < NESTINGS; nesting++)
        for (uint32_t size = 0; size < SIZES; size++) {
            double best = g->rule * (exp2((double)size / STEPS) + 1) / 2;
            for (uint32_t t = 0; nesting && size > STEPS && t < FRACTIONS; t++) {
                double spent = taken[t] * (test.taken + work_of_size(g, work[nesting - 1], size + in[t])) +
                               (1 - taken[t]) * (test.missed + work_of_size(g, work[nesting], size + out[t]));
                if (spent < best)
                    best = spent;
            }
            work[nesting][size] = best;
        }
}

/* What a test that bisects the axis costs at least; false: none may. */
static bool bisecting_test(const struct tree_boxes *in, uint32_t axis, struct tree_cost *test)
{
    const struct tree_axis *along = &in->axis[axis];
    if (along->cut != TREE_CUT_PREFIX && along->cut != TREE_CUT_RANGE)
        return false;
    *test = (struct tree_cost){1, 1};
    if (!in->costs)
        return true;
    const struct tree_cost *costs = in->costs->test + axis * TREE_LENGTHS;
    *test = costs[1];
    for (uint32_t length = 2; along->cut == TREE_CUT_PREFIX && length <= along->bits; length++)
        if (costs[length].missed + costs[length].taken < test->missed + test->taken)
            *test = costs[length];
    return true;
}

static bool cost_alike(struct tree_cost one, struct tree_cost other)
{
    double a = one.missed + one.taken, b = other.missed + other.taken;
    return a < ALIKE * b && b < ALIKE * a;
}

/* Axes that cost alike share a table. */
static void tables_fill(struct bisection *g, const struct subproblem *problem)
{
    const struct tree_boxes *in = g->space->in;
    struct tree_cost test;
    g->rule = 0;
    for (uint32_t i = 0; i < problem->boxes; i++)
        g->rule += cost_missed(g->space, problem->box[i], problem->region) / problem->boxes;
    if (g->rule <= 0)
        g->rule = 1;
    for (uint32_t a = 0; a < in->axes; a++) {
        g->table[a] = TABLES;
        if (!bisecting_test(in, a, &test))
            continue;
        uint32_t at = 0;
        while (at < g->tables && !cost_alike(test, g->filled[at]))
            at++;
        if (at == TABLES)
            continue;
        if (at == g->tables) {
            g->filled[g->tables++] = test;
            work_fill(g, g->work[at], test);
        }
        g->table[a] = at;
    }
    if (!g->tables)
        work_fill(g, g->work[0], (struct tree_cost){1, 1});
}

/* The table of the cheapest axis along which the leaf's rules begin at many places; if none, of the one
 * with most places. */
static uint32_t table_for(const struct bisection *g, const struct open_leaf *leaf)
{
    uint32_t most = 0, found = 0, enough = (leaf->rules < PLACES ? leaf->rules : PLACES) / 8;
    double cheapest = HUGE_VAL;
    for (uint32_t a = 0; g->tables > 1 && a < g->space->in->axes; a++) {
        if (g->table[a] == TABLES)
            continue;
        uint64_t seen = 0;
        for (uint32_t i = 0; i < leaf->boxes; i += 1 + leaf->boxes / (4 * PLACES)) {
            struct rank_range ranks = box_ranks(g->space, leaf->box[i], a), along = leaf->region[a].ranks;
            if (ranks.low > along.low || ranks.high < along.high)
                seen |= (uint64_t)1 << (ranks.low * 0x9e3779b1u >> 26);
        }
        uint32_t places = (uint32_t)__builtin_popcountll(seen);
        double price = places > 1 && places >= enough ? g->filled[g->table[a]].missed + g->filled[g->table[a]].taken : HUGE_VAL;
        if (price < cheapest || (price >= HUGE_VAL && cheapest >= HUGE_VAL && places > most)) {
            cheapest = price;
            found = g->table[a];
        }
        most = places > most ? places : most;
    }
    return found;
}

static uint32_t nesting_left(const struct bisection *g, const struct open_leaf *leaf)
{
    uint32_t left = g->options->max_nesting - leaf->nesting;
    return left < NESTINGS ? left : NESTINGS - 1;
}

/* Weighing one test. */

struct side_counts {
    uint32_t in, out; /* rules that meet the interval, rules that leave it */
    double share;     /* of the traffic, in the interval */
};

/* How much of a box that reaches from *low* to *high* lies in from..to. */
static double part_of(u128 low, u128 high, u128 from, u128 to)
{
    if (from <= low && to >= high)
        return 1;
    u128 first = low > from ? low : from, last = high < to ? high : to;
    return first > last ? 0 : ((double)(last - first) + 1) / ((double)(high - low) + 1);
}

static bool is_even(const struct bisection *g, uint32_t axis)
{
    enum tree_cut cut = g->space->in->axis[axis].cut;
    return cut == TREE_CUT_PREFIX || cut == TREE_CUT_RANGE;
}

/* The share of a span's traffic that lies in low..high; *along*: the region, to which it is clipped. */
static double span_part(const struct bisection *g, const struct range *along, uint32_t axis, struct rank_range ranks,
                        u128 low, u128 high)
{
    const struct line *line = &g->space->line[axis];
    u128 first = line->edge[ranks.low], last = line_end(line, ranks.high);
    if (first < along->low)
        first = along->low;
    if (last > along->high)
        last = along->high;
    if (first > last)
        return 0;
    double part = part_of(first, last, low, high);
    if (part <= 0 || part >= 1)
        return part;
    return is_even(g, axis) ? part : 0.5;
}

/* The share of the traffic of boxes of this side that a probe's interval holds. */
static double probe_part(const struct bisection *g, const struct range *along, const struct probe *probe, struct rank_range ranks)
{
    if (!probe_meets(probe, ranks))
        return 0;
    if (!probe_is_left(probe, ranks))
        return 1;
    return is_even(g, probe->axis) ? span_part(g, along, probe->axis, ranks, probe->low, probe->high) : 0.5;
}

/* Keep the test of low..high if it is better than what *best* holds.
 *
 * It must make some list shorter.  One that leaves the region's hull as it was must make
 * the outer one shorter, else it could be chosen there again, for ever. */
static void weigh(const struct bisection *g, const struct open_leaf *leaf, const struct side_counts *counts, double share,
                  uint32_t axis, u128 low, u128 high, struct test_choice *best)
{
    const struct range *along = &leaf->region[axis];
    bool inner = low > along->low && high < along->high;
    if (counts->out >= leaf->rules && (inner || counts->in >= leaf->rules))
        return;
    double in = counts->share / share, out = 1 - in;
    uint32_t left = nesting_left(g, leaf), copies = counts->in + counts->out - leaf->rules;
    double penalty = leaf->scale * g->rule * g->options->copy_penalty * copies / leaf->rules;
    struct tree_cost test = cost_of_test(g->space->in, axis, low, high, false);
    double plain = in * (test.taken + leaf->scale * work_at(g, leaf->table, left - 1, counts->in)) +
                   out * (test.missed + leaf->scale * work_at(g, leaf->table, left, counts->out)) + penalty;
    test = cost_of_test(g->space->in, axis, low, high, true);
    double negated = out * (test.taken + leaf->scale * work_at(g, leaf->table, left - 1, counts->out)) +
                     in * (test.missed + leaf->scale * work_at(g, leaf->table, left, counts->in)) + penalty;
    bool may_negate = !g->space->in->axis[axis].optional;
    /* Equal work: take the side with less traffic, since a taken test costs more than a missed one. */
    bool negate = may_negate && (negated < plain - 1e-9 || (negated < plain + 1e-9 && out < in));
    double work = negate ? negated : plain;
    if (work < best->work - 1e-9)
        *best = (struct test_choice){work, axis, low, high, negate, copies};
}

static struct crossing_span crossing_of(const struct line *line, const struct range *along, const struct rule_span *span)
{
    u128 low = line->edge[span->ranks.low], high = line_end(line, span->ranks.high);
    return (struct crossing_span){low > along->low ? low : along->low, high < along->high ? high : along->high, *span};
}

/* The rules' hulls along an axis, clipped to the region; those that span it are only counted,
 * and their traffic, wide_share.  Guests come behind the rules. */
static uint32_t spans_read(struct bisection *g, const struct open_leaf *leaf, uint32_t axis, uint32_t *wide,
                           double *wide_share, uint32_t *all)
{
    const struct space *space = g->space;
    const struct range *along = &leaf->region[axis];
    uint32_t spans = 0;
    *wide = 0;
    *wide_share = 0;
    for (uint32_t i = 0; i < leaf->boxes;) {
        int32_t rule = space->in->rule[leaf->box[i]];
        struct rule_span span = {.ranks = box_ranks(space, leaf->box[i], axis), .share = leaf->share[i]};
        for (i++; i < leaf->boxes && space->in->rule[leaf->box[i]] == rule; i++) {
            struct rank_range ranks = box_ranks(space, leaf->box[i], axis);
            if (ranks.low < span.ranks.low)
                span.ranks.low = ranks.low;
            if (ranks.high > span.ranks.high)
                span.ranks.high = ranks.high;
        }
        if (span.ranks.low < along->ranks.low)
            span.ranks.low = along->ranks.low;
        if (span.ranks.high > along->ranks.high)
            span.ranks.high = along->ranks.high;
        if (span.ranks.low == along->ranks.low && span.ranks.high == along->ranks.high) {
            ++*wide;
            *wide_share += span.share;
        } else {
            g->span[spans++] = span;
        }
    }
    *all = spans;
    for (uint32_t i = 0; i < leaf->background_boxes; i++) {
        struct rule_span span = {.ranks = box_ranks(space, leaf->background[i], axis), .share = leaf->background_share[i], .background = true};
        if (span.ranks.low < along->ranks.low)
            span.ranks.low = along->ranks.low;
        if (span.ranks.high > along->ranks.high)
            span.ranks.high = along->ranks.high;
        if (span.ranks.low == along->ranks.low && span.ranks.high == along->ranks.high) {
            *wide_share += span.share;
        } else {
            g->span[(*all)++] = span;
        }
    }
    return spans;
}

static double share_of(const struct open_leaf *leaf)
{
    double share = 0;
    for (uint32_t i = 0; i < leaf->boxes; i++)
        share += leaf->share[i];
    for (uint32_t i = 0; i < leaf->background_boxes; i++)
        share += leaf->background_share[i];
    return share;
}

/* Thresholds: every edge of a hull parts the axis in two. */
static void try_edges(struct bisection *g, const struct open_leaf *leaf, double share, uint32_t axis, uint32_t spans,
                      uint32_t all, uint32_t wide, double wide_share, struct test_choice *best)
{
    const struct line *line = &g->space->line[axis];
    const struct range *along = &leaf->region[axis];
    uint64_t *low = g->key, *high = g->key + all;
    for (uint32_t i = 0; i < all; i++) {
        low[i] = (uint64_t)g->span[i].ranks.low << 32 | i;
        high[i] = (uint64_t)g->span[i].ranks.high << 32 | i;
    }
    sort_keys(low, g->spare, all, 32);
    sort_keys(high, g->spare, all, 32);
    /* At edge e: lows before e meet the left side, highs before e do not meet the right.  Traffic
     * on the left: of spans that ended, and of the open ones what their density says. */
    uint32_t l = 0, h = 0, met = 0, left_behind = 0;
    double ended = 0, density = 0, start = 0;
    while (l < all || h < all) {
        uint32_t edge = UINT32_MAX;
        if (l < all)
            edge = (uint32_t)(low[l] >> 32);
        if (h < all && (uint32_t)(high[h] >> 32) + 1 < edge)
            edge = (uint32_t)(high[h] >> 32) + 1;
        for (; h < all && (uint32_t)(high[h] >> 32) < edge; h++) {
            const struct rule_span *span = &g->span[(uint32_t)high[h]];
            double first = (double)line->edge[span->ranks.low];
            double dense = span->share / ((double)line_end(line, span->ranks.high) - first + 1);
            ended += span->share;
            density -= dense;
            start -= dense * first;
            left_behind += !span->background;
        }
        if (edge > along->ranks.low && edge <= along->ranks.high) {
            u128 middle = line->edge[edge];
            double left = ended + density * (double)middle - start +
                          wide_share * part_of(along->low, along->high, along->low, middle - 1);
            left = left < 0 ? 0 : left > share ? share : left;
            struct side_counts lower = {wide + met, wide + spans - left_behind, left};
            struct side_counts upper = {wide + spans - left_behind, wide + met, share - left};
            weigh(g, leaf, &lower, share, axis, along->low, middle - 1, best);
            weigh(g, leaf, &upper, share, axis, middle, along->high, best);
        }
        for (; l < all && (uint32_t)(low[l] >> 32) == edge; l++) {
            const struct rule_span *span = &g->span[(uint32_t)low[l]];
            double first = (double)line->edge[span->ranks.low];
            double dense = span->share / ((double)line_end(line, span->ranks.high) - first + 1);
            density += dense;
            start += dense * first;
            met += !span->background;
        }
    }
}

/* The traffic of spans in low..high. */
static double traffic_in(const struct crossing_span *crossing, uint32_t spans, u128 low, u128 high)
{
    double share = 0;
    for (uint32_t i = 0; i < spans; i++) {
        const struct crossing_span *each = &crossing[i];
        if (each->low <= high && each->high >= low && each->low <= each->high)
            share += each->span.share * part_of(each->low, each->high, low, high);
    }
    return share;
}

/* Count the rules on each side of low..high, by their boxes. */
static struct side_counts count_sides(const struct bisection *g, const struct open_leaf *leaf, const struct probe *probe);

/* A prefix that holds low..high and no rule besides, *most* at most, if testing it is much cheaper. */
static void try_wider(const struct bisection *g, const struct open_leaf *leaf, double share, uint32_t axis, u128 low, u128 high,
                      u128 most, struct test_choice *best)
{
    const struct tree_boxes *in = g->space->in;
    double dear = cost_of_test(in, axis, low, high, false).missed;
    for (u128 free = (low ^ high) << 1 | 1; free <= most; free = free << 1 | 1) {
        if (cost_of_test(in, axis, low & ~free, low | free, false).missed < WIDER * dear) {
            struct probe probe = probe_of(g->space, leaf->region, axis, low & ~free, low | free);
            struct side_counts counts = count_sides(g, leaf, &probe);
            weigh(g, leaf, &counts, share, axis, low & ~free, low | free, best);
            return;
        }
        if (free == ~(u128)0)
            return;
    }
}

/* Prefixes on the heavier path of the trie of those hulls that lie below it, and the
 * lighter child at each fork. */
static void try_prefixes(struct bisection *g, const struct open_leaf *leaf, double share, uint32_t axis, uint32_t spans,
                         uint32_t all, uint32_t wide, double wide_share, struct test_choice *best)
{
    const struct line *line = &g->space->line[axis];
    const struct range *along = &leaf->region[axis];
    uint32_t inside = spans, crossing = all - spans, crossing_rules = 0;
    double inside_share = 0;
    memcpy(g->inside, g->span, spans * sizeof *g->span);
    for (uint32_t i = 0; i < crossing; i++)
        g->crossing[i] = crossing_of(line, along, &g->span[spans + i]);
    for (uint32_t i = 0; i < spans; i++)
        inside_share += g->span[i].share;
    u128 most = 0; /* what is free in the half that the path came by, or in half of the region */
    if (g->space->in->costs)
        while (most < (along->low ^ along->high))
            most = most << 1 | 1;
    most >>= 1;
    while (inside) {
        struct rank_range hull = g->inside[0].ranks;
        for (uint32_t i = 1; i < inside; i++) {
            if (g->inside[i].ranks.low < hull.low)
                hull.low = g->inside[i].ranks.low;
            if (g->inside[i].ranks.high > hull.high)
                hull.high = g->inside[i].ranks.high;
        }
        u128 low = line->edge[hull.low], high = line_end(line, hull.high);
        if (low < along->low)
            low = along->low;
        if (high > along->high)
            high = along->high;
        u128 below = 0; /* ones where the prefix is free */
        while (below < (low ^ high))
            below = below << 1 | 1;
        low &= ~below;
        high = low | below;
        struct rank_range touch = {line_rank(line, low), line_rank(line, high)};
        uint32_t met = 0;
        crossing_rules = 0;
        for (uint32_t i = 0; i < crossing; i++)
            if (g->crossing[i].span.ranks.low <= touch.high && g->crossing[i].span.ranks.high >= touch.low) {
                crossing_rules += !g->crossing[i].span.background;
                g->crossing[met++] = g->crossing[i];
            }
        crossing = met;
        if (low > along->low || high < along->high) {
            double in = inside_share + traffic_in(g->crossing, crossing, low, high) +
                        wide_share * part_of(along->low, along->high, low, high);
            struct side_counts counts = {wide + crossing_rules + inside, wide + spans - inside, in};
            weigh(g, leaf, &counts, share, axis, low, high, best);
            if (below < most)
                try_wider(g, leaf, share, axis, low, high, most, best);
        }
        if (!below || inside * 16 < spans)
            break;
        most = g->space->in->costs ? below >> 1 : 0;
        /* The fork: hulls in the lower half, in the upper half, across. */
        u128 middle = low + (below >> 1) + 1;
        uint32_t at = line_rank(line, middle), upper_from = at + (line->edge[at] < middle);
        uint32_t in[2] = {0, 0}, meets[2] = {0, 0}, cross = 0;
        double in_share[2] = {0, 0};
        for (uint32_t i = 0; i < inside; i++) {
            const struct rule_span *span = &g->inside[i];
            if (span->ranks.high < at) {
                in[0]++;
                in_share[0] += span->share;
            } else if (span->ranks.low >= upper_from) {
                in[1]++;
                in_share[1] += span->share;
            } else {
                cross++;
            }
        }
        for (uint32_t i = 0; i < crossing; i++) {
            const struct rule_span *span = &g->crossing[i].span;
            if (span->background)
                continue;
            meets[0] += span->ranks.low <= at && (span->ranks.low < at || line->edge[at] < middle);
            meets[1] += span->ranks.high >= at;
        }
        unsigned heavy = in[1] > in[0], light = !heavy;
        /* The path goes on into the heavier half. */
        uint32_t stay = 0;
        u128 light_low = light ? middle : low, light_high = light ? high : middle - 1;
        for (uint32_t i = 0; i < inside; i++) {
            struct rank_range ranks = g->inside[i].ranks;
            bool lower = ranks.high < at, upper = ranks.low >= upper_from;
            if (heavy ? upper : lower)
                g->inside[stay++] = g->inside[i];
            else if (!lower && !upper)
                g->crossing[crossing++] = crossing_of(line, along, &g->inside[i]);
        }
        if (in[light]) {
            double inside = in_share[light] + wide_share * part_of(along->low, along->high, light_low, light_high) +
                            traffic_in(g->crossing, crossing, light_low, light_high);
            struct side_counts counts = {wide + cross + meets[light] + in[light], wide + spans - in[light], inside};
            weigh(g, leaf, &counts, share, axis, light_low, light_high, best);
        }
        inside = stay;
        inside_share = in_share[heavy];
    }
}

static struct side_counts count_sides(const struct bisection *g, const struct open_leaf *leaf, const struct probe *probe)
{
    struct side_counts counts = {0, 0, 0};
    const struct range *along = &leaf->region[probe->axis];
    for (uint32_t i = 0; i < leaf->boxes;) {
        int32_t rule = g->space->in->rule[leaf->box[i]];
        float share = leaf->share[i];
        struct rank_range first = box_ranks(g->space, leaf->box[i], probe->axis);
        bool in = false, out = false, many = false;
        for (uint32_t from = i; i < leaf->boxes && g->space->in->rule[leaf->box[i]] == rule; i++) {
            struct rank_range ranks = box_ranks(g->space, leaf->box[i], probe->axis);
            in |= probe_meets(probe, ranks);
            out |= probe_is_left(probe, ranks);
            many |= i > from;
        }
        counts.in += in;
        counts.out += out;
        if (in && !out)
            counts.share += share;
        else if (in)
            counts.share += share * (many ? 0.5 : probe_part(g, along, probe, first));
    }
    for (uint32_t i = 0; i < leaf->background_boxes; i++) {
        struct rank_range ranks = box_ranks(g->space, leaf->background[i], probe->axis);
        counts.share += leaf->background_share[i] * probe_part(g, along, probe, ranks);
    }
    return counts;
}

/* What boxes spell: the most frequent intervals. */
static void try_spelt(struct bisection *g, const struct open_leaf *leaf, double share, uint32_t axis, struct test_choice *best)
{
    const struct line *line = &g->space->line[axis];
    const struct range *along = &leaf->region[axis];
    uint32_t keys = 0;
    for (uint32_t i = 0; i < leaf->boxes; i++) {
        struct rank_range ranks = box_ranks(g->space, leaf->box[i], axis);
        if (along->none ? ranks.low > 0 : ranks.low > along->ranks.low || ranks.high < along->ranks.high)
            g->key[keys++] = (uint64_t)ranks.low << 32 | ranks.high;
    }
    sort_keys(g->key, g->spare, keys, 0);
    uint64_t frequent[SPELT_TRIED];
    uint32_t times[SPELT_TRIED], kept = 0;
    for (uint32_t i = 0, next; i < keys; i = next) {
        for (next = i; next < keys && g->key[next] == g->key[i];)
            next++;
        uint32_t at = kept;
        while (at && times[at - 1] < next - i)
            at--;
        if (at == SPELT_TRIED)
            continue;
        kept += kept < SPELT_TRIED;
        for (uint32_t j = kept - 1; j > at; j--) {
            times[j] = times[j - 1];
            frequent[j] = frequent[j - 1];
        }
        times[at] = next - i;
        frequent[at] = g->key[i];
    }
    for (uint32_t i = 0; i < kept; i++) {
        u128 low = line->edge[frequent[i] >> 32], high = line_end(line, (uint32_t)frequent[i]);
        if (!axis_can_test(&g->space->in->axis[axis], low, high))
            continue;
        struct probe probe = probe_of(g->space, leaf->region, axis, low, high);
        struct side_counts counts = count_sides(g, leaf, &probe);
        weigh(g, leaf, &counts, share, axis, low, high, best);
    }
}

static void try_axis(struct bisection *g, const struct open_leaf *leaf, double share, uint32_t axis, struct test_choice *best)
{
    uint32_t wide, all;
    double wide_share;
    uint32_t spans = spans_read(g, leaf, axis, &wide, &wide_share, &all);
    enum tree_cut cut = g->space->in->axis[axis].cut;
    if (!spans)
        return;
    if (cut == TREE_CUT_PREFIX) {
        try_prefixes(g, leaf, share, axis, spans, all, wide, wide_share, best);
        return;
    }
    if (cut == TREE_CUT_RANGE)
        try_edges(g, leaf, share, axis, spans, all, wide, wide_share, best);
    try_spelt(g, leaf, share, axis, best);
}

/* The best test of the coordinate that *axis* needs before it may be tested. */
static void try_needs(struct bisection *g, const struct open_leaf *leaf, double share, uint32_t axis, struct test_choice *best)
{
    const struct tree_axis *wanted = &g->space->in->axis[axis];
    const struct range *along = &leaf->region[wanted->needs];
    if (g->space->in->axis[wanted->needs].cut == TREE_CUT_NONE)
        return;
    for (uint32_t i = 0; i < wanted->needed_count; i++) {
        u128 value = wanted->needed[i];
        if (value < along->low || value > along->high)
            continue;
        struct probe probe = probe_of(g->space, leaf->region, (uint32_t)wanted->needs, value, value);
        struct side_counts counts = count_sides(g, leaf, &probe);
        weigh(g, leaf, &counts, share, (uint32_t)wanted->needs, value, value, best);
    }
}

/* The best test for the leaf.  A test that is wanted most and not allowed yet asks for
 * what it needs first, which must be worth the extra decision. */
static struct test_choice choose(struct bisection *g, const struct open_leaf *leaf, double share)
{
    struct test_choice none = {.work = HUGE_VAL}, best = none;
    const struct tree_boxes *in = g->space->in;
    for (uint32_t a = 0; a < in->axes; a++)
        if (axis_usable(g->space, leaf->region, a))
            try_axis(g, leaf, share, a, &best);
    double aim = best.work;
    for (uint32_t a = 0; a < in->axes; a++) {
        if (in->axis[a].cut == TREE_CUT_NONE || axis_usable(g->space, leaf->region, a))
            continue;
        struct test_choice wanted = none, first = none;
        try_axis(g, leaf, share, a, &wanted);
        if (wanted.work + g->rule >= aim)
            continue;
        try_needs(g, leaf, share, a, &first);
        if (first.work < HUGE_VAL) {
            struct tree_cost test = cost_of_test(in, first.axis, first.low, first.high, first.negated);
            if (wanted.work + test.missed >= aim)
                continue;
            best = first;
            aim = wanted.work + test.missed;
        }
    }
    return best;
}

/* The heap of leaves. */

static bool before(const struct open_leaf *a, const struct open_leaf *b)
{
    return a->rank > b->rank || (a->rank == b->rank && a->order < b->order);
}

static bool heap_push(struct bisection *g, struct open_leaf *leaf)
{
    if (g->leaves == g->room) {
        struct open_leaf **more = arena_take(g->space->arena, (g->room ? 2 * (size_t)g->room : 1024) * sizeof *more);
        if (!more)
            return false;
        if (g->leaves)
            memcpy(more, g->heap, g->leaves * sizeof *more);
        g->heap = more;
        g->room = g->room ? 2 * g->room : 1024;
    }
    uint32_t at = g->leaves++;
    for (; at && before(leaf, g->heap[(at - 1) / 2]); at = (at - 1) / 2)
        g->heap[at] = g->heap[(at - 1) / 2];
    g->heap[at] = leaf;
    return true;
}

static struct open_leaf *heap_pop(struct bisection *g)
{
    struct open_leaf *top = g->heap[0], *last = g->heap[--g->leaves];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < g->leaves; at = child) {
        if (child + 1 < g->leaves && before(g->heap[child + 1], g->heap[child]))
            child++;
        if (!before(g->heap[child], last))
            break;
        g->heap[at] = g->heap[child];
    }
    g->heap[at] = last;
    return top;
}

/* Growing. */

static uint32_t rules_in(const struct bisection *g, const uint32_t *box, uint32_t boxes)
{
    uint32_t rules = 0;
    for (uint32_t i = 0; i < boxes; i++)
        rules += !i || g->space->in->rule[box[i]] != g->space->in->rule[box[i - 1]];
    return rules;
}

/* What reading these boxes' rules costs a packet of the region. */
static double boxes_cost(const struct bisection *g, const uint32_t *box, uint32_t boxes, const struct range *region)
{
    const int32_t *rule = g->space->in->rule;
    double spent = 0;
    for (uint32_t i = 0; i < boxes; i++)
        if (!i || rule[box[i]] != rule[box[i - 1]])
            spent += cost_missed(g->space, box[i], region);
    return spent;
}

/* The expected cost of the list, times its traffic. */
static double list_work(const struct bisection *g, struct open_leaf *leaf)
{
    const int32_t *rule = g->space->in->rule;
    double work = 0, spent = 0;
    for (uint32_t i = 0; i < leaf->boxes; i++) {
        if (!i || rule[leaf->box[i]] != rule[leaf->box[i - 1]])
            spent += cost_missed(g->space, leaf->box[i], leaf->region);
        work += spent * (double)leaf->share[i];
    }
    for (uint32_t i = 0; i < leaf->background_boxes; i++)
        work += spent * (double)leaf->background_share[i];
    leaf->scale = leaf->rules ? spent / (leaf->rules * g->rule) : 1;
    return work;
}

/* Boxes at the head of the list whose rules cover the region: read before any test. */
static uint32_t front_of(const struct bisection *g, const struct open_leaf *leaf)
{
    const int32_t *rule = g->space->in->rule;
    uint32_t front = 0;
    while (front < leaf->boxes) {
        uint32_t next = front;
        bool covers = false;
        for (; next < leaf->boxes && rule[leaf->box[next]] == rule[leaf->box[front]]; next++)
            covers |= box_covers(g->space, leaf->box[next], leaf->region);
        if (!covers)
            break;
        front = next;
    }
    return front;
}

/* Give the leaf its best test and put it on the heap, if splitting can save. */
static bool leaf_judge(struct bisection *g, struct open_leaf *leaf)
{
    leaf->node->share = share_of(leaf);
    leaf->node->hits = leaf->node->share;
    for (uint32_t i = 0; i < leaf->background_boxes; i++)
        leaf->node->hits -= leaf->background_share[i];
    leaf->node->work = list_work(g, leaf);
    if (leaf->rules <= g->options->leaf_size || leaf->rules < 2 || leaf->nesting >= g->options->max_nesting)
        return true;
    if (g->boxes_read > g->work_limit)
        return true;
    g->boxes_read += leaf->boxes + leaf->background_boxes;
    struct open_leaf split = *leaf; /* what a test would split */
    uint32_t front = front_of(g, leaf), front_rules = rules_in(g, leaf->box, front);
    split.box += front;
    split.share += front;
    split.boxes -= front;
    split.rules -= front_rules;
    double share = share_of(&split);
    if (share <= 0)
        return true;
    double listed = list_work(g, &split);
    leaf->front = front;
    split.table = table_for(g, &split);
    leaf->choice = choose(g, &split, share);
    double saving = listed - leaf->choice.work * share;
    bool too_long = g->options->longest && leaf->rules > g->options->longest && leaf->choice.work < HUGE_VAL;
    if (!(saving > 0) && !too_long)
        return true;
    /* What only shortens comes after all that saves. */
    leaf->rank = saving > 0 ? saving / sqrt(leaf->choice.copies + 1) : saving - 1;
    return heap_push(g, leaf);
}

static struct open_leaf *leaf_new(struct bisection *g, uint32_t boxes, uint32_t background_boxes, uint32_t nesting)
{
    struct arena *arena = g->space->arena;
    struct open_leaf *leaf = arena_take(arena, sizeof *leaf);
    if (!leaf)
        return NULL;
    leaf->node = node_new(g->space);
    leaf->box = arena_take(arena, boxes * sizeof *leaf->box);
    leaf->share = arena_take(arena, boxes * sizeof *leaf->share);
    leaf->background = arena_take(arena, background_boxes * sizeof *leaf->background);
    leaf->background_share = arena_take(arena, background_boxes * sizeof *leaf->background_share);
    leaf->region = arena_take(arena, g->space->in->axes * sizeof *leaf->region);
    if (!leaf->node || !leaf->box || !leaf->share || !leaf->background || !leaf->background_share || !leaf->region)
        return NULL;
    leaf->nesting = nesting;
    leaf->order = g->born++;
    return leaf;
}

/* Whether the list ends with a final rule that covers the region. */
static bool is_closed(const struct bisection *g, const struct open_leaf *leaf)
{
    const struct tree_boxes *in = g->space->in;
    if (!leaf->boxes || !in->final[in->rule[leaf->box[leaf->boxes - 1]]])
        return false;
    int32_t last = in->rule[leaf->box[leaf->boxes - 1]];
    for (uint32_t i = leaf->boxes; i-- && in->rule[leaf->box[i]] == last;)
        if (box_covers(g->space, leaf->box[i], leaf->region))
            return true;
    return false;
}

/* One side of a split: the boxes that meet it, cut behind a rule that covers it. */
static struct open_leaf *leaf_part(struct bisection *g, const struct open_leaf *from, uint32_t front, const struct probe *probe,
                            bool inside, uint32_t nesting)
{
    const int32_t *rule = g->space->in->rule;
    uint32_t met = 0;
    struct open_leaf *leaf = leaf_new(g, from->boxes - front, from->background_boxes, nesting);
    if (!leaf)
        return NULL;
    (inside ? region_inside : region_outside)(g->space, from->region, probe, leaf->region);
    const struct range *around = &from->region[probe->axis];
    struct range *along = &leaf->region[probe->axis];
    leaf->holes = from->holes;
    if (!inside && !(leaf->holes = hole_new(g->space, from->holes, probe)))
        return NULL;
    bool alive = range_trim(g->space, leaf->holes, probe->axis, along);
    for (uint32_t i = front; i < from->boxes;) {
        int32_t r = rule[from->box[i]];
        struct rank_range whole = box_ranks(g->space, from->box[i], probe->axis);
        float share = from->share[i];
        bool in = false, out = false, first = true, many = false;
        for (uint32_t start = i; i < from->boxes && rule[from->box[i]] == r; i++) {
            struct rank_range ranks = box_ranks(g->space, from->box[i], probe->axis);
            bool meets = probe_meets(probe, ranks), leaves = probe_is_left(probe, ranks);
            bool here = range_meets(along, alive, ranks);
            in |= meets;
            out |= leaves;
            many |= i > start;
            if (here && (inside ? meets : leaves)) {
                leaf->share[met] = first ? share : 0;
                leaf->box[met++] = from->box[i];
                first = false;
            }
        }
        if (in && out && !first) {
            uint32_t at = met;
            while (at && rule[leaf->box[at - 1]] == r)
                at--;
            double part = many ? 0.5 : probe_part(g, around, probe, whole);
            leaf->share[at] = (float)(share * (inside ? part : 1 - part));
        }
    }
    for (uint32_t i = 0; i < from->background_boxes; i++) {
        struct rank_range ranks = box_ranks(g->space, from->background[i], probe->axis);
        double part = probe_part(g, around, probe, ranks);
        float share = (float)(from->background_share[i] * (inside ? part : 1 - part));
        if (share > 1e-4f) {
            leaf->background[leaf->background_boxes] = from->background[i];
            leaf->background_share[leaf->background_boxes++] = share;
        }
    }
    leaf->boxes = list_cut(g->space, leaf->box, met, leaf->region);
    leaf->rules = rules_in(g, leaf->box, leaf->boxes);
    leaf->node->closed = is_closed(g, leaf);
    return leaf;
}

static enum tree_status leaf_split(struct bisection *g, struct open_leaf *leaf)
{
    const struct test_choice *choice = &leaf->choice;
    struct build_node *node = leaf->node;
    struct probe probe = probe_of(g->space, leaf->region, choice->axis, choice->low, choice->high);
    uint32_t front = leaf->front;
    struct open_leaf *taken = leaf_part(g, leaf, front, &probe, !choice->negated, leaf->nesting + 1);
    struct open_leaf *other = leaf_part(g, leaf, front, &probe, choice->negated, leaf->nesting);
    if (!taken || !other)
        return TREE_NO_MEMORY;
    uint64_t printed = g->printed + rules_in(g, leaf->box, front) + taken->rules + other->rules + 1 - leaf->rules;
    if (printed > g->options->budget)
        return TREE_OK; /* stays a leaf; a smaller one may still fit */
    g->printed = printed;
    node->kind = TREE_TEST;
    node->axis = choice->axis;
    node->negated = choice->negated;
    node->branches = 2;
    node->branch = arena_take(g->space->arena, 2 * sizeof *node->branch);
    if (!node->branch || !node_lists(g->space, node, leaf->box, front))
        return TREE_NO_MEMORY;
    node->test = cost_of_test(g->space->in, choice->axis, choice->low, choice->high, choice->negated);
    node->front = boxes_cost(g, leaf->box, front, leaf->region);
    node->beside = taken->rules > BESIDE ? HUGE_VAL : boxes_cost(g, taken->box, taken->boxes, leaf->region);
    const struct range *around = &leaf->region[choice->axis];
    node->branch[0] = (struct branch){choice->low, choice->high, taken->node};
    node->branch[1] = (struct branch){around->low, around->high, other->node};
    bool listed = node_lists(g->space, taken->node, taken->box, taken->boxes) &&
                  node_lists(g->space, other->node, other->box, other->boxes);
    return listed && leaf_judge(g, taken) && leaf_judge(g, other) ? TREE_OK : TREE_NO_MEMORY;
}

/* A tree over *plot*; NULL when memory is exhausted. */
struct build_node *bisect_over(struct space *space, const struct tree_options *options, const struct subproblem *problem)
{
    uint32_t boxes = problem->boxes;
    size_t spans = (size_t)boxes + problem->background_boxes + 1;
    struct bisection *g = arena_take(space->arena, sizeof *g);
    if (!g)
        return NULL;
    g->space = space;
    g->options = options;
    g->span = arena_take(space->arena, spans * sizeof *g->span);
    g->inside = arena_take(space->arena, spans * sizeof *g->inside);
    g->crossing = arena_take(space->arena, spans * sizeof *g->crossing);
    g->key = arena_take(space->arena, 2 * spans * sizeof *g->key);
    g->spare = arena_take(space->arena, 2 * spans * sizeof *g->spare);
    struct open_leaf *leaf = leaf_new(g, boxes, problem->background_boxes, 0);
    if (!g->span || !g->inside || !g->crossing || !g->key || !g->spare || !leaf)
        return NULL;
    g->work_limit = options->work_limit ? (uint64_t)options->work_limit * (boxes + problem->background_boxes + 1) : UINT64_MAX;
    tables_fill(g, problem);
    memcpy(leaf->region, problem->region, space->in->axes * sizeof *leaf->region);
    memcpy(leaf->box, problem->box, boxes * sizeof *leaf->box);
    for (uint32_t i = 0; i < boxes; i++) {
        int32_t rule = space->in->rule[leaf->box[i]];
        bool first = !i || rule != space->in->rule[leaf->box[i - 1]];
        leaf->share[i] = first ? (float)space->in->weight[rule] : 0;
    }
    for (uint32_t i = 0; i < problem->background_boxes; i++) {
        leaf->background[i] = problem->background[i];
        leaf->background_share[i] = problem->background_share[i];
    }
    leaf->background_boxes = problem->background_boxes;
    leaf->boxes = list_cut(space, leaf->box, boxes, leaf->region);
    leaf->rules = rules_in(g, leaf->box, leaf->boxes);
    leaf->node->closed = is_closed(g, leaf);
    g->printed = leaf->rules;
    if (!node_lists(space, leaf->node, leaf->box, leaf->boxes) || !leaf_judge(g, leaf))
        return NULL;
    while (g->leaves)
        if (leaf_split(g, heap_pop(g)) != TREE_OK)
            return NULL;
    return leaf->node;
}

static enum tree_status bisect_grow(struct space *space, const struct tree_options *options, struct build_node **root)
{
    uint32_t boxes = space->in->boxes;
    struct range region[TREE_AXES];
    uint32_t *box = arena_take(space->arena, boxes * sizeof *box);
    if (!box)
        return TREE_NO_MEMORY;
    for (uint32_t i = 0; i < boxes; i++)
        box[i] = i;
    region_all(space, region);
    *root = bisect_over(space, options, &(struct subproblem){.box = box, .boxes = boxes, .region = region});
    return *root ? TREE_OK : TREE_NO_MEMORY;
}

const struct tree_builder tree_bisect = {.name = "bisect", .bounded = true, .grow = bisect_grow};
