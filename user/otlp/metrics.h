/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * metrics.h - what is counted for OTLP: histograms by attributes, fed by the thread
 * that drains the ring, and a second copy of them which another thread encodes. Takes
 * no lock: whoever has the copy, only he touches it (see rp_otlp_metrics_snapshot()).
 *
 * Names, units, bounds and definitions: OpenTelemetry's semantic conventions for
 * generative AI (gen_ai.server.*) and HTTP; docs/metrics.md has the list.
 */
#ifndef REQPROBE_OTLP_METRICS_H
#define REQPROBE_OTLP_METRICS_H

#include <stdatomic.h>

#include "otlp/config.h"
#include "otlp/writer.h"
#include "timeline/timeline.h"

struct rp_otlp_metrics;

/* The trace that a request belongs to. */
struct rp_otlp_trace {
	uint8_t trace[16], parent[8], span[8]; /* span: of the request itself */
	bool has_parent;		       /* a valid traceparent was seen */
	bool sampled;			       /* a span of the request is sent */
	bool parent_sampled;
};

/* NULL: no memory. */
struct rp_otlp_metrics *rp_otlp_metrics_new(const struct rp_otlp_config *c);
void rp_otlp_metrics_free(struct rp_otlp_metrics *m);

void rp_otlp_metrics_record(struct rp_otlp_metrics *m, const struct rp_record *r,
			    const struct rp_otlp_trace *t);
void rp_otlp_metrics_gap(struct rp_otlp_metrics *m, const struct rp_gap_info *g);
void rp_otlp_metrics_handshake(struct rp_otlp_metrics *m, int64_t rtt_us);
void rp_otlp_metrics_step(struct rp_otlp_metrics *m, const struct rp_step_info *s);

/*
 * Copies all into the second set, by the thread that feeds. The encoder may then use
 * the copy until it says that it is done with it; meanwhile no snapshot is made.
 * start: when counting began, now: of the copy; ns of CLOCK_REALTIME.
 */
void rp_otlp_metrics_snapshot(struct rp_otlp_metrics *m, const struct rp_stats *s, int64_t start,
			      int64_t now);

/* Where an export goes on. Zero at first. */
struct rp_otlp_cursor {
	unsigned metric;
	uint32_t series;
	bool rest; /* what comes from rp_stats is out */
};

/* What all data have in common: the resource, written by the caller. */
typedef void (*rp_otlp_resource_fn)(void *ctx, struct rp_ow *w);

/*
 * One ExportMetricsServiceRequest of the copy, from *at on, of about `most` points;
 * *at moves behind it. Returns the number of points in it, 0 when nothing is left.
 */
size_t rp_otlp_metrics_encode(struct rp_otlp_metrics *m, struct rp_ow *w, struct rp_otlp_cursor *at,
			      size_t most, rp_otlp_resource_fn resource, void *ctx);
/* Delta temporality: what was encoded from `from` to `to` was taken, the next export
 * starts where this one ended. Else nothing. */
void rp_otlp_metrics_commit(struct rp_otlp_metrics *m, const struct rp_otlp_cursor *from,
			    const struct rp_otlp_cursor *to);

/* Measurements that went to the series otel.metric.overflow. Any thread. */
uint64_t rp_otlp_metrics_overflow(const struct rp_otlp_metrics *m);
/* Sets of attributes in use, of all metrics. The feeding thread. */
uint32_t rp_otlp_metrics_series(const struct rp_otlp_metrics *m);

/* Shared with spans: low in cardinality; NULL when the request ended well. */
const char *rp_otlp_error_type(const struct rp_record *r, char buf[72]);
/* Its operation by the conventions' words. */
const char *rp_otlp_operation(enum rp_operation op);
/* IP address as text, or "" */
void rp_otlp_address(uint16_t family, const uint8_t addr[16], char buf[64]);
/* gen_ai.provider.name */
const char *rp_otlp_provider(const struct rp_otlp_config *c, const char *engine);

#endif
