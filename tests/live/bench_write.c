// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * bench_write - what does one write(2) of a 230-byte chunk on a loopback TCP
 * connection cost its caller? Run it with and without the probe on its pid.
 *
 *   bench_write ROUNDS [WRITES] [RATE]
 *
 * Each round is WRITES calls in a row (default 1000; they must fit the socket's
 * buffer), after which the reader thread empties the socket. RATE > 0 paces the
 * calls, per second; the clock is then read around each, and its cost, measured
 * in each round, subtracted. The connection begins with an HTTP request, so that a probe sees
 * a response. Prints one line: median, quartiles, minimum over the rounds, in
 * nanoseconds per write.
 *
 * Waits on stdin for a line before it starts when BENCH_WAIT is set, so that a
 * probe can be attached first; prints its pid and port at once.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK 230

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static sem_t drain, drained;
static int writes_per_round;

/*
 * Empties the socket between rounds, not during them: a reader that holds the
 * socket's lock now and then makes the cost of a write(2) jump between two
 * values, and the median with it.
 */
static void *reader(void *arg)
{
	static char buf[1 << 18];
	int fd = *(int *)arg;
	size_t left;
	ssize_t n;

	for (;;) {
		sem_wait(&drain);
		left = (size_t)writes_per_round * CHUNK;
		while (left > 0) {
			n = recv(fd, buf, left < sizeof(buf) ? left : sizeof(buf), 0);
			if (n <= 0)
				return NULL;
			left -= (size_t)n;
		}
		sem_post(&drained);
	}
}

static void empty_socket(void)
{
	sem_post(&drain);
	sem_wait(&drained);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void put(int fd, const char *chunk)
{
	if (write(fd, chunk, CHUNK) != CHUNK)
		die("write");
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 100;
	int writes = argc > 2 ? atoi(argv[2]) : 1000;
	double rate = argc > 3 ? atof(argv[3]) : 0;
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	static const char request[] = "GET /bench HTTP/1.1\r\nHost: bench\r\n\r\n";
	int ls, client, server, big = 8 << 20, one = 1, i, r;
	socklen_t len = sizeof(a);
	char chunk[CHUNK], line[256];
	uint64_t t0, t1, total = 0, begin, next;
	pthread_t th;
	double *ns;

	writes_per_round = writes;
	sem_init(&drain, 0, 0);
	sem_init(&drained, 0, 0);
	if (rounds < 1 || writes < 1) {
		fprintf(stderr, "usage: bench_write ROUNDS [WRITES] [RATE]\n");
		return 2;
	}
	ns = calloc((size_t)rounds, sizeof(*ns));
	ls = socket(AF_INET, SOCK_STREAM, 0);
	if (!ns || ls < 0 || bind(ls, (void *)&a, sizeof(a)) || listen(ls, 1) ||
	    getsockname(ls, (void *)&a, &len))
		die("listen");
	printf("pid %d port %d\n", getpid(), ntohs(a.sin_port));
	fflush(stdout);
	if (getenv("BENCH_WAIT") && !fgets(line, sizeof(line), stdin))
		return 1;
	client = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(client, SOL_SOCKET, SO_RCVBUF, &big, sizeof(big));
	if (connect(client, (void *)&a, sizeof(a)))
		die("connect");
	server = accept(ls, NULL, NULL);
	if (server < 0)
		die("accept");
	setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(server, SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
	if (send(client, request, sizeof(request) - 1, 0) < 0 ||
	    read(server, line, sizeof(line)) < 0)
		die("request");
	if (pthread_create(&th, NULL, reader, &client))
		die("thread");
	memset(chunk, 'x', sizeof(chunk));
	memcpy(chunk, "data: {", 7);

	for (i = 0; i < writes; i++) /* cold run, not counted */
		put(server, chunk);
	empty_socket();
	begin = next = now();
	for (r = 0; r < rounds; r++) {
		uint64_t spent = 0, empty;

		t0 = now();
		for (i = 0; i < writes; i++)
			now();
		empty = now() - t0;
		if (rate <= 0) {
			t0 = now();
			for (i = 0; i < writes; i++)
				put(server, chunk);
			spent = now() - t0;
			ns[r] = (double)spent / writes;
		} else {
			for (i = 0; i < writes; i++) {
				next += (uint64_t)(1e9 / rate);
				while ((t1 = now()) < next)
					;
				put(server, chunk);
				spent += now() - t1;
			}
			ns[r] = ((double)spent - (double)empty) / writes;
		}
		total += (uint64_t)writes;
		empty_socket();
	}
	begin = now() - begin;
	qsort(ns, (size_t)rounds, sizeof(*ns), by_value);
	printf("ns/write median %.0f q1 %.0f q3 %.0f min %.0f; %llu writes, %.0f/s\n",
	       ns[rounds / 2], ns[rounds / 4], ns[rounds * 3 / 4], ns[0], (unsigned long long)total,
	       (double)total / ((double)begin / 1e9));
	shutdown(server, SHUT_WR);
	sem_post(&drain);
	pthread_join(th, NULL);
	close(server);
	close(client);
	close(ls);
	free(ns);
	return 0;
}
