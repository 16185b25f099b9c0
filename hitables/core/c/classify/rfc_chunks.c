/* A dimension of classes in two chunks.
 *
 * Idea: functions from the lower chunk to classes, interned; then the lower chunk's values, grouped by the
 * results of all functions.
 * Cost: time by the runs, and by functions times the places where any of them changes.
 * Invariant: row of the upper class, column of the lower: the class of the value.  Sums of hashes find lower
 * values that may be equal, and every function then checks them; after a wrong guess another seed is used.
 * Threading: none; all memory is the scope's.
 */
#include "rfc_chunks.h"

#include <stdbool.h>
#include <string.h>

#include "rule_sets.h"
#include "vfdb.h"

static bool same_pieces(const struct rfc_chunks *h, uint32_t one, uint32_t other)
{
    uint32_t pieces = h->first[one + 1] - h->first[one];
    return pieces == h->first[other + 1] - h->first[other] &&
           !memcmp(h->from + h->first[one], h->from + h->first[other], pieces * sizeof *h->from) &&
           !memcmp(h->class + h->first[one], h->class + h->first[other], pieces * sizeof *h->class);
}

/* The number of the function written last, which is kept if it is new. */
static uint32_t function_number(struct rfc_chunks *h, uint32_t *slot, uint32_t mask)
{
    uint64_t hash = 0;
    for (uint32_t p = h->first[h->functions]; p < h->first[h->functions + 1]; p++)
        hash += rule_sets_mix(h->from[p], h->class[p]);
    uint32_t at = (uint32_t)(hash >> 16) & mask;
    while (slot[at] && !same_pieces(h, slot[at] - 1, h->functions))
        at = (at + 1) & mask;
    if (!slot[at])
        slot[at] = ++h->functions;
    return slot[at] - 1;
}

static int split_upper(struct scope *scope, const struct runs *runs, uint32_t top, struct rfc_chunks *h)
{
    uint32_t uppers = (top >> CHUNK) + 1, mask = 4 * CHUNK_SIZE - 1;
    size_t pieces = (size_t)runs->count + 2 * (size_t)uppers + 1;
    uint32_t *slot = scope_take(scope, (mask + 1) * sizeof *slot);
    h->first = scope_take(scope, (uppers + 2) * sizeof *h->first);
    h->from = scope_take(scope, pieces * sizeof *h->from);
    h->class = scope_take(scope, pieces * sizeof *h->class);
    h->upper = scope_take(scope, uppers * sizeof *h->upper);
    if (!slot || !h->first || !h->from || !h->class || !h->upper)
        return VFDB_NO_MEMORY;
    for (uint32_t value = 0, run = 0; value < uppers;) {
        uint32_t low = value << CHUNK, high = low | (CHUNK_SIZE - 1), last = value, end;
        uint32_t *piece = &h->first[h->functions + 1];
        *piece = h->first[h->functions];
        for (;; run++) {
            h->from[*piece] = runs->start[run] > low ? runs->start[run] - low : 0;
            h->class[(*piece)++] = runs->class[run];
            end = run_end(runs, run, top);
            if (end >= high)
                break;
        }
        if (*piece == h->first[h->functions] + 1) /* one class: so are the values up to the end of the run */
            last = (uint32_t)((end + UINT64_C(1)) >> CHUNK) - 1;
        uint32_t number = function_number(h, slot, mask);
        while (value <= last)
            h->upper[value++] = (uint16_t)number;
        while (run + 1 < runs->count && value < uppers && runs->start[run + 1] <= value << CHUNK)
            run++;
    }
    scope_drop(scope, slot);
    return VFDB_OK;
}

/* The classes of one function at the samples. */
void rfc_chunks_row(const struct rfc_chunks *h, uint32_t function, uint32_t *row)
{
    uint32_t p = h->first[function];
    for (uint32_t low = 0; low < h->lows; low++) {
        while (p + 1 < h->first[function + 1] && h->from[p + 1] <= h->sample[low])
            p++;
        row[low] = h->class[p];
    }
}

/* Classes of the lower chunk: values with one sum of hashes.  False when two that differ have one sum. */
static bool split_lower_by(struct rfc_chunks *h, uint64_t *sum, uint32_t *slot, uint32_t *row, uint64_t seed)
{
    uint32_t mask = 4 * CHUNK_SIZE - 1;
    memset(sum, 0, CHUNK_SIZE * sizeof *sum);
    memset(slot, 0, (mask + (size_t)1) * sizeof *slot);
    for (uint32_t f = 0; f < h->functions; f++)
        for (uint32_t p = h->first[f]; p < h->first[f + 1]; p++) {
            uint64_t before = p > h->first[f] ? rule_sets_mix(f, seed + h->class[p - 1]) : 0;
            sum[h->from[p]] += rule_sets_mix(f, seed + h->class[p]) - before;
        }
    h->lows = 0;
    for (uint32_t i = 0; i < h->breaks; i++) {
        uint32_t v = h->at[i], end = i + 1 < h->breaks ? h->at[i + 1] : CHUNK_SIZE;
        sum[v] += i ? sum[h->at[i - 1]] : 0;
        uint32_t at = (uint32_t)(sum[v] >> 16) & mask;
        while (slot[at] && sum[h->sample[slot[at] - 1]] != sum[v])
            at = (at + 1) & mask;
        if (!slot[at]) {
            h->sample[h->lows++] = v;
            slot[at] = h->lows;
        }
        for (uint32_t fill = v; fill < end; fill++)
            h->lower[fill] = (uint16_t)(slot[at] - 1);
    }
    for (uint32_t f = 0; f < h->functions; f++) {
        uint32_t p = h->first[f];
        rfc_chunks_row(h, f, row);
        for (uint32_t i = 0; i < h->breaks; i++) {
            while (p + 1 < h->first[f + 1] && h->from[p + 1] <= h->at[i])
                p++;
            if (row[h->lower[h->at[i]]] != h->class[p])
                return false;
        }
    }
    return true;
}

static int split_lower(struct scope *scope, struct rfc_chunks *h)
{
    uint64_t *sum = scope_take(scope, CHUNK_SIZE * sizeof *sum);
    uint32_t *slot = scope_take(scope, 4 * CHUNK_SIZE * sizeof *slot);
    uint8_t *breaks = scope_take(scope, CHUNK_SIZE);
    h->lower = scope_take(scope, CHUNK_SIZE * sizeof *h->lower);
    h->sample = scope_take(scope, CHUNK_SIZE * sizeof *h->sample);
    h->at = scope_take(scope, CHUNK_SIZE * sizeof *h->at);
    uint32_t *row = scope_take(scope, CHUNK_SIZE * sizeof *row);
    if (!sum || !slot || !breaks || !h->lower || !h->sample || !h->at || !row)
        return VFDB_NO_MEMORY;
    for (uint32_t p = 0; p < h->first[h->functions]; p++)
        breaks[h->from[p]] = 1;
    for (uint32_t v = 0; v < CHUNK_SIZE; v++)
        if (breaks[v])
            h->at[h->breaks++] = v;
    for (uint64_t seed = 0; !split_lower_by(h, sum, slot, row, seed << 40); seed++)
        ;
    return VFDB_OK;
}

/* Split a dimension up to *top*; a status.  Memory is the scope's. */
int rfc_chunks_split(struct scope *scope, const struct runs *runs, uint32_t top, struct rfc_chunks *chunks)
{
    *chunks = (struct rfc_chunks){0};
    int status = split_upper(scope, runs, top, chunks);
    return status ? status : split_lower(scope, chunks);
}
