// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* watch.c - the verb without a name: follow a running engine. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cpu.h"
#include "engine/find.h"
#include "engine/proc.h"
#include "lib/caps.h"
#include "lib/clock.h"
#include "lib/map.h"
#include "run.h"

/* How long the ring may fill: nothing is timed by it. A busy one gets less, and a
 * wake-up when large records come fast. */
#define DRAIN_MS 10
#define DRAIN_CALM_MS 100
#define BUSY_EVENTS 512
#define LAST_WORDS_NS 500000000ULL
#define ORPHANS_NS 5000000000ULL /* a server that ends takes its processes along in this time */
#define LOOK_NS 500000000ULL

/* A process that may still map the engine's library: looked at again. */
struct late {
	uint32_t pid;
	unsigned tries;
	uint64_t at;
};
static const unsigned late_ms[] = { 20,	  100,	 500,	1000,  2000,  4000,
				    8000, 15000, 30000, 60000, 120000 };
#define LATE_TRIES (sizeof(late_ms) / sizeof(late_ms[0]))
#define LATE_SOCKETS 5 /* 3.6 s: its libraries are loaded, or it has none of them */
#define LATE_MAX 1024

struct target { /* one --pid */
	uint32_t pid;
	const struct rp_engine *engine;
	unsigned base;	   /* its hooks start here in the one table of this run */
	uint64_t attached; /* bit: hook of the run's table */
	enum rp_hook_reason reason;
	char why[256];
	char version[64];
	char *cmdline;
	size_t cmdline_len;
	bool gone;
	bool zmtp_only; /* no function is hooked, messages are read from sockets */
	unsigned procs;
};

struct watch {
	const struct rp_options *o;
	struct rp_run run;
	struct rp_live *live;
	struct rp_httpd *httpd;
	double start_seconds; /* since the epoch */
	struct target t[RP_MAX_PIDS];
	uint32_t waits_for; /* the target that does not listen yet */
	unsigned n;
	struct rp_hook_spec specs[RP_MAX_HOOKS];
	uint8_t roles[RP_MAX_HOOKS];
	unsigned n_hooks;
	struct rp_map owner;  /* pid -> target */
	struct rp_map hooked; /* (pid, hook) -> anything */
	struct late late[LATE_MAX];
	unsigned n_late;
	struct rp_prog_stat progs[RP_LIVE_PROGS];
	size_t n_progs;
	struct rp_listener *ls;
	ssize_t n_ls;
	uint64_t end; /* by --duration, 0: none */
};

static struct rp_event_hdr header(enum rp_event_type type, size_t size, uint32_t pid)
{
	return (struct rp_event_hdr){
		.size = (uint32_t)size,
		.type = (uint8_t)type,
		.ts = rp_now_ns(),
		.pid = pid,
	};
}

/* ---- hooks ---- */

static struct target *owner_of(struct watch *w, uint32_t pid)
{
	return rp_map_get(&w->owner, pid, 0);
}

/*
 * A process without the functions, and none will come: where engines talk ZMTP,
 * its messages are read from its sockets (a front end in Rust, a static libzmq).
 */
static int read_sockets(struct watch *w, struct target *t, uint32_t pid)
{
	uint32_t hook = 0;
	int n;

	while (hook < t->engine->n_hooks && t->engine->hooks[hook].spec.read[0].kind != RP_READ_ZMQ)
		hook++;
	if (hook == t->engine->n_hooks)
		return 0;
	if (rp_live_read_zmtp(w->live, pid, t->base + hook,
			      (uint32_t)t->engine->hooks[hook].spec.read[0].off[0]))
		return 0;
	n = !(t->attached >> (t->base + hook) & 1);
	t->zmtp_only |= !t->attached;
	t->attached |= 1ULL << (t->base + hook);
	t->reason = RP_HOOKS_OK;
	return n;
}

/* Older than any engine takes to load its libraries, or known to have none. */
static bool settled(const struct rp_proc *p)
{
	size_t n = p->exe ? strlen(p->exe) : 0;
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (n > 3 && !strcmp(p->exe + n - 3, "-rs")) ||
	       (uint64_t)ts.tv_sec > p->start_time / (uint64_t)sysconf(_SC_CLK_TCK) + 20;
}

static uint64_t hook_key(uint32_t hook, uint64_t offset)
{
	return ((uint64_t)hook << 48) ^ offset;
}

/*
 * All in one file: with one link, or one by one where that fails, which tells those
 * that can't be hooked. Returns how many could.
 */
static int hook_places(struct watch *w, struct target *t, const struct rp_proc *p,
		       const struct rp_hook_place *const *at, int n)
{
	struct rp_live_hook new[RP_MAX_HOOKS];
	int done = 0, step = n, err = -ENOENT, fd = -1;
	uint32_t pid = p->pid;
	char path[32];

	/* the kernel opens it, too: by a descriptor it needs no permission for map_files */
	for (size_t i = 0; n && i < p->n_objects && fd < 0; i++)
		if (!strcmp(p->objects[i].open_path, at[0]->open_path))
			err = fd = rp_object_open(p, &p->objects[i]);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	for (int i = 0; i < n; i++)
		new[i] = (struct rp_live_hook){ t->base + at[i]->hook, at[i]->offset };
	for (int i = 0; i < n; i += step) {
		if (fd >= 0)
			err = rp_live_attach_hooks(w->live, pid, path, &new[i], (size_t)step);
		if (err && step > 1) {
			step = 1;
			if (fd >= 0)
				err = rp_live_attach_hooks(w->live, pid, path, &new[i], 1);
		}
		if (err) {
			if (w->o->verbose || t->reason != RP_HOOKS_NOT_PERMITTED)
				rp_say("can't hook %s in %s of pid %u: %s",
				       t->engine->hooks[at[i]->hook].function, at[i]->path, pid,
				       strerror(-err));
			if (!t->attached)
				t->reason = RP_HOOKS_NOT_PERMITTED;
			continue;
		}
		for (int k = i; k < i + step; k++) {
			rp_map_put(&w->hooked, pid, hook_key(new[k].hook, new[k].offset), t);
			t->attached |= 1ULL << new[k].hook;
		}
		t->zmtp_only = false;
		t->reason = RP_HOOKS_OK;
		done += step;
	}
	if (fd >= 0)
		close(fd);
	return done;
}

/* Places of one file follow each other. */
static int hook_match(struct watch *w, struct target *t, const struct rp_proc *proc,
		      const struct rp_match *m)
{
	const struct rp_hook_place *at[RP_MAX_HOOKS];
	int n = 0, done = 0;

	for (size_t i = 0; i < m->n_places; i++) {
		const struct rp_hook_place *p = &m->places[i];

		if (rp_map_get(&w->hooked, proc->pid, hook_key(t->base + p->hook, p->offset)))
			continue;
		if (n && (n == RP_MAX_HOOKS || strcmp(p->open_path, at[0]->open_path))) {
			done += hook_places(w, t, proc, at, n);
			n = 0;
		}
		at[n++] = p;
	}
	return done + hook_places(w, t, proc, at, n);
}

/* Attach what can be attached in one process. Returns how many are new. last:
 * it had its time to load what it needs. */
static int hook_process(struct watch *w, struct target *t, uint32_t pid, bool last)
{
	struct rp_match m = { 0 };
	struct rp_proc p;
	int n = 0;

	if (w->o->no_hooks || !t->engine->n_hooks)
		return 0;
	if (rp_proc_read(pid, &p)) {
		rp_proc_free(&p);
		return 0;
	}
	if (t->engine->bystander && t->engine->bystander(&p)) {
		rp_live_detach_pid(w->live, pid); /* hooked before it had its name */
		goto cleanup;
	}
	if (rp_match_hooks(t->engine, &p, &m))
		goto cleanup;
	if (m.version[0] && !t->version[0])
		snprintf(t->version, sizeof(t->version), "%s", m.version);
	if (w->o->zmtp) {
		n = read_sockets(w, t, pid);
		goto cleanup;
	}
	n = hook_match(w, t, &p, &m);
	if (!m.n_places && (last || settled(&p)))
		n += read_sockets(w, t, pid);
	/* a tree has processes without the library: the first word stays */
	if (!t->attached && m.reason != RP_HOOKS_OK) {
		if (t->reason != RP_HOOKS_NOT_PERMITTED)
			t->reason = m.reason;
		if (m.why[0])
			snprintf(t->why, sizeof(t->why), "%s", m.why);
	}
cleanup:
	rp_match_free(&m);
	rp_proc_free(&p);
	return n;
}

static void send_session(struct watch *w, const struct target *t)
{
	struct rp_ev_session e = { .h = header(RP_EV_SESSION, sizeof(e), t->pid) };

	snprintf(e.engine, sizeof(e.engine), "%s", t->engine->name);
	snprintf(e.version, sizeof(e.version), "%s", t->version);
	if (gethostname(e.host, sizeof(e.host) - 1))
		e.host[0] = '\0';
	snprintf(e.reqprobe, sizeof(e.reqprobe), "%s", RP_VERSION);
	e.hooks_attached = (uint32_t)t->attached;
	e.hooks_attached_more = (uint32_t)(t->attached >> 32);
	e.hook_reason = (uint32_t)t->reason;
	memcpy(e.roles, w->roles, sizeof(e.roles));
	memcpy(e.roles_more, w->roles + sizeof(e.roles), sizeof(e.roles_more));
	e.flags = rp_live_looks(w->live) ? RP_SESSION_ACKS : 0;
	rp_run_event(&w->run, &e.h);
}

/* After its SESSION. */
static void send_configuration(struct watch *w, const struct target *t)
{
	struct rp_ev_engine e = { .h = header(RP_EV_ENGINE, sizeof(e), t->pid) };
	struct rp_proc p;

	if (!rp_proc_read(t->pid, &p) && t->engine->configuration)
		t->engine->configuration(&p, &e);
	rp_proc_free(&p);
	e.kv_tokens = w->o->kv_cache_tokens;
	if (e.kv_tokens || e.kv_blocks || e.block_size || e.pipeline || e.flags)
		rp_run_event(&w->run, &e.h);
}

static void look_later(struct watch *w, uint32_t pid)
{
	if (w->n_late == LATE_MAX)
		return; /* an engine that forks this fast has bigger troubles */
	w->late[w->n_late++] =
		(struct late){ .pid = pid, .at = rp_now_ns() + late_ms[0] * 1000000ULL };
}

static void look_now(struct watch *w)
{
	uint64_t now = rp_now_ns();
	unsigned i = 0;
	bool hurries = false;

	while (i < w->n_late) {
		struct late *l = &w->late[i];
		struct target *t = owner_of(w, l->pid);

		if (l->at > now) {
			i++;
			continue;
		}
		if (!hurries)
			rp_cpu_hurry(true);
		hurries = true;
		if (t && hook_process(w, t, l->pid, l->tries + 1 == LATE_SOCKETS) > 0)
			send_session(w, t);
		if (!t || ++l->tries >= LATE_TRIES) {
			*l = w->late[--w->n_late];
			continue;
		}
		l->at = now + late_ms[l->tries] * 1000000ULL;
		i++;
	}
	if (hurries)
		rp_cpu_hurry(false);
}

/* The process is gone, or is another program now. */
static void unhook(struct watch *w, uint32_t pid)
{
	struct rp_map_slot *s;
	bool had = false;
	size_t i = 0;

	while ((s = rp_map_next(&w->hooked, &i))) {
		if (s->a == pid) {
			if (!had)
				rp_cpu_hurry(true);
			had = true;
			rp_map_del(&w->hooked, s->a, s->b);
			i = 0; /* deleting moves entries */
		}
	}
	rp_live_detach_pid(w->live, pid);
	if (had)
		rp_cpu_hurry(false);
}

static bool all_gone(const struct watch *w)
{
	for (unsigned i = 0; i < w->n; i++)
		if (!w->t[i].gone || w->t[i].procs)
			return false;
	return true;
}

/* The processes that --pid named are gone, some that they started are not. */
static size_t orphans(const struct watch *w)
{
	size_t n = 0;

	for (unsigned i = 0; i < w->n; i++) {
		if (!w->t[i].gone)
			return 0;
		n += w->t[i].procs;
	}
	return n;
}

/* ---- events on their way to the timeline ---- */

static int on_event(void *ctx, const struct rp_event_hdr *ev)
{
	struct watch *w = ctx;

	rp_run_event(&w->run, ev);
	if (ev->type == RP_EV_PROC) {
		const struct rp_ev_proc *p = (const void *)ev;
		struct target *t;

		switch (p->what) {
		case RP_PROC_FORK:
			t = owner_of(w, p->ppid);
			if (t && !owner_of(w, ev->pid) && !rp_map_put(&w->owner, ev->pid, 0, t)) {
				t->procs++;
				look_later(w, ev->pid);
			}
			break;
		case RP_PROC_EXEC:
			if (owner_of(w, ev->pid)) {
				unhook(w, ev->pid);
				look_later(w, ev->pid);
			}
			break;
		case RP_PROC_EXIT:
			t = rp_map_del(&w->owner, ev->pid, 0);
			if (t)
				t->procs--;
			unhook(w, ev->pid);
			for (unsigned i = 0; i < w->n; i++) {
				if (w->t[i].pid != ev->pid)
					continue;
				w->t[i].gone = true;
				if (w->n > 1 && !all_gone(w))
					rp_say("the engine (pid %u) has exited; the others are still watched",
					       ev->pid);
			}
			break;
		default:
			break;
		}
	}
	return 0;
}

/* ---- metrics ---- */

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static uint64_t resident_bytes(void)
{
	unsigned long long size = 0, rss = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (!f)
		return 0;
	if (fscanf(f, "%llu %llu", &size, &rss) != 2)
		rss = 0;
	fclose(f);
	return rss * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t open_fds(void)
{
	uint64_t n = 0;
	DIR *d = opendir("/proc/self/fd");

	if (!d)
		return 0;
	for (struct dirent *e = readdir(d); e; e = readdir(d))
		n += e->d_name[0] != '.';
	closedir(d);
	return n - 1; /* less the one that this took */
}

static char *metrics(void *ctx, enum rp_expo_format format, size_t *len)
{
	struct watch *w = ctx;
	struct rp_prom_process x = { .format = format,
				     .cpu_seconds = cpu_seconds(),
				     .resident_bytes = resident_bytes(),
				     .start_seconds = w->start_seconds };
	struct rlimit files;
	struct rp_httpd_stats http;
	struct rp_ev_loss loss;
	struct rp_stats st;
	char *text;

	x.open_fds = open_fds();
	if (!getrlimit(RLIMIT_NOFILE, &files))
		x.max_fds = files.rlim_cur;
	pthread_mutex_lock(&w->run.lock);
	if (!w->live) {
		pthread_mutex_unlock(&w->run.lock);
		return NULL;
	}
	rp_httpd_stats(w->httpd, &http);
	x.http = &http;
	x.lines_dropped = rp_say_dropped() + w->run.term_out.dropped;
	w->n_progs = rp_live_prog_stats(w->live, w->progs, RP_LIVE_PROGS);
	x.progs = w->progs;
	x.n_progs = w->n_progs < RP_LIVE_PROGS ? w->n_progs : RP_LIVE_PROGS;
	x.engine = w->t[0].engine->name;
	x.table = w->t[0].engine;
	x.jsonl_failed = w->run.jsonl ? rp_jsonl_failed(w->run.jsonl) : 0;
	x.ring_backlog_bytes = rp_live_backlog(w->live);
	x.more = rp_run_metrics;
	x.ctx = &w->run;
	/* the timeline learns the totals after a loss only */
	st = *rp_timeline_stats(w->run.tl);
	rp_live_loss(w->live, &loss);
	memcpy(st.seen, loss.seen, sizeof(st.seen));
	memcpy(st.lost, loss.lost, sizeof(st.lost));
	memcpy(st.map_full, loss.map_full, sizeof(st.map_full));
	text = rp_prom_render(w->run.prom, &st, &x, len);
	pthread_mutex_unlock(&w->run.lock);
	return text;
}

/* ---- start ---- */

static void address_of(const struct rp_listener *l, char *buf, size_t len)
{
	char ip[INET6_ADDRSTRLEN] = "";

	if (l->family == AF_UNIX) {
		snprintf(buf, len, "unix:%s", l->path);
		return;
	}
	inet_ntop(l->family, l->addr, ip, sizeof(ip));
	snprintf(buf, len, l->family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip, l->port);
}

/* Watch the tree of a target; again until nothing new turns up, since it may
 * grow while we look (from the first watch on, the kernel follows forks). */
static int watch_tree(struct watch *w, struct target *t)
{
	bool more = true;
	int err;

	for (int round = 0; more && round < 8; round++) {
		uint32_t *pids = NULL;
		ssize_t n = rp_proc_tree(t->pid, &pids);

		if (n < 0)
			return (int)n;
		more = false;
		for (ssize_t i = 0; i < n; i++) {
			struct rp_ev_proc e = { .h = header(RP_EV_PROC, sizeof(e), pids[i]) };

			if (owner_of(w, pids[i]))
				continue;
			err = rp_live_watch(w->live, pids[i]);
			if (err == -ESRCH && pids[i] != t->pid)
				continue;
			if (err) {
				free(pids);
				return err;
			}
			rp_map_put(&w->owner, pids[i], 0, t);
			t->procs++;
			more = true;
			if (rp_proc_io_urings(pids[i])) {
				struct rp_ev_uring u = { .h = header(RP_EV_URING, sizeof(u),
								     pids[i]) };

				u.h.flags = RP_F_SYNTH;
				rp_run_event(&w->run, &u.h);
			}
			if (pids[i] == t->pid)
				continue;
			e.h.flags = RP_F_SYNTH;
			e.what = RP_PROC_FORK;
			e.ppid = t->pid;
			e.gpid = pids[i];
			rp_run_event(&w->run, &e.h);
		}
		free(pids);
	}
	return 0;
}

static void hook_tree(struct watch *w, struct target *t)
{
	struct rp_map_slot *s;
	size_t i = 0;

	if (w->o->no_hooks)
		t->reason = RP_HOOKS_OFF;
	else if (!t->engine->n_hooks)
		t->reason = RP_HOOKS_NONE_FOR_ENGINE;
	else
		t->reason = RP_HOOKS_STRIPPED;
	t->attached = 0;
	while ((s = rp_map_next(&w->owner, &i)))
		if (s->v == t)
			if (!hook_process(w, t, (uint32_t)s->a, false))
				look_later(w, (uint32_t)s->a);
}

/* Which engine, and the one hook table of this run. */
static int recognise(struct watch *w, struct target *t)
{
	const struct rp_engine *before = t->engine;
	uint32_t *pids = NULL, where = 0;
	ssize_t n = rp_proc_tree(t->pid, &pids);
	struct rp_proc p;

	if (n < 0)
		return (int)n;
	t->engine = w->o->engine ? rp_engine_by_name(w->o->engine) :
				   rp_match_engine(pids, (size_t)n, &where);
	free(pids);
	if (!t->engine)
		t->engine = &rp_engine_generic;
	if (!rp_proc_read(where ? where : t->pid, &p)) {
		if (t->engine->version)
			t->engine->version(&p, t->version, sizeof(t->version));
	}
	rp_proc_free(&p);
	if (t->engine == before)
		return 0; /* it came back: its place in the table is kept */
	for (unsigned i = 0; &w->t[i] != t; i++) {
		if (w->t[i].engine == t->engine) {
			t->base = w->t[i].base;
			return 0;
		}
	}
	if (w->n_hooks + t->engine->n_hooks > RP_MAX_HOOKS)
		return -E2BIG;
	t->base = w->n_hooks;
	for (size_t i = 0; i < t->engine->n_hooks; i++) {
		w->specs[w->n_hooks] = t->engine->hooks[i].spec;
		w->roles[w->n_hooks++] = (uint8_t)t->engine->hooks[i].role;
	}
	return 0;
}

static void send_listeners(struct watch *w)
{
	for (ssize_t i = 0; i < w->n_ls; i++) {
		const struct rp_listener *l = &w->ls[i];
		struct rp_ev_listener e = { .h = header(RP_EV_LISTENER, sizeof(e), l->pid) };

		e.family = (uint16_t)l->family;
		e.port = l->port;
		e.netns = l->netns;
		memcpy(e.addr, l->addr, sizeof(e.addr));
		memcpy(e.path, l->path, sizeof(e.path));
		rp_run_event(&w->run, &e.h);
		if (l->port)
			rp_live_add_listener(w->live, l->netns, l->port);
	}
}

static void end_after_duration(struct watch *w)
{
	if (w->o->duration_ns && !w->end)
		w->end = rp_now_ns() + (uint64_t)w->o->duration_ns;
}

static bool over(const struct watch *w)
{
	return rp_stopping() || (w->end && rp_now_ns() >= w->end);
}

#define NOT_YET (-1)
#define LISTEN_MS 500

/* What to watch for the pids given, or an exit status with its line said. */
static int find_targets(struct watch *w)
{
	uint32_t pid, top;
	bool twice;

	for (unsigned i = 0; i < w->o->n_pids; i++) {
		pid = w->o->pids[i];
		if (rp_proc_alive(pid)) {
			rp_say("no process %u", pid);
			return RP_EXIT_NO_ENGINE;
		}
		top = rp_find_top(pid);
		if (top != pid)
			rp_say("process %u is a part of the server %u, which is watched as a whole",
			       pid, top);
		twice = false;
		for (unsigned k = 0; k < w->n; k++)
			twice |= w->t[k].pid == top;
		if (!twice)
			w->t[w->n++].pid = top;
	}
	return 0;
}

/*
 * Listening sockets of all targets, or an exit status with its line said; with --wait
 * NOT_YET where there are none.
 */
static int find_listeners(struct watch *w)
{
	uint32_t *all = NULL;
	size_t n_all = 0;

	for (unsigned i = 0; i < w->n; i++) {
		uint32_t *pids = NULL, *grown;
		struct rp_listener *ls = NULL;
		ssize_t n, k;

		n = rp_proc_tree(w->t[i].pid, &pids);
		if (n < 0) {
			rp_say("no process %u: %s", w->t[i].pid, strerror((int)-n));
			free(all);
			return RP_EXIT_NO_ENGINE;
		}
		k = rp_proc_listeners(pids, (size_t)n, &ls);
		free(w->ls);
		w->ls = ls;
		w->n_ls = k;
		if (k <= 0) {
			free(pids);
			free(all);
			if (k == -EACCES) {
				rp_say("may not look into process %u: run as root (sudo reqprobe --pid %u), or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
				       w->t[i].pid, w->t[i].pid);
				return RP_EXIT_DENIED;
			}
			if (w->o->wait) {
				if (w->waits_for != w->t[i].pid)
					rp_say("process %u and its children listen on no stream socket yet: waiting for it",
					       w->t[i].pid);
				w->waits_for = w->t[i].pid;
				return NOT_YET;
			}
			rp_say("process %u and its children listen on no stream socket: no engine in it, or one that is still starting (--wait waits for it)",
			       w->t[i].pid);
			return RP_EXIT_NO_ENGINE;
		}
		grown = realloc(all, (n_all + (size_t)n) * sizeof(*all));
		if (!grown) {
			free(pids);
			free(all);
			return RP_EXIT_FAILED;
		}
		all = grown;
		memcpy(all + n_all, pids, (size_t)n * sizeof(*all));
		n_all += (size_t)n;
		free(pids);
	}
	if (w->n > 1) { /* one owner for each socket, whoever shares it */
		free(w->ls);
		w->ls = NULL;
		w->n_ls = rp_proc_listeners(all, n_all, &w->ls);
	}
	free(all);
	return 0;
}

/*
 * The same; it waits while none are there yet, and the attach begins (*since) when there are.
 * NOT_YET: it was told to stop.
 */
static int wait_for_listeners(struct watch *w, uint64_t *since)
{
	int st = find_listeners(w);

	if (st == NOT_YET)
		end_after_duration(w);
	while (st == NOT_YET && !over(w)) {
		usleep(LISTEN_MS * 1000);
		*since = rp_now_ns();
		st = find_listeners(w);
	}
	return st;
}

static int attach(struct watch *w)
{
	int err;

	for (unsigned i = 0; i < w->n; i++) {
		/* first, without hooks: the processes of its tree are put down to it */
		w->t[i].attached = 0;
		send_session(w, &w->t[i]);
		send_configuration(w, &w->t[i]);
		err = watch_tree(w, &w->t[i]);
		if (err) {
			rp_say("can't watch process %u: %s", w->t[i].pid, strerror(-err));
			return err == -ESRCH ? RP_EXIT_NO_ENGINE : RP_EXIT_FAILED;
		}
		if (w->t[i].pid == 1 || owner_of(w, (uint32_t)getpid()) == &w->t[i])
			rp_say("pid %u has %u processes under it%s: all are watched, and each of their calls that moves bytes of a socket costs about a microsecond; the server's own pid is enough",
			       w->t[i].pid, w->t[i].procs - 1,
			       owner_of(w, (uint32_t)getpid()) == &w->t[i] ?
				       ", reqprobe itself among them" :
				       "");
		if (w->o->require_uprobes && !w->t[i].engine->n_hooks) {
			rp_say("--require-uprobes was given, and pid %u (%s) has no functions to hook",
			       w->t[i].pid, w->t[i].engine->name);
			return RP_EXIT_DENIED;
		}
		hook_tree(w, &w->t[i]);
		send_session(w, &w->t[i]);
		if (w->t[i].reason != RP_HOOKS_OK && w->t[i].engine->n_hooks && !w->o->no_hooks) {
			if (w->t[i].why[0])
				rp_say("%s; queue, prefill and decode times will be null",
				       w->t[i].why);
			else
				rp_say("no function of %s could be hooked in pid %u: queue, prefill and decode times will be null",
				       w->t[i].engine->title, w->t[i].pid);
			if (w->o->require_uprobes) {
				rp_say("--require-uprobes was given: giving up");
				return RP_EXIT_DENIED;
			}
		}
	}
	send_listeners(w);
	return 0;
}

/* Only what is needed to look at processes that start later. */
static void drop_capabilities(void)
{
	static const int need[] = {
		CAP_SYS_ADMIN,	     /* uprobes on patched kernels, /proc/PID/map_files */
		CAP_SYS_PTRACE,	     /* other users' /proc */
		CAP_DAC_READ_SEARCH, /* files below /proc/PID/root */
		RP_CAP_PERFMON,	     RP_CAP_BPF, RP_CAP_CHECKPOINT_RESTORE,
	};
	int err = rp_caps_keep(need, sizeof(need) / sizeof(need[0]));

	if (err)
		rp_say("could not drop capabilities: %s", strerror(-err));
}

static unsigned hooked_processes(const struct watch *w, const struct target *t)
{
	struct rp_map_slot *s, *o;
	unsigned n = 0;
	size_t i = 0, j;

	while ((s = rp_map_next(&w->owner, &i))) {
		if (s->v != t)
			continue;
		for (j = 0; (o = rp_map_next(&w->hooked, &j));) {
			if (o->a == s->a) {
				n++;
				break;
			}
		}
	}
	return n;
}

/* Where it listens: TCP before a Unix socket. */
static void address_of_target(struct watch *w, const struct target *t, char *buf, size_t len)
{
	buf[0] = '\0';
	for (ssize_t i = 0; i < w->n_ls; i++) {
		if (owner_of(w, w->ls[i].pid) != t)
			continue;
		if (!buf[0] || (w->ls[i].family != AF_UNIX && !strncmp(buf, "unix:", 5)))
			address_of(&w->ls[i], buf, len);
	}
}

/* "9 functions of llama.cpp", or why there is none. */
static void hooks_text(const struct watch *w, const struct target *t, char *buf, size_t len)
{
	char whose[24] = "";
	unsigned on = 0;

	for (unsigned i = 0; i < RP_MAX_HOOKS; i++)
		on += t->attached >> i & 1;
	if (w->n > 1)
		snprintf(whose, sizeof(whose), ", pid %u", t->pid);
	if (on && t->engine->n_hooks == 1)
		snprintf(buf, len, "%s in %u processes%s", t->engine->hooks[0].function,
			 hooked_processes(w, t), whose);
	else if (on)
		snprintf(buf, len, "%u functions of %s%s", on, t->engine->title, whose);
	else
		snprintf(buf, len, "%s%s",
			 w->o->no_hooks ? "off: --no-hooks" :
			 t->why[0]	? t->why :
					  "no hooks in this engine",
			 whose);
}

static void show_header(struct watch *w)
{
	static const char timing[] = "queue, prefill, decode";
	struct rp_term_engine engines[RP_MAX_PIDS];
	struct rp_term_row rows[RP_MAX_PIDS + 4];
	char addresses[RP_MAX_PIDS][128], hooks[RP_MAX_PIDS][128], ceiling[40];
	size_t n = 0;
	struct rp_term_header h = {
		.engines = engines,
		.n_engines = w->n,
		.rows = rows,
		.metrics_url = w->httpd ? rp_httpd_url(w->httpd) : NULL,
	};

	if (!w->run.term)
		return;
	for (unsigned i = 0; i < w->n; i++) {
		const struct target *t = &w->t[i];

		address_of_target(w, t, addresses[i], sizeof(addresses[i]));
		hooks_text(w, t, hooks[i], sizeof(hooks[i]));
		engines[i] = (struct rp_term_engine){
			.name = t->engine->title,
			.version = t->version,
			.address = addresses[i][0] ? addresses[i] : NULL,
			.pid = t->pid,
			.more_pids = t->procs ? t->procs - 1 : 0,
		};
		if (t->attached)
			rows[n++] = (struct rp_term_row){ "sees", timing, hooks[i] };
	}
	rows[n++] = (struct rp_term_row){ "sees", "HTTP and SSE", "read, write and their kin" };
	rows[n++] = (struct rp_term_row){ "sees", "handshake RTT", "inet_sock_set_state" };
	for (unsigned i = 0; i < w->n; i++)
		if (!w->t[i].attached)
			rows[n++] = (struct rp_term_row){ "blind", timing, hooks[i] };
	rows[n++] = (struct rp_term_row){ "blind", "TLS, HTTP/2", "counted, not read" };
	snprintf(ceiling, sizeof(ceiling), "at most %llu MiB",
		 (unsigned long long)(w->o->memory >> 20));
	rows[n++] = (struct rp_term_row){ "memory", ceiling, "--memory" };
	h.n_rows = n;
	rp_term_header(w->run.term, &h);
	fflush(w->run.term_file);
}

/* ---- the engine goes away and comes back ---- */

static void remember_cmdline(struct target *t)
{
	struct rp_proc p;

	if (!rp_proc_read(t->pid, &p)) {
		free(t->cmdline);
		t->cmdline = p.cmdline;
		t->cmdline_len = p.cmdline_len;
		p.cmdline = NULL;
	}
	rp_proc_free(&p);
}

static uint32_t find_cmdline(struct watch *w, const struct target *t)
{
	uint32_t *pids = NULL, found = 0;
	ssize_t n;

	if (!t->cmdline_len)
		return 0;
	if (!t->gone && !rp_proc_alive(t->pid))
		return t->pid; /* it is back, another of several is not */
	n = rp_proc_tree(1, &pids);
	for (ssize_t i = 0; i < n && !found; i++) {
		struct rp_proc p;

		if (pids[i] == (uint32_t)getpid() || owner_of(w, pids[i]))
			continue;
		if (!rp_proc_read(pids[i], &p) && p.cmdline_len == t->cmdline_len &&
		    !memcmp(p.cmdline, t->cmdline, p.cmdline_len))
			found = p.pid;
		rp_proc_free(&p);
	}
	free(pids);
	return found;
}

/* Every engine is back and listens: follow them. */
static bool come_back(struct watch *w)
{
	for (unsigned i = 0; i < w->n; i++) {
		uint32_t *pids = NULL, pid = find_cmdline(w, &w->t[i]);
		struct rp_listener *ls = NULL;
		ssize_t n, k = 0;

		if (!pid)
			return false;
		n = rp_proc_tree(pid, &pids);
		if (n > 0)
			k = rp_proc_listeners(pids, (size_t)n, &ls);
		free(ls);
		free(pids);
		if (k <= 0)
			return false;
		w->t[i].pid = pid;
	}
	for (unsigned i = 0; i < w->n; i++) {
		w->t[i].gone = false; /* procs: those left behind are watched on */
		w->t[i].version[0] = w->t[i].why[0] = '\0';
	}
	if (find_listeners(w))
		return false;
	for (unsigned i = 0; i < w->n; i++)
		if (recognise(w, &w->t[i]) == -E2BIG)
			return false;
	if (rp_live_set_hooks(w->live, w->specs, w->n_hooks))
		return false;
	return attach(w) == 0;
}

/* ---- main loop ---- */

static unsigned say_helped(const struct watch *w, unsigned before)
{
	enum rp_cpu_level l;
	unsigned n = rp_cpu_helped(&l);

	if (n != before && w->o->verbose)
		rp_say("got no CPU for %llu ms: runs as %s for a while",
		       (l == RP_CPU_HURRY ? RP_CPU_USUAL_LATE_NS : RP_CPU_IDLE_LATE_NS) / 1000000,
		       l == RP_CPU_HURRY ? "a real-time process (SCHED_RR)" :
					   "others do (SCHED_OTHER)");
	return n;
}

static void loop(struct watch *w)
{
	uint64_t gone_at = 0, orphans_at = 0, look_at = 0;
	unsigned helped = 0;
	int n = 0;
	bool waiting = false, told = false;

	end_after_duration(w);
	while (!rp_stopping()) {
		/* a burst may fill the ring in less than one period: stay with it */
		if (rp_live_backlog(w->live) < w->o->ring / 16) {
			unsigned ms = waiting ? 500 : n > BUSY_EVENTS ? DRAIN_MS : DRAIN_CALM_MS;

			rp_cpu_due(rp_now_ns() + ms * 1000000ULL);
			rp_live_wait(w->live, ms);
			rp_cpu_due(rp_now_ns());
		}
		helped = say_helped(w, helped);
		n = rp_live_drain(w->live, on_event, w, 0);
		rp_run_flush(&w->run);
		rp_cpu_choose();
		if (w->n_late)
			look_now(w);
		if (rp_hup_taken())
			rp_run_reopen(&w->run);
		if (over(w) || w->run.reader_gone)
			break;
		if (orphans(w)) {
			orphans_at = orphans_at ? orphans_at : rp_now_ns();
			if (!told && rp_now_ns() - orphans_at > ORPHANS_NS) {
				told = true;
				rp_say("the engine (pid %u) has exited, %zu of its processes still run: %s",
				       w->t[0].pid, orphans(w),
				       w->o->wait ? "waiting for it to come back" :
						    "they are watched on");
			}
		} else {
			orphans_at = 0;
		}
		waiting |= told && orphans_at && w->o->wait;
		if (waiting) {
			if (rp_now_ns() < look_at)
				continue;
			rp_cpu_hurry(true);
			if (come_back(w)) {
				waiting = told = false;
				rp_say("attached to pid %u (%s) again", w->t[0].pid,
				       w->t[0].engine->name);
			}
			rp_cpu_hurry(false);
			look_at = rp_now_ns() + LOOK_NS;
		} else if (all_gone(w)) {
			/* its sockets are closed after it is said to have exited */
			gone_at = gone_at ? gone_at : rp_now_ns();
			if (rp_timeline_stats(w->run.tl)->in_flight &&
			    rp_now_ns() - gone_at < LAST_WORDS_NS)
				continue;
			gone_at = 0;
			if (!w->o->wait) {
				rp_say("the engine (pid %u) has exited", w->t[0].pid);
				break;
			}
			rp_say("the engine (pid %u) has exited; waiting for it to come back",
			       w->t[0].pid);
			waiting = true;
		}
	}
}

static void say_end(struct watch *w)
{
	const struct rp_stats *s = rp_timeline_stats(w->run.tl);
	char ends[160] = "";
	uint64_t total = 0, lost = 0;
	size_t n = 0;

	for (int i = 0; i < RP_END_COUNT; i++) {
		total += s->ends[i];
		if (s->ends[i] && n < sizeof(ends) - 32)
			n += (size_t)snprintf(ends + n, sizeof(ends) - n, "%s%llu %s",
					      n ? ", " : "", (unsigned long long)s->ends[i],
					      rp_end_names[i]);
	}
	for (int i = 0; i < RP_CLASS_COUNT; i++)
		lost += s->lost[i];
	rp_say("%llu request%s%s%s; %llu event%s lost", (unsigned long long)total,
	       total == 1 ? "" : "s", n ? ": " : "", ends, (unsigned long long)lost,
	       lost == 1 ? "" : "s");
}

/* Not permitted, or not there in this kernel. */
static bool denied(int e)
{
	return e == -EPERM || e == -EACCES || e == -ENOTSUP || e == -ENOENT || e == -ENOSYS;
}

int rp_watch(const struct rp_options *o)
{
	struct rp_live_opts lo;
	struct watch *w;
	struct rlimit no_core = { 0, 0 };
	struct rp_httpd *httpd;
	struct rp_live *live;
	uint64_t t0 = rp_now_ns();
	char err[512];
	int st = 0, e;

	w = calloc(1, sizeof(*w));
	if (!w) {
		rp_say("no memory");
		return RP_EXIT_FAILED;
	}
	w->o = o;
	/*
	 * Getting ready costs about 0.2 s of one core, whoever waits; on a busy
	 * machine it should not also take long.
	 */
	rp_cpu_begin();
	/* prompts are in this memory: no core file, no ptrace by others */
	setrlimit(RLIMIT_CORE, &no_core);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	signal(SIGPIPE, SIG_IGN);
	rp_stop_on_signals(true);
	rp_say_never_wait();

	st = find_targets(w);
	if (!st)
		st = wait_for_listeners(w, &t0);
	if (st) {
		if (st == NOT_YET)
			st = 0;
		goto cleanup;
	}
	for (unsigned i = 0; i < w->n; i++) {
		e = recognise(w, &w->t[i]);
		if (e) {
			rp_say("can't look at process %u: %s", w->t[i].pid, strerror(-e));
			st = e == -ESRCH ? RP_EXIT_NO_ENGINE : RP_EXIT_FAILED;
			goto cleanup;
		}
		if (o->wait)
			remember_cmdline(&w->t[i]);
	}
	rp_live_defaults(&lo);
	lo.ring_bytes = (uint32_t)o->ring;
	lo.payload_max = (uint32_t)o->payload;
	lo.max_conns = o->max_connections > lo.max_conns ? o->max_connections : lo.max_conns;
	lo.verbose = o->verbose > 1;
	lo.no_tp_btf = o->no_tp_btf;
	if (o->account_every_ns)
		lo.stats_every = (uint64_t)o->account_every_ns;
	lo.spins = o->sockets;
	lo.no_uprobe_multi = true; /* finding out takes time: only for who has hooks */
	for (unsigned i = 0; i < w->n; i++) {
		lo.spins |= w->t[i].engine->spins;
		lo.no_uprobe_multi &= !w->t[i].engine->n_hooks;
	}
	lo.no_uprobe_multi |= o->no_uprobe_multi || o->no_hooks;
	e = rp_live_open(&lo, &live, err, sizeof(err));
	if (e) {
		rp_say("%s", err);
		st = denied(e) ? RP_EXIT_DENIED : RP_EXIT_FAILED;
		goto cleanup;
	}
	st = rp_run_open(&w->run, o);
	if (!st && strcmp(o->metrics, "off")) {
		const struct rp_httpd_opts ho = { .held_max = rp_run_held_pages(o) };
		struct rp_prom_opts po = { .max_models = 32 };
		struct timespec now;

		clock_gettime(CLOCK_REALTIME, &now);
		w->start_seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;

		w->run.prom = rp_prom_new(&po);
		e = rp_httpd_start(o->metrics, &ho, metrics, w, &httpd, err, sizeof(err));
		if (!w->run.prom || e) {
			rp_say("%s", e ? err : "no memory");
			st = RP_EXIT_FAILED;
		} else {
			w->httpd = httpd;
		}
	}
	if (st) {
		rp_live_close(live);
		rp_run_close(&w->run);
		memset(&w->run, 0, sizeof(w->run));
		goto cleanup;
	}
	e = rp_live_set_hooks(live, w->specs, w->n_hooks);
	if (e) {
		rp_say("can't hand the engine's hooks to the kernel: %s", strerror(-e));
		st = RP_EXIT_FAILED;
	}
	/* the clock comes first: every record needs it */
	rp_live_drain(live, rp_run_event, &w->run, 0);
	pthread_mutex_lock(&w->run.lock);
	w->live = live;
	pthread_mutex_unlock(&w->run.lock);
	if (!st)
		st = attach(w);
	if (!st) {
		rp_cpu_ready();
		drop_capabilities();
		for (unsigned i = 0; i < w->n; i++)
			rp_say("attached to pid %u (%s) in %.0f ms", w->t[i].pid,
			       w->t[i].engine->name, (double)(rp_now_ns() - t0) / 1e6);
		if (o->verbose)
			rp_say("memory: ceiling %llu MiB, kernel and ring %zu MiB",
			       (unsigned long long)(o->memory >> 20), rp_live_memory(live) >> 20);
		if (w->httpd && !o->quiet && !w->run.term &&
		    (o->verbose || strstr(rp_httpd_url(w->httpd), o->metrics) == NULL))
			rp_say("metrics: %s", rp_httpd_url(w->httpd));
		show_header(w);
		loop(w);
		rp_cpu_hurry(true);
	}
	rp_live_drain(live, on_event, w, 0);
	if (!st) {
		struct rp_event_hdr h = header(RP_EV_STOP, sizeof(h), 0);
		struct rp_ev_loss loss;

		rp_live_loss(live, &loss);
		loss.h = header(RP_EV_LOSS, sizeof(loss), 0);
		rp_run_event(&w->run, &loss.h);
		rp_run_event(&w->run, &h);
		rp_run_finish(&w->run);
		if (!o->quiet && !w->run.term)
			say_end(w);
		if (rp_run_lost(&w->run))
			st = RP_EXIT_FAILED;
	}
	pthread_mutex_lock(&w->run.lock);
	w->live = NULL;
	pthread_mutex_unlock(&w->run.lock);
	if (w->httpd)
		rp_httpd_stop(w->httpd);
	rp_live_close(live);
	rp_run_close(&w->run);
	rp_cpu_end();
cleanup:
	for (unsigned i = 0; i < w->n; i++)
		free(w->t[i].cmdline);
	rp_map_free(&w->owner);
	rp_map_free(&w->hooked);
	free(w->ls);
	free(w);
	rp_say_end();
	return st;
}
