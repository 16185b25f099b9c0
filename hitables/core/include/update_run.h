#ifndef HITABLES_UPDATE_RUN_H
#define HITABLES_UPDATE_RUN_H
#include <stddef.h>
#include <stdint.h>

/* The simulator of The Small, the Fast and the Lazy (section V-C): four threads for some seconds.  See
 * update_run.c. */

struct vfdb;

enum update_run_status {
    UPDATE_RUN_NO_THREAD = 100, /* the system gives no more threads */
    UPDATE_RUN_STOPPED          /* by the flag of its caller */
};

/* Updates of rules of one box each, evenly over the time of the run: *insert* box i, or else remove
 * priority[i]. */
struct update_list {
    uint32_t count, insert;
    const uint32_t *box;      /* [count][dims][2] */
    const uint32_t *priority; /* [count] */
};

struct update_run_stats {
    uint64_t processed; /* headers that were classified within the time */
    uint64_t done;      /* updates that were complete within the time */
    uint64_t ns;        /* from the start to the end of the last thread but the updater */
    uint64_t rebuilds;  /* of the classifier (vfdb_rebuilds), the last one finished */
};

/* Run for *ns* nanoseconds.  headers: [count][dims], which are fed again and again, count > 0.  tick[i]: the
 * headers classified in the i-th of *ticks* equal parts of the time.  *stop*, if any, ends the run when it is
 * not 0.  Returns an enum vfdb_status or update_run_status. */
int update_run(struct vfdb *db, uint32_t dims, const uint32_t *headers, size_t count,
               const struct update_list *updates, uint64_t ns, uint64_t *tick, uint32_t ticks,
               const volatile int *stop, struct update_run_stats *stats);

#endif
