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

#include "run.h"

#define IN_SIZE (256u << 10)
#define BUF_SIZE (1u << 20)
#define DIR_DEPTH 16

enum kind { PLAIN, GZIP, ZSTD };

struct rp_reader {
	char **files;
	size_t n, cap, at; /* at: the one to be opened next */
	rp_reader_fetch fetch;
	void *ctx;
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

static int add(struct rp_reader *r, const char *path)
{
	char **more;

	if (r->n == RP_READER_FILES)
		return -EFBIG;
	if (r->n == r->cap) {
		r->cap = r->cap ? 2 * r->cap : 64;
		more = realloc(r->files, r->cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		r->files = more;
	}
	r->files[r->n] = strdup(path);
	return r->files[r->n] && ++r->n ? 0 : -ENOMEM;
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

static int add_dir(struct rp_reader *r, const char *dir, unsigned depth)
{
	struct dirent **names = NULL;
	int n = scandir(dir, &names, NULL, alphasort), err = n < 0 ? -errno : 0;

	for (int i = 0; i < n; i++) {
		const char *name = names[i]->d_name;
		char *path = NULL;
		struct stat st;

		if (!err && *name != '.') {
			if (asprintf(&path, "%s/%s", dir, name) < 0) {
				path = NULL;
				err = -ENOMEM;
			} else if (stat(path, &st) == 0) {
				if (S_ISDIR(st.st_mode) && depth < DIR_DEPTH)
					err = add_dir(r, path, depth + 1);
				else if (S_ISREG(st.st_mode) && rp_reader_is_log(name))
					err = add(r, path);
			}
			free(path);
		}
		free(names[i]);
	}
	free(names);
	return err;
}

static int add_path(struct rp_reader *r, const char *path, char *err, size_t errlen)
{
	struct stat st;
	size_t before = r->n;
	int e;

	if (!strcmp(path, "-") || (r->fetch && strstr(path, "://"))) {
		e = add(r, path);
	} else if (stat(path, &st) < 0) {
		e = -errno;
	} else if (S_ISDIR(st.st_mode)) {
		e = add_dir(r, path, 0);
		if (!e && r->n == before) {
			snprintf(err, errlen,
				 "%s: no request logs in it (*.jsonl, *.jsonl.gz, *.jsonl.zst)",
				 path);
			return -ENOENT;
		}
	} else {
		e = add(r, path);
	}
	if (e == -EFBIG)
		snprintf(err, errlen, "%s: more than %u files", path, RP_READER_FILES);
	else if (e)
		snprintf(err, errlen, "%s: %s", path, strerror(-e));
	return e;
}

int rp_reader_open(const char *const *paths, size_t n, rp_reader_fetch fetch, void *ctx,
		   struct rp_reader **out, char *err, size_t errlen)
{
	struct rp_reader *r = calloc(1, sizeof(*r));
	int e = 0;

	*out = NULL;
	if (r) {
		r->fd = -1;
		r->fetch = fetch;
		r->ctx = ctx;
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
	*out = r;
	return 0;
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
		/* 128 MiB: what the zstd tool itself takes */
		ZSTD_DCtx_setParameter(r->zd, ZSTD_d_windowLogMax, 27);
		r->kind = ZSTD;
	} else if (r->in_n >= 2 && r->in[0] == 0x1f && r->in[1] == 0x8b) {
		memset(&r->z, 0, sizeof(r->z));
		if (inflateInit2(&r->z, 15 + 16) != Z_OK)
			return -ENOMEM;
		r->kind = GZIP;
	}
	return 0;
}

/* -EBADMSG: the compressed data is broken, -ENODATA: it ends too early. */
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
			return -EBADMSG;
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

/* 1: one is open, 0: there is none left, -EINTR. */
static int next_file(struct rp_reader *r)
{
	while (r->at < r->n) {
		const char *path = r->files[r->at++];
		char err[512] = "";
		int e = 0;

		if (!strcmp(path, "-")) {
			r->fd = STDIN_FILENO;
		} else if (r->fetch && strstr(path, "://")) {
			r->fd = r->fetch(r->ctx, path, err, sizeof(err));
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
	else
		rp_say("%s: %s: what came before counts", path, strerror(-e));
}

/* More text behind len. -ENOMEM, -EINTR. */
static int fill(struct rp_reader *r)
{
	ssize_t n;

	if (r->pos) {
		memmove(r->buf, r->buf + r->pos, r->len - r->pos);
		r->len -= r->pos;
		r->pos = 0;
	}
	if (r->len == r->cap_buf) {
		size_t cap = 2 * r->cap_buf;
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
	free(r->buf);
	free(r->in);
	free(r);
}
