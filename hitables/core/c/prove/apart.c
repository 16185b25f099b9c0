/* What each program does with the packets of a region in which they part, where all differences are wanted.
 *
 * Idea: an effect, or a match with memory, that one program has alone is noted (acts.c), and the lists
 * behind it are compared further; so a difference ends at a verdict of each program, or where the rest is
 * the same.  What it writes matters only if a list reads it later.  If the other program is at its end, it
 * is written.  Else this program goes on alone until it is at its end, and what it does is noted: the other
 * one goes on from there, in the region of the packets as they were before the write.
 * Cost: alone, a region for each outcome of the program; the other one divides each of them further.
 * Invariant: the records tile the packets that the programs treat differently, but for what values that are
 * written and not known decide: of these both outcomes are recorded.
 * Threading: as the prover's (prover.c).
 */
#include "prove_internal.h"

#include <string.h>

static bool is_decided(const struct prover *p, const struct residual_list *list)
{
    return !list->n || (!list->v->open && prover_at(p, list, 0)->kind == ACTION_VERDICT);
}

/* Whether some rule of the list, from the place *at* on, may read these states. */
static bool reads(const struct prover *p, const struct residual_list *list, size_t at, uint32_t states)
{
    const struct residual *r = &p->r;
    for (; at < list->n; at++) {
        if (list->v[at].guarded == NONE)
            continue;
        const uint32_t *action = r->in.rule_action + 3 * (size_t)list->v[at].rule;
        bool enters = action[0] == PROVE_JUMP || action[0] == PROVE_GOTO;
        uint32_t read = r->guarded[list->v[at].guarded].reads | (enters ? r->chain_reads[action[1]] : 0);
        if (read & states)
            return true;
    }
    return false;
}

/* A list that goes on alone: its program, the list of the other one, and what was known when it began. */
struct alone {
    enum asked own;
    const struct residual_list *other;
    size_t history_n;
};

/* Compare a list of the program *own* with one of the other. */
static enum prove_status prove_sides(struct prover *p, enum asked own, struct residual_list x,
                                     struct residual_list y, double weight, int deep)
{
    return own == ASKED_BY_A ? prove(p, x, y, weight, deep) : prove(p, y, x, weight, deep);
}

/* ---- the region before the writes ---- */

/* Of the coordinates of *before*, those of which the effect makes one of *after*; on the scratch stack. */
static struct set *unmade(struct prover *p, const struct past_set *before, const struct set *after)
{
    const uint32_t *map = prover_map_of(p, before->effect, before->dim);
    size_t count = 0;
    for (uint32_t i = 0; i < before->set->n; i++)
        count += before->set->ends[2 * i + 1] - before->set->ends[2 * i] + 1;
    struct set *set = residual_push(&p->r, sizeof *set + 2 * (count + 1) * sizeof *set->ends);
    if (!set)
        return NULL;
    set->n = 0;
    for (uint32_t i = 0; i < before->set->n; i++)
        for (uint32_t each = before->set->ends[2 * i]; each <= before->set->ends[2 * i + 1]; each++) {
            uint32_t made = map[0] == 1 ? map[1] : map[1 + each], at = 0;
            while (at < after->n && after->ends[2 * at + 1] < made)
                at++;
            if (at == after->n || after->ends[2 * at] > made)
                continue;
            if (set->n && set->ends[2 * set->n - 1] + 1 == each)
                set->ends[2 * set->n - 1] = each;
            else
                set->ends[2 * set->n] = set->ends[2 * set->n + 1] = each, set->n++;
        }
    return set;
}

/* Set the region to that of the packets before the writes that history[from] and later ones recorded; false
 * when memory is exhausted. */
static bool undo_writes(struct prover *p, size_t from)
{
    for (size_t h = p->history_n; h > from; h--) {
        const struct past_set before = p->history[h - 1];
        const struct set *set = before.set;
        if (before.effect != NONE)
            set = unmade(p, &before, p->r.region[before.dim]);
        if (!set || !prover_set_region(p, before.dim, set))
            return false;
        p->epoch[before.dim] = before.epoch;
    }
    return true;
}

/* The list that went on alone is at its end: compare it with the other one, in the region of the packets
 * that came there. */
static enum prove_status compare_ends(struct prover *p, const struct alone *alone,
                                      const struct residual_list *own, int deep)
{
    size_t top = p->r.top, log_n = p->log_n, writes = p->history_n - alone->history_n;
    struct past_set *saved = residual_push(&p->r, (writes + 1) * sizeof *saved);
    if (!saved)
        return PROVE_NO_MEMORY;
    if (writes)
        memcpy(saved, p->history + alone->history_n, writes * sizeof *saved);
    enum prove_status status = PROVE_NO_MEMORY;
    if (undo_writes(p, alone->history_n)) {
        p->history_n = alone->history_n;
        struct residual_list x = prover_copy(p, own, NONE), y = prover_copy(p, alone->other, ALL_DIMS);
        if (!p->r.failed)
            status = prove_sides(p, alone->own, x, y, 0, deep + 1);
    }
    prover_put_back(p, log_n);
    p->history_n = alone->history_n + writes;
    if (writes)
        memcpy(p->history + alone->history_n, saved, writes * sizeof *saved);
    p->r.top = top;
    return status;
}

/* ---- answers ---- */

/* The answer that is the same for each packet; else what the other program was answered when it asked this as
 * often as the program *own* has until now: the packet is the same, so the answer is. */
static enum answer known_answer(const struct prover *p, const struct guarded_action *event, enum asked own)
{
    if (event->answer != NOT_KNOWN)
        return event->answer;
    uint32_t key = event->arg;
    enum asked other = own == ASKED_BY_A ? ASKED_BY_B : ASKED_BY_A;
    size_t by_own = 0, by_other = 0;
    for (size_t at = 0; at < p->outcomes_n; at += 2)
        by_own += p->outcomes[at] == key && p->outcomes[at + 1] >> 1 != other;
    for (size_t at = 0; at < p->outcomes_n; at += 2)
        if (p->outcomes[at] == key && p->outcomes[at + 1] >> 1 != own && by_other++ == by_own)
            return p->outcomes[at + 1] & 1 ? YES : NO;
    return NOT_KNOWN;
}

/* Ask the match with memory at the head of the list of *own*.  *open: whether the answer is not known; then
 * *no becomes the list behind "no", which is to be compared before answer_yes. */
static enum prove_status ask_alone(struct prover *p, struct residual_list *list, enum asked own, bool *open,
                                   struct residual_list *no)
{
    uint32_t key = prover_at(p, list, 0)->arg;
    enum answer known = known_answer(p, prover_at(p, list, 0), own);
    *open = known == NOT_KNOWN;
    if (!prover_ask(p, key, own))
        return PROVE_NO_MEMORY;
    if (!*open) {
        p->outcomes[p->outcomes_n - 1] |= known == YES;
        prover_answer(p, list, known == YES);
        return PROVE_EQUAL;
    }
    *no = prover_copy(p, list, NONE);
    if (p->r.failed)
        return PROVE_NO_MEMORY;
    prover_answer(p, no, false);
    return PROVE_EQUAL;
}

static void answer_yes(struct prover *p, struct residual_list *list)
{
    p->outcomes[p->outcomes_n - 1] |= 1;
    prover_answer(p, list, true);
}

/* ---- one program alone ---- */

/* The states that the effect, or the match with memory, at the head writes. */
static uint32_t written_by(const struct prover *p, const struct residual_list *list)
{
    const struct guarded_action *guarded = prover_at(p, list, 0);
    return guarded->kind == ACTION_EVENT ? guarded->changes : guarded->writes;
}

static enum prove_status write_of(struct prover *p, const struct residual_list *list)
{
    const struct guarded_action *guarded = prover_at(p, list, 0);
    return prover_write(p, written_by(p, list), guarded->kind == ACTION_EVENT ? NONE : guarded->arg);
}

/* Whether the head, whatever its matches with memory answer, only has an effect that writes nothing. */
static bool only_acts(const struct prover *p, const struct guarded_action *guarded)
{
    uint32_t writes = guarded->writes;
    while (guarded->kind == ACTION_EVENT)
        guarded = &p->r.guarded[guarded->next];
    return !writes && (guarded->kind == ACTION_EFFECT || guarded->kind == ACTION_FAIL);
}

static enum prove_status go_on_alone(struct prover *p, const struct alone *alone, struct residual_list own,
                                     int deep);

/* Cut the region by a test of the list's head: go on inside, and leave the outside in place. */
static enum prove_status cut_alone(struct prover *p, const struct alone *alone, struct residual_list *own,
                                   uint32_t test, int deep, bool *left)
{
    struct residual *r = &p->r;
    uint32_t dim = r->in.test_dim[test];
    const struct set *set = r->region[dim];
    p->items += own->n;
    struct set *outside = residual_cut(r, set, test, false), *inside = residual_cut(r, set, test, true);
    if (!outside || !inside)
        return PROVE_NO_MEMORY;
    enum prove_status status = PROVE_EQUAL;
    if (inside->n) {
        size_t top = r->top;
        r->region[dim] = inside;
        struct residual_list x = prover_copy(p, own, dim);
        status = r->failed ? PROVE_NO_MEMORY : go_on_alone(p, alone, x, deep + 1);
        r->region[dim] = set;
        r->top = top;
    }
    *left = outside->n != 0;
    if (status == PROVE_EQUAL && *left) {
        if (!prover_set_region(p, dim, outside))
            return PROVE_NO_MEMORY;
        own->n = residual_filter(r, own, own->v, dim);
    }
    return status;
}

static enum prove_status step_alone(struct prover *p, const struct alone *alone, struct residual_list *own,
                                    int deep, bool *left)
{
    if (is_decided(p, own)) {
        *left = false;
        return compare_ends(p, alone, own, deep);
    }
    if (own->v->open) {
        uint32_t test = residual_open_test(&p->r, own->v, 0);
        if (test != NONE)
            return cut_alone(p, alone, own, test, deep, left);
        prover_look_again(p, own);
        return PROVE_EQUAL;
    }
    if (prover_enters(p, own, 0)) {
        *own = residual_expand(&p->r, own, 0);
        return PROVE_EQUAL;
    }
    bool writes_nothing = only_acts(p, prover_at(p, own, 0));
    if (!prover_note_act(p, own, alone->own, writes_nothing))
        return PROVE_NO_MEMORY;
    if (writes_nothing) {
        prover_drop_head(own);
        return PROVE_EQUAL;
    }
    enum prove_status status = write_of(p, own);
    if (status != PROVE_EQUAL)
        return status;
    if (prover_at(p, own, 0)->kind != ACTION_EVENT) {
        prover_drop_head(own);
        prover_look_again(p, own);
        return PROVE_EQUAL;
    }
    size_t top = p->r.top;
    struct residual_list no;
    bool open;
    status = ask_alone(p, own, alone->own, &open, &no);
    if (status != PROVE_EQUAL || !open)
        return status;
    status = go_on_alone(p, alone, no, deep + 1);
    p->r.top = top;
    answer_yes(p, own);
    return status;
}

static enum prove_status go_on_alone(struct prover *p, const struct alone *alone, struct residual_list own,
                                     int deep)
{
    size_t base = p->r.top, log_n = p->log_n, history_n = p->history_n, outcomes_n = p->outcomes_n;
    size_t acts_n = p->acts_n;
    enum prove_status status = PROVE_EQUAL;
    bool left = true;
    while (left && status == PROVE_EQUAL) {
        status = prover_out_of_budget(p, deep);
        if (status == PROVE_EQUAL)
            status = step_alone(p, alone, &own, deep, &left);
        if (status == PROVE_EQUAL && p->r.failed)
            status = PROVE_NO_MEMORY;
    }
    prover_put_back(p, log_n);
    p->history_n = history_n;
    p->outcomes_n = outcomes_n;
    p->acts_n = acts_n;
    p->r.top = base;
    return status;
}

/* ---- where the lists part ---- */

/* Both answers of a match with memory that the list of *own* asks alone: no is compared here, yes is left. */
static enum prove_status ask_one(struct prover *p, struct residual_list *list, struct residual_list *other,
                                 enum asked own, double *weight, int deep)
{
    size_t top = p->r.top;
    struct residual_list no;
    bool open;
    enum prove_status status = ask_alone(p, list, own, &open, &no);
    if (status != PROVE_EQUAL || !open)
        return status;
    struct residual_list copy = prover_copy(p, other, NONE);
    if (p->r.failed)
        return PROVE_NO_MEMORY;
    *weight /= 2;
    status = prove_sides(p, own, no, copy, *weight, deep + 1);
    p->r.top = top;
    answer_yes(p, list);
    return status;
}

/* Whether what the head writes may be read later: by the rest of its own rule, by what follows, or by the
 * other list. */
static bool is_read_later(const struct prover *p, const struct residual_list *list,
                          const struct residual_list *other)
{
    const struct guarded_action *guarded = prover_at(p, list, 0);
    uint32_t written = written_by(p, list);
    bool by_rest = guarded->kind == ACTION_EVENT && p->r.guarded[guarded->next].reads & written;
    return by_rest || reads(p, list, 1, written) || reads(p, other, 0, written);
}

/* Go on behind the head of the list of *own*, if it is an effect or asks a memory. */
static enum prove_status part_one(struct prover *p, struct residual_list *list, struct residual_list *other,
                                  enum asked own, double *weight, int deep, bool *went_on, bool *left)
{
    const struct guarded_action *guarded = prover_at(p, list, 0);
    if (!guarded || (guarded->kind != ACTION_EFFECT && guarded->kind != ACTION_EVENT))
        return PROVE_EQUAL;
    *went_on = true;
    bool asks = guarded->kind == ACTION_EVENT, writes_nothing = only_acts(p, guarded);
    if (!writes_nothing && !is_decided(p, other) && is_read_later(p, list, other)) {
        *left = false;
        p->parted = true;
        struct alone alone = {own, other, p->history_n};
        return go_on_alone(p, &alone, prover_copy(p, list, NONE), deep + 1);
    }
    if (!prover_note_act(p, list, own, writes_nothing))
        return PROVE_NO_MEMORY;
    if (writes_nothing) {
        prover_drop_head(list);
        return PROVE_EQUAL;
    }
    if (is_decided(p, other)) {
        enum prove_status status = write_of(p, list);
        if (status != PROVE_EQUAL)
            return status;
    }
    if (asks)
        return ask_one(p, list, other, own, weight, deep);
    prover_drop_head(list);
    prover_look_again(p, list);
    return PROVE_EQUAL;
}

enum prove_status prover_part(struct prover *p, struct residual_list *a, struct residual_list *b,
                              double *weight, int deep, bool *went_on, bool *left)
{
    bool b_first = !a->n;
    if (a->n && b->n) {
        /* First the list that has items more, in which the head of the other one follows; else the head that
         * asks nothing. */
        bool more_in_a = prover_distance(a, 0, b->v), more_in_b = prover_distance(b, 0, a->v);
        b_first = more_in_a == more_in_b
                      ? only_acts(p, prover_at(p, b, 0)) && !only_acts(p, prover_at(p, a, 0))
                      : more_in_b;
    }
    struct residual_list *first = b_first ? b : a, *second = b_first ? a : b;
    enum asked of_first = b_first ? ASKED_BY_B : ASKED_BY_A, of_second = b_first ? ASKED_BY_A : ASKED_BY_B;
    enum prove_status status = part_one(p, first, second, of_first, weight, deep, went_on, left);
    if (status == PROVE_EQUAL && !*went_on)
        status = part_one(p, second, first, of_second, weight, deep, went_on, left);
    return status;
}
