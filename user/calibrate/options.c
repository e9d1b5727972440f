// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* options.c - what the user typed, and AIPerf's files in a directory of its own. */
#include "calibrate/calibrate.h"

#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "given.h"
#include "options.h"
#include "run.h"

enum { OPT_RECORDS = 256, OPT_LATENCY, OPT_MEAN, OPT_JOIN, OPT_JSON };

static const char doc[] =
	"Takes the network out of AIPerf's figures as AIPerf does, and takes client TTFTs apart.\v"
	"  reqprobe calibrate DIR                      AIPerf's artifact directory\n"
	"  reqprobe calibrate DIR --join FILE          and where the client's TTFT went\n"
	"\nNeeds no root. Exit status: 0 done, 1 failed, 2 wrong usage. See reqprobe(8).";

static const struct argp_option options[] = {
	{ "records", OPT_RECORDS, "FILE", 0, "AIPerf's records (profile_export.jsonl)", 0 },
	{ "latency", OPT_LATENCY, "FILE", 0,
	  "Its probes, or ours (profile_export_network_latency.jsonl)", 0 },
	{ "network-latency-mean", OPT_MEAN, "MS", 0, "This RTT instead", 0 },
	{ "join", OPT_JOIN, "FILE", 0, "Records of reqprobe of the same requests", 0 },
	{ "output", 'o', "DIR|FILE", 0,
	  "Write files: all into DIR, or the one that FILE.json or FILE.jsonl stands for", 0 },
	{ "json", OPT_JSON, 0, 0, "One JSON object instead of the table", 0 },
	{ "help", 'h', 0, 0, "Say this", -1 },
	{ 0 },
};

struct typed {
	struct rp_cal_options *o;
	const char *records, *latency, *place;
	int status; /* not 0: it was said */
	bool help;
};

static void refuse(struct typed *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void refuse(struct typed *t, const char *fmt, ...)
{
	char line[768];
	va_list ap;

	if (t->status)
		return; /* one line only */
	t->status = RP_EXIT_USAGE;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	rp_say("%s", line);
}

static error_t parse(int key, char *arg, struct argp_state *st)
{
	struct typed *t = st->input;
	char *end;

	switch (key) {
	case OPT_RECORDS:
		t->records = arg;
		return 0;
	case OPT_LATENCY:
		t->latency = arg;
		return 0;
	case OPT_MEAN:
		errno = 0;
		t->o->mean_ms = strtod(arg, &end);
		if (errno || end == arg || *end || !(t->o->mean_ms > 0) || t->o->mean_ms > 1e9)
			refuse(t,
			       "--network-latency-mean %s: milliseconds above 0, as in 20 or 0.4",
			       arg);
		return 0;
	case OPT_JOIN:
		t->o->join = arg;
		return 0;
	case 'o':
		if (!*arg || !strcmp(arg, "-"))
			refuse(t,
			       "-o wants a directory or a file: standard output is for the summary");
		t->o->out = arg;
		return 0;
	case OPT_JSON:
		t->o->json = true;
		return 0;
	case 'h':
		t->help = true;
		return 0;
	case ARGP_KEY_ARG:
		if (t->place)
			refuse(t, "calibrate: one directory or file at a time, not both %s and %s",
			       t->place, arg);
		t->place = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = { options, parse, "[DIR]", doc, NULL, NULL, NULL };

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n >= k && !strcmp(s + n - k, end);
}

#define LATENCY_END "_network_latency.jsonl"

/* AIPerf's other JSON lines (config/artifacts.py), and our own of an earlier run. */
static bool other_lines(const char *name)
{
	static const char *const ends[] = { "_raw.jsonl",
					    "_gpu_telemetry.jsonl",
					    "_server_metrics.jsonl",
					    "_accuracy.jsonl",
					    LATENCY_END,
					    "gpu_telemetry_export.jsonl",
					    "server_metrics_export.jsonl",
					    "accuracy_export.jsonl",
					    "network_adjusted.jsonl",
					    "joined.jsonl" };

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (ends_with(name, ends[i]))
			return true;
	return false;
}

/* Does its first line look like a record of AIPerf's? */
static bool holds_records(const char *path)
{
	struct rp_lines l;
	struct stat st;
	bool yes = false;
	json_t *v;

	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || rp_lines_open(&l, path))
		return false;
	v = rp_lines_next(&l);
	yes = json_is_object(json_object_get(v, "metadata")) &&
	      json_is_object(json_object_get(v, "metrics"));
	json_decref(v);
	l.broken = 0; /* it is read again, and said then */
	return !rp_lines_close(&l) && yes;
}

static char *path_of(const char *dir, const char *name)
{
	char *p = NULL;

	if (asprintf(&p, "%s%s%s", dir, ends_with(dir, "/") ? "" : "/", name) < 0)
		return NULL;
	return p;
}

/* The only file of its kind in the directory, of whatever prefix; NULL for none. */
static int find(struct typed *t, const char *dir, bool latency, char **out)
{
	struct dirent *e;
	int err = 0;
	DIR *d = opendir(dir);

	*out = NULL;
	if (!d) {
		err = -errno;
		rp_say("can't read %s: %s", dir, strerror(-err));
		t->status = RP_EXIT_FAILED;
		return err;
	}
	while ((e = readdir(d))) {
		char *p;

		if (latency ? !ends_with(e->d_name, LATENCY_END) :
			      !ends_with(e->d_name, ".jsonl") || other_lines(e->d_name))
			continue;
		p = path_of(dir, e->d_name);
		if (!p) {
			err = -ENOMEM;
			rp_say("no memory");
			t->status = RP_EXIT_FAILED;
			break;
		}
		if (!latency && !holds_records(p)) {
			free(p);
			continue;
		}
		if (*out) {
			refuse(t, "which one, %s or %s? %s FILE", *out, p,
			       latency ? "--latency" : "--records");
			free(p);
			err = -EINVAL;
			break;
		}
		*out = p;
	}
	closedir(d);
	return err;
}

static int set(struct typed *t, char **to, const char *path)
{
	if (!path || *to)
		return 0;
	*to = strdup(path);
	if (*to)
		return 0;
	rp_say("no memory");
	t->status = RP_EXIT_FAILED;
	return -ENOMEM;
}

static void find_files(struct typed *t)
{
	struct rp_cal_options *o = t->o;
	struct stat st;
	bool dir = false;

	if (set(t, &o->records, t->records) || set(t, &o->latency, t->latency))
		return;
	if (t->place && stat(t->place, &st) < 0) {
		rp_say("can't read %s: %s", t->place, strerror(errno));
		t->status = RP_EXIT_FAILED;
		return;
	}
	dir = t->place && S_ISDIR(st.st_mode);
	if (t->place && !dir && t->records) {
		refuse(t, "calibrate: --records %s or %s, not both", t->records, t->place);
		return;
	}
	if (t->place && !dir && set(t, &o->records, t->place))
		return;
	if (dir && !o->records && find(t, t->place, false, &o->records))
		return;
	if (dir && !o->latency && isnan(o->mean_ms) && find(t, t->place, true, &o->latency))
		return;
	if (!o->records)
		refuse(t,
		       dir ? "no records of AIPerf in %s: --records FILE (its --export-level must be records or raw)" :
			     "calibrate: which records%s? A directory of AIPerf, or --records FILE",
		       dir ? t->place : "");
	if (!o->latency && isnan(o->mean_ms) && !o->join)
		refuse(t, "calibrate: which RTT? --latency FILE or --network-latency-mean MS");
}

int rp_cal_parse(int argc, char **argv, struct rp_cal_options *o)
{
	struct typed t = { .o = o };
	int unknown, next = argc;

	*o = (struct rp_cal_options){ .mean_ms = NAN };
	/* its own complaints take two lines */
	unknown = rp_given(&argp, argc, argv, NULL);
	if (argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, &next, &t))
		refuse(&t,
		       "'%s' is not understood, or lacks its value; see reqprobe calibrate --help",
		       argv[unknown		     ? unknown :
			    next > 0 && next <= argc ? next - 1 :
						       argc - 1]);
	if (t.help && !t.status) {
		rp_help(&argp, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC,
			"reqprobe calibrate");
		return -1;
	}
	if (t.latency && !isnan(o->mean_ms))
		refuse(&t, "one of --latency and --network-latency-mean");
	if (!t.status)
		find_files(&t);
	if (t.status)
		rp_cal_options_free(o);
	return t.status;
}

void rp_cal_options_free(struct rp_cal_options *o)
{
	free(o->records);
	free(o->latency);
	o->records = o->latency = NULL;
}
