/* Residual lists: what remains of a list of rules for the packets of a region.
 *
 * Idea: a region of the header space is a set of coordinates per dimension.  A test that holds in all of the
 * region falls away; a rule with a test that holds nowhere in it falls away; nothing remains behind a rule
 * that surely ends.  Two lists with the same residual list decide every packet of the region in the same
 * way.  A test of something that an item in front of it may write stays open (blocked) until that item is
 * removed.  A called chain is inlined in its caller's list, followed by an item that marks its end, to which
 * RETURN leads.
 * Cost: an item is 24 bytes and is visited once per cut of the region.
 * Invariant: the list decides each packet of the region as the rules that it was made of do.
 * Memory: lists and sets come from a stack of reserved addresses, freed by restoring its top; what grows
 * comes from the budget, the copy of the input from an arena.  All of it counts towards the limit.
 * Threading: none; a residual belongs to one prover.
 */
#include "residual.h"

#include <string.h>
#include <sys/mman.h>

#include "arena.h"
#include "chain_index.h"
#include "search.h"

/* ---- memory ---- */

/* size bytes on the scratch stack, 16 aligned; NULL, and failed, when there are none left. */
void *residual_push(struct residual *r, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    if (size > r->stack_size - r->top || residual_is_full(r, size)) {
        r->failed = true;
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
    void *copy = arena_take(r->input, count * size + 1);
    if (copy && count)
        memcpy(copy, from, count * size);
    if (!copy)
        r->failed = true;
    return copy;
}

bool residual_open(struct residual *r, const struct prove_input *input, size_t memory)
{
    memset(r, 0, sizeof *r);
    r->limit = memory;
    r->left_out = NONE;
    r->input = arena_new(0);
    r->budget = budget_new(0);
    if (!r->input || !r->budget)
        return false;
    struct prove_input *in = &r->in;
    *in = *input;
    r->removed.dim = NONE;
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
    in->chain_whole = copied(r, input->chain_whole, input->chains, 4);
    in->effect_start = copied(r, input->effect_start, (size_t)input->effects + 1, 4);
    in->effect_maps = copied(r, input->effect_maps, input->effect_start[input->effects], 4);
    r->region = arena_take(r->input, input->dims * sizeof *r->region + 1);
    r->rule_guarded = arena_take(r->input, input->rules * sizeof *r->rule_guarded + 1);
    r->rule_read = arena_take(r->input, input->rules + 1);
    r->chain_state = arena_take(r->input, input->chains + 1);
    r->chain_once = arena_take(r->input, input->chains + 1);
    r->chain_acts = arena_take(r->input, input->chains + 1);
    r->chain_ends = arena_take(r->input, input->chains + 1);
    r->chain_idle = arena_take(r->input, input->chains + 1);
    r->touched = arena_take(r->input, input->chains + 1);
    r->chain_reads = arena_take(r->input, input->chains * sizeof *r->chain_reads + 1);
    r->canon = arena_take(r->input, input->chains * sizeof *r->canon + 1);
    /* Addresses only: the system gives pages where they are touched. */
    for (r->stack_size = memory ? memory : (size_t)1 << 37; r->stack_size; r->stack_size /= 2) {
        r->stack = mmap(NULL, r->stack_size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (r->stack != MAP_FAILED)
            break;
        r->stack = NULL;
    }
    return !r->failed && r->region && r->rule_guarded && r->rule_read && r->chain_state && r->chain_once &&
           r->chain_acts && r->chain_reads && r->chain_ends && r->chain_idle && r->canon && r->touched &&
           r->stack;
}

void residual_close(struct residual *r)
{
    if (r->stack)
        munmap(r->stack, r->stack_size);
    if (r->budget) {
        chain_indexes_clear(r);
        budget_give(r->budget, r->guarded, r->guarded_room * sizeof *r->guarded);
        budget_give(r->budget, r->tests, r->test_room * sizeof *r->tests);
        budget_give(r->budget, r->guarded_table, r->table_size * sizeof *r->guarded_table);
        budget_free(r->budget);
    }
    arena_free(r->input);
}

/* Bytes taken, the scratch stack's aside. */
size_t residual_bytes(const struct residual *r)
{
    return arena_bytes(r->input) + budget_bytes(r->budget);
}

/* Whether *size* further bytes would pass the limit. */
bool residual_is_full(const struct residual *r, size_t size)
{
    return r->limit && r->top + residual_bytes(r) + size > r->limit;
}

/* ---- sets ---- */

/* The first interval of set that does not end below low. */
static uint32_t first_at(const struct set *set, uint32_t low)
{
    return lower_bound(set->ends + 1, 2, set->n, low);
}

/* The relation of the test to the set, which is not empty. */
enum relation residual_relation(const struct residual *r, uint32_t test, const struct set *set)
{
    const uint32_t *ends = r->in.set_ends + 2 * (size_t)r->in.test_start[test];
    uint32_t n = r->in.test_start[test + 1] - r->in.test_start[test];
    if (n == 1) {
        /* The usual case: the ends of both decide. */
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
        uint32_t behind = high == UINT32_MAX ? set->n : first_at(set, high + 1); /* ends above high */
        covered += behind - at - (at < behind && set->ends[2 * at] < low);
    }
    return covered == set->n ? REL_IN : touched ? REL_PART : REL_OUT;
}

/* The part of set inside or outside of test, on the stack. */
struct set *residual_cut(struct residual *r, const struct set *set, uint32_t test, bool inside)
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
        bool done = false;
        for (; t < n && ends[2 * t] <= high; t++) {
            uint32_t in_low = ends[2 * t] > low ? ends[2 * t] : low;
            uint32_t in_high = ends[2 * t + 1] < high ? ends[2 * t + 1] : high;
            if (inside) {
                out->ends[2 * out->n] = in_low, out->ends[2 * out->n++ + 1] = in_high;
            } else if (in_low > from) {
                out->ends[2 * out->n] = from, out->ends[2 * out->n++ + 1] = in_low - 1;
            }
            if (ends[2 * t + 1] >= high) {
                done = true; /* the test's interval may reach into the next of the set */
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
static bool reads_only(const struct residual *r, uint32_t test, uint32_t dim, uint32_t blocked)
{
    if (!(test & EITHER)) {
        uint32_t own = r->in.test_dim[test];
        return (dim == ALL_DIMS || own == dim) && !(r->in.dim_states[own] & blocked);
    }
    uint32_t at = test & ~EITHER, n = r->in.code[2 * at + 1];
    bool reads = dim == ALL_DIMS;
    for (uint32_t t = 1; t <= n; t++) {
        uint32_t own = r->in.test_dim[r->in.code[2 * (at + t) + 1]];
        reads |= own == dim;
        if (r->in.dim_states[own] & blocked)
            return false;
    }
    return reads;
}

/* The relation of a test to the region; of an either-or, *chosen is one of its tests that is open. */
static enum relation region_relation(const struct residual *r, uint32_t test, uint32_t *chosen)
{
    *chosen = test;
    if (!(test & EITHER))
        return residual_relation(r, test, r->region[r->in.test_dim[test]]);
    uint32_t at = test & ~EITHER, n = r->in.code[2 * at + 1];
    enum relation relation = REL_OUT;
    for (uint32_t t = 1; t <= n; t++) {
        uint32_t op = r->in.code[2 * (at + t)], one = r->in.code[2 * (at + t) + 1];
        if (!has_field(r, r->in.test_dim[one], op == PROVE_NATIVE))
            continue;
        enum relation each = residual_relation(r, one, r->region[r->in.test_dim[one]]);
        if (each == REL_IN)
            return REL_IN;
        if (each == REL_PART && relation == REL_OUT)
            relation = REL_PART, *chosen = one;
    }
    return relation;
}

/* A test of the item by which the region may be cut; NONE when all open ones are blocked.  A test that the
 * region decides already may be given, too. */
uint32_t residual_open_test(const struct residual *r, const struct residual_item *item, uint32_t blocked)
{
    const struct guarded_action *guarded = &r->guarded[item->guarded];
    for (uint64_t left = item->open; left; left &= left - 1) {
        uint32_t test = r->tests[guarded->first + (uint32_t)__builtin_ctzll(left)], chosen;
        if (reads_only(r, test, ALL_DIMS, blocked)) {
            enum relation relation = region_relation(r, test, &chosen);
            if (relation == REL_PART || !(test & EITHER))
                return chosen;
        }
    }
    return NONE;
}

/* Whether an open test is open after the cut, too: it holds none of the values that were removed, and not
 * all that are left.  Then its values need not be searched in the set, which may have many parts. */
static bool stays_open(const struct residual *r, uint32_t test)
{
    if ((test & EITHER) || r->in.test_start[test + 1] - r->in.test_start[test] != 1)
        return false;
    const uint32_t *ends = r->in.set_ends + 2 * (size_t)r->in.test_start[test];
    const struct set *set = r->region[r->removed.dim];
    return (ends[1] < r->removed.low || ends[0] > r->removed.high) &&
           (ends[0] > set->ends[0] || ends[1] < set->ends[2 * set->n - 1]);
}

/* Hold the open tests that read dim against the region; 0 when one fails. */
static bool look(const struct residual *r, struct residual_item *item, uint32_t dim, uint32_t blocked)
{
    const struct guarded_action *guarded = &r->guarded[item->guarded];
    bool was_cut = !item->fresh && dim == r->removed.dim;
    if (item->fresh)
        dim = ALL_DIMS;
    item->fresh = 0;
    if (dim == NONE || (dim != ALL_DIMS && !(guarded->dims & dim_bit(dim))))
        return true;
    for (uint64_t left = item->open; left; left &= left - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(left), test = r->tests[guarded->first + bit], chosen;
        if (!reads_only(r, test, dim, blocked) || (was_cut && stays_open(r, test)))
            continue;
        enum relation relation = region_relation(r, test, &chosen);
        if (relation == REL_OUT)
            return false;
        if (relation == REL_IN)
            item->open &= ~(UINT64_C(1) << bit);
    }
    return true;
}

/* ---- lists ---- */

static uint32_t end_verdict(const struct residual *r, const struct residual_list *list,
                            const struct residual_item *out, size_t n)
{
    if (n && out[n - 1].guarded != NONE && !out[n - 1].open &&
        r->guarded[out[n - 1].guarded].kind == ACTION_VERDICT)
        return r->guarded[out[n - 1].guarded].arg;
    return list->end;
}

/* Drop the rules at the end whose verdict is also that of the end; the number left. */
static size_t trimmed(const struct residual *r, const struct residual_list *list, struct residual_item *out,
                      size_t n)
{
    uint32_t verdict = end_verdict(r, list, out, n);
    struct residual_item last = {.guarded = NONE};
    bool ends = n && out[n - 1].guarded != NONE && !out[n - 1].open &&
                r->guarded[out[n - 1].guarded].kind == ACTION_VERDICT;
    if (ends)
        last = out[--n];
    while (n) {
        const struct residual_item *item = &out[n - 1];
        if (item->guarded == NONE) {
            if (ends)
                break; /* a RETURN may lead here */
        } else {
            const struct guarded_action *guarded = &r->guarded[item->guarded];
            bool same = guarded->kind == ACTION_VERDICT && guarded->arg == verdict;
            if (!same && !(guarded->kind == ACTION_RETURN && item->depth == 0 && !ends))
                break;
        }
        n--;
    }
    if (ends)
        out[n++] = last;
    return n;
}

/* Whether some item of the call of this depth that the n items end in may go to the call's end. */
static bool leaves_call(const struct residual *r, const struct residual_item *out, size_t n, uint32_t depth)
{
    while (n-- > 0) {
        if (out[n].depth < depth || (out[n].guarded == NONE && out[n].depth == depth))
            return false;
        if (out[n].guarded == NONE || out[n].depth != depth)
            continue;
        uint32_t kind = final_action(r, &out[n])->kind;
        if (kind == ACTION_RETURN || kind == ACTION_GOTO)
            return true;
    }
    return false;
}

/* `residual_filter`, with the rules at the end that change nothing; of a plain residual with all RETURN. */
static size_t filtered(const struct residual *r, const struct residual_list *list, struct residual_item *out,
                       uint32_t dim)
{
    size_t n = 0;
    uint32_t blocked = 0;
    for (size_t at = 0; at < list->n; at++) {
        struct residual_item item = list->v[at];
        if (item.guarded == NONE) {
            /* The end of a call of which nothing is left, or nothing but ways to this place. */
            while (n && out[n - 1].guarded != NONE && out[n - 1].depth == item.depth &&
                   r->guarded[out[n - 1].guarded].kind == ACTION_RETURN)
                n--;
            if (n && out[n - 1].depth >= item.depth &&
                !(out[n - 1].guarded == NONE && out[n - 1].depth == item.depth))
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
        if (item.open || guarded->kind != ACTION_RETURN || r->plain)
            out[n++] = item;
        blocked |= guarded->writes;
        bool ends = surely_ends(r, guarded);
        if (item.open || (!ends && guarded->kind != ACTION_RETURN && guarded->kind != ACTION_GOTO))
            continue;
        uint32_t depth = item.depth;
        if (ends)
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
    return n;
}

/* Copy into out (which may be the list itself) what the region leaves of list. */
size_t residual_filter(const struct residual *r, const struct residual_list *list, struct residual_item *out,
                       uint32_t dim)
{
    return trimmed(r, list, out, filtered(r, list, out, dim));
}

/* Whether it enters a chain in which nothing happens. */
static bool is_idle(const struct residual *r, const struct guarded_action *guarded)
{
    return guarded->kind == ACTION_JUMP && r->chain_idle[guarded->arg] && !r->touched[guarded->arg] &&
           !r->plain;
}

static size_t put_rule(const struct residual *r, uint32_t rule, uint32_t depth, struct residual_item *out)
{
    uint32_t guarded = r->rule_guarded[rule];
    if (guarded == NONE || is_idle(r, &r->guarded[guarded]))
        return 0;
    uint32_t tests = r->guarded[guarded].n;
    uint64_t open = tests == 64 ? UINT64_MAX : (UINT64_C(1) << tests) - 1;
    *out =
        (struct residual_item){.open = open, .guarded = guarded, .rule = rule, .depth = depth, .fresh = 1};
    return 1;
}

/* Put the rules of a chain, without some that surely match no packet of the region.  *written*: the states
 * that may be written before the chain is read. */
static size_t put_chain(struct residual *r, uint32_t chain, uint32_t depth, uint32_t written,
                        struct residual_item *out)
{
    size_t n = 0, top = r->top;
    uint32_t start = r->in.chain_start[chain], end = r->in.chain_end[chain], found = NONE;
    uint32_t *rules = residual_push(r, (end - start) * sizeof *rules);
    if (rules)
        found = chain_index_find(r, chain, written | r->in.chain_writes[chain], rules);
    if (found == NONE)
        for (uint32_t rule = start; rule < end; rule++)
            n += put_rule(r, rule, depth, out + n);
    for (uint32_t i = 0; found != NONE && i < found; i++)
        n += put_rule(r, rules[i], depth, out + n);
    r->top = top;
    r->looked_at += found == NONE ? end - start : found;
    return n;
}

/* The rules of a chain, as the region leaves them, on the stack. */
struct residual_list residual_list(struct residual *r, uint32_t chain, uint32_t end)
{
    size_t rules = r->in.chain_end[chain] - r->in.chain_start[chain];
    struct residual_list result = {.end = end};
    result.v = residual_push(r, (rules + 1) * sizeof *result.v);
    if (!result.v)
        return result;
    result.n = put_chain(r, chain, 0, 0, result.v);
    result.n = r->plain ? filtered(r, &result, result.v, NONE) : residual_filter(r, &result, result.v, NONE);
    return result;
}

/* Take out of the list, from place *at* on, the calls of a chain that all packets there have come back from:
 * a chain without effects, memory or chance decides them as it did before.  In the call of this depth. */
static void drop_repeated_calls(const struct residual *r, struct residual_list *list, size_t at,
                                uint32_t chain, uint32_t depth)
{
    size_t n = at;
    bool same_packet = !r->chain_acts[chain];
    for (; at < list->n; at++) {
        const struct residual_item *item = &list->v[at];
        if (item->guarded == NONE) {
            same_packet &= item->depth > depth; /* behind the call there may be packets of other ways */
        } else if (same_packet) {
            const uint32_t *action = r->in.rule_action + 3 * (size_t)item->rule;
            const struct guarded_action *guarded = &r->guarded[item->guarded];
            if (guarded->kind == ACTION_JUMP && action[1] == chain && item->depth == depth)
                continue;
            same_packet = !guarded->writes;
        }
        list->v[n++] = list->v[at];
    }
    list->n = n;
}

/* The list with the chain that the item at place *at* surely enters in line, on the stack. */
struct residual_list residual_expand(struct residual *r, const struct residual_list *list, size_t at)
{
    const struct residual_item *entering = &list->v[at];
    uint32_t chain = r->in.rule_action[3 * (size_t)entering->rule + 1];
    /* Nothing is left to read behind the last jump of a call: what follows the call follows the chain too. */
    const struct residual_item *next = at + 1 < list->n ? entering + 1 : NULL;
    bool last = !next ? !entering->depth : next->guarded == NONE && next->depth == entering->depth;
    bool call = r->guarded[entering->guarded].kind == ACTION_JUMP && !last;
    uint32_t written = 0;
    for (size_t i = 0; i < at; i++)
        if (list->v[i].guarded != NONE)
            written |= r->guarded[list->v[i].guarded].writes;
    size_t rules = r->in.chain_end[chain] - r->in.chain_start[chain];
    struct residual_list result = {.end = list->end};
    result.v = residual_push(r, (list->n + rules + 1) * sizeof *result.v);
    if (!result.v)
        return result;
    memcpy(result.v, list->v, at * sizeof *result.v);
    result.n = at;
    uint32_t depth = entering->depth + (call ? 1 : 0);
    result.n += put_chain(r, chain, depth, written, result.v + result.n);
    if (call)
        result.v[result.n++] = (struct residual_item){.guarded = NONE, .depth = depth};
    memcpy(result.v + result.n, list->v + at + 1, (list->n - at - 1) * sizeof *result.v);
    size_t behind = result.n;
    result.n += list->n - at - 1;
    r->looked_at += list->n;
    if (call)
        drop_repeated_calls(r, &result, behind, chain, entering->depth);
    /* What the jump may have blocked is open to tests where its chain writes less in this class. */
    result.n = residual_filter(r, &result, result.v, r->guarded[entering->guarded].writes ? ALL_DIMS : NONE);
    return result;
}
