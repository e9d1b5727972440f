/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Unit tests of protocol/http1.c. */
#include "util.h"

#include "protocol/http1.h"

/*
 * Controls in a script: G gap, E end of stream, H the next response answers
 * HEAD, C it answers CONNECT, R resync, K resync at a chunk-size line.
 *
 * The story: S start; H[...] head; "..." body; G5 gap; E end; ! error; . end of
 * stream between messages; ~ the parser is left inside a message.
 */
struct ctx {
	enum rp_http1_kind kind;
	struct rp_http1 p;
	uint64_t at; /* of the stream */
	bool body;   /* the last item was BODY */
	uint64_t body_from, body_to;
	struct log facts, story;
};

static void body_flush(struct ctx *c)
{
	if (!c->body)
		return;
	c->body = false;
	log_add(&c->facts, " B%llu-%llu", (unsigned long long)c->body_from,
		(unsigned long long)c->body_to);
	log_add(&c->story, "\"");
}

static void head_say(struct ctx *c)
{
	static const char *const framing[] = { "none", "length", "chunked", "close" };
	const struct rp_http1_head *h = &c->p.head;
	struct log l = { 0 };

	if (c->kind == RP_HTTP1_REQUEST)
		log_add(&l, "%s %s%s", h->method, h->path, h->path_cut ? " path_cut" : "");
	else
		log_add(&l, "%u", h->status);
	log_add(&l, " %s", framing[h->framing]);
	if (h->framing == RP_FRAMING_LENGTH)
		log_add(&l, "=%llu", (unsigned long long)h->content_length);
	else
		assert_int_equal(h->content_length, 0);
	if (h->minor != 1)
		log_add(&l, " 1.%u", h->minor);
	if (!h->keep_alive)
		log_add(&l, " close");
	if (h->upgrade)
		log_add(&l, " upgrade");
	if (h->expect_continue)
		log_add(&l, " expect");
	if (h->content_type[0])
		log_add(&l, " ct=%s", h->content_type);
	if (h->content_encoding[0])
		log_add(&l, " ce=%s", h->content_encoding);
	if (h->x_request_id[0])
		log_add(&l, " xid%s=%s", h->xreqid_cut ? "_cut" : "", h->x_request_id);
	if (h->traceparent[0])
		log_add(&l, " tp=%s", h->traceparent);
	log_add(&c->facts, " H[%s]@%llu", l.s, (unsigned long long)c->at);
	log_add(&c->story, " H[%s]", l.s);
	free(l.s);
}

static void say(struct ctx *c, const struct rp_http1_item *it, const uint8_t *in, size_t used)
{
	unsigned long long pos = c->at + it->pos;

	if (it->type != RP_HTTP1_BODY && it->type != RP_HTTP1_MORE)
		body_flush(c);
	c->at += used;
	switch (it->type) {
	case RP_HTTP1_START:
		log_add(&c->facts, " S@%llu", pos);
		log_add(&c->story, " S");
		break;
	case RP_HTTP1_HEAD:
		assert_int_equal(pos, c->at);
		head_say(c);
		break;
	case RP_HTTP1_BODY:
		assert_true(it->len > 0);
		if (!c->body) {
			log_add(&c->story, " \"");
			c->body_from = c->body_to = pos;
		}
		assert_int_equal(c->body_to, pos);
		c->body_to = pos + it->len;
		c->body = true;
		log_bytes(&c->story, in + it->pos, it->len);
		/* chunks apart count as apart */
		if (used < it->pos + it->len)
			fail();
		break;
	case RP_HTTP1_BODY_GAP:
		log_add(&c->facts, " G%llu@%llu", (unsigned long long)it->len, pos);
		log_add(&c->story, " G%llu", (unsigned long long)it->len);
		break;
	case RP_HTTP1_END:
		log_add(&c->facts, " E@%llu", pos);
		log_add(&c->story, " E");
		break;
	case RP_HTTP1_ERROR:
		log_add(&c->facts, " !@%llu", pos);
		log_add(&c->story, " !");
		break;
	case RP_HTTP1_MORE:
		break;
	}
}

static void t_open(void *v)
{
	struct ctx *c = v;

	memset(&c->p, 0xa5, sizeof(c->p));
	rp_http1_init(&c->p, c->kind);
	assert_true(rp_http1_idle(&c->p));
	c->at = 0;
	c->body = false;
	c->facts.n = c->story.n = 0;
	log_bytes(&c->facts, "", 0);
	log_bytes(&c->story, "", 0);
}

/* The error was told already: the parser has to stay there. */
static bool failed(const struct ctx *c)
{
	return memchr(log_str(&c->story), '!', c->story.n) != NULL;
}

static void t_feed(void *v, const uint8_t *in, uint8_t *keep, size_t n)
{
	struct ctx *c = v;
	struct rp_http1_item it;
	size_t i = 0, used;
	bool was = failed(c);

	for (;;) {
		/* chunks are apart in the stream, so are their spans */
		used = rp_http1_next(&c->p, in + i, keep ? keep + i : NULL, n - i, &it);
		assert_true(used <= n - i);
		if (was) {
			assert_int_equal(it.type, RP_HTTP1_ERROR);
			return;
		}
		if (it.type == RP_HTTP1_BODY && c->body && c->body_to != c->at + it.pos)
			body_flush(c);
		say(c, &it, in + i, used);
		i += used;
		if (it.type == RP_HTTP1_ERROR)
			return;
		if (it.type == RP_HTTP1_MORE) {
			assert_int_equal(i, n);
			return;
		}
	}
}

static void t_ctl(void *v, const struct ctl *ctl)
{
	struct ctx *c = v;
	struct rp_http1_item it;
	uint64_t n = ctl->arg, used;

	if (ctl->op == 'R' || ctl->op == 'K') {
		if (ctl->op == 'R') {
			rp_http1_resync(&c->p);
			assert_true(rp_http1_idle(&c->p));
		} else {
			rp_http1_resync_chunk(&c->p);
		}
		body_flush(c);
		c->story.n = c->facts.n = 0;
		log_add(&c->story, " %c", ctl->op);
		log_add(&c->facts, " %c", ctl->op);
		return;
	}
	if (failed(c))
		return;
	switch (ctl->op) {
	case 'G':
		while (n) {
			used = rp_http1_gap(&c->p, n, &it);
			assert_true(used <= n);
			say(c, &it, NULL, 0);
			n -= used;
			if (it.type == RP_HTTP1_ERROR)
				break;
			t_feed(c, (const uint8_t *)"", NULL, 0);
		}
		break;
	case 'E':
		rp_http1_eof(&c->p, &it);
		body_flush(c);
		if (it.type == RP_HTTP1_MORE)
			log_add(&c->story, " .");
		say(c, &it, NULL, 0);
		break;
	case 'H':
	case 'C':
		rp_http1_expect(&c->p, ctl->op == 'H', ctl->op == 'C');
		break;
	default:
		fail();
	}
}

static void t_close(void *v)
{
	struct ctx *c = v;

	body_flush(c);
	if (!rp_http1_idle(&c->p) && !failed(c)) {
		log_add(&c->story, " ~");
		log_add(&c->facts, " ~");
	}
}

static struct log *t_facts(void *v)
{
	return &((struct ctx *)v)->facts;
}

static struct log *t_story(void *v)
{
	return &((struct ctx *)v)->story;
}

static const struct subject subject = { t_open, t_feed, t_ctl, t_close, t_facts, t_story };

static void check(enum rp_http1_kind kind, const char *name, const char *text, size_t n,
		  const char *want)
{
	static struct ctx c;

	c.kind = kind;
	check_script(&subject, &c, name, text, n, want);
}

struct item {
	const char *name, *in, *want;
};

static void table(enum rp_http1_kind kind, const struct item *t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		check(kind, t[i].name, t[i].in, strlen(t[i].in), t[i].want);
}

#define POST "POST /v1/chat/completions HTTP/1.1\r\n"
#define OK "HTTP/1.1 200 OK\r\n"
#define CHUNKED OK "Transfer-Encoding: chunked\r\n\r\n"

static void requests(void **state)
{
	static const struct item t[] = {
		{ "length",
		  POST
		  "Host: h:8000\r\nUser-Agent: " MARKER "\r\nAuthorization: Bearer " MARKER "\r\n"
		  "X-" MARKER ": " MARKER "\r\nContent-Type: Application/JSON; charset=" MARKER
		  "\r\n"
		  "X-Request-Id:  r 1 \t\r\ntraceparent: 00-ab-cd-01\r\nContent-Length: 5\r\n\r\nhello",
		  " S H[POST /v1/chat/completions length=5 ct=application/json xid=r 1 tp=00-ab-cd-01] \"hello\" E" },
		{ "none", "GET /health?q=" MARKER " HTTP/1.1\r\n\r\n", " S H[GET /health none] E" },
		{ "length 0", POST "Content-Length: 0\r\n\r\n",
		  " S H[POST /v1/chat/completions length=0] E" },
		{ "pipelined",
		  "GET /a HTTP/1.1\r\n\r\n" POST
		  "content-length:2\n\nab\r\n\r\n\nGET /b HTTP/1.0\n\n",
		  " S H[GET /a none] E S H[POST /v1/chat/completions length=2] \"ab\" E S H[GET /b none 1.0 close] E" },
		{ "empty lines first", "\r\n\n\r\nGET / HTTP/1.1\r\n\r\n\1E;",
		  " S H[GET / none] E ." },
		{ "chunked",
		  POST
		  "Transfer-Encoding: chunked\r\nExpect: 100-Continue\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		  " S H[POST /v1/chat/completions chunked expect] \"abc\" E" },
		{ "TE and CL",
		  POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
		  " S H[POST /v1/chat/completions chunked] \"a\" E" },
		{ "TE not chunked last", POST "Transfer-Encoding: chunked, gzip\r\n\r\n", " S !" },
		{ "TE, two headers",
		  POST "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		  " S H[POST /v1/chat/completions chunked ce=gzip] E" },
		{ "TE identity", POST "Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\na",
		  " S H[POST /v1/chat/completions length=1] \"a\" E" },
		{ "TE nonsense", POST "Transfer-Encoding: xchunked\r\n\r\n", " S !" },
		{ "equal lengths", POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
		  " S H[POST /v1/chat/completions length=1] \"a\" E" },
		{ "equal lengths, list", POST "Content-Length: 1, 01\r\n\r\na",
		  " S H[POST /v1/chat/completions length=1] \"a\" E" },
		{ "two lengths", POST "Content-Length: 1\r\nContent-Length: 2\r\n\r\na", " S !" },
		{ "two lengths, list", POST "Content-Length: 1, 2\r\n\r\na", " S !" },
		{ "no length", POST "Content-Length: \r\n\r\n", " S !" },
		{ "bad length", POST "Content-Length: 1a\r\n\r\n", " S !" },
		{ "bad length 2", POST "Content-Length: 1 2\r\n\r\n", " S !" },
		{ "bad length 3", POST "Content-Length: -1\r\n\r\n", " S !" },
		{ "huge length", POST "Content-Length: 99999999999999999999\r\n\r\n", " S !" },
		{ "large length", POST "Content-Length: 4611686018427387904\r\n\r\na",
		  " S H[POST /v1/chat/completions length=4611686018427387904] \"a\" ~" },
		{ "folded",
		  POST
		  "Content-Type:\r\n application/json\r\nX-Request-Id: a\r\n\tb\r\nX-Y: " MARKER
		  "\r\n  " MARKER "\r\n\r\n",
		  " S H[POST /v1/chat/completions none ct=application/json xid=a b] E" },
		{ "fold of nothing", POST " a: b\r\n\r\n", " S !" },
		{ "absolute",
		  "GET http://user:" MARKER "@h:80/v1/models?x=" MARKER " HTTP/1.1\r\n\r\n",
		  " S H[GET /v1/models none] E" },
		{ "absolute, https", "GET HTTPS://h?" MARKER " HTTP/1.1\r\n\r\n",
		  " S H[GET / none] E" },
		{ "absolute, no path", "GET http://h HTTP/1.1\r\n\r\n", " S H[GET / none] E" },
		{ "other scheme", "GET ftp://h/ HTTP/1.1\r\n\r\n", " S !" },
		{ "mixed scheme", "GET httpss://h/ HTTP/1.1\r\n\r\n", " S !" },
		{ "asterisk", "OPTIONS * HTTP/1.1\r\n\r\n", " S H[OPTIONS * none] E" },
		{ "connect", "CONNECT h:443 HTTP/1.1\r\n\r\n", " S H[CONNECT h:443 none] E" },
		{ "fragment", "GET /a#" MARKER "?b HTTP/1.1\r\n\r\n", " S H[GET /a none] E" },
		{ "connection", POST "Connection: Keep-Alive, Close\r\n\r\n",
		  " S H[POST /v1/chat/completions none close] E" },
		{ "1.0 keep-alive", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		  " S H[GET / none 1.0] E" },
		{ "connection, long token",
		  POST "Connection: keep-alive-but-much-longer-than-any-token-is-and-more\r\n\r\n",
		  " S H[POST /v1/chat/completions none] E" },
		{ "HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", " S !" },
		{ "HTTP/2 version", "GET / HTTP/2.0\r\n\r\n", " S !" },
		{ "HTTP/0.9", "GET /\r\n", " S !" },
		{ "TLS", "\x16\x03\x03\x02", " S !" },
		{ "text", MARKER " is no request", " S !" },
		{ "text 2", "POST {\"prompt\":\"" MARKER "\"} HTTP/1.1\r\n\r\n", " S !" },
		{ "no target", "GET  HTTP/1.1\r\n\r\n", " S !" },
		{ "lower case", "get / HTTP/1.1\r\n\r\n", " S !" },
		{ "method too long", "POSTS / HTTP/1.1\r\n\r\n", " S !" },
		{ "method cut", "POS / HTTP/1.1\r\n\r\n", " S !" },
		{ "CR alone", POST "a: b\rc\r\n\r\n", " S !" },
		{ "no colon", POST "abc\r\n\r\n", " S !" },
		{ "no name", POST ": abc\r\n\r\n", " S !" },
		{ "space before colon", POST "Content-Length : 5\r\n\r\n", " S !" },
		{ "after an error", "x\1R;GET / HTTP/1.1\r\n\r\n", " R S H[GET / none] E" },
		{ "gap between", "GET / HTTP/1.1\r\n\r\n\1G3;", " S H[GET / none] E !" },
		{ "gap in a head", "GET / HT\1G3;TP/1.1\r\n\r\n", " S !" },
		{ "gap first", "\1G3;GET / HTTP/1.1\r\n\r\n", " !" },
		{ "gap, resync", "GET / HT\1G3;abc\1R;GET /b HTTP/1.1\r\n\r\n",
		  " R S H[GET /b none] E" },
		{ "gap in the body", POST "Content-Length: 10\r\n\r\nabc\1G5;de",
		  " S H[POST /v1/chat/completions length=10] \"abc\" G5 \"de\" E" },
		{ "gap to the end", POST "Content-Length: 10\r\n\r\nabc\1G7;GET / HTTP/1.1\r\n\r\n",
		  " S H[POST /v1/chat/completions length=10] \"abc\" G7 E S H[GET / none] E" },
		{ "gap of all", POST "Content-Length: 4\r\n\r\n\1G4;",
		  " S H[POST /v1/chat/completions length=4] G4 E" },
		{ "two gaps", POST "Content-Length: 9\r\n\r\n\1G4;\1G5;",
		  " S H[POST /v1/chat/completions length=9] G4 G5 E" },
		{ "gap over the end",
		  POST "Content-Length: 10\r\n\r\nabc\1G8;GET / HTTP/1.1\r\n\r\n",
		  " S H[POST /v1/chat/completions length=10] \"abc\" G7 E !" },
		{ "eof in a method", "GE\1E;", " S !" },
		{ "eof in a target", "GET /\1E;", " S !" },
		{ "eof in a version", "GET / HTTP\1E;", " S !" },
		{ "eof after the line", POST "\1E;", " S !" },
		{ "eof in a name", POST "ab\1E;", " S !" },
		{ "eof in a value", POST "ab: c\1E;", " S !" },
		{ "eof in the last line", POST "ab: c\r\n\r\1E;", " S !" },
		{ "eof in a body", POST "Content-Length: 2\r\n\r\na\1E;",
		  " S H[POST /v1/chat/completions length=2] \"a\" !" },
		{ "eof at once", "\1E;", " ." },
		{ "eof after empty lines", "\r\n\1E;", " ." },
	};
	struct log l = { 0 }, w = { 0 };

	(void)state;
	table(RP_HTTP1_REQUEST, t, COUNT_OF(t));

	log_add(&l, "GET /");
	log_add(&w, " S H[GET /");
	for (int i = 0; i < 400; i++)
		log_add(&l, "p");
	for (int i = 0; i < RP_PATH_MAX - 2; i++)
		log_add(&w, "p");
	log_add(&l, "/" MARKER "?" MARKER " HTTP/1.1\r\nX-Request-Id: ");
	for (int i = 0; i < 200; i++)
		log_add(&l, "r");
	log_add(&l, MARKER "\r\n\r\n");
	log_add(&w, " path_cut none xid_cut=");
	for (int i = 0; i < RP_XREQID_MAX - 1; i++)
		log_add(&w, "r");
	log_add(&w, "] E");
	check(RP_HTTP1_REQUEST, "long path", l.s, l.n, w.s);
	/* an id that just fits is not cut */
	l.n = w.n = 0;
	log_add(&l, "GET / HTTP/1.1\r\nX-Request-Id: %0*d \r\n\r\n", RP_XREQID_MAX - 1, 7);
	log_add(&w, " S H[GET / none xid=%0*d] E", RP_XREQID_MAX - 1, 7);
	check(RP_HTTP1_REQUEST, "long id", l.s, l.n, w.s);

	/* a value too long to be understood must not be understood in part */
	l.n = 0;
	log_add(&l, POST "Transfer-Encoding: ");
	for (int i = 0; i < 200; i++)
		log_add(&l, "gzip, ");
	log_add(&l, "chunked\r\n\r\n0\r\n\r\n");
	check(RP_HTTP1_REQUEST, "long TE", l.s, l.n, " S !");

	for (int over = 0; over < 2; over++) {
		const size_t fixed = strlen("GET / HTTP/1.1\r\nA: \r\n\r\n");

		l.n = 0;
		log_add(&l, "GET / HTTP/1.1\r\nA: ");
		while (l.n < RP_HTTP1_HEAD_MAX + over - fixed + strlen("GET / HTTP/1.1\r\nA: "))
			log_bytes(&l, "v", 1);
		log_add(&l, "\r\n\r\n");
		check(RP_HTTP1_REQUEST, "huge head", l.s, l.n,
		      over ? " S !" : " S H[GET / none] E");
	}
	free(l.s);
	free(w.s);
}

static void responses(void **state)
{
	static const struct item t[] = {
		{ "length", OK "Server: " MARKER "\r\nContent-Length: 5\r\n\r\nhello",
		  " S H[200 length=5] \"hello\" E" },
		{ "reason", "HTTP/1.1 404 " MARKER "\r\nContent-Length: 0\r\n\r\n",
		  " S H[404 length=0] E" },
		{ "no reason", "HTTP/1.1 200 \nContent-Length: 0\n\n", " S H[200 length=0] E" },
		{ "no reason, no space", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
		  " S H[200 length=0] E" },
		{ "chunked",
		  CHUNKED "5\r\nhello\r\nA;" MARKER "=\"" MARKER "\"\r\n0123456789\r\n0\r\n\r\n",
		  " S H[200 chunked] \"hello\" \"0123456789\" E" },
		{ "chunked, mixed",
		  CHUNKED
		  "00a \r\n0123456789\n0aB\n"
		  "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
		  "0123456789012345678901234567890123456789012345678901234567890123456789x"
		  "\r\n000;a\nTrailer: " MARKER "\n" MARKER ": b\r\n\n",
		  " S H[200 chunked] \"0123456789\" \""
		  "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
		  "0123456789012345678901234567890123456789012345678901234567890123456789x\" E" },
		{ "chunk sizes are no status line",
		  CHUNKED "1\r\na\r\n0\r\n\r\n" CHUNKED "1\r\nb\r\n0\r\n\r\n",
		  " S H[200 chunked] \"a\" E S H[200 chunked] \"b\" E" },
		{ "a chunk too many", CHUNKED "1\r\na\r\n0\r\n\r\n1\r\nb\r\n",
		  " S H[200 chunked] \"a\" E S !" },
		{ "bad size", CHUNKED "g\r\n", " S H[200 chunked] !" },
		{ "no size", CHUNKED "\r\n", " S H[200 chunked] !" },
		{ "only an extension", CHUNKED ";a\r\n", " S H[200 chunked] !" },
		{ "huge size", CHUNKED "fffffffffffffffff\r\n", " S H[200 chunked] !" },
		{ "large size", CHUNKED "7ffffffffffffff\r\nab", " S H[200 chunked] \"ab\" ~" },
		{ "chunk too long", CHUNKED "1\r\nab\r\n", " S H[200 chunked] \"a\" !" },
		{ "CR alone after size", CHUNKED "1\ra\r\n", " S H[200 chunked] !" },
		{ "close", OK "\r\nab\r\n\r\nHTTP/1.1 200 OK\1E;",
		  " S H[200 close close] \"ab\r\n\r\nHTTP/1.1 200 OK\" E" },
		{ "close, empty", "HTTP/1.0 200 OK\r\n\r\n\1E;", " S H[200 close 1.0 close] E" },
		{ "close, then another connection",
		  OK "\r\na\1E;\1R;" OK "Content-Length: 0\r\n\r\n", " R S H[200 length=0] E" },
		{ "TE not chunked", OK "Transfer-Encoding: gzip\r\nContent-Length: 1\r\n\r\nab\1E;",
		  " S H[200 close close ce=gzip] \"ab\" E" },
		{ "encoded", OK "Content-Encoding: GZip\r\nContent-Length: 1\r\n\r\na",
		  " S H[200 length=1 ce=gzip] \"a\" E" },
		{ "event stream",
		  OK
		  "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
		  " S H[200 chunked ct=text/event-stream] E" },
		{ "1xx",
		  "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: " MARKER
		  "\r\nContent-Length: 7\r\n\r\n" OK "Content-Length: 1\r\n\r\na",
		  " S H[100 none] E S H[103 none] E S H[200 length=1] \"a\" E" },
		{ "1xx and HEAD",
		  "\1H;HTTP/1.1 100 Continue\r\n\r\n" OK "Content-Length: 9\r\n\r\n" OK
		  "Content-Length: 1\r\n\r\na",
		  " S H[100 none] E S H[200 none] E S H[200 length=1] \"a\" E" },
		{ "HEAD, chunked", "\1H;" CHUNKED CHUNKED "0\r\n\r\n",
		  " S H[200 none] E S H[200 chunked] E" },
		{ "204",
		  "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
		  " S H[204 none] E S H[304 none] E" },
		{ "101",
		  "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
		  " S H[101 none upgrade] E ~" },
		{ "101, then data", "HTTP/1.1 101 Switching\r\n\r\n" MARKER,
		  " S H[101 none upgrade] E !" },
		{ "101, eof", "HTTP/1.1 101 Switching\r\n\r\n\1G7;\1E;",
		  " S H[101 none upgrade] E . ~" },
		{ "CONNECT", "\1C;" OK "Content-Length: 5\r\n\r\n", " S H[200 none upgrade] E ~" },
		{ "CONNECT refused",
		  "\1C;HTTP/1.1 403 No\r\nContent-Length: 1\r\n\r\na" OK
		  "Content-Length: 0\r\n\r\n",
		  " S H[403 length=1] \"a\" E S H[200 length=0] E" },
		{ "version", "HTTP/1.x 200 OK\r\n\r\n", " S !" },
		{ "version 2", "HTTP/2 200\r\n\r\n", " S !" },
		{ "status 99", "HTTP/1.1 099 OK\r\n\r\n", " S !" },
		{ "status 4 digits", "HTTP/1.1 2000 OK\r\n\r\n", " S !" },
		{ "text", "data: " MARKER "\n\n", " S !" },
		{ "gap in a chunk", CHUNKED "a\r\nab\1G6;cd\r\n0\r\n\r\n",
		  " S H[200 chunked] \"ab\" G6 \"cd\" E" },
		{ "gap to the end of a chunk", CHUNKED "4\r\nab\1G2;\r\n0\r\n\r\n",
		  " S H[200 chunked] \"ab\" G2 E" },
		{ "gap over a chunk's CR", CHUNKED "4\r\nab\1G3;\n0\r\n\r\n",
		  " S H[200 chunked] \"ab\" G2 G0 E" },
		{ "gap over a chunk's CR LF", CHUNKED "4;a\r\nab\1G4;0\r\n\r\n",
		  " S H[200 chunked] \"ab\" G2 G0 E" },
		{ "gap over a chunk's LF", CHUNKED "2\r\nab\r\1G1;1\r\nc\r\n0\r\n\r\n",
		  " S H[200 chunked] \"ab\" G0 \"c\" E" },
		{ "gap over a chunk's CR LF, in two", CHUNKED "2\r\nab\1G1;\1G1;0\r\n\r\n",
		  " S H[200 chunked] \"ab\" G0 G0 E" },
		{ "gap over a chunk's line end and more", CHUNKED "4\r\nab\1G5;\r\n\r\n",
		  " S H[200 chunked] \"ab\" G2 G0 !" },
		{ "gap over a chunk's LF alone", CHUNKED "4\nab\1G3;0\n\n",
		  " S H[200 chunked] \"ab\" G2 !" },
		{ "gap, resync at a chunk",
		  CHUNKED "4\r\nab\1G9;xyz\1K;2\r\ncd\r\n0\r\n\r\n" CHUNKED "0\r\n\r\n",
		  " K \"cd\" E S H[200 chunked] E" },
		{ "gap in a size", CHUNKED "4\1G1;\nabcd", " S H[200 chunked] !" },
		{ "gap before a size", CHUNKED "\1G1;\r\nabcd", " S H[200 chunked] !" },
		{ "gap in a trailer", CHUNKED "0\r\na\1G1;b", " S H[200 chunked] !" },
		{ "gap in a close body", OK "\r\nab\1G100;cd\1E;",
		  " S H[200 close close] \"ab\" G100 \"cd\" E" },
		{ "gap of nothing", OK "Content-\1G0;Length: 0\r\n\r\n", " S H[200 length=0] E" },
		{ "eof in a status", "HTTP/1.1 2\1E;", " S !" },
		{ "eof in a reason", "HTTP/1.1 200 O\1E;", " S !" },
		{ "eof in a size", CHUNKED "4\1E;", " S H[200 chunked] !" },
		{ "eof in a chunk", CHUNKED "4\r\na\1E;", " S H[200 chunked] \"a\" !" },
		{ "eof after a chunk", CHUNKED "1\r\na\1E;", " S H[200 chunked] \"a\" !" },
		{ "eof after a chunk 2", CHUNKED "1\r\na\r\1E;", " S H[200 chunked] \"a\" !" },
		{ "eof in an extension", CHUNKED "1;a\1E;", " S H[200 chunked] !" },
		{ "eof before the trailer", CHUNKED "0\r\n\1E;", " S H[200 chunked] !" },
		{ "eof in the trailer", CHUNKED "0\r\na: b\1E;", " S H[200 chunked] !" },
		{ "eof before the last LF", CHUNKED "0\r\n\r\1E;", " S H[200 chunked] !" },
	};

	(void)state;
	table(RP_HTTP1_RESPONSE, t, COUNT_OF(t));
}

static void scrubbed(void **state)
{
	static const char in[] =
		"POST /v1/x?q=1 HTTP/1.1\r\nHost: h\r\nCookie: a=b\r\nContent-Type: a/b; c=d\r\n"
		"Content-Length: 2\r\n\r\nhi";
	static const char out[] =
		"POST /v1/x?xxx HTTP/1.1\r\nHost: h\r\nCoxxxx:xxxx\r\nContent-Type: a/b; xxx\r\n"
		"Content-Length: 2\r\n\r\nxx";
	uint8_t keep[sizeof(in)] = { 0 };
	struct rp_http1 p;
	struct rp_http1_item it;
	size_t i = 0;

	(void)state;
	/* ' ' after an unknown name goes as well */
	memset(keep, 'x', sizeof(in) - 1);
	rp_http1_init(&p, RP_HTTP1_REQUEST);
	do {
		i += rp_http1_next(&p, (const uint8_t *)in + i, keep + i, sizeof(in) - 1 - i, &it);
	} while (it.type != RP_HTTP1_MORE);
	assert_string_equal((char *)keep, out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests),
		cmocka_unit_test(responses),
		cmocka_unit_test(scrubbed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
