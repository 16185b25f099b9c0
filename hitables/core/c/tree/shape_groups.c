/* Shape groups with versioned trees: rules that cross are kept apart.
 *
 * Idea: rules wide in one address cross those wide in the other, and in one tree they
 * are copied against each other.  So rules are grouped by the address in which they are
 * specific, each group gets a tree by bisection, and the trees are searched in turn.
 * First match is kept like this: where a packet matches rule r of one group, the rules of
 * later groups that stand before r are searched first.  They are listed if few of them
 * meet r's boxes; else *version* r of their group's tree is called, the tree cut down to
 * the rules before r.  Versions are made as in persistent search trees: a node's version
 * depends only on how many of its rules stand before r, so equal versions are one.  What
 * stays in line behind a test is copied, what a test takes is shared.
 * Grouping, order, and whether to group at all: by what the whole would cost, rules read
 * and rules printed, over points drawn from the rules.
 * Rules that may not be moved stay in the first group, where a packet meets them once.
 * Cost: that of bisecting each group, for a handful of groupings.
 * Invariant: every point finds its first rule; the budget and the nesting are kept.
 * Threading: none; everything lives in the space's arena.
 */
#include "cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search.h"
#include "sort.h"

enum {
    GROUPS = 3,
    LISTED = 3,       /* rules of later groups that a continuation lists rather than searches */
    FEW = 2,          /* a version of so many rules is a list */
    VISITS = 400,     /* nodes looked at before a rule is taken to meet many */
    POINTS = 20000,   /* drawn to weigh a trees */
    BACKGROUND_SAMPLE = 60,      /* drawn to grow a tree; with all of them it takes eight times as long for the same tree */
    WIDE = 7,         /* a prefix of so many bits of 32 or fewer is not specific; with 16 the last tree
                       * of fw1 crosses so much that its longest way is twice as long */
    WIDER = 15,       /* tried besides with the greatest effort */
    GROUPINGS = 5,
    BUDGET = 4,       /* rules that a tree may grow to over those that it holds, before it is pruned */
    SAMPLE = 2000,    /* rules by which the grouping is chosen */
    DEEPEST = 2000,   /* tests above a node below which versions are lists: recursion ends there */
    ELSEWHERE = 255   /* the group of rules that are not in the sample */
};

/* Rules that a leaf of the first tree may hold, and of the others, where tests can part them
 * though no traffic asks for it.  Packets that read the longest come last to the last tree. */
static const double longest_leaf[2] = {12, 4};
/* Expected list entries that a copied rule counts for when a test is chosen. */
static const double copy_penalty = 1;

/* Cost that one more rule printed per rule is worth, when groupings are compared.  10
 * keeps acl1 at two thirds of the size of one tree for one rule read more. */
static const double size_worth = 10;
/* What costs so much more on the sample may still be cheaper on the whole list. */
static const double near_cost = 1.15;
/* Where no tree is left of one, and what is left of groups is not worth its size. */
static const double largest_penalty[2] = {1e9, 300};

/* A version of a node: its first *rules* rules.  One per node and number. */
struct version {
    uint32_t rules;
    struct build_node *node;
    struct version *next;
};

enum fate { FATE_LEAF, FATE_SPLIT, FATE_PEEL };

/* What is meant to become of a node. */
struct node_plan {
    enum fate fate;
    double cost, printed; /* of its traffic; rules printed, in all versions */
    uint32_t longest;     /* rules read by any packet */
    bool chained;         /* it starts a chain */
    struct version *version;
};

/* How rules are grouped: by the axis in which they are specific, in this order. */
struct grouping {
    uint32_t groups;       /* 1: one tree */
    uint32_t axis[GROUPS]; /* of the first groups */
    uint32_t wide;         /* a prefix of so many bits, or fewer, is not specific */
    bool last_is_rest;     /* the last group holds what is specific in neither axis */
    bool called;           /* the first tree is called and comes back, as the others; else it goes on to them */
};

struct group_trees {
    struct space *space;
    const struct tree_options *options;
    struct tree_boxes passing; /* the input; rules that are not final let the search pass */
    struct grouping grouping;
    uint32_t every;   /* of so many rules one is in the sample */
    uint32_t rules;   /* in the sample */
    uint32_t *first;  /* box of each rule; [rules] ends the last */
    uint8_t *group;   /* of each rule */
    uint32_t *run;    /* of each rule: how often rules of earlier groups stood between those of its own */
    struct build_node *grown[GROUPS], *tree[GROUPS];
    struct printed_entry *form;
    struct build_node *root;
    struct version_call *calls; /* chains that call several versions */
    double size_penalty;
    double longest[2]; /* rules in a leaf, of the first tree, of the others */
    bool needed[TREE_AXES]; /* axes that others need to be known */
    bool failed; /* memory is exhausted */
};

/* A chain that calls versions of several groups. */
struct version_call {
    struct version_call *next;
    struct build_node *version[GROUPS], *node;
};

static void *take(struct group_trees *f, size_t size)
{
    void *taken = arena_take(f->space->arena, size);
    if (!taken)
        f->failed = true;
    return taken;
}

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
            f->group[r] = ELSEWHERE;
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
        if (f->group[r] != ELSEWHERE)
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

/* The tree of group g, over all its rules.  Packets of later groups come by, and those of earlier
 * rules that are wide where this group is specific. */
static struct build_node *group_grow(struct group_trees *f, uint32_t g, uint32_t nesting)
{
    const struct tree_boxes *in = f->space->in;
    struct range region[TREE_AXES];
    uint32_t *box = take(f, (in->boxes + 1) * sizeof *box), *background = take(f, (in->boxes + 1) * sizeof *background);
    float *share = take(f, (in->boxes + 1) * sizeof *share);
    if (f->failed)
        return NULL;
    uint32_t boxes = 0, background_boxes = 0, own = 0, seen = 0;
    for (uint32_t r = 0; r < in->rules; r++) {
        if (f->group[r] == g) {
            seen++;
            for (uint32_t b = f->first[r]; b < f->first[r + 1]; b++)
                box[boxes++] = b;
        } else if (f->group[r] != ELSEWHERE && f->first[r] < f->first[r + 1]) {
            bool rest = g + 1 == f->grouping.groups && f->grouping.last_is_rest;
            bool wide = rest || !is_specific(f, r, f->grouping.axis[g], f->grouping.wide);
            if (f->group[r] > g || (seen && wide))
                background[background_boxes++] = f->first[r];
        }
    }
    own = boxes;
    /* So many guests tell as much as more. */
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

/* Pruning: of each node the cheapest form, cost plus size_penalty times rules printed. */

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
            if (line->edge[ranks.low] < node->branch[0].low || line_end(line, ranks.high) > node->branch[0].high)
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
    plan->fate = FATE_LEAF;
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
    enum fate fate = FATE_SPLIT;
    if (taken->plan->fate == FATE_LEAF && !(goes_on && !taken->closed) && can_peel(f, node)) {
        double misses = taken->share - taken->hits;
        double again = other->share > 0 ? other->plan->cost / other->share : other->listed;
        double peeled = cost - tests + other->share * node->beside + misses * again;
        if (peeled + size_penalty * (printed - versions * tested) < cost + size_penalty * printed) {
            cost = peeled;
            printed -= versions * tested;
            longest = node->entries + taken->listed + other->plan->longest;
            fate = FATE_PEEL;
        }
    }
    bool too_long = node->listed > f->longest[g != 0] && longest < node->listed;
    if (too_long || cost + size_penalty * printed < plan->cost + size_penalty * plan->printed) {
        plan->longest = longest;
        plan->fate = fate;
        plan->cost = cost;
        plan->printed = printed;
    }
}

/* Test both halves of the node's interval, one rule behind the other; both take to one node. */
static void halve(struct group_trees *f, struct build_node *first)
{
    struct build_node *second = take(f, sizeof *second);
    struct node_plan *plan = take(f, sizeof *plan);
    struct branch *branch = take(f, 2 * sizeof *branch);
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
static struct build_node *harvest(struct group_trees *f, uint32_t g, struct build_node *from, bool chained, uint32_t depth)
{
    struct build_node *made = take(f, sizeof *made);
    struct node_plan *plan = take(f, sizeof *plan);
    if (f->failed)
        return NULL;
    uint32_t peeled = 0, front = 0;
    struct build_node *at = from;
    /* Peeled leaves stand in front of what stays. */
    for (; at->plan->fate == FATE_PEEL; at = at->branch[1].to)
        peeled += at->entries + at->branch[0].to->listed;
    bool split = at->plan->fate == FATE_SPLIT && depth < DEEPEST;
    uint32_t own = split ? at->entries : at->listed;
    made->entry = take(f, (peeled + own + 1) * sizeof *made->entry);
    if (f->failed)
        return NULL;
    for (struct build_node *each = from; each != at; each = each->branch[1].to) {
        memcpy(made->entry + front, each->entry, each->entries * sizeof *made->entry);
        front += each->entries;
        struct build_node *taken = each->branch[0].to;
        memcpy(made->entry + front, taken->list, taken->listed * sizeof *made->entry);
        front += taken->listed;
    }
    memcpy(made->entry + front, split ? at->entry : at->list, own * sizeof *made->entry);
    made->entries = front + own;
    made->list = from->list;
    made->listed = from->listed;
    made->share = from->share;
    made->plan = plan;
    plan->chained = chained;
    if (!split) {
        made->kind = TREE_LEAF;
        made->closed = at->closed;
        return made;
    }
    made->kind = at->kind;
    made->axis = at->axis;
    made->negated = at->negated;
    made->branches = 2;
    made->branch = take(f, 2 * sizeof *made->branch);
    if (f->failed)
        return NULL;
    made->branch[0] = at->branch[0];
    made->branch[1] = at->branch[1];
    made->branch[0].to = harvest(f, g, at->branch[0].to, true, depth + 1);
    made->branch[1].to = harvest(f, g, at->branch[1].to, false, depth + 1);
    if (!f->failed && cost_is_halved(f->space->in, at->axis, at->branch[0].low, at->branch[0].high, at->negated))
        halve(f, made);
    return made;
}

static struct build_node *prune(struct group_trees *f, uint32_t g)
{
    uint32_t count;
    struct build_node **list = gather(f, f->grown[g], &count);
    for (uint32_t i = 0; list && i < count && !f->failed; i++)
        if (!list[i]->plan)
            list[i]->plan = take(f, sizeof *list[i]->plan);
    for (uint32_t i = count; list && i-- && !f->failed;)
        node_judge(f, g, list[i]);
    scope_drop(&f->space->scratch, list);
    return f->failed ? NULL : harvest(f, g, f->grown[g], true, 0);
}

/* Versions. */

/* A chain of its own that says what the node says in line. */
static struct build_node *spine_copy(struct group_trees *f, const struct build_node *from)
{
    struct build_node *first = NULL, **to = &first;
    for (;;) {
        struct build_node *made = take(f, sizeof *made);
        if (!made)
            return NULL;
        *made = *from;
        made->number = 0;
        *to = made;
        if (from->kind == TREE_LEAF)
            return first;
        made->branch = take(f, 2 * sizeof *made->branch);
        if (!made->branch)
            return NULL;
        memcpy(made->branch, from->branch, 2 * sizeof *made->branch);
        to = &made->branch[1].to;
        from = from->branch[1].to;
    }
}

static uint32_t rules_before(const struct build_node *node, uint32_t limit)
{
    return lower_bound(node->list, 1, node->listed, limit);
}

static struct build_node *leaf_new(struct group_trees *f, const uint32_t *rule, uint32_t rules)
{
    struct build_node *made = take(f, sizeof *made);
    if (!made)
        return NULL;
    made->kind = TREE_LEAF;
    made->entry = take(f, (rules + 1) * sizeof *made->entry);
    if (!made->entry)
        return NULL;
    if (rules)
        memcpy(made->entry, rule, rules * sizeof *rule);
    made->entries = rules;
    return made;
}

/* Put *entries* before those of *node*, which nothing else holds. */
static void prepend(struct group_trees *f, struct build_node *node, const uint32_t *entry, uint32_t entries)
{
    uint32_t *joined = entries ? take(f, (entries + node->entries) * sizeof *joined) : NULL;
    if (!joined)
        return;
    memcpy(joined, entry, entries * sizeof *joined);
    memcpy(joined + entries, node->entry, node->entries * sizeof *joined);
    node->entry = joined;
    node->entries += entries;
}

/* The node's version of the rules before *limit*; NULL when there is none.  *chain*: as a chain that
 * may be shared; else in line, and nobody else's. */
static struct build_node *version(struct group_trees *f, struct build_node *node, uint32_t limit, bool chain, uint32_t depth)
{
    uint32_t rules = rules_before(node, limit);
    if (!rules || f->failed)
        return NULL;
    if (chain)
        for (struct version *each = node->plan->version; each; each = each->next)
            if (each->rules == rules)
                return each->node;
    struct build_node *made = NULL;
    if (rules <= FEW && node->kind != TREE_LEAF && !(chain && rules == node->listed)) {
        made = leaf_new(f, node->list, rules);
    } else if (rules == node->listed) {
        made = chain && node->plan->chained ? node : spine_copy(f, node);
    } else if (rules <= FEW || depth > DEEPEST) {
        made = leaf_new(f, node->list, rules);
    } else {
        uint32_t own = 0, *entry = take(f, (node->entries + 1) * sizeof *entry);
        if (!entry)
            return NULL;
        for (uint32_t i = 0; i < node->entries; i++)
            if (node->entry[i] < limit)
                entry[own++] = node->entry[i];
        struct build_node *taken = NULL, *other = NULL;
        if (node->kind != TREE_LEAF) {
            taken = version(f, node->branch[0].to, limit, true, depth + 1);
            other = version(f, node->branch[1].to, limit, false, depth + 1);
        }
        if (!taken && !other) {
            made = leaf_new(f, entry, own);
        } else if (!taken && (!f->needed[node->axis] || other->kind == TREE_LEAF)) {
            made = other;
            prepend(f, made, entry, own);
        } else if (!other && rules_before(node->branch[0].to, limit) <= FEW) {
            made = version(f, node->branch[0].to, limit, false, depth + 1);
            if (made)
                prepend(f, made, entry, own);
        } else {
            made = take(f, sizeof *made);
            if (!other)
                other = leaf_new(f, NULL, 0);
            if (!taken)
                taken = leaf_new(f, NULL, 0);
            struct branch *branch = take(f, 2 * sizeof *branch);
            if (f->failed)
                return NULL;
            *made = *node;
            made->number = 0;
            made->entry = entry;
            made->entries = own;
            made->branch = branch;
            branch[0] = node->branch[0];
            branch[1] = node->branch[1];
            branch[0].to = taken;
            branch[1].to = other;
        }
    }
    if (chain && made) {
        struct version *kept = take(f, sizeof *kept);
        if (!kept)
            return NULL;
        *kept = (struct version){rules, made, node->plan->version};
        node->plan->version = kept;
    }
    return made;
}

/* Continuations. */

struct meeting_rules {
    uint32_t rule[LISTED + 1], rules;
    uint32_t visits;
};

static bool boxes_meet(const struct space *space, uint32_t one, uint32_t two)
{
    for (uint32_t a = 0; a < space->in->axes; a++) {
        struct rank_range x = box_ranks(space, one, a), y = box_ranks(space, two, a);
        if (x.low > y.high || y.low > x.high)
            return false;
    }
    return true;
}

static void meet(const struct group_trees *f, struct meeting_rules *met, uint32_t box, uint32_t rule)
{
    for (uint32_t i = 0; i < met->rules; i++)
        if (met->rule[i] == rule)
            return;
    for (uint32_t b = f->first[rule]; b < f->first[rule + 1]; b++)
        if (boxes_meet(f->space, box, b)) {
            met->rule[met->rules++] = rule;
            return;
        }
}

/* Collect rules before *limit* that meet the box, until there are more than LISTED. */
static void find_meeting(const struct group_trees *f, const struct build_node *node, uint32_t box, uint32_t limit,
                         struct meeting_rules *met)
{
    while (met->rules <= LISTED) {
        if (!node->listed || node->list[0] >= limit)
            return;
        if (++met->visits > VISITS) {
            met->rules = LISTED + 1;
            return;
        }
        for (uint32_t i = 0; i < node->entries && met->rules <= LISTED; i++)
            if (node->entry[i] < limit)
                meet(f, met, box, node->entry[i]);
        if (node->kind == TREE_LEAF)
            return;
        const struct line *line = &f->space->line[node->axis];
        struct rank_range ranks = box_ranks(f->space, box, node->axis);
        u128 low = line->edge[ranks.low], high = line_end(line, ranks.high);
        const struct branch *inside = &node->branch[node->negated], *outside = &node->branch[!node->negated];
        bool in = low <= node->branch[0].high && high >= node->branch[0].low;
        bool out = low < node->branch[0].low || high > node->branch[0].high;
        if (in && out) {
            find_meeting(f, inside->to, box, limit, met);
            node = outside->to;
        } else {
            node = in ? inside->to : outside->to;
        }
    }
}

/* The chain that calls these versions, one per set of them. */
static struct build_node *call_all(struct group_trees *f, struct build_node *const *versions)
{
    uint32_t count = 0;
    struct build_node *only = NULL;
    for (uint32_t g = 0; g < GROUPS; g++)
        if (versions[g]) {
            count++;
            only = versions[g];
        }
    if (count < 2)
        return only;
    for (struct version_call *each = f->calls; each; each = each->next)
        if (!memcmp(each->version, versions, sizeof each->version))
            return each->node;
    struct version_call *call = take(f, sizeof *call);
    struct build_node *node = take(f, sizeof *node);
    struct printed_entry *item = take(f, count * sizeof *item);
    if (f->failed)
        return NULL;
    /* The last version is in line. */
    struct build_node *copy = spine_copy(f, only);
    if (!copy)
        return NULL;
    *node = *copy;
    node->item = item;
    for (uint32_t g = 0; node->items < count - 1; g++)
        if (versions[g])
            item[node->items++] = (struct printed_entry){TREE_CALL, -1, versions[g]};
    *call = (struct version_call){.next = f->calls, .node = node};
    memcpy(call->version, versions, sizeof call->version);
    f->calls = call;
    return node;
}

/* How rule r is printed, given what of later groups stands before it. */
static struct printed_entry form_of(struct group_trees *f, uint32_t r)
{
    const struct printed_entry plain = {TREE_RULE, (int32_t)r, NULL};
    struct meeting_rules met[GROUPS] = {{{0}, 0, 0}};
    uint32_t g = f->group[r], total = 0;
    for (uint32_t h = g + 1; h < f->grouping.groups; h++) {
        if (!f->tree[h]->listed || f->tree[h]->list[0] >= r)
            continue;
        for (uint32_t b = f->first[r]; b < f->first[r + 1]; b++)
            find_meeting(f, f->tree[h], b, r, &met[h]);
        total += met[h].rules;
    }
    if (!total)
        return plain;
    bool sendable = f->space->in->free[r] & TREE_SENDABLE;
    if (sendable && total <= LISTED) {
        /* All in the order of the list: then each stands for itself. */
        uint32_t rule[LISTED], rules = 0;
        for (uint32_t h = g + 1; h < f->grouping.groups; h++)
            for (uint32_t i = 0; i < met[h].rules; i++)
                rule[rules++] = met[h].rule[i];
        qsort(rule, rules, sizeof *rule, compare_u32);
        struct build_node *node = take(f, sizeof *node);
        struct printed_entry *item = take(f, (rules + 1) * sizeof *item);
        if (f->failed)
            return plain;
        node->kind = TREE_LEAF;
        node->item = item;
        for (uint32_t i = 0; i < rules; i++)
            item[node->items++] = (struct printed_entry){TREE_RULE, (int32_t)rule[i], NULL};
        item[node->items++] = (struct printed_entry){TREE_ACT, (int32_t)r, NULL};
        return (struct printed_entry){TREE_SEND, (int32_t)r, node};
    }
    struct build_node *versions[GROUPS] = {NULL};
    /* Of a rule that is not asked whole, packets outside of its boxes come to the versions too; then a
     * rule of one group may stand before what another finds, whether it meets the boxes or not. */
    for (uint32_t h = g + 1; h < f->grouping.groups; h++)
        if (met[h].rules || !sendable)
            versions[h] = version(f, f->tree[h], r, true, 0);
    struct build_node *all = call_all(f, versions);
    if (!all)
        return plain;
    return (struct printed_entry){TREE_ASK, (int32_t)r, all};
}

/* The trees. */

/* Whoever falls off the first tree goes on to the others. */
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
    f->form = take(f, (in->rules + 1) * sizeof *f->form);
    for (uint32_t g = 0; g < groups && !f->failed; g++)
        f->tree[g] = prune(f, g);
    for (uint32_t r = 0; r < in->rules && !f->failed && groups > 1; r++)
        if (f->group[r] != ELSEWHERE)
            f->form[r] = form_of(f, r);
    if (f->failed)
        return;
    f->root = f->tree[0];
    if (groups == 1)
        return;
    struct build_node *rest = spine_copy(f, f->tree[groups - 1]);
    if (!rest)
        return;
    rest->item = take(f, groups * sizeof *rest->item);
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
            u128 value = chance % 4 == 0 ? low : chance % 4 == 1 ? high : low + (size ? within % size : within);
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
    if (rule && reads && cost && tree_search(tree, &f->passing, point, points, rule, reads, cost) == TREE_OK) {
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

/* Chains that a trees nests at most besides those of its trees: a call of the first tree, an entry
 * of each that leads to a version of the next, and the chain that calls several versions. */
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

/* Grow, prune and assemble in this grouping, within the budget; the expected cost, HUGE_VAL if it cannot be. */
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
    f->size_penalty = f->options->size_penalty;
    memcpy(f->longest, longest_leaf, sizeof f->longest);
    uint32_t points = 0;
    double *weight = NULL;
    struct scope *scratch = &f->space->scratch;
    uint64_t *point = draw(f, &points, &weight);
    f->failed |= !point || !weight;
    while (!f->failed) {
        assemble(f);
        struct tree *tree = f->failed ? NULL : flatten(f);
        if (!tree)
            break;
        uint64_t size = printed(tree);
        bool fits = size <= budget;
        if (fits)
            cost = cost_of(f, tree, point, weight, points) + size_worth * (double)size / (f->rules + 1);
        tree_free(tree);
        if (fits || f->size_penalty > largest_penalty[groups > 1])
            break;
        f->size_penalty = 2 * f->size_penalty + 1;
        f->longest[0] *= 2;
        f->longest[1] *= 2;
    }
    scope_drop(scratch, point);
    scope_drop(scratch, weight);
    return cost;
}

static enum tree_status shape_groups_grow(struct space *space, const struct tree_options *options, struct build_node **root)
{
    struct group_trees f = {.space = space, .options = options};
    if (space->in->costs) {
        struct tree_boxes *boxes = take(&f, sizeof *boxes);
        struct tree_costs *costs = take(&f, sizeof *costs);
        if (f.failed)
            return TREE_NO_MEMORY;
        *boxes = *space->in;
        *costs = *space->in->costs;
        costs->halves = true;
        boxes->costs = costs;
        space->in = boxes;
    }
    const struct tree_boxes *in = space->in;
    f.first = take(&f, ((size_t)in->rules + 2) * sizeof *f.first);
    f.group = take(&f, (size_t)in->rules + 1);
    f.run = take(&f, ((size_t)in->rules + 1) * sizeof *f.run);
    if (f.failed)
        return TREE_NO_MEMORY;
    for (uint32_t b = 0; b < in->boxes; b++)
        f.first[in->rule[b] + 1]++;
    for (uint32_t r = 0; r < in->rules; r++)
        f.first[r + 1] += f.first[r];
    uint8_t *free = take(&f, (size_t)in->rules + 1);
    if (f.failed)
        return TREE_NO_MEMORY;
    bool movable = false;
    for (uint32_t r = 0; r < in->rules; r++) {
        movable |= in->free[r] & TREE_MOVABLE;
        free[r] = in->free[r] | (in->final[r] ? 0 : TREE_PASSED);
    }
    f.passing = *in;
    f.passing.free = free;
    uint32_t address[2], addresses = 0;
    for (uint32_t a = 0; a < in->axes; a++) {
        if (in->axis[a].needs >= 0)
            f.needed[in->axis[a].needs] = true;
        if (in->axis[a].cut == TREE_CUT_PREFIX && addresses < 2)
            address[addresses++] = a;
    }
    struct grouping tried[GROUPINGS] = {{.groups = 1}};
    uint32_t groupings = 1, grouping_effort = options->grouping_effort;
    for (uint32_t way = 0; way < GROUPINGS - 1 && addresses == 2 && movable; way++)
        if (way < 2 || grouping_effort > 1)
            tried[groupings++] = (struct grouping){
                .groups = GROUPS,
                .axis = {address[way % 2 == 0], address[way % 2]},
                .wide = (way < 2 ? WIDE : WIDER) * in->axis[address[0]].bits / 32u,
                .called = true,
            };
    /* The grouping by a sample; then in full what comes near to the best, one tree since a smaller
     * list crosses less than the whole. */
    double cost[GROUPINGS] = {0}, found = HUGE_VAL;
    uint32_t best = options->grouping < groupings ? options->grouping : 0;
    f.every = 1 + in->rules / (grouping_effort > 1 ? 4 * SAMPLE : grouping_effort ? SAMPLE : SAMPLE / 4);
    for (uint32_t i = 0; !options->grouping && groupings > 1 && i < groupings && !f.failed; i++) {
        f.grouping = tried[i];
        cost[i] = group_trees_cost(&f);
        if (best ? cost[i] < cost[best] : i && cost[i] < near_cost * cost[0])
            best = i;
    }
    const struct printed_entry *form = NULL;
    f.every = 1;
    for (uint32_t pass = 0; pass <= groupings && !f.failed; pass++) {
        /* The best, then the others, then one tree, which keeps any budget where groups may not. */
        uint32_t i = pass ? pass - 1 : best;
        bool near = !options->grouping && grouping_effort && cost[i] < near_cost * cost[best] && (grouping_effort > 1 || !i);
        if (pass && (i == best || !(near || (!i && found == HUGE_VAL))))
            continue;
        f.grouping = tried[i];
        double full = group_trees_cost(&f);
        if (full < found) {
            found = full;
            *root = f.root;
            form = f.grouping.groups > 1 ? f.form : NULL;
        }
    }
    space->form = form;
    return f.failed || found == HUGE_VAL ? TREE_NO_MEMORY : TREE_OK;
}

const struct tree_builder tree_shape_groups = {.name = "auto", .bounded = true, .grow = shape_groups_grow};
