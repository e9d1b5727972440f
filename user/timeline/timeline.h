/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * timeline.h - joins HTTP exchanges, engine hooks and sockets into requests.
 * Owns all state and its limits. A pure function of the events it is fed:
 * no clock, no I/O, no randomness.
 */
#ifndef REQPROBE_TIMELINE_H
#define REQPROBE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "record/record.h"
#include "reqprobe/event.h"

struct rp_timeline;

struct rp_timeline_opts {
	size_t memory_max;     /* bytes; what hits it is counted and flagged. Default 48 MiB */
	uint32_t max_conns;    /* HTTP connections followed at once; default 16384 */
	uint32_t max_requests; /* in flight; default 16384 */
	uint32_t max_tasks;    /* engine tasks not yet ended; default 16384 */
	uint32_t max_marks;    /* per request and kind, with itl; default 65536 */
	bool itl;
};
void rp_timeline_defaults(struct rp_timeline_opts *o);

/* Counters that sinks read. All totals since start unless said. */
struct rp_stats {
	uint64_t started;
	uint64_t ends[RP_END_COUNT]; /* started = sum(ends) + in_flight */
	uint64_t in_flight;	     /* now */
	uint64_t waiting,
		running;      /* now, by the engine's hooks; queued and not scheduled / scheduled */
	bool scheduler_known; /* waiting and running mean something */
	uint64_t proxied; /* seen on their way through a proxy of the tree: counted where the engine serves them */
	uint64_t other_paths; /* HTTP requests that are no inference: counted, not recorded */
	uint64_t connections; /* open now, any protocol */
	uint64_t conns_by_proto[RP_PROTO_COUNT]; /* ever */
	uint64_t unobserved_tls, unobserved_http2, unobserved_other, unobserved_io_uring;
	uint64_t tokens_prompt, tokens_completion;
	uint64_t bytes_rx, bytes_tx; /* of recorded requests, live */
	uint64_t seen[RP_CLASS_COUNT], lost[RP_CLASS_COUNT], map_full[RP_MAP_COUNT];
	uint64_t bytes_lost; /* stream bytes that never arrived */
	uint64_t bytes_cut;  /* beyond the capture limit */
	uint64_t limit_conns, limit_requests, limit_tasks, limit_memory, limit_marks;
	uint64_t invalid_order; /* instants out of order, dropped */
	uint64_t parse_errors;
	uint64_t not_joined; /* finished requests with hooks attached but no task */
	uint64_t handshakes, handshakes_untrusted[5]; /* by enum rp_rtt_status */
	uint64_t hook_hits[RP_MAX_HOOKS];
	uint64_t memory; /* bytes in use now */
	uint64_t events;
};

struct rp_gap_info {
	const char *model;
	enum rp_itl_source source; /* scope of the gap */
	bool chunk;		   /* true: inter-chunk latency; false: inter-token latency */
	int64_t gap_ns;		   /* each of `n` gaps */
	uint32_t n;
};

/* What a timeline tells as it goes. Any may be NULL. */
struct rp_observer {
	void *ctx;
	void (*record)(void *ctx, const struct rp_record *r);
	void (*gap)(void *ctx,
		    const struct rp_gap_info *g); /* while it happens; never across a loss */
	void (*handshake)(void *ctx, int64_t rtt_us);
	void (*notice)(void *ctx, const char *line); /* for stderr: one line, said once per kind */
};

/* NULL: no memory. Observers are called in the order added (at most 8). */
struct rp_timeline *rp_timeline_new(const struct rp_timeline_opts *o);
int rp_timeline_observe(struct rp_timeline *t, const struct rp_observer *o);
void rp_timeline_free(struct rp_timeline *t);

/*
 * Feed one event. `keep` may be NULL; else it points to ev->len payload bytes
 * filled with 'x' by the caller, and returns those that may leave the machine
 * (RP_EV_DATA only). 0, or -EBADMSG for a malformed event (skipped, counted).
 */
int rp_timeline_event(struct rp_timeline *t, const struct rp_event_hdr *ev, uint8_t *keep);

/* Close everything in flight as end: unknown, partial. */
void rp_timeline_finish(struct rp_timeline *t);

const struct rp_stats *rp_timeline_stats(const struct rp_timeline *t);

#endif
