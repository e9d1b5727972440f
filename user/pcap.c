// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* pcap.c - the verb `pcap`: packets -> the records of server scope. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "lib/caps.h"
#include "lib/clock.h"
#include "run.h"
#include "source/pcap.h"

#define WAIT_MS 50
#define DRAIN_NS 150000000ULL
static void add(char *s, size_t len, uint64_t n, const char *what)
{
	size_t at = strlen(s);

	if (n && at < len)
		snprintf(s + at, len - at, ", %llu %s", (unsigned long long)n, what);
}

static void say_end(const struct rp_run *r, struct rp_pcap *p)
{
	const struct rp_stats *s = rp_timeline_stats(r->tl);
	const struct rp_tcp_stats *t = rp_pcap_tcp(p);
	char ends[160] = "", more[512] = "";
	struct rp_pcap_stats st;
	uint64_t total = 0;

	rp_pcap_stats(p, &st);
	for (int i = 0; i < RP_END_COUNT; i++) {
		total += s->ends[i];
		add(ends, sizeof(ends), s->ends[i], rp_end_names[i]);
	}
	add(more, sizeof(more), st.dropped, "dropped by the kernel");
	add(more, sizeof(more), t->lost, "bytes lost");
	add(more, sizeof(more), st.cut, "cut short");
	add(more, sizeof(more), st.headers_cut, "without their headers");
	add(more, sizeof(more), st.fragments, "fragments (not joined)");
	add(more, sizeof(more), st.malformed, "malformed");
	add(more, sizeof(more), t->evicted, "connections given up for newer ones");
	if (r->o->verbose) {
		add(more, sizeof(more), st.not_tcp, "not TCP");
		add(more, sizeof(more), t->again, "seen again");
		add(more, sizeof(more), t->early, "out of order");
		add(more, sizeof(more), t->gave_up, "holes not waited for");
		add(more, sizeof(more), t->strange, "out of any window");
		add(more, sizeof(more), t->half_open, "half-open connections dropped");
		add(more, sizeof(more), t->memory_max, "bytes held at most");
	}
	rp_say("%llu request%s%s%s; %llu packet%s, %llu connection%s%s", (unsigned long long)total,
	       total == 1 ? "" : "s", *ends ? ":" : "", *ends ? ends + 1 : "",
	       (unsigned long long)st.packets, st.packets == 1 ? "" : "s",
	       (unsigned long long)t->announced, t->announced == 1 ? "" : "s", more);
}

static int loop(struct rp_run *r, struct rp_pcap *p, char *err, size_t errlen)
{
	const struct rp_options *o = r->o;
	uint64_t end = o->duration_ns ? rp_now_ns() + (uint64_t)o->duration_ns : 0;
	int n = 1;

	while (!rp_stopping() && !(end && rp_now_ns() >= end)) {
		n = rp_pcap_read(p, o->iface ? WAIT_MS : 0, err, errlen);
		if (n < 0 || (!n && !o->iface))
			break;
		rp_run_flush(r);
		if (rp_hup_taken())
			rp_run_reopen(r);
	}
	return n;
}

/* The kernel hands over a block of packets when it is full, or a little old. */
static void drain(struct rp_pcap *p, char *err, size_t errlen)
{
	uint64_t until = rp_now_ns() + DRAIN_NS;

	while (rp_now_ns() < until && rp_pcap_read(p, WAIT_MS / 2, err, errlen) >= 0)
		;
}

/* 8M for the program, a quarter of the ceiling for reassembly, the ring with -i;
 * the rest is the timeline's. */
int rp_pcap(const struct rp_options *given)
{
	struct rp_options o = *given;
	struct rp_run r = { 0 };
	struct rp_pcap_opts po = {
		.fn = rp_run_event,
		.ctx = &r,
		.engine = o.engine,
		.ports = o.ports,
		.n_ports = o.n_ports,
		.max_flows = o.max_connections,
		.memory = o.memory / 4,
		.buffer = (uint32_t)o.ring,
	};
	struct rlimit no_core = { 0, 0 };
	struct rp_pcap *p = NULL;
	char err[512] = "";
	bool cut;
	int st, e;

	/* what the run keeps free of the timeline */
	o.ring = o.memory / 4 + (o.iface ? o.ring : 0);
	if (!o.jsonl)
		o.jsonl = "-";
	/* prompts are in this memory: no core file, no ptrace by others */
	setrlimit(RLIMIT_CORE, &no_core);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	rp_stop_on_signals(o.iface);
	rp_say_never_wait();
	if (o.iface) {
		signal(SIGPIPE, SIG_IGN);
		e = rp_pcap_open_live(&po, o.iface, &p, err, sizeof(err));
	} else {
		e = rp_pcap_open_file(&po, o.file, &p, err, sizeof(err));
	}
	if (e) {
		rp_say("%s", err);
		rp_say_end();
		return e == -EPERM ? RP_EXIT_DENIED : RP_EXIT_FAILED;
	}
	st = rp_run_open(&r, &o);
	if (st)
		goto cleanup;
	if (o.iface) {
		/* the socket is open: nothing else is needed */
		e = rp_caps_keep(NULL, 0);
		if (e)
			rp_say("could not drop capabilities: %s", strerror(-e));
		if (!o.quiet)
			rp_say("capturing on %s", o.iface);
	}
	e = loop(&r, p, err, sizeof(err));
	cut = !o.iface && e > 0 && rp_stopping();
	if (o.iface && e >= 0)
		drain(p, err, sizeof(err));
	rp_pcap_finish(p);
	rp_run_finish(&r);
	if (e < 0) {
		rp_say("%s", err);
		st = RP_EXIT_FAILED;
	} else if (!o.quiet) {
		say_end(&r, p);
	}
	if (cut)
		rp_say("stopped by a signal: the rest of %s was not read", o.file);
	if (cut || rp_run_lost(&r))
		st = RP_EXIT_FAILED;
cleanup:
	rp_pcap_close(p);
	rp_run_close(&r);
	rp_say_end();
	return st;
}
