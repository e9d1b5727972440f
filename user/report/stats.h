/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * stats.h - the statistics of many values: exact ones of an array, as numpy has them,
 * or those of a histogram of bounded size whose error is stated.
 */
#ifndef REQPROBE_REPORT_STATS_H
#define REQPROBE_REPORT_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* AIPerf's percentiles */
#define RP_STATS_PERCENTILES 9
extern const unsigned rp_stats_percentiles[RP_STATS_PERCENTILES]; /* 1 5 10 25 50 75 90 95 99 */
enum { RP_P1, RP_P5, RP_P10, RP_P25, RP_P50, RP_P75, RP_P90, RP_P95, RP_P99 };

struct rp_stats_of {
	uint64_t n;			/* 0: nothing else means anything */
	double sum, avg, min, max, std; /* std of the population */
	double p[RP_STATS_PERCENTILES];
	double error; /* of the percentiles, relative; 0: exact */
};

/*
 * What numpy gives for v: pairwise sums, population deviation, percentiles by linear
 * interpolation between the two nearest ranks. Finite values. v comes in another order; scratch has
 * room for n values, too. Takes time in proportion to n: nothing is sorted whole.
 */
void rp_stats_exact(double *v, size_t n, double *scratch, struct rp_stats_of *s);

/* ---- beyond what can be kept: 256 equal parts of each power of two ---- */
#define RP_BINS_ERROR (1.0 / 512) /* half of a part, of the least value in it */
#define RP_BINS_OCTAVES 128	  /* from 2^-64 to 2^64, both signs apart; zero is exact */
struct rp_bins {
	uint64_t n, zero;
	double sum, min, max, mean, m2; /* mean and m2 by Welford */
	uint32_t **part[2];		/* positive, negative: RP_BINS_OCTAVES pages; NULL: empty */
	uint64_t clamped;		/* beyond the octaves: in the outermost part */
	size_t bytes;			/* of memory, beside this struct */
};
/* -ENOMEM: v is not in it. Zero at first. */
int rp_bins_add(struct rp_bins *h, double v);
/* Percentiles by nearest rank, at most RP_BINS_ERROR off, never outside min and max. */
void rp_bins_stats(const struct rp_bins *h, struct rp_stats_of *s);
/* to += from, whose memory moves over; from is zero afterwards. -ENOMEM: some of it. */
int rp_bins_move(struct rp_bins *to, struct rp_bins *from);
void rp_bins_free(struct rp_bins *h);

#endif
