#ifndef HITABLES_PIPELINE_H
#define HITABLES_PIPELINE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evolve.h"

/* The threads of Storm (sections 3.1 and 4): cache threads, classifiers, updaters.  See pipeline.c. */

struct vfdb;
struct vfdb_rules;

enum pipeline_limits { PIPELINE_THREADS = 64 /* of a kind at most */, PIPELINE_ENTRIES = 256 };

/* The kind of thread that answered for a packet, or the place where the packet was lost. */
enum pipeline_by { BY_CACHE, BY_CLASSIFIER, LOST_INPUT, LOST_RING, BY_NONE };

/* The kinds of threads. */
enum pipeline_kind { KIND_CACHE, KIND_CLASSIFIER, KIND_UPDATER, KINDS };

enum pipeline_status {
    PIPELINE_NO_THREAD = 100, /* the system gives no more threads */
    PIPELINE_STOPPED          /* by the flag of its caller */
};

struct pipeline_options {
    struct evolve_options evolve;
    uint32_t entries, form, copies, publish; /* of the rule cache */
    /* Threads of each kind; without classifiers, a cache thread classifies its own misses. */
    uint32_t threads[3];
    uint32_t own;   /* no updaters: each cache thread has evolving rules and a cache of its own */
    uint32_t every; /* of its packets, one is then a sample */
    /* Dynamic assignment: so many cache threads or classifiers are idle; 0: none ever is.  Above *high*
     * percent of free room in the rings the classifiers are, below *low* the cache threads; *literal*: the
     * other way round, as the paper's text has it. */
    uint32_t idle, low, high, literal;
    uint32_t batch;      /* packets that a cache thread or classifier takes at a time */
    uint32_t ring_room;  /* packets in all rings between cache threads and classifiers together */
    uint32_t input_room; /* packets that may wait in one stream of the input */
    uint32_t queue_room; /* samples in a queue for the updater; 0: the mailbox */
    uint32_t ring_locked, block, pin;
    double rate; /* packets a second that arrive; 0: all are there at once */
    /* For tests: thread *fault_number* of kind *fault_kind* (KINDS: none) fails at turn *fault_after*. */
    uint32_t fault_kind, fault_number, fault_after;
};

/* offered = hits + classified + lost_input + lost_ring, unless the run was ended early. */
struct pipeline_stats {
    uint64_t offered, hits, classified, lost_input, lost_ring;
    uint64_t samples, published, deferred;
    uint64_t to_caches, to_classifiers; /* switches of the dynamic assignment */
    uint64_t evolving;                  /* rules of the first updater at the end */
    uint64_t ns;                        /* from the first packet to the last */
    uint64_t bytes;
    uint64_t failed_kind, failed_number; /* the thread that failed; KINDS: none */
    uint64_t searched[257]; /* PIPELINE_ENTRIES + 1: packets by the entries of the cache that they read */
};

/* Send *count* headers through the pipeline.  rules, action [rules->count]: as evolve_open has them; *db*
 * holds the same rules.  answers[i]: the action of header i, unless by[i] (enum pipeline_by) says that it was
 * lost.
 * *stop*, if any, ends the run when it is not 0.  At most *limit* bytes (0: any number) are taken.
 * Returns an enum vfdb_status or pipeline_status. */
int pipeline_run(const struct pipeline_options *options, const struct vfdb_rules *rules,
                 const uint32_t *action, struct vfdb *db, const uint32_t *headers, size_t count,
                 uint32_t *answers, uint8_t *by, size_t limit, const volatile int *stop,
                 struct pipeline_stats *stats);

#endif
