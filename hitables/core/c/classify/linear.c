/* Linear search: the list itself.
 *
 * Idea: rules by rising priority, read from the first that matches.
 * Cost: O(n) per search, insert and remove.
 * Invariant: priorities rise, so the first match is the best; every other algorithm is checked against this.
 * Threading: searches change nothing.
 */
#include "linear.h"

#include <string.h>

#include "budget.h"
#include "search.h"
#include "vfdb.h"
#include "vfdb_work.h"

struct linear {
    struct budget *budget;
    uint32_t dims, count, room;
    uint32_t *priority; /* [room] */
    uint32_t *box;      /* [room][dims][2] */
};

static void linear_free(void *built)
{
    struct linear *db = built;
    budget_give(db->budget, db->priority, db->room * sizeof *db->priority);
    budget_give(db->budget, db->box, (size_t)db->room * 2 * db->dims * sizeof *db->box);
    budget_give(db->budget, db, sizeof *db);
}

static int resize(struct linear *db, uint32_t room)
{
    size_t row = 2 * (size_t)db->dims * sizeof *db->box;
    uint32_t *priority = budget_take(db->budget, room * sizeof *priority);
    uint32_t *box = priority ? budget_take(db->budget, room * row) : NULL;
    if (!box) {
        budget_give(db->budget, priority, room * sizeof *priority);
        return VFDB_NO_MEMORY;
    }
    if (db->count) {
        memcpy(priority, db->priority, db->count * sizeof *priority);
        memcpy(box, db->box, db->count * row);
    }
    budget_give(db->budget, db->priority, db->room * sizeof *priority);
    budget_give(db->budget, db->box, db->room * row);
    db->priority = priority;
    db->box = box;
    db->room = room;
    return VFDB_OK;
}

static int linear_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                        void **built)
{
    struct linear *db = budget_take(budget, sizeof *db);
    (void)plan;
    if (!db)
        return VFDB_NO_MEMORY;
    db->budget = budget;
    db->dims = rules->dims;
    if (resize(db, rules->count + 1)) {
        budget_give(budget, db, sizeof *db);
        return VFDB_NO_MEMORY;
    }
    if (rules->count) {
        memcpy(db->priority, rules->priority, rules->count * sizeof *db->priority);
        memcpy(db->box, rules->box, (size_t)rules->count * 2 * rules->dims * sizeof *db->box);
    }
    db->count = rules->count;
    *built = db;
    return VFDB_OK;
}

/* The first rule whose priority is not better. */
static uint32_t place_of(const struct linear *db, uint32_t priority)
{
    return lower_bound(db->priority, 1, db->count, priority);
}

static int linear_insert(void *built, const uint32_t *box, uint32_t priority)
{
    struct linear *db = built;
    size_t width = 2 * (size_t)db->dims;
    if (db->count == db->room && resize(db, 2 * db->room))
        return VFDB_NO_MEMORY;
    uint32_t at = place_of(db, priority);
    memmove(db->priority + at + 1, db->priority + at, (db->count - at) * sizeof *db->priority);
    memmove(db->box + (at + 1) * width, db->box + at * width, (db->count - at) * width * sizeof *db->box);
    db->priority[at] = priority;
    memcpy(db->box + at * width, box, width * sizeof *box);
    db->count++;
    return VFDB_OK;
}

static int linear_remove(void *built, const uint32_t *box, uint32_t priority)
{
    struct linear *db = built;
    size_t width = 2 * (size_t)db->dims;
    uint32_t at = place_of(db, priority);
    while (at < db->count && db->priority[at] == priority &&
           memcmp(db->box + at * width, box, width * sizeof *box))
        at++;
    if (at == db->count || db->priority[at] != priority)
        return VFDB_ABSENT;
    db->count--;
    memmove(db->priority + at, db->priority + at + 1, (db->count - at) * sizeof *db->priority);
    memmove(db->box + at * width, db->box + (at + 1) * width, (db->count - at) * width * sizeof *db->box);
    return VFDB_OK;
}

VFDB_BODY void read_rules(const struct linear *db, const uint32_t *headers, size_t count, uint32_t *answers,
                          struct vfdb_work *work, bool counted)
{
    uint32_t dims = db->dims;
    for (size_t i = 0; i < count; i++, headers += dims) {
        const uint32_t *box = db->box;
        uint32_t rule = 0;
        for (; rule < db->count; rule++, box += 2 * dims) {
            uint32_t d = 0;
            while (d < dims && headers[d] - box[2 * d] <= box[2 * d + 1] - box[2 * d])
                d++;
            if (d == dims)
                break;
        }
        answers[i] = rule < db->count ? db->priority[rule] : VFDB_NONE;
        if (counted) {
            work[i].lists++;
            work[i].rules += rule + (rule < db->count);
        }
    }
}

static int linear_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    read_rules(built, headers, count, answers, NULL, false);
    return VFDB_OK;
}

static int linear_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                                 struct vfdb_work *work)
{
    read_rules(built, headers, count, answers, work, true);
    return VFDB_OK;
}

struct vfdb_rules vfdb_linear_rules(const void *built, const uint8_t *bits)
{
    const struct linear *db = built;
    return (struct vfdb_rules){db->dims, db->count, bits, db->priority, db->box};
}

const struct vfdb_ops vfdb_linear = {
    .name = "linear",
    .title = "the list, from the first rule to the last",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .build = linear_build,
    .insert = linear_insert,
    .remove = linear_remove,
    .search = linear_search,
    .search_counted = linear_search_counted,
    .free = linear_free,
};
