// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * page replay RECORDING [OPTION...] - /metrics as it is at the end of a recording, on
 * standard output; options as of `reqprobe replay`. What only a kernel tells is not in it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "run.h"

int main(int argc, char **argv)
{
	struct rp_prom_opts po = { .max_models = 32 };
	struct rp_prom_process x = { .more = rp_run_metrics };
	struct rp_options o;
	struct rp_run r;
	char err[512] = "";
	char *text = NULL;
	size_t len;
	int st;

	rp_options_parse(argc, argv, &o);
	if (o.verb != RP_VERB_REPLAY)
		rp_refuse("page replay RECORDING [OPTION...]");
	st = rp_run_open(&r, &o);
	if (st)
		goto cleanup;
	st = RP_EXIT_FAILED;
	r.prom = rp_prom_new(&po);
	if (!r.prom || rp_rec_replay(o.file, rp_run_event, &r, err, sizeof(err))) {
		rp_say("%s", r.prom ? err : "no memory");
		goto cleanup;
	}
	x.ctx = &r;
	x.engine = r.info.engine;
	x.table = r.info.table;
	text = rp_prom_render(r.prom, rp_timeline_stats(r.tl), &x, &len);
	rp_run_finish(&r);
	if (text && fwrite(text, 1, len, stdout) == len && !fflush(stdout))
		st = RP_EXIT_OK;
cleanup:
	free(text);
	rp_run_close(&r);
	return st;
}
