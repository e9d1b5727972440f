// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * adjust.c - the network-adjusted figures of AIPerf 0.13.0, from its own files.
 *
 * As metrics/network_adjusted_analyzer.py has it: max(x - mean, 0) for each record
 * of the profiling phases that has the value (failed and cancelled ones have none),
 * in nanoseconds, divided by 1e6 at the end; the mean is over all successful samples
 * of all targets. Gaps between tokens are left alone: the RTT cancels in them.
 */
#include "calibrate/calibrate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

const char *const rp_cal_tags[RP_CAL_TAGS] = { "request_latency", "time_to_first_token",
					       "time_to_first_output_token" };

/*
 * The file has nanoseconds times 1e-6 (a double, written so that it reads back as
 * itself), the summary is computed from the integers before that. Below 2^50 ns the
 * product is off by less than half a nanosecond, so rounding gives the integer back;
 * that it gives the same double again is the proof.
 */
double rp_cal_ns(double ms, bool *exact)
{
	double ns = rint(ms * 1e6);

	*exact = ns * 1e-6 == ms || ns / 1e6 == ms;
	return *exact ? ns : ms * 1e6;
}

bool rp_cal_value(const json_t *rec, const char *tag, double *ns, bool *exact, bool *bad_unit)
{
	const json_t *m = json_object_get(json_object_get(rec, "metrics"), tag), *v;
	const char *unit = json_string_value(json_object_get(m, "unit"));

	v = json_object_get(m, "value");
	if (!json_is_number(v) || !isfinite(json_number_value(v)))
		return false;
	if (unit && strcmp(unit, "ms")) {
		*bad_unit = true;
		return false;
	}
	*ns = rp_cal_ns(json_number_value(v), exact);
	return true;
}

bool rp_cal_is_warmup(const json_t *rec)
{
	const char *phase = json_string_value(
		json_object_get(json_object_get(rec, "metadata"), "benchmark_phase"));

	return phase && strcmp(phase, "profiling");
}

bool rp_cal_is_failed(const json_t *rec)
{
	const json_t *e = json_object_get(rec, "error");

	return (e && !json_is_null(e)) ||
	       json_is_true(json_object_get(json_object_get(rec, "metadata"), "was_cancelled"));
}

int rp_adjust_latency(struct rp_adjust *a, const char *path)
{
	struct rp_cal_rtt *r = &a->rtt;
	struct rp_lines l;
	uint64_t alien = 0;
	double sum = 0;
	json_t *s;
	int err;

	*r = (struct rp_cal_rtt){ 0 };
	err = rp_lines_open(&l, path);
	if (err)
		return err;
	while ((s = rp_lines_next(&l))) {
		const json_t *v = json_object_get(s, "rtt_ns"), *ok = json_object_get(s, "success");
		double ns = json_number_value(v);

		if (!json_is_boolean(ok)) {
			alien++;
		} else if (json_is_true(ok) && json_is_number(v) && ns >= 0) {
			/* integers: their sum is exact in any order up to 2^53 */
			sum += ns;
			if (!r->samples || ns < r->min_ns)
				r->min_ns = ns;
			if (!r->samples || ns > r->max_ns)
				r->max_ns = ns;
			r->samples++;
		} else {
			r->failed++;
		}
		json_decref(s);
	}
	if (!r->samples)
		l.broken = 0; /* a refusal is one line */
	err = rp_lines_close(&l);
	if (err)
		return err;
	if (!r->samples)
		return -ENODATA;
	if (alien)
		rp_say("%s: %llu lines are no latency samples of AIPerf and were left out", path,
		       (unsigned long long)alien);
	r->ns = sum / (double)r->samples;
	r->known = true;
	return 0;
}

static int keep(struct rp_adjust *a, enum rp_cal_tag t, double ns)
{
	if (a->n[t] == a->cap[t]) {
		size_t cap = a->cap[t] ? a->cap[t] * 2 : 1024;
		double *p = realloc(a->v[t], cap * sizeof(*p));

		if (!p)
			return -ENOMEM;
		a->v[t] = p;
		a->cap[t] = cap;
	}
	a->v[t][a->n[t]++] = ns;
	return 0;
}

static double adjusted(const struct rp_adjust *a, double ns)
{
	return ns > a->rtt.ns ? (ns - a->rtt.ns) / 1e6 : 0;
}

static void put_value(struct rp_buf *b, bool *first, const char *prefix, const char *tag, double ms)
{
	if (!*first)
		LIT(b, ",");
	*first = false;
	LIT(b, "\"");
	rp_buf_str(b, prefix);
	rp_buf_str(b, tag);
	LIT(b, "\":{\"value\":");
	rp_cal_put_real(b, ms);
	LIT(b, ",\"unit\":\"ms\"}");
}

/* The record as AIPerf has it, its three latencies and those without the network. */
static int put_line(const struct rp_adjust *a, const json_t *rec, const double *ns, const bool *has,
		    struct rp_buf *b)
{
	char *meta = json_dumps(json_object_get(rec, "metadata"), JSON_COMPACT);
	const json_t *itl = json_object_get(
		json_object_get(json_object_get(rec, "metrics"), "inter_token_latency"), "value");
	bool first = true;

	LIT(b, "{\"metadata\":");
	rp_buf_str(b, meta ? meta : "{}");
	free(meta);
	LIT(b, ",\"metrics\":{");
	for (int t = 0; t < RP_CAL_TAGS; t++) {
		const json_t *m = json_object_get(json_object_get(rec, "metrics"), rp_cal_tags[t]);

		if (!has[t])
			continue;
		put_value(b, &first, "", rp_cal_tags[t],
			  json_number_value(json_object_get(m, "value")));
		put_value(b, &first, "network_adjusted_", rp_cal_tags[t], adjusted(a, ns[t]));
	}
	if (json_is_number(itl))
		put_value(b, &first, "", "inter_token_latency", json_number_value(itl));
	LIT(b, "}");
	first = true;
	for (int t = 0; t < RP_CAL_TAGS; t++) {
		if (!has[t] || ns[t] >= a->rtt.ns)
			continue;
		rp_buf_str(b, first ? ",\"clamped\":[\"" : ",\"");
		rp_buf_str(b, rp_cal_tags[t]);
		LIT(b, "\"");
		first = false;
	}
	rp_buf_str(b, first ? "}\n" : "]}\n");
	return b->oom ? -ENOMEM : 0;
}

int rp_adjust_record(struct rp_adjust *a, const json_t *rec, struct rp_buf *out)
{
	double ns[RP_CAL_TAGS];
	bool has[RP_CAL_TAGS], any = false;

	if (!json_is_object(json_object_get(rec, "metadata")) ||
	    !json_is_object(json_object_get(rec, "metrics"))) {
		a->broken++;
		return 0;
	}
	if (rp_cal_is_warmup(rec)) {
		a->warmup++;
		return 0;
	}
	if (a->records == RP_CAL_MAX_RECORDS)
		return -EFBIG;
	a->records++;
	for (int t = 0; t < RP_CAL_TAGS; t++) {
		bool exact = true, bad_unit = false;

		has[t] = rp_cal_value(rec, rp_cal_tags[t], &ns[t], &exact, &bad_unit);
		a->bad_unit += bad_unit;
		if (!has[t])
			continue;
		any = true;
		a->inexact += !exact;
		a->clamped[t] += ns[t] < a->rtt.ns;
		if (keep(a, t, ns[t]))
			return -ENOMEM;
	}
	if (!any) {
		if (rp_cal_is_failed(rec))
			a->failed++;
		else
			a->without++;
		return 0;
	}
	return out ? put_line(a, rec, ns, has, out) : 0;
}

int rp_adjust_finish(struct rp_adjust *a)
{
	for (int t = 0; t < RP_CAL_TAGS; t++) {
		size_t n = a->n[t];
		double *w;

		if (!n)
			continue;
		w = malloc(n * sizeof(*w));
		if (!w)
			return -ENOMEM;
		for (size_t i = 0; i < n; i++)
			w[i] = adjusted(a, a->v[t][i]);
		rp_cal_stats(w, n, &a->adj[t]);
		rp_cal_stats_raw(a->v[t], n, &a->raw[t]);
		free(w);
	}
	return 0;
}

void rp_adjust_free(struct rp_adjust *a)
{
	for (int t = 0; t < RP_CAL_TAGS; t++)
		free(a->v[t]);
	*a = (struct rp_adjust){ 0 };
}
