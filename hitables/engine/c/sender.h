#ifndef HITABLES_SENDER_H
#define HITABLES_SENDER_H
#include <stdint.h>

/* Send *count* IPv4 packets of *size* bytes each through the raw socket *fd*, all of them
 * *rounds* times.  Gives the thread's CPU time in nanoseconds, or -errno. */
int64_t sender_time(int fd, const uint8_t *packets, uint32_t size, uint32_t count, uint32_t rounds);

#endif
