/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * client.c - a bounded load client for any OpenAI-like server: N requests, at
 * most C at once, one thread, epoll. One JSON object per request on stdout, in
 * order of completion: status, sizes, its own instants (ns of
 * CLOCK_MONOTONIC), a digest of the body and one of the generated text.
 * Exit status 0 when every request ended as it was meant to.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL

enum framing { FR_LENGTH, FR_CHUNKED, FR_CLOSE };

struct job { /* one connection */
	int fd;
	bool connected, head_done, used;
	int index; /* of the request, -1 idle */
	char *req;
	size_t req_len, req_sent;
	char *raw; /* bytes as received for this response */
	size_t raw_len, raw_cap, raw_at;
	char *body;
	size_t body_len, body_cap, body_seen;
	size_t head_len;
	int status;
	enum framing framing;
	uint64_t left;	 /* of the body or chunk */
	int chunk_state; /* 0 size line, 1 data, 2 CRLF after data, 3 trailer */
	int64_t sent_ns, first_byte_ns, first_token_ns, last_ns, connect_ns;
	int tokens, max_tokens;
	uint16_t port;
};

static struct {
	const char *unix_path, *path, *extra, *prefix, *dump, *marker, *body;
	struct sockaddr_storage addr;
	socklen_t addr_len;
	int n, c, tokens_min, tokens_max, words_min, words_max, every, lazy_ms;
	size_t prompt_bytes, read_bytes;
	int rcvbuf;
	uint64_t seed, hangup;
	bool stream, usage, rst, half_close, keepalive, quiet;
	double timeout, hangup_s;
} g = {
	.path = "/v1/chat/completions",
	.extra = "",
	.prefix = "req",
	.n = 1,
	.c = 1,
	.tokens_min = 16,
	.tokens_max = 16,
	.words_min = 4,
	.words_max = 4,
	.every = 1,
	.seed = 1,
	.timeout = 120,
};

static int ep, started, finished, bad, gone_early;
static char *discard;
#define READ_SIZE (1u << 18)

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "client: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *grow(void *p, size_t *cap, size_t need)
{
	size_t n = *cap ? *cap : 4096;

	if (need <= *cap)
		return p;
	while (n < need)
		n *= 2;
	p = realloc(p, n);
	if (!p)
		die("realloc");
	*cap = n;
	return p;
}

static uint64_t fnv(const char *p, size_t n, uint64_t h)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)p[i]) * 0x100000001b3ULL;
	return h;
}

#define FNV_START 0xcbf29ce484222325ULL

/* Digest of the values of all "content", "text" and "reasoning_content" strings. */
static uint64_t content_digest(const char *b, size_t n)
{
	static const char *const keys[] = { "\"content\":", "\"text\":", "\"reasoning_content\":" };
	uint64_t h = FNV_START;
	const char *end = b + n;

	for (const char *p = b; p < end;) {
		bool hit = false;

		p = memchr(p, '"', (size_t)(end - p));
		if (!p)
			break;
		for (size_t k = 0; k < 3 && !hit; k++) {
			size_t l = strlen(keys[k]);

			if ((size_t)(end - p) > l && !memcmp(p, keys[k], l)) {
				const char *s = p + l;

				while (s < end && *s == ' ')
					s++;
				if (s < end && *s == '"') {
					const char *e = s + 1;

					while (e < end && *e != '"')
						e += *e == '\\' ? 2 : 1;
					if (e <= end)
						h = fnv(s + 1, (size_t)(e - s - 1), h);
					p = e < end ? e + 1 : end;
					hit = true;
				}
			}
		}
		if (!hit)
			p++;
	}
	return h;
}

/* Events with a non-empty content (or text) string since the last look. */
static void look_for_tokens(struct job *j, int64_t t)
{
	char *p = j->body + j->body_seen, *nl;

	while ((nl = memchr(p, '\n', (size_t)(j->body + j->body_len - p)))) {
		size_t n = (size_t)(nl - p);
		static const char *const keys[] = { "\"content\":\"", "\"text\":\"",
						    "\"reasoning_content\":\"" };

		for (size_t k = 0; k < 3; k++) {
			char *c = memmem(p, n, keys[k], strlen(keys[k]));

			if (c && c[strlen(keys[k])] != '"') {
				j->tokens++;
				if (!j->first_token_ns)
					j->first_token_ns = t;
				break;
			}
		}
		p = nl + 1;
	}
	j->body_seen = (size_t)(p - j->body);
}

static uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15ULL;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static void make_request(struct job *j, int i)
{
	static const char *const words[] = { "river",  "stone",	 "light",  "seven",
					     "paper",  "cloud",	 "engine", "green",
					     "winter", "number", "bridge", "garden",
					     "silver", "letter", "window", "music" };
	uint64_t r = mix(g.seed + (uint64_t)i);
	int nw = g.words_min + (int)(r % (uint64_t)(g.words_max - g.words_min + 1));
	int nt = g.tokens_min + (int)((r >> 32) % (uint64_t)(g.tokens_max - g.tokens_min + 1));
	char *prompt = NULL, *body = NULL;
	size_t cap = 0, n = 0;
	int len;

	prompt = grow(prompt, &cap, g.prompt_bytes + (size_t)nw * 10 + 256);
	n = (size_t)sprintf(prompt, "%s%s", g.marker ? g.marker : "", g.marker ? " " : "");
	for (int w = 0; w < nw; w++) {
		r = mix(r);
		n += (size_t)sprintf(prompt + n, "%s%s", w ? " " : "", words[r % 16]);
	}
	if (n < g.prompt_bytes) {
		memset(prompt + n, 'p', g.prompt_bytes - n);
		n = g.prompt_bytes;
		prompt[n] = 0;
	}
	if (g.body) {
		/* a template: %P the prompt, %S the seed */
		size_t bcap = 0, b = 0;

		for (const char *s = g.body; *s; s++) {
			body = grow(body, &bcap, b + n + 64);
			if (s[0] == '%' && s[1] == 'P') {
				memcpy(body + b, prompt, n);
				b += n;
				s++;
			} else if (s[0] == '%' && s[1] == 'S') {
				b += (size_t)sprintf(body + b, "%" PRIu64, g.seed + (uint64_t)i);
				s++;
			} else {
				body[b++] = *s;
			}
		}
		body = grow(body, &bcap, b + 1);
		body[b] = 0;
	} else if (asprintf(&body,
			    "{\"model\":\"m\",\"seed\":%" PRIu64
			    ",\"max_tokens\":%d,\"stream\":%s%s%s%s,"
			    "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
			    g.seed + (uint64_t)i, nt, g.stream ? "true" : "false",
			    g.stream && g.usage ? ",\"stream_options\":{\"include_usage\":true}" :
						  "",
			    *g.extra ? "," : "", g.extra, prompt) < 0) {
		die("asprintf");
	}
	j->max_tokens = nt;
	len = asprintf(&j->req,
		       "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		       "X-Request-Id: %s-%d\r\n%sContent-Length: %zu\r\n\r\n%s",
		       g.path, g.prefix, i, g.keepalive ? "" : "Connection: close\r\n",
		       strlen(body), body);
	if (len < 0)
		die("asprintf");
	j->req_len = (size_t)len;
	free(prompt);
	free(body);
}

static void report(struct job *j, const char *end)
{
	if (!g.quiet)
		printf("{\"x_request_id\":\"%s-%d\",\"port\":%u,\"status\":%d,\"raw_bytes\":%zu,\"body_bytes\":%zu,\"request_bytes\":%zu,"
		       "\"connect_ns\":%" PRId64 ",\"sent_ns\":%" PRId64
		       ",\"first_byte_ns\":%" PRId64 ",\"first_token_ns\":%" PRId64
		       ",\"last_ns\":%" PRId64
		       ",\"tokens\":%d,\"max_tokens\":%d,\"body\":\"%016" PRIx64
		       "\",\"content\":\"%016" PRIx64 "\",\"end\":\"%s\"}\n",
		       g.prefix, j->index, j->port, j->status, j->raw_len, j->body_len, j->req_len,
		       j->connect_ns, j->sent_ns, j->first_byte_ns, j->first_token_ns, j->last_ns,
		       j->tokens, j->max_tokens, fnv(j->body, j->body_len, FNV_START),
		       content_digest(j->body, j->body_len), end);
	if (g.dump) {
		char path[512];
		int fd;

		snprintf(path, sizeof(path), "%s/%s-%d.body", g.dump, g.prefix, j->index);
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		if (fd < 0 || write(fd, j->body, j->body_len) != (ssize_t)j->body_len)
			die(path);
		close(fd);
	}
}

static void job_reset(struct job *j)
{
	free(j->req);
	j->req = NULL;
	j->req_len = j->req_sent = 0;
	j->raw_len = j->raw_at = j->body_len = j->body_seen = j->head_len = 0;
	j->head_done = false;
	j->status = j->tokens = j->chunk_state = 0;
	j->framing = FR_CLOSE;
	j->left = 0;
	j->sent_ns = j->first_byte_ns = j->first_token_ns = j->last_ns = 0;
	j->index = -1;
}

static void job_close(struct job *j)
{
	if (j->fd >= 0)
		close(j->fd);
	j->fd = -1;
	j->connected = false;
}

static void job_start(struct job *j);

static void job_done(struct job *j, const char *end, bool fine)
{
	report(j, end);
	finished++;
	if (!fine)
		bad++;
	job_reset(j);
	if (!g.keepalive || !fine || !strcmp(end, "hangup"))
		job_close(j);
	job_start(j);
}

static void want(struct job *j, uint32_t events, int op)
{
	struct epoll_event e = { .events = events, .data.ptr = j };

	if (epoll_ctl(ep, op, j->fd, &e))
		die("epoll_ctl");
}

static void job_start(struct job *j)
{
	int one = 1;

	if (started == g.n) {
		job_close(j);
		return;
	}
	j->index = started++;
	make_request(j, j->index);
	if (j->fd >= 0) {
		want(j, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
		return;
	}
	j->fd = socket(g.addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (j->fd < 0)
		die("socket");
	if (g.rcvbuf)
		setsockopt(j->fd, SOL_SOCKET, SO_RCVBUF, &g.rcvbuf, sizeof(g.rcvbuf));
	if (g.addr.ss_family != AF_UNIX)
		setsockopt(j->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	j->connect_ns = now_ns();
	if (connect(j->fd, (struct sockaddr *)&g.addr, g.addr_len) && errno != EINPROGRESS)
		die("connect");
	want(j, EPOLLIN | EPOLLOUT, EPOLL_CTL_ADD);
}

static void on_writable(struct job *j)
{
	ssize_t w;
	int64_t t;

	if (j->index < 0 || j->req_sent == j->req_len)
		return;
	if (!j->connected) {
		struct sockaddr_storage ss = { 0 };
		socklen_t sl = sizeof(ss);

		j->connected = true;
		if (!getsockname(j->fd, (struct sockaddr *)&ss, &sl))
			j->port = ntohs(
				ss.ss_family == AF_INET	 ? ((struct sockaddr_in *)&ss)->sin_port :
				ss.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&ss)->sin6_port :
							   0);
	}
	t = now_ns();
	w = write(j->fd, j->req + j->req_sent, j->req_len - j->req_sent);
	if (w < 0) {
		if (errno != EAGAIN)
			job_done(j, "error", false);
		return;
	}
	j->req_sent += (size_t)w;
	if (j->req_sent < j->req_len)
		return;
	j->sent_ns = t;
	if (g.half_close)
		shutdown(j->fd, SHUT_WR);
	want(j, EPOLLIN, EPOLL_CTL_MOD);
}

static void parse_head(struct job *j)
{
	char *eoh, *p;

	for (;;) {
		if (j->raw_len - j->raw_at < 4)
			return;
		eoh = memmem(j->raw + j->raw_at, j->raw_len - j->raw_at, "\r\n\r\n", 4);
		if (!eoh)
			return;
		*eoh = 0;
		p = j->raw + j->raw_at;
		j->status = strlen(p) > 9 ? atoi(p + 9) : 0;
		j->raw_at = (size_t)(eoh + 4 - j->raw);
		if (j->status >= 200)
			break;
	}
	j->head_done = true;
	j->framing = FR_CLOSE;
	if (strcasestr(p, "\r\nTransfer-Encoding: chunked")) {
		j->framing = FR_CHUNKED;
	} else if ((p = strcasestr(p, "\r\nContent-Length:"))) {
		j->framing = FR_LENGTH;
		j->left = strtoull(p + 17, NULL, 10);
	}
	if (j->status == 204 || j->status == 304) {
		j->framing = FR_LENGTH;
		j->left = 0;
	}
}

static void body_add(struct job *j, const char *p, size_t n)
{
	j->body = grow(j->body, &j->body_cap, j->body_len + n + 2);
	memcpy(j->body + j->body_len, p, n);
	j->body_len += n;
	j->body[j->body_len] = 0;
}

/* Moves what is new in raw into body. True when the response is complete. */
static bool parse_body(struct job *j)
{
	while (j->raw_at < j->raw_len) {
		size_t n = j->raw_len - j->raw_at;
		char *p = j->raw + j->raw_at, *nl;

		if (j->framing == FR_CLOSE) {
			body_add(j, p, n);
			j->raw_at += n;
		} else if (j->framing == FR_LENGTH) {
			if (n > j->left)
				n = j->left;
			body_add(j, p, n);
			j->raw_at += n;
			j->left -= n;
			if (!j->left)
				return true;
		} else if (j->chunk_state == 1) {
			if (n > j->left)
				n = j->left;
			body_add(j, p, n);
			j->raw_at += n;
			j->left -= n;
			if (!j->left)
				j->chunk_state = 2;
		} else {
			nl = memchr(p, '\n', n);
			if (!nl)
				return false;
			j->raw_at = (size_t)(nl + 1 - j->raw);
			if (j->chunk_state == 0) {
				j->left = strtoull(p, NULL, 16);
				j->chunk_state = j->left ? 1 : 3;
			} else if (j->chunk_state == 2) {
				j->chunk_state = 0;
			} else if (nl - p <= 1) {
				return true;
			}
		}
	}
	return j->framing == FR_LENGTH && !j->left;
}

static bool hangs_up(const struct job *j)
{
	return (g.hangup || g.hangup_s > 0) && j->index % g.every == 0;
}

static void hang_up(struct job *j)
{
	struct linger l = { .l_onoff = 1 };

	if (g.rst)
		setsockopt(j->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	j->last_ns = now_ns();
	job_close(j);
	job_done(j, "hangup", true);
}

static void on_readable(struct job *j)
{
	size_t room = g.read_bytes ? g.read_bytes : READ_SIZE;
	ssize_t n;
	int64_t t;

	if (j->index < 0) {
		n = read(j->fd, discard, READ_SIZE);
		if (n <= 0 && !(n < 0 && errno == EAGAIN))
			job_close(j);
		return;
	}
	if (hangs_up(j) && g.hangup && g.hangup - j->raw_len < room)
		room = g.hangup - j->raw_len;
	j->raw = grow(j->raw, &j->raw_cap, j->raw_len + room + 1);
	n = read(j->fd, j->raw + j->raw_len, room);
	t = now_ns();
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		bool fine = !n && j->head_done && j->framing == FR_CLOSE;

		if (!fine)
			gone_early++;
		job_done(j, fine ? "complete" : n ? "reset" : "closed", fine);
		return;
	}
	if (!j->first_byte_ns)
		j->first_byte_ns = t;
	j->last_ns = t;
	j->raw_len += (size_t)n;
	j->raw[j->raw_len] = 0;
	if (!j->head_done)
		parse_head(j);
	if (j->head_done) {
		bool whole = parse_body(j);

		if (j->body_len)
			look_for_tokens(j, t);
		if (whole) {
			job_done(j, "complete", true);
			return;
		}
	}
	if (hangs_up(j) && g.hangup && j->raw_len >= g.hangup)
		hang_up(j);
}

static void parse_connect(const char *s)
{
	struct sockaddr_in *s4 = (void *)&g.addr;
	struct sockaddr_in6 *s6 = (void *)&g.addr;
	struct sockaddr_un *su = (void *)&g.addr;
	const char *colon;
	char host[128];

	if (g.unix_path) {
		if (strlen(g.unix_path) >= sizeof(su->sun_path))
			die(g.unix_path);
		su->sun_family = AF_UNIX;
		strcpy(su->sun_path, g.unix_path);
		g.addr_len = sizeof(*su);
		if (g.unix_path[0] == '@') {
			su->sun_path[0] = 0;
			g.addr_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
						 strlen(g.unix_path));
		}
		return;
	}
	colon = s ? strrchr(s, ':') : NULL;
	if (!colon) {
		fprintf(stderr, "client: --connect HOST:PORT is needed\n");
		exit(2);
	}
	snprintf(host, sizeof(host), "%.*s", (int)(colon - s), s);
	if (host[0] == '[') {
		host[strlen(host) - 1] = 0;
		s6->sin6_family = AF_INET6;
		s6->sin6_port = htons((uint16_t)atoi(colon + 1));
		if (inet_pton(AF_INET6, host + 1, &s6->sin6_addr) != 1)
			die(s);
		g.addr_len = sizeof(*s6);
	} else {
		s4->sin_family = AF_INET;
		s4->sin_port = htons((uint16_t)atoi(colon + 1));
		if (inet_pton(AF_INET, host, &s4->sin_addr) != 1)
			die(s);
		g.addr_len = sizeof(*s4);
	}
}

int main(int argc, char **argv)
{
	enum {
		CONNECT = 256,
		UNIX,
		PATH,
		STREAM,
		USAGE,
		MAX_TOKENS,
		SEED,
		WORDS,
		PROMPT_BYTES,
		MARKER,
		EXTRA,
		BODY,
		HANGUP,
		HANGUP_MS,
		EVERY,
		RST,
		HALF_CLOSE,
		KEEPALIVE,
		ID,
		DUMP,
		LAZY,
		READ_BYTES,
		RCVBUF,
		TIMEOUT,
		QUIET
	};
	static const struct option opts[] = {
		{ "connect", 1, NULL, CONNECT },
		{ "unix", 1, NULL, UNIX },
		{ "path", 1, NULL, PATH },
		{ "stream", 0, NULL, STREAM },
		{ "usage", 0, NULL, USAGE },
		{ "max-tokens", 1, NULL, MAX_TOKENS },
		{ "seed", 1, NULL, SEED },
		{ "words", 1, NULL, WORDS },
		{ "prompt-bytes", 1, NULL, PROMPT_BYTES },
		{ "marker", 1, NULL, MARKER },
		{ "extra", 1, NULL, EXTRA },
		{ "body", 1, NULL, BODY },
		{ "hangup", 1, NULL, HANGUP },
		{ "hangup-ms", 1, NULL, HANGUP_MS },
		{ "every", 1, NULL, EVERY },
		{ "rst", 0, NULL, RST },
		{ "half-close", 0, NULL, HALF_CLOSE },
		{ "keepalive", 0, NULL, KEEPALIVE },
		{ "id", 1, NULL, ID },
		{ "dump", 1, NULL, DUMP },
		{ "lazy-ms", 1, NULL, LAZY },
		{ "read-bytes", 1, NULL, READ_BYTES },
		{ "rcvbuf", 1, NULL, RCVBUF },
		{ "timeout", 1, NULL, TIMEOUT },
		{ "quiet", 0, NULL, QUIET },
		{ 0 },
	};
	struct rlimit rl = { 65536, 65536 };
	const char *connect_to = NULL;
	struct job *jobs;
	int64_t t0, t1;
	int o;

	while ((o = getopt_long(argc, argv, "n:c:", opts, NULL)) != -1)
		switch (o) {
		case 'n':
			g.n = atoi(optarg);
			break;
		case 'c':
			g.c = atoi(optarg);
			break;
		case CONNECT:
			connect_to = optarg;
			break;
		case UNIX:
			g.unix_path = optarg;
			break;
		case PATH:
			g.path = optarg;
			break;
		case STREAM:
			g.stream = true;
			break;
		case USAGE:
			g.usage = true;
			break;
		case MAX_TOKENS:
			if (sscanf(optarg, "%d,%d", &g.tokens_min, &g.tokens_max) < 2)
				g.tokens_max = g.tokens_min;
			break;
		case SEED:
			g.seed = strtoull(optarg, NULL, 10);
			break;
		case WORDS:
			if (sscanf(optarg, "%d,%d", &g.words_min, &g.words_max) < 2)
				g.words_max = g.words_min;
			break;
		case PROMPT_BYTES:
			g.prompt_bytes = strtoul(optarg, NULL, 10);
			break;
		case MARKER:
			g.marker = optarg;
			break;
		case EXTRA:
			g.extra = optarg;
			break;
		case BODY:
			g.body = optarg;
			break;
		case HANGUP:
			g.hangup = strtoull(optarg, NULL, 10);
			break;
		case HANGUP_MS:
			g.hangup_s = atof(optarg) / 1e3;
			break;
		case EVERY:
			g.every = atoi(optarg);
			break;
		case RST:
			g.rst = true;
			break;
		case HALF_CLOSE:
			g.half_close = true;
			break;
		case KEEPALIVE:
			g.keepalive = true;
			break;
		case ID:
			g.prefix = optarg;
			break;
		case DUMP:
			g.dump = optarg;
			break;
		case LAZY:
			g.lazy_ms = atoi(optarg);
			break;
		case READ_BYTES:
			g.read_bytes = strtoul(optarg, NULL, 10);
			break;
		case RCVBUF:
			g.rcvbuf = atoi(optarg);
			break;
		case TIMEOUT:
			g.timeout = atof(optarg);
			break;
		case QUIET:
			g.quiet = true;
			break;
		default:
			fprintf(stderr,
				"usage: client --connect HOST:PORT | --unix PATH [-n N] [-c C] [options]; see client.c\n");
			return 2;
		}
	if (g.n < 0 || g.c < 1 || g.every < 1 || g.words_min < 1 || g.words_max < g.words_min ||
	    g.tokens_max < g.tokens_min) {
		fprintf(stderr, "client: bad number\n");
		return 2;
	}
	parse_connect(connect_to);
	signal(SIGPIPE, SIG_IGN);
	setrlimit(RLIMIT_NOFILE, &rl);
	setvbuf(stdout, NULL, _IOFBF, 1 << 20);
	discard = malloc(READ_SIZE);
	jobs = calloc((size_t)g.c, sizeof(*jobs));
	ep = epoll_create1(EPOLL_CLOEXEC);
	if (!jobs || ep < 0 || !discard)
		die("start");
	t0 = now_ns();
	for (int i = 0; i < g.c; i++) {
		jobs[i].fd = -1;
		job_reset(&jobs[i]);
		job_start(&jobs[i]);
	}
	while (finished < g.n) {
		struct epoll_event ev[256];
		int n = epoll_wait(ep, ev, 256, g.hangup_s > 0 ? 1 : 100);

		for (int i = 0; i < n; i++) {
			struct job *j = ev[i].data.ptr;

			if (j->fd < 0)
				continue;
			if (ev[i].events & EPOLLOUT)
				on_writable(j);
			if (j->fd >= 0 && ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
				on_readable(j);
		}
		if (g.hangup_s > 0)
			for (int i = 0; i < g.c; i++) {
				struct job *j = &jobs[i];

				if (j->index >= 0 && j->fd >= 0 && j->sent_ns && hangs_up(j) &&
				    (double)(now_ns() - j->sent_ns) > g.hangup_s * 1e9)
					hang_up(j);
			}
		if ((double)(now_ns() - t0) > g.timeout * 1e9) {
			fprintf(stderr, "client: timeout: %d of %d finished\n", finished, g.n);
			for (int i = 0; i < g.c; i++)
				if (jobs[i].index >= 0)
					report(&jobs[i], "timeout");
			fflush(stdout);
			return 1;
		}
		if (g.lazy_ms)
			usleep((useconds_t)g.lazy_ms * 1000);
	}
	t1 = now_ns();
	printf("{\"requests\":%d,\"bad\":%d,\"wall_s\":%.4f}\n", g.n, bad, (double)(t1 - t0) / 1e9);
	fflush(stdout);
	return bad ? 1 : 0;
}
