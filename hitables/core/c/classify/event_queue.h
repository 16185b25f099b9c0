#ifndef HITABLES_EVENT_QUEUE_H
#define HITABLES_EVENT_QUEUE_H
#include "filters.h"

struct budget;
struct event_queue;

/* A queue of *room* events, each with a header of *dims* words; NULL when memory is exhausted. */
struct event_queue *event_queue_new(struct budget *budget, uint32_t room, uint32_t dims);
void event_queue_free(struct event_queue *queue);
/* No more events. */
void event_queue_end(struct event_queue *queue);

/* Append events, which receive their numbers: event[i] has the header headers + event[i].number * dims. */
void event_queue_append(struct event_queue *queue, const struct filter_event *event, uint32_t count,
                        const uint32_t *headers);
/* Events so far. */
uint64_t event_queue_written(struct event_queue *queue);

int event_queue_monitor(struct event_queue *queue, struct filter_monitor **opened);

#endif
