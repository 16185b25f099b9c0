#ifndef HITABLES_RAW_SENDER_H
#define HITABLES_RAW_SENDER_H
#include <stdint.h>

/* Send *count* IPv4 packets of *size* bytes each ([count][size]) through the raw socket *fd*, all of them
 * *rounds* times.  Returns the thread's CPU time in nanoseconds, or -errno. */
int64_t sender_time(int fd, const uint8_t *packets, uint32_t size, uint32_t count, uint32_t rounds);

/* The same through a tunnel: each packet, of any family, enters by the device behind *fd* and is
 * forwarded, which also runs in the system call. */
int64_t sender_forward_time(int fd, const uint8_t *packets, uint32_t size, uint32_t count, uint32_t rounds);

#endif
