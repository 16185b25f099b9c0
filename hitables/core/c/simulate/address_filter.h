#ifndef HITABLES_ADDRESS_FILTER_H
#define HITABLES_ADDRESS_FILTER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

/* By rule number: the first 32 bits that the source and the destination must have (low to low + size),
 * where the rule's code starts, and the number behind the last rule of its chain without a gap.  wide: the
 * addresses have 128 bits. */
struct address_filter {
    uint32_t *low[2], *size[2], *code, *end;
    bool wide;
};

/* Read the code of a compiled table (interp.h), with memory of the arena; false when that is exhausted. */
bool address_filter_build(struct address_filter *filter, struct arena *arena, const uint32_t *code,
                          const uint32_t *starts, size_t chains, size_t rules);

/* The first rule from number *at* to the end of its run whose addresses may be these. */
uint32_t address_filter_next(const struct address_filter *filter, uint32_t at, uint32_t source,
                             uint32_t destination);

#endif
