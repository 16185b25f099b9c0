#ifndef HITABLES_BUILD_THREAD_H
#define HITABLES_BUILD_THREAD_H
#include <pthread.h>
#include <stdbool.h>

/* One build at a time in a thread of its own, for which any number of threads may wait. */
struct build_thread {
    pthread_mutex_t joining; /* by one that waits, for all */
    pthread_t thread;
    bool started;
};

static inline void build_thread_init(struct build_thread *build)
{
    pthread_mutex_init(&build->joining, NULL);
    build->started = false;
}

/* Wait until the build, if there is one, has ended. */
static inline void build_thread_join(struct build_thread *build)
{
    pthread_mutex_lock(&build->joining);
    if (build->started)
        pthread_join(build->thread, NULL);
    build->started = false;
    pthread_mutex_unlock(&build->joining);
}

/* Start a build, when the last one has been joined and no other thread waits; false: there is no thread. */
static inline bool build_thread_start(struct build_thread *build, void *(*body)(void *), void *argument)
{
    build->started = !pthread_create(&build->thread, NULL, body, argument);
    return build->started;
}

static inline void build_thread_end(struct build_thread *build)
{
    build_thread_join(build);
    pthread_mutex_destroy(&build->joining);
}

#endif
