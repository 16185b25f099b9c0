/* Rules of a list that can be removed, and rules that can be reordered, where only the end of a packet counts.
 *
 * Idea: subtract boxes.  A rule never acts if the rules before it that surely end leave nothing of its pieces.  It
 * changes nothing if the rules behind it end all that is left of its pieces as it does, and do nothing else to it
 * on the way.  Two rules may be exchanged unless some packet lies in a piece of both and the pieces end it
 * differently.  A packet that may always be dropped (its header is broken) may be dropped earlier, or instead.
 * Overlapping pieces are found in a hierarchy of hulls, one for each kind of piece: pieces that leave the same axes
 * open stand together, since wide pieces would spoil the hulls of narrow ones.
 * Cost: that of listing all pieces that overlap a rule's, and of the boxes left (at most MOST_LEFT).
 * Invariant: what is left of a piece is never underestimated, so giving up keeps a rule.
 * Memory: one arena per call.
 * Threading: one thread per call.
 */
#include "redundancy.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"

enum {
    LEAF = 8,        /* pieces below one hull; 4 and 16 are as fast */
    GROUPS = 4,
    MOST_LEFT = 512, /* boxes that may be left of one piece; with 64, a seventh of the removable rules is missed */
    MOST_HITS = 5000, /* pieces that are listed for one piece, */
    FEWEST_HITS = 250,
    WORK = 100000000, /* and for all of them: so 100,000 wide rules take half a minute */
    PASSES = 6,      /* a removed rule may have kept another in the list; mostly the third pass removes none */
    NEAR = 1000,     /* 300 and 3,000 are as fast */
    POINTS = 16,     /* of a box, tried before it is cut up */
};

struct hull {
    uint32_t first, count; /* its pieces, if it has no hulls below */
    uint32_t left, right, above;
    int64_t phase[GROUPS]; /* the highest of the rules below, by group; -1: of none */
};

struct piece_list {
    uint32_t *v;
    size_t n;
};

struct piece_index {
    const struct redundancy_reading *in;
    struct hull *hull;
    uint32_t *sides;       /* [hulls][2][axes] */
    uint32_t hulls, root;
    uint32_t *piece;       /* in the order of the leaves */
    uint32_t *leaf;        /* by piece */
    uint32_t *first;       /* by rule: its first piece; one entry more than rules */
    uint32_t *stack;
    struct piece_list before, behind; /* pieces that meet a box, of rules before and behind */
    size_t most_hits;
};

static const uint32_t NOWHERE = UINT32_MAX;

static const uint32_t *low_of(const struct piece_index *x, uint32_t piece)
{
    return x->in->low + (size_t)piece * x->in->axes;
}

static const uint32_t *high_of(const struct piece_index *x, uint32_t piece)
{
    return x->in->high + (size_t)piece * x->in->axes;
}

static bool meet(uint32_t axes, const uint32_t *low, const uint32_t *high, const uint32_t *other_low,
                const uint32_t *other_high)
{
    for (uint32_t a = 0; a < axes; a++)
        if (low[a] > other_high[a] || other_low[a] > high[a])
            return false;
    return true;
}

static bool lies_in(uint32_t axes, const uint32_t *low, const uint32_t *high, const uint32_t *other_low,
                   const uint32_t *other_high)
{
    for (uint32_t a = 0; a < axes; a++)
        if (low[a] < other_low[a] || high[a] > other_high[a])
            return false;
    return true;
}

/* ---- the hierarchy ---- */

struct sort_key {
    uint64_t at;
    uint32_t piece;
};

static int by_key(const void *a, const void *b)
{
    const struct sort_key *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->piece < y->piece ? -1 : x->piece > y->piece;
}

static uint32_t new_hull(struct piece_index *x, uint32_t first, uint32_t count)
{
    uint32_t hull = x->hulls++, axes = x->in->axes;
    x->hull[hull] = (struct hull){first, count, NOWHERE, NOWHERE, NOWHERE, {-1, -1, -1, -1}};
    uint32_t *low = x->sides + (size_t)hull * 2 * axes, *high = low + axes;
    for (uint32_t i = first; i < first + count; i++) {
        const uint32_t *l = low_of(x, x->piece[i]), *h = high_of(x, x->piece[i]);
        for (uint32_t a = 0; a < axes; a++) {
            low[a] = i == first || l[a] < low[a] ? l[a] : low[a];
            high[a] = i == first || h[a] > high[a] ? h[a] : high[a];
        }
    }
    return hull;
}

/* The axis on which the pieces are narrowest, compared with their hull. */
static uint32_t best_axis(const struct piece_index *x, uint32_t hull)
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
static uint32_t raise_hulls(struct piece_index *x, uint32_t first, uint32_t count, struct sort_key *keys)
{
    uint32_t hull = new_hull(x, first, count);
    if (count <= LEAF) {
        for (uint32_t i = first; i < first + count; i++)
            x->leaf[x->piece[i]] = hull;
        return hull;
    }
    uint32_t axis = best_axis(x, hull);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t piece = x->piece[first + i];
        keys[i] = (struct sort_key){(uint64_t)low_of(x, piece)[axis] + high_of(x, piece)[axis], piece};
    }
    qsort(keys, count, sizeof *keys, by_key);
    for (uint32_t i = 0; i < count; i++)
        x->piece[first + i] = keys[i].piece;
    uint32_t left = raise_hulls(x, first, count / 2, keys);
    uint32_t right = raise_hulls(x, first + count / 2, count - count / 2, keys);
    x->hull[hull].left = left, x->hull[hull].right = right;
    x->hull[left].above = x->hull[right].above = hull;
    return hull;
}

/* Join the hulls of all kinds of pieces, two by two. */
static uint32_t join(struct piece_index *x, uint32_t *roots, uint32_t count)
{
    if (count == 1)
        return roots[0];
    uint32_t left = join(x, roots, count / 2), right = join(x, roots + count / 2, count - count / 2);
    uint32_t axes = x->in->axes, hull = new_hull(x, 0, 0);
    uint32_t *low = x->sides + (size_t)hull * 2 * axes, *high = low + axes;
    const uint32_t *l = x->sides + (size_t)left * 2 * axes, *r = x->sides + (size_t)right * 2 * axes;
    for (uint32_t a = 0; a < axes; a++) {
        low[a] = l[a] < r[a] ? l[a] : r[a];
        high[a] = l[axes + a] > r[axes + a] ? l[axes + a] : r[axes + a];
    }
    x->hull[hull].left = left, x->hull[hull].right = right;
    x->hull[left].above = x->hull[right].above = hull;
    return hull;
}

/* A bit for each axis that the piece leaves open, of the first 64. */
static uint64_t open_axes(const struct piece_index *x, uint32_t piece)
{
    uint64_t open = 0;
    for (uint32_t a = 0; a < x->in->axes && a < 64; a++)
        open |= (uint64_t)(!low_of(x, piece)[a] && high_of(x, piece)[a] == x->in->tops[a]) << a;
    return open;
}

/* Raise hulls over the pieces of each kind (those that leave the same axes open), and join them. */
static bool raise_all(struct piece_index *x, struct arena *arena)
{
    uint32_t pieces = x->in->pieces, kinds = 0;
    struct sort_key *keys = arena_take(arena, (pieces + (size_t)1) * sizeof *keys);
    uint64_t *kind = arena_take(arena, (pieces + (size_t)1) * sizeof *kind); /* keys are scratch of raise_hulls */
    uint32_t *roots = arena_take(arena, (pieces + (size_t)1) * sizeof *roots);
    if (!keys || !kind || !roots)
        return false;
    for (uint32_t piece = 0; piece < pieces; piece++)
        keys[piece] = (struct sort_key){open_axes(x, piece), piece};
    qsort(keys, pieces, sizeof *keys, by_key);
    for (uint32_t i = 0; i < pieces; i++) {
        x->piece[i] = keys[i].piece;
        kind[i] = keys[i].at;
    }
    for (uint32_t i = 0, behind; i < pieces; i = behind) {
        for (behind = i + 1; behind < pieces && kind[behind] == kind[i];)
            behind++;
        roots[kinds++] = raise_hulls(x, i, behind - i, keys);
    }
    if (kinds)
        x->root = join(x, roots, kinds);
    return true;
}

/* The index of a reading; its memory is the arena's.  False when that is exhausted. */
static bool index_open(struct piece_index *x, struct arena *arena, const struct redundancy_reading *in)
{
    size_t pieces = in->pieces, hulls = 2 * pieces + 2, axes = in->axes ? in->axes : 1;
    *x = (struct piece_index){.in = in, .root = NOWHERE, .most_hits = WORK / (pieces + 1)};
    if (x->most_hits > MOST_HITS)
        x->most_hits = MOST_HITS;
    if (x->most_hits < FEWEST_HITS)
        x->most_hits = FEWEST_HITS;
    x->hull = arena_take(arena, hulls * sizeof *x->hull);
    x->sides = arena_take(arena, hulls * 2 * axes * sizeof *x->sides);
    x->piece = arena_take(arena, (pieces + 1) * sizeof *x->piece);
    x->leaf = arena_take(arena, (pieces + 1) * sizeof *x->leaf);
    x->first = arena_take(arena, ((size_t)in->rules + 1) * sizeof *x->first);
    x->stack = arena_take(arena, hulls * sizeof *x->stack);
    x->before.v = arena_take(arena, MOST_HITS * sizeof *x->before.v);
    x->behind.v = arena_take(arena, (pieces + MOST_HITS) * sizeof *x->behind.v);
    if (!x->hull || !x->sides || !x->piece || !x->leaf || !x->first || !x->stack || !x->before.v || !x->behind.v)
        return false;
    uint32_t at = 0;
    for (uint32_t rule = 0; rule <= in->rules; rule++) {
        while (at < pieces && in->rule[at] < rule)
            at++;
        x->first[rule] = at;
    }
    return raise_all(x, arena);
}

/* List the pieces of rules from..behind-1 that meet the box and whose rules stay, in no order; those
 * that end, if only they are wanted.  0 when there are too many. */
static bool find_hits(struct piece_index *x, const uint32_t *low, const uint32_t *high, uint32_t from, uint32_t behind,
                     const uint8_t *why, bool ending, struct piece_list *hits)
{
    uint32_t axes = x->in->axes;
    size_t n = 0;
    hits->n = 0;
    if (x->root != NOWHERE)
        x->stack[n++] = x->root;
    while (n) {
        const struct hull *hull = &x->hull[x->stack[--n]];
        const uint32_t *sides = x->sides + (size_t)(hull - x->hull) * 2 * axes;
        if (!meet(axes, low, high, sides, sides + axes))
            continue;
        if (hull->left != NOWHERE) {
            x->stack[n++] = hull->left, x->stack[n++] = hull->right;
            continue;
        }
        for (uint32_t i = hull->first; i < hull->first + hull->count; i++) {
            uint32_t piece = x->piece[i], rule = x->in->rule[piece];
            if (rule < from || rule >= behind || why[rule] || (ending && x->in->action[piece] == REDUNDANCY_ACTS)
                || !meet(axes, low, high, low_of(x, piece), high_of(x, piece)))
                continue;
            if (hits->n == x->most_hits)
                return false;
            hits->v[hits->n++] = piece;
        }
    }
    return true;
}

/* Whether one piece of a rule before *rule* ends all packets of the box. */
static bool is_covered(struct piece_index *x, const uint32_t *low, const uint32_t *high, uint32_t rule, const uint8_t *why)
{
    uint32_t axes = x->in->axes;
    size_t n = 0;
    if (x->root != NOWHERE)
        x->stack[n++] = x->root;
    while (n) {
        const struct hull *hull = &x->hull[x->stack[--n]];
        const uint32_t *sides = x->sides + (size_t)(hull - x->hull) * 2 * axes;
        if (!lies_in(axes, low, high, sides, sides + axes))
            continue;
        if (hull->left != NOWHERE) {
            x->stack[n++] = hull->left, x->stack[n++] = hull->right;
            continue;
        }
        for (uint32_t i = hull->first; i < hull->first + hull->count; i++) {
            uint32_t piece = x->piece[i], other = x->in->rule[piece];
            if (other < rule && !why[other] && x->in->action[piece] != REDUNDANCY_ACTS
                && lies_in(axes, low, high, low_of(x, piece), high_of(x, piece)))
                return true;
        }
    }
    return false;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* ---- what is left of a piece ---- */

struct boxes_left {
    uint32_t *box;  /* [MOST_LEFT + 2 * axes][2][axes] */
    uint32_t count;
};

struct scratch {
    struct boxes_left left, dead;
    uint32_t *point, *part; /* [axes], [2][axes] */
};

static void begin(struct boxes_left *left, uint32_t axes, const uint32_t *low, const uint32_t *high)
{
    memcpy(left->box, low, axes * sizeof *low);
    memcpy(left->box + axes, high, axes * sizeof *high);
    left->count = 1;
}

/* Subtract a box.  False: too many boxes would be left; then nothing is subtracted. */
static bool subtract(struct boxes_left *left, uint32_t axes, const uint32_t *low, const uint32_t *high)
{
    size_t size = 2 * (size_t)axes;
    for (uint32_t i = 0; i < left->count;) {
        uint32_t *one = left->box + i * size;
        if (!meet(axes, one, one + axes, low, high)) {
            i++;
            continue;
        }
        if (!lies_in(axes, one, one + axes, low, high) && left->count >= MOST_LEFT)
            return false;
        /* The part beyond the box on each side becomes a box of its own; the rest is dropped. */
        for (uint32_t a = 0; a < axes; a++) {
            if (one[a] < low[a]) {
                uint32_t *part = left->box + left->count++ * size;
                memcpy(part, one, size * sizeof *part);
                part[axes + a] = low[a] - 1;
                one[a] = low[a];
            }
            if (one[axes + a] > high[a]) {
                uint32_t *part = left->box + left->count++ * size;
                memcpy(part, one, size * sizeof *part);
                part[a] = high[a] + 1;
                one[axes + a] = high[a];
            }
        }
        memmove(one, left->box + --left->count * size, size * sizeof *one);
    }
    return true;
}

/* Whether some point of the box lies in none of the pieces; POINTS are tried. */
static bool juts_out(const struct piece_index *x, const uint32_t *low, const uint32_t *high, const struct piece_list *hits,
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
            return true;
    }
    return false;
}

/* Whether rules before *rule* surely end all packets of the box. */
static bool is_dead(struct piece_index *x, struct scratch *s, const uint32_t *low, const uint32_t *high, uint32_t rule,
                   const uint8_t *why)
{
    uint32_t axes = x->in->axes;
    struct piece_list *hits = &x->before;
    if (is_covered(x, low, high, rule, why))
        return true;
    if (!find_hits(x, low, high, 0, rule, why, true, hits) || !hits->n || juts_out(x, low, high, hits, s->point))
        return false;
    begin(&s->dead, axes, low, high);
    for (size_t i = 0; i < hits->n && s->dead.count; i++)
        (void)subtract(&s->dead, axes, low_of(x, hits->v[i]), high_of(x, hits->v[i]));
    return !s->dead.count;
}

/* Whether rules before *rule* end all packets of the boxes left, within low..high (NULL: everywhere). */
static bool is_left_dead(struct piece_index *x, struct scratch *s, const uint32_t *low, const uint32_t *high, uint32_t rule,
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
            return false;
    }
    return true;
}

/* Whether the rules behind a piece end all packets that reach it as it does. */
static bool ends_alike(struct piece_index *x, struct scratch *s, uint32_t piece, const uint8_t *why)
{
    uint32_t axes = x->in->axes, action = x->in->action[piece], rule = x->in->rule[piece];
    const struct piece_list *hits = &x->behind;
    begin(&s->left, axes, low_of(x, piece), high_of(x, piece));
    if (action == REDUNDANCY_ACTS)
        return is_left_dead(x, s, NULL, NULL, rule, why);
    /* Mostly the rules right behind decide, so that the others need not be listed. */
    uint32_t near = x->in->rules - rule > NEAR ? rule + NEAR : x->in->rules;
    x->behind.n = 0;
    for (uint32_t other = x->first[rule + 1]; other < x->first[near]; other++)
        if (!why[x->in->rule[other]]
            && meet(axes, low_of(x, piece), high_of(x, piece), low_of(x, other), high_of(x, other)))
            x->behind.v[x->behind.n++] = other;
    for (int far = 0; far < 2; far++) {
        for (size_t i = 0; i < hits->n && s->left.count; i++) {
            const uint32_t *low = low_of(x, hits->v[i]), *high = high_of(x, hits->v[i]);
            bool alike = x->in->action[hits->v[i]] == action || x->in->broken[hits->v[i]];
            if (!alike && !is_left_dead(x, s, low, high, rule, why))
                return false;
            if (!subtract(&s->left, axes, low, high))
                return false;
        }
        if (!s->left.count || far)
            break;
        if (!find_hits(x, low_of(x, piece), high_of(x, piece), near, x->in->rules, why, false, &x->behind))
            return false;
        qsort(hits->v, hits->n, sizeof *hits->v, by_number);
    }
    return action == x->in->end || is_left_dead(x, s, NULL, NULL, rule, why);
}

/* Whether rules before this one end all packets that it acts on. */
static bool never_acts(struct piece_index *index, uint32_t readings, struct scratch *s, uint32_t rule, const uint8_t *why)
{
    for (uint32_t r = 0; r < readings; r++)
        for (uint32_t piece = index[r].first[rule]; piece < index[r].first[rule + 1]; piece++)
            if (!is_dead(&index[r], s, low_of(&index[r], piece), high_of(&index[r], piece), rule, why))
                return false;
    return true;
}

static bool changes_nothing(struct piece_index *index, uint32_t readings, struct scratch *s, uint32_t rule,
                           const uint8_t *why)
{
    for (uint32_t r = 0; r < readings; r++)
        for (uint32_t piece = index[r].first[rule]; piece < index[r].first[rule + 1]; piece++)
            if (!ends_alike(&index[r], s, piece, why))
                return false;
    return true;
}

/* The indices of all readings; NULL when memory is exhausted. */
static struct piece_index *open_all(struct arena *arena, const struct redundancy_reading *reading, uint32_t readings)
{
    struct piece_index *index = arena ? arena_take(arena, (readings + (size_t)1) * sizeof *index) : NULL;
    for (uint32_t r = 0; index && r < readings; r++)
        if (!index_open(&index[r], arena, &reading[r]))
            return NULL;
    return index;
}

/* Room for the boxes left of pieces; false when memory is exhausted. */
static bool scratch_open(struct scratch *s, struct arena *arena, uint32_t axes)
{
    size_t room = (MOST_LEFT + 2 * (size_t)axes) * 2 * axes;
    s->left.box = arena_take(arena, room * sizeof *s->left.box);
    s->dead.box = arena_take(arena, room * sizeof *s->dead.box);
    s->point = arena_take(arena, axes * sizeof *s->point);
    s->part = arena_take(arena, 2 * (size_t)axes * sizeof *s->part);
    return s->left.box && s->dead.box && s->point && s->part;
}

enum redundancy_status redundancy_find(const struct redundancy_reading *reading, uint32_t readings,
                                       const uint8_t *keep, uint8_t *why)
{
    uint32_t axes = 1, rules = reading->rules;
    for (uint32_t r = 0; r < readings; r++)
        axes = reading[r].axes > axes ? reading[r].axes : axes;
    struct arena *arena = arena_new(0);
    struct piece_index *index = open_all(arena, reading, readings);
    struct scratch s = {0};
    if (!index || !scratch_open(&s, arena, axes)) {
        arena_free(arena);
        return REDUNDANCY_NO_MEMORY;
    }
    memset(why, REDUNDANCY_STAYS, rules);
    for (uint32_t rule = 0; rule < rules; rule++)
        if (!keep[rule] && never_acts(index, readings, &s, rule, why))
            why[rule] = REDUNDANCY_NEVER;
    bool removed = true;
    for (int pass = 0; pass < PASSES && removed; pass++) {
        removed = false;
        for (uint32_t rule = 0; rule < rules; rule++)
            if (!keep[rule] && !why[rule] && changes_nothing(index, readings, &s, rule, why)) {
                why[rule] = REDUNDANCY_NOTHING;
                removed = true;
            }
    }
    arena_free(arena);
    return REDUNDANCY_OK;
}

/* ---- order ---- */

/* The lowest phase in which the piece's rule may be, but at least *least*. */
static uint32_t phase_of(struct piece_index *x, uint32_t piece, const uint8_t *group, const uint32_t *phase,
                         uint32_t least)
{
    uint32_t axes = x->in->axes, own = group[x->in->rule[piece]], action = x->in->action[piece];
    const uint32_t *low = low_of(x, piece), *high = high_of(x, piece);
    size_t n = 0;
    if (x->root != NOWHERE && !x->in->broken[piece])
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
        if (hull->left != NOWHERE) {
            x->stack[n++] = hull->left, x->stack[n++] = hull->right;
            continue;
        }
        for (uint32_t i = hull->first; i < hull->first + hull->count; i++) {
            uint32_t other = x->piece[i], rule = x->in->rule[other];
            if (phase[rule] == NOWHERE || rule == x->in->rule[piece])
                continue;
            if (action == x->in->action[other] && action != REDUNDANCY_ACTS)
                continue;
            uint32_t wanted = phase[rule] + (group[rule] > own);
            if (wanted > least && meet(axes, low, high, low_of(x, other), high_of(x, other)))
                least = wanted;
        }
    }
    return least;
}

static void note_phase(struct piece_index *x, uint32_t rule, uint32_t group, uint32_t phase)
{
    for (uint32_t piece = x->first[rule]; piece < x->first[rule + 1]; piece++)
        for (uint32_t at = x->leaf[piece]; at != NOWHERE && x->hull[at].phase[group] < (int64_t)phase;
             at = x->hull[at].above)
            x->hull[at].phase[group] = phase;
}

enum redundancy_status redundancy_phases(const struct redundancy_reading *reading, uint32_t readings,
                                       const uint8_t *group, const uint8_t *why, uint32_t *phase)
{
    struct arena *arena = arena_new(0);
    struct piece_index *index = open_all(arena, reading, readings);
    if (!index) {
        arena_free(arena);
        return REDUNDANCY_NO_MEMORY;
    }
    uint32_t rules = reading->rules;
    for (uint32_t rule = 0; rule < rules; rule++)
        phase[rule] = NOWHERE;
    for (uint32_t rule = 0; rule < rules; rule++) {
        if (why[rule])
            continue;
        uint32_t earliest = 0;
        for (uint32_t r = 0; r < readings; r++)
            for (uint32_t piece = index[r].first[rule]; piece < index[r].first[rule + 1]; piece++)
                earliest = phase_of(&index[r], piece, group, phase, earliest);
        phase[rule] = earliest;
        for (uint32_t r = 0; r < readings; r++)
            note_phase(&index[r], rule, group[rule], earliest);
    }
    arena_free(arena);
    return REDUNDANCY_OK;
}
