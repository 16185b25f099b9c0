#ifndef HITABLES_PIECE_INDEX_H
#define HITABLES_PIECE_INDEX_H
#include <stdbool.h>
#include <stddef.h>

#include "redundancy.h"

/* The pieces of a reading in a hierarchy of hulls, so that those that overlap a box are found. */

struct arena;

enum { PIECE_GROUPS = 4 };

struct hull {
    uint32_t first, count; /* its pieces, if it has no hulls below */
    uint32_t left, right, above;
    int64_t phase[PIECE_GROUPS]; /* the highest of the rules below, by group; -1: of none */
};

struct piece_list {
    uint32_t *v;
    size_t n;
};

struct piece_index {
    const struct redundancy_reading *in;
    struct hull *hull;
    uint32_t *sides;       /* [hulls][2][axes] */
    uint32_t hulls, root;
    uint32_t *piece;       /* in the order of the leaves */
    uint32_t *leaf;        /* by piece */
    uint32_t *first;       /* by rule: its first piece; one entry more than rules */
    uint32_t *stack;
    struct piece_list before, behind; /* pieces that meet a box, of rules before and behind */
    size_t most_hits;
};

static const uint32_t NOWHERE = UINT32_MAX;

static inline const uint32_t *low_of(const struct piece_index *x, uint32_t piece)
{
    return x->in->low + (size_t)piece * x->in->axes;
}

static inline const uint32_t *high_of(const struct piece_index *x, uint32_t piece)
{
    return x->in->high + (size_t)piece * x->in->axes;
}

static inline bool meet(uint32_t axes, const uint32_t *low, const uint32_t *high, const uint32_t *other_low,
                        const uint32_t *other_high)
{
    for (uint32_t a = 0; a < axes; a++)
        if (low[a] > other_high[a] || other_low[a] > high[a])
            return false;
    return true;
}

static inline bool lies_in(uint32_t axes, const uint32_t *low, const uint32_t *high,
                           const uint32_t *other_low, const uint32_t *other_high)
{
    for (uint32_t a = 0; a < axes; a++)
        if (low[a] < other_low[a] || high[a] > other_high[a])
            return false;
    return true;
}

/* The index of a reading; its memory is the arena's.  False when that is exhausted. */
bool piece_index_open(struct piece_index *x, struct arena *arena, const struct redundancy_reading *in);
/* List in *hits, in no order, the pieces of rules from *from* to *behind* - 1 that meet the box and whose
 * rules stay (why[rule] is 0); *ending*: only those that end packets.  False: there are too many. */
bool piece_index_list(struct piece_index *x, const uint32_t *low, const uint32_t *high, uint32_t from,
                      uint32_t behind, const uint8_t *why, bool ending, struct piece_list *hits);
/* Whether one piece of a rule before *rule* ends all packets of the box. */
bool piece_index_covers(struct piece_index *x, const uint32_t *low, const uint32_t *high, uint32_t rule,
                        const uint8_t *why);

#endif
