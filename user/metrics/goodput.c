// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "metrics/goodput.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "run.h"
#include "sink/output.h"

struct goodput {
	const struct rp_slos *slos;
	uint64_t judged, good, unknown;
	uint64_t met[RP_SLOS_MAX], unseen[RP_SLOS_MAX]; /* unseen: without the figure */
	bool quiet;
};

static void record(void *ctx, const struct rp_record *r)
{
	struct goodput *g = ctx;
	enum rp_slo_verdict v;
	struct rp_facts f;

	rp_facts_of(r, &f, NULL);
	if (rp_error_class(&f) == RP_ERROR_UNSEEN)
		return;
	v = rp_slos_judge(g->slos, &f);
	g->judged++;
	g->good += v == RP_SLO_MET;
	g->unknown += v == RP_SLO_UNKNOWN;
	for (unsigned i = 0; i < g->slos->n; i++) {
		v = rp_slo_judge(g->slos, i, &f);
		g->met[i] += v == RP_SLO_MET;
		g->unseen[i] += v == RP_SLO_UNKNOWN;
	}
}

static int goodput_open(const struct rp_options *o, const struct rp_summary_info *info,
			struct rp_timeline *tl, void **state, char *err, size_t errlen)
{
	struct goodput *g;
	int e;

	(void)info;
	if (!o->goodput.slos.n)
		return 0;
	g = calloc(1, sizeof(*g));
	if (!g) {
		snprintf(err, errlen, "no memory for --goodput");
		return -ENOMEM;
	}
	g->slos = &o->goodput.slos;
	g->quiet = o->quiet;
	e = rp_timeline_observe(tl, &(struct rp_observer){ .ctx = g, .record = record });
	if (e) {
		snprintf(err, errlen, "--goodput: no room for one more output");
		free(g);
		return e;
	}
	*state = g;
	return 0;
}

static const struct rp_metric_def *def(const struct goodput *g, unsigned i)
{
	return &rp_metric_defs[g->slos->slo[i].metric];
}

static void goodput_metrics(void *state, struct rp_expo *e)
{
	const struct goodput *g = state;

	rp_expo_family(e, "reqprobe_slo_requests_total", RP_EXPO_COUNTER,
		       "Requests whose end was seen, with --goodput.");
	rp_expo_u64(e, NULL, 0, g->judged);
	rp_expo_family(e, "reqprobe_good_requests_total", RP_EXPO_COUNTER,
		       "Requests that were answered in full and met all objectives of --goodput.");
	rp_expo_u64(e, NULL, 0, g->good);
	rp_expo_family(e, "reqprobe_slo_unknown_requests_total", RP_EXPO_COUNTER,
		       "Requests that were answered in full, miss no objective of --goodput, and "
		       "lack the figure of one: neither good nor missed.");
	rp_expo_u64(e, NULL, 0, g->unknown);
	rp_expo_family(e, "reqprobe_slo_met_total", RP_EXPO_COUNTER,
		       "Requests that met this objective of --goodput.");
	for (unsigned i = 0; i < g->slos->n; i++)
		rp_expo_u64(e, &(struct rp_label){ "slo", def(g, i)->tag }, 1, g->met[i]);
	rp_expo_family(
		e, "reqprobe_slo_unknown_total", RP_EXPO_COUNTER,
		"Requests that were answered in full, without the figure of this objective.");
	for (unsigned i = 0; i < g->slos->n; i++)
		rp_expo_u64(e, &(struct rp_label){ "slo", def(g, i)->tag }, 1, g->unseen[i]);
	rp_expo_family(e, "reqprobe_slo_limit", RP_EXPO_GAUGE,
		       "Limit of this objective, in the unit of the label.");
	for (unsigned i = 0; i < g->slos->n; i++) {
		const struct rp_label l[] = { { "slo", def(g, i)->tag },
					      { "unit", def(g, i)->display } };

		rp_expo_double(e, l, 2, g->slos->slo[i].shown);
	}
}

static int goodput_finish(void *state)
{
	const struct goodput *g = state;
	uint64_t known = g->judged - g->unknown;
	char line[1024], more[64] = "", share[32] = "";
	size_t n = 0;

	if (g->quiet || !g->judged)
		return 0;
	if (known) /* of none there is no share */
		snprintf(share, sizeof(share), " (%.1f %%)",
			 100.0 * (double)g->good / (double)known);
	if (g->unknown)
		snprintf(more, sizeof(more), ", %llu more can't be judged",
			 (unsigned long long)g->unknown);
	for (unsigned i = 0; i < g->slos->n && n < sizeof(line); i++)
		n += (size_t)snprintf(
			line + n, sizeof(line) - n, "%s %s %s %g %s: %llu", i ? "," : "",
			def(g, i)->tag,
			def(g, i)->flags & RP_METRIC_FLAG(LARGER_IS_BETTER) ? ">=" : "<=",
			g->slos->slo[i].shown, def(g, i)->display, (unsigned long long)g->met[i]);
	rp_say("%llu of %llu requests good%s%s;%s", (unsigned long long)g->good,
	       (unsigned long long)known, share, more, line);
	return 0;
}

const struct rp_output rp_goodput_output = {
	.name = "goodput",
	.open = goodput_open,
	.metrics = goodput_metrics,
	.finish = goodput_finish,
	.close = free,
};

/* ---- options ---- */

enum { OPT_GOODPUT = 2048 };

static error_t parse(int key, char *arg, struct argp_state *st)
{
	struct rp_options *o = st->input;
	char err[256];

	if (key != OPT_GOODPUT)
		return ARGP_ERR_UNKNOWN;
	if (o->goodput.slos.n)
		rp_refuse("--goodput is given twice: all objectives go into one");
	if (rp_slo_parse(arg, &o->goodput.slos, err, sizeof(err)))
		rp_refuse("--goodput: %s", err);
	return 0;
}

static const struct argp_option options[] = {
	{ "goodput", OPT_GOODPUT, "SLOS", 0,
	  "Count requests that meet these objectives (see reqprobe metrics), in one argument", 0 },
	{ 0 },
};

const struct argp rp_goodput_argp = { options, parse, NULL, NULL, NULL, NULL, NULL };
