/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * table.h - every metric once: what it is called, its unit and formula, whether it
 * can be known from here, and its value for one request or for many.
 *
 * Tags, units and flags are those of AIPerf 0.13.0's registry, formulas those of its
 * metrics/types/, in its order of operations, so that equal instants and counts give
 * equal doubles. Where it has a defect the row's note says what differs. Rows are in
 * list.def; `reqprobe metrics` prints them, docs/metrics.md has them.
 */
#ifndef REQPROBE_METRICS_TABLE_H
#define REQPROBE_METRICS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "metrics/facts.h"

enum rp_metric {
#define M(id, ...) RP_METRIC_##id,
#include "metrics/list.def"
#undef M
	RP_METRIC_COUNT
};

enum rp_metric_kind {
	RP_METRIC_RECORD,    /* of one request: rp_metric_of() */
	RP_METRIC_AGGREGATE, /* of many: rp_metrics_value() */
	RP_METRIC_DERIVED,   /* made of aggregates: rp_metrics_value() */
	RP_METRIC_SERIES,    /* over time: sweep.h */
};

enum rp_verdict {
	RP_VERDICT_NO,	    /* can't be known from here: `note` says why */
	RP_VERDICT_DERIVED, /* computed from what is seen, or AIPerf's at another scope */
	RP_VERDICT_YES,	    /* seen */
};

/* AIPerf's MetricFlags, and one of ours. */
#define RP_METRIC_FLAGS(X)                     \
	X(STREAMING_ONLY)                      \
	X(ERROR_ONLY)                          \
	X(PRODUCES_TOKENS_ONLY)                \
	X(LARGER_IS_BETTER)                    \
	X(INTERNAL)                            \
	X(SUPPORTS_AUDIO_ONLY)                 \
	X(SUPPORTS_IMAGE_ONLY)                 \
	X(SUPPORTS_REASONING)                  \
	X(EXPERIMENTAL)                        \
	X(GOODPUT)                             \
	X(NO_INDIVIDUAL_RECORDS)               \
	X(TOKENIZES_INPUT_ONLY)                \
	X(USAGE_DIFF_ONLY)                     \
	X(HTTP_TRACE_ONLY)                     \
	X(PRODUCES_VIDEO_ONLY)                 \
	X(PERCENTILE_INCLUDES_FAILED_REQUESTS) \
	X(FIXED_SCHEDULE_ONLY)                 \
	X(DISABLE_ON_ACCURACY)                 \
	X(OWN)
enum {
#define X(f) RP_METRIC_BIT_##f,
	RP_METRIC_FLAGS(X)
#undef X
		RP_METRIC_FLAG_COUNT
};
#define RP_METRIC_FLAG(f) (1u << RP_METRIC_BIT_##f)
extern const char *const rp_metric_flag_names[RP_METRIC_FLAG_COUNT];

struct rp_metric_def {
	const char *tag;
	enum rp_metric_kind kind;
	enum rp_verdict verdict;
	const char *unit, *display; /* of the value; of what people see */
	/* display = value * to_display, value = display * to_base: AIPerf's factors */
	double to_display, to_base;
	uint32_t flags;
	const char *scope, *source, *needs, *formula, *note; /* "" where there is none */
};
extern const struct rp_metric_def rp_metric_defs[RP_METRIC_COUNT];
extern const char *const rp_metric_kind_names[]; /* "record", ... */
extern const char *const rp_verdict_names[];	 /* "no", "derived", "yes" */

/* RP_METRIC_COUNT: there is no such tag. */
enum rp_metric rp_metric_find(const char *tag);

/* Has it a value for one request? Those of RECORD but NO and the list of gaps; and
 * network_rtt and network_adjusted_*, which AIPerf has for a run only. */
bool rp_metric_per_request(enum rp_metric m);

/*
 * The value of one request in base units; false: it has none. As in AIPerf, its tags
 * have values only of requests that were answered in full (rp_error_class()), error_isl
 * only of others; ours (OWN) of any.
 */
bool rp_metric_of(const struct rp_facts *f, enum rp_metric m, double *out);

/* ---- service level objectives ---- */

#define RP_SLOS_MAX 16
struct rp_slos {
	unsigned n;
	struct {
		enum rp_metric metric;
		double limit; /* in base units */
		double shown; /* as typed, in display units */
	} slo[RP_SLOS_MAX];
};
/* "time_to_first_token:500 inter_token_latency:50", values in display units. -EINVAL and
 * one line in err: an unknown tag, one that no single request has, no number. */
int rp_slo_parse(const char *s, struct rp_slos *out, char *err, size_t errlen);
enum rp_slo_verdict {
	RP_SLO_MISSED,
	RP_SLO_MET,
	RP_SLO_UNKNOWN, /* answered in full, and there is no figure to judge by */
};
/* Met: >= where larger is better, else <=. One that was not answered in full meets no
 * objective that it has no figure of. */
enum rp_slo_verdict rp_slo_judge(const struct rp_slos *s, unsigned i, const struct rp_facts *f);
/* Of all: met by a request that was answered in full and meets each; unknown where none is
 * missed and one is unknown. AIPerf calls these, too, not good. */
enum rp_slo_verdict rp_slos_judge(const struct rp_slos *s, const struct rp_facts *f);

/* ---- many requests ---- */

/* Any number of them, in a fixed size. Zero at first, but for rp_metrics_init(). */
struct rp_metrics_sum {
	uint64_t errors[RP_ERROR_CLASS_COUNT]; /* requests by class, [NONE]: the valid ones */
	uint64_t context_overflow, osl_mismatch;
	uint64_t good, unjudged; /* met and unknown, of rp_slos_judge() */
	uint64_t slo_met[RP_SLOS_MAX], slo_unknown[RP_SLOS_MAX];
	uint64_t no_prompt, no_completion; /* answered in full; tokens unknown */
	bool judged;			   /* SLOs were given */
	int64_t first, last; /* ns of CLOCK_REALTIME: start, start + request_latency */
	/* of requests that tell both; whole numbers, that no number of requests overflows */
	double spec_steps, spec_steps_accepted, spec_draft, spec_draft_accepted;
	struct {
		uint64_t n;
		double sum;    /* base units */
	} of[RP_METRIC_COUNT]; /* those per request */
};
void rp_metrics_init(struct rp_metrics_sum *s);
/* slos may be NULL. */
void rp_metrics_add(struct rp_metrics_sum *s, const struct rp_facts *f, const struct rp_slos *slos);
/* to += from; both with the same SLOs */
void rp_metrics_merge(struct rp_metrics_sum *to, const struct rp_metrics_sum *from);
/* An aggregate or derived metric in base units; false: unknown, or not of these kinds. */
bool rp_metrics_value(const struct rp_metrics_sum *s, enum rp_metric m, double *out);

#endif
