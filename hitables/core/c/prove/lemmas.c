/* Lemmas: pairs of lists that are proved to be equal in a region.
 *
 * Idea: a match with memory leads to the same rules whether its answer is no or, once its effect has
 * happened, yes; and a fact that is written leads to the same rules as one that does not hold.  Thirty such
 * rules in a row are 2^30 paths to the rule behind them.  So a proved pair is kept for a while, and proves
 * every pair that it becomes in a part of its region.
 * Cost: the newest LOOKED_AT candidates are compared with the lists at hand, each in one pass.
 * Invariant: the cache holds proved pairs alone; which rules share a memory was noted when they were proved.
 * Threading: none; a cache belongs to one prover, whose budget counts it.
 */
#include "lemmas.h"

#include <string.h>

enum { LOOKED_AT = 6, FIRST_FEW = 64, LARGEST = 1 << 20 };

struct lemma {
    size_t size;
    struct residual_list a, b;
    const struct set *region[]; /* by dimension; the sets and the items follow in the same block */
};

static size_t set_size(const struct set *set)
{
    return (sizeof *set + 2 * (size_t)set->n * sizeof *set->ends + 15) & ~(size_t)15;
}

struct lemma *lemma_copy(struct residual *r, const struct residual_list *a, const struct residual_list *b)
{
    size_t head = (sizeof(struct lemma) + r->in.dims * sizeof(struct set *) + 15) & ~(size_t)15;
    size_t size = head + (a->n + b->n) * sizeof *a->v;
    for (uint32_t dim = 0; dim < r->in.dims; dim++)
        size += set_size(r->region[dim]);
    if (size > LARGEST || residual_is_full(r, size))
        return NULL;
    struct lemma *lemma = budget_take(r->budget, size);
    if (!lemma)
        return NULL;
    lemma->size = size;
    unsigned char *at = (unsigned char *)lemma + head;
    for (uint32_t dim = 0; dim < r->in.dims; dim++) {
        memcpy(at, r->region[dim], sizeof(struct set) + 2 * (size_t)r->region[dim]->n * sizeof(uint32_t));
        lemma->region[dim] = (struct set *)at;
        at += set_size(r->region[dim]);
    }
    lemma->a = *a, lemma->b = *b;
    lemma->a.v = (struct residual_item *)at;
    if (a->n)
        memcpy(lemma->a.v, a->v, a->n * sizeof *a->v);
    lemma->b.v = lemma->a.v + a->n;
    if (b->n)
        memcpy(lemma->b.v, b->v, b->n * sizeof *b->v);
    return lemma;
}

void lemma_free(struct residual *r, struct lemma *lemma)
{
    if (lemma)
        budget_give(r->budget, lemma, lemma->size);
}

static uint32_t hash_of(const struct residual_item *item)
{
    return (item->rule * 0x9e3779b1u ^ item->guarded * 0x85ebca6bu) >> 16 & (LEMMA_STARTS - 1);
}

/* Note the first items of the lemma at this place of the ring, or take them out again. */
static void note_starts(struct lemma_cache *cache, uint32_t place, bool note)
{
    const struct residual_list *lists[] = {&cache->v[place]->a, &cache->v[place]->b};
    uint64_t bit = UINT64_C(1) << place;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < lists[k]->n && i < FIRST_FEW; i++) {
            uint64_t *places = &cache->starts[k][hash_of(&lists[k]->v[i])];
            *places = note ? *places | bit : *places & ~bit;
        }
}

void lemma_cache_clear(struct residual *r, struct lemma_cache *cache)
{
    for (uint32_t k = 0; k < cache->n; k++) {
        note_starts(cache, k, false);
        lemma_free(r, cache->v[k]);
    }
    cache->n = cache->at = 0;
}

void lemma_cache_keep(struct residual *r, struct lemma_cache *cache, struct lemma *lemma)
{
    if (!lemma)
        return;
    if (cache->n == LEMMAS_KEPT) {
        note_starts(cache, cache->at, false);
        lemma_free(r, cache->v[cache->at]);
    } else {
        cache->n++;
    }
    cache->v[cache->at] = lemma;
    note_starts(cache, cache->at, true);
    cache->at = (cache->at + 1) % LEMMAS_KEPT;
}

/* Whether all of set is in other. */
static bool within(const struct set *set, const struct set *other)
{
    uint32_t o = 0;
    for (uint32_t s = 0; s < set->n; s++) {
        while (o < other->n && other->ends[2 * o + 1] < set->ends[2 * s])
            o++;
        if (o == other->n || other->ends[2 * o] > set->ends[2 * s] ||
            other->ends[2 * o + 1] < set->ends[2 * s + 1])
            return false;
    }
    return true;
}

/* Whether the list's first item is among the first of the kept list: a quick test that rules out most. */
static bool may_start(const struct residual_list *kept, const struct residual_list *list)
{
    if (!list->n)
        return true;
    for (size_t i = 0; i < kept->n && i < FIRST_FEW; i++)
        if (kept->v[i].rule == list->v->rule && kept->v[i].guarded == list->v->guarded)
            return true;
    return false;
}

/* Whether the kept list, filtered by the current region, is the list. */
static bool comes_to(struct residual *r, const struct residual_list *kept, const struct residual_list *list)
{
    if (kept->end != list->end || kept->n < list->n)
        return false;
    size_t top = r->top;
    struct residual_item *items = residual_push(r, (kept->n + 1) * sizeof *items);
    if (!items)
        return false;
    size_t n = residual_filter(r, kept, items, ALL_DIMS);
    bool same = n == list->n;
    for (size_t i = 0; same && i < n; i++) {
        const struct residual_item *x = &items[i], *y = &list->v[i];
        same = x->guarded == y->guarded && x->depth == y->depth &&
               (x->guarded == NONE || (x->rule == y->rule && x->open == y->open));
    }
    r->top = top;
    return same;
}

bool lemma_covers_region(const struct residual *r, const struct lemma *lemma)
{
    for (uint32_t dim = 0; dim < r->in.dims; dim++)
        if (!within(r->region[dim], lemma->region[dim]))
            return false;
    return true;
}

static bool covers(struct residual *r, const struct lemma *lemma, const struct residual_list *a,
                   const struct residual_list *b)
{
    return lemma_covers_region(r, lemma) && comes_to(r, &lemma->a, a) && comes_to(r, &lemma->b, b);
}

/* A bit for each place of the ring whose lemma may start as the lists do. */
static uint64_t candidates(const struct lemma_cache *cache, const struct residual_list *a,
                           const struct residual_list *b)
{
    uint64_t places = cache->n == LEMMAS_KEPT ? UINT64_MAX : (UINT64_C(1) << cache->n) - 1;
    if (a->n)
        places &= cache->starts[0][hash_of(a->v)];
    if (b->n)
        places &= cache->starts[1][hash_of(b->v)];
    return places;
}

bool lemma_cache_has(struct residual *r, const struct lemma_cache *cache, const struct residual_list *a,
                     const struct residual_list *b)
{
    uint64_t places = candidates(cache, a, b);
    if (cache->at) /* the newest lemma, which is before *at*, has the highest bit */
        places = places >> cache->at | places << (LEMMAS_KEPT - cache->at);
    for (uint32_t looked_at = 0; places && looked_at < LOOKED_AT;) {
        uint32_t place = LEMMAS_KEPT - 1 - (uint32_t)__builtin_clzll(places);
        places &= ~(UINT64_C(1) << place);
        const struct lemma *lemma = cache->v[(cache->at + place) % LEMMAS_KEPT];
        if (!may_start(&lemma->a, a) || !may_start(&lemma->b, b))
            continue;
        looked_at++;
        if (covers(r, lemma, a, b))
            return true;
    }
    return false;
}
