// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* show.c - what a person sees of the verb rtt. */
#include "rtt/rtt.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <string.h>
#include <time.h>

#define NS_PER_S 1000000000LL
#define NAME_WIDTH 34

/* Three digits and a unit; `whole`: microseconds are all there is. */
static const char *dur(char *buf, size_t len, double ns, bool whole)
{
	static const struct {
		double per;
		const char *unit;
	} u[] = { { 1e3, "us" }, { 1e6, "ms" }, { 1e9, "s" } };
	size_t i = ns < 999500 ? 0 : ns < 999500000 ? 1 : 2;
	double d = ns / u[i].per;

	snprintf(buf, len, "%.*f%s",
		 whole && i == 0 ? 0 :
		 d < 9.995	 ? 2 :
		 d < 99.95	 ? 1 :
				   0,
		 d, u[i].unit);
	return buf;
}

static int width(const struct rp_rtt_target *t, unsigned n)
{
	size_t w = 6;

	for (unsigned i = 0; i < n; i++)
		if (strlen(t[i].name) > w)
			w = strlen(t[i].name);
	return w > NAME_WIDTH ? NAME_WIDTH : (int)w;
}

const char *rp_rtt_error(const struct rp_rtt_result *r)
{
	return r->resolve ? gai_strerror(r->err) : r->own_timeout ? "timed out" : strerror(r->err);
}

void rp_rtt_show_header(FILE *f, const struct rp_rtt_options *o)
{
	int w = width(o->targets, o->n);
	char a[16], b[16];

	fprintf(f, "reqprobe %s  rtt  every %s, timeout %s  Ctrl-C ends\n", RP_VERSION,
		dur(a, sizeof(a), (double)o->interval, false),
		dur(b, sizeof(b), (double)o->timeout, false));
	for (unsigned i = 0; i < o->n; i++) {
		const struct rp_rtt_target *t = &o->targets[i];

		fprintf(f, "  %-*s  ", w, t->name);
		if (!t->addr_len)
			fputs("no address yet: asked again at each probe\n", f);
		else if (t->addresses > 1)
			fprintf(f, "%s, first of %u addresses\n", t->address, t->addresses);
		else
			fprintf(f, "%s\n", t->address);
	}
	fprintf(f, "\n%-8s  %-*s %8s %8s\n", "TIME", w, "TARGET", "CONNECT", "KERNEL");
	fflush(f);
}

void rp_rtt_show_result(FILE *f, const struct rp_rtt_options *o, const struct rp_rtt_result *r)
{
	int w = width(o->targets, o->n);
	time_t s = (time_t)(r->wall / NS_PER_S);
	char at[16] = "", c[16], k[16];
	struct tm tm;

	if (localtime_r(&s, &tm))
		strftime(at, sizeof(at), "%H:%M:%S", &tm);
	fprintf(f, "%-8s  %-*.*s ", at, w, w, r->t->name);
	if (r->err)
		fprintf(f, " %s\n", rp_rtt_error(r));
	else
		fprintf(f, "%8s %8s%s\n", dur(c, sizeof(c), (double)r->connect, false),
			r->kernel < 0 ? "-" : dur(k, sizeof(k), (double)r->kernel, true),
			r->retransmits ? "  SYN sent again" : "");
	fflush(f);
}

static void show_series(FILE *f, const char *name, const struct rp_series *s, bool whole)
{
	static const unsigned at[] = { 500, 900, 950, 990 };
	char d[16];

	if (!s || !s->n)
		return;
	fprintf(f, "  %-8s %7s", name, dur(d, sizeof(d), (double)s->min, whole));
	fprintf(f, " %7s", dur(d, sizeof(d), s->mean, false));
	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++)
		fprintf(f, " %7s",
			dur(d, sizeof(d), (double)rp_series_at(s, at[i]),
			    whole && s->min < 100 * (int64_t)s->unit));
	fprintf(f, " %7s", dur(d, sizeof(d), (double)s->max, whole));
	fprintf(f, " %7s\n", dur(d, sizeof(d), rp_series_std(s), false));
}

static void show_target(FILE *f, const struct rp_rtt_target *t, bool passive)
{
	uint64_t bad = t->probes - t->failures[RP_RTT_OK];
	const char *sep = "";

	fprintf(f, "%s", t->name);
	if (*t->address && strcmp(t->address, t->host) != 0)
		fprintf(f, " (%s)", t->address);
	if (passive)
		fprintf(f, ": %" PRIu64 " handshake%s", t->probes, t->probes == 1 ? "" : "s");
	else
		fprintf(f, ": %" PRIu64 " probe%s, %" PRIu64 " failed", t->probes,
			t->probes == 1 ? "" : "s", bad);
	if (bad) {
		fputs(" (", f);
		for (unsigned i = RP_RTT_OK + 1; i < RP_RTT_WHYS; i++) {
			if (!t->failures[i])
				continue;
			fprintf(f, "%s%" PRIu64 " %s", sep, t->failures[i], rp_rtt_why_names[i]);
			sep = ", ";
		}
		fputc(')', f);
	}
	if (t->abandoned)
		fprintf(f, ", %" PRIu64 " unfinished", t->abandoned);
	fputc('\n', f);
	if (t->failures[RP_RTT_OK])
		fprintf(f, "  %-8s %7s %7s %7s %7s %7s %7s %7s %7s\n", "", "min", "mean", "p50",
			"p90", "p95", "p99", "max", "std");
	show_series(f, "connect", t->connect, false);
	show_series(f, "kernel", t->kernel, true);
	if (t->retransmitted)
		fprintf(f, "  %" PRIu64 " of them sent the SYN again: in connect, not in kernel\n",
			t->retransmitted);
	if (t->missed_open)
		fprintf(f,
			"  %" PRIu64
			" probes not sent: the target had not closed %d earlier ones\n",
			t->missed_open, RP_RTT_MAX_OPEN);
	if (t->missed_late)
		fprintf(f, "  %" PRIu64 " probes not sent: this machine was too late for them\n",
			t->missed_late);
}

void rp_rtt_show_summary(FILE *f, const struct rp_rtt_summary *s)
{
	for (unsigned i = 0; i < s->n; i++)
		show_target(f, &s->targets[i], s->o->source == RP_RTT_PASSIVE);
	fflush(f);
}
