/* One hash table for the rules of all tuples, as Sahasranaman and Buddhikot had it (section 2.3).
 *
 * Idea: the key of a rule is the number of its tuple and the bits that the tuple's lengths keep.
 * Cost: O(1) per search and update, at no more rules than slots.
 * Invariant: a chain's priorities rise; every tuple has rules.
 * Threading: readers change nothing; an update must run alone.
 */
#include "tuple_table.h"

#include <string.h>

enum { LEAST_SLOTS = 16, MOST_SLOTS = 1 << 30 };

static struct tuple_rule **slot_of(const struct tuple_table *table, uint32_t hash)
{
    return table->head + (hash >> table->shift);
}

/* Twice or half as many slots; false when memory is exhausted, and then nothing has changed. */
static bool resize(struct tuple_table *table, struct budget *budget, uint32_t slots)
{
    struct tuple_table other = {budget_take(budget, slots * sizeof *other.head), table->count, slots,
                                32 - (uint32_t)__builtin_ctz(slots)};
    if (!other.head)
        return false;
    for (uint32_t i = 0; i < table->slots; i++) {
        struct tuple_rule **behind[2] = {NULL, NULL}; /* the last rule, of an even slot and of an odd one */
        for (struct tuple_rule *rule = table->head[i], *next; rule; rule = next) {
            uint32_t slot = rule->hash >> other.shift;
            next = rule->next;
            struct tuple_rule **at = behind[slot % 2] ? behind[slot % 2] : other.head + slot;
            while (*at && (*at)->priority < rule->priority)
                at = &(*at)->next;
            rule->next = *at;
            *at = rule;
            behind[slot % 2] = &rule->next;
        }
    }
    budget_give(budget, table->head, table->slots * sizeof *table->head);
    *table = other;
    return true;
}

bool tuple_table_open(struct tuple_table *table, struct budget *budget)
{
    return resize(table, budget, LEAST_SLOTS);
}

void tuple_table_close(struct tuple_table *table, struct budget *budget)
{
    budget_give(budget, table->head, table->slots * sizeof *table->head);
}

bool tuple_table_put(struct tuple_table *table, struct tuples *tuples, struct tuple *tuple,
                     const uint32_t *key, const uint32_t *box, uint32_t priority)
{
    uint32_t number;
    /* A table too full is slower and right still, so that it cannot grow is no failure. */
    if (table->count >= table->slots && table->slots < MOST_SLOTS)
        resize(table, tuples->budget, 2 * table->slots);
    struct tuple_rule *rule = slab_take(tuples->rules, &number);
    if (!rule) {
        if (!tuple->count)
            tuples_forget(tuples, tuple);
        return false;
    }
    *rule = (struct tuple_rule){
        .priority = priority, .hash = tuple_table_hash(tuple, key), .number = number};
    memcpy(rule->box, box, 2 * tuples->dims * sizeof *box);
    struct tuple_rule **at =
        tuples_place(tuples, NULL, slot_of(table, rule->hash), rule->hash, priority);
    rule->next = *at;
    *at = rule;
    tuples_put_last(tuples, NULL, rule);
    table->count++;
    tuple->count++;
    return true;
}

bool tuple_table_drop(struct tuple_table *table, struct tuples *tuples, struct tuple *tuple,
                      const uint32_t *key, const uint32_t *box, uint32_t priority)
{
    struct tuple_rule **at = slot_of(table, tuple_table_hash(tuple, key));
    while (*at && ((*at)->priority != priority || memcmp((*at)->box, box, 2 * tuples->dims * sizeof *box)))
        at = &(*at)->next;
    if (!*at)
        return false;
    uint32_t number = (*at)->number;
    tuples_gone(tuples, *at);
    *at = (*at)->next;
    slab_give(tuples->rules, number);
    table->count--;
    if (!--tuple->count)
        tuples_forget(tuples, tuple);
    if (table->slots > LEAST_SLOTS && table->count < table->slots / 8)
        resize(table, tuples->budget, table->slots / 2);
    return true;
}
