/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Choices: 1 a credentials file, else a page of a listing; the rest is unused. */
#include "fuzz.h"

#include "log/s3.h"

static int take(void *ctx, const struct rp_s3_object *o)
{
	unsigned *left = ctx;

	CHECK(strlen(o->key) <= RP_S3_KEY_MAX);
	return --*left ? 0 : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char token[RP_S3_KEY_MAX], id[64], secret[64], session[64], *text;
	unsigned left = 100;

	if (size < 4)
		return 0;
	text = malloc(size - 3);
	CHECK(text);
	memcpy(text, data + 4, size - 4);
	text[size - 4] = 0;
	if (data[0] & 1) {
		if (!rp_s3_profile(text, "default", id, secret, session, sizeof(id)))
			CHECK(*id && *secret);
		CHECK(memchr(session, 0, sizeof(session)));
	} else {
		/* at its very end: an overrun is one of the heap */
		char *exact = malloc(size - 4 ? size - 4 : 1);

		CHECK(exact);
		memcpy(exact, text, size - 4);
		rp_s3_parse_list(exact, size - 4, take, &left, token);
		CHECK(memchr(token, 0, sizeof(token)));
		free(exact);
	}
	free(text);
	return 0;
}
