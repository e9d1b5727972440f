/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * http1.h - incremental HTTP/1.x framing (RFC 9112), one direction of one
 * connection per parser.
 *
 * Contract shared by all parsers here (http1, sse, json):
 *  - `in` is read, never kept: no pointer into it survives the call. Input may
 *    be split anywhere, at every byte.
 *  - no allocation, no clock, no I/O; state is a fixed-size struct.
 *  - `keep`, when not NULL, is an output of the same length as `in` that the
 *    caller has filled with 'x'. The parser copies back those bytes that may
 *    leave the machine (framing, names, ids, counts, whitelisted values) and
 *    leaves text as it is. Feeding the result to a fresh parser yields the same
 *    items and the same facts: that is what makes a recording replayable.
 *  - a value longer than its buffer is cut and its `..._cut` bit is set.
 */
#ifndef REQPROBE_HTTP1_H
#define REQPROBE_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum rp_http1_kind { RP_HTTP1_REQUEST, RP_HTTP1_RESPONSE };

enum rp_http1_item_type {
	RP_HTTP1_MORE,	   /* all input consumed, nothing else to say */
	RP_HTTP1_START,	   /* the first byte of a message is at item.pos */
	RP_HTTP1_HEAD,	   /* start line and headers complete: see p->head */
	RP_HTTP1_BODY,	   /* body bytes: item.pos, item.len (chunk framing removed) */
	RP_HTTP1_BODY_GAP, /* item.len body bytes are missing here (from rp_http1_gap) */
	RP_HTTP1_END,	   /* message complete; its last byte is at item.pos - 1 */
	RP_HTTP1_ERROR,	   /* not HTTP/1.x, or a limit: the parser stays here */
};

struct rp_http1_item {
	enum rp_http1_item_type type;
	size_t pos; /* offset in this call's `in`; an item that needs no byte has 0 */
	uint64_t len;
};

enum rp_http1_framing {
	RP_FRAMING_NONE, /* no body */
	RP_FRAMING_LENGTH,
	RP_FRAMING_CHUNKED,
	RP_FRAMING_CLOSE, /* until the connection ends */
};

#define RP_METHOD_MAX 16
#define RP_PATH_MAX 256
#define RP_XREQID_MAX 128
#define RP_HOSTHDR_MAX 128
#define RP_CTYPE_MAX 64
#define RP_CENC_MAX 16
#define RP_TRACEPARENT_MAX 56

/* What of a message head is kept. Strings are NUL-terminated, "" = absent. */
struct rp_http1_head {
	char method[RP_METHOD_MAX]; /* request */
	char path[RP_PATH_MAX]; /* request target without query and fragment; absolute-form loses scheme and authority */
	uint16_t status; /* response */
	uint8_t minor;	 /* HTTP/1.minor */
	bool keep_alive; /* after this message, by version and Connection */
	bool upgrade;	 /* 101, or CONNECT accepted: what follows is not HTTP */
	bool expect_continue;
	bool path_cut, xreqid_cut;
	enum rp_http1_framing framing;
	uint64_t content_length;	    /* valid with RP_FRAMING_LENGTH */
	char content_type[RP_CTYPE_MAX];    /* lower-cased, parameters removed */
	char content_encoding[RP_CENC_MAX]; /* lower-cased, "" or "identity" = plain */
	char x_request_id[RP_XREQID_MAX];   /* X-Request-Id, as sent */
	char traceparent[RP_TRACEPARENT_MAX];
};

struct rp_http1 {
	enum rp_http1_kind kind;
	struct rp_http1_head head;
	/* private below */
	uint8_t state;
	uint8_t hdr;	/* known header whose value is being read */
	uint8_t lit;	/* position in a literal, or digits of a number */
	uint8_t conn;	/* Connection tokens seen */
	uint8_t coding; /* transfer coding besides chunked */
	bool req_is_head, req_is_connect;
	bool te, te_chunked; /* Transfer-Encoding seen; its last coding is chunked */
	bool cl;	     /* Content-Length seen, value in head.content_length */
	bool crlf;	     /* the last chunk-size line ended with CR LF, not LF */
	bool sp, vend;	     /* blank pending; rest of the value is of no use */
	uint8_t nlen;	     /* of name; NAME_OTHER: no known header begins so */
	uint16_t vlen;	     /* of the value's buffer */
	uint16_t vraw;	     /* bytes of the value, saturates */
	uint16_t plen;
	uint32_t head_bytes; /* of this head, trailer or chunk-size line so far */
	uint64_t left;	     /* of the body or chunk; a Content-Length being read */
	char name[32];
	char val[32];
};

#define RP_HTTP1_HEAD_MAX (256 * 1024)

void rp_http1_init(struct rp_http1 *p, enum rp_http1_kind kind);

/*
 * Responses only: what the request that the next response answers was. Must be
 * called before the head of that response is complete (HEAD has no body, 2xx
 * to CONNECT switches protocols). Default: neither.
 */
void rp_http1_expect(struct rp_http1 *p, bool is_head, bool is_connect);

/*
 * Consume from in[0..n). Returns how many bytes were consumed and sets *item to
 * the one item found there. Call again with the rest until item->type is
 * RP_HTTP1_MORE (then everything was consumed) or RP_HTTP1_ERROR.
 * A call with n == 0 may still yield an item (an END that needs no byte).
 * 1xx heads (except 101) yield START, HEAD, END and are then forgotten: the
 * next head is again the final response to the same request.
 * Body spans are handed out as they arrive, without buffering. Empty lines
 * before a request line are skipped (RFC 9112 2.2) and belong to no message.
 * Transfer-Encoding wins over Content-Length. Two different Content-Lengths,
 * a bad chunk size, obs-fold beyond the limits, a head over RP_HTTP1_HEAD_MAX
 * are ERROR. LF alone ends a line, as most servers accept.
 * Start lines are strict: only the methods of RFC 9110, and PATCH, targets
 * that begin with '/', '*' or http(s):// (any after CONNECT), "HTTP/1." and a
 * digit. So text at a lost position is neither taken for a head nor kept.
 * After an upgrade a further byte is ERROR.
 */
size_t rp_http1_next(struct rp_http1 *p, const uint8_t *in, uint8_t *keep, size_t n,
		     struct rp_http1_item *item);

/*
 * n bytes of the stream were not delivered. Inside a counted body, a chunk or
 * the CR LF behind a chunk (then item->len is 0) the framing survives: yields
 * BODY_GAP (and END, via rp_http1_next with n == 0) and returns the number of
 * bytes of the gap accounted for; call again with the rest. A gap that reaches
 * into a head, a chunk-size line or beyond what is known is ERROR
 * (item->type; 0 is returned), since the position is lost: then use
 * rp_http1_resync. What follows an upgrade may have gaps: MORE. If an END is
 * owed, that is what is yielded, and 0 returned.
 */
uint64_t rp_http1_gap(struct rp_http1 *p, uint64_t n, struct rp_http1_item *item);

/* The peer ended the stream. END for RP_FRAMING_CLOSE bodies or between
 * messages (MORE if no message had begun), ERROR inside anything else. */
void rp_http1_eof(struct rp_http1 *p, struct rp_http1_item *item);

/* Forget everything; the next input is expected to start a message. */
void rp_http1_resync(struct rp_http1 *p);

/* After a loss inside a chunked body: the next input starts with a chunk-size
 * line of the same body. Only while the head of that message is known. */
void rp_http1_resync_chunk(struct rp_http1 *p);

/* True between messages: nothing of the next one was seen. */
bool rp_http1_idle(const struct rp_http1 *p);

#endif
