// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* main.c - the verb report. */
#include <argp.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "given.h"
#include "options.h"
#include "report/report.h"
#include "report/source.h"
#include "run.h"

enum { OPT_JSON = 256, OPT_BY, OPT_SINCE, OPT_UNTIL, OPT_GOODPUT, OPT_AIPERF, OPT_ALL, OPT_MEMORY };

static const char doc[] =
	"The percentiles, totals and series over time of request logs (reqprobe.request/1 lines: "
	"plain, gzip, zstd). A PATH is a file, a directory, - for standard input, or "
	"s3://BUCKET/PREFIX.\v"
	"TIME is 2026-11-30, 2026-11-30T04:00:00Z, or 90m, 2h, 7d: so long ago. Percentiles are "
	"exact (numpy's linear interpolation, as AIPerf's) as long as --memory holds the "
	"requests, a million in the default; else at most 0.2 % off, and marked. A figure that "
	"some requests have not says of how many it is, and why. Metrics are described in "
	"docs/metrics.md, --json in docs/schema/report-1.schema.json. Exit status: 0 done, 1 "
	"nothing to report, not written or stopped, 2 wrong usage. See reqprobe(8).";

static const struct argp_option options[] = {
	{ "json", OPT_JSON, 0, 0, "One JSON object instead of tables", 0 },
	{ "by", OPT_BY, "KEYS", 0,
	  "Tables for each combination of model, engine, version, host, operation, end, status, stream, finish_reason, error (default model,engine,host), or none",
	  0 },
	{ "since", OPT_SINCE, "TIME", 0, "Requests that started then or later", 0 },
	{ "until", OPT_UNTIL, "TIME", 0, "Requests that started before", 0 },
	{ "goodput", OPT_GOODPUT, "SLOS", 0,
	  "Objectives as in \"time_to_first_token:500 inter_token_latency:50\": who meets them all",
	  0 },
	{ "all", OPT_ALL, 0, 0, "All metrics that have a value in the tables", 0 },
	{ "aiperf", OPT_AIPERF, "DIR", 0,
	  "Write the requests as AIPerf does: profile_export.jsonl, profile_export_aiperf.json",
	  0 },
	{ "memory", OPT_MEMORY, "SIZE", 0, "Memory that may be taken (default 256M)", 0 },
	{ "help", 'h', 0, 0, "Say this", -1 },
	{ 0 },
};

static bool parse_when(const char *s, int64_t *ns)
{
	size_t digits = strspn(s, "0123456789");
	struct timespec now;
	int64_t unit;
	char day[40];

	if (digits && digits < 10 && s[digits] && !s[digits + 1]) {
		switch (s[digits]) {
		case 's':
			unit = 1;
			break;
		case 'm':
			unit = 60;
			break;
		case 'h':
			unit = 3600;
			break;
		case 'd':
			unit = 86400;
			break;
		default:
			return false;
		}
		clock_gettime(CLOCK_REALTIME, &now);
		*ns = (now.tv_sec - strtoll(s, NULL, 10) * unit) * 1000000000LL + now.tv_nsec;
		return true;
	}
	if (strlen(s) == 10) {
		snprintf(day, sizeof(day), "%sT00:00:00Z", s);
		s = day;
	}
	return rp_time_parse(s, strlen(s), ns);
}

static void parse_by(struct rp_report_options *o, const char *s)
{
	o->n_by = 0;
	if (!strcmp(s, "none"))
		return;
	for (;; s++) {
		size_t n = strcspn(s, ",");
		unsigned k = 0;

		while (k < RP_BY_COUNT &&
		       (strlen(rp_by_names[k]) != n || memcmp(rp_by_names[k], s, n) != 0))
			k++;
		if (k == RP_BY_COUNT)
			rp_refuse(
				"--by %.*s: it takes model, engine, version, host, operation, end, status, stream, finish_reason, error with commas between, or none",
				(int)n, s);
		for (unsigned i = 0; i < o->n_by; i++)
			if (o->by[i] == (enum rp_by)k)
				rp_refuse("--by has %s twice", rp_by_names[k]);
		o->by[o->n_by++] = (enum rp_by)k;
		s += n;
		if (!*s)
			return;
	}
}

static const struct argp argp;

static error_t parse(int key, char *arg, struct argp_state *st)
{
	struct rp_report_options *o = st->input;
	char err[256];

	switch (key) {
	case ARGP_KEY_INIT:
		st->child_inputs[0] = &o->s3;
		return 0;
	case OPT_JSON:
		o->json = true;
		return 0;
	case OPT_BY:
		parse_by(o, arg);
		return 0;
	case OPT_SINCE:
	case OPT_UNTIL:
		if (!parse_when(arg, key == OPT_SINCE ? &o->since : &o->until))
			rp_refuse("--%s %s: a time as in 2026-11-30, 2026-11-30T04:00:00Z, 90m, 2h",
				  key == OPT_SINCE ? "since" : "until", arg);
		return 0;
	case OPT_GOODPUT:
		if (rp_slo_parse(arg, &o->slos, err, sizeof(err)))
			rp_refuse("--goodput: %s", err);
		o->judged = true;
		return 0;
	case OPT_AIPERF:
		o->aiperf = arg;
		return 0;
	case OPT_ALL:
		o->all = true;
		return 0;
	case OPT_MEMORY:
		if (!rp_parse_size(arg, "KMG", 32 << 20, 1ULL << 44, &o->memory))
			rp_refuse("--memory %s: a size of 32M or more", arg);
		return 0;
	case 'h':
		rp_help(&argp, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC,
			"reqprobe report");
		exit(RP_EXIT_OK);
	case ARGP_KEY_ARG:
		o->paths[o->n++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (!o->n)
			rp_refuse("report: which logs? reqprobe report PATH...");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child children[] = { { &rp_s3_argp, 0, "A store:", 1 }, { 0 } };
static const struct argp argp = { options, parse, "PATH...", doc, children, NULL, NULL };

static unsigned width_of(void)
{
	struct winsize w;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col)
		return w.ws_col;
	return isatty(STDOUT_FILENO) ? 80 : 140;
}

static void left_out(const struct rp_report *r, const struct rp_reader_stats *in)
{
	unsigned long long out = r->torn + r->foreign + in->too_long;

	if (out)
		rp_say("%llu of %llu lines were left out: %llu torn or broken, %llu that are no reqprobe.request/1, %llu longer than %u MiB",
		       out, (unsigned long long)in->lines, (unsigned long long)r->torn,
		       (unsigned long long)r->foreign, (unsigned long long)in->too_long,
		       RP_LINE_MAX >> 20);
	if (r->unchecked)
		rp_say("%llu records may have come before: --memory holds no more to look them up in",
		       (unsigned long long)r->unchecked);
}

/* What --memory cost, beside what is marked where it stands. */
static void groups_left_out(const struct rp_report *r)
{
	if (r->other != RP_REPORT_NO_GROUP)
		rp_say("%llu requests are together as all others: more groups than %s",
		       (unsigned long long)r->groups[r->other].requests,
		       r->exact && r->groups_max == RP_REPORT_READING &&
				       r->groups_shown == RP_REPORT_GROUPS ?
			       "are told apart" :
			       "--memory holds");
}

static int print(const struct rp_report *r, const struct rp_reader_stats *in)
{
	int err = 0;

	if (r->o->json)
		err = rp_report_put(stdout, r, in);
	else
		rp_report_show(stdout, r, in, width_of());
	errno = EIO;
	if (!err && (fflush(stdout) || ferror(stdout)))
		err = -errno;
	if (err && rp_stopped) /* while nobody read it */
		return -EINTR;
	if (err)
		rp_say("can't write to standard output: %s", strerror(-err));
	return err;
}

static int run(const struct rp_report_options *o)
{
	struct rp_source *src = NULL;
	struct rp_aiperf *a = NULL;
	const struct rp_reader_stats *in;
	struct rp_report r;
	char err[1024] = "";
	int e = rp_report_init(&r, o);

	if (!e)
		e = rp_source_open(&o->s3, o->paths, o->n, o->memory, &src, err, sizeof(err));
	if (!e && o->aiperf)
		e = rp_aiperf_open(o->aiperf, o->judged ? &o->slos : NULL, &a, err, sizeof(err));
	if (e)
		goto cleanup;
	e = rp_report_read(&r, rp_source_reader(src), a ? rp_aiperf_record : NULL, a);
	in = rp_reader_stats(rp_source_reader(src));
	if (e)
		goto cleanup;
	left_out(&r, in);
	if (!r.records) {
		e = -ENODATA;
		snprintf(err, sizeof(err), "no record to report in %llu lines of %llu files%s",
			 (unsigned long long)in->lines, (unsigned long long)in->files,
			 r.outside ? ": all are outside --since and --until" : "");
		goto cleanup;
	}
	e = rp_report_figures(&r);
	if (!e && rp_stopped)
		e = -EINTR;
	if (!e)
		groups_left_out(&r);
	if (!e && a)
		e = rp_aiperf_finish(a, &r.total, r.exact, err, sizeof(err));
	if (!e && a && rp_aiperf_left_out(a))
		rp_say("%s: %llu records are not in it: their start, or how they ended, was not seen",
		       o->aiperf, (unsigned long long)rp_aiperf_left_out(a));
	if (!e) {
		e = print(&r, in);
		if (e && e != -EINTR)
			e = -EALREADY; /* said */
	}
cleanup:
	if (e == -EINTR)
		rp_say("stopped: there is no report");
	else if (e && e != -EALREADY)
		rp_say("%s", *err ? err : strerror(-e));
	rp_aiperf_close(a);
	rp_source_close(src);
	rp_report_free(&r);
	return e ? RP_EXIT_FAILED : RP_EXIT_OK;
}

int rp_report(int argc, char **argv)
{
	struct rp_report_options o = {
		.by = { RP_BY_MODEL, RP_BY_ENGINE, RP_BY_HOST },
		.n_by = 3,
		.since = RP_NONE,
		.until = RP_NONE,
		.memory = 256ULL << 20,
	};
	int unknown, next = argc, status;

	o.paths = calloc((size_t)argc + 1, sizeof(*o.paths));
	if (!o.paths)
		rp_refuse("no memory");
	argp_err_exit_status = RP_EXIT_USAGE;
	/* its own complaints take two lines */
	unknown = rp_given(&argp, argc, argv, NULL);
	if (argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, &next, &o))
		rp_refuse(
			"report: '%s' is not understood, or lacks its value; see reqprobe report --help",
			argv[unknown		      ? unknown :
			     next > 0 && next <= argc ? next - 1 :
							argc - 1]);
	signal(SIGPIPE, SIG_IGN);
	rp_source_on_signals();
	/* What is large goes back to the kernel as soon as it is freed, whatever was freed
	 * before: --memory counts on it. */
	mallopt(M_MMAP_THRESHOLD, 256 << 10);
	status = run(&o);
	free(o.paths);
	return status;
}
