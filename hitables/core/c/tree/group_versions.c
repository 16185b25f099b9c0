/* Versions of a group's tree, and how rules that need them are printed.
 *
 * Idea: where a packet matches rule r of one group, the rules of later groups that precede r in the list are
 * searched first (group_asks.c).  They are listed if they are few; else a version of their group's tree is
 * called: the tree cut down to the rules below a limit.  Versions are made as in persistent search trees: a
 * node's version depends only on how many of its rules are below the limit, so equal versions are one.  What
 * stays in line behind a test is copied, what a test takes is shared.
 * Cost: a version costs the nodes in which it differs from others.
 * Invariant: a version finds the first of its rules that a packet matches, as the tree of all rules would.
 * Threading: none; everything lives in the space's arena.
 */
#include "group_trees.h"

#include <string.h>

#include "search.h"

struct build_node *spine_copy(struct group_trees *f, const struct build_node *from)
{
    struct build_node *first = NULL, **to = &first;
    for (;;) {
        struct build_node *copy = group_take(f, sizeof *copy);
        if (!copy)
            return NULL;
        count_copied(f, from->entries + (from->kind != TREE_LEAF));
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
    count_copied(f, rules);
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
    if (!rules || f->failed || f->hopeless)
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
            count_copied(f, own + 1);
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
    const struct asked_rules *asked = &f->asked[r];
    if (!asked->rules)
        return plain;
    if (asked->rules <= LISTED) {
        struct build_node *node = group_take(f, sizeof *node);
        struct printed_entry *item = group_take(f, (asked->rules + (size_t)1) * sizeof *item);
        if (f->failed)
            return plain;
        node->kind = TREE_LEAF;
        node->item = item;
        for (uint32_t i = 0; i < asked->rules; i++)
            item[node->items++] = (struct printed_entry){TREE_RULE, (int32_t)asked->rule[i], NULL};
        item[node->items++] = (struct printed_entry){TREE_ACT, (int32_t)r, NULL};
        return (struct printed_entry){TREE_SEND, (int32_t)r, node};
    }
    struct build_node *versions[GROUPS] = {NULL};
    for (uint32_t h = f->group[r] + 1u; h < f->grouping.groups; h++)
        if (f->limit[h][r])
            versions[h] = version(f, f->tree[h], f->limit[h][r], true, 0);
    struct build_node *all = call_all(f, versions);
    if (!all)
        return plain;
    return (struct printed_entry){TREE_ASK, (int32_t)r, all};
}
