// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * sweep.c - one array of changes, sorted once by time. At each instant all its changes
 * are made, and what holds until the next one is a segment; each series looks at the
 * segments for itself, so that only one list of them is held.
 */
#include "metrics/sweep.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct req {
	int64_t start, first, end; /* ns; first RP_NONE: no event with text was seen */
	int32_t isl, osl;	   /* -1 unknown */
	uint32_t chunked;	   /* its output comes as changes of its own */
};

/* The order of those of one instant: what a request brings before what it takes away. */
enum what { START, FIRST, RATE, TOKENS, END };

struct change {
	uint64_t key; /* ns since the earliest instant, * 8 + what */
	union {
		uint64_t req;
		double by;
	};
};

struct segment {
	double value, ns;
};

struct rp_sweep {
	size_t max, bytes;
	struct req *req;
	size_t n_req, cap_req;
	struct change *chg; /* of gaps only, keys relative to `base` */
	size_t n_chg, cap_chg;
	int64_t base; /* start of the first request that came; keys are around 2^62 */
	uint64_t coarse;
	int failed;
};

#define MIDDLE (UINT64_C(1) << 59) /* ns; * 8 still fits */

struct rp_sweep *rp_sweep_new(size_t max_bytes)
{
	struct rp_sweep *w = calloc(1, sizeof(*w));

	if (w)
		w->max = max_bytes;
	return w;
}

void rp_sweep_free(struct rp_sweep *w)
{
	if (!w)
		return;
	free(w->req);
	free(w->chg);
	free(w);
}

uint64_t rp_sweep_coarse(const struct rp_sweep *w)
{
	return w->coarse;
}

/* What stats() will take beside: three changes for each request, as many segments. */
static size_t need(size_t n_req, size_t n_chg)
{
	return n_req * sizeof(struct req) +
	       (n_req * 3 + n_chg) * (sizeof(struct change) + sizeof(struct segment)) +
	       n_chg * sizeof(struct change);
}

static bool grow(void **p, size_t *cap, size_t n, size_t size)
{
	size_t want = *cap ? *cap + *cap / 2 : 1024;
	void *q;

	if (n <= *cap)
		return true;
	if (want < n)
		want = n;
	q = realloc(*p, want * size);
	if (!q)
		return false;
	*p = q;
	*cap = want;
	return true;
}

static uint64_t key(const struct rp_sweep *w, int64_t ts, enum what what)
{
	return ((uint64_t)(ts - w->base) + MIDDLE) * 8 + what;
}

/* Does it lie within nine years of the others? */
static bool near(const struct rp_sweep *w, int64_t ts)
{
	int64_t d;

	return !__builtin_sub_overflow(ts, w->base, &d) && d > -(int64_t)(MIDDLE / 2) &&
	       d < (int64_t)(MIDDLE / 2);
}

/*
 * The output of one request, chunk by chunk. The first chunk is one token, the others
 * share the rest evenly: over all of them as tokens in flight, over those that took
 * time as a rate.
 */
static bool add_gaps(struct rp_sweep *w, const struct req *r, const int64_t *icl, size_t n)
{
	double rest = (double)r->osl - 1, each, each_rate;
	size_t took = 0;
	int64_t at = r->first;

	for (size_t i = 0; i < n; i++) {
		if (icl[i] < 0 || __builtin_add_overflow(at, icl[i], &at))
			return false;
		took += icl[i] > 0;
	}
	if (!near(w, at) || need(w->n_req + 1, w->n_chg + 3 * n) > w->max ||
	    !grow((void **)&w->chg, &w->cap_chg, w->n_chg + 3 * n, sizeof(*w->chg)))
		return false;
	each = rest / (double)n;
	each_rate = took ? rest / (double)took : 0;
	at = r->first;
	for (size_t i = 0; i < n; i++) {
		int64_t from = at;
		double rate = each_rate / (double)icl[i];

		at += icl[i];
		w->chg[w->n_chg].by = each;
		w->chg[w->n_chg++].key = key(w, at < r->end ? at : r->end, TOKENS);
		if (!icl[i])
			continue;
		w->chg[w->n_chg].by = rate;
		w->chg[w->n_chg++].key = key(w, from, RATE);
		w->chg[w->n_chg].by = -rate;
		w->chg[w->n_chg++].key = key(w, at, RATE);
	}
	return true;
}

static int32_t tokens(int64_t n)
{
	return n >= 0 && n <= INT32_MAX ? (int32_t)n : -1;
}

static int64_t after(int64_t start, int64_t receive, int64_t ns)
{
	int64_t t;

	if (receive == RP_NONE || ns == RP_NONE || __builtin_add_overflow(start, receive, &t) ||
	    __builtin_add_overflow(t, ns, &t))
		return RP_NONE;
	return t;
}

int rp_sweep_add(struct rp_sweep *w, const struct rp_facts *f)
{
	struct req r = { .start = f->start_wall };

	if (w->failed)
		return w->failed;
	if (r.start == RP_NONE)
		return 0;
	r.end = after(r.start, f->receive, f->duration);
	r.first = after(r.start, f->receive, f->ttft);
	if (!w->n_req)
		w->base = r.start;
	if (r.end == RP_NONE || !near(w, r.start) || !near(w, r.end))
		return 0;
	if (r.first != RP_NONE && r.first > r.end)
		r.first = RP_NONE;
	r.isl = tokens(f->prompt);
	r.osl = tokens(f->completion);
	if (need(w->n_req + 1, w->n_chg) > w->max)
		return w->failed = -ENOSPC;
	if (!grow((void **)&w->req, &w->cap_req, w->n_req + 1, sizeof(*w->req)))
		return w->failed = -ENOMEM;
	if (f->icl && f->n_icl && r.first != RP_NONE && r.osl >= 1) {
		r.chunked = add_gaps(w, &r, f->icl, f->n_icl);
		w->coarse += !r.chunked;
	}
	w->req[w->n_req++] = r;
	return 0;
}

/* ---- sorting and selecting, in place ---- */

static void sort_changes(struct change *c, size_t n)
{
	while (n > 16) {
		uint64_t a = c[0].key, b = c[n / 2].key, d = c[n - 1].key, pivot;
		size_t i = 0, j = n - 1;

		pivot = a < b ? (b < d ? b : a < d ? d : a) : (a < d ? a : b < d ? d : b);
		for (;;) {
			while (c[i].key < pivot)
				i++;
			while (c[j].key > pivot)
				j--;
			if (i >= j)
				break;
			struct change t = c[i];

			c[i++] = c[j];
			c[j--] = t;
		}
		/* [0, j] is not above the pivot, the rest not below; the smaller part by
		 * recursion, so that the stack stays shallow */
		if (j + 1 < n - j - 1) {
			sort_changes(c, j + 1);
			c += j + 1;
			n -= j + 1;
		} else {
			sort_changes(c + j + 1, n - j - 1);
			n = j + 1;
		}
	}
	for (size_t i = 1; i < n; i++) {
		struct change t = c[i];
		size_t j = i;

		for (; j && c[j - 1].key > t.key; j--)
			c[j] = c[j - 1];
		c[j] = t;
	}
}

/*
 * The values at which the summed time reaches each of `at` (ascending): by quickselect,
 * into the parts that have one in them only. `before`: the time of what is smaller.
 */
static void select_at(struct segment *s, size_t n, double before, const double *at, double *out,
		      unsigned n_at)
{
	while (n > 1 && n_at) {
		double a = s[0].value, b = s[n / 2].value, d = s[n - 1].value, pivot, low = 0,
		       same = 0;
		size_t lt = 0, i = 0, gt = n;
		unsigned k = 0, m;

		pivot = a < b ? (b < d ? b : a < d ? d : a) : (a < d ? a : b < d ? d : b);
		while (i < gt) {
			if (s[i].value < pivot) {
				struct segment t = s[lt];

				low += s[i].ns;
				s[lt++] = s[i];
				s[i++] = t;
			} else if (s[i].value > pivot) {
				struct segment t = s[--gt];

				s[gt] = s[i];
				s[i] = t;
			} else {
				same += s[i++].ns;
			}
		}
		while (k < n_at && at[k] <= before + low && lt)
			k++;
		select_at(s, lt, before, at, out, k);
		m = k;
		while (m < n_at && (at[m] <= before + low + same || gt == n))
			out[m++] = pivot;
		before += low + same;
		s += gt;
		n -= gt;
		at += m;
		out += m;
		n_at -= m;
	}
	for (unsigned k = 0; k < n_at; k++)
		out[k] = s[0].value;
}

/* ---- the line ---- */

/*
 * Sums that changes come into and leave again. Compensated (Neumaier), and 0 as soon as
 * nobody contributes: AIPerf has the rounding of all that went before in it.
 */
struct level {
	double sum, lost;
	int64_t who;
};

static void by(struct level *l, double d, int who)
{
	double t = l->sum + d;

	l->lost += fabs(l->sum) >= fabs(d) ? (l->sum - t) + d : (d - t) + l->sum;
	l->sum = t;
	l->who += who;
	if (!l->who)
		l->sum = l->lost = 0;
}

static double now(const struct level *l)
{
	double v = l->sum + l->lost;

	return v > 0 ? v : 0;
}

struct state {
	int64_t requests, decoding, waiting;
	struct level decode, prefill, flat, tokens; /* flat: decode as total_throughput has it */
};

static void change(const struct rp_sweep *w, struct state *s, const struct change *c)
{
	enum what what = c->key % 8;
	const struct req *r;
	double pre = 0, flat = 0;
	bool prefill, decode, in, out;

	if (what == RATE) {
		by(&s->decode, c->by, c->by > 0 ? 1 : -1);
		return;
	}
	if (what == TOKENS) {
		by(&s->tokens, c->by, 0);
		return;
	}
	r = &w->req[c->req];
	prefill = r->first != RP_NONE && r->first > r->start && r->isl >= 0;
	decode = r->first != RP_NONE && r->end > r->first && r->osl >= 1;
	in = prefill;
	out = decode || r->chunked;
	if (prefill)
		pre = r->isl / (double)(r->first - r->start);
	if (decode)
		flat = (r->osl - 1.0) / (double)(r->end - r->first);
	switch (what) {
	case START:
		s->requests++;
		if (r->first != RP_NONE)
			s->waiting++;
		if (prefill)
			by(&s->prefill, pre, 1);
		if (in)
			by(&s->tokens, r->isl, 1);
		break;
	case FIRST:
		s->waiting--;
		s->decoding++;
		if (prefill)
			by(&s->prefill, -pre, -1);
		if (decode)
			by(&s->flat, flat, 1);
		if (decode && !r->chunked)
			by(&s->decode, flat, 1);
		if (out)
			by(&s->tokens, r->chunked ? 1 : r->osl, 1);
		break;
	case END:
		s->requests--;
		if (r->first != RP_NONE)
			s->decoding--;
		if (decode)
			by(&s->flat, -flat, -1);
		if (decode && !r->chunked)
			by(&s->decode, -flat, -1);
		if (in)
			by(&s->tokens, -r->isl, -1);
		if (out)
			by(&s->tokens, -r->osl, -1);
		break;
	default:
		break;
	}
}

/* Value of a series; false where it does not count (the active ones). */
static bool look(const struct state *s, enum rp_metric m, double *v)
{
	const double per_s = 1e9;
	double d = now(&s->decode) * per_s, p = now(&s->prefill) * per_s;

	switch (m) {
	case RP_METRIC_EFFECTIVE_CONCURRENCY:
		*v = (double)s->requests;
		return true;
	case RP_METRIC_EFFECTIVE_DECODE_THROUGHPUT:
	case RP_METRIC_ACTIVE_DECODE_THROUGHPUT:
		*v = d;
		return m == RP_METRIC_EFFECTIVE_DECODE_THROUGHPUT || s->decoding > 0;
	case RP_METRIC_EFFECTIVE_PREFILL_THROUGHPUT:
	case RP_METRIC_ACTIVE_PREFILL_THROUGHPUT:
		*v = p;
		return m == RP_METRIC_EFFECTIVE_PREFILL_THROUGHPUT || s->waiting > 0;
	case RP_METRIC_EFFECTIVE_DECODE_CONCURRENCY:
		*v = (double)s->decoding;
		return true;
	case RP_METRIC_EFFECTIVE_PREFILL_CONCURRENCY:
		*v = (double)s->waiting;
		return true;
	case RP_METRIC_EFFECTIVE_TOTAL_THROUGHPUT:
	case RP_METRIC_ACTIVE_TOTAL_THROUGHPUT:
		*v = p + now(&s->flat) * per_s;
		return m == RP_METRIC_EFFECTIVE_TOTAL_THROUGHPUT || s->requests > 0;
	case RP_METRIC_EFFECTIVE_DECODE_THROUGHPUT_PER_USER:
	case RP_METRIC_ACTIVE_DECODE_THROUGHPUT_PER_USER:
		*v = s->decoding > 0 ? d / (double)s->decoding : 0;
		return m == RP_METRIC_EFFECTIVE_DECODE_THROUGHPUT_PER_USER || s->decoding > 0;
	case RP_METRIC_EFFECTIVE_PREFILL_THROUGHPUT_PER_USER:
	case RP_METRIC_ACTIVE_PREFILL_THROUGHPUT_PER_USER:
		*v = s->waiting > 0 ? p / (double)s->waiting : 0;
		return m == RP_METRIC_EFFECTIVE_PREFILL_THROUGHPUT_PER_USER || s->waiting > 0;
	case RP_METRIC_TOKENS_IN_FLIGHT:
		*v = now(&s->tokens);
		return true;
	default:
		return false;
	}
}

/* Has any request what this series is made of? */
static bool any(const struct rp_sweep *w, enum rp_metric m)
{
	for (size_t i = 0; i < w->n_req; i++) {
		const struct req *r = &w->req[i];
		bool first = r->first != RP_NONE,
		     prefill = first && r->isl >= 0 && r->first > r->start,
		     decode = first && r->osl >= 1 && r->end > r->first;

		switch (m) {
		case RP_METRIC_EFFECTIVE_CONCURRENCY:
			return true;
		case RP_METRIC_EFFECTIVE_DECODE_CONCURRENCY:
		case RP_METRIC_EFFECTIVE_PREFILL_CONCURRENCY:
			if (first)
				return true;
			break;
		case RP_METRIC_EFFECTIVE_PREFILL_THROUGHPUT:
		case RP_METRIC_EFFECTIVE_PREFILL_THROUGHPUT_PER_USER:
		case RP_METRIC_ACTIVE_PREFILL_THROUGHPUT:
		case RP_METRIC_ACTIVE_PREFILL_THROUGHPUT_PER_USER:
			if (prefill)
				return true;
			break;
		case RP_METRIC_EFFECTIVE_DECODE_THROUGHPUT:
		case RP_METRIC_EFFECTIVE_DECODE_THROUGHPUT_PER_USER:
		case RP_METRIC_ACTIVE_DECODE_THROUGHPUT:
		case RP_METRIC_ACTIVE_DECODE_THROUGHPUT_PER_USER:
			if (decode)
				return true;
			break;
		default:
			if (prefill || decode)
				return true;
		}
	}
	return false;
}

static void series(const struct rp_sweep *w, const struct change *c, size_t n, struct segment *seg,
		   enum rp_metric m, uint64_t from, uint64_t to, struct rp_sweep_stats *out)
{
	static const double share[] = { 0.5, 0.9, 0.95, 0.99 };
	double at[4], p[4], time = 0, sum = 0, lost = 0, var = 0;
	struct state s = { 0 };
	size_t n_seg = 0;

	if (!any(w, m))
		return;
	for (size_t i = 0; i < n;) {
		uint64_t ts = c[i].key / 8, until;
		double v;

		for (; i < n && c[i].key / 8 == ts; i++)
			change(w, &s, &c[i]);
		until = i < n ? c[i].key / 8 : to;
		if (ts < from)
			ts = from;
		if (until > to)
			until = to;
		if (until <= ts || !look(&s, m, &v))
			continue;
		seg[n_seg++] = (struct segment){ v, (double)(until - ts) };
	}
	if (!n_seg)
		return;
	out->known = true;
	out->min = INFINITY;
	out->max = -INFINITY;
	for (size_t i = 0; i < n_seg; i++) {
		double d = seg[i].value * seg[i].ns, t = sum + d;

		lost += fabs(sum) >= fabs(d) ? (sum - t) + d : (d - t) + sum;
		sum = t;
		time += seg[i].ns;
		if (seg[i].value < out->min)
			out->min = seg[i].value;
		if (seg[i].value > out->max)
			out->max = seg[i].value;
	}
	out->avg = (sum + lost) / time;
	for (size_t i = 0; i < n_seg; i++)
		var += seg[i].ns * (seg[i].value - out->avg) * (seg[i].value - out->avg);
	out->std = sqrt(var / time);
	for (int k = 0; k < 4; k++)
		at[k] = share[k] * time;
	select_at(seg, n_seg, 0, at, p, 4);
	out->p50 = p[0];
	out->p90 = p[1];
	out->p95 = p[2];
	out->p99 = p[3];
}

int rp_sweep_stats(struct rp_sweep *w, struct rp_sweep_stats out[RP_SWEEP_COUNT])
{
	size_t n = 0, max = w->n_req * 3 + w->n_chg;
	uint64_t from = UINT64_MAX, to = 0;
	struct change *c = NULL;
	struct segment *seg = NULL;
	int err = w->failed;

	memset(out, 0, sizeof(*out) * RP_SWEEP_COUNT);
	if (err || !w->n_req)
		return err;
	c = malloc(max * sizeof(*c));
	seg = malloc(max * sizeof(*seg));
	if (!c || !seg) {
		err = -ENOMEM;
		goto cleanup;
	}
	for (size_t i = 0; i < w->n_req; i++) {
		const struct req *r = &w->req[i];
		const struct change all[] = { { key(w, r->start, START), { i } },
					      { key(w, r->end, END), { i } },
					      { r->first == RP_NONE ? 0 : key(w, r->first, FIRST),
						{ i } } };

		memcpy(c + n, all, sizeof(all));
		n += r->first == RP_NONE ? 2 : 3;
		if (all[0].key / 8 < from)
			from = all[0].key / 8;
		if (all[1].key / 8 > to)
			to = all[1].key / 8;
	}
	if (w->n_chg)
		memcpy(c + n, w->chg, w->n_chg * sizeof(*c));
	n += w->n_chg;
	sort_changes(c, n);
	for (int k = 0; k < RP_SWEEP_COUNT; k++)
		series(w, c, n, seg, (enum rp_metric)(RP_SWEEP_FIRST + k), from, to, &out[k]);
cleanup:
	free(c);
	free(seg);
	return err;
}
