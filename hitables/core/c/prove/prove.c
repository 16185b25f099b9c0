/* The proof that two lists of rules decide every packet of a region alike.
 *
 * Idea: compare the residual lists of the region (residual.c).  If they are the same the region is proved.
 * Else the first items that differ select the next step: inline the chain that one surely enters; cut the
 * region by one of their tests; or, when both are decided, process the head of the lists: cut by it, apply
 * its effect in both, or let its match with memory answer no, then yes.  When both heads are decided and
 * differ, so do the programs, for every packet of the region.
 * Cost: a tree against the list that it was made of takes about as long as building the tree.
 * Invariant: PROVE_EQUAL is returned only when the proved regions tile the whole one.
 * Threading: one thread, but for prover_stop.
 */
#include "prove_internal.h"

#include <string.h>

/* ---- rules with a memory of their own ---- */

/* Whether the two rules may share one memory.  One rule does, which both lists come to where chains of one
 * program are chains of the other, too (hitables/verify/third_program.py). */
static bool may_pair(void *context, uint32_t rule_a, uint32_t rule_b)
{
    struct prover *p = context;
    if (rule_a == rule_b)
        return true;
    uint32_t a = p->pair[rule_a], b = p->pair[rule_b];
    if (p->strict)
        return a == rule_b && b == rule_a; /* no two are taken for one before they met at the head */
    return (a == NONE || a == rule_b) && (b == NONE || b == rule_a);
}

static void pair_up(struct prover *p, uint32_t rule_a, uint32_t rule_b)
{
    if (rule_a == rule_b)
        return;
    p->pair[rule_a] = rule_b;
    p->pair[rule_b] = rule_a;
}

/* Pair the memories of lists that are equal; false when a rule would get two partners.  A strict prover has
 * paired them where it met them. */
static bool note_pairs(struct prover *p, const struct residual_list *a, const struct residual_list *b)
{
    size_t j = 0;
    if (p->strict)
        return true;
    for (size_t i = 0; i < a->n; i++) {
        if (a->v[i].guarded == NONE)
            continue;
        while (j < b->n && b->v[j].guarded == NONE)
            j++;
        if (j == b->n)
            return true;
        if (p->r.guarded[a->v[i].guarded].once) {
            if (!may_pair(p, a->v[i].rule, b->v[j].rule))
                return false;
            pair_up(p, a->v[i].rule, b->v[j].rule);
        }
        j++;
    }
    return true;
}

/* ---- differences ---- */

static bool put_words(struct prover *p, const uint32_t *words, size_t count)
{
    if (!prover_grow(p, (void **)&p->differences, &p->differences_room, p->differences_n + count,
                     sizeof *p->differences))
        return false;
    if (count)
        memcpy(p->differences + p->differences_n, words, count * sizeof *words);
    p->differences_n += count;
    return true;
}

/* Whether the set restricts nothing that a reader of the record needs: a fact that may hold or not. */
static bool is_open_fact(const struct prover *p, uint32_t dim, const struct set *set)
{
    return dim >= FIELDS && set->n == 1 && set->ends[0] == 0 && set->ends[1] == p->r.in.dim_size[dim] - 1;
}

static bool put_set(struct prover *p, const struct past_set *past)
{
    if (past->effect == NONE && is_open_fact(p, past->dim, past->set))
        return true;
    p->differences[p->sets_at]++;
    uint32_t head[] = {past->dim, past->epoch, past->effect, past->set->n};
    return put_words(p, head, 4) && put_words(p, past->set->ends, 2 * (size_t)past->set->n);
}

static uint32_t rule_at(const struct residual_list *list, size_t at)
{
    return at < list->n ? list->v[at].rule : NONE;
}

static uint32_t verdict_at(const struct prover *p, const struct residual_list *list, size_t at)
{
    if (at >= list->n)
        return list->end;
    const struct guarded_action *guarded = prover_at(p, list, at);
    return !list->v[at].open && guarded->kind == ACTION_VERDICT ? guarded->arg : NONE;
}

static uint32_t first_act(const struct act_alone *alone)
{
    return alone->rule == NONE ? NONE : alone->rule << 1 | alone->acts;
}

/* Append a record: length, rule of a, rule of b (NONE: the end of the list), rules of a and of b that acted
 * in one program alone (rule << 1 | 0 if it only asked a memory; NONE: none), the verdicts of a and of b
 * (NONE: not known, or what follows those rules is the same), flags (1: a, 2: b did more than that rule did;
 * 4: both did the same in another order, and the rules are the first where it differs), number of sets, sets
 * (dim, epoch, effect that made known values of it then or NONE, n, low, high, ...; attributes that may have
 * any value are left out), number of evaluations, (key << 1 | memory of the rule itself, answer |
 * enum asked << 1)... */
static enum prove_status record(struct prover *p, uint32_t rule_a, uint32_t rule_b, uint32_t verdict_a,
                                uint32_t verdict_b)
{
    size_t start = p->differences_n;
    struct acts_apart apart;
    prover_acts_apart(p, &apart);
    uint32_t flags =
        (apart.a.count > 1 ? 1 : 0) | (apart.b.count > 1 ? 2 : 0) | (apart.reordered ? 4 : 0);
    uint32_t head[] = {
        0, rule_a, rule_b, first_act(&apart.a), first_act(&apart.b), verdict_a, verdict_b, flags, 0,
    };
    bool fine = put_words(p, head, sizeof head / sizeof *head);
    p->sets_at = p->differences_n - 1;
    for (size_t h = 0; fine && h < p->history_n; h++)
        fine = put_set(p, &p->history[h]);
    for (uint32_t dim = 0; fine && dim < p->r.in.dims; dim++)
        fine = put_set(p, &(struct past_set){dim, p->epoch[dim], p->r.region[dim], NONE});
    uint32_t asked = (uint32_t)(p->outcomes_n / 2);
    fine = fine && put_words(p, &asked, 1) && put_words(p, p->outcomes, p->outcomes_n);
    if (!fine) {
        p->differences_n = start;
        return PROVE_NO_MEMORY;
    }
    p->differences[start] = (uint32_t)(p->differences_n - start);
    return ++p->records < p->most ? PROVE_EQUAL : PROVE_DIFFER;
}

/* ---- the search ---- */

/* Inline the chain that the item surely enters; false when it enters none.  One that is proved equal to a
 * chain of the other program may wait (*proved* false): the other list may come to enter that chain, too, but
 * not by a rule that was left out of it. */
static bool enter_chain(struct prover *p, struct residual_list *list, size_t at, bool proved)
{
    if (!prover_enters(p, list, at))
        return false;
    uint32_t chain = prover_at(p, list, at)->arg, partner = p->r.in.chain_partner[chain];
    bool left_out = p->r.left_out != NONE && list->v[at].rule == p->altered[0];
    if (!proved && partner != NONE && p->r.canon[partner] == chain && !p->r.touched[chain] && !left_out)
        return false;
    *list = residual_expand(&p->r, list, at);
    return true;
}

/* The list surely drops the packet at this place. */
static bool drops(const struct prover *p, const struct residual_list *list, size_t at)
{
    return verdict_at(p, list, at) == p->r.in.drop;
}

static uint32_t test_at(const struct prover *p, const struct residual_list *list,
                        const struct mismatch *mismatch)
{
    if (mismatch->at >= list->n || !list->v[mismatch->at].open)
        return NONE;
    return residual_open_test(&p->r, &list->v[mismatch->at], mismatch->blocked);
}

static bool is_dispatch(const struct prover *p, const struct residual_list *list, size_t at)
{
    const struct guarded_action *guarded = prover_at(p, list, at);
    return guarded && (guarded->kind == ACTION_JUMP || guarded->kind == ACTION_GOTO);
}

/* The test to cut by where the lists differ: preferably that of a jump, since trees dispatch by jumps; then
 * that of the list which has items that the other lacks, behind which both go on alike. */
static uint32_t choose(const struct prover *p, const struct residual_list *a, const struct residual_list *b,
                       const struct mismatch *x, const struct mismatch *y)
{
    uint32_t of_a = test_at(p, a, x), of_b = test_at(p, b, y);
    if (of_a == NONE || of_b == NONE)
        return of_a == NONE ? of_b : of_a;
    if (is_dispatch(p, a, x->at) != is_dispatch(p, b, y->at))
        return is_dispatch(p, a, x->at) ? of_a : of_b;
    size_t more_in_a = prover_distance(a, x->at, &b->v[y->at]);
    size_t more_in_b = prover_distance(b, y->at, &a->v[x->at]);
    if (more_in_a != more_in_b)
        return more_in_b == 0 || (more_in_a && more_in_a < more_in_b) ? of_a : of_b;
    if (a->n - x->at != b->n - y->at)
        return b->n - y->at < a->n - x->at ? of_b : of_a;
    return __builtin_popcountll(b->v[y->at].open) < __builtin_popcountll(a->v[x->at].open) ? of_b : of_a;
}

/* Cut the region by a test: prove the inside, and leave the outside in place; *left: whether there is one. */
static enum prove_status cut(struct prover *p, struct residual_list *a, struct residual_list *b,
                             uint32_t test, double *weight, int deep, bool *left)
{
    struct residual *r = &p->r;
    uint32_t dim = r->in.test_dim[test];
    const struct set *set = r->region[dim];
    size_t top = r->top;
    p->items += a->n + b->n;
    struct set *outside = residual_cut(r, set, test, false);
    size_t kept = r->top;
    struct set *inside = residual_cut(r, set, test, true);
    if (!outside || !inside)
        return PROVE_NO_MEMORY;
    enum prove_status status = PROVE_EQUAL;
    if (inside->n) {
        double share = outside->n ? *weight / 2 : *weight;
        *weight -= share;
        r->region[dim] = inside;
        struct residual_list x = prover_copy(p, a, dim), y = prover_copy(p, b, dim);
        status = r->failed ? PROVE_NO_MEMORY : prove(p, x, y, share, deep + 1);
        r->region[dim] = set;
    }
    *left = outside->n != 0;
    r->top = *left ? kept : top;
    if (status == PROVE_EQUAL && *left) {
        struct removed removed = {NONE, 0, 0};
        if (inside->n) /* else the test was decided already, and lists show that only now */
            removed = (struct removed){dim, inside->ends[0], inside->ends[2 * inside->n - 1]};
        if (!prover_set_region(p, dim, outside))
            return PROVE_NO_MEMORY;
        r->removed = removed;
        a->n = residual_filter(r, a, a->v, dim);
        b->n = residual_filter(r, b, b->v, dim);
        r->removed.dim = NONE;
    }
    return status;
}

/* Note what both heads do, if the programs have parted: its place among what they did alone may differ. */
static bool note_both(struct prover *p, const struct residual_list *a, const struct residual_list *b)
{
    return !p->parted ||
           (prover_note_act(p, a, ASKED_BY_A, false) && prover_note_act(p, b, ASKED_BY_B, false));
}

/* Apply the effect at both heads. */
static enum prove_status happen(struct prover *p, struct residual_list *a, struct residual_list *b)
{
    if (!note_both(p, a, b))
        return PROVE_NO_MEMORY;
    size_t history_n = p->history_n;
    enum prove_status status = prover_write(p, prover_at(p, a, 0)->writes, prover_at(p, a, 0)->arg);
    if (status != PROVE_EQUAL)
        return status;
    prover_drop_head(a);
    prover_drop_head(b);
    prover_look_again(p, a);
    prover_look_again(p, b);
    if (p->history_n > history_n && !p->parted) {
        lemma_free(&p->r, p->pending);
        p->pending = lemma_copy(&p->r, a, b);
    }
    return PROVE_EQUAL;
}

static bool is_proved(struct prover *p, const struct residual_list *a, const struct residual_list *b)
{
    return p->lemmas.n && !p->parted && lemma_cache_has(&p->r, &p->lemmas, a, b);
}

/* Prove lists that may be met again. */
static enum prove_status prove_and_keep(struct prover *p, struct residual_list a, struct residual_list b,
                                        double weight, int deep)
{
    if (is_proved(p, &a, &b))
        return PROVE_EQUAL;
    struct lemma *lemma = p->parted ? NULL : lemma_copy(&p->r, &a, &b);
    size_t records = p->records;
    enum prove_status status = prove(p, a, b, weight, deep);
    if (status == PROVE_EQUAL && p->records == records)
        lemma_cache_keep(&p->r, &p->lemmas, lemma);
    else
        lemma_free(&p->r, lemma);
    return status;
}

/* The match with memory at both heads answers no, which is proved here; then yes, which is left in place.
 * A known answer alone is left in place. */
static enum prove_status ask(struct prover *p, struct residual_list *a, struct residual_list *b,
                             double *weight, int deep)
{
    uint32_t key = prover_at(p, a, 0)->arg;
    if (key & 1)
        pair_up(p, a->v->rule, b->v->rule);
    if (!prover_ask(p, key, ASKED_BY_BOTH) || !note_both(p, a, b))
        return PROVE_NO_MEMORY;
    enum prove_status status = prover_write(p, prover_at(p, a, 0)->changes, NONE);
    if (status != PROVE_EQUAL)
        return status;
    enum answer known = prover_at(p, a, 0)->answer;
    if (known != NOT_KNOWN) {
        p->outcomes[p->outcomes_n - 1] |= known == YES;
        prover_answer(p, a, known == YES);
        prover_answer(p, b, known == YES);
        return PROVE_EQUAL;
    }
    size_t top = p->r.top;
    struct residual_list x = prover_copy(p, a, NONE), y = prover_copy(p, b, NONE);
    if (p->r.failed)
        return PROVE_NO_MEMORY;
    prover_answer(p, &x, false);
    prover_answer(p, &y, false);
    *weight /= 2;
    status = prove_and_keep(p, x, y, *weight, deep + 1);
    p->r.top = top;
    p->outcomes[p->outcomes_n - 1] |= 1;
    prover_answer(p, a, true);
    prover_answer(p, b, true);
    return status;
}

/* Process the heads, which are the same.  *left: whether something is left to prove. */
static enum prove_status behead(struct prover *p, struct residual_list *a, struct residual_list *b,
                                double *weight, int deep, bool *left)
{
    *left = true;
    if (a->v->open) {
        uint32_t test = residual_open_test(&p->r, a->v, 0);
        if (test == NONE) {
            prover_look_again(p, a);
            prover_look_again(p, b);
            return PROVE_EQUAL;
        }
        return cut(p, a, b, test, weight, deep, left);
    }
    if (prover_enters(p, a, 0)) {
        *a = residual_expand(&p->r, a, 0);
        *b = residual_expand(&p->r, b, 0);
        return PROVE_EQUAL;
    }
    return prover_at(p, a, 0)->kind == ACTION_EVENT ? ask(p, a, b, weight, deep) : happen(p, a, b);
}

/* behead; nothing is left where a lemma proves the lists that follow. */
static enum prove_status behead_and_look_up(struct prover *p, struct residual_list *a,
                                            struct residual_list *b, double *weight, int deep, bool *left)
{
    enum prove_status status = behead(p, a, b, weight, deep, left);
    if (status == PROVE_EQUAL && *left && is_proved(p, a, b))
        *left = false;
    return status;
}

/* Whether both heads ask the same match with memory or chance; PAIRED_OTHERWISE: they do, but one of them
 * is paired with another rule. */
enum alike { APART, ALIKE, PAIRED_OTHERWISE };

static enum alike ask_alike(struct prover *p, const struct residual_list *a, const struct residual_list *b)
{
    const struct guarded_action *x = prover_at(p, a, 0), *y = prover_at(p, b, 0);
    if (!x || !y || a->v->open || b->v->open || x->kind != ACTION_EVENT || y->kind != ACTION_EVENT ||
        x->arg != y->arg)
        return APART;
    if (!(x->arg & 1))
        return ALIKE;
    /* Rules that log limit themselves alike in many chains: another effect, another rule. */
    const struct guarded_action *then_a = final_action(&p->r, a->v), *then_b = final_action(&p->r, b->v);
    if (p->most > 1 && (then_a->kind == ACTION_EFFECT || then_b->kind == ACTION_EFFECT) &&
        (then_a->kind != then_b->kind || then_a->arg != then_b->arg))
        return APART;
    uint32_t rule_a = a->v->rule, rule_b = b->v->rule;
    if (rule_a == rule_b)
        return ALIKE;
    uint32_t to_b = p->pair[rule_a], to_a = p->pair[rule_b];
    if ((to_b != NONE && to_b != rule_b) || (to_a != NONE && to_a != rule_a))
        return p->strict ? APART : PAIRED_OTHERWISE;
    return ALIKE;
}

/* Move the lists and sets of this frame down to its own start of the stack. */
static void compact(struct prover *p, struct residual_list *a, struct residual_list *b, size_t base,
                    size_t log_n)
{
    struct residual *r = &p->r;
    size_t size = (a->n + b->n) * sizeof *a->v;
    for (uint32_t dim = 0; dim < r->in.dims; dim++)
        size += sizeof(struct set) + 2 * (size_t)r->region[dim]->n * sizeof(uint32_t) + 16;
    if (r->top - base < 4 * size + (1 << 20) || p->history_n)
        return;
    unsigned char *saved = budget_take(r->budget, size);
    if (!saved)
        return; /* only memory would have been saved */
    size_t at = 0;
    memcpy(saved, a->v, a->n * sizeof *a->v), at += a->n * sizeof *a->v;
    memcpy(saved + at, b->v, b->n * sizeof *b->v), at += b->n * sizeof *b->v;
    /* The sets that this frame has set, as they are now. */
    size_t sets_at = at;
    for (uint32_t dim = 0; dim < r->in.dims; dim++) {
        bool own = false;
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
    /* The log keeps, for each dimension, its set before this frame. */
    size_t kept = log_n;
    for (size_t l = log_n; l < p->log_n; l++) {
        bool seen = false;
        for (size_t k = log_n; k < kept && !seen; k++)
            seen = p->log[k].dim == p->log[l].dim;
        if (!seen)
            p->log[kept++] = p->log[l];
    }
    p->log_n = kept;
    at = sets_at;
    for (uint32_t dim = 0; dim < r->in.dims; dim++) {
        bool own = false;
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
    budget_give(r->budget, saved, size);
}

/* Whether the run is to find one difference of a rule from a program without it. */
static bool may_aim(const struct prover *p)
{
    return p->same && p->most == 1 && !p->in_lemma;
}

static enum prove_status step(struct prover *p, struct residual_list *a, struct residual_list *b,
                              double *weight, int deep, bool *left)
{
    struct mismatch x, y;
    *left = false;
    if (deep == 0 && p->items >= p->next_aim && may_aim(p)) {
        enum prove_status status = prover_aim(p, a, b, may_pair);
        p->next_aim = 2 * p->items - p->began;
        if (status != PROVE_EQUAL)
            return status;
    }
    if (residual_same(&p->r, a, b, &x, &y, may_pair, p) || prover_gives_one(p, a, &x, b, &y)) {
        if (p->parted) {
            struct acts_apart apart;
            prover_acts_apart(p, &apart);
            return apart.differ ? record(p, NONE, NONE, NONE, NONE) : PROVE_EQUAL;
        }
        return note_pairs(p, a, b) ? PROVE_EQUAL : PROVE_PAIRS;
    }
    if (p->r.class.may_drop && !p->parted && !y.passed && drops(p, b, y.at)) {
        /* The items before ask the same memories. */
        struct residual_list before_x = {a->v, x.at, NONE}, before_y = {b->v, y.at, NONE};
        return note_pairs(p, &before_x, &before_y) ? PROVE_EQUAL : PROVE_PAIRS;
    }
    *left = true;
    if (enter_chain(p, a, x.at, false) || enter_chain(p, b, y.at, false))
        return PROVE_EQUAL;
    uint32_t test = choose(p, a, b, &x, &y);
    if (may_aim(p) && (test_at(p, a, &x) == NONE || test_at(p, b, &y) == NONE))
        test = prover_widest(p, a, x.at, test);
    if (test != NONE) {
        enum prove_status status = cut(p, a, b, test, weight, deep, left);
        if (status == PROVE_EQUAL && *left && x.at == 0 && y.at == 0)
            *left = !is_proved(p, a, b);
        return status;
    }
    bool entered_a = enter_chain(p, a, x.at, true), entered_b = enter_chain(p, b, y.at, true);
    if (entered_a || entered_b)
        return PROVE_EQUAL;
    if (x.at > 0 || y.at > 0)
        return behead_and_look_up(p, a, b, weight, deep, left);
    if ((a->n && a->v->open) || (b->n && b->v->open)) {
        prover_look_again(p, a);
        prover_look_again(p, b);
        return PROVE_EQUAL;
    }
    enum alike alike = ask_alike(p, a, b);
    if (alike == ALIKE) {
        enum prove_status status = ask(p, a, b, weight, deep);
        *left = status != PROVE_EQUAL || !is_proved(p, a, b);
        return status;
    }
    if (alike == PAIRED_OTHERWISE)
        return PROVE_PAIRS;
    if (p->most > 1) {
        bool went_on = false;
        enum prove_status status = prover_part(p, a, b, weight, deep, &went_on, left);
        if (status != PROVE_EQUAL || went_on)
            return status;
    }
    *left = false;
    if (prover_returns_alike(p, a, b))
        return PROVE_EQUAL;
    return record(p, rule_at(a, x.at), rule_at(b, y.at), verdict_at(p, a, x.at), verdict_at(p, b, y.at));
}

enum prove_status prove(struct prover *p, struct residual_list a, struct residual_list b, double weight,
                        int deep)
{
    size_t base = p->r.top, log_n = p->log_n, history_n = p->history_n, outcomes_n = p->outcomes_n;
    size_t acts_n = p->acts_n;
    struct lemma *pending = p->pending;
    size_t records = p->records;
    enum prove_status status;
    bool left = true, parted = p->parted;
    p->pending = NULL;
    do {
        status = prover_out_of_budget(p, deep);
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
        lemma_cache_keep(&p->r, &p->lemmas, p->pending);
    else
        lemma_free(&p->r, p->pending);
    p->pending = pending;
    prover_put_back(p, log_n);
    p->parted = parted, p->acts_n = acts_n;
    p->history_n = history_n;
    p->outcomes_n = outcomes_n;
    p->r.top = base;
    return status;
}
