/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * facts.h - what one finished request gives to any metric. Made from a record
 * while it is at hand (facts.c) or from its JSONL line later; whatever is computed
 * from it (table.c) is then the same in both. No figure here is computed: beside
 * each stands the member of the reqprobe.request/1 line that it equals.
 *
 * Base units: ns, bytes, counts. RP_NONE: unknown; NAN for doubles. Durations are of
 * the server scope and, where nothing else is said, count from request_end, the
 * read that delivered the request's last byte. `receive` lies before that: start, the
 * read that delivered the first byte, plus receive is request_end.
 *
 * AIPerf starts its clock when it begins to send. What it measures as "since start"
 * is here (receive + duration) of the server scope, at which the client's own value
 * arrives when one round trip is added: half of it until the first byte is read, half
 * for the way back. A new connection costs the client another round trip before that
 * (connect), which no server sees.
 */
#ifndef REQPROBE_METRICS_FACTS_H
#define REQPROBE_METRICS_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/record.h"

/* Why a request is no good one. The words of AIPerf's own export where it has one. */
enum rp_error_class {
	RP_ERROR_NONE,	     /* it was answered in full */
	RP_ERROR_4XX,	     /* "http_4xx" */
	RP_ERROR_5XX,	     /* "http_5xx" */
	RP_ERROR_STREAM,     /* "stream": an error in the body of another status */
	RP_ERROR_ENGINE,     /* "engine": the engine gave it up */
	RP_ERROR_CANCELLED,  /* "cancelled": the client went away */
	RP_ERROR_CLOSED,     /* "server_close" */
	RP_ERROR_NO_CONTENT, /* "no_content": complete, and without generated text */
	RP_ERROR_UNSEEN,     /* "unknown": how it ended was not seen. Neither good nor bad */
	RP_ERROR_CLASS_COUNT
};
extern const char *const rp_error_class_names[RP_ERROR_CLASS_COUNT]; /* "" for NONE */

struct rp_facts {
	/* Strings: "" unknown, never NULL; they belong to what the facts were made from. */
	const char *id;		     /* id */
	const char *x_request_id;    /* x_request_id */
	const char *model;	     /* model */
	const char *engine;	     /* engine.name */
	const char *engine_version;  /* engine.version */
	const char *finish_reason;   /* finish_reason */
	const char *error_type;	     /* error.type */
	const char *error_code;	     /* error.code */
	const char *error_where;     /* error.where: "status", "stream", "engine", "" */
	enum rp_operation operation; /* operation */
	enum rp_end end;	     /* end */
	int status;		     /* status, 0 unknown */
	int stream;		     /* stream: 1, 0, -1 unknown */
	int choices;		     /* choices */
	uint32_t flags;		     /* flags, RP_FLAG_* */
	bool has_error;		     /* error is not null */
	bool context_overflow;	     /* error.context_overflow */
	bool reused;		     /* connection.reused */

	int64_t start_wall; /* start: ns of CLOCK_REALTIME */

	/* server scope, ns */
	int64_t receive;	    /* phases.receive_ms */
	int64_t first_byte;	    /* server_timing.first_byte_ms */
	int64_t first_body;	    /* server_timing.first_body_ms */
	int64_t first_event;	    /* server_timing.first_event_ms */
	int64_t ttft;		    /* server_timing.ttft_ms */
	int64_t second;		    /* server_timing.time_to_second_token_ms: a gap */
	int64_t first_output;	    /* server_timing.time_to_first_output_token_ms */
	int64_t last_token;	    /* server_timing.last_token_ms */
	int64_t last_body;	    /* server_timing.last_body_ms */
	int64_t duration;	    /* server_timing.duration_ms */
	int64_t chunks, keepalives; /* server_timing.chunks, .keepalives */
	int64_t first_chunk_tokens; /* server_timing.first_chunk_tokens: by its usage */
	const int64_t *icl;	    /* icl_ms: gaps between chunks; NULL unknown */
	size_t n_icl;

	/* engine scope and what lies between, ns */
	int64_t frontend, queue, prefill, decode, flush; /* phases.*_ms */
	int64_t after_first, after_last;		 /* frontend.after_{first,last}_token_ms */
	int64_t preempted, requeue;			 /* scheduler.preempted_ms, .requeue_ms */
	int64_t preemptions, requeues, steps;		 /* scheduler.* */
	/* the engines' own arithmetic: ms, tokens/s; metrics.* */
	double m_ttft, m_generation, m_queue, m_mean_itl, m_tps;

	/* tokens */
	int64_t prompt, completion, cached, reasoning; /* tokens.* */
	int64_t usage[RP_USAGE_COUNT];		       /* usage.NAME, see RP_USAGES */
	double prompt_audio_seconds;		       /* usage.prompt_audio_seconds */

	/* what was asked for; null unless the whole request was read */
	int64_t max_tokens;		/* request.max_tokens */
	int64_t images, audios, videos; /* request.images, .audios, .videos: parts */

	/* speculative decoding, as the response tells: speculation.* */
	int64_t spec_steps, spec_draft_tokens, spec_accepted_tokens;
	/* video generation: video.inference_s, .peak_memory_mb */
	double video_inference_s, video_peak_memory_mb;

	/* network and HTTP */
	int64_t rtt;			       /* network.rtt_ms, ns */
	int64_t accept_wait, last_ack;	       /* network.*_ms, ns */
	int64_t retransmits;		       /* network.retransmits */
	int64_t request_bytes, response_bytes; /* bytes.request, .response: framing too */
	int64_t request_body, response_body;   /* bytes.request_body, .response_body */
	int64_t request_calls, response_calls; /* calls.request, .response: reads and
						     writes that carried bytes of the body */
};

/* All unknown. */
void rp_facts_init(struct rp_facts *f);

/*
 * Room for the gaps of one request, used again and again. Zero at first; free(icl)
 * at the end.
 */
struct rp_facts_room {
	int64_t *icl;
	size_t cap;
};

/* From a derived record. Without room there are no gaps (f->icl is NULL), nor without
 * --itl. f's strings and gaps live as long as r and room do. */
void rp_facts_of(const struct rp_record *r, struct rp_facts *f, struct rp_facts_room *room);

/* One class each; RP_ERROR_NONE is what AIPerf calls a valid record. */
enum rp_error_class rp_error_class(const struct rp_facts *f);

#endif
