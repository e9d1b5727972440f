/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a receiver of OTLP answers. Choices: 1 JSON; the rest is not used. */
#include "fuzz.h"

#include "otlp/send.h"
#include "otlp/spans.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rp_otlp_partial p;
	struct rp_otlp_parent parent;
	uint8_t *copy;
	char *text;

	if (size < 4)
		return 0;
	/* its end is the end of the allocation */
	copy = malloc(size - 4 ? size - 4 : 1);
	text = malloc(size - 4 + 1);
	CHECK(copy && text);
	memcpy(copy, data + 4, size - 4);
	memcpy(text, data + 4, size - 4);
	text[size - 4] = '\0';
	memset(&p, 0x5a, sizeof(p));
	if (!rp_otlp_parse_response(data[0] & 1, copy, size - 4, &p))
		CHECK(!p.rejected && !*p.message);
	CHECK(p.rejected >= 0 && memchr(p.message, 0, sizeof(p.message)));
	for (const char *c = p.message; *c; c++)
		CHECK(*c >= 0x20 && *c < 0x7f);
	if (rp_otlp_traceparent(text, &parent))
		CHECK(strlen(text) >= 55);
	free(copy);
	free(text);
	return 0;
}
