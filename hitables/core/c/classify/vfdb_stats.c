/* What a database tells about itself, and waiting for what it does in the background.
 *
 * Cost: a lock, and that of the algorithm's operation.
 * Invariant: nothing here changes a rule.
 * Threading: searches go on, but for vfdb_settle, which has the lock alone once no update waits.
 */
#define _GNU_SOURCE
#include "budget.h"
#include "vfdb.h"
#include "vfdb_internal.h"
#include "vfdb_list.h"

int vfdb_flow_stats(struct vfdb *db, struct flow_stats *stats)
{
    if (!db->ops->flow_stats)
        return VFDB_UNCOUNTED;
    pthread_rwlock_rdlock(&db->lock);
    db->ops->flow_stats(db->built, stats);
    pthread_rwlock_unlock(&db->lock);
    return VFDB_OK;
}

int vfdb_storm_stats(struct vfdb *db, struct storm_cache_stats *stats)
{
    if (!db->ops->storm_stats)
        return VFDB_UNCOUNTED;
    pthread_rwlock_rdlock(&db->lock);
    db->ops->storm_stats(db->built, stats);
    pthread_rwlock_unlock(&db->lock);
    return VFDB_OK;
}

bool vfdb_ready(struct vfdb *db, bool wait)
{
    if (!db->ops->ready)
        return true;
    pthread_rwlock_rdlock(&db->lock);
    bool ready = db->ops->ready(db->built, wait);
    pthread_rwlock_unlock(&db->lock);
    return ready;
}

int vfdb_settle(struct vfdb *db)
{
    vfdb_begin_update(db);
    int status = db->ops->settle ? db->ops->settle(db->built) : VFDB_OK;
    pthread_rwlock_unlock(&db->lock); /* no update, so it starts nothing */
    return status;
}

uint32_t vfdb_rule_count(const struct vfdb *db)
{
    return vfdb_list_count(db->list);
}

size_t vfdb_bytes(const struct vfdb *db)
{
    return budget_bytes(db->budget);
}

size_t vfdb_peak(const struct vfdb *db)
{
    return budget_peak(db->budget);
}

size_t vfdb_list_bytes(const struct vfdb *db)
{
    return budget_bytes(db->list_budget);
}

uint64_t vfdb_builds(const struct vfdb *db)
{
    return db->builds;
}

uint64_t vfdb_rebuilds(struct vfdb *db)
{
    pthread_rwlock_rdlock(&db->lock);
    uint64_t rebuilds = db->builds - 1 + (db->ops->rebuilds ? db->ops->rebuilds(db->built) : 0);
    pthread_rwlock_unlock(&db->lock);
    return rebuilds;
}
