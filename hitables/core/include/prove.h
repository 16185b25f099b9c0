#ifndef HITABLES_PROVE_H
#define HITABLES_PROVE_H
#include <stddef.h>
#include <stdint.h>

/* Two programs, decided alike for every packet or not: see prove.c.
 *
 * Both programs stand in one input: their chains, rules, matches and tests are numbered
 * together, and what is spelt alike has one number.  A dimension is a header field (0 to 11)
 * or the truth of a fact; its values are coordinates from 0 to its size - 1.  Arrays of
 * starts have one entry more than there are things. */
enum prove_op {
    PROVE_TEST,   /* arg: test */
    PROVE_NATIVE, /* arg: test, read as native nft expressions read it */
    PROVE_EITHER, /* arg: how many tests follow, one of which must hold */
    PROVE_NEED,   /* arg: bytes of layer 4 | strict << 16 */
    PROVE_OPTION, /* drops a packet with a bad tcp data offset */
    PROVE_CUT,    /* drops a packet whose protocol cannot be found */
    PROVE_EVENT,  /* arg: key << 1 | memory of the rule itself */
    PROVE_WRITE,  /* arg: states that the event before may change, whatever its answer */
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
    PROVE_PAIRS,   /* rules with memory pair up in two ways: ask again, with pairing strict */
};

struct prove_input {
    uint32_t dims, tests, matches, rules, chains, chains_before; /* chains of the first program come first */
    const uint32_t *dim_size;
    const uint32_t *dim_states;   /* mask of the states whose writing changes the dimension */
    const uint32_t *test_dim, *test_start;     /* into set_ends: low, high, low, high, ... */
    const uint32_t *set_ends;
    const uint32_t *match_start, *code;        /* op, arg, op, arg, ... */
    const uint32_t *rule_start, *rule_match;
    const uint32_t *rule_action;               /* three each: action, number, states written */
    const uint32_t *chain_start, *chain_end;   /* into the rules; chains may share some */
    const uint32_t *chain_writes;              /* states that the chain and those it enters may write */
    const uint32_t *chain_partner;             /* chain of the other program to be held against; or UINT32_MAX */
    uint32_t drop;                             /* number of the verdict DROP */
};

/* Packets that differ in no more than header values: present has a bit per field. */
struct prove_class {
    uint32_t present, present_native, bytes, frozen; /* frozen: fields that no write changes */
    uint8_t later, bad_offset, offset_one, cut_short, may_drop, legacy;
};

struct prover;

struct prover *prover_new(const struct prove_input *input, size_t memory);
/* Enter a class: rules are read as its packets read them.  First and restricted sets of
 * dimensions are given as dim, count, low, high, ... and hold until the next class. */
int prover_enter(struct prover *prover, const struct prove_class *class, const uint32_t *sets, size_t words);
/* Hold chain a of the first against b of the second program, both falling off with the verdict
 * given, for packets in the class and in sets. */
int prover_run(struct prover *prover, uint32_t a, uint32_t b, uint32_t end_a, uint32_t end_b,
    const uint32_t *sets, size_t words, double seconds, int strict, size_t most);
/* For one program held against itself, altered: from the next class on, chains of one name count as
 * equal unless they are named as touched. */
void prover_same(struct prover *prover);
enum prove_alteration {
    PROVE_LEAVE_OUT, /* the rule of the second program */
    PROVE_MARK,      /* both rules: whoever matches them differs */
    PROVE_REMOVE,    /* both rules, for good */
};
/* Alter a rule, which stands in both programs, for the runs that follow in this class; touched: the
 * chains of the first program that reach it, its own among them. */
int prover_alter(struct prover *prover, uint32_t rule_a, uint32_t rule_b, uint32_t alteration,
    const uint32_t *touched, size_t count);
void prover_restore(struct prover *prover);
/* The rules of a chain that packets in sets may meet before rule, at most room of them: how many. */
size_t prover_front(struct prover *prover, uint32_t chain, uint32_t rule, const uint32_t *sets,
    size_t words, uint32_t *rules, size_t room);
/* From now on each pair of chains of one name must be proved by itself, and the whole, each within so
 * many steps: else a run ends as TOO_DEEP.  0: as it was. */
void prover_bound(struct prover *prover, uint64_t steps);
/* Whether a list that is read in another order decides alike, behind a run that found the chains of
 * that order equal to others: see order.h. */
struct order;
int prover_ordered(struct prover *prover, const struct order *order);
/* How the class reads each match, one after the other, in words; at most room are written: how many there are. */
size_t prover_reading(const struct prover *prover, uint32_t *words, size_t room);
/* From any thread: the run that is under way, and each that begins later, ends as STOPPED. */
void prover_stop(struct prover *prover);
/* What differs: records of words, each led by its length. */
const uint32_t *prover_found(const struct prover *prover, size_t *words);
double prover_done(const struct prover *prover);
uint64_t prover_regions(const struct prover *prover);
size_t prover_bytes(const struct prover *prover);
void prover_free(struct prover *prover);

#endif
