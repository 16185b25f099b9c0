/* storm(A): a cache of evolving rules in front of any classifier (Storm, by one thread or many).
 *
 * Idea: every *every*-th packet is a sample; the *cache* evolving rules of most weight answer for the packets
 * that they hold, and A for the others.  The action of a rule is its priority, so the cache gives the answers
 * of A.
 * Cost: a hit takes a few comparisons, sixteen headers at a time; a miss takes all of them and a search of A;
 * a sample a search for conflicts.
 * Invariant: a rule in the cache has one answer for all its packets.  An update drops the evolving rules that
 * meet its box, and publishes, before any search goes on.
 * Threading: searches share the cache; samples are taken by one search at a time, and others go on without.
 * Updates run alone.
 *
 * More entries than samples in the window would never be filled: engine/algorithms.py refuses them.
 */
#include <string.h>

#include "budget.h"
#include "rule_cache.h"
#include "spin.h"
#include "storm.h"
#include "vfdb_work.h"

enum { PART = 512 };
enum { ENTRIES, WINDOW, EVERY, PUBLISH };
/* A sample tries at most as many boxes: packets that match a rule in many places, as they do a default rule,
 * have many evolving rules that cannot be joined. */
enum { TRIES = 32, LEAF = 16 };

struct storm {
    struct budget *budget;
    uint32_t dims, every, publish;
    struct vfdb *inner;
    struct evolve *evolve;
    struct rule_cache *cache;
    atomic_uint sampling; /* locked by the search that takes samples */
    uint32_t since;       /* samples since the last publication */
    _Atomic uint64_t packets, hits;
};

/* Headers that the cache does not hold. */
struct storm_missed {
    uint32_t count, header[PART], words[PART * VFDB_DIMS], answer[PART];
    struct vfdb_work work[PART];
};

static void storm_free(void *built)
{
    struct storm *db = built;
    if (db->cache)
        rule_cache_free(db->cache);
    if (db->evolve)
        evolve_free(db->evolve);
    vfdb_close(db->inner);
    budget_give(db->budget, db, sizeof *db);
}

static int storm_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                       void **built)
{
    struct evolve_options options = {
        .window = (uint32_t)plan->value[WINDOW], .tries = TRIES, .leaf = LEAF};
    struct storm *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    db->budget = budget;
    db->dims = rules->dims;
    db->every = (uint32_t)plan->value[EVERY];
    db->publish = (uint32_t)plan->value[PUBLISH];
    int status = vfdb_open_under(budget, plan->inner, rules, &db->inner);
    if (status == VFDB_OK)
        status = evolve_new(budget, &options, rules, NULL, &db->evolve);
    if (status == VFDB_OK)
        status = rule_cache_new(budget, rules->dims, (uint32_t)plan->value[ENTRIES], CACHE_COLUMNS, 2,
                                &db->cache);
    if (status)
        storm_free(db);
    else
        *built = db;
    return status;
}

/* -- updates ---------------------------------------------------------------------------------- */

static void forget(struct storm *db, const uint32_t *box)
{
    evolve_forget(db->evolve, box);
    if (rule_cache_is_stale(db->cache, db->evolve))
        rule_cache_publish(db->cache, db->evolve); /* nothing is read now, so a copy is free */
}

static int storm_insert(void *built, const uint32_t *box, uint32_t priority)
{
    struct storm *db = built;
    int status = conflict_insert(&db->evolve->rules, box, priority);
    if (status)
        return status;
    status = vfdb_put(db->inner, box, priority);
    if (status)
        conflict_remove(&db->evolve->rules, box, priority);
    else
        forget(db, box);
    return status;
}

static int storm_remove(void *built, const uint32_t *box, uint32_t priority)
{
    struct storm *db = built;
    int status = vfdb_take(db->inner, box, priority);
    if (status == VFDB_OK) {
        conflict_remove(&db->evolve->rules, box, priority);
        forget(db, box);
    }
    return status;
}

/* -- search ----------------------------------------------------------------------------------- */

/* A header with a word that is wider than its dimension is no place in the space of the rules. */
static bool fits_fields(const struct conflict_tree *rules, const uint32_t *header)
{
    for (uint32_t d = 0; d < rules->dims; d++)
        if (rules->bits[d] < 32 && header[d] >> rules->bits[d])
            return false;
    return true;
}

static void take_samples(struct storm *db, const uint32_t *headers, uint32_t count, uint64_t number,
                         const uint32_t *answers)
{
    uint64_t first = (db->every - number % db->every) % db->every;
    if (first >= count || !spin_try(&db->sampling))
        return;
    conflict_refresh(&db->evolve->rules);
    for (uint64_t i = first; i < count; i += db->every, db->since++)
        if (fits_fields(&db->evolve->rules, headers + i * db->dims))
            evolve_sample(db->evolve, headers + i * db->dims, answers[i], answers[i]);
    if (db->since >= db->publish && rule_cache_is_stale(db->cache, db->evolve) &&
        rule_cache_publish(db->cache, db->evolve))
        db->since = 0;
    spin_unlock(&db->sampling);
}

/* The answers of the cache, and the headers that it does not hold; the hits. */
static uint32_t look_up(struct storm *db, const uint32_t *headers, uint32_t count, uint32_t *answers,
                        struct vfdb_work *work, struct storm_missed *missed)
{
    uint32_t place[PART], entries = 0, dims = db->dims;
    int slot;
    const struct cache_copy *copy = rule_cache_enter(db->cache, (uint32_t)(uintptr_t)&slot >> 12, &slot);
    if (copy) {
        entries = copy->count;
        rule_cache_first(db->cache, copy, headers, count, place);
        for (uint32_t i = 0; i < count; i++)
            if (place[i] < entries)
                answers[i] = copy->action[place[i]];
        rule_cache_leave(db->cache, slot);
    }
    missed->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t searched = copy && place[i] < entries ? place[i] + 1 : entries;
        if (work)
            work[i].rules += searched;
        if (copy && place[i] < entries)
            continue;
        memcpy(missed->words + (size_t)missed->count * dims, headers + (size_t)i * dims,
               dims * sizeof *headers);
        missed->header[missed->count++] = i;
    }
    return count - missed->count;
}

static int search_part(struct storm *db, const uint32_t *headers, uint32_t count, uint32_t *answers,
                       struct vfdb_work *work)
{
    struct storm_missed missed;
    uint32_t hits = look_up(db, headers, count, answers, work, &missed);
    int status = VFDB_OK;
    if (missed.count && work) {
        memset(missed.work, 0, missed.count * sizeof *missed.work);
        status = vfdb_search_counted(db->inner, missed.words, missed.count, missed.answer, missed.work);
    } else if (missed.count) {
        status = vfdb_search(db->inner, missed.words, missed.count, missed.answer);
    }
    if (status)
        return status;
    for (uint32_t i = 0; i < missed.count; i++) {
        answers[missed.header[i]] = missed.answer[i];
        if (work)
            vfdb_work_add(&work[missed.header[i]], &missed.work[i]);
    }
    uint64_t number = atomic_fetch_add_explicit(&db->packets, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&db->hits, hits, memory_order_relaxed);
    take_samples(db, headers, count, number, answers);
    return VFDB_OK;
}

static int storm_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                                struct vfdb_work *work)
{
    struct storm *db = (struct storm *)built; /* its cache and samples change, under locks of their own */
    for (size_t at = 0, part; at < count; at += part) {
        part = count - at < PART ? count - at : PART;
        int status = search_part(db, headers + at * db->dims, (uint32_t)part, answers + at,
                                 work ? work + at : NULL);
        if (status)
            return status;
    }
    return VFDB_OK;
}

static int storm_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    return storm_search_counted(built, headers, count, answers, NULL);
}

static void storm_stats(const void *built, struct storm_cache_stats *stats)
{
    struct storm *db = (struct storm *)built;
    spin_lock(&db->sampling);
    evolve_stats_of(db->evolve, &stats->evolve);
    stats->packets = db->packets;
    stats->hits = db->hits;
    stats->published = db->cache->published;
    stats->deferred = db->cache->deferred;
    spin_unlock(&db->sampling);
}

static bool storm_ready(void *built, bool wait)
{
    return vfdb_ready(((struct storm *)built)->inner, wait);
}

static int storm_settle(void *built)
{
    return vfdb_settle(((struct storm *)built)->inner);
}

static uint64_t storm_rebuilds(const void *built)
{
    return vfdb_rebuilds(((const struct storm *)built)->inner);
}

const struct vfdb_ops vfdb_storm = {
    .name = "storm",
    .title = "another algorithm behind a cache of rules that evolve from samples of the packets",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .wraps = true,
    .param = {{"cache", "evolving rules that are searched first", 20, 1, 4096},
              {"window", "samples that evolving rules are made of", 1024, 1, 1 << 20},
              {"every", "packets of which one is a sample", 16, 1, 1 << 30},
              {"publish", "samples after which the cache is renewed", 64, 1, 1 << 30}},
    .build = storm_build,
    .insert = storm_insert,
    .remove = storm_remove,
    .search = storm_search,
    .search_counted = storm_search_counted,
    .ready = storm_ready,
    .settle = storm_settle,
    .rebuilds = storm_rebuilds,
    .storm_stats = storm_stats,
    .free = storm_free,
};
