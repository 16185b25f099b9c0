#ifndef HITABLES_KEY_WINDOWS_H
#define HITABLES_KEY_WINDOWS_H
#include <stdint.h>

#include "locality.h"

/* Packets of each key in the current window of LOCALITY_WINDOW packets: see key_windows.c.  Zeroed: empty. */
struct key_window {
    uint64_t hash[2 * LOCALITY_WINDOW];
    uint32_t window[2 * LOCALITY_WINDOW]; /* the window whose key is in the slot, counted from 1 */
    uint16_t packets[2 * LOCALITY_WINDOW];
    uint16_t slot[LOCALITY_WINDOW]; /* of the window's keys */
    uint32_t now, added, keys;
};

/* Add a packet of the key with this hash; a full window is added to the totals. */
void window_add(struct key_window *window, uint64_t hash, struct locality_totals *totals);

#endif
