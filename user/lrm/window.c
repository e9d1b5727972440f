// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "lrm/window.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 64

static bool grow(struct rp_window *w)
{
	uint32_t cap = w->cap ? w->cap * 2 : FIRST_CAP;
	struct rp_sample *s = malloc(cap * sizeof(*s));

	if (!s)
		return false;
	for (uint32_t i = 0; i < w->n; i++)
		s[i] = *rp_window_at(w, i);
	free(w->s);
	w->s = s;
	w->cap = cap;
	w->first = 0;
	return true;
}

bool rp_window_add(struct rp_window *w, const struct rp_sample *s)
{
	if (w->n == w->cap && w->n < w->max && !grow(w) && !w->n) {
		w->cut++;
		return false;
	}
	if (w->n == w->cap || w->n >= w->max) {
		w->cut++;
		w->first = (w->first + 1) & (w->cap - 1);
		w->n--;
	}
	w->s[(w->first + w->n++) & (w->cap - 1)] = *s;
	return true;
}

void rp_window_expire(struct rp_window *w, int64_t from)
{
	while (w->n && rp_window_at(w, 0)->t < from) {
		w->first = (w->first + 1) & (w->cap - 1);
		w->n--;
	}
}

size_t rp_window_ceiling(uint32_t max)
{
	size_t cap = FIRST_CAP;

	while (cap < max)
		cap *= 2;
	return cap * sizeof(struct rp_sample);
}

void rp_window_free(struct rp_window *w)
{
	free(w->s);
	*w = (struct rp_window){ .max = w->max };
}

uint64_t rp_rank_index(uint64_t n, double q)
{
	double i = round((double)(n - 1) * q);

	return i < 0 ? 0 : i >= (double)n ? n - 1 : (uint64_t)i;
}
