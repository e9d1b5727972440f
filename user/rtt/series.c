// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* series.c - a series of durations in fixed memory: a log-linear histogram for
 * the percentiles, the rest exact. */
#include "rtt/rtt.h"

#include <math.h>

#define SUB (1 << RP_SERIES_SUB_BITS)

static size_t bucket_of(uint64_t v)
{
	int e;

	if (v >> RP_SERIES_MAX_BITS)
		return RP_SERIES_BUCKETS - 1;
	if (v < SUB)
		return v;
	e = 63 - __builtin_clzll(v) - RP_SERIES_SUB_BITS;
	return (size_t)(e + 1) * SUB + ((v >> e) - SUB);
}

/* The middle of a bucket: at most half its width, 1/256 of its value, off. */
static uint64_t bucket_mid(size_t i)
{
	int e;

	if (i < SUB)
		return i;
	e = (int)(i / SUB) - 1;
	return ((i % SUB + SUB) << e) + ((1ULL << e) >> 1);
}

void rp_series_add(struct rp_series *s, int64_t ns)
{
	double d;

	if (ns < 0)
		return;
	if (!s->n || ns < s->min)
		s->min = ns;
	if (ns > s->max)
		s->max = ns;
	s->bucket[bucket_of((uint64_t)ns / s->unit)]++;
	s->n++;
	d = (double)ns - s->mean;
	s->mean += d / (double)s->n;
	s->m2 += d * ((double)ns - s->mean);
}

int64_t rp_series_at(const struct rp_series *s, unsigned permille)
{
	uint64_t rank = (uint64_t)(((unsigned __int128)s->n * permille + 999) / 1000), cum = 0;

	if (!rank)
		rank = 1;
	for (size_t i = 0; s->n && i < RP_SERIES_BUCKETS; i++) {
		cum += s->bucket[i];
		if (cum >= rank) {
			int64_t v = (int64_t)(bucket_mid(i) * s->unit);

			return v < s->min ? s->min : v > s->max ? s->max : v;
		}
	}
	return s->max;
}

double rp_series_std(const struct rp_series *s)
{
	return s->n ? sqrt(s->m2 / (double)s->n) : 0;
}
