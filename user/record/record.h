/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * record.h - the finished facts of one request: raw instants, counts, and the
 * figures derived from them (derive.c has every formula, once).
 * A record is plain data owned by the timeline; sinks must copy what they keep.
 */
#ifndef REQPROBE_RECORD_H
#define REQPROBE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/http1.h"
#include "protocol/json.h"

#define RP_NONE INT64_MIN /* an instant or count that is not known */

enum rp_end {
	RP_END_COMPLETE,
	RP_END_CLIENT_DISCONNECT,
	RP_END_SERVER_CLOSE,
	RP_END_ERROR,
	RP_END_UNKNOWN,
	RP_END_COUNT,
};
extern const char *const rp_end_names[RP_END_COUNT]; /* as in the schema */

enum rp_operation {
	RP_OP_CHAT,
	RP_OP_COMPLETION,
	RP_OP_INFILL,
	RP_OP_EMBEDDINGS,
	RP_OP_RERANK,
	RP_OP_RESPONSES,
	RP_OP_MESSAGES,
	RP_OP_GENERATE,
	RP_OP_OTHER,
	RP_OP_COUNT
};
extern const char *const rp_operation_names[RP_OP_COUNT]; /* "chat", "text_completion", ... */

/* Does it generate text? Else there is no token to time. */
static inline bool rp_generative(enum rp_operation op)
{
	return op != RP_OP_EMBEDDINGS && op != RP_OP_RERANK;
}

/* Why a figure is null. The text is what JSONL's `missing` carries. */
#define RP_REASONS(X)                                                                             \
	X(NONE, "")                                                                               \
	X(NOT_STREAMING, "not_streaming")     /* one body: no event to time */                    \
	X(NO_TOKEN, "no_token")		      /* the response carried no generated text */        \
	X(ONE_TOKEN, "one_token")	      /* a gap needs two */                               \
	X(NOT_GENERATIVE, "not_generative")   /* embeddings, rerank */                            \
	X(NO_ENGINE_HOOKS, "no_engine_hooks") /* socket-only engine */                            \
	X(STRIPPED, "no_symbols")	      /* the binary is stripped */                        \
	X(NOT_PERMITTED, "not_permitted")     /* the kernel refused the uprobes */                \
	X(HOOKS_OFF, "hooks_off")	      /* switched off by option */                        \
	X(SILENT, "hook_silent")	      /* attached, but did not fire for this request */   \
	X(NOT_JOINED, "not_joined")	      /* no engine task was found for this request */     \
	X(NOT_REPORTED, "not_reported")	      /* neither engine nor response says it */           \
	X(SEVERAL_CHOICES,                                                                        \
	  "several_choices")	      /* n > 1 or several prompts: as the engines' own metrics */ \
	X(NOT_REACHED, "not_reached") /* the request ended before this instant */                 \
	X(NOT_SEEN, "not_seen")	      /* began before the attach, or a loss hid it */             \
	X(LOST, "lost_events")                                                                    \
	X(TRUNCATED, "truncated")		      /* payload beyond the capture limit */      \
	X(PRE_ATTACH, "pre_attach")		      /* connection older than the attach */      \
	X(HANDSHAKE_UNTRUSTED, "handshake_untrusted") /* retransmitted SYN, cookies, fast open */ \
	X(UNIX_SOCKET, "unix_socket")		      /* no network */                            \
	X(ENCODED, "content_encoding")		      /* compressed body */                       \
	X(INVALID, "invalid_order") /* instants out of order: dropped and counted */              \
	X(LIMIT, "limit")	    /* a configured limit was hit */
enum rp_reason {
#define X(n, s) RP_WHY_##n,
	RP_REASONS(X)
#undef X
		RP_WHY_COUNT
};
extern const char *const rp_reason_names[RP_WHY_COUNT];

/*
 * Every nullable figure: X(ID, group, name, type). Types:
 *   NS   integer nanoseconds, printed as milliseconds with up to 6 decimals
 *   US   integer microseconds, printed as milliseconds
 *   N    count
 *   MS   double, milliseconds (a mean, or an engine's own arithmetic)
 *   R    double, unit in the name
 */
#define RP_FIELDS(X)                                                    \
	X(TOK_PROMPT, "tokens", "prompt", N)                            \
	X(TOK_COMPLETION, "tokens", "completion", N)                    \
	X(TOK_CACHED, "tokens", "cached", N)                            \
	X(TOK_REASONING, "tokens", "reasoning", N)                      \
	X(M_TTFT, "metrics", "time_to_first_token_ms", MS)              \
	X(M_GENERATION, "metrics", "generation_time_ms", MS)            \
	X(M_QUEUE, "metrics", "queue_time_ms", MS)                      \
	X(M_MEAN_ITL, "metrics", "mean_itl_ms", MS)                     \
	X(M_TPS, "metrics", "tokens_per_second", R)                     \
	X(S_FIRST_BYTE, "server_timing", "first_byte_ms", NS)           \
	X(S_FIRST_BODY, "server_timing", "first_body_ms", NS)           \
	X(S_FIRST_EVENT, "server_timing", "first_event_ms", NS)         \
	X(S_TTFT, "server_timing", "ttft_ms", NS)                       \
	X(S_TTST, "server_timing", "time_to_second_token_ms", NS)       \
	X(S_TTFO, "server_timing", "time_to_first_output_token_ms", NS) \
	X(S_LAST_TOKEN, "server_timing", "last_token_ms", NS)           \
	X(S_LAST_BODY, "server_timing", "last_body_ms", NS)             \
	X(S_DURATION, "server_timing", "duration_ms", NS)               \
	X(S_ENDED, "server_timing", "ended_ms", NS)                     \
	X(S_MEAN_ICL, "server_timing", "mean_icl_ms", MS)               \
	X(S_CHUNKS, "server_timing", "chunks", N)                       \
	X(S_FIRST_CHUNK, "server_timing", "first_chunk_tokens", N)      \
	X(S_KEEPALIVES, "server_timing", "keepalives", N)               \
	X(P_RECEIVE, "phases", "receive_ms", NS)                        \
	X(P_FRONTEND, "phases", "frontend_ms", NS)                      \
	X(P_QUEUE, "phases", "queue_ms", NS)                            \
	X(P_PREFILL, "phases", "prefill_ms", NS)                        \
	X(P_DECODE, "phases", "decode_ms", NS)                          \
	X(P_FLUSH, "phases", "flush_ms", NS)                            \
	X(NET_RTT, "network", "rtt_ms", US)                             \
	X(NET_AGE, "network", "age_s", R)                               \
	X(NET_RETRANS, "network", "retransmits", N)                     \
	X(NET_MIN_RTT, "network", "min_rtt_ms", US)                     \
	X(NET_SRTT, "network", "srtt_ms", US)                           \
	X(NET_ACCEPT, "network", "accept_wait_ms", NS)                  \
	X(NET_UNACKED_FIRST, "network", "unacked_first_bytes", N)       \
	X(NET_UNACKED_LAST, "network", "unacked_last_bytes", N)         \
	X(NET_NOTSENT_LAST, "network", "notsent_last_bytes", N)         \
	X(NET_QUEUED, "network", "queued_chunks", N)                    \
	X(NET_LAST_ACK, "network", "last_ack_ms", NS)                   \
	X(C_TTFT, "client_estimate", "ttft_ms", NS)                     \
	X(C_DURATION, "client_estimate", "duration_ms", NS)             \
	X(SCH_PREEMPTIONS, "scheduler", "preemptions", N)               \
	X(SCH_REQUEUES, "scheduler", "requeues", N)                     \
	X(SCH_STEPS, "scheduler", "steps", N)                           \
	X(SCH_PREEMPTED, "scheduler", "preempted_ms", NS)               \
	X(SCH_REQUEUE, "scheduler", "requeue_ms", NS)                   \
	X(FE_BEFORE, "frontend", "before_ms", NS)                       \
	X(FE_FIRST, "frontend", "after_first_token_ms", NS)             \
	X(FE_LAST, "frontend", "after_last_token_ms", NS)

enum rp_field {
#define X(id, g, n, t) RP_FIELD_##id,
	RP_FIELDS(X)
#undef X
		RP_FIELD_COUNT
};
enum rp_field_type { RP_T_NS, RP_T_US, RP_T_N, RP_T_MS, RP_T_R };
struct rp_field_def {
	const char *group, *name;
	enum rp_field_type type;
};
extern const struct rp_field_def rp_field_defs[RP_FIELD_COUNT];

struct rp_value {
	bool known;
	enum rp_reason why; /* when not known; never NONE then */
	union {
		int64_t i; /* NS, US, N */
		double d;  /* MS, R */
	};
};

enum rp_flag {
	RP_FLAG_PARTIAL = 1 << 0,     /* closed while in flight, or its start was not seen */
	RP_FLAG_LOST_EVENTS = 1 << 1, /* events that could have been its own were lost */
	RP_FLAG_TRUNCATED = 1 << 2,   /* payload was cut; token events are a lower bound */
	RP_FLAG_ESTIMATED = 1 << 3,
	RP_FLAG_PRE_ATTACH = 1 << 4,   /* connection older than the attach */
	RP_FLAG_CLOCK_STEP = 1 << 5,   /* wall clock was set during the request */
	RP_FLAG_PIPELINED = 1 << 6,    /* sent before the previous response had ended */
	RP_FLAG_LIMIT = 1 << 7,	       /* a configured limit cut something */
	RP_FLAG_ENCODED = 1 << 8,      /* compressed body: not read */
	RP_FLAG_PARSE_ERROR = 1 << 9,  /* bytes were not what their headers said */
	RP_FLAG_SLOW_CLIENT = 1 << 10, /* the client took the stream slower than it came */
	RP_FLAG_COUNT = 11,
};
extern const char *const rp_flag_names[RP_FLAG_COUNT]; /* by bit */

enum rp_token_source { RP_TOKENS_NONE, RP_TOKENS_ENGINE, RP_TOKENS_USAGE, RP_TOKENS_CHUNKS };
enum rp_rtt_source { RP_RTTSRC_NONE, RP_RTTSRC_HANDSHAKE };
enum rp_itl_source { RP_ITL_NONE, RP_ITL_ENGINE, RP_ITL_SERVER };

/* One token-bearing event or engine step: instant and tokens it brought. */
struct rp_mark {
	int64_t ts;
	uint32_t tokens;
	uint32_t choice;
};

/* How a figure was come by when the engine did not tell it. */
enum rp_estimate { RP_EST_NONE, RP_EST_STEPS, RP_EST_COUNT };
extern const char *const rp_estimate_names[RP_EST_COUNT]; /* "steps" */

/*
 * One of the engine's own requests: a choice, or a prompt of several, that one HTTP
 * request was split into. Instants as those of the record; RP_NONE unknown.
 */
struct rp_engine_request {
	int64_t t_queued, t_scheduled, t_first, t_last;
	int64_t tokens, prompt, cached, preemptions;
	int64_t index;	    /* of the engine */
	const char *finish; /* stop, length, abort, ... as the engine or, for a stop string, the
			     * response says; "" unknown */
	bool estimated;	    /* its t_queued and t_scheduled are */
};

/* What a response's usage object may say, one name for all providers' names. */
#define RP_USAGES(X)                                   \
	X(PROMPT, "prompt_tokens")                     \
	X(COMPLETION, "completion_tokens")             \
	X(TOTAL, "total_tokens")                       \
	X(REASONING, "reasoning_tokens")               \
	X(CACHE_READ, "cache_read_tokens")             \
	X(CACHE_WRITE, "cache_write_tokens")           \
	X(CACHE_MISS, "cache_miss_tokens")             \
	X(PROMPT_AUDIO, "prompt_audio_tokens")         \
	X(COMPLETION_AUDIO, "completion_audio_tokens") \
	X(ACCEPTED, "accepted_prediction_tokens")      \
	X(REJECTED, "rejected_prediction_tokens")      \
	X(TOOL_USE, "tool_use_prompt_tokens")
enum rp_usage {
#define X(id, name) RP_USAGE_##id,
	RP_USAGES(X)
#undef X
		RP_USAGE_COUNT
};
extern const char *const rp_usage_names[RP_USAGE_COUNT];

#define RP_REQUEST_IDS 8
#define RP_ENGINE_ID_MAX 128
#define RP_CHOICES_TOLD 64
struct rp_record {
	uint64_t seq; /* number of the record in this run, from 1 */
	uint64_t key; /* the request's, as observers know it; 0 = not told of before */
	/* identity */
	char id[RP_ID_MAX];
	char request_ids[RP_REQUEST_IDS][RP_ENGINE_ID_MAX];
	unsigned n_request_ids;
	char x_request_id[RP_XREQID_MAX];
	char traceparent[RP_TRACEPARENT_MAX];
	const char *engine_name;
	const char *engine_version; /* "" = unknown */
	uint32_t pid, core_pid;	    /* 0 = none */
	int engine_index;
	char model[RP_MODEL_MAX];	  /* as the answer names it, else the request */
	char request_model[RP_MODEL_MAX]; /* as the request does */
	bool model_told;		  /* the answer did */
	enum rp_operation operation;
	char method[RP_METHOD_MAX];
	char path[RP_PATH_MAX];
	int status; /* 0 = none seen */
	int stream; /* -1 unknown */
	int choices;
	int asked_n, asked_prompts; /* of the request's body, 1 where it names none; 0 not read */
	/* peers; family AF_INET, AF_INET6, AF_UNIX or 0 */
	uint16_t family, lport, rport;
	uint8_t laddr[16], raddr[16];
	bool conn_reused;
	/* instants, ns of CLOCK_MONOTONIC, RP_NONE when not seen */
	int64_t t_start, t_request_end; /* socket */
	int64_t t_first_byte, t_first_body, t_first_event, t_first_token, t_second_token;
	int64_t t_first_output, t_last_token, t_last_body, t_end;
	int64_t t_ended; /* the FIN, RST or close that ended it, where there is no t_end */
	int64_t t_queued, t_scheduled, t_eng_first, t_eng_last; /* engine */
	/*
	 * The same four as the engine has them, in its own arithmetic: seconds of
	 * CLOCK_MONOTONIC as a double. NAN where the engine told none: then `metrics`
	 * is computed from the instants above.
	 */
	double e_queued, e_scheduled, e_first, e_last;
	int64_t t_established;
	int64_t wall_offset; /* CLOCK_REALTIME - CLOCK_MONOTONIC */
	/* outcome */
	enum rp_end end;
	char finish_reason[RP_FINISH_MAX]; /* "" = none */
	bool has_error;
	char error_type[RP_ERRTYPE_MAX], error_code[32];
	const char *error_where; /* "status" | "stream" | "engine" */
	bool context_overflow;	 /* the error says that the prompt is too long */
	/* counts */
	int64_t tok_prompt, tok_completion_usage, tok_cached,
		tok_reasoning;		       /* as the response says */
	int64_t tok_prompt_engine, tok_engine; /* by hooks */
	int64_t chunks, keepalives;	       /* token events, comments */
	int64_t chunk_tokens;	    /* tokens of events by usage deltas, RP_NONE if not all told */
	int64_t first_chunk_tokens; /* of the first token event, by its usage */
	uint64_t bytes_rx, bytes_tx;
	uint64_t body_rx, body_tx;   /* of them, without HTTP's framing */
	uint64_t calls_rx, calls_tx; /* reads and writes with bytes of a body */
	/* what was asked for; RP_NONE unless the whole request was read as JSON */
	int64_t max_tokens;		/* RP_NONE: not limited */
	int64_t images, audios, videos; /* content parts */
	/* as the response says, RP_NONE or NAN where it does not */
	int64_t usage[RP_USAGE_COUNT];
	double prompt_audio_seconds;
	int64_t spec_steps, spec_draft_tokens, spec_accepted_tokens;
	double video_inference_s, video_peak_memory_mb;
	int64_t rtt_us;
	int rtt_status; /* enum rp_rtt_status */
	int64_t retransmits;
	/* the server's socket, when a write returned; RP_NONE where it was not told */
	int64_t unacked_first, unacked_last, notsent_last; /* first, last text or end: bytes */
	int64_t srtt_us, min_rtt_us;			   /* at the last */
	int64_t queued_chunks;	     /* text handed over while earlier bytes were not yet sent */
	bool ack_late;		     /* waited for, and not acknowledged in time */
	int64_t t_accepted, t_acked; /* accept(2) returned; the last byte was acknowledged */
	int64_t preemptions, requeues, steps;
	int64_t preempted_ns, requeue_ns;  /* waits after the first schedule; RP_NONE unknown */
	enum rp_estimate estimate;	   /* how t_queued and t_scheduled were come by */
	enum rp_estimate preempt_estimate; /* and preemptions and preempted_ns */
	/* completion tokens of each choice by the engine's count; told when choices > 1 */
	uint32_t choice_tokens[RP_CHOICES_TOLD];
	unsigned n_choice_tokens;
	bool joined;
	enum rp_reason engine_why; /* why engine figures are absent, NONE if joined */
	enum rp_reason stream_why; /* why event times are absent */
	uint32_t flags;
	/* the engine's own requests behind this one; owned by the timeline */
	const struct rp_engine_request *engine_requests;
	unsigned n_engine_requests, more_engine_requests; /* those there was no room for */
	/* derived, by rp_derive() */
	struct rp_value v[RP_FIELD_COUNT];
	enum rp_token_source token_source;
	enum rp_rtt_source rtt_source;
	/* per-token arrays, only with --itl; owned by the timeline */
	const struct rp_mark *eng_marks, *chunk_marks;
	size_t n_eng_marks, n_chunk_marks;
	enum rp_itl_source itl_source;
	bool itl_wanted;
};

/* All figures, from the instants and counts. Pure. */
void rp_derive(struct rp_record *r);

/*
 * Gaps between consecutive tokens of the same choice, in order of time: marks
 * with k tokens after a gap g give k gaps of g/k, the first mark gives k-1 gaps
 * of 0 (CONTRACT). fn gets each gap in ns with its exact sum kept: the k parts
 * of g are floor(g*(i+1)/k) - floor(g*i/k). Returns the number of gaps.
 */
size_t rp_gaps(const struct rp_mark *m, size_t n, bool per_token,
	       void (*fn)(void *ctx, int64_t gap_ns), void *ctx);

#endif
