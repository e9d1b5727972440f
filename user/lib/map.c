// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "lib/map.h"

#include <errno.h>
#include <stdlib.h>

static size_t hash(uint64_t a, uint64_t b)
{
	/* murmur3's finaliser over both halves */
	uint64_t h = a * 0x9e3779b97f4a7c15ULL ^ (b + 0x7f4a7c159e3779b9ULL);

	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdULL;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ULL;
	h ^= h >> 33;
	return (size_t)h;
}

static struct rp_map_slot *find(const struct rp_map *m, uint64_t a, uint64_t b)
{
	size_t i = hash(a, b) & (m->cap - 1);

	while (m->slots[i].v && (m->slots[i].a != a || m->slots[i].b != b))
		i = (i + 1) & (m->cap - 1);
	return &m->slots[i];
}

void *rp_map_get(const struct rp_map *m, uint64_t a, uint64_t b)
{
	return m->cap ? find(m, a, b)->v : NULL;
}

static int grow(struct rp_map *m)
{
	struct rp_map n = { .cap = m->cap ? m->cap * 2 : 64 };

	n.slots = calloc(n.cap, sizeof(*n.slots));
	if (!n.slots)
		return -ENOMEM;
	for (size_t i = 0; i < m->cap; i++) {
		if (m->slots[i].v)
			*find(&n, m->slots[i].a, m->slots[i].b) = m->slots[i];
	}
	n.len = m->len;
	free(m->slots);
	*m = n;
	return 0;
}

int rp_map_put(struct rp_map *m, uint64_t a, uint64_t b, void *v)
{
	struct rp_map_slot *s;

	/* to replace never fails: what was there is about to be freed */
	if (m->cap && (s = find(m, a, b))->v) {
		s->v = v;
		return 0;
	}
	if (m->len * 4 >= m->cap * 3) {
		int err = grow(m);

		if (err)
			return err;
	}
	s = find(m, a, b);
	m->len++;
	*s = (struct rp_map_slot){ .a = a, .b = b, .v = v };
	return 0;
}

void *rp_map_del(struct rp_map *m, uint64_t a, uint64_t b)
{
	struct rp_map_slot *s;
	size_t hole, i;
	void *v;

	if (!m->cap)
		return NULL;
	s = find(m, a, b);
	v = s->v;
	if (!v)
		return NULL;
	m->len--;
	/* Close the hole: move back what would no longer be reached over it. */
	hole = (size_t)(s - m->slots);
	m->slots[hole].v = NULL;
	for (i = (hole + 1) & (m->cap - 1); m->slots[i].v; i = (i + 1) & (m->cap - 1)) {
		size_t want = hash(m->slots[i].a, m->slots[i].b) & (m->cap - 1);

		if (((i - want) & (m->cap - 1)) >= ((i - hole) & (m->cap - 1))) {
			m->slots[hole] = m->slots[i];
			m->slots[i].v = NULL;
			hole = i;
		}
	}
	return v;
}

void rp_map_free(struct rp_map *m)
{
	free(m->slots);
	*m = (struct rp_map){ 0 };
}

struct rp_map_slot *rp_map_next(const struct rp_map *m, size_t *i)
{
	while (*i < m->cap) {
		struct rp_map_slot *s = &m->slots[(*i)++];

		if (s->v)
			return s;
	}
	return NULL;
}
