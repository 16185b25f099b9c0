/* A list of boxes as a structure of arrays.
 *
 * Idea: a header lies in a box if header - low, unsigned, is at most high - low in each dimension; with the
 * bounds of sixteen boxes side by side that is three instructions per dimension, and as few for sixteen
 * headers and one box.
 * Cost: a search O(n/16), changes O(n).
 * Invariant: room is a multiple of the lanes, so a load never leaves a column; lanes beyond the last box are
 * masked.
 * Threading: searches change nothing.
 */
#include "box_soa.h"

#include <string.h>

#include "budget.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { LANES = 16 };

static uint32_t *column(const struct box_soa *list, uint32_t number)
{
    return list->word + (size_t)number * list->room;
}

static size_t column_bytes(const struct box_soa *list)
{
    return 2 * (size_t)list->dims * list->room * sizeof *list->word;
}

bool box_soa_reserve(struct box_soa *list, struct budget *budget, uint32_t count)
{
    if (count <= list->room)
        return true;
    struct box_soa wider = *list;
    wider.room = count < 2 * list->room ? 2 * list->room : count;
    wider.room = (wider.room + LANES - 1) / LANES * LANES;
    wider.word = budget_take(budget, column_bytes(&wider));
    if (!wider.word)
        return false;
    for (uint32_t c = 0; list->count && c < 2 * list->dims; c++)
        memcpy(column(&wider, c), column(list, c), list->count * sizeof *list->word);
    budget_give(budget, list->word, column_bytes(list));
    *list = wider;
    return true;
}

void box_soa_free(struct box_soa *list, struct budget *budget)
{
    budget_give(budget, list->word, column_bytes(list));
    *list = (struct box_soa){.dims = list->dims, .vector = list->vector};
}

void box_soa_insert(struct box_soa *list, uint32_t at, const uint32_t *box)
{
    for (uint32_t c = 0; c < 2 * list->dims; c++) {
        uint32_t *side = column(list, c);
        memmove(side + at + 1, side + at, (list->count - at) * sizeof *side);
        side[at] = c & 1 ? box[c] - box[c - 1] : box[c];
    }
    list->count++;
}

void box_soa_remove(struct box_soa *list, uint32_t at)
{
    list->count--;
    for (uint32_t c = 0; c < 2 * list->dims; c++) {
        uint32_t *side = column(list, c);
        memmove(side + at, side + at + 1, (list->count - at) * sizeof *side);
    }
}

static bool holds(const struct box_soa *list, uint32_t at, const uint32_t *header)
{
    for (uint32_t d = 0; d < list->dims; d++)
        if (header[d] - column(list, 2 * d)[at] > column(list, 2 * d + 1)[at])
            return false;
    return true;
}

static uint32_t next_scalar(const struct box_soa *list, const uint32_t *header, uint32_t from)
{
    while (from < list->count && !holds(list, from, header))
        from++;
    return from;
}

#ifdef __x86_64__
#define VECTOR __attribute__((target("avx512f")))

VECTOR static uint32_t next_512(const struct box_soa *list, const uint32_t *header, uint32_t from)
{
    for (uint32_t at = from / LANES * LANES; at < list->count; at += LANES) {
        __mmask16 held = list->count - at < LANES ? (__mmask16)((1u << (list->count - at)) - 1) : 0xFFFF;
        if (at < from)
            held &= (__mmask16)(0xFFFFu << (from - at));
        const uint32_t *side = list->word + at;
        for (uint32_t d = 0; d < list->dims; d++, side += 2 * (size_t)list->room) {
            __m512i above = _mm512_sub_epi32(_mm512_set1_epi32((int)header[d]), _mm512_loadu_si512(side));
            held = _mm512_mask_cmple_epu32_mask(held, above, _mm512_loadu_si512(side + list->room));
        }
        if (held)
            return at + (uint32_t)__builtin_ctz(held);
    }
    return list->count;
}

/* Word *dim* of sixteen headers of five words, which fill five vectors. */
VECTOR static inline __attribute__((always_inline)) __m512i word_of_16(const __m512i *rows, int dim)
{
    const __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i at = _mm512_add_epi32(_mm512_mullo_epi32(number, _mm512_set1_epi32(5)), _mm512_set1_epi32(dim));
    __m512i word = _mm512_permutex2var_epi32(rows[0], at, rows[1]);
    __m512i later = _mm512_permutex2var_epi32(rows[2], at, rows[3]);
    word = _mm512_mask_mov_epi32(word, _mm512_cmpge_epu32_mask(at, _mm512_set1_epi32(32)), later);
    return _mm512_mask_permutexvar_epi32(word, _mm512_cmpge_epu32_mask(at, _mm512_set1_epi32(64)), at,
                                         rows[4]);
}

VECTOR static inline __attribute__((always_inline)) __mmask16 within_512(const struct box_soa *list,
                                                                         uint32_t at, uint32_t dim,
                                                                         __m512i word, __mmask16 held)
{
    __m512i above = _mm512_sub_epi32(word, _mm512_set1_epi32((int)column(list, 2 * dim)[at]));
    return _mm512_mask_cmple_epu32_mask(held, above, _mm512_set1_epi32((int)column(list, 2 * dim + 1)[at]));
}

/* Sixteen headers of five words against one box after the other: most are ruled out after two dimensions. */
VECTOR static void first_of_five_512(const struct box_soa *list, const uint32_t *headers, uint32_t *first)
{
    __m512i rows[5], word[5], found = _mm512_set1_epi32((int)list->count);
    __mmask16 left = 0xFFFF;
    for (int i = 0; i < 5; i++)
        rows[i] = _mm512_loadu_si512(headers + LANES * i);
    for (int d = 0; d < 5; d++)
        word[d] = word_of_16(rows, d);
    for (uint32_t at = 0; at < list->count && left; at++) {
        __mmask16 held = within_512(list, at, 1, word[1], within_512(list, at, 0, word[0], left));
        if (!held)
            continue;
        for (uint32_t d = 2; d < 5; d++)
            held = within_512(list, at, d, word[d], held);
        found = _mm512_mask_mov_epi32(found, held, _mm512_set1_epi32((int)at));
        left &= (__mmask16)~held;
    }
    _mm512_storeu_si512(first, found);
}

VECTOR static void first_512(const struct box_soa *list, const uint32_t *headers, uint32_t count,
                             uint32_t *first)
{
    uint32_t i = 0;
    if (list->dims == 5)
        for (; i + LANES <= count; i += LANES)
            first_of_five_512(list, headers + (size_t)i * 5, first + i);
    for (; i < count; i++)
        first[i] = next_512(list, headers + (size_t)i * list->dims, 0);
}
#endif

void box_soa_first(const struct box_soa *list, const uint32_t *headers, uint32_t count, uint32_t *first)
{
#ifdef __x86_64__
    if (list->vector) {
        first_512(list, headers, count, first);
        return;
    }
#endif
    for (uint32_t i = 0; i < count; i++, headers += list->dims)
        first[i] = next_scalar(list, headers, 0);
}

uint32_t box_soa_next(const struct box_soa *list, const uint32_t *header, uint32_t from)
{
#ifdef __x86_64__
    if (list->vector)
        return next_512(list, header, from);
#endif
    return next_scalar(list, header, from);
}
