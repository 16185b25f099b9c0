#ifndef HITABLES_RING_H
#define HITABLES_RING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spin.h"

/* A queue of numbers between one producer and one consumer, of exactly *room*.  With *locked*, both take a
 * lock instead: the form to compare with. */
struct ring {
    uint64_t *slot; /* [room] */
    uint32_t room;
    bool locked;
    atomic_uint lock;
    _Alignas(64) _Atomic uint64_t tail; /* written so far */
    _Alignas(64) _Atomic uint64_t head; /* read so far */
};

static inline uint32_t ring_filled(const struct ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    return (uint32_t)(atomic_load_explicit(&ring->tail, memory_order_acquire) - head);
}

/* Write as many as there is room for; their number. */
static inline uint32_t ring_push(struct ring *ring, const uint64_t *number, uint32_t count)
{
    if (ring->locked)
        spin_lock(&ring->lock);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint32_t left = ring->room - (uint32_t)(tail - atomic_load_explicit(&ring->head, memory_order_acquire));
    uint32_t at = (uint32_t)(tail % ring->room);
    if (count > left)
        count = left;
    for (uint32_t i = 0; i < count; i++, at = at + 1 == ring->room ? 0 : at + 1)
        ring->slot[at] = number[i];
    atomic_store_explicit(&ring->tail, tail + count, memory_order_release);
    if (ring->locked)
        spin_unlock(&ring->lock);
    return count;
}

/* Read as many as there are, up to *most*; their number. */
static inline uint32_t ring_pop(struct ring *ring, uint64_t *number, uint32_t most)
{
    if (ring->locked)
        spin_lock(&ring->lock);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint32_t count = (uint32_t)(atomic_load_explicit(&ring->tail, memory_order_acquire) - head);
    uint32_t at = (uint32_t)(head % ring->room);
    if (count > most)
        count = most;
    for (uint32_t i = 0; i < count; i++, at = at + 1 == ring->room ? 0 : at + 1)
        number[i] = ring->slot[at];
    atomic_store_explicit(&ring->head, head + count, memory_order_release);
    if (ring->locked)
        spin_unlock(&ring->lock);
    return count;
}

#endif
