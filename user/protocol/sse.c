/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* sse.c - incremental server-sent events and NDJSON. */
#include "protocol/sse.h"

#include <string.h>

enum { ST_LINE, ST_NAME, ST_SPACE, ST_VALUE, ST_LOST };
enum { F_OTHER, F_DATA, F_EVENT, F_COMMENT };

#define NAME_OTHER 0xff	 /* nlen: no field of interest begins so */
#define EVENT_OTHER 0xff /* elen: no event that is known */
#define BOM_DONE 0xff

static const uint8_t bom[3] = { 0xef, 0xbb, 0xbf };

/* The first CR or LF in in[i..n), or n. Eight bytes a step: with CR as the
 * line end a memchr() for each of the two would read the input once per line. */
static size_t find_eol(const uint8_t *in, size_t i, size_t n)
{
	const uint64_t ones = 0x0101010101010101, high = 0x8080808080808080;

	for (; n - i >= 8; i += 8) {
		uint64_t w, a, b;

		memcpy(&w, in + i, 8);
		a = w ^ (ones * '\n');
		b = w ^ (ones * '\r');
		if ((((a - ones) & ~a) | ((b - ones) & ~b)) & high)
			break;
	}
	while (i < n && in[i] != '\n' && in[i] != '\r')
		i++;
	return i;
}

static bool known_prefix(const char *s, size_t n)
{
	static const char known[][6] = { "data", "event", "id", "retry" };

	for (size_t k = 0; k < 4; k++)
		if (strlen(known[k]) >= n && !memcmp(s, known[k], n))
			return true;
	return false;
}

static uint8_t field_of(const struct rp_sse *p)
{
	if (p->nlen == 4 && !memcmp(p->name, "data", 4))
		return F_DATA;
	if (p->nlen == 5 && !memcmp(p->name, "event", 5))
		return F_EVENT;
	return F_OTHER;
}

static void forget_event(struct rp_sse *p)
{
	p->reset = false;
	p->has_data = false;
	p->gap = false;
	p->elen = 0;
	p->event[0] = 0;
}

static size_t give(struct rp_sse_item *item, enum rp_sse_item_type type, size_t pos, size_t len,
		   size_t used)
{
	item->type = type;
	item->pos = pos;
	item->len = len;
	return used;
}

/* A field's name is complete. True if a further data line begins. */
static bool field_begin(struct rp_sse *p)
{
	bool more = false;

	p->field = field_of(p);
	if (p->field == F_DATA) {
		more = p->has_data;
		p->has_data = true;
	} else if (p->field == F_EVENT) {
		p->elen = 0;
		p->event[0] = 0;
	}
	return more;
}

/* The line's CR or LF is at in[i]. */
static void line_end(struct rp_sse *p, uint8_t c)
{
	p->cr = c == '\r';
	p->state = ST_LINE;
	p->nlen = 0;
}

/* The events of the APIs that are read, as far as they fit. Others may be anybody's words. */
static bool event_prefix(const char *s, size_t n)
{
	static const char known[][16] = {
		"error",	   "ping",
		"message",	   "message_start",
		"message_delta",   "message_stop",
		"content_block_s", "content_block_d",
		"completion",	   "done",
		"response.create", "response.queued",
		"response.in_pro", "response.comple",
		"response.failed", "response.incomp",
		"response.output", "response.conten",
		"response.reason", "response.functi",
		"response.refusa",
	};

	for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
		if (!strncmp(known[k], s, n))
			return true;
	return false;
}

static void event_bytes(struct rp_sse *p, const uint8_t *in, uint8_t *keep, size_t i, size_t e)
{
	for (; i < e && p->elen + 1u < sizeof(p->event); i++) {
		p->event[p->elen] = (char)in[i];
		if (!in[i] || !event_prefix(p->event, p->elen + 1u)) {
			p->event[0] = 0;
			p->elen = EVENT_OTHER;
			return;
		}
		p->event[++p->elen] = 0;
		if (keep)
			keep[i] = in[i];
	}
}

static size_t next_ndjson(struct rp_sse *p, const uint8_t *in, uint8_t *keep, size_t n,
			  struct rp_sse_item *item)
{
	size_t i = 0, e;

	while (i < n) {
		if (in[i] == '\n' || in[i] == '\r') {
			bool lf = in[i] == '\n';

			if (keep)
				keep[i] = in[i];
			i++;
			/* CR is blank to JSON, before an LF or not: never data */
			if (!lf)
				continue;
			p->state = ST_LINE;
			if (p->has_data) {
				p->reset = true;
				return give(item, RP_SSE_EVENT, i, 0, i);
			}
			p->gap = false;
			continue;
		}
		e = find_eol(in, i, n);
		p->has_data = true;
		if (p->state != ST_LOST)
			return give(item, RP_SSE_DATA, i, e - i, e);
		i = e;
	}
	return give(item, RP_SSE_MORE, n, 0, n);
}

size_t rp_sse_next(struct rp_sse *p, const uint8_t *in, uint8_t *keep, size_t n,
		   struct rp_sse_item *item)
{
	size_t i = 0, e;

	if (p->reset)
		forget_event(p);
	if (p->ndjson)
		return next_ndjson(p, in, keep, n, item);

	while (i < n) {
		uint8_t c = in[i];
		bool eol = c == '\n' || c == '\r';

		if (p->cr) {
			p->cr = false;
			if (c == '\n') {
				if (keep)
					keep[i] = c;
				i++;
				continue;
			}
		}
		if (eol && keep)
			keep[i] = c;
		switch (p->state) {
		case ST_LINE:
			if (p->bom != BOM_DONE && c == bom[p->bom]) {
				if (keep)
					keep[i] = c;
				i++;
				if (++p->bom == sizeof(bom))
					p->bom = BOM_DONE;
				continue;
			}
			/* part of a mark is the start of some other name */
			p->nlen = p->bom != BOM_DONE && p->bom ? NAME_OTHER : 0;
			p->bom = BOM_DONE;
			p->state = ST_NAME;
			if (!eol || p->nlen)
				continue;
			line_end(p, c);
			i++;
			if (p->has_data) {
				p->reset = true;
				return give(item, RP_SSE_EVENT, i, 0, i);
			}
			forget_event(p);
			continue;
		case ST_NAME:
			/* by far the most frequent line, when it is all here */
			if (!p->nlen && n - i >= 5 && !memcmp(in + i, "data:", 5)) {
				if (keep)
					memcpy(keep + i, "data:", 5);
				i += 5;
				p->field = F_DATA;
				p->state = ST_SPACE;
				if (p->has_data)
					return give(item, RP_SSE_NEWLINE, i, 0, i);
				p->has_data = true;
				continue;
			}
			if (eol) {
				bool more = field_begin(p);

				/* a name alone has an empty value */
				line_end(p, c);
				i++;
				if (more)
					return give(item, RP_SSE_NEWLINE, i, 0, i);
				continue;
			}
			if (c == ':') {
				if (keep)
					keep[i] = c;
				i++;
				p->state = ST_SPACE;
				if (!p->nlen) {
					p->field = F_COMMENT;
					continue;
				}
				if (field_begin(p))
					return give(item, RP_SSE_NEWLINE, i, 0, i);
				continue;
			}
			if (p->nlen < sizeof(p->name)) {
				p->name[p->nlen++] = c;
				if (!known_prefix(p->name, p->nlen))
					p->nlen = NAME_OTHER;
				else if (keep)
					keep[i] = c;
			} else {
				p->nlen = NAME_OTHER;
			}
			i++;
			continue;
		case ST_SPACE:
			p->state = ST_VALUE;
			if (c == ' ') {
				if (keep)
					keep[i] = c;
				i++;
			}
			continue;
		case ST_VALUE:
			if (eol) {
				line_end(p, c);
				i++;
				if (p->field == F_COMMENT)
					return give(item, RP_SSE_COMMENT, i, 0, i);
				continue;
			}
			e = find_eol(in, i, n);
			if (p->field == F_DATA)
				return give(item, RP_SSE_DATA, i, e - i, e);
			if (p->field == F_EVENT)
				event_bytes(p, in, keep, i, e);
			i = e;
			continue;
		case ST_LOST:
			if (eol) {
				line_end(p, c);
				i++;
				continue;
			}
			i = find_eol(in, i, n);
			continue;
		}
	}
	return give(item, RP_SSE_MORE, n, 0, n);
}

void rp_sse_init(struct rp_sse *p, bool ndjson)
{
	memset(p, 0, sizeof(*p));
	p->ndjson = ndjson;
}

void rp_sse_gap(struct rp_sse *p)
{
	if (p->reset)
		forget_event(p);
	p->gap = true;
	p->state = ST_LOST;
	p->cr = false;
	p->bom = BOM_DONE;
}

bool rp_sse_gapped(const struct rp_sse *p)
{
	return p->gap;
}

bool rp_sse_eof(struct rp_sse *p)
{
	if (p->reset)
		forget_event(p);
	return p->ndjson && p->has_data;
}
