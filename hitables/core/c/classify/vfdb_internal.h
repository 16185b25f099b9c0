#ifndef HITABLES_VFDB_INTERNAL_H
#define HITABLES_VFDB_INTERNAL_H
#include <pthread.h>

#include "vfdb.h"

/* A database, for the files of the dispatcher: vfdb.c, vfdb_positions.c and vfdb_stats.c. */
struct vfdb_order;

struct vfdb {
    const struct vfdb_plan *plan;
    const struct vfdb_ops *ops;
    uint32_t dims;
    uint8_t bits[VFDB_DIMS];
    struct budget *budget, *list_budget;
    struct vfdb_list *list;
    void *built;
    struct vfdb_order *order; /* of the rules; NULL until a position is used */
    uint64_t builds;
    pthread_rwlock_t lock;
};

/* Take the lock alone, as soon as the structure can take an update; searches go on until then. */
void vfdb_begin_update(struct vfdb *db);
/* The update is complete: the structure may start its work in the background.  Gives the lock back. */
void vfdb_end_update(struct vfdb *db);

/* Also for an algorithm: while *now*, builds of this thread are not stopped, as they put back what a refused
 * update has changed.  Returns what held before. */
bool vfdb_undo(bool now);

/* For a caller that has the lock alone.  Of vfdb_put_in and vfdb_take_out the rule is in the list; one that
 * returns VFDB_ANEW has changed nothing. */
bool vfdb_sound(const struct vfdb *db, const uint32_t *boxes, uint32_t count);
int vfdb_rebuild(struct vfdb *db);
int vfdb_put_in(struct vfdb *db, uint32_t priority);
int vfdb_take_out(struct vfdb *db, uint32_t priority);
int vfdb_insert_rule(struct vfdb *db, const uint32_t *boxes, uint32_t count, uint32_t priority);
int vfdb_remove_rule(struct vfdb *db, uint32_t priority);

#endif
