// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a person sees: widths, units, percentiles, and nothing that moves the cursor. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "sink/sink.h"

#define MS 1000000LL

static uint64_t rnd_state = 88172645463325252ULL;
static uint64_t rnd(void)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return rnd_state;
}

static struct rp_record record(void)
{
	struct rp_record r;

	memset(&r, 0, sizeof(r));
	strcpy(r.id, "chatcmpl-8c64c5e74d88f57a");
	strcpy(r.finish_reason, "length");
	r.status = 200;
	r.wall_offset = 1795964250LL * 1000000000; /* 2026-11-29T14:57:30Z */
	for (int f = 0; f < RP_FIELD_COUNT; f++)
		r.v[f].why = RP_WHY_NOT_SEEN;
	return r;
}

static void set(struct rp_record *r, enum rp_field f, int64_t v)
{
	r->v[f].known = true;
	r->v[f].i = v;
}

static struct rp_record full(void)
{
	struct rp_record r = record();

	set(&r, RP_FIELD_TOK_PROMPT, 11);
	set(&r, RP_FIELD_TOK_COMPLETION, 6);
	set(&r, RP_FIELD_P_FRONTEND, 500000);
	set(&r, RP_FIELD_P_QUEUE, 32138);
	set(&r, RP_FIELD_P_PREFILL, 10665429);
	set(&r, RP_FIELD_S_TTFT, 11 * MS + 210000);
	set(&r, RP_FIELD_S_DURATION, 31 * MS);
	set(&r, RP_FIELD_S_ENDED, 31 * MS);
	set(&r, RP_FIELD_NET_RTT, 31);
	r.v[RP_FIELD_M_MEAN_ITL].known = true;
	r.v[RP_FIELD_M_MEAN_ITL].d = 3.8936122;
	return r;
}

/* Output to memory: no terminal, so 80 columns and no colour. */
struct mem {
	char *p;
	size_t n;
	FILE *f;
	struct rp_term *t;
};

static void mem_new(struct mem *m, int color)
{
	memset(m, 0, sizeof(*m));
	m->f = open_memstream(&m->p, &m->n);
	m->t = rp_term_new(m->f, -1, color);
	assert_non_null(m->t);
}

static void mem_free(struct mem *m)
{
	rp_term_free(m->t);
	fclose(m->f);
	free(m->p);
}

static void widths(const char *s, size_t max)
{
	while (*s) {
		size_t n = strcspn(s, "\n");

		if (n > max)
			fail_msg("%zu columns: %.*s", n, (int)n, s);
		if (n)
			assert_true(s[n - 1] != ' ');
		s += n + (s[n] == '\n');
	}
}

static void has(const char *s, const char *part)
{
	if (!strstr(s, part))
		fail_msg("%s\nis not in\n%s", part, s);
}

static void test_page(void **s)
{
	const struct rp_term_row rows[] = {
		{ "sees", "queue, prefill, decode", "launch_slot_with_task in llama-server 7096" },
		{ "sees", "HTTP and SSE", "sendto, write" },
		{ "blind", "TLS",
		  "1 connection so far; see reqprobe doctor, which says a good deal more" },
	};
	const struct rp_term_engine engines[] = { { .name = "llamacpp",
						    .version = "b11434",
						    .address = "127.0.0.1:8000",
						    .pid = 7066,
						    .more_pids = 2 },
						  { .name = "vLLM", .pid = 80 } };
	const struct rp_term_header h = { .engines = engines,
					  .n_engines = 2,
					  .rows = rows,
					  .n_rows = 3,
					  .metrics_url = "http://127.0.0.1:9479/metrics" };
	const struct rp_stats st = { .started = 3, .ends = { 2, 1 } };
	struct mem m;
	struct rp_record r = full();
	struct rp_gap_info g = { .source = RP_ITL_ENGINE, .gap_ns = 3893612, .n = 5 };

	(void)s;
	mem_new(&m, -1);
	rp_term_header(m.t, &h);
	rp_term_record(m.t, &r);
	r.end = RP_END_CLIENT_DISCONNECT;
	set(&r, RP_FIELD_P_QUEUE, 139 * MS);
	set(&r, RP_FIELD_P_PREFILL, 48 * MS);
	set(&r, RP_FIELD_P_FRONTEND, 14 * MS);
	set(&r, RP_FIELD_S_TTFT, 201 * MS + 400000);
	r.v[RP_FIELD_S_DURATION].known = false;
	set(&r, RP_FIELD_S_ENDED, 305 * MS); /* the client left */
	rp_term_record(m.t, &r);
	r = record();
	r.id[0] = '\0';
	r.end = RP_END_ERROR;
	r.status = 500;
	rp_term_record(m.t, &r);
	rp_term_gap(m.t, &g);
	rp_term_summary(m.t, &st);
	fflush(m.f);
	widths(m.p, 80);
	assert_null(strchr(m.p, '\033'));
	has(m.p,
	    "reqprobe " RP_VERSION "  llamacpp b11434  pid 7066 and 2 more  127.0.0.1:8000\n"
	    "                vLLM  pid 80\n"
	    "  sees   queue, prefill, decode   launch_slot_with_task in llama-server 7096\n"
	    "         HTTP and SSE             sendto, write\n"
	    "  blind  TLS                      1 connection so far; see reqprobe doctor, wh..\n"
	    "  metrics http://127.0.0.1:9479/metrics   Ctrl-C ends\n\n");
	has(m.p,
	    "\nSTART    ID                 IN   OUT  QUEUE   TTFT    ITL  TOTAL    RTT END\n"
	    "14:57:30 chatcmpl-8c64..    11     6   32us 11.2ms 3.89ms 31.0ms   31us length\n"
	    "14:57:30 chatcmpl-8c64..    11     6  139ms  201ms 3.89ms  305ms   31us client\n"
	    "14:57:30 -                   -     -      -      -      -      -      - err 500\n");
	has(m.p, "\n3 requests: 2 complete, 1 client_disconnect; 0 events lost\n");
	has(m.p, "\n             p50      p90      p99      max\n");
	has(m.p, "\nqueue     69.5ms    125ms    138ms    139ms\n");
	has(m.p, "\nitl       3.89ms   3.89ms   3.89ms   3.89ms\n");
	has(m.p, "\nslowest: chatcmpl-8c64..  ttft 201ms: 69% queue, 24% prefill, 7% front end\n");
	assert_null(strstr(m.p, "unobserved"));
	mem_free(&m);
}

/* What was cut may have held the true first token: no slowest one either. */
static void test_cut_is_not_slowest(void **s)
{
	const struct rp_stats st = { .started = 2, .ends = { 2 } };
	struct rp_record r = full();
	struct mem m;

	(void)s;
	mem_new(&m, -1);
	rp_term_record(m.t, &r);
	strcpy(r.id, "cut");
	r.flags = RP_FLAG_TRUNCATED;
	set(&r, RP_FIELD_S_TTFT, 200 * MS);
	rp_term_record(m.t, &r);
	rp_term_summary(m.t, &st);
	fflush(m.f);
	has(m.p, "\nttft      11.2ms   11.2ms   11.2ms   11.2ms\n");
	has(m.p, "\nslowest: chatcmpl-8c64..  ttft 11.2ms: ");
	mem_free(&m);
}

static void test_shares_add_up(void **s)
{
	static const struct {
		int64_t queue, prefill, frontend, ttft;
		const char *want;
	} c[] = {
		{ 193, 1, 6, 200, "97% queue, 3% front end\n" }, /* not 97, 3 and 1 */
		{ 100, 100, 100, 300, "34% queue, 33% prefill, 33% front end\n" },
		{ 99, 0, 0, 100, "99% queue, 1% delivery\n" },
		{ 1, 0, 0, 1, "ms: 100% queue\n" },
	};
	const struct rp_stats st = { .started = 1, .ends = { 1 } };

	(void)s;
	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		struct rp_record r = full();
		struct mem m;

		mem_new(&m, -1);
		set(&r, RP_FIELD_P_QUEUE, c[i].queue * MS);
		set(&r, RP_FIELD_P_PREFILL, c[i].prefill * MS);
		set(&r, RP_FIELD_P_FRONTEND, c[i].frontend * MS);
		set(&r, RP_FIELD_S_TTFT, c[i].ttft * MS);
		rp_term_record(m.t, &r);
		rp_term_summary(m.t, &st);
		fflush(m.f);
		has(m.p, c[i].want);
		mem_free(&m);
	}
}

static void test_interpolated(void **s)
{
	const struct rp_stats st = { .started = 5, .ends = { 5 } };
	struct mem m;

	(void)s;
	mem_new(&m, -1);
	for (int i = 0; i < 5; i++) {
		struct rp_record r = full();

		set(&r, RP_FIELD_P_QUEUE, (i + 1) * 10 * MS);
		rp_term_record(m.t, &r);
	}
	rp_term_summary(m.t, &st);
	fflush(m.f);
	/* numpy.percentile([10, 20, 30, 40, 50], [50, 90, 99]); 30 is in a part around 29.9 */
	has(m.p, "\nqueue     29.9ms   46.0ms   49.6ms   50.0ms\n");
	mem_free(&m);
}

static void test_units(void **s)
{
	static const struct {
		int64_t ns;
		const char *want;
	} t[] = {
		{ 0, " 0us " },
		{ 499, " 0us " },
		{ 501, " 1us " },
		{ 31000, " 31us " },
		{ 999499, " 999us " },
		{ 999500, " 1.00ms " },
		{ 1240000, " 1.24ms " },
		{ 9995000, " 10.0ms " },
		{ 99949999, " 99.9ms " },
		{ 99950000, " 100ms " },
		{ 139000000, " 139ms " },
		{ 999499999, " 999ms " },
		{ 999500000, " 1.00s " },
		{ 1240000000, " 1.24s " },
		{ 2560000000000, " 2560s " },
		{ 36000000000000, " 10.0h " },
	};
	static const struct {
		int64_t tokens;
		const char *want;
	} n[] = {
		{ 0, " 0 " },		{ 99999, " 99999 " }, { 100000, " 100k " },
		{ 9999499, " 9999k " }, { 9999500, " 10M " }, { 12345678, " 12M " },
	};
	const struct rp_stats none = { 0 };

	(void)s;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct mem m;
		struct rp_record r = record();

		mem_new(&m, 0);
		set(&r, RP_FIELD_S_TTFT, t[i].ns);
		rp_term_record(m.t, &r);
		has(m.p, t[i].want);
		mem_free(&m);
	}
	for (size_t i = 0; i < sizeof(n) / sizeof(*n); i++) {
		struct mem m;
		struct rp_record r = record();

		mem_new(&m, 0);
		set(&r, RP_FIELD_TOK_PROMPT, n[i].tokens);
		rp_term_record(m.t, &r);
		rp_term_summary(m.t, &none);
		fflush(m.f);
		has(m.p, n[i].want);
		has(m.p, "\n0 requests; 0 events lost\n");
		mem_free(&m);
	}
}

/* Of an engine that is not seen into, the gaps between events stand for those between
 * tokens, and say so, in the six characters that there are. */
static void test_gaps_of_events(void **s)
{
	static const struct {
		double ms;
		const char *want;
	} t[] = {
		{ 0.0004, " ~0us " },	 { 0.031, " ~31us " },	 { 0.9994, " ~999us " },
		{ 0.9996, " ~1.0ms " },	 { 9.94, " ~9.9ms " },	 { 9.96, " ~10ms " },
		{ 59.1, " ~59ms " },	 { 999.4, " ~999ms " },	 { 999.6, " ~1.0s " },
		{ 2560000, " ~2560s " }, { 36000000, " ~10h " },
	};
	struct rp_record r = record();
	struct mem m;

	(void)s;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		mem_new(&m, 0);
		r.v[RP_FIELD_S_MEAN_ICL] = (struct rp_value){ .known = true, .d = t[i].ms };
		rp_term_record(m.t, &r);
		widths(m.p, 80);
		has(m.p, t[i].want);
		mem_free(&m);
	}
	/* the engine's own is the better one */
	mem_new(&m, 0);
	r.v[RP_FIELD_M_MEAN_ITL] = (struct rp_value){ .known = true, .d = 3.89 };
	rp_term_record(m.t, &r);
	has(m.p, " 3.89ms ");
	assert_null(strchr(m.p, '~'));
	mem_free(&m);
}

/* An id, a finish reason or a host from the wire is text, never a command. */
static void test_no_escape_gets_out(void **s)
{
	struct mem m;
	const struct rp_term_row rows[] = { { "sees", "a\033]0;x\007b",
					      "c\nd\re\x9b"
					      "1m" } };
	const struct rp_term_engine e = { .name = "x\033[2J", .pid = 1 };
	const struct rp_term_header h = { .engines = &e, .n_engines = 1, .rows = rows, .n_rows = 1 };
	const struct rp_stats st = { .started = 1, .ends = { 1 } };
	struct rp_record r = full();

	(void)s;
	mem_new(&m, 0);
	rp_term_header(m.t, &h);
	for (int i = 0; i < 2000; i++) {
		for (size_t k = 0; k < sizeof(r.id) - 1; k++)
			r.id[k] = (char)(1 + rnd() % 255);
		for (size_t k = 0; k < sizeof(r.finish_reason) - 1; k++)
			r.finish_reason[k] = (char)(1 + rnd() % 255);
		rp_term_record(m.t, &r);
	}
	rp_term_summary(m.t, &st);
	fflush(m.f);
	for (const char *p = m.p; *p; p++)
		assert_true(*p == '\n' || ((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f));
	widths(m.p, 80);
	mem_free(&m);
}

static int64_t figure(const char *p)
{
	char *unit;
	double d = strtod(p, &unit);

	return (int64_t)(d * (*unit == 'u' ? 1e3 :
			      *unit == 'm' ? 1e6 :
			      *unit == 's' ? 1e9 :
					     3600e9));
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

/* Against exact nearest-rank percentiles: 1 % of the histogram, and half a unit
 * of the third digit printed. */
static void test_percentiles(void **s)
{
	static int64_t v[20000];
	static const double q[] = { 0.5, 0.9, 0.99, 1 };
	const struct rp_stats st = { .started = 1 };

	(void)s;
	for (int round = 0; round < 20; round++) {
		struct mem m;
		size_t n = 1 + rnd() % 20000;
		char *row;

		mem_new(&m, 0);
		for (size_t i = 0; i < n; i++) {
			struct rp_gap_info g = { .source = RP_ITL_ENGINE, .n = 1 };

			/* from 0.1 ms to a minute, log-uniform */
			v[i] = 100000LL << (rnd() % 19);
			v[i] += (int64_t)(rnd() % (uint64_t)v[i]);
			g.gap_ns = v[i];
			rp_term_gap(m.t, &g);
		}
		qsort(v, n, sizeof(*v), by_value);
		rp_term_summary(m.t, &st);
		row = strstr(m.p, "\nitl ");
		assert_non_null(row);
		row += 5;
		for (int i = 0; i < 4; i++) {
			double at = q[i] * (double)(n - 1), want, got,
			       tol = i == 3 ? 0.0051 : 0.0151;
			size_t k = (size_t)at;

			want = (double)v[k];
			if (k + 1 < n)
				want += (at - (double)k) * (double)(v[k + 1] - v[k]);
			row += strspn(row, " ");
			got = (double)figure(row);
			if (got < want * (1 - tol) - 500 || got > want * (1 + tol) + 500)
				fail_msg("p%g of %zu: %g, not %g", q[i] * 100, n, got, want);
			row += strcspn(row, " \n");
		}
		mem_free(&m);
	}
}

static void test_warnings(void **s)
{
	const struct rp_stats st = { .started = 5,
				     .ends = { 1, 1, 1, 1, 1 },
				     .in_flight = 0,
				     .lost = { 7, 0, 2, 0 },
				     .bytes_lost = 10,
				     .bytes_cut = 20,
				     .map_full = { 1 },
				     .limit_memory = 3,
				     .unobserved_tls = 1,
				     .unobserved_io_uring = 2 };
	struct mem m;
	struct rp_record r = full();

	(void)s;
	mem_new(&m, 0);
	r.flags = RP_FLAG_LOST_EVENTS;
	rp_term_record(m.t, &r);
	rp_term_summary(m.t, &st);
	widths(m.p, 80);
	has(m.p, " length*\n");
	/* too long for one line: nothing of it may be cut off */
	has(m.p,
	    "\n5 requests: 1 complete, 1 client_disconnect, 1 server_close, 1 error, 1 unknown\n"
	    "9 events lost\n");
	has(m.p, "lost events: 7 data, 2 hook (try a larger --ring)\n");
	has(m.p, "stream bytes: 10 lost, 20 cut\n");
	has(m.p, "map full: 1 conns\n");
	has(m.p, "limits hit: 3 memory (see --memory, --max-requests, --max-connections)\n");
	has(m.p, "unobserved connections: 1 tls, 2 io_uring; their requests are in no figure\n");
	has(m.p, "* 1 record incomplete: see flags in the JSONL\n");
	/* a record that a loss touched is in no percentile */
	has(m.p, "\nttft           -        -        -        -\n");
	mem_free(&m);
}

/* The schedulers' line: all engine processes together, wrapped where it is full. */
static void test_scheduler(void **s)
{
	struct rp_stats st = { .started = 1, .ends = { 1 } };
	struct mem m;

	(void)s;
	st.cores[0] = (struct rp_core){ .steps = 1000,
					.outputs = 5000,
					.tokens = 5100,
					.preemptions = 3,
					.stats = true,
					.prefix_queries = 100000,
					.prefix_hits = 40000 };
	st.cores[1] = (struct rp_core){ .steps = 234, .outputs = 1910, .tokens = 1934 };
	mem_new(&m, 0);
	rp_term_summary(m.t, &st); /* none of them counts yet */
	assert_null(strstr(m.p, "scheduler"));
	st.n_cores = 2;
	rp_term_summary(m.t, &st);
	fflush(m.f);
	widths(m.p, 80);
	has(m.p, "\nscheduler 1234 steps, 5.6 requests and 5.7 tokens a step, 3 preemptions,\n"
		 "          prefix cache 40% of 100k tokens\n");
	assert_null(strstr(m.p, "drafted"));
	mem_free(&m);

	st.cores[1].spec = true;
	st.cores[1].spec_draft_tokens = 12;
	st.cores[1].spec_accepted_tokens = 8;
	st.cores[0].steps = 0;
	st.cores[1].steps = 1;
	st.cores[0].preemptions = 1;
	st.messages_cut = 2;
	st.messages_bad = 1;
	st.limit_cores = 4;
	st.limit_ids = 5;
	mem_new(&m, 0);
	rp_term_summary(m.t, &st);
	fflush(m.f);
	widths(m.p, 80);
	has(m.p, "\nscheduler 1 step, ");
	has(m.p, "1 preemption,");
	has(m.p, ", 67% of 12 drafted tokens accepted\n");
	has(m.p, "\nengine messages: 2 cut, 1 not understood\n");
	has(m.p, "\nlimits hit: 4 cores, 5 ids (see ");
	mem_free(&m);

	/* of one engine nobody knows: then not of all either */
	st.cores[1].gaps_unknown = true;
	mem_new(&m, 0);
	rp_term_summary(m.t, &st);
	fflush(m.f);
	assert_null(strstr(m.p, "preemption"));
	st.cores[1].log_stats = true; /* its events tell */
	rp_term_summary(m.t, &st);
	fflush(m.f);
	has(m.p, "1 preemption,");
	mem_free(&m);

	/* the largest there are still fit */
	memset(&st.cores[0], 0xff, sizeof(st.cores[0]));
	st.cores[0].log_stats = true;
	mem_new(&m, 0);
	rp_term_summary(m.t, &st);
	fflush(m.f);
	widths(m.p, 80);
	mem_free(&m);
}

/* Socket only: no queue, no tokens; chunks are what can be timed. A gap between events,
 * however many tokens it is taken to bring, is no gap between tokens. */
static void test_socket_only(void **s)
{
	const struct rp_stats st = { .started = 1, .ends = { 1 } };
	struct rp_gap_info g = { .gap_ns = 50 * MS, .n = 1, .chunk = true };
	struct mem m;
	struct rp_record r = record();

	(void)s;
	mem_new(&m, 0);
	r.finish_reason[0] = '\0';
	set(&r, RP_FIELD_S_DURATION, 500 * MS);
	set(&r, RP_FIELD_S_ENDED, 500 * MS);
	rp_term_record(m.t, &r);
	rp_term_gap(m.t, &g);
	g.source = RP_ITL_SERVER;
	g.chunk = false;
	rp_term_gap(m.t, &g);
	rp_term_summary(m.t, &st);
	has(m.p, "chatcmpl-8c64..     -     -      -      -      -  500ms      - complete\n");
	assert_null(strstr(m.p, "\nitl "));
	has(m.p, "\nicl       50.0ms   50.0ms   50.0ms   50.0ms\n");
	has(m.p, "\ntotal      500ms    500ms    500ms    500ms\n");
	has(m.p, "\nslowest: chatcmpl-8c64..  total 500ms\n");
	mem_free(&m);
}

/* ---- on a real terminal ---- */

static char *on_pty(unsigned short cols, unsigned short rows, int records)
{
	struct winsize w = { .ws_col = cols, .ws_row = rows };
	static char buf[65536];
	struct rp_record r = full();
	struct rp_term *t;
	size_t n = 0;
	int master, slave;
	FILE *f;

	assert_int_equal(openpty(&master, &slave, NULL, NULL, &w), 0);
	fcntl(master, F_SETFL, O_NONBLOCK);
	f = fdopen(slave, "w");
	t = rp_term_new(f, slave, -1);
	for (int i = 0; i < records; i++) {
		ssize_t k;

		if (i == records - 1)
			r.end = RP_END_ERROR;
		rp_term_record(t, &r);
		while ((k = read(master, buf + n, sizeof(buf) - 1 - n)) > 0)
			n += (size_t)k;
	}
	buf[n] = '\0';
	rp_term_free(t);
	fclose(f);
	close(master);
	return buf;
}

static void strip_color(char *s)
{
	char *d = s;

	while (*s) {
		if (*s == '\033') {
			s += strcspn(s, "m");
			s += *s == 'm';
		} else if (*s == '\r') {
			s++;
		} else {
			*d++ = *s++;
		}
	}
	*d = '\0';
}

static void test_terminal(void **s)
{
	char *out;
	int heads = 0;

	(void)s;
	unsetenv("NO_COLOR");
	setenv("TERM", "xterm", 1);
	out = on_pty(80, 24, 2);
	assert_non_null(strchr(out, '\033'));
	has(out, " length");
	strip_color(out);
	widths(out, 80);
	/* the word is there without the colour */
	has(out, " error\n");

	for (unsigned short c = 40; c < 140; c++) {
		out = on_pty(c, 24, 1);
		strip_color(out);
		widths(out, c);
		has(out, "TTFT");
		has(out, "END");
	}
	has(out, "chatcmpl-8c64c5e74d88f57a "); /* wide enough for all of it */

	out = on_pty(80, 12, 25);
	for (char *p = out; (p = strstr(p, "START")); p++)
		heads++;
	assert_int_equal(heads, 3);

	setenv("NO_COLOR", "1", 1);
	assert_null(strchr(on_pty(80, 24, 2), '\033'));
	setenv("NO_COLOR", "", 1); /* empty means not set: no-color.org */
	assert_non_null(strchr(on_pty(80, 24, 2), '\033'));
	unsetenv("NO_COLOR");
	setenv("TERM", "dumb", 1);
	assert_null(strchr(on_pty(80, 24, 2), '\033'));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page),	       cmocka_unit_test(test_units),
		cmocka_unit_test(test_gaps_of_events), cmocka_unit_test(test_no_escape_gets_out),
		cmocka_unit_test(test_percentiles),    cmocka_unit_test(test_warnings),
		cmocka_unit_test(test_scheduler),      cmocka_unit_test(test_socket_only),
		cmocka_unit_test(test_terminal),       cmocka_unit_test(test_cut_is_not_slowest),
		cmocka_unit_test(test_shares_add_up),  cmocka_unit_test(test_interpolated),
	};

	setenv("TZ", "UTC", 1);
	tzset();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
