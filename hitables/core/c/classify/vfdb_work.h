#ifndef HITABLES_VFDB_WORK_H
#define HITABLES_VFDB_WORK_H
#include "vfdb.h"

/* A search body that counts is compiled twice: the flag *counted* is a constant of each copy, so the copy
 * that does not count has no trace of it. */
#define VFDB_BODY static inline __attribute__((always_inline))

static inline void vfdb_work_add(struct vfdb_work *sum, const struct vfdb_work *more)
{
    sum->nodes += more->nodes;
    sum->lists += more->lists;
    sum->hashes += more->hashes;
    sum->tuples += more->tuples;
    sum->rules += more->rules;
    sum->flows += more->flows;
    sum->keys += more->keys;
}

#endif
