#ifndef HITABLES_CHAIN_INDEX_H
#define HITABLES_CHAIN_INDEX_H
#include "residual.h"

/* The rules of long chains by the packets that they may match.  See chain_index.c. */

struct chain_index;

/* Write to rules[], ascending, the rules of the chain that packets of the region may match; their number, or
 * NONE: read all rules.  *blocked*: the states that may be written before these packets read the chain. */
uint32_t chain_index_find(struct residual *r, uint32_t chain, uint32_t blocked, uint32_t *rules);
/* Forget the indexes: the rules are read in another way from now on. */
void chain_indexes_clear(struct residual *r);

#endif
