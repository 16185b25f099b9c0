#ifndef HITABLES_LINE_SHAPE_H
#define HITABLES_LINE_SHAPE_H
#include <stddef.h>
#include <stdint.h>

/* Copy *text* to *shape* with one NUL in place of each literal, and write where each literal starts and
 * ends in *text*.  shape: room for *size* bytes; start, end: for size / 2 each.  kept: names, each
 * followed by a NUL, that are not literals behind -j.  Returns the length of the shape; *literals: their
 * number. */
size_t shape_of(const char *text, size_t size, const char *kept, size_t kept_size, char *shape,
                uint32_t *start, uint32_t *end, size_t *literals);

#endif
