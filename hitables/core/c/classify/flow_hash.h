#ifndef HITABLES_FLOW_HASH_H
#define HITABLES_FLOW_HASH_H
#include <stdint.h>

/* A hash function made ready: its seed, spread over as many words as it reads. */
struct flow_hasher {
    uint32_t hash, buckets;
    uint64_t reciprocal; /* of the number of buckets, for the remainder */
    uint64_t seed[2];
    uint64_t factor[22]; /* multiply-shift: one per word of 32 bits, and the addend */
};

void flow_hasher_init(struct flow_hasher *hasher, uint32_t hash, const uint64_t *seed, uint32_t buckets);
/* bucket[i] is that of key i; keys have *bytes* bytes and lie *stride* bytes apart. */
void flow_hash_keys(const struct flow_hasher *hasher, const uint8_t *keys, uint32_t stride, uint32_t bytes,
                    uint32_t count, uint32_t *bucket);

#endif
