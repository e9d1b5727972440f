// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* lrm.c - what happens to requests -> samples, counters and gauges. */
#include "lrm/lrm.h"

#include <stdlib.h>
#include <string.h>

#include "lrm/internal.h"
#include "record/record.h"

#define SECOND 1000000000LL
/* A rate adds up what falls into one of as many parts of its window: no more samples. */
#define PARTS 6000
#define LABELLED (4 * PARTS)   /* of one with labels: so many in a part, more come off its end */
#define MAX_COUNT 4000000000LL /* tokens of one request; a sample's weight holds it */

const char *const rp_lrm_tier_names[RP_LRM_TIERS] = { "", "fast", "priority", "default", "flex" };

void rp_lrm_defaults(struct rp_lrm_opts *o)
{
	*o = (struct rp_lrm_opts){
		.window_s = 60,
		.quantiles = { 0.5, 0.9, 0.99 },
		.n_quantiles = 3,
		.prefix = "request_metrics",
		.itl_rate = 0.05,
		.max_samples = 32768,
	};
}

static bool labelled(int s)
{
	return s == S_REQUEST || s == S_SUCCESS;
}

static uint32_t room_of(const struct rp_lrm_opts *o, int s)
{
	/* two parts may be begun at once at a window's ends */
	return s < RP_LRM_DISTS ? o->max_samples : labelled(s) ? LABELLED : PARTS + 2;
}

size_t rp_lrm_ceiling(const struct rp_lrm_opts *o, uint32_t requests)
{
	size_t n = sizeof(struct rp_lrm) + requests * (sizeof(struct rp_lrm_request) + 64);

	for (int i = 0; i < RP_LRM_SERIES; i++)
		n += rp_window_ceiling(room_of(o, i));
	return n;
}

struct rp_lrm *rp_lrm_new(const struct rp_lrm_opts *o, int64_t now)
{
	struct rp_lrm *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->o = *o;
	l->born = l->now = now;
	l->window = (int64_t)(o->window_s * 1e9);
	l->part = l->window / PARTS;
	for (int i = 0; i < RP_LRM_SERIES; i++)
		l->s[i].max = room_of(o, i);
	for (int i = 0; i < G_COUNT; i++)
		l->g[i].since = now;
	if (!rp_lrm_render_init(l)) {
		rp_lrm_free(l);
		return NULL;
	}
	return l;
}

void rp_lrm_free(struct rp_lrm *l)
{
	if (!l)
		return;
	while (l->all) {
		struct rp_lrm_request *q = l->all;

		l->all = q->next;
		free(q);
	}
	for (int i = 0; i < RP_LRM_SERIES; i++)
		rp_window_free(&l->s[i]);
	rp_lrm_render_free(l);
	free(l);
}

uint64_t rp_lrm_cut(const struct rp_lrm *l)
{
	uint64_t n = 0;

	for (int i = 0; i < RP_LRM_SERIES; i++)
		n += l->s[i].cut;
	return n;
}

/* ---- the pieces ---- */

void rp_lrm_clock(struct rp_lrm *l, int64_t now)
{
	if (now > l->now)
		l->now = now;
}

/* A duration in ms by the package's own steps: seconds as a double, times 1000. */
static double ms(int64_t ns)
{
	int64_t s = ns / SECOND;

	return ((double)s + (double)(ns % SECOND) / 1e9) * 1000.0;
}

static void count(struct rp_lrm *l, enum counter c, uint64_t n)
{
	uint64_t undone = n < l->owed[c] ? n : l->owed[c];

	l->owed[c] -= undone;
	l->c[c] += n - undone;
}

static void gauge(struct rp_lrm *l, enum gauge which, int64_t by)
{
	struct gauge_state *g = &l->g[which];

	g->area += (__int128)g->value * (l->now - g->since);
	g->since = l->now;
	g->value += by;
}

static void sample(struct rp_lrm *l, enum series which, const struct rp_lrm_request *q, double v,
		   uint32_t w)
{
	struct rp_window *s = &l->s[which];
	struct rp_sample x = { .t = l->now,
			       .v = v,
			       .w = w,
			       .features = q->features,
			       .tier = q->tier,
			       .rank = q->rank };

	rp_window_expire(s, l->now - l->window);
	rp_window_add(s, &x);
}

/* An amount of nothing is none: the package has no quantiles then. */
static void amount(struct rp_lrm *l, enum series which, const struct rp_lrm_request *q, uint64_t n)
{
	struct rp_window *s = &l->s[which];
	struct rp_sample *last = s->n ? rp_window_at(s, s->n - 1) : NULL;

	if (!n)
		return;
	if (last && l->now - last->t < l->part &&
	    (!labelled(which) ||
	     (last->features == q->features && last->tier == q->tier && last->rank == q->rank))) {
		last->v += (double)n;
		return;
	}
	sample(l, which, q, (double)n, 1);
}

/* splitmix64: which gaps are sampled is decided by the request and the token's number. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static uint32_t sampled(const struct rp_lrm *l, const struct rp_lrm_request *q, uint64_t n)
{
	uint64_t seed = mix(q->seed);
	uint32_t k = 0;

	if (l->o.itl_rate >= 1)
		return (uint32_t)n;
	if (n > 4096) /* nothing to roll dice for */
		return (uint32_t)((double)n * l->o.itl_rate);
	for (uint64_t i = 0; i < n; i++)
		k += (double)(mix(seed + q->tokens + i) >> 11) < l->o.itl_rate * 0x1p53;
	return k;
}

/* ---- the life of a request ---- */

static void rank_known(struct rp_lrm *l, struct rp_lrm_request *q, int64_t rank)
{
	if (q->rank || rank < 0 || rank >= RP_LRM_RANKS)
		return;
	q->rank = (uint16_t)(rank + 1);
	l->ranks_seen |= 1u << rank;
}

static void input_known(struct rp_lrm *l, struct rp_lrm_request *q, int64_t n)
{
	if (q->input != RP_NONE || n < 0)
		return;
	q->input = n < MAX_COUNT ? n : MAX_COUNT;
	count(l, C_INPUT, (uint64_t)q->input);
	sample(l, S_INPUT_LEN, q, (double)q->input, 1);
	if (q->left)
		return;
	gauge(l, G_INPUT, q->input);
	if (q->first_to_fifth)
		gauge(l, G_FIFTH_INPUT, q->input);
}

/* What a first token says of the prompt, as soon as that is known. */
static void prompt_read(struct rp_lrm *l, struct rp_lrm_request *q)
{
	int64_t hits;

	if (!q->produced || q->input == RP_NONE)
		return;
	if (!q->input_done) {
		q->input_done = true;
		amount(l, S_INPUT, q, (uint64_t)q->input);
		if (q->input && q->first != RP_NONE)
			sample(l, S_PER_INPUT, q, ms(q->first - q->begun) / (double)q->input, 1);
	}
	if (q->cached == RP_NONE || q->cache_done)
		return;
	q->cache_done = true;
	if (!q->input)
		return;
	hits = q->cached < q->input ? q->cached : q->input;
	count(l, C_HITS, (uint64_t)hits);
	count(l, C_LOOKUPS, (uint64_t)q->input);
	count(l, C_NEW_INPUT, (uint64_t)(q->input - hits));
	sample(l, S_CACHE, q, (double)hits, (uint32_t)q->input);
	amount(l, S_NEW_INPUT, q, (uint64_t)(q->input - hits));
	if (q->input > hits && q->first != RP_NONE)
		sample(l, S_PER_NEW_INPUT, q, ms(q->first - q->begun) / (double)(q->input - hits),
		       1);
}

static void first_to_fifth(struct rp_lrm *l, struct rp_lrm_request *q, bool in)
{
	if (q->first_to_fifth == in)
		return;
	q->first_to_fifth = in;
	gauge(l, G_FIFTH_REQUESTS, in ? 1 : -1);
	if (q->input != RP_NONE)
		gauge(l, G_FIFTH_INPUT, in ? q->input : -q->input);
}

struct rp_lrm_request *rp_lrm_start(struct rp_lrm *l, int64_t now, const struct rp_lrm_start *s)
{
	struct rp_lrm_request stand_in, *q = malloc(sizeof(*q));
	struct rp_lrm_request *to = q ? q : &stand_in;

	rp_lrm_clock(l, now);
	*to = (struct rp_lrm_request){
		.begun = s->begun,
		.first = RP_NONE,
		.last = RP_NONE,
		.input = RP_NONE,
		.cached = RP_NONE,
		.seed = s->seed,
		.features = s->features & (RP_LRM_XGRAMMAR | RP_LRM_TOOLS | RP_LRM_IMAGE),
		.tier = s->tier < RP_LRM_TIERS ? (uint8_t)s->tier : RP_LRM_NO_TIER,
		.no_itl = s->no_itl,
		.later = s->later,
		.left = !q,
	};
	rank_known(l, to, s->rank);
	l->any_request = true;
	l->tiers_seen |= 1u << to->tier;
	count(l, C_REQUESTS, 1);
	amount(l, S_REQUEST, to, 1);
	if (q) {
		q->next = l->all;
		if (q->next)
			q->next->prev = q;
		l->all = q;
		gauge(l, G_REQUESTS, 1);
	}
	input_known(l, to, s->input);
	return q;
}

void rp_lrm_known(struct rp_lrm *l, struct rp_lrm_request *q, int64_t now, int64_t input,
		  int64_t cached, int64_t rank)
{
	rp_lrm_clock(l, now);
	if (!q->rank) {
		rank_known(l, q, rank);
		/* it was counted without one when it started */
		if (q->rank) {
			const struct rp_lrm_request only = { .rank = q->rank,
							     .features = RP_LRM_RANK_ONLY };

			amount(l, S_REQUEST, &only, 1);
		}
	}
	input_known(l, q, input);
	if (q->cached == RP_NONE && cached >= 0)
		q->cached = cached;
	prompt_read(l, q);
}

void rp_lrm_tokens(struct rp_lrm *l, struct rp_lrm_request *q, int64_t now, int64_t ts, uint64_t n,
		   int64_t cached)
{
	bool first = !q->produced;

	rp_lrm_clock(l, now);
	if (!n)
		return;
	if (n > MAX_COUNT)
		n = MAX_COUNT;
	if (ts < q->begun)
		ts = q->begun;
	if (!first && q->last != RP_NONE && ts < q->last)
		ts = q->last;
	count(l, C_OUTPUT, n);
	amount(l, S_OUTPUT, q, n);
	if (!q->left)
		gauge(l, G_OUTPUT, (int64_t)n);
	if (first) {
		q->produced = true;
		q->first = ts;
		sample(l, S_TTFT, q, ms(ts - q->begun), 1);
		if (q->cached == RP_NONE && cached >= 0)
			q->cached = cached;
		prompt_read(l, q);
		q->cache_done |= !q->later;
		if (n < 5 && !q->left)
			first_to_fifth(l, q, true);
	} else if (q->last != RP_NONE && !q->no_itl) {
		uint32_t k = sampled(l, q, n);

		if (k)
			sample(l, S_ITL, q, ms(ts - q->last) / (double)n, k);
		count(l, C_ITL, k);
	}
	if (q->tokens < 5 && q->tokens + n >= 5) {
		sample(l, S_FIFTH, q, ms(ts - q->begun), 1);
		if (q->first != RP_NONE)
			sample(l, S_FIRST_TO_FIFTH, q, ms(ts - q->first), 1);
		first_to_fifth(l, q, false);
	}
	q->tokens += n;
	q->last = ts;
}

void rp_lrm_total(struct rp_lrm *l, struct rp_lrm_request *q, int64_t now, int64_t total)
{
	uint64_t n;

	rp_lrm_clock(l, now);
	if (total < 0 || (uint64_t)total <= q->tokens)
		return;
	n = (uint64_t)total - q->tokens;
	count(l, C_OUTPUT, n);
	amount(l, S_OUTPUT, q, n);
	if (!q->left)
		gauge(l, G_OUTPUT, (int64_t)n);
	q->tokens += n;
	q->produced = true;
	q->last = RP_NONE;
	prompt_read(l, q);
}

void rp_lrm_leave(struct rp_lrm *l, struct rp_lrm_request *q, int64_t now)
{
	rp_lrm_clock(l, now);
	if (q->left)
		return;
	first_to_fifth(l, q, false);
	gauge(l, G_REQUESTS, -1);
	gauge(l, G_OUTPUT, -(int64_t)q->tokens);
	if (q->input != RP_NONE)
		gauge(l, G_INPUT, -q->input);
	q->left = true;
}

static void forget(struct rp_lrm *l, struct rp_lrm_request *q)
{
	if (q->prev)
		q->prev->next = q->next;
	else
		l->all = q->next;
	if (q->next)
		q->next->prev = q->prev;
	free(q);
}

void rp_lrm_end(struct rp_lrm *l, struct rp_lrm_request *q, int64_t now, bool success)
{
	static const struct {
		enum counter c;
		enum series s;
	} ends[] = {
		{ C_SUCCESS, S_SUCCESS },
		{ C_CANCEL_0, S_CANCEL_0 },
		{ C_CANCEL_20, S_CANCEL_20 },
		{ C_CANCEL_MID, S_CANCEL_MID },
	};
	int how = success ? 0 : !q->tokens ? 1 : q->tokens < 20 ? 2 : 3;

	rp_lrm_leave(l, q, now);
	count(l, ends[how].c, 1);
	amount(l, ends[how].s, q, 1);
	sample(l, S_OUTPUT_LEN, q, (double)q->tokens, 1);
	forget(l, q);
}

void rp_lrm_drop(struct rp_lrm *l, struct rp_lrm_request *q, int64_t now)
{
	rp_lrm_leave(l, q, now);
	l->owed[C_REQUESTS]++;
	l->owed[C_OUTPUT] += q->tokens;
	if (q->input != RP_NONE)
		l->owed[C_INPUT] += (uint64_t)q->input;
	forget(l, q);
}
