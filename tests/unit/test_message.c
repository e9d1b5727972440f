// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Messages of a vLLM engine, made by hand -> records and steps. */
#include "series.h"
#include "world.h"

#include <math.h>

#define API 100
#define CORE 200
#define SOCK_IN 0xa0
#define SOCK_OUT 0xb0

/* ---- msgpack, as msgspec writes it ---- */

struct pack {
	uint8_t b[65536];
	size_t n;
};

static void put(struct pack *p, const void *s, size_t n)
{
	assert_true(p->n + n <= sizeof(p->b));
	memcpy(p->b + p->n, s, n);
	p->n += n;
}
static void put1(struct pack *p, unsigned c)
{
	uint8_t b = (uint8_t)c;

	put(p, &b, 1);
}
static void nil(struct pack *p)
{
	put1(p, 0xc0);
}
static void arr(struct pack *p, size_t n)
{
	if (n < 16) {
		put1(p, 0x90 | (unsigned)n);
	} else {
		put1(p, 0xdc);
		put1(p, (unsigned)(n >> 8));
		put1(p, (unsigned)n);
	}
}
static void map(struct pack *p, size_t n)
{
	put1(p, 0x80 | (unsigned)n);
}
static void str(struct pack *p, const char *s)
{
	size_t n = strlen(s);

	if (n < 32) {
		put1(p, 0xa0 | (unsigned)n);
	} else {
		put1(p, 0xd9);
		put1(p, (unsigned)n);
	}
	put(p, s, n);
}
static void num(struct pack *p, unsigned v)
{
	if (v < 128) {
		put1(p, v);
		return;
	}
	put1(p, 0xcd);
	put1(p, v >> 8);
	put1(p, v);
}
static void f64(struct pack *p, double d)
{
	uint64_t v;

	memcpy(&v, &d, 8);
	put1(p, 0xcb);
	for (int i = 7; i >= 0; i--)
		put1(p, (unsigned)(v >> (8 * i)));
}

/* ---- EngineCoreOutputs of vLLM 0.31: 8 fields; outputs of 18 ---- */

struct ev {
	int type;
	double ts;
};
struct out {
	const char *id;
	unsigned tokens;
	int finish; /* -1: none */
	struct ev ev[6];
	int prompt, cached; /* > 0: prefill stats */
	bool pooled;
};

static void output(struct pack *p, const struct out *o)
{
	unsigned n_ev = 0;

	while (n_ev < 6 && o->ev[n_ev].type)
		n_ev++;
	arr(p, 18);
	str(p, o->id);
	arr(p, o->tokens);
	for (unsigned i = 0; i < o->tokens; i++)
		num(p, 1000 + i);
	nil(p);
	nil(p);
	if (o->pooled) {
		arr(p, 2);
		f64(p, 0.5);
		f64(p, 0.25);
	} else {
		nil(p);
	}
	if (o->finish >= 0)
		num(p, (unsigned)o->finish);
	else
		nil(p);
	if (o->finish == 0)
		str(p, "SECRETstop");
	else
		nil(p);
	if (n_ev) {
		arr(p, n_ev);
		for (unsigned i = 0; i < n_ev; i++) {
			map(p, 2);
			str(p, "type");
			num(p, (unsigned)o->ev[i].type);
			str(p, "timestamp");
			f64(p, o->ev[i].ts);
		}
	} else {
		nil(p);
	}
	nil(p);
	nil(p);
	nil(p);
	if (o->prompt) {
		map(p, 2);
		str(p, "num_prompt_tokens");
		num(p, (unsigned)o->prompt);
		str(p, "num_cached_tokens");
		num(p, (unsigned)o->cached);
	} else {
		nil(p);
	}
	nil(p);
	num(p, 0);
	for (int i = 0; i < 4; i++)
		nil(p);
}

struct stats {
	unsigned running, waiting;
};

static void outputs(struct pack *p, int index, double ts, const struct out *o, size_t n,
		    const struct stats *s)
{
	p->n = 0;
	arr(p, 8);
	num(p, (unsigned)index);
	arr(p, n);
	for (size_t i = 0; i < n; i++)
		output(p, &o[i]);
	if (s) {
		map(p, 4);
		str(p, "num_running_reqs");
		num(p, s->running);
		str(p, "num_waiting_reqs");
		num(p, s->waiting);
		str(p, "kv_cache_usage");
		f64(p, 0.25);
		str(p, "prefix_cache_stats");
		map(p, 4);
		str(p, "reset");
		put1(p, 0xc2);
		str(p, "requests");
		num(p, 1);
		str(p, "queries");
		num(p, 20);
		str(p, "hits");
		num(p, 8);
	} else {
		nil(p);
	}
	f64(p, ts);
	for (int i = 0; i < 4; i++)
		nil(p);
}

static uint32_t msg_seq;
static bool by_sockets; /* messages are read from writes, not by a hook */

static void frame(struct world *w, uint32_t pid, uint64_t sock, uint64_t ts, const void *b,
		  size_t n, unsigned flags, uint32_t missing)
{
	size_t size = (sizeof(struct rp_ev_msg) + n + 7) & ~(size_t)7;
	struct rp_ev_msg *e = calloc(1, size);

	e->h = hdr(RP_EV_MSG, size, ts, pid, pid + 1);
	e->h.flags = (missing ? RP_F_CUT : 0) | (by_sockets ? RP_F_SYNTH : 0);
	e->seq = msg_seq++;
	e->send_flags = (uint16_t)flags;
	e->sock = sock;
	e->len = (uint32_t)n;
	e->total = (uint32_t)n + missing;
	e->missing = missing;
	memcpy(e->payload, b, n);
	feed(w, e);
	free(e);
}

static void step_of(struct world *w, uint32_t pid, uint64_t sock, int index, double ts,
		    const struct out *o, size_t n, const struct stats *s)
{
	static struct pack p;

	outputs(&p, index, ts, o, n, s);
	frame(w, pid, sock, (uint64_t)(ts * 1e9) + 50000, p.b, p.n, 0, 0);
}

static const struct stats some = { 1, 0 };

static void step(struct world *w, double ts, const struct out *o, size_t n)
{
	step_of(w, CORE, SOCK_OUT, 0, ts, o, n, &some);
}

static void request(struct world *w, double ts, unsigned type, const struct pack *p)
{
	uint8_t t = (uint8_t)type;
	uint64_t ns = (uint64_t)(ts * 1e9);

	frame(w, API, SOCK_IN, ns, "\0\0", 2, RP_MSG_MORE, 0);
	frame(w, API, SOCK_IN, ns + 1000, &t, 1, RP_MSG_MORE, 0);
	frame(w, API, SOCK_IN, ns + 2000, p->b, p->n, 0, 0);
}

/* EngineCoreRequest of vLLM 0.31: 22 fields */
static void add(struct world *w, double ts, const char *id, unsigned prompt)
{
	static struct pack p;

	p.n = 0;
	arr(&p, 22);
	str(&p, id);
	arr(&p, prompt);
	for (unsigned i = 0; i < prompt; i++)
		num(&p, 900 + i);
	nil(&p);
	map(&p, 1);
	str(&p, "stop");
	arr(&p, 1);
	str(&p, "SECRETstop");
	nil(&p);
	f64(&p, 1.7e9);
	for (int i = 6; i < 11; i++)
		nil(&p);
	num(&p, 0);
	for (int i = 12; i < 16; i++)
		nil(&p);
	str(&p, id);
	for (int i = 17; i < 22; i++)
		nil(&p);
	request(w, ts, 0, &p);
}

static void abort_(struct world *w, double ts, const char *id)
{
	static struct pack p;

	p.n = 0;
	arr(&p, 1);
	str(&p, id);
	request(w, ts, 1, &p);
}

/* ---- the HTTP side ---- */

static void vllm(struct world *w)
{
	struct rp_ev_session e = { .h = hdr(RP_EV_SESSION, sizeof(e), 1, API, 0) };
	struct rp_ev_listener l = { .h = hdr(RP_EV_LISTENER, sizeof(l), 1, API, 0),
				    .port = 8000,
				    .family = AF_INET };
	struct rp_ev_clock c = { .h = hdr(RP_EV_CLOCK, sizeof(c), 1, 0, 0),
				 .offset = 1700000000000000000LL };

	msg_seq = 0;
	strcpy(e.engine, "vllm");
	strcpy(e.version, "0.31.0");
	e.hooks_attached = 1;
	e.roles[0] = RP_ROLE_VLLM;
	feed(w, &c);
	feed(w, &e);
	feed(w, &l);
	for (uint32_t core = CORE; core < CORE + 2; core++) {
		struct rp_ev_proc f = { .h = hdr(RP_EV_PROC, sizeof(f), 2, core, core),
					.what = RP_PROC_FORK,
					.ppid = API };

		feed(w, &f);
	}
}

#define SEC(s) ((uint64_t)((s)*1e9 + 0.5))

/* more: further members of the body, ",..." */
static void ask(struct world *w, uint64_t conn, double ts, const char *path, const char *xid,
		const char *more)
{
	char body[1024], head[2048], id[160] = "";

	snprintf(body, sizeof(body), "{\"model\":\"tiny\",\"prompt\":\"SECRET\"%s}", more);
	if (xid)
		snprintf(id, sizeof(id), "X-Request-Id: %s\r\n", xid);
	snprintf(head, sizeof(head),
		 "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n%s", path, id,
		 strlen(body), body);
	open_conn(w, conn, SEC(ts) - 1000);
	rx(w, conn, SEC(ts), head);
}

#define STREAM_HEAD \
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

static void chunk(struct world *w, uint64_t conn, double ts, const char *id, unsigned index,
		  const char *finish)
{
	char b[512];

	snprintf(
		b, sizeof(b),
		"data: {\"id\":\"%s\",\"object\":\"text_completion\",\"model\":\"tiny\",\"choices\":"
		"[{\"index\":%u,\"text\":\"SECRET\",\"finish_reason\":%s%s%s}]}\n\n",
		id, index, finish ? "\"" : "", finish ? finish : "null", finish ? "\"" : "");
	txc(w, conn, SEC(ts), b);
}

static void usage(struct world *w, uint64_t conn, double ts, const char *id, unsigned n)
{
	char b[512];

	snprintf(b, sizeof(b),
		 "data: {\"id\":\"%s\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,"
		 "\"completion_tokens\":%u}}\n\n",
		 id, n);
	txc(w, conn, SEC(ts), b);
}

static void done(struct world *w, uint64_t conn, double ts)
{
	txc(w, conn, SEC(ts), "data: [DONE]\n\n");
	tx(w, conn, SEC(ts), "0\r\n\r\n");
}

static void body(struct world *w, uint64_t conn, double ts, const char *id, const char *choices,
		 unsigned n)
{
	char b[1024], h[2048];

	snprintf(
		b, sizeof(b),
		"{\"id\":\"%s\",\"object\":\"text_completion\",\"model\":\"tiny\",\"choices\":[%s],"
		"\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":%u}}",
		id, choices, n);
	snprintf(
		h, sizeof(h),
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		strlen(b), b);
	tx(w, conn, SEC(ts), h);
}

#define CHOICE(i) "{\"index\":" #i ",\"text\":\"SECRET\",\"finish_reason\":\"length\"}"
#define COMPLETIONS "/v1/completions"
#define CHAT "/v1/chat/completions"

static void same_double(const struct rp_record *r, enum rp_field f, double d)
{
	assert_true(r->v[f].known);
	if (r->v[f].d != d)
		fail_msg("field %d: have %.17g, want %.17g", (int)f, r->v[f].d, d);
}

/* ---- tests ---- */

/* The object that vLLM 0.32 answered with, from the instants in its messages. */
static void same_numbers(void **st)
{
	static const double q = 2803.921513, s = 2803.921545, f = 2803.932210, l = 2803.951678;
	const char *id = "cmpl-my-req-1-0-996b10c4";

	(void)st;
	for (int stream = 0; stream < 2; stream++) {
		struct world *w = world_new();
		struct rp_record *r = &w->rec[0];

		vllm(w);
		ask(w, 1, q - 0.01, COMPLETIONS, NULL, stream ? ",\"stream\":true" : "");
		add(w, q - 0.001, id, 5);
		if (stream)
			tx(w, 1, SEC(q), STREAM_HEAD);
		step(w, f,
		     &(struct out){ .id = id,
				    .tokens = 1,
				    .finish = -1,
				    .ev = { { 1, q }, { 2, s } },
				    .prompt = 5,
				    .cached = 2 },
		     1);
		if (stream)
			chunk(w, 1, f + 0.001, "cmpl-my-req-1", 0, NULL);
		for (int i = 1; i < 5; i++) {
			step(w, f + i * 0.003, &(struct out){ .id = id, .tokens = 1, .finish = -1 },
			     1);
			if (stream)
				chunk(w, 1, f + i * 0.003 + 0.0004, "cmpl-my-req-1", 0, NULL);
		}
		step(w, l, &(struct out){ .id = id, .tokens = 1, .finish = 1 }, 1);
		if (stream) {
			chunk(w, 1, l + 0.002, "cmpl-my-req-1", 0, "length");
			done(w, 1, l + 0.003);
		} else {
			body(w, 1, l + 0.003, "cmpl-my-req-1", CHOICE(0), 6);
		}
		assert_int_equal(w->n, 1);
		same_double(r, RP_FIELD_M_TTFT, (f - s) * 1000);
		same_double(r, RP_FIELD_M_GENERATION, (l - f) * 1000);
		same_double(r, RP_FIELD_M_QUEUE, (s - q) * 1000);
		same_double(r, RP_FIELD_M_MEAN_ITL, (l - f) / 5 * 1000);
		same_double(r, RP_FIELD_M_TPS, 6 / ((l - s) * 1000) * 1000);
		assert_int_equal(NSV(r, TOK_COMPLETION), 6);
		assert_int_equal(r->token_source, RP_TOKENS_ENGINE);
		assert_int_equal(NSV(r, TOK_PROMPT), 5);
		assert_int_equal(NSV(r, TOK_CACHED), 2);
		assert_int_equal(NSV(r, SCH_STEPS), 6);
		assert_int_equal(NSV(r, SCH_PREEMPTIONS), 0);
		assert_int_equal(r->n_request_ids, 1);
		assert_string_equal(r->request_ids[0], id);
		assert_int_equal(r->core_pid, CORE);
		assert_int_equal(r->end, RP_END_COMPLETE);
		is_ms(r, FE_BEFORE, 10);
		if (stream) {
			is_ms(r, FE_FIRST, 1);
			is_ms(r, FE_LAST, 2);
		}
		/* five gaps of the engine, whether or not they came before the id */
		size_t n = 0;
		int64_t sum = 0;

		for (size_t i = 0; i < w->n_gaps; i++) {
			n += !w->gap_chunk[i];
			sum += w->gap_chunk[i] ? 0 : w->gaps[i];
		}
		assert_int_equal(n, 5);
		assert_int_equal(sum, 19468000);
		world_end(w);
	}
}

/* B1: the first wait is the queue time; later ones are reported apart. */
static void b1(void **st)
{
	const char *id = "cmpl-b1-0-00000001";
	struct world *w = world_new();
	struct rp_record *r = &w->rec[0];

	(void)st;
	vllm(w);
	ask(w, 1, 0.9, COMPLETIONS, NULL, ",\"stream\":true");
	tx(w, 1, SEC(1), STREAM_HEAD);
	step(w, 2.5,
	     &(struct out){ .id = id, .tokens = 1, .finish = -1, .ev = { { 1, 1.0 }, { 2, 2.0 } } },
	     1);
	chunk(w, 1, 2.6, "cmpl-b1", 0, NULL);
	step(w, 9.0, &(struct out){ .id = id, .tokens = 1, .finish = -1 }, 1);
	step(w, 50.5,
	     &(struct out){
		     .id = id, .tokens = 1, .finish = -1, .ev = { { 1, 50.0 }, { 2, 50.25 } } },
	     1);
	step(w, 51.0,
	     &(struct out){ .id = id,
			    .tokens = 1,
			    .finish = 0,
			    .ev = { { 3, 50.6 }, { 2, 50.85 }, { 3, 50.9 }, { 2, 50.95 } } },
	     1);
	chunk(w, 1, 51.1, "cmpl-b1", 0, "stop");
	done(w, 1, 51.2);
	assert_int_equal(w->n, 1);
	same_double(r, RP_FIELD_M_QUEUE, 1000);
	assert_int_equal(NSV(r, SCH_REQUEUES), 1);
	is_ms(r, SCH_REQUEUE, 250);
	assert_int_equal(NSV(r, SCH_PREEMPTIONS), 2);
	assert_true(llabs(NSV(r, SCH_PREEMPTED) - 300000000) < 10);
	assert_int_equal(rp_timeline_stats(w->t)->cores[0].preemptions, 2);
	for (size_t i = 0; i < w->n_gaps; i++)
		assert_true(w->gaps[i] >= 0);
	world_end(w);
}

/* Whose is it? Ids that are prefixes of one another. */
static void ids(void **st)
{
	/* clang-format off */
	static const struct { const char *path, *id, *engine; } c[] = {
		{ CHAT, "chatcmpl-a", "chatcmpl-a-11111111" },
		{ CHAT, "chatcmpl-a-b", "chatcmpl-a-b-22222222" },
		{ CHAT, "chatcmpl-plain", "chatcmpl-plain" },
		{ COMPLETIONS, "cmpl-a", "cmpl-a-0-33333333" },
		{ COMPLETIONS, "cmpl-a-0", "cmpl-a-0-0-44444444" },
		{ COMPLETIONS, "cmpl-b", "cmpl-b-0" },
		{ COMPLETIONS, "cmpl-b-0", "cmpl-b-0-0" },
		{ COMPLETIONS, "cmpl-old", "cmpl-old-0" },
	};
	/* clang-format on */
	enum { N = sizeof(c) / sizeof(c[0]) };

	(void)st;
	for (int way = 0; way < 4; way++) {
		struct world *w = world_new();
		bool stream = way & 1, back = way & 2; /* answered in which order */
		unsigned found = 0;

		vllm(w);
		for (int i = 0; i < N; i++)
			ask(w, 1 + i, 1 + i * 0.001, c[i].path, NULL,
			    stream ? ",\"stream\":true" : "");
		for (int i = 0; i < N; i++)
			add(w, 1.1 + i * 0.001, c[i].engine, 5 + (unsigned)i);
		for (int i = N - 1; i >= 0; i--)
			step(w, 2 + (N - i) * 0.01,
			     &(struct out){ .id = c[i].engine,
					    .tokens = 1,
					    .finish = 1,
					    .ev = { { 1, 1.5 }, { 2, 1.6 } } },
			     1);
		for (int k = 0; k < N; k++) {
			int i = back ? N - 1 - k : k;

			if (!stream) {
				body(w, 1 + i, 3 + k * 0.001, c[i].id, CHOICE(0), 1);
				continue;
			}
			tx(w, 1 + i, SEC(3 + k * 0.001), STREAM_HEAD);
			chunk(w, 1 + i, 3 + k * 0.001, c[i].id, 0, "length");
			done(w, 1 + i, 3 + k * 0.001);
		}
		assert_int_equal(w->n, N);
		for (int i = 0; i < N; i++) {
			const struct rp_record *r = &w->rec[back ? N - 1 - i : i];

			assert_string_equal(r->id, c[i].id);
			assert_int_equal(r->n_request_ids, 1);
			assert_string_equal(r->request_ids[0], c[i].engine);
			assert_int_equal(NSV(r, TOK_PROMPT), 5 + i);
			found++;
		}
		assert_int_equal(found, N);
		assert_int_equal(rp_timeline_stats(w->t)->not_joined, 0);
		world_end(w);
	}
}

/* Engine tokens of an id that turns out to be another's: the count of all does not fall
 * while nobody has them, and is not higher in the end. */
static void tokens_change_hands(void **st)
{
	struct world *w = world_new();

	(void)st;
	vllm(w);
	ask(w, 1, 1, COMPLETIONS, "t", ",\"stream\":true");
	add(w, 1.1, "cmpl-t-0", 5);
	step(w, 2, &(struct out){ .id = "cmpl-t-0", .tokens = 7, .ev = { { 1, 1.5 }, { 2, 1.6 } } },
	     1);
	assert_int_equal(rp_timeline_stats(w->t)->tokens_completion, 7);
	tx(w, 1, SEC(2.1), STREAM_HEAD);
	chunk(w, 1, 2.1, "cmpl-other", 0, "length");
	assert_int_equal(rp_timeline_stats(w->t)->tokens_completion, 7);
	/* the next of anybody's are these again */
	ask(w, 2, 3, COMPLETIONS, "u", ",\"stream\":true");
	add(w, 3.1, "cmpl-u-0", 5);
	step(w, 4, &(struct out){ .id = "cmpl-u-0", .tokens = 4, .ev = { { 1, 3.5 }, { 2, 3.6 } } },
	     1);
	assert_int_equal(rp_timeline_stats(w->t)->tokens_completion, 7);
	rp_timeline_finish(w->t);
	assert_int_equal(rp_timeline_stats(w->t)->tokens_completion, 4);
	world_end(w);
}

/*
 * One id used several times at once: the front end hands them over in any order.
 * A record has what its counts confirm, or nothing.
 */
static void twins(void **st)
{
	static const char *const id[] = { "cmpl-t-0-00000003", "cmpl-t-0-00000001",
					  "cmpl-t-0-00000002" };
	static const unsigned tokens[] = { 3, 1, 2 };

	(void)st;
	for (int early = 0; early < 2; early++) { /* the request tells the id, or the response */
		for (int same = 0; same < 2; same++) {
			struct world *w = world_new();

			vllm(w);
			for (unsigned i = 0; i < 3; i++)
				ask(w, 1 + i, 1 + i * 0.001, COMPLETIONS, early ? "t" : NULL, "");
			for (unsigned i = 0; i < 3; i++)
				add(w, 1.1 + i * 0.001, id[i], 5);
			for (unsigned i = 0; i < 3; i++)
				step(w, 2 + i * 0.001,
				     &(struct out){ .id = id[i],
						    .tokens = same ? 2 : tokens[i],
						    .finish = 1,
						    .ev = { { 1, 1.5 }, { 2, 1.6 } } },
				     1);
			for (unsigned i = 0; i < 3; i++)
				body(w, 1 + i, 3, "cmpl-t", CHOICE(0), same ? 2 : 3 - i);
			assert_int_equal(w->n, 3);
			for (unsigned i = 0; i < 3; i++) {
				const struct rp_record *r = &w->rec[i];

				assert_int_equal(NSV(r, TOK_COMPLETION), same ? 2 : 3 - i);
				if (i == 0 && !same) {
					assert_string_equal(r->request_ids[0], id[0]);
					same_double(r, RP_FIELD_M_TTFT, (2 - 1.6) * 1000);
					continue;
				}
				assert_int_equal(r->n_request_ids, 0);
				is_null(r, M_TTFT, "not_joined");
			}
			assert_int_equal(rp_timeline_stats(w->t)->tokens_completion, 6);
			world_end(w);
		}
	}
}

/* One that is longer than what is kept of it joins nothing, and the record says why. */
static void long_response_id(void **st)
{
	(void)st;
	for (int len = 127; len < 130; len++) {
		struct world *w = world_new();
		struct rp_record *r = &w->rec[0];
		char id[160], eng[180];

		vllm(w);
		snprintf(id, sizeof(id), "cmpl-%0*d", len - 5, 1);
		snprintf(eng, sizeof(eng), "%s-0-0000000a", id);
		/* so long that the request does not let expect it */
		ask(w, 1, 1, COMPLETIONS, id + 5, "");
		add(w, 1.1, eng, 5);
		step(w, 2,
		     &(struct out){
			     .id = eng, .tokens = 2, .finish = 1, .ev = { { 1, 1.5 }, { 2, 1.6 } } },
		     1);
		body(w, 1, 3, id, CHOICE(0), 2);
		assert_int_equal(w->n, 1);
		assert_int_equal(r->n_request_ids, len == 127);
		/* the engine's own is longer in any case */
		assert_int_equal(rp_timeline_stats(w->t)->limit_ids, 1);
		assert_true(r->flags & RP_FLAG_LIMIT);
		if (len == 127)
			same_double(r, RP_FIELD_M_TTFT, (2 - 1.6) * 1000);
		else
			is_null(r, M_TTFT, "limit");
		world_end(w);
	}
}

/* n > 1 and several prompts: `metrics` null, counts per choice. */
static void choices(void **st)
{
	static const char *const eng[2][4] = {
		{ "0_cmpl-n-0-0000000a", "1_cmpl-n-0-0000000a", "2_cmpl-n-0-0000000a",
		  "3_cmpl-n-0-0000000a" },
		{ "cmpl-n-0-0000000a", "cmpl-n-1-0000000b", "cmpl-n-2-0000000c",
		  "cmpl-n-3-0000000d" },
	};
	static const char *const more[2] = { ",\"n\":4", ",\"prompt\":[\"a\",\"b\",\"c\",\"d\"]" };

	(void)st;
	for (int kind = 0; kind < 2; kind++) {
		for (int early = 0; early < 2; early++) { /* the ADDs are seen, or not */
			struct world *w = world_new();
			struct rp_record *r = &w->rec[0];
			char extra[100];

			vllm(w);
			snprintf(extra, sizeof(extra), ",\"stream\":true%s", more[kind]);
			ask(w, 1, 1, COMPLETIONS, NULL, extra);
			for (int i = 0; early && i < 4; i++)
				add(w, 1.1 + i * 0.001, eng[kind][i], 5);
			tx(w, 1, SEC(1.2), STREAM_HEAD);
			for (int i = 0; i < 4; i++) {
				/* the first one's chunk is out before the others begin */
				step(w, 2 + i * 0.1,
				     &(struct out){ .id = eng[kind][i],
						    .tokens = 1,
						    .finish = -1,
						    .ev = { { 1, 1.5 }, { 2, 1.6 } } },
				     1);
				chunk(w, 1, 2.01 + i * 0.1, "cmpl-n", (unsigned)i, NULL);
			}
			for (int i = 0; i < 4; i++)
				step(w, 3 + i * 0.1,
				     &(struct out){ .id = eng[kind][i],
						    .tokens = 2 + (unsigned)i,
						    .finish = 1 },
				     1);
			chunk(w, 1, 4, "cmpl-n", 0, "length");
			usage(w, 1, 4, "cmpl-n", 18);
			done(w, 1, 4);
			assert_int_equal(w->n, 1);
			assert_int_equal(r->choices, 4);
			is_null(r, M_TTFT, "several_choices");
			is_null(r, M_QUEUE, "several_choices");
			is_null(r, M_TPS, "several_choices");
			assert_int_equal(NSV(r, TOK_COMPLETION), 18);
			assert_int_equal(NSV(r, TOK_PROMPT), 5);
			assert_int_equal(r->n_choice_tokens, 4);
			for (unsigned i = 0; i < 4; i++)
				assert_int_equal(r->choice_tokens[i], 3 + i);
			assert_int_equal(r->n_request_ids, 4);
			assert_non_null(strstr(w->json[0], "\"choice_tokens\":[3,4,5,6]"));
			is_ms(r, P_QUEUE, 100);
			world_end(w);
		}
	}
}

/*
 * A stop string is found in the front end: the engine says no finish, and its
 * outputs on the way are nobody's. By usage, or by the abort where there is none.
 */
static void stop_string(void **st)
{
	const char *id = "cmpl-s-0-0000000a";

	(void)st;
	for (int with_usage = 0; with_usage < 2; with_usage++) {
		for (int late = 0; late < 2; late++) { /* outputs before, or after the response */
			struct world *w = world_new();
			struct rp_record *r = &w->rec[0];

			vllm(w);
			ask(w, 1, 1, COMPLETIONS, NULL, ",\"stream\":true");
			add(w, 1.1, id, 5);
			tx(w, 1, SEC(1.2), STREAM_HEAD);
			step(w, 2.0,
			     &(struct out){ .id = id,
					    .tokens = 1,
					    .finish = -1,
					    .ev = { { 1, 1.5 }, { 2, 1.75 } } },
			     1);
			chunk(w, 1, 2.01, "cmpl-s", 0, NULL);
			step(w, 2.5, &(struct out){ .id = id, .tokens = 1, .finish = -1 }, 1);
			if (!late && with_usage)
				step(w, 2.6, &(struct out){ .id = id, .tokens = 1, .finish = -1 },
				     1);
			abort_(w, 2.501, id);
			if (!late)
				step(w, 2.7, &(struct out){ .id = id, .tokens = 1, .finish = -1 },
				     1);
			chunk(w, 1, 2.72, "cmpl-s", 0, "stop");
			if (with_usage)
				usage(w, 1, 2.73, "cmpl-s", 2);
			done(w, 1, 2.74);
			if (late)
				step(w, 2.8, &(struct out){ .id = id, .tokens = 1, .finish = -1 },
				     1);
			assert_int_equal(w->n, 1);
			assert_string_equal(r->finish_reason, "stop");
			assert_int_equal(NSV(r, TOK_COMPLETION), 2);
			same_double(r, RP_FIELD_M_GENERATION, 500);
			same_double(r, RP_FIELD_M_MEAN_ITL, 500);
			same_double(r, RP_FIELD_M_TPS, 2 / ((2.5 - 1.75) * 1000) * 1000);
			assert_non_null(strstr(w->json[0], "\"itl_ms\":[500]"));
			assert_int_equal(rp_timeline_stats(w->t)->tasks_unclaimed, 0);
			world_end(w);
		}
	}
}

/* The same with several choices: usage is their sum, and right for it. */
static void stop_strings(void **st)
{
	static const char *const id[2] = { "0_cmpl-s-0-0000000a", "1_cmpl-s-0-0000000a" };
	struct world *w = world_new();
	struct rp_record *r = &w->rec[0];

	(void)st;
	vllm(w);
	ask(w, 1, 1, COMPLETIONS, NULL, ",\"stream\":true,\"n\":2");
	for (int i = 0; i < 2; i++)
		add(w, 1.1, id[i], 5);
	tx(w, 1, SEC(1.2), STREAM_HEAD);
	for (int s = 0; s < 3; s++)
		step(w, 2 + s * 0.1,
		     (struct out[]){ { .id = id[0], .tokens = 1, .finish = -1 },
				     { .id = id[1], .tokens = 1, .finish = s == 2 ? 1 : -1 } },
		     2);
	chunk(w, 1, 2.21, "cmpl-s", 0, "stop"); /* after two: the third was under way */
	abort_(w, 2.22, id[0]);
	chunk(w, 1, 2.23, "cmpl-s", 1, "length");
	usage(w, 1, 2.24, "cmpl-s", 5);
	done(w, 1, 2.25);
	assert_int_equal(w->n, 1);
	assert_int_equal(NSV(r, TOK_COMPLETION), 5);
	assert_int_equal(r->token_source, RP_TOKENS_USAGE);
	assert_int_equal(r->choice_tokens[0] + r->choice_tokens[1], 6);
	world_end(w);
}

/* Clients that go away: in the stream, and before they have heard anything. */
static void hang_up(void **st)
{
	struct world *w = world_new();
	const char *a = "cmpl-a-0-0000000a", *b = "cmpl-b-0-0000000b", *c = "cmpl-c-0-0000000c";

	(void)st;
	vllm(w);
	ask(w, 1, 1.0, COMPLETIONS, NULL, ",\"stream\":true");
	add(w, 1.01, a, 5);
	ask(w, 2, 1.1, COMPLETIONS, NULL, "");
	add(w, 1.11, b, 6);
	ask(w, 3, 1.2, COMPLETIONS, "c", "");
	add(w, 1.21, c, 7);
	tx(w, 1, SEC(1.5), STREAM_HEAD);
	step(w, 2.0,
	     &(struct out){ .id = a, .tokens = 1, .finish = -1, .ev = { { 1, 1.5 }, { 2, 1.75 } } },
	     1);
	chunk(w, 1, 2.01, "cmpl-a", 0, NULL);
	for (unsigned i = 1; i <= 3; i++) {
		state(w, i, SEC(2.1), RP_PEER_RST);
		close_conn(w, i, SEC(2.1) + 1000);
	}
	step(w, 2.105, &(struct out){ .id = a, .tokens = 1, .finish = -1 }, 1);
	abort_(w, 2.11, a);
	abort_(w, 2.12, b);
	abort_(w, 2.13, c);
	step(w, 2.2, &(struct out){ .id = a, .tokens = 1, .finish = -1 }, 1);
	tick(w, SEC(3));
	assert_int_equal(w->n, 3);
	for (unsigned i = 0; i < 3; i++) {
		const struct rp_record *r = &w->rec[i];

		assert_int_equal(r->end, RP_END_CLIENT_DISCONNECT);
		assert_int_equal(r->n_request_ids, 1);
		if (!strcmp(r->request_ids[0], a))
			assert_int_equal(NSV(r, TOK_COMPLETION), 2);
		else
			is_null(r, M_QUEUE, "not_reached");
	}
	assert_int_equal(rp_timeline_stats(w->t)->not_joined, 0);
	world_end(w);
}

/* Handed over twice, cut, foreign frames, unknown layouts, a dead engine. */
static void odd_messages(void **st)
{
	const char *id = "cmpl-o-0-0000000a";
	struct world *w = world_new();
	struct rp_record *r = &w->rec[0];
	static struct pack p;

	(void)st;
	vllm(w);
	ask(w, 1, 1, COMPLETIONS, NULL, "");
	add(w, 1.1, id, 5);
	add(w, 1.1, id, 5);
	for (int i = 0; i < 2; i++)
		step(w, 2.0,
		     &(struct out){ .id = id,
				    .tokens = 1,
				    .finish = -1,
				    .ev = { { 1, 1.5 }, { 2, 1.75 } } },
		     1);
	/* tensors travel in frames of their own, and may look like anything */
	outputs(&p, 0, 2.25, &(struct out){ .id = id, .tokens = 1, .finish = -1 }, 1, &some);
	frame(w, CORE, SOCK_OUT, SEC(2.26), p.b, p.n, RP_MSG_MORE, 0);
	outputs(&p, 0, 2.26, &(struct out){ .id = id, .tokens = 1, .finish = 0 }, 1, &some);
	frame(w, CORE, SOCK_OUT, SEC(2.26), p.b, p.n, RP_MSG_MORE, 0);
	frame(w, CORE, SOCK_OUT, SEC(2.26), p.b, p.n, 0, 0);
	frame(w, CORE, SOCK_OUT + 1, SEC(2.3), "\xdc\xff\xff", 3, 0, 0);
	frame(w, CORE, SOCK_OUT + 1, SEC(2.3), "hello, world", 12, 0, 0);
	frame(w, CORE, SOCK_OUT + 1, SEC(2.3), "\x80\x04\x95\x0c\0\0\0SECRET", 13, 0, 0);
	frame(w, CORE, SOCK_OUT, SEC(2.4), "ENGINE_CORE_DEAD", 16, 0, 0);
	/* cut behind its output: the instant of the send has to do */
	outputs(&p, 0, 2.5, &(struct out){ .id = id, .tokens = 1, .finish = 1 }, 1, &some);
	frame(w, CORE, SOCK_OUT, SEC(2.5), p.b, p.n - 60, 0, 60);
	body(w, 1, 3, "cmpl-o", CHOICE(0), 3);
	assert_int_equal(w->n, 1);
	assert_int_equal(NSV(r, TOK_COMPLETION), 3);
	same_double(r, RP_FIELD_M_TTFT, 250);
	assert_true(fabs(r->v[RP_FIELD_M_GENERATION].d - 500) < 1e-6);
	assert_int_equal(rp_timeline_stats(w->t)->messages_repeated, 1);
	assert_int_equal(rp_timeline_stats(w->t)->messages_cut, 1);
	assert_true(rp_timeline_stats(w->t)->messages_bad >= 1);
	assert_non_null(strstr(w->notices, "died"));
	assert_non_null(strstr(w->notices, "V0 engine"));
	assert_non_null(strstr(w->notices, "--payload"));
	world_end(w);
}

/* Two API servers and two cores: joined by id; a step's parts are one step. */
static void several(void **st)
{
	struct world *w = world_new();
	const struct rp_stats *s;
	const char *id[4] = { "cmpl-0-0-0000000a", "cmpl-1-0-0000000b", "cmpl-2-0-0000000c",
			      "cmpl-3-0-0000000d" };

	(void)st;
	vllm(w);
	for (unsigned i = 0; i < 4; i++)
		ask(w, 1 + i, 1, COMPLETIONS, NULL, "");
	for (unsigned k = 0; k < 3; k++) {
		for (unsigned i = 0; i < 4; i++) {
			struct out o = { .id = id[i], .tokens = 1, .finish = k == 2 ? 1 : -1 };

			if (!k) {
				o.ev[0] = (struct ev){ 1, 1.5 };
				o.ev[1] = (struct ev){ 2, 1.75 };
			}
			/* rank i / 2 tells client i % 2; stats ride on the first */
			step_of(w, CORE + i / 2, SOCK_OUT + i % 2, (int)(i / 2),
				2 + k + (i % 2) * 2e-5, &o, 1, i % 2 ? NULL : &some);
		}
	}
	for (unsigned i = 0; i < 4; i++) {
		char rid[20];

		snprintf(rid, sizeof(rid), "cmpl-%u", i);
		body(w, 1 + i, 5, rid, CHOICE(0), 3);
	}
	assert_int_equal(w->n, 4);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(w->rec[i].n_request_ids, 1);
		assert_int_equal(w->rec[i].core_pid, CORE + i / 2);
		assert_int_equal(w->rec[i].engine_index, (int)(i / 2));
		assert_int_equal(NSV(&w->rec[i], TOK_COMPLETION), 3);
	}
	tick(w, SEC(6));
	s = rp_timeline_stats(w->t);
	assert_int_equal(s->n_cores, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(s->cores[i].steps, 3);
		assert_int_equal(s->cores[i].tokens, 6);
		assert_int_equal(s->cores[i].running, 1);
		assert_int_equal(s->cores[i].prefix_queries, 60);
		assert_int_equal(s->cores[i].prefix_hits, 24);
	}
	assert_int_equal(s->running, 2);
	for (uint32_t c = CORE; c < CORE + 2; c++) {
		struct rp_ev_proc e = {
			.h = hdr(RP_EV_PROC, sizeof(e), SEC(7), c, c),
			.what = RP_PROC_EXIT
		};

		feed(w, &e);
	}
	assert_int_equal(s->running, 0);
	assert_true(s->cores[0].gone && s->cores[1].gone);
	world_end(w);
}

/* Without log stats: no events. The queue time is estimated and says so. */
static void estimated(void **st)
{
	struct world *w = world_new();
	struct rp_record *r;
	const char *a = "cmpl-a-0-0000000a", *b = "cmpl-b-0-0000000b", *c = "cmpl-c-0-0000000c";

	(void)st;
	vllm(w);
	/* an idle engine takes it at once */
	ask(w, 1, 1, COMPLETIONS, NULL, "");
	add(w, 1.01, a, 5);
	step_of(w, CORE, SOCK_OUT, 0, 1.1,
		&(struct out){ .id = a, .tokens = 1, .finish = -1, .prompt = 5 }, 1, NULL);
	/* b comes in the middle of a step and is in the next */
	ask(w, 2, 1.12, COMPLETIONS, NULL, "");
	add(w, 1.13, b, 5);
	step_of(w, CORE, SOCK_OUT, 0, 1.2, &(struct out){ .id = a, .tokens = 1, .finish = -1 }, 1,
		NULL);
	step_of(w, CORE, SOCK_OUT, 0, 1.3,
		(struct out[]){ { .id = a, .tokens = 1, .finish = -1 },
				{ .id = b, .tokens = 1, .finish = 1, .prompt = 5 } },
		2, NULL);
	/* c waits two steps long */
	ask(w, 3, 1.31, COMPLETIONS, NULL, "");
	add(w, 1.32, c, 5);
	for (int i = 4; i < 7; i++)
		step_of(w, CORE, SOCK_OUT, 0, 1 + i * 0.1,
			&(struct out){ .id = a, .tokens = 1, .finish = i == 6 ? 1 : -1 }, 1, NULL);
	step_of(w, CORE, SOCK_OUT, 0, 1.7,
		&(struct out){ .id = c, .tokens = 1, .finish = 1, .prompt = 5 }, 1, NULL);
	body(w, 1, 2, "cmpl-a", CHOICE(0), 6);
	body(w, 2, 2, "cmpl-b", CHOICE(0), 1);
	body(w, 3, 2, "cmpl-c", CHOICE(0), 1);
	assert_int_equal(w->n, 3);
	for (unsigned i = 0; i < 3; i++) {
		r = &w->rec[i];
		assert_int_equal(r->estimate, RP_EST_STEPS);
		assert_true(r->flags & RP_FLAG_ESTIMATED);
		is_ms(r, P_QUEUE, i == 2 ? 200 : 0);
		assert_non_null(strstr(
			w->json[i],
			"\"estimated\":{\"queue_time\":\"steps\",\"preemptions\":\"steps\"}"));
		assert_int_equal(NSV(r, SCH_PREEMPTIONS), 0);
		assert_int_equal(NSV(r, SCH_REQUEUES), 0);
	}
	is_ms(&w->rec[1], P_PREFILL, 100);
	world_end(w);
}

/* Events without stats: of several front ends one has the stats. Nothing is estimated. */
static void told_without_stats(void **st)
{
	const char *a = "cmpl-a-0-0000000a", *b = "cmpl-b-0-0000000b";
	struct world *w = world_new();
	const struct rp_record *r = &w->rec[0];

	(void)st;
	vllm(w);
	ask(w, 1, 1, COMPLETIONS, NULL, "");
	ask(w, 2, 1, COMPLETIONS, NULL, "");
	add(w, 1.1, a, 5);
	step_of(w, CORE, SOCK_OUT, 0, 2,
		&(struct out){
			.id = a, .tokens = 3, .finish = -1, .ev = { { 1, 1.5 }, { 2, 1.75 } } },
		1, NULL);
	step_of(w, CORE, SOCK_OUT, 0, 2.5, &(struct out){ .id = a, .tokens = 2, .finish = 1 }, 1,
		NULL);
	body(w, 1, 3, "cmpl-a", CHOICE(0), 5);
	assert_int_equal(w->n, 1);
	assert_int_equal(r->estimate, RP_EST_NONE);
	assert_false(r->flags & RP_FLAG_ESTIMATED);
	is_ms(r, P_QUEUE, 250);
	is_ms(r, P_FRONTEND, 500);
	assert_int_equal(NSV(r, SCH_PREEMPTIONS), 0);
	/* tokens of one message have no time between them, the first message's, too */
	assert_int_equal(w->n_gaps, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(w->gaps[i], i < 2 ? 0 : 250 * MS);
	/* unless there may have been some before it */
	step_of(w, CORE, SOCK_OUT, 0, 4, &(struct out){ .id = b, .tokens = 3, .finish = -1 }, 1,
		&some);
	body(w, 2, 5, "cmpl-b", CHOICE(0), 3);
	assert_int_equal(w->rec[1].n_request_ids, 1);
	assert_int_equal(w->n_gaps, 4);
	world_end(w);
}

/* An engine in another time namespace: its clock is ahead of ours, or behind. */
static void other_clock(void **st)
{
	const char *id = "cmpl-a-0-0000000a";

	(void)st;
	for (int off = -1000; off <= 1000; off += 2000) {
		struct world *w = world_new();
		static struct pack p;

		vllm(w);
		ask(w, 1, 2000, COMPLETIONS, NULL, "");
		add(w, 2000.1, id, 5);
		for (int k = 0; k < 2; k++) {
			double ts = 2001 + k * 0.5;

			outputs(&p, 0, ts + off,
				&(struct out){ .id = id,
					       .tokens = 1,
					       .finish = k ? 1 : -1,
					       .ev = { { k ? 0 : 1, 2000.25 + off },
						       { 2, 2000.5 + off } } },
				1, &some);
			frame(w, CORE, SOCK_OUT, SEC(ts), p.b, p.n, 0, 0);
		}
		body(w, 1, 2002, "cmpl-a", CHOICE(0), 2);
		assert_int_equal(w->n, 1);
		is_ms(&w->rec[0], P_FRONTEND, 250);
		is_ms(&w->rec[0], P_QUEUE, 250);
		is_ms(&w->rec[0], P_PREFILL, 500);
		is_ms(&w->rec[0], P_DECODE, 500);
		is_ms(&w->rec[0], P_FLUSH, 500);
		world_end(w);
	}
}

/* ---- without log stats: preemptions, the KV cache, who waits ---- */

struct seen_steps {
	struct rp_step_info s[64];
	size_t n;
};

static void see_step(void *ctx, const struct rp_step_info *s)
{
	struct seen_steps *all = ctx;

	assert_true(all->n < 64);
	all->s[all->n++] = *s;
}

static struct world *quiet(struct seen_steps *all)
{
	struct world *w = world_new();
	struct rp_observer obs = { .ctx = all, .step = see_step };

	all->n = 0;
	assert_int_equal(rp_timeline_observe(w->t, &obs), 0);
	vllm(w);
	return w;
}

/* A step without stats in which each letter's request gets a token; a capital ends. */
static void part_of_step(struct world *w, uint64_t sock, double ts, const char *who)
{
	static const char *const ids = "abcdefgh";
	struct out o[8] = { 0 };
	char id[8][32];
	size_t n = 0;

	for (; *who; who++, n++) {
		bool last = *who >= 'A' && *who <= 'Z';

		snprintf(id[n], sizeof(id[n]), "cmpl-%c-0-0000000%c", last ? *who + 32 : *who,
			 last ? *who + 32 : *who);
		o[n] = (struct out){ .id = id[n], .tokens = 1, .finish = last ? 1 : -1 };
		assert_non_null(strchr(ids, last ? *who + 32 : *who));
	}
	step_of(w, CORE, sock, 0, ts, o, n, NULL);
}

static void quiet_step(struct world *w, double ts, const char *who)
{
	part_of_step(w, SOCK_OUT, ts, who);
}

static void quiet_add(struct world *w, double ts, char who, unsigned prompt)
{
	char id[32];

	ask(w, 1 + (uint64_t)(who - 'a'), ts, COMPLETIONS, NULL, "");
	snprintf(id, sizeof(id), "cmpl-%c-0-0000000%c", who, who);
	add(w, ts + 0.001, id, prompt);
}

static const struct rp_record *answer(struct world *w, double ts, char who, unsigned n)
{
	char id[16];

	snprintf(id, sizeof(id), "cmpl-%c", who);
	body(w, 1 + (uint64_t)(who - 'a'), ts, id, CHOICE(0), n);
	return &w->rec[w->n - 1];
}

static const struct rp_core *core0(const struct world *w)
{
	assert_true(rp_timeline_stats(w->t)->n_cores >= 1);
	return &rp_timeline_stats(w->t)->cores[0];
}

/* A wait of more steps than are kept is as long as it is. */
static void long_wait(void **st)
{
	struct world *w = world_new();
	const struct rp_record *r;
	double ts = 1.1;

	(void)st;
	vllm(w);
	quiet_add(w, 1, 'a', 5);
	quiet_step(w, ts, "a");
	quiet_add(w, 1.15, 'b', 5);
	for (int i = 0; i < 400; i++)
		quiet_step(w, ts += 0.1, "a");
	quiet_step(w, ts + 0.1, "aB");
	r = answer(w, ts + 0.2, 'b', 1);
	assert_int_equal(r->estimate, RP_EST_STEPS);
	assert_true(NSV(r, P_QUEUE) > 39.9e9 && NSV(r, P_QUEUE) < 40.1e9);
	world_end(w);
}

/* A running request left out of a step in which another was not: preempted. */
static void left_out(void **st)
{
	struct seen_steps all;
	struct world *w = quiet(&all);
	struct rp_engine_load load[RP_MAX_CORES];
	const struct rp_record *r;

	(void)st;
	quiet_add(w, 1, 'a', 5);
	quiet_add(w, 1.01, 'b', 5);
	quiet_step(w, 1.1, "ab");
	quiet_step(w, 1.2, "a");
	quiet_step(w, 1.3, "a");
	quiet_step(w, 1.4, "a");
	tick(w, SEC(1.41));
	rp_timeline_load(w->t, load);
	assert_int_equal(load[0].running, 1);
	assert_int_equal(load[0].waiting, 1);
	assert_true(load[0].waiting_known && load[0].capacity_only);
	quiet_step(w, 1.5, "ab");
	quiet_step(w, 1.6, "ab");
	quiet_step(w, 1.7, "b");
	quiet_step(w, 1.8, "Ab");
	quiet_step(w, 1.9, "b");
	quiet_step(w, 2.0, "B");
	tick(w, SEC(2.01));
	r = answer(w, 2.1, 'b', 7);
	assert_int_equal(NSV(r, SCH_PREEMPTIONS), 1);
	is_ms(r, SCH_PREEMPTED, 300); /* end of its step to the start of its next */
	assert_int_equal(NSV(r, SCH_REQUEUES), 0);
	assert_non_null(strstr(w->json[w->n - 1], "\"preemptions\":\"steps\"}"));
	r = answer(w, 2.1, 'a', 7);
	assert_int_equal(NSV(r, SCH_PREEMPTIONS), 1);
	is_ms(r, SCH_PREEMPTED, 100);
	assert_int_equal(core0(w)->preemptions, 2);
	assert_true(rp_core_preemptions(core0(w)));
	assert_int_equal(all.n, 10);
	for (size_t i = 0; i < all.n; i++) {
		assert_int_equal(all.s[i].preempted, i == 4 || i == 7);
		assert_true(all.s[i].preempted_known && all.s[i].estimated);
		assert_true(isnan(all.s[i].kv_usage)); /* of what, nobody said */
	}
	world_end(w);
	/* alone, it is in every step that there is */
	w = quiet(&all);
	quiet_add(w, 1, 'a', 5);
	quiet_step(w, 1.1, "a");
	quiet_step(w, 5, "a");
	quiet_step(w, 5.1, "A");
	r = answer(w, 6, 'a', 3);
	assert_int_equal(NSV(r, SCH_PREEMPTIONS), 0);
	is_ms(r, SCH_PREEMPTED, 0);
	world_end(w);
}

static void ready(struct world *w, unsigned blocks, unsigned block, unsigned pipeline)
{
	static struct pack p;

	p.n = 0;
	map(&p, 5);
	str(&p, "max_model_len");
	num(&p, 4096);
	str(&p, "num_gpu_blocks");
	num(&p, blocks);
	str(&p, "block_size");
	num(&p, block);
	str(&p, "pipeline_parallel_size");
	num(&p, pipeline);
	str(&p, "kv_cache_size_tokens");
	num(&p, blocks * block);
	frame(w, CORE, 0xc0, SEC(0.5), p.b, p.n, 0, 0);
}

static void configured(struct world *w, uint64_t tokens, uint64_t blocks, uint32_t block,
		       uint32_t pipeline, uint32_t flags)
{
	struct rp_ev_engine e = {
		.h = hdr(RP_EV_ENGINE, sizeof(e), SEC(0.4), API, 0),
		.kv_tokens = tokens,
		.kv_blocks = blocks,
		.block_size = block,
		.pipeline = pipeline,
		.flags = flags
	};

	feed(w, &e);
}

/* What else leaves requests out of steps: no estimate then, and no 0. */
static void left_out_otherwise(void **st)
{
	struct seen_steps all;

	(void)st;
	for (int how = 0; how < 5; how++) {
		struct world *w = quiet(&all);
		const struct rp_record *r;

		if (how == 0)
			ready(w, 100, 16, 2);
		else if (how == 1)
			configured(w, 0, 0, 0, 2, 0);
		else if (how == 2)
			configured(w, 0, 0, 0, 0, RP_ENGINE_TRANSFER);
		quiet_add(w, 1, 'a', 5);
		quiet_add(w, 1.01, 'b', 5);
		quiet_step(w, 1.1, "ab");
		if (how == 4) { /* micro-batches, and nobody said so */
			for (int i = 0; i < 25; i++) {
				quiet_step(w, 1.2 + i * 0.02, "a");
				quiet_step(w, 1.21 + i * 0.02, "b");
			}
		}
		if (how == 3) /* a step of it may have been lost */
			msg_seq += 100;
		quiet_step(w, 1.8, "a");
		quiet_step(w, 1.9, "AB");
		tick(w, SEC(2));
		r = answer(w, 2, 'b', 2);
		if (how == 3)
			is_null(r, SCH_PREEMPTIONS, "lost_events");
		else
			is_null(r, SCH_PREEMPTIONS, "not_reported");
		assert_null(strstr(w->json[w->n - 1], "\"preemptions\":\"steps\""));
		assert_int_equal(rp_core_preemptions(core0(w)), how == 3);
		assert_int_equal(all.s[all.n - 1].preempted_known, how == 3);
		if (how == 3)
			assert_int_equal(core0(w)->preemptions, 0);
		world_end(w);
	}
}

/* The engine's events, where it sends them, and nothing beside. */
static void left_out_with_stats(void **st)
{
	struct world *w = world_new();
	const char *a = "cmpl-a-0-0000000a", *b = "cmpl-b-0-0000000b";

	(void)st;
	vllm(w);
	ready(w, 11, 16, 1);
	ask(w, 1, 1, COMPLETIONS, NULL, "");
	add(w, 1.01, a, 5);
	step(w, 1.1,
	     (struct out[]){
		     { .id = a, .tokens = 1, .finish = -1, .ev = { { 1, 1.02 }, { 2, 1.03 } } },
		     { .id = b, .tokens = 1, .finish = -1 } },
	     2);
	step(w, 1.2, &(struct out){ .id = b, .tokens = 1, .finish = -1 }, 1);
	step(w, 1.3,
	     (struct out[]){ { .id = a, .tokens = 1, .finish = 1 },
			     { .id = b, .tokens = 1, .finish = -1 } },
	     2);
	body(w, 1, 2, "cmpl-a", CHOICE(0), 2);
	assert_int_equal(NSV(&w->rec[0], SCH_PREEMPTIONS), 0);
	assert_false(w->rec[0].flags & RP_FLAG_ESTIMATED);
	assert_int_equal(core0(w)->preemptions, 0);
	assert_true(core0(w)->kv_usage == 0.25); /* as the scheduler says */
	world_end(w);
}

static void is_kv(const struct world *w, double want)
{
	double have = core0(w)->kv_usage;

	if (isnan(want) ? !isnan(have) : have != want)
		fail_msg("KV cache usage: have %g, want %g", have, want);
}

/* Blocks of those that run, of all there are but one. */
static void kv_cache(void **st)
{
	struct seen_steps all;
	struct world *w;

	(void)st;
	for (int how = 0; how < 4; how++) { /* who says how large it is */
		w = quiet(&all);
		if (how == 0)
			ready(w, 11, 16, 1);
		else if (how == 1)
			configured(w, 0, 11, 16, 0, 0);
		else if (how == 2)
			configured(w, 176, 0, 0, 0, 0);
		else
			configured(w, 999, 0, 7, 0, 0), ready(w, 11, 16, 1);
		quiet_add(w, 1, 'a', 15); /* 16 tokens with its first: a block */
		quiet_add(w, 1.01, 'b', 20);
		quiet_step(w, 1.1, "ab");
		tick(w, SEC(1.11));
		is_kv(w, 0.3);
		assert_true(all.s[0].kv_usage == 0.3 && all.s[0].estimated && !all.s[0].has_stats);
		quiet_step(w, 1.2, "ab"); /* and a begins another */
		tick(w, SEC(1.21));
		is_kv(w, 0.4);
		quiet_step(w, 1.3, "a"); /* b is preempted */
		tick(w, SEC(1.31));
		is_kv(w, 0.2);
		quiet_step(w, 1.4, "ab");
		tick(w, SEC(1.41));
		is_kv(w, 0.4);
		abort_(w, 1.42, "cmpl-b-0-0000000b");
		is_kv(w, 0.2);
		abort_(w, 1.43, "cmpl-b-0-0000000b");
		is_kv(w, 0.2);
		/* what was under way when it was aborted holds nothing for long */
		quiet_step(w, 1.44, "ab");
		tick(w, SEC(1.45));
		is_kv(w, 0.2);
		quiet_step(w, 1.5, "A");
		tick(w, SEC(1.51));
		is_kv(w, 0);
		/* longer than all of it, so some is shared: full, and not beyond */
		quiet_add(w, 2, 'c', 400);
		quiet_step(w, 2.1, "c");
		tick(w, SEC(2.11));
		is_kv(w, 1);
		/* one of unknown length: no sum */
		quiet_step(w, 2.2, "cd");
		tick(w, SEC(2.21));
		is_kv(w, NAN);
		assert_true(isnan(all.s[all.n - 1].kv_usage));
		quiet_step(w, 2.3, "CD");
		tick(w, SEC(2.31));
		is_kv(w, 0);
		world_end(w);
	}
	/* a prefix that several found in the cache is there once; what one of them holds
	 * alone is free when it leaves */
	w = quiet(&all);
	ready(w, 11, 16, 1);
	for (int i = 0; i < 3; i++)
		quiet_add(w, 1 + i * 0.01, (char)('a' + i), 40);
	step_of(w, CORE, SOCK_OUT, 0, 1.1,
		(struct out[]){
			{ .id = "cmpl-a-0-0000000a", .tokens = 1, .finish = -1, .prompt = 40 },
			{ .id = "cmpl-b-0-0000000b",
			  .tokens = 1,
			  .finish = -1,
			  .prompt = 40,
			  .cached = 32 },
			{ .id = "cmpl-c-0-0000000c",
			  .tokens = 1,
			  .finish = -1,
			  .prompt = 40,
			  .cached = 32 } },
		3, NULL);
	tick(w, SEC(1.11));
	is_kv(w, 0.7); /* 3 blocks, 3 blocks, 1 block */
	abort_(w, 1.12, "cmpl-c-0-0000000c");
	is_kv(w, 0.6);
	world_end(w);
	/* an abort while its step is put together */
	w = quiet(&all);
	ready(w, 11, 16, 1);
	quiet_add(w, 1, 'a', 15);
	quiet_add(w, 1.01, 'b', 20);
	quiet_step(w, 1.1, "ab");
	abort_(w, 1.1001, "cmpl-b-0-0000000b");
	tick(w, SEC(1.2));
	is_kv(w, 0.1);
	/* absurd sizes are none */
	world_end(w);
	w = quiet(&all);
	configured(w, UINT64_MAX, UINT64_MAX, UINT32_MAX, 0, 0);
	quiet_add(w, 1, 'a', 15);
	quiet_step(w, 1.1, "a");
	tick(w, SEC(1.2));
	is_kv(w, NAN);
	world_end(w);
}

/* However the parts of a step for several front ends are put together: nobody is left out
 * of it, and all are in the KV cache. */
static void parts_of_step(void **st)
{
	struct seen_steps all;

	(void)st;
	for (int how = 0; how < 6; how++) {
		struct world *w = quiet(&all);
		struct rp_engine_load load[RP_MAX_CORES];
		const struct rp_record *r;

		ready(w, 21, 16, 1);
		quiet_add(w, 1, 'a', 15);
		quiet_add(w, 1.01, 'b', 15);
		quiet_add(w, 1.02, 'c', 15);
		for (int i = 0; i < 12; i++) {
			double t = 1.1 + i * 0.1, apart = how == 2 ? 0.0021 :
							  how == 3 ? 0.02 :
								     0.0002;
			bool turned = how >= 4 && i % 2;

			if (how == 5) /* always two: they look like one step of each in turn */
				apart = 0.01;
			part_of_step(w, turned ? 0xb1 : 0xb0, t, turned ? "c" : "ab");
			if (how == 1 && i % 3 == 1)
				tick(w, SEC(t + 0.0001));
			if (how == 3 && i % 3 == 1)
				tick(w, SEC(t + 0.01)); /* what it sent is not read yet */
			part_of_step(w, turned ? 0xb0 : 0xb1, t + apart, turned ? "ab" : "c");
			rp_timeline_load(w->t, load);
			assert_int_equal(load[0].running, 3);
			tick(w, SEC(t + 0.05));
			is_kv(w, i ? 0.3 : 0.15);
		}
		assert_int_equal(core0(w)->preemptions, 0);
		assert_true(rp_core_preemptions(core0(w)));
		if (how == 0 || how == 1 || how == 4)
			assert_int_equal(all.n, 12);
		for (size_t i = 0; i < all.n; i++)
			assert_int_equal(all.s[i].preempted, 0);
		part_of_step(w, 0xb0, 2.4, "AB");
		tick(w, SEC(2.45));
		is_kv(w, 0.1);
		part_of_step(w, 0xb1, 2.5, "C");
		tick(w, SEC(2.55));
		is_kv(w, 0);
		for (char c = 'a'; c <= 'c'; c++) {
			r = answer(w, 2.6, c, 13);
			assert_int_equal(NSV(r, SCH_PREEMPTIONS), 0);
			is_ms(r, SCH_PREEMPTED, 0);
		}
		world_end(w);
	}
	/* a | cba | ac: more in between than one step can hold, and nobody was left out */
	struct world *w = quiet(&all);

	for (char c = 'a'; c <= 'c'; c++)
		quiet_add(w, 1, c, 15);
	part_of_step(w, 0xb0, 1.1, "a");
	part_of_step(w, 0xb2, 1.2, "c");
	part_of_step(w, 0xb1, 1.2001, "B");
	part_of_step(w, 0xb0, 1.2002, "a");
	part_of_step(w, 0xb0, 1.3, "A");
	part_of_step(w, 0xb2, 1.3001, "C");
	tick(w, SEC(1.4));
	assert_int_equal(core0(w)->preemptions, 0);
	assert_int_equal(all.n, 3);
	world_end(w);
}

/* Those who are left out are seen: one beside others of its front end, and one alone. */
static void left_out_of_parts(void **st)
{
	struct seen_steps all;
	struct world *w = quiet(&all);
	struct rp_engine_load load[RP_MAX_CORES];
	const struct rp_record *r;
	double ts = 1.1;

	(void)st;
	ready(w, 21, 16, 1);
	quiet_add(w, 1, 'a', 15);
	quiet_add(w, 1.01, 'b', 15);
	quiet_add(w, 1.02, 'c', 15);
	for (int i = 0; i < 8; i++, ts += 0.1) {
		part_of_step(w, 0xb0, ts, i == 2 ? "a" : "ab");
		if (i < 3 || i == 7)
			part_of_step(w, 0xb1, ts + 0.0001, "c");
		tick(w, SEC(ts + 0.01));
		if (i == 2) /* a and c */
			is_kv(w, 0.2);
		if (i == 3) { /* of c it is not sure yet */
			assert_int_equal(core0(w)->preemptions, 1);
			is_kv(w, 0.3);
		}
		if (i == 6) {
			is_kv(w, 0.2);
			rp_timeline_load(w->t, load);
			assert_int_equal(load[0].running, 2);
			assert_int_equal(load[0].waiting, 1);
		}
	}
	is_kv(w, 0.3);
	assert_int_equal(core0(w)->preemptions, 2);
	part_of_step(w, 0xb0, ts, "AB");
	part_of_step(w, 0xb1, ts + 0.0001, "C");
	r = answer(w, 3, 'a', 9);
	assert_int_equal(NSV(r, SCH_PREEMPTIONS), 0);
	r = answer(w, 3, 'b', 8);
	assert_int_equal(NSV(r, SCH_PREEMPTIONS), 1);
	is_ms(r, SCH_PREEMPTED, 100);
	r = answer(w, 3, 'c', 5);
	assert_int_equal(NSV(r, SCH_PREEMPTIONS), 1);
	assert_int_equal(NSV(r, SCH_PREEMPTED), 399900000);
	world_end(w);
	/* a prefix that two front ends' requests share is there once, whoever leaves */
	for (int how = 0; how < 2; how++) {
		w = quiet(&all);
		ready(w, 21, 16, 1);
		for (int i = 0; i < 6; i++) {
			for (int k = how ? i > 2 : i == 4; k < 2; k++)
				step_of(w, CORE, 0xb0 + (uint64_t)k, 0, 1.1 + i * 0.1 + k * 0.0001,
					&(struct out){ .id = k ? "cmpl-b-0-0000000b" :
								 "cmpl-a-0-0000000a",
						       .tokens = 1,
						       .finish = i == 3 && !how && !k ? 1 : -1,
						       .prompt = 40,
						       .cached = 32 },
					i == 5 && !k ? 0 : 1, NULL);
			tick(w, SEC(1.15 + i * 0.1));
			is_kv(w, i < (how ? 5 : 3) ? 0.2 : 0.15); /* 3 blocks of 20, and 1 */
		}
		world_end(w);
	}
	/* more front ends than are kept apart: nobody knows */
	w = quiet(&all);
	ready(w, 21, 16, 1);
	quiet_add(w, 1, 'a', 15);
	quiet_add(w, 1, 'b', 15);
	for (int i = 0; i < 65; i++) {
		part_of_step(w, 0xb0 + (uint64_t)i, 1.1 + i * 0.00001, i % 2 ? "b" : "a");
		assert_int_equal(rp_core_preemptions(core0(w)), i < 64);
	}
	tick(w, SEC(1.2));
	is_kv(w, NAN);
	rp_timeline_load(w->t, load);
	world_end(w);
}

/* Of a message that is cut, broken or lost it is not known who holds how much. */
static void held_unseen(void **st)
{
	struct seen_steps all;
	static struct pack p;

	(void)st;
	for (int how = 0; how < 6; how++) {
		struct world *w = quiet(&all);
		const struct out o[3] = {
			{ .id = "cmpl-a-0-0000000a", .tokens = 1, .finish = -1 },
			{ .id = "cmpl-b-0-0000000b", .tokens = 1, .finish = -1 },
			{ .id = "cmpl-c-0-0000000c", .tokens = 1, .finish = -1 },
		};

		ready(w, 21, 16, 1);
		for (char c = 'a'; c <= 'c'; c++)
			quiet_add(w, 1, c, 15);
		if (how == 5)
			quiet_add(w, 1, 'd', 15);
		for (int i = 0; i < 4; i++) {
			double ts = 1.1 + i * 0.1;

			outputs(&p, 0, ts, o, 3, NULL);
			if (i == 0 || i == 3)
				frame(w, CORE, SOCK_OUT, SEC(ts), p.b, p.n, 0, 0);
			else if (how == 0) /* most of it is seen */
				frame(w, CORE, SOCK_OUT, SEC(ts), p.b, p.n - 60, 0, 60);
			else if (how == 1) /* nobody is */
				frame(w, CORE, SOCK_OUT, SEC(ts), p.b, 3 - (unsigned)i, 0,
				      (uint32_t)p.n - 3 + (unsigned)i);
			else if (how == 2) { /* broken */
				memset(p.b + p.n - 60, 0xc1, 60);
				frame(w, CORE, SOCK_OUT, SEC(ts), p.b, p.n, 0, 0);
			} else if (how == 3) { /* what it carried did not get here */
				struct rp_ev_msg e = {
					.h = hdr(RP_EV_MSG, sizeof(e), SEC(ts), CORE, CORE + 1),
					.sock = SOCK_OUT,
					.total = (uint32_t)p.n,
					.missing = (uint32_t)p.n,
				};

				e.h.flags = RP_F_SYNTH;
				feed(w, &e);
			} else if (how == 4) { /* nor did it */
				msg_seq += 100;
				outputs(&p, 0, ts, NULL, 0, NULL);
				frame(w, CORE, SOCK_OUT, SEC(ts), p.b, p.n, 0, 0);
			} else { /* another front end's part of it is whole */
				frame(w, CORE, SOCK_OUT, SEC(ts), p.b, p.n - 60, 0, 60);
				part_of_step(w, 0xb1, ts + 0.0001, "d");
			}
			tick(w, SEC(ts + 0.05));
			is_kv(w, i == 0 ? 0.15 : i < 3 ? NAN : how == 5 ? 0.4 : 0.3);
			if (i == 1 && (how == 0 || how == 2 || how == 5))
				assert_true(isnan(all.s[all.n - 1].kv_usage));
		}
		assert_int_equal(core0(w)->preemptions, 0);
		world_end(w);
	}
}

/* Counts that no prompt has are none, whoever tells them. */
static void absurd_counts(void **st)
{
	struct seen_steps all;
	struct world *w = quiet(&all);
	static struct pack p;

	(void)st;
	ready(w, 21, 16, 1);
	for (int k = 0; k < 4; k++) {
		double ts = 1.1 + k * 0.1;
		uint64_t prompt = k == 3 ? 15 : k == 2 ? (1ULL << 40) + 1 : INT64_MAX;

		p.n = 0;
		arr(&p, 8);
		num(&p, 0);
		arr(&p, 1);
		arr(&p, 18);
		str(&p, k & 1 ? "cmpl-b-0-0000000b" : "cmpl-a-0-0000000a");
		p.b[p.n - 1] = (uint8_t)('a' + k);
		arr(&p, 1);
		num(&p, 1000);
		for (int i = 2; i < 11; i++)
			nil(&p);
		map(&p, 4);
		for (int i = 0; i < 4; i++) {
			static const char *const name[] = { "num_prompt_tokens",
							    "num_cached_tokens",
							    "num_local_cached_tokens",
							    "num_external_cached_tokens" };

			uint64_t v = i == 0 ? prompt : k == 3 ? (i == 1 ? 4 : 2) : INT64_MAX;

			str(&p, name[i]);
			put1(&p, 0xcf);
			for (int b = 56; b >= 0; b -= 8)
				put1(&p, (unsigned)(v >> b) & 255);
		}
		nil(&p);
		num(&p, 0);
		for (int i = 0; i < 4; i++)
			nil(&p);
		nil(&p);
		f64(&p, ts);
		for (int i = 0; i < 4; i++)
			nil(&p);
		frame(w, CORE, SOCK_OUT, SEC(ts), p.b, p.n, 0, 0);
		tick(w, SEC(ts + 0.05));
		assert_int_equal(all.s[k].computed, k == 3 ? 11 : RP_NONE);
	}
	assert_int_equal(core0(w)->tokens_prompt, 15);
	assert_int_equal(core0(w)->tokens_cached, 4);
	assert_int_equal(core0(w)->tokens_computed, 11);
	world_end(w);
}

/* EngineCoreRequest of 0.31 with something that may defer it. */
static void add_with(struct world *w, double ts, const char *id, int what)
{
	static struct pack p;

	p.n = 0;
	arr(&p, 22);
	str(&p, id);
	arr(&p, 1);
	num(&p, 900);
	nil(&p);
	map(&p, 2);
	str(&p, "temperature");
	num(&p, 1);
	if (what == 1) {
		str(&p, "structured_outputs");
		map(&p, 1);
		str(&p, "json");
		str(&p, "SECRET");
	} else if (what == 2) {
		str(&p, "extra_args");
		map(&p, 1);
		str(&p, "kv_transfer_params");
		map(&p, 0);
	} else {
		str(&p, "structured_outputs");
		nil(&p);
	}
	nil(&p);
	f64(&p, 1.7e9);
	if (what == 3) { /* lora_request */
		arr(&p, 1);
		str(&p, "SECRET");
	} else {
		nil(&p);
	}
	for (int i = 7; i < 11; i++)
		nil(&p);
	num(&p, 0);
	for (int i = 12; i < 15; i++)
		nil(&p);
	put1(&p, what == 4 ? 0xc3 : 0xc2); /* resumable */
	str(&p, id);
	for (int i = 17; i < 22; i++)
		nil(&p);
	request(w, ts, 0, &p);
}

/* Who can wait for nothing but capacity waits for that; of others it is not known. */
static void why_waiting(void **st)
{
	struct rp_engine_load load[RP_MAX_CORES];
	struct seen_steps all;
	struct world *w;

	(void)st;
	for (int what = 0; what < 6; what++) {
		w = quiet(&all);
		if (what == 5)
			configured(w, 0, 0, 0, 0, RP_ENGINE_TRANSFER);
		add(w, 1, "cmpl-a-0-0000000a", 5);
		quiet_step(w, 1.1, "a");
		rp_timeline_load(w->t, load);
		assert_true(load[0].waiting_known && load[0].capacity_only);
		add_with(w, 1.2, "cmpl-b-0-0000000b", what);
		rp_timeline_load(w->t, load);
		assert_int_equal(load[0].running, 1);
		assert_int_equal(load[0].waiting, 1);
		assert_true(load[0].waiting_known);
		assert_int_equal(load[0].capacity_only, what == 0);
		process(w, RP_PROC_EXIT, CORE + 1, SEC(1.25)); /* none of theirs */
		quiet_step(w, 1.3, "ab");		       /* it waits no more */
		rp_timeline_load(w->t, load);
		assert_int_equal(load[0].running, 2);
		assert_true(load[0].capacity_only);
		world_end(w);
	}
	/* no message adds this one, and it begins: how many wait is not known */
	w = quiet(&all);
	step_of(w, CORE, SOCK_OUT, 0, 1.1,
		&(struct out){ .id = "cmpl-a-0-0000000a", .tokens = 1, .finish = -1, .prompt = 5 },
		1, NULL);
	rp_timeline_load(w->t, load);
	assert_false(load[0].waiting_known || load[0].capacity_only);
	/* nor when one is added at last: others may have come before it */
	add(w, 1.2, "cmpl-b-0-0000000b", 5);
	rp_timeline_load(w->t, load);
	assert_false(load[0].waiting_known || load[0].capacity_only);
	add(w, 1.2, "cmpl-b-0-0000000b", 5);
	quiet_step(w, 1.3, "ab");
	rp_timeline_load(w->t, load);
	assert_true(load[0].waiting_known && load[0].capacity_only);
	step_of(w, CORE, SOCK_OUT, 0, 1.4,
		&(struct out){ .id = "cmpl-c-0-0000000c", .tokens = 1, .finish = -1, .prompt = 5 },
		1, NULL);
	rp_timeline_load(w->t, load);
	assert_false(load[0].waiting_known || load[0].capacity_only);
	world_end(w);
	/* one to which more may come can stop and wait for it: no preemption, nor none */
	w = quiet(&all);
	add(w, 1, "cmpl-a-0-0000000a", 5);
	add_with(w, 1.01, "cmpl-b-0-0000000b", 4);
	quiet_step(w, 1.1, "ab");
	quiet_step(w, 1.2, "a");
	quiet_step(w, 1.3, "ab");
	assert_false(rp_core_preemptions(core0(w)));
	world_end(w);
}

/* Attached in the middle: no first token, no queue time, no made-up number. */
static void midway(void **st)
{
	const char *id = "cmpl-m-0-0000000a";
	struct world *w = world_new();
	struct rp_record *r = &w->rec[0];

	(void)st;
	vllm(w);
	ask(w, 1, 1, COMPLETIONS, NULL, "");
	step(w, 2, &(struct out){ .id = id, .tokens = 1, .finish = -1 }, 1);
	step(w, 3, &(struct out){ .id = id, .tokens = 1, .finish = 1 }, 1);
	body(w, 1, 3.1, "cmpl-m", CHOICE(0), 7);
	assert_int_equal(w->n, 1);
	is_null(r, M_QUEUE, "not_seen");
	is_null(r, M_TTFT, "not_seen");
	assert_false(r->v[RP_FIELD_M_GENERATION].known);
	assert_int_equal(NSV(r, TOK_COMPLETION), 7);
	assert_int_equal(r->token_source, RP_TOKENS_USAGE);
	world_end(w);
}

static struct world *few_tasks(void)
{
	struct rp_timeline_opts o;
	struct world *w;

	rp_timeline_defaults(&o);
	o.max_tasks = 100;
	w = world_opts(&o);
	vllm(w);
	return w;
}

/* Engine requests that nobody asked for, and ends that do not pile up. */
static void bounded(void **st)
{
	struct world *w = few_tasks();
	char id[64];

	(void)st;
	for (int i = 0; i < 1000; i++) {
		snprintf(id, sizeof(id), "cmpl-%d-0-0000000a", i);
		step(w, 1 + i * 0.01, &(struct out){ .id = id, .tokens = 1, .finish = 1 }, 1);
	}
	assert_true(rp_timeline_stats(w->t)->limit_tasks > 0);
	for (int i = 0; i < 100; i++)
		tick(w, SEC(100 + i));
	assert_int_equal(rp_timeline_stats(w->t)->tasks_unclaimed, 100);
	step(w, 300, &(struct out){ .id = "cmpl-x-0-0000000a", .tokens = 1, .finish = -1 }, 1);
	assert_int_equal(rp_timeline_stats(w->t)->limit_tasks, 900);
	/* what is not followed is added, and aborted, all the same */
	for (int i = 0; i < 200; i++) {
		snprintf(id, sizeof(id), "cmpl-%d-0-0000000b", i);
		add(w, 300 + i * 1e-4, id, 5);
	}
	assert_true(rp_timeline_stats(w->t)->limit_tasks > 900);
	abort_(w, 301, id);
	world_end(w);
}

static void cut_step(struct world *w, double ts, const struct out *o, size_t n, uint32_t missing)
{
	static struct pack p;

	outputs(&p, 0, ts, o, n, &some);
	frame(w, CORE, SOCK_OUT, SEC(ts), p.b, p.n - missing, 0, missing);
}

/* A message is cut in the middle: whom it does not name may have been in it. */
static void cut_in_between(void **st)
{
	const char *a = "cmpl-a-0-0000000a", *b = "cmpl-b-0-0000000b";

	(void)st;
	for (int way = 0; way < 4; way++) {
		bool first = way & 1; /* is the first step cut, too? */
		struct world *w = world_new();
		const struct rp_record *rb = &w->rec[1];

		vllm(w);
		by_sockets = way & 2;
		ask(w, 1, 1, COMPLETIONS, NULL, "");
		ask(w, 2, 1, COMPLETIONS, NULL, "");
		add(w, 1.1, a, 5);
		add(w, 1.1, b, 5);
		for (int k = 0; k < 5; k++) {
			struct out o[2] = { { .id = a, .tokens = 1, .finish = k == 4 ? 1 : -1 },
					    { .id = b, .tokens = 1, .finish = k == 4 ? 1 : -1 } };

			if (!k)
				for (int i = 0; i < 2; i++)
					memcpy(o[i].ev, (struct ev[2]){ { 1, 1.5 }, { 2, 1.75 } },
					       2 * sizeof(struct ev));
			if (k == 2 || (first && !k))
				cut_step(w, 2 + k, o, 2, 160);
			else
				step(w, 2 + k, o, 2);
		}
		body(w, 1, 9, "cmpl-a", CHOICE(0), 5);
		body(w, 2, 9, "cmpl-b", CHOICE(0), 5);
		assert_int_equal(w->n, 2);
		assert_int_equal(NSV(&w->rec[0], TOK_COMPLETION), 5);
		assert_int_equal(w->rec[0].token_source, RP_TOKENS_ENGINE);
		assert_false(w->rec[0].flags & RP_FLAG_LOST_EVENTS); /* it was named */
		assert_int_equal(NSV(rb, TOK_COMPLETION), 5);
		assert_int_equal(rb->token_source, RP_TOKENS_USAGE);
		assert_true(rb->flags & RP_FLAG_LOST_EVENTS);
		if (first)
			assert_false(rb->v[RP_FIELD_M_GENERATION].known);
		else
			same_double(rb, RP_FIELD_M_GENERATION, 4000);
		for (size_t i = 0; i < w->n_gaps; i++)
			assert_true(w->gap_chunk[i] || w->gaps[i] == 1000000000);
		by_sockets = false;
		world_end(w);
	}
}

/* Embeddings of several inputs: each is a request of the engine's, and none a choice. */
static void inputs(void **st)
{
	struct world *w = world_new();
	const struct rp_record *r = &w->rec[0];
	char id[32];

	(void)st;
	vllm(w);
	ask(w, 1, 1, "/v1/embeddings", NULL, ",\"input\":[\"SECRET\",\"b\"]");
	for (int i = 0; i < 10; i++) {
		snprintf(id, sizeof(id), "embd-e-%d-0000000%d", i, i);
		add(w, 1.1 + i * 1e-4, id, 5);
		step(w, 2 + i * 0.1,
		     &(struct out){ .id = id,
				    .finish = 0,
				    .pooled = true,
				    .ev = { { 1, 1.5 - i * 0.01 }, { 2, 1.75 - i * 0.02 } } },
		     1);
	}
	body(w, 1, 4, "embd-e", CHOICE(0), 0);
	assert_int_equal(w->n, 1);
	assert_int_equal(r->choices, 1);
	assert_int_equal(r->n_request_ids, RP_REQUEST_IDS);
	assert_string_equal(r->request_ids[7], "embd-e-7-00000007");
	assert_int_equal(r->n_engine_requests, 10);
	is_ms(r, P_FRONTEND, 410); /* the first of all */
	is_ms(r, P_QUEUE, 160);
	assert_int_equal(NSV(r, SCH_STEPS), 10);
	world_end(w);
}

/* The engine is done with it when its client goes away: nothing is waited for. */
static void gone_when_done(void **st)
{
	const char *id = "cmpl-a-0-0000000a";
	struct world *w = world_new();

	(void)st;
	vllm(w);
	ask(w, 1, 1, COMPLETIONS, NULL, ",\"stream\":true");
	add(w, 1.1, id, 5);
	step(w, 2,
	     &(struct out){ .id = id, .tokens = 2, .finish = 1, .ev = { { 1, 1.5 }, { 2, 1.75 } } },
	     1);
	tx(w, 1, SEC(2.1), STREAM_HEAD);
	chunk(w, 1, 2.1, "cmpl-a", 0, NULL);
	state(w, 1, SEC(2.2), RP_PEER_RST);
	close_conn(w, 1, SEC(2.2) + 1000);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].end, RP_END_CLIENT_DISCONNECT);
	assert_int_equal(NSV(&w->rec[0], TOK_COMPLETION), 2);
	world_end(w);
}

/* Two clients went away unheard: whose the aborted request was is not known. */
static void two_abandoned(void **st)
{
	struct world *w = world_new();

	(void)st;
	vllm(w);
	ask(w, 1, 0.5, COMPLETIONS, NULL, "");
	add(w, 0.6, "cmpl-o-0-0000000f", 5);
	step(w, 0.8,
	     &(struct out){ .id = "cmpl-o-0-0000000f",
			    .tokens = 1,
			    .finish = 1,
			    .ev = { { 1, 0.6 }, { 2, 0.7 } } },
	     1);
	body(w, 1, 0.9, "cmpl-o", CHOICE(0), 1);
	for (unsigned i = 2; i < 4; i++) {
		ask(w, i, 1, COMPLETIONS, NULL, "");
		add(w, 1.1, i == 2 ? "cmpl-a-0-0000000a" : "cmpl-b-0-0000000b", 5);
	}
	for (unsigned i = 2; i < 4; i++) {
		state(w, i, SEC(2), RP_PEER_RST);
		close_conn(w, i, SEC(2) + 1000);
	}
	abort_(w, 2.1, "cmpl-a-0-0000000a");
	tick(w, SEC(3));
	assert_int_equal(w->n, 3);
	for (unsigned i = 1; i < 3; i++)
		assert_int_equal(w->rec[i].n_request_ids, 0);
	world_end(w);
}

/* What engine requests took of the memory is given back, whoever they were of; and nothing
 * of them is found under their names, which come again. */
static void memory_back(void **st)
{
	struct world *w = world_new();
	const struct rp_stats *s = rp_timeline_stats(w->t);
	size_t before = 0;

	(void)st;
	vllm(w);
	for (int k = 0; k < 3; k++) {
		for (unsigned i = 0; i < 8; i++) { /* half are nobody's */
			double at = 1 + k * 1000 + i * 0.01;
			char id[64], rid[32];

			snprintf(id, sizeof(id), "cmpl-%u-%u", i > 5 ? 5 : i, i == 6);
			snprintf(rid, sizeof(rid), "cmpl-%u", i);
			if (i < 4)
				ask(w, 1 + i, at, COMPLETIONS, NULL, "");
			add(w, at + 0.001, id, 5);
			for (int n = 0; n < 40; n++)
				step(w, at + 0.002 + n * 1e-5,
				     &(struct out){ .id = id,
						    .tokens = 1,
						    .finish = n == 39 ? 1 : -1,
						    .ev = { { n ? 0 : 1, at }, { 2, at } } },
				     1);
			if (i < 4) {
				body(w, 1 + i, at + 0.005, rid, CHOICE(0), 40);
				close_conn(w, 1 + i, SEC(at + 0.006));
				w->off[1 + i][0] = w->off[1 + i][1] = 0;
			}
		}
		for (int i = 0; i < 4; i++)
			tick(w, SEC(500 + k * 1000 + i * 100));
		assert_int_equal(s->tasks_unclaimed, 4 * (unsigned)(k + 1));
		if (k)
			assert_int_equal(s->memory, before);
		before = s->memory;
	}
	assert_int_equal(w->n, 12);
	world_end(w);
}

/* What a front end's message has beside its request is not read as another. */
static void add_aside(void **st)
{
	static struct pack p;
	struct world *w = world_new();
	struct rp_engine_load load[RP_MAX_CORES];
	const uint8_t type = 0;

	(void)st;
	vllm(w);
	step_of(w, CORE, SOCK_OUT, 0, 0.9, NULL, 0, &some);
	p.n = 0;
	arr(&p, 22);
	str(&p, "cmpl-a-0-0000000a");
	for (int i = 1; i < 22; i++)
		i == 5 ? f64(&p, 1.7e9) : nil(&p);
	frame(w, API, SOCK_IN, SEC(1), "\0\0", 2, RP_MSG_MORE, 0);
	frame(w, API, SOCK_IN, SEC(1), &type, 1, RP_MSG_MORE, 0);
	frame(w, API, SOCK_IN, SEC(1), p.b, p.n, RP_MSG_MORE, 0);
	p.b[7] = 'b'; /* a tensor that looks like one */
	frame(w, API, SOCK_IN, SEC(1), p.b, p.n, RP_MSG_MORE, 0);
	p.b[7] = 'c';
	frame(w, API, SOCK_IN, SEC(1), p.b, p.n, 0, 0);
	rp_timeline_load(w->t, load);
	assert_true(load[0].waiting_known);
	assert_int_equal(load[0].waiting, 1);
	world_end(w);
}

/* What an engine's steps add up to, by core. */
static void core_totals(void **st)
{
	static struct pack p;
	struct seen_steps all;
	struct world *w = quiet(&all);
	const struct rp_core *c;

	(void)st;
	for (int k = 0; k < 3; k++) {
		char id[] = "cmpl-a-0-0000000a";

		id[5] = (char)('a' + k);
		p.n = 0;
		arr(&p, 8);
		num(&p, 0);
		arr(&p, 1);
		arr(&p, 18);
		str(&p, id);
		arr(&p, 1);
		num(&p, 1000);
		for (int i = 2; i < 5; i++)
			nil(&p);
		num(&p, 1);
		nil(&p);
		arr(&p, 1);
		map(&p, 2);
		str(&p, "type");
		num(&p, 1);
		str(&p, "timestamp");
		f64(&p, 1.5);
		for (int i = 8; i < 11; i++)
			nil(&p);
		map(&p, 4);
		str(&p, "num_prompt_tokens");
		num(&p, 50);
		str(&p, "num_cached_tokens");
		num(&p, 20);
		str(&p, "num_local_cached_tokens");
		num(&p, 16);
		str(&p, "num_external_cached_tokens");
		num(&p, 4);
		nil(&p);
		num(&p, 0);
		for (int i = 14; i < 18; i++)
			nil(&p);
		map(&p, 4);
		str(&p, "num_running_reqs");
		num(&p, 0);
		str(&p, "num_waiting_reqs");
		num(&p, 3);
		str(&p, "num_skipped_waiting_reqs");
		num(&p, 2);
		str(&p, "spec_decoding_stats");
		if (k == 2) { /* a step that drafted nothing */
			nil(&p);
		} else {
			map(&p, 4);
			str(&p, "num_drafts");
			num(&p, 2);
			str(&p, "num_draft_tokens");
			num(&p, 6);
			str(&p, "num_accepted_tokens");
			num(&p, 3);
			str(&p, "num_accepted_tokens_per_pos");
			arr(&p, 2);
			num(&p, 2);
			num(&p, 1);
		}
		f64(&p, 2 + k);
		for (int i = 4; i < 8; i++)
			nil(&p);
		frame(w, CORE, SOCK_OUT, SEC(2 + k), p.b, p.n, 0, 0);
	}
	c = core0(w);
	assert_int_equal(c->running, 0);
	assert_int_equal(c->waiting, 3);
	assert_int_equal(c->deferred, 2);
	assert_true(c->spec);
	assert_int_equal(c->spec_drafts, 4);
	assert_int_equal(c->spec_draft_tokens, 12);
	assert_int_equal(c->spec_accepted_tokens, 6);
	assert_int_equal(c->spec_positions, 2);
	assert_int_equal(c->spec_accepted_at[0], 4);
	assert_int_equal(c->spec_accepted_at[1], 2);
	assert_int_equal(c->tokens_prompt, 150);
	assert_int_equal(c->tokens_cached, 60);
	assert_int_equal(c->tokens_computed, 90);
	assert_true(c->cached_known && c->cached_parts_known);
	assert_int_equal(c->tokens_cached_local, 48);
	assert_int_equal(c->tokens_cached_external, 12);
	assert_int_equal(rp_timeline_stats(w->t)->tasks_unclaimed, 0);
	/* the last step is told in the end, too */
	assert_int_equal(all.n, 2);
	assert_int_equal(all.s[0].spec_drafts, 2);
	assert_int_equal(all.s[0].waiting, 3);
	rp_timeline_finish(w->t);
	assert_int_equal(all.n, 3);
	assert_int_equal(all.s[2].spec_drafts, RP_NONE);
	assert_int_equal(all.s[2].finished, 1);
	world_end(w);
}

/* A prompt of which no part is said to be cached: that is not known, nor is the sum. */
static void cached_unknown(void **st)
{
	struct seen_steps all;
	struct world *w = quiet(&all);

	(void)st;
	add(w, 1, "cmpl-a-0-0000000a", 7);
	step(w, 2,
	     &(struct out){ .id = "cmpl-a-0-0000000a",
			    .tokens = 1,
			    .finish = 1,
			    .ev = { { 1, 1.5 }, { 2, 1.6 } } },
	     1);
	tick(w, SEC(3));
	assert_int_equal(core0(w)->tokens_prompt, 7);
	assert_int_equal(core0(w)->tokens_computed, 0);
	assert_false(core0(w)->cached_known);
	assert_false(core0(w)->spec);
	assert_int_equal(all.s[0].computed, RP_NONE);
	world_end(w);
}

/* A message that was cut touches its own core's steps, and no gauge. */
static void cut_of_one_core(void **st)
{
	const struct out a = { .id = "cmpl-a-0-0000000a", .tokens = 1, .finish = -1 },
			 b = { .id = "cmpl-b-0-0000000b", .tokens = 1, .finish = -1 };
	struct seen_steps all;
	struct world *w = quiet(&all);
	static struct pack p;

	(void)st;
	for (int k = 0; k < 3; k++) {
		step_of(w, CORE + 1, SOCK_OUT, 1, 2 + k, &b, 1, &some);
		if (k == 1) { /* before its outputs: nothing of the step is told */
			outputs(&p, 0, 2 + k, &a, 1, &some);
			frame(w, CORE, SOCK_OUT, SEC(2.1 + k), p.b, 2, 0, (uint32_t)p.n - 2);
			assert_true(core0(w)->kv_usage == 0.25);
		} else {
			step_of(w, CORE, SOCK_OUT, 0, 2.1 + k, &a, 1, &some);
		}
	}
	cut_step(w, 5.1, &a, 1, 50);
	tick(w, SEC(6));
	assert_int_equal(all.n, 6);
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(all.s[i].cut, all.s[i].ts == (int64_t)SEC(5.1));
		/* after the one that was not seen, and after none */
		assert_int_equal(all.s[i].step_ns,
				 all.s[i].seq == 1 || all.s[i].ts == (int64_t)SEC(4.1) ?
					 RP_NONE :
					 (int64_t)(1000 * MS));
	}
	assert_true(core0(w)->kv_usage == 0.25);
	assert_true(rp_timeline_stats(w->t)->cores[1].kv_usage == 0.25);
	world_end(w);
}

/* Two messages of an engine say what it is; the second comes when it runs. */
static void ready_in_parts(void **st)
{
	static struct pack p;
	struct world *w = world_new();
	struct rp_ev_session e = { .h = hdr(RP_EV_SESSION, sizeof(e), 1, API, 0) };

	(void)st;
	vllm(w);
	strcpy(e.engine, "vllm");
	e.hooks_attached = 1;
	e.roles[0] = RP_ROLE_VLLM;
	feed(w, &e);
	p.n = 0;
	map(&p, 1);
	str(&p, "num_gpu_blocks");
	num(&p, 21);
	frame(w, CORE, 0xc0, SEC(0.5), p.b, p.n, 0, 0);
	ask(w, 1, 1, COMPLETIONS, NULL, "");
	add(w, 1.01, "cmpl-a-0-0000000a", 5);
	part_of_step(w, SOCK_OUT, 1.1, "a");
	assert_int_equal(core0(w)->kv_capacity, RP_NONE);
	p.n = 0;
	map(&p, 3);
	str(&p, "max_model_len");
	num(&p, 4096);
	str(&p, "block_size");
	num(&p, 32);
	str(&p, "vllm_version");
	str(&p, "0.31.1");
	frame(w, CORE, 0xc0, SEC(1.2), p.b, p.n, 0, 0);
	assert_int_equal(core0(w)->kv_capacity, 20 * 32);
	part_of_step(w, SOCK_OUT, 1.3, "A");
	body(w, 1, 2, "cmpl-a", CHOICE(0), 2);
	assert_string_equal(w->rec[0].engine_version, "0.31.1");
	world_end(w);
}

/* Without stats, of the second of two engines. */
static void second_core(void **st)
{
	struct seen_steps all;
	struct world *w = quiet(&all);
	const struct rp_record *r;

	(void)st;
	quiet_add(w, 0.9, 'a', 5);
	quiet_step(w, 1, "A");
	ask(w, 2, 1.1, COMPLETIONS, NULL, "");
	add(w, 1.2, "cmpl-b-0-0000000b", 5);
	for (int k = 0; k < 3; k++)
		step_of(w, CORE + 1, SOCK_OUT, 1, 2 + k,
			&(struct out){
				.id = "cmpl-b-0-0000000b", .tokens = 1, .finish = k == 2 ? 1 : -1 },
			1, NULL);
	r = answer(w, 5, 'b', 3);
	assert_int_equal(r->engine_index, 1);
	assert_int_equal(NSV(r, SCH_PREEMPTIONS), 0);
	assert_int_equal(r->preempt_estimate, RP_EST_STEPS);
	world_end(w);
}

/* One client's id of 300 bytes does not take the others' tokens away. */
static void long_id(void **st)
{
	const char *b = "cmpl-b-0-0000000b";
	struct world *w = world_new();
	static struct pack p;
	char id[301];

	(void)st;
	memset(id, 'a', 300);
	id[300] = 0;
	vllm(w);
	ask(w, 1, 1, COMPLETIONS, NULL, "");
	add(w, 1.1, b, 5);
	for (int k = 0; k < 3; k++) {
		struct out o = { .id = b,
				 .tokens = 1,
				 .finish = k == 2 ? 1 : -1,
				 .ev = { { 1, 1.5 }, { 2, 1.75 } } };
		size_t at;

		if (k)
			o.ev[0].type = 0;
		outputs(&p, 0, 2 + k,
			(struct out[2]){ { .id = "X", .tokens = 1, .finish = -1 }, o }, 2, &some);
		/* "X" becomes a str16 of 300 bytes */
		for (at = 0; p.b[at] != 0xa1 || p.b[at + 1] != 'X'; at++)
			;
		memmove(p.b + at + 303, p.b + at + 2, p.n - at - 2);
		p.b[at] = 0xda;
		p.b[at + 1] = 300 >> 8;
		p.b[at + 2] = 300 & 255;
		memcpy(p.b + at + 3, id, 300);
		p.n += 301;
		frame(w, CORE, SOCK_OUT, SEC(2.001 + k), p.b, p.n, 0, 0);
	}
	body(w, 1, 9, "cmpl-b", CHOICE(0), 3);
	assert_int_equal(w->n, 1);
	assert_int_equal(NSV(&w->rec[0], TOK_COMPLETION), 3);
	assert_int_equal(w->rec[0].token_source, RP_TOKENS_ENGINE);
	world_end(w);
}

/* Ids without a random part, used again: before 0.14 with a client's own. */
static void id_again(void **st)
{
	const char *id = "cmpl-t-0";
	struct world *w = world_new();

	(void)st;
	vllm(w);
	for (unsigned i = 0; i < 2; i++) {
		double at = 1 + i;

		ask(w, 1 + i, at, COMPLETIONS, "t", "");
		add(w, at + 0.01, id, 5);
		for (int k = 0; k < 4; k++)
			step(w, at + 0.1 + k * 0.1,
			     &(struct out){ .id = id,
					    .tokens = 1,
					    .finish = k == 3 ? 1 : -1,
					    .ev = { { k ? 0 : 1, at + 0.02 }, { 2, at + 0.05 } } },
			     1);
		body(w, 1 + i, at + 0.5, "cmpl-t", CHOICE(0), 4);
	}
	assert_int_equal(w->n, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(w->rec[i].n_request_ids, 1);
		assert_int_equal(NSV(&w->rec[i], SCH_STEPS), 4);
		assert_true(fabs(w->rec[i].v[RP_FIELD_M_GENERATION].d - 300) < 1e-6);
	}
	assert_int_equal(rp_timeline_stats(w->t)->tokens_completion, 8);
	world_end(w);
}

/* The same before the former has its answer: that keeps what it has. */
static void id_again_early(void **st)
{
	const char *id = "cmpl-t-0";

	(void)st;
	for (int over = 0; over < 2; over++) { /* at the engine, when the second comes */
		struct world *w = world_new();

		vllm(w);
		for (unsigned i = 0; i < 2; i++) {
			double at = 1 + i;

			ask(w, 1 + i, at, COMPLETIONS, "t", "");
			add(w, at + 0.01, id, 5);
			for (unsigned k = 0; k < 2 + i; k++)
				step(w, at + 0.1 + k * 0.1,
				     &(struct out){
					     .id = id,
					     .tokens = 1,
					     .finish = k == 1 + i && (over || i) ? 1 : -1,
					     .ev = { { k ? 0 : 1, at + 0.02 }, { 2, at + 0.05 } } },
				     1);
		}
		body(w, 1, 3, "cmpl-t", CHOICE(0), 2);
		body(w, 2, 3, "cmpl-t", CHOICE(0), 3);
		assert_int_equal(w->n, 2);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(w->rec[i].n_request_ids, 1);
			assert_int_equal(NSV(&w->rec[i], SCH_STEPS), 2 + i);
			is_ms(&w->rec[i], P_FRONTEND, 20);
		}
		assert_int_equal(rp_timeline_stats(w->t)->tokens_completion, 5);
		assert_int_equal(rp_timeline_stats(w->t)->limit_tasks, 0);
		world_end(w);
	}
}

/* A stop string, found late: the engine ran to its end, or far beyond the ring. */
static void stop_late(void **st)
{
	const char *id = "cmpl-s-0-0000000a";

	(void)st;
	for (int many = 0; many < 2; many++) {
		struct world *w = world_new();
		int n = many ? 40 : 8;

		vllm(w);
		ask(w, 1, 1, COMPLETIONS, NULL, "");
		add(w, 1.1, id, 5);
		for (int k = 0; k < n; k++)
			step(w, 2 + k * 0.125,
			     &(struct out){ .id = id,
					    .tokens = 1,
					    .finish = k == n - 1 ? 1 : -1,
					    .ev = { { k ? 0 : 1, 1.5 }, { 2, 1.75 } } },
			     1);
		body(w, 1, 9, "cmpl-s",
		     "{\"index\":0,\"text\":\"SECRET\",\"finish_reason\":\"stop\"}", 5);
		assert_int_equal(w->n, 1);
		assert_int_equal(NSV(&w->rec[0], TOK_COMPLETION), 5);
		if (many)
			assert_false(w->rec[0].v[RP_FIELD_M_GENERATION].known);
		else
			same_double(&w->rec[0], RP_FIELD_M_GENERATION, 500);
		world_end(w);
	}
}

/* n > 1: one prompt, or several of which the engine counts each alone. */
static void prompts_of_choices(void **st)
{
	static const char *const eng[2][4] = {
		{ "0_cmpl-p-0-0000000a", "1_cmpl-p-0-0000000a", "2_cmpl-p-0-0000000a",
		  "3_cmpl-p-0-0000000a" },
		{ "0_cmpl-p-0-0000000a", "1_cmpl-p-0-0000000a", "0_cmpl-p-1-0000000b",
		  "1_cmpl-p-1-0000000b" },
	};

	(void)st;
	for (int two = 0; two < 2; two++) {
		struct world *w = world_new();

		vllm(w);
		ask(w, 1, 1, COMPLETIONS, NULL,
		    two ? ",\"stream\":true,\"n\":2,\"prompt\":[\"a\",\"b\"]" :
			  ",\"stream\":true,\"n\":4");
		for (int i = 0; i < 4; i++)
			add(w, 1.1, eng[two][i], 7);
		tx(w, 1, SEC(1.2), STREAM_HEAD);
		for (int i = 0; i < 4; i++)
			step(w, 2 + i * 0.1,
			     &(struct out){ .id = eng[two][i],
					    .tokens = 1,
					    .finish = 1,
					    .ev = { { 1, 1.5 }, { 2, 1.6 } } },
			     1);
		chunk(w, 1, 3, "cmpl-p", 0, "length");
		done(w, 1, 3);
		assert_int_equal(w->n, 1);
		assert_int_equal(w->rec[0].n_request_ids, 4);
		if (two)
			is_null(&w->rec[0], TOK_PROMPT, "not_reported");
		else
			assert_int_equal(NSV(&w->rec[0], TOK_PROMPT), 7);
		world_end(w);
	}
}

/* Whose is the task that is aborted? Not a gone client's if another may own it. */
static void abort_is_anothers(void **st)
{
	const char *b = "cmpl-b-0-0000000b";
	struct world *w = world_new();

	(void)st;
	vllm(w);
	ask(w, 1, 1.0, COMPLETIONS, NULL, "");
	ask(w, 2, 1.1, COMPLETIONS, NULL, "");
	add(w, 1.2, b, 5);
	for (int k = 0; k < 4; k++)
		step(w, 2 + k * 0.25,
		     &(struct out){ .id = b,
				    .tokens = 1,
				    .finish = -1,
				    .ev = { { k ? 0 : 1, 1.5 }, { 2, 1.75 } } },
		     1);
	state(w, 1, SEC(2.8), RP_PEER_RST);
	close_conn(w, 1, SEC(2.8) + 1000);
	abort_(w, 2.9, b);
	body(w, 2, 3, "cmpl-b", CHOICE(0), 4);
	tick(w, SEC(4));
	assert_int_equal(w->n, 2);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(w->rec[i].n_request_ids, w->rec[i].end == RP_END_COMPLETE);
	world_end(w);
}

/* An abort that comes after the end is nobody's, even where a client went away unheard. */
static void abort_late(void **st)
{
	const char *b = "cmpl-b-0-0000000b";

	(void)st;
	for (int answered = 0; answered < 2; answered++) {
		struct world *w = world_new();
		const struct rp_record *r = &w->rec[answered];

		vllm(w);
		ask(w, 1, 1.0, COMPLETIONS, NULL, "");
		if (answered)
			ask(w, 2, 1.1, COMPLETIONS, NULL, "");
		add(w, 1.2, b, 5);
		step(w, 2,
		     &(struct out){ .id = b,
				    .tokens = 4,
				    .finish = answered ? -1 : 1,
				    .ev = { { 1, 1.5 }, { 2, 1.75 } } },
		     1);
		if (answered)
			body(w, 2, 2.1, "cmpl-b", CHOICE(0), 4);
		state(w, 1, SEC(2.8), RP_PEER_RST);
		close_conn(w, 1, SEC(2.8) + 1000);
		abort_(w, 2.9, b);
		tick(w, SEC(4));
		assert_int_equal(w->n, 1 + answered);
		assert_int_equal(r->end, RP_END_CLIENT_DISCONNECT);
		assert_int_equal(r->n_request_ids, 0);
		world_end(w);
	}
}

/* A step without outputs: its stats count. */
static void stats_alone(void **st)
{
	struct world *w = world_new();
	const struct rp_stats *s = rp_timeline_stats(w->t);

	(void)st;
	vllm(w);
	step_of(w, CORE, SOCK_OUT, 0, 2, NULL, 0, &(struct stats){ 3, 2 });
	step_of(w, CORE + 1, SOCK_OUT, 1, 2.1, NULL, 0, &(struct stats){ 1, 5 });
	assert_int_equal(s->n_cores, 2);
	assert_int_equal(s->cores[0].steps, 1);
	assert_int_equal(s->cores[0].running, 3);
	assert_int_equal(s->cores[0].waiting, 2);
	assert_int_equal(s->running, 4);
	assert_int_equal(s->waiting, 7);
	world_end(w);
}

/* An id that is the engine's own, whole; and one other than was expected. */
static void exact_ids(void **st)
{
	struct world *w = world_new();

	(void)st;
	vllm(w);
	ask(w, 1, 1.0, CHAT, "abc", "");
	ask(w, 2, 1.0, CHAT, "abc-deadbeef", "");
	add(w, 1.1, "chatcmpl-abc-deadbeef", 5);
	add(w, 1.2, "chatcmpl-abc", 6);
	ask(w, 3, 1.3, CHAT, "foo", "");
	add(w, 1.4, "chatcmpl-foo-11111111", 7);
	add(w, 1.4, "chatcmpl-bar-22222222", 8);
	body(w, 1, 3, "chatcmpl-abc", CHOICE(0), 1);
	body(w, 2, 3, "chatcmpl-abc-deadbeef", CHOICE(0), 1);
	body(w, 3, 3, "chatcmpl-bar", CHOICE(0), 1);
	assert_int_equal(w->n, 3);
	assert_string_equal(w->rec[0].request_ids[0], "chatcmpl-abc");
	assert_string_equal(w->rec[1].request_ids[0], "chatcmpl-abc-deadbeef");
	assert_string_equal(w->rec[2].request_ids[0], "chatcmpl-bar-22222222");
	world_end(w);
}

/*
 * Completions of a front end that puts no prompt's number behind the id: learned,
 * and until then no guess is taken for true.
 */
static void unnumbered(void **st)
{
	static const char *const xid[] = { "q-1", "q-1_0", "q-3", "q-3-0" };

	(void)st;
	for (int learned = 0; learned < 2; learned++) {
		struct world *w = world_new();

		vllm(w);
		if (learned) {
			ask(w, 10, 0.5, COMPLETIONS, "first", "");
			add(w, 0.6, "cmpl-first-12345678", 3);
		}
		for (unsigned i = 0; i < 4; i++)
			ask(w, 1 + i, 1, COMPLETIONS, xid[i], "");
		for (unsigned i = 4; i-- > 0;) {
			char id[64];

			snprintf(id, sizeof(id), "cmpl-%s-0000000%u", xid[i], i);
			add(w, 1.1, id, 5);
			step(w, 2 + i * 0.1,
			     &(struct out){ .id = id,
					    .tokens = 1 + i,
					    .finish = 1,
					    .ev = { { 1, 1.5 }, { 2, 1.6 } } },
			     1);
		}
		for (unsigned i = 0; i < 4; i++) {
			char id[64];

			snprintf(id, sizeof(id), "cmpl-%s", xid[i]);
			body(w, 1 + i, 3, id, CHOICE(0), 1 + i);
		}
		assert_int_equal(w->n, 4);
		for (unsigned i = 0; i < 4; i++) {
			char id[64];

			snprintf(id, sizeof(id), "cmpl-%s-0000000%u", xid[i], i);
			if (learned)
				assert_int_equal(w->rec[i].n_request_ids, 1);
			if (w->rec[i].n_request_ids)
				assert_string_equal(w->rec[i].request_ids[0], id);
			assert_int_equal(NSV(&w->rec[i], TOK_COMPLETION), 1 + i);
		}
		world_end(w);
	}
}

/* Where completions have no prompt's number, those of chats say nothing of. */
static void numbered_unlike_chats(void **st)
{
	static const char *const id[] = { "cmpl-b-0", "cmpl-b-0-0" };
	struct world *w = world_new();

	(void)st;
	vllm(w);
	ask(w, 1, 0.5, CHAT, NULL, "");
	add(w, 0.6, "chatcmpl-c", 5);
	step(w, 0.8,
	     &(struct out){ .id = "chatcmpl-c",
			    .tokens = 1,
			    .finish = 1,
			    .ev = { { 1, 0.6 }, { 2, 0.7 } } },
	     1);
	body(w, 1, 0.9, "chatcmpl-c", CHOICE(0), 1);
	for (unsigned i = 0; i < 2; i++) {
		ask(w, 2 + i, 1, COMPLETIONS, NULL, "");
		add(w, 1.1, id[i], 5);
		step(w, 2 + i * 0.1,
		     &(struct out){ .id = id[i],
				    .tokens = 1 + i,
				    .finish = 1,
				    .ev = { { 1, 1.5 }, { 2, 1.6 } } },
		     1);
	}
	body(w, 3, 3, id[0], CHOICE(0), 2);
	assert_int_equal(w->n, 2);
	assert_string_equal(w->rec[1].request_ids[0], id[1]);
	world_end(w);

	/* not learned at all: a guess that the counts do not confirm is dropped */
	w = world_new();
	vllm(w);
	for (unsigned i = 0; i < 2; i++) {
		ask(w, 2 + i, 1, COMPLETIONS, NULL, "");
		add(w, 1.1, id[i], 5);
		step(w, 2 + i * 0.1,
		     &(struct out){ .id = id[i],
				    .tokens = 1 + i,
				    .finish = 1,
				    .ev = { { 1, 1.5 }, { 2, 1.6 } } },
		     1);
	}
	body(w, 2, 3, id[0], CHOICE(0), 1);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].n_request_ids, 0);
	assert_int_equal(NSV(&w->rec[0], TOK_COMPLETION), 1);
	world_end(w);
}

/* The first output that is seen brings a preemption: it is no first output. */
static void midway_preempted(void **st)
{
	const char *id = "cmpl-m-0-0000000a";
	struct world *w = world_new();

	(void)st;
	vllm(w);
	ask(w, 1, 1, COMPLETIONS, NULL, "");
	step(w, 5,
	     &(struct out){ .id = id,
			    .tokens = 1,
			    .finish = -1,
			    .ev = { { 3, 4.0 }, { 2, 4.5 } },
			    .prompt = 5 },
	     1);
	step(w, 6, &(struct out){ .id = id, .tokens = 1, .finish = 1 }, 1);
	body(w, 1, 7, "cmpl-m", CHOICE(0), 50);
	assert_int_equal(w->n, 1);
	assert_false(w->rec[0].v[RP_FIELD_M_TTFT].known);
	assert_int_equal(w->rec[0].token_source, RP_TOKENS_USAGE);
	world_end(w);
}

/* What the front end sent was seen, what the engine sent not from the beginning, or
 * not at all: it was hooked later. */
static void hooked_later(void **st)
{
	static const char *const id[] = { "cmpl-a-0-0000000a", "cmpl-b-0-0000000b" };
	struct world *w = world_new();

	(void)st;
	vllm(w);
	for (int i = 0; i < 2; i++) {
		ask(w, (uint64_t)i + 1, 1, COMPLETIONS, NULL, "");
		add(w, 1.1, id[i], 5);
	}
	step(w, 5, &(struct out){ .id = id[1], .tokens = 1, .finish = -1 }, 1);
	step(w, 6, &(struct out){ .id = id[1], .tokens = 1, .finish = 1 }, 1);
	body(w, 1, 7, "cmpl-a", CHOICE(0), 50);
	body(w, 2, 7, "cmpl-b", CHOICE(0), 50);
	tick(w, SEC(20));
	assert_int_equal(w->n, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(NSV(&w->rec[i], TOK_COMPLETION), 50);
		assert_int_equal(w->rec[i].token_source, RP_TOKENS_USAGE);
		is_null(&w->rec[i], M_TTFT, "not_seen");
		is_null(&w->rec[i], M_GENERATION, "not_seen");
	}
	world_end(w);
}

/* A message without its timestamp, handed over twice, counts once. */
static void cut_twice(void **st)
{
	const char *id = "cmpl-a-0-0000000a";
	struct out o = { .id = id, .tokens = 1, .finish = -1 };
	struct world *w = world_new();

	(void)st;
	vllm(w);
	add(w, 1.1, id, 5);
	for (int i = 0; i < 2; i++)
		cut_step(w, 2, &o, 1, 60);
	tick(w, SEC(3));
	assert_int_equal(rp_timeline_stats(w->t)->messages_repeated, 1);
	assert_int_equal(rp_timeline_stats(w->t)->cores[0].tokens, 1);
	world_end(w);
}

/* A page with one core's steps and no series twice. */
static void one_core(struct world *w, uint64_t steps)
{
	const struct rp_stats *s = rp_timeline_stats(w->t);
	static const struct rp_prom_process self;
	struct rp_prom *p = rp_prom_new(NULL);
	size_t len;
	char *text = rp_prom_render(p, s, &self, &len), want[80];

	assert_int_equal(s->n_cores, 1);
	no_series_twice(text);
	snprintf(want, sizeof(want), "\nreqprobe_scheduler_steps_total{engine_index=\"0\"} %llu\n",
		 (unsigned long long)steps);
	if (!strstr(text, want))
		fail_msg("no %s", want);
	assert_int_equal(strstr(text, "\nreqprobe_scheduler_requests_running{") != NULL,
			 !s->cores[0].gone);
	free(text);
	rp_prom_free(p);
}

/* A core with the pid of one that is gone goes on with its totals, and goes as well. */
static void pid_again(void **st)
{
	const struct out o = { .id = "cmpl-a-0-0000000a", .tokens = 1, .finish = -1 };
	struct world *w = world_new();
	const struct rp_stats *s = rp_timeline_stats(w->t);

	(void)st;
	vllm(w);
	for (int i = 0; i < 3; i++) {
		if (i)
			process(w, RP_PROC_FORK, CORE, SEC(2 + i * 2));
		step(w, 2.1 + i * 2, &o, 1);
		assert_int_equal(s->running, 1);
		assert_false(s->cores[0].gone);
		one_core(w, (uint64_t)i + 1);
		process(w, RP_PROC_EXIT, CORE, SEC(3 + i * 2));
		assert_int_equal(s->running, 0);
		assert_true(s->cores[0].gone);
		one_core(w, (uint64_t)i + 1);
		/* told late, by another CPU: nobody lives because of it */
		step(w, 3.1 + i * 2, &o, 1);
		assert_int_equal(s->running, 0);
		assert_true(s->cores[0].gone);
		one_core(w, (uint64_t)i + 1);
	}
	assert_int_equal(s->cores[0].tokens, 3);
	assert_int_equal(s->limit_cores, 0);
	world_end(w);
}

/* Frames behind outputs are tensors, of one byte too: never a request's type. */
static void small_tensor(void **st)
{
	const struct out o = { .id = "cmpl-a-0-0000000a", .tokens = 1, .finish = -1 };
	struct world *w = world_new();
	static struct pack p;

	(void)st;
	vllm(w);
	outputs(&p, 0, 2, &o, 1, &some);
	frame(w, CORE, SOCK_OUT, SEC(2.1), p.b, p.n, RP_MSG_MORE, 0);
	frame(w, CORE, SOCK_OUT, SEC(2.1), "\1", 1, RP_MSG_MORE, 0);
	frame(w, CORE, SOCK_OUT, SEC(2.1), "tensor tensor", 13, 0, 0);
	step(w, 3, &o, 1);
	assert_int_equal(rp_timeline_stats(w->t)->messages, 2);
	assert_int_equal(rp_timeline_stats(w->t)->messages_bad, 0);
	world_end(w);
}

static int64_t step_ns[8];
static unsigned n_steps;

static void on_step_info(void *ctx, const struct rp_step_info *s)
{
	(void)ctx;
	step_ns[n_steps++ % 8] = s->step_ns;
}

/* A step's time is since the one before, which after a loss is not known. */
static void step_time(void **st)
{
	const struct out o = { .id = "cmpl-a-0-0000000a", .tokens = 1, .finish = -1 };
	const struct rp_observer obs = { .step = on_step_info };
	struct rp_ev_loss l = {.h = hdr(RP_EV_LOSS, sizeof(l), SEC(2.5), 0, 0) };
	struct rp_ev_msg unseen = {
		.h = hdr(RP_EV_MSG, sizeof(unseen), SEC(6), CORE, CORE + 1),
		.sock = SOCK_OUT,
		.total = 60,
		.missing = 60
	};
	struct world *w = world_new();

	(void)st;
	n_steps = 0;
	unseen.h.flags = RP_F_SYNTH | RP_F_CUT;
	rp_timeline_observe(w->t, &obs);
	vllm(w);
	step(w, 1, &o, 1);
	step(w, 2, &o, 1);
	tick(w, SEC(2.4));
	l.lost[RP_CLASS_HOOK] = 1;
	feed(w, &l);
	step(w, 4, &o, 1);
	step(w, 5, &o, 1);
	feed(w, &unseen);
	step(w, 7, &o, 1);
	tick(w, SEC(8));
	assert_int_equal(n_steps, 5);
	assert_int_equal(step_ns[4], RP_NONE);
	assert_int_equal(step_ns[0], RP_NONE);
	assert_int_equal(step_ns[1], 1000000000);
	assert_int_equal(step_ns[2], RP_NONE);
	assert_int_equal(step_ns[3], 1000000000);
	world_end(w);
}

/* Instants that can't be: not taken, and no figure is made of them. */
static void absurd_instants(void **st)
{
	const char *id = "cmpl-a-0-0000000a";
	struct world *w = world_new();
	static struct pack p;
	const struct rp_record *r = &w->rec[0];

	(void)st;
	vllm(w);
	ask(w, 1, 1e6, COMPLETIONS, NULL, "");
	step(w, 1e6 + 1,
	     &(struct out){ .id = id,
			    .tokens = 1,
			    .finish = -1,
			    .ev = { { 1, 1e6 - 8 * 86400 }, { 2, 1e6 + 0.5 } } },
	     1);
	outputs(&p, 0, 1e18, &(struct out){ .id = id, .tokens = 1, .finish = 1 }, 1, &some);
	frame(w, CORE, SOCK_OUT, SEC(1e6 + 2), p.b, p.n, 0, 0);
	body(w, 1, 1e6 + 3, "cmpl-a", CHOICE(0), 2);
	assert_int_equal(w->n, 1);
	assert_int_equal(rp_timeline_stats(w->t)->invalid_order, 1);
	is_null(r, M_QUEUE, "not_reported");
	assert_true(fabs(r->v[RP_FIELD_M_GENERATION].d - 1000) < 1);
	world_end(w);
}

/* Token instants of a request that nobody claimed yet: limited, and no gap is made
 * across those that were dropped. */
static void marks_limited(void **st)
{
	const char *id = "cmpl-a-0-0000000a";
	struct rp_timeline_opts o;
	struct world *w;

	(void)st;
	rp_timeline_defaults(&o);
	o.max_marks = 16;
	w = world_opts(&o);
	vllm(w);
	ask(w, 1, 0.5, COMPLETIONS, NULL, ",\"stream\":true");
	add(w, 0.6, id, 5);
	tx(w, 1, SEC(0.7), STREAM_HEAD);
	for (int k = 0; k < 43; k++) {
		if (k == 40)
			chunk(w, 1, 1.399, "cmpl-a", 0, NULL);
		step(w, 1 + k * 0.01,
		     &(struct out){ .id = id,
				    .tokens = 1,
				    .finish = -1,
				    .ev = { { k ? 0 : 1, 0.8 }, { 2, 0.9 } } },
		     1);
	}
	assert_true(rp_timeline_stats(w->t)->limit_marks > 0);
	for (size_t i = 0; i < w->n_gaps; i++)
		assert_true(w->gap_chunk[i] || llabs(w->gaps[i] - 10000000) < 10);
	world_end(w);

	/* and they leave three quarters of the memory to others */
	o.max_marks = 65536;
	o.memory_max = 1 << 20;
	w = world_opts(&o);
	vllm(w);
	for (int k = 0; k < 16500; k++)
		step(w, 1 + k * 1e-3, &(struct out){ .id = id, .tokens = 1, .finish = -1 }, 1);
	assert_true(rp_timeline_stats(w->t)->limit_marks > 0);
	assert_true(rp_timeline_stats(w->t)->memory < (1 << 20) * 3 / 4);
	world_end(w);
}

/* Ends that were not seen do not fill the table for ever. */
static void silent(void **st)
{
	struct world *w = few_tasks();
	char id[64];

	(void)st;
	for (int i = 0; i < 100; i++) {
		snprintf(id, sizeof(id), "cmpl-%d-0-0000000a", i);
		step(w, 1 + i * 0.01, &(struct out){ .id = id, .tokens = 1, .finish = -1 }, 1);
	}
	for (int i = 0; i < 100; i++)
		tick(w, SEC(650 + i));
	assert_int_equal(rp_timeline_stats(w->t)->tasks_unclaimed, 100);
	step(w, 800, &(struct out){ .id = "cmpl-x-0-0000000a", .tokens = 1, .finish = -1 }, 1);
	assert_int_equal(rp_timeline_stats(w->t)->limit_tasks, 0);
	world_end(w);
}

/* Refused by the front end: the engine never heard of it, and that is no defect. */
static void refused(void **st)
{
	struct world *w = world_new();

	(void)st;
	vllm(w);
	step(w, 0.5, NULL, 0);
	ask(w, 1, 1, COMPLETIONS, NULL, "");
	tx(w, 1, SEC(1.1), "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
	assert_int_equal(w->n, 1);
	is_null(&w->rec[0], M_QUEUE, "not_reached");
	assert_int_equal(rp_timeline_stats(w->t)->not_joined, 0);
	world_end(w);
}

/* Through a proxy of the tree, with the client's id: the engine's end has the task. */
static void proxied_by_id(void **st)
{
	const char *id = "cmpl-p-0-0000000a";
	struct world *w = world_new();
	struct rp_ev_conn_open o = {
		.h = hdr(RP_EV_CONN_OPEN, sizeof(o), SEC(1.003), API, 0),
		.conn = 3,
		.family = AF_INET,
		.lport = 40002,
		.rport = 8000,
		.laddr = { 127, 0, 0, 1 },
		.raddr = { 127, 0, 0, 1 }
	};

	(void)st;
	vllm(w);
	ask(w, 1, 1, COMPLETIONS, "p", ",\"stream\":true");	/* a client's, to the proxy */
	ask(w, 2, 1.005, COMPLETIONS, "p", ",\"stream\":true"); /* the proxy's, to the engine */
	feed(w, &o);
	add(w, 1.006, id, 5);
	tx(w, 2, SEC(1.01), STREAM_HEAD);
	tx(w, 1, SEC(1.011), STREAM_HEAD);
	step(w, 2,
	     &(struct out){ .id = id, .tokens = 3, .finish = 1, .ev = { { 1, 1.5 }, { 2, 1.75 } } },
	     1);
	for (unsigned c = 2; c > 0; c--) {
		chunk(w, c, 2.01, "cmpl-p", 0, "length");
		usage(w, c, 2.01, "cmpl-p", 3);
		done(w, c, 2.02);
	}
	assert_int_equal(w->n, 1);
	assert_int_equal(w->rec[0].n_request_ids, 1);
	assert_int_equal(rp_timeline_stats(w->t)->proxied, 1);
	assert_int_equal(rp_timeline_stats(w->t)->tokens_completion, 3);
	world_end(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens_change_hands),
		cmocka_unit_test(same_numbers),
		cmocka_unit_test(b1),
		cmocka_unit_test(ids),
		cmocka_unit_test(long_response_id),
		cmocka_unit_test(twins),
		cmocka_unit_test(choices),
		cmocka_unit_test(stop_string),
		cmocka_unit_test(stop_strings),
		cmocka_unit_test(hang_up),
		cmocka_unit_test(odd_messages),
		cmocka_unit_test(several),
		cmocka_unit_test(estimated),
		cmocka_unit_test(told_without_stats),
		cmocka_unit_test(other_clock),
		cmocka_unit_test(long_wait),
		cmocka_unit_test(left_out),
		cmocka_unit_test(left_out_otherwise),
		cmocka_unit_test(left_out_with_stats),
		cmocka_unit_test(kv_cache),
		cmocka_unit_test(parts_of_step),
		cmocka_unit_test(left_out_of_parts),
		cmocka_unit_test(held_unseen),
		cmocka_unit_test(absurd_counts),
		cmocka_unit_test(why_waiting),
		cmocka_unit_test(midway),
		cmocka_unit_test(bounded),
		cmocka_unit_test(cut_in_between),
		cmocka_unit_test(inputs),
		cmocka_unit_test(gone_when_done),
		cmocka_unit_test(two_abandoned),
		cmocka_unit_test(memory_back),
		cmocka_unit_test(add_aside),
		cmocka_unit_test(core_totals),
		cmocka_unit_test(cached_unknown),
		cmocka_unit_test(cut_of_one_core),
		cmocka_unit_test(ready_in_parts),
		cmocka_unit_test(second_core),
		cmocka_unit_test(long_id),
		cmocka_unit_test(unnumbered),
		cmocka_unit_test(numbered_unlike_chats),
		cmocka_unit_test(cut_twice),
		cmocka_unit_test(pid_again),
		cmocka_unit_test(small_tensor),
		cmocka_unit_test(step_time),
		cmocka_unit_test(absurd_instants),
		cmocka_unit_test(marks_limited),
		cmocka_unit_test(silent),
		cmocka_unit_test(refused),
		cmocka_unit_test(proxied_by_id),
		cmocka_unit_test(prompts_of_choices),
		cmocka_unit_test(id_again),
		cmocka_unit_test(id_again_early),
		cmocka_unit_test(stop_late),
		cmocka_unit_test(abort_is_anothers),
		cmocka_unit_test(abort_late),
		cmocka_unit_test(stats_alone),
		cmocka_unit_test(exact_ids),
		cmocka_unit_test(midway_preempted),
		cmocka_unit_test(hooked_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
