/* Packets sent into the kernel as fast as one thread can, to measure the cost of a rule set.
 *
 * Idea: the whole path of a packet through OUTPUT, or from a tunnel through FORWARD, runs in the caller's own
 * system call, so the thread's CPU time is the cost of that path, and other load on the machine counts
 * little.
 * Cost: a system call per packet, or per 64 through a raw socket.
 * Invariant: packets that the rule set drops are sent like the others.
 * Threading: none; each call uses the caller's descriptor.
 */
#define _GNU_SOURCE
#include "raw_sender.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 64, DESTINATION = 16 };

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t sender_time(int fd, const uint8_t *packets, uint32_t size, uint32_t count, uint32_t rounds)
{
    struct mmsghdr message[BATCH];
    struct iovec part[BATCH];
    struct sockaddr_in to[BATCH];
    memset(message, 0, sizeof message);
    memset(to, 0, sizeof to);
    for (uint32_t i = 0; i < BATCH; i++) {
        to[i].sin_family = AF_INET;
        message[i].msg_hdr.msg_name = &to[i];
        message[i].msg_hdr.msg_namelen = sizeof to[i];
        message[i].msg_hdr.msg_iov = &part[i];
        message[i].msg_hdr.msg_iovlen = 1;
    }
    int64_t began = now();
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t at = 0; at < count;) {
            uint32_t batch = count - at < BATCH ? count - at : BATCH;
            for (uint32_t i = 0; i < batch; i++) {
                const uint8_t *packet = packets + (uint64_t)(at + i) * size;
                part[i].iov_base = (void *)packet;
                part[i].iov_len = size;
                memcpy(&to[i].sin_addr, packet + DESTINATION, 4);
            }
            int sent = sendmmsg(fd, message, batch, 0);
            if (sent > 0)
                at += (uint32_t)sent;
            else if (errno == EPERM)
                at++; /* the rule set dropped the first one */
            else if (errno != EINTR && errno != ENOBUFS && errno != EAGAIN)
                return -errno;
        }
    }
    return now() - began;
}

int64_t sender_forward_time(int fd, const uint8_t *packets, uint32_t size, uint32_t count, uint32_t rounds)
{
    int64_t began = now();
    for (uint32_t round = 0; round < rounds; round++)
        for (uint32_t at = 0; at < count;) {
            if (write(fd, packets + (uint64_t)at * size, size) >= 0)
                at++;
            else if (errno != EINTR && errno != ENOBUFS && errno != EAGAIN)
                return -errno;
        }
    return now() - began;
}
