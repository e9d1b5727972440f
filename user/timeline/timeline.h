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

struct rp_anon;
struct rp_timeline;

struct rp_timeline_opts {
	size_t memory_max;     /* bytes; what hits it is counted and flagged. Default 48 MiB */
	uint32_t max_conns;    /* HTTP connections followed at once; default 16384 */
	uint32_t max_requests; /* in flight; default 16384 */
	uint32_t max_tasks;    /* engine tasks not yet ended; default 16384 */
	uint32_t max_marks;    /* per request and kind, with itl; default 65536 */
	bool itl;
	const struct rp_anon *anon; /* records are made anonymous with it; NULL: as they are */
	int64_t kv_tokens; /* that the KV cache of each engine process holds, where nobody else
			    * tells; 0 unknown */
	bool hide_events;  /* take engines for ones without log stats: what do estimates miss? */
};
void rp_timeline_defaults(struct rp_timeline_opts *o);

/*
 * The scheduler of one engine process, as its own messages tell. Gauges are of
 * the newest message that carried them; totals count from the attach.
 */
#define RP_MAX_CORES 64
#define RP_SPEC_POSITIONS 16
struct rp_core {
	uint32_t pid;
	int64_t index;	/* engine index (data parallel rank), 0 when it has none */
	bool gone;	/* the process has exited: totals stay, gauges are void */
	bool stats;	/* the engine sends scheduler stats: the next five are known */
	bool log_stats; /* it does or, gone, did: its events are told, too */
	bool calls;	/* it sends nothing: its steps are calls of the model. What comes after
			 * the five, steps, tokens, outputs and preemptions is not known */
	int64_t running, waiting;
	int64_t deferred; /* waits for something other than capacity; RP_NONE unknown */
	double kv_usage;  /* 0..1, NAN unknown; without stats an estimate */
	uint64_t prefix_queries, prefix_hits; /* tokens */
	bool spec;			      /* speculative decoding was told of */
	uint64_t spec_drafts, spec_draft_tokens, spec_accepted_tokens;
	uint64_t spec_accepted_at[RP_SPEC_POSITIONS]; /* by position in the draft */
	uint32_t spec_positions;		      /* 0: not told */
	uint64_t preemptions; /* of requests, by their events; without stats an estimate, */
	bool gaps_unknown;    /* or not known: see rp_core_preemptions() */
	uint64_t steps;	      /* messages of one schedule, however many clients share it */
	uint64_t tokens;      /* generated */
	uint64_t outputs;     /* requests in steps, summed: / steps = batch size */
	/* of prompts, when their first output comes; computed + cached = prompt. Where the
	 * engine does not tell what was cached, no part of it is known */
	uint64_t tokens_prompt, tokens_computed, tokens_cached;
	uint64_t tokens_cached_local, tokens_cached_external; /* parts of cached */
	bool cached_known, cached_parts_known;
	int64_t last_step; /* ns; RP_NONE */
	/* without stats: the KV cache, in tokens; RP_NONE unknown */
	int64_t kv_capacity, kv_block, kv_held;
};

/* Is it known how often the engine took a running request off again? Without its events
 * it is an estimate, and none where something else leaves requests out of steps. */
static inline bool rp_core_preemptions(const struct rp_core *c)
{
	return c->log_stats || !c->gaps_unknown;
}

/* Is it known what was looked up in its prefix cache? A process that is gone told, too. */
static inline bool rp_core_prefix(const struct rp_core *c)
{
	return c->log_stats && !c->calls;
}

/* One step of an engine's scheduler, when it is over. */
struct rp_step_info {
	const char *engine, *version;
	uint32_t pid;
	int64_t index;
	uint64_t seq;	 /* of this core, from 1 */
	int64_t ts;	 /* ns of CLOCK_MONOTONIC: the engine's own timestamp, of its outputs;
			  * of a call its entry */
	int64_t sent;	 /* ns: its first message was handed to the socket; RP_NONE: no message */
	int64_t step_ns; /* since the step before, RP_NONE after an idle time, a loss, or none;
			  * of a call until the next, RP_NONE before an idle time or a loss */
	int64_t wall_offset; /* ns */
	uint32_t requests;   /* with an output in it */
	uint32_t tokens;     /* generated in it */
	uint32_t first_tokens, finished;
	int64_t batch;	    /* tokens handed to the model in it; 0 unknown */
	int64_t computed;   /* prompt tokens of those with their first output in it, less what was
			   * cached; RP_NONE: of one of them it is not known */
	uint32_t preempted; /* events told in it, or an estimate of them */
	bool preempted_known;
	bool estimated;	    /* preempted and kv_usage are */
	bool positions;	    /* kv_usage is, by the tokens' positions */
	int64_t max_tokens; /* most of one request: > 1 with speculative decoding */
	bool cut;	    /* a message was cut: counts are a lower bound */
	bool has_stats;
	int64_t running, waiting; /* RP_NONE unknown */
	double kv_usage;	  /* NAN unknown */
	int64_t prefix_queries, prefix_hits, spec_drafts, spec_draft_tokens,
		spec_accepted_tokens; /* in it; RP_NONE unknown */
};

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
	/* finished requests whose count nobody told: the two totals lack it, or a part of it */
	uint64_t unknown_prompt, unknown_completion;
	uint64_t bytes_rx, bytes_tx;	 /* of recorded requests, live */
	uint64_t proxied_rx, proxied_tx; /* were among them until they were known as proxied */
	uint64_t seen[RP_CLASS_COUNT], lost[RP_CLASS_COUNT], map_full[RP_MAP_COUNT];
	uint64_t bytes_lost; /* stream bytes that never arrived */
	uint64_t bytes_cut;  /* beyond the capture limit */
	uint64_t limit_conns, limit_requests, limit_tasks, limit_memory, limit_marks;
	uint64_t limit_ids;	/* ids longer than a record has room for */
	uint64_t invalid_order; /* instants out of order, dropped */
	uint64_t parse_errors;
	uint64_t not_joined; /* finished requests with hooks attached but no task */
	uint64_t handshakes, handshakes_untrusted[5]; /* by enum rp_rtt_status */
	uint64_t hook_hits[RP_MAX_HOOKS];
	struct rp_core cores[RP_MAX_CORES];
	unsigned n_cores;
	uint64_t limit_cores;	    /* messages of engines beyond RP_MAX_CORES */
	uint64_t messages;	    /* engine messages decoded */
	uint64_t messages_cut;	    /* longer than the capture limit */
	uint64_t messages_bad;	    /* malformed, or of an unknown layout */
	uint64_t messages_repeated; /* handed over twice: counted once */
	uint64_t tasks_unclaimed;   /* engine requests whose HTTP request was never found */
	uint64_t memory;	    /* bytes in use now */
	uint64_t events;
};

struct rp_gap_info {
	const char *model;
	bool asked;		   /* the name is the request's: no answer has told it yet */
	enum rp_itl_source source; /* scope of the gap */
	bool chunk;		   /* true: inter-chunk latency; false: inter-token latency */
	int64_t gap_ns;		   /* each of `n` gaps */
	uint32_t n;
	int64_t whole_ns; /* since the event or engine output before, however many tokens this one
			   * brought; RP_NONE: within one */
	int64_t index;	  /* of the engine */
};

/* One HTTP request of any path that is over and had an answer. */
struct rp_http_info {
	const char *method, *path; /* the path without its query, at most RP_PATH_MAX */
	int status;
	int64_t request_length, response_length; /* Content-Length; RP_NONE: none was sent */
	int64_t duration_ns; /* first byte read to last byte handed over, or to what ended it */
	bool complete;
};

/*
 * What an engine without log stats has at hand, counted from outside: requests with an
 * output in its last step; and those without one yet, or taken off again.
 */
struct rp_engine_load {
	uint64_t running, waiting;
	bool waiting_known; /* the messages that add requests are seen */
	bool capacity_only; /* none of those that wait can wait for anything else */
};

/* What a request asks for, before there is any answer. */
struct rp_request_info {
	uint64_t key; /* of this request, never used again; its record has it too */
	int64_t ts;   /* ns: its last byte was read; the first, where the last was not */
	enum rp_operation operation;
	int choices;
	bool guided, tools, images; /* a bound form of the answer; tools to call; images shown */
	const char *service_tier;   /* "" = not asked for */
};

/*
 * Tokens of one choice that came at one instant: of the engine where it tells
 * them, else of an event of the response, which is one token unless usage says
 * more. Told in order of their instants for each choice, but late where the
 * response names its engine request late. After a loss tokens are missing.
 */
struct rp_tokens_info {
	uint64_t key;
	int64_t ts;
	uint32_t tokens, choice;
	int64_t prompt, cached; /* tokens; RP_NONE where they are not known yet */
	int64_t rank;		/* data parallel rank; RP_NONE unless there are several */
};

/* What a timeline tells as it goes. Any may be NULL. */
struct rp_observer {
	void *ctx;
	/*
	 * The life of a request: started when its body was read (at its end at the
	 * latest), tokens, ended when its HTTP side is over, its record. dropped in
	 * place of all that would follow: it is the same request at a proxy, which
	 * counts at its engine. Of requests whose beginning was not seen only the
	 * record comes, with key 0.
	 */
	void (*started)(void *ctx, const struct rp_request_info *q);
	void (*tokens)(void *ctx, const struct rp_tokens_info *i);
	void (*ended)(void *ctx, uint64_t key, int64_t ts);
	void (*dropped)(void *ctx, uint64_t key);
	void (*record)(void *ctx, const struct rp_record *r);
	void (*gap)(void *ctx,
		    const struct rp_gap_info *g); /* while it happens; never across a loss */
	void (*handshake)(void *ctx, int64_t rtt_us);
	void (*step)(void *ctx, const struct rp_step_info *s);
	void (*http)(void *ctx, const struct rp_http_info *h);
	void (*notice)(void *ctx, const char *line); /* for stderr: one line, said once per kind */
};

/* NULL: no memory. Observers are called in the order added (at most 8). */
struct rp_timeline *rp_timeline_new(const struct rp_timeline_opts *o);
int rp_timeline_observe(struct rp_timeline *t, const struct rp_observer *o);
void rp_timeline_free(struct rp_timeline *t);

/* Where the payload of an event of this type begins, 0 when it has none. */
static inline size_t rp_payload_at(unsigned type)
{
	return type == RP_EV_DATA ? sizeof(struct rp_ev_data) :
	       type == RP_EV_MSG  ? sizeof(struct rp_ev_msg) :
				    0;
}

/*
 * Feed one event. `keep` may be NULL; else it points to ev->len payload bytes
 * filled with 'x' by the caller, and returns those that may leave the machine
 * (RP_EV_DATA and RP_EV_MSG). 0, or -EBADMSG for a malformed event (skipped, counted).
 */
int rp_timeline_event(struct rp_timeline *t, const struct rp_event_hdr *ev, uint8_t *keep);

/* Close everything in flight as end: unknown, partial. */
void rp_timeline_finish(struct rp_timeline *t);

const struct rp_stats *rp_timeline_stats(const struct rp_timeline *t);
/* Of the engines that name their requests in messages (vLLM): one load for each of
 * st.cores, in their order. A request without an output is at no engine yet: it is
 * the first's that has not exited. Walks all tasks. */
void rp_timeline_load(const struct rp_timeline *t, struct rp_engine_load load[RP_MAX_CORES]);

#endif
