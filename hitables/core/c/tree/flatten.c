/* The finished tree: nodes with pointers become the flat arrays of tree.h.
 *
 * Cost: a few steps per node, entry and branch.
 * Invariant: node numbers are back to 0 afterwards, so several trees can be written from nodes that they
 * share.
 * Threading: none; nodes and scratch belong to the space of one build.
 */
#include "tree_internal.h"

struct build_node *node_new(struct space *space)
{
    return arena_take(space->arena, sizeof(struct build_node));
}

/* Make the rules of the boxes the node's entries; false when memory is exhausted.  Boxes of a rule are
 * adjacent. */
bool node_lists(struct space *space, struct build_node *node, const uint32_t *box, uint32_t boxes)
{
    const int32_t *rule = space->in->rule;
    uint32_t rules = 0;
    for (uint32_t i = 0; i < boxes; i++)
        rules += !i || rule[box[i]] != rule[box[i - 1]];
    node->entry = arena_take(space->arena, rules * sizeof *node->entry);
    if (!node->entry)
        return false;
    node->entries = 0;
    for (uint32_t i = 0; i < boxes; i++)
        if (!i || rule[box[i]] != rule[box[i - 1]])
            node->entry[node->entries++] = (uint32_t)rule[box[i]];
    if (!node->list) {
        node->list = node->entry;
        node->listed = node->entries;
    }
    return true;
}

/* Sizes of the arrays of a tree. */
struct tally {
    uint64_t nodes, edges, entries;
};

/* The entries that the node is written as, into out[] unless NULL: its items, its rules in their forms,
 * and the step to the node that follows; their number. */
static uint32_t node_steps(const struct space *space, const struct build_node *node,
                           struct printed_entry *out)
{
    uint32_t steps = 0;
    for (uint32_t i = 0; i < node->items; i++, steps++)
        if (out)
            out[steps] = node->item[i];
    for (uint32_t i = 0; i < node->entries; i++) {
        struct printed_entry form = {TREE_RULE, (int32_t)node->entry[i], NULL};
        if (space->form && space->form[node->entry[i]].to) {
            form = space->form[node->entry[i]];
            if (form.step == TREE_ASK) {
                if (out)
                    out[steps] = form;
                steps++;
                form = (struct printed_entry){TREE_RULE, (int32_t)node->entry[i], NULL};
            }
        }
        if (out)
            out[steps] = form;
        steps++;
    }
    if (node->then) {
        if (out)
            out[steps] = (struct printed_entry){TREE_GO, -1, node->then};
        steps++;
    }
    return steps;
}

/* A stack or list of nodes that grows. */
struct node_list {
    struct build_node **node;
    size_t count, room;
};

static bool node_list_reserve(struct scope *scratch, struct node_list *list, size_t more)
{
    if (list->count + more <= list->room)
        return true;
    size_t room = 2 * (list->count + more) + 1024;
    struct build_node **moved = scope_resize(scratch, list->node, room * sizeof *moved);
    if (!moved)
        return false;
    list->node = moved;
    list->room = room;
    return true;
}

/* Number the nodes in preorder, the second branch of a test right behind it, and list them in *order.  A
 * node with several parents is numbered once. */
static enum tree_status nodes_number(struct space *space, struct build_node *root, struct node_list *order,
                                     struct tally *tally)
{
    struct scope *scratch = &space->scratch;
    struct node_list waiting = {0};
    struct printed_entry *step = NULL;
    size_t step_room = 0;
    if (!node_list_reserve(scratch, &waiting, 1))
        return TREE_NO_MEMORY;
    waiting.node[waiting.count++] = root;
    while (waiting.count) {
        struct build_node *node = waiting.node[--waiting.count];
        if (node->number)
            continue;
        if (!node_list_reserve(scratch, order, 1))
            return TREE_NO_MEMORY;
        order->node[order->count++] = node;
        node->number = (uint32_t)order->count;
        uint32_t steps = node_steps(space, node, NULL);
        tally->nodes++;
        tally->edges += node->branches;
        tally->entries += steps;
        if (steps > step_room) {
            step_room = 2 * (size_t)steps;
            struct printed_entry *moved = scope_resize(scratch, step, step_room * sizeof *step);
            if (!moved)
                return TREE_NO_MEMORY;
            step = moved;
        }
        node_steps(space, node, step);
        if (!node_list_reserve(scratch, &waiting, node->branches + steps))
            return TREE_NO_MEMORY;
        for (uint32_t i = 0; i < steps; i++)
            if (step[i].to && !step[i].to->number)
                waiting.node[waiting.count++] = step[i].to;
        for (uint32_t i = 0; i < node->branches; i++)
            waiting.node[waiting.count++] = node->branch[i].to;
    }
    scope_drop(scratch, waiting.node);
    scope_drop(scratch, step);
    bool fits = tally->nodes < UINT32_MAX && tally->edges < UINT32_MAX && tally->entries < UINT32_MAX;
    return fits ? TREE_OK : TREE_NO_MEMORY;
}

static void split_words(u128 value, uint64_t *word)
{
    word[0] = (uint64_t)(value >> 64);
    word[1] = (uint64_t)value;
}

/* Arrays of the sizes that the tally gives; false when memory is exhausted. */
static bool tree_take(struct tree *tree, const struct tally *tally)
{
    tree->node = arena_take(tree->arena, tally->nodes * sizeof *tree->node);
    tree->edge = arena_take(tree->arena, tally->edges * sizeof *tree->edge);
    tree->entry = arena_take(tree->arena, tally->entries * sizeof *tree->entry);
    tree->step = arena_take(tree->arena, tally->entries * sizeof *tree->step);
    tree->link = arena_take(tree->arena, tally->entries * sizeof *tree->link);
    return tree->node && tree->edge && tree->entry && tree->step && tree->link;
}

static void node_write(const struct build_node *node, const struct printed_entry *step, uint32_t steps,
                       struct tree *tree)
{
    tree->node[tree->nodes++] = (struct tree_node){
        tree->entries, steps, tree->edges, node->branches, (uint8_t)node->kind, (uint8_t)node->axis,
        node->negated, 0};
    for (uint32_t i = 0; i < steps; i++) {
        tree->entry[tree->entries] = step[i].rule;
        tree->step[tree->entries] = (uint8_t)step[i].step;
        tree->link[tree->entries++] = step[i].to ? step[i].to->number - 1 : 0;
    }
    for (uint32_t i = 0; i < node->branches; i++) {
        struct tree_edge *edge = &tree->edge[tree->edges++];
        split_words(node->branch[i].low, edge->low);
        split_words(node->branch[i].high, edge->high);
        edge->to = node->branch[i].to->number - 1;
    }
}

enum tree_status nodes_write(struct space *space, struct build_node *root, struct tree *tree)
{
    struct scope *scratch = &space->scratch;
    struct node_list order = {0};
    struct tally tally = {0, 0, 0};
    struct printed_entry *step = NULL;
    enum tree_status status = nodes_number(space, root, &order, &tally);
    if (status == TREE_OK && !tree_take(tree, &tally))
        status = TREE_NO_MEMORY;
    if (status == TREE_OK) {
        uint32_t most = 0;
        for (size_t n = 0; n < order.count; n++) {
            uint32_t steps = node_steps(space, order.node[n], NULL);
            most = steps > most ? steps : most;
        }
        step = scope_take(scratch, (most + (size_t)1) * sizeof *step);
        if (!step)
            status = TREE_NO_MEMORY;
    }
    for (size_t n = 0; status == TREE_OK && n < order.count; n++)
        node_write(order.node[n], step, node_steps(space, order.node[n], step), tree);
    for (size_t n = 0; n < order.count; n++)
        order.node[n]->number = 0;
    scope_drop(scratch, order.node);
    scope_drop(scratch, step);
    return status;
}
