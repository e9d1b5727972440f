// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* duckdb.c - DuckDB as a child: its command line tool, or its Python module. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/compact.h"
#include "report/source.h"

#define HOW                                                                                   \
	"compact needs DuckDB: python3 -m venv ~/duckdb && ~/duckdb/bin/pip install duckdb, " \
	"then --duckdb ~/duckdb/bin/python; or its command line tool, in PATH or by --duckdb"

/* Nothing from the directory we are in may pass for the module. */
#define PY_HEAD "import sys; sys.path[:] = [p for p in sys.path if p]; import duckdb; "
static const char py_version[] = PY_HEAD "print(duckdb.__version__)";
static const char py_run[] = PY_HEAD
	"r = duckdb.connect().execute(sys.argv[1]).fetchall(); print('%d,%d' % r[0])";

static bool is_python(const char *path)
{
	const char *base = strrchr(path, '/');

	base = base ? base + 1 : path;
	return !strncmp(base, "python", 6) || !strncmp(base, "pypy", 4);
}

static bool in_path(const char *name, char *to, size_t size)
{
	const char *path = getenv("PATH");

	for (const char *p = path ? path : "/usr/bin:/bin"; *p;) {
		size_t n = strcspn(p, ":");

		if (n && (size_t)snprintf(to, size, "%.*s/%s", (int)n, p, name) < size &&
		    access(to, X_OK) == 0)
			return true;
		p += n;
		p += *p == ':';
	}
	return false;
}

/* In the child: descriptors as DuckDB gets them, no signal blocked or ignored. */
static void become(char *const argv[], int in, int out, int err)
{
	sigset_t none;

	/* away from the numbers that are given out below */
	in = fcntl(in, F_DUPFD_CLOEXEC, 10);
	out = fcntl(out, F_DUPFD_CLOEXEC, 10);
	err = fcntl(err, F_DUPFD_CLOEXEC, 10);
	if (in < 0 || out < 0 || err < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
		_exit(127);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	/* a terminal's Ctrl-C is for us: we end it */
	setpgid(0, 0);
	execv(argv[0], argv);
	_exit(127);
}

static int run(struct rp_duckdb *d, char *const argv[])
{
	int in = open("/dev/null", O_RDONLY | O_CLOEXEC), err = 0;

	d->pid = 0;
	d->out = memfd_create("duckdb-out", MFD_CLOEXEC);
	d->err = memfd_create("duckdb-err", MFD_CLOEXEC);
	if (in < 0 || d->out < 0 || d->err < 0)
		err = -errno;
	if (!err) {
		d->pid = fork();
		if (d->pid < 0)
			err = -errno;
		else if (!d->pid)
			become(argv, in, d->out, d->err);
	}
	if (in >= 0)
		close(in);
	if (err) {
		d->pid = 0;
		rp_duckdb_stop(d);
	}
	return err;
}

/* The first and the last line of what was said, the interesting ones. */
static void said(int fd, char *to, size_t size)
{
	char text[4096], *p, *line = text, *last = NULL;
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = 0;
	for (char *save = NULL, *l = strtok_r(text, "\n", &save); l;
	     l = strtok_r(NULL, "\n", &save))
		if (strstr(l, "Error") || strstr(l, "error")) {
			last = l;
			break;
		} else if (*l) {
			last = l;
		}
	line = last ? last : line;
	for (p = line; *p; p++)
		if ((unsigned char)*p < ' ')
			*p = ' ';
	snprintf(to, size, "%.300s", line);
}

static void close_all(struct rp_duckdb *d)
{
	if (d->out >= 0)
		close(d->out);
	if (d->err >= 0)
		close(d->err);
	d->out = d->err = -1;
}

/* Its exit status; -1: it ended by a signal. */
static int reap(struct rp_duckdb *d, const volatile sig_atomic_t *stop)
{
	int st = 0;
	pid_t p;

	do
		p = waitpid(d->pid, &st, 0);
	while (p < 0 && errno == EINTR && !(stop && *stop));
	if (p < 0 && errno == EINTR)
		return -1; /* it is still there, for rp_duckdb_stop() */
	d->pid = 0;
	return p > 0 && WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

static bool answers(struct rp_duckdb *d)
{
	char *py[] = { d->path, "-c", (char *)py_version, NULL };
	char *tool[] = { d->path, "-version", NULL };
	char text[256], *p;
	ssize_t n;
	bool ok;

	d->python = is_python(d->path);
	if (run(d, d->python ? py : tool))
		return false;
	ok = reap(d, &rp_stopped) == 0;
	if (d->pid > 0) { /* stopped, and it says nothing */
		rp_duckdb_stop(d);
		return false;
	}
	n = pread(d->out, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = 0;
	close_all(d);
	p = text + strspn(text, "v ");
	p[strcspn(p, " \n")] = 0;
	snprintf(d->version, sizeof(d->version), "%.60s", p);
	return ok && *p >= '1' && *p <= '9';
}

int rp_duckdb_find(const char *given, struct rp_duckdb *d, char *err, size_t errlen)
{
	const char *env = getenv("REQPROBE_DUCKDB");

	*d = (struct rp_duckdb){ .out = -1, .err = -1 };
	if (!given && env && *env)
		given = env;
	if (given) {
		if (strchr(given, '/'))
			snprintf(d->path, sizeof(d->path), "%s", given);
		else if (!in_path(given, d->path, sizeof(d->path)))
			*d->path = 0;
		if (*d->path && answers(d))
			return 0;
		snprintf(
			err, errlen,
			"%.200s is neither DuckDB's command line tool (1.0 or later) nor a Python with its module. " HOW,
			given);
		return -ENOENT;
	}
	if (in_path("duckdb", d->path, sizeof(d->path)) && answers(d))
		return 0;
	if (in_path("python3", d->path, sizeof(d->path)) && answers(d))
		return 0;
	snprintf(err, errlen, HOW);
	return -ENOENT;
}

int rp_duckdb_start(struct rp_duckdb *d, const char *sql, char *err, size_t errlen)
{
	char *py[] = { d->path, "-c", (char *)py_run, (char *)sql, NULL };
	/* nobody's settings, stop at the first error */
	char *tool[] = { d->path, "-init",     "/dev/null", "-batch",	 "-bail",
			 "-csv",  "-noheader", "-c",	    (char *)sql, NULL };
	int e = run(d, d->python ? py : tool);

	if (e)
		snprintf(err, errlen, "can't run %.200s: %s", d->path, strerror(-e));
	return e;
}

int rp_duckdb_finish(struct rp_duckdb *d, const volatile sig_atomic_t *stop, uint64_t result[2],
		     char *err, size_t errlen)
{
	char text[4096], *line, *end;
	unsigned long long a = 0, b = 0;
	ssize_t n;
	int st;

	st = reap(d, stop);
	if (d->pid)
		return -EINTR;
	n = pread(d->out, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = 0;
	/* the last line, should it have told something before */
	for (n = (ssize_t)strlen(text); n && text[n - 1] == '\n'; n--)
		text[n - 1] = 0;
	line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	a = strtoull(line, &end, 10);
	if (!st && end > line && *end == ',') {
		line = end + 1;
		b = strtoull(line, &end, 10);
		st = end > line ? 0 : -1;
	} else if (!st) {
		st = -1;
	}
	result[0] = a;
	result[1] = b;
	if (st) {
		char why[320];

		said(d->err, why, sizeof(why));
		snprintf(err, errlen, "DuckDB %s: %s", d->version,
			 *why	  ? why :
			 st == -1 ? "ended without a result" :
				    "failed and did not say why");
	}
	close_all(d);
	return st ? -EIO : 0;
}

void rp_duckdb_stop(struct rp_duckdb *d)
{
	if (d->pid > 0) {
		kill(d->pid, SIGKILL);
		reap(d, NULL);
	}
	close_all(d);
}
