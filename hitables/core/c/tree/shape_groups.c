/* Shape groups with versioned trees: rules that cross are kept apart.
 *
 * Idea: rules wide in one address cross those wide in the other, and in one tree they are copied against each
 * other.  So rules are grouped by the address in which they are specific, each group gets a tree by
 * bisection, and the trees are searched in turn.  First match is kept by versions of later groups' trees
 * (group_versions.c).  The grouping, its order, and whether to group at all are chosen by what the whole
 * would cost, rules read and rules printed, over points drawn from the rules.  Rules that may not be moved
 * stay in the first group, where a packet meets them once.
 * Cost: that of bisecting each group, for a handful of groupings.
 * Invariant: every point finds its first rule; the budget and the nesting are kept.
 * Threading: none; everything lives in the space's arena.
 */
#include "group_trees.h"

#include <math.h>
#include <string.h>

enum {
    POINTS = 20000,  /* drawn to estimate a grouping */
    BACKGROUND_SAMPLE =
        60, /* boxes drawn as background of a tree; with all it takes eight times as long for the same tree */
    WIDE = 7, /* a prefix of this many bits of 32, or fewer, is not specific; with 16, so many rules of the
               * last tree of fw1 cross that its longest path is twice as long */
    WIDER = 15, /* tried besides with the greatest effort */
    GROUPINGS = 5,
    BUDGET = 4, /* rules that a tree may grow to over those that it holds, before it is pruned */
    REFINED = 3, /* halvings between a size penalty that is too small for the budget and its double */
    SAMPLE = 2000 /* rules by which the grouping is chosen */
};

/* Rules that a leaf of the first tree may hold, and of the others, where tests can part them though no
 * traffic requires it.  The packets that read the longest lists reach the last tree last. */
static const double longest_leaf[2] = {12, 4};
/* Expected list entries that a copied rule counts for when a test is chosen. */
static const double copy_penalty = 1;

/* Cost that one more rule printed per rule is worth, when groupings are compared.  10 keeps acl1 at two
 * thirds of the size of one tree for one rule read more. */
static const double size_worth = 10;
/* A grouping that costs so much more on the sample may still be cheaper on the whole list. */
static const double near_cost = 1.15;
/* Size penalties beyond which nothing is left of one tree, and beyond which groups are not worth their size.
 */
static const double largest_penalty[2] = {1e9, 300};

/* Groups. */

/* Whether all boxes of the rule are prefixes of more than *wide* bits, or as narrow. */
static bool is_specific(const struct group_trees *f, uint32_t rule, uint32_t axis, uint32_t wide)
{
    const struct line *line = &f->space->line[axis];
    u128 most = line->top >> wide;
    for (uint32_t box = f->first[rule]; box < f->first[rule + 1]; box++) {
        struct rank_range ranks = box_ranks(f->space, box, axis);
        if (line_end(line, ranks.high) - line->edge[ranks.low] >= most)
            return false;
    }
    return f->first[rule] < f->first[rule + 1];
}

/* Give each rule its group; groups without rules vanish from the grouping. */
static void group_rules(struct group_trees *f)
{
    const struct tree_boxes *in = f->space->in;
    struct grouping *by = &f->grouping;
    uint32_t count[GROUPS] = {0}, place[GROUPS], groups = 0;
    f->rules = 0;
    for (uint32_t r = 0; r < in->rules; r++) {
        uint32_t group = 0;
        if (r % f->every) {
            f->group[r] = OUT_OF_SAMPLE;
            continue;
        }
        if (in->free[r] & TREE_MOVABLE)
            while (group + 1 < by->groups && !is_specific(f, r, by->axis[group], by->wide))
                group++;
        else
            by->called = false; /* RETURN in a called tree would come back */
        f->group[r] = (uint8_t)group;
        count[group]++;
        f->rules++;
    }
    for (uint32_t g = 0; g < by->groups; g++) {
        place[g] = groups;
        if (count[g] && g + 1 < by->groups)
            by->axis[groups] = by->axis[g];
        groups += count[g] > 0;
    }
    by->last_is_rest = by->groups == 1 || count[by->groups - 1];
    by->groups = groups ? groups : 1;
    for (uint32_t r = 0; r < in->rules; r++)
        if (f->group[r] != OUT_OF_SAMPLE)
            f->group[r] = (uint8_t)place[f->group[r]];
    for (uint32_t g = 0; g < by->groups; g++) {
        uint32_t run = 0;
        bool between = false;
        for (uint32_t r = 0; r < in->rules; r++) {
            if (f->group[r] < g)
                between = true;
            if (f->group[r] != g)
                continue;
            run += between;
            between = false;
            f->run[r] = run;
        }
    }
}

/* The tree of group g, over all its rules.  Packets of later groups come by, and those of earlier rules
 * that are wide where this group is specific. */
static struct build_node *group_grow(struct group_trees *f, uint32_t g, uint32_t nesting)
{
    const struct tree_boxes *in = f->space->in;
    struct range region[TREE_AXES];
    uint32_t *box = group_take(f, (in->boxes + 1) * sizeof *box),
             *background = group_take(f, (in->boxes + 1) * sizeof *background);
    float *share = group_take(f, (in->boxes + 1) * sizeof *share);
    if (f->failed)
        return NULL;
    uint32_t boxes = 0, background_boxes = 0, own = 0, seen = 0;
    for (uint32_t r = 0; r < in->rules; r++) {
        if (f->group[r] == g) {
            seen++;
            for (uint32_t b = f->first[r]; b < f->first[r + 1]; b++)
                box[boxes++] = b;
        } else if (f->group[r] != OUT_OF_SAMPLE && f->first[r] < f->first[r + 1]) {
            bool rest = g + 1 == f->grouping.groups && f->grouping.last_is_rest;
            bool wide = rest || !is_specific(f, r, f->grouping.axis[g], f->grouping.wide);
            if (f->group[r] > g || (seen && wide))
                background[background_boxes++] = f->first[r];
        }
    }
    own = boxes;
    /* A sample of the background is enough (BACKGROUND_SAMPLE). */
    uint32_t step = 1 + background_boxes / BACKGROUND_SAMPLE, kept = 0;
    for (uint32_t i = 0; i < background_boxes; i += step) {
        background[kept] = background[i];
        share[kept++] = (float)(in->weight[in->rule[background[i]]] * step);
    }
    region_all(f->space, region);
    struct tree_options options = *f->options;
    options.leaf_size = 1;
    options.max_nesting = nesting;
    options.longest = (uint32_t)longest_leaf[g != 0];
    options.copy_penalty = copy_penalty;
    options.budget = BUDGET * (uint64_t)own + f->rules / 2 + 200;
    struct subproblem subproblem = {box, background, share, boxes, kept, region};
    struct build_node *node = bisect_over(f->space, &options, &subproblem);
    if (!node)
        f->failed = true;
    return node;
}

/* The trees. */

/* Continue packets that reach the end of the first tree in the others. */
static void go_on(struct group_trees *f, struct build_node *node, struct build_node *then)
{
    for (;;) {
        if (node->kind == TREE_LEAF) {
            if (!node->closed)
                node->then = then;
            return;
        }
        go_on(f, node->branch[0].to, then);
        node = node->branch[1].to;
    }
}

static void assemble(struct group_trees *f)
{
    const struct tree_boxes *in = f->space->in;
    uint32_t groups = f->grouping.groups;
    f->calls = NULL;
    f->form = group_take(f, (in->rules + 1) * sizeof *f->form);
    for (uint32_t g = 0; g < groups && !f->failed; g++)
        f->tree[g] = group_prune(f, g);
    for (uint32_t r = 0; r < in->rules && !f->failed && groups > 1; r++)
        if (f->group[r] != OUT_OF_SAMPLE)
            f->form[r] = rule_form(f, r);
    if (f->failed)
        return;
    f->root = f->tree[0];
    if (groups == 1)
        return;
    struct build_node *rest = spine_copy(f, f->tree[groups - 1]);
    if (!rest)
        return;
    rest->item = group_take(f, groups * sizeof *rest->item);
    if (f->failed)
        return;
    for (uint32_t g = !f->grouping.called; g + 1 < groups; g++)
        rest->item[rest->items++] = (struct printed_entry){TREE_CALL, -1, f->tree[g]};
    if (f->grouping.called)
        f->root = rest;
    else
        go_on(f, f->root, rest);
}

/* Weighing. */

/* The flat form of the trees; NULL when memory is exhausted. */
static struct tree *flatten(struct group_trees *f)
{
    struct arena *arena = arena_new(0);
    struct tree *tree = arena ? arena_take(arena, sizeof *tree) : NULL;
    if (!tree) {
        arena_free(arena);
        return NULL;
    }
    tree->arena = arena;
    f->space->form = f->grouping.groups > 1 ? f->form : NULL;
    if (nodes_write(f->space, f->root, tree) != TREE_OK) {
        tree_free(tree);
        return NULL;
    }
    return tree;
}

static uint64_t printed(const struct tree *tree)
{
    return tree->entries + tree->edges / 2;
}

static uint64_t scramble(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A point in each of some boxes of the sample: at its ends or within; weighing what its rule does. */
static uint64_t *draw(const struct group_trees *f, uint32_t *points, double **weight)
{
    const struct space *space = f->space;
    const struct tree_boxes *in = space->in;
    uint32_t step = 1 + in->boxes / f->every / POINTS, drawn = 0, seen = 0;
    uint64_t *point = scope_take(&f->space->scratch, ((size_t)in->boxes + 1) * in->axes * 2 * sizeof *point);
    *weight = scope_take(&f->space->scratch, ((size_t)in->boxes + 1) * sizeof **weight);
    for (uint32_t b = 0; point && *weight && b < in->boxes; b++) {
        if ((uint32_t)in->rule[b] % f->every || seen++ % step)
            continue;
        (*weight)[drawn] = in->weight[in->rule[b]];
        for (uint32_t a = 0; a < in->axes; a++) {
            const struct line *line = &space->line[a];
            struct rank_range ranks = box_ranks(space, b, a);
            u128 low = line->edge[ranks.low], high = line_end(line, ranks.high);
            if (in->axis[a].optional && !low && high)
                low = 1;
            uint64_t chance = scramble((uint64_t)b * TREE_AXES + a);
            u128 size = high - low + 1, within = (u128)scramble(chance) << 64 | scramble(~chance);
            u128 value = chance % 4 == 0   ? low
                         : chance % 4 == 1 ? high
                                           : low + (size ? within % size : within);
            point[((size_t)drawn * in->axes + a) * 2] = (uint64_t)(value >> 64);
            point[((size_t)drawn * in->axes + a) * 2 + 1] = (uint64_t)value;
        }
        drawn++;
    }
    *points = drawn;
    return point;
}

/* Mean cost at the points; HUGE_VAL when memory is exhausted. */
static double cost_of(const struct group_trees *f, const struct tree *tree, const uint64_t *point,
                      const double *weight, uint32_t points)
{
    struct scope *scratch = &f->space->scratch;
    int32_t *rule = scope_take(scratch, (points + (size_t)1) * sizeof *rule);
    uint32_t *reads = scope_take(scratch, (points + (size_t)1) * sizeof *reads);
    double *cost = scope_take(scratch, (points + (size_t)1) * sizeof *cost), mean = HUGE_VAL;
    if (rule && reads && cost &&
        tree_search(tree, &f->passing, point, points, rule, reads, cost) == TREE_OK) {
        double sum = 0, all = 0;
        for (uint32_t p = 0; p < points; p++) {
            sum += cost[p] * weight[p];
            all += weight[p];
        }
        mean = sum / (all > 0 ? all : 1);
    }
    scope_drop(scratch, rule);
    scope_drop(scratch, reads);
    scope_drop(scratch, cost);
    return mean;
}

/* Chains that a trees nests at most besides those of its trees: a call of the first tree, an entry of each
 * that leads to a version of the next, and the chain that calls several versions. */
static uint32_t joints(const struct grouping *by)
{
    return by->groups == 1 ? 0 : by->called + (by->groups - 1) + (by->groups > 2);
}

/* Part the nesting among the trees: the more rules, the more. */
static void share_nesting(const struct group_trees *f, uint32_t *nesting)
{
    uint32_t groups = f->grouping.groups, left = f->options->max_nesting - joints(&f->grouping);
    double size[GROUPS];
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t rules = 0;
        for (uint32_t r = 0; r < f->space->in->rules; r++)
            rules += f->group[r] == g;
        size[g] = log2(rules + 2);
        nesting[g] = 0;
    }
    for (; left; left--) {
        uint32_t most = 0;
        for (uint32_t g = 1; g < groups; g++)
            if (size[g] / (nesting[g] + 1) > size[most] / (nesting[most] + 1))
                most = g;
        nesting[most]++;
    }
}

/* Prune and assemble with the size penalty doubled so often; the expected cost, HUGE_VAL if the budget is
 * exceeded. */
static double doubled_cost(struct group_trees *f, double doublings, uint64_t budget, const uint64_t *point,
                           const double *weight, uint32_t points)
{
    double cost = HUGE_VAL, times = exp2(doublings);
    f->size_penalty = (f->options->size_penalty + 1) * times - 1;
    f->longest[0] = longest_leaf[0] * times;
    f->longest[1] = longest_leaf[1] * times;
    assemble(f);
    struct tree *tree = f->failed ? NULL : flatten(f);
    if (!tree) {
        f->failed = true;
        return cost;
    }
    uint64_t size = printed(tree);
    if (size <= budget)
        cost = cost_of(f, tree, point, weight, points) + size_worth * (double)size / (f->rules + 1);
    tree_free(tree);
    return cost;
}

/* Raise the size penalty until the trees fit the budget, then look for the least one that does; the expected
 * cost, HUGE_VAL if none does. */
static double fit(struct group_trees *f, uint64_t budget, const uint64_t *point, const double *weight,
                  uint32_t points)
{
    double too_few = 0, enough = 0, cost;
    while ((cost = doubled_cost(f, enough, budget, point, weight, points)) >= HUGE_VAL) {
        if (f->failed || f->size_penalty > largest_penalty[f->grouping.groups > 1])
            return HUGE_VAL;
        too_few = enough++;
    }
    struct build_node *root = f->root;
    struct printed_entry *form = f->form;
    for (uint32_t step = 0; step < REFINED && too_few < enough; step++) {
        double between = (too_few + enough) / 2,
               refined = doubled_cost(f, between, budget, point, weight, points);
        if (refined >= HUGE_VAL) {
            too_few = between;
            continue;
        }
        enough = between;
        if (refined < cost) {
            cost = refined;
            root = f->root;
            form = f->form;
        }
    }
    f->root = root;
    f->form = form;
    return f->failed ? HUGE_VAL : cost;
}

/* Grow, prune and assemble in this grouping, within the budget; the expected cost, HUGE_VAL if it cannot be.
 */
static double group_trees_cost(struct group_trees *f)
{
    const struct tree_boxes *in = f->space->in;
    group_rules(f);
    uint32_t groups = f->grouping.groups, nesting = f->options->max_nesting;
    uint64_t budget = f->every == 1 ? f->options->budget : f->options->budget / (in->rules + 1) * f->rules;
    if (budget < f->rules)
        budget = f->rules;
    if (groups > 1 && nesting < joints(&f->grouping) + groups)
        return HUGE_VAL;
    uint32_t nestings[GROUPS];
    double cost = HUGE_VAL;
    share_nesting(f, nestings);
    for (uint32_t g = 0; g < groups; g++)
        f->grown[g] = group_grow(f, g, nestings[g]);
    uint32_t points = 0;
    double *weight = NULL;
    struct scope *scratch = &f->space->scratch;
    uint64_t *point = draw(f, &points, &weight);
    f->failed |= !point || !weight;
    if (!f->failed)
        cost = fit(f, budget, point, weight, points);
    scope_drop(scratch, point);
    scope_drop(scratch, weight);
    return cost;
}

/* The costs with halves allowed: nft loads some prefixes so slowly that testing their halves is cheaper. */
static bool allow_halves(struct group_trees *f)
{
    struct space *space = f->space;
    if (!space->in->costs)
        return true;
    struct tree_boxes *boxes = group_take(f, sizeof *boxes);
    struct tree_costs *costs = group_take(f, sizeof *costs);
    if (f->failed)
        return false;
    *boxes = *space->in;
    *costs = *space->in->costs;
    costs->halves = true;
    boxes->costs = costs;
    space->in = boxes;
    return true;
}

/* Per-rule arrays, and the input in which rules that are not final let a search pass. */
static bool index_rules(struct group_trees *f)
{
    const struct tree_boxes *in = f->space->in;
    f->first = group_take(f, ((size_t)in->rules + 2) * sizeof *f->first);
    f->group = group_take(f, (size_t)in->rules + 1);
    f->run = group_take(f, ((size_t)in->rules + 1) * sizeof *f->run);
    uint8_t *free = group_take(f, (size_t)in->rules + 1);
    if (f->failed)
        return false;
    for (uint32_t b = 0; b < in->boxes; b++)
        f->first[in->rule[b] + 1]++;
    for (uint32_t r = 0; r < in->rules; r++) {
        f->first[r + 1] += f->first[r];
        free[r] = in->free[r] | (in->final[r] ? 0 : TREE_PASSED);
    }
    f->passing = *in;
    f->passing.free = free;
    for (uint32_t a = 0; a < in->axes; a++)
        if (in->axis[a].needs >= 0)
            f->needed[in->axis[a].needs] = true;
    return true;
}

/* The groupings to try, one tree first; their number. */
static uint32_t list_groupings(const struct group_trees *f, struct grouping *tried)
{
    const struct tree_boxes *in = f->space->in;
    uint32_t address[2], addresses = 0, groupings = 1;
    bool movable = false;
    for (uint32_t r = 0; r < in->rules; r++)
        movable |= in->free[r] & TREE_MOVABLE;
    for (uint32_t a = 0; a < in->axes; a++)
        if (in->axis[a].cut == TREE_CUT_PREFIX && addresses < 2)
            address[addresses++] = a;
    tried[0] = (struct grouping){.groups = 1};
    for (uint32_t i = 0; i < GROUPINGS - 1 && addresses == 2 && movable; i++)
        if (i < 2 || f->options->grouping_effort > 1)
            tried[groupings++] = (struct grouping){
                .groups = GROUPS,
                .axis = {address[i % 2 == 0], address[i % 2]},
                .wide = (i < 2 ? WIDE : WIDER) * in->axis[address[0]].bits / 32u,
                .called = true,
            };
    return groupings;
}

/* The grouping that is cheapest on a sample, and the costs there.  One tree must be clearly cheaper than
 * groups, since a smaller list crosses less than the whole. */
static uint32_t choose_on_sample(struct group_trees *f, const struct grouping *tried, uint32_t groupings,
                                 double *cost)
{
    uint32_t best = 0, effort = f->options->grouping_effort;
    f->every = 1 + f->space->in->rules / (effort > 1 ? 4 * SAMPLE : effort ? SAMPLE : SAMPLE / 4);
    for (uint32_t i = 0; groupings > 1 && i < groupings && !f->failed; i++) {
        f->grouping = tried[i];
        cost[i] = group_trees_cost(f);
        if (best ? cost[i] < cost[best] : i && cost[i] < near_cost * cost[0])
            best = i;
    }
    return best;
}

/* Build the best grouping in full, and the others whose cost on the sample is near; the cheapest becomes
 * *root.  One tree is built if groups do not fit: it keeps any budget. */
static bool build_in_full(struct group_trees *f, const struct grouping *tried, uint32_t groupings,
                          uint32_t best, const double *cost, struct build_node **root)
{
    const struct tree_options *options = f->options;
    double cheapest = HUGE_VAL;
    const struct printed_entry *form = NULL;
    f->every = 1;
    for (uint32_t pass = 0; pass <= groupings && !f->failed; pass++) {
        uint32_t i = pass ? pass - 1 : best;
        bool near = !options->grouping && options->grouping_effort && cost[i] < near_cost * cost[best] &&
                    (options->grouping_effort > 1 || !i);
        if (pass && (i == best || !(near || (!i && cheapest == HUGE_VAL))))
            continue;
        f->grouping = tried[i];
        double full = group_trees_cost(f);
        if (full < cheapest) {
            cheapest = full;
            *root = f->root;
            form = f->grouping.groups > 1 ? f->form : NULL;
        }
    }
    f->space->form = form;
    return !f->failed && cheapest < HUGE_VAL;
}

static enum tree_status shape_groups_grow(struct space *space, const struct tree_options *options,
                                          struct build_node **root)
{
    struct group_trees f = {.space = space, .options = options};
    if (!allow_halves(&f) || !index_rules(&f))
        return TREE_NO_MEMORY;
    struct grouping tried[GROUPINGS];
    double cost[GROUPINGS] = {0};
    uint32_t groupings = list_groupings(&f, tried);
    uint32_t best = options->grouping < groupings ? options->grouping : 0;
    if (!options->grouping)
        best = choose_on_sample(&f, tried, groupings, cost);
    return build_in_full(&f, tried, groupings, best, cost, root) ? TREE_OK : TREE_NO_MEMORY;
}

const struct tree_builder tree_shape_groups = {.name = "auto", .bounded = true, .grow = shape_groups_grow};
