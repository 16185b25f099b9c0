/* HiCuts (Gupta and McKeown, Hot Interconnects 1999) in memory.
 *
 * Idea: a node of more than *leaf* rules is cut into equal parts along the dimension on which its rules have
 * most distinct sides.  The number of parts doubles while the rules of all parts, and the parts, are at most
 * *spfac* times the rules of the node.
 * Cost: that of cut_tree.c.
 * Invariant: that of cut_tree.c.
 * Threading: that of cut_tree.c.
 *
 * Where we differ from the paper: of its four ways to choose the dimension this is the one that later papers
 * use; parts are powers of two from 2 on, not from the root of the number of rules.  The builder
 * tree/hicuts.c cuts as a rule list can be printed; this one as bits of a header can be read.
 */
#include "cut_tree.h"

static bool hicuts_choose(const struct cut_tree_region *node, struct node_cut *cut)
{
    uint32_t most = 1;
    for (uint32_t d = 0; d < node->leaves->dims; d++) {
        uint32_t distinct = cut_tree_distinct(node, d);
        if (distinct > most) {
            most = distinct;
            cut->dim[0] = d;
        }
    }
    if (most < 2)
        return false;
    uint32_t left = cut_tree_bits_left(node, cut->dim[0]);
    for (cut->bits[0] = 1; cut->bits[0] < left && cut->bits[0] < CUT_TREE_BITS; cut->bits[0]++) {
        struct node_cut finer = *cut;
        finer.bits[0]++;
        if ((double)(cut_tree_copies(node, &finer) + (UINT64_C(1) << finer.bits[0])) >
            node->spfac * node->count)
            break;
    }
    return true;
}

static int hicuts_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                        void **built)
{
    return cut_tree_build(budget, plan, rules, hicuts_choose, built);
}

const struct vfdb_ops vfdb_hicuts = {
    .name = "hicuts",
    .title = "a tree of equal cuts along one dimension at a time",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {CUT_TREE_PARAMS},
    .build = hicuts_build,
    .search = cut_tree_search,
    .search_counted = cut_tree_search_counted,
    .free = cut_tree_free,
};
