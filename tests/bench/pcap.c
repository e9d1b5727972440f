// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * pcap.c - write a capture of many SSE streams to standard output, to measure what
 * `reqprobe pcap` takes for it:
 *
 *	cc -O2 -o build/pcap-bench tests/bench/pcap.c
 *	build/pcap-bench 500 > /tmp/x.pcap		(megabytes; 64 streams at once)
 *	time reqprobe pcap /tmp/x.pcap --jsonl /dev/null
 *
 * pcap [MEGABYTES [CONNECTIONS [TEXT [TOKENS]]]]: TEXT bytes of text in an event, TOKENS
 * events in a response; a packet for each event, an acknowledgement for every second.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct conn {
	uint32_t seq[2];
	uint16_t port, id;
	unsigned left;
};

static uint64_t now = 1700000000000000000ULL, written;

static void put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v);
}

/* side 0: the client */
static void packet(struct conn *c, int side, uint8_t flags, const char *data, size_t n)
{
	uint8_t b[66 + 4096] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45 }, *ip = b + 14,
		       *tcp = b + 34;
	uint32_t h[4] = { (uint32_t)(now / 1000000000), (uint32_t)(now % 1000000000),
			  (uint32_t)(66 + n), (uint32_t)(66 + n) };

	put16(ip + 2, (uint32_t)(52 + n));
	put16(ip + 4, ++c->id);
	ip[6] = 0x40;
	ip[8] = 64;
	ip[9] = 6;
	put32(ip + 12, side ? 0x0a000001 : 0x0a000007);
	put32(ip + 16, side ? 0x0a000007 : 0x0a000001);
	put16(tcp, side ? 8000 : c->port);
	put16(tcp + 2, side ? c->port : 8000);
	put32(tcp + 4, c->seq[side]);
	put32(tcp + 8, c->seq[!side]);
	tcp[12] = 0x80;
	tcp[13] = flags;
	put16(tcp + 14, 65535);
	memcpy(b + 66, data, n);
	fwrite(h, sizeof(h), 1, stdout);
	fwrite(b, 66 + n, 1, stdout);
	c->seq[side] += (uint32_t)n + (flags & 2 ? 1 : 0);
	written += sizeof(h) + 66 + n;
	now += 2000;
}

int main(int argc, char **argv)
{
	static const uint32_t file[6] = { 0xa1b23c4d, 2 | 4 << 16, 0, 0, 262144, 1 };
	uint64_t want = (argc > 1 ? strtoull(argv[1], NULL, 10) : 500) * 1000000;
	unsigned n = argc > 2 ? (unsigned)atoi(argv[2]) : 64;
	int text = argc > 3 ? atoi(argv[3]) : 4;
	unsigned tokens = argc > 4 ? (unsigned)atoi(argv[4]) : 500;
	struct conn *c = calloc(n, sizeof(*c));
	char ev[4096], buf[4096];
	unsigned long requests = 0, chunks = 0;

	if (!c || !n || text < 0 || text > 3000 || !tokens)
		return 2;
	fwrite(file, sizeof(file), 1, stdout);
	for (unsigned i = 0; i < n; i++) {
		c[i].port = (uint16_t)(10000 + i);
		packet(&c[i], 0, 2, "", 0);
		packet(&c[i], 1, 18, "", 0);
		packet(&c[i], 0, 16, "", 0);
		c[i].left = 0;
	}
	for (unsigned i = 0; written < want; i = (i + 1) % n) {
		int k;

		if (!c[i].left) {
			static const char body[] =
				"{\"model\":\"m\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";

			k = snprintf(
				buf, sizeof(buf),
				"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
				sizeof(body) - 1, body);
			packet(&c[i], 0, 24, buf, (size_t)k);
			k = snprintf(
				buf, sizeof(buf),
				"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
			packet(&c[i], 1, 24, buf, (size_t)k);
			c[i].left = tokens;
			requests++;
		}
		c[i].left--;
		k = snprintf(
			ev, sizeof(ev),
			"data: {\"id\":\"chatcmpl-%08lx\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\","
			"\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%0*d\"},\"logprobs\":null,\"finish_reason\":%s}]}\n\n%s",
			requests, text, 7, c[i].left ? "null" : "\"stop\"",
			c[i].left ? "" : "data: [DONE]\n\n");
		k = snprintf(buf, sizeof(buf), "%x\r\n%s\r\n%s", (unsigned)k, ev,
			     c[i].left ? "" : "0\r\n\r\n");
		packet(&c[i], 1, 24, buf, (size_t)k);
		chunks++;
		if (!(c[i].left & 1))
			packet(&c[i], 0, 16, "", 0);
	}
	fprintf(stderr, "%lu requests, %lu events, %llu bytes\n", requests, chunks,
		(unsigned long long)written);
	return fflush(stdout) ? 1 : 0;
}
