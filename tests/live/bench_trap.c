/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bench_trap.c - what one hit of an engine hook costs the engine: calls a
 * function with the name of one of llama-server's in a loop. A line on stdin
 * with a number runs that many calls and prints the nanoseconds of each. Run
 * it without a probe, attach, run it again. "pushed" (the default): a function
 * that begins with a push, "stepped": one that does not.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#if defined(__x86_64__)
#define SAVED "rbx", "r12", "r13"
#else
#define SAVED "x19", "x20", "x21"
#endif

#define launch _ZN19server_context_impl21launch_slot_with_taskER11server_slotO11server_task
#define token _ZN19server_context_impl13process_tokenER23completion_token_outputR11server_slot

void launch(void *self, void *slot, void *task);
void token(void *self, void *out, void *slot);

/* stepped: its first instruction is a return */
__attribute__((noinline, used)) void launch(void *self, void *slot, void *task)
{
	__asm__ volatile("# launch" : : "r"(self), "r"(slot), "r"(task) : "memory");
}

/* pushed: saves registers, as most functions do */
__attribute__((noinline, used)) void token(void *self, void *out, void *slot)
{
	__asm__ volatile("# token" : : "r"(self), "r"(out), "r"(slot) : "memory", SAVED);
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t al = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int slot[4] = { 0 }, out[4] = { 7 };
	int stepped = argc > 1 && !strcmp(argv[1], "stepped");
	char line[64];

	if (l < 0 || bind(l, (struct sockaddr *)&a, al) || listen(l, 16) ||
	    getsockname(l, (struct sockaddr *)&a, &al))
		return 1;
	printf("listening %d\n", ntohs(a.sin_port));
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		int n = atoi(line);
		int64_t t0 = now();

		for (int i = 0; i < n; i++) {
			if (stepped)
				launch(NULL, slot, slot);
			else
				token(NULL, out, slot);
		}
		printf("%.1f\n", (double)(now() - t0) / n);
		fflush(stdout);
	}
	return 0;
}
