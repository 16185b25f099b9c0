/* Packets through a lowered table.
 *
 * Idea: every match and target is a few words of one stream, so that a chain of
 * rules that do not match is read in a straight line.  A field that the packet
 * lacks is held as a value that no interval of 32 bits contains, so the common
 * test is one subtraction and one comparison.
 *
 * Rules that miss on an address are passed over many at a time (filter.h).
 * Cost: about one cache line per two rules read.  Invariant: interp_new has
 * checked the stream, so the walk needs no bounds but the jump stack's.  The
 * caller guarantees that no chain reaches itself.  A table may be run by any
 * number of threads at once.
 */
#include "interp.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "address_filter.h"

__extension__ typedef unsigned __int128 wide;

enum { PROTO = 2, FRAG = 3, SPORT = 4, DPORT = 5, FLAGS = 7, LATER = 2 };
enum { NO, YES, DROPPED };

static const uint64_t LACKING = UINT64_MAX;
static const uint64_t EVENT_SALT = 0x6576656e74000000, FIELD_SALT = 0x6669656c64000000;

struct interp {
    struct arena *arena;
    uint32_t *code, *starts, *ends;
    uint64_t *hashes;
    size_t words, chains, keys, rules, depth;
    uint32_t drop;
    uint32_t field_writers[INTERP_FIELDS]; /* by field: mask of the states that change it */
    int has_wide;
    struct address_filter filter;
};


/* One packet on its way. */
struct packet_walk {
    const struct interp *table;
    const struct interp_packet *packet;
    uint64_t value[INTERP_SLOTS]; /* LACKING: the packet has no such field */
    wide wide_value[INTERP_SLOTS];
    uint32_t present;             /* bits of slots */
    int later, written;
    uint32_t writes[INTERP_STATES];
    uint32_t events, limit;
    struct interp_result *result;
};

/* Given answers, found by key. */
struct given_answers {
    const struct interp_batch *batch;
    int32_t *first, *next;
};

uint64_t interp_mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
}

uint64_t interp_draw(uint64_t seed, uint64_t what, uint64_t ordinal)
{
    return interp_mix(seed ^ interp_mix(what + ordinal * 0x9e3779b97f4a7c15));
}

/* ---- building ---- */

/* Words of the test at code, or 0 when it is none or ill-formed. */
static size_t test_size(struct interp *table, const uint32_t *code, size_t room)
{
    if (room < 3 || (code[0] >> 8 & 255) >= INTERP_SLOTS)
        return 0;
    size_t each = 0;
    switch (code[0] & 255) {
    case INTERP_RANGE:
        return 3;
    case INTERP_RANGES:
        each = 2;
        break;
    case INTERP_WIDE:
        each = 8;
        table->has_wide = 1;
        break;
    default:
        return 0;
    }
    /* An empty list has one word of padding, so every test has three words. */
    size_t size = code[1] ? 2 + (size_t)code[1] * each : 3;
    return size <= room ? size : 0;
}

/* Words of the instruction at code, or 0 when it is ill-formed; *last: it is a target. */
static size_t check_instruction(struct interp *table, const uint32_t *code, size_t room, int *last)
{
    if (!room)
        return 0;
    uint32_t op = code[0] & 255;
    *last = op >= INTERP_COUNT;
    switch (op) {
    case INTERP_RANGE:
    case INTERP_RANGES:
    case INTERP_WIDE:
        return test_size(table, code, room);
    case INTERP_EITHER: {
        if (room < 3 || code[2] > room - 3)
            return 0;
        size_t at = 3, end = 3 + (size_t)code[2];
        for (uint32_t n = 0; n < code[1]; n++) {
            size_t size = test_size(table, code + at, end - at);
            if (!size)
                return 0;
            at += size;
        }
        return at == end ? at : 0;
    }
    case INTERP_GUARD:
    case INTERP_CUT:
    case INTERP_OPTION:
    case INTERP_RETURN:
        return 1;
    case INTERP_FACT:
        return room >= 3 && code[1] < table->keys && code[2] < 1u << INTERP_STATES ? 3 : 0;
    case INTERP_EVENT:
        return room >= 4 && code[1] < table->keys && (uint64_t)code[2] + 2 < table->keys
                && code[3] < 1u << INTERP_STATES ? 4 : 0;
    case INTERP_COUNT:
    case INTERP_VERDICT:
        return room >= 2 && code[1] < table->keys ? 2 : 0;
    case INTERP_FIRE:
        return room >= 3 && code[1] < table->keys && code[2] < 1u << INTERP_STATES ? 3 : 0;
    case INTERP_JUMP:
    case INTERP_GOTO:
        return room >= 2 && code[1] < table->chains ? 2 : 0;
    default:
        return 0;
    }
}

static int check_rule(struct interp *table, const uint32_t *rule, size_t length)
{
    if (length < 3 || rule[1] >= table->rules)
        return 0;
    size_t at = 2;
    int last = 0;
    while (!last) {
        size_t size = check_instruction(table, rule + at, length - at, &last);
        if (!size)
            return 0;
        at += size;
    }
    return at == length;
}

static int check_chain(struct interp *table, size_t chain)
{
    size_t at = table->starts[chain];
    size_t end = chain + 1 < table->chains ? table->starts[chain + 1] : table->words;
    if (end > table->words || at >= end || table->ends[chain] >= table->keys)
        return 0;
    while (table->code[at]) {
        size_t length = table->code[at];
        /* The 0 that ends the chain must still fit behind the rule. */
        if (length >= end - at || !check_rule(table, table->code + at, length))
            return 0;
        at += length;
    }
    return at + 1 == end;
}

static void *copy(struct arena *arena, const void *from, size_t count, size_t size)
{
    void *to = arena_take(arena, count * size);
    if (to && count)
        memcpy(to, from, count * size);
    return to;
}

/* A table of the code given (all arrays are copied), or NULL when memory is exhausted or
 * the code is ill-formed.  ends: by chain, the verdict when a walk that began there comes
 * to its end; drop: the verdict of a match that drops; depth: how deep jumps nest. */
struct interp *interp_new(const uint32_t *code, size_t words, const uint32_t *starts, size_t chains,
    const uint32_t *ends, uint32_t drop, const uint64_t *hashes, size_t keys, size_t rules,
    size_t depth, const uint32_t *field_writers)
{
    struct arena *arena = arena_new(0);
    struct interp *table = arena ? arena_take(arena, sizeof *table) : NULL;
    if (!table) {
        arena_free(arena);
        return NULL;
    }
    table->arena = arena;
    table->words = words;
    table->chains = chains;
    table->keys = keys;
    table->rules = rules;
    table->depth = depth;
    table->drop = drop;
    memcpy(table->field_writers, field_writers, sizeof table->field_writers);
    table->code = copy(arena, code, words, sizeof *code);
    table->starts = copy(arena, starts, chains, sizeof *starts);
    table->ends = copy(arena, ends, chains, sizeof *ends);
    table->hashes = copy(arena, hashes, keys, sizeof *hashes);
    int sound = table->code && table->starts && table->ends && table->hashes && drop < keys;
    for (size_t chain = 0; sound && chain < chains; chain++)
        sound = check_chain(table, chain);
    if (!sound || !address_filter_build(&table->filter, arena, table->code, table->starts, chains, rules)) {
        arena_free(arena);
        return NULL;
    }
    return table;
}

size_t interp_bytes(const struct interp *table)
{
    return arena_bytes(table->arena);
}

void interp_free(struct interp *table)
{
    if (table)
        arena_free(table->arena);
}

/* ---- running ---- */

static wide full_value(const struct interp_packet *packet, int field)
{
    static const int8_t half[INTERP_FIELDS] = {0, 1, -1, -1, -1, -1, -1, -1, 2, 3, -1, -1};
    uint64_t high = half[field] < 0 ? 0 : packet->high[half[field]];
    return (wide)high << 64 | packet->low[field];
}

static void set_value(struct packet_walk *walk, int slot, int present, wide value)
{
    walk->value[slot] = !present || value >> 64 ? LACKING : (uint64_t)value;
    walk->wide_value[slot] = value;
    walk->present = (walk->present & ~(1u << slot)) | (uint32_t)present << slot;
}

static const int native_slot[INTERP_FIELDS] = {
    [SPORT] = INTERP_FIELDS, [DPORT] = INTERP_FIELDS + 1, [FLAGS] = INTERP_FIELDS + 2,
};

static void start(struct packet_walk *walk, const struct interp_packet *packet)
{
    walk->packet = packet;
    walk->later = packet->present >> FRAG & 1 && packet->low[FRAG] == LATER;
    walk->events = 0;
    walk->present = packet->present & ((1u << INTERP_FIELDS) - 1);
    for (int field = 0; field < INTERP_FIELDS; field++)
        walk->value[field] = packet->present >> field & 1 ? packet->low[field] : LACKING;
    const uint64_t raw[] = {packet->raw_sport, packet->raw_dport, packet->raw_flags};
    static const int fields[] = {SPORT, DPORT, FLAGS};
    for (int which = 0; which < 3; which++) {
        int slot = INTERP_FIELDS + which;
        if (walk->later)
            walk->value[slot] = packet->raw_present >> which & 1 ? raw[which] : LACKING;
        else
            walk->value[slot] = walk->value[fields[which]];
        walk->present |= (uint32_t)(walk->value[slot] != LACKING) << slot;
    }
    static const int halves[] = {0, 1, 8, 9};
    for (int which = 0; which < 4; which++)
        if (packet->high[which])
            walk->value[halves[which]] = LACKING;
    if (walk->table->has_wide)
        for (int slot = 0; slot < INTERP_SLOTS; slot++)
            walk->wide_value[slot] = slot < INTERP_FIELDS ? full_value(packet, slot) : walk->value[slot];
    if (walk->written)
        memset(walk->writes, 0, sizeof walk->writes);
    walk->written = 0;
}

static uint32_t writes_to(const struct packet_walk *walk, uint32_t states)
{
    uint32_t sum = 0;
    for (int state = 0; states; state++, states >>= 1)
        if (states & 1)
            sum += walk->writes[state];
    return sum;
}

/* The target wrote states: count it, and give the fields that follow from them new values. */
static void rewrite(struct packet_walk *walk, uint32_t states, const struct interp_batch *batch)
{
    walk->written = 1;
    for (int state = 0; state < INTERP_STATES; state++)
        walk->writes[state] += states >> state & 1;
    for (int field = 0; field < INTERP_FIELDS; field++) {
        uint32_t size = batch->pool_start[field + 1] - batch->pool_start[field];
        if (!(walk->table->field_writers[field] & states) || !(walk->present >> field & 1) || !size)
            continue;
        uint64_t drawn = interp_draw(walk->packet->seed, FIELD_SALT + (uint64_t)field,
            writes_to(walk, walk->table->field_writers[field]));
        const uint64_t *value = batch->pool + 2 * (batch->pool_start[field] + drawn % size);
        set_value(walk, field, 1, (wide)value[1] << 64 | value[0]);
        if (native_slot[field] && !walk->later)
            set_value(walk, native_slot[field], 1, (wide)value[1] << 64 | value[0]);
    }
}

static void effect(struct packet_walk *walk, uint32_t id)
{
    if (walk->result->effect_count < walk->limit)
        walk->result->effects = interp_mix(walk->result->effects ^ walk->table->hashes[id]);
    walk->result->effect_count++;
}

/* An answer that was given, or 255. */
static uint8_t given_answer(const struct given_answers *given, uint32_t key, uint32_t epoch, size_t packet)
{
    if (!given->first)
        return 255;
    for (int32_t row = given->first[key]; row >= 0; row = given->next[row])
        if (given->batch->given_epoch[row] == epoch)
            return given->batch->given_value[(size_t)row * given->batch->count + packet];
    return 255;
}

/* Out of 256 draws, how many say yes: by the two lowest bits of the packet's seed, so that
 * long rows of unlikely matches are passed, and long rows of likely ones too. */
static const unsigned yes_of_256[4] = {128, 8, 32, 224};
enum { DROPPED_FROM = 248 };

static int fact(struct packet_walk *walk, const struct given_answers *given, size_t at, uint32_t key, uint32_t reads)
{
    uint32_t epoch = walk->written ? writes_to(walk, reads) : 0;
    uint8_t answer = given_answer(given, key, epoch, at);
    if (answer <= YES)
        return answer;
    if (!given->batch->seeded) {
        walk->result->open |= INTERP_OPEN_FACT;
        return NO;
    }
    uint64_t seed = walk->packet->seed;
    return interp_draw(seed, walk->table->hashes[key], epoch) >> 56 < yes_of_256[seed & 3] ? YES : NO;
}

static int outcome(struct packet_walk *walk, const struct given_answers *given, size_t at, uint32_t key)
{
    uint32_t ordinal = walk->events++;
    uint8_t answer = given_answer(given, key, UINT32_MAX, at);
    if (answer <= DROPPED)
        return answer;
    walk->result->open |= INTERP_OPEN_OUTCOME;
    if (!given->batch->seeded)
        return NO;
    uint64_t seed = walk->packet->seed;
    uint64_t drawn = interp_draw(seed, walk->table->hashes[key] ^ EVENT_SALT, ordinal) >> 56;
    return drawn < yes_of_256[seed & 3] ? YES : drawn >= DROPPED_FROM ? DROPPED : NO;
}

static wide load_wide(const uint32_t *words)
{
    uint64_t low = words[0] | (uint64_t)words[1] << 32, high = words[2] | (uint64_t)words[3] << 32;
    return (wide)high << 64 | low;
}

static int in_ranges(uint64_t value, const uint32_t *pairs, uint32_t count)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (value < pairs[2 * middle])
            high = middle;
        else if (value > pairs[2 * middle + 1])
            low = middle + 1;
        else
            return 1;
    }
    return 0;
}

static int in_wide(wide value, const uint32_t *pairs, uint32_t count)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (value < load_wide(pairs + 8 * (size_t)middle))
            high = middle;
        else if (value > load_wide(pairs + 8 * (size_t)middle + 4))
            low = middle + 1;
        else
            return 1;
    }
    return 0;
}

/* Whether the test at *code holds; *code moves behind it. */
static inline int holds(const struct packet_walk *walk, const uint32_t **code)
{
    const uint32_t *test = *code;
    uint32_t slot = test[0] >> 8 & 255;
    if ((test[0] & 255) == INTERP_RANGE) {
        *code = test + 3;
        return walk->value[slot] - test[1] <= test[2];
    }
    if ((test[0] & 255) == INTERP_RANGES) {
        *code = test + (test[1] ? 2 + 2 * (size_t)test[1] : 3);
        return in_ranges(walk->value[slot], test + 2, test[1]);
    }
    *code = test + (test[1] ? 2 + 8 * (size_t)test[1] : 3);
    return walk->present >> slot & 1 && in_wide(walk->wide_value[slot], test + 2, test[1]);
}

static int either(const struct packet_walk *walk, const uint32_t *code)
{
    const uint32_t *test = code + 3;
    for (uint32_t n = 0; n < code[1]; n++)
        if (holds(walk, &test))
            return 1;
    return 0;
}

/* The first 32 bits of the packet's source (0) or destination (1). */
static uint32_t address_word(const struct packet_walk *walk, int which)
{
    return (uint32_t)(walk->table->filter.wide ? walk->packet->high[which] >> 32 : walk->packet->low[which]);
}

/* Send one packet from *chain* on; 0 when the jump stack was too small. */
static int run_one(struct packet_walk *walk, uint32_t chain, const struct given_answers *given, size_t at,
    const uint32_t **stack, const struct interp_counts *counts)
{
    const struct interp *table = walk->table;
    const struct interp_packet *packet = walk->packet;
    const uint32_t *rule = table->code + table->starts[chain];
    struct interp_result *result = walk->result;
    size_t depth = 0;
    uint32_t reads = 0;
    int32_t *matched = counts->matched ? counts->matched + at * counts->room : NULL;
    int32_t *matched_end = matched ? matched + counts->room : NULL;
    uint32_t source = address_word(walk, 0), destination = address_word(walk, 1);
    result->rule = -1;
    for (;;) {
        if (*rule && !walk->written && !counts->visits) {
            uint32_t number = rule[1], behind = table->filter.end[number];
            uint32_t next_one = address_filter_next(&table->filter, number, source, destination);
            reads += next_one - number;
            if (next_one == behind) {
                const uint32_t *last = table->code + table->filter.code[behind - 1];
                rule = last + *last;
            } else {
                rule = table->code + table->filter.code[next_one];
            }
        }
        if (!*rule) {
            if (!depth) {
                result->verdict = table->ends[chain];
                break;
            }
            rule = stack[--depth];
            continue;
        }
        const uint32_t *code = rule + 2, *next = rule + *rule;
        reads++;
    instruction:
        if (counts->visits)
            counts->visits[code - table->code]++;
        switch (*code & 255) {
        case INTERP_RANGE:
            if (walk->value[*code >> 8 & 255] - code[1] > code[2])
                goto no;
            code += 3;
            goto instruction;
        case INTERP_RANGES:
        case INTERP_WIDE:
            if (!holds(walk, &code))
                goto no;
            goto instruction;
        case INTERP_EITHER:
            if (!either(walk, code))
                goto no;
            code += 3 + code[2];
            goto instruction;
        case INTERP_GUARD:
            if (walk->later) {
                if (*code >> 8 & 255 && packet->classes & INTERP_OFFSET_ONE)
                    goto dropped;
                goto no;
            }
            if (packet->l4_bytes < *code >> 16)
                goto dropped;
            code++;
            goto instruction;
        case INTERP_CUT:
            if (packet->classes & INTERP_CUT_SHORT)
                goto dropped;
            code++;
            goto instruction;
        case INTERP_OPTION:
            if (packet->classes & INTERP_BAD_OFFSET)
                goto dropped;
            code++;
            goto instruction;
        case INTERP_FACT:
            if (!fact(walk, given, at, code[1], code[2]))
                goto no;
            code += 3;
            goto instruction;
        case INTERP_EVENT: {
            int came = outcome(walk, given, at, code[1]);
            effect(walk, code[2] + (uint32_t)came);
            if (came == DROPPED)
                goto dropped;
            if (code[3])
                rewrite(walk, code[3], given->batch);
            if (came == NO)
                goto no;
            code += 4;
            goto instruction;
        }
        default:
            break;
        }
        /* All matches said yes: the target. */
        if (counts->hits)
            counts->hits[rule[1]]++;
        if (matched != matched_end)
            *matched++ = (int32_t)rule[1];
        switch (*code & 255) {
        case INTERP_COUNT:
            effect(walk, code[1]);
            break;
        case INTERP_FIRE:
            effect(walk, code[1]);
            if (code[2])
                rewrite(walk, code[2], given->batch);
            break;
        case INTERP_JUMP:
            if (depth == table->depth)
                return 0;
            stack[depth++] = next;
            next = table->code + table->starts[code[1]];
            break;
        case INTERP_GOTO:
            next = table->code + table->starts[code[1]];
            break;
        case INTERP_RETURN:
            /* The 0 at the end of any chain will do: what follows depends on the stack alone. */
            next = table->code + table->words - 1;
            break;
        default: /* INTERP_VERDICT */
            result->verdict = code[1];
            result->rule = (int32_t)rule[1];
            goto done;
        }
    no:
        rule = next;
        continue;
    dropped:
        result->verdict = table->drop;
        result->rule = (int32_t)rule[1];
        break;
    }
done:
    while (matched != matched_end)
        *matched++ = -1;
    result->reads = reads;
    return 1;
}

/* Chain the rows of given answers by their key; 0 when memory is exhausted. */
static int find_given(struct given_answers *given, const struct interp_batch *batch, size_t keys)
{
    given->batch = batch;
    given->first = given->next = NULL;
    if (!batch->given)
        return 1;
    given->first = malloc(keys * sizeof *given->first);
    given->next = malloc(batch->given * sizeof *given->next);
    if (!given->first || !given->next)
        return 0;
    for (size_t key = 0; key < keys; key++)
        given->first[key] = -1;
    for (size_t row = 0; row < batch->given; row++) {
        uint32_t key = batch->given_key[row];
        if (key >= keys) /* a key that this table does not use */
            continue;
        given->next[row] = given->first[key];
        given->first[key] = (int32_t)row;
    }
    return 1;
}

/* Send every packet of the batch into the chain.  0: done; -1: memory is exhausted, -2: jumps nest deeper than the table said. */
int interp_run(const struct interp *table, uint32_t chain, const struct interp_batch *batch,
    struct interp_result *results, const struct interp_counts *counts)
{
    struct given_answers given = {0};
    struct packet_walk walk = {.table = table};
    int status = -1;
    const uint32_t **stack = malloc((table->depth + 1) * sizeof *stack);
    if (stack && find_given(&given, batch, table->keys)) {
        status = chain < table->chains ? 0 : -2;
        for (size_t at = 0; !status && at < batch->count; at++) {
            memset(results + at, 0, sizeof *results);
            walk.result = results + at;
            walk.limit = batch->limits ? batch->limits[at] : UINT32_MAX;
            start(&walk, batch->packets + at);
            if (!run_one(&walk, chain, &given, at, stack, counts))
                status = -2;
        }
    }
    free(given.first);
    free(given.next);
    free(stack);
    return status;
}
