/* The dispatcher of the Virtual Filter Database.
 *
 * Idea: it alone keeps the list of rules; where an algorithm cannot insert or remove, the structure is built
 * anew from the list.  Where an algorithm needs prefixes, boxes are cut into products of prefixes.
 * Cost: that of the algorithm; a rebuild sorts the list and builds as if anew.  A build is stopped by
 * refusing it memory.
 * Invariant: list and structure hold the same rules after every call, whether it succeeded or not.
 * Threading: searches share a lock that updates take alone.
 */
#define _GNU_SOURCE
#include "vfdb.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "vfdb_internal.h"
#include "vfdb_list.h"
#include "vfdb_lock.h"
#include "vfdb_order.h"

#define ALGORITHM(name) extern const struct vfdb_ops vfdb_##name;
#include "registry.h"
#undef ALGORITHM

#define ALGORITHM(name) &vfdb_##name,
static const struct vfdb_ops *const algorithms[] = {
#include "registry.h"
};
#undef ALGORITHM

const struct vfdb_ops *vfdb_algorithm(uint32_t number)
{
    return number < sizeof algorithms / sizeof *algorithms ? algorithms[number] : NULL;
}

/* The largest prefix that starts at low and ends by high. */
static uint32_t prefix_end(uint32_t low, uint32_t high)
{
    uint64_t size = low ? low & -low : UINT64_C(1) << 32;
    while (low + size - 1 > high)
        size /= 2;
    return (uint32_t)(low + size - 1);
}

/* The pieces of a box whose first *cut* intervals become prefixes. */
struct box_pieces {
    const uint32_t *box;
    uint32_t dims, cut;
    uint32_t piece[2 * VFDB_DIMS];
    bool done;
};

static void first_piece(struct box_pieces *p, const uint32_t *box, uint32_t dims, uint32_t cut)
{
    *p = (struct box_pieces){.box = box, .dims = dims, .cut = cut < dims ? cut : dims};
    memcpy(p->piece, box, 2 * dims * sizeof *box);
    for (uint32_t d = 0; d < p->cut; d++)
        p->piece[2 * d + 1] = prefix_end(box[2 * d], box[2 * d + 1]);
}

static void next_piece(struct box_pieces *p)
{
    for (uint32_t d = 0; d < p->cut; d++) {
        uint32_t *side = p->piece + 2 * d;
        bool turned = side[1] == p->box[2 * d + 1];
        side[0] = turned ? p->box[2 * d] : side[1] + 1;
        side[1] = prefix_end(side[0], p->box[2 * d + 1]);
        if (!turned)
            return;
    }
    p->done = true;
}

bool vfdb_sound(const struct vfdb *db, const uint32_t *boxes, uint32_t count)
{
    for (uint32_t i = 0; i < count * db->dims; i++) {
        uint32_t top = (uint32_t)((UINT64_C(1) << db->bits[i % db->dims]) - 1);
        if (boxes[2 * i] > boxes[2 * i + 1] || boxes[2 * i + 1] > top)
            return false;
    }
    return true;
}

/* The list's boxes, cut, as build reads them; their number.  NULL arrays: they are only counted. */
static uint64_t lay_out(const struct vfdb *db, const uint32_t *sorted, uint32_t *priority, uint32_t *box)
{
    uint64_t count = 0;
    struct box_pieces p;
    for (uint32_t i = 0; i < vfdb_list_boxes(db->list); i++)
        for (first_piece(&p, vfdb_list_box(db->list, sorted[i]), db->dims, db->ops->prefix_dims); !p.done;
             next_piece(&p)) {
            if (box) {
                priority[count] = vfdb_list_priority(db->list, sorted[i]);
                memcpy(box + count * 2 * db->dims, p.piece, 2 * db->dims * sizeof *box);
            }
            count++;
        }
    return count;
}

static _Thread_local bool undoing;

bool vfdb_undo(bool now)
{
    bool before = undoing;
    undoing = now;
    return before;
}

static int build(struct vfdb *db, void **built)
{
    uint32_t *sorted, *priority = NULL, *box = NULL;
    int status = vfdb_list_sorted(db->list, db->list_budget, &sorted);
    if (status)
        return status;
    uint64_t count = lay_out(db, sorted, NULL, NULL);
    size_t box_bytes = 2 * (size_t)db->dims * sizeof *box;
    if (count >= VFDB_NONE) {
        status = VFDB_TOO_LARGE;
    } else if (count) {
        priority = budget_take(db->list_budget, count * sizeof *priority);
        box = priority ? budget_take(db->list_budget, count * box_bytes) : NULL;
        status = box ? VFDB_OK : VFDB_NO_MEMORY;
    }
    if (status == VFDB_OK) {
        lay_out(db, sorted, priority, box);
        struct vfdb_rules rules = {db->dims, (uint32_t)count, db->bits, priority, box};
        budget_stops(db->budget, undoing ? NULL : db->plan->stop);
        status = db->ops->build(db->budget, db->plan, &rules, built);
        if (status && budget_stopped(db->budget))
            status = VFDB_STOPPED;
        budget_stops(db->budget, NULL);
        db->builds += status == VFDB_OK;
    }
    budget_give(db->list_budget, box, count * box_bytes);
    budget_give(db->list_budget, priority, count * sizeof *priority);
    budget_give(db->list_budget, sorted, vfdb_list_boxes(db->list) * sizeof *sorted);
    return status;
}

int vfdb_rebuild(struct vfdb *db)
{
    void *built;
    int status = build(db, &built);
    if (status)
        return status;
    db->ops->free(db->built);
    db->built = built;
    return VFDB_OK;
}

/* Open in the budgets, which the database frees at its end; either may be NULL when memory is exhausted. */
static int open_in(struct budget *budget, struct budget *list_budget, const struct vfdb_plan *plan,
                   const struct vfdb_rules *rules, struct vfdb **opened)
{
    struct vfdb *db = calloc(1, sizeof *db); /* not from the budgets, which it owns */
    *opened = NULL;
    if (!db) {
        budget_free(budget);
        budget_free(list_budget);
        return VFDB_NO_MEMORY;
    }
    assert(rules->dims && rules->dims <= VFDB_DIMS);
    db->plan = plan;
    db->ops = plan->ops;
    db->dims = rules->dims;
    memcpy(db->bits, rules->bits, rules->dims);
    vfdb_lock_init(&db->lock);
    db->budget = budget;
    db->list_budget = list_budget;
    db->list = db->list_budget ? vfdb_list_new(db->list_budget, db->dims) : NULL;
    int status = db->budget && db->list ? VFDB_OK : VFDB_NO_MEMORY;
    for (uint32_t i = 0, end; status == VFDB_OK && i < rules->count; i = end) {
        for (end = i + 1; end < rules->count && rules->priority[end] == rules->priority[i]; end++)
            ;
        const uint32_t *boxes = rules->box + (size_t)i * 2 * db->dims;
        status = vfdb_sound(db, boxes, end - i) ? vfdb_list_add(db->list, boxes, end - i, rules->priority[i])
                                                : VFDB_BAD_BOX;
    }
    if (status == VFDB_OK)
        status = build(db, &db->built);
    if (status) {
        vfdb_close(db);
        return status;
    }
    *opened = db;
    return VFDB_OK;
}

int vfdb_open(const struct vfdb_plan *plan, const struct vfdb_rules *rules, size_t limit,
              struct vfdb **opened)
{
    return open_in(budget_new(limit), budget_new(0), plan, rules, opened);
}

int vfdb_open_under(struct budget *above, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                    struct vfdb **opened)
{
    return open_in(budget_under(above), budget_under(above), plan, rules, opened);
}

void vfdb_close(struct vfdb *db)
{
    if (!db)
        return;
    if (db->built)
        db->ops->free(db->built);
    vfdb_order_free(db->order);
    vfdb_list_free(db->list);
    budget_free(db->list_budget);
    budget_free(db->budget);
    pthread_rwlock_destroy(&db->lock);
    free(db);
}

/* Remove the first *pieces* pieces of a box from the structure. */
static int box_out(struct vfdb *db, const uint32_t *box, uint32_t priority, uint64_t pieces)
{
    struct box_pieces p;
    uint64_t done = 0;
    for (first_piece(&p, box, db->dims, db->ops->prefix_dims); !p.done && done < pieces;
         next_piece(&p), done++) {
        int status = db->ops->remove(db->built, p.piece, priority);
        if (status == VFDB_OK)
            continue;
        /* Insert the removed pieces again, in the room that they left. */
        bool before = vfdb_undo(true);
        for (first_piece(&p, box, db->dims, db->ops->prefix_dims); done--; next_piece(&p))
            db->ops->insert(db->built, p.piece, priority);
        vfdb_undo(before);
        return status;
    }
    return VFDB_OK;
}

static int box_in(struct vfdb *db, const uint32_t *box, uint32_t priority)
{
    struct box_pieces p;
    uint64_t done = 0;
    for (first_piece(&p, box, db->dims, db->ops->prefix_dims); !p.done; next_piece(&p), done++) {
        int status = db->ops->insert(db->built, p.piece, priority);
        if (status) {
            bool before = vfdb_undo(true);
            box_out(db, box, priority, done);
            vfdb_undo(before);
            return status;
        }
    }
    return VFDB_OK;
}

int vfdb_put_in(struct vfdb *db, uint32_t priority)
{
    uint32_t first = vfdb_list_find(db->list, priority);
    for (uint32_t at = first; at != VFDB_NONE; at = vfdb_list_next(db->list, at)) {
        int status = box_in(db, vfdb_list_box(db->list, at), priority);
        if (status) {
            bool before = vfdb_undo(true);
            for (; first != at; first = vfdb_list_next(db->list, first))
                box_out(db, vfdb_list_box(db->list, first), priority, UINT64_MAX);
            vfdb_undo(before);
            return status;
        }
    }
    return VFDB_OK;
}

int vfdb_take_out(struct vfdb *db, uint32_t priority)
{
    uint32_t first = vfdb_list_find(db->list, priority);
    for (uint32_t at = first; at != VFDB_NONE; at = vfdb_list_next(db->list, at)) {
        int status = box_out(db, vfdb_list_box(db->list, at), priority, UINT64_MAX);
        if (status) {
            bool before = vfdb_undo(true);
            for (; first != at; first = vfdb_list_next(db->list, first))
                box_in(db, vfdb_list_box(db->list, first), priority);
            vfdb_undo(before);
            return status;
        }
    }
    return VFDB_OK;
}

void vfdb_begin_update(struct vfdb *db)
{
    for (;;) {
        vfdb_ready(db, true); /* with the shared lock, so that searches go on */
        pthread_rwlock_wrlock(&db->lock);
        if (!db->ops->ready || db->ops->ready(db->built, false))
            return;
        pthread_rwlock_unlock(&db->lock);
    }
}

void vfdb_end_update(struct vfdb *db)
{
    if (db->ops->updated)
        db->ops->updated(db->built);
    pthread_rwlock_unlock(&db->lock);
}

int vfdb_insert_rule(struct vfdb *db, const uint32_t *boxes, uint32_t count, uint32_t priority)
{
    if (priority == VFDB_NONE || !count || !vfdb_sound(db, boxes, count))
        return VFDB_BAD_BOX;
    if (db->order && !vfdb_order_reserve(db->order))
        return VFDB_NO_MEMORY;
    int status = vfdb_list_add(db->list, boxes, count, priority);
    if (status)
        return status;
    status = db->ops->insert ? vfdb_put_in(db, priority) : VFDB_ANEW;
    if (status == VFDB_ANEW)
        status = vfdb_rebuild(db);
    if (status)
        vfdb_list_drop(db->list, priority);
    else if (db->order)
        vfdb_order_insert(db->order, priority);
    return status;
}

static int without(struct vfdb *db, uint32_t priority)
{
    uint32_t at = vfdb_list_find(db->list, priority);
    if (at == VFDB_NONE)
        return VFDB_ABSENT;
    if (db->ops->remove) {
        int status = vfdb_take_out(db, priority);
        if (status != VFDB_ANEW)
            return status ? status : vfdb_list_drop(db->list, priority);
    }
    /* Build reads the list, so the rule is removed from it first, and restored if the build fails. */
    uint32_t count = 0;
    for (uint32_t i = at; i != VFDB_NONE; i = vfdb_list_next(db->list, i))
        count++;
    size_t bytes = 2 * (size_t)db->dims * sizeof(uint32_t), i = 0;
    uint32_t *kept = budget_take(db->list_budget, count * bytes);
    if (!kept)
        return VFDB_NO_MEMORY;
    for (; at != VFDB_NONE; at = vfdb_list_next(db->list, at))
        memcpy(kept + i++ * 2 * db->dims, vfdb_list_box(db->list, at), bytes);
    vfdb_list_drop(db->list, priority);
    int status = vfdb_rebuild(db);
    if (status) {
        int back = vfdb_list_add(db->list, kept, count, priority);
        assert(back == VFDB_OK); /* its slots and its place in the table are free still */
        (void)back;
    }
    budget_give(db->list_budget, kept, count * bytes);
    return status;
}

int vfdb_remove_rule(struct vfdb *db, uint32_t priority)
{
    int status = without(db, priority);
    if (status == VFDB_OK && db->order)
        vfdb_order_remove(db->order, priority);
    return status;
}

int vfdb_insert(struct vfdb *db, const uint32_t *boxes, uint32_t count, uint32_t priority)
{
    vfdb_begin_update(db);
    int status = vfdb_insert_rule(db, boxes, count, priority);
    vfdb_end_update(db);
    return status;
}

int vfdb_remove(struct vfdb *db, uint32_t priority)
{
    vfdb_begin_update(db);
    int status = vfdb_remove_rule(db, priority);
    vfdb_end_update(db);
    return status;
}

/* It is made again when a position is asked for. */
static void drop_order(struct vfdb *db)
{
    vfdb_order_free(db->order);
    db->order = NULL;
}

int vfdb_put(struct vfdb *db, const uint32_t *box, uint32_t priority)
{
    vfdb_begin_update(db);
    drop_order(db);
    int status = vfdb_list_extend(db->list, box, priority);
    if (status == VFDB_OK) {
        status = db->ops->insert ? box_in(db, box, priority) : VFDB_ANEW;
        if (status == VFDB_ANEW)
            status = vfdb_rebuild(db);
        if (status)
            vfdb_list_shrink(db->list, box, priority);
    }
    vfdb_end_update(db);
    return status;
}

int vfdb_take(struct vfdb *db, const uint32_t *box, uint32_t priority)
{
    vfdb_begin_update(db);
    drop_order(db);
    int status = vfdb_list_shrink(db->list, box, priority);
    if (status == VFDB_OK) {
        status = db->ops->remove ? box_out(db, box, priority, UINT64_MAX) : VFDB_ANEW;
        if (status == VFDB_ANEW)
            status = vfdb_rebuild(db);
        if (status)
            vfdb_list_extend(db->list, box, priority); /* into the room that it left */
    }
    vfdb_end_update(db);
    return status;
}

int vfdb_update(struct vfdb *db, uint32_t count, const uint8_t *inserts, const uint32_t *boxes,
                const uint32_t *priority, uint32_t *done)
{
    int status = VFDB_OK;
    for (*done = 0; *done < count; ++*done) {
        const uint32_t *box = boxes + (size_t)*done * 2 * db->dims;
        status = inserts[*done] ? vfdb_insert(db, box, 1, priority[*done]) : vfdb_remove(db, priority[*done]);
        if (status)
            break;
    }
    return status;
}

int vfdb_search(struct vfdb *db, const uint32_t *headers, size_t count, uint32_t *answers)
{
    if (!count)
        return VFDB_OK;
    pthread_rwlock_rdlock(&db->lock);
    int status = db->ops->search(db->built, headers, count, answers);
    pthread_rwlock_unlock(&db->lock);
    return status;
}

int vfdb_search_counted(struct vfdb *db, const uint32_t *headers, size_t count, uint32_t *answers,
                        struct vfdb_work *work)
{
    if (!db->ops->search_counted)
        return VFDB_UNCOUNTED;
    pthread_rwlock_rdlock(&db->lock);
    int status = count ? db->ops->search_counted(db->built, headers, count, answers, work) : VFDB_OK;
    pthread_rwlock_unlock(&db->lock);
    return status;
}

static int chain_calls(int (*call)(const void *, const uint32_t *, size_t, uint32_t *), const struct vfdb *db,
                       const uint32_t *headers, size_t count, uint32_t *answers)
{
    int status = VFDB_OK;
    /* No rule has this priority, which neither the compiler nor the processor knows. */
    volatile uint32_t never = VFDB_NONE - 1;
    for (size_t i = 0; i < count && status == VFDB_OK; i++) {
        status = call(db->built, headers, 1, answers + i);
        headers += db->dims * (1 + (size_t)(answers[i] == never));
    }
    return status;
}

int vfdb_search_chained(struct vfdb *db, const uint32_t *headers, size_t count, uint32_t *answers)
{
    pthread_rwlock_rdlock(&db->lock);
    int status = chain_calls(db->ops->search, db, headers, count, answers);
    pthread_rwlock_unlock(&db->lock);
    return status;
}

int vfdb_walk(struct vfdb *db, const uint32_t *headers, size_t count, bool chained, uint32_t *steps)
{
    if (!db->ops->walk)
        return VFDB_UNCOUNTED;
    pthread_rwlock_rdlock(&db->lock);
    int status = chained ? chain_calls(db->ops->walk, db, headers, count, steps)
                         : db->ops->walk(db->built, headers, count, steps);
    pthread_rwlock_unlock(&db->lock);
    return status;
}
