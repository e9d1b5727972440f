// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* show.c - a report for people: plain ASCII, as wide as there is room. */
#include <math.h>
#include <string.h>

#include "report/report.h"
#include "sink/sink.h"

/* What a narrow table can do without, the last first. */
static const struct column {
	const char *head;
	int p; /* index of the percentile, or */
	enum { P, AVG, MIN, MAX, STD } what;
	unsigned rank; /* 0 is always there */
} columns[] = {
	{ "avg", 0, AVG, 1 },	 { "min", 0, MIN, 5 },	  { "max", 0, MAX, 2 },
	{ "p50", RP_P50, P, 0 }, { "p90", RP_P90, P, 3 }, { "p95", RP_P95, P, 6 },
	{ "p99", RP_P99, P, 0 }, { "std", 0, STD, 4 },
};
#define N_COLUMNS (sizeof(columns) / sizeof(*columns))
#define CELL 9 /* with the blank before it */

/* Four digits that count. */
static void number(char *to, size_t size, double v)
{
	double a = fabs(v);

	if (a != 0 && (a < 0.001 || a >= 99999999.5))
		snprintf(to, size, "%.2e", v);
	else
		snprintf(to, size, "%.*f", a < 10 ? 3 : a < 100 ? 2 : a < 1000 ? 1 : 0, v);
}

/* Shorter where AIPerf's are long. */
static const char *unit_of(const struct rp_metric_def *d)
{
	return !strcmp(d->display, "tokens/sec/user") ? "tok/s/user" : d->display;
}

static double cell(const struct column *c, const struct rp_stats_of *s)
{
	switch (c->what) {
	case AVG:
		return s->avg;
	case MIN:
		return s->min;
	case MAX:
		return s->max;
	case STD:
		return s->std;
	default:
		return s->p[c->p];
	}
}

/* Does it steer a terminal, or the order of what stands beside it, or is it unseen?
 * Controls of both sets (Unicode's Cc), its format characters (Cf), its line ends. */
static bool steers(uint32_t c)
{
	static const struct {
		uint32_t from, to;
	} them[] = {
		{ 0, 0x1f },	      { 0x7f, 0x9f },	    { 0xad, 0xad },
		{ 0x600, 0x605 },     { 0x61c, 0x61c },	    { 0x6dd, 0x6dd },
		{ 0x70f, 0x70f },     { 0x890, 0x891 },	    { 0x8e2, 0x8e2 },
		{ 0x180e, 0x180e },   { 0x200b, 0x200f },   { 0x2028, 0x202e },
		{ 0x2060, 0x206f },   { 0xfeff, 0xfeff },   { 0xfff9, 0xfffb },
		{ 0x110bd, 0x110bd }, { 0x110cd, 0x110cd }, { 0x13430, 0x1343f },
		{ 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a }, { 0xe0000, 0xe007f },
	};

	for (size_t i = 0; i < sizeof(them) / sizeof(*them); i++)
		if (c >= them[i].from && c <= them[i].to)
			return true;
	return false;
}

/* Text from a log: nothing of it may steer a terminal. */
static void text(FILE *f, const char *s)
{
	while (*s) {
		const unsigned char *u = (const unsigned char *)s;
		int n = rp_utf8_len(u);
		uint32_t c = n == 1 ? *u : n == 2 ? *u & 0x1f : n == 3 ? *u & 0xf : *u & 7;

		for (int i = 1; i < n; i++)
			c = c << 6 | (u[i] & 0x3f);
		if (n < 1 || steers(c))
			fputc('?', f);
		else
			fwrite(s, 1, (size_t)n, f);
		s += n < 1 ? 1 : n;
	}
}

static uint64_t missing(const struct rp_group *g, enum rp_metric m, unsigned *main_reason)
{
	uint64_t n = 0, most = 0;

	for (unsigned i = 0; i < RP_NO_VALUE_COUNT; i++) {
		n += g->fig->missing[m][i];
		if (g->fig->missing[m][i] > most) {
			most = g->fig->missing[m][i];
			*main_reason = i;
		}
	}
	return n;
}

/* Shown unless --all: what is neither of a trace, nor usage again, nor inside others. */
static bool usual(enum rp_metric m)
{
	const struct rp_metric_def *d = &rp_metric_defs[m];

	return !(d->flags & (RP_METRIC_FLAG(HTTP_TRACE_ONLY) | RP_METRIC_FLAG(INTERNAL) |
			     RP_METRIC_FLAG(EXPERIMENTAL))) &&
	       strncmp(d->tag, "usage_", 6) != 0 && strncmp(d->tag, "network_", 8) != 0;
}

static void head(FILE *f, unsigned name_width, unsigned rank)
{
	fprintf(f, "  %-*s %8s %6s", (int)name_width, "", "n", "%");
	for (size_t i = 0; i < N_COLUMNS; i++)
		if (columns[i].rank <= rank)
			fprintf(f, "%*s", CELL, columns[i].head);
	fputc('\n', f);
}

static void share(char *to, size_t size, uint64_t n, uint64_t of)
{
	double p = of ? 100.0 * (double)n / (double)of : 0;

	/* neither 100 for nearly all, nor 0 for some */
	if (n == of)
		snprintf(to, size, "100");
	else
		snprintf(to, size, "%.*f", p < 0.1 ? 3 : 1, p > 99.9 ? 99.9 : p);
}

/* Names after each other, broken at the width. */
struct list {
	FILE *f;
	unsigned at, width;
	bool any;
};

static void item(struct list *l, const char *name)
{
	unsigned n = (unsigned)strlen(name);

	if (l->any) {
		fputc(',', l->f);
		l->at++;
	}
	if (l->at + 1 + n + 1 > l->width) {
		fputs("\n     ", l->f);
		l->at = 5;
	}
	fprintf(l->f, " %s", name);
	l->at += 1 + n;
	l->any = true;
}

/* All of them, the most frequent first, from column `at`. The column after them. */
static unsigned whys(FILE *f, const uint32_t *missing, unsigned at, unsigned width)
{
	bool done[RP_NO_VALUE_COUNT] = { false };

	for (bool first = true;; first = false) {
		char t[64];
		int most = -1;

		for (int i = 0; i < RP_NO_VALUE_COUNT; i++)
			if (!done[i] && missing[i] && (most < 0 || missing[i] > missing[most]))
				most = i;
		if (most < 0)
			break;
		done[most] = true;
		snprintf(t, sizeof(t), "%s %u", rp_no_value_name((unsigned)most), missing[most]);
		if (!first && at + strlen(t) + 4 > width) {
			fputs(",\n      ", f);
			at = 6;
		} else if (!first) {
			fputs(", ", f);
			at += 2;
		}
		fputs(t, f);
		at += (unsigned)strlen(t);
	}
	fputs("):", f);
	return at + 2;
}

/* Who has no value, and why: metrics with the same answer together. */
static void reasons(FILE *f, const struct rp_report *r, const struct rp_group *g, unsigned width)
{
	bool done[RP_METRIC_COUNT] = { false }, first = true;

	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		struct list l = { .f = f, .width = width };
		unsigned why = 0;
		uint64_t n = missing(g, (enum rp_metric)m, &why);

		if (done[m] || !n || !g->fig->stats[m].n ||
		    (!r->o->all && !usual((enum rp_metric)m)))
			continue;
		fputs(first ? "\n  without a value:\n" : "", f);
		first = false;
		l.at = (unsigned)fprintf(f, "    %llu requests (", (unsigned long long)n);
		l.at = whys(f, g->fig->missing[m], l.at, width);
		for (int k = m; k < RP_METRIC_COUNT; k++) {
			if (!g->fig->stats[k].n || (!r->o->all && !usual((enum rp_metric)k)) ||
			    memcmp(g->fig->missing[k], g->fig->missing[m],
				   sizeof(g->fig->missing[m])) != 0)
				continue;
			done[k] = true;
			item(&l, rp_metric_defs[k].tag);
		}
		fputc('\n', f);
	}
}

/* Metrics that no request has, unless no response spoke of them (audio, images,
 * speculation, ...): that is no loss. */
static void none(FILE *f, const struct rp_group *g, unsigned width)
{
	struct list l = { .f = f, .width = width };

	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		char name[96];
		unsigned why = 0;

		if (!usual((enum rp_metric)m) || g->fig->stats[m].n ||
		    !missing(g, (enum rp_metric)m, &why) || why == RP_WHY_NOT_REPORTED ||
		    why == RP_NO_FAILED)
			continue;
		snprintf(name, sizeof(name), "%s (%s)", rp_metric_defs[m].tag,
			 rp_no_value_name(why));
		if (!l.any)
			l.at = (unsigned)fprintf(f, "\n  in no request:") - 1;
		item(&l, name);
	}
	if (l.any)
		fputc('\n', f);
}

/* What needs no row unless --all: NULL, or why. */
static const char *no_news(const struct rp_group *g, enum rp_metric m)
{
	static const struct {
		enum rp_metric m, as;
		const char *why;
	} twins[] = {
		{ RP_METRIC_TIME_TO_FIRST_OUTPUT_TOKEN, RP_METRIC_TIME_TO_FIRST_TOKEN,
		  "as time_to_first_token" },
		{ RP_METRIC_OUTPUT_TOKEN_COUNT, RP_METRIC_OUTPUT_SEQUENCE_LENGTH,
		  "as output_sequence_length" },
	};
	const struct rp_stats_of *s = &g->fig->stats[m];

	if (s->min == 0 && s->max == 0)
		return "0";
	for (size_t i = 0; i < sizeof(twins) / sizeof(twins[0]); i++) {
		const struct rp_stats_of *o = &g->fig->stats[twins[i].as];

		if (twins[i].m == m && o->n == s->n && o->min == s->min && o->max == s->max &&
		    o->avg == s->avg && o->std == s->std)
			return twins[i].why;
	}
	return NULL;
}

static bool has_row(const struct rp_report *r, const struct rp_group *g, enum rp_metric m)
{
	return g->fig->stats[m].n && (r->o->all || (usual(m) && !no_news(g, m)));
}

static void left_out(FILE *f, const struct rp_group *g, unsigned width)
{
	struct list l = { .f = f, .width = width };

	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		const char *why;
		char name[96];

		if (!g->fig->stats[m].n || !usual((enum rp_metric)m))
			continue;
		why = no_news(g, (enum rp_metric)m);
		if (!why)
			continue;
		snprintf(name, sizeof(name), "%s (%s)", rp_metric_defs[m].tag, why);
		if (!l.any)
			l.at = (unsigned)fprintf(f, "  without a row:");
		item(&l, name);
	}
	if (l.any)
		fputc('\n', f);
}

/* Where a request's time went comes first, in the order in which it goes. */
static const enum rp_metric first[] = {
	RP_METRIC_REQUEST_LATENCY, RP_METRIC_TIME_TO_FIRST_TOKEN, RP_METRIC_FRONTEND_TIME,
	RP_METRIC_QUEUE_TIME,	   RP_METRIC_PREFILL_TIME,	  RP_METRIC_ENGINE_DECODE_TIME,
	RP_METRIC_FLUSH_TIME,	   RP_METRIC_INTER_TOKEN_LATENCY,
};
#define N_FIRST (sizeof(first) / sizeof(first[0]))

static void order(enum rp_metric *rows /* RP_METRIC_COUNT */)
{
	size_t n = N_FIRST, i;

	memcpy(rows, first, sizeof(first));
	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		for (i = 0; i < N_FIRST && first[i] != (enum rp_metric)m; i++)
			;
		if (i == N_FIRST)
			rows[n++] = (enum rp_metric)m;
	}
}

static void metrics(FILE *f, const struct rp_report *r, const struct rp_group *g, unsigned width)
{
	enum rp_metric rows[RP_METRIC_COUNT];
	unsigned name_width = 0, rank = 6;
	char t[32];

	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		size_t n = strlen(rp_metric_defs[m].tag) + strlen(unit_of(&rp_metric_defs[m])) + 1;

		if (has_row(r, g, (enum rp_metric)m) && n > name_width)
			name_width = (unsigned)n;
	}
	for (; rank; rank--) {
		unsigned cells = 0;

		for (size_t i = 0; i < N_COLUMNS; i++)
			cells += columns[i].rank <= rank;
		if (2 + name_width + 16 + cells * CELL <= width)
			break;
	}
	if (!name_width)
		return;
	head(f, name_width, rank);
	order(rows);
	for (int k = 0; k < RP_METRIC_COUNT; k++) {
		const enum rp_metric m = rows[k];
		const struct rp_metric_def *d = &rp_metric_defs[m];
		const struct rp_stats_of *s = &g->fig->stats[m];
		uint64_t have = m == RP_METRIC_INTER_CHUNK_LATENCY ? g->chunked : s->n;
		int used;

		if (!has_row(r, g, m))
			continue;
		share(t, sizeof(t), have, g->requests);
		used = fprintf(f, "  %s %s", d->tag, unit_of(d));
		fprintf(f, "%*s %8llu %6s", (int)(name_width + 2) - used, "",
			(unsigned long long)s->n, t);
		for (size_t i = 0; i < N_COLUMNS; i++) {
			if (columns[i].rank > rank)
				continue;
			number(t, sizeof(t), cell(&columns[i], s) * d->to_display);
			fprintf(f, "%*s", CELL, t);
		}
		fputc('\n', f);
	}
	if (!r->o->all)
		left_out(f, g, width);
	reasons(f, r, g, width);
	none(f, g, width);
}

static void counts(FILE *f, const struct rp_group *g)
{
	const char *sep = "";

	fprintf(f, "  %llu requests: ", (unsigned long long)g->requests);
	for (int i = 0; i < RP_END_COUNT; i++) {
		if (!g->ends[i])
			continue;
		fprintf(f, "%s%llu %s", sep, (unsigned long long)g->ends[i], rp_end_names[i]);
		sep = ", ";
	}
	fputs("\n  status ", f);
	for (unsigned i = 0; i < g->status.n; i++)
		fprintf(f, "%s%s %llu", i ? ", " : "", g->status.of[i].name,
			(unsigned long long)g->status.of[i].count);
	fputs("; finish reason ", f);
	for (unsigned i = 0; i < g->finish.n; i++) {
		fputs(i ? ", " : "", f);
		text(f, g->finish.of[i].name);
		fprintf(f, " %llu", (unsigned long long)g->finish.of[i].count);
	}
	sep = "\n  errors ";
	for (int i = 1; i < RP_ERROR_CLASS_COUNT; i++) {
		if (!g->sum.errors[i])
			continue;
		fprintf(f, "%s%s %llu", sep, rp_error_class_names[i],
			(unsigned long long)g->sum.errors[i]);
		sep = ", ";
	}
	fputc('\n', f);
}

static void totals(FILE *f, const struct rp_report *r, const struct rp_group *g)
{
	static const enum rp_metric shown[] = {
		RP_METRIC_REQUEST_THROUGHPUT,	   RP_METRIC_INPUT_TOKEN_THROUGHPUT,
		RP_METRIC_OUTPUT_TOKEN_THROUGHPUT, RP_METRIC_REQUEST_ERROR_RATE,
		RP_METRIC_BENCHMARK_DURATION,	   RP_METRIC_GOODPUT,
		RP_METRIC_GOOD_REQUEST_FRACTION,
	};
	static const enum rp_metric over_time[] = {
		RP_METRIC_EFFECTIVE_CONCURRENCY,
		RP_METRIC_EFFECTIVE_PREFILL_CONCURRENCY,
		RP_METRIC_EFFECTIVE_DECODE_CONCURRENCY,
		RP_METRIC_TOKENS_IN_FLIGHT,
	};
	char t[32], u[32], w[32];
	double v;

	fputc('\n', f);
	for (size_t i = 0; i < sizeof(shown) / sizeof(*shown); i++) {
		const struct rp_metric_def *d = &rp_metric_defs[shown[i]];

		if (!rp_metrics_value(&g->sum, shown[i], &v))
			continue;
		number(t, sizeof(t), v * d->to_display);
		fprintf(f, "  %-32s %10s %s\n", d->tag, t, d->display);
	}
	for (unsigned i = 0; r->o->judged && i < r->o->slos.n; i++) {
		const struct rp_metric_def *d = &rp_metric_defs[r->o->slos.slo[i].metric];

		fprintf(f, "  %s %s %g %s: met by %llu", d->tag,
			d->flags & RP_METRIC_FLAG(LARGER_IS_BETTER) ? ">=" : "<=",
			r->o->slos.slo[i].shown, d->display, (unsigned long long)g->sum.slo_met[i]);
		if (g->sum.slo_unknown[i])
			fprintf(f, ", unknown of %llu", (unsigned long long)g->sum.slo_unknown[i]);
		fputc('\n', f);
	}
	if (r->o->judged && g->sum.unjudged)
		fprintf(f, "  %llu requests lack a figure and miss none: neither good nor missed\n",
			(unsigned long long)g->sum.unjudged);
	if (g->sum.no_prompt || g->sum.no_completion)
		fprintf(f,
			"  in no total of tokens, as nobody tells them: input %llu, output %llu requests\n",
			(unsigned long long)g->sum.no_prompt,
			(unsigned long long)g->sum.no_completion);
	for (size_t i = 0; i < sizeof(over_time) / sizeof(*over_time); i++) {
		const struct rp_sweep_stats *s = &g->fig->series[over_time[i] - RP_SWEEP_FIRST];

		if (!s->known)
			continue;
		number(t, sizeof(t), s->avg);
		number(u, sizeof(u), s->p99);
		number(w, sizeof(w), s->max);
		fprintf(f, "  %-32s %10s on average, p99 %s, max %s\n",
			rp_metric_defs[over_time[i]].tag, t, u, w);
	}
}

static void title(FILE *f, const struct rp_report *r, const struct rp_group *g)
{
	fputc('\n', f);
	if (!r->o->n_by && !g->other)
		return; /* there is but one */
	if (g->other) {
		fputs("all others", f);
	} else {
		for (unsigned i = 0; i < r->o->n_by; i++) {
			fprintf(f, "%s%s ", i ? "  " : "", rp_by_names[r->o->by[i]]);
			text(f, g->value[i] ? g->value[i] : "(unknown)");
		}
	}
	fputc('\n', f);
}

static void group(FILE *f, const struct rp_report *r, const struct rp_group *g, unsigned width)
{
	counts(f, g);
	/* of requests that were only refused there is nothing to be told */
	if (r->o->all || g->sum.errors[RP_ERROR_4XX] < g->requests) {
		fputc('\n', f);
		metrics(f, r, g, width);
	}
	totals(f, r, g);
}

/* Does a stand before b? All others are the last. */
static bool before(const struct rp_group *a, const struct rp_group *b)
{
	if (a->other != b->other)
		return b->other;
	return a->requests != b->requests ? a->requests > b->requests : a < b;
}

/* The group that comes after last, or the first one for NULL: there are few. */
static const struct rp_group *next_largest(const struct rp_report *r, const struct rp_group *last)
{
	const struct rp_group *next = NULL;

	for (size_t i = 0; i < r->n; i++) {
		const struct rp_group *g = &r->groups[i];

		if (g->fig && (!last || before(last, g)) && (!next || before(g, next)))
			next = g;
	}
	return next;
}

void rp_report_show(FILE *f, const struct rp_report *r, const struct rp_reader_stats *in,
		    unsigned width)
{
	const struct rp_group *last = NULL;
	unsigned groups = 0;

	for (size_t i = 0; i < r->n; i++)
		groups += r->groups[i].fig != NULL;
	fprintf(f, "%llu records of %llu files", (unsigned long long)r->records,
		(unsigned long long)in->files);
	if (r->outside)
		fprintf(f, "; %llu outside the time", (unsigned long long)r->outside);
	if (r->duplicates)
		fprintf(f, "; %llu came more than once", (unsigned long long)r->duplicates);
	fputc('\n', f);
	if (!r->exact)
		fprintf(f,
			"too many for --memory: percentiles are at most %.1f %% off, series over time unknown\n",
			100 * RP_BINS_ERROR);
	else if (!r->gaps.exact)
		fprintf(f, "percentiles of inter_chunk_latency are at most %.1f %% off\n",
			100 * RP_BINS_ERROR);
	for (unsigned k = 0; k < groups; k++) {
		const struct rp_group *g = next_largest(r, last);

		title(f, r, g);
		group(f, r, g, width);
		last = g;
	}
	if (groups < 2)
		return;
	fputs("\nall together\n", f);
	group(f, r, &r->total, width);
}
