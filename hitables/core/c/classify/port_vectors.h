#ifndef HITABLES_PORT_VECTORS_H
#define HITABLES_PORT_VECTORS_H
#include "cross_product_internal.h"

/* Ports and protocol of 32 plain headers, searched for in registers with AVX-512 (cross_product.c,
 * wildcards.c). */

enum { PORTS_GROUP = 32 /* headers */ };

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#define PORTS_TARGET __attribute__((target("avx512f,avx512bw,bmi,bmi2,popcnt")))
#define PORTS_INLINE inline PORTS_TARGET __attribute__((always_inline))

/* Word *number* of 32 headers, its lower half; *row*: where the first words of 16 headers lie, in halves
 * of words. */
static PORTS_INLINE __m512i port_field(const __m512i *read, __m512i row, uint32_t number)
{
    __mmask32 middle = 0,
              last = 0; /* which of 16 headers have it in the third or fourth vector, or in the fifth */
    for (uint32_t i = 0; i < 16; i++) {
        middle |= (__mmask32)((5 * i + number) / 32 == 1) << i;
        last |= (__mmask32)((5 * i + number) / 32 == 2) << i;
    }
    __m512i at = _mm512_add_epi16(row, _mm512_set1_epi16((short)(2 * number)));
    __m512i all = _mm512_permutex2var_epi16(read[0], at, read[1]);
    all = _mm512_mask_mov_epi16(all, middle, _mm512_permutex2var_epi16(read[2], at, read[3]));
    all = _mm512_mask_permutexvar_epi16(all, last, at, read[4]);
    all = _mm512_mask_mov_epi16(all, 0xFFFF0000, _mm512_permutex2var_epi16(read[5], at, read[6]));
    all = _mm512_mask_mov_epi16(all, middle << 16, _mm512_permutex2var_epi16(read[7], at, read[8]));
    return _mm512_mask_permutexvar_epi16(all, last << 16, at, read[9]);
}

/* The entries of a table of 64, or of 128: from its second half in the lanes of *upper*. */
static PORTS_INLINE __m512i port_entries(const uint16_t *table, __m512i at, __mmask32 upper, bool large)
{
    __m512i all = _mm512_permutex2var_epi16(_mm512_loadu_si512(table), at, _mm512_loadu_si512(table + 32));
    if (!large)
        return all;
    table += 64;
    return _mm512_mask_mov_epi16(
        all, upper, _mm512_permutex2var_epi16(_mm512_loadu_si512(table), at, _mm512_loadu_si512(table + 32)));
}

/* The shares of values, by binary search. */
static PORTS_INLINE __m512i port_shares(const struct port_ranges *ranges, __m512i value, bool large)
{
    __m512i at = _mm512_setzero_si512();
    __mmask32 upper = large ? _mm512_cmpge_epu16_mask(value, _mm512_set1_epi16((short)ranges->start[64])) : 0;
    _Pragma("GCC unroll 6") for (short step = 32; step; step /= 2)
    {
        __m512i next = _mm512_or_si512(at, _mm512_set1_epi16(step));
        at = _mm512_mask_mov_epi16(
            at, _mm512_cmpge_epu16_mask(value, port_entries(ranges->start, next, upper, large)), next);
    }
    return port_entries(ranges->share, at, upper, large);
}

/* The sums of the shares of 32 headers; *ranges* of source port, destination port and protocol; *sources*:
 * some rules test the source port. */
static PORTS_INLINE void sum_ports(const struct port_ranges *ranges, const uint32_t *headers, uint16_t *sums,
                                   bool sources)
{
    uint16_t row[PORTS_GROUP];
    for (uint32_t i = 0; i < PORTS_GROUP; i++)
        row[i] = (uint16_t)(2 * 5 * (i % 16));
    const __m512i rows = _mm512_loadu_si512(row);
    __m512i read[10];
    for (uint32_t i = 0; i < 10; i++, headers += 16)
        read[i] = _mm512_loadu_si512(headers);
    __m512i sum = port_shares(&ranges[1], port_field(read, rows, 3), true);
    sum = _mm512_add_epi16(sum, port_shares(&ranges[2], port_field(read, rows, 4), false));
    if (sources)
        sum = _mm512_add_epi16(sum, port_shares(&ranges[0], port_field(read, rows, 2), false));
    _mm512_storeu_si512(sums, sum);
}
#endif

/* Whether the CPU has them, and vectors of *most* bits may be used. */
static inline bool have_port_vectors(int64_t most)
{
#ifdef HAVE_X86
    return most >= 512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
#else
    (void)most;
    return false;
#endif
}

#endif
