/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fake_llama.c - the paced server with llama-server's function symbols, which
 * are never called: an engine that can be hooked and stays silent. Stripped, it
 * is an engine without symbols.
 */
#include "paced.c"

#define FUNCTION(symbol)                                                                     \
	__attribute__((noinline, used, visibility("default"))) void symbol(void *a, void *b, \
									   void *c);         \
	void symbol(void *a, void *b, void *c)                                               \
	{                                                                                    \
		__asm__ volatile("# " #symbol : : "r"(a), "r"(b), "r"(c) : "memory");        \
	}

FUNCTION(_ZN12server_queue4postEO11server_taskb)
FUNCTION(_ZN12server_queue4postEOSt6vectorI11server_taskSaIS1_EEb)
FUNCTION(_ZN12server_queue5deferEO11server_task)
FUNCTION(_ZN15server_response19add_waiting_task_idEi)
FUNCTION(_ZN19server_context_impl21launch_slot_with_taskER11server_slotO11server_task)
FUNCTION(_ZN19server_context_impl13process_tokenER23completion_token_outputR11server_slot)
FUNCTION(_ZN19server_context_impl19send_final_responseER11server_slot)
FUNCTION(_ZN11server_slot7releaseEv)
