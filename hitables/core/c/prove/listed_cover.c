/* What the rules decide that a form lists: whether all packets that match two rules.
 *
 * Idea: the form of a rule need not list a rule w if w is the first decider of no packet that the rule
 * matches: listed rules that precede w decide all packets that match both.  So the box around these packets
 * is cut by one listed rule after the other, until nothing is left.
 * Cost: at most MOST_PIECES pieces; a form lists few rules, and few pairs of rules need this.
 * Invariant: true only when each packet of the box matches one of the listed rules that precede w.
 * Threading: nothing is written but the caller's stack.
 */
#include "listed_cover.h"

bool order_lists(const struct order *order, uint32_t rule, uint32_t which)
{
    for (uint32_t l = order->listed_start[rule]; l < order->listed_start[rule + 1]; l++)
        if (order->listed[l] == which)
            return true;
    return false;
}

enum { BOX_DIMS = 8, MOST_PIECES = 256 };

struct box {
    uint32_t low[BOX_DIMS], high[BOX_DIMS];
};

struct cover {
    const struct residual *r;
    const struct order *order;
    uint32_t to, before;          /* listed rules up to index *to* whose place is below *before* */
    uint32_t dims, dim[BOX_DIMS]; /* that these rules test; further ones have no room */
    uint32_t pieces;
};

/* The index of a dimension in cover.dim; BOX_DIMS when it is not there. */
static uint32_t index_of(const struct cover *cover, uint32_t dim)
{
    for (uint32_t d = 0; d < cover->dims; d++)
        if (cover->dim[d] == dim)
            return d;
    return BOX_DIMS;
}

static void add_dims(struct cover *cover, uint32_t number)
{
    const struct residual *r = cover->r;
    const struct guarded_action *guarded = &r->guarded[number];
    for (uint32_t t = 0; t < guarded->n && cover->dims < BOX_DIMS; t++) {
        uint32_t test = r->tests[guarded->first + t];
        if (!(test & EITHER) && index_of(cover, r->in.test_dim[test]) == BOX_DIMS)
            cover->dim[cover->dims++] = r->in.test_dim[test];
    }
}

/* Narrow the box to the hull of the guarded action's tests; whether the action acts on all of that hull. */
static bool narrow(const struct cover *cover, uint32_t number, struct box *box)
{
    const struct residual *r = cover->r;
    const struct guarded_action *guarded = &r->guarded[number];
    bool exact = true;
    for (uint32_t t = 0; t < guarded->n; t++) {
        uint32_t test = r->tests[guarded->first + t];
        uint32_t d = test & EITHER ? BOX_DIMS : index_of(cover, r->in.test_dim[test]);
        if (d == BOX_DIMS) {
            exact = false;
            continue;
        }
        uint32_t first = r->in.test_start[test], last = r->in.test_start[test + 1] - 1;
        uint32_t low = r->in.set_ends[2 * (size_t)first], high = r->in.set_ends[2 * (size_t)last + 1];
        exact &= first == last;
        box->low[d] = low > box->low[d] ? low : box->low[d];
        box->high[d] = high < box->high[d] ? high : box->high[d];
    }
    return exact;
}

static struct box everything(void)
{
    struct box box;
    for (uint32_t d = 0; d < BOX_DIMS; d++)
        box.low[d] = 0, box.high[d] = UINT32_MAX;
    return box;
}

static bool is_empty(const struct cover *cover, const struct box *box)
{
    for (uint32_t d = 0; d < cover->dims; d++)
        if (box->low[d] > box->high[d])
            return true;
    return false;
}

/* Whether the listed rules from index *listed* on decide all packets of the box. */
static bool decide(struct cover *cover, struct box box, uint32_t listed)
{
    if (is_empty(cover, &box))
        return true;
    if (listed == cover->to || ++cover->pieces > MOST_PIECES)
        return false;
    uint32_t rule = cover->order->listed[listed], own = cover->r->rule_guarded[cover->order->own[rule]];
    struct box decided = everything();
    if (cover->order->place[rule] >= cover->before || own == NONE || !narrow(cover, own, &decided) ||
        is_empty(cover, &decided))
        return decide(cover, box, listed + 1);
    for (uint32_t d = 0; d < cover->dims; d++) {
        struct box outside = box;
        if (decided.low[d] > box.low[d]) {
            outside.high[d] = decided.low[d] - 1 < box.high[d] ? decided.low[d] - 1 : box.high[d];
            if (!decide(cover, outside, listed + 1))
                return false;
            outside = box;
        }
        if (decided.high[d] < box.high[d]) {
            outside.low[d] = decided.high[d] + 1 > box.low[d] ? decided.high[d] + 1 : box.low[d];
            if (!decide(cover, outside, listed + 1))
                return false;
        }
        box.low[d] = decided.low[d] > box.low[d] ? decided.low[d] : box.low[d];
        box.high[d] = decided.high[d] < box.high[d] ? decided.high[d] : box.high[d];
        if (box.low[d] > box.high[d])
            return true; /* all of it lies outside, and was decided */
    }
    return true;
}

bool listed_decide(const struct residual *r, const struct order *order, uint32_t rule, uint32_t w,
                   uint32_t tests_of_rule, uint32_t tests_of_w)
{
    struct cover cover = {
        .r = r,
        .order = order,
        .to = order->listed_start[rule + 1],
        .before = order->place[w],
    };
    uint32_t from = order->listed_start[rule];
    for (uint32_t l = from; l < cover.to; l++) {
        uint32_t own = r->rule_guarded[order->own[order->listed[l]]];
        if (own != NONE)
            add_dims(&cover, own);
    }
    struct box box = everything();
    narrow(&cover, tests_of_rule, &box);
    narrow(&cover, tests_of_w, &box);
    return from < cover.to && decide(&cover, box, from);
}
