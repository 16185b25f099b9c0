#ifndef HITABLES_CUTTINGS_H
#define HITABLES_CUTTINGS_H
#include <stdint.h>

#include "budget.h"
#include "split_stack.h"
#include "vfdb.h"

/* Trees of equal cuts, searched in memory: HiCuts and HyperCuts differ in how they cut a node. */

enum {
    CUTTINGS_DIMS = 2, /* dimensions that one node cuts */
    CUTTINGS_BITS = 12 /* a node has at most 2^12 parts */
};

/* 2^bits[i] parts of dimension dim[i]; bits[1] is 0 when only one dimension is cut. */
struct cutting {
    uint32_t dim[CUTTINGS_DIMS], bits[CUTTINGS_DIMS];
};

/* The node to be cut: its rules and region, and *key*, scratch of two numbers per rule. */
struct cuttings_node {
    const struct leaves *leaves;
    const uint32_t *list, *region;
    uint32_t count;
    double spfac;
    uint64_t *key;
};

/* How a node is cut, or false if that leads nowhere. */
typedef bool cuttings_choose(const struct cuttings_node *node, struct cutting *cutting);

int cuttings_build(struct ledger *ledger, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                   cuttings_choose *choose, void **built);
int cuttings_search(const void *built, const uint32_t *headers, size_t count, uint32_t *found);
void cuttings_free(void *built);

uint32_t cuttings_distinct(const struct cuttings_node *node, uint32_t dim);
uint64_t cuttings_copies(const struct cuttings_node *node, const struct cutting *cutting);
uint32_t cuttings_bits_left(const struct cuttings_node *node, uint32_t dim);

/* The parameters of both, in the order in which cuttings_build reads them. */
#define CUTTINGS_PARAMS                                                                                               \
    {{"leaf", "rules in a leaf at most (binth)", 16, 1, 1000},                                                         \
     {"spfac", "space factor: how far a node may be cut", 4, 1, 100},                                                 \
     {"mb", "megabytes of tree at most", 1024, 1, 1 << 20}}

#endif
