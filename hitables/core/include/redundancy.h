#ifndef HITABLES_REDUNDANT_H
#define HITABLES_REDUNDANT_H
#include <stddef.h>
#include <stdint.h>

/* Rules of a list that may go, and rules that may change places: see redundant.c.
 *
 * A list is read by each backend in its own way.  In a reading a rule is some pieces: a box of
 * packets, and what becomes of them there.  Coordinates run from 0 to tops[axis]. */

/* Actions of a piece.  The others are ends: the same number, the same end. */
enum redundant_action { REDUNDANT_ACTS }; /* anything may happen, and may not: nobody knows */

struct redundant_reading {
    uint32_t axes, pieces, rules;
    const uint32_t *tops;        /* [axes] */
    const uint32_t *low, *high;  /* [pieces][axes] */
    const uint32_t *rule;        /* [pieces], ascending */
    const uint32_t *action;      /* [pieces]; pieces of one rule do not overlap */
    const uint8_t *broken;       /* [pieces]: it drops packets that may always be dropped */
    uint32_t end;                /* the action of whoever falls off */
};

enum redundant_status { REDUNDANT_OK, REDUNDANT_NO_MEMORY };

/* Why a rule may go. */
enum redundant_why {
    REDUNDANT_STAYS,
    REDUNDANT_NEVER,   /* rules before it end the way of all packets that it could do anything to */
    REDUNDANT_NOTHING, /* what stands behind it, or the end of the list, does the same */
};

/* Find rules that may go, all of them together; those of keep[] stay.  why[] has a place per rule. */
enum redundant_status redundant_find(const struct redundant_reading *reading, uint32_t readings,
                                     const uint8_t *keep, uint8_t *why);

/* Rules in the order of (phase, group, number) do what they do in the order of their numbers.
 * group[]: from 0, below 4; lower ones are to come first.  why[]: rules that stay take part. */
enum redundant_status redundant_phases(const struct redundant_reading *reading, uint32_t readings,
                                       const uint8_t *group, const uint8_t *why, uint32_t *phase);

#endif
