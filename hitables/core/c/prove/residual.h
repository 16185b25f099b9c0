#ifndef HITABLES_RESIDUAL_H
#define HITABLES_RESIDUAL_H
#include <stddef.h>
#include <stdint.h>

#include "prove.h"

/* What is left of a list of rules for the packets of a region: see residual.c. */

/* Sorted intervals of coordinates that neither overlap nor touch. */
struct set {
    uint32_t n;
    uint32_t ends[]; /* n times low, high */
};

enum action_kind { ACTION_VERDICT, ACTION_EFFECT, ACTION_JUMP, ACTION_GOTO, ACTION_RETURN, ACTION_EVENT, ACTION_FAIL };

/* A rule from some match on: tests that must all hold, then one thing that happens.
 * Equal rests have one number. */
struct guarded_action {
    uint32_t first, n;   /* in residual.tests; a number with EITHER set is an offset into the code */
    uint32_t kind, arg;  /* of JUMP and GOTO: the chain, or the one it is known to equal */
    uint32_t next;       /* EVENT: what follows once it said yes */
    uint32_t writes;     /* states written from here on */
    uint32_t changes;    /* EVENT: those that the question itself writes, whatever its answer */
    uint32_t once;       /* a memory of the rule itself is asked from here on */
    uint64_t dims;       /* a bit for each dimension that is tested; the last for all beyond */
};

static const uint32_t EITHER = UINT32_C(1) << 31;
static const uint32_t NONE = UINT32_MAX;

/* open: a bit for each test of the segment whose truth the region leaves open.
 * depth: of the calls around it.  guarded NONE: the end of a called chain, of that depth. */
struct residual_item {
    uint64_t open;
    uint32_t guarded, rule, depth;
    uint32_t fresh; /* never held against the region */
};

struct residual_list {
    struct residual_item *v;
    size_t n;
    uint32_t end; /* the verdict of whoever falls off */
};

struct residual {
    struct prove_input in;
    struct arena *input;         /* holds copies of the input's arrays */
    struct prove_class class;
    const struct set **region;   /* by dimension */
    /* of the class */
    struct guarded_action *guarded;
    size_t guarded_count, guarded_room;
    uint32_t *tests;
    size_t test_count, test_room;
    uint32_t *guarded_table;         /* hash of guarded, a power of two */
    size_t table_size;
    uint32_t *rule_guarded;          /* NONE: nothing ever comes of it */
    uint8_t *rule_read;          /* it has its segment */
    uint8_t *chain_state;        /* enum lowered */
    uint8_t *chain_once;         /* it, or one that it enters, asks a memory of the rule itself */
    uint32_t *canon;             /* by chain: the chain that it is known to equal */
    uint8_t *touched;            /* by chain: it equals nothing for now */
    /* scratch memory: a stack */
    unsigned char *stack;
    size_t stack_size, top, peak;
    size_t heap, limit;          /* bytes taken elsewhere; bytes in all that may be, 0: any number */
    int failed;                  /* out of memory */
};

/* APART: read, but not to be held against another: it came before a chain that it enters. */
enum lowered { LOW_NOT, LOW_BUSY, LOW_DONE, LOW_APART };
enum relation { REL_OUT, REL_PART, REL_IN };

void *residual_push(struct residual *r, size_t size);
int residual_open(struct residual *r, const struct prove_input *input, size_t memory);
void residual_close(struct residual *r);
void residual_enter(struct residual *r, const struct prove_class *class);
void residual_lower(struct residual *r, uint32_t chain);
uint32_t residual_decide(struct residual *r, uint32_t guarded, uint32_t verdict);

int residual_dim(const struct residual *r, uint32_t test, uint32_t blocked, uint32_t *chosen);
size_t residual_reading(const struct residual *r, uint32_t *words, size_t room);
int residual_is_ready(const struct residual_item *item);
uint32_t residual_open_test(const struct residual *r, const struct residual_item *item, uint32_t blocked);
enum relation residual_relation(const struct residual *r, uint32_t test, const struct set *set);
struct set *residual_cut(struct residual *r, const struct set *set, uint32_t test, int inside);

/* dim: the one whose set has changed; NONE: none has; ALL_DIMS: look at all. */
static const uint32_t ALL_DIMS = UINT32_MAX - 1;
size_t residual_filter(const struct residual *r, const struct residual_list *list, struct residual_item *out, uint32_t dim);
struct residual_list residual_list(struct residual *r, uint32_t chain, uint32_t end);
struct residual_list residual_expand(struct residual *r, const struct residual_list *list, size_t at);

/* Where two lists part: places, counted in items, and whether anything is there. */
struct mismatch {
    size_t at;
    uint32_t blocked; /* states that may have been written before it */
    int passed;       /* an item before it may lead past it */
};
typedef int residual_paired(void *who, uint32_t rule_a, uint32_t rule_b);
int residual_same(const struct residual *r, const struct residual_list *a, const struct residual_list *b, struct mismatch *x,
    struct mismatch *y, residual_paired *paired, void *who);

#endif
