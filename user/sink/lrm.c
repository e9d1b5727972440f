// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "sink/lrm.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/clock.h"
#include "lib/map.h"
#include "sink/compat.h"
#include "sink/output.h"

struct rp_lrm_sink {
	struct rp_lrm *core;
	struct rp_map flying; /* (key, 0) -> struct rp_lrm_request; as many as the timeline has */
	uint64_t lost;	      /* requests that found no memory */
};

static struct rp_lrm_request *find(const struct rp_lrm_sink *s, uint64_t key)
{
	return rp_map_get(&s->flying, key, 0);
}

static enum rp_lrm_tier tier(const char *name)
{
	for (int i = 1; i < RP_LRM_TIERS; i++)
		if (!strcmp(name, rp_lrm_tier_names[i]))
			return (enum rp_lrm_tier)i;
	return RP_LRM_NO_TIER;
}

static void on_started(void *ctx, const struct rp_request_info *i)
{
	struct rp_lrm_sink *s = ctx;
	const struct rp_lrm_start b = {
		.begun = i->ts,
		.input = RP_NONE,
		.rank = RP_NONE,
		.features = (i->guided ? RP_LRM_XGRAMMAR : 0) | (i->tools ? RP_LRM_TOOLS : 0) |
			    (i->images ? RP_LRM_IMAGE : 0),
		.tier = tier(i->service_tier),
		.seed = i->key,
		.no_itl = i->choices > 1,
		.later = true,
	};
	struct rp_lrm_request *q;

	/* images, sound: there are no tokens */
	if (!rp_generative(i->operation) || i->operation == RP_OP_GENERATE)
		return;
	q = rp_lrm_start(s->core, i->ts, &b);
	if (q && rp_map_put(&s->flying, i->key, 0, q)) {
		rp_lrm_drop(s->core, q, i->ts);
		q = NULL;
	}
	s->lost += !q;
}

static void on_tokens(void *ctx, const struct rp_tokens_info *i)
{
	struct rp_lrm_sink *s = ctx;
	struct rp_lrm_request *q = find(s, i->key);

	if (!q)
		return;
	rp_lrm_known(s->core, q, i->ts, i->prompt, i->cached, i->rank);
	rp_lrm_tokens(s->core, q, i->ts, i->ts, i->tokens, i->cached);
}

static void on_ended(void *ctx, uint64_t key, int64_t ts)
{
	struct rp_lrm_sink *s = ctx;
	struct rp_lrm_request *q = find(s, key);

	if (q)
		rp_lrm_leave(s->core, q, ts);
}

static void on_dropped(void *ctx, uint64_t key)
{
	struct rp_lrm_sink *s = ctx;
	struct rp_lrm_request *q = rp_map_del(&s->flying, key, 0);

	if (q)
		rp_lrm_drop(s->core, q, INT64_MIN);
}

static int64_t known(const struct rp_record *r, enum rp_field f)
{
	return r->v[f].known ? r->v[f].i : RP_NONE;
}

static void on_record(void *ctx, const struct rp_record *r)
{
	struct rp_lrm_sink *s = ctx;
	struct rp_lrm_request *q = rp_map_del(&s->flying, r->key, 0);

	if (!q)
		return;
	rp_lrm_known(s->core, q, INT64_MIN, known(r, RP_FIELD_TOK_PROMPT),
		     known(r, RP_FIELD_TOK_CACHED), RP_NONE);
	rp_lrm_total(s->core, q, INT64_MIN, known(r, RP_FIELD_TOK_COMPLETION));
	rp_lrm_end(s->core, q, INT64_MIN, r->end == RP_END_COMPLETE);
}

struct rp_lrm_sink *rp_lrm_sink_new(const struct rp_lrm_opts *o, struct rp_timeline *tl,
				    int64_t now)
{
	struct rp_lrm_sink *s = calloc(1, sizeof(*s));
	const struct rp_observer obs = {
		.ctx = s,
		.started = on_started,
		.tokens = on_tokens,
		.ended = on_ended,
		.dropped = on_dropped,
		.record = on_record,
	};

	if (!s)
		return NULL;
	s->core = rp_lrm_new(o, now);
	if (s->core && !rp_timeline_observe(tl, &obs))
		return s;
	rp_lrm_free(s->core);
	free(s);
	return NULL;
}

void rp_lrm_sink_free(struct rp_lrm_sink *s)
{
	if (!s)
		return;
	rp_lrm_free(s->core);
	rp_map_free(&s->flying);
	free(s);
}

void rp_lrm_sink_render(struct rp_lrm_sink *s, int64_t now, struct rp_expo *e)
{
	const struct rp_label what[] = { { "what", "samples" }, { "what", "requests" } };

	rp_lrm_render(s->core, now, e);
	rp_expo_family(
		e, "reqprobe_lrm_limited_total", RP_EXPO_COUNTER,
		"What a limit kept out of the series of --compat llm-runtime-metrics: samples that left a window early, requests that found no memory.");
	rp_expo_u64(e, &what[0], 1, rp_lrm_cut(s->core));
	rp_expo_u64(e, &what[1], 1, s->lost);
}

/* ---- the output ---- */

static int out_open(const struct rp_options *o, const struct rp_summary_info *info,
		    struct rp_timeline *tl, void **state, char *err, size_t errlen)
{
	(void)info;
	if (!(o->compat & RP_COMPAT_LRM))
		return 0;
	*state = rp_lrm_sink_new(&o->lrm.core, tl, rp_clock_ns(CLOCK_MONOTONIC));
	if (*state)
		return 0;
	snprintf(err, errlen, "no memory for --compat llm-runtime-metrics");
	return -ENOMEM;
}

size_t rp_lrm_reserve(const struct rp_options *o)
{
	return o->compat & RP_COMPAT_LRM ? rp_lrm_ceiling(&o->lrm.core, o->max_requests) : 0;
}

static void out_metrics(void *state, struct rp_expo *e)
{
	rp_lrm_sink_render(state, rp_clock_ns(CLOCK_MONOTONIC), e);
}

static void out_close(void *state)
{
	rp_lrm_sink_free(state);
}

const struct rp_output rp_lrm_output = {
	.name = "llm-runtime-metrics",
	.open = out_open,
	.metrics = out_metrics,
	.close = out_close,
};

/* ---- options ---- */

enum { OPT_WINDOW = 1024, OPT_QUANTILES, OPT_PREFIX, OPT_LABEL, OPT_ITL_RATE, OPT_SAMPLES };

static const struct argp_option options[] = {
	{ "lrm-window", OPT_WINDOW, "SECONDS", 0,
	  "llm-runtime-metrics: length of the window (default 60)", 0 },
	{ "lrm-quantiles", OPT_QUANTILES, "Q,...", 0,
	  "llm-runtime-metrics: quantiles (default 0.5,0.9,0.99)", 0 },
	{ "lrm-prefix", OPT_PREFIX, "NAME", 0,
	  "llm-runtime-metrics: prefix of the windowed series (default request_metrics)", 0 },
	{ "lrm-label", OPT_LABEL, "KEY=VALUE", 0,
	  "llm-runtime-metrics: a label of every series; may be repeated", 0 },
	{ "lrm-itl-rate", OPT_ITL_RATE, "SHARE", 0,
	  "llm-runtime-metrics: share of the gaps between tokens that is sampled (default 0.05)",
	  0 },
	{ "lrm-samples", OPT_SAMPLES, "N", 0,
	  "llm-runtime-metrics: samples that a distribution keeps (default 32768)", 0 },
	{ 0 },
};

/* A decimal number from min to max that ends at `end`. Locales don't matter: LC_NUMERIC is C. */
static bool number(const char *s, char end, double min, double max, double *v, const char **after)
{
	char *e;

	if (!isdigit((unsigned char)*s) && *s != '.')
		return false;
	errno = 0;
	*v = strtod(s, &e);
	*after = e;
	return !errno && (*e == end || !*e) && *v >= min && *v <= max;
}

static void take_quantiles(struct rp_lrm_opts *o, const char *list)
{
	const char *p = list, *e;

	for (o->n_quantiles = 0;; p = e + 1) {
		double q;

		if (!number(p, ',', 0, 1, &q, &e))
			rp_refuse("--lrm-quantiles %s: numbers from 0 to 1, as in 0.5,0.99", list);
		if (o->n_quantiles == RP_LRM_QUANTILES)
			rp_refuse("--lrm-quantiles: at most %d", RP_LRM_QUANTILES);
		for (unsigned i = 0; i < o->n_quantiles; i++)
			if (o->quantiles[i] == q)
				rp_refuse("--lrm-quantiles %s: the same one twice", list);
		o->quantiles[o->n_quantiles++] = q;
		if (!*e)
			return;
	}
}

static bool name_ok(const char *s, size_t n, bool colon)
{
	for (size_t i = 0; i < n; i++)
		if (!isalpha((unsigned char)s[i]) && s[i] != '_' && !(colon && s[i] == ':') &&
		    !(i && isdigit((unsigned char)s[i])))
			return false;
	return n > 0;
}

static void take_label(struct rp_lrm_opts *o, char *arg)
{
	static const char *const own[] = { "dp_rank", "feature", "quantile", "service_tier" };
	char *eq = strchr(arg, '=');

	if (!eq || !name_ok(arg, (size_t)(eq - arg), false) || !strncmp(arg, "__", 2))
		rp_refuse("--lrm-label %s: KEY=VALUE, the key of letters, digits and _", arg);
	*eq = '\0';
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (!strcmp(arg, own[i]))
			rp_refuse("--lrm-label %s: the series have a label %s already", arg, arg);
	for (unsigned i = 0; i < o->n_labels; i++)
		if (!strcmp(arg, o->labels[i].key))
			rp_refuse("--lrm-label %s: given twice", arg);
	if (o->n_labels == RP_LRM_LABELS)
		rp_refuse("at most %d --lrm-label", RP_LRM_LABELS);
	o->labels[o->n_labels++] = (struct rp_label){ arg, eq + 1 };
}

static error_t parse(int key, char *arg, struct argp_state *st)
{
	struct rp_options *o = st->input;
	struct rp_lrm_opts *c = &o->lrm.core;
	const char *e;
	double v;

	if (!o->lrm.ready) {
		rp_lrm_defaults(c);
		o->lrm.ready = true;
	}
	o->lrm.given |= key >= OPT_WINDOW && key <= OPT_SAMPLES;
	switch (key) {
	case OPT_WINDOW:
		if (!number(arg, '\0', 1, 3600, &c->window_s, &e))
			rp_refuse("--lrm-window %s: seconds, from 1 to 3600", arg);
		return 0;
	case OPT_QUANTILES:
		take_quantiles(c, arg);
		return 0;
	case OPT_PREFIX:
		if (!name_ok(arg, strlen(arg), true))
			rp_refuse("--lrm-prefix %s: a name of letters, digits, _ and :", arg);
		c->prefix = arg;
		return 0;
	case OPT_LABEL:
		take_label(c, arg);
		return 0;
	case OPT_ITL_RATE:
		if (!number(arg, '\0', 0, 1, &c->itl_rate, &e))
			rp_refuse("--lrm-itl-rate %s: a share from 0 to 1", arg);
		return 0;
	case OPT_SAMPLES:
		if (!number(arg, '\0', 64, 1 << 24, &v, &e))
			rp_refuse("--lrm-samples %s: a number from 64 to 16777216", arg);
		c->max_samples = (uint32_t)v;
		return 0;
	case ARGP_KEY_END:
		if (o->lrm.given && !(o->compat & RP_COMPAT_LRM))
			rp_refuse("--lrm-* are options of --compat llm-runtime-metrics");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp rp_lrm_argp = { options, parse, NULL, NULL, NULL, NULL, NULL };
