#ifndef HITABLES_ACTION_TABLE_H
#define HITABLES_ACTION_TABLE_H
#include <stdatomic.h>
#include <stdint.h>

struct budget;

/* A filter's action, and the packets for which it was the best one. */
struct filter_entry {
    uint32_t priority; /* VFDB_NONE: the slot is free */
    uint32_t action;
    _Atomic uint64_t packets;
};

/* Filters by priority, in open addressing.  Zeroed memory is no table: action_table_reserve makes one. */
struct action_table {
    struct budget *budget;
    struct filter_entry *slot;
    uint32_t slots; /* a power of two, or 0 */
    uint32_t used;
};

/* Make room for *count* filters in all; a status.  If it fails, nothing is changed. */
int action_table_reserve(struct action_table *table, uint32_t count);
void action_table_free(struct action_table *table);
/* The entry of a filter, or NULL. */
struct filter_entry *action_table_find(const struct action_table *table, uint32_t priority);
/* Add a filter that is not there, for which there is room; remove one that is there. */
void action_table_add(struct action_table *table, uint32_t priority, uint32_t action);
void action_table_remove(struct action_table *table, struct filter_entry *entry);

#endif
