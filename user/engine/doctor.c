// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* doctor.c - see doctor.h. Lines stay under 80 columns; nothing in the output that
 * comes from a process is printed raw. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "engine/doctor.h"
#include "engine/engine.h"
#include "engine/find.h"
#include "engine/proc.h"
#include "options.h"
#include "source/live.h"

#define COLUMNS 79
#define KEY 13	      /* width of the first column */
#define SHOW_PROCS 16 /* processes of one tree described in full */
#define SHOW_LISTENERS 4
#define FDS_MAX (1 << 20)

enum { EXIT_DENIED = 3, EXIT_NO_PROCESS = 4 };

static bool continuation(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/* One word, its tail when it is too long: the end of a path is what tells. */
static void put_word(FILE *out, const char *word, size_t len, size_t room)
{
	size_t i = 0;

	if (len > room && room > 3) {
		i = len - (room - 3);
		while (i < len && continuation(word[i]))
			i++;
		fputs("...", out);
	}
	for (; i < len; i++)
		fputc((unsigned char)word[i] < ' ' || word[i] == 0x7f ? '?' : word[i], out);
}

/* "  key          text", text wrapped under itself. */
static void say(FILE *out, int indent, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static void say(FILE *out, int indent, const char *key, const char *fmt, ...)
{
	size_t left = indent + KEY, room = COLUMNS - left, col, n;
	bool first = true;
	char *text, *p;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (len < 0)
		return;
	fprintf(out, "%*s%-*.*s", indent, "", KEY, KEY - 1, key);
	col = 0;
	for (p = text; *p; p += n) {
		while (*p == ' ')
			p++;
		n = strcspn(p, " ");
		if (!n)
			break;
		if (!first && col + 1 + (n < room ? n : room) > room) {
			fprintf(out, "\n%*s", (int)left, "");
			col = 0;
		} else if (!first) {
			fputc(' ', out);
			col++;
		}
		put_word(out, p, n, room);
		col += n < room ? n : room;
		first = false;
	}
	fputc('\n', out);
	free(text);
}

/* ---- kernel ---- */

static const char *const state_names[] = {
	[RP_FEAT_YES] = "yes",
	[RP_FEAT_NO] = "NO",
	[RP_FEAT_DENIED] = "DENIED",
	[RP_FEAT_UNKNOWN] = "unknown",
};

/* How many features are not there: required ones, and others. */
struct lacks {
	unsigned required, others;
};

static struct lacks kernel(FILE *out)
{
	struct lacks lacks = { 0, 0 };
	struct rp_feature f[RP_FEAT_COUNT] = { 0 };
	const struct rp_feature *x;
	struct utsname u;
	bool bad;
	char key[48];
	size_t i;

	rp_feature_probe(f);
	if (uname(&u))
		memset(&u, 0, sizeof(u));
	say(out, 0, "kernel", "%s %s, %s", u.release, u.machine, geteuid() ? "not root" : "root");
	for (i = 0; i < RP_FEAT_COUNT; i++) {
		x = &f[i];
		if (!x->name)
			continue;
		bad = x->state == RP_FEAT_NO || x->state == RP_FEAT_DENIED;
		lacks.required += bad && x->required;
		lacks.others += bad && !x->required;
		snprintf(key, sizeof(key), "%s", state_names[x->state]);
		if (!bad) {
			say(out, 2, key, "%s%s%s%s", x->name, x->used ? ", used" : "",
			    x->note[0] ? ": " : "", x->note);
			continue;
		}
		say(out, 2, key, "%s%s; without it: %s%s%s%s%s%s%s", x->name,
		    x->required ? " (required)" : "", x->lost ? x->lost : "?",
		    x->since ? "; since Linux " : "", x->since ? x->since : "", x->err ? "; " : "",
		    x->err ? strerror(-x->err) : "", x->note[0] ? "; " : "", x->note);
	}
	return lacks;
}

static const char *tls_library(const struct rp_proc *p)
{
	static const char *const libs[] = { "libssl",	  "libgnutls",	"libs2n", "librustls",
					    "libmbedtls", "libwolfssl", NULL };
	const char *b;
	size_t i, j;

	for (i = 0; i < p->n_objects; i++) {
		b = strrchr(p->objects[i].path, '/');
		b = b ? b + 1 : p->objects[i].path;
		for (j = 0; libs[j]; j++)
			if (!strncmp(b, libs[j], strlen(libs[j])))
				return b;
	}
	return NULL;
}

static const char *role_lost(enum rp_role role)
{
	switch (role) {
	case RP_ROLE_QUEUED:
		return "tasks can't be joined to requests: metrics.*, phases.frontend_ms, "
		       "queue_ms, prefill_ms, decode_ms null";
	case RP_ROLE_SCHEDULED:
		return "metrics.*, phases.queue_ms, prefill_ms, decode_ms null";
	case RP_ROLE_TOKEN:
		return "metrics.* but queue_time_ms, phases.prefill_ms, decode_ms null; "
		       "tokens from usage only";
	case RP_ROLE_FINAL:
		return "a task ends when its slot is released";
	case RP_ROLE_RELEASED:
		return "a cancelled task ends with its connection";
	case RP_ROLE_DEFERRED:
		return "waiting for a slot isn't told from other waiting";
	case RP_ROLE_STEP:
		return "no steps and no KV cache usage";
	case RP_ROLE_VLLM:
		return "metrics.*, phases.queue_ms, prefill_ms, decode_ms, steps and the "
		       "scheduler's metrics null";
	default:
		return "";
	}
}

/* What of one tree can be seen, for the last line. */
struct sight {
	const struct rp_engine *engine; /* NULL: none that is known */
	uint32_t found, missing;	/* bit: role, in any process of the tree */
};

/* Alternatives of one role that were not found matter only when none was. */
static void hooks(FILE *out, const struct rp_match *m, struct sight *see)
{
	const struct rp_engine_hook *h;
	const char *file = NULL;
	uint32_t roles = 0;
	size_t i;

	for (i = 0; i < m->n_places; i++) {
		h = &m->engine->hooks[m->places[i].hook];
		if (!file || strcmp(file, m->places[i].path)) {
			file = m->places[i].path;
			say(out, 2, "hooks in", "%s", file);
		}
		say(out, 4, "found", "%s", h->function);
		see->found |= 1u << h->role;
	}
	for (i = 0; i < m->engine->n_hooks; i++) {
		h = &m->engine->hooks[i];
		if (!(m->missing >> i & 1) || roles >> h->role & 1)
			continue;
		roles |= 1u << h->role;
		see->missing |= 1u << h->role;
		say(out, 4, "missing", "%s (%s): %s", h->function, h->gives, role_lost(h->role));
	}
	if (m->why[0])
		say(out, 2, m->engine->n_hooks ? "why" : "hooks", "%s", m->why);
}

static void namespaces(FILE *out, uint32_t pid)
{
	static const char *const names[] = { "pid", "net", "mnt" };
	char own[32], its[48], text[64] = "";
	struct stat a, b;
	size_t i, n = 0;
	bool unknown = false;

	for (i = 0; i < 3; i++) {
		snprintf(own, sizeof(own), "/proc/self/ns/%s", names[i]);
		snprintf(its, sizeof(its), "/proc/%" PRIu32 "/ns/%s", pid, names[i]);
		if (stat(own, &a) || stat(its, &b))
			unknown = true;
		else if (a.st_ino != b.st_ino)
			n += snprintf(text + n, sizeof(text) - n, "%s%s", n ? ", " : "", names[i]);
	}
	if (unknown)
		say(out, 2, "namespaces", "not permitted to look");
	else if (n)
		say(out, 2, "namespaces", "its own: %s (a container); works the same", text);
	else
		say(out, 2, "namespaces", "pid, net and mnt shared with reqprobe");
}

/* A server's port is mostly below those that the kernel gives out. */
static int by_port(const void *a, const void *b)
{
	const struct rp_listener *x = a, *y = b;

	if ((x->family == AF_UNIX) != (y->family == AF_UNIX))
		return x->family == AF_UNIX ? 1 : -1;
	return (x->port > y->port) - (x->port < y->port);
}

static void listeners(FILE *out, struct rp_listener *l, ssize_t n)
{
	char addr[INET6_ADDRSTRLEN] = "?";
	ssize_t i;

	qsort(l, (size_t)n, sizeof(*l), by_port);
	for (i = 0; i < n && i < SHOW_LISTENERS; i++) {
		if (l[i].family == AF_UNIX) {
			say(out, 2, "listens", "unix %s (pid %" PRIu32 ")", l[i].path, l[i].pid);
			continue;
		}
		inet_ntop(l[i].family, l[i].addr, addr, sizeof(addr));
		say(out, 2, "listens", "%s%s%s:%u (pid %" PRIu32 ")",
		    l[i].family == AF_INET6 ? "[" : "", addr, l[i].family == AF_INET6 ? "]" : "",
		    l[i].port, l[i].pid);
	}
	if (n > SHOW_LISTENERS)
		say(out, 2, "listens", "and %zd more, which its processes may need for themselves",
		    n - SHOW_LISTENERS);
}

static void process(FILE *out, const struct rp_engine *e, const struct rp_proc *p,
		    struct sight *see)
{
	struct rp_match m;
	const char *tls;
	size_t rings;
	int err;

	say(out, 2, "process", "%" PRIu32 " %s", p->pid, p->exe ? p->exe : p->comm);
	if (e->recognise(p)) {
		err = rp_match_hooks(e, p, &m);
		if (err) {
			say(out, 2, "hooks", "%s", strerror(-err));
		} else {
			say(out, 2, "engine", "%s (%s) %s", e->title, e->name,
			    m.version[0] || !e->n_hooks ? m.version : "version unknown");
			hooks(out, &m, see);
			if (e->n_hooks)
				see->engine = e;
			rp_match_free(&m);
		}
	}
	if (p->is_go)
		say(out, 2, "go", "a Go program: entry probes only, as everywhere here");
	if (p->seccomp > 0)
		say(out, 2, "seccomp", "mode %d; harmless: entry probes make no system call",
		    p->seccomp);
	tls = tls_library(p);
	if (tls)
		say(out, 2, "tls", "%s is mapped: TLS connections, if any, are counted, not read",
		    tls);
	rings = rp_proc_io_urings(p->pid);
	if (rings)
		say(out, 2, "io_uring",
		    "%zu open: sockets served through it, if any, are unobserved", rings);
	namespaces(out, p->pid);
}

#define SHOW_ENGINES 16

/* Which processes there are to watch. */
static void engines(FILE *out)
{
	struct rp_found found[SHOW_ENGINES];
	ssize_t n = rp_find_engines(found, SHOW_ENGINES), k;
	struct rp_listener *l;
	char where[160];
	uint32_t *pids;
	ssize_t tree, tcp;

	fputc('\n', out);
	if (n < 0)
		say(out, 0, "engines", "not looked for: %s", strerror((int)-n));
	if (!n)
		say(out, 0, "engines",
		    "none that is known runs here%s; any HTTP/1.1 server can be watched by its pid",
		    geteuid() ? ", as far as can be seen without root" : "");
	for (ssize_t i = 0; i < n && i < SHOW_ENGINES; i++) {
		l = NULL;
		k = rp_proc_tree(found[i].pid, &pids);
		if (k > 0) {
			tree = k;
			k = rp_proc_listeners(pids, (size_t)tree, &l);
			free(pids);
		}
		/* engines have sockets of their own, too: clients come by TCP if they can */
		for (tcp = 0; tcp < k && l[tcp].family == AF_UNIX;)
			tcp++;
		if (k > 0 && tcp < k)
			snprintf(where, sizeof(where), "port %u", l[tcp].port);
		else
			snprintf(where, sizeof(where), "%s",
				 k > 0	      ? l[0].path :
				 k == -EACCES ? "where it listens can't be seen" :
						"does not listen yet");
		free(l);
		say(out, 0, i ? "" : "engines", "reqprobe --pid %" PRIu32 ": %s%s%s, %s",
		    found[i].pid, found[i].engine->title, found[i].version[0] ? " " : "",
		    found[i].version, where);
	}
	if (n > SHOW_ENGINES)
		say(out, 0, "", "and %zd more", n - SHOW_ENGINES);
}

static bool holds(const struct rp_listener *l, ssize_t n, uint32_t pid)
{
	while (n > 0)
		if (l[--n].pid == pid)
			return true;
	return false;
}

/* Described are the processes that listen and those with the engine inside. */
static int tree(FILE *out, uint32_t given, uint32_t pid, struct sight *see)
{
	const struct rp_engine *e;
	struct rp_listener *l = NULL;
	uint32_t *pids, chosen;
	size_t i, shown = 0;
	struct rp_proc p;
	ssize_t n, n_l;
	int err, status = 0, denied = 0;

	fputc('\n', out);
	if (given != pid)
		say(out, 0, "pid", "%" PRIu32 " is a part of the server below", given);
	n = rp_proc_tree(pid, &pids);
	if (n < 0) {
		say(out, 0, "pid", "%" PRIu32 ": %s", pid,
		    n == -ESRCH ? "no such process" : strerror(-n));
		return n == -ESRCH ? EXIT_NO_PROCESS : EXIT_DENIED;
	}
	say(out, 0, "pid", "%" PRIu32 "%s", pid, n > 1 ? " and its descendants:" : "");
	if (n > 1)
		say(out, 2, "processes", "%zd", n);
	n_l = rp_proc_listeners(pids, n, &l);
	if (n_l == -EACCES) {
		say(out, 2, "listens", "not permitted to look at its files; run as root");
		status = EXIT_DENIED;
	} else if (n_l <= 0) {
		say(out, 2, "listens", "no listening stream socket in this tree");
		status = EXIT_NO_PROCESS;
	} else {
		listeners(out, l, n_l);
	}
	e = rp_match_engine(pids, n, &chosen);
	for (i = 0; i < (size_t)n; i++) {
		err = rp_proc_read(pids[i], &p);
		if (err && err != -EACCES)
			continue;
		if (n_l > 0 ? holds(l, n_l, pids[i]) || (e->n_hooks && e->recognise(&p)) :
			      pids[i] == chosen) {
			if (shown++ < SHOW_PROCS)
				process(out, e, &p, see);
			if (err)
				denied = EXIT_DENIED;
		}
		rp_proc_free(&p);
	}
	if (shown > SHOW_PROCS)
		say(out, 2, "processes", "and %zu more of this engine", shown - SHOW_PROCS);
	free(pids);
	free(l);
	return status ? status : denied;
}

static bool by_messages(const struct rp_engine *e)
{
	for (size_t i = 0; i < e->n_hooks; i++)
		if (e->hooks[i].spec.read[0].kind == RP_READ_ZMQ)
			return true;
	return false;
}

/* The last line of one process tree: what a watch of it will give. */
static void verdict(FILE *out, uint32_t pid, int status, const struct sight *see)
{
	static const char sockets[] = "from its sockets only: no queue, prefill and decode times";
	const char *what = sockets;
	char why[96];

	if (status == EXIT_NO_PROCESS) {
		what = "nothing to watch, see above";
	} else if (status) {
		snprintf(why, sizeof(why), "may not be looked at%s",
			 geteuid() ? "; run as root" : "");
		what = why;
	} else if (!see->engine) {
		say(out, 0, "verdict", "pid %" PRIu32 ": no engine that is known; %s", pid,
		    sockets);
		return;
	} else if (see->missing & ~see->found) {
		if (see->found)
			what = "in part: what is missing is above";
		else if (by_messages(see->engine))
			what = "all of it, if its messages can be read from its sockets: it has no "
			       "function to hook";
	} else if (see->found) {
		what = "all of it: queue, prefill, decode, tokens, HTTP, RTT";
	}
	say(out, 0, "verdict", "pid %" PRIu32 ": %s%s%s", pid,
	    see->engine && !status ? see->engine->title : "", see->engine && !status ? ", " : "",
	    what);
}

int rp_doctor(const uint32_t *pids, size_t n, FILE *out)
{
	struct sight see[RP_MAX_PIDS] = { 0 };
	uint32_t top[RP_MAX_PIDS];
	int status[RP_MAX_PIDS], worst;
	struct lacks lacks = kernel(out);

	worst = lacks.required ? EXIT_DENIED : 0;
	for (size_t i = 0; i < n && i < RP_MAX_PIDS; i++) {
		top[i] = rp_find_top(pids[i]);
		status[i] = tree(out, pids[i], top[i], &see[i]);
		if (status[i] > worst)
			worst = status[i];
	}
	if (!n)
		engines(out);
	fputc('\n', out);
	if (lacks.required)
		say(out, 0, "verdict",
		    "nothing can be watched here: %u required feature%s missing%s", lacks.required,
		    lacks.required == 1 ? " is" : "s are", geteuid() ? "; run as root" : "");
	else if (!n)
		say(out, 0, "verdict", "ready to watch%s",
		    lacks.others ? ", without what is missing above" : "");
	for (size_t i = 0; i < n && i < RP_MAX_PIDS && !lacks.required; i++)
		verdict(out, top[i], status[i], &see[i]);
	return worst;
}
