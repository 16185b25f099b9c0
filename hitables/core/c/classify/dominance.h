#ifndef HITABLES_DOMINANCE_H
#define HITABLES_DOMINANCE_H
#include <stdint.h>

#include "scope.h"
#include "vfdb.h"

/* Dominance of rules in some dimensions: rules with the same intervals there are one group. */
struct dominance {
    uint32_t groups;
    uint32_t *group;  /* [rules] */
    uint8_t *full;    /* [groups] not 0: it leaves all those dimensions free */
    uint32_t words;
    uint64_t *covers; /* [groups][words] the groups around each, itself too; NULL: too many groups */
    uint32_t *stamp;  /* [groups] the last set that had a rule of it */
    uint32_t stamps;
};

/* Group the rules by the dimensions of the mask *dims*; an enum vfdb_status.  Memory is the scope's. */
int dominance_build(struct scope *scope, const struct vfdb_rules *rules, uint32_t dims,
                    struct dominance *dominance);
/* Copy a set without the rules that an earlier one of it dominates; *hash: its hash; the number of words
 * left. */
uint32_t dominance_keep(struct dominance *dominance, const uint32_t *at, const uint64_t *bits, uint32_t words,
                        uint32_t *kept_at, uint64_t *kept_bits, uint64_t *hash);

#endif
