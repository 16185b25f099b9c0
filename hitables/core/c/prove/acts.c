/* What each program does with the packets of a region that the other one does not do.
 *
 * Idea: an effect, or a match with memory that is asked, is noted for the program that comes to it alone.
 * The other program may do the same later, as where one goes on alone to its end (apart.c).  So the two
 * lists of notes are compared: what stands in both as often is done by both.  What both do at once is noted
 * for both, as its place in the order counts.
 * Cost: a sort of the notes for each record; constant for each note.
 * Invariant: the notes of each program are in the order in which packets meet its rules.
 * Memory: notes from the budget, with scratch of as many.
 * Threading: as the prover's (prover.c).
 */
#include "prove_internal.h"

#include <stdlib.h>
#include <string.h>

bool prover_note_act(struct prover *p, const struct residual_list *list, enum asked own, bool whole)
{
    if (!prover_grow(p, (void **)&p->acts, &p->acts_room, 2 * (p->acts_n + 1), sizeof *p->acts))
        return false;
    const struct guarded_action *guarded = prover_at(p, list, 0);
    bool asks = guarded->kind == ACTION_EVENT;
    uint32_t rule = list->v->rule, partner = p->pair[rule];
    uint32_t memory = !guarded->once || partner == NONE ? NONE : rule < partner ? rule : partner;
    p->acts[p->acts_n] = (struct act){
        .own = own,
        .rule = rule,
        .acts = !asks || whole,
        .asks = asks,
        .arg = guarded->arg,
        .next = asks && whole ? guarded->next : NONE,
        .memory = asks ? memory : NONE,
        .at = (uint32_t)p->acts_n,
    };
    p->acts_n++;
    p->parted = true;
    return true;
}

static bool is_same(const struct act *x, const struct act *y)
{
    return x->asks == y->asks && x->arg == y->arg && x->next == y->next && x->memory == y->memory;
}

/* The next note of the program *own* from the place *at* on; acts_n: none. */
static size_t next_of(const struct prover *p, enum asked own, size_t at)
{
    while (at < p->acts_n && p->acts[at].own != own)
        at++;
    return at;
}

static int compare_acts(const void *one, const void *other)
{
    const struct act *x = one, *y = other;
    if (x->asks != y->asks)
        return x->asks ? 1 : -1;
    if (x->arg != y->arg)
        return x->arg < y->arg ? -1 : 1;
    if (x->next != y->next)
        return x->next < y->next ? -1 : 1;
    if (x->memory != y->memory)
        return x->memory < y->memory ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Of notes of one thing, n of them, those that one program has more often than the other: the last ones. */
static void keep_surplus(struct act *notes, size_t n, struct acts_apart *apart)
{
    size_t of[] = {[ASKED_BY_BOTH] = 0, [ASKED_BY_A] = 0, [ASKED_BY_B] = 0};
    for (size_t i = 0; i < n; i++)
        of[notes[i].own]++;
    size_t common = of[ASKED_BY_A] < of[ASKED_BY_B] ? of[ASKED_BY_A] : of[ASKED_BY_B];
    size_t seen[] = {[ASKED_BY_BOTH] = 0, [ASKED_BY_A] = 0, [ASKED_BY_B] = 0};
    for (size_t i = 0; i < n; i++) {
        if (seen[notes[i].own]++ < common)
            continue;
        struct act_alone *alone = notes[i].own == ASKED_BY_A ? &apart->a : &apart->b;
        bool is_first = alone->rule == NONE || (notes[i].acts && !alone->acts) ||
                        (notes[i].acts == alone->acts && notes[i].at < alone->at);
        alone->count++;
        if (is_first)
            alone->rule = notes[i].rule, alone->acts = notes[i].acts, alone->at = notes[i].at;
    }
}

void prover_acts_apart(const struct prover *p, struct acts_apart *apart)
{
    *apart = (struct acts_apart){.a.rule = NONE, .b.rule = NONE};
    /* Up to where both do the same, one after the other. */
    size_t of_a = next_of(p, ASKED_BY_A, 0), of_b = next_of(p, ASKED_BY_B, 0);
    while (of_a < p->acts_n && of_b < p->acts_n && is_same(&p->acts[of_a], &p->acts[of_b])) {
        of_a = next_of(p, ASKED_BY_A, of_a + 1);
        of_b = next_of(p, ASKED_BY_B, of_b + 1);
    }
    if (of_a == p->acts_n && of_b == p->acts_n)
        return;
    struct act *notes = p->acts + p->acts_n; /* the second half of the room */
    memcpy(notes, p->acts, p->acts_n * sizeof *notes);
    qsort(notes, p->acts_n, sizeof *notes, compare_acts);
    for (size_t from = 0, to = 0; from < p->acts_n; from = to) {
        while (to < p->acts_n && is_same(&notes[from], &notes[to]))
            to++;
        keep_surplus(notes + from, to - from, apart);
    }
    apart->differ = true;
    if (apart->a.count || apart->b.count)
        return;
    apart->reordered = true;
    apart->a = (struct act_alone){p->acts[of_a].rule, p->acts[of_a].acts, 1, p->acts[of_a].at};
    apart->b = (struct act_alone){p->acts[of_b].rule, p->acts[of_b].acts, 1, p->acts[of_b].at};
}
