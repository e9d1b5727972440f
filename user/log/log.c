// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * log.c - the request log: the queue, and the thread that writes files. The thread
 * that drains the ring renders a record and hands blocks of lines over; it never waits
 * for the disk. The writer keeps what it can't write and tries again each second;
 * meanwhile the queue fills, and what it turns away is counted.
 */
#include "log/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/caps.h"
#include "lib/clock.h"
#include "log/internal.h"
#include "run.h"
#include "sink/put.h"

#define NS 1000000000ULL
#define BLOCK_BYTES (64u << 10) /* handed over at once */
#define FLUSH_NS NS		/* so old may be what a kill takes from a compressor */
#define RETRY_NS NS		/* after an error */
#define KEEP_NS (60 * NS)	/* between looks at what is too old */
#define EXIT_NS (10 * NS)	/* for the disk, at the end */
#define CLOSED_MAX 64		/* files that wait for their names */
#define LOOK_NS NS		/* between looks at whether the directory is still there, */
#define LOOK_BUSY_NS (NS / 10)	/* and while there is something to write */
#define TRIES 3			/* of what is no matter of space */
#define QUEUE_BYTES (16u << 20)
#define OTHER_BYTES (4u << 20) /* compressor, its output, an upload */

static struct timespec until(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / NS), .tv_nsec = (long)(ns % NS) };
}

void rp_log_thread(const char *name)
{
	prctl(PR_SET_NAME, name, 0, 0, 0);
	rp_thread_begin(NULL, 0);
}

/* ---- the queue ---- */

/* A replay waits for the disk, until it is told to end. */
static bool patient(const struct rp_log *l)
{
	return l->patient && !rp_stopping();
}

/* Hands the pending lines over. Never waits, unless told to. */
static void push(struct rp_log *l)
{
	struct rp_log_block *b;

	if (!l->pending.n)
		return;
	b = malloc(sizeof(*b));
	if (!b) {
		l->turned_away += l->pending_records;
		l->pending.n = l->pending_records = 0;
		return;
	}
	*b = (struct rp_log_block){ .p = l->pending.p,
				    .n = l->pending.n,
				    .cap = l->pending.cap,
				    .records = l->pending_records };
	l->pending = (struct rp_buf){ 0 };
	l->pending_records = 0;
	pthread_mutex_lock(&l->m);
	*l->last = b;
	l->last = &b->next;
	l->queued += b->n;
	if (l->spare) {
		l->pending.p = l->spare->p;
		l->pending.cap = l->spare->cap;
		free(l->spare);
		l->spare = NULL;
	}
	pthread_cond_signal(&l->wake);
	while (patient(l) && l->queued >= l->o.queue_bytes && !l->writer_done) {
		/* a signal may end it, and wakes nobody */
		struct timespec t = until(rp_now_ns() + NS / 10);

		pthread_cond_timedwait(&l->room, &l->m, &t);
	}
	pthread_mutex_unlock(&l->m);
}

static bool has_room(struct rp_log *l)
{
	uint64_t queued;

	pthread_mutex_lock(&l->m);
	queued = l->queued;
	pthread_mutex_unlock(&l->m);
	return queued + l->pending.n < l->o.queue_bytes;
}

static void on_record(void *ctx, const struct rp_record *r)
{
	struct rp_log *l = ctx;
	size_t start = l->pending.n;

	if (!patient(l) && !has_room(l)) {
		if (!l->full_said)
			rp_say("the request log's queue is full: %s takes less than there is; "
			       "records are lost until it keeps up",
			       l->dir_name);
		l->full_said = true;
		l->turned_away++;
		return;
	}
	l->full_said = false;
	rp_put_record(&l->pending, r);
	LIT(&l->pending, "\n");
	if (l->pending.oom) {
		l->pending.oom = false;
		l->pending.n = start;
		l->turned_away++;
		return;
	}
	l->pending_records++;
	if (l->pending.n >= BLOCK_BYTES)
		push(l);
}

static struct rp_log_block *take(struct rp_log *l)
{
	if (l->current)
		return l->current;
	pthread_mutex_lock(&l->m);
	l->current = l->first;
	if (l->first) {
		l->first = l->first->next;
		if (!l->first)
			l->last = &l->first;
	}
	pthread_mutex_unlock(&l->m);
	return l->current;
}

static void taken(struct rp_log *l)
{
	struct rp_log_block *b = l->current, *old;

	l->current = NULL;
	pthread_mutex_lock(&l->m);
	l->queued -= b->n;
	old = l->spare;
	l->spare = b;
	pthread_cond_signal(&l->room);
	pthread_mutex_unlock(&l->m);
	if (old) {
		free(old->p);
		free(old);
	}
}

/* ---- files ---- */

static void numbers(struct rp_log *l)
{
	bool open = l->f.fd >= 0;

	pthread_mutex_lock(&l->m);
	l->records = l->put - (open ? l->f.unsafe : 0);
	l->raw = l->files_raw + (open ? l->f.raw : 0);
	l->bytes = l->files_bytes + (open ? l->f.bytes : 0);
	l->open_bytes = open ? l->f.bytes + l->f.out.n : 0;
	pthread_mutex_unlock(&l->m);
}

static int begin_file(struct rp_log *l)
{
	char name[RP_LOG_NAME_MAX];
	int64_t wall = rp_clock_ns(CLOCK_REALTIME);
	int r;

	for (int i = 0; i < 100; i++) {
		rp_log_name(name, l->host, wall, ++l->seq, l->o.compress);
		if (!faccessat(l->dir, name, F_OK, AT_SYMLINK_NOFOLLOW))
			continue; /* the clock was set back */
		r = rp_log_file_open(&l->f, l->dir, name, false, l->o.compress, l->o.level);
		if (r == -EEXIST)
			continue;
		if (r) {
			l->seq--; /* tried again: no gap in the numbers */
			return r;
		}
		l->opened = l->flushed = l->synced = rp_now_ns();
		return 0;
	}
	return -EEXIST;
}

/* Files that the limits ask to go. */
static void keep(struct rp_log *l)
{
	struct rp_log_entry *e = NULL;
	enum rp_log_why *why = NULL;
	uint64_t dropped = 0, open_bytes;
	size_t n;

	pthread_mutex_lock(&l->m);
	open_bytes = l->open_bytes;
	pthread_mutex_unlock(&l->m);
	if (rp_log_scan(l->dir, l->up, &e, &n) || !n)
		goto cleanup;
	why = calloc(n, sizeof(*why));
	if (!why)
		goto cleanup;
	pthread_mutex_lock(&l->fs);
	for (size_t i = 0; i < n; i++)
		e[i].busy = !strcmp(e[i].name, l->uploading);
	rp_log_pick(e, n, &l->o, open_bytes, rp_clock_ns(CLOCK_REALTIME), why);
	for (size_t i = 0; i < n; i++) {
		if (why[i] == RP_LOG_STAYS ||
		    unlinkat(e[i].uploaded ? l->up : l->dir, e[i].name, 0))
			continue;
		pthread_mutex_lock(&l->m);
		l->removed[why[i]]++;
		if (l->s3 && !e[i].uploaded) {
			l->s3_stats.dropped++;
			dropped++;
		}
		pthread_mutex_unlock(&l->m);
	}
	pthread_mutex_unlock(&l->fs);
	if (dropped && !atomic_exchange(&l->drop_said, true))
		rp_say("%s is at its limit (--log-keep-...): files that were not uploaded are "
		       "removed, the oldest first; reqprobe_s3_dropped_files_total counts them",
		       l->dir_name);
cleanup:
	free(e);
	free(why);
}

static void forget_file(struct rp_log *l)
{
	l->files_raw += l->f.raw;
	l->files_bytes += l->f.bytes;
	l->closing = false;
}

/* The rest of its life is the syncer's. */
static int close_file(struct rp_log *l)
{
	struct rp_log_closed *c;
	int r;

	l->closing = true;
	r = rp_log_file_end(&l->f);
	r = r ? r : rp_log_file_write(&l->f);
	if (r)
		return r;
	c = malloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	rp_log_file_close(&l->f, c);
	forget_file(l);
	pthread_mutex_lock(&l->m);
	*l->last_closed = c;
	l->last_closed = &c->next;
	l->n_closed++;
	pthread_cond_signal(&l->sync);
	while (l->n_closed > CLOSED_MAX && !l->stop)
		pthread_cond_wait(&l->changed, &l->m);
	pthread_mutex_unlock(&l->m);
	return 0;
}

/* ---- a directory that is removed, and made again ---- */

struct parts {
	int dir, up, lock;
};

static void close_parts(struct parts *p)
{
	if (p->dir >= 0)
		close(p->dir);
	if (p->up >= 0)
		close(p->up);
	if (p->lock >= 0)
		close(p->lock);
	*p = (struct parts){ -1, -1, -1 };
}

/* What lies at the path now. -EBUSY: it is another reqprobe's. */
static int open_parts(const struct rp_log *l, struct parts *p)
{
	int e;

	*p = (struct parts){ -1, -1, -1 };
	p->dir = open(l->dir_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->dir < 0)
		goto failed;
	p->lock = openat(p->dir, RP_LOG_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
	if (p->lock < 0 && errno == ENOSPC)
		p->lock = open(l->dir_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->lock < 0)
		goto failed;
	if (flock(p->lock, LOCK_EX | LOCK_NB)) {
		errno = EBUSY;
		goto failed;
	}
	if (l->o.s3_keep) {
		if (mkdirat(p->dir, RP_LOG_UPLOADED, 0750) && errno != EEXIST)
			goto failed;
		p->up = openat(p->dir, RP_LOG_UPLOADED,
			       O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (p->up < 0)
			goto failed;
	}
	return 0;
failed:
	e = -errno;
	close_parts(p);
	return e;
}

/* The file was removed: what is in it is lost, and so is what would be written to it. */
static void file_gone(struct rp_log *l)
{
	uint64_t records = l->f.records;

	l->put -= l->f.unsafe; /* what was written stays counted: a counter may not go back */
	forget_file(l);
	rp_log_file_abandon(&l->f);
	pthread_mutex_lock(&l->m);
	l->lost += records;
	pthread_mutex_unlock(&l->m);
	rp_say("%s/%s was removed while it was written: its %llu records are lost", l->dir_name,
	       l->f.partial, (unsigned long long)records);
}

/*
 * Is the directory still that which was opened, and the file still in it? A removed one
 * takes all that is written without a word. What is found at the path takes its place,
 * under the same descriptors: the other threads use them, too.
 */
static int look(struct rp_log *l)
{
	struct stat was, is, file;
	struct timespec t = until(rp_now_ns() + 2 * LOOK_NS);
	bool there, waiting;
	struct parts p;
	int r;

	if (rp_now_ns() - l->looked < LOOK_BUSY_NS)
		return 0;
	l->looked = rp_now_ns();
	if (l->f.fd >= 0 && !fstat(l->f.fd, &file) && !file.st_nlink)
		file_gone(l);
	if (fstat(l->dir, &was))
		return 0;
	there = !stat(l->dir_name, &is);
	if (there && was.st_dev == is.st_dev && was.st_ino == is.st_ino)
		return 0;
	if (!there) /* moved away: then it goes on where it is */
		return was.st_nlink ? 0 : -ENOENT;
	/* what was begun in the old one, if that is somewhere, is ended there first */
	r = l->f.fd >= 0 ? close_file(l) : 0;
	if (r)
		return r;
	pthread_mutex_lock(&l->m);
	while (l->n_closed && !l->stop)
		if (pthread_cond_timedwait(&l->changed, &l->m, &t) == ETIMEDOUT)
			break;
	waiting = l->n_closed > 0;
	pthread_mutex_unlock(&l->m);
	if (waiting) /* its names can't be had there yet: in a while */
		return was.st_nlink ? 0 : -ENOENT;
	r = open_parts(l, &p);
	if (r)
		return r;
	pthread_mutex_lock(&l->fs);
	if (dup3(p.dir, l->dir, O_CLOEXEC) < 0 || dup3(p.lock, l->lock, O_CLOEXEC) < 0 ||
	    (p.up >= 0 && dup3(p.up, l->up, O_CLOEXEC) < 0))
		r = -errno;
	pthread_mutex_unlock(&l->fs);
	close_parts(&p);
	if (!r && !l->quiet)
		rp_say("%s is another directory now: the request log goes on in it", l->dir_name);
	return r;
}

static int flush_file(struct rp_log *l)
{
	int r = rp_log_file_flush(&l->f);

	r = r ? r : rp_log_file_write(&l->f);
	if (!r)
		l->flushed = rp_now_ns();
	return r;
}

/* A disk that takes seconds for it must not hold up the writing. */
static void sync_later(struct rp_log *l)
{
	int fd = -1;

	l->synced = rp_now_ns();
	if (!l->f.unsynced)
		return;
	pthread_mutex_lock(&l->m);
	if (l->sync_fd < 0) /* else the one before is still under way */
		fd = l->sync_fd = fcntl(l->f.fd, F_DUPFD_CLOEXEC, 0);
	pthread_cond_signal(&l->sync);
	pthread_mutex_unlock(&l->m);
	if (fd >= 0)
		l->f.unsynced = false;
}

/* All that can be done now. -errno: the same again in a while. */
static int work(struct rp_log *l, bool end, bool rotate)
{
	struct rp_log_file *f = &l->f;
	struct rp_log_block *b;
	bool some = false;
	uint64_t now;
	int r;

	r = look(l);
	if (r)
		return r;
	if (f->fd >= 0) {
		r = rp_log_file_write(f);
		if (r)
			return r;
	}
	if (l->closing) {
		r = close_file(l);
		if (r)
			return r;
	}
	while ((b = take(l))) {
		if (f->fd < 0) {
			r = begin_file(l);
			if (r)
				return r;
		}
		r = rp_log_file_put(f, b->p, b->n, b->records);
		if (r)
			return r;
		l->put += b->records;
		some = true;
		taken(l);
		r = rp_log_file_write(f);
		if (r)
			return r;
		numbers(l);
		if (f->bytes >= l->o.rotate_bytes) {
			r = close_file(l);
			if (r)
				return r;
		}
	}
	if (f->fd < 0)
		return 0;
	now = rp_now_ns();
	r = 0;
	if (some && l->o.fsync_ns == RP_LOG_FSYNC_RECORD) {
		r = flush_file(l);
		r = r ? r : rp_log_file_sync(f);
	} else if (l->o.fsync_ns > 0 && now - l->synced >= (uint64_t)l->o.fsync_ns) {
		r = flush_file(l);
		if (!r)
			sync_later(l);
	} else if (f->dirty && now - l->flushed >= FLUSH_NS) {
		r = flush_file(l);
	}
	if (r)
		return r;
	if (end || rotate || now - l->opened >= (uint64_t)l->o.rotate_ns)
		return close_file(l);
	return 0;
}

/* This file takes no more: what is in it stays, for the next start to finish. */
static void give_up(struct rp_log *l, int r)
{
	char name[RP_LOG_NAME_MAX];
	uint64_t lost = l->f.unsafe, lines;

	snprintf(name, sizeof(name), "%s", l->f.name);
	forget_file(l);
	rp_log_file_abandon(&l->f);
	l->put -= lost;
	pthread_mutex_lock(&l->m);
	l->lost += lost;
	pthread_mutex_unlock(&l->m);
	/* a limit of file sizes: the file itself is in order */
	if (r == -EFBIG && !rp_log_recover(l->dir, name, &lines)) {
		pthread_mutex_lock(&l->m);
		l->published++;
		pthread_cond_signal(&l->work);
		pthread_mutex_unlock(&l->m);
	}
}

static bool space(int r)
{
	return r == -ENOSPC || r == -EDQUOT || r == -ENOMEM;
}

/* Once for each change. */
static void tell(struct rp_log *l, int r)
{
	uint64_t lost;

	if (r && r != l->said)
		rp_say("can't write the request log in %s: %s; it waits in memory, up to %llu KiB, "
		       "what comes after that is lost, and tried again each second",
		       l->dir_name, strerror(-r), (unsigned long long)(l->o.queue_bytes >> 10));
	if (!r && l->said) {
		pthread_mutex_lock(&l->m);
		lost = l->lost;
		pthread_mutex_unlock(&l->m);
		if (!l->quiet)
			rp_say("the request log is written again%s",
			       lost > l->lost_told ? "; some of it was lost" : "");
		l->lost_told = lost;
	}
	l->said = r;
	if (!r) {
		l->tries = 0;
		return;
	}
	pthread_mutex_lock(&l->m);
	l->errors++;
	pthread_mutex_unlock(&l->m);
	if (l->f.fd >= 0 && !space(r) && (++l->tries >= TRIES || r == -EFBIG)) {
		l->tries = 0;
		give_up(l, r);
	}
}

/* When something is due without a new record. */
static uint64_t next_due(const struct rp_log *l)
{
	uint64_t t = rp_now_ns() + KEEP_NS, x;

	if (l->f.fd < 0)
		return t;
	x = l->opened + (uint64_t)l->o.rotate_ns;
	t = x < t ? x : t;
	x = l->looked + LOOK_NS;
	t = x < t ? x : t;
	x = l->flushed + FLUSH_NS;
	if (l->f.dirty && x < t)
		t = x;
	x = l->synced + (uint64_t)l->o.fsync_ns;
	if (l->o.fsync_ns > 0 && (l->f.dirty || l->f.unsynced) && x < t)
		t = x;
	return t;
}

/* May this thread, which has no capabilities, make and rename files there? */
static int try_directory(const struct rp_log *l)
{
	int fd = openat(l->dir, ".reqprobe.try", O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
	int r = fd < 0 ? -errno : 0;

	if (fd >= 0) {
		close(fd);
		if (unlinkat(l->dir, ".reqprobe.try", 0))
			r = -errno;
	}
	return r == -ENOSPC || r == -EDQUOT ? 0 : r; /* that may pass */
}

static void *writer(void *arg)
{
	struct rp_log *l = arg;
	bool stop = false, rotate = false;
	struct timespec t;
	uint64_t due;
	int r;

	rp_log_thread("log-writer");
	r = try_directory(l);
	pthread_mutex_lock(&l->m);
	l->ready = true;
	l->ready_error = r;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->m);
	if (r)
		goto done;
	for (;;) {
		due = l->said ? rp_now_ns() + RETRY_NS : next_due(l);
		t = until(due);
		pthread_mutex_lock(&l->m);
		/* in trouble new records are no reason to wake */
		while ((l->said || !l->first) && !l->reopen && !l->stop && rp_now_ns() < due)
			if (pthread_cond_timedwait(&l->wake, &l->m, &t) == ETIMEDOUT)
				break;
		if (l->stop && l->said && rp_now_ns() < l->stop_by) {
			uint64_t soon = rp_now_ns() + RETRY_NS / 5;

			t = until(soon);
			while (pthread_cond_timedwait(&l->wake, &l->m, &t) != ETIMEDOUT &&
			       rp_now_ns() < soon)
				;
		}
		stop = l->stop;
		rotate = rotate || l->reopen;
		l->reopen = false;
		due = l->stop_by;
		pthread_mutex_unlock(&l->m);
		r = work(l, stop, rotate);
		tell(l, r);
		numbers(l);
		if (!r)
			rotate = false;
		if (stop && (!r || rp_now_ns() >= due))
			break;
	}
	if (l->f.fd >= 0)
		give_up(l, -EIO);
	numbers(l);
done:
	pthread_mutex_lock(&l->m);
	l->writer_done = true;
	pthread_cond_broadcast(&l->changed);
	pthread_cond_broadcast(&l->room);
	pthread_cond_signal(&l->sync);
	pthread_mutex_unlock(&l->m);
	return NULL;
}

/* ---- the syncer ---- */

/* A file has its name, or never will: then it is for the next start, if it is still there. */
static void off_list(struct rp_log *l, bool published, uint64_t lost)
{
	struct rp_log_closed *c = l->closed;

	pthread_mutex_lock(&l->m);
	l->closed = c->next;
	if (!l->closed)
		l->last_closed = &l->closed;
	l->n_closed--;
	l->files += published;
	l->published += published;
	l->lost += lost;
	pthread_cond_signal(&l->work);
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->m);
	if (c->fd >= 0)
		close(c->fd);
	free(c);
}

static void sync_error(struct rp_log *l, int r, int *said)
{
	if (r && r != *said)
		rp_say("can't finish a file of the request log in %s: %s", l->dir_name,
		       strerror(-r));
	*said = r;
	if (!r)
		return;
	pthread_mutex_lock(&l->m);
	l->errors++;
	pthread_mutex_unlock(&l->m);
}

/* Forces files to the disk, gives them their names, removes old ones: whatever a disk
 * may take its time for. */
static void *syncer(void *arg)
{
	struct rp_log *l = arg;
	uint64_t due = 0, retry = 0, now;
	struct rp_log_closed *c;
	bool end, late;
	struct timespec t;
	int fd, r, said = 0;

	rp_log_thread("log-syncer");
	keep(l);
	due = rp_now_ns() + KEEP_NS;
	for (;;) {
		pthread_mutex_lock(&l->m);
		for (;;) {
			now = rp_now_ns();
			end = l->writer_done && (!l->closed || now >= l->stop_by);
			if (end || l->sync_fd >= 0 || (l->closed && now >= retry) || now >= due)
				break;
			t = until(l->closed && retry < due ? retry : due);
			pthread_cond_timedwait(&l->sync, &l->m, &t);
		}
		fd = l->sync_fd;
		c = now >= retry || l->writer_done ? l->closed : NULL;
		late = l->stop && now >= l->stop_by;
		pthread_mutex_unlock(&l->m);
		if (fd >= 0) {
			r = fdatasync(fd) ? -errno : 0;
			close(fd);
			sync_error(l, r, &said);
			pthread_mutex_lock(&l->m);
			l->sync_fd = -1;
			pthread_mutex_unlock(&l->m);
		}
		if (c) {
			r = rp_log_publish(c, l->o.fsync_ns != RP_LOG_FSYNC_NEVER);
			sync_error(l, r, &said);
			if (!r)
				off_list(l, true, 0);
			else if (r == -ENOENT) /* removed by somebody */
				off_list(l, false, c->records);
			else if (late)
				off_list(l, false, 0);
			retry = r ? rp_now_ns() + RETRY_NS / 5 : 0;
		}
		if (c || now >= due) {
			keep(l);
			due = rp_now_ns() + KEEP_NS;
		}
		if (end && !c)
			break;
	}
	pthread_mutex_lock(&l->m);
	l->syncer_done = true;
	pthread_cond_broadcast(&l->changed);
	pthread_cond_signal(&l->work);
	pthread_mutex_unlock(&l->m);
	return NULL;
}

/* ---- the output ---- */

static void free_blocks(struct rp_log_block *b)
{
	while (b) {
		struct rp_log_block *next = b->next;

		free(b->p);
		free(b);
		b = next;
	}
}

static void free_log(struct rp_log *l)
{
	if (!l)
		return;
	rp_s3_close(l->s3);
	close_parts(&(struct parts){ l->dir, l->up, l->lock });
	free_blocks(l->first);
	free_blocks(l->spare);
	free_blocks(l->current);
	free(l->f.out.p);
	free(l->pending.p);
	free(l->partial);
	pthread_mutex_destroy(&l->m);
	pthread_mutex_destroy(&l->fs);
	pthread_cond_destroy(&l->wake);
	pthread_cond_destroy(&l->room);
	pthread_cond_destroy(&l->changed);
	pthread_cond_destroy(&l->work);
	pthread_cond_destroy(&l->sync);
	free(l);
}

static struct rp_log *new_log(const struct rp_options *o)
{
	struct rp_log *l = calloc(1, sizeof(*l));
	pthread_mutexattr_t ma;
	pthread_condattr_t ca;

	if (!l)
		return NULL;
	l->o = o->log;
	if (!l->o.queue_bytes)
		l->o.queue_bytes = o->memory / 4 < QUEUE_BYTES ? o->memory / 4 : QUEUE_BYTES;
	l->quiet = o->quiet;
	l->patient = o->verb == RP_VERB_REPLAY || (o->verb == RP_VERB_PCAP && o->file);
	l->dir = l->up = l->lock = l->f.fd = l->sync_fd = -1;
	l->last = &l->first;
	l->last_closed = &l->closed;
	snprintf(l->dir_name, sizeof(l->dir_name), "%s", o->log.dir);
	/* a writer that gets no CPU must not hold up who reads the ring */
	pthread_mutexattr_init(&ma);
	pthread_mutexattr_setprotocol(&ma, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&l->m, &ma);
	pthread_mutex_init(&l->fs, NULL);
	pthread_mutexattr_destroy(&ma);
	pthread_condattr_init(&ca);
	pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
	pthread_cond_init(&l->wake, &ca);
	pthread_cond_init(&l->room, &ca);
	pthread_cond_init(&l->changed, &ca);
	pthread_cond_init(&l->work, &ca);
	pthread_cond_init(&l->sync, &ca);
	pthread_condattr_destroy(&ca);
	return l;
}

static int open_directory(struct rp_log *l, char *err, size_t errlen)
{
	struct parts p = { -1, -1, -1 };
	size_t n;
	int e = 0;

	if (mkdir(l->dir_name, 0750) && errno != EEXIST)
		e = -errno;
	if (!e)
		e = open_parts(l, &p);
	l->dir = p.dir;
	l->up = p.up;
	l->lock = p.lock;
	if (!e)
		e = rp_log_scan_partial(l->dir, &l->partial, &n);
	if (e == -EBUSY)
		snprintf(err, errlen,
			 "--log %s is another reqprobe's: each wants a directory of its own",
			 l->dir_name);
	else if (e)
		snprintf(err, errlen, "can't open --log %s: %s", l->dir_name, strerror(-e));
	return e;
}

static void end_threads(struct rp_log *l)
{
	pthread_mutex_lock(&l->m);
	l->stop = true;
	pthread_cond_signal(&l->wake);
	pthread_cond_signal(&l->sync);
	pthread_cond_signal(&l->work);
	pthread_mutex_unlock(&l->m);
}

static int start_threads(struct rp_log *l, char *err, size_t errlen)
{
	sigset_t all, old;
	int e, dir;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	e = pthread_create(&l->writer, NULL, writer, l);
	if (e)
		goto failed;
	pthread_mutex_lock(&l->m);
	while (!l->ready)
		pthread_cond_wait(&l->changed, &l->m);
	dir = l->ready_error;
	pthread_mutex_unlock(&l->m);
	if (!dir)
		e = pthread_create(&l->syncer, NULL, syncer, l);
	if (dir || e) {
		end_threads(l);
		pthread_join(l->writer, NULL);
		goto failed;
	}
	e = pthread_create(&l->keeper, NULL, rp_log_keeper, l);
	if (e) {
		end_threads(l);
		pthread_join(l->writer, NULL);
		pthread_join(l->syncer, NULL);
		goto failed;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return 0;
failed:
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (e) {
		snprintf(err, errlen, "can't start the request log's threads: %s", strerror(e));
		return -e;
	}
	snprintf(err, errlen,
		 "can't write into --log %s: %s (its threads have no capabilities: user %u itself "
		 "must be allowed to)",
		 l->dir_name, strerror(-dir), (unsigned)geteuid());
	return dir;
}

static int log_open(const struct rp_options *o, const struct rp_summary_info *info,
		    struct rp_timeline *tl, void **state, char *err, size_t errlen)
{
	struct rp_observer obs = { .record = on_record };
	struct rp_log *l;
	int e;

	(void)info;
	if (!o->log.dir)
		return 0;
	l = new_log(o);
	if (!l) {
		snprintf(err, errlen, "no memory for the request log");
		return -ENOMEM;
	}
	/* a limit of file sizes must be an error like a full disk */
	signal(SIGXFSZ, SIG_IGN);
	if (gethostname(l->host, sizeof(l->host)))
		l->host[0] = 0;
	l->host[sizeof(l->host) - 1] = 0;
	e = open_directory(l, err, errlen);
	if (!e && l->o.s3)
		e = rp_s3_open(l->o.s3, &l->o.s3_options, &l->s3, err, errlen);
	if (!e)
		e = start_threads(l, err, errlen);
	if (e) {
		free_log(l);
		return e;
	}
	obs.ctx = l;
	*state = l; /* from here on it is closed by the caller */
	if (rp_timeline_observe(tl, &obs)) {
		snprintf(err, errlen, "too many outputs at once");
		return -ENOSPC;
	}
	return 0;
}

static void log_tick(void *state)
{
	push(state);
}

static void log_reopen(void *state)
{
	struct rp_log *l = state;

	push(l);
	pthread_mutex_lock(&l->m);
	l->reopen = true;
	pthread_cond_signal(&l->wake);
	pthread_mutex_unlock(&l->m);
}

static void one(struct rp_expo *e, const char *name, enum rp_expo_type type, const char *help,
		uint64_t v)
{
	rp_expo_family(e, name, type, help);
	rp_expo_u64(e, NULL, 0, v);
}

static void s3_metrics(const struct rp_log_s3_stats *s, struct rp_expo *e)
{
	one(e, "reqprobe_s3_uploads_total", RP_EXPO_COUNTER,
	    "Log files that the store acknowledged.", s->uploads);
	one(e, "reqprobe_s3_upload_bytes_total", RP_EXPO_COUNTER, "Bytes of them.", s->bytes);
	rp_expo_family(e, "reqprobe_s3_errors_total", RP_EXPO_COUNTER,
		       "Uploads that failed, and are tried again, by what was wrong.");
	for (int i = RP_S3_OK + 1; i < RP_S3_CLASS_COUNT; i++) {
		struct rp_label class = { "class", rp_s3_class_names[i] };

		rp_expo_u64(e, &class, 1, s->errors[i]);
	}
	one(e, "reqprobe_s3_waiting_files", RP_EXPO_GAUGE, "Whole log files not uploaded yet.",
	    s->waiting);
	one(e, "reqprobe_s3_waiting_bytes", RP_EXPO_GAUGE, "Bytes of them.", s->waiting_bytes);
	one(e, "reqprobe_s3_dropped_files_total", RP_EXPO_COUNTER,
	    "Log files removed by --log-keep limits before they were uploaded.", s->dropped);
	if (s->last) {
		rp_expo_family(e, "reqprobe_s3_last_upload_timestamp_seconds", RP_EXPO_GAUGE,
			       "When the store last acknowledged a file.");
		rp_expo_double(e, NULL, 0, (double)s->last / 1e9);
	}
}

static void log_metrics(void *state, struct rp_expo *e)
{
	static const char *const reasons[] = { "queue", "disk" };
	struct rp_log *l = state;
	struct rp_log_s3_stats s3;
	uint64_t records, lost[2], raw, bytes, files, errors, queued, recovered,
		removed[RP_LOG_WHY_COUNT];

	pthread_mutex_lock(&l->m);
	records = l->records;
	lost[0] = l->turned_away;
	lost[1] = l->lost;
	raw = l->raw;
	bytes = l->bytes;
	files = l->files;
	errors = l->errors;
	queued = l->queued;
	recovered = l->recovered;
	memcpy(removed, l->removed, sizeof(removed));
	s3 = l->s3_stats;
	pthread_mutex_unlock(&l->m);

	one(e, "reqprobe_log_records_total", RP_EXPO_COUNTER,
	    "Records that the request log has written.", records);
	rp_expo_family(e, "reqprobe_log_records_lost_total", RP_EXPO_COUNTER,
		       "Records that it lost: the queue was full, or the disk failed.");
	for (size_t i = 0; i < 2; i++) {
		struct rp_label reason = { "reason", reasons[i] };

		rp_expo_u64(e, &reason, 1, lost[i]);
	}
	one(e, "reqprobe_log_bytes_total", RP_EXPO_COUNTER, "Bytes of lines, before compression.",
	    raw);
	one(e, "reqprobe_log_disk_bytes_total", RP_EXPO_COUNTER, "Bytes written to the disk.",
	    bytes);
	one(e, "reqprobe_log_files_total", RP_EXPO_COUNTER, "Files finished.", files);
	rp_expo_family(e, "reqprobe_log_files_removed_total", RP_EXPO_COUNTER,
		       "Files removed, by the --log-keep limit that asked for it.");
	for (int i = RP_LOG_FILES; i < RP_LOG_WHY_COUNT; i++) {
		struct rp_label reason = { "reason", rp_log_why_names[i] };

		rp_expo_u64(e, &reason, 1, removed[i]);
	}
	one(e, "reqprobe_log_files_recovered_total", RP_EXPO_COUNTER,
	    "Files of killed runs that were cut to whole lines and finished.", recovered);
	one(e, "reqprobe_log_write_errors_total", RP_EXPO_COUNTER,
	    "Times that the disk refused; each is tried again.", errors);
	one(e, "reqprobe_log_queue_bytes", RP_EXPO_GAUGE, "Lines waiting for the disk.", queued);
	one(e, "reqprobe_log_queue_limit_bytes", RP_EXPO_GAUGE, "What may wait.", l->o.queue_bytes);
	if (l->s3)
		s3_metrics(&s3, e);
}

static bool wait_for(struct rp_log *l, const bool *done, uint64_t by)
{
	struct timespec t = until(by);
	bool yes;

	pthread_mutex_lock(&l->m);
	while (!*done && rp_now_ns() < by)
		pthread_cond_timedwait(&l->changed, &l->m, &t);
	yes = *done;
	pthread_mutex_unlock(&l->m);
	return yes;
}

static int log_finish(void *state)
{
	struct rp_log *l = state;
	uint64_t lost, waiting, now = rp_now_ns();
	/* who stops a replay does not wait for a disk that it has waited for */
	uint64_t exit_ns = l->patient && rp_stopping() ? NS : EXIT_NS;
	bool written, named, uploaded;

	push(l);
	pthread_mutex_lock(&l->m);
	l->stop = true;
	l->stop_by = now + exit_ns;
	pthread_cond_signal(&l->wake);
	pthread_cond_signal(&l->sync);
	pthread_cond_signal(&l->work);
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->m);
	written = wait_for(l, &l->writer_done, now + exit_ns + 2 * NS);
	named = wait_for(l, &l->syncer_done, now + exit_ns + 2 * NS);
	now = rp_now_ns();
	pthread_mutex_lock(&l->m);
	l->stop_by = now + (uint64_t)l->o.s3_exit_ns;
	pthread_cond_signal(&l->work);
	pthread_mutex_unlock(&l->m);
	if (l->s3)
		rp_s3_deadline(l->s3, now + (uint64_t)l->o.s3_exit_ns);
	uploaded = wait_for(l, &l->keeper_done,
			    now + (l->s3 && named ? (uint64_t)l->o.s3_exit_ns + 2 * NS : NS));
	pthread_mutex_lock(&l->m);
	lost = l->turned_away + l->lost;
	for (struct rp_log_block *b = l->first; b; b = b->next)
		lost += b->records;
	if (written && l->current)
		lost += l->current->records;
	waiting = l->s3_stats.waiting;
	pthread_mutex_unlock(&l->m);
	if (!written)
		rp_say("%s does not answer: what it has not taken yet is lost", l->dir_name);
	else if (!named)
		rp_say("%s takes too long: files that are written have no name yet; the next run "
		       "with the same --log finishes them",
		       l->dir_name);
	if (lost)
		rp_say("the request log lost %llu records", (unsigned long long)lost);
	if (l->s3 && (waiting || !uploaded))
		rp_say("%llu log files are not uploaded: they stay in %s, and the next run with "
		       "the same --log and --s3 uploads them",
		       (unsigned long long)waiting, l->dir_name);
	return lost || !written ? -EIO : 0;
}

static void log_close(void *state)
{
	struct rp_log *l = state;
	uint64_t by;
	bool done;

	end_threads(l); /* also where finish was never called */
	if (l->s3)
		rp_s3_deadline(l->s3, 1);
	by = rp_now_ns() + NS;
	done = wait_for(l, &l->writer_done, by) && wait_for(l, &l->syncer_done, by) &&
	       wait_for(l, &l->keeper_done, by);
	if (!done)
		return; /* one hangs in the kernel: what it holds must stay */
	pthread_join(l->writer, NULL);
	pthread_join(l->syncer, NULL);
	pthread_join(l->keeper, NULL);
	free_log(l);
}

const struct rp_output rp_log_output = {
	.name = "log",
	.open = log_open,
	.tick = log_tick,
	.reopen = log_reopen,
	.metrics = log_metrics,
	.finish = log_finish,
	.close = log_close,
};

/* ---- limits ---- */

void rp_log_defaults(struct rp_log_options *o)
{
	*o = (struct rp_log_options){
		.s3_exit_ns = 10 * (int64_t)NS,
		.rotate_bytes = 64u << 20,
		.rotate_ns = 3600 * (int64_t)NS,
		.keep_bytes = 10ULL << 30,
		.fsync_ns = 5 * (int64_t)NS,
		.compress = RP_LOG_ZSTD,
	};
}

uint64_t rp_log_memory(const struct rp_log_options *o, uint64_t memory)
{
	uint64_t q = o->queue_bytes	      ? o->queue_bytes :
		     memory / 4 < QUEUE_BYTES ? memory / 4 :
						QUEUE_BYTES;

	return o->dir ? q + OTHER_BYTES : 0;
}
