// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * otlp.c - what a request costs the thread that drains the ring with --otlp and
 * --otlp-traces, and what its spans and a whole export cost the senders. Run by
 * tests/live/bench.py.
 */
#include <arpa/inet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "otlp/metrics.h"
#include "otlp/spans.h"
#include "../unit/request.h"

#define N 200000

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static struct rp_record record(void)
{
	struct rp_record r = a_record();

	strcpy(r.id, "chatcmpl-8c64c5e74d88f57a");
	strcpy(r.request_ids[0], "chatcmpl-8c64c5e74d88f57a-bc8f84dd");
	r.n_request_ids = 1;
	strcpy(r.x_request_id, "c1b28658-0000-4000-8000-000000000000");
	strcpy(r.traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
	r.engine_version = "0.32.0";
	strcpy(r.model, "meta-llama/Llama-3.1-8B-Instruct");
	strcpy(r.request_model, r.model);
	strcpy(r.finish_reason, "stop");
	inet_pton(AF_INET, "10.0.0.7", r.raddr);
	return r;
}

static void resource(void *ctx, struct rp_ow *w)
{
	size_t m = rp_ow_begin(w, 1, "resource");

	(void)ctx;
	rp_ow_end(w, m);
}

int main(void)
{
	static struct rp_stats st;
	struct rp_otlp_config c = {
		.traces.on = true, .parent_based = true, .max_series = 128, .ratio = 1
	};
	struct rp_record r = record();
	struct rp_gap_info g = { .model = r.model, .source = RP_ITL_ENGINE, .n = 1 };
	struct rp_otlp_random rnd = { .left = 0 };
	struct rp_otlp_trace t;
	struct rp_buf b = { 0 };
	struct rp_ow w = { &b, false };
	double t0, put = 0, encode = 0, bytes = 0;
	uint64_t n;

	for (int exponential = 0; exponential < 2; exponential++) {
		struct rp_otlp_metrics *m;
		struct rp_otlp_cursor at = { 0 };
		const char *kind = exponential ? "exponential" : "fixed bounds";

		c.exponential = exponential;
		m = rp_otlp_metrics_new(&c);
		t0 = now();
		for (int i = 0; i < N; i++) {
			r.t_end += i % 1000;
			r.v[RP_FIELD_S_DURATION].i = 100000000 + i * 997 % 50000000;
			rp_otlp_trace(&c, &r, &rnd, &t);
			rp_otlp_metrics_record(m, &r, &t);
		}
		printf("metrics, %s: %.0f ns a request\n", kind, (now() - t0) / N * 1e9);
		t0 = now();
		for (int i = 0; i < N; i++) {
			g.gap_ns = 4000000 + i * 991 % 3000000;
			rp_otlp_metrics_gap(m, &g);
		}
		printf("metrics, %s: %.0f ns a token\n", kind, (now() - t0) / N * 1e9);
		for (int i = 0; i < 120; i++) {
			r.lport = (uint16_t)(1000 + i);
			rp_otlp_metrics_record(m, &r, &t);
		}
		r.lport = 8000;
		t0 = now();
		for (int i = 0; i < 100; i++)
			rp_otlp_metrics_snapshot(m, &st, 1, 2);
		printf("snapshot of %u series: %.0f us\n", rp_otlp_metrics_series(m),
		       (now() - t0) / 100 * 1e6);
		b.n = 0;
		t0 = now();
		n = rp_otlp_metrics_encode(m, &w, &at, 100000, resource, NULL);
		printf("export of %llu points: %.2f ms, %zu bytes\n", (unsigned long long)n,
		       (now() - t0) * 1e3, b.n);
		rp_otlp_metrics_free(m);
	}
	for (int round = 0; round < 40; round++) {
		struct rp_otlp_queue *q = rp_otlp_queue_new(4 << 20);

		t0 = now();
		for (int i = 0; i < 5000; i++) {
			rp_otlp_trace(&c, &r, &rnd, &t);
			if (rp_otlp_queue_put(q, &r, &t))
				abort();
		}
		put += now() - t0;
		bytes += (double)rp_otlp_queue_bytes(q);
		t0 = now();
		while (b.n = 0, rp_otlp_spans_encode(q, &c, &rnd, &w, 512, resource, NULL, &n))
			;
		encode += now() - t0;
		rp_otlp_queue_free(q);
	}
	printf("spans: %.0f ns a request into the queue (%.0f bytes), %.0f ns to encode its 4 spans\n",
	       put / 200000 * 1e9, bytes / 200000, encode / 200000 * 1e9);
	return 0;
}
