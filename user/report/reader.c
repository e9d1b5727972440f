// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "report/reader.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "log/log.h"
#include "run.h"

#define IN_SIZE (256u << 10)
#define BUF_SIZE (1u << 20)
#define WINDOW_LOG_MIN 23 /* 8 MiB, what a decoder should take (RFC 8878) */
#define WINDOW_LOG_MAX 27 /* 128 MiB: what the zstd tool itself takes */

enum kind { PLAIN, GZIP, ZSTD };

struct rp_reader {
	char **files;
	size_t n, cap, at; /* at: the one to be opened next */
	struct rp_reader_options o;
	uint64_t names; /* bytes of them */
	/* directories that were read: a set, at most half full */
	struct place {
		dev_t dev;
		ino_t ino;
		bool used;
	} * dirs;
	size_t n_dirs, cap_dirs;
	struct rp_reader_stats stats;
	/* the open file */
	int fd; /* -1: none */
	enum kind kind;
	unsigned char *in;
	size_t in_at, in_n;
	bool in_eof;
	bool ended; /* a compressed stream is over; another may follow */
	bool full;  /* the decoder may hold more than there was room for */
	z_stream z;
	ZSTD_DCtx *zd;
	/* text */
	char *buf;
	size_t cap_buf, pos, len; /* lines from pos, text up to len; room for one byte more */
	bool skipping;		  /* inside a line that is too long */
	bool eof;
};

/* ---- which files ---- */

/* What malloc() and the list have of each. */
#define NAME_COST 32

uint64_t rp_reader_names_max(uint64_t memory)
{
	return memory ? memory / 8 : UINT64_MAX;
}

static bool stopped(const struct rp_reader *r)
{
	return r->o.stop && *r->o.stop;
}

/* *held: bytes of names beside those of the list; -EFBIG: too many. */
static char *keep(struct rp_reader *r, const char *name, uint64_t held, int *err)
{
	char *copy = NULL;

	if (r->names + held + strlen(name) + NAME_COST > rp_reader_names_max(r->o.memory))
		*err = -EFBIG;
	else
		copy = strdup(name);
	if (!copy && !*err)
		*err = -ENOMEM;
	return copy;
}

static int add(struct rp_reader *r, const char *path)
{
	char **more, *copy;
	int err = 0;

	if (r->n == RP_READER_FILES)
		return -EFBIG;
	if (r->n == r->cap) {
		r->cap = r->cap ? 2 * r->cap : 64;
		more = realloc(r->files, r->cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		r->files = more;
	}
	copy = keep(r, path, 0, &err);
	if (!copy)
		return err;
	r->names += strlen(copy) + NAME_COST;
	r->files[r->n++] = copy;
	return 0;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n > k && !strcmp(s + n - k, end);
}

bool rp_reader_is_log(const char *name)
{
	const char *base = strrchr(name, '/');

	base = base ? base + 1 : name;
	if (*base == '.')
		return false;
	return ends_with(name, ".jsonl") || ends_with(name, ".jsonl.gz") ||
	       ends_with(name, ".jsonl.zst");
}

/* 1: it was there before, by a link. */
static int note_dir(struct rp_reader *r, const struct stat *st)
{
	size_t at;

	if (2 * r->n_dirs >= r->cap_dirs) {
		size_t cap = r->cap_dirs ? 2 * r->cap_dirs : 64, n = r->cap_dirs;
		struct place *old = r->dirs;

		r->dirs = calloc(cap, sizeof(*r->dirs));
		if (!r->dirs) {
			r->dirs = old;
			return -ENOMEM;
		}
		r->cap_dirs = cap;
		r->n_dirs = 0;
		for (size_t i = 0; i < n; i++)
			if (old[i].used)
				note_dir(r, &(struct stat){ .st_dev = old[i].dev,
							    .st_ino = old[i].ino });
		r->names += (cap - n) * sizeof(*old);
		free(old);
	}
	for (at = (st->st_ino * 0x9e3779b97f4a7c15ULL >> 32) & (r->cap_dirs - 1); r->dirs[at].used;
	     at = (at + 1) & (r->cap_dirs - 1))
		if (r->dirs[at].dev == st->st_dev && r->dirs[at].ino == st->st_ino)
			return 1;
	r->dirs[at] = (struct place){ st->st_dev, st->st_ino, true };
	r->n_dirs++;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcoll(*(char *const *)a, *(char *const *)b);
}

struct listing {
	char **name;
	size_t n, cap;
	uint64_t bytes;
};

static int list_dir(struct rp_reader *r, const char *dir, uint64_t held, struct listing *l)
{
	DIR *d = opendir(dir);
	char name[RP_LOG_NAME_MAX];
	struct dirent *e;
	int err = 0;

	if (!d)
		return -errno;
	while (!err && !stopped(r) && (errno = 0, e = readdir(d))) {
		if (*e->d_name == '.') {
			r->stats.unfinished += rp_log_name_partial(e->d_name, name);
			continue;
		}
		if (l->n == l->cap) {
			size_t cap = l->cap ? 2 * l->cap : 64;
			char **more = realloc(l->name, cap * sizeof(*more));

			if (!more) {
				err = -ENOMEM;
				break;
			}
			l->name = more;
			l->cap = cap;
		}
		l->name[l->n] = keep(r, e->d_name, held + l->bytes, &err);
		if (l->name[l->n]) {
			l->bytes += strlen(e->d_name) + NAME_COST;
			l->n++;
		}
	}
	if (!err && errno && !stopped(r))
		err = -errno;
	closedir(d);
	if (l->n)
		qsort(l->name, l->n, sizeof(*l->name), by_name);
	return err ? err : stopped(r) ? -EINTR : 0;
}

static int add_dir(struct rp_reader *r, const char *dir, const struct stat *st, unsigned depth,
		   uint64_t held)
{
	struct listing l = { 0 };
	int err = note_dir(r, st);

	if (err)
		return err < 0 ? err : 0;
	err = list_dir(r, dir, held, &l);
	for (size_t i = 0; i < l.n; i++) {
		char *path = NULL;
		struct stat is;

		if (!err && stopped(r))
			err = -EINTR;
		if (!err && asprintf(&path, "%s/%s", dir, l.name[i]) < 0) {
			path = NULL;
			err = -ENOMEM;
		}
		if (!err && stat(path, &is) == 0) {
			if (S_ISREG(is.st_mode) && rp_reader_is_log(l.name[i]))
				err = add(r, path);
			else if (S_ISDIR(is.st_mode) && depth == RP_READER_DEPTH)
				r->stats.too_deep++;
			else if (S_ISDIR(is.st_mode))
				err = add_dir(r, path, &is, depth + 1, held + l.bytes);
		}
		free(path);
		free(l.name[i]);
	}
	free(l.name);
	return err;
}

/* Who may end them: docs/man. */
#define UNFINISHED                                                                   \
	"still being written, or left by a killed run: SIGHUP to the reqprobe that " \
	"writes ends such a file, its next start what was left"

static int add_path(struct rp_reader *r, const char *path, char *err, size_t errlen)
{
	struct stat st;
	uint64_t unfinished = r->stats.unfinished;
	size_t before = r->n;
	int e;

	if (!strcmp(path, "-") || (r->o.fetch && strstr(path, "://"))) {
		e = add(r, path);
	} else if (stat(path, &st) < 0) {
		e = -errno;
	} else if (S_ISDIR(st.st_mode)) {
		e = add_dir(r, path, &st, 0, 0);
		if (!e && r->n == before) {
			unfinished = r->stats.unfinished - unfinished;
			if (unfinished)
				snprintf(err, errlen,
					 "%s: no request log in it is finished, %llu " UNFINISHED,
					 path, (unsigned long long)unfinished);
			else
				snprintf(
					err, errlen,
					"%s: no request logs in it (*.jsonl, *.jsonl.gz, *.jsonl.zst)",
					path);
			return -ENOENT;
		}
	} else {
		e = add(r, path);
	}
	if (e == -EFBIG && r->n < RP_READER_FILES)
		snprintf(
			err, errlen,
			"%s: more files than there is room for their names: %zu with --memory %lluM",
			path, r->n, (unsigned long long)r->o.memory >> 20);
	else if (e == -EFBIG)
		snprintf(err, errlen, "%s: more than %u files", path, RP_READER_FILES);
	else if (e)
		snprintf(err, errlen, "%s: %s", path, strerror(-e));
	return e;
}

int rp_reader_open(const char *const *paths, size_t n, const struct rp_reader_options *o,
		   struct rp_reader **out, char *err, size_t errlen)
{
	struct rp_reader *r = calloc(1, sizeof(*r));
	int e = 0;

	*out = NULL;
	if (r) {
		r->fd = -1;
		if (o)
			r->o = *o;
		r->cap_buf = BUF_SIZE;
		r->buf = malloc(BUF_SIZE + 1);
		r->in = malloc(IN_SIZE);
	}
	if (!r || !r->buf || !r->in) {
		snprintf(err, errlen, "no memory");
		rp_reader_close(r);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n && !e; i++)
		e = add_path(r, paths[i], err, errlen);
	if (e) {
		rp_reader_close(r);
		return e;
	}
	if (r->stats.too_deep)
		rp_say("%llu directories are left out: more than %d inside each other",
		       (unsigned long long)r->stats.too_deep, RP_READER_DEPTH);
	if (r->stats.unfinished)
		rp_say("%llu files are left out, " UNFINISHED,
		       (unsigned long long)r->stats.unfinished);
	*out = r;
	return 0;
}

size_t rp_reader_bytes(const struct rp_reader *r)
{
	return r->names + (r->zd ? ZSTD_sizeof_DCtx(r->zd) : 0);
}

const char *rp_reader_file(const struct rp_reader *r)
{
	return r->at ? r->files[r->at - 1] : "";
}

size_t rp_reader_index(const struct rp_reader *r)
{
	return r->at ? r->at - 1 : 0;
}

size_t rp_reader_files(const struct rp_reader *r)
{
	return r->n;
}

const struct rp_reader_stats *rp_reader_stats(const struct rp_reader *r)
{
	return &r->stats;
}

/* ---- bytes of the open file ---- */

static void close_file(struct rp_reader *r)
{
	if (r->kind == GZIP)
		inflateEnd(&r->z);
	ZSTD_freeDCtx(r->zd);
	r->zd = NULL;
	r->kind = PLAIN;
	if (r->fd > STDERR_FILENO)
		close(r->fd);
	r->fd = -1;
}

/* More of the file into `in`. 0 at its end, -errno. */
static ssize_t more_in(struct rp_reader *r)
{
	ssize_t n;

	memmove(r->in, r->in + r->in_at, r->in_n - r->in_at);
	r->in_n -= r->in_at;
	r->in_at = 0;
	if (r->in_eof || r->in_n == IN_SIZE)
		return 0;
	n = read(r->fd, r->in + r->in_n, IN_SIZE - r->in_n);
	if (n < 0)
		return -errno;
	r->in_eof = n == 0;
	r->in_n += (size_t)n;
	r->stats.bytes += (uint64_t)n;
	return n;
}

static int window_log(const struct rp_reader *r)
{
	int w = WINDOW_LOG_MAX;

	while (r->o.memory && w > WINDOW_LOG_MIN && 1ULL << w > r->o.memory / 4)
		w--;
	return w;
}

static int start_file(struct rp_reader *r)
{
	ssize_t n;

	r->in_at = r->in_n = 0;
	r->in_eof = r->ended = r->full = false;
	r->kind = PLAIN;
	do
		n = more_in(r);
	while (n > 0 && r->in_n < 4);
	if (n < 0)
		return (int)n;
	if (r->in_n >= 4 && !memcmp(r->in, "\x28\xb5\x2f\xfd", 4)) {
		r->zd = ZSTD_createDCtx();
		if (!r->zd)
			return -ENOMEM;
		ZSTD_DCtx_setParameter(r->zd, ZSTD_d_windowLogMax, window_log(r));
		r->kind = ZSTD;
	} else if (r->in_n >= 2 && r->in[0] == 0x1f && r->in[1] == 0x8b) {
		memset(&r->z, 0, sizeof(r->z));
		if (inflateInit2(&r->z, 15 + 16) != Z_OK)
			return -ENOMEM;
		r->kind = GZIP;
	}
	return 0;
}

/* -EBADMSG: the compressed data is broken, -ENODATA: it ends too early, -E2BIG: its window
 * is larger than there is memory for. */
static ssize_t gunzip(struct rp_reader *r, char *to, size_t room)
{
	for (;;) {
		ssize_t n = 0;
		int e;

		if (r->in_at == r->in_n && !r->full) {
			n = more_in(r);
			if (n < 0)
				return n;
			if (!n)
				return r->ended ? 0 : -ENODATA;
		}
		if (r->ended) { /* another member, as gzip and pigz write them */
			if (inflateReset(&r->z) != Z_OK)
				return -EBADMSG;
			r->ended = false;
		}
		r->z.next_in = r->in + r->in_at;
		r->z.avail_in = (uInt)(r->in_n - r->in_at);
		r->z.next_out = (Bytef *)to;
		r->z.avail_out = (uInt)room;
		e = inflate(&r->z, Z_NO_FLUSH);
		r->in_at = r->in_n - r->z.avail_in;
		r->full = !r->z.avail_out && e != Z_STREAM_END;
		if (e == Z_STREAM_END)
			r->ended = true;
		else if (e == Z_MEM_ERROR)
			return -ENOMEM;
		else if (e != Z_OK && e != Z_BUF_ERROR)
			return -EBADMSG;
		n = (ssize_t)(room - r->z.avail_out);
		if (n)
			return n;
	}
}

static ssize_t unzstd(struct rp_reader *r, char *to, size_t room)
{
	for (;;) {
		ZSTD_outBuffer out = { to, room, 0 };
		ZSTD_inBuffer in;
		ssize_t n = 0;
		size_t e;

		if (r->in_at == r->in_n && !r->full) {
			n = more_in(r);
			if (n < 0)
				return n;
			if (!n)
				return r->ended ? 0 : -ENODATA;
		}
		in = (ZSTD_inBuffer){ r->in, r->in_n, r->in_at };
		e = ZSTD_decompressStream(r->zd, &out, &in);
		r->in_at = in.pos;
		if (ZSTD_isError(e))
			return ZSTD_getErrorCode(e) == ZSTD_error_frameParameter_windowTooLarge ?
				       -E2BIG :
				       -EBADMSG;
		r->ended = e == 0;
		r->full = e && out.pos == room;
		if (out.pos)
			return (ssize_t)out.pos;
	}
}

static ssize_t plain_bytes(struct rp_reader *r, char *to, size_t room)
{
	size_t n = r->in_n - r->in_at;
	ssize_t k;

	if (n) { /* what was looked at for the kind */
		n = n < room ? n : room;
		memcpy(to, r->in + r->in_at, n);
		r->in_at += n;
		return (ssize_t)n;
	}
	k = read(r->fd, to, room);
	if (k > 0)
		r->stats.bytes += (uint64_t)k;
	return k < 0 ? -errno : k;
}

static ssize_t bytes(struct rp_reader *r, char *to, size_t room)
{
	switch (r->kind) {
	case GZIP:
		return gunzip(r, to, room);
	case ZSTD:
		return unzstd(r, to, room);
	default:
		return plain_bytes(r, to, room);
	}
}

/* ---- lines ---- */

static const char *shown(const char *path)
{
	return strcmp(path, "-") != 0 ? path : "standard input";
}

/* 1: one is open, 0: there is none left, -EINTR. A FIFO waits in open() for who writes it. */
static int next_file(struct rp_reader *r)
{
	while (r->at < r->n) {
		const char *path = r->files[r->at++];
		char err[512] = "";
		int e = 0;

		if (!strcmp(path, "-")) {
			r->fd = STDIN_FILENO;
		} else if (r->o.fetch && strstr(path, "://")) {
			r->fd = r->o.fetch(r->o.ctx, path, err, sizeof(err));
		} else {
			r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
			if (r->fd < 0)
				r->fd = -errno;
		}
		if (r->fd >= 0) {
			posix_fadvise(r->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
			e = start_file(r);
			if (!e) {
				r->stats.files++;
				r->pos = r->len = 0;
				r->eof = r->skipping = false;
				return 1;
			}
			close_file(r);
			if (e == -EINTR)
				return e;
		} else {
			e = r->fd;
			r->fd = -1;
			if (e == -EINTR || stopped(r))
				return -EINTR;
		}
		r->stats.unread++;
		rp_say("%s: %s; it is left out", shown(path), *err ? err : strerror(-e));
	}
	return 0;
}

static void broken(struct rp_reader *r, int e)
{
	const char *path = shown(rp_reader_file(r));

	r->stats.unread++;
	if (e == -ENODATA)
		rp_say("%s ends inside its compressed data: what came before counts", path);
	else if (e == -EBADMSG)
		rp_say("%s: its compressed data is broken: what came before counts", path);
	else if (e == -E2BIG)
		rp_say("%s: it was compressed with a window of more than %llu MiB: what came before counts; a larger --memory reads it, up to 128 MiB",
		       path, 1ULL << (window_log(r) - 20));
	else
		rp_say("%s: %s: what came before counts", path, strerror(-e));
}

/* More text behind len. -ENOMEM, -EINTR. */
static int fill(struct rp_reader *r)
{
	ssize_t n;

	if (stopped(r))
		return -EINTR;
	if (r->pos) {
		memmove(r->buf, r->buf + r->pos, r->len - r->pos);
		r->len -= r->pos;
		r->pos = 0;
	}
	if (r->len == r->cap_buf) {
		/* never far above the longest line */
		size_t cap = r->cap_buf < RP_LINE_MAX ? 2 * r->cap_buf : r->cap_buf + BUF_SIZE;
		char *buf = realloc(r->buf, cap + 1);

		if (!buf)
			return -ENOMEM;
		r->buf = buf;
		r->cap_buf = cap;
	}
	n = bytes(r, r->buf + r->len, r->cap_buf - r->len);
	if (n > 0) {
		r->len += (size_t)n;
		return 0;
	}
	if (n == -ENOMEM || n == -EINTR)
		return (int)n;
	if (n < 0)
		broken(r, (int)n);
	r->eof = true;
	return 0;
}

int rp_reader_next(struct rp_reader *r, const char **p, size_t *n)
{
	size_t seen = 0; /* of the text from pos, looked through */

	for (;;) {
		char *nl, *start;
		int err;

		if (r->fd < 0) {
			err = next_file(r);
			if (err <= 0)
				return err;
			seen = 0;
		}
		start = r->buf + r->pos;
		nl = memchr(start + seen, '\n', r->len - r->pos - seen);
		if (!nl && r->eof) {
			close_file(r);
			if (r->pos == r->len || r->skipping) {
				r->stats.too_long += r->skipping;
				r->stats.lines += r->skipping;
				continue;
			}
			nl = r->buf + r->len; /* a last line without its end */
			*nl = '\n';
		}
		if (nl) {
			*p = start;
			*n = (size_t)(nl - start);
			r->pos += *n + 1;
			if (r->pos > r->len)
				r->pos = r->len;
			seen = 0;
			if (r->skipping || *n > RP_LINE_MAX) {
				r->skipping = false;
				r->stats.too_long++;
				r->stats.lines++;
				continue;
			}
			if (!*n)
				continue;
			r->stats.lines++;
			return 1;
		}
		seen = r->len - r->pos;
		if (r->skipping || seen > RP_LINE_MAX) {
			r->skipping = true;
			r->pos = r->len;
			seen = 0;
		}
		err = fill(r);
		if (err)
			return err;
	}
}

void rp_reader_close(struct rp_reader *r)
{
	if (!r)
		return;
	close_file(r);
	for (size_t i = 0; i < r->n; i++)
		free(r->files[i]);
	free(r->files);
	free(r->dirs);
	free(r->buf);
	free(r->in);
	free(r);
}
