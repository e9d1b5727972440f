// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * say.c - lines for people, on stderr. Whoever reads that may be slow, or gone to
 * lunch with the terminal stopped: a thread that drains the ring must not wait for it.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/outlet.h"
#include "run.h"

#define WAITING (32u << 10) /* bytes, beside what a pipe takes */
#define END_MS 500

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rp_outlet out = { .fd = -1 };
static uint64_t told; /* dropped lines that were owned up to */

void rp_say_never_wait(void)
{
	pthread_mutex_lock(&lock);
	if (out.fd < 0 && rp_outlet_open(&out, STDERR_FILENO, WAITING))
		out.fd = -1; /* no memory: as before */
	pthread_mutex_unlock(&lock);
}

/* Lines are missing: said as soon as there is room again. */
static void own_up(void)
{
	char line[160];
	int n;

	if (out.dropped == told || !rp_outlet_flush(&out))
		return;
	n = snprintf(line, sizeof(line),
		     "reqprobe: nobody read these lines in time: %llu are missing here\n",
		     (unsigned long long)(out.dropped - told));
	told = out.dropped;
	rp_outlet_put(&out, line, (size_t)n);
}

void rp_say(const char *fmt, ...)
{
	char line[1024] = "reqprobe: ";
	size_t n = strlen(line);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	va_end(ap);
	n = strlen(line);
	line[n++] = '\n';
	pthread_mutex_lock(&lock);
	if (out.fd >= 0) {
		own_up();
		rp_outlet_put(&out, line, n);
	} else {
		fwrite(line, 1, n, stderr);
	}
	pthread_mutex_unlock(&lock);
}

void rp_say_flush(void)
{
	pthread_mutex_lock(&lock);
	if (out.fd >= 0) {
		rp_outlet_flush(&out);
		own_up();
	}
	pthread_mutex_unlock(&lock);
}

uint64_t rp_say_dropped(void)
{
	uint64_t n;

	pthread_mutex_lock(&lock);
	n = out.dropped;
	pthread_mutex_unlock(&lock);
	return n;
}

void rp_say_end(void)
{
	pthread_mutex_lock(&lock);
	if (out.fd >= 0) {
		rp_outlet_drain(&out, END_MS);
		own_up();
		rp_outlet_close(&out);
	}
	pthread_mutex_unlock(&lock);
}

void rp_say_at_once(const char *line)
{
	struct rp_outlet now = { .fd = out.fd, .how = out.how };

	if (now.fd >= 0 && rp_outlet_write(&now, line, strlen(line)) < 0)
		return; /* nobody reads it: then nobody is told */
}
