/* Headers of captured packets, read from a stream of bytes.
 *
 * Idea: a step for each format (capture_pcap.c, capture_pcapng.c, capture_erf.c) cuts the next record off the
 * bytes at hand; packet_header.c finds the IP header in its frame.
 * Cost: one pass; a header's few fields are read, the rest of a frame is not touched.
 * Invariant: a header is returned only if all its fields are in the record: a field is read from the packet,
 * or is a port that the packet does not have, and 0.  Every record is counted in one of the counts that add
 * up to *records*.  Nothing beyond data[size] is read.
 * Threading: a capture belongs to one thread at a time.
 */
#include "capture_internal.h"

struct capture *capture_new(enum capture_format format, enum capture_family family)
{
    struct budget *budget = budget_new(0);
    struct capture *capture = budget ? budget_take(budget, sizeof *capture) : NULL;
    if (!capture) {
        budget_free(budget);
        return NULL;
    }
    capture->budget = budget;
    capture->counts.format = format;
    capture->family = family;
    return capture;
}

void capture_free(struct capture *capture)
{
    if (!capture)
        return;
    struct budget *budget = capture->budget;
    budget_give(budget, capture->interface, capture->interface_room * sizeof *capture->interface);
    budget_give(budget, capture, sizeof *capture);
    budget_free(budget);
}

const struct capture_counts *capture_counts(const struct capture *capture)
{
    return &capture->counts;
}

static enum capture_format guess(const uint8_t *data, size_t size)
{
    static const uint32_t pcap[] = {0xa1b2c3d4, 0xa1b23c4d, 0xa1b2cd34};
    if (size >= 4 && big32(data) == 0x0a0d0d0a)
        return CAPTURE_PCAPNG;
    for (size_t i = 0; size >= 4 && i < sizeof pcap / sizeof *pcap; i++)
        if (big32(data) == pcap[i] || little32(data) == pcap[i])
            return CAPTURE_PCAP;
    if (capture_looks_erf(data, size))
        return CAPTURE_ERF;
    for (enum capture_format format = CAPTURE_DAG_ATM; format <= CAPTURE_DAG_POS; format++)
        if (capture_looks_dag(data, size, format))
            return format;
    return CAPTURE_AUTO;
}

/* Choose the step; false if the bytes are of no format. */
static bool begin(struct capture *capture, const uint8_t *data, size_t size)
{
    if (capture->counts.format == CAPTURE_AUTO)
        capture->counts.format = guess(data, size);
    switch (capture->counts.format) {
    case CAPTURE_PCAP: capture->step = capture_pcap; break;
    case CAPTURE_PCAPNG: capture->step = capture_pcapng; break;
    case CAPTURE_ERF: capture->step = capture_erf; break;
    case CAPTURE_DAG_ATM:
    case CAPTURE_DAG_ETHERNET:
    case CAPTURE_DAG_POS: capture->step = capture_dag; break;
    default: return false;
    }
    return true;
}

static void put_address(uint32_t *word, const uint8_t *address, bool six)
{
    if (six) {
        for (unsigned i = 0; i < 4; i++)
            word[i] = big32(address + 4 * i);
    } else {
        word[0] = word[1] = 0;
        word[2] = 0xffff;
        word[3] = big32(address);
    }
}

static void put_header(uint32_t *word, const struct packet_header *packet, enum capture_family family)
{
    if (family == CAPTURE_IPV4) {
        *word++ = big32(packet->from);
        *word++ = big32(packet->to);
    } else {
        put_address(word, packet->from, packet->six);
        put_address(word + 4, packet->to, packet->six);
        word += 8;
    }
    word[0] = packet->sport;
    word[1] = packet->dport;
    word[2] = packet->protocol;
}

/* Count a frame of which no packet was read. */
static bool skip(struct capture_counts *counts, enum packet_kind kind, uint32_t link)
{
    switch (kind) {
    case PACKET_IP: break;
    case PACKET_NOT_IP: counts->not_ip++; break;
    case PACKET_CUT: counts->ports_cut++; break;
    case PACKET_MALFORMED: counts->malformed++; break;
    case PACKET_OTHER_LINK:
        if (!counts->other_link++)
            counts->link = link;
        break;
    }
    return false;
}

static bool take_header(struct capture *capture, const struct frame *frame, uint32_t *word, uint32_t *length)
{
    struct capture_counts *counts = &capture->counts;
    struct packet_header packet;
    enum packet_kind kind = packet_read(frame, &packet);
    if (kind != PACKET_IP)
        return skip(counts, kind, frame->link);
    if (capture->family != CAPTURE_BOTH && packet.six != (capture->family == CAPTURE_IPV6)) {
        counts->other_family++;
        return false;
    }
    put_header(word, &packet, capture->family);
    *length = frame->length ? frame->length : packet.length;
    counts->later_fragments += packet.later;
    return true;
}

/* *data*: where places count from. */
static bool take_place(struct capture *capture, const struct frame *frame, const uint8_t *data,
                       uint32_t *word, uint32_t *length)
{
    struct packet_place place;
    enum packet_kind kind = packet_find(frame, &place);
    if (kind != PACKET_IP)
        return skip(&capture->counts, kind, frame->link);
    word[0] = place.version;
    word[1] = (uint32_t)(place.at - data);
    word[2] = (uint32_t)place.captured;
    word[3] = (uint32_t)place.whole;
    *length = frame->length;
    return true;
}

/* Count the frame; true if its header, or its place in *data*, was written. */
static bool take(struct capture *capture, const struct frame *frame, const uint8_t *data, uint32_t *word,
                 int64_t *time, uint32_t *length)
{
    struct capture_counts *counts = &capture->counts;
    counts->records++;
    counts->shortened += frame->length > frame->captured;
    if (!frame->untimed)
        capture->time = frame->time;
    bool taken = capture->family == CAPTURE_PLACES ? take_place(capture, frame, data, word, length)
                                                   : take_header(capture, frame, word, length);
    if (!taken)
        return false;
    *time = capture->time;
    counts->packets++;
    counts->untimed += frame->untimed;
    return true;
}

static uint32_t words_of(enum capture_family family)
{
    switch (family) {
    case CAPTURE_PLACES: return 4;
    case CAPTURE_IPV4: return 5;
    default: return 11;
    }
}

enum capture_status capture_read(struct capture *capture, const uint8_t *data, size_t size, size_t *used,
                                 uint32_t *header, int64_t *time, uint32_t *length, uint32_t room,
                                 uint32_t *count)
{
    uint32_t words = words_of(capture->family);
    *used = 0;
    *count = 0;
    if (!capture->step && !begin(capture, data, size))
        return capture->status = CAPTURE_UNKNOWN;
    while (*count < room) {
        struct frame frame = {0};
        size_t record = 0;
        capture->counts.needed = 0;
        enum step step = capture->step(capture, data + *used, size - *used, &frame, &record);
        if (step == STEP_BAD)
            return capture->status;
        if (step == STEP_MORE)
            break;
        if (step == STEP_FRAME)
            *count += take(capture, &frame, data, header + (size_t)*count * words, &time[*count],
                           &length[*count]);
        *used += record;
        capture->counts.offset += record;
    }
    return CAPTURE_OK;
}
