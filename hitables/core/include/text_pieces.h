#ifndef HITABLES_TEXT_PIECES_H
#define HITABLES_TEXT_PIECES_H
#include <stddef.h>
#include <stdint.h>

/* Give equal pieces of *text* one number, from 0 on in the order in which they first occur: number[i] for
 * the piece from start[i] to end[i], first[k] for the index of the first piece of number k.  slots: a power
 * of two above *count*; slot: room for so many numbers, all 0.  Returns how many numbers there are. */
size_t number_pieces(const char *text, const uint32_t *start, const uint32_t *end, size_t count,
                     uint32_t *slot, size_t slots, uint32_t *number, uint32_t *first);

/* Read pieces of *text* as A.B.C.D or A.B.C.D/LENGTH without leading zeros: known[i] is 1 and low[i], high[i]
 * the lowest and highest address; known[i] is 0 for any other spelling. */
void read_ipv4(const char *text, const uint32_t *start, const uint32_t *end, size_t count, uint8_t *known,
               uint32_t *low, uint32_t *high);

#endif
