/* Records of pcap files, version 2: either byte order, micro- and nanoseconds, also Kuznetsov's variant.
 *
 * Cost: a record's header.
 * Invariant: a record of more than CAPTURE_LARGEST_RECORD bytes is refused, so a damaged length cannot make
 * the caller gather the rest of the file.
 * Threading: as capture.c.
 */
#include "capture_internal.h"

enum {
    MAGIC_MICRO = 0xa1b2c3d4u,
    MAGIC_NANO = 0xa1b23c4du,
    MAGIC_PATCHED = 0xa1b2cd34u, /* eight more bytes in the header of a record */
    FILE_HEADER = CAPTURE_FILE_HEADER,
    RECORD_HEADER = 16,
};

static enum step file_header(struct capture *capture, const uint8_t *data, size_t room, size_t *size)
{
    if (room < FILE_HEADER)
        return capture_more(capture, FILE_HEADER);
    uint32_t magic = little32(data);
    capture->swapped = magic != MAGIC_MICRO && magic != MAGIC_NANO && magic != MAGIC_PATCHED;
    magic = number32(capture, data);
    if (magic != MAGIC_MICRO && magic != MAGIC_NANO && magic != MAGIC_PATCHED)
        return capture_fault(capture, CAPTURE_UNKNOWN, magic);
    capture->nanoseconds = magic == MAGIC_NANO;
    capture->patched = magic == MAGIC_PATCHED;
    if (number16(capture, data + 4) != 2)
        return capture_fault(capture, CAPTURE_BAD_VERSION, number16(capture, data + 4));
    capture->link = number32(capture, data + 20) & 0xffff; /* above: the length of a checksum */
    if (!capture_link_is_read(capture->link))
        return capture_fault(capture, CAPTURE_BAD_LINK, capture->link);
    capture->begun = true;
    *size = FILE_HEADER;
    return STEP_OTHER;
}

enum step capture_pcap(struct capture *capture, const uint8_t *data, size_t room, struct frame *frame,
                       size_t *size)
{
    if (!capture->begun)
        return file_header(capture, data, room, size);
    size_t header = RECORD_HEADER + (capture->patched ? 8 : 0);
    if (room < header)
        return capture_more(capture, room ? header : 0);
    uint32_t captured = number32(capture, data + 8);
    if (captured > CAPTURE_LARGEST_RECORD)
        return capture_fault(capture, CAPTURE_BAD_LENGTH, captured);
    if (room - header < captured)
        return capture_more(capture, header + captured);
    uint64_t fraction = number32(capture, data + 4);
    frame->time = (int64_t)number32(capture, data) * 1000000000 +
                  (int64_t)(capture->nanoseconds ? fraction : fraction * 1000);
    frame->data = data + header;
    frame->captured = captured;
    frame->length = number32(capture, data + 12);
    frame->link = capture->link;
    *size = header + captured;
    return STEP_FRAME;
}
