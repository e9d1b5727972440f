/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Unit tests of protocol/sse.c, and of the chain http1 -> sse -> json. */
#include "util.h"

#include "protocol/http1.h"
#include "protocol/json.h"
#include "protocol/sse.h"

/*
 * Controls: G gap, E end of the body.
 *
 * The story: "..." an event's data so far; E, or E(type), an event, E! one with
 * a gap in it; C a comment; and at the end of the body: + an event ends there,
 * - none does.
 */
struct ctx {
	bool ndjson;
	struct rp_sse p;
	uint64_t at, from, to;
	bool open;
	struct log data, facts, story;
};

static void span_flush(struct ctx *c)
{
	if (c->open)
		log_add(&c->facts, " D%llu-%llu", (unsigned long long)c->from,
			(unsigned long long)c->to);
	c->open = false;
}

static void t_open(void *v)
{
	struct ctx *c = v;

	memset(&c->p, 0xa5, sizeof(c->p));
	rp_sse_init(&c->p, c->ndjson);
	c->at = 0;
	c->open = false;
	c->data.n = c->facts.n = c->story.n = 0;
	log_bytes(&c->data, "", 0);
	log_bytes(&c->facts, "", 0);
	log_bytes(&c->story, "", 0);
}

static void event(struct ctx *c)
{
	log_add(&c->story, " \"");
	log_bytes(&c->story, c->data.s, c->data.n);
	log_add(&c->story, "\"");
	c->data.n = 0;
	log_bytes(&c->data, "", 0);
}

static void t_feed(void *v, const uint8_t *in, uint8_t *keep, size_t n)
{
	struct ctx *c = v;
	struct rp_sse_item it;
	size_t i = 0, used;
	uint64_t pos;

	for (;;) {
		used = rp_sse_next(&c->p, in + i, keep ? keep + i : NULL, n - i, &it);
		assert_true(used <= n - i);
		pos = c->at + it.pos;
		if (it.type != RP_SSE_DATA && it.type != RP_SSE_MORE)
			span_flush(c);
		switch (it.type) {
		case RP_SSE_DATA:
			assert_true(it.len > 0);
			assert_int_equal(used, it.pos + it.len);
			if (c->open && c->to != pos)
				span_flush(c);
			if (!c->open)
				c->from = pos;
			c->to = pos + it.len;
			c->open = true;
			log_bytes(&c->data, in + i + it.pos, it.len);
			break;
		case RP_SSE_NEWLINE:
			log_add(&c->facts, " N@%llu", (unsigned long long)pos);
			log_add(&c->data, "\n");
			break;
		case RP_SSE_EVENT:
			event(c);
			log_add(&c->story, " E%s", rp_sse_gapped(&c->p) ? "!" : "");
			log_add(&c->facts, " E%s@%llu", rp_sse_gapped(&c->p) ? "!" : "",
				(unsigned long long)pos);
			if (c->p.event[0]) {
				log_add(&c->story, "(%s)", c->p.event);
				log_add(&c->facts, "(%s)", c->p.event);
			}
			break;
		case RP_SSE_COMMENT:
			log_add(&c->story, " C");
			log_add(&c->facts, " C@%llu", (unsigned long long)pos);
			break;
		case RP_SSE_MORE:
			assert_int_equal(i + used, n);
			c->at += used;
			return;
		}
		/* progress, so that a caller's loop ends */
		assert_true(used > 0);
		c->at += used;
		i += used;
	}
}

static void t_ctl(void *v, const struct ctl *ctl)
{
	struct ctx *c = v;

	span_flush(c);
	if (ctl->op == 'G') {
		rp_sse_gap(&c->p);
		assert_true(rp_sse_gapped(&c->p));
		log_add(&c->data, "~");
	} else {
		bool more = rp_sse_eof(&c->p);

		if (more)
			event(c);
		log_add(&c->story, more ? " +" : " -");
		log_add(&c->facts, more ? " +" : " -");
	}
}

static void t_close(void *v)
{
	span_flush(v);
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

struct item {
	const char *name, *in, *want;
};

static void table(bool ndjson, const struct item *t, size_t n)
{
	static struct ctx c;

	c.ndjson = ndjson;
	for (size_t i = 0; i < n; i++)
		check_script(&subject, &c, t[i].name, t[i].in, strlen(t[i].in), t[i].want);
}

static void sse(void **state)
{
	static const struct item t[] = {
		{ "one", "data: a\n\n\1E;", " \"a\" E -" },
		{ "two", "data: a\n\ndata: b\n\n", " \"a\" E \"b\" E" },
		{ "no space", "data:a\n\ndata:  b\n\n", " \"a\" E \" b\" E" },
		{ "CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", " \"a\" E \"b\" E" },
		{ "CR", "data: a\r\rdata: b\r\r", " \"a\" E \"b\" E" },
		{ "mixed", "data: a\r\n\ndata: b\r\r\ndata: c\n\rdata: d\r\n\r\n\n\r",
		  " \"a\" E \"b\" E \"c\" E \"d\" E" },
		{ "blank lines", "\n\r\n\n\ndata: a\n\n\n\n\r\r\n", " \"a\" E" },
		{ "several lines", "data: a\ndata:\ndata\ndata: b\r\n\r\n", " \"a\n\n\nb\" E" },
		{ "several lines, CRLF",
		  "event: done\r\ndata: a\r\nid: 1\r\ndata: b\r\n\r\nevent: done\rdata: a\rdata: b\r\r",
		  " \"a\nb\" E(done) \"a\nb\" E(done)" },
		{ "empty", "data\n\ndata:\n\ndata: \n\n", " \"\" E \"\" E \"\" E" },
		{ "byte-order mark",
		  "\xef\xbb\xbf"
		  "data: a\n\n",
		  " \"a\" E" },
		{ "two marks",
		  "\xef\xbb\xbf\xef\xbb\xbf"
		  "data: a\n\ndata: b\n\n",
		  " \"b\" E" },
		{ "half a mark",
		  "\xef\xbb"
		  "data: a\n\ndata: b\n\n",
		  " \"b\" E" },
		{ "half a mark, line end", "\xef\n\ndata: b\n\n", " \"b\" E" },
		{ "mark later",
		  "data: a\n\n\xef\xbb\xbf"
		  "data: b\n\n",
		  " \"a\" E" },
		{ "mark, blank", "\xef\xbb\xbf\ndata: b\n\n", " \"b\" E" },
		{ "comments", ": " MARKER "\n\n:\n:" MARKER "\r\ndata: a\n: x\n\n:\r",
		  " C C C C \"a\" E C" },
		{ "other fields",
		  "id: " MARKER
		  "\nretry: 3000\nevent: ping\ndata: a\n\nretry: 1\n\nevent: x\n\ndata: b\n\n",
		  " \"a\" E(ping) \"b\" E" },
		{ "unknown",
		  MARKER ": " MARKER "\n" MARKER "\ndata : " MARKER "\nDATA: " MARKER
			 "\ndatax: " MARKER "\n data: a\ndat\ndata: a\n\n",
		  " \"a\" E" },
		{ "event after data", "data: a\nevent: error\n\n", " \"a\" E(error)" },
		{ "event twice",
		  "event: error\nevent: ping\nevent\ndata: c\n\nevent: a\nevent: ping\ndata: c\n\n",
		  " \"c\" E \"c\" E(ping)" },
		{ "events that no API has",
		  "event: " MARKER "\ndata: a\n\nevent: errors " MARKER
		  "\ndata: a\n\nevent:  error\ndata: a\n\nevent: err\ndata: a\n\n",
		  " \"a\" E \"a\" E \"a\" E \"a\" E(err)" },
		{ "event, long", "event:response.output_text.delta\ndata: c\n\n",
		  " \"c\" E(response.output)" },
		{ "colons", "data:: a:b\n\n:data: a\n\n", " \": a:b\" E C" },
		{ "text", "Internal Server Error " MARKER "\n" MARKER, "" },
		{ "eof in an event", "data: a\n\1E;", " -" },
		{ "gap in data", "data: ab\1G9;cd\n\ndata: e\n\n", " \"ab~\" E! \"e\" E" },
		{ "gap over a line end", "data: ab\1G9;ata: cd\n\ndata: e\n\n",
		  " \"ab~\" E! \"e\" E" },
		{ "gap up to a line end", "data: ab\1G9;\n\ndata: e\n\n", " \"ab~\" E! \"e\" E" },
		{ "gap up to the blank line", "data: ab\1G9;\ndata: c\n\ndata: e\n\n",
		  " \"ab~\nc\" E! \"e\" E" },
		{ "gap between events", "data: a\n\n\1G9;ata: b\n\ndata: c\n\n",
		  " \"a\" E \"~c\" E" },
		{ "gap first", "\1G9;b\ndata: a\n\ndata: c\n\n", " \"~a\" E! \"c\" E" },
		{ "gap in a name", "da\1G9;ta: b\n\ndata: c\n\n", " \"~c\" E" },
		{ "gap in a comment", ": a\1G9;b\n\ndata: c\n\n", " \"~c\" E" },
		{ "gap in CRLF", "data: a\r\1G1;\ndata: c\n\n", " \"a~\nc\" E!" },
		{ "two gaps", "data: a\1G1;b\1G1;c\n\ndata: d\n\n", " \"a~~\" E! \"d\" E" },
	};

	(void)state;
	table(false, t, COUNT_OF(t));
}

static void ndjson(void **state)
{
	static const struct item t[] = {
		{ "lines", "{a}\n{b}\r\n{c}\n\1E;", " \"{a}\" E \"{b}\" E \"{c}\" E -" },
		{ "last without LF", "{a}\n{b}\1E;", " \"{a}\" E \"{b}\" +" },
		{ "empty lines", "\n\r\n\r\r\n{a}\n\n\n{b}\n\1E;", " \"{a}\" E \"{b}\" E -" },
		{ "no fields", "data: a\n: b\n", " \"data: a\" E \": b\" E" },
		{ "CR inside", "{a\rb}\n", " \"{ab}\" E" },
		{ "gap", "{a\1G3;b}\n{c}\n", " \"{a~\" E! \"{c}\" E" },
		{ "gap first", "\1G3;b}\n{c}\n", " \"~\" E! \"{c}\" E" },
		{ "gap up to a line end", "{a}\n\1G3;\n{c}\n", " \"{a}\" E \"~{c}\" E" },
		{ "gap over a line end", "{a\1G3;\n{c}\n", " \"{a~\" E! \"{c}\" E" },
		{ "gap and end", "{a\1G3;b\1E;", " \"{a~\" +" },
		{ "nothing", "\1E;", " -" },
	};

	(void)state;
	table(true, t, COUNT_OF(t));
}

/* ---- the whole chain ---- */

struct chain {
	struct rp_http1 http;
	struct rp_sse sse;
	struct rp_json json;
	bool event;
	struct log story;
};

static void chain_event(struct chain *c)
{
	const struct rp_json_facts *f = &c->json.f;

	rp_json_end(&c->json);
	log_add(&c->story, " [%s", f->id);
	if (f->content)
		log_add(&c->story, " content");
	if (f->reasoning)
		log_add(&c->story, " reasoning");
	if (f->tool)
		log_add(&c->story, " tool");
	if (f->finished)
		log_add(&c->story, " %s", f->finish_reason);
	if (f->completion_tokens != RP_ABSENT)
		log_add(&c->story, " %d", (int)f->completion_tokens);
	if (f->done_marker)
		log_add(&c->story, "done");
	if (f->error)
		log_add(&c->story, " error %s", f->error_type);
	log_add(&c->story, "]");
	rp_json_init(&c->json, RP_JSON_RESPONSE_BODY);
}

static void chain_body(struct chain *c, const uint8_t *in, uint8_t *keep, size_t n)
{
	struct rp_sse_item it;
	size_t i = 0, used;

	for (;; i += used) {
		used = rp_sse_next(&c->sse, in + i, keep ? keep + i : NULL, n - i, &it);
		switch (it.type) {
		case RP_SSE_DATA:
			rp_json_feed(&c->json, in + i + it.pos, keep ? keep + i + it.pos : NULL,
				     it.len);
			break;
		case RP_SSE_NEWLINE:
			rp_json_feed(&c->json, (const uint8_t *)"\n", NULL, 1);
			break;
		case RP_SSE_EVENT:
			chain_event(c);
			break;
		case RP_SSE_COMMENT:
			log_add(&c->story, " :");
			break;
		case RP_SSE_MORE:
			return;
		}
	}
}

static void chain_open(void *v)
{
	struct chain *c = v;

	rp_http1_init(&c->http, RP_HTTP1_RESPONSE);
	rp_sse_init(&c->sse, false);
	rp_json_init(&c->json, RP_JSON_RESPONSE_BODY);
	c->story.n = 0;
	log_bytes(&c->story, "", 0);
}

static void chain_feed(void *v, const uint8_t *in, uint8_t *keep, size_t n)
{
	struct chain *c = v;
	struct rp_http1_item it;
	size_t i = 0, used;

	for (;; i += used) {
		used = rp_http1_next(&c->http, in + i, keep ? keep + i : NULL, n - i, &it);
		switch (it.type) {
		case RP_HTTP1_HEAD:
			log_add(&c->story, "%u", c->http.head.status);
			rp_sse_init(&c->sse,
				    !strcmp(c->http.head.content_type, "application/x-ndjson"));
			rp_json_init(&c->json, RP_JSON_RESPONSE_BODY);
			break;
		case RP_HTTP1_BODY:
			chain_body(c, in + i + it.pos, keep ? keep + i + it.pos : NULL, it.len);
			break;
		case RP_HTTP1_BODY_GAP:
			rp_sse_gap(&c->sse);
			rp_json_gap(&c->json);
			break;
		case RP_HTTP1_END:
			if (rp_sse_eof(&c->sse))
				chain_event(c);
			log_add(&c->story, " end");
			break;
		case RP_HTTP1_ERROR:
			fail();
			return;
		case RP_HTTP1_START:
			break;
		case RP_HTTP1_MORE:
			return;
		}
	}
}

static void chain_ctl(void *v, const struct ctl *ctl)
{
	struct chain *c = v;
	struct rp_http1_item it;

	assert_int_equal(ctl->op, 'E');
	rp_http1_eof(&c->http, &it);
	assert_int_equal(it.type, RP_HTTP1_END);
	if (rp_sse_eof(&c->sse))
		chain_event(c);
	log_add(&c->story, " end");
}

static void chain_close(void *v)
{
	(void)v;
}

static struct log *chain_story(void *v)
{
	return &((struct chain *)v)->story;
}

static const struct subject chain_subject = { chain_open,  chain_feed,	chain_ctl,
					      chain_close, chain_story, chain_story };

#define DATA(rest) \
	"data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"choices\":[" rest "}\n\n"
#define DELTA(d) DATA("{\"index\":0,\"delta\":{" d "},\"finish_reason\":null}]")
#define TOK DELTA("\"content\":\"" MARKER "\"")
#define ROLE DELTA("\"role\":\"assistant\",\"content\":\"\"")
#define USAGE(n) DATA("],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":" #n "}")
#define DONE "data: [DONE]\n\n"

/* CASES.md A1, C1, C2, C4, C6, C8, in both framings. */
static void chain(void **state)
{
	static const struct item t[] = {
		{ "C1", TOK TOK TOK DONE, " [c1 content] [c1 content] [c1 content] [done]" },
		{ "C2",
		  ROLE DELTA("\"reasoning\":\"" MARKER "\"") DELTA("\"reasoning_content\":\"x\"")
			  TOK DONE,
		  " [c1] [c1 reasoning] [c1 reasoning] [c1 content] [done]" },
		{ "C4",
		  ROLE TOK DATA("{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]") USAGE(3)
			  DONE,
		  " [c1] [c1 content] [c1 stop] [c1 3] [done]" },
		{ "C6",
		  "data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\nid: 7\n" TOK
		  "retry: 3000\n\n"
		  "data: {\"choices\":[{\"index\":0,\"delta\":\ndata: {\"content\":\"c\"}}]}\n\ndata:[DONE]\n\n",
		  " [ content] [c1 content] [ content] [done]" },
		{ "C8",
		  DATA("{\"index\":0,\"delta\":{\"content\":\"" MARKER
		       "\"}}],\"usage\":{\"completion_tokens\":6}"),
		  " [c1 content 6]" },
		{ "keep-alive", ": " MARKER "\n\n" TOK ":\n\n" DONE, " : [c1 content] : [done]" },
		{ "error",
		  TOK "event: error\ndata: {\"error\":{\"message\":\"" MARKER
		      "\",\"type\":\"server_error\"}}\n\n",
		  " [c1 content] [ error server_error]" },
		{ "tool",
		  DELTA("\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"" MARKER
			"\",\"arguments\":\"" MARKER "\"}}]"),
		  " [c1 tool]" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		static struct chain c;
		size_t n = strlen(t[i].in), a = n / 3;
		struct log in = { 0 }, want = { 0 };

		log_add(&want, "200");
		log_add(&want, "%s end", t[i].want);

		log_add(&in,
			"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n");
		log_bytes(&in, t[i].in, n);
		log_add(&in, "\1E;");
		check_script(&chain_subject, &c, t[i].name, in.s, in.n, want.s);

		/* chunks that have nothing to do with events */
		in.n = 0;
		log_add(&in,
			"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
		log_add(&in, "%zx\r\n", a);
		log_bytes(&in, t[i].in, a);
		log_add(&in, "\r\n%zX;" MARKER "\r\n", n - a);
		log_bytes(&in, t[i].in + a, n - a);
		log_add(&in, "\r\n0\r\n\r\n");
		check_script(&chain_subject, &c, t[i].name, in.s, in.n, want.s);
		free(in.s);
		free(want.s);
	}
}

/* A1: one event of 200 KB; C: a line end of every kind at every byte. */
static void large(void **state)
{
	static struct chain c;
	static struct ctx x;
	struct log in = { 0 };

	(void)state;
	log_add(&in,
		"HTTP/1.1 200 OK\r\n\r\ndata: {\"id\":\"c1\",\"choices\":[{\"delta\":{\"content\":\"");
	while (in.n < 200000)
		log_add(&in, MARKER " \\\"\\n ");
	log_add(&in, "\"},\"index\":0}]}\n\n" DONE "\1E;");
	check_script(&chain_subject, &c, "200 KB", in.s, in.n, "200 [c1 content] [done] end");

	/* many short lines in one input cost what one long line costs */
	in.n = 0;
	while (in.n < 1000000)
		log_bytes(&in, "\r", 1);
	log_add(&in, "data: a\r\r");
	x.ndjson = false;
	check_script(&subject, &x, "CRs", in.s, in.n, " \"a\" E");
	free(in.s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sse),
		cmocka_unit_test(ndjson),
		cmocka_unit_test(chain),
		cmocka_unit_test(large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
