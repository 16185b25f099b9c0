/* The search of merged.c, read once per instruction set: see sides_search.h. */

/* The least of best and the priorities of those of *rules* lanes, *group* apart, that match. */
static inline TARGET __attribute__((always_inline)) uint32_t NAME(least)(const uint32_t *lane, uint32_t rules,
                                                                         uint32_t group, const uint32_t *header,
                                                                         uint32_t dims, uint32_t best)
{
#if LEVEL == 512
    __mmask16 there = (__mmask16)((1U << rules) - 1), hit = there;
    for (uint32_t d = 0; d < dims; d++, lane += 2 * group) {
        __m512i low = _mm512_maskz_loadu_epi32(there, lane), span = _mm512_maskz_loadu_epi32(there, lane + group);
        hit &= _mm512_cmple_epu32_mask(_mm512_sub_epi32(_mm512_set1_epi32((int)header[d]), low), span);
    }
    if (__builtin_expect(!hit, 1))
        return best;
    uint32_t found = _mm512_mask_reduce_min_epu32(hit, _mm512_maskz_loadu_epi32(there, lane));
    return found < best ? found : best;
#else
    const uint32_t *priority = lane + (size_t)2 * dims * group;
    uint32_t i = 0;
#if LEVEL == 256
    for (; i + 8 <= rules; i += 8) {
        __m256i all = _mm256_set1_epi32(-1);
        const uint32_t *row = lane + i;
        for (uint32_t d = 0; d < dims; d++, row += 2 * group) {
            __m256i low = _mm256_loadu_si256((const __m256i *)row);
            __m256i span = _mm256_loadu_si256((const __m256i *)(row + group));
            __m256i off = _mm256_sub_epi32(_mm256_set1_epi32((int)header[d]), low);
            all = _mm256_and_si256(all, _mm256_cmpeq_epi32(_mm256_max_epu32(off, span), span));
        }
        for (uint32_t hit = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(all)); hit; hit &= hit - 1) {
            uint32_t found = priority[i + (uint32_t)__builtin_ctz(hit)];
            best = found < best ? found : best;
        }
    }
#endif
    for (; i < rules; i++) {
        uint32_t d = 0;
        while (d < dims && header[d] - lane[2 * d * group + i] <= lane[(2 * d + 1) * group + i])
            d++;
        if (d == dims && priority[i] < best)
            best = priority[i];
    }
    return best;
#endif
}

static inline TARGET __attribute__((always_inline)) void NAME(batches)(const struct merged *db, const uint32_t *headers,
                                                                       size_t count, uint32_t *found, uint32_t dims)
{
    uint32_t tag[MERGED_BATCH], best[MERGED_BATCH];
    const struct merged_bucket *bucket[MERGED_BATCH];
    const uint32_t *lane[MERGED_BATCH];
    for (size_t start = 0; start < count; start += MERGED_BATCH, headers += (size_t)MERGED_BATCH * dims) {
        uint32_t batch = count - start < MERGED_BATCH ? (uint32_t)(count - start) : MERGED_BATCH;
        memset(best, 0xFF, sizeof best);
        for (uint32_t t = 0; t < db->tables; t++) {
            const struct merged_table *table = &db->table[t];
            uint32_t places = (uint32_t)(UINT64_C(1) << (32 - table->shift)) - 1;
            const uint32_t *header = headers;
            for (uint32_t i = 0; i < batch; i++, header += dims) {
                tag[i] = hashed(table, header[0], dims > 1 ? header[1] : 0);
                bucket[i] = table->bucket + (tag[i] >> table->shift);
                __builtin_prefetch(bucket[i]);
            }
            for (uint32_t i = 0; i < batch; i++) {
                const struct merged_bucket *at = bucket[i];
                while (at->tag && at->tag != tag[i])
                    at = table->bucket + ((at - table->bucket + 1) & places);
                bucket[i] = at;
                lane[i] = at->tag ? at->lane : nothing;
                __builtin_prefetch(lane[i]);
                __builtin_prefetch(lane[i] + 16);
            }
            header = headers;
            for (uint32_t i = 0; i < batch; i++, header += dims) {
                const uint32_t *at = lane[i];
                uint32_t left = bucket[i]->count, group = bucket[i]->room < MERGED_LANES ? bucket[i]->room : MERGED_LANES;
                if (table->least >= best[i])
                    continue;
                for (; left > MERGED_LANES; left -= MERGED_LANES, at += (2 * (size_t)dims + 1) * MERGED_LANES)
                    best[i] = NAME(least)(at, MERGED_LANES, MERGED_LANES, header, dims, best[i]);
                best[i] = NAME(least)(at, left, group, header, dims, best[i]);
            }
        }
        memcpy(found + start, best, batch * sizeof *found);
    }
}

static TARGET void NAME(search)(const struct merged *db, const uint32_t *headers, size_t count, uint32_t *found)
{
    if (db->dims == 5)
        NAME(batches)(db, headers, count, found, 5);
    else
        NAME(batches)(db, headers, count, found, db->dims);
}
