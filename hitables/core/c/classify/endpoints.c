/* The endpoints of boxes along one dimension, sorted, for a sweep line.
 *
 * Cost: a radix sort of two numbers per box.
 * Invariant: a box that reaches the last value has no end.
 * Threading: none; memory is the scope's.
 */
#include "endpoints.h"

#include "sort.h"

int endpoints_sorted(struct scope *scope, const struct vfdb_rules *rules, uint32_t dim, uint64_t **endpoints,
                     uint32_t *count)
{
    if (rules->count > UINT32_MAX / 4)
        return VFDB_TOO_LARGE;
    uint64_t *endpoint = scope_take(scope, 2 * (size_t)rules->count * sizeof *endpoint);
    uint64_t *spare = scope_take(scope, 2 * (size_t)rules->count * sizeof *spare);
    if (!endpoint || !spare) {
        scope_drop(scope, endpoint);
        scope_drop(scope, spare);
        return VFDB_NO_MEMORY;
    }
    uint32_t n = 0, top = dim_top(rules, dim);
    for (uint32_t box = 0; box < rules->count; box++) {
        const uint32_t *side = box_interval(rules, box, dim);
        endpoint[n++] = (uint64_t)side[0] << 32 | box << 1;
        if (side[1] < top)
            endpoint[n++] = (uint64_t)(side[1] + 1) << 32 | box << 1 | 1;
    }
    sort_keys(endpoint, spare, n, 32);
    scope_drop(scope, spare);
    *endpoints = endpoint;
    *count = n;
    return VFDB_OK;
}
