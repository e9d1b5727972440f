// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* figure.c - from what was collected to statistics: of each group, and of all. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report/report.h"

/* ---- groups that are one: hosts are known now, and there may be too many ---- */

static bool same(const struct rp_group *a, const struct rp_group *b, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (strcmp(a->value[i] ? a->value[i] : "", b->value[i] ? b->value[i] : "") != 0)
			return false;
	return a->other == b->other;
}

static int more_requests(const void *a, const void *b)
{
	const struct rp_group *x = *(const struct rp_group *const *)a;
	const struct rp_group *y = *(const struct rp_group *const *)b;

	if (x->other != y->other)
		return x->other ? 1 : -1;
	if (x->requests != y->requests)
		return x->requests < y->requests ? 1 : -1;
	return (x > y) - (x < y);
}

/* Each group's canon: the first that is the same, or the one of all others. */
static int settle(struct rp_report *r)
{
	struct rp_group **list = calloc(r->n + 2, sizeof(struct rp_group *)), *other;
	size_t n = 0;
	int err = list ? 0 : -ENOMEM;

	for (size_t i = 0; i < r->n && !err; i++) {
		struct rp_group *g = &r->groups[i];
		size_t k = 0;

		if (g->canon != i)
			continue;
		while (k < n && !same(list[k], g, r->o->n_by))
			k++;
		if (k == n)
			list[n++] = g;
		else
			err = rp_group_merge(r, list[k], g);
	}
	if (!err && n > r->groups_shown) {
		qsort(list, n, sizeof(struct rp_group *), more_requests);
		other = rp_group_other(r);
		err = other ? 0 : -ENOMEM;
		for (size_t k = r->groups_shown - 1; k < n && !err; k++)
			if (list[k] != other)
				err = rp_group_merge(r, other, list[k]);
	}
	for (size_t i = 0; i < r->n && !err; i++) {
		struct rp_group *g = &r->groups[i];

		/* one that moved on to others takes along who had it as canon */
		g->canon = r->groups[g->canon].canon;
		if (g->canon == i && !g->fig)
			g->fig = calloc(1, sizeof(*g->fig));
		if (g->canon == i && !g->fig)
			err = -ENOMEM;
	}
	free(list);
	return err;
}

/* ---- exact figures ---- */

/* Has any request this metric? rp_metrics_add() has seen them all. */
static bool anywhere(const struct rp_report *r, int m)
{
	for (size_t g = 0; g < r->n; g++)
		if (r->groups[g].canon == g && r->groups[g].sum.of[m].n)
			return true;
	return false;
}

struct batch {
	enum rp_metric m[RP_METRIC_COUNT];
	double *v[RP_METRIC_COUNT]; /* a place for each row, group by group */
	size_t *filled[RP_METRIC_COUNT];
	unsigned n;
	/* those that no request has: only why */
	enum rp_metric no[RP_METRIC_COUNT];
	unsigned n_no;
};

static void fill(struct rp_report *r, struct rp_store_cursor *c, struct batch *b, const size_t *at)
{
	for (size_t k = 0; k < rp_store_blocks(r->store); k++) {
		struct rp_store_rows rows;

		rp_store_block(c, k, &rows);
		for (size_t i = 0; i < rows.n; i++) {
			uint32_t g = rp_group_at(r, rows.group[i]);

			for (unsigned j = 0; j < b->n_no; j++)
				r->groups[g].fig->missing[b->no[j]][rp_no_value(
					b->no[j], &rows.f[i], rows.why[i])]++;
			for (unsigned j = 0; j < b->n; j++) {
				double x;

				if (rp_metric_of(&rows.f[i], b->m[j], &x))
					b->v[j][at[g] + b->filled[j][g]++] = x;
				else
					r->groups[g].fig->missing[b->m[j]][rp_no_value(
						b->m[j], &rows.f[i], rows.why[i])]++;
			}
		}
	}
}

static void conclude(struct rp_report *r, struct batch *b, unsigned j, const size_t *at,
		     double *scratch, bool several)
{
	double *v = b->v[j];
	size_t n = 0;

	for (size_t g = 0; g < r->n; g++) {
		if (!r->groups[g].fig)
			continue;
		/* the total first needs the values side by side, in order of the groups */
		memmove(v + n, v + at[g], b->filled[j][g] * sizeof(*v));
		rp_stats_exact(v + n, b->filled[j][g], scratch, &r->groups[g].fig->stats[b->m[j]]);
		n += b->filled[j][g];
	}
	if (several)
		rp_stats_exact(v, n, scratch, &r->total.fig->stats[b->m[j]]);
}

/* So many metrics at a time as there is memory for. */
static int exact(struct rp_report *r, unsigned n_groups)
{
	size_t rows = rp_store_rows(r->store), *at = NULL, sum = 0, held, room;
	struct rp_store_cursor *c = rp_store_cursor_new(r->store);
	double *scratch = NULL;
	struct batch b = { .n = 0 };
	unsigned wide = 0;
	int err = -ENOMEM, m = 0;

	for (int k = 0; k < RP_METRIC_COUNT; k++) {
		if (!rp_metric_per_request((enum rp_metric)k))
			continue;
		if (anywhere(r, k))
			wide++;
		else
			b.no[b.n_no++] = (enum rp_metric)k;
	}
	held = rp_store_bytes(r->store) + r->group_bytes + r->bins_bytes + r->reader_bytes +
	       r->gaps.n * sizeof(*r->gaps.ns) + n_groups * sizeof(struct rp_figures);
	room = r->room / 16 * 15 > held ? r->room / 16 * 15 - held : 0;
	room /= (rows + 1) * sizeof(double) + (r->n + 1) * sizeof(size_t);
	wide = wide < room ? wide : room > 2 ? (unsigned)room - 1 : 1;
	at = calloc(r->n + 1, sizeof(*at));
	scratch = malloc((rows + 1) * sizeof(*scratch));
	if (!c || !at || !scratch)
		goto cleanup;
	for (size_t g = 0; g < r->n; g++) {
		at[g] = sum;
		sum += r->groups[g].fig ? r->groups[g].requests : 0;
	}
	for (unsigned j = 0; j < wide; j++) {
		b.v[j] = malloc((rows + 1) * sizeof(double));
		b.filled[j] = calloc(r->n + 1, sizeof(size_t));
		if (!b.v[j] || !b.filled[j])
			goto cleanup;
	}
	while (m < RP_METRIC_COUNT) {
		b.n = 0;
		for (; m < RP_METRIC_COUNT && b.n < wide; m++)
			if (rp_metric_per_request((enum rp_metric)m) && anywhere(r, m)) {
				memset(b.filled[b.n], 0, (r->n + 1) * sizeof(size_t));
				b.m[b.n++] = (enum rp_metric)m;
			}
		if (!b.n && !b.n_no)
			break;
		fill(r, c, &b, at);
		b.n_no = 0;
		for (unsigned j = 0; j < b.n; j++)
			conclude(r, &b, j, at, scratch, n_groups > 1);
	}
	err = 0;
cleanup:
	for (unsigned j = 0; j < wide; j++) {
		free(b.v[j]);
		free(b.filled[j]);
	}
	rp_store_cursor_free(c);
	free(scratch);
	free(at);
	return err;
}

/* ---- gaps between chunks ---- */

static int exact_gaps(struct rp_report *r)
{
	struct rp_gaps *p = &r->gaps;
	double *v = malloc((p->n + 1) * sizeof(*v)), *scratch = malloc((p->n + 1) * sizeof(*v));
	size_t *at = calloc(r->n + 1, sizeof(*at)), *n = calloc(r->n + 1, sizeof(*n)), sum = 0;
	const int64_t *ns = p->ns;
	int err = v && scratch && at && n ? 0 : -ENOMEM;

	for (size_t k = 0; k < p->n_runs && !err; k++)
		n[rp_group_at(r, p->runs[k].ref)] += p->runs[k].n;
	for (size_t g = 0; g < r->n && !err; g++) {
		at[g] = sum;
		sum += n[g];
		n[g] = 0;
	}
	for (size_t k = 0; k < p->n_runs && !err; k++) {
		uint32_t g = rp_group_at(r, p->runs[k].ref);

		for (uint32_t i = 0; i < p->runs[k].n; i++)
			v[at[g] + n[g]++] = (double)*ns++;
	}
	for (size_t g = 0; g < r->n && !err; g++)
		if (r->groups[g].fig)
			rp_stats_exact(v + at[g], n[g], scratch,
				       &r->groups[g].fig->stats[RP_METRIC_INTER_CHUNK_LATENCY]);
	if (!err)
		rp_stats_exact(v, sum, scratch,
			       &r->total.fig->stats[RP_METRIC_INTER_CHUNK_LATENCY]);
	free(v);
	free(scratch);
	free(at);
	free(n);
	return err;
}

/* ---- histograms ---- */

static void from_bins(const struct rp_report *r, struct rp_group *g)
{
	for (int m = 0; g->bins && m < RP_METRIC_COUNT; m++)
		rp_bins_stats(&g->bins[m], &g->fig->stats[m]);
	if (!r->gaps.exact)
		rp_bins_stats(&g->gap_bins, &g->fig->stats[RP_METRIC_INTER_CHUNK_LATENCY]);
}

/* ---- over time ---- */

/* One sweep for each group, or one for all. */
static int sweep(struct rp_report *r, struct rp_store_cursor *c, bool all)
{
	struct rp_sweep **w = calloc(r->n + 1, sizeof(struct rp_sweep *));
	int err = w ? 0 : -ENOMEM;

	for (size_t b = 0; b < rp_store_blocks(r->store) && !err; b++) {
		struct rp_store_rows rows;

		rp_store_block(c, b, &rows);
		for (size_t i = 0; i < rows.n && !err; i++) {
			uint32_t g = all ? 0 : rp_group_at(r, rows.group[i]);

			if (!w[g])
				w[g] = rp_sweep_new(r->room);
			if (!w[g])
				err = -ENOMEM;
			else if (rp_sweep_add(w[g], &rows.f[i]) == -ENOMEM)
				err = -ENOMEM;
		}
		/* nobody needs it again, and its room is needed */
		rp_store_drop(r->store, b);
	}
	for (size_t g = 0; g < r->n && !err; g++) {
		struct rp_group *to = all ? &r->total : &r->groups[g];

		if (w[g])
			rp_sweep_stats(w[g], to->fig->series);
		rp_sweep_free(w[g]);
		w[g] = NULL;
	}
	for (size_t g = 0; w && g < r->n; g++)
		rp_sweep_free(w[g]);
	free(w);
	return err;
}

/* Statistics first: what they take is given back before the series take theirs. */
static int both(struct rp_report *r, unsigned n_groups)
{
	struct rp_store_cursor *c = rp_store_cursor_new(r->store);
	int err = c ? exact(r, n_groups) : -ENOMEM;

	/* of many groups together nobody's concurrency is told: --by none is for that */
	if (!err)
		err = sweep(r, c, n_groups < 2);
	rp_store_cursor_free(c);
	return err;
}

/* ---- the whole ---- */

int rp_report_figures(struct rp_report *r)
{
	struct rp_group *only = NULL;
	unsigned n = 0;
	int err = settle(r);

	/* nothing is read any more */
	free(r->seen);
	r->seen = NULL;
	r->cap_seen = 0;
	r->total.first = r->total.last = RP_NONE;
	rp_metrics_init(&r->total.sum);
	r->total.fig = calloc(1, sizeof(*r->total.fig));
	if (!r->total.fig)
		return -ENOMEM;
	for (size_t i = 0; i < r->n && !err; i++) {
		if (!r->groups[i].fig)
			continue;
		n++;
		only = &r->groups[i];
	}
	if (!err && r->store)
		err = both(r, n);
	r->series_known = r->store != NULL;
	rp_store_free(r->store);
	r->store = NULL;
	/* a group's histograms are its figures before they become those of all */
	for (size_t i = 0; i < r->n && !err; i++)
		if (r->groups[i].fig) {
			from_bins(r, &r->groups[i]);
			err = rp_group_add(r, &r->total, &r->groups[i]);
		}
	if (!err)
		from_bins(r, &r->total);
	if (!err && r->gaps.exact)
		err = exact_gaps(r);
	if (!err && r->exact && n == 1) {
		memcpy(r->total.fig->stats, only->fig->stats, sizeof(only->fig->stats));
		memcpy(only->fig->series, r->total.fig->series, sizeof(only->fig->series));
	}
	return err;
}
