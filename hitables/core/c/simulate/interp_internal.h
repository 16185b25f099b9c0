#ifndef HITABLES_INTERP_INTERNAL_H
#define HITABLES_INTERP_INTERNAL_H
#include "address_filter.h"
#include "interp.h"

struct arena;

/* A compiled table: built by interp_build.c, read by interp.c. */
struct interp {
    struct arena *arena;
    uint32_t *code, *starts, *ends;
    uint64_t *hashes;
    size_t words, chains, keys, rules, depth;
    uint32_t drop;
    uint32_t field_writers[FIELDS]; /* by field: mask of the states that change it */
    bool has_wide; /* some test has values of 128 bits */
    struct address_filter filter;
};

#endif
