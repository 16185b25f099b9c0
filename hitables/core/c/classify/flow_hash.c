/* Hash functions of flow keys.
 *
 * Idea: five functions behind one call per group of keys, so that the processor hashes several at a time.
 *   Zobel, Heinz and Williams: h ^= (h << 5) + (h >> 2) + c for each byte c, then 31 bits modulo the buckets;
 *     the paper's.
 *   CRC32C: the processor's instruction, or a table.
 *   Multiply-shift (Dietzfelbinger): one random factor per word of 32 bits, the upper half of the sum.
 *   SipHash-2-4: keyed; what Linux takes for its connection tracking.  The only one for which flows of one
 *     bucket cannot be made up without the seed.
 *   Folded: the halves of a product of 128 bits, xored, for each 16 bytes (as wyhash does).
 * Cost: nanoseconds per key of 13 bytes and evenness are measured by benchmarks/flow_tables.py.
 * Invariant: the same on every machine, whatever its byte order and instructions.
 * Threading: no state.
 */
#include "flow_hash.h"

#include <stdbool.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "flows.h"

#define INLINE static inline __attribute__((always_inline))

__extension__ typedef unsigned __int128 product128;

INLINE uint64_t load64(const uint8_t *key)
{
    uint64_t word;
    memcpy(&word, key, sizeof word);
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? __builtin_bswap64(word) : word;
}

/* The first *bytes* bytes, least first; zeros follow. */
INLINE uint64_t load_some(const uint8_t *key, uint32_t bytes)
{
    uint64_t word = 0;
    for (uint32_t i = 0; i < bytes; i++)
        word |= (uint64_t)key[i] << 8 * i;
    return word;
}

INLINE uint64_t zobel(const uint8_t *key, uint32_t bytes, uint64_t seed)
{
    uint32_t h = (uint32_t)seed;
    for (uint32_t i = 0; i < bytes; i++)
        h ^= (h << 5) + (h >> 2) + key[i];
    return h & 0x7FFFFFFF;
}

INLINE uint64_t multiply_shift(const uint8_t *key, uint32_t bytes, const uint64_t *factor)
{
    uint64_t sum = factor[0];
    uint32_t word = 1;
    for (; bytes > 4; bytes -= 4, key += 4)
        sum += factor[word++] * (uint32_t)load_some(key, 4);
    sum += factor[word] * load_some(key, bytes);
    return sum >> 32;
}

INLINE uint64_t turned(uint64_t word, uint32_t by)
{
    return word << by | word >> (64 - by);
}

INLINE void sip_round(uint64_t *v)
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = turned(v[1], 13) ^ v[0];
    v[3] = turned(v[3], 16) ^ v[2];
    v[0] = turned(v[0], 32) + v[3];
    v[2] += v[1];
    v[3] = turned(v[3], 21) ^ v[0];
    v[1] = turned(v[1], 17) ^ v[2];
    v[2] = turned(v[2], 32);
}

INLINE void sip_word(uint64_t *v, uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

INLINE uint64_t siphash(const uint8_t *key, uint32_t bytes, const uint64_t *seed)
{
    uint64_t v[4] = {seed[0] ^ UINT64_C(0x736f6d6570736575), seed[1] ^ UINT64_C(0x646f72616e646f6d),
                     seed[0] ^ UINT64_C(0x6c7967656e657261), seed[1] ^ UINT64_C(0x7465646279746573)};
    uint32_t left = bytes;
    for (; left >= 8; left -= 8, key += 8)
        sip_word(v, load64(key));
    sip_word(v, load_some(key, left) | (uint64_t)bytes << 56);
    v[2] ^= 0xFF;
    for (uint32_t i = 0; i < 4; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

INLINE uint64_t fold(uint64_t one, uint64_t other)
{
    product128 product = (product128)one * other;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

INLINE uint64_t folded(const uint8_t *key, uint32_t bytes, const uint64_t *seed)
{
    const uint64_t one = seed[0] ^ UINT64_C(0xa0761d6478bd642f), two = seed[1] ^ UINT64_C(0xe7037ed1a0b428db);
    uint64_t h = two;
    uint32_t left = bytes;
    for (; left > 16; left -= 16, key += 16)
        h = fold(load64(key) ^ one, load64(key + 8) ^ h);
    /* Two words of the rest, which overlap where it is shorter than both. */
    uint64_t first = left >= 8 ? load64(key) : load_some(key, left);
    uint64_t last = left >= 8 ? load64(key + left - 8) : 0;
    h = fold(first ^ one, last ^ h);
    return fold(h ^ one, UINT64_C(0x8ebc6af09c88c6e3) ^ bytes);
}

/* Castagnoli's polynomial, bits reversed. */
static uint32_t crc32c_bytes(const uint8_t *key, uint32_t bytes, uint32_t crc)
{
    for (uint32_t i = 0; i < bytes; i++) {
        crc ^= key[i];
        for (uint32_t bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
    }
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc32c_quick(const uint8_t *key, uint32_t bytes,
                                                               uint32_t crc)
{
    uint64_t sum = crc;
    for (; bytes >= 8; bytes -= 8, key += 8)
        sum = _mm_crc32_u64(sum, load64(key));
    for (; bytes; bytes--, key++)
        sum = _mm_crc32_u8((uint32_t)sum, *key);
    return (uint32_t)sum;
}
#endif

static uint64_t crc32c(const uint8_t *key, uint32_t bytes, uint64_t seed)
{
    uint32_t start = ~(uint32_t)seed;
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return (uint32_t)~crc32c_quick(key, bytes, start);
#endif
    return (uint32_t)~crc32c_bytes(key, bytes, start);
}

/* splitmix64: the factors of multiply-shift from the seed. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void flow_hasher_init(struct flow_hasher *hasher, uint32_t hash, const uint64_t *seed, uint32_t buckets)
{
    uint64_t state = seed[0] ^ seed[1];
    *hasher = (struct flow_hasher){
        .hash = hash, .buckets = buckets, .reciprocal = UINT64_MAX / buckets + 1, .seed = {seed[0], seed[1]}};
    for (uint32_t i = 0; i < sizeof hasher->factor / sizeof *hasher->factor; i++)
        hasher->factor[i] = next_random(&state) | 1;
}

/* h modulo the buckets, exactly (Lemire, Kaser and Kurz 2019): the fraction of h / buckets, times buckets. */
INLINE uint32_t remainder_of(const struct flow_hasher *hasher, uint32_t h)
{
    uint64_t fraction = hasher->reciprocal * h;
    return (uint32_t)(((product128)fraction * hasher->buckets) >> 64);
}

/* The upper bits of the hash choose: h * buckets / 2^64. */
INLINE uint32_t part_of_64(const struct flow_hasher *hasher, uint64_t h)
{
    return (uint32_t)(((product128)h * hasher->buckets) >> 64);
}

INLINE uint32_t bucket_of(const struct flow_hasher *hasher, uint32_t hash, const uint8_t *key, uint32_t bytes)
{
    switch (hash) {
    case FLOW_ZOBEL:
        return remainder_of(hasher, (uint32_t)zobel(key, bytes, hasher->seed[0]));
    case FLOW_CRC32C:
        return part_of_64(hasher, crc32c(key, bytes, hasher->seed[0]) << 32);
    case FLOW_MULTIPLY_SHIFT:
        return part_of_64(hasher, multiply_shift(key, bytes, hasher->factor) << 32);
    case FLOW_SIPHASH:
        return part_of_64(hasher, siphash(key, bytes, hasher->seed));
    default:
        return part_of_64(hasher, folded(key, bytes, hasher->seed));
    }
}

INLINE void hash_keys(const struct flow_hasher *hasher, uint32_t hash, const uint8_t *keys, uint32_t stride,
                      uint32_t bytes, uint32_t count, uint32_t *bucket)
{
    if (bytes == 13)
        for (uint32_t i = 0; i < count; i++)
            bucket[i] = bucket_of(hasher, hash, keys + (size_t)i * 16, 13);
    else
        for (uint32_t i = 0; i < count; i++)
            bucket[i] = bucket_of(hasher, hash, keys + (size_t)i * stride, bytes);
}

void flow_hash_keys(const struct flow_hasher *hasher, const uint8_t *keys, uint32_t stride, uint32_t bytes,
                    uint32_t count, uint32_t *bucket)
{
    switch (hasher->hash) {
    case FLOW_ZOBEL:
        hash_keys(hasher, FLOW_ZOBEL, keys, stride, bytes, count, bucket);
        break;
    case FLOW_CRC32C:
        hash_keys(hasher, FLOW_CRC32C, keys, stride, bytes, count, bucket);
        break;
    case FLOW_MULTIPLY_SHIFT:
        hash_keys(hasher, FLOW_MULTIPLY_SHIFT, keys, stride, bytes, count, bucket);
        break;
    case FLOW_SIPHASH:
        hash_keys(hasher, FLOW_SIPHASH, keys, stride, bytes, count, bucket);
        break;
    default:
        hash_keys(hasher, FLOW_FOLDED, keys, stride, bytes, count, bucket);
    }
}

uint64_t flow_hash_of(uint32_t hash, const uint64_t *seed, const uint8_t *key, uint32_t bytes)
{
    struct flow_hasher hasher;
    flow_hasher_init(&hasher, hash, seed, 1);
    switch (hash) {
    case FLOW_ZOBEL:
        return zobel(key, bytes, seed[0]);
    case FLOW_CRC32C:
        return crc32c(key, bytes, seed[0]);
    case FLOW_MULTIPLY_SHIFT:
        return multiply_shift(key, bytes, hasher.factor);
    case FLOW_SIPHASH:
        return siphash(key, bytes, seed);
    default:
        return folded(key, bytes, seed);
    }
}
