/* The bodies of the threads of Storm.
 *
 * Idea: a cache thread takes a batch of its streams, searches the cache, and puts what it misses into its
 * rings; a classifier empties its rings; an updater takes the newest packet as a sample.
 * Cost: per batch a few atomic writes; those of the cache, of the classifier and of evolve.c.
 * Invariant: each packet has exactly one end: a hit, classified, lost at the input or lost at a ring.
 * Threading: stream i and the producing end of ring i belong to cache thread i modulo the active ones, the
 * consuming end to classifier i modulo the active ones.  When the number of active threads changes, the owner
 * of an end changes; a lock on it keeps the new owner out until the old one has left.  A thread that finds
 * such a lock taken goes on to its next stream or ring.
 */
#define _GNU_SOURCE
#include <string.h>

#include "pipeline_internal.h"
#include "search.h"

static bool is_active(const struct worker *worker)
{
    return worker->number < atomic_load_explicit(&worker->p->active[worker->kind], memory_order_relaxed);
}

/* An idle thread sleeps until it is needed, or there is nothing left to do. */
static void rest(struct worker *worker)
{
    struct pipeline *p = worker->p;
    pthread_mutex_lock(&p->idle_lock);
    while (!is_active(worker) && !atomic_load(&p->ended) && atomic_load(&p->streams_left))
        pthread_cond_wait(&p->idle_change, &p->idle_lock);
    pthread_mutex_unlock(&p->idle_lock);
}

static void wait_for_go(const struct worker *worker)
{
    unsigned tries = 0;
    while (!atomic_load_explicit(&worker->p->go, memory_order_acquire))
        spin_pause(&tries);
}

/* -- cache threads ---------------------------------------------------------------------------- */

/* The packets of a stream that have arrived. */
static uint64_t arrived(const struct pipeline *p, uint32_t number, const struct stream *stream)
{
    if (p->options->rate <= 0)
        return stream->count;
    double all = (double)(pipeline_now() - p->start) * 1e-9 * p->options->rate;
    return all >= (double)p->count ? stream->count : pipeline_stream_count(p, number, (uint64_t)all);
}

/* The number in the trace of a stream's packet. */
static uint64_t number_of(const struct pipeline *p, uint32_t number, uint64_t packet)
{
    return (packet / STREAM_BLOCK * p->streams + number) * STREAM_BLOCK + packet % STREAM_BLOCK;
}

/* Take packets of a stream, which follow each other in the trace: *packet is the first, and their number is
 * returned. */
static uint32_t take(struct worker *worker, uint32_t number, uint64_t *packet)
{
    struct pipeline *p = worker->p;
    struct stream *stream = &p->stream[number];
    uint32_t batch = p->options->batch;
    if (!spin_try(&stream->locked))
        return 0;
    uint64_t there = arrived(p, number, stream), waiting = there - stream->next, finished = stream->next;
    if (p->options->rate > 0 && !p->options->block && waiting > p->options->input_room) {
        for (; waiting > p->options->input_room; waiting--, stream->next++)
            p->by[number_of(p, number, stream->next)] = LOST_INPUT;
        worker->stats.lost_input += stream->next - finished;
    }
    uint32_t count = waiting < batch ? (uint32_t)waiting : batch;
    uint32_t left = STREAM_BLOCK - (uint32_t)(stream->next % STREAM_BLOCK);
    count = count < left ? count : left;
    *packet = number_of(p, number, stream->next);
    stream->next += count;
    bool last = stream->next == stream->count && finished != stream->count;
    spin_unlock(&stream->locked);
    if (last && atomic_fetch_sub(&p->streams_left, 1) == 1)
        pipeline_wake(p);
    return count;
}

/* Put packets into the rings of this thread, each in turn first; the number put. */
static uint32_t push(struct worker *worker, const uint64_t *missed, uint32_t count)
{
    struct pipeline *p = worker->p;
    uint32_t active = atomic_load_explicit(&p->active[KIND_CACHE], memory_order_relaxed);
    uint32_t first = worker->number % active, rings = (p->links - first + active - 1) / active, sent = 0;
    worker->pushes++;
    for (uint32_t i = 0; i < rings && sent < count; i++) {
        struct link *link = &p->link[first + (worker->pushes + i) % rings * active];
        if (!spin_try(&link->producer))
            continue;
        sent += ring_push(&link->ring, missed + sent, count - sent);
        spin_unlock(&link->producer);
    }
    return sent;
}

/* Send misses to the classifiers.  Packets that find no room are lost; with *block*, the thread waits. */
static void send(struct worker *worker, const uint64_t *missed, uint32_t count)
{
    struct pipeline *p = worker->p;
    unsigned tries = 0;
    uint32_t sent = push(worker, missed, count);
    while (sent < count && p->options->block) {
        if (pipeline_ended(worker))
            return;
        spin_pause(&tries);
        sent += push(worker, missed + sent, count - sent);
    }
    for (uint32_t i = sent; i < count; i++)
        p->by[missed[i]] = LOST_RING;
    worker->stats.lost_ring += count - sent;
}

static uint32_t action_of(const struct pipeline *p, uint32_t priority)
{
    const struct vfdb_rules *rules = p->rules;
    if (priority == VFDB_NONE || !p->action)
        return priority;
    if (priority < rules->count && rules->priority[priority] == priority)
        return p->action[priority];
    return p->action[lower_bound(rules->priority, 1, rules->count, priority)];
}

static void classify(struct worker *worker, const uint64_t *packet, uint32_t count)
{
    struct pipeline *p = worker->p;
    uint32_t *headers = worker->words, answers[PIPELINE_BATCH], dims = p->rules->dims;
    for (uint32_t i = 0; i < count; i++)
        memcpy(headers + (size_t)i * dims, p->headers + packet[i] * dims, dims * sizeof *headers);
    int status = vfdb_search(p->db, headers, count, answers);
    if (status) {
        pipeline_fail(worker, status);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        p->answers[packet[i]] = action_of(p, answers[i]);
        p->by[packet[i]] = BY_CLASSIFIER;
    }
    worker->stats.classified += count;
}

/* Search the cache.  *missed: the packets that it does not hold; their number is returned. */
static uint32_t look_up(struct worker *worker, uint64_t packet, uint32_t count, uint64_t *missed)
{
    struct pipeline *p = worker->p;
    uint32_t place[PIPELINE_BATCH], misses = 0;
    int slot;
    _Static_assert((int)PIPELINE_THREADS <= (int)CACHE_READERS, "a cache thread always finds a slot");
    const struct cache_copy *copy = rule_cache_enter(worker->cache, worker->number, &slot);
    uint32_t entries = copy->count;
    rule_cache_first(worker->cache, copy, p->headers + packet * p->rules->dims, count, place);
    for (uint32_t i = 0; i < count; i++) {
        if (place[i] == entries) {
            missed[misses++] = packet + i;
        } else {
            p->answers[packet + i] = copy->action[place[i]];
            p->by[packet + i] = BY_CACHE;
        }
        worker->stats.searched[place[i] + (place[i] < entries)]++;
    }
    rule_cache_leave(worker->cache, slot);
    worker->stats.hits += count - misses;
    return misses;
}

/* Offer a packet as a sample.  Only the newest packet of each cache thread counts. */
static void mail(struct worker *worker, uint64_t packet)
{
    if (worker->p->options->queue_room)
        ring_push(&worker->samples, &packet, 1); /* full: the newer packet is discarded */
    else
        atomic_store_explicit(&worker->newest, packet + 1, memory_order_release);
}

/* Samples of a cache thread that has evolving rules of its own. */
static void sample_own(struct worker *worker, uint64_t packet, uint32_t count)
{
    struct pipeline *p = worker->p;
    for (uint32_t i = 0; i < count; i++)
        if (worker->taken++ % p->options->every == 0) {
            evolve_samples(worker->evolve, p->headers + (packet + i) * p->rules->dims, 1);
            worker->stats.samples++;
            worker->since++;
        }
    pipeline_publish(worker, worker->cache);
}

static void work_on(struct worker *worker, uint64_t packet, uint32_t count)
{
    struct pipeline *p = worker->p;
    uint64_t missed[PIPELINE_BATCH];
    uint32_t misses = count;
    if (worker->cache)
        misses = look_up(worker, packet, count, missed);
    else
        for (uint32_t i = 0; i < count; i++)
            missed[i] = packet + i;
    if (worker->evolve)
        sample_own(worker, packet, count);
    else if (p->options->threads[KIND_UPDATER])
        mail(worker, packet + count - 1);
    if (!misses)
        return;
    if (p->options->threads[KIND_CLASSIFIER])
        send(worker, missed, misses);
    else
        classify(worker, missed, misses);
}

void *pipeline_cache_thread(void *argument)
{
    struct worker *worker = argument;
    struct pipeline *p = worker->p;
    unsigned tries = 0;
    wait_for_go(worker);
    while (!pipeline_ended(worker) && atomic_load(&p->streams_left)) {
        uint32_t active = atomic_load_explicit(&p->active[KIND_CACHE], memory_order_relaxed), taken = 0;
        for (uint32_t s = worker->number; worker->number < active && s < p->streams; s += active) {
            uint64_t packet;
            uint32_t count = take(worker, s, &packet);
            if (count)
                work_on(worker, packet, count);
            taken += count;
        }
        if (worker->number >= active)
            rest(worker);
        else if (!taken)
            spin_pause(&tries);
    }
    if (atomic_fetch_sub(&p->caches_left, 1) == 1)
        pipeline_wake(p);
    return NULL;
}

/* -- classifiers ------------------------------------------------------------------------------ */

/* Empty the rings *first*, *first* + *step*, ... once; the packets classified. */
static uint32_t serve(struct worker *worker, uint32_t first, uint32_t step)
{
    struct pipeline *p = worker->p;
    uint32_t served = 0;
    for (uint32_t number = first; number < p->links; number += step) {
        struct link *link = &p->link[number];
        uint64_t packet[PIPELINE_BATCH];
        if (!ring_filled(&link->ring) || !spin_try(&link->consumer))
            continue;
        uint32_t count = ring_pop(&link->ring, packet, p->options->batch);
        spin_unlock(&link->consumer);
        if (count)
            classify(worker, packet, count);
        served += count;
    }
    return served;
}

void *pipeline_classifier_thread(void *argument)
{
    struct worker *worker = argument;
    struct pipeline *p = worker->p;
    unsigned tries = 0;
    wait_for_go(worker);
    while (!pipeline_ended(worker)) {
        /* Read before the rings, so that they hold all that the last cache thread sent. */
        bool last = !atomic_load(&p->caches_left);
        uint32_t active = atomic_load_explicit(&p->active[KIND_CLASSIFIER], memory_order_relaxed);
        uint32_t served = worker->number < active ? serve(worker, worker->number, active) : 0;
        if (last)
            served += serve(worker, 0, 1); /* the rings of all classifiers */
        if (served)
            continue;
        if (last)
            break;
        if (worker->number >= active)
            rest(worker);
        spin_pause(&tries);
    }
    return NULL;
}

/* -- updaters --------------------------------------------------------------------------------- */

bool pipeline_publish(struct worker *worker, struct rule_cache *cache)
{
    if (worker->since < worker->p->options->publish || !rule_cache_is_stale(cache, worker->evolve))
        return false;
    spin_lock(&worker->p->publishing);
    bool done = rule_cache_publish(cache, worker->evolve);
    spin_unlock(&worker->p->publishing);
    if (done)
        worker->since = 0;
    return done;
}

/* The packet to be sampled next, of the cache threads in turn; false: there is no new one. */
static bool fetch(struct worker *worker, uint64_t *packet)
{
    struct pipeline *p = worker->p;
    uint32_t caches = p->options->threads[KIND_CACHE];
    for (uint32_t i = 0; i < caches; i++) {
        worker->from = (worker->from + 1) % caches;
        struct worker *cache_thread = &p->worker[KIND_CACHE][worker->from];
        if (p->options->queue_room) {
            if (ring_pop(&cache_thread->samples, packet, 1))
                return true;
            continue;
        }
        uint64_t newest = atomic_load_explicit(&cache_thread->newest, memory_order_acquire);
        if (newest != worker->seen[worker->from]) {
            worker->seen[worker->from] = newest;
            *packet = newest - 1;
            return true;
        }
    }
    return false;
}

/* Idle some threads of one kind, and wake those of the other, by the room that is free in the rings. */
static void assign(struct worker *worker)
{
    struct pipeline *p = worker->p;
    const struct pipeline_options *o = p->options;
    uint64_t room = 0, filled = 0;
    for (uint32_t i = 0; i < p->links; i++) {
        room += p->link[i].ring.room;
        filled += ring_filled(&p->link[i].ring);
    }
    uint64_t vacant = 100 * (room - filled);
    if (vacant <= o->high * room && vacant >= o->low * room)
        return;
    /* Much free room: few misses, so more threads for the cache. */
    bool to_caches = (vacant > o->high * room) != (o->literal != 0);
    uint32_t caches = o->threads[KIND_CACHE] - (to_caches ? 0 : o->idle);
    uint32_t classifiers = o->threads[KIND_CLASSIFIER] - (to_caches ? o->idle : 0);
    if (caches == atomic_load(&p->active[KIND_CACHE]))
        return;
    atomic_store(&p->active[KIND_CACHE], caches);
    atomic_store(&p->active[KIND_CLASSIFIER], classifiers);
    if (to_caches)
        worker->stats.to_caches++;
    else
        worker->stats.to_classifiers++;
    pipeline_wake(p);
}

void *pipeline_updater_thread(void *argument)
{
    struct worker *worker = argument;
    struct pipeline *p = worker->p;
    unsigned tries = 0;
    wait_for_go(worker);
    while (!pipeline_ended(worker) && atomic_load(&p->caches_left)) {
        uint64_t packet;
        if (!fetch(worker, &packet)) {
            spin_pause(&tries);
            continue;
        }
        evolve_samples(worker->evolve, p->headers + packet * p->rules->dims, 1);
        worker->stats.samples++;
        worker->since++;
        bool published = pipeline_publish(worker, p->cache);
        /* After each publication, as in the paper; and without one, when the rules do not change for long. */
        if (p->options->idle && worker->number == 0 && (published || worker->stats.samples % 64 == 0))
            assign(worker);
    }
    return NULL;
}
