/* Estimates of the work that a list of rules will cause once it is split further.
 *
 * Idea: dynamic programming over list sizes and the nesting that is left: a list is read, or a test splits
 * off a fraction of it.
 * Cost: 6 steps for each size and nesting that the list may have, per table, once per tree.
 * Invariant: the estimate never grows when more nesting is left.
 * Threading: none; the tables belong to one bisection.
 */
#include "bisect_internal.h"

enum { PLACES = 64 }; /* slots in which the places where rules begin are counted */

/* Tests that cost so much more still count as alike.  With 1.2 legacy trees avoid ports for nothing: the
 * set fw1_10k of ClassBench grows by a seventh. */
static const double ALIKE = 1.5;

static bool work_fill(struct bisection *g, uint32_t table, struct tree_cost test)
{
    static const double taken[] = {0.5, 0.4, 0.3, 0.2, 0.15, 0.1};
    enum { FRACTIONS = sizeof taken / sizeof *taken };
    double in[FRACTIONS], out[FRACTIONS];
    double *work = arena_take(g->space->arena, (size_t)g->nestings * g->sizes * sizeof *work);
    if (!work)
        return false;
    g->work[table] = work;
    for (uint32_t t = 0; t < FRACTIONS; t++) {
        in[t] = log2(taken[t]) * STEPS;
        out[t] = log2(1 - taken[t]) * STEPS;
    }
    for (uint32_t nesting = 0; nesting < g->nestings; nesting++, work += g->sizes)
        for (uint32_t size = 0; size < g->sizes; size++) {
            double best = g->rule * (exp2((double)size / STEPS) + 1) / 2;
            for (uint32_t t = 0; nesting && size > STEPS && t < FRACTIONS; t++) {
                double spent = taken[t] * (test.taken + work_of_size(g, work - g->sizes, size + in[t])) +
                               (1 - taken[t]) * (test.missed + work_of_size(g, work, size + out[t]));
                if (spent < best)
                    best = spent;
            }
            work[size] = best;
        }
    return true;
}

/* The cheapest test that bisects the axis; false: no test may.  (A prefix of names separates one branch of
 * many, so tests of names rarely halve a list: with a table of their own, nft reads a third more on
 * fwbuilder's example.) */
static bool bisecting_test(const struct tree_boxes *in, uint32_t axis, struct tree_cost *test)
{
    const struct tree_axis *along = &in->axis[axis];
    if (along->cut != TREE_CUT_PREFIX && along->cut != TREE_CUT_RANGE)
        return false;
    *test = (struct tree_cost){1, 1};
    if (!in->costs)
        return true;
    const struct tree_cost *costs = in->costs->test + axis * TREE_LENGTHS;
    *test = costs[1];
    for (uint32_t length = 2; along->cut == TREE_CUT_PREFIX && length <= along->bits; length++)
        if (costs[length].missed + costs[length].taken < test->missed + test->taken)
            *test = costs[length];
    return true;
}

static bool cost_alike(struct tree_cost one, struct tree_cost other)
{
    double a = one.missed + one.taken, b = other.missed + other.taken;
    return a < ALIKE * b && b < ALIKE * a;
}

bool work_tables_fill(struct bisection *g, const struct subproblem *problem)
{
    const struct tree_boxes *in = g->space->in;
    struct tree_cost test;
    uint32_t sizes = (uint32_t)(log2(problem->boxes + 1.0) * STEPS) + 3;
    g->sizes = sizes < SIZES ? sizes : SIZES;
    g->nestings = g->options->max_nesting < NESTINGS ? g->options->max_nesting + 1 : NESTINGS;
    g->rule = 0;
    for (uint32_t i = 0; i < problem->boxes; i++)
        g->rule += cost_missed(g->space, problem->box[i], problem->region) / problem->boxes;
    if (g->rule <= 0)
        g->rule = 1;
    for (uint32_t a = 0; a < in->axes; a++) {
        g->table[a] = TABLES;
        if (!bisecting_test(in, a, &test))
            continue;
        uint32_t at = 0;
        while (at < g->tables && !cost_alike(test, g->filled[at]))
            at++;
        if (at == TABLES)
            continue;
        if (at == g->tables) {
            g->filled[g->tables++] = test;
            if (!work_fill(g, at, test))
                return false;
        }
        g->table[a] = at;
    }
    return g->tables || work_fill(g, 0, (struct tree_cost){1, 1});
}

/* Every so many boxes of a leaf tell of all. */
static uint32_t stride(const struct open_leaf *leaf)
{
    return 1 + leaf->boxes / (4 * PLACES);
}

/* Whether the box begins or ends within the region, along the axis. */
static bool is_narrow(const struct bisection *g, const struct open_leaf *leaf, uint32_t box, uint32_t axis)
{
    struct rank_range ranks = box_ranks(g->space, box, axis), along = leaf->region[axis].ranks;
    return ranks.low > along.low || ranks.high < along.high;
}

/* Whether axes of the table tell at least half of the leaf's boxes apart.  The others would be on both sides
 * of each of their tests. */
static bool divides(const struct bisection *g, const struct open_leaf *leaf, uint32_t table)
{
    uint32_t read = 0, narrow = 0;
    for (uint32_t i = 0; i < leaf->boxes; i += stride(leaf), read++) {
        uint32_t a = 0, axes = g->space->in->axes;
        while (a < axes && (g->table[a] != table || !is_narrow(g, leaf, leaf->box[i], a)))
            a++;
        narrow += a < axes;
    }
    return 2 * narrow >= read;
}

uint32_t work_table_for(const struct bisection *g, const struct open_leaf *leaf)
{
    uint32_t most = 0, best = 0, enough = (leaf->rules < PLACES ? leaf->rules : PLACES) / 8;
    double cheapest = HUGE_VAL;
    for (uint32_t a = 0; g->tables > 1 && a < g->space->in->axes; a++) {
        if (g->table[a] == TABLES)
            continue;
        uint64_t seen = 0;
        for (uint32_t i = 0; i < leaf->boxes; i += stride(leaf))
            if (is_narrow(g, leaf, leaf->box[i], a))
                seen |= (uint64_t)1 << (box_ranks(g->space, leaf->box[i], a).low * 0x9e3779b1u >> 26);
        uint32_t places = (uint32_t)__builtin_popcountll(seen);
        double price = places > 1 && places >= enough && divides(g, leaf, g->table[a])
                           ? g->filled[g->table[a]].missed + g->filled[g->table[a]].taken
                           : HUGE_VAL;
        if (price < cheapest || (price >= HUGE_VAL && cheapest >= HUGE_VAL && places > most)) {
            cheapest = price;
            best = g->table[a];
        }
        most = places > most ? places : most;
    }
    return best;
}
