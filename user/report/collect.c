// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* collect.c - lines into groups: what a report keeps of each record while it reads. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "report/report.h"
#include "report/source.h"

#define SEEN_MAX (8u << 20) /* records that are looked at for duplicates */
#define GAPS_MAX (4u << 20) /* gaps between chunks, kept exactly */

#define BASE (24ULL << 20) /* bytes beside what grows: the program, its buffers */
/* Bytes of a request while it is turned into figures: in the series over time (sweep.h),
 * and as values of a metric or two. */
#define SWEEP_ROW 136
#define VALUES_ROW 24
#define GAP_VALUES 16 /* of a gap, likewise */

#define NO_PLACE UINT32_MAX /* the end of a list of groups */

const char *const rp_by_names[RP_BY_COUNT] = {
#define X(id, name) [RP_BY_##id] = name,
	RP_BYS(X)
#undef X
};

/* ---- what --memory is for ---- */

static uint64_t gap_bytes(const struct rp_report *r)
{
	return r->gaps.cap * sizeof(*r->gaps.ns) + r->gaps.cap_runs * sizeof(*r->gaps.runs);
}

static uint64_t seen_bytes(const struct rp_report *r)
{
	return r->cap_seen * sizeof(*r->seen);
}

/* Bytes that are kept now. */
static uint64_t kept(const struct rp_report *r)
{
	return r->group_bytes + r->bins_bytes + r->reader_bytes + gap_bytes(r) + seen_bytes(r) +
	       (r->store ? rp_store_bytes(r->store) : 0);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* And at most until the end, should nothing more come: figures want room, too. */
static uint64_t need(const struct rp_report *r)
{
	uint64_t base = r->group_bytes + r->bins_bytes + r->reader_bytes + gap_bytes(r), rows, most;
	size_t shown = r->n < r->groups_shown ? r->n : r->groups_shown;

	most = larger(kept(r) - base, r->gaps.n * GAP_VALUES);
	if (!r->exact)
		return base + most;
	rows = rp_store_rows(r->store);
	most = larger(most, rp_store_bytes(r->store) + rows * VALUES_ROW);
	most = larger(most, rows * SWEEP_ROW);
	return base + most + (shown + 1) * sizeof(struct rp_figures);
}

/* ---- duplicates ---- */

static int fold(struct rp_report *r, uint64_t spare);

/* May the table be twice as large? Histograms give way to it, but for a third of all. */
static int may_grow(struct rp_report *r, bool *may)
{
	uint64_t more = 2 * seen_bytes(r);
	int err = 0;

	*may = r->cap_seen < 2 * (size_t)SEEN_MAX &&
	       kept(r) - r->bins_bytes - (r->store ? rp_store_bytes(r->store) : 0) + more <=
		       r->room / 3 * 2;
	if (*may && !r->exact)
		err = fold(r, more);
	*may = *may && kept(r) + more <= r->room;
	return err;
}

/* Was this key there before? A set of 64-bit numbers, at most half full. */
static int seen(struct rp_report *r, uint64_t key, bool *before)
{
	bool grow = !r->cap_seen;
	size_t at;
	int err = 0;

	*before = false;
	key += !key; /* 0 is an empty place */
	if (!grow && 2 * r->n_seen >= r->cap_seen)
		err = may_grow(r, &grow);
	if (err)
		return err;
	if (grow) {
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

static void new_segment(struct rp_report *r, const char *host)
{
	snprintf(r->host, sizeof(r->host), "%s", host);
	r->segment++;
	r->open = NO_PLACE; /* they stay what they are: their host is not told */
}

/* A value of a group's key: text that is counted. */
static int set_value(struct rp_report *r, char **to, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	r->group_bytes -= *to ? strlen(*to) : 0;
	r->group_bytes += strlen(copy);
	free(*to);
	*to = copy;
	return 0;
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

/* Where it is in the index, or would be. */
static size_t find(const struct rp_report *r, const char *const *value, uint32_t segment,
		   uint64_t hash)
{
	size_t at = hash & (r->index_cap - 1);

	while (r->index[at] &&
	       !is_group(&r->groups[r->index[at] - 1], value, r->o->n_by, segment, hash))
		at = (at + 1) & (r->index_cap - 1);
	return at;
}

/* Out of the index: who comes after it there, and would be found no more, moves up. */
static void unfind(struct rp_report *r, size_t at)
{
	size_t mask = r->index_cap - 1;

	for (size_t k = (at + 1) & mask; r->index[k]; k = (k + 1) & mask) {
		size_t first = r->groups[r->index[k] - 1].hash & mask;

		if (((k - first) & mask) < ((k - at) & mask))
			continue;
		r->index[at] = r->index[k];
		at = k;
	}
	r->index[at] = 0;
}

static uint64_t group_cost(const struct rp_report *r)
{
	return sizeof(struct rp_group) + 64 * r->o->n_by; /* 64: what malloc() has of a text */
}

static int new_ref(struct rp_report *r, uint32_t *ref)
{
	if (r->n_refs == r->cap_refs) {
		size_t cap = r->cap_refs ? 2 * r->cap_refs : 64;
		uint32_t *more = realloc(r->place, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		r->group_bytes += (cap - r->cap_refs) * sizeof(*more);
		r->place = more;
		r->cap_refs = cap;
	}
	*ref = (uint32_t)r->n_refs++;
	return 0;
}

/* Nothing that is kept calls it by its ref. */
static bool not_called(const struct rp_report *r, const struct rp_group *g)
{
	return !r->store && !(r->gaps.exact && g->chunked);
}

/* NULL: no memory. */
static struct rp_group *add_group(struct rp_report *r)
{
	uint32_t at = r->unused != NO_PLACE ? r->unused : (uint32_t)r->n, ref;
	struct rp_group *g = &r->groups[at];
	bool again = at < r->n;

	if (again && not_called(r, g))
		ref = g->ref;
	else if (new_ref(r, &ref))
		return NULL;
	if (again)
		r->unused = g->next;
	else
		r->n++;
	*g = (struct rp_group){ .ref = ref, .canon = at, .next = NO_PLACE };
	r->place[ref] = at;
	g->first = g->last = RP_NONE;
	rp_metrics_init(&g->sum);
	r->group_bytes += group_cost(r);
	return g;
}

uint32_t rp_group_at(const struct rp_report *r, uint32_t ref)
{
	return r->groups[r->place[ref]].canon;
}

struct rp_group *rp_group_other(struct rp_report *r)
{
	/* there is one place more than groups_max */
	if (r->other == RP_REPORT_NO_GROUP) {
		struct rp_group *g = add_group(r);

		if (!g)
			return NULL;
		g->other = true;
		r->other = (uint32_t)(g - r->groups);
	}
	return &r->groups[r->other];
}

/* NULL: no memory. */
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
		if (*r->host) {
			value[i] = r->host;
		} else {
			host_open = true;
			segment = r->segment;
		}
	}
	hash = hash_of(value, o->n_by, segment);
	at = find(r, value, segment, hash);
	if (r->index[at])
		return &r->groups[r->groups[r->index[at] - 1].canon];
	if ((r->unused == NO_PLACE && r->n >= r->groups_max) || r->group_bytes > r->room / 8)
		return rp_group_other(r);
	g = add_group(r);
	if (!g)
		return NULL;
	g->hash = hash;
	g->segment = segment;
	g->host_open = host_open;
	if (host_open) {
		g->next = r->open;
		r->open = (uint32_t)(g - r->groups);
	}
	for (unsigned i = 0; i < o->n_by; i++)
		if (*value[i] && set_value(r, &g->value[i], value[i]))
			return NULL;
	r->index[at] = (uint32_t)(g - r->groups) + 1;
	return g;
}

static int name(struct rp_report *r, struct rp_names *l, const char *s, uint64_t n)
{
	struct rp_name *more;

	for (unsigned i = 0; i < l->n; i++)
		if (!strcmp(l->of[i].name, s)) {
			l->of[i].count += n;
			return 0;
		}
	if (l->n == RP_NAMES_MAX || strlen(s) >= sizeof(l->of[0].name)) {
		l->other += n;
		return 0;
	}
	if (l->n == l->cap) {
		more = realloc(l->of, (l->cap + 4) * sizeof(*more));
		if (!more)
			return -ENOMEM;
		l->of = more;
		l->cap += 4;
		r->group_bytes += 4 * sizeof(*more);
	}
	snprintf(l->of[l->n].name, sizeof(l->of[0].name), "%s", s);
	l->of[l->n++].count = n;
	return 0;
}

static int add_names(struct rp_report *r, struct rp_names *to, const struct rp_names *from)
{
	int err = 0;

	to->other += from->other;
	for (unsigned i = 0; i < from->n && !err; i++)
		err = name(r, to, from->of[i].name, from->of[i].count);
	return err;
}

static void drop_names(struct rp_report *r, struct rp_names *l)
{
	free(l->of);
	r->group_bytes -= l->cap * sizeof(*l->of);
	*l = (struct rp_names){ 0 };
}

/* ---- figures, exact and not ---- */

static int open_bins(struct rp_report *r, struct rp_group *g)
{
	if (g->bins)
		return 0;
	g->bins = calloc(RP_METRIC_COUNT, sizeof(*g->bins));
	if (!g->fig)
		g->fig = calloc(1, sizeof(*g->fig));
	if (!g->bins || !g->fig)
		return -ENOMEM;
	r->bins_bytes += RP_METRIC_COUNT * sizeof(*g->bins) + sizeof(*g->fig);
	r->n_binned++;
	return 0;
}

static int move_bins(struct rp_report *r, struct rp_bins *to, struct rp_bins *from)
{
	uint64_t before = to->bytes + from->bytes;
	int err = rp_bins_move(to, from);

	r->bins_bytes += to->bytes + from->bytes - before;
	return err;
}

int rp_group_add(struct rp_report *r, struct rp_group *to, struct rp_group *from)
{
	int err = from->bins ? open_bins(r, to) : 0;

	for (int m = 0; from->bins && m < RP_METRIC_COUNT && !err; m++)
		err = move_bins(r, &to->bins[m], &from->bins[m]);
	if (!err)
		err = move_bins(r, &to->gap_bins, &from->gap_bins);
	for (int m = 0; from->fig && to->fig && m < RP_METRIC_COUNT; m++)
		for (int w = 0; w < RP_NO_VALUE_COUNT; w++)
			to->fig->missing[m][w] += from->fig->missing[m][w];
	if (!err)
		err = add_names(r, &to->status, &from->status);
	if (!err)
		err = add_names(r, &to->finish, &from->finish);
	to->requests += from->requests;
	to->chunked += from->chunked;
	for (int i = 0; i < RP_END_COUNT; i++)
		to->ends[i] += from->ends[i];
	if (to->first == RP_NONE || (from->first != RP_NONE && from->first < to->first))
		to->first = from->first;
	if (to->last == RP_NONE || (from->last != RP_NONE && from->last > to->last))
		to->last = from->last;
	rp_metrics_merge(&to->sum, &from->sum);
	return err;
}

int rp_group_merge(struct rp_report *r, struct rp_group *to, struct rp_group *from)
{
	int err = rp_group_add(r, to, from);

	from->canon = (uint32_t)(to - r->groups);
	from->requests = 0;
	drop_names(r, &from->status);
	drop_names(r, &from->finish);
	if (from->bins) {
		r->bins_bytes -= RP_METRIC_COUNT * sizeof(*from->bins) + sizeof(*from->fig);
		r->n_binned--;
	}
	free(from->bins);
	free(from->fig);
	from->bins = NULL;
	from->fig = NULL;
	return err;
}

/* ---- hosts become known ---- */

/* Its place is for another. All that was in it is in its canon. */
static void release(struct rp_report *r, struct rp_group *g)
{
	for (unsigned k = 0; k < r->o->n_by; k++) {
		r->group_bytes -= g->value[k] ? strlen(g->value[k]) : 0;
		free(g->value[k]);
		g->value[k] = NULL;
	}
	rp_bins_free(&g->gap_bins);
	r->group_bytes -= group_cost(r);
	r->place[g->ref] = g->canon;
	g->host_open = false;
	g->next = r->unused;
	r->unused = (uint32_t)(g - r->groups);
}

/* The host of a group is known: it is that host's group, or part of it. */
static int settle_host(struct rp_report *r, struct rp_group *g, const char *host)
{
	const char *value[RP_BY_COUNT];
	uint64_t hash;
	size_t at;
	int err = 0;

	for (unsigned i = 0; i < r->o->n_by; i++)
		value[i] = g->value[i] ? g->value[i] : "";
	unfind(r, find(r, value, g->segment, g->hash));
	for (unsigned i = 0; i < r->o->n_by && !err; i++) {
		if (r->o->by[i] != RP_BY_HOST)
			continue;
		err = set_value(r, &g->value[i], host);
		value[i] = err ? "" : g->value[i];
	}
	if (err)
		return err;
	hash = hash_of(value, r->o->n_by, 0);
	at = find(r, value, 0, hash);
	g->host_open = false;
	if (g->canon != g - r->groups) {
		release(r, g); /* it is one of the others already */
	} else if (r->index[at]) {
		err = rp_group_merge(r, &r->groups[r->groups[r->index[at] - 1].canon], g);
		if (!err)
			release(r, g);
	} else {
		g->hash = hash;
		g->segment = 0;
		r->index[at] = (uint32_t)(g - r->groups) + 1;
	}
	return err;
}

/* The segment is over: this was its host. The next one is of the same file. */
static int end_segment(struct rp_report *r, const char *host)
{
	char known[sizeof(r->host)];
	uint32_t at = *host ? r->open : NO_PLACE;
	int err = 0;

	while (at != NO_PLACE && !err) {
		struct rp_group *g = &r->groups[at];

		at = g->next;
		err = settle_host(r, g, host);
	}
	/* what the file's name says is so for all of it */
	snprintf(known, sizeof(known), "%s", r->host);
	new_segment(r, known);
	return err;
}

/*
 * Histograms that don't fit beside `spare`: the smallest group that has any goes to the others, until
 * there is but one. That one fits: a metric has no more pages than there are powers of two
 * of values that a line may have (scan.h).
 */
static int fold(struct rp_report *r, uint64_t spare)
{
	while (r->n_binned > 1 && need(r) + spare > r->room) {
		struct rp_group *least = NULL, *other = rp_group_other(r);
		int err;

		if (!other)
			return -ENOMEM;
		for (size_t i = 0; i < r->n; i++) {
			struct rp_group *g = &r->groups[i];

			if (g->bins && g != other && (!least || g->requests < least->requests))
				least = g;
		}
		if (!least)
			break;
		err = rp_group_merge(r, other, least);
		if (err)
			return err;
	}
	return 0;
}

static int add_bins(struct rp_report *r, struct rp_group *g, const struct rp_facts *f,
		    const uint8_t *why)
{
	int err = open_bins(r, g);
	double v;

	for (int m = 0; m < RP_METRIC_COUNT && !err; m++) {
		struct rp_bins *h = &g->bins[m];
		size_t before;

		if (!rp_metric_per_request((enum rp_metric)m))
			continue;
		if (!rp_metric_of(f, (enum rp_metric)m, &v)) {
			g->fig->missing[m][rp_no_value((enum rp_metric)m, f, why)]++;
			continue;
		}
		before = h->bytes;
		err = rp_bins_add(h, v);
		r->bins_bytes += h->bytes - before;
	}
	return err ? err : fold(r, 0);
}

/* Too many to keep: from here on histograms. */
static int spill(struct rp_report *r)
{
	struct rp_store_cursor *c = rp_store_cursor_new(r->store);
	int err = c ? 0 : -ENOMEM;

	r->exact = false;
	for (size_t b = 0; b < rp_store_blocks(r->store) && !err; b++) {
		struct rp_store_rows rows;

		rp_store_block(c, b, &rows);
		for (size_t i = 0; i < rows.n && !err; i++)
			err = add_bins(r, &r->groups[rp_group_at(r, rows.group[i])], &rows.f[i],
				       rows.why[i]);
		rp_store_drop(r->store, b);
	}
	rp_store_cursor_free(c);
	rp_store_free(r->store);
	r->store = NULL;
	return err;
}

static int add_gap(struct rp_report *r, struct rp_group *g, int64_t ns)
{
	size_t before = g->gap_bins.bytes;
	int err = rp_bins_add(&g->gap_bins, (double)ns);

	r->bins_bytes += g->gap_bins.bytes - before;
	return err;
}

static int spill_gaps(struct rp_report *r)
{
	struct rp_gaps *p = &r->gaps;
	size_t at = 0;
	int err = 0;

	for (size_t k = 0; k < p->n_runs; k++) {
		struct rp_group *g = &r->groups[rp_group_at(r, p->runs[k].ref)];

		for (uint32_t i = 0; i < p->runs[k].n && !err; i++)
			err = add_gap(r, g, p->ns[at++]);
	}
	free(p->ns);
	free(p->runs);
	*p = (struct rp_gaps){ .exact = false };
	return err;
}

static bool room_for(void **p, size_t *cap, size_t n, size_t size)
{
	size_t want = *cap ? *cap : 1024;
	void *more;

	if (n <= *cap)
		return true;
	while (want < n)
		want *= 2;
	more = realloc(*p, want * size);
	if (!more)
		return false;
	*p = more;
	*cap = want;
	return true;
}

static int add_gaps(struct rp_report *r, struct rp_group *g, const struct rp_facts *f)
{
	struct rp_gaps *p = &r->gaps;
	int err = 0;

	if (!f->n_icl)
		return 0;
	/* cap may double; half of all is for the rest */
	if (p->exact &&
	    (p->n + f->n_icl > GAPS_MAX || (p->n + f->n_icl) * (2 * sizeof(*p->ns) + GAP_VALUES) +
							   2 * p->n_runs * sizeof(*p->runs) >
						   r->room / 2))
		err = spill_gaps(r);
	if (!p->exact) {
		for (size_t i = 0; i < f->n_icl && !err; i++)
			err = add_gap(r, g, f->icl[i]);
		return err;
	}
	if (!room_for((void **)&p->ns, &p->cap, p->n + f->n_icl, sizeof(*p->ns)) ||
	    !room_for((void **)&p->runs, &p->cap_runs, p->n_runs + 1, sizeof(*p->runs)))
		return -ENOMEM;
	memcpy(p->ns + p->n, f->icl, f->n_icl * sizeof(*f->icl));
	p->n += f->n_icl;
	if (p->n_runs && p->runs[p->n_runs - 1].ref == g->ref)
		p->runs[p->n_runs - 1].n += (uint32_t)f->n_icl;
	else
		p->runs[p->n_runs++] = (struct rp_gap_run){ g->ref, (uint32_t)f->n_icl };
	return 0;
}

static int take(struct rp_report *r, const struct rp_facts *f, const struct rp_line *l)
{
	struct rp_group *g = group_of(r, f, l);
	char status[16];
	int err;

	if (!g)
		return -ENOMEM;
	r->records++;
	g->requests++;
	g->ends[f->end]++;
	if (f->status)
		snprintf(status, sizeof(status), "%d", f->status);
	err = name(r, &g->status, f->status ? status : "none", 1);
	if (!err)
		err = name(r, &g->finish, *f->finish_reason ? f->finish_reason : "none", 1);
	if (f->start_wall != RP_NONE) {
		if (g->first == RP_NONE || f->start_wall < g->first)
			g->first = f->start_wall;
		if (g->last == RP_NONE || f->start_wall > g->last)
			g->last = f->start_wall;
	}
	rp_metrics_add(&g->sum, f, r->o->judged ? &r->o->slos : NULL);
	if (!err && f->icl && rp_error_class(f) == RP_ERROR_NONE) {
		g->chunked++;
		err = add_gaps(r, g, f);
	}
	if (err || !r->store)
		return err ? err : add_bins(r, g, f, l->why);
	err = rp_store_add(r->store, f, l->why, g->ref);
	if (err == -ENOSPC) {
		err = spill(r);
		if (!err) /* it may have become one of the others */
			err = add_bins(r, &r->groups[g->canon], f, l->why);
		return err;
	}
	/* gaps and files of any size may come with one record */
	if (!err && need(r) > r->room)
		err = spill(r);
	return err;
}

/* ---- the whole ---- */

int rp_report_init(struct rp_report *r, const struct rp_report_options *o)
{
	*r = (struct rp_report){ .o = o, .exact = true, .gaps.exact = true };
	r->room = larger(o->memory / 2, o->memory > BASE ? o->memory - BASE : 0);
	r->groups_max = r->room / 8 / (sizeof(*r->groups) + 64);
	r->groups_max = r->groups_max < RP_REPORT_READING ? r->groups_max : RP_REPORT_READING;
	r->groups_shown = (unsigned)larger(16, r->room / 4 / sizeof(struct rp_figures));
	if (r->groups_shown > RP_REPORT_GROUPS)
		r->groups_shown = RP_REPORT_GROUPS;
	r->other = RP_REPORT_NO_GROUP;
	r->open = r->unused = NO_PLACE;
	r->store = rp_store_new();
	r->index_cap = 4 * RP_REPORT_READING;
	r->index = calloc(r->index_cap, sizeof(*r->index));
	/* pages that nothing is in are none */
	r->groups = calloc(r->groups_max + 1, sizeof(*r->groups));
	/* so that nobody can make two records look like one */
	if (getrandom(&r->seed, sizeof(r->seed), GRND_NONBLOCK) < 0)
		r->seed = 0x243f6a8885a308d3ULL;
	return r->store && r->index && r->groups ? 0 : -ENOMEM;
}

int rp_report_read(struct rp_report *r, struct rp_reader *in,
		   int (*each)(void *ctx, const struct rp_facts *f), void *ctx)
{
	struct rp_reader_room room = { 0 };
	size_t file = SIZE_MAX, n;
	struct rp_line l;
	struct rp_facts f;
	const char *p;
	char host[256];
	int err = 0;

	while (!rp_stopped && (err = rp_reader_next(in, &p, &n)) > 0) {
		bool before;

		if (rp_reader_index(in) != file) {
			file = rp_reader_index(in);
			host_of_name(rp_reader_file(in), host, sizeof(host));
			new_segment(r, host);
		}
		if (!(r->records % 256))
			r->reader_bytes = rp_reader_bytes(in);
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
	return rp_stopped ? -EINTR : err;
}

static void free_group(struct rp_group *g)
{
	for (int i = 0; i < RP_BY_COUNT; i++)
		free(g->value[i]);
	for (int m = 0; g->bins && m < RP_METRIC_COUNT; m++)
		rp_bins_free(&g->bins[m]);
	rp_bins_free(&g->gap_bins);
	free(g->status.of);
	free(g->finish.of);
	free(g->bins);
	free(g->fig);
}

void rp_report_free(struct rp_report *r)
{
	for (size_t i = 0; i < r->n; i++)
		free_group(&r->groups[i]);
	free_group(&r->total);
	free(r->groups);
	free(r->index);
	free(r->place);
	free(r->seen);
	free(r->gaps.ns);
	free(r->gaps.runs);
	rp_store_free(r->store);
}
