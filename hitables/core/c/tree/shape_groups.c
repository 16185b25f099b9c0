/* Shape groups with versioned trees: rules that cross are kept apart.
 *
 * Idea: rules wide in one address cross those wide in the other, and in one tree they are copied against each
 * other.  So rules are grouped by the address in which they are specific, each group gets a tree by
 * bisection, and the trees are searched in turn.  First match is kept by versions of later groups' trees
 * (group_versions.c).  The grouping is chosen by what the whole would cost (group_choice.c), rules read and
 * rules printed, over points drawn from the rules.  The first rules of the list may be read before all trees.
 * Rules that may not be moved stay in the first group, or, if they are LATE, in the last: either way a packet
 * meets them once, in list order, when no earlier rule has decided it.
 * Cost: per grouping, bisecting each group and finding what each rule asks (group_asks.c); then the pruned
 * trees are assembled, flattened and searched for POINTS points, once per size penalty that fit() tries.
 * Invariant: every point finds its first rule; the nesting is kept, and the budget, which is raised to the
 * length of the list if it is below.
 * Threading: none; memory is that of the space (tree.c), and an arena for each flattened tree.
 */
#include "group_trees.h"

#include <math.h>
#include <string.h>

enum {
    POINTS = 20000,         /* drawn to estimate a grouping */
    BACKGROUND_SAMPLE = 60, /* boxes drawn as background of a tree; with all it takes eight times as long for
                             * the same tree */
    BUDGET = 4, /* rules that a tree may grow to over those that it holds, before it is pruned */
    HOPELESS = 8, /* how many times the budget an assembly has when it is given up: of some 9,000, none that
                   * had 5.4 times with the least size penalty fitted with a larger one */
    REFINED = 3 /* halvings between a size penalty that is too small for the budget and its double */
};

/* Rules that a leaf of the first tree may hold, and of the others, where tests can part them though no
 * traffic requires it.  The packets that read the longest lists reach the last tree last. */
static const double longest_leaf[2] = {12, 4};
/* Expected list entries that a copied rule counts for when a test is chosen. */
static const double copy_penalty = 1;

/* Cost that one more rule printed per rule is worth, when groupings are compared.  10 keeps acl1 at two
 * thirds of the size of one tree for one rule read more. */
static const double size_worth = 10;
/* The same within a grouping that is pruned to fit the budget: there, time is what is short.  Without it,
 * legacy prints half as many rules again to save 4 % of the time. */
static const double spare_worth = 1.5;
/* Size penalties beyond which nothing is left of one tree, and beyond which groups are not worth their size.
 */
static const double largest_penalty[2] = {1e9, 300};

/* Groups. */

bool is_specific(const struct group_trees *f, uint32_t rule, uint32_t axis, uint32_t wide)
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

static enum group_kind kind_of(const struct group_trees *f, uint32_t rule)
{
    const struct grouping *by = &f->grouping;
    uint8_t may = f->space->in->free[rule];
    if (may & TREE_MOVABLE) {
        for (uint32_t i = 0; i < 2; i++)
            if (is_specific(f, rule, by->axis[i], by->wide))
                return GROUP_FIRST_AXIS + i;
        return GROUP_WIDE;
    }
    if (may & TREE_LATE && by->late != LATE_STAY)
        return by->late == LATE_ALONE ? GROUP_LATE : GROUP_WIDE;
    return by->stayers == STAYERS_ALONE ? GROUP_STAYERS : GROUP_FIRST_AXIS;
}

/* Give each rule its group; groups without rules vanish from the grouping. */
static void group_rules(struct group_trees *f)
{
    const struct tree_boxes *in = f->space->in;
    struct grouping *by = &f->grouping;
    uint32_t count[GROUPS] = {0}, place[GROUPS];
    f->rules = by->groups = 0;
    by->called = true;
    for (uint32_t r = 0; r < in->rules; r++) {
        if (r < by->head || !in_sample(f, r)) {
            f->group[r] = r < by->head ? IN_HEAD : OUT_OF_SAMPLE;
            continue;
        }
        if (f->repeats[r] || (by->head && group_head_covers(f, r))) {
            f->group[r] = COVERED;
            continue;
        }
        enum group_kind kind = by->one ? GROUP_WIDE : kind_of(f, r);
        if (kind <= GROUP_FIRST_AXIS && !(in->free[r] & TREE_MOVABLE))
            by->called = false; /* RETURN in a called tree would come back */
        f->group[r] = (uint8_t)kind;
        count[kind]++;
        f->rules++;
    }
    for (uint32_t kind = 0; kind < GROUPS; kind++) {
        place[kind] = by->groups;
        if (count[kind])
            by->kind[by->groups++] = kind;
    }
    if (!by->groups) {
        by->groups = 1;
        by->kind[0] = GROUP_WIDE;
    }
    for (uint32_t r = 0; r < in->rules; r++)
        if (f->group[r] < GROUPS)
            f->group[r] = (uint8_t)place[f->group[r]];
}

/* Whether the rule is wide where the rules of group g are specific. */
static bool is_wide_for(const struct group_trees *f, uint32_t rule, uint32_t g)
{
    const struct grouping *by = &f->grouping;
    if (by->kind[g] != GROUP_FIRST_AXIS && by->kind[g] != GROUP_SECOND_AXIS)
        return true;
    return !is_specific(f, rule, by->axis[by->kind[g] - GROUP_FIRST_AXIS], by->wide);
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
        } else if (f->group[r] < GROUPS && f->first[r] < f->first[r + 1]) {
            if (f->group[r] > g || (seen && is_wide_for(f, r, g)))
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

/* Put the rules of the head before all that the root has. */
static void put_head(struct group_trees *f)
{
    uint32_t head = f->grouping.head;
    if (!head)
        return;
    struct printed_entry *item = group_take(f, (head + f->root->items) * sizeof *item);
    if (f->failed)
        return;
    for (uint32_t r = 0; r < head; r++)
        item[r] = (struct printed_entry){TREE_RULE, (int32_t)r, NULL};
    if (f->root->items)
        memcpy(item + head, f->root->item, f->root->items * sizeof *item);
    f->root->item = item;
    f->root->items += head;
}

static void assemble(struct group_trees *f)
{
    const struct tree_boxes *in = f->space->in;
    uint32_t groups = f->grouping.groups;
    f->calls = NULL;
    f->form = group_take(f, (in->rules + 1) * sizeof *f->form);
    for (uint32_t g = 0; g < groups && !f->failed; g++)
        f->tree[g] = group_prune(f, g);
    for (uint32_t r = 0; r < in->rules && !f->failed && !f->hopeless && groups > 1; r++)
        if (f->group[r] < GROUPS)
            f->form[r] = rule_form(f, r);
    if (f->failed || f->hopeless)
        return;
    f->root = f->tree[0];
    if (groups == 1) {
        put_head(f);
        return;
    }
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
    put_head(f);
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
        if (!in_sample(f, (uint32_t)in->rule[b]) || seen++ % step)
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

/* Chains that nest at most besides those of the trees: a call of the first tree, an entry of each that leads
 * to a version of the next, and the chain that calls the versions of several. */
static uint32_t joints(const struct grouping *by)
{
    return by->groups == 1 ? 0 : by->called + (by->groups - 1) + (by->groups - 2);
}

/* Part the nesting among the trees: the more rules, the more. */
static void share_nesting(const struct group_trees *f, uint32_t *nesting)
{
    uint32_t groups = f->grouping.groups, left = f->options->max_nesting + f->slack - joints(&f->grouping);
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

/* What pruned trees cost a packet, HUGE_VAL if they exceed the budget or the nesting; and the rules that they
 * print for each rule of the list. */
struct pruned {
    double time, size;
};

/* Prune and assemble with the size penalty doubled so often. */
static struct pruned prune_all(struct group_trees *f, double doublings, uint64_t budget,
                               const uint64_t *point, const double *weight, uint32_t points)
{
    struct pruned all = {HUGE_VAL, 0};
    double times = exp2(doublings);
    f->size_penalty = (f->options->size_penalty + 1) * times - 1;
    f->longest[0] = longest_leaf[0] * times;
    f->longest[1] = longest_leaf[1] * times;
    f->nesting = 0;
    f->copied = 0;
    f->most_copied = HOPELESS * budget;
    f->hopeless = false;
    assemble(f);
    if (f->hopeless)
        return all;
    struct tree *tree = f->failed ? NULL : flatten(f);
    if (!tree) {
        f->failed = true;
        return all;
    }
    uint64_t size = printed(tree);
    f->hopeless = size > f->most_copied;
    all.size = (double)size / (f->rules + 1);
    uint64_t nesting = size <= budget && f->slack ? tree_worst(tree, false, &f->space->scratch) : 0;
    f->nesting = nesting < UINT32_MAX ? (uint32_t)nesting : UINT32_MAX;
    if (size <= budget && f->nesting <= f->options->max_nesting)
        all.time = cost_of(f, tree, point, weight, points);
    tree_free(tree);
    return all;
}

/* Raise the size penalty until the trees fit the budget, then look for the least one that does and pays; the
 * expected cost, HUGE_VAL if no penalty fits. */
static double fit(struct group_trees *f, uint64_t budget, const uint64_t *point, const double *weight,
                  uint32_t points)
{
    double too_few = 0, enough = 0;
    struct pruned best;
    while ((best = prune_all(f, enough, budget, point, weight, points)).time >= HUGE_VAL) {
        if (f->failed || f->hopeless || f->nesting > f->options->max_nesting ||
            f->size_penalty > largest_penalty[f->grouping.groups > 1])
            return HUGE_VAL;
        too_few = enough++;
    }
    struct build_node *root = f->root;
    struct printed_entry *form = f->form;
    uint32_t nesting = f->nesting;
    for (uint32_t step = 0; step < REFINED && too_few < enough; step++) {
        double between = (too_few + enough) / 2;
        struct pruned refined = prune_all(f, between, budget, point, weight, points);
        if (refined.time >= HUGE_VAL) {
            too_few = between;
            continue;
        }
        enough = between;
        if (refined.time + spare_worth * refined.size < best.time + spare_worth * best.size) {
            best = refined;
            root = f->root;
            form = f->form;
            nesting = f->nesting;
        }
    }
    f->nesting = nesting;
    f->root = root;
    f->form = form;
    return f->failed ? HUGE_VAL : best.time + size_worth * best.size;
}

double group_trees_cost(struct group_trees *f)
{
    const struct tree_boxes *in = f->space->in;
    group_rules(f);
    uint32_t groups = f->grouping.groups, nesting = f->options->max_nesting;
    uint64_t budget = f->options->budget;
    if (f->every > 1)
        budget = (uint64_t)((double)budget * f->rules / in->rules);
    if (budget < f->rules + f->grouping.head)
        budget = f->rules + f->grouping.head;
    if (groups > 1 && nesting < joints(&f->grouping) + groups)
        return HUGE_VAL;
    uint32_t nestings[GROUPS];
    double cost = HUGE_VAL;
    share_nesting(f, nestings);
    for (uint32_t g = 0; g < groups; g++)
        f->grown[g] = group_grow(f, g, nestings[g]);
    if (!f->failed)
        ask_later_groups(f);
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
    f->asked = group_take(f, ((size_t)in->rules + 1) * sizeof *f->asked);
    for (uint32_t h = 0; h < GROUPS; h++)
        f->limit[h] = group_take(f, ((size_t)in->rules + 1) * sizeof *f->limit[h]);
    f->repeats = group_take(f, (size_t)in->rules + 1);
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
    return group_find_repeats(f);
}

static enum tree_status shape_groups_grow(struct space *space, const struct tree_options *options,
                                          struct build_node **root)
{
    struct group_trees f = {.space = space, .options = options};
    if (!allow_halves(&f) || !index_rules(&f))
        return TREE_NO_MEMORY;
    return group_choose(&f, root) ? TREE_OK : TREE_NO_MEMORY;
}

const struct tree_builder tree_shape_groups = {.name = "auto", .bounded = true, .grow = shape_groups_grow};
