#ifndef HITABLES_RFC_CHUNKS_H
#define HITABLES_RFC_CHUNKS_H
#include <stdint.h>

#include "scope.h"

/* A dimension as runs of values of one class each: run i begins at start[i]. */
struct runs {
    uint32_t count, classes;
    uint32_t *start, *class;
};

static inline uint32_t run_end(const struct runs *runs, uint32_t run, uint32_t top)
{
    return run + 1 < runs->count ? runs->start[run + 1] - 1 : top;
}

enum { CHUNK = 16, CHUNK_SIZE = 1 << CHUNK }; /* bits of a chunk, and its values */

/* A dimension in two chunks.  Each value of the upper one has a function from the lower one to classes,
 * kept as its pieces; values with the same function are one class of the upper chunk, and values of the
 * lower one that all functions treat alike are one class of the lower. */
struct rfc_chunks {
    uint32_t functions, lows;
    uint32_t *first; /* [functions + 1] pieces of each */
    uint32_t *from, *class; /* [pieces] first lower value, class */
    uint16_t *upper; /* [upper values] function */
    uint16_t *lower; /* [CHUNK_SIZE] class of the lower chunk */
    uint32_t *sample; /* [lows] the least value of each, ascending */
    uint32_t breaks;
    uint32_t *at; /* [breaks] where any function changes, ascending */
};

int rfc_chunks_split(struct scope *scope, const struct runs *runs, uint32_t top, struct rfc_chunks *chunks);
void rfc_chunks_row(const struct rfc_chunks *chunks, uint32_t function, uint32_t *row);

#endif
