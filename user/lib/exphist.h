/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * exphist.h - a base-2 exponential histogram of positive values: bucket i of scale s
 * holds (base^i, base^(i+1)] with base = 2^(2^-s), as OTLP's ExponentialHistogram
 * has it (metrics data model). A native histogram of Prometheus of schema s counts
 * the same buckets from one: its index is i + 1.
 *
 * Bounded: at most as many buckets as asked for. A value that needs more halves the
 * resolution (the scale goes down by one, two neighbours become one) until it fits.
 */
#ifndef REQPROBE_LIB_EXPHIST_H
#define REQPROBE_LIB_EXPHIST_H

#include <stddef.h>
#include <stdint.h>

#define RP_EXPHIST_BUCKETS 160 /* most; what OpenTelemetry's SDKs have */
#define RP_EXPHIST_MAX_SCALE 20
#define RP_EXPHIST_MIN_SCALE (-10)

struct rp_exphist {
	uint64_t count; /* zero and buckets together */
	uint64_t zero;
	double sum, min, max; /* min and max: only with count */
	int32_t scale;
	int32_t offset; /* index of bucket[0] */
	uint32_t n;	/* buckets in use, the first and the last of them not 0; 0: none */
	uint32_t most;
	uint64_t bucket[RP_EXPHIST_BUCKETS];
};

/* Empty, at the finest scale. most: 2 to RP_EXPHIST_BUCKETS. */
void rp_exphist_init(struct rp_exphist *h, uint32_t most);
/* Of v, `times` times. Below 0, NAN and infinite: ignored. Subnormal: as the smallest
 * normal double. */
void rp_exphist_add(struct rp_exphist *h, double v, uint64_t times);
/* dst += src; dst keeps its `most`. */
void rp_exphist_merge(struct rp_exphist *dst, const struct rp_exphist *src);
/* No finer than this scale (RP_EXPHIST_MIN_SCALE or more): Prometheus has up to 8. */
void rp_exphist_limit_scale(struct rp_exphist *h, int32_t scale);
/* The bucket of v > 0 at a scale. Exact at powers of two, else within the rounding
 * of log2(). */
int32_t rp_exphist_index(double v, int32_t scale);

#endif
