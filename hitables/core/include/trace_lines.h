#ifndef HITABLES_TRACE_LINES_H
#define HITABLES_TRACE_LINES_H
#include <stddef.h>
#include <stdint.h>

/* Lines of decimal numbers, as ClassBench traces have them: see trace_lines.c. */

enum { TRACE_COLUMNS = 7 }; /* at most */

enum trace_status { TRACE_OK, TRACE_BAD_LINE };

/* Read whole lines of *data*: rows of *columns* numbers, of which number i is at most tops[i] and at least
 * least[i].  *columns: 0 before the first row, which sets it; at least *fewest*.  row: [room]
 * [TRACE_COLUMNS].  *rows, *lines, *used: rows set, lines and bytes consumed; a line of blanks is no row.  At
 * TRACE_BAD_LINE the bytes consumed end before the bad line. */
enum trace_status trace_read(const char *data, size_t size, const uint32_t *least, const uint32_t *tops,
                             uint32_t fewest, uint32_t *columns, uint32_t *row, uint32_t room,
                             uint32_t *rows, uint64_t *lines, size_t *used);

/* Write rows [rows][columns] as lines with tabs.  out: room for 11 bytes for each number.  Returns the bytes
 * written. */
size_t trace_write(const uint32_t *row, size_t rows, uint32_t columns, char *out);

#endif
