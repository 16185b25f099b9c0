#ifndef HITABLES_CONEXT2014_H
#define HITABLES_CONEXT2014_H
#include "tree_internal.h"

/* What the files of the builder "paper" share: parts of the tree that may still be cut (conext2014.c), and
 * the choice of their cuts (conext2014_choice.c). */

struct part {
    struct build_node *node;
    struct range *region;
    uint32_t boxes;
    uint32_t *box;
};

struct cutter {
    struct space *space;
    const struct tree_options *options;
    uint64_t *key, *spare;
    uint32_t *listed; /* scratch of a part's boxes */
    u128 *end;        /* ends of the parts of a cut */
    uint32_t room;
};

/* Whether the axis is cut by the values that boxes name, and not at ends. */
static inline bool conext2014_by_values(const struct cutter *c, uint32_t axis)
{
    return c->space->in->axis[axis].cut == TREE_CUT_POINT;
}

/* conext2014_parts.c */

/* The boxes that meet the region and are not hidden there, into listed[]; their number. */
uint32_t conext2014_list_part(const struct space *space, const uint32_t *box, uint32_t boxes, uint32_t axis,
                              const struct range *region, uint32_t *listed);
/* Whether the box names one value of the axis that a rule can test; 0 is read as any value. */
bool conext2014_names_value(const struct space *space, uint32_t box, uint32_t axis);
/* The boxes of the rest, where values that boxes name are cut off: those that name none, into listed[]. */
uint32_t conext2014_list_rest(const struct space *space, const struct part *part, uint32_t axis,
                              uint32_t *listed);
/* The region's part number *i* along the axis; only the last one keeps "none". */
void conext2014_part_range(const struct space *space, const struct range *from, uint32_t axis,
                           const u128 *end, uint32_t ends, uint32_t i, struct range *along);
/* One value. */
struct range conext2014_value_range(const struct space *space, uint32_t axis, u128 value);

/* conext2014_choice.c: the axis to cut, and the ends of its parts in c->end, or the values that get a part of
 * their own; 0: it cannot be cut. */
uint32_t conext2014_choose_cut(struct cutter *c, const struct part *part, uint32_t *axis);

#endif
