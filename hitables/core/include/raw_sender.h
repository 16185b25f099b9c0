#ifndef HITABLES_SENDER_H
#define HITABLES_SENDER_H
#include <stdint.h>

/* Send *count* IPv4 packets of *size* bytes each through the raw socket *fd*, all of them
 * *rounds* times.  Gives the thread's CPU time in nanoseconds, or -errno. */
int64_t sender_time(int fd, const uint8_t *packets, uint32_t size, uint32_t count, uint32_t rounds);

/* The same by way of a tunnel: each packet, of any family, comes in through the device behind *fd* and is
 * routed on.  What it does there runs in the system call too. */
int64_t sender_forward_time(int fd, const uint8_t *packets, uint32_t size, uint32_t count, uint32_t rounds);

#endif
