// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* main.c - reqprobe metrics: every metric, and why some can't be known. */
#include "metrics/metrics.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "metrics/table.h"
#include "given.h"
#include "options.h"

enum { OPT_JSON = 256, OPT_MARKDOWN };

static const char doc[] =
	"Says of every metric what it is called, whether it can be known from here, its unit and "
	"its formula, or the reason why not: the 139 tags of AIPerf 0.13.0's registry, its series "
	"over time, and reqprobe's own. Those of one request may be used with --goodput.\v"
	"Words in formulas are members of the JSON records, or other metrics. docs/metrics.md has "
	"the same table. Exit status: 0, or 1 when it can't be written.";

static const struct argp_option options[] = {
	{ "json", OPT_JSON, 0, 0, "As JSON, with everything that the table has", 0 },
	{ "markdown", OPT_MARKDOWN, 0, 0, "As in docs/metrics.md", 0 },
	{ "help", 'h', 0, 0, "Say this", -1 },
	{ 0 },
};

static bool own(const struct rp_metric_def *d)
{
	return d->flags & RP_METRIC_FLAG(OWN);
}

/* ---- text ---- */

static void text(FILE *out)
{
	static const char *const titles[] = {
		[RP_METRIC_RECORD] = "of one request",
		[RP_METRIC_AGGREGATE] = "of many requests",
		[RP_METRIC_DERIVED] = "of many requests, made of others",
		[RP_METRIC_SERIES] = "over time",
	};

	for (int k = RP_METRIC_RECORD; k <= RP_METRIC_SERIES; k++) {
		fprintf(out, "%s%s\n", k ? "\n" : "", titles[k]);
		for (int m = 0; m < RP_METRIC_COUNT; m++) {
			const struct rp_metric_def *d = &rp_metric_defs[m];

			if ((int)d->kind != k)
				continue;
			fprintf(out, "  %-45s %-8s %-15s %s\n", d->tag,
				rp_verdict_names[d->verdict], d->display,
				d->verdict == RP_VERDICT_NO ? d->note : d->formula);
		}
	}
}

/* ---- JSON: what is written here needs no escapes but for quotes ---- */

static void string(FILE *out, const char *key, const char *s)
{
	fprintf(out, ",\"%s\":\"", key);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', out);
		fputc(*s, out);
	}
	fputc('"', out);
}

static void json(FILE *out)
{
	fputs("[", out);
	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		const struct rp_metric_def *d = &rp_metric_defs[m];
		bool any = false;

		fprintf(out, "%s{\"tag\":\"%s\"", m ? ",\n" : "\n", d->tag);
		string(out, "origin", own(d) ? "reqprobe" : "aiperf");
		string(out, "kind", rp_metric_kind_names[d->kind]);
		string(out, "known", rp_verdict_names[d->verdict]);
		string(out, "unit", d->unit);
		string(out, "display_unit", d->display);
		fputs(",\"flags\":[", out);
		for (int b = 0; b < RP_METRIC_FLAG_COUNT; b++) {
			if (!(d->flags & 1u << b) || b == RP_METRIC_BIT_OWN)
				continue;
			fprintf(out, "%s\"%s\"", any ? "," : "", rp_metric_flag_names[b]);
			any = true;
		}
		fputs("]", out);
		fprintf(out, ",\"per_request\":%s",
			rp_metric_per_request((enum rp_metric)m) ? "true" : "false");
		string(out, "scope", d->scope);
		string(out, "source", d->source);
		string(out, "needs", d->needs);
		string(out, "formula", d->formula);
		string(out, d->verdict == RP_VERDICT_NO ? "reason" : "note", d->note);
		fputs("}", out);
	}
	fputs("\n]\n", out);
}

/* ---- Markdown ---- */

static void cell(FILE *out, const char *s)
{
	fputc(' ', out);
	for (; *s; s++) {
		if (*s == '|')
			fputc('\\', out);
		fputc(*s, out);
	}
	fputs(" |", out);
}

static void markdown(FILE *out)
{
	static const char *const titles[] = { "AIPerf's registry", "reqprobe's own",
					      "AIPerf's series over time" };

	for (int part = 0; part < 3; part++) {
		fprintf(out,
			"%s#### %s\n\n| tag | known | unit | formula | scope | source | needs | note, or "
			"why not |\n|---|---|---|---|---|---|---|---|\n",
			part ? "\n" : "", titles[part]);
		for (int m = 0; m < RP_METRIC_COUNT; m++) {
			const struct rp_metric_def *d = &rp_metric_defs[m];

			if (part != (d->kind == RP_METRIC_SERIES ? 2 : own(d) ? 1 : 0))
				continue;
			fprintf(out, "| `%s` | %s |", d->tag, rp_verdict_names[d->verdict]);
			cell(out, d->display);
			cell(out, d->formula);
			cell(out, d->scope);
			cell(out, d->source);
			cell(out, d->needs);
			cell(out, d->note);
			fputc('\n', out);
		}
	}
}

void rp_metrics_print(FILE *out, enum rp_metrics_format format)
{
	if (format == RP_METRICS_JSON)
		json(out);
	else if (format == RP_METRICS_MARKDOWN)
		markdown(out);
	else
		text(out);
}

/* ---- the verb ---- */

static const struct argp argp;
static error_t parse(int key, char *arg, struct argp_state *st)
{
	enum rp_metrics_format *f = st->input;

	switch (key) {
	case OPT_JSON:
		*f = RP_METRICS_JSON;
		return 0;
	case OPT_MARKDOWN:
		*f = RP_METRICS_MARKDOWN;
		return 0;
	case 'h':
		rp_help(&argp, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC,
			"reqprobe metrics");
		exit(RP_EXIT_OK);
	case ARGP_KEY_ARG:
		rp_refuse("metrics: '%s' is one argument too many", arg);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = { options, parse, "", doc, NULL, NULL, NULL };

int rp_metrics(int argc, char **argv)
{
	enum rp_metrics_format format = RP_METRICS_TEXT;
	int unknown, next = 0;

	argp_err_exit_status = RP_EXIT_USAGE;
	unknown = rp_given(&argp, argc, argv, NULL);
	if (argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, &next, &format))
		rp_refuse("metrics: '%s' is not understood; see reqprobe metrics --help",
			  argv[unknown			? unknown :
			       next > 0 && next <= argc ? next - 1 :
							  argc - 1]);
	rp_metrics_print(stdout, format);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "reqprobe: can't write the table: %s\n", strerror(errno));
		return RP_EXIT_FAILED;
	}
	return RP_EXIT_OK;
}
