// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "record/anon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/blake3.h"

static const char domain[] = "pm-b10-request-id-v1";

int rp_anon_init(struct rp_anon *a, const char *file, char *err, size_t errlen)
{
	uint8_t buf[RP_ANON_KEY_MAX + 1];
	struct rp_blake3 h;
	size_t n = 0;
	ssize_t got;
	int fd, e;

	memset(a, 0, sizeof(*a));
	if (!file)
		return 0;
	fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0) {
		e = -errno;
		snprintf(err, errlen, "can't read the key %s: %s", file, strerror(-e));
		return e;
	}
	while (n < sizeof(buf) && (got = read(fd, buf + n, sizeof(buf) - n)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			e = -errno;
			snprintf(err, errlen, "can't read the key %s: %s", file, strerror(-e));
			goto cleanup;
		}
		n += (size_t)got;
	}
	e = -EINVAL;
	if (n > RP_ANON_KEY_MAX) {
		snprintf(err, errlen, "the key %s is longer than %d bytes", file, RP_ANON_KEY_MAX);
		goto cleanup;
	}
	if (n && buf[n - 1] == '\n')
		n--;
	if (!n) {
		snprintf(err, errlen, "the key %s is empty", file);
		goto cleanup;
	}
	rp_blake3_init(&h);
	rp_blake3_update(&h, buf, n);
	rp_blake3_final(&h, a->key);
	a->keyed = true;
	explicit_bzero(&h, sizeof(h));
	e = 0;
cleanup:
	explicit_bzero(buf, sizeof(buf));
	close(fd);
	return e;
}

void rp_anon_id(const struct rp_anon *a, const char *id, char out[65])
{
	uint8_t hash[RP_BLAKE3_LEN];
	struct rp_blake3 h;

	if (a->keyed)
		rp_blake3_init_keyed(&h, a->key);
	else
		rp_blake3_init(&h);
	rp_blake3_update(&h, domain, sizeof(domain) - 1);
	rp_blake3_update(&h, id, strlen(id));
	rp_blake3_final(&h, hash);
	rp_blake3_hex(hash, out);
}

static void hide(const struct rp_anon *a, char *id)
{
	_Static_assert(RP_ID_MAX >= 65 && RP_XREQID_MAX >= 65 && RP_ENGINE_ID_MAX >= 65,
		       "a hash has room where the id was");
	char out[65];

	if (!*id)
		return;
	rp_anon_id(a, id, out);
	memcpy(id, out, sizeof(out));
}

void rp_anon_record(const struct rp_anon *a, struct rp_record *r)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	unsigned keep = r->family == AF_INET			  ? 3 :
			!memcmp(r->raddr, mapped, sizeof(mapped)) ? 15 :
								    6;

	hide(a, r->id);
	hide(a, r->x_request_id);
	for (unsigned i = 0; i < r->n_request_ids && i < RP_REQUEST_IDS; i++)
		hide(a, r->request_ids[i]);
	memset(r->raddr + keep, 0, sizeof(r->raddr) - keep);
	r->rport = 0;
}
