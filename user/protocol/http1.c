/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * http1.c - incremental HTTP/1.x framing. Heads go byte by byte through one
 * state machine; bodies are never looked at.
 *
 * The start line is strict on purpose (known methods, "HTTP/1." literally): on
 * a stream whose position is lost, text must neither pass for a head nor be
 * kept as one.
 */
#include "protocol/http1.h"

#include <string.h>

enum state {
	ST_IDLE,
	ST_METHOD,
	ST_TARGET,
	ST_AUTHORITY,
	ST_PATH,
	ST_QUERY,
	ST_REQ_VERSION,
	ST_RSP_VERSION,
	ST_STATUS,
	ST_REASON,
	ST_LINE_LF, /* CR seen after the start line */
	ST_LINE,
	ST_NAME,
	ST_VALUE,
	ST_VALUE_LF,
	ST_HEAD_LF,
	ST_LENGTH,
	ST_CLOSE,
	ST_CHUNK_SIZE,
	ST_CHUNK_EXT,
	ST_CHUNK_LF,
	ST_CHUNK,
	ST_CHUNK_END,
	ST_CHUNK_END_LF,
	ST_TRAILER,
	ST_TRAILER_TEXT,
	ST_TRAILER_TEXT_LF,
	ST_TRAILER_LF,
	ST_DONE, /* END is owed */
	ST_UPGRADED,
	ST_ERROR,
};

enum { H_OTHER, H_CL, H_TE, H_CTYPE, H_CENC, H_CONN, H_XREQID, H_TRACE, H_EXPECT, H_HOST };

/* Names that may be kept; those with H_OTHER without their values. No name may
 * end in 'x': a scrubbed unknown name must not turn into a known one. */
static const struct {
	const char *name;
	uint8_t hdr;
} names[] = {
	{ "content-length", H_CL },
	{ "transfer-encoding", H_TE },
	{ "content-type", H_CTYPE },
	{ "content-encoding", H_CENC },
	{ "connection", H_CONN },
	{ "x-request-id", H_XREQID },
	{ "traceparent", H_TRACE },
	{ "expect", H_EXPECT },
	{ "host", H_HOST },
	{ "accept", H_OTHER },
	{ "accept-encoding", H_OTHER },
	{ "authorization", H_OTHER },
	{ "cache-control", H_OTHER },
	{ "date", H_OTHER },
	{ "server", H_OTHER },
	{ "upgrade", H_OTHER },
	{ "user-agent", H_OTHER },
};

static const char *const methods[] = {
	"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE",
};

static const char *const codings[] = { "", "gzip", "x-gzip", "deflate", "compress", "br", "zstd" };

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define NAME_OTHER 0xff
#define VALUE_MAX 512 /* of a value that is understood; the rest is not looked at */

enum { CONN_CLOSE = 1, CONN_KEEP_ALIVE = 2, CONN_UPGRADE = 4 };

/* Verdict on one byte. */
enum { V_DROP = 0, V_KEEP = 1, V_HEAD = 2, V_ERROR = 4 };

static bool is_token(uint8_t c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c > ' ' && c < 0x7f && strchr("!#$%&'*+-.^_`|~", c));
}

static uint8_t lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

static bool is_prefix(const char *s, const char *of, size_t n)
{
	return strnlen(of, n) == n && !memcmp(s, of, n);
}

static void head_reset(struct rp_http1 *p)
{
	memset(&p->head, 0, sizeof(p->head));
	p->hdr = H_OTHER;
	p->lit = p->conn = p->coding = 0;
	p->te = p->te_chunked = p->cl = p->sp = p->vend = false;
	p->nlen = 0;
	p->vlen = p->vraw = p->plen = 0;
	p->head_bytes = 0;
	p->left = 0;
}

/* A Content-Length is complete: one, or one more that must say the same. */
static bool length_done(struct rp_http1 *p)
{
	if (!p->lit || (p->cl && p->head.content_length != p->left))
		return false;
	p->cl = true;
	p->head.content_length = p->left;
	p->left = 0;
	p->lit = 0;
	p->sp = false;
	return true;
}

/* A member of a comma-separated list is complete in val. */
static void token_done(struct rp_http1 *p)
{
	size_t n = p->vlen;

	p->vlen = 0;
	p->sp = p->vend = false;
	if (!n || n >= sizeof(p->val)) {
		/* longer than any coding that is known, but a coding */
		if (n && p->hdr == H_TE) {
			p->te = true;
			p->te_chunked = false;
		}
		return;
	}
	p->val[n] = 0;
	switch (p->hdr) {
	case H_TE:
		if (!strcmp(p->val, "identity"))
			break;
		p->te = true;
		p->te_chunked = !strcmp(p->val, "chunked");
		for (size_t k = 1; k < COUNT(codings); k++)
			if (!strcmp(p->val, codings[k]))
				p->coding = k;
		break;
	case H_CONN:
		if (!strcmp(p->val, "close"))
			p->conn |= CONN_CLOSE;
		else if (!strcmp(p->val, "keep-alive"))
			p->conn |= CONN_KEEP_ALIVE;
		else if (!strcmp(p->val, "upgrade"))
			p->conn |= CONN_UPGRADE;
		break;
	case H_EXPECT:
		if (!strcmp(p->val, "100-continue"))
			p->head.expect_continue = true;
		break;
	}
}

static bool header_done(struct rp_http1 *p)
{
	bool ok = true;

	if (p->hdr == H_CL)
		ok = length_done(p);
	else if (p->hdr == H_TE || p->hdr == H_CONN || p->hdr == H_EXPECT)
		token_done(p);
	p->hdr = H_OTHER;
	return ok;
}

static void header_begin(struct rp_http1 *p)
{
	p->hdr = H_OTHER;
	if (p->nlen != NAME_OTHER)
		for (size_t k = 0; k < COUNT(names); k++)
			if (is_prefix(p->name, names[k].name, p->nlen) && !names[k].name[p->nlen])
				p->hdr = names[k].hdr;
	p->vlen = p->vraw = 0;
	p->sp = p->vend = false;
	p->lit = 0;
	p->left = 0;
	switch (p->hdr) {
	/* a repeated one replaces the first */
	case H_CTYPE:
		p->head.content_type[0] = 0;
		break;
	case H_CENC:
		p->head.content_encoding[0] = 0;
		break;
	case H_XREQID:
		p->head.x_request_id[0] = 0;
		p->head.xreqid_cut = false;
		break;
	case H_TRACE:
		p->head.traceparent[0] = 0;
		break;
	}
	p->state = ST_VALUE;
}

/* Append to a bounded string; blanks inside count as one space. */
static int copy_byte(struct rp_http1 *p, char *to, size_t max, uint8_t c)
{
	if (p->sp && p->vlen && p->vlen + 1u < max)
		to[p->vlen++] = ' ';
	p->sp = false;
	if (p->vlen + 1u >= max)
		return V_DROP;
	to[p->vlen++] = c < ' ' ? '?' : c;
	to[p->vlen] = 0;
	return V_KEEP;
}

static int length_byte(struct rp_http1 *p, uint8_t c)
{
	if (c == ',')
		return length_done(p) ? V_KEEP : V_ERROR;
	if (c < '0' || c > '9' || (p->sp && p->lit) || p->left > (UINT64_MAX / 2 - 9) / 10)
		return V_ERROR;
	p->left = p->left * 10 + (c - '0');
	p->lit = 1;
	p->sp = false;
	return V_KEEP;
}

static int list_byte(struct rp_http1 *p, uint8_t c)
{
	if (c == ',') {
		token_done(p);
		return V_KEEP;
	}
	if (c == ';') /* parameters of a coding */
		p->vend = true;
	if (p->vend)
		return V_KEEP;
	/* "a b" is no token: make it one that matches nothing */
	if (p->sp && p->vlen && p->vlen < sizeof(p->val))
		p->val[p->vlen++] = ' ';
	p->sp = false;
	if (p->vlen < sizeof(p->val))
		p->val[p->vlen++] = lower(c);
	return V_KEEP;
}

static int value_byte(struct rp_http1 *p, uint8_t c)
{
	if (p->hdr == H_OTHER)
		return V_DROP;
	if (p->vraw >= VALUE_MAX)
		return p->hdr == H_CL || p->hdr == H_TE ? V_ERROR : V_DROP;
	if (c == ' ' || c == '\t') {
		p->sp = true;
		return V_KEEP;
	}
	p->vraw++;
	switch (p->hdr) {
	case H_CL:
		return length_byte(p, c);
	case H_TE:
	case H_CONN:
	case H_EXPECT:
		return list_byte(p, c);
	case H_CTYPE:
		if (p->vend)
			return V_DROP;
		if (c == ';') {
			p->vend = true;
			return V_KEEP;
		}
		return copy_byte(p, p->head.content_type, RP_CTYPE_MAX, lower(c));
	case H_CENC:
		return copy_byte(p, p->head.content_encoding, RP_CENC_MAX, lower(c));
	case H_XREQID:
		if (copy_byte(p, p->head.x_request_id, RP_XREQID_MAX, c) == V_KEEP)
			return V_KEEP;
		p->head.xreqid_cut = true;
		return V_DROP;
	case H_TRACE:
		return copy_byte(p, p->head.traceparent, RP_TRACEPARENT_MAX, c);
	case H_HOST:
		return p->vraw < RP_HOSTHDR_MAX ? V_KEEP : V_DROP;
	}
	return V_DROP;
}

/* RFC 9112 6.3. */
static int head_done(struct rp_http1 *p)
{
	struct rp_http1_head *h = &p->head;
	bool none = false;

	h->keep_alive = p->conn & CONN_CLOSE ? false :
			h->minor	     ? true :
					       !!(p->conn & CONN_KEEP_ALIVE);
	if (p->kind == RP_HTTP1_RESPONSE) {
		h->upgrade = h->status == 101 || (p->req_is_connect && h->status / 100 == 2);
		none = h->upgrade || p->req_is_head || h->status / 100 == 1 || h->status == 204 ||
		       h->status == 304;
	}
	if (p->te && p->coding && !h->content_encoding[0])
		strcpy(h->content_encoding, codings[p->coding]);

	p->left = 0;
	p->lit = 0;
	p->head_bytes = 0;
	if (none) {
		h->framing = RP_FRAMING_NONE;
		p->state = ST_DONE;
	} else if (p->te && p->te_chunked) {
		h->framing = RP_FRAMING_CHUNKED;
		p->state = ST_CHUNK_SIZE;
	} else if (p->te && p->kind == RP_HTTP1_REQUEST) {
		return V_KEEP | V_ERROR;
	} else if (p->cl && !p->te) {
		h->framing = RP_FRAMING_LENGTH;
		p->left = h->content_length;
		p->state = p->left ? ST_LENGTH : ST_DONE;
	} else if (p->kind == RP_HTTP1_REQUEST) {
		h->framing = RP_FRAMING_NONE;
		p->state = ST_DONE;
	} else {
		h->framing = RP_FRAMING_CLOSE;
		h->keep_alive = false;
		p->state = ST_CLOSE;
	}
	if (h->framing != RP_FRAMING_LENGTH)
		h->content_length = 0;
	return V_KEEP | V_HEAD;
}

static int method_byte(struct rp_http1 *p, uint8_t c)
{
	char *m = p->head.method;

	if (c == ' ') {
		for (size_t k = 0; k < COUNT(methods); k++)
			if (!strcmp(m, methods[k])) {
				p->state = ST_TARGET;
				p->lit = 0;
				p->nlen = 0;
				return V_KEEP;
			}
		return V_ERROR;
	}
	m[p->nlen++] = c;
	for (size_t k = 0; k < COUNT(methods); k++)
		if (is_prefix(m, methods[k], p->nlen))
			return V_KEEP;
	return V_ERROR;
}

static int path_byte(struct rp_http1 *p, uint8_t c)
{
	if (p->plen + 1u >= RP_PATH_MAX) {
		p->head.path_cut = true;
		return V_DROP;
	}
	p->head.path[p->plen++] = c;
	return V_KEEP;
}

static int target_end(struct rp_http1 *p)
{
	if (!p->plen)
		return V_ERROR;
	p->lit = 0;
	p->state = ST_REQ_VERSION;
	return V_KEEP;
}

static int target_byte(struct rp_http1 *p, uint8_t c)
{
	static const char http[] = "http://", https[] = "https://";
	const struct rp_http1_head *h = &p->head;

	if (c != ' ' && (c < ' ' || c == 0x7f))
		return V_ERROR;
	switch (p->state) {
	case ST_TARGET:
		if (p->lit == 0 && (c == '/' || c == '*' || h->method[0] == 'C')) {
			if (c == ' ')
				return V_ERROR;
			p->state = ST_PATH;
			return path_byte(p, c);
		}
		/* absolute-form: p->lit < 5 leaves both schemes open */
		c = lower(c);
		if (c == (uint8_t)http[p->lit] && !(p->lit >= 5 && p->vend)) {
			if (!http[++p->lit])
				p->state = ST_AUTHORITY;
		} else if (c == (uint8_t)https[p->lit] && (p->lit == 4 || p->vend)) {
			p->vend = true;
			if (!https[++p->lit])
				p->state = ST_AUTHORITY;
		} else {
			return V_ERROR;
		}
		return V_KEEP;
	case ST_AUTHORITY:
		if (c == '/') {
			p->state = ST_PATH;
			return path_byte(p, c);
		}
		if (c == ' ' || c == '?' || c == '#') {
			path_byte(p, '/');
			if (c == ' ')
				return target_end(p);
			p->state = ST_QUERY;
			return V_KEEP;
		}
		return V_DROP;
	case ST_PATH:
		if (c == ' ')
			return target_end(p);
		if (c == '?' || c == '#') {
			p->state = ST_QUERY;
			return V_KEEP;
		}
		return path_byte(p, c);
	default: /* ST_QUERY */
		return c == ' ' ? target_end(p) : V_DROP;
	}
}

/* "HTTP/1." and the digit after it; true while it fits. */
static bool version_byte(struct rp_http1 *p, uint8_t c)
{
	static const char lit[] = "HTTP/1.";

	if (p->lit < 7)
		return c == (uint8_t)lit[p->lit++];
	p->lit++;
	p->head.minor = c - '0';
	return c >= '0' && c <= '9';
}

static int start_byte(struct rp_http1 *p, uint8_t c)
{
	switch (p->state) {
	case ST_METHOD:
		return method_byte(p, c);
	case ST_REQ_VERSION:
		if (p->lit < 8)
			return version_byte(p, c) ? V_KEEP : V_ERROR;
		if (c != '\r' && c != '\n')
			return V_ERROR;
		p->state = c == '\r' ? ST_LINE_LF : ST_LINE;
		return V_KEEP;
	case ST_RSP_VERSION:
		if (p->lit < 8)
			return version_byte(p, c) ? V_KEEP : V_ERROR;
		if (c != ' ')
			return V_ERROR;
		p->state = ST_STATUS;
		p->lit = 0;
		return V_KEEP;
	case ST_STATUS:
		if (p->lit < 3) {
			if (c < '0' + !p->lit || c > '9')
				return V_ERROR;
			p->head.status = p->head.status * 10 + (c - '0');
			p->lit++;
			return V_KEEP;
		}
		if (c == ' ')
			p->state = ST_REASON;
		else if (c == '\r' || c == '\n')
			p->state = c == '\r' ? ST_LINE_LF : ST_LINE;
		else
			return V_ERROR;
		return V_KEEP;
	case ST_REASON:
		if (c != '\r' && c != '\n')
			return V_DROP;
		p->state = c == '\r' ? ST_LINE_LF : ST_LINE;
		return V_KEEP;
	default: /* ST_LINE_LF */
		if (c != '\n')
			return V_ERROR;
		p->state = ST_LINE;
		return V_KEEP;
	}
}

static int name_byte(struct rp_http1 *p, uint8_t c)
{
	if (c == ':') {
		header_begin(p);
		return V_KEEP;
	}
	if (!is_token(c))
		return V_ERROR;
	if (p->nlen >= sizeof(p->name))
		p->nlen = NAME_OTHER;
	if (p->nlen == NAME_OTHER)
		return V_DROP;
	p->name[p->nlen++] = lower(c);
	for (size_t k = 0; k < COUNT(names); k++)
		if (is_prefix(p->name, names[k].name, p->nlen))
			return V_KEEP;
	p->nlen = NAME_OTHER;
	return V_DROP;
}

static int head_byte(struct rp_http1 *p, uint8_t c)
{
	if (++p->head_bytes > RP_HTTP1_HEAD_MAX)
		return V_ERROR;
	switch (p->state) {
	case ST_TARGET:
	case ST_AUTHORITY:
	case ST_PATH:
	case ST_QUERY:
		return target_byte(p, c);
	case ST_LINE:
		/* the header before this line ends here, unless it is folded */
		if (c == ' ' || c == '\t') {
			if (!p->nlen) /* there was none */
				return V_ERROR;
			p->sp = true;
			p->state = ST_VALUE;
			return V_KEEP;
		}
		if (!header_done(p))
			return V_ERROR;
		if (c == '\n')
			return head_done(p);
		if (c == '\r') {
			p->state = ST_HEAD_LF;
			return V_KEEP;
		}
		if (c == ':') /* a header has a name */
			return V_ERROR;
		p->nlen = 0;
		p->state = ST_NAME;
		return name_byte(p, c);
	case ST_NAME:
		return name_byte(p, c);
	case ST_VALUE:
		if (c == '\r' || c == '\n') {
			p->state = c == '\r' ? ST_VALUE_LF : ST_LINE;
			return V_KEEP;
		}
		return value_byte(p, c);
	case ST_VALUE_LF:
		if (c != '\n')
			return V_ERROR;
		p->state = ST_LINE;
		return V_KEEP;
	case ST_HEAD_LF:
		return c == '\n' ? head_done(p) : V_ERROR;
	default:
		return start_byte(p, c);
	}
}

static int hex(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = lower(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void chunk_size_done(struct rp_http1 *p, bool crlf)
{
	p->crlf = crlf;
	p->state = p->left ? ST_CHUNK : ST_TRAILER;
	p->head_bytes = 0;
	p->lit = 0;
}

/* What surrounds the chunks, and the trailer. */
static int chunk_byte(struct rp_http1 *p, uint8_t c)
{
	int d;

	if (++p->head_bytes > RP_HTTP1_HEAD_MAX)
		return V_ERROR;
	switch (p->state) {
	case ST_CHUNK_SIZE:
		d = hex(c);
		if (d >= 0) {
			if (p->left >> 59 || p->lit == UINT8_MAX)
				return V_ERROR;
			p->left = p->left << 4 | d;
			p->lit++;
			return V_KEEP;
		}
		if (!p->lit)
			return V_ERROR;
		if (c == ';' || c == ' ' || c == '\t')
			p->state = ST_CHUNK_EXT;
		else if (c == '\r')
			p->state = ST_CHUNK_LF;
		else if (c == '\n')
			chunk_size_done(p, false);
		else
			return V_ERROR;
		return V_KEEP;
	case ST_CHUNK_EXT:
		if (c == '\r')
			p->state = ST_CHUNK_LF;
		else if (c == '\n')
			chunk_size_done(p, false);
		else
			return V_DROP;
		return V_KEEP;
	case ST_CHUNK_LF:
		if (c != '\n')
			return V_ERROR;
		chunk_size_done(p, true);
		return V_KEEP;
	case ST_CHUNK_END:
	case ST_CHUNK_END_LF:
		if (c == '\r' && p->state == ST_CHUNK_END) {
			p->state = ST_CHUNK_END_LF;
			return V_KEEP;
		}
		if (c != '\n')
			return V_ERROR;
		p->state = ST_CHUNK_SIZE;
		p->head_bytes = 0;
		return V_KEEP;
	case ST_TRAILER:
		p->state = c == '\n' ? ST_DONE : c == '\r' ? ST_TRAILER_LF : ST_TRAILER_TEXT;
		return c == '\n' || c == '\r' ? V_KEEP : V_DROP;
	case ST_TRAILER_TEXT:
		if (c == '\r')
			p->state = ST_TRAILER_TEXT_LF;
		else if (c == '\n')
			p->state = ST_TRAILER;
		else
			return c == ':' ? V_KEEP : V_DROP;
		return V_KEEP;
	case ST_TRAILER_TEXT_LF:
		if (c != '\n')
			return V_ERROR;
		p->state = ST_TRAILER;
		return V_KEEP;
	default: /* ST_TRAILER_LF */
		if (c != '\n')
			return V_ERROR;
		p->state = ST_DONE;
		return V_KEEP;
	}
}

static size_t give(struct rp_http1_item *item, enum rp_http1_item_type type, size_t pos,
		   uint64_t len, size_t used)
{
	item->type = type;
	item->pos = pos;
	item->len = len;
	return used;
}

static size_t message_end(struct rp_http1 *p, struct rp_http1_item *item, size_t pos)
{
	bool interim = p->head.status / 100 == 1 && !p->head.upgrade;

	if (p->kind == RP_HTTP1_RESPONSE && !interim)
		p->req_is_head = p->req_is_connect = false;
	p->state = p->head.upgrade ? ST_UPGRADED : ST_IDLE;
	return give(item, RP_HTTP1_END, pos, 0, pos);
}

size_t rp_http1_next(struct rp_http1 *p, const uint8_t *in, uint8_t *keep, size_t n,
		     struct rp_http1_item *item)
{
	size_t i = 0, m;
	int v;

	if (p->state == ST_DONE)
		return message_end(p, item, 0);
	if (p->state == ST_ERROR)
		return give(item, RP_HTTP1_ERROR, 0, 0, 0);

	while (i < n) {
		switch (p->state) {
		case ST_IDLE:
			if (in[i] == '\r' || in[i] == '\n') {
				if (keep)
					keep[i] = in[i];
				i++;
				continue;
			}
			head_reset(p);
			p->state = p->kind == RP_HTTP1_REQUEST ? ST_METHOD : ST_RSP_VERSION;
			return give(item, RP_HTTP1_START, i, 0, i);
		case ST_LENGTH:
		case ST_CHUNK:
			m = n - i < p->left ? n - i : p->left;
			p->left -= m;
			if (!p->left)
				p->state = p->state == ST_CHUNK ? ST_CHUNK_END : ST_DONE;
			return give(item, RP_HTTP1_BODY, i, m, i + m);
		case ST_CLOSE:
			return give(item, RP_HTTP1_BODY, i, n - i, n);
		case ST_UPGRADED:
			p->state = ST_ERROR;
			return give(item, RP_HTTP1_ERROR, i, 0, i);
		}
		v = p->state < ST_LENGTH ? head_byte(p, in[i]) : chunk_byte(p, in[i]);
		/* the byte that is an error must be one again */
		if (keep && v)
			keep[i] = in[i];
		if (v & V_ERROR) {
			p->state = ST_ERROR;
			return give(item, RP_HTTP1_ERROR, i, 0, i);
		}
		i++;
		if (v & V_HEAD)
			return give(item, RP_HTTP1_HEAD, i, 0, i);
		if (p->state == ST_DONE)
			return message_end(p, item, i);
	}
	return give(item, RP_HTTP1_MORE, n, 0, n);
}

uint64_t rp_http1_gap(struct rp_http1 *p, uint64_t n, struct rp_http1_item *item)
{
	uint64_t m = n;

	switch (p->state) {
	case ST_DONE:
		message_end(p, item, 0);
		return 0;
	case ST_UPGRADED:
		give(item, RP_HTTP1_MORE, 0, 0, 0);
		return n;
	}
	if (!n && p->state != ST_ERROR) {
		give(item, RP_HTTP1_MORE, 0, 0, 0);
		return 0;
	}
	switch (p->state) {
	case ST_LENGTH:
	case ST_CHUNK:
		if (m > p->left)
			m = p->left;
		p->left -= m;
		if (!p->left)
			p->state = p->state == ST_CHUNK ? ST_CHUNK_END : ST_DONE;
		/* fall through */
	case ST_CLOSE:
		give(item, RP_HTTP1_BODY_GAP, 0, m, 0);
		return m;
	case ST_CHUNK_END:
	case ST_CHUNK_END_LF:
		/*
		 * CR LF is all that can stand here: a call's tail often ends with
		 * it. A peer that writes LF alone leaves the length unknown.
		 */
		if (!p->crlf) {
			p->state = ST_ERROR;
			give(item, RP_HTTP1_ERROR, 0, 0, 0);
			return 0;
		}
		m = p->state == ST_CHUNK_END && n > 1 ? 2 : 1;
		p->state = p->state == ST_CHUNK_END && m == 1 ? ST_CHUNK_END_LF : ST_CHUNK_SIZE;
		p->head_bytes = 0;
		give(item, RP_HTTP1_BODY_GAP, 0, 0, 0);
		return m;
	default:
		p->state = ST_ERROR;
		give(item, RP_HTTP1_ERROR, 0, 0, 0);
		return 0;
	}
}

void rp_http1_eof(struct rp_http1 *p, struct rp_http1_item *item)
{
	switch (p->state) {
	case ST_CLOSE:
	case ST_DONE:
		message_end(p, item, 0);
		break;
	case ST_IDLE:
	case ST_UPGRADED:
		give(item, RP_HTTP1_MORE, 0, 0, 0);
		break;
	default:
		p->state = ST_ERROR;
		give(item, RP_HTTP1_ERROR, 0, 0, 0);
	}
}

void rp_http1_init(struct rp_http1 *p, enum rp_http1_kind kind)
{
	memset(p, 0, sizeof(*p));
	p->kind = kind;
}

void rp_http1_expect(struct rp_http1 *p, bool is_head, bool is_connect)
{
	p->req_is_head = is_head;
	p->req_is_connect = is_connect;
}

void rp_http1_resync(struct rp_http1 *p)
{
	rp_http1_init(p, p->kind);
}

void rp_http1_resync_chunk(struct rp_http1 *p)
{
	p->state = ST_CHUNK_SIZE;
	p->left = 0;
	p->lit = 0;
	p->head_bytes = 0;
}

bool rp_http1_idle(const struct rp_http1 *p)
{
	return p->state == ST_IDLE;
}
