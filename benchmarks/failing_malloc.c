/* In front of the C library's allocator: refuse chosen allocations of one shared library.
 *
 * Idea: the caller's return address says which library asks; allocations of all others pass.
 * Threading: any thread may allocate; fail_between is called while none does.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *piece, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static uintptr_t library_start, library_end;
static atomic_long asked, first_refused, last_refused; /* numbers from 1 */

/* The addresses at which the library's code lies. */
void fail_inside(uintptr_t start, uintptr_t end)
{
    library_start = start, library_end = end;
}

/* Count from 1 again, and refuse the allocations with numbers from *first* to *last*. */
void fail_between(long first, long last)
{
    atomic_store(&asked, 0);
    atomic_store(&first_refused, first);
    atomic_store(&last_refused, last);
}

/* How many allocations the library asked for since fail_between. */
long fail_asked(void)
{
    return atomic_load(&asked);
}

static bool is_refused(const void *caller)
{
    if ((uintptr_t)caller < library_start || (uintptr_t)caller >= library_end)
        return false;
    long number = atomic_fetch_add(&asked, 1) + 1;
    bool refused = number >= atomic_load(&first_refused) && number <= atomic_load(&last_refused);
    if (refused)
        errno = ENOMEM;
    return refused;
}

void *malloc(size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *piece, size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_realloc(piece, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **piece, size_t alignment, size_t size)
{
    if (is_refused(__builtin_return_address(0)))
        return ENOMEM;
    *piece = __libc_memalign(alignment, size);
    return *piece ? 0 : ENOMEM;
}
