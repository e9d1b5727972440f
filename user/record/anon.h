/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * anon.h - --anonymous: what of a record can point to a person or a session, made
 * unable to. Applied once, before any output sees the record.
 *
 *  - `x_request_id`, `id` and each of `request_ids` (engines build theirs from the
 *    client's) become the hash that llm-runtime-metrics makes of a request id:
 *    BLAKE3 of "pm-b10-request-id-v1" and the id, 64 hex digits. With a key file: the
 *    same bytes under keyed BLAKE3, its key the BLAKE3 of the file's contents, as that
 *    package has it for a salt. Absent ids stay absent.
 *  - the client's address keeps its first 24 bits (IPv4, also when mapped into IPv6) or
 *    48 bits (IPv6); the port goes.
 */
#ifndef REQPROBE_RECORD_ANON_H
#define REQPROBE_RECORD_ANON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/record.h"

#define RP_ANON_KEY_MAX 4096 /* bytes of a key file; a newline at its end is no part of it */

struct rp_anon {
	bool keyed;
	uint8_t key[32];
};

/* file: the key's, or NULL for none. -errno and one line in err; -EINVAL: empty or too
 * long. */
int rp_anon_init(struct rp_anon *a, const char *file, char *err, size_t errlen);
/* out: 64 hex digits and a NUL. */
void rp_anon_id(const struct rp_anon *a, const char *id, char out[65]);
void rp_anon_record(const struct rp_anon *a, struct rp_record *r);

#endif
