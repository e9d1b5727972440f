/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lrm.h - the series of Baseten's llm-runtime-metrics 0.0.22, under its names and
 * by its formulas, from what is told of each request. Pure: the clock is passed in
 * (ns, any origin, never backwards), there is no I/O and no randomness.
 *
 * What it holds is bounded: a distribution keeps the newest max_samples of its
 * window, a rate adds up what falls into one 6,000th of it; what a limit cuts is
 * counted (rp_lrm_cut()). Requests in flight are the caller's to bound.
 *
 * Formulas, as the package has them (found by running it, tests/lrm):
 *   a sample counts while it is at most window_s old;
 *   quantile q of n sorted samples: the one at round((n - 1) q), halves up, no
 *   interpolation; average: sum / n;
 *   rate: sum in the window / window_s, from the first second on; its quantiles are
 *   over the whole seconds of the window from its old end on, and what is left of it
 *   at the new end, scaled to a second;
 *   ratio: sum of numerators / sum of denominators in the window;
 *   mean_inflight_*: over the time since rp_lrm_new().
 */
#ifndef REQPROBE_LRM_LRM_H
#define REQPROBE_LRM_LRM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sink/expo.h"

#define RP_LRM_QUANTILES 16
#define RP_LRM_LABELS 8
#define RP_LRM_RANKS 32 /* ranks from here on have no series of their own */

enum rp_lrm_feature { RP_LRM_XGRAMMAR = 1, RP_LRM_TOOLS = 2, RP_LRM_IMAGE = 4 };
/* RP_LRM_NO_TIER: none of those the package knows. */
enum rp_lrm_tier {
	RP_LRM_NO_TIER,
	RP_LRM_FAST,
	RP_LRM_PRIORITY,
	RP_LRM_DEFAULT,
	RP_LRM_FLEX,
	RP_LRM_TIERS
};
extern const char *const rp_lrm_tier_names[RP_LRM_TIERS]; /* "" first */

struct rp_lrm_opts {
	double window_s;		    /* > 0 */
	double quantiles[RP_LRM_QUANTILES]; /* 0..1, as the user gave them */
	unsigned n_quantiles;
	const char *prefix;		       /* of the windowed series; lives as long */
	struct rp_label labels[RP_LRM_LABELS]; /* of every series; live as long */
	unsigned n_labels;
	double itl_rate;      /* share of the gaps that are sampled, 0..1 */
	uint32_t max_samples; /* of a distribution */
};
/* As the package's defaults; 65536 samples; all gaps. */
void rp_lrm_defaults(struct rp_lrm_opts *o);

struct rp_lrm;
struct rp_lrm_request; /* one that is not over, owned by the core */

/* NULL: no memory. */
struct rp_lrm *rp_lrm_new(const struct rp_lrm_opts *o, int64_t now);
void rp_lrm_free(struct rp_lrm *l); /* its requests too */

struct rp_lrm_start {
	int64_t begun;	   /* ns: times to tokens count from here */
	int64_t input;	   /* prompt tokens, RP_NONE: not known yet */
	int64_t rank;	   /* data parallel rank, RP_NONE: none, or not known yet */
	unsigned features; /* of enum rp_lrm_feature, others are ignored */
	enum rp_lrm_tier tier;
	uint64_t seed; /* which of its gaps are sampled */
	bool no_itl;   /* its tokens are of several answers: gaps between them mean nothing */
	/* What is not known at its first token may be told later, by rp_lrm_known(), and
	 * is unknown till then. Without: as the package has it, nothing was cached. */
	bool later;
};
/* NULL: no memory; the request is counted all the same. An instant before one that was
 * told already is taken for that one, here and below: INT64_MIN is "now". */
struct rp_lrm_request *rp_lrm_start(struct rp_lrm *l, int64_t now, const struct rp_lrm_start *s);
/* What is known later than the start, each RP_NONE or its value, which stands. */
void rp_lrm_known(struct rp_lrm *l, struct rp_lrm_request *q, int64_t now, int64_t input,
		  int64_t cached, int64_t rank);
/*
 * n new tokens that came at ts (in order for each request), told at now. cached: prompt
 * tokens from the cache, RP_NONE unknown; that of the first call counts. n == 0:
 * nothing happened.
 */
void rp_lrm_tokens(struct rp_lrm *l, struct rp_lrm_request *q, int64_t now, int64_t ts, uint64_t n,
		   int64_t cached);
/* It had this many tokens in all, RP_NONE unknown: those not told came at unknown times. */
void rp_lrm_total(struct rp_lrm *l, struct rp_lrm_request *q, int64_t now, int64_t total);
/* It is no longer in flight; how it went is told by rp_lrm_end(). */
void rp_lrm_leave(struct rp_lrm *l, struct rp_lrm_request *q, int64_t now);
/* Frees q. */
void rp_lrm_end(struct rp_lrm *l, struct rp_lrm_request *q, int64_t now, bool success);
/* It never was: the same request is told of by another name. Frees q. Counters don't
 * fall: the next ones like it are not counted instead. */
void rp_lrm_drop(struct rp_lrm *l, struct rp_lrm_request *q, int64_t now);

/* All series that have something to say, in the package's order and numbers. */
void rp_lrm_render(struct rp_lrm *l, int64_t now, struct rp_expo *e);

/* Bytes that it will hold at most, with so many requests at once. */
size_t rp_lrm_ceiling(const struct rp_lrm_opts *o, uint32_t requests);
/* Samples that left a window early, for want of room. */
uint64_t rp_lrm_cut(const struct rp_lrm *l);

/* As Rust prints an f64 by {}: the shortest digits that read back, no exponent.
 * Returns the length, < RP_LRM_NUMBER. */
#define RP_LRM_NUMBER 400
size_t rp_lrm_number(char out[RP_LRM_NUMBER], double v);

#endif
