/* Evolving rules by themselves: opened, asked, and replayed with a cache by one thread.
 *
 * Idea: a replay does in order what the threads of the pipeline do side by side, so its hits are the same in
 * every run.
 * Cost: those of evolve.c and rule_cache.c, and a search of the tree for each sample.
 * Invariant: a packet is looked up in the cache as it was published before that packet.
 * Threading: none.
 */
#include <string.h>

#include "budget.h"
#include "rule_cache.h"

int evolve_open(const struct evolve_options *options, const struct vfdb_rules *rules, const uint32_t *action,
                size_t limit, struct evolve **opened)
{
    struct budget *budget = budget_new(limit);
    *opened = NULL;
    int status = budget ? evolve_new(budget, options, rules, action, opened) : VFDB_NO_MEMORY;
    if (status)
        budget_free(budget);
    else
        (*opened)->own = budget;
    return status;
}

void evolve_close(struct evolve *e)
{
    struct budget *own = e->own;
    evolve_free(e);
    budget_free(own);
}

size_t evolve_bytes(const struct evolve *e)
{
    return budget_bytes(e->budget);
}

void evolve_samples(struct evolve *e, const uint32_t *headers, size_t count)
{
    for (size_t i = 0; i < count; i++, headers += e->dims) {
        uint32_t priority, action = conflict_classify(&e->rules, headers, &priority);
        evolve_sample(e, headers, action, priority);
    }
}

int evolve_replay(struct evolve *e, const uint32_t *headers, size_t count, uint32_t form, uint32_t entries,
                  uint32_t every, uint32_t publish, uint32_t *place)
{
    struct rule_cache *cache;
    uint32_t since = 0;
    int status = rule_cache_new(e->budget, e->dims, entries, form, 2, &cache);
    if (status)
        return status;
    rule_cache_publish(cache, e);
    for (size_t at = 0, part; at < count; at += part) {
        const struct cache_copy *copy = &cache->copy[atomic_load(&cache->current)];
        part = count - at < every ? count - at : every;
        rule_cache_first(cache, copy, headers + at * e->dims, (uint32_t)part, place + at);
        for (size_t i = at; copy->count < entries && i < at + part; i++)
            if (place[i] == copy->count)
                place[i] = entries;
        evolve_samples(e, headers + (at + part - 1) * e->dims, 1);
        if (++since >= publish && rule_cache_is_stale(cache, e)) {
            rule_cache_publish(cache, e);
            since = 0;
        }
    }
    rule_cache_free(cache);
    return VFDB_OK;
}

int evolve_look_up(struct evolve *e, const uint32_t *headers, size_t count, uint32_t form, uint32_t entries,
                   uint32_t times, uint32_t *place)
{
    enum { BATCH = 512 };
    struct rule_cache *cache;
    int status = rule_cache_new(e->budget, e->dims, entries, form, 2, &cache);
    if (status)
        return status;
    rule_cache_publish(cache, e);
    for (; times--;)
        for (size_t at = 0; at < count; at += BATCH) {
            int slot;
            const struct cache_copy *copy = rule_cache_enter(cache, 0, &slot);
            rule_cache_first(cache, copy, headers + at * e->dims,
                             (uint32_t)(count - at < BATCH ? count - at : BATCH), place + at);
            rule_cache_leave(cache, slot);
        }
    rule_cache_free(cache);
    return VFDB_OK;
}

bool evolve_approves(const struct evolve *e, const uint32_t *box, uint32_t action, uint32_t *match,
                     uint32_t *conflict)
{
    struct conflict found = conflict_find(&e->rules, box, action, 0, NULL);
    *match = found.match;
    *conflict = found.conflict;
    return conflict_approves(found, action);
}

uint32_t evolve_root(const struct evolve *e, uint32_t *dim, uint32_t *bits)
{
    struct node_cut cut;
    if (!cut_tree_root(e->rules.tree, &cut))
        return 0;
    memcpy(dim, cut.dim, sizeof cut.dim);
    memcpy(bits, cut.bits, sizeof cut.bits);
    return 1U << (cut.bits[0] + cut.bits[1]);
}

uint32_t evolve_parts(const struct evolve *e, const uint32_t *box, uint32_t *part, uint32_t room)
{
    struct cut_tree_walk walk;
    uint32_t count = 0;
    cut_tree_walk_start(&walk, e->rules.tree, NULL, box);
    const struct cut_tree_frame *root = walk.frame;
    for (uint32_t i = walk.depth ? root->low[0] : 1; i <= (walk.depth ? root->high[0] : 0); i++)
        for (uint32_t j = root->low[1]; j <= root->high[1]; j++, count++)
            if (count < room)
                part[count] = (i << root->bits[1]) + j;
    return count;
}
