/* HyperCuts (Singh, Baboescu, Varghese and Wang, SIGCOMM 2003) in memory.
 *
 * Idea: as HiCuts, but a node is cut along several dimensions at once: those on which its rules have more
 * distinct sides than on the average.  The parts of all dimensions together are at most *spfac* times the
 * root of the number of rules; each doubling goes to the dimension that copies fewer rules.
 * Cost, invariant and threading are those of cuttings.c.
 *
 * Where we differ from the paper: a node cuts two dimensions at most, so that it takes eight bytes.  Regions do
 * not shrink to the hull of their rules, for then a part is not found by bits alone; rules that all parts
 * share do not move up to the node.
 */
#include "cut_tree.h"

/* The two dimensions with most distinct sides, of those above the average; the second may be none: false. */
static bool hypercuts_dims(const struct cuttings_node *node, struct cutting *cutting, bool *second)
{
    uint32_t most[2] = {0, 0}, sum = 0, dims = node->leaves->dims;
    for (uint32_t d = 0; d < dims; d++) {
        uint32_t distinct = cuttings_distinct(node, d);
        sum += distinct;
        for (uint32_t i = 0; i < 2; i++)
            if (distinct > most[i]) {
                if (!i) {
                    most[1] = most[0];
                    cutting->dim[1] = cutting->dim[0];
                }
                most[i] = distinct;
                cutting->dim[i] = d;
                break;
            }
    }
    *second = most[1] > 1 && (uint64_t)most[1] * dims > sum;
    return most[0] > 1;
}

static bool hypercuts_choose(const struct cuttings_node *node, struct cutting *cutting)
{
    bool second;
    if (!hypercuts_dims(node, cutting, &second))
        return false;
    for (uint32_t bits = 1; bits <= CUTTINGS_BITS; bits++) {
        double parts = (double)(UINT64_C(1) << bits);
        uint64_t least = UINT64_MAX;
        struct cutting best = *cutting;
        if (bits > 1 && parts * parts > node->spfac * node->spfac * node->count)
            break;
        for (uint32_t i = 0; i <= second; i++) {
            struct cutting finer = *cutting;
            if (finer.bits[i]++ == cuttings_bits_left(node, cutting->dim[i]))
                continue;
            uint64_t copies = cuttings_copies(node, &finer);
            if (copies < least) {
                least = copies;
                best = finer;
            }
        }
        if (least == UINT64_MAX)
            break;
        *cutting = best;
    }
    return true;
}

static int hypercuts_build(struct ledger *ledger, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                           void **built)
{
    return cuttings_build(ledger, plan, rules, hypercuts_choose, built);
}

const struct vfdb_ops vfdb_hypercuts = {
    .name = "hypercuts",
    .title = "a tree of equal cuts along two dimensions at a time",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = CUTTINGS_PARAMS,
    .build = hypercuts_build,
    .search = cuttings_search,
    .free = cuttings_free,
};
