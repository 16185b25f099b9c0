/* The pieces of a reading in a hierarchy of hulls.
 *
 * Idea: pieces that leave the same axes open form one kind, as wide pieces would spoil the hulls of narrow
 * ones; each kind is halved repeatedly along the axis on which its pieces are narrowest.
 * Cost: O(n log n) sorts to build; a search visits the hulls that meet the box.
 * Invariant: a hull holds all pieces below it.
 * Threading: a search writes the index's stack and lists, so an index belongs to one thread.
 */
#include "piece_index.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"

enum {
    LEAF = 8,         /* pieces below one hull; 4 and 16 are as fast */
    MOST_HITS = 5000, /* pieces that are listed for one piece, */
    FEWEST_HITS = 250,
    WORK = 100000000  /* and for all of them: so 100,000 wide rules take half a minute */
};

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
    uint64_t *kind =
        arena_take(arena, (pieces + (size_t)1) * sizeof *kind); /* keys are scratch of raise_hulls */
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

bool piece_index_open(struct piece_index *x, struct arena *arena, const struct redundancy_reading *in)
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
    if (!x->hull || !x->sides || !x->piece || !x->leaf || !x->first || !x->stack || !x->before.v ||
        !x->behind.v)
        return false;
    uint32_t at = 0;
    for (uint32_t rule = 0; rule <= in->rules; rule++) {
        while (at < pieces && in->rule[at] < rule)
            at++;
        x->first[rule] = at;
    }
    return raise_all(x, arena);
}

bool piece_index_list(struct piece_index *x, const uint32_t *low, const uint32_t *high, uint32_t from,
                      uint32_t behind, const uint8_t *why, bool ending, struct piece_list *hits)
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
            if (rule < from || rule >= behind || why[rule] ||
                (ending && x->in->action[piece] == REDUNDANCY_ACTS) ||
                !meet(axes, low, high, low_of(x, piece), high_of(x, piece)))
                continue;
            if (hits->n == x->most_hits)
                return false;
            hits->v[hits->n++] = piece;
        }
    }
    return true;
}

bool piece_index_covers(struct piece_index *x, const uint32_t *low, const uint32_t *high, uint32_t rule,
                        const uint8_t *why)
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
            if (other < rule && !why[other] && x->in->action[piece] != REDUNDANCY_ACTS &&
                lies_in(axes, low, high, low_of(x, piece), high_of(x, piece)))
                return true;
        }
    }
    return false;
}
