/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* given.h - options as they stand in argv, before argp takes them apart. */
#ifndef REQPROBE_GIVEN_H
#define REQPROBE_GIVEN_H

#include <argp.h>
#include <stdbool.h>

#define RP_GIVEN_MAX 128

struct rp_given {
	const struct argp_option *o[RP_GIVEN_MAX]; /* each once */
	unsigned n;
};

/*
 * Goes over argv as getopt_long(3) does with the options of a and its children. A long
 * option that is only the beginning of one is wrong usage (rp_refuse()): getopt would
 * take it, until a later version has another that begins like that. What is no option at
 * all is left to argp, which refuses it but may name another: its index in argv, or 0.
 * g: filled with what was given, or NULL.
 */
int rp_given(const struct argp *a, int argc, char **argv, struct rp_given *g);

/* --help of a, on stdout: columns that fit, no note on arguments. flags: as of argp_help(). */
void rp_help(const struct argp *a, unsigned flags, const char *name);

#endif
