/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Unit tests of user/metrics/goodput.c: what /metrics has with --goodput. */
#include "world.h"

#include <unistd.h>

#include "metrics/goodput.h"
#include "options.h"
#include "sink/output.h"

#define REQ                                                                \
	"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 17\r\n\r\n" \
	"{\"stream\":  true}"
#define HEAD                                                     \
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" \
	"Transfer-Encoding: chunked\r\n\r\n"
#define TOK "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"

/* A request whose first token comes after ttft, and whose last after latency. */
static void request(struct world *w, uint64_t at, uint64_t ttft, uint64_t latency)
{
	rx(w, 1, at, REQ);
	tx(w, 1, at + ttft / 2, HEAD);
	txc(w, 1, at + ttft, TOK);
	if (latency != ttft)
		txc(w, 1, at + latency, TOK);
	tx(w, 1, at + latency, "0\r\n\r\n");
}

static void says(void *state, const char *want)
{
	struct rp_buf b = { 0 };
	struct rp_expo e = { .b = &b };

	rp_goodput_output.metrics(state, &e);
	rp_buf_put(&b, "", 1);
	if (!strstr(b.p, want))
		fail_msg("%s\nis not in\n%s", want, b.p);
	free(b.p);
}

static void counts(void **st)
{
	struct world *w = world_new();
	struct rp_options o = { .quiet = true };
	struct rp_summary_info info = { 0 };
	void *state = NULL;
	char err[256];

	(void)st;
	/* not asked for: nothing */
	assert_int_equal(rp_goodput_output.open(&o, &info, w->t, &state, err, sizeof(err)), 0);
	assert_null(state);
	assert_int_equal(rp_slo_parse("time_to_first_token:20 request_latency:100.5",
				      &o.goodput.slos, err, sizeof(err)),
			 0);
	assert_int_equal(rp_goodput_output.open(&o, &info, w->t, &state, err, sizeof(err)), 0);
	assert_non_null(state);
	says(state, "\nreqprobe_good_requests_total 0\n");
	session(w, false);
	open_conn(w, 1, 1 * MS);
	request(w, 1000 * MS, 20 * MS, 90 * MS);  /* good */
	request(w, 2000 * MS, 21 * MS, 90 * MS);  /* too late */
	request(w, 3000 * MS, 10 * MS, 101 * MS); /* too long */
	rx(w, 1, 4000 * MS, REQ);		  /* an error has no first token */
	tx(w, 1, 4001 * MS, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
	rx(w, 1, 4500 * MS, REQ); /* one body has none either, and is answered in full */
	tx(w, 1, 4590 * MS,
	   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
	assert_int_equal(w->n, 5);
	rx(w, 1, 5000 * MS, REQ); /* its end is not seen: it is not judged */
	rp_timeline_finish(w->t);
	says(state, "\nreqprobe_slo_requests_total 5\n");
	says(state, "\nreqprobe_good_requests_total 1\n");
	says(state, "\nreqprobe_slo_met_total{slo=\"time_to_first_token\"} 2\n");
	says(state, "\nreqprobe_slo_met_total{slo=\"request_latency\"} 3\n");
	says(state, "\nreqprobe_slo_unknown_requests_total 1\n");
	says(state, "\nreqprobe_slo_unknown_total{slo=\"time_to_first_token\"} 1\n");
	says(state, "\nreqprobe_slo_unknown_total{slo=\"request_latency\"} 0\n");
	says(state, "\nreqprobe_slo_limit{slo=\"time_to_first_token\",unit=\"ms\"} 20\n");
	says(state, "\nreqprobe_slo_limit{slo=\"request_latency\",unit=\"ms\"} 100.5\n");
	assert_int_equal(rp_goodput_output.finish(state), 0);
	world_end(w);
	rp_goodput_output.close(state);
}

/* What finish() says on stderr: of no request there is no share. */
static void at_the_end(void **st)
{
	struct rp_options o = { .quiet = false };
	struct rp_summary_info info = { 0 };
	char err[256], said[2048];
	FILE *f = tmpfile();
	int saved = dup(STDERR_FILENO);

	(void)st;
	assert_non_null(f);
	assert_int_equal(rp_slo_parse("time_to_first_token:20", &o.goodput.slos, err, sizeof(err)),
			 0);
	for (int known = 0; known < 2; known++) {
		struct world *w = world_new();
		void *state = NULL;
		size_t n;

		assert_int_equal(rp_goodput_output.open(&o, &info, w->t, &state, err, sizeof(err)),
				 0);
		session(w, false);
		open_conn(w, 1, 1 * MS);
		rx(w, 1, 1000 * MS, REQ); /* no first token: it can't be judged */
		tx(w, 1, 1090 * MS,
		   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
		if (known)
			request(w, 2000 * MS, 10 * MS, 90 * MS);
		rp_timeline_finish(w->t);
		fflush(stderr);
		dup2(fileno(f), STDERR_FILENO);
		rp_goodput_output.finish(state);
		fflush(stderr);
		dup2(saved, STDERR_FILENO);
		n = (size_t)pread(fileno(f), said, sizeof(said) - 1, 0);
		said[n] = 0;
		assert_int_equal(ftruncate(fileno(f), 0), 0);
		lseek(fileno(f), 0, SEEK_SET);
		assert_non_null(
			strstr(said, known ? "1 of 1 requests good (100.0 %), 1 more can't" :
					     "0 of 0 requests good, 1 more can't"));
		world_end(w);
		rp_goodput_output.close(state);
	}
	close(saved);
	fclose(f);
}

static void names_of_vllm(void **st)
{
	struct rp_slos slos;
	char err[256];

	(void)st;
	assert_int_equal(rp_slo_parse("ttft:300 tpot:50 e2el:9000", &slos, err, sizeof(err)), 0);
	assert_int_equal(slos.n, 3);
	assert_int_equal(slos.slo[0].metric, RP_METRIC_TIME_TO_FIRST_TOKEN);
	assert_int_equal(slos.slo[1].metric, RP_METRIC_INTER_TOKEN_LATENCY);
	assert_int_equal(slos.slo[2].metric, RP_METRIC_REQUEST_LATENCY);
	assert_int_equal(rp_slo_parse("itl:50 tpot:50", &slos, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "given twice"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts),
		cmocka_unit_test(at_the_end),
		cmocka_unit_test(names_of_vllm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
