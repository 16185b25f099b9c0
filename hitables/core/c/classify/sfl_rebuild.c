/* SFL(A): building A anew (section IV-D), and putting it in place of the old one.
 *
 * Idea: a snapshot of the master list is what A is built from; when it is built, the difference between the
 * master list and the snapshot becomes the buffer.
 * Cost: that of a build of A, and O(n + updates since the snapshot) to put it in place.
 * Invariant: until the exchange, A as it was and the buffer hold the master list; after it, the new ones do.
 * Threading: the build needs no lock; snapshot and exchange have it alone.
 */
#include "budget.h"
#include "sfl_internal.h"

#include <string.h>

void sfl_drop_base(struct sfl *db, struct snapshot *base)
{
    vfdb_close(base->db);
    budget_give(db->budget, base->serial, base->count * sizeof *base->serial);
    budget_give(db->budget, base->priority, (base->count + 1) * sizeof *base->priority);
    budget_give(db->budget, base->deleted, (base->count + 1) * sizeof *base->deleted);
    box_soa_free(&base->box, db->budget);
    *base = (struct snapshot){.db = NULL};
}

static void drop_snapshot(struct sfl *db)
{
    budget_give(db->budget, db->next_priority, db->next.count * sizeof *db->next_priority);
    budget_give(db->budget, db->next_box, db->next.count * sfl_box_bytes(db));
    db->next_priority = db->next_box = NULL;
}

/* Notes the master list as it is for the next A. */
static int take_snapshot(struct sfl *db)
{
    struct snapshot *next = &db->next;
    *next = (struct snapshot){
        .count = db->count, .mark = db->serials, .box = {.dims = db->dims, .vector = db->vector}};
    next->serial = budget_take(db->budget, db->count * sizeof *next->serial);
    next->priority = budget_take(db->budget, (db->count + 1) * sizeof *next->priority);
    next->deleted = budget_take(db->budget, (db->count + 1) * sizeof *next->deleted);
    db->next_priority = budget_take(db->budget, db->count * sizeof *db->next_priority);
    db->next_box = budget_take(db->budget, db->count * sfl_box_bytes(db));
    bool listed = next->serial && db->next_priority && db->next_box &&
                  box_soa_reserve(&next->box, db->budget, db->count);
    if (!next->priority || !next->deleted || (db->count && !listed)) {
        drop_snapshot(db);
        sfl_drop_base(db, next);
        return VFDB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < db->count; i++) {
        const struct master_entry *rule = db->master[i];
        next->serial[i] = rule->serial;
        next->priority[i] = rule->priority;
        box_soa_insert(&next->box, i, rule->box);
        db->next_priority[i] = i;
        memcpy(db->next_box + i * 2 * (size_t)db->dims, rule->box, sfl_box_bytes(db));
    }
    next->priority[db->count] = VFDB_NONE;
    return VFDB_OK;
}

static int build_next(struct sfl *db)
{
    struct vfdb_rules rules = {db->dims, db->next.count, db->bits, db->next_priority, db->next_box};
    return vfdb_open_under(db->budget, db->plan->inner, &rules, &db->next.db);
}

/* The difference between the master list and the next A becomes the buffer, and the next A replaces A. */
static int adopt(struct sfl *db)
{
    struct snapshot *next = &db->next;
    struct inserted_list fresh = {.box = {.dims = db->dims, .vector = db->vector}};
    uint64_t updates = 0;
    uint32_t old = 0; /* the next rule of A's */
    int status = VFDB_OK;
    for (uint32_t i = 0; status == VFDB_OK && i < db->count; i++) {
        struct master_entry *rule = db->master[i];
        if (rule->serial >= next->mark) {
            status = sfl_note_inserted(db, &fresh, fresh.count, rule);
            updates++;
            continue;
        }
        for (; next->serial[old] != rule->serial; old++, updates++)
            next->deleted[old] = true;
        old++;
    }
    for (; status == VFDB_OK && old < next->count; old++, updates++)
        next->deleted[old] = true;
    if (status) {
        sfl_drop_inserted(db, &fresh);
        return status;
    }
    old = next->count;
    for (uint32_t i = db->count; i-- > 0;) {
        struct master_entry *rule = db->master[i];
        rule->old = rule->serial < next->mark;
        if (rule->old)
            while (next->serial[--old] != rule->serial)
                ;
        rule->index = old;
    }
    sfl_drop_inserted(db, &db->inserted);
    db->inserted = fresh;
    db->updates = updates;
    sfl_drop_base(db, &db->base);
    db->base = *next;
    *next = (struct snapshot){.db = NULL};
    return VFDB_OK;
}

/* End a build; the caller holds the lock alone.  One that was stopped stays due; one that failed would fail
 * again now. */
static void finish(struct sfl *db, int status)
{
    drop_snapshot(db);
    if (status == VFDB_OK)
        status = adopt(db);
    if (status)
        sfl_drop_base(db, &db->next);
    db->due = (status && status != VFDB_STOPPED ? db->updates : 0) + db->delta;
    db->ended = status;
    db->building = false;
}

static void *work(void *argument)
{
    struct sfl *db = argument;
    int status = build_next(db);
    pthread_rwlock_wrlock(&db->lock);
    finish(db, status);
    db->rebuilds += db->ended == VFDB_OK;
    pthread_rwlock_unlock(&db->lock);
    return NULL;
}

int sfl_first_build(struct sfl *db)
{
    int status = take_snapshot(db);
    if (status)
        return status;
    finish(db, build_next(db));
    return db->ended;
}

void sfl_build_if_due(struct sfl *db)
{
    if (db->building || db->updates <= db->due)
        return;
    build_thread_join(&db->build); /* it has ended, for this thread has the lock */
    int status = take_snapshot(db);
    if (status) {
        db->due = db->updates + db->delta;
        db->ended = status;
        return;
    }
    db->building = true;
    bool beside = db->background == SFL_PUBLISHED || (db->background == SFL_BESIDE && db->delta);
    if (!beside || !build_thread_start(&db->build, work, db)) {
        finish(db, build_next(db));
        db->rebuilds += db->ended == VFDB_OK;
    }
}
