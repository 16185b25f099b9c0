/* Rules of a list that may go, and rules that may change places, when only ends count.
 *
 * Idea: subtract boxes.  A rule never acts when the rules before it that surely end leave
 * nothing of its pieces; it changes nothing when what they leave is ended alike by the rules
 * behind it, none of which does anything else to it on the way.  Two rules may change places
 * unless some packet lies in a piece of both, and the pieces do not end it alike.  A packet that
 * may always be dropped (its header is broken) may be dropped earlier than it was, or instead.
 *
 * Which pieces overlap is looked up in a hierarchy of hulls: pieces that leave the same axes
 * open stand together, as wide pieces would spoil the hulls of narrow ones.
 *
 * Cost: that of listing all pieces that overlap a rule's, and the boxes left (at most MOST_LEFT).
 * Invariant: what is left is never taken for less than it is, so giving up keeps a rule.
 * One thread. */
#include "redundancy.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAF = 8,        /* pieces below one hull: 4 and 16 are as fast */
    GROUPS = 4,
    MOST_LEFT = 512, /* boxes that may be left of one piece: with 64, a seventh of what may go is not found */
    MOST_HITS = 5000, /* pieces that are looked at for one piece ... */
    FEWEST_HITS = 250,
    WORK = 100000000, /* ... or so many for all, that 100,000 wide rules take half a minute */
    PASSES = 6,      /* a rule that went may have kept another from going; mostly the third finds none */
    NEAR = 1000,     /* 300 and 3,000 are as fast */
    POINTS = 16,     /* of a box, tried before it is cut up */
};

struct hull {
    uint32_t first, count; /* pieces, when no hulls stand below */
    uint32_t left, right, above;
    int64_t phase[GROUPS]; /* the highest of the rules below, by group; -1: of none */
};

struct hits {
    uint32_t *v;
    size_t n;
};

struct index {
    const struct redundant_reading *in;
    struct hull *hull;
    uint32_t *sides;       /* [hulls][2][axes] */
    uint32_t hulls, root;
    uint32_t *piece;       /* in the order of the leaves */
    uint32_t *leaf;        /* by piece */
    uint32_t *first;       /* by rule: its first piece; one entry more than rules */
    uint32_t *stack;
    struct hits before, behind; /* pieces that meet a box, of rules before and behind */
    size_t most_hits;
};

static const uint32_t NOBODY = UINT32_MAX;

static const uint32_t *low_of(const struct index *x, uint32_t piece)
{
    return x->in->low + (size_t)piece * x->in->axes;
}

static const uint32_t *high_of(const struct index *x, uint32_t piece)
{
    return x->in->high + (size_t)piece * x->in->axes;
}

static int meet(uint32_t axes, const uint32_t *low, const uint32_t *high, const uint32_t *other_low,
                const uint32_t *other_high)
{
    for (uint32_t a = 0; a < axes; a++)
        if (low[a] > other_high[a] || other_low[a] > high[a])
            return 0;
    return 1;
}

static int lies_in(uint32_t axes, const uint32_t *low, const uint32_t *high, const uint32_t *other_low,
                   const uint32_t *other_high)
{
    for (uint32_t a = 0; a < axes; a++)
        if (low[a] < other_low[a] || high[a] > other_high[a])
            return 0;
    return 1;
}

/* ---- the hierarchy ---- */

struct key {
    uint64_t at;
    uint32_t piece;
};

static int by_key(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->piece < y->piece ? -1 : x->piece > y->piece;
}

static uint32_t new_hull(struct index *x, uint32_t first, uint32_t count)
{
    uint32_t made = x->hulls++, axes = x->in->axes;
    x->hull[made] = (struct hull){first, count, NOBODY, NOBODY, NOBODY, {-1, -1, -1, -1}};
    uint32_t *low = x->sides + (size_t)made * 2 * axes, *high = low + axes;
    for (uint32_t i = first; i < first + count; i++) {
        const uint32_t *l = low_of(x, x->piece[i]), *h = high_of(x, x->piece[i]);
        for (uint32_t a = 0; a < axes; a++) {
            low[a] = i == first || l[a] < low[a] ? l[a] : low[a];
            high[a] = i == first || h[a] > high[a] ? h[a] : high[a];
        }
    }
    return made;
}

/* The axis on which the pieces are narrowest, compared with their hull. */
static uint32_t best_axis(const struct index *x, uint32_t hull)
{
    uint32_t axes = x->in->axes, best = 0;
    double best_score = -1;
    const uint32_t *low = x->sides + (size_t)hull * 2 * axes, *high = low + axes;
    for (uint32_t a = 0; a < axes; a++) {
        double sum = 0;
        for (uint32_t i = x->hull[hull].first; i < x->hull[hull].first + x->hull[hull].count; i++)
            sum += (double)high_of(x, x->piece[i])[a] - low_of(x, x->piece[i])[a];
        double score = ((double)high[a] - low[a]) / (sum / x->hull[hull].count + 1);
        if (score > best_score)
            best = a, best_score = score;
    }
    return best;
}

/* Hulls over the pieces from first on; keys: room for them. */
static uint32_t raise_hulls(struct index *x, uint32_t first, uint32_t count, struct key *keys)
{
    uint32_t made = new_hull(x, first, count);
    if (count <= LEAF) {
        for (uint32_t i = first; i < first + count; i++)
            x->leaf[x->piece[i]] = made;
        return made;
    }
    uint32_t axis = best_axis(x, made);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t piece = x->piece[first + i];
        keys[i] = (struct key){(uint64_t)low_of(x, piece)[axis] + high_of(x, piece)[axis], piece};
    }
    qsort(keys, count, sizeof *keys, by_key);
    for (uint32_t i = 0; i < count; i++)
        x->piece[first + i] = keys[i].piece;
    uint32_t left = raise_hulls(x, first, count / 2, keys);
    uint32_t right = raise_hulls(x, first + count / 2, count - count / 2, keys);
    x->hull[made].left = left, x->hull[made].right = right;
    x->hull[left].above = x->hull[right].above = made;
    return made;
}

/* Join the hulls of all kinds of pieces, two by two. */
static uint32_t join(struct index *x, uint32_t *roots, uint32_t count)
{
    if (count == 1)
        return roots[0];
    uint32_t left = join(x, roots, count / 2), right = join(x, roots + count / 2, count - count / 2);
    uint32_t axes = x->in->axes, made = new_hull(x, 0, 0);
    uint32_t *low = x->sides + (size_t)made * 2 * axes, *high = low + axes;
    const uint32_t *l = x->sides + (size_t)left * 2 * axes, *r = x->sides + (size_t)right * 2 * axes;
    for (uint32_t a = 0; a < axes; a++) {
        low[a] = l[a] < r[a] ? l[a] : r[a];
        high[a] = l[axes + a] > r[axes + a] ? l[axes + a] : r[axes + a];
    }
    x->hull[made].left = left, x->hull[made].right = right;
    x->hull[left].above = x->hull[right].above = made;
    return made;
}

static void index_close(struct index *x)
{
    free(x->hull), free(x->sides), free(x->piece), free(x->leaf), free(x->first), free(x->stack);
    free(x->before.v), free(x->behind.v);
}

static int index_open(struct index *x, const struct redundant_reading *in)
{
    size_t pieces = in->pieces, hulls = 2 * pieces + 2, axes = in->axes ? in->axes : 1;
    *x = (struct index){.in = in, .root = NOBODY, .most_hits = WORK / (pieces + 1)};
    if (x->most_hits > MOST_HITS)
        x->most_hits = MOST_HITS;
    if (x->most_hits < FEWEST_HITS)
        x->most_hits = FEWEST_HITS;
    x->hull = malloc(hulls * sizeof *x->hull);
    x->sides = malloc(hulls * 2 * axes * sizeof *x->sides);
    x->piece = malloc((pieces + 1) * sizeof *x->piece);
    x->leaf = malloc((pieces + 1) * sizeof *x->leaf);
    x->first = malloc(((size_t)in->rules + 1) * sizeof *x->first);
    x->stack = malloc(hulls * sizeof *x->stack);
    x->before.v = malloc(MOST_HITS * sizeof *x->before.v);
    x->behind.v = malloc((pieces + MOST_HITS) * sizeof *x->behind.v);
    struct key *keys = malloc((pieces + 1) * sizeof *keys);
    uint32_t *roots = malloc((pieces + 1) * sizeof *roots);
    int fine = x->hull && x->sides && x->piece && x->leaf && x->first && x->stack && x->before.v && x->behind.v
        && keys && roots;
    if (fine) {
        uint32_t at = 0, kinds = 0;
        for (uint32_t rule = 0; rule <= in->rules; rule++) {
            while (at < pieces && in->rule[at] < rule)
                at++;
            x->first[rule] = at;
        }
        for (uint32_t piece = 0; piece < pieces; piece++) {
            uint64_t open = 0; /* a bit per axis that the piece leaves open */
            for (uint32_t a = 0; a < in->axes && a < 64; a++)
                open |= (uint64_t)(!low_of(x, piece)[a] && high_of(x, piece)[a] == in->tops[a]) << a;
            keys[piece] = (struct key){open, piece};
        }
        qsort(keys, pieces, sizeof *keys, by_key);
        for (uint32_t i = 0; i < pieces; i++)
            x->piece[i] = keys[i].piece;
        uint64_t *kind = malloc((pieces + 1) * sizeof *kind); /* the keys serve as scratch below */
        if (kind) {
            for (uint32_t i = 0; i < pieces; i++)
                kind[i] = keys[i].at;
            for (uint32_t i = 0, behind; i < pieces; i = behind) {
                for (behind = i + 1; behind < pieces && kind[behind] == kind[i];)
                    behind++;
                roots[kinds++] = raise_hulls(x, i, behind - i, keys);
            }
            if (kinds)
                x->root = join(x, roots, kinds);
        }
        fine = kind != NULL;
        free(kind);
    }
    free(keys), free(roots);
    return fine;
}

/* List the pieces of rules from..behind-1 that meet the box and whose rules stay, in no order; those
 * that end, if only they are wanted.  0 when there are too many. */
static int find_hits(struct index *x, const uint32_t *low, const uint32_t *high, uint32_t from, uint32_t behind,
                     const uint8_t *why, int ending, struct hits *hits)
{
    uint32_t axes = x->in->axes;
    size_t n = 0;
    hits->n = 0;
    if (x->root != NOBODY)
        x->stack[n++] = x->root;
    while (n) {
        const struct hull *hull = &x->hull[x->stack[--n]];
        const uint32_t *sides = x->sides + (size_t)(hull - x->hull) * 2 * axes;
        if (!meet(axes, low, high, sides, sides + axes))
            continue;
        if (hull->left != NOBODY) {
            x->stack[n++] = hull->left, x->stack[n++] = hull->right;
            continue;
        }
        for (uint32_t i = hull->first; i < hull->first + hull->count; i++) {
            uint32_t piece = x->piece[i], rule = x->in->rule[piece];
            if (rule < from || rule >= behind || why[rule] || (ending && x->in->action[piece] == REDUNDANT_ACTS)
                || !meet(axes, low, high, low_of(x, piece), high_of(x, piece)))
                continue;
            if (hits->n == x->most_hits)
                return 0;
            hits->v[hits->n++] = piece;
        }
    }
    return 1;
}

/* Whether one piece of a rule before *rule* ends the way of the whole box. */
static int is_held(struct index *x, const uint32_t *low, const uint32_t *high, uint32_t rule, const uint8_t *why)
{
    uint32_t axes = x->in->axes;
    size_t n = 0;
    if (x->root != NOBODY)
        x->stack[n++] = x->root;
    while (n) {
        const struct hull *hull = &x->hull[x->stack[--n]];
        const uint32_t *sides = x->sides + (size_t)(hull - x->hull) * 2 * axes;
        if (!lies_in(axes, low, high, sides, sides + axes))
            continue;
        if (hull->left != NOBODY) {
            x->stack[n++] = hull->left, x->stack[n++] = hull->right;
            continue;
        }
        for (uint32_t i = hull->first; i < hull->first + hull->count; i++) {
            uint32_t piece = x->piece[i], other = x->in->rule[piece];
            if (other < rule && !why[other] && x->in->action[piece] != REDUNDANT_ACTS
                && lies_in(axes, low, high, low_of(x, piece), high_of(x, piece)))
                return 1;
        }
    }
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* ---- what is left of a piece ---- */

struct left {
    uint32_t *box;  /* [MOST_LEFT + 2 * axes][2][axes] */
    uint32_t count;
};

struct scratch {
    struct left left, dead;
    uint32_t *point, *part; /* [axes], [2][axes] */
};

static void begin(struct left *left, uint32_t axes, const uint32_t *low, const uint32_t *high)
{
    memcpy(left->box, low, axes * sizeof *low);
    memcpy(left->box + axes, high, axes * sizeof *high);
    left->count = 1;
}

/* Take a box away.  Where that would leave too many, nothing is taken: 0. */
static int subtract(struct left *left, uint32_t axes, const uint32_t *low, const uint32_t *high)
{
    size_t size = 2 * (size_t)axes;
    for (uint32_t i = 0; i < left->count;) {
        uint32_t *one = left->box + i * size;
        if (!meet(axes, one, one + axes, low, high)) {
            i++;
            continue;
        }
        if (!lies_in(axes, one, one + axes, low, high) && left->count >= MOST_LEFT)
            return 0;
        /* What juts out of the box on each side becomes a box; the rest of it goes. */
        for (uint32_t a = 0; a < axes; a++) {
            if (one[a] < low[a]) {
                uint32_t *made = left->box + left->count++ * size;
                memcpy(made, one, size * sizeof *made);
                made[axes + a] = low[a] - 1;
                one[a] = low[a];
            }
            if (one[axes + a] > high[a]) {
                uint32_t *made = left->box + left->count++ * size;
                memcpy(made, one, size * sizeof *made);
                made[a] = high[a] + 1;
                one[axes + a] = high[a];
            }
        }
        memmove(one, left->box + --left->count * size, size * sizeof *one);
    }
    return 1;
}

/* Whether some point of the box lies in none of the pieces: a few are tried. */
static int juts_out(const struct index *x, const uint32_t *low, const uint32_t *high, const struct hits *hits,
                    uint32_t *point)
{
    uint32_t axes = x->in->axes;
    uint64_t random = 1;
    for (int tried = 0; tried < POINTS; tried++) {
        for (uint32_t a = 0; a < axes; a++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            point[a] = low[a] + (uint32_t)((random >> 33) % ((uint64_t)high[a] - low[a] + 1));
        }
        size_t i = 0;
        while (i < hits->n && !lies_in(axes, point, point, low_of(x, hits->v[i]), high_of(x, hits->v[i])))
            i++;
        if (i == hits->n)
            return 1;
    }
    return 0;
}

/* Whether rules before *rule* surely end the way of all packets in the box. */
static int is_dead(struct index *x, struct scratch *s, const uint32_t *low, const uint32_t *high, uint32_t rule,
                   const uint8_t *why)
{
    uint32_t axes = x->in->axes;
    struct hits *hits = &x->before;
    if (is_held(x, low, high, rule, why))
        return 1;
    if (!find_hits(x, low, high, 0, rule, why, 1, hits) || !hits->n || juts_out(x, low, high, hits, s->point))
        return 0;
    begin(&s->dead, axes, low, high);
    for (size_t i = 0; i < hits->n && s->dead.count; i++)
        (void)subtract(&s->dead, axes, low_of(x, hits->v[i]), high_of(x, hits->v[i]));
    return !s->dead.count;
}

/* Whether the part of the boxes left that lies in this box is dead.  With no box: all of them. */
static int is_left_dead(struct index *x, struct scratch *s, const uint32_t *low, const uint32_t *high, uint32_t rule,
                        const uint8_t *why)
{
    uint32_t axes = x->in->axes;
    for (uint32_t i = 0; i < s->left.count; i++) {
        const uint32_t *one = s->left.box + (size_t)i * 2 * axes;
        if (low && !meet(axes, one, one + axes, low, high))
            continue;
        for (uint32_t a = 0; a < axes; a++) {
            s->part[a] = low && low[a] > one[a] ? low[a] : one[a];
            s->part[axes + a] = high && high[a] < one[axes + a] ? high[a] : one[axes + a];
        }
        if (!is_dead(x, s, s->part, s->part + axes, rule, why))
            return 0;
    }
    return 1;
}

/* Whether what stands behind a piece ends all its packets as it does, but for those that never come to it. */
static int ends_alike(struct index *x, struct scratch *s, uint32_t piece, const uint8_t *why)
{
    uint32_t axes = x->in->axes, action = x->in->action[piece], rule = x->in->rule[piece];
    const struct hits *hits = &x->behind;
    begin(&s->left, axes, low_of(x, piece), high_of(x, piece));
    if (action == REDUNDANT_ACTS)
        return is_left_dead(x, s, NULL, NULL, rule, why);
    /* Most are decided by what stands right behind them: all others are not even looked up. */
    uint32_t near = x->in->rules - rule > NEAR ? rule + NEAR : x->in->rules;
    x->behind.n = 0;
    for (uint32_t other = x->first[rule + 1]; other < x->first[near]; other++)
        if (!why[x->in->rule[other]]
            && meet(axes, low_of(x, piece), high_of(x, piece), low_of(x, other), high_of(x, other)))
            x->behind.v[x->behind.n++] = other;
    for (int far = 0; far < 2; far++) {
        for (size_t i = 0; i < hits->n && s->left.count; i++) {
            const uint32_t *low = low_of(x, hits->v[i]), *high = high_of(x, hits->v[i]);
            int alike = x->in->action[hits->v[i]] == action || x->in->broken[hits->v[i]];
            if (!alike && !is_left_dead(x, s, low, high, rule, why))
                return 0;
            if (!subtract(&s->left, axes, low, high))
                return 0;
        }
        if (!s->left.count || far)
            break;
        if (!find_hits(x, low_of(x, piece), high_of(x, piece), near, x->in->rules, why, 0, &x->behind))
            return 0;
        qsort(hits->v, hits->n, sizeof *hits->v, by_number);
    }
    return action == x->in->end || is_left_dead(x, s, NULL, NULL, rule, why);
}

/* Whether rules before this one end the way of all packets that it does anything to. */
static int never_acts(struct index *index, uint32_t readings, struct scratch *s, uint32_t rule, const uint8_t *why)
{
    for (uint32_t r = 0; r < readings; r++)
        for (uint32_t piece = index[r].first[rule]; piece < index[r].first[rule + 1]; piece++)
            if (!is_dead(&index[r], s, low_of(&index[r], piece), high_of(&index[r], piece), rule, why))
                return 0;
    return 1;
}

static int changes_nothing(struct index *index, uint32_t readings, struct scratch *s, uint32_t rule,
                           const uint8_t *why)
{
    for (uint32_t r = 0; r < readings; r++)
        for (uint32_t piece = index[r].first[rule]; piece < index[r].first[rule + 1]; piece++)
            if (!ends_alike(&index[r], s, piece, why))
                return 0;
    return 1;
}

static struct index *open_all(const struct redundant_reading *reading, uint32_t readings)
{
    struct index *index = calloc(readings + 1, sizeof *index);
    for (uint32_t r = 0; index && r < readings; r++)
        if (!index_open(&index[r], &reading[r])) {
            for (uint32_t i = 0; i <= r; i++)
                index_close(&index[i]);
            free(index);
            return NULL;
        }
    return index;
}

static void close_all(struct index *index, uint32_t readings)
{
    for (uint32_t r = 0; r < readings; r++)
        index_close(&index[r]);
    free(index);
}

enum redundant_status redundant_find(const struct redundant_reading *reading, uint32_t readings,
                                     const uint8_t *keep, uint8_t *why)
{
    uint32_t axes = 1, rules = reading->rules;
    for (uint32_t r = 0; r < readings; r++)
        axes = reading[r].axes > axes ? reading[r].axes : axes;
    size_t room = (MOST_LEFT + 2 * (size_t)axes) * 2 * axes;
    struct index *index = open_all(reading, readings);
    uint32_t *words = malloc((2 * room + 3 * axes) * sizeof *words);
    enum redundant_status status = index && words ? REDUNDANT_OK : REDUNDANT_NO_MEMORY;
    if (status == REDUNDANT_OK) {
        struct scratch s = {{words, 0}, {words + room, 0}, words + 2 * room, words + 2 * room + axes};
        memset(why, REDUNDANT_STAYS, rules);
        for (uint32_t rule = 0; rule < rules; rule++)
            if (!keep[rule] && never_acts(index, readings, &s, rule, why))
                why[rule] = REDUNDANT_NEVER;
        for (int pass = 0, found = 1; pass < PASSES && found; pass++) {
            found = 0;
            for (uint32_t rule = 0; rule < rules; rule++)
                if (!keep[rule] && !why[rule] && changes_nothing(index, readings, &s, rule, why))
                    why[rule] = REDUNDANT_NOTHING, found = 1;
        }
    }
    if (index)
        close_all(index, readings);
    free(words);
    return status;
}

/* ---- order ---- */

/* The highest phase that a piece leaves to its rule, or *least* when none is higher. */
static uint32_t phase_of(struct index *x, uint32_t piece, const uint8_t *group, const uint32_t *phase,
                         uint32_t least)
{
    uint32_t axes = x->in->axes, own = group[x->in->rule[piece]], action = x->in->action[piece];
    const uint32_t *low = low_of(x, piece), *high = high_of(x, piece);
    size_t n = 0;
    if (x->root != NOBODY && !x->in->broken[piece])
        x->stack[n++] = x->root;
    while (n) {
        const struct hull *hull = &x->hull[x->stack[--n]];
        const uint32_t *sides = x->sides + (size_t)(hull - x->hull) * 2 * axes;
        int64_t most = -1;
        for (uint32_t g = 0; g < GROUPS; g++)
            if (hull->phase[g] >= 0 && hull->phase[g] + (g > own) > most)
                most = hull->phase[g] + (g > own);
        if (most <= (int64_t)least || !meet(axes, low, high, sides, sides + axes))
            continue;
        if (hull->left != NOBODY) {
            x->stack[n++] = hull->left, x->stack[n++] = hull->right;
            continue;
        }
        for (uint32_t i = hull->first; i < hull->first + hull->count; i++) {
            uint32_t other = x->piece[i], rule = x->in->rule[other];
            if (phase[rule] == NOBODY || rule == x->in->rule[piece])
                continue;
            if (action == x->in->action[other] && action != REDUNDANT_ACTS)
                continue;
            uint32_t wanted = phase[rule] + (group[rule] > own);
            if (wanted > least && meet(axes, low, high, low_of(x, other), high_of(x, other)))
                least = wanted;
        }
    }
    return least;
}

static void note_phase(struct index *x, uint32_t rule, uint32_t group, uint32_t phase)
{
    for (uint32_t piece = x->first[rule]; piece < x->first[rule + 1]; piece++)
        for (uint32_t at = x->leaf[piece]; at != NOBODY && x->hull[at].phase[group] < (int64_t)phase;
             at = x->hull[at].above)
            x->hull[at].phase[group] = phase;
}

enum redundant_status redundant_phases(const struct redundant_reading *reading, uint32_t readings,
                                       const uint8_t *group, const uint8_t *why, uint32_t *phase)
{
    struct index *index = open_all(reading, readings);
    if (!index)
        return REDUNDANT_NO_MEMORY;
    uint32_t rules = reading->rules;
    for (uint32_t rule = 0; rule < rules; rule++)
        phase[rule] = NOBODY;
    for (uint32_t rule = 0; rule < rules; rule++) {
        if (why[rule])
            continue;
        uint32_t found = 0;
        for (uint32_t r = 0; r < readings; r++)
            for (uint32_t piece = index[r].first[rule]; piece < index[r].first[rule + 1]; piece++)
                found = phase_of(&index[r], piece, group, phase, found);
        phase[rule] = found;
        for (uint32_t r = 0; r < readings; r++)
            note_phase(&index[r], rule, group[rule], found);
    }
    close_all(index, readings);
    return REDUNDANT_OK;
}
