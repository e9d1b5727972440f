/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sse.h - incremental server-sent events (WHATWG HTML, 9.2.6), and NDJSON as
 * the same item stream. Contract: see http1.h. Nothing of an event is buffered:
 * its data is handed out as spans while it arrives.
 */
#ifndef REQPROBE_SSE_H
#define REQPROBE_SSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rp_sse_item_type {
	RP_SSE_MORE,	/* all input consumed */
	RP_SSE_DATA,	/* bytes of a data field's value: pos, len */
	RP_SSE_NEWLINE, /* a further data line of the same event starts: one LF between */
	RP_SSE_EVENT,	/* the event is complete (blank line; it had at least one data
			 * line). pos - 1 is its last byte: the CR, where CR LF ends
			 * it. `type` is in p->event until the next call */
	RP_SSE_COMMENT, /* a comment line is complete (keep-alive) */
};

struct rp_sse_item {
	enum rp_sse_item_type type;
	size_t pos, len;
};

struct rp_sse {
	bool ndjson;
	char event[16]; /* value of the `event:` field of the event being read, cut; "" unknown */
	/* private */
	uint8_t state, field, nlen, elen;
	uint8_t bom;   /* bytes of a byte-order mark seen, BOM_DONE after */
	bool has_data; /* the event being read has a data line */
	bool cr;       /* an LF now belongs to the CR before it */
	bool reset;    /* EVENT was handed out: forget it at the next call */
	bool gap;
	char name[8];
};

/* ndjson: each LF- or CRLF-terminated non-empty line is an event's data, without
 * its CRs (blank to JSON wherever they stand). */
void rp_sse_init(struct rp_sse *p, bool ndjson);

/* As rp_http1_next. CR, LF and CRLF end lines, also when split; a leading BOM
 * is skipped; one space after the colon is optional; unknown fields, id and
 * retry are skipped; a block without data is no event. NDJSON empty lines are
 * skipped. A data line's bytes reach `keep` only through the consumer of the
 * span (json.h); here field names, colons and line ends are kept, and events as far
 * as they are the beginning of one that the APIs have; comment text and unknown
 * fields are not. */
size_t rp_sse_next(struct rp_sse *p, const uint8_t *in, uint8_t *keep, size_t n,
		   struct rp_sse_item *item);

/* Bytes are missing. The rest of the line in which reading resumes is skipped,
 * and rp_sse_gapped() is true until the next EVENT, or the next blank line if no
 * data line was seen by then (no EVENT then: what the line was is unknown). An
 * NDJSON line of which the tail is seen is an EVENT, with whatever DATA came
 * before the gap. How many events the gap held is unknown. */
void rp_sse_gap(struct rp_sse *p);
bool rp_sse_gapped(const struct rp_sse *p);

/* End of the body: an NDJSON line without its LF is an event (true); an SSE
 * event without its blank line is not, by the standard (false). */
bool rp_sse_eof(struct rp_sse *p);

#endif
