/* The tests of a leaf, weighed by the work that each is expected to leave.
 *
 * Idea: candidates are the prefixes on the heavier path of the trie of the rules' hulls and the lighter half
 * at each fork, the edges of ranges, the intervals that boxes spell, and prefixes of names (bisect_names.c).
 * A test is worth the expected work on both sides (bisect_work.c), its own cost, and a penalty for each rule
 * that it copies.  A rule's traffic is spread evenly over its box, along addresses and ports; along other
 * axes half of it is taken to pass a test that the rule does not answer.
 * Cost: O(n log n) per axis, n the boxes of the leaf.
 * Invariant: a chosen test makes some list shorter, so growth ends.
 * Threading: none; scratch belongs to one bisection.
 */
#include "bisect_internal.h"

#include <string.h>

#include "sort.h"

enum { SPELT_TRIED = 8 }; /* most frequent spellings tried per axis */

/* A wider prefix must cost so much less. */
static const double WIDER = 0.7;

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
static double span_part(const struct bisection *g, const struct range *along, uint32_t axis,
                        struct rank_range ranks, u128 low, u128 high)
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

double probe_part(const struct bisection *g, const struct range *along, const struct probe *probe,
                  struct rank_range ranks)
{
    if (!probe_meets(probe, ranks))
        return 0;
    if (!probe_is_left(probe, ranks))
        return 1;
    return is_even(g, probe->axis) ? span_part(g, along, probe->axis, ranks, probe->low, probe->high) : 0.5;
}

/* The test must make some list shorter.  One that leaves the region's hull as it was must make the outer one
 * shorter, else it could be chosen there again, for ever. */
void weigh(const struct bisection *g, const struct open_leaf *leaf, const struct side_counts *counts,
           double share, uint32_t axis, u128 low, u128 high, struct test_choice *best)
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
    bool may_negate = !g->space->in->axis[axis].optional && !g->space->in->axis[axis].unnegatable;
    /* Equal work: take the side with less traffic, since a taken test costs more than a missed one. */
    bool negate = may_negate && (negated < plain - 1e-9 || (negated < plain + 1e-9 && out < in));
    double work = negate ? negated : plain;
    if (work < best->work - 1e-9)
        *best = (struct test_choice){work, axis, low, high, negate, copies};
}

static struct crossing_span crossing_of(const struct line *line, const struct range *along,
                                        const struct rule_span *span)
{
    u128 low = line->edge[span->ranks.low], high = line_end(line, span->ranks.high);
    return (struct crossing_span){low > along->low ? low : along->low,
                                  high < along->high ? high : along->high, *span};
}

/* Clip a span to the region; whether it is the region then. */
static bool clip(struct rank_range *ranks, const struct range *along)
{
    if (ranks->low < along->ranks.low)
        ranks->low = along->ranks.low;
    if (ranks->high > along->ranks.high)
        ranks->high = along->ranks.high;
    return ranks->low == along->ranks.low && ranks->high == along->ranks.high;
}

static struct axis_spans spans_read(struct bisection *g, const struct open_leaf *leaf, uint32_t axis,
                                    double share)
{
    const struct space *space = g->space;
    const struct range *along = &leaf->region[axis];
    struct axis_spans spans = {.axis = axis, .share = share};
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
        if (clip(&span.ranks, along)) {
            spans.wide++;
            spans.wide_share += span.share;
        } else {
            g->span[spans.rules++] = span;
        }
    }
    spans.all = spans.rules;
    for (uint32_t i = 0; i < leaf->background_boxes; i++) {
        struct rule_span span = {.ranks = box_ranks(space, leaf->background[i], axis),
                                 .share = leaf->background_share[i],
                                 .background = true};
        if (clip(&span.ranks, along))
            spans.wide_share += span.share;
        else
            g->span[spans.all++] = span;
    }
    return spans;
}

/* Thresholds: every edge of a hull cuts the axis in two. */
static void try_edges(struct bisection *g, const struct open_leaf *leaf, const struct axis_spans *spans,
                      struct test_choice *best)
{
    const struct line *line = &g->space->line[spans->axis];
    const struct range *along = &leaf->region[spans->axis];
    uint32_t all = spans->all;
    uint64_t *low = g->key, *high = g->key + all;
    for (uint32_t i = 0; i < all; i++) {
        low[i] = (uint64_t)g->span[i].ranks.low << 32 | i;
        high[i] = (uint64_t)g->span[i].ranks.high << 32 | i;
    }
    sort_keys(low, g->spare, all, 32);
    sort_keys(high, g->spare, all, 32);
    /* At an edge: spans that began before it meet the left side, spans that ended before it do not meet
     * the right.  Traffic on the left: that of the ended spans, and of the open ones a share by their
     * density. */
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
                          spans->wide_share * part_of(along->low, along->high, along->low, middle - 1);
            left = left < 0 ? 0 : left > spans->share ? spans->share : left;
            struct side_counts lower = {spans->wide + met, spans->wide + spans->rules - left_behind, left};
            struct side_counts upper = {spans->wide + spans->rules - left_behind, spans->wide + met,
                                        spans->share - left};
            weigh(g, leaf, &lower, spans->share, spans->axis, along->low, middle - 1, best);
            weigh(g, leaf, &upper, spans->share, spans->axis, middle, along->high, best);
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

/* The rules on each side of the probe, and the traffic inside, by their boxes. */
static struct side_counts count_sides(const struct bisection *g, const struct open_leaf *leaf,
                                      const struct probe *probe);

/* The way down the trie of an axis's prefixes, always into the half that holds more hulls. */
struct prefix_path {
    const struct axis_spans *spans;
    const struct line *line;
    const struct range *along;
    uint32_t inside,
        crossing; /* hulls in g->inside, within the current prefix; in g->crossing, across its ends */
    double inside_share;
    u128 low, high; /* the current prefix */
    u128 free; /* its free bits */
    u128 widest; /* free bits that a wider test in its place may have; 0: none is tried */
};

/* Where the current prefix is halved. */
struct prefix_fork {
    u128 middle; /* first value of the upper half */
    uint32_t at, upper_from; /* rank of its interval; the first rank that lies in the upper half alone */
    uint32_t in[2], cross; /* hulls within the lower and the upper half, and across the middle */
    uint32_t meets[2]; /* rules that cross the prefix and meet each half */
    double in_share[2];
    unsigned heavy; /* the half with more hulls */
};

static u128 free_bits(u128 low, u128 high)
{
    u128 free = 0;
    while (free < (low ^ high))
        free = free << 1 | 1;
    return free;
}

static void path_start(struct bisection *g, const struct open_leaf *leaf, const struct axis_spans *spans,
                       struct prefix_path *path)
{
    *path = (struct prefix_path){.spans = spans,
                                 .line = &g->space->line[spans->axis],
                                 .along = &leaf->region[spans->axis],
                                 .inside = spans->rules,
                                 .crossing = spans->all - spans->rules};
    memcpy(g->inside, g->span, spans->rules * sizeof *g->span);
    for (uint32_t i = 0; i < path->crossing; i++)
        g->crossing[i] = crossing_of(path->line, path->along, &g->span[spans->rules + i]);
    for (uint32_t i = 0; i < spans->rules; i++)
        path->inside_share += g->span[i].share;
    if (g->space->in->costs)
        path->widest = free_bits(path->along->low, path->along->high) >> 1;
}

/* Shrink the prefix to the smallest that holds all hulls within it, and forget the hulls that do not cross
 * that; the number of rules that do. */
static uint32_t path_narrow(struct bisection *g, struct prefix_path *path)
{
    struct rank_range hull = g->inside[0].ranks;
    for (uint32_t i = 1; i < path->inside; i++) {
        if (g->inside[i].ranks.low < hull.low)
            hull.low = g->inside[i].ranks.low;
        if (g->inside[i].ranks.high > hull.high)
            hull.high = g->inside[i].ranks.high;
    }
    u128 low = path->line->edge[hull.low], high = line_end(path->line, hull.high);
    if (low < path->along->low)
        low = path->along->low;
    if (high > path->along->high)
        high = path->along->high;
    path->free = free_bits(low, high);
    path->low = low & ~path->free;
    path->high = low | path->free;
    struct rank_range touch = {line_rank(path->line, path->low), line_rank(path->line, path->high)};
    uint32_t kept = 0, rules = 0;
    for (uint32_t i = 0; i < path->crossing; i++) {
        const struct rule_span *span = &g->crossing[i].span;
        if (span->ranks.low <= touch.high && span->ranks.high >= touch.low) {
            rules += !span->background;
            g->crossing[kept++] = g->crossing[i];
        }
    }
    path->crossing = kept;
    return rules;
}

/* A prefix around the current one that holds no other rule, if testing it is much cheaper. */
static void try_wider(const struct bisection *g, const struct open_leaf *leaf, const struct prefix_path *path,
                      struct test_choice *best)
{
    const struct tree_boxes *in = g->space->in;
    uint32_t axis = path->spans->axis;
    double dear = cost_of_test(in, axis, path->low, path->high, false).missed;
    for (u128 free = path->free << 1 | 1; free <= path->widest; free = free << 1 | 1) {
        u128 low = path->low & ~free, high = path->low | free;
        if (cost_of_test(in, axis, low, high, false).missed < WIDER * dear) {
            struct probe probe = probe_of(g->space, leaf->region, axis, low, high);
            struct side_counts counts = count_sides(g, leaf, &probe);
            weigh(g, leaf, &counts, path->spans->share, axis, low, high, best);
            return;
        }
        if (free == ~(u128)0)
            return;
    }
}

/* Weigh a test of the current prefix, which *crossing_rules* cross. */
static void try_prefix(const struct bisection *g, const struct open_leaf *leaf,
                       const struct prefix_path *path, uint32_t crossing_rules, struct test_choice *best)
{
    const struct axis_spans *spans = path->spans;
    if (path->low <= path->along->low && path->high >= path->along->high)
        return;
    double in = path->inside_share + traffic_in(g->crossing, path->crossing, path->low, path->high) +
                spans->wide_share * part_of(path->along->low, path->along->high, path->low, path->high);
    struct side_counts counts = {spans->wide + crossing_rules + path->inside,
                                 spans->wide + spans->rules - path->inside, in};
    weigh(g, leaf, &counts, spans->share, spans->axis, path->low, path->high, best);
    if (path->free < path->widest)
        try_wider(g, leaf, path, best);
}

static struct prefix_fork fork_of(const struct bisection *g, const struct prefix_path *path)
{
    const struct line *line = path->line;
    struct prefix_fork fork = {.middle = path->low + (path->free >> 1) + 1};
    fork.at = line_rank(line, fork.middle);
    fork.upper_from = fork.at + (line->edge[fork.at] < fork.middle);
    for (uint32_t i = 0; i < path->inside; i++) {
        const struct rule_span *span = &g->inside[i];
        if (span->ranks.high < fork.at) {
            fork.in[0]++;
            fork.in_share[0] += span->share;
        } else if (span->ranks.low >= fork.upper_from) {
            fork.in[1]++;
            fork.in_share[1] += span->share;
        } else {
            fork.cross++;
        }
    }
    for (uint32_t i = 0; i < path->crossing; i++) {
        const struct rule_span *span = &g->crossing[i].span;
        if (span->background)
            continue;
        fork.meets[0] +=
            span->ranks.low <= fork.at && (span->ranks.low < fork.at || line->edge[fork.at] < fork.middle);
        fork.meets[1] += span->ranks.high >= fork.at;
    }
    fork.heavy = fork.in[1] > fork.in[0];
    return fork;
}

/* Move into the heavy half: hulls across the middle cross the prefix from now on, those in the light half
 * drop out. */
static void path_descend(struct bisection *g, struct prefix_path *path, const struct prefix_fork *fork)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < path->inside; i++) {
        struct rank_range ranks = g->inside[i].ranks;
        bool lower = ranks.high < fork->at, upper = ranks.low >= fork->upper_from;
        if (fork->heavy ? upper : lower)
            g->inside[kept++] = g->inside[i];
        else if (!lower && !upper)
            g->crossing[path->crossing++] = crossing_of(path->line, path->along, &g->inside[i]);
    }
    path->inside = kept;
    path->inside_share = fork->in_share[fork->heavy];
}

/* Weigh a test of the light half of *fork*, above the path's new prefix. */
static void try_light_half(const struct bisection *g, const struct open_leaf *leaf,
                           const struct prefix_path *path, const struct prefix_fork *fork,
                           struct test_choice *best)
{
    const struct axis_spans *spans = path->spans;
    unsigned light = !fork->heavy;
    u128 low = light ? fork->middle : path->low, high = light ? path->high : fork->middle - 1;
    if (!fork->in[light])
        return;
    double in = fork->in_share[light] +
                spans->wide_share * part_of(path->along->low, path->along->high, low, high) +
                traffic_in(g->crossing, path->crossing, low, high);
    struct side_counts counts = {spans->wide + fork->cross + fork->meets[light] + fork->in[light],
                                 spans->wide + spans->rules - fork->in[light], in};
    weigh(g, leaf, &counts, spans->share, spans->axis, low, high, best);
}

/* Prefixes: those on the heavier path of the trie of hulls, and the lighter half at each fork. */
static void try_prefixes(struct bisection *g, const struct open_leaf *leaf, const struct axis_spans *spans,
                         struct test_choice *best)
{
    struct prefix_path path;
    path_start(g, leaf, spans, &path);
    while (path.inside) {
        uint32_t crossing_rules = path_narrow(g, &path);
        try_prefix(g, leaf, &path, crossing_rules, best);
        if (!path.free || path.inside * 16 < spans->rules)
            break;
        path.widest = g->space->in->costs ? path.free >> 1 : 0;
        struct prefix_fork fork = fork_of(g, &path);
        path_descend(g, &path, &fork);
        try_light_half(g, leaf, &path, &fork, best);
    }
}

static struct side_counts count_sides(const struct bisection *g, const struct open_leaf *leaf,
                                      const struct probe *probe)
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
static void try_spelt(struct bisection *g, const struct open_leaf *leaf, double share, uint32_t axis,
                      struct test_choice *best)
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

static void try_axis(struct bisection *g, const struct open_leaf *leaf, double share, uint32_t axis,
                     struct test_choice *best)
{
    struct axis_spans spans = spans_read(g, leaf, axis, share);
    enum tree_cut cut = g->space->in->axis[axis].cut;
    if (!spans.rules)
        return;
    if (cut == TREE_CUT_PREFIX) {
        try_prefixes(g, leaf, &spans, best);
        return;
    }
    if (cut == TREE_CUT_NAME) {
        try_names(g, leaf, &spans, best);
        return;
    }
    if (cut == TREE_CUT_RANGE)
        try_edges(g, leaf, &spans, best);
    try_spelt(g, leaf, share, axis, best);
}

/* The best test of the coordinate that *axis* needs before it may be tested. */
static void try_needs(struct bisection *g, const struct open_leaf *leaf, double share, uint32_t axis,
                      struct test_choice *best)
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

struct test_choice choose_test(struct bisection *g, const struct open_leaf *leaf, double share)
{
    struct test_choice none = {.work = HUGE_VAL}, best = none;
    const struct tree_boxes *in = g->space->in;
    for (uint32_t a = 0; a < in->axes; a++)
        if (axis_usable(g->space, leaf->region, a))
            try_axis(g, leaf, share, a, &best);
    double least = best.work;
    for (uint32_t a = 0; a < in->axes; a++) {
        if (in->axis[a].cut == TREE_CUT_NONE || axis_usable(g->space, leaf->region, a))
            continue;
        struct test_choice wanted = none, first = none;
        try_axis(g, leaf, share, a, &wanted);
        if (wanted.work + g->rule >= least)
            continue;
        try_needs(g, leaf, share, a, &first);
        if (first.work < HUGE_VAL) {
            struct tree_cost test = cost_of_test(in, first.axis, first.low, first.high, first.negated);
            if (wanted.work + test.missed >= least)
                continue;
            best = first;
            least = wanted.work + test.missed;
        }
    }
    return best;
}
