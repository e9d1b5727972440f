/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * spans.h - a request as a span of kind SERVER, with its phases below: queue, prefill,
 * decode. The thread that drains the ring puts what a span needs into a bounded queue
 * (one writer, one reader, no lock); another thread encodes it.
 */
#ifndef REQPROBE_OTLP_SPANS_H
#define REQPROBE_OTLP_SPANS_H

#include "otlp/config.h"
#include "otlp/metrics.h"
#include "otlp/writer.h"
#include "record/record.h"

/* W3C Trace Context: version-traceid-parentid-flags, lower case. */
struct rp_otlp_parent {
	uint8_t trace[16], span[8], flags;
};
/* False: not one. Versions above 00 are read as 00, what they add is ignored. */
bool rp_otlp_traceparent(const char *s, struct rp_otlp_parent *p);

/* Random bytes, from getrandom(2) by the hundred. One for each thread. */
struct rp_otlp_random {
	uint8_t pool[1024];
	size_t left;
};
void rp_otlp_id(struct rp_otlp_random *r, uint8_t *id, size_t n); /* not all zero */

/* The trace of a request: the parent's, or a new one; and whether it gets a span. */
void rp_otlp_trace(const struct rp_otlp_config *c, const struct rp_record *r,
		   struct rp_otlp_random *rnd, struct rp_otlp_trace *t);

struct rp_otlp_queue;
struct rp_otlp_queue *rp_otlp_queue_new(size_t bytes); /* NULL: no memory */
void rp_otlp_queue_free(struct rp_otlp_queue *q);
/* The writer's: 0, -ENOSPC: full, -ENODATA: without any instant there is no span. */
int rp_otlp_queue_put(struct rp_otlp_queue *q, const struct rp_record *r,
		      const struct rp_otlp_trace *t);
/* Anybody's. */
uint64_t rp_otlp_queue_requests(const struct rp_otlp_queue *q);
size_t rp_otlp_queue_bytes(const struct rp_otlp_queue *q);

/*
 * The reader's: takes requests out and writes one ExportTraceServiceRequest of about
 * `most` spans. Returns the number of spans, and of requests; 0: the queue is empty.
 */
size_t rp_otlp_spans_encode(struct rp_otlp_queue *q, const struct rp_otlp_config *c,
			    struct rp_otlp_random *rnd, struct rp_ow *w, size_t most,
			    rp_otlp_resource_fn resource, void *ctx, uint64_t *requests);

#endif
