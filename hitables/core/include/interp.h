#ifndef HITABLES_INTERP_H
#define HITABLES_INTERP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fields.h"

/* The interpreter: sends packets through a compiled table as ir/semantics.py would.  See interp.c.
 *
 * A table is one stream of 32-bit words.  Chain c is the rules from word starts[c] on, then a 0.  A rule
 * is its length in words, its number, the code of its matches and one target.  The low byte of an
 * instruction's first word is the operation, the next byte operand A, the upper half operand B; further
 * operands are the words that follow (after the | below). */
enum interp_op {
    INTERP_RANGE,   /* A slot | low, high - low: the value lies between them, ends included */
    INTERP_RANGES,  /* A slot | n, n times (low, high), ascending */
    INTERP_WIDE,    /* A slot | n, n times (low, high) of four words each, least significant first */
    INTERP_EITHER,  /* | n, number of words of the n tests that follow: at least one of them holds */
    INTERP_GUARD,   /* A strict, B bytes of layer 4 that the match reads */
    INTERP_CUT,     /* drops a packet whose protocol cannot be determined */
    INTERP_OPTION,  /* drops a packet with a bad TCP data offset */
    INTERP_FACT, /* | key, key of the match that it negates (its own: none), key of the attribute, mask of the
                  * states that it reads, mask of two words, n, n times (low, high) of two words each, least
                  * significant first: the attribute under the mask lies in one of these intervals */
    INTERP_EVENT, /* | key, first of its three effects (no, yes, dropped), mask of the states that it writes
                   */
    INTERP_COUNT, /* first of the targets | effect */
    INTERP_FIRE, /* | effect, mask of the states that it writes, mask of the states on which the attribute
                  * depends that it makes a known number of (0: of none), key of the attribute, bits that it
                  * keeps and then those that it flips, of two words each */
    INTERP_JUMP, /* | chain */
    INTERP_GOTO, /* | chain */
    INTERP_RETURN,
    INTERP_VERDICT, /* | verdict */
};

enum interp_size {
    INTERP_SLOTS = 17, /* the fields, then sport, dport and flags as native nft expressions read them */
    INTERP_STATES = 17, /* states that rules write, a bit of a mask each */
    INTERP_MADE = 16, /* attributes of which a packet's targets make known numbers */
};

enum interp_status {
    INTERP_OK,
    INTERP_NO_MEMORY,
    INTERP_BAD_CODE, /* the stream is malformed, or the chain's number is too high */
    INTERP_TOO_DEEP, /* jumps nest deeper than interp_code.depth */
};

/* Bits of interp_packet.classes, and of interp_result.open. */
enum interp_class { INTERP_BAD_OFFSET = 1, INTERP_OFFSET_ONE = 2, INTERP_CUT_SHORT = 4 };
enum interp_open { INTERP_OPEN_FACT = 1, INTERP_OPEN_OUTCOME = 2 };

/* The table to compile; interp_new copies all arrays. */
struct interp_code {
    const uint32_t *code; /* [words] the stream */
    size_t words;
    const uint32_t *starts; /* [chains] first word of each chain, ascending */
    const uint32_t
        *ends; /* [chains] verdict of a packet that reaches the end of the chain in which it started */
    size_t chains;
    const uint64_t *hashes; /* [keys] hash of each key: facts, outcomes, effects and verdicts are keys */
    size_t keys;
    size_t rules; /* rule numbers are below it */
    size_t depth; /* how deep jumps nest */
    const uint32_t *field_writers; /* [FIELDS] mask of the states whose writing changes the field */
    uint32_t drop; /* verdict of a match that drops the packet */
};

struct interp_packet {
    uint64_t low[FIELDS]; /* value of each field; defined for the fields in *present* alone */
    uint64_t high[6]; /* upper halves of src, dst, iif, oif, physin, physout */
    uint64_t seed; /* answers that are not given are drawn from it */
    uint16_t present; /* a bit per field */
    uint16_t l4_bytes;
    uint16_t raw_sport, raw_dport;
    uint8_t raw_flags;
    uint8_t raw_present; /* bits 0 to 2: sport, dport, flags */
    uint8_t classes; /* of enum interp_class */
    uint8_t unused[5];
};

/* The packets of a run and the answers to what headers do not decide. */
struct interp_batch {
    const struct interp_packet *packets;
    size_t count;
    int seeded; /* 0: an answer that is not given is "no", and interp_result.open records it */
    /* Given answers: row g holds, for each packet, the answer to key given_key[g] after given_epoch[g] writes
     * (UINT32_MAX: the outcome of every evaluation); 0 no, 1 yes, 2 dropped (outcomes alone), else not given.
     */
    size_t given;
    const uint32_t *given_key, *given_epoch; /* [given] */
    const uint8_t *given_value; /* [given][count] */
    /* A write changes field f to one of the values pool_start[f] to pool_start[f + 1], each two words of
     * 64 bits; if there are none it leaves the field as it is. */
    const uint64_t *pool;
    uint32_t pool_start[FIELDS + 1];
    /* Attribute a, whose key is attribute_key[a], has one of the values number_start[a] to
     * number_start[a + 1] of numbers; any other one has 0 or 1. */
    size_t attributes;
    const uint32_t *attribute_key, *number_start; /* [attributes], [attributes + 1] */
    const uint64_t *numbers;
    const uint32_t *limits; /* [count] how many effects of each packet to hash; NULL: all */
};

/* What to count besides the results; all zero: nothing. */
struct interp_counts {
    uint64_t *hits; /* [rules] or NULL: increased by one for each packet that the rule matches */
    uint64_t *visits; /* [words] or NULL: increased by one for each execution of the instruction that starts
                       * there; then no rule is skipped unread, and a run takes longer */
    int32_t *matched; /* [count][room] or NULL: numbers of the first rules that matched, in order, then -1 */
    uint32_t room;
};

struct interp_result {
    uint64_t effects; /* hash of the effects in order */
    uint32_t effect_count;
    uint32_t verdict;
    uint32_t reads; /* rules read */
    int32_t rule; /* number of the rule that decided; -1: the end of the chain did */
    uint32_t open; /* of enum interp_open: answers that were not given */
    uint32_t unused;
};

struct interp;

/* A compiled table, to be freed with interp_free; NULL on failure, and *status then gives the reason. */
struct interp *interp_new(const struct interp_code *code, enum interp_status *status);

/* Send each packet of the batch into the chain.  results: [batch->count], overwritten.  counts: never
 * NULL.  Any number of threads may run one table at a time, each with its own results and counts. */
enum interp_status interp_run(const struct interp *table, uint32_t chain, const struct interp_batch *batch,
                              struct interp_result *results, const struct interp_counts *counts);

/* The hash and the draw from a seed that the interpreter uses; simulate/batch.py computes the same. */
uint64_t interp_mix(uint64_t value);
uint64_t interp_draw(uint64_t seed, uint64_t what, uint64_t ordinal);

/* Bytes of memory that the table takes. */
size_t interp_bytes(const struct interp *table);
void interp_free(struct interp *table);

#endif
