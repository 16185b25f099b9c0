/* The threads of Storm (sections 3.1 and 4): set up, run, and counted.
 *
 * Idea: cache threads search the evolving rules, classifiers search the rules for what they miss, and an
 * updater makes evolving rules of the newest packets.  Misses go through rings of one producer and one
 * consumer.
 * Cost: that of the threads (pipeline_threads.c); the trace and the answers are the caller's.
 * Invariant: a run always ends: a thread that fails ends all others, and the first failure is the status.  No
 * thread is running when pipeline_run returns.
 * Threading: the caller waits while the threads run.
 */
#define _GNU_SOURCE
#include "pipeline_internal.h"

#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "budget.h"

uint64_t pipeline_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void pipeline_wake(struct pipeline *p)
{
    pthread_mutex_lock(&p->idle_lock);
    pthread_cond_broadcast(&p->idle_change);
    pthread_mutex_unlock(&p->idle_lock);
}

void pipeline_fail(struct worker *worker, int status)
{
    struct pipeline *p = worker->p;
    int none = VFDB_OK;
    if (atomic_compare_exchange_strong(&p->status, &none, status)) {
        atomic_store(&p->failed_kind, status == PIPELINE_STOPPED ? KINDS : worker->kind);
        atomic_store(&p->failed_number, worker->number);
    }
    atomic_store(&p->ended, true);
    pipeline_wake(p);
}

uint64_t pipeline_stream_count(const struct pipeline *p, uint32_t number, uint64_t packets)
{
    uint64_t blocks = packets / STREAM_BLOCK, begun = blocks / p->streams + (number < blocks % p->streams);
    return begun * STREAM_BLOCK + (number == blocks % p->streams ? packets % STREAM_BLOCK : 0);
}

/* -- set up ----------------------------------------------------------------------------------- */

static uint32_t larger(uint32_t one, uint32_t two)
{
    return one > two ? one : two;
}

static bool ring_take(struct budget *budget, struct ring *ring, uint32_t room, bool locked)
{
    ring->slot = budget_take(budget, room * sizeof *ring->slot);
    ring->room = room;
    ring->locked = locked;
    return ring->slot;
}

static int set_up_worker(struct worker *worker, struct pipeline *p, uint32_t kind, uint32_t number)
{
    const struct pipeline_options *o = p->options;
    bool own = o->own && kind == KIND_CACHE;
    int status = VFDB_OK;
    worker->p = p;
    worker->kind = kind;
    worker->number = number;
    worker->cache = kind == KIND_CACHE ? p->cache : NULL;
    if (own || kind == KIND_UPDATER)
        status = evolve_new(p->budget, &o->evolve, p->rules, p->action, &worker->evolve);
    if (status == VFDB_OK && own)
        status = rule_cache_new(p->budget, p->rules->dims, o->entries, o->form, o->copies, &worker->cache);
    if (status == VFDB_OK && kind == KIND_CACHE && o->queue_room &&
        !ring_take(p->budget, &worker->samples, o->queue_room, o->ring_locked))
        status = VFDB_NO_MEMORY;
    return status;
}

static int set_up_links(struct pipeline *p)
{
    const struct pipeline_options *o = p->options;
    p->streams = o->threads[KIND_CACHE];
    p->links = o->threads[KIND_CLASSIFIER] ? larger(o->threads[KIND_CACHE], o->threads[KIND_CLASSIFIER]) : 0;
    p->stream = budget_take(p->budget, p->streams * sizeof *p->stream);
    p->link = budget_take(p->budget, p->links * sizeof *p->link);
    if (!p->stream || (p->links && !p->link))
        return VFDB_NO_MEMORY;
    for (uint32_t i = 0; i < p->streams; i++) {
        p->stream[i].count = pipeline_stream_count(p, i, p->count);
        p->streams_left += p->stream[i].count > 0;
    }
    for (uint32_t i = 0; i < p->links; i++) /* the first rings share the remainder */
        if (!ring_take(p->budget, &p->link[i].ring,
                       larger(1, o->ring_room / p->links + (i < o->ring_room % p->links)), o->ring_locked))
            return VFDB_NO_MEMORY;
    return VFDB_OK;
}

static int set_up(struct pipeline *p)
{
    const struct pipeline_options *o = p->options;
    int status = set_up_links(p);
    if (status == VFDB_OK && o->threads[KIND_UPDATER])
        status = rule_cache_new(p->budget, p->rules->dims, o->entries, o->form, o->copies, &p->cache);
    for (uint32_t kind = 0; kind < KINDS && status == VFDB_OK; kind++) {
        p->active[kind] = o->threads[kind];
        if (!o->threads[kind])
            continue;
        p->worker[kind] = budget_take(p->budget, o->threads[kind] * sizeof *p->worker[kind]);
        status = p->worker[kind] ? VFDB_OK : VFDB_NO_MEMORY;
        for (uint32_t i = 0; i < o->threads[kind] && status == VFDB_OK; i++)
            status = set_up_worker(&p->worker[kind][i], p, kind, i);
    }
    p->active[KIND_CACHE] -= o->idle; /* the cache is empty at first: more classifiers */
    p->caches_left = o->threads[KIND_CACHE];
    return status;
}

static void take_down(struct pipeline *p)
{
    const struct pipeline_options *o = p->options;
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        for (uint32_t i = 0; p->worker[kind] && i < o->threads[kind]; i++) {
            struct worker *worker = &p->worker[kind][i];
            if (worker->evolve)
                evolve_free(worker->evolve);
            if (worker->cache && worker->cache != p->cache)
                rule_cache_free(worker->cache);
            budget_give(p->budget, worker->samples.slot, worker->samples.room * sizeof(uint64_t));
        }
        budget_give(p->budget, p->worker[kind], o->threads[kind] * sizeof *p->worker[kind]);
    }
    if (p->cache)
        rule_cache_free(p->cache);
    for (uint32_t i = 0; p->link && i < p->links; i++)
        budget_give(p->budget, p->link[i].ring.slot, p->link[i].ring.room * sizeof(uint64_t));
    budget_give(p->budget, p->link, p->links * sizeof *p->link);
    budget_give(p->budget, p->stream, p->streams * sizeof *p->stream);
    pthread_cond_destroy(&p->idle_change);
    pthread_mutex_destroy(&p->idle_lock);
}

/* -- run -------------------------------------------------------------------------------------- */

/* Bind a thread to one core of those that the process may use: the cores in turn. */
static void pin(pthread_t thread, uint32_t number)
{
    cpu_set_t all, one;
    CPU_ZERO(&all);
    if (sched_getaffinity(0, sizeof all, &all) || !CPU_COUNT(&all))
        return;
    uint32_t wanted = number % (uint32_t)CPU_COUNT(&all);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && !wanted--) {
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            pthread_setaffinity_np(thread, sizeof one, &one);
            return;
        }
}

static void run_threads(struct pipeline *p)
{
    static void *(*const body[KINDS])(void *) = {pipeline_cache_thread, pipeline_classifier_thread,
                                                 pipeline_updater_thread};
    uint32_t begun[KINDS] = {0}, number = 0;
    for (uint32_t kind = 0; kind < KINDS; kind++)
        for (uint32_t i = 0; i < p->options->threads[kind] && !atomic_load(&p->ended); i++, number++) {
            struct worker *worker = &p->worker[kind][i];
            if (pthread_create(&worker->thread, NULL, body[kind], worker)) {
                pipeline_fail(worker, PIPELINE_NO_THREAD);
                break;
            }
            begun[kind]++;
            if (p->options->pin)
                pin(worker->thread, number);
        }
    p->start = pipeline_now();
    atomic_store_explicit(&p->go, true, memory_order_release);
    for (uint32_t kind = 0; kind < KINDS; kind++)
        for (uint32_t i = 0; i < begun[kind]; i++)
            pthread_join(p->worker[kind][i].thread, NULL);
}

static void add_cache(struct pipeline_stats *sum, const struct rule_cache *cache)
{
    sum->published += cache->published;
    sum->deferred += cache->deferred;
}

static void count_all(struct pipeline *p, struct pipeline_stats *sum)
{
    const struct worker *first = p->options->own ? p->worker[KIND_CACHE] : p->worker[KIND_UPDATER];
    for (uint32_t kind = 0; kind < KINDS; kind++)
        for (uint32_t i = 0; i < p->options->threads[kind]; i++) {
            const struct worker *worker = &p->worker[kind][i];
            const struct pipeline_stats *one = &worker->stats;
            sum->hits += one->hits;
            sum->classified += one->classified;
            sum->lost_input += one->lost_input;
            sum->lost_ring += one->lost_ring;
            sum->samples += one->samples;
            sum->to_caches += one->to_caches;
            sum->to_classifiers += one->to_classifiers;
            for (uint32_t e = 0; e <= PIPELINE_ENTRIES; e++)
                sum->searched[e] += one->searched[e];
            if (worker->cache && worker->cache != p->cache)
                add_cache(sum, worker->cache);
        }
    if (p->cache)
        add_cache(sum, p->cache);
    if (first && first->evolve)
        sum->evolving = first->evolve->count;
}

int pipeline_run(const struct pipeline_options *options, const struct vfdb_rules *rules,
                 const uint32_t *action, struct vfdb *db, const uint32_t *headers, size_t count,
                 uint32_t *answers, uint8_t *by, size_t limit, const volatile int *stop,
                 struct pipeline_stats *stats)
{
    struct pipeline p = {.options = options, .rules = rules, .action = action, .db = db, .headers = headers,
                         .count = count, .answers = answers, .by = by, .stop = stop};
    *stats = (struct pipeline_stats){.offered = count, .failed_kind = KINDS};
    memset(by, BY_NONE, count);
    p.budget = budget_new(limit);
    if (!p.budget)
        return VFDB_NO_MEMORY;
    pthread_mutex_init(&p.idle_lock, NULL);
    pthread_cond_init(&p.idle_change, NULL);
    p.failed_kind = KINDS;
    int status = set_up(&p);
    if (status == VFDB_OK) {
        stats->bytes = budget_bytes(p.budget);
        run_threads(&p);
        stats->ns = pipeline_now() - p.start;
        status = atomic_load(&p.status);
        count_all(&p, stats);
        stats->failed_kind = atomic_load(&p.failed_kind);
        stats->failed_number = atomic_load(&p.failed_number);
    }
    take_down(&p);
    budget_free(p.budget);
    return status;
}
