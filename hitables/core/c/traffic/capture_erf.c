/* Records of Endace cards: ERF (extensible record format), and the older DAG records of 64 bytes.
 *
 * Idea: both have a time stamp in units of 2^-32 s, least significant byte first.  Neither has a magic
 * number, so a file is known by what its first records have in common.
 * Cost: a record's header.
 * Invariant: a length lies within its record; a file is taken for one of these formats only if all records
 * of its first 64 KiB fit it, and follow one another in time.
 * Threading: as capture.c.
 */
#include "capture_internal.h"

enum {
    ERF_HEADER = 16,
    ERF_EXTENSION = 8,
    ERF_MORE = 0x80, /* an extension header follows */
    ERF_PAD = 48,
    ERF_META = 27,
    DAG_RECORD = 64,
    PROBED = 64 * 1024,
    LATE = 1,             /* s that a record may be earlier than the one before */
    LONGEST = 40 * 86400, /* s from the first record to any other */
    EARLIEST = 631152000, /* 1990 */
};

static int64_t stamp_ns(const uint8_t *at)
{
    uint64_t fraction = little32(at), seconds = little32(at + 4);
    return (int64_t)(seconds * 1000000000 + (fraction * 1000000000 >> 32));
}

/* The link type of frames on a serial line, by their first bytes. */
static uint32_t serial_link(const uint8_t *data, size_t size)
{
    bool cisco = size >= 2 && (data[0] == 0x0f || data[0] == 0x8f) && !data[1];
    return cisco ? LINK_CISCO_HDLC : LINK_PPP_SERIAL;
}

static uint32_t erf_link(uint8_t type, const uint8_t *data, size_t size)
{
    switch (type) {
    case 1:
    case 10:
    case 15:
    case 19: return serial_link(data, size);
    case 2:
    case 11:
    case 16:
    case 20: return LINK_ETHERNET;
    case 22: return LINK_IPV4;
    case 23: return LINK_IPV6;
    default: return LINK_OF_ERF + type;
    }
}

enum step capture_erf(struct capture *capture, const uint8_t *data, size_t room, struct frame *frame,
                      size_t *size)
{
    if (room < ERF_HEADER)
        return capture_more(capture, room ? ERF_HEADER : 0);
    uint16_t record = big16(data + 10), wire = big16(data + 14);
    uint8_t type = data[8] & 0x7f;
    size_t head = ERF_HEADER;
    if (record < ERF_HEADER)
        return capture_fault(capture, CAPTURE_BAD_LENGTH, record);
    if (room < record)
        return capture_more(capture, record);
    for (bool more = data[8] & ERF_MORE; more; head += ERF_EXTENSION) {
        if (record - head < ERF_EXTENSION)
            return capture_fault(capture, CAPTURE_BAD_LENGTH, record);
        more = data[head] & ERF_MORE;
    }
    *size = record;
    if (type == ERF_PAD || type == ERF_META)
        return STEP_OTHER;
    uint32_t link = erf_link(type, data + head, record - head);
    if (link == LINK_ETHERNET) { /* two bytes before the frame */
        if (record - head < 2)
            return capture_fault(capture, CAPTURE_BAD_LENGTH, record);
        head += 2;
    }
    frame->time = stamp_ns(data);
    frame->data = data + head;
    frame->captured = record - head < wire ? record - head : wire; /* records are padded */
    frame->length = wire;
    frame->link = link;
    return STEP_FRAME;
}

enum step capture_dag(struct capture *capture, const uint8_t *data, size_t room, struct frame *frame,
                      size_t *size)
{
    if (room < DAG_RECORD)
        return capture_more(capture, room ? DAG_RECORD : 0);
    size_t head = 0, captured = 0;
    switch (capture->counts.format) {
    case CAPTURE_DAG_ATM: /* checksum, cell header; a cell does not have the frame's length */
        head = 16;
        captured = DAG_RECORD - head;
        frame->link = LINK_ATM;
        break;
    case CAPTURE_DAG_ETHERNET:
        head = 10;
        captured = DAG_RECORD - head;
        frame->length = (uint32_t)(data[8] | data[9] << 8);
        frame->link = LINK_ETHERNET;
        break;
    default:
        head = 16;
        captured = DAG_RECORD - head;
        frame->length = big32(data + 12);
        frame->link = serial_link(data + head, captured);
    }
    if (frame->length && frame->length < captured)
        captured = frame->length;
    frame->time = stamp_ns(data);
    frame->data = data + head;
    frame->captured = captured;
    *size = DAG_RECORD;
    return STEP_FRAME;
}

/* Whether a record of this second may follow one of *last*, in a file that began at *first*. */
static bool is_in_order(uint32_t second, uint32_t last, uint32_t first)
{
    return second >= EARLIEST && (int64_t)second >= (int64_t)last - LATE &&
           (int64_t)second - first <= LONGEST;
}

bool capture_looks_erf(const uint8_t *data, size_t size)
{
    uint32_t first = 0, last = 0, records = 0;
    if (size > PROBED)
        size = PROBED;
    for (size_t at = 0; size - at >= ERF_HEADER; records++) {
        const uint8_t *record = data + at;
        uint8_t type = record[8] & 0x7f;
        uint32_t second = little32(record + 4);
        if (!type || (type > 31 && type != ERF_PAD) || big16(record + 10) < ERF_HEADER)
            return false;
        if (type != ERF_PAD && type != ERF_META) {
            if (!first)
                first = last = second;
            if (!is_in_order(second, last, first))
                return false;
            last = second;
        }
        at += big16(record + 10) < size - at ? big16(record + 10) : size - at;
    }
    return first && records;
}

bool capture_looks_dag(const uint8_t *data, size_t size, enum capture_format format)
{
    static const uint8_t snap[] = {0xaa, 0xaa, 3, 0, 0, 0, 8, 0}, ppp[] = {0xff, 3, 0, 0x21};
    static const uint8_t cisco[] = {0x0f, 0, 8, 0};
    uint32_t records = 0, ip = 0, last = 0;
    if (size > PROBED)
        size = PROBED;
    for (size_t at = 0; size - at >= DAG_RECORD; at += DAG_RECORD, records++) {
        const uint8_t *record = data + at;
        uint32_t second = little32(record + 4);
        if (!is_in_order(second, records ? last : second, little32(data + 4)))
            return false;
        last = second;
        ip += format == CAPTURE_DAG_ATM        ? !memcmp(record + 16, snap, sizeof snap)
              : format == CAPTURE_DAG_ETHERNET ? big16(record + 22) == 0x0800
                                               : !memcmp(record + 16, ppp, sizeof ppp) ||
                                                     !memcmp(record + 16, cisco, sizeof cisco);
    }
    return records && 2 * ip >= records;
}
