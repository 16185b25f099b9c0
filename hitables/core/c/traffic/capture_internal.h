#ifndef HITABLES_CAPTURE_INTERNAL_H
#define HITABLES_CAPTURE_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "budget.h"
#include "capture.h"

/* Link types: those of pcap. */
enum {
    LINK_NULL = 0,
    LINK_ETHERNET = 1,
    LINK_PPP = 9,
    LINK_RAW_BSD = 12,
    LINK_RAW_OPENBSD = 14,
    LINK_PPP_SERIAL = 50,
    LINK_ATM = 100,
    LINK_RAW = 101,
    LINK_CISCO_HDLC = 104,
    LINK_LOOP = 108,
    LINK_SLL = 113,
    LINK_IPV4 = 228,
    LINK_IPV6 = 229,
    LINK_SLL2 = 276,
    LINK_OF_ERF = 0x10000, /* an ERF type that has no link type here: LINK_OF_ERF + type */
};

/* A longer record is taken for damage: no link has such frames, and the caller holds a record at once. */
enum { CAPTURE_LARGEST_RECORD = 16 << 20 };

/* The frame of a record.  length: on the wire, 0 where the record does not have it. */
struct frame {
    const uint8_t *data;
    size_t captured;
    uint32_t length, link;
    int64_t time;
    bool untimed;
};

/* What the bytes at hand begin with. */
enum step {
    STEP_FRAME, /* a record of a packet */
    STEP_OTHER, /* a record of something else */
    STEP_MORE,  /* the begin of a record */
    STEP_BAD,   /* none: capture->status */
};

struct interface {
    uint32_t link, snap;
    uint8_t resolution; /* if_tsresol: 10^-n s, or with bit 7 2^-n s */
    int64_t offset;     /* s */
};

struct capture {
    struct budget *budget;
    struct capture_counts counts;
    enum capture_family family;
    enum capture_status status;
    /* A step sets *size* to the bytes of the record. */
    enum step (*step)(struct capture *capture, const uint8_t *data, size_t room, struct frame *frame,
                      size_t *size);
    int64_t time; /* of the last packet */
    /* pcap and pcapng */
    bool swapped, nanoseconds, patched, begun;
    uint32_t link;
    struct interface *interface;
    uint32_t interfaces, interface_room;
};

/* What a frame turned out to be. */
enum packet_kind { PACKET_IP, PACKET_NOT_IP, PACKET_CUT, PACKET_MALFORMED, PACKET_OTHER_LINK };

/* The IP packet in a frame.  whole: its bytes and those behind it, in the whole frame. */
struct packet_place {
    const uint8_t *at;
    size_t captured;
    uint64_t whole;
    unsigned version; /* 4 or 6, by the link layer if it has one */
};

struct packet_header {
    bool six, later;         /* IPv6; a later fragment */
    const uint8_t *from, *to; /* addresses */
    uint16_t sport, dport;
    uint8_t protocol;
    uint32_t length; /* of the IP packet */
};

bool capture_link_is_read(uint32_t link);
enum packet_kind packet_find(const struct frame *frame, struct packet_place *place);
enum packet_kind packet_read(const struct frame *frame, struct packet_header *header);

enum step capture_pcap(struct capture *, const uint8_t *, size_t, struct frame *, size_t *);
enum step capture_pcapng(struct capture *, const uint8_t *, size_t, struct frame *, size_t *);
enum step capture_erf(struct capture *, const uint8_t *, size_t, struct frame *, size_t *);
enum step capture_dag(struct capture *, const uint8_t *, size_t, struct frame *, size_t *);
/* Whether the bytes look like records of that format, which has no magic number. */
bool capture_looks_erf(const uint8_t *data, size_t size);
bool capture_looks_dag(const uint8_t *data, size_t size, enum capture_format format);

static inline enum step capture_fault(struct capture *capture, enum capture_status status, uint64_t fault)
{
    capture->status = status;
    capture->counts.fault = fault;
    return STEP_BAD;
}

static inline enum step capture_more(struct capture *capture, size_t needed)
{
    capture->counts.needed = needed;
    return STEP_MORE;
}

static inline uint16_t big16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t big32(const uint8_t *at)
{
    return (uint32_t)big16(at) << 16 | big16(at + 2);
}

static inline uint32_t little32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* A number of a pcap file; *swapped*: it is big-endian. */
static inline uint32_t number32(const struct capture *capture, const uint8_t *at)
{
    return capture->swapped ? big32(at) : little32(at);
}

static inline uint16_t number16(const struct capture *capture, const uint8_t *at)
{
    return capture->swapped ? big16(at) : (uint16_t)(at[0] | at[1] << 8);
}

#endif
