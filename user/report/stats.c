// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "report/stats.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate/calibrate.h"

/* numpy rounds every product: none may be fused into a sum */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

const unsigned rp_stats_percentiles[RP_STATS_PERCENTILES] = { 1, 5, 10, 25, 50, 75, 90, 95, 99 };

/* ---- order statistics without sorting ---- */

#define DIGIT_BITS 14
#define SORT_BELOW 256

/* Orders as the doubles do. */
static inline uint64_t key_of(double d)
{
	uint64_t u;

	memcpy(&u, &d, sizeof(u));
	return u >> 63 ? ~u : u | 1ULL << 63;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/*
 * out[i] = the value of rank rank[i] (ascending, from 0). One pass counts how many
 * values share the leading bits of their keys, a second takes out those that share
 * them with a wanted rank: few, and treated likewise until they can be sorted. v stays
 * as it is, but for the order; scratch has room for n values or more.
 */
static void ranks_of(double *v, size_t n, double *scratch, size_t room, const size_t *rank,
		     unsigned k, double *out)
{
	static uint32_t count[1u << DIGIT_BITS];
	static const uint32_t unwanted = UINT32_MAX;
	struct {
		uint32_t bucket;
		size_t first, at, n; /* rank of its first value, place in scratch */
		unsigned from, to;   /* of rank[] */
	} want[2 * RP_STATS_PERCENTILES];
	unsigned wants = 0, shift = 0, i = 0;
	uint64_t lo = UINT64_MAX, hi = 0;
	size_t sum = 0, at = 0;

	if (n < SORT_BELOW) {
		qsort(v, n, sizeof(*v), by_value);
		for (i = 0; i < k; i++)
			out[i] = v[rank[i]];
		return;
	}
	for (size_t j = 0; j < n; j++) {
		uint64_t u = key_of(v[j]);

		lo = u < lo ? u : lo;
		hi = u > hi ? u : hi;
	}
	if (lo == hi) {
		for (i = 0; i < k; i++)
			out[i] = v[0];
		return;
	}
	while ((hi - lo) >> shift >= 1u << DIGIT_BITS)
		shift++;
	memset(count, 0, sizeof(count));
	for (size_t j = 0; j < n; j++)
		count[(key_of(v[j]) - lo) >> shift]++;
	for (uint32_t b = 0; b < 1u << DIGIT_BITS; b++) {
		size_t c = count[b];

		count[b] = unwanted;
		if (i < k && rank[i] < sum + c) {
			want[wants].bucket = b;
			want[wants].first = sum;
			want[wants].at = at;
			want[wants].n = c;
			want[wants].from = i;
			while (i < k && rank[i] < sum + c)
				i++;
			want[wants].to = i;
			count[b] = wants++;
			at += c;
		}
		sum += c;
	}
	for (unsigned w = 0; w < wants; w++)
		want[w].n = 0;
	for (size_t j = 0; j < n; j++) {
		uint32_t w = count[(key_of(v[j]) - lo) >> shift];

		if (w != unwanted)
			scratch[want[w].at + want[w].n++] = v[j];
	}
	for (unsigned w = 0; w < wants; w++) {
		size_t sub[2 * RP_STATS_PERCENTILES];
		unsigned m = want[w].to - want[w].from;

		for (unsigned j = 0; j < m; j++)
			sub[j] = rank[want[w].from + j] - want[w].first;
		if (want[w].n <= room - at) {
			ranks_of(scratch + want[w].at, want[w].n, scratch + at, room - at, sub, m,
				 out + want[w].from);
			continue;
		}
		qsort(scratch + want[w].at, want[w].n, sizeof(*scratch), by_value);
		for (unsigned j = 0; j < m; j++)
			out[want[w].from + j] = scratch[want[w].at + sub[j]];
	}
}

/* ---- exact ---- */

/* sum of (v - mean)^2 in numpy's order of additions (rp_cal_sum) */
static double squares(const double *v, size_t n, double mean)
{
	double r[8], s = 0;
	size_t half, i;

#define SQ(i) ((v[i] - mean) * (v[i] - mean))
	if (n < 8) {
		for (i = 0; i < n; i++)
			s += SQ(i);
		return s;
	}
	if (n > 128) {
		half = n / 2 - n / 2 % 8;
		return squares(v, half, mean) + squares(v + half, n - half, mean);
	}
	for (i = 0; i < 8; i++)
		r[i] = SQ(i);
	for (; i < n - n % 8; i++)
		r[i % 8] += SQ(i);
	s = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
	for (; i < n; i++)
		s += SQ(i);
#undef SQ
	return s;
}

void rp_stats_exact(double *v, size_t n, double *scratch, struct rp_stats_of *s)
{
	size_t rank[2 * RP_STATS_PERCENTILES];
	double at[RP_STATS_PERCENTILES], x[2 * RP_STATS_PERCENTILES];
	unsigned k = 0;

	*s = (struct rp_stats_of){ .n = n };
	if (!n)
		return;
	s->sum = rp_cal_sum(v, n);
	s->avg = s->sum / (double)n;
	s->std = sqrt(squares(v, n, s->avg) / (double)n);
	s->min = s->max = v[0];
	for (size_t i = 1; i < n; i++) {
		s->min = v[i] < s->min ? v[i] : s->min;
		s->max = v[i] > s->max ? v[i] : s->max;
	}
	for (unsigned i = 0; i < RP_STATS_PERCENTILES; i++) {
		size_t lo;

		at[i] = (double)(n - 1) * ((double)rp_stats_percentiles[i] / 100.0);
		lo = (size_t)at[i];
		/* ascending, each once */
		if (!k || rank[k - 1] < lo)
			rank[k++] = lo;
		if (lo + 1 < n && rank[k - 1] < lo + 1)
			rank[k++] = lo + 1;
	}
	ranks_of(v, n, scratch, n, rank, k, x);
	for (unsigned i = 0, j = 0; i < RP_STATS_PERCENTILES; i++) {
		size_t lo = (size_t)at[i], hi = lo + 1 < n ? lo + 1 : lo;
		double t = at[i] - floor(at[i]), a, b;

		while (rank[j] > lo && j)
			j--;
		while (rank[j] < lo)
			j++;
		a = x[j];
		b = hi > lo ? x[j + 1] : a;
		/* numpy's _lerp() works from the nearer end */
		s->p[i] = t >= 0.5 ? b - (b - a) * (1 - t) : a + (b - a) * t;
	}
}

/* ---- histogram ---- */

#define PARTS 256
#define PAGE_BYTES (PARTS * sizeof(uint32_t))
#define OCTAVE_MIN (-64)

static bool pages(struct rp_bins *h, int sign)
{
	if (h->part[sign])
		return true;
	h->part[sign] = calloc(RP_BINS_OCTAVES, sizeof(*h->part[sign]));
	if (h->part[sign])
		h->bytes += RP_BINS_OCTAVES * sizeof(*h->part[sign]);
	return h->part[sign] != NULL;
}

static bool page(struct rp_bins *h, int sign, int e)
{
	if (!pages(h, sign))
		return false;
	if (h->part[sign][e])
		return true;
	h->part[sign][e] = calloc(1, PAGE_BYTES);
	if (h->part[sign][e])
		h->bytes += PAGE_BYTES;
	return h->part[sign][e] != NULL;
}

int rp_bins_add(struct rp_bins *h, double v)
{
	double a = fabs(v), d;
	int e, sign = v < 0, part;

	if (a > 0) {
		a = frexp(a, &e); /* 0.5 <= a < 1 */
		e -= 1 + OCTAVE_MIN;
		part = (int)((a - 0.5) * 2 * PARTS);
		if (e < 0 || e >= RP_BINS_OCTAVES) {
			part = e < 0 ? 0 : PARTS - 1;
			e = e < 0 ? 0 : RP_BINS_OCTAVES - 1;
			h->clamped++;
		}
		if (!page(h, sign, e))
			return -ENOMEM;
		h->part[sign][e][part]++;
	} else {
		h->zero++;
	}
	if (!h->n || v < h->min)
		h->min = v;
	if (!h->n || v > h->max)
		h->max = v;
	h->n++;
	h->sum += v;
	d = v - h->mean;
	h->mean += d / (double)h->n;
	h->m2 += d * (v - h->mean);
	return 0;
}

static double middle(int e, int part)
{
	return ldexp(1 + (part + 0.5) / PARTS, e + OCTAVE_MIN);
}

/* Counts cell after cell, from the least value up, and gives each percentile that is
 * reached. */
struct walk {
	const struct rp_bins *h;
	struct rp_stats_of *s;
	uint64_t below;
	unsigned next;
};

static void cell(struct walk *w, double v, uint64_t n)
{
	w->below += n;
	while (w->next < RP_STATS_PERCENTILES) {
		double at = (double)(w->h->n - 1) * ((double)rp_stats_percentiles[w->next] / 100.0);

		if ((double)w->below <= floor(at + 0.5))
			return;
		w->s->p[w->next++] = fmin(fmax(v, w->h->min), w->h->max);
	}
}

void rp_bins_stats(const struct rp_bins *h, struct rp_stats_of *s)
{
	struct walk w = { .h = h, .s = s };

	*s = (struct rp_stats_of){ .n = h->n, .sum = h->sum, .min = h->min, .max = h->max };
	if (!h->n)
		return;
	s->avg = h->mean;
	s->std = sqrt(h->m2 / (double)h->n);
	s->error = RP_BINS_ERROR;
	for (int e = RP_BINS_OCTAVES - 1; h->part[1] && e >= 0; e--)
		for (int i = PARTS - 1; h->part[1][e] && i >= 0; i--)
			if (h->part[1][e][i])
				cell(&w, -middle(e, i), h->part[1][e][i]);
	if (h->zero)
		cell(&w, 0, h->zero);
	for (int e = 0; h->part[0] && e < RP_BINS_OCTAVES; e++)
		for (int i = 0; h->part[0][e] && i < PARTS; i++)
			if (h->part[0][e][i])
				cell(&w, middle(e, i), h->part[0][e][i]);
}

int rp_bins_move(struct rp_bins *to, struct rp_bins *from)
{
	double d = from->mean - to->mean, n = (double)to->n + (double)from->n;

	if (!from->n)
		return 0;
	for (int sign = 0; sign < 2; sign++)
		for (int e = 0; from->part[sign] && e < RP_BINS_OCTAVES; e++) {
			uint32_t *p = from->part[sign][e];

			if (!p)
				continue;
			if (!pages(to, sign))
				return -ENOMEM;
			from->part[sign][e] = NULL;
			if (!to->part[sign][e]) {
				to->part[sign][e] = p;
				to->bytes += PAGE_BYTES;
				continue;
			}
			for (int i = 0; i < PARTS; i++)
				to->part[sign][e][i] += p[i];
			free(p);
		}
	to->min = to->n && to->min < from->min ? to->min : from->min;
	to->max = to->n && to->max > from->max ? to->max : from->max;
	/* Chan, Golub, LeVeque: deviations of two parts together */
	to->m2 += from->m2 + d * d * (double)to->n * (double)from->n / n;
	to->mean += d * (double)from->n / n;
	to->n += from->n;
	to->zero += from->zero;
	to->sum += from->sum;
	to->clamped += from->clamped;
	rp_bins_free(from);
	return 0;
}

void rp_bins_free(struct rp_bins *h)
{
	for (int sign = 0; sign < 2; sign++) {
		for (int e = 0; h->part[sign] && e < RP_BINS_OCTAVES; e++)
			free(h->part[sign][e]);
		free(h->part[sign]);
	}
	*h = (struct rp_bins){ 0 };
}
