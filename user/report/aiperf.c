// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * aiperf.c - records in the shape of AIPerf 0.13.0's own exports, for its tools: a
 * MetricRecordInfo a line (profile_export.jsonl) and the summary beside it
 * (profile_export_aiperf.json, schema_version 1.4).
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calibrate/calibrate.h"
#include "report/report.h"
#include "sink/put.h"

#define FLUSH_AT (256u << 10)
#define LINES "profile_export.jsonl"
#define SUMMARY "profile_export_aiperf.json"

struct rp_aiperf {
	char *lines, *lines_tmp, *summary, *summary_tmp;
	FILE *f;
	struct rp_buf b;
	uint64_t n, left_out;
	const struct rp_slos *slos; /* NULL: none given */
	char model[128];
	bool models; /* more than one */
};

/* Has a line of AIPerf's this tag? */
static bool in_lines(enum rp_metric m)
{
	const struct rp_metric_def *d = &rp_metric_defs[m];

	return d->kind == RP_METRIC_RECORD && rp_metric_per_request(m) &&
	       !(d->flags & (RP_METRIC_FLAG(OWN) | RP_METRIC_FLAG(INTERNAL) |
			     RP_METRIC_FLAG(EXPERIMENTAL) | RP_METRIC_FLAG(NO_INDIVIDUAL_RECORDS)));
}

static char *path_of(const char *dir, const char *name, const char *end)
{
	char *p = NULL;

	return asprintf(&p, "%s/%s%s", dir, name, end) < 0 ? NULL : p;
}

int rp_aiperf_open(const char *dir, const struct rp_slos *slos, struct rp_aiperf **out, char *err,
		   size_t errlen)
{
	struct rp_aiperf *a = calloc(1, sizeof(*a));
	int e = -ENOMEM;

	*out = NULL;
	if (!a)
		goto oom;
	a->slos = slos;
	a->lines = path_of(dir, LINES, "");
	a->lines_tmp = path_of(dir, LINES, ".tmp");
	a->summary = path_of(dir, SUMMARY, "");
	a->summary_tmp = path_of(dir, SUMMARY, ".tmp");
	if (!a->lines || !a->lines_tmp || !a->summary || !a->summary_tmp)
		goto oom;
	if (mkdir(dir, 0777) < 0 && errno != EEXIST) {
		e = -errno;
		snprintf(err, errlen, "can't make the directory %s: %s", dir, strerror(-e));
		rp_aiperf_close(a);
		return e;
	}
	a->f = fopen(a->lines_tmp, "we");
	if (!a->f) {
		e = -errno;
		snprintf(err, errlen, "can't write %s: %s", a->lines_tmp, strerror(-e));
		rp_aiperf_close(a);
		return e;
	}
	*out = a;
	return 0;
oom:
	snprintf(err, errlen, "no memory");
	rp_aiperf_close(a);
	return e;
}

static int flush(struct rp_aiperf *a)
{
	int e = a->b.oom ? -ENOMEM : 0;

	errno = 0;
	if (!e && a->b.n && fwrite(a->b.p, 1, a->b.n, a->f) != a->b.n)
		e = errno ? -errno : -EIO;
	a->b.n = 0;
	return e;
}

static void value(struct rp_buf *b, bool *any, enum rp_metric m, double v)
{
	if (*any)
		LIT(b, ",");
	*any = true;
	rp_put_string_or_null(b, rp_metric_defs[m].tag);
	LIT(b, ":{\"value\":");
	rp_cal_put_real(b, v * rp_metric_defs[m].to_display);
	LIT(b, ",\"unit\":");
	rp_put_string_or_null(b, rp_metric_defs[m].display);
	LIT(b, "}");
}

/* The last that was seen of it. */
static int64_t end_of(const struct rp_facts *f)
{
	const int64_t seen[] = { f->duration,	 f->last_body,	f->last_token, f->ttft,
				 f->first_event, f->first_body, f->first_byte };
	int64_t at = 0;

	for (size_t i = 0; i < sizeof(seen) / sizeof(*seen); i++)
		if (seen[i] != RP_NONE && seen[i] > at)
			at = seen[i];
	return f->start_wall + (f->receive == RP_NONE ? 0 : f->receive) + at;
}

/* AIPerf tells the server's status, or what went wrong in its own code; of the text of
 * an error nothing is known here. */
static void error(struct rp_buf *b, const struct rp_facts *f, enum rp_error_class c)
{
	const char *type = *f->error_type ? f->error_type : rp_error_class_names[c];

	LIT(b, ",\"error\":{");
	if (c == RP_ERROR_CANCELLED) {
		LIT(b, "\"code\":499,\"type\":\"RequestCancellationError\","
		       "\"message\":\"The client went away before the response had ended\"}");
		return;
	}
	if (f->status >= 400) {
		LIT(b, "\"code\":");
		rp_put_i64(b, f->status);
		LIT(b, ",");
	}
	LIT(b, "\"type\":");
	rp_put_string_or_null(b, type);
	LIT(b, ",\"message\":");
	rp_put_string_or_null(b, rp_error_class_names[c]);
	LIT(b, "}");
}

static void gaps(struct rp_buf *b, bool *any, const struct rp_facts *f)
{
	const struct rp_metric_def *d = &rp_metric_defs[RP_METRIC_INTER_CHUNK_LATENCY];

	if (*any)
		LIT(b, ",");
	*any = true;
	rp_put_string_or_null(b, d->tag);
	LIT(b, ":{\"value\":[");
	for (size_t i = 0; i < f->n_icl; i++) {
		if (i)
			LIT(b, ",");
		rp_cal_put_real(b, (double)f->icl[i] * d->to_display);
	}
	LIT(b, "],\"unit\":");
	rp_put_string_or_null(b, d->display);
	LIT(b, "}");
}

int rp_aiperf_record(void *aiperf, const struct rp_facts *f)
{
	struct rp_aiperf *a = aiperf;
	enum rp_error_class c = rp_error_class(f);
	struct rp_buf *b = &a->b;
	bool any = false;
	double v;

	if (f->start_wall == RP_NONE || c == RP_ERROR_UNSEEN) {
		a->left_out++;
		return 0;
	}
	if (!*a->model)
		snprintf(a->model, sizeof(a->model), "%s", f->model);
	else if (*f->model && strcmp(a->model, f->model) != 0)
		a->models = true;
	LIT(b, "{\"metadata\":{\"session_num\":");
	rp_buf_u64(b, a->n++);
	if (*f->x_request_id) {
		LIT(b, ",\"x_request_id\":");
		rp_put_string_or_null(b, f->x_request_id);
	}
	LIT(b, ",\"request_start_ns\":");
	rp_put_i64(b, f->start_wall);
	if (f->stream == 1 && f->first_byte != RP_NONE && f->receive != RP_NONE) {
		LIT(b, ",\"request_ack_ns\":");
		rp_put_i64(b, f->start_wall + f->receive + f->first_byte);
	}
	LIT(b, ",\"request_end_ns\":");
	rp_put_i64(b, end_of(f));
	LIT(b, ",\"worker_id\":\"reqprobe\",\"record_processor_id\":\"reqprobe\","
	       "\"benchmark_phase\":\"profiling\",\"was_cancelled\":");
	rp_put_bool(b, c == RP_ERROR_CANCELLED);
	if (c == RP_ERROR_CANCELLED) {
		LIT(b, ",\"cancellation_time_ns\":");
		rp_put_i64(b, end_of(f));
	}
	LIT(b, "},\"metrics\":{");
	for (int m = 0; m < RP_METRIC_COUNT; m++)
		if (in_lines((enum rp_metric)m) && rp_metric_of(f, (enum rp_metric)m, &v))
			value(b, &any, (enum rp_metric)m, v);
	if (f->icl && f->n_icl && c == RP_ERROR_NONE)
		gaps(b, &any, f);
	if (a->slos && c == RP_ERROR_NONE) /* AIPerf asks it of those */
		value(b, &any, RP_METRIC_GOOD_REQUEST_COUNT,
		      rp_slos_judge(a->slos, f) == RP_SLO_MET);
	LIT(b, "}");
	if (c != RP_ERROR_NONE)
		error(b, f, c);
	LIT(b, "}\n");
	return b->n >= FLUSH_AT ? flush(a) : 0;
}

static void statistic(struct rp_buf *b, const char *name, double v)
{
	LIT(b, ",\"");
	rp_buf_str(b, name);
	LIT(b, "\":");
	rp_cal_put_real(b, v);
}

static void put_stats(struct rp_buf *b, enum rp_metric m, const struct rp_stats_of *s)
{
	const struct rp_metric_def *d = &rp_metric_defs[m];
	char name[8];

	LIT(b, ",\n  ");
	rp_put_string_or_null(b, d->tag);
	LIT(b, ":{\"unit\":");
	rp_put_string_or_null(b, d->display);
	statistic(b, "avg", s->avg * d->to_display);
	for (int i = 0; i < RP_STATS_PERCENTILES; i++) {
		snprintf(name, sizeof(name), "p%u", rp_stats_percentiles[i]);
		statistic(b, name, s->p[i] * d->to_display);
	}
	statistic(b, "min", s->min * d->to_display);
	statistic(b, "max", s->max * d->to_display);
	statistic(b, "std", s->std * d->to_display);
	LIT(b, ",\"count\":");
	rp_buf_u64(b, s->n);
	statistic(b, "sum", s->sum * d->to_display);
	LIT(b, "}");
}

static void put_summary(struct rp_buf *b, const struct rp_aiperf *a, const struct rp_group *g,
			bool exact)
{
	double v;

	LIT(b, "{\n  \"schema_version\":\"1.4\",\n  \"start_time\":");
	if (g->first == RP_NONE)
		LIT(b, "null");
	else
		rp_put_time(b, g->first);
	LIT(b, ",\n  \"end_time\":");
	if (g->sum.last == RP_NONE)
		LIT(b, "null");
	else
		rp_put_time(b, g->sum.last);
	LIT(b, ",\n  \"was_cancelled\":false,\n  \"metadata\":{\"source\":\"reqprobe " RP_VERSION
	       "\",\"scope\":\"server\",\"exact\":");
	rp_put_bool(b, exact);
	LIT(b, ",\"model\":");
	rp_put_string_or_null(b, a->models ? NULL : a->model);
	LIT(b, "}");
	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		const struct rp_metric_def *d = &rp_metric_defs[m];

		if (d->flags & (RP_METRIC_FLAG(OWN) | RP_METRIC_FLAG(INTERNAL)))
			continue;
		if (g->fig->stats[m].n && (rp_metric_per_request((enum rp_metric)m) ||
					   m == RP_METRIC_INTER_CHUNK_LATENCY))
			put_stats(b, (enum rp_metric)m, &g->fig->stats[m]);
		else if (rp_metrics_value(&g->sum, (enum rp_metric)m, &v)) {
			LIT(b, ",\n  ");
			rp_put_string_or_null(b, d->tag);
			LIT(b, ":{\"unit\":");
			rp_put_string_or_null(b, d->display);
			statistic(b, "avg", v * d->to_display);
			LIT(b, "}");
		}
	}
	LIT(b, "\n}\n");
}

/* Written through to the disk before it takes its name. */
static int settle(FILE *f, const char *tmp, const char *name)
{
	int e = 0;

	errno = 0;
	if (fflush(f) || ferror(f) || fsync(fileno(f)) < 0)
		e = errno ? -errno : -EIO;
	if (fclose(f) && !e)
		e = -EIO;
	if (!e && rename(tmp, name) < 0)
		e = -errno;
	return e;
}

int rp_aiperf_finish(struct rp_aiperf *a, const struct rp_group *total, bool exact, char *err,
		     size_t errlen)
{
	FILE *f;
	int e = flush(a);

	put_summary(&a->b, a, total, exact);
	f = e ? NULL : fopen(a->summary_tmp, "we");
	if (!e && (!f || a->b.oom || fwrite(a->b.p, 1, a->b.n, f) != a->b.n))
		e = a->b.oom ? -ENOMEM : -errno;
	if (!e) {
		/* the lines first: the summary says that they are there */
		e = settle(a->f, a->lines_tmp, a->lines);
		a->f = NULL;
	}
	if (!e)
		e = settle(f, a->summary_tmp, a->summary);
	else if (f)
		fclose(f);
	if (e)
		snprintf(err, errlen, "can't write %s and %s: %s", a->lines, a->summary,
			 strerror(-e));
	return e;
}

uint64_t rp_aiperf_left_out(const struct rp_aiperf *a)
{
	return a->left_out;
}

void rp_aiperf_close(struct rp_aiperf *a)
{
	if (!a)
		return;
	if (a->f)
		fclose(a->f);
	if (a->lines_tmp)
		unlink(a->lines_tmp);
	if (a->summary_tmp)
		unlink(a->summary_tmp);
	free(a->lines);
	free(a->lines_tmp);
	free(a->summary);
	free(a->summary_tmp);
	free(a->b.p);
	free(a);
}
