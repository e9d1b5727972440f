// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * terminal.c - what a person sees: a header, one line for each finished
 * request, a summary. Colour repeats what the words say. Everything that comes
 * from the wire is printed as plain ASCII: an id must not move the cursor.
 */
#include "sink/sink.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* ---- log-linear histogram: fixed size, error below 0.4 %, exact maximum ---- */

#define SUB_BITS 7
#define SUB (1 << SUB_BITS)
#define BUCKETS ((64 - SUB_BITS) * SUB)

struct loghist {
	uint64_t bucket[BUCKETS];
	uint64_t count;
	int64_t min, max;
};

static size_t bucket_of(uint64_t v)
{
	int e;

	if (v < SUB)
		return v;
	e = 63 - __builtin_clzll(v) - SUB_BITS;
	return (size_t)(e + 1) * SUB + ((v >> e) - SUB);
}

/* The middle of a bucket: at most half its width, 1/256 of its value, off. */
static int64_t bucket_mid(size_t i)
{
	int e;

	if (i < SUB)
		return (int64_t)i;
	e = (int)(i / SUB) - 1;
	return (int64_t)(((i % SUB + SUB) << e) + ((1ULL << e) >> 1));
}

static void loghist_add(struct loghist *h, int64_t v, uint64_t times)
{
	if (v < 0)
		return;
	if (!h->count || v < h->min)
		h->min = v;
	h->bucket[bucket_of((uint64_t)v)] += times;
	h->count += times;
	if (v > h->max)
		h->max = v;
}

/* The value of this rank, from 1. */
static int64_t loghist_rank(const struct loghist *h, uint64_t rank)
{
	uint64_t cum = 0;
	int64_t v;

	if (rank <= 1)
		return h->min;
	for (size_t i = 0; i < BUCKETS && rank < h->count; i++) {
		cum += h->bucket[i];
		if (cum < rank)
			continue;
		v = bucket_mid(i);
		return v < h->min ? h->min : v > h->max ? h->max : v;
	}
	return h->max;
}

/* By linear interpolation, as `reqprobe report`, numpy and AIPerf have it. */
static int64_t loghist_at(const struct loghist *h, unsigned permille)
{
	unsigned __int128 at = (unsigned __int128)(h->count - 1) * permille;
	int64_t v = loghist_rank(h, (uint64_t)(at / 1000) + 1);
	unsigned part = (unsigned)(at % 1000);

	return part ? v + (int64_t)((double)(loghist_rank(h, (uint64_t)(at / 1000) + 2) - v) *
				    part / 1000) :
		      v;
}

/* ---- the sink ---- */

struct slow {
	bool set;
	char id[RP_ID_MAX];
	int64_t total, frontend, queue, prefill, rest; /* RP_NONE unknown */
};
_Static_assert(RP_ENGINE_ID_MAX <= RP_ID_MAX, "either id is shown");

struct rp_term {
	FILE *out;
	int fd; /* behind it */
	bool color, tty;
	int width, height;
	int until_head;	 /* lines until the column heads are due again */
	uint64_t marked; /* records with a star */
	struct loghist queue, ttft, itl, icl, total;
	struct slow slow_ttft, slow_total;
};

static void measure(struct rp_term *t)
{
	struct winsize w;

	t->width = 80;
	t->height = 0;
	if (!t->tty || ioctl(t->fd, TIOCGWINSZ, &w) < 0)
		return;
	if (w.ws_col >= 20)
		t->width = w.ws_col > 512 ? 512 : w.ws_col;
	t->height = w.ws_row;
}

struct rp_term *rp_term_new(FILE *out, int fd, int color)
{
	struct rp_term *t = calloc(1, sizeof(*t));
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	if (!t)
		return NULL;
	t->out = out;
	t->fd = fd;
	t->tty = isatty(fd);
	t->color = color < 0 ? t->tty && !(no && *no) && !(term && !strcmp(term, "dumb")) : color;
	measure(t);
	return t;
}

void rp_term_free(struct rp_term *t)
{
	free(t);
}

static const char *on(const struct rp_term *t, const char *seq)
{
	return t->color ? seq : "";
}
#define BOLD "\033[1m"
#define DIM "\033[2m"
#define RED "\033[31m"
#define YELLOW "\033[33m"
#define OFF "\033[0m"

/* One line of text under construction, cut at the terminal's width. */
struct line {
	char s[512];
	size_t n;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *l, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	/* clang-tidy 14 loses track of va_start here */
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	n = vsnprintf(l->s + l->n, sizeof(l->s) - l->n, fmt, ap);
	va_end(ap);
	if (n > 0)
		l->n += (size_t)n < sizeof(l->s) - l->n ? (size_t)n : sizeof(l->s) - l->n - 1;
}

static void emit(struct rp_term *t, struct line *l, const char *style)
{
	size_t w = (size_t)t->width;

	for (size_t i = 0; i < l->n; i++)
		if ((unsigned char)l->s[i] < 0x20 || (unsigned char)l->s[i] >= 0x7f)
			l->s[i] = '?';
	if (l->n > w) {
		l->n = w;
		l->s[w - 1] = l->s[w - 2] = '.';
	}
	while (l->n && l->s[l->n - 1] == ' ')
		l->n--;
	l->s[l->n] = '\0';
	fprintf(t->out, "%s%s%s\n", on(t, style), l->s, *style ? on(t, OFF) : "");
}

/* At most `w` characters of s; what is cut ends in "..". */
static void cut(char *dst, const char *s, size_t w)
{
	size_t n = strnlen(s, w + 1);

	memcpy(dst, s, n > w ? w : n);
	dst[n > w ? w : n] = '\0';
	if (n > w && w >= 2)
		dst[w - 1] = dst[w - 2] = '.';
}

/* A duration in three digits and its unit, at most 6 characters: 0us, 31us,
 * 1.24ms, 11.2ms, 139ms, 1.24s, 2560s, 27.8h. Rounds to nearest. about: a digit less,
 * which leaves room for the mark of what is near it: ~11ms. */
static const char *duration(char *buf, size_t len, int64_t ns, bool about)
{
	static const struct {
		double per;
		const char *unit;
	} u[] = { { 1e3, "us" }, { 1e6, "ms" }, { 1e9, "s" }, { 3600e9, "h" } };
	int digits;
	double d;
	size_t i;

	/* limits where the rounded figure would need the next unit */
	if (ns < 999500)
		i = 0;
	else if (ns < 999500000)
		i = 1;
	else if (ns < 9999500000000)
		i = 2;
	else
		i = 3;
	d = (double)ns / u[i].per;
	if (about)
		digits = d < 9.95;
	else
		digits = d < 9.995 ? 2 : d < 99.95 ? 1 : 0;
	snprintf(buf, len, "%s%.*f%s", about ? "~" : "", i ? digits : 0, d, u[i].unit);
	return buf;
}

static const char *dur(char *buf, size_t len, int64_t ns)
{
	return duration(buf, len, ns, false);
}

static const char *value_dur(char *buf, size_t len, const struct rp_value *v, int64_t unit)
{
	return v->known ? dur(buf, len, v->i * unit) : "-";
}

/* 0 to 99999 as they are, then 120k, 12M */
static const char *big(char *buf, size_t len, uint64_t v)
{
	if (v < 100000)
		snprintf(buf, len, "%" PRIu64, v);
	else if (v < 9999500)
		snprintf(buf, len, "%.0fk", (double)v / 1e3);
	else
		snprintf(buf, len, "%.0fM", (double)v / 1e6);
	return buf;
}

static const char *value_count(char *buf, size_t len, const struct rp_value *v)
{
	if (!v->known)
		return "-";
	return big(buf, len, (uint64_t)v->i);
}

/* ---- header ---- */

void rp_term_header(struct rp_term *t, const struct rp_term_header *h)
{
	struct line l = { .n = 0 };
	size_t wide = 0;

	measure(t);
	for (size_t i = 0; i < h->n_engines; i++) {
		const struct rp_term_engine *e = &h->engines[i];

		l.n = 0;
		add(&l, "%-*s  %s", (int)sizeof("reqprobe " RP_VERSION) - 1,
		    i ? "" : "reqprobe " RP_VERSION, e->name ? e->name : "unknown engine");
		if (e->version && *e->version)
			add(&l, " %s", e->version);
		add(&l, "  pid %u", e->pid);
		if (e->more_pids)
			add(&l, " and %u more", e->more_pids);
		if (e->address)
			add(&l, "  %s", e->address);
		emit(t, &l, BOLD);
	}
	for (size_t i = 0; i < h->n_rows; i++) {
		size_t n = strlen(h->rows[i].what);

		if (n > wide && n <= 26)
			wide = n;
	}
	for (size_t i = 0; i < h->n_rows; i++) {
		const struct rp_term_row *r = &h->rows[i];
		bool same = i && !strcmp(r->key, h->rows[i - 1].key);

		l.n = 0;
		add(&l, "  %-6s %-*s   %s", same ? "" : r->key, (int)wide, r->what,
		    r->how ? r->how : "");
		emit(t, &l, strcmp(r->key, "blind") ? "" : YELLOW);
	}
	l.n = 0;
	if (h->metrics_url)
		add(&l, "  metrics %s   Ctrl-C ends", h->metrics_url);
	else
		add(&l, "  metrics off   Ctrl-C ends");
	emit(t, &l, "");
	fputc('\n', t->out);
	t->until_head = 0;
	fflush(t->out);
}

/* ---- one line for each request ---- */

enum col { C_TIME, C_ID, C_IN, C_OUT, C_QUEUE, C_TTFT, C_ITL, C_TOTAL, C_RTT, C_END, C_COUNT };

static const struct {
	const char *head;
	int width; /* with the space before it */
	bool left;
	int drop; /* order in which a narrow terminal loses it; 0: stays */
} cols[C_COUNT] = {
	[C_TIME] = { "START", 8, true, 3 },   [C_ID] = { "ID", 16, true, 0 },
	[C_IN] = { "IN", 6, false, 2 },	      [C_OUT] = { "OUT", 6, false, 5 },
	[C_QUEUE] = { "QUEUE", 7, false, 6 }, [C_TTFT] = { "TTFT", 7, false, 0 },
	[C_ITL] = { "ITL", 7, false, 4 },     [C_TOTAL] = { "TOTAL", 7, false, 0 },
	[C_RTT] = { "RTT", 7, false, 1 },     [C_END] = { "END", 9, true, 0 },
};

/* Which columns fit; the id gets what is left over. */
static unsigned layout(const struct rp_term *t, int *id_width)
{
	unsigned show = (1u << C_COUNT) - 1;
	int sum = 0;

	for (int c = 0; c < C_COUNT; c++)
		sum += cols[c].width;
	for (int d = 1; sum > t->width && d <= 6; d++) {
		for (int c = 0; c < C_COUNT; c++) {
			if (cols[c].drop == d) {
				show &= ~(1u << c);
				sum -= cols[c].width;
			}
		}
	}
	*id_width = cols[C_ID].width + (t->width > sum ? t->width - sum : 0);
	if (*id_width > 42)
		*id_width = 42;
	return show;
}

static void put_row(struct rp_term *t, const char *const *cell, const char *style)
{
	struct line l = { .n = 0 };
	int id_width;
	unsigned show = layout(t, &id_width);

	for (int c = 0; c < C_COUNT; c++) {
		int w = c == C_ID ? id_width : cols[c].width;
		char text[64];

		if (!(show & 1u << c))
			continue;
		cut(text, cell[c], (size_t)(w - (c != C_TIME)));
		if (cols[c].left && l.n)
			add(&l, " %-*s", w - 1, text);
		else if (cols[c].left)
			add(&l, "%-*s", w, text);
		else
			add(&l, "%*s", w, text);
	}
	emit(t, &l, style);
}

/* How it ended, in eight characters: the reason it finished with, or who broke off. */
static void end_text(char *buf, size_t len, const struct rp_record *r, bool star)
{
	static const char *const shorts[RP_END_COUNT] = {
		[RP_END_COMPLETE] = "complete",	  [RP_END_CLIENT_DISCONNECT] = "client",
		[RP_END_SERVER_CLOSE] = "server", [RP_END_ERROR] = "error",
		[RP_END_UNKNOWN] = "unknown",
	};
	const char *s = shorts[r->end];
	char word[16], status[16];

	if (r->end == RP_END_COMPLETE && r->finish_reason[0]) {
		s = r->finish_reason;
		if (!strcmp(s, "tool_calls"))
			s = "tools";
		else if (!strcmp(s, "content_filter"))
			s = "filter";
	} else if (r->end == RP_END_ERROR && r->status >= 400 && r->status < 1000) {
		snprintf(status, sizeof(status), "err %d", r->status);
		s = status;
	}
	cut(word, s, star ? 7 : 8);
	snprintf(buf, len, "%s%s", word, star ? "*" : "");
}

static void track(struct slow *s, const struct rp_record *r, const struct rp_value *total)
{
	const struct rp_value *v = r->v;
	int64_t known;

	if (!total->known || (s->set && total->i <= s->total))
		return;
	s->set = true;
	s->total = total->i;
	memcpy(s->id, r->id[0] ? r->id : r->request_ids[0],
	       r->id[0] ? sizeof(r->id) : sizeof(r->request_ids[0]));
	s->rest = RP_NONE;
	if (!v[RP_FIELD_P_FRONTEND].known || !v[RP_FIELD_P_QUEUE].known ||
	    !v[RP_FIELD_P_PREFILL].known)
		return;
	s->frontend = v[RP_FIELD_P_FRONTEND].i;
	s->queue = v[RP_FIELD_P_QUEUE].i;
	s->prefill = v[RP_FIELD_P_PREFILL].i;
	known = s->frontend + s->queue + s->prefill;
	/* from the engine's first token: its way to the socket, or all the decoding */
	s->rest = s->total >= known ? s->total - known : RP_NONE;
}

void rp_term_record(struct rp_term *t, const struct rp_record *r)
{
	const struct rp_value *v = r->v;
	bool lossy = r->flags & (RP_FLAG_PARTIAL | RP_FLAG_LOST_EVENTS);
	bool star = r->flags & (RP_FLAG_PARTIAL | RP_FLAG_LOST_EVENTS | RP_FLAG_TRUNCATED |
				RP_FLAG_LIMIT | RP_FLAG_PARSE_ERROR);
	char when[16] = "-", in[24], out[24], queue[24], ttft[24], itl[24] = "-", total[24],
	     rtt[24], end[24];
	const char *cell[C_COUNT] = {
		[C_TIME] = when,
		[C_ID] = r->id[0]	  ? r->id :
			 r->n_request_ids ? r->request_ids[0] :
					    "-",
		[C_IN] = value_count(in, sizeof(in), &v[RP_FIELD_TOK_PROMPT]),
		[C_OUT] = value_count(out, sizeof(out), &v[RP_FIELD_TOK_COMPLETION]),
		[C_QUEUE] = value_dur(queue, sizeof(queue), &v[RP_FIELD_P_QUEUE], 1),
		[C_TTFT] = value_dur(ttft, sizeof(ttft), &v[RP_FIELD_S_TTFT], 1),
		[C_ITL] = itl,
		[C_TOTAL] = value_dur(total, sizeof(total), &v[RP_FIELD_S_ENDED], 1),
		[C_RTT] = value_dur(rtt, sizeof(rtt), &v[RP_FIELD_NET_RTT], 1000),
		[C_END] = end,
	};

	if (r->t_start != RP_NONE) {
		time_t s = (time_t)((r->t_start + r->wall_offset) / 1000000000);
		struct tm tm;

		if (localtime_r(&s, &tm))
			strftime(when, sizeof(when), "%H:%M:%S", &tm);
	}
	/* without the engine's own: how many tokens an event has, nobody tells */
	if (v[RP_FIELD_M_MEAN_ITL].known)
		dur(itl, sizeof(itl), (int64_t)(v[RP_FIELD_M_MEAN_ITL].d * 1e6 + 0.5));
	else if (v[RP_FIELD_S_MEAN_ICL].known)
		duration(itl, sizeof(itl), (int64_t)(v[RP_FIELD_S_MEAN_ICL].d * 1e6 + 0.5), true);
	end_text(end, sizeof(end), r, star);
	t->marked += star;

	if (!lossy) {
		if (v[RP_FIELD_P_QUEUE].known)
			loghist_add(&t->queue, v[RP_FIELD_P_QUEUE].i, 1);
		if (v[RP_FIELD_S_TTFT].known && !(r->flags & RP_FLAG_TRUNCATED))
			loghist_add(&t->ttft, v[RP_FIELD_S_TTFT].i, 1);
		if (v[RP_FIELD_S_DURATION].known && r->end == RP_END_COMPLETE)
			loghist_add(&t->total, v[RP_FIELD_S_DURATION].i, 1);
		if (!(r->flags & RP_FLAG_TRUNCATED))
			track(&t->slow_ttft, r, &v[RP_FIELD_S_TTFT]);
		if (r->end == RP_END_COMPLETE)
			track(&t->slow_total, r, &v[RP_FIELD_S_DURATION]);
	}

	measure(t);
	if (t->until_head <= 0) {
		const char *heads[C_COUNT];

		for (int c = 0; c < C_COUNT; c++)
			heads[c] = cols[c].head;
		put_row(t, heads, BOLD);
		t->until_head = t->height > 6 ? t->height - 2 : INT32_MAX;
	}
	put_row(t, cell, r->end == RP_END_COMPLETE ? "" : r->end == RP_END_ERROR ? RED : YELLOW);
	if (t->height > 6)
		t->until_head--;
	fflush(t->out);
}

void rp_term_gap(struct rp_term *t, const struct rp_gap_info *g)
{
	if (g->chunk)
		loghist_add(&t->icl, g->gap_ns, g->n);
	else if (g->source == RP_ITL_ENGINE)
		loghist_add(&t->itl, g->gap_ns, g->n);
}

/* ---- summary ---- */

static void quantiles(struct rp_term *t, const char *name, const struct loghist *h)
{
	static const unsigned at[] = { 500, 900, 990 };
	struct line l = { .n = 0 };
	char d[24];

	add(&l, "%-7s", name);
	for (size_t i = 0; i < 3; i++)
		add(&l, " %8s", h->count ? dur(d, sizeof(d), loghist_at(h, at[i])) : "-");
	add(&l, " %8s", h->count ? dur(d, sizeof(d), h->max) : "-");
	emit(t, &l, "");
}

struct share {
	const char *name;
	int64_t ns;
};

static int by_size(const void *a, const void *b)
{
	const struct share *x = a, *y = b;

	return x->ns < y->ns ? 1 : x->ns > y->ns ? -1 : 0;
}

/* Whole percents that add up to 100: what rounding down leaves goes to the largest rests. */
static void percents(const struct share *sh, int n, int64_t total, int *pct)
{
	int64_t rest[8] = { 0 };
	int left = 100, most;

	for (int i = 0; i < n; i++) {
		pct[i] = (int)(sh[i].ns * 100 / total);
		rest[i] = sh[i].ns * 100 % total;
		left -= pct[i];
	}
	for (; left > 0 && left <= n; left--) {
		most = 0;
		for (int i = 1; i < n; i++)
			if (rest[i] > rest[most])
				most = i;
		pct[most]++;
		rest[most] = -1;
	}
}

static void slowest(struct rp_term *t, const struct slow *s, const char *what, const char *rest)
{
	struct share sh[] = { { "queue", s->queue },
			      { "prefill", s->prefill },
			      { "front end", s->frontend },
			      { rest, s->rest } };
	struct line l = { .n = 0 };
	char id[20], d[24];
	bool first = true;
	int pct[4];

	cut(id, s->id[0] ? s->id : "a request", 15);
	add(&l, "slowest: %s  %s %s", id, what, dur(d, sizeof(d), s->total));
	if (s->rest != RP_NONE && s->total > 0) {
		qsort(sh, 4, sizeof(*sh), by_size);
		percents(sh, 4, s->total, pct);
		for (int i = 0; i < 4; i++) {
			if (pct[i] < 1)
				continue;
			add(&l, "%s %d%% %s", first ? ":" : ",", pct[i], sh[i].name);
			first = false;
		}
	}
	emit(t, &l, "");
}

/* "3 tls, 1 io_uring": those that are not 0; false when all are. */
static bool nonzero(struct line *l, const char *const *names, const uint64_t *v, size_t n)
{
	bool any = false;

	for (size_t i = 0; i < n; i++) {
		if (!v[i])
			continue;
		add(l, "%s%" PRIu64 " %s", any ? ", " : "", v[i], names[i]);
		any = true;
	}
	return any;
}

static void warn_row(struct rp_term *t, const char *what, const char *const *names,
		     const uint64_t *v, size_t n, const char *tail)
{
	struct line l = { .n = 0 };

	add(&l, "%s", what);
	if (!nonzero(&l, names, v, n))
		return;
	add(&l, "%s", tail);
	emit(t, &l, YELLOW);
}

/* One more part of a list that goes on below where the line is full. */
static void part(struct rp_term *t, struct line *l, bool first, const char *text)
{
	if (!first && l->n + 3 + strlen(text) > (size_t)t->width) {
		add(l, ",");
		emit(t, l, "");
		l->n = 0;
		add(l, "%-10s", "");
		first = true;
	}
	add(l, "%s%s", first ? "" : ", ", text);
}

/* What the engines' schedulers told, all of them together. */
static void scheduler(struct rp_term *t, const struct rp_stats *s)
{
	uint64_t steps = 0, tokens = 0, outputs = 0, preempted = 0, queries = 0, hits = 0,
		 drafted = 0, accepted = 0;
	struct line l = { .n = 0 };
	bool preemptions = true; /* known: a sum of which a part is not known is none */
	char text[80], n[24];

	for (unsigned i = 0; i < s->n_cores && i < RP_MAX_CORES; i++) {
		const struct rp_core *c = &s->cores[i];

		steps += c->steps;
		tokens += c->tokens;
		outputs += c->outputs;
		preempted += c->preemptions;
		preemptions &= rp_core_preemptions(c);
		queries += c->prefix_queries;
		hits += c->prefix_hits;
		drafted += c->spec_draft_tokens;
		accepted += c->spec_accepted_tokens;
	}
	if (!steps)
		return;
	add(&l, "scheduler ");
	snprintf(text, sizeof(text), "%s step%s", big(n, sizeof(n), steps), steps == 1 ? "" : "s");
	part(t, &l, true, text);
	snprintf(text, sizeof(text), "%.1f requests and %.1f tokens a step",
		 (double)outputs / (double)steps, (double)tokens / (double)steps);
	part(t, &l, false, text);
	if (preemptions) {
		snprintf(text, sizeof(text), "%s preemption%s", big(n, sizeof(n), preempted),
			 preempted == 1 ? "" : "s");
		part(t, &l, false, text);
	}
	if (queries) {
		snprintf(text, sizeof(text), "prefix cache %.0f%% of %s tokens",
			 100.0 * (double)hits / (double)queries, big(n, sizeof(n), queries));
		part(t, &l, false, text);
	}
	if (drafted) {
		snprintf(text, sizeof(text), "%.0f%% of %s drafted tokens accepted",
			 100.0 * (double)accepted / (double)drafted, big(n, sizeof(n), drafted));
		part(t, &l, false, text);
	}
	emit(t, &l, "");
}

void rp_term_summary(struct rp_term *t, const struct rp_stats *s)
{
	static const char *const unobserved_names[] = { "tls", "http2", "other", "io_uring" };
	const uint64_t unobserved[] = { s->unobserved_tls, s->unobserved_http2, s->unobserved_other,
					s->unobserved_io_uring };
	static const char *const limit_names[] = { "conns", "requests", "tasks", "memory",
						   "marks", "cores",	"ids" };
	const uint64_t limits[] = { s->limit_conns,  s->limit_requests, s->limit_tasks,
				    s->limit_memory, s->limit_marks,	s->limit_cores,
				    s->limit_ids };
	static const char *const message_names[] = { "cut", "not understood" };
	const uint64_t messages[] = { s->messages_cut, s->messages_bad };
	static const char *const byte_names[] = { "lost", "cut" };
	const uint64_t bytes[] = { s->bytes_lost, s->bytes_cut };
	uint64_t lost = 0;
	struct line l = { .n = 0 };
	char tail[48];

	measure(t);
	fputc('\n', t->out);
	for (int c = 0; c < RP_CLASS_COUNT; c++)
		lost += s->lost[c];
	add(&l, "%" PRIu64 " request%s", s->started, s->started == 1 ? "" : "s");
	if (s->started) {
		add(&l, ": ");
		nonzero(&l, rp_end_names, s->ends, RP_END_COUNT);
		if (s->in_flight)
			add(&l, "%s%" PRIu64 " in flight", l.s[l.n - 1] == ' ' ? "" : ", ",
			    s->in_flight);
	}
	snprintf(tail, sizeof(tail), "%" PRIu64 " event%s lost", lost, lost == 1 ? "" : "s");
	if (l.n + 2 + strlen(tail) > (size_t)t->width) { /* the loss must not be cut off */
		emit(t, &l, BOLD);
		l.n = 0;
	}
	add(&l, "%s%s", l.n ? "; " : "", tail);
	emit(t, &l, BOLD);

	l.n = 0;
	add(&l, "%-7s %8s %8s %8s %8s", "", "p50", "p90", "p99", "max");
	emit(t, &l, DIM);
	quantiles(t, "queue", &t->queue);
	quantiles(t, "ttft", &t->ttft);
	if (t->itl.count || !t->icl.count)
		quantiles(t, "itl", &t->itl);
	else
		quantiles(t, "icl", &t->icl);
	if (!t->ttft.count && t->total.count)
		quantiles(t, "total", &t->total);
	if (t->slow_ttft.set)
		slowest(t, &t->slow_ttft, "ttft", "delivery");
	else if (t->slow_total.set)
		slowest(t, &t->slow_total, "total", "decode");
	scheduler(t, s);

	if (t->marked) {
		l.n = 0;
		add(&l, "* %" PRIu64 " record%s incomplete: see flags in the JSONL", t->marked,
		    t->marked == 1 ? "" : "s");
		emit(t, &l, YELLOW);
	}
	if (lost)
		warn_row(t, "lost events: ", rp_class_names, s->lost, RP_CLASS_COUNT,
			 " (try a larger --ring)");
	warn_row(t, "stream bytes: ", byte_names, bytes, 2, "");
	warn_row(t, "engine messages: ", message_names, messages, 2, "");
	warn_row(t, "map full: ", rp_map_names, s->map_full, RP_MAP_COUNT, "");
	warn_row(t, "limits hit: ", limit_names, limits, 7,
		 " (see --memory, --max-requests, --max-connections)");
	warn_row(t, "unobserved connections: ", unobserved_names, unobserved, 4,
		 "; their requests are in no figure");
	fflush(t->out);
}
