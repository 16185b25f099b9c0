/* Blocks of pcapng files: sections of either byte order, any number of interfaces, clocks of any resolution.
 *
 * Idea: packets are in enhanced, simple and the obsolete packet blocks; the interface that a packet names has
 * its link type and clock; blocks of other types are skipped by their length.
 * Cost: a block's header.
 * Invariant: the two lengths of a block agree, and all that is read of it lies between them.
 * Threading: as capture.c.
 */
#include "capture_internal.h"

enum {
    SECTION = 0x0a0d0d0a,
    INTERFACE = 1,
    OLD_PACKET = 2,
    SIMPLE_PACKET = 3,
    ENHANCED_PACKET = 6,
    ORDER = 0x1a2b3c4d,
    OPTION_RESOLUTION = 9,
    OPTION_OFFSET = 14,
    MICROSECONDS = 6, /* the clock of an interface that has no option for it */
    FRAME = 12,       /* bytes of a block besides its body */
};

static enum step section(struct capture *capture, const uint8_t *body, size_t size)
{
    if (size < 16)
        return capture_fault(capture, CAPTURE_BAD_LENGTH, size + FRAME);
    if (number16(capture, body + 4) != 1)
        return capture_fault(capture, CAPTURE_BAD_VERSION, number16(capture, body + 4));
    capture->interfaces = 0;
    capture->begun = true;
    return STEP_OTHER;
}

static int64_t number64(const struct capture *capture, const uint8_t *at)
{
    uint64_t first = number32(capture, at), second = number32(capture, at + 4);
    return (int64_t)(capture->swapped ? first << 32 | second : second << 32 | first);
}

static enum step interface(struct capture *capture, const uint8_t *body, size_t size)
{
    if (size < 8)
        return capture_fault(capture, CAPTURE_BAD_LENGTH, size + FRAME);
    if (capture->interfaces == capture->interface_room) {
        size_t item = sizeof *capture->interface, from = capture->interface_room;
        size_t to = from ? 2 * from : 4;
        void *grown = budget_resize(capture->budget, capture->interface, from * item, to * item);
        if (!grown)
            return capture_fault(capture, CAPTURE_NO_MEMORY, 0);
        capture->interface = grown;
        capture->interface_room = (uint32_t)to;
    }
    struct interface new = {number16(capture, body), number32(capture, body + 4), MICROSECONDS, 0};
    for (size_t at = 8; size - at >= 4;) {
        uint16_t code = number16(capture, body + at), length = number16(capture, body + at + 2);
        at += 4;
        if (!code || length > size - at)
            break;
        if (code == OPTION_RESOLUTION && length == 1)
            new.resolution = body[at];
        if (code == OPTION_OFFSET && length == 8)
            new.offset = number64(capture, body + at);
        size_t padded = (length + 3u) & ~3u;
        at += padded < size - at ? padded : size - at;
    }
    if ((new.resolution & 0x7f) > (new.resolution & 0x80 ? 63 : 19))
        return capture_fault(capture, CAPTURE_BAD_CLOCK, new.resolution);
    capture->interface[capture->interfaces++] = new;
    return STEP_OTHER;
}

/* Ticks of the interface's clock in ns since 1970. */
static int64_t clock_ns(const struct interface *interface, uint64_t ticks)
{
    unsigned __int128 ns = ticks;
    unsigned n = interface->resolution & 0x7f;
    if (interface->resolution & 0x80) {
        ns = ns * 1000000000 >> n;
    } else {
        for (; n < 9; n++)
            ns *= 10;
        for (; n > 9; n--)
            ns /= 10;
    }
    __int128 time = (__int128)ns + (__int128)interface->offset * 1000000000;
    return time > INT64_MAX ? INT64_MAX : time < INT64_MIN ? INT64_MIN : (int64_t)time;
}

static enum step packet(struct capture *capture, uint32_t type, const uint8_t *body, size_t size,
                        struct frame *frame)
{
    size_t head = type == SIMPLE_PACKET ? 4 : 20;
    if (size < head)
        return capture_fault(capture, CAPTURE_BAD_LENGTH, size + FRAME);
    uint32_t number = type == ENHANCED_PACKET ? number32(capture, body)
                      : type == OLD_PACKET    ? number16(capture, body)
                                              : 0;
    if (number >= capture->interfaces)
        return capture_fault(capture, CAPTURE_BAD_INTERFACE, number);
    const struct interface *interface = &capture->interface[number];
    if (type == SIMPLE_PACKET) {
        frame->length = number32(capture, body);
        frame->captured = size - head < frame->length ? size - head : frame->length;
        if (interface->snap && interface->snap < frame->captured)
            frame->captured = interface->snap;
        frame->untimed = true;
    } else {
        uint64_t ticks = (uint64_t)number32(capture, body + 4) << 32 | number32(capture, body + 8);
        frame->time = clock_ns(interface, ticks);
        frame->captured = number32(capture, body + 12);
        frame->length = number32(capture, body + 16);
        if (frame->captured > size - head)
            return capture_fault(capture, CAPTURE_BAD_LENGTH, frame->captured);
    }
    frame->link = interface->link;
    frame->data = body + head;
    return STEP_FRAME;
}

enum step capture_pcapng(struct capture *capture, const uint8_t *data, size_t room, struct frame *frame,
                         size_t *size)
{
    if (room < FRAME)
        return capture_more(capture, room || !capture->begun ? FRAME : 0);
    if (little32(data) == SECTION) { /* the same in either order */
        uint32_t order = little32(data + 8);
        if (order != ORDER && big32(data + 8) != ORDER)
            return capture_fault(capture, CAPTURE_BAD_ORDER, order);
        capture->swapped = order != ORDER;
    } else if (!capture->begun) {
        return capture_fault(capture, CAPTURE_UNKNOWN, little32(data));
    }
    uint32_t type = number32(capture, data), length = number32(capture, data + 4);
    if (length < FRAME || length % 4 || length > CAPTURE_LARGEST_RECORD)
        return capture_fault(capture, CAPTURE_BAD_LENGTH, length);
    if (room < length)
        return capture_more(capture, length);
    if (number32(capture, data + length - 4) != length)
        return capture_fault(capture, CAPTURE_BAD_TRAILER, number32(capture, data + length - 4));
    const uint8_t *body = data + 8;
    *size = length;
    switch (type) {
    case SECTION: return section(capture, body, length - FRAME);
    case INTERFACE: return interface(capture, body, length - FRAME);
    case OLD_PACKET:
    case SIMPLE_PACKET:
    case ENHANCED_PACKET: return packet(capture, type, body, length - FRAME, frame);
    default: return STEP_OTHER;
    }
}
