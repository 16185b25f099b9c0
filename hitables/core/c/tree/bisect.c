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
struct choice {
    double work; /* expected, per packet; HUGE_VAL: no test */
    uint32_t axis;
    u128 low, high;
    bool negated;
    uint32_t copies; /* rules that meet both sides */
};

/* A leaf that may yet be split.  *share* is the traffic that meets each rule here,
 * kept with the rule's first box, and of each guest. */
struct bud {
    struct twig *twig;
    uint32_t nesting, boxes, rules;
    uint32_t front; /* boxes at the head of the list that are read before any test */
    uint32_t *box;
    float *share;
    uint32_t guests, *guest;
    float *guest_share;
    struct range *region;
    const struct hole *holes;
    struct choice choice;
    uint32_t table; /* of work */
    double scale;   /* of the table of work: what a rule costs here, over what it costs there */
    double rank;    /* saving per printed rule: the greatest is split first */
    uint32_t order; /* of birth, to break ties */
};

/* A rule along one axis: the hull of its boxes, in the region.  Or a guest. */
struct span {
    struct side side;
    float share;
    bool guest;
};

/* A span that a prefix may cut in two, with its ends as values. */
struct crossing {
    u128 low, high;
    struct span span;
};

struct grower {
    struct space *space;
    const struct tree_options *options;
    double work[TABLES][NESTINGS][SIZES];
    uint32_t tables, table[TREE_AXES]; /* of each axis; TABLES: no test bisects it */
    struct tree_cost filled[TABLES];
    double rule;               /* what a rule costs in those tables */
    struct span *span, *held;            /* scratch, one slot per box */
    struct crossing *crossing;           /* likewise */
    uint64_t *key, *spare;               /* scratch, two slots per box */
    struct bud **heap;
    uint32_t buds, room, born;
    uint64_t printed, looked, looks; /* boxes looked at to choose tests, so far and at most */
};

/* Tables of work: the cost of a packet in a list of 2^(size/STEPS) rules when so many tests
 * may still be taken, if the best fractions could be split off freely.  One for each axis that
 * tests may bisect, for lists that differ along it: what cheap tests cannot part is not
 * estimated by them (in nft single ports are told apart at half the price of a range, but one
 * after the other). */

static double work_of_size(const struct grower *g, const double *work, double size)
{
    if (size <= 0)
        return g->rule;
    uint32_t below = (uint32_t)size;
    if (below + 1 >= SIZES)
        return work[SIZES - 1] * exp2((size - (SIZES - 1)) / STEPS);
    return work[below] + (size - below) * (work[below + 1] - work[below]);
}

static double work_at(const struct grower *g, uint32_t table, uint32_t nesting, double rules)
{
    if (rules <= 1)
        return rules > 0 ? g->rule : 0;
    return work_of_size(g, g->work[table][nesting], log2(rules) * STEPS);
}

static void work_fill(struct grower *g, double work[NESTINGS][SIZES], struct tree_cost test)
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
static void tables_fill(struct grower *g, const struct plot *plot)
{
    const struct tree_boxes *in = g->space->in;
    struct tree_cost test;
    g->rule = 0;
    for (uint32_t i = 0; i < plot->boxes; i++)
        g->rule += cost_missed(g->space, plot->box[i], plot->region) / plot->boxes;
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

/* The table of the cheapest axis along which the bud's rules begin at many places; if none, of the one
 * with most places. */
static uint32_t table_for(const struct grower *g, const struct bud *bud)
{
    uint32_t most = 0, found = 0, enough = (bud->rules < PLACES ? bud->rules : PLACES) / 8;
    double cheapest = HUGE_VAL;
    for (uint32_t a = 0; g->tables > 1 && a < g->space->in->axes; a++) {
        if (g->table[a] == TABLES)
            continue;
        uint64_t seen = 0;
        for (uint32_t i = 0; i < bud->boxes; i += 1 + bud->boxes / (4 * PLACES)) {
            struct side side = box_side(g->space, bud->box[i], a), along = bud->region[a].side;
            if (side.low > along.low || side.high < along.high)
                seen |= (uint64_t)1 << (side.low * 0x9e3779b1u >> 26);
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

static uint32_t nesting_left(const struct grower *g, const struct bud *bud)
{
    uint32_t left = g->options->max_nesting - bud->nesting;
    return left < NESTINGS ? left : NESTINGS - 1;
}

/* Weighing one test. */

struct halves {
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

static bool is_even(const struct grower *g, uint32_t axis)
{
    enum tree_cut cut = g->space->in->axis[axis].cut;
    return cut == TREE_CUT_PREFIX || cut == TREE_CUT_RANGE;
}

/* The share of a span's traffic that lies in low..high; *along*: the region, to which it is clipped. */
static double span_part(const struct grower *g, const struct range *along, uint32_t axis, struct side side,
                        u128 low, u128 high)
{
    const struct line *line = &g->space->line[axis];
    u128 first = line->edge[side.low], last = line_end(line, side.high);
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
static double probe_part(const struct grower *g, const struct range *along, const struct probe *probe, struct side side)
{
    if (!probe_meets(probe, side))
        return 0;
    if (!probe_is_left(probe, side))
        return 1;
    return is_even(g, probe->axis) ? span_part(g, along, probe->axis, side, probe->low, probe->high) : 0.5;
}

/* Keep the test of low..high if it is better than what *best* holds.
 *
 * It must make some list shorter.  One that leaves the region's hull as it was must make
 * the outer one shorter, else it could be chosen there again, for ever. */
static void weigh(const struct grower *g, const struct bud *bud, const struct halves *halves, double share,
                  uint32_t axis, u128 low, u128 high, struct choice *best)
{
    const struct range *along = &bud->region[axis];
    bool inner = low > along->low && high < along->high;
    if (halves->out >= bud->rules && (inner || halves->in >= bud->rules))
        return;
    double in = halves->share / share, out = 1 - in;
    uint32_t left = nesting_left(g, bud), copies = halves->in + halves->out - bud->rules;
    double penalty = bud->scale * g->rule * g->options->copy_penalty * copies / bud->rules;
    struct tree_cost test = cost_of_test(g->space->in, axis, low, high, false);
    double plain = in * (test.taken + bud->scale * work_at(g, bud->table, left - 1, halves->in)) +
                   out * (test.missed + bud->scale * work_at(g, bud->table, left, halves->out)) + penalty;
    test = cost_of_test(g->space->in, axis, low, high, true);
    double negated = out * (test.taken + bud->scale * work_at(g, bud->table, left - 1, halves->out)) +
                     in * (test.missed + bud->scale * work_at(g, bud->table, left, halves->in)) + penalty;
    bool may_negate = !g->space->in->axis[axis].optional;
    /* Equal work: take the side with less traffic, since a taken test costs more than a missed one. */
    bool negate = may_negate && (negated < plain - 1e-9 || (negated < plain + 1e-9 && out < in));
    double work = negate ? negated : plain;
    if (work < best->work - 1e-9)
        *best = (struct choice){work, axis, low, high, negate, copies};
}

static struct crossing crossing_of(const struct line *line, const struct range *along, const struct span *span)
{
    u128 low = line->edge[span->side.low], high = line_end(line, span->side.high);
    return (struct crossing){low > along->low ? low : along->low, high < along->high ? high : along->high, *span};
}

/* The rules' hulls along an axis, clipped to the region; those that span it are only counted,
 * and their traffic, wide_share.  Guests come behind the rules. */
static uint32_t spans_read(struct grower *g, const struct bud *bud, uint32_t axis, uint32_t *wide,
                           double *wide_share, uint32_t *all)
{
    const struct space *space = g->space;
    const struct range *along = &bud->region[axis];
    uint32_t spans = 0;
    *wide = 0;
    *wide_share = 0;
    for (uint32_t i = 0; i < bud->boxes;) {
        int32_t rule = space->in->rule[bud->box[i]];
        struct span span = {.side = box_side(space, bud->box[i], axis), .share = bud->share[i]};
        for (i++; i < bud->boxes && space->in->rule[bud->box[i]] == rule; i++) {
            struct side side = box_side(space, bud->box[i], axis);
            if (side.low < span.side.low)
                span.side.low = side.low;
            if (side.high > span.side.high)
                span.side.high = side.high;
        }
        if (span.side.low < along->side.low)
            span.side.low = along->side.low;
        if (span.side.high > along->side.high)
            span.side.high = along->side.high;
        if (span.side.low == along->side.low && span.side.high == along->side.high) {
            ++*wide;
            *wide_share += span.share;
        } else {
            g->span[spans++] = span;
        }
    }
    *all = spans;
    for (uint32_t i = 0; i < bud->guests; i++) {
        struct span span = {.side = box_side(space, bud->guest[i], axis), .share = bud->guest_share[i], .guest = true};
        if (span.side.low < along->side.low)
            span.side.low = along->side.low;
        if (span.side.high > along->side.high)
            span.side.high = along->side.high;
        if (span.side.low == along->side.low && span.side.high == along->side.high) {
            *wide_share += span.share;
        } else {
            g->span[(*all)++] = span;
        }
    }
    return spans;
}

static double share_of(const struct bud *bud)
{
    double share = 0;
    for (uint32_t i = 0; i < bud->boxes; i++)
        share += bud->share[i];
    for (uint32_t i = 0; i < bud->guests; i++)
        share += bud->guest_share[i];
    return share;
}

/* Thresholds: every edge of a hull parts the axis in two. */
static void try_edges(struct grower *g, const struct bud *bud, double share, uint32_t axis, uint32_t spans,
                      uint32_t all, uint32_t wide, double wide_share, struct choice *best)
{
    const struct line *line = &g->space->line[axis];
    const struct range *along = &bud->region[axis];
    uint64_t *low = g->key, *high = g->key + all;
    for (uint32_t i = 0; i < all; i++) {
        low[i] = (uint64_t)g->span[i].side.low << 32 | i;
        high[i] = (uint64_t)g->span[i].side.high << 32 | i;
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
            const struct span *span = &g->span[(uint32_t)high[h]];
            double first = (double)line->edge[span->side.low];
            double dense = span->share / ((double)line_end(line, span->side.high) - first + 1);
            ended += span->share;
            density -= dense;
            start -= dense * first;
            left_behind += !span->guest;
        }
        if (edge > along->side.low && edge <= along->side.high) {
            u128 middle = line->edge[edge];
            double left = ended + density * (double)middle - start +
                          wide_share * part_of(along->low, along->high, along->low, middle - 1);
            left = left < 0 ? 0 : left > share ? share : left;
            struct halves lower = {wide + met, wide + spans - left_behind, left};
            struct halves upper = {wide + spans - left_behind, wide + met, share - left};
            weigh(g, bud, &lower, share, axis, along->low, middle - 1, best);
            weigh(g, bud, &upper, share, axis, middle, along->high, best);
        }
        for (; l < all && (uint32_t)(low[l] >> 32) == edge; l++) {
            const struct span *span = &g->span[(uint32_t)low[l]];
            double first = (double)line->edge[span->side.low];
            double dense = span->share / ((double)line_end(line, span->side.high) - first + 1);
            density += dense;
            start += dense * first;
            met += !span->guest;
        }
    }
}

/* The traffic of spans in low..high. */
static double traffic_in(const struct crossing *crossing, uint32_t spans, u128 low, u128 high)
{
    double share = 0;
    for (uint32_t i = 0; i < spans; i++) {
        const struct crossing *each = &crossing[i];
        if (each->low <= high && each->high >= low && each->low <= each->high)
            share += each->span.share * part_of(each->low, each->high, low, high);
    }
    return share;
}

/* Count the rules on each side of low..high, by their boxes. */
static struct halves count(const struct grower *g, const struct bud *bud, const struct probe *probe);

/* A prefix that holds low..high and no rule besides, *most* at most, if testing it is much cheaper. */
static void try_wider(const struct grower *g, const struct bud *bud, double share, uint32_t axis, u128 low, u128 high,
                      u128 most, struct choice *best)
{
    const struct tree_boxes *in = g->space->in;
    double dear = cost_of_test(in, axis, low, high, false).missed;
    for (u128 free = (low ^ high) << 1 | 1; free <= most; free = free << 1 | 1) {
        if (cost_of_test(in, axis, low & ~free, low | free, false).missed < WIDER * dear) {
            struct probe probe = probe_of(g->space, bud->region, axis, low & ~free, low | free);
            struct halves halves = count(g, bud, &probe);
            weigh(g, bud, &halves, share, axis, low & ~free, low | free, best);
            return;
        }
        if (free == ~(u128)0)
            return;
    }
}

/* Prefixes on the heavier path of the trie of those hulls that lie below it, and the
 * lighter child at each fork. */
static void try_prefixes(struct grower *g, const struct bud *bud, double share, uint32_t axis, uint32_t spans,
                         uint32_t all, uint32_t wide, double wide_share, struct choice *best)
{
    const struct line *line = &g->space->line[axis];
    const struct range *along = &bud->region[axis];
    uint32_t held = spans, crossing = all - spans, crossing_rules = 0;
    double held_share = 0;
    memcpy(g->held, g->span, spans * sizeof *g->span);
    for (uint32_t i = 0; i < crossing; i++)
        g->crossing[i] = crossing_of(line, along, &g->span[spans + i]);
    for (uint32_t i = 0; i < spans; i++)
        held_share += g->span[i].share;
    u128 most = 0; /* what is free in the half that the path came by, or in half of the region */
    if (g->space->in->costs)
        while (most < (along->low ^ along->high))
            most = most << 1 | 1;
    most >>= 1;
    while (held) {
        struct side hull = g->held[0].side;
        for (uint32_t i = 1; i < held; i++) {
            if (g->held[i].side.low < hull.low)
                hull.low = g->held[i].side.low;
            if (g->held[i].side.high > hull.high)
                hull.high = g->held[i].side.high;
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
        struct side touch = {line_rank(line, low), line_rank(line, high)};
        uint32_t met = 0;
        crossing_rules = 0;
        for (uint32_t i = 0; i < crossing; i++)
            if (g->crossing[i].span.side.low <= touch.high && g->crossing[i].span.side.high >= touch.low) {
                crossing_rules += !g->crossing[i].span.guest;
                g->crossing[met++] = g->crossing[i];
            }
        crossing = met;
        if (low > along->low || high < along->high) {
            double in = held_share + traffic_in(g->crossing, crossing, low, high) +
                        wide_share * part_of(along->low, along->high, low, high);
            struct halves halves = {wide + crossing_rules + held, wide + spans - held, in};
            weigh(g, bud, &halves, share, axis, low, high, best);
            if (below < most)
                try_wider(g, bud, share, axis, low, high, most, best);
        }
        if (!below || held * 16 < spans)
            break;
        most = g->space->in->costs ? below >> 1 : 0;
        /* The fork: hulls in the lower half, in the upper half, across. */
        u128 middle = low + (below >> 1) + 1;
        uint32_t at = line_rank(line, middle), upper_from = at + (line->edge[at] < middle);
        uint32_t in[2] = {0, 0}, meets[2] = {0, 0}, cross = 0;
        double in_share[2] = {0, 0};
        for (uint32_t i = 0; i < held; i++) {
            const struct span *span = &g->held[i];
            if (span->side.high < at) {
                in[0]++;
                in_share[0] += span->share;
            } else if (span->side.low >= upper_from) {
                in[1]++;
                in_share[1] += span->share;
            } else {
                cross++;
            }
        }
        for (uint32_t i = 0; i < crossing; i++) {
            const struct span *span = &g->crossing[i].span;
            if (span->guest)
                continue;
            meets[0] += span->side.low <= at && (span->side.low < at || line->edge[at] < middle);
            meets[1] += span->side.high >= at;
        }
        unsigned heavy = in[1] > in[0], light = !heavy;
        /* The path goes on into the heavier half. */
        uint32_t stay = 0;
        u128 light_low = light ? middle : low, light_high = light ? high : middle - 1;
        for (uint32_t i = 0; i < held; i++) {
            struct side side = g->held[i].side;
            bool lower = side.high < at, upper = side.low >= upper_from;
            if (heavy ? upper : lower)
                g->held[stay++] = g->held[i];
            else if (!lower && !upper)
                g->crossing[crossing++] = crossing_of(line, along, &g->held[i]);
        }
        if (in[light]) {
            double inside = in_share[light] + wide_share * part_of(along->low, along->high, light_low, light_high) +
                            traffic_in(g->crossing, crossing, light_low, light_high);
            struct halves halves = {wide + cross + meets[light] + in[light], wide + spans - in[light], inside};
            weigh(g, bud, &halves, share, axis, light_low, light_high, best);
        }
        held = stay;
        held_share = in_share[heavy];
    }
}

static struct halves count(const struct grower *g, const struct bud *bud, const struct probe *probe)
{
    struct halves halves = {0, 0, 0};
    const struct range *along = &bud->region[probe->axis];
    for (uint32_t i = 0; i < bud->boxes;) {
        int32_t rule = g->space->in->rule[bud->box[i]];
        float share = bud->share[i];
        struct side first = box_side(g->space, bud->box[i], probe->axis);
        bool in = false, out = false, many = false;
        for (uint32_t from = i; i < bud->boxes && g->space->in->rule[bud->box[i]] == rule; i++) {
            struct side side = box_side(g->space, bud->box[i], probe->axis);
            in |= probe_meets(probe, side);
            out |= probe_is_left(probe, side);
            many |= i > from;
        }
        halves.in += in;
        halves.out += out;
        if (in && !out)
            halves.share += share;
        else if (in)
            halves.share += share * (many ? 0.5 : probe_part(g, along, probe, first));
    }
    for (uint32_t i = 0; i < bud->guests; i++) {
        struct side side = box_side(g->space, bud->guest[i], probe->axis);
        halves.share += bud->guest_share[i] * probe_part(g, along, probe, side);
    }
    return halves;
}

/* What boxes spell: the most frequent intervals. */
static void try_spelt(struct grower *g, const struct bud *bud, double share, uint32_t axis, struct choice *best)
{
    const struct line *line = &g->space->line[axis];
    const struct range *along = &bud->region[axis];
    uint32_t keys = 0;
    for (uint32_t i = 0; i < bud->boxes; i++) {
        struct side side = box_side(g->space, bud->box[i], axis);
        if (along->none ? side.low > 0 : side.low > along->side.low || side.high < along->side.high)
            g->key[keys++] = (uint64_t)side.low << 32 | side.high;
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
        struct probe probe = probe_of(g->space, bud->region, axis, low, high);
        struct halves halves = count(g, bud, &probe);
        weigh(g, bud, &halves, share, axis, low, high, best);
    }
}

static void try_axis(struct grower *g, const struct bud *bud, double share, uint32_t axis, struct choice *best)
{
    uint32_t wide, all;
    double wide_share;
    uint32_t spans = spans_read(g, bud, axis, &wide, &wide_share, &all);
    enum tree_cut cut = g->space->in->axis[axis].cut;
    if (!spans)
        return;
    if (cut == TREE_CUT_PREFIX) {
        try_prefixes(g, bud, share, axis, spans, all, wide, wide_share, best);
        return;
    }
    if (cut == TREE_CUT_RANGE)
        try_edges(g, bud, share, axis, spans, all, wide, wide_share, best);
    try_spelt(g, bud, share, axis, best);
}

/* The best test of the coordinate that *axis* needs before it may be tested. */
static void try_needs(struct grower *g, const struct bud *bud, double share, uint32_t axis, struct choice *best)
{
    const struct tree_axis *wanted = &g->space->in->axis[axis];
    const struct range *along = &bud->region[wanted->needs];
    if (g->space->in->axis[wanted->needs].cut == TREE_CUT_NONE)
        return;
    for (uint32_t i = 0; i < wanted->needed_count; i++) {
        u128 value = wanted->needed[i];
        if (value < along->low || value > along->high)
            continue;
        struct probe probe = probe_of(g->space, bud->region, (uint32_t)wanted->needs, value, value);
        struct halves halves = count(g, bud, &probe);
        weigh(g, bud, &halves, share, (uint32_t)wanted->needs, value, value, best);
    }
}

/* The best test for the bud.  A test that is wanted most and not allowed yet asks for
 * what it needs first, which must be worth the extra decision. */
static struct choice choose(struct grower *g, const struct bud *bud, double share)
{
    struct choice none = {.work = HUGE_VAL}, best = none;
    const struct tree_boxes *in = g->space->in;
    for (uint32_t a = 0; a < in->axes; a++)
        if (axis_usable(g->space, bud->region, a))
            try_axis(g, bud, share, a, &best);
    double aim = best.work;
    for (uint32_t a = 0; a < in->axes; a++) {
        if (in->axis[a].cut == TREE_CUT_NONE || axis_usable(g->space, bud->region, a))
            continue;
        struct choice wish = none, first = none;
        try_axis(g, bud, share, a, &wish);
        if (wish.work + g->rule >= aim)
            continue;
        try_needs(g, bud, share, a, &first);
        if (first.work < HUGE_VAL) {
            struct tree_cost test = cost_of_test(in, first.axis, first.low, first.high, first.negated);
            if (wish.work + test.missed >= aim)
                continue;
            best = first;
            aim = wish.work + test.missed;
        }
    }
    return best;
}

/* The heap of buds. */

static bool before(const struct bud *a, const struct bud *b)
{
    return a->rank > b->rank || (a->rank == b->rank && a->order < b->order);
}

static bool heap_push(struct grower *g, struct bud *bud)
{
    if (g->buds == g->room) {
        struct bud **more = arena_take(g->space->arena, (g->room ? 2 * (size_t)g->room : 1024) * sizeof *more);
        if (!more)
            return false;
        if (g->buds)
            memcpy(more, g->heap, g->buds * sizeof *more);
        g->heap = more;
        g->room = g->room ? 2 * g->room : 1024;
    }
    uint32_t at = g->buds++;
    for (; at && before(bud, g->heap[(at - 1) / 2]); at = (at - 1) / 2)
        g->heap[at] = g->heap[(at - 1) / 2];
    g->heap[at] = bud;
    return true;
}

static struct bud *heap_pop(struct grower *g)
{
    struct bud *top = g->heap[0], *last = g->heap[--g->buds];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < g->buds; at = child) {
        if (child + 1 < g->buds && before(g->heap[child + 1], g->heap[child]))
            child++;
        if (!before(g->heap[child], last))
            break;
        g->heap[at] = g->heap[child];
    }
    g->heap[at] = last;
    return top;
}

/* Growing. */

static uint32_t rules_in(const struct grower *g, const uint32_t *box, uint32_t boxes)
{
    uint32_t rules = 0;
    for (uint32_t i = 0; i < boxes; i++)
        rules += !i || g->space->in->rule[box[i]] != g->space->in->rule[box[i - 1]];
    return rules;
}

/* What reading these boxes' rules costs a packet of the region. */
static double boxes_cost(const struct grower *g, const uint32_t *box, uint32_t boxes, const struct range *region)
{
    const int32_t *rule = g->space->in->rule;
    double spent = 0;
    for (uint32_t i = 0; i < boxes; i++)
        if (!i || rule[box[i]] != rule[box[i - 1]])
            spent += cost_missed(g->space, box[i], region);
    return spent;
}

/* The expected cost of the list, times its traffic. */
static double list_work(const struct grower *g, struct bud *bud)
{
    const int32_t *rule = g->space->in->rule;
    double work = 0, spent = 0;
    for (uint32_t i = 0; i < bud->boxes; i++) {
        if (!i || rule[bud->box[i]] != rule[bud->box[i - 1]])
            spent += cost_missed(g->space, bud->box[i], bud->region);
        work += spent * (double)bud->share[i];
    }
    for (uint32_t i = 0; i < bud->guests; i++)
        work += spent * (double)bud->guest_share[i];
    bud->scale = bud->rules ? spent / (bud->rules * g->rule) : 1;
    return work;
}

/* Boxes at the head of the list whose rules cover the region: read before any test. */
static uint32_t front_of(const struct grower *g, const struct bud *bud)
{
    const int32_t *rule = g->space->in->rule;
    uint32_t front = 0;
    while (front < bud->boxes) {
        uint32_t next = front;
        bool covers = false;
        for (; next < bud->boxes && rule[bud->box[next]] == rule[bud->box[front]]; next++)
            covers |= box_covers(g->space, bud->box[next], bud->region);
        if (!covers)
            break;
        front = next;
    }
    return front;
}

/* Give the bud its best test and put it on the heap, if splitting can save. */
static bool bud_judge(struct grower *g, struct bud *bud)
{
    bud->twig->share = share_of(bud);
    bud->twig->hits = bud->twig->share;
    for (uint32_t i = 0; i < bud->guests; i++)
        bud->twig->hits -= bud->guest_share[i];
    bud->twig->work = list_work(g, bud);
    if (bud->rules <= g->options->leaf_size || bud->rules < 2 || bud->nesting >= g->options->max_nesting)
        return true;
    if (g->looked > g->looks)
        return true;
    g->looked += bud->boxes + bud->guests;
    struct bud split = *bud; /* what a test would split */
    uint32_t front = front_of(g, bud), front_rules = rules_in(g, bud->box, front);
    split.box += front;
    split.share += front;
    split.boxes -= front;
    split.rules -= front_rules;
    double share = share_of(&split);
    if (share <= 0)
        return true;
    double listed = list_work(g, &split);
    bud->front = front;
    split.table = table_for(g, &split);
    bud->choice = choose(g, &split, share);
    double saving = listed - bud->choice.work * share;
    bool too_long = g->options->longest && bud->rules > g->options->longest && bud->choice.work < HUGE_VAL;
    if (!(saving > 0) && !too_long)
        return true;
    /* What only shortens comes after all that saves. */
    bud->rank = saving > 0 ? saving / sqrt(bud->choice.copies + 1) : saving - 1;
    return heap_push(g, bud);
}

static struct bud *bud_new(struct grower *g, uint32_t boxes, uint32_t guests, uint32_t nesting)
{
    struct arena *arena = g->space->arena;
    struct bud *bud = arena_take(arena, sizeof *bud);
    if (!bud)
        return NULL;
    bud->twig = twig_new(g->space);
    bud->box = arena_take(arena, boxes * sizeof *bud->box);
    bud->share = arena_take(arena, boxes * sizeof *bud->share);
    bud->guest = arena_take(arena, guests * sizeof *bud->guest);
    bud->guest_share = arena_take(arena, guests * sizeof *bud->guest_share);
    bud->region = arena_take(arena, g->space->in->axes * sizeof *bud->region);
    if (!bud->twig || !bud->box || !bud->share || !bud->guest || !bud->guest_share || !bud->region)
        return NULL;
    bud->nesting = nesting;
    bud->order = g->born++;
    return bud;
}

/* Whether the list ends with a final rule that covers the region. */
static bool is_closed(const struct grower *g, const struct bud *bud)
{
    const struct tree_boxes *in = g->space->in;
    if (!bud->boxes || !in->final[in->rule[bud->box[bud->boxes - 1]]])
        return false;
    int32_t last = in->rule[bud->box[bud->boxes - 1]];
    for (uint32_t i = bud->boxes; i-- && in->rule[bud->box[i]] == last;)
        if (box_covers(g->space, bud->box[i], bud->region))
            return true;
    return false;
}

/* One side of a split: the boxes that meet it, cut behind a rule that covers it. */
static struct bud *bud_part(struct grower *g, const struct bud *from, uint32_t front, const struct probe *probe,
                            bool inside, uint32_t nesting)
{
    const int32_t *rule = g->space->in->rule;
    uint32_t met = 0;
    struct bud *bud = bud_new(g, from->boxes - front, from->guests, nesting);
    if (!bud)
        return NULL;
    (inside ? region_inside : region_outside)(g->space, from->region, probe, bud->region);
    const struct range *around = &from->region[probe->axis];
    struct range *along = &bud->region[probe->axis];
    bud->holes = from->holes;
    if (!inside && !(bud->holes = hole_new(g->space, from->holes, probe)))
        return NULL;
    bool alive = range_trim(g->space, bud->holes, probe->axis, along);
    for (uint32_t i = front; i < from->boxes;) {
        int32_t r = rule[from->box[i]];
        struct side whole = box_side(g->space, from->box[i], probe->axis);
        float share = from->share[i];
        bool in = false, out = false, first = true, many = false;
        for (uint32_t start = i; i < from->boxes && rule[from->box[i]] == r; i++) {
            struct side side = box_side(g->space, from->box[i], probe->axis);
            bool meets = probe_meets(probe, side), leaves = probe_is_left(probe, side);
            bool here = range_meets(along, alive, side);
            in |= meets;
            out |= leaves;
            many |= i > start;
            if (here && (inside ? meets : leaves)) {
                bud->share[met] = first ? share : 0;
                bud->box[met++] = from->box[i];
                first = false;
            }
        }
        if (in && out && !first) {
            uint32_t at = met;
            while (at && rule[bud->box[at - 1]] == r)
                at--;
            double part = many ? 0.5 : probe_part(g, around, probe, whole);
            bud->share[at] = (float)(share * (inside ? part : 1 - part));
        }
    }
    for (uint32_t i = 0; i < from->guests; i++) {
        struct side side = box_side(g->space, from->guest[i], probe->axis);
        double part = probe_part(g, around, probe, side);
        float share = (float)(from->guest_share[i] * (inside ? part : 1 - part));
        if (share > 1e-4f) {
            bud->guest[bud->guests] = from->guest[i];
            bud->guest_share[bud->guests++] = share;
        }
    }
    bud->boxes = list_cut(g->space, bud->box, met, bud->region);
    bud->rules = rules_in(g, bud->box, bud->boxes);
    bud->twig->closed = is_closed(g, bud);
    return bud;
}

static enum tree_status bud_split(struct grower *g, struct bud *bud)
{
    const struct choice *choice = &bud->choice;
    struct twig *twig = bud->twig;
    struct probe probe = probe_of(g->space, bud->region, choice->axis, choice->low, choice->high);
    uint32_t front = bud->front;
    struct bud *taken = bud_part(g, bud, front, &probe, !choice->negated, bud->nesting + 1);
    struct bud *other = bud_part(g, bud, front, &probe, choice->negated, bud->nesting);
    if (!taken || !other)
        return TREE_NO_MEMORY;
    uint64_t printed = g->printed + rules_in(g, bud->box, front) + taken->rules + other->rules + 1 - bud->rules;
    if (printed > g->options->budget)
        return TREE_OK; /* stays a leaf; a smaller one may still fit */
    g->printed = printed;
    twig->kind = TREE_TEST;
    twig->axis = choice->axis;
    twig->negated = choice->negated;
    twig->branches = 2;
    twig->branch = arena_take(g->space->arena, 2 * sizeof *twig->branch);
    if (!twig->branch || !twig_lists(g->space, twig, bud->box, front))
        return TREE_NO_MEMORY;
    twig->test = cost_of_test(g->space->in, choice->axis, choice->low, choice->high, choice->negated);
    twig->front = boxes_cost(g, bud->box, front, bud->region);
    twig->beside = taken->rules > BESIDE ? HUGE_VAL : boxes_cost(g, taken->box, taken->boxes, bud->region);
    const struct range *around = &bud->region[choice->axis];
    twig->branch[0] = (struct branch){choice->low, choice->high, taken->twig};
    twig->branch[1] = (struct branch){around->low, around->high, other->twig};
    bool listed = twig_lists(g->space, taken->twig, taken->box, taken->boxes) &&
                  twig_lists(g->space, other->twig, other->box, other->boxes);
    return listed && bud_judge(g, taken) && bud_judge(g, other) ? TREE_OK : TREE_NO_MEMORY;
}

/* A tree over *plot*; NULL when memory is exhausted. */
struct twig *bisect_over(struct space *space, const struct tree_options *options, const struct plot *plot)
{
    uint32_t boxes = plot->boxes;
    size_t spans = (size_t)boxes + plot->guests + 1;
    struct grower *g = arena_take(space->arena, sizeof *g);
    if (!g)
        return NULL;
    g->space = space;
    g->options = options;
    g->span = arena_take(space->arena, spans * sizeof *g->span);
    g->held = arena_take(space->arena, spans * sizeof *g->held);
    g->crossing = arena_take(space->arena, spans * sizeof *g->crossing);
    g->key = arena_take(space->arena, 2 * spans * sizeof *g->key);
    g->spare = arena_take(space->arena, 2 * spans * sizeof *g->spare);
    struct bud *bud = bud_new(g, boxes, plot->guests, 0);
    if (!g->span || !g->held || !g->crossing || !g->key || !g->spare || !bud)
        return NULL;
    g->looks = options->looks ? (uint64_t)options->looks * (boxes + plot->guests + 1) : UINT64_MAX;
    tables_fill(g, plot);
    memcpy(bud->region, plot->region, space->in->axes * sizeof *bud->region);
    memcpy(bud->box, plot->box, boxes * sizeof *bud->box);
    for (uint32_t i = 0; i < boxes; i++) {
        int32_t rule = space->in->rule[bud->box[i]];
        bool first = !i || rule != space->in->rule[bud->box[i - 1]];
        bud->share[i] = first ? (float)space->in->weight[rule] : 0;
    }
    for (uint32_t i = 0; i < plot->guests; i++) {
        bud->guest[i] = plot->guest[i];
        bud->guest_share[i] = plot->guest_share[i];
    }
    bud->guests = plot->guests;
    bud->boxes = list_cut(space, bud->box, boxes, bud->region);
    bud->rules = rules_in(g, bud->box, bud->boxes);
    bud->twig->closed = is_closed(g, bud);
    g->printed = bud->rules;
    if (!twig_lists(space, bud->twig, bud->box, bud->boxes) || !bud_judge(g, bud))
        return NULL;
    while (g->buds)
        if (bud_split(g, heap_pop(g)) != TREE_OK)
            return NULL;
    return bud->twig;
}

static enum tree_status bisect_grow(struct space *space, const struct tree_options *options, struct twig **root)
{
    uint32_t boxes = space->in->boxes;
    struct range region[TREE_AXES];
    uint32_t *box = arena_take(space->arena, boxes * sizeof *box);
    if (!box)
        return TREE_NO_MEMORY;
    for (uint32_t i = 0; i < boxes; i++)
        box[i] = i;
    region_all(space, region);
    *root = bisect_over(space, options, &(struct plot){.box = box, .boxes = boxes, .region = region});
    return *root ? TREE_OK : TREE_NO_MEMORY;
}

const struct tree_builder tree_bisect = {.name = "bisect", .bounded = true, .grow = bisect_grow};
