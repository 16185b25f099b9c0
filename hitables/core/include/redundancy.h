#ifndef HITABLES_REDUNDANCY_H
#define HITABLES_REDUNDANCY_H
#include <stddef.h>
#include <stdint.h>

/* Rules of a list that can be removed, and rules that can be reordered: see redundancy.c.
 *
 * Each backend reads the list in its own way; that is a reading.  In a reading a rule is some pieces: a
 * box of packets and the action on them.  Coordinates run from 0 to tops[axis]. */

/* Actions of a piece.  All other numbers are ends: packets with the same number end alike. */
enum redundancy_action { REDUNDANCY_ACTS }; /* effect unknown */

struct redundancy_reading {
    uint32_t axes, pieces, rules;
    const uint32_t *tops;       /* [axes] */
    const uint32_t *low, *high; /* [pieces][axes] */
    const uint32_t *rule;       /* [pieces], ascending */
    const uint32_t *action;     /* [pieces]; pieces of one rule do not overlap */
    const uint8_t *broken;      /* [pieces]: not 0 if it drops packets that may always be dropped */
    uint32_t end;               /* the action of a packet that no rule ends */
};

enum redundancy_status { REDUNDANCY_OK, REDUNDANCY_NO_MEMORY };

/* Why a rule can be removed. */
enum redundancy_why {
    REDUNDANCY_STAYS,   /* it cannot */
    REDUNDANCY_NEVER,   /* rules before it end all packets that it acts on */
    REDUNDANCY_NOTHING, /* the rules behind it, or the end of the list, do the same */
};

/* Find rules that can be removed, all of them together.  reading: [readings], all of the same rules.
 * Rules with keep[rule] not 0 stay.  why: [rules], set to enum redundancy_why; undefined on failure. */
enum redundancy_status redundancy_find(const struct redundancy_reading *reading, uint32_t readings,
                                       const uint8_t *keep, uint8_t *why);

/* Find phases such that the rules, in the order of (phase, group, number), do what they do in the order of
 * their numbers.  group: [rules], from 0 to 3; lower groups are preferred first.  why: [rules], of
 * redundancy_find; rules that stay take part.  phase: [rules]; UINT32_MAX for rules that do not. */
enum redundancy_status redundancy_phases(const struct redundancy_reading *reading, uint32_t readings,
                                         const uint8_t *group, const uint8_t *why, uint32_t *phase);

#endif
