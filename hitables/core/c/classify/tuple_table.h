#ifndef HITABLES_TUPLE_TABLE_H
#define HITABLES_TUPLE_TABLE_H
#include "tuples.h"

/* One hash table for the rules of all tuples. */
struct tuple_table {
    struct tuple_rule **head; /* [slots]; NULL: not opened */
    uint32_t count, slots, shift;
};

/* An empty table; false when memory is exhausted. */
bool tuple_table_open(struct tuple_table *table, struct budget *budget);
void tuple_table_close(struct tuple_table *table, struct budget *budget);
/* Insert a rule of a tuple, whose key it has; false when memory is exhausted, and a tuple without rules is
 * then freed. */
bool tuple_table_put(struct tuple_table *table, struct tuples *tuples, struct tuple *tuple,
                     const uint32_t *key, const uint32_t *box, uint32_t priority);
/* Take a rule out, and the tuple with its last one; false if it is not there. */
bool tuple_table_drop(struct tuple_table *table, struct tuples *tuples, struct tuple *tuple,
                      const uint32_t *key, const uint32_t *box, uint32_t priority);

static inline uint32_t tuple_table_hash(const struct tuple *tuple, const uint32_t *key)
{
    uint32_t hash = tuple_hash(tuple, key) + (tuple->number + 1) * tuple_odd[0];
    return (hash ^ hash >> 15) * TUPLE_AGAIN;
}

#endif
