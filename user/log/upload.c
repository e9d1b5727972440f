// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * upload.c - the keeper: finishes what a killed run left, then uploads whole files,
 * the oldest first. The directory is the queue: what lies in it is to be uploaded, at
 * the next start, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/clock.h"
#include "log/internal.h"
#include "run.h"

#define NS 1000000000ULL
#define BACKOFF_MIN_NS NS
#define BACKOFF_MAX_NS (60 * NS)

static void recover(struct rp_log *l)
{
	uint64_t files = 0, lines = 0, n;

	for (const char *name = l->partial; *name; name += strlen(name) + 1) {
		int r = rp_log_recover(l->dir, name, &n);

		if (r) {
			rp_say("can't finish %s/.%s.partial, which a killed run left: %s; the next "
			       "start tries again",
			       l->dir_name, name, strerror(-r));
			continue;
		}
		files += n > 0;
		lines += n;
	}
	if (files && !l->quiet)
		rp_say("a run before this one was cut short: %llu files with %llu records were "
		       "finished in %s",
		       (unsigned long long)files, (unsigned long long)lines, l->dir_name);
	pthread_mutex_lock(&l->m);
	l->recovered = files;
	l->recovered_lines = lines;
	pthread_mutex_unlock(&l->m);
}

struct queue {
	char after[RP_LOG_NAME_MAX]; /* it failed: the next one has its turn first */
	uint64_t backoff;	     /* ns; 0: nothing failed */
	uint64_t retry_at;
	enum rp_s3_class said;
	unsigned seed;
};

/* The file whose turn it is, into name. False: there is none. */
static bool next_file(struct rp_log *l, const struct queue *q, char name[RP_LOG_NAME_MAX])
{
	struct rp_log_entry *e;
	uint64_t bytes = 0;
	size_t n, at = 0;

	if (rp_log_scan(l->dir, -1, &e, &n))
		return false;
	for (size_t i = 0; i < n; i++) {
		bytes += e[i].size;
		if (q->after[0] && !strcmp(e[i].name, q->after))
			at = (i + 1) % n;
	}
	if (n)
		memcpy(name, e[at].name, RP_LOG_NAME_MAX);
	free(e);
	pthread_mutex_lock(&l->m);
	l->s3_stats.waiting = n;
	l->s3_stats.waiting_bytes = bytes;
	pthread_mutex_unlock(&l->m);
	return n > 0;
}

static void mark(struct rp_log *l, const char *name)
{
	pthread_mutex_lock(&l->fs);
	snprintf(l->uploading, sizeof(l->uploading), "%s", name);
	pthread_mutex_unlock(&l->fs);
}

/* 0: it is in the store, and no more here. -ENOENT: it was removed meanwhile. */
static int upload(struct rp_log *l, const char *name, struct rp_s3_error *e)
{
	char key[RP_S3_KEY_MAX];
	struct stat st;
	int64_t now;
	int fd = -1, r;

	memset(e, 0, sizeof(*e));
	e->class = RP_S3_FILE;
	mark(l, name); /* the syncer leaves it alone from here on */
	if (!rp_log_key(rp_s3_prefix(l->s3), name, key, sizeof(key))) {
		r = -ENAMETOOLONG;
		goto cleanup;
	}
	fd = openat(l->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st)) {
		r = -errno;
		goto cleanup;
	}
	r = rp_s3_put(l->s3, key, fd, (uint64_t)st.st_size, e);
	if (r == -ENOENT) /* of the store: a bucket */
		r = -ENODEV;
	if (r)
		goto cleanup;
	now = rp_clock_ns(CLOCK_REALTIME);
	pthread_mutex_lock(&l->m);
	l->s3_stats.uploads++;
	l->s3_stats.bytes += (uint64_t)st.st_size;
	l->s3_stats.last = now;
	pthread_mutex_unlock(&l->m);
	if (l->up >= 0 ? renameat(l->dir, name, l->up, name) : unlinkat(l->dir, name, 0)) {
		r = -errno;
		e->class = RP_S3_FILE;
		snprintf(e->line, sizeof(e->line), "uploaded, but it can't be removed: %s",
			 strerror(-r));
	}
cleanup:
	if (r && !e->line[0])
		snprintf(e->line, sizeof(e->line), "the local file: %s", strerror(-r));
	if (fd >= 0)
		close(fd);
	mark(l, "");
	return r;
}

static void failed(struct rp_log *l, struct queue *q, const char *name, const struct rp_s3_error *e)
{
	if (e->class == RP_S3_STOPPED)
		return;
	snprintf(q->after, sizeof(q->after), "%s", name);
	q->backoff = q->backoff * 2 < BACKOFF_MIN_NS ? BACKOFF_MIN_NS :
		     q->backoff * 2 > BACKOFF_MAX_NS ? BACKOFF_MAX_NS :
						       q->backoff * 2;
	/* hosts that lost the same store don't come back in step */
	q->retry_at = rp_now_ns() + q->backoff / 2 +
		      q->backoff / 2 * ((uint64_t)rand_r(&q->seed) % 1024) / 1024;
	pthread_mutex_lock(&l->m);
	l->s3_stats.errors[e->class]++;
	pthread_mutex_unlock(&l->m);
	if (q->said != e->class)
		rp_say("can't upload to %s: %s; the files wait in %s and are tried again",
		       rp_s3_url(l->s3), e->line, l->dir_name);
	q->said = e->class;
}

static void succeeded(struct rp_log *l, struct queue *q)
{
	if (q->said != RP_S3_OK && !l->quiet)
		rp_say("uploads to %s work again", rp_s3_url(l->s3));
	q->said = RP_S3_OK;
	q->backoff = 0;
	q->after[0] = 0;
	atomic_store(&l->drop_said, false);
}

/* Until there may be something to do. True: the end, and its time is over. */
static bool rest(struct rp_log *l, const struct queue *q, bool idle, uint64_t *seen)
{
	uint64_t at = idle ? rp_now_ns() + 60 * NS : q->retry_at;
	struct timespec t;
	bool over;

	pthread_mutex_lock(&l->m);
	for (;;) {
		/* towards the end waiting is short */
		if (l->stop && q->backoff && at > rp_now_ns() + BACKOFF_MIN_NS)
			at = rp_now_ns() + BACKOFF_MIN_NS;
		over = l->stop && (l->syncer_done || !l->s3) &&
		       (idle ? l->published == *seen : rp_now_ns() >= l->stop_by);
		if (over || rp_now_ns() >= at || (idle && l->published != *seen))
			break;
		t = (struct timespec){ .tv_sec = (time_t)(at / NS), .tv_nsec = (long)(at % NS) };
		pthread_cond_timedwait(&l->work, &l->m, &t);
	}
	*seen = l->published;
	pthread_mutex_unlock(&l->m);
	return over;
}

void *rp_log_keeper(void *log)
{
	struct rp_log *l = log;
	struct queue q = { .seed = (unsigned)rp_now_ns() ^ (unsigned)getpid() };
	uint64_t seen = 0;
	bool over = false;

	rp_log_thread("log-keeper");
	recover(l);
	while (!over) {
		char name[RP_LOG_NAME_MAX];
		struct rp_s3_error e;
		bool some;
		int r;

		pthread_mutex_lock(&l->m);
		seen = l->published;
		pthread_mutex_unlock(&l->m);
		some = l->s3 && next_file(l, &q, name);
		if (!some) {
			over = rest(l, &q, true, &seen);
			continue;
		}
		r = upload(l, name, &e);
		if (!r) {
			succeeded(l, &q);
		} else if (r != -ENOENT) {
			failed(l, &q, name, &e);
			over = rest(l, &q, false, &seen);
		}
	}
	pthread_mutex_lock(&l->m);
	l->keeper_done = true;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->m);
	return NULL;
}
