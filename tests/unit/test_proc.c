// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* proc.c against real processes of our own: no root needed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/proc.h"

static char dir[64];

static int make_dir(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/rp-test-proc-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

/* The tree may be deeper than PATH_MAX, so go down by descriptor. */
static void remove_below(int fd)
{
	static const char *const names[] = { "so",	    "a b",  "new\nline", "back\\012slash",
					     "x (deleted)", "gone", "sock",	 NULL };
	char deep[201];
	size_t i;
	int sub;

	for (i = 0; names[i]; i++)
		unlinkat(fd, names[i], 0);
	memset(deep, 'd', 200);
	deep[200] = '\0';
	sub = openat(fd, deep, O_RDONLY | O_DIRECTORY);
	if (sub >= 0) {
		remove_below(sub);
		close(sub);
		unlinkat(fd, deep, AT_REMOVEDIR);
	}
}

static int drop_dir(void **state)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY);

	(void)state;
	if (fd >= 0) {
		remove_below(fd);
		close(fd);
	}
	return rmdir(dir);
}

static void test_parse_self(void **state)
{
	struct rp_proc p;

	(void)state;
	assert_int_equal(rp_proc_read(getpid(), &p), 0);
	assert_int_equal(p.pid, getpid());
	assert_int_equal(p.ppid, getppid());
	assert_true(p.start_time > 0);
	assert_non_null(p.exe);
	assert_true(p.cmdline_len > 0);
	assert_true(p.n_objects >= 2); /* the program and libc */
	assert_false(p.is_go);
	assert_int_equal(p.seccomp >= 0, 1);
	rp_proc_free(&p);
	rp_proc_free(&p); /* twice is harmless */
}

static void test_strange_comm(void **state)
{
	struct rp_proc p;
	char c;
	int fds[2];
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		FILE *f = fopen("/proc/self/comm", "w");

		fputs("a) R 1 (b\nc", f);
		fclose(f);
		(void)!write(fds[1], "x", 1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(fds[0], &c, 1), 1);
	assert_int_equal(rp_proc_read(pid, &p), 0);
	assert_int_equal(p.ppid, getpid());
	assert_int_equal(strncmp(p.comm, "a) R 1 (b", 9), 0);
	rp_proc_free(&p);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fds[0]);
	close(fds[1]);
}

/* A command line of many pages: whole, to its last argument. */
static void test_long_command(void **state)
{
	static char text[20000];
	static const char *const names[] = { "--last", NULL };
	struct rp_proc p;
	int in[2], out[2];
	pid_t pid;
	char c;

	(void)state;
	memset(text, 't', sizeof(text) - 1);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		execl("/bin/sh", "sh", "-c", "echo; read x", "sh", text, "--last", "16", NULL);
		_exit(1);
	}
	assert_int_equal(read(out[0], &c, 1), 1);
	assert_int_equal(rp_proc_read(pid, &p), 0);
	assert_string_equal(rp_proc_arg(&p, 4), text);
	assert_string_equal(rp_proc_option(&p, names), "16");
	assert_string_equal(rp_proc_arg(&p, 7), "");
	rp_proc_free(&p);
	for (int i = 0; i < 2; i++) {
		close(in[i]);
		close(out[i]);
	}
	waitpid(pid, NULL, 0);
}

/* Tells its id on fds[1], ends when fds[2] can be read (cancelling upsets ASan). */
static void *sleeper(void *arg)
{
	pid_t tid = syscall(SYS_gettid);
	int *fds = arg;
	char c;

	(void)!write(fds[1], &tid, sizeof(tid));
	(void)!read(fds[2], &c, 1);
	return NULL;
}

static void test_not_a_process(void **state)
{
	struct rp_proc p;
	uint32_t *tree;
	pthread_t t;
	pid_t tid, pid;
	int fds[4], i;

	(void)state;
	assert_int_equal(rp_proc_read(0, &p), -ESRCH);
	assert_int_equal(rp_proc_read(UINT32_MAX, &p), -ESRCH);
	assert_int_equal(rp_proc_tree(UINT32_MAX, &tree), -ESRCH);
	/* a thread of this process */
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(pipe(fds + 2), 0);
	assert_int_equal(pthread_create(&t, NULL, sleeper, fds), 0);
	assert_int_equal(read(fds[0], &tid, sizeof(tid)), sizeof(tid));
	assert_int_equal(rp_proc_read(tid, &p), -ESRCH);
	assert_int_equal(rp_proc_tree(tid, &tree), -ESRCH);
	assert_int_equal(write(fds[3], "x", 1), 1);
	pthread_join(t, NULL);
	/* a zombie */
	pid = fork();
	if (!pid)
		_exit(0);
	assert_int_equal(waitid(P_PID, pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	assert_int_equal(rp_proc_alive(pid), -ESRCH);
	assert_int_equal(rp_proc_read(pid, &p), -ESRCH);
	waitpid(pid, NULL, 0);
	for (i = 0; i < 4; i++)
		close(fds[i]);
}

/* The leader has left, its group lives on. */
static void test_leader_gone(void **state)
{
	pid_t pid, tid;
	int fds[4], i;
	char path[32], buf[256];
	FILE *f;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(pipe(fds + 2), 0);
	pid = fork();
	if (!pid) {
		pthread_t t;

		pthread_create(&t, NULL, sleeper, fds);
		syscall(SYS_exit, 0);
	}
	assert_int_equal(read(fds[0], &tid, sizeof(tid)), sizeof(tid));
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (i = 0; i < 200; i++) {
		f = fopen(path, "r");
		assert_non_null(f);
		assert_non_null(fgets(buf, sizeof(buf), f));
		fclose(f);
		if (strstr(buf, ") Z "))
			break;
		usleep(10000);
	}
	assert_non_null(strstr(buf, ") Z "));
	assert_int_equal(rp_proc_alive(pid), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(rp_proc_alive(pid), -ESRCH);
	for (i = 0; i < 4; i++)
		close(fds[i]);
}

static bool in(const uint32_t *v, ssize_t n, uint32_t pid)
{
	while (n > 0)
		if (v[--n] == pid)
			return true;
	return false;
}

static void test_tree(void **state)
{
	pid_t top, sibling, kids[3], k;
	uint32_t *tree;
	ssize_t n;
	int fds[2], i;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	sibling = fork();
	if (!sibling) {
		pause();
		_exit(0);
	}
	top = fork();
	if (!top) {
		for (i = 0; i < 3; i++) {
			k = fork();
			if (!k) {
				/* the last one has a child of its own */
				if (i == 2 && !fork()) {
					pause();
					_exit(0);
				}
				k = getpid();
				(void)!write(fds[1], &k, sizeof(k));
				pause();
				_exit(0);
			}
		}
		pause();
		_exit(0);
	}
	for (i = 0; i < 3; i++)
		assert_int_equal(read(fds[0], &kids[i], sizeof(k)), sizeof(k));
	n = rp_proc_tree(top, &tree);
	assert_int_equal(n, 5);
	assert_int_equal(tree[0], top);
	for (i = 0; i < 3; i++)
		assert_true(in(tree, n, kids[i]));
	assert_false(in(tree, n, sibling));
	assert_false(in(tree, n, getpid()));
	for (i = n; i-- > 0;)
		kill(tree[i], SIGKILL);
	free(tree);
	kill(sibling, SIGKILL);
	waitpid(sibling, NULL, 0);
	waitpid(top, NULL, 0);
	assert_int_equal(rp_proc_tree(top, &tree), -ESRCH);
	close(fds[0]);
	close(fds[1]);
}

/* ---- listeners ---- */

static const struct rp_listener *find(const struct rp_listener *l, ssize_t n, int family,
				      uint16_t port, const char *path)
{
	ssize_t i;

	for (i = 0; i < n; i++)
		if (l[i].family == family && l[i].port == port &&
		    (!path || !strcmp(l[i].path, path)))
			return &l[i];
	return NULL;
}

static int tcp(int family, bool do_listen, uint16_t *port)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in a4 = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = family == AF_INET ? sizeof(a4) : sizeof(a6);
	void *a = family == AF_INET ? (void *)&a4 : (void *)&a6;
	int fd = socket(family, SOCK_STREAM, 0);

	if (fd < 0 || bind(fd, a, len)) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	assert_int_equal(getsockname(fd, a, &len), 0);
	*port = ntohs(family == AF_INET ? a4.sin_port : a6.sin6_port);
	if (do_listen)
		assert_int_equal(listen(fd, 5), 0);
	return fd;
}

static int un(int type, const char *path, size_t len)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type, 0);

	memcpy(a.sun_path, path, len);
	assert_int_equal(bind(fd, (void *)&a, offsetof(struct sockaddr_un, sun_path) + len), 0);
	assert_int_equal(listen(fd, 5), 0);
	return fd;
}

static void test_listeners(void **state)
{
	static const uint8_t lo6[16] = { [15] = 1 }, lo4[4] = { 127, 0, 0, 1 };
	uint16_t p4, p6 = 0, bound;
	const struct rp_listener *x;
	uint32_t self = getpid();
	struct rp_listener *l;
	char path[100], name[32];
	int fds[7], c;
	size_t i;
	ssize_t n;

	(void)state;
	fds[0] = tcp(AF_INET, true, &p4);
	fds[1] = tcp(AF_INET6, true, &p6);
	fds[2] = tcp(AF_INET, false, &bound);
	snprintf(path, sizeof(path), "%s/sock", dir);
	fds[3] = un(SOCK_STREAM, path, strlen(path) + 1);
	snprintf(name, sizeof(name), "%crp-test-%d", 0, getpid());
	fds[4] = un(SOCK_STREAM, name, 1 + strlen(name + 1));
	snprintf(name, sizeof(name), "%crp-seq-%d", 0, getpid());
	fds[5] = un(SOCK_SEQPACKET, name, 1 + strlen(name + 1));
	/* a connection is no listener */
	c = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(c,
				 (struct sockaddr *)&(struct sockaddr_in){
					 .sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
					 .sin_port = htons(p4) },
				 sizeof(struct sockaddr_in)),
			 0);
	fds[6] = accept(fds[0], NULL, NULL);

	n = rp_proc_listeners(&self, 1, &l);
	assert_int_equal(n, fds[1] < 0 ? 3 : 4);
	x = find(l, n, AF_INET, p4, NULL);
	assert_non_null(x);
	assert_memory_equal(x->addr, lo4, 4);
	assert_int_equal(x->pid, self);
	assert_true(x->netns > 0);
	if (fds[1] >= 0) {
		x = find(l, n, AF_INET6, p6, NULL);
		assert_non_null(x);
		assert_memory_equal(x->addr, lo6, 16);
	} else {
		print_message("SKIP: no IPv6 here\n");
	}
	assert_null(find(l, n, AF_INET, bound, NULL));
	assert_non_null(find(l, n, AF_UNIX, 0, path));
	snprintf(name, sizeof(name), "@rp-test-%d", getpid());
	assert_non_null(find(l, n, AF_UNIX, 0, name));
	free(l);
	for (i = 0; i < 7; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	close(c);
	unlink(path);

	n = rp_proc_listeners(&self, 1, &l);
	assert_int_equal(n, 0);
	free(l);
	assert_int_equal(rp_proc_listeners(&(uint32_t){ UINT32_MAX }, 1, &l), -ESRCH);
}

/* A socket that a master opened and its workers hold is told once. */
static void test_listener_of_child(void **state)
{
	struct rp_listener *l;
	uint32_t pids[2];
	uint16_t port;
	pid_t pid;
	ssize_t n;
	int fd;

	(void)state;
	fd = tcp(AF_INET, true, &port);
	pid = fork();
	if (!pid) {
		pause();
		_exit(0);
	}
	pids[0] = pid;
	pids[1] = getpid();
	n = rp_proc_listeners(pids, 2, &l);
	assert_int_equal(n, 1);
	assert_int_equal(l[0].port, port);
	assert_int_equal(l[0].pid, pid);
	free(l);
	close(fd);
	n = rp_proc_listeners(pids, 1, &l);
	assert_int_equal(n, 1);
	free(l);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- maps ---- */

static void *map_exec(int at, const char *name)
{
	int fd = openat(at, name, O_RDWR | O_CREAT | O_TRUNC, 0755);
	void *m;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	m = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	close(fd);
	return m == MAP_FAILED ? NULL : m;
}

static const struct rp_object *at(const struct rp_proc *p, const void *start)
{
	size_t i;

	for (i = 0; i < p->n_objects; i++)
		if (p->objects[i].start == (uintptr_t)start)
			return &p->objects[i];
	return NULL;
}

static void test_maps_names(void **state)
{
	static const char *const names[] = { "a b", "new\nline", "back\\012slash", "x (deleted)",
					     "gone" };
	const struct rp_object *o;
	struct rp_proc p;
	void *m[5];
	char want[128];
	struct stat st;
	int d, fd;
	size_t i;

	(void)state;
	d = open(dir, O_RDONLY | O_DIRECTORY);
	for (i = 0; i < 5; i++) {
		m[i] = map_exec(d, names[i]);
		if (!m[i]) {
			print_message("SKIP: %s is mounted noexec\n", dir);
			close(d);
			skip();
		}
	}
	assert_int_equal(fstatat(d, "a b", &st, 0), 0);
	assert_int_equal(unlinkat(d, "gone", 0), 0);
	assert_int_equal(rp_proc_read(getpid(), &p), 0);
	for (i = 0; i < 5; i++) {
		o = at(&p, m[i]);
		assert_non_null(o);
		snprintf(want, sizeof(want), "%s/%s", dir, names[i]);
		assert_string_equal(o->path, want);
		assert_int_equal(o->deleted, i == 4);
		assert_int_equal(o->end - o->start, 4096);
		fd = rp_object_open(&p, o);
		/* a deleted file opens through map_files alone, which wants a capability */
		assert_true(fd >= 0 || (i == 4 && geteuid()));
		if (fd >= 0)
			close(fd);
	}
	o = at(&p, m[0]);
	assert_true(o->ino == st.st_ino);
	rp_proc_free(&p);
	for (i = 0; i < 5; i++)
		munmap(m[i], 4096);
	close(d);
}

/* Deeper than PATH_MAX: maps still tells the whole of it. */
static void test_maps_long_name(void **state)
{
	char part[201], want[8192];
	const struct rp_object *o;
	struct rp_proc p;
	size_t len;
	int d, sub, i;
	void *m;

	(void)state;
	memset(part, 'd', 200);
	part[200] = '\0';
	len = snprintf(want, sizeof(want), "%s", dir);
	d = open(dir, O_RDONLY | O_DIRECTORY);
	for (i = 0; i < 25; i++) {
		if (mkdirat(d, part, 0755) && errno != EEXIST)
			fail();
		sub = openat(d, part, O_RDONLY | O_DIRECTORY);
		assert_true(sub >= 0);
		close(d);
		d = sub;
		len += snprintf(want + len, sizeof(want) - len, "/%s", part);
	}
	m = map_exec(d, "so");
	close(d);
	if (!m) {
		print_message("SKIP: %s is mounted noexec\n", dir);
		skip();
	}
	snprintf(want + len, sizeof(want) - len, "/so");
	assert_true(strlen(want) > PATH_MAX);
	assert_int_equal(rp_proc_read(getpid(), &p), 0);
	o = at(&p, m);
	assert_non_null(o);
	assert_string_equal(o->path, want);
	assert_false(o->deleted);
	rp_proc_free(&p);
	munmap(m, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse_self),   cmocka_unit_test(test_strange_comm),
		cmocka_unit_test(test_long_command), cmocka_unit_test(test_not_a_process),
		cmocka_unit_test(test_leader_gone),  cmocka_unit_test(test_tree),
		cmocka_unit_test(test_listeners),    cmocka_unit_test(test_listener_of_child),
		cmocka_unit_test(test_maps_names),   cmocka_unit_test(test_maps_long_name),
	};

	return cmocka_run_group_tests_name("proc", tests, make_dir, drop_dir);
}
