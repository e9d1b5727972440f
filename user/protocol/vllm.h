/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * vllm.h - the messages between the front end and the EngineCore of vLLM V1
 * (0.7.3 to 0.33) and Aphrodite (0.10 to 0.24): msgspec's msgpack encoding of
 * array_like structs. Fields are found by position, and the array's length
 * tells the layout; longer arrays than known are read as the longest known one.
 *
 * Layouts: vllm/v1/engine/__init__.py (EngineCoreRequest, EngineCoreOutput,
 * EngineCoreOutputs, EngineCoreEvent, UtilityOutput), vllm/v1/metrics/stats.py
 * (SchedulerStats, PrefillStats, PrefixCacheStats, SpecDecodingStats) of each
 * version; the tables stand in vllm.c.
 *
 * No allocation, no recursion, no state between messages: time is linear in
 * the bytes given, whatever they say. Pointers handed to callbacks point into
 * the message and are valid during the callback only.
 */
#ifndef REQPROBE_VLLM_H
#define REQPROBE_VLLM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RP_VLLM_EVENTS 16    /* of one output; more are counted */
#define RP_VLLM_ID_MAX 255   /* a longer request id is no id: the output is skipped */
#define RP_VLLM_POSITIONS 16 /* of a draft; those beyond are not told */
#define RP_VLLM_UNKNOWN (-1) /* a count that the message does not carry */

/* EngineCoreRequestType, the byte frame before a request */
enum rp_vllm_request_type {
	RP_VLLM_ADD = 0,
	RP_VLLM_ABORT = 1,
	RP_VLLM_START_DP_WAVE = 2, /* 0.8.3+ */
	RP_VLLM_UTILITY = 3,
};

enum rp_vllm_kind {
	RP_VLLM_KIND_OTHER,   /* well-formed, and nothing for us: utility, wave, empty */
	RP_VLLM_KIND_OUTPUTS, /* EngineCoreOutputs */
	RP_VLLM_KIND_ADD,
	RP_VLLM_KIND_ABORT,
	RP_VLLM_KIND_READY, /* EngineCoreReadyResponse (a map); may name the version */
	RP_VLLM_KIND_DEAD,  /* b"ENGINE_CORE_DEAD" */
};

/* EngineCoreEventType */
enum rp_vllm_event_type { RP_VLLM_QUEUED = 1, RP_VLLM_SCHEDULED = 2, RP_VLLM_PREEMPTED = 3 };

struct rp_vllm_event {
	int type;
	double ts; /* seconds of CLOCK_MONOTONIC, as time.monotonic() gave it */
};

/* finish_reason, as FinishReason has it */
enum rp_vllm_finish {
	RP_VLLM_RUNNING = -1,
	RP_VLLM_STOP = 0,
	RP_VLLM_LENGTH = 1,
	RP_VLLM_ABORTED = 2,
	RP_VLLM_ERROR = 3,		  /* 0.13+ */
	RP_VLLM_REPETITION = 4,		  /* 0.17+ */
	RP_VLLM_FINISH_OTHER = INT32_MAX, /* a name, or a number, that is no reason known */
};

struct rp_vllm_output {
	const char *id; /* not NUL-terminated */
	size_t id_len;
	uint32_t tokens; /* new tokens in this message */
	int finish;	 /* enum rp_vllm_finish; other values as sent */
	bool pooled;	 /* carries a pooling result */
	/* of a prefill: on its first output; cached_tokens on all of 0.9 to 0.19 */
	int64_t prompt_tokens; /* RP_VLLM_UNKNOWN: not told (before 0.20) */
	int64_t cached_tokens; /* prefix cache; 0.9+ */
	/* of these, from the engine's own cache and from a KV connector; 0.20+ */
	int64_t cached_local, cached_external;
	struct rp_vllm_event events[RP_VLLM_EVENTS];
	uint32_t n_events; /* <= RP_VLLM_EVENTS */
	uint32_t more_events;
};

/* SchedulerStats: what is not told is RP_VLLM_UNKNOWN (kv_usage: NAN). */
struct rp_vllm_stats {
	int64_t running, waiting;
	int64_t deferred; /* waits, but not for capacity: not in waiting; 0.17+ */
	double kv_usage;  /* 0..1 */
	int64_t prefix_queries, prefix_hits; /* tokens, since the last message */
	bool prefix_reset;
	int64_t spec_drafts, spec_draft_tokens, spec_accepted_tokens; /* since the last message */
	/* accepted tokens by their position in the draft; of so many positions */
	int64_t spec_accepted_at[RP_VLLM_POSITIONS];
	uint32_t spec_positions; /* 0: not told */
};

/* EngineCoreOutputs without its outputs. */
struct rp_vllm_step {
	int64_t engine_index; /* RP_VLLM_UNKNOWN before 0.8.3 */
	uint32_t n_outputs;   /* as the array's header says */
	double timestamp;     /* seconds; NAN when the message was cut before it */
	bool has_stats;	      /* false with --disable-log-stats */
	struct rp_vllm_stats stats;
	bool has_utility; /* answers a utility call */
};

struct rp_vllm_request { /* EngineCoreRequest */
	const char *id;
	size_t id_len;
	int64_t prompt_tokens;	 /* as declared; RP_VLLM_UNKNOWN when given as embeddings */
	const char *external_id; /* 0.14+: NULL else */
	size_t external_id_len;
	int64_t client_index; /* RP_VLLM_UNKNOWN before 0.9.1 */
	bool pooling;
	/*
	 * It may have to wait for something other than capacity: a grammar that is being
	 * compiled (structured output), a LoRA adapter's turn, a KV transfer, more input.
	 * Not so: it asks for none of these. True where its fields can't be told, or are
	 * cut off.
	 */
	bool may_defer;
	int resumable; /* 1: more input may follow, and it is queued again then; 0: not so;
			* RP_VLLM_UNKNOWN */
};

/* EngineCoreReadyResponse, and the map of the hand-shake that names num_gpu_blocks */
struct rp_vllm_ready {
	const char *version;
	size_t version_len;	    /* 0: not told; before 0.23 */
	int64_t blocks, block_size; /* of the KV cache, and tokens in one; RP_VLLM_UNKNOWN */
	int64_t kv_tokens;	    /* in all of them, where the engine has worked it out */
	int64_t pipeline;	    /* pipeline parallel size */
};

/* Any may be NULL. */
struct rp_vllm_sink {
	void *ctx;
	/* before the outputs, although it comes after them in the message */
	void (*step)(void *ctx, const struct rp_vllm_step *s);
	void (*output)(void *ctx, const struct rp_vllm_output *o);
	void (*add)(void *ctx, const struct rp_vllm_request *r);
	void (*abort)(void *ctx, const char *id, size_t len); /* once for each id */
	void (*ready)(void *ctx, const struct rp_vllm_ready *r);
};

/*
 * Decode one frame.
 *   type     the request type byte that came in the frame before it, or -1 for a
 *            frame that stands first (outputs, ready, dead)
 *   p, len   the bytes at hand
 *   cut      more bytes belonged to the frame than are at hand
 *   keep     NULL, or a buffer of len bytes, filled with 'x' by the caller, that
 *            receives what may leave the machine: structure, ids, instants,
 *            counts; but no token ids, text, logprobs, pooling results, sampling
 *            parameters or stop strings, which are replaced by values of the same
 *            encoded size. Decoding `keep` makes the same callbacks as `p`.
 *   kind     what it was; may be NULL
 *
 * Returns
 *   0         decoded whole
 *   -ENODATA  `cut`, and it ends too early. What came before was told: each output
 *             that lies wholly in the bytes, with step.timestamp NAN; an ADD of
 *             which the id is there, as prompts are longer than what is captured
 *             (their count stands before them).
 *   -EBADMSG  malformed msgpack (also: it ends too early and is not `cut`, or bytes
 *             follow), or a field of an impossible type. What came before was told.
 *             What is found by name, in a map of stats, is just not told.
 *   -EPROTO   no layout that is known: nothing was told, but for outputs that
 *             differ among themselves
 */
int rp_vllm_decode(int type, const uint8_t *p, size_t len, bool cut, uint8_t *keep,
		   const struct rp_vllm_sink *sink, enum rp_vllm_kind *kind);

/*
 * The names under which a response may refer to this engine request, best first:
 * without the leading "<k>_" of n > 1, then without one, then two of its last
 * "-..." or "_..." parts ("-<i>" of a prompt, "-<8 hex>" of 0.14+, "_<i>").
 * Fills lengths; returns how many of the (at most 3) are there. *start is the
 * offset behind "<k>_"; *choice is k, or 0.
 * "1_cmpl-9ffbefc47dbd6763-0-96800035" -> start 2, lengths 32, 23, 21.
 */
int rp_vllm_names(const char *id, size_t len, size_t *start, uint32_t *choice, size_t names[3]);

#endif
