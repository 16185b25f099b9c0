/* Rules that no packet reaches, as one earlier rule ends all packets of each of their boxes.
 *
 * Idea: such a rule would be in a group of its own accord, and rules of other groups would ask for it,
 * though a rule of another group, or of the head, decides its packets.  Lists that were pasted together
 * repeat rules, and have the rules of states in front of each section.  So rules that repeat the box of an
 * earlier one, and rules that are within a rule of the head, are in no group.  Others that are covered vanish
 * from leaves, or stay.
 * Cost: a step per rule for repeated boxes; one per rule of the head and box for the head.
 * Invariant: a covered rule is behind a final rule (tree.h) in the list.
 * Threading: none; the groups belong to one build.
 */
#include "group_trees.h"

/* Whether *outer* has all packets of *inner*, and those that a rule of TREE_KEPT drops besides. */
static bool is_within(const struct space *space, uint32_t inner, uint32_t outer)
{
    for (uint32_t a = 0; a < space->in->axes; a++) {
        struct rank_range in = kept_ranks(space, inner, a), out = box_ranks(space, outer, a);
        if (out.low > in.low || out.high < in.high)
            return false;
    }
    return true;
}

bool group_head_covers(const struct group_trees *f, uint32_t rule)
{
    for (uint32_t inner = f->first[rule]; inner < f->first[rule + 1]; inner++) {
        bool found = false;
        for (uint32_t r = 0; r < f->grouping.head && !found; r++)
            for (uint32_t outer = f->first[r]; outer < f->first[r + 1] && !found; outer++)
                found = f->space->in->final[r] && is_within(f->space, inner, outer);
        if (!found)
            return false;
    }
    return true;
}

static uint64_t box_hash(const struct space *space, uint32_t box)
{
    uint64_t hash = 0;
    for (uint32_t a = 0; a < space->in->axes; a++) {
        struct rank_range ranks = box_ranks(space, box, a);
        hash = (hash ^ ranks.low ^ (uint64_t)ranks.high << 32) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

bool group_find_repeats(struct group_trees *f)
{
    const struct tree_boxes *in = f->space->in;
    uint32_t room = 16;
    while (room < 2 * in->rules)
        room *= 2;
    uint32_t *final = scope_take(&f->space->scratch, room * sizeof *final); /* boxes plus 1; 0: none */
    if (!final)
        return false;
    for (uint32_t r = 0; r < in->rules; r++) {
        uint32_t box = f->first[r];
        if (f->first[r + 1] != box + 1)
            continue;
        uint32_t at = (uint32_t)box_hash(f->space, box) & (room - 1);
        while (final[at] && !(is_within(f->space, box, final[at] - 1) &&
                              is_within(f->space, final[at] - 1, box)))
            at = (at + 1) & (room - 1);
        f->repeats[r] = final[at] != 0;
        if (!final[at] && in->final[r])
            final[at] = box + 1;
    }
    scope_drop(&f->space->scratch, final);
    return true;
}
