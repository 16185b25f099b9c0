/* What each rule asks of later groups before it acts.
 *
 * Idea: where a packet matches rule r, the rules of later groups that precede r and meet its boxes are
 * searched first.  If they are few they are listed.  Else a version of each later group is searched: its
 * rules below a limit, which is behind the last such rule and not behind r; between the two any limit does.
 * So few limits serve all rules: in list order, each rule takes the last limit that was chosen, unless that
 * is too low.
 * Cost: VISITS nodes of a grown tree, and WINDOW rules of each later group, per rule.
 * Invariant: of the rules before r, those that a version lacks meet no box of r.
 * Threading: none; memory is that of the space (tree.c).
 */
#include "group_trees.h"

#include <stdlib.h>
#include <string.h>

#include "search.h"
#include "sort.h"

enum {
    VISITS = 400, /* nodes visited before a rule counts as meeting many */
    WINDOW = 256  /* rules of a group that are looked at for the least limit of a rule */
};

struct meeting_rules {
    uint32_t rule[LISTED + 1], rules;
    uint32_t visits;
};

/* Whether a packet of box *one* may lie in box *earlier*, or be dropped by its rule (TREE_KEPT). */
static bool boxes_meet(const struct space *space, uint32_t one, uint32_t earlier)
{
    for (uint32_t a = 0; a < space->in->axes; a++) {
        struct rank_range x = box_ranks(space, one, a), y = kept_ranks(space, earlier, a);
        if (x.low > y.high || y.low > x.high)
            return false;
    }
    return true;
}

static bool box_meets_rule(const struct group_trees *f, uint32_t box, uint32_t earlier)
{
    for (uint32_t b = f->first[earlier]; b < f->first[earlier + 1]; b++)
        if (boxes_meet(f->space, box, b))
            return true;
    return false;
}

static bool rules_meet(const struct group_trees *f, uint32_t one, uint32_t earlier)
{
    for (uint32_t b = f->first[one]; b < f->first[one + 1]; b++)
        if (box_meets_rule(f, b, earlier))
            return true;
    return false;
}

static void meet(const struct group_trees *f, struct meeting_rules *met, uint32_t box, uint32_t rule)
{
    for (uint32_t i = 0; i < met->rules; i++)
        if (met->rule[i] == rule)
            return;
    if (box_meets_rule(f, box, rule))
        met->rule[met->rules++] = rule;
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

/* Fill asked[r], and set *asks* of each later group that must be searched before the rule. */
static void find_asked(struct group_trees *f, uint32_t r, bool *asks)
{
    struct asked_rules *asked = &f->asked[r];
    bool sendable = f->space->in->free[r] & TREE_SENDABLE;
    uint32_t total = 0;
    uint8_t decide = TREE_MOVABLE; /* of all rules that are asked */
    memset(asked, 0, sizeof *asked);
    memset(asks, 0, GROUPS * sizeof *asks);
    for (uint32_t h = f->group[r] + 1u; h < f->grouping.groups; h++) {
        struct meeting_rules met = {{0}, 0, 0};
        for (uint32_t b = f->first[r]; b < f->first[r + 1]; b++)
            find_meeting(f, f->grown[h], b, r, &met);
        for (uint32_t i = 0; i < met.rules && total + i < LISTED; i++) {
            asked->rule[total + i] = met.rule[i];
            decide &= f->space->in->free[met.rule[i]] & TREE_MOVABLE;
        }
        total += met.rules;
        asks[h] = met.rules;
    }
    asked->rules = total;
    if (!total)
        return;
    if (sendable && decide && total <= LISTED) {
        /* All in list order, so that each is printed as itself. */
        qsort(asked->rule, total, sizeof *asked->rule, compare_u32);
        memset(asks, 0, GROUPS * sizeof *asks);
        return;
    }
    asked->rules = LISTED + 1;
    /* If the rule is not SENDABLE, packets outside its boxes reach the versions too; then a rule of one
     * group may precede the one that another group finds, whether it meets the boxes or not. */
    for (uint32_t h = f->group[r] + 1u; h < f->grouping.groups; h++)
        asks[h] |= !sendable;
}

/* The rules of the groups, one group behind the other: member[first[g]] up to member[first[g + 1]]. */
struct members {
    uint32_t *member, first[GROUPS + 1], before[GROUPS]; /* before: members that precede the rule looked at */
};

/* The least limit for a version of group h that serves rule r. */
static uint32_t least_limit(const struct group_trees *f, uint32_t r, const struct members *m, uint32_t h)
{
    const uint32_t *member = m->member + m->first[h];
    uint32_t least = m->before[h], stop = least > WINDOW ? least - WINDOW : 0;
    while (least > stop && !rules_meet(f, r, member[least - 1]))
        least--;
    return least ? member[least - 1] + 1 : 0;
}

/* Give rule r the limit for all groups from the first to the last that it asks, so that no version lacks a
 * rule that precedes those of a later one; a version ends there in each of these groups. */
static void take_limit(struct group_trees *f, uint32_t r, uint32_t limit, bool *asks, const struct members *m)
{
    uint32_t h = 1, end = f->grouping.groups;
    while (h < end && !asks[h])
        h++;
    while (end > h && !asks[end - 1])
        end--;
    for (; h < end; h++) {
        uint32_t size = m->first[h + 1] - m->first[h],
                 version = lower_bound(m->member + m->first[h], 1, size, limit);
        if (!version)
            continue;
        f->limit[h][r] = limit;
        f->run[m->member[m->first[h] + version - 1]] = 1;
    }
}

static void choose_limits(struct group_trees *f, struct members *m, bool (*asks)[GROUPS])
{
    uint32_t chosen = 0, groups = f->grouping.groups;
    for (uint32_t r = 0; r < f->space->in->rules; r++) {
        uint32_t least = f->space->in->free[r] & TREE_SENDABLE ? 0 : r;
        bool any = false;
        for (uint32_t h = 0; h < groups; h++) {
            f->limit[h][r] = 0;
            if (f->group[r] < h && asks[r][h]) {
                uint32_t limit = least_limit(f, r, m, h);
                least = limit > least ? limit : least;
                any = true;
            }
        }
        if (any) {
            chosen = chosen < least ? r : chosen;
            take_limit(f, r, chosen, asks[r], m);
        }
        if (f->group[r] < GROUPS)
            m->before[f->group[r]]++;
    }
    /* From where versions end to how many end before each member. */
    for (uint32_t h = 0; h < groups; h++)
        for (uint32_t i = m->first[h], run = 0; i < m->first[h + 1]; i++) {
            uint32_t ends = f->run[m->member[i]];
            f->run[m->member[i]] = run;
            run += ends;
        }
}

void ask_later_groups(struct group_trees *f)
{
    const struct tree_boxes *in = f->space->in;
    struct scope *scratch = &f->space->scratch;
    uint32_t rules = in->rules + 1;
    struct members m = {.member = scope_take(scratch, rules * sizeof *m.member)};
    bool (*asks)[GROUPS] = scope_take(scratch, rules * sizeof *asks);
    f->failed |= !m.member || !asks;
    for (uint32_t h = 0; h < GROUPS && !f->failed; h++) {
        m.first[h + 1] = m.first[h];
        for (uint32_t r = 0; r < in->rules; r++)
            if (f->group[r] == h) {
                m.member[m.first[h + 1]++] = r;
                f->run[r] = 0;
            }
    }
    for (uint32_t r = 0; r < in->rules && !f->failed; r++)
        if (f->group[r] < GROUPS)
            find_asked(f, r, asks[r]);
    if (!f->failed)
        choose_limits(f, &m, asks);
    scope_drop(scratch, m.member);
    scope_drop(scratch, asks);
}
