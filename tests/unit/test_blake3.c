// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "util.h"

#include "lib/blake3.h"

/*
 * The values of the official test vectors (BLAKE3 1.x, test_vectors.json), first 32
 * bytes, and of the lengths around a block between them. Input: 0, 1, ..., 250, 0, ...
 */
static const char key[] = "whats the Elvish word for friend";
static const struct {
	size_t n;
	const char *hash, *keyed;
} vectors[] = {
	{ 0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
	  "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26" },
	{ 1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213",
	  "6d7878dfff2f485635d39013278ae14f1454b8c0a3a2d34bc1ab38228a80c95b" },
	{ 63, "e9bc37a594daad83be9470df7f7b3798297c3d834ce80ba85d6e207627b7db7b",
	  "bb1eb5d4afa793c1ebdd9fb08def6c36d10096986ae0cfe148cd101170ce37ae" },
	{ 64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98",
	  "ba8ced36f327700d213f120b1a207a3b8c04330528586f414d09f2f7d9ccb7e6" },
	{ 65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee",
	  "c0a4edefa2d2accb9277c371ac12fcdbb52988a86edc54f0716e1591b4326e72" },
	{ 127, "d81293fda863f008c09e92fc382a81f5a0b4a1251cba1634016a0f86a6bd640d",
	  "c64200ae7dfaf35577ac5a9521c47863fb71514a3bcad18819218b818de85818" },
	{ 128, "f17e570564b26578c33bb7f44643f539624b05df1a76c81f30acd548c44b45ef",
	  "b04fe15577457267ff3b6f3c947d93be581e7e3a4b018679125eaf86f6a628ec" },
	{ 129, "683aaae9f3c5ba37eaaf072aed0f9e30bac0865137bae68b1fde4ca2aebdcb12",
	  "d4a64dae6cdccbac1e5287f54f17c5f985105457c1a2ec1878ebd4b57e20d38f" },
	{ 1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11",
	  "c951ecdf03288d0fcc96ee3413563d8a6d3589547f2c2fb36d9786470f1b9d6e" },
	{ 1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7",
	  "75c46f6f3d9eb4f55ecaaee480db732e6c2105546f1e675003687c31719c7ba4" },
	{ 1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444",
	  "357dc55de0c7e382c900fd6e320acc04146be01db6a8ce7210b7189bd664ea69" },
	{ 2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a",
	  "879cf1fa2ea0e79126cb1063617a05b6ad9d0b696d0d757cf053439f60a99dd1" },
	{ 2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030",
	  "9f29700902f7c86e514ddc4df1e3049f258b2472b6dd5267f61bf13983b78dd5" },
	{ 3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2",
	  "044a0e7b172a312dc02a4c9a818c036ffa2776368d7f528268d2e6b5df191770" },
	{ 3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3",
	  "68dede9bef00ba89e43f31a6825f4cf433389fedae75c04ee9f0cf16a427c95a" },
	{ 4096, "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d2163229e969",
	  "befc660aea2f1718884cd8deb9902811d332f4fc4a38cf7c7300d597a081bfc0" },
	{ 4097, "9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d890d15c96a1c25b8aa0fb995",
	  "00df940cd36bb9fa7cbbc3556744e0dbc8191401afe70520ba292ee3ca80abbc" },
	{ 5120, "9cadc15fed8b5d854562b26a9536d9707cadeda9b143978f319ab34230535833",
	  "2c493e48e9b9bf31e0553a22b23503c0a3388f035cece68eb438d22fa1943e20" },
	{ 5121, "628bd2cb2004694adaab7bbd778a25df25c47b9d4155a55f8fbd79f2fe154cff",
	  "6ccf1c34753e7a044db80798ecd0782a8f76f33563accaddbfbb2e0ea4b2d024" },
	{ 6144, "3e2e5b74e048f3add6d21faab3f83aa44d3b2278afb83b80b3c35164ebeca205",
	  "3d6b6d21281d0ade5b2b016ae4034c5dec10ca7e475f90f76eac7138e9bc8f1d" },
	{ 7169, "a003fc7a51754a9b3c7fae0367ab3d782dccf28855a03d435f8cfe74605e7817",
	  "ed9b1a922c046fdb3d423ae34e143b05ca1bf28b710432857bf738bcedbfa511" },
	{ 8192, "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63",
	  "dc9637c8845a770b4cbf76b8daec0eebf7dc2eac11498517f08d44c8fc00d58a" },
	{ 8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b",
	  "954a2a75420c8d6547e3ba5b98d963e6fa6491addc8c023189cc519821b4a1f5" },
	{ 16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4",
	  "9e9fc4eb7cf081ea7c47d1807790ed211bfec56aa25bb7037784c13c4b707b0d" },
	{ 31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47",
	  "efa53b389ab67c593dba624d898d0f7353ab99e4ac9d42302ee64cbf9939a419" },
	{ 102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085",
	  "1c35d1a5811083fd7119f5d5d1ba027b4d01c0c6c49fb6ff2cf75393ea5db4a7" },
};

static void expect(const struct rp_blake3 *h, const char *want)
{
	uint8_t out[RP_BLAKE3_LEN];
	char hex[RP_BLAKE3_HEX];

	rp_blake3_final(h, out);
	rp_blake3_hex(out, hex);
	assert_string_equal(hex, want);
}

static void official(void **st)
{
	struct rp_blake3 h;

	(void)st;
	for (size_t i = 0; i < COUNT_OF(vectors); i++) {
		uint8_t *p = guard_buf(0, vectors[i].n);

		for (size_t k = 0; k < vectors[i].n; k++)
			p[k] = (uint8_t)(k % 251);
		rp_blake3_init(&h);
		rp_blake3_update(&h, p, vectors[i].n);
		expect(&h, vectors[i].hash);
		rp_blake3_init_keyed(&h, (const uint8_t *)key);
		rp_blake3_update(&h, p, vectors[i].n);
		expect(&h, vectors[i].keyed);
	}
}

/* Cut into pieces anywhere; a final in between changes nothing. */
static void pieces(void **st)
{
	uint8_t out[RP_BLAKE3_LEN];
	struct rp_blake3 h;
	unsigned seed = 1;

	(void)st;
	for (size_t i = 0; i < COUNT_OF(vectors); i++) {
		size_t n = vectors[i].n;
		uint8_t *p = guard_buf(0, n);

		for (size_t k = 0; k < n; k++)
			p[k] = (uint8_t)(k % 251);
		for (size_t most = 1; most <= 3000; most = most * 3 + 1) {
			rp_blake3_init(&h);
			for (size_t at = 0; at < n;) {
				size_t take = 1 + (size_t)rand_r(&seed) % most;

				take = take < n - at ? take : n - at;
				rp_blake3_update(&h, p + at, take);
				if (take & 1)
					rp_blake3_final(&h, out);
				at += take;
			}
			expect(&h, vectors[i].hash);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(official),
		cmocka_unit_test(pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
