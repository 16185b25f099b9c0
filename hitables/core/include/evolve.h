#ifndef HITABLES_EVOLVE_H
#define HITABLES_EVOLVE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Evolving rules (Ma, Lu, Banerjee and Estan, "Leveraging Parallelism for Multi-dimensional Packet
 * Classification on Software Routers", section 3.2): boxes of packets with one action, grown from samples of
 * the traffic.  See evolve.c.  Functions return an enum vfdb_status as an int. */

struct vfdb_rules;
struct evolve;

struct evolve_options {
    uint32_t window;       /* samples that count, 1 at least */
    uint32_t by_age;       /* rules by age instead of by weight */
    uint32_t expand_first; /* search and grow in one pass down the list, as the text reads */
    uint32_t tries;        /* boxes that a sample may try to grow, 0: any number */
    uint32_t unpruned;     /* conflicts are searched as in algorithm 1 to the letter */
    uint32_t leaf, choose; /* of the HyperCuts tree in which conflicts are searched */
};

/* samples = contained + expanded + created.  tried = expanded + the boxes that were refused. */
struct evolve_stats {
    uint64_t samples, contained, expanded, created, tried;
    uint64_t leaves;  /* of the tree, visited for conflicts */
    uint64_t dropped; /* evolving rules that changed rules have ended */
    uint32_t rules, most_rules; /* evolving rules now, and at most so far */
};

enum evolve_form {
    CACHE_COLUMNS, /* sixteen headers at once, with AVX-512 */
    CACHE_ROWS,    /* an array, one header at a time */
    CACHE_LIST     /* a linked list */
};

/* Evolving rules of those rules, none so far.  *action* [rules->count] NULL: the priority. */
int evolve_open(const struct evolve_options *options, const struct vfdb_rules *rules, const uint32_t *action,
                size_t limit, struct evolve **opened);
void evolve_close(struct evolve *e);

/* Take each header as a sample. */
void evolve_samples(struct evolve *e, const uint32_t *headers, size_t count);
/* One thread does everything: each packet is looked up in the *cache* rules of most weight as they were last
 * published, every *every*-th packet is a sample, and the cache is published after *publish* samples.
 * place[i]: the entry that holds header i, or *cache*. */
int evolve_replay(struct evolve *e, const uint32_t *headers, size_t count, uint32_t form, uint32_t cache,
                  uint32_t every, uint32_t publish, uint32_t *place);
/* Look headers up *times* times in the *cache* rules of most weight. */
int evolve_look_up(struct evolve *e, const uint32_t *headers, size_t count, uint32_t form, uint32_t cache,
                   uint32_t times, uint32_t *place);

/* The evolving rules in their order, as many as *room*; their number. */
uint32_t evolve_list(const struct evolve *e, uint32_t *box, uint32_t *action, uint32_t *weight,
                     uint32_t room);
void evolve_stats_of(const struct evolve *e, struct evolve_stats *stats);
size_t evolve_bytes(const struct evolve *e);
/* The number of the first property of section 3.2.2 that does not hold, 6 for the sum of weights, 7 for the
 * order of the list; 0: all hold. */
uint32_t evolve_broken(const struct evolve *e);

/* CheckConflict: whether a box may have an action; the priorities of algorithm 1, VFDB_NONE for none. */
bool evolve_approves(const struct evolve *e, const uint32_t *box, uint32_t action, uint32_t *match,
                     uint32_t *conflict);
/* The root of the tree: its cut dimensions and bits of each; 0 parts: it is a leaf.  The parts that a box
 * meets, as many as *room*; their number. */
uint32_t evolve_root(const struct evolve *e, uint32_t *dim, uint32_t *bits);
uint32_t evolve_parts(const struct evolve *e, const uint32_t *box, uint32_t *part, uint32_t room);

#endif
