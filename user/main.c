// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* main.c - the verbs, nothing else. */
#include <locale.h>
#include <stdlib.h>

#include "engine/doctor.h"
#include "engine/proc.h"
#include "options.h"
#include "run.h"

int main(int argc, char **argv)
{
	struct rp_options o;

	setlocale(LC_CTYPE, "");
	rp_options_parse(argc, argv, &o);
	switch (o.verb) {
	case RP_VERB_DOCTOR:
		return rp_doctor(o.pids, o.n_pids, stdout);
	case RP_VERB_REPLAY:
		return rp_replay(&o);
	default:
		return rp_watch(&o);
	}
}
