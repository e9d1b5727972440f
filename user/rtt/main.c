// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* main.c - the verb rtt: results from the threads, or from a file, into lines,
 * statistics and a summary. */
#include "lib/clock.h"
#include "rtt/rtt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "options.h"
#include "run.h"

#define NS_PER_S 1000000000LL
#define SAME_SIGNAL_NS 100000000LL
#define STOP_NS 500000000LL

static volatile sig_atomic_t stop_signals, hup_signals;
static int64_t stopped_at;
static int wake_fd = -1;

static void on_signal(int sig)
{
	uint64_t one = 1;
	int saved = errno;

	if (sig == SIGHUP) {
		hup_signals = 1;
	} else if (!stop_signals) {
		stop_signals = 1;
		stopped_at = rp_clock_ns(CLOCK_MONOTONIC);
	} else if (rp_clock_ns(CLOCK_MONOTONIC) - stopped_at > SAME_SIGNAL_NS) {
		_exit(128 + sig); /* a second one means now */
	}
	if (wake_fd >= 0 && write(wake_fd, &one, sizeof(one)) < 0)
		hup_signals = hup_signals; /* it is awake already */
	errno = saved;
}

struct run {
	const struct rp_rtt_options *o;
	struct rp_jsonl *jsonl;
	bool lines, jsonl_failed;
	FILE *summary; /* NULL: none */
	struct rp_rtt_target *targets;
	unsigned n;
	uint64_t succeeded, beyond;
	int err;
};

static bool series(struct rp_rtt_target *t, bool connect)
{
	t->kernel = calloc(1, sizeof(*t->kernel));
	if (connect)
		t->connect = calloc(1, sizeof(*t->connect));
	if (!t->kernel || (connect && !t->connect))
		return false;
	t->kernel->unit = 1000;
	if (t->connect)
		t->connect->unit = 1;
	return true;
}

static int open_sinks(struct run *r)
{
	const struct rp_rtt_options *o = r->o;
	bool tty = isatty(STDOUT_FILENO), to_stdout = o->out && !strcmp(o->out, "-");
	const char *path = o->out;
	char err[512];

	if (!path && !tty && !o->json)
		path = "-";
	r->lines = tty && !to_stdout && !o->json && !o->quiet;
	if (!o->json && !o->quiet)
		r->summary = path && !strcmp(path, "-") ? stderr : stdout;
	if (!path)
		return 0;
	if (rp_jsonl_open(path, &r->jsonl, err, sizeof(err))) {
		rp_say("%s", err);
		return RP_EXIT_FAILED;
	}
	return 0;
}

static void take(struct run *r, const struct rp_rtt_result *res)
{
	struct rp_rtt_line line = { res, r->o->source, r->o->both };
	struct rp_rtt_target *t = res->t;
	int e;

	t->probes++;
	t->failures[rp_rtt_why(res->err, res->resolve)]++;
	if (!res->err) {
		r->succeeded++;
		if (t->connect)
			rp_series_add(t->connect, res->connect);
		if (res->kernel >= 0)
			rp_series_add(t->kernel, res->kernel);
		t->retransmitted += res->retransmits > 0;
	}
	if (r->jsonl) {
		e = rp_jsonl_line(r->jsonl, rp_rtt_put_line, &line);
		if (!e)
			e = rp_jsonl_flush(r->jsonl);
		if (e == -EPIPE)
			r->err = e; /* nobody reads: there is nothing left to do */
		if (e && !r->jsonl_failed) {
			r->jsonl_failed = true;
			rp_say("can't write %s: %s; lines are lost until it can, whole lines only",
			       r->o->out && strcmp(r->o->out, "-") ? r->o->out : "to stdout",
			       strerror(-e));
		}
	}
	if (r->lines)
		rp_rtt_show_result(stdout, r->o, res);
}

static void summarise(const struct run *r, int64_t started, bool realtime)
{
	struct rp_rtt_summary s = { .o = r->o,
				    .targets = r->targets,
				    .n = r->n,
				    .started = started,
				    .stopped = rp_clock_ns(CLOCK_REALTIME),
				    .realtime = realtime };
	struct rp_buf b = { 0 };

	if (r->o->json) {
		rp_rtt_put_summary(&b, &s);
		LIT(&b, "\n");
		if (b.oom)
			rp_say("no memory for the summary");
		else
			fwrite(b.p, 1, b.n, stdout);
		fflush(stdout);
		free(b.p);
	} else if (r->summary) {
		if (r->lines && r->o->source != RP_RTT_PASSIVE)
			fputc('\n', r->summary);
		rp_rtt_show_summary(r->summary, &s);
	}
}

/* Every place of every target may be open at once. */
static void raise_files(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= l.rlim_max)
		return;
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
}

static void reopen(struct run *r)
{
	char err[512];

	hup_signals = 0;
	if (r->jsonl && rp_jsonl_reopen(r->jsonl, err, sizeof(err)))
		rp_say("%s", err);
}

static int status_of(const struct run *r)
{
	return r->succeeded && !r->jsonl_failed ? RP_EXIT_OK : RP_EXIT_FAILED;
}

static int probe(struct run *r)
{
	const struct rp_rtt_options *o = r->o;
	int64_t started = rp_clock_ns(CLOCK_REALTIME);
	struct rp_prober *p = NULL;
	struct rp_rtt_result res;
	struct pollfd wake = { .events = POLLIN };
	bool realtime = false;
	int64_t patience;
	uint64_t n;
	int sys, err;

	r->targets = o->targets;
	r->n = o->n;
	for (unsigned i = 0; i < r->n; i++) {
		struct rp_rtt_target *t = &r->targets[i];

		if (!series(t, true)) {
			rp_say("no memory");
			return RP_EXIT_FAILED;
		}
		/* what has no address now may have one at a later probe */
		if (!stop_signals)
			rp_rtt_resolve(t, o->family, &sys);
	}
	raise_files();
	wake_fd = eventfd(0, EFD_CLOEXEC);
	if (wake_fd < 0) {
		rp_say("eventfd: %s", strerror(errno));
		return RP_EXIT_FAILED;
	}
	wake.fd = wake_fd;
	if (r->lines)
		rp_rtt_show_header(stdout, o);
	err = rp_prober_start(o, wake_fd, &p);
	if (err) {
		rp_say("can't start a thread for each target: %s", strerror(-err));
		return RP_EXIT_FAILED;
	}
	while (!stop_signals && !r->err && !rp_prober_done(p)) {
		if (read(wake_fd, &n, sizeof(n)) < 0 && errno != EINTR)
			break;
		if (hup_signals)
			reopen(r);
		while (!stop_signals && !r->err && rp_prober_next(p, &res))
			take(r, &res);
	}
	realtime = rp_prober_realtime(p);
	rp_prober_stop(p);
	patience = rp_clock_ns(CLOCK_MONOTONIC) + STOP_NS;
	while (!rp_prober_done(p)) {
		while (rp_prober_next(p, &res))
			take(r, &res);
		if (rp_clock_ns(CLOCK_MONOTONIC) > patience) {
			/* in the resolver, which nothing can hurry */
			summarise(r, started, realtime);
			_exit(status_of(r));
		}
		if (poll(&wake, 1, 50) > 0 && read(wake_fd, &n, sizeof(n)) < 0 && errno != EINTR)
			break;
	}
	rp_prober_free(p);
	summarise(r, started, realtime);
	return status_of(r);
}

/* ---- --from-live ---- */

static int on_seen(void *ctx, const struct rp_rtt_seen *s)
{
	struct run *r = ctx;
	struct rp_rtt_target *t = NULL, *all;
	struct rp_rtt_result res = { .wall = s->wall, .connect = -1, .kernel = s->rtt };
	bool six = strchr(s->address, ':') != NULL;

	for (unsigned i = 0; i < r->n && !t; i++)
		if (r->targets[i].port == s->port && !strcmp(r->targets[i].host, s->address))
			t = &r->targets[i];
	if (!t) {
		if (r->n == RP_RTT_MAX_TARGETS) {
			r->beyond++;
			return 0;
		}
		all = r->targets;
		t = &all[r->n++];
		t->port = s->port;
		snprintf(t->host, sizeof(t->host), "%s", s->address);
		snprintf(t->address, sizeof(t->address), "%s", s->address);
		snprintf(t->name, sizeof(t->name), six ? "[%s]:%u" : "%s:%u", s->address, s->port);
		snprintf(t->url, sizeof(t->url), "http://%s", t->name);
		if (!series(t, false))
			return -ENOMEM;
	}
	res.t = t;
	take(r, &res);
	return stop_signals ? -EINTR : r->err;
}

static int from_live(struct run *r)
{
	const char *path = r->o->from_live;
	FILE *f = strcmp(path, "-") != 0 ? fopen(path, "re") : stdin;
	int64_t started = rp_clock_ns(CLOCK_REALTIME);
	struct rp_rtt_passive st;
	int err;

	r->targets = r->o->targets;
	r->lines = false;
	if (!f) {
		rp_say("%s: %s", path, strerror(errno));
		return RP_EXIT_FAILED;
	}
	err = rp_rtt_passive(f, on_seen, r, &st);
	if (f != stdin)
		fclose(f);
	if (err && err != -EINTR && err != -EPIPE)
		rp_say("%s: %s", path, strerror(-err));
	if (st.bad)
		rp_say("%s: %llu of %llu lines are no whole records, and were passed over", path,
		       (unsigned long long)st.bad, (unsigned long long)st.lines);
	if (st.unsure || r->beyond)
		rp_say("%s: %llu requests of more than a million connections, %llu handshakes of more than %d servers left out",
		       path, (unsigned long long)st.unsure, (unsigned long long)r->beyond,
		       RP_RTT_MAX_TARGETS);
	if (!err && !st.handshakes)
		rp_say("%s: no handshake in %llu records", path, (unsigned long long)st.records);
	summarise(r, started, false);
	return !r->succeeded || r->jsonl_failed || (err && err != -EINTR) ? RP_EXIT_FAILED :
									    RP_EXIT_OK;
}

int rp_rtt(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_signal };
	struct rp_rtt_options o;
	struct run r = { .o = &o };
	int status;

	rp_rtt_options_parse(argc, argv, &o);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	status = open_sinks(&r);
	if (!status)
		status = o.from_live ? from_live(&r) : probe(&r);
	rp_jsonl_close(r.jsonl);
	for (unsigned i = 0; i < r.n; i++) {
		free(r.targets[i].connect);
		free(r.targets[i].kernel);
	}
	free(o.targets);
	if (wake_fd >= 0) {
		close(wake_fd);
		wake_fd = -1;
	}
	return status;
}
