/* Filters with actions and events (Sahasranaman and Buddhikot, section 3.2 and figure 4).
 *
 * Idea: a database finds the best filter, a table by its priority has its action, and a queue takes the
 * events.  The paper searches in the interrupt of the network card, and drops what matches no Allow rule.
 * Cost: that of the search; one look-up in the table and one addition for each run of packets of one filter;
 * an event is copied into the queue.  A lock is taken for each block of packets, so an update waits for one.
 * Invariant: database and table have the same filters whenever the lock is free.  An event is queued while
 * its filter is in force, so an update that has returned is followed by no event of what was before.
 * Threading: packets share the lock, updates have it alone.
 */
#define _GNU_SOURCE
#include "filters.h"

#include <assert.h>
#include <pthread.h>
#include <time.h>

#include "action_table.h"
#include "budget.h"
#include "event_queue.h"
#include "vfdb_lock.h"

/* Packets that are searched under one lock.  Beside a thread that classifies without pause (1,000 filters,
 * tss) an insertion took 14 us with 64, 17 with 256, 37 with 1,024, 60 with 4,096; packets are alike. */
enum { BLOCK = 256 };

struct filters {
    struct budget *budget;
    struct vfdb *db;
    uint32_t dims;
    struct action_table table;
    struct event_queue *queue;
    _Atomic uint64_t packets, allowed, unmatched;
    pthread_rwlock_t lock;
};

/* The rules' actions into the table: one for each rule, which may have several boxes. */
static int add_actions(struct action_table *table, const struct vfdb_rules *rules, const uint8_t *action)
{
    uint32_t filters = 0;
    for (uint32_t i = 0; i < rules->count; i++)
        filters += !i || rules->priority[i] != rules->priority[i - 1];
    int status = action_table_reserve(table, filters + 1);
    for (uint32_t i = 0; status == VFDB_OK && i < rules->count; i++)
        if (!i || rules->priority[i] != rules->priority[i - 1])
            action_table_add(table, rules->priority[i], action[i]);
    return status;
}

int filters_open(const struct vfdb_plan *plan, const struct vfdb_rules *rules, const uint8_t *action,
                 uint32_t room, size_t limit, struct filters **opened)
{
    struct budget *budget = budget_new(limit);
    struct filters *filters = budget ? budget_take(budget, sizeof *filters) : NULL;
    *opened = NULL;
    if (!filters) {
        budget_free(budget);
        return VFDB_NO_MEMORY;
    }
    filters->budget = budget;
    filters->dims = rules->dims;
    filters->table.budget = budget;
    vfdb_lock_init(&filters->lock);
    filters->queue = event_queue_new(budget, room, rules->dims);
    int status = filters->queue ? add_actions(&filters->table, rules, action) : VFDB_NO_MEMORY;
    if (status == VFDB_OK)
        status = vfdb_open_under(budget, plan, rules, &filters->db);
    if (status)
        filters_close(filters);
    else
        *opened = filters;
    return status;
}

void filters_end(struct filters *filters)
{
    event_queue_end(filters->queue);
}

void filters_close(struct filters *filters)
{
    if (!filters)
        return;
    struct budget *budget = filters->budget;
    vfdb_close(filters->db);
    event_queue_free(filters->queue);
    action_table_free(&filters->table);
    pthread_rwlock_destroy(&filters->lock);
    budget_give(budget, filters, sizeof *filters);
    budget_free(budget);
}

/* -- updates ----------------------------------------------------------------------------------- */

int filters_insert(struct filters *filters, const uint32_t *boxes, uint32_t count, uint32_t priority,
                   uint32_t action)
{
    pthread_rwlock_wrlock(&filters->lock);
    int status = action_table_reserve(&filters->table, filters->table.used + 1);
    if (status == VFDB_OK)
        status = vfdb_insert(filters->db, boxes, count, priority);
    if (status == VFDB_OK)
        action_table_add(&filters->table, priority, action);
    pthread_rwlock_unlock(&filters->lock);
    return status;
}

int filters_remove(struct filters *filters, uint32_t priority)
{
    pthread_rwlock_wrlock(&filters->lock);
    int status = vfdb_remove(filters->db, priority);
    if (status == VFDB_OK)
        action_table_remove(&filters->table, action_table_find(&filters->table, priority));
    pthread_rwlock_unlock(&filters->lock);
    return status;
}

int filters_change(struct filters *filters, uint32_t priority, uint32_t action)
{
    pthread_rwlock_wrlock(&filters->lock);
    struct filter_entry *entry = action_table_find(&filters->table, priority);
    if (entry)
        entry->action = action;
    pthread_rwlock_unlock(&filters->lock);
    return entry ? VFDB_OK : VFDB_ABSENT;
}

/* -- packets ----------------------------------------------------------------------------------- */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* The packets of one block, at most BLOCK. */
struct packet_block {
    const uint32_t *headers;
    const int64_t *times; /* NULL: now */
    uint32_t count;
    uint8_t *actions;
    uint32_t *priorities;
};

/* Write the actions, and count.  The filters' lock is held. */
static void decide(struct filters *filters, const struct packet_block *block)
{
    uint32_t unmatched = 0, allowed = 0;
    for (uint32_t i = 0, end; i < block->count; i = end) {
        uint32_t priority = block->priorities[i], action = FILTER_DENY;
        for (end = i + 1; end < block->count && block->priorities[end] == priority; end++)
            ;
        if (priority == VFDB_NONE) {
            unmatched += end - i;
        } else {
            struct filter_entry *entry = action_table_find(&filters->table, priority);
            assert(entry); /* the table has every filter that is found */
            atomic_fetch_add_explicit(&entry->packets, end - i, memory_order_relaxed);
            action = entry->action;
            allowed += action & FILTER_ALLOW ? end - i : 0;
        }
        for (uint32_t k = i; k < end; k++)
            block->actions[k] = (uint8_t)action;
    }
    atomic_fetch_add_explicit(&filters->packets, block->count, memory_order_relaxed);
    if (allowed)
        atomic_fetch_add_explicit(&filters->allowed, allowed, memory_order_relaxed);
    if (unmatched)
        atomic_fetch_add_explicit(&filters->unmatched, unmatched, memory_order_relaxed);
}

static void queue_events(struct filters *filters, const struct packet_block *block)
{
    struct filter_event event[BLOCK];
    uint32_t count = 0;
    int64_t now = 0;
    for (uint32_t i = 0; i < block->count; i++) {
        if (!(block->actions[i] & FILTER_ADD_EVENT))
            continue;
        if (!block->times && !count)
            now = now_ns();
        event[count++] = (struct filter_event){
            .number = i, /* of its header, for event_queue_append */
            .time_ns = block->times ? block->times[i] : now,
            .priority = block->priorities[i],
            .action = block->actions[i],
        };
    }
    if (count)
        event_queue_append(filters->queue, event, count, block->headers);
}

int filters_classify(struct filters *filters, const uint32_t *headers, const int64_t *times, size_t count,
                     uint8_t *actions, uint32_t *priorities, size_t *done)
{
    int status = VFDB_OK;
    for (*done = 0; *done < count && status == VFDB_OK;) {
        struct packet_block block = {
            .headers = headers + *done * filters->dims,
            .times = times ? times + *done : NULL,
            .count = count - *done < BLOCK ? (uint32_t)(count - *done) : BLOCK,
            .actions = actions + *done,
            .priorities = priorities + *done,
        };
        pthread_rwlock_rdlock(&filters->lock);
        status = vfdb_search(filters->db, block.headers, block.count, block.priorities);
        if (status == VFDB_OK) {
            decide(filters, &block);
            queue_events(filters, &block);
            *done += block.count;
        }
        pthread_rwlock_unlock(&filters->lock);
    }
    return status;
}

/* -- counts ------------------------------------------------------------------------------------ */

void filters_stats_of(struct filters *filters, struct filters_stats *stats)
{
    /* Alone, so that no block is counted in part. */
    pthread_rwlock_wrlock(&filters->lock);
    stats->packets = atomic_load(&filters->packets);
    stats->allowed = atomic_load(&filters->allowed);
    stats->unmatched = atomic_load(&filters->unmatched);
    stats->denied = stats->packets - stats->allowed - stats->unmatched;
    stats->events = event_queue_written(filters->queue);
    pthread_rwlock_unlock(&filters->lock);
}

int filters_packets(struct filters *filters, uint32_t priority, uint64_t *packets)
{
    pthread_rwlock_rdlock(&filters->lock);
    const struct filter_entry *entry = action_table_find(&filters->table, priority);
    if (entry)
        *packets = atomic_load(&entry->packets);
    pthread_rwlock_unlock(&filters->lock);
    return entry ? VFDB_OK : VFDB_ABSENT;
}

uint32_t filters_count(struct filters *filters)
{
    pthread_rwlock_rdlock(&filters->lock);
    uint32_t count = filters->table.used;
    pthread_rwlock_unlock(&filters->lock);
    return count;
}

size_t filters_bytes(struct filters *filters)
{
    return budget_bytes(filters->budget);
}

int filter_monitor_open(struct filters *filters, struct filter_monitor **opened)
{
    return event_queue_monitor(filters->queue, opened);
}
