// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * proc.c - see proc.h. /proc is read as other people's data: every length has
 * a limit, and a process may be gone between two reads.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "engine/proc.h"

#define CMDLINE_MAX (256 * 1024)
#define STAT_MAX 4096
#define STATUS_MAX 16384
#define OBJECTS_MAX 4096
#define MAPS_LINES_MAX (1 << 20) /* vm.max_map_count is 65530 by default */
#define FDS_MAX (1 << 20)
#define NET_LINES_MAX (4 << 20)
#define LISTENERS_MAX 65536
#define SCAN_MAX (1 << 22) /* PID_MAX_LIMIT */

/* Gone and denied have several errnos in /proc. */
static int proc_errno(int err)
{
	switch (err) {
	case ENOENT:
	case ESRCH:
		return -ESRCH;
	case EPERM:
	case EACCES:
		return -EACCES;
	case ENOMEM:
		return -ENOMEM;
	default:
		return -err;
	}
}

static int open_proc(uint32_t pid, const char *name, int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/%s", pid, name);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? proc_errno(errno) : fd;
}

/* At most max bytes; NUL-terminated; *out owned by the caller. */
static ssize_t read_proc(uint32_t pid, const char *name, size_t max, char **out)
{
	size_t len = 0, cap = 4096;
	char *buf, *bigger;
	ssize_t r;
	int fd;

	*out = NULL;
	fd = open_proc(pid, name, O_RDONLY);
	if (fd < 0)
		return fd;
	buf = malloc(cap + 1);
	if (!buf) {
		close(fd);
		return -ENOMEM;
	}
	for (;;) {
		r = read(fd, buf + len, cap - len);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0) {
			r = proc_errno(errno);
			break;
		}
		len += r;
		if (!r || len >= max)
			break;
		if (len < cap)
			continue;
		bigger = realloc(buf, cap * 2 + 1);
		if (!bigger) {
			r = -ENOMEM;
			break;
		}
		buf = bigger;
		cap *= 2;
	}
	close(fd);
	if (r < 0) {
		free(buf);
		return r;
	}
	if (len > max)
		len = max;
	buf[len] = '\0';
	*out = buf;
	return len;
}

struct stat_line {
	char comm[16];
	char state;
	uint32_t ppid;
	long threads;
	uint64_t start_time;
};

/* comm may hold anything, ')' and newlines too: fields count from its last ')'. */
static int read_stat(uint32_t pid, struct stat_line *s)
{
	char buf[STAT_MAX], *open, *close_, *p, *save = NULL, *tok;
	ssize_t r;
	size_t n, len = 0;
	int fd, field;

	memset(s, 0, sizeof(*s));
	fd = open_proc(pid, "stat", O_RDONLY);
	if (fd < 0)
		return fd;
	while (len < sizeof(buf) - 1) {
		r = read(fd, buf + len, sizeof(buf) - 1 - len);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0) {
			r = proc_errno(errno);
			close(fd);
			return r;
		}
		if (!r)
			break;
		len += r;
	}
	close(fd);
	buf[len] = '\0';
	open = strchr(buf, '(');
	close_ = strrchr(buf, ')');
	if (!open || !close_ || close_ < open || !close_[1])
		return -ESRCH;
	n = close_ - open - 1;
	if (n >= sizeof(s->comm))
		n = sizeof(s->comm) - 1;
	memcpy(s->comm, open + 1, n);
	p = close_ + 2;
	for (field = 3; (tok = strtok_r(p, " \n", &save)); field++, p = NULL) {
		if (field == 3)
			s->state = tok[0];
		else if (field == 4)
			s->ppid = strtoul(tok, NULL, 10);
		else if (field == 20)
			s->threads = strtol(tok, NULL, 10);
		else if (field == 22) {
			s->start_time = strtoull(tok, NULL, 10);
			return 0;
		}
	}
	return -ESRCH;
}

/* A group whose leader has exited shows as a zombie while its threads run. */
static bool stat_alive(const struct stat_line *s)
{
	if (s->state == 'X' || s->state == 'x')
		return false;
	return s->state != 'Z' || s->threads > 1;
}

static bool status_value(const char *status, const char *key, unsigned long *v)
{
	const char *p = status;
	size_t n = strlen(key);

	while (p) {
		if (!strncmp(p, key, n) && p[n] == ':') {
			*v = strtoul(p + n + 1, NULL, 10);
			return true;
		}
		p = strchr(p, '\n');
		if (p)
			p++;
	}
	return false;
}

/* 0 when pid is a thread group; -ESRCH when it is another group's thread. */
static int read_status(uint32_t pid, int *seccomp)
{
	unsigned long v;
	char *status;
	ssize_t r;

	r = read_proc(pid, "status", STATUS_MAX, &status);
	if (r < 0)
		return r;
	if (seccomp)
		*seccomp = status_value(status, "Seccomp", &v) ? (int)v : -1;
	r = status_value(status, "Tgid", &v) && v == pid ? 0 : -ESRCH;
	free(status);
	return r;
}

int rp_proc_alive(uint32_t pid)
{
	struct stat_line s;
	int err;

	if (!pid || pid > INT_MAX)
		return -ESRCH;
	err = read_stat(pid, &s);
	if (err)
		return err == -EACCES ? -EACCES : -ESRCH;
	return stat_alive(&s) ? read_status(pid, NULL) : -ESRCH;
}

/* ---- mapped files ---- */

/* The kernel escapes only the newline in maps, as \012, and not the backslash: a
 * file may really be called that. */
static void unescape(char *s)
{
	char *w = s;

	while (*s) {
		if (!strncmp(s, "\\012", 4)) {
			*w++ = '\n';
			s += 4;
		} else {
			*w++ = *s++;
		}
	}
	*w = '\0';
}

static const char deleted_suffix[] = " (deleted)";

/* Is this text, as it stands, the name of that inode? */
static bool names_inode(uint32_t pid, const char *path, ino_t ino)
{
	struct stat st;
	char *full;
	bool yes;

	if (asprintf(&full, "/proc/%" PRIu32 "/root%s", pid, path) < 0)
		return false;
	yes = !stat(full, &st) && st.st_ino == ino;
	free(full);
	return yes;
}

/* Remove the suffix the kernel adds, unless a file really has that name. */
static bool strip_deleted(uint32_t pid, char *path, ino_t ino)
{
	size_t len = strlen(path), n = sizeof(deleted_suffix) - 1;

	if (len <= n || strcmp(path + len - n, deleted_suffix) || names_inode(pid, path, ino))
		return false;
	path[len - n] = '\0';
	return true;
}

static bool hex_until(const char **p, char end, uint64_t *v)
{
	char *e;

	if (!isxdigit((unsigned char)**p))
		return false;
	errno = 0;
	*v = strtoull(*p, &e, 16);
	if (errno || *e != end)
		return false;
	*p = e + 1;
	return true;
}

/* 1: an executable file mapping; 0: something else or not understood. */
static int parse_maps_line(char *line, struct rp_object *o, char **path)
{
	const char *p = line;
	uint64_t major, minor, ino;
	char *e;
	bool exec;

	memset(o, 0, sizeof(*o));
	if (!hex_until(&p, '-', &o->start) || !hex_until(&p, ' ', &o->end))
		return 0;
	if (strnlen(p, 5) < 5 || p[4] != ' ')
		return 0;
	exec = p[2] == 'x';
	p += 5;
	if (!exec || !hex_until(&p, ' ', &o->pgoff) || !hex_until(&p, ':', &major) ||
	    !hex_until(&p, ' ', &minor) || !isdigit((unsigned char)*p))
		return 0;
	ino = strtoull(p, &e, 10);
	if (!ino)
		return 0;
	while (*e == ' ')
		e++;
	if (*e != '/')
		return 0;
	o->dev = makedev(major, minor);
	o->ino = ino;
	*path = e;
	return 1;
}

static int read_maps(struct rp_proc *p)
{
	struct rp_object o, *bigger;
	size_t cap = 0, line_cap = 0, lines = 0, i;
	char *line = NULL, *path;
	ssize_t len;
	FILE *f;
	int fd, err = 0;

	fd = open_proc(p->pid, "maps", O_RDONLY);
	if (fd < 0)
		return fd;
	f = fdopen(fd, "r");
	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	errno = 0;
	while ((len = getline(&line, &line_cap, f)) > 0) {
		if (++lines > MAPS_LINES_MAX || p->n_objects >= OBJECTS_MAX)
			break;
		if (line[len - 1] == '\n')
			line[len - 1] = '\0';
		if (!parse_maps_line(line, &o, &path))
			continue;
		for (i = 0; i < p->n_objects; i++)
			if (p->objects[i].ino == o.ino && p->objects[i].dev == o.dev)
				break;
		if (i < p->n_objects)
			continue;
		if (p->n_objects == cap) {
			cap = cap ? cap * 2 : 32;
			bigger = realloc(p->objects, cap * sizeof(*bigger));
			if (!bigger) {
				err = -ENOMEM;
				break;
			}
			p->objects = bigger;
		}
		o.path = strdup(path);
		if (!o.path) {
			err = -ENOMEM;
			break;
		}
		if (strstr(o.path, "\\012") && !names_inode(p->pid, o.path, o.ino))
			unescape(o.path);
		o.deleted = strip_deleted(p->pid, o.path, o.ino);
		snprintf(o.open_path, sizeof(o.open_path),
			 "/proc/%" PRIu32 "/map_files/%" PRIx64 "-%" PRIx64, p->pid, o.start,
			 o.end);
		p->objects[p->n_objects++] = o;
		errno = 0;
	}
	if (!err && len < 0 && errno)
		err = proc_errno(errno);
	free(line);
	fclose(f);
	return err;
}

static int read_exe(struct rp_proc *p)
{
	char link[32], buf[PATH_MAX + 1];
	struct stat st;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%" PRIu32 "/exe", p->pid);
	n = readlink(link, buf, sizeof(buf) - 1);
	if (n < 0) /* a path beyond a page has no link text: the maps still tell */
		return errno == EACCES || errno == EPERM ? -EACCES : 0;
	buf[n] = '\0';
	p->exe = strdup(buf);
	if (!p->exe)
		return -ENOMEM;
	strip_deleted(p->pid, p->exe, stat(link, &st) ? 0 : st.st_ino);
	return 0;
}

int rp_object_open(const struct rp_proc *p, const struct rp_object *o)
{
	struct stat st;
	char *full;
	int fd, err;

	fd = open(o->open_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		return fd;
	err = proc_errno(errno);
	/* map_files wants CAP_CHECKPOINT_RESTORE; by name is as good when it is
	 * the same inode. */
	if (o->deleted || asprintf(&full, "/proc/%" PRIu32 "/root%s", p->pid, o->path) < 0)
		return err;
	fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	free(full);
	if (fd < 0)
		return err;
	if (fstat(fd, &st) || st.st_ino != o->ino || !S_ISREG(st.st_mode)) {
		close(fd);
		return err;
	}
	return fd;
}

int rp_proc_open(uint32_t pid, const char *path, int flags)
{
	struct open_how how = { .flags = (unsigned int)flags | O_CLOEXEC | O_NONBLOCK,
				.resolve = RESOLVE_IN_ROOT };
	struct stat st;
	int root, fd;

	root = open_proc(pid, "root", O_PATH | O_DIRECTORY);
	if (root < 0)
		return root;
	fd = syscall(SYS_openat2, root, path, &how, sizeof(how));
	if (fd < 0)
		fd = -errno;
	close(root);
	if (fd >= 0 && (fstat(fd, &st) || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))) {
		close(fd);
		return -EACCES;
	}
	return fd;
}

int rp_proc_read(uint32_t pid, struct rp_proc *p)
{
	int err, denied = 0;
	struct stat_line s;
	ssize_t r;
	int fd;

	memset(p, 0, sizeof(*p));
	p->pid = pid;
	p->seccomp = -1;
	if (!pid || pid > INT_MAX)
		return -ESRCH;
	err = read_stat(pid, &s);
	if (err)
		return err;
	if (!stat_alive(&s))
		return -ESRCH;
	memcpy(p->comm, s.comm, sizeof(p->comm));
	p->ppid = s.ppid;
	p->start_time = s.start_time;
	err = read_status(pid, &p->seccomp);
	if (err)
		goto fail;
	r = read_proc(pid, "cmdline", CMDLINE_MAX, &p->cmdline);
	if (r < 0 && r != -EACCES) {
		err = r;
		goto fail;
	}
	p->cmdline_len = r < 0 ? 0 : r;
	err = read_exe(p);
	if (err == -EACCES)
		denied = err;
	else if (err)
		goto fail;
	err = read_maps(p);
	if (err == -EACCES)
		denied = err;
	else if (err)
		goto fail;
	fd = open_proc(pid, "exe", O_RDONLY | O_NONBLOCK);
	if (fd >= 0) {
		rp_elf_find_fd(fd, NULL, NULL, NULL, NULL, &p->is_go);
		close(fd);
	}
	/* The pid may have been reused while we read. */
	err = read_stat(pid, &s);
	if (err || !stat_alive(&s) || s.start_time != p->start_time) {
		err = -ESRCH;
		goto fail;
	}
	return denied;
fail:
	rp_proc_free(p);
	return err;
}

const char *rp_path_base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

bool rp_starts(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

const char *rp_proc_arg(const struct rp_proc *p, int n)
{
	size_t i = 0;

	while (n-- > 0) {
		while (i < p->cmdline_len && p->cmdline[i])
			i++;
		i++;
	}
	return i < p->cmdline_len ? p->cmdline + i : "";
}

/* What follows this name of an option in an argument; NULL: it is another. */
static const char *after_name(const char *arg, const char *name)
{
	for (; *name; arg++, name++)
		if (*arg != *name && !(*arg == '_' && *name == '-'))
			return NULL;
	return arg;
}

const char *rp_proc_option(const struct rp_proc *p, const char *const *names)
{
	const char *found = "", *end = p->cmdline + p->cmdline_len, *arg, *next, *rest;

	for (arg = p->cmdline; arg && arg < end; arg = next) {
		next = arg + strlen(arg) + 1;
		for (const char *const *n = names; *n; n++) {
			rest = after_name(arg, *n);
			if (rest && *rest == '=')
				found = rest + 1;
			else if (rest && !*rest)
				found = next < end ? next : "";
		}
	}
	return found;
}

bool rp_proc_given(const struct rp_proc *p, const char *const *names)
{
	const char *end = p->cmdline + p->cmdline_len;

	for (const char *arg = p->cmdline; arg && arg < end; arg += strlen(arg) + 1)
		for (const char *const *n = names; *n; n++) {
			size_t i = 0;

			while ((*n)[i] && (arg[i] == (*n)[i] || (arg[i] == '_' && (*n)[i] == '-')))
				i++;
			/* argparse takes the beginning of a name that no other has */
			if (i > strlen("--") && (!arg[i] || arg[i] == '=' || arg[i] == '.'))
				return true;
		}
	return false;
}

void rp_proc_free(struct rp_proc *p)
{
	size_t i;

	for (i = 0; i < p->n_objects; i++)
		free(p->objects[i].path);
	free(p->objects);
	free(p->cmdline);
	free(p->exe);
	memset(p, 0, sizeof(*p));
}

/* ---- process tree ---- */

struct pair {
	uint32_t pid, ppid;
};

static ssize_t scan_proc(struct pair **out)
{
	struct pair *v = NULL, *bigger;
	size_t n = 0, cap = 0;
	struct stat_line s;
	struct dirent *de;
	unsigned long pid;
	char *e;
	DIR *d;

	*out = NULL;
	d = opendir("/proc");
	if (!d)
		return -errno;
	while (n < SCAN_MAX && (de = readdir(d))) {
		if (!isdigit((unsigned char)de->d_name[0]))
			continue;
		pid = strtoul(de->d_name, &e, 10);
		if (*e || pid > INT_MAX || read_stat(pid, &s) || !stat_alive(&s))
			continue;
		if (n == cap) {
			cap = cap ? cap * 2 : 1024;
			bigger = realloc(v, cap * sizeof(*v));
			if (!bigger) {
				free(v);
				closedir(d);
				return -ENOMEM;
			}
			v = bigger;
		}
		v[n].pid = pid;
		v[n++].ppid = s.ppid;
	}
	closedir(d);
	*out = v;
	return n;
}

static int by_ppid(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	if (x->ppid != y->ppid)
		return x->ppid < y->ppid ? -1 : 1;
	return (x->pid > y->pid) - (x->pid < y->pid);
}

static bool has_pid(const uint32_t *v, size_t n, uint32_t pid)
{
	while (n)
		if (v[--n] == pid)
			return true;
	return false;
}

ssize_t rp_proc_tree(uint32_t pid, uint32_t **out)
{
	uint32_t *v;
	struct pair *all;
	size_t n = 0, i, before, lo, hi, mid;
	ssize_t total;
	int err, round;

	*out = NULL;
	err = rp_proc_alive(pid);
	if (err)
		return err;
	v = malloc(RP_TREE_MAX * sizeof(*v));
	if (!v)
		return -ENOMEM;
	v[n++] = pid;
	/* A fork during the scan shows in the next one; two equal ones settle it. */
	for (round = 0; round < 4; round++) {
		before = n;
		total = scan_proc(&all);
		if (total < 0 || !all) {
			free(v);
			return total < 0 ? total : -ESRCH;
		}
		qsort(all, total, sizeof(*all), by_ppid);
		for (i = 0; i < n; i++) {
			lo = 0;
			hi = total;
			while (lo < hi) {
				mid = lo + (hi - lo) / 2;
				if (all[mid].ppid < v[i])
					lo = mid + 1;
				else
					hi = mid;
			}
			for (; lo < (size_t)total && all[lo].ppid == v[i]; lo++)
				if (n < RP_TREE_MAX && !has_pid(v, n, all[lo].pid))
					v[n++] = all[lo].pid;
		}
		free(all);
		if (round && n == before)
			break;
	}
	*out = v;
	return n;
}

/* ---- listening sockets ---- */

struct lsock {
	uint64_t ino;
	struct rp_listener l;
	bool held;
};

struct lsocks {
	struct lsock *v;
	size_t n, cap;
};

static struct lsock *lsock_new(struct lsocks *s)
{
	struct lsock *bigger;
	size_t cap;

	if (s->n >= LISTENERS_MAX)
		return NULL;
	if (s->n == s->cap) {
		cap = s->cap ? s->cap * 2 : 32;
		bigger = realloc(s->v, cap * sizeof(*s->v));
		if (!bigger)
			return NULL;
		s->v = bigger;
		s->cap = cap;
	}
	memset(&s->v[s->n], 0, sizeof(*s->v));
	return &s->v[s->n++];
}

/* "sl: LOCAL:PORT REMOTE:PORT ST TXQ:RXQ TR:WHEN RETR UID TIMEOUT INODE ..." */
static void parse_tcp(char *line, int family, uint32_t netns, struct lsocks *s)
{
	size_t words = family == AF_INET ? 1 : 4, i;
	char *tok[10], *save = NULL, *p = line, *e;
	uint32_t w[4];
	struct lsock *k;
	char hex[9];

	for (i = 0; i < 10; i++, p = NULL) {
		tok[i] = strtok_r(p, " \n", &save);
		if (!tok[i])
			return;
		if (i == 3 && strcmp(tok[3], "0A"))
			return;
	}
	if (strlen(tok[1]) < words * 8 + 2 || tok[1][words * 8] != ':')
		return;
	for (i = 0; i < words; i++) {
		memcpy(hex, tok[1] + i * 8, 8);
		hex[8] = '\0';
		w[i] = strtoul(hex, &e, 16); /* printed as the host reads the word */
		if (*e)
			return;
	}
	k = lsock_new(s);
	if (!k)
		return;
	k->l.family = family;
	k->l.netns = netns;
	k->l.port = strtoul(tok[1] + words * 8 + 1, NULL, 16);
	memcpy(k->l.addr, w, words * 4);
	k->ino = strtoull(tok[9], NULL, 10);
}

/* "NUM: REFS PROTOCOL FLAGS TYPE ST INODE PATH", NUM a hashed pointer. */
static void parse_unix(char *line, uint32_t netns, struct lsocks *s)
{
	unsigned long flags, type;
	struct lsock *k;
	char *p = line, *tok[7];
	size_t i, n;

	for (i = 0; i < 7; i++) {
		while (*p == ' ')
			p++;
		tok[i] = p;
		while (*p && *p != ' ' && *p != '\n')
			p++;
		if (p == tok[i])
			return;
		if (*p)
			*p++ = '\0';
	}
	flags = strtoul(tok[3], NULL, 16);
	type = strtoul(tok[4], NULL, 16);
	if (flags != 0x10000 || type != SOCK_STREAM)
		return;
	k = lsock_new(s);
	if (!k)
		return;
	k->l.family = AF_UNIX;
	k->l.netns = netns;
	k->ino = strtoull(tok[6], NULL, 10);
	n = strcspn(p, "\n");
	if (n >= sizeof(k->l.path))
		n = sizeof(k->l.path) - 1;
	memcpy(k->l.path, p, n);
}

static void read_net(uint32_t pid, const char *name, int family, uint32_t netns, struct lsocks *s)
{
	size_t cap = 0, lines = 0;
	char *line = NULL;
	FILE *f;
	int fd;

	fd = open_proc(pid, name, O_RDONLY);
	if (fd < 0)
		return;
	f = fdopen(fd, "r");
	if (!f) {
		close(fd);
		return;
	}
	while (getline(&line, &cap, f) > 0) {
		if (!lines++)
			continue; /* titles */
		if (lines > NET_LINES_MAX)
			break;
		if (family == AF_UNIX)
			parse_unix(line, netns, s);
		else
			parse_tcp(line, family, netns, s);
	}
	free(line);
	fclose(f);
}

static int by_ino(const void *a, const void *b)
{
	const struct lsock *x = a, *y = b;

	return (x->ino > y->ino) - (x->ino < y->ino);
}

static struct lsock *find_ino(struct lsocks *s, uint64_t ino)
{
	struct lsock key = { .ino = ino };

	return s->n ? bsearch(&key, s->v, s->n, sizeof(*s->v), by_ino) : NULL;
}

/* Which of the sockets does this process hold? -EACCES when it may not be known. */
static int scan_fds(uint32_t pid, struct lsocks *s)
{
	char path[32], link[64], *e;
	struct dirent *de;
	struct lsock *k;
	size_t seen = 0;
	ssize_t n;
	uint64_t ino;
	int err = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/fd", pid);
	d = opendir(path);
	if (!d)
		return proc_errno(errno);
	while ((de = readdir(d)) && seen++ < FDS_MAX) {
		if (!isdigit((unsigned char)de->d_name[0]))
			continue;
		n = readlinkat(dirfd(d), de->d_name, link, sizeof(link) - 1);
		/* CAP_DAC_READ_SEARCH opens the directory, CAP_SYS_PTRACE the links */
		if (n < 0 && proc_errno(errno) == -EACCES)
			err = -EACCES;
		if (n <= 0)
			continue;
		link[n] = '\0';
		if (strncmp(link, "socket:[", 8))
			continue;
		ino = strtoull(link + 8, &e, 10);
		if (*e != ']')
			continue;
		k = find_ino(s, ino);
		if (k && !k->held) {
			k->held = true;
			k->l.pid = pid;
		}
	}
	closedir(d);
	return err;
}

ssize_t rp_proc_listeners(const uint32_t *pids, size_t n, struct rp_listener **out)
{
	struct lsocks s = { 0 };
	uint32_t *seen, netns;
	size_t n_seen = 0, i, held = 0, alive = 0;
	char path[32];
	struct stat st;
	int err, last = -ESRCH;

	*out = NULL;
	if (n > RP_TREE_MAX)
		n = RP_TREE_MAX;
	seen = malloc((n ? n : 1) * sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/proc/%" PRIu32 "/ns/net", pids[i]);
		if (stat(path, &st)) {
			last = proc_errno(errno);
			continue;
		}
		netns = st.st_ino;
		if (has_pid(seen, n_seen, netns))
			continue;
		seen[n_seen++] = netns;
		read_net(pids[i], "net/tcp", AF_INET, netns, &s);
		read_net(pids[i], "net/tcp6", AF_INET6, netns, &s);
		read_net(pids[i], "net/unix", AF_UNIX, netns, &s);
	}
	free(seen);
	if (s.n)
		qsort(s.v, s.n, sizeof(*s.v), by_ino);
	for (i = 0; i < n; i++) {
		err = scan_fds(pids[i], &s);
		if (!err)
			alive++;
		else if (last != -EACCES)
			last = err;
	}
	for (i = 0; i < s.n; i++)
		held += s.v[i].held;
	if (!held && n && (!alive || last == -EACCES)) {
		free(s.v);
		return last;
	}
	*out = calloc(held ? held : 1, sizeof(**out));
	if (!*out) {
		free(s.v);
		return -ENOMEM;
	}
	for (i = 0, held = 0; i < s.n; i++)
		if (s.v[i].held)
			(*out)[held++] = s.v[i].l;
	free(s.v);
	return held;
}

size_t rp_proc_io_urings(uint32_t pid)
{
	char path[32], link[64];
	size_t n = 0, seen = 0;
	struct dirent *de;
	ssize_t len;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/fd", pid);
	d = opendir(path);
	if (!d)
		return 0;
	while ((de = readdir(d)) && seen++ < FDS_MAX) {
		len = readlinkat(dirfd(d), de->d_name, link, sizeof(link) - 1);
		if (len <= 0)
			continue;
		link[len] = '\0';
		n += !strcmp(link, "anon_inode:[io_uring]");
	}
	closedir(d);
	return n;
}
