// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* report.c - what calibrate found, as JSON and as a table. */
#include "calibrate/calibrate.h"

#include <math.h>
#include <string.h>

/* A writer of objects: indented by two as AIPerf's own file, or on one line. */
struct writer {
	struct rp_buf *b;
	bool pretty, first;
	int depth;
};

static void newline(struct writer *w)
{
	if (!w->pretty)
		return;
	LIT(w->b, "\n");
	for (int i = 0; i < w->depth; i++)
		LIT(w->b, "  ");
}

static void key(struct writer *w, const char *prefix, const char *name)
{
	if (!w->first)
		LIT(w->b, ",");
	w->first = false;
	newline(w);
	LIT(w->b, "\"");
	rp_buf_str(w->b, prefix);
	rp_buf_str(w->b, name);
	rp_buf_str(w->b, w->pretty ? "\": " : "\":");
}

static void open_object(struct writer *w)
{
	LIT(w->b, "{");
	w->first = true;
	w->depth++;
}

static void close_object(struct writer *w)
{
	w->depth--;
	if (!w->first)
		newline(w);
	w->first = false;
	LIT(w->b, "}");
}

static void count(struct writer *w, const char *name, uint64_t v)
{
	key(w, "", name);
	rp_buf_u64(w->b, v);
}

static void real(struct writer *w, const char *name, double d)
{
	key(w, "", name);
	rp_cal_put_real(w->b, d);
}

static void text(struct writer *w, const char *name, const char *s)
{
	key(w, "", name);
	rp_put_string_or_null(w->b, s);
}

void rp_cal_put_real(struct rp_buf *b, double d)
{
	size_t n = b->n;

	rp_buf_double(b, d);
	if (isfinite(d) && !b->oom && !memchr(b->p + n, '.', b->n - n) &&
	    !memchr(b->p + n, 'e', b->n - n))
		LIT(b, ".0");
}

/* In AIPerf's order (JsonMetricResult). */
static void stats(struct writer *w, const char *unit, const struct rp_cal_stats *s)
{
	char name[8];

	open_object(w);
	text(w, "unit", unit);
	real(w, "avg", s->avg);
	for (int i = 0; i < RP_CAL_PERCENTILES; i++) {
		snprintf(name, sizeof(name), "p%u", rp_cal_percentiles[i]);
		real(w, name, s->p[i]);
	}
	real(w, "min", s->min);
	real(w, "max", s->max);
	real(w, "std", s->std);
	count(w, "count", s->n);
	real(w, "sum", s->sum);
	close_object(w);
}

static void adjusted_members(struct writer *w, const struct rp_adjust *a)
{
	struct rp_cal_stats rtt = { .n = 1 };

	for (int t = 0; t < RP_CAL_TAGS; t++) {
		if (!a->raw[t].n)
			continue;
		key(w, "", rp_cal_tags[t]);
		stats(w, "ms", &a->raw[t]);
	}
	/* one value, and AIPerf gives it for every statistic */
	rtt.avg = rtt.min = rtt.max = rtt.sum = a->rtt.ns / 1e6;
	for (int i = 0; i < RP_CAL_PERCENTILES; i++)
		rtt.p[i] = rtt.avg;
	key(w, "", "network_rtt");
	stats(w, "ms", &rtt);
	for (int t = 0; t < RP_CAL_TAGS; t++) {
		if (!a->adj[t].n)
			continue;
		key(w, "network_adjusted_", rp_cal_tags[t]);
		stats(w, "ms", &a->adj[t]);
	}
	key(w, "", "calibration");
	open_object(w);
	count(w, "records", a->records);
	count(w, "warmup", a->warmup);
	count(w, "failed", a->failed);
	count(w, "without_latency", a->without);
	count(w, "broken_lines", a->broken);
	count(w, "not_whole_ns", a->inexact);
	count(w, "other_unit", a->bad_unit);
	key(w, "", "clamped");
	open_object(w);
	for (int t = 0; t < RP_CAL_TAGS; t++)
		count(w, rp_cal_tags[t], a->clamped[t]);
	close_object(w);
	key(w, "", "rtt");
	open_object(w);
	text(w, "source", a->rtt.samples ? "probes" : "given");
	real(w, "mean_ns", a->rtt.ns);
	if (a->rtt.samples) {
		count(w, "samples", a->rtt.samples);
		count(w, "failed", a->rtt.failed);
		real(w, "min_ns", a->rtt.min_ns);
		real(w, "max_ns", a->rtt.max_ns);
	}
	close_object(w);
	close_object(w);
}

static void unjoined(struct writer *w, const char *name, const uint64_t *why)
{
	key(w, "", name);
	open_object(w);
	for (int i = 1; i < RP_JOIN_WHYS; i++)
		if (why[i])
			count(w, rp_join_why_names[i], why[i]);
	close_object(w);
}

/* The share of the sum of all TTFTs that the parts, taken together, come to. */
static double explained_of_sum(const struct rp_join *j)
{
	return j->ttft.sum > 0 ? 1 - j->sum_abs_rest / j->ttft.sum : 0;
}

static void join_members(struct writer *w, const struct rp_join *j)
{
	static const char *const bands[] = { "p50", "p99" };

	text(w, "schema", "reqprobe.join/1");
	count(w, "client_records", j->n[0]);
	count(w, "server_records", j->n[1]);
	count(w, "joined", j->joined);
	count(w, "duplicates", j->duplicates);
	count(w, "without_rtt", j->no_rtt);
	count(w, "broken_lines", j->broken);
	key(w, "", "unjoined");
	open_object(w);
	unjoined(w, "client", j->why[0]);
	unjoined(w, "server", j->why[1]);
	close_object(w);
	if (!j->joined)
		return;
	key(w, "", "client_ttft");
	stats(w, "ms", &j->ttft);
	key(w, "", "parts");
	open_object(w);
	for (int k = 0; k < RP_PARTS; k++) {
		if (!j->part[k].n)
			continue;
		key(w, "", rp_part_names[k]);
		stats(w, "ms", &j->part[k]);
	}
	close_object(w);
	key(w, "", "explained_share");
	stats(w, "ratio", &j->explained);
	real(w, "explained_share_of_sum", explained_of_sum(j));
	count(w, "explained_95_percent", j->well);
	key(w, "", "biggest_part");
	open_object(w);
	for (int i = 0; i < 2; i++) {
		key(w, "", bands[i]);
		open_object(w);
		text(w, "part", rp_part_names[j->at[i].biggest]);
		real(w, "share", j->at[i].share);
		real(w, "client_ttft_ms", j->at[i].ttft_ms);
		count(w, "requests", j->at[i].n);
		close_object(w);
	}
	close_object(w);
}

void rp_cal_put_adjusted(struct rp_buf *b, const struct rp_adjust *a)
{
	struct writer w = { .b = b, .pretty = true };

	open_object(&w);
	text(&w, "schema", "reqprobe.calibration/1");
	adjusted_members(&w, a);
	close_object(&w);
	LIT(b, "\n");
}

void rp_cal_put_join(struct rp_buf *b, const struct rp_join *j)
{
	struct writer w = { .b = b, .pretty = true };

	open_object(&w);
	join_members(&w, j);
	close_object(&w);
	LIT(b, "\n");
}

void rp_cal_put_all(struct rp_buf *b, const struct rp_adjust *a, const struct rp_join *j)
{
	struct writer w = { .b = b };

	open_object(&w);
	text(&w, "schema", "reqprobe.calibration/1");
	if (a)
		adjusted_members(&w, a);
	if (j) {
		key(&w, "", "join");
		open_object(&w);
		join_members(&w, j);
		close_object(&w);
	}
	close_object(&w);
	LIT(b, "\n");
}

/* ---- for people ---- */

static void row(FILE *f, const char *name, const struct rp_cal_stats *s)
{
	fprintf(f, "  %-28s %9.3f %9.3f %9.3f %9.3f %9.3f\n", name, s->avg, s->p[4], s->p[6],
		s->p[8], s->max);
}

static void heads(FILE *f, const char *what)
{
	fprintf(f, "  %-28s %9s %9s %9s %9s %9s\n", what, "avg", "p50", "p90", "p99", "max");
}

static void adjusted_table(FILE *f, const struct rp_adjust *a)
{
	fprintf(f, "  %llu records", (unsigned long long)a->records);
	if (a->failed)
		fprintf(f, ", %llu of them failed", (unsigned long long)a->failed);
	if (a->without)
		fprintf(f, ", %llu without a latency", (unsigned long long)a->without);
	if (a->warmup)
		fprintf(f, "; %llu of the warm-up left out", (unsigned long long)a->warmup);
	fprintf(f, "\n  network RTT %.3f ms, ", a->rtt.ns / 1e6);
	if (a->rtt.samples)
		fprintf(f, "mean of %llu probes from %.3f to %.3f; %llu failed\n\n",
			(unsigned long long)a->rtt.samples, a->rtt.min_ns / 1e6,
			a->rtt.max_ns / 1e6, (unsigned long long)a->rtt.failed);
	else
		fprintf(f, "as given\n\n");
	heads(f, "ms");
	for (int t = 0; t < RP_CAL_TAGS; t++) {
		if (!a->raw[t].n)
			continue;
		row(f, rp_cal_tags[t], &a->raw[t]);
		row(f, "  less the network", &a->adj[t]);
	}
}

static void join_table(FILE *f, const struct rp_join *j)
{
	static const char *const sides[] = { "client", "server" };

	fprintf(f, "  %llu requests joined: %llu client records, %llu server records\n",
		(unsigned long long)j->joined, (unsigned long long)j->n[0],
		(unsigned long long)j->n[1]);
	for (int s = 0; s < 2; s++)
		for (int i = 1; i < RP_JOIN_WHYS; i++)
			if (j->why[s][i])
				fprintf(f, "  %llu not joined: %s, %s\n",
					(unsigned long long)j->why[s][i], sides[s],
					rp_join_why_names[i]);
	if (!j->joined)
		return;
	fputs("\n", f);
	heads(f, "ms");
	row(f, "client TTFT", &j->ttft);
	for (int k = 0; k < RP_PARTS; k++) {
		char name[40];

		if (!j->part[k].n)
			continue;
		snprintf(name, sizeof(name), "  %-17s %6.1f %%", rp_part_names[k],
			 j->ttft.sum > 0 ? 100 * j->part[k].sum / j->ttft.sum : 0);
		row(f, name, &j->part[k]);
	}
	fprintf(f, "  explained: %.1f %% of all, at least 95 %% in %llu of %llu requests\n",
		100 * explained_of_sum(j), (unsigned long long)j->well,
		(unsigned long long)j->joined);
	fprintf(f, "  biggest part: at p50 (%.1f ms) %s, %.0f %%; at p99 (%.1f ms) %s, %.0f %%\n",
		j->at[0].ttft_ms, rp_part_names[j->at[0].biggest], 100 * j->at[0].share,
		j->at[1].ttft_ms, rp_part_names[j->at[1].biggest], 100 * j->at[1].share);
	if (j->no_rtt)
		fprintf(f, "  %llu without an RTT: the network is in their unexplained rest\n",
			(unsigned long long)j->no_rtt);
}

void rp_cal_table(FILE *f, const struct rp_cal_options *o, const struct rp_adjust *a,
		  const struct rp_join *j)
{
	if (a) {
		fprintf(f, "%s\n", o->records);
		adjusted_table(f, a);
	}
	if (j) {
		if (a)
			fputs("\n", f);
		fprintf(f, "%s\n", o->join);
		join_table(f, j);
	}
}
