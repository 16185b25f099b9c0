#ifndef HITABLES_EDGES_H
#define HITABLES_EDGES_H
#include <stdbool.h>
#include <stdint.h>

#include "scope.h"
#include "vfdb.h"

/* Where the sides of boxes begin and end along one dimension, by rising value: box number
 * edge_box(edge) begins at edge_value(edge), or, if edge_ends(edge), has ended just before. */
int edges_sorted(struct bag *bag, const struct vfdb_rules *rules, uint32_t dim, uint64_t **edges, uint32_t *count);

static inline uint32_t edge_value(uint64_t edge)
{
    return (uint32_t)(edge >> 32);
}

static inline uint32_t edge_box(uint64_t edge)
{
    return (uint32_t)edge >> 1;
}

static inline bool edge_ends(uint64_t edge)
{
    return edge & 1;
}

/* The side of a box along a dimension: low and high. */
static inline const uint32_t *box_side_of(const struct vfdb_rules *rules, uint32_t box, uint32_t dim)
{
    return rules->box + ((size_t)box * rules->dims + dim) * 2;
}

static inline uint32_t dim_top(const struct vfdb_rules *rules, uint32_t dim)
{
    return (uint32_t)((UINT64_C(1) << rules->bits[dim]) - 1);
}

#endif
