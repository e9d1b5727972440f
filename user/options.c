// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "options.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "engine/find.h"
#include "given.h"
#include "otlp/config.h"
#include "otlp/otlp.h"
#include "sink/compat.h"
#include "sink/output.h"

enum {
	OPT_ENGINE = 256,
	OPT_JSONL,
	OPT_METRICS,
	OPT_STEPS,
	OPT_RECORD,
	OPT_RECORD_RAW,
	OPT_DURATION,
	OPT_ITL,
	OPT_WAIT,
	OPT_MEMORY,
	OPT_RING,
	OPT_PAYLOAD,
	OPT_KV_TOKENS,
	OPT_NO_HOOKS,
	OPT_REQUIRE,
	OPT_MAX_REQ,
	OPT_MAX_CONN,
	OPT_NO_TP_BTF,
	OPT_NO_UPROBE_MULTI,
	OPT_ACCOUNT_EVERY,
	OPT_SOCKETS,
	OPT_HIDE_EVENTS,
	OPT_ZMTP,
	OPT_ANONYMOUS,
	OPT_ANONYMOUS_KEY,
	OPT_PORT
};

static const char doc[] =
	"Watches an LLM inference server from outside, with eBPF, and says for every request where "
	"its time went: queue, prefill, decode, the front end, the network.\n"
	"\n"
	"  --pid PID          watch the server PID and its whole process tree (root)\n"
	"  doctor             what can be seen here, and what not, and why\n"
	"  replay FILE        the records of a recording (as all below: no root)\n"
	"  pcap FILE          the same from a packet capture, - for standard input\n"
	"  pcap -i IFACE --port N   and from an interface's packets (root)\n"
	"  rtt HOST:PORT      TCP handshakes on an interval\n"
	"  report LOG...      percentiles and totals of records\n"
	"  compact LOG...     the same records as Parquet\n"
	"  calibrate DIR      AIPerf's figures without the network\n"
	"  metrics            every metric, its formula, and why some can't be known\n"
	"\n"
	"Each has a --help of its own; what follows is for --pid.\v"
	"SIZE takes K, M or G; TIME takes us, ms, s (default), m, h or d. Exit status: 0 done, 1 "
	"failed while running or something was lost, 2 wrong usage, 3 not permitted or the kernel "
	"lacks what is needed, 4 no such process or no engine in it. See reqprobe(8).";

#define ENGINES "llamacpp, vllm, aphrodite, generic"

static const struct argp_option options[] = {
	{ "pid", 'p', "PID", 0, "Process to watch; may be repeated", 0 },
	{ "engine", OPT_ENGINE, "NAME", 0,
	  "Take it for this engine: " ENGINES " (default: recognise)", 0 },
	{ "jsonl", OPT_JSONL, "FILE|-", 0, "Append a JSON object per request", 0 },
	{ "steps", OPT_STEPS, "FILE", 0,
	  "Append a JSON object per step of the engine's scheduler (vllm, aphrodite, llamacpp)",
	  0 },
	{ "metrics", OPT_METRICS, "ADDR:PORT|off", 0,
	  "Serve Prometheus metrics (default 127.0.0.1:9479)", 0 },
	{ "record", OPT_RECORD, "FILE", 0,
	  "Record the events, text replaced by filler, for replay; a FILE that is there becomes FILE.old",
	  0 },
	{ "record-raw", OPT_RECORD_RAW, "FILE", 0,
	  "Record the events with the text of prompts and answers", 0 },
	{ "interface", 'i', "IFACE", 0, "Capture on this interface; any is all of them", 0 },
	{ "port", OPT_PORT, "N", 0,
	  "The servers' port; may be repeated (default with FILE: wherever an HTTP request goes)",
	  0 },
	{ "duration", OPT_DURATION, "TIME", 0, "Stop by itself after this time", 0 },
	{ "itl", OPT_ITL, 0, 0, "Put the gaps of every token into the records", 0 },
	{ "anonymous", OPT_ANONYMOUS, 0, 0,
	  "Hash the requests' ids and mask the clients' addresses, in all outputs", 0 },
	{ "anonymous-key", OPT_ANONYMOUS_KEY, "FILE", 0,
	  "The same, the hashes keyed with the contents of FILE", 0 },
	{ "wait", OPT_WAIT, 0, 0, "Wait for the engine to listen, and to come back when it exits",
	  0 },
	{ "quiet", 'q', 0, 0, "No lines but errors and that of the attach", 0 },
	{ "verbose", 'v', 0, 0, "Say more; twice: libbpf's own messages", 0 },
	{ "memory", OPT_MEMORY, "SIZE", 0, "Ceiling on memory (default 64M)", 0 },
	{ "ring", OPT_RING, "SIZE", 0,
	  "Ring buffer, a power of two, part of the ceiling (default 8M; pcap -i: 16M)", 0 },
	{ "payload", OPT_PAYLOAD, "SIZE", 0, "Bytes looked at per system call (default 256K)", 0 },
	{ "kv-cache-tokens", OPT_KV_TOKENS, "N", 0,
	  "Tokens that the engine's KV cache holds, as it says when it starts (vllm, aphrodite without log stats)",
	  0 },
	{ "max-requests", OPT_MAX_REQ, "N", 0, "Requests followed at once (default 16384)", 0 },
	{ "max-connections", OPT_MAX_CONN, "N", 0, "Connections followed at once (default 16384)",
	  0 },
	{ "no-hooks", OPT_NO_HOOKS, 0, 0, "No uprobes in the engine: sockets only", 0 },
	{ "require-uprobes", OPT_REQUIRE, 0, 0, "Fail when the engine's functions can't be hooked",
	  0 },
	{ "help", 'h', 0, 0, "Say this", -1 },
	{ "version", 'V', 0, 0, "Say which version this is", -1 },
	{ "hide-events", OPT_HIDE_EVENTS, 0, OPTION_HIDDEN,
	  "For tests: as if the engine ran with --disable-log-stats", 0 },
	{ "zmtp", OPT_ZMTP, 0, OPTION_HIDDEN,
	  "For tests: read messages from sockets, as if libzmq had no symbols", 0 },
	{ "sockets", OPT_SOCKETS, 0, OPTION_HIDDEN,
	  "For tests: follow sockets, not system calls, whatever the engine", 0 },
	{ "no-tp-btf", OPT_NO_TP_BTF, 0, OPTION_HIDDEN, "For tests: use raw tracepoints", 0 },
	{ "no-uprobe-multi", OPT_NO_UPROBE_MULTI, 0, OPTION_HIDDEN,
	  "For tests: hold hooks by perf events", 0 },
	{ "account-every", OPT_ACCOUNT_EVERY, "TIME", OPTION_HIDDEN,
	  "For measurements and tests: account the BPF programs' runs for a second in so many (1s: all)",
	  0 },
	{ 0 },
};

void rp_refuse(const char *fmt, ...)
{
	va_list ap;

	fputs("reqprobe: ", stderr);
	va_start(ap, fmt);
	/* clang-tidy 14 loses track of va_start here */
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(RP_EXIT_USAGE);
}

bool rp_parse_size(const char *s, const char *units, uint64_t min, uint64_t max, uint64_t *out)
{
	unsigned shift = 0;
	const char *u;
	char *end;
	uint64_t v;

	if (*s < '0' || *s > '9') /* strtoull() takes blanks and signs */
		return false;
	errno = 0;
	v = strtoull(s, &end, 10);
	if (errno)
		return false;
	if (*end) {
		u = strchr(units, toupper((unsigned char)*end));
		if (!u || end[1])
			return false;
		shift = 10 * (unsigned)(u - units + 1);
	}
	if (v > max >> shift || v << shift < min)
		return false;
	*out = v << shift;
	return true;
}

bool rp_parse_time(const char *s, int64_t min_ns, int64_t max_ns, int64_t *ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = { { "", 1e9 },   { "us", 1e3 },   { "ms", 1e6 },   { "s", 1e9 },
		      { "m", 60e9 }, { "h", 3600e9 }, { "d", 86400e9 } };
	size_t digits;
	char *end;
	double v;

	/* strtod takes signs, hex, exponents and inf as well */
	digits = strspn(s, "0123456789.");
	errno = 0;
	v = strtod(s, &end);
	if (errno || !digits || end != s + digits)
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		if (strcmp(end, units[i].unit) != 0)
			continue;
		v = v * units[i].ns + .5;
		if (!(v >= (double)min_ns && v < 0x1p63) || (int64_t)v < min_ns ||
		    (int64_t)v > max_ns)
			return false;
		*ns = (int64_t)v;
		return true;
	}
	return false;
}

static void help(enum rp_verb verb);

#define WHICH 4 /* told of the engines that could be meant */

static void __attribute__((noreturn)) which_process(void)
{
	struct rp_found found[WHICH];
	ssize_t n = rp_find_engines(found, WHICH);
	char text[512] = "";
	size_t len = 0;

	for (ssize_t i = 0; i < n && i < WHICH && len < sizeof(text); i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s %u (%s%s%s)",
					i ? "," : "; here runs", found[i].pid,
					found[i].engine->title, found[i].version[0] ? " " : "",
					found[i].version);
	rp_refuse("which process? reqprobe --pid PID%s%s; see reqprobe --help", text,
		  n > WHICH ? " and more" : "");
}

static error_t parse(int key, char *arg, struct argp_state *st)
{
	struct rp_options *o = st->input;
	uint64_t n;

	switch (key) {
	case ARGP_KEY_INIT:
		for (size_t i = 0; rp_output_options[i].argp; i++)
			st->child_inputs[i] = o;
		return 0;
	case 'p':
		if (!rp_parse_size(arg, "", 1, 1 << 30, &n))
			rp_refuse("--pid %s is no process id", arg);
		if (o->n_pids == RP_MAX_PIDS)
			rp_refuse("at most %d --pid", RP_MAX_PIDS);
		for (unsigned i = 0; i < o->n_pids; i++)
			if (o->pids[i] == n)
				return 0;
		o->pids[o->n_pids++] = (uint32_t)n;
		return 0;
	case 'i':
		o->iface = arg;
		return 0;
	case OPT_PORT:
		if (!rp_parse_size(arg, "", 1, 65535, &n))
			rp_refuse("--port %s: a number from 1 to 65535", arg);
		if (o->n_ports == RP_MAX_PORTS)
			rp_refuse("at most %d --port", RP_MAX_PORTS);
		o->ports[o->n_ports++] = (uint16_t)n;
		return 0;
	case OPT_ENGINE:
		if (!rp_engine_by_name(arg))
			rp_refuse("--engine %s is not known: " ENGINES, arg);
		o->engine = arg;
		return 0;
	case OPT_JSONL:
		o->jsonl = arg;
		return 0;
	case OPT_STEPS:
		if (!strcmp(arg, "-"))
			rp_refuse("--steps wants a file: standard output is for the records");
		o->steps = arg;
		return 0;
	case OPT_METRICS:
		if (strcmp(arg, "off") && !rp_httpd_address(arg))
			rp_refuse(
				"--metrics %s is no ADDRESS:PORT (as 127.0.0.1:9479, [::1]:9479 or :9479), nor off",
				arg);
		o->metrics = arg;
		return 0;
	case OPT_RECORD_RAW:
	case OPT_RECORD:
		if (o->record)
			rp_refuse("one of --record and --record-raw, once");
		o->record = arg;
		o->record_raw = key == OPT_RECORD_RAW;
		return 0;
	case OPT_DURATION:
		if (!rp_parse_time(arg, 1, RP_TIME_MAX_NS, &o->duration_ns))
			rp_refuse("--duration %s: a time above 0, as in 90, 90s, 5m, 1h", arg);
		return 0;
	case OPT_ITL:
		o->itl = true;
		return 0;
	case OPT_ANONYMOUS_KEY:
		o->anonymous_key = arg; /* fall through */
	case OPT_ANONYMOUS:
		o->anonymous = true;
		return 0;
	case OPT_WAIT:
		o->wait = true;
		return 0;
	case 'h':
		o->help = true; /* of which verb, may be told after it */
		return 0;
	case 'V':
		puts("reqprobe " RP_VERSION);
		exit(RP_EXIT_OK);
	case 'q':
		o->quiet = true;
		return 0;
	case 'v':
		o->verbose++;
		return 0;
	case OPT_MEMORY:
		if (!rp_parse_size(arg, "KMG", 16 << 20, 1ULL << 40, &o->memory))
			rp_refuse("--memory %s: a size of 16M or more", arg);
		return 0;
	case OPT_RING:
		if (!rp_parse_size(arg, "KMG", 64 << 10, 1 << 30, &o->ring) ||
		    (o->ring & (o->ring - 1)))
			rp_refuse("--ring %s: a power of two from 64K to 1G", arg);
		return 0;
	case OPT_PAYLOAD:
		if (!rp_parse_size(arg, "KMG", 256, 4 << 20, &o->payload))
			rp_refuse("--payload %s: a size from 256 to 4M", arg);
		return 0;
	case OPT_KV_TOKENS:
		if (!rp_parse_size(arg, "", 1, 1ULL << 40, &o->kv_cache_tokens))
			rp_refuse("--kv-cache-tokens %s: a number of tokens, as 1056768", arg);
		return 0;
	case OPT_MAX_REQ:
	case OPT_MAX_CONN:
		if (!rp_parse_size(arg, "KMG", 1, 1 << 20, &n))
			rp_refuse("--max-%s %s: a number from 1 to 1M",
				  key == OPT_MAX_REQ ? "requests" : "connections", arg);
		if (key == OPT_MAX_REQ)
			o->max_requests = (uint32_t)n;
		else
			o->max_connections = (uint32_t)n;
		return 0;
	case OPT_NO_HOOKS:
		o->no_hooks = true;
		return 0;
	case OPT_REQUIRE:
		o->require_uprobes = true;
		return 0;
	case OPT_ZMTP:
		o->zmtp = true;
		return 0;
	case OPT_HIDE_EVENTS:
		o->hide_events = true;
		return 0;
	case OPT_SOCKETS:
		o->sockets = true;
		return 0;
	case OPT_NO_TP_BTF:
		o->no_tp_btf = true;
		return 0;
	case OPT_NO_UPROBE_MULTI:
		o->no_uprobe_multi = true;
		return 0;
	case OPT_ACCOUNT_EVERY:
		if (!rp_parse_time(arg, 1, RP_TIME_MAX_NS, &o->account_every_ns))
			rp_refuse("--account-every %s: a time above 0, as in 20s", arg);
		return 0;
	case ARGP_KEY_ARG:
		if (st->arg_num == 0 && !strcmp(arg, "doctor")) {
			o->verb = RP_VERB_DOCTOR;
			return 0;
		}
		if (st->arg_num == 0 && !strcmp(arg, "replay")) {
			o->verb = RP_VERB_REPLAY;
			return 0;
		}
		if (st->arg_num == 0 && !strcmp(arg, "pcap")) {
			o->verb = RP_VERB_PCAP;
			return 0;
		}
		if ((o->verb == RP_VERB_REPLAY || o->verb == RP_VERB_PCAP) && !o->file) {
			o->file = arg;
			return 0;
		}
		rp_refuse("'%s' is not understood; see reqprobe --help", arg);
	case ARGP_KEY_END:
		if (o->help)
			help(o->verb);
		if (o->verb == RP_VERB_REPLAY && !o->file)
			rp_refuse("replay: which recording? reqprobe replay FILE");
		if (o->verb == RP_VERB_PCAP)
			return 0;
		if (o->iface || o->n_ports)
			rp_refuse("-i and --port are for reqprobe pcap");
		if (o->verb == RP_VERB_WATCH && !o->n_pids)
			which_process();
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	options, parse, "--pid PID\nVERB [ARGUMENT...]", doc, rp_output_options, NULL, NULL
};

/* What --help shows after a verb: keys are those of the options that mean something to it. */
static const struct {
	const char *name, *args, *doc;
	const int keys[20];
	bool outputs; /* beside /metrics */
} verbs[] = {
	[RP_VERB_DOCTOR] = {
		"reqprobe doctor", "",
		"Says what can be seen on this machine and of a process, what not, and why. Attaches "
		"nothing for good. Without a pid: which engines run here.\v"
		"Exit status: 0 all that is needed is here, 3 it is not, or not permitted, 4 no such "
		"process or no listening socket in it. See reqprobe(8).",
		{ 'p', 'h' }, false,
	},
	[RP_VERB_REPLAY] = {
		"reqprobe replay", "FILE",
		"Gives the records of a recording made by --record again, byte for byte. Needs no root.\v"
		"  reqprobe replay bug.rec\n"
		"  reqprobe replay --itl bug.rec   when --itl was given then, too\n"
		"\nExit status: 0 done, 1 the file can't be read or is damaged (what came before is "
		"written), 2 wrong usage. See reqprobe(8).",
		{ OPT_JSONL, OPT_STEPS, OPT_ITL, OPT_ANONYMOUS, OPT_ANONYMOUS_KEY, OPT_MEMORY, OPT_MAX_REQ,
		  OPT_MAX_CONN, 'q', 'h' },
		true,
	},
	[RP_VERB_PCAP] = {
		"reqprobe pcap", "FILE\n-i IFACE --port N",
		"Gives the records of server scope from packets: a capture (pcap or pcapng, - for standard "
		"input), or an interface. A file needs no root.\v"
		"  reqprobe pcap run.pcap\n"
		"  reqprobe pcap -i eth0 --port 8000 --jsonl requests.jsonl\n"
		"\nSIZE takes K, M or G; TIME takes us, ms, s (default), m, h or d. Exit status: 0 "
		"done, 1 failed while running, 2 wrong usage, 3 not permitted. See reqprobe(8).",
		{ 'i', OPT_PORT, OPT_JSONL, OPT_ITL, OPT_ENGINE, OPT_RECORD, OPT_RECORD_RAW,
		  OPT_ANONYMOUS, OPT_ANONYMOUS_KEY, OPT_DURATION, OPT_MEMORY, OPT_RING, OPT_MAX_REQ,
		  OPT_MAX_CONN, 'q', 'v', 'h' },
		true,
	},
};

/* Has the option an effect with the verb? */
static bool means_something(enum rp_verb verb, int key)
{
	if (verb == RP_VERB_WATCH)
		return key != 'i' && key != OPT_PORT;
	for (const int *k = verbs[verb].keys; *k; k++)
		if (*k == key)
			return true;
	return false;
}

static bool of_metrics_page(const struct argp *child)
{
	return child == &rp_compat_argp || child == &rp_lrm_argp;
}

static void help(enum rp_verb verb)
{
	struct argp_option own[sizeof(options) / sizeof(*options)] = { 0 };
	struct argp_child children[RP_MAX_OUTPUT_OPTIONS + 1] = { 0 };
	struct argp a = argp;
	size_t n = 0, c = 0;

	for (size_t i = 0; options[i].name; i++)
		if (means_something(verb, options[i].key))
			own[n++] = options[i];
	for (size_t i = 0; rp_output_options[i].argp; i++)
		if (verb == RP_VERB_WATCH ||
		    (verbs[verb].outputs && !of_metrics_page(rp_output_options[i].argp)))
			children[c++] = rp_output_options[i];
	a.options = own;
	a.children = children;
	if (verb != RP_VERB_WATCH) {
		a.args_doc = verbs[verb].args;
		a.doc = verbs[verb].doc;
	}
	rp_help(&a, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC,
		verb == RP_VERB_WATCH ? "reqprobe" : verbs[verb].name);
	exit(RP_EXIT_OK);
}

/* What is sent by OTLP, and which options that leaves without an effect. */
static void check_otlp(const struct rp_options *o, const struct rp_given *g)
{
	static const char *const of_metrics[] = { "otlp-interval",   "otlp-exponential",
						  "otlp-buckets",    "otlp-temporality",
						  "otlp-max-series", NULL },
				 *const of_traces[] = { "otlp-queue", "otlp-sampler", NULL };
	struct rp_otlp_config c;
	char err[512];
	bool metrics, traces;
	int e = rp_otlp_configure(o, getenv, NULL, &c, err, sizeof(err));

	metrics = c.metrics.on;
	traces = c.traces.on;
	rp_otlp_config_free(&c);
	if (e == -EINVAL)
		rp_refuse("%s", err);
	for (unsigned i = 0; i < g->n; i++) {
		const char *name = g->o[i]->name;

		if (strncmp(name, "otlp-", 5) != 0 || !strcmp(name, "otlp-traces"))
			continue;
		for (size_t k = 0; of_metrics[k] && !metrics; k++)
			if (!strcmp(name, of_metrics[k]))
				rp_refuse("--%s is about metrics: --otlp URL sends them", name);
		for (size_t k = 0; of_traces[k] && !traces; k++)
			if (!strcmp(name, of_traces[k]))
				rp_refuse("--%s is about spans: --otlp-traces sends them", name);
		if (!metrics && !traces)
			rp_refuse("--%s has no effect without --otlp URL or --otlp-traces=URL",
				  name);
	}
}

/* Nothing that was typed may be without an effect: it was meant to have one. */
static void check_given(const struct rp_options *o, const struct rp_given *g)
{
	const size_t n = sizeof(options) / sizeof(*options);

	for (unsigned i = 0; i < g->n; i++) {
		const struct argp_option *x = g->o[i];
		bool core = x >= options && x < options + n, ok;

		if (core)
			ok = (x->flags & OPTION_HIDDEN) || x->key == 'q' || x->key == 'v' ||
			     x->key == 'V' || means_something(o->verb, x->key);
		else
			ok = o->verb == RP_VERB_WATCH || verbs[o->verb].outputs;
		if (o->verb == RP_VERB_PCAP && o->file && core && x->key == OPT_RING)
			rp_refuse("--ring has no effect with a file: it is for pcap -i");
		if (!ok)
			rp_refuse("--%s has no effect with %s; see %s --help", x->name,
				  o->verb == RP_VERB_WATCH ? "--pid" : verbs[o->verb].name + 9,
				  o->verb == RP_VERB_WATCH ? "reqprobe" : verbs[o->verb].name);
		if (!strncmp(x->name, "log-", 4) && !o->log.dir)
			rp_refuse("--%s has no effect without --log DIR", x->name);
		if (!strncmp(x->name, "s3-", 3) && !o->log.s3)
			rp_refuse("--%s has no effect without --s3 s3://BUCKET/PREFIX", x->name);
	}
	if (o->verb != RP_VERB_DOCTOR)
		check_otlp(o, g);
}

static void check_pcap(const struct rp_options *o)
{
	if (!o->file == !o->iface)
		rp_refuse(
			"pcap: which packets? reqprobe pcap FILE, or reqprobe pcap -i IFACE --port N");
	if (o->iface && !o->n_ports)
		rp_refuse("pcap -i wants the port of the server: --port N");
	if (o->iface &&
	    o->ring + o->memory / 4 + (12u << 20) + rp_log_memory(&o->log, o->memory) > o->memory)
		rp_refuse("--memory leaves no room beside a --ring of %llu bytes",
			  (unsigned long long)o->ring);
}

void rp_options_parse(int argc, char **argv, struct rp_options *o)
{
	struct rp_given given;
	int unknown, next = argc;
	uint64_t rest;

	*o = (struct rp_options){
		.metrics = "127.0.0.1:9479",
		.memory = 64 << 20,
		.payload = 256 << 10,
		.max_requests = 16384,
		.max_connections = 16384,
	};
	rp_log_defaults(&o->log);
	argp_err_exit_status = RP_EXIT_USAGE;
	unknown = rp_given(&argp, argc, argv, &given);
	/* its own complaints take two lines */
	if (argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, &next, o))
		rp_refuse("'%s' is not understood, or lacks its value; see reqprobe --help",
			  argv[unknown			? unknown :
			       next > 0 && next <= argc ? next - 1 :
							  argc - 1]);
	if (!o->ring)
		o->ring = o->verb == RP_VERB_PCAP && o->iface ? 16 << 20 : 8 << 20;
	if (o->verb == RP_VERB_PCAP)
		check_pcap(o);
	check_given(o, &given);
	if (o->no_hooks && o->require_uprobes)
		rp_refuse("--no-hooks and --require-uprobes exclude each other");
	if (o->steps && o->jsonl && !strcmp(o->steps, o->jsonl))
		rp_refuse("--steps and --jsonl want a file each");
	if (o->anonymous && o->record)
		rp_refuse("a recording has the ids and addresses as they were: --anonymous and "
			  "--record exclude each other");
	rest = rp_log_memory(&o->log, o->memory) + rp_lrm_reserve(o) + rp_otlp_memory(o);
	if ((o->verb == RP_VERB_WATCH || o->log.dir || rp_otlp_memory(o)) &&
	    o->ring + (12u << 20) + rest > o->memory)
		rp_refuse(
			"--memory leaves no room beside a --ring of %llu bytes%s%s%s: %llu bytes more are needed",
			(unsigned long long)o->ring, o->log.dir ? " and the --log-queue" : "",
			rp_otlp_memory(o) ? " and the --otlp-queue" : "",
			rp_lrm_reserve(o) ? " and the --lrm-samples" : "",
			(unsigned long long)rest + (12u << 20));
}
