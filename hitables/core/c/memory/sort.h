#ifndef HITABLES_SORT_H
#define HITABLES_SORT_H
#include <stdint.h>

/* Sort *count* keys in ascending order of their bits from *first_bit* up.  The sort is stable: keys that
 * agree in these bits keep their order.  *spare* has room for *count* keys and holds garbage afterwards. */
void sort_keys(uint64_t *key, uint64_t *spare, uint32_t count, unsigned first_bit);

/* Comparison for qsort over uint32_t, ascending. */
int compare_u32(const void *a, const void *b);

#endif
