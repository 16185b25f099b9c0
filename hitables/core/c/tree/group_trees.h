#ifndef HITABLES_GROUP_TREES_H
#define HITABLES_GROUP_TREES_H
#include "cost.h"

/* Trees of groups of rules while shape_groups builds them.  Functions that allocate set trees->failed when
 * memory is exhausted; what they return is undefined then. */

enum {
    GROUPS = 3,
    FEW = 2,          /* a version of at most this many rules is a list */
    DEEPEST = 2000,   /* tests above a node below which versions are lists: recursion ends there */
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

/* How rules are grouped: by the axis in which they are specific, in this order. */
struct grouping {
    uint32_t groups;       /* 1: one tree */
    uint32_t axis[GROUPS]; /* of all groups but the last */
    uint32_t wide;         /* a prefix of this many bits, or fewer, is not specific */
    bool last_is_rest;     /* the last group holds the rules that are specific in neither axis */
    bool called; /* the first tree is called and returns, as the others; else its leaves lead to the others */
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
    uint32_t rules; /* in the sample */
    uint32_t *first; /* [rules + 1] first box of each rule */
    uint8_t *group; /* [rules] */
    uint32_t *run; /* [rules] how often, up to it, rules of earlier groups interrupt those of its own */
    struct build_node *grown[GROUPS], *tree[GROUPS]; /* as grown; as pruned */
    struct printed_entry *form; /* [rules] how each is printed */
    struct build_node *root;
    struct version_call *calls;
    double size_penalty;
    double longest[2]; /* rules in a leaf of the first tree, and of the others */
    bool needed[TREE_AXES]; /* axes whose value other axes require to be known */
    bool failed; /* memory is exhausted */
};

static inline void *group_take(struct group_trees *f, size_t size)
{
    void *piece = arena_take(f->space->arena, size);
    if (!piece)
        f->failed = true;
    return piece;
}

/* group_prune.c: the cheapest form of tree g, cost plus size_penalty times the rules printed. */
struct build_node *group_prune(struct group_trees *f, uint32_t g);

/* group_versions.c */

/* A chain of its own with the node and all that follows it in line. */
struct build_node *spine_copy(struct group_trees *f, const struct build_node *from);
/* How rule r is printed, given the rules of later groups that precede it in the list. */
struct printed_entry rule_form(struct group_trees *f, uint32_t r);

#endif
