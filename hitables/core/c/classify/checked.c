/* checked(A): A, with linear search beside it.
 *
 * Idea: both hold the rules and both are searched; a search in which their answers differ fails, and so does
 * one of a header that no packet has: a value wider than its dimension, for which algorithms may differ.
 * Cost: that of both.
 * Invariant: both hold the same rules.
 * Threading: as A.
 */
#include <string.h>

#include "budget.h"
#include "vfdb.h"
#include "vfdb_internal.h"

extern const struct vfdb_ops vfdb_linear;

static const struct vfdb_plan linear_plan = {.ops = &vfdb_linear};

struct checked {
    struct budget *budget;
    uint32_t dims;
    uint8_t bits[VFDB_DIMS];
    struct vfdb *inner, *linear;
};

static void checked_free(void *built)
{
    struct checked *db = built;
    vfdb_close(db->inner);
    vfdb_close(db->linear);
    budget_give(db->budget, db, sizeof *db);
}

static int checked_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                         void **built)
{
    struct checked *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    db->budget = budget;
    db->dims = rules->dims;
    memcpy(db->bits, rules->bits, rules->dims);
    int status = vfdb_open_under(budget, plan->inner, rules, &db->inner);
    if (status == VFDB_OK)
        status = vfdb_open_under(budget, &linear_plan, rules, &db->linear);
    if (status)
        checked_free(db);
    else
        *built = db;
    return status;
}

static int checked_insert(void *built, const uint32_t *box, uint32_t priority)
{
    struct checked *db = built;
    int status = vfdb_put(db->inner, box, priority);
    if (status)
        return status;
    status = vfdb_put(db->linear, box, priority);
    if (status) {
        bool before = vfdb_undo(true);
        vfdb_take(db->inner, box, priority);
        vfdb_undo(before);
    }
    return status;
}

static int checked_remove(void *built, const uint32_t *box, uint32_t priority)
{
    struct checked *db = built;
    int status = vfdb_take(db->inner, box, priority);
    if (status)
        return status;
    status = vfdb_take(db->linear, box, priority);
    if (status) {
        bool before = vfdb_undo(true);
        vfdb_put(db->inner, box, priority);
        vfdb_undo(before);
    }
    return status;
}

static bool fits(const struct checked *db, const uint32_t *headers, size_t count)
{
    for (size_t i = 0; i < count * db->dims; i++)
        if ((uint64_t)headers[i] >> db->bits[i % db->dims])
            return false;
    return true;
}

/* *work* NULL: not counted; it is that of A alone. */
static int search_both(const struct checked *db, const uint32_t *headers, size_t count, uint32_t *answers,
                       struct vfdb_work *work)
{
    enum { BATCH = 512 };
    uint32_t wanted[BATCH];
    for (size_t at = 0, batch; at < count; at += batch, headers += batch * db->dims) {
        batch = count - at < BATCH ? count - at : BATCH;
        if (!fits(db, headers, batch))
            return VFDB_WIDE_HEADER;
        int status = work ? vfdb_search_counted(db->inner, headers, batch, answers + at, work + at)
                          : vfdb_search(db->inner, headers, batch, answers + at);
        if (status == VFDB_OK)
            status = vfdb_search(db->linear, headers, batch, wanted);
        if (status == VFDB_OK && memcmp(wanted, answers + at, batch * sizeof *wanted))
            status = VFDB_DISAGREE;
        if (status)
            return status;
    }
    return VFDB_OK;
}

static int checked_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    return search_both(built, headers, count, answers, NULL);
}

static int checked_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                                  struct vfdb_work *work)
{
    return search_both(built, headers, count, answers, work);
}

static bool checked_ready(void *built, bool wait)
{
    return vfdb_ready(((struct checked *)built)->inner, wait);
}

static int checked_settle(void *built)
{
    return vfdb_settle(((struct checked *)built)->inner);
}

static uint64_t checked_rebuilds(const void *built)
{
    return vfdb_rebuilds(((const struct checked *)built)->inner);
}

const struct vfdb_ops vfdb_checked = {
    .name = "checked",
    .title = "another algorithm, and linear search beside it: a search in which they part fails",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .wraps = true,
    .build = checked_build,
    .insert = checked_insert,
    .remove = checked_remove,
    .search = checked_search,
    .search_counted = checked_search_counted,
    .ready = checked_ready,
    .settle = checked_settle,
    .rebuilds = checked_rebuilds,
    .free = checked_free,
};
