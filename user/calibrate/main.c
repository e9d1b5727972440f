// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* main.c - the verb calibrate: files in, files and one summary out. */
#include "calibrate/calibrate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "options.h"
#include "run.h"

enum { OUT_ADJUSTED, OUT_LINES, OUT_JOIN, OUT_JOINED, OUTS };

struct work {
	struct rp_cal_options o;
	struct rp_adjust adjust;
	struct rp_join join;
	struct rp_out out[OUTS];
	bool adjusts;
};

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n >= k && !strcmp(s + n - k, end);
}

static bool same_file(const char *a, const char *b)
{
	struct stat x, y;

	return a && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

static int open_out(struct work *w, int which, const char *dir, const char *name)
{
	char *path = NULL;
	int err;

	if (asprintf(&path, "%s%s%s", dir ? dir : "", dir ? "/" : "", name) < 0) {
		rp_say("no memory for %s", name);
		return -ENOMEM;
	}
	if (same_file(w->o.records, path) || same_file(w->o.latency, path) ||
	    same_file(w->o.join, path)) {
		rp_say("-o would write over %s, which is read", path);
		err = -EINVAL;
	} else {
		err = rp_out_open(&w->out[which], path);
	}
	free(path);
	return err;
}

/* -o: FILE.jsonl is the line per request, FILE.json the summary, of the join if there
 * is one; anything else a directory for all of them. */
static int open_outs(struct work *w)
{
	const char *to = w->o.out, *join = w->o.join;
	struct stat st;
	bool dir;
	int err = 0;

	if (!to)
		return 0;
	dir = stat(to, &st) == 0 && S_ISDIR(st.st_mode);
	if (!dir && ends_with(to, ".jsonl"))
		return open_out(w, join ? OUT_JOINED : OUT_LINES, NULL, to);
	if (!dir && ends_with(to, ".json"))
		return open_out(w, join ? OUT_JOIN : OUT_ADJUSTED, NULL, to);
	if (!dir && mkdir(to, 0777) < 0) {
		err = -errno;
		rp_say("can't make the directory %s: %s", to, strerror(-err));
		return err;
	}
	if (w->adjusts)
		err = open_out(w, OUT_ADJUSTED, to, "network_adjusted.json");
	if (!err && w->adjusts)
		err = open_out(w, OUT_LINES, to, "network_adjusted.jsonl");
	if (!err && join)
		err = open_out(w, OUT_JOIN, to, "join.json");
	if (!err && join)
		err = open_out(w, OUT_JOINED, to, "joined.jsonl");
	return err;
}

static int read_rtt(struct work *w)
{
	struct rp_cal_rtt *rtt = &w->adjust.rtt;
	int err;

	if (!isnan(w->o.mean_ms)) {
		rtt->ns = w->o.mean_ms * 1e6;
		rtt->known = true;
	} else if (w->o.latency) {
		err = rp_adjust_latency(&w->adjust, w->o.latency);
		if (err == -ENODATA)
			rp_say("%s has no successful probe (%llu failed): nothing to adjust by",
			       w->o.latency, (unsigned long long)rtt->failed);
		if (err && (err != -ENODATA || !w->o.join))
			return err;
		if (!err && !(rtt->ns > 0)) {
			rp_say("the mean of %s is 0: nothing to adjust by", w->o.latency);
			return -ENODATA;
		}
	}
	w->adjusts = rtt->known;
	return 0;
}

static int too_many(const char *path, int err)
{
	if (err == -EFBIG)
		rp_say("%s has more than %u records: too many to keep", path, RP_CAL_MAX_RECORDS);
	else if (err == -ENOMEM)
		rp_say("no memory for the records of %s", path);
	return err;
}

/* Once through AIPerf's records, for the adjustment and for the join. */
static int read_records(struct work *w)
{
	struct rp_adjust *a = &w->adjust;
	struct rp_out *lines = &w->out[OUT_LINES];
	struct rp_lines l;
	json_t *rec;
	bool none;
	int err = rp_lines_open(&l, w->o.records), e;

	if (err)
		return err;
	while (!err && (rec = rp_lines_next(&l))) {
		err = rp_adjust_record(a, rec, lines->f ? &lines->b : NULL);
		if (!err && lines->f && lines->b.n >= 64 * 1024)
			err = rp_out_flush(lines);
		if (!err && w->o.join)
			err = rp_join_client(&w->join, rec);
		json_decref(rec);
	}
	a->broken += l.broken;
	w->join.broken += l.broken;
	none = !a->records && !a->warmup;
	if (err || none)
		l.broken = 0; /* a refusal is one line */
	e = rp_lines_close(&l);
	if (err)
		return lines->error ? err : too_many(w->o.records, err);
	if (!e && none) {
		rp_say("%s has no record of AIPerf (metadata and metrics) in %llu lines",
		       w->o.records, (unsigned long long)l.n);
		return -ENODATA;
	}
	return e;
}

static int read_join(struct work *w)
{
	struct rp_lines l;
	json_t *rec;
	bool none;
	int err = rp_lines_open(&l, w->o.join), e;

	if (err)
		return err;
	while (!err && (rec = rp_lines_next(&l))) {
		err = rp_join_server(&w->join, rec);
		json_decref(rec);
	}
	w->join.broken += l.broken;
	none = !w->join.n[1];
	if (err || none)
		l.broken = 0; /* a refusal is one line */
	e = rp_lines_close(&l);
	if (err)
		return too_many(w->o.join, err);
	if (e)
		return e;
	if (none) {
		rp_say("%s has no record of reqprobe in %llu lines", w->o.join,
		       (unsigned long long)l.n);
		return -ENODATA;
	}
	if (w->join.other_lines)
		rp_say("%s: %llu lines are no reqprobe.request/1 and were left out", w->o.join,
		       (unsigned long long)w->join.other_lines);
	return 0;
}

static void warn(const struct rp_adjust *a)
{
	if (a->clamped[RP_CAL_LATENCY] || a->clamped[RP_CAL_TTFT] || a->clamped[RP_CAL_TTFO])
		rp_say("the RTT of %.3f ms exceeds %llu of %zu request latencies, %llu of %zu TTFTs and %llu of %zu times to first output token: these count as 0",
		       a->rtt.ns / 1e6, (unsigned long long)a->clamped[RP_CAL_LATENCY],
		       a->n[RP_CAL_LATENCY], (unsigned long long)a->clamped[RP_CAL_TTFT],
		       a->n[RP_CAL_TTFT], (unsigned long long)a->clamped[RP_CAL_TTFO],
		       a->n[RP_CAL_TTFO]);
	if (a->inexact)
		rp_say("%llu values are no whole nanoseconds: AIPerf did not write them, the last digits may differ from its own",
		       (unsigned long long)a->inexact);
	if (a->bad_unit)
		rp_say("%llu values are not in ms and were left out",
		       (unsigned long long)a->bad_unit);
}

static int print(struct work *w)
{
	const struct rp_adjust *a = w->adjusts ? &w->adjust : NULL;
	const struct rp_join *j = w->o.join ? &w->join : NULL;
	struct rp_buf b = { 0 };
	int err = 0;

	if (w->o.json) {
		rp_cal_put_all(&b, a, j);
		if (!b.oom)
			fwrite(b.p, 1, b.n, stdout);
		err = b.oom ? -ENOMEM : 0;
		free(b.p);
	} else {
		rp_cal_table(stdout, &w->o, a, j);
	}
	errno = EIO;
	if (fflush(stdout) || ferror(stdout))
		err = -errno;
	if (err)
		rp_say("can't write to standard output: %s", strerror(-err));
	return err;
}

static int run(struct work *w)
{
	int err = read_rtt(w);

	if (!err)
		err = open_outs(w);
	if (!err)
		err = read_records(w);
	if (!err && w->o.join)
		err = read_join(w);
	if (err)
		return err;
	if (w->adjusts) {
		warn(&w->adjust);
		err = rp_adjust_finish(&w->adjust);
	}
	if (!err && w->o.join)
		err = rp_join_run(&w->join, &w->adjust.rtt,
				  w->out[OUT_JOINED].f ? &w->out[OUT_JOINED] : NULL);
	if (err) {
		if (!w->out[OUT_JOINED].error)
			rp_say("no memory for the statistics");
		return err;
	}
	if (w->out[OUT_ADJUSTED].f)
		rp_cal_put_adjusted(&w->out[OUT_ADJUSTED].b, &w->adjust);
	if (w->out[OUT_JOIN].f)
		rp_cal_put_join(&w->out[OUT_JOIN].b, &w->join);
	return 0;
}

int rp_calibrate(int argc, char **argv)
{
	struct work w = { 0 };
	int err, e, st;

	st = rp_cal_parse(argc, argv, &w.o);
	if (st)
		return st < 0 ? RP_EXIT_OK : st;
	err = run(&w);
	for (int i = 0; i < OUTS; i++) {
		e = rp_out_close(&w.out[i], err);
		err = err ? err : e;
	}
	if (!err)
		err = print(&w);
	rp_adjust_free(&w.adjust);
	rp_join_free(&w.join);
	rp_cal_options_free(&w.o);
	return err ? RP_EXIT_FAILED : RP_EXIT_OK;
}
