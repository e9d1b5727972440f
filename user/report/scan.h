/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * scan.h - one pass over a reqprobe.request/1 line: where each of its members is.
 * Members may come in any order; the one they are written in is the fast one. What
 * this version does not know is passed over, its syntax checked. Strict otherwise
 * (RFC 8259, UTF-8, no NUL, no lone surrogate): a line that is let through can be
 * given to any JSON reader. Allocates nothing.
 */
#ifndef REQPROBE_REPORT_SCAN_H
#define REQPROBE_REPORT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "metrics/facts.h"

/*
 * Every member of a record but `missing`: X(ID, group, name, type), the group ""
 * for those at the top. Those of RP_USAGES and RP_FIELDS come on top of these. Types: S string,
 * I integer, D number, B boolean, each may be null; AS, AI, AD arrays of them.
 */
#define RP_LEAVES(X)                                          \
	X(SCHEMA, "", "schema", S)                            \
	X(ID, "", "id", S)                                    \
	X(REQUEST_IDS, "", "request_ids", AS)                 \
	X(X_REQUEST_ID, "", "x_request_id", S)                \
	X(ENGINE_NAME, "engine", "name", S)                   \
	X(ENGINE_VERSION, "engine", "version", S)             \
	X(ENGINE_PID, "engine", "pid", I)                     \
	X(CORE_PID, "engine", "core_pid", I)                  \
	X(ENGINE_INDEX, "engine", "index", I)                 \
	X(MODEL, "", "model", S)                              \
	X(OPERATION, "", "operation", S)                      \
	X(METHOD, "", "method", S)                            \
	X(PATH, "", "path", S)                                \
	X(STATUS, "", "status", I)                            \
	X(STREAM, "", "stream", B)                            \
	X(CHOICES, "", "choices", I)                          \
	X(CLIENT_ADDRESS, "client", "address", S)             \
	X(CLIENT_PORT, "client", "port", I)                   \
	X(SERVER_ADDRESS, "server", "address", S)             \
	X(SERVER_PORT, "server", "port", I)                   \
	X(REUSED, "connection", "reused", B)                  \
	X(TLS, "connection", "tls", B)                        \
	X(PROTOCOL, "connection", "protocol", S)              \
	X(START, "", "start", S)                              \
	X(END, "", "end", S)                                  \
	X(FINISH_REASON, "", "finish_reason", S)              \
	X(ERROR_TYPE, "error", "type", S)                     \
	X(ERROR_CODE, "error", "code", S)                     \
	X(ERROR_WHERE, "error", "where", S)                   \
	X(OVERFLOW, "error", "context_overflow", B)           \
	X(TOKEN_SOURCE, "tokens", "source", S)                \
	X(CHOICE_TOKENS, "", "choice_tokens", AI)             \
	X(RTT_SOURCE, "network", "source", S)                 \
	X(BYTES_RX, "bytes", "request", I)                    \
	X(BYTES_TX, "bytes", "response", I)                   \
	X(BODY_RX, "bytes", "request_body", I)                \
	X(BODY_TX, "bytes", "response_body", I)               \
	X(CALLS_RX, "calls", "request", I)                    \
	X(CALLS_TX, "calls", "response", I)                   \
	X(MAX_TOKENS, "request", "max_tokens", I)             \
	X(IMAGES, "request", "images", I)                     \
	X(AUDIOS, "request", "audios", I)                     \
	X(VIDEOS, "request", "videos", I)                     \
	X(AUDIO_S, "usage", "prompt_audio_seconds", D)        \
	X(SPEC_STEPS, "speculation", "steps", I)              \
	X(SPEC_DRAFT, "speculation", "draft_tokens", I)       \
	X(SPEC_ACCEPTED, "speculation", "accepted_tokens", I) \
	X(VIDEO_S, "video", "inference_s", D)                 \
	X(VIDEO_MB, "video", "peak_memory_mb", D)             \
	X(ESTIMATE, "estimated", "queue_time", S)             \
	X(PREEMPT_ESTIMATE, "estimated", "preemptions", S)    \
	X(FLAGS, "", "flags", AS)                             \
	X(ITL, "", "itl_ms", AD)                              \
	X(ICL, "", "icl_ms", AD)                              \
	X(ITL_SOURCE, "", "itl_source", S)

enum rp_leaf {
#define X(id, g, n, t) RP_LEAF_##id,
	RP_LEAVES(X)
#undef X
		RP_LEAF_USAGES,				  /* + enum rp_usage */
	RP_LEAF_FIELDS = RP_LEAF_USAGES + RP_USAGE_COUNT, /* + enum rp_field */
	RP_LEAF_COUNT = RP_LEAF_FIELDS + RP_FIELD_COUNT
};

enum rp_leaf_type {
	RP_LEAF_S,
	RP_LEAF_I,
	RP_LEAF_D,
	RP_LEAF_B,
	RP_LEAF_AS,
	RP_LEAF_AI,
	RP_LEAF_AD,
};

/* What the leaf is, for who writes them (compact). */
const char *rp_leaf_group(unsigned leaf);
const char *rp_leaf_name(unsigned leaf);
enum rp_leaf_type rp_leaf_type(unsigned leaf);

struct rp_slice {
	const char *p; /* NULL: absent or null. As written: a string with its quotes */
	uint32_t n;
	bool escaped; /* a string with a backslash in it */
};

/*
 * What figures of a line may be: whole numbers from 0 to below 10^15, durations from 0 to
 * below 10^11 ms (three years), other numbers below 10^15 either way. A line with others
 * is none that reqprobe wrote: it is broken. So no sum of a few of them overflows.
 */
#define RP_LINE_DIGITS 15
#define RP_LINE_MS_MAX 1e11
#define RP_LINE_REAL_MAX 1e15
#define RP_LINE_LIST_MAX (1u << 17) /* numbers in a list; the daemon writes 2^16 at most */

#define RP_LINE_MAX (16u << 20) /* bytes of a line that are read; longer ones are none of ours */

struct rp_line {
	struct rp_slice v[RP_LEAF_COUNT];
	struct rp_slice missing;     /* the object; NULL: absent */
	bool has_error;		     /* `error` is an object */
	uint8_t why[RP_FIELD_COUNT]; /* enum rp_reason, as `missing` says; NONE: not in it */
};

/*
 * p[n] must be readable and hold '\n' or NUL; n <= RP_LINE_MAX. What `l` points to is
 * inside p. 0; -EBADMSG: no JSON object, torn, a member of another type than the
 * schema's, or a number out of its range; -ENOMSG: JSON, but no reqprobe.request/1. A member that comes twice: the
 * last counts.
 */
int rp_line_scan(const char *p, size_t n, struct rp_line *l);

/* The text of a string leaf, escapes decoded, cut to size - 1 bytes at a character's
 * end; "" for null. Returns the length of what was written. */
size_t rp_slice_text(const struct rp_slice *s, char *buf, size_t size);
/* Is it this very string? */
bool rp_slice_is(const struct rp_slice *s, const char *text);
/* false: null, or out of int64. */
bool rp_slice_int(const struct rp_slice *s, int64_t *v);
bool rp_slice_double(const struct rp_slice *s, double *v);
/* Milliseconds with up to 6 (3) decimals to whole ns (us): exact as they are written;
 * a number with more digits, or an exponent, is rounded. false: null, negative or
 * beyond int64. */
bool rp_slice_fixed(const struct rp_slice *s, unsigned decimals, int64_t *v);
/* "2026-11-29T14:57:30.123456789Z" in ns since 1970; 0 to 9 digits of a fraction; until the
 * year 2200, so that a duration can be added. */
bool rp_slice_time(const struct rp_slice *s, int64_t *ns);
/* The same of a text of n bytes without quotes. */
bool rp_time_parse(const char *p, size_t n, int64_t *ns);
/* Each number of an array leaf, as rp_slice_fixed(6). false: one of them was not. */
bool rp_slice_each_ns(const struct rp_slice *s, void (*fn)(void *ctx, int64_t ns), void *ctx);

#endif
