/* The bounded queue of events that monitors read (Sahasranaman and Buddhikot, section 3.2).
 *
 * Idea: one ring that every event is written to, and a place in it for each monitor.  A monitor that is a
 * whole ring behind loses the oldest events, which are counted; no other monitor does.  (The buffer of a
 * socket, as in the paper, refuses the newest: a late daemon would hear of connections that are over.)  A
 * descriptor of the system wakes the threads that wait for a monitor.
 * Cost: of an event, its copy into the ring, under one lock for the events of a block; of a monitor, one
 * write to its descriptor when it had read everything.  Without monitors events are numbered, and not kept.
 * Invariant: a monitor's place lies at most one ring before the end; its descriptor is readable if and only
 * if events are pending, or there will be none; events since it opened = delivered + lost + pending.
 * Threading: every function may run in any number of threads; the lock is held for copies only.
 */
#include "event_queue.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "budget.h"

struct event_queue {
    pthread_mutex_t lock;
    struct budget *budget;
    uint32_t room, dims;
    uint64_t written;
    bool ended;
    struct filter_event *event; /* [room] number n is at n % room */
    uint32_t *header; /* [room][dims] */
    struct filter_monitor *monitors; /* a list */
};

struct filter_monitor {
    struct event_queue *queue;
    struct filter_monitor *before, *behind;
    uint64_t opened_at, next, lost; /* numbers of events */
    int fd;
    bool idle; /* fd is not readable */
    bool ended;
};

struct event_queue *event_queue_new(struct budget *budget, uint32_t room, uint32_t dims)
{
    struct event_queue *queue = budget_take(budget, sizeof *queue);
    if (!queue)
        return NULL;
    queue->budget = budget;
    queue->room = room;
    queue->dims = dims;
    pthread_mutex_init(&queue->lock, NULL);
    queue->event = budget_take(budget, room * sizeof *queue->event);
    queue->header = budget_take(budget, (size_t)room * dims * sizeof *queue->header);
    if (!queue->event || !queue->header) {
        event_queue_free(queue);
        return NULL;
    }
    return queue;
}

void event_queue_free(struct event_queue *queue)
{
    if (!queue)
        return;
    budget_give(queue->budget, queue->header, (size_t)queue->room * queue->dims * sizeof *queue->header);
    budget_give(queue->budget, queue->event, queue->room * sizeof *queue->event);
    pthread_mutex_destroy(&queue->lock);
    budget_give(queue->budget, queue, sizeof *queue);
}

/* Make the descriptor readable.  The lock is held. */
static void wake(struct filter_monitor *monitor)
{
    if (monitor->idle) {
        monitor->idle = false;
        eventfd_write(monitor->fd, 1); /* the counter is 0, so this can neither block nor fail */
    }
}

void event_queue_end(struct event_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->ended = true;
    for (struct filter_monitor *each = queue->monitors; each; each = each->behind)
        wake(each);
    pthread_mutex_unlock(&queue->lock);
}

void event_queue_append(struct event_queue *queue, const struct filter_event *event, uint32_t count,
                        const uint32_t *headers)
{
    size_t bytes = queue->dims * sizeof *headers;
    pthread_mutex_lock(&queue->lock);
    if (queue->monitors)
        for (uint32_t i = 0; i < count; i++) {
            uint64_t at = (queue->written + i) % queue->room;
            queue->event[at] = event[i];
            queue->event[at].number = queue->written + i;
            memcpy(queue->header + at * queue->dims, headers + event[i].number * queue->dims, bytes);
        }
    queue->written += count;
    for (struct filter_monitor *each = queue->monitors; each; each = each->behind)
        if (!each->ended)
            wake(each);
    pthread_mutex_unlock(&queue->lock);
}

uint64_t event_queue_written(struct event_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    uint64_t written = queue->written;
    pthread_mutex_unlock(&queue->lock);
    return written;
}

/* -- monitors ---------------------------------------------------------------------------------- */

int event_queue_monitor(struct event_queue *queue, struct filter_monitor **opened)
{
    struct filter_monitor *monitor = budget_take(queue->budget, sizeof *monitor);
    *opened = NULL;
    if (!monitor)
        return VFDB_NO_MEMORY;
    monitor->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (monitor->fd < 0) {
        budget_give(queue->budget, monitor, sizeof *monitor);
        return VFDB_NO_MEMORY;
    }
    monitor->queue = queue;
    monitor->idle = true;
    pthread_mutex_lock(&queue->lock);
    monitor->opened_at = monitor->next = queue->written;
    monitor->behind = queue->monitors;
    if (monitor->behind)
        monitor->behind->before = monitor;
    queue->monitors = monitor;
    if (queue->ended)
        wake(monitor);
    pthread_mutex_unlock(&queue->lock);
    *opened = monitor;
    return VFDB_OK;
}

int filter_monitor_fd(const struct filter_monitor *monitor)
{
    return monitor->fd;
}

/* Count what was overwritten as lost; the number of pending events.  The lock is held. */
static uint64_t catch_up(struct filter_monitor *monitor)
{
    const struct event_queue *queue = monitor->queue;
    if (queue->written - monitor->next > queue->room) {
        uint64_t oldest = queue->written - queue->room;
        monitor->lost += oldest - monitor->next;
        monitor->next = oldest;
    }
    return queue->written - monitor->next;
}

uint32_t filter_monitor_read(struct filter_monitor *monitor, uint32_t most, struct filter_event *events,
                             uint32_t *headers)
{
    struct event_queue *queue = monitor->queue;
    uint32_t dims = queue->dims;
    pthread_mutex_lock(&queue->lock);
    uint64_t pending = monitor->ended ? 0 : catch_up(monitor);
    uint32_t count = pending < most ? (uint32_t)pending : most;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = (monitor->next + i) % queue->room;
        events[i] = queue->event[at];
        memcpy(headers + (size_t)i * dims, queue->header + at * dims, dims * sizeof *headers);
    }
    monitor->next += count;
    if (count == pending && !monitor->idle && !monitor->ended && !queue->ended) {
        eventfd_t drained;
        eventfd_read(monitor->fd, &drained);
        monitor->idle = true;
    }
    pthread_mutex_unlock(&queue->lock);
    return count;
}

bool filter_monitor_ended(struct filter_monitor *monitor)
{
    pthread_mutex_lock(&monitor->queue->lock);
    bool ended = monitor->ended || (monitor->queue->ended && !catch_up(monitor));
    pthread_mutex_unlock(&monitor->queue->lock);
    return ended;
}

void filter_monitor_stats_of(struct filter_monitor *monitor, struct filter_monitor_stats *stats)
{
    pthread_mutex_lock(&monitor->queue->lock);
    stats->pending = monitor->ended ? 0 : catch_up(monitor);
    stats->lost = monitor->lost;
    stats->delivered = monitor->next - monitor->opened_at - monitor->lost;
    pthread_mutex_unlock(&monitor->queue->lock);
}

void filter_monitor_end(struct filter_monitor *monitor)
{
    struct event_queue *queue = monitor->queue;
    pthread_mutex_lock(&queue->lock);
    if (!monitor->ended) {
        monitor->lost += catch_up(monitor); /* what it did not read it will not read */
        monitor->next = queue->written;
        monitor->ended = true;
        wake(monitor);
        if (monitor->before)
            monitor->before->behind = monitor->behind;
        else
            queue->monitors = monitor->behind;
        if (monitor->behind)
            monitor->behind->before = monitor->before;
    }
    pthread_mutex_unlock(&queue->lock);
}

void filter_monitor_close(struct filter_monitor *monitor)
{
    if (!monitor)
        return;
    filter_monitor_end(monitor);
    close(monitor->fd);
    budget_give(monitor->queue->budget, monitor, sizeof *monitor);
}
