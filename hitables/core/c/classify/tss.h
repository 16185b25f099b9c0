#ifndef HITABLES_TSS_H
#define HITABLES_TSS_H
#include "tuples.h"

/* What a search in the structure of tss.c reads. */
struct tss {
    struct tuples tuples;
    uint32_t step;
    bool vector;
};

extern const struct vfdb_ops vfdb_tss;

#endif
