/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * map.h - a hash from a pair of 64-bit numbers to a pointer. Open addressing,
 * grows by doubling, never shrinks; its size is bounded by its users' limits.
 */
#ifndef REQPROBE_MAP_H
#define REQPROBE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct rp_map_slot {
	uint64_t a, b;
	void *v; /* NULL: free */
};

struct rp_map {
	struct rp_map_slot *slots;
	size_t cap, len; /* cap is a power of two or 0 */
};

void *rp_map_get(const struct rp_map *m, uint64_t a, uint64_t b);
/* Insert or replace. v must not be NULL. 0 or -ENOMEM (map unchanged). */
int rp_map_put(struct rp_map *m, uint64_t a, uint64_t b, void *v);
/* Remove; returns what was there or NULL. */
void *rp_map_del(struct rp_map *m, uint64_t a, uint64_t b);
void rp_map_free(struct rp_map *m);
/* Iterate: start with *i = 0; NULL at the end. No insert or delete meanwhile. */
struct rp_map_slot *rp_map_next(const struct rp_map *m, size_t *i);

#endif
