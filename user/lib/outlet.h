/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * outlet.h - lines to a pipe, a terminal or a socket whose reader may be slow, or may
 * have stopped it (Ctrl-S): nothing here waits unless it is told to. What finds no room
 * waits in memory, up to a limit; what is beyond that is dropped, whole lines only, and
 * counted. No lock: one thread at a time.
 *
 * O_NONBLOCK would be of the file description, which other processes have, too: a pipe
 * or a terminal is opened anew for it, a socket has MSG_DONTWAIT, and where neither can
 * be had poll(2) is asked before a write of at most PIPE_BUF.
 */
#ifndef REQPROBE_OUTLET_H
#define REQPROBE_OUTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum rp_outlet_how {
	RP_OUTLET_PLAIN,  /* a file: written as ever */
	RP_OUTLET_OWN,	  /* fd is our own, O_NONBLOCK */
	RP_OUTLET_SOCKET, /* MSG_DONTWAIT */
	RP_OUTLET_POLLED,
};

struct rp_outlet {
	int fd;
	enum rp_outlet_how how;
	char *buf; /* n bytes wait; max is the limit */
	size_t n, max;
	bool torn;	  /* the first of them is the rest of a line */
	uint64_t dropped; /* lines, in all */
};

/* fd stays the caller's. -ENOMEM. */
int rp_outlet_open(struct rp_outlet *o, int fd, size_t max);
/* How fd can be written to without waiting: RP_OUTLET_OWN makes *own, to be closed. */
enum rp_outlet_how rp_outlet_way(int fd, int *own);
/* Whole lines, the '\n' with them, at most max bytes. False: dropped. */
bool rp_outlet_put(struct rp_outlet *o, const char *p, size_t n);
/* What waits, as far as it goes now. True: nothing waits. An error other than "not now"
 * drops it. */
bool rp_outlet_flush(struct rp_outlet *o);
/* The same, for at most ms milliseconds. */
bool rp_outlet_drain(struct rp_outlet *o, unsigned ms);
/* write(2) that does not wait, past what does: only fd and how are looked at. May be called
 * in a signal handler. */
ssize_t rp_outlet_write(const struct rp_outlet *o, const char *p, size_t n);
void rp_outlet_close(struct rp_outlet *o);

#endif
