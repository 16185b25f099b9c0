#ifndef HITABLES_INTERP_H
#define HITABLES_INTERP_H
#include <stddef.h>
#include <stdint.h>

/* Packets through a lowered table, as ir/semantics.py would send them.
 *
 * A table is one stream of 32-bit words.  Chain c is the rules from word
 * starts[c] on, then a 0.  A rule is its length in words, its number, the code of
 * its matches and one target.  The low byte of an instruction's first word is
 * the operation, the next byte A, the upper half B; its other words follow. */
enum interp_op {
    INTERP_RANGE,   /* A slot | low, high - low: the value is in there */
    INTERP_RANGES,  /* A slot | n, n times (low, high), sorted */
    INTERP_WIDE,    /* A slot | n, n times (low, high) of four words each, lowest first */
    INTERP_EITHER,  /* | n, words of the n tests that follow: one of them holds */
    INTERP_GUARD,   /* A strict, B needed bytes of layer 4 */
    INTERP_CUT,     /* drops a packet whose protocol cannot be found */
    INTERP_OPTION,  /* drops a packet with a bad tcp data offset */
    INTERP_FACT,    /* | key, mask of the states that it reads */
    INTERP_EVENT,   /* | key, the first of its three effects: no, yes, dropped; mask of the states that it writes */
    INTERP_COUNT,   /* targets from here on | effect */
    INTERP_FIRE,    /* | effect, mask of the states that it writes */
    INTERP_JUMP,    /* | chain */
    INTERP_GOTO,    /* | chain */
    INTERP_RETURN,
    INTERP_VERDICT, /* | verdict */
};

enum interp_size {
    INTERP_FIELDS = 12,
    INTERP_SLOTS = 15, /* the fields, then sport, dport and flags as native expressions read them */
    INTERP_STATES = 17,
};

/* Bits of interp_packet.classes, and of interp_result.open. */
enum interp_class { INTERP_BAD_OFFSET = 1, INTERP_OFFSET_ONE = 2, INTERP_CUT_SHORT = 4 };
enum interp_open { INTERP_OPEN_FACT = 1, INTERP_OPEN_OUTCOME = 2 };

struct interp_packet {
    uint64_t low[12];     /* by field; only those in present mean anything */
    uint64_t high[4];     /* upper halves of src, dst, iif, oif */
    uint64_t seed;        /* what nobody gave follows from it */
    uint16_t present;     /* a bit per field */
    uint16_t l4_bytes;
    uint16_t raw_sport, raw_dport;
    uint8_t raw_flags;
    uint8_t raw_present;  /* bits 0 to 2: sport, dport, flags */
    uint8_t classes;
    uint8_t unused[5];
};

struct interp_batch {
    const struct interp_packet *packets;
    size_t count;
    int seeded;                  /* 0: what nobody gave is "no", and reported as open */
    /* Given answers: row g holds, for each packet, the answer to key given_key[g]
     * after given_epoch[g] writes (UINT32_MAX: the outcome of every evaluation);
     * 0 no, 1 yes, 2 dropped (outcomes alone), more: not given. */
    size_t given;
    const uint32_t *given_key, *given_epoch;
    const uint8_t *given_value;
    /* Field f is rewritten to one of the values pool_start[f] to pool_start[f + 1],
     * each two words; none: writes leave it as it is. */
    const uint64_t *pool;
    uint32_t pool_start[13];
    const uint32_t *limits;      /* NULL, or how many effects of each packet to hash */
};

/* matched: NULL, or room places for each packet, for the numbers of the first rules whose
 * matches all said yes, in order, then -1.  hits: NULL, or by rule how often they did: added to.
 * visits: NULL, or by word of the code how often the instruction that starts there was come
 * to: added to; then no rule is passed over unread, which takes longer. */
struct interp_counts {
    uint64_t *hits, *visits;
    int32_t *matched;
    uint32_t room;
};

struct interp_result {
    uint64_t effects;       /* hash of the effects in order */
    uint32_t effect_count;
    uint32_t verdict;
    uint32_t reads;         /* rules read */
    int32_t rule;           /* number of the rule that decided; -1: none did */
    uint32_t open;
    uint32_t unused;
};

struct interp;

struct interp *interp_new(const uint32_t *code, size_t words, const uint32_t *starts, size_t chains,
    const uint32_t *ends, uint32_t drop, const uint64_t *hashes, size_t keys, size_t rules,
    size_t depth, const uint32_t *field_writers);
int interp_run(const struct interp *table, uint32_t chain, const struct interp_batch *batch,
    struct interp_result *results, const struct interp_counts *counts);
uint64_t interp_mix(uint64_t value);
uint64_t interp_draw(uint64_t seed, uint64_t what, uint64_t ordinal);
size_t interp_bytes(const struct interp *table);
void interp_free(struct interp *table);

#endif
