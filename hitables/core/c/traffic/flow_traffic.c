/* Packets of flows that begin, send in bursts, and end.
 *
 * Idea: the flows in progress are in a heap by the time of their next packet; the first one sends, and goes
 * back with the time of the packet that follows.  A class of flows has an entry of its own in the heap, the
 * begin of its next flow.
 * Cost: a packet takes a step through the heap, O(log flows in progress); memory follows these flows, not the
 * packets.
 * Invariant: the packets depend on the model alone, not on how many are asked for at a time.  Traffic starts
 * in its steady state: flows in progress are drawn as one would meet them, long ones in proportion to their
 * length.
 * Threading: traffic belongs to one thread at a time.
 */
#include "flow_traffic.h"

#include <stdbool.h>
#include <string.h>

#include "budget.h"
#include "random_draw.h"
#include "scope.h"

enum { BRANCHES = 4, SCANNERS = 64, EPHEMERAL = 32768, EPHEMERALS = 28232, TCP = 6, UDP = 17 };

struct traffic_flow {
    uint32_t header[5];
    uint32_t class, rank, epoch;
    uint64_t number, left, sent;
    double factor;
};

/* *who*: a flow, or the begin of the next flow of a class. */
struct event {
    int64_t time;
    uint32_t who;
    bool begins;
};

struct flow_traffic {
    struct scope scope;
    struct random_state random;
    struct flow_model model;
    struct flow_class *class;
    struct traffic_flow *flow;
    uint32_t *unused; /* flows, by number */
    uint32_t flows, room, unused_count;
    struct event *heap;
    uint32_t events, event_room;
    uint64_t numbers, packets;
    /* Flows of rules. */
    uint32_t *rule_of; /* [rules], by rank */
    uint32_t *epoch;   /* [rules], by rank: how often its rule was exchanged */
    double *until;     /* [rules]: share of flows of this rank and those before */
};

/* ---- the heap ---- */

static void sink(struct flow_traffic *t, uint32_t at, struct event event)
{
    for (;;) {
        uint32_t first = at * BRANCHES + 1, least = first;
        if (first >= t->events)
            break;
        uint32_t last = first + BRANCHES < t->events ? first + BRANCHES : t->events;
        for (uint32_t i = first + 1; i < last; i++)
            if (t->heap[i].time < t->heap[least].time)
                least = i;
        if (t->heap[least].time >= event.time)
            break;
        t->heap[at] = t->heap[least];
        at = least;
    }
    t->heap[at] = event;
}

static bool push(struct flow_traffic *t, struct event event)
{
    if (t->events == t->event_room) {
        uint32_t room = t->event_room ? 2 * t->event_room : 64;
        void *heap = scope_resize(&t->scope, t->heap, room * sizeof *t->heap);
        if (!heap)
            return false;
        t->heap = heap;
        t->event_room = room;
    }
    uint32_t at = t->events++;
    for (; at && t->heap[(at - 1) / BRANCHES].time > event.time; at = (at - 1) / BRANCHES)
        t->heap[at] = t->heap[(at - 1) / BRANCHES];
    t->heap[at] = event;
    return true;
}

static void pop(struct flow_traffic *t)
{
    struct event last = t->heap[--t->events];
    if (t->events)
        sink(t, 0, last);
}

/* ---- flows ---- */

/* Packets of a new flow. */
static uint64_t draw_length(struct flow_traffic *t, const struct flow_class *class)
{
    if (class->most <= class->least)
        return (uint64_t)class->least;
    double tail = pow(class->least / class->most, class->shape);
    double length = class->least * pow(1 - random_share(&t->random) * (1 - tail), -1 / class->shape);
    return (uint64_t)(length < class->most ? length : class->most);
}

/* Packets that are left of a flow in progress: of a flow met with a chance in proportion to its length. */
static uint64_t draw_rest(struct flow_traffic *t, const struct flow_class *class)
{
    double share = random_share(&t->random), length = class->least, power = 1 - class->shape;
    if (class->most > class->least && fabs(power) < 1e-9) {
        length = class->least * pow(class->most / class->least, share);
    } else if (class->most > class->least) {
        double low = pow(class->least, power), high = pow(class->most, power);
        length = pow(low + share * (high - low), 1 / power);
    }
    uint64_t rest = (uint64_t)(random_share(&t->random) * length) + 1;
    return rest > (uint64_t)length ? (uint64_t)length : rest;
}

/* Time to the next packet of the flow.  *met*: from any time, which is in a pause more often than a packet is
 * before one; the rest of an exponential time is as long as the whole. */
static int64_t draw_gap(struct flow_traffic *t, const struct traffic_flow *flow, bool met)
{
    const struct flow_class *class = &t->class[flow->class];
    double inside = (class->burst - 1) * class->gap, share = random_share(&t->random);
    bool pauses = met ? share * (inside + class->pause) < class->pause : share * class->burst < 1;
    return (int64_t)(flow->factor * random_exponential(&t->random, pauses ? class->pause : class->gap));
}

static uint32_t host_outside(struct flow_traffic *t, uint32_t hosts)
{
    double share = random_share(&t->random);
    uint64_t host = (uint64_t)(share * share * share * hosts); /* some hosts are visited often */
    uint32_t address = (uint32_t)(random_mix(t->model.seed + 0x1000000 + host) >> 32);
    uint32_t top = 11 + (address >> 24) % 200; /* not 10.0.0.0/8, and no multicast */
    return top << 24 | (address & 0xffffff);
}

static uint32_t host_inside(struct flow_traffic *t)
{
    return t->model.inside | random_below(&t->random, 1ull << t->model.inside_bits);
}

static void draw_hosts(struct flow_traffic *t, struct traffic_flow *flow)
{
    const struct flow_class *class = &t->class[flow->class];
    uint32_t *header = flow->header;
    header[4] = class->protocol;
    header[2] = EPHEMERAL + random_below(&t->random, EPHEMERALS);
    header[3] = class->port + random_below(&t->random, class->ports);
    if (class->scan || random_share(&t->random) < class->inbound) {
        header[0] = host_outside(t, class->scan ? SCANNERS : t->model.outside);
        header[1] = host_inside(t);
    } else {
        header[0] = host_inside(t);
        header[1] = host_outside(t, t->model.outside);
    }
}

/* The rank of a rule, by Zipf's law. */
static uint32_t draw_rank(struct flow_traffic *t)
{
    if (t->model.skew == 0)
        return random_below(&t->random, t->model.rules);
    double share = random_share(&t->random);
    uint32_t low = 0, high = t->model.rules - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (t->until[middle] <= share)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A header in the box of a rule: TCP or UDP where it may be, and no ports where the protocol has none. */
static void draw_header(struct flow_traffic *t, struct traffic_flow *flow)
{
    flow->rank = draw_rank(t);
    flow->epoch = t->epoch[flow->rank];
    const uint32_t *box = t->model.box + (size_t)t->rule_of[flow->rank] * 10;
    for (unsigned field = 0; field < 5; field++) {
        uint32_t low = box[2 * field], high = box[2 * field + 1];
        flow->header[field] = low + random_below(&t->random, (uint64_t)high - low + 1);
    }
    uint32_t low = box[8], high = box[9], *protocol = &flow->header[4];
    bool tcp = low <= TCP && TCP <= high, udp = low <= UDP && UDP <= high;
    if (tcp || udp)
        *protocol = tcp && (!udp || random_word(&t->random) >> 63) ? TCP : UDP;
    for (unsigned field = 2; field < 4; field++)
        if (*protocol != TCP && *protocol != UDP && !box[2 * field])
            flow->header[field] = 0;
}

/* Make *flow* a new one; *met*: one that is in progress when the traffic begins. */
static void draw_flow(struct flow_traffic *t, struct traffic_flow *flow, uint32_t number, bool met)
{
    const struct flow_class *class = &t->class[number];
    double sigma = class->spread;
    flow->class = number;
    flow->sent = 0;
    flow->left = met ? draw_rest(t, class) : draw_length(t, class);
    flow->factor = 1;
    if (sigma > 0) /* a slow flow is met more often */
        flow->factor = exp(sigma * random_normal(&t->random) + (met ? 0.5 : -0.5) * sigma * sigma);
    if (t->model.box)
        draw_header(t, flow);
    else
        draw_hosts(t, flow);
    flow->number = t->numbers;
    t->numbers += class->reply ? 2 : 1;
}

/* Add a flow that sends its first packet at *time*; *met*: one in progress, which sends one later. */
static bool add_flow(struct flow_traffic *t, uint32_t class, int64_t time, bool met)
{
    if (!t->unused_count && t->flows == t->room) {
        uint32_t room = t->room ? 2 * t->room : 64;
        void *flow = scope_resize(&t->scope, t->flow, room * sizeof *t->flow);
        if (flow)
            t->flow = flow;
        void *unused = flow ? scope_resize(&t->scope, t->unused, room * sizeof *t->unused) : NULL;
        if (!unused)
            return false;
        t->unused = unused;
        t->room = room;
    }
    uint32_t at = t->unused_count ? t->unused[--t->unused_count] : t->flows++;
    draw_flow(t, &t->flow[at], class, met);
    if (met)
        time += draw_gap(t, &t->flow[at], true);
    return push(t, (struct event){time, at, false});
}

static bool begin(struct flow_traffic *t)
{
    for (uint32_t class = 0; class < t->model.classes; class++) {
        const struct flow_class *of = &t->class[class];
        for (uint32_t i = 0; i < of->active; i++)
            if (!add_flow(t, class, 0, true))
                return false;
        int64_t first = (int64_t)random_exponential(&t->random, of->between);
        if (of->between > 0 && !push(t, (struct event){first, class, true}))
            return false;
    }
    return true;
}

/* Give popular ranks other rules; their flows end. */
static void shift_rules(struct flow_traffic *t)
{
    uint32_t popular = t->model.popular < t->model.rules ? t->model.popular : t->model.rules;
    for (uint32_t i = 0; i < t->model.shifted && t->model.rules > 1; i++) {
        uint32_t one = random_below(&t->random, popular), other = random_below(&t->random, t->model.rules);
        uint32_t rule = t->rule_of[one];
        t->rule_of[one] = t->rule_of[other];
        t->rule_of[other] = rule;
        t->epoch[one]++;
        t->epoch[other]++;
    }
}

/* ---- the public functions ---- */

/* The ranks of rules, in random order, and Zipf's law over them. */
static bool rank_rules(struct flow_traffic *t)
{
    uint32_t rules = t->model.rules;
    double sum = 0;
    size_t bytes = (size_t)rules * 10 * sizeof(uint32_t);
    uint32_t *box = scope_take(&t->scope, bytes);
    t->rule_of = scope_take(&t->scope, rules * sizeof *t->rule_of);
    t->epoch = scope_take(&t->scope, rules * sizeof *t->epoch);
    t->until = scope_take(&t->scope, rules * sizeof *t->until);
    if (!box || !t->rule_of || !t->epoch || !t->until)
        return false;
    t->model.box = memcpy(box, t->model.box, bytes);
    for (uint32_t rank = 0; rank < rules; rank++) {
        uint32_t other = random_below(&t->random, (uint64_t)rank + 1);
        t->rule_of[rank] = t->rule_of[other];
        t->rule_of[other] = rank;
        t->until[rank] = sum += pow(rank + 1.0, -t->model.skew);
    }
    for (uint32_t rank = 0; rank < rules; rank++)
        t->until[rank] /= sum;
    return true;
}

struct flow_traffic *flow_traffic_new(const struct flow_model *model)
{
    struct budget *budget = budget_new(0);
    struct flow_traffic *t = budget ? budget_take(budget, sizeof *t) : NULL;
    if (!t) {
        budget_free(budget);
        return NULL;
    }
    t->scope.budget = budget;
    t->model = *model;
    random_seed(&t->random, model->seed);
    t->class = scope_take(&t->scope, model->classes * sizeof *t->class);
    if (t->class)
        memcpy(t->class, model->class, model->classes * sizeof *t->class);
    if (!t->class || (model->box && !rank_rules(t)) || !begin(t)) {
        flow_traffic_free(t);
        return NULL;
    }
    return t;
}

void flow_traffic_free(struct flow_traffic *t)
{
    if (!t)
        return;
    struct budget *budget = t->scope.budget;
    scope_empty(&t->scope);
    budget_give(budget, t, sizeof *t);
    budget_free(budget);
}

uint32_t flow_traffic_active(const struct flow_traffic *t)
{
    return t->flows - t->unused_count;
}

/* Write the packet that the flow sends now. */
static void send_packet(struct flow_traffic *t, struct traffic_flow *flow, uint32_t *header, uint32_t *length,
                        uint64_t *number)
{
    const struct flow_class *class = &t->class[flow->class];
    bool back = class->reply && ++flow->sent % class->reply == 0;
    memcpy(header, flow->header, sizeof flow->header);
    if (back) {
        header[0] = flow->header[1];
        header[1] = flow->header[0];
        header[2] = flow->header[3];
        header[3] = flow->header[2];
    }
    bool large = random_share(&t->random) < (back ? class->reply_large : class->large);
    *length = large ? class->large_size : class->small_size;
    *number = flow->number + back;
}

size_t flow_traffic_next(struct flow_traffic *t, size_t count, uint32_t *header, int64_t *time,
                         uint32_t *length, uint64_t *number, uint32_t *rule)
{
    for (size_t at = 0; at < count;) {
        struct event event = t->heap[0];
        if (event.begins) {
            const struct flow_class *class = &t->class[event.who];
            int64_t next = event.time + (int64_t)random_exponential(&t->random, class->between);
            sink(t, 0, (struct event){next, event.who, true});
            if (!add_flow(t, event.who, event.time, false))
                return at;
            continue;
        }
        struct traffic_flow *flow = &t->flow[event.who];
        if (t->model.box && (!flow->left || flow->epoch != t->epoch[flow->rank]))
            draw_flow(t, flow, flow->class, false);
        send_packet(t, flow, header + 5 * at, &length[at], &number[at]);
        time[at] = event.time;
        if (rule)
            rule[at] = t->model.box ? t->rule_of[flow->rank] : 0;
        at++;
        flow->left--;
        if (flow->left || t->model.box) {
            sink(t, 0, (struct event){event.time + draw_gap(t, flow, false), event.who, false});
        } else {
            pop(t);
            t->unused[t->unused_count++] = event.who;
        }
        if (t->model.shift && ++t->packets % t->model.shift == 0)
            shift_rules(t);
    }
    return count;
}
