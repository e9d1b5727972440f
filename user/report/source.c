// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "report/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define BUCKETS 16
#define SCHEME "s3://"

struct bucket {
	char url[128]; /* s3://NAME */
	struct rp_s3 *s3;
};

struct rp_source {
	const struct rp_s3_options *o;
	struct rp_reader *reader;
	char **names; /* of all, objects as s3://BUCKET/KEY */
	size_t n, cap;
	struct bucket bucket[BUCKETS];
	unsigned n_buckets;
	int err;		 /* of a listing */
	uint64_t memory, listed; /* bytes of names that the stores told */
};

/* ---- a signal ---- */

volatile sig_atomic_t rp_stopped;

static void on_signal(int sig)
{
	/* A signal just before read() or open() waits would be in vain: it comes again. */
	static const struct itimerval again = { { 0, 100000 }, { 0, 100000 } };
	int err = errno;

	if (sig != SIGALRM) {
		rp_stopped = 1;
		setitimer(ITIMER_REAL, &again, NULL);
	}
	errno = err;
}

void rp_source_on_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal }; /* no SA_RESTART */

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	sigaction(SIGALRM, &sa, NULL);
}

/* ---- names ---- */

static int add(struct rp_source *s, const char *name)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 64;
		char **more = realloc(s->names, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->names = more;
		s->cap = cap;
	}
	if (s->n == RP_READER_FILES)
		return -EFBIG;
	s->names[s->n] = strdup(name);
	if (!s->names[s->n])
		return -ENOMEM;
	s->n++;
	return 0;
}

/* The bucket of s3://BUCKET/KEY, and the key. */
static int bucket_of(struct rp_source *s, const char *url, struct bucket **b, const char **key,
		     char *err, size_t errlen)
{
	size_t n = strcspn(url + sizeof(SCHEME) - 1, "/") + sizeof(SCHEME) - 1;
	int e;

	*key = url[n] ? url + n + 1 : "";
	for (unsigned i = 0; i < s->n_buckets; i++) {
		*b = &s->bucket[i];
		if (strlen((*b)->url) == n && !memcmp((*b)->url, url, n))
			return 0;
	}
	if (s->n_buckets == BUCKETS || n >= sizeof((*b)->url)) {
		snprintf(err, errlen, "%.200s: more than %d buckets, or no bucket's name", url,
			 BUCKETS);
		return -E2BIG;
	}
	*b = &s->bucket[s->n_buckets];
	memcpy((*b)->url, url, n);
	(*b)->url[n] = 0;
	e = rp_s3_open((*b)->url, s->o, &(*b)->s3, err, errlen);
	if (e)
		return e;
	rp_s3_stop((*b)->s3, &rp_stopped);
	s->n_buckets++;
	return e;
}

struct listing {
	struct rp_source *s;
	const struct bucket *b;
};

static int on_object(void *ctx, const struct rp_s3_object *o)
{
	struct listing *l = ctx;
	char name[sizeof(l->b->url) + RP_S3_KEY_MAX + 2];

	if (rp_stopped)
		return l->s->err = -EINTR;
	if (!rp_reader_is_log(o->key))
		return 0;
	/* it is here, and in the reader */
	l->s->listed += 2 * (strlen(o->key) + sizeof(l->b->url));
	if (l->s->listed > rp_reader_names_max(l->s->memory))
		return l->s->err = -EFBIG;
	snprintf(name, sizeof(name), "%s/%s", l->b->url, o->key);
	l->s->err = add(l->s, name);
	return l->s->err;
}

static int list(struct rp_source *s, const char *url, char *err, size_t errlen)
{
	struct listing l = { .s = s };
	struct rp_s3_error e;
	struct bucket *b;
	const char *key;
	size_t before = s->n;
	int r = bucket_of(s, url, &b, &key, err, errlen);

	if (r)
		return r;
	l.b = b;
	r = rp_s3_list(b->s3, key, on_object, &l, &e);
	if (r == -ECANCELED && rp_stopped)
		s->err = -EINTR;
	if (s->err == -EFBIG)
		snprintf(err, errlen, "%s: more logs than there is room for their names: %zu", url,
			 s->n);
	else if (s->err)
		snprintf(err, errlen, "%s: %s", url, strerror(-s->err));
	else if (r)
		snprintf(err, errlen, "%s", e.line);
	else if (s->n == before)
		snprintf(err, errlen,
			 "%s: no request logs there (*.jsonl, *.jsonl.gz, *.jsonl.zst)", url);
	return s->err ? s->err : r ? r : s->n == before ? -ENOENT : 0;
}

/* A file that is gone when it is closed. */
static int nameless(void)
{
	const char *dir = getenv("TMPDIR");
	char path[4096];
	int fd;

	if (!dir || !*dir)
		dir = "/tmp";
	fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	/* not every file system has them */
	if ((size_t)snprintf(path, sizeof(path), "%s/reqprobe.XXXXXX", dir) >= sizeof(path))
		return -ENAMETOOLONG;
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	unlink(path);
	return fd;
}

static int fetch(void *ctx, const char *name, char *err, size_t errlen)
{
	struct rp_source *s = ctx;
	struct rp_s3_error e;
	struct bucket *b;
	const char *key;
	int fd, r = bucket_of(s, name, &b, &key, err, errlen);

	if (r)
		return r;
	fd = nameless();
	if (fd < 0) {
		snprintf(err, errlen, "no file for it in TMPDIR: %s", strerror(-fd));
		return fd;
	}
	r = rp_s3_get(b->s3, key, fd, RP_S3_OBJECT_MAX, NULL, &e);
	if (!r && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	if (!r)
		return fd;
	snprintf(err, errlen, "%s", e.line);
	close(fd);
	return r < 0 ? r : -EIO;
}

int rp_source_open(const struct rp_s3_options *o, const char *const *paths, size_t n,
		   uint64_t memory, struct rp_source **out, char *err, size_t errlen)
{
	struct rp_reader_options ro = { .fetch = fetch, .memory = memory, .stop = &rp_stopped };
	struct rp_source *s = calloc(1, sizeof(*s));
	int e = s ? 0 : -ENOMEM;

	*out = NULL;
	if (s) {
		s->o = o;
		s->memory = memory;
		ro.ctx = s;
	}
	for (size_t i = 0; i < n && !e; i++)
		e = strncmp(paths[i], SCHEME, sizeof(SCHEME) - 1) != 0 ?
			    add(s, paths[i]) :
			    list(s, paths[i], err, errlen);
	if (e == -ENOMEM)
		snprintf(err, errlen, "no memory");
	if (!e)
		e = rp_reader_open((const char *const *)s->names, s->n, &ro, &s->reader, err,
				   errlen);
	if (e) {
		rp_source_close(s);
		return e;
	}
	*out = s;
	return 0;
}

struct rp_reader *rp_source_reader(struct rp_source *s)
{
	return s->reader;
}

void rp_source_close(struct rp_source *s)
{
	if (!s)
		return;
	rp_reader_close(s->reader);
	for (unsigned i = 0; i < s->n_buckets; i++)
		rp_s3_close(s->bucket[i].s3);
	for (size_t i = 0; i < s->n; i++)
		free(s->names[i]);
	free(s->names);
	free(s);
}
