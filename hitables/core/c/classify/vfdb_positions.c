/* Insertion and deletion by position (The Small, the Fast and the Lazy, section III-B); answers as positions.
 *
 * Idea: the rule takes a priority between those of its neighbours (vfdb_order.c).  Where none is free, rules
 * around it get new priorities: one by one in a structure that can insert and remove, if they are few, else
 * by a new build.
 * Cost: that of an insertion and of O(log n) more, amortised; of a build at most once in log2(2^31 / n)
 * insertions, for what cannot be updated in place; a word per rule.
 * Invariant: new priorities keep the order of the rules, at every step, so answers stay right when memory
 * ends in between.
 * Threading: as vfdb.c; an answer and its position are of one moment.
 */
#define _GNU_SOURCE
#include "budget.h"
#include "vfdb.h"
#include "vfdb_internal.h"
#include "vfdb_list.h"
#include "vfdb_order.h"

/* Few: a build takes about as long as an update of one rule in eight. */
enum { SHARE = 8 };

static int have_order(struct vfdb *db)
{
    if (!db->order)
        db->order = vfdb_order_new(db->list_budget, db->list);
    return db->order ? VFDB_OK : VFDB_NO_MEMORY;
}

/* Rule *position* gets its new priority, in the structure too.  It goes in before it comes out: going in may
 * find no memory, and coming out needs none. */
static int move_rule(struct vfdb *db, uint32_t position, uint32_t to)
{
    uint32_t from = vfdb_order_priority(db->order, position);
    vfdb_list_rename(db->list, from, to);
    int status = vfdb_put_in(db, to);
    vfdb_list_rename(db->list, to, from);
    if (status)
        return status;
    status = vfdb_take_out(db, from);
    vfdb_list_rename(db->list, from, to);
    if (status) {
        bool before = vfdb_undo(true);
        vfdb_take_out(db, to);
        vfdb_undo(before);
        vfdb_list_rename(db->list, to, from);
        return status;
    }
    vfdb_order_rename(db->order, position, to);
    return VFDB_OK;
}

/* Those that move down from the first on, those that move up from the last: none meets another. */
static int spread_in_place(struct vfdb *db, const struct order_spread *spread)
{
    for (uint32_t i = spread->first; i < spread->first + spread->count; i++) {
        uint32_t to = vfdb_order_spread_priority(spread, i);
        int status = to < vfdb_order_priority(db->order, i) ? move_rule(db, i, to) : VFDB_OK;
        if (status)
            return status;
    }
    for (uint32_t i = spread->first + spread->count; i-- > spread->first;) {
        uint32_t to = vfdb_order_spread_priority(spread, i);
        int status = to > vfdb_order_priority(db->order, i) ? move_rule(db, i, to) : VFDB_OK;
        if (status)
            return status;
    }
    return VFDB_OK;
}

/* The rules of a spread get the priorities *label* in the list. */
static void relabel(struct vfdb *db, const struct order_spread *spread, const uint32_t *label)
{
    for (int down = 1; down >= 0; down--)
        for (uint32_t n = 0; n < spread->count; n++) {
            uint32_t k = down ? n : spread->count - 1 - n;
            uint32_t from = vfdb_order_priority(db->order, spread->first + k);
            if (down ? label[k] >= from : label[k] <= from)
                continue;
            vfdb_list_rename(db->list, from, label[k]);
            vfdb_order_rename(db->order, spread->first + k, label[k]);
        }
}

static int spread_anew(struct vfdb *db, const struct order_spread *spread)
{
    size_t bytes = 2 * (size_t)spread->count * sizeof(uint32_t);
    uint32_t *before = budget_take(db->list_budget, bytes), *after = before + spread->count;
    if (!before)
        return VFDB_NO_MEMORY;
    for (uint32_t k = 0; k < spread->count; k++) {
        before[k] = vfdb_order_priority(db->order, spread->first + k);
        after[k] = vfdb_order_spread_priority(spread, spread->first + k);
    }
    relabel(db, spread, after);
    int status = vfdb_rebuild(db);
    if (status)
        relabel(db, spread, before);
    budget_give(db->list_budget, before, bytes);
    return status;
}

/* A free priority before rule *position*. */
static int make_room(struct vfdb *db, uint32_t position, uint32_t *priority)
{
    struct order_spread spread;
    bool updates = db->ops->insert && db->ops->remove;
    int status = VFDB_ANEW;
    if (vfdb_order_between(db->order, position, priority))
        return VFDB_OK;
    if (updates) {
        if (!vfdb_order_spread(db->order, position, false, &spread))
            return VFDB_TOO_LARGE;
        if ((uint64_t)SHARE * spread.count <= vfdb_order_count(db->order))
            status = spread_in_place(db, &spread);
    }
    if (status == VFDB_ANEW)
        status =
            vfdb_order_spread(db->order, position, true, &spread) ? spread_anew(db, &spread) : VFDB_TOO_LARGE;
    if (status == VFDB_OK && !vfdb_order_between(db->order, position, priority))
        status = VFDB_TOO_LARGE;
    return status;
}

int vfdb_insert_at(struct vfdb *db, const uint32_t *boxes, uint32_t count, uint32_t position)
{
    uint32_t priority = 0;
    if (!count || !vfdb_sound(db, boxes, count))
        return VFDB_BAD_BOX;
    vfdb_begin_update(db);
    int status = have_order(db);
    if (status == VFDB_OK && position > vfdb_order_count(db->order))
        status = VFDB_NO_POSITION;
    if (status == VFDB_OK)
        status = make_room(db, position, &priority);
    if (status == VFDB_OK)
        status = vfdb_insert_rule(db, boxes, count, priority);
    vfdb_end_update(db);
    return status;
}

int vfdb_remove_at(struct vfdb *db, uint32_t position)
{
    vfdb_begin_update(db);
    int status = have_order(db);
    if (status == VFDB_OK && position >= vfdb_order_count(db->order))
        status = VFDB_NO_POSITION;
    if (status == VFDB_OK)
        status = vfdb_remove_rule(db, vfdb_order_priority(db->order, position));
    vfdb_end_update(db);
    return status;
}

int vfdb_search_positions(struct vfdb *db, const uint32_t *headers, size_t count, uint32_t *answers)
{
    int status = VFDB_OK;
    pthread_rwlock_rdlock(&db->lock);
    while (!db->order && status == VFDB_OK) {
        pthread_rwlock_unlock(&db->lock);
        pthread_rwlock_wrlock(&db->lock);
        status = have_order(db);
        pthread_rwlock_unlock(&db->lock);
        pthread_rwlock_rdlock(&db->lock);
    }
    if (status == VFDB_OK && count)
        status = db->ops->search(db->built, headers, count, answers);
    for (size_t i = 0; status == VFDB_OK && i < count; i++)
        if (answers[i] != VFDB_NONE)
            answers[i] = vfdb_order_position(db->order, answers[i]);
    pthread_rwlock_unlock(&db->lock);
    return status;
}
