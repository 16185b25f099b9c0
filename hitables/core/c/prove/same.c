/* Comparison of two residual lists.
 *
 * Idea: both lists are walked item by item, without the marks that end calls.  Two items are the same if
 * their open tests hold for the same packets of the region and their actions lead to the same places.
 * Cost: one pass over both lists; the end of a call is looked for once per call.
 * Invariant: lists that are the same decide every packet of the region alike.
 * Threading: nothing is written but the caller's mismatches.
 */
#include "residual.h"

/* What an item does once all its matches hold, independent of the calls around it. */
struct outcome {
    uint32_t kind, arg;
    size_t then; /* of one that enters a chain or returns: the place that follows, marks not counted;
                    SIZE_MAX: the end */
};

/* A position in a list, and in it without marks; caches the end of the call looked up last. */
struct cursor {
    const struct residual *r;
    const struct residual_list *list;
    size_t at, place;
    size_t mark, mark_place;
    uint32_t mark_depth;
};

static size_t skip_marks(const struct residual_list *list, size_t at)
{
    while (at < list->n && list->v[at].guarded == NONE)
        at++;
    return at;
}

/* The place behind the call around the item under the cursor. */
static size_t behind_call(struct cursor *c)
{
    uint32_t depth = c->list->v[c->at].depth;
    if (depth == 0)
        return SIZE_MAX;
    if (c->mark <= c->at || c->mark_depth != depth) {
        size_t at = c->at, place = c->place;
        for (; at < c->list->n; at++) {
            const struct residual_item *item = &c->list->v[at];
            if (item->guarded == NONE && item->depth == depth)
                break;
            place += item->guarded != NONE;
        }
        c->mark = at, c->mark_depth = depth, c->mark_place = place;
        if (skip_marks(c->list, at) == c->list->n)
            c->mark_place = SIZE_MAX;
    }
    return c->mark_place;
}

static struct outcome outcome_of(struct cursor *c)
{
    const struct residual_item *item = &c->list->v[c->at];
    const struct guarded_action *guarded = final_action(c->r, item);
    struct outcome outcome = {guarded->kind, guarded->arg, 0};
    if (guarded->kind != ACTION_VERDICT && surely_ends(c->r, guarded)) {
        outcome.kind = ACTION_GOTO; /* there, and never back */
    } else if (guarded->kind == ACTION_RETURN) {
        outcome.then = behind_call(c);
        if (outcome.then == SIZE_MAX)
            outcome = (struct outcome){ACTION_VERDICT, c->list->end, 0};
    } else if (guarded->kind == ACTION_GOTO) {
        outcome.kind = ACTION_JUMP;
        outcome.then = behind_call(c);
    } else if (guarded->kind == ACTION_JUMP) {
        outcome.then = skip_marks(c->list, c->at + 1) == c->list->n ? SIZE_MAX : c->place + 1;
    }
    return outcome;
}

/* Whether two tests hold for the same packets of the region. */
static bool test_same(const struct residual *r, uint32_t a, uint32_t b, uint32_t blocked)
{
    if (a == b)
        return true;
    if ((a | b) & EITHER)
        return false;
    uint32_t dim = r->in.test_dim[a];
    if (dim != r->in.test_dim[b] || r->in.dim_states[dim] & blocked)
        return false;
    const struct set *set = r->region[dim];
    const uint32_t *x = r->in.set_ends + 2 * (size_t)r->in.test_start[a],
                   *x_end = r->in.set_ends + 2 * (size_t)r->in.test_start[a + 1];
    const uint32_t *y = r->in.set_ends + 2 * (size_t)r->in.test_start[b],
                   *y_end = r->in.set_ends + 2 * (size_t)r->in.test_start[b + 1];
    for (uint32_t s = 0; s < set->n; s++) {
        uint32_t low = set->ends[2 * s], high = set->ends[2 * s + 1];
        for (;;) {
            while (x < x_end && x[1] < low)
                x += 2;
            while (y < y_end && y[1] < low)
                y += 2;
            bool has_x = x < x_end && x[0] <= high, has_y = y < y_end && y[0] <= high;
            if (!has_x && !has_y)
                break;
            if (has_x != has_y)
                return false;
            uint32_t x_low = x[0] > low ? x[0] : low, y_low = y[0] > low ? y[0] : low;
            uint32_t x_high = x[1] < high ? x[1] : high, y_high = y[1] < high ? y[1] : high;
            if (x_low != y_low || x_high != y_high)
                return false;
            if (x_high == high)
                break;
            low = x_high + 1;
        }
    }
    return true;
}

static bool tests_same(const struct residual *r, uint32_t a, uint64_t open_a, uint32_t b, uint64_t open_b,
                       uint32_t blocked)
{
    const struct guarded_action *x = &r->guarded[a], *y = &r->guarded[b];
    for (; open_a && open_b; open_a &= open_a - 1, open_b &= open_b - 1) {
        uint32_t one = r->tests[x->first + (uint32_t)__builtin_ctzll(open_a)];
        uint32_t other = r->tests[y->first + (uint32_t)__builtin_ctzll(open_b)];
        if (!test_same(r, one, other, blocked))
            return false;
    }
    return !open_a && !open_b;
}

/* How two items compare.  RETURNS_ELSEWHERE: they are the same but for the place that packets return to;
 * one list has more items in the calls around them. */
enum sameness { DIFFERENT, SAME, RETURNS_ELSEWHERE };

/* *outcome: what both items do, if they are the same. */
static enum sameness items_same(struct cursor *c, struct cursor *d, uint32_t blocked, struct outcome *outcome,
                                residual_paired *paired, void *context)
{
    const struct residual *r = c->r;
    const struct residual_item *x = &c->list->v[c->at], *y = &d->list->v[d->at];
    if (!(x->guarded == y->guarded && x->open == y->open) &&
        !tests_same(r, x->guarded, x->open, y->guarded, y->open, blocked))
        return DIFFERENT;
    *outcome = outcome_of(c);
    struct outcome other = outcome_of(d);
    /* A call returns to what follows it, which may be the end of one list or of both. */
    bool calls = final_action(r, x)->kind == ACTION_JUMP && final_action(r, y)->kind == ACTION_JUMP;
    if (calls && outcome->then > other.then)
        outcome->then = other.then;
    if (outcome->kind != other.kind || outcome->arg != other.arg)
        return DIFFERENT;
    if (outcome->kind == ACTION_JUMP && r->touched[outcome->arg])
        return DIFFERENT;
    const struct guarded_action *s = &r->guarded[x->guarded], *t = &r->guarded[y->guarded];
    if ((s->kind == ACTION_EVENT || t->kind == ACTION_EVENT) &&
        !(s->kind == t->kind && s->arg == t->arg && s->next == t->next &&
          (!s->once || paired(context, x->rule, y->rule))))
        return DIFFERENT;
    return calls || outcome->then == other.then ? SAME : RETURNS_ELSEWHERE;
}

/* Whether the item under the cursor is the last one and surely gives *verdict*. */
static bool ends_with(struct cursor *c, uint32_t verdict)
{
    const struct residual_item *item = &c->list->v[c->at];
    if (item->open || c->r->guarded[item->guarded].kind == ACTION_EVENT ||
        skip_marks(c->list, c->at + 1) < c->list->n)
        return false;
    struct outcome outcome = outcome_of(c);
    return outcome.kind == ACTION_VERDICT && outcome.arg == verdict;
}

bool residual_same(const struct residual *r, const struct residual_list *a, const struct residual_list *b,
                   struct mismatch *x, struct mismatch *y, residual_paired *paired, void *context)
{
    struct cursor c = {.r = r, .list = a}, d = {.r = r, .list = b};
    struct mismatch first_x = {0}, first_y = {0};
    uint32_t blocked = 0;
    bool passes = false, to_end = false, decided = false, elsewhere = false;
    for (;; c.at++, d.at++, c.place++, d.place++) {
        c.at = skip_marks(a, c.at);
        d.at = skip_marks(b, d.at);
        *x = (struct mismatch){c.at, blocked, passes};
        *y = (struct mismatch){d.at, blocked, passes};
        bool no_a = c.at == a->n, no_b = d.at == b->n;
        if (elsewhere && (no_a || no_b)) {
            /* The items that the other list has more may be at its end, or were passed as marks. */
            if (no_a && no_b)
                *x = first_x, *y = first_y;
            return false;
        }
        if (no_a && no_b)
            return a->end == b->end || (decided && !to_end);
        if (no_a || no_b)
            return (a->end == b->end || !to_end) && ends_with(no_a ? &d : &c, (no_a ? a : b)->end);
        struct outcome outcome;
        enum sameness sameness = items_same(&c, &d, blocked, &outcome, paired, context);
        if (sameness == DIFFERENT)
            return false;
        if (sameness == RETURNS_ELSEWHERE && !elsewhere) {
            /* A later difference explains it, and is the better place to cut by.  In one of the lists the
             * item leads past what follows. */
            elsewhere = passes = true;
            first_x = *x, first_y = *y;
        }
        const struct guarded_action *guarded = &r->guarded[a->v[c.at].guarded];
        decided = !a->v[c.at].open && surely_ends(r, guarded);
        /* The item may lead to the end of the list, or past the next item. */
        to_end |= outcome.kind == ACTION_JUMP && outcome.then == SIZE_MAX;
        passes |=
            (outcome.kind == ACTION_JUMP || outcome.kind == ACTION_RETURN) && outcome.then != c.place + 1;
        blocked |= guarded->writes;
    }
}
