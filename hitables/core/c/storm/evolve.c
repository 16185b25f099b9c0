/* Evolving rules (Storm, section 3.2.2).
 *
 * Idea: a window of the last samples, each assigned to a rule that holds it.  A sample that no rule holds
 * grows the first rule of its action whose hull with it is still of one action, and else is a rule of its
 * own.  A rule ends with its last sample.
 * Cost: a sample reads the list once, and checks a hull for each rule of its action until one is approved.
 * Invariant: the five properties.  1: a rule is a box.  2: all packets of the box have its action.  3: every
 * sample in the window is assigned to one rule that holds it; weights count them.  4: rules that overlap have
 * the same action, which follows from 2.  5: a rule lies in one original rule, or meets none.
 * Threading: none; a caller has it alone.
 *
 * Where the paper leaves it open: a sample is first looked for in all rules, which needs no test, and only
 * then rules are grown (*expand_first*: in one pass); ties of weight go to the older rule.
 */
#include "evolving.h"

#include <string.h>

#include "budget.h"

static size_t row_bytes(const struct evolve *e)
{
    return e->dims * sizeof(uint32_t);
}

static uint32_t *box_of(const struct evolve *e, uint32_t slot)
{
    return e->box + (size_t)slot * 2 * e->dims;
}

static bool holds(const struct evolve *e, uint32_t slot, const uint32_t *header)
{
    const uint32_t *box = box_of(e, slot);
    uint32_t d = 0;
    while (d < e->dims && header[d] - box[2 * d] <= box[2 * d + 1] - box[2 * d])
        d++;
    return d == e->dims;
}

int evolve_new(struct budget *budget, const struct evolve_options *options, const struct vfdb_rules *rules,
               const uint32_t *action, struct evolve **made)
{
    struct evolve *e = budget_take(budget, sizeof *e);
    if (!e)
        return VFDB_NO_MEMORY;
    uint32_t window = options->window;
    e->budget = budget;
    e->options = *options;
    e->dims = rules->dims;
    e->rule = budget_take(budget, window * sizeof *e->rule);
    e->box = budget_take(budget, window * 2 * row_bytes(e));
    e->order = budget_take(budget, window * sizeof *e->order);
    e->sampled = budget_take(budget, window * row_bytes(e));
    e->assigned = budget_take(budget, window * sizeof *e->assigned);
    int status = e->rule && e->box && e->order && e->sampled && e->assigned ? VFDB_OK : VFDB_NO_MEMORY;
    if (status == VFDB_OK)
        status = conflict_tree_start(&e->rules, budget, rules, action, options->leaf, options->choose);
    if (status) {
        evolve_free(e);
        return status;
    }
    e->rules.prune = !options->unpruned;
    for (uint32_t i = 0; i < window; i++)
        e->order[i] = i;
    *made = e;
    return VFDB_OK;
}

void evolve_free(struct evolve *e)
{
    uint32_t window = e->options.window;
    conflict_tree_free(&e->rules);
    budget_give(e->budget, e->rule, window * sizeof *e->rule);
    budget_give(e->budget, e->box, window * 2 * row_bytes(e));
    budget_give(e->budget, e->order, window * sizeof *e->order);
    budget_give(e->budget, e->sampled, window * row_bytes(e));
    budget_give(e->budget, e->assigned, window * sizeof *e->assigned);
    budget_give(e->budget, e, sizeof *e);
}

/* -- the list --------------------------------------------------------------------------------- */

static bool goes_before(const struct evolve *e, const struct evolving_rule *one,
                        const struct evolving_rule *two)
{
    if (one->weight != two->weight && !e->options.by_age)
        return one->weight > two->weight;
    return one->age < two->age;
}

static void touch(struct evolve *e, uint32_t place)
{
    e->changed = place < e->changed ? place : e->changed;
}

static void exchange(struct evolve *e, uint32_t place)
{
    uint32_t first = e->order[place], second = e->order[place + 1];
    e->order[place] = second;
    e->order[place + 1] = first;
    e->rule[second].place = place;
    e->rule[first].place = place + 1;
    touch(e, place);
}

/* Move a rule whose weight has changed to its place. */
static void settle_place(struct evolve *e, uint32_t slot)
{
    const struct evolving_rule *rule = &e->rule[slot];
    while (rule->place && goes_before(e, rule, &e->rule[e->order[rule->place - 1]]))
        exchange(e, rule->place - 1);
    while (rule->place + 1 < e->count && goes_before(e, &e->rule[e->order[rule->place + 1]], rule))
        exchange(e, rule->place);
}

/* The slot becomes the first vacant one. */
static void end_rule(struct evolve *e, uint32_t slot)
{
    touch(e, e->rule[slot].place);
    while (e->rule[slot].place + 1 < e->count)
        exchange(e, e->rule[slot].place);
    e->count--;
}

static uint32_t begin_rule(struct evolve *e, const uint32_t *header, uint32_t action, uint32_t match)
{
    uint32_t slot = e->order[e->count], *box = box_of(e, slot);
    for (uint32_t d = 0; d < e->dims; d++)
        box[2 * d] = box[2 * d + 1] = header[d];
    e->rule[slot] = (struct evolving_rule){
        .action = action, .match = match, .place = e->count, .age = e->stats.samples};
    touch(e, e->count++);
    if (e->count > e->stats.most_rules)
        e->stats.most_rules = e->count;
    return slot;
}

/* -- samples ---------------------------------------------------------------------------------- */

static void pop_sample(struct evolve *e)
{
    uint32_t slot = e->assigned[e->oldest];
    e->oldest = (e->oldest + 1) % e->options.window;
    e->filled--;
    if (--e->rule[slot].weight)
        settle_place(e, slot);
    else
        end_rule(e, slot);
}

/* Grow a rule so that it holds the header, if all of the larger box has its action. */
static bool expand(struct evolve *e, uint32_t slot, const uint32_t *header, uint32_t priority)
{
    struct evolving_rule *rule = &e->rule[slot];
    uint32_t hull[2 * VFDB_DIMS], *box = box_of(e, slot);
    for (uint32_t d = 0; d < e->dims; d++) {
        hull[2 * d] = header[d] < box[2 * d] ? header[d] : box[2 * d];
        hull[2 * d + 1] = header[d] > box[2 * d + 1] ? header[d] : box[2 * d + 1];
    }
    uint32_t floor = priority > rule->match ? priority : rule->match;
    struct conflict found = conflict_find(&e->rules, hull, rule->action, floor, header);
    e->stats.tried++;
    e->stats.leaves += found.leaves;
    if (!conflict_approves(found, rule->action))
        return false;
    memcpy(box, hull, 2 * row_bytes(e));
    rule->match = found.match;
    touch(e, rule->place);
    return true;
}

/* The slot of the rule that holds the header, or that was grown to; or the window: none. */
static uint32_t rule_for(struct evolve *e, const uint32_t *header, uint32_t action, uint32_t priority)
{
    uint32_t tried = 0, most = e->options.tries ? e->options.tries : UINT32_MAX;
    for (uint32_t i = 0; i < e->count && !e->options.expand_first; i++)
        if (holds(e, e->order[i], header)) {
            e->stats.contained++;
            return e->order[i];
        }
    for (uint32_t i = 0; i < e->count && tried < most; i++) {
        uint32_t slot = e->order[i];
        if (e->rule[slot].action != action)
            continue;
        if (e->options.expand_first && holds(e, slot, header)) {
            e->stats.contained++;
            return slot;
        }
        tried++;
        if (expand(e, slot, header, priority)) {
            e->stats.expanded++;
            return slot;
        }
    }
    return e->options.window;
}

void evolve_sample(struct evolve *e, const uint32_t *header, uint32_t action, uint32_t priority)
{
    if (e->filled == e->options.window)
        pop_sample(e);
    uint32_t slot = rule_for(e, header, action, priority);
    if (slot == e->options.window) {
        slot = begin_rule(e, header, action, priority);
        e->stats.created++;
    }
    uint32_t at = (e->oldest + e->filled++) % e->options.window;
    memcpy(e->sampled + (size_t)at * e->dims, header, row_bytes(e));
    e->assigned[at] = slot;
    e->rule[slot].weight++;
    settle_place(e, slot);
    e->stats.samples++;
}

void evolve_forget(struct evolve *e, const uint32_t *box)
{
    uint32_t window = e->options.window, kept = 0, before = e->count;
    for (uint32_t place = e->count; place--;)
        if (conflict_meets(e->dims, evolve_box(e, place), box)) {
            uint32_t slot = e->order[place];
            e->rule[slot].weight = 0;
            end_rule(e, slot);
        }
    if (e->count == before)
        return;
    e->stats.dropped += before - e->count;
    for (uint32_t i = 0; i < e->filled; i++) {
        uint32_t from = (e->oldest + i) % window, to = (e->oldest + kept) % window;
        if (!e->rule[e->assigned[from]].weight)
            continue;
        e->assigned[to] = e->assigned[from];
        memmove(e->sampled + (size_t)to * e->dims, e->sampled + (size_t)from * e->dims, row_bytes(e));
        kept++;
    }
    e->filled = kept;
}

/* -- what it is like -------------------------------------------------------------------------- */

uint32_t evolve_list(const struct evolve *e, uint32_t *box, uint32_t *action, uint32_t *weight, uint32_t room)
{
    for (uint32_t place = 0; place < e->count && place < room; place++) {
        const struct evolving_rule *rule = &e->rule[e->order[place]];
        memcpy(box + (size_t)place * 2 * e->dims, evolve_box(e, place), 2 * row_bytes(e));
        action[place] = rule->action;
        weight[place] = rule->weight;
    }
    return e->count;
}

void evolve_stats_of(const struct evolve *e, struct evolve_stats *stats)
{
    *stats = e->stats;
    stats->rules = e->count;
}

static uint32_t broken_rule(const struct evolve *e, uint32_t place)
{
    const struct evolving_rule *rule = &e->rule[e->order[place]];
    const uint32_t *box = evolve_box(e, place);
    for (uint32_t d = 0; d < e->dims; d++)
        if (box[2 * d] > box[2 * d + 1])
            return 1;
    struct conflict found = conflict_find(&e->rules, box, rule->action, 0, NULL);
    if (!conflict_approves(found, rule->action))
        return found.match == VFDB_NONE && rule->action != VFDB_NONE ? 5 : 2;
    for (uint32_t other = 0; other < place; other++)
        if (e->rule[e->order[other]].action != rule->action &&
            conflict_meets(e->dims, box, evolve_box(e, other)))
            return 4;
    if (rule->place != place ||
        (place && goes_before(e, rule, &e->rule[e->order[place - 1]])))
        return 7;
    return 0;
}

uint32_t evolve_broken(const struct evolve *e)
{
    uint64_t weights = 0;
    for (uint32_t place = 0; place < e->count; place++) {
        uint32_t broken = broken_rule(e, place);
        if (broken)
            return broken;
        weights += e->rule[e->order[place]].weight;
    }
    for (uint32_t i = 0; i < e->filled; i++) {
        uint32_t at = (e->oldest + i) % e->options.window;
        if (!holds(e, e->assigned[at], e->sampled + (size_t)at * e->dims))
            return 3;
    }
    return weights == e->filled ? 0 : 6;
}
