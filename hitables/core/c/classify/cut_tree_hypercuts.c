/* HyperCuts (Singh, Baboescu, Varghese and Wang, SIGCOMM 2003) in memory.
 *
 * Idea: as HiCuts, but a node is cut along several dimensions at once: those on which its rules have more
 * distinct sides than on the average.  The parts of all dimensions together are at most *spfac* times the
 * root of the number of rules; each doubling cuts the dimension that copies fewer rules.
 * Cost: that of cut_tree.c.
 * Invariant: that of cut_tree.c.
 * Threading: that of cut_tree.c.
 *
 * Where we differ from the paper: a node cuts two dimensions at most, so that it takes eight bytes.  Regions
 * do not shrink to the hull of their rules, for then a part is not found by bits alone; rules that all parts
 * share do not move up to the node.
 */
#include "cut_tree.h"

/* The two dimensions with most distinct intervals, of those above the average; *second: whether there are
 * two. */
static bool hypercuts_dims(const struct cut_tree_region *node, struct node_cut *cut, bool *second)
{
    uint32_t most[2] = {0, 0}, sum = 0, dims = node->leaves->dims;
    for (uint32_t d = 0; d < dims; d++) {
        uint32_t distinct = cut_tree_distinct(node, d);
        sum += distinct;
        for (uint32_t i = 0; i < 2; i++)
            if (distinct > most[i]) {
                if (!i) {
                    most[1] = most[0];
                    cut->dim[1] = cut->dim[0];
                }
                most[i] = distinct;
                cut->dim[i] = d;
                break;
            }
    }
    *second = most[1] > 1 && (uint64_t)most[1] * dims > sum;
    return most[0] > 1;
}

static bool hypercuts_choose(const struct cut_tree_region *node, struct node_cut *cut)
{
    bool second;
    if (!hypercuts_dims(node, cut, &second))
        return false;
    for (uint32_t bits = 1; bits <= CUT_TREE_BITS; bits++) {
        double parts = (double)(UINT64_C(1) << bits);
        uint64_t least = UINT64_MAX;
        struct node_cut best = *cut;
        if (bits > 1 && parts * parts > node->spfac * node->spfac * node->count)
            break;
        for (uint32_t i = 0; i <= second; i++) {
            struct node_cut finer = *cut;
            if (finer.bits[i]++ == cut_tree_bits_left(node, cut->dim[i]))
                continue;
            uint64_t copies = cut_tree_copies(node, &finer);
            if (copies < least) {
                least = copies;
                best = finer;
            }
        }
        if (least == UINT64_MAX)
            break;
        *cut = best;
    }
    return true;
}

static int hypercuts_build(struct budget *budget, const struct vfdb_plan *plan,
                           const struct vfdb_rules *rules, void **built)
{
    return cut_tree_build(budget, plan, rules, hypercuts_choose, built);
}

const struct vfdb_ops vfdb_hypercuts = {
    .name = "hypercuts",
    .title = "a tree of equal cuts along two dimensions at a time",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = CUT_TREE_PARAMS,
    .build = hypercuts_build,
    .search = cut_tree_search,
    .search_counted = cut_tree_search_counted,
    .free = cut_tree_free,
};
