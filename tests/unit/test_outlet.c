// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Lines to readers that are slow, stopped or gone: nothing waits, nothing is torn. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/outlet.h"
#include "run.h"

#define SECOND 1000000000ULL
#define MAX 4096u

/* What is at the other end now, at most a MiB. */
static char *read_all(int fd, size_t *n)
{
	char *p = malloc((1 << 20) + 1);
	ssize_t k;

	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	*n = 0;
	while ((k = read(fd, p + *n, (1 << 20) - *n)) > 0)
		*n += (size_t)k;
	p[*n] = '\0';
	return p;
}

/* Lines "NUMBER xxx...\n", numbers rising: returns how many. */
static uint64_t whole(const char *p, unsigned *last, bool cr)
{
	uint64_t lines = 0;

	while (*p) {
		const char *nl = strchr(p, '\n');
		unsigned i;
		int used;

		assert_non_null(nl);
		assert_int_equal(sscanf(p, "%u %n", &i, &used), 1);
		assert_true(!lines || i > *last);
		*last = i;
		assert_int_equal(nl - p - used - cr, 20 + i * 7 % 90);
		assert_int_equal(strspn(p + used, "x"), 20 + i * 7 % 90);
		lines++;
		p = nl + 1;
	}
	return lines;
}

static bool say(struct rp_outlet *o, unsigned i)
{
	char line[200];
	int n = snprintf(line, sizeof(line), "%u %.*s\n", i, (int)(20 + i * 7 % 90),
			 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
			 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");

	return rp_outlet_put(o, line, (size_t)n);
}

/* Ten thousand lines to one who does not read, then he reads what is there; more lines. */
static void slow(int to, int from, enum rp_outlet_how how, bool force, bool cr)
{
	int flags = fcntl(to, F_GETFL);
	uint64_t t = rp_now_ns(), taken = 0, got = 0;
	struct rp_outlet o;
	unsigned last = 0;
	char *text;
	size_t n;

	assert_int_equal(rp_outlet_open(&o, to, MAX), 0);
	if (force) { /* as where a pipe can't be opened anew */
		assert_int_equal(o.how, RP_OUTLET_OWN);
		close(o.fd);
		o.fd = to;
		o.how = how;
	}
	assert_int_equal(o.how, how);
	for (unsigned i = 0; i < 10000; i++)
		taken += say(&o, i);
	assert_true(rp_now_ns() - t < 10 * SECOND);
	assert_int_equal(taken + o.dropped, 10000);
	assert_true(o.dropped > 1000);
	assert_true(o.n && o.n <= MAX);
	/* nobody else finds it changed */
	assert_int_equal(fcntl(to, F_GETFL), flags);
	t = rp_now_ns();
	assert_false(rp_outlet_drain(&o, 50));
	assert_true(rp_now_ns() - t >= SECOND / 25);
	/* he reads, and writes go on where they stopped */
	for (unsigned i = 10000; i < 10100; i++) {
		char *all = NULL;
		size_t have = 0;

		do {
			text = read_all(from, &n);
			all = realloc(all, have + n + 1);
			memcpy(all + have, text, n + 1);
			have += n;
			free(text);
		} while (!rp_outlet_flush(&o) || n);
		if (have)
			got += whole(all, &last, cr);
		free(all);
		taken += say(&o, i);
	}
	assert_true(rp_outlet_drain(&o, 1000));
	text = read_all(from, &n);
	got += whole(text, &last, cr);
	free(text);
	assert_int_equal(last, 10099);
	assert_int_equal(got, taken);
	assert_int_equal(got + o.dropped, 10100);
	rp_outlet_close(&o);
}

static void test_pipe(void **s)
{
	int fd[2];

	(void)s;
	for (int polled = 0; polled < 2; polled++) {
		assert_int_equal(pipe(fd), 0);
		slow(fd[1], fd[0], polled ? RP_OUTLET_POLLED : RP_OUTLET_OWN, polled, false);
		close(fd[0]);
		close(fd[1]);
	}
}

static void test_socket(void **s)
{
	int fd[2];

	(void)s;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	slow(fd[1], fd[0], RP_OUTLET_SOCKET, false, false);
	close(fd[0]);
	close(fd[1]);
}

/* One that nobody reads is as good as one that Ctrl-S has stopped. */
static void test_terminal(void **s)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY), slave;
	struct rp_outlet o;

	(void)s;
	assert_true(master >= 0);
	assert_int_equal(grantpt(master), 0);
	assert_int_equal(unlockpt(master), 0);
	slave = open(ptsname(master), O_RDWR | O_NOCTTY);
	assert_true(slave >= 0);
	slow(slave, master, RP_OUTLET_OWN, false, true);
	/* stopped */
	assert_int_equal(tcflow(slave, TCOOFF), 0);
	assert_int_equal(rp_outlet_open(&o, slave, MAX), 0);
	for (unsigned i = 0; i < 1000; i++)
		say(&o, i);
	assert_true(o.dropped > 0);
	assert_int_equal(tcflow(slave, TCOON), 0);
	rp_outlet_close(&o);
	close(slave);
	close(master);
}

/* A file is written as ever; a reader that is gone costs the lines, and no signal. */
static void test_file_and_gone(void **s)
{
	char path[] = "/tmp/reqprobe-outlet-XXXXXX";
	int fd = mkstemp(path), p[2];
	struct rp_outlet o;
	struct stat st;

	(void)s;
	unlink(path);
	assert_int_equal(rp_outlet_open(&o, fd, MAX), 0);
	assert_int_equal(o.how, RP_OUTLET_PLAIN);
	for (unsigned i = 0; i < 1000; i++)
		assert_true(say(&o, i));
	assert_int_equal(o.n, 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(st.st_size > 60000);
	rp_outlet_close(&o);
	assert_int_equal(fcntl(fd, F_GETFD), 0); /* the caller's */
	close(fd);

	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(pipe(p), 0);
	assert_int_equal(rp_outlet_open(&o, p[1], MAX), 0);
	close(p[0]);
	say(&o, 1);
	say(&o, 2);
	assert_int_equal(o.dropped, 2);
	assert_int_equal(o.n, 0);
	rp_outlet_close(&o);
	close(p[1]);
	signal(SIGPIPE, SIG_DFL);
}

/* ---- rp_say() on a stderr that nobody reads ---- */

static void *many(void *arg)
{
	for (int i = 0; i < 1000; i++)
		rp_say("line %s%d of many, and this is what it says", (const char *)arg, i);
	return NULL;
}

static void test_say(void **s)
{
	int fd[2], err = dup(STDERR_FILENO);
	uint64_t t = rp_now_ns(), dropped, lines = 0;
	size_t n, have = 0;
	pthread_t other;
	char *all, *end;

	(void)s;
	assert_int_equal(pipe(fd), 0);
	dup2(fd[1], STDERR_FILENO);
	close(fd[1]);
	rp_say_never_wait();
	pthread_create(&other, NULL, many, "b");
	many("a");
	pthread_join(other, NULL);
	t = rp_now_ns() - t;
	rp_say_at_once("reqprobe: never seen\n");
	dropped = rp_say_dropped();
	/* he reads again: what waited comes, how many are missing, and what is said now */
	all = calloc(1, 1);
	for (bool said = false; !said || n;) {
		char *text = read_all(fd[0], &n);

		all = realloc(all, have + n + 1);
		memcpy(all + have, text, n + 1);
		have += n;
		free(text);
		rp_say_flush();
		if (!n && !said) {
			rp_say("the last");
			said = true;
			n = 1;
		}
	}
	for (const char *p = all; (p = strstr(p, "reqprobe: line ")); p++)
		lines++;
	end = strstr(all, "in time: ");
	rp_say_end();
	dup2(err, STDERR_FILENO);
	close(err);
	close(fd[0]);
	assert_true(t < 10 * SECOND);
	assert_true(dropped > 100);
	assert_int_equal(lines + dropped, 2000);
	assert_non_null(end);
	assert_int_equal(strtoull(end + 9, NULL, 10), dropped);
	assert_string_equal(strchr(end, '\n'), "\nreqprobe: the last\n");
	free(all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pipe),	 cmocka_unit_test(test_socket),
		cmocka_unit_test(test_terminal), cmocka_unit_test(test_file_and_gone),
		cmocka_unit_test(test_say),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
