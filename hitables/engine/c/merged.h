#ifndef HITABLES_MERGED_H
#define HITABLES_MERGED_H
#include <stdint.h>

/* What a search in the structure of merged.c reads. */

enum { MERGED_BATCH = 32, MERGED_LANES = 16 };

/* The rules that agree in the bits that their table looks at, in no order: groups of 16, or one group of
 * room if that is less, in each of which a row per dimension holds the lows, one the highs less
 * the lows, and the last row the priorities. */
struct merged_bucket {
    uint32_t tag; /* its hash; 0: no bucket */
    uint32_t count, room;
    uint32_t *lane; /* [room / group][2 * dims + 1][group] */
};

/* The buckets of one tuple of lengths. */
struct merged_table {
    uint32_t tuple;    /* the two lengths */
    uint32_t mask[2];  /* the bits that count */
    uint32_t least;    /* no rule here has a priority below */
    uint32_t shift;    /* of the hash: 32 less the bits of a place */
    uint32_t buckets, rules;
    struct merged_bucket *bucket; /* [1 << (32 - shift)], at most half of them taken */
};

struct merged {
    struct ledger *ledger;
    uint32_t dims;
    uint32_t level;
    uint8_t bits[20];
    uint32_t tables, room;
    struct merged_table *table; /* [tables] by rising *least* as far as updates allow */
    uint32_t limit;             /* rules of a bucket from which on longer lengths are tried */
};
#endif
