// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* render.c - the families, by name as the package sorts them, and their samples. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lrm/internal.h"

#define SECOND 1000000000LL

/*
 * Label sets: of all, of a feature, of a rank, of a tier. A sample is of several; which
 * is a mask of bits.
 */
#define SET_ALL 0
#define SET_FEATURE 1 /* none, xgrammar, tools, image */
#define SET_RANK 5
#define SET_TIER (SET_RANK + RP_LRM_RANKS)
#define SETS (SET_TIER + RP_LRM_TIERS - 1)

static const char *const features[] = { "none", "xgrammar", "tools", "image" };

/* Which label sets a series has. */
enum { BY_FEATURE = 1, BY_RANK = 2, BY_TIER = 4, WITH_ALL = 8 /* feature="all" beside these */ };
#define BY_ALL (BY_FEATURE | BY_RANK | BY_TIER)

enum quantiles { Q_NONE, Q_USER, Q_ITL, Q_RATIO, Q_SETS };

static const struct {
	const char *name;
	uint8_t by, quantiles;
} series[RP_LRM_SERIES] = {
	[S_TTFT] = { "ttft_ms", BY_ALL | WITH_ALL, Q_USER },
	[S_ITL] = { "itl_ms", BY_ALL | WITH_ALL, Q_ITL },
	[S_FIFTH] = { "time_to_fifth_token_ms", BY_ALL | WITH_ALL, Q_USER },
	[S_FIRST_TO_FIFTH] = { "first_to_fifth_token_itl_ms", BY_FEATURE | WITH_ALL, Q_USER },
	[S_PER_INPUT] = { "ttft_ms_per_input_token", 0, Q_USER },
	[S_PER_NEW_INPUT] = { "ttft_ms_per_net_new_input_token", 0, Q_USER },
	[S_INPUT_LEN] = { "input_length_tokens", 0, Q_USER },
	[S_OUTPUT_LEN] = { "output_length_tokens", 0, Q_USER },
	[S_CACHE] = { "kv_cache_hit_rate", BY_RANK | BY_TIER, Q_RATIO },
	[S_INPUT] = { "input_tokens", 0, Q_USER },
	[S_OUTPUT] = { "output_tokens", 0, Q_USER },
	[S_NEW_INPUT] = { "net_new_input_tokens", 0, Q_USER },
	[S_REQUEST] = { "request", BY_ALL, Q_USER },
	[S_SUCCESS] = { "successful_request", BY_RANK | BY_TIER, Q_NONE },
	[S_CANCEL_0] = { "pre_first_token_cancellation", 0, Q_NONE },
	[S_CANCEL_20] = { "pre_20_token_cancellation", 0, Q_NONE },
	[S_CANCEL_MID] = { "mid_stream_cancellation", 0, Q_NONE },
};

static const char *const counters[C_COUNT] = {
	[C_REQUESTS] = "total_requests",
	[C_SUCCESS] = "total_successful_requests",
	[C_CANCEL_0] = "total_pre_first_token_cancellations",
	[C_CANCEL_20] = "total_pre_20_token_cancellations",
	[C_CANCEL_MID] = "total_mid_stream_cancellations",
	[C_INPUT] = "total_input_tokens",
	[C_OUTPUT] = "total_output_tokens",
	[C_NEW_INPUT] = "total_net_new_input_tokens",
	[C_HITS] = "total_kv_cache_hits_tokens",
	[C_LOOKUPS] = "total_kv_cache_lookup_tokens",
	[C_ITL] = "total_itl_samples_recorded",
};

static const char *const gauges[G_COUNT] = {
	[G_REQUESTS] = "inflight_requests",
	[G_INPUT] = "inflight_input_tokens",
	[G_OUTPUT] = "inflight_output_tokens",
	[G_FIFTH_REQUESTS] = "inflight_first_to_fifth_token_requests",
	[G_FIFTH_INPUT] = "inflight_first_to_fifth_token_input_tokens",
};

enum kind {
	K_COUNTER,
	K_CURRENT,
	K_MEAN,
	K_LIFETIME,
	K_AVERAGE,
	K_QUANTILE,
	K_RATE,
	K_RATE_QUANTILE,
	K_RATIO,
	K_NUMERATOR,
	K_DENOMINATOR,
	K_RATIO_QUANTILE,
};

#define MAX_Q (RP_LRM_QUANTILES + 10)
struct quantile_set {
	unsigned n;
	double q[MAX_Q]; /* ascending */
	char text[MAX_Q][12];
};

struct rp_lrm_family {
	char *name;
	enum kind kind;
	int which; /* counter, gauge or series */
};

struct rp_lrm_texts {
	struct quantile_set q[Q_SETS];
	char rank[RP_LRM_RANKS][4];
};

size_t rp_lrm_number(char out[RP_LRM_NUMBER], double v)
{
	char text[40], digits[20];
	int n = 0, point;
	size_t at = 0;

	if (isnan(v) || isinf(v)) {
		strcpy(out, isnan(v) ? "NaN" : v < 0 ? "-inf" : "inf");
		return strlen(out);
	}
	for (int more = 0; more < 17; more++) {
		snprintf(text, sizeof(text), "%.*e", more, fabs(v));
		if (strtod(text, NULL) == fabs(v))
			break;
	}
	for (const char *p = text; *p != 'e'; p++)
		if (*p != '.')
			digits[n++] = *p;
	while (n > 1 && digits[n - 1] == '0')
		n--;
	point = 1 + atoi(strchr(text, 'e') + 1); /* so many of them before it */
	if (signbit(v))
		out[at++] = '-';
	if (point <= 0) {
		out[at++] = '0';
		out[at++] = '.';
	}
	for (int i = point; i < 0; i++)
		out[at++] = '0';
	for (int i = 0; i < n; i++) {
		if (i == point && i > 0)
			out[at++] = '.';
		out[at++] = digits[i];
	}
	for (int i = n; i < point; i++)
		out[at++] = '0';
	out[at] = '\0';
	return at;
}

/* ---- set up ---- */

/* The package's text of a quantile: six decimals, less the zeros behind the first. */
static void quantile_add(struct quantile_set *s, double q)
{
	char text[12], *end;
	unsigned at = 0;

	snprintf(text, sizeof(text), "%.6f", q);
	for (end = text + strlen(text) - 1; *end == '0' && end[-1] != '.'; end--)
		*end = '\0';
	for (unsigned i = 0; i < s->n; i++)
		if (!strcmp(s->text[i], text))
			return;
	while (at < s->n && s->q[at] < q)
		at++;
	memmove(&s->q[at + 1], &s->q[at], (s->n - at) * sizeof(s->q[0]));
	memmove(&s->text[at + 1], &s->text[at], (s->n - at) * sizeof(s->text[0]));
	s->q[at] = q;
	strcpy(s->text[at], text);
	s->n++;
}

static bool family(struct rp_lrm *l, enum kind kind, int which, const char *prefix,
		   const char *name, const char *suffix)
{
	struct rp_lrm_family *f = &l->families[l->n_families];

	f->kind = kind;
	f->which = which;
	if (asprintf(&f->name, "%s%s%s", prefix, name, suffix) < 0)
		return false;
	l->n_families++;
	return true;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct rp_lrm_family *)a)->name,
		      ((const struct rp_lrm_family *)b)->name);
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct rp_label *)a)->key, ((const struct rp_label *)b)->key);
}

bool rp_lrm_render_init(struct rp_lrm *l)
{
	static const double itl[] = { 0.1, 0.5, 0.9, 0.99, 0.999 };
	static const double ratio[] = { 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999 };
	char prefix[256];
	bool ok = true;

	l->texts = calloc(1, sizeof(*l->texts));
	l->families = calloc(C_COUNT + 2 * G_COUNT + 1 + 4 * RP_LRM_SERIES, sizeof(*l->families));
	if (!l->texts || !l->families || l->o.n_quantiles > RP_LRM_QUANTILES ||
	    l->o.n_labels > RP_LRM_LABELS)
		return false;
	for (unsigned i = 0; i < l->o.n_quantiles; i++) {
		quantile_add(&l->texts->q[Q_USER], l->o.quantiles[i]);
		quantile_add(&l->texts->q[Q_RATIO], l->o.quantiles[i]);
	}
	for (unsigned i = 0; i < sizeof(itl) / sizeof(itl[0]); i++)
		quantile_add(&l->texts->q[Q_ITL], itl[i]);
	for (unsigned i = 0; i < sizeof(ratio) / sizeof(ratio[0]); i++)
		quantile_add(&l->texts->q[Q_RATIO], ratio[i]);
	for (int i = 0; i < RP_LRM_RANKS; i++)
		snprintf(l->texts->rank[i], sizeof(l->texts->rank[i]), "%d", i);
	qsort(l->o.labels, l->o.n_labels, sizeof(l->o.labels[0]), by_key);

	snprintf(prefix, sizeof(prefix), "%s_", l->o.prefix);
	for (int i = 0; i < C_COUNT; i++)
		ok &= family(l, K_COUNTER, i, "", counters[i], "");
	for (int i = 0; i < G_COUNT; i++) {
		ok &= family(l, K_CURRENT, i, "current_", gauges[i], "");
		ok &= family(l, K_MEAN, i, "mean_", gauges[i], "");
	}
	ok &= family(l, K_LIFETIME, 0, "", "kv_cache_hit_rate_lifetime", "");
	for (int i = 0; i < RP_LRM_SERIES; i++) {
		const char *name = series[i].name;

		if (i == S_CACHE) {
			ok &= family(l, K_RATIO, i, prefix, name, "_ratio");
			ok &= family(l, K_NUMERATOR, i, prefix, name, "_numerator_sum");
			ok &= family(l, K_DENOMINATOR, i, prefix, name, "_denominator_sum");
			ok &= family(l, K_RATIO_QUANTILE, i, prefix, name, "_quantile");
		} else if (i < RP_LRM_DISTS) {
			ok &= family(l, K_AVERAGE, i, prefix, name, "_average");
			ok &= family(l, K_QUANTILE, i, prefix, name, "_quantile");
		} else {
			ok &= family(l, K_RATE, i, prefix, name, "_rate_per_second");
			if (series[i].quantiles != Q_NONE)
				ok &= family(l, K_RATE_QUANTILE, i, prefix, name, "_quantile");
		}
	}
	qsort(l->families, l->n_families, sizeof(*l->families), by_name);
	return ok;
}

void rp_lrm_render_free(struct rp_lrm *l)
{
	for (unsigned i = 0; i < l->n_families; i++)
		free(l->families[i].name);
	free(l->families);
	free(l->texts);
}

/* ---- samples of one family ---- */

struct entry {
	struct rp_label l[RP_LRM_LABELS + 3];
	unsigned n;
	double v;
};

struct page {
	const struct rp_lrm *l;
	struct entry *e; /* MAX_ENTRIES */
	unsigned n;
	/* by label set */
	uint64_t count[SETS];
	double sum[SETS], weight[SETS];
};

/* feature="all" of `request` is one more */
#define MAX_ENTRIES ((SETS + 1) * MAX_Q)

static void add(struct page *p, unsigned set, uint8_t by, bool all, const char *quantile, double v)
{
	const struct rp_lrm *l = p->l;
	struct entry *e = &p->e[p->n++];

	e->n = 0;
	e->v = v;
	if (all)
		e->l[e->n++] = (struct rp_label){ "feature", "all" };
	if (set >= SET_TIER)
		e->l[e->n++] =
			(struct rp_label){ "service_tier", rp_lrm_tier_names[set - SET_TIER + 1] };
	else if (set >= SET_RANK)
		e->l[e->n++] = (struct rp_label){ "dp_rank", l->texts->rank[set - SET_RANK] };
	else if (set >= SET_FEATURE)
		e->l[e->n++] = (struct rp_label){ "feature", features[set - SET_FEATURE] };
	else if (by & WITH_ALL && !all)
		e->l[e->n++] = (struct rp_label){ "feature", "all" };
	if (by & WITH_ALL && set >= SET_RANK)
		e->l[e->n++] = (struct rp_label){ "feature", "all" };
	if (quantile)
		e->l[e->n++] = (struct rp_label){ "quantile", quantile };
	for (unsigned i = 0; i < l->o.n_labels; i++)
		e->l[e->n++] = l->o.labels[i];
	qsort(e->l, e->n, sizeof(e->l[0]), by_key);
}

static int by_labels(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	for (unsigned i = 0; i < x->n && i < y->n; i++) {
		int d = strcmp(x->l[i].key, y->l[i].key);

		if (!d)
			d = strcmp(x->l[i].value, y->l[i].value);
		if (d)
			return d;
	}
	return (int)x->n - (int)y->n;
}

static uint64_t allowed(uint8_t by)
{
	uint64_t m = 1;

	if (by & BY_FEATURE)
		m |= 0xfULL << SET_FEATURE;
	if (by & BY_RANK)
		m |= ((1ULL << RP_LRM_RANKS) - 1) << SET_RANK;
	if (by & BY_TIER)
		m |= 0xfULL << SET_TIER;
	return m;
}

static uint64_t sets_of(const struct rp_sample *s)
{
	uint64_t m = 1, f = s->features & 7;

	if (s->features & RP_LRM_RANK_ONLY)
		m = 0;
	else
		m |= (f ? f << 1 : 1) << SET_FEATURE;
	if (s->rank)
		m |= 1ULL << (SET_RANK + s->rank - 1);
	if (s->tier)
		m |= 1ULL << (SET_TIER + s->tier - 1);
	return m;
}

#define EACH_SET(mask, set)                          \
	for (uint64_t m_ = (mask); m_; m_ &= m_ - 1) \
		for (unsigned set = (unsigned)__builtin_ctzll(m_), once_ = 1; once_; once_ = 0)

static void totals(struct page *p, int which)
{
	const struct rp_window *w = &p->l->s[which];
	uint64_t ok = allowed(series[which].by);

	memset(p->count, 0, sizeof(p->count));
	memset(p->sum, 0, sizeof(p->sum));
	memset(p->weight, 0, sizeof(p->weight));
	for (uint32_t i = 0; i < w->n; i++) {
		const struct rp_sample *s = rp_window_at(w, i);
		uint64_t sets = sets_of(s) & ok;

		EACH_SET(sets, set)
		{
			p->count[set] += which == S_CACHE ? 1 : s->w;
			p->sum[set] += which < S_CACHE ? s->v * s->w : s->v;
			p->weight[set] += s->w;
		}
	}
}

/* A label set's samples of one value, and of the `request` rate those of "all" too. */
static void add_set(struct page *p, int which, unsigned set, const char *quantile, double v)
{
	add(p, set, series[which].by, false, quantile, v);
	if (which == S_REQUEST && set == SET_ALL && p->l->any_request)
		add(p, set, series[which].by, true, quantile, v);
}

struct value {
	double v;
	uint32_t w;
	uint32_t at; /* in the window */
};

#define DIGIT 11
#define DIGITS 6 /* of 64 bits, and two to spare */

/*
 * By v, which is never negative: its bits sort as it does. Digit by digit, since
 * comparing takes ten times as long, and who reads the ring waits meanwhile. room
 * is as large as v; returns which of the two has the result.
 */
static struct value *sort_values(struct value *v, struct value *room, uint32_t n)
{
	static const uint64_t mask = (1u << DIGIT) - 1;
	uint32_t at[1u << DIGIT];

	for (unsigned shift = 0; shift < DIGIT * DIGITS; shift += DIGIT) {
		struct value *from = v;
		uint32_t sum = 0;
		uint64_t bits;

		memset(at, 0, sizeof(at));
		for (uint32_t i = 0; i < n; i++) {
			memcpy(&bits, &v[i].v, sizeof(bits));
			at[bits >> shift & mask]++;
		}
		memcpy(&bits, &v[0].v, sizeof(bits));
		if (at[bits >> shift & mask] == n)
			continue; /* all have the same digit */
		for (unsigned d = 0; d <= mask; d++) {
			uint32_t k = at[d];

			at[d] = sum;
			sum += k;
		}
		for (uint32_t i = 0; i < n; i++) {
			memcpy(&bits, &v[i].v, sizeof(bits));
			room[at[bits >> shift & mask]++] = v[i];
		}
		v = room;
		room = from;
	}
	return v;
}

/* One walk over the sorted samples finds the quantiles of all label sets. */
static bool quantiles(struct page *p, int which)
{
	const struct rp_window *w = &p->l->s[which];
	const struct quantile_set *q = &p->l->texts->q[series[which].quantiles];
	uint64_t ok = allowed(series[which].by), seen[SETS] = { 0 };
	unsigned next[SETS] = { 0 };
	struct value *both, *v;

	if (!w->n)
		return true;
	both = v = malloc(2 * (size_t)w->n * sizeof(*v));
	if (!v)
		return false;
	totals(p, which);
	for (uint32_t i = 0; i < w->n; i++) {
		const struct rp_sample *s = rp_window_at(w, i);

		v[i] = which == S_CACHE ? (struct value){ s->v / s->w, 1, i } :
					  (struct value){ s->v, s->w, i };
	}
	v = sort_values(v, v + w->n, w->n);
	for (uint32_t i = 0; i < w->n; i++) {
		uint64_t sets = sets_of(rp_window_at(w, v[i].at)) & ok;

		EACH_SET(sets, set)
		{
			seen[set] += v[i].w;
			while (next[set] < q->n &&
			       rp_rank_index(p->count[set], q->q[next[set]]) < seen[set])
				add_set(p, which, set, q->text[next[set]++], v[i].v);
		}
	}
	free(both);
	return true;
}

static int by_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Over the seconds of the window, from its old end; what is left of one at the new end
 * is scaled to a second. */
static bool rate_quantiles(struct page *p, int which)
{
	const struct rp_lrm *l = p->l;
	const struct rp_window *w = &l->s[which];
	const struct quantile_set *q = &l->texts->q[series[which].quantiles];
	size_t n = (size_t)((l->window + SECOND - 1) / SECOND);
	int64_t from = l->now - l->window, rest = l->window - (int64_t)(n - 1) * SECOND;
	uint64_t ok = allowed(series[which].by), have = 0;
	double *v;

	for (uint32_t i = 0; i < w->n; i++)
		have |= sets_of(rp_window_at(w, i)) & ok;
	if (!have)
		return true;
	v = malloc(n * sizeof(*v));
	if (!v)
		return false;
	EACH_SET(have, set)
	{
		for (size_t i = 0; i < n; i++)
			v[i] = 0;
		for (uint32_t i = 0; i < w->n; i++) {
			const struct rp_sample *s = rp_window_at(w, i);
			size_t at = (size_t)((s->t - from) / SECOND);

			if (sets_of(s) >> set & 1)
				v[at < n ? at : n - 1] += s->v;
		}
		v[n - 1] /= (double)rest / 1e9;
		qsort(v, n, sizeof(*v), by_double);
		for (unsigned k = 0; k < q->n; k++)
			add_set(p, which, set, q->text[k], v[rp_rank_index(n, q->q[k])]);
	}
	free(v);
	return true;
}

/* Rates are there without a sample, of every label set that was met. */
static void rates(struct page *p, int which)
{
	const struct rp_lrm *l = p->l;
	uint64_t met = 1;

	if (l->any_request)
		met |= 0xfULL << SET_FEATURE;
	met |= (uint64_t)l->ranks_seen << SET_RANK;
	met |= (uint64_t)(l->tiers_seen >> 1) << SET_TIER;
	totals(p, which);
	EACH_SET(met & allowed(series[which].by), set)
	add_set(p, which, set, NULL, p->sum[set] / l->o.window_s);
}

static void sums(struct page *p, int which, enum kind kind)
{
	totals(p, which);
	for (unsigned set = 0; set < SETS; set++) {
		if (!p->count[set])
			continue;
		add_set(p, which, set, NULL,
			kind == K_AVERAGE   ? p->sum[set] / (double)p->count[set] :
			kind == K_RATIO	    ? p->sum[set] / p->weight[set] :
			kind == K_NUMERATOR ? p->sum[set] :
					      p->weight[set]);
	}
}

static double mean(const struct rp_lrm *l, const struct gauge_state *g)
{
	__int128 area = g->area + (__int128)g->value * (l->now - g->since);

	return l->now > l->born ? (double)area / (double)(l->now - l->born) : 0;
}

static bool fill(struct page *p, const struct rp_lrm_family *f)
{
	const struct rp_lrm *l = p->l;

	p->n = 0;
	switch (f->kind) {
	case K_COUNTER:
		add(p, SET_ALL, 0, false, NULL, 0);
		return true;
	case K_CURRENT:
		add(p, SET_ALL, 0, false, NULL, (double)l->g[f->which].value);
		return true;
	case K_MEAN:
		add(p, SET_ALL, 0, false, NULL, mean(l, &l->g[f->which]));
		return true;
	case K_LIFETIME:
		if (l->c[C_LOOKUPS])
			add(p, SET_ALL, 0, false, NULL,
			    (double)l->c[C_HITS] / (double)l->c[C_LOOKUPS]);
		return true;
	case K_QUANTILE:
	case K_RATIO_QUANTILE:
		return quantiles(p, f->which);
	case K_RATE:
		rates(p, f->which);
		return true;
	case K_RATE_QUANTILE:
		return rate_quantiles(p, f->which);
	default:
		sums(p, f->which, f->kind);
		return true;
	}
}

void rp_lrm_render(struct rp_lrm *l, int64_t now, struct rp_expo *e)
{
	struct page *p = malloc(sizeof(*p));
	struct entry *entries = malloc(MAX_ENTRIES * sizeof(*entries));

	rp_lrm_clock(l, now);
	for (int i = 0; i < RP_LRM_SERIES; i++)
		rp_window_expire(&l->s[i], l->now - l->window);
	e->b->oom |= !p || !entries;
	for (unsigned i = 0; i < l->n_families && !e->b->oom; i++) {
		const struct rp_lrm_family *f = &l->families[i];
		char text[RP_LRM_NUMBER];

		p->l = l;
		p->e = entries;
		e->b->oom |= !fill(p, f);
		if (!p->n)
			continue;
		qsort(p->e, p->n, sizeof(p->e[0]), by_labels);
		rp_expo_family(e, f->name, f->kind == K_COUNTER ? RP_EXPO_COUNTER : RP_EXPO_GAUGE,
			       f->name);
		for (unsigned k = 0; k < p->n; k++) {
			if (f->kind == K_COUNTER) {
				rp_expo_u64(e, p->e[k].l, p->e[k].n, l->c[f->which]);
				continue;
			}
			rp_lrm_number(text, p->e[k].v);
			rp_expo_text(e, p->e[k].l, p->e[k].n, text);
		}
	}
	free(entries);
	free(p);
}
