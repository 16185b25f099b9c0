#ifndef HITABLES_GROUP_TREES_H
#define HITABLES_GROUP_TREES_H
#include "cost.h"

/* Trees of groups of rules while shape_groups builds them.  Functions that allocate set trees->failed when
 * memory is exhausted; what they return is undefined then. */

enum {
    GROUPS = 5,
    FEW = 2,          /* a version of at most this many rules is a list */
    DEEPEST = 2000,   /* tests above a node below which versions are lists: recursion ends there */
    LISTED = 3,         /* rules of later groups that are listed rather than searched */
    COVERED = 253,      /* the group of rules that no packet reaches */
    IN_HEAD = 254,      /* the group of rules that are read before all trees */
    OUT_OF_SAMPLE = 255 /* the group of rules that are not in the sample */
};

/* A version of a node: its first *rules* rules.  One per node and number. */
struct version {
    uint32_t rules;
    struct build_node *node;
    struct version *next;
};

/* How a node is printed: as the list of its rules; as its test; or without its test, the rules of the
 * taken leaf in line before the other branch. */
enum node_form { FORM_LEAF, FORM_SPLIT, FORM_INLINE };

/* How a node will be printed, and at what cost. */
struct node_plan {
    enum node_form form;
    double cost, printed; /* of its traffic; rules printed, in all versions */
    uint32_t longest;     /* rules read by any packet */
    bool chained;         /* it starts a chain */
    struct version *version;
};

/* The groups, in the order in which they are searched: rules that may not be moved, unless they are LATE;
 * movable rules by the address in which they are specific; those that are specific in neither; LATE rules. */
enum group_kind { GROUP_STAYERS, GROUP_FIRST_AXIS, GROUP_SECOND_AXIS, GROUP_WIDE, GROUP_LATE };

/* Where rules that may not be moved are: in a group of their own, or with movable rules in the group that is
 * searched after it (STAYERS) or before it (LATE); LATE rules may also be with the STAYERS. */
enum stayers_place { STAYERS_ALONE, STAYERS_JOIN };
enum late_place { LATE_ALONE, LATE_JOIN, LATE_STAY };

/* How rules are grouped.  Groups without rules vanish from it (group_rules). */
struct grouping {
    bool one;         /* one tree over all rules */
    uint32_t head;    /* so many rules, the first of the list, are read before all trees */
    uint32_t axis[2]; /* of GROUP_FIRST_AXIS and GROUP_SECOND_AXIS */
    uint32_t wide;    /* a prefix of this many bits, or fewer, is not specific */
    enum stayers_place stayers;
    enum late_place late;
    /* What group_rules finds. */
    uint32_t groups;
    enum group_kind kind[GROUPS];
    bool called; /* the first tree is called and returns, as the others; else its leaves lead to the others */
};

/* What is searched before a rule acts: these rules, if there are at most LISTED; else versions. */
struct asked_rules {
    uint32_t rules, rule[LISTED];
};

/* A chain that calls versions of several groups. */
struct version_call {
    struct version_call *next;
    struct build_node *version[GROUPS], *node;
};

struct group_trees {
    struct space *space;
    const struct tree_options *options;
    struct tree_boxes passing; /* the input, but a search does not end at rules that are not final */
    struct grouping grouping;
    uint32_t every; /* the sample has one rule in this many */
    uint32_t rules; /* in groups: those of the sample that are neither in the head nor COVERED */
    uint32_t slack; /* nesting shared out among the trees beyond the limit, which no path may exceed */
    uint32_t nesting; /* of the trees as they were built last */
    bool every_stayer; /* the sample has all rules that may not be moved */
    uint32_t *first; /* [rules + 1] first box of each rule */
    uint8_t *group; /* [rules] */
    uint8_t *repeats; /* [rules] an earlier rule with the same box ends its packets */
    struct asked_rules *asked; /* [rules] */
    uint32_t *limit[GROUPS];   /* [rules] the version of each later group that it asks: the rules below that
                                * number; 0: none */
    uint32_t *run; /* [rules] how many versions of its group end before it, or at it */
    struct build_node *grown[GROUPS], *tree[GROUPS]; /* as grown; as pruned */
    struct printed_entry *form; /* [rules] how each is printed */
    struct build_node *root;
    struct version_call *calls;
    double size_penalty;
    double longest[2]; /* rules in a leaf of the first tree, and of the others */
    bool needed[TREE_AXES]; /* axes whose value other axes require to be known */
    uint64_t copied, most_copied; /* rules that its versions print, so far and at most */
    bool hopeless; /* the assembly has more, and is given up */
    bool failed; /* memory is exhausted */
};

static inline void *group_take(struct group_trees *f, size_t size)
{
    void *piece = arena_take(f->space->arena, size);
    if (!piece)
        f->failed = true;
    return piece;
}

/* A version prints so many rules more. */
static inline void count_copied(struct group_trees *f, uint32_t rules)
{
    f->copied += rules;
    f->hopeless |= f->copied > f->most_copied;
}

/* Whether the sample has the rule. */
static inline bool in_sample(const struct group_trees *f, uint32_t rule)
{
    return !(rule % f->every) || (f->every_stayer && !(f->space->in->free[rule] & TREE_MOVABLE));
}

/* Whether all boxes of the rule are prefixes of more than *wide* bits, or as narrow. */
bool is_specific(const struct group_trees *f, uint32_t rule, uint32_t axis, uint32_t wide);

/* shape_groups.c: grow, prune and assemble in this grouping, within the budget, as f->root; the expected
 * cost, HUGE_VAL if it cannot be. */
double group_trees_cost(struct group_trees *f);

/* group_choice.c: build in the cheapest grouping; its root, and the forms of its rules in the space. */
bool group_choose(struct group_trees *f, struct build_node **root);

/* group_covered.c: whether final rules of the head end all packets of the rule, each of its boxes one. */
bool group_head_covers(const struct group_trees *f, uint32_t rule);
/* Mark the rules of one box that have the box of an earlier final rule; false when memory is exhausted. */
bool group_find_repeats(struct group_trees *f);

/* group_prune.c: the cheapest form of tree g, cost plus size_penalty times the rules printed. */
struct build_node *group_prune(struct group_trees *f, uint32_t g);

/* group_asks.c: once the trees are grown, what each rule asks before it acts. */
void ask_later_groups(struct group_trees *f);

/* group_versions.c */

/* A chain of its own with the node and all that follows it in line. */
struct build_node *spine_copy(struct group_trees *f, const struct build_node *from);
/* How rule r is printed, given the rules of later groups that precede it in the list. */
struct printed_entry rule_form(struct group_trees *f, uint32_t r);

#endif
