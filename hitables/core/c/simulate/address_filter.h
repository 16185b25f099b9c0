#ifndef HITABLES_ADDRESS_FILTER_H
#define HITABLES_ADDRESS_FILTER_H
#include <stddef.h>
#include <stdint.h>

struct arena;

/* By rule number: what the source's and the destination's first 32 bits must be (low to
 * low + size), where the rule's code starts, and the number behind the last rule of its
 * chain that follows in a row.  wide: the addresses have 128 bits. */
struct address_filter {
    uint32_t *low[2], *size[2], *code, *end;
    int wide;
};

/* Read the code of a lowered table (interp.h).  0 when memory is exhausted. */
int address_filter_build(struct address_filter *filter, struct arena *arena, const uint32_t *code, const uint32_t *starts,
               size_t chains, size_t rules);

/* The first rule from number *at* to the end of its run whose addresses may be these. */
uint32_t address_filter_next(const struct address_filter *filter, uint32_t at, uint32_t source, uint32_t destination);

#endif
