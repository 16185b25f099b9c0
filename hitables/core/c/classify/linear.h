#ifndef HITABLES_LINEAR_H
#define HITABLES_LINEAR_H
#include "vfdb.h"

extern const struct vfdb_ops vfdb_linear;

/* The rules that a linear search reads, as a build takes them: valid until the next insert or remove. */
struct vfdb_rules vfdb_linear_rules(const void *built, const uint8_t *bits);

#endif
