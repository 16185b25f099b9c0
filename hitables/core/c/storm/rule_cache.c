/* The rule cache (Storm, sections 3.2.1 and 4).
 *
 * Idea: few boxes by falling weight, so that most packets are found in the first.  The updater fills a copy
 * that no reader has, and then stores its number as that of the current one.
 * Cost: the entries up to the one that holds the header, sixteen headers at a time; two atomic writes per
 * batch.
 * Invariant: a copy does not change while a reader has it.  A reader stores the epoch in its slot before it
 * loads the number of the current copy, so a reader with the epoch in which a copy was retired, or a later
 * one, does not have that copy.  The paper switches a pointer without epochs: a slow reader then reads a copy
 * while the updater writes it.
 * Threading: up to CACHE_READERS readers at a time (others are refused); one updater at a time.  With one
 * copy, all share a lock.
 */
#include "rule_cache.h"

#include <string.h>

#include "budget.h"
#include "spin.h"

static size_t row_bytes(const struct rule_cache *cache)
{
    return 2 * (size_t)cache->dims * sizeof(uint32_t);
}

static size_t link_bytes(const struct rule_cache *cache)
{
    return (sizeof(struct cache_link) + row_bytes(cache) + 7) / 8 * 8;
}

static bool take_copy(struct rule_cache *cache, struct cache_copy *copy)
{
    copy->action = budget_take(cache->budget, (cache->entries + 1) * sizeof *copy->action);
    copy->columns.dims = cache->dims;
#ifdef __x86_64__
    copy->columns.vector = __builtin_cpu_supports("avx512f");
#endif
    if (!copy->action)
        return false;
    if (cache->form == CACHE_COLUMNS)
        return box_soa_reserve(&copy->columns, cache->budget, cache->entries + 1);
    if (cache->form == CACHE_ROWS)
        return (copy->row = budget_take(cache->budget, (cache->entries + 1) * row_bytes(cache)));
    return (copy->links = budget_take(cache->budget, (cache->entries + 1) * link_bytes(cache)));
}

int rule_cache_new(struct budget *budget, uint32_t dims, uint32_t entries, uint32_t form, uint32_t copies,
                   struct rule_cache **made)
{
    struct rule_cache *cache = budget_take(budget, sizeof *cache);
    if (!cache)
        return VFDB_NO_MEMORY;
    cache->budget = budget;
    cache->dims = dims;
    cache->entries = entries;
    cache->form = form;
    cache->copies = copies;
    cache->epoch = 1;
    cache->reader = budget_take(budget, CACHE_READERS * sizeof *cache->reader);
    bool whole = cache->reader;
    for (uint32_t i = 0; i < copies && whole; i++)
        whole = take_copy(cache, &cache->copy[i]);
    if (!whole) {
        rule_cache_free(cache);
        return VFDB_NO_MEMORY;
    }
    *made = cache;
    return VFDB_OK;
}

void rule_cache_free(struct rule_cache *cache)
{
    uint32_t entries = cache->entries + 1;
    for (uint32_t i = 0; i < cache->copies; i++) {
        struct cache_copy *copy = &cache->copy[i];
        budget_give(cache->budget, copy->action, entries * sizeof *copy->action);
        budget_give(cache->budget, copy->row, entries * row_bytes(cache));
        budget_give(cache->budget, copy->links, entries * link_bytes(cache));
        if (copy->columns.word)
            box_soa_free(&copy->columns, cache->budget);
    }
    budget_give(cache->budget, cache->reader, CACHE_READERS * sizeof *cache->reader);
    budget_give(cache->budget, cache, sizeof *cache);
}

const struct cache_copy *rule_cache_enter(struct rule_cache *cache, uint32_t hint, int *slot)
{
    if (cache->copies == 1) {
        *slot = 0;
        spin_lock(&cache->locked);
        return &cache->copy[0];
    }
    for (uint32_t i = 0; i < CACHE_READERS; i++) {
        uint64_t none = 0;
        *slot = (int)((hint + i) % CACHE_READERS);
        if (!atomic_load_explicit(&cache->reader[*slot].epoch, memory_order_relaxed) &&
            atomic_compare_exchange_strong(&cache->reader[*slot].epoch, &none, atomic_load(&cache->epoch)))
            return &cache->copy[atomic_load(&cache->current)];
    }
    *slot = CACHE_NO_SLOT;
    return NULL;
}

void rule_cache_leave(struct rule_cache *cache, int slot)
{
    if (cache->copies == 1)
        spin_unlock(&cache->locked);
    else
        atomic_store_explicit(&cache->reader[slot].epoch, 0, memory_order_release);
}

/* -- search ----------------------------------------------------------------------------------- */

static inline bool within(const uint32_t *box, uint32_t dims, const uint32_t *header)
{
    uint32_t d = 0;
    while (d < dims && header[d] - box[2 * d] <= box[2 * d + 1])
        d++;
    return d == dims;
}

void rule_cache_first(const struct rule_cache *cache, const struct cache_copy *copy, const uint32_t *headers,
                      uint32_t count, uint32_t *place)
{
    uint32_t dims = cache->dims;
    if (cache->form == CACHE_COLUMNS)
        box_soa_first(&copy->columns, headers, count, place);
    for (uint32_t i = 0; cache->form == CACHE_ROWS && i < count; i++, headers += dims) {
        const uint32_t *box = copy->row;
        for (place[i] = 0; place[i] < copy->count && !within(box, dims, headers); box += 2 * dims)
            place[i]++;
    }
    for (uint32_t i = 0; cache->form == CACHE_LIST && i < count; i++, headers += dims) {
        const struct cache_link *link = copy->first;
        while (link && !within(link->box, dims, headers))
            link = link->next;
        place[i] = link ? link->place : copy->count;
    }
}

/* -- publication ------------------------------------------------------------------------------ */

static void fill(const struct rule_cache *cache, struct cache_copy *copy, const struct evolve *e)
{
    uint32_t row = 2 * cache->dims;
    copy->count = e->count < cache->entries ? e->count : cache->entries;
    copy->columns.count = 0;
    copy->first = NULL;
    for (uint32_t place = copy->count; place--;) {
        const uint32_t *box = evolve_box(e, place);
        struct cache_link *link = NULL;
        uint32_t *to = NULL;
        copy->action[place] = e->rule[e->order[place]].action;
        if (cache->form == CACHE_COLUMNS) {
            box_soa_insert(&copy->columns, 0, box);
            continue;
        }
        if (cache->form == CACHE_ROWS) {
            to = copy->row + (size_t)place * row;
        } else {
            link = (struct cache_link *)(copy->links + place * link_bytes(cache));
            link->next = copy->first;
            link->place = place;
            copy->first = link;
            to = link->box;
        }
        for (uint32_t i = 0; i < row; i += 2) {
            to[i] = box[i];
            to[i + 1] = box[i + 1] - box[i];
        }
    }
}

/* Whether all readers have left a copy. */
static bool is_free(const struct rule_cache *cache, uint32_t number)
{
    for (uint32_t i = 0; i < CACHE_READERS; i++) {
        uint64_t epoch = atomic_load(&cache->reader[i].epoch);
        if (epoch && epoch < cache->copy[number].retired)
            return false;
    }
    return true;
}

bool rule_cache_publish(struct rule_cache *cache, struct evolve *e)
{
    uint32_t current = atomic_load_explicit(&cache->current, memory_order_relaxed), next = current;
    if (cache->copies == 1) {
        spin_lock(&cache->locked);
        fill(cache, &cache->copy[0], e);
        spin_unlock(&cache->locked);
    } else {
        do
            next = (next + 1) % cache->copies;
        while (next != current && !is_free(cache, next));
        if (next == current) {
            cache->deferred++;
            return false;
        }
        fill(cache, &cache->copy[next], e);
        atomic_store(&cache->current, next);
        cache->copy[current].retired = atomic_fetch_add(&cache->epoch, 1) + 1;
    }
    e->changed = UINT32_MAX;
    cache->published++;
    return true;
}
