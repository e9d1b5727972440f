// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* /metrics and clients that are slow, silent, many, or ask for gzip. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "lib/clock.h"
#include "sink/sink.h"

#define SECOND 1000000000ULL

/* ---- a page of any size, made when the gate is open ---- */

struct maker {
	size_t size;
	pthread_mutex_t gate;
	_Atomic unsigned began, made;
};

static char *make(void *ctx, enum rp_expo_format format, size_t *len)
{
	struct maker *m = ctx;
	unsigned number = atomic_fetch_add(&m->began, 1);
	char *p = malloc(m->size + 1);

	(void)format;
	pthread_mutex_lock(&m->gate);
	pthread_mutex_unlock(&m->gate);
	if (!p)
		return NULL;
	memset(p, 'x', m->size);
	for (size_t i = 0; i < m->size && i < 1 << 20; i++)
		p[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[(i * i + number) % 36];
	*len = m->size;
	atomic_fetch_add(&m->made, 1);
	return p;
}

static struct rp_httpd *serve(struct maker *m, size_t size, const struct rp_httpd_opts *o)
{
	struct rp_httpd *h;
	char err[200];

	m->size = size;
	m->began = m->made = 0;
	pthread_mutex_init(&m->gate, NULL);
	assert_int_equal(rp_httpd_start("127.0.0.1:0", o, make, m, &h, err, sizeof(err)), 0);
	return h;
}

/* ---- clients ---- */

static int dial(const struct rp_httpd *h)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port =
					 htons((uint16_t)atoi(strrchr(rp_httpd_url(h), ':') + 1)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval tv = { .tv_sec = 20 };
	int fd = socket(AF_INET, SOCK_STREAM, 0), little = 4096;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static int begin(const struct rp_httpd *h, const char *path, const char *headers)
{
	char request[300];
	int fd = dial(h), n;

	n = snprintf(request, sizeof(request),
		     "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", path, headers);
	assert_int_equal(send(fd, request, (size_t)n, MSG_NOSIGNAL), n);
	return fd;
}

/* All of the answer; the body's length in *body, its start is returned. Freed via *all. */
static char *take(int fd, char **all, size_t *body)
{
	size_t cap = 1 << 16, n = 0;
	ssize_t k;
	char *p;

	*all = malloc(cap + 1);
	while ((k = recv(fd, *all + n, cap - n, 0)) > 0) {
		n += (size_t)k;
		if (n == cap)
			*all = realloc(*all, (cap *= 2) + 1);
	}
	close(fd);
	(*all)[n] = '\0';
	p = strstr(*all, "\r\n\r\n");
	assert_non_null(p);
	*body = n - (size_t)(p + 4 - *all);
	return p + 4;
}

static size_t bytes(int fd)
{
	char *all;
	size_t n;

	take(fd, &all, &n);
	free(all);
	return n;
}

/* Of an answer that was begun: head and body. */
static size_t rest(int fd)
{
	char buf[65536];
	size_t n = 0;
	ssize_t k;

	while ((k = recv(fd, buf, sizeof(buf), 0)) > 0)
		n += (size_t)k;
	close(fd);
	return n;
}

static void healthy(const struct rp_httpd *h)
{
	char *all, *body;
	size_t n;

	body = take(begin(h, "/healthz", ""), &all, &n);
	assert_string_equal(body, "ok\n");
	free(all);
}

static struct rp_httpd_stats until(struct rp_httpd *h, enum rp_httpd_cut what, uint64_t at_least)
{
	uint64_t end = rp_now_ns() + 20 * SECOND;
	struct rp_httpd_stats s;

	for (;;) {
		rp_httpd_stats(h, &s);
		if (s.cut[what] >= at_least)
			return s;
		if (rp_now_ns() > end)
			fail_msg("%s: %d, not %d", rp_httpd_cut_names[what], (int)s.cut[what],
				 (int)at_least);
		usleep(10000);
	}
}

static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += dup2(fd, fd) == fd;
	return n;
}

/* ---- tests ---- */

#define PAGE (6u << 20) /* more than the kernel keeps for who does not read */

/* Each asks when the one before has its page, and takes no more of it. */
static void test_who_does_not_read(void **st)
{
	const struct rp_httpd_opts o = { .held_max = 2 * PAGE };
	struct rp_httpd_stats s = { 0 };
	struct rp_httpd *h;
	struct maker m;
	int fd[20], fds = open_fds();
	char c;

	(void)st;
	h = serve(&m, PAGE, &o);
	for (int i = 0; i < 20; i++) {
		fd[i] = begin(h, "/metrics", "");
		assert_int_equal(recv(fd[i], &c, 1, 0), 1);
		rp_httpd_stats(h, &s);
		assert_true(s.held_bytes <= o.held_max);
		assert_true(s.held_bytes > 0);
	}
	assert_int_equal(m.made, 20);
	assert_int_equal(s.cut[RP_HTTPD_MEMORY], 18);
	healthy(h);
	/* who reads has it all; of the slow ones the last before, but not the first */
	assert_int_equal(bytes(begin(h, "/metrics", "")), PAGE);
	assert_true(rest(fd[0]) < PAGE);
	assert_true(rest(fd[19]) > PAGE);
	for (int i = 1; i < 19; i++)
		close(fd[i]);
	rp_httpd_stop(h);
	assert_int_equal(open_fds(), fds);
}

/* However many wait, they get one page, and /healthz does not wait at all. */
static void test_shared(void **st)
{
	const struct rp_httpd_opts o = { 0 };
	struct rp_httpd *h;
	struct maker m;
	int fd[30];

	(void)st;
	h = serve(&m, 1000, &o);
	pthread_mutex_lock(&m.gate);
	fd[0] = begin(h, "/metrics", "");
	while (!m.began)
		usleep(1000);
	for (int i = 1; i < 30; i++)
		fd[i] = begin(h, "/metrics", "");
	healthy(h); /* and so the requests before it were read */
	pthread_mutex_unlock(&m.gate);
	for (int i = 0; i < 30; i++)
		assert_int_equal(bytes(fd[i]), 1000);
	/* the first one's had begun before the others asked */
	assert_int_equal(m.made, 2);
	rp_httpd_stop(h);
}

static void test_deadline(void **st)
{
	const struct rp_httpd_opts o = { .held_max = 100 * PAGE, .send_ms = 300 };
	struct rp_httpd_stats s;
	struct rp_httpd *h;
	struct maker m;
	size_t n;
	uint64_t t;
	int a, b;

	(void)st;
	h = serve(&m, PAGE, &o);
	t = rp_now_ns();
	a = begin(h, "/metrics", "");
	b = begin(h, "/metrics", "");
	s = until(h, RP_HTTPD_SLOW, 2);
	assert_true(rp_now_ns() - t < 8 * SECOND); /* the deadline's, not that of 10 s idle */
	assert_int_equal(s.cut[RP_HTTPD_MEMORY], 0);
	n = bytes(a);
	assert_true(n < PAGE);
	bytes(b);
	while (s.held_bytes)
		rp_httpd_stats(h, &s);
	healthy(h);
	rp_httpd_stop(h);
}

/* A place is found for the newest, whoever sits in the others: some slow, some silent. */
static void test_connections(void **st)
{
	const struct rp_httpd_opts o = { .held_max = 100 * PAGE };
	struct rp_httpd_stats s;
	struct rp_httpd *h;
	struct maker m;
	uint64_t t;
	int fd[260];

	(void)st;
	h = serve(&m, PAGE, &o);
	for (int i = 0; i < 20; i++)
		fd[i] = begin(h, "/metrics", "");
	for (int i = 20; i < 260; i++)
		fd[i] = dial(h);
	t = rp_now_ns();
	healthy(h);
	assert_true(rp_now_ns() - t < 8 * SECOND); /* sooner than any of them is idle for long */
	rp_httpd_stats(h, &s);
	assert_true(s.cut[RP_HTTPD_CONNECTIONS] >= 260 - 160);
	for (int i = 0; i < 260; i++)
		close(fd[i]);
	rp_httpd_stop(h);
}

/* All places are taken by who does not read his page: not for the 30 s that he has else. */
static void test_slow_crowd(void **st)
{
	const struct rp_httpd_opts o = { .held_max = 100 * PAGE };
	struct rp_httpd *h;
	struct maker m;
	uint64_t t;
	int fd[210];

	(void)st;
	h = serve(&m, PAGE, &o);
	pthread_mutex_lock(&m.gate);
	for (int i = 0; i < 210; i++)
		fd[i] = begin(h, "/metrics", "");
	pthread_mutex_unlock(&m.gate);
	t = rp_now_ns();
	healthy(h);
	assert_true(rp_now_ns() - t < 8 * SECOND);
	for (int i = 0; i < 210; i++)
		close(fd[i]);
	rp_httpd_stop(h);
}

/* However many wait for a page, none of them is cut off, nor is who asks for /healthz. */
static void test_waiting_crowd(void **st)
{
	const struct rp_httpd_opts o = { 0 };
	int fd[140], silent[60];
	struct rp_httpd_stats s;
	struct rp_httpd *h;
	struct maker m;

	(void)st;
	h = serve(&m, 1000, &o);
	pthread_mutex_lock(&m.gate);
	for (int i = 0; i < 140; i++) {
		fd[i] = begin(h, "/metrics", "");
		if (i % 10 == 9)
			healthy(h);
	}
	/* in the places that are left, too, the quiet go first */
	for (int i = 0; i < 60; i++)
		silent[i] = dial(h);
	usleep(1200000); /* longer than who does not wait may take in a crowd */
	for (int i = 0; i < 30; i++)
		healthy(h);
	assert_int_equal(m.made, 0);
	rp_httpd_stats(h, &s);
	assert_true(s.cut[RP_HTTPD_CONNECTIONS] >= 60 - 32);
	pthread_mutex_unlock(&m.gate);
	for (int i = 0; i < 140; i++)
		assert_int_equal(bytes(fd[i]), 1000);
	for (int i = 0; i < 60; i++)
		close(silent[i]);
	rp_httpd_stop(h);
}

/* More than there are places, each over one connection, again and again: a turn each. */
static void test_turns(void **st)
{
	static const char again[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
				    "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
				    "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
	const struct rp_httpd_opts o = { 0 };
	struct rp_httpd *h;
	struct maker m;
	int fd[300], one;
	uint64_t t;

	(void)st;
	h = serve(&m, 1000, &o);
	pthread_mutex_lock(&m.gate);
	for (int i = 0; i < 300; i++) {
		fd[i] = dial(h);
		assert_int_equal(send(fd[i], again, sizeof(again) - 1, MSG_NOSIGNAL),
				 sizeof(again) - 1);
		if (i < 140 && i % 10 == 9)
			healthy(h); /* and so those before it were accepted */
	}
	one = begin(h, "/metrics", "");
	pthread_mutex_unlock(&m.gate);
	t = rp_now_ns();
	assert_int_equal(bytes(one), 1000);
	assert_true(rp_now_ns() - t < 8 * SECOND); /* before any of them is idle for long */
	/* those after the crowd have their three */
	for (int i = 0; i < 100; i++)
		assert_int_equal(bytes(fd[i]), 1000);
	for (int i = 100; i < 300; i++)
		close(fd[i]);
	rp_httpd_stop(h);
}

static void test_gzip(void **st)
{
	const struct rp_httpd_opts o = { 0 };
	struct rp_httpd *h;
	struct maker m;
	char *all, *body, text[200000];
	size_t n;
	z_stream z = { 0 };

	(void)st;
	h = serve(&m, sizeof(text) - 1, &o);
	body = take(begin(h, "/metrics", "Accept-Encoding: deflate, gzip\r\n"), &all, &n);
	assert_non_null(strstr(all, "\r\nContent-Encoding: gzip\r\n"));
	assert_non_null(strstr(all, "\r\nVary: Accept, Accept-Encoding\r\n"));
	assert_true(n < sizeof(text) / 4);
	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
	z.next_in = (Bytef *)body;
	z.avail_in = (uInt)n;
	z.next_out = (Bytef *)text;
	z.avail_out = sizeof(text);
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	assert_int_equal(z.total_out, sizeof(text) - 1);
	for (size_t i = 0; i < sizeof(text) - 1; i++)
		assert_int_equal(text[i], "0123456789abcdefghijklmnopqrstuvwxyz"[i * i % 36]);
	inflateEnd(&z);
	free(all);
	/* not asked for, not sent */
	body = take(begin(h, "/metrics", "Accept-Encoding: identity\r\n"), &all, &n);
	assert_null(strstr(all, "Content-Encoding"));
	assert_int_equal(n, sizeof(text) - 1);
	free(all);
	rp_httpd_stop(h);
}

static void *stop(void *h)
{
	rp_httpd_stop(h);
	return NULL;
}

/* The end does not wait for clients: one who waits for a page, one who does not read. */
static void test_end(void **st)
{
	const struct rp_httpd_opts o = { 0 };
	int fds = open_fds(), a, b;
	struct rp_httpd *h;
	struct maker m;
	pthread_t t;
	char c;

	(void)st;
	h = serve(&m, PAGE, &o);
	a = begin(h, "/metrics", "");
	assert_int_equal(recv(a, &c, 1, 0), 1);
	pthread_mutex_lock(&m.gate);
	b = begin(h, "/metrics", "");
	while (m.began < 2)
		usleep(1000);
	assert_int_equal(pthread_create(&t, NULL, stop, h), 0);
	usleep(20000);
	pthread_mutex_unlock(&m.gate);
	pthread_join(t, NULL);
	close(a);
	close(b);
	assert_int_equal(open_fds(), fds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_does_not_read),
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_connections),
		cmocka_unit_test(test_slow_crowd),
		cmocka_unit_test(test_waiting_crowd),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_gzip),
		cmocka_unit_test(test_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
