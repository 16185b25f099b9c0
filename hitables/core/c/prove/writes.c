/* What a write makes of the region: known values of an attribute, or any value.
 *
 * Idea: an effect whose result is known turns each coordinate of a dimension into one (struct prove_input);
 * the region becomes the image of what it was.  The region before is kept in history[], for the record of a
 * difference.
 * Cost: a sort of the coordinates of the set that is written; constant where all become one.
 * Invariant: a call that fails leaves a region that is not used any more (PROVE_NO_MEMORY ends the run).
 * Memory: sets on the scratch stack; scratch from the budget.
 * Threading: as the prover's (prover.c).
 */
#include "prove_internal.h"

#include <stdlib.h>

#include "sort.h"

const uint32_t *prover_map_of(const struct prover *p, uint32_t effect, uint32_t dim)
{
    if (!p->follows || effect == NONE)
        return NULL;
    const struct prove_input *in = &p->r.in;
    for (uint32_t at = in->effect_start[effect]; at < in->effect_start[effect + 1];
         at += 2 + in->effect_maps[at + 1])
        if (in->effect_maps[at] == dim)
            return in->effect_maps + at + 1;
    return NULL;
}

/* The coordinates that *map* makes of a set, on the scratch stack; NULL when memory is exhausted. */
static struct set *image(struct prover *p, const struct set *from, const uint32_t *map)
{
    if (map[0] == 1) {
        struct set *one = residual_push(&p->r, sizeof *one + 2 * sizeof *one->ends);
        if (one)
            one->n = 1, one->ends[0] = one->ends[1] = map[1];
        return one;
    }
    size_t count = 0, n = 0, runs = 0;
    for (uint32_t i = 0; i < from->n; i++)
        count += from->ends[2 * i + 1] - from->ends[2 * i] + 1;
    if (!prover_grow(p, (void **)&p->made, &p->made_room, count, sizeof *p->made))
        return NULL;
    uint32_t *made = p->made;
    for (uint32_t i = 0; i < from->n; i++)
        for (uint32_t each = from->ends[2 * i]; each <= from->ends[2 * i + 1]; each++)
            if (!n || map[1 + each] != made[n - 1])
                made[n++] = map[1 + each];
    qsort(made, n, sizeof *made, compare_u32);
    for (size_t i = 0; i < n; i++)
        runs += !i || made[i] > made[i - 1] + 1;
    struct set *set = residual_push(&p->r, sizeof *set + 2 * runs * sizeof *set->ends);
    if (!set)
        return NULL;
    set->n = 0;
    for (size_t i = 0; i < n; i++) {
        if (set->n && made[i] <= set->ends[2 * set->n - 1] + 1)
            set->ends[2 * set->n - 1] = made[i];
        else
            set->ends[2 * set->n] = set->ends[2 * set->n + 1] = made[i], set->n++;
    }
    return set;
}

enum prove_status prover_write(struct prover *p, uint32_t writes, uint32_t effect)
{
    for (uint32_t dim = 0; dim < p->r.in.dims && writes; dim++) {
        uint32_t changed = p->r.in.dim_states[dim] & writes;
        if (!changed || (dim < FIELDS && p->r.class.frozen >> dim & 1))
            continue;
        const uint32_t *map = prover_map_of(p, effect, dim);
        struct set *set = map ? image(p, p->r.region[dim], map) : prover_whole(p, dim);
        if (!set ||
            !prover_grow(p, (void **)&p->history, &p->history_room, p->history_n + 1, sizeof *p->history))
            return PROVE_NO_MEMORY;
        p->history[p->history_n++] =
            (struct past_set){dim, p->epoch[dim], p->r.region[dim], map ? effect : NONE};
        if (!prover_set_region(p, dim, set))
            return PROVE_NO_MEMORY;
        p->epoch[dim] += (uint32_t)__builtin_popcount(changed);
    }
    return PROVE_EQUAL;
}
