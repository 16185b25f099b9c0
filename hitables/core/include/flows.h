#ifndef HITABLES_FLOWS_H
#define HITABLES_FLOWS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Flow state tables (Peng, Leckie and Ramamohanarao, "Exploiting Traffic Localities for Efficient Flow State
 * Lookup").  See flow_table.c.
 *
 * A header is a row of *dims* words as in vfdb.h; its key has as many bytes as the dimensions need.
 * Functions return an enum vfdb_status as an int. */

/* How a chain is kept; the numbers are those of the paper's table 2, and RING is its section 4.1. */
enum flow_scheme {
    FLOW_NORMAL,
    FLOW_MOVE_FRONT,
    FLOW_CIRCULAR,
    FLOW_INSERT_MOVE_FRONT,
    FLOW_RING, /* an array of purge_at flows in each bucket */
    FLOW_SCHEMES
};

enum flow_hash { FLOW_ZOBEL, FLOW_CRC32C, FLOW_MULTIPLY_SHIFT, FLOW_SIPHASH, FLOW_FOLDED, FLOW_HASHES };

enum flow_limits {
    FLOW_KEY = 80,   /* bytes of a key at most */
    FLOW_PLACES = 64, /* places of hits that are counted one by one */
    FLOW_ZOBEL_SEED = 220373 /* the paper names none; this is the one of Zobel's own program */
};

struct flow_options {
    uint32_t scheme, hash, buckets;
    /* An insertion that makes a chain purge_at long drops its last purge flows; 0: none. */
    uint32_t purge_at, purge;
    uint64_t seed[2]; /* of the hash function */
    uint32_t dims;
    const uint8_t *bits; /* [dims] the width of each dimension, 1 to 32 */
    bool history;        /* remember each key, to count the flows that were purged and came back */
};

/* What searches did.  packets = hits + inserts + renewed + passed + unkept.  The counts from
 * *hit_comparisons* on are those of counted searches only. */
struct flow_stats {
    uint64_t packets, hits, inserts;
    uint64_t renewed; /* the key was there, with the answer of older rules */
    uint64_t passed;  /* a word was wider than its dimension: the header has no key */
    uint64_t unkept;  /* no memory was left for the flow */
    uint64_t purged;
    uint64_t returned;        /* inserts of keys that were in the table before; 0 without history */
    uint64_t hit_comparisons; /* of keys, in searches that found theirs */
    uint64_t miss_comparisons;
    uint64_t moves, move_writes, insert_writes; /* hits that changed the order; pointers written for that */
    uint64_t longest;                           /* chain so far, flows */
    uint64_t place[FLOW_PLACES + 1]; /* hits and renewed at place 1, 2, ...; the last: at further places */
};

/* The chains as they are now. */
struct flow_chains {
    uint64_t flows, used, longest; /* used: buckets that are not empty */
    uint64_t length[FLOW_PLACES + 1]; /* buckets of 0, 1, ... flows; the last: of all further lengths */
};

struct flow_table;
struct vfdb;

/* An empty table of at most *limit* bytes (0: any number). */
int flow_table_open(const struct flow_options *options, size_t limit, struct flow_table **opened);
void flow_table_close(struct flow_table *table);
/* Forget the flows; statistics remain. */
void flow_table_clear(struct flow_table *table);

/* Search *count* headers one after another, and insert what is missing.  A missing flow has the answer that
 * *rules* gives; without rules, its entry of *given*; without either, 0.  answers[i] is the stored answer
 * (NULL: not of interest).  *group* headers are fetched from memory side by side: 1 as the paper does,
 * 0 for the best; the results are the same.  *counted* fills all statistics, and is slower. */
int flow_table_replay(struct flow_table *table, const uint32_t *headers, size_t count, struct vfdb *rules,
                      const uint32_t *given, uint32_t *answers, uint32_t group, bool counted);

void flow_table_stats(struct flow_table *table, struct flow_stats *stats);
void flow_table_chains(struct flow_table *table, struct flow_chains *chains);
/* The keys of a bucket in the order of a search ([room][key bytes]), as many as fit; the length of its
 * chain. */
size_t flow_table_chain(struct flow_table *table, uint32_t bucket, uint8_t *keys, size_t room);
uint32_t flow_table_bucket(const struct flow_table *table, const uint8_t *key);
/* The key of a header; false, where a word is wider than its dimension. */
bool flow_table_key(const struct flow_table *table, const uint32_t *header, uint8_t *key);
uint32_t flow_table_key_bytes(const struct flow_table *table);
size_t flow_table_bytes(const struct flow_table *table);

/* A hash function: 31 bits of Zobel's, 32 of CRC32C and multiply-shift, 64 of the others. */
uint64_t flow_hash_of(uint32_t hash, const uint64_t *seed, const uint8_t *key, uint32_t bytes);

#endif
