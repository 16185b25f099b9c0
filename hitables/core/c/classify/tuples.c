/* Tuples: hash tables of rules, one per combination of prefix lengths.
 *
 * Idea: a tuple stores its rules under the bits that its lengths keep; a range has the length of the smallest
 * prefix that encloses it, and a candidate rule is compared as a whole.  In front of its chains a table has a
 * word of 32 bits per slot, a Bloom filter of two bits per rule, so that nearly all searches without a match
 * skip the chains.
 * Cost: O(1) per update, and as many pointers moved as the tuple changes places.
 * Invariant: a tuple's bound is at most its best priority, and tuples are sorted by rising bound.  A chain's
 * priorities rise.  Every tuple has rules.
 * Threading: readers change nothing; an update must run alone.
 */
#include "tuples.h"

#include <string.h>

enum { LEAST_SLOTS = 4, LEAST_TUPLES = 16 };

const uint32_t tuple_odd[VFDB_DIMS] = {
    0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1, 0xD6E8FEB9, 0xA0761D65,
    0xE7037ED1, 0x8EBC6AF1, 0x589965CD, 0x1D8E4E27, 0xEB44ACCB, 0xCB1AB31F, 0xD1342543,
    0x2545F491, 0x94D049BB, 0xBF58476D, 0x369DEA0F, 0x31415927, 0x27182819,
};

static uint32_t signs_of(uint32_t hash)
{
    return 1u << (hash & 31) | 1u << (hash >> 5 & 31);
}

/* Dimensions share words of 32 bits, first come first served. */
static void pack(struct tuples *db, const uint8_t *bits)
{
    uint32_t free = 0;
    for (uint32_t d = 0; d < db->dims; d++) {
        db->bits[d] = bits[d];
        if (free < bits[d]) {
            free = 32;
            db->words++;
        }
        free -= bits[d];
        db->word[d] = (uint8_t)(db->words - 1);
        db->up[d] = (uint8_t)free;
    }
}

/* The words of a key, from every *stride*th of the sides. */
void tuples_key(const struct tuples *db, const uint32_t *sides, uint32_t stride, uint32_t *key)
{
    memset(key, 0, db->words * sizeof *key);
    for (uint32_t d = 0; d < db->dims; d++)
        key[db->word[d]] |= sides[d * stride] << db->up[d];
}

/* The lengths of the prefixes that enclose a box. */
void tuples_lengths(const struct tuples *db, const uint32_t *box, uint8_t *length)
{
    for (uint32_t d = 0; d < db->dims; d++) {
        uint32_t differ = box[2 * d] ^ box[2 * d + 1];
        length[d] = (uint8_t)(db->bits[d] - (differ ? 32 - (uint32_t)__builtin_clz(differ) : 0));
    }
}

/* -- tuples ----------------------------------------------------------------------------------- */

static struct tuple **place_in_table(const struct tuples *db, const uint8_t *length)
{
    uint32_t hash = 0;
    for (uint32_t d = 0; d < db->dims; d++)
        hash = (hash + length[d] + 1) * TUPLE_AGAIN;
    struct tuple **at = db->table + ((hash ^ hash >> 16) & (db->places - 1));
    while (*at && memcmp((*at)->length, length, db->dims))
        at = &(*at)->next;
    return at;
}

static bool widen_table(struct tuples *db)
{
    struct tuple **old = db->table;
    uint32_t places = db->places;
    struct tuple **table = budget_take(db->budget, 2 * places * sizeof *table);
    if (!table)
        return false;
    db->table = table;
    db->places = 2 * places;
    for (uint32_t i = 0; i < places; i++)
        for (struct tuple *tuple = old[i], *next; tuple; tuple = next) {
            next = tuple->next;
            tuple->next = NULL;
            *place_in_table(db, tuple->length) = tuple;
        }
    budget_give(db->budget, old, places * sizeof *old);
    return true;
}

/* Moves a tuple to where its bound belongs. */
static void settle_place(struct tuples *db, struct tuple *tuple)
{
    uint32_t at = tuple->place;
    for (; at && db->order[at - 1]->bound > tuple->bound; at--) {
        db->order[at] = db->order[at - 1];
        db->order[at]->place = at;
    }
    for (; at + 1 < db->count && db->order[at + 1]->bound < tuple->bound; at++) {
        db->order[at] = db->order[at + 1];
        db->order[at]->place = at;
    }
    db->order[at] = tuple;
    tuple->place = at;
}

static void table_bytes(uint32_t slots, size_t *filter, size_t *head)
{
    *filter = slots * sizeof(uint32_t);
    *head = slots * sizeof(struct tuple_rule *);
}

void tuples_forget(struct tuples *db, struct tuple *tuple)
{
    size_t filter, head;
    *place_in_table(db, tuple->length) = tuple->next;
    db->number[tuple->number] = NULL;
    db->count--;
    for (uint32_t at = tuple->place; at < db->count; at++) {
        db->order[at] = db->order[at + 1];
        db->order[at]->place = at;
    }
    table_bytes(tuple->slots, &filter, &head);
    budget_give(db->budget, tuple->filter, filter);
    budget_give(db->budget, tuple->head, head);
    budget_give(db->budget, tuple, sizeof *tuple);
}

static struct recent_rule *recent_of(struct tuples *db, uint32_t hash)
{
    return db->recent + (hash ^ hash >> 16) % RECENT;
}

struct tuple_rule **tuples_place(struct tuples *db, const struct tuple *tuple, struct tuple_rule **head,
                                 uint32_t hash, uint32_t priority)
{
    /* Of the same hash and tuple, hence of the same chain, however many slots there are. */
    const struct recent_rule *recent = recent_of(db, hash);
    struct tuple_rule **at = head;
    if (recent->rule && recent->tuple == tuple && recent->rule->hash == hash &&
        recent->rule->priority <= priority)
        at = &recent->rule->next;
    while (*at && (*at)->priority < priority)
        at = &(*at)->next;
    return at;
}

void tuples_put_last(struct tuples *db, const struct tuple *tuple, struct tuple_rule *rule)
{
    *recent_of(db, rule->hash) = (struct recent_rule){tuple, rule};
}

void tuples_gone(struct tuples *db, const struct tuple_rule *rule)
{
    if (recent_of(db, rule->hash)->rule == rule)
        recent_of(db, rule->hash)->rule = NULL;
}

/* Another number of slots, twice or half as many: the chains are dealt out anew, in order. */
static bool resize(struct tuples *db, struct tuple *tuple, uint32_t slots)
{
    size_t filter_bytes, head_bytes;
    table_bytes(slots, &filter_bytes, &head_bytes);
    uint32_t *filter = budget_take(db->budget, filter_bytes);
    struct tuple_rule **head = filter ? budget_take(db->budget, head_bytes) : NULL;
    if (!head) {
        budget_give(db->budget, filter, filter_bytes);
        return false;
    }
    uint32_t old = tuple->slots;
    struct tuple_rule **chains = tuple->head;
    tuple->shift = 32 - (uint32_t)__builtin_ctz(slots);
    for (uint32_t i = 0; i < old; i++) {
        struct tuple_rule **behind[2] = {NULL, NULL}; /* the last rule, of an even slot and of an odd one */
        for (struct tuple_rule *rule = chains[i], *next; rule; rule = next) {
            uint32_t slot = tuple_slot(tuple, rule->hash);
            next = rule->next;
            struct tuple_rule **at = behind[slot % 2] ? behind[slot % 2] : head + slot;
            filter[slot] |= signs_of(rule->hash);
            while (*at && (*at)->priority < rule->priority)
                at = &(*at)->next;
            rule->next = *at;
            *at = rule;
            behind[slot % 2] = &rule->next;
        }
    }
    table_bytes(old, &filter_bytes, &head_bytes);
    budget_give(db->budget, tuple->filter, filter_bytes);
    budget_give(db->budget, chains, head_bytes);
    tuple->filter = filter;
    tuple->head = head;
    tuple->slots = slots;
    return true;
}

static struct tuple *add_tuple(struct tuples *db, const uint8_t *length)
{
    if (db->count == db->places && !widen_table(db))
        return NULL;
    if (db->count == db->room) {
        size_t bytes = db->room * sizeof *db->order;
        struct tuple **order = budget_take(db->budget, 2 * bytes);
        struct tuple **number = order ? budget_resize(db->budget, db->number, bytes, 2 * bytes) : NULL;
        if (!number) {
            budget_give(db->budget, order, 2 * bytes);
            return NULL;
        }
        memcpy(order, db->order, bytes);
        budget_give(db->budget, db->order, bytes);
        db->order = order;
        db->number = number;
        db->room *= 2;
    }
    struct tuple *tuple = budget_take(db->budget, sizeof *tuple);
    if (!tuple)
        return NULL;
    if (!db->bare && !resize(db, tuple, LEAST_SLOTS)) {
        budget_give(db->budget, tuple, sizeof *tuple);
        return NULL;
    }
    uint32_t mask[VFDB_DIMS] = {0};
    for (uint32_t d = 0; d < db->dims; d++) {
        uint32_t ones = length[d] ? UINT32_MAX >> (32 - length[d]) : 0;
        mask[db->word[d]] |= ones << (db->bits[d] - length[d]) % 32 << db->up[d];
    }
    for (uint32_t w = 0; w < db->words; w++)
        if (mask[w]) {
            tuple->word[tuple->words] = (uint8_t)w;
            tuple->mask[tuple->words++] = mask[w];
        }
    memcpy(tuple->length, length, db->dims);
    *place_in_table(db, length) = tuple;
    tuple->bound = VFDB_NONE;
    while (db->number[tuple->number])
        tuple->number++;
    db->number[tuple->number] = tuple;
    tuple->place = db->count;
    db->order[db->count++] = tuple;
    return tuple;
}

struct tuple *tuples_find(const struct tuples *db, const uint8_t *length)
{
    return *place_in_table(db, length);
}

/* The tuple of those lengths, made if need be; NULL when memory is exhausted. */
struct tuple *tuples_have(struct tuples *db, const uint8_t *length)
{
    struct tuple *answers = *place_in_table(db, length);
    return answers ? answers : add_tuple(db, length);
}

/* A tuple that lost its best rule looks for the next one when as many updates have passed as looking
 * costs, so an update stays O(1). */
static void tighten(struct tuples *db, struct tuple *tuple)
{
    if (!tuple->debt || ++tuple->debt <= tuple->slots / 4)
        return;
    uint32_t bound = VFDB_NONE;
    for (uint32_t i = 0; i < tuple->slots; i++)
        if (tuple->head[i] && tuple->head[i]->priority < bound)
            bound = tuple->head[i]->priority;
    tuple->debt = 0;
    tuple->bound = bound;
    settle_place(db, tuple);
}

int tuples_open(struct tuples *db, struct budget *budget, const struct vfdb_rules *rules)
{
    *db = (struct tuples){.budget = budget, .dims = rules->dims};
    pack(db, rules->bits);
    size_t size = sizeof(struct tuple_rule) + 2 * db->dims * sizeof(uint32_t);
    db->rules = slab_new(budget, (size + 7) / 8 * 8);
    db->order = budget_take(budget, LEAST_TUPLES * sizeof *db->order);
    db->number = budget_take(budget, LEAST_TUPLES * sizeof *db->number);
    db->table = budget_take(budget, LEAST_TUPLES * sizeof *db->table);
    if (db->rules && db->order && db->number && db->table) {
        db->room = db->places = LEAST_TUPLES;
        return VFDB_OK;
    }
    slab_free(db->rules);
    budget_give(budget, db->order, LEAST_TUPLES * sizeof *db->order);
    budget_give(budget, db->number, LEAST_TUPLES * sizeof *db->number);
    budget_give(budget, db->table, LEAST_TUPLES * sizeof *db->table);
    return VFDB_NO_MEMORY;
}

void tuples_close(struct tuples *db)
{
    while (db->count)
        tuples_forget(db, db->order[db->count - 1]);
    slab_free(db->rules);
    budget_give(db->budget, db->order, db->room * sizeof *db->order);
    budget_give(db->budget, db->number, db->room * sizeof *db->number);
    budget_give(db->budget, db->table, db->places * sizeof *db->table);
}

/* -- rules ------------------------------------------------------------------------------------ */

/* Insert a rule; false when memory is exhausted, and a tuple without rules is then freed. */
bool tuple_put(struct tuples *db, struct tuple *tuple, const uint32_t *key, const uint32_t *box,
               uint32_t priority)
{
    uint32_t number;
    /* A table too full is slower and right still, so that it cannot grow is no failure. */
    if (tuple->count >= tuple->slots && tuple->slots < 1u << 30)
        resize(db, tuple, 2 * tuple->slots);
    struct tuple_rule *rule = slab_take(db->rules, &number);
    if (!rule) {
        if (!tuple->count)
            tuples_forget(db, tuple);
        return false;
    }
    uint32_t hash = tuple_hash(tuple, key), slot = tuple_slot(tuple, hash);
    struct tuple_rule **at = tuples_place(db, tuple, tuple->head + slot, hash, priority);
    *rule = (struct tuple_rule){.next = *at, .priority = priority, .hash = hash, .number = number};
    memcpy(rule->box, box, 2 * db->dims * sizeof *box);
    *at = rule;
    tuples_put_last(db, tuple, rule);
    tuple->filter[slot] |= signs_of(hash);
    tuple->count++;
    if (priority <= tuple->bound) {
        tuple->bound = priority;
        tuple->debt = 0;
        settle_place(db, tuple);
    } else {
        tighten(db, tuple);
    }
    return true;
}

/* Take a rule out, and the tuple with its last one; false if it is not there. */
bool tuple_drop(struct tuples *db, struct tuple *tuple, const uint32_t *key, const uint32_t *box,
                uint32_t priority)
{
    uint32_t slot = tuple_slot(tuple, tuple_hash(tuple, key)), signs = 0;
    struct tuple_rule **at = tuple->head + slot;
    while (*at && ((*at)->priority != priority || memcmp((*at)->box, box, 2 * db->dims * sizeof *box)))
        at = &(*at)->next;
    if (!*at)
        return false;
    uint32_t number = (*at)->number;
    tuples_gone(db, *at);
    *at = (*at)->next;
    slab_give(db->rules, number);
    for (const struct tuple_rule *rule = tuple->head[slot]; rule && signs != tuple->filter[slot];
         rule = rule->next)
        signs |= signs_of(rule->hash);
    tuple->filter[slot] = signs;
    if (!--tuple->count) {
        tuples_forget(db, tuple);
        return true;
    }
    if (tuple->slots > LEAST_SLOTS && tuple->count < tuple->slots / 8)
        resize(db, tuple, tuple->slots / 2);
    if (priority == tuple->bound)
        tuple->debt++;
    tighten(db, tuple);
    return true;
}
