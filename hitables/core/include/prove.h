#ifndef HITABLES_PROVE_H
#define HITABLES_PROVE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The prover: whether two programs decide every packet alike.  See prover.c and prove.c.
 *
 * Both programs are in one input: their chains, rules, matches and tests are numbered together, and equal
 * ones have one number.  A dimension is a header field (enum header_field) or, from FIELDS on, the truth
 * of a fact; its values are coordinates from 0 to its size - 1.  Arrays named *_start have one entry more
 * than there are things: thing i owns the entries from start[i] to start[i + 1] - 1. */
enum prove_op {
    PROVE_TEST,   /* arg: test */
    PROVE_NATIVE, /* arg: test, read as native nft expressions read it */
    PROVE_EITHER, /* arg: number of the tests that follow, at least one of which must hold */
    PROVE_NEED,   /* arg: bytes of layer 4 | strict << 16 */
    PROVE_OPTION, /* drops a packet with a bad TCP data offset */
    PROVE_CUT,    /* drops a packet whose protocol cannot be determined */
    PROVE_EVENT,  /* arg: key << 1 | 1 if the rule has a memory of its own */
    PROVE_WRITE,  /* arg: mask of the states that the preceding event may change, holding or not */
    PROVE_SURE,   /* arg: the answer of the preceding event, which is the same for each packet */
    PROVE_NEVER,  /* does not hold */
};

enum prove_action { PROVE_VERDICT, PROVE_EFFECT, PROVE_SILENT, PROVE_JUMP, PROVE_GOTO, PROVE_RETURN };

enum prove_status {
    PROVE_EQUAL,
    PROVE_DIFFER,
    PROVE_NO_TIME,
    PROVE_NO_MEMORY,
    PROVE_STOPPED,
    PROVE_TOO_DEEP,
    PROVE_PAIRS, /* rules with memory could be paired in two ways: run again with *strict* */
};

/* What one rule may have; lower.c has room for more of both. */
enum prove_most { PROVE_MOST_TESTS = 60, PROVE_MOST_EVENTS = 30 };

/* Chains of the first program precede those of the second.  The caller refuses rules with more than
 * PROVE_MOST_TESTS tests (those of a PROVE_EITHER count as one) or PROVE_MOST_EVENTS events in all of their
 * matches.  prover_new copies all arrays. */
struct prove_input {
    uint32_t dims, tests, matches, rules, chains,
        chains_before; /* chains_before: chains of the first program */
    const uint32_t *dim_size;                  /* [dims] */
    const uint32_t *dim_states; /* [dims] mask of the states whose writing changes the dimension */
    const uint32_t *test_dim, *test_start; /* [tests], [tests + 1] into set_ends, in pairs */
    const uint32_t *set_ends; /* low, high, low, high, ... */
    const uint32_t *match_start, *code; /* [matches + 1] into code, in pairs: op, arg, op, arg, ... */
    const uint32_t *rule_start, *rule_match; /* [rules + 1] into rule_match */
    const uint32_t *rule_action; /* [rules][3] enum prove_action, its number, mask of states written */
    const uint32_t *chain_start, *chain_end; /* [chains] into the rules; chains may share rules */
    const uint32_t *chain_writes; /* [chains] mask of the states that it, or a chain that it enters, writes */
    const uint32_t *chain_partner; /* [chains] chain of the other program to compare with; UINT32_MAX: none */
    const uint32_t *chain_whole; /* [chains] chain of the first program that is compared in its place where
                                  * it differs and packets may be dropped; UINT32_MAX: none */
    uint32_t drop; /* number of the verdict DROP */
    /* What effects make of dimensions (prover_follow): effect e has the words effect_start[e] to
     * effect_start[e + 1] - 1 of effect_maps: dim, n, n coordinates, ...  With n 1 any coordinate of dim
     * becomes that one, else there is one for each. */
    uint32_t effects;
    const uint32_t *effect_start, *effect_maps; /* [effects + 1] */
};

/* A class: packets that differ in header values alone.  Masks have a bit per field. */
struct prove_class {
    uint32_t present, present_native; /* fields that the packets have; as native nft expressions read them */
    uint32_t bytes; /* of layer 4 */
    uint32_t frozen; /* fields that no write changes */
    /* Flags: a later fragment; a bad TCP data offset; fragment offset 1; cut off within its headers; may
     * always be dropped; read by legacy iptables. */
    uint8_t later, bad_offset, offset_one, cut_short, may_drop, legacy;
};

/* A prover may be used by one thread at a time.  Functions that return a status do not free anything on
 * failure: the prover stays usable, and prover_free frees it. */
struct prover;

/* NULL when memory is exhausted.  *memory*: bytes that it may take, 0 for any number.  The copy of the input
 * counts but is not refused: functions return PROVE_NO_MEMORY where more would be taken. */
struct prover *prover_new(const struct prove_input *input, size_t memory);
void prover_free(struct prover *prover);

/* Select a class, in which the runs that follow read the rules.  sets: restricted sets of dimensions, as
 * dim, count, low, high, ... (*words* in all; dim UINT32_MAX: all dimensions behind the fields, which later
 * sets may restrict otherwise); they hold until the next class. */
enum prove_status prover_enter(struct prover *prover, const struct prove_class *class, const uint32_t *sets,
                               size_t words);

/* Compare chain a of the first program with chain b of the second, for the packets of the class and of
 * *sets* (as above).  end_a, end_b: the verdict behind each chain.  seconds, processor: time limits,
 * of the wall and of this process's processor time; 0 for none.  strict: a rule's memory is paired with
 * another's only when both are evaluated.  most: differences after which to stop. */
enum prove_status prover_run(struct prover *prover, uint32_t a, uint32_t b, uint32_t end_a, uint32_t end_b,
                             const uint32_t *sets, size_t words, double seconds, double processor,
                             bool strict, size_t most);

/* Both programs are one, to be altered: from the next class on, chains of one name count as equal unless
 * prover_alter names them as touched. */
void prover_same(struct prover *prover);
enum prove_alteration {
    PROVE_LEAVE_OUT, /* the second program loses the rule */
    PROVE_MARK, /* the rule's verdict differs in the two programs: a packet that matches it is a difference */
    PROVE_REMOVE, /* both programs lose the rule, for the rest of the class; prover_restore does not undo it.
                     Whether the chains of *touched* end each packet is found anew; what else is known of
                     them still holds. */
};
/* Alter a rule, numbered a and b in the two programs, for the runs that follow in this class.
 * touched[count]: chains of the first program that reach the rule, its own included. */
enum prove_status prover_alter(struct prover *prover, uint32_t rule_a, uint32_t rule_b, uint32_t alteration,
                               const uint32_t *touched, size_t count);
/* Whether the runs that follow know what effects make of dimensions; at first they do not, and a dimension
 * that is written may have any value from then on: what is equal then is equal in truth. */
void prover_follow(struct prover *prover, bool follow);

/* For the runs that follow: packets that leave a list by the verdict *returns* come, in both programs, from
 * these chains of the first program, and go on there: chain, the first of its rules that they may come to,
 * verdict at its end, ... (*words* in all).  A rule may be left out or removed then, and none marked. */
enum prove_status prover_behind(struct prover *prover, uint32_t returns, const uint32_t *chains,
                                size_t words);

/* Undo the last prover_alter. */
void prover_restore(struct prover *prover);

/* Write to rules[] the rules of a chain, in front of *rule*, that packets of *sets* may meet: at most
 * *room*; their number, or SIZE_MAX when memory is exhausted. */
size_t prover_front(struct prover *prover, uint32_t chain, uint32_t rule, const uint32_t *sets, size_t words,
                    uint32_t *rules, size_t room);

/* From now on each pair of chains of one name must be proved by itself, and so must the whole, each within
 * *steps* steps; a run that needs more returns PROVE_TOO_DEEP.  0: no bound. */
void prover_bound(struct prover *prover, uint64_t steps);

/* From now on a run that cuts lists of more than *items* items, all together, returns PROVE_TOO_DEEP.  0: no
 * bound.  Items tell the time of a run better than steps where lists are long. */
void prover_bound_items(struct prover *prover, uint64_t items);

/* Whether a list that is read in another order decides alike (reorder.h), after a run in this class that
 * proved the chains of that order equal to others. */
struct order;
enum prove_status prover_ordered(struct prover *prover, const struct order *order);

/* By rule: the rule of the other program that was paired with it because both have one memory; UINT32_MAX:
 * none.  Valid until the next run. */
const uint32_t *prover_pairs(const struct prover *prover);

/* How the class reads each match, one after the other: number of its parts, whether it ends the rule, and
 * the kind of that end; then for each part its tests and its event (UINT32_MAX: none).  At most *room*
 * words are written; the number that there are. */
size_t prover_reading(const struct prover *prover, uint32_t *words, size_t room);

/* The run in progress, and every later one, returns PROVE_STOPPED.  From any thread. */
void prover_stop(struct prover *prover);

/* The differences of the last run, valid until the next: records of words, each preceded by its length
 * (prove.c, record).  *words: the length of all. */
const uint32_t *prover_found(const struct prover *prover, size_t *words);
/* The share of the packets that the last run proved, from 0 to 1; regions proved so far; rules looked at so
 * far, each once for each list that it was put in or taken from, or that was cut; bytes taken at most. */
double prover_done(const struct prover *prover);
uint64_t prover_regions(const struct prover *prover);
uint64_t prover_looked_at(const struct prover *prover);
size_t prover_bytes(const struct prover *prover);

#endif
