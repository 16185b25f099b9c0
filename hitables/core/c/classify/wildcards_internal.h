#ifndef HITABLES_WILDCARDS_INTERNAL_H
#define HITABLES_WILDCARDS_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cross_product_internal.h"

/* The tables of wildcards.c, and their build. */

enum {
    WILDCARDS_BOUNDS = 16, /* of a block, at most: a vector */
    WILDCARDS_TABLE = 31   /* a count of bounds with a meaning of its own: 256 further entries */
};

/* One address: ranges -> two words each.  An entry is offset * 32 + bounds: at the offset are the bounds, the
 * first values of all ranges but the first, then two words for each range: the list of the rules that limit
 * this address alone, as line << shift | place in the pool, and a share of the index of a cell. */
struct range_blocks {
    uint32_t shift; /* of the value, for the root */
    uint32_t mask;  /* of the index that remains: entries of the root - 1 */
    uint32_t depth; /* further tables on the longest way, of 8 bits each, or of those that are left */
    const uint32_t *root; /* [mask + 1] entries */
    const uint32_t *pool;
};

struct wildcards {
    struct cross_product tables; /* its ports, kinds and lines */
    bool vectors; /* the bounds of a block are compared at once */
    struct scope kept; /* all tables */
    uint32_t shift, place; /* of the line in a list; a mask for its place */
    struct range_blocks map[2];
    const uint16_t *cell; /* the list of rules that limit both addresses, by the sum of the shares */
    const uint32_t *list; /* those lists */
    const uint32_t *neither; /* [kinds] priority of the best rule that limits neither */
};

/* wildcards_build.c: fill all tables; a status. */
int wildcards_fill(struct wildcards *db, struct cross_product_builder *b);

#endif
