#ifndef HITABLES_LOCALITY_H
#define HITABLES_LOCALITY_H
#include <stddef.h>
#include <stdint.h>

/* How a sequence of keys (the flows of packets, or their rules) repeats itself: see locality.c. */

enum {
    LOCALITY_DISTANCES = 66, /* bins of stack distances: 0, then from 2^(i-1) to below 2^i */
    LOCALITY_WINDOW = 1024,  /* packets of a window */
    LOCALITY_TOPS = 4,       /* shares of the 1, 5, 20 and 100 most popular keys */
    LOCALITY_TABLES = 7,     /* sizes of hash tables: 2^8, 2^10 .. 2^20 buckets */
    LOCALITY_FIRST_TABLE = 8,
    LOCALITY_TABLE_STEP = 2,
    LOCALITY_RECENT = 1 << 16,  /* stack distances below this are exact beyond the limit, too */
    LOCALITY_RECENT_BINS = 17,  /* the bins of these distances */
    LOCALITY_POPULAR = 1 << 16, /* keys that are counted as popular beyond the limit, at most */
};

enum locality_status { LOCALITY_OK, LOCALITY_NO_MEMORY };

/* Beyond the limit of keys, only keys whose hash is below 2^(64 - level) are followed. */
struct locality_totals {
    uint64_t packets;
    uint64_t keys;  /* that are followed; the sequence has about keys << level */
    uint64_t level; /* 0: every key is followed */
    /* Packets by stack distance (the keys between two packets of one key), and those that are the first of
     * their key.  From level 1 on the first LOCALITY_RECENT_BINS bins count all packets; the others, and
     * *first*, count those of followed keys, in units of 2^level packets. */
    double distance[LOCALITY_DISTANCES];
    double first;
    uint64_t windows;
    uint64_t window_top[LOCALITY_TOPS]; /* packets of a window's most popular keys, summed over windows */
    uint64_t window_keys; /* keys of a window, summed over windows */
    uint64_t runs[LOCALITY_TABLES]; /* of packets of one key, in buckets by hash */
    uint64_t popular_missed;        /* locality_popular: a count lacks at most so many packets */
    uint64_t bytes;                 /* of memory */
};

struct locality;

/* Keys of *words* words; at most *limit* are followed.  NULL when memory is exhausted. */
struct locality *locality_new(uint32_t words, uint32_t limit);
/* NULL is none. */
void locality_free(struct locality *locality);

/* Add packets: key: [count][words]; time: [count], or NULL, then their number is their time.  After
 * LOCALITY_NO_MEMORY no packets may be added. */
enum locality_status locality_add(struct locality *locality, const uint32_t *key, const int64_t *time,
                                  size_t count);

const struct locality_totals *locality_totals(struct locality *locality);

/* Of each followed key: its packets, and the times of the earliest and the latest.  Each has room for
 * totals->keys. */
void locality_keys(const struct locality *locality, uint64_t *packets, int64_t *first, int64_t *last);

/* The packets of the most popular of all keys, followed or not, in any order; each is the packets of its key,
 * or up to totals->popular_missed less.  packets: room for *room*.  Returns how many there are. */
uint32_t locality_popular(const struct locality *locality, uint64_t *packets, uint32_t room);

#endif
