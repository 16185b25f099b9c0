#ifndef HITABLES_LEMMAS_H
#define HITABLES_LEMMAS_H

#include "residual.h"

/* Pairs of lists that are proved to be equal in a region, the newest LEMMAS_KEPT of them: see lemmas.c. */

struct lemma;

enum { LEMMAS_KEPT = 64, LEMMA_STARTS = 512 };

/* Zeroed: an empty cache. */
struct lemma_cache {
    struct lemma *v[LEMMAS_KEPT]; /* a ring; the newest is before *at* */
    uint32_t n, at;
    /* For the lists a and b, by the hash of an item: a bit for each place of the ring whose lemma has such an
     * item among its first. */
    uint64_t starts[2][LEMMA_STARTS];
};

/* A lemma of the two lists in the current region, yet to be proved.  NULL: too large, or no memory; then
 * the pair is proved again where it is met again.  Free it, or give it to the cache once it is proved. */
struct lemma *lemma_copy(struct residual *r, const struct residual_list *a, const struct residual_list *b);
/* Whether the current region lies in that of the lemma. */
bool lemma_covers_region(const struct residual *r, const struct lemma *lemma);
void lemma_free(struct residual *r, struct lemma *lemma);

/* Keep a proved lemma (NULL: nothing) in place of the oldest; the cache frees it. */
void lemma_cache_keep(struct residual *r, struct lemma_cache *cache, struct lemma *lemma);
/* Whether some lemma proves that the lists are equal in the current region. */
bool lemma_cache_has(struct residual *r, const struct lemma_cache *cache, const struct residual_list *a,
                     const struct residual_list *b);
void lemma_cache_clear(struct residual *r, struct lemma_cache *cache);

#endif
