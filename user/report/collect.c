// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* collect.c - lines into groups: what a report keeps of each record while it reads. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "report/report.h"

#define GROUPS_MAX 4096	       /* while reading, as the hosts are not all known yet */
#define SEEN_MAX (8u << 20)    /* records that are looked at for duplicates */
#define GAPS_MAX (4u << 20)    /* gaps between chunks, kept exactly: 32 MiB */
#define BINS_MAX (96ULL << 20) /* bytes of histograms */

#define SWEEP_ROW 80	    /* bytes of a request in the series over time (sweep.h) */
#define FIXED (24ULL << 20) /* bytes beside what grows */

const char *const rp_by_names[RP_BY_COUNT] = {
#define X(id, name) [RP_BY_##id] = name,
	RP_BYS(X)
#undef X
};

/* ---- duplicates ---- */

/* Was this key there before? A set of 64-bit numbers, at most half full. */
static int seen(struct rp_report *r, uint64_t key, bool *before)
{
	size_t at;

	*before = false;
	key += !key; /* 0 is an empty place */
	if (2 * r->n_seen >= r->cap_seen && r->cap_seen < 2 * (size_t)SEEN_MAX) {
		size_t cap = r->cap_seen ? 2 * r->cap_seen : 1024;
		uint64_t *t = calloc(cap, sizeof(*t));

		if (!t)
			return -ENOMEM;
		for (size_t i = 0; i < r->cap_seen; i++) {
			if (!r->seen[i])
				continue;
			at = r->seen[i] & (cap - 1);
			while (t[at])
				at = (at + 1) & (cap - 1);
			t[at] = r->seen[i];
		}
		free(r->seen);
		r->seen = t;
		r->cap_seen = cap;
	}
	for (at = key & (r->cap_seen - 1); r->seen[at]; at = (at + 1) & (r->cap_seen - 1))
		if (r->seen[at] == key) {
			*before = true;
			return 0;
		}
	if (2 * r->n_seen >= r->cap_seen) {
		r->unchecked++; /* full: it may come again unnoticed */
		return 0;
	}
	r->seen[at] = key;
	r->n_seen++;
	return 0;
}

/* ---- hosts ---- */

/*
 * A segment is what one host wrote: a file, or a part of one that ends with a summary,
 * which names the host. A file of the request log has it in its name:
 * reqprobe-HOST-20261130T035900.123Z-000001.jsonl.zst
 */
static void host_of_name(const char *path, char *host, size_t size)
{
	const char *base = strrchr(path, '/'), *p;

	*host = 0;
	base = base ? base + 1 : path;
	if (strncmp(base, "reqprobe-", 9) != 0)
		return;
	base += 9;
	for (p = base; (p = strchr(p, '-')); p++) {
		size_t digits = strspn(p + 1, "0123456789");

		if (digits == 8 && p[9] == 'T' && (size_t)(p - base) < size) {
			memcpy(host, base, (size_t)(p - base));
			host[p - base] = 0;
		}
	}
}

static int new_segment(struct rp_report *r, const char *host)
{
	if (r->n_hosts == r->cap_hosts) {
		size_t cap = r->cap_hosts ? 2 * r->cap_hosts : 64;
		char **more = realloc(r->hosts, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		r->hosts = more;
		r->cap_hosts = cap;
	}
	r->hosts[r->n_hosts] = NULL;
	if (host && *host) {
		r->hosts[r->n_hosts] = strdup(host);
		if (!r->hosts[r->n_hosts])
			return -ENOMEM;
	}
	r->n_hosts++;
	return 0;
}

/* The segment is over: this was its host. The next one is of the same file. */
static int end_segment(struct rp_report *r, const char *host)
{
	char **h = &r->hosts[r->n_hosts - 1];
	char *known = NULL;
	int err;

	if (!*h && *host) {
		*h = strdup(host);
		return *h ? new_segment(r, NULL) : -ENOMEM;
	}
	if (*h)
		known = strdup(*h);
	err = new_segment(r, known);
	free(known);
	return err;
}

/* ---- groups ---- */

static const char *value_of(enum rp_by by, const struct rp_facts *f, const struct rp_line *l,
			    char *room, size_t size)
{
	switch (by) {
	case RP_BY_MODEL:
		return f->model;
	case RP_BY_ENGINE:
		return f->engine;
	case RP_BY_VERSION:
		return f->engine_version;
	case RP_BY_HOST: /* until a host is known, and in the end if none is */
		rp_slice_text(&l->v[RP_LEAF_SERVER_ADDRESS], room, size);
		return room;
	case RP_BY_OPERATION:
		return rp_operation_names[f->operation];
	case RP_BY_END:
		return rp_end_names[f->end];
	case RP_BY_STATUS:
		if (f->status)
			snprintf(room, size, "%d", f->status);
		else
			*room = 0;
		return room;
	case RP_BY_STREAM:
		return f->stream < 0 ? "" : f->stream ? "true" : "false";
	case RP_BY_FINISH:
		return f->finish_reason;
	case RP_BY_ERROR:
		return rp_error_class_names[rp_error_class(f)];
	default:
		return "";
	}
}

static uint64_t hash_of(const char *const *value, unsigned n, uint32_t segment)
{
	uint64_t h = 0xcbf29ce484222325ULL ^ segment; /* FNV-1a */

	for (unsigned i = 0; i < n; i++) {
		for (const char *p = value[i]; *p; p++)
			h = (h ^ (unsigned char)*p) * 0x100000001b3ULL;
		h = (h ^ 0xff) * 0x100000001b3ULL;
	}
	return h;
}

static bool is_group(const struct rp_group *g, const char *const *value, unsigned n,
		     uint32_t segment, uint64_t hash)
{
	if (g->hash != hash || g->segment != segment || g->other)
		return false;
	for (unsigned i = 0; i < n; i++)
		if (strcmp(g->value[i] ? g->value[i] : "", value[i]) != 0)
			return false;
	return true;
}

static struct rp_group *add_group(struct rp_report *r)
{
	struct rp_group *more;

	if (r->n == r->cap) {
		r->cap = r->cap ? 2 * r->cap : 16;
		more = realloc(r->groups, r->cap * sizeof(*more));
		if (!more)
			return NULL;
		r->groups = more;
	}
	memset(&r->groups[r->n], 0, sizeof(*more));
	r->groups[r->n].canon = (uint32_t)r->n;
	r->groups[r->n].first = r->groups[r->n].last = RP_NONE;
	rp_metrics_init(&r->groups[r->n].sum);
	return &r->groups[r->n++];
}

/* The group at index GROUPS_MAX is all others. NULL: no memory. */
static struct rp_group *group_of(struct rp_report *r, const struct rp_facts *f,
				 const struct rp_line *l)
{
	const struct rp_report_options *o = r->o;
	const char *value[RP_BY_COUNT];
	char room[RP_BY_COUNT][64];
	uint32_t segment = 0;
	bool host_open = false;
	struct rp_group *g;
	uint64_t hash;
	size_t at;

	for (unsigned i = 0; i < o->n_by; i++) {
		value[i] = value_of(o->by[i], f, l, room[i], sizeof(room[i]));
		if (o->by[i] != RP_BY_HOST)
			continue;
		if (r->hosts[r->n_hosts - 1]) {
			value[i] = r->hosts[r->n_hosts - 1];
		} else {
			host_open = true;
			segment = (uint32_t)r->n_hosts;
		}
	}
	hash = hash_of(value, o->n_by, segment);
	for (at = hash & (r->index_cap - 1); r->index[at]; at = (at + 1) & (r->index_cap - 1))
		if (is_group(&r->groups[r->index[at] - 1], value, o->n_by, segment, hash))
			return &r->groups[r->index[at] - 1];
	if (r->n >= GROUPS_MAX || r->bins_bytes > BINS_MAX) {
		/* the last one is all others, once there is one */
		if (!r->groups[r->n - 1].other) {
			g = add_group(r);
			if (!g)
				return NULL;
			g->other = true;
		}
		return &r->groups[r->n - 1];
	}
	g = add_group(r);
	if (!g)
		return NULL;
	g->hash = hash;
	g->segment = segment;
	g->host_open = host_open;
	for (unsigned i = 0; i < o->n_by; i++) {
		if (!*value[i])
			continue;
		g->value[i] = strdup(value[i]);
		if (!g->value[i])
			return NULL;
	}
	r->index[at] = (uint32_t)r->n;
	return g;
}

static void name(struct rp_names *l, const char *s)
{
	for (unsigned i = 0; i < l->n; i++)
		if (!strcmp(l->of[i].name, s)) {
			l->of[i].count++;
			return;
		}
	if (l->n == RP_NAMES_MAX || strlen(s) >= sizeof(l->of[0].name)) {
		l->other++;
		return;
	}
	snprintf(l->of[l->n].name, sizeof(l->of[0].name), "%s", s);
	l->of[l->n++].count = 1;
}

/* ---- figures, exact and not ---- */

static int add_bins(struct rp_report *r, struct rp_group *g, const struct rp_facts *f,
		    const uint8_t *why)
{
	double v;
	int err;

	if (!g->bins) {
		g->bins = calloc(RP_METRIC_COUNT, sizeof(*g->bins));
		g->fig = calloc(1, sizeof(*g->fig));
		if (!g->bins || !g->fig)
			return -ENOMEM;
		r->bins_bytes += RP_METRIC_COUNT * sizeof(*g->bins) + sizeof(*g->fig);
	}
	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		struct rp_bins *h = &g->bins[m];
		size_t before;

		if (!rp_metric_per_request((enum rp_metric)m))
			continue;
		if (!rp_metric_of(f, (enum rp_metric)m, &v)) {
			g->fig->missing[m][rp_no_value((enum rp_metric)m, f, why)]++;
			continue;
		}
		before = h->pages;
		err = rp_bins_add(h, v);
		if (err)
			return err;
		r->bins_bytes += (h->pages - before) * RP_BINS_PAGE;
	}
	return 0;
}

/* Too many to keep: from here on histograms. */
static int spill(struct rp_report *r)
{
	struct rp_store_cursor *c = rp_store_cursor_new(r->store);
	int err = c ? 0 : -ENOMEM;

	for (size_t b = 0; b < rp_store_blocks(r->store) && !err; b++) {
		struct rp_store_rows rows;

		rp_store_block(c, b, &rows);
		for (size_t i = 0; i < rows.n && !err; i++)
			err = add_bins(r, &r->groups[rows.group[i]], &rows.f[i], rows.why[i]);
		rp_store_drop(r->store, b);
	}
	rp_store_cursor_free(c);
	if (err)
		return err;
	rp_store_free(r->store);
	r->store = NULL;
	r->exact = false;
	return 0;
}

static int add_gaps(struct rp_report *r, struct rp_group *g, const struct rp_facts *f)
{
	int err = 0;

	if (r->gaps_exact && r->gaps + f->n_icl > GAPS_MAX) {
		for (size_t k = 0; k < r->n && !err; k++) {
			struct rp_group *o = &r->groups[k];

			for (size_t i = 0; i < o->n_gaps && !err; i++)
				err = rp_bins_add(&o->gap_bins, (double)o->gaps[i]);
			free(o->gaps);
			o->gaps = NULL;
			o->n_gaps = o->cap_gaps = 0;
		}
		r->gaps_exact = false;
	}
	r->gaps += f->n_icl;
	if (!r->gaps_exact) {
		for (size_t i = 0; i < f->n_icl && !err; i++)
			err = rp_bins_add(&g->gap_bins, (double)f->icl[i]);
		return err;
	}
	if (err)
		return err;
	if (g->cap_gaps < g->n_gaps + f->n_icl) {
		size_t cap = g->cap_gaps ? g->cap_gaps : 256;
		int64_t *more;

		while (cap < g->n_gaps + f->n_icl)
			cap *= 2;
		more = realloc(g->gaps, cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		g->gaps = more;
		g->cap_gaps = cap;
	}
	memcpy(g->gaps + g->n_gaps, f->icl, f->n_icl * sizeof(*f->icl));
	g->n_gaps += f->n_icl;
	return 0;
}

static int take(struct rp_report *r, const struct rp_facts *f, const struct rp_line *l)
{
	struct rp_group *g = group_of(r, f, l);
	char status[16];
	int err = 0;

	if (!g)
		return -ENOMEM;
	r->records++;
	g->requests++;
	g->ends[f->end]++;
	if (f->status)
		snprintf(status, sizeof(status), "%d", f->status);
	name(&g->status, f->status ? status : "none");
	name(&g->finish, *f->finish_reason ? f->finish_reason : "none");
	if (f->start_wall != RP_NONE) {
		if (g->first == RP_NONE || f->start_wall < g->first)
			g->first = f->start_wall;
		if (g->last == RP_NONE || f->start_wall > g->last)
			g->last = f->start_wall;
	}
	rp_metrics_add(&g->sum, f, r->o->judged ? &r->o->slos : NULL);
	if (f->icl && rp_error_class(f) == RP_ERROR_NONE) {
		g->chunked++;
		err = add_gaps(r, g, f);
	}
	if (err)
		return err;
	if (!r->store)
		return add_bins(r, g, f, l->why);
	err = rp_store_add(r->store, f, l->why, (uint32_t)(g - r->groups));
	if (err == -ENOSPC) {
		err = spill(r);
		return err ? err : add_bins(r, g, f, l->why);
	}
	if (!err && !(rp_store_rows(r->store) % RP_STORE_ROWS) &&
	    rp_store_bytes(r->store) + rp_store_rows(r->store) * SWEEP_ROW + FIXED +
			    r->cap_seen * sizeof(*r->seen) + r->gaps * sizeof(int64_t) >
		    r->o->memory)
		err = spill(r);
	return err;
}

/* ---- the whole ---- */

int rp_report_init(struct rp_report *r, const struct rp_report_options *o)
{
	*r = (struct rp_report){ .o = o, .exact = true, .gaps_exact = true };
	r->store = rp_store_new();
	r->index_cap = 4 * GROUPS_MAX;
	r->index = calloc(r->index_cap, sizeof(*r->index));
	/* so that nobody can make two records look like one */
	if (getrandom(&r->seed, sizeof(r->seed), GRND_NONBLOCK) < 0)
		r->seed = 0x243f6a8885a308d3ULL;
	return r->store && r->index ? 0 : -ENOMEM;
}

int rp_report_read(struct rp_report *r, struct rp_reader *in,
		   int (*each)(void *ctx, const struct rp_facts *f), void *ctx,
		   const volatile int *stop)
{
	struct rp_reader_room room = { 0 };
	size_t file = SIZE_MAX, n;
	struct rp_line l;
	struct rp_facts f;
	const char *p;
	char host[256];
	int err;

	while ((err = rp_reader_next(in, &p, &n)) > 0 && !*stop) {
		bool before;

		if (rp_reader_index(in) != file) {
			file = rp_reader_index(in);
			host_of_name(rp_reader_file(in), host, sizeof(host));
			err = new_segment(r, host);
			if (err)
				break;
		}
		err = rp_line_scan(p, n, &l);
		if (!err)
			err = rp_facts_of_line(&l, &f, &room);
		if (err == -EBADMSG) {
			r->torn++;
			continue;
		}
		if (err == -ENOMSG) {
			if (!rp_line_summary(p, n, host, sizeof(host))) {
				r->foreign++;
				continue;
			}
			err = end_segment(r, host);
			if (err)
				break;
			continue;
		}
		if (err)
			break;
		if ((r->o->since != RP_NONE || r->o->until != RP_NONE) &&
		    (f.start_wall == RP_NONE ||
		     (r->o->since != RP_NONE && f.start_wall < r->o->since) ||
		     (r->o->until != RP_NONE && f.start_wall >= r->o->until))) {
			r->outside++;
			continue;
		}
		err = seen(r, rp_line_key(&l, r->seed), &before);
		if (err)
			break;
		if (before) {
			r->duplicates++;
			continue;
		}
		err = take(r, &f, &l);
		if (!err && each)
			err = each(ctx, &f);
		if (err)
			break;
	}
	free(room.gaps.icl);
	return err > 0 ? -EINTR : err;
}

static void free_group(struct rp_group *g)
{
	for (int i = 0; i < RP_BY_COUNT; i++)
		free(g->value[i]);
	for (int m = 0; g->bins && m < RP_METRIC_COUNT; m++)
		rp_bins_free(&g->bins[m]);
	rp_bins_free(&g->gap_bins);
	free(g->bins);
	free(g->fig);
	free(g->gaps);
}

void rp_report_free(struct rp_report *r)
{
	for (size_t i = 0; i < r->n; i++)
		free_group(&r->groups[i]);
	free_group(&r->total);
	for (size_t i = 0; i < r->n_hosts; i++)
		free(r->hosts[i]);
	free(r->hosts);
	free(r->groups);
	free(r->index);
	free(r->seen);
	rp_store_free(r->store);
}
