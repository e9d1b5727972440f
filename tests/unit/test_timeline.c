// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Events made by hand -> records. The cases of the field, as pure functions. */
#include "world.h"

#include <errno.h>
#include <math.h>

static uint32_t hook_seq[8];
static void hook(struct world *w, int role_index, uint64_t ts, uint32_t tid, uint64_t a, uint64_t b)
{
	struct rp_ev_hook e = { .h = hdr(RP_EV_HOOK, sizeof(e), ts, 100, tid),
				.hook = (uint16_t)role_index,
				.n = role_index == 1 ? 2 : 1,
				.ok = 3,
				.seq = hook_seq[role_index]++,
				.val = { a, b } };

	feed(w, &e);
}

#define POST_(path, body, len)                                                           \
	"POST " path                                                                     \
	" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " len \
	"\r\nX-Request-Id: r-1\r\nAuthorization: Bearer SECRET\r\n\r\n" body
#define REQ                                                                                     \
	POST_("/v1/chat/completions",                                                           \
	      "{\"model\":\"tiny\",\"stream\":true,\"messages\":[{\"content\":\"SECRET!!\"}]}", \
	      "66")
/* The prompt must not survive. */
#define REQ_PLAIN                                                                               \
	POST_("/v1/chat/completions",                                                           \
	      "{\"model\":\"tiny\",\"stream\":false,\"messages\":[{\"content\":\"SECRET!\"}]}", \
	      "66")
#define HDR "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
#define HDR_CHUNKED \
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
#define DELTA(d)                                                                                           \
	"data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":" d \
	",\"finish_reason\":null}]}\n\n"
#define TOK DELTA("{\"content\":\"SECRET\"}")
#define ROLE DELTA("{\"role\":\"assistant\",\"content\":\"\"}")
#define FINISH \
	"data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"
#define USAGE(n)                                                                                       \
	"data: {\"id\":\"c1\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":" #n \
	"}}\n\n"
#define DONE "data: [DONE]\n\n"
#define END "0\r\n\r\n"

/* C4: only text moves TTFT; usage, finish and [DONE] do not. Both framings. */
static void c4(void **st)
{
	(void)st;
	for (int chunked = 0; chunked < 2; chunked++) {
		struct world *w = world_new();
		void (*send)(struct world *, uint64_t, uint64_t, const char *) = chunked ? txc : tx;
		struct rp_record *r = &w->rec[0];

		session(w, false);
		open_conn(w, 1, 1 * MS);
		rx(w, 1, 1000 * MS, REQ);
		tx(w, 1, 1002 * MS, chunked ? HDR_CHUNKED : HDR);
		send(w, 1, 1010 * MS, ROLE);
		send(w, 1, 1210 * MS, TOK);
		send(w, 1, 1260 * MS, TOK);
		send(w, 1, 1310 * MS, TOK);
		send(w, 1, 1320 * MS, FINISH);
		send(w, 1, 1500 * MS, USAGE(3));
		send(w, 1, 1510 * MS, DONE);
		if (chunked)
			tx(w, 1, 1510 * MS, END);
		state(w, 1, 1511 * MS, RP_LOCAL_FIN);
		close_conn(w, 1, 1512 * MS);
		assert_int_equal(w->n, 1);
		assert_int_equal(r->end, RP_END_COMPLETE);
		is_ms(r, S_FIRST_BYTE, 2);
		is_ms(r, S_FIRST_EVENT, 10);
		is_ms(r, S_TTFT, 210);
		is_ms(r, S_TTST, 50);
		is_ms(r, S_LAST_TOKEN, 310);
		is_ms(r, S_DURATION, 510);
		assert_int_equal(NSV(r, TOK_COMPLETION), 3);
		assert_int_equal(NSV(r, TOK_PROMPT), 5);
		assert_int_equal(r->chunks, 3);
		assert_string_equal(r->finish_reason, "length");
		assert_string_equal(r->id, "c1");
		assert_string_equal(r->x_request_id, "r-1");
		assert_string_equal(r->model, "tiny");
		assert_int_equal(r->stream, 1);
		is_null(r, M_QUEUE, "no_engine_hooks");
		assert_int_equal(r->bytes_rx, strlen(REQ));
		assert_int_equal(rp_timeline_stats(w->t)->bytes_rx, strlen(REQ));
		assert_int_equal(rp_timeline_stats(w->t)->bytes_tx, w->off[1][RP_TX]);
		assert_int_equal(r->bytes_tx, w->off[1][RP_TX]);
		assert_int_equal(NSV(r, NET_RTT), 31);
		assert_int_equal(w->n_gaps, 4); /* two icl, two itl */
		world_end(w);
	}
}

/* C1: events of one call share an instant; zero gaps are legal. */
static void c1(void **st)
{
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1100 * MS, HDR TOK TOK TOK DONE);
	state(w, 1, 1111 * MS, RP_LOCAL_FIN);
	close_conn(w, 1, 1112 * MS);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].chunks, 3);
	assert_int_equal(w->n_gaps, 4);
	for (size_t i = 0; i < w->n_gaps; i++)
		assert_int_equal(w->gaps[i], 0);
	is_null(&w->rec[0], TOK_COMPLETION, "not_reported");
	assert_non_null(strstr(w->json[0], "\"itl_ms\":[0,0]"));
	world_end(w);
}

/* C2: reasoning is text; the first visible token is a figure of its own. */
static void c2(void **st)
{
	static const char *const keys[] = { "reasoning", "reasoning_content" };

	(void)st;
	for (int k = 0; k < 2; k++) {
		struct world *w = world_new();
		char think[256];

		session(w, false);
		open_conn(w, 1, 1 * MS);
		rx(w, 1, 1000 * MS, REQ);
		snprintf(think, sizeof(think), DELTA("{\"%s\":\"SECRET\"}"), keys[k]);
		tx(w, 1, 1001 * MS, HDR_CHUNKED);
		txc(w, 1, 1020 * MS, ROLE);
		txc(w, 1, 1100 * MS, think);
		txc(w, 1, 1150 * MS, think);
		txc(w, 1, 1200 * MS, think);
		txc(w, 1, 1800 * MS, TOK);
		txc(w, 1, 1850 * MS, TOK);
		tx(w, 1, 1850 * MS, END);
		is_ms(&w->rec[0], S_TTFT, 100);
		is_ms(&w->rec[0], S_TTFO, 800);
		assert_int_equal(w->rec[0].chunks, 5);
		assert_non_null(strstr(w->json[0], "\"itl_ms\":[50,50,600,50]"));
		world_end(w);
	}
}

/* C6: field syntax of the standard. */
static void c6(void **st)
{
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1001 * MS, HDR_CHUNKED);
	txc(w, 1, 1010 * MS,
	    "data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n");
	txc(w, 1, 1020 * MS,
	    "id: 7\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}}]}\n\n");
	txc(w, 1, 1025 * MS, "retry: 3000\n\n");
	txc(w, 1, 1030 * MS,
	    "data: {\"choices\":[{\"index\":0,\"delta\":\ndata: {\"content\":\"c\"}}]}\n\n");
	txc(w, 1, 1031 * MS, ": ping\n\n");
	txc(w, 1, 1040 * MS, "data:[DONE]\n\n");
	tx(w, 1, 1040 * MS, END);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].chunks, 3);
	assert_int_equal(w->rec[0].keepalives, 1);
	assert_int_equal(w->rec[0].end, RP_END_COMPLETE);
	assert_int_equal(rp_timeline_stats(w->t)->parse_errors, 0);
	world_end(w);
}

/* C8: usage in every event tells its tokens. */
static void c8(void **st)
{
	static const int total[] = { 1, 7, 7, 10 }; /* the third has no token of its own */
	static const uint64_t at[] = { 1100, 1400, 1450, 1550 };

	(void)st;
	for (int with = 0; with < 2; with++) {
		struct world *w = world_new();

		session(w, false);
		open_conn(w, 1, 1 * MS);
		rx(w, 1, 1000 * MS, REQ);
		tx(w, 1, 1001 * MS, HDR_CHUNKED);
		for (int i = 0; i < 4; i++) {
			char ev[512], usage[128] = "";

			if (with)
				snprintf(
					usage, sizeof(usage),
					",\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":%d}",
					total[i]);
			snprintf(
				ev, sizeof(ev),
				"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"SECRET\"}}]%s}\n\n",
				usage);
			txc(w, 1, at[i] * MS, ev);
		}
		tx(w, 1, 1700 * MS, END);
		assert_int_equal(w->rec[0].chunks, 4);
		assert_non_null(strstr(w->json[0], "\"icl_ms\":[300,50,100]"));
		if (with) {
			assert_int_equal(NSV(&w->rec[0], TOK_COMPLETION), 10);
			assert_int_equal(NSV(&w->rec[0], S_FIRST_CHUNK), 1);
			assert_non_null(
				strstr(w->json[0], "\"itl_ms\":[50,50,50,50,50,50,50,50,50]"));
			for (size_t i = 0; i < w->n_gaps; i++)
				assert_true(w->gap_chunk[i] || w->gaps[i] == 50 * MS);
		} else {
			is_null(&w->rec[0], TOK_COMPLETION, "not_reported");
		}
		world_end(w);
	}
}

/* Usage with the last event alone is a sum; a count beyond sense is none. */
static void usage_at_the_end(void **st)
{
	static const struct {
		const char *usage;
		int64_t tokens;
		bool error;
	} c[] = {
		{ "3", 3, false },
		{ "10", 10, false },
		{ "9223372036854775807", RP_NONE, true },
		{ "-5", RP_NONE, true },
	};

	(void)st;
	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		struct world *w = world_new();
		struct rp_record *r = &w->rec[0];
		char ev[512];

		session(w, false);
		open_conn(w, 1, 1 * MS);
		rx(w, 1, 1000 * MS, REQ);
		tx(w, 1, 1001 * MS, HDR_CHUNKED);
		txc(w, 1, 1010 * MS, TOK);
		txc(w, 1, 1020 * MS, TOK);
		snprintf(ev, sizeof(ev),
			 "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}],"
			 "\"usage\":{\"completion_tokens\":%s}}\n\n",
			 c[i].usage);
		txc(w, 1, 1030 * MS, ev);
		tx(w, 1, 1030 * MS, END);
		assert_non_null(strstr(w->json[0], "\"itl_ms\":[10,10]"));
		assert_int_equal(NSV(r, TOK_COMPLETION), c[i].tokens);
		assert_int_equal(!!(r->flags & RP_FLAG_PARSE_ERROR), c[i].error);
		world_end(w);
	}
}

/* An event without text that tells less usage takes no token back. */
static void usage_that_falls(void **st)
{
	static const int total[] = { 1, 2, 0, 3 };
	struct world *w = world_new();
	struct rp_record *r = &w->rec[0];
	char ev[512];

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1001 * MS, HDR_CHUNKED);
	for (unsigned i = 0; i < 4; i++) {
		snprintf(ev, sizeof(ev),
			 "data: {\"choices\":[{\"index\":0,\"delta\":{%s}}],"
			 "\"usage\":{\"completion_tokens\":%d}}\n\n",
			 total[i] ? "\"content\":\"x\"" : "", total[i]);
		txc(w, 1, (1010 + i * 10) * MS, ev);
	}
	tx(w, 1, 1050 * MS, END);
	assert_int_equal(r->chunk_tokens, 3);
	assert_non_null(strstr(w->json[0], "\"itl_ms\":[10,20]"));
	world_end(w);
}

/* B7: a plain body has no first token. */
static void b7(void **st)
{
	struct world *w = world_new();
	struct rp_record *r = &w->rec[0];

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ_PLAIN);
	tx(w, 1, 1500 * MS,
	   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 111\r\n\r\n"
	   "{\"id\":\"c9\",\"choices\":[{\"message\":{\"content\":\"SECRET\"},\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":7}}");
	assert_int_equal(w->n, 1);
	is_ms(r, S_DURATION, 500);
	is_null(r, S_TTFT, "not_streaming");
	is_null(r, S_CHUNKS, "not_streaming");
	assert_int_equal(w->n_gaps, 0);
	world_end(w);
}

static void plain_usage(void **st)
{
	struct world *w = world_new();
	const char *body =
		"{\"id\":\"c9\",\"choices\":[{\"index\":0,\"message\":{\"content\":\"SECRET\"},\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":7,\"prompt_tokens\":3}}";
	char resp[1024];

	(void)st;
	snprintf(
		resp, sizeof(resp),
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		strlen(body), body);
	session(w, false);
	/* cut at every byte into two writes, on one kept connection */
	open_conn(w, 1, 1 * MS);
	for (size_t cut = 1; cut < 40; cut++) {
		char a[1024];

		snprintf(a, sizeof(a), "%.*s", (int)(cut * 4), resp);
		rx(w, 1, cut * 1000 * MS, REQ_PLAIN);
		tx(w, 1, cut * 1000 * MS + 400 * MS, a);
		tx(w, 1, cut * 1000 * MS + 500 * MS, resp + strlen(a));
		assert_int_equal(w->n, cut);
		assert_int_equal(NSV(&w->rec[cut - 1], TOK_COMPLETION), 7);
		is_ms(&w->rec[cut - 1], S_DURATION, 500);
		assert_int_equal(w->rec[cut - 1].conn_reused, cut > 1);
	}
	world_end(w);
}

/* Every split of a response into two writes: the same tokens. */
static void splits(void **st)
{
	static const char resp[] = HDR_CHUNKED "5d\r\n" TOK "\r\n"
					       "5d\r\n" TOK "\r\n"
					       "e\r\n" DONE "\r\n" END;
	char fixed[1024];
	size_t n;

	(void)st;
	/* the chunk size depends on the macro: compute it */
	n = (size_t)snprintf(fixed, sizeof(fixed),
			     HDR_CHUNKED "%zx\r\n" TOK "\r\n%zx\r\n" TOK "\r\ne\r\n" DONE
					 "\r\n" END,
			     strlen(TOK), strlen(TOK));
	(void)resp;
	for (size_t cut = 1; cut < n; cut++) {
		struct world *w = world_new();

		session(w, false);
		open_conn(w, 1, 1 * MS);
		rx(w, 1, 1000 * MS, REQ);
		data_n(w, 1, RP_TX, 1100 * MS, fixed, cut, 0, false);
		data_n(w, 1, RP_TX, 1200 * MS, fixed + cut, n - cut, 0, false);
		assert_int_equal(w->n, 1);
		assert_int_equal(w->rec[0].chunks, 2);
		assert_int_equal(w->rec[0].end, RP_END_COMPLETE);
		is_ms(&w->rec[0], S_DURATION, 200);
		world_end(w);
	}
}

/* The engine's side, joined by the thread; the figures of vLLM's own maths. */
static void engine_join(void **st)
{
	struct world *w = world_new();
	struct rp_record *r = &w->rec[0];

	(void)st;
	memset(hook_seq, 0, sizeof(hook_seq));
	session(w, true);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	hook(w, 0, 1001 * MS, 1001, 7, 0);
	assert_int_equal(rp_timeline_stats(w->t)->waiting, 1);
	tx(w, 1, 1002 * MS, HDR_CHUNKED);
	hook(w, 1, 1101 * MS, 50, 0xabc, 7);
	assert_int_equal(rp_timeline_stats(w->t)->waiting, 0);
	assert_int_equal(rp_timeline_stats(w->t)->running, 1);
	hook(w, 2, 1121 * MS, 50, 0xabc, 0);
	txc(w, 1, 1122 * MS, TOK);
	hook(w, 2, 1131 * MS, 50, 0xabc, 0);
	txc(w, 1, 1132 * MS, TOK);
	hook(w, 2, 1151 * MS, 50, 0xabc, 0); /* end of sequence: no text */
	hook(w, 3, 1152 * MS, 50, 0xabc, 0);
	hook(w, 4, 1152 * MS, 50, 0xabc, 0);
	hook(w, 4, 1153 * MS, 50, 0xabc, 0); /* idle release: a no-op */
	txc(w, 1, 1153 * MS, FINISH DONE);
	tx(w, 1, 1154 * MS, END);
	assert_int_equal(w->n, 1);
	is_ms(r, P_QUEUE, 100);
	is_ms(r, P_PREFILL, 20);
	is_ms(r, P_DECODE, 30);
	assert_int_equal(NSV(r, TOK_COMPLETION), 3);
	assert_true(fabs(r->v[RP_FIELD_M_MEAN_ITL].d - 15.0) < 1e-9);
	is_ms(r, P_FRONTEND, 1);
	is_ms(r, P_QUEUE, 100);
	is_ms(r, P_PREFILL, 20);
	is_ms(r, P_DECODE, 30);
	is_ms(r, P_FLUSH, 3);
	is_ms(r, S_DURATION, 154);
	assert_non_null(strstr(w->json[0], "\"itl_ms\":[10,20]"));
	assert_non_null(strstr(w->json[0], "\"itl_source\":\"engine\""));
	assert_non_null(strstr(w->json[0], "\"request_ids\":[\"7\"]"));
	assert_int_equal(rp_timeline_stats(w->t)->running, 0);
	assert_int_equal(rp_timeline_stats(w->t)->tokens_completion, 3);
	world_end(w);
}

/* Registered first, posted later: the wait counts from the post. */
static void posted(void **st)
{
	struct world *w = world_new();

	(void)st;
	memset(hook_seq, 0, sizeof(hook_seq));
	session(w, true);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	hook(w, 0, 1001 * MS, 1001, 7, 0);
	hook(w, 0, 1006 * MS, 1001, 7, 0);
	hook(w, 1, 1101 * MS, 50, 0xabc, 7);
	hook(w, 0, 1102 * MS, 1001, 7, 0); /* too late to be a post of it */
	hook(w, 2, 1121 * MS, 50, 0xabc, 0);
	tx(w, 1, 1122 * MS, HDR_CHUNKED);
	txc(w, 1, 1122 * MS, TOK DONE);
	tx(w, 1, 1123 * MS, END);
	assert_int_equal(w->n, 1);
	is_ms(&w->rec[0], P_QUEUE, 95);
	is_ms(&w->rec[0], P_FRONTEND, 6);
	world_end(w);
}

struct told {
	unsigned http, dropped;
};

static void on_http(void *ctx, const struct rp_http_info *h)
{
	struct told *all = ctx;

	assert_int_equal(h->duration_ns, 25 * MS);
	all->http++;
}

static void on_dropped(void *ctx, uint64_t key)
{
	struct told *all = ctx;

	(void)key;
	all->dropped++;
}

/* Both ends of the inner connection are in the tree: one request, at the engine. */
static void proxied(void **st)
{
	struct world *w = world_new();
	struct rp_ev_conn_open o = { .h = hdr(RP_EV_CONN_OPEN, sizeof(o), 1003 * MS, 100, 0),
				     .conn = 3,
				     .family = AF_INET,
				     .lport = 40002,
				     .rport = 8000,
				     .laddr = { 127, 0, 0, 1 },
				     .raddr = { 127, 0, 0, 1 } };
	struct told told = { 0 };
	struct rp_observer obs = { .ctx = &told, .http = on_http, .dropped = on_dropped };

	(void)st;
	assert_int_equal(rp_timeline_observe(w->t, &obs), 0);
	session(w, false);
	open_conn(w, 1, 1 * MS); /* a client's, to the proxy */
	rx(w, 1, 1000 * MS, REQ);
	open_conn(w, 2, 1002 * MS); /* the proxy's, as the engine sees it */
	feed(w, &o);		    /* and as the proxy does */
	rx(w, 2, 1005 * MS, REQ);
	tx(w, 2, 1010 * MS, HDR_CHUNKED);
	tx(w, 1, 1011 * MS, HDR_CHUNKED);
	txc(w, 2, 1020 * MS, TOK DONE);
	txc(w, 1, 1021 * MS, TOK DONE);
	tx(w, 2, 1030 * MS, END);
	tx(w, 1, 1031 * MS, END);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].rport, 40002);
	assert_int_equal(rp_timeline_stats(w->t)->proxied, 1);
	assert_int_equal(rp_timeline_stats(w->t)->started, 1);
	assert_int_equal(told.http, 1); /* of the engine's own */
	assert_int_equal(told.dropped, 1);
	world_end(w);
}

/* Answered after the client's FIN: its reset says that nobody read it, else it did. */
static void answered_late(void **st)
{
	(void)st;
	for (int reset = 0; reset < 2; reset++) {
		struct world *w = world_new();

		session(w, false);
		for (unsigned i = 1; i < 3; i++) {
			open_conn(w, i, 1 * MS);
			rx(w, i, 1000 * MS, REQ);
			state(w, i, 1005 * MS, RP_PEER_FIN);
			tx(w, i, 1010 * MS, HDR_CHUNKED);
			txc(w, i, 1011 * MS, TOK DONE);
			tx(w, i, 1012 * MS, END);
		}
		assert_int_equal(w->n, 0);
		if (reset)
			state(w, 1, 1100 * MS, RP_PEER_RST);
		assert_int_equal(w->n, reset);
		tick(w, 1600 * MS);
		assert_int_equal(w->n, 2);
		assert_int_equal(w->rec[0].end, reset ? RP_END_CLIENT_DISCONNECT : RP_END_COMPLETE);
		assert_int_equal(w->rec[1].end, RP_END_COMPLETE); /* whose client sent no reset */
		is_ms(&w->rec[1], S_DURATION, 12);
		is_ms(&w->rec[1], S_ENDED, 12);
		if (reset) {
			is_null(&w->rec[0], S_DURATION, "not_reached");
			is_ms(&w->rec[0], S_ENDED, 5);
		}
		world_end(w);
	}
}

/* The client closed its half before the server had read the request: that ended nothing. */
static void half_closed_at_once(void **st)
{
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	state(w, 1, 990 * MS, RP_PEER_FIN);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1050 * MS, HDR_CHUNKED);
	txc(w, 1, 1100 * MS, TOK);
	state(w, 1, 1300 * MS, RP_PEER_RST);
	close_conn(w, 1, 1301 * MS);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].end, RP_END_CLIENT_DISCONNECT);
	is_ms(&w->rec[0], S_ENDED, 300);
	world_end(w);
}

/* D3, B1: instants out of order make no sample and are counted; never negative. */
static void out_of_order(void **st)
{
	struct world *w = world_new();

	(void)st;
	memset(hook_seq, 0, sizeof(hook_seq));
	session(w, true);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	hook(w, 0, 1100 * MS, 1001, 7, 0);
	hook(w, 1, 1090 * MS, 50, 0xabc, 7);
	hook(w, 2, 1121 * MS, 50, 0xabc, 0);
	tx(w, 1, 1122 * MS, HDR TOK DONE);
	state(w, 1, 1130 * MS, RP_LOCAL_FIN);
	close_conn(w, 1, 1131 * MS);
	is_null(&w->rec[0], M_QUEUE, "invalid_order");
	assert_true(rp_timeline_stats(w->t)->invalid_order > 0);
	world_end(w);

	/* two threads write one stream: what came first is not known */
	w = world_new();
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1010 * MS, HDR_CHUNKED);
	txc(w, 1, 1030 * MS, TOK);
	txc(w, 1, 1020 * MS, TOK DONE);
	tx(w, 1, 1040 * MS, END);
	assert_int_equal(w->n, 1);
	is_null(&w->rec[0], S_TTFT, "invalid_order");
	is_null(&w->rec[0], S_LAST_TOKEN, "invalid_order");
	is_ms(&w->rec[0], S_DURATION, 40);
	assert_true(w->rec[0].flags & RP_FLAG_PARSE_ERROR);
	assert_true(rp_timeline_stats(w->t)->invalid_order > 0);
	world_end(w);
}

/* Who closed first decides. */
static void ends(void **st)
{
	static const struct {
		uint32_t what[3];
		bool tokens, chunked, owner_dead, done;
		enum rp_end end;
	} c[] = {
		{ { RP_PEER_RST }, true, true, false, false, RP_END_CLIENT_DISCONNECT },
		{ { RP_PEER_FIN, RP_LOCAL_FIN }, true, true, false, false, RP_END_CLIENT_DISCONNECT },
		{ { RP_LOCAL_FIN, RP_PEER_FIN }, true, true, false, false, RP_END_SERVER_CLOSE },
		{ { RP_LOCAL_RST }, true, true, false, false, RP_END_SERVER_CLOSE },
		{ { RP_LOCAL_FIN }, false, true, false, false, RP_END_SERVER_CLOSE },
		{ { RP_PEER_LOST }, true, true, false, false, RP_END_CLIENT_DISCONNECT },
		/* closing is the framing: its end marks decide */
		{ { RP_LOCAL_FIN }, true, false, false, true, RP_END_COMPLETE },
		{ { RP_PEER_FIN, RP_LOCAL_FIN }, true, false, false, true, RP_END_COMPLETE },
		{ { RP_PEER_FIN, RP_LOCAL_FIN },
		  true,
		  false,
		  false,
		  false,
		  RP_END_CLIENT_DISCONNECT },
		{ { RP_LOCAL_FIN }, true, false, true, false, RP_END_SERVER_CLOSE },
	};

	(void)st;
	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		struct world *w = world_new();
		struct rp_ev_proc p = { .h = hdr(RP_EV_PROC, sizeof(p), 1105 * MS, 100, 0),
					.what = RP_PROC_EXIT };

		session(w, false);
		open_conn(w, 1, 1 * MS);
		rx(w, 1, 1000 * MS, REQ);
		if (c[i].tokens) {
			tx(w, 1, 1050 * MS, c[i].chunked ? HDR_CHUNKED : HDR);
			if (c[i].chunked)
				txc(w, 1, 1100 * MS, TOK);
			else
				tx(w, 1, 1100 * MS, c[i].done ? TOK DONE : TOK);
		}
		if (c[i].owner_dead)
			feed(w, &p);
		for (int k = 0; k < 3 && c[i].what[k]; k++)
			state(w, 1, (1110 + (uint64_t)k) * MS, c[i].what[k]);
		close_conn(w, 1, 1120 * MS);
		assert_int_equal(w->n, 1);
		assert_int_equal(w->rec[0].end, c[i].end);
		assert_int_equal(w->rec[0].status, c[i].tokens ? 200 : 0);
		if (c[i].tokens)
			is_ms(&w->rec[0], S_TTFT, 100);
		else
			is_null(&w->rec[0], S_TTFT, "not_reached");
		if (c[i].end != RP_END_COMPLETE)
			is_null(&w->rec[0], S_DURATION, "not_reached");
		/* who ended it did so before anything else came of it, or with the close */
		if (c[i].end == RP_END_UNKNOWN)
			is_null(&w->rec[0], S_ENDED, "not_seen");
		else if (c[i].end != RP_END_COMPLETE)
			is_ms(&w->rec[0], S_ENDED, c[i].what[0] ? 110 : 120);
		else
			assert_int_equal(w->rec[0].v[RP_FIELD_S_ENDED].i,
					 w->rec[0].v[RP_FIELD_S_DURATION].i);
		world_end(w);
	}
}

/* A write's exit may be seen after the peer has answered it with a close. */
static void late_write(void **st)
{
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1001 * MS, HDR_CHUNKED);
	txc(w, 1, 1010 * MS, TOK DONE);
	state(w, 1, 1021 * MS, RP_PEER_FIN);
	state(w, 1, 1022 * MS, RP_PEER_RST);
	tick(w, 1100 * MS);
	tx(w, 1, 1020 * MS, END);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].end, RP_END_COMPLETE);
	is_ms(&w->rec[0], S_DURATION, 20);
	world_end(w);
}

/* B2: abandoned requests wait for the engine to let go, with what it made. */
static void abandoned(void **st)
{
	struct world *w = world_new();

	(void)st;
	memset(hook_seq, 0, sizeof(hook_seq));
	session(w, true);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	hook(w, 0, 1001 * MS, 1001, 7, 0);
	hook(w, 1, 1002 * MS, 50, 0xabc, 7);
	tx(w, 1, 1003 * MS, HDR_CHUNKED);
	hook(w, 2, 1010 * MS, 50, 0xabc, 0);
	txc(w, 1, 1011 * MS, TOK);
	state(w, 1, 1012 * MS, RP_PEER_FIN);
	state(w, 1, 1013 * MS, RP_LOCAL_FIN);
	close_conn(w, 1, 1014 * MS);
	assert_int_equal(w->n, 0);
	assert_int_equal(rp_timeline_stats(w->t)->in_flight, 1);
	hook(w, 2, 1020 * MS, 50, 0xabc, 0);
	hook(w, 4, 1021 * MS, 50, 0xabc, 0);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].end, RP_END_CLIENT_DISCONNECT);
	assert_int_equal(NSV(&w->rec[0], TOK_COMPLETION), 2);
	assert_int_equal(rp_timeline_stats(w->t)->running, 0);
	world_end(w);
}

/* A11: a hole is known to the byte, flagged, and never a long gap. */
static void loss(void **st)
{
	struct world *w = world_new();
	struct rp_record *r = &w->rec[0];
	char chunk[512];

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1001 * MS, HDR_CHUNKED);
	txc(w, 1, 1010 * MS, TOK);
	txc(w, 1, 1020 * MS, TOK);
	snprintf(chunk, sizeof(chunk), "%zx\r\n%s\r\n", strlen(TOK), TOK);
	for (int i = 0; i < 5; i++)
		data_n(w, 1, RP_TX, 1030 * MS, chunk, strlen(chunk), 0, true);
	txc(w, 1, 5000 * MS, TOK);
	txc(w, 1, 5010 * MS, TOK DONE);
	tx(w, 1, 5010 * MS, END);
	assert_int_equal(w->n, 1);
	assert_true(r->flags & RP_FLAG_LOST_EVENTS);
	assert_int_equal(r->end, RP_END_COMPLETE);
	is_ms(r, S_TTFT, 10);
	assert_int_equal(rp_timeline_stats(w->t)->bytes_lost, 5 * strlen(chunk));
	for (size_t i = 0; i < w->n_gaps; i++)
		assert_int_equal(w->gaps[i], 10 * MS);
	world_end(w);
}

/* Text in the middle of a call that looks like an answer's start is none. */
static void loss_before_a_lookalike(void **st)
{
	static const char text[] = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
	struct world *w = world_new();
	struct rp_record *r = &w->rec[0];
	struct rp_ev_data *e = calloc(1, sizeof(*e) + 64);

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1001 * MS, HDR_CHUNKED);
	txc(w, 1, 1010 * MS, TOK);
	data_n(w, 1, RP_TX, 1030 * MS, "5\r\nabcde\r\n", 10, 0, true);
	e->h = hdr(RP_EV_DATA, sizeof(*e) + 64, 1030 * MS, 100, 1001);
	e->h.dir = RP_TX;
	e->conn = 1;
	e->off = w->off[1][RP_TX];
	e->ret_ts = 1030 * MS;
	e->call_off = 10;
	e->len = sizeof(text) - 1;
	e->call_len = e->call_off + e->len;
	memcpy(e->payload, text, e->len);
	w->off[1][RP_TX] += e->len;
	feed(w, e);
	free(e);
	txc(w, 1, 1050 * MS, TOK DONE);
	tx(w, 1, 1050 * MS, END);
	assert_int_equal(w->n, 1);
	assert_int_equal(r->status, 200);
	assert_int_equal(r->end, RP_END_COMPLETE);
	assert_int_equal(r->chunks, 2);
	world_end(w);
}

/* The first token was in the hole: TTFT is null, not the next one's. */
static void loss_of_first(void **st)
{
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1001 * MS, HDR_CHUNKED);
	data_n(w, 1, RP_TX, 1030 * MS, "5\r\nabcde\r\n", 10, 0, true);
	txc(w, 1, 1050 * MS, TOK DONE);
	tx(w, 1, 1050 * MS, END);
	assert_int_equal(w->n, 1);
	is_null(&w->rec[0], S_TTFT, "lost_events");
	world_end(w);
}

/* A hole is one for each choice, whichever comes first behind it. */
static void loss_of_choices(void **st)
{
	struct world *w = world_new();
	char ev[2][128];

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1001 * MS, HDR_CHUNKED);
	for (int i = 0; i < 2; i++)
		snprintf(ev[i], sizeof(ev[i]),
			 "data: {\"choices\":[{\"index\":%d,\"delta\":{\"content\":\"a\"}}]}\n\n",
			 i);
	for (uint64_t at = 1010; at < 3000; at += 1000) {
		for (uint64_t k = 0; k < 4; k++)
			txc(w, 1, (at + k * 5) * MS, ev[k & 1]);
		data_n(w, 1, RP_TX, (at + 100) * MS, "5\r\nabcde\r\n", 10, 0, true);
	}
	txc(w, 1, 4000 * MS, DONE);
	tx(w, 1, 4000 * MS, END);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].chunks, 8);
	assert_int_equal(w->n_gaps, 2 * 3 + 4);
	for (size_t i = 0; i < w->n_gaps; i++)
		assert_int_equal(w->gaps[i], (w->gap_chunk[i] ? 5 : 10) * MS);
	world_end(w);
}

/*
 * What came behind a hole may not be the second token, nor the first visible one, and
 * what came before it may not be the last.
 */
static void loss_of_others(void **st)
{
	static const char think[] = DELTA("{\"reasoning\":\"SECRET\"}");
	static const char *const why[] = { "lost_events", "truncated" };

	(void)st;
	for (int cut = 0; cut < 2; cut++) {
		for (int at = 0; at < 4; at++) { /* token events before the hole */
			struct world *w = world_new();
			struct rp_record *r = &w->rec[0];
			char head[] = "3e8\r\n: SECRET";

			session(w, false);
			open_conn(w, 1, 1 * MS);
			rx(w, 1, 1000 * MS, REQ);
			tx(w, 1, 1001 * MS, HDR_CHUNKED);
			for (int i = 0; i <= 3; i++) {
				if (i == at)
					data_n(w, 1, RP_TX, (1005 + 10 * (uint64_t)i) * MS, head,
					       strlen(head), 1000 + 7 - (uint32_t)strlen(head),
					       !cut);
				if (i < 3)
					txc(w, 1, (1010 + 10 * (uint64_t)i) * MS,
					    i < 2 ? think : TOK);
			}
			txc(w, 1, 1050 * MS, DONE);
			tx(w, 1, 1050 * MS, END);
			assert_int_equal(w->n, 1);
			assert_int_equal(r->end, RP_END_COMPLETE);
			if (at == 0)
				is_null(r, S_TTFT, why[cut]);
			else
				is_ms(r, S_TTFT, 10);
			if (at < 2)
				is_null(r, S_TTST, why[cut]);
			else
				is_ms(r, S_TTST, 10);
			if (at < 3)
				is_null(r, S_TTFO, why[cut]);
			else
				is_ms(r, S_TTFO, 30);
			if (at == 3)
				is_null(r, S_LAST_TOKEN, why[cut]);
			else
				is_ms(r, S_LAST_TOKEN, 30);
			world_end(w);
		}
	}
}

/* The tail and the close were lost: the census after the loss finds out. */
static void census(void **st)
{
	struct world *w = world_new();
	struct rp_ev_loss l = { .h = hdr(RP_EV_LOSS, sizeof(l), 3000 * MS, 0, 0),
				.lost = { 5 },
				.seen = { 9 } };
	struct rp_ev_conn_close alive = { .h = hdr(RP_EV_ALIVE, sizeof(alive), 3000 * MS, 0, 0),
					  .conn = 2 };
	struct rp_event_hdr end = hdr(RP_EV_ALIVE_END, sizeof(end), 3000 * MS, 0, 0);

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	open_conn(w, 2, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	rx(w, 2, 1000 * MS, REQ);
	tx(w, 1, 1001 * MS, HDR_CHUNKED);
	tx(w, 2, 1001 * MS, HDR_CHUNKED);
	alive.rx = w->off[2][RP_RX];
	alive.tx = w->off[2][RP_TX] + 500;
	feed(w, &l);
	feed(w, &alive);
	feed(w, &end);
	assert_int_equal(w->n, 1); /* 1 is gone */
	feed(w, &l);		   /* no more was lost: nothing to find out */
	feed(w, &end);
	assert_int_equal(w->n, 1);
	assert_true(w->rec[0].flags & RP_FLAG_LOST_EVENTS);
	tick(w, 3100 * MS);
	assert_int_equal(w->n, 1);
	tick(w, 3300 * MS);
	tick(w, 9000 * MS);
	assert_int_equal(w->n, 2); /* 2's tail is a hole, and it stays quiet */
	assert_true(w->rec[1].flags & RP_FLAG_LOST_EVENTS);
	assert_int_equal(w->rec[1].end, RP_END_UNKNOWN);
	assert_int_equal(rp_timeline_stats(w->t)->in_flight, 0);
	world_end(w);
}

/* Payload beyond the limit: the stream stays in step. */
static void truncated(void **st)
{
	struct world *w = world_new();
	char head[256];

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1001 * MS, HDR_CHUNKED);
	/* one event of 5000 bytes, of which 80 were copied */
	snprintf(head, sizeof(head),
		 "%x\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"SECRETSECRET",
		 5000);
	data_n(w, 1, RP_TX, 1010 * MS, head, strlen(head), (uint32_t)(5000 + 6 + 2 - strlen(head)),
	       false);
	txc(w, 1, 1020 * MS, TOK DONE);
	tx(w, 1, 1030 * MS, END);
	assert_int_equal(w->n, 1);
	assert_true(w->rec[0].flags & RP_FLAG_TRUNCATED);
	assert_int_equal(w->rec[0].chunks, 2);
	assert_int_equal(w->rec[0].end, RP_END_COMPLETE);
	is_ms(&w->rec[0], S_TTFT, 10);
	assert_int_equal(rp_timeline_stats(w->t)->bytes_cut, 5000 + 6 + 2 - strlen(head));
	/* the last byte of a body that was cut was in that call all the same */
	rx(w, 1, 2000 * MS, REQ_PLAIN);
	tx(w, 1, 2010 * MS,
	   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n");
	data_n(w, 1, RP_TX, 2020 * MS, "{}", 2, 18, false);
	assert_int_equal(w->n, 2);
	is_ms(&w->rec[1], S_LAST_BODY, 20);
	assert_int_equal(w->rec[1].calls_tx, 1);
	assert_int_equal(w->rec[1].body_tx, 20);
	world_end(w);
}

static void ask(struct world *w, int64_t ts, const char *id)
{
	char s[300];

	snprintf(s, sizeof(s),
		 "POST /v1/chat/completions HTTP/1.1\r\nX-Request-Id: %s\r\n"
		 "Content-Length: 13\r\n\r\n{\"model\":\"m\"}",
		 id);
	rx(w, 1, ts, s);
}

static void answer(struct world *w, int64_t ts, const char *id)
{
	char s[200];
	int n = snprintf(NULL, 0, "{\"id\":\"%s\",\"model\":\"m\"}", id);

	snprintf(
		s, sizeof(s),
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{\"id\":\"%s\",\"model\":\"m\"}",
		n, id);
	tx(w, 1, ts, s);
}

/* Answers of which no byte was copied, or no head that can be read: what follows them on
 * the connection keeps its own answer. */
static void unseen_answers(void **st)
{
	static const struct {
		/* Q ask, A answer, U unseen answer, L lost one, B unseen piece, R rubbish,
		 * r rubbish before the answer */
		const char *steps;
		const char *ends; /* of each request: . complete, ? unknown */
	} t[] = {
		{ "QUQA", "?." },	{ "QUQUQA", "??." },	   { "QAQUQA", ".?." },
		{ "QRQA", "?." },	{ "QRRQA", "?." },	   { "QUQAQA", "?.." },
		{ "QQUA", "?." },	{ "QQUAQA", "?.." },	   { "QBBQBBQAQA", "??.." },
		{ "QUQUQUQA", "???." }, { "QUQRQUQAQA", "???.." }, { "QQQUAA", "?.." },
		{ "QUQLQA", "???" },	{ "QUQLQAQA", "???." },	   { "QQQBBAA", "?.." },
		{ "QrA", "." },		{ "QrAQA", ".." },	   { "QRQQRRAQA", "???." },
		{ "QRQQRRQA", "????" },
	};

	(void)st;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct world *w = world_new();
		int64_t ts = 1000 * MS;
		unsigned asked = 0, answered = 0;
		char id[8];

		session(w, false);
		open_conn(w, 1, 1 * MS);
		for (const char *p = t[i].steps; *p; p++, ts += 10 * MS) {
			snprintf(id, sizeof(id), "x%u", *p == 'Q' ? asked++ : answered);
			if (*p == 'Q')
				ask(w, ts, id);
			else if (*p == 'A')
				answer(w, ts, id);
			else if (*p == 'R' || *p == 'r')
				tx(w, 1, ts, "\x16\x03 rubbish, not HTTP");
			else
				data_n(w, 1, RP_TX, ts, "", 0, *p == 'B' ? 150 : 300, *p == 'L');
			/* the second half, the second piece of rubbish: of the same answer */
			answered += *p != 'Q' && *p != 'r' && (p[0] != p[1] || *p == 'A') ? 1 : 0;
		}
		close_conn(w, 1, ts);
		rp_timeline_finish(w->t);
		assert_int_equal(w->n, asked);
		for (size_t k = 0; k < w->n; k++) {
			const struct rp_record *r = &w->rec[k];
			size_t which = strtoul(r->x_request_id + 1, NULL, 10);
			bool whole = t[i].ends[which] == '.';

			assert_true(which < asked);
			assert_int_equal(r->end, whole ? RP_END_COMPLETE : RP_END_UNKNOWN);
			assert_string_equal(r->id, whole ? r->x_request_id : "");
			if (!whole)
				assert_true(r->flags & RP_FLAG_PARTIAL);
		}
		world_end(w);
	}
}

/* A6 b: under way at the attach. The next request is a normal one. */
static void pre_attach(void **st)
{
	struct world *w = world_new();
	struct rp_ev_conn_open o = { .h = hdr(RP_EV_CONN_OPEN, sizeof(o), 1000 * MS, 100, 0),
				     .conn = 1,
				     .family = AF_INET,
				     .lport = 8000,
				     .rport = 4000 };
	struct rp_ev_conn_proto p = { .h = hdr(RP_EV_CONN_PROTO, sizeof(p), 1000 * MS, 100, 0),
				      .conn = 1,
				      .proto = RP_PROTO_MIDSTREAM };

	(void)st;
	o.h.flags = RP_F_PRE_ATTACH;
	session(w, false);
	feed(w, &o);
	feed(w, &p);
	txc(w, 1, 1000 * MS, TOK);
	txc(w, 1, 1050 * MS, TOK DONE);
	tx(w, 1, 1060 * MS, END);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].end, RP_END_UNKNOWN);
	assert_true(w->rec[0].flags & RP_FLAG_PARTIAL);
	assert_int_equal(w->rec[0].bytes_tx, w->off[1][RP_TX]);
	is_null(&w->rec[0], S_TTFT, "not_seen");
	is_null(&w->rec[0], M_QUEUE, "not_seen");
	/* whoever closes: it may have been whole */
	for (uint32_t i = 0; i < 3; i++) {
		static const uint32_t what[] = { RP_LOCAL_FIN, RP_PEER_FIN, RP_LOCAL_RST };

		o.conn = p.conn = 2 + i;
		feed(w, &o);
		feed(w, &p);
		txc(w, 2 + i, 1100 * MS, TOK DONE);
		state(w, 2 + i, 1110 * MS, what[i]);
		close_conn(w, 2 + i, 1110 * MS);
	}
	tick(w, 1900 * MS);
	assert_int_equal(w->n, 4);
	for (size_t i = 1; i < 4; i++)
		assert_int_equal(w->rec[i].end, RP_END_UNKNOWN);
	o.conn = p.conn = 1;
	p.proto = RP_PROTO_HTTP1;
	feed(w, &p);
	rx(w, 1, 2000 * MS, REQ);
	tx(w, 1, 2001 * MS, HDR_CHUNKED);
	txc(w, 1, 2010 * MS, TOK DONE);
	tx(w, 1, 2010 * MS, END);
	assert_int_equal(w->n, 5);
	assert_int_equal(w->rec[4].end, RP_END_COMPLETE);
	is_ms(&w->rec[4], S_TTFT, 10);
	is_null(&w->rec[4], NET_RTT, "pre_attach");
	world_end(w);
}

static void framing(void **st)
{
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	/* other paths, HEAD, 204 and 1xx on the way: counted, not recorded */
	rx(w, 1, 1000 * MS, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
	tx(w, 1, 1001 * MS, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
	rx(w, 1, 1010 * MS, "HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
	tx(w, 1, 1011 * MS, "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n");
	rx(w, 1, 1020 * MS, "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n");
	tx(w, 1, 1021 * MS, "HTTP/1.1 204 No Content\r\n\r\n");
	/* two at once, and a 100 before the first answer */
	rx(w, 1, 1100 * MS, REQ_PLAIN REQ);
	tx(w, 1, 1101 * MS, "HTTP/1.1 100 Continue\r\n\r\n");
	tx(w, 1, 1200 * MS,
	   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
	tx(w, 1, 1300 * MS, HDR_CHUNKED);
	txc(w, 1, 1310 * MS, TOK DONE);
	tx(w, 1, 1320 * MS, END);
	assert_int_equal(rp_timeline_stats(w->t)->other_paths, 3);
	assert_int_equal(w->n, 2);
	is_ms(&w->rec[0], S_FIRST_BYTE, 100);
	is_ms(&w->rec[1], S_TTFT, 210);
	assert_true(w->rec[1].flags & RP_FLAG_PIPELINED);
	assert_false(w->rec[0].flags & RP_FLAG_PIPELINED);
	world_end(w);
}

static void errors(void **st)
{
	struct world *w = world_new();
	const char *body =
		"{\"error\":{\"code\":400,\"message\":\"SECRET\",\"type\":\"invalid_request_error\"}}";
	char resp[512];

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	snprintf(
		resp, sizeof(resp),
		"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		strlen(body), body);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1010 * MS, resp);
	rx(w, 1, 2000 * MS, REQ);
	tx(w, 1, 2010 * MS, HDR_CHUNKED);
	txc(w, 1, 2020 * MS, TOK);
	txc(w, 1, 2030 * MS,
	    "data: {\"error\":{\"message\":\"SECRET\",\"type\":\"EngineDead\",\"code\":500}}\n\n" USAGE(
		    1) DONE);
	tx(w, 1, 2030 * MS, END);
	assert_int_equal(w->n, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(w->rec[i].end, RP_END_ERROR);
		assert_true(w->rec[i].has_error);
	}
	assert_string_equal(w->rec[0].error_where, "status");
	assert_string_equal(w->rec[0].error_type, "invalid_request_error");
	assert_int_equal(w->rec[0].status, 400);
	assert_string_equal(w->rec[1].error_where, "stream");
	assert_string_equal(w->rec[1].error_type, "EngineDead"); /* not of what comes behind */
	assert_int_equal(w->rec[1].status, 200);
	world_end(w);

	/* refused before the engine heard of it: nothing is amiss with the hooks */
	w = world_new();
	session(w, true);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1010 * MS, resp);
	rx(w, 1, 2000 * MS, REQ_PLAIN);
	tx(w, 1, 2010 * MS, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
	tick(w, 9000 * MS);
	assert_int_equal(w->n, 2);
	is_null(&w->rec[0], M_QUEUE, "not_reached");
	assert_int_equal(rp_timeline_stats(w->t)->not_joined, 1);
	world_end(w);
}

static void post(struct world *w, uint64_t ts, const char *path, const char *body)
{
	char b[2048];

	snprintf(b, sizeof(b),
		 "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
		 "Content-Length: %zu\r\n\r\n",
		 path, strlen(body));
	rx(w, 1, ts, b);
	/* in two reads */
	snprintf(b, sizeof(b), "%.*s", 10, body);
	rx(w, 1, ts + 1 * MS, b);
	rx(w, 1, ts + 2 * MS, body + 10);
}

/* What was asked for, what usage says, sizes and calls; a scrubbed copy says the same. */
static void bodies(void **st)
{
	static const char ask[] =
		"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":"
		"{\"url\":\"SECRET\"}},{\"type\":\"input_audio\"},{\"type\":\"image_url\"}]}],"
		"\"max_tokens\":9,\"stream\":true}";
	static const char too_long[] =
		"{\"error\":{\"message\":\"SECRET maximum context length SECRET\",\"code\":400}}";
	static const char claude[] = "{\"messages\":[],\"max_tokens\":-1,\"stream\":true}";
	struct world *w = world_new();
	const struct rp_record *r = w->rec;
	char resp[512];

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	post(w, 1000 * MS, "/v1/chat/completions", ask);
	tx(w, 1, 1010 * MS, HDR_CHUNKED);
	for (int i = 1; i <= 3; i++) {
		snprintf(
			resp, sizeof(resp),
			"data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}],"
			"\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":%d,\"total_tokens\":%d,"
			"\"completion_tokens_details\":{\"accepted_prediction_tokens\":%d}}}\n\n",
			i * 2, 5 + i * 2, i);
		txc(w, 1, (1020 + i) * MS, resp);
	}
	txc(w, 1, 1030 * MS,
	    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5},\"metrics\":{\"speculative_decoding\":"
	    "{\"num_spec_steps\":3,\"num_draft_tokens\":6,\"num_accepted_draft_tokens\":3}}}\n\n");
	tx(w, 1, 1031 * MS, END);
	assert_int_equal(w->n, 1);
	assert_int_equal(r->max_tokens, 9);
	assert_int_equal(r->images, 2);
	assert_int_equal(r->audios, 1);
	assert_int_equal(r->videos, 0);
	assert_int_equal(r->body_rx, strlen(ask));
	assert_int_equal(r->calls_rx, 2);
	assert_int_equal(r->calls_tx, 4);
	is_ms(r, S_FIRST_BODY, 19);
	is_ms(r, S_LAST_BODY, 28);
	is_ms(r, S_DURATION, 29);
	assert_int_equal(r->v[RP_FIELD_S_FIRST_CHUNK].i, 2);
	assert_int_equal(r->usage[RP_USAGE_PROMPT], 5);
	assert_int_equal(r->usage[RP_USAGE_COMPLETION], 6);
	assert_int_equal(r->usage[RP_USAGE_TOTAL], 11);
	assert_int_equal(r->usage[RP_USAGE_ACCEPTED], 3);
	assert_int_equal(r->usage[RP_USAGE_REJECTED], RP_NONE);
	assert_int_equal(r->spec_steps, 3);
	assert_int_equal(r->spec_draft_tokens, 6);
	assert_int_equal(r->spec_accepted_tokens, 3);

	post(w, 2000 * MS, "/v1/chat/completions", ask);
	snprintf(
		resp, sizeof(resp),
		"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
		strlen(too_long));
	tx(w, 1, 2010 * MS, resp);
	tx(w, 1, 2011 * MS, too_long);
	assert_int_equal(w->n, 2);
	assert_true(r[1].has_error && r[1].context_overflow);
	assert_int_equal(r[1].body_tx, strlen(too_long));
	is_ms(&r[1], S_FIRST_BODY, 9);

	/* Anthropic: the caches beside input_tokens are told once */
	post(w, 3000 * MS, "/v1/messages", claude);
	tx(w, 1, 3010 * MS, HDR_CHUNKED);
	txc(w, 1, 3011 * MS,
	    "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":10,"
	    "\"cache_read_input_tokens\":100,\"cache_creation_input_tokens\":7,\"output_tokens\":1}}}\n\n");
	txc(w, 1, 3012 * MS,
	    "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"SECRET\"}}\n\n");
	txc(w, 1, 3013 * MS,
	    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":"
	    "{\"input_tokens\":10,\"output_tokens\":4}}\n\n");
	tx(w, 1, 3014 * MS, END);
	assert_int_equal(w->n, 3);
	assert_int_equal(r[2].usage[RP_USAGE_PROMPT], 117);
	assert_int_equal(r[2].tok_prompt, 117);
	assert_int_equal(r[2].usage[RP_USAGE_CACHE_READ], 100);
	assert_int_equal(r[2].usage[RP_USAGE_CACHE_WRITE], 7);
	assert_int_equal(r[2].usage[RP_USAGE_COMPLETION], 4);
	assert_int_equal(r[2].usage[RP_USAGE_TOTAL], RP_NONE);
	assert_int_equal(r[2].max_tokens, RP_NONE); /* -1: no limit */
	assert_int_equal(r[2].images, 0);
	assert_int_equal(r[2].first_chunk_tokens, RP_NONE);

	/* cut: nobody knows what the rest asked for, or how many bytes came first */
	rx(w, 1, 4000 * MS,
	   "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 60\r\n\r\n{\"max_tokens\":4,\"mess");
	data_n(w, 1, RP_RX, 4001 * MS, "ages", 4, 60 - 4 - 21, false);
	tx(w, 1, 4010 * MS,
	   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n");
	data_n(w, 1, RP_TX, 4011 * MS, "1234567890", 10, 0, true);
	tx(w, 1, 4012 * MS, "1234567890");
	assert_int_equal(w->n, 4);
	assert_int_equal(r[3].max_tokens, RP_NONE);
	assert_int_equal(r[3].images, RP_NONE);
	assert_int_equal(r[3].body_rx, 60);
	assert_int_equal(r[3].body_tx, 20);
	is_null(&r[3], S_FIRST_BODY, "lost_events");
	is_ms(&r[3], S_LAST_BODY, 11);
	world_end(w);
}

/* A prompt may hold what looks like a request: of a form or plain text nothing is read. */
static void forms(void **st)
{
	static const char *const body[] = {
		("--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nSum up "
		 "{\"model\":\"SECRET\",\"max_tokens\":7,\"stream\":true}\r\n--b--\r\n"),
		"prompt=[{\"model\":\"SECRET\",\"max_tokens\":7}]&n=2",
		" \r\n words {\"request_id\":\"SECRET\",\"model\":\"SECRET\",\"max_tokens\":7}",
	};
	const size_t n = sizeof(body) / sizeof(*body);
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	for (size_t i = 0; i < n; i++) {
		post(w, (1000 + 100 * (int64_t)i) * MS, "/v1/audio/transcriptions", body[i]);
		tx(w, 1, (1050 + 100 * (int64_t)i) * MS,
		   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n"
		   "{\"text\":1}");
	}
	/* what was lost before it may have been a form's beginning */
	rx(w, 1, 1900 * MS, "POST /v1/audio/translations HTTP/1.1\r\nContent-Length: 49\r\n\r\n");
	data_n(w, 1, RP_RX, 1901 * MS, "--b\r\n", 5, 8, true);
	rx(w, 1, 1902 * MS, " {\"model\":\"SECRET\",\"max_tokens\":7}\r\n");
	tx(w, 1, 1950 * MS,
	   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n"
	   "{\"text\":1}");
	/* JSON it is, whatever stands before its first bracket */
	post(w, 2000 * MS, "/v1/chat/completions",
	     "\xef\xbb\xbf \r\n\t \n   {\"model\":\"m\",\"max_tokens\":7,\"messages\":[]}");
	tx(w, 1, 2010 * MS, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
	assert_int_equal(w->n, n + 2);
	for (size_t i = 0; i < w->n; i++) {
		const struct rp_record *r = &w->rec[i];
		bool json = i == n + 1;

		assert_string_equal(r->model, json ? "m" : "");
		assert_string_equal(r->request_model, json ? "m" : "");
		assert_int_equal(r->max_tokens, json ? 7 : RP_NONE);
		assert_null(strstr(w->json[i], "SECRET"));
	}
	world_end(w);
}

/* The same of answers, whatever their type says: plain words may hold what looks like one. */
static void answers(void **st)
{
#define ODD "{\"id\":\"SECRET\",\"model\":\"SECRET\",\"usage\":{\"completion_tokens\":99}}"
#define ONE(n) "{\"id\":\"c" #n "\",\"model\":\"m" #n "\",\"usage\":{\"completion_tokens\":" #n "}}"
	static const struct {
		const char *type, *body, *id, *model;
		int64_t tokens;
		bool stream;
	} t[] = {
		{ "application/json", "The answer is " ODD, "", "tiny", RP_NONE, false },
		{ "application/json", "\n" ONE(1) "\n" ODD, "c1", "m1", 1, false },
		{ "application/json", "\xef\xbb\xbf" ONE(1) " SECRET " ODD, "c1", "m1", 1, false },
		{ "application/json", "[" ONE(1) "]" ODD, "c1", "m1", 1, false },
		{ "text/event-stream",
		  "data: SECRET " ODD "\n\ndata: " ONE(2) "\n\ndata: \"" ODD "\"\n\n", "c2", "m2",
		  2, true },
		{ "text/event-stream",
		  "data: " ONE(2) ODD "\n\ndata: " ONE(3) " SECRET " ODD "\n\n", "c2", "m3", 3,
		  true },
		/* lines of one event are one document */
		{ "text/event-stream",
		  "event: SECRET\ndata: " ONE(2) "\ndata: " ODD "\nid: SECRET\n\n", "c2", "m2", 2,
		  true },
		{ "text/event-stream", "data: [DONE] " ODD "\n\ndata: [SECRET, " ODD "]\n\n", "",
		  "tiny", RP_NONE, true },
		/* lines of these are documents each, and there is one on a line */
		{ "application/x-ndjson",
		  ONE(2) "\nSECRET " ODD "\r\n" ONE(3) ODD "\n\n" ONE(4) " SECRET " ODD, "c2", "m4",
		  4, true },
		{ "application/jsonl", ONE(2) "\n" ONE(3) "\n", "c2", "m3", 3, true },
		{ "application/ndjson", ONE(2) "\n" ONE(3) "\n", "c2", "m3", 3, true },
		{ "application/jsonlines; charset=utf-8", ONE(2) "\n" ONE(3), "c2", "m3", 3, true },
		{ "application/x-json-lines", ONE(2) "\n" ONE(3), "c2", "m3", 3, true },
	};
	const size_t n = sizeof(t) / sizeof(*t);
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	for (size_t i = 0; i < n; i++) {
		char head[256];

		post(w, (1000 + 100 * i) * MS, "/v1/chat/completions",
		     "{\"model\":\"tiny\",\"messages\":[]}");
		snprintf(head, sizeof(head),
			 "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n",
			 t[i].type, strlen(t[i].body));
		tx(w, 1, (1050 + 100 * i) * MS, head);
		for (size_t at = 0, len = strlen(t[i].body); at < len; at += 7)
			data_n(w, 1, RP_TX, (1051 + 100 * i) * MS + at, t[i].body + at,
			       len - at < 7 ? len - at : 7, 0, false);
	}
	assert_int_equal(w->n, n);
	for (size_t i = 0; i < n; i++) {
		const struct rp_record *r = &w->rec[i];

		assert_string_equal(r->id, t[i].id);
		assert_string_equal(r->model, t[i].model);
		assert_int_equal(NSV(r, TOK_COMPLETION), t[i].tokens);
		assert_int_equal(r->stream, t[i].stream);
	}
	world_end(w); /* nothing of it is left in a recording, which says the same */
#undef ODD
#undef ONE
}

/* Totals of tokens that lack some say so. */
static void unknown_tokens(void **st)
{
	static const struct {
		const char *path, *status, *body;
		unsigned prompt, completion; /* not known, from here on */
	} t[] = {
		{ "/v1/chat/completions", "200 OK",
		  "{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3}}", 0, 0 },
		{ "/v1/chat/completions", "200 OK", "{\"usage\":{\"prompt_tokens\":5}}", 0, 1 },
		{ "/v1/chat/completions", "200 OK", "{\"usage\":{\"completion_tokens\":5}}", 1, 1 },
		{ "/v1/chat/completions", "200 OK", "{}", 2, 2 },
		{ "/v1/chat/completions", "500 Error", "{}", 3, 3 },
		/* refused; no text; no tokens at all */
		{ "/v1/chat/completions", "400 Bad", "{}", 3, 3 },
		{ "/v1/embeddings", "200 OK", "{}", 4, 3 },
		{ "/v1/embeddings", "200 OK", "{\"usage\":{\"prompt_tokens\":5}}", 4, 3 },
		{ "/v1/images/generations", "200 OK", "{}", 4, 3 },
	};
	const struct rp_stats *s;
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	s = rp_timeline_stats(w->t);
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		char resp[256];

		post(w, (1000 + 100 * i) * MS, t[i].path, "{\"stream\":false}");
		snprintf(
			resp, sizeof(resp),
			"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			t[i].status, strlen(t[i].body), t[i].body);
		tx(w, 1, (1050 + 100 * i) * MS, resp);
		assert_int_equal(w->n, i + 1);
		assert_int_equal(s->unknown_prompt, t[i].prompt);
		assert_int_equal(s->unknown_completion, t[i].completion);
	}
	assert_int_equal(s->tokens_prompt, 15);
	assert_int_equal(s->tokens_completion, 8);
	/* a stream that says nothing of tokens */
	rx(w, 1, 3000 * MS, REQ);
	tx(w, 1, 3001 * MS, HDR_CHUNKED);
	txc(w, 1, 3010 * MS, TOK);
	txc(w, 1, 3020 * MS, DONE);
	tx(w, 1, 3020 * MS, END);
	assert_int_equal(s->unknown_prompt, 5);
	assert_int_equal(s->unknown_completion, 4);
	world_end(w);
}

/* Ids that a record has no room for are cut there, marked and counted. */
static void long_ids(void **st)
{
	char id[300], head[600], body[400];
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	for (int i = 0; i < 4; i++) {
		/* just fits; just not: the client's, the response's */
		snprintf(id, sizeof(id), "%0*d", i == 1 ? 128 : 127, 7);
		snprintf(
			head, sizeof(head),
			"POST /v1/chat/completions HTTP/1.1\r\nX-Request-Id: %s\r\nContent-Length: 2\r\n\r\n{}",
			id);
		rx(w, 1, (1000 + 100 * (uint64_t)i) * MS, head);
		snprintf(body, sizeof(body), "{\"id\":\"%0*d\"}", i >= 2 ? 126 + i : 127, 8);
		snprintf(
			head, sizeof(head),
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			strlen(body), body);
		tx(w, 1, (1050 + 100 * (uint64_t)i) * MS, head);
		assert_int_equal(w->n, i + 1);
		assert_int_equal(strlen(w->rec[i].x_request_id), 127);
		assert_int_equal(strlen(w->rec[i].id), 127);
		assert_int_equal(w->rec[i].flags & RP_FLAG_LIMIT, i ? RP_FLAG_LIMIT : 0);
		assert_int_equal(rp_timeline_stats(w->t)->limit_ids, i);
	}
	world_end(w);
}

static void embeddings(void **st)
{
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS,
	   POST_("/v1/embeddings", "{\"model\":\"tiny\",\"input\":[\"SECRET\",\"b\"]}", "39"));
	tx(w, 1, 1100 * MS,
	   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].operation, RP_OP_EMBEDDINGS);
	assert_int_equal(w->rec[0].choices, 1);
	is_ms(&w->rec[0], S_DURATION, 100);
	is_null(&w->rec[0], S_TTFT, "not_generative");
	world_end(w);
}

/* What makes no text has a record, too; a look at how far it is has none. */
static void media(void **st)
{
	static const char video[] =
		"{\"id\":\"v\",\"status\":\"completed\",\"inference_time_s\":2.5,\"peak_memory_mb\":1024}";
	struct world *w = world_new();
	char resp[512];

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	snprintf(
		resp, sizeof(resp),
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		strlen(video), video);
	rx(w, 1, 1000 * MS, POST_("/v1/videos", "{\"prompt\":\"SECRET\",\"n\":1}", "25"));
	tx(w, 1, 1100 * MS, resp);
	rx(w, 1, 2000 * MS, "GET /v1/videos/v HTTP/1.1\r\nHost: x\r\n\r\n");
	tx(w, 1, 2100 * MS, resp);
	rx(w, 1, 3000 * MS,
	   "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; "
	   "boundary=b\r\nContent-Length: 11\r\n\r\n--b{SECRET}");
	tx(w, 1, 3100 * MS,
	   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n"
	   "{\"text\":\"SECRET\"}");
	assert_int_equal(w->n, 2);
	assert_int_equal(w->rec[0].operation, RP_OP_GENERATE);
	assert_true(w->rec[0].video_inference_s == 2.5 && w->rec[0].video_peak_memory_mb == 1024);
	is_ms(&w->rec[0], S_DURATION, 100);
	is_null(&w->rec[0], S_TTFT, "not_streaming");
	assert_int_equal(w->rec[1].operation, RP_OP_GENERATE);
	assert_int_equal(w->rec[1].images, RP_NONE);
	world_end(w);
}

/* A long prefix before a known route is kept in a recording (world_end replays it). */
static void long_path(void **st)
{
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS,
	   POST_("/a-team/with/a/rather/long/prefix/before/what/its/gateway/passes/on/v1/embeddings",
		 "{}", "2"));
	tx(w, 1, 1100 * MS,
	   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].operation, RP_OP_EMBEDDINGS);
	world_end(w);
}

static void limits(void **st)
{
	struct rp_timeline_opts o;
	struct world *w;

	(void)st;
	rp_timeline_defaults(&o);
	o.max_requests = 2;
	o.max_conns = 3;
	w = world_opts(&o);
	session(w, false);
	for (uint64_t c = 1; c <= 5; c++) {
		open_conn(w, c, c * MS);
		rx(w, c, 1000 * MS, REQ);
	}
	assert_int_equal(rp_timeline_stats(w->t)->in_flight, 2);
	assert_true(rp_timeline_stats(w->t)->limit_conns > 0);
	assert_true(rp_timeline_stats(w->t)->limit_requests > 0);
	for (uint64_t c = 1; c <= 5; c++)
		tx(w, c, 1100 * MS, HDR TOK DONE);
	for (uint64_t c = 1; c <= 5; c++) {
		state(w, c, 1200 * MS, RP_LOCAL_FIN);
		close_conn(w, c, 1201 * MS);
	}
	assert_int_equal(w->n, 2);
	world_end(w);

	/* the memory ceiling holds, whatever comes */
	rp_timeline_defaults(&o);
	o.memory_max = 100000;
	w = world_opts(&o);
	session(w, false);
	for (uint64_t c = 1; c < 60; c++) {
		open_conn(w, c, c * MS);
		rx(w, c, 1000 * MS, REQ);
		assert_true(rp_timeline_stats(w->t)->memory <= 100000);
	}
	assert_true(rp_timeline_stats(w->t)->limit_memory > 0);
	for (uint64_t c = 1; c < 60; c++)
		close_conn(w, c, 2000 * MS);
	assert_int_equal(rp_timeline_stats(w->t)->memory, 0);
	world_end(w);
}

/* A3: counted, named once, never parsed. */
static void tls(void **st)
{
	struct world *w = world_new();

	(void)st;
	session(w, false);
	for (uint64_t c = 1; c <= 2; c++) {
		struct rp_ev_conn_proto p = { .h = hdr(RP_EV_CONN_PROTO, sizeof(p), c * MS, 100, 0),
					      .conn = c,
					      .proto = RP_PROTO_TLS };

		open_conn(w, c, c * MS);
		feed(w, &p);
		rx(w, c, 10 * MS, "\x16\x03\x01");
	}
	tick(w, 5000 * MS);
	assert_int_equal(rp_timeline_stats(w->t)->unobserved_tls, 2);
	assert_non_null(strstr(w->notices, "40001, 40002"));
	assert_int_equal(w->n, 0);
	world_end(w);
}

/* Hostile events: sizes that lie, unknown types, unknown connections. */
static void hostile(void **st)
{
	struct world *w = world_new();
	struct rp_ev_data d = { .h = hdr(RP_EV_DATA, sizeof(d), MS, 1, 1), .conn = 9, .len = 5000 };
	struct rp_event_hdr small = hdr(RP_EV_HOOK, sizeof(small), MS, 1, 1);
	struct rp_event_hdr strange = hdr(200, sizeof(strange), MS, 1, 1);

	(void)st;
	assert_int_equal(rp_timeline_event(w->t, &d.h, NULL), -EBADMSG);
	assert_int_equal(rp_timeline_event(w->t, &small, NULL), -EBADMSG);
	assert_int_equal(rp_timeline_event(w->t, &strange, NULL), 0);
	small.size = 3;
	assert_int_equal(rp_timeline_event(w->t, &small, NULL), -EBADMSG);
	world_end(w);
}

/* An io_uring for other things alarms nobody; one that moves sockets' bytes does. */
static void uring(void **st)
{
	(void)st;
	for (int reads = 0; reads < 2; reads++) {
		struct world *w = world_new();
		struct rp_ev_uring u = { .h = hdr(RP_EV_URING, sizeof(u), 1 * MS, 100, 0) };

		session(w, false);
		feed(w, &u);
		if (reads) {
			open_conn(w, 1, 2 * MS);
			rx(w, 1, 3 * MS, REQ);
		}
		open_conn(w, 2, 10 * MS);
		close_conn(w, 2, 20 * MS);
		assert_int_equal(strstr(w->notices, "io_uring") != NULL, !reads);
		assert_int_equal(rp_timeline_stats(w->t)->unobserved_io_uring, !reads);
		world_end(w);
	}
}

/* A response's head is lost: the next one is not taken for it. */
static void lost_head(void **st)
{
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	data_n(w, 1, RP_TX, 1002 * MS, HDR_CHUNKED, strlen(HDR_CHUNKED), 0, true);
	txc(w, 1, 1010 * MS, TOK);
	txc(w, 1, 1020 * MS, TOK);
	tx(w, 1, 1030 * MS, END);
	rx(w, 1, 2000 * MS, REQ);
	tx(w, 1, 2002 * MS, HDR_CHUNKED);
	txc(w, 1, 2010 * MS, TOK);
	txc(w, 1, 2020 * MS, USAGE(1));
	tx(w, 1, 2030 * MS, END);
	assert_int_equal(w->n, 2);
	assert_int_equal(w->rec[0].end, RP_END_UNKNOWN);
	assert_true(w->rec[0].flags & RP_FLAG_LOST_EVENTS);
	is_null(&w->rec[0], S_TTFT, "lost_events");
	assert_int_equal(w->rec[1].end, RP_END_COMPLETE);
	is_ms(&w->rec[1], S_TTFT, 10);
	assert_int_equal(NSV(&w->rec[1], TOK_COMPLETION), 1);
	world_end(w);
}

/* What passes on connections that are not read is not lost. */
static void not_read(void **st)
{
	static const uint32_t proto[] = { RP_PROTO_TLS, RP_PROTO_HTTP2, RP_PROTO_OTHER };

	(void)st;
	for (int i = 0; i < 3; i++) {
		struct world *w = world_new();
		struct rp_ev_conn_proto p = { .h = hdr(RP_EV_CONN_PROTO, sizeof(p), 2 * MS, 100, 0),
					      .conn = 1,
					      .proto = proto[i] };
		struct rp_ev_conn_close c = { .h = hdr(RP_EV_CONN_CLOSE, sizeof(c), 9 * MS, 0, 0),
					      .conn = 1,
					      .rx = 1000,
					      .tx = 100000 };

		session(w, false);
		open_conn(w, 1, 1 * MS);
		feed(w, &p);
		feed(w, &c);
		assert_int_equal(rp_timeline_stats(w->t)->bytes_lost, 0);
		world_end(w);
	}
}

/* The last byte's acknowledgement: waited for, and never for long. */
static void last_ack(void **st)
{
	(void)st;
	/* told, the client's end, never, by our FIN, the next request, more written */
	for (int how = 0; how < 6; how++) {
		struct world *w = world_new();
		struct rp_ev_session e = { .h = hdr(RP_EV_SESSION, sizeof(e), 1, 100, 0),
					   .hook_reason = RP_HOOKS_NONE_FOR_ENGINE,
					   .flags = RP_SESSION_ACKS };
		struct rp_ev_tcp a = { .h = hdr(RP_EV_TCP, sizeof(a), 0, 100, 0), .conn = 1 };
		struct rp_ev_conn_accept acc = {
			.h = hdr(RP_EV_CONN_ACCEPT, sizeof(acc), 701 * MS, 100, 0), .conn = 1
		};

		session(w, false);
		feed(w, &e);
		open_conn(w, 1, 1 * MS);
		feed(w, &acc);
		rx(w, 1, 1000 * MS, REQ);
		w->tcp_unacked = 500;
		tx(w, 1, 1002 * MS, HDR_CHUNKED);
		txc(w, 1, 1010 * MS, TOK);
		txc(w, 1, 1020 * MS, TOK);
		tx(w, 1, 1030 * MS, END);
		assert_int_equal(w->n, 0);
		a.unacked = 500;
		a.h.ts = 1050 * MS;
		feed(w, &a);
		tick(w, 1060 * MS);
		assert_int_equal(w->n, 0);
		if (how == 0) {
			a.unacked = 0;
			a.h.ts = 1120 * MS;
			a.acked_ts = 1110 * MS;
			feed(w, &a);
		} else if (how == 1) {
			close_conn(w, 1, 1100 * MS);
		} else if (how == 3) {
			state(w, 1, 1031 * MS, RP_LOCAL_FIN);
			state(w, 1, 1110 * MS, RP_LOCAL_FIN_ACKED);
		} else if (how == 4) {
			w->rx_acked = true;
			w->rx_acked_ago_us = 2000;
			rx(w, 1, 1112 * MS, REQ);
			tx(w, 1, 1113 * MS, HDR_CHUNKED);
		} else if (how == 5) {
			rx(w, 1, 1040 * MS, REQ);
			tx(w, 1, 1041 * MS, HDR_CHUNKED);
			assert_int_equal(w->n, 0);
			a.unacked = 0;
			a.h.ts = a.acked_ts = 1140 * MS;
			feed(w, &a);
		} else {
			tick(w, 3100 * MS);
		}
		assert_int_equal(w->n, 1);
		is_ms(&w->rec[0], NET_ACCEPT, 700);
		assert_int_equal(NSV(&w->rec[0], NET_UNACKED_FIRST), 500);
		if (how == 0 || how == 3 || how == 4)
			is_ms(&w->rec[0], NET_LAST_ACK, 80);
		else
			is_null(&w->rec[0], NET_LAST_ACK, "not_seen");
		is_ms(&w->rec[0], S_DURATION, 30);
		world_end(w);
	}
}

/* Where closing is the framing, the acknowledgement comes before the end. */
static void last_ack_of_the_closed(void **st)
{
	struct rp_ev_session e = { .h = hdr(RP_EV_SESSION, sizeof(e), 1, 100, 0),
				   .hook_reason = RP_HOOKS_NONE_FOR_ENGINE,
				   .flags = RP_SESSION_ACKS };
	struct world *w = world_new();

	(void)st;
	session(w, false);
	feed(w, &e);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	w->tcp_unacked = 500;
	tx(w, 1, 1010 * MS, HDR TOK);
	tx(w, 1, 1030 * MS, TOK);
	state(w, 1, 1031 * MS, RP_LOCAL_FIN);
	state(w, 1, 1110 * MS, RP_LOCAL_FIN_ACKED);
	close_conn(w, 1, 1111 * MS);
	assert_int_equal(w->n, 1);
	is_ms(&w->rec[0], NET_LAST_ACK, 80);
	world_end(w);
}

/* What the engine was asked for was not seen: the response's choices tell how many. */
static void choices_seen(void **st)
{
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, "POST /v1/completions HTTP/1.1\r\nContent-Length: 20\r\n\r\n");
	data_n(w, 1, RP_RX, 1001 * MS, "", 0, 20, false);
	tx(w, 1, 1010 * MS, HDR_CHUNKED);
	for (int i = 2; i >= 0; i--) {
		char ev[128];

		snprintf(ev, sizeof(ev), "data: {\"choices\":[{\"index\":%d,\"text\":\"a\"}]}\n\n",
			 i);
		txc(w, 1, 1020 * MS, ev);
	}
	txc(w, 1, 1030 * MS, USAGE(9) DONE);
	tx(w, 1, 1030 * MS, END);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].choices, 3);
	is_null(&w->rec[0], M_TTFT, "several_choices");
	world_end(w);
}

/* A request that is half read when the response before it ends. */
static void half_asked(void **st)
{
	struct world *w = world_new();
	const size_t head = strlen(REQ) - 30;
	char part[512];

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1010 * MS, HDR_CHUNKED);
	txc(w, 1, 1020 * MS, TOK DONE);
	snprintf(part, sizeof(part), "%.*s", (int)head, REQ);
	rx(w, 1, 1025 * MS, part);
	tx(w, 1, 1030 * MS, END);
	rx(w, 1, 1040 * MS, &REQ[head]);
	tx(w, 1, 1050 * MS, HDR_CHUNKED);
	txc(w, 1, 1060 * MS, TOK DONE);
	tx(w, 1, 1070 * MS, END);
	assert_int_equal(w->n, 2);
	assert_int_equal(w->rec[1].end, RP_END_COMPLETE);
	assert_int_equal(w->rec[1].body_rx, 66);
	is_ms(&w->rec[1], P_RECEIVE, 15);
	is_ms(&w->rec[1], S_TTFT, 20);
	world_end(w);
}

/* Nothing of one stream is left to the next: not the line it ended in, nor its event. */
static void stream_after_stream(void **st)
{
	static const char *const left[] = { "data: [DONE]\n", ": SECRET", "event: error\n" };
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t at = (1000 + i * 100) * MS;

		rx(w, 1, at, REQ);
		tx(w, 1, at + 10 * MS, HDR_CHUNKED);
		txc(w, 1, at + 20 * MS, TOK);
		txc(w, 1, at + 30 * MS, left[i]);
		tx(w, 1, at + 30 * MS, END);
	}
	rx(w, 1, 2000 * MS, REQ);
	tx(w, 1, 2010 * MS, HDR_CHUNKED);
	txc(w, 1, 2020 * MS, TOK DONE);
	tx(w, 1, 2030 * MS, END);
	assert_int_equal(w->n, 4);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(w->rec[i].end, RP_END_COMPLETE);
		assert_int_equal(w->rec[i].chunks, 1);
		is_ms(&w->rec[i], S_TTFT, 20);
	}
	world_end(w);
}

/* The next piece that is seen begins in the middle of a chunk: read on from the one behind. */
static void picked_up(void **st)
{
	struct world *w = world_new();
	char piece[512];

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1001 * MS, HDR_CHUNKED);
	txc(w, 1, 1010 * MS, TOK);
	data_n(w, 1, RP_TX, 1020 * MS, "5\r\n", 3, 0, true);
	snprintf(piece, sizeof(piece), "SECRET\r\n%zx\r\n%s\r\n", strlen(TOK), TOK);
	tx(w, 1, 1030 * MS, piece);
	txc(w, 1, 1040 * MS, TOK DONE);
	tx(w, 1, 1050 * MS, END);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].end, RP_END_COMPLETE);
	assert_int_equal(w->rec[0].chunks, 3);
	assert_int_equal(rp_timeline_stats(w->t)->parse_errors, 0);
	is_ms(&w->rec[0], S_LAST_TOKEN, 40);
	is_ms(&w->rec[0], S_DURATION, 50);
	world_end(w);
}

/* What is no request costs itself alone; and a path that is nobody's business is not kept. */
static void bad_request(void **st)
{
	struct world *w = world_new();

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 900 * MS, "GET /SECRET HTTP/1.1\r\n\r\n");
	tx(w, 1, 910 * MS, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
	assert_int_equal(rp_timeline_stats(w->t)->bytes_tx, 0);
	assert_int_equal(rp_timeline_stats(w->t)->bytes_rx, 0);
	rx(w, 1, 1000 * MS, "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n");
	rx(w, 1, 1001 * MS, "SECRET");
	assert_int_equal(rp_timeline_stats(w->t)->parse_errors, 1);
	tx(w, 1, 1010 * MS, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
	rx(w, 1, 2000 * MS, REQ);
	tx(w, 1, 2010 * MS, HDR_CHUNKED);
	txc(w, 1, 2020 * MS, TOK DONE);
	tx(w, 1, 2030 * MS, END);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].end, RP_END_COMPLETE);
	is_ms(&w->rec[0], S_TTFT, 20);
	world_end(w);
}

/* Two responses wait to be acknowledged: each by its own connection. */
static void last_acks(void **st)
{
	struct rp_ev_session e = { .h = hdr(RP_EV_SESSION, sizeof(e), 1, 100, 0),
				   .hook_reason = RP_HOOKS_NONE_FOR_ENGINE,
				   .flags = RP_SESSION_ACKS };
	struct rp_ev_tcp a = { .h = hdr(RP_EV_TCP, sizeof(a), 1120 * MS, 100, 0),
			       .conn = 2,
			       .acked_ts = 1110 * MS };
	struct world *w = world_new();

	(void)st;
	session(w, false);
	feed(w, &e);
	w->tcp_unacked = 500;
	for (unsigned i = 1; i < 3; i++) {
		open_conn(w, i, 1 * MS);
		rx(w, i, 1000 * MS, REQ);
		tx(w, i, 1010 * MS, HDR_CHUNKED);
		txc(w, i, 1020 * MS, TOK DONE);
		tx(w, i, 1030 * MS, END);
	}
	feed(w, &a);
	assert_int_equal(w->n, 1);
	is_ms(&w->rec[0], NET_LAST_ACK, 80);
	assert_int_equal(w->rec[0].rport, 40002);
	tick(w, 4000 * MS);
	assert_int_equal(w->n, 2);
	is_null(&w->rec[1], NET_LAST_ACK, "not_seen");
	world_end(w);
}

/* More tasks than a hook can tell: what they made together is not known. */
static void more_tasks(void **st)
{
	struct world *w = world_new();
	struct rp_ev_hook e = {
		.h = hdr(RP_EV_HOOK, sizeof(e), 1001 * MS, 100, 1001), .n = 1, .ok = 1, .val = { 7 }
	};

	(void)st;
	memset(hook_seq, 0, sizeof(hook_seq));
	session(w, true);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	e.h.flags = RP_F_CUT;
	feed(w, &e);
	hook(w, 1, 1002 * MS, 50, 0xabc, 7);
	tx(w, 1, 1003 * MS, HDR_CHUNKED);
	hook(w, 2, 1010 * MS, 50, 0xabc, 0);
	txc(w, 1, 1011 * MS, TOK USAGE(9) DONE);
	hook(w, 4, 1012 * MS, 50, 0xabc, 0);
	tx(w, 1, 1020 * MS, END);
	assert_int_equal(w->n, 1);
	assert_true(w->rec[0].flags & RP_FLAG_LIMIT);
	assert_int_equal(NSV(&w->rec[0], TOK_COMPLETION), 9);
	assert_int_equal(w->rec[0].token_source, RP_TOKENS_USAGE);
	world_end(w);
}

/* The end of a response from before the attach was not seen: the next request is its end. */
static void asked_midstream(void **st)
{
	struct world *w = world_new();
	struct rp_ev_conn_open o = { .h = hdr(RP_EV_CONN_OPEN, sizeof(o), 1000 * MS, 100, 0),
				     .conn = 1,
				     .family = AF_INET,
				     .lport = 8000,
				     .rport = 4000 };
	struct rp_ev_conn_proto p = { .h = hdr(RP_EV_CONN_PROTO, sizeof(p), 1000 * MS, 100, 0),
				      .conn = 1,
				      .proto = RP_PROTO_MIDSTREAM };

	(void)st;
	o.h.flags = RP_F_PRE_ATTACH;
	session(w, false);
	feed(w, &o);
	feed(w, &p);
	txc(w, 1, 1000 * MS, TOK);
	tx(w, 1, 1050 * MS, "0\r\n");
	tx(w, 1, 1051 * MS, "\r\n");
	p.proto = RP_PROTO_HTTP1;
	feed(w, &p);
	rx(w, 1, 2000 * MS, REQ);
	assert_int_equal(w->n, 1);
	tx(w, 1, 2001 * MS, HDR_CHUNKED);
	txc(w, 1, 2010 * MS, TOK DONE);
	tx(w, 1, 2020 * MS, END);
	assert_int_equal(w->n, 2);
	assert_int_equal(w->rec[1].end, RP_END_COMPLETE);
	is_ms(&w->rec[1], S_TTFT, 10);
	world_end(w);
}

/* Refused before it had a slot, and its hooks entered by threads in turn. */
static void refused_task(void **st)
{
	struct world *w = world_new();
	const struct rp_stats *s = rp_timeline_stats(w->t);

	(void)st;
	memset(hook_seq, 0, sizeof(hook_seq));
	session(w, true);
	for (unsigned i = 1; i < 3; i++) {
		open_conn(w, i, 1 * MS);
		rx(w, i, 1000 * MS, REQ);
	}
	hook(w, 0, 1001 * MS, 1001, 7, 0);
	hook_seq[0] = 2; /* told before the one that was entered before it */
	hook(w, 0, 1003 * MS, 1002, 9, 0);
	hook_seq[0] = 1;
	hook(w, 0, 1002 * MS, 1001, 8, 0);
	assert_int_equal(s->waiting, 3);
	hook(w, 1, 1004 * MS, 50, 0xabc, 9);
	assert_int_equal(s->waiting, 2);
	assert_int_equal(s->running, 1);
	tx(w, 1, 1010 * MS,
	   "HTTP/1.1 503 No\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
	assert_int_equal(s->waiting, 0);
	assert_int_equal(s->running, 1);
	hook(w, 2, 1011 * MS, 50, 0xabc, 0);
	tx(w, 2, 1012 * MS, HDR_CHUNKED);
	txc(w, 2, 1013 * MS, TOK DONE);
	hook(w, 4, 1014 * MS, 50, 0xabc, 0);
	tx(w, 2, 1020 * MS, END);
	assert_int_equal(w->n, 2);
	assert_false(w->rec[1].flags & RP_FLAG_LOST_EVENTS);
	is_ms(&w->rec[1], P_QUEUE, 1);
	assert_int_equal(s->running, 0);
	world_end(w);
}

/* A Unix socket has no retransmissions, not none of them. */
static void unix_socket(void **st)
{
	struct world *w = world_new();
	struct rp_ev_conn_open o = { .h = hdr(RP_EV_CONN_OPEN, sizeof(o), 1 * MS, 0, 0),
				     .conn = 1,
				     .family = AF_UNIX,
				     .rtt_status = RP_RTT_UNIX };

	(void)st;
	session(w, false);
	feed(w, &o);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1010 * MS, HDR_CHUNKED);
	txc(w, 1, 1020 * MS, TOK DONE);
	tx(w, 1, 1030 * MS, END);
	assert_int_equal(w->n, 1);
	is_ms(&w->rec[0], S_TTFT, 20);
	is_null(&w->rec[0], NET_RETRANS, "unix_socket");
	is_null(&w->rec[0], NET_RTT, "unix_socket");
	world_end(w);
}

/* Two servers are watched: each is what its own session says. */
static void two_sessions(void **st)
{
	struct world *w = world_new();
	struct rp_ev_session e = { .h = hdr(RP_EV_SESSION, sizeof(e), 2, 300, 0),
				   .hook_reason = RP_HOOKS_STRIPPED };

	(void)st;
	session(w, false);
	strcpy(e.engine, "llamacpp");
	feed(w, &e);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, REQ);
	tx(w, 1, 1010 * MS, HDR_CHUNKED);
	txc(w, 1, 1020 * MS, TOK DONE);
	tx(w, 1, 1030 * MS, END);
	assert_int_equal(w->n, 1);
	assert_string_equal(w->rec[0].engine_name, "generic");
	is_null(&w->rec[0], M_QUEUE, "no_engine_hooks");
	world_end(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(c4),
		cmocka_unit_test(c1),
		cmocka_unit_test(c2),
		cmocka_unit_test(c6),
		cmocka_unit_test(c8),
		cmocka_unit_test(usage_at_the_end),
		cmocka_unit_test(b7),
		cmocka_unit_test(plain_usage),
		cmocka_unit_test(splits),
		cmocka_unit_test(engine_join),
		cmocka_unit_test(last_ack),
		cmocka_unit_test(last_ack_of_the_closed),
		cmocka_unit_test(not_read),
		cmocka_unit_test(lost_head),
		cmocka_unit_test(uring),
		cmocka_unit_test(posted),
		cmocka_unit_test(proxied),
		cmocka_unit_test(answered_late),
		cmocka_unit_test(half_closed_at_once),
		cmocka_unit_test(out_of_order),
		cmocka_unit_test(ends),
		cmocka_unit_test(late_write),
		cmocka_unit_test(abandoned),
		cmocka_unit_test(loss),
		cmocka_unit_test(loss_of_first),
		cmocka_unit_test(loss_of_others),
		cmocka_unit_test(loss_of_choices),
		cmocka_unit_test(census),
		cmocka_unit_test(truncated),
		cmocka_unit_test(unseen_answers),
		cmocka_unit_test(pre_attach),
		cmocka_unit_test(framing),
		cmocka_unit_test(errors),
		cmocka_unit_test(bodies),
		cmocka_unit_test(media),
		cmocka_unit_test(embeddings),
		cmocka_unit_test(long_path),
		cmocka_unit_test(limits),
		cmocka_unit_test(tls),
		cmocka_unit_test(hostile),
		cmocka_unit_test(forms),
		cmocka_unit_test(answers),
		cmocka_unit_test(unknown_tokens),
		cmocka_unit_test(long_ids),
		cmocka_unit_test(choices_seen),
		cmocka_unit_test(half_asked),
		cmocka_unit_test(stream_after_stream),
		cmocka_unit_test(picked_up),
		cmocka_unit_test(bad_request),
		cmocka_unit_test(last_acks),
		cmocka_unit_test(more_tasks),
		cmocka_unit_test(asked_midstream),
		cmocka_unit_test(refused_task),
		cmocka_unit_test(unix_socket),
		cmocka_unit_test(two_sessions),
		cmocka_unit_test(loss_before_a_lookalike),
		cmocka_unit_test(usage_that_falls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
