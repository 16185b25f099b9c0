/* What the interface and the search of the prover both do with its state: arrays, whole sets, the clock.
 *
 * Cost: constant, besides the copy when an array grows, which at least doubles it.
 * Invariant: a call that fails leaves the state as it was.
 * Memory: arrays come from the budget, sets from the scratch stack.
 * Threading: as the prover's (prover.c).
 */
#include "prove_internal.h"

#include <time.h>

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
