/* What the interface and the searches of the prover all do with its state: arrays, sets, the lists' heads,
 * the budget.
 *
 * Cost: of lists, their length; else constant, besides the copy when an array grows, which at least doubles
 * it.
 * Invariant: a call that fails leaves the state as it was.
 * Memory: arrays come from the budget, sets from the scratch stack.
 * Threading: as the prover's (prover.c).
 */
#include "prove_internal.h"

#include <time.h>

enum {
    CLOCK_EVERY = 64, /* steps between looks at the clock */
    LOOK_AHEAD = 64,  /* items */
};

static double seconds_of(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

double prover_clock(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double prover_processor_clock(void)
{
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

bool prover_grow(struct prover *p, void **array, size_t *room, size_t needed, size_t size)
{
    if (needed <= *room)
        return true;
    size_t wanted = needed * 2 + 64;
    void *moved = budget_resize(p->r.budget, *array, *room * size, wanted * size);
    if (!moved)
        return false;
    *array = moved, *room = wanted;
    return true;
}

struct set *prover_whole(struct prover *p, uint32_t dim)
{
    struct set *set = residual_push(&p->r, sizeof *set + 2 * sizeof *set->ends);
    if (set) {
        set->n = 1;
        set->ends[0] = 0, set->ends[1] = p->r.in.dim_size[dim] - 1;
    }
    return set;
}

bool prover_set_region(struct prover *p, uint32_t dim, const struct set *set)
{
    if (!prover_grow(p, (void **)&p->log, &p->log_room, p->log_n + 1, sizeof *p->log))
        return false;
    p->log[p->log_n++] = (struct past_set){dim, p->epoch[dim], p->r.region[dim], NONE};
    p->r.region[dim] = set;
    return true;
}

void prover_put_back(struct prover *p, size_t log_n)
{
    while (p->log_n > log_n) {
        const struct past_set *past = &p->log[--p->log_n];
        p->r.region[past->dim] = past->set;
        p->epoch[past->dim] = past->epoch;
    }
}

/* ---- the budget ---- */

static bool is_late(const struct prover *p)
{
    return (p->deadline > 0 && prover_clock() > p->deadline) ||
           (p->processor_deadline > 0 && prover_processor_clock() > p->processor_deadline);
}

enum prove_status prover_out_of_budget(struct prover *p, int deep)
{
    if ((p->end && p->steps > p->end) || (p->items_end && p->items > p->items_end))
        return PROVE_TOO_DEEP;
    if (p->r.failed)
        return PROVE_NO_MEMORY;
    if (p->stopped)
        return PROVE_STOPPED;
    if (deep > DEEPEST)
        return PROVE_TOO_DEEP;
    if (p->steps++ % CLOCK_EVERY == 0 && is_late(p))
        return PROVE_NO_TIME;
    return PROVE_EQUAL;
}

/* ---- lists ---- */

const struct guarded_action *prover_at(const struct prover *p, const struct residual_list *list,
                                               size_t at)
{
    return at < list->n ? &p->r.guarded[list->v[at].guarded] : NULL;
}

bool prover_enters(const struct prover *p, const struct residual_list *list, size_t at)
{
    const struct guarded_action *guarded = prover_at(p, list, at);
    return guarded && !list->v[at].open && (guarded->kind == ACTION_JUMP || guarded->kind == ACTION_GOTO);
}

struct residual_list prover_copy(struct prover *p, const struct residual_list *list, uint32_t dim)
{
    struct residual_list copy = {.end = list->end};
    copy.v = residual_push(&p->r, (list->n + 1) * sizeof *copy.v);
    if (copy.v)
        copy.n = residual_filter(&p->r, list, copy.v, dim);
    return copy;
}

void prover_drop_head(struct residual_list *list)
{
    list->v++;
    list->n--;
    while (list->n && list->v->guarded == NONE)
        list->v++, list->n--;
}

void prover_look_again(struct prover *p, struct residual_list *list)
{
    list->n = residual_filter(&p->r, list, list->v, ALL_DIMS);
}

size_t prover_distance(const struct residual_list *list, size_t at, const struct residual_item *item)
{
    for (size_t d = 1; d <= LOOK_AHEAD && at + d < list->n; d++)
        if (list->v[at + d].guarded == item->guarded && list->v[at + d].open == item->open)
            return d;
    return 0;
}

/* ---- answers of matches with memory ---- */

bool prover_ask(struct prover *p, uint32_t key, enum asked asked)
{
    if (!prover_grow(p, (void **)&p->outcomes, &p->outcomes_room, p->outcomes_n + 2, sizeof *p->outcomes))
        return false;
    p->outcomes[p->outcomes_n] = key;
    p->outcomes[p->outcomes_n + 1] = (uint32_t)asked << 1;
    p->outcomes_n += 2;
    return true;
}

void prover_answer(struct prover *p, struct residual_list *list, bool yes)
{
    if (!yes) {
        prover_drop_head(list);
        prover_look_again(p, list);
        return;
    }
    struct residual_item *item = list->v;
    item->guarded = p->r.guarded[item->guarded].next;
    uint32_t n = p->r.guarded[item->guarded].n;
    item->open = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
    item->fresh = 1;
    prover_look_again(p, list);
}
