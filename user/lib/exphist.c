// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "lib/exphist.h"

#include <float.h>
#include <math.h>
#include <string.h>

void rp_exphist_init(struct rp_exphist *h, uint32_t most)
{
	memset(h, 0, sizeof(*h));
	h->scale = RP_EXPHIST_MAX_SCALE;
	h->most = most < 2 ? 2 : most > RP_EXPHIST_BUCKETS ? RP_EXPHIST_BUCKETS : most;
}

int32_t rp_exphist_index(double v, int32_t scale)
{
	double frac;
	int32_t low, high, i;
	int e;

	if (v < DBL_MIN)
		v = DBL_MIN;
	frac = frexp(v, &e); /* v = frac * 2^e, frac in [0.5, 1) */
	if (frac == 0.5)
		e--; /* a power of two closes its bucket: 2^(e-1) is (.., 2^(e-1)] */
	e--;	     /* v in (2^e, 2^(e+1)] */
	if (scale <= 0)
		return e >> -scale;
	/* 2^scale buckets in (2^e, 2^(e+1)] */
	low = e * (1 << scale);
	high = low + (1 << scale) - 1;
	if (frac == 0.5)
		return high;
	/* log2(frac) + 1 in (0, 1), scaled exactly: coarser scales agree with finer ones */
	i = low + (int32_t)ceil(ldexp(log2(frac) + 1, scale)) - 1;
	return i < low ? low : i > high ? high : i;
}

/* 2^by neighbours become one. */
static void coarsen(struct rp_exphist *h, int32_t by)
{
	int32_t first;
	uint32_t last = 0;

	if (by <= 0)
		return;
	h->scale -= by;
	if (!h->n)
		return;
	first = h->offset >> by;
	for (uint32_t i = 0; i < h->n; i++) {
		uint32_t to = (uint32_t)(((h->offset + (int32_t)i) >> by) - first);
		uint64_t c = h->bucket[i];

		/* never ahead of what is still to be read */
		h->bucket[i] = 0;
		h->bucket[to] += c;
		last = to;
	}
	h->offset = first;
	h->n = last + 1;
}

/* Steps by which the scale must go down until [low, high] fits. */
static int32_t too_fine(int32_t low, int32_t high, uint32_t most)
{
	int32_t by = 0;

	while ((int64_t)(high >> by) - (low >> by) >= (int64_t)most)
		by++;
	return by;
}

static void count(struct rp_exphist *h, int32_t index, int32_t scale, uint64_t times)
{
	int32_t low, high, by;

	if (scale > h->scale)
		index >>= scale - h->scale;
	else if (scale < h->scale)
		coarsen(h, h->scale - scale);
	if (!h->n) {
		h->offset = index;
		h->n = 1;
		h->bucket[0] = 0;
	}
	low = index < h->offset ? index : h->offset;
	high = h->offset + (int32_t)h->n - 1;
	high = index > high ? index : high;
	by = too_fine(low, high, h->most);
	if (by) {
		coarsen(h, by);
		index >>= by;
	}
	if (index < h->offset) {
		uint32_t more = (uint32_t)(h->offset - index);

		memmove(h->bucket + more, h->bucket, h->n * sizeof(*h->bucket));
		memset(h->bucket, 0, more * sizeof(*h->bucket));
		h->offset = index;
		h->n += more;
	}
	while (index >= h->offset + (int32_t)h->n)
		h->bucket[h->n++] = 0;
	h->bucket[index - h->offset] += times;
}

static void extremes(struct rp_exphist *h, double min, double max)
{
	if (!h->count || min < h->min)
		h->min = min;
	if (!h->count || max > h->max)
		h->max = max;
}

void rp_exphist_add(struct rp_exphist *h, double v, uint64_t times)
{
	if (!(v >= 0) || isinf(v) || !times)
		return;
	extremes(h, v, v);
	h->count += times;
	h->sum += v * (double)times;
	if (v == 0)
		h->zero += times;
	else
		count(h, rp_exphist_index(v, h->scale), h->scale, times);
}

void rp_exphist_merge(struct rp_exphist *dst, const struct rp_exphist *src)
{
	if (!src->count)
		return;
	extremes(dst, src->min, src->max);
	dst->count += src->count;
	dst->sum += src->sum;
	dst->zero += src->zero;
	for (uint32_t i = 0; i < src->n; i++)
		if (src->bucket[i])
			count(dst, src->offset + (int32_t)i, src->scale, src->bucket[i]);
}

void rp_exphist_limit_scale(struct rp_exphist *h, int32_t scale)
{
	if (scale < RP_EXPHIST_MIN_SCALE)
		scale = RP_EXPHIST_MIN_SCALE;
	coarsen(h, h->scale - scale);
}
