#ifndef HITABLES_KNOWN_H
#define HITABLES_KNOWN_H

#include "residual.h"

/* Pairs of lists that are known to be equal in a region: see known.c. */

struct known;

enum { KNOWN_MOST = 64 };

struct memory {
    struct known *v[KNOWN_MOST]; /* the newest stands before at */
    uint32_t n, at;
};

struct known *known_copy(struct residue *r, const struct list *a, const struct list *b);
void known_free(struct residue *r, struct known *known);
void memory_keep(struct residue *r, struct memory *memory, struct known *known);
int memory_has(struct residue *r, const struct memory *memory, const struct list *a, const struct list *b);
void memory_clear(struct residue *r, struct memory *memory);

#endif
