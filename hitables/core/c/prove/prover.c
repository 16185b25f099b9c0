/* The interface of the prover: classes, chains, runs, and alterations of one program.
 *
 * Idea: user chains of one name are compared by themselves first, for any packet of the class; chains that
 * prove equal then count as equal wherever they are entered.  Pairs that are proved behind a match with
 * memory or a write are kept for the run (lemmas.c).
 * Cost: that of the proofs (prove.c); a class reads each rule once.
 * Invariants: r.canon maps a chain to another only after their equality was proved in this class, or if both
 * programs are one (prover_same): then altered chains are told apart by r.touched.  After a run that ended
 * early each chain is read, with all that it enters, or counts as not read.
 * Memory: the handle owns the budget from which everything else comes, so it is allocated by itself.
 * Threading: one thread per prover; prover_stop may be called from any.
 */
#include "prove_internal.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "reorder_internal.h"

/* Steps of the proof of a chain by itself; and of one that enters chains which differ.  Such chains seldom
 * are equal, and where many enter one another, each would be read with all behind it. */
enum { LEMMA_STEPS = 200000, LEMMA_STEPS_BEHIND = 50 };
enum { FIRST_AIM = 2 }; /* cuts of both lists as they were at first */

struct prover *prover_new(const struct prove_input *input, size_t memory)
{
    struct prover *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    if (!residual_open(&p->r, input, memory)) {
        prover_free(p);
        return NULL;
    }
    struct arena *arena = p->r.input;
    p->first = arena_take(arena, (input->dims + 1) * sizeof *p->first);
    p->epoch = arena_take(arena, (input->dims + 1) * sizeof *p->epoch);
    p->pair = arena_take(arena, (input->rules + 1) * sizeof *p->pair);
    if (!p->first || !p->epoch || !p->pair) {
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
    struct budget *budget = p->r.budget;
    lemma_cache_clear(&p->r, &p->lemmas);
    if (budget) {
        budget_give(budget, p->log, p->log_room * sizeof *p->log);
        budget_give(budget, p->history, p->history_room * sizeof *p->history);
        budget_give(budget, p->outcomes, p->outcomes_room * sizeof *p->outcomes);
        budget_give(budget, p->acts, p->acts_room * sizeof *p->acts);
        budget_give(budget, p->behind, p->behind_room * sizeof *p->behind);
        lemma_free(&p->r, p->behind_lemma);
        budget_give(budget, p->made, p->made_room * sizeof *p->made);
        budget_give(budget, p->differences, p->differences_room * sizeof *p->differences);
    }
    residual_close(&p->r);
    free(p);
}

void prover_stop(struct prover *p)
{
    p->stopped = true;
}

const uint32_t *prover_found(const struct prover *p, size_t *words)
{
    *words = p->differences_n;
    return p->differences;
}

void prover_bound(struct prover *p, uint64_t steps)
{
    p->bound = steps;
}

void prover_bound_items(struct prover *p, uint64_t items)
{
    p->items_bound = items;
}

enum prove_status prover_ordered(struct prover *p, const struct order *order)
{
    return reorder_holds(&p->r, order, &p->stopped);
}

const uint32_t *prover_pairs(const struct prover *p)
{
    return p->pair;
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

uint64_t prover_looked_at(const struct prover *p)
{
    return p->r.looked_at + p->items;
}

size_t prover_bytes(const struct prover *p)
{
    return p->r.peak + residual_bytes(&p->r);
}

void prover_follow(struct prover *p, bool follow)
{
    p->follows = follow;
}

/* Read dim, count, low, high, ... (dim NONE: each fact); false when memory is exhausted. */
static bool read_sets(struct prover *p, const struct set **into, const uint32_t *words, size_t count)
{
    for (size_t at = 0; at < count; at += 2 + 2 * (size_t)words[at + 1]) {
        uint32_t n = words[at + 1];
        struct set *set = residual_push(&p->r, sizeof *set + 2 * (size_t)n * sizeof *set->ends);
        if (!set)
            return false;
        set->n = n;
        memcpy(set->ends, words + at + 2, 2 * (size_t)n * sizeof *set->ends);
        if (words[at] != NONE)
            into[words[at]] = set;
        for (uint32_t fact = FIELDS; words[at] == NONE && fact < p->r.in.dims; fact++)
            into[fact] = set;
    }
    return true;
}

enum prove_status prover_enter(struct prover *p, const struct prove_class *class, const uint32_t *sets,
                               size_t words)
{
    residual_enter(&p->r, class);
    lemma_free(&p->r, p->behind_lemma);
    p->behind_lemma = NULL;
    p->r.top = 0;
    p->r.failed = false;
    for (uint32_t dim = 0; dim < p->r.in.dims; dim++)
        if (!(p->first[dim] = prover_whole(p, dim)))
            return PROVE_NO_MEMORY;
    if (!read_sets(p, p->first, sets, words))
        return PROVE_NO_MEMORY;
    p->class_top = p->r.top;
    return PROVE_EQUAL;
}

static void start_region(struct prover *p)
{
    memcpy(p->r.region, p->first, p->r.in.dims * sizeof *p->first);
    memset(p->epoch, 0, p->r.in.dims * sizeof *p->epoch);
    p->log_n = p->history_n = p->outcomes_n = 0;
    p->parted = false, p->acts_n = 0;
}

/* Forget the pairs of memories; of one program against itself each rule is paired with itself: where
 * another rule takes its place, that has a memory of its own. */
static void reset_pairs(struct prover *p)
{
    uint32_t half = p->r.in.rules / 2;
    for (uint32_t rule = 0; rule < p->r.in.rules; rule++)
        p->pair[rule] = !p->same ? NONE : rule < half ? rule + half : rule - half;
}

/* ---- chains by themselves ---- */

/* Whether the chain enters one that was not proved equal to its partner. */
static bool enters_unequal(const struct prover *p, uint32_t chain)
{
    const struct prove_input *in = &p->r.in;
    for (uint32_t rule = in->chain_start[chain]; rule < in->chain_end[chain]; rule++) {
        const uint32_t *action = in->rule_action + 3 * (size_t)rule;
        if (action[0] != PROVE_JUMP && action[0] != PROVE_GOTO)
            continue;
        uint32_t partner = in->chain_partner[action[1]];
        if (partner != NONE && p->r.canon[partner] != p->r.canon[action[1]])
            return true;
    }
    return false;
}

/* Whether user chain b decides every packet of the class as a does, whatever calls it. */
static enum prove_status prove_chains(struct prover *p, uint32_t a, uint32_t b)
{
    size_t differences = p->differences_n, records = p->records, most = p->most;
    p->in_lemma = true;
    p->most = 1;
    uint64_t steps = enters_unequal(p, a) && enters_unequal(p, b) ? LEMMA_STEPS_BEHIND : LEMMA_STEPS;
    p->end = p->steps + (p->bound ? p->bound : steps);
    start_region(p);
    size_t top = p->r.top;
    struct residual_list x = residual_list(&p->r, a, NONE), y = residual_list(&p->r, b, NONE);
    enum prove_status status = p->r.failed ? PROVE_NO_MEMORY : prove(p, x, y, 0, 0);
    p->r.top = top;
    p->in_lemma = false;
    p->end = 0;
    p->differences_n = differences, p->records = records, p->most = most;
    return status;
}

static enum prove_status make_ready(struct prover *p, uint32_t chain, int deep);

/* Compare user chain b with its partner a; if they are equal they count as equal from now on. */
static enum prove_status compare_chains(struct prover *p, uint32_t a, uint32_t b, int deep)
{
    if (p->same) {
        p->r.canon[b] = p->r.canon[a];
        return PROVE_EQUAL;
    }
    if (p->strict && (p->r.chain_once[a] || p->r.chain_once[b]))
        return PROVE_EQUAL; /* its rules may be unreachable */
    enum prove_status status = prove_chains(p, a, b);
    uint32_t whole = p->r.in.chain_whole[a];
    if (whole != NONE && p->r.class.may_drop && (status == PROVE_DIFFER || status == PROVE_TOO_DEEP)) {
        status = make_ready(p, whole, deep + 1);
        if (status == PROVE_EQUAL)
            status = prove_chains(p, whole, b);
    }
    if (status == PROVE_EQUAL)
        p->r.canon[b] = p->r.canon[a];
    bool fatal = status == PROVE_NO_TIME || status == PROVE_NO_MEMORY || status == PROVE_STOPPED;
    return fatal || p->bound ? status : PROVE_EQUAL;
}

/* *all: whether all chains that this one enters are read then.  They are not where the two programs nest
 * chains of the same names in other orders: some are still being read, in callers. */
static enum prove_status make_entered_ready(struct prover *p, uint32_t chain, int deep, bool *all)
{
    const struct prove_input *in = &p->r.in;
    for (uint32_t rule = in->chain_start[chain]; rule < in->chain_end[chain]; rule++) {
        const uint32_t *action = in->rule_action + 3 * (size_t)rule;
        if (action[0] != PROVE_JUMP && action[0] != PROVE_GOTO)
            continue;
        enum prove_status status = make_ready(p, action[1], deep + 1);
        if (status != PROVE_EQUAL)
            return status;
        *all &= p->r.chain_state[action[1]] == LOW_DONE;
    }
    return PROVE_EQUAL;
}

/* make_ready of a chain that is not read yet.  *fresh: whether its partner was not, either. */
static enum prove_status read_and_compare(struct prover *p, uint32_t chain, int deep, bool *fresh)
{
    struct residual *r = &p->r;
    bool all = true, all_of_partner = true;
    enum prove_status status = make_entered_ready(p, chain, deep, &all);
    uint32_t partner = r->in.chain_partner[chain];
    *fresh = partner != NONE && r->chain_state[partner] == LOW_NOT;
    if (status == PROVE_EQUAL && *fresh) {
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
    if (!*fresh || !all || !all_of_partner)
        return PROVE_EQUAL;
    uint32_t first = chain < r->in.chains_before ? chain : partner;
    return compare_chains(p, first, first == chain ? partner : chain, deep);
}

/* Read the chain and all that it enters; compare those with a partner with it.  A chain that was not done
 * with when the time (or another limit) was up counts as not read. */
static enum prove_status make_ready(struct prover *p, uint32_t chain, int deep)
{
    uint8_t *state = p->r.chain_state;
    if (state[chain] != LOW_NOT)
        return PROVE_EQUAL;
    if (deep > DEEPEST)
        return PROVE_TOO_DEEP;
    state[chain] = LOW_BUSY;
    bool fresh = false;
    enum prove_status status = read_and_compare(p, chain, deep, &fresh);
    if (status != PROVE_EQUAL) {
        state[chain] = LOW_NOT;
        if (fresh)
            state[p->r.in.chain_partner[chain]] = LOW_NOT;
    }
    return status;
}

/* make_ready of both chains of a run.  When it ends early, chains that are apart may enter some that were
 * not read, so they count as not read, too. */
static enum prove_status make_both_ready(struct prover *p, uint32_t a, uint32_t b)
{
    enum prove_status status = make_ready(p, a, 0);
    if (status == PROVE_EQUAL)
        status = make_ready(p, b, 0);
    for (uint32_t chain = 0; status != PROVE_EQUAL && chain < p->r.in.chains; chain++)
        if (p->r.chain_state[chain] == LOW_APART)
            p->r.chain_state[chain] = LOW_NOT;
    return status;
}

/* ---- a program against itself ---- */

void prover_same(struct prover *p)
{
    p->same = true;
    reset_pairs(p);
    p->altered[0] = p->altered[1] = NONE;
}

enum prove_status prover_alter(struct prover *p, uint32_t rule_a, uint32_t rule_b, uint32_t alteration,
                               const uint32_t *touched, size_t count)
{
    struct residual *r = &p->r;
    uint32_t *guarded_a = &r->rule_guarded[rule_a], *guarded_b = &r->rule_guarded[rule_b];
    r->failed = false;
    if (alteration == PROVE_REMOVE) {
        *guarded_a = *guarded_b = NONE;
        bool end = true;
        for (size_t c = 0; c < count; c++) {
            uint32_t start = r->in.chain_start[touched[c]], behind = r->in.chain_end[touched[c]];
            if (rule_a >= start && rule_a < behind && r->chain_ends[touched[c]])
                end &= residual_ends(r, touched[c]);
        }
        for (size_t c = 0; c < count && !end; c++)
            r->chain_ends[touched[c]] = 0;
        return PROVE_EQUAL;
    }
    p->altered[0] = rule_a, p->altered[1] = rule_b;
    p->saved[0] = *guarded_a, p->saved[1] = *guarded_b;
    for (size_t c = 0; c < count; c++)
        r->touched[touched[c]] = 1;
    if (alteration == PROVE_LEAVE_OUT) {
        *guarded_b = NONE;
        r->left_out = rule_b;
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
    p->altered[0] = p->altered[1] = p->r.left_out = NONE;
    memset(p->r.touched, 0, p->r.in.chains);
}

enum prove_status prover_behind(struct prover *p, uint32_t returns, const uint32_t *chains, size_t words)
{
    p->returns = returns;
    p->behind_n = 0;
    if (!prover_grow(p, (void **)&p->behind, &p->behind_room, words, sizeof *p->behind))
        return PROVE_NO_MEMORY;
    if (words)
        memcpy(p->behind, chains, words * sizeof *chains);
    p->behind_n = words / 3;
    return PROVE_EQUAL;
}

size_t prover_front(struct prover *p, uint32_t chain, uint32_t rule, const uint32_t *sets, size_t words,
                    uint32_t *rules, size_t room)
{
    size_t n = 0;
    p->r.top = p->class_top;
    p->r.failed = false;
    start_region(p);
    if (!read_sets(p, p->r.region, sets, words))
        return SIZE_MAX;
    p->r.plain = true; /* packets meet the jumps to idle chains, too */
    struct residual_list list = residual_list(&p->r, chain, NONE);
    p->r.plain = false;
    if (p->r.failed)
        return SIZE_MAX;
    size_t end = 0, first = 0;
    while (end < list.n && list.v[end].rule < rule)
        end++;
    if (rule != NONE && end > room)
        first = end - room; /* the last one may decide all */
    for (size_t at = first; at < end && n < room; at++)
        rules[n++] = list.v[at].rule;
    return n;
}

enum prove_status prover_run(struct prover *p, uint32_t a, uint32_t b, uint32_t end_a, uint32_t end_b,
                             const uint32_t *sets, size_t words, double seconds, double processor,
                             bool strict, size_t most)
{
    p->deadline = seconds > 0 ? prover_clock() + seconds : 0;
    p->processor_deadline = processor > 0 ? prover_processor_clock() + processor : 0;
    p->done = 0;
    p->differences_n = p->records = 0;
    p->most = most;
    p->r.failed = false;
    lemma_cache_clear(&p->r, &p->lemmas);
    if (p->strict != strict) {
        p->strict = strict;
        reset_pairs(p);
    }
    p->r.top = p->class_top;
    enum prove_status status = make_both_ready(p, a, b);
    if (status != PROVE_EQUAL)
        return status;
    start_region(p);
    size_t pairs = p->same || most > 1 ? 0 : p->r.in.rules * sizeof *p->pair;
    uint32_t *before = residual_push(&p->r, pairs);
    if (!before || !read_sets(p, p->r.region, sets, words))
        return PROVE_NO_MEMORY;
    memcpy(before, p->pair, pairs);
    struct residual_list x = residual_list(&p->r, a, end_a), y = residual_list(&p->r, b, end_b);
    if (p->r.failed)
        return PROVE_NO_MEMORY;
    p->end = p->bound ? p->steps + p->bound : 0;
    p->items_end = p->items_bound ? p->items + p->items_bound : 0;
    p->began = p->items;
    p->next_aim = p->items + FIRST_AIM * (uint64_t)(x.n + y.n);
    status = prove(p, x, y, 1, 0);
    p->end = p->items_end = 0;
    if (status == PROVE_DIFFER)
        memcpy(p->pair, before, pairs); /* what was taken for one on the way to a difference may be two */
    return status == PROVE_EQUAL && p->records ? PROVE_DIFFER : status;
}
