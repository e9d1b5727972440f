// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The verb rtt: targets, times, statistics, AIPerf's lines to the byte, handshakes
 * out of records, and the prober against sockets of this process. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rtt/rtt.h"

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* ---- targets, times ---- */

static void targets(void **state)
{
	static const struct {
		const char *in, *host, *name, *url;
		uint16_t port;
	} ok[] = {
		{ "h", "h", "h:80", "http://h:80", 80 },
		{ "Host.Example:8000", "host.example", "host.example:8000",
		  "http://host.example:8000", 8000 },
		{ "127.0.0.1:1", "127.0.0.1", "127.0.0.1:1", "http://127.0.0.1:1", 1 },
		{ "[::1]:65535", "::1", "[::1]:65535", "http://[::1]:65535", 65535 },
		{ "::1", "::1", "[::1]:80", "http://[::1]:80", 80 },
		{ "[2001:DB8::1]", "2001:db8::1", "[2001:db8::1]:80", "http://[2001:db8::1]:80",
		  80 },
		{ "fe80::1%eth0", "fe80::1%eth0", "[fe80::1%eth0]:80", "http://[fe80::1%eth0]:80",
		  80 },
		{ "http://h/", "h", "h:80", "http://h/", 80 },
		{ "https://h", "h", "h:443", "https://h", 443 },
		{ "HTTPS://H:8443/v1/", "h", "h:8443", "HTTPS://H:8443/v1/", 8443 },
		{ "http://[::1]:8000/v1", "::1", "[::1]:8000", "http://[::1]:8000/v1", 8000 },
		{ "http://u:p@w@h:1/v1?key=k#f", "h", "h:1", "http://<redacted>@h:1/v1", 1 },
		{ "http://h?key=k", "h", "h:80", "http://h", 80 },
		{ "grpc://h:8001", "h", "h:8001", "grpc://h:8001", 8001 },
	};
	static const char *const bad[] = {
		"",
		":80",
		"h:",
		"h:0",
		"h:65536",
		"h:8000x",
		"h:-1",
		"h:+1",
		"h: 1",
		"[::1",
		"[::1]x",
		"[::1]:",
		"[h]:80",
		"1:2:3",
		"::1:x",
		"http://",
		"http:///",
		"http://:80",
		"u@h:80",
		"h/v1",
		"h:80/v1",
		"grpc://h",
		"h\n",
		"h\x1b[m:1",
		"http://h:80:80",
		"[]:80",
		"http://u@",
		"[127.0.0.1]:80",
	};
	struct rp_rtt_target t;
	char err[400], *big = NULL;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(ok); i++) {
		if (!rp_rtt_target_parse(ok[i].in, AF_UNSPEC, &t, err, sizeof(err)))
			fail_msg("%s: %s", ok[i].in, err);
		assert_string_equal(t.host, ok[i].host);
		assert_string_equal(t.name, ok[i].name);
		assert_string_equal(t.url, ok[i].url);
		assert_int_equal(t.port, ok[i].port);
	}
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		*err = '\0';
		if (rp_rtt_target_parse(bad[i], AF_UNSPEC, &t, err, sizeof(err)))
			fail_msg("'%s' is taken for %s", bad[i], t.name);
		assert_true(*err && !strchr(err, '\n'));
	}
	/* a literal of the other family; a name may be either */
	assert_false(rp_rtt_target_parse("127.0.0.1", AF_INET6, &t, err, sizeof(err)));
	assert_false(rp_rtt_target_parse("::1", AF_INET, &t, err, sizeof(err)));
	assert_true(rp_rtt_target_parse("localhost", AF_INET6, &t, err, sizeof(err)));
	for (size_t n = 100; n < 2000; n += 50) {
		big = realloc(big, n + 16);
		memset(big, 'a', n);
		strcpy(big + n, ":80");
		assert_int_equal(rp_rtt_target_parse(big, AF_UNSPEC, &t, err, sizeof(err)),
				 n < sizeof(t.host));
		memcpy(big, "http://h/", 9);
		strcpy(big + n, "");
		assert_int_equal(rp_rtt_target_parse(big, AF_UNSPEC, &t, err, sizeof(err)),
				 n < sizeof(t.url));
	}
	free(big);
}

static void resolving(void **state)
{
	struct rp_rtt_target t;
	char err[400];
	int sys;

	(void)state;
	assert_true(rp_rtt_target_parse("127.0.0.1:7", AF_UNSPEC, &t, err, sizeof(err)));
	assert_int_equal(rp_rtt_resolve(&t, AF_UNSPEC, &sys), 0);
	assert_string_equal(t.address, "127.0.0.1");
	assert_int_equal(t.addr.ss_family, AF_INET);
	assert_int_equal(ntohs(((struct sockaddr_in *)&t.addr)->sin_port), 7);
	assert_true(rp_rtt_target_parse("[::1]:7", AF_UNSPEC, &t, err, sizeof(err)));
	assert_int_equal(rp_rtt_resolve(&t, AF_UNSPEC, &sys), 0);
	assert_string_equal(t.address, "::1");
	assert_true(rp_rtt_target_parse("127.0.0.1:7", AF_UNSPEC, &t, err, sizeof(err)));
	assert_int_not_equal(rp_rtt_resolve(&t, AF_INET6, &sys), 0);
	assert_int_equal(t.addr_len, 0);
}

/* ---- statistics ---- */

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void series(void **state)
{
	static const unsigned at[] = { 0, 1, 500, 900, 950, 990, 999, 1000 };
	struct rp_series *s = calloc(1, sizeof(*s));
	enum { N = 20000 };
	int64_t *v = malloc(N * sizeof(*v));
	uint64_t seed = 88172645463325252ULL;
	double sum = 0, dev = 0;

	(void)state;
	s->unit = 1;
	assert_int_equal(rp_series_at(s, 500), 0);
	assert_true(rp_series_std(s) == 0);
	for (int i = 0; i < N; i++) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		v[i] = (int64_t)(seed >> (28 + seed % 30)); /* 0 to 64 s */
		rp_series_add(s, v[i]);
		sum += (double)v[i];
	}
	rp_series_add(s, -1); /* no duration */
	assert_int_equal(s->n, N);
	for (int i = 0; i < N; i++)
		dev += ((double)v[i] - sum / N) * ((double)v[i] - sum / N);
	assert_true(fabs(s->mean / (sum / N) - 1) < 1e-9);
	assert_true(fabs(rp_series_std(s) / sqrt(dev / N) - 1) < 1e-9);
	qsort(v, N, sizeof(*v), by_value);
	assert_int_equal(s->min, v[0]);
	assert_int_equal(s->max, v[N - 1]);
	for (size_t i = 0; i < COUNT_OF(at); i++) {
		size_t rank = ((size_t)N * at[i] + 999) / 1000;
		double want = (double)v[rank ? rank - 1 : 0];

		assert_true(fabs((double)rp_series_at(s, at[i]) - want) <= want * 0.004);
	}
	/* in whole microseconds below 128: exact */
	memset(s, 0, sizeof(*s));
	s->unit = 1000;
	for (int i = 1; i <= 100; i++)
		rp_series_add(s, i * 1000);
	assert_int_equal(rp_series_at(s, 500), 50000);
	assert_int_equal(rp_series_at(s, 990), 99000);
	/* what is too large for the histogram is still counted, its maximum exact */
	rp_series_add(s, INT64_MAX);
	assert_int_equal(s->max, INT64_MAX);
	assert_true(rp_series_at(s, 1000) > 0);
	free(v);
	free(s);
}

/* ---- lines ---- */

static char *line(const struct rp_rtt_result *r, enum rp_rtt_figure source)
{
	struct rp_rtt_line l = { r, source, false };
	struct rp_buf b = { 0 };
	size_t n;

	rp_rtt_put_line(&b, &l);
	return rp_buf_own(&b, &n);
}

static void expect_line(const struct rp_rtt_result *r, enum rp_rtt_figure source, const char *want)
{
	char *have = line(r, source);

	assert_non_null(have);
	assert_string_equal(have, want);
	free(have);
}

/* What AIPerf 0.13.0 wrote of the same events, but for the instants. */
static void lines(void **state)
{
	struct rp_rtt_target t, t6;
	struct rp_rtt_result r = {
		.t = &t, .wall = 1795989479403164940, .connect = 491619, .kernel = 23000
	};
	char err[400], want[1024];
	int sys;

	(void)state;
#define HEAD(type)                                                                     \
	"{\"timestamp_ns\":1795989479403164940,\"target_url\":\"http://127.0.0.1:9\"," \
	"\"target_host\":\"127.0.0.1\",\"target_port\":9,\"probe_type\":\"" type "\","
	assert_true(rp_rtt_target_parse("127.0.0.1:9", AF_UNSPEC, &t, err, sizeof(err)));
	assert_int_equal(rp_rtt_resolve(&t, AF_UNSPEC, &sys), 0);
	expect_line(&r, RP_RTT_CONNECT, HEAD("tcp_connect") "\"rtt_ns\":491619,\"success\":true}");
	expect_line(&r, RP_RTT_KERNEL, HEAD("tcp_info") "\"rtt_ns\":23000,\"success\":true}");
	expect_line(&r, RP_RTT_PASSIVE,
		    HEAD("tcp_handshake_passive") "\"rtt_ns\":23000,\"success\":true}");
	r.kernel = -1; /* the SYN went out twice */
	expect_line(&r, RP_RTT_KERNEL, HEAD("tcp_info") "\"success\":true}");

	r.err = ECONNREFUSED;
	expect_line(&r, RP_RTT_CONNECT,
		    HEAD("tcp_connect") "\"success\":false,\"error\":{\"type\":"
					"\"ConnectionRefusedError\",\"message\":"
					"\"ConnectionRefusedError(111, \\\"Connect call failed "
					"('127.0.0.1', 9)\\\")\",\"cause_chain\":"
					"[\"ConnectionRefusedError\"]}}");
	r.err = ETIMEDOUT;
	r.own_timeout = true;
	expect_line(&r, RP_RTT_CONNECT,
		    HEAD("tcp_connect") "\"success\":false,\"error\":{\"type\":\"TimeoutError\","
					"\"message\":\"TimeoutError()\",\"cause\":"
					"\"CancelledError()\",\"cause_chain\":[\"TimeoutError\","
					"\"CancelledError\"]}}");
	r.own_timeout = false;
	expect_line(&r, RP_RTT_CONNECT,
		    HEAD("tcp_connect") "\"success\":false,\"error\":{\"type\":\"TimeoutError\","
					"\"message\":\"TimeoutError(110, \\\"Connect call failed "
					"('127.0.0.1', 9)\\\")\",\"cause_chain\":"
					"[\"TimeoutError\"]}}");
	r.err = ENETUNREACH;
	r.at_once = true;
	expect_line(&r, RP_RTT_CONNECT,
		    HEAD("tcp_connect") "\"success\":false,\"error\":{\"type\":\"OSError\","
					"\"message\":\"OSError(101, 'Network is unreachable')\","
					"\"cause_chain\":[\"OSError\"]}}");
	r.err = EAI_NONAME;
	r.resolve = true;
	expect_line(&r, RP_RTT_CONNECT,
		    HEAD("tcp_connect") "\"success\":false,\"error\":{\"type\":\"gaierror\","
					"\"message\":\"gaierror(-2, 'Name or service not known')\","
					"\"cause_chain\":[\"gaierror\"]}}");

	assert_true(rp_rtt_target_parse("[::1]:9", AF_UNSPEC, &t6, err, sizeof(err)));
	assert_int_equal(rp_rtt_resolve(&t6, AF_UNSPEC, &sys), 0);
	r = (struct rp_rtt_result){ .t = &t6, .wall = 1, .err = ECONNREFUSED };
	snprintf(want, sizeof(want),
		 "{\"timestamp_ns\":1,\"target_url\":\"http://[::1]:9\",\"target_host\":\"::1\","
		 "\"target_port\":9,\"probe_type\":\"tcp_connect\",\"success\":false,\"error\":"
		 "{\"type\":\"ConnectionRefusedError\",\"message\":\"ConnectionRefusedError(111, "
		 "\\\"Connect call failed ('::1', 9, 0, 0)\\\")\",\"cause_chain\":"
		 "[\"ConnectionRefusedError\"]}}");
	expect_line(&r, RP_RTT_CONNECT, want);
}

static void reasons(void **state)
{
	(void)state;
	assert_int_equal(rp_rtt_why(0, false), RP_RTT_OK);
	assert_int_equal(rp_rtt_why(ECONNREFUSED, false), RP_RTT_REFUSED);
	assert_int_equal(rp_rtt_why(ETIMEDOUT, false), RP_RTT_TIMEOUT);
	assert_int_equal(rp_rtt_why(EHOSTUNREACH, false), RP_RTT_UNREACHABLE);
	assert_int_equal(rp_rtt_why(ECONNRESET, false), RP_RTT_RESET);
	assert_int_equal(rp_rtt_why(EAI_NONAME, true), RP_RTT_RESOLVE);
	assert_int_equal(rp_rtt_why(EMFILE, false), RP_RTT_OTHER);
}

/* ---- --from-live ---- */

struct seen {
	struct rp_rtt_seen s[16];
	unsigned n;
};

static int on_seen(void *ctx, const struct rp_rtt_seen *s)
{
	struct seen *all = ctx;

	assert_true(all->n < COUNT_OF(all->s));
	all->s[all->n++] = *s;
	return 0;
}

#define REC(schema, caddr, cport, reused, start, rtt, source, age)                     \
	"{\"schema\":\"" schema "\",\"id\":\"a\\\"b{\",\"client\":{\"address\":" caddr \
	",\"port\":" cport "},\"server\":{\"address\":\"10.0.0.1\",\"port\":8000},"    \
	"\"connection\":{\"reused\":" reused ",\"tls\":false},\"start\":\"" start      \
	"\",\"x\":[1,{\"server\":{\"port\":1}},[]],\"network\":{\"rtt_ms\":" rtt       \
	",\"source\":" source ",\"age_s\":" age ",\"retransmits\":0},\"missing\":{}}"
#define R1 "reqprobe.request/1"
#define T0 "2026-11-29T14:57:30.123456789Z"
#define T1 "2026-11-29T14:57:31.5Z"

static void passive(void **state)
{
	static const char file[] =
		/* two on one connection: once */
		REC(R1, "\"10.0.0.7\"", "5000", "false", T0, "0.031", "\"handshake\"",
		    "0.5") "\n" REC(R1, "\"10.0.0.7\"", "5000", "true", T1, "0.031",
				    "\"handshake\"", "1.876543211") "\n"
		/* its first request is not in the file: once all the same */
		REC(R1, "\"10.0.0.7\"", "5001", "true", T0, "80.25", "\"handshake\"",
		    "100") "\n" REC(R1, "\"10.0.0.7\"", "5001", "true", T1, "80.25",
				    "\"handshake\"", "101.376543211") "\n"
		/* the port again, for another connection */
		REC(R1, "\"10.0.0.7\"", "5001", "false", "2026-11-29T14:58:00Z", "79",
		    "\"handshake\"", "0") "\n"
		/* none */
		REC(R1, "\"10.0.0.7\"", "5002", "false", T0, "null", "null", "null") "\n" REC(
			R1, "\"10.0.0.7\"", "5003", "false", T0, "5", "\"smoothed\"",
			"0") "\n"
			     "{\"schema\":\"reqprobe.summary/1\",\"network\":{\"rtt_ms\":7}}\n"
			     "\n"
		/* not ours, or not whole */
		REC("other/1", "\"10.0.0.7\"", "5004", "false", T0, "5", "\"handshake\"",
		    "0") "\n" REC(R1, "\"10.0.0.7\"", "5005", "false", "2026", "5", "\"handshake\"",
				  "0") "\n" REC(R1, "\"10.0.0.7\"", "5006", "false", T0, "-5",
						"\"handshake\"",
						"0") "\n" REC(R1, "\"10.0.0.7\"", "0", "false", T0,
							      "5", "\"handshake\"",
							      "0") "\n"
								   "{\"schema\":\"" R1 "\"\n"
								   "[1,2]\nnonsense\n"
								   "{\"schema\":\"" R1;
	struct seen all = { .n = 0 };
	struct rp_rtt_passive st;
	FILE *f = fmemopen((void *)(uintptr_t)file, sizeof(file) - 1, "r");
	char deep[400];

	(void)state;
	assert_int_equal(rp_rtt_passive(f, on_seen, &all, &st), 0);
	fclose(f);
	assert_int_equal(all.n, 3);
	assert_string_equal(all.s[0].address, "10.0.0.1");
	assert_int_equal(all.s[0].port, 8000);
	assert_int_equal(all.s[0].rtt, 31000);
	assert_int_equal(all.s[0].wall, 1795964250123456789 - 500000000);
	assert_int_equal(all.s[1].rtt, 80250000);
	assert_int_equal(all.s[2].rtt, 79000000);
	assert_int_equal(st.handshakes, 3);
	assert_int_equal(st.repeated, 2);
	assert_int_equal(st.none, 2);
	assert_int_equal(st.bad, 8);

	/* cut anywhere: no crash, and nothing made up */
	for (size_t n = 1; n < sizeof(file) - 1; n++) {
		f = fmemopen((void *)(uintptr_t)file, n, "r");
		all.n = 0;
		assert_int_equal(rp_rtt_passive(f, on_seen, &all, &st), 0);
		assert_true(all.n <= 3);
		fclose(f);
	}
	memset(deep, '[', sizeof(deep));
	memcpy(deep, "{\"a\":", 5);
	deep[sizeof(deep) - 1] = '\n';
	f = fmemopen(deep, sizeof(deep), "r");
	assert_int_equal(rp_rtt_passive(f, on_seen, &all, &st), 0);
	assert_int_equal(st.bad, 1);
	fclose(f);
}

/* Handshakes of two clients that have a port in common are two. */
static void passive_clients(void **state)
{
	static const char file[] = REC(R1, "\"10.0.0.7\"", "65535", "true", T0, "9.5",
				       "\"handshake\"",
				       "100") "\n" REC(R1, "\"10.0.0.8\"", "65535", "true", T0,
						       "9.25", "\"handshake\"", "100") "\n";
	struct seen all = { .n = 0 };
	struct rp_rtt_passive st;
	FILE *f = fmemopen((void *)(uintptr_t)file, sizeof(file) - 1, "r");

	(void)state;
	assert_int_equal(rp_rtt_passive(f, on_seen, &all, &st), 0);
	fclose(f);
	assert_int_equal(st.handshakes, 2);
	assert_int_equal(st.bad, 0);
	assert_int_equal(all.s[0].rtt, 9500000);
	assert_int_equal(all.s[1].rtt, 9250000);
}

/* A line beyond any limit is passed over, and the one behind it read. */
static void passive_long(void **state)
{
	static const char rec[] =
		REC(R1, "\"::1\"", "1", "false", T0, "0.031", "\"handshake\"", "0") "\n";
	size_t big = 20 << 20;
	struct seen all = { .n = 0 };
	struct rp_rtt_passive st;
	char *text = malloc(big + sizeof(rec));
	FILE *f;

	(void)state;
	memset(text, ' ', big);
	text[big - 1] = '\n';
	memcpy(text + big, rec, sizeof(rec));
	f = fmemopen(text, big + sizeof(rec) - 1, "r");
	assert_int_equal(rp_rtt_passive(f, on_seen, &all, &st), 0);
	assert_int_equal(all.n, 1);
	assert_int_equal(st.bad, 1);
	fclose(f);
	free(text);
}

/* ---- the prober ---- */

static int listener(int backlog, uint16_t *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, backlog), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	*port = ntohs(a.sin_port);
	return fd;
}

static void *closing_server(void *arg)
{
	int fd = *(int *)arg;

	for (;;) {
		int c = accept(fd, NULL, NULL);
		char b[16];

		if (c < 0)
			return NULL;
		if (read(c, b, sizeof(b)) != 0)
			abort(); /* a prober says nothing, and ends with a FIN */
		close(c);
	}
}

struct outcome {
	unsigned ok, kernel, failed[RP_RTT_WHYS];
};

static void run_prober(struct rp_rtt_options *o, struct outcome *out)
{
	int wake = eventfd(0, EFD_CLOEXEC);
	struct rp_prober *p;
	struct rp_rtt_result r;
	uint64_t n;

	memset(out, 0, RP_RTT_MAX_TARGETS * sizeof(*out));
	assert_int_equal(rp_prober_start(o, wake, &p), 0);
	while (!rp_prober_done(p)) {
		assert_int_equal(read(wake, &n, sizeof(n)), sizeof(n));
		while (rp_prober_next(p, &r)) {
			struct outcome *x = &out[r.t - o->targets];

			x->failed[rp_rtt_why(r.err, r.resolve)]++;
			if (r.err)
				continue;
			x->ok++;
			assert_true(r.connect > 0);
			x->kernel += r.kernel > 0;
			/* a part of the connect time; the kernel truncates to microseconds */
			assert_true(r.kernel <= r.connect);
		}
	}
	rp_prober_free(p);
	close(wake);
}

static void set_target(struct rp_rtt_options *o, uint16_t port)
{
	char name[32], err[400];
	int sys;

	snprintf(name, sizeof(name), "127.0.0.1:%u", port);
	assert_true(rp_rtt_target_parse(name, AF_UNSPEC, &o->targets[o->n], err, sizeof(err)));
	assert_int_equal(rp_rtt_resolve(&o->targets[o->n], AF_UNSPEC, &sys), 0);
	o->n++;
}

static void prober(void **state)
{
	struct rp_rtt_options o = { .interval = 10000000, .timeout = 200000000, .count = 20 };
	struct outcome out[RP_RTT_MAX_TARGETS];
	uint16_t good, shut, deaf, full;
	int fd, gone, quiet, dead, fill[4];
	pthread_t th;

	(void)state;
	o.targets = calloc(RP_RTT_MAX_TARGETS, sizeof(*o.targets));
	fd = listener(64, &good);
	gone = listener(1, &shut);
	close(gone);
	quiet = listener(64, &deaf); /* handshakes, but nobody accepts */
	dead = listener(0, &full);
	for (size_t i = 0; i < COUNT_OF(fill); i++) {
		struct sockaddr_in a = { .sin_family = AF_INET,
					 .sin_port = htons(full),
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

		fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		connect(fill[i], (struct sockaddr *)&a, sizeof(a));
	}
	pthread_create(&th, NULL, closing_server, &fd);
	set_target(&o, good);
	set_target(&o, shut);
	set_target(&o, full);
	run_prober(&o, out);
	assert_int_equal(out[0].ok, 20);
	assert_int_equal(out[0].kernel, 20);
	assert_int_equal(out[1].failed[RP_RTT_REFUSED], 20);
	/* overlapping: 200 ms of timeout, 10 ms apart, never more than the places there are */
	assert_int_equal(out[2].failed[RP_RTT_TIMEOUT], 20);

	/* what is not closed takes places, and no more of them than promised */
	o.n = 0;
	o.count = 0;
	o.duration = 500000000;
	memset(o.targets, 0, sizeof(*o.targets));
	set_target(&o, deaf);
	run_prober(&o, out);
	assert_int_equal(out[0].ok, RP_RTT_MAX_OPEN);
	assert_true(o.targets[0].missed_open > 0);

	shutdown(fd, SHUT_RDWR);
	pthread_join(th, NULL);
	close(fd);
	close(quiet);
	close(dead);
	for (size_t i = 0; i < COUNT_OF(fill); i++)
		close(fill[i]);
	free(o.targets);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(targets),	cmocka_unit_test(resolving),
		cmocka_unit_test(series),	cmocka_unit_test(lines),
		cmocka_unit_test(reasons),	cmocka_unit_test(passive),
		cmocka_unit_test(passive_long), cmocka_unit_test(passive_clients),
		cmocka_unit_test(prober),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
