// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* json.c - a report as reqprobe.report/1: docs/schema/report-1.schema.json. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/report.h"
#include "sink/put.h"

static void key(struct rp_buf *b, bool *any, const char *name)
{
	if (*any)
		LIT(b, ",");
	*any = true;
	rp_put_string_or_null(b, name);
	LIT(b, ":");
}

static void count(struct rp_buf *b, bool *any, const char *name, uint64_t v)
{
	key(b, any, name);
	rp_buf_u64(b, v);
}

static void instant(struct rp_buf *b, bool *any, const char *name, int64_t ns)
{
	key(b, any, name);
	if (ns == RP_NONE)
		LIT(b, "null");
	else
		rp_put_time(b, ns);
}

static void real(struct rp_buf *b, bool *any, const char *name, double v)
{
	key(b, any, name);
	rp_buf_double(b, v);
}

static void names(struct rp_buf *b, bool *any, const char *name, const struct rp_names *l)
{
	bool some = false;

	key(b, any, name);
	LIT(b, "{");
	for (unsigned i = 0; i < l->n; i++)
		count(b, &some, l->of[i].name, l->of[i].count);
	if (l->other)
		count(b, &some, "(other)", l->other);
	LIT(b, "}");
}

static void stats(struct rp_buf *b, const struct rp_group *g, enum rp_metric m)
{
	const struct rp_metric_def *d = &rp_metric_defs[m];
	const struct rp_stats_of *s = &g->fig->stats[m];
	uint64_t none = 0;
	bool any = false, some = false;
	char p[8];

	LIT(b, "{");
	key(b, &any, "unit");
	rp_put_string_or_null(b, d->display);
	key(b, &any, "scope");
	rp_put_string_or_null(b, d->scope);
	count(b, &any, "count", s->n);
	for (int i = 0; i < RP_NO_VALUE_COUNT; i++)
		none += g->fig->missing[m][i];
	if (m == RP_METRIC_INTER_CHUNK_LATENCY) {
		count(b, &any, "requests", g->chunked);
		none = g->requests - g->chunked;
	}
	count(b, &any, "missing", none);
	key(b, &any, "reasons");
	LIT(b, "{");
	for (unsigned i = 0; i < RP_NO_VALUE_COUNT; i++)
		if (g->fig->missing[m][i])
			count(b, &some, rp_no_value_name(i), g->fig->missing[m][i]);
	LIT(b, "}");
	if (s->n) {
		real(b, &any, "avg", s->avg * d->to_display);
		real(b, &any, "min", s->min * d->to_display);
		real(b, &any, "max", s->max * d->to_display);
		for (int i = 0; i < RP_STATS_PERCENTILES; i++) {
			snprintf(p, sizeof(p), "p%u", rp_stats_percentiles[i]);
			real(b, &any, p, s->p[i] * d->to_display);
		}
		real(b, &any, "std", s->std * d->to_display);
		real(b, &any, "sum", s->sum * d->to_display);
		real(b, &any, "relative_error", s->error);
	}
	LIT(b, "}");
}

static void series(struct rp_buf *b, const struct rp_sweep_stats *s, enum rp_metric m)
{
	bool any = false;

	if (!s->known) {
		LIT(b, "null");
		return;
	}
	LIT(b, "{");
	key(b, &any, "unit");
	rp_put_string_or_null(b, rp_metric_defs[m].display);
	real(b, &any, "avg", s->avg);
	real(b, &any, "min", s->min);
	real(b, &any, "max", s->max);
	real(b, &any, "p50", s->p50);
	real(b, &any, "p90", s->p90);
	real(b, &any, "p95", s->p95);
	real(b, &any, "p99", s->p99);
	real(b, &any, "std", s->std);
	LIT(b, "}");
}

static void list(struct rp_buf *b, const uint64_t *v, unsigned n)
{
	LIT(b, "[");
	for (unsigned i = 0; i < n; i++) {
		if (i)
			LIT(b, ",");
		rp_buf_u64(b, v[i]);
	}
	LIT(b, "]");
}

static void members(struct rp_buf *b, bool *any, const struct rp_report *r,
		    const struct rp_group *g)
{
	bool some = false;
	double v;

	count(b, any, "requests", g->requests);
	instant(b, any, "first_start", g->first);
	instant(b, any, "last_start", g->last);
	key(b, any, "ends");
	LIT(b, "{");
	for (int i = 0; i < RP_END_COUNT; i++)
		count(b, &some, rp_end_names[i], g->ends[i]);
	LIT(b, "}");
	names(b, any, "status", &g->status);
	names(b, any, "finish_reasons", &g->finish);
	key(b, any, "errors");
	LIT(b, "{");
	some = false;
	for (int i = 1; i < RP_ERROR_CLASS_COUNT; i++)
		count(b, &some, rp_error_class_names[i], g->sum.errors[i]);
	LIT(b, "}");
	if (r->o->judged) {
		key(b, any, "slos_met");
		list(b, g->sum.slo_met, r->o->slos.n);
		key(b, any, "slos_unknown");
		list(b, g->sum.slo_unknown, r->o->slos.n);
	}
	key(b, any, "metrics");
	LIT(b, "{");
	some = false;
	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		if (!rp_metric_per_request((enum rp_metric)m) && m != RP_METRIC_INTER_CHUNK_LATENCY)
			continue;
		key(b, &some, rp_metric_defs[m].tag);
		stats(b, g, (enum rp_metric)m);
	}
	LIT(b, "},\"totals\":{");
	some = false;
	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		const struct rp_metric_def *d = &rp_metric_defs[m];

		if (!rp_metrics_value(&g->sum, (enum rp_metric)m, &v))
			continue;
		key(b, &some, d->tag);
		LIT(b, "{\"unit\":");
		rp_put_string_or_null(b, d->display);
		LIT(b, ",\"value\":");
		rp_buf_double(b, v * d->to_display);
		LIT(b, "}");
	}
	LIT(b, "},\"series\":{");
	some = false;
	for (int i = 0; i < RP_SWEEP_COUNT; i++) {
		key(b, &some, rp_metric_defs[RP_SWEEP_FIRST + i].tag);
		series(b, &g->fig->series[i], (enum rp_metric)(RP_SWEEP_FIRST + i));
	}
	LIT(b, "}");
}

static void input(struct rp_buf *b, const struct rp_report *r, const struct rp_reader_stats *in)
{
	bool any = false;

	LIT(b, "{");
	count(b, &any, "files", in->files);
	count(b, &any, "files_not_read_whole", in->unread);
	count(b, &any, "bytes", in->bytes);
	count(b, &any, "lines", in->lines);
	count(b, &any, "torn_or_broken", r->torn);
	count(b, &any, "too_long", in->too_long);
	count(b, &any, "other_lines", r->foreign);
	count(b, &any, "duplicates", r->duplicates);
	count(b, &any, "not_looked_up", r->unchecked);
	count(b, &any, "outside_time", r->outside);
	count(b, &any, "records", r->records);
	LIT(b, "}");
}

/* What there is so far: a report of many groups is long. */
static void flush(struct rp_buf *b, FILE *f)
{
	if (!b->oom && b->n)
		fwrite(b->p, 1, b->n, f);
	b->n = 0;
}

static void limits(struct rp_buf *b, const struct rp_report *r)
{
	bool any = false;

	LIT(b, "{");
	count(b, &any, "memory", r->o->memory);
	count(b, &any, "groups", r->groups_shown);
	count(b, &any, "requests_in_others",
	      r->other == RP_REPORT_NO_GROUP ? 0 : r->groups[r->other].requests);
	LIT(b, "}");
}

int rp_report_put(FILE *f, const struct rp_report *r, const struct rp_reader_stats *in)
{
	bool any = true, first = true;
	struct rp_buf all = { 0 }, *b = &all;

	LIT(b, "{\"schema\":\"reqprobe.report/1\",\"reqprobe\":\"" RP_VERSION "\",\"input\":");
	input(b, r, in);
	instant(b, &any, "since", r->o->since);
	instant(b, &any, "until", r->o->until);
	key(b, &any, "by");
	LIT(b, "[");
	for (unsigned i = 0; i < r->o->n_by; i++) {
		if (i)
			LIT(b, ",");
		rp_put_string_or_null(b, rp_by_names[r->o->by[i]]);
	}
	LIT(b, "]");
	key(b, &any, "slos");
	LIT(b, "[");
	for (unsigned i = 0; r->o->judged && i < r->o->slos.n; i++) {
		const struct rp_metric_def *d = &rp_metric_defs[r->o->slos.slo[i].metric];

		if (i)
			LIT(b, ",");
		LIT(b, "{\"metric\":");
		rp_put_string_or_null(b, d->tag);
		rp_buf_str(b, d->flags & RP_METRIC_FLAG(LARGER_IS_BETTER) ? ",\"at_least\":" :
									    ",\"at_most\":");
		rp_buf_double(b, r->o->slos.slo[i].shown);
		LIT(b, ",\"unit\":");
		rp_put_string_or_null(b, d->display);
		LIT(b, "}");
	}
	LIT(b, "]");
	key(b, &any, "exact");
	rp_put_bool(b, r->exact);
	key(b, &any, "limits");
	limits(b, r);
	key(b, &any, "total");
	LIT(b, "{");
	any = false;
	members(b, &any, r, &r->total);
	LIT(b, "},\"groups\":[");
	for (size_t i = 0; i < r->n; i++) {
		const struct rp_group *g = &r->groups[i];

		if (!g->fig)
			continue;
		if (!first)
			LIT(b, ",");
		first = false;
		any = false;
		LIT(b, "{");
		key(b, &any, "key");
		if (g->other) {
			LIT(b, "null");
		} else {
			bool some = false;

			LIT(b, "{");
			for (unsigned k = 0; k < r->o->n_by; k++) {
				key(b, &some, rp_by_names[r->o->by[k]]);
				rp_put_string_or_null(b, g->value[k]);
			}
			LIT(b, "}");
		}
		members(b, &any, r, g);
		LIT(b, "}");
		flush(b, f);
	}
	LIT(b, "]}\n");
	flush(b, f);
	free(all.p);
	return all.oom ? -ENOMEM : 0;
}
