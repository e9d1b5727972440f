/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * maps.h - every map and global variable. Each .bpf.c has them all, weak, and
 * bpftool gen object merges them into one.
 */
#ifndef RP_MAPS_H
#define RP_MAPS_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "reqprobe/event.h"
#include "reqprobe/bpf_shared.h"

/* False when this kernel has no such function; what is under it is then dead.
 * (bpf_ksym_exists() came with libbpf 1.2.) */
#define rp_ksym_exists(f) ((void *)(f) != NULL)

/* Sizes here are placeholders: live.c sets them from the options. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} ring __weak SEC(".maps");

/* Preallocated: no allocation inside a system call. Not an LRU: those evict in
 * batches, and in-flight connections are what we are here for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct rp_conn);
} conns __weak SEC(".maps");

/* connection id -> key in conns, for those that speak HTTP: rp_tcp_look() */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, u64);
} conn_keys __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct rp_thread);
} threads __weak SEC(".maps");

/* global tgid -> pid as the caller of reqprobe sees it */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u32);
} watched __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct rp_listener_key);
	__type(value, struct rp_listener_val);
} listeners __weak SEC(".maps");

/* global tgid: processes whose messages are read from their sockets, since no
 * function that sends them could be hooked. Almost always empty. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, RP_ZMTP_PROCS);
	__type(key, u32);
	__type(value, u32);
} zmtp_procs __weak SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RP_MAX_HOOKS);
	__type(key, u32);
	__type(value, struct rp_hook_spec);
} hooks __weak SEC(".maps");

/* __u32, not u32: the skeleton gives these names to user space */
const volatile __u32 payload_max __weak = 256 << 10;
const volatile __u32 pid_level __weak = 0; /* depth of the caller's pid namespace */

struct rp_stat stats[RP_STAT_SLOTS] __weak = {};
__u64 watch_bits[RP_WATCH_WORDS] __weak = {};
__u64 hook_seq[RP_MAX_HOOKS] __weak = {};
__u64 last_conn __weak = 0;
__u32 unix_conns __weak = 0;
__u32 zmtp_count __weak = 0; /* of zmtp_procs: saves the look */
__u32 selftest_tgid __weak = 0;
__u32 selftest_seen __weak = 0;

#endif
