#ifndef HITABLES_LEMMAS_H
#define HITABLES_LEMMAS_H

#include "residual.h"

/* Pairs of lists that are known to be equal in a region: see known.c. */

struct lemma;

enum { LEMMAS_KEPT = 64 };

struct lemma_cache {
    struct lemma *v[LEMMAS_KEPT]; /* the newest role_of before at */
    uint32_t n, at;
};

struct lemma *lemma_copy(struct residual *r, const struct residual_list *a, const struct residual_list *b);
void lemma_free(struct residual *r, struct lemma *known);
void lemma_cache_keep(struct residual *r, struct lemma_cache *memory, struct lemma *known);
int lemma_cache_has(struct residual *r, const struct lemma_cache *memory, const struct residual_list *a, const struct residual_list *b);
void lemma_cache_clear(struct residual *r, struct lemma_cache *memory);

#endif
