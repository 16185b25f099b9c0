/* Which rules of a set can be the first to match, as far as some dimensions are concerned.
 *
 * Idea: rules with the same intervals in those dimensions are a group.  A rule of a set cannot be the first
 * if an earlier one of the set is of a group that covers its own.
 * Cost: a build sorts the groups twice per dimension and keeps a bitmap for each; a set takes time by its
 * rules.  Beyond COVER_GROUPS groups only rules of one group, and those that leave everything free, are known
 * to cover others: sets then keep more than they need.
 * Invariant: every rule left out is covered by an earlier rule that is kept.
 * Threading: none; a set writes stamps.
 */
#include "dominance.h"

#include <stdbool.h>
#include <string.h>

#include "rule_sets.h"
#include "endpoints.h"
#include "sort.h"

enum { COVER_GROUPS = 4096, COVER_WORDS = COVER_GROUPS / 64 };

static bool same_sides(const struct vfdb_rules *rules, uint32_t one, uint32_t other, uint32_t dims)
{
    for (uint32_t d = 0; d < rules->dims; d++)
        if (dims >> d & 1 &&
            memcmp(box_interval(rules, one, d), box_interval(rules, other, d), 2 * sizeof(uint32_t)))
            return false;
    return true;
}

static uint64_t sides_hash(const struct vfdb_rules *rules, uint32_t box, uint32_t dims)
{
    uint64_t hash = 0;
    for (uint32_t d = 0; d < rules->dims; d++)
        if (dims >> d & 1) {
            const uint32_t *side = box_interval(rules, box, d);
            hash = rule_sets_mix(d, hash ^ ((uint64_t)side[0] << 32 | side[1]));
        }
    return hash;
}

/* Remove from each group's covers those that end too early for it along one dimension: at its upper end,
 * or, mirrored, at its lower. */
static void narrow(const struct vfdb_rules *rules, const uint32_t *first, uint32_t dim, bool lower,
                   struct dominance *dominance, uint64_t *key, uint64_t *reach)
{
    uint32_t groups = dominance->groups;
    for (uint32_t g = 0; g < groups; g++) {
        const uint32_t *side = box_interval(rules, first[g], dim);
        key[g] = (uint64_t)(lower ? side[0] : ~side[1]) << 32 | g;
    }
    sort_keys(key, key + groups, groups, 32);
    memset(reach, 0, dominance->words * sizeof *reach);
    for (uint32_t i = 0, end; i < groups; i = end) {
        for (end = i; end < groups && key[end] >> 32 == key[i] >> 32; end++)
            reach[(uint32_t)key[end] / 64] |= UINT64_C(1) << key[end] % 64;
        for (uint32_t k = i; k < end; k++) {
            uint64_t *covers = dominance->covers + (size_t)(uint32_t)key[k] * dominance->words;
            for (uint32_t w = 0; w < dominance->words; w++)
                covers[w] &= reach[w];
        }
    }
}

static int dominance_covers(struct scope *scope, const struct vfdb_rules *rules, uint32_t dims,
                            const uint32_t *first, struct dominance *dominance)
{
    dominance->words = (dominance->groups + 63) / 64;
    dominance->covers =
        scope_take(scope, (size_t)dominance->groups * dominance->words * sizeof *dominance->covers);
    uint64_t *key = scope_take(scope, 2 * (size_t)dominance->groups * sizeof *key), reach[COVER_WORDS];
    if (!dominance->covers || !key)
        return VFDB_NO_MEMORY;
    memset(dominance->covers, 255, (size_t)dominance->groups * dominance->words * sizeof *dominance->covers);
    for (uint32_t d = 0; d < rules->dims; d++)
        if (dims >> d & 1) {
            narrow(rules, first, d, true, dominance, key, reach);
            narrow(rules, first, d, false, dominance, key, reach);
        }
    return VFDB_OK;
}

int dominance_build(struct scope *scope, const struct vfdb_rules *rules, uint32_t dims,
                    struct dominance *dominance)
{
    uint32_t mask = 1, *first = scope_take(scope, rules->count * sizeof *first);
    while (mask < 2 * (uint64_t)rules->count)
        mask = 2 * mask + 1;
    uint32_t *slot = scope_take(scope, (mask + UINT64_C(1)) * sizeof *slot);
    dominance->group = scope_take(scope, rules->count * sizeof *dominance->group);
    dominance->groups = 0;
    if (!first || !slot || !dominance->group)
        return VFDB_NO_MEMORY;
    for (uint32_t box = 0; box < rules->count; box++) {
        uint32_t at = (uint32_t)(sides_hash(rules, box, dims) >> 16) & mask;
        while (slot[at] && !same_sides(rules, first[slot[at] - 1], box, dims))
            at = (at + 1) & mask;
        if (!slot[at]) {
            first[dominance->groups++] = box;
            slot[at] = dominance->groups;
        }
        dominance->group[box] = slot[at] - 1;
    }
    scope_drop(scope, slot);
    dominance->full = scope_take(scope, dominance->groups);
    dominance->stamp = scope_take(scope, dominance->groups * sizeof *dominance->stamp);
    dominance->stamps = 0;
    dominance->covers = NULL;
    if (!dominance->full || !dominance->stamp)
        return VFDB_NO_MEMORY;
    for (uint32_t g = 0; g < dominance->groups; g++) {
        dominance->full[g] = 1;
        for (uint32_t d = 0; d < rules->dims; d++) {
            const uint32_t *side = box_interval(rules, first[g], d);
            if (dims >> d & 1 && (side[0] || side[1] != dim_top(rules, d)))
                dominance->full[g] = 0;
        }
    }
    return dominance->groups <= COVER_GROUPS ? dominance_covers(scope, rules, dims, first, dominance)
                                             : VFDB_OK;
}

/* Whether a rule of that group can be the first, behind the groups that are there; it then is one. */
static bool counts(struct dominance *dominance, uint64_t *there, uint32_t group)
{
    if (!dominance->covers) {
        bool first = dominance->stamp[group] != dominance->stamps;
        dominance->stamp[group] = dominance->stamps;
        return first;
    }
    const uint64_t *covers = dominance->covers + (size_t)group * dominance->words;
    for (uint32_t w = 0; w < dominance->words; w++)
        if (there[w] & covers[w])
            return false;
    there[group / 64] |= UINT64_C(1) << group % 64;
    return true;
}

uint32_t dominance_keep(struct dominance *dominance, const uint32_t *at, const uint64_t *bits, uint32_t words,
                        uint32_t *kept_at, uint64_t *kept_bits, uint64_t *hash)
{
    uint32_t kept = 0;
    uint64_t there[COVER_WORDS] = {0};
    bool full = false;
    *hash = 0;
    dominance->stamps++;
    for (uint32_t w = 0; w < words && !full; w++) {
        uint64_t left = 0;
        for (uint64_t rest = bits[w]; rest && !full; rest &= rest - 1) {
            uint32_t bit = (uint32_t)__builtin_ctzll(rest), group = dominance->group[at[w] * 64 + bit];
            if (counts(dominance, there, group)) {
                left |= UINT64_C(1) << bit;
                full = dominance->full[group];
            }
        }
        if (left) {
            kept_at[kept] = at[w];
            kept_bits[kept++] = left;
            *hash += rule_sets_mix(at[w], left);
        }
    }
    return kept;
}
