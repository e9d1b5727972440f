/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* window.h - samples of a sliding window, and what is read off them. For lrm.c. */
#ifndef REQPROBE_LRM_WINDOW_H
#define REQPROBE_LRM_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rp_sample {
	int64_t t;  /* ns, never falling from one to the next */
	double v;   /* the value; the amount of a rate; the numerator of a ratio */
	uint32_t w; /* how often it counts; the denominator of a ratio */
	uint8_t features, tier;
	uint16_t rank; /* 0: none */
};

/* A ring that grows by doubling up to max; the oldest makes room. */
struct rp_window {
	struct rp_sample *s;
	uint32_t cap, first, n, max;
	uint64_t cut; /* samples that were younger than the window and had to go */
};

/* false: no memory, the sample is cut. */
bool rp_window_add(struct rp_window *w, const struct rp_sample *s);
/* Forget what is older than `from`. */
void rp_window_expire(struct rp_window *w, int64_t from);
static inline struct rp_sample *rp_window_at(const struct rp_window *w, uint32_t i)
{
	return &w->s[(w->first + i) & (w->cap - 1)];
}
void rp_window_free(struct rp_window *w);
size_t rp_window_ceiling(uint32_t max); /* bytes of one with this limit */

/* Index of quantile q among n: round((n - 1) q), halves away from zero. n > 0. */
uint64_t rp_rank_index(uint64_t n, double q);

#endif
