/* Pruning of a group's tree: each node in its cheapest form.
 *
 * Idea: a tree is grown larger than it pays, and then cut back from its leaves: a node becomes a list if its
 * test saves less than it costs, where each printed rule costs size_penalty.  A rule is printed once per
 * version of its node, so the number of versions counts.
 * Cost: a few steps per node, and the boxes of the leaves that are put in line.
 * Invariant: a pruned tree finds what the grown one finds.
 * Threading: none; memory is that of the space (tree.c).
 */
#include "group_trees.h"

#include <string.h>

/* The nodes below *root*, parents first; their number in *count.  NULL when memory is exhausted. */
static struct build_node **gather(struct group_trees *f, struct build_node *root, uint32_t *count)
{
    struct scope *scratch = &f->space->scratch;
    uint32_t room = 1024, listed = 0;
    struct build_node **list = scope_take(scratch, room * sizeof *list);
    if (list)
        list[listed++] = root;
    for (uint32_t at = 0; list && at < listed; at++)
        for (uint32_t i = 0; i < list[at]->branches; i++) {
            if (listed == room) {
                struct build_node **moved = scope_resize(scratch, list, 2 * (size_t)room * sizeof *list);
                if (!moved) {
                    scope_drop(scratch, list);
                    list = NULL;
                    break;
                }
                list = moved;
                room *= 2;
            }
            list[listed++] = list[at]->branch[i].to;
        }
    if (!list)
        f->failed = true;
    *count = listed;
    return list;
}

/* How many versions of a node there may be, itself among them. */
static uint32_t versions_of(const struct group_trees *f, uint32_t g, const struct build_node *node)
{
    uint32_t versions = 1;
    if (g)
        for (uint32_t i = 1; i < node->listed; i++)
            versions += f->run[node->list[i]] != f->run[node->list[i - 1]];
    return versions;
}

/* Whether no packet outside of the test's interval can match any rule of the leaf it takes. */
static bool can_peel(const struct group_trees *f, const struct build_node *node)
{
    const struct build_node *taken = node->branch[0].to;
    const struct line *line = &f->space->line[node->axis];
    if (node->negated || taken->entries > 2)
        return false;
    for (uint32_t i = 0; i < taken->listed; i++)
        for (uint32_t b = f->first[taken->list[i]]; b < f->first[taken->list[i] + 1]; b++) {
            struct rank_range ranks = box_ranks(f->space, b, node->axis);
            if (line->edge[ranks.low] < node->branch[0].low ||
                line_end(line, ranks.high) > node->branch[0].high)
                return false;
        }
    return true;
}

static void node_judge(struct group_trees *f, uint32_t g, struct build_node *node)
{
    bool goes_on = g == 0 && f->grouping.groups > 1 && !f->grouping.called;
    double versions = versions_of(f, g, node), size_penalty = f->size_penalty;
    struct node_plan *plan = node->plan;
    plan->version = NULL;
    plan->form = FORM_LEAF;
    plan->cost = node->work;
    plan->longest = node->listed;
    plan->printed = versions * (node->listed + (goes_on && !node->closed));
    if (node->kind == TREE_LEAF)
        return;
    struct build_node *taken = node->branch[0].to, *other = node->branch[1].to;
    double tests = taken->share * node->test.taken + other->share * node->test.missed;
    double cost = node->share * node->front + tests + taken->plan->cost + other->plan->cost;
    const struct branch *cut = &node->branch[0];
    uint32_t tested = 1 + cost_is_halved(f->space->in, node->axis, cut->low, cut->high, node->negated);
    double printed = versions * (node->entries + tested) + taken->plan->printed + other->plan->printed;
    uint32_t deep = taken->plan->longest > other->plan->longest ? taken->plan->longest : other->plan->longest;
    uint32_t longest = node->entries + tested + deep;
    enum node_form form = FORM_SPLIT;
    if (taken->plan->form == FORM_LEAF && !(goes_on && !taken->closed) && can_peel(f, node)) {
        double misses = taken->share - taken->hits;
        double again = other->share > 0 ? other->plan->cost / other->share : other->listed;
        double peeled = cost - tests + other->share * node->beside + misses * again;
        if (peeled + size_penalty * (printed - versions * tested) < cost + size_penalty * printed) {
            cost = peeled;
            printed -= versions * tested;
            longest = node->entries + taken->listed + other->plan->longest;
            form = FORM_INLINE;
        }
    }
    bool too_long = node->listed > f->longest[g != 0] && longest < node->listed;
    if (too_long || cost + size_penalty * printed < plan->cost + size_penalty * plan->printed) {
        plan->longest = longest;
        plan->form = form;
        plan->cost = cost;
        plan->printed = printed;
    }
}

/* Test both halves of the node's interval, one rule behind the other; both take to one node. */
static void halve(struct group_trees *f, struct build_node *first)
{
    struct build_node *second = group_take(f, sizeof *second);
    struct node_plan *plan = group_take(f, sizeof *plan);
    struct branch *branch = group_take(f, 2 * sizeof *branch);
    if (f->failed)
        return;
    *second = *first;
    second->entries = 0;
    second->plan = plan;
    second->branch = branch;
    memcpy(branch, first->branch, 2 * sizeof *branch);
    u128 middle = branch[0].low + (branch[0].high - branch[0].low) / 2;
    first->branch[0].high = middle;
    branch[0].low = middle + 1;
    first->branch[1].to = second;
}

/* A copy of the grown tree as planned. */
static struct build_node *harvest(struct group_trees *f, uint32_t g, struct build_node *from, bool chained,
                                  uint32_t depth)
{
    struct build_node *copy = group_take(f, sizeof *copy);
    struct node_plan *plan = group_take(f, sizeof *plan);
    if (f->failed)
        return NULL;
    uint32_t peeled = 0, front = 0;
    struct build_node *at = from;
    /* Leaves in line precede the rest. */
    for (; at->plan->form == FORM_INLINE; at = at->branch[1].to)
        peeled += at->entries + at->branch[0].to->listed;
    bool split = at->plan->form == FORM_SPLIT && depth < DEEPEST;
    uint32_t own = split ? at->entries : at->listed;
    copy->entry = group_take(f, (peeled + own + 1) * sizeof *copy->entry);
    if (f->failed)
        return NULL;
    for (struct build_node *each = from; each != at; each = each->branch[1].to) {
        memcpy(copy->entry + front, each->entry, each->entries * sizeof *copy->entry);
        front += each->entries;
        struct build_node *taken = each->branch[0].to;
        memcpy(copy->entry + front, taken->list, taken->listed * sizeof *copy->entry);
        front += taken->listed;
    }
    memcpy(copy->entry + front, split ? at->entry : at->list, own * sizeof *copy->entry);
    copy->entries = front + own;
    copy->list = from->list;
    copy->listed = from->listed;
    copy->share = from->share;
    copy->plan = plan;
    plan->chained = chained;
    if (!split) {
        copy->kind = TREE_LEAF;
        copy->closed = at->closed;
        return copy;
    }
    copy->kind = at->kind;
    copy->axis = at->axis;
    copy->negated = at->negated;
    copy->branches = 2;
    copy->branch = group_take(f, 2 * sizeof *copy->branch);
    if (f->failed)
        return NULL;
    copy->branch[0] = at->branch[0];
    copy->branch[1] = at->branch[1];
    copy->branch[0].to = harvest(f, g, at->branch[0].to, true, depth + 1);
    copy->branch[1].to = harvest(f, g, at->branch[1].to, false, depth + 1);
    if (!f->failed &&
        cost_is_halved(f->space->in, at->axis, at->branch[0].low, at->branch[0].high, at->negated))
        halve(f, copy);
    return copy;
}

struct build_node *group_prune(struct group_trees *f, uint32_t g)
{
    uint32_t count;
    struct build_node **list = gather(f, f->grown[g], &count);
    for (uint32_t i = 0; list && i < count && !f->failed; i++)
        if (!list[i]->plan)
            list[i]->plan = group_take(f, sizeof *list[i]->plan);
    for (uint32_t i = count; list && i-- && !f->failed;)
        node_judge(f, g, list[i]);
    scope_drop(&f->space->scratch, list);
    return f->failed ? NULL : harvest(f, g, f->grown[g], true, 0);
}
