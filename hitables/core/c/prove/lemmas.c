/* Pairs of lists that are known to be equal in a region.
 *
 * Idea: a match with memory leads to the same rules whether it says no or, once its effect has
 * happened, yes; and a fact that is written leads to the same rules as one that does not hold.
 * Thirty such rules in a row are 2^30 ways to the rule behind them.  So what was proved of two
 * lists is kept for a while, and lists that come to the same in a part of that region are
 * proved by it.
 *
 * Cost: the newest few are held against the lists at hand, each in one pass.  Invariant: nothing
 * is kept but what is proved; whose memory is whose was noted then, for the same rules.
 */
#include "lemmas.h"

#include <stdlib.h>
#include <string.h>

enum { LOOKED_AT = 6, FIRST_FEW = 64, LARGEST = 1 << 20 };

struct lemma {
    size_t size;
    struct residual_list a, b;
    const struct set *region[]; /* by dimension; sets and items role behind */
};

static size_t set_size(const struct set *set)
{
    return (sizeof *set + 2 * (size_t)set->n * sizeof *set->ends + 15) & ~(size_t)15;
}

/* A copy of the lists and of the region; NULL when they are too large to be kept. */
struct lemma *lemma_copy(struct residual *r, const struct residual_list *a, const struct residual_list *b)
{
    size_t head = (sizeof(struct lemma) + r->in.dims * sizeof(struct set *) + 15) & ~(size_t)15;
    size_t size = head + (a->n + b->n) * sizeof *a->v;
    for (uint32_t dim = 0; dim < r->in.dims; dim++)
        size += set_size(r->region[dim]);
    if (size > LARGEST || (r->limit && r->top + r->heap + size > r->limit))
        return NULL;
    struct lemma *known = malloc(size);
    if (!known)
        return NULL;
    r->heap += known->size = size;
    unsigned char *at = (unsigned char *)known + head;
    for (uint32_t dim = 0; dim < r->in.dims; dim++) {
        memcpy(at, r->region[dim], sizeof(struct set) + 2 * (size_t)r->region[dim]->n * sizeof(uint32_t));
        known->region[dim] = (struct set *)at;
        at += set_size(r->region[dim]);
    }
    known->a = *a, known->b = *b;
    known->a.v = (struct residual_item *)at;
    if (a->n)
        memcpy(known->a.v, a->v, a->n * sizeof *a->v);
    known->b.v = known->a.v + a->n;
    if (b->n)
        memcpy(known->b.v, b->v, b->n * sizeof *b->v);
    return known;
}

void lemma_free(struct residual *r, struct lemma *known)
{
    if (known)
        r->heap -= known->size;
    free(known);
}

void lemma_cache_clear(struct residual *r, struct lemma_cache *memory)
{
    for (uint32_t k = 0; k < memory->n; k++)
        lemma_free(r, memory->v[k]);
    memory->n = memory->at = 0;
}

/* Keep what is proved, in place of what was kept the longest ago. */
void lemma_cache_keep(struct residual *r, struct lemma_cache *memory, struct lemma *known)
{
    if (!known)
        return;
    if (memory->n == LEMMAS_KEPT)
        lemma_free(r, memory->v[memory->at]);
    else
        memory->n++;
    memory->v[memory->at] = known;
    memory->at = (memory->at + 1) % LEMMAS_KEPT;
}

/* Whether all of set is in other. */
static int within(const struct set *set, const struct set *other)
{
    uint32_t o = 0;
    for (uint32_t s = 0; s < set->n; s++) {
        while (o < other->n && other->ends[2 * o + 1] < set->ends[2 * s])
            o++;
        if (o == other->n || other->ends[2 * o] > set->ends[2 * s] || other->ends[2 * o + 1] < set->ends[2 * s + 1])
            return 0;
    }
    return 1;
}

/* Whether the list's first item is among the first that were kept: most others are seen by that. */
static int may_start(const struct residual_list *kept, const struct residual_list *list)
{
    if (!list->n)
        return 1;
    for (size_t i = 0; i < kept->n && i < FIRST_FEW; i++)
        if (kept->v[i].rule == list->v->rule && kept->v[i].guarded == list->v->guarded)
            return 1;
    return 0;
}

/* Whether what is left of the kept list in the region at hand is the list. */
static int comes_to(struct residual *r, const struct residual_list *kept, const struct residual_list *list)
{
    if (kept->end != list->end || kept->n < list->n)
        return 0;
    size_t top = r->top;
    struct residual_item *items = residual_push(r, (kept->n + 1) * sizeof *items);
    if (!items)
        return 0;
    size_t n = residual_filter(r, kept, items, ALL_DIMS);
    int same = n == list->n;
    for (size_t i = 0; same && i < n; i++) {
        const struct residual_item *x = &items[i], *y = &list->v[i];
        same = x->guarded == y->guarded && x->depth == y->depth && (x->guarded == NONE || (x->rule == y->rule && x->open == y->open));
    }
    r->top = top;
    return same;
}

static int covers(struct residual *r, const struct lemma *known, const struct residual_list *a, const struct residual_list *b)
{
    for (uint32_t dim = 0; dim < r->in.dims; dim++)
        if (!within(r->region[dim], known->region[dim]))
            return 0;
    return comes_to(r, &known->a, a) && comes_to(r, &known->b, b);
}

/* Whether the lists are known to be equal in the region at hand. */
int lemma_cache_has(struct residual *r, const struct lemma_cache *memory, const struct residual_list *a, const struct residual_list *b)
{
    uint32_t looked_at = 0;
    for (uint32_t k = 1; k <= memory->n && looked_at < LOOKED_AT; k++) {
        const struct lemma *known = memory->v[(memory->at + LEMMAS_KEPT - k) % LEMMAS_KEPT];
        if (!may_start(&known->a, a) || !may_start(&known->b, b))
            continue;
        looked_at++;
        if (covers(r, known, a, b))
            return 1;
    }
    return 0;
}
