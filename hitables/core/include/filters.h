#ifndef HITABLES_FILTERS_H
#define HITABLES_FILTERS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vfdb.h"

/* Filters with actions, and events for monitors (Sahasranaman and Buddhikot, section 3.2): a Virtual Filter
 * Database in which every rule has an action.  A packet that matches no filter is denied.  See filters.c.
 *
 * Functions return an enum vfdb_status as an int. */

/* Bit 0: the packet passes.  Bit 1: an event is queued.  The paper's Add_event drops the packet, for only
 * packets that match an Allow rule pass; the fourth action is ours. */
enum filter_action {
    FILTER_DENY = 0,
    FILTER_ALLOW = 1,
    FILTER_ADD_EVENT = 2,
    FILTER_ALLOW_EVENT = 3
};

/* What is queued for monitors, beside the header.  *number* counts the events of these filters from 0. */
struct filter_event {
    uint64_t number;
    int64_t time_ns; /* of the packet: as the caller gave it, or of its search; ns since 1970 */
    uint32_t priority, action;
};

/* packets = allowed + denied + unmatched; *unmatched* were denied because no filter matched. */
struct filters_stats {
    uint64_t packets, allowed, denied, unmatched;
    uint64_t events; /* caused, whether a monitor was open or not */
};

/* What a monitor had: caused since it opened = delivered + lost + pending. */
struct filter_monitor_stats {
    uint64_t delivered;
    uint64_t lost; /* overwritten in the queue before this monitor read them */
    uint64_t pending;
};

/* Filters, and their queue of events.  Any number of threads may call these functions at a time. */
struct filters;
struct filter_monitor;

/* Open filters: those rules, action[i] that of box i, and a queue of *room* events, all of which take at most
 * *limit* bytes (0: any number).  The plan must outlive it. */
int filters_open(const struct vfdb_plan *plan, const struct vfdb_rules *rules, const uint8_t *action,
                 uint32_t room, size_t limit, struct filters **opened);
/* No more events: monitors that wait return. */
void filters_end(struct filters *filters);
/* Free everything.  No other function may be running, and all monitors must be closed. */
void filters_close(struct filters *filters);

/* Insert a filter of *count* boxes ([count][dims][2]) that do not overlap; remove one; change its action.
 * When a function returns, no later event is of what was before. */
int filters_insert(struct filters *filters, const uint32_t *boxes, uint32_t count, uint32_t priority,
                   uint32_t action);
int filters_remove(struct filters *filters, uint32_t priority);
int filters_change(struct filters *filters, uint32_t priority, uint32_t action);

/* The action of the best filter for each header ([count][dims]), and its priority or VFDB_NONE; events are
 * queued in the order of the headers.  *times* [count] may be NULL.  Where a search fails, *done* counts the
 * headers that have answers. */
int filters_classify(struct filters *filters, const uint32_t *headers, const int64_t *times, size_t count,
                     uint8_t *actions, uint32_t *priorities, size_t *done);

void filters_stats_of(struct filters *filters, struct filters_stats *stats);
/* The packets for which a filter was the best one. */
int filters_packets(struct filters *filters, uint32_t priority, uint64_t *packets);
uint32_t filters_count(struct filters *filters);
size_t filters_bytes(struct filters *filters);

/* A monitor gets every event that is caused from now on, but for those that it reads too late. */
int filter_monitor_open(struct filters *filters, struct filter_monitor **opened);
/* A descriptor that is readable while events are pending, and after the end of the monitor or the filters. */
int filter_monitor_fd(const struct filter_monitor *monitor);
/* Take up to *most* pending events, oldest first, with their headers [most][dims]; their number. */
uint32_t filter_monitor_read(struct filter_monitor *monitor, uint32_t most, struct filter_event *events,
                             uint32_t *headers);
bool filter_monitor_ended(struct filter_monitor *monitor);
void filter_monitor_stats_of(struct filter_monitor *monitor, struct filter_monitor_stats *stats);
/* No more events for this monitor; those that wait for one return. */
void filter_monitor_end(struct filter_monitor *monitor);
/* Free it.  No other function may be running with it. */
void filter_monitor_close(struct filter_monitor *monitor);

#endif
