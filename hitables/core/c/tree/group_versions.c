/* Versions of a group's tree, and how rules that need them are printed.
 *
 * Idea: where a packet matches rule r of one group, the rules of later groups that precede r in the list are
 * searched first.  They are listed if few of them meet r's boxes; else version r of their group's tree is
 * called: the tree cut down to the rules before r.  Versions are made as in persistent search trees: a node's
 * version depends only on how many of its rules precede r, so equal versions are one.  What stays in line
 * behind a test is copied, what a test takes is shared.
 * Cost: a version costs the nodes in which it differs from others; finding the rules that meet a box is given
 * up after VISITS nodes.
 * Invariant: a version finds the first of its rules that a packet matches, as the tree of all rules would.
 * Threading: none; everything lives in the space's arena.
 */
#include "group_trees.h"

#include <stdlib.h>
#include <string.h>

#include "search.h"
#include "sort.h"

enum {
    LISTED = 3,  /* rules of later groups that are listed rather than searched */
    VISITS = 400 /* nodes visited before a rule counts as meeting many */
};

struct build_node *spine_copy(struct group_trees *f, const struct build_node *from)
{
    struct build_node *first = NULL, **to = &first;
    for (;;) {
        struct build_node *copy = group_take(f, sizeof *copy);
        if (!copy)
            return NULL;
        *copy = *from;
        copy->number = 0;
        *to = copy;
        if (from->kind == TREE_LEAF)
            return first;
        copy->branch = group_take(f, 2 * sizeof *copy->branch);
        if (!copy->branch)
            return NULL;
        memcpy(copy->branch, from->branch, 2 * sizeof *copy->branch);
        to = &copy->branch[1].to;
        from = from->branch[1].to;
    }
}

static uint32_t rules_before(const struct build_node *node, uint32_t limit)
{
    return lower_bound(node->list, 1, node->listed, limit);
}

static struct build_node *leaf_new(struct group_trees *f, const uint32_t *rule, uint32_t rules)
{
    struct build_node *copy = group_take(f, sizeof *copy);
    if (!copy)
        return NULL;
    copy->kind = TREE_LEAF;
    copy->entry = group_take(f, (rules + 1) * sizeof *copy->entry);
    if (!copy->entry)
        return NULL;
    if (rules)
        memcpy(copy->entry, rule, rules * sizeof *rule);
    copy->entries = rules;
    return copy;
}

/* Put *entries* before those of *node*, which nothing else holds. */
static void prepend(struct group_trees *f, struct build_node *node, const uint32_t *entry, uint32_t entries)
{
    uint32_t *joined = entries ? group_take(f, (entries + node->entries) * sizeof *joined) : NULL;
    if (!joined)
        return;
    memcpy(joined, entry, entries * sizeof *joined);
    memcpy(joined + entries, node->entry, node->entries * sizeof *joined);
    node->entry = joined;
    node->entries += entries;
}

/* The node's version of the rules before *limit*; NULL when there is none.  *chain*: as a chain that may
 * be shared; else in line, for one use. */
static struct build_node *version(struct group_trees *f, struct build_node *node, uint32_t limit, bool chain,
                                  uint32_t depth)
{
    uint32_t rules = rules_before(node, limit);
    if (!rules || f->failed)
        return NULL;
    if (chain)
        for (struct version *each = node->plan->version; each; each = each->next)
            if (each->rules == rules)
                return each->node;
    struct build_node *copy = NULL;
    if (rules <= FEW && node->kind != TREE_LEAF && !(chain && rules == node->listed)) {
        copy = leaf_new(f, node->list, rules);
    } else if (rules == node->listed) {
        copy = chain && node->plan->chained ? node : spine_copy(f, node);
    } else if (rules <= FEW || depth > DEEPEST) {
        copy = leaf_new(f, node->list, rules);
    } else {
        uint32_t own = 0, *entry = group_take(f, (node->entries + 1) * sizeof *entry);
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
            copy = leaf_new(f, entry, own);
        } else if (!taken && (!f->needed[node->axis] || other->kind == TREE_LEAF)) {
            copy = other;
            prepend(f, copy, entry, own);
        } else if (!other && rules_before(node->branch[0].to, limit) <= FEW) {
            copy = version(f, node->branch[0].to, limit, false, depth + 1);
            if (copy)
                prepend(f, copy, entry, own);
        } else {
            copy = group_take(f, sizeof *copy);
            if (!other)
                other = leaf_new(f, NULL, 0);
            if (!taken)
                taken = leaf_new(f, NULL, 0);
            struct branch *branch = group_take(f, 2 * sizeof *branch);
            if (f->failed)
                return NULL;
            *copy = *node;
            copy->number = 0;
            copy->entry = entry;
            copy->entries = own;
            copy->branch = branch;
            branch[0] = node->branch[0];
            branch[1] = node->branch[1];
            branch[0].to = taken;
            branch[1].to = other;
        }
    }
    if (chain && copy) {
        struct version *kept = group_take(f, sizeof *kept);
        if (!kept)
            return NULL;
        *kept = (struct version){rules, copy, node->plan->version};
        node->plan->version = kept;
    }
    return copy;
}

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
static void find_meeting(const struct group_trees *f, const struct build_node *node, uint32_t box,
                         uint32_t limit, struct meeting_rules *met)
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
    struct version_call *call = group_take(f, sizeof *call);
    struct build_node *node = group_take(f, sizeof *node);
    struct printed_entry *item = group_take(f, count * sizeof *item);
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

struct printed_entry rule_form(struct group_trees *f, uint32_t r)
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
        /* All in list order, so that each is printed as itself. */
        uint32_t rule[LISTED], rules = 0;
        for (uint32_t h = g + 1; h < f->grouping.groups; h++)
            for (uint32_t i = 0; i < met[h].rules; i++)
                rule[rules++] = met[h].rule[i];
        qsort(rule, rules, sizeof *rule, compare_u32);
        struct build_node *node = group_take(f, sizeof *node);
        struct printed_entry *item = group_take(f, (rules + 1) * sizeof *item);
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
    /* If the rule is not SENDABLE, packets outside its boxes reach the versions too; then a rule of one
     * group may precede the one that another group finds, whether it meets the boxes or not. */
    for (uint32_t h = g + 1; h < f->grouping.groups; h++)
        if (met[h].rules || !sendable)
            versions[h] = version(f, f->tree[h], r, true, 0);
    struct build_node *all = call_all(f, versions);
    if (!all)
        return plain;
    return (struct printed_entry){TREE_ASK, (int32_t)r, all};
}
