#ifndef HITABLES_SFL_INTERNAL_H
#define HITABLES_SFL_INTERNAL_H
#include <pthread.h>

#include "box_soa.h"
#include "build_thread.h"
#include "vfdb.h"

/* SFL(A), for its files: sfl.c, sfl_rebuild.c. */

/* While A is built: nothing else goes on; searches and updates go on with A as it was and the buffer; the
 * master list answers, and updates wait. */
enum sfl_background { SFL_AT_ONCE, SFL_BESIDE, SFL_PUBLISHED };

/* A box of the master list.  *index*: if it is *old* its index in A's rules, else that of the rule behind it.
 */
struct master_entry {
    uint64_t serial;
    uint32_t priority, index;
    bool old;
    uint32_t box[];
};

/* A, and the rules that it was built from, in order; the serials of all of them are below *mark*. */
struct snapshot {
    struct vfdb *db;
    uint32_t count;
    uint64_t *serial, mark;
    struct box_soa box;
    uint32_t *priority; /* [count + 1] the last: none */
    bool *deleted; /* [count + 1] */
};

/* Rules that A does not have, best first; so their indices never fall. */
struct inserted_list {
    struct box_soa box;
    struct master_entry **rule;
    uint32_t count, room;
};

struct sfl {
    struct budget *budget;
    const struct vfdb_plan *plan;
    uint32_t dims, delta;
    uint32_t background; /* enum sfl_background */
    bool vector;
    uint8_t bits[VFDB_DIMS];
    pthread_rwlock_t lock;

    struct master_entry **master;
    uint32_t count, room;
    uint64_t serials;
    struct snapshot base;
    struct inserted_list inserted;
    uint64_t updates, due; /* updates in the buffer; A is built again when they exceed *due* */

    bool building; /* a build is going on */
    struct build_thread build;
    struct snapshot next;
    uint32_t *next_priority, *next_box; /* the rules that it is built from, their indices as priorities */
    int ended;         /* the status of the last build */
    uint64_t rebuilds; /* that succeeded, after the first */
};

static inline size_t sfl_box_bytes(const struct sfl *db)
{
    return 2 * (size_t)db->dims * sizeof(uint32_t);
}

/* The inserted rules. */
int sfl_note_inserted(struct sfl *db, struct inserted_list *list, uint32_t at, struct master_entry *rule);
void sfl_drop_inserted(struct sfl *db, struct inserted_list *list);

/* Build A for the first time; again if it is due (the caller has the lock alone). */
int sfl_first_build(struct sfl *db);
void sfl_build_if_due(struct sfl *db);
/* Free A and what was kept with it. */
void sfl_drop_base(struct sfl *db, struct snapshot *base);

#endif
