// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stats.c - the statistics of AIPerf's summaries with numpy's own operations in
 * numpy's order, so that the doubles are equal to the last bit (numpy 1.22 to 2.4).
 */
#include "calibrate/calibrate.h"

#include <math.h>
#include <stdlib.h>

/* numpy rounds every product: none may be fused into a sum */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

const unsigned rp_cal_percentiles[RP_CAL_PERCENTILES] = { 1, 5, 10, 25, 50, 75, 90, 95, 99 };

/* numpy's pairwise_sum (loops_utils.h.src): eight running sums over up to 128
 * numbers, halves at a multiple of eight above that. The depth is log2(n / 128). */
double rp_cal_sum(const double *v, size_t n)
{
	double r[8], s = 0;
	size_t half, i;

	if (n < 8) {
		for (i = 0; i < n; i++)
			s += v[i];
		return s;
	}
	if (n > 128) {
		half = n / 2 - n / 2 % 8;
		return rp_cal_sum(v, half) + rp_cal_sum(v + half, n - half);
	}
	for (i = 0; i < 8; i++)
		r[i] = v[i];
	for (; i < n - n % 8; i++)
		r[i % 8] += v[i];
	s = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
	for (; i < n; i++)
		s += v[i];
	return s;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* numpy's std(): population; the squares are added in the order of v. */
static double deviation(const double *v, size_t n, double *scratch)
{
	double mean = rp_cal_sum(v, n) / (double)n;

	for (size_t i = 0; i < n; i++) {
		double d = v[i] - mean;

		scratch[i] = d * d;
	}
	return sqrt(rp_cal_sum(scratch, n) / (double)n);
}

/* For want of memory the deviation is taken in one pass: right, not to the last bit. */
static double std_of(const double *v, size_t n)
{
	double *scratch = malloc(n * sizeof(*scratch)), mean, s = 0;

	if (scratch) {
		s = deviation(v, n, scratch);
		free(scratch);
		return s;
	}
	mean = rp_cal_sum(v, n) / (double)n;
	for (size_t i = 0; i < n; i++) {
		double d = v[i] - mean;

		s += d * d;
	}
	return sqrt(s / (double)n);
}

/* numpy's percentile(method="linear") of sorted v: its _lerp() works from the nearer end. */
static double percentile(const double *v, size_t n, unsigned q)
{
	double at = (double)(n - 1) * ((double)q / 100.0), t = at - floor(at);
	size_t lo = (size_t)at, hi = lo + 1 < n ? lo + 1 : n - 1;
	double diff = v[hi] - v[lo];

	return t >= 0.5 ? v[hi] - diff * (1 - t) : v[lo] + diff * t;
}

void rp_cal_stats(double *v, size_t n, struct rp_cal_stats *s)
{
	*s = (struct rp_cal_stats){ .n = n };
	if (!n)
		return;
	s->sum = rp_cal_sum(v, n);
	s->avg = s->sum / (double)n;
	s->std = std_of(v, n);
	qsort(v, n, sizeof(*v), by_value);
	s->min = v[0];
	s->max = v[n - 1];
	for (unsigned i = 0; i < RP_CAL_PERCENTILES; i++)
		s->p[i] = percentile(v, n, rp_cal_percentiles[i]);
}

/* The raw metrics take another way through AIPerf: sorted first, interpolated from
 * below, and each result times 1e-6 at the end (convert_to()). */
void rp_cal_stats_raw(double *v, size_t n, struct rp_cal_stats *s)
{
	const double ms = 1e-6;

	*s = (struct rp_cal_stats){ .n = n };
	if (!n)
		return;
	s->sum = rp_cal_sum(v, n);
	s->avg = s->sum / (double)n * ms;
	s->sum *= ms;
	qsort(v, n, sizeof(*v), by_value);
	s->std = std_of(v, n) * ms;
	s->min = v[0] * ms;
	s->max = v[n - 1] * ms;
	for (unsigned i = 0; i < RP_CAL_PERCENTILES; i++) {
		double at = (double)rp_cal_percentiles[i] / 100.0 * (double)(n - 1);
		size_t lo = (size_t)at, hi = lo + 1 < n ? lo + 1 : n - 1;

		s->p[i] = (v[lo] + (at - (double)lo) * (v[hi] - v[lo])) * ms;
	}
}
