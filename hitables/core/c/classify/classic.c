/* classic(A): A as classifiers are used that cannot be updated (The Small, the Fast and the Lazy, section V).
 *
 * Idea: each update changes a linear list and builds A again, in a thread of its own; until it is built, the
 * list answers.  The next update waits for the build.
 * Cost: a search that of A, or of the list while A is built; an update that of the list, and waiting for the
 * build of the one before.
 * Invariant: the list holds the rules; A, where there is one, holds the same.
 * Threading: searches share a lock, and a finished build takes it alone to be put in place.  No update runs
 * beside a build, so the build reads the list itself.
 *
 * A build that fails leaves the list to answer until the next update; one that was stopped, until one waits.
 */
#include "budget.h"
#include "build_thread.h"
#include "linear.h"
#include "vfdb.h"
#include "vfdb_lock.h"

#include <string.h>

struct classic {
    struct budget *budget;
    const struct vfdb_plan *plan;
    uint8_t bits[VFDB_DIMS];
    void *list; /* of linear search */
    pthread_rwlock_t lock;
    struct vfdb *inner; /* NULL: the list answers */
    struct vfdb *stale; /* to be freed by the next build */
    bool changed; /* since the last build began */
    bool building;
    struct build_thread build;
    uint64_t rebuilds;
    int ended; /* the status of the last build */
};

static void classic_free(void *built)
{
    struct classic *db = built;
    build_thread_end(&db->build);
    vfdb_close(db->inner);
    if (db->list)
        vfdb_linear.free(db->list);
    pthread_rwlock_destroy(&db->lock);
    budget_give(db->budget, db, sizeof *db);
}

/* ---- Build ---- */

static int build_inner(struct classic *db, struct vfdb **inner)
{
    struct vfdb_rules rules = vfdb_linear_rules(db->list, db->bits);
    return vfdb_open_under(db->budget, db->plan->inner, &rules, inner);
}

static void *build_again(void *argument)
{
    struct classic *db = argument;
    struct vfdb *inner;
    vfdb_close(db->stale); /* before the build, for which there may be room only then */
    db->stale = NULL;
    int status = build_inner(db, &inner);
    pthread_rwlock_wrlock(&db->lock);
    db->inner = inner;
    db->rebuilds += status == VFDB_OK;
    db->ended = status;
    db->building = false;
    pthread_rwlock_unlock(&db->lock);
    return NULL;
}

static int classic_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                         void **built)
{
    struct classic *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    db->budget = budget;
    db->plan = plan;
    memcpy(db->bits, rules->bits, rules->dims);
    vfdb_lock_init(&db->lock);
    build_thread_init(&db->build);
    int status = vfdb_linear.build(budget, plan, rules, &db->list);
    if (status == VFDB_OK)
        status = build_inner(db, &db->inner);
    if (status)
        classic_free(db);
    else
        *built = db;
    return status;
}

/* ---- Update ---- */

static int classic_insert(void *built, const uint32_t *box, uint32_t priority)
{
    struct classic *db = built;
    int status = vfdb_linear.insert(db->list, box, priority);
    db->changed |= status == VFDB_OK;
    return status;
}

static int classic_remove(void *built, const uint32_t *box, uint32_t priority)
{
    struct classic *db = built;
    int status = vfdb_linear.remove(db->list, box, priority);
    db->changed |= status == VFDB_OK;
    return status;
}

static void classic_updated(void *built)
{
    struct classic *db = built;
    if (!db->changed)
        return;
    build_thread_join(&db->build); /* it has ended, for updates wait for it */
    db->changed = false;
    db->stale = db->inner;
    db->inner = NULL;
    db->building = true;
    if (!build_thread_start(&db->build, build_again, db))
        build_again(db);
}

static bool classic_ready(void *built, bool wait)
{
    struct classic *db = built;
    if (wait)
        build_thread_join(&db->build);
    pthread_rwlock_rdlock(&db->lock);
    bool ready = !db->building;
    pthread_rwlock_unlock(&db->lock);
    return ready;
}

static int classic_settle(void *built)
{
    struct classic *db = built;
    build_thread_join(&db->build);
    if (db->ended == VFDB_STOPPED) /* perhaps by an interrupt of another call */
        build_again(db);
    return db->ended ? db->ended : db->inner ? vfdb_settle(db->inner) : VFDB_OK;
}

static uint64_t classic_rebuilds(const void *built)
{
    struct classic *db = (struct classic *)built; /* the lock changes */
    pthread_rwlock_rdlock(&db->lock);
    uint64_t rebuilds = db->rebuilds;
    pthread_rwlock_unlock(&db->lock);
    return rebuilds;
}

/* ---- Search ---- */

static int classic_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    struct classic *db = (struct classic *)built;
    pthread_rwlock_rdlock(&db->lock);
    int status = db->inner ? vfdb_search(db->inner, headers, count, answers)
                           : vfdb_linear.search(db->list, headers, count, answers);
    pthread_rwlock_unlock(&db->lock);
    return status;
}

static int classic_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                                  struct vfdb_work *work)
{
    struct classic *db = (struct classic *)built;
    pthread_rwlock_rdlock(&db->lock);
    int status = db->inner ? vfdb_search_counted(db->inner, headers, count, answers, work)
                           : vfdb_linear.search_counted(db->list, headers, count, answers, work);
    pthread_rwlock_unlock(&db->lock);
    return status;
}

const struct vfdb_ops vfdb_classic = {
    .name = "classic",
    .title = "another algorithm, built again for each update while linear search answers",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .wraps = true,
    .build = classic_build,
    .insert = classic_insert,
    .remove = classic_remove,
    .search = classic_search,
    .search_counted = classic_search_counted,
    .ready = classic_ready,
    .updated = classic_updated,
    .settle = classic_settle,
    .rebuilds = classic_rebuilds,
    .free = classic_free,
};
