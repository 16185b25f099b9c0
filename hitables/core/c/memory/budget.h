#ifndef HITABLES_BUDGET_H
#define HITABLES_BUDGET_H
#include <stddef.h>

/* Counted memory that can be given back piece by piece, for structures that change. */
struct budget;

struct budget *budget_new(size_t limit);
struct budget *budget_under(struct budget *above);
void budget_free(struct budget *budget);
void *budget_take(struct budget *budget, size_t size);
void budget_give(struct budget *budget, void *taken, size_t size);
void *budget_resize(struct budget *budget, void *taken, size_t from, size_t to);
size_t budget_bytes(const struct budget *budget);
size_t budget_peak(const struct budget *budget);

#endif
