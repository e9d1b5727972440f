/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * json.h - a streaming scanner that finds the few fields timing needs in one
 * JSON document, of which it may see only parts. Contract: see http1.h.
 * It never fails: malformed input makes it find less. What does not begin with a
 * bracket (after blanks and a byte order mark) is no document: nothing of it is read
 * or kept, and nothing but blanks of what stands behind the document's end, or behind
 * a byte that no JSON has there. It may be text that looks like JSON.
 * Depth is counted beyond RP_JSON_DEPTH but paths there are not followed. Strings are
 * copied decoded: \uXXXX to UTF-8, pairs of them too, halves and NUL to U+FFFD; other
 * escapes that JSON does not have to '?'. They are cut at a character's end. Raw bytes
 * are copied as they come, valid UTF-8 or not.
 *
 * What `keep` gets: structure, blanks, quotes; keys as far as they begin like a
 * key that is known at that place; true, false and null under such a key; the
 * values that fill the fields below. Of a part no field comes from (tools,
 * logprobs, texts), only structure, blanks and quotes. One filler may become
 * 'z', where 'x' would complete a known key ("indey" must not read "index"), and
 * where the text of an error says that the prompt is too long.
 *
 * Beyond the fields' own comments: Anthropic's Messages, SGLang's /generate and
 * TGI's stream are read as well; the Responses API's deltas, by `type`, count as
 * content, reasoning or tool of choice 0, and its completed / incomplete end as
 * finish_reason stop / length. A native document is choice 0, or llama.cpp's
 * `index` where `stop` stands beside it. A choice's bits become facts at its
 * closing bracket, or at a gap or the end: read them after rp_json_gap/_end.
 * An empty finish_reason is none. An array of documents counts as one.
 */
#ifndef REQPROBE_JSON_H
#define REQPROBE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RP_JSON_DEPTH 12
#define RP_ID_MAX 128
#define RP_MODEL_MAX 128
#define RP_FINISH_MAX 24
#define RP_ERRTYPE_MAX 64
#define RP_JSON_CHOICES 64 /* choices told apart; further ones are counted in choices_over */
#define RP_ABSENT INT64_MIN

/*
 * Facts of a request body, a whole response body, or one event. Filled as the
 * document goes by. Numbers are RP_ABSENT when absent or null. Where each comes
 * from ([] = any array index; both OpenAI and native shapes):
 */
struct rp_json_facts {
	/* any */
	char model[RP_MODEL_MAX]; /* model */
	char id[RP_ID_MAX];	  /* id; also response.id (Responses API), request_id in requests */
	char object[32];	  /* object */
	bool model_cut, id_cut;
	/* request */
	int8_t stream;	      /* stream: -1 absent, 0, 1 */
	int64_t n;	      /* n (also n_cmpl, best_of ignored) */
	int64_t max_tokens;   /* max_tokens, max_completion_tokens, n_predict */
	int8_t include_usage; /* stream_options.include_usage, -1 absent */
	uint32_t media[3]; /* images, audios, videos: by the type of messages' (input's) content parts */
	bool whole;	   /* the request's object was read up to its end */
	int64_t prompts; /* elements of prompt / input when an array of strings or of arrays; 1 for a string or an array of numbers; RP_ABSENT if neither key was seen */
	bool tools;	 /* a non-empty array tools, or functions */
	bool guided; /* response_format.type that is not text, structured_outputs, guided_*, grammar, json_schema */
	char service_tier[16]; /* service_tier */
	/* response or event: bit i = choice index i (choices[].index, else position) */
	uint64_t choices; /* choices present in this document */
	uint64_t content; /* non-empty choices[].delta.content (string, or array of parts with a non-empty text), choices[].text, choices[].message.content; native top-level content; message.content (Ollama), response (Ollama, string) */
	uint64_t reasoning; /* non-empty delta.reasoning, reasoning_content, thinking (also message.*; message.thinking and thinking for Ollama) */
	uint64_t tool; /* delta.tool_calls[].function.name or .arguments non-empty; also message.tool_calls, delta.function_call */
	uint64_t finished; /* choices with a non-null finish_reason */
	uint32_t choices_over;
	char finish_reason
		[RP_FINISH_MAX]; /* of the lowest choice index that has one; native: stop_type (eos -> "stop", limit -> "length", word -> "stop") or done_reason */
	int8_t stop;		 /* native top-level stop / done: -1 absent */
	int64_t prompt_tokens; /* usage.prompt_tokens | usage.input_tokens, with the caches beside it | tokens_evaluated | prompt_eval_count */
	int64_t completion_tokens; /* usage.completion_tokens | usage.output_tokens | tokens_predicted | eval_count */
	int64_t total_tokens;  /* usage.total_tokens */
	int64_t cached_tokens; /* usage.prompt_tokens_details.cached_tokens | usage.input_tokens_details.cached_tokens | usage.cached_tokens and its other names | tokens_cached is NOT it */
	int64_t reasoning_tokens; /* usage.completion_tokens_details.reasoning_tokens | output_tokens_details */
	bool has_usage; /* a non-null usage object was seen */
	/* what else usage may say; the names of every provider, as AIPerf reads them */
	int64_t input_tokens; /* input_tokens: without the next two where they stand beside it */
	int64_t cache_read_tokens, cache_write_tokens; /* cache_{read,creation}_input_tokens */
	int64_t cache_miss_tokens;		       /* prompt_cache_miss_tokens */
	int64_t prompt_audio_tokens, completion_audio_tokens; /* details.audio_tokens */
	int64_t accepted_tokens, rejected_tokens; /* completion details' *_prediction_tokens */
	int64_t tool_use_tokens;		  /* toolUsePromptTokenCount */
	double prompt_audio_seconds;		  /* NAN absent */
	/* speculative decoding: vLLM's metrics.speculative_decoding.num_*; of llama.cpp's
	 * timings draft_n and draft_n_accepted */
	int64_t spec_steps, spec_draft_tokens, spec_accepted_tokens;
	double video_inference_s,
		video_peak_memory_mb; /* SGLang's inference_time_s, peak_memory_mb */
	/* llama.cpp's timings object, milliseconds and counts */
	int64_t t_prompt_n, t_predicted_n, t_cache_n;
	double t_prompt_ms, t_predicted_ms; /* NAN absent */
	bool has_timings;
	bool prompt_progress;  /* a prompt_progress object: not a token */
	int64_t native_tokens; /* native top-level `tokens` array: its length, RP_ABSENT if none */
	/* errors: top-level error (object or string), type: "error", detail */
	bool error;
	char error_type[RP_ERRTYPE_MAX]; /* error.type; an error string's text is never kept */
	char error_code[32];		 /* error.code as string or number */
	bool too_long; /* its text (error, error.message, message, detail) says that the prompt is */
	bool done_marker; /* the document was exactly [DONE] */
	bool gapped;	  /* bytes were missing inside */
	bool any;	  /* at least one non-space byte was seen */
};

enum { RP_JSON_IMAGE, RP_JSON_AUDIO, RP_JSON_VIDEO };

enum rp_json_role { RP_JSON_REQUEST_BODY, RP_JSON_RESPONSE_BODY };

struct rp_json {
	struct rp_json_facts f;
	/* private */
	uint8_t mode, st, depth;
	uint8_t act, obj, arr; /* what the schema says of the value to come */
	uint8_t esc, hexn;     /* inside an escape */
	uint8_t dm;	       /* progress through [DONE] */
	uint8_t bom;	       /* bytes of a byte order mark seen */
	uint8_t scope;	       /* whose bits: the document, a choice, an output item */
	bool dev;	       /* the key or bare scalar is none that is kept */
	bool cut;
	bool scan; /* this string is searched */
	uint8_t wlen;
	uint16_t hex, tlen;
	uint16_t high; /* half of a pair of \u escapes */
	uint16_t rbits, cbits, ibits;
	uint8_t fin_index;
	uint32_t skip; /* depth inside a part that is of no interest */
	int64_t cindex, rindex;
	struct {
		uint8_t node, arr, seen;
		uint32_t count;
	} lv[RP_JSON_DEPTH + 1];
	char type[64], code[32], itype[32], rfin[RP_FINISH_MAX], cfin[RP_FINISH_MAX];
	char status[RP_FINISH_MAX], fmt[16];
	/* from here on: written before it is read */
	char tok[RP_ID_MAX];
	char win[96]; /* the last of the string that is searched, in lower case */
};

void rp_json_init(struct rp_json *p, enum rp_json_role role);
/* Feed the next bytes of the document. */
void rp_json_feed(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t n);
/* Bytes are missing: what follows in this document is skipped, the facts found
 * so far stay, f.gapped is set; half a string or number is no fact. */
void rp_json_gap(struct rp_json *p);
/* The document is complete: closes an open bare scalar. Idempotent. */
void rp_json_end(struct rp_json *p);

#endif
