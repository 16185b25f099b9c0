#ifndef HITABLES_PIPELINE_INTERNAL_H
#define HITABLES_PIPELINE_INTERNAL_H
#include <pthread.h>

#include "pipeline.h"
#include "ring.h"
#include "rule_cache.h"

enum { PIPELINE_BATCH = 32, STREAM_BLOCK = 128 };

/* Blocks number, number + streams, ... of the trace, as one queue of a network card would receive them.  A
 * block is some cache lines of answers, so that cache threads seldom write to the same line. */
struct stream {
    _Alignas(64) atomic_uint locked; /* by the cache thread that takes packets */
    uint64_t next, count;            /* packets of it that were taken, and that there are */
};

struct pipeline;

struct worker {
    _Alignas(64) pthread_t thread;
    struct pipeline *p;
    uint32_t kind, number, turns, pushes;
    uint32_t from;  /* the cache thread whose mailbox or queue was read last */
    uint32_t since; /* samples since the last publication */
    struct evolve *evolve; /* of an updater, or of a cache thread with rules of its own */
    struct rule_cache *cache;
    struct ring samples; /* of a cache thread: the queue of samples, if there is one */
    uint64_t taken;      /* of a cache thread with rules of its own: the packets that it has taken */
    uint64_t seen[PIPELINE_THREADS];            /* of an updater: *newest* of each cache thread, read last */
    uint32_t words[PIPELINE_BATCH * VFDB_DIMS]; /* of a classifier: the headers of a batch */
    struct pipeline_stats stats;
    /* Of a cache thread: its mailbox, the number of its newest packet and 1; 0: none yet. */
    _Alignas(64) _Atomic uint64_t newest;
};

/* A ring, and a lock on each of its ends (pipeline_threads.c: Threading). */
struct link {
    struct ring ring;
    _Alignas(64) atomic_uint producer; /* locked */
    _Alignas(64) atomic_uint consumer;
};

struct pipeline {
    const struct pipeline_options *options;
    struct budget *budget;
    const struct vfdb_rules *rules;
    const uint32_t *action;
    struct vfdb *db;
    const uint32_t *headers;
    size_t count;
    uint32_t *answers;
    uint8_t *by;
    const volatile int *stop;

    uint32_t streams, links;
    struct stream *stream; /* [streams] */
    struct link *link;     /* [links] */
    struct rule_cache *cache;
    atomic_uint publishing; /* locked by the updater that publishes */
    struct worker *worker[KINDS]; /* [threads of the kind] */

    atomic_bool go, ended;             /* ended: early, or by a failure */
    atomic_uint streams_left, caches_left; /* with packets; that have not returned */
    atomic_uint active[KINDS];         /* threads of a kind that are not idle */
    atomic_int status;
    atomic_uint failed_kind, failed_number;
    pthread_mutex_t idle_lock;
    pthread_cond_t idle_change;
    uint64_t start; /* ns */
};

uint64_t pipeline_now(void);
/* The packets of a stream among the first *packets* of the trace. */
uint64_t pipeline_stream_count(const struct pipeline *p, uint32_t number, uint64_t packets);
/* This thread failed: the whole pipeline ends. */
void pipeline_fail(struct worker *worker, int status);
void pipeline_wake(struct pipeline *p);
/* The thread of each kind. */
void *pipeline_cache_thread(void *worker);
void *pipeline_classifier_thread(void *worker);
void *pipeline_updater_thread(void *worker);
/* Publish the rules of a worker where they have changed. */
bool pipeline_publish(struct worker *worker, struct rule_cache *cache);

/* Whether the run has ended early. */
static inline bool pipeline_ended(struct worker *worker)
{
    struct pipeline *p = worker->p;
    const struct pipeline_options *o = p->options;
    if (p->stop && *p->stop)
        pipeline_fail(worker, PIPELINE_STOPPED);
    if (worker->kind == o->fault_kind && worker->number == o->fault_number &&
        worker->turns++ == o->fault_after)
        pipeline_fail(worker, VFDB_NO_MEMORY);
    return atomic_load_explicit(&p->ended, memory_order_relaxed);
}

#endif
