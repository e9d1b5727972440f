// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* target.c - from what the user typed to an address. */
#include "rtt/rtt.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 3, 4))) static bool bad(char *err, size_t len, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	vsnprintf(err, len, fmt, ap);
	va_end(ap);
	return false;
}

/* 0: no port at all, -1: not one */
static int port_of(const char *s, size_t n)
{
	int v = 0;

	if (!n || n > 5)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (!isdigit((unsigned char)s[i]))
			return -1;
		v = v * 10 + (s[i] - '0');
	}
	return v >= 1 && v <= 65535 ? v : -1;
}

/* An IPv6 literal, perhaps with its %scope. */
static bool literal6(const char *host)
{
	struct in6_addr a;
	char t[INET6_ADDRSTRLEN];
	size_t n = strcspn(host, "%");

	if (n >= sizeof(t))
		return false;
	memcpy(t, host, n);
	t[n] = '\0';
	return inet_pton(AF_INET6, t, &a) == 1;
}

bool rp_rtt_target_parse(const char *s, int family, struct rp_rtt_target *t, char *err,
			 size_t errlen)
{
	const char *sep = strstr(s, "://"), *auth = sep ? sep + 3 : s, *end, *at = NULL, *host,
		   *p = NULL;
	size_t scheme = sep ? (size_t)(sep - s) : 0, auth_len, host_len;
	struct in_addr a4;
	int port = 0;
	bool six, bracket;

	memset(t, 0, sizeof(*t));
	for (const char *c = s; *c; c++)
		if ((unsigned char)*c <= ' ' || *c == 0x7f)
			return bad(err, errlen, "a target has no blanks or control characters");
	auth_len = sep ? strcspn(auth, "/?#") : strlen(auth);
	end = auth + auth_len;
	for (const char *c = auth; c < end; c++)
		if (*c == '@')
			at = c;
	if (at && !sep)
		return bad(err, errlen, "'%s' is no HOST[:PORT]", s);
	host = at ? at + 1 : auth;

	bracket = *host == '[';
	if (bracket) {
		const char *close = memchr(host, ']', (size_t)(end - host));

		if (!close)
			return bad(err, errlen, "'%s' lacks its ]", s);
		host_len = (size_t)(close - ++host);
		if (close + 1 < end) {
			if (close[1] != ':')
				return bad(err, errlen, "'%s': after ] only :PORT", s);
			p = close + 2;
		}
	} else {
		const char *colon = memchr(host, ':', (size_t)(end - host));

		host_len = (size_t)(end - host);
		/* more than one colon: a bare IPv6 address, or nothing at all */
		if (colon && !memchr(colon + 1, ':', (size_t)(end - colon - 1))) {
			host_len = (size_t)(colon - host);
			p = colon + 1;
		}
	}
	if (!host_len || host_len >= sizeof(t->host))
		return bad(err, errlen, "'%s' names no host", s);
	for (size_t i = 0; i < host_len; i++) {
		t->host[i] = (char)tolower((unsigned char)host[i]);
		if (strchr("/?#\\", t->host[i]))
			return bad(err, errlen, "'%s' is no HOST[:PORT]; a URL begins with http://",
				   s);
	}
	six = literal6(t->host);
	if (!six && (bracket || strchr(t->host, ':')))
		return bad(err, errlen, "'%s' is no IPv6 address (as [::1]:8000)", t->host);

	if (p) {
		port = port_of(p, (size_t)(end - p));
		if (port < 0)
			return bad(err, errlen, "'%.*s' is no port (1 to 65535)", (int)(end - p),
				   p);
	} else if (!sep || (scheme == 4 && !strncasecmp(s, "http", 4))) {
		port = 80;
	} else if (scheme == 5 && !strncasecmp(s, "https", 5)) {
		port = 443;
	} else {
		return bad(err, errlen, "'%s': which port? Only http and https have one by default",
			   s);
	}
	if (family == AF_INET && six)
		return bad(err, errlen, "%s is an IPv6 address, and -4 was given", t->host);
	if (family == AF_INET6 && inet_pton(AF_INET, t->host, &a4) == 1)
		return bad(err, errlen, "%s is an IPv4 address, and -6 was given", t->host);

	t->port = (uint16_t)port;
	snprintf(t->name, sizeof(t->name), six ? "[%s]:%d" : "%s:%d", t->host, port);
	if (!sep) {
		snprintf(t->url, sizeof(t->url), "http://%s", t->name);
		return true;
	}
	/* credentials and the query, where keys travel, are in no output */
	if (snprintf(t->url, sizeof(t->url), "%.*s%s%.*s", (int)(auth - s), s,
		     at ? "<redacted>@" : "", (int)strcspn(at ? at + 1 : auth, "?#"),
		     at ? at + 1 : auth) >= (int)sizeof(t->url))
		return bad(err, errlen, "this URL is too long: %.40s...", s);
	return true;
}

int rp_rtt_resolve(struct rp_rtt_target *t, int family, int *sys)
{
	struct addrinfo hints = { .ai_family = family, .ai_socktype = SOCK_STREAM }, *list = NULL;
	char port[8];
	int r;

	snprintf(port, sizeof(port), "%u", t->port);
	errno = 0;
	r = getaddrinfo(t->host, port, &hints, &list);
	*sys = errno;
	if (r)
		return r;
	memcpy(&t->addr, list->ai_addr, list->ai_addrlen);
	t->addresses = 0;
	for (struct addrinfo *a = list; a; a = a->ai_next)
		t->addresses++;
	r = getnameinfo(list->ai_addr, list->ai_addrlen, t->address, sizeof(t->address), NULL, 0,
			NI_NUMERICHOST);
	if (!r)
		t->addr_len = list->ai_addrlen;
	freeaddrinfo(list);
	return r;
}
