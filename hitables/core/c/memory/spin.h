#ifndef HITABLES_SPIN_H
#define HITABLES_SPIN_H
#include <sched.h>
#include <stdatomic.h>

/* A lock that is held for a few instructions.  A thread that waits long yields its core, for the owner may
 * have been interrupted. */

static inline void spin_pause(unsigned *tries)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
    if (++*tries % 64 == 0)
        sched_yield();
}

static inline int spin_try(atomic_uint *locked)
{
    return !atomic_load_explicit(locked, memory_order_relaxed) &&
           !atomic_exchange_explicit(locked, 1, memory_order_acquire);
}

static inline void spin_lock(atomic_uint *locked)
{
    unsigned tries = 0;
    while (!spin_try(locked))
        spin_pause(&tries);
}

static inline void spin_unlock(atomic_uint *locked)
{
    atomic_store_explicit(locked, 0, memory_order_release);
}

#endif
