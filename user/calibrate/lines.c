// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* lines.c - JSON lines in, one at a time; files out, whole or not at all. */
#include "calibrate/calibrate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

int rp_lines_open(struct rp_lines *l, const char *path)
{
	struct stat st;
	int fd, e;

	*l = (struct rp_lines){ .path = path };
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		close(fd);
		fd = -1;
		errno = EISDIR;
	}
	if (fd >= 0)
		l->f = fdopen(fd, "r");
	if (l->f)
		return 0;
	e = errno;
	if (fd >= 0)
		close(fd);
	rp_say("can't read %s: %s", path, strerror(e));
	return -e;
}

/* A line without its end into buf, its length into *n, cut at the limit. */
static bool next_line(struct rp_lines *l, size_t *n, bool *cut)
{
	size_t got = 0;
	int c = EOF;

	*cut = false;
	while ((c = getc_unlocked(l->f)) != EOF && c != '\n') {
		if (got == RP_CAL_MAX_LINE) {
			*cut = true;
			continue;
		}
		if (got == l->cap) {
			size_t cap = l->cap ? l->cap * 2 : 16384;
			char *p = realloc(l->buf, cap);

			if (!p) {
				l->error = -ENOMEM;
				return false;
			}
			l->buf = p;
			l->cap = cap;
		}
		l->buf[got++] = (char)c;
	}
	if (ferror(l->f)) {
		l->error = -EIO;
		return false;
	}
	*n = got;
	return c != EOF || got;
}

json_t *rp_lines_next(struct rp_lines *l)
{
	json_error_t e;
	json_t *v;
	size_t n;
	bool cut;

	while (!l->error && next_line(l, &n, &cut)) {
		l->n++;
		while (n && (l->buf[n - 1] == '\r' || l->buf[n - 1] == ' '))
			n--;
		if (!n)
			continue;
		v = cut ? NULL : json_loadb(l->buf, n, JSON_ALLOW_NUL, &e);
		/* an integer of no interest beyond 64 bits must not cost the line */
		if (!v && !cut && json_error_code(&e) == json_error_numeric_overflow)
			v = json_loadb(l->buf, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &e);
		if (json_is_object(v))
			return v;
		json_decref(v);
		if (!l->broken++)
			l->first_broken = l->n;
	}
	return NULL;
}

int rp_lines_close(struct rp_lines *l)
{
	if (l->error)
		rp_say("can't read %s: %s", l->path, strerror(-l->error));
	else if (l->broken)
		rp_say("%s: %llu of %llu lines are no JSON objects and were left out (the first is line %llu)",
		       l->path, (unsigned long long)l->broken, (unsigned long long)l->n,
		       (unsigned long long)l->first_broken);
	if (l->f)
		fclose(l->f);
	free(l->buf);
	l->f = NULL;
	l->buf = NULL;
	return l->error;
}

int rp_out_open(struct rp_out *o, const char *path)
{
	struct stat st;
	const char *to = path;
	int fd, e;

	*o = (struct rp_out){ .path = strdup(path) };
	if (!o->path)
		goto nomem;
	if (stat(path, &st) < 0 || S_ISREG(st.st_mode)) {
		if (asprintf(&o->tmp, "%s.tmp.%d", path, (int)getpid()) < 0) {
			o->tmp = NULL;
			goto nomem;
		}
		to = o->tmp;
	}
	fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0640);
	if (fd >= 0)
		o->f = fdopen(fd, "w");
	if (o->f)
		return 0;
	e = errno;
	if (fd >= 0)
		close(fd);
	rp_say("can't write %s: %s", path, strerror(e));
	goto fail;
nomem:
	e = ENOMEM;
	rp_say("no memory for %s", path);
fail:
	free(o->tmp);
	free(o->path);
	*o = (struct rp_out){ 0 };
	return -e;
}

int rp_out_flush(struct rp_out *o)
{
	if (o->b.oom)
		o->error = -ENOMEM;
	else if (!o->error && o->b.n && fwrite(o->b.p, 1, o->b.n, o->f) != o->b.n)
		o->error = -errno;
	o->b.n = 0;
	return o->error;
}

int rp_out_close(struct rp_out *o, int err)
{
	int e = o->error;

	if (!o->f)
		return 0;
	if (!err)
		e = rp_out_flush(o);
	if (fclose(o->f) && !e)
		e = -errno;
	if (!err && !e && o->tmp && rename(o->tmp, o->path))
		e = -errno;
	if (e)
		rp_say("can't write %s: %s", o->path, strerror(-e));
	if ((err || e) && o->tmp)
		unlink(o->tmp);
	free(o->b.p);
	free(o->tmp);
	free(o->path);
	*o = (struct rp_out){ 0 };
	return e;
}
