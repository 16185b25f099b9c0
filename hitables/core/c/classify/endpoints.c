/* The edges of boxes along one dimension, sorted: what a sweep reads.
 *
 * Cost: a radix sort of two numbers per box.  Invariant: a box that reaches the last value
 * has no end.  Threading: none; memory is the bag's.
 */
#include "endpoints.h"

#include "tree_internal.h"

/* *edges is the caller's to drop; a status. */
int edges_sorted(struct bag *bag, const struct vfdb_rules *rules, uint32_t dim, uint64_t **edges, uint32_t *count)
{
    if (rules->count > UINT32_MAX / 4)
        return VFDB_TOO_LARGE;
    uint64_t *edge = bag_take(bag, 2 * (size_t)rules->count * sizeof *edge);
    uint64_t *spare = bag_take(bag, 2 * (size_t)rules->count * sizeof *spare);
    if (!edge || !spare) {
        bag_drop(bag, edge);
        bag_drop(bag, spare);
        return VFDB_NO_MEMORY;
    }
    uint32_t n = 0, top = dim_top(rules, dim);
    for (uint32_t box = 0; box < rules->count; box++) {
        const uint32_t *side = box_side_of(rules, box, dim);
        edge[n++] = (uint64_t)side[0] << 32 | box << 1;
        if (side[1] < top)
            edge[n++] = (uint64_t)(side[1] + 1) << 32 | box << 1 | 1;
    }
    sort_keys(edge, spare, n, 32);
    bag_drop(bag, spare);
    *edges = edge;
    *count = n;
    return VFDB_OK;
}
