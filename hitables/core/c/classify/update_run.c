/* The simulator of The Small, the Fast and the Lazy (section V-C).
 *
 * Idea: one thread classifies headers, one feeds it as fast as it can, one updates at fixed moments, one
 * counts what was classified in each part of the time.
 * Cost: a copy of each header into the ring of batches, and a lock per batch.
 * Invariant: what is counted was classified, or updated, before the time was over; an update counts when the
 * next one could begin, so that of a classifier which is built again includes the build.
 * Threading: the ring has one producer and one consumer, which sleep while it is full or empty.  The
 * classifier starts threads of its own for builds.  No thread runs when update_run returns.
 */
#define _GNU_SOURCE
#include "update_run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "budget.h"
#include "vfdb.h"

/* Of a batch the paper says nothing; 512 headers are classified in the time of a few locks. */
enum { BATCH = 512, SLOTS = 32, SECOND = 1000000000 };
/* A thread looks at the caller's flag as often. */
enum { GLANCE = 50000000 };
enum { FEED, CLASSIFY, UPDATE, COUNT, THREADS };

struct run {
    struct vfdb *db;
    uint32_t dims, ticks;
    const uint32_t *headers;
    size_t count;
    const struct update_list *updates;
    uint64_t start, ns, *tick;
    const volatile int *stop;

    uint32_t *slot; /* [SLOTS][BATCH][dims] */
    pthread_mutex_t lock;
    pthread_cond_t change;
    uint32_t filled; /* slots that wait to be classified */
    bool go;         /* the start is known */
    atomic_bool over;
    atomic_int status;
    _Atomic uint64_t processed, done;
};

static uint64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * SECOND + (uint64_t)at.tv_nsec;
}

static void end(struct run *run, int status)
{
    int none = VFDB_OK;
    atomic_compare_exchange_strong(&run->status, &none, status);
    pthread_mutex_lock(&run->lock);
    atomic_store(&run->over, true);
    run->go = true;
    pthread_cond_broadcast(&run->change);
    pthread_mutex_unlock(&run->lock);
}

/* Sleep until *ns* after the start; false when the run is over before. */
static bool sleep_until(struct run *run, uint64_t ns)
{
    uint64_t until = run->start + ns, at;
    while (!atomic_load(&run->over) && (at = now()) < until) {
        uint64_t next = until - at > GLANCE ? at + GLANCE : until;
        struct timespec moment = {(time_t)(next / SECOND), (long)(next % SECOND)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL);
        if (run->stop && *run->stop)
            end(run, UPDATE_RUN_STOPPED);
    }
    return !atomic_load(&run->over);
}

static void wait_for_go(struct run *run)
{
    pthread_mutex_lock(&run->lock);
    while (!run->go)
        pthread_cond_wait(&run->change, &run->lock);
    pthread_mutex_unlock(&run->lock);
}

/* Wait until a slot is free (*fed* false) or full; false when the run is over. */
static bool wait_for_slot(struct run *run, bool fed)
{
    pthread_mutex_lock(&run->lock);
    while (!atomic_load(&run->over) && run->filled == (fed ? 0 : SLOTS))
        pthread_cond_wait(&run->change, &run->lock);
    pthread_mutex_unlock(&run->lock);
    return !atomic_load(&run->over);
}

/* A slot was filled (*fed* false) or emptied. */
static void pass_slot(struct run *run, bool fed)
{
    pthread_mutex_lock(&run->lock);
    run->filled += fed ? -1U : 1U;
    /* The other thread is woken when it has half a ring to work on, not at each slot. */
    if (run->filled == (fed ? SLOTS / 2 : 1))
        pthread_cond_broadcast(&run->change);
    pthread_mutex_unlock(&run->lock);
}

static void *feed(void *argument)
{
    struct run *run = argument;
    size_t at = 0;
    wait_for_go(run);
    for (uint64_t number = 0; wait_for_slot(run, false); number++) {
        uint32_t *slot = run->slot + number % SLOTS * BATCH * run->dims;
        for (size_t filled = 0, some; filled < BATCH; filled += some) {
            some = run->count - at < BATCH - filled ? run->count - at : BATCH - filled;
            memcpy(slot + filled * run->dims, run->headers + at * run->dims, some * run->dims * sizeof *slot);
            at = (at + some) % run->count;
        }
        pass_slot(run, false);
    }
    return NULL;
}

static void *classify(void *argument)
{
    struct run *run = argument;
    uint32_t answers[BATCH];
    wait_for_go(run);
    for (uint64_t number = 0; wait_for_slot(run, true); number++) {
        int status = vfdb_search(run->db, run->slot + number % SLOTS * BATCH * run->dims, BATCH, answers);
        if (status)
            end(run, status);
        else if (!atomic_load(&run->over))
            atomic_fetch_add(&run->processed, BATCH);
        pass_slot(run, true);
    }
    return NULL;
}

static void *update(void *argument)
{
    struct run *run = argument;
    const struct update_list *updates = run->updates;
    wait_for_go(run);
    for (uint32_t i = 0; i < updates->count; i++) {
        /* An update whose moment has passed is done at once. */
        if (!sleep_until(run, run->ns / updates->count * i + run->ns / updates->count / 2))
            break;
        const uint32_t *box = updates->box + (size_t)i * 2 * run->dims;
        int status = updates->insert ? vfdb_insert(run->db, box, 1, updates->priority[i])
                                     : vfdb_remove(run->db, updates->priority[i]);
        if (status) {
            end(run, status);
            break;
        }
        vfdb_ready(run->db, true);
        if (!atomic_load(&run->over))
            atomic_fetch_add(&run->done, 1);
    }
    return NULL;
}

static void *count_parts(void *argument)
{
    struct run *run = argument;
    uint64_t before = 0;
    wait_for_go(run);
    for (uint32_t i = 0; i < run->ticks; i++) {
        if (!sleep_until(run, run->ns * (i + 1) / run->ticks))
            break;
        uint64_t sum = atomic_load(&run->processed);
        run->tick[i] = sum - before;
        before = sum;
    }
    end(run, VFDB_OK);
    return NULL;
}

static void start(struct run *run)
{
    pthread_mutex_lock(&run->lock);
    run->start = now();
    run->go = true;
    pthread_cond_broadcast(&run->change);
    pthread_mutex_unlock(&run->lock);
}

static void run_threads(struct run *run, struct update_run_stats *stats)
{
    static void *(*const body[THREADS])(void *) = {feed, classify, update, count_parts};
    pthread_t thread[THREADS];
    uint32_t begun = 0;
    while (begun < THREADS && !pthread_create(&thread[begun], NULL, body[begun], run))
        begun++;
    if (begun < THREADS)
        end(run, UPDATE_RUN_NO_THREAD);
    else
        start(run);
    for (uint32_t i = 0; i < begun; i++)
        if (i != UPDATE)
            pthread_join(thread[i], NULL);
    stats->ns = now() - run->start;
    if (begun > UPDATE)
        pthread_join(thread[UPDATE], NULL);
}

int update_run(struct vfdb *db, uint32_t dims, const uint32_t *headers, size_t count,
               const struct update_list *updates, uint64_t ns, uint64_t *tick, uint32_t ticks,
               const volatile int *stop, struct update_run_stats *stats)
{
    struct run run = {.db = db,
                      .dims = dims,
                      .ticks = ticks,
                      .headers = headers,
                      .count = count,
                      .updates = updates,
                      .ns = ns,
                      .tick = tick,
                      .stop = stop};
    struct budget *budget = budget_new(0);
    size_t bytes = (size_t)SLOTS * BATCH * dims * sizeof *run.slot;
    uint64_t before = vfdb_rebuilds(db);
    *stats = (struct update_run_stats){0};
    memset(tick, 0, ticks * sizeof *tick);
    run.slot = budget ? budget_take(budget, bytes) : NULL;
    if (!run.slot) {
        budget_free(budget);
        return VFDB_NO_MEMORY;
    }
    pthread_mutex_init(&run.lock, NULL);
    pthread_cond_init(&run.change, NULL);
    run_threads(&run, stats);
    pthread_cond_destroy(&run.change);
    pthread_mutex_destroy(&run.lock);
    budget_give(budget, run.slot, bytes);
    budget_free(budget);
    int status = atomic_load(&run.status);
    if (status == VFDB_OK)
        status = vfdb_settle(db);
    stats->processed = atomic_load(&run.processed);
    stats->done = atomic_load(&run.done);
    stats->rebuilds = vfdb_rebuilds(db) - before;
    return status;
}
