#ifndef HITABLES_ENDPOINTS_H
#define HITABLES_ENDPOINTS_H
#include <stdbool.h>
#include <stdint.h>

#include "scope.h"
#include "vfdb.h"

/* Where boxes begin and end along one dimension, by rising value; the caller drops *endpoints.  Box number
 * endpoint_box(endpoint) begins at endpoint_value(endpoint), or, if endpoint_ends(endpoint), has ended
 * just before. */
int endpoints_sorted(struct scope *scope, const struct vfdb_rules *rules, uint32_t dim, uint64_t **endpoints,
                     uint32_t *count);

static inline uint32_t endpoint_value(uint64_t endpoint)
{
    return (uint32_t)(endpoint >> 32);
}

static inline uint32_t endpoint_box(uint64_t endpoint)
{
    return (uint32_t)endpoint >> 1;
}

static inline bool endpoint_ends(uint64_t endpoint)
{
    return endpoint & 1;
}

/* The side of a box along a dimension: low and high. */
static inline const uint32_t *box_interval(const struct vfdb_rules *rules, uint32_t box, uint32_t dim)
{
    return rules->box + ((size_t)box * rules->dims + dim) * 2;
}

static inline uint32_t dim_top(const struct vfdb_rules *rules, uint32_t dim)
{
    return (uint32_t)((UINT64_C(1) << rules->bits[dim]) - 1);
}

#endif
