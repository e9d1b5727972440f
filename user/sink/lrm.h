/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lrm.h - --compat llm-runtime-metrics: the package's series on /metrics, from what
 * a timeline tells of its requests. lrm/lrm.h has what they mean.
 */
#ifndef REQPROBE_SINK_LRM_H
#define REQPROBE_SINK_LRM_H

#include <argp.h>
#include <stdint.h>

#include "lrm/lrm.h"

struct rp_lrm_options {
	struct rp_lrm_opts core; /* defaults where not given */
	bool ready;		 /* defaults are in */
	bool given;		 /* one of its options was */
};

/* Their input is the struct rp_options: fills o->lrm. */
extern const struct argp rp_lrm_argp;

struct rp_output;
extern const struct rp_output rp_lrm_output;

/* Its share of --memory: 0 when it was not asked for. */
struct rp_options;
size_t rp_lrm_reserve(const struct rp_options *o);

/* What the output is made of, with the clock passed in (for tests). now: ns of the
 * timeline's clock. NULL: no memory. */
struct rp_lrm_sink;
struct rp_timeline;
struct rp_lrm_sink *rp_lrm_sink_new(const struct rp_lrm_opts *o, struct rp_timeline *tl,
				    int64_t now);
void rp_lrm_sink_render(struct rp_lrm_sink *s, int64_t now, struct rp_expo *e);
void rp_lrm_sink_free(struct rp_lrm_sink *s);

#endif
