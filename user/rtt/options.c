// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rtt/rtt.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "given.h"
#include "options.h"

#define NS_PER_S 1000000000LL

enum { OPT_TIMEOUT = 256, OPT_DURATION, OPT_SOURCE, OPT_JSON, OPT_FROM_LIVE, OPT_BOTH };

static const char doc[] =
	"Measures the round trip to TCP servers with fresh connections, and says it twice: the "
	"connect time by the monotonic clock, and the kernel's own figure of the same handshake, "
	"which has no scheduling noise in it.\v"
	"A HOST is a name or an address; [V6]:PORT for IPv6; a URL will do, too. The port is 80 "
	"unless said, 443 for https. A name is resolved once, and its first address taken.\n"
	"\nOn a terminal, standard output has a line for each probe and a summary; else AIPerf's "
	"network latency lines, unless -o or --json is given. TIME takes us, ms, s (default), m, "
	"h or d. Exit status: 0 a probe succeeded, 1 none did or a file can't be written, 2 wrong "
	"usage. See reqprobe(8).";

static const struct argp_option options[] = {
	{ "interval", 'i', "TIME", 0, "Time from one probe to the next (default 1s, at least 10ms)",
	  0 },
	{ "timeout", OPT_TIMEOUT, "TIME", 0, "Give a probe up after this time (default 5s)", 0 },
	{ "count", 'n', "N", 0, "Stop after so many probes of each target", 0 },
	{ "duration", OPT_DURATION, "TIME", 0, "Stop after this time", 0 },
	{ "ipv4", '4', 0, 0, "IPv4 addresses only", 0 },
	{ "ipv6", '6', 0, 0, "IPv6 addresses only", 0 },
	{ "output", 'o', "FILE|-", 0, "Append a line to FILE for each probe, as AIPerf does", 0 },
	{ "source", OPT_SOURCE, "WHICH", 0,
	  "The figure in those lines: kernel (default) or connect", 0 },
	{ "json", OPT_JSON, 0, 0, "Nothing on standard output but the summary, as JSON", 0 },
	{ "from-live", OPT_FROM_LIVE, "FILE|-", 0,
	  "No probes: the handshakes in a file made by --jsonl", 0 },
	{ "quiet", 'q', 0, 0, "No line for each probe, no summary", 0 },
	{ "help", 'h', 0, 0, "Say this", -1 },
	{ "both", OPT_BOTH, 0, OPTION_HIDDEN, "For tests: lines carry both figures", 0 },
	{ 0 },
};

struct parsed {
	struct rp_rtt_options *o;
	const char *names[1024]; /* before -4 and -6 are known */
	unsigned n;
};

static const struct argp argp;

static error_t parse(int key, char *arg, struct argp_state *st)
{
	struct parsed *p = st->input;
	struct rp_rtt_options *o = p->o;
	unsigned long long n;
	char *end;

	switch (key) {
	case 'i':
		if (!rp_parse_time(arg, RP_RTT_MIN_INTERVAL_NS, RP_TIME_MAX_NS, &o->interval))
			rp_refuse("--interval %s: a time of 10ms or more, as in 0.5, 20ms, 1s, 5m",
				  arg);
		return 0;
	case OPT_TIMEOUT:
		if (!rp_parse_time(arg, 1, RP_TIME_MAX_NS, &o->timeout))
			rp_refuse("--timeout %s: a time above 0, as in 500ms, 5, 5s", arg);
		return 0;
	case OPT_DURATION:
		if (!rp_parse_time(arg, 1, RP_TIME_MAX_NS, &o->duration))
			rp_refuse("--duration %s: a time above 0, as in 90, 90s, 5m, 1h", arg);
		return 0;
	case 'n':
		errno = 0;
		n = strtoull(arg, &end, 10);
		if (errno || !*arg || arg[strspn(arg, "0123456789")] || !n || n >= UINT64_MAX)
			rp_refuse("--count %s: a number from 1", arg);
		o->count = n;
		return 0;
	case '4':
	case '6':
		if (o->family && o->family != (key == '4' ? AF_INET : AF_INET6))
			rp_refuse("-4 and -6 exclude each other");
		o->family = key == '4' ? AF_INET : AF_INET6;
		return 0;
	case 'o':
		o->out = arg;
		return 0;
	case OPT_SOURCE:
		if (!strcmp(arg, "kernel"))
			o->source = RP_RTT_KERNEL;
		else if (!strcmp(arg, "connect"))
			o->source = RP_RTT_CONNECT;
		else
			rp_refuse("--source %s is neither kernel nor connect", arg);
		return 0;
	case OPT_JSON:
		o->json = true;
		return 0;
	case OPT_FROM_LIVE:
		o->from_live = arg;
		return 0;
	case OPT_BOTH:
		o->both = true;
		return 0;
	case 'q':
		o->quiet = true;
		return 0;
	case 'h':
		rp_help(&argp, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC,
			"reqprobe rtt");
		exit(RP_EXIT_OK);
	case ARGP_KEY_ARG:
		if (p->n == sizeof(p->names) / sizeof(*p->names))
			rp_refuse("at most %d targets", RP_RTT_MAX_TARGETS);
		p->names[p->n++] = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = { options, parse, "HOST[:PORT]...", doc, NULL, NULL, NULL };

static void targets(struct rp_rtt_options *o, const struct parsed *p)
{
	char err[400];

	for (unsigned i = 0; i < p->n; i++) {
		struct rp_rtt_target t;
		unsigned k = 0;

		if (!rp_rtt_target_parse(p->names[i], o->family, &t, err, sizeof(err)))
			rp_refuse("%s", err);
		while (k < o->n && strcmp(o->targets[k].name, t.name) != 0)
			k++;
		if (k < o->n)
			continue; /* the same again, as AIPerf takes it */
		if (o->n == RP_RTT_MAX_TARGETS)
			rp_refuse("at most %d targets", RP_RTT_MAX_TARGETS);
		o->targets[o->n++] = t;
	}
}

void rp_rtt_options_parse(int argc, char **argv, struct rp_rtt_options *o)
{
	struct parsed p = { .o = o };
	bool source;
	int unknown, next = argc;

	*o = (struct rp_rtt_options){
		.interval = NS_PER_S,
		.timeout = 5 * NS_PER_S,
		.source = RP_RTT_PASSIVE, /* until one is named */
	};
	o->targets = calloc(RP_RTT_MAX_TARGETS, sizeof(*o->targets));
	if (!o->targets)
		rp_refuse("no memory");
	argp_err_exit_status = RP_EXIT_USAGE;
	/* its own complaints take two lines */
	unknown = rp_given(&argp, argc, argv, NULL);
	if (argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, &next, &p))
		rp_refuse(
			"rtt: '%s' is not understood, or lacks its value; see reqprobe rtt --help",
			argv[unknown		      ? unknown :
			     next > 0 && next <= argc ? next - 1 :
							argc - 1]);
	source = o->source != RP_RTT_PASSIVE;
	if (o->json && o->out && !strcmp(o->out, "-"))
		rp_refuse("--json and -o - both want standard output");
	if (o->from_live) {
		if (p.n)
			rp_refuse("--from-live probes nothing: no HOST with it");
		if (o->count || o->duration || o->family || source)
			rp_refuse("--from-live takes no --count, --duration, --source, -4 or -6");
		return;
	}
	if (!source)
		o->source = RP_RTT_KERNEL;
	if (!p.n)
		rp_refuse("which server? reqprobe rtt HOST[:PORT]; see reqprobe rtt --help");
	targets(o, &p);
}
