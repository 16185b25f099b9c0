/* The addresses, ports and protocol of the IP packet in a frame.
 *
 * Idea: the link layer is removed (tags of VLANs, MPLS and PPPoE with it), then the IP header and, in IPv6,
 * the extension headers up to the protocol's own.
 * Cost: the headers.
 * Invariant: only bytes that the record holds and that belong to the packet are read, not those that pad a
 * frame; a field that lacks a byte makes the packet *cut* (the capture lacks it) or *malformed* (the packet
 * lacks it).
 * Threading: any number of threads may call this.
 */
#include "capture_internal.h"

enum {
    TYPE_IPV4 = 0x0800,
    TYPE_IPV6 = 0x86dd,
    TYPE_MPLS = 0x8847,
    TYPE_PPPOE = 0x8864,
    HOP_BY_HOP = 0,
    ROUTING = 43,
    FRAGMENT = 44,
    AUTHENTICATION = 51,
    DESTINATION = 60,
    MOBILITY = 135,
    LARGEST_PACKET = 65535,
};

/* The bytes of a frame that are not read yet. */
struct rest {
    const uint8_t *at;
    size_t size;
    bool cut; /* the frame had more bytes */
};

static enum packet_kind lacking(const struct rest *rest)
{
    return rest->cut ? PACKET_CUT : PACKET_MALFORMED;
}

static bool skip(struct rest *rest, size_t bytes)
{
    if (rest->size < bytes)
        return false;
    rest->at += bytes;
    rest->size -= bytes;
    return true;
}

bool capture_link_is_read(uint32_t link)
{
    switch (link) {
    case LINK_NULL:
    case LINK_ETHERNET:
    case LINK_PPP:
    case LINK_RAW_BSD:
    case LINK_RAW_OPENBSD:
    case LINK_PPP_SERIAL:
    case LINK_ATM:
    case LINK_RAW:
    case LINK_CISCO_HDLC:
    case LINK_LOOP:
    case LINK_SLL:
    case LINK_IPV4:
    case LINK_IPV6:
    case LINK_SLL2: return true;
    default: return false;
    }
}

/* PACKET_IP if the packet's version (4, 6; 0: any) may be read at *rest. */
static enum packet_kind of_ethertype(struct rest *rest, uint32_t type, unsigned *version);

/* The two bytes of a PPP protocol number. */
static enum packet_kind of_ppp(struct rest *rest, unsigned *version)
{
    if (rest->size < 2)
        return lacking(rest);
    uint16_t protocol = big16(rest->at);
    skip(rest, 2);
    *version = protocol == 0x21 ? 4 : 6;
    return protocol == 0x21 || protocol == 0x57 ? PACKET_IP : PACKET_NOT_IP;
}

/* A header of LLC and SNAP, as in frames with a length in place of an ethertype, and in ATM. */
static enum packet_kind of_snap(struct rest *rest, unsigned *version)
{
    static const uint8_t head[] = {0xaa, 0xaa, 3, 0, 0, 0};
    size_t at_hand = rest->size < sizeof head ? rest->size : sizeof head;
    if (memcmp(rest->at, head, at_hand) != 0)
        return PACKET_NOT_IP;
    if (rest->size < sizeof head + 2)
        return lacking(rest);
    uint16_t type = big16(rest->at + sizeof head);
    skip(rest, sizeof head + 2);
    return of_ethertype(rest, type, version);
}

static enum packet_kind of_ethertype(struct rest *rest, uint32_t type, unsigned *version)
{
    while (type == 0x8100 || type == 0x88a8 || type == 0x9100 || type == 0x9200) {
        if (rest->size < 4)
            return lacking(rest);
        type = big16(rest->at + 2);
        skip(rest, 4);
    }
    switch (type) {
    case TYPE_IPV4: *version = 4; return PACKET_IP;
    case TYPE_IPV6: *version = 6; return PACKET_IP;
    case TYPE_MPLS:
        for (bool last = false; !last;) {
            if (rest->size < 4)
                return lacking(rest);
            last = rest->at[2] & 1;
            skip(rest, 4);
        }
        if (!rest->size)
            return lacking(rest);
        *version = rest->at[0] >> 4;
        return *version == 4 || *version == 6 ? PACKET_IP : PACKET_NOT_IP;
    case TYPE_PPPOE: return skip(rest, 6) ? of_ppp(rest, version) : lacking(rest);
    default: return PACKET_NOT_IP;
    }
}

/* Remove the link layer. */
static enum packet_kind of_link(struct rest *rest, uint32_t link, unsigned *version)
{
    const uint8_t *start = rest->at;
    uint16_t type;
    *version = 0;
    switch (link) {
    case LINK_ETHERNET:
        if (!skip(rest, 14))
            return lacking(rest);
        type = big16(start + 12);
        return type < 1536 ? of_snap(rest, version) : of_ethertype(rest, type, version);
    case LINK_SLL: return skip(rest, 16) ? of_ethertype(rest, big16(start + 14), version) : lacking(rest);
    case LINK_SLL2: return skip(rest, 20) ? of_ethertype(rest, big16(start), version) : lacking(rest);
    case LINK_CISCO_HDLC:
        return skip(rest, 4) ? of_ethertype(rest, big16(start + 2), version) : lacking(rest);
    case LINK_ATM: return of_snap(rest, version);
    case LINK_PPP:
    case LINK_PPP_SERIAL:
        if (rest->size >= 2 && start[0] == 0xff && start[1] == 3)
            skip(rest, 2);
        return of_ppp(rest, version);
    case LINK_NULL:
    case LINK_LOOP:
        if (!skip(rest, 4))
            return lacking(rest);
        break;
    case LINK_IPV4: *version = 4; return PACKET_IP;
    case LINK_IPV6: *version = 6; return PACKET_IP;
    case LINK_RAW:
    case LINK_RAW_BSD:
    case LINK_RAW_OPENBSD: break;
    default: return PACKET_OTHER_LINK;
    }
    if (!rest->size)
        return lacking(rest);
    *version = rest->at[0] >> 4;
    return *version == 4 || *version == 6 ? PACKET_IP : PACKET_NOT_IP;
}

static bool has_ports(uint8_t protocol)
{
    return protocol == 6 || protocol == 17 || protocol == 33 || protocol == 132 || protocol == 136;
}

/* The ports at *rest; the packet has *size* bytes there. */
static enum packet_kind ports(struct rest *rest, uint64_t size, struct packet_header *header)
{
    if (header->later || !has_ports(header->protocol))
        return PACKET_IP;
    if (size < 4)
        return PACKET_MALFORMED;
    if (rest->size < 4)
        return lacking(rest);
    header->sport = big16(rest->at);
    header->dport = big16(rest->at + 2);
    return PACKET_IP;
}

/* *wire*: bytes from the IP header to the end of the frame. */
static enum packet_kind read_ipv4(struct rest *rest, uint64_t wire, struct packet_header *header)
{
    const uint8_t *ip = rest->at;
    if (rest->size < 20)
        return rest->size && ip[0] >> 4 != 4 ? PACKET_MALFORMED : lacking(rest);
    size_t head = (size_t)(ip[0] & 15) * 4;
    uint64_t whole = big16(ip + 2);
    if (!whole) /* the network card would have filled it in */
        whole = wire;
    if (ip[0] >> 4 != 4 || head < 20 || whole < head)
        return PACKET_MALFORMED;
    header->from = ip + 12;
    header->to = ip + 16;
    header->protocol = ip[9];
    header->later = big16(ip + 6) & 0x1fff;
    header->length = (uint32_t)whole;
    if (header->later || !has_ports(header->protocol))
        return PACKET_IP;
    return skip(rest, head) ? ports(rest, whole - head, header) : lacking(rest);
}

static enum packet_kind read_ipv6(struct rest *rest, uint64_t wire, struct packet_header *header)
{
    const uint8_t *ip = rest->at;
    if (rest->size < 40)
        return rest->size && ip[0] >> 4 != 6 ? PACKET_MALFORMED : lacking(rest);
    if (ip[0] >> 4 != 6)
        return PACKET_MALFORMED;
    uint64_t left = big16(ip + 4);
    uint8_t next = ip[6];
    if (!left && (next == HOP_BY_HOP || wire > LARGEST_PACKET)) /* a jumbogram */
        left = wire - 40;
    header->from = ip + 8;
    header->to = ip + 24;
    header->six = true;
    header->length = (uint32_t)(left + 40);
    skip(rest, 40);
    while (next == HOP_BY_HOP || next == ROUTING || next == FRAGMENT || next == DESTINATION ||
           next == MOBILITY || next == AUTHENTICATION) {
        if (left < 8 || header->later) /* a later fragment's protocol is behind a header that it lacks */
            return PACKET_MALFORMED;
        if (rest->size < 8)
            return lacking(rest);
        const uint8_t *at = rest->at;
        size_t size = next == FRAGMENT ? 8 : next == AUTHENTICATION ? (at[1] + 2u) * 4 : (at[1] + 1u) * 8;
        header->later = next == FRAGMENT && big16(at + 2) >> 3;
        next = at[0];
        if (left < size)
            return PACKET_MALFORMED;
        left -= size;
        if (!skip(rest, size))
            return lacking(rest);
    }
    header->protocol = next;
    return ports(rest, left, header);
}

static struct rest all_of(const struct frame *frame)
{
    return (struct rest){frame->data, frame->captured, !frame->length || frame->captured < frame->length};
}

enum packet_kind packet_find(const struct frame *frame, struct packet_place *place)
{
    struct rest rest = all_of(frame);
    *place = (struct packet_place){0};
    enum packet_kind kind = of_link(&rest, frame->link, &place->version);
    uint64_t before = (uint64_t)(rest.at - frame->data);
    place->at = rest.at;
    place->captured = rest.size;
    place->whole = frame->length > before ? frame->length - before : rest.size;
    return kind;
}

enum packet_kind packet_read(const struct frame *frame, struct packet_header *header)
{
    struct packet_place place;
    *header = (struct packet_header){0};
    enum packet_kind kind = packet_find(frame, &place);
    if (kind != PACKET_IP)
        return kind;
    struct rest rest = {place.at, place.captured, all_of(frame).cut};
    return place.version == 4 ? read_ipv4(&rest, place.whole, header) : read_ipv6(&rest, place.whole, header);
}
