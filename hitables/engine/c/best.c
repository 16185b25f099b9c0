/* The classifier that we would pick.
 *
 * Idea: the candidates are asked in turn, fastest first, and the first that fits is taken: that the
 * rules are not too interwoven for, and that keeps to the memory that is allowed.  Where more updates a second
 * are announced than rebuilding bears, only those are asked that update in place.  What
 * decides is counted, never timed: the same rules give the same structure.
 * Cost: that of what was picked; a candidate that does not fit costs a build that is given up.
 * Where what was picked does not update in place, everything is picked anew.
 * Threading: that of what was picked.
 */
#include <string.h>

#include "ledger.h"
#include "vfdb.h"

extern const struct vfdb_ops vfdb_tables, vfdb_sides, vfdb_tss, vfdb_linear;

struct best {
    struct ledger *ledger;
    const struct vfdb_ops *ops;
    void *picked;
};

enum { MEMORY, UPDATES, SIMD };

/* What may be picked, fastest first: all that take any ranges. */
static const struct candidate {
    const struct vfdb_ops *ops;
    int64_t value[8];
    int simd, memory; /* which of its parameters takes which of ours, or -1 */
} candidates[] = {
    {&vfdb_tables, {1, 8, 1 << 24}, 3, -1},
    {&vfdb_sides, {0, 16}, 2, 3},
    {&vfdb_tss, {8}, 1, -1},
    {&vfdb_linear, {0}, -1, -1},
};
enum { CANDIDATES = sizeof candidates / sizeof *candidates };

/* Half a second of each second may go into rebuilding, which takes about three microseconds per rule. */
static bool bears(const struct candidate *candidate, uint32_t rules, int64_t updates)
{
    return candidate->ops->insert || (double)updates * 3e-6 * (rules + 1000.0) < 0.5;
}

static int best_build(struct ledger *ledger, const struct vfdb_plan *plan, const struct vfdb_rules *rules, void **built)
{
    struct best *db = ledger_take(ledger, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    db->ledger = ledger;
    size_t before = ledger_bytes(ledger);
    int status = VFDB_TOO_LARGE;
    for (uint32_t c = 0; c < CANDIDATES; c++) {
        const struct candidate *candidate = &candidates[c];
        struct vfdb_plan picked = {.ops = candidate->ops};
        if (!bears(candidate, rules->count, plan->value[UPDATES]) || rules->dims < candidate->ops->least_dims ||
            rules->dims > candidate->ops->most_dims)
            continue;
        memcpy(picked.value, candidate->value, sizeof picked.value);
        if (candidate->simd >= 0)
            picked.value[candidate->simd] = candidate->ops == &vfdb_tss ? plan->value[SIMD] >= 512 : plan->value[SIMD];
        if (candidate->memory >= 0)
            picked.value[candidate->memory] = plan->value[MEMORY];
        status = candidate->ops->build(ledger, &picked, rules, &db->picked);
        db->ops = candidate->ops;
        if (status == VFDB_OK && plan->value[MEMORY] && ledger_bytes(ledger) - before > (size_t)plan->value[MEMORY]) {
            db->ops->free(db->picked);
            status = VFDB_NO_MEMORY;
        }
        if (status != VFDB_TOO_LARGE && status != VFDB_NO_MEMORY)
            break;
    }
    if (status) {
        ledger_give(ledger, db, sizeof *db);
        return status;
    }
    *built = db;
    return VFDB_OK;
}

static int best_insert(void *built, const uint32_t *box, uint32_t priority)
{
    struct best *db = built;
    return db->ops->insert ? db->ops->insert(db->picked, box, priority) : VFDB_ANEW;
}

static int best_remove(void *built, const uint32_t *box, uint32_t priority)
{
    struct best *db = built;
    return db->ops->remove ? db->ops->remove(db->picked, box, priority) : VFDB_ANEW;
}

static int best_search(const void *built, const uint32_t *headers, size_t count, uint32_t *found)
{
    const struct best *db = built;
    return db->ops->search(db->picked, headers, count, found);
}

static void best_free(void *built)
{
    struct best *db = built;
    db->ops->free(db->picked);
    ledger_give(db->ledger, db, sizeof *db);
}

const struct vfdb_ops vfdb_best = {
    .name = "best",
    .title = "what we would pick for the rules, the memory and the updates",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {{"memory", "bytes that the structure may take, 0 for any number", 0, 0, INT64_MAX},
              {"updates", "updates a second that are to come", 0, 0, 1000000000},
              {"simd", "bits of the widest vectors that a search may use: 0, 256, 512", 512, 0, 512}},
    .build = best_build,
    .insert = best_insert,
    .remove = best_remove,
    .search = best_search,
    .free = best_free,
};
