/* The classifier that we would select.
 *
 * Idea: candidates are tried in turn, fastest first, and the first that fits is taken: one for which the
 * rules are not too interwoven, and which keeps the memory limit.  If more updates a second are expected than
 * rebuilding allows, only candidates that update in place are tried.  Where rules share addresses the buckets
 * and lists of `sides` grow with the rules, while tuple space search reads as many tuples as before: so both
 * are built, compared on headers drawn from the rules, and the cheaper is kept.
 * Cost: that of the selected one; a candidate that does not fit costs a build that is given up, and `sides`
 * costs one of `tss`, which takes a tenth as long.
 * Invariant: reads are counted, never timed, so the same rules give the same structure.  Where the selected
 * one does not update in place, an update selects anew.
 * Threading: that of the selected one.
 */
#include <math.h>
#include <string.h>

#include "budget.h"
#include "split_product.h"
#include "tss.h"
#include "vfdb.h"

extern const struct vfdb_ops vfdb_cross_product, vfdb_linear, vfdb_wildcards;

struct selected {
    struct budget *budget;
    const struct vfdb_ops *ops;
    void *picked;
};

enum { MEMORY, UPDATES, SIMD };

/* The candidates, fastest first: all take any ranges. */
static const struct candidate {
    const struct vfdb_ops *ops;
    int64_t value[VFDB_PARAMS];
    int simd, memory; /* index of its parameter for our parameter of that name, or -1 */
} candidates[] = {
    {&vfdb_cross_product, {1, 8, 1 << 25}, 3, -1},
    {&vfdb_cross_product, {2, 16, 1 << 25}, 3, -1},
    {&vfdb_cross_product, {2, 8, 1 << 25}, 3, -1},
    {&vfdb_wildcards, {1 << 25}, 1, -1},
    {&vfdb_split_product, {0, 16}, 2, 3},
    {&vfdb_tss, {8}, 1, -1},
    {&vfdb_linear, {0}, -1, -1},
};
enum { TSS = 5, CANDIDATES = sizeof candidates / sizeof *candidates };
enum { DRAWN = 512 }; /* headers */

/* Half a second of each second may go into rebuilding, which takes about three microseconds per rule. */
static bool bears(const struct candidate *candidate, uint32_t rules, int64_t updates)
{
    return candidate->ops->insert || (double)updates * 3e-6 * (rules + 1000.0) < 0.5;
}

static struct vfdb_plan plan_of(const struct candidate *candidate, const struct vfdb_plan *plan)
{
    struct vfdb_plan picked = {.ops = candidate->ops};
    memcpy(picked.value, candidate->value, sizeof picked.value);
    if (candidate->simd >= 0)
        picked.value[candidate->simd] =
            candidate->ops == &vfdb_tss ? plan->value[SIMD] >= 512 : plan->value[SIMD];
    if (candidate->memory >= 0)
        picked.value[candidate->memory] = plan->value[MEMORY];
    return picked;
}

static bool too_much(const struct vfdb_plan *plan, size_t bytes)
{
    return plan->value[MEMORY] && bytes > (size_t)plan->value[MEMORY];
}

/* A place in each of some rules, spread evenly over them. */
static void draw(const struct vfdb_rules *rules, uint32_t *header)
{
    uint64_t state = 1;
    for (uint32_t i = 0; i < DRAWN; i++) {
        const uint32_t *box = rules->box + (size_t)((uint64_t)i * rules->count / DRAWN) * 2 * rules->dims;
        for (uint32_t d = 0; d < rules->dims; d++, box += 2) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            *header++ = box[0] + (uint32_t)((state >> 32) * ((uint64_t)box[1] - box[0] + 1) >> 32);
        }
    }
}

/* The cost of reading from memory: how often the structure doubles a second-level cache. */
static double doublings(size_t bytes)
{
    double times = 0;
    for (; bytes > 1 << 20; bytes /= 2)
        times += bytes >= 1 << 21 ? 1 : (double)bytes / (1 << 20) - 1;
    return times;
}

static double length(const struct split_product *db, uint32_t reference)
{
    uint32_t rules = reference & 63;
    return rules == SPLIT_LONG ? db->pool[reference >> 6] : rules;
}

/* Nanoseconds per search, as measured on nine public and nine generated sets: a part of a bucket or list,
 * of 16 or 32 rules, takes 6, a further step of an address 2.5. */
static double split_product_cost(const struct split_product *db, const uint32_t *header, size_t bytes)
{
    double parts = 0;
    for (uint32_t i = 0; i < DRAWN; i++, header += db->dims) {
        const uint32_t *from = address_map_leaf(&db->map[0], header[0]);
        const uint32_t *to = address_map_leaf(&db->map[1], db->dims > 1 ? header[1] : 0);
        parts += db->answer ? 1 : ceil(length(db, db->product[0].list[(size_t)from[1] + to[1]]) / 32);
        if (db->products)
            parts += ceil(length(db, db->product[1].list[(size_t)from[0] + to[0]]) / 32);
        if (db->by_source)
            parts += ceil(length(db, from[0]) / 16);
        if (db->by_destination)
            parts += ceil(length(db, to[0]) / 16);
    }
    return 6 * parts / DRAWN + 2.5 * (db->map[0].depth + db->map[1].depth) + 2 * doublings(bytes);
}

/* Nanoseconds per search: each tuple that may hold a better rule than the one found takes 1.4. */
static double tss_cost(const struct tss *db, const uint32_t *answers, size_t bytes)
{
    double tried = 0;
    for (uint32_t i = 0; i < DRAWN; i++)
        for (uint32_t t = 0; t < db->tuples.count && db->tuples.order[t]->bound < answers[i]; t++)
            tried++;
    return 15 + 1.4 * tried / DRAWN + 5 * doublings(bytes);
}

/* Replace `sides` by `tss` where that is cheaper and there is memory for both at a time. */
static void weigh(struct selected *db, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                  size_t split_product_bytes)
{
    const struct vfdb_plan other = plan_of(&candidates[TSS], plan);
    size_t before = budget_bytes(db->budget), size = (size_t)DRAWN * rules->dims * sizeof(uint32_t);
    uint32_t *header = budget_take(db->budget, size), answers[DRAWN];
    void *tss = NULL;
    if (header && rules->count && !vfdb_tss.build(db->budget, &other, rules, &tss)) {
        size_t bytes = budget_bytes(db->budget) - before - size;
        draw(rules, header);
        vfdb_tss.search(tss, header, DRAWN, answers);
        if (!too_much(plan, bytes) &&
            tss_cost(tss, answers, bytes) < split_product_cost(db->picked, header, split_product_bytes)) {
            vfdb_split_product.free(db->picked);
            db->ops = &vfdb_tss;
            db->picked = tss;
        } else {
            vfdb_tss.free(tss);
        }
    }
    budget_give(db->budget, header, size);
}

static int select_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                        void **built)
{
    struct selected *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    db->budget = budget;
    size_t before = budget_bytes(budget);
    int status = VFDB_TOO_LARGE;
    for (uint32_t c = 0; c < CANDIDATES; c++) {
        const struct candidate *candidate = &candidates[c];
        if (!bears(candidate, rules->count, plan->value[UPDATES]) ||
            rules->dims < candidate->ops->least_dims || rules->dims > candidate->ops->most_dims)
            continue;
        const struct vfdb_plan picked = plan_of(candidate, plan);
        status = candidate->ops->build(budget, &picked, rules, &db->picked);
        db->ops = candidate->ops;
        if (status == VFDB_OK && too_much(plan, budget_bytes(budget) - before)) {
            db->ops->free(db->picked);
            status = VFDB_NO_MEMORY;
        }
        if (status != VFDB_TOO_LARGE && status != VFDB_NO_MEMORY)
            break;
    }
    if (status) {
        budget_give(budget, db, sizeof *db);
        return status;
    }
    if (db->ops == &vfdb_split_product)
        weigh(db, plan, rules, budget_bytes(budget) - before);
    *built = db;
    return VFDB_OK;
}

static int select_insert(void *built, const uint32_t *box, uint32_t priority)
{
    struct selected *db = built;
    return db->ops->insert ? db->ops->insert(db->picked, box, priority) : VFDB_ANEW;
}

static int select_remove(void *built, const uint32_t *box, uint32_t priority)
{
    struct selected *db = built;
    return db->ops->remove ? db->ops->remove(db->picked, box, priority) : VFDB_ANEW;
}

static int select_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    const struct selected *db = built;
    return db->ops->search(db->picked, headers, count, answers);
}

static int select_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                                 struct vfdb_work *work)
{
    const struct selected *db = built;
    return db->ops->search_counted ? db->ops->search_counted(db->picked, headers, count, answers, work)
                                   : VFDB_UNCOUNTED;
}

static void select_free(void *built)
{
    struct selected *db = built;
    db->ops->free(db->picked);
    budget_give(db->budget, db, sizeof *db);
}

const struct vfdb_ops vfdb_select = {
    .name = "best",
    .title = "what we would pick for the rules, the memory and the updates",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {{"memory", "bytes that the structure may take, 0 for any number", 0, 0, INT64_MAX},
              {"updates", "updates a second that are to come", 0, 0, 1000000000},
              {"simd", "bits of the widest vectors that a search may use: 0, 256, 512", 512, 0, 512}},
    .build = select_build,
    .insert = select_insert,
    .remove = select_remove,
    .search = select_search,
    .search_counted = select_search_counted,
    .free = select_free,
};
