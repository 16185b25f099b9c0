#ifndef HITABLES_RESIDUAL_H
#define HITABLES_RESIDUAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budget.h"
#include "fields.h"
#include "prove.h"

/* Residual lists: what remains of a list of rules for the packets of a region.  See residual.c.
 *
 * The region is r->region: for each dimension a set of coordinates.  Sets, items and lists live on r's
 * scratch stack: a caller saves r->top and restores it to free them.  When memory is exhausted r->failed
 * is set, and pointers are NULL. */

/* Sorted intervals of coordinates that neither overlap nor touch. */
struct set {
    uint32_t n;
    uint32_t ends[]; /* n times low, high */
};

/* What was taken out of the set of a dimension: nothing below low, nothing above high. */
struct removed {
    uint32_t dim; /* NONE: anything may have been taken out of any set */
    uint32_t low, high;
};

enum action_kind {
    ACTION_VERDICT,
    ACTION_EFFECT,
    ACTION_JUMP,
    ACTION_GOTO,
    ACTION_RETURN,
    ACTION_EVENT, /* evaluates a match with memory; "yes" leads to *next* */
    ACTION_FAIL,  /* no packet gets further */
};

/* Of a match with memory. */
enum answer { NOT_KNOWN, NO, YES };

/* A rule from some match on: tests that must all hold, then one action.  Equal guarded actions have one
 * number. */
struct guarded_action {
    uint32_t first, n; /* its tests, in residual.tests; a number with EITHER set is an offset into the code */
    uint32_t kind, arg; /* arg of JUMP and GOTO: the chain, or the one that it is proved to equal */
    uint32_t next; /* EVENT: the guarded action behind it */
    uint32_t writes; /* mask of the states that are written from here on */
    uint32_t reads; /* mask of the states that tests read from here on, a chain that it enters aside */
    uint32_t changes; /* EVENT: mask of the states that the event itself writes, whether it holds or not */
    uint32_t answer; /* EVENT: enum answer, if it is the same for each packet */
    uint32_t once; /* not 0: an event from here on has a memory that belongs to its rule */
    uint64_t dims; /* a bit for each dimension tested; the last bit for dimension 63 and all beyond */
};

static const uint32_t EITHER = UINT32_C(1) << 31;
static const uint32_t NONE = UINT32_MAX;

/* A rule in a residual list; with guarded NONE, the end of a called chain. */
struct residual_item {
    uint64_t open; /* a bit for each test of the guarded action that the region leaves undecided */
    uint32_t guarded, rule;
    uint32_t depth; /* of the calls around it */
    uint32_t fresh; /* not 0: not yet compared with the region */
};

struct residual_list {
    struct residual_item *v;
    size_t n;
    uint32_t end; /* the verdict behind the last item */
};

struct residual {
    struct prove_input in; /* arrays are copies in *input* */
    struct arena *input;
    struct budget *budget; /* what grows, here and in the prover */
    struct prove_class class;
    const struct set **region; /* [dims] */
    struct removed removed; /* by the cut for which lists are filtered */
    /* Of the current class: */
    struct guarded_action *guarded;
    size_t guarded_count, guarded_room;
    uint32_t *tests;
    size_t test_count, test_room;
    uint32_t *guarded_table; /* hash table of numbers; its size is a power of two */
    size_t table_size;
    uint32_t *rule_guarded; /* [rules] number of the rule's guarded action; NONE: the rule does nothing */
    uint8_t *rule_read; /* [rules] not 0: rule_guarded is known */
    uint8_t *chain_state; /* [chains] enum lowered */
    uint8_t *chain_once; /* [chains] not 0: the chain, or one that it enters, has a rule with a memory of its
                            own */
    uint8_t *chain_acts; /* [chains] not 0: it, or a chain that it enters, may have an effect or ask a match
                            with memory or chance */
    uint32_t *chain_reads; /* [chains] mask of the states that it, or a chain that it enters, may read */
    uint8_t *chain_ends; /* [chains] not 0: no packet that enters it comes back */
    uint8_t *chain_idle; /* [chains] not 0: each packet that enters it comes back, and nothing else happens */
    uint32_t *canon; /* [chains] the chain that it is proved to equal */
    struct chain_index **index; /* [chains] of those that were read often; NULL: of none */
    uint32_t left_out; /* a rule that does nothing for now; NONE: none */
    uint8_t *touched; /* [chains] not 0: for now it equals no chain, and neither ends nor is idle */
    /* The scratch stack. */
    unsigned char *stack;
    size_t stack_size, top, peak;
    size_t limit; /* bytes in all; 0: any number */
    uint64_t looked_at; /* rules put in lists, and items copied with them */
    bool failed; /* memory is exhausted */
    bool plain; /* lists have all rules that packets meet; chain_ends and chain_idle are not used */
};

/* How far a chain was read.  LOW_BUSY: chains that it enters are being read; LOW_APART: it is read, but a
 * chain that it enters was not yet, so it is not compared with its partner. */
enum lowered { LOW_NOT, LOW_BUSY, LOW_DONE, LOW_APART };
enum relation { REL_OUT, REL_PART, REL_IN };

/* Copy the input and reserve the stack; false when memory is exhausted.  *memory*: the limit in bytes, 0
 * for none. residual_close frees everything, after a failure too. */
bool residual_open(struct residual *r, const struct prove_input *input, size_t memory);
void residual_close(struct residual *r);
/* Bytes taken, the scratch stack's aside; whether *size* further ones would pass the limit. */
size_t residual_bytes(const struct residual *r);
bool residual_is_full(const struct residual *r, size_t size);
/* size bytes on the scratch stack, aligned to 16. */
void *residual_push(struct residual *r, size_t size);

/* Start a class: forget how rules were read. */
void residual_enter(struct residual *r, const struct prove_class *class);
/* Read the rules of one chain as the class reads them; the chains that it enters are read first. */
void residual_lower(struct residual *r, uint32_t chain);
/* Whether no packet leaves the chain but by a verdict; the chains that it enters were read. */
bool residual_ends(const struct residual *r, uint32_t chain);
/* The number of the guarded action with the same matches as *guarded* and this verdict. */
uint32_t residual_decide(struct residual *r, uint32_t guarded, uint32_t verdict);
/* How the class reads each match: see prover_reading. */
size_t residual_reading(const struct residual *r, uint32_t *words, size_t room);

/* The relation of a test to a set that is not empty. */
enum relation residual_relation(const struct residual *r, uint32_t test, const struct set *set);
/* The part of the set inside, or outside, the test. */
struct set *residual_cut(struct residual *r, const struct set *set, uint32_t test, bool inside);
/* A test of the item by which the region may be cut; NONE: all open ones read states of *blocked*.  It may
 * be one that the region decides already. */
uint32_t residual_open_test(const struct residual *r, const struct residual_item *item, uint32_t blocked);

/* Copy to out[] (which may be list->v) the items that the region leaves; their number.  dim: the one
 * dimension whose set has changed since the list was last filtered; NONE: no dimension; ALL_DIMS: perhaps
 * all. */
static const uint32_t ALL_DIMS = UINT32_MAX - 1;
size_t residual_filter(const struct residual *r, const struct residual_list *list, struct residual_item *out,
                       uint32_t dim);
/* The residual list of a chain in the region. */
struct residual_list residual_list(struct residual *r, uint32_t chain, uint32_t end);
/* The list with the chain that item *at* surely enters inlined. */
struct residual_list residual_expand(struct residual *r, const struct residual_list *list, size_t at);

/* Where two lists first differ. */
struct mismatch {
    size_t at;
    uint32_t blocked; /* mask of the states that an item before it may write */
    bool passed; /* an item before it may lead past it */
};
/* Whether the two rules may share one memory. */
typedef bool residual_paired(void *context, uint32_t rule_a, uint32_t rule_b);
/* Whether both lists decide every packet of the region alike; else *x and *y are the places where they
 * first differ, each perhaps the list's end.  Items before them may return to different places. */
bool residual_same(const struct residual *r, const struct residual_list *a, const struct residual_list *b,
                   struct mismatch *x, struct mismatch *y, residual_paired *paired, void *context);

/* Whether no packet that the guarded action acts on reaches what follows it: it is a verdict, or enters a
 * chain that surely ends the packet's way. */
static inline bool surely_ends(const struct residual *r, const struct guarded_action *guarded)
{
    if (guarded->kind == ACTION_JUMP || guarded->kind == ACTION_GOTO)
        return r->chain_ends[guarded->arg] && !r->touched[guarded->arg] && !r->plain;
    return guarded->kind == ACTION_VERDICT;
}

/* The bit of a dimension in guarded_action.dims. */
static inline uint64_t dim_bit(uint32_t dim)
{
    return UINT64_C(1) << (dim < 63 ? dim : 63);
}

/* Whether the packets of the class have the field; *native*: as native nft expressions read it. */
static inline bool has_field(const struct residual *r, uint32_t dim, bool native)
{
    if (dim >= FIELDS)
        return true;
    return (native ? r->class.present_native : r->class.present) >> dim & 1;
}

/* The action of an item when all its events hold. */
static inline const struct guarded_action *final_action(const struct residual *r,
                                                        const struct residual_item *item)
{
    const struct guarded_action *guarded = &r->guarded[item->guarded];
    while (guarded->kind == ACTION_EVENT)
        guarded = &r->guarded[guarded->next];
    return guarded;
}

#endif
