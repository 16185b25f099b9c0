/* Where a run that is to find one difference looks first.
 *
 * Idea: one rule was altered in one of two programs that are the same.  Most of what keeps packets from it,
 * or decides them alike behind it, are thousands of rules that each decide a few packets; cut by cut, each of
 * them would be gone through.  A difference is found sooner among the packets that the fewest of them decide:
 * field by field, the values that most of them do not have.  If there is no difference, few rules decide all
 * packets, mostly those with the widest tests.
 * Cost: of aiming, the items and the coordinates of the fields that they test, a few times.
 * Invariant: of widest, none: each cut is a right one.  An aimed run proves nothing of other packets.
 * Memory: the scratch stack.
 * Threading: as the prover's (prover.c).
 */
#include "prove_internal.h"

#include <string.h>

enum { FEW_PAIRS = 16, MOST_DIMS = 12, MOST_ENTERED = 8 };

/* ---- the widest item ---- */

static double size_of(const uint32_t *ends, size_t n, uint32_t low, uint32_t high)
{
    double size = 0;
    for (size_t i = 0; i < n && i < FEW_PAIRS; i++) {
        uint32_t from = ends[2 * i] > low ? ends[2 * i] : low, to = ends[2 * i + 1];
        to = to < high ? to : high;
        size += from <= to ? (double)(to - from) + 1 : 0;
    }
    return size;
}

/* About which share of the region the test holds for. */
static double share_of(const struct residual *r, uint32_t test)
{
    const struct set *set = r->region[r->in.test_dim[test]];
    const uint32_t *ends = r->in.set_ends + 2 * (size_t)r->in.test_start[test];
    uint32_t low = set->ends[0], high = set->ends[2 * (size_t)set->n - 1];
    double whole = set->n <= FEW_PAIRS ? size_of(set->ends, set->n, low, high) : (double)(high - low) + 1;
    double own = size_of(ends, r->in.test_start[test + 1] - r->in.test_start[test], low, high);
    return own < whole ? own / whole : 1;
}

/* The share of the region for which all open tests hold, and the narrowest of them; 0: one is not known. */
static double open_share(const struct residual *r, const struct residual_item *item, uint32_t blocked,
                         uint32_t *narrowest)
{
    const struct guarded_action *guarded = &r->guarded[item->guarded];
    double all = 1, least = 2;
    for (uint64_t left = item->open; left; left &= left - 1) {
        uint32_t test = r->tests[guarded->first + (uint32_t)__builtin_ctzll(left)];
        if (test & EITHER || r->in.dim_states[r->in.test_dim[test]] & blocked)
            return 0;
        double share = share_of(r, test);
        all *= share;
        if (share < least)
            least = share, *narrowest = test;
    }
    return all;
}

uint32_t prover_widest(const struct prover *p, const struct residual_list *list, size_t at, uint32_t test)
{
    const struct residual *r = &p->r;
    uint32_t found = test, blocked = 0, narrowest = NONE;
    double widest = test == NONE ? 0 : share_of(r, test);
    for (size_t i = 0; i < at; i++) {
        const struct residual_item *item = &list->v[i];
        if (item->guarded == NONE)
            continue;
        const struct guarded_action *guarded = &r->guarded[item->guarded];
        double share = item->open && surely_ends(r, guarded) ? open_share(r, item, blocked, &narrowest) : 0;
        if (share > widest)
            widest = share, found = narrowest;
        blocked |= guarded->writes;
    }
    return found;
}

/* ---- aiming ---- */

/* The items that decide packets before, or as, the lists do where they differ. */
struct hindrances {
    const struct residual_item **v;
    size_t n;
    uint32_t blocked; /* mask of the states that may be written: tests of them are not looked at */
};

/* Whether the test tells coordinates of the dimension apart that the region has. */
static bool is_open(const struct residual *r, const struct hindrances *all, uint32_t test, uint32_t dim)
{
    if (test & EITHER || r->in.test_dim[test] != dim || r->in.dim_states[dim] & all->blocked)
        return false;
    return residual_relation(r, test, r->region[dim]) == REL_PART;
}

/* The dimensions that the items test, at most MOST_DIMS; their number. */
static uint32_t tested_dims(const struct residual *r, const struct hindrances *all, uint32_t *dims)
{
    uint32_t n = 0;
    for (size_t i = 0; i < all->n; i++) {
        const struct guarded_action *guarded = &r->guarded[all->v[i]->guarded];
        for (uint64_t left = all->v[i]->open; left; left &= left - 1) {
            uint32_t test = r->tests[guarded->first + (uint32_t)__builtin_ctzll(left)], d = 0;
            if (test & EITHER || r->in.dim_states[r->in.test_dim[test]] & all->blocked)
                continue;
            while (d < n && dims[d] != r->in.test_dim[test])
                d++;
            if (d == n && n < MOST_DIMS)
                dims[n++] = r->in.test_dim[test];
        }
    }
    return n;
}

/* A stretch of coordinates of a dimension, and how many items it leaves. */
struct stretch {
    uint32_t dim, low, high;
    int64_t left;
};

/* The widest stretch of the dimension that leaves the fewest items; *change: scratch for its coordinates. */
static struct stretch best_stretch(const struct residual *r, const struct hindrances *all, uint32_t dim,
                                   int32_t *change)
{
    int64_t others = 0;
    memset(change, 0, ((size_t)r->in.dim_size[dim] + 1) * sizeof *change);
    for (size_t i = 0; i < all->n; i++) {
        const struct guarded_action *guarded = &r->guarded[all->v[i]->guarded];
        bool tested = false;
        for (uint32_t t = 0; t < guarded->n && !tested; t++) {
            uint32_t test = r->tests[guarded->first + t];
            if (!is_open(r, all, test, dim))
                continue;
            tested = true;
            for (uint32_t s = r->in.test_start[test]; s < r->in.test_start[test + 1]; s++)
                change[r->in.set_ends[2 * (size_t)s]]++, change[r->in.set_ends[2 * (size_t)s + 1] + 1]--;
        }
        others += !tested;
    }
    const struct set *set = r->region[dim];
    struct stretch best = {dim, 0, 0, INT64_MAX};
    int64_t now = 0;
    uint32_t at = 0;
    for (uint32_t s = 0; s < set->n; s++) {
        for (; at < set->ends[2 * (size_t)s]; at++)
            now += change[at];
        uint32_t low = at;
        for (; at <= set->ends[2 * (size_t)s + 1]; at++) {
            if (change[at])
                low = at;
            now += change[at];
            bool wider = now == best.left && at - low > best.high - best.low;
            if (now < best.left || wider || (now == best.left && low == best.low))
                best = (struct stretch){dim, low, at, now};
        }
    }
    best.left += others;
    return best;
}

/* Narrow the region to the stretch; false when memory is exhausted. */
static bool narrow(struct prover *p, struct hindrances *all, struct stretch stretch)
{
    struct residual *r = &p->r;
    struct set *set = residual_push(r, sizeof *set + 2 * sizeof *set->ends);
    if (!set)
        return false;
    set->n = 1, set->ends[0] = stretch.low, set->ends[1] = stretch.high;
    if (!prover_set_region(p, stretch.dim, set))
        return false;
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++) {
        const struct guarded_action *guarded = &r->guarded[all->v[i]->guarded];
        bool fails = false;
        for (uint32_t t = 0; t < guarded->n && !fails; t++) {
            uint32_t test = r->tests[guarded->first + t];
            fails = !(test & EITHER) && r->in.test_dim[test] == stretch.dim &&
                    !(r->in.dim_states[stretch.dim] & all->blocked) &&
                     residual_relation(r, test, set) == REL_OUT;
        }
        if (!fails)
            all->v[n++] = all->v[i];
    }
    all->n = n;
    return true;
}

/* Narrow the region, dimension by dimension, to where few of the items are. */
static bool narrow_all(struct prover *p, struct hindrances *all)
{
    struct residual *r = &p->r;
    uint32_t dims[MOST_DIMS], largest = 0;
    uint32_t n = tested_dims(r, all, dims);
    for (uint32_t d = 0; d < n; d++)
        largest = r->in.dim_size[dims[d]] > largest ? r->in.dim_size[dims[d]] : largest;
    int32_t *change = residual_push(r, ((size_t)largest + 2) * sizeof *change);
    if (!change)
        return false;
    while (n && all->n) {
        struct stretch best = {.left = INT64_MAX};
        uint32_t chosen = 0;
        for (uint32_t d = 0; d < n; d++) {
            struct stretch stretch = best_stretch(r, all, dims[d], change);
            if (stretch.left < best.left)
                best = stretch, chosen = d;
        }
        if (best.left >= (int64_t)all->n)
            break;
        if (!narrow(p, all, best))
            return false;
        dims[chosen] = dims[--n];
    }
    return true;
}

static void add_item(const struct residual *r, struct hindrances *all, const struct residual_item *item)
{
    if (item->guarded == NONE)
        return;
    const struct guarded_action *guarded = &r->guarded[item->guarded];
    if (guarded->kind != ACTION_EFFECT && item->open)
        all->v[all->n++] = item;
    all->blocked |= guarded->writes;
}

/* What keeps packets from the place at which the lists differ; and, if one decides there, what decides alike
 * in the other. */
static bool find_hindrances(struct prover *p, const struct residual_list *a, const struct mismatch *x,
                            const struct residual_list *b, const struct mismatch *y, struct hindrances *all)
{
    const struct residual *r = &p->r;
    all->v = residual_push(&p->r, (x->at + a->n + b->n + 1) * sizeof(const struct residual_item *));
    if (!all->v)
        return false;
    for (size_t i = 0; i < x->at; i++)
        add_item(r, all, &a->v[i]);
    for (int side = 0; side < 2; side++) {
        const struct residual_list *decided = side ? b : a, *other = side ? a : b;
        size_t at = side ? y->at : x->at, behind = side ? x->at : y->at;
        const struct guarded_action *guarded = prover_at(p, decided, at);
        if (guarded && (decided->v[at].open || guarded->kind != ACTION_VERDICT))
            continue;
        uint32_t verdict = guarded ? guarded->arg : decided->end;
        for (size_t i = behind; i < other->n; i++) {
            const struct guarded_action *then = prover_at(p, other, i);
            if (other->v[i].guarded != NONE && then->kind == ACTION_VERDICT && then->arg == verdict)
                add_item(r, all, &other->v[i]);
        }
        break;
    }
    return true;
}

/* Inline, in both lists, what all packets enter before the place at which they differ; false: they do not. */
static bool enter_all(struct prover *p, struct residual_list *a, struct mismatch *x, struct residual_list *b,
                      struct mismatch *y, residual_paired *paired)
{
    for (int entered = 0;; entered++) {
        if (p->r.failed || residual_same(&p->r, a, b, x, y, paired, p))
            return false;
        size_t at = 0;
        while (at < x->at && at < y->at && !(a->v[at].guarded != NONE && prover_enters(p, a, at) &&
                                             b->v[at].guarded != NONE && prover_enters(p, b, at)))
            at++;
        if (at == x->at || at == y->at || entered == MOST_ENTERED)
            return true;
        *a = residual_expand(&p->r, a, at);
        *b = residual_expand(&p->r, b, at);
    }
}

enum prove_status prover_aim(struct prover *p, const struct residual_list *first,
                             const struct residual_list *second, residual_paired *paired)
{
    size_t top = p->r.top, log_n = p->log_n;
    uint64_t items_end = p->items_end;
    struct residual_list a = prover_copy(p, first, NONE), b = prover_copy(p, second, NONE);
    struct mismatch x, y;
    struct hindrances all = {0};
    enum prove_status status = PROVE_EQUAL;
    if (enter_all(p, &a, &x, &b, &y, paired) && find_hindrances(p, &a, &x, &b, &y, &all) &&
        narrow_all(p, &all)) {
        struct residual_list aimed_a = prover_copy(p, &a, ALL_DIMS), aimed_b = prover_copy(p, &b, ALL_DIMS);
        uint64_t most = p->items + (p->items - p->began) / 2;
        if (!items_end || most < items_end)
            p->items_end = most;
        if (!p->r.failed)
            status = prove(p, aimed_a, aimed_b, 0, 1);
        p->items_end = items_end;
    }
    prover_put_back(p, log_n);
    p->r.top = top;
    if (p->r.failed)
        return PROVE_NO_MEMORY;
    return status == PROVE_TOO_DEEP || status == PROVE_PAIRS ? PROVE_EQUAL : status;
}
