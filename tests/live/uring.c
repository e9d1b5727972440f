/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * uring.c - an HTTP server that does all socket I/O through io_uring (accept,
 * receive, send: no system call per byte moved), one connection at a time:
 *
 *     uring TOKENS GAP_MS
 *
 * answers each POST with a chunked stream of TOKENS events. Prints "listening
 * PORT", or "unsupported" and exits with 77 when the kernel has no io_uring.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ENTRIES 8

static struct {
	int fd;
	_Atomic unsigned *sq_tail, *cq_head, *cq_tail;
	unsigned *sq_mask, *cq_mask, *sq_array;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
} ring;

static bool ring_init(void)
{
	struct io_uring_params p = { 0 };
	char *sq, *cq;

	ring.fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &p);
	if (ring.fd < 0)
		return false;
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * sizeof(unsigned), PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
		  PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_CQ_RING);
	ring.sqes = mmap(NULL, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || ring.sqes == MAP_FAILED)
		return false;
	ring.sq_tail = (void *)(sq + p.sq_off.tail);
	ring.sq_mask = (void *)(sq + p.sq_off.ring_mask);
	ring.sq_array = (void *)(sq + p.sq_off.array);
	ring.cq_head = (void *)(cq + p.cq_off.head);
	ring.cq_tail = (void *)(cq + p.cq_off.tail);
	ring.cq_mask = (void *)(cq + p.cq_off.ring_mask);
	ring.cqes = (void *)(cq + p.cq_off.cqes);
	return true;
}

/* One operation, waited for. Its result, or a negative errno. */
static int op(uint8_t code, int fd, void *buf, unsigned len)
{
	unsigned tail = atomic_load(ring.sq_tail), i = tail & *ring.sq_mask, head;
	struct io_uring_sqe *e = &ring.sqes[i];
	int res;

	memset(e, 0, sizeof(*e));
	e->opcode = code;
	e->fd = fd;
	e->addr = (uintptr_t)buf;
	e->len = len;
	ring.sq_array[i] = i;
	atomic_store(ring.sq_tail, tail + 1);
	while (syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		if (errno != EINTR)
			return -errno;
	head = atomic_load(ring.cq_head);
	if (head == atomic_load(ring.cq_tail))
		return -EIO;
	res = ring.cqes[head & *ring.cq_mask].res;
	atomic_store(ring.cq_head, head + 1);
	return res;
}

static bool send_all(int fd, char *p, size_t n)
{
	while (n) {
		int w = op(IORING_OP_SEND, fd, p, (unsigned)n);

		if (w <= 0)
			return false;
		p += w;
		n -= (size_t)w;
	}
	return true;
}

static bool send_event(int fd, const char *data)
{
	char out[1024];
	int n = snprintf(out, sizeof(out), "%zx\r\n%s\r\n", strlen(data), data);

	return send_all(fd, out, (size_t)n);
}

static void serve(int fd, int tokens, int gap_ms)
{
	static char in[1 << 20];
	char head[] =
		"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
	char last[] = "0\r\n\r\n", data[512];
	struct timespec gap = { .tv_sec = gap_ms / 1000, .tv_nsec = gap_ms % 1000 * 1000000L };
	size_t len = 0;

	for (;;) {
		char *eoh = NULL, *cl;
		size_t need;
		int n;

		for (;;) {
			in[len] = 0;
			eoh = strstr(in, "\r\n\r\n");
			cl = eoh ? strcasestr(in, "content-length:") : NULL;
			need = eoh ? (size_t)(eoh + 4 - in) +
					       (cl && cl < eoh ? strtoul(cl + 15, NULL, 10) : 0) :
				     sizeof(in);
			if (eoh && len >= need)
				break;
			n = op(IORING_OP_RECV, fd, in + len, (unsigned)(sizeof(in) - 1 - len));
			if (n <= 0)
				return;
			len += (size_t)n;
		}
		memmove(in, in + need, len - need);
		len -= need;
		if (!send_all(fd, head, strlen(head)))
			return;
		for (int i = 0; i < tokens; i++) {
			nanosleep(&gap, NULL);
			snprintf(
				data, sizeof(data),
				"data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,"
				"\"delta\":{\"content\":\"t%d\"},\"finish_reason\":null}]}\n\n",
				i);
			if (!send_event(fd, data))
				return;
		}
		if (!send_event(fd, "data: [DONE]\n\n") || !send_all(fd, last, strlen(last)))
			return;
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t al = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int tokens = argc > 1 ? atoi(argv[1]) : 5, gap_ms = argc > 2 ? atoi(argv[2]) : 10;

	if (l < 0 || bind(l, (struct sockaddr *)&a, al) || listen(l, 64) ||
	    getsockname(l, (struct sockaddr *)&a, &al)) {
		perror("uring");
		return 1;
	}
	if (!ring_init()) {
		printf("unsupported\n");
		return 77;
	}
	printf("listening %d\n", ntohs(a.sin_port));
	fflush(stdout);
	for (;;) {
		int fd = op(IORING_OP_ACCEPT, l, NULL, 0);

		if (fd < 0)
			continue;
		serve(fd, tokens, gap_ms);
		close(fd);
	}
}
