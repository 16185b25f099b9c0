#ifndef HITABLES_PROVE_INTERNAL_H
#define HITABLES_PROVE_INTERNAL_H
#include "lemmas.h"
#include "prove.h"
#include "residual.h"

/* The prover's state, shared by its interface (prover.c), its search (prove.c) and what both need
 * (prove_state.c). */

enum { DEEPEST = 10000 }; /* frames of a proof, and chains that enter one another */

/* A set that a dimension had: before the current frame cut it, or before a write. */
struct past_set {
    uint32_t dim, epoch;
    const struct set *set;
    uint32_t effect; /* that wrote it, if the values it made are known; else NONE */
};

enum asked { ASKED_BY_BOTH, ASKED_BY_A, ASKED_BY_B };

/* What a rule did in one program, when the other one had parted from it (acts.c). */
struct act {
    enum asked own;
    uint32_t rule, at; /* at: its place in the order of the notes */
    bool acts;         /* it did more than ask a memory */
    /* Notes of both programs are of one thing if these are equal. */
    bool asks; /* it asked a memory */
    uint32_t arg, next, memory;
};

/* Arrays that grow come from r.budget. */
struct prover {
    struct residual r;
    const struct set **first;       /* [dims] what the class allows */
    uint32_t *epoch;                /* [dims] writes so far */
    size_t sets_at;                 /* place in differences[]: the number of sets of the last record */
    struct past_set *log, *history; /* sets to restore; sets before each write */
    size_t log_n, log_room, history_n, history_room;
    uint32_t *made;                 /* scratch: what an effect makes of a set */
    size_t made_room;
    uint32_t *outcomes;             /* key, answer | enum asked << 1, ... of the evaluations so far */
    size_t outcomes_n, outcomes_room;
    uint32_t *pair; /* [rules] the rule of the other program with which it shares its memory; NONE: unknown */
    uint32_t *differences; /* records of differences: see prover_found */
    size_t differences_n, differences_room, records, most;
    struct lemma_cache lemmas; /* proved in this run */
    struct lemma *pending; /* the lists behind a write, until the current frame is proved */
    bool same; /* both programs are one */
    uint32_t altered[2], saved[2]; /* altered rules, and the guarded actions that they had */
    bool follows; /* effects make known values of dimensions */
    bool strict, in_lemma; /* in_lemma: chains are compared by themselves */
    bool parted; /* a program went on alone */
    struct act *acts; /* [2 acts_n] what the programs did since; the second half is scratch */
    size_t acts_n, acts_room;
    uint64_t regions, steps, end, bound; /* end: the step at which to give up, 0: none */
    uint64_t items, items_end, items_bound; /* of lists that were cut; items_end: as end */
    uint32_t *behind; /* [behind_n][3] chain, its first rule, verdict at its end (prover_behind) */
    size_t behind_n, behind_room;
    uint32_t returns; /* the verdict at the end of a chain behind which these are */
    struct lemma *behind_lemma; /* of a region in which behind_chain, from behind_first on, gives
                                 * behind_verdict alone; NULL: none */
    uint32_t behind_chain, behind_first, behind_verdict;
    uint64_t began, next_aim; /* items when the run began, and at which it aims next */
    double done, deadline, processor_deadline;
    volatile bool stopped;
    size_t class_top; /* top of the stack behind the sets of the class */
};

/* prove_state.c */

/* Room for *needed* elements of *size* bytes; false when memory is exhausted. */
bool prover_grow(struct prover *p, void **array, size_t *room, size_t needed, size_t size);
/* All of a dimension, on the scratch stack; NULL when memory is exhausted. */
struct set *prover_whole(struct prover *p, uint32_t dim);
/* The region of a dimension from now on; the former one is restored behind the frame.  False when memory is
 * exhausted. */
bool prover_set_region(struct prover *p, uint32_t dim, const struct set *set);
/* Restore the sets that were set since the log had *log_n* entries. */
void prover_put_back(struct prover *p, size_t log_n);
/* PROVE_EQUAL: the run may go on; else why not. */
enum prove_status prover_out_of_budget(struct prover *p, int deep);
/* The guarded action of an item; NULL behind the last one. */
const struct guarded_action *prover_at(const struct prover *p, const struct residual_list *list, size_t at);
/* Whether the item surely enters a chain. */
bool prover_enters(const struct prover *p, const struct residual_list *list, size_t at);
/* A copy, on the scratch stack, of what the region leaves; *dim*: as of residual_filter. */
struct residual_list prover_copy(struct prover *p, const struct residual_list *list, uint32_t dim);
void prover_drop_head(struct residual_list *list);
/* How far behind the place *at* the list has this item; 0: not among the next. */
size_t prover_distance(const struct residual_list *list, size_t at, const struct residual_item *item);
/* Hold all tests of the list against the region. */
void prover_look_again(struct prover *p, struct residual_list *list);
/* Note that a match with memory is asked; its answer is no until it is changed in outcomes[].  False when
 * memory is exhausted. */
bool prover_ask(struct prover *p, uint32_t key, enum asked asked);
/* The list behind the match with memory at its head, which holds or not. */
void prover_answer(struct prover *p, struct residual_list *list, bool yes);
/* Seconds of a monotonic clock. */
double prover_clock(void);
/* Seconds of the processor time of this process. */
double prover_processor_clock(void);

/* writes.c: these states are written, by an effect or (NONE) a match.  Dimensions that depend on them have
 * the values that the effect makes of them, or may have any value from now on. */
enum prove_status prover_write(struct prover *p, uint32_t writes, uint32_t effect);
/* What the effect makes of a dimension: n, and n coordinates (struct prove_input); NULL: not known. */
const uint32_t *prover_map_of(const struct prover *p, uint32_t effect, uint32_t dim);

/* acts.c: note that a program does alone what the head of its list does; *whole*: all that the head does
 * behind its matches with memory, not only that the first of these is asked.  False when memory is
 * exhausted. */
bool prover_note_act(struct prover *p, const struct residual_list *list, enum asked own, bool whole);

/* What one program does that the other one does not: how often, and the first rule, of those that do more
 * than ask a memory if there are any (NONE: nothing). */
struct act_alone {
    uint32_t rule;
    bool acts;
    uint32_t count, at;
};

/* How what the programs did differs.  differ: it does; reordered: only in its order, and a and b have the
 * first that differ. */
struct acts_apart {
    struct act_alone a, b;
    bool differ, reordered;
};
void prover_acts_apart(const struct prover *p, struct acts_apart *apart);

/* apart.c: go on, one program alone, where both part and all differences are wanted.  *went_on: whether it
 * was possible; *left: whether something is left of the lists then. */
enum prove_status prover_part(struct prover *p, struct residual_list *a, struct residual_list *b,
                              double *weight, int deep, bool *went_on, bool *left);

/* one_verdict.c: whether both lists give one verdict, and nothing else, from where they differ on. */
bool prover_gives_one(const struct prover *p, const struct residual_list *a, const struct mismatch *x,
                      const struct residual_list *b, const struct mismatch *y);

/* Whether one list gives a verdict and the other comes to the end of its chain, behind which all is decided
 * by this verdict (prover_behind). */
bool prover_returns_alike(struct prover *p, const struct residual_list *a, const struct residual_list *b);

/* aim.c */

/* A test of the item before *at* that decides most of the region; *test*: none decides as much as it holds
 * for, or it is NONE and none decides any. */
uint32_t prover_widest(const struct prover *p, const struct residual_list *list, size_t at, uint32_t test);
/* Look for a difference where few rules are before the places at which the lists differ: PROVE_DIFFER when
 * there is one, PROVE_EQUAL when none was found. */
enum prove_status prover_aim(struct prover *p, const struct residual_list *first,
                             const struct residual_list *second, residual_paired *paired);

/* prove.c: prove the lists equal in the current region, which is restored afterwards.  weight: the share
 * of the run's packets that the region counts for; deep: frames around this one. */
enum prove_status prove(struct prover *p, struct residual_list a, struct residual_list b, double weight,
                        int deep);

#endif
