/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* doctor.h - what can be seen on this machine and in these processes, and why not. */
#ifndef REQPROBE_DOCTOR_H
#define REQPROBE_DOCTOR_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Prints the kernel's features, then each process tree (RP_MAX_PIDS at most), and at the
 * end a line for each with what a watch will give; without pids, the engines that run here.
 * Attaches nothing to the processes. Returns the exit status: 0; 3 a required feature is
 * missing or denied, or a process may not be looked at; 4 a pid does not exist or has no listening socket
 * in its tree (stronger than 3).
 */
int rp_doctor(const uint32_t *pids, size_t n, FILE *out);

#endif
