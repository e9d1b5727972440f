// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* replay.c - the verb `replay`: a recording -> the same records. */
#include <errno.h>

#include "run.h"

static int event(void *run, const struct rp_event_hdr *ev)
{
	return rp_stopping() ? -EINTR : rp_run_event(run, ev);
}

int rp_replay(const struct rp_options *o)
{
	struct rp_run r;
	char err[512];
	int st, e;

	rp_stop_on_signals(false);
	rp_say_never_wait();
	st = rp_run_open(&r, o);
	if (st)
		goto cleanup;
	e = rp_rec_replay(o->file, event, &r, err, sizeof(err));
	rp_run_finish(&r);
	if (e && rp_stopping())
		rp_say("stopped by a signal: the rest of %s was not read", o->file);
	else if (e)
		rp_say("%s", err);
	if (!e && !r.stopped)
		rp_say("%s has no end mark: it was cut short, by a full disk or a kill", o->file);
	if (e || !r.stopped || rp_run_lost(&r))
		st = RP_EXIT_FAILED;
cleanup:
	rp_run_close(&r);
	rp_say_end();
	return st;
}
