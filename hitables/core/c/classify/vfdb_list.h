#ifndef HITABLES_VFDB_LIST_H
#define HITABLES_VFDB_LIST_H
#include "budget.h"
#include "vfdb.h"

/* The rules of a database by priority: the input of a rebuild. */
struct vfdb_list;

struct vfdb_list *vfdb_list_new(struct budget *budget, uint32_t dims);
void vfdb_list_free(struct vfdb_list *list);
int vfdb_list_add(struct vfdb_list *list, const uint32_t *boxes, uint32_t count, uint32_t priority);
int vfdb_list_drop(struct vfdb_list *list, uint32_t priority);
int vfdb_list_extend(struct vfdb_list *list, const uint32_t *box, uint32_t priority);
int vfdb_list_shrink(struct vfdb_list *list, const uint32_t *box, uint32_t priority);
/* The rule of priority *from* gets the priority *to*, which no rule has. */
void vfdb_list_rename(struct vfdb_list *list, uint32_t from, uint32_t to);
uint32_t vfdb_list_count(const struct vfdb_list *list);

/* The first box of a rule, or VFDB_NONE; the next box of the same rule, or VFDB_NONE; its bounds. */
uint32_t vfdb_list_find(const struct vfdb_list *list, uint32_t priority);
uint32_t vfdb_list_next(const struct vfdb_list *list, uint32_t at);
const uint32_t *vfdb_list_box(const struct vfdb_list *list, uint32_t at);

/* How many boxes there are in all, and each by rising priority. */
uint32_t vfdb_list_boxes(const struct vfdb_list *list);
int vfdb_list_sorted(const struct vfdb_list *list, struct budget *budget, uint32_t **at);
uint32_t vfdb_list_priority(const struct vfdb_list *list, uint32_t at);

#endif
