#ifndef HITABLES_VFDB_LOCK_H
#define HITABLES_VFDB_LOCK_H
#include <pthread.h>

/* A lock that searches share.  A waiting writer gets it before further readers, so that searches without
 * pause do not keep updates out. */
static inline void vfdb_lock_init(pthread_rwlock_t *lock)
{
    pthread_rwlockattr_t kind;
    pthread_rwlockattr_init(&kind);
    pthread_rwlockattr_setkind_np(&kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(lock, &kind);
    pthread_rwlockattr_destroy(&kind);
}

#endif
