/* HyperCuts (Singh, Baboescu, Varghese and Wang, SIGCOMM 2003) in memory.
 *
 * Idea: as HiCuts, but a node is cut along several dimensions at once: those on which its rules have more
 * distinct sides than on the average.  The parts of all dimensions together are at most *spfac* times the
 * root of the number of rules; each doubling cuts the dimension that copies fewer rules (choose=0), or, as
 * Ma and others describe it in Storm (3.2.3), a dimension is doubled while that makes the lists of its parts
 * clearly shorter and leaves few of them empty (choose=1).
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

/* What counts as clear, for choose=1: the longest or the mean list falls to this share; this share of the new
 * parts is empty.  The paper gives no figures; these are those of tree/hypercuts.c. */
static const double shorter = 0.9, vacant = 0.75;

/* The lists of all parts of a cut: the longest, the mean of those that are not empty, empty parts. */
struct part_lists {
    uint32_t longest, empty, parts;
    double mean;
};

/* Corners of the rules are counted, and summed along both dimensions: a step per rule and per part. */
static struct part_lists part_lists(const struct cut_tree_region *node, const struct node_cut *cut)
{
    int32_t count[(2 << CUT_TREE_BITS) + 2] = {0}; /* 2^12 + 1 rows of two, or the other way round, at most */
    uint32_t rows = 1U << cut->bits[0], columns = 1U << cut->bits[1], width = columns + 1;
    struct part_lists lists = {.parts = rows * columns};
    for (uint32_t i = 0; i < node->count; i++) {
        struct cut_tree_range down = cut_tree_range(node, node->list[i], cut, 0),
                              across = cut_tree_range(node, node->list[i], cut, 1);
        count[down.low * width + across.low]++;
        count[down.low * width + across.high + 1]--;
        count[(down.high + 1) * width + across.low]--;
        count[(down.high + 1) * width + across.high + 1]++;
    }
    double sum = 0;
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t column = 0; column < columns; column++) {
            size_t at = (size_t)row * width + column, above = at - width;
            if (column)
                count[at] += count[at - 1];
            if (row)
                count[at] += count[above] - (column ? count[above - 1] : 0);
            sum += count[at];
            lists.longest = (uint32_t)count[at] > lists.longest ? (uint32_t)count[at] : lists.longest;
            lists.empty += !count[at];
        }
    lists.mean = lists.empty < lists.parts ? sum / (lists.parts - lists.empty) : 0;
    return lists;
}

/* The bits of one dimension as the paper picks them: one more while the lists become clearly shorter and the
 * empty parts clearly no more. */
static uint32_t published_bits(const struct cut_tree_region *node, uint32_t dim)
{
    struct node_cut cut = {{dim, 0}, {0, 0}};
    struct part_lists before = part_lists(node, &cut);
    uint32_t left = cut_tree_bits_left(node, dim);
    while (cut.bits[0] < left && cut.bits[0] < CUT_TREE_BITS) {
        cut.bits[0]++;
        struct part_lists now = part_lists(node, &cut);
        if ((now.longest > shorter * before.longest && now.mean > shorter * before.mean) ||
            now.empty - before.empty > vacant * (now.parts - before.parts)) {
            cut.bits[0]--;
            break;
        }
        before = now;
    }
    return cut.bits[0];
}

/* Up to the bits of each dimension, and spfac * sqrt(n) parts, the bit that leaves the shortest lists. */
static bool published_choose(const struct cut_tree_region *node, struct node_cut *cut)
{
    bool second;
    uint32_t most[CUT_TREE_DIMS] = {0};
    if (!hypercuts_dims(node, cut, &second))
        return false;
    for (uint32_t i = 0; i <= second; i++)
        most[i] = published_bits(node, cut->dim[i]);
    for (uint32_t bits = 1; bits <= CUT_TREE_BITS; bits++) {
        double parts = (double)(UINT64_C(1) << bits);
        struct part_lists best = {.longest = UINT32_MAX};
        struct node_cut next = *cut;
        if (bits > 1 && parts * parts > node->spfac * node->spfac * node->count)
            break;
        for (uint32_t i = 0; i <= second; i++) {
            struct node_cut finer = *cut;
            if (finer.bits[i]++ == most[i])
                continue;
            struct part_lists now = part_lists(node, &finer);
            if (now.longest < best.longest || (now.longest == best.longest && now.mean < best.mean)) {
                best = now;
                next = finer;
            }
        }
        if (best.longest == UINT32_MAX)
            break;
        *cut = next;
    }
    /* No first doubling pays, though a later one may: ours, for a node must be cut or be a leaf. */
    return cut->bits[0] + cut->bits[1] || (*cut = (struct node_cut){{0}, {0}}, hypercuts_choose(node, cut));
}

static int hypercuts_build(struct budget *budget, const struct vfdb_plan *plan,
                           const struct vfdb_rules *rules, void **built)
{
    return cut_tree_build(budget, plan, rules, plan->value[3] ? published_choose : hypercuts_choose, built);
}

const struct vfdb_ops vfdb_hypercuts = {
    .name = "hypercuts",
    .title = "a tree of equal cuts along two dimensions at a time",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {CUT_TREE_PARAMS,
              {"choose", "how a node is cut, 0: by the rules that are copied, 1: as published", 0, 0, 1}},
    .build = hypercuts_build,
    .search = cut_tree_search,
    .search_counted = cut_tree_search_counted,
    .free = cut_tree_free,
};
