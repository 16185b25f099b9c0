/* What is left of a list of rules for the packets of a region.
 *
 * Idea: a region of the header space is a set of coordinates per dimension.  A rule's tests
 * that hold in all of it fall away, a rule with one that holds nowhere in it falls away, and
 * behind a rule that surely ends there is nothing.  What remains of two lists is compared
 * item by item; equal remains decide every packet of the region alike, whatever they are.
 *
 * A test of something that an item in front of it may write is left open (blocked) until that
 * item is gone.  A called chain role_of in line in its caller's list, behind it an item that
 * marks its end, where RETURN goes.
 *
 * Cost: an item is 32 bytes and is looked at once per cut of the region.  Invariant: the list
 * decides each packet of the region as the rules it was made of do.  For one thread.
 */
#include "residual.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arena.h"
#include "search.h"

enum { MOST_TESTS = 64, MOST_PARTS = 32 };

/* ---- memory ---- */

/* size bytes on the scratch stack, 16 aligned; NULL, and failed, when there are none left. */
void *residual_push(struct residual *r, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    if (size > r->stack_size - r->top || (r->limit && r->top + size + r->heap > r->limit)) {
        r->failed = 1;
        return NULL;
    }
    void *taken = r->stack + r->top;
    r->top += size;
    if (r->top > r->peak)
        r->peak = r->top;
    return taken;
}

static void *copied(struct residual *r, const void *from, size_t count, size_t size)
{
    void *made = arena_take(r->input, count * size + 1);
    if (made && count)
        memcpy(made, from, count * size);
    if (!made)
        r->failed = 1;
    return made;
}

int residual_open(struct residual *r, const struct prove_input *input, size_t memory)
{
    memset(r, 0, sizeof *r);
    r->limit = memory;
    r->input = arena_new(0);
    if (!r->input)
        return -1;
    struct prove_input *in = &r->in;
    *in = *input;
    in->dim_size = copied(r, input->dim_size, input->dims, 4);
    in->dim_states = copied(r, input->dim_states, input->dims, 4);
    in->test_dim = copied(r, input->test_dim, input->tests, 4);
    in->test_start = copied(r, input->test_start, input->tests + 1, 4);
    in->set_ends = copied(r, input->set_ends, input->test_start[input->tests] * (size_t)2, 4);
    in->match_start = copied(r, input->match_start, input->matches + 1, 4);
    in->code = copied(r, input->code, input->match_start[input->matches] * (size_t)2, 4);
    in->rule_start = copied(r, input->rule_start, input->rules + 1, 4);
    in->rule_match = copied(r, input->rule_match, input->rule_start[input->rules], 4);
    in->rule_action = copied(r, input->rule_action, input->rules * (size_t)3, 4);
    in->chain_start = copied(r, input->chain_start, input->chains, 4);
    in->chain_end = copied(r, input->chain_end, input->chains, 4);
    in->chain_writes = copied(r, input->chain_writes, input->chains, 4);
    in->chain_partner = copied(r, input->chain_partner, input->chains, 4);
    r->region = arena_take(r->input, input->dims * sizeof *r->region + 1);
    r->rule_guarded = arena_take(r->input, input->rules * sizeof *r->rule_guarded + 1);
    r->rule_read = arena_take(r->input, input->rules + 1);
    r->heap = arena_bytes(r->input);
    r->chain_state = arena_take(r->input, input->chains + 1);
    r->chain_once = arena_take(r->input, input->chains + 1);
    r->touched = arena_take(r->input, input->chains + 1);
    r->canon = arena_take(r->input, input->chains * sizeof *r->canon + 1);
    /* Addresses only: the system gives pages where they are touched. */
    for (r->stack_size = memory ? memory : (size_t)1 << 37; r->stack_size; r->stack_size /= 2) {
        r->stack = mmap(NULL, r->stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (r->stack != MAP_FAILED)
            break;
        r->stack = NULL;
    }
    return r->failed || !r->region || !r->rule_guarded || !r->rule_read || !r->chain_state || !r->chain_once || !r->canon || !r->touched || !r->stack ? -1 : 0;
}

void residual_close(struct residual *r)
{
    if (r->stack)
        munmap(r->stack, r->stack_size);
    free(r->guarded);
    free(r->tests);
    free(r->guarded_table);
    arena_free(r->input);
}

/* ---- rules, as the packets of a class read them ---- */

void residual_enter(struct residual *r, const struct prove_class *class)
{
    r->class = *class;
    r->guarded_count = r->test_count = 0;
    if (r->guarded_table)
        memset(r->guarded_table, 0xff, r->table_size * sizeof *r->guarded_table);
    memset(r->chain_state, LOW_NOT, r->in.chains);
    memset(r->rule_read, 0, r->in.rules);
    for (uint32_t chain = 0; chain < r->in.chains; chain++)
        r->canon[chain] = chain;
}

/* Room for one more segment and count more tests; 0 when memory is exhausted. */
static int make_room(struct residual *r, size_t count)
{
    if (r->test_count + count >= r->test_room) { /* so that there is some room, for no tests too */
        size_t room = (r->test_count + count) * 2 + 1024;
        uint32_t *more = realloc(r->tests, room * sizeof *more);
        if (!more)
            return 0;
        r->heap += (room - r->test_room) * sizeof *more;
        r->tests = more, r->test_room = room;
    }
    if (r->guarded_count + 1 > r->guarded_room) {
        size_t room = r->guarded_room * 2 + 1024;
        struct guarded_action *more = realloc(r->guarded, room * sizeof *more);
        if (!more)
            return 0;
        r->heap += (room - r->guarded_room) * sizeof *more;
        r->guarded = more, r->guarded_room = room;
    }
    return 1;
}

static uint64_t mixed(uint64_t hash, uint32_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

static uint64_t guarded_hash(const struct residual *r, const struct guarded_action *guarded)
{
    uint64_t hash = mixed(mixed(mixed(guarded->n, guarded->kind), guarded->arg), guarded->next);
    for (uint32_t t = 0; t < guarded->n; t++)
        hash = mixed(hash, r->tests[guarded->first + t]);
    return hash;
}

static int regrow_table(struct residual *r)
{
    size_t size = r->table_size ? r->table_size * 2 : 4096;
    uint32_t *table = malloc(size * sizeof *table);
    if (!table)
        return 0;
    memset(table, 0xff, size * sizeof *table);
    for (size_t number = 0; number < r->guarded_count; number++) {
        size_t at = guarded_hash(r, &r->guarded[number]) & (size - 1);
        while (table[at] != NONE)
            at = (at + 1) & (size - 1);
        table[at] = (uint32_t)number;
    }
    free(r->guarded_table);
    r->heap += (size - r->table_size) * sizeof *table;
    r->guarded_table = table, r->table_size = size;
    return 1;
}

static uint64_t dim_bit(uint32_t dim)
{
    return UINT64_C(1) << (dim < 63 ? dim : 63);
}

/* The dimensions that a test, or the tests of which one must hold, read. */
static uint64_t dims_of(const struct residual *r, uint32_t test)
{
    if (!(test & EITHER))
        return dim_bit(r->in.test_dim[test]);
    uint64_t dims = 0;
    for (uint32_t at = test & ~EITHER, k = r->in.code[2 * at + 1]; k; k--)
        dims |= dim_bit(r->in.test_dim[r->in.code[2 * (at + k) + 1]]);
    return dims;
}

/* The number of a segment with these tests (sorted, each once). */
static uint32_t guarded_number(struct residual *r, const uint32_t *tests, uint32_t n, struct guarded_action guarded)
{
    if ((r->guarded_count + 1) * 2 > r->table_size && !regrow_table(r)) {
        r->failed = 1;
        return NONE;
    }
    if (!make_room(r, n)) {
        r->failed = 1;
        return NONE;
    }
    guarded.first = (uint32_t)r->test_count, guarded.n = n;
    if (n)
        memcpy(r->tests + r->test_count, tests, n * sizeof *tests);
    size_t at = guarded_hash(r, &guarded) & (r->table_size - 1);
    for (; r->guarded_table[at] != NONE; at = (at + 1) & (r->table_size - 1)) {
        const struct guarded_action *known = &r->guarded[r->guarded_table[at]];
        if (known->n == n && known->kind == guarded.kind && known->arg == guarded.arg && known->next == guarded.next && known->changes == guarded.changes
            && !memcmp(r->tests + known->first, r->tests + guarded.first, n * sizeof *tests))
            return r->guarded_table[at];
    }
    r->test_count += n;
    guarded.dims = 0;
    for (uint32_t t = 0; t < n; t++)
        guarded.dims |= dims_of(r, tests[t]);
    r->guarded[r->guarded_count] = guarded;
    return r->guarded_table[at] = (uint32_t)r->guarded_count++;
}

static int has_field(const struct residual *r, uint32_t dim, int native)
{
    if (dim >= 12)
        return 1;
    return (native ? r->class.present_native : r->class.present) >> dim & 1;
}

/* A rule as it is read: parts of tests, each but the last ended by an event. */
struct rule_reading {
    uint32_t tests[MOST_PARTS][MOST_TESTS], n[MOST_PARTS], event[MOST_PARTS], changes[MOST_PARTS];
    uint32_t parts;
    int ended; /* by a match that drops, or does not hold */
    uint32_t kind;
};

static void add_test(struct rule_reading *reading, uint32_t test)
{
    uint32_t *tests = reading->tests[reading->parts], *n = &reading->n[reading->parts], at = *n;
    while (at > 0 && tests[at - 1] > test)
        at--;
    if (at > 0 && tests[at - 1] == test)
        return;
    memmove(tests + at + 1, tests + at, (*n - at) * sizeof *tests);
    tests[at] = test;
    ++*n;
}

static void end_reading(struct rule_reading *reading, uint32_t kind)
{
    reading->ended = 1;
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
    int alive = 0;
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
            reading->changes[reading->parts] = 0;
            reading->event[reading->parts++] = arg;
            reading->n[reading->parts] = 0;
            break;
        case PROVE_WRITE:
            reading->changes[reading->parts - 1] = arg;
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
        reading.parts = 0, reading.n[0] = 0, reading.ended = 0, reading.kind = 0;
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
    reading.parts = 0, reading.n[0] = 0, reading.ended = 0;
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
            [PROVE_JUMP] = ACTION_JUMP, [PROVE_GOTO] = ACTION_GOTO, [PROVE_RETURN] = ACTION_RETURN,
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
            .kind = ACTION_EVENT, .arg = reading.event[part], .next = number, .writes = writes, .once = once,
            .changes = reading.changes[part],
        };
        number = guarded_number(r, reading.tests[part], reading.n[part], event);
    }
    r->rule_guarded[rule] = number;
}

/* The segment of a rule that, with the same matches, comes to this verdict. */
uint32_t residual_decide(struct residual *r, uint32_t guarded, uint32_t verdict)
{
    struct guarded_action made = r->guarded[guarded];
    uint32_t tests[MOST_TESTS], n = made.n, first = made.first;
    if (n)
        memcpy(tests, r->tests + first, n * sizeof *tests);
    if (made.kind == ACTION_EVENT)
        made.next = residual_decide(r, made.next, verdict);
    else if (made.kind != ACTION_FAIL)
        made = (struct guarded_action){.kind = ACTION_VERDICT, .arg = verdict, .next = NONE};
    made.writes = made.kind == ACTION_EVENT ? made.changes | r->guarded[made.next].writes : 0;
    return guarded_number(r, tests, n, made);
}

/* Read the rules of one chain; canon of the chains that it enters must be known by now. */
void residual_lower(struct residual *r, uint32_t chain)
{
    r->chain_once[chain] = 0;
    for (uint32_t rule = r->in.chain_start[chain]; rule < r->in.chain_end[chain] && !r->failed; rule++) {
        if (!r->rule_read[rule])
            lower_rule(r, rule);
        r->rule_read[rule] = 1;
        const uint32_t *action = r->in.rule_action + 3 * (size_t)rule;
        if (r->failed || r->rule_guarded[rule] == NONE)
            continue;
        r->chain_once[chain] |= r->guarded[r->rule_guarded[rule]].once != 0;
        if (action[0] == PROVE_JUMP || action[0] == PROVE_GOTO)
            r->chain_once[chain] |= r->chain_once[action[1]];
    }
    r->chain_state[chain] = LOW_DONE;
}

/* ---- sets ---- */

/* The first interval of set that does not end below low. */
static uint32_t first_at(const struct set *set, uint32_t low)
{
    return lower_bound(set->ends + 1, 2, set->n, low);
}

/* How test lies to set, which is not empty. */
enum relation residual_relation(const struct residual *r, uint32_t test, const struct set *set)
{
    const uint32_t *ends = r->in.set_ends + 2 * (size_t)r->in.test_start[test];
    uint32_t n = r->in.test_start[test + 1] - r->in.test_start[test];
    if (n == 1) {
        /* Mostly: both ends tell. */
        uint32_t first = set->ends[0], last = set->ends[2 * set->n - 1];
        if (ends[0] <= first && ends[1] >= last)
            return REL_IN;
        if (ends[1] < first || ends[0] > last)
            return REL_OUT;
        if (set->n == 1)
            return REL_PART;
    }
    uint32_t covered = 0, touched = 0;
    for (uint32_t t = 0; t < n; t++) {
        uint32_t low = ends[2 * t], high = ends[2 * t + 1];
        uint32_t at = first_at(set, low);
        if (at == set->n || set->ends[2 * at] > high)
            continue;
        touched = 1;
        if (at == 0 && set->ends[0] >= low && set->ends[2 * set->n - 1] <= high)
            return REL_IN;
        if (n == 1)
            return REL_PART;
        for (; at < set->n && set->ends[2 * at + 1] <= high; at++)
            covered += set->ends[2 * at] >= low;
    }
    return covered == set->n ? REL_IN : touched ? REL_PART : REL_OUT;
}

/* The part of set inside or outside of test, on the stack. */
struct set *residual_cut(struct residual *r, const struct set *set, uint32_t test, int inside)
{
    const uint32_t *ends = r->in.set_ends + 2 * (size_t)r->in.test_start[test];
    uint32_t n = r->in.test_start[test + 1] - r->in.test_start[test];
    struct set *out = residual_push(r, sizeof *out + 2 * ((size_t)set->n + n + 1) * sizeof *out->ends);
    if (!out)
        return NULL;
    out->n = 0;
    uint32_t t = 0;
    for (uint32_t s = 0; s < set->n; s++) {
        uint32_t low = set->ends[2 * s], high = set->ends[2 * s + 1];
        while (t < n && ends[2 * t + 1] < low)
            t++;
        uint32_t from = low;
        int done = 0;
        for (; t < n && ends[2 * t] <= high; t++) {
            uint32_t in_low = ends[2 * t] > low ? ends[2 * t] : low;
            uint32_t in_high = ends[2 * t + 1] < high ? ends[2 * t + 1] : high;
            if (inside) {
                out->ends[2 * out->n] = in_low, out->ends[2 * out->n++ + 1] = in_high;
            } else if (in_low > from) {
                out->ends[2 * out->n] = from, out->ends[2 * out->n++ + 1] = in_low - 1;
            }
            if (ends[2 * t + 1] >= high) {
                done = 1; /* the test's interval may reach into the next of the set */
                break;
            }
            from = in_high + 1;
        }
        if (!inside && !done) {
            out->ends[2 * out->n] = from, out->ends[2 * out->n++ + 1] = high;
        }
    }
    return out;
}

/* ---- tests of an item ---- */

/* Whether test reads dim, and nothing that is blocked. */
static int reads_only(const struct residual *r, uint32_t test, uint32_t dim, uint32_t blocked)
{
    if (!(test & EITHER)) {
        uint32_t own = r->in.test_dim[test];
        return (dim == ALL_DIMS || own == dim) && !(r->in.dim_states[own] & blocked);
    }
    uint32_t at = test & ~EITHER, n = r->in.code[2 * at + 1];
    int reads = dim == ALL_DIMS;
    for (uint32_t t = 1; t <= n; t++) {
        uint32_t own = r->in.test_dim[r->in.code[2 * (at + t) + 1]];
        reads |= own == dim;
        if (r->in.dim_states[own] & blocked)
            return 0;
    }
    return reads;
}

/* How a test lies to the region; of an either-or, *chosen is one of its tests that is open. */
static enum relation lies(const struct residual *r, uint32_t test, uint32_t *chosen)
{
    *chosen = test;
    if (!(test & EITHER))
        return residual_relation(r, test, r->region[r->in.test_dim[test]]);
    uint32_t at = test & ~EITHER, n = r->in.code[2 * at + 1];
    enum relation found = REL_OUT;
    for (uint32_t t = 1; t <= n; t++) {
        uint32_t op = r->in.code[2 * (at + t)], one = r->in.code[2 * (at + t) + 1];
        if (!has_field(r, r->in.test_dim[one], op == PROVE_NATIVE))
            continue;
        enum relation each = residual_relation(r, one, r->region[r->in.test_dim[one]]);
        if (each == REL_IN)
            return REL_IN;
        if (each == REL_PART && found == REL_OUT)
            found = REL_PART, *chosen = one;
    }
    return found;
}

int residual_is_ready(const struct residual_item *item)
{
    return !item->open;
}

/* A test of the item by which the region may be cut; NONE when all open ones are blocked.
 * A test that the region decides already may be given, too. */
uint32_t residual_open_test(const struct residual *r, const struct residual_item *item, uint32_t blocked)
{
    const struct guarded_action *guarded = &r->guarded[item->guarded];
    for (uint64_t left = item->open; left; left &= left - 1) {
        uint32_t test = r->tests[guarded->first + (uint32_t)__builtin_ctzll(left)], chosen;
        if (reads_only(r, test, ALL_DIMS, blocked)) {
            enum relation relation = lies(r, test, &chosen);
            if (relation == REL_PART || !(test & EITHER))
                return chosen;
        }
    }
    return NONE;
}

/* Hold the open tests that read dim against the region; 0 when one fails. */
static int look(const struct residual *r, struct residual_item *item, uint32_t dim, uint32_t blocked)
{
    const struct guarded_action *guarded = &r->guarded[item->guarded];
    if (item->fresh)
        dim = ALL_DIMS;
    item->fresh = 0;
    if (dim == NONE || (dim != ALL_DIMS && !(guarded->dims & dim_bit(dim))))
        return 1;
    for (uint64_t left = item->open; left; left &= left - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(left), test = r->tests[guarded->first + bit], chosen;
        if (!reads_only(r, test, dim, blocked))
            continue;
        enum relation relation = lies(r, test, &chosen);
        if (relation == REL_OUT)
            return 0;
        if (relation == REL_IN)
            item->open &= ~(UINT64_C(1) << bit);
    }
    return 1;
}

/* ---- lists ---- */

static uint32_t end_verdict(const struct residual *r, const struct residual_list *list, const struct residual_item *out, size_t n)
{
    if (n && out[n - 1].guarded != NONE && !out[n - 1].open && r->guarded[out[n - 1].guarded].kind == ACTION_VERDICT)
        return r->guarded[out[n - 1].guarded].arg;
    return list->end;
}

/* Rules at the end whose verdict comes anyway change nothing. */
static size_t trimmed(const struct residual *r, const struct residual_list *list, struct residual_item *out, size_t n)
{
    uint32_t verdict = end_verdict(r, list, out, n);
    struct residual_item last = {.guarded = NONE};
    int ends = n && out[n - 1].guarded != NONE && !out[n - 1].open && r->guarded[out[n - 1].guarded].kind == ACTION_VERDICT;
    if (ends)
        last = out[--n];
    while (n) {
        const struct residual_item *item = &out[n - 1];
        if (item->guarded == NONE) {
            if (ends)
                break; /* a RETURN may lead here */
        } else {
            const struct guarded_action *guarded = &r->guarded[item->guarded];
            int same = guarded->kind == ACTION_VERDICT && guarded->arg == verdict;
            if (!same && !(guarded->kind == ACTION_RETURN && item->depth == 0 && !ends))
                break;
        }
        n--;
    }
    if (ends)
        out[n++] = last;
    return n;
}

static const struct guarded_action *final_action(const struct residual *r, const struct residual_item *item)
{
    const struct guarded_action *guarded = &r->guarded[item->guarded];
    while (guarded->kind == ACTION_EVENT)
        guarded = &r->guarded[guarded->next];
    return guarded;
}

/* Whether some item of the call of this depth that the n items end in may go to the call's end. */
static int leaves_call(const struct residual *r, const struct residual_item *out, size_t n, uint32_t depth)
{
    while (n-- > 0) {
        if (out[n].depth < depth || (out[n].guarded == NONE && out[n].depth == depth))
            return 0;
        if (out[n].guarded == NONE || out[n].depth != depth)
            continue;
        uint32_t kind = final_action(r, &out[n])->kind;
        if (kind == ACTION_RETURN || kind == ACTION_GOTO)
            return 1;
    }
    return 0;
}

/* Copy into out (which may be the list itself) what the region leaves of list. */
size_t residual_filter(const struct residual *r, const struct residual_list *list, struct residual_item *out, uint32_t dim)
{
    size_t n = 0;
    uint32_t blocked = 0;
    for (size_t at = 0; at < list->n; at++) {
        struct residual_item item = list->v[at];
        if (item.guarded == NONE) {
            /* The end of a call of which nothing is left, or nothing but ways to this place. */
            while (n && out[n - 1].guarded != NONE && out[n - 1].depth == item.depth
                   && r->guarded[out[n - 1].guarded].kind == ACTION_RETURN)
                n--;
            if (n && out[n - 1].depth >= item.depth && !(out[n - 1].guarded == NONE && out[n - 1].depth == item.depth))
                out[n++] = item;
            continue;
        }
        const struct guarded_action *guarded = &r->guarded[item.guarded];
        if (!look(r, &item, dim, blocked)) {
            if (guarded->writes)
                dim = ALL_DIMS; /* what it may have blocked is open to tests now */
            continue;
        }
        if (guarded->kind == ACTION_FAIL)
            continue;
        if (item.open || guarded->kind != ACTION_RETURN)
            out[n++] = item;
        blocked |= guarded->writes;
        if (item.open || (guarded->kind != ACTION_VERDICT && guarded->kind != ACTION_RETURN && guarded->kind != ACTION_GOTO))
            continue;
        uint32_t depth = item.depth;
        if (guarded->kind == ACTION_VERDICT)
            while (depth && !leaves_call(r, out, n, depth))
                depth--;
        if (!depth)
            break;
        /* What is left of this call is never read. */
        size_t next = at + 1;
        while (next < list->n && !(list->v[next].guarded == NONE && list->v[next].depth == depth))
            next++;
        if (next > at + 1)
            dim = ALL_DIMS;
        at = next - 1;
    }
    return trimmed(r, list, out, n);
}

static size_t put_chain(const struct residual *r, uint32_t chain, uint32_t depth, struct residual_item *out)
{
    size_t n = 0;
    for (uint32_t rule = r->in.chain_start[chain]; rule < r->in.chain_end[chain]; rule++) {
        uint32_t guarded = r->rule_guarded[rule];
        if (guarded == NONE)
            continue;
        uint32_t tests = r->guarded[guarded].n;
        uint64_t open = tests == 64 ? UINT64_MAX : (UINT64_C(1) << tests) - 1;
        out[n++] = (struct residual_item){.open = open, .guarded = guarded, .rule = rule, .depth = depth, .fresh = 1};
    }
    return n;
}

/* The rules of a chain, as the region leaves them, on the stack. */
struct residual_list residual_list(struct residual *r, uint32_t chain, uint32_t end)
{
    size_t rules = r->in.chain_end[chain] - r->in.chain_start[chain];
    struct residual_list made = {.end = end};
    made.v = residual_push(r, (rules + 1) * sizeof *made.v);
    if (!made.v)
        return made;
    made.n = put_chain(r, chain, 0, made.v);
    made.n = residual_filter(r, &made, made.v, NONE);
    return made;
}

/* The list with the chain that the item at place *at* surely enters in line, on the stack. */
struct residual_list residual_expand(struct residual *r, const struct residual_list *list, size_t at)
{
    const struct residual_item *entering = &list->v[at];
    uint32_t chain = r->in.rule_action[3 * (size_t)entering->rule + 1];
    int call = r->guarded[entering->guarded].kind == ACTION_JUMP;
    size_t rules = r->in.chain_end[chain] - r->in.chain_start[chain];
    struct residual_list made = {.end = list->end};
    made.v = residual_push(r, (list->n + rules + 1) * sizeof *made.v);
    if (!made.v)
        return made;
    memcpy(made.v, list->v, at * sizeof *made.v);
    made.n = at;
    uint32_t depth = entering->depth + (call ? 1 : 0);
    made.n += put_chain(r, chain, depth, made.v + made.n);
    if (call)
        made.v[made.n++] = (struct residual_item){.guarded = NONE, .depth = depth};
    memcpy(made.v + made.n, list->v + at + 1, (list->n - at - 1) * sizeof *made.v);
    made.n += list->n - at - 1;
    /* What the jump may have blocked is open to tests where its chain writes less in this class. */
    made.n = residual_filter(r, &made, made.v, r->guarded[entering->guarded].writes ? ALL_DIMS : NONE);
    return made;
}

/* ---- comparing ---- */

/* What an item comes to once all its matches said yes: the same whatever the calls it role_of in. */
struct outcome {
    uint32_t kind, arg;
    size_t then; /* of one that enters a chain or returns: the place, without marks, that follows; SIZE_MAX: the end */
};

/* Walks a list without its marks; remembers where the call that it asked for last ends. */
struct cursor {
    const struct residual *r;
    const struct residual_list *list;
    size_t at, place;
    size_t mark, mark_place;
    uint32_t mark_depth;
};

static size_t skip_marks(const struct residual_list *list, size_t at)
{
    while (at < list->n && list->v[at].guarded == NONE)
        at++;
    return at;
}

/* The place behind the call that the item under the cursor role_of in. */
static size_t behind_call(struct cursor *c)
{
    uint32_t depth = c->list->v[c->at].depth;
    if (depth == 0)
        return SIZE_MAX;
    if (c->mark <= c->at || c->mark_depth != depth) {
        size_t at = c->at, place = c->place;
        for (; at < c->list->n; at++) {
            const struct residual_item *item = &c->list->v[at];
            if (item->guarded == NONE && item->depth == depth)
                break;
            place += item->guarded != NONE;
        }
        c->mark = at, c->mark_depth = depth, c->mark_place = place;
        if (skip_marks(c->list, at) == c->list->n)
            c->mark_place = SIZE_MAX;
    }
    return c->mark_place;
}

static struct outcome outcome_of(struct cursor *c)
{
    const struct residual_item *item = &c->list->v[c->at];
    const struct guarded_action *guarded = final_action(c->r, item);
    struct outcome outcome = {guarded->kind, guarded->arg, 0};
    if (guarded->kind == ACTION_RETURN) {
        outcome.then = behind_call(c);
        if (outcome.then == SIZE_MAX)
            outcome = (struct outcome){ACTION_VERDICT, c->list->end, 0};
    } else if (guarded->kind == ACTION_GOTO) {
        outcome.kind = ACTION_JUMP;
        outcome.then = behind_call(c);
    } else if (guarded->kind == ACTION_JUMP) {
        outcome.then = skip_marks(c->list, c->at + 1) == c->list->n ? SIZE_MAX : c->place + 1;
    }
    return outcome;
}

/* Whether two tests hold for the same packets of the region. */
static int test_same(const struct residual *r, uint32_t a, uint32_t b, uint32_t blocked)
{
    if (a == b)
        return 1;
    if ((a | b) & EITHER)
        return 0;
    uint32_t dim = r->in.test_dim[a];
    if (dim != r->in.test_dim[b] || r->in.dim_states[dim] & blocked)
        return 0;
    const struct set *set = r->region[dim];
    const uint32_t *x = r->in.set_ends + 2 * (size_t)r->in.test_start[a], *x_end = r->in.set_ends + 2 * (size_t)r->in.test_start[a + 1];
    const uint32_t *y = r->in.set_ends + 2 * (size_t)r->in.test_start[b], *y_end = r->in.set_ends + 2 * (size_t)r->in.test_start[b + 1];
    for (uint32_t s = 0; s < set->n; s++) {
        uint32_t low = set->ends[2 * s], high = set->ends[2 * s + 1];
        for (;;) {
            while (x < x_end && x[1] < low)
                x += 2;
            while (y < y_end && y[1] < low)
                y += 2;
            int has_x = x < x_end && x[0] <= high, has_y = y < y_end && y[0] <= high;
            if (!has_x && !has_y)
                break;
            if (has_x != has_y)
                return 0;
            uint32_t x_low = x[0] > low ? x[0] : low, y_low = y[0] > low ? y[0] : low;
            uint32_t x_high = x[1] < high ? x[1] : high, y_high = y[1] < high ? y[1] : high;
            if (x_low != y_low || x_high != y_high)
                return 0;
            if (x_high == high)
                break;
            low = x_high + 1;
        }
    }
    return 1;
}

static int tests_same(const struct residual *r, uint32_t a, uint64_t open_a, uint32_t b, uint64_t open_b, uint32_t blocked)
{
    const struct guarded_action *x = &r->guarded[a], *y = &r->guarded[b];
    for (; open_a && open_b; open_a &= open_a - 1, open_b &= open_b - 1) {
        uint32_t one = r->tests[x->first + (uint32_t)__builtin_ctzll(open_a)];
        uint32_t other = r->tests[y->first + (uint32_t)__builtin_ctzll(open_b)];
        if (!test_same(r, one, other, blocked))
            return 0;
    }
    return !open_a && !open_b;
}

/* Whether two items are the same; their outcome is left in *outcome. */
static int items_same(struct cursor *c, struct cursor *d, uint32_t blocked, struct outcome *outcome,
    residual_paired *paired, void *who)
{
    const struct residual *r = c->r;
    const struct residual_item *x = &c->list->v[c->at], *y = &d->list->v[d->at];
    if (!(x->guarded == y->guarded && x->open == y->open) && !tests_same(r, x->guarded, x->open, y->guarded, y->open, blocked))
        return 0;
    *outcome = outcome_of(c);
    struct outcome other = outcome_of(d);
    /* A call goes on with what follows, be that the end in one of the lists or in both. */
    int calls = final_action(r, x)->kind == ACTION_JUMP && final_action(r, y)->kind == ACTION_JUMP;
    if (calls && outcome->then > other.then)
        outcome->then = other.then;
    if (outcome->kind != other.kind || outcome->arg != other.arg || (!calls && outcome->then != other.then))
        return 0;
    if (outcome->kind == ACTION_JUMP && r->touched[outcome->arg])
        return 0;
    const struct guarded_action *s = &r->guarded[x->guarded], *t = &r->guarded[y->guarded];
    if (s->kind != ACTION_EVENT && t->kind != ACTION_EVENT)
        return 1;
    return s->kind == t->kind && s->arg == t->arg && s->next == t->next
        && (!s->once || paired(who, x->rule, y->rule));
}

/* Whether the item under the cursor is the last one and is what *verdict* says. */
static int ends_with(struct cursor *c, uint32_t verdict)
{
    const struct residual_item *item = &c->list->v[c->at];
    if (item->open || c->r->guarded[item->guarded].kind == ACTION_EVENT || skip_marks(c->list, c->at + 1) < c->list->n)
        return 0;
    struct outcome outcome = outcome_of(c);
    return outcome.kind == ACTION_VERDICT && outcome.arg == verdict;
}

/* Whether what is left of both lists is the same; else *x and *y are where they part, which
 * may be the end of a list.  *paired* is asked for items with a memory or chance. */
int residual_same(const struct residual *r, const struct residual_list *a, const struct residual_list *b, struct mismatch *x,
    struct mismatch *y, residual_paired *paired, void *who)
{
    struct cursor c = {.r = r, .list = a}, d = {.r = r, .list = b};
    uint32_t blocked = 0;
    int passes = 0, to_end = 0, decided = 0;
    for (;; c.at++, d.at++, c.place++, d.place++) {
        c.at = skip_marks(a, c.at);
        d.at = skip_marks(b, d.at);
        *x = (struct mismatch){c.at, blocked, passes};
        *y = (struct mismatch){d.at, blocked, passes};
        int no_a = c.at == a->n, no_b = d.at == b->n;
        if (no_a && no_b)
            return a->end == b->end || (decided && !to_end);
        if (no_a || no_b)
            return (a->end == b->end || !to_end) && ends_with(no_a ? &d : &c, (no_a ? a : b)->end);
        struct outcome outcome;
        if (!items_same(&c, &d, blocked, &outcome, paired, who))
            return 0;
        const struct guarded_action *guarded = &r->guarded[a->v[c.at].guarded];
        decided = !a->v[c.at].open && guarded->kind == ACTION_VERDICT;
        /* A way to the end of the list, or to some place behind the next. */
        to_end |= outcome.kind == ACTION_JUMP && outcome.then == SIZE_MAX;
        passes |= (outcome.kind == ACTION_JUMP || outcome.kind == ACTION_RETURN) && outcome.then != c.place + 1;
        blocked |= guarded->writes;
    }
}
