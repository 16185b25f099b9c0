#ifndef HITABLES_EVOLVING_H
#define HITABLES_EVOLVING_H
#include "conflict_tree.h"
#include "evolve.h"

/* An evolving rule; *match* is a rule that holds it. */
struct evolving_rule {
    uint32_t action, weight, match, place;
    uint64_t age; /* the number of the sample that made it */
};

/* The window and the list.  Rules live in slots; order[] lists the slots. */
struct evolve {
    struct budget *budget, *own; /* own: the budget where it is not a part of something else */
    struct evolve_options options;
    struct conflict_tree rules;
    uint32_t dims, count;
    struct evolving_rule *rule; /* [window] */
    uint32_t *box;              /* [window][dims][2] */
    uint32_t *order;            /* [window] slots, the first *count* in use, the others vacant */
    uint32_t *sampled;          /* [window][dims] */
    uint32_t *assigned;         /* [window] the slot of each sample */
    uint32_t filled, oldest;    /* samples in the window; where the oldest one is */
    uint32_t changed;           /* the first place that is not as it was published */
    struct evolve_stats stats;
};

/* In a budget, which counts everything.  On failure nothing is left. */
int evolve_new(struct budget *budget, const struct evolve_options *options, const struct vfdb_rules *rules,
               const uint32_t *action, struct evolve **made);
void evolve_free(struct evolve *e);
/* Take a header, of which the action and the priority of its rule are known, as a sample. */
void evolve_sample(struct evolve *e, const uint32_t *header, uint32_t action, uint32_t priority);
/* Drop the evolving rules that meet a box, with their samples. */
void evolve_forget(struct evolve *e, const uint32_t *box);

static inline const uint32_t *evolve_box(const struct evolve *e, uint32_t place)
{
    return e->box + (size_t)e->order[place] * 2 * e->dims;
}

#endif
