/* Bisection: one test per node, chosen by what reading the printed tree would cost (cost.h).
 *
 * Idea: of the tests that the axes allow, take the one that leaves the least expected work, where copies of
 * rules count extra (bisect_tests.c).  Only the taken side of a test nests, so when nesting gets scarce the
 * estimate of work itself favours small taken sides (bisect_work.c).  The tree grows best first, the split
 * next that saves most for the rules that it copies (leaf_judge), until no split saves or the budget is used
 * up.  Rules that cover a whole region and come first are read before its test, once.
 * Cost: O(n log n) per node and axis, n the boxes of the node.
 * Invariant: a node is split only if entries and decisions stay within the budget then (a list that is not
 * split may exceed it); taken tests on a path never exceed max_nesting.  Same input, same tree.
 * Threading: none; everything lives in the space's arena.
 */
#include "bisect_internal.h"

#include <string.h>

enum { BESIDE = 16 }; /* rules that may be put in front of another list, at most */

/* The heap of leaves. */

static bool before(const struct open_leaf *a, const struct open_leaf *b)
{
    return a->rank > b->rank || (a->rank == b->rank && a->order < b->order);
}

static bool heap_push(struct bisection *g, struct open_leaf *leaf)
{
    if (g->leaves == g->room) {
        struct open_leaf **more =
            arena_take(g->space->arena, (g->room ? 2 * (size_t)g->room : 1024) * sizeof *more);
        if (!more)
            return false;
        if (g->leaves)
            memcpy(more, g->heap, g->leaves * sizeof *more);
        g->heap = more;
        g->room = g->room ? 2 * g->room : 1024;
    }
    uint32_t at = g->leaves++;
    for (; at && before(leaf, g->heap[(at - 1) / 2]); at = (at - 1) / 2)
        g->heap[at] = g->heap[(at - 1) / 2];
    g->heap[at] = leaf;
    return true;
}

static struct open_leaf *heap_pop(struct bisection *g)
{
    struct open_leaf *top = g->heap[0], *last = g->heap[--g->leaves];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < g->leaves; at = child) {
        if (child + 1 < g->leaves && before(g->heap[child + 1], g->heap[child]))
            child++;
        if (!before(g->heap[child], last))
            break;
        g->heap[at] = g->heap[child];
    }
    g->heap[at] = last;
    return top;
}

/* Growing. */

static double share_of(const struct open_leaf *leaf)
{
    double share = 0;
    for (uint32_t i = 0; i < leaf->boxes; i++)
        share += leaf->share[i];
    for (uint32_t i = 0; i < leaf->background_boxes; i++)
        share += leaf->background_share[i];
    return share;
}

static uint32_t rules_in(const struct bisection *g, const uint32_t *box, uint32_t boxes)
{
    uint32_t rules = 0;
    for (uint32_t i = 0; i < boxes; i++)
        rules += !i || g->space->in->rule[box[i]] != g->space->in->rule[box[i - 1]];
    return rules;
}

/* What reading these boxes' rules costs a packet of the region. */
static double boxes_cost(const struct bisection *g, const uint32_t *box, uint32_t boxes,
                         const struct range *region)
{
    const int32_t *rule = g->space->in->rule;
    double spent = 0;
    for (uint32_t i = 0; i < boxes; i++)
        if (!i || rule[box[i]] != rule[box[i - 1]])
            spent += cost_missed(g->space, box[i], region);
    return spent;
}

/* The expected cost of the list, times its traffic. */
static double list_work(const struct bisection *g, struct open_leaf *leaf)
{
    const int32_t *rule = g->space->in->rule;
    double work = 0, spent = 0;
    for (uint32_t i = 0; i < leaf->boxes; i++) {
        if (!i || rule[leaf->box[i]] != rule[leaf->box[i - 1]])
            spent += cost_missed(g->space, leaf->box[i], leaf->region);
        work += spent * (double)leaf->share[i];
    }
    for (uint32_t i = 0; i < leaf->background_boxes; i++)
        work += spent * (double)leaf->background_share[i];
    leaf->scale = leaf->rules ? spent / (leaf->rules * g->rule) : 1;
    return work;
}

/* Boxes at the head of the list whose rules cover the region: read before any test. */
static uint32_t front_of(const struct bisection *g, const struct open_leaf *leaf)
{
    const int32_t *rule = g->space->in->rule;
    uint32_t front = 0;
    while (front < leaf->boxes) {
        uint32_t next = front;
        bool covers = false;
        for (; next < leaf->boxes && rule[leaf->box[next]] == rule[leaf->box[front]]; next++)
            covers |= box_covers(g->space, leaf->box[next], leaf->region);
        if (!covers)
            break;
        front = next;
    }
    return front;
}

/* Give the leaf its best test and put it on the heap, if splitting can save. */
static bool leaf_judge(struct bisection *g, struct open_leaf *leaf)
{
    leaf->node->share = share_of(leaf);
    leaf->node->hits = leaf->node->share;
    for (uint32_t i = 0; i < leaf->background_boxes; i++)
        leaf->node->hits -= leaf->background_share[i];
    leaf->node->work = list_work(g, leaf);
    if (leaf->rules <= g->options->leaf_size || leaf->rules < 2 || leaf->nesting >= g->options->max_nesting)
        return true;
    if (g->boxes_read > g->work_limit)
        return true;
    g->boxes_read += leaf->boxes + leaf->background_boxes;
    struct open_leaf split = *leaf; /* what a test would split */
    uint32_t front = front_of(g, leaf), front_rules = rules_in(g, leaf->box, front);
    split.box += front;
    split.share += front;
    split.boxes -= front;
    split.rules -= front_rules;
    double share = share_of(&split);
    if (share <= 0)
        return true;
    double listed = list_work(g, &split);
    leaf->front = front;
    split.table = work_table_for(g, &split);
    leaf->choice = choose_test(g, &split, share);
    double saving = listed - leaf->choice.work * share;
    bool too_long = g->options->longest && leaf->rules > g->options->longest && leaf->choice.work < HUGE_VAL;
    if (!(saving > 0) && !too_long)
        return true;
    /* Splits that only shorten a list come after those that save. */
    leaf->rank = saving > 0 ? saving / sqrt(leaf->choice.copies + 1) : saving - 1;
    return heap_push(g, leaf);
}

static struct open_leaf *leaf_new(struct bisection *g, uint32_t boxes, uint32_t background_boxes,
                                  uint32_t nesting)
{
    struct arena *arena = g->space->arena;
    struct open_leaf *leaf = arena_take(arena, sizeof *leaf);
    if (!leaf)
        return NULL;
    leaf->node = node_new(g->space);
    leaf->box = arena_take(arena, boxes * sizeof *leaf->box);
    leaf->share = arena_take(arena, boxes * sizeof *leaf->share);
    leaf->background = arena_take(arena, background_boxes * sizeof *leaf->background);
    leaf->background_share = arena_take(arena, background_boxes * sizeof *leaf->background_share);
    leaf->region = arena_take(arena, g->space->in->axes * sizeof *leaf->region);
    if (!leaf->node || !leaf->box || !leaf->share || !leaf->background || !leaf->background_share ||
        !leaf->region)
        return NULL;
    leaf->nesting = nesting;
    leaf->order = g->created++;
    return leaf;
}

/* Whether the list ends with a final rule that covers the region. */
static bool is_closed(const struct bisection *g, const struct open_leaf *leaf)
{
    const struct tree_boxes *in = g->space->in;
    if (!leaf->boxes || !in->final[in->rule[leaf->box[leaf->boxes - 1]]])
        return false;
    int32_t last = in->rule[leaf->box[leaf->boxes - 1]];
    for (uint32_t i = leaf->boxes; i-- && in->rule[leaf->box[i]] == last;)
        if (box_covers(g->space, leaf->box[i], leaf->region))
            return true;
    return false;
}

/* One side of a split: the boxes that meet it, cut behind a rule that covers it. */
static struct open_leaf *leaf_part(struct bisection *g, const struct open_leaf *from, uint32_t front,
                                   const struct probe *probe, bool inside, uint32_t nesting)
{
    const int32_t *rule = g->space->in->rule;
    uint32_t met = 0;
    struct open_leaf *leaf = leaf_new(g, from->boxes - front, from->background_boxes, nesting);
    if (!leaf)
        return NULL;
    (inside ? region_inside : region_outside)(g->space, from->region, probe, leaf->region);
    const struct range *around = &from->region[probe->axis];
    struct range *along = &leaf->region[probe->axis];
    leaf->holes = from->holes;
    if (!inside && !(leaf->holes = hole_new(g->space, from->holes, probe)))
        return NULL;
    bool alive = range_trim(g->space, leaf->holes, probe->axis, along);
    for (uint32_t i = front; i < from->boxes;) {
        int32_t r = rule[from->box[i]];
        struct rank_range whole = box_ranks(g->space, from->box[i], probe->axis);
        float share = from->share[i];
        bool in = false, out = false, first = true, many = false;
        for (uint32_t start = i; i < from->boxes && rule[from->box[i]] == r; i++) {
            struct rank_range ranks = box_ranks(g->space, from->box[i], probe->axis);
            bool meets = probe_meets(probe, ranks), leaves = probe_is_left(probe, ranks);
            bool here = range_meets(along, alive, ranks);
            in |= meets;
            out |= leaves;
            many |= i > start;
            if (here && (inside ? meets : leaves)) {
                leaf->share[met] = first ? share : 0;
                leaf->box[met++] = from->box[i];
                first = false;
            }
        }
        if (in && out && !first) {
            uint32_t at = met;
            while (at && rule[leaf->box[at - 1]] == r)
                at--;
            double part = many ? 0.5 : probe_part(g, around, probe, whole);
            leaf->share[at] = (float)(share * (inside ? part : 1 - part));
        }
    }
    for (uint32_t i = 0; i < from->background_boxes; i++) {
        struct rank_range ranks = box_ranks(g->space, from->background[i], probe->axis);
        double part = probe_part(g, around, probe, ranks);
        float share = (float)(from->background_share[i] * (inside ? part : 1 - part));
        if (share > 1e-4f) {
            leaf->background[leaf->background_boxes] = from->background[i];
            leaf->background_share[leaf->background_boxes++] = share;
        }
    }
    leaf->boxes = list_cut(g->space, leaf->box, met, leaf->region);
    leaf->rules = rules_in(g, leaf->box, leaf->boxes);
    leaf->node->closed = is_closed(g, leaf);
    return leaf;
}

static enum tree_status leaf_split(struct bisection *g, struct open_leaf *leaf)
{
    const struct test_choice *choice = &leaf->choice;
    struct build_node *node = leaf->node;
    struct probe probe = probe_of(g->space, leaf->region, choice->axis, choice->low, choice->high);
    uint32_t front = leaf->front;
    struct open_leaf *taken = leaf_part(g, leaf, front, &probe, !choice->negated, leaf->nesting + 1);
    struct open_leaf *other = leaf_part(g, leaf, front, &probe, choice->negated, leaf->nesting);
    if (!taken || !other)
        return TREE_NO_MEMORY;
    uint64_t printed =
        g->printed + rules_in(g, leaf->box, front) + taken->rules + other->rules + 1 - leaf->rules;
    if (printed > g->options->budget)
        return TREE_OK; /* stays a leaf; a smaller one may still fit */
    g->printed = printed;
    node->kind = TREE_TEST;
    node->axis = choice->axis;
    node->negated = choice->negated;
    node->branches = 2;
    node->branch = arena_take(g->space->arena, 2 * sizeof *node->branch);
    if (!node->branch || !node_lists(g->space, node, leaf->box, front))
        return TREE_NO_MEMORY;
    node->test = cost_of_test(g->space->in, choice->axis, choice->low, choice->high, choice->negated);
    node->front = boxes_cost(g, leaf->box, front, leaf->region);
    node->beside = taken->rules > BESIDE ? HUGE_VAL : boxes_cost(g, taken->box, taken->boxes, leaf->region);
    const struct range *around = &leaf->region[choice->axis];
    node->branch[0] = (struct branch){choice->low, choice->high, taken->node};
    node->branch[1] = (struct branch){around->low, around->high, other->node};
    bool listed = node_lists(g->space, taken->node, taken->box, taken->boxes) &&
                  node_lists(g->space, other->node, other->box, other->boxes);
    return listed && leaf_judge(g, taken) && leaf_judge(g, other) ? TREE_OK : TREE_NO_MEMORY;
}

/* A tree over *problem*; NULL when memory is exhausted. */
struct build_node *bisect_over(struct space *space, const struct tree_options *options,
                               const struct subproblem *problem)
{
    uint32_t boxes = problem->boxes;
    size_t spans = (size_t)boxes + problem->background_boxes + 1;
    struct bisection *g = arena_take(space->arena, sizeof *g);
    if (!g)
        return NULL;
    g->space = space;
    g->options = options;
    g->span = arena_take(space->arena, spans * sizeof *g->span);
    g->inside = arena_take(space->arena, spans * sizeof *g->inside);
    g->crossing = arena_take(space->arena, spans * sizeof *g->crossing);
    g->key = arena_take(space->arena, 2 * spans * sizeof *g->key);
    g->spare = arena_take(space->arena, 2 * spans * sizeof *g->spare);
    struct open_leaf *leaf = leaf_new(g, boxes, problem->background_boxes, 0);
    if (!names_prepare(g, spans))
        return NULL;
    if (!g->span || !g->inside || !g->crossing || !g->key || !g->spare || !leaf)
        return NULL;
    g->work_limit = options->work_limit
                        ? (uint64_t)options->work_limit * (boxes + problem->background_boxes + 1)
                        : UINT64_MAX;
    if (!work_tables_fill(g, problem))
        return NULL;
    memcpy(leaf->region, problem->region, space->in->axes * sizeof *leaf->region);
    memcpy(leaf->box, problem->box, boxes * sizeof *leaf->box);
    for (uint32_t i = 0; i < boxes; i++) {
        int32_t rule = space->in->rule[leaf->box[i]];
        bool first = !i || rule != space->in->rule[leaf->box[i - 1]];
        leaf->share[i] = first ? (float)space->in->weight[rule] : 0;
    }
    for (uint32_t i = 0; i < problem->background_boxes; i++) {
        leaf->background[i] = problem->background[i];
        leaf->background_share[i] = problem->background_share[i];
    }
    leaf->background_boxes = problem->background_boxes;
    leaf->boxes = list_cut(space, leaf->box, boxes, leaf->region);
    leaf->rules = rules_in(g, leaf->box, leaf->boxes);
    leaf->node->closed = is_closed(g, leaf);
    g->printed = leaf->rules;
    if (!node_lists(space, leaf->node, leaf->box, leaf->boxes) || !leaf_judge(g, leaf))
        return NULL;
    while (g->leaves)
        if (leaf_split(g, heap_pop(g)) != TREE_OK)
            return NULL;
    return leaf->node;
}

static enum tree_status bisect_grow(struct space *space, const struct tree_options *options,
                                    struct build_node **root)
{
    uint32_t boxes = space->in->boxes;
    struct range region[TREE_AXES];
    uint32_t *box = arena_take(space->arena, boxes * sizeof *box);
    if (!box)
        return TREE_NO_MEMORY;
    for (uint32_t i = 0; i < boxes; i++)
        box[i] = i;
    region_all(space, region);
    *root = bisect_over(space, options, &(struct subproblem){.box = box, .boxes = boxes, .region = region});
    return *root ? TREE_OK : TREE_NO_MEMORY;
}

const struct tree_builder tree_bisect = {.name = "bisect", .bounded = true, .grow = bisect_grow};
