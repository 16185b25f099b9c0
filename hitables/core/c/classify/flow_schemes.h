#ifndef HITABLES_FLOW_SCHEMES_H
#define HITABLES_FLOW_SCHEMES_H
#include "flow_table.h"

/* How chains are searched and reordered (section 3 of the paper; FLOW_RING: 4.1).
 *
 * A search reads a chain from the flow that the bucket points to.  Of a circular list the last flow points to
 * that first one, and the search ends before it would read it again.  Every function here runs under the lock
 * of the stripe, or alone. */

#define FLOW_INLINE static inline __attribute__((always_inline))

/* Where a search ended. */
struct flow_at {
    uint32_t bucket, slot; /* slot: of FLOW_RING */
    uint32_t compared;     /* keys; of a flow that was found, its place */
    struct flow *flow;     /* NULL: not found */
    struct flow *before;   /* the one before it, or the last of the chain; NULL: none */
};

/* Exactly the bytes of the keys; what follows them is not compared. */
FLOW_INLINE bool flow_same(const uint8_t *key, const uint8_t *other, uint32_t bytes)
{
    if (bytes != 13)
        return !memcmp(key, other, bytes);
    uint64_t a[2], b[2];
    memcpy(&a[0], key, 8);
    memcpy(&a[1], key + 5, 8);
    memcpy(&b[0], other, 8);
    memcpy(&b[1], other + 5, 8);
    return !((a[0] ^ b[0]) | (a[1] ^ b[1]));
}

/* Relaxed, because other threads prefetch what it points to. */
FLOW_INLINE void flow_point(struct flow_table *table, uint32_t bucket, struct flow *flow)
{
    __atomic_store_n(&table->bucket[bucket], flow, __ATOMIC_RELAXED);
}

FLOW_INLINE void flow_find_in_list(const struct flow_table *table, struct flow_at *at, const uint8_t *key,
                                   uint32_t bytes, bool circular)
{
    struct flow *first = table->bucket[at->bucket], *before = NULL;
    uint32_t compared = 0;
    for (struct flow *flow = first; flow; flow = circular && flow->next == first ? NULL : flow->next) {
        compared++;
        if (flow_same(flow->key, key, bytes)) {
            *at = (struct flow_at){at->bucket, 0, compared, flow, before};
            return;
        }
        before = flow;
    }
    *at = (struct flow_at){at->bucket, 0, compared, NULL, before};
}

FLOW_INLINE void flow_find_in_ring(const struct flow_table *table, struct flow_at *at, const uint8_t *key,
                                   uint32_t bytes)
{
    struct flow_ring ring = table->ring[at->bucket];
    uint32_t slot = ring.at, count = table->purge_at - ring.low;
    *at = (struct flow_at){.bucket = at->bucket};
    while (at->compared < count) {
        struct flow *flow = flow_ring_slot(table, at->bucket, slot);
        at->compared++;
        if (flow_same(flow->key, key, bytes)) {
            at->slot = slot;
            at->flow = flow;
            return;
        }
        slot = slot + 1 < table->purge_at ? slot + 1 : ring.low;
    }
}

/* What a hit at a later place than the first does; the number of pointers written. */
FLOW_INLINE uint32_t flow_hit(struct flow_table *table, uint32_t scheme, const struct flow_at *at)
{
    if (at->compared == 1 || scheme == FLOW_NORMAL)
        return 0;
    if (scheme == FLOW_RING) {
        table->ring[at->bucket].at = (uint16_t)at->slot;
        return 1;
    }
    if (scheme == FLOW_CIRCULAR) {
        flow_point(table, at->bucket, at->flow);
        return 1;
    }
    at->before->next = at->flow->next;
    at->flow->next = table->bucket[at->bucket];
    flow_point(table, at->bucket, at->flow);
    return 3;
}

/* Put a flow into the chain that was searched in vain; the number of pointers written. */
FLOW_INLINE uint32_t flow_link(struct flow_table *table, uint32_t scheme, const struct flow_at *at,
                               struct flow *flow)
{
    struct flow *first = table->bucket[at->bucket];
    if (scheme == FLOW_MOVE_FRONT && first) {
        flow->next = NULL;
        at->before->next = flow;
        return 2;
    }
    flow->next = scheme == FLOW_CIRCULAR && !first ? flow : first;
    flow_point(table, at->bucket, flow);
    if (scheme != FLOW_CIRCULAR || !first)
        return 2;
    at->before->next = flow;
    return 3;
}

/* A full ring gives the slot before the one that it points to, which is the last in the order of a search;
 * until then slots are filled downwards, so that the new flow stands before the older ones. */
FLOW_INLINE struct flow *flow_overwrite(struct flow_table *table, const struct flow_at *at, bool *purged)
{
    struct flow_ring *ring = &table->ring[at->bucket];
    *purged = !ring->low;
    if (ring->low)
        ring->at = --ring->low;
    else
        ring->at = (uint16_t)((ring->at ? ring->at : table->purge_at) - 1);
    return flow_ring_slot(table, at->bucket, ring->at);
}

/* Drop the last flows of a chain; their number. */
static __attribute__((noinline)) uint32_t flow_purge(struct flow_table *table, struct flow_stripe *stripe,
                                                     uint32_t bucket)
{
    struct flow *first = table->bucket[bucket], *keep = first;
    uint32_t purged = 0;
    for (uint32_t place = 1; place < table->purge_at - table->purge; place++)
        keep = keep->next;
    for (struct flow *flow = keep->next, *next; flow && flow != first; flow = next, purged++) {
        next = flow->next;
        flow->version = 0;
        flow->next = stripe->vacant;
        stripe->vacant = flow;
    }
    keep->next = table->scheme == FLOW_CIRCULAR ? first : NULL;
    return purged;
}

#endif
