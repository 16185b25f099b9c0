/* The choice of a grouping for shape_groups.
 *
 * Idea: how rules are grouped, how many of them are read before all trees (the head), and whether rules that
 * may not be moved stay in the first group or in the last, is decided by what the whole would cost: on a
 * sample first, then in full for those that are near.  A rule that is wide in both addresses and stands in
 * front of the list precedes most rules of other groups, each of which would need a version for it; in the
 * head it costs one read.
 * Cost: a handful of builds over the sample (choose_sample).  Then in full: with effort 0 one, with 1 or 2
 * also near ones, and up to MOST_TRIES more where none fits; with many groups each is built with several
 * shares of the nesting.
 * Invariant: the first grouping is one tree without a head, which keeps any budget.
 * Threading: none; memory is that of the space (tree.c).
 */
#include "group_trees.h"

#include <math.h>
#include <string.h>

enum {
    WIDE = 7, /* a prefix of this many bits of 32, or fewer, is not specific; with 16, so many rules of the
               * last tree of fw1 cross that its longest path is twice as long */
    WIDER = 15, /* tried besides with the greatest effort */
    LONGEST_HEAD = 16,
    MANY_GROUPS = 3, /* with more, nesting is shared out beyond the limit */
    MOST_SLACK = 3,
    SHALLOW = 30,    /* a limit of nesting that is felt */
    MANY_RULES = 100, /* a tree of fewer rules needs no head: its leaves have few copies */
    SAMPLE = 2000,   /* rules of the sample with effort 1, at most; with 0 a quarter, with 2 four times as
                      * many; FEW_STAYERS aside */
    MOST_TRIES = 4,  /* groupings that are built in full because others do not fit */
    FEW_STAYERS = 20 /* all rules that may not be moved are in the sample if they are one in so many */
};

/* What groupings differ in, and how many values each has. */
enum choice { BASE, HEAD, STAYERS, LATE, CHOICES };
enum {
    BASES = 5, /* one tree, and two orders of groups by two widths */
    HEADS = 3, /* none; the leading wide rules; all rules up to the last wide or stationary one */
    STAYERS_PLACES = 2,
    LATE_PLACES = 3,
    GROUPINGS = BASES * HEADS * STAYERS_PLACES * LATE_PLACES
};
static const uint32_t values[CHOICES] = {BASES, HEADS, STAYERS_PLACES, LATE_PLACES};

/* A grouping that costs so much more on the sample may still be cheaper on the whole list. */
static const double near_cost = 1.15;

/* Groupings to try, by number: see number_of. */
struct candidates {
    struct grouping grouping[GROUPINGS];
    bool skipped[GROUPINGS]; /* equal to another, or impossible */
    double cost[GROUPINGS];  /* on the sample; HUGE_VAL: not weighed yet */
};

/* The number of a grouping: one tree without a head is 0, the bases in their first variant follow. */
static uint32_t number_of(const uint32_t *chosen)
{
    uint32_t number = 0;
    for (uint32_t i = CHOICES; i--;)
        number = number * values[i] + chosen[i];
    return number;
}

/* Whether the rule is wide in both addresses. */
static bool is_wide(const struct group_trees *f, uint32_t rule, const uint32_t *address)
{
    uint32_t wide = WIDE * f->space->in->axis[address[0]].bits / 32u;
    return !is_specific(f, rule, address[0], wide) && !is_specific(f, rule, address[1], wide);
}

/* Lengths of heads worth trying, ascending; equal ones where there are fewer. */
static void list_heads(const struct group_trees *f, const uint32_t *address, uint32_t *head)
{
    const struct tree_boxes *in = f->space->in;
    uint32_t most = in->rules / 4 < LONGEST_HEAD ? in->rules / 4 : LONGEST_HEAD;
    memset(head, 0, HEADS * sizeof *head);
    while (head[1] < most && is_wide(f, head[1], address))
        head[1]++;
    head[2] = head[1];
    for (uint32_t r = head[1]; r < most; r++)
        if (is_wide(f, r, address) || !(in->free[r] & TREE_MOVABLE))
            head[2] = r + 1;
}

/* The kinds of rules that the list has. */
struct rule_kinds {
    bool movable, stays, late, unsendable;
};

static struct rule_kinds kinds_in(const struct tree_boxes *in)
{
    struct rule_kinds kinds = {false, false, false, false};
    for (uint32_t r = 0; r < in->rules; r++) {
        uint8_t may = in->free[r];
        kinds.movable |= may & TREE_MOVABLE;
        kinds.late |= !(may & TREE_MOVABLE) && may & TREE_LATE;
        kinds.stays |= !(may & (TREE_MOVABLE | TREE_LATE));
        kinds.unsendable |= !(may & (TREE_MOVABLE | TREE_LATE | TREE_SENDABLE));
    }
    return kinds;
}

static void list_candidates(const struct group_trees *f, struct candidates *c)
{
    const struct tree_boxes *in = f->space->in;
    struct rule_kinds kinds = kinds_in(in);
    uint32_t address[2] = {0, 0}, addresses = 0, head[HEADS] = {0}, chosen[CHOICES];
    for (uint32_t a = 0; a < in->axes; a++)
        if (in->axis[a].cut == TREE_CUT_PREFIX && addresses < 2)
            address[addresses++] = a;
    bool grouped = addresses == 2 && kinds.movable;
    if (addresses == 2)
        list_heads(f, address, head);
    for (chosen[LATE] = 0; chosen[LATE] < LATE_PLACES; chosen[LATE]++)
        for (chosen[STAYERS] = 0; chosen[STAYERS] < STAYERS_PLACES; chosen[STAYERS]++)
            for (chosen[HEAD] = 0; chosen[HEAD] < HEADS; chosen[HEAD]++)
                for (chosen[BASE] = 0; chosen[BASE] < BASES; chosen[BASE]++) {
                    uint32_t i = number_of(chosen), base = chosen[BASE], h = chosen[HEAD];
                    bool further = base > 2 && f->options->grouping_effort < 2;
                    c->grouping[i] = (struct grouping){
                        .one = !base,
                        .head = head[h],
                        .axis = {address[base % 2], address[!(base % 2)]},
                        .wide = (base < 3 ? WIDE : WIDER) * in->axis[address[0]].bits / 32u,
                        .stayers = chosen[STAYERS],
                        .late = chosen[LATE],
                    };
                    /* What is asked for packets that a rule does not match must not have effects. */
                    bool stay = kinds.unsendable && chosen[LATE] != LATE_STAY;
                    bool same = (!kinds.stays && chosen[LATE] != LATE_STAY && chosen[STAYERS]) ||
                                (!kinds.late && chosen[LATE] != LATE_STAY) ||
                                (!kinds.late && !kinds.stays && chosen[STAYERS]);
                    c->skipped[i] = (h && head[h] == head[h - 1]) ||
                                    (base ? !grouped || further || stay || same
                                          : chosen[STAYERS] || chosen[LATE]);
                    c->cost[i] = HUGE_VAL;
                }
}

/* Weigh a candidate on the sample. */
static double weigh(struct group_trees *f, struct candidates *c, uint32_t i)
{
    if (!c->skipped[i] && c->cost[i] == HUGE_VAL && !f->failed) {
        f->grouping = c->grouping[i];
        c->cost[i] = group_trees_cost(f);
    }
    return c->cost[i];
}

/* How many rules may not be moved. */
static uint32_t stayers(const struct tree_boxes *in)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < in->rules; r++)
        count += !(in->free[r] & TREE_MOVABLE);
    return count;
}

/* From now on only a sample of the rules is grouped. */
static void choose_sample(struct group_trees *f)
{
    uint32_t effort = f->options->grouping_effort, rules = f->space->in->rules;
    f->every = 1 + rules / (effort > 1 ? 4 * SAMPLE : effort ? SAMPLE : SAMPLE / 4);
    f->every_stayer = stayers(f->space->in) < rules / FEW_STAYERS;
}

/* Try the other values of one choice; the best is kept in *chosen*. */
static void try_values(struct group_trees *f, struct candidates *c, enum choice choice, uint32_t *chosen)
{
    uint32_t tried[CHOICES];
    memcpy(tried, chosen, sizeof tried);
    for (uint32_t value = 0; value < values[choice]; value++) {
        tried[choice] = value;
        if (choice == BASE && !value)
            continue; /* one tree is compared at the end */
        uint32_t i = number_of(tried);
        if (!c->skipped[i] && weigh(f, c, i) < weigh(f, c, number_of(chosen)))
            chosen[choice] = value;
    }
}

/* The groups to begin with: with the leading wide rules in the head, and stationary rules in groups of
 * movable ones.  False when there are none. */
static bool choose_first(const struct candidates *c, uint32_t *chosen)
{
    static const uint32_t late[] = {LATE_JOIN, LATE_STAY, LATE_ALONE};
    for (uint32_t l = 0; l < LATE_PLACES; l++)
        for (uint32_t s = STAYERS_PLACES; s--;)
            for (uint32_t h = 2; h--;) {
                memcpy(chosen, (uint32_t[]){1, h, s, late[l]}, CHOICES * sizeof *chosen);
                if (!c->skipped[number_of(chosen)])
                    return true;
            }
    return false;
}

/* The candidate that is cheapest on a sample.  The order of the groups is chosen first, then each
 * other choice in turn.  One tree must be clearly cheaper than groups, since a smaller list crosses less than
 * the whole. */
static uint32_t choose_on_sample(struct group_trees *f, struct candidates *c)
{
    uint32_t rules = f->space->in->rules, first[CHOICES] = {0}, chosen[CHOICES];
    bool grouped = choose_first(c, chosen);
    choose_sample(f);
    if (grouped)
        for (enum choice i = BASE; i < CHOICES; i++)
            try_values(f, c, i, chosen);
    uint32_t best = number_of(chosen), one = 0;
    for (uint32_t head = 0; head < HEADS; head++) {
        first[HEAD] = head;
        uint32_t i = number_of(first);
        bool same = !grouped || c->grouping[i].head == c->grouping[best].head;
        if (!c->skipped[i] && same && rules >= MANY_RULES && weigh(f, c, i) < weigh(f, c, one))
            one = i;
    }
    return grouped && weigh(f, c, one) * near_cost > c->cost[best] ? best : one;
}

/* The cheapest trees that were built in full. */
struct built {
    double cost;
    const struct printed_entry *form;
    struct build_node *root;
};

static void build(struct group_trees *f, const struct grouping *by, struct built *best)
{
    f->grouping = *by;
    double cost = f->failed ? HUGE_VAL : group_trees_cost(f);
    if (cost >= best->cost)
        return;
    *best = (struct built){cost, f->grouping.groups > 1 ? f->form : NULL, f->root};
}

/* Build a candidate in full.  The more groups, the less likely a path takes the whole share of each tree;
 * then larger shares are tried, which are kept if no path exceeds the limit. */
static void build_in_full(struct group_trees *f, const struct grouping *by, struct built *best)
{
    f->slack = 0;
    build(f, by, best);
    uint32_t most = f->options->max_nesting;
    if (f->grouping.groups <= MANY_GROUPS || most > SHALLOW)
        return;
    for (f->slack = MOST_SLACK; f->slack && !f->failed; f->slack--) {
        f->nesting = UINT32_MAX;
        build(f, by, best);
        if (f->nesting <= most)
            break;
    }
    f->slack = 0;
}

/* The n-th grouping of those to try, from 1; one tree when there are fewer. */
static uint32_t nth_grouping(const struct candidates *c, uint32_t n)
{
    for (uint32_t i = 0; i < GROUPINGS; i++)
        if (!c->grouping[i].one && !c->skipped[i] && !--n)
            return i;
    return 0;
}

/* Groups may exceed the budget on the sample, which has more wide rules than its share, and keep it in full.
 * When none was weighed, those to begin with are built in full, whatever the sample says. */
static void build_unweighed(struct group_trees *f, const struct candidates *c, struct built *built)
{
    uint32_t chosen[CHOICES];
    for (uint32_t i = 1; i < GROUPINGS; i++)
        if (!c->grouping[i].one && c->cost[i] < HUGE_VAL)
            return;
    if (choose_first(c, chosen))
        build_in_full(f, &c->grouping[number_of(chosen)], built);
}

/* Weigh all orders of groups behind the longest head, with the other choices as in candidate *like*. */
static void weigh_orders(struct group_trees *f, struct candidates *c, uint32_t like)
{
    choose_sample(f);
    for (uint32_t base = 1; base < BASES; base++)
        weigh(f, c, like - like % (BASES * HEADS) + (HEADS - 1) * BASES + base);
    f->every = 1;
}

/* Groups that fit in the sample may not fit in full: build the next ones, cheapest on the sample first.  A
 * longer head may be what makes them fit, and with it the other order of groups the cheaper one. */
static void build_next(struct group_trees *f, struct candidates *c, uint32_t best, struct built *built)
{
    weigh_orders(f, c, best);
    c->cost[best] = HUGE_VAL;
    for (int tries = 0; tries < MOST_TRIES; tries++) {
        uint32_t next = 0;
        for (uint32_t i = 1; i < GROUPINGS; i++)
            if (!c->grouping[i].one && c->cost[i] < HUGE_VAL && (!next || c->cost[i] < c->cost[next]))
                next = i;
        if (!next)
            return;
        build_in_full(f, &c->grouping[next], built);
        c->cost[next] = HUGE_VAL;
    }
}

bool group_choose(struct group_trees *f, struct build_node **root)
{
    const struct tree_options *options = f->options;
    struct candidates *c = group_take(f, sizeof *c);
    if (f->failed)
        return false;
    list_candidates(f, c);
    uint32_t best = options->grouping ? nth_grouping(c, options->grouping) : choose_on_sample(f, c);
    struct built built = {HUGE_VAL, NULL, NULL};
    bool sampled = f->every > 1;
    f->every = 1;
    build_in_full(f, &c->grouping[best], &built);
    bool is_weighed = !options->grouping && options->grouping_effort;
    for (uint32_t i = 0; i < GROUPINGS && is_weighed; i++) {
        bool near = c->cost[i] < near_cost * c->cost[best];
        if (i != best && near && (options->grouping_effort > 1 || c->grouping[i].one))
            build_in_full(f, &c->grouping[i], &built);
    }
    if (is_weighed && sampled)
        build_unweighed(f, c, &built);
    if (is_weighed && built.cost == HUGE_VAL)
        build_next(f, c, best, &built);
    if (built.cost == HUGE_VAL && best)
        build(f, &c->grouping[0], &built); /* no groups fit */
    f->space->form = built.form;
    *root = built.root;
    return !f->failed && built.cost < HUGE_VAL;
}
