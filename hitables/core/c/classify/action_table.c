/* The actions of filters, by priority.
 *
 * Idea: a table in open addressing.  A removal moves entries behind it back, so that no slot stays marked.
 * Cost: a probe or two; half of the slots are free.
 * Invariant: between an entry's slot and the one that its hash names no slot is free.
 * Threading: changes need the table alone; look-ups and additions to *packets* share it.
 */
#include "action_table.h"

#include <stdbool.h>

#include "budget.h"
#include "vfdb.h"

static uint32_t slot_of(const struct action_table *table, uint32_t priority)
{
    return (uint32_t)((priority * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (table->slots - 1);
}

static void put(struct action_table *table, uint32_t priority, uint32_t action, uint64_t packets)
{
    uint32_t at = slot_of(table, priority);
    while (table->slot[at].priority != VFDB_NONE)
        at = (at + 1) & (table->slots - 1);
    table->slot[at].priority = priority;
    table->slot[at].action = action;
    atomic_store_explicit(&table->slot[at].packets, packets, memory_order_relaxed);
}

int action_table_reserve(struct action_table *table, uint32_t count)
{
    uint32_t slots = table->slots ? table->slots : 16;
    while (slots / 2 < count && slots < UINT32_C(1) << 31)
        slots *= 2;
    if (slots / 2 < count)
        return VFDB_TOO_LARGE;
    if (slots == table->slots)
        return VFDB_OK;
    struct action_table larger = {
        .budget = table->budget,
        .slot = budget_take(table->budget, slots * sizeof *larger.slot),
        .slots = slots,
        .used = table->used,
    };
    if (!larger.slot)
        return VFDB_NO_MEMORY;
    for (uint32_t i = 0; i < slots; i++)
        larger.slot[i].priority = VFDB_NONE;
    for (uint32_t i = 0; i < table->slots; i++) {
        struct filter_entry *old = &table->slot[i];
        if (old->priority != VFDB_NONE)
            put(&larger, old->priority, old->action, atomic_load(&old->packets));
    }
    action_table_free(table);
    *table = larger;
    return VFDB_OK;
}

void action_table_free(struct action_table *table)
{
    budget_give(table->budget, table->slot, table->slots * sizeof *table->slot);
    table->slot = NULL;
    table->slots = 0;
}

struct filter_entry *action_table_find(const struct action_table *table, uint32_t priority)
{
    uint32_t at = slot_of(table, priority);
    while (table->slot[at].priority != priority) {
        if (table->slot[at].priority == VFDB_NONE)
            return NULL;
        at = (at + 1) & (table->slots - 1);
    }
    return &table->slot[at];
}

void action_table_add(struct action_table *table, uint32_t priority, uint32_t action)
{
    put(table, priority, action, 0);
    table->used++;
}

void action_table_remove(struct action_table *table, struct filter_entry *entry)
{
    uint32_t mask = table->slots - 1, hole = (uint32_t)(entry - table->slot);
    for (uint32_t at = (hole + 1) & mask; table->slot[at].priority != VFDB_NONE; at = (at + 1) & mask) {
        /* An entry may move into the hole unless its own slot lies behind the hole. */
        uint32_t own = slot_of(table, table->slot[at].priority);
        if (((at - own) & mask) < ((at - hole) & mask))
            continue;
        struct filter_entry *from = &table->slot[at], *to = &table->slot[hole];
        to->priority = from->priority;
        to->action = from->action;
        atomic_store_explicit(&to->packets, atomic_load(&from->packets), memory_order_relaxed);
        hole = at;
    }
    table->slot[hole].priority = VFDB_NONE;
    table->used--;
}
