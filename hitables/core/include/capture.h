#ifndef HITABLES_CAPTURE_H
#define HITABLES_CAPTURE_H
#include <stddef.h>
#include <stdint.h>

/* Headers of captured packets, read from a stream of bytes: see capture.c. */

enum capture_format {
    CAPTURE_AUTO, /* found out from the first bytes */
    CAPTURE_PCAP,
    CAPTURE_PCAPNG,
    CAPTURE_ERF,
    CAPTURE_DAG_ATM, /* legacy DAG records of 64 bytes: the first cell of a frame */
    CAPTURE_DAG_ETHERNET,
    CAPTURE_DAG_POS,
};

/* Which packets are read, and the words of a header: source, destination (1 word each, or 4), source port,
 * destination port, protocol; of a place: the version (4, 6), where the IP packet begins in *data*, its bytes
 * there, and its bytes in the whole frame. */
enum capture_family {
    CAPTURE_PLACES = 1, /* 4 words: both families, of which nothing is read behind the link layer */
    CAPTURE_IPV4 = 4,  /* 5 words */
    CAPTURE_IPV6 = 6,  /* 11 words */
    CAPTURE_BOTH = 10, /* 11 words, IPv4 addresses as ::ffff:a.b.c.d */
};

enum capture_status {
    CAPTURE_OK,
    CAPTURE_NO_MEMORY,
    CAPTURE_UNKNOWN,       /* the bytes are of no format that is read */
    CAPTURE_BAD_VERSION,   /* fault: the version */
    CAPTURE_BAD_LINK,      /* fault: the link type */
    CAPTURE_BAD_LENGTH,    /* fault: the length of a record, which is impossible */
    CAPTURE_BAD_TRAILER,   /* fault: the length at the end of a pcapng block; it differs from the first */
    CAPTURE_BAD_ORDER,     /* fault: the byte-order magic of a pcapng section */
    CAPTURE_BAD_INTERFACE, /* fault: the number of an interface that was not described */
    CAPTURE_BAD_CLOCK,     /* fault: a resolution of time stamps beyond 64 bits */
};

/* Every record is in one of: packets, not_ip, other_family, ports_cut, malformed, other_link. */
struct capture_counts {
    uint64_t records; /* of packets */
    uint64_t packets; /* whose header was returned */
    uint64_t not_ip;
    uint64_t other_family;
    uint64_t ports_cut;  /* the capture ends before the protocol or the ports of the packet */
    uint64_t malformed;  /* the packet itself has no valid IP header, or ends before its ports */
    uint64_t other_link; /* frames of a link type that is not read */
    /* Of the packets returned: */
    uint64_t later_fragments; /* they have no ports: both are 0 */
    uint64_t untimed;         /* the file has no time for them: they have that of the packet before */
    uint64_t shortened;       /* records of any kind that hold less than the whole frame */
    uint64_t offset;          /* bytes of the stream that were consumed */
    uint64_t needed;          /* bytes that the record at offset has, 0: not known yet */
    uint64_t fault;           /* the number at fault */
    uint32_t link;            /* the first link type of other_link; of an ERF record 65536 + its type */
    uint32_t format;
};

struct capture;

/* NULL when memory is exhausted. */
struct capture *capture_new(enum capture_format format, enum capture_family family);
/* NULL is no capture. */
void capture_free(struct capture *capture);

/* Read the records of *data*, of which *used is set to the bytes consumed; the caller gives the others again,
 * with more behind them.  The first call has 64 KiB or the whole stream, if the format is to be found out.
 * header: [room][words]; time: [room], ns since 1970; length: [room], bytes of the frame; *count: how many
 * are set.  Stops at *room* packets.  After a status other than CAPTURE_OK no call may follow; the packets
 * before the fault are returned. */
enum capture_status capture_read(struct capture *capture, const uint8_t *data, size_t size, size_t *used,
                                 uint32_t *header, int64_t *time, uint32_t *length, uint32_t room,
                                 uint32_t *count);

const struct capture_counts *capture_counts(const struct capture *capture);

/* Write packets as records of a pcap file with time stamps in ns: Ethernet, IPv4 and the first bytes of the
 * protocol's header, with valid checksums of IP.  header: [count][5]; length: bytes of the frame, at least
 * those written count.  out: room for count * CAPTURE_RECORD_ROOM bytes.  Returns the bytes written. */
enum { CAPTURE_RECORD_ROOM = 70, CAPTURE_FILE_HEADER = 24 };
size_t capture_write_head(uint8_t *out);
size_t capture_write(const uint32_t *header, const int64_t *time, const uint32_t *length, size_t count,
                     uint8_t *out);

#endif
