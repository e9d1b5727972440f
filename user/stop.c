// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* stop.c - the signals that end a run, or ask for files to be opened again. */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "lib/clock.h"
#include "run.h"

/* timeout(1) and sudo(8) pass a signal on to a group that has it already. */
#define SAME_SIGNAL_NS 100000000ULL

static volatile sig_atomic_t stop, hup;
static volatile uint64_t stopped_at;

static void on_signal(int sig)
{
	int saved = errno;

	if (sig == SIGHUP) {
		hup = 1;
	} else if (!stop) {
		stopped_at = rp_now_ns();
		stop = 1;
	} else if (rp_now_ns() - stopped_at > SAME_SIGNAL_NS) {
		rp_say_at_once("reqprobe: a second signal: ended at once, what was not yet "
			       "written is lost\n");
		_exit(RP_EXIT_FAILED); /* the kernel takes the links down with us */
	}
	errno = saved;
}

void rp_stop_on_signals(bool with_hup)
{
	const struct sigaction sa = { .sa_handler = on_signal };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	if (with_hup)
		sigaction(SIGHUP, &sa, NULL);
}

bool rp_stopping(void)
{
	return stop;
}

bool rp_hup_taken(void)
{
	bool yes = hup;

	hup = 0;
	return yes;
}
