/* Packets as records of a pcap file.
 *
 * Idea: an Ethernet frame cut off behind the header of its protocol, with the length that the whole has.
 * Cost: one pass; at most CAPTURE_RECORD_ROOM bytes for each packet.
 * Invariant: read again, a record gives its packet's header (of protocols without ports, without them), time
 * and length.  IP headers have their checksum; that of TCP, which needs the whole packet, is 0.
 * Threading: any number of threads may call this.
 */
#include "capture.h"

#include <string.h>

enum { RECORD = 16, ETHERNET = 14, IP = 20, TCP_SIZE = 20, UDP_SIZE = 8, LARGEST = 65535 };

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xffff);
}

size_t capture_write_head(uint8_t *out)
{
    memset(out, 0, CAPTURE_FILE_HEADER);
    put32(out, 0xa1b23c4d); /* nanoseconds */
    put16(out + 4, 2);
    put16(out + 6, 4);
    put32(out + 16, LARGEST);
    put32(out + 20, 1); /* Ethernet */
    return CAPTURE_FILE_HEADER;
}

/* Write the header of IPv4 for a packet of *size* bytes. */
static void put_ip(uint8_t *ip, const uint32_t *header, uint32_t size)
{
    uint32_t sum = 0;
    memset(ip, 0, IP);
    ip[0] = 0x45;
    put16(ip + 2, size);
    ip[6] = 0x40; /* do not fragment */
    ip[8] = 64;
    ip[9] = (uint8_t)header[4];
    put32(ip + 12, header[0]);
    put32(ip + 16, header[1]);
    for (unsigned i = 0; i < IP; i += 2)
        sum += (uint32_t)ip[i] << 8 | ip[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    put16(ip + 10, ~sum & 0xffff);
}

/* Write the ports of a protocol that has them; returns the bytes written. */
static size_t put_ports(uint8_t *at, const uint32_t *header, uint32_t size)
{
    uint32_t protocol = header[4];
    if (protocol != 6 && protocol != 17 && protocol != 33 && protocol != 132 && protocol != 136)
        return 0;
    size_t written = protocol == 6 ? TCP_SIZE : UDP_SIZE;
    memset(at, 0, written);
    put16(at, header[2]);
    put16(at + 2, header[3]);
    if (protocol == 6) {
        at[12] = 5 << 4; /* words of the header */
        at[13] = 0x10;   /* ACK */
        put16(at + 14, 0xffff);
    } else if (protocol == 17) {
        put16(at + 4, size - IP);
    }
    return written;
}

size_t capture_write(const uint32_t *header, const int64_t *time, const uint32_t *length, size_t count,
                     uint8_t *out)
{
    static const uint8_t macs[ETHERNET] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0};
    uint8_t *record = out;
    for (size_t i = 0; i < count; i++, header += 5) {
        uint8_t *frame = record + RECORD;
        uint32_t least = ETHERNET + IP + (header[4] == 6 ? TCP_SIZE : UDP_SIZE), whole = length[i];
        whole = whole < least ? least : whole > LARGEST + ETHERNET ? LARGEST + ETHERNET : whole;
        memcpy(frame, macs, ETHERNET);
        put_ip(frame + ETHERNET, header, whole - ETHERNET);
        uint32_t captured =
            (uint32_t)(ETHERNET + IP + put_ports(frame + ETHERNET + IP, header, whole - ETHERNET));
        put32(record, (uint32_t)(time[i] / 1000000000));
        put32(record + 4, (uint32_t)(time[i] % 1000000000));
        put32(record + 8, captured);
        put32(record + 12, whole);
        record = frame + captured;
    }
    return (size_t)(record - out);
}
