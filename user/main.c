// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* main.c - the verbs, nothing else. */
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate/calibrate.h"
#include "engine/doctor.h"
#include "engine/proc.h"
#include "metrics/metrics.h"
#include "options.h"
#include "report/compact.h"
#include "report/report.h"
#include "rtt/rtt.h"
#include "run.h"

/* Verbs with options of their own. argv[0] is the verb; returns an exit status. */
static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} verbs[] = {
	{ "calibrate", rp_calibrate }, { "metrics", rp_metrics }, { "rtt", rp_rtt },
	{ "compact", rp_compact },     { "report", rp_report },	  { NULL, NULL },
};

int main(int argc, char **argv)
{
	static char help[] = "--help";
	struct rp_options o;

	/* help, help VERB */
	if (argc > 1 && !strcmp(argv[1], "help")) {
		if (argc > 3 || (argc == 3 && *argv[2] == '-'))
			rp_refuse("help: of which verb? reqprobe help VERB");
		argv[1] = argv[argc - 1];
		argv[argc - 1] = help;
	}
	setlocale(LC_CTYPE, "");
	for (size_t i = 0; argc > 1 && verbs[i].name; i++)
		if (!strcmp(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
	rp_options_parse(argc, argv, &o);
	switch (o.verb) {
	case RP_VERB_DOCTOR:
		return rp_doctor(o.pids, o.n_pids, stdout);
	case RP_VERB_REPLAY:
		return rp_replay(&o);
	case RP_VERB_PCAP:
		return rp_pcap(&o);
	default:
		return rp_watch(&o);
	}
}
