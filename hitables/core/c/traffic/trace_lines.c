/* Lines of decimal numbers, read and written.
 *
 * Cost: one pass, a few operations for each character.
 * Invariant: a row has as many numbers as the first one, each within its bounds; what a row says is what its
 * line says, and the first line for which that fails is the one that is reported.
 * Threading: any number of threads may call this.
 */
#include "trace_lines.h"

#include <stdbool.h>
#include <string.h>

enum { DIGITS = 10 };

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Read the numbers from *at* to *end*; their count, or -1 for anything else. */
static int numbers(const char *at, const char *end, const uint32_t *least, const uint32_t *tops,
                   uint32_t *row)
{
    int count = 0;
    for (;;) {
        while (at < end && is_blank(*at))
            at++;
        if (at == end)
            return count;
        const char *start = at;
        uint64_t value = 0;
        while (at < end && *at >= '0' && *at <= '9' && at - start < DIGITS)
            value = value * 10 + (uint64_t)(*at++ - '0');
        if (at == start || (at < end && !is_blank(*at)))
            return -1;
        if (count == TRACE_COLUMNS || value < least[count] || value > tops[count])
            return -1;
        row[count++] = (uint32_t)value;
    }
}

enum trace_status trace_read(const char *data, size_t size, const uint32_t *least, const uint32_t *tops,
                             uint32_t fewest, uint32_t *columns, uint32_t *row, uint32_t room,
                             uint32_t *rows, uint64_t *lines, size_t *used)
{
    *rows = 0;
    *lines = 0;
    *used = 0;
    while (*rows < room) {
        const char *start = data + *used;
        const char *end = memchr(start, '\n', size - *used);
        if (!end)
            break;
        int count = numbers(start, end, least, tops, row + (size_t)*rows * TRACE_COLUMNS);
        if (count && (count < (int)fewest || (*columns && count != (int)*columns)))
            return TRACE_BAD_LINE;
        if (count) {
            *columns = (uint32_t)count;
            ++*rows;
        }
        ++*lines;
        *used += (size_t)(end - start) + 1;
    }
    return TRACE_OK;
}

static char *put(char *out, uint32_t value)
{
    char digits[DIGITS];
    unsigned count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    while (count)
        *out++ = digits[--count];
    return out;
}

size_t trace_write(const uint32_t *row, size_t rows, uint32_t columns, char *out)
{
    char *at = out;
    for (size_t i = 0; i < rows; i++)
        for (uint32_t column = 0; column < columns; column++) {
            at = put(at, *row++);
            *at++ = column + 1 < columns ? '\t' : '\n';
        }
    return (size_t)(at - out);
}
