/* Packets through a compiled table.
 *
 * Idea: every match and target is a few words of one stream, so a chain of rules that do not match is read in
 * a straight line.  A field that the packet lacks has a value that no interval of 32 bits contains, so the
 * most frequent test is one subtraction and one comparison.  Rules whose addresses cannot match are skipped
 * many at a time (address_filter.h).
 * Cost: about one cache line per two rules read.
 * Invariant: interp_build.c has checked the stream, so a run checks no bounds but that of the jump stack.
 * The caller guarantees that no chain reaches itself.
 * Memory: a table lives in an arena of its own; a run takes its jump stack and index of answers from another,
 * which it frees at its end.
 * Threading: any number of threads may run one table at a time.
 */
#include "interp_internal.h"

#include <string.h>

#include "arena.h"

__extension__ typedef unsigned __int128 wide;

/* The answer of a match; the numbers are those of interp_batch.given_value. */
enum answer { NO, YES, DROPPED };
enum { NOT_GIVEN = 255 };

static const uint64_t LACKING = UINT64_MAX;
static const uint64_t EVENT_SALT = 0x6576656e74000000, FIELD_SALT = 0x6669656c64000000;

/* An attribute of which targets have made a known number: number & keep ^ flip of the number that it had
 * after *from* writes, as long as there were *epoch* writes. */
struct made_number {
    uint32_t attribute, from, epoch;
    uint64_t keep, flip;
};

/* One packet in the table. */
struct packet_walk {
    const struct interp *table;
    const struct given_answers *answers;
    const struct interp_counts *counts;
    const struct interp_packet *packet;
    size_t index;                     /* of the packet in the batch */
    uint64_t value[INTERP_SLOTS];     /* LACKING: the packet has no such field */
    wide wide_value[INTERP_SLOTS];
    uint32_t present;                 /* a bit per slot */
    uint32_t source, destination;     /* the first 32 bits of its addresses */
    bool later_fragment, written;     /* written: some state was */
    uint32_t writes[INTERP_STATES];
    struct made_number made[INTERP_MADE];
    uint32_t made_n;
    uint32_t events, limit;           /* evaluations of events so far; effects to hash */
    const uint32_t **stack;           /* [table->depth + 1] rules behind the jumps taken */
    size_t depth;
    int32_t *matched, *matched_end;   /* room for the numbers of rules that match */
    struct interp_result *result;
};

/* The rows of given answers, chained by key: -1 ends a chain. */
struct given_answers {
    const struct interp_batch *batch;
    int32_t *first, *next; /* [keys], [rows]; NULL: no answers are given */
    int32_t *attribute; /* [keys] index of the attribute, -1: none; NULL: no attribute has values */
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

/* The fields of more than 64 bits, in the order of interp_packet.high. */
static const int wide_field[] = {FIELD_SRC, FIELD_DST, FIELD_IIF, FIELD_OIF, FIELD_PHYSIN, FIELD_PHYSOUT};
enum { WIDE_FIELDS = sizeof wide_field / sizeof *wide_field };

static wide full_value(const struct interp_packet *packet, int field)
{
    uint64_t high = 0;
    for (int i = 0; i < WIDE_FIELDS; i++)
        if (wide_field[i] == field)
            high = packet->high[i];
    return (wide)high << 64 | packet->low[field];
}

static void set_value(struct packet_walk *walk, int slot, wide value)
{
    walk->value[slot] = value >> 64 ? LACKING : (uint64_t)value;
    walk->wide_value[slot] = value;
    walk->present |= 1u << slot;
}

/* The slot of a field as native nft expressions read it; 0: they read it as xtables does. */
static const int native_slot[FIELDS] = {
    [FIELD_SPORT] = FIELDS,
    [FIELD_DPORT] = FIELDS + 1,
    [FIELD_FLAGS] = FIELDS + 2,
};

/* The first 32 bits of the packet's source (0) or destination (1). */
static uint32_t address_word(const struct packet_walk *walk, int which)
{
    return (uint32_t)(walk->table->filter.wide ? walk->packet->high[which] >> 32 : walk->packet->low[which]);
}

static void start(struct packet_walk *walk, const struct interp_packet *packet)
{
    /* A packet that crosses no bridge has the ports 0. */
    uint32_t present = packet->present | 1u << FIELD_PHYSIN | 1u << FIELD_PHYSOUT;
    walk->packet = packet;
    walk->later_fragment = packet->present >> FIELD_FRAG & 1 && packet->low[FIELD_FRAG] == FRAGMENT_LATER;
    walk->events = 0;
    walk->present = present & ((1u << FIELDS) - 1);
    for (int field = 0; field < FIELDS; field++)
        walk->value[field] = present >> field & 1 ? packet->low[field] : LACKING;
    const uint64_t raw[] = {packet->raw_sport, packet->raw_dport, packet->raw_flags};
    static const int fields[] = {FIELD_SPORT, FIELD_DPORT, FIELD_FLAGS};
    for (int which = 0; which < 3; which++) {
        int slot = FIELDS + which;
        if (walk->later_fragment)
            walk->value[slot] = packet->raw_present >> which & 1 ? raw[which] : LACKING;
        else
            walk->value[slot] = walk->value[fields[which]];
        walk->present |= (uint32_t)(walk->value[slot] != LACKING) << slot;
    }
    for (int which = 0; which < WIDE_FIELDS; which++)
        if (packet->high[which])
            walk->value[wide_field[which]] = LACKING;
    if (walk->table->has_wide)
        for (int slot = 0; slot < INTERP_SLOTS; slot++)
            walk->wide_value[slot] = slot < FIELDS ? full_value(packet, slot) : walk->value[slot];
    if (walk->written)
        memset(walk->writes, 0, sizeof walk->writes);
    walk->written = false;
    walk->made_n = 0;
    walk->depth = 0;
    walk->source = address_word(walk, 0);
    walk->destination = address_word(walk, 1);
}

static uint32_t writes_to(const struct packet_walk *walk, uint32_t states)
{
    uint32_t sum = 0;
    for (int state = 0; states; state++, states >>= 1)
        if (states & 1)
            sum += walk->writes[state];
    return sum;
}

/* The target writes states: count that, and draw new values for the fields that depend on them. */
static void write_states(struct packet_walk *walk, uint32_t states)
{
    const struct interp_batch *batch = walk->answers->batch;
    walk->written = true;
    for (int state = 0; state < INTERP_STATES; state++)
        walk->writes[state] += states >> state & 1;
    for (int field = 0; field < FIELDS; field++) {
        uint32_t size = batch->pool_start[field + 1] - batch->pool_start[field];
        if (!(walk->table->field_writers[field] & states) || !(walk->present >> field & 1) || !size)
            continue;
        uint64_t drawn = interp_draw(walk->packet->seed, FIELD_SALT + (uint64_t)field,
                                     writes_to(walk, walk->table->field_writers[field]));
        const uint64_t *value = batch->pool + 2 * (batch->pool_start[field] + drawn % size);
        set_value(walk, field, (wide)value[1] << 64 | value[0]);
        if (native_slot[field] && !walk->later_fragment)
            set_value(walk, native_slot[field], (wide)value[1] << 64 | value[0]);
    }
}

static void effect(struct packet_walk *walk, uint32_t id)
{
    if (walk->result->effect_count < walk->limit)
        walk->result->effects = interp_mix(walk->result->effects ^ walk->table->hashes[id]);
    walk->result->effect_count++;
}

/* The answer that the batch gives, or NOT_GIVEN. */
static uint8_t given_answer(const struct packet_walk *walk, uint32_t key, uint32_t epoch)
{
    const struct given_answers *answers = walk->answers;
    if (!answers->first)
        return NOT_GIVEN;
    for (int32_t row = answers->first[key]; row >= 0; row = answers->next[row])
        if (answers->batch->given_epoch[row] == epoch)
            return answers->batch->given_value[(size_t)row * answers->batch->count + walk->index];
    return NOT_GIVEN;
}

/* How many of 256 draws are "yes", by the two lowest bits of the packet's seed: so some packets pass a
 * long row of matches that rarely hold, and others one of matches that mostly do. */
static const unsigned yes_of_256[4] = {128, 8, 32, 224};
enum { DROPPED_FROM = 248 };

/* The value of an attribute after *epoch* writes. */
static uint64_t drawn_number(const struct packet_walk *walk, uint32_t key, uint32_t epoch)
{
    uint64_t seed = walk->packet->seed, drawn = interp_draw(seed, walk->table->hashes[key], epoch);
    const struct interp_batch *batch = walk->answers->batch;
    int32_t attribute = walk->answers->attribute ? walk->answers->attribute[key] : -1;
    if (attribute < 0)
        return drawn >> 56 < yes_of_256[seed & 3];
    uint32_t first = batch->number_start[attribute];
    return batch->numbers[first + drawn % (batch->number_start[attribute + 1] - first)];
}

static uint64_t load_long(const uint32_t *words)
{
    return words[0] | (uint64_t)words[1] << 32;
}

static struct made_number *made_of(struct packet_walk *walk, uint32_t attribute)
{
    for (uint32_t n = 0; n < walk->made_n; n++)
        if (walk->made[n].attribute == attribute)
            return &walk->made[n];
    return NULL;
}

/* A target makes a known number of an attribute, which had *epoch* writes before; see INTERP_FIRE. */
static void make_number(struct packet_walk *walk, const uint32_t *code, uint32_t epoch)
{
    struct made_number *made = made_of(walk, code[4]);
    if (!made) {
        if (walk->made_n == INTERP_MADE)
            return;
        made = &walk->made[walk->made_n++];
        made->epoch = UINT32_MAX;
    }
    if (made->epoch != epoch)
        *made = (struct made_number){.attribute = code[4], .from = epoch, .keep = UINT64_MAX};
    uint64_t keep = load_long(code + 5);
    made->keep &= keep;
    made->flip = (made->flip & keep) ^ load_long(code + 7);
    made->epoch = writes_to(walk, code[3]);
}

static bool in_intervals(uint64_t number, const uint32_t *interval, uint32_t count)
{
    for (uint32_t n = 0; n < count; n++, interval += 4)
        if (number >= load_long(interval) && number <= load_long(interval + 2))
            return true;
    return false;
}

/* The fact at *code. */
static enum answer fact(struct packet_walk *walk, const uint32_t *code)
{
    uint32_t key = code[1], negates = code[2], epoch = walk->written ? writes_to(walk, code[4]) : 0;
    uint64_t mask = load_long(code + 5);
    const struct made_number *made = epoch && walk->made_n ? made_of(walk, code[3]) : NULL;
    if (made && made->epoch == epoch) {
        uint64_t number = made->flip;
        if (!(made->keep & mask))
            return in_intervals(number & mask, code + 8, code[7]) ? YES : NO;
        if (walk->answers->batch->seeded) {
            number ^= drawn_number(walk, code[3], made->from) & made->keep;
            return in_intervals(number & mask, code + 8, code[7]) ? YES : NO;
        }
    }
    uint8_t answer = given_answer(walk, key, epoch);
    if (answer <= YES)
        return answer;
    if (negates != key) {
        answer = given_answer(walk, negates, epoch);
        if (answer <= YES)
            return answer == YES ? NO : YES;
    }
    if (!walk->answers->batch->seeded) {
        walk->result->open |= INTERP_OPEN_FACT;
        return NO;
    }
    return in_intervals(drawn_number(walk, code[3], epoch) & mask, code + 8, code[7]) ? YES : NO;
}

static enum answer outcome(struct packet_walk *walk, uint32_t key)
{
    uint32_t ordinal = walk->events++;
    uint8_t answer = given_answer(walk, key, UINT32_MAX);
    if (answer <= DROPPED)
        return answer;
    walk->result->open |= INTERP_OPEN_OUTCOME;
    if (!walk->answers->batch->seeded)
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

static bool in_ranges(uint64_t value, const uint32_t *pairs, uint32_t count)
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

static bool in_wide(wide value, const uint32_t *pairs, uint32_t count)
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
static inline bool holds(const struct packet_walk *walk, const uint32_t **code)
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

static bool either(const struct packet_walk *walk, const uint32_t *code)
{
    const uint32_t *test = code + 3;
    for (uint32_t n = 0; n < code[1]; n++)
        if (holds(walk, &test))
            return 1;
    return 0;
}

/* The first rule from *rule* on, in its chain, whose addresses may match, or the 0 behind the chain's last
 * rule.  The rules between count as read. */
static inline const uint32_t *skip_rules(struct packet_walk *walk, const uint32_t *rule)
{
    const struct interp *table = walk->table;
    uint32_t number = rule[1], behind = table->filter.end[number];
    uint32_t next = address_filter_next(&table->filter, number, walk->source, walk->destination);
    walk->result->reads += next - number;
    if (next < behind)
        return table->code + table->filter.code[next];
    const uint32_t *last = table->code + table->filter.code[behind - 1];
    return last + *last;
}

/* The effect of a match with memory happens; its answer. */
static enum answer evaluate(struct packet_walk *walk, const uint32_t *code)
{
    enum answer answer = outcome(walk, code[1]);
    effect(walk, code[2] + (uint32_t)answer);
    if (answer != DROPPED && code[3])
        write_states(walk, code[3]);
    return answer;
}

/* The matches of a rule, from *code on, up to the first that fails; *code moves to the target if all hold. */
static inline __attribute__((always_inline)) enum answer run_matches(struct packet_walk *walk,
                                                                     const uint32_t **from)
{
    const struct interp_packet *packet = walk->packet;
    for (const uint32_t *code = *from;;) {
        if (walk->counts->visits)
            walk->counts->visits[code - walk->table->code]++;
        switch (*code & 255) {
        case INTERP_RANGE:
            if (walk->value[*code >> 8 & 255] - code[1] > code[2])
                return NO;
            code += 3;
            break;
        case INTERP_RANGES:
        case INTERP_WIDE:
            if (!holds(walk, &code))
                return NO;
            break;
        case INTERP_EITHER:
            if (!either(walk, code))
                return NO;
            code += 3 + code[2];
            break;
        case INTERP_GUARD:
            if (walk->later_fragment)
                return *code >> 8 & 255 && packet->classes & INTERP_OFFSET_ONE ? DROPPED : NO;
            if (packet->l4_bytes < *code >> 16)
                return DROPPED;
            code++;
            break;
        case INTERP_CUT:
            if (packet->classes & INTERP_CUT_SHORT)
                return DROPPED;
            code++;
            break;
        case INTERP_OPTION:
            if (packet->classes & INTERP_BAD_OFFSET)
                return DROPPED;
            code++;
            break;
        case INTERP_FACT:
            if (!fact(walk, code))
                return NO;
            code += 8 + 4 * (size_t)code[7];
            break;
        case INTERP_EVENT: {
            enum answer answer = evaluate(walk, code);
            if (answer != YES)
                return answer;
            code += 4;
            break;
        }
        default:
            *from = code;
            return YES;
        }
    }
}

/* What a rule's target does with the packet. */
enum target_result { CONTINUES, DECIDED, TOO_DEEP };

/* The target at *code*; *next, the rule behind its own, becomes the rule to read next. */
static inline __attribute__((always_inline)) enum target_result run_target(struct packet_walk *walk,
                                                                           const uint32_t *code,
                                                                           const uint32_t **next)
{
    const struct interp *table = walk->table;
    switch (*code & 255) {
    case INTERP_COUNT:
        effect(walk, code[1]);
        break;
    case INTERP_FIRE:
        effect(walk, code[1]);
        if (code[2]) {
            uint32_t epoch = code[3] ? writes_to(walk, code[3]) : 0;
            write_states(walk, code[2]);
            if (code[3])
                make_number(walk, code, epoch);
        }
        break;
    case INTERP_JUMP:
        if (walk->depth == table->depth)
            return TOO_DEEP;
        walk->stack[walk->depth++] = *next;
        *next = table->code + table->starts[code[1]];
        break;
    case INTERP_GOTO:
        *next = table->code + table->starts[code[1]];
        break;
    case INTERP_RETURN:
        /* The 0 at the end of any chain: what follows depends on the stack alone. */
        *next = table->code + table->words - 1;
        break;
    default: /* INTERP_VERDICT */
        walk->result->verdict = code[1];
        return DECIDED;
    }
    return CONTINUES;
}

static void count_match(struct packet_walk *walk, uint32_t rule)
{
    if (walk->counts->hits)
        walk->counts->hits[rule]++;
    if (walk->matched != walk->matched_end)
        *walk->matched++ = (int32_t)rule;
}

/* Send one packet from *chain* on; false: jumps nest too deep for the stack. */
static bool run_one(struct packet_walk *walk, uint32_t chain)
{
    const struct interp *table = walk->table;
    const uint32_t *rule = table->code + table->starts[chain];
    struct interp_result *result = walk->result;
    result->rule = -1;
    for (enum target_result target = CONTINUES; target == CONTINUES;) {
        if (*rule && !walk->written && !walk->counts->visits)
            rule = skip_rules(walk, rule);
        if (!*rule) {
            if (!walk->depth) {
                result->verdict = table->ends[chain];
                break;
            }
            rule = walk->stack[--walk->depth];
            continue;
        }
        const uint32_t *code = rule + 2, *next = rule + *rule;
        result->reads++;
        enum answer answer = run_matches(walk, &code);
        if (answer == YES) {
            count_match(walk, rule[1]);
            target = run_target(walk, code, &next);
            if (target == TOO_DEEP)
                return false;
        } else if (answer == DROPPED) {
            result->verdict = table->drop;
            target = DECIDED;
        }
        if (target == DECIDED)
            result->rule = (int32_t)rule[1];
        rule = next;
    }
    while (walk->matched != walk->matched_end)
        *walk->matched++ = -1;
    return true;
}

static bool index_attributes(struct given_answers *answers, struct arena *arena,
                             const struct interp_batch *batch, size_t keys)
{
    if (!batch->attributes)
        return true;
    answers->attribute = arena_take(arena, keys * sizeof *answers->attribute);
    if (!answers->attribute)
        return false;
    for (size_t key = 0; key < keys; key++)
        answers->attribute[key] = -1;
    for (size_t n = 0; n < batch->attributes; n++)
        if (batch->attribute_key[n] < keys)
            answers->attribute[batch->attribute_key[n]] = (int32_t)n;
    return true;
}

/* Chain the rows of given answers by their key, and find the attributes' values; false: memory is exhausted.
 */
static bool index_answers(struct given_answers *answers, struct arena *arena,
                          const struct interp_batch *batch, size_t keys)
{
    *answers = (struct given_answers){.batch = batch};
    if (!index_attributes(answers, arena, batch, keys))
        return false;
    if (!batch->given)
        return true;
    answers->first = arena_take(arena, keys * sizeof *answers->first);
    answers->next = arena_take(arena, batch->given * sizeof *answers->next);
    if (!answers->first || !answers->next)
        return false;
    for (size_t key = 0; key < keys; key++)
        answers->first[key] = -1;
    for (size_t row = 0; row < batch->given; row++) {
        uint32_t key = batch->given_key[row];
        if (key >= keys) /* a key that this table does not use */
            continue;
        answers->next[row] = answers->first[key];
        answers->first[key] = (int32_t)row;
    }
    return true;
}

enum interp_status interp_run(const struct interp *table, uint32_t chain, const struct interp_batch *batch,
                              struct interp_result *results, const struct interp_counts *counts)
{
    if (chain >= table->chains)
        return INTERP_BAD_CODE;
    struct arena *arena = arena_new(0);
    if (!arena)
        return INTERP_NO_MEMORY;
    struct given_answers answers;
    struct packet_walk walk = {.table = table, .answers = &answers, .counts = counts};
    walk.stack = arena_take(arena, (table->depth + 1) * sizeof *walk.stack);
    enum interp_status status = INTERP_OK;
    if (!walk.stack || !index_answers(&answers, arena, batch, table->keys))
        status = INTERP_NO_MEMORY;
    for (size_t i = 0; status == INTERP_OK && i < batch->count; i++) {
        memset(results + i, 0, sizeof *results);
        walk.result = results + i;
        walk.index = i;
        walk.limit = batch->limits ? batch->limits[i] : UINT32_MAX;
        walk.matched = counts->matched ? counts->matched + i * counts->room : NULL;
        walk.matched_end = walk.matched ? walk.matched + counts->room : NULL;
        start(&walk, batch->packets + i);
        if (!run_one(&walk, chain))
            status = INTERP_TOO_DEEP;
    }
    arena_free(arena);
    return status;
}
