// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* replay.c - the verb `replay`: a recording -> the same records. */
#include "run.h"

int rp_replay(const struct rp_options *o)
{
	struct rp_run r;
	char err[512];
	int st, e;

	st = rp_run_open(&r, o);
	if (st)
		goto cleanup;
	e = rp_rec_replay(o->file, rp_run_event, &r, err, sizeof(err));
	rp_run_finish(&r);
	if (e) {
		rp_say("%s", err);
		st = RP_EXIT_FAILED;
	}
	if (!e && !r.stopped)
		rp_say("%s has no end mark: it was cut short, by a full disk or a kill", o->file);
	if (r.jsonl_failed || r.output_failed)
		st = RP_EXIT_FAILED;
cleanup:
	rp_run_close(&r);
	return st;
}
