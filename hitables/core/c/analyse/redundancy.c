/* Rules of a list that can be removed, and rules that can be reordered, where only the end of a packet
 * counts.
 *
 * Idea: subtract boxes.  A rule never acts if the rules before it that surely end leave nothing of its
 * pieces.  It changes nothing if the rules behind it end all that is left of its pieces as it does, and do
 * nothing else to it on the way.  Two rules may be exchanged unless some packet lies in a piece of both and
 * the pieces end it differently.  A packet that may always be dropped (its header is broken) may be dropped
 * earlier, or instead.  Overlapping pieces are found by piece_index.h.
 * Cost: that of listing all pieces that overlap a rule's, and of the boxes left (at most MOST_LEFT).
 * Invariant: what is left of a piece is never underestimated, so giving up keeps a rule.
 * Memory: one arena per call.
 * Threading: one thread per call.
 */
#include "redundancy.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "piece_index.h"

enum {
    MOST_LEFT =
        512, /* boxes that may be left of one piece; with 64, a seventh of the removable rules is missed */
    PASSES = 6, /* a removed rule may have kept another in the list; mostly the third pass removes none */
    NEAR = 1000, /* rules looked at first; 300 and 3,000 are as fast */
    POINTS = 16 /* of a box, tried before it is cut up */
};

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* ---- what is left of a piece ---- */

struct boxes_left {
    uint32_t *box; /* [MOST_LEFT + 2 * axes][2][axes] */
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

/* Subtract a box.  False: too many boxes would be left; then it is subtracted from some of them, which may be
 * cut into more, and from the others not. */
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
static bool juts_out(const struct piece_index *x, const uint32_t *low, const uint32_t *high,
                     const struct piece_list *hits, uint32_t *point)
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
static bool is_dead(struct piece_index *x, struct scratch *s, const uint32_t *low, const uint32_t *high,
                    uint32_t rule, const uint8_t *why)
{
    uint32_t axes = x->in->axes;
    struct piece_list *hits = &x->before;
    if (piece_index_covers(x, low, high, rule, why))
        return true;
    if (!piece_index_list(x, low, high, 0, rule, why, true, hits) || !hits->n ||
        juts_out(x, low, high, hits, s->point))
        return false;
    begin(&s->dead, axes, low, high);
    for (size_t i = 0; i < hits->n && s->dead.count; i++)
        (void)subtract(&s->dead, axes, low_of(x, hits->v[i]), high_of(x, hits->v[i]));
    return !s->dead.count;
}

/* Whether rules before *rule* end all packets of the boxes left, within low..high (NULL: everywhere). */
static bool is_left_dead(struct piece_index *x, struct scratch *s, const uint32_t *low, const uint32_t *high,
                         uint32_t rule, const uint8_t *why)
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
        if (!why[x->in->rule[other]] &&
            meet(axes, low_of(x, piece), high_of(x, piece), low_of(x, other), high_of(x, other)))
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
        if (!piece_index_list(x, low_of(x, piece), high_of(x, piece), near, x->in->rules, why, false,
                              &x->behind))
            return false;
        qsort(hits->v, hits->n, sizeof *hits->v, by_number);
    }
    return action == x->in->end || is_left_dead(x, s, NULL, NULL, rule, why);
}

/* Whether rules before this one end all packets that it acts on. */
static bool never_acts(struct piece_index *index, uint32_t readings, struct scratch *s, uint32_t rule,
                       const uint8_t *why)
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
static struct piece_index *open_all(struct arena *arena, const struct redundancy_reading *reading,
                                    uint32_t readings)
{
    struct piece_index *index = arena ? arena_take(arena, (readings + (size_t)1) * sizeof *index) : NULL;
    for (uint32_t r = 0; index && r < readings; r++)
        if (!piece_index_open(&index[r], arena, &reading[r]))
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
        for (uint32_t g = 0; g < PIECE_GROUPS; g++)
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
