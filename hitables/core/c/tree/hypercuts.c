/* HyperCuts (Singh, Baboescu, Varghese and Wang, SIGCOMM 2003).
 *
 * Idea: a node of n rules, too many, is cut along several axes at once: those on which its rules have more
 * distinct intervals than on the mean of all axes.  There are at most spfac * sqrt(n) parts.  Along an axis
 * their number doubles while that makes the mean or the longest list of the parts clearly shorter and does
 * not leave most of the new parts empty.  With the paper's refinements: regions are compacted to the hull of
 * their rules, rules that all parts have in common are kept above them, leaves of equal lists are one (and
 * neighbours), rules that others hide within a node are left out of it (cut_grid.c).
 * Differs: of the combinations of cuts the paper tries all, here the axis is doubled next that leaves the
 * shortest longest list; parts are powers of two wide, so that a shift finds those that a box
 * meets (cut_span).
 * Cost: the boxes of a node (at most SAMPLE of them), times the parts that they meet, per doubling and axis.
 * Invariant: that of cut_grid.c.
 * Threading: none.
 */
#include "cut_grid.h"

#include <math.h>
#include <string.h>

enum { SAMPLE = 2000 };

/* What counts as clearly shorter: the longest or the mean list falls to this share. */
static const double shorter = 0.9;

/* The lists of a grid's parts: the longest, the mean of those that are not empty, empty ones. */
struct lists {
    double longest, mean;
    uint32_t empty, cells;
};

/* Lists of the node's (sampled) boxes in a grid; *count* has room for CUT_GRID_CELLS. */
static struct lists lists_of(const struct grid_growth *p, const struct grid_node *node, const struct cut *cut,
                             uint32_t cuts, uint32_t *count)
{
    uint32_t cells = 1, step = 1 + node->boxes / SAMPLE;
    struct lists lists = {0, 0, 0, 0};
    for (uint32_t c = 0; c < cuts; c++)
        cells *= cut[c].parts;
    memset(count, 0, cells * sizeof *count);
    for (uint32_t i = 0; i < node->boxes; i += step) {
        struct rank_range span[TREE_AXES];
        uint32_t digit[TREE_AXES];
        for (uint32_t c = 0; c < cuts; c++) {
            struct rank_range ranks = box_ranks(p->space, node->box[i], cut[c].axis);
            span[c] = cut_span(p->space, &cut[c], &node->region[cut[c].axis], ranks);
            digit[c] = span[c].low;
        }
        for (uint32_t c = cuts; c;) {
            uint32_t cell = 0;
            for (c = 0; c < cuts; c++)
                cell = cell * cut[c].parts + digit[c];
            count[cell]++;
            while (c && digit[c - 1] == span[c - 1].high) {
                c--;
                digit[c] = span[c].low;
            }
            if (c)
                digit[c - 1]++;
        }
    }
    double sum = 0;
    for (uint32_t c = 0; c < cells; c++) {
        sum += count[c];
        lists.longest = count[c] > lists.longest ? count[c] : lists.longest;
        lists.empty += !count[c];
    }
    lists.cells = cells;
    lists.mean = lists.empty < cells ? sum / (cells - lists.empty) : 0;
    return lists;
}

/* As many parts along the axis as pay there; 1: none do. */
static uint32_t parts_along(const struct grid_growth *p, const struct grid_node *node, uint32_t axis,
                            uint32_t most, uint32_t *count)
{
    uint32_t best = 1, left = p->max_nesting - node->nesting;
    struct cut cut = cut_into(p->space, node->region, axis, 1);
    struct lists before = lists_of(p, node, &cut, 1, count);
    /* One doubling may part nothing and the next one all: two in vain are looked past. */
    for (uint32_t parts = 2, vain = 0; parts <= most && floor_log2(parts) <= left && vain < 3; parts *= 2) {
        struct cut finer = cut_into(p->space, node->region, axis, parts);
        if (finer.parts <= cut.parts)
            break;
        struct lists now = lists_of(p, node, &finer, 1, count);
        bool falls = now.longest <= shorter * before.longest || now.mean <= shorter * before.mean;
        bool empties =
            now.empty - before.empty > (now.cells - before.cells) * 3 / 4 && now.empty > before.empty;
        cut = finer;
        if (falls && (!empties || now.longest <= shorter * before.longest)) {
            best = parts;
            before = now;
            vain = 0;
        } else {
            vain++;
        }
    }
    return best;
}

/* Cut along the axes at once: one part each, then the axis is doubled that leaves the shortest longest list.
 */
static bool cut_together(const struct grid_growth *p, const struct grid_node *node, const uint32_t *axis,
                         uint32_t axes, struct grid_plan *plan)
{
    uint32_t count[CUT_GRID_CELLS], limit[TREE_AXES], parts[TREE_AXES], left = p->max_nesting - node->nesting;
    uint32_t most = (uint32_t)fmin(CUT_GRID_CELLS, fmax(4, p->spfac * sqrt(node->rules)));
    struct cut cut[TREE_AXES];
    for (uint32_t i = 0; i < axes; i++) {
        limit[i] = parts_along(p, node, axis[i], most, count);
        parts[i] = 1;
        cut[i] = cut_into(p->space, node->region, axis[i], 1);
    }
    for (uint32_t taken = 0; taken < left; taken++) {
        struct lists best = {HUGE_VAL, HUGE_VAL, 0, 0};
        uint32_t next = axes;
        for (uint32_t i = 0; i < axes; i++) {
            struct cut kept = cut[i];
            uint32_t cells = 1;
            if (2 * parts[i] > limit[i])
                continue;
            cut[i] = cut_into(p->space, node->region, axis[i], 2 * parts[i]);
            for (uint32_t c = 0; c < axes; c++)
                cells *= cut[c].parts;
            if (cells <= most) {
                struct lists now = lists_of(p, node, cut, axes, count);
                if (now.longest < best.longest || (now.longest == best.longest && now.mean < best.mean)) {
                    best = now;
                    next = i;
                }
            }
            cut[i] = kept;
        }
        if (next == axes)
            break;
        parts[next] *= 2;
        cut[next] = cut_into(p->space, node->region, axis[next], parts[next]);
    }
    plan->cuts = 0;
    for (uint32_t i = 0; i < axes; i++)
        if (cut[i].parts > 1)
            plan->cut[plan->cuts++] = cut[i];
    plan->kind = plan->cuts ? PLAN_GRID : PLAN_LEAF;
    return plan->cuts;
}

static void hypercuts_choose(struct grid_growth *p, const struct grid_node *node, struct grid_plan *plan)
{
    uint32_t count[TREE_AXES], axes = p->space->in->axes, chosen[TREE_AXES], many = 0;
    double mean = 0;
    for (uint32_t a = 0; a < axes; a++) {
        count[a] = p->space->in->axis[a].cut == TREE_CUT_NONE ? 0 : count_distinct(p, node, a);
        mean += (double)count[a] / axes;
    }
    /* The axis with most intervals decides between a grid and a test. */
    for (;;) {
        uint32_t axis = 0;
        for (uint32_t a = 1; a < axes; a++)
            if (count[a] > count[axis])
                axis = a;
        if (!count[axis])
            return;
        if (can_grid(p, node, axis)) {
            if (plan_narrows(p, node, axis, plan))
                return;
            many = 0;
            for (uint32_t a = 0; a < axes; a++)
                if (a == axis || (count[a] > mean && can_grid(p, node, a)))
                    chosen[many++] = a;
            if (cut_together(p, node, chosen, many, plan))
                return;
            for (uint32_t i = 0; i < many; i++)
                count[chosen[i]] = 0;
        } else if (plan_test(p, node, axis, plan)) {
            return;
        }
        count[axis] = 0;
    }
}

static enum tree_status hypercuts_grow(struct space *space, const struct tree_options *options,
                                       struct build_node **root)
{
    return cut_grid_print(space, options, &grid_hypercuts, root);
}

const struct grid_builder grid_hypercuts = {.shares = true, .choose = hypercuts_choose};
const struct tree_builder tree_hypercuts = {.name = "hypercuts", .bounded = true, .grow = hypercuts_grow};
