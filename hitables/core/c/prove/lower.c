/* Rules as the packets of a class read them.
 *
 * Idea: in a class it is known which fields a packet has and where it is cut off.  So tests of fields that
 * are missing fail, tests that hold for all coordinates fall away, and a match may drop the packet; the rest
 * of the rule is interned as guarded actions, an event splitting the rule in two.
 * Cost: each rule is read once per class; equal guarded actions are found by a hash table.
 * Invariant: a guarded action decides every packet of the class as the rule does.
 * Threading: none; a residual belongs to one prover.
 */
#include "residual.h"

#include <assert.h>
#include <string.h>

#include "chain_index.h"

/* A bit of residual_item.open for each test of a part; a part for each event, and one behind the last.  The
 * caller refuses longer rules (prove.h), so the arrays are written unchecked but for the asserts. */
enum { MOST_TESTS = 64, MOST_PARTS = 32 };
_Static_assert((int)PROVE_MOST_TESTS <= (int)MOST_TESTS && (int)PROVE_MOST_EVENTS < (int)MOST_PARTS,
               "room for each rule");

void residual_enter(struct residual *r, const struct prove_class *class)
{
    r->class = *class;
    chain_indexes_clear(r);
    r->guarded_count = r->test_count = 0;
    if (r->guarded_table)
        memset(r->guarded_table, 0xff, r->table_size * sizeof *r->guarded_table);
    memset(r->chain_state, LOW_NOT, r->in.chains);
    memset(r->chain_ends, 0, r->in.chains);
    memset(r->chain_idle, 0, r->in.chains);
    memset(r->rule_read, 0, r->in.rules);
    for (uint32_t chain = 0; chain < r->in.chains; chain++)
        r->canon[chain] = chain;
}

/* Room for one more guarded action and *count* more tests; false when memory is exhausted. */
static bool make_room(struct residual *r, size_t count)
{
    if (r->test_count + count >= r->test_room) { /* so that there is some room, for no tests too */
        size_t room = (r->test_count + count) * 2 + 1024;
        uint32_t *tests =
            budget_resize(r->budget, r->tests, r->test_room * sizeof *tests, room * sizeof *tests);
        if (!tests)
            return false;
        r->tests = tests, r->test_room = room;
    }
    if (r->guarded_count + 1 > r->guarded_room) {
        size_t room = r->guarded_room * 2 + 1024, old = r->guarded_room * sizeof *r->guarded;
        struct guarded_action *guarded = budget_resize(r->budget, r->guarded, old, room * sizeof *guarded);
        if (!guarded)
            return false;
        r->guarded = guarded, r->guarded_room = room;
    }
    return true;
}

static uint64_t mix_word(uint64_t hash, uint32_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

static uint64_t guarded_hash(const struct residual *r, const struct guarded_action *guarded)
{
    uint64_t hash = mix_word(mix_word(mix_word(guarded->n, guarded->kind), guarded->arg), guarded->next);
    for (uint32_t t = 0; t < guarded->n; t++)
        hash = mix_word(hash, r->tests[guarded->first + t]);
    return hash;
}

static bool regrow_table(struct residual *r)
{
    size_t size = r->table_size ? r->table_size * 2 : 4096;
    uint32_t *table = budget_take(r->budget, size * sizeof *table);
    if (!table)
        return false;
    memset(table, 0xff, size * sizeof *table);
    for (size_t number = 0; number < r->guarded_count; number++) {
        size_t at = guarded_hash(r, &r->guarded[number]) & (size - 1);
        while (table[at] != NONE)
            at = (at + 1) & (size - 1);
        table[at] = (uint32_t)number;
    }
    budget_give(r->budget, r->guarded_table, r->table_size * sizeof *table);
    r->guarded_table = table, r->table_size = size;
    return true;
}

/* Note the dimensions, and their states, that a test, or the tests of which one must hold, read. */
static void note_reads(const struct residual *r, uint32_t test, struct guarded_action *guarded)
{
    uint32_t at = test & ~EITHER, count = test & EITHER ? r->in.code[2 * at + 1] : 1;
    for (uint32_t k = 1; k <= count; k++) {
        uint32_t dim = r->in.test_dim[test & EITHER ? r->in.code[2 * (at + k) + 1] : test];
        guarded->dims |= dim_bit(dim);
        guarded->reads |= r->in.dim_states[dim];
    }
}

/* The number of the guarded action with these tests (sorted, each once). */
static uint32_t guarded_number(struct residual *r, const uint32_t *tests, uint32_t n,
                               struct guarded_action guarded)
{
    bool fits = (r->guarded_count + 1) * 2 <= r->table_size || regrow_table(r);
    if (!fits || !make_room(r, n)) {
        r->failed = true;
        return NONE;
    }
    guarded.first = (uint32_t)r->test_count, guarded.n = n;
    if (n)
        memcpy(r->tests + r->test_count, tests, n * sizeof *tests);
    size_t at = guarded_hash(r, &guarded) & (r->table_size - 1);
    for (; r->guarded_table[at] != NONE; at = (at + 1) & (r->table_size - 1)) {
        const struct guarded_action *other = &r->guarded[r->guarded_table[at]];
        if (other->n == n && other->kind == guarded.kind && other->arg == guarded.arg &&
            other->next == guarded.next && other->changes == guarded.changes &&
            !memcmp(r->tests + other->first, r->tests + guarded.first, n * sizeof *tests))
            return r->guarded_table[at];
    }
    r->test_count += n;
    guarded.dims = 0;
    guarded.reads = guarded.next == NONE ? 0 : r->guarded[guarded.next].reads;
    for (uint32_t t = 0; t < n; t++)
        note_reads(r, tests[t], &guarded);
    r->guarded[r->guarded_count] = guarded;
    return r->guarded_table[at] = (uint32_t)r->guarded_count++;
}

/* A rule as the class reads it: parts of tests, each but the last ended by an event. */
struct rule_reading {
    uint32_t tests[MOST_PARTS][MOST_TESTS], n[MOST_PARTS];
    uint32_t event[MOST_PARTS], changes[MOST_PARTS], answer[MOST_PARTS]; /* of the event behind each part */
    uint32_t parts;
    bool ended; /* by a match that drops, or never holds */
    uint32_t kind;
};

static void add_test(struct rule_reading *reading, uint32_t test)
{
    uint32_t *tests = reading->tests[reading->parts], *n = &reading->n[reading->parts], at = *n;
    while (at > 0 && tests[at - 1] > test)
        at--;
    if (at > 0 && tests[at - 1] == test)
        return;
    assert(*n < MOST_TESTS);
    memmove(tests + at + 1, tests + at, (*n - at) * sizeof *tests);
    tests[at] = test;
    ++*n;
}

static void end_reading(struct rule_reading *reading, uint32_t kind)
{
    reading->ended = true;
    reading->kind = kind;
}

/* Whether all coordinates of its dimension are in the test, or none: IN, OUT, else PART. */
static enum relation constant_test(const struct residual *r, uint32_t test)
{
    uint32_t first = r->in.test_start[test], last = r->in.test_start[test + 1];
    const uint32_t *ends = r->in.set_ends + 2 * (size_t)first;
    if (first == last)
        return REL_OUT;
    if (last - first == 1 && ends[0] == 0 && ends[1] == r->in.dim_size[r->in.test_dim[test]] - 1)
        return REL_IN;
    return REL_PART;
}

static uint32_t read_either(const struct residual *r, uint32_t at, struct rule_reading *reading)
{
    uint32_t n = r->in.code[2 * at + 1];
    bool alive = false;
    for (uint32_t t = 1; t <= n; t++) {
        uint32_t op = r->in.code[2 * (at + t)], test = r->in.code[2 * (at + t) + 1];
        if (!has_field(r, r->in.test_dim[test], op == PROVE_NATIVE))
            continue;
        enum relation always = constant_test(r, test);
        if (always == REL_IN)
            return n;
        alive |= always == REL_PART;
    }
    if (alive)
        add_test(reading, EITHER | at);
    else
        end_reading(reading, ACTION_FAIL);
    return n;
}

static void read_match(const struct residual *r, uint32_t match, struct rule_reading *reading)
{
    const struct prove_class *class = &r->class;
    for (uint32_t at = r->in.match_start[match]; at < r->in.match_start[match + 1] && !reading->ended; at++) {
        uint32_t op = r->in.code[2 * at], arg = r->in.code[2 * at + 1];
        switch (op) {
        case PROVE_TEST:
        case PROVE_NATIVE:
            if (!has_field(r, r->in.test_dim[arg], op == PROVE_NATIVE) || constant_test(r, arg) == REL_OUT)
                end_reading(reading, ACTION_FAIL);
            else if (constant_test(r, arg) == REL_PART)
                add_test(reading, arg);
            break;
        case PROVE_EITHER:
            at += read_either(r, at, reading);
            break;
        case PROVE_NEED:
            if (class->later)
                end_reading(reading, arg >> 16 && class->offset_one ? ACTION_VERDICT : ACTION_FAIL);
            else if (class->bytes < (arg & 0xffff))
                end_reading(reading, ACTION_VERDICT);
            break;
        case PROVE_OPTION:
            if (class->bad_offset)
                end_reading(reading, ACTION_VERDICT);
            break;
        case PROVE_CUT:
            if (class->cut_short && class->legacy)
                end_reading(reading, ACTION_VERDICT);
            break;
        case PROVE_EVENT:
            assert(reading->parts + 1 < MOST_PARTS);
            reading->changes[reading->parts] = 0;
            reading->answer[reading->parts] = NOT_KNOWN;
            reading->event[reading->parts++] = arg;
            reading->n[reading->parts] = 0;
            break;
        case PROVE_WRITE:
            reading->changes[reading->parts - 1] = arg;
            break;
        case PROVE_SURE:
            reading->answer[reading->parts - 1] = arg ? YES : NO;
            break;
        default:
            end_reading(reading, ACTION_FAIL);
        }
    }
}

/* What the class reads of each match: tests, questions, and how it ends otherwise. */
size_t residual_reading(const struct residual *r, uint32_t *words, size_t room)
{
    size_t n = 0;
    for (uint32_t match = 0; match < r->in.matches; match++) {
        struct rule_reading reading;
        reading.parts = 0, reading.n[0] = 0, reading.ended = false, reading.kind = 0;
        read_match(r, match, &reading);
        uint32_t head[] = {reading.parts, reading.ended, reading.kind};
        for (size_t h = 0; h < 3; h++, n++)
            if (n < room)
                words[n] = head[h];
        for (uint32_t part = 0; part <= reading.parts; part++) {
            for (uint32_t t = 0; t < reading.n[part]; t++) {
                uint32_t test = reading.tests[part][t];
                if (n < room)
                    words[n] = test;
                n++;
                if (!(test & EITHER))
                    continue;
                /* Of the tests of which one must hold, those that can. */
                for (uint32_t at = test & ~EITHER, k = r->in.code[2 * at + 1]; k; k--, n++) {
                    uint32_t op = r->in.code[2 * (at + k)], one = r->in.code[2 * (at + k) + 1];
                    if (n < room)
                        words[n] = has_field(r, r->in.test_dim[one], op == PROVE_NATIVE) ? one : NONE;
                }
            }
            if (n < room)
                words[n] = part < reading.parts ? reading.event[part] : NONE;
            n++;
        }
    }
    return n;
}

static void lower_rule(struct residual *r, uint32_t rule)
{
    struct rule_reading reading;
    reading.parts = 0, reading.n[0] = 0, reading.ended = false;
    for (uint32_t m = r->in.rule_start[rule]; m < r->in.rule_start[rule + 1] && !reading.ended; m++)
        read_match(r, r->in.rule_match[m], &reading);
    struct guarded_action guarded = {.next = NONE};
    const uint32_t *action = r->in.rule_action + 3 * (size_t)rule;
    if (reading.ended) {
        guarded.kind = reading.kind;
        guarded.arg = reading.kind == ACTION_VERDICT ? r->in.drop : 0;
    } else {
        static const uint32_t kinds[] = {
            [PROVE_VERDICT] = ACTION_VERDICT, [PROVE_EFFECT] = ACTION_EFFECT, [PROVE_SILENT] = ACTION_FAIL,
            [PROVE_JUMP] = ACTION_JUMP,       [PROVE_GOTO] = ACTION_GOTO,     [PROVE_RETURN] = ACTION_RETURN,
        };
        guarded.kind = kinds[action[0]];
        guarded.arg = action[1];
        guarded.writes = action[2];
        if (guarded.kind == ACTION_JUMP || guarded.kind == ACTION_GOTO) {
            guarded.writes = r->in.chain_writes[action[1]];
            guarded.arg = r->canon[action[1]];
        }
    }
    if (guarded.kind == ACTION_FAIL) {
        reading.n[reading.parts] = 0;
        guarded.arg = 0;
    }
    uint32_t number = NONE, writes = guarded.writes, once = 0;
    if (guarded.kind != ACTION_FAIL || reading.parts)
        number = guarded_number(r, reading.tests[reading.parts], reading.n[reading.parts], guarded);
    for (uint32_t part = reading.parts; part-- > 0;) {
        once |= reading.event[part] & 1;
        writes |= reading.changes[part];
        struct guarded_action event = {
            .kind = ACTION_EVENT,
            .arg = reading.event[part],
            .next = number,
            .writes = writes,
            .once = once,
            .changes = reading.changes[part],
            .answer = reading.answer[part],
        };
        number = guarded_number(r, reading.tests[part], reading.n[part], event);
    }
    r->rule_guarded[rule] = number;
}

uint32_t residual_decide(struct residual *r, uint32_t guarded, uint32_t verdict)
{
    struct guarded_action decided = r->guarded[guarded];
    uint32_t tests[MOST_TESTS], n = decided.n, first = decided.first;
    if (n)
        memcpy(tests, r->tests + first, n * sizeof *tests);
    if (decided.kind == ACTION_EVENT)
        decided.next = residual_decide(r, decided.next, verdict);
    else if (decided.kind != ACTION_FAIL)
        decided = (struct guarded_action){.kind = ACTION_VERDICT, .arg = verdict, .next = NONE};
    decided.writes = decided.kind == ACTION_EVENT ? decided.changes | r->guarded[decided.next].writes : 0;
    return guarded_number(r, tests, n, decided);
}

bool residual_ends(const struct residual *r, uint32_t chain)
{
    for (uint32_t rule = r->in.chain_start[chain]; rule < r->in.chain_end[chain]; rule++) {
        if (r->rule_guarded[rule] == NONE)
            continue;
        const struct guarded_action *first = &r->guarded[r->rule_guarded[rule]], *last = first;
        while (last->kind == ACTION_EVENT)
            last = &r->guarded[last->next];
        bool ends = surely_ends(r, last);
        if (last->kind == ACTION_RETURN || (last->kind == ACTION_GOTO && !ends))
            return false;
        if (ends && first == last && !first->n)
            return true;
    }
    return false;
}

/* Note what a rule of the chain may do, and read, itself or in the chain that it enters. */
static void note_rule(struct residual *r, uint32_t chain, uint32_t rule)
{
    const uint32_t *action = r->in.rule_action + 3 * (size_t)rule;
    const struct guarded_action *guarded = &r->guarded[r->rule_guarded[rule]];
    r->chain_once[chain] |= guarded->once != 0;
    r->chain_acts[chain] |= guarded->kind == ACTION_EFFECT || guarded->kind == ACTION_EVENT;
    r->chain_reads[chain] |= guarded->reads;
    bool enters = guarded->kind == ACTION_JUMP || guarded->kind == ACTION_GOTO;
    if (guarded->kind != ACTION_RETURN && !(enters && r->chain_idle[guarded->arg]))
        r->chain_idle[chain] = 0;
    if (action[0] != PROVE_JUMP && action[0] != PROVE_GOTO)
        return;
    bool known = r->chain_state[action[1]] == LOW_DONE;
    r->chain_once[chain] |= r->chain_once[action[1]];
    r->chain_acts[chain] |= !known || r->chain_acts[action[1]];
    r->chain_reads[chain] |= known ? r->chain_reads[action[1]] : UINT32_MAX;
}

/* Read the rules of one chain; canon of the chains that it enters must be known by now. */
void residual_lower(struct residual *r, uint32_t chain)
{
    r->chain_once[chain] = r->chain_acts[chain] = 0;
    r->chain_reads[chain] = 0;
    r->chain_idle[chain] = 1;
    for (uint32_t rule = r->in.chain_start[chain]; rule < r->in.chain_end[chain] && !r->failed; rule++) {
        if (!r->rule_read[rule])
            lower_rule(r, rule);
        r->rule_read[rule] = !r->failed;
        if (!r->failed && r->rule_guarded[rule] != NONE)
            note_rule(r, chain, rule);
    }
    r->chain_ends[chain] = !r->failed && residual_ends(r, chain);
    r->chain_idle[chain] &= !r->failed;
    r->chain_state[chain] = LOW_DONE;
}
