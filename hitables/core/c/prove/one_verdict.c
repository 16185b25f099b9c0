/* Lists that can give but one verdict.
 *
 * Idea: where one list decides all packets, the other one often has hundreds of rules left that all decide
 * alike, each for other packets, or in a chain of its own.  Cutting by each of them would show it; reading
 * each once does, too.
 * Cost: each item of the list, and the rules of the chains that items enter, up to a bound that grows with
 * the list.  Of each chain behind a list (prover_behind), at most all rules of the input, twice.
 * Invariant: true means that each packet of the region leaves the list by the verdict, and that nothing else
 * happens to it.
 * Threading: none; what is found of a chain behind is kept in its prover, for the runs of the class.
 */
#include "prove_internal.h"

enum { NESTED = 8, RULES_FOR_EACH = 8, RULES_AT_LEAST = 256 };

struct verdict_search {
    const struct residual *r;
    uint32_t verdict;
    uint32_t blocked; /* mask of the states that may be written: how tests of them end is not known */
    bool for_good; /* whether it must hold still when any rules are removed */
    uint64_t left; /* rules that may be read yet */
};

static bool chain_gives(struct verdict_search *search, uint32_t chain, uint32_t first, int deep);

/* Whether the packets that the guarded action acts on leave by the verdict, or go on unchanged. */
static bool action_gives(struct verdict_search *search, const struct guarded_action *guarded, uint32_t chain,
                         int deep)
{
    switch (guarded->kind) {
    case ACTION_VERDICT:
        return guarded->arg == search->verdict;
    case ACTION_JUMP:
    case ACTION_GOTO:
        return chain_gives(search, chain, search->r->in.chain_start[chain], deep + 1);
    default:
        return guarded->kind == ACTION_RETURN || guarded->kind == ACTION_FAIL;
    }
}

/* Whether no packet of the region passes all tests. */
static bool fails(const struct verdict_search *search, const struct guarded_action *guarded)
{
    const struct residual *r = search->r;
    for (uint32_t t = 0; t < guarded->n; t++) {
        uint32_t test = r->tests[guarded->first + t];
        if (test & EITHER || r->in.dim_states[r->in.test_dim[test]] & search->blocked)
            continue;
        if (residual_relation(r, test, r->region[r->in.test_dim[test]]) == REL_OUT)
            return true;
    }
    return false;
}

/* Whether packets of the region that come to rule *first* of the chain leave by the verdict, or come back
 * unchanged. */
static bool chain_gives(struct verdict_search *search, uint32_t chain, uint32_t first, int deep)
{
    const struct residual *r = search->r;
    if (r->chain_idle[chain] && !r->touched[r->canon[chain]])
        return true;
    if (deep > NESTED || r->chain_state[chain] != LOW_DONE)
        return false;
    for (uint32_t rule = first; rule < r->in.chain_end[chain]; rule++) {
        if (!search->left--)
            return false;
        uint32_t number = r->rule_guarded[rule];
        if (number == NONE || fails(search, &r->guarded[number]))
            continue;
        const struct guarded_action *guarded = &r->guarded[number];
        if (!action_gives(search, guarded, r->in.rule_action[3 * (size_t)rule + 1], deep))
            return false;
        if (!guarded->n && guarded->kind == ACTION_VERDICT && !search->for_good)
            return true;
    }
    return true;
}

/* Whether all packets of the region that come to the item at *at* leave the list by the verdict. */
static bool list_gives(struct verdict_search search, const struct residual_list *list, size_t at)
{
    const struct residual *r = search.r;
    bool ends = false, to_end = false;
    search.left = RULES_FOR_EACH * (uint64_t)(list->n - at) + RULES_AT_LEAST;
    for (; at < list->n; at++) {
        const struct residual_item *item = &list->v[at];
        if (item->guarded == NONE)
            continue;
        const struct guarded_action *guarded = &r->guarded[item->guarded];
        if (!action_gives(&search, guarded, r->in.rule_action[3 * (size_t)item->rule + 1], 0))
            return false;
        to_end |= !item->depth && (guarded->kind == ACTION_RETURN || guarded->kind == ACTION_GOTO);
        ends = !item->open && !item->depth && guarded->kind == ACTION_VERDICT;
    }
    return (ends && !to_end) || list->end == search.verdict;
}

/* Whether the item at this place surely gives a verdict, this one; the end of the list gives its own. */
static bool is_decided(const struct prover *p, const struct residual_list *list, size_t at, uint32_t *verdict)
{
    const struct guarded_action *guarded = prover_at(p, list, at);
    *verdict = guarded ? guarded->arg : list->end;
    return !guarded || (list->v[at].guarded != NONE && !list->v[at].open && guarded->kind == ACTION_VERDICT);
}

bool prover_gives_one(const struct prover *p, const struct residual_list *a, const struct mismatch *x,
                      const struct residual_list *b, const struct mismatch *y)
{
    /* Proofs of two programs need no such step.  Where all differences are told, the cuts that lead to them
     * tell their regions: none is left out. */
    if (!p->same || x->passed || y->passed || p->most > 1 || p->in_lemma)
        return false;
    struct verdict_search search = {.r = &p->r, .blocked = x->blocked};
    if (!is_decided(p, a, x->at, &search.verdict) && !is_decided(p, b, y->at, &search.verdict))
        return false;
    return list_gives(search, a, x->at) && list_gives(search, b, y->at);
}

/* Whether all packets of the region that come to rule *first* leave the chain by the verdict, from wherever
 * they come; once known, this holds for the class, as rules are only removed from it. */
static bool all_gives(struct prover *p, uint32_t chain, uint32_t first, uint32_t verdict)
{
    struct residual *r = &p->r;
    struct lemma *known = p->behind_lemma;
    bool same = p->behind_chain == chain && first >= p->behind_first && p->behind_verdict == verdict;
    if (known && same && lemma_covers_region(r, known))
        return true;
    /* The region is that of packets where they come from; what led them there was asked before the writes. */
    struct verdict_search search = {.r = r, .verdict = verdict, .for_good = true, .left = r->in.rules};
    search.blocked = r->in.chain_writes[chain];
    struct verdict_search of_whole = search;
    if (chain_gives(&of_whole, chain, r->in.chain_start[chain], 0))
        first = r->in.chain_start[chain]; /* known for all that come to any of its rules */
    else if (!chain_gives(&search, chain, first, 0))
        return false;
    struct residual_list none = {.end = verdict};
    lemma_free(r, known);
    p->behind_lemma = lemma_copy(r, &none, &none);
    p->behind_chain = chain, p->behind_first = first, p->behind_verdict = verdict;
    return true;
}

bool prover_returns_alike(struct prover *p, const struct residual_list *a, const struct residual_list *b)
{
    const struct residual_list *decided = a->n ? a : b, *returns = a->n ? b : a;
    uint32_t verdict;
    if (!p->behind_n || p->history_n || returns->n || returns->end != p->returns)
        return false;
    if (!decided->n || !is_decided(p, decided, 0, &verdict))
        return false;
    for (const uint32_t *each = p->behind; each < p->behind + 3 * p->behind_n; each += 3)
        if (each[2] != verdict || !all_gives(p, each[0], each[1], verdict))
            return false;
    return true;
}
