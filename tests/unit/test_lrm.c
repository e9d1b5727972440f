// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* llm-runtime-metrics' series with a clock of our own, and what a timeline tells them.
 * That the package says the same is t_lrm.py's. */
#include "world.h"

#include <glob.h>
#include <math.h>

#include "lrm/lrm.h"
#include "lrm/window.h"
#include "sink/lrm.h"
#include "source/recording.h"

#define S 1000000000LL

/* ---- the text ---- */

static char *render(struct rp_lrm *l, int64_t now)
{
	struct rp_buf b = { 0 };
	struct rp_expo e = { .b = &b };

	rp_lrm_render(l, now, &e);
	assert_false(b.oom);
	rp_buf_put(&b, "", 1);
	return b.p;
}

/* The value of a sample, "" when there is none. */
static const char *get(const char *text, const char *sample)
{
	static char out[4][64];
	static int turn;
	size_t n = strlen(sample);
	char *v = out[turn++ % 4];

	*v = '\0';
	for (const char *p = text; p; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (!strncmp(p, sample, n) && p[n] == ' ') {
			snprintf(v, 64, "%.*s", (int)strcspn(p + n + 1, "\n"), p + n + 1);
			break;
		}
	}
	return v;
}

#define is(text, sample, want) assert_string_equal(get(text, sample), want)

static struct rp_lrm *open_lrm(double window_s, double itl_rate)
{
	struct rp_lrm_opts o;
	struct rp_lrm *l;

	rp_lrm_defaults(&o);
	o.prefix = "p";
	o.window_s = window_s;
	o.itl_rate = itl_rate;
	l = rp_lrm_new(&o, 0);
	assert_non_null(l);
	return l;
}

static struct rp_lrm_request *start(struct rp_lrm *l, int64_t now, int64_t input)
{
	const struct rp_lrm_start s = { .begun = now, .input = input, .rank = RP_NONE };
	struct rp_lrm_request *q = rp_lrm_start(l, now, &s);

	assert_non_null(q);
	return q;
}

static void numbers(void **st)
{
	static const struct {
		double v;
		const char *text;
	} t[] = {
		{ 0, "0" },
		{ -0.0, "-0" },
		{ 1, "1" },
		{ 10, "10" },
		{ 120, "120" },
		{ -3.5, "-3.5" },
		{ 20.876672999999997, "20.876672999999997" },
		{ 0.016666666666666666, "0.016666666666666666" },
		{ 0.00672, "0.00672" },
		{ 1e-7, "0.0000001" },
		{ 1e21, "1000000000000000000000" },
		{ 1.5e16, "15000000000000000" },
		{ 123456789012345680.0, "123456789012345680" },
		{ 5e-324, NULL },
		{ 1.7976931348623157e308, NULL },
		{ NAN, "NaN" },
		{ INFINITY, "inf" },
		{ -INFINITY, "-inf" },
	};
	char out[RP_LRM_NUMBER];

	(void)st;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		size_t n = rp_lrm_number(out, t[i].v);

		assert_int_equal(n, strlen(out));
		assert_true(n < RP_LRM_NUMBER);
		assert_null(strpbrk(out, "eE"));
		if (t[i].text)
			assert_string_equal(out, t[i].text);
		else
			assert_true(strtod(out, NULL) == t[i].v);
	}
}

static void ranks_of_quantiles(void **st)
{
	(void)st;
	assert_int_equal(rp_rank_index(1, 0.99), 0);
	assert_int_equal(rp_rank_index(2, 0.5), 1); /* 0.5: up */
	assert_int_equal(rp_rank_index(2, 0.49), 0);
	assert_int_equal(rp_rank_index(4, 0.5), 2);  /* 1.5 */
	assert_int_equal(rp_rank_index(10, 0.5), 5); /* 4.5: the sixth of 1..10 */
	assert_int_equal(rp_rank_index(10, 0.9), 8);
	assert_int_equal(rp_rank_index(10, 0), 0);
	assert_int_equal(rp_rank_index(10, 1), 9);
	assert_int_equal(rp_rank_index(1000001, 0.999), 999000);
}

/* A window of three samples: the oldest makes room, and that is counted. */
static void windows(void **st)
{
	struct rp_window w = { .max = 3 };

	(void)st;
	for (int i = 0; i < 5; i++) {
		const struct rp_sample s = { .t = i, .v = i };

		assert_true(rp_window_add(&w, &s));
	}
	assert_int_equal(w.n, 3);
	assert_int_equal(w.cut, 2);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(rp_window_at(&w, i)->t, 2 + i);
	rp_window_expire(&w, 4);
	assert_int_equal(w.n, 1);
	assert_int_equal(rp_window_at(&w, 0)->t, 4);
	rp_window_expire(&w, 5);
	assert_int_equal(w.n, 0);
	assert_int_equal(w.cut, 2);
	rp_window_free(&w);

	/* growing keeps the order, wherever the first one lies */
	w.max = 1000;
	for (int i = 0; i < 700; i++) {
		const struct rp_sample s = { .t = i, .v = i };

		assert_true(rp_window_add(&w, &s));
		if (i % 3 == 0)
			rp_window_expire(&w, i / 3);
	}
	assert_int_equal(w.n, 700 - 233);
	assert_int_equal(w.cut, 0);
	for (uint32_t i = 0; i < w.n; i++)
		assert_int_equal(rp_window_at(&w, i)->t, 233 + i);
	rp_window_free(&w);
}

static void empty(void **st)
{
	struct rp_lrm *l = open_lrm(60, 1);
	char *text = render(l, 0);

	(void)st;
	is(text, "total_requests", "0");
	is(text, "p_request_rate_per_second", "0");
	is(text, "p_request_rate_per_second{feature=\"all\"}", "");
	is(text, "mean_inflight_requests", "0");
	is(text, "p_input_length_tokens_average", "");
	is(text, "kv_cache_hit_rate_lifetime", "");
	assert_null(strstr(text, "quantile"));
	assert_null(strstr(text, "total_request_log_rows"));
	free(text);
	rp_lrm_free(l);
}

/* Distributions, exact to the nanosecond at the window's end. */
static void distributions(void **st)
{
	struct rp_lrm *l = open_lrm(10, 1);
	struct rp_lrm_request *q;
	char *text;

	(void)st;
	for (int i = 1; i <= 10; i++) {
		q = start(l, i * S / 10, i);
		rp_lrm_tokens(l, q, i * S / 10 + 2000000, i * S / 10 + 2000000, 1, 0);
		rp_lrm_end(l, q, i * S / 10 + 3000000, true);
	}
	text = render(l, 2 * S);
	is(text, "p_input_length_tokens_average", "5.5");
	is(text, "p_input_length_tokens_quantile{quantile=\"0.5\"}", "6");
	is(text, "p_input_length_tokens_quantile{quantile=\"0.9\"}", "9");
	is(text, "p_input_length_tokens_quantile{quantile=\"0.99\"}", "10");
	is(text, "p_ttft_ms_average{feature=\"all\"}", "2");
	is(text, "p_ttft_ms_average{feature=\"none\"}", "2");
	is(text, "p_ttft_ms_average{feature=\"tools\"}", "");
	is(text, "p_ttft_ms_per_input_token_quantile{quantile=\"0.99\"}", "2");
	is(text, "p_output_length_tokens_average", "1");
	is(text, "total_net_new_input_tokens", "55");
	free(text);
	/* the first, of 0.1 s, is there at 10.1 s and not a nanosecond later */
	text = render(l, 101 * S / 10);
	is(text, "p_input_length_tokens_average", "5.5");
	free(text);
	text = render(l, 101 * S / 10 + 1);
	is(text, "p_input_length_tokens_average", "6");
	free(text);
	text = render(l, 12 * S);
	is(text, "p_input_length_tokens_average", "");
	is(text, "p_request_rate_per_second", "0");
	is(text, "p_request_rate_per_second{feature=\"image\"}", "0");
	is(text, "total_requests", "10");
	free(text);
	rp_lrm_free(l);
}

/* Rates are of the whole window from the start on; their quantiles go by seconds. */
static void rates(void **st)
{
	struct rp_lrm_opts o;
	struct rp_lrm *l;
	char *text;

	(void)st;
	rp_lrm_defaults(&o);
	o.prefix = "p";
	o.window_s = 2.5;
	o.n_quantiles = 3;
	o.quantiles[0] = 0;
	o.quantiles[1] = 0.5;
	o.quantiles[2] = 1;
	l = rp_lrm_new(&o, 0);
	assert_non_null(l);
	for (int i = 0; i < 3; i++)
		start(l, 10 * S + i * 200000000LL, 0);
	text = render(l, 10 * S + 600000000LL);
	is(text, "p_request_rate_per_second", "1.2"); /* 3 in 2.5 s */
	/* seconds from 8.1, 9.1; half a one from 10.1: 0, 1, 2 in a half */
	is(text, "p_request_quantile{quantile=\"0.0\"}", "0");
	is(text, "p_request_quantile{quantile=\"0.5\"}", "1");
	is(text, "p_request_quantile{quantile=\"1.0\"}", "4");
	is(text, "p_request_quantile{feature=\"all\",quantile=\"1.0\"}", "4");
	/* nothing is no amount */
	is(text, "p_input_tokens_quantile{quantile=\"1.0\"}", "");
	assert_null(strstr(text, "successful_request_quantile"));
	free(text);
	rp_lrm_free(l);
}

static void gauges(void **st)
{
	struct rp_lrm *l = open_lrm(60, 1);
	struct rp_lrm_request *a = start(l, 1 * S, 100), *b = start(l, 2 * S, 50);
	char *text;

	(void)st;
	rp_lrm_tokens(l, a, 3 * S, 3 * S, 2, RP_NONE); /* a: first to fifth from 3 s */
	rp_lrm_tokens(l, b, 3 * S, 3 * S, 7, RP_NONE); /* b: never */
	text = render(l, 4 * S);
	is(text, "current_inflight_requests", "2");
	is(text, "current_inflight_input_tokens", "150");
	is(text, "current_inflight_output_tokens", "9");
	is(text, "current_inflight_first_to_fifth_token_requests", "1");
	is(text, "current_inflight_first_to_fifth_token_input_tokens", "100");
	is(text, "mean_inflight_requests", "1.25"); /* 3 s + 2 s in 4 */
	is(text, "mean_inflight_input_tokens", "100");
	is(text, "mean_inflight_first_to_fifth_token_requests", "0.25");
	free(text);
	rp_lrm_tokens(l, a, 5 * S, 5 * S, 3, RP_NONE);
	rp_lrm_leave(l, a, 6 * S);
	rp_lrm_leave(l, a, 7 * S);
	rp_lrm_end(l, a, 8 * S, true);
	rp_lrm_end(l, b, 8 * S, false);
	text = render(l, 10 * S);
	is(text, "current_inflight_requests", "0");
	is(text, "current_inflight_input_tokens", "0");
	is(text, "current_inflight_output_tokens", "0");
	is(text, "current_inflight_first_to_fifth_token_requests", "0");
	is(text, "mean_inflight_requests", "1.1");			/* 5 s and 6 s in 10 */
	is(text, "mean_inflight_first_to_fifth_token_requests", "0.2"); /* 2 s */
	is(text, "p_first_to_fifth_token_itl_ms_average{feature=\"all\"}", "1000"); /* 2 s, 0 */
	is(text, "p_time_to_fifth_token_ms_quantile{feature=\"all\",quantile=\"0.99\"}", "4000");
	is(text, "total_pre_20_token_cancellations", "1");
	is(text, "p_pre_20_token_cancellation_rate_per_second", "0.016666666666666666");
	free(text);
	rp_lrm_free(l);
}

/* What is told late counts once, and as if it had been known. */
static void late(void **st)
{
	const struct rp_lrm_start s = {
		.begun = 1 * S, .input = RP_NONE, .rank = RP_NONE, .later = true
	};
	struct rp_lrm *l = open_lrm(60, 1);
	struct rp_lrm_request *q = rp_lrm_start(l, 1 * S, &s), *other;
	char *text;

	(void)st;
	assert_non_null(q);
	rp_lrm_tokens(l, q, 2 * S, 2 * S, 1, RP_NONE);
	text = render(l, 2 * S);
	is(text, "total_input_tokens", "0");
	is(text, "p_input_length_tokens_average", "");
	is(text, "p_ttft_ms_average{feature=\"all\"}", "1000");
	is(text, "p_ttft_ms_per_input_token_average", "");
	free(text);
	rp_lrm_known(l, q, 3 * S, 10, RP_NONE, 3);
	rp_lrm_known(l, q, 4 * S, 11, 4, 5); /* what is known stands */
	rp_lrm_known(l, q, 4 * S, 10, 5, 3);
	text = render(l, 5 * S);
	is(text, "current_inflight_input_tokens", "10");
	is(text, "current_inflight_first_to_fifth_token_input_tokens", "10");
	is(text, "total_input_tokens", "10");
	is(text, "total_kv_cache_hits_tokens", "4");
	is(text, "total_kv_cache_lookup_tokens", "10");
	is(text, "total_net_new_input_tokens", "6");
	is(text, "kv_cache_hit_rate_lifetime", "0.4");
	is(text, "p_kv_cache_hit_rate_ratio{dp_rank=\"3\"}", "0.4");
	is(text, "p_ttft_ms_per_input_token_average", "100");
	is(text, "p_request_rate_per_second", "0.016666666666666666");
	is(text, "p_request_rate_per_second{dp_rank=\"3\"}", "0.016666666666666666");
	is(text, "p_request_rate_per_second{dp_rank=\"5\"}", "");
	is(text, "p_request_rate_per_second{feature=\"none\"}", "0.016666666666666666");
	free(text);
	/* tokens at unknown times: no gap comes of them, and none over them */
	rp_lrm_total(l, q, 6 * S, 25);
	rp_lrm_tokens(l, q, 7 * S, 7 * S, 1, RP_NONE);
	rp_lrm_end(l, q, 7 * S, false);
	text = render(l, 8 * S);
	is(text, "total_output_tokens", "26");
	is(text, "total_mid_stream_cancellations", "1");
	is(text, "p_output_length_tokens_average", "26");
	is(text, "total_itl_samples_recorded", "0");
	is(text, "p_time_to_fifth_token_ms_average{feature=\"all\"}", "");
	is(text, "current_inflight_output_tokens", "0");
	free(text);

	/* the same request by two names: one is undone, and no counter falls */
	other = start(l, 9 * S, 7);
	rp_lrm_tokens(l, other, 9 * S, 9 * S, 3, RP_NONE);
	q = start(l, 9 * S, 7);
	rp_lrm_drop(l, other, 9 * S);
	text = render(l, 9 * S);
	is(text, "total_requests", "3");
	is(text, "current_inflight_requests", "1");
	free(text);
	rp_lrm_tokens(l, q, 9 * S, 9 * S, 5, RP_NONE);
	rp_lrm_end(l, q, 9 * S, true);
	start(l, 9 * S, 8); /* in its place */
	text = render(l, 9 * S);
	is(text, "total_requests", "3");
	is(text, "total_input_tokens", "25"); /* 10 + 7 + 8 */
	is(text, "total_output_tokens", "31");
	free(text);
	rp_lrm_free(l);
}

/* A share of the gaps: the same ones each time, and about as many as it says. */
static void sampling(void **st)
{
	char first[64] = "";

	(void)st;
	for (int again = 0; again < 2; again++) {
		struct rp_lrm *l = open_lrm(60, 0.05);
		char *text;

		for (uint64_t i = 0; i < 200; i++) {
			const struct rp_lrm_start s = {
				.begun = 0, .input = 1, .rank = RP_NONE, .seed = i
			};
			struct rp_lrm_request *q = rp_lrm_start(l, 0, &s);

			assert_non_null(q);
			for (int k = 0; k <= 100; k++)
				rp_lrm_tokens(l, q, k, k, 1, RP_NONE);
			rp_lrm_end(l, q, 100, true);
		}
		text = render(l, 1 * S);
		/* 20000 gaps: 1000, give or take five standard deviations of 31 */
		assert_in_range(atoi(get(text, "total_itl_samples_recorded")), 846, 1154);
		if (again)
			assert_string_equal(get(text, "total_itl_samples_recorded"), first);
		strcpy(first, get(text, "total_itl_samples_recorded"));
		free(text);
		rp_lrm_free(l);
	}
}

/* However much comes, memory and counts are bounded, and what is cut is told. */
static void bounded(void **st)
{
	struct rp_lrm_opts o;
	struct rp_lrm *l;
	char *text;

	(void)st;
	rp_lrm_defaults(&o);
	o.prefix = "p";
	o.max_samples = 100;
	l = rp_lrm_new(&o, 0);
	assert_non_null(l);
	for (int i = 0; i < 1000; i++) {
		const struct rp_lrm_start s = { .begun = i, .input = i, .rank = i };

		rp_lrm_end(l, rp_lrm_start(l, i, &s), i, true);
	}
	text = render(l, 1 * S);
	is(text, "p_input_length_tokens_average", "949.5"); /* the newest hundred */
	is(text, "total_requests", "1000");
	is(text, "p_request_rate_per_second", "16.666666666666668"); /* rates lose nothing */
	is(text, "p_successful_request_rate_per_second", "16.666666666666668");
	is(text, "p_request_rate_per_second{dp_rank=\"31\"}", "0.016666666666666666");
	is(text, "p_request_rate_per_second{dp_rank=\"32\"}", "");
	assert_int_equal(rp_lrm_cut(l), 2 * 900); /* lengths of input and output */
	free(text);
	rp_lrm_free(l);
}

/* What it may hold is known beforehand, and it is no more than that. */
static void ceiling(void **st)
{
	struct rp_lrm_opts o;
	size_t few;

	(void)st;
	rp_lrm_defaults(&o);
	assert_true(rp_lrm_ceiling(&o, 16384) < 16u << 20);
	o.max_samples = 64;
	few = rp_lrm_ceiling(&o, 0);
	o.max_samples = 65; /* a ring's size is a power of two */
	assert_int_equal(rp_lrm_ceiling(&o, 0) - few, 9 * 64 * sizeof(struct rp_sample));
}

/* ---- from a timeline ---- */

#define POST(body, len) \
	"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " len "\r\n\r\n" body
#define HEAD \
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
#define EVENT(more)                                                                                \
	"data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"SECRET\"}}]" more \
	"}\n\n"
#define LAST                                                                                           \
	"data: {\"id\":\"c1\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":4," \
	"\"prompt_tokens_details\":{\"cached_tokens\":6}}}\n\ndata: [DONE]\n\n"

static char *sink_text(struct rp_lrm_sink *s, int64_t now)
{
	struct rp_buf b = { 0 };
	struct rp_expo e = { .b = &b };

	rp_lrm_sink_render(s, now, &e);
	assert_false(b.oom);
	rp_buf_put(&b, "", 1);
	return b.p;
}

static struct rp_lrm_sink *sink_of(struct world *w)
{
	struct rp_lrm_opts o;
	struct rp_lrm_sink *s;

	rp_lrm_defaults(&o);
	o.itl_rate = 1;
	o.prefix = "p";
	s = rp_lrm_sink_new(&o, w->t, 0);
	assert_non_null(s);
	return s;
}

/* From sockets alone: chunks are tokens, until usage says otherwise. */
static void from_sockets(void **st)
{
	struct world *w = world_new();
	struct rp_lrm_sink *s = sink_of(w);
	char *text;

	(void)st;
	session(w, false);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS,
	   POST("{\"stream\":true,\"tools\":[{}],\"service_tier\":\"flex\",\"response_format\":{\"type\":\"json_object\"}}",
		"91"));
	text = sink_text(s, 1050 * MS);
	is(text, "current_inflight_requests", "1");
	is(text, "total_requests", "1");
	is(text, "current_inflight_input_tokens", "0");
	is(text, "p_request_rate_per_second{feature=\"tools\"}", "0.016666666666666666");
	is(text, "p_request_rate_per_second{feature=\"xgrammar\"}", "0.016666666666666666");
	is(text, "p_request_rate_per_second{feature=\"none\"}", "0");
	is(text, "p_request_rate_per_second{service_tier=\"flex\"}", "0.016666666666666666");
	free(text);
	tx(w, 1, 1002 * MS, HEAD);
	txc(w, 1, 1100 * MS, EVENT(""));
	text = sink_text(s, 1150 * MS);
	is(text, "p_ttft_ms_average{feature=\"all\"}", "100");
	is(text, "p_ttft_ms_average{feature=\"all\",service_tier=\"flex\"}", "100");
	is(text, "current_inflight_first_to_fifth_token_requests", "1");
	free(text);
	txc(w, 1, 1120 * MS, EVENT(""));
	txc(w, 1, 1150 * MS, EVENT(""));
	txc(w, 1, 1151 * MS, LAST);
	tx(w, 1, 1152 * MS, "0\r\n\r\n");
	text = sink_text(s, 2000 * MS);
	is(text, "current_inflight_requests", "0");
	is(text, "total_successful_requests", "1");
	is(text, "total_input_tokens", "10");
	is(text, "total_kv_cache_hits_tokens", "6");
	is(text, "p_ttft_ms_per_net_new_input_token_average", "25");
	is(text, "p_itl_ms_average{feature=\"all\"}", "25");
	is(text, "total_itl_samples_recorded", "2");
	is(text, "total_output_tokens", "4"); /* three chunks, by usage four tokens */
	is(text, "p_output_length_tokens_average", "4");
	is(text, "reqprobe_lrm_limited_total{what=\"samples\"}", "0");
	free(text);

	/* a client that goes away before the first token; an embedding is none of these */
	rx(w, 1, 3000 * MS, POST("{\"stream\":true}", "15"));
	state(w, 1, 3100 * MS, RP_PEER_FIN);
	state(w, 1, 3101 * MS, RP_LOCAL_FIN);
	close_conn(w, 1, 3102 * MS);
	open_conn(w, 2, 3200 * MS);
	rx(w, 2, 3201 * MS,
	   "POST /v1/embeddings HTTP/1.1\r\nContent-Length: 13\r\n\r\n{\"input\":\"a\"}");
	rx(w, 2, 3202 * MS,
	   "POST /v1/images/generations HTTP/1.1\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}");
	text = sink_text(s, 4000 * MS);
	is(text, "total_requests", "2");
	is(text, "total_pre_first_token_cancellations", "1");
	is(text, "current_inflight_requests", "0");
	free(text);
	world_end(w);
	rp_lrm_sink_free(s);
}

static uint32_t hook_seq[8];
static void hook(struct world *w, int role, uint64_t ts, uint32_t tid, uint64_t a, uint64_t b)
{
	struct rp_ev_hook e = { .h = hdr(RP_EV_HOOK, sizeof(e), ts, 100, tid),
				.hook = (uint16_t)role,
				.n = role == 1 ? 2 : 1,
				.ok = 3,
				.seq = hook_seq[role]++,
				.val = { a, b } };

	feed(w, &e);
}

/* From an engine's functions: its tokens have their own instants, and count once. */
static void from_hooks(void **st)
{
	struct world *w = world_new();
	struct rp_lrm_sink *s = sink_of(w);
	char *text;

	(void)st;
	session(w, true);
	open_conn(w, 1, 1 * MS);
	rx(w, 1, 1000 * MS, POST("{\"stream\":true}", "15"));
	hook(w, 0, 1001 * MS, 1001, 7, 0);
	hook(w, 1, 1010 * MS, 500, 0, 7);
	hook(w, 2, 1050 * MS, 500, 0, 0);
	tx(w, 1, 1051 * MS, HEAD);
	txc(w, 1, 1052 * MS, EVENT(""));
	hook(w, 2, 1080 * MS, 500, 0, 0);
	txc(w, 1, 1082 * MS, EVENT(""));
	text = sink_text(s, 1090 * MS);
	is(text, "total_output_tokens", "2");
	is(text, "p_ttft_ms_average{feature=\"all\"}", "50");
	is(text, "p_itl_ms_average{feature=\"none\"}", "30");
	is(text, "current_inflight_output_tokens", "2");
	free(text);
	/* the client goes away; the engine ends it a step later */
	state(w, 1, 1100 * MS, RP_PEER_RST);
	close_conn(w, 1, 1101 * MS);
	text = sink_text(s, 1105 * MS);
	is(text, "current_inflight_requests", "0");
	is(text, "total_pre_20_token_cancellations", "0");
	free(text);
	hook(w, 4, 1110 * MS, 500, 0, 0);
	text = sink_text(s, 1200 * MS);
	is(text, "total_pre_20_token_cancellations", "1");
	is(text, "p_output_length_tokens_average", "2");
	free(text);
	world_end(w);
	rp_lrm_sink_free(s);
}

/* What real engines did: the counts are those of the records. */
struct replayed {
	struct rp_timeline *tl;
	int64_t now;
	uint64_t requests, complete, prompt, completion;
};

static int replay_event(void *ctx, const struct rp_event_hdr *ev)
{
	struct replayed *p = ctx;

	if ((int64_t)ev->ts > p->now)
		p->now = (int64_t)ev->ts;
	rp_timeline_event(p->tl, ev, NULL);
	return 0;
}

static void replay_record(void *ctx, const struct rp_record *r)
{
	const struct rp_value *in = &r->v[RP_FIELD_TOK_PROMPT];
	const struct rp_value *out = &r->v[RP_FIELD_TOK_COMPLETION];
	struct replayed *p = ctx;

	if (!r->key || !rp_generative(r->operation) || r->operation == RP_OP_GENERATE)
		return;
	p->requests++;
	p->complete += r->end == RP_END_COMPLETE;
	p->prompt += in->known ? (uint64_t)in->i : 0;
	/* where nobody tells them, events are what there is */
	p->completion += out->known ? (uint64_t)out->i : (uint64_t)r->chunks;
}

static uint64_t number(const char *text, const char *sample)
{
	return strtoull(get(text, sample), NULL, 10);
}

static void recordings(void **st)
{
	glob_t g;

	(void)st;
	assert_int_equal(glob("tests/replay/*.rec", 0, NULL, &g), 0);
	for (size_t i = 0; i < g.gl_pathc; i++) {
		struct rp_timeline_opts to;
		struct rp_lrm_opts o;
		struct replayed p = { 0 };
		const struct rp_observer obs = { .ctx = &p, .record = replay_record };
		struct rp_lrm_sink *s;
		char err[512], *text;

		rp_timeline_defaults(&to);
		p.tl = rp_timeline_new(&to);
		assert_non_null(p.tl);
		rp_lrm_defaults(&o);
		o.itl_rate = 1;
		o.prefix = "p";
		o.window_s = 3600;
		s = rp_lrm_sink_new(&o, p.tl, 0);
		assert_non_null(s);
		assert_int_equal(rp_timeline_observe(p.tl, &obs), 0);
		assert_int_equal(rp_rec_replay(g.gl_pathv[i], replay_event, &p, err, sizeof(err)),
				 0);
		rp_timeline_finish(p.tl);
		text = sink_text(s, p.now);
		assert_true(p.requests > 3);
		assert_int_equal(number(text, "total_requests"), p.requests);
		assert_int_equal(number(text, "total_successful_requests"), p.complete);
		assert_int_equal(number(text, "total_pre_first_token_cancellations") +
					 number(text, "total_pre_20_token_cancellations") +
					 number(text, "total_mid_stream_cancellations"),
				 p.requests - p.complete);
		assert_int_equal(number(text, "total_input_tokens"), p.prompt);
		assert_int_equal(number(text, "total_output_tokens"), p.completion);
		assert_true(number(text, "total_itl_samples_recorded") > 5);
		is(text, "current_inflight_requests", "0");
		is(text, "current_inflight_input_tokens", "0");
		is(text, "current_inflight_output_tokens", "0");
		is(text, "current_inflight_first_to_fifth_token_requests", "0");
		is(text, "current_inflight_first_to_fifth_token_input_tokens", "0");
		assert_true(strtod(get(text, "mean_inflight_requests"), NULL) > 0);
		assert_true(strtod(get(text, "p_ttft_ms_average{feature=\"all\"}"), NULL) > 0);
		free(text);
		rp_timeline_free(p.tl);
		rp_lrm_sink_free(s);
	}
	globfree(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers),	 cmocka_unit_test(ranks_of_quantiles),
		cmocka_unit_test(windows),	 cmocka_unit_test(empty),
		cmocka_unit_test(distributions), cmocka_unit_test(rates),
		cmocka_unit_test(gauges),	 cmocka_unit_test(late),
		cmocka_unit_test(sampling),	 cmocka_unit_test(bounded),
		cmocka_unit_test(ceiling),	 cmocka_unit_test(from_sockets),
		cmocka_unit_test(from_hooks),	 cmocka_unit_test(recordings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
