/* HiCuts (Gupta and McKeown, Hot Interconnects 1999) in memory.
 *
 * Idea: a node of more than *leaf* rules is cut into equal parts along the dimension on which its rules have
 * most distinct sides.  The number of parts doubles while the rules of all parts, and the parts, are at
 * most *spfac* times the rules of the node.
 * Cost, invariant and threading are those of cuttings.c.
 *
 * Where we differ from the paper: of its four ways to choose the dimension this is the one that
 * later papers use; parts are powers of two from 2 on, not from the root of the number of rules.
 * The builder hicuts.c cuts as a rule list can be printed; this one as bits of a header can be read.
 */
#include "cut_tree.h"

static bool hicuts_choose(const struct cuttings_node *node, struct cutting *cutting)
{
    uint32_t most = 1;
    for (uint32_t d = 0; d < node->leaves->dims; d++) {
        uint32_t distinct = cuttings_distinct(node, d);
        if (distinct > most) {
            most = distinct;
            cutting->dim[0] = d;
        }
    }
    if (most < 2)
        return false;
    uint32_t left = cuttings_bits_left(node, cutting->dim[0]);
    for (cutting->bits[0] = 1; cutting->bits[0] < left && cutting->bits[0] < CUTTINGS_BITS; cutting->bits[0]++) {
        struct cutting finer = *cutting;
        finer.bits[0]++;
        if ((double)(cuttings_copies(node, &finer) + (UINT64_C(1) << finer.bits[0])) > node->spfac * node->count)
            break;
    }
    return true;
}

static int hicuts_build(struct ledger *ledger, const struct vfdb_plan *plan, const struct vfdb_rules *rules, void **built)
{
    return cuttings_build(ledger, plan, rules, hicuts_choose, built);
}

const struct vfdb_ops vfdb_hicuts = {
    .name = "hicuts",
    .title = "a tree of equal cuts along one dimension at a time",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = CUTTINGS_PARAMS,
    .build = hicuts_build,
    .search = cuttings_search,
    .free = cuttings_free,
};
