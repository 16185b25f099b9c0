/* The search of split_product.c, included once per instruction set: LEVEL 0 for any CPU, 256 for AVX2, 512
 * for AVX-512; TARGET is the attribute of its functions, NAME(x) their names.
 *
 * All headers of a batch take a step before any takes the next, and each step asks for the memory that the
 * next one reads. */

/* How many of the first *bounds* 16-bit words are at most the value. */
static inline TARGET uint32_t NAME(rank)(const uint32_t *at, uint32_t bounds, uint32_t value)
{
#if LEVEL == 512
    __mmask32 there = (__mmask32)((UINT64_C(1) << bounds) - 1);
    __m512i read = _mm512_maskz_loadu_epi16(there, at);
    return (uint32_t)__builtin_popcount(
        _mm512_mask_cmple_epu16_mask(there, read, _mm512_set1_epi16((short)value)));
#elif LEVEL == 256
    __m256i wanted = _mm256_set1_epi16((short)value);
    uint64_t hit[2];
    for (int half = 0; half < 2; half++) {
        __m256i read = _mm256_loadu_si256((const __m256i *)at + half);
        hit[half] = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi16(_mm256_min_epu16(read, wanted), read));
    }
    uint64_t all = hit[0] | hit[1] << 32;
    all &= bounds == 32 ? UINT64_MAX : (UINT64_C(1) << 2 * bounds) - 1;
    return (uint32_t)__builtin_popcountll(all) / 2;
#else
    const uint16_t *bound = (const uint16_t *)at;
    uint32_t low = 0, high = bounds;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (bound[middle] <= value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
#endif
}

/* The place, in the map's pool, of the two words of the value; entry is its root. */
static inline TARGET const uint32_t *NAME(leaf)(const struct address_map *map, uint32_t entry, uint32_t value)
{
    uint32_t bounds = entry & 63, left = map->shift;
    const uint32_t *at = map->pool + (entry >> 6);
    while (__builtin_expect(bounds == SPLIT_TABLE, 0)) {
        uint32_t taken = left < 8 ? left : 8;
        left -= taken;
        entry = at[value >> left & ((1U << taken) - 1)];
        bounds = entry & 63;
        at = map->pool + (entry >> 6);
    }
    uint32_t rank = NAME(rank)(at, bounds, value & ((1U << left) - 1));
    return at + (bounds + 1) / 2 + 2 * (size_t)rank;
}

static inline TARGET uint32_t NAME(part)(const struct split_product *db, const uint32_t *at, uint32_t rules,
                                         uint32_t value, const uint32_t *row, const uint32_t *header,
                                         bool checks)
{
    const uint32_t *high = at + rules, *number = at + 2 * rules + (rules + 1) / 2;
    const uint16_t *service = (const uint16_t *)(at + 2 * rules);
    (void)db;
    (void)header;
    (void)checks;
#if LEVEL == 512
    __mmask16 there = (__mmask16)((1U << rules) - 1);
    __m512i wanted = _mm512_set1_epi32((int)value);
    __mmask16 hit = _mm512_mask_cmple_epu32_mask(there, _mm512_maskz_loadu_epi32(there, at), wanted);
    hit = _mm512_mask_cmpge_epu32_mask(hit, _mm512_maskz_loadu_epi32(there, high), wanted);
    __m512i asked = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, service));
    __m512i words = _mm512_permutexvar_epi32(_mm512_srli_epi32(asked, 5), _mm512_loadu_si512(row));
    hit = _mm512_mask_test_epi32_mask(hit, _mm512_rorv_epi32(words, asked), _mm512_set1_epi32(1));
    if (checks)
        for (uint32_t left = hit; left; left &= left - 1) {
            uint32_t lane = (uint32_t)__builtin_ctz(left);
            if (service[lane] != SPLIT_SERVICES - 1 || fits(db, number[lane], header))
                return number[lane];
        }
    return checks ? VFDB_NONE : number[__builtin_ctz((uint32_t)hit | 1U << rules)];
#else
    uint32_t lane = 0;
#if LEVEL == 256
    for (; lane + 8 <= rules; lane += 8) {
        __m256i wanted = _mm256_set1_epi32((int)value);
        __m256i low = _mm256_loadu_si256((const __m256i *)(at + lane));
        __m256i top = _mm256_loadu_si256((const __m256i *)(high + lane));
        __m256i in = _mm256_and_si256(_mm256_cmpeq_epi32(_mm256_min_epu32(low, wanted), low),
                                      _mm256_cmpeq_epi32(_mm256_max_epu32(top, wanted), top));
        for (uint32_t hit = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(in)); hit; hit &= hit - 1) {
            uint32_t at_lane = lane + (uint32_t)__builtin_ctz(hit);
            uint32_t asked = service[at_lane];
            if (row[asked / 32] >> asked % 32 & 1 &&
                (!checks || asked != SPLIT_SERVICES - 1 || fits(db, number[at_lane], header)))
                return number[at_lane];
        }
    }
#endif
    for (; lane < rules; lane++) {
        uint32_t asked = service[lane];
        if (at[lane] <= value && value <= high[lane] && row[asked / 32] >> asked % 32 & 1 &&
            (!checks || asked != SPLIT_SERVICES - 1 || fits(db, number[lane], header)))
            return number[lane];
    }
    return VFDB_NONE;
#endif
}

/* The first rule of a bucket whose other address and service match. */
static inline TARGET uint32_t NAME(bucket)(const struct split_product *db, uint32_t reference, uint32_t value,
                                           const uint32_t *row, const uint32_t *header, bool checks)
{
    const uint32_t *at = db->pool + (reference >> 6);
    uint32_t rules = reference & 63;
    if (__builtin_expect(rules <= 16, 1))
        return NAME(part)(db, at, rules, value, row, header, checks);
    if (rules == SPLIT_LONG)
        rules = *at++;
    for (;;) {
        uint32_t now = rules < 16 ? rules : 16;
        uint32_t number = NAME(part)(db, at, now, value, row, header, checks);
        rules -= now;
        if (number != VFDB_NONE || !rules)
            return number;
        at += 3 * now + (now + 1) / 2 + 1;
    }
}

/* The first rule of a list whose service matches. */
static inline TARGET uint32_t NAME(list)(const struct split_product *db, uint32_t reference,
                                         const uint32_t *row, const uint32_t *header, bool checks)
{
    const uint32_t *at = db->pool + (reference >> 6);
    uint32_t rules = reference & 63;
    if (__builtin_expect(rules == SPLIT_LONG, 0))
        rules = *at++;
    const uint16_t *service = (const uint16_t *)at;
    const uint32_t *number = at + (rules + 1) / 2;
    (void)db;
    (void)header;
#if LEVEL == 512
    __m512i bits = _mm512_loadu_si512(row);
    for (uint32_t first = 0;; first += 32) {
        uint32_t left = rules - first, now = left < 32 ? left : 32;
        __mmask32 there = (__mmask32)((UINT64_C(1) << now) - 1);
        __m512i asked = _mm512_maskz_loadu_epi16(there, service + first);
        __m512i words = _mm512_permutexvar_epi16(_mm512_srli_epi16(asked, 4), bits);
        words = _mm512_srlv_epi16(words, _mm512_and_si512(asked, _mm512_set1_epi16(15)));
        uint32_t hit = _mm512_mask_test_epi16_mask(there, words, _mm512_set1_epi16(1));
        if (checks) {
            for (; hit; hit &= hit - 1) {
                uint32_t lane = first + (uint32_t)__builtin_ctz(hit);
                if (service[lane] != SPLIT_SERVICES - 1 || fits(db, number[lane], header))
                    return number[lane];
            }
            if (left <= 32)
                return VFDB_NONE;
        } else if (left <= 32) {
            return number[first + (uint32_t)__builtin_ctzll((uint64_t)hit | UINT64_C(1) << now)];
        } else if (hit) {
            return number[first + (uint32_t)__builtin_ctz(hit)];
        }
    }
#else
    for (uint32_t lane = 0; lane < rules; lane++) {
        uint32_t asked = service[lane];
        if (row[asked / 32] >> asked % 32 & 1 &&
            (!checks || asked != SPLIT_SERVICES - 1 || fits(db, number[lane], header)))
            return number[lane];
    }
    return VFDB_NONE;
#endif
}

/* Properties of the database are constants of each call below, so each is compiled into a search of its own.
 * A value that is wider than its field stays inside the tables: plain fields are as wide as a type, and
 * others take the masks, which cost 5 % of a search. */
static inline TARGET __attribute__((always_inline)) void NAME(batches)(const struct split_product *db,
                                                                       const uint32_t *headers, size_t count,
                                                                       uint32_t *answers, uint32_t dims,
                                                                       bool by_source, bool by_destination,
                                                                       bool products, bool checks,
                                                                       bool answered, bool plain)
{
    const struct address_map *source = &db->map[0], *destination = &db->map[1];
    uint32_t entry[2][SPLIT_BATCH], rule[SPLIT_BATCH];
    const uint32_t *row[SPLIT_BATCH];
    uint32_t keyed[2][SPLIT_BATCH];
    uint32_t kinds[SPLIT_BATCH];
    size_t cell[2][SPLIT_BATCH];
    for (size_t start = 0; start < count; start += SPLIT_BATCH, headers += (size_t)SPLIT_BATCH * dims) {
        uint32_t batch = count - start < SPLIT_BATCH ? (uint32_t)(count - start) : SPLIT_BATCH;
        const uint32_t *header = headers;
        for (uint32_t i = 0; i < batch; i++, header += dims) {
            entry[0][i] = plain ? source->root[header[0] >> 16] : address_map_root(source, header[0]);
            entry[1][i] = plain ? destination->root[header[1] >> 16]
                                : address_map_root(destination, dims > 1 ? header[1] : 0);
            __builtin_prefetch(source->pool + (entry[0][i] >> 6));
            __builtin_prefetch(destination->pool + (entry[1][i] >> 6));
            size_t kind = 0;
            for (uint32_t d = 2; d < dims; d++) {
                const struct value_classes *class = &db->class[d - 2];
                if (d > 2)
                    kind *= class->classes;
                if (!plain)
                    kind += value_class(class, header[d]);
                else if (d == 4)
                    kind += class->of[(uint8_t)header[d] >> class->shift];
                else
                    kind += class->of[(uint16_t)header[d] >> class->shift];
            }
            kind = db->kind[kind];
            if (answered)
                kinds[i] = (uint32_t)kind;
            rule[i] = answered ? VFDB_NONE : db->open[kind];
            row[i] = db->row + (size_t)SPLIT_ROW * kind;
            __builtin_prefetch(row[i]);
        }
        header = headers;
        for (uint32_t i = 0; i < batch; i++, header += dims) {
            const uint32_t *x = NAME(leaf)(source, entry[0][i], header[0]);
            const uint32_t *y = NAME(leaf)(destination, entry[1][i], dims > 1 ? header[1] : 0);
            cell[0][i] = (size_t)x[1] + y[1];
            __builtin_prefetch((answered ? db->cell : db->product[0].list) + cell[0][i]);
            if (products) {
                cell[1][i] = (size_t)x[0] + y[0];
                __builtin_prefetch(db->product[1].list + cell[1][i]);
            }
            if (by_source) {
                keyed[0][i] = x[0];
                __builtin_prefetch(db->pool + (x[0] >> 6));
            }
            if (by_destination) {
                keyed[1][i] = y[0];
                __builtin_prefetch(db->pool + (y[0] >> 6));
            }
        }
        header = headers;
        for (uint32_t i = 0; i < batch; i++, header += dims) {
            uint32_t best = rule[i], other;
            if (answered) {
                entry[0][i] = db->cell[cell[0][i]] + kinds[i];
                __builtin_prefetch(db->answer + entry[0][i]);
            } else {
                entry[0][i] = db->product[0].list[cell[0][i]];
                __builtin_prefetch(db->pool + (entry[0][i] >> 6));
            }
            if (products) {
                entry[1][i] = db->product[1].list[cell[1][i]];
                __builtin_prefetch(db->pool + (entry[1][i] >> 6));
            }
            if (by_source) {
                other = NAME(bucket)(db, keyed[0][i], dims > 1 ? header[1] : 0, row[i], header, checks);
                best = other < best ? other : best;
            }
            if (by_destination) {
                other = NAME(bucket)(db, keyed[1][i], header[0], row[i], header, checks);
                best = other < best ? other : best;
            }
            rule[i] = best;
        }
        header = headers;
        for (uint32_t i = 0; i < batch; i++, header += dims) {
            uint32_t best = rule[i], other = answered
                                                 ? db->answer[entry[0][i]]
                                                 : NAME(list)(db, entry[0][i], row[i], header, checks);
            best = other < best ? other : best;
            if (products) {
                other = NAME(list)(db, entry[1][i], row[i], header, checks);
                best = other < best ? other : best;
            }
            if (!db->numbered && best != VFDB_NONE)
                best = db->priority[best];
            answers[start + i] = best;
        }
    }
}

static TARGET void NAME(search)(const struct split_product *db, const uint32_t *headers, size_t count,
                                uint32_t *answers)
{
    bool answered = db->answer;
    if (!db->plain)
        NAME(batches)
    (db, headers, count, answers, db->dims, db->by_source, db->by_destination, db->products, db->checks,
     answered, false);
    else if (db->checks) NAME(batches)(db, headers, count, answers, 5, db->by_source, db->by_destination,
                                       db->products, true, answered, true);
    else if (db->products)
        NAME(batches)(db, headers, count, answers, 5, false, false, true, false, false, true);
    else if (db->by_source && db->by_destination && answered)
        NAME(batches)(db, headers, count, answers, 5, true, true, false, false, true, true);
    else if (db->by_source && db->by_destination)
        NAME(batches)(db, headers, count, answers, 5, true, true, false, false, false, true);
    else if (db->by_source)
        NAME(batches)(db, headers, count, answers, 5, true, false, false, false, answered, true);
    else if (db->by_destination)
        NAME(batches)(db, headers, count, answers, 5, false, true, false, false, answered, true);
    else NAME(batches)(db, headers, count, answers, 5, false, false, false, false, false, true);
}
