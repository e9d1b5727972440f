/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A line of a request log; the four bytes of choices are not used. What is let through
 * must be JSON to another parser, too, and every figure that is made of it be one. */
#include "fuzz.h"

#include <errno.h>
#include <jansson.h>
#include <unistd.h>

#include "metrics/sweep.h"
#include "metrics/table.h"
#include "report/compact.h"
#include "report/reader.h"
#include "report/report.h"

static void inside(const char *p, size_t n, const struct rp_slice *s)
{
	CHECK(!s->p || (s->p >= p && s->p + s->n <= p + n && s->n));
}

/* What report makes of it: no overflow (UBSan), no figure that is none. */
static void figures(const struct rp_facts *f)
{
	static struct rp_aiperf *aiperf;
	static unsigned records;
	static struct rp_slos slos;
	static struct rp_metrics_sum sum;
	struct rp_sweep_stats series[RP_SWEEP_COUNT];
	struct rp_sweep *w = rp_sweep_new(1 << 20);
	char err[256];
	double v;

	if (!(records++ % 1024)) { /* a file without a name, that is never long */
		char dir[] = "/tmp/fuzz_report.XXXXXX", file[64];

		rp_aiperf_close(aiperf);
		CHECK(!rp_slo_parse("request_latency:10 inter_token_latency:5", &slos, err,
				    sizeof(err)));
		CHECK(mkdtemp(dir) && !rp_aiperf_open(dir, &slos, &aiperf, err, sizeof(err)));
		snprintf(file, sizeof(file), "%s/profile_export.jsonl.tmp", dir);
		CHECK(!unlink(file) && !rmdir(dir));
		rp_metrics_init(&sum);
	}
	for (int m = 0; m < RP_METRIC_COUNT; m++)
		if (rp_metric_of(f, (enum rp_metric)m, &v))
			CHECK(v > -1e30 && v < 1e30);
	rp_metrics_add(&sum, f, &slos);
	CHECK(!rp_aiperf_record(aiperf, f));
	CHECK(w && rp_sweep_add(w, f) != -ENOMEM && rp_sweep_stats(w, series) != -ENOMEM);
	rp_sweep_free(w);
}

static void check(const char *p, size_t n)
{
	static struct rp_reader_room room;
	struct rp_buf b = { 0 };
	struct rp_facts f;
	struct rp_line l;
	char host[64];
	json_error_t e;
	json_t *v;

	rp_line_summary(p, n, host, sizeof(host));
	if (rp_line_scan(p, n, &l) == -EBADMSG)
		return;
	/* jansson refuses numbers that no double holds, and nothing else */
	v = json_loadb(p, n, JSON_DECODE_INT_AS_REAL, &e);
	CHECK(v || json_error_code(&e) == json_error_numeric_overflow);
	json_decref(v);
	if (rp_line_scan(p, n, &l))
		return;
	for (unsigned i = 0; i < RP_LEAF_COUNT; i++)
		inside(p, n, &l.v[i]);
	inside(p, n, &l.missing);
	for (int i = 0; i < RP_FIELD_COUNT; i++)
		CHECK(l.why[i] < RP_WHY_COUNT);
	if (!rp_facts_of_line(&l, &f, &room))
		figures(&f);
	CHECK(rp_line_key(&l, 1) == rp_line_key(&l, 1));
	/* a flat row is one line of JSON */
	rp_flat_row(&b, &l, 1);
	CHECK(!b.oom && b.p[b.n - 1] == '\n' && !memchr(b.p, '\n', b.n - 1));
	v = json_loadb(b.p, b.n, JSON_DECODE_INT_AS_REAL, &e);
	CHECK(v || json_error_code(&e) == json_error_numeric_overflow);
	json_decref(v);
	free(b.p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *p;
	size_t n;

	if (size < 4)
		return 0;
	n = size - 4;
	/* a line has no newline inside, and a block of its own size shows its end */
	if (memchr(data + 4, '\n', n))
		return 0;
	p = malloc(n + 1);
	memcpy(p, data + 4, n);
	p[n] = '\n';
	check(p, n);
	free(p);
	return 0;
}
