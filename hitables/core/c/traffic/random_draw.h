#ifndef HITABLES_RANDOM_DRAW_H
#define HITABLES_RANDOM_DRAW_H
#include <math.h>
#include <stdint.h>

/* Random numbers, the same for the same seed: xoshiro256++ (Blackman and Vigna), seeded by splitmix64. */
struct random_state {
    uint64_t word[4];
};

static inline uint64_t random_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline void random_seed(struct random_state *state, uint64_t seed)
{
    for (unsigned i = 0; i < 4; i++)
        state->word[i] = random_mix(seed += 0x9e3779b97f4a7c15u);
}

static inline uint64_t random_rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static inline uint64_t random_word(struct random_state *state)
{
    uint64_t *w = state->word, result = random_rotate(w[0] + w[3], 23) + w[0], t = w[1] << 17;
    w[2] ^= w[0];
    w[3] ^= w[1];
    w[1] ^= w[2];
    w[0] ^= w[3];
    w[2] ^= t;
    w[3] = random_rotate(w[3], 45);
    return result;
}

/* From 0 to below 1. */
static inline double random_share(struct random_state *state)
{
    return (double)(random_word(state) >> 11) * 0x1p-53;
}

/* From 0 to below *count*, which is at most 2^32. */
static inline uint32_t random_below(struct random_state *state, uint64_t count)
{
    return (uint32_t)((random_word(state) >> 32) * count >> 32);
}

static inline double random_exponential(struct random_state *state, double mean)
{
    return -mean * log1p(-random_share(state));
}

static inline double random_normal(struct random_state *state)
{
    double radius = sqrt(random_exponential(state, 2));
    return radius * cos(6.283185307179586 * random_share(state));
}

#endif
