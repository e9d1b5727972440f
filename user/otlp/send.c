// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "otlp/send.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <zlib.h>

#include "lib/clock.h"
#include "run.h"

#define FIRST_BACKOFF_MS 500
#define LONGEST_BACKOFF_MS 30000
#define LONGEST_AFTER_S 300
#define AGENT "OTel-OTLP-Exporter-reqprobe/" RP_VERSION

/* ---- what a receiver answers ---- */

/* For a line on a terminal: nothing that could steer it. */
static void take_message(struct rp_otlp_partial *out, const char *s, size_t n)
{
	size_t i;

	for (i = 0; i < n && i + 1 < sizeof(out->message); i++)
		out->message[i] = (char)((unsigned char)s[i] < 0x20 || (unsigned char)s[i] > 0x7e ?
						 '?' :
						 s[i]);
	out->message[i] = '\0';
}

static bool varint(const uint8_t **p, const uint8_t *end, uint64_t *v)
{
	*v = 0;
	for (int shift = 0; shift < 64; shift += 7) {
		uint8_t c;

		if (*p == end)
			return false;
		c = *(*p)++;
		*v |= (uint64_t)(c & 0x7f) << shift;
		if (!(c & 0x80))
			return true;
	}
	return false;
}

/* Goes over one message's fields; fn gets those of wire types 0 and 2. */
static bool fields(const uint8_t *p, size_t n, void *ctx,
		   bool (*fn)(void *ctx, uint64_t field, uint64_t v, const uint8_t *s))
{
	const uint8_t *end = p + n;
	uint64_t tag, v;

	while (p < end) {
		if (!varint(&p, end, &tag) || !(tag >> 3))
			return false;
		switch (tag & 7) {
		case 0:
			if (!varint(&p, end, &v) || !fn(ctx, tag >> 3, v, NULL))
				return false;
			break;
		case 1:
		case 5:
			v = (tag & 7) == 1 ? 8 : 4;
			if ((uint64_t)(end - p) < v)
				return false;
			p += v;
			break;
		case 2:
			if (!varint(&p, end, &v) || v > (uint64_t)(end - p) ||
			    !fn(ctx, tag >> 3, v, p))
				return false;
			p += v;
			break;
		default:
			return false;
		}
	}
	return true;
}

/* ExportMetricsPartialSuccess, ExportTracePartialSuccess: 1 rejected, 2 message */
static bool partial_field(void *ctx, uint64_t field, uint64_t v, const uint8_t *s)
{
	struct rp_otlp_partial *out = ctx;

	if (field == 1 && !s)
		out->rejected = (int64_t)v;
	else if (field == 2 && s)
		take_message(out, (const char *)s, v);
	return true;
}

static bool response_field(void *ctx, uint64_t field, uint64_t v, const uint8_t *s)
{
	return field != 1 || !s || fields(s, v, ctx, partial_field);
}

bool rp_otlp_parse_response(bool json, const uint8_t *p, size_t n, struct rp_otlp_partial *out)
{
	json_t *all, *part, *rejected, *message;
	bool ok = true;

	memset(out, 0, sizeof(*out));
	if (!n)
		return true;
	if (!json) {
		ok = fields(p, n, out, response_field);
	} else {
		all = json_loadb((const char *)p, n, 0, NULL);
		ok = json_is_object(all);
		part = json_object_get(all, "partialSuccess");
		rejected = json_object_get(part, "rejectedDataPoints");
		if (!rejected)
			rejected = json_object_get(part, "rejectedSpans");
		message = json_object_get(part, "errorMessage");
		if (json_is_integer(rejected))
			out->rejected = json_integer_value(rejected);
		else if (json_is_string(rejected))
			out->rejected = strtoll(json_string_value(rejected), NULL, 10);
		if (json_is_string(message))
			take_message(out, json_string_value(message), json_string_length(message));
		json_decref(all);
	}
	if (!ok || out->rejected < 0)
		memset(out, 0, sizeof(*out));
	return ok;
}

uint32_t rp_otlp_backoff_ms(unsigned n, int64_t after_s, uint32_t random)
{
	uint32_t ms = FIRST_BACKOFF_MS;

	while (n-- > 1 && ms < LONGEST_BACKOFF_MS)
		ms *= 2;
	if (ms > LONGEST_BACKOFF_MS)
		ms = LONGEST_BACKOFF_MS;
	ms = ms / 2 + random % (ms / 2 + 1);
	if (after_s <= 0)
		return ms;
	if (after_s > LONGEST_AFTER_S)
		after_s = LONGEST_AFTER_S;
	/* never before it was asked for; with a little more, so that not all come at once */
	return (uint32_t)after_s * 1000 + random % 250;
}

/* ---- the handle ---- */

static size_t on_reply(char *p, size_t one, size_t n, void *ctx)
{
	struct rp_otlp_sender *s = ctx;
	size_t room = sizeof(s->reply) - s->n_reply, all = one * n;

	memcpy(s->reply + s->n_reply, p, all < room ? all : room);
	s->n_reply += all < room ? all : room;
	return all;
}

/* libcurl takes a head that breaks off for a whole one: it has no empty line. */
static size_t on_head(char *p, size_t one, size_t n, void *ctx)
{
	struct rp_otlp_sender *s = ctx;

	if (one * n > 5 && !memcmp(p, "HTTP/", 5))
		s->whole_head = false; /* after a 100 */
	else if (one * n <= 2)
		s->whole_head = true;
	return one * n;
}

static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	struct rp_otlp_sender *s = ctx;
	int64_t deadline = atomic_load(&s->deadline);

	(void)a;
	(void)b;
	(void)c;
	(void)d;
	return deadline && rp_clock_ns(CLOCK_MONOTONIC) >= deadline;
}

static bool add_header(struct rp_otlp_sender *s, const char *name, const char *value)
{
	size_t n = strlen(name) + strlen(value) + 3;
	char *line = malloc(n);
	struct curl_slist *l;

	if (!line)
		return false;
	/* curl takes "Name;" for a header without value, "Name:" for one to leave out */
	if (*value)
		snprintf(line, n, "%s: %s", name, value);
	else
		snprintf(line, n, "%s;", name);
	l = curl_slist_append(s->headers, line);
	free(line);
	if (!l)
		return false;
	s->headers = l;
	return true;
}

int rp_otlp_sender_open(struct rp_otlp_sender *s)
{
	const struct rp_otlp_signal *to = s->to;
	z_stream *z = calloc(1, sizeof(*z));
	struct curl_slist *l;
	bool ok = z != NULL;

	s->z = z;
	s->curl = curl_easy_init();
	/* what is sent is repetitive: the fastest level has nearly all of the gain */
	if (!ok || !s->curl ||
	    deflateInit2(z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		goto fail;
	for (unsigned i = 0; i < to->headers.n; i++)
		if (!add_header(s, to->headers.kv[i].key, to->headers.kv[i].value))
			goto fail;
	if (!add_header(s, "Content-Type",
			to->json ? "application/json" : "application/x-protobuf") ||
	    (to->gzip && !add_header(s, "Content-Encoding", "gzip")))
		goto fail;
	l = curl_slist_append(s->headers, "Expect:"); /* no round trip to ask first */
	if (!l)
		goto fail;
	s->headers = l;
#define SET(o, v) ok = ok && curl_easy_setopt(s->curl, o, v) == CURLE_OK
	SET(CURLOPT_URL, to->url);
	SET(CURLOPT_POST, 1L);
	SET(CURLOPT_HTTPHEADER, s->headers);
	SET(CURLOPT_USERAGENT, AGENT);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	SET(CURLOPT_ERRORBUFFER, s->error);
	SET(CURLOPT_WRITEFUNCTION, on_reply);
	SET(CURLOPT_WRITEDATA, s);
	SET(CURLOPT_HEADERFUNCTION, on_head);
	SET(CURLOPT_HEADERDATA, s);
	SET(CURLOPT_XFERINFOFUNCTION, on_progress);
	SET(CURLOPT_XFERINFODATA, s);
	SET(CURLOPT_NOPROGRESS, 0L);
	if (to->ca)
		SET(CURLOPT_CAINFO, to->ca);
	if (to->cert)
		SET(CURLOPT_SSLCERT, to->cert);
	if (to->key)
		SET(CURLOPT_SSLKEY, to->key);
#undef SET
		/* a libcurl before 7.85 has it by bits only; the URL was looked at, too */
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(s->curl, CURLOPT_PROTOCOLS_STR, "http,https");
#endif
	if (ok)
		return 0;
fail:
	rp_otlp_sender_close(s);
	return -ENOMEM;
}

void rp_otlp_sender_close(struct rp_otlp_sender *s)
{
	if (s->z)
		deflateEnd(s->z);
	free(s->z);
	s->z = NULL;
	if (s->curl)
		curl_easy_cleanup(s->curl);
	s->curl = NULL;
	curl_slist_free_all(s->headers);
	s->headers = NULL;
	free(s->packed.p);
	memset(&s->packed, 0, sizeof(s->packed));
}

static bool pack(struct rp_otlp_sender *s, const struct rp_buf *body)
{
	z_stream *z = s->z;
	size_t most;

	if (deflateReset(z) != Z_OK)
		return false;
	most = deflateBound(z, body->n);
	s->packed.n = 0;
	if (!rp_buf_grow(&s->packed, most))
		return false;
	z->next_in = (Bytef *)body->p;
	z->avail_in = (uInt)body->n;
	z->next_out = (Bytef *)s->packed.p;
	z->avail_out = (uInt)s->packed.cap;
	if (deflate(z, Z_FINISH) != Z_STREAM_END)
		return false;
	s->packed.n = s->packed.cap - z->avail_out;
	return true;
}

/* ---- one attempt ---- */

static enum rp_otlp_result judge(CURLcode e, long status, bool whole_head)
{
	if (e == CURLE_OK && !whole_head)
		return RP_OTLP_RETRY; /* broken off */
	if (e == CURLE_OK && status >= 200 && status < 300)
		return RP_OTLP_TAKEN;
	if (e == CURLE_OK && (status < 200 || status > 599))
		return RP_OTLP_RETRY; /* no answer that HTTP knows */
	if (e == CURLE_OK)
		return status == 429 || status == 502 || status == 503 || status == 504 ?
			       RP_OTLP_RETRY :
			       RP_OTLP_REFUSED;
	switch (e) {
	case CURLE_URL_MALFORMAT:
		return RP_OTLP_REFUSED;
	default: /* whatever is wrong with the way there may be put right; so may be who
		  * answers there: what is no HTTP is CURLE_UNSUPPORTED_PROTOCOL (as 0.9) */
		return RP_OTLP_RETRY;
	}
}

static void reason(const struct rp_otlp_sender *s, CURLcode e, long status, char *buf, size_t n)
{
	if (e == CURLE_OPERATION_TIMEDOUT)
		snprintf(buf, n, "no answer in time");
	else if (e == CURLE_UNSUPPORTED_PROTOCOL || e == CURLE_WEIRD_SERVER_REPLY)
		snprintf(buf, n,
			 "the answer is no HTTP (4318 is the usual port; 4317 is that of gRPC)");
	else if (e != CURLE_OK)
		snprintf(buf, n, "%s", *s->error ? s->error : curl_easy_strerror(e));
	else if (!s->whole_head)
		snprintf(buf, n, "the answer broke off");
	else
		snprintf(buf, n, "HTTP status %ld%s", status,
			 status / 100 == 3		? " (redirects are not followed)" :
			 status == 401 || status == 403 ? " (see --otlp-header)" :
			 status == 404			? " (is the path right?)" :
							  "");
}

static void worked(struct rp_otlp_sender *s)
{
	s->failures = 0;
	atomic_store(&s->last_success, rp_clock_ns(CLOCK_REALTIME));
	if (!atomic_exchange(&s->failing, false))
		return;
	rp_say("otlp: %s get through to %s again, after %.0f s", s->what, s->to->shown,
	       (double)(rp_clock_ns(CLOCK_MONOTONIC) - s->failing_since) / 1e9);
}

static void failed(struct rp_otlp_sender *s, enum rp_otlp_result r, const char *why)
{
	s->failures++;
	if (atomic_exchange(&s->failing, true))
		return;
	s->failing_since = rp_clock_ns(CLOCK_MONOTONIC);
	rp_say("otlp: %s don't get through to %s: %s; %s", s->what, s->to->shown, why,
	       r == RP_OTLP_REFUSED ? "refused ones are dropped and counted" : s->meanwhile);
}

static void rejected(struct rp_otlp_sender *s, uint64_t items)
{
	struct rp_otlp_partial part;
	const char *type = NULL;

	curl_easy_getinfo(s->curl, CURLINFO_CONTENT_TYPE, &type);
	rp_otlp_parse_response(type && !strncasecmp(type, "application/json", 16), s->reply,
			       s->n_reply, &part);
	/* of what it was sent it can't reject more */
	if ((uint64_t)part.rejected > items)
		part.rejected = (int64_t)items;
	atomic_fetch_add(&s->rejected, (uint64_t)part.rejected);
	if (part.rejected && !s->said_partial) {
		s->said_partial = true;
		rp_say("otlp: the receiver rejected %lld %s%s%s; more are only counted",
		       (long long)part.rejected, s->data, *part.message ? ": " : "", part.message);
	}
}

enum rp_otlp_result rp_otlp_send(struct rp_otlp_sender *s, const struct rp_buf *body,
				 uint64_t items, uint32_t random)
{
	const struct rp_buf *out = body;
	int64_t deadline = atomic_load(&s->deadline);
	int64_t left = deadline ? (deadline - rp_clock_ns(CLOCK_MONOTONIC)) / 1000000 : INT64_MAX;
	long timeout = left < s->to->timeout_ms ? (long)(left > 1 ? left : 1) :
						  (long)s->to->timeout_ms;
	enum rp_otlp_result r;
	curl_off_t after = 0;
	long status = 0;
	char why[CURL_ERROR_SIZE + 64];
	CURLcode e;

	if (s->to->gzip) {
		if (!pack(s, body)) {
			atomic_fetch_add(&s->results[RP_OTLP_REFUSED], 1);
			atomic_fetch_add(&s->refused, items);
			failed(s, RP_OTLP_REFUSED, "no memory");
			return RP_OTLP_REFUSED;
		}
		out = &s->packed;
	}
	s->n_reply = 0;
	s->whole_head = false;
	s->error[0] = '\0';
	curl_easy_setopt(s->curl, CURLOPT_POSTFIELDS, out->p);
	curl_easy_setopt(s->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)out->n);
	curl_easy_setopt(s->curl, CURLOPT_TIMEOUT_MS, timeout);
	curl_easy_setopt(s->curl, CURLOPT_CONNECTTIMEOUT_MS, timeout);
	e = curl_easy_perform(s->curl);
	curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
	r = judge(e, status, s->whole_head);
	atomic_fetch_add(&s->results[r], 1);
	switch (r) {
	case RP_OTLP_TAKEN:
		atomic_fetch_add(&s->items, items);
		atomic_fetch_add(&s->bytes, out->n);
		rejected(s, items);
		worked(s);
		break;
	case RP_OTLP_RETRY:
		reason(s, e, status, why, sizeof(why));
		failed(s, r, why);
		/* seconds, or a date, by then in seconds from now */
		if (e == CURLE_OK)
			curl_easy_getinfo(s->curl, CURLINFO_RETRY_AFTER, &after);
		s->wait_ms = rp_otlp_backoff_ms(s->failures, after, random);
		break;
	default:
		reason(s, e, status, why, sizeof(why));
		atomic_fetch_add(&s->refused, items);
		failed(s, r, why);
		break;
	}
	return r;
}
