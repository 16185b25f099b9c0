/* Which rules of a set can be the first to match, as far as some dimensions are concerned.
 *
 * Idea: rules with the same sides in those dimensions are a group.  A rule of a set cannot be the first
 * if an earlier one of the set is of a group that covers its own.
 * Cost: a view sorts the groups twice per dimension and keeps a bitmap for each; a set takes time by its rules.
 * Beyond COVER_GROUPS groups only rules of one group, and those that leave everything free, are
 * seen to cover others: sets then keep more than they need.
 * Invariant: what is left out is covered by an earlier rule that is kept.
 * Threading: none; a view has stamps.
 */
#include "dominance.h"

#include <stdbool.h>
#include <string.h>

#include "rule_sets.h"
#include "endpoints.h"
#include "tree_internal.h"

enum { COVER_GROUPS = 4096, COVER_WORDS = COVER_GROUPS / 64 };

static bool same_sides(const struct vfdb_rules *rules, uint32_t one, uint32_t other, uint32_t dims)
{
    for (uint32_t d = 0; d < rules->dims; d++)
        if (dims >> d & 1 && memcmp(box_side_of(rules, one, d), box_side_of(rules, other, d), 2 * sizeof(uint32_t)))
            return false;
    return true;
}

static uint64_t sides_hash(const struct vfdb_rules *rules, uint32_t box, uint32_t dims)
{
    uint64_t hash = 0;
    for (uint32_t d = 0; d < rules->dims; d++)
        if (dims >> d & 1) {
            const uint32_t *side = box_side_of(rules, box, d);
            hash = classes_mix(d, hash ^ ((uint64_t)side[0] << 32 | side[1]));
        }
    return hash;
}

/* Takes from each group's covers those that end too early for it along one dimension: at its upper
 * end, or, with the line turned around, at its lower. */
static void narrow(const struct vfdb_rules *rules, const uint32_t *first, uint32_t dim, bool lower, struct view *view,
                   uint64_t *key, uint64_t *reach)
{
    uint32_t groups = view->groups;
    for (uint32_t g = 0; g < groups; g++) {
        const uint32_t *side = box_side_of(rules, first[g], dim);
        key[g] = (uint64_t)(lower ? side[0] : ~side[1]) << 32 | g;
    }
    sort_keys(key, key + groups, groups, 32);
    memset(reach, 0, view->words * sizeof *reach);
    for (uint32_t i = 0, end; i < groups; i = end) {
        for (end = i; end < groups && key[end] >> 32 == key[i] >> 32; end++)
            reach[(uint32_t)key[end] / 64] |= UINT64_C(1) << key[end] % 64;
        for (uint32_t k = i; k < end; k++) {
            uint64_t *covers = view->covers + (size_t)(uint32_t)key[k] * view->words;
            for (uint32_t w = 0; w < view->words; w++)
                covers[w] &= reach[w];
        }
    }
}

static int view_covers(struct bag *bag, const struct vfdb_rules *rules, uint32_t dims, const uint32_t *first,
                       struct view *view)
{
    view->words = (view->groups + 63) / 64;
    view->covers = bag_take(bag, (size_t)view->groups * view->words * sizeof *view->covers);
    uint64_t *key = bag_take(bag, 2 * (size_t)view->groups * sizeof *key), reach[COVER_WORDS];
    if (!view->covers || !key)
        return VFDB_NO_MEMORY;
    memset(view->covers, 255, (size_t)view->groups * view->words * sizeof *view->covers);
    for (uint32_t d = 0; d < rules->dims; d++)
        if (dims >> d & 1) {
            narrow(rules, first, d, true, view, key, reach);
            narrow(rules, first, d, false, view, key, reach);
        }
    return VFDB_OK;
}

/* The rules as those dimensions see them (a bit for each); a status.  Memory is the bag's. */
int view_from(struct bag *bag, const struct vfdb_rules *rules, uint32_t dims, struct view *view)
{
    uint32_t mask = 1, *first = bag_take(bag, rules->count * sizeof *first);
    while (mask < 2 * (uint64_t)rules->count)
        mask = 2 * mask + 1;
    uint32_t *slot = bag_take(bag, (mask + UINT64_C(1)) * sizeof *slot);
    view->group = bag_take(bag, rules->count * sizeof *view->group);
    view->groups = 0;
    if (!first || !slot || !view->group)
        return VFDB_NO_MEMORY;
    for (uint32_t box = 0; box < rules->count; box++) {
        uint32_t at = (uint32_t)(sides_hash(rules, box, dims) >> 16) & mask;
        while (slot[at] && !same_sides(rules, first[slot[at] - 1], box, dims))
            at = (at + 1) & mask;
        if (!slot[at]) {
            first[view->groups++] = box;
            slot[at] = view->groups;
        }
        view->group[box] = slot[at] - 1;
    }
    bag_drop(bag, slot);
    view->full = bag_take(bag, view->groups);
    view->stamp = bag_take(bag, view->groups * sizeof *view->stamp);
    view->stamps = 0;
    view->covers = NULL;
    if (!view->full || !view->stamp)
        return VFDB_NO_MEMORY;
    for (uint32_t g = 0; g < view->groups; g++) {
        view->full[g] = 1;
        for (uint32_t d = 0; d < rules->dims; d++) {
            const uint32_t *side = box_side_of(rules, first[g], d);
            if (dims >> d & 1 && (side[0] || side[1] != dim_top(rules, d)))
                view->full[g] = 0;
        }
    }
    return view->groups <= COVER_GROUPS ? view_covers(bag, rules, dims, first, view) : VFDB_OK;
}

/* Whether a rule of that group can be the first, behind the groups that are there; it then is one. */
static bool counts(struct view *view, uint64_t *there, uint32_t group)
{
    if (!view->covers) {
        bool first = view->stamp[group] != view->stamps;
        view->stamp[group] = view->stamps;
        return first;
    }
    const uint64_t *covers = view->covers + (size_t)group * view->words;
    for (uint32_t w = 0; w < view->words; w++)
        if (there[w] & covers[w])
            return false;
    there[group / 64] |= UINT64_C(1) << group % 64;
    return true;
}

/* A set without the rules that cannot be the first, and its hash: the number of words that are left. */
uint32_t view_keep(struct view *view, const uint32_t *at, const uint64_t *bits, uint32_t words, uint32_t *kept_at,
                   uint64_t *kept_bits, uint64_t *hash)
{
    uint32_t kept = 0;
    uint64_t there[COVER_WORDS] = {0};
    bool full = false;
    *hash = 0;
    view->stamps++;
    for (uint32_t w = 0; w < words && !full; w++) {
        uint64_t left = 0;
        for (uint64_t rest = bits[w]; rest && !full; rest &= rest - 1) {
            uint32_t bit = (uint32_t)__builtin_ctzll(rest), group = view->group[at[w] * 64 + bit];
            if (counts(view, there, group)) {
                left |= UINT64_C(1) << bit;
                full = view->full[group];
            }
        }
        if (left) {
            kept_at[kept] = at[w];
            kept_bits[kept++] = left;
            *hash += classes_mix(at[w], left);
        }
    }
    return kept;
}
