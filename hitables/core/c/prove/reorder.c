/* A list of rules in another order: by groups, each rule behind the earlier rules that it may not overtake.
 *
 * Idea: a *decider* is a rule whose tests read nothing that the list may write, and that surely ends the
 * packet's way: by a verdict, a chain that surely ends, or RETURN.  Any other rule *stays*: it has effects,
 * asks a memory, or may let packets pass.  A packet has, in the list, the effects of the rules that stay and
 * precede the first decider that matches it.  Rules may be read by groups, one group behind the other, if no
 * rule r of a group acts before the rules of later groups that precede r in the list were read.  A *form* in
 * front of r searches deciders: all preceding ones of some groups (*asked*), or a few of them (*listed*).
 * Where it does neither for rule w of a later group that precedes r, no packet may match both, by tests that
 * read nothing written; or listed rules must decide such packets before w (listed_cover.c); or r and w must
 * be deciders of one verdict, and r without a form.  A w that stays is searched only in the last group, by
 * an r that is a decider, for the packets that r matches.  This file checks all such pairs r and w, as the
 * packets of a class read them.  Pairs are enumerated by halving the header space, since rules in different
 * halves have no packet in common, until few are left.  The caller guarantees that the searched rules are
 * exactly those before r.  hitables/verify/group_lists.py has the proof.
 * Cost: little where each rule searches those that it crosses; at worst all pairs.
 * Invariant: PROVE_EQUAL is returned only when each such pair was checked.
 * Threading: one thread, but for *stopped.
 */
#include "reorder_internal.h"

#include <string.h>

#include "listed_cover.h"
#include "search.h"

enum {
    FEW = 512,     /* pairs that are checked one by one rather than halved */
    SAMPLE = 32,   /* rules of each side by which a halving is chosen */
    DEEPEST = 64,
    DIMS = 40,     /* further ones are ignored: rules that meet in these may not meet at all */
};

/* How the class reads a rule. */
enum role {
    MATCHES_NOTHING, /* it matches no packet */
    PLAIN,           /* a decider without a form */
    STAYS,           /* no decider, and without a form */
    ASKS             /* its form searches other rules first */
};

/* Deciders of these many verdicts are told from others while pairs are enumerated; of more, pair by pair. */
enum { VERDICTS_APART = 6 };
static const uint64_t NO_VERDICT = UINT64_MAX;

struct reorder_check {
    struct residual *r;
    const struct order *order;
    const volatile bool *stopped;
    uint8_t *role;
    uint32_t *guarded; /* by rule: the tests of what is read first, its form or itself */
    uint64_t *verdict; /* by rule: equal ones end the packet's way alike; NO_VERDICT: it is no decider */
    bool searches_stayers; /* a rule that stays is in the last group, and forms search it */
    uint32_t written; /* mask of the states that rules which let packets pass may write */
    uint32_t dims, dim[DIMS];    /* that some rule tests */
    uint32_t *low[DIMS], *high[DIMS]; /* by rule: hull of what it tests */
    uint32_t group; /* of the pairs looked at */
    enum prove_status status;
};

static const struct guarded_action *guarded_of(const struct reorder_check *j, uint32_t rule)
{
    return &j->r->guarded[j->guarded[rule]];
}

/* ---- rules as the class reads them ---- */

static bool is_listing(const struct order *order, uint32_t rule)
{
    return order->listed_start[rule] < order->listed_start[rule + 1];
}

/* Whether the test, or one of the tests of which one must hold, reads what the list may write. */
static bool reads_written(const struct reorder_check *j, uint32_t test)
{
    const struct prove_input *in = &j->r->in;
    if (!(test & EITHER))
        return in->dim_states[in->test_dim[test]] & j->written;
    for (uint32_t at = test & ~EITHER, n = in->code[2 * at + 1]; n; n--)
        if (in->dim_states[in->test_dim[in->code[2 * (at + n) + 1]]] & j->written)
            return true;
    return false;
}

/* How a rule ends the packet's way, if it asks nothing and surely does; else NO_VERDICT. */
static uint64_t end_of(const struct residual *r, uint32_t number)
{
    const struct guarded_action *guarded = &r->guarded[number];
    if (guarded->kind == ACTION_RETURN)
        return (uint64_t)ACTION_RETURN << 32;
    if (!surely_ends(r, guarded))
        return NO_VERDICT;
    return (uint64_t)(guarded->kind == ACTION_VERDICT ? ACTION_VERDICT : ACTION_JUMP) << 32 | guarded->arg;
}

/* The states that rules which let packets pass may write; and by rule, how it ends the packet's way. */
static void find_writes(struct reorder_check *j)
{
    for (uint32_t rule = 0; rule < j->order->rules; rule++) {
        uint32_t number = j->r->rule_guarded[j->order->own[rule]];
        j->verdict[rule] = number == NONE ? NO_VERDICT : end_of(j->r, number);
        if (number != NONE && j->verdict[rule] == NO_VERDICT)
            j->written |= j->r->guarded[number].writes;
    }
}

/* A rule that reads what the list may write is no decider. */
static void hold_verdict(struct reorder_check *j, uint32_t rule)
{
    if (j->verdict[rule] == NO_VERDICT)
        return;
    const struct guarded_action *guarded = &j->r->guarded[j->r->rule_guarded[j->order->own[rule]]];
    for (uint32_t t = 0; t < guarded->n; t++)
        if (reads_written(j, j->r->tests[guarded->first + t]))
            j->verdict[rule] = NO_VERDICT;
}

/* Whether all tests of one guarded action are tests of the other; both are sorted. */
static bool tests_within(const struct residual *r, uint32_t one, uint32_t other)
{
    const struct guarded_action *a = &r->guarded[one], *b = &r->guarded[other];
    uint32_t y = 0;
    for (uint32_t x = 0; x < a->n; x++) {
        while (y < b->n && r->tests[b->first + y] != r->tests[a->first + x])
            y++;
        if (y == b->n)
            return false;
    }
    return true;
}

/* The role of a rule and what is read first of it; false when its form may do more than search. */
static bool find_role(struct reorder_check *j, uint32_t rule)
{
    const struct order *order = j->order;
    const struct residual *r = j->r;
    uint32_t own = r->rule_guarded[order->own[rule]];
    j->guarded[rule] = own;
    j->role[rule] = own == NONE ? MATCHES_NOTHING : j->verdict[rule] == NO_VERDICT ? STAYS : PLAIN;
    for (uint32_t form = order->form[rule]; form < order->own[rule]; form++) {
        uint32_t number = r->rule_guarded[form];
        /* A form that is read as the rule itself searches nothing: the rule's matches drop. */
        if (number == NONE || number == own)
            continue;
        j->role[rule] = ASKS;
        if (is_listing(order, rule)) {
            if (j->verdict[rule] == NO_VERDICT)
                return false;
            continue;
        }
        if (r->guarded[number].kind != ACTION_JUMP || (own != NONE && !tests_within(r, number, own)))
            return false;
        /* A rule that stays acts once: the packet must end here if the search does not end it. */
        if (j->searches_stayers && order->asked[(size_t)rule * order->groups + order->groups - 1] &&
            (j->verdict[rule] == NO_VERDICT || own == NONE || !tests_within(r, own, number)))
            return false;
        j->guarded[rule] = number;
    }
    return true;
}

/* Whether forms search the rule though it is no decider. */
static bool is_searched_stayer(const struct reorder_check *j, uint32_t rule)
{
    return j->order->read_in[rule] == ORDER_SEARCHED && j->verdict[rule] == NO_VERDICT &&
           j->r->rule_guarded[j->order->own[rule]] != NONE;
}

/* Whether the rule may stand where it does: a rule that forms search is a decider or in the last group, and
 * only the chain that packets enter is left by RETURN or -g. */
static bool may_stand(const struct reorder_check *j, uint32_t rule)
{
    uint32_t number = j->r->rule_guarded[j->order->own[rule]], read_in = j->order->read_in[rule];
    if (number == NONE || read_in == ORDER_ONCE)
        return true;
    if (is_searched_stayer(j, rule) && rule < j->order->group_start[j->order->groups - 1])
        return false;
    const struct guarded_action *last = &j->r->guarded[number];
    while (last->kind == ACTION_EVENT)
        last = &j->r->guarded[last->next];
    return last->kind != ACTION_RETURN && (last->kind != ACTION_GOTO || surely_ends(j->r, last));
}

/* Whether the rules that a form lists are deciders, which do not leave a chain that is called. */
static bool may_list(const struct reorder_check *j, uint32_t rule)
{
    const struct order *order = j->order;
    for (uint32_t l = order->listed_start[rule]; l < order->listed_start[rule + 1]; l++) {
        uint32_t listed = order->listed[l];
        if (j->r->rule_guarded[order->own[listed]] == NONE)
            continue;
        if (j->verdict[listed] == NO_VERDICT ||
            (j->verdict[listed] >> 32 == ACTION_RETURN && order->read_in[rule] != ORDER_ONCE))
            return false;
    }
    return true;
}

/* The hull, in each dimension, of the values that all plain tests of a rule leave; false when memory is
 * exhausted. */
static bool enclose(struct reorder_check *j)
{
    const struct residual *r = j->r;
    uint32_t rules = j->order->rules;
    uint32_t *place = residual_push(j->r, (r->in.dims + 1) * sizeof *place);
    if (!place)
        return false;
    memset(place, 0xff, (r->in.dims + 1) * sizeof *place);
    for (uint32_t rule = 0; rule < rules; rule++) {
        if (j->role[rule] == MATCHES_NOTHING)
            continue;
        const struct guarded_action *guarded = guarded_of(j, rule);
        for (uint32_t t = 0; t < guarded->n; t++) {
            uint32_t test = r->tests[guarded->first + t];
            if (test & EITHER || reads_written(j, test))
                continue;
            uint32_t dim = r->in.test_dim[test];
            if (place[dim] == NONE) {
                if (j->dims == DIMS)
                    continue;
                uint32_t d = place[dim] = j->dims++;
                j->dim[d] = dim;
                j->low[d] = residual_push(j->r, (rules + 1) * sizeof(uint32_t));
                j->high[d] = residual_push(j->r, (rules + 1) * sizeof(uint32_t));
                if (!j->low[d] || !j->high[d])
                    return false;
                memset(j->low[d], 0, (rules + 1) * sizeof(uint32_t));
                memset(j->high[d], 0xff, (rules + 1) * sizeof(uint32_t));
            }
            uint32_t d = place[dim], first = r->in.test_start[test], last = r->in.test_start[test + 1] - 1;
            uint32_t low = r->in.set_ends[2 * (size_t)first], high = r->in.set_ends[2 * (size_t)last + 1];
            if (low > j->low[d][rule])
                j->low[d][rule] = low;
            if (high < j->high[d][rule])
                j->high[d][rule] = high;
        }
    }
    return true;
}

/* ---- pairs ---- */

static bool tests_meet(const struct residual *r, uint32_t one, uint32_t other)
{
    uint32_t x = r->in.test_start[one], x_end = r->in.test_start[one + 1];
    uint32_t y = r->in.test_start[other], y_end = r->in.test_start[other + 1];
    while (x < x_end && y < y_end) {
        const uint32_t *a = r->in.set_ends + 2 * (size_t)x, *b = r->in.set_ends + 2 * (size_t)y;
        if (a[0] <= b[1] && b[0] <= a[1])
            return true;
        if (a[1] < b[1])
            x++;
        else
            y++;
    }
    return false;
}

/* Whether a packet may match both: any two tests of one dimension have values in common. */
static bool meet(const struct reorder_check *j, uint32_t one, uint32_t other)
{
    for (uint32_t d = 0; d < j->dims; d++)
        if (j->low[d][one] > j->high[d][other] || j->low[d][other] > j->high[d][one])
            return false;
    const struct residual *r = j->r;
    const struct guarded_action *a = guarded_of(j, one), *b = guarded_of(j, other);
    for (uint32_t x = 0; x < a->n; x++)
        for (uint32_t y = 0; y < b->n; y++) {
            uint32_t s = r->tests[a->first + x], t = r->tests[b->first + y];
            if (!((s | t) & EITHER) && r->in.test_dim[s] == r->in.test_dim[t] && !reads_written(j, s) &&
                !tests_meet(r, s, t))
                return false;
        }
    return true;
}

/* Whether the pair must be checked: w precedes rule, and the form of rule does not search w. */
static bool matters(const struct reorder_check *j, uint32_t rule, uint32_t w)
{
    const struct order *order = j->order;
    if (order->place[w] > order->place[rule])
        return false;
    if (j->role[rule] != ASKS)
        return j->verdict[rule] == NO_VERDICT || j->verdict[rule] != j->verdict[w];
    uint32_t asked = order->asked[(size_t)rule * order->groups + j->group];
    return w - order->group_start[j->group] >= asked && !order_lists(order, rule, w);
}

/* Whether rules that the form of *rule* lists decide, before w, all packets that match both. */
static bool decided_by_listed(const struct reorder_check *j, uint32_t rule, uint32_t w)
{
    return j->role[rule] == ASKS && is_listing(j->order, rule) &&
           listed_decide(j->r, j->order, rule, w, j->guarded[rule], j->guarded[w]);
}

static void look_at_all(struct reorder_check *j, const uint32_t *rules, uint32_t n, const uint32_t *others,
                        uint32_t m)
{
    for (uint32_t a = 0; a < n && j->status == PROVE_EQUAL; a++) {
        if (*j->stopped)
            j->status = PROVE_STOPPED;
        for (uint32_t b = 0; b < m; b++)
            if (matters(j, rules[a], others[b]) && meet(j, rules[a], others[b]) &&
                !decided_by_listed(j, rules[a], others[b])) {
                j->status = PROVE_DIFFER;
                return;
            }
    }
}

struct header_halving {
    uint32_t d, at; /* values below at, and from it on */
};

/* Pairs of the samples that would be left, in both halves together. */
static uint32_t left_by(const struct reorder_check *j, struct header_halving h, const uint32_t *x, uint32_t n,
                        const uint32_t *y, uint32_t m)
{
    uint32_t below[2] = {0}, above[2] = {0};
    const uint32_t *side[] = {x, y}, count[] = {n, m};
    for (int s = 0; s < 2; s++)
        for (uint32_t k = 0; k < count[s]; k++) {
            below[s] += j->low[h.d][side[s][k]] < h.at;
            above[s] += j->high[h.d][side[s][k]] >= h.at;
        }
    return below[0] * below[1] + above[0] * above[1];
}

static uint32_t sampled(const uint32_t *rules, uint32_t n, uint32_t *sample)
{
    uint32_t step = 1 + (n - 1) / SAMPLE, kept = 0;
    for (uint32_t k = 0; k < n; k += step)
        sample[kept++] = rules[k];
    return kept;
}

/* The halving that leaves the fewest pairs; false when none leaves clearly fewer. */
static bool choose(const struct reorder_check *j, const uint32_t *rules, uint32_t n, const uint32_t *others,
                   uint32_t m, struct header_halving *best)
{
    uint32_t x[SAMPLE], y[SAMPLE], nx = sampled(rules, n, x), ny = sampled(others, m, y);
    uint32_t fewest = nx * ny - nx * ny / 8;
    bool helps = false;
    for (uint32_t d = 0; d < j->dims; d++)
        for (uint32_t k = 0; k < nx + ny; k++) {
            uint32_t rule = k < nx ? x[k] : y[k - nx];
            for (int end = 0; end < 2; end++) {
                struct header_halving h = {d, end ? j->high[d][rule] + 1 : j->low[d][rule]};
                if (!h.at)
                    continue; /* no value lies below */
                uint32_t left = left_by(j, h, x, nx, y, ny);
                if (left < fewest)
                    fewest = left, *best = h, helps = true;
            }
        }
    return helps;
}

static uint32_t half_of(const struct reorder_check *j, struct header_halving h, bool above,
                        const uint32_t *rules, uint32_t n, uint32_t *out)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < n; k++)
        if (above ? j->high[h.d][rules[k]] >= h.at : j->low[h.d][rules[k]] < h.at)
            out[kept++] = rules[k];
    return kept;
}

/* Check each pair that matters of rules of one group and of a later one. */
static void tell_apart(struct reorder_check *j, const uint32_t *rules, uint32_t n, const uint32_t *others,
                       uint32_t m, int deep)
{
    if (!n || !m || j->status != PROVE_EQUAL)
        return;
    /* Others behind all rules do not matter. */
    const uint32_t *place = j->order->place;
    while (m && place[others[m - 1]] > place[rules[n - 1]])
        m--;
    while (n && m && place[rules[0]] < place[others[0]])
        rules++, n--;
    struct header_halving h;
    if (!n || !m)
        return;
    if ((uint64_t)n * m <= FEW || deep > DEEPEST || !choose(j, rules, n, others, m, &h)) {
        look_at_all(j, rules, n, others, m);
        return;
    }
    size_t top = j->r->top;
    uint32_t *x = residual_push(j->r, n * sizeof *x), *y = residual_push(j->r, m * sizeof *y);
    for (int above = 0; above < 2 && x && y; above++) {
        uint32_t nx = half_of(j, h, above, rules, n, x), ny = half_of(j, h, above, others, m, y);
        tell_apart(j, x, nx, y, ny, deep + 1);
    }
    if (!x || !y)
        j->status = PROVE_NO_MEMORY;
    j->r->top = top;
}

/* ---- groups ---- */

/* How many rules of the group precede the rule. */
static uint32_t before(const struct order *order, uint32_t rule, uint32_t group)
{
    uint32_t first = order->group_start[group], count = order->group_start[group + 1] - first;
    return lower_bound(order->place + first, 1, count, order->place[rule]);
}

/* Whether a rule need not be compared with those of a later group. */
static bool is_safe(const struct reorder_check *j, uint32_t rule, uint32_t group)
{
    const struct order *order = j->order;
    if (j->role[rule] == MATCHES_NOTHING)
        return true;
    if (j->role[rule] == PLAIN) /* what drops malformed packets may come early */
        return j->r->class.may_drop && j->verdict[rule] == ((uint64_t)ACTION_VERDICT << 32 | j->r->in.drop);
    return j->role[rule] == ASKS &&
           order->asked[(size_t)rule * order->groups + group] >= before(order, rule, group);
}

/* Compare all rules of one group with all of a later one; plain rules by their verdict. */
static void hold_groups(struct reorder_check *j, uint32_t group, uint32_t later)
{
    const struct order *order = j->order;
    size_t top = j->r->top;
    uint32_t n = order->group_start[group + 1] - order->group_start[group];
    uint32_t m = order->group_start[later + 1] - order->group_start[later];
    uint32_t *rules = residual_push(j->r, (n + 1) * sizeof *rules),
             *others = residual_push(j->r, (m + 1) * sizeof *others);
    uint8_t *done = residual_push(j->r, n + 1);
    if (!rules || !others || !done) {
        j->status = PROVE_NO_MEMORY;
        return;
    }
    memset(done, 0, n + 1);
    j->group = later;
    uint32_t apart = 0;
    for (uint32_t first = 0; first < n && j->status == PROVE_EQUAL; first++) {
        uint32_t start = order->group_start[group], rule = start + first, kept = 0, met = 0;
        if (done[first] || is_safe(j, rule, later))
            continue;
        /* Rules of one role, and plain ones of one verdict. */
        uint8_t role = j->role[rule];
        uint64_t verdict = role == PLAIN && apart++ < VERDICTS_APART ? j->verdict[rule] : NO_VERDICT;
        for (uint32_t k = first; k < n; k++) {
            if (done[k] || j->role[start + k] != role ||
                (verdict != NO_VERDICT && j->verdict[start + k] != verdict))
                continue;
            done[k] = 1;
            if (!is_safe(j, start + k, later))
                rules[kept++] = start + k;
        }
        for (uint32_t k = 0; k < m; k++) {
            uint32_t w = order->group_start[later] + k;
            if (j->role[w] != MATCHES_NOTHING && (verdict == NO_VERDICT || j->verdict[w] != verdict))
                others[met++] = w;
        }
        tell_apart(j, rules, kept, others, met, 0);
    }
    j->r->top = top;
}

enum prove_status reorder_holds(struct residual *r, const struct order *order, const volatile bool *stopped)
{
    struct reorder_check j = {.r = r, .order = order, .stopped = stopped, .status = PROVE_EQUAL};
    size_t top = r->top;
    j.role = residual_push(r, order->rules + 1);
    j.guarded = residual_push(r, (order->rules + 1) * sizeof *j.guarded);
    j.verdict = residual_push(r, (order->rules + 1) * sizeof *j.verdict);
    if (!j.role || !j.guarded || !j.verdict)
        return PROVE_NO_MEMORY;
    for (uint32_t rule = 0; rule < order->rules; rule++)
        for (uint32_t line = order->form[rule]; line <= order->own[rule]; line++)
            if (!r->rule_read[line])
                return PROVE_DIFFER;
    for (uint32_t k = 0; k < order->proved_chains; k++) {
        uint32_t partner = r->in.chain_partner[order->proved[k]];
        if (partner == NONE || r->canon[partner] != order->proved[k])
            return PROVE_DIFFER;
    }
    find_writes(&j);
    for (uint32_t rule = 0; rule < order->rules; rule++) {
        hold_verdict(&j, rule);
        j.searches_stayers |= is_searched_stayer(&j, rule);
    }
    for (uint32_t rule = 0; rule < order->rules; rule++)
        if (!find_role(&j, rule) || !may_stand(&j, rule) || !may_list(&j, rule))
            j.status = PROVE_DIFFER;
    if (j.status == PROVE_EQUAL && !enclose(&j))
        j.status = PROVE_NO_MEMORY;
    for (uint32_t group = 0; group < order->groups; group++)
        for (uint32_t later = group + 1; later < order->groups && j.status == PROVE_EQUAL; later++)
            hold_groups(&j, group, later);
    r->top = top;
    return j.status;
}
