/* Two programs, decided alike for every packet or not.
 *
 * Idea: hold what is left of both lists of rules, for one region of the header space, against
 * each other (residual.c).  When the same is left the region is proved.  Else the first items
 * that differ say how to go on: enter the chain that one surely enters, cut the region by a
 * test of theirs, or, when both are decided, deal with the head of the lists: cut by it, let
 * its effect happen in both, or let its match with memory say no, then yes.  When both heads
 * are decided and differ, so do the programs, for every packet of the region.
 *
 * User chains of one name are first held against each other alone, for any packet that may
 * come; those that prove equal count as equal wherever they are entered.
 *
 * What was proved behind a match with memory or a write is kept for a while (known.c).
 *
 * Cost: a tree against the list that it was made of takes about what building it took.
 * Invariant: "equal" is said only when the regions looked at tile the whole.  For one thread,
 * but for prover_stop.
 */
#include "prove.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lemmas.h"
#include "reorder_internal.h"
#include "residual.h"

enum { DEEPEST = 10000, LEMMA_STEPS = 200000, CLOCK_EVERY = 64 };

/* A set that a dimension had: of the frame that cut it, or before a write. */
struct past_set {
    uint32_t dim, epoch;
    const struct set *set;
};

struct prover {
    struct residual r;
    const struct set **first;    /* by dimension: what the class allows */
    uint32_t *epoch;             /* by dimension: writes so far */
    struct past_set *log, *history;  /* sets to be put back; sets before each write */
    size_t log_n, log_room, history_n, history_room;
    uint32_t *outcomes;          /* key, answer, ... of the evaluations so far */
    size_t outcomes_n, outcomes_room;
    uint32_t *pair;              /* by rule: the rule of the other program whose memory is its memory */
    uint32_t *found;
    size_t found_n, found_room, records, most;
    struct lemma_cache known;         /* what was proved in this run and may be met again */
    struct lemma *pending;       /* lists behind a write, until this frame is proved */
    int same;                    /* one program against itself */
    uint32_t altered[2], saved[2];
    int strict, in_lemma, parted; /* parted: an effect of one side alone has happened, of these rules */
    uint32_t parted_a, parted_b;
    uint64_t regions, steps, end, bound;
    double done, deadline;
    volatile int stopped;
    size_t class_top;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Room for more elements of size; 0 when memory is exhausted. */
static int grow(void **array, size_t *room, size_t needed, size_t size)
{
    if (needed <= *room)
        return 1;
    size_t wanted = needed * 2 + 64;
    void *more = realloc(*array, wanted * size);
    if (!more)
        return 0;
    *array = more, *room = wanted;
    return 1;
}

struct prover *prover_new(const struct prove_input *input, size_t memory)
{
    struct prover *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    int bad = residual_open(&p->r, input, memory);
    p->first = calloc(input->dims + 1, sizeof *p->first);
    p->epoch = calloc(input->dims + 1, sizeof *p->epoch);
    p->pair = malloc((input->rules + 1) * sizeof *p->pair);
    if (bad || !p->first || !p->epoch || !p->pair) {
        prover_free(p);
        return NULL;
    }
    memset(p->pair, 0xff, (input->rules + 1) * sizeof *p->pair);
    return p;
}

void prover_free(struct prover *p)
{
    if (!p)
        return;
    lemma_cache_clear(&p->r, &p->known);
    residual_close(&p->r);
    free(p->first), free(p->epoch), free(p->log), free(p->history), free(p->outcomes), free(p->pair), free(p->found);
    free(p);
}

void prover_stop(struct prover *p)
{
    p->stopped = 1;
}

const uint32_t *prover_found(const struct prover *p, size_t *words)
{
    *words = p->found_n;
    return p->found;
}

void prover_bound(struct prover *p, uint64_t steps)
{
    p->bound = steps;
}

int prover_ordered(struct prover *p, const struct order *order)
{
    return reorder_holds(&p->r, order, &p->stopped);
}

size_t prover_reading(const struct prover *p, uint32_t *words, size_t room)
{
    return residual_reading(&p->r, words, room);
}

double prover_done(const struct prover *p)
{
    return p->done;
}

uint64_t prover_regions(const struct prover *p)
{
    return p->regions;
}

size_t prover_bytes(const struct prover *p)
{
    return p->r.peak + p->r.heap;
}

/* ---- regions ---- */

static int set_region(struct prover *p, uint32_t dim, const struct set *set)
{
    if (!grow((void **)&p->log, &p->log_room, p->log_n + 1, sizeof *p->log))
        return 0;
    p->log[p->log_n++] = (struct past_set){dim, p->epoch[dim], p->r.region[dim]};
    p->r.region[dim] = set;
    return 1;
}

static void put_back(struct prover *p, size_t log_n)
{
    while (p->log_n > log_n) {
        const struct past_set *past = &p->log[--p->log_n];
        p->r.region[past->dim] = past->set;
        p->epoch[past->dim] = past->epoch;
    }
}

static struct set *whole(struct prover *p, uint32_t dim)
{
    struct set *set = residual_push(&p->r, sizeof *set + 2 * sizeof *set->ends);
    if (set) {
        set->n = 1;
        set->ends[0] = 0, set->ends[1] = p->r.in.dim_size[dim] - 1;
    }
    return set;
}

/* Read dim, count, low, high, ...; 0 when memory is exhausted. */
static int read_sets(struct prover *p, const struct set **into, const uint32_t *words, size_t count)
{
    for (size_t at = 0; at < count; at += 2 + 2 * (size_t)words[at + 1]) {
        uint32_t n = words[at + 1];
        struct set *set = residual_push(&p->r, sizeof *set + 2 * (size_t)n * sizeof *set->ends);
        if (!set)
            return 0;
        set->n = n;
        memcpy(set->ends, words + at + 2, 2 * (size_t)n * sizeof *set->ends);
        into[words[at]] = set;
    }
    return 1;
}

int prover_enter(struct prover *p, const struct prove_class *class, const uint32_t *sets, size_t words)
{
    residual_enter(&p->r, class);
    p->r.top = 0;
    p->r.failed = 0;
    for (uint32_t dim = 0; dim < p->r.in.dims; dim++)
        if (!(p->first[dim] = whole(p, dim)))
            return PROVE_NO_MEMORY;
    if (!read_sets(p, p->first, sets, words))
        return PROVE_NO_MEMORY;
    p->class_top = p->r.top;
    return PROVE_EQUAL;
}

/* ---- rules with a memory of their own ---- */

/* Whether the two may be one memory.  Rules of both programs are numbered together. */
static int may_pair(void *who, uint32_t rule_a, uint32_t rule_b)
{
    struct prover *p = who;
    uint32_t a = p->pair[rule_a], b = p->pair[rule_b];
    if (p->strict)
        return a == rule_b && b == rule_a; /* no two are taken for one before they met at the head */
    return (a == NONE || a == rule_b) && (b == NONE || b == rule_a);
}

/* Nothing is known of whose memory is whose; of a program against itself, all: where another rule
 * takes a rule's place it brings a memory of its own. */
static void reset_pairs(struct prover *p)
{
    uint32_t half = p->r.in.rules / 2;
    for (uint32_t rule = 0; rule < p->r.in.rules; rule++)
        p->pair[rule] = !p->same ? NONE : rule < half ? rule + half : rule - half;
}

/* Note, for lists that are equal, whose memory is whose; 0 when one would be two. */
static int note_pairs(struct prover *p, const struct residual_list *a, const struct residual_list *b)
{
    size_t j = 0;
    for (size_t i = 0; i < a->n; i++) {
        if (a->v[i].guarded == NONE)
            continue;
        while (j < b->n && b->v[j].guarded == NONE)
            j++;
        if (j == b->n)
            return 1;
        if (p->r.guarded[a->v[i].guarded].once) {
            if (!may_pair(p, a->v[i].rule, b->v[j].rule))
                return 0;
            p->pair[a->v[i].rule] = b->v[j].rule;
            p->pair[b->v[j].rule] = a->v[i].rule;
        }
        j++;
    }
    return 1;
}

static int has_once(const struct residual *r, const struct residual_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i].guarded != NONE && r->guarded[list->v[i].guarded].once)
            return 1;
    return 0;
}

/* ---- what is found ---- */

static int put_words(struct prover *p, const uint32_t *words, size_t count)
{
    if (!grow((void **)&p->found, &p->found_room, p->found_n + count, sizeof *p->found))
        return 0;
    if (count)
        memcpy(p->found + p->found_n, words, count * sizeof *words);
    p->found_n += count;
    return 1;
}

static int put_set(struct prover *p, uint32_t dim, uint32_t epoch, const struct set *set)
{
    uint32_t head[] = {dim, epoch, set->n};
    return put_words(p, head, 3) && put_words(p, set->ends, 2 * (size_t)set->n);
}

/* length, rule of a, rule of b (NONE: the end of the list), rule of a, of b that alone had an effect
 * before (NONE: none), whether what follows is the same, number of sets, sets (dim, epoch, n, low,
 * high, ...), number of evaluations, (key << 1 | memory of the rule itself, yes)... */
static int record(struct prover *p, uint32_t rule_a, uint32_t rule_b, uint32_t same_rest)
{
    size_t start = p->found_n;
    uint32_t head[] = {
        0, rule_a, rule_b, p->parted_a, p->parted_b, same_rest, (uint32_t)(p->r.in.dims + p->history_n),
    };
    int fine = put_words(p, head, sizeof head / sizeof *head);
    for (size_t h = 0; fine && h < p->history_n; h++)
        fine = put_set(p, p->history[h].dim, p->history[h].epoch, p->history[h].set);
    for (uint32_t dim = 0; fine && dim < p->r.in.dims; dim++)
        fine = put_set(p, dim, p->epoch[dim], p->r.region[dim]);
    uint32_t asked = (uint32_t)(p->outcomes_n / 2);
    fine = fine && put_words(p, &asked, 1) && put_words(p, p->outcomes, p->outcomes_n);
    if (!fine)
        return PROVE_NO_MEMORY;
    p->found[start] = (uint32_t)(p->found_n - start);
    return ++p->records < p->most ? PROVE_EQUAL : PROVE_DIFFER;
}

/* ---- the search ---- */

static int prove(struct prover *p, struct residual_list a, struct residual_list b, double weight, int deep);

static uint32_t rule_at(const struct residual_list *list, size_t at)
{
    return at < list->n ? list->v[at].rule : NONE;
}

static const struct guarded_action *guarded_at(const struct prover *p, const struct residual_list *list, size_t at)
{
    return at < list->n ? &p->r.guarded[list->v[at].guarded] : NULL;
}

static int out_of_budget(struct prover *p, int deep)
{
    if (p->end && p->steps > p->end)
        return PROVE_TOO_DEEP;
    if (p->r.failed)
        return PROVE_NO_MEMORY;
    if (p->stopped)
        return PROVE_STOPPED;
    if (deep > DEEPEST)
        return PROVE_TOO_DEEP;
    if (p->steps++ % CLOCK_EVERY == 0 && p->deadline > 0 && now() > p->deadline)
        return PROVE_NO_TIME;
    return PROVE_EQUAL;
}

static int enters(const struct prover *p, const struct residual_list *list, size_t at)
{
    const struct guarded_action *guarded = guarded_at(p, list, at);
    return guarded && !list->v[at].open && (guarded->kind == ACTION_JUMP || guarded->kind == ACTION_GOTO);
}

/* The list surely drops the packet at this place. */
static int drops(const struct prover *p, const struct residual_list *list, size_t at)
{
    if (at >= list->n)
        return list->end == p->r.in.drop;
    const struct guarded_action *guarded = guarded_at(p, list, at);
    return !list->v[at].open && guarded->kind == ACTION_VERDICT && guarded->arg == p->r.in.drop;
}

static uint32_t test_at(const struct prover *p, const struct residual_list *list, const struct mismatch *mismatch)
{
    if (mismatch->at >= list->n || !list->v[mismatch->at].open)
        return NONE;
    return residual_open_test(&p->r, &list->v[mismatch->at], mismatch->blocked);
}

static int is_dispatch(const struct prover *p, const struct residual_list *list, size_t at)
{
    const struct guarded_action *guarded = guarded_at(p, list, at);
    return guarded && (guarded->kind == ACTION_JUMP || guarded->kind == ACTION_GOTO);
}

/* The test to cut by where the lists part: a way into a chain first, that is how trees dispatch. */
static uint32_t choose(const struct prover *p, const struct residual_list *a, const struct residual_list *b, const struct mismatch *x,
    const struct mismatch *y)
{
    uint32_t of_a = test_at(p, a, x), of_b = test_at(p, b, y);
    if (of_a == NONE || of_b == NONE)
        return of_a == NONE ? of_b : of_a;
    if (is_dispatch(p, a, x->at) != is_dispatch(p, b, y->at))
        return is_dispatch(p, a, x->at) ? of_a : of_b;
    return __builtin_popcountll(b->v[y->at].open) < __builtin_popcountll(a->v[x->at].open) ? of_b : of_a;
}

static struct residual_list copy_list(struct prover *p, const struct residual_list *list, uint32_t dim)
{
    struct residual_list made = {.end = list->end};
    made.v = residual_push(&p->r, (list->n + 1) * sizeof *made.v);
    if (made.v)
        made.n = residual_filter(&p->r, list, made.v, dim);
    return made;
}

/* Cut the region by test: prove the inside, and leave the outside in place; *left says whether
 * there is one. */
static int cut(struct prover *p, struct residual_list *a, struct residual_list *b, uint32_t test, double *weight, int deep, int *left)
{
    struct residual *r = &p->r;
    uint32_t dim = r->in.test_dim[test];
    const struct set *set = r->region[dim];
    size_t top = r->top;
    struct set *outside = residual_cut(r, set, test, 0);
    size_t kept = r->top;
    struct set *inside = residual_cut(r, set, test, 1);
    if (!outside || !inside)
        return PROVE_NO_MEMORY;
    int status = PROVE_EQUAL;
    if (inside->n) {
        double share = outside->n ? *weight / 2 : *weight;
        *weight -= share;
        r->region[dim] = inside;
        struct residual_list x = copy_list(p, a, dim), y = copy_list(p, b, dim);
        status = r->failed ? PROVE_NO_MEMORY : prove(p, x, y, share, deep + 1);
        r->region[dim] = set;
    }
    *left = outside->n != 0;
    r->top = *left ? kept : top;
    if (status == PROVE_EQUAL && *left) {
        if (!set_region(p, dim, outside))
            return PROVE_NO_MEMORY;
        a->n = residual_filter(r, a, a->v, dim);
        b->n = residual_filter(r, b, b->v, dim);
    }
    return status;
}

static void drop_head(struct residual_list *list)
{
    list->v++;
    list->n--;
    while (list->n && list->v->guarded == NONE)
        list->v++, list->n--;
}

static void look_again(struct prover *p, struct residual_list *list)
{
    list->n = residual_filter(&p->r, list, list->v, ALL_DIMS);
}

/* These states are written: what depends on them may be anything from now on. */
static int write_states(struct prover *p, uint32_t writes)
{
    for (uint32_t dim = 0; dim < p->r.in.dims && writes; dim++) {
        uint32_t changed = p->r.in.dim_states[dim] & writes;
        if (!changed || (dim < 12 && p->r.class.frozen >> dim & 1))
            continue;
        struct set *set = whole(p, dim);
        if (!set || !grow((void **)&p->history, &p->history_room, p->history_n + 1, sizeof *p->history))
            return PROVE_NO_MEMORY;
        p->history[p->history_n++] = (struct past_set){dim, p->epoch[dim], p->r.region[dim]};
        if (!set_region(p, dim, set))
            return PROVE_NO_MEMORY;
        p->epoch[dim] += (uint32_t)__builtin_popcount(changed);
    }
    return PROVE_EQUAL;
}

/* The effect at both heads happens. */
static int happen(struct prover *p, struct residual_list *a, struct residual_list *b)
{
    size_t history_n = p->history_n;
    int status = write_states(p, guarded_at(p, a, 0)->writes);
    if (status != PROVE_EQUAL)
        return status;
    drop_head(a);
    drop_head(b);
    look_again(p, a);
    look_again(p, b);
    if (p->history_n > history_n && !p->parted) {
        lemma_free(&p->r, p->pending);
        p->pending = lemma_copy(&p->r, a, b);
    }
    return PROVE_EQUAL;
}

static int is_proved(struct prover *p, const struct residual_list *a, const struct residual_list *b)
{
    return p->known.n && !p->parted && lemma_cache_has(&p->r, &p->known, a, b);
}

/* Prove lists that may be met again. */
static int prove_and_keep(struct prover *p, struct residual_list a, struct residual_list b, double weight, int deep)
{
    if (is_proved(p, &a, &b))
        return PROVE_EQUAL;
    struct lemma *known = p->parted ? NULL : lemma_copy(&p->r, &a, &b);
    size_t records = p->records;
    int status = prove(p, a, b, weight, deep);
    if (status == PROVE_EQUAL && p->records == records)
        lemma_cache_keep(&p->r, &p->known, known);
    else
        lemma_free(&p->r, known);
    return status;
}

/* The match with memory at both heads says no, which is proved here; then yes, left in place. */
static int ask(struct prover *p, struct residual_list *a, struct residual_list *b, double *weight, int deep)
{
    uint32_t key = guarded_at(p, a, 0)->arg;
    if (key & 1) {
        p->pair[a->v->rule] = b->v->rule;
        p->pair[b->v->rule] = a->v->rule;
    }
    if (!grow((void **)&p->outcomes, &p->outcomes_room, p->outcomes_n + 2, sizeof *p->outcomes))
        return PROVE_NO_MEMORY;
    p->outcomes[p->outcomes_n] = key;
    p->outcomes[p->outcomes_n + 1] = 0;
    p->outcomes_n += 2;
    int status = write_states(p, guarded_at(p, a, 0)->changes);
    if (status != PROVE_EQUAL)
        return status;
    size_t top = p->r.top;
    struct residual_list x = copy_list(p, a, NONE), y = copy_list(p, b, NONE);
    if (p->r.failed)
        return PROVE_NO_MEMORY;
    drop_head(&x);
    drop_head(&y);
    look_again(p, &x);
    look_again(p, &y);
    *weight /= 2;
    status = prove_and_keep(p, x, y, *weight, deep + 1);
    p->r.top = top;
    p->outcomes[p->outcomes_n - 1] = 1;
    struct residual_list *both[] = {a, b};
    for (int side = 0; side < 2; side++) {
        struct residual_item *item = both[side]->v;
        item->guarded = p->r.guarded[item->guarded].next;
        uint32_t n = p->r.guarded[item->guarded].n;
        item->open = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
        item->fresh = 1;
        look_again(p, both[side]);
    }
    return status;
}

/* The first items are the same: deal with them.  *left 0: nothing is left to prove. */
static int behead(struct prover *p, struct residual_list *a, struct residual_list *b, double *weight, int deep, int *left)
{
    *left = 1;
    if (a->v->open) {
        uint32_t test = residual_open_test(&p->r, a->v, 0);
        if (test == NONE) {
            look_again(p, a);
            look_again(p, b);
            return PROVE_EQUAL;
        }
        return cut(p, a, b, test, weight, deep, left);
    }
    if (enters(p, a, 0)) {
        *a = residual_expand(&p->r, a, 0);
        *b = residual_expand(&p->r, b, 0);
        return PROVE_EQUAL;
    }
    return guarded_at(p, a, 0)->kind == ACTION_EVENT ? ask(p, a, b, weight, deep) : happen(p, a, b);
}

/* `behead`; nothing is left where lists are met again that are known to be equal. */
static int behead_unknown(struct prover *p, struct residual_list *a, struct residual_list *b, double *weight, int deep, int *left)
{
    int status = behead(p, a, b, weight, deep, left);
    if (status == PROVE_EQUAL && *left && is_proved(p, a, b))
        *left = 0;
    return status;
}

/* Whether both heads ask the same match with memory or chance; PAIRS when only what was taken
 * for one memory before keeps them apart. */
enum alike { APART, ALIKE, PAIRED_OTHERWISE };

static enum alike ask_alike(struct prover *p, const struct residual_list *a, const struct residual_list *b)
{
    const struct guarded_action *x = guarded_at(p, a, 0), *y = guarded_at(p, b, 0);
    if (!x || !y || a->v->open || b->v->open || x->kind != ACTION_EVENT || y->kind != ACTION_EVENT || x->arg != y->arg)
        return APART;
    if (!(x->arg & 1))
        return ALIKE;
    uint32_t rule_a = a->v->rule, rule_b = b->v->rule;
    uint32_t to_b = p->pair[rule_a], to_a = p->pair[rule_b];
    if ((to_b != NONE && to_b != rule_b) || (to_a != NONE && to_a != rule_a))
        return p->strict ? APART : PAIRED_OTHERWISE;
    return ALIKE;
}

/* Move what this frame holds down to its own end of the stack. */
static void compact(struct prover *p, struct residual_list *a, struct residual_list *b, size_t base, size_t log_n)
{
    struct residual *r = &p->r;
    size_t size = (a->n + b->n) * sizeof *a->v;
    for (uint32_t dim = 0; dim < r->in.dims; dim++)
        size += sizeof(struct set) + 2 * (size_t)r->region[dim]->n * sizeof(uint32_t) + 16;
    if (r->top - base < 4 * size + (1 << 20) || p->history_n)
        return;
    unsigned char *saved = malloc(size);
    if (!saved)
        return; /* a saving, no more */
    size_t at = 0;
    memcpy(saved, a->v, a->n * sizeof *a->v), at += a->n * sizeof *a->v;
    memcpy(saved + at, b->v, b->n * sizeof *b->v), at += b->n * sizeof *b->v;
    /* The sets of this frame: those that it has set, as they are now. */
    size_t sets_at = at;
    for (uint32_t dim = 0; dim < r->in.dims; dim++) {
        int own = 0;
        for (size_t l = log_n; l < p->log_n && !own; l++)
            own = p->log[l].dim == dim;
        if (!own)
            continue;
        size_t bytes = sizeof(struct set) + 2 * (size_t)r->region[dim]->n * sizeof(uint32_t);
        memcpy(saved + at, r->region[dim], bytes), at += bytes;
    }
    r->top = base;
    size_t a_bytes = a->n * sizeof *a->v, b_bytes = b->n * sizeof *b->v;
    a->v = residual_push(r, a_bytes + sizeof *a->v), memcpy(a->v, saved, a_bytes);
    b->v = residual_push(r, b_bytes + sizeof *b->v), memcpy(b->v, saved + a_bytes, b_bytes);
    /* The log keeps, of each dimension, the set that was there before this frame. */
    size_t kept = log_n;
    for (size_t l = log_n; l < p->log_n; l++) {
        int seen = 0;
        for (size_t k = log_n; k < kept && !seen; k++)
            seen = p->log[k].dim == p->log[l].dim;
        if (!seen)
            p->log[kept++] = p->log[l];
    }
    p->log_n = kept;
    at = sets_at;
    for (uint32_t dim = 0; dim < r->in.dims; dim++) {
        int own = 0;
        for (size_t l = log_n; l < kept && !own; l++)
            own = p->log[l].dim == dim;
        if (!own)
            continue;
        struct set head;
        memcpy(&head, saved + at, sizeof head);
        size_t bytes = sizeof(struct set) + 2 * (size_t)head.n * sizeof(uint32_t);
        struct set *set = residual_push(r, bytes);
        memcpy(set, saved + at, bytes), at += bytes;
        r->region[dim] = set;
    }
    free(saved);
}

/* Let an effect at the head of one list alone happen, to see what the packet comes to, when all
 * differences are wanted; one that changes nothing a test reads. */
static int part(struct prover *p, struct residual_list *list, uint32_t *rule)
{
    const struct guarded_action *guarded = guarded_at(p, list, 0);
    if (p->most == 1 || !guarded || guarded->kind != ACTION_EFFECT || guarded->writes)
        return 0;
    if (*rule == NONE)
        *rule = list->v->rule;
    p->parted = 1;
    drop_head(list);
    return 1;
}

static int step(struct prover *p, struct residual_list *a, struct residual_list *b, double *weight, int deep, int *left)
{
    struct mismatch x, y;
    *left = 0;
    if (residual_same(&p->r, a, b, &x, &y, may_pair, p)) {
        if (p->parted)
            return record(p, NONE, NONE, 1);
        if (!p->strict && has_once(&p->r, a) && !note_pairs(p, a, b))
            return PROVE_PAIRS;
        return PROVE_EQUAL;
    }
    if (p->r.class.may_drop && !p->parted && !y.passed && drops(p, b, y.at))
        return PROVE_EQUAL;
    *left = 1;
    if (enters(p, a, x.at)) {
        *a = residual_expand(&p->r, a, x.at);
        return PROVE_EQUAL;
    }
    if (enters(p, b, y.at)) {
        *b = residual_expand(&p->r, b, y.at);
        return PROVE_EQUAL;
    }
    uint32_t test = choose(p, a, b, &x, &y);
    if (test != NONE) {
        int status = cut(p, a, b, test, weight, deep, left);
        if (status == PROVE_EQUAL && *left && x.at == 0 && y.at == 0)
            *left = !is_proved(p, a, b);
        return status;
    }
    if (x.at > 0 || y.at > 0)
        return behead_unknown(p, a, b, weight, deep, left);
    if ((a->n && a->v->open) || (b->n && b->v->open)) {
        look_again(p, a);
        look_again(p, b);
        return PROVE_EQUAL;
    }
    enum alike alike = ask_alike(p, a, b);
    if (alike == ALIKE) {
        int status = ask(p, a, b, weight, deep);
        *left = status != PROVE_EQUAL || !is_proved(p, a, b);
        return status;
    }
    if (alike == PAIRED_OTHERWISE)
        return PROVE_PAIRS;
    if (part(p, a, &p->parted_a) || part(p, b, &p->parted_b))
        return PROVE_EQUAL;
    *left = 0;
    return record(p, rule_at(a, x.at), rule_at(b, y.at), 0);
}

static int prove(struct prover *p, struct residual_list a, struct residual_list b, double weight, int deep)
{
    size_t base = p->r.top, log_n = p->log_n, history_n = p->history_n, outcomes_n = p->outcomes_n;
    uint32_t parted_a = p->parted_a, parted_b = p->parted_b;
    struct lemma *pending = p->pending;
    size_t records = p->records;
    int status, left = 1, parted = p->parted;
    p->pending = NULL;
    do {
        status = out_of_budget(p, deep);
        if (status == PROVE_EQUAL)
            status = step(p, &a, &b, &weight, deep, &left);
        if (status == PROVE_EQUAL && p->r.failed)
            status = PROVE_NO_MEMORY;
        if (left && status == PROVE_EQUAL)
            compact(p, &a, &b, base, log_n);
    } while (left && status == PROVE_EQUAL);
    if (status == PROVE_EQUAL && !p->in_lemma) {
        p->done += weight;
        p->regions++;
    }
    if (status == PROVE_EQUAL && p->records == records)
        lemma_cache_keep(&p->r, &p->known, p->pending);
    else
        lemma_free(&p->r, p->pending);
    p->pending = pending;
    put_back(p, log_n);
    p->parted = parted, p->parted_a = parted_a, p->parted_b = parted_b;
    p->history_n = history_n;
    p->outcomes_n = outcomes_n;
    p->r.top = base;
    return status;
}

/* ---- chains by themselves ---- */

static void start_region(struct prover *p)
{
    memcpy(p->r.region, p->first, p->r.in.dims * sizeof *p->first);
    memset(p->epoch, 0, p->r.in.dims * sizeof *p->epoch);
    p->log_n = p->history_n = p->outcomes_n = 0;
    p->parted = 0, p->parted_a = p->parted_b = NONE;
}

/* Hold user chain b against its partner a; from here on they count as equal if they are. */
static int hold_together(struct prover *p, uint32_t a, uint32_t b)
{
    if (p->same) {
        p->r.canon[b] = p->r.canon[a];
        return PROVE_EQUAL;
    }
    if (p->strict && (p->r.chain_once[a] || p->r.chain_once[b]))
        return PROVE_EQUAL; /* its rules may never be asked */
    size_t found = p->found_n, records = p->records, most = p->most;
    p->in_lemma = 1;
    p->most = 1;
    p->end = p->steps + (p->bound ? p->bound : LEMMA_STEPS);
    start_region(p);
    size_t top = p->r.top;
    struct residual_list x = residual_list(&p->r, a, NONE), y = residual_list(&p->r, b, NONE);
    int status = p->r.failed ? PROVE_NO_MEMORY : prove(p, x, y, 0, 0);
    p->r.top = top;
    p->in_lemma = 0;
    p->end = 0;
    p->found_n = found, p->records = records, p->most = most;
    if (status == PROVE_EQUAL)
        p->r.canon[b] = p->r.canon[a];
    int fatal = status == PROVE_NO_TIME || status == PROVE_NO_MEMORY || status == PROVE_STOPPED;
    if (p->bound && status == PROVE_DIFFER)
        return PROVE_TOO_DEEP;
    return fatal || p->bound ? status : PROVE_EQUAL;
}

static int make_ready(struct prover *p, uint32_t chain, int deep);

/* *all: whether all that the chain enters is read then.  It is not where the two programs nest
 * chains of the same names in other orders: some are being read, further up. */
static int make_entered_ready(struct prover *p, uint32_t chain, int deep, int *all)
{
    const struct prove_input *in = &p->r.in;
    for (uint32_t rule = in->chain_start[chain]; rule < in->chain_end[chain]; rule++) {
        const uint32_t *action = in->rule_action + 3 * (size_t)rule;
        if (action[0] != PROVE_JUMP && action[0] != PROVE_GOTO)
            continue;
        int status = make_ready(p, action[1], deep + 1);
        if (status != PROVE_EQUAL)
            return status;
        *all &= p->r.chain_state[action[1]] == LOW_DONE;
    }
    return PROVE_EQUAL;
}

/* Read the chain and all that it enters; hold those with a partner against it. */
static int make_ready(struct prover *p, uint32_t chain, int deep)
{
    struct residual *r = &p->r;
    if (r->chain_state[chain] != LOW_NOT)
        return PROVE_EQUAL;
    if (deep > DEEPEST)
        return PROVE_TOO_DEEP;
    r->chain_state[chain] = LOW_BUSY;
    int all = 1, all_of_partner = 1;
    int status = make_entered_ready(p, chain, deep, &all);
    uint32_t partner = r->in.chain_partner[chain];
    int fresh = partner != NONE && r->chain_state[partner] == LOW_NOT;
    if (status == PROVE_EQUAL && fresh) {
        r->chain_state[partner] = LOW_BUSY;
        status = make_entered_ready(p, partner, deep, &all_of_partner);
        if (status == PROVE_EQUAL)
            residual_lower(r, partner);
        if (!all_of_partner)
            r->chain_state[partner] = LOW_APART;
    }
    if (status != PROVE_EQUAL)
        return status;
    residual_lower(r, chain);
    if (!all)
        r->chain_state[chain] = LOW_APART;
    if (r->failed)
        return PROVE_NO_MEMORY;
    if (!fresh || !all || !all_of_partner)
        return PROVE_EQUAL;
    uint32_t first = chain < r->in.chains_before ? chain : partner;
    return hold_together(p, first, first == chain ? partner : chain);
}

/* ---- a program against itself ---- */

void prover_same(struct prover *p)
{
    p->same = 1;
    reset_pairs(p);
    p->altered[0] = p->altered[1] = NONE;
}

int prover_alter(struct prover *p, uint32_t rule_a, uint32_t rule_b, uint32_t alteration,
    const uint32_t *touched, size_t count)
{
    struct residual *r = &p->r;
    uint32_t *guarded_a = &r->rule_guarded[rule_a], *guarded_b = &r->rule_guarded[rule_b];
    r->failed = 0;
    if (alteration == PROVE_REMOVE) {
        *guarded_a = *guarded_b = NONE;
        return PROVE_EQUAL;
    }
    p->altered[0] = rule_a, p->altered[1] = rule_b;
    p->saved[0] = *guarded_a, p->saved[1] = *guarded_b;
    for (size_t c = 0; c < count; c++)
        r->touched[touched[c]] = 1;
    if (alteration == PROVE_LEAVE_OUT) {
        *guarded_b = NONE;
    } else if (*guarded_a != NONE) {
        /* Two verdicts that no rule has. */
        *guarded_a = residual_decide(r, *guarded_a, NONE - 1);
        *guarded_b = residual_decide(r, *guarded_b, NONE - 2);
    }
    return r->failed ? PROVE_NO_MEMORY : PROVE_EQUAL;
}

void prover_restore(struct prover *p)
{
    for (int side = 0; side < 2; side++)
        if (p->altered[side] != NONE)
            p->r.rule_guarded[p->altered[side]] = p->saved[side];
    p->altered[0] = p->altered[1] = NONE;
    memset(p->r.touched, 0, p->r.in.chains);
}

size_t prover_front(struct prover *p, uint32_t chain, uint32_t rule, const uint32_t *sets, size_t words,
    uint32_t *rules, size_t room)
{
    size_t n = 0;
    p->r.top = p->class_top;
    p->r.failed = 0;
    start_region(p);
    if (!read_sets(p, p->r.region, sets, words))
        return 0;
    struct residual_list list = residual_list(&p->r, chain, NONE);
    for (size_t at = 0; !p->r.failed && at < list.n && n < room && list.v[at].rule != rule; at++)
        rules[n++] = list.v[at].rule;
    return n;
}

int prover_run(struct prover *p, uint32_t a, uint32_t b, uint32_t end_a, uint32_t end_b,
    const uint32_t *sets, size_t words, double seconds, int strict, size_t most)
{
    p->deadline = seconds > 0 ? now() + seconds : 0;
    p->done = 0;
    p->found_n = p->records = 0;
    p->most = most;
    p->r.failed = 0;
    lemma_cache_clear(&p->r, &p->known);
    if (p->strict != strict) {
        p->strict = strict;
        reset_pairs(p);
    }
    p->r.top = p->class_top;
    int status = make_ready(p, a, 0);
    if (status == PROVE_EQUAL)
        status = make_ready(p, b, 0);
    if (status != PROVE_EQUAL)
        return status;
    start_region(p);
    if (!read_sets(p, p->r.region, sets, words))
        return PROVE_NO_MEMORY;
    struct residual_list x = residual_list(&p->r, a, end_a), y = residual_list(&p->r, b, end_b);
    if (p->r.failed)
        return PROVE_NO_MEMORY;
    p->end = p->bound ? p->steps + p->bound : 0;
    status = prove(p, x, y, 1, 0);
    p->end = 0;
    return status == PROVE_EQUAL && p->records ? PROVE_DIFFER : status;
}
