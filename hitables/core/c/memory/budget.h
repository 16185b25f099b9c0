#ifndef HITABLES_LEDGER_H
#define HITABLES_LEDGER_H
#include <stddef.h>

/* Counted memory that can be given back piece by piece, for structures that change. */
struct ledger;

struct ledger *ledger_new(size_t limit);
struct ledger *ledger_under(struct ledger *above);
void ledger_free(struct ledger *ledger);
void *ledger_take(struct ledger *ledger, size_t size);
void ledger_give(struct ledger *ledger, void *taken, size_t size);
void *ledger_resize(struct ledger *ledger, void *taken, size_t from, size_t to);
size_t ledger_bytes(const struct ledger *ledger);
size_t ledger_peak(const struct ledger *ledger);

#endif
