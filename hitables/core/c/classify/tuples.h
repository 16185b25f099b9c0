#ifndef HITABLES_TUPLES_H
#define HITABLES_TUPLES_H
#include <stdbool.h>
#include <stdint.h>

#include "budget.h"
#include "slab.h"
#include "vfdb.h"

/* Rules in hash tables, one table per combination of prefix lengths (a tuple). */

struct tuple_rule {
    struct tuple_rule *next;
    uint32_t priority, hash, number; /* number: the slab's */
    uint32_t box[];                  /* [dims][2]: with five dimensions a rule fills a cache line */
};

struct tuple {
    struct tuple *next;     /* of the same place in the table of tuples */
    uint32_t bound, place;  /* place: in the order */
    uint32_t number;        /* no other tuple has it now */
    uint32_t count, slots, shift, words;
    uint32_t debt;      /* updates since the bound became loose, 0: it is the best priority */
    uint32_t *filter;   /* [slots] two bits for each rule of the chain */
    struct tuple_rule **head; /* [slots] by rising priority */
    uint8_t length[VFDB_DIMS], word[VFDB_DIMS];
    uint32_t mask[VFDB_DIMS]; /* [words] of the key's word */
};

/* Rules that were put last: a rule behind one of the same chain is put without reading the chain from its
 * start, so that many equal rules take no more time than others. */
enum { RECENT = 64 };
struct recent_rule {
    const struct tuple *tuple;
    struct tuple_rule *rule; /* which is in its chain; NULL: none */
};

struct tuples {
    struct budget *budget;
    struct slab *rules;
    uint32_t dims, words;
    uint8_t bits[VFDB_DIMS], word[VFDB_DIMS], up[VFDB_DIMS]; /* where a dimension lies in the key */
    struct tuple **order;  /* [room], by rising bound */
    struct tuple **number; /* [room], by number, with gaps */
    struct tuple **table;  /* [places], by lengths */
    uint32_t count, room, places;
    struct recent_rule recent[RECENT]; /* by hash */
    bool bare; /* tuples have no hash tables: tuple_table.h has one for all */
};

/* One odd number per word of the key.  They are fixed, so rules that share a chain can be written on purpose.
 */
extern const uint32_t tuple_odd[VFDB_DIMS];
#define TUPLE_AGAIN 0x2C1B3C6Du

int tuples_open(struct tuples *tuples, struct budget *budget, const struct vfdb_rules *rules);
void tuples_close(struct tuples *tuples);
void tuples_lengths(const struct tuples *tuples, const uint32_t *box, uint8_t *length);
void tuples_key(const struct tuples *tuples, const uint32_t *sides, uint32_t stride, uint32_t *key);
struct tuple *tuples_find(const struct tuples *tuples, const uint8_t *length);
struct tuple *tuples_have(struct tuples *tuples, const uint8_t *length);
/* Free a tuple without rules. */
void tuples_forget(struct tuples *tuples, struct tuple *tuple);
bool tuple_put(struct tuples *tuples, struct tuple *tuple, const uint32_t *key, const uint32_t *box,
               uint32_t priority);
bool tuple_drop(struct tuples *tuples, struct tuple *tuple, const uint32_t *key, const uint32_t *box,
                uint32_t priority);

/* Where a rule of *tuple* and *hash* belongs in the chain that begins at *head*.  *tuple* NULL: the chain is
 * of all tuples. */
struct tuple_rule **tuples_place(struct tuples *tuples, const struct tuple *tuple, struct tuple_rule **head,
                                 uint32_t hash, uint32_t priority);
/* The rule has been put there, or is about to be freed. */
void tuples_put_last(struct tuples *tuples, const struct tuple *tuple, struct tuple_rule *rule);
void tuples_gone(struct tuples *tuples, const struct tuple_rule *rule);

static inline uint32_t tuple_hash(const struct tuple *tuple, const uint32_t *key)
{
    uint32_t hash = 0;
    for (uint32_t w = 0; w < tuple->words; w++)
        hash += (key[tuple->word[w]] & tuple->mask[w]) * tuple_odd[w];
    return (hash ^ hash >> 15) * TUPLE_AGAIN;
}

static inline uint32_t tuple_slot(const struct tuple *tuple, uint32_t hash)
{
    return hash >> tuple->shift;
}

/* Whether a slot with that filter may hold a rule of that hash. */
static inline uint32_t tuple_may(uint32_t filter, uint32_t hash)
{
    return filter >> (hash & 31) & filter >> (hash >> 5 & 31) & 1;
}

/* The first side that does not hold the header ends it: what a filter lets through mostly matches. */
static inline bool box_holds(const uint32_t *box, const uint32_t *header, uint32_t dims)
{
    for (uint32_t d = 0; d < dims; d++)
        if (header[d] - box[2 * d] > box[2 * d + 1] - box[2 * d])
            return false;
    return true;
}

static inline bool rule_matches(const struct tuple_rule *rule, const uint32_t *header, uint32_t dims)
{
    return dims == 5 ? box_holds(rule->box, header, 5) : box_holds(rule->box, header, dims);
}

#endif
